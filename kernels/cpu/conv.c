/* conv.c - conv and conv_grad_kernel (kernel.h). Floats; x, y and dy of any strides.
 *
 * With K = taps * features in, a convolution is the product of a matrix [positions, K] of what the
 * taps see (never made as a whole) with the kernel [K, out]. conv: a unit is a tile of positions of
 * one group; for each block of K it gathers what its taps see, and multiplies. conv_grad_kernel: a
 * unit is a block of K and of columns; it adds tile^T dy over all positions, a tile at a time.
 * float16 and bfloat16 are float32 in tiles, and rounded once.
 *
 * Where zeros stand between x's elements, positions are taken by their phase (place modulo the
 * dilation): all of a phase see elements through the same taps, and the others are left out. */
#include <math.h>
#include "convert.h"
#include "gemm.h"

enum { POSITIONS = 128, BLOCK_K = 256, BLOCK_N = 512, MANY_UNITS = 16, SHORT_RUN = 16, DEEP = 16 };

typedef struct Conv {
    const KTensor *x, *y; /* y: the result, or its cotangent */
    const KConv *attr;
    int n; /* spatial dims */
    int64_t window[K_MAX_RANK];
    int64_t in, out, groups; /* features, of one group */
    int64_t k, positions, tile, tiles;
    int64_t run, run_taps; /* elements of K that lie in x as they do in K, as many taps */
    int64_t phase[K_MAX_RANK], phases, each; /* phases by dim, of all, positions of one */
    KType type;
    int64_t size;
} Conv;

static Conv describe(const KArgs *a, const KTensor *w, const KTensor *y) {
    const KTensor *x = &a->in[0];
    Conv c = {.x = x, .y = y, .attr = a->attr, .n = x->rank - 2, .positions = 1, .k = 1};
    c.groups = c.attr->groups;
    c.in = w->dims[c.n];
    c.out = w->dims[c.n + 1] / c.groups;
    for (int i = 0; i < c.n; i++) c.k *= c.window[i] = w->dims[i];
    c.k *= c.in;
    for (int i = 0; i <= c.n; i++) c.positions *= y->dims[i];
    c.type = k_dtype_register(x->dtype);
    c.size = k_type_size(c.type);
    int last = c.n - 1;
    int joins = c.groups == 1 && c.attr->w_dilation[last] == 1 && c.attr->x_dilation[last] == 1 &&
                x->strides[c.n] == x->strides[c.n + 1] * c.in;
    c.run_taps = joins ? c.window[last] : 1;
    c.run = c.run_taps * c.in;
    c.phases = 1;
    for (int i = 0; i < c.n; i++) {
        int64_t by = c.attr->x_dilation[i];
        c.phase[i] = c.in >= DEEP && c.attr->stride[i] == 1 && y->dims[i + 1] % by == 0 ? by : 1;
        c.phases *= c.phase[i];
    }
    c.each = c.positions / c.phases;
    c.tile = POSITIONS;
    while (c.tile > 16 && k_ceil_div(c.each, c.tile) * c.phases * c.groups < MANY_UNITS)
        c.tile /= 2;
    c.tiles = k_ceil_div(c.each, c.tile);
    return c;
}

/* Where position number p of a phase lies: at[0] the example, then places. */
static void find_position(const Conv *c, int64_t phase, int64_t p, int64_t *at) {
    for (int i = c->n - 1; i >= 0; i--) {
        int64_t by = c->phase[i], size = c->y->dims[i + 1] / by;
        at[i + 1] = p % size * by + phase % by;
        p /= size;
        phase /= by;
    }
    at[0] = p;
}

/* The next position of the phase. */
static void next_position(const Conv *c, int64_t *at) {
    int d = c->n;
    while (d > 0 && (at[d] += c->phase[d - 1]) >= c->y->dims[d]) {
        at[d] %= c->phase[d - 1];
        d--;
    }
    if (d == 0) at[0]++;
}

/* Whether positions of the phase see anything through the tap of k. */
static int phase_sees(const Conv *c, int64_t phase, int64_t k) {
    int64_t t = k / c->run * c->run_taps;
    for (int i = c->n - 1; i >= 0; i--) {
        int64_t by = c->phase[i], tap = t % c->window[i];
        if ((phase % by - c->attr->low[i] + tap * c->attr->w_dilation[i]) % by) return 0;
        t /= c->window[i];
        phase /= by;
    }
    return 1;
}

