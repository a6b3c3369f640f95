#include "text/added.h"

#include <stdlib.h>
#include <string.h>

static int order(const void *x, const void *y) {
    const AddedToken *a = x, *b = y;
    if (a->at[0] != b->at[0]) return a->at[0] < b->at[0] ? -1 : 1;
    if (a->n != b->n) return a->n > b->n ? -1 : 1;
    return a->id < b->id ? -1 : 1;
}

void added_init(Added *a, AddedToken *token, int32_t n) {
    *a = (Added){.token = token, .n = n};
    if (n) qsort(token, (size_t)n, sizeof *token, order);
    for (int32_t i = n; i-- > 0;) {
        a->first[token[i].at[0]] = i;
        a->any[token[i].at[0]] |= token[i].special ? 1 : 3;
    }
    a->first[256] = n;
    for (int c = 256; c-- > 0;)
        if (!a->any[c]) a->first[c] = a->first[c + 1];
}

enum { WORDS = UNICODE_LETTERS | 1 << UNICODE_MARK | 1 << UNICODE_NUMBER };

/* The code point at p of n bytes, which need not be valid; or before p. */
static bool is_at(const Unicode *u, const uint8_t *p, size_t n, uint32_t mask) {
    if (!n || unicode_valid(p, unicode_width(*p) < n ? unicode_width(*p) : n) == 0) return false;
    return unicode_is(u, unicode_at(p), mask) || ((mask & WORDS) && *p == '_');
}

static size_t before(const uint8_t *text, size_t at, size_t from) {
    size_t p = at;
    while (p > from && at - p < 4 && (text[--p] & 0xc0) == 0x80) continue;
    return p;
}

static bool fits(const AddedToken *t, const Unicode *u, const uint8_t *text, size_t at,
                 size_t end) {
    if (t->n > end - at || memcmp(text + at, t->at, t->n) != 0) return false;
    if (!t->word) return true;
    size_t p = before(text, at, 0), behind = at + t->n;
    return !(at && is_at(u, text + p, at - p, WORDS)) &&
           !is_at(u, text + behind, end - behind, WORDS);
}

const AddedToken *added_next(const Added *a, const Unicode *u, bool special, const uint8_t *text,
                             size_t at, size_t end, size_t *from, size_t *to) {
    uint8_t wanted = special ? 1 : 2;
    size_t begin = at;
    for (;; at++) {
        while (at < end && !(a->any[text[at]] & wanted)) at++;
        if (at >= end) return NULL;
        for (int32_t i = a->first[text[at]]; i < a->first[text[at] + 1]; i++) {
            const AddedToken *t = &a->token[i];
            if ((t->special && !special) || !fits(t, u, text, at, end)) continue;
            *from = at, *to = at + t->n;
            while (t->lstrip && *from > begin) {
                size_t p = before(text, *from, begin);
                if (!is_at(u, text + p, *from - p, UNICODE_BIT(SPACE))) break;
                *from = p;
            }
            while (t->rstrip && is_at(u, text + *to, end - *to, UNICODE_BIT(SPACE)))
                *to += unicode_width(text[*to]);
            return t;
        }
    }
}
