#include "base/env.h"
#include "base/log.h"

#include <string.h>

void ctx_init(Ctx *cx) {
    memset(cx, 0, sizeof *cx);
    cx->alloc.fail_in = -1;
    cx->domains = 1;
    cx->log_level = (int)env_int(ENV_LOG, LOG_WARN);
}
