/* piece.h - strided boxes: which elements of an entry of a file a box of a tensor is.
 *
 * Element {i0, i1, ...} of the box is element `offset` + sum of (index of each factor) * stride of
 * the entry. A dim is one factor, or several, the outermost first, whose sizes multiply to its own:
 * so a transpose, a reshape, a permutation of heads and a layer of a stack are all one piece. A
 * part of a piece that a shard wants is cut into plain boxes, loops over both sides, of which each
 * runs through the file from its front to its end. */
#ifndef MESHLUA_RUN_DISK_PIECE_H
#define MESHLUA_RUN_DISK_PIECE_H

#include "base/ctx.h"
#include "ir/dims.h"
#include "ir/dtype.h"

enum { PIECE_FACTORS = 16 };

typedef struct PieceFactor {
    int32_t dim;
    int64_t size, stride; /* the stride in elements of the entry */
} PieceFactor;

typedef struct PieceMap {
    Dims at, size;  /* the box in the tensor */
    int64_t offset; /* of its first element, in elements of the entry */
    int32_t nfactor;
    PieceFactor factor[PIECE_FACTORS];
    struct Catalog *catalog; /* reading: where the entry is */
    int32_t entry;
    int32_t file;  /* writing: the writer's file, */
    int64_t begin; /* where in it the entry begins, in bytes, */
    DType dtype;   /* and what is written */
} PieceMap;

/* far: elements of the entry, from one to the next; near: bytes of memory. */
typedef struct PieceLoop {
    int64_t count, far, near;
} PieceLoop;

/* The outermost loop first, strides of the entry falling and never negative; loops that go on where
 * the next one ends on both sides are one. */
typedef struct PieceBox {
    int64_t far, near; /* where it begins */
    int32_t nloop;
    PieceLoop loop[PIECE_FACTORS];
} PieceBox;

typedef Err PieceFn(void *ud, const PieceBox *box);

/* Its box within the tensor, its factors against its size, its elements within the `count` of the
 * entry (the one or the other wrong: E_VALUE). */
Err piece_check(Ctx *cx, const PieceMap *p, const Dims *tensor, int64_t count) MUST_CHECK;
/* Do the boxes cover the tensor, each element once? */
Err piece_check_cover(Ctx *cx, const PieceMap *p, int32_t n, const Dims *tensor) MUST_CHECK;
/* Calls fn with the plain boxes of what the piece has of the box {at, size} of the tensor, which
 * lies in memory with byte strides `near`; box.near is relative to its first element. Stops at the
 * first error. */
Err piece_restrict(const PieceMap *p, const int64_t *at, const Dims *size, const int64_t *near,
                   PieceFn *fn, void *ud) MUST_CHECK;
/* How many elements the loops from number `k` on have; from the first to behind the last. */
int64_t piece_elements(const PieceBox *b, int32_t k);
int64_t piece_span(const PieceBox *b, int32_t k);

#endif
