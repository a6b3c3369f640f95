/* linalg.c - LAPACK's factors of matrices, each in a copy of its own, column by column. What they
 * compute is defined by LAPACK, so these rows are those of all levels, the naive one as well. */
#include <math.h>
#include "view.h"

/* Of how many elements each piece of a thread's workspace is, behind which its address. */
typedef struct Rooms {
    int64_t a, b, c, s, work, ints;
} Rooms;
typedef struct Places {
    char *a, *b, *c, *s, *work;
    int *ints;
} Places;

static int64_t piece(int64_t n, int64_t size) {
    return (n * size + 15) & ~(int64_t)15;
}

static int64_t element(const KArgs *a) {
    return k_dtype_size(a->in[0].dtype);
}

static size_t rooms_bytes(const KArgs *a, Rooms r) {
    int64_t n = element(a);
    return (size_t)(piece(r.a, n) + piece(r.b, n) + piece(r.c, n) + piece(r.s, n) +
                    piece(r.work, n) + piece(r.ints, sizeof(int)));
}

static Places places_of(const KArgs *a, Rooms r) {
    int64_t n = element(a);
    Places p = {.a = a->workspace};
    p.b = p.a + piece(r.a, n);
    p.c = p.b + piece(r.b, n);
    p.s = p.c + piece(r.c, n);
    p.work = p.s + piece(r.s, n);
    p.ints = (int *)(void *)(p.work + piece(r.work, n));
    return p;
}

static const KLapack *lapack(const KArgs *a) {
    return &a->blas->lapack[a->in[0].dtype == DT_F64];
}

static int rows_of(const KTensor *t) {
    return (int)t->dims[t->rank - 2];
}
static int columns_of(const KTensor *t) {
    return (int)t->dims[t->rank - 1];
}
/* LAPACK wants leading dims of at least 1. */
static int at_least_1(int n) {
    return n > 1 ? n : 1;
}

static int64_t matrix_units(const KArgs *a) {
    int64_t n = 1;
    for (int d = 0; d < a->in[0].rank - 2; d++) n *= a->in[0].dims[d];
    return n;
}

/* Element i of a piece of such elements. */
static double get(const KArgs *a, const char *p, int64_t i) {
    return element(a) == 8 ? ((const double *)(const void *)p)[i]
                           : (double)((const float *)(const void *)p)[i];
}
static void set(const KArgs *a, char *p, int64_t i, double x) {
    if (element(a) == 8)
        ((double *)(void *)p)[i] = x;
    else
        ((float *)(void *)p)[i] = (float)x;
}
static void set_all(const KArgs *a, char *p, int64_t n, double x) {
    for (int64_t i = 0; i < n; i++) set(a, p, i, x);
}

/* Matrix u of a tensor, between its own place and a piece where columns are `lead` long; with 1
 * dim less, a vector. */
static void move(const KTensor *t, int64_t u, char *p, int lead, int matrix, int store) {
    int outer = t->rank - 1 - matrix;
    int64_t rs = t->strides[outer], cs = matrix ? t->strides[outer + 1] : 0;
    int64_t m = t->dims[outer], n = matrix ? t->dims[outer + 1] : 1, size = k_dtype_size(t->dtype);
    char *at = t->data + k_offset(outer, t->dims, t->strides, u);
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < m; i++) {
            char *own = at + i * rs + j * cs, *copy = p + (j * lead + i) * size;
            if (size == 8)
                memcpy(store ? own : copy, store ? copy : own, 8);
            else
                memcpy(store ? own : copy, store ? copy : own, 4);
        }
}
static void load(const KTensor *t, int64_t u, char *p) {
    move(t, u, p, rows_of(t), 1, 0);
}
static void store(const KTensor *t, int64_t u, char *p, int lead) {
    move(t, u, p, lead, 1, 1);
}
static void store_vector(const KTensor *t, int64_t u, char *p) {
    move(t, u, p, 0, 0, 1);
}

static int is_finite(const KArgs *a, const char *p, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(get(a, p, i))) return 0;
    return 1;
}

/* Zeros above the diagonal, or below it. */
static void clear(const KArgs *a, char *p, int rows, int columns, int above) {
    for (int64_t j = 0; j < columns; j++)
        for (int64_t i = above ? 0 : j + 1; i < (above && j < rows ? j : rows); i++)
            set(a, p, j * rows + i, 0);
}

/* ---- cholesky ---- */
static Rooms cholesky_rooms(const KArgs *a) {
    int64_t n = rows_of(&a->in[0]);
    return (Rooms){.a = n * n};
}

