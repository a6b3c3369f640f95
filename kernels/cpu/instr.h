/* instr.h - the register instructions of a fused program, one function each, and functions for
 * several together.
 *
 * Registers hold runs of elements in the register's type. n is a multiple of K_STEP; dst may be one
 * of the sources. A NaN result is some NaN: its sign and payload are not promised. */
#ifndef MESHLUA_CPU_INSTR_H
#define MESHLUA_CPU_INSTR_H

#include "level.h"

enum { K_STEP = 16 };

/* src: the registers a, b, c, d; for INT_POW src[1] is the immediate. */
typedef void KInstrFn(char *dst, const char *const *src, int64_t n);

#define k_instr_fn K_SYM(k_instr_fn)
#define k_pair_fn  K_SYM(k_pair_fn)
#define k_trees    K_SYM(k_trees)
/* NULL for an operation that this type does not have, and for those that fused.c does itself
 * (LOAD, STORE, IMM, IOTA, RANDOM_BITS). */
KInstrFn *k_instr_fn(const KInstr *, const KImm *imm);
/* Both at once, where `second` reads the result of `first` as its operand number `at`: src is
 * first's sources, then the others of second. The same bits as one after the other. NULL if there
 * is none. */
KInstrFn *k_pair_fn(const KInstr *first, const KInstr *second, int at);

/* Several float32 instructions at once, with the same bits as one after the other. */
typedef struct KTree {
    /* the tree in postfix order: value k, K_TREE_CONSTANT + k, or K_TREE_OP + KOp */
    const uint8_t *pattern;
    uint8_t length, values, constants;
    KInstrFn *fn; /* src: the values, then the constants */
} KTree;

enum {
    K_TREE_CONSTANT = 4,
    K_TREE_OP = 8,
    K_TREE_LEAVES = 8,
    K_TREE_FEWEST = 3 /* operations that every tree has one on the other */
};

/* The larger ones of those with the same root come first; the last has no function. */
extern const KTree k_trees[];

#endif
