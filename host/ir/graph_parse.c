/* graph_parse.c - a graph from its text, in either form of graph_print.c.
 *
 * What the text may leave out: attributes (zero; a parameter's index: its place), types (by the
 * op's shape rule), what of a layout is not seen, places and reasons. The first line may say
 * `local` (types of one shard) or `laid` (every type has a layout, even where nothing of it is
 * seen). Values may have any numbers: they give the nodes' order, as in what graph_print.c writes.
 * A line that begins with # is a remark. */
#include "ir/parse.h"

#include "ir/build.h"

#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 64, MOST_RESULTS = 1 << 16 };

/* ---- values ---- */
static bool same_id(const void *ud, const void *probe, int32_t value) {
    const Parse *p = ud;
    return p->value.at[value].id == *(const int32_t *)probe;
}

/* The value of this number; NULL: there is none. */
static ParseValue *find_value(Parse *p, Val id) {
    int32_t i = map_find(&p->values, hash_u64(0, (uint64_t)id), same_id, p, &id);
    return i < 0 ? NULL : &p->value.at[i];
}

static void add_value(Parse *p, const char *at, ParseValue v) {
    if (v.id <= 0)
        parse_fail_at(p, at, "expected a value's number from 1 on");
    else if (find_value(p, v.id))
        parse_fail_at(p, at, "expected a value that is not made yet (%%%d is)", (int)v.id);
    else if (!map_add(&p->arena, &p->values, hash_u64(0, (uint64_t)v.id), p->value.n) ||
             !VEC_PUSH(&p->arena, &p->value, v))
        parse_no_memory(p);
}

/* An operand or result: a value that is there, of the region. */
static Val read_use(Parse *p, int32_t region) {
    parse_blanks(p);
    const char *at = p->at;
    Val id = parse_value(p);
    const ParseValue *v = p->err ? NULL : find_value(p, id);
    if (!v)
        parse_fail_at(p, at, "expected a value that is made before");
    else if (p->node.at[v->node].region != region)
        parse_fail_at(p, at, "expected a value of this region, which %%%d is not", (int)id);
    return id;
}

/* ---- nodes ---- */
static int read_op(Parse *p) {
    parse_blanks(p);
    const char *at = p->at, *name = parse_word(p, "an op");
    for (int i = 1; name && i < p->cx->interns->nops; i++)
        if (strcmp(p->cx->interns->ops[i].name, name) == 0) return i;
    parse_fail_at(p, at, "expected an op");
    return 0;
}

static void read_results(Parse *p, ParseNode *n) {
    if (parse_take(p, "none")) {
        n->id = parse_value(p);
        n->number = parse_node_number(p);
        return;
    }
    do {
        parse_blanks(p);
        const char *at = p->at;
        Val id = parse_value(p);
        if (n->nout && id != n->id + n->nout)
            parse_fail_at(p, at, "expected %%%d, the result behind the one before",
                          (int)(n->id + n->nout));
        if (!n->nout) n->id = id;
        add_value(p, at, (ParseValue){.id = id, .node = p->node.n, .k = n->nout++});
    } while (!p->err && parse_take(p, ","));
}

static void read_operands(Parse *p, ParseNode *n, const OpDef *def) {
    VEC(Val) in = {0};
    parse_blanks(p);
    for (; !p->err && *p->at == '%'; parse_blanks(p)) {
        const char *at = p->at;
        Val v = read_use(p, n->region);
        if (!p->err && v >= n->id) parse_fail_at(p, at, "expected a value that is made before");
        if (!VEC_PUSH(&p->arena, &in, v)) parse_no_memory(p);
    }
    n->in = in.at;
    n->nin = in.n;
    if (!p->err && def->nin >= 0 && n->nin != def->nin)
        parse_fail(p, "expected %d operands of %s (%s)", def->nin, def->name, def->operands);
}

static void read_offsets(Parse *p, ParseNode *n) {
    for (bool first = true; !p->err && !parse_take(p, "]"); first = false) {
        Offset o = {.unit = 0};
        if (!first) parse_want(p, ",");
        o.unit = parse_int(p, INT64_MIN, INT64_MAX, "elements");
        if (parse_take(p, "*")) o.axes = parse_axes(p, p->def.mesh);
        if (!VEC_PUSH(&p->arena, &n->offset, o)) parse_no_memory(p);
    }
}

