
#include "ir/explicit_error.h"

uint32_t explicit_axes(const Build *b) {
    return mesh_axes_of(b->g->mesh, AXIS_EXPLICIT) ^ b->flipped;
}

uint32_t explicit_axes_of(const Mesh *m, const Layout *l) {
    uint32_t mask = mesh_axes_of(m, AXIS_EXPLICIT);
    return l ? (mask ^ l->flipped) & ~(uint32_t)l->manual : mask;
}

void explicit_view(const Type *t, const Mesh *m, uint32_t axes, Layout *view) {
    layout_init(view, m, t->dims.rank);
    if (!t->layout) return;
    for (int d = 0; d < view->rank; d++)
        for (int i = 0; i < t->layout->dim[d].axes.n; i++) {
            AxisRef r = t->layout->dim[d].axes.at[i];
            if (axes >> r.axis & 1 && r.size > 1) axes_push(&view->dim[d].axes, r);
        }
    view->unreduced = (uint8_t)(t->layout->unreduced & axes);
    view->unreduced_kind = view->unreduced ? t->layout->unreduced_kind : REDUCE_SUM;
    view->reduced = (uint8_t)(t->layout->reduced & axes);
}

static uint32_t split_by(const Layout *l) {
    return layout_used(l) & ~(uint32_t)l->unreduced;
}

uint32_t explicit_through(const OpArgs *a, const Layout *in, const Type *const *out) {
    uint32_t unreduced = 0;
    bool is_float = dtype_is_float(out[0]->dtype), joint = a->def->flags & OPF_JOINT;
    for (int t = 0; t < a->nin; t++) {
        unreduced |= in[t].unreduced;
        if (!in[t].unreduced) continue;
        bool linear = t < 32 && a->def->linear >> t & 1;
        /* Maxima and minima stay what they are where elements only change places. */
        bool kind = in[t].unreduced_kind == REDUCE_SUM || (a->nin == 1 && a->def->view);
        if (!linear || !kind || dtype_is_float(a->in[t]->dtype) != is_float ||
            out[0]->dtype == DT_BOOL)
            return 0;
    }
    for (int t = 0; t < a->nin; t++) {
        bool linear = t < 32 && a->def->linear >> t & 1;
        unreduced &= ~split_by(&in[t]);
        if (joint && linear) unreduced &= in[t].unreduced;
        for (int u = 0; !joint && u < t; u++)
            unreduced &= ~(uint32_t)(in[t].unreduced & in[u].unreduced);
    }
    return unreduced;
}

/* ---- what the operands say of each factor ---- */

static int rank_of(const Infer *f, int t) {
    return t < f->a->nin ? f->a->in[t]->dims.rank : f->out[t - f->a->nin]->dims.rank;
}

static bool has(const Infer *f, int t, int factor) {
    return factor_in(&f->r->tensor[t], rank_of(f, t), factor);
}

static bool in_result(const Infer *f, int factor) {
    for (int i = 0; i < f->nout; i++)
        if (has(f, f->a->nin + i, factor)) return true;
    return false;
}

/* Of an op that is defined by simpler ones, a dim that its kernel needs whole keeps its axes in the
 * result: what it is gathered for is the kernel's affair. */
static bool is_whole(const Infer *f, int factor) {
    return f->r->kind[factor] == FACTOR_REPLICATE && !(f->a->def->expand && in_result(f, factor));
}

/* Is it what somebody wants of the result? */
static bool is_wanted(const Infer *f, int factor, const AxisList *list) {
    const Layout *want = f->b->want;
    int d = want ? factor_dim(&f->r->tensor[f->a->nin], f->out[0]->dims.rank, factor) : -1;
    return d >= 0 && d < want->rank && axes_equal(&want->dim[d].axes, list);
}

/* Is dim d of the results, which no factor runs along, split as that of the operands (of a concat:
 * of all; of an op that resizes operand 0: of that one), and can the results be split so? Then they
 * are: as with is_whole, the dim is put together on the way. */
static bool is_kept(const Infer *f, int d) {
    const AxisList *axes = &f->view[0].dim[d].axes;
    bool resizes = f->a->def->flags & OPF_RESIZES;
    for (int t = 0; t < (resizes ? 1 : f->a->nin); t++)
        if (f->view[t].rank != f->view[0].rank || (f->r->tensor[t].n[d] && !resizes) ||
            !axes_equal(&f->view[t].dim[d].axes, axes))
            return false;
    for (int i = 0; i < f->nout; i++)
        if (f->out[i]->dims.rank != f->view[0].rank || f->r->tensor[f->a->nin + i].n[d] ||
            f->out[i]->dims.at[d] % axes_product(axes))
            return false;
    return true;
}

