/* split.c - in partitioned graphs, as the ops' rows say: an op that would leave most threads
 * without work becomes two steps, and two that read the same operands become one. */
#include "ir/copy.h"
#include "op/op.h"
#include "pass/pass.h"

/* Nodes that an op needs before its pair can stand where the first of the two stands. */
enum { MOST_EARLY = 16 };

typedef struct Pair {
    int32_t node; /* the second of the two */
    int n, early[MOST_EARLY];
} Pair;

typedef struct SplitPass {
    Copy c;
    Pair **pair;   /* by node: the first of two */
    bool *done;    /* by node */
    int64_t parts; /* of an op, at most */
} SplitPass;

/* ---- one step of two ---- */

/* Adds to p->early, each behind its operands, the node of v and those behind `first` that it needs;
 * `depth` others are to follow it. False where that is `first` itself, too much, or must stay where
 * it is. */
static bool find_early(const Graph *g, Pair *p, int32_t first, Val v, int depth) {
    int32_t id = g->value.at[v].node;
    const Node *n = graph_node(g, id);
    for (int i = 0; i < p->n; i++)
        if (p->early[i] == id) return true;
    if (id < first) return true;
    if (id == first || p->n + depth >= MOST_EARLY || n->nbody ||
        n->region != graph_node(g, first)->region ||
        graph_opdef(g, n)->flags & (OPF_COLLECTIVE | OPF_BARRIER | OPF_PARAM))
        return false;
    for (int i = 0; i < n->nin; i++)
        if (!find_early(g, p, first, n->in[i], depth + 1)) return false;
    p->early[p->n++] = id;
    return true;
}

/* Is node `id` the second of two that become one? */
static void find_pair(SplitPass *s, int32_t id) {
    const Graph *g = s->c.from;
    const Node *n = graph_node(g, id);
    const OpPair *row = &graph_opdef(g, n)->pair;
    if (!row->op) return;
    int32_t first = g->value.at[n->in[row->operand]].node;
    const Node *f = graph_node(g, first);
    bool fits =
        f->op == row->first && f->region == n->region && f->nin == row->operand && !s->pair[first];
    for (int i = 0; fits && i < f->nin; i++) fits = f->in[i] == n->in[i];
    Pair p = {.node = id};
    for (int i = row->operand + 1; fits && i < n->nin; i++)
        fits = find_early(g, &p, first, n->in[i], 0);
    if (!fits) return;
    s->pair[first] = arena_copy(&s->c.arena, &p, sizeof p);
    if (!s->pair[first]) copy_no_memory(&s->c);
}

static void make_both(SplitPass *s, const Node *f, const Node *n) {
    Copy *c = &s->c;
    const OpPair *row = &graph_opdef(c->from, n)->pair;
    Val *in = copy_operands(c, n);
    if (!in) return;
    for (int i = row->operand; i + 1 < n->nin; i++) in[i] = in[i + 1];
    copy_enter(c, f);
    Build at = build_at(&c->b, c->from, f);
    Val v = build_op(&at, row->op, in, n->nin - 1, n->attr);
    build_fail(&c->b, at.err);
    copy_set(c, f, v);
    copy_set(c, n, v ? v + f->nout : 0);
}

/* ---- two steps of one ---- */

/* Does the node's row split it? Then its results are mapped. */
static bool split_node(Copy *c, const Node *n, int64_t most) {
    const OpDef *def = graph_opdef(c->from, n);
    enum { MAX = 8 };
    Val out[MAX] = {0};
    if (!def->split) return false;
    const Val *in = copy_operands(c, n);
    if (!in) return true;
    copy_enter(c, n);
    Build at = build_at(&c->b, c->from, n);
    ASSERT(n->nout <= MAX, "%s has %d results", def->name, n->nout);
    def->split(&at, n, in, out, most);
    build_fail(&c->b, at.err);
    for (int i = 0; out[0] && i < n->nout; i++) c->map[n->out + i] = out[i];
    return out[0] || at.err;
}

static void step(SplitPass *s, int32_t id) {
    const Graph *g = s->c.from;
    const Pair *p = s->pair[id];
    if (s->done[id] || s->c.b.err) return;
    s->done[id] = true;
    for (int i = 0; p && i < p->n; i++) step(s, p->early[i]);
    if (p) {
        make_both(s, graph_node(g, id), graph_node(g, p->node));
        s->done[p->node] = true;
    } else if (!split_node(&s->c, graph_node(g, id), s->parts)) {
        copy_node(&s->c, graph_node(g, id));
    }
}

Err pass_split(const Graph *g, const PassOptions *o, Graph **out) {
    SplitPass s = {.parts = o->target->parts};
    if (copy_begin_graph(&s.c, g, true)) {
        s.pair = ARENA_ARRAY(&s.c.arena, Pair *, g->node.n);
        s.done = ARENA_ARRAY(&s.c.arena, bool, g->node.n);
        if (!s.pair || !s.done) copy_no_memory(&s.c);
        for (int32_t id = 1; id < g->node.n && !s.c.b.err; id++) find_pair(&s, id);
        for (int32_t id = 1; id < g->node.n && !s.c.b.err; id++) step(&s, id);
        copy_results(&s.c, 0);
    }
    return copy_end_graph(&s.c, out);
}
