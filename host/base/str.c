#include "base/str.h"
#include "base/plain.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

void str_init(Str *s, Alloc *alloc) {
    *s = (Str){.alloc = alloc};
}

void str_free(Str *s) {
    alloc_free(s->alloc, s->at, s->cap);
    *s = (Str){.alloc = s->alloc};
}

void str_clear(Str *s) {
    s->n = 0;
    if (s->at) s->at[0] = '\0';
}

bool str_room(Str *s, size_t more) {
    if (s->failed) return false;
    if (s->n + more + 1 <= s->cap) return true;
    size_t cap = s->cap ? s->cap * 2 : 64;
    while (cap < s->n + more + 1) cap *= 2;
    char *at = alloc_resize(s->alloc, s->at, s->cap, cap);
    if (!at) {
        s->failed = true;
        return false;
    }
    s->at = at;
    s->cap = cap;
    return true;
}

void str_put_n(Str *s, const char *bytes, size_t n) {
    char *at = str_extend(s, n);
    if (at) memcpy(at, bytes, n);
}

void str_put(Str *s, const char *text) {
    str_put_n(s, text, strlen(text));
}

void str_int(Str *s, int64_t x) {
    char digits[20], *at = digits + sizeof digits;
    uint64_t left = x < 0 ? 0 - (uint64_t)x : (uint64_t)x;
    do *--at = (char)('0' + left % 10);
    while (left /= 10);
    if (x < 0) *--at = '-';
    str_put_n(s, at, (size_t)(digits + sizeof digits - at));
}

void str_fmt(Str *s, const char *fmt, ...) {
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    size_t room = s->at ? s->cap - s->n : 0; /* most often enough */
    int n = plain_vformat(room ? s->at + s->n : NULL, room, fmt, ap);
    va_end(ap);
    bool fits = n >= 0 && (size_t)n < room && !s->failed;
    if (!fits && n >= 0 && str_room(s, (size_t)n))
        fits = plain_vformat(s->at + s->n, (size_t)n + 1, fmt, again) == n;
    if (fits)
        s->n += (size_t)n;
    else if (s->at)
        s->at[s->n] = '\0';
    va_end(again);
}

void str_double(Str *s, double x) {
    char buf[40];
    if (isnan(x)) {
        str_put(s, "nan");
        return;
    }
    if (isinf(x)) {
        str_put(s, x < 0 ? "-inf" : "inf");
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        plain_format(buf, sizeof buf, "%.*g", digits, x);
        if (plain_read(buf, NULL) == x) break;
    }
    str_put(s, buf);
    if (!strpbrk(buf, ".e")) str_put(s, ".0");
}

const char *str_of(const Str *s) {
    return s->at ? s->at : "";
}

const char *str_bytes(double bytes, char buf[BYTES_TEXT]) {
    static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    int u = 0;
    while (bytes >= 1024 && u < 5) {
        bytes /= 1024;
        u++;
    }
    plain_format(buf, BYTES_TEXT, u ? "%.2f %s" : "%.0f %s", bytes, unit[u]);
    return buf;
}

int str_distance(const char *a, const char *b) {
    enum { MOST = 32 };
    int row[MOST + 1], nb = (int)strnlen(b, MOST);
    for (int j = 0; j <= nb; j++) row[j] = j;
    for (int i = 1; i <= MOST && a[i - 1]; i++) {
        int diagonal = row[0];
        row[0] = i;
        for (int j = 1; j <= nb; j++) {
            int best = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[nb];
}
