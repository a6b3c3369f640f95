/* run.c - what each op's row says alone: its shape, factors, vjp and flops functions. run.c
 * [--bless] FOLDER
 *
 *   # a remark
 *   Mesh(x=2) local
 *   shape matmul float32[4,5] float32[5,6] {x_contract=[2], w_contract=[1]}
 *     float32[4,6]
 *
 * A case is one line: which function, the op, the types of its operands, its attributes, all as in
 * a graph's text; behind it, indented, what comes out: the types of the results, the sharding rule
 * and along which factors dims may be padded, or the nodes of the gradient, where the op's results
 * stand behind the operands and the results' cotangents (numbers, or those of ct=) behind them; or
 * the error; or how many operations it takes. `vjp wrt=1 ct=2` asks for the first operand's, given
 * the second result's. Lines that begin with | give the program itself, whose last node of this op
 * is meant: what owns regions, and what depends on where operands come from. A mesh holds for the
 * cases behind it.
 *
 * The run fails where an op of the table (op/oplist.h) has a function but no case of it. */
#include "cases.h"

#include "ir/full.h"
#include "ir/rule.h"
#include "pass/pass.h"

#include <stdio.h>
#include <string.h>

enum { MOST = 16 };

typedef enum Ask { ASK_SHAPE, ASK_FACTORS, ASK_VJP, ASK_FLOPS, ASK_COUNT } Ask;
static const char *const asks[ASK_COUNT] = {"shape", "factors", "vjp", "flops"};
static int seen[OP_COUNT][ASK_COUNT];

typedef struct Case {
    Ctx *cx;
    const char *mesh; /* its line */
    Ask ask;
    int op;
    uint32_t ct, wrt; /* bits */
    Str text;         /* of the program */
    bool is_given;    /* by the case, rather than made from its line */
    int nout;         /* in the text */
} Case;

/* ---- the program of a case ---- */
static uint32_t read_bits(const char *text) {
    uint32_t bits = 0;
    while (*text >= '1' && *text <= '9') {
        bits |= 1u << (*text++ - '1');
        if (*text == ',') text++;
    }
    return bits;
}

/* One type: up to a blank outside of braces and brackets. */
static size_t type_length(const char *at) {
    int depth = 0;
    size_t n = 0;
    for (; at[n] && at[n] != '\n' && (depth || at[n] != ' '); n++)
        depth += at[n] == '{' || at[n] == '(' ? 1 : at[n] == '}' || at[n] == ')' ? -1 : 0;
    return n;
}

/* Parameters of the types, then the op with a type that does not matter: see make_node. */
static void program_of_line(Case *c, const char *at) {
    const OpDef *def = op_def(c->op);
    int nin = 0;
    if (strncmp(c->mesh, "no", 2) != 0)
        str_put_n(&c->text, c->mesh, (size_t)(cases_next_line(c->mesh) - c->mesh));
    for (;; nin++) {
        at += strspn(at, " ");
        size_t n = type_length(at);
        if (n == 0 || *at == '{') break;
        str_fmt(&c->text, "%%%d = param : %.*s\n", nin + 1, (int)n, at);
        at += n;
    }
    c->nout = def->nout >= 0 ? def->nout : nin ? nin : 1;
    for (int i = 0; i < c->nout; i++) str_fmt(&c->text, "%s%%%d", i ? ", " : "", nin + 1 + i);
    str_fmt(&c->text, " = %s", def->name);
    for (int i = 0; i < nin; i++) str_fmt(&c->text, " %%%d", i + 1);
    str_fmt(&c->text, " %.*s", (int)strcspn(at, "\n"), at);
    for (int i = 0; i < c->nout; i++) str_put(&c->text, i ? ", float32[]" : " : float32[]");
    str_put(&c->text, "\nreturn\n");
}

