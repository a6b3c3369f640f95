/* plain.h - numbers as text, and text as numbers, with a decimal point whatever locale a script or
 * a library has set: what is printed is read again, by compilers, by JSON's readers and by us. All
 * that formats a floating-point number goes through here; tests/gate/locale_gate.lua holds the tree
 * to it. */
#ifndef MESHLUA_PLAIN_H
#define MESHLUA_PLAIN_H

#include "base/err.h"

#include <locale.h>
#include <stdarg.h>
#include <stdio.h>

/* snprintf, vsnprintf, fprintf and vfprintf. */
int plain_format(char *to, size_t size, const char *fmt, ...) PRINTF(3, 4);
int plain_vformat(char *to, size_t size, const char *fmt, va_list list);
void plain_print(FILE *f, const char *fmt, ...) PRINTF(2, 3);
void plain_vprint(FILE *f, const char *fmt, va_list list);
/* strtod */
double plain_read(const char *text, char **end);

/* What runs between the two, in this thread, sees no locale at all. */
locale_t plain_enter(void);
void plain_leave(locale_t before);

#endif
