/* linalg.c - factors of matrices, the last two dims, and what is solved with them. The gradients
 * are formulas of ops, so they have gradients themselves: of Cholesky's factor by Murray,
 * "Differentiation of the Cholesky decomposition" (2016), of the others the transposes of what
 * jax/_src/lax/linalg.py has forwards; see also Townsend, "Differentiating the singular value
 * decomposition" (2016). */
#include "op/op.h"

#define CT (a->ct)

/* A workspace of LAPACK's is counted in int: svd's is 4 n^2. */
enum { MOST = 16384 };

typedef struct FullMatrixAttr {
    int32_t full;
} FullMatrixAttr;

static const AttrField triangular_fields[] = {ATTR_FIELD(KTriangular, ATTR_BOOL, right),
                                              ATTR_FIELD(KTriangular, ATTR_BOOL, lower),
                                              ATTR_FIELD(KTriangular, ATTR_BOOL, transpose),
                                              ATTR_FIELD(KTriangular, ATTR_BOOL, unit),
                                              {0}};
static const AttrField full_fields[] = {ATTR_FIELD(FullMatrixAttr, ATTR_BOOL, full), {0}};

/* ---- shapes --------------------------------------------------------------------------------- */
static int64_t rows_of(const Dims *d) {
    return d->at[d->rank - 2];
}
static int64_t columns_of(const Dims *d) {
    return d->at[d->rank - 1];
}
static int64_t least(const Dims *d) {
    return rows_of(d) < columns_of(d) ? rows_of(d) : columns_of(d);
}

static Err check_matrices(const OpArgs *a, bool square) {
    const Dims *x = &a->in[0]->dims;
    for (int i = 0; i < a->nin; i++) {
        DType t = a->in[i]->dtype;
        if (t != DT_F32 && t != DT_F64)
            return op_error(a, E_DTYPE,
                            "matrices are of float32 or float64, not %s; x:astype \"float32\"",
                            dtype_name(t));
        if (a->in[i]->dims.rank < 2)
            return op_error(a, E_SHAPE, "a matrix has two dims, and further ones in front of them");
    }
    if (square && rows_of(x) != columns_of(x))
        return op_error(a, E_SHAPE, "the matrix must be square, not %lld by %lld",
                        (long long)rows_of(x), (long long)columns_of(x));
    if (rows_of(x) > MOST || columns_of(x) > MOST)
        return op_error(a, E_SHAPE, "a matrix has at most %d rows and columns", MOST);
    return E_OK;
}

/* x's batch dims, and those behind them. */
static OutType like(const OpArgs *a, DType dtype, int n, int64_t first, int64_t second) {
    OutType t = {.dtype = dtype, .dims = a->in[0]->dims};
    t.dims.rank -= 2;
    t.dims.at[t.dims.rank] = t.dims.at[t.dims.rank + 1] = 0;
    if (n > 0) dims_push(&t.dims, first);
    if (n > 1) dims_push(&t.dims, second);
    return t;
}

static Err shape_cholesky(const OpArgs *a, OutType *out, int *nout) {
    TRY(check_matrices(a, true));
    return op_shape_same(a, out, nout);
}

static Err shape_triangular_solve(const OpArgs *a, OutType *out, int *nout) {
    const KTriangular *t = a->attr;
    TRY(check_matrices(a, true));
    const Dims *x = &a->in[0]->dims, *b = &a->in[1]->dims;
    bool ok = a->in[0]->dtype == a->in[1]->dtype && x->rank == b->rank;
    for (int d = 0; ok && d < x->rank - 2; d++) ok = x->at[d] == b->at[d];
    if (!ok) return op_error(a, E_SHAPE, "a and b must have one dtype and the same dims in front");
    int64_t size = t->right ? columns_of(b) : rows_of(b);
    if (size != rows_of(x))
        return op_error(a, E_SHAPE, "b must have as many %s as a has rows: %lld, not %lld",
                        t->right ? "columns" : "rows", (long long)rows_of(x), (long long)size);
    if (rows_of(b) > INT32_MAX || columns_of(b) > INT32_MAX)
        return op_error(a, E_SHAPE, "b has more rows or columns than LAPACK counts");
    out[0] = (OutType){.dtype = a->in[1]->dtype, .dims = *b};
    return E_OK;
}

