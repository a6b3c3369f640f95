/* test_cublaslt.c - products that go to cublasLt: every transpose and type, ways of batching,
 * aligned and other addresses. STANDIN_CUBLASLT_LOG, where it is set, says that all of them did,
 * and by which algorithm: one for aligned addresses, another for the others. */
#include "kcheck.h"

static int aligned, shifted; /* products so far */

/* A tensor of those roles, in that order in memory; `shift`: the address is one element more than
 * an aligned one. */
static Tensor operand(DType t, int rank, const KRole *role, uint8_t *roles, int shift) {
    static const int64_t sizes[] = {[K_BATCH] = 3, [K_M] = 51, [K_N] = 40, [K_K] = 66};
    int64_t dims[3] = {0};
    for (int d = 0; d < rank; d++) {
        roles[d] = (uint8_t)role[d];
        dims[d] = sizes[role[d]];
    }
    dims[0] += shift; /* room for it */
    Tensor x = tensor(t, rank, dims, DENSE);
    x.dims[0] -= shift;
    x.offset += (size_t)(shift * kt_size(t));
    return *kt_fix(&x);
}

typedef enum Batch { ALONE, IN_FRONT, BETWEEN } Batch;

/* Roles of a matrix: `turned` exchanges them; a batch where it says. */
static int roles_of(KRole row, KRole column, int turned, Batch b, KRole out[3]) {
    KRole matrix[2] = {turned ? column : row, turned ? row : column};
    int rank = 0;
    for (int d = 0; d < 3; d++) {
        if (b != ALONE && d == (int)b - 1) out[rank++] = K_BATCH;
        if (d < 2) out[rank++] = matrix[d];
    }
    return rank;
}

enum { SHIFTED = 1, SHARED = 2 }; /* x begins elsewhere; all matrices of the batch see one w */

static void product(const DType t[2], int turned, Batch bx, Batch bw, Batch by, int how) {
    KMatmul attr;
    KRole x[3], w[3], y[3];
    int rx = roles_of(K_M, K_K, turned & 1, bx, x), rw = roles_of(K_K, K_N, turned & 2, bw, w),
        ry = roles_of(K_M, K_N, turned & 4, by, y);
    Case c = {.name = "matmul", .attr = &attr, .nin = 2, .nout = 1, .rtol = 2e-6};
    c.atol = t[0] == DT_F64 ? 1e-13 : 2e-5;
    c.in[0] = operand(t[0], rx, x, attr.x, how & SHIFTED);
    c.in[1] = operand(t[0], rw, w, attr.w, 0);
    c.out[0] = operand(t[1], ry, y, attr.y, 0);
    if (how & SHARED) c.in[1].strides[0] = 0;
    for (int k = 0; k < 2; k++) fill(kt_fix(&c.in[k]), -1, 1);
    *(how & SHIFTED ? &shifted : &aligned) += 1;
    check_case(&c);
}

static void all(void) {
    static const DType types[][2] = {{DT_F32, DT_F32},  {DT_F64, DT_F64}, {DT_BF16, DT_BF16},
                                     {DT_BF16, DT_F32}, {DT_F16, DT_F16}, {DT_F16, DT_F32}};
    for (int turned = 0; turned < 8; turned++) {
        const DType *t = types[1 + turned % 5];
        product(types[0], turned, ALONE, ALONE, ALONE, 0);
        product(t, turned, ALONE, ALONE, ALONE, 0);
        product(t, 7 - turned, IN_FRONT, IN_FRONT, IN_FRONT, turned % 3 == 0 ? SHARED : 0);
    }
    for (int i = 0; i < 6; i++) {
        product(types[i], 2, ALONE, ALONE, ALONE, SHIFTED);
        product(types[i], i, BETWEEN, BETWEEN, BETWEEN, 0); /* heads between rows */
        product(types[i], 7 - i, BETWEEN, IN_FRONT, IN_FRONT, SHARED);
    }
}

/* Each is launched twice; without a folder there is no timing, only the library's first guess. */
static void check_log(const char *path) {
    FILE *f = fopen(path, "r");
    int first = 0, other = 0, number;
    char line[64];
    CHECK(f);
    while (f && fgets(line, sizeof line, f)) {
        if (sscanf(line, "matmul %d", &number) != 1) continue;
        *(number == 0 ? &first : &other) += 1;
    }
    if (f) fclose(f);
    CHECKF(first == 2 * aligned && other == 2 * shifted, "%d of %d products, %d of %d", first,
           2 * aligned, other, 2 * shifted);
}

int main(void) {
    const char *log = getenv("STANDIN_CUBLASLT_LOG");
    if (log) remove(log);
    all();
    if (log) check_log(log);
    return test_end();
}
