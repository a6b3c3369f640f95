/* str.h - a growing string for printers. A failed allocation is remembered and checked once, at the
 * end: a printer needs no error handling of its own. */
#ifndef MESHLUA_STR_H
#define MESHLUA_STR_H

#include "base/alloc.h"
#include "base/err.h"

typedef struct Str {
    Alloc *alloc;
    char *at; /* NUL-terminated, or NULL while empty */
    size_t n, cap;
    bool failed;
} Str;

void str_init(Str *s, Alloc *alloc);
void str_free(Str *s);
void str_clear(Str *s);
void str_put(Str *s, const char *text);
void str_put_n(Str *s, const char *bytes, size_t n);
/* Room for that many more bytes; false when out of memory. */
bool str_room(Str *s, size_t more);
/* n more bytes, for the caller to write; NULL when out of memory. */
static inline char *str_extend(Str *s, size_t n) {
    if ((s->failed || s->cap - s->n <= n) && !str_room(s, n)) return NULL;
    char *at = s->at + s->n;
    s->n += n;
    at[n] = '\0';
    return at;
}
void str_int(Str *s, int64_t x);
void str_fmt(Str *s, const char *fmt, ...) PRINTF(2, 3);
/* The shortest decimal that reads back as the same double; "nan", "inf" and "-inf". */
void str_double(Str *s, double x);
const char *str_of(const Str *s); /* never NULL */
/* The number of edits between two words, of which the first 32 bytes are read. */
int str_distance(const char *a, const char *b);
/* What a noun has behind a count: "s", behind 1 nothing. */
static inline const char *str_s(int64_t n) {
    return n == 1 ? "" : "s";
}
/* A count of bytes for people: "1.50 MiB". Returns buf. */
enum { BYTES_TEXT = 32 };
const char *str_bytes(double bytes, char buf[BYTES_TEXT]);

#endif
