/* epilogue.c - a product and the fused program behind it as one product of the library, which can
 * scale and add before it stores: another tensor, a bias, gelu and its slope. And a product and the
 * sum of a factor's columns, which the library has read anyway: gradients of weights and of a bias.
 *
 * What a program computes is told by its values. The rules are the library's formulas; a program is
 * one of them if both agree at many points of all sizes, for it is made of analytic functions only,
 * and a term that is nothing at one size is not at another. So it does not matter how a program
 * writes gelu. */
#include <math.h>
#include "matmul.h"
#include "view.h"

enum {
    POINTS = 128,
    SIZES = 13, /* of points, from 2^-96 to 2^96 */
    MOST_REGISTERS = 64,
    MOST_INPUTS = 3,  /* product, matrix, vector */
    MOST_OUTPUTS = 2, /* what is stored, and what it is gelu of */
    AUX_LEADING = 8   /* what the library wants of the leading dimension of `aux` */
};

/* By the size of what is added up: of a formula with the program's own constants; and of gelu where
 * it bends, whose constants a program of 16 bits has rounded. */
#define EXACT   1e-6
#define ROUNDED 1e-3

typedef struct Point { /* elements of the product, of the matrix and of the vector */
    double p, c, b;
} Point;

typedef struct Reading {
    const KArgs *product, *program;
    const KTensor *y;           /* what the product writes */
    int shared, matrix, vector; /* inputs of the program; < 0: there is none */
    double reg[MOST_REGISTERS]; /* of the program, while it is evaluated */
    double in[MOST_INPUTS], out[MOST_OUTPUTS];
} Reading;

/* ---- the program's operands ---- */

/* One element for each column of y, next to each other, and the same for all rows. */
static int is_vector(const Reading *r, const KTensor *t) {
    const KMatmul *roles = r->product->attr;
    for (int d = 0; d < t->rank; d++) {
        int64_t step = roles->y[d] == K_N ? r->y->strides[d] : 0;
        if (t->dims[d] != r->y->dims[d] || (t->dims[d] != 1 && t->strides[d] != step)) return 0;
    }
    return t->rank == r->y->rank;
}

static int find_operands(Reading *r) {
    const KArgs *a = r->program;
    r->matrix = r->vector = -1;
    if (a->nin > MOST_INPUTS || a->nout > MOST_OUTPUTS) return 0;
    for (int k = 0; k < a->nin + a->nout; k++) {
        const KTensor *t = k < a->nin ? &a->in[k] : &a->out[k - a->nin];
        int lies = cuda_lies_as(t, r->y);
        if (t->dtype != r->y->dtype) return 0;
        if (k == r->shared || k >= a->nin) {
            if (!lies) return 0;
        } else if (lies && r->matrix < 0) {
            r->matrix = k;
        } else if (!lies && r->vector < 0 && is_vector(r, t)) {
            r->vector = k;
        } else {
            return 0;
        }
    }
    return 1;
}

/* ---- its value ---- */

/* Roundings between operations of 16 bits are left out, as fused_text.c does it. */
static int is_own_rounding(const Reading *r, const KInstr *i) {
    return i->op == KI_ROUND_BF16 ? r->y->dtype == DT_BF16 : r->y->dtype == DT_F16;
}

/* 0: it is no analytic function. */
static int run(Reading *r, const KInstr *i) {
    const KImm *imm = k_program_imm(r->program->attr);
    const uint16_t from[4] = {i->a, i->b, i->c, i->d};
    double x[4] = {0}, y;
    for (int k = 0; k < k_instr_sources(i); k++) x[k] = r->reg[from[k]];
    if (i->type != KT_F32) return 0;
    switch (i->op) {
    case KI_STORE: r->out[i->dst] = x[0]; return 1;
    case KI_LOAD: y = r->in[i->a]; break;
    case KI_IMM: y = imm[i->a].f; break;
    case KI_NEG: y = -x[0]; break;
    case KI_EXP: y = exp(x[0]); break;
    case KI_TANH: y = tanh(x[0]); break;
    case KI_LOGISTIC: y = 1 / (1 + exp(-x[0])); break;
    case KI_SQUARE: y = x[0] * x[0]; break;
    case KI_INT_POW: y = pow(x[0], (double)imm[i->b].i); break;
    case KI_ADD: y = x[0] + x[1]; break;
    case KI_SUB: y = x[0] - x[1]; break;
    case KI_MUL: y = x[0] * x[1]; break;
    case KI_DIV: y = x[0] / x[1]; break;
    case KI_FMA: y = x[0] * x[1] + x[2]; break;
    case KI_ROUND_BF16:
    case KI_ROUND_F16:
        if (!is_own_rounding(r, i)) return 0;
        y = x[0];
        break;
    default: return 0;
    }
    r->reg[i->dst] = y;
    return 1;
}

