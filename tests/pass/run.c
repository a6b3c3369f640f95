/* run.c - each pass alone, on graphs given as text: run.c [--bless] FOLDER..., where a folder has
 * the name of a pass and holds files of cases.
 *
 *   === title: the rule or guard that the case holds
 *   target: h200
 *   off: reuse fuse
 *   Mesh(x=2) laid
 *   %1 = param : float32[4@x]
 *   ...
 *   return %2
 *   ----
 *   the full text of the graph that the pass makes; `error: ...`; or of a plan its text
 *
 * Keys before the graph, all optional: target (a row of target.c; cpu), on, off (switches), donated
 * (plan: no, sole or asked for each parameter), wrt (grad: values), examples (batch: %2=%1 where %2
 * stands for one of those along dim 1 of %1), axes (batch: for what vmap puts the examples on).
 * Lines that begin with # are remarks. --bless writes what comes out into the files: read it.
 * Each case is run again for every allocation of the pass, which fails: that is E_NOMEM, and
 * nothing is left. */
#include "cases.h"
#include "pass/comm/comm.h"
#include "pass/pass.h"
#include "plan_text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 16, MOST_KEY = 8 };

typedef struct Case {
    char key[MOST_KEY][16], value[MOST_KEY][256];
    int nkey;
    Ctx *cx;
    PassOptions options;
    int64_t fail_in; /* the allocation of the pass that fails; -1: none */
    bool starved;    /* it was made */
} Case;

typedef struct PassRow {
    const char *name;
    Err (*run)(const Graph *g, const PassOptions *o, Graph **out); /* NULL: see run_case */
} PassRow;

static Err run_bucket(const Graph *g, const PassOptions *o, Graph **out) {
    return comm_bucket(g, o->target->bucket_bytes, out);
}

static Err run_define(const Graph *g, const PassOptions *o, Graph **out) {
    Graph *laid = NULL;
    TRY(pass_propagate(g, o, &laid));
    Err e = pass_define(g, laid, o, out);
    graph_free(laid);
    return e;
}

static const PassRow passes[] = {
    {"expand", pass_expand},
    {"simplify", pass_simplify},
    {"propagate", pass_propagate},
    {"define", run_define},
    {"partition", pass_partition},
    {"hoist", pass_hoist},
    {"comm", pass_comm},
    {"bucket", run_bucket},
    {"overlap", pass_overlap},
    {"branches", pass_branches},
    {"sum_products", pass_sum_products},
    {"split", pass_split},
    {"fuse", pass_fuse},
    {"grad", NULL},
    {"batch", NULL},
    {"plan", NULL},
};

/* ---- the keys of a case ---- */
static const char *value_of(const Case *c, const char *key) {
    for (int i = 0; i < c->nkey; i++)
        if (strcmp(c->key[i], key) == 0) return c->value[i];
    return "";
}

static Err bad_key(const Case *c, const char *key, const char *word) {
    return err_set(c->cx, E_KEY, "%s: '%s'", key, word);
}

