/* rows.c - the launch of a kernel whose unit of work is a row. */
#include "rows.h"

enum {
    HELD = 128,          /* bytes of a row in the registers of a warp's thread */
    STEP = 64,           /* bytes on their way to a thread of a block: of all rows, in a step */
    UNROLLED = 16,       /* most vectors in a step */
    SHORT_BLOCK = 256,   /* threads of a block of several teams */
    MOST = 512,          /* of one that is a team */
    SYSTEM_SHARED = 1024 /* bytes of shared memory that a block has besides: see block_reduce */
};

/* Whether all rows can be read in vectors of so many elements. */
static int fits(const KTensor *t, int64_t vector) {
    int last = t->rank - 1;
    int64_t size = cuda_size(t->dtype), word = cuda_least(16, vector * size);
    if (vector == 1) return 1;
    if (t->dims[last] % vector || t->strides[last] != size) return 0;
    for (int d = 0; d < last; d++)
        if (t->dims[d] > 1 && t->strides[d] % word) return 0;
    return 1;
}

CudaRows cuda_rows_of(const KTensor *const *t, int count) {
    const KTensor *x = t[0];
    CudaRows r = {.rows = 1, .n = x->dims[x->rank - 1], .vector = (int)(16 / cuda_size(x->dtype))};
    for (int d = 0; d < x->rank - 1; d++) r.rows *= x->dims[d];
    for (int k = 0; k < count; k++)
        while (!fits(t[k], r.vector)) r.vector /= 2;
    return r;
}

CudaRows cuda_rows(const Launches *p, const KTensor *const *t, int count, int twice) {
    CudaRows r = cuda_rows_of(t, count);
    int64_t bytes = r.vector * cuda_size(t[0]->dtype), vectors = cuda_ceil_div(r.n, r.vector);
    r.keep = CUDA_KEEP_REGISTERS;
    if (vectors <= 32 * cuda_least(HELD / bytes, UNROLLED)) {
        r.lanes = cuda_power_of_2(cuda_least(vectors, 32));
        r.per = (int)cuda_ceil_div(vectors ? vectors : 1, r.lanes);
        r.threads = SHORT_BLOCK;
        r.blocks = cuda_ceil_div(r.rows, SHORT_BLOCK / r.lanes);
        return r;
    }
    r.per = (int)cuda_least(STEP / twice / bytes, UNROLLED / twice);
    r.threads = (int)cuda_least(cuda_power_of_2(cuda_ceil_div(vectors, r.per)), MOST);
    r.blocks = r.rows;
    if (vectors <= (int64_t)r.threads * r.per) return r;
    r.shared = twice * r.n * cuda_size(t[0]->dtype);
    r.keep = CUDA_KEEP_SHARED;
    if (r.shared + SYSTEM_SHARED <= (int64_t)cuda_gpu(p)->shared) return r;
    r.shared = 0;
    r.keep = CUDA_KEEP_NOT;
    return r;
}

void cuda_rows_launch(Launches *p, const CudaRows *r, const char *file, const char *entry) {
    cuda_launch(p, file, entry, r->blocks, r->threads);
    cuda_define(p, "VEC", "%d", r->vector);
    cuda_define(p, "LANES", "%d", r->lanes);
    cuda_define(p, "PER", "%d", r->per);
    cuda_define(p, "BLOCK", "%d", r->threads);
    cuda_define(p, "KEEP", "%d", (int)r->keep);
    if (r->shared) cuda_shared(p, (size_t)r->shared);
}

void cuda_lines(Launches *p, const KTensor *t) {
    struct {
        CudaView rows;
        int64_t step;
    } lines = {cuda_view_of(t, t->rank - 1), t->strides[t->rank - 1] / cuda_size(t->dtype)};
    cuda_bytes(p, &lines, sizeof lines);
}
