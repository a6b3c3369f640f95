/* group.c - a device's coordinates are read as digits: a collective's axes, or parts of axes, are
 * its digits, major first, and the members of a group differ in those alone. So a member's number,
 * its coordinates by number and the group's first member are all arithmetic on one device's
 * coordinates, and every process comes to the same without asking another. */
#include "run/bind/group.h"

#include <string.h>

static int32_t digit_of(const Plan *p, AxisRef r, const int32_t coord[MAX_AXES]) {
    return coord[r.axis] / (p->axis_size[r.axis] / (r.pre * r.size)) % r.size;
}

static void set_digit(const Plan *p, AxisRef r, int32_t digit, int32_t coord[MAX_AXES]) {
    int32_t rest = p->axis_size[r.axis] / (r.pre * r.size);
    coord[r.axis] += (digit - digit_of(p, r, coord)) * rest;
}

DeviceGroup group_of(const Plan *p, const PlanStep *s) {
    DeviceGroup g = {.plan = p, .step = s, .size = 1};
    if (s->coll.list.n) {
        for (int i = 0; i < s->coll.list.n; i++) g.digit[g.ndigit++] = s->coll.list.at[i];
    } else {
        for (int i = 0; i < p->naxes; i++)
            if (s->coll.axes >> i & 1)
                g.digit[g.ndigit++] = (AxisRef){(uint8_t)i, 1, (uint16_t)p->axis_size[i]};
    }
    for (int i = 0; i < g.ndigit; i++) g.size *= g.digit[i].size;
    return g;
}

void group_member(const DeviceGroup *g, const int32_t coord[MAX_AXES], int32_t number,
                  int32_t out[MAX_AXES]) {
    memcpy(out, coord, sizeof *out * MAX_AXES);
    for (int i = g->ndigit - 1; i >= 0; i--) {
        set_digit(g->plan, g->digit[i], number % g->digit[i].size, out);
        number /= g->digit[i].size;
    }
}

int32_t group_number(const DeviceGroup *g, const int32_t coord[MAX_AXES]) {
    int32_t n = 0;
    for (int i = 0; i < g->ndigit; i++)
        n = n * g->digit[i].size + digit_of(g->plan, g->digit[i], coord);
    return n;
}

int32_t group_first(const DeviceGroup *g, const Mesh *m, const int32_t coord[MAX_AXES]) {
    int32_t first[MAX_AXES];
    group_member(g, coord, 0, first);
    return place_index(m, first);
}

bool group_crosses(const DeviceGroup *g, const Mesh *m) {
    for (int32_t i = 0; i < m->ndevices; i++) {
        int32_t coord[MAX_AXES];
        mesh_coords(m, i, coord);
        int32_t first = group_first(g, m, coord);
        if (place_domain(m, i) != place_domain(m, first)) return true;
    }
    return false;
}

/* ---- what moves ---- */

/* The device whose shard under `from` is the one that the device at `coord` wants under `to`. */
static void permute_source(const DeviceGroup *g, const int32_t coord[MAX_AXES],
                           int32_t out[MAX_AXES]) {
    const Plan *p = g->plan;
    const PlanCollective *c = &g->step->coll;
    const AxisList *from = PLAN_LIST(p, AxisList, c->from), *to = PLAN_LIST(p, AxisList, c->to);
    memcpy(out, coord, sizeof *out * MAX_AXES);
    for (int d = 0; d < c->from.n; d++) {
        int32_t index = 0;
        for (int i = 0; i < to[d].n; i++)
            index = index * to[d].at[i].size + digit_of(p, to[d].at[i], coord);
        for (int i = from[d].n - 1; i >= 0; i--) {
            set_digit(p, from[d].at[i], index % from[d].at[i].size, out);
            index /= from[d].at[i].size;
        }
    }
}

/* By pairs of places in the group: which place is sent to the device at `coord`, or -1. */
static int32_t paired_with(const DeviceGroup *g, const int32_t coord[MAX_AXES]) {
    const int32_t *pair = PLAN_LIST(g->plan, int32_t, g->step->coll.pairs);
    int32_t mine = group_number(g, coord);
    for (int32_t i = 0; i < g->step->coll.pairs.n; i += 2)
        if (pair[i + 1] == mine) return pair[i];
    return -1;
}

static bool by_shards(const PlanCollective *c) {
    return c->from.n || c->to.n;
}

int32_t group_sources(const DeviceGroup *g, const int32_t coord[MAX_AXES]) {
    const PlanCollective *c = &g->step->coll;
    if (c->kind != COLL_PERMUTE) return g->size;
    return by_shards(c) || paired_with(g, coord) >= 0;
}

GroupSource group_source(const DeviceGroup *g, const int32_t coord[MAX_AXES], int32_t k) {
    const PlanCollective *c = &g->step->coll;
    GroupSource s = {.from_parts = 1, .to_parts = 1};
    if (c->kind == COLL_PERMUTE) {
        if (by_shards(c))
            permute_source(g, coord, s.from);
        else
            group_member(g, coord, paired_with(g, coord), s.from);
        return s;
    }
    group_member(g, coord, k, s.from);
    s.to_dim = c->dim;
    s.to_part = k;
    s.to_parts = g->size;
    if (c->kind == COLL_ALL_TO_ALL) {
        s.to_dim = c->dim2;
        s.from_dim = c->dim;
        s.from_part = group_number(g, coord);
        s.from_parts = g->size;
    }
    return s;
}

/* ---- trees ---- */

static int32_t cut(const int32_t *domain, int32_t first, int32_t n, Subtree *root, int32_t count) {
    int32_t same = 1;
    while (same < n && domain[first + same] == domain[first]) same++;
    if (same == n) {
        root[count] = (Subtree){first, n, domain[first]};
        return count + 1;
    }
    int32_t half = tree_half(n);
    count = cut(domain, first, half, root, count);
    return cut(domain, first + half, n - half, root, count);
}

int32_t group_cut(const int32_t *domain, int32_t n, Subtree *root) {
    return cut(domain, 0, n, root, 0);
}

bool group_is_even(const Subtree *root, int32_t count) {
    if (count == 1) return true;
    int32_t members = root[count - 1].first + root[count - 1].n - root->first, left = 0;
    int32_t half = tree_half(members), even = tree_half(count);
    while (root[left].first < root->first + half) left++;
    return left == even && group_is_even(root, left) && group_is_even(root + left, count - left);
}
