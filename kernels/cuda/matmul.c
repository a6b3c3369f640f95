/* matmul.c - products of matrices. Dims of one role that every operand lays out as one are merged;
 * what then is a matrix per operand, with batch dims around it, goes to the library (cuda_product),
 * the rest to matmul.cu. */
#include "matmul.h"
#include "view.h"

enum {
    MAX_CALLS = 64,       /* of the library, for batch dims that are not one */
    SMALL_WORK = 1 << 18, /* a product of so few operations, */
    SMALL_DEPTH = 128,    /* none of whose sums is longer: not worth loading a library of 500 MB */
    TILE = 64,            /* as in matmul.cu */
    THREADS = 256,
};

/* ---- for the library ---- */

enum { Y, X, W, OPERANDS };

/* The dims of one role. Strides in elements; 0 in the operand that does not have the role. */
typedef struct Group {
    int32_t rank;
    int64_t dims[K_MAX_RANK], strides[OPERANDS][K_MAX_RANK];
} Group;

typedef struct Side {
    const KTensor *t;
    const uint8_t *roles;
} Side;

static void sides_of(const KArgs *a, Side side[OPERANDS]) {
    const KMatmul *r = a->attr;
    side[Y] = (Side){&a->out[0], r->y};
    side[X] = (Side){&a->in[0], r->x};
    side[W] = (Side){&a->in[1], r->w};
}

static Group group_of(const Side side[OPERANDS], KRole role) {
    Group g = {0};
    for (int o = 0; o < OPERANDS; o++) {
        const KTensor *t = side[o].t;
        int32_t rank = 0;
        for (int d = 0; d < t->rank; d++) {
            if (side[o].roles[d] != role) continue;
            g.dims[rank] = t->dims[d];
            g.strides[o][rank++] = t->strides[d] / cuda_size(t->dtype);
        }
        if (rank) g.rank = rank;
    }
    int first = role == K_K ? X : Y;
    cuda_sort_dims(g.rank, g.dims, OPERANDS - first, g.strides + first);
    g.rank = cuda_collapse(g.rank, g.dims, OPERANDS, g.strides);
    return g;
}

/* Whether one of the two directions has its elements next to each other, and the other passes over
 * them: a matrix of the library. Along a direction of one element there is no step. */
static int as_matrix(int64_t rows, int64_t columns, int64_t down, int64_t right, CudaMatrix *to) {
    int plain = (columns == 1 || right == 1) && (rows == 1 || down >= columns);
    int turned = (rows == 1 || down == 1) && (columns == 1 || right >= rows);
    if (!plain && !turned) return 0;
    to->transposed = turned && (!plain || columns == 1);
    if (to->transposed)
        to->leading = columns == 1 ? rows : right;
    else
        to->leading = rows == 1 ? columns : down;
    return 1;
}

static int64_t size_of(const Group *g, int d) {
    return d < g->rank ? g->dims[d] : 1;
}
static int64_t stride_of(const Group *g, int o, int d) {
    return d < g->rank ? g->strides[o][d] : 0;
}

static void push(Group *to, const Group *g, int d) {
    for (int o = 0; o < OPERANDS; o++) to->strides[o][to->rank] = g->strides[o][d];
    to->dims[to->rank++] = g->dims[d];
}

/* The dims of `around` as batch dims: the longest that goes up everywhere is the library's own, the
 * others are calls of their own. Returns how many calls. */
static int64_t set_batch(CudaProduct *q, CudaMatrix *const matrix[OPERANDS], const Group *around) {
    int64_t calls = 1;
    int own = -1;
    for (int d = 0; d < around->rank; d++) {
        int up = 1;
        for (int o = 0; o < OPERANDS; o++) up = up && around->strides[o][d] >= 0;
        if (up && (own < 0 || around->dims[d] > around->dims[own])) own = d;
    }
    q->batch = own < 0 ? 1 : around->dims[own];
    q->rank = 0;
    for (int d = 0; d < around->rank; d++) {
        if (d != own) q->dims[q->rank] = around->dims[d], calls *= around->dims[d];
        for (int o = 0; o < OPERANDS; o++) {
            int64_t *to = d == own ? &matrix[o]->batch : &matrix[o]->strides[q->rank];
            *to = around->strides[o][d];
        }
        q->rank += d != own;
    }
    return calls;
}

/* With dim i of M as the rows and dim j of N as the columns; their other dims are batch dims then.
 * Returns how many calls that takes, 0: it cannot be. */
static int64_t split(const Group group[], int i, int j, CudaProduct *q) {
    const Group *m = &group[K_M], *n = &group[K_N], *k = &group[K_K];
    CudaMatrix *const matrix[OPERANDS] = {&q->y, &q->x, &q->w};
    Group around = group[K_BATCH];
    for (int d = 0; d < m->rank; d++)
        if (d != i) push(&around, m, d);
    for (int d = 0; d < n->rank; d++)
        if (d != j) push(&around, n, d);
    *q = (CudaProduct){.m = size_of(m, i), .n = size_of(n, j), .k = size_of(k, 0)};
    if (!as_matrix(q->m, q->k, stride_of(m, X, i), stride_of(k, X, 0), &q->x) ||
        !as_matrix(q->k, q->n, stride_of(k, W, 0), stride_of(n, W, j), &q->w) ||
        !as_matrix(q->m, q->n, stride_of(m, Y, i), stride_of(n, Y, j), &q->y))
        return 0;
    return set_batch(q, matrix, &around);
}

