/* env.h - the one table of the environment variables that meshlua reads, with its words for
 * `--env`. Nothing else lists them; tests/gate/env_gate.lua
 * holds getenv to this file. */
#ifndef MESHLUA_ENV_H
#define MESHLUA_ENV_H

#include "base/ctx.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum EnvVar {
    ENV_DEVICES,
    ENV_THREADS,
    ENV_KERNELS,
    ENV_BLAS,
    ENV_LOG,
    ENV_PATH,
    ENV_CHECK,
    ENV_TIMEOUT,
    ENV_SECRET,
    ENV_CHECK_REPLICATED,
    ENV_CACHE,
    ENV_ALGORITHMS,
    ENV_WORLD_SIZE,
    ENV_RANK,
    ENV_LOCAL_RANK,
    ENV_MASTER_ADDR,
    ENV_MASTER_PORT,
    ENV_OMPI_COMM_WORLD_SIZE,
    ENV_OMPI_COMM_WORLD_RANK,
    ENV_OMPI_COMM_WORLD_LOCAL_RANK,
    ENV_OMPI_COMM_WORLD_LOCAL_SIZE,
    ENV_PMIX_NAMESPACE,
    ENV_SLURM_NTASKS,
    ENV_SLURM_PROCID,
    ENV_SLURM_LOCALID,
    ENV_SLURM_STEP_NODELIST,
    ENV_SLURM_STEP_ID,
    ENV_SLURM_JOB_ID,
    ENV_CUDA_VISIBLE_DEVICES,
    ENV_NO_COLOR,
    ENV_TERM,
    ENV_HOME,
    ENV_VISUAL,
    ENV_EDITOR,
    ENV_XDG_CACHE_HOME,
    ENV_TMPDIR,
    ENV_LUA_INIT,
    ENV_LUA_INIT_5_4,
    ENV_COUNT
} EnvVar;

typedef enum EnvKind {
    ENV_TEXT,      /* who reads it says what is wrong with it */
    ENV_WHOLE,     /* a whole number, least .. most */
    ENV_WORDS,     /* one of those in `value` */
    ENV_WORD_LIST, /* some of them, with commas between */
    ENV_TEMPLATES, /* of Lua's paths */
    ENV_FILE,      /* off, or a file that can be read */
    ENV_FOLDER,    /* off, or a folder that can be written or made */
} EnvKind;

typedef struct EnvRow {
    const char *name, *value, *doc; /* value: what it may be, in words */
    EnvKind kind;
    int64_t least, most;
} EnvRow;

enum { ENV_MOST_THREADS = 1024, ENV_MOST_SECONDS = INT32_MAX / 1000 };

const EnvRow *env_row(EnvVar v);
/* The value, or NULL if unset or empty. */
const char *env_get(EnvVar v);
/* The number; `otherwise` where it is unset, or not what its row allows. */
int64_t env_int(EnvVar v, int64_t otherwise);
/* Is the word one of its list? */
bool env_has(EnvVar v, const char *word);
/* The processors that this process may run on. */
int env_cores(void);
/* Is every variable that is set what its row allows? E_VALUE for one of ours, E_RANKS for a
 * launcher's, E_IO for a file or folder that is not there. Warns of variables called MESHLUA_...
 * that are none. */
Err env_check(Ctx *cx) MUST_CHECK;

#endif
