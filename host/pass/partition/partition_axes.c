/* partition_axes.c - the one assignment of mesh axes to its factors under which an op runs: what
 * most of its tensors have already.
 *
 * A minor factor of a dim can only be split once the major ones are split to the end: a choice that
 * no layout can say yet is tried again after the next one. */
#include "pass/partition/partition.h"

#include <string.h>

/* A list that some tensor has for a factor, and what speaks for it. */
typedef struct Candidate {
    int factor;
    AxisList axes;
    int support;  /* tensors that have it */
    double bytes; /* of them */
} Candidate;

static bool better(const FactorRule *r, const Candidate *a, const Candidate *b) {
    if (a->support != b->support) return a->support > b->support;
    if (a->bytes != b->bytes) return a->bytes > b->bytes;
    bool pass_a = r->kind[a->factor] == FACTOR_PASS, pass_b = r->kind[b->factor] == FACTOR_PASS;
    if (pass_a != pass_b) return pass_a;
    if (axes_product(&a->axes) != axes_product(&b->axes))
        return axes_product(&a->axes) > axes_product(&b->axes);
    return a->factor < b->factor;
}

/* The part of the tensor's list that no chosen factor uses and that divides the factor. Partial
 * values are known by whole axes, so a factor that leaves any takes no part of an axis. */
static AxisList usable(const Partition *p, const Split *s, int tensor, int factor) {
    AxisList out = {0};
    const AxisList *have = &s->proj[tensor].factor[factor];
    if (!have->n) return out;
    bool pads = !rule_divides(s->r, factor, have) && rule_pads(s->r, s->def, factor);
    for (int i = 0; i < have->n; i++) {
        bool taken = false;
        for (int f = 0; f < s->r->nfactor; f++)
            for (int k = 0; k < s->axes[f].n; k++)
                taken = taken || axes_overlap(s->axes[f].at[k], have->at[i]);
        taken = taken || s->through >> have->at[i].axis & 1;
        AxisList longer = out;
        axes_push(&longer, have->at[i]);
        AxisRef r = have->at[i];
        bool whole = r.pre == 1 && r.size == p->g->mesh->size[r.axis];
        if (taken || (s->r->kind[factor] != FACTOR_PASS && !whole)) break;
        if (!pads && !rule_divides(s->r, factor, &longer)) break;
        out = longer;
    }
    return pads && out.n < have->n ? (AxisList){0} : out; /* padded shards do not nest */
}

static bool best_candidate(const Partition *p, const Split *s, const bool *decided,
                           Candidate *best) {
    bool any = false;
    for (int f = 0; f < s->r->nfactor; f++) {
        if (decided[f] || s->r->kind[f] == FACTOR_REPLICATE) continue;
        for (int t = 0; t < s->r->ntensor; t++) {
            Candidate c = {f, usable(p, s, t, f), 0, 0};
            if (!c.axes.n) continue;
            for (int u = 0; u < s->r->ntensor; u++) {
                AxisList other = usable(p, s, u, f);
                bool even = rule_divides(s->r, f, &c.axes);
                if (even ? !axes_is_prefix(&c.axes, &other) : !axes_equal(&c.axes, &other))
                    continue;
                c.support++;
                c.bytes += (double)type_bytes(partition_tensor(p, s->n, u));
            }
            if (!any || better(s->r, &c, best)) *best = c;
            any = true;
        }
    }
    return any;
}

/* Drops factors until every tensor's layout can say what they ask. */
static bool layouts_under(const Partition *p, Split *s) {
    for (int t = 0; t < s->r->ntensor; t++) {
        int rank = partition_tensor(p, s->n, t)->dims.rank;
        AxisList mine[MAX_FACTORS];
        for (int f = 0; f < s->r->nfactor; f++)
            mine[f] = factor_in(&s->r->tensor[t], rank, f) ? s->axes[f] : (AxisList){0};
        if (!rule_unproject(s->r, t, rank, p->g->mesh, mine, &s->layout[t])) return false;
    }
    return true;
}

void partition_axes(const Partition *p, Split *s) {
    bool decided[MAX_FACTORS] = {false}, waits[MAX_FACTORS] = {false};
    Candidate c;
    memset(s->axes, 0, sizeof *s->axes * (size_t)s->r->nfactor);
    while (best_candidate(p, s, decided, &c)) {
        s->axes[c.factor] = c.axes;
        decided[c.factor] = true;
        if (layouts_under(p, s)) {
            for (int f = 0; f < s->r->nfactor; f++)
                if (waits[f]) decided[f] = waits[f] = false;
            continue;
        }
        s->axes[c.factor] = (AxisList){0};
        waits[c.factor] = true;
    }
    bool ok = layouts_under(p, s);
    ASSERT(ok, "no layout for %s", s->def->name);
}
