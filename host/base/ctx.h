/* ctx.h - what every function of the core gets: memory accounting, the error in flight, the log.
 *
 * There are no globals. A Ctx belongs to one Lua state and one thread; the workers of the pool
 * never see it. */
#ifndef MESHLUA_CTX_H
#define MESHLUA_CTX_H

#include "base/alloc.h"
#include "base/memory.h"

enum { MAX_DOMAINS = 16 }; /* of a process */

/* Who holds memory for a while, beside its owner, and lets go of it where that is asked. */
typedef struct CtxHolder {
    struct CtxHolder *next;
    void (*let_go)(void *ud); /* of what is not needed any more; the rest stays held */
    void (*finish)(void *ud); /* waits until nothing is held, and leaves the list */
    void *ud;
} CtxHolder;

typedef struct Ctx {
    Alloc alloc;
    Memory *memory[MAX_DOMAINS]; /* where tensors' bytes lie, by domain; NULL: in the host's */
    ErrState err;
    struct Interns *interns; /* meshes, types, ops: owned by ir/intern.c */
    CtxHolder *holders;
    int planted;         /* for tests: the op whose local form is made wrong; 0: none */
    const char *flipped; /* for tests: a kernel of whose first results a device has a bit wrong */
    int32_t flipped_device;
    /* Devices that share one memory are a domain; domains are numbered by process, devices by
     * domain. This process's first and their number, and the devices of each (0: all there are are
     * in one). */
    int32_t domain, domains, domain_devices;
    int log_level; /* messages above it are dropped; see log.h */
} Ctx;

void ctx_init(Ctx *cx);
/* Asks all of them. */
void ctx_let_go(Ctx *cx);
/* Where memory has run out. */
void ctx_finish_holders(Ctx *cx);
void ctx_remove_holder(Ctx *cx, const CtxHolder *holder);

#endif
