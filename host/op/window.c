/* window.c - the largest, or the sum, of each window that slides over x, and where the largest was.
 * y at o is over the places o stride + k - low of x, 0 <= k < window, that exist. Of equal elements
 * the first is the largest; NaN is larger than all. */
#include "op/op.h"

#define CT (a->ct[0])

/* One entry per dim of x. */
typedef struct WindowAttr {
    Dims window, strides, low, high;
} WindowAttr;

static const AttrField fields[] = {ATTR_FIELD(WindowAttr, ATTR_SHAPE, window),
                                   ATTR_FIELD(WindowAttr, ATTR_LIST, strides),
                                   ATTR_FIELD(WindowAttr, ATTR_LIST, low),
                                   ATTR_FIELD(WindowAttr, ATTR_LIST, high),
                                   {0}};

/* The dims of y. */
static Err window_dims(const OpArgs *a, Dims *y) {
    enum { MOST = 1 << 30 };
    const WindowAttr *w = a->attr;
    const Dims *x = &a->in[0]->dims;
    const Dims *lists[] = {&w->window, &w->strides, &w->low, &w->high};
    *y = *x;
    for (int l = 0; l < 4; l++) {
        if (lists[l]->rank != x->rank)
            return op_error(a, E_SHAPE, "windows, strides and pads must be %d each", x->rank);
        for (int d = 0; d < x->rank; d++)
            if (lists[l]->at[d] < (l < 2) || lists[l]->at[d] > MOST || x->at[d] > MOST)
                return op_error(a, E_VALUE, "dim %d has a window, stride or pad of %lld", d + 1,
                                (long long)lists[l]->at[d]);
    }
    for (int d = 0; d < x->rank; d++) {
        int64_t room = x->at[d] + w->low.at[d] + w->high.at[d] - w->window.at[d];
        y->at[d] = room < 0 ? 0 : room / w->strides.at[d] + 1;
    }
    return E_OK;
}

static Err shape_reduce(const OpArgs *a, OutType *out, int *nout) {
    if (a->in[0]->dtype == DT_BOOL) return op_error(a, E_DTYPE, "takes numbers, not bool");
    out[0] = (OutType){.dtype = a->in[0]->dtype};
    return window_dims(a, &out[0].dims);
}

/* Both operands are floats; `y`: the second has y's dims, else x's. The result has the other's. */
static Err shape_select(const OpArgs *a, OutType *out, bool y) {
    Dims dims;
    const Dims *x = &a->in[0]->dims;
    if (a->in[0]->dtype != a->in[1]->dtype) return op_error(a, E_DTYPE, "dtypes differ");
    if (!dtype_is_float(a->in[0]->dtype)) return op_error(a, E_DTYPE, "takes floats");
    TRY(window_dims(a, &dims));
    if (!dims_equal(&a->in[1]->dims, y ? &dims : x))
        return op_error(a, E_SHAPE, "the second must have the dims of %s",
                        y ? "these windows' results" : "x");
    out[0] = (OutType){.dtype = a->in[0]->dtype, .dims = y ? *x : dims};
    return E_OK;
}
static Err shape_scatter(const OpArgs *a, OutType *out, int *nout) {
    return shape_select(a, out, true);
}
static Err shape_gather(const OpArgs *a, OutType *out, int *nout) {
    return shape_select(a, out, false);
}

/* Every element is in the windows that begin at most a window before it: the sum of windows over
 * the cotangents, set as far apart as their windows were. */
static void vjp_sum(Build *b, const VjpArgs *a) {
    const WindowAttr *w = a->node->attr;
    Dims x = op_dims(b, a->in[0]), y = op_dims(b, CT);
    WindowAttr back = {w->window, {.rank = x.rank}, {.rank = x.rank}, {.rank = x.rank}};
    PadAttr p = {{.rank = x.rank}, {.rank = x.rank}, {.rank = x.rank}};
    if (!dtype_is_float(op_dtype(b, CT))) return;
    for (int d = 0; d < x.rank; d++) {
        int64_t window = w->window.at[d];
        int64_t spread = y.at[d] ? (y.at[d] - 1) * w->strides.at[d] + 1 : 0;
        back.strides.at[d] = 1;
        p.interior.at[d] = w->strides.at[d] - 1;
        p.low.at[d] = window - 1 - w->low.at[d];
        p.high.at[d] = x.at[d] + window - 1 - spread - p.low.at[d];
    }
    Val zero = op_scalar(b, op_dtype(b, CT), attr_scalar_float(0));
    Val spread = build_op(b, OP_PAD, (Val[]){CT, zero}, 2, &p);
    a->din[0] = build_op(b, OP_REDUCE_WINDOW_SUM, &spread, 1, &back);
}