static void read_types(Parse *p, ParseNode *n, const OpDef *def) {
    if (!parse_take(p, ":")) {
        if (def->flags & OPF_TYPED) parse_fail(p, "expected ':' and the types of the results");
        return;
    }
    const Type **types = ARENA_ARRAY(&p->arena, const Type *, n->nout + 1);
    if (!types) parse_no_memory(p);
    for (int i = 0; !p->err && i < n->nout; i++) {
        if (i) parse_want(p, ",");
        types[i] = parse_type(p);
    }
    n->type = types;
}

static int32_t read_region(Parse *p, int32_t region);

static int32_t read_body(Parse *p) {
    int32_t r = p->region.n;
    int32_t number = parse_take(p, "#") ? (int32_t)parse_int(p, 1, INT32_MAX, "a region") : 0;
    parse_end_of_line(p);
    if (p->depth == DEEPEST) parse_fail(p, "expected at most %d regions in each other", DEEPEST);
    if (!VEC_PUSH(&p->arena, &p->region, (ParseRegion){.number = number})) parse_no_memory(p);
    if (p->err) return 0;
    p->depth++;
    read_region(p, r);
    p->depth--;
    parse_want(p, "}");
    return r;
}

static void read_bodies(Parse *p, ParseNode *n) {
    while (!p->err && parse_take(p, "{")) {
        const char *at = p->at;
        int32_t body = read_body(p);
        if (!p->err && p->region.at[body].last >= n->id)
            parse_fail_at(p, at, "expected values below %%%d in its region", (int)n->id);
        if (!p->err) p->region.at[n->region].last = p->region.at[body].last;
        if (!VEC_PUSH(&p->arena, &n->body, body)) parse_no_memory(p);
    }
}

static void add_param(Parse *p, ParseNode *n, const OpDef *def) {
    ParseRegion *r = &p->region.at[n->region];
    if (n->nout != 1) parse_fail(p, "expected one result of %s", def->name);
    if (p->err) return;
    if (!r->params_given && !VEC_PUSH(&p->arena, &r->param, n->id)) parse_no_memory(p);
}

static void read_node(Parse *p, int32_t region) {
    ParseNode n = {.region = region, .at = p->at};
    int32_t at = p->node.n;
    read_results(p, &n);
    parse_want(p, "=");
    n.op = read_op(p);
    const OpDef *def = &p->cx->interns->ops[n.op];
    if (!p->err && def->nout >= 0 && n.nout != def->nout)
        parse_fail_at(p, n.at, "expected %d results of %s", def->nout, def->name);
    read_operands(p, &n, def);
    if (!p->err) n.attr = parse_attr(p, def, p->region.at[region].param.n + 1);
    if (parse_take(p, "offset=[")) read_offsets(p, &n);
    if (parse_take(p, "clone=")) n.clone = (int32_t)parse_int(p, INT32_MIN, INT32_MAX, "a clone");
    if (parse_take(p, "role=")) {
        static const char *const roles[] = {"forward", "backward", "gradient", "recomputed", NULL};
        n.role = parse_enum(p, roles, "forward, backward, gradient or recomputed");
    }
    if (!p->err) read_types(p, &n, def);
    /* Its place is its own while its regions are read. */
    if (!VEC_PUSH(&p->arena, &p->node, n)) parse_no_memory(p);
    if (!p->err) read_bodies(p, &n);
    if (!p->err && def->flags & OPF_PARAM) add_param(p, &n, def);
    parse_comment(p, &n);
    parse_end_of_line(p);
    if (p->err) return;
    p->node.at[at] = n;
    if (n.id + n.nout - 1 > p->region.at[region].last)
        p->region.at[region].last = n.id + n.nout - 1;
}

static int32_t read_region(Parse *p, int32_t region) {
    const char *params = NULL;
    if (parse_take(p, "params")) {
        params = p->at;
        p->region.at[region].params_given = true;
        p->at += strcspn(p->at, "\n");
        parse_end_of_line(p);
    }
    while (!p->err && !parse_take(p, "return")) read_node(p, region);
    for (parse_blanks(p); !p->err && *p->at == '%'; parse_blanks(p)) {
        Val v = read_use(p, region);
        if (!VEC_PUSH(&p->arena, &p->region.at[region].result, v)) parse_no_memory(p);
    }
    parse_end_of_line(p);
    if (p->err || !params) return region;
    const char *behind = p->at;
    p->at = params;
    for (parse_blanks(p); !p->err && *p->at == '%'; parse_blanks(p)) {
        Val v = read_use(p, region);
        if (!VEC_PUSH(&p->arena, &p->region.at[region].param, v)) parse_no_memory(p);
    }
    if (!p->err && !parse_at_end(p)) parse_fail(p, "expected the region's parameters");
    if (!p->err) p->at = behind;
    return region;
}

