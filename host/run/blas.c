#include "run/blas.h"
#include "base/env.h"
#include "base/log.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void blas_prepare_environment(void) {
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
        setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);
    else if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        setenv("OPENBLAS_CORETYPE", "Haswell", 0);
#endif
}

/* The serial build first: it has no threads of its own to get in the way; never the OpenMP one,
 * which ignores the thread limit of other callers. */
static void *open_library(const char *asked, char file[256]) {
    static const char *const names[] = {"openblas-serial/libopenblas.so.0",
                                        "openblas-pthread/libopenblas.so.0", "libopenblas.so.0",
                                        "libopenblas.so"};
    static const char *const folders[] = {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
                                          "/usr/lib64", "/usr/lib"};
    if (asked) {
        snprintf(file, 256, "%s", asked);
        return dlopen(asked, RTLD_NOW | RTLD_LOCAL);
    }
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        bool in_folder = strchr(names[i], '/') != NULL;
        for (unsigned k = 0; k < (in_folder ? sizeof folders / sizeof folders[0] : 1); k++) {
            if (in_folder)
                snprintf(file, 256, "%s/%s", folders[k], names[i]);
            else
                snprintf(file, 256, "%s", names[i]);
            void *lib = dlopen(file, RTLD_NOW | RTLD_LOCAL);
            if (lib) return lib;
        }
    }
    return NULL;
}

const KBlas *blas_load(Ctx *cx, Blas *b) {
    const char *asked = env_get(ENV_BLAS);
    if (!b->tried) {
        b->tried = true;
        if (asked && strcmp(asked, "off") == 0) return NULL;
        void *lib = open_library(asked, b->file);
        if (lib) {
            char *(*core)(void) = (char *(*)(void))dlsym(lib, "openblas_get_corename");
            b->table.sgemm = (KSgemm *)dlsym(lib, "cblas_sgemm");
            b->table.dgemm = (KDgemm *)dlsym(lib, "cblas_dgemm");
            snprintf(b->core, sizeof b->core, "%s", core ? core() : "unknown");
            log_line(cx, LOG_INFO, "BLAS %s, core %s", b->file, b->core);
        } else {
            b->file[0] = '\0';
            log_line(cx, asked ? LOG_WARN : LOG_INFO,
                     "no BLAS found%s%s; large products run slower", asked ? " at " : "",
                     asked ? asked : "");
        }
    }
    return b->table.sgemm && b->table.dgemm ? &b->table : NULL;
}
