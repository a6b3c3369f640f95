/* instr_tree.c - trees of float32 instructions as one loop (instr.h, k_trees): what is long and
 * stands in many models, each way, so that the values between stay in the processor.
 *
 * A tree is written once, below, over its leaves: X0, X1, ... are values, K0, K1, ... constants.
 * The text is read twice: as the value of an element, with the very instructions of the program in
 * their order, and as the pattern that is looked for in programs. A function that calls exp or its
 * kin stands only at the root: what else reads its value must not compute it again. */
#include "instr.h"
#include "vmath.h"

/* gelu by tanh: x (1 + tanh(k1 (x + k0 x^3))) / 2. The others have tanh(...) as X1; of the gradient
 * dy is X2. */
#define GELU_TANH      TANH(MUL(ADD(MUL(MUL(MUL(X0, X0), X0), K0), X0), K1))
#define GELU_HALF      MUL(ADD(X1, K0), K1)
#define GELU           MUL(X0, GELU_HALF)
#define GELU_ADD       ADD(X2, GELU)
#define GELU_TO_TANH   MUL(MUL(MUL(MUL(X2, X0), K1), SUB(K0, SQUARE(X1))), K2)
#define GELU_TO_CUBE   MUL(GELU_TO_TANH, K3)
#define GELU_TO_SQUARE MUL(MUL(GELU_TO_CUBE, X0), X0)
#define GELU_TO_X                                                                                  \
    ADD(ADD(ADD(MUL(X2, GELU_HALF), GELU_TO_TANH), MUL(GELU_TO_CUBE, MUL(X0, X0))), GELU_TO_SQUARE)
#define GELU_GRAD ADD(GELU_TO_X, GELU_TO_SQUARE)

/* gelu by erf: k0 x (k1 + erf(k2 x)); of the gradient erf(...) is X1, dy X2, exp(-(k2 x)^2) X3. */
#define GELU_ERF      MUL(MUL(X0, K0), ADD(X1, K1))
#define GELU_DENSITY  EXP(NEG(SQUARE(MUL(X0, K0))))
#define GELU_TO_ERF   MUL(MUL(MUL(X2, MUL(X0, K0)), MUL(X3, K3)), K2)
#define GELU_ERF_GRAD ADD(GELU_TO_ERF, MUL(MUL(X2, ADD(X1, K1)), K0))

/* silu: x s, s = logistic(x); of the gradient s is X1, dy X2. */
#define SILU_GRAD ADD(MUL(X2, X1), MUL(MUL(X2, X0), MUL(X1, SUB(K0, X1))))

/* function, its values and constants, text */
#define TREES(TREE)                                                                                \
    TREE(gelu_tanh, 1, 2, GELU_TANH)                                                               \
    TREE(gelu_add, 3, 2, GELU_ADD)                                                                 \
    TREE(gelu, 2, 2, GELU)                                                                         \
    TREE(gelu_grad, 3, 4, GELU_GRAD)                                                               \
    TREE(gelu_erf, 2, 2, GELU_ERF)                                                                 \
    TREE(gelu_density, 1, 1, GELU_DENSITY)                                                         \
    TREE(gelu_erf_grad, 4, 4, GELU_ERF_GRAD)                                                       \
    TREE(silu_grad, 3, 1, SILU_GRAD)

/* ---- as a loop ------------------------------------------------------------------------------ */
#define ADD(a, b) ((a) + (b))
#define SUB(a, b) ((a) - (b))
#define MUL(a, b) ((a) * (b))
#define NEG(a)    (-(a))
#define SQUARE(a) ((a) * (a))
#define EXP(a)    vm_exp(a)
#define TANH(a)   vm_tanh(a)

/* Leaves that a tree does not have are its last one again. */
#define LEAF(k, n)          ((k) < (n) ? (k) : (n)-1)
#define VALUE(k, nx)        const float *x##k = (const float *)(const void *)src[LEAF(k, nx)]
#define CONSTANT(k, nx, nk) const float K##k = *(const float *)(const void *)src[nx + LEAF(k, nk)]
#define TREE_LOOP(name, nx, nk, text)                                                              \
    static void name(char *dst_, const char *const *src, int64_t n) {                              \
        float *dst = (float *)(void *)dst_;                                                        \
        VALUE(0, nx);                                                                              \
        VALUE(1, nx);                                                                              \
        VALUE(2, nx);                                                                              \
        VALUE(3, nx);                                                                              \
        CONSTANT(0, nx, nk);                                                                       \
        CONSTANT(1, nx, nk);                                                                       \
        CONSTANT(2, nx, nk);                                                                       \
        CONSTANT(3, nx, nk);                                                                       \
        (void)K1, (void)K2, (void)K3;                                                              \
        n &= ~(int64_t)(K_STEP - 1);                                                               \
        K_IVDEP for (int64_t i = 0; i < n; i++) {                                                  \
            float X0 = x0[i], X1 = x1[i], X2 = x2[i], X3 = x3[i];                                  \
            (void)X1, (void)X2, (void)X3;                                                          \
            dst[i] = text;                                                                         \
        }                                                                                          \
    }
TREES(TREE_LOOP)

/* ---- as a pattern: the operands, then the operation ----------------------------------------- */
#undef ADD
#undef SUB
#undef MUL
#undef NEG
#undef SQUARE
#undef EXP
#undef TANH
#define ADD(a, b) a, b, K_TREE_OP + KI_ADD
#define SUB(a, b) a, b, K_TREE_OP + KI_SUB
#define MUL(a, b) a, b, K_TREE_OP + KI_MUL
#define NEG(a)    a, K_TREE_OP + KI_NEG
#define SQUARE(a) a, K_TREE_OP + KI_SQUARE
#define EXP(a)    a, K_TREE_OP + KI_EXP
#define TANH(a)   a, K_TREE_OP + KI_TANH

enum { X0, X1, X2, X3, K0 = K_TREE_CONSTANT, K1, K2, K3 };

#define TREE_PATTERN(name, nx, nk, text) static const uint8_t name##_pattern[] = {text};
TREES(TREE_PATTERN)

#define TREE_ROW(name, nx, nk, text) {name##_pattern, sizeof name##_pattern, nx, nk, name},
const KTree k_trees[] = {TREES(TREE_ROW){NULL, 0, 0, 0, NULL}};
