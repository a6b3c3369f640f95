/* matmul.c - y[batch, m, n] = sum over k of x[batch, m, k] * w[batch, k, n].
 *
 * Each of the four roles is a group of dims, in any order and of any strides; position i of a group
 * is row-major over its dims. A unit is a block of rows and columns of one batch matrix, chosen by
 * shape alone, and all of k. Where a group is one stride and the elements are what is computed
 * with, a unit reads and writes the operands themselves; else blocks are copied (and converted) to
 * the workspace. gemm.c multiplies float32 (where it has no wide vectors: BLAS, if there is one and
 * the product is large), BLAS float64, and the loops here the rest. */
#include <math.h>
#include "convert.h"
#include "gemm.h"
#include "view.h"

enum {
    BLOCK_K = 512,  /* of what is copied, where gemm.c does not say */
    MAX_ROWS = 256, /* of a unit; its part of w is packed once, so few rows are dear */
    MIN_ROWS = 64,
    MAX_COLUMNS = 288, /* of a unit: what gemm.c packs of w then fits the second level cache */
    MIN_COLUMNS = 128,
    MANY = 16,            /* units, if they are not too small for it: */
    UNIT_FLOPS = 1 << 22, /* about the least work of one */
    FEW = 4,              /* units in any case, if they are not so small: */
    LEAST_FLOPS = 1 << 20,
    BLAS_FLOPS = 1 << 18,
    ROW_MAJOR = 101,
    PLAIN = 111,
    TRANSPOSED = 112,
};

/* One group of one operand. */
typedef struct Axis {
    int64_t size, dims[K_MAX_RANK], strides[1][K_MAX_RANK];
    int rank; /* merged */
} Axis;

typedef struct Matrix {
    DType dtype;
    char *data;
    Axis batch, row, column;
} Matrix;

typedef struct Product {
    Matrix x, w, y;
    KType type;
    int64_t size; /* of an element of that type */
    int64_t batch, m, n, k;
    int64_t rows, columns, row_blocks, column_blocks; /* of a unit; units along m and n */
    int64_t step_k;                                   /* of k, at a time */
    int64_t x_bytes, w_bytes;                         /* of what is copied of x and w for that */
    const KBlas *blas;                                /* NULL: not for this product */
} Product;

/* A part of y: `rows` from `row` on and `columns` from `column` on of one batch matrix. */
typedef struct Part {
    int64_t batch, row, rows, column, columns;
} Part;

/* A block of a matrix: strides in elements. */
typedef struct Block {
    char *data;
    int64_t rs, cs;
} Block;

static Axis axis_of(const KTensor *t, const uint8_t *roles, KRole role) {
    Axis a = {.size = 1};
    for (int d = 0; d < t->rank; d++) {
        if (roles[d] != role) continue;
        a.strides[0][a.rank] = t->strides[d];
        a.dims[a.rank++] = t->dims[d];
        a.size *= t->dims[d];
    }
    a.rank = k_collapse(a.rank, a.dims, 1, a.strides);
    return a;
}

static Matrix matrix_of(const KTensor *t, const uint8_t *roles, KRole row, KRole column) {
    Matrix o = {t->dtype, t->data, axis_of(t, roles, K_BATCH), axis_of(t, roles, row),
                axis_of(t, roles, column)};
    return o;
}

static int64_t inner_stride(const Axis *a) {
    int64_t s = a->rank ? a->strides[0][a->rank - 1] : 0;
    return s < 0 ? -s : s;
}

static int64_t at(const Axis *a, int64_t i) {
    return k_offset(a->rank, a->dims, a->strides[0], i);
}

/* Whether y is better made as its transpose: its columns are then the ones next to each other, or
 * it is one row. */
static int suits_transposed(const Matrix *y) {
    int64_t size = k_dtype_size(y->dtype);
    if (y->column.size <= 1) return y->row.size > 1;
    return inner_stride(&y->column) != size && inner_stride(&y->row) == size;
}

/* (x w)^T = w^T x^T */
static void transpose(Product *p) {
    Matrix x = p->w, w = p->x;
    Axis t = x.row;
    x.row = x.column;
    x.column = t;
    t = w.row;
    w.row = w.column;
    w.column = t;
    t = p->y.row;
    p->y.row = p->y.column;
    p->y.column = t;
    p->x = x;
    p->w = w;
}

/* A part of n, one of the fewest of at most `most`, all about as long; whole vectors. */
static int64_t even_part(int64_t n, int64_t most, int64_t multiple) {
    int64_t part = k_ceil_div(n, k_max(1, k_ceil_div(n, most)));
    return k_max(multiple, k_ceil_div(part, multiple) * multiple);
}