static Err shape_lu(const OpArgs *a, OutType *out, int *nout) {
    TRY(check_matrices(a, false));
    const Dims *x = &a->in[0]->dims;
    out[0] = like(a, a->in[0]->dtype, 2, rows_of(x), columns_of(x));
    out[1] = like(a, DT_I32, 1, least(x), 0);
    out[2] = like(a, DT_I32, 1, rows_of(x), 0);
    return E_OK;
}

static Err shape_qr(const OpArgs *a, OutType *out, int *nout) {
    TRY(check_matrices(a, false));
    const Dims *x = &a->in[0]->dims;
    int64_t k = ((const FullMatrixAttr *)a->attr)->full ? rows_of(x) : least(x);
    out[0] = like(a, a->in[0]->dtype, 2, rows_of(x), k);
    out[1] = like(a, a->in[0]->dtype, 2, k, columns_of(x));
    return E_OK;
}

static Err shape_eigh(const OpArgs *a, OutType *out, int *nout) {
    TRY(check_matrices(a, true));
    int64_t n = rows_of(&a->in[0]->dims);
    out[0] = like(a, a->in[0]->dtype, 1, n, 0);
    out[1] = like(a, a->in[0]->dtype, 2, n, n);
    return E_OK;
}

static Err shape_svd(const OpArgs *a, OutType *out, int *nout) {
    TRY(check_matrices(a, false));
    const Dims *x = &a->in[0]->dims;
    bool full = ((const FullMatrixAttr *)a->attr)->full;
    out[0] = like(a, a->in[0]->dtype, 2, rows_of(x), full ? rows_of(x) : least(x));
    out[1] = like(a, a->in[0]->dtype, 1, least(x), 0);
    out[2] = like(a, a->in[0]->dtype, 2, full ? columns_of(x) : least(x), columns_of(x));
    return E_OK;
}

/* ---- sharding: matrices are whole ------------------------------------------------------------ */
static void map_batch(FactorRule *r, const Dims *x) {
    for (int d = 0; d < x->rank - 2; d++) {
        int f = factor_add(r, FACTOR_PASS, x->at[d]);
        for (int t = 0; t < r->ntensor; t++) factor_map(r, t, d, f);
    }
}

static void map_whole(FactorRule *r, int tensor, const Dims *dims, int from) {
    for (int d = from; d < dims->rank; d++)
        factor_map(r, tensor, d, factor_add(r, FACTOR_REPLICATE, dims->at[d]));
}

static void factors(const OpArgs *a, const Type *const *out, FactorRule *r) {
    const Dims *x = &a->in[0]->dims;
    map_batch(r, x);
    map_whole(r, 0, x, x->rank - 2);
    for (int i = 0; i < a->def->nout; i++) map_whole(r, 1 + i, &out[i]->dims, x->rank - 2);
}

/* What is solved for is in parts of its own. */
static void factors_triangular_solve(const OpArgs *a, const Type *const *out, FactorRule *r) {
    const Dims *x = &a->in[0]->dims, *b = &a->in[1]->dims;
    int each = ((const KTriangular *)a->attr)->right ? x->rank - 2 : x->rank - 1;
    map_batch(r, x);
    map_whole(r, 0, x, x->rank - 2);
    for (int d = x->rank - 2; d < x->rank; d++) {
        int f = factor_add(r, d == each ? FACTOR_PASS : FACTOR_REPLICATE, b->at[d]);
        factor_map(r, 1, d, f);
        factor_map(r, 2, d, f);
    }
}

