/* added.h - tokens that are cut out of a text before it is split: the longest at each place, from
 * left to right. */
#ifndef MESHLUA_TEXT_ADDED_H
#define MESHLUA_TEXT_ADDED_H

#include "text/unicode.h"

typedef struct AddedToken {
    const uint8_t *at;
    size_t n; /* not 0 */
    int32_t id;
    bool special;        /* cut out only where special tokens are wanted */
    bool lstrip, rstrip; /* it takes the spaces before it, behind it */
    bool word;           /* not within a word */
} AddedToken;

typedef struct Added {
    AddedToken *token; /* by first byte, of those of one the longest first */
    int32_t n;
    int32_t first[257]; /* by first byte; behind the last, n */
    uint8_t any[256];   /* 1: a token begins so, 2: one that is not special, too */
} Added;

/* Orders the tokens, which are kept by the caller. */
void added_init(Added *a, AddedToken *token, int32_t n);
/* The next token at `at` or behind it, in text[from, to); NULL: there is none. */
const AddedToken *added_next(const Added *a, const Unicode *u, bool special, const uint8_t *text,
                             size_t at, size_t end, size_t *from, size_t *to);

#endif