/* ---- the graph ---- */
static int by_id(const void *a, const void *b) {
    const ParseNode *x = *(const ParseNode *const *)a, *y = *(const ParseNode *const *)b;
    if (x->id != y->id) return x->id < y->id ? -1 : 1;
    if (!x->nout != !y->nout) return x->nout ? 1 : -1; /* none %7 stands before %7 */
    return x->number < y->number ? -1 : x->number > y->number;
}

/* Regions in the order of their numbers, which all have or none. */
static void number_regions(Parse *p) {
    int32_t n = p->region.n;
    bool *taken = ARENA_ARRAY(&p->arena, bool, n);
    bool any = false;
    if (!taken) parse_no_memory(p);
    for (int32_t r = 1; r < n; r++) any = any || p->region.at[r].number;
    for (int32_t r = 1; !p->err && r < n; r++) {
        int32_t *number = &p->region.at[r].number;
        if (!any) *number = r;
        if (*number < 1 || *number >= n || taken[*number])
            parse_fail(p, "expected the numbers #1 to #%d of regions before this, once each",
                       (int)n - 1);
        else
            taken[*number] = true;
    }
}

static Val made(Parse *p, Val id) {
    const ParseValue *v = find_value(p, id);
    return v ? v->made : 0;
}

/* Sets what build.h does not give to a node that is built as it stands. */
static void finish_node(Parse *p, Build *b, const ParseNode *n, Val v) {
    Graph *g = b->g;
    Node *node = &g->node.at[n->nout ? g->value.at[v].node : g->node.n - 1];
    node->clone = n->clone;
    if (n->offset.n) {
        node->offset =
            arena_copy(&g->arena, n->offset.at, sizeof *n->offset.at * (size_t)n->offset.n);
        node->noffset = n->offset.n;
        if (!node->offset) build_fail(b, err_nomem(p->cx, "a graph"));
    }
    for (int i = 0; i < n->nout; i++) find_value(p, n->id + i)->made = v + i;
}

static void build_node(Parse *p, Graph *g, const ParseNode *n) {
    Build b = build_in(g, n->region ? p->region.at[n->region].number : 0);
    b.local = p->def.local;
    b.loc = n->loc.at;
    b.nloc = n->loc.n;
    b.why = n->why.at;
    b.nwhy = n->why.n;
    b.role = (uint8_t)n->role;
    Val *in = ARENA_ARRAY(&p->arena, Val, n->nin + 1);
    int32_t *body = ARENA_ARRAY(&p->arena, int32_t, n->body.n + 1);
    if (!in || !body) parse_no_memory(p);
    for (int i = 0; in && i < n->nin; i++) in[i] = made(p, n->in[i]);
    for (int k = 0; body && k < n->body.n; k++) body[k] = p->region.at[n->body.at[k]].number;
    if (p->err) return;
    Val v = n->type ? build_typed(&b, n->op, in, n->nin, n->attr, n->nout, n->type, body, n->body.n)
                    : build_op(&b, n->op, in, n->nin, n->attr);
    if (!b.err) finish_node(p, &b, n, v);
    if (b.err == E_NOMEM || !b.err) {
        p->err = b.err;
        return;
    }
    char why[256]; /* the shape rule's */
    strncpy(why, p->cx->err.text, sizeof why - 1);
    why[sizeof why - 1] = '\0';
    parse_fail_at(p, n->at, "expected a node whose types can be found (%s)", why);
}

static void build_regions(Parse *p, Graph *g) {
    for (int32_t r = 0; !p->err && r < p->region.n; r++) {
        const ParseRegion *from = &p->region.at[r];
        Region *to = &g->region.at[r ? from->number : 0];
        bool ok = true;
        for (int i = 0; i < from->param.n; i++)
            ok = ok && VEC_PUSH(&g->arena, &to->param, made(p, from->param.at[i]));
        for (int i = 0; i < from->result.n; i++)
            ok = ok && VEC_PUSH(&g->arena, &to->result, made(p, from->result.at[i]));
        if (!ok) parse_no_memory(p);
    }
}

