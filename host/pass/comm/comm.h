/* comm.h - shared by reassociate.c and bucket.c. */
#ifndef MESHLUA_PASS_COMM_COMM_H
#define MESHLUA_PASS_COMM_COMM_H

#include "ir/copy.h"
#include "pass/pass.h"

/* Places and reasons of nodes that became one, and the role of the first. */
typedef struct Notes {
    const Loc *const *loc;
    const Reason *const *why;
    int32_t nloc, nwhy;
    uint8_t role;
} Notes;

Notes comm_notes_of(const Node *n);
/* Those of both, each once, in order. */
Notes comm_merge_notes(Copy *c, const Notes *a, const Notes *b);
/* Builds where the copy does, with these notes. */
Build comm_build(const Copy *c, const Notes *notes);

bool comm_is_all_reduce(const Graph *g, const Node *n);
/* Do the two differ in their operands only? */
bool comm_same(const Graph *g, const Node *a, const Node *b);

/* all_reduces over the same axes go together, up to `limit` bytes. */
Err comm_bucket(const Graph *g, int64_t limit, Graph **out) MUST_CHECK;

#endif