static int cholesky(const KArgs *a) {
    Places p = places_of(a, cholesky_rooms(a));
    int n = rows_of(&a->in[0]), lead = at_least_1(n);
    for (int64_t u = a->lo; u < a->hi; u++) {
        int info = 0;
        load(&a->in[0], u, p.a);
        lapack(a)->potrf("L", &n, p.a, &lead, &info, 1);
        if (info) set_all(a, p.a, (int64_t)n * n, NAN);
        clear(a, p.a, n, n, 1);
        store(&a->out[0], u, p.a, n);
    }
    return 0;
}

/* ---- triangular_solve ---- */
static Rooms triangular_rooms(const KArgs *a) {
    const KTensor *x = &a->in[0], *b = &a->in[1];
    return (Rooms){.a = (int64_t)rows_of(x) * columns_of(x),
                   .b = (int64_t)rows_of(b) * columns_of(b)};
}

static int triangular_solve(const KArgs *a) {
    static const float one = 1;
    static const double one_wide = 1;
    const KTriangular *t = a->attr;
    Places p = places_of(a, triangular_rooms(a));
    int m = rows_of(&a->in[1]), n = columns_of(&a->in[1]);
    int lda = at_least_1(rows_of(&a->in[0])), ldb = at_least_1(m);
    for (int64_t u = a->lo; u < a->hi; u++) {
        load(&a->in[0], u, p.a);
        load(&a->in[1], u, p.b);
        lapack(a)->trsm(t->right ? "R" : "L", t->lower ? "L" : "U", t->transpose ? "T" : "N",
                        t->unit ? "U" : "N", &m, &n,
                        element(a) == 8 ? (const void *)&one_wide : &one, p.a, &lda, p.b, &ldb, 1,
                        1, 1, 1);
        store(&a->out[0], u, p.b, m);
    }
    return 0;
}

/* ---- lu ---- */
static Rooms lu_rooms(const KArgs *a) {
    int64_t m = rows_of(&a->in[0]), n = columns_of(&a->in[0]);
    return (Rooms){.a = m * n, .ints = m + (m < n ? m : n)};
}

static int lu(const KArgs *a) {
    Rooms r = lu_rooms(a);
    Places p = places_of(a, r);
    int m = rows_of(&a->in[0]), n = columns_of(&a->in[0]), k = m < n ? m : n, lead = at_least_1(m);
    for (int64_t u = a->lo; u < a->hi; u++) {
        int info = 0, *order = p.ints + k;
        load(&a->in[0], u, p.a);
        for (int i = 0; i < k; i++) p.ints[i] = i + 1;
        lapack(a)->getrf(&m, &n, p.a, &lead, p.ints, &info);
        for (int i = 0; i < m; i++) order[i] = i;
        for (int i = 0; i < k; i++) { /* of NaN any row may be the largest, and none */
            int from = p.ints[i] < 1 || p.ints[i] > m ? i : p.ints[i] - 1, row = order[i];
            p.ints[i] = from;
            order[i] = order[from];
            order[from] = row;
        }
        store(&a->out[0], u, p.a, m);
        store_vector(&a->out[1], u, (char *)p.ints);
        store_vector(&a->out[2], u, (char *)order);
    }
    return 0;
}

/* ---- qr ---- */
enum { BLOCK = 32 };

static Rooms qr_rooms(const KArgs *a) {
    int64_t m = rows_of(&a->in[0]), n = columns_of(&a->in[0]), k = columns_of(&a->out[0]);
    int64_t most = k_max(n, k);
    return (Rooms){.a = m * most, .b = rows_of(&a->out[1]) * n, .s = m, .work = 1 + BLOCK * most};
}

static int qr(const KArgs *a) {
    Rooms r = qr_rooms(a);
    Places p = places_of(a, r);
    int m = rows_of(&a->in[0]), n = columns_of(&a->in[0]), k = m < n ? m : n, lead = at_least_1(m);
    int columns = columns_of(&a->out[0]), rows = rows_of(&a->out[1]), lwork = (int)r.work, info;
    int64_t size = element(a);
    for (int64_t u = a->lo; u < a->hi; u++) {
        load(&a->in[0], u, p.a);
        lapack(a)->geqrf(&m, &n, p.a, &lead, p.s, p.work, &lwork, &info);
        for (int64_t j = 0; j < n; j++)
            memcpy(p.b + j * rows * size, p.a + j * m * size, (size_t)(rows * size));
        clear(a, p.b, rows, n, 0);
        store(&a->out[1], u, p.b, rows);
        lapack(a)->orgqr(&m, &columns, &k, p.a, &lead, p.s, p.work, &lwork, &info);
        store(&a->out[0], u, p.a, m);
    }
    return 0;
}

