/* view.c - what rows look for in their operands' dims and strides. */
#include "view.h"

int64_t cuda_size(DType t) {
    return k_dtype_size(t);
}

int64_t cuda_count(const KTensor *t) {
    int64_t n = 1;
    for (int d = 0; d < t->rank; d++) n *= t->dims[d];
    return n;
}

int64_t cuda_ceil_div(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}
int64_t cuda_least(int64_t a, int64_t b) {
    return a < b ? a : b;
}
int64_t cuda_most(int64_t a, int64_t b) {
    return a > b ? a : b;
}
int cuda_power_of_2(int64_t n) {
    int k = 1;
    while (k < n) k *= 2;
    return k;
}
int64_t cuda_magnitude(int64_t stride) {
    return stride < 0 ? -stride : stride;
}

int cuda_is_dense(const KTensor *t) {
    int64_t step = cuda_size(t->dtype);
    for (int d = t->rank - 1; d >= 0; d--) {
        if (t->dims[d] != 1 && t->strides[d] != step) return 0;
        step *= t->dims[d];
    }
    return 1;
}

int cuda_lies_as(const KTensor *a, const KTensor *b) {
    if (a->rank != b->rank) return 0;
    for (int d = 0; d < a->rank; d++)
        if (a->dims[d] != b->dims[d] || (a->dims[d] != 1 && a->strides[d] != b->strides[d]))
            return 0;
    return 1;
}

int cuda_collapse(int rank, int64_t *dims, int count, int64_t (*strides)[K_MAX_RANK]) {
    int to = 0;
    for (int d = 0; d < rank; d++) {
        if (dims[d] == 1) continue;
        int merge = to > 0;
        for (int k = 0; merge && k < count; k++)
            merge = strides[k][to - 1] == strides[k][d] * dims[d];
        if (!merge) to++;
        dims[to - 1] = merge ? dims[to - 1] * dims[d] : dims[d];
        for (int k = 0; k < count; k++) strides[k][to - 1] = strides[k][d];
    }
    return to;
}

static void swap(int64_t *at) {
    int64_t t = at[0];
    at[0] = at[1];
    at[1] = t;
}

void cuda_sort_dims(int rank, int64_t *dims, int count, int64_t (*strides)[K_MAX_RANK]) {
    for (int i = 1; i < rank; i++)
        for (int d = i; d > 0 && cuda_magnitude(strides[0][d - 1]) < cuda_magnitude(strides[0][d]);
             d--) {
            swap(&dims[d - 1]);
            for (int k = 0; k < count; k++) swap(&strides[k][d - 1]);
        }
}

CudaView cuda_view(int rank, const int64_t *dims, const int64_t *strides) {
    CudaView v = {.rank = rank, .small = 1};
    int64_t n = 1;
    for (int d = 0; d < rank; d++) {
        v.dims[d] = dims[d];
        v.strides[d] = strides[d];
        n *= dims[d];
    }
    v.small = n <= INT32_MAX;
    return v;
}

CudaView cuda_view_of(const KTensor *t, int rank) {
    int64_t dims[K_MAX_RANK], strides[1][K_MAX_RANK];
    for (int d = 0; d < rank; d++) {
        dims[d] = t->dims[d];
        strides[0][d] = t->strides[d];
    }
    return cuda_view(cuda_collapse(rank, dims, 1, strides), dims, strides[0]);
}

void cuda_view_param(Launches *p, const KTensor *t) {
    CudaView v = cuda_view_of(t, t->rank);
    cuda_bytes(p, &v, sizeof v);
}

int cuda_vector(int64_t n, int64_t size, int rank, const int64_t *strides) {
    int64_t width = 16 / size;
    while (width > 1 && n % width) width /= 2;
    for (int d = 0; d < rank; d++)
        while (width > 1 && strides[d] % (width * size)) width /= 2;
    return (int)width;
}
