/* env.h - the one table of the environment variables that meshlua reads, with its words for `--env`
 * and the README. tests/gate/env.lua holds the README to it, and getenv to this file. */
#ifndef MESHLUA_ENV_H
#define MESHLUA_ENV_H

#include <stdint.h>

typedef enum EnvVar {
    ENV_DEVICES,
    ENV_THREADS,
    ENV_KERNELS,
    ENV_BLAS,
    ENV_DUMP,
    ENV_LOG,
    ENV_PATH,
    ENV_CHECK,
    ENV_NO_COLOR,
    ENV_TERM,
    ENV_HOME,
    ENV_LUA_INIT,
    ENV_LUA_INIT_5_4,
    ENV_COUNT
} EnvVar;

typedef struct EnvRow {
    const char *name, *value, *doc; /* value: what it may be, in words */
} EnvRow;

const EnvRow *env_row(EnvVar v);
/* The value, or NULL if unset or empty. */
const char *env_get(EnvVar v);
int64_t env_int(EnvVar v, int64_t otherwise);

#endif
