/* fuse.c - elementwise ops of equal dims become one fused node: its body is the ops, its program
 * runs over tiles, and what only the body needs never reaches memory. */
#include "pass/fuse/fuse.h"

#include "op/op.h"

static void set_inner(Fuse *f, Val v, Val inner) {
    f->inner[v] = inner;
    f->stamp[v] = f->bodies;
}

/* A member's operand inside the body: an earlier member, a parameter, or a nullary op copied in. */
static Val inside(Fuse *f, Build *body, Val v) {
    if (f->stamp[v] == f->bodies) return f->inner[v];
    const Node *src = graph_def(f->g, v);
    ASSERT(fuse_is_nullary(f, v), "%s is no input of the group", graph_opdef(f->g, src)->name);
    set_inner(f, v, build_like(body, f->g, src, NULL));
    return f->inner[v];
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
        fuse_no_memory(f);
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
        bool own = f->group[grp->node[i]] == grp || !f->group[grp->node[i]];
        if (!own || !fuse_is_stored(f, n->out)) continue;
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

/* A nullary op that something else than a fused group reads: a group of its own. */
static void build_nullary(Fuse *f, int32_t id) {
    if (f->read_alone[graph_node(f->g, id)->out])
        build_group(f, &(Group){.nnode = 1, .node = {id}});
}

static void build_node(Fuse *f, int32_t id) {
    const Node *n = graph_node(f->g, id);
    uint32_t flags = graph_opdef(f->g, n)->flags;
    if (flags & OPF_NULLARY) {
        build_nullary(f, id);
    } else if (f->group[id]) {
        const Group *grp = f->group[id];
        if (grp->nnode && grp->node[grp->nnode - 1] == id) build_group(f, grp);
    } else {
        copy_node(&f->copy, n);
    }
}

Err pass_fuse(const Graph *g, const PassOptions *o, Graph **out) {
    Fuse f = {.g = g, .target = o->target};
    bool on = pass_is_on(o, SWITCH_FUSE, true);
    if (copy_begin_graph(&f.copy, g, true)) {
        Arena *arena = &f.copy.arena;
        f.group = ARENA_ARRAY(arena, Group *, g->node.n);
        f.read_alone = ARENA_ARRAY(arena, bool, g->value.n);
        f.reader = ARENA_ARRAY(arena, Reader *, g->value.n);
        f.inner = ARENA_ARRAY(arena, Val, g->value.n);
        f.stamp = ARENA_ARRAY(arena, int32_t, g->value.n);
        if (!f.group || !f.read_alone || !f.reader || !f.inner || !f.stamp) copy_no_memory(&f.copy);
    }
    if (!f.copy.b.err) fuse_find_groups(&f, !on);
    if (!f.copy.b.err && on) fuse_compute_again(&f);
    for (int32_t id = 1; id < g->node.n && !f.copy.b.err; id++) build_node(&f, id);
    if (!f.copy.b.err) copy_results(&f.copy, 0);
    return copy_end_graph(&f.copy, out);
}
