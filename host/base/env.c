#include "base/env.h"
#include "base/err.h"

#include <stdlib.h>

static const EnvRow rows[ENV_COUNT] = {
    [ENV_DEVICES] = {"MESHLUA_DEVICES", "N | fake:N", "devices, as --devices"},
    [ENV_THREADS] = {"MESHLUA_THREADS", "1..",
                     "worker threads, the main one included; default: one per core"},
    [ENV_KERNELS] = {"MESHLUA_KERNELS", "default | v3 | v4 | naive",
                     "which CPU kernels run; default: the best this processor has"},
    [ENV_BLAS] = {"MESHLUA_BLAS", "off | FILE",
                  "the BLAS library to load; off: the portable kernel alone"},
    [ENV_DUMP] = {"MESHLUA_DUMP", "STAGE[:FILE]", "as --dump"},
    [ENV_LOG] = {"MESHLUA_LOG", "0..4",
                 "0 silent, 1 errors, 2 warnings (default), 3 information, 4 everything"},
    [ENV_PATH] = {"MESHLUA_PATH", "Lua path",
                  "put before package.path; ';;' stands for the default"},
    [ENV_CHECK] = {"MESHLUA_CHECK", "1",
                   "run the verifiers after every pass, as the checked build does"},
    [ENV_NO_COLOR] = {"NO_COLOR", "anything", "no colour on a terminal"},
    [ENV_TERM] = {"TERM", "dumb", "plain output"},
    [ENV_HOME] = {"HOME", "folder", "where the REPL keeps its history"},
    [ENV_LUA_INIT] = {"LUA_INIT", "Lua | @FILE", "run first, as stock lua does; -E ignores it"},
    [ENV_LUA_INIT_5_4] = {"LUA_INIT_5_4", "Lua | @FILE", "run instead of LUA_INIT"},
};

const EnvRow *env_row(EnvVar v) {
    ASSERT(v < ENV_COUNT, "environment variable %d", (int)v);
    return &rows[v];
}

const char *env_get(EnvVar v) {
    const char *s = getenv(env_row(v)->name);
    return s && *s ? s : NULL;
}

int64_t env_int(EnvVar v, int64_t otherwise) {
    const char *s = env_get(v);
    if (!s) return otherwise;
    char *end;
    long long x = strtoll(s, &end, 10);
    return *end ? otherwise : x;
}
