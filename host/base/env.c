#include "base/env.h"
#include "base/err.h"

#include <stdlib.h>

static const EnvRow rows[ENV_COUNT] = {
    [ENV_DEVICES] = {"MESHLUA_DEVICES", "N | cuda | fake:N", "devices, as --devices"},
    [ENV_THREADS] =
        {"MESHLUA_THREADS", "1..",
         "worker threads, the main one included; default: this process's share of the cores"},
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
                   "run the verifiers after every pass, as the checked build does, and wait for "
                   "every kernel on a GPU"},
    [ENV_TIMEOUT] = {"MESHLUA_TIMEOUT", "seconds",
                     "how long a process waits for others, as --timeout; default: 300"},
    [ENV_SECRET] = {"MESHLUA_SECRET", "text | @FILE",
                    "what processes of this job know and strangers do not, of 16 bytes or more; "
                    "nobody else may read the file"},
    [ENV_CHECK_REPLICATED] =
        {"MESHLUA_CHECK_REPLICATED", "on | off",
         "whether what several processes hold of an argument is compared at a step's first call"},
    [ENV_CACHE] = {"MESHLUA_CACHE", "off | FOLDER",
                   "where compiled kernels and chosen algorithms are kept between runs; default: "
                   "meshlua in the user's folder of caches"},
    [ENV_ALGORITHMS] =
        {"MESHLUA_ALGORITHMS", "timed | first",
         "which algorithm makes a matrix product on a GPU: the fastest of cublasLt's "
         "best guesses (the default), or its first guess"},
    [ENV_TF32] = {"MESHLUA_TF32", "1",
                  "float32 matrix products on a GPU round their operands to tf32"},
    [ENV_WGMMA] = {"MESHLUA_WGMMA", "1",
                   "attention of 16-bit floats goes through wgmma on GPUs of 9.0"},
    [ENV_MESHLUA_WORLD_SIZE] = {"MESHLUA_WORLD_SIZE", "1..",
                                "how many processes there are, as --world-size"},
    [ENV_MESHLUA_RANK] = {"MESHLUA_RANK", "0..", "which of them this is, as --rank"},
    [ENV_MESHLUA_LOCAL_RANK] = {"MESHLUA_LOCAL_RANK", "0..",
                                "which of those on this host, as --local-rank"},
    [ENV_MESHLUA_MASTER_ADDR] = {"MESHLUA_MASTER_ADDR", "host",
                                 "where the processes meet, as --master-addr"},
    [ENV_MESHLUA_MASTER_PORT] = {"MESHLUA_MASTER_PORT", "1..65535", "its port, as --master-port"},
    [ENV_WORLD_SIZE] = {"WORLD_SIZE", "1..",
                        "the same five as torchrun sets them; MESHLUA_* go before"},
    [ENV_RANK] = {"RANK", "0..", "as MESHLUA_RANK"},
    [ENV_LOCAL_RANK] = {"LOCAL_RANK", "0..", "as MESHLUA_LOCAL_RANK"},
    [ENV_MASTER_ADDR] = {"MASTER_ADDR", "host", "as MESHLUA_MASTER_ADDR"},
    [ENV_MASTER_PORT] = {"MASTER_PORT", "1..65535", "as MESHLUA_MASTER_PORT"},
    [ENV_OMPI_COMM_WORLD_SIZE] = {"OMPI_COMM_WORLD_SIZE", "1..",
                                  "set by mpirun of OpenMPI: how many processes there are"},
    [ENV_OMPI_COMM_WORLD_RANK] = {"OMPI_COMM_WORLD_RANK", "0..",
                                  "set by mpirun: which of them this is"},
    [ENV_OMPI_COMM_WORLD_LOCAL_RANK] = {"OMPI_COMM_WORLD_LOCAL_RANK", "0..",
                                        "set by mpirun: which of those on this host"},
    [ENV_OMPI_COMM_WORLD_LOCAL_SIZE] = {"OMPI_COMM_WORLD_LOCAL_SIZE", "1..",
                                        "set by mpirun: how many of them are on this host"},
    [ENV_PMIX_NAMESPACE] = {"PMIX_NAMESPACE", "name",
                            "set by mpirun: the job, whose processes find each other by it"},
    [ENV_SLURM_NTASKS] = {"SLURM_NTASKS", "1..", "set by srun: how many processes there are"},
    [ENV_SLURM_PROCID] = {"SLURM_PROCID", "0..", "set by srun: which of them this is"},
    [ENV_SLURM_LOCALID] = {"SLURM_LOCALID", "0..", "set by srun: which of those on this host"},
    [ENV_SLURM_STEP_NODELIST] = {"SLURM_STEP_NODELIST", "hosts",
                                 "set by srun: its first host is where the processes meet"},
    [ENV_SLURM_STEP_ID] = {"SLURM_STEP_ID", "number", "set by srun: gives the port, too"},
    [ENV_SLURM_JOB_ID] = {"SLURM_JOB_ID", "number", "set by Slurm: gives the port"},
    [ENV_CUDA_VISIBLE_DEVICES] = {"CUDA_VISIBLE_DEVICES", "GPUs",
                                  "those that CUDA shows, in this order; others are not seen"},
    [ENV_NO_COLOR] = {"NO_COLOR", "anything", "no colour on a terminal"},
    [ENV_TERM] = {"TERM", "dumb", "plain output"},
    [ENV_HOME] = {"HOME", "folder", "where the REPL keeps its history"},
    [ENV_XDG_CACHE_HOME] = {"XDG_CACHE_HOME", "folder",
                            "the user's folder of caches; default: ~/.cache"},
    [ENV_TMPDIR] = {"TMPDIR", "folder",
                    "where the program of an E_INTERNAL is written; default: /tmp"},
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
