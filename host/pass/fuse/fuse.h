/* fuse.h - the parts of pass_fuse: which ops go together (fuse_group.c), what a group computes
 * again rather than reads (fuse_again.c), and the fused nodes (fuse.c). */
#ifndef MESHLUA_PASS_FUSE_FUSE_H
#define MESHLUA_PASS_FUSE_FUSE_H

#include "ir/copy.h"
#include "pass/pass.h"

enum { MAX_GROUP = 64, MAX_GROUP_INPUTS = 24 };

/* A node has one group that is its own, where its value is stored if anybody needs it; others may
 * hold it too and compute it again for themselves. */
typedef struct Group {
    int32_t nnode, ninput;
    int32_t node[MAX_GROUP];     /* ascending; the last one is its own */
    Val input[MAX_GROUP_INPUTS]; /* values from outside, of nullary ops not counted */
    bool closed;
} Group;

typedef struct Reader { /* a group that has a value as an input */
    Group *group;
    struct Reader *next;
} Reader;

typedef struct Fuse {
    const Graph *g;
    const Target *target;
    Copy copy;
    Group **group;    /* by node: its own */
    bool *read_alone; /* by value: read by a node outside groups, or a result */
    Reader **reader;  /* by value */
    Val *inner;       /* by value of `g`: inside the body being built, if `stamp` is that body's */
    int32_t *stamp, bodies;
} Fuse;

void fuse_no_memory(Fuse *f);
bool fuse_is_nullary(const Fuse *f, Val v);
/* May the two nodes be in one group? */
bool fuse_same_kind(const Fuse *f, int32_t a, int32_t b);
bool fuse_has_node(const Group *g, int32_t id);
bool fuse_has_input(const Group *g, Val v);
/* Is the value needed in memory? */
static inline bool fuse_is_stored(const Fuse *f, Val v) {
    return f->read_alone[v] || f->reader[v];
}
void fuse_add_reader(Fuse *f, Val v, Group *reader);
void fuse_drop_reader(Fuse *f, Val v, const Group *reader);

/* Fills `group`, `read_alone` and `reader`. `alone`: every op is a group of its own. */
void fuse_find_groups(Fuse *f, bool alone);
/* Values that only other groups read are computed again there, where that moves fewer bytes, holds
 * no more memory and takes no more time. */
void fuse_compute_again(Fuse *f);

#endif
