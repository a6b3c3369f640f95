/* test_movement.c - copy, concat, pad and sort. */
#include "kcheck.h"

static int shape(int64_t *dims, int min_rank, int64_t limit) {
    static const int64_t sizes[] = {1, 2, 3, 4, 5, 8, 17, 64, 65, 130, 257};
    int rank = min_rank + (int)below(5 - min_rank);
    int64_t n = 1;
    for (int d = 0; d < rank; d++) {
        dims[d] = sizes[below(11)];
        if (n * dims[d] > limit) dims[d] = 1 + below(3);
        n *= dims[d];
    }
    if (rank && rnd() % 12 == 0) dims[below(rank)] = 0;
    return rank;
}

static void copy(DType t) {
    int64_t dims[8];
    int rank = shape(dims, 0, 20000);
    Case c = {.name = "copy", .nin = 1, .nout = 1};
    c.in[0] = tensor(t, rank, dims, ANY_BROADCAST);
    fill(&c.in[0], kt_is_float(t) ? -9 : 0, kt_is_float(t) ? 9 : 0);
    c.out[0] = tensor(t, rank, dims, rnd() % 2 ? DENSE : ANY);
    check_case(&c);
}

/* The transposes that a plan makes: large, of two dims, both contiguous. */
static void transpose(DType t, int64_t rows, int64_t columns, int64_t depth) {
    int64_t dims[3] = {rows, depth, columns}, other[3] = {columns, depth, rows}, size = kt_size(t);
    Case c = {.name = "copy", .nin = 1, .nout = 1};
    c.in[0] = tensor(t, 3, other, DENSE);
    fill(&c.in[0], 0, kt_is_float(t) ? 9 : 0);
    for (int d = 0; d < 3; d++) c.in[0].dims[d] = dims[d];
    c.in[0].strides[0] = size;
    c.in[0].strides[2] = rows * depth * size;
    c.out[0] = tensor(t, 3, dims, DENSE);
    check_case(&c);
}

static void concat(DType t) {
    int64_t dims[8];
    int rank = shape(dims, 1, 3000), axis = (int)below(rank), n = 1 + (int)below(4);
    KConcat attr = {axis};
    Case c = {.name = "concat", .attr = &attr, .nin = n, .nout = 1};
    int64_t total = 0;
    for (int k = 0; k < n; k++) {
        dims[axis] = below(40);
        total += dims[axis];
        c.in[k] = tensor(t, rank, dims, ANY_BROADCAST);
        fill(&c.in[k], kt_is_float(t) ? -9 : 0, kt_is_float(t) ? 9 : 0);
    }
    dims[axis] = total;
    c.out[0] = tensor(t, rank, dims, ANY);
    check_case(&c);
}

static void pad(DType t) {
    int64_t dims[8], out[8];
    KPad attr = {{0}, {0}};
    int rank = shape(dims, 0, 3000);
    for (int d = 0; d < rank; d++) {
        int64_t high = 0;
        if (rnd() % 2) {
            attr.low[d] = below(6) - 2;
            attr.interior[d] = rnd() % 2 ? 0 : below(3);
            high = below(6) - 2;
        }
        int64_t inner = dims[d] ? dims[d] + (dims[d] - 1) * attr.interior[d] : 0;
        out[d] = attr.low[d] + inner + high;
        if (out[d] < 0) out[d] = 0;
    }
    Case c = {.name = "pad", .attr = &attr, .nin = 2, .nout = 1};
    c.in[0] = tensor(t, rank, dims, ANY_BROADCAST);
    c.in[1] = tensor(t, 0, dims, DENSE);
    for (int k = 0; k < 2; k++) fill(&c.in[k], kt_is_float(t) ? -9 : 0, kt_is_float(t) ? 9 : 0);
    c.out[0] = tensor(t, rank, out, ANY);
    check_case(&c);
}

static void sort(DType t, int64_t length) {
    int64_t dims[8];
    int rank = shape(dims, 1, 300), axis = (int)below(rank), n = 1 + (int)below(3);
    KSort attr = {axis, (int32_t)(rnd() % 2)};
    if (dims[axis]) dims[axis] = length;
    Case c = {.name = "sort", .attr = &attr, .nin = n, .nout = n};
    for (int k = 0; k < n; k++) {
        DType type = k == 0 ? t : (DType)below(DT_COUNT);
        c.in[k] = tensor(type, rank, dims, ANY_BROADCAST);
        double range = rnd() % 2 ? 4 : kt_is_float(type) ? 1e6 : 0;
        fill(&c.in[k], kt_is_float(type) ? -range : 0, range);
        if (rnd() % 2) sprinkle(&c.in[k]);
        c.out[k] = tensor(type, rank, dims, ANY);
    }
    check_case(&c);
}

/* Longer than what is sorted at a time. */
static void sort_line(DType t, int64_t length) {
    KSort attr = {0, 0};
    Case c = {.name = "sort", .attr = &attr, .nin = 1, .nout = 1};
    c.in[0] = tensor(t, 1, &length, DENSE);
    fill(&c.in[0], kt_is_float(t) ? -99 : 0, kt_is_float(t) ? 99 : 0);
    c.out[0] = tensor(t, 1, &length, DENSE);
    check_case(&c);
}

static void tree_sum(void) {
    int64_t dims[8];
    int rank = shape(dims, 0, 20000), n = 1 + (int)below(rnd() % 2 ? 9 : 20);
    Case c = {.name = "tree_sum", .nin = n, .nout = 1};
    c.in[0] = tensor(DT_F32, rank, dims, ANY_BROADCAST);
    for (int k = 0; k < n; k++) {
        if (k > 0) {
            c.in[k] = c.in[0];
            kc_keep(&c.in[k]);
        }
        fill(&c.in[k], -9, 9);
        if (rnd() % 4 == 0) sprinkle(&c.in[k]);
    }
    c.out[0] = tensor(DT_F32, rank, dims, rnd() % 2 ? DENSE : ANY);
    check_case(&c);
}

/* So large that it is stored past the caches; odd, so that pieces begin anywhere. */
static void tree_sum_large(void) {
    int64_t dims[2] = {701, 3001}; /* of two inputs together 2^22 elements and more */
    Case c = {.name = "tree_sum", .nin = 2, .nout = 1};
    for (int k = 0; k < 2; k++) {
        c.in[k] = tensor(DT_F32, 2, dims, DENSE);
        fill(&c.in[k], -9, 9);
    }
    c.out[0] = tensor(DT_F32, 2, dims, DENSE);
    check_case(&c);
}

int main(void) {
    for (int t = 0; t < DT_COUNT; t++) transpose((DType)t, 68, 132, 2);
    sort_line(DT_F32, 2100);
    sort_line(DT_I64, 2100);
    rng_state = 1;
    for (int k = 0; k < 40 / KT_SHARE; k++)
        for (int t = 0; t < DT_COUNT; t++) {
            copy((DType)t);
            concat((DType)t);
            pad((DType)t);
            sort((DType)t, 1 + below(k % 4 ? 20 : 150));
        }
    for (int k = 0; k < 400 / KT_SHARE; k++) tree_sum();
    tree_sum_large();
    for (int t = 0; t < DT_COUNT; t++) transpose((DType)t, 67, 301, 2);
    transpose(DT_F32, 256, 256, 1);
    return test_end();
}