/* Is dim d gone from every result, where it has size 1 (as of an argmax)?
 * Nothing is left to lie. */
static bool is_gone(const Infer *f, int t, int d) {
    for (int i = 0; i < f->nout; i++)
        if (f->out[i]->dims.rank != f->view[t].rank || f->out[i]->dims.at[d] != 1) return false;
    return f->nout > 0;
}

/* Is dim d of operand t, which no factor runs along, a part of operand 0's that is split alike
 * (that of an update)? The result lies as operand 0. */
static bool is_part(const Infer *f, int t, int d) {
    return t > 0 && f->a->def->flags & OPF_RESIZES && f->view[t].rank == f->view[0].rank &&
           axes_equal(&f->view[t].dim[d].axes, &f->view[0].dim[d].axes);
}

/* Operand t says `have` of the factor. */
static Err merge(Infer *f, int factor, int t, const AxisList *have) {
    AxisList *list = &f->list[factor];
    int s = f->source[factor];
    if (axes_is_prefix(have, list)) return E_OK;
    if (s < 0 || axes_is_prefix(list, have)) {
        *list = *have;
        f->source[factor] = t;
        return E_OK;
    }
    if (f->strict) return explicit_error_conflict(f, factor, s, t);
    bool larger = type_bytes(f->a->in[t]) > type_bytes(f->a->in[s]);
    if (is_wanted(f, factor, have) || (larger && !is_wanted(f, factor, list))) {
        *list = *have;
        f->source[factor] = t;
    }
    return E_OK;
}

static Err merge_operand(Infer *f, int t) {
    const Projection *p = &f->proj[t];
    for (int d = 0; f->strict && p->leftover && d < f->view[t].rank; d++)
        if (axes_mask(&f->view[t].dim[d].axes) & p->leftover && !is_kept(f, d) && !is_part(f, t, d))
            return explicit_error_whole(f, t, d);
    for (int k = 0; k < f->r->nfactor; k++) {
        if (!p->factor[k].n) continue;
        if (is_whole(f, k)) {
            int d = factor_dim(&f->r->tensor[t], f->view[t].rank, k);
            bool settled = is_gone(f, t, d) || (t == 0 && is_kept(f, d));
            if (f->strict && !settled) return explicit_error_whole(f, t, d);
            continue;
        }
        TRY(merge(f, k, t, &p->factor[k]));
    }
    return E_OK;
}

/* A factor that is summed over, split in two operands (or in one, where the op asks): the user says
 * what becomes of the parts. */
static Err check_contracted(const Infer *f, int factor) {
    int holders = 0;
    for (int t = 0; t < f->a->nin; t++) holders += f->proj[t].factor[factor].n > 0;
    int most = f->a->def->flags & OPF_ASKS ? 0 : 1;
    return holders > most && !in_result(f, factor) ? explicit_error_contracted(f, factor) : E_OK;
}

/* ---- what that makes of a result ---- */

static bool overlaps(const AxisList *a, const AxisList *b) {
    for (int i = 0; i < a->n; i++)
        for (int k = 0; k < b->n; k++)
            if (axes_overlap(a->at[i], b->at[k])) return true;
    return false;
}

/* Does factor `a` keep an axis that `b` wants as well? */
static bool goes_before(const Infer *f, int a, int b) {
    bool wanted = is_wanted(f, a, &f->list[a]);
    if ((a == f->keep) != (b == f->keep)) return a == f->keep;
    if (wanted != is_wanted(f, b, &f->list[b])) return wanted;
    int64_t x = type_bytes(f->a->in[f->source[a]]), y = type_bytes(f->a->in[f->source[b]]);
    return x != y ? x > y : a < b;
}

/* The factors that the result has, without those that another one takes an axis from. */
static Err pick(const Infer *f, int i, AxisList *mine) {
    int t = f->a->nin + i;
    for (int k = 0; k < f->r->nfactor; k++) mine[k] = has(f, t, k) ? f->list[k] : (AxisList){0};
    for (int k = 0; k < f->r->nfactor; k++)
        for (int j = 0; j < k; j++) {
            if (!overlaps(&mine[k], &mine[j])) continue;
            if (f->strict) return explicit_error_illegal(f, i, j, k);
            mine[goes_before(f, k, j) ? j : k].n = 0;
        }
    return E_OK;
}

