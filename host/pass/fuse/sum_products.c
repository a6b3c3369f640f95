/* sum_products.c - in partitioned graphs: a sum of products becomes one product.
 *
 * x1 w1 + x2 w2 is (x1|x2) (w1|w2), put together along the dim that is summed over. The products'
 * results, which are written and read again to be added, are then never made; the operands are
 * copied for it, so it is done where these are the smaller ones: with a model that is split into
 * narrow parts, for example. Which ops are products in this sense follows from their rows: linear
 * in each operand alone, with a factor that every operand has and that is summed over. */
#include "ir/copy.h"
#include "ir/rule.h"
#include "op/op.h"
#include "pass/pass.h"

enum { MAX_TERMS = 16, MANY, MAX_OPERANDS = 4 };

/* One that is made anew, of those of its terms that can be one product and the rest. */
typedef struct Sum {
    int32_t nterm, nrest;
    const Node *term[MAX_TERMS];
    Val rest[MAX_TERMS];
    int dim[MAX_OPERANDS]; /* by operand of the terms: the one that is summed over */
} Sum;

typedef struct ProductSums {
    Copy c;
    int32_t *uses; /* by value */
    Sum **sum;     /* by node: that it is the outermost addition of, or NULL */
    bool *inside;  /* by node: made as a part of a sum */
    int8_t *terms; /* by node: of the sum that an addition is the outermost of; too many: MANY */
} ProductSums;

static bool is_addition(const Graph *g, const Node *n) {
    return graph_opdef(g, n)->flags & OPF_ADDITION;
}

static int32_t id_of(const Graph *g, const Node *n) {
    return g->value.at[n->out].node;
}

/* The factor that is summed over in all operands, each time alone in its dim; -1: there is none. */
static int summed_factor(const FactorRule *r, const Graph *g, const Node *n, int *dim) {
    for (int f = 0; f < r->nfactor; f++) {
        bool all = r->kind[f] == FACTOR_SUM && !r->before[f] && !r->behind[f];
        for (int k = 0; all && k < n->nin; k++) {
            int rank = graph_type(g, n->in[k])->dims.rank;
            dim[k] = factor_dim(&r->tensor[k], rank, f);
            all = dim[k] >= 0 && r->tensor[k].n[dim[k]] == 1;
        }
        if (all && !factor_in(&r->tensor[n->nin], graph_type(g, n->out)->dims.rank, f)) return f;
    }
    return -1;
}

/* Is the node a product? Then dim[k] is the dim of operand k that is summed over. */
static bool is_product(ProductSums *j, const Node *n, int *dim) {
    const Graph *g = j->c.from;
    const OpDef *def = graph_opdef(g, n);
    FactorRule *r;
    if (n->nin < 2 || n->nin > MAX_OPERANDS || n->nout != 1 || n->noffset || n->nbody ||
        def->flags & OPF_JOINT || def->linear != (1u << n->nin) - 1 || !def->factors)
        return false;
    build_fail(&j->c.b, rule_of(g, n, &j->c.arena, &r));
    return !j->c.b.err && summed_factor(r, g, n, dim) >= 0;
}

/* Do the products differ in their operands only, and in how long the summed dim is? */
static bool may_be_one(const Graph *g, const Node *a, const Node *b, const int *dim) {
    if (a->op != b->op || !attr_equal(graph_opdef(g, a)->attr, a->attr, b->attr) || b->noffset)
        return false;
    for (int k = 0; k < a->nin; k++) {
        const Type *x = graph_type(g, a->in[k]), *y = graph_type(g, b->in[k]);
        if (x->dtype != y->dtype || x->dims.rank != y->dims.rank) return false;
        for (int d = 0; d < x->dims.rank; d++)
            if (d != dim[k] && x->dims.at[d] != y->dims.at[d]) return false;
    }
    return true;
}

/* Is v a sum that is only there to be added to? */
static bool is_inner(const ProductSums *j, Val v, int32_t region) {
    const Node *d = graph_def(j->c.from, v);
    return j->uses[v] == 1 && d->region == region && is_addition(j->c.from, d);
}

/* Counted before any are collected: a sum may be as deep as the program is long. */
static void count_terms(ProductSums *j) {
    const Graph *g = j->c.from;
    for (int32_t id = 1; id < g->node.n; id++) {
        const Node *n = graph_node(g, id);
        int terms = 0;
        if (!is_addition(g, n)) continue;
        for (int i = 0; i < 2; i++)
            terms += is_inner(j, n->in[i], n->region) ? j->terms[g->value.at[n->in[i]].node] : 1;
        j->terms[id] = (int8_t)(terms < MANY ? terms : MANY);
    }
}

