/* reshard.h - from one layout of a tensor to another, as collectives on local values. */
#ifndef MESHLUA_PASS_PARTITION_RESHARD_H
#define MESHLUA_PASS_PARTITION_RESHARD_H

#include "op/op.h"
#include "pass/pass.h"

typedef enum MoveKind {
    MOVE_SLICE,   /* every device keeps its part of `dim`: nothing is sent */
    MOVE_REDUCE,  /* the sums over `axes`, for everybody */
    MOVE_SCATTER, /* the sums over `axes`, split along `dim` */
    MOVE_PERMUTE, /* whole shards travel to where `lists` says */
    MOVE_TO_ALL,  /* the last axes of dim `from` come behind those of `dim` */
    MOVE_GATHER   /* the last axes of `dim` are gone */
} MoveKind;

typedef struct Move {
    MoveKind kind;
    int dim, from;
    AxisList axes;
} Move;

enum { MAX_MOVES = 48 };
typedef struct Moves {
    int n;
    double sent; /* bytes that one device sends, as a share of the whole tensor's */
    Move at[MAX_MOVES];
    AxisList lists[MAX_RANK]; /* of MOVE_PERMUTE, which a plan has at most once */
} Moves;

/* Appends the move, adds what it sends and does it to `cur`. */
void reshard_push(Moves *m, Move move, Layout *cur);
/* The cheapest way that a bounded search finds, if it sends less than `best`, which it replaces. */
void reshard_search(const Dims *global, const Layout *from, const Layout *to, Moves *best);

/* Appends to `b` (a partitioned graph) what turns the local value `v` of a tensor with the `global`
 * dims from one layout into the other. Sums unreduced in both stay so; a value that is whole
 * becomes parts by staying on the first device of each group, zeros elsewhere. A dim that its
 * axes do not divide is gathered and cut, or padded and sliced, where they change. */
Val reshard(Build *b, Val v, const Dims *global, const Layout *from, const Layout *to);

#endif
