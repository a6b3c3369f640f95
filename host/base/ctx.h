/* ctx.h - what every function of the core gets: memory accounting, the error in flight, the log.
 *
 * There are no globals. A Ctx belongs to one Lua state and one thread; the workers of the pool
 * never see it. */
#ifndef MESHLUA_CTX_H
#define MESHLUA_CTX_H

#include "base/alloc.h"
#include "base/memory.h"

typedef struct Ctx {
    Alloc alloc;
    Memory *memory; /* where tensors' bytes lie; NULL: in the host's */
    ErrState err;
    struct Interns *interns; /* meshes, types, ops: owned by ir/intern.c */
    int planted;             /* for tests: the op whose local form is made wrong; 0: none */
    int32_t process;      /* of several: which this is, and the devices of each (0: there is one */
    int32_t devices_each; /* process); device ids go by process */
    int log_level;        /* messages above it are dropped; see log.h */
} Ctx;

void ctx_init(Ctx *cx);

#endif