static int is_wide_float(DType t) {
    return t == DT_F32 || t == DT_F64;
}

static int64_t count_of(const KTensor *t, const uint8_t *roles, KRole role) {
    int64_t n = 1;
    for (int d = 0; d < t->rank; d++)
        if (roles[d] == role) n *= t->dims[d];
    return n;
}

/* Whether the library could make it, and how: with the fewest calls, of the largest matrices. */
static int for_library(const KArgs *a, CudaProduct *best) {
    DType in = a->in[0].dtype, out = a->out[0].dtype;
    Side side[OPERANDS];
    Group group[4];
    int64_t least = MAX_CALLS + 1;
    if (in < DT_BF16 || (is_wide_float(in) && in != out)) return 0;
    sides_of(a, side);
    for (int r = K_BATCH; r <= K_K; r++) group[r] = group_of(side, (KRole)r);
    if (group[K_K].rank > 1) return 0;
    for (int i = 0; i < group[K_M].rank || i == 0; i++)
        for (int j = 0; j < group[K_N].rank || j == 0; j++) {
            CudaProduct q;
            int64_t calls = split(group, i, j, &q);
            if (!calls || calls > least) continue;
            if (calls == least && q.m * q.n <= best->m * best->n) continue;
            *best = q;
            least = calls;
        }
    best->x.operand = 0, best->w.operand = 1, best->y.operand = 2;
    best->in = in, best->out = out;
    best->after.alpha = 1;
    return least <= MAX_CALLS;
}

int k_cuda_library_product(const KArgs *a, CudaProduct *q) {
    const KTensor *x = &a->in[0], *y = &a->out[0];
    const KMatmul *r = a->attr;
    int64_t depth = count_of(x, r->x, K_K);
    double work = 2.0 * (double)cuda_count(y) * (double)depth;
    int small = work == 0 || (work <= SMALL_WORK && depth <= SMALL_DEPTH);
    return !small && for_library(a, q);
}

/* ---- for matmul.cu ---- */

typedef struct Operand { /* each of the roles that it has: its rows', its columns' */
    CudaView batch, row, column;
} Operand;

typedef struct Params { /* Product in matmul.cu */
    Operand x, w, y;
    int64_t batch, m, n, k;
} Params;

static CudaView view_of(const KTensor *t, const uint8_t *roles, KRole role) {
    int64_t dims[K_MAX_RANK], strides[1][K_MAX_RANK];
    int rank = 0;
    for (int d = 0; d < t->rank; d++) {
        if (roles[d] != role) continue;
        dims[rank] = t->dims[d];
        strides[0][rank++] = t->strides[d];
    }
    return cuda_view(cuda_collapse(rank, dims, 1, strides), dims, strides[0]);
}

static Operand operand_of(const KTensor *t, const uint8_t *roles, KRole row, KRole column) {
    return (Operand){view_of(t, roles, K_BATCH), view_of(t, roles, row), view_of(t, roles, column)};
}

static void own_kernel(const KArgs *a, Launches *p, const Params *q) {
    static const char *const sums[DT_COUNT] = {
        [DT_BOOL] = "u32",  [DT_U8] = "u32",     [DT_U16] = "u32",    [DT_U32] = "u32",
        [DT_U64] = "u64",   [DT_I8] = "u32",     [DT_I16] = "u32",    [DT_I32] = "u32",
        [DT_I64] = "u64",   [DT_E4M3] = "float", [DT_E5M2] = "float", [DT_BF16] = "float",
        [DT_F16] = "float", [DT_F32] = "float",  [DT_F64] = "double",
    };
    int64_t tiles = cuda_ceil_div(q->m, TILE) * cuda_ceil_div(q->n, TILE) * q->batch;
    cuda_launch(p, "matmul.cu", "matmul", tiles < INT32_MAX ? tiles : INT32_MAX, THREADS);
    cuda_define_type(p, "IN", a->in[0].dtype);
    cuda_define_type(p, "OUT", a->out[0].dtype);
    cuda_define(p, "SUM", "%s", sums[a->in[0].dtype]);
    cuda_operand(p, 0);
    cuda_operand(p, 1);
    cuda_operand(p, 2);
    cuda_bytes(p, q, sizeof *q);
}

static int matmul(const KArgs *a, Launches *p) {
    const KTensor *x = &a->in[0], *w = &a->in[1], *y = &a->out[0];
    const KMatmul *r = a->attr;
    Params q = {.x = operand_of(x, r->x, K_M, K_K),
                .w = operand_of(w, r->w, K_K, K_N),
                .y = operand_of(y, r->y, K_M, K_N),
                .batch = count_of(y, r->y, K_BATCH),
                .m = count_of(y, r->y, K_M),
                .n = count_of(y, r->y, K_N),
                .k = count_of(x, r->x, K_K)};
    CudaProduct l;
    if (cuda_count(y) == 0) return 1;
    if (!k_cuda_library_product(a, &l) || !cuda_product(p, &l)) own_kernel(a, p, &q);
    return 1;
}

const CudaRow k_cuda_rows_matmul[] = {{"matmul", matmul}, {NULL, NULL}};