/* A block of K lies within one tap where there are phases. */
static int64_t blocks_of(const Conv *c, int64_t block_k) {
    return c->phases > 1 ? c->k / c->run * k_ceil_div(c->run, block_k) : k_ceil_div(c->k, block_k);
}
static int64_t block_at(const Conv *c, int64_t block_k, int64_t number, int64_t *size) {
    int64_t all = c->phases > 1 ? c->run : c->k, each = k_ceil_div(all, block_k);
    int64_t from = number % each * block_k;
    *size = k_min(block_k, all - from);
    return number / each * all + from;
}

static char *part(char **workspace, int64_t bytes) {
    char *p = *workspace;
    *workspace += (bytes + 63) & ~(int64_t)63;
    return p;
}

static void load(const Conv *c, const KTensor *t, char *to, const char *from, int64_t stride,
                 int64_t n) {
    if (t->dtype == DT_F32 && stride == 4 && n < SHORT_RUN)
        for (int64_t i = 0; i < n; i++)
            ((float *)(void *)to)[i] = ((const float *)(const void *)from)[i];
    else if (k_dtype_native(t->dtype) && (stride == c->size || n == 1))
        memcpy(to, from, (size_t)(n * c->size));
    else
        k_load_fn(t->dtype)(to, from, stride, n);
}

/* ---- what taps see -------------------------------------------------------------------------- */
/* Where the run at tap `tap` of the position begins in x, and which of its elements exist. */
static const char *seen(const Conv *c, const char *base, const int64_t *at, const int64_t *tap,
                        int64_t *first, int64_t *end) {
    *first = *end = 0;
    for (int i = 0; i < c->n; i++) {
        int64_t p = at[i] * c->attr->stride[i] - c->attr->low[i] + tap[i] * c->attr->w_dilation[i];
        int64_t size = c->x->dims[i + 1], dilation = c->attr->x_dilation[i];
        if (i == c->n - 1 && c->run_taps > 1) {
            int64_t lo = k_max(0, -p), hi = k_min(c->run_taps, size - p);
            if (lo >= hi) return NULL;
            *first = lo * c->in;
            *end = hi * c->in;
            return base + p * c->x->strides[i + 1];
        }
        if (dilation > 1) {
            if (p % dilation) return NULL;
            p /= dilation;
        }
        if (p < 0 || p >= size) return NULL;
        base += p * c->x->strides[i + 1];
    }
    *end = c->run;
    return base;
}

/* One row of the matrix: elements [k, k_end) of what the position sees; `start`: the tap of k. */
static void see(const Conv *c, const char *base, const int64_t *at, const int64_t *start, int64_t k,
                int64_t k_end, char *to) {
    int64_t tap[K_MAX_RANK], stride = c->x->strides[c->n + 1];
    for (int i = 0; i < c->n; i++) tap[i] = start[i];
    for (int64_t begin = k / c->run * c->run; begin < k_end; begin += c->run) {
        int64_t first, end, lo = k_max(k - begin, 0), hi = k_min(k_end - begin, c->run);
        const char *from = seen(c, base, at, tap, &first, &end);
        first = k_min(k_max(first, lo), hi);
        end = k_max(k_min(end, hi), first);
        char *row = to + (begin - k) * c->size;
        if (lo < first) memset(row + lo * c->size, 0, (size_t)((first - lo) * c->size));
        if (first < end)
            load(c, c->x, row + first * c->size, from + first * stride, stride, end - first);
        if (end < hi) memset(row + end * c->size, 0, (size_t)((hi - end) * c->size));
        int i = c->n - 1;
        for (tap[i] += c->run_taps; i > 0 && tap[i] >= c->window[i]; i--) {
            tap[i] = 0;
            tap[i - 1]++;
        }
    }
}

/* Rows [p, p + rows) of the matrix of a group and phase, columns [k, k_end). */
static void gather(const Conv *c, int64_t group, int64_t phase, int64_t p, int64_t rows, int64_t k,
                   int64_t k_end, char *to) {
    const char *x = c->x->data + group * c->in * c->x->strides[c->n + 1];
    int64_t at[K_MAX_RANK], tap[K_MAX_RANK], t = k / c->run * c->run_taps;
    find_position(c, phase, p, at);
    for (int i = c->n - 1; i >= 0; i--) {
        tap[i] = t % c->window[i];
        t /= c->window[i];
    }
    for (int64_t r = 0; r < rows; r++, to += (k_end - k) * c->size) {
        see(c, x + at[0] * c->x->strides[0], at + 1, tap, k, k_end, to);
        next_position(c, at);
    }
}

