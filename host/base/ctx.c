#include "base/env.h"
#include "base/log.h"

#include <string.h>

void ctx_init(Ctx *cx) {
    memset(cx, 0, sizeof *cx);
    cx->alloc.fail_in = -1;
    cx->domains = 1;
    cx->log_level = (int)env_int(ENV_LOG, LOG_WARN);
}

void ctx_let_go(Ctx *cx) {
    for (CtxHolder *h = cx->holders; h; h = h->next) h->let_go(h->ud);
}

void ctx_finish_holders(Ctx *cx) {
    while (cx->holders) cx->holders->finish(cx->holders->ud);
}

void ctx_remove_holder(Ctx *cx, const CtxHolder *holder) {
    for (CtxHolder **at = &cx->holders; *at; at = &(*at)->next) {
        if (*at != holder) continue;
        *at = holder->next;
        return;
    }
}
