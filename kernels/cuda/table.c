/* table.c - the table of the CUDA kernels: lists the families. */
#include <assert.h>
#include <threads.h>
#include "row.h"

/* X(softmax) for the rows k_cuda_rows_softmax of softmax.c, which end with one whose name is NULL;
 * in the order of the CPU's table. */
#define FAMILIES(X)                                                                                \
    X(fused)                                                                                       \
    X(reduce)                                                                                      \
    X(argreduce)                                                                                   \
    X(softmax)                                                                                     \
    X(norm)                                                                                        \
    X(cross_entropy)                                                                               \
    X(adamw)                                                                                       \
    X(dropout)                                                                                     \
    X(rope)                                                                                        \
    X(tree_sum)                                                                                    \
    X(matmul)                                                                                      \
    X(conv)                                                                                        \
    X(window)                                                                                      \
    X(index)                                                                                       \
    X(dynamic)                                                                                     \
    X(cumulative)                                                                                  \
    X(movement)                                                                                    \
    X(sort)                                                                                        \
    X(attention)

enum { MAX_ROWS = 64 };

#define DECLARE(family) extern const CudaRow k_cuda_rows_##family[];
#define NAME(family)    k_cuda_rows_##family,
FAMILIES(DECLARE)
static const CudaRow *const families[] = {FAMILIES(NAME) NULL};

static CudaRow rows[MAX_ROWS]; /* all families' in one list */

static void collect(void) {
    CudaRow *to = rows;
    for (const CudaRow *const *f = families; *f; f++)
        for (const CudaRow *row = *f; row->name; row++) {
            assert(to < rows + MAX_ROWS - 1 && "more kernels than MAX_ROWS");
            *to++ = *row;
        }
}

const CudaRow *k_cuda_table(void) {
    static once_flag once = ONCE_FLAG_INIT;
    call_once(&once, collect);
    return rows;
}