static void cut(Product *p) {
    p->rows = even_part(p->m, MAX_ROWS, 8);
    p->columns = even_part(p->n, MAX_COLUMNS, 32);
    for (;;) {
        p->row_blocks = k_ceil_div(p->m, p->rows);
        p->column_blocks = k_ceil_div(p->n, p->columns);
        double columns = (double)k_min(p->columns, p->n);
        double flops = 2.0 * (double)k_min(p->rows, p->m) * columns * (double)p->k;
        int64_t units = p->batch * p->row_blocks * p->column_blocks;
        if (units >= MANY || flops < 2 * (units < FEW ? LEAST_FLOPS : UNIT_FLOPS)) return;
        if (p->columns >= 2 * MIN_COLUMNS && p->columns >= p->rows)
            p->columns = even_part(p->columns, p->columns / 2, 32);
        else if (p->rows >= 2 * MIN_ROWS)
            p->rows = even_part(p->rows, p->rows / 2, 8);
        else if (p->columns >= 2 * MIN_COLUMNS)
            p->columns = even_part(p->columns, p->columns / 2, 32);
        else
            return;
    }
}

/* ---- blocks of operands --------------------------------------------------------------------- */
/* The block where it lies, if both groups are one stride. */
static int block_lies(const Matrix *o, KType type, Block *b) {
    if (!k_dtype_native(o->dtype) || k_dtype_register(o->dtype) != type) return 0;
    if (o->row.rank > 1 || o->column.rank > 1) return 0;
    int64_t size = k_dtype_size(o->dtype);
    b->rs = o->row.rank ? o->row.strides[0][0] / size : 0;
    b->cs = o->column.rank ? o->column.strides[0][0] / size : 0;
    return 1;
}

/* Whether a matrix of this many rows and columns can be given to BLAS; makes the strides of dims of
 * size 1 what BLAS wants. */
static int blas_takes(Block *b, int64_t rows, int64_t columns) {
    if (columns == 1) b->cs = 1;
    if (rows == 1) b->rs = k_max(1, columns);
    if (b->cs == 1 && b->rs >= columns) return b->rs <= INT32_MAX;
    if (rows == 1) b->rs = 1;
    if (columns == 1) b->cs = k_max(1, rows);
    return b->rs == 1 && b->cs >= rows && b->cs <= INT32_MAX;
}

/* Whether a whole operand can be used where it lies, by BLAS or by gemm.c alike. */
static int lies(const Matrix *o, KType type) {
    Block b;
    return block_lies(o, type, &b) && blas_takes(&b, o->row.size, o->column.size);
}

/* n positions of an axis from i on, with `fixed` as the other axis's address. */
static char *copy_axis(const Matrix *o, const Axis *a, char *fixed, int64_t i, int64_t n,
                       char *to) {
    KLoadFn *load = k_load_fn(o->dtype);
    int64_t last = a->rank ? a->dims[a->rank - 1] : 1,
            size = k_type_size(k_dtype_register(o->dtype));
    int64_t stride = a->rank ? a->strides[0][a->rank - 1] : 0;
    for (int64_t run; n > 0; n -= run, i += run) {
        run = k_min(n, last - i % last);
        load(to, fixed + at(a, i), stride, run);
        to += run * size;
    }
    return to;
}

/* Copies a block to `to`, along the axis that is closer together in memory. */
static Block copy_block(const Matrix *o, char *base, int64_t r, int64_t rows, int64_t c,
                        int64_t columns, char *to) {
    Block b = {to, columns, 1};
    if (columns == 1 || (rows > 1 && inner_stride(&o->row) < inner_stride(&o->column))) {
        b.rs = 1;
        b.cs = rows;
        for (int64_t j = c; j < c + columns; j++)
            to = copy_axis(o, &o->row, base + at(&o->column, j), r, rows, to);
    } else {
        for (int64_t i = r; i < r + rows; i++)
            to = copy_axis(o, &o->column, base + at(&o->row, i), c, columns, to);
    }
    return b;
}

static Block get_block(const Product *p, const Matrix *o, char *base, int64_t r, int64_t rows,
                       int64_t c, int64_t columns, char *workspace) {
    Block b;
    if (!lies(o, p->type)) return copy_block(o, base, r, rows, c, columns, workspace);
    block_lies(o, p->type, &b);
    b.data = base + (r * b.rs + c * b.cs) * p->size;
    return b;
}

/* Writes a part that was computed in the workspace, row-major, to y's matrix at `base`. */
static void put_block(const Product *p, char *base, const Part *t, const char *from) {
    const Axis *a = &p->y.column;
    KStoreFn *store = k_store_fn(p->y.dtype);
    int64_t last = a->rank ? a->dims[a->rank - 1] : 1, end = t->column + t->columns;
    int64_t stride = a->rank ? a->strides[0][a->rank - 1] : 0;
    for (int64_t i = t->row; i < t->row + t->rows; i++) {
        char *row = base + at(&p->y.row, i);
        for (int64_t j = t->column, run; j < end; j += run) {
            run = k_min(end - j, last - j % last);
            store(row + at(a, j), stride, from, run);
            from += run * p->size;
        }
    }
}