/* Sets `out`. */
static int evaluate(Reading *r, const Point *x) {
    const KProgram *p = r->program->attr;
    if (p->nreg > MOST_REGISTERS) return 0;
    for (int k = 0; k < r->program->nin; k++)
        r->in[k] = k == r->shared ? x->p : k == r->matrix ? x->c : x->b;
    for (int32_t i = 0; i < p->ninstr; i++)
        if (!run(r, &k_program_code(p)[i])) return 0;
    return 1;
}

/* ---- the library's formulas ---- */

static double inner(double x) { /* of gelu's tanh */
    return 0.7978845608028654 * (x + 0.044715 * x * x * x);
}
static double gelu(double x) {
    return 0.5 * x * (1 + tanh(inner(x)));
}
static double gelu_slope(double x) {
    double t = tanh(inner(x)), slope = 0.7978845608028654 * (1 + 3 * 0.044715 * x * x);
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * slope;
}

static double sum_of(const CudaEpilogue *e, const Point *x) {
    return e->alpha * x->p + e->beta * x->c + x->b;
}
static double value_of(const CudaEpilogue *e, const Point *x) {
    switch (e->activation) {
    case CUDA_GELU: return gelu(sum_of(e, x));
    case CUDA_DGELU: return e->alpha * x->p * gelu_slope(x->c);
    default: return sum_of(e, x);
    }
}

/* Point i of all: half of them where gelu is neither 0 nor its argument, the others all over. */
static int exponent(int i) {
    return i % 2 ? (i / 2 % SIZES - SIZES / 2) * 16 : 0;
}
static Point point(const Reading *r, int i, uint32_t *state) {
    double at[3];
    for (int k = 0; k < 3; k++) {
        *state = *state * 1664525 + 1013904223;
        at[k] = ldexp((double)(*state >> 8) / (1 << 24) * 8 - 4, exponent(i));
    }
    return (Point){at[0], r->matrix < 0 ? 0 : at[1], r->vector < 0 ? 0 : at[2]};
}

/* Whether the program's output `k` is the formula, and its other one the sum. */
static int agrees(Reading *r, const CudaEpilogue *e, int k) {
    uint32_t state = 1;
    for (int i = 0; i < POINTS; i++) {
        Point x = point(r, i, &state);
        double size = fabs(e->alpha * x.p) + fabs(e->beta * x.c) + fabs(x.b);
        double most = e->activation == CUDA_NONE || exponent(i) != 0 ? EXACT : ROUNDED;
        if (!evaluate(r, &x) || !(fabs(r->out[k] - value_of(e, &x)) <= most * size)) return 0;
        if (r->program->nout == 2 && !(fabs(r->out[1 - k] - sum_of(e, &x)) <= EXACT * size))
            return 0;
    }
    return 1;
}

/* The factors of a program that is linear. */
static int find_factors(Reading *r, CudaEpilogue *e) {
    double zero;
    if (!evaluate(r, &(Point){0})) return 0;
    zero = r->out[0];
    if (!evaluate(r, &(Point){.p = 1})) return 0;
    e->alpha = (float)(r->out[0] - zero);
    if (!evaluate(r, &(Point){.c = 1})) return 0;
    e->beta = r->matrix < 0 ? 0 : (float)(r->out[0] - zero);
    return isfinite(e->alpha) && isfinite(e->beta) && e->alpha != 0;
}

/* ---- which of them it is ---- */

typedef struct Rule {
    CudaActivation activation;
    int outputs;
    int matrix; /* it has one; < 0: it may */
    int narrow; /* of 16 bits only: how exact the library's tanh is, is said nowhere */
} Rule;