/* As many for each element as the matrix has rows or columns; a factor's share is not counted. */
static double flops(const OpArgs *a, const Type *const *out) {
    const Type *x = a->in[a->nin - 1];
    return 2.0 * (double)type_count(x) * (double)least(&a->in[0]->dims);
}

/* ---- formulas ------------------------------------------------------------------------------- */
static Val product(Build *b, Val x, bool x_turned, Val w, bool w_turned) {
    int r = op_dims(b, x).rank;
    MatmulAttr m = {0};
    for (int d = 0; d < r - 2; d++) {
        dims_push(&m.x_batch, d);
        dims_push(&m.w_batch, d);
    }
    dims_push(&m.x_contract, x_turned ? r - 2 : r - 1);
    dims_push(&m.w_contract, w_turned ? r - 1 : r - 2);
    return build_op(b, OP_MATMUL, (Val[]){x, w}, 2, &m);
}

static Val turned(Build *b, Val x) {
    int r = op_dims(b, x).rank;
    Dims perm = {.rank = r};
    for (int d = 0; d < r; d++) perm.at[d] = d < r - 2 ? d : 2 * r - 3 - d;
    return op_transpose(b, x, &perm);
}

/* bool of x's dims: the row compared with the column. */
static Val against(Build *b, int compare, Val x) {
    Dims dims = op_dims(b, x);
    Val row = build_op(b, OP_IOTA, NULL, 0, &(IotaAttr){DT_I32, dims, dims.rank - 2});
    Val column = build_op(b, OP_IOTA, NULL, 0, &(IotaAttr){DT_I32, dims, dims.rank - 1});
    return op2(b, compare, row, column);
}

/* Zeros where row and column do not compare so: OP_GE leaves the lower triangle. */
static Val part(Build *b, int compare, Val x) {
    return op3(b, OP_WHERE, against(b, compare, x), x, op_const_like(b, x, 0));
}

static Val scaled(Build *b, Val x, double by) {
    return op2(b, OP_MUL, x, op_const_like(b, x, by));
}

/* Of two that may be 0. */
static Val sum(Build *b, Val x, Val y) {
    return x && y ? op2(b, OP_ADD, x, y) : x ? x : y;
}

/* What a function of symmetric matrices gives back. */
static Val symmetric(Build *b, Val x) {
    return scaled(b, op2(b, OP_ADD, x, turned(b, x)), 0.5);
}

/* A vector of rows (dim 2 from behind) or columns (1) as a matrix of the dims of `wide`. */
static Val spread(Build *b, Val vector, int from_behind, Val wide) {
    Dims dims = op_dims(b, wide), at = {0};
    for (int d = 0; d < dims.rank - 2; d++) dims_push(&at, d);
    dims_push(&at, dims.rank - from_behind);
    return op_broadcast(b, vector, &dims, &at);
}

static Val solve(Build *b, Val a, Val x, bool right, bool lower, bool transpose, bool unit) {
    return build_op(b, OP_TRIANGULAR_SOLVE, (Val[]){a, x}, 2,
                    &(KTriangular){right, lower, transpose, unit});
}

/* ---- gradients ------------------------------------------------------------------------------ */
static void vjp_cholesky(Build *b, const VjpArgs *a) {
    Val l = a->out[0], m = product(b, l, true, CT[0], false);
    Val phi = op2(b, OP_SUB, part(b, OP_GE, m), scaled(b, part(b, OP_EQ, m), 0.5));
    Val s = solve(b, l, solve(b, l, phi, false, true, true, false), true, true, false, false);
    a->din[0] = symmetric(b, s);
}

static void vjp_triangular_solve(Build *b, const VjpArgs *a) {
    const KTriangular *t = a->node->attr;
    Val x = a->out[0], w = solve(b, a->in[0], CT[0], t->right, t->lower, !t->transpose, t->unit);
    a->din[1] = w;
    if (!(a->wanted & 1)) return;
    bool swap = t->right ? !t->transpose : t->transpose;
    Val outer = product(b, swap ? x : w, t->right, swap ? w : x, !t->right);
    int compare = t->lower ? (t->unit ? OP_GT : OP_GE) : (t->unit ? OP_LT : OP_LE);
    a->din[0] = part(b, compare, op1(b, OP_NEG, outer));
}

