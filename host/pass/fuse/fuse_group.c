/* A group grows while nobody outside has read from it; it then stands where its last member stood.
 * Constants and other nullary ops are copied into every group that reads them. */
#include "pass/fuse/fuse.h"

#include <string.h>

void fuse_no_memory(Fuse *f) {
    build_fail(&f->copy.b, err_nomem(f->g->cx, "fusion"));
}

bool fuse_is_nullary(const Fuse *f, Val v) {
    return graph_opdef(f->g, graph_def(f->g, v))->flags & OPF_NULLARY;
}

bool fuse_same_kind(const Fuse *f, int32_t a, int32_t b) {
    const Type *x = graph_type(f->g, graph_node(f->g, a)->out),
               *y = graph_type(f->g, graph_node(f->g, b)->out);
    uint32_t vx = x->layout ? x->layout->vary : 0, vy = y->layout ? y->layout->vary : 0;
    return vx == vy && dims_equal(&x->dims, &y->dims) &&
           graph_node(f->g, a)->region == graph_node(f->g, b)->region;
}

static Group *group_of(const Fuse *f, Val v) {
    return f->group[f->g->value.at[v].node];
}

bool fuse_has_node(const Group *g, int32_t id) {
    for (int i = 0; i < g->nnode; i++)
        if (g->node[i] == id) return true;
    return false;
}

bool fuse_has_input(const Group *g, Val v) {
    for (int i = 0; i < g->ninput; i++)
        if (g->input[i] == v) return true;
    return false;
}

/* How many inputs the group would have with these; -1 if too many. Fills `inputs`. */
static int merge_inputs(const Fuse *f, const Group *a, const Group *b, Val *inputs) {
    int n = 0;
    const Group *both[2] = {a, b};
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < both[k]->ninput; i++) {
            Val v = both[k]->input[i];
            int32_t def = f->g->value.at[v].node;
            bool known = fuse_has_node(a, def) || fuse_has_node(b, def);
            for (int j = 0; j < n; j++) known = known || inputs[j] == v;
            if (known) continue;
            if (n == MAX_GROUP_INPUTS) return -1;
            inputs[n++] = v;
        }
    return n;
}

/* Puts b's nodes into a; false where the result would be too large. */
static bool merge(Fuse *f, Group *a, Group *b) {
    Val inputs[MAX_GROUP_INPUTS];
    int n = merge_inputs(f, a, b, inputs);
    if (n < 0 || a->nnode + b->nnode > MAX_GROUP) return false;
    memcpy(a->input, inputs, sizeof inputs);
    a->ninput = n;
    for (int i = 0; i < b->nnode; i++) {
        int at = a->nnode++;
        while (at > 0 && a->node[at - 1] > b->node[i]) {
            a->node[at] = a->node[at - 1];
            at--;
        }
        a->node[at] = b->node[i];
        f->group[b->node[i]] = a;
    }
    return true;
}

static void form_group(Fuse *f, int32_t id, bool alone) {
    const Node *n = graph_node(f->g, id);
    Group *mine = ARENA_NEW(&f->copy.arena, Group);
    if (!mine) {
        fuse_no_memory(f);
        return;
    }
    mine->node[mine->nnode++] = id;
    f->group[id] = mine;
    for (int i = 0; i < n->nin; i++)
        if (!fuse_is_nullary(f, n->in[i]) && !fuse_has_input(mine, n->in[i]))
            mine->input[mine->ninput++] = n->in[i];
    for (int i = 0; i < n->nin; i++) {
        Group *theirs = group_of(f, n->in[i]);
        if (!theirs || theirs == f->group[id]) continue;
        bool fits = !alone && !theirs->closed && fuse_same_kind(f, theirs->node[0], id);
        if (!fits || !merge(f, theirs, f->group[id])) theirs->closed = true;
    }
}

void fuse_add_reader(Fuse *f, Val v, Group *reader) {
    Reader *r = ARENA_NEW(&f->copy.arena, Reader);
    if (!r) {
        fuse_no_memory(f);
        return;
    }
    *r = (Reader){reader, f->reader[v]};
    f->reader[v] = r;
}

void fuse_drop_reader(Fuse *f, Val v, const Group *reader) {
    Reader **at = &f->reader[v];
    while ((*at)->group != reader) at = &(*at)->next;
    *at = (*at)->next;
}

static void find_readers(Fuse *f) {
    const Graph *g = f->g;
    for (int32_t id = 1; id < g->node.n; id++) {
        Group *mine = f->group[id];
        const Node *n = graph_node(g, id);
        for (int i = 0; !mine && i < n->nin; i++) f->read_alone[n->in[i]] = true;
        if (!mine || mine->node[mine->nnode - 1] != id) continue;
        for (int i = 0; i < mine->ninput && !f->copy.b.err; i++)
            fuse_add_reader(f, mine->input[i], mine);
    }
    for (int32_t r = 0; r < g->region.n; r++)
        for (int i = 0; i < g->region.at[r].result.n; i++)
            f->read_alone[g->region.at[r].result.at[i]] = true;
}

void fuse_find_groups(Fuse *f, bool alone) {
    for (int32_t id = 1; id < f->g->node.n && !f->copy.b.err; id++) {
        const Node *n = graph_node(f->g, id);
        uint32_t flags = graph_opdef(f->g, n)->flags;
        if (flags & OPF_ELEMENTWISE && !(flags & OPF_NULLARY)) {
            form_group(f, id, alone);
            continue;
        }
        for (int i = 0; i < n->nin; i++)
            if (group_of(f, n->in[i])) group_of(f, n->in[i])->closed = true;
    }
    if (!f->copy.b.err) find_readers(f);
}
