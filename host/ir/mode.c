#include "ir/mode.h"

#include "ir/build.h"

Mode mode_of(const Type *t) {
    if (!t->layout || !t->layout->manual) return (Mode){0};
    return (Mode){t->layout->manual, t->layout->vary};
}

Val mode_bring(Build *b, Val v, Mode m) {
    if (b->err || v == 0) return 0;
    if (mode_equal(mode_of(graph_type(b->g, v)), m)) return v;
    return b->g->cx->interns->cast(b, v, m);
}

/* The row's own rule; the operands are not brought yet. */
static bool ask_row(Build *b, const OpDef *def, const Val *in, int nin, const void *attr,
                    ModeRule *r) {
    enum { FEW = 8 };
    const Type *few[FEW], **types = few;
    if (nin > FEW && !(types = ARENA_ARRAY(&b->g->arena, const Type *, nin))) {
        build_fail(b, err_nomem(b->g->cx, "a graph"));
        return false;
    }
    for (int i = 0; i < nin; i++) types[i] = graph_type(b->g, in[i]);
    Err e = def->mode(&(OpArgs){b->g->cx, def, nin, types, attr}, r);
    if (e) build_fail(b, e);
    return !e;
}

bool mode_meet(Build *b, const OpDef *def, Val *in, int nin, const void *attr, Mode *out) {
    Mode all = {b->manual, 0};
    for (int i = 0; i < nin; i++) {
        Mode m = mode_of(graph_type(b->g, in[i]));
        all.manual |= m.manual;
        all.vary |= m.vary;
    }
    ModeRule r = {all, all};
    if (def->mode && !ask_row(b, def, in, nin, attr, &r)) return false;
    for (int i = 0; i < nin; i++) in[i] = mode_bring(b, in[i], r.in);
    *out = r.out;
    return !b->err;
}

Err mode_layout(Ctx *cx, const Mesh *m, int rank, Mode mode, const Layout **out) {
    *out = NULL;
    if (!mode.manual) return E_OK;
    Layout l;
    layout_init(&l, m, rank);
    l.manual = (uint8_t)mode.manual;
    l.vary = (uint8_t)mode.vary;
    *out = layout_of(cx, &l);
    return *out ? E_OK : err_nomem(cx, "a layout");
}
