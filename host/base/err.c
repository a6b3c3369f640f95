#include "base/ctx.h"
#include "base/guard.h"
#include "base/plain.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const names[E_COUNT] = {
    [E_OK] = "E_OK",
    [E_NOMEM] = "E_NOMEM",
    [E_SHAPE] = "E_SHAPE",
    [E_DTYPE] = "E_DTYPE",
    [E_VALUE] = "E_VALUE",
    [E_KEY] = "E_KEY",
    [E_SPEC] = "E_SPEC",
    [E_MESH] = "E_MESH",
    [E_INDIVISIBLE] = "E_INDIVISIBLE",
    [E_INDEX] = "E_INDEX",
    [E_STATE] = "E_STATE",
    [E_TRACED] = "E_TRACED",
    [E_DELETED] = "E_DELETED",
    [E_DONATE] = "E_DONATE",
    [E_GRAD] = "E_GRAD",
    [E_UNSUPPORTED] = "E_UNSUPPORTED",
    [E_IO] = "E_IO",
    [E_PARSE] = "E_PARSE",
    [E_INTERRUPT] = "E_INTERRUPT",
    [E_DEVICE] = "E_DEVICE",
    [E_RANKS] = "E_RANKS",
    [E_STOP] = "E_STOP",
    [E_DIVERGED] = "E_DIVERGED",
    [E_BUDGET] = "E_BUDGET",
    [E_INTERNAL] = "E_INTERNAL",
};

const char *err_name(Err code) {
    ASSERT(code >= 0 && code < E_COUNT, "error code %d", code);
    return names[code];
}

Err err_set(Ctx *cx, ErrCode code, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    cx->err.code = (Err)code;
    plain_vformat(cx->err.text, sizeof cx->err.text, fmt, ap);
    va_end(ap);
    return (Err)code;
}

Err err_nomem(Ctx *cx, const char *what) {
    return err_set(cx, E_NOMEM, "out of memory for %s", what);
}

Err err_add(Ctx *cx, const char *fmt, ...) {
    size_t used = strlen(cx->err.text);
    va_list ap;
    va_start(ap, fmt);
    plain_vformat(cx->err.text + used, sizeof cx->err.text - used, fmt, ap);
    va_end(ap);
    return cx->err.code;
}

void err_clear(Ctx *cx) {
    cx->err.code = E_OK;
    cx->err.text[0] = '\0';
}

_Noreturn void err_abort(const char *file, int line, const char *cond, const char *fmt, ...) {
    char fact[1024];
    int n = snprintf(fact, sizeof fact, "broken invariant at %s:%d: %s: ", file, line, cond);
    size_t used = n < 0 ? 0 : (size_t)n < sizeof fact ? (size_t)n : sizeof fact - 1;
    va_list ap;
    va_start(ap, fmt);
    plain_vformat(fact + used, sizeof fact - used, fmt, ap);
    va_end(ap);
    guard_break(fact);
}
