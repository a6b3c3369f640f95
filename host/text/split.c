#include "text/split.h"

#include "base/str.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

enum {
    MATCH_LIMIT = 10000000, /* steps of one match */
    STACK = 32 << 10,
    STACK_MOST = 8 << 20, /* of compiled patterns */
    WHY = 200
};

typedef struct SplitStep {
    SplitRule rule;
    SplitScan scan;
    pcre2_code *code;
    char *pattern; /* a copy */
} SplitStep;

struct Splitter {
    const Unicode *unicode;
    int n;
    SplitStep step[SPLIT_RULES];
};

struct SplitMatch {
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
    pcre2_match_data *data[SPLIT_RULES];
};

/* ---- patterns for PCRE2: classes as our tables have them ---- */

typedef struct SplitClass {
    const char *name;
    uint32_t mask;
} SplitClass;

static const SplitClass classes[] = {{"L", UNICODE_LETTERS},          {"N", UNICODE_BIT(NUMBER)},
                                     {"Lu", UNICODE_BIT(UPPER)},      {"Ll", UNICODE_BIT(LOWER)},
                                     {"Lt", UNICODE_BIT(TITLE)},      {"Lm", UNICODE_BIT(MODIFIER)},
                                     {"Lo", UNICODE_BIT(LETTER)},     {"M", UNICODE_BIT(MARK)},
                                     {"P", UNICODE_BIT(PUNCTUATION)}, {"S", UNICODE_BIT(SYMBOL)}};

#define SPACES                                                                                     \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"    \
    "\\x{205f}\\x{3000}"
#define NO_SPACES                                                                                  \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{"     \
    "1fff}"                                                                                        \
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{"   \
    "10ffff}"

/* Appends the ranges of code points of the classes in the mask; `newer`: than Unicode 14. */
static void put_ranges(Str *out, const Unicode *u, uint32_t mask, bool newer) {
    for (uint32_t c = 0, end; c < UNICODE_POINTS; c = end + 1) {
        for (end = c; end < UNICODE_POINTS && unicode_is(u, end, mask); end++)
            if (newer && !(u->of[end] & UNICODE_NEW)) break;
        if (end > c) str_fmt(out, "\\x{%x}-\\x{%x}", c, end - 1);
    }
}

/* \p{X} or \P{X} at p, of `n` bytes: appends what it is here. How many bytes it took; 0: it is
 * another. */
static size_t put_property(Str *out, const Unicode *u, const char *p, size_t n, bool in_class) {
    size_t name = 2, length, i;
    bool braced = n > 3 && p[2] == '{', negated = p[1] == 'P';
    if (n < 3) return 0;
    if (braced) {
        const char *close = memchr(p, '}', n);
        if (!close) return 0;
        name = 3;
        if (p[name] == '^') negated = !negated, name++;
        length = (size_t)(close - p) - name;
    } else {
        length = 1;
    }
    for (i = 0; i < sizeof classes / sizeof *classes; i++)
        if (strlen(classes[i].name) == length && memcmp(classes[i].name, p + name, length) == 0)
            break;
    if (i == sizeof classes / sizeof *classes) return 0;
    if (negated && in_class) {
        put_ranges(out, u, ~classes[i].mask, false);
    } else {
        if (!in_class) str_put(out, negated ? "[^" : "[");
        str_fmt(out, "\\p{%s}", classes[i].name);
        put_ranges(out, u, classes[i].mask, true);
        if (!in_class) str_put(out, "]");
    }
    return name + length + (braced ? 1 : 0);
}

/* An escape at p: appends what it is here, and gives its bytes. */
static size_t put_escape(Str *out, const Unicode *u, const char *p, size_t n, bool in_class) {
    size_t took = 0;
    if (n < 2) return str_put_n(out, p, n), n;
    if (p[1] == 's' || p[1] == 'S') {
        if (in_class)
            str_put(out, p[1] == 's' ? SPACES : NO_SPACES);
        else
            str_put(out, p[1] == 's' ? "[" SPACES "]" : "[" NO_SPACES "]");
        return 2;
    }
    if (p[1] == 'p' || p[1] == 'P') took = put_property(out, u, p, n, in_class);
    if (took) return took;
    str_put_n(out, p, 2);
    return 2;
}

static void put_pattern(Str *out, const Unicode *u, const char *p, size_t n) {
    bool in_class = false;
    for (size_t i = 0; i < n;) {
        if (p[i] == '\\') {
            i += put_escape(out, u, p + i, n - i, in_class);
            continue;
        }
        str_put_n(out, p + i, 1);
        if (p[i] == '[' && !in_class) {
            in_class = true;
            if (i + 1 < n && p[i + 1] == '^') str_put_n(out, p + ++i, 1);
            if (i + 1 < n && p[i + 1] == ']') str_put_n(out, p + ++i, 1);
        } else if (p[i] == ']') {
            in_class = false;
        }
        i++;
    }
}

