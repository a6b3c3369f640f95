/* test_reduce.c - reductions and argmax, argmin. */
#include "kcheck.h"

static const int64_t sizes[] = {1, 2, 3, 7, 8, 16, 31, 33, 64, 100, 129, 300, 1025};

static void shape(int *rank, int64_t *dims, int64_t limit) {
    int64_t n = 1;
    *rank = (int)below(5);
    for (int d = 0; d < *rank; d++) {
        dims[d] = sizes[below(13)];
        if (n * dims[d] > limit) dims[d] = 1 + below(3);
        n *= dims[d];
    }
    if (*rank && rnd() % 12 == 0) dims[below(*rank)] = 0;
}

static void reduction(const char *name, DType in, DType out) {
    KReduce attr = {{0}};
    int64_t dims[K_MAX_RANK], kept[K_MAX_RANK];
    int rank;
    shape(&rank, dims, 2000);
    for (int d = 0; d < rank; d++) {
        attr.reduced[d] = rnd() % 2;
        kept[d] = attr.reduced[d] ? 1 : dims[d];
    }
    Case c = {
        .name = name, .attr = &attr, .nin = 1, .nout = 1, .rtol = in == DT_F64 ? 1e-13 : 3e-7};
    if (strncmp(name, "sum", 3) == 0) c.atol = in == DT_F64 ? 1e-9 : 3e-4;
    c.in[0] = tensor(in, rank, dims, rnd() % 3 ? ANY_BROADCAST : DENSE);
    fill(&c.in[0], kt_is_float(in) ? -10 : 0, kt_is_float(in) ? 10 : 0);
    if (rnd() % 4 == 0) sprinkle(&c.in[0]);
    c.out[0] = tensor(out, rank, kept, ANY);
    check_case(&c);
}

static void arg(const char *name, DType in) {
    KReduce attr = {{0}};
    int64_t dims[K_MAX_RANK], kept[K_MAX_RANK];
    int rank;
    do shape(&rank, dims, 2000);
    while (rank == 0);
    int axis = (int)below(rank);
    for (int d = 0; d < rank; d++) kept[d] = dims[d];
    attr.reduced[axis] = 1;
    kept[axis] = 1;
    if (dims[axis] == 0) return;
    Case c = {.name = name, .attr = &attr, .nin = 1, .nout = 1};
    c.in[0] = tensor(in, rank, dims, rnd() % 3 ? ANY_BROADCAST : DENSE);
    fill(&c.in[0], 0, rnd() % 2 ? 3 : kt_is_float(in) ? 1e3 : 100); /* many are equal, or few */
    for (int64_t i = 0; rnd() % 2 && kt_is_float(in) && i < kt_count(&c.in[0]); i++)
        kt_put_float(in, kt_at(&c.in[0], i), (double)below(4));
    if (rnd() % 3 == 0) sprinkle(&c.in[0]);
    c.out[0] = tensor(DT_I32, rank, kept, ANY);
    check_case(&c);
}

/* Long sums keep six digits; by columns, by rows and of all. */
static void large(int64_t rows, int64_t columns, int axis) {
    KReduce attr = {{(uint8_t)(axis != 1), (uint8_t)(axis != 0)}};
    int64_t dims[2] = {rows, columns}, kept[2] = {axis != 1 ? 1 : rows, axis != 0 ? 1 : columns};
    Case c = {.name = "sum", .attr = &attr, .nin = 1, .nout = 1, .rtol = 1e-6};
    c.in[0] = tensor(DT_F32, 2, dims, DENSE);
    fill(&c.in[0], 0, 1);
    c.out[0] = tensor(DT_F32, 2, kept, DENSE);
    check_case(&c);
}

int main(void) {
    static const char *const names[] = {"sum", "max", "min", "all", "any"};
    for (int k = 0; k < 12 / KT_SHARE; k++)
        for (int n = 0; n < 5; n++)
            for (int t = 0; t < (n < 3 ? DT_COUNT : DT_E4M3); t++)
                reduction(names[n], (DType)t, n == 0 && t == DT_BOOL ? DT_I32 : (DType)t);
    for (int k = 0; k < 100 / KT_SHARE; k++) {
        static const DType floats[] = {DT_F32, DT_F64, DT_BF16, DT_F16};
        reduction("sum_squares", floats[k % 4], floats[k % 4]);
    }
    for (int k = 0; k < 10; k++) reduction("sum", k % 2 ? DT_BF16 : DT_F16, DT_F32);
    for (int k = 0; k < 25; k++)
        for (int t = 0; t < DT_COUNT; t++) arg(k % 2 ? "argmax" : "argmin", (DType)t);
    large(1, 300007, 2);
    large(2001, 17, 0);
    large(17, 2001, 1);
    large(13, 5003, 0); /* blocks that are joined to wide passes */
    return test_end();
}
