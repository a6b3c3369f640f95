/* table.c - the kernel tables of the CPU: lists the families and picks the level. */
#include <assert.h>
#include <string.h>
#include <threads.h>
#include "kernel.h"

#if defined(K_HAS_V4)
#    define LEVELS(X) X(naive) X(default) X(v3) X(v4)
#elif defined(__x86_64__)
#    define LEVELS(X) X(naive) X(default) X(v3)
#else
#    define LEVELS(X) X(naive) X(default)
#endif

/* Each file's rows; a family's naive rows stand under the same name. */
#define FAMILIES(X, level)                                                                         \
    X(fused, level)                                                                                \
    X(reduce, level)                                                                               \
    X(argreduce, level)                                                                            \
    X(matmul, level)                                                                               \
    X(conv, level)                                                                                 \
    X(window, level)                                                                               \
    X(index, level)                                                                                \
    X(dynamic, level)                                                                              \
    X(cumulative, level)                                                                           \
    X(movement, level)                                                                             \
    X(tree_sum, level)                                                                             \
    X(sort, level)                                                                                 \
    X(softmax, level)                                                                              \
    X(norm, level)                                                                                 \
    X(cross_entropy, level)                                                                        \
    X(attention, level)                                                                            \
    X(dropout, level)                                                                              \
    X(rope, level)                                                                                 \
    X(adamw, level)

/* The same at all levels: LAPACK's. */
extern const KernelRow k_rows_linalg[];

enum { MAX_ROWS = 64 };

#define DECLARE(family, level) extern const KernelRow k_rows_##family##_##level[];
#define NAME(family, level)    k_rows_##family##_##level,
#define LEVEL(level)                                                                               \
    FAMILIES(DECLARE, level)                                                                       \
    static const KernelRow *const families_##level[] = {FAMILIES(NAME, level) k_rows_linalg, NULL};
LEVELS(LEVEL)

typedef struct Level {
    const char *name;
    const KernelRow *const *families;
    KernelRow rows[MAX_ROWS]; /* all families' in one list, filled by `collect` */
} Level;

#define ENTRY(level) {.name = #level, .families = families_##level},
static Level levels[] = {LEVELS(ENTRY)};

static void collect(void) {
    for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) {
        KernelRow *to = levels[l].rows;
        for (const KernelRow *const *f = levels[l].families; *f; f++)
            for (const KernelRow *row = *f; row->name; row++) {
                assert(to < levels[l].rows + MAX_ROWS - 1 && "more kernels than MAX_ROWS");
                *to++ = *row;
            }
    }
}

static int runs_here(const char *level) {
#if defined(__x86_64__)
    __builtin_cpu_init();
    int v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("bmi2");
    if (strcmp(level, "v3") == 0) return v3;
#endif
#if defined(K_HAS_V4)
    if (strcmp(level, "v4") == 0)
        return v3 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
               __builtin_cpu_supports("avx512vl");
#endif
    return strcmp(level, "naive") == 0 || strcmp(level, "default") == 0;
}

const KernelRow *k_cpu_table(const char *level) {
    static once_flag once = ONCE_FLAG_INIT;
    call_once(&once, collect);
    for (size_t l = 0; l < sizeof levels / sizeof *levels; l++)
        if (strcmp(levels[l].name, level) == 0 && runs_here(level)) return levels[l].rows;
    return NULL;
}

const char *k_cpu_best_level(void) {
    return runs_here("v4") ? "v4" : runs_here("v3") ? "v3" : "default";
}

int k_cpu_uses_blas(const char *level, DType t) {
    return t == DT_F64 || (k_dtype_is_float(t) && strcmp(level, "default") == 0);
}
