
#include "ir/build.h"

Mode mode_of(const Type *t) {
    if (!t->layout || !t->layout->manual) return (Mode){0};
    const Layout *l = t->layout;
    return (Mode){l->manual, l->vary & l->manual, l->unreduced & l->manual, l->reduced & l->manual};
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

static bool refuse(Build *b, const OpDef *def, uint32_t axes, const char *what) {
    Str s;
    str_init(&s, &b->g->cx->alloc);
    mesh_print_axes(b->g->mesh, axes, &s);
    build_fail(b, err_set(b->g->cx, E_SPEC,
                          "%s: a value is unreduced over '%s', a sum still to be made%s; psum it "
                          "first",
                          def->name, str_of(&s), what));
    str_free(&s);
    return false;
}

/* Sums still to be made go through ops that are linear in them: through one of several operands,
 * with the others the same on all devices, or through all together. */
static bool meet_unreduced(Build *b, const OpDef *def, Val *in, int nin, Mode all, Mode *out) {
    bool joint = def->flags & OPF_JOINT;
    int sums = 0;
    if (all.vary & all.unreduced)
        return refuse(b, def, all.vary & all.unreduced, ", and another operand varies over it");
    for (int i = 0; i < nin; i++) {
        bool linear = def->linear >> (i < 31 ? i : 31) & 1;
        uint32_t mine = mode_of(graph_type(b->g, in[i])).unreduced;
        if (mine && !linear) return refuse(b, def, mine, ", and the op is not linear");
        if (mine && sums++ && !joint) return refuse(b, def, mine, ", and so is another operand");
    }
    for (int i = 0; i < nin && !b->err; i++) {
        Mode m = all;
        bool linear = def->linear >> (i < 31 ? i : 31) & 1;
        if (!(joint && linear)) m.unreduced = mode_of(graph_type(b->g, in[i])).unreduced;
        m.reduced |= all.unreduced & ~m.unreduced;
        in[i] = mode_bring(b, in[i], m);
    }
    *out = all;
    return !b->err;
}

bool mode_meet(Build *b, const OpDef *def, Val *in, int nin, const void *attr, Mode *out) {
    Mode all = {.manual = b->manual};
    for (int i = 0; i < nin; i++) {
        Mode m = mode_of(graph_type(b->g, in[i]));
        all.manual |= m.manual;
        all.vary |= m.vary;
        all.unreduced |= m.unreduced;
        all.reduced |= m.reduced;
    }
    all.reduced &= ~(all.vary | all.unreduced);
    if (all.unreduced && !def->mode) return meet_unreduced(b, def, in, nin, all, out);
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
    l.unreduced = (uint8_t)mode.unreduced;
    l.reduced = (uint8_t)mode.reduced;
    *out = layout_of(cx, &l);
    return *out ? E_OK : err_nomem(cx, "a layout");
}