/* Rows (dim 2 from behind) or columns (1) cut off, or zeros added. */
static Val resized(Build *b, Val x, int from_behind, int64_t size) {
    if (b->err) return 0; /* then x may be none, and has no dims */
    Dims dims = op_dims(b, x), none = {.rank = dims.rank}, step = none, high = none;
    int d = dims.rank - from_behind;
    int64_t n = dims.at[d];
    if (n == size) return x;
    for (int i = 0; i < dims.rank; i++) step.at[i] = 1;
    dims.at[d] = size;
    high.at[d] = size - n;
    if (size < n) return build_op(b, OP_SLICE, &x, 1, &(SliceAttr){none, dims, step});
    Val zero = op_scalar(b, op_dtype(b, x), attr_scalar_float(0));
    return build_op(b, OP_PAD, (Val[]){x, zero}, 2, &(PadAttr){none, high, none});
}

/* dlu = l tril(z, -1) + triu(z) u, z = l^-1 dx[permutation] u^-1, with l and u made square by ones
 * on their diagonals. */
static void vjp_lu(Build *b, const VjpArgs *a) {
    Val lu = a->out[0], ct = CT[0];
    if (!ct) return;
    Dims dims = op_dims(b, lu);
    Val l = part(b, OP_GT, resized(b, resized(b, lu, 1, least(&dims)), 1, rows_of(&dims)));
    Val u = part(b, OP_LE, resized(b, resized(b, lu, 2, least(&dims)), 2, columns_of(&dims)));
    Val one = op_astype(b, against(b, OP_EQ, u), op_dtype(b, u)), row = one;
    if (columns_of(&dims) > rows_of(&dims)) {
        Dims square = op_dims(b, u);
        row = build_op(b, OP_IOTA, NULL, 0, &(IotaAttr){DT_I32, square, square.rank - 2});
        Val beyond = op2(b, OP_GE, row, op_const_like(b, row, (double)rows_of(&dims)));
        u = op2(b, OP_ADD, u, op3(b, OP_WHERE, beyond, one, op_const_like(b, one, 0)));
    }
    Val z = op2(b, OP_ADD, part(b, OP_GT, op2(b, OP_ADD, product(b, l, true, ct, false), ct)),
                part(b, OP_LE, product(b, ct, false, u, true)));
    z = solve(b, u, solve(b, l, z, false, true, true, true), true, false, true, false);
    Val place = spread(b, a->out[2], 2, l);
    Dims of = op_dims(b, l);
    Val column = build_op(b, OP_IOTA, NULL, 0, &(IotaAttr){DT_I32, of, of.rank - 1});
    Val moves = op_astype(b, op2(b, OP_EQ, place, column), op_dtype(b, l));
    a->din[0] = product(b, moves, true, z, false);
}

/* Columns that complete a basis may be any that do. */
static bool has_gradient(Build *b, const VjpArgs *a, bool ok) {
    if (!ok)
        build_fail(b, err_set(b->g->cx, E_GRAD,
                              "%s: no gradient of complete factors of a matrix that is not square; "
                              "those that are as narrow as it have one",
                              op_def(a->node->op)->name));
    return ok;
}

/* Columns from that one on. */
static Val columns_from(Build *b, Val x, int64_t first) {
    if (b->err) return 0; /* as above */
    Dims dims = op_dims(b, x), start = {.rank = dims.rank}, step = start;
    for (int i = 0; i < dims.rank; i++) step.at[i] = 1;
    start.at[dims.rank - 1] = first;
    return build_op(b, OP_SLICE, &x, 1, &(SliceAttr){start, dims, step});
}

