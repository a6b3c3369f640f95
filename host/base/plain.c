#include "base/plain.h"

#include <langinfo.h>
#include <stdlib.h>

locale_t plain_enter(void) {
    return uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0)); /* a constant of the C library */
}

void plain_leave(locale_t before) {
    uselocale(before);
}

/* The same, only where there is something to put right: mostly there is not. */
static locale_t enter_if_needed(void) {
    return *nl_langinfo(RADIXCHAR) == '.' ? (locale_t)0 : plain_enter();
}

static void leave_if_entered(locale_t before) {
    if (before) plain_leave(before);
}

int plain_vformat(char *to, size_t size, const char *fmt, va_list list) {
    locale_t before = enter_if_needed();
    int n = vsnprintf(to, size, fmt, list);
    leave_if_entered(before);
    return n;
}

int plain_format(char *to, size_t size, const char *fmt, ...) {
    va_list list;
    va_start(list, fmt);
    int n = plain_vformat(to, size, fmt, list);
    va_end(list);
    return n;
}

void plain_vprint(FILE *f, const char *fmt, va_list list) {
    locale_t before = enter_if_needed();
    vfprintf(f, fmt, list);
    leave_if_entered(before);
}

void plain_print(FILE *f, const char *fmt, ...) {
    va_list list;
    va_start(list, fmt);
    plain_vprint(f, fmt, list);
    va_end(list);
}

double plain_read(const char *text, char **end) {
    locale_t before = enter_if_needed();
    double x = strtod(text, end);
    leave_if_entered(before);
    return x;
}