/* Drops axes until there is a layout that says what is left. */
static Err say(const Infer *f, int i, AxisList *mine, Layout *l) {
    int t = f->a->nin + i;
    const Dims *dims = &f->out[i]->dims;
    const FactorMap *m = &f->r->tensor[t];
    while (!rule_unproject(f->r, t, dims->rank, f->b->g->mesh, mine, l))
        for (int d = 0; d < dims->rank; d++) {
            int last = -1;
            bool full = true, bad = false;
            for (int k = 0; k < m->n[d]; k++) {
                int factor = m->at[d][k];
                if (mine[factor].n) last = factor;
                bad = bad || (mine[factor].n && !full);
                full = full && axes_product(&mine[factor]) == f->r->size[factor];
            }
            if (!bad) continue;
            if (f->strict) return explicit_error_unsaid(f, i, d);
            mine[last].n = 0;
        }
    for (int d = 0; d < dims->rank; d++) {
        Layout before = *l;
        bool parts =
            layout_drop_parts(&before) && !axes_equal(&before.dim[d].axes, &l->dim[d].axes);
        bool divides = dims->at[d] % layout_parts(l, d) == 0;
        if (!parts && divides) continue;
        if (f->strict) return explicit_error_unsaid(f, i, d);
        if (!divides) l->dim[d].axes.n = 0;
    }
    layout_drop_parts(l);
    return E_OK;
}

/* Sums that a build which is not strict leaves to be made; maxima and minima, if
 * they are wanted so. */
static uint32_t left_unreduced(const Infer *f, int i, uint8_t *kind) {
    static const uint8_t kind_of[] = {
        [FACTOR_SUM] = REDUCE_SUM, [FACTOR_MAX] = REDUCE_MAX, [FACTOR_MIN] = REDUCE_MIN};
    uint32_t mask = 0;
    *kind = f->b->want && f->b->want->unreduced ? f->b->want->unreduced_kind : REDUCE_SUM;
    if (f->strict || !dtype_is_float(f->out[i]->dtype)) return 0;
    for (int k = 0; k < f->r->nfactor; k++)
        if (f->r->kind[k] >= FACTOR_SUM && f->r->kind[k] <= FACTOR_MIN &&
            kind_of[f->r->kind[k]] == *kind && !has(f, f->a->nin + i, k))
            for (int n = 0; n < f->list[k].n; n++) {
                AxisRef r = f->list[k].at[n];
                if (r.pre == 1 && r.size == f->b->g->mesh->size[r.axis]) mask |= 1u << r.axis;
            }
    return mask;
}

/* The axes over which all operands are reduced; what is made of nothing has no say. */
static uint32_t all_reduced(const Infer *f) {
    uint32_t mask = 0;
    bool any = false;
    for (int t = 0; t < f->a->nin; t++) {
        if (graph_opdef(f->b->g, graph_def(f->b->g, f->in[t]))->flags & OPF_NULLARY) continue;
        mask = any ? mask & f->view[t].reduced : f->view[t].reduced;
        any = true;
    }
    return mask;
}

Err explicit_result(const Infer *f, int i, Layout *l) {
    AxisList mine[MAX_FACTORS];
    TRY(pick(f, i, mine));
    TRY(say(f, i, mine, l));
    for (int d = 0; f->a->nin && d < l->rank && d < f->view[0].rank; d++) {
        const AxisList *axes = &f->view[0].dim[d].axes;
        if (!l->dim[d].axes.n && axes->n && !(axes_mask(axes) & layout_used(l)) && is_kept(f, d))
            l->dim[d].axes = *axes;
    }
    uint32_t through = explicit_through(f->a, f->view, f->out);
    for (int t = 0; f->strict && t < f->a->nin; t++)
        if (f->view[t].unreduced & ~through)
            return explicit_error_unreduced(f, t, f->view[t].unreduced & ~through);
    uint8_t kind;
    uint32_t left = left_unreduced(f, i, &kind);
    if (kind != REDUCE_SUM && left) through = 0;
    l->unreduced = (uint8_t)((through | left) & ~split_by(l));
    if (!left) kind = REDUCE_SUM;
    for (int t = 0; t < f->a->nin; t++)
        if (f->view[t].unreduced & through) kind = f->view[t].unreduced_kind;
    l->unreduced_kind = l->unreduced ? kind : REDUCE_SUM;
    l->reduced = (uint8_t)(all_reduced(f) & ~layout_used(l));
    return E_OK;
}

