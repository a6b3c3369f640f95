/* test_lines.c - cumulative ops, top_k and slices whose place is computed. */
#include "kcheck.h"

static int shape(int64_t *dims, int min_rank, int64_t limit) {
    static const int64_t sizes[] = {1, 2, 3, 5, 8, 17, 64, 65, 130};
    int rank = min_rank + (int)below(5 - min_rank);
    int64_t n = 1;
    for (int d = 0; d < rank; d++) {
        dims[d] = sizes[below(9)];
        if (n * dims[d] > limit) dims[d] = 1 + below(3);
        n *= dims[d];
    }
    return rank;
}

static void fill_any(Tensor *x) {
    double range = kt_is_float(x->t.dtype) ? 9 : 0;
    fill(x, -range, range);
}

static void cumulative_of(const char *name, DType t, int rank, const int64_t *dims, int axis) {
    KCumulative attr = {axis, (int32_t)(rnd() % 2)};
    Case c = {.name = name, .attr = &attr, .nin = 1, .nout = 1};
    c.rtol = t == DT_F64 ? 1e-13 : t >= DT_BF16 ? 1e-6 : 0;
    c.atol = kt_is_float(t) && t != DT_F64 ? 1e-5 : 1e-12;
    c.in[0] = tensor(t, rank, dims, ANY_BROADCAST);
    if (kt_is_float(t) && strcmp(name, "cumprod") == 0)
        fill(&c.in[0], 0.9, 1.1);
    else
        fill_any(&c.in[0]);
    if (kt_is_float(t) && rnd() % 4 == 0 && kt_count(&c.in[0]))
        kt_put_float(t, kt_at(&c.in[0], below(kt_count(&c.in[0]))), NAN);
    c.out[0] = tensor(t, rank, dims, ANY);
    check_case(&c);
}

static void cumulative(const char *name, DType t) {
    int64_t dims[8];
    int rank = shape(dims, 1, 3000), axis = (int)below(rank);
    if (rnd() % 12 == 0) dims[below(rank)] = 0;
    cumulative_of(name, t, rank, dims, axis);
}

static void top_k_of(DType t, int rank, int64_t *dims, int axis, int64_t k) {
    KTopK attr = {axis};
    Case c = {.name = "top_k", .attr = &attr, .nin = 1, .nout = 2};
    c.in[0] = tensor(t, rank, dims, ANY_BROADCAST);
    if (rnd() % 2)
        fill_any(&c.in[0]);
    else
        fill(&c.in[0], 0, 3); /* ties */
    if (rnd() % 2) sprinkle(&c.in[0]);
    dims[axis] = k;
    c.out[0] = tensor(t, rank, dims, ANY);
    c.out[1] = tensor(DT_I32, rank, dims, ANY);
    check_case(&c);
}

static void top_k(DType t, int64_t length) {
    int64_t dims[8];
    int rank = shape(dims, 1, 300), axis = (int)below(rank);
    dims[axis] = length;
    top_k_of(t, rank, dims, axis, below(length + 1));
}

/* Longer than what is done at a time. */
static void long_lines(void) {
    int64_t along[] = {2, 1500}, across[] = {1500, 3}, line[] = {2100};
    cumulative_of("cumsum", DT_F32, 2, along, 1);
    cumulative_of("cummax", DT_F32, 2, across, 0);
    top_k_of(DT_F32, 1, line, 0, 3);
}

/* `part` of a whole of which x is a part; the part in y's place is that of a slice, or an update.
 */
static void dynamic(DType t, int update) {
    int64_t x[8], part[8], offset[8];
    KDynamic attr;
    int rank = shape(x, 0, 1000);
    for (int d = 0; d < rank; d++) {
        offset[d] = rnd() % 2 ? 0 : below(9);
        attr.size[d] = x[d] + offset[d] + (rnd() % 2 ? 0 : below(9));
        part[d] = rnd() % 3 ? 1 + below(attr.size[d]) : rnd() % 8 ? attr.size[d] : 0;
    }
    int64_t n = rank;
    Case c = {.name = update ? "dynamic_update_slice" : "dynamic_slice",
              .attr = &attr,
              .offsets = offset,
              .nin = 2 + update,
              .nout = 1};
    Tensor starts = tensor(DT_I32, 1, &n, ANY);
    fill(&starts, -30, 30);
    c.in[0] = tensor(t, rank, x, update ? ANY : ANY_BROADCAST);
    fill_any(&c.in[0]);
    if (update) {
        c.in[1] = tensor(t, rank, part, ANY_BROADCAST);
        fill_any(&c.in[1]);
        if (rnd() % 3 == 0) {
            c.out[0] = c.in[0];
            c.alias[0] = 1;
        }
    }
    c.in[1 + update] = starts;
    if (!c.alias[0]) c.out[0] = tensor(t, rank, update ? x : part, ANY);
    check_case(&c);
}

int main(void) {
    long_lines();
    rng_state = 1;
    static const char *const names[] = {"cumsum", "cumprod", "cummax", "cummin"};
    for (int k = 0; k < 20; k++)
        for (int t = 0; t < DT_COUNT; t++) {
            for (int n = 0; n < 4; n++)
                if (t != DT_BOOL) cumulative(names[n], (DType)t);
            top_k((DType)t, 1 + below(k % 4 ? 20 : 150));
            dynamic((DType)t, 0);
            dynamic((DType)t, 1);
        }
    return test_end();
}
