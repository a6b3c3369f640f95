/* tree_sum.c - the row of tree_sum.cu.
 *
 * As many inputs as a launch has parameters for are a tree of their own: groups of them are summed
 * to scratch, then what the groups have given is, by the same rule. */
#include "view.h"

enum { MOST = 16, THREADS = 256 };

typedef struct Addends { /* operands from `first` on, or tensors in scratch, one after the other */
    int n, first;
    int is_scratch;
    size_t at, each;
    CudaView view;
    int dense;
} Addends;

static void pass(Launches *p, const Addends *x, int k) {
    if (x->is_scratch)
        cuda_scratch(p, x->at + (size_t)k * x->each);
    else
        cuda_operand(p, x->first + k);
}

/* Of n inputs from k on; to the result, or to tensor `slot` of `to`. */
static void launch(Launches *p, const Addends *x, int k, int n, const Addends *to, int slot,
                   int64_t count) {
    int dense = x->dense && to->dense;
    int64_t each = dense ? (int64_t)THREADS * 4 : THREADS;
    cuda_launch(p, "tree_sum.cu", "tree_sum", cuda_ceil_div(count, each), THREADS);
    cuda_define(p, "COUNT", "%d", n);
    cuda_define(p, "DENSE", "%d", dense);
    for (int j = 0; j < MOST; j++) pass(p, x, j < n ? k + j : k);
    pass(p, to, slot);
    cuda_bytes(p, &x->view, sizeof x->view);
    cuda_bytes(p, &to->view, sizeof to->view);
    cuda_i64(p, count);
}

static int tree_sum(const KArgs *a, Launches *p) {
    const KTensor *y = &a->out[0];
    int64_t count = cuda_count(y), size = cuda_size(DT_F32);
    Addends x = {
        .n = a->nin, .view = cuda_view_of(&a->in[0], y->rank), .dense = cuda_is_dense(&a->in[0])};
    Addends result = {.first = a->nin, .view = cuda_view_of(y, y->rank), .dense = cuda_is_dense(y)};
    size_t each = ((size_t)(count * size) + 255) / 256 * 256;
    while (x.n > MOST) {
        int groups = (x.n + MOST - 1) / MOST;
        Addends sums = {.n = groups,
                        .is_scratch = 1,
                        .at = cuda_take_scratch(p, (size_t)groups * each),
                        .each = each,
                        .view = cuda_view(1, &count, &size),
                        .dense = 1};
        for (int g = 0; g < groups; g++) {
            int left = x.n - g * MOST;
            launch(p, &x, g * MOST, left < MOST ? left : MOST, &sums, g, count);
        }
        x = sums;
    }
    launch(p, &x, 0, x.n, &result, 0, count);
    return 1;
}

const CudaRow k_cuda_rows_tree_sum[] = {
    {"tree_sum", tree_sum},
    {NULL, NULL},
};