static Err infer_all(Infer *f, Layout *layouts) {
    for (int k = 0; k < f->r->nfactor; k++) f->source[k] = -1;
    for (int t = 0; t < f->a->nin; t++) {
        rule_project(f->r, t, &f->view[t], &f->proj[t]);
        TRY(merge_operand(f, t));
    }
    for (int k = 0; f->strict && k < f->r->nfactor; k++) TRY(check_contracted(f, k));
    for (int i = 0; i < f->nout; i++) TRY(explicit_result(f, i, &layouts[i]));
    return E_OK;
}

/* Into manual mode and out of it: axes that are not manual stay where they are; those that were
 * come as the spec says. */
static void enter_or_exit(const Infer *f, Layout *l) {
    bool enters;
    const Layout *outside = f->a->def->manual(f->a->attr, &enters);
    l->reduced = f->view[0].reduced;
    for (int d = 0; d < l->rank; d++) {
        const AxisList *asked = &outside->dim[d].axes, *had = &f->view[0].dim[d].axes;
        for (int i = 0; !enters && i < asked->n; i++)
            if (f->axes >> asked->at[i].axis & 1 && asked->at[i].size > 1)
                axes_push(&l->dim[d].axes, asked->at[i]);
        for (int i = 0; i < had->n; i++) axes_push(&l->dim[d].axes, had->at[i]);
    }
}

/* A constraint's result lies as it says; an open dim keeps the axes of which it says nothing. */
static Err constrained(const OpArgs *a, const Layout *asked, uint32_t axes, const Layout *view,
                       Layout *l) {
    Type t = {.dims = a->in[0]->dims, .layout = asked};
    explicit_view(&t, view->mesh, axes, l);
    for (int d = 0; d < l->rank; d++)
        for (int i = 0; asked->dim[d].open && i < view->dim[d].axes.n; i++) {
            AxisRef r = view->dim[d].axes.at[i];
            if (!((layout_used(l) | asked->replicated) >> r.axis & 1))
                axes_push(&l->dim[d].axes, r);
        }
    bool kinds = view->unreduced && l->unreduced && l->unreduced_kind != view->unreduced_kind;
    bool made = l->unreduced_kind != REDUCE_SUM && l->unreduced & ~view->unreduced;
    if (kinds || made)
        return err_set(
            a->cx, E_SPEC,
            "reshard: %s; an op that takes maxima or minima leaves them unreduced if its "
            "out_sharding says so",
            kinds ? "the value is unreduced in another kind than is asked for"
                  : "parts of a maximum or minimum cannot be made of a value");
    return E_OK;
}

static Err infer_in(Infer *f, Arena *scratch, Layout *layouts) {
    const OpArgs *a = f->a;
    bool any = false;
    f->view = ARENA_ARRAY(scratch, Layout, a->nin + 1);
    if (!f->view) return err_nomem(a->cx, "a layout");
    for (int t = 0; t < a->nin; t++) {
        explicit_view(a->in[t], f->b->g->mesh, f->axes, &f->view[t]);
        any = any || layout_used(&f->view[t]) || f->view[t].reduced;
    }
    if (a->def->flags & OPF_CONSTRAINT)
        return constrained(a, *(const Layout *const *)a->attr, f->axes, f->view, layouts);
    for (int i = 0; i < f->nout; i++) layout_init(&layouts[i], f->b->g->mesh, f->out[i]->dims.rank);
    if (a->def->manual) enter_or_exit(f, layouts);
    if (!any || !a->def->factors || a->def->manual) return E_OK;
    FactorRule *r;
    TRY(rule_make(a, f->out, f->nout, scratch, &r));
    f->r = r;
    f->proj = rule_projections(r, scratch);
    f->list = ARENA_ARRAY(scratch, AxisList, r->nfactor + 1);
    f->source = ARENA_ARRAY(scratch, int, r->nfactor + 1);
    if (!f->proj || !f->list || !f->source) return err_nomem(a->cx, "a layout");
    return infer_all(f, layouts);
}

Err explicit_infer(const Build *b, const OpArgs *a, const Val *in, const Type *const *out, int nout,
                   Mode mode, Layout *layouts) {
    Infer f = {.b = b,
               .a = a,
               .in = in,
               .out = out,
               .nout = nout,
               .axes = explicit_axes(b) & ~mode.manual,
               .strict = b->strict,
               .keep = -1};
    Arena scratch;
    arena_init(&scratch, &a->cx->alloc);
    Err e = infer_in(&f, &scratch, layouts);
    arena_free(&scratch);
    for (int i = 0; !e && i < nout; i++) layouts[i].flipped = b->flipped;
    return e;
}
