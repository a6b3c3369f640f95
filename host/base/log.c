#include "base/log.h"
#include "base/plain.h"

#include <stdarg.h>
#include <stdio.h>

static void put(const char *word, const char *fmt, va_list ap) {
    fprintf(stderr, "meshlua: %s", word);
    plain_vprint(stderr, fmt, ap);
    fputc('\n', stderr);
}

void log_line(const Ctx *cx, LogLevel level, const char *fmt, ...) {
    static const char *const word[] = {"", "error: ", "warning: ", "", ""};
    if ((int)level > cx->log_level) return;
    va_list ap;
    va_start(ap, fmt);
    put(word[level], fmt, ap);
    va_end(ap);
}

void log_note(const Ctx *cx, const char *fmt, ...) {
    if (cx->log_level < LOG_WARN) return;
    va_list ap;
    va_start(ap, fmt);
    put("", fmt, ap);
    va_end(ap);
}