static Err read_case(Case *c, const char *at, const char *end) {
    char word[64], op[64];
    int n = 0;
    for (; sscanf(at, "%63s%n", word, &n) == 1; at += n + strspn(at + n, " ")) {
        if (strncmp(word, "ct=", 3) == 0)
            c->ct = read_bits(word + 3);
        else if (strncmp(word, "wrt=", 4) == 0)
            c->wrt = read_bits(word + 4);
        else if (strcmp(word, asks[c->ask]) != 0)
            break;
    }
    snprintf(op, sizeof op, "%s", word);
    c->op = op_find(op);
    if (!c->op) return err_set(c->cx, E_KEY, "no op '%s'", op);
    const char *line = cases_next_line(at);
    c->is_given = line < end && *line == '|';
    if (!c->is_given) program_of_line(c, at + strlen(op));
    for (; line < end && *line == '|'; line = cases_next_line(line))
        str_put_n(&c->text, line + 1, (size_t)(cases_next_line(line) - line - 1));
    return E_OK;
}

/* The last node of the op that the program itself has; 0: none. */
static int32_t find_node(const Graph *g, int op) {
    int32_t found = 0;
    for (int32_t id = 1; id < g->node.n; id++)
        if (graph_node(g, id)->op == op && graph_node(g, id)->region == 0) found = id;
    return found;
}

/* Builds the node of `from` in a graph of its own, by the row's shape. */
static Err make_node(Case *c, const Graph *from, const Node *n, Graph **out) {
    Graph *g = *out = graph_new(c->cx);
    if (!g) return err_nomem(c->cx, "a graph");
    Build b = build_in(g, 0);
    Val in[MOST];
    g->mesh = from->mesh;
    b.local = strstr(str_of(&c->text), ") local\n") != NULL;
    for (int i = 0; i < n->nin && i < MOST; i++)
        in[i] =
            build_param(&b, OP_PARAM, graph_def(from, n->in[i])->attr, graph_type(from, n->in[i]));
    build_op(&b, n->op, in, n->nin, n->attr);
    return b.err;
}

/* The program with its node *id, as it is given or by its line. */
static Err make_program(Case *c, Graph **out, int32_t *id) {
    Graph *g = NULL;
    TRY(graph_parse(c->cx, str_of(&c->text), c->text.n, &g));
    *id = find_node(g, c->op);
    *out = g;
    if (c->is_given) return *id ? graph_verify(g) : err_set(c->cx, E_KEY, "its op is not there");
    Err e = make_node(c, g, graph_node(g, *id), out);
    graph_free(g);
    *id = (*out)->node.n - 1;
    if (e) return e;
    return graph_verify(*out) ? err_set(c->cx, E_INTERNAL, "the verifier does not agree") : E_OK;
}

/* ---- shape and factors ---- */
/* And of an operand that was brought to another mode first. */
static void put_types(const Graph *g, const Node *n, Str *s) {
    FullDefault d = {.mesh = g->mesh, .local = graph_type(g, n->out)->local};
    for (int i = 0; i < n->nin; i++) {
        if (graph_opdef(g, graph_def(g, n->in[i]))->flags & OPF_PARAM) continue;
        str_fmt(s, "operand %d as ", i + 1);
        full_type(graph_type(g, n->in[i]), &d, s);
        str_put(s, "\n");
    }
    for (int i = 0; i < n->nout; i++) {
        if (i) str_put(s, ", ");
        full_type(graph_type(g, n->out + i), &d, s);
    }
    str_put(s, "\n");
}

static char letter(int factor) {
    return (char)((factor < 18 ? 'i' : 'a' - 18) + factor);
}

/* What holds of every rule: a dim is as long as its factors together, and no other has any. */
static void check_sizes(const Graph *g, const Node *n, const FactorRule *r, Str *s) {
    for (int t = 0; t < r->ntensor; t++) {
        const Dims *dims = &graph_type(g, node_tensor(n, t))->dims;
        for (int d = 0; d < MAX_RANK; d++) {
            const FactorMap *m = &r->tensor[t];
            int64_t size = 1;
            for (int k = 0; k < m->n[d]; k++) size *= r->size[m->at[d][k]];
            if (m->n[d] && (d >= dims->rank || size != dims->at[d]))
                str_fmt(s, "wrong: dim %d of tensor %d has %lld, its factors %lld\n", d + 1, t + 1,
                        (long long)dims->at[d], (long long)size);
        }
    }
}