/* The terms of the sum that v is a part of. */
static void collect(const ProductSums *j, Val v, int32_t region, Val *term, int32_t *n) {
    const Node *d = graph_def(j->c.from, v);
    if (!is_inner(j, v, region)) {
        term[(*n)++] = v;
        return;
    }
    for (int i = 0; i < 2; i++) collect(j, d->in[i], region, term, n);
}

/* Each result less is written and read once less, and the sum is written once less; each operand is
 * read and written once more, and they are all kept until then: so by a margin. */
static bool pays(const Graph *g, const Sum *s) {
    double operands = 0, result = (double)type_bytes(graph_type(g, s->term[0]->out));
    for (int32_t i = 0; i < s->nterm; i++)
        for (int k = 0; k < s->term[i]->nin; k++)
            operands += (double)type_bytes(graph_type(g, s->term[i]->in[k]));
    return 3 * result * (s->nterm - 1) > 4 * operands;
}

/* The terms that can be one with the first product among them. */
static void sort_terms(ProductSums *j, const Val *term, int32_t n, int32_t region, Sum *s) {
    const Graph *g = j->c.from;
    for (int32_t i = 0; i < n; i++) {
        const Node *t = graph_def(g, term[i]);
        bool fits = j->uses[term[i]] == 1 && t->region == region &&
                    (s->nterm ? may_be_one(g, s->term[0], t, s->dim) : is_product(j, t, s->dim));
        if (fits)
            s->term[s->nterm++] = t;
        else
            s->rest[s->nrest++] = term[i];
    }
}

/* The additions that the sum is made of. */
static void mark_inside(ProductSums *j, const Node *n) {
    const Graph *g = j->c.from;
    j->inside[id_of(g, n)] = true;
    for (int i = 0; i < 2; i++)
        if (is_inner(j, n->in[i], n->region)) mark_inside(j, graph_def(g, n->in[i]));
}

/* Decides on the sum whose outermost addition is the node. */
static void find_sum(ProductSums *j, int32_t id) {
    const Graph *g = j->c.from;
    const Node *n = graph_node(g, id);
    Val term[MAX_TERMS];
    int32_t count = 0;
    if (j->inside[id] || j->terms[id] == 0 || j->terms[id] == MANY) return;
    for (int i = 0; i < 2; i++) collect(j, n->in[i], n->region, term, &count);
    Sum *s = ARENA_NEW(&j->c.arena, Sum);
    if (!s) {
        copy_no_memory(&j->c);
        return;
    }
    sort_terms(j, term, count, n->region, s);
    if (s->nterm < 2 || !pays(g, s)) return;
    j->sum[id] = s;
    mark_inside(j, n);
    for (int32_t i = 0; i < s->nterm; i++) j->inside[id_of(g, s->term[i])] = true;
}

static void make_sum(ProductSums *j, const Node *n, const Sum *s) {
    Copy *c = &j->c;
    Val operand[MAX_OPERANDS], part[MAX_TERMS];
    copy_enter(c, n);
    Build at = build_at(&c->b, c->from, n);
    for (int k = 0; k < s->term[0]->nin; k++) {
        for (int32_t i = 0; i < s->nterm; i++) part[i] = c->map[s->term[i]->in[k]];
        operand[k] = build_op(&at, OP_CONCAT, part, s->nterm, &(AxisAttr){s->dim[k]});
    }
    Val sum = build_op(&at, s->term[0]->op, operand, s->term[0]->nin, s->term[0]->attr);
    for (int32_t i = 0; i < s->nrest; i++)
        sum = build_op(&at, n->op, (Val[]){sum, c->map[s->rest[i]]}, 2, n->attr);
    build_fail(&c->b, at.err);
    c->map[n->out] = sum;
}

Err pass_sum_products(const Graph *g, const PassOptions *o, Graph **out) {
    (void)o;
    ProductSums j = {0};
    if (copy_begin_graph(&j.c, g, true)) {
        j.uses = graph_use_counts(g, &j.c.arena);
        j.sum = ARENA_ARRAY(&j.c.arena, Sum *, g->node.n);
        j.inside = ARENA_ARRAY(&j.c.arena, bool, g->node.n);
        j.terms = ARENA_ARRAY(&j.c.arena, int8_t, g->node.n);
        if (!j.uses || !j.sum || !j.inside || !j.terms) copy_no_memory(&j.c);
        if (!j.c.b.err) count_terms(&j);
        for (int32_t id = g->node.n - 1; id > 0 && !j.c.b.err; id--) find_sum(&j, id);
        for (int32_t id = 1; id < g->node.n && !j.c.b.err; id++) {
            if (j.sum[id])
                make_sum(&j, graph_node(g, id), j.sum[id]);
            else if (!j.inside[id])
                copy_node(&j.c, graph_node(g, id));
        }
        copy_results(&j.c, 0);
    }
    return copy_end_graph(&j.c, out);
}
