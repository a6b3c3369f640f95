#include "text.h"

#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put_list(Text *t, const char *format, va_list list) {
    va_list again;
    va_copy(again, list);
    int n = vsnprintf(NULL, 0, format, list);
    size_t need = t->n + (size_t)n + 1;
    if (need > t->most) {
        size_t most = need + need / 2 + 1024;
        char *at = realloc(t->at, most);
        if (!at) t->failed = 1;
        if (at) t->at = at, t->most = most;
    }
    if (!t->failed) vsnprintf(t->at + t->n, (size_t)n + 1, format, again);
    if (!t->failed) t->n += (size_t)n;
    va_end(again);
}

void text_put(Text *t, const char *format, ...) {
    va_list list;
    va_start(list, format);
    put_list(t, format, list);
    va_end(list);
}

void text_item(Text *t, const char *separator, const char *format, ...) {
    enum { COLUMNS = 100, SLACK = 4 }; /* for what closes the list */
    va_list list;
    va_start(list, format);
    va_list measured;
    va_copy(measured, list);
    int n = vsnprintf(NULL, 0, format, measured);
    va_end(measured);
    size_t column = 0;
    while (column < t->n && t->at[t->n - 1 - column] != '\n') column++;
    column += strlen(separator) + 1 + (size_t)n + SLACK;
    if (*separator) text_put(t, "%s%s", separator, column > COLUMNS ? "\n        " : " ");
    put_list(t, format, list);
    va_end(list);
}

void text_number(char to[TEXT_NUMBER], double x, int is_double) {
    locale_t before = uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0));
    int digits = is_double ? 15 : 6;
    do snprintf(to, TEXT_NUMBER, "%.*g", digits++, x);
    while (is_double ? strtod(to, NULL) != x : strtof(to, NULL) != (float)x);
    uselocale(before);
}