/* ---- products of blocks --------------------------------------------------------------------- */
static void blas_product(const Product *p, int64_t m, int64_t n, int64_t k, Block a, Block b,
                         char *c, int64_t ldc, int accumulate) {
    blas_takes(&a, m, k);
    blas_takes(&b, k, n);
    int ta = a.cs == 1 && a.rs >= k ? PLAIN : TRANSPOSED;
    int tb = b.cs == 1 && b.rs >= n ? PLAIN : TRANSPOSED;
    int lda = (int)(ta == PLAIN ? a.rs : a.cs), ldb = (int)(tb == PLAIN ? b.rs : b.cs);
    if (p->type == KT_F32)
        p->blas->sgemm(ROW_MAJOR, ta, tb, (int)m, (int)n, (int)k, 1, (float *)(void *)a.data, lda,
                       (float *)(void *)b.data, ldb, (float)accumulate, (float *)(void *)c,
                       (int)ldc);
    else
        p->blas->dgemm(ROW_MAJOR, ta, tb, (int)m, (int)n, (int)k, 1, (double *)(void *)a.data, lda,
                       (double *)(void *)b.data, ldb, accumulate, (double *)(void *)c, (int)ldc);
}

/* Rows of c as sums of multiples of rows of b. */
#define PLAIN_PRODUCT(name, T, U, madd)                                                            \
    static void name(int64_t m, int64_t n, int64_t k, Block a, Block b, char *c, int64_t ldc,      \
                     int accumulate) {                                                             \
        for (int64_t i = 0; i < m; i++) {                                                          \
            T *restrict to = (T *)(void *)c + i * ldc;                                             \
            if (!accumulate) memset(to, 0, (size_t)n * sizeof *to);                                \
            for (int64_t l = 0; l < k; l++) {                                                      \
                U x = (U)((const T *)(void *)a.data)[i * a.rs + l * a.cs];                         \
                const T *restrict row = (const T *)(void *)b.data + l * b.rs;                      \
                if (b.cs == 1)                                                                     \
                    for (int64_t j = 0; j < n; j++) to[j] = (T)madd(x, (U)row[j], (U)to[j]);       \
                else                                                                               \
                    for (int64_t j = 0; j < n; j++)                                                \
                        to[j] = (T)madd(x, (U)row[j * b.cs], (U)to[j]);                            \
            }                                                                                      \
        }                                                                                          \
    }
#define WRAP(x, y, z) ((x) * (y) + (z))
PLAIN_PRODUCT(product_f64, double, double, fma)
PLAIN_PRODUCT(product_i32, uint32_t, uint32_t, WRAP)
PLAIN_PRODUCT(product_i64, uint64_t, uint64_t, WRAP)

static KMatrix matrix(Block b) {
    return (KMatrix){(const float *)(const void *)b.data, b.rs, b.cs};
}

/* k is at most p->step_k. */
static void multiply(const Product *p, int64_t m, int64_t n, int64_t k, Block a, Block b, char *c,
                     int64_t ldc, int accumulate, char *packed) {
    if (p->blas)
        blas_product(p, m, n, k, a, b, c, ldc, accumulate);
    else if (p->type == KT_F32 && p->m == 1)
        k_gemv(n, k, matrix(a), matrix(b), (float *)(void *)c, accumulate, packed);
    else if (p->type == KT_F32)
        k_gemm(m, n, k, matrix(a), matrix(b), (float *)(void *)c, ldc, accumulate, packed);
    else if (p->type == KT_F64)
        product_f64(m, n, k, a, b, c, ldc, accumulate);
    else if (p->size == 8)
        product_i64(m, n, k, a, b, c, ldc, accumulate);
    else
        product_i32(m, n, k, a, b, c, ldc, accumulate);
}

/* ---- parts of a product --------------------------------------------------------------------- */
static int64_t align(int64_t bytes) {
    return (bytes + 63) & ~(int64_t)63;
}

/* One row times columns that lie in one piece each: k_gemv reads these from end to end. */
static int is_dots(const Product *p) {
    Block b;
    return p->m == 1 && p->type == KT_F32 && block_lies(&p->w, p->type, &b) && b.rs == 1 &&
           b.cs != 1;
}