/* ---- eigh ---- */
static Rooms eigh_rooms(const KArgs *a) {
    int64_t n = rows_of(&a->in[0]);
    return (Rooms){.a = n * n, .s = n, .work = 1 + (6 + BLOCK) * n + 2 * n * n, .ints = 3 + 5 * n};
}

static int eigh(const KArgs *a) {
    Rooms r = eigh_rooms(a);
    Places p = places_of(a, r);
    int n = rows_of(&a->in[0]), lead = at_least_1(n), lwork = (int)r.work, liwork = (int)r.ints;
    for (int64_t u = a->lo; u < a->hi; u++) {
        int info = 1;
        load(&a->in[0], u, p.a);
        clear(a, p.a, n, n, 1); /* what is not read */
        if (is_finite(a, p.a, (int64_t)n * n))
            lapack(a)->syevd("V", "L", &n, p.a, &lead, p.s, p.work, &lwork, p.ints, &liwork, &info,
                             1, 1);
        if (info) set_all(a, p.a, (int64_t)n * n, NAN), set_all(a, p.s, n, NAN);
        store_vector(&a->out[0], u, p.s);
        store(&a->out[1], u, p.a, n);
    }
    return 0;
}

/* ---- svd ---- */
static Rooms svd_rooms(const KArgs *a) {
    int64_t m = rows_of(&a->in[0]), n = columns_of(&a->in[0]), k = m < n ? m : n;
    return (Rooms){.a = m * n,
                   .b = m * columns_of(&a->out[0]),
                   .c = rows_of(&a->out[2]) * n,
                   .s = k,
                   .work = 1 + 4 * k * k + 7 * k + (1 + BLOCK) * (m + n),
                   .ints = 8 * k};
}

/* The first columns of the identity. */
static void identity(const KArgs *a, char *p, int64_t rows, int64_t columns) {
    set_all(a, p, rows * columns, 0);
    for (int64_t i = 0; i < k_min(rows, columns); i++) set(a, p, i * rows + i, 1);
}

static int svd(const KArgs *a) {
    Rooms r = svd_rooms(a);
    Places p = places_of(a, r);
    int m = rows_of(&a->in[0]), n = columns_of(&a->in[0]), rows = rows_of(&a->out[2]);
    int ldu = at_least_1(m), ldvt = at_least_1(rows), lwork = (int)r.work;
    int is_full = columns_of(&a->out[0]) == m && rows == n;
    for (int64_t u = a->lo; u < a->hi; u++) {
        int info = 1;
        load(&a->in[0], u, p.a);
        if (!r.s)
            identity(a, p.b, m, columns_of(&a->out[0])), identity(a, p.c, rows, n), info = 0;
        else if (is_finite(a, p.a, r.a))
            lapack(a)->gesdd(is_full ? "A" : "S", &m, &n, p.a, &ldu, p.s, p.b, &ldu, p.c, &ldvt,
                             p.work, &lwork, p.ints, &info, 1);
        if (info) set_all(a, p.b, r.b, NAN), set_all(a, p.c, r.c, NAN), set_all(a, p.s, r.s, NAN);
        store(&a->out[0], u, p.b, m);
        store_vector(&a->out[1], u, p.s);
        store(&a->out[2], u, p.c, rows);
    }
    return 0;
}

#define WORKSPACE(name)                                                                            \
    static size_t name##_workspace(const KArgs *a) {                                               \
        return rooms_bytes(a, name##_rooms(a));                                                    \
    }
WORKSPACE(cholesky)
WORKSPACE(triangular)
WORKSPACE(lu)
WORKSPACE(qr)
WORKSPACE(eigh)
WORKSPACE(svd)

const KernelRow k_rows_linalg[] = {
    {"lapack_cholesky", cholesky, matrix_units, cholesky_workspace},
    {"lapack_triangular_solve", triangular_solve, matrix_units, triangular_workspace},
    {"lapack_lu", lu, matrix_units, lu_workspace},
    {"lapack_qr", qr, matrix_units, qr_workspace},
    {"lapack_eigh", eigh, matrix_units, eigh_workspace},
    {"lapack_svd", svd, matrix_units, svd_workspace},
    {NULL, NULL, NULL, NULL},
};