static Err compile(Ctx *cx, const Unicode *u, SplitStep *step) {
    int code;
    PCRE2_SIZE at;
    Str text;
    const SplitRule *r = &step->rule;
    str_init(&text, &cx->alloc);
    if (r->literal)
        str_put_n(&text, r->pattern, r->n);
    else
        put_pattern(&text, u, r->pattern, r->n);
    if (text.failed) return str_free(&text), err_nomem(cx, "a pattern");
    uint32_t how = PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY | PCRE2_NEVER_BACKSLASH_C;
    step->code = pcre2_compile((PCRE2_SPTR)str_of(&text), text.n,
                               r->literal ? PCRE2_UTF | PCRE2_LITERAL : how, &code, &at, NULL);
    str_free(&text);
    if (!step->code) {
        PCRE2_UCHAR why[WHY];
        pcre2_get_error_message(code, why, sizeof why);
        return err_set(cx, E_VALUE, "the pattern %.200s does not compile: %s", step->pattern,
                       (const char *)why);
    }
    (void)pcre2_jit_compile(step->code, PCRE2_JIT_COMPLETE); /* without it matching is slower */
    return E_OK;
}

Err split_new(Ctx *cx, const Unicode *u, const SplitRule *rule, int n, Splitter **out) {
    Err e = E_OK;
    *out = NULL;
    if (n > SPLIT_RULES)
        return err_set(cx, E_VALUE, "%d rules of splitting; %d can be", n, SPLIT_RULES);
    Splitter *s = alloc_new(&cx->alloc, sizeof *s);
    if (!s) return err_nomem(cx, "a splitter");
    s->unicode = u;
    for (; s->n < n && !e; s->n++) {
        SplitStep *step = &s->step[s->n];
        step->rule = rule[s->n];
        if (step->rule.kind != SPLIT_REGEX) continue;
        step->pattern = alloc_new(&cx->alloc, step->rule.n + 1);
        if (!step->pattern) {
            e = err_nomem(cx, "a pattern");
            continue;
        }
        memcpy(step->pattern, step->rule.pattern, step->rule.n);
        step->rule.pattern = step->pattern;
        bool plain = !step->rule.literal && !step->rule.regex && !step->rule.invert &&
                     step->rule.behavior == SPLIT_ISOLATED;
        if (plain && split_scan_find(step->pattern, step->rule.n, &step->scan))
            step->rule.kind = step->scan.kind;
        else
            e = compile(cx, u, step);
    }
    if (e) return split_free(cx, s), e;
    *out = s;
    return E_OK;
}

void split_free(Ctx *cx, Splitter *s) {
    if (!s) return;
    for (int i = 0; i < s->n; i++) {
        if (s->step[i].code) pcre2_code_free(s->step[i].code);
        if (s->step[i].pattern) alloc_free(&cx->alloc, s->step[i].pattern, s->step[i].rule.n + 1);
    }
    alloc_free(&cx->alloc, s, sizeof *s);
}

bool split_is_local(const Splitter *s) {
    bool any = false;
    for (int i = 0; i < s->n; i++) {
        if (s->step[i].rule.kind == SPLIT_REGEX) return false;
        any = any || s->step[i].rule.kind != SPLIT_DIGITS;
    }
    return any;
}

struct SplitMatch *split_match_new(Ctx *cx, const Splitter *s) {
    struct SplitMatch *m = alloc_new(&cx->alloc, sizeof *m);
    if (!m) return NULL;
    m->context = pcre2_match_context_create(NULL);
    m->stack = pcre2_jit_stack_create(STACK, STACK_MOST, NULL);
    bool ok = m->context && m->stack;
    for (int i = 0; ok && i < s->n; i++)
        if (s->step[i].code)
            ok = (m->data[i] = pcre2_match_data_create_from_pattern(s->step[i].code, NULL));
    if (!ok) return split_match_free(cx, m), NULL;
    pcre2_set_match_limit(m->context, MATCH_LIMIT);
    pcre2_jit_stack_assign(m->context, NULL, m->stack);
    return m;
}

void split_match_free(Ctx *cx, struct SplitMatch *m) {
    if (!m) return;
    for (int i = 0; i < SPLIT_RULES; i++)
        if (m->data[i]) pcre2_match_data_free(m->data[i]);
    if (m->stack) pcre2_jit_stack_free(m->stack);
    if (m->context) pcre2_match_context_free(m->context);
    alloc_free(&cx->alloc, m, sizeof *m);
}

/* ---- running ---- */
static bool run_rule(SplitRun *r, int rule, size_t begin, size_t end);

/* A piece of rule `rule` goes to the next one. */
static bool give(SplitRun *r, int rule, size_t begin, size_t end) {
    if (begin == end) return true;
    if (rule + 1 == r->split->n) return r->fn(r->ud, r->text, begin, end);
    return run_rule(r, rule + 1, begin, end);
}

static bool run_scan(SplitRun *r, int rule, size_t begin, size_t end) {
    const SplitScan *scan = &r->split->step[rule].scan;
    while (begin < end) {
        size_t to = split_scan_next(scan, r->split->unicode, r->text, begin, end);
        if (!give(r, rule, begin, to)) return false;
        begin = to;
    }
    return true;
}