static void vjp_max(Build *b, const VjpArgs *a) {
    if (dtype_is_float(op_dtype(b, CT)))
        a->din[0] = build_op(b, OP_SELECT_AND_SCATTER_ADD, (Val[]){a->in[0], CT}, 2, a->node->attr);
}
static void vjp_scatter(Build *b, const VjpArgs *a) {
    a->din[1] = build_op(b, OP_SELECT_AND_GATHER_ADD, (Val[]){a->in[0], CT}, 2, a->node->attr);
}
static void vjp_gather(Build *b, const VjpArgs *a) {
    a->din[1] = build_op(b, OP_SELECT_AND_SCATTER_ADD, (Val[]){a->in[0], CT}, 2, a->node->attr);
}

/* A dim without windows passes. One that is cut into windows without rest is places, then what is
 * inside: the places pass. `like_x`: for each tensor, whether it has x's dims, or y's. */
static void factors(const OpArgs *a, FactorRule *r, const Dims *y, const bool *like_x) {
    const WindowAttr *w = a->attr;
    const Dims *x = &a->in[0]->dims;
    for (int d = 0; d < x->rank; d++) {
        bool bare = w->low.at[d] == 0 && w->high.at[d] == 0;
        bool tiles =
            bare && w->window.at[d] == w->strides.at[d] && x->at[d] == y->at[d] * w->window.at[d];
        int of_y = factor_add(r, tiles ? FACTOR_PASS : FACTOR_REPLICATE, y->at[d]);
        int of_x = tiles ? of_y : factor_add(r, FACTOR_REPLICATE, x->at[d]);
        int inside =
            tiles && w->window.at[d] > 1 ? factor_add(r, FACTOR_REPLICATE, w->window.at[d]) : -1;
        for (int t = 0; t < r->ntensor; t++) {
            factor_map(r, t, d, like_x[t] ? of_x : of_y);
            if (inside >= 0 && like_x[t]) factor_map(r, t, d, inside);
        }
    }
}
static void factors_reduce(const OpArgs *a, const Type *const *out, FactorRule *r) {
    factors(a, r, &out[0]->dims, (const bool[]){true, false});
}
static void factors_scatter(const OpArgs *a, const Type *const *out, FactorRule *r) {
    factors(a, r, &a->in[1]->dims, (const bool[]){true, false, true});
}
static void factors_gather(const OpArgs *a, const Type *const *out, FactorRule *r) {
    factors(a, r, &out[0]->dims, (const bool[]){true, true, false});
}

static void local(LocalArgs *a) {
    (void)a; /* windows lie inside a part, or the dim is whole */
}

static double flops(const OpArgs *a, const Type *const *out) {
    const WindowAttr *w = a->attr;
    double n = (double)type_count(out[0]);
    for (int d = 0; d < w->window.rank; d++) n *= (double)w->window.at[d];
    return n;
}

static void lower(const OpArgs *a, const Type *const *out, void *kernel_attr) {
    const WindowAttr *w = a->attr;
    KWindow *k = kernel_attr;
    for (int d = 0; d < w->window.rank; d++) {
        k->window[d] = w->window.at[d];
        k->stride[d] = w->strides.at[d];
        k->low[d] = w->low.at[d];
    }
}

static void batch_window(Build *b, const BatchArgs *a) {
    WindowAttr w;
    Val in[2];
    batch_shift(a, &w);
    w.window.at[0] = w.strides.at[0] = 1;
    for (int i = 0; i < a->node->nin; i++) in[i] = batch_operand(b, a, i);
    batch_apply(b, a, in, &w);
}

#define ROW(NAME, name_, operands_, nin_, doc_, shape_, vjp_, factors_, ...)                       \
    const OpDef op_row_##NAME = {.name = name_,                                                    \
                                 .operands = operands_,                                            \
                                 .doc = doc_,                                                      \
                                 .nin = nin_,                                                      \
                                 .nout = 1,                                                        \
                                 OP_ATTR(WindowAttr, fields),                                      \
                                 .shape = shape_,                                                  \
                                 .vjp = vjp_,                                                      \
                                 .batch = batch_window,                                            \
                                 .factors = factors_,                                              \
                                 .local = local,                                                   \
                                 .flops = flops,                                                   \
                                 .kernel = name_,                                                  \
                                 OP_LOWER(KWindow, lower),                                         \
                                 __VA_ARGS__}

ROW(REDUCE_WINDOW_MAX, "reduce_window_max", "x", 1, "the largest of each window over x",
    shape_reduce, vjp_max, factors_reduce, .linear = 0);
ROW(REDUCE_WINDOW_SUM, "reduce_window_sum", "x", 1, "the sum of each window over x", shape_reduce,
    vjp_sum, factors_reduce, .linear = 1);
ROW(SELECT_AND_SCATTER_ADD, "select_and_scatter_add", "x,dy", 2,
    "zeros of x's shape, each dy added where the largest of its window of x is", shape_scatter,
    vjp_scatter, factors_scatter, .linear = 2);
ROW(SELECT_AND_GATHER_ADD, "select_and_gather_add", "x,t", 2,
    "for each window of x what t has where the largest of x is", shape_gather, vjp_gather,
    factors_gather, .linear = 2);
