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

/* Only the build with POSIX threads, held to one thread, may be called from several threads: a
 * serial one hands the same packing buffer to two callers (OpenBLAS issue 2126), and the OpenMP one
 * ignores the limit. What openblas_get_parallel says of each: */
enum { PARALLEL_SERIAL, PARALLEL_PTHREAD, PARALLEL_OPENMP };

static bool is_thread_safe(void *lib) {
    int (*parallel)(void) = (int (*)(void))dlsym(lib, "openblas_get_parallel");
    return !parallel || parallel() == PARALLEL_PTHREAD;
}

/* The library asked for, or the first of the usual places that may be used. `file` is the last one
 * tried. */
static void *open_library(Ctx *cx, const char *asked, Blas *b) {
    static const char *const usual[] = {
        "/usr/lib/x86_64-linux-gnu/openblas-pthread/libopenblas.so.0",
        "/usr/lib/aarch64-linux-gnu/openblas-pthread/libopenblas.so.0",
        "/usr/lib64/libopenblasp.so.0", "libopenblas.so.0", "libopenblas.so"};
    const char *const *names = asked ? &asked : usual;
    size_t n = asked ? 1 : sizeof usual / sizeof *usual;
    for (size_t i = 0; i < n; i++) {
        snprintf(b->file, sizeof b->file, "%s", names[i]);
        void *lib = dlopen(b->file, RTLD_NOW | RTLD_LOCAL);
        if (!lib) {
            snprintf(b->why, sizeof b->why, "%s", dlerror());
            continue;
        }
        if (is_thread_safe(lib)) return lib;
        snprintf(b->why, sizeof b->why,
                 "%s is built without threads, or for OpenMP: it may not be called from several "
                 "threads and is left alone (Debian: libopenblas0-pthread)",
                 b->file);
        if (!asked) log_line(cx, LOG_INFO, "%s", b->why);
        dlclose(lib);
    }
    return NULL;
}

static void find_lapack(void *lib, Blas *b) {
    for (int wide = 0; wide < 2; wide++) {
        KLapack *t = &b->table.lapack[wide];
#define FIND(type, name) t->name = (type *)dlsym(lib, wide ? "d" #name "_" : "s" #name "_")
        FIND(KTrsm, trsm);
        FIND(KPotrf, potrf);
        FIND(KGetrf, getrf);
        FIND(KGeqrf, geqrf);
        FIND(KOrgqr, orgqr);
        FIND(KSyevd, syevd);
        FIND(KGesdd, gesdd);
#undef FIND
    }
}

static bool has_lapack(const KLapack *t) {
    return t->trsm && t->potrf && t->getrf && t->geqrf && t->orgqr && t->syevd && t->gesdd;
}

Err blas_need_lapack(Ctx *cx, Blas *b, const char *op) {
    const KBlas *table = blas_load(cx, b);
    if (table && has_lapack(&table->lapack[0]) && has_lapack(&table->lapack[1])) return E_OK;
    return err_set(cx, E_UNSUPPORTED,
                   "%s: runs on OpenBLAS's LAPACK, which is not there%s%s; install it (Debian: "
                   "libopenblas0-pthread), or name the library in MESHLUA_BLAS",
                   op, *b->why ? ": " : "", table ? "a BLAS without it" : b->why);
}

const KBlas *blas_load(Ctx *cx, Blas *b) {
    const char *asked = env_get(ENV_BLAS);
    if (!b->tried) {
        b->tried = true;
        if (asked && strcmp(asked, "off") == 0) return NULL;
        void *lib = open_library(cx, asked, b);
        if (lib) {
            char *(*core)(void) = (char *(*)(void))dlsym(lib, "openblas_get_corename");
            b->table.sgemm = (KSgemm *)dlsym(lib, "cblas_sgemm");
            b->table.dgemm = (KDgemm *)dlsym(lib, "cblas_dgemm");
            find_lapack(lib, b);
            snprintf(b->core, sizeof b->core, "%s", core ? core() : "unknown");
            snprintf(b->why, sizeof b->why, "%s has no cblas_sgemm and cblas_dgemm", b->file);
            log_line(cx, LOG_INFO, "BLAS %s, core %s", b->file, b->core);
        } else {
            b->file[0] = '\0';
            log_line(cx, LOG_INFO, "no BLAS is used: our own kernels serve all products");
        }
    }
    return b->table.sgemm && b->table.dgemm ? &b->table : NULL;
}

Err blas_check(Ctx *cx, Blas *b) {
    const char *asked = env_get(ENV_BLAS);
    if (!asked || strcmp(asked, "off") == 0 || blas_load(cx, b)) return E_OK;
    return err_set(cx, E_IO, "MESHLUA_BLAS=%s: %s; it may be off, or a BLAS library", asked,
                   b->why);
}