static Err read_switches(Case *c, const char *key, uint32_t *mask) {
    char text[256], *save = NULL;
    snprintf(text, sizeof text, "%s", value_of(c, key));
    for (char *w = strtok_r(text, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        int i = 0;
        while (i < SWITCH_COUNT && strcmp(pipeline_switch_names[i], w) != 0) i++;
        if (i == SWITCH_COUNT) return bad_key(c, key, w);
        *mask |= 1u << i;
    }
    return E_OK;
}

/* The numbers in a value's text, whatever stands between them. */
static int read_numbers(const char *text, int32_t *out) {
    int n = 0;
    while (*text && n < MOST) {
        char *end;
        long x = strtol(text, &end, 10);
        if (end == text)
            text++;
        else
            out[n++] = (int32_t)x, text = end;
    }
    return n;
}

static Err read_options(Case *c) {
    static const char *const known = " target on off donated wrt examples axes ";
    for (int i = 0; i < c->nkey; i++) {
        char word[20];
        snprintf(word, sizeof word, " %s ", c->key[i]);
        if (!strstr(known, word)) return bad_key(c, "a key", c->key[i]);
    }
    const char *target = value_of(c, "target");
    c->options.target = target_of(target[0] ? target : "cpu");
    if (!c->options.target) return bad_key(c, "target", target);
    TRY(read_switches(c, "on", &c->options.on));
    return read_switches(c, "off", &c->options.off);
}

/* While the pass runs, and not before or after it, memory may run out. */
static void begin_pass(Case *c) {
    c->cx->alloc.fail_in = c->fail_in;
}
static Err end_pass(Case *c, Err e) {
    c->starved = c->fail_in >= 0 && c->cx->alloc.fail_in < 0;
    c->cx->alloc.fail_in = -1;
    return e;
}

/* ---- the passes that are no Graph -> Graph ---- */
static Err check_values(const Case *c, const Graph *g, const Val *v, int n) {
    for (int i = 0; i < n; i++)
        if (v[i] <= 0 || v[i] >= g->value.n) return bad_key(c, "a value", "that is not there");
    return E_OK;
}

static void set_results(Build *b, const Val *v, int n) {
    if (b->err) return;
    b->g->region.at[b->region].result.n = 0;
    for (int i = 0; i < n; i++) build_result(b, v[i]);
}

/* The graph with its gradient behind it: cotangents of one in, those of `wrt` out. */
static Err run_grad(Case *c, Graph *g) {
    Build b = build_in(g, 0);
    Val y[MOST], ct[MOST], wrt[MOST], grad[MOST];
    int ny = g->region.at[0].result.n, nwrt = read_numbers(value_of(c, "wrt"), wrt);
    if (ny > MOST) return bad_key(c, "results", "too many");
    TRY(check_values(c, g, wrt, nwrt));
    for (int i = 0; i < ny; i++) {
        y[i] = g->region.at[0].result.at[i];
        ct[i] = op_const_like(&b, y[i], 1);
    }
    begin_pass(c);
    pass_grad(&b, y, ct, ny, wrt, nwrt, grad);
    end_pass(c, b.err);
    set_results(&b, grad, nwrt);
    return b.err;
}

static Err run_batch(Case *c, Graph *g) {
    Build b = build_in(g, 0);
    Val pair[MOST], example[MOST], all[MOST], out[MOST];
    bool mapped[MOST];
    char text[256], *save = NULL;
    const char *axis[MAX_AXES];
    snprintf(text, sizeof text, "%s", value_of(c, "axes"));
    int n = read_numbers(value_of(c, "examples"), pair) / 2;
    BatchCall call = {.example = example,
                      .all = all,
                      .nexample = n,
                      .axis = axis,
                      .out = out,
                      .is_mapped = mapped,
                      .nout = g->region.at[0].result.n,
                      .first = g->node.n};
    TRY(check_values(c, g, pair, 2 * n));
    if (call.nout > MOST || n == 0) return bad_key(c, "examples", "none, or too many results");
    for (char *w = strtok_r(text, " ", &save); w; w = strtok_r(NULL, " ", &save))
        axis[call.naxis++] = intern_name(c->cx, w);
    for (int i = 0; i < n; i++) {
        example[i] = pair[2 * i];
        all[i] = pair[2 * i + 1];
        int32_t node = g->value.at[example[i]].node;
        if (node < call.first) call.first = node;
        call.size = graph_type(g, all[i])->dims.at[0];
    }
    for (int i = 0; i < call.nout; i++) out[i] = g->region.at[0].result.at[i];
    begin_pass(c);
    pass_batch(&b, &call);
    end_pass(c, b.err);
    set_results(&b, out, call.nout);
    return b.err;
}

static Err run_plan(Case *c, const Graph *g, Str *s) {
    uint8_t donated[MOST] = {0};
    char text[256], *save = NULL;
    int n = 0;
    Plan *plan = NULL;
    snprintf(text, sizeof text, "%s", value_of(c, "donated"));
    for (char *w = strtok_r(text, " ", &save); w && n < MOST; w = strtok_r(NULL, " ", &save))
        donated[n++] = strcmp(w, "asked") == 0  ? DONATE_ASKED
                       : strcmp(w, "sole") == 0 ? DONATE_IF_SOLE
                                                : DONATE_NO;
    begin_pass(c);
    TRY(end_pass(c, pass_plan(g, &c->options, donated, &plan)));
    plan_text(plan, g->mesh, s);
    plan_free(c->cx, plan);
    return E_OK;
}

/* ---- one case ---- */
/* A new graph by the pass, which must leave the one that it is given as it was. */
static Err run_new(const PassRow *pass, Case *c, const Graph *g, Graph **out) {
    Graph *before = NULL;
    Str s, what;
    str_init(&s, &c->cx->alloc);
    str_init(&what, &c->cx->alloc);
    graph_print_full(g, &s);
    Err e = graph_parse(c->cx, str_of(&s), s.n, &before);
    begin_pass(c);
    if (!e) e = pass->run(g, &c->options, out);
    end_pass(c, e);
    if (!e && !graph_equal(before, g, &what))
        e = err_set(c->cx, E_PARSE, "the pass changed the graph that it was given: %s",
                    str_of(&what));
    graph_free(before);
    str_free(&s);
    str_free(&what);
    return e;
}

static Err run_graph(const PassRow *pass, Case *c, Graph *g, Str *s) {
    Graph *out = NULL;
    Err e = E_OK;
    if (pass->run)
        e = run_new(pass, c, g, &out);
    else
        e = strcmp(pass->name, "grad") == 0 ? run_grad(c, g) : run_batch(c, g);
    const Graph *made = pass->run ? out : g;
    if (!e && !made) str_put(s, "nothing\n");
    if (!e && made) e = graph_verify(made);
    if (!e && made) e = graph_check_text(made);
    if (!e && made) graph_print_full(made, s);
    graph_free(out);
    return e;
}

/* What the pass makes of the text, or what it says against it. */
static void run_case(const PassRow *pass, Case *c, const char *text, size_t n, Str *s) {
    Graph *g = NULL;
    Err e = read_options(c);
    if (!e) e = graph_parse(c->cx, text, n, &g);
    if (!e) e = graph_verify(g);
    if (e) {
        str_fmt(s, "bad case: [%s] %s\n", err_name(e), c->cx->err.text);
    } else {
        e = strcmp(pass->name, "plan") == 0 ? run_plan(c, g, s) : run_graph(pass, c, g, s);
        if (e) str_fmt(s, "error: [%s] %s\n", err_name(e), c->cx->err.text);
    }
    graph_free(g);
}

/* ---- files ---- */
static int places; /* at which memory ran out */

/* Is the line a key with its value? */
static bool read_key(Case *c, const char *at) {
    size_t n = strspn(at, "abcdefghijklmnopqrstuvwxyz");
    if (n == 0 || n > 15 || at[n] != ':' || c->nkey == MOST_KEY) return false;
    const char *value = at + n + 1 + strspn(at + n + 1, " ");
    snprintf(c->key[c->nkey], sizeof c->key[0], "%.*s", (int)n, at);
    snprintf(c->value[c->nkey++], sizeof c->value[0], "%.*s", (int)strcspn(value, "\n"), value);
    return true;
}

/* The case from its title to `end`. */
static void do_case(Cases *r, const char *file, const char *title, const char *end) {
    Ctx cx;
    Case c = {.cx = &cx, .options = {.verify = true}, .fail_in = -1};
    const char *at = cases_next_line(title), *split = title;
    while (split < end && strncmp(split, "----\n", 5) != 0) split = cases_next_line(split);
    while (at < split && (*at == '#' || *at == '\n' || read_key(&c, at))) at = cases_next_line(at);
    Str s;
    bool ready = cases_start(&cx) == E_OK;
    str_init(&s, &cx.alloc);
    if (ready) run_case(r->ud, &c, at, (size_t)(split - at), &s);
    const char *want = split < end ? cases_next_line(split) : end;
    size_t n = (size_t)(end - want);
    bool bad = strncmp(str_of(&s), "bad case", 8) == 0;
    str_put_n(&r->out, title, (size_t)(split - title));
    str_put(&r->out, "----\n");
    if (cases_compare(r, file, title, split, want, n, &s, bad))
        str_fmt(&r->out, "%s%s", str_of(&s), *end ? "\n\n" : "\n");
    else
        str_put_n(&r->out, want, n);
    str_free(&s);
    cases_end(r, file, &cx);
}

/* The case once more for every allocation of the pass, each of which fails in turn: E_NOMEM, or the
 * error that the case is about. */
static void starve_case(Cases *r, const char *file, const char *title, const char *end) {
    bool starved = true;
    for (int64_t n = 0; starved; n++) {
        Ctx cx;
        Case c = {.cx = &cx, .fail_in = n};
        const char *at = cases_next_line(title), *split = title;
        while (split < end && strncmp(split, "----\n", 5) != 0) split = cases_next_line(split);
        while (at < split && (*at == '#' || *at == '\n' || read_key(&c, at)))
            at = cases_next_line(at);
        Str s;
        bool ready = cases_start(&cx) == E_OK;
        str_init(&s, &cx.alloc);
        if (ready) run_case(r->ud, &c, at, (size_t)(split - at), &s);
        starved = ready && c.starved;
        places += starved;
        bool same = strncmp(cases_next_line(split), "error: ", 7) == 0 &&
                    strncmp(str_of(&s), "error: ", 7) == 0;
        bool said = strncmp(str_of(&s), "error: [E_NOMEM]", 16) == 0;
        str_free(&s);
        intern_free(&cx);
        if ((starved == said || same) && !cx.alloc.live) continue;
        r->failed++;
        fprintf(stderr, "%s: %.*s: without allocation %d: E_NOMEM is%s said, %zu bytes are left\n",
                file, (int)strcspn(title, "\n"), title, (int)n, said ? "" : " not", cx.alloc.live);
    }
}

static void do_text(Cases *r, const char *file, const char *text) {
    const char *at = text;
    while (*at && strncmp(at, "=== ", 4) != 0) at = cases_next_line(at);
    str_put_n(&r->out, text, (size_t)(at - text));
    while (*at) {
        const char *end = cases_next_line(at);
        while (*end && strncmp(end, "=== ", 4) != 0) end = cases_next_line(end);
        do_case(r, file, at, end);
        if (!r->bless) starve_case(r, file, at, end);
        at = end;
    }
}

static void do_folder(Cases *r, const char *folder) {
    const char *name = strrchr(folder, '/');
    name = name ? name + 1 : folder;
    r->ud = NULL;
    for (size_t i = 0; i < sizeof passes / sizeof passes[0]; i++)
        if (strcmp(passes[i].name, name) == 0) r->ud = &passes[i];
    if (r->ud) {
        cases_folder(r, folder);
        return;
    }
    fprintf(stderr, "%s: no pass\n", folder);
    r->failed++;
}

int main(int argc, char **argv) {
    Cases r = {.bless = argc > 1 && strcmp(argv[1], "--bless") == 0, .text = do_text};
    for (int i = 1 + r.bless; i < argc; i++) do_folder(&r, argv[i]);
    printf("%d cases, %d failed; memory ran out at %d places\n", r.cases, r.failed, places);
    return r.failed || !r.cases;
}