/* Rows of y at positions of a phase: the features of one group from column j on. */
typedef struct ConvRows {
    const Conv *conv;
    char *base;
    int64_t at[K_MAX_RANK];
} ConvRows;

static ConvRows rows_from(const Conv *c, int64_t group, int64_t phase, int64_t p, int64_t j) {
    ConvRows r = {c, c->y->data + (group * c->out + j) * c->y->strides[c->n + 1], {0}};
    find_position(c, phase, p, r.at);
    return r;
}

static char *next_row(ConvRows *r) {
    char *row = r->base;
    for (int d = 0; d <= r->conv->n; d++) row += r->at[d] * r->conv->y->strides[d];
    next_position(r->conv, r->at);
    return row;
}

/* ---- products ------------------------------------------------------------------------------- */
static void product_f64(int64_t m, int64_t n, int64_t k, const double *a, int64_t rs, int64_t cs,
                        const double *b, int64_t ldb, double *c, int64_t ldc) {
    for (int64_t i = 0; i < m; i++) {
        double *restrict to = c + i * ldc;
        for (int64_t l = 0; l < k; l++) {
            const double *restrict row = b + l * ldb;
            double x = a[i * rs + l * cs];
            for (int64_t j = 0; j < n; j++) to[j] = fma(x, row[j], to[j]);
        }
    }
}

/* c += a b, of the type of the tiles; rs, cs: a's strides in elements. */
static void multiply(const Conv *conv, int64_t m, int64_t n, int64_t k, const char *a, int64_t rs,
                     int64_t cs, const char *b, int64_t ldb, char *c, int64_t ldc, char *work) {
    if (conv->type == KT_F64) {
        product_f64(m, n, k, (const double *)(const void *)a, rs, cs,
                    (const double *)(const void *)b, ldb, (double *)(void *)c, ldc);
        return;
    }
    KMatrix left = {(const float *)(const void *)a, rs, cs};
    KMatrix right = {(const float *)(const void *)b, ldb, 1};
    k_gemm(m, n, k, left, right, (float *)(void *)c, ldc, 1, work);
}

/* ---- conv ----------------------------------------------------------------------------------- */
/* Rows of the kernel [K, groups * out] from k on, columns of a block: in place, or converted. */
static const char *kernel_block(const Conv *c, const KTensor *w, int64_t k, int64_t rows,
                                int64_t column, int64_t n, char *buf, int64_t *ld) {
    int64_t size = k_dtype_size(w->dtype), all = w->dims[c->n + 1];
    const char *from = w->data + (k * all + column) * size;
    *ld = all;
    if (k_dtype_native(w->dtype)) return from;
    for (int64_t r = 0; r < rows; r++)
        k_load_fn(w->dtype)(buf + r * n * c->size, from + r * all * size, size, n);
    *ld = n;
    return buf;
}

static int conv(const KArgs *a) {
    const KTensor *w = &a->in[1];
    Conv c = describe(a, w, &a->out[0]);
    char *work = k_align(a->workspace);
    int64_t block_k = k_max(1, k_min(BLOCK_K, c.k)), block_n = k_min(BLOCK_N, c.out);
    char *tile = part(&work, c.tile * block_k * c.size);
    char *sums = part(&work, c.tile * c.out * c.size);
    char *weights = part(&work, block_k * block_n * c.size);
    for (int64_t u = a->lo; u < a->hi; u++) {
        int64_t group = u % c.groups, phase = u / c.groups / c.tiles;
        int64_t p = u / c.groups % c.tiles * c.tile, rows = k_min(c.tile, c.each - p), ld, depth;
        memset(sums, 0, (size_t)(rows * c.out * c.size));
        for (int64_t block = 0; block < blocks_of(&c, block_k); block++) {
            int64_t k = block_at(&c, block_k, block, &depth);
            if (!phase_sees(&c, phase, k)) continue;
            gather(&c, group, phase, p, rows, k, k + depth, tile);
            for (int64_t j = 0; j < c.out; j += block_n) {
                int64_t n = k_min(block_n, c.out - j);
                const char *b = kernel_block(&c, w, k, depth, group * c.out + j, n, weights, &ld);
                multiply(&c, rows, n, depth, tile, depth, 1, b, ld, sums + j * c.size, c.out, work);
            }
        }
        ConvRows to = rows_from(&c, group, phase, p, 0);
        for (int64_t r = 0; r < rows; r++)
            k_store_fn(c.y->dtype)(next_row(&to), c.y->strides[c.n + 1], sums + r * c.out * c.size,
                                   c.out);
    }
    return 0;
}

