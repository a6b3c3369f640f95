/* factor.h - an op's sharding rule as data: which dims of its operands and results run together.
 *
 * A factor is an index of the op's iteration space, as in an einsum. Every dim of every
 * tensor is a list of factors, major to minor (usually one; a reshape has several). Sharding
 * a factor shards all dims it appears in; a result without it becomes unreduced, or the
 * factor cannot be sharded. The algorithms over rules (propagate, partition) know no op.
 * (Shardy's sharding rules.) */
#ifndef MESHLUA_FACTOR_H
#define MESHLUA_FACTOR_H

#include "ir/layout.h"

typedef enum FactorKind {
    FACTOR_PASS,      /* results without it need no communication only if there are none */
    FACTOR_SUM,       /* results without it are unreduced: sums */
    FACTOR_MAX,       /* maxima */
    FACTOR_MIN,       /* minima */
    FACTOR_REPLICATE, /* cannot be sharded: operands are gathered along it */
} FactorKind;

enum { MAX_FACTORS = 24, MAX_DIM_FACTORS = 8 };

typedef struct FactorMap {
    uint8_t n[MAX_RANK]; /* factors of each dim; 0: the dim is in no factor and stays whole */
    uint8_t at[MAX_RANK][MAX_DIM_FACTORS];
} FactorMap;

typedef struct FactorRule {
    int32_t nfactor, ntensor; /* tensors: operands, then results */
    int64_t size[MAX_FACTORS];
    uint8_t kind[MAX_FACTORS];
    /* The halo: how many elements of operand 0 before and behind its own a shard needs, which it
     * gets from its neighbours along the factor's axes (zeros at the ends). */
    int32_t before[MAX_FACTORS], behind[MAX_FACTORS];
    FactorMap *tensor;
} FactorRule;

/* Adds a factor and returns its number. */
int factor_add(FactorRule *r, FactorKind kind, int64_t size);
/* Appends the factor to (minor side of) the dim. */
void factor_map(FactorRule *r, int tensor, int dim, int factor);
/* The dim that the factor is in; -1: none. */
int factor_dim(const FactorMap *m, int rank, int factor);
bool factor_in(const FactorMap *m, int rank, int factor);
/* "([i,k],[k,j])->([i,j]) {i=64, k=512, j=2048, sum=k}" */
void factor_print(const FactorRule *r, int nin, const int *ranks, Str *s);

#endif
