/* softmax.c - rows of softmax.cu. */
#include "rows.h"

static int softmax_of(const KArgs *a, Launches *p, const char *what, int value) {
    const KTensor *t[3];
    int count = 0;
    for (int k = 0; k < a->nin; k++) t[count++] = &a->in[k];
    t[count++] = &a->out[0];
    CudaRows r = cuda_rows(p, t, count, a->nin);
    if (r.n == 0) return 1;
    cuda_rows_launch(p, &r, "softmax.cu", "softmax");
    cuda_define(p, what, "%d", value);
    cuda_define_type(p, "TYPE", a->in[0].dtype);
    for (int k = 0; k < count; k++) cuda_operand(p, k);
    for (int k = 0; k < count; k++) cuda_lines(p, t[k]);
    cuda_i64(p, r.rows);
    cuda_i64(p, r.n);
    return 1;
}

static int softmax(const KArgs *a, Launches *p) {
    return softmax_of(a, p, "LOG", 0);
}
static int log_softmax(const KArgs *a, Launches *p) {
    return softmax_of(a, p, "LOG", 1);
}
static int softmax_grad(const KArgs *a, Launches *p) {
    return softmax_of(a, p, "GRAD", 1);
}

const CudaRow k_cuda_rows_softmax[] = {
    {"softmax", softmax},
    {"log_softmax", log_softmax},
    {"softmax_grad", softmax_grad},
    {NULL, NULL},
};
