/* attention.h - what attention's row and its definition share: attributes, and which operands are
 * there. */
#ifndef MESHLUA_OP_ATTENTION_H
#define MESHLUA_OP_ATTENTION_H

#include "op/op.h"

typedef struct AttentionAttr {
    double scale, soft_cap;
    int32_t causal;
    int32_t
        has[K_ATTENTION_OPTIONS]; /* the operands behind v (of the gradient: dy), in this order */
    int32_t bias_grad;            /* the gradient has dbias, too */
    double keep;                  /* of dropout */
    Dims strides;                 /* of dropout: of the global [B,H,T,S], in elements */
    Dims window;                  /* {left, right}, -1: no limit; or empty */
    Dims ahead; /* {the first query's place among the keys}; empty: keys - queries */
} AttentionAttr;

/* Operands in front of the options: q, k, v; of the gradient q, k, v, y, lse, dy. */
enum { ATTENTION_INPUTS = 3, ATTENTION_GRAD_INPUTS = 6 };

/* The operand that the option is, or 0. `inputs`: as above. */
static inline int attention_at(const AttentionAttr *t, int inputs, KAttentionOption option) {
    int at = inputs;
    for (int i = 0; i < (int)option; i++) at += t->has[i];
    return t->has[option] ? at : 0;
}
static inline int attention_inputs(int op) {
    return op == OP_ATTENTION ? ATTENTION_INPUTS : ATTENTION_GRAD_INPUTS;
}

/* The definition: attention_define.c. */
void attention_define(Build *b, const Node *n, const Val *in, Val *out);
void attention_define_grad(Build *b, const Node *n, const Val *in, Val *out);

#endif
