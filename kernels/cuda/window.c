/* window.c - reduce_window_max, reduce_window_sum, select_and_scatter_add, select_and_gather_add
 * (kernel.h). Any strides. */
#include "view.h"

enum { THREADS = 256 }; /* as in window.cu */

typedef struct Window { /* window.cu has the same */
    int64_t x[K_MAX_RANK], y[K_MAX_RANK], x_stride[K_MAX_RANK], y_stride[K_MAX_RANK];
    int64_t other_stride[K_MAX_RANK];
    int64_t window[K_MAX_RANK], stride[K_MAX_RANK], low[K_MAX_RANK];
    int64_t count;
} Window;

static int is_free(const Window *w, int d) {
    return w->window[d] == 1 && w->stride[d] == 1 && w->low[d] == 0 && w->x[d] == w->y[d];
}
/* Whether dim d follows `to` as one dim in a tensor with these strides. */
static int follows(const Window *w, const int64_t *strides, int to, int d) {
    return strides[to] == strides[d] * w->x[d];
}

static void move_dim(Window *w, int to, int from) {
    int64_t *const field[] = {w->x,      w->y,      w->x_stride, w->y_stride, w->other_stride,
                              w->window, w->stride, w->low};
    for (size_t k = 0; k < sizeof field / sizeof *field; k++) field[k][to] = field[k][from];
}

/* Of dims in which windows are single elements, neighbours become one where all operands lay them
 * out so. Returns the new rank, at least 1. */
static int collapse(Window *w, int rank) {
    int to = -1;
    for (int d = 0; d < rank; d++) {
        int merge = to >= 0 && is_free(w, to) && is_free(w, d) && follows(w, w->x_stride, to, d) &&
                    follows(w, w->y_stride, to, d) && follows(w, w->other_stride, to, d);
        int64_t before = merge ? w->x[to] : 1;
        if (!merge) to++;
        move_dim(w, to, d);
        if (merge) w->x[to] = w->y[to] = before * w->x[d];
    }
    if (to >= 0) return to + 1;
    w->x[0] = w->y[0] = w->window[0] = w->stride[0] = 1;
    return 1;
}

/* `y` has the windows; `other` (or NULL) x's dims. */
static Window window_of(const KArgs *a, const KTensor *y, const KTensor *other, int *rank) {
    const KWindow *attr = a->attr;
    const KTensor *x = &a->in[0];
    Window w = {.count = 0};
    for (int d = 0; d < x->rank; d++) {
        w.x[d] = x->dims[d];
        w.y[d] = y->dims[d];
        w.x_stride[d] = x->strides[d];
        w.y_stride[d] = y->strides[d];
        w.other_stride[d] = other ? other->strides[d] : 0;
        w.window[d] = attr->window[d];
        w.stride[d] = attr->stride[d];
        w.low[d] = attr->low[d];
    }
    *rank = collapse(&w, x->rank);
    return w;
}

static void open_launch(Launches *p, const char *entry, DType type, int rank, int64_t count) {
    cuda_launch(p, "window.cu", entry, cuda_ceil_div(count, THREADS), THREADS);
    cuda_define_type(p, "TYPE", type);
    cuda_define(p, "RANK", "%d", rank);
}

static void add_window(Launches *p, Window *w, int64_t count) {
    w->count = count;
    cuda_bytes(p, w, sizeof *w);
}

static int reduce(const KArgs *a, Launches *p, const char *entry) {
    const KTensor *y = &a->out[0];
    int rank;
    Window w = window_of(a, y, NULL, &rank);
    open_launch(p, entry, y->dtype, rank, cuda_count(y));
    cuda_operand(p, 0);
    cuda_operand(p, 1);
    add_window(p, &w, cuda_count(y));
    return 1;
}
static int reduce_window_max(const KArgs *a, Launches *p) {
    return reduce(a, p, "window_max");
}
static int reduce_window_sum(const KArgs *a, Launches *p) {
    return reduce(a, p, "window_sum");
}

static int select_and_gather_add(const KArgs *a, Launches *p) {
    const KTensor *y = &a->out[0];
    int rank;
    Window w = window_of(a, y, &a->in[1], &rank);
    open_launch(p, "select_gather", y->dtype, rank, cuda_count(y));
    for (int k = 0; k < 3; k++) cuda_operand(p, k);
    add_window(p, &w, cuda_count(y));
    return 1;
}

static int select_and_scatter_add(const KArgs *a, Launches *p) {
    const KTensor *dy = &a->in[1], *dx = &a->out[0];
    int rank;
    Window w = window_of(a, dy, dx, &rank);
    int64_t windows = cuda_count(dy);
    size_t taps = cuda_take_scratch(p, (size_t)windows * sizeof(int32_t));
    open_launch(p, "select_taps", dx->dtype, rank, windows);
    cuda_operand(p, 0);
    cuda_scratch(p, taps);
    add_window(p, &w, windows);
    open_launch(p, "scatter_selected", dx->dtype, rank, cuda_count(dx));
    cuda_scratch(p, taps);
    cuda_operand(p, 1);
    cuda_operand(p, 2);
    add_window(p, &w, cuda_count(dx));
    return 1;
}

const CudaRow k_cuda_rows_window[] = {
    {"reduce_window_max", reduce_window_max},
    {"reduce_window_sum", reduce_window_sum},
    {"select_and_scatter_add", select_and_scatter_add},
    {"select_and_gather_add", select_and_gather_add},
    {NULL, NULL},
};
