/* adamw.c - the row of adamw.cu. */
#include "view.h"

enum { THREADS = 256, TENSORS = 7 };

static int adamw(const KArgs *a, CudaPlan *p) {
    const KTensor *t[TENSORS] = {&a->in[0],  &a->in[1],  &a->in[2], &a->in[3],
                                 &a->out[0], &a->out[1], &a->out[2]};
    CudaView places[TENSORS];
    DType scalar = a->in[4].dtype;
    int dense = 1, vector = 4;
    if (scalar != (t[0]->dtype == DT_F64 ? DT_F64 : DT_F32)) return 0;
    for (int k = 0; k < TENSORS; k++) {
        places[k] = cuda_view_of(t[k], t[k]->rank);
        dense = dense && cuda_is_dense(t[k]);
        if (t[k]->dtype == DT_F64) vector = 2;
    }
    if (!dense) vector = 1;
    int64_t count = cuda_count(t[0]);
    cuda_launch(p, "adamw.cu", "adamw", cuda_ceil_div(count, (int64_t)THREADS * vector), THREADS);
    cuda_define_type(p, "PARAM", t[0]->dtype);
    cuda_define_type(p, "GRAD", t[1]->dtype);
    cuda_define_type(p, "MU", t[2]->dtype);
    cuda_define_type(p, "NU", t[3]->dtype);
    cuda_define_type(p, "SCALAR", scalar);
    cuda_define(p, "VEC", "%d", vector);
    cuda_define(p, "DENSE", "%d", dense);
    for (int k = 0; k < a->nin + a->nout; k++) cuda_operand(p, k);
    cuda_bytes(p, a->attr, sizeof(KAdamw));
    cuda_bytes(p, places, sizeof places);
    cuda_i64(p, count);
    return 1;
}

const CudaRow k_cuda_rows_adamw[] = {
    {"adamw", adamw},
    {NULL, NULL},
};