static Err put_factors(const Graph *g, const Node *n, Str *s) {
    Arena arena;
    FactorRule *r = NULL;
    int ranks[2 * MOST], pads = 0;
    arena_init(&arena, &g->cx->alloc);
    Err e = rule_of(g, n, &arena, &r);
    for (int t = 0; t < n->nin + n->nout && t < 2 * MOST; t++)
        ranks[t] = graph_type(g, node_tensor(n, t))->dims.rank;
    if (!e) {
        factor_print(r, n->nin, ranks, s);
        for (int f = 0; f < r->nfactor; f++)
            if (rule_pads(r, graph_opdef(g, n), f))
                str_fmt(s, "%s%c", pads++ ? " " : " pads ", letter(f));
        str_put(s, "\n");
        check_sizes(g, n, r, s);
    }
    arena_free(&arena);
    return e;
}

/* ---- vjp ---- */
typedef struct Vjp {
    Val in[MOST], ct[MOST], din[MOST];
    int nct, nin;
    Val last; /* nodes behind it are the gradient's */
} Vjp;

/* A cotangent of a value of that type: what is reduced there is a sum to be made here. */
static const Type *cotangent_type(Ctx *cx, const Type *t) {
    if (!t->layout) return t;
    Layout l = *t->layout;
    l.unreduced = t->layout->reduced;
    l.reduced = t->layout->unreduced;
    const Layout *own = layout_of(cx, &l);
    return own ? type_with_layout(cx, t, own) : NULL;
}

static bool is_real(const Graph *g, Val v) {
    return dtype_is_float(graph_type(g, v)->dtype);
}

/* The cotangents that the row takes: parameters, of which the rest of the program knows nothing. */
static void add_cotangents(const Case *c, Build *b, const Node *n, Vjp *v) {
    uint32_t takes = graph_opdef(b->g, n)->grad_results;
    for (int i = 0; i < n->nout; i++) {
        if (!is_real(b->g, n->out + i) || (takes && !(takes >> i & 1)) || !(c->ct >> i & 1))
            continue;
        const Type *t = cotangent_type(c->cx, graph_type(b->g, n->out + i));
        ParamAttr attr = {.index = b->g->region.at[0].param.n + 1};
        if (t) v->ct[i] = build_param(b, OP_PARAM, &attr, t);
        v->nct++;
    }
    v->last = b->g->value.n - 1;
}

/* The rule of the row itself; of what owns regions by the pass, which differentiates them. */
static void call_vjp(const Case *c, Build *b, const Node *n, Vjp *v) {
    const OpDef *def = graph_opdef(b->g, n);
    if (n->nbody) {
        Val y[MOST], ct[MOST], wrt[MOST], grad[MOST];
        int ny = 0, nwrt = 0, at[MOST];
        for (int i = 0; i < n->nout; i++)
            if (v->ct[i]) y[ny] = n->out + i, ct[ny++] = v->ct[i];
        for (int i = 0; i < n->nin; i++)
            if (c->wrt >> i & 1 && is_real(b->g, n->in[i])) at[nwrt] = i, wrt[nwrt++] = n->in[i];
        pass_grad(b, y, ct, ny, wrt, nwrt, grad);
        for (int i = 0; i < nwrt; i++) v->din[at[i]] = grad[i];
        return;
    }
    Val out[MOST];
    for (int i = 0; i < n->nout; i++) out[i] = n->out + i;
    VjpArgs a = {.node = n, .in = n->in, .out = out, .ct = v->ct, .din = v->din, .wanted = c->wrt};
    Build at = build_at(b, b->g, n);
    def->vjp(&at, &a);
    build_fail(b, at.err);
}

/* What holds of every rule: a cotangent is of its operand's dims and dtype, and there is one only
 * where there can be. */
static void check_cotangents(const Graph *g, const Node *n, const Vjp *v, Str *s) {
    for (int i = 0; i < n->nin; i++) {
        const Type *x = graph_type(g, n->in[i]), *d = v->din[i] ? graph_type(g, v->din[i]) : x;
        if (!dims_equal(&x->dims, &d->dims) || d->dtype != x->dtype) {
            str_fmt(s, "wrong: the cotangent of operand %d is ", i + 1);
            type_print(d, s);
            str_put(s, "\n");
        }
        if (v->din[i] && !dtype_is_float(x->dtype))
            str_fmt(s, "wrong: operand %d has a cotangent\n", i + 1);
    }
}

