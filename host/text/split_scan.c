/* split_scan.c - the patterns of GPT-2 and of cl100k (and LLaMA-3, Qwen) as loops. A pattern is
 * taken for one of them only where its text is known; tests hold each against PCRE2. */
#include "text/split.h"

#include <string.h>

/* A known pattern is head, numbers, tail. */
typedef struct ScanText {
    const char *head, *tail;
    SplitScan scan;
} ScanText;

#define GPT2_OLD   "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+"
#define GPT2_SHORT "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+"
#define GPT2_NEW   "'(?:[sdmt]|ll|ve|re)| ?\\p{L}++| ?\\p{N}++"
#define CASES_OLD  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
#define CASES_NEW  "'(?i:[sdmt]|ll|ve|re)|"
#define WORD_OLD   "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|"
#define WORD_NEW   "[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|"
#define WORD_FAST  "[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|"
#define REST_OLD   "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define REST_NEW   "| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
#define REST_FAST  "| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*+|\\s++$|\\s*[\\r\\n]|\\s+(?!\\S)|\\s"

static const SplitScan gpt2 = {SPLIT_GPT2, 0, false, false};
static const ScanText wholes[] = {
    {GPT2_OLD, "| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", {SPLIT_GPT2, 0, false, false}},
    {GPT2_SHORT, "| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", {SPLIT_GPT2, 0, false, false}},
    {GPT2_NEW, "| ?[^\\s\\p{L}\\p{N}]++|\\s++$|\\s+(?!\\S)|\\s", {SPLIT_GPT2, 0, false, false}}};
static const ScanText with_digits[] = {
    {CASES_OLD WORD_OLD, REST_OLD, {SPLIT_CL100K, 0, true, false}},
    {CASES_NEW WORD_NEW, REST_NEW, {SPLIT_CL100K, 0, true, false}},
    {CASES_NEW WORD_FAST, REST_FAST, {SPLIT_CL100K, 0, true, true}}};
/* How many numbers a piece has at most. */
static const struct {
    const char *text;
    int digits;
} numbers[] = {{"\\p{N}{1,3}", 3}, {"\\p{N}{1,3}+", 3}, {"\\p{N}{1,2}", 2}, {"\\p{N}{1,2}+", 2},
               {"\\p{N}", 1},      {"\\p{N}+", 0},      {"\\p{N}++", 0}};

static bool joined(const char *text, size_t n, const char *a, const char *b, const char *c) {
    size_t na = strlen(a), nb = strlen(b), nc = strlen(c);
    return n == na + nb + nc && memcmp(text, a, na) == 0 && memcmp(text + na, b, nb) == 0 &&
           memcmp(text + na + nb, c, nc) == 0;
}

bool split_scan_find(const char *pattern, size_t n, SplitScan *out) {
    *out = gpt2;
    for (size_t i = 0; i < sizeof wholes / sizeof *wholes; i++)
        if (joined(pattern, n, wholes[i].head, "", wholes[i].tail)) return true;
    for (size_t i = 0; i < sizeof with_digits / sizeof *with_digits; i++)
        for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
            const ScanText *t = &with_digits[i];
            if (!joined(pattern, n, t->head, numbers[k].text, t->tail)) continue;
            *out = t->scan;
            out->digits = numbers[k].digits;
            return true;
        }
    return false;
}

static bool is_at(const Unicode *u, const uint8_t *p, uint32_t mask) {
    return unicode_is(u, unicode_at(p), mask);
}

/* Behind all characters of the classes from `at` on, `most` of them at most. */
static size_t run_of(const Unicode *u, const uint8_t *text, size_t at, size_t end, uint32_t mask,
                     int most) {
    while (at < end && most-- != 0 && is_at(u, text + at, mask)) at += unicode_width(text[at]);
    return at;
}

/* The bytes of 's, 't, 're, 've, 'm, 'll, 'd at `at`, where there is a '. */
static size_t contraction(const uint8_t *text, size_t at, size_t end, bool any_case) {
    size_t n = end - at;
    if (n < 2) return 0;
    uint8_t fold = any_case ? 0x20 : 0;
    uint8_t a = text[at + 1], b = n > 2 ? text[at + 2] : 0;
    if (any_case && a == 0xc5 && b == 0xbf) return 3; /* the long s is an s in any case */
    if (a < 'A' || a > 'z') return 0;
    a |= fold;
    if (b >= 'A' && b <= 'z') b |= fold;
    if (a == 's' || a == 't' || a == 'm' || a == 'd') return 2;
    if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return 3;
    return 0;
}

/* Of a run of spaces before something else the last one goes with that. */
static size_t all_but_last(const uint8_t *text, size_t at, size_t to, size_t end) {
    size_t last = to - 1;
    if (to == end) return to;
    while ((text[last] & 0xc0) == 0x80) last--;
    return last > at ? last : to;
}

enum { OTHERS = ~(UNICODE_LETTERS | UNICODE_BIT(NUMBER) | UNICODE_BIT(SPACE)) };

static size_t next_gpt2(const Unicode *u, const uint8_t *text, size_t at, size_t end) {
    size_t from = at + (text[at] == ' '), to;
    if (text[at] == '\'' && (to = contraction(text, at, end, false))) return at + to;
    if (from < end) {
        if ((to = run_of(u, text, from, end, UNICODE_LETTERS, -1)) > from) return to;
        if ((to = run_of(u, text, from, end, UNICODE_BIT(NUMBER), -1)) > from) return to;
        if ((to = run_of(u, text, from, end, (uint32_t)OTHERS, -1)) > from) return to;
    }
    to = run_of(u, text, at, end, UNICODE_BIT(SPACE), -1);
    return all_but_last(text, at, to, end);
}

static size_t spaces_cl100k(const SplitScan *s, const Unicode *u, const uint8_t *text, size_t at,
                            size_t end) {
    size_t to = run_of(u, text, at, end, UNICODE_BIT(SPACE), -1);
    if (s->end && to == end) return to;
    for (size_t i = to; i > at; i--)
        if (text[i - 1] == '\r' || text[i - 1] == '\n') return i;
    return all_but_last(text, at, to, end);
}

static size_t next_cl100k(const SplitScan *s, const Unicode *u, const uint8_t *text, size_t at,
                          size_t end) {
    size_t to, from = at;
    if (text[at] == '\'' && (to = contraction(text, at, end, true))) return at + to;
    if (!is_at(u, text + at, UNICODE_LETTERS)) {
        if (is_at(u, text + at, UNICODE_BIT(NUMBER)))
            return run_of(u, text, at, end, UNICODE_BIT(NUMBER), s->digits ? s->digits : -1);
        if (text[at] != '\r' && text[at] != '\n') from += unicode_width(text[at]);
    }
    if (from < end && (to = run_of(u, text, from, end, UNICODE_LETTERS, -1)) > from) return to;
    from = at + (text[at] == ' ');
    if (from < end && (to = run_of(u, text, from, end, (uint32_t)OTHERS, -1)) > from) {
        while (to < end && (text[to] == '\r' || text[to] == '\n')) to++;
        return to;
    }
    return spaces_cl100k(s, u, text, at, end);
}

size_t split_scan_next(const SplitScan *s, const Unicode *u, const uint8_t *text, size_t at,
                       size_t end) {
    return s->kind == SPLIT_GPT2 ? next_gpt2(u, text, at, end) : next_cl100k(s, u, text, at, end);
}
