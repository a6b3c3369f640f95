/* A value that only other groups read is stored once and loaded by each of them. They may compute
 * it again instead, from what they read anyway or from other values in memory: gelu's backward from
 * the number that forward started from, rather than from four numbers on the way. */
#include "pass/fuse/fuse.h"

#include <string.h>

/* Of the target's peak, which is that of products: an instruction of a fused program also loads and
 * stores, and does not multiply. */
enum { FLOPS_OF_AN_ADDITION = 4, LIBRARY_CALL = 16 };

/* What a group needs to compute a value again. */
typedef struct Again {
    Group *grp;
    Val value;
    int32_t nnode, ninput;
    int32_t node[MAX_GROUP];
    Val input[MAX_GROUP_INPUTS]; /* that the group does not have yet */
} Again;

/* By value. */
typedef struct Lives {
    int32_t *last;    /* the last node that reads it, or a view of it */
    int32_t *counted; /* the value for which it was counted among what is held longer */
} Lives;

/* What the value is a view of. */
static Val root_of(const Graph *g, Val v) {
    while (graph_opdef(g, graph_def(g, v))->view) v = graph_def(g, v)->in[0];
    return v;
}

static double bytes_of(const Graph *g, Val v) {
    int64_t own = type_bytes(graph_type(g, v)), root = type_bytes(graph_type(g, root_of(g, v)));
    return (double)(own < root ? own : root);
}

/* Seconds that computing the node takes, memory apart. */
static double seconds_of(const Fuse *f, int32_t id) {
    const Node *n = graph_node(f->g, id);
    const Type *t = graph_type(f->g, n->out);
    double work = graph_opdef(f->g, n)->work;
    if (work == 0) work = 1;
    if (work > 1 && t->dtype == DT_F64) work *= LIBRARY_CALL;
    return work * FLOPS_OF_AN_ADDITION * (double)type_count(t) / f->target->flops;
}

/* The group shall have v: adds what that takes. False where it would be too large. */
static bool need(const Fuse *f, Again *a, Val v) {
    int32_t id = f->g->value.at[v].node, home = f->g->value.at[a->value].node;
    if (fuse_is_nullary(f, v) || fuse_has_node(a->grp, id)) return true;
    for (int i = 0; i < a->nnode; i++)
        if (a->node[i] == id) return true;
    if (v != a->value) {
        if (fuse_has_input(a->grp, v)) return true;
        for (int i = 0; i < a->ninput; i++)
            if (a->input[i] == v) return true;
        if (f->group[id] != f->group[home] || fuse_is_stored(f, v)) {
            if (a->grp->ninput + a->ninput == MAX_GROUP_INPUTS) return false;
            a->input[a->ninput++] = v;
            return true;
        }
    }
    if (a->grp->nnode + a->nnode == MAX_GROUP) return false;
    a->node[a->nnode++] = id;
    const Node *n = graph_node(f->g, id);
    for (int i = 0; i < n->nin; i++)
        if (!need(f, a, n->in[i])) return false;
    return true;
}

static int32_t place_of(const Group *grp) {
    return grp->node[grp->nnode - 1];
}

/* Memory is held longer for what the groups would read and nobody reads so late now: once for each
 * buffer, however many of them read it. */
static bool pays(const Fuse *f, const Lives *l, const Again *all, int n) {
    const Graph *g = f->g;
    double size = bytes_of(g, all->value), moved = size * (n + 1), held = size, seconds = 0;
    for (int k = 0; k < n; k++) {
        for (int i = 0; i < all[k].nnode; i++) seconds += seconds_of(f, all[k].node[i]);
        for (int i = 0; i < all[k].ninput; i++) {
            Val v = all[k].input[i], root = root_of(g, v);
            moved -= bytes_of(g, v);
            if (l->last[root] >= place_of(all[k].grp) || l->counted[root] == all->value) continue;
            l->counted[root] = all->value;
            held -= (double)type_bytes(graph_type(g, root));
        }
    }
    return moved > 0 && held >= 0 && seconds <= moved / f->target->bandwidth;
}