/* x = q r for as many columns as r has rows: ct of x. */
static Val qr_gradient(Build *b, Val q, Val r, Val dq, Val dr) {
    Val m = dr ? product(b, r, false, dr, true) : 0;
    if (dq) m = sum(b, m, op1(b, OP_NEG, product(b, dq, true, q, false)));
    Val both = op2(b, OP_ADD, part(b, OP_GE, m), turned(b, part(b, OP_GT, m)));
    Val rest = sum(b, dq, product(b, q, false, both, false));
    return solve(b, r, rest, true, false, true, false);
}

/* Further columns of a wide matrix: x2 = q r2. */
static void vjp_qr(Build *b, const VjpArgs *a) {
    Dims dims = op_dims(b, a->in[0]), q_dims = op_dims(b, a->out[0]);
    Val q = a->out[0], r = a->out[1], dq = CT[0], dr = CT[1], dx2 = 0;
    int64_t m = rows_of(&dims), n = columns_of(&dims);
    if (!has_gradient(b, a, columns_of(&q_dims) == least(&dims))) return;
    if (m < n && dr) {
        Val dr2 = columns_from(b, dr, m);
        dq = sum(b, dq, product(b, columns_from(b, a->in[0], m), false, dr2, true));
        dx2 = product(b, q, false, dr2, false);
        dr = resized(b, dr, 1, m);
    }
    Val dx = qr_gradient(b, q, resized(b, r, 1, least(&dims)), dq, dr);
    a->din[0] = dx2 ? build_op(b, OP_CONCAT, (Val[]){dx, dx2}, 2, &(AxisAttr){dims.rank - 1})
                    : resized(b, dx, 1, n);
}

/* x over the differences of numbers, or of their squares: that of its column less that of its row;
 * zeros on the diagonal. Equal numbers give what divides by zero gives. */
static Val over_differences(Build *b, Val numbers, bool squares, Val x) {
    Val column = spread(b, numbers, 1, x), row = spread(b, numbers, 2, x);
    Val by = op2(b, OP_SUB, column, row), on = against(b, OP_EQ, x);
    if (squares) by = op2(b, OP_MUL, by, op2(b, OP_ADD, column, row));
    by = op3(b, OP_WHERE, on, op_const_like(b, by, 1), by);
    return op3(b, OP_WHERE, on, op_const_like(b, x, 0), op2(b, OP_DIV, x, by));
}

static Val diagonal(Build *b, Val numbers, Val like_it) {
    return part(b, OP_EQ, spread(b, numbers, 2, like_it));
}

/* For changes that are symmetric, as in JAX; so is Cholesky's. */
static void vjp_eigh(Build *b, const VjpArgs *a) {
    Val v = a->out[1], inner = CT[0] ? diagonal(b, CT[0], v) : 0;
    if (CT[1])
        inner =
            sum(b, inner, over_differences(b, a->out[0], false, product(b, v, true, CT[1], false)));
    a->din[0] = product(b, product(b, v, false, inner, false), false, v, true);
}

/* u (f (u^T du - du^T u) s + ds + s f (v^T dv - dv^T v)) v^T, f one over the differences of s^2,
 * and what of du and dv is outside of the spaces that u and v span. */