static Product product_of(const KArgs *a) {
    const KMatmul *roles = a->attr;
    Product p = {.x = matrix_of(&a->in[0], roles->x, K_M, K_K),
                 .w = matrix_of(&a->in[1], roles->w, K_K, K_N),
                 .y = matrix_of(&a->out[0], roles->y, K_M, K_N)};
    if (suits_transposed(&p.y)) transpose(&p);
    p.type = k_dtype_register(p.x.dtype);
    p.size = k_type_size(p.type);
    p.batch = p.y.batch.size;
    p.m = p.y.row.size;
    p.n = p.y.column.size;
    p.k = p.x.column.size;
    cut(&p);
    double flops = 2.0 * (double)p.m * (double)p.n * (double)p.k;
    if ((p.type == KT_F64 || (p.type == KT_F32 && !K_GEMM_WIDE)) && flops > BLAS_FLOPS)
        p.blas = a->blas;
    int x = lies(&p.x, p.type), w = lies(&p.w, p.type);
    p.step_k = p.type == KT_F32 ? k_gemm_chain(p.k) : x && w && p.k <= INT32_MAX ? p.k : BLOCK_K;
    p.step_k = is_dots(&p) ? p.k : k_min(p.step_k, p.k);
    p.x_bytes = x ? 0 : align(k_min(p.rows, p.m) * p.step_k * p.size);
    p.w_bytes = w ? 0 : align(p.step_k * k_min(p.columns, p.n) * p.size);
    return p;
}

/* What compute_part needs. */
static int64_t part_bytes(const Product *p) {
    int64_t packed = 0;
    if (p->type == KT_F32) /* also with BLAS, which may come after the plan */
        packed = k_max(k_gemm_bytes(k_min(p->rows, p->m), k_min(p->columns, p->n), p->step_k),
                       k_gemv_bytes(k_min(p->columns, p->n), p->step_k));
    return p->x_bytes + p->w_bytes + align(packed);
}

/* What unit u computes. */
static Part part_of(const Product *p, int64_t u) {
    int64_t block = u / p->column_blocks;
    Part t = {.batch = block / p->row_blocks,
              .row = block % p->row_blocks * p->rows,
              .column = u % p->column_blocks * p->columns};
    t.rows = k_min(p->rows, p->m - t.row);
    t.columns = k_min(p->columns, p->n - t.column);
    return t;
}

/* To c, whose column stride is 1. */
static void compute_part(const Product *p, const Part *t, Block c, char *workspace) {
    char *w_work = workspace + p->x_bytes, *packed = w_work + p->w_bytes;
    char *x = p->x.data + at(&p->x.batch, t->batch), *w = p->w.data + at(&p->w.batch, t->batch);
    for (int64_t i = 0; i < t->rows && p->k == 0; i++)
        memset(c.data + i * c.rs * p->size, 0, (size_t)(t->columns * p->size));
    for (int64_t l = 0; l < p->k; l += p->step_k) {
        int64_t depth = k_min(p->step_k, p->k - l);
        Block a = get_block(p, &p->x, x, t->row, t->rows, l, depth, workspace);
        Block b = get_block(p, &p->w, w, l, depth, t->column, t->columns, w_work);
        multiply(p, t->rows, t->columns, depth, a, b, c.data, c.rs, l > 0, packed);
    }
}

/* ---- the kernel ----------------------------------------------------------------------------- */
/* Whether y's rows can be computed where they lie. */
static int writes_in_place(const Product *p, Block *b) {
    return block_lies(&p->y, p->type, b) && (b->cs == 1 || p->n == 1) &&
           (b->rs >= p->n || p->m == 1) && b->rs <= INT32_MAX;
}

static int64_t y_bytes(const Product *p) {
    Block b;
    return writes_in_place(p, &b) ? 0
                                  : align(k_min(p->rows, p->m) * k_min(p->columns, p->n) * p->size);
}

static void run_part(const Product *p, const Part *t, char *workspace) {
    char *y = p->y.data + at(&p->y.batch, t->batch);
    Block c;
    if (writes_in_place(p, &c)) {
        c.data = y + (t->row * c.rs + t->column) * p->size;
        if (p->m == 1) c.rs = t->columns;
        compute_part(p, t, c, workspace);
    } else {
        c = (Block){workspace, t->columns, 1};
        compute_part(p, t, c, workspace + y_bytes(p));
        put_block(p, y, t, workspace);
    }
}

static int matmul(const KArgs *a) {
    Product p = product_of(a);
    for (int64_t u = a->lo; u < a->hi; u++) {
        Part t = part_of(&p, u);
        run_part(&p, &t, k_align(a->workspace));
    }
    return 0;
}

static int64_t matmul_units(const KArgs *a) {
    Product p = product_of(a);
    return p.batch * p.row_blocks * p.column_blocks;
}

static size_t matmul_workspace(const KArgs *a) {
    Product p = product_of(a);
    return (size_t)(y_bytes(&p) + part_bytes(&p)) + 64;
}

K_ROWS(matmul) = {
    {"matmul", matmul, matmul_units, matmul_workspace},
    {NULL, NULL, NULL, NULL},
};
