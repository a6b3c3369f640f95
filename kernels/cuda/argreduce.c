/* argreduce.c - rows of argreduce.cu. */
#include "view.h"

enum { BLOCK = 256, EACH = 8, LONG = 4096 };

/* Threads of an output: one where neighbouring outputs lie closer than a row's elements. */
static int lanes_of(int64_t n, int64_t along, int rank, const int64_t *kept) {
    int lanes = 1;
    if (rank > 0 && cuda_magnitude(kept[rank - 1]) < cuda_magnitude(along) && n < LONG) return 1;
    if (n >= LONG) return 0;
    while (lanes < 32 && lanes * EACH < n) lanes *= 2;
    return lanes;
}

static int argreduce(const KArgs *a, Launches *p, int largest) {
    const KTensor *x = &a->in[0], *y = &a->out[0];
    const KReduce *attr = a->attr;
    int64_t dims[K_MAX_RANK], strides[2][K_MAX_RANK], outputs = 1, n = 1, along = 0;
    int rank = 0;
    for (int d = 0; d < x->rank; d++) {
        if (attr->reduced[d]) {
            n = x->dims[d];
            along = x->strides[d];
            continue;
        }
        strides[0][rank] = x->strides[d];
        strides[1][rank] = y->strides[d];
        dims[rank++] = x->dims[d];
        outputs *= x->dims[d];
    }
    cuda_sort_dims(rank, dims, 2, strides);
    rank = cuda_collapse(rank, dims, 2, strides);
    CudaView kept = cuda_view(rank, dims, strides[0]), out = cuda_view(rank, dims, strides[1]);
    int lanes = lanes_of(n, along, rank, strides[0]);
    cuda_launch(p, "argreduce.cu", "argreduce", cuda_ceil_div(outputs, lanes ? BLOCK / lanes : 1),
                BLOCK);
    cuda_define_type(p, "TYPE", x->dtype);
    cuda_define(p, "LARGEST", "%d", largest);
    cuda_define(p, "LANES", "%d", lanes);
    cuda_define(p, "BLOCK", "%d", BLOCK);
    cuda_operand(p, 0);
    cuda_operand(p, 1);
    cuda_bytes(p, &kept, sizeof kept);
    cuda_bytes(p, &out, sizeof out);
    cuda_i64(p, outputs);
    cuda_i64(p, n);
    cuda_i64(p, along);
    return 1;
}

static int argmax(const KArgs *a, Launches *p) {
    return argreduce(a, p, 1);
}
static int argmin(const KArgs *a, Launches *p) {
    return argreduce(a, p, 0);
}

const CudaRow k_cuda_rows_argreduce[] = {
    {"argmax", argmax},
    {"argmin", argmin},
    {NULL, NULL},
};
