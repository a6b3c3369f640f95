/* ctx.h - what every function of the core gets: memory accounting, the error in flight, the log.
 *
 * There are no globals. A Ctx belongs to one Lua state and one thread; the workers of the pool
 * never see it. */
#ifndef MESHLUA_CTX_H
#define MESHLUA_CTX_H

#include "base/alloc.h"
#include "base/memory.h"

enum { MAX_DOMAINS = 16 }; /* of a process */

typedef struct Ctx {
    Alloc alloc;
    Memory *memory[MAX_DOMAINS]; /* where tensors' bytes lie, by domain; NULL: in the host's */
    ErrState err;
    struct Interns *interns; /* meshes, types, ops: owned by ir/intern.c */
    int planted;             /* for tests: the op whose local form is made wrong; 0: none */
    /* Devices that share one memory are a domain; domains are numbered by process, devices by
     * domain. This process's first and their number, and the devices of each (0: all there are are
     * in one). */
    int32_t domain, domains, domain_devices;
    int log_level; /* messages above it are dropped; see log.h */
} Ctx;

void ctx_init(Ctx *cx);

#endif
