/* matmul.h - a matrix product made ready to compute in blocks (matmul.c), for matmul itself and for
 * matmul_fused, which computes with each block before it is stored. */
#ifndef MESHLUA_CPU_MATMUL_H
#define MESHLUA_CPU_MATMUL_H

#include "gemm.h"

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

#define k_product           K_SYM(k_product)
#define k_product_units     K_SYM(k_product_units)
#define k_product_part      K_SYM(k_product_part)
#define k_product_compute   K_SYM(k_product_compute)
#define k_product_workspace K_SYM(k_product_workspace)

/* in[0] times in[1], with the roles that attr begins with. `transposes`: rows and columns may
 * change places (with x and w) where that suits out[0]'s strides. */
Product k_product(const KArgs *a, int transposes);
int64_t k_product_units(const Product *p);
/* What unit u computes. */
Part k_product_part(const Product *p, int64_t u);
/* Computes a part of at most `rows` rows and `columns` columns to c, whose column stride is 1, with
 * k_product_workspace bytes of workspace aligned to 64. */
void k_product_compute(const Product *p, const Part *part, Block c, char *workspace);
int64_t k_product_workspace(const Product *p);

#endif