static void vjp_svd(Build *b, const VjpArgs *a) {
    Val u = a->out[0], s = a->out[1], vt = a->out[2], inner = 0, outside = 0;
    Dims dims = op_dims(b, a->in[0]), u_dims = op_dims(b, u), vt_dims = op_dims(b, vt);
    int64_t k = least(&dims);
    if (!has_gradient(b, a, columns_of(&u_dims) == k && rows_of(&vt_dims) == k)) return;
    if (CT[0]) {
        Val m = product(b, u, true, CT[0], false);
        Val f = over_differences(b, s, true, op2(b, OP_SUB, m, turned(b, m)));
        inner = op2(b, OP_MUL, f, spread(b, s, 1, f));
        Val rest = op2(b, OP_SUB, CT[0], product(b, u, false, m, false));
        rest = op2(b, OP_DIV, rest, spread(b, s, 1, rest));
        if (rows_of(&dims) > k) outside = product(b, rest, false, vt, false);
    }
    if (CT[2]) {
        Val m = product(b, vt, false, CT[2], true);
        Val f = over_differences(b, s, true, op2(b, OP_SUB, m, turned(b, m)));
        inner = sum(b, inner, op2(b, OP_MUL, f, spread(b, s, 2, f)));
        Val rest = op2(b, OP_SUB, CT[2], product(b, m, true, vt, false));
        rest = op2(b, OP_DIV, rest, spread(b, s, 2, rest));
        if (columns_of(&dims) > k) outside = sum(b, outside, product(b, u, false, rest, false));
    }
    if (CT[1]) {
        Val to = product(b, u, true, u, false); /* for its dims */
        inner = sum(b, inner, diagonal(b, CT[1], to));
    }
    a->din[0] = sum(b, outside, product(b, product(b, u, false, inner, false), false, vt, false));
}

/* ---- rows ----------------------------------------------------------------------------------- */
const OpDef op_row_CHOLESKY = {
    .name = "cholesky",
    .operands = "x",
    .doc = "the lower triangle l of symmetric positive definite matrices x = l l^T; NaN of others",
    .nin = 1,
    .nout = 1,
    .shape = shape_cholesky,
    .vjp = vjp_cholesky,
    .batch = batch_leading,
    .factors = factors,
    .flops = flops,
    .kernel = "lapack_cholesky",
};

const OpDef op_row_TRIANGULAR_SOLVE = {
    .name = "triangular_solve",
    .operands = "a,b",
    .doc = "x of a x = b, or x a = b, for triangular a, or its transpose",
    .nin = 2,
    .nout = 1,
    OP_ATTR(KTriangular, triangular_fields),
    .shape = shape_triangular_solve,
    .vjp = vjp_triangular_solve,
    .batch = batch_leading,
    .factors = factors_triangular_solve,
    .flops = flops,
    .kernel = "lapack_triangular_solve",
    .linear = 2,
};

const OpDef op_row_LU = {
    .name = "lu",
    .operands = "x",
    .doc = "lower and upper triangle with x[permutation] = l u, in one matrix; pivots, permutation",
    .nin = 1,
    .nout = 3,
    .shape = shape_lu,
    .vjp = vjp_lu,
    .batch = batch_leading,
    .factors = factors,
    .flops = flops,
    .kernel = "lapack_lu",
};

const OpDef op_row_QR = {
    .name = "qr",
    .operands = "x",
    .doc = "orthonormal columns q and the upper triangle r with x = q r",
    .nin = 1,
    .nout = 2,
    OP_ATTR(FullMatrixAttr, full_fields),
    .shape = shape_qr,
    .vjp = vjp_qr,
    .batch = batch_leading,
    .factors = factors,
    .flops = flops,
    .kernel = "lapack_qr",
};

const OpDef op_row_EIGH = {
    .name = "eigh",
    .operands = "x",
    .doc = "eigenvalues, rising, and eigenvectors, as columns, of symmetric matrices",
    .nin = 1,
    .nout = 2,
    .shape = shape_eigh,
    .vjp = vjp_eigh,
    .batch = batch_leading,
    .factors = factors,
    .flops = flops,
    .kernel = "lapack_eigh",
};

const OpDef op_row_SVD = {
    .name = "svd",
    .operands = "x",
    .doc = "u, singular values s, falling, and vt with x = u diag(s) vt",
    .nin = 1,
    .nout = 3,
    OP_ATTR(FullMatrixAttr, full_fields),
    .shape = shape_svd,
    .vjp = vjp_svd,
    .batch = batch_leading,
    .factors = factors,
    .flops = flops,
    .kernel = "lapack_svd",
};