/* Takes out of the group what nobody needs any more. */
static void prune(Fuse *f, Group *grp) {
    int32_t kept[MAX_GROUP], n = 0;
    Val was[MAX_GROUP_INPUTS];
    int nwas = grp->ninput;
    memcpy(was, grp->input, sizeof was);
    for (int i = grp->nnode - 1; i >= 0; i--) {
        Val v = graph_node(f->g, grp->node[i])->out;
        bool needed = f->group[grp->node[i]] == grp && fuse_is_stored(f, v);
        for (int k = 0; k < n && !needed; k++) {
            const Node *user = graph_node(f->g, kept[k]);
            for (int j = 0; j < user->nin; j++) needed = needed || user->in[j] == v;
        }
        if (needed) kept[n++] = grp->node[i];
    }
    grp->nnode = n;
    for (int i = 0; i < n; i++) grp->node[i] = kept[n - 1 - i];
    grp->ninput = 0;
    for (int i = 0; i < nwas; i++) {
        bool read = false;
        for (int k = 0; k < n; k++) {
            const Node *user = graph_node(f->g, kept[k]);
            for (int j = 0; j < user->nin; j++) read = read || user->in[j] == was[i];
        }
        if (read) {
            grp->input[grp->ninput++] = was[i];
            continue;
        }
        fuse_drop_reader(f, was[i], grp);
        Group *theirs = f->group[f->g->value.at[was[i]].node];
        if (theirs && !fuse_is_stored(f, was[i])) prune(f, theirs);
    }
}

static void apply(Fuse *f, const Lives *l, const Again *a) {
    Group *grp = a->grp;
    for (int i = 0; i < a->nnode; i++) {
        int at = grp->nnode++;
        for (; at > 0 && grp->node[at - 1] > a->node[i]; at--) grp->node[at] = grp->node[at - 1];
        grp->node[at] = a->node[i];
    }
    int kept = 0;
    for (int i = 0; i < grp->ninput; i++)
        if (grp->input[i] != a->value) grp->input[kept++] = grp->input[i];
    grp->ninput = kept;
    fuse_drop_reader(f, a->value, grp);
    for (int i = 0; i < a->ninput && !f->copy.b.err; i++) {
        Val root = root_of(f->g, a->input[i]);
        grp->input[grp->ninput++] = a->input[i];
        fuse_add_reader(f, a->input[i], grp);
        if (l->last[root] < place_of(grp)) l->last[root] = place_of(grp);
    }
}

static void try_value(Fuse *f, const Lives *l, Val v) {
    int32_t home = f->g->value.at[v].node;
    int n = 0;
    for (const Reader *r = f->reader[v]; r; r = r->next) n++;
    Again *all = ARENA_ARRAY(&f->copy.arena, Again, n);
    if (!all) {
        fuse_no_memory(f);
        return;
    }
    n = 0;
    for (const Reader *r = f->reader[v]; r; r = r->next) {
        Again *a = &all[n++];
        a->grp = r->group;
        a->value = v;
        if (!fuse_same_kind(f, home, place_of(r->group)) || !need(f, a, v)) return;
    }
    if (!pays(f, l, all, n)) return;
    for (int k = 0; k < n; k++) apply(f, l, &all[k]);
    prune(f, f->group[home]);
}

static bool find_lives(Fuse *f, Lives *l) {
    const Graph *g = f->g;
    int32_t *last = l->last = ARENA_ARRAY(&f->copy.arena, int32_t, g->value.n);
    l->counted = ARENA_ARRAY(&f->copy.arena, int32_t, g->value.n);
    if (!last || !l->counted) return false;
    for (int32_t id = 1; id < g->node.n; id++) {
        const Node *n = graph_node(g, id);
        int32_t at = f->group[id] ? place_of(f->group[id]) : id;
        for (int i = 0; i < n->nin; i++) {
            Val root = root_of(g, n->in[i]);
            if (last[root] < at) last[root] = at;
        }
        if (graph_opdef(g, n)->flags & OPF_PARAM) last[n->out] = INT32_MAX;
    }
    for (int32_t r = 0; r < g->region.n; r++)
        for (int i = 0; i < g->region.at[r].result.n; i++)
            last[root_of(g, g->region.at[r].result.at[i])] = INT32_MAX;
    return true;
}

void fuse_compute_again(Fuse *f) {
    Lives l;
    if (!find_lives(f, &l)) fuse_no_memory(f);
    for (int32_t id = f->g->node.n - 1; id > 0 && !f->copy.b.err; id--) {
        Val v = graph_node(f->g, id)->out;
        if (f->group[id] && f->reader[v] && !f->read_alone[v]) try_value(f, &l, v);
    }
}
