/* dropout.c - the row of dropout.cu. */
#include "view.h"

enum { THREADS = 256 };

typedef struct Places { /* dropout.cu's */
    CudaView x, y, counter;
    uint64_t first, step;
} Places;

/* What the 23 high bits of those that are kept are below: the uniform float32 that jax.random makes
 * of them, bits / 2^23, is below keep. */
static uint32_t below(double keep) {
    float edge = (float)keep * 0x1p23f;
    return (uint32_t)edge + ((float)(uint32_t)edge < edge);
}

static int dropout(const KArgs *a, Launches *p) {
    const KTensor *x = &a->in[0], *key = &a->in[1], *y = &a->out[0];
    const KDropout *attr = a->attr;
    int64_t dims[K_MAX_RANK], strides[3][K_MAX_RANK], size = cuda_size(x->dtype), vector = 1;
    Places at = {.step = 1};
    for (int d = 0; d < x->rank; d++) {
        dims[d] = x->dims[d];
        strides[0][d] = x->strides[d];
        strides[1][d] = y->strides[d];
        strides[2][d] = attr->strides[d];
        at.first += (uint64_t)a->offsets[d] * (uint64_t)attr->strides[d];
    }
    int rank = cuda_collapse(x->rank, dims, 3, strides);
    if (rank > 0) at.step = (uint64_t)strides[2][rank - 1];
    if (rank > 0 && strides[0][rank - 1] == size && strides[1][rank - 1] == size) {
        int of_y = cuda_vector(dims[rank - 1], size, rank - 1, strides[1]);
        vector = cuda_vector(dims[rank - 1], size, rank - 1, strides[0]);
        if (of_y < vector) vector = of_y;
    }
    at.x = cuda_view(rank, dims, strides[0]);
    at.y = cuda_view(rank, dims, strides[1]);
    at.counter = cuda_view(rank, dims, strides[2]);
    int64_t vectors = cuda_count(x) / vector;
    double keep = x->dtype == DT_F64 ? attr->keep : (double)(float)attr->keep;
    cuda_launch(p, "dropout.cu", "dropout", cuda_ceil_div(vectors, THREADS), THREADS);
    cuda_define_type(p, "TYPE", x->dtype);
    cuda_define(p, "VEC", "%d", (int)vector);
    cuda_operand(p, 0);
    cuda_operand(p, 1);
    cuda_operand_at(p, 1, key->strides[0]);
    cuda_operand(p, 2);
    cuda_bytes(p, &at, sizeof at);
    cuda_i64(p, vectors);
    cuda_i32(p, (int32_t)below(attr->keep));
    cuda_f64(p, keep);
    return 1;
}

const CudaRow k_cuda_rows_dropout[] = {
    {"dropout", dropout},
    {NULL, NULL},
};
