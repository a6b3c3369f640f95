/* fuse.c - elementwise ops of equal dims become one fused node: its body is the ops, its program
 * runs over tiles, and what only the body needs never reaches memory.
 *
 * A group grows while nobody outside has read from it; it then stands where its last member stood.
 * Constants and other sources are copied into every group that reads them. */
#include "ir/copy.h"
#include "op/op.h"
#include "pass/pass.h"

#include <string.h>

enum { MAX_GROUP = 64, MAX_GROUP_INPUTS = 24 };

typedef struct Group {
    int32_t nnode, ninput;
    int32_t node[MAX_GROUP];
    Val input[MAX_GROUP_INPUTS]; /* values of the old graph from outside, sources not counted */
    bool closed;
} Group;

typedef struct Fuse {
    const Graph *g;
    Copy copy;
    Group **group;    /* by node: the group it is in */
    int32_t *uses;    /* by value: its users, results included */
    bool *read_alone; /* by value: read by a node outside groups, or a result */
    Val *inner;       /* by value of `g`: inside the body being built, if `stamp` is that body's */
    int32_t *stamp, bodies;
} Fuse;

static const OpDef *def_of(const Fuse *f, int32_t id) {
    return graph_opdef(f->g, graph_node(f->g, id));
}
static bool is_source(const Fuse *f, Val v) {
    return graph_opdef(f->g, graph_def(f->g, v))->flags & OPF_SOURCE;
}

static bool same_kind(const Fuse *f, int32_t a, int32_t b) {
    const Type *x = graph_type(f->g, graph_node(f->g, a)->out),
               *y = graph_type(f->g, graph_node(f->g, b)->out);
    uint32_t vx = x->layout ? x->layout->vary : 0, vy = y->layout ? y->layout->vary : 0;
    return vx == vy && dims_equal(&x->dims, &y->dims) &&
           graph_node(f->g, a)->region == graph_node(f->g, b)->region;
}

static Group *group_of(const Fuse *f, Val v) {
    return f->group[f->g->value.at[v].node];
}

static bool has_node(const Group *g, int32_t id) {
    for (int i = 0; i < g->nnode; i++)
        if (g->node[i] == id) return true;
    return false;
}

/* How many inputs the group would have with these; -1 if too many. Fills `inputs`. */
static int join_inputs(const Fuse *f, const Group *a, const Group *b, Val *inputs) {
    int n = 0;
    const Group *both[2] = {a, b};
    for (int k = 0; k < 2; k++)
        for (int i = 0; both[k] && i < both[k]->ninput; i++) {
            Val v = both[k]->input[i];
            int32_t def = f->g->value.at[v].node;
            bool known = has_node(a, def) || (b && has_node(b, def));
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
    int n = join_inputs(f, a, b, inputs);
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
        build_fail(&f->copy.b, err_nomem(f->g->cx, "fusion"));
        return;
    }
    mine->node[mine->nnode++] = id;
    f->group[id] = mine;
    for (int i = 0; i < n->nin; i++) {
        bool known = is_source(f, n->in[i]);
        for (int k = 0; k < mine->ninput; k++) known = known || mine->input[k] == n->in[i];
        if (!known) mine->input[mine->ninput++] = n->in[i];
    }
    for (int i = 0; i < n->nin; i++) {
        Group *theirs = group_of(f, n->in[i]);
        if (!theirs || theirs == f->group[id]) continue;
        bool joins = !alone && !theirs->closed && same_kind(f, theirs->node[0], id);
        if (!joins || !merge(f, theirs, f->group[id])) theirs->closed = true;
    }
}

static void find_groups(Fuse *f, bool alone) {
    for (int32_t id = 1; id < f->g->node.n && !f->copy.b.err; id++) {
        const Node *n = graph_node(f->g, id);
        uint32_t flags = def_of(f, id)->flags;
        if (flags & OPF_ELEMENTWISE && !(flags & OPF_SOURCE)) {
            form_group(f, id, alone);
            continue;
        }
        for (int i = 0; i < n->nin; i++)
            if (group_of(f, n->in[i])) group_of(f, n->in[i])->closed = true;
    }
}

/* ---- building ---- */

typedef struct Body {
    Val outer[MAX_GROUP_INPUTS];
    Val *inner; /* by value of `g`: inside the body */
    Build b;
} Body;

static void set_inner(Fuse *f, Val v, Val inner) {
    f->inner[v] = inner;
    f->stamp[v] = f->bodies;
}

/* A member's operand inside the body: an earlier member, a parameter, or a source copied in. */
static Val inside(Fuse *f, Build *body, Val v) {
    if (f->stamp[v] == f->bodies) return f->inner[v];
    const Node *src = graph_def(f->g, v);
    ASSERT(is_source(f, v), "%s is no input of the group", graph_opdef(f->g, src)->name);
    set_inner(f, v, build_like(body, f->g, src, NULL));
    return f->inner[v];
}

static bool used_outside(const Fuse *f, const Group *grp, Val v) {
    int32_t inner = 0;
    for (int i = 0; i < grp->nnode; i++) {
        const Node *n = graph_node(f->g, grp->node[i]);
        for (int k = 0; k < n->nin; k++) inner += n->in[k] == v;
    }
    return f->uses[v] > inner;
}

