#include "text/unicode.h"
#include "text/unicode_runs.h"

#include <string.h>

/* By UnicodeClass. */
static const char letters[] = "xulthoknpys";

Unicode *unicode_new(Ctx *cx) {
    Unicode *u = alloc_new(&cx->alloc, sizeof *u);
    uint32_t at = 0;
    if (!u) return NULL;
    for (const char *p = unicode_runs; *p; p++) {
        uint32_t n = *p >= '0' && *p <= '9' ? 0 : 1;
        while (*p >= '0' && *p <= '9') n = n * 10 + (uint32_t)(*p++ - '0');
        bool newer = *p >= 'A' && *p <= 'Z';
        char letter = (char)(*p | 0x20);
        ASSERT(n <= UNICODE_POINTS - at, "runs beyond the last code point");
        if (letter == 'a')
            for (uint32_t i = 0; i < n; i++) u->of[at + i] = i & 1 ? UNICODE_LOWER : UNICODE_UPPER;
        else
            memset(u->of + at, (int)(strchr(letters, letter) - letters) + (newer ? UNICODE_NEW : 0),
                   n);
        at += n;
    }
    ASSERT(at == UNICODE_POINTS, "runs end at %x", at);
    return u;
}

void unicode_free(Ctx *cx, Unicode *u) {
    if (u) alloc_free(&cx->alloc, u, sizeof *u);
}

/* The bytes of the character at p, of which n are there; 0: none is valid. */
static size_t valid_width(const uint8_t *p, size_t n) {
    uint8_t low = 0x80, high = 0xbf;
    size_t width = unicode_width(p[0]);
    if (p[0] < 0x80) return 1;
    if (p[0] < 0xc2 || p[0] > 0xf4 || width > n) return 0;
    if (p[0] == 0xe0) low = 0xa0;
    if (p[0] == 0xed) high = 0x9f;
    if (p[0] == 0xf0) low = 0x90;
    if (p[0] == 0xf4) high = 0x8f;
    if (p[1] < low || p[1] > high) return 0;
    for (size_t i = 2; i < width; i++)
        if ((p[i] & 0xc0) != 0x80) return 0;
    return width;
}

size_t unicode_valid(const uint8_t *text, size_t n) {
    size_t at = 0;
    while (at < n) {
        uint64_t eight;
        while (n - at >= 8) {
            memcpy(&eight, text + at, 8);
            if (eight & 0x8080808080808080u) break;
            at += 8;
        }
        if (at == n) break;
        size_t width = valid_width(text + at, n - at);
        if (!width) break;
        at += width;
    }
    return at;
}
