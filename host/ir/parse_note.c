#include "ir/parse.h"

#include <ctype.h>
#include <string.h>

static const Loc *interned(Parse *p, const Loc *loc) {
    const Loc *out = p->err ? NULL : intern_loc(p->cx, loc);
    if (!out) parse_no_memory(p);
    return out;
}

/* ---- the full form: '"mlp.lua":12 lib "nn.lua":3 in "h.0" why {...}' ---- */
static const Loc *read_loc(Parse *p) {
    Loc loc = {0};
    if (parse_take(p, "nil")) return NULL;
    if (!parse_take(p, "?")) loc.chunk = parse_string(p);
    if (parse_take(p, ":")) loc.line = (int32_t)parse_int(p, INT32_MIN, INT32_MAX, "a line");
    if (parse_take(p, "lib")) {
        loc.lib_chunk = parse_string(p);
        parse_want(p, ":");
        loc.lib_line = (int32_t)parse_int(p, INT32_MIN, INT32_MAX, "a line");
    }
    if (parse_take(p, "in")) loc.scope = parse_string(p);
    return interned(p, &loc);
}

static Origin read_origin(Parse *p) {
    Origin o = {.kind = (uint8_t)parse_enum(p, full_origin_words, "who gave a layout")};
    parse_blanks(p);
    if (isdigit((unsigned char)*p->at)) {
        o.axis = (uint8_t)parse_int(p, 0, UINT8_MAX, "a mesh axis");
    } else {
        AxisList axis = parse_axes(p, p->def.mesh);
        o.axis = (uint8_t)axis.at[0].axis;
    }
    parse_blanks(p);
    if (isdigit((unsigned char)*p->at))
        o.index = (int32_t)parse_int(p, 0, INT32_MAX, "a parameter's number");
    if (parse_next_is_string(p)) o.name = parse_string(p);
    if (parse_take(p, "at")) o.loc = read_loc(p);
    return o;
}

static const Reason *read_reason(Parse *p) {
    Reason r;
    memset(&r, 0, sizeof r);
    parse_want(p, "{");
    r.text = parse_string(p);
    if (parse_take(p, "of")) r.tensor = parse_string(p);
    if (parse_take(p, "at")) r.loc = read_loc(p);
    for (bool more = parse_take(p, "by"); !p->err && more; more = parse_take(p, ",")) {
        if (r.norigin == MAX_ORIGINS) parse_fail(p, "expected at most %d", MAX_ORIGINS);
        if (!p->err) r.origin[r.norigin++] = read_origin(p);
    }
    parse_want(p, "}");
    const Reason *out = p->err ? NULL : reason_of(p->cx, &r);
    if (!out) parse_no_memory(p);
    return out;
}

static void push_loc(Parse *p, ParseNode *n, const Loc *loc) {
    if (!VEC_PUSH(&p->arena, &n->loc, loc)) parse_no_memory(p);
}

static void push_reason(Parse *p, ParseNode *n, const Reason *why) {
    if (!VEC_PUSH(&p->arena, &n->why, why)) parse_no_memory(p);
}

static void read_full(Parse *p, ParseNode *n) {
    if (strncmp(p->at, "why", 3) != 0) do
            push_loc(p, n, read_loc(p));
        while (!p->err && parse_take(p, ","));
    while (!p->err && parse_take(p, "why")) push_reason(p, n, read_reason(p));
}

/* ---- the short form: 'mlp.lua:12 (h.0), b.lua:3: why'; what is no place is the why ---- */
static const char *name_of(Parse *p, const char *s, size_t n) {
    const char *name = intern_name_n(p->cx, s, n);
    if (!name) parse_no_memory(p);
    return name;
}

/* "(h.0)" */
static void read_short_scope(Parse *p, Loc *loc) {
    size_t n = strcspn(p->at, ")\n");
    if (*p->at != '(' || p->at[n] != ')') return;
    loc->scope = name_of(p, p->at + 1, n - 1);
    if (loc->scope) p->at += n + 1;
}

/* False: the text is no place, and nothing is taken. */
static bool read_short_loc(Parse *p, ParseNode *n) {
    Loc loc = {0};
    size_t name = strcspn(p->at, ": ,()\n");
    const char *digits = p->at + name + 1;
    if (name && p->at[name] == ':' && isdigit((unsigned char)*digits)) {
        loc.chunk = name_of(p, p->at, name);
        if (p->err) return false;
        p->at = digits;
        loc.line = (int32_t)parse_int(p, 0, INT32_MAX, "a line");
        if (*p->at == ' ' && p->at[1] == '(') p->at++;
    } else if (*p->at != '(') {
        return false;
    }
    read_short_scope(p, &loc);
    if (loc.chunk || loc.scope) push_loc(p, n, interned(p, &loc));
    return !p->err && (loc.chunk || loc.scope);
}