static int64_t conv_units(const KArgs *a) {
    Conv c = describe(a, &a->in[1], &a->out[0]);
    return c.out ? c.phases * c.tiles * c.groups : 0;
}

static size_t conv_workspace(const KArgs *a) {
    Conv c = describe(a, &a->in[1], &a->out[0]);
    int64_t block_k = k_max(1, k_min(BLOCK_K, c.k)), block_n = k_min(BLOCK_N, c.out);
    return (size_t)(c.tile * (block_k + c.out) * c.size + block_k * block_n * c.size +
                    k_gemm_bytes(c.tile, block_n, block_k)) +
           320;
}

/* ---- conv_grad_kernel ----------------------------------------------------------------------- */
/* Blocks of K and of columns: small enough that there are many. */
static void cut(const Conv *c, int64_t *block_k, int64_t *block_n) {
    *block_k = BLOCK_K;
    *block_n = k_max(1, k_min(BLOCK_N, c->out));
    while (*block_k > 32 &&
           blocks_of(c, *block_k) * c->groups * k_ceil_div(c->out, *block_n) < MANY_UNITS)
        *block_k /= 2;
    *block_k = k_max(1, k_min(*block_k, c->k));
}

static int conv_grad_kernel(const KArgs *a) {
    const KTensor *dw = &a->out[0];
    Conv c = describe(a, dw, &a->in[1]);
    int64_t block_k, block_n;
    cut(&c, &block_k, &block_n);
    char *work = k_align(a->workspace);
    char *tile = part(&work, POSITIONS * block_k * c.size);
    char *dy = part(&work, POSITIONS * block_n * c.size);
    char *sums = part(&work, block_k * block_n * c.size);
    int64_t columns = k_ceil_div(c.out, block_n), blocks = blocks_of(&c, block_k), rows;
    for (int64_t u = a->lo; u < a->hi; u++) {
        int64_t j = u % columns * block_n, n = k_min(block_n, c.out - j);
        int64_t k = block_at(&c, block_k, u / columns % blocks, &rows);
        int64_t group = u / columns / blocks;
        memset(sums, 0, (size_t)(rows * n * c.size));
        for (int64_t t = 0, parts = k_ceil_div(c.each, POSITIONS); t < c.phases * parts; t++) {
            int64_t phase = t / parts, p = t % parts * POSITIONS;
            int64_t depth = k_min(POSITIONS, c.each - p);
            if (!phase_sees(&c, phase, k)) continue;
            gather(&c, group, phase, p, depth, k, k + rows, tile);
            ConvRows from = rows_from(&c, group, phase, p, j);
            for (int64_t r = 0; r < depth; r++)
                load(&c, c.y, dy + r * n * c.size, next_row(&from), c.y->strides[c.n + 1], n);
            multiply(&c, rows, n, depth, tile, 1, rows, dy, n, sums, n, work);
        }
        for (int64_t r = 0; r < rows; r++) {
            int64_t at = k + r;
            char *to = dw->data + (group * c.out + j) * dw->strides[c.n + 1];
            for (int d = c.n; d >= 0; d--) {
                to += at % dw->dims[d] * dw->strides[d];
                at /= dw->dims[d];
            }
            k_store_fn(dw->dtype)(to, dw->strides[c.n + 1], sums + r * n * c.size, n);
        }
    }
    return 0;
}

static int64_t grad_units(const KArgs *a) {
    Conv c = describe(a, &a->out[0], &a->in[1]);
    int64_t block_k, block_n;
    cut(&c, &block_k, &block_n);
    return blocks_of(&c, block_k) * k_ceil_div(c.out, block_n) * c.groups;
}

static size_t grad_workspace(const KArgs *a) {
    Conv c = describe(a, &a->out[0], &a->in[1]);
    int64_t block_k, block_n;
    cut(&c, &block_k, &block_n);
    return (size_t)((POSITIONS * (block_k + block_n) + block_k * block_n) * c.size +
                    k_gemm_bytes(block_k, block_n, POSITIONS)) +
           320;
}

K_ROWS(conv) = {
    {"conv", conv, conv_units, conv_workspace},
    {"conv_grad_kernel", conv_grad_kernel, grad_units, grad_workspace},
    {NULL, NULL, NULL, NULL},
};
