/* unicode.h - text as code points, and of which class a code point is. */
#ifndef MESHLUA_TEXT_UNICODE_H
#define MESHLUA_TEXT_UNICODE_H

#include "base/ctx.h"

enum { UNICODE_POINTS = 0x110000, UNICODE_NEW = 16 };

/* General categories, as far as patterns ask for them; spaces have none in common with others. */
typedef enum UnicodeClass {
    UNICODE_OTHER,
    UNICODE_UPPER,
    UNICODE_LOWER,
    UNICODE_TITLE,
    UNICODE_MODIFIER,
    UNICODE_LETTER, /* without case */
    UNICODE_MARK,
    UNICODE_NUMBER,
    UNICODE_PUNCTUATION,
    UNICODE_SYMBOL,
    UNICODE_SPACE
} UnicodeClass;

#define UNICODE_BIT(c) (1u << UNICODE_##c)
#define UNICODE_LETTERS                                                                            \
    (UNICODE_BIT(UPPER) | UNICODE_BIT(LOWER) | UNICODE_BIT(TITLE) | UNICODE_BIT(MODIFIER) |        \
     UNICODE_BIT(LETTER))

/* By code point: the class; plus UNICODE_NEW where it is newer than Unicode 14. */
typedef struct Unicode {
    uint8_t of[UNICODE_POINTS];
} Unicode;

Unicode *unicode_new(Ctx *cx); /* NULL: out of memory */
void unicode_free(Ctx *cx, Unicode *u);

/* Is the code point of one of the classes in the mask? */
static inline bool unicode_is(const Unicode *u, uint32_t c, uint32_t mask) {
    return mask >> (u->of[c] & (UNICODE_NEW - 1)) & 1;
}

/* How many bytes of the text are whole and valid UTF-8: no surrogates, nothing overlong. */
size_t unicode_valid(const uint8_t *text, size_t n);
/* The bytes of the character that begins so, in valid text. */
static inline size_t unicode_width(uint8_t first) {
    return first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
}
/* The code point at `p` of valid text. */
static inline uint32_t unicode_at(const uint8_t *p) {
    if (p[0] < 0x80) return p[0];
    if (p[0] < 0xe0) return (p[0] & 0x1fu) << 6 | (p[1] & 0x3fu);
    if (p[0] < 0xf0) return (p[0] & 0xfu) << 12 | (p[1] & 0x3fu) << 6 | (p[2] & 0x3fu);
    return (p[0] & 7u) << 18 | (p[1] & 0x3fu) << 12 | (p[2] & 0x3fu) << 6 | (p[3] & 0x3fu);
}

#endif
