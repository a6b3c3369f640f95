/* read.h - entries of files into the shards of a fresh tensor: each reads the ranges that it has,
 * and nothing is in memory beside it but what is read at once. */
#ifndef MESHLUA_RUN_DISK_READ_H
#define MESHLUA_RUN_DISK_READ_H

#include "run/disk/catalog.h"
#include "run/disk/piece.h"
#include "run/memory/tensor.h"

/* Bytes that are read at once where they do not go to their place; few in checked builds, so that
 * small files show what is wrong between two stages. */
#ifdef MESHLUA_CHECKED
enum { READ_STAGE = 1 << 16 };
#else
enum { READ_STAGE = 8 << 20 };
#endif

typedef struct ReadPieces {
    const PieceMap *at;
    int32_t n;
    bool cast;      /* entries may be of another dtype */
    int64_t *bytes; /* what is read is counted here */
} ReadPieces;

/* All of an entry as one piece. */
PieceMap read_whole(struct Catalog *c, int32_t entry);
/* Can the pieces, of `dims` and checked against each other here, become a tensor of the dtype?
 * E_VALUE: pieces that do not cover it; E_UNSUPPORTED, E_DTYPE: entries that cannot become it. */
Err read_check(Ctx *cx, DType dtype, const Dims *dims, const ReadPieces *p) MUST_CHECK;
/* Fills every shard that is here. E_VALUE: a value that the dtype cannot hold. */
Err read_tensor(Tensor *t, const ReadPieces *p) MUST_CHECK;
/* A box {at, size} of the tensor to `out`, row-major. */
Err read_box(Ctx *cx, DType dtype, const int64_t *at, const Dims *size, const ReadPieces *p,
             void *out) MUST_CHECK;

#endif