/* The nodes behind `last`, and which value each operand's cotangent is. */
static Err put_gradient(Graph *g, const Node *n, const Vjp *v, Str *s) {
    Build b = build_in(g, 0);
    Str all;
    char mark[32];
    str_init(&all, &g->cx->alloc);
    g->region.at[0].result.n = 0;
    for (int i = 0; i < n->nin; i++)
        if (v->din[i]) build_result(&b, v->din[i]);
    Err e = b.err ? b.err : graph_verify(g);
    graph_print_full(g, &all);
    snprintf(mark, sizeof mark, "%%%d = ", (int)v->last);
    const char *at = strstr(str_of(&all), mark);
    if (at && *at) at = cases_next_line(at);
    const char *end = at ? strstr(at, "\nreturn") : NULL;
    if (at && strncmp(at, "return", 6) != 0) str_put_n(s, at, end ? (size_t)(end + 1 - at) : 0);
    str_free(&all);
    str_put(s, "return");
    const OpDef *def = graph_opdef(g, n);
    const char *name = def->operands;
    for (int i = 0; i < n->nin; i++) {
        size_t len = strcspn(name, ",");
        if (len && def->nin >= 0)
            str_fmt(s, " %.*s=", (int)len, name);
        else
            str_fmt(s, " %d=", i + 1);
        str_fmt(s, v->din[i] ? "%%%d" : "none", (int)v->din[i]);
        name += len + (name[len] == ',');
    }
    str_put(s, "\n");
    return e;
}

static Err run_vjp(const Case *c, Graph *g, int32_t id, Vjp *v, Str *s) {
    Build b = build_in(g, 0);
    const Node n = *graph_node(g, id);
    if (n.nin > MOST || n.nout > MOST) return err_set(c->cx, E_KEY, "too many operands");
    add_cotangents(c, &b, &n, v);
    if (!b.err && v->nct) call_vjp(c, &b, &n, v); /* else nobody calls it */
    if (b.err || !s) return b.err;
    check_cotangents(g, &n, v, s);
    v->nin = n.nin;
    return put_gradient(g, &n, v, s);
}

/* Asked for one operand alone, a row gives that one's. */
static Err check_each(Case *c, const Vjp *all, Str *s) {
    const uint32_t wanted = c->wrt;
    Err e = E_OK;
    for (int i = 0; i < all->nin && !e; i++) {
        Graph *g = NULL;
        int32_t id = 0;
        Vjp v = {0};
        if (!(wanted >> i & 1)) continue;
        c->wrt = 1u << i;
        e = make_program(c, &g, &id);
        if (!e) e = run_vjp(c, g, id, &v, NULL);
        if (!e && !v.din[i] != !all->din[i])
            str_fmt(s, "wrong: another cotangent where that of operand %d is asked for alone\n",
                    i + 1);
        graph_free(g);
    }
    c->wrt = wanted;
    return e;
}

static Err put_vjp(Case *c, Graph *g, int32_t id, Str *s) {
    const OpDef *def = op_def(c->op);
    if (!def->vjp) {
        str_put(s, def->flags & OPF_NO_GRAD ? "none: zero or undefined\n"
                   : def->expand            ? "none: by its definition\n"
                                            : "none\n");
        return E_OK;
    }
    Vjp v = {0};
    TRY(run_vjp(c, g, id, &v, s));
    return def->nin < 0 ? E_OK : check_each(c, &v, s);
}

static Err put_flops(const Graph *g, const Node *n, Str *s) {
    const Type *room[2 * MOST];
    if (n->nin + n->nout > 2 * MOST) return err_set(g->cx, E_KEY, "too many operands");
    str_fmt(s, "%.0f\n", op_flops(g, n, room));
    return E_OK;
}