static const Rule rules[] = {
    {CUDA_NONE, 1, -1, 0},
    {CUDA_GELU, 1, 0, 1},
    {CUDA_GELU, 2, 0, 1},
    {CUDA_DGELU, 1, 1, 1},
};

/* Sets the epilogue but for operands; returns the output that it stores, or -1. */
static int find_rule(Reading *r, CudaEpilogue *e) {
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const Rule *rule = &rules[i];
        if (rule->outputs != r->program->nout || (rule->narrow && r->y->dtype == DT_F32)) continue;
        if (rule->matrix >= 0 && rule->matrix != (r->matrix >= 0)) continue;
        *e = (CudaEpilogue){.activation = rule->activation, .alpha = 1};
        if (rule->activation == CUDA_NONE && !find_factors(r, e)) continue;
        for (int k = 0; k < rule->outputs; k++)
            if (agrees(r, e, k)) return k;
    }
    return -1;
}

static int is_narrow_or_f32(DType t) {
    return t == DT_BF16 || t == DT_F16 || t == DT_F32;
}

static int product_and_program(const KArgs *first, const KArgs *second, int32_t from, int32_t to,
                               Launches *p) {
    Reading r = {.product = first, .program = second, .y = &first->out[0], .shared = to};
    CudaProduct q;
    CudaEpilogue e;
    if (from != first->nin || !is_narrow_or_f32(r.y->dtype) || !find_operands(&r)) return 0;
    int stored = find_rule(&r, &e), in = first->nin, out = in + second->nin + first->nout;
    if (stored < 0 || !k_cuda_library_product(first, &q)) return 0;
    if (e.activation == CUDA_DGELU)
        e.aux = in + r.matrix;
    else if (second->nout == 2)
        e.aux = out + 1 - stored;
    if (e.beta != 0) e.c = in + r.matrix;
    if (r.vector >= 0) e.bias = in + r.vector;
    int is_one = q.batch == 1 && q.rank == 0;
    if ((e.bias || e.activation) && !is_one) return 0;
    if ((e.bias && q.y.transposed) || (e.aux && q.y.leading % AUX_LEADING)) return 0;
    q.y.operand = out + stored;
    q.after = e;
    return cuda_product(p, &q);
}

/* ---- sums of columns ---- */

/* Whether w is summed over what the product is summed over, to elements as y's columns lie. */
static int sums_columns(const KArgs *sum, const KArgs *product, const CudaProduct *q) {
    const uint8_t *reduced = ((const KReduce *)sum->attr)->reduced;
    const KMatmul *roles = product->attr;
    const KTensor *w = &sum->in[0], *y = &product->out[0], *to = &sum->out[0];
    int64_t step = q->y.transposed ? q->y.leading : 1;
    int column = 0;
    for (int d = 0; d < w->rank; d++) {
        if (roles->w[d] == K_BATCH || (w->dims[d] != 1 && reduced[d] != (roles->w[d] == K_K)))
            return 0;
        if (roles->w[d] != K_N) continue;
        while (roles->y[column] != K_N) column++;
        if (w->dims[d] != 1 && to->strides[d] * step != y->strides[column]) return 0;
        column++;
    }
    return 1;
}

static int sum_and_product(const KArgs *first, const KArgs *second, int32_t from, int32_t to,
                           Launches *p) {
    const KTensor *y = &second->out[0];
    CudaProduct q;
    if (from != 0 || to != 1 || !is_narrow_or_f32(y->dtype) || first->out[0].dtype != y->dtype)
        return 0;
    if (!k_cuda_library_product(second, &q) || q.batch != 1 || q.rank != 0) return 0;
    if (!sums_columns(first, second, &q)) return 0;
    q.x.operand = 1, q.w.operand = 2, q.after.sums = 3, q.y.operand = 4;
    return cuda_product(p, &q);
}

const CudaPair *k_cuda_pairs(void) {
    static const CudaPair pairs[] = {
        {"matmul", "fused", product_and_program},
        {"sum", "matmul", sum_and_product},
        {NULL, NULL, NULL},
    };
    return pairs;
}