/* The first node of each region, those of regions inside included; an empty one's is its owner. */
static void find_first_nodes(Graph *g) {
    for (int32_t r = 1; r < g->region.n; r++) g->region.at[r].first = graph_region_end(g, r);
    for (int32_t id = g->node.n - 1; id > 0; id--)
        for (int32_t r = graph_node(g, id)->region; r;) {
            Region *region = &g->region.at[r];
            if (id < region->first) region->first = id;
            r = region->owner ? graph_node(g, region->owner)->region : 0;
        }
}

static bool own_policy(Graph *g, const RematPolicy **policy) {
    if (!*policy) return true;
    RematPolicy *own = arena_copy(&g->arena, *policy, sizeof **policy);
    *policy = own;
    if (!own) return false;
    own->name = arena_copy(&g->arena, own->name, sizeof *own->name * (size_t)own->nname);
    return own->name && own_policy(g, &own->also);
}

static bool own_rule(Graph *g, const CustomVjp **rule) {
    if (!*rule) return true;
    CustomVjp *own = arena_copy(&g->arena, *rule, sizeof **rule);
    *rule = own;
    if (!own) return false;
    size_t nx = sizeof *own->x * (size_t)own->nx, ny = sizeof *own->y * (size_t)own->ny;
    own->x = arena_copy(&g->arena, own->x, nx);
    own->dx = arena_copy(&g->arena, own->dx, nx);
    own->y = arena_copy(&g->arena, own->y, ny);
    own->ct = arena_copy(&g->arena, own->ct, ny);
    bool forward = own->t, ok = own->x && own->dx && own->y && own->ct;
    if (forward) own->t = arena_copy(&g->arena, own->t, nx);
    if (forward) own->dy = arena_copy(&g->arena, own->dy, ny);
    return ok && (!forward || (own->t && own->dy));
}

static void build_rest(Parse *p, Graph *g) {
    for (int32_t i = 0; !p->err && i < p->span.n; i++) {
        Span span = p->span.at[i];
        if (!own_policy(g, &span.policy) || !own_rule(g, &span.rule) || !graph_add_span(g, span))
            parse_no_memory(p);
    }
    if (p->err || p->nsource < 0) return;
    g->nsource = p->nsource;
    g->source = arena_copy(&g->arena, p->source, sizeof *p->source * (size_t)p->nsource + 1);
    if (!g->source) parse_no_memory(p);
}

static void build(Parse *p, Graph *g) {
    const ParseNode **order = ARENA_ARRAY(&p->arena, const ParseNode *, p->node.n + 1);
    number_regions(p);
    Build b = build_in(g, 0);
    g->mesh = p->def.mesh;
    for (int32_t r = 1; !p->err && r < p->region.n; r++)
        if (!build_region(&b)) parse_no_memory(p);
    if (!order) parse_no_memory(p);
    for (int32_t i = 0; order && i < p->node.n; i++) order[i] = &p->node.at[i];
    if (order) qsort(order, (size_t)p->node.n, sizeof *order, by_id);
    for (int32_t i = 0; !p->err && i < p->node.n; i++) build_node(p, g, order[i]);
    build_regions(p, g);
    find_first_nodes(g);
    build_rest(p, g);
}

Err graph_parse(Ctx *cx, const char *text, size_t n, Graph **out) {
    Parse p = {.cx = cx, .nsource = -1};
    Graph *g = graph_new(cx);
    arena_init(&p.arena, &cx->alloc);
    char *copy = arena_alloc(&p.arena, n + 2); /* with a NUL, and one more to look at */
    Err e = E_OK;
    if (copy && g) {
        memcpy(copy, text, n);
        p.text = p.at = copy;
        if (!VEC_PUSH(&p.arena, &p.region, (ParseRegion){0})) parse_no_memory(&p);
        parse_empty_lines(&p);
        parse_header(&p);
        read_region(&p, 0);
        while (!p.err && parse_take(&p, "orphan")) {
            parse_want(&p, "{");
            read_body(&p);
            parse_end_of_line(&p);
        }
        while (!p.err && (parse_source(&p) || parse_span(&p))) parse_end_of_line(&p);
        if (!p.err && *p.at) parse_fail(&p, "expected the end");
        if (!p.err) build(&p, g);
        e = p.err;
    } else {
        e = err_nomem(cx, "a graph");
    }
    arena_free(&p.arena);
    if (e)
        graph_free(g);
    else
        *out = g;
    return e;
}