/* ---- one case ---- */
static void run_case(Case *c, Str *s, bool *bad) {
    Graph *g = NULL;
    int32_t id = 0;
    Err e = make_program(c, &g, &id);
    bool refused = e && c->ask == ASK_SHAPE && !c->is_given && e != E_PARSE && e != E_INTERNAL;
    *bad = e && !refused;
    const Node n = !e ? *graph_node(g, id) : (Node){0};
    if (!e) {
        e = c->ask == ASK_SHAPE     ? (put_types(g, &n, s), E_OK)
            : c->ask == ASK_FACTORS ? put_factors(g, &n, s)
            : c->ask == ASK_VJP     ? put_vjp(c, g, id, s)
                                    : put_flops(g, &n, s);
        seen[c->op][c->ask]++;
    }
    if (e) str_fmt(s, "[%s] %s\n", err_name(e), c->cx->err.text);
    if (!*bad && strstr(str_of(s), "wrong: ")) *bad = true;
    graph_free(g);
}

/* Two blanks before each line. */
static void indent(Str *s, const char *text) {
    for (; *text; text = cases_next_line(text)) {
        str_put(s, "  ");
        str_put_n(s, text, (size_t)(cases_next_line(text) - text));
    }
}

static const char *do_case(Cases *r, const char *file, const char *mesh, Ask ask, const char *at) {
    Ctx cx;
    Case c = {.cx = &cx, .mesh = mesh, .ask = ask, .ct = ~0u, .wrt = ~0u};
    const char *split = cases_next_line(at), *end;
    while (*split == '|') split = cases_next_line(split);
    for (end = split; strncmp(end, "  ", 2) == 0;) end = cases_next_line(end);
    bool ready = cases_start(&cx) == E_OK, bad = true;
    Str s, made;
    str_init(&s, &cx.alloc);
    str_init(&made, &cx.alloc);
    str_init(&c.text, &cx.alloc);
    if (ready && read_case(&c, at, split) == E_OK)
        run_case(&c, &s, &bad);
    else
        str_fmt(&s, "[%s] %s\n", err_name(cx.err.code), cx.err.text);
    indent(&made, str_of(&s));
    str_put_n(&r->out, at, (size_t)(split - at));
    if (cases_compare(r, file, at, split, split, (size_t)(end - split), &made, bad))
        str_fmt(&r->out, "%s\n", str_of(&made));
    else
        str_put_n(&r->out, split, (size_t)(end - split));
    str_free(&s);
    str_free(&made);
    str_free(&c.text);
    cases_end(r, file, &cx);
    return end;
}

static void do_text(Cases *r, const char *file, const char *at) {
    const char *mesh = "no mesh\n";
    while (*at) {
        int ask = 0;
        while (ask < ASK_COUNT &&
               (strncmp(at, asks[ask], strlen(asks[ask])) != 0 || at[strlen(asks[ask])] != ' '))
            ask++;
        if (ask < ASK_COUNT) {
            at = do_case(r, file, mesh, (Ask)ask, at);
            continue;
        }
        const char *next = cases_next_line(at);
        if (strncmp(at, "Mesh(", 5) == 0 || strncmp(at, "no mesh", 7) == 0)
            mesh = at;
        else if (*at != '#' && *at != '\n' && ++r->failed)
            fprintf(stderr, "%s: what is this?\n%.*s", file, (int)(next - at), at);
        str_put_n(&r->out, at, (size_t)(next - at));
        at = next;
    }
}

/* An op of the table that has the function, or says that it has no gradient, needs a case of it. */
static void check_all(Cases *r) {
    for (int op = 1; op < OP_COUNT; op++) {
        const OpDef *d = op_def(op);
        const bool has[ASK_COUNT] = {d->shape, d->factors,
                                     d->vjp || d->expand || d->flags & OPF_NO_GRAD, d->flops};
        for (int i = 0; i < ASK_COUNT; i++) {
            if (!has[i] || seen[op][i]) continue;
            fprintf(stderr, "%s: no case of its %s\n", d->name, asks[i]);
            r->failed++;
        }
    }
}

int main(int argc, char **argv) {
    Cases r = {.bless = argc > 1 && strcmp(argv[1], "--bless") == 0, .text = do_text};
    if (argc - r.bless > 1) cases_folder(&r, argv[1 + r.bless]);
    check_all(&r);
    printf("%d cases, %d failed\n", r.cases, r.failed);
    return r.failed || !r.cases;
}
