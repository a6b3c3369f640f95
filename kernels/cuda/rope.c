/* rope.c - the row of rope.cu. */
#include "view.h"

enum {
    BLOCK = 256,
    WAVE = 1056, /* blocks that keep all processors of an H200 busy: eight for each */
    LEAST = 4    /* pairs that a thread turns, at least, where there are several blocks */
};

typedef struct RopeRows { /* rope.cu's */
    CudaView x, y;
    int64_t x_position, y_position, position, x_step, y_step;
    int64_t rows, groups, half;
} RopeRows;

/* All dims but T and D. */
static CudaView rows_of(const KTensor *t) {
    int64_t dims[K_MAX_RANK], strides[1][K_MAX_RANK];
    int rank = 0, last = t->rank - 1;
    for (int d = 0; d < last; d++) {
        if (d == last - 2) continue;
        dims[rank] = t->dims[d];
        strides[0][rank++] = t->strides[d];
    }
    return cuda_view(cuda_collapse(rank, dims, 1, strides), dims, strides[0]);
}

static int vector_of(const KTensor *t) {
    int last = t->rank - 1;
    int64_t size = cuda_size(t->dtype);
    if (t->strides[last] != size) return 1;
    return cuda_vector(t->dims[last] / 2, size, last, t->strides);
}

static int rope(const KArgs *a, Launches *p) {
    const KTensor *x = &a->in[0], *y = &a->out[0];
    const KRope *attr = a->attr;
    int last = x->rank - 1, at = last - 2;
    int64_t size = cuda_size(x->dtype), real = x->dtype == DT_F64 ? 8 : 4, t = x->dims[at];
    RopeRows r = {.x = rows_of(x),
                  .y = rows_of(y),
                  .x_position = x->strides[at],
                  .y_position = y->strides[at],
                  .position = a->in[1].strides[0],
                  .x_step = x->strides[last] / size,
                  .y_step = y->strides[last] / size,
                  .half = x->dims[last] / 2,
                  .groups = 1};
    int64_t all = cuda_count(x);
    if (all == 0) return 1;
    r.rows = all / t / x->dims[last];
    int vector = vector_of(x), of_y = vector_of(y);
    if (of_y < vector) vector = of_y;
    int64_t most = r.rows * r.half / vector / (BLOCK * LEAST);
    while (t * r.groups < WAVE && r.groups * 2 <= most) r.groups *= 2;
    cuda_launch(p, "rope.cu", "rope", t * r.groups, BLOCK);
    cuda_shared(p, (size_t)(2 * r.half * real));
    cuda_define_type(p, "TYPE", x->dtype);
    cuda_define(p, "VEC", "%d", vector);
    cuda_define(p, "BLOCK", "%d", BLOCK);
    for (int k = 0; k < 3; k++) cuda_operand(p, k);
    cuda_bytes(p, &r, sizeof r);
    cuda_f64(p, attr->base);
    cuda_f64(p, attr->sign);
    return 1;
}

const CudaRow k_cuda_rows_rope[] = {
    {"rope", rope},
    {NULL, NULL},
};
