/* table.c - all rows. It alone refers to them: an op names another by its number, and finds its row
 * in the context's table. */
#include "op/manual.h"

#include <string.h>

#define OP(NAME, family) extern const OpDef op_row_##NAME;
#include "op/oplist.h"
#undef OP

static const OpDef *const rows[OP_COUNT] = {
#define OP(NAME, family) [OP_##NAME] = &op_row_##NAME,
#include "op/oplist.h"
#undef OP
};

const OpDef *op_def(int op) {
    return rows[op];
}

int op_find(const char *name) {
    for (int i = 1; i < OP_COUNT; i++)
        if (strcmp(rows[i]->name, name) == 0) return i;
    return OP_NONE;
}

/* The first thing that the row lacks, or NULL. */
static const char *hole(const OpDef *d) {
    bool internal = d->flags & (OPF_PARAM | OPF_COLLECTIVE | OPF_PLACEHOLDER);
    if (!d->name || !d->doc || !d->operands) return "a name, doc and operands";
    if (!d->shape && !(d->flags & OPF_TYPED)) return "a shape rule";
    if (d->attr && !d->attr_size) return "attr_size";
    if (internal) return NULL;
    if (!d->vjp && !d->expand && !(d->flags & (OPF_NO_GRAD | OPF_TYPED)))
        return "a gradient (vjp, expand or OPF_NO_GRAD)";
    if (!d->factors && !(d->flags & OPF_TYPED)) return "a sharding rule";
    if (d->control && (!d->flow || !d->keep || !d->make)) return "the flow through its regions";
    if (!d->view && !d->emit && !d->instr && !d->kernel && !d->control && !d->split)
        return "a view, an instruction or a kernel";
    if (!d->batch && d->nin != 0 && !(d->flags & (OPF_ELEMENTWISE | OPF_TYPED)))
        return "a rule for many examples (batch)";
    return NULL;
}

Err op_init(Ctx *cx) {
    OpDef *table = arena_alloc(&cx->interns->arena, sizeof *table * OP_COUNT);
    if (!table) return err_nomem(cx, "the op table");
    for (int i = 1; i < OP_COUNT; i++) {
        const char *what = hole(rows[i]);
        ASSERT(!what, "op %d (%s) lacks %s", i, rows[i]->name ? rows[i]->name : "?", what);
        table[i] = *rows[i];
    }
    table[0].name = "none";
    cx->interns->ops = table;
    cx->interns->nops = OP_COUNT;
    cx->interns->cast = manual_cast;
    return E_OK;
}
