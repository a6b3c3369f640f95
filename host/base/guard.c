#include "base/guard.h"

#include "base/env.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* By thread and not in a Ctx, which ASSERT does not have where it stands. */
static _Thread_local Guard *innermost;

void guard_enter(Guard *g, Ctx *cx, void (*broken)(void *ud), void *ud) {
    *g = (Guard){.outer = innermost, .cx = cx, .broken = broken, .ud = ud};
    innermost = g;
}

void guard_leave(Guard *g) {
    innermost = g->outer;
}

static Err attempt(Guard *g, Err (*work)(void *ud), void *ud) {
    jmp_buf back;
    g->back = &back;
    if (setjmp(back) != 0) return E_INTERNAL;
    Err e = work(ud);
    ASSERT(!g->chunk, "an arena that outlives the work it began in");
    return e;
}

Err guard_run(Ctx *cx, Err (*work)(void *ud), void (*broken)(void *ud), void *ud) {
    Guard g, *around = cx->alloc.guard;
    guard_enter(&g, cx, broken, ud);
    cx->alloc.guard = &g;
    Err e = attempt(&g, work, ud);
    guard_leave(&g);
    cx->alloc.guard = around;
    arena_free_all(&cx->alloc, &g.chunk);
    return e;
}

void guard_keep(Ctx *cx, const char *what, const char *text) {
    const char *folder = env_get(ENV_TMPDIR);
    char path[512];
    snprintf(path, sizeof path, "%s/meshlua-XXXXXX.txt", folder ? folder : "/tmp");
    int handle = mkstemps(path, 4);
    FILE *file = handle < 0 ? NULL : fdopen(handle, "w");
    bool ok = file && fputs(text, file) >= 0;
    if (file && fclose(file) != 0) ok = false;
    if (!file && handle >= 0) close(handle);
    if (ok)
        err_add(cx, "; %s is in %s", what, path);
    else
        err_add(cx, "; %s could not be written to %s", what, path);
}

_Noreturn void guard_break(const char *fact) {
    Guard *g = innermost;
    if (g) {
        innermost = g->outer; /* what breaks in `broken` is for the next one */
        err_set(g->cx, E_INTERNAL, "%s", fact);
        if (g->broken) g->broken(g->ud);
        if (g->back) longjmp(*g->back, 1);
        fact = g->cx->err.text;
    }
    fprintf(stderr, "meshlua: %s\n", fact);
    abort();
}
