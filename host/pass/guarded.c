#include "pass/guarded.h"

#include "base/guard.h"

static Err run(void *ud) {
    Guarded *w = ud;
    return w->run(w);
}

static void broken(void *ud) {
    const Guarded *w = ud;
    Ctx *cx = w->g->cx;
    err_add(cx, "; this is a fault of meshlua");
    Str s;
    str_init(&s, &cx->alloc);
    str_fmt(&s, "the graph before '%s'", w->stage);
    size_t what = s.n + 1;
    str_put_n(&s, "", 1);
    graph_print_full(w->g, &s);
    if (!s.failed) guard_keep(cx, s.at, s.at + what);
    str_free(&s);
}

Err guarded_run(Guarded *w) {
    return guard_run(w->g->cx, run, broken, w);
}