/* The next match at `at` or behind it: from *from to *to; *from is `end` where there is none. */
static bool next_match(SplitRun *r, int rule, size_t begin, size_t at, size_t end, size_t *from,
                       size_t *to) {
    const SplitStep *s = &r->split->step[rule];
    *from = *to = end;
    while (at < end) {
        int n = pcre2_match(s->code, r->text + begin, end - begin, at - begin, PCRE2_NO_UTF_CHECK,
                            r->match->data[rule], r->match->context);
        if (n == PCRE2_ERROR_NOMATCH) return true;
        if (n < 0) {
            r->rule = rule, r->failed = n, r->at = at;
            return false;
        }
        const PCRE2_SIZE *place = pcre2_get_ovector_pointer(r->match->data[rule]);
        if (place[1] > place[0]) {
            *from = begin + place[0], *to = begin + place[1];
            return true;
        }
        at = begin + place[0]; /* nothing was matched there */
        if (at < end) at += unicode_width(r->text[at]);
    }
    return true;
}

static bool next_number(SplitRun *r, size_t at, size_t end, size_t *from, size_t *to) {
    const Unicode *u = r->split->unicode;
    while (at < end && !unicode_is(u, unicode_at(r->text + at), UNICODE_BIT(NUMBER)))
        at += unicode_width(r->text[at]);
    *from = at;
    *to = at < end ? at + unicode_width(r->text[at]) : end;
    return true;
}

static bool next_space(SplitRun *r, bool runs, size_t at, size_t end, size_t *from, size_t *to) {
    const uint8_t *p = memchr(r->text + at, ' ', end - at);
    *from = *to = p ? (size_t)(p - r->text) : end;
    while (*to < end && r->text[*to] == ' ' && (*to == *from || runs)) ++*to;
    return true;
}

static bool next_span(SplitRun *r, int rule, size_t begin, size_t at, size_t end, size_t *from,
                      size_t *to) {
    const SplitRule *s = &r->split->step[rule].rule;
    if (s->kind == SPLIT_DIGITS) return next_number(r, at, end, from, to);
    if (s->kind == SPLIT_SPACES)
        return next_space(r, s->behavior == SPLIT_CONTIGUOUS, at, end, from, to);
    return next_match(r, rule, begin, at, end, from, to);
}

/* What is matched and what is between, one after the other: pieces by the rule's behavior. */
typedef struct SplitJoin {
    size_t begin, end; /* what is still to be given */
    bool matched, any;
} SplitJoin;

static bool flush(SplitRun *r, int rule, SplitJoin *j) {
    bool had = j->any;
    j->any = false;
    return !had || give(r, rule, j->begin, j->end);
}

static bool span(SplitRun *r, int rule, SplitJoin *j, size_t begin, size_t end, bool matched) {
    const SplitRule *s = &r->split->step[rule].rule;
    SplitBehavior how = s->kind == SPLIT_SPACES ? SPLIT_NEXT : s->behavior;
    if (begin == end) return true;
    matched = matched != s->invert;
    if (how == SPLIT_REMOVED && matched) return true;
    bool joins = j->any && ((how == SPLIT_PREVIOUS && matched && !j->matched) ||
                            (how == SPLIT_NEXT && !matched && j->matched) ||
                            (how == SPLIT_CONTIGUOUS && matched == j->matched));
    if (!joins && !flush(r, rule, j)) return false;
    if (!joins) j->begin = begin;
    j->end = end, j->matched = matched, j->any = true;
    return true;
}

static bool run_rule(SplitRun *r, int rule, size_t begin, size_t end) {
    SplitJoin j = {0};
    size_t at = begin, from, to;
    SplitKind kind = r->split->step[rule].rule.kind;
    if (kind >= SPLIT_GPT2) return run_scan(r, rule, begin, end);
    while (at < end) {
        if (!next_span(r, rule, begin, at, end, &from, &to)) return false;
        if (!span(r, rule, &j, at, from, false) || !span(r, rule, &j, from, to, true)) return false;
        at = to;
    }
    return flush(r, rule, &j);
}

bool split_run(SplitRun *r, const uint8_t *text, size_t begin, size_t end) {
    r->text = text;
    r->failed = 0;
    return r->split->n ? run_rule(r, 0, begin, end) : give(r, -1, begin, end);
}

Err split_failed(Ctx *cx, const SplitRun *r) {
    PCRE2_UCHAR why[WHY];
    const char *pattern = r->split->step[r->rule].pattern;
    if (r->failed == PCRE2_ERROR_MATCHLIMIT || r->failed == PCRE2_ERROR_JIT_STACKLIMIT)
        return err_set(
            cx, E_VALUE,
            "the pattern %.200s tries more than %d ways of matching the text at byte %zu", pattern,
            MATCH_LIMIT, r->at);
    pcre2_get_error_message(r->failed, why, sizeof why);
    return err_set(cx, E_VALUE, "the pattern %.200s fails at byte %zu of the text: %s", pattern,
                   r->at, (const char *)why);
}
