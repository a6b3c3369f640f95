/* cross_entropy.c - rows of cross_entropy.cu. */
#include "rows.h"

typedef struct LossViews {
    CudaView labels, loss, lse, dloss;
} LossViews;

static CudaView view_of(const KTensor *t) {
    return t ? cuda_view_of(t, t->rank) : (CudaView){.rank = 0};
}

/* All operands in order, then where they lie; dx may be NULL. */
static int launch(const KArgs *a, Launches *p, const char *what, const KTensor *dx,
                  const LossViews *views) {
    const KTensor *t[2] = {&a->in[0], dx};
    CudaRows r = cuda_rows(p, t, dx ? 2 : 1, 1);
    cuda_rows_launch(p, &r, "cross_entropy.cu", "cross_entropy");
    cuda_define(p, what, "1");
    cuda_define_type(p, "TYPE", a->in[0].dtype);
    for (int k = 0; k < a->nin + a->nout; k++) cuda_operand(p, k);
    cuda_lines(p, &a->in[0]);
    if (dx) cuda_lines(p, dx);
    cuda_bytes(p, views, sizeof *views);
    cuda_i64(p, r.rows);
    cuda_i64(p, r.n);
    cuda_fault(p);
    return 1;
}

static int cross_entropy(const KArgs *a, Launches *p) {
    LossViews v = {view_of(&a->in[1]), view_of(&a->out[0]), view_of(&a->out[1]), view_of(NULL)};
    return launch(a, p, "LOSS", NULL, &v);
}
static int cross_entropy_grad(const KArgs *a, Launches *p) {
    LossViews v = {view_of(&a->in[1]), view_of(NULL), view_of(&a->in[2]), view_of(&a->in[3])};
    return launch(a, p, "GRAD", &a->out[0], &v);
}
static int cross_entropy_both(const KArgs *a, Launches *p) {
    LossViews v = {view_of(&a->in[1]), view_of(&a->out[0]), view_of(&a->out[1]),
                   view_of(&a->in[2])};
    return launch(a, p, "BOTH", &a->out[2], &v);
}

const CudaRow k_cuda_rows_cross_entropy[] = {
    {"softmax_cross_entropy", cross_entropy},
    {"softmax_cross_entropy_grad", cross_entropy_grad},
    {"softmax_cross_entropy_both", cross_entropy_both},
    {NULL, NULL},
};
