#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>

void log_line(const Ctx *cx, LogLevel level, const char *fmt, ...) {
    static const char *const word[] = {"", "error: ", "warning: ", "", ""};
    if ((int)level > cx->log_level) return;
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "meshlua: %s", word[level]);
    vfprintf(stderr, fmt, ap);
    fputc('\n', stderr);
    va_end(ap);
}
