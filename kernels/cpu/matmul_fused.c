/* matmul_fused.c - a matrix product and a program on its result (kernel.h, "matmul_fused").
 *
 * A unit computes a block of the product in the workspace, small enough to stay in a cache, and
 * runs the program over it before the next one. The program sees a block as tensors of fewer
 * positions: of y's dims it is a box, or a few of them, since a range of rows that spans a dim may
 * begin and end in the middle of it.
 */
#include "fused.h"
#include "matmul.h"

/* The operands of the program as it sees a box of y's dims: input 0 is the product. */
typedef struct Call {
    KArgs program;
    KTensor *in, *out;
    int64_t dims[K_MAX_RANK], origin[K_MAX_RANK], strides[K_MAX_RANK]; /* strides: the product's */
    int first[3]; /* y's first dim of the rows, of the columns, and the rank */
} Call;

static DType dtype_of(KType t) {
    static const uint8_t dtype[KT_COUNT] = {DT_F32, DT_F64, DT_I32, DT_U32, DT_I64};
    return (DType)dtype[t];
}

static void find_groups(Call *c, const KArgs *a) {
    const KMatmul *roles = a->attr;
    int rank = a->out[0].rank, d = 0;
    while (d < rank && roles->y[d] == K_BATCH) d++;
    c->first[0] = d;
    while (d < rank && roles->y[d] == K_M) d++;
    c->first[1] = d;
    c->first[2] = rank;
}

/* The largest box of the dims [first, end) that begins at row-major position i and has at most n
 * positions: one place of the outer dims, a range of one dim, all of the inner ones. Returns its
 * positions. */
static int64_t take_box(const int64_t *dims, int first, int end, int64_t i, int64_t n,
                        int64_t *origin, int64_t *box) {
    int64_t inner = 1;
    for (int d = first; d < end; d++) box[d] = 1;
    for (int d = end - 1; d >= first; i /= dims[d], d--) origin[d] = i % dims[d];
    int d = end - 1;
    for (; d > first && origin[d] == 0 && inner * dims[d] <= n; d--) {
        box[d] = dims[d];
        inner *= dims[d];
    }
    if (d < first) return 1;
    box[d] = k_min(dims[d] - origin[d], n / inner);
    return inner * box[d];
}

/* A tensor of y's dims seen from the box's origin on. */
static KTensor narrow(const Call *c, const KTensor *t) {
    KTensor n = *t;
    n.dims = c->dims;
    for (int d = 0; d < t->rank; d++) n.data += c->origin[d] * t->strides[d];
    return n;
}

static void run_box(Call *c, const KArgs *a, char *product, DType dtype) {
    c->in[0] = (KTensor){product, c->dims, c->strides, c->first[2], dtype};
    for (int k = 2; k < a->nin; k++) c->in[k - 1] = narrow(c, &a->in[k]);
    for (int k = 0; k < a->nout; k++) c->out[k] = narrow(c, &a->out[k]);
    k_fused_run(&c->program, c->origin, 0, k_count(&c->out[0]));
}

/* Runs the program over a part whose product lies in `block`, row-major. */
static void run_program(Call *c, const KArgs *a, const Product *p, const Part *t, char *block) {
    const int64_t *dims = a->out[0].dims;
    int64_t stride = p->size;
    for (int d = c->first[2] - 1; d >= 0; d--) {
        if (d == c->first[1] - 1) stride = t->columns * p->size;
        c->strides[d] = stride;
        stride *= dims[d];
    }
    take_box(dims, 0, c->first[0], t->batch, 1, c->origin, c->dims);
    for (int64_t i = 0, rows; i < t->rows; i += rows) {
        rows =
            take_box(dims, c->first[0], c->first[1], t->row + i, t->rows - i, c->origin, c->dims);
        for (int64_t j = 0, columns; j < t->columns; j += columns) {
            columns = take_box(dims, c->first[1], c->first[2], t->column + j, t->columns - j,
                               c->origin, c->dims);
            run_box(c, a, block + (i * t->columns + j) * p->size, dtype_of(p->type));
        }
    }
}

/* ---- the kernel ----------------------------------------------------------------------------- */
static int64_t block_bytes(const Product *p) {
    return (k_min(p->rows, p->m) * k_min(p->columns, p->n) * p->size + 63) & ~(int64_t)63;
}

static int64_t tensor_bytes(const KArgs *a) {
    return ((a->nin + a->nout) * (int64_t)sizeof(KTensor) + 63) & ~(int64_t)63;
}

static int matmul_fused(const KArgs *a) {
    Product p = k_product(a, 0);
    Call c;
    char *block = k_align(a->workspace), *work = block + block_bytes(&p);
    c.in = (void *)(work + k_product_workspace(&p));
    c.out = c.in + a->nin - 1;
    c.program = *a;
    c.program.in = c.in;
    c.program.out = c.out;
    c.program.nin = a->nin - 1;
    c.program.attr = (const KMatmul *)a->attr + 1;
    c.program.workspace = (char *)c.in + tensor_bytes(a);
    find_groups(&c, a);
    for (int64_t u = a->lo; u < a->hi; u++) {
        Part t = k_product_part(&p, u);
        k_product_compute(&p, &t, (Block){block, t.columns, 1}, work);
        run_program(&c, a, &p, &t, block);
    }
    return 0;
}

static int64_t matmul_fused_units(const KArgs *a) {
    Product p = k_product(a, 0);
    return k_product_units(&p);
}

static size_t matmul_fused_workspace(const KArgs *a) {
    Product p = k_product(a, 0);
    KArgs program = *a;
    program.in = a->in + 1; /* w's elements are computed in the product's type */
    program.nin = a->nin - 1;
    program.attr = (const KMatmul *)a->attr + 1;
    return (size_t)(block_bytes(&p) + k_product_workspace(&p) + tensor_bytes(a)) +
           k_decode_bytes(&program) + 64;
}

K_ROWS(matmul_fused) = {
    {"matmul_fused", matmul_fused, matmul_fused_units, matmul_fused_workspace},
    {NULL, NULL, NULL, NULL},
};
