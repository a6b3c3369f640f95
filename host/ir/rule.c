#include "ir/rule.h"

Err rule_make(const OpArgs *a, const Type *const *out, int nout, Arena *arena, FactorRule **rule) {
    FactorRule *r = ARENA_NEW(arena, FactorRule);
    if (!r) return err_nomem(a->cx, "a sharding rule");
    r->ntensor = a->nin + nout;
    r->tensor = ARENA_ARRAY(arena, FactorMap, r->ntensor + 1);
    if (!r->tensor) return err_nomem(a->cx, "a sharding rule");
    if (a->def->factors) a->def->factors(a, out, r);
    *rule = r;
    return E_OK;
}

Err rule_of(const Graph *g, const Node *n, Arena *arena, FactorRule **out) {
    const Type **types = ARENA_ARRAY(arena, const Type *, n->nin + n->nout + 1);
    if (!types) return err_nomem(g->cx, "a sharding rule");
    graph_in_types(g, n, types);
    graph_out_types(g, n, types + n->nin);
    OpArgs a = {g->cx, graph_opdef(g, n), n->nin, types, n->attr};
    return rule_make(&a, types + n->nin, n->nout, arena, out);
}

/* Deals one dim's axes to its factors. */
static void deal(const FactorRule *r, const FactorMap *m, int dim, const AxisList *axes,
                 Projection *p) {
    int k = 0, n = m->n[dim];
    int64_t room = n ? r->size[m->at[dim][0]] : 1;
    if (n == 1 && room % axes_product(axes) != 0) { /* padded: all of them, or none */
        for (int i = 0; i < axes->n; i++) axes_push(&p->factor[m->at[dim][0]], axes->at[i]);
        return;
    }
    for (int i = 0; i < axes->n; i++) {
        AxisRef ref = axes->at[i];
        while (ref.size > 1 || axes->at[i].size == 1) {
            while (room == 1 && k + 1 < n) room = r->size[m->at[dim][++k]];
            int f = n ? m->at[dim][k] : -1;
            if (f >= 0 && room % ref.size == 0) {
                axes_push(&p->factor[f], ref);
                room /= ref.size;
                break;
            }
            if (f < 0 || room == 1 || ref.size % room != 0) { /* the rest fits nowhere */
                for (int j = i; j < axes->n; j++) p->leftover |= (uint8_t)(1u << axes->at[j].axis);
                return;
            }
            AxisRef major = {ref.axis, ref.pre, (uint16_t)room};
            axes_push(&p->factor[f], major);
            ref.pre = (uint16_t)(ref.pre * room);
            ref.size = (uint16_t)(ref.size / room);
            room = 1;
            if (k + 1 == n) { /* no factor left for the minor part */
                for (int j = i; j < axes->n; j++) p->leftover |= (uint8_t)(1u << axes->at[j].axis);
                return;
            }
        }
    }
}

Projection *rule_projections(const FactorRule *r, Arena *arena) {
    Projection *p = ARENA_ARRAY(arena, Projection, r->ntensor);
    AxisList *lists = ARENA_ARRAY(arena, AxisList, r->ntensor * r->nfactor);
    if (!p || !lists) return NULL;
    for (int t = 0; t < r->ntensor; t++) p[t].factor = lists + t * r->nfactor;
    return p;
}

void rule_project(const FactorRule *r, int tensor, const Layout *l, Projection *p) {
    for (int f = 0; f < r->nfactor; f++) p->factor[f].n = 0;
    p->leftover = 0;
    if (!l) return;
    for (int d = 0; d < l->rank; d++) deal(r, &r->tensor[tensor], d, &l->dim[d].axes, p);
}

bool rule_unproject(const FactorRule *r, int tensor, int rank, const Mesh *m,
                    const AxisList *factors, Layout *l) {
    const FactorMap *map = &r->tensor[tensor];
    layout_init(l, m, rank);
    for (int d = 0; d < rank; d++) {
        bool full = true;
        for (int k = 0; k < map->n[d]; k++) {
            int f = map->at[d][k];
            if (factors[f].n && !full) return false;
            for (int i = 0; i < factors[f].n; i++) axes_push(&l->dim[d].axes, factors[f].at[i]);
            full = full && axes_product(&factors[f]) == r->size[f];
        }
    }
    return true;
}

bool rule_divides(const FactorRule *r, int factor, const AxisList *axes) {
    int64_t parts = axes_product(axes), most = r->before[factor];
    if (r->behind[factor] > most) most = r->behind[factor];
    /* What a shard needs from elsewhere, its two neighbours have. */
    return r->size[factor] % parts == 0 && (parts == 1 || r->size[factor] / parts >= most);
}

bool rule_pads(const FactorRule *r, const OpDef *def, int factor) {
    for (int t = 0; t < r->ntensor; t++)
        for (int d = 0; d < MAX_RANK; d++)
            for (int k = 0; k < r->tensor[t].n[d] && r->tensor[t].n[d] > 1; k++)
                if (r->tensor[t].at[d][k] == factor) return false;
    if (r->kind[factor] == FACTOR_REPLICATE) return false;
    if (r->before[factor] || r->behind[factor]) return false;
    if (r->kind[factor] != FACTOR_PASS) return def->pads == PADS_ALL;
    bool each = def->flags & OPF_ELEMENTWISE && !(def->flags & OPF_FAULTS);
    return each || def->pads != PADS_NONE;
}

bool rule_is_free(const FactorRule *r, const Projection *p, AxisRef ref) {
    if (p->leftover >> ref.axis & 1) return false;
    for (int f = 0; f < r->nfactor; f++)
        for (int i = 0; i < p->factor[f].n; i++)
            if (axes_overlap(p->factor[f].at[i], ref)) return false;
    return true;
}