static void read_short(Parse *p, ParseNode *n) {
    bool place = read_short_loc(p, n);
    while (place && strncmp(p->at, ", ", 2) == 0) {
        p->at += 2;
        place = read_short_loc(p, n);
    }
    if (place && parse_at_end(p)) return;
    if (place && *p->at == ':') p->at++;
    parse_blanks(p);
    size_t length = strcspn(p->at, "\n");
    while (length && p->at[length - 1] == '\r') length--;
    if (!length || p->err) return;
    Reason r;
    memset(&r, 0, sizeof r);
    r.text = name_of(p, p->at, length);
    if (p->err) return;
    p->at += length;
    const Reason *why = reason_of(p->cx, &r);
    if (why)
        push_reason(p, n, why);
    else
        parse_no_memory(p);
}

void parse_comment(Parse *p, ParseNode *n) {
    if (!parse_take(p, ";")) return;
    parse_blanks(p);
    if (*p->at == '"' || *p->at == '?' || strncmp(p->at, "nil", 3) == 0 ||
        strncmp(p->at, "why {", 5) == 0)
        read_full(p, n);
    else
        read_short(p, n);
}

/* ---- behind the program ---- */
bool parse_source(Parse *p) {
    if (parse_take(p, "sources")) {
        int64_t most = (int64_t)1 << 24;
        p->nsource = (int32_t)parse_int(p, 0, most, "how many values' axes are known");
        p->source = p->err ? NULL : ARENA_ARRAY(&p->arena, AxisSource, p->nsource + 1);
        if (!p->err && !p->source) parse_no_memory(p);
        if (!p->err && !p->def.mesh) parse_fail(p, "expected a mesh before its axes");
        return true;
    }
    if (!parse_take(p, "source")) return false;
    parse_blanks(p);
    const char *at = p->at;
    Val v = parse_value(p);
    AxisList axis = parse_axes(p, p->def.mesh);
    AxisSource from = {.from = parse_value(p)};
    from.node = parse_node_number(p);
    if (p->err) return true;
    int64_t place = (int64_t)v * p->def.mesh->naxes + axis.at[0].axis;
    if (axis.n != 1 || place >= p->nsource || from.node > p->node.n || from.from > p->value.n)
        parse_fail_at(p, at, "expected a value, an axis and a source among %d", (int)p->nsource);
    else
        p->source[place] = from;
    return true;
}

static int32_t *read_values(Parse *p, const char *word, int32_t *n) {
    VEC(int32_t) v = {0};
    parse_want(p, word);
    for (parse_blanks(p); !p->err && *p->at == '%'; parse_blanks(p)) {
        const char *at = p->at;
        Val id = parse_value(p);
        if (id > p->value.n) parse_fail_at(p, at, "expected a value");
        if (!VEC_PUSH(&p->arena, &v, id)) parse_no_memory(p);
    }
    *n = v.n;
    return v.at;
}

static const RematPolicy *read_policy(Parse *p) {
    RematPolicy *policy = ARENA_NEW(&p->arena, RematPolicy);
    VEC(const char *) name = {0};
    if (!policy) {
        parse_no_memory(p);
        return NULL;
    }
    policy->save = (RematSave)parse_enum(p, full_save_words, "what is saved");
    while (!p->err && parse_next_is_string(p))
        if (!VEC_PUSH(&p->arena, &name, parse_string(p))) parse_no_memory(p);
    policy->name = name.at;
    policy->nname = name.n;
    return policy;
}

static const CustomVjp *read_rule(Parse *p) {
    CustomVjp *r = ARENA_NEW(&p->arena, CustomVjp);
    int32_t ndx = 0, nct = 0, nt = 0, ndy = 0;
    if (!r) {
        parse_no_memory(p);
        return NULL;
    }
    r->bwd = parse_node_number(p);
    r->bwd_end = parse_node_number(p);
    r->x = read_values(p, "x", &r->nx);
    r->dx = read_values(p, "dx", &ndx);
    r->y = read_values(p, "y", &r->ny);
    r->ct = read_values(p, "ct", &nct);
    if (parse_take(p, "forward")) {
        r->t = read_values(p, "t", &nt);
        r->dy = read_values(p, "dy", &ndy);
        if (nt != r->nx || ndy != r->ny) parse_fail(p, "expected as many t as x, dy as y");
    }
    if (ndx != r->nx || nct != r->ny)
        parse_fail(p, "expected as many dx as x and as many ct as y before this");
    if (r->bwd > r->bwd_end || r->bwd_end > p->node.n + 1)
        parse_fail(p, "expected nodes before this");
    return r;
}

bool parse_span(Parse *p) {
    Span span = {0};
    const RematPolicy **next = &span.policy;
    if (!parse_take(p, "span")) return false;
    span.first = parse_node_number(p);
    span.end = parse_node_number(p);
    if (span.first > span.end || span.end > p->node.n + 1)
        parse_fail(p, "expected nodes before this");
    for (int n = 0; !p->err && parse_take(p, "save"); n++) {
        RematPolicy *policy = (RematPolicy *)(uintptr_t)read_policy(p);
        *next = policy;
        if (policy) next = &policy->also;
    }
    if (parse_take(p, "rule")) span.rule = read_rule(p);
    if (!VEC_PUSH(&p->arena, &p->span, span)) parse_no_memory(p);
    return true;
}