static void add_location(const Node *n, const Loc **loc, int *nloc) {
    for (int i = 0; i < n->nloc; i++) {
        bool known = false;
        for (int k = 0; k < *nloc; k++) known = known || loc[k] == n->loc[i];
        if (!known && *nloc < MAX_GROUP) loc[(*nloc)++] = n->loc[i];
    }
}

static void build_group(Fuse *f, const Group *grp) {
    copy_enter(&f->copy, graph_node(f->g, grp->node[0]));
    Build body = f->copy.b;
    const Type **types = ARENA_ARRAY(&f->copy.arena, const Type *, MAX_GROUP);
    Val *results = ARENA_ARRAY(&f->copy.arena, Val, MAX_GROUP);
    const Loc **loc = ARENA_ARRAY(&f->copy.arena, const Loc *, MAX_GROUP);
    f->bodies++;
    body.region = build_region(&f->copy.b);
    if (!types || !results || !loc || !body.region) {
        build_fail(&f->copy.b, err_nomem(f->g->cx, "fusion"));
        return;
    }
    Val in[MAX_GROUP_INPUTS];
    for (int i = 0; i < grp->ninput; i++) {
        Val v = grp->input[i];
        in[i] = f->copy.map[v];
        set_inner(f, v,
                  build_param(&body, OP_PARAM, &(ParamAttr){.index = i + 1}, graph_type(f->g, v)));
    }
    int nout = 0, nloc = 0;
    for (int i = 0; i < grp->nnode; i++) {
        const Node *n = graph_node(f->g, grp->node[i]);
        Val ops[8];
        ASSERT(n->nin <= 8 && n->nout == 1, "an elementwise op with %d operands", n->nin);
        for (int k = 0; k < n->nin; k++) ops[k] = inside(f, &body, n->in[k]);
        set_inner(f, n->out, build_like(&body, f->g, n, ops));
        add_location(n, loc, &nloc);
        if (!used_outside(f, grp, n->out)) continue;
        build_result(&body, f->inner[n->out]);
        types[nout] = graph_type(f->g, n->out);
        results[nout++] = n->out;
    }
    build_fail(&f->copy.b, body.err);
    Build at = f->copy.b;
    at.loc = loc;
    at.nloc = nloc;
    at.role = graph_node(f->g, grp->node[grp->nnode - 1])->role;
    Val v = build_typed(&at, OP_FUSED, in, grp->ninput, NULL, nout, types, &body.region, 1);
    build_fail(&f->copy.b, at.err);
    for (int i = 0; i < nout; i++) f->copy.map[results[i]] = v + i;
}

/* A source that something else than a fused group reads: a group of its own. */
static void build_source(Fuse *f, int32_t id) {
    if (f->read_alone[graph_node(f->g, id)->out])
        build_group(f, &(Group){.nnode = 1, .node = {id}});
}

static void mark_read_alone(Fuse *f) {
    for (int32_t id = 1; id < f->g->node.n; id++)
        for (int i = 0; !f->group[id] && i < graph_node(f->g, id)->nin; i++)
            f->read_alone[graph_node(f->g, id)->in[i]] = true;
    for (int32_t r = 0; r < f->g->region.n; r++)
        for (int i = 0; i < f->g->region.at[r].result.n; i++)
            f->read_alone[f->g->region.at[r].result.at[i]] = true;
}

static void build_node(Fuse *f, int32_t id) {
    const Node *n = graph_node(f->g, id);
    uint32_t flags = def_of(f, id)->flags;
    if (flags & OPF_SOURCE) {
        build_source(f, id);
    } else if (f->group[id]) {
        const Group *grp = f->group[id];
        if (grp->node[grp->nnode - 1] == id) build_group(f, grp);
    } else {
        copy_node(&f->copy, n);
    }
}

Err pass_fuse(const Graph *g, const PassOptions *o, Graph **out) {
    Graph *to = graph_new(g->cx);
    if (!to) return err_nomem(g->cx, "a graph");
    to->mesh = g->mesh;
    Build b = build_in(to, 0);
    b.local = true;
    Fuse f = {.g = g};
    if (copy_begin(&f.copy, g, &b)) {
        Arena *arena = &f.copy.arena;
        f.group = ARENA_ARRAY(arena, Group *, g->node.n);
        f.uses = graph_use_counts(g, arena);
        f.read_alone = ARENA_ARRAY(arena, bool, g->value.n);
        f.inner = ARENA_ARRAY(arena, Val, g->value.n);
        f.stamp = ARENA_ARRAY(arena, int32_t, g->value.n);
        if (!f.group || !f.uses || !f.read_alone || !f.inner || !f.stamp) copy_no_memory(&f.copy);
    }
    if (!f.copy.b.err) find_groups(&f, !pass_is_on(o, SWITCH_FUSE, true));
    if (!f.copy.b.err) mark_read_alone(&f);
    for (int32_t id = 1; id < g->node.n && !f.copy.b.err; id++) build_node(&f, id);
    if (!f.copy.b.err) copy_results(&f.copy, 0);
    copy_end(&f.copy);
    if (f.copy.b.err)
        graph_free(to);
    else
        *out = to;
    return f.copy.b.err;
}
