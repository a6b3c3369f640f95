/* guard.h - what becomes of a broken invariant (ASSERT). A guard stands around work on one thread
 * and says, before all else, what the work was about. Within guard_run the work ends there, its
 * memory goes, and E_INTERNAL comes back; elsewhere the process ends. */
#ifndef MESHLUA_GUARD_H
#define MESHLUA_GUARD_H

#include "base/arena.h"
#include "base/err.h"

#include <setjmp.h>

typedef struct Guard {
    struct Guard *outer;
    struct Ctx *cx;
    void (*broken)(
        void *ud); /* called where the invariant broke, with the fact as error in flight */
    void *ud;
    jmp_buf *back;     /* to where the work is given up, or NULL: the process ends */
    ArenaChunk *chunk; /* of the arenas that began within */
} Guard;

/* Runs work(ud). Where an invariant breaks in it, what it has of arenas is freed and E_INTERNAL
 * returned, so it must own nothing else then; the arenas that begin in it end in it. */
Err guard_run(struct Ctx *cx, Err (*work)(void *ud), void (*broken)(void *ud), void *ud) MUST_CHECK;
/* Between these two the process ends as ever, but says more: broken(ud) is called first. */
void guard_enter(Guard *g, struct Ctx *cx, void (*broken)(void *ud), void *ud);
void guard_leave(Guard *g);

/* An invariant is broken, says `fact`. */
_Noreturn void guard_break(const char *fact);

/* For `broken`: keeps the text in a file of the folder of temporary files, and adds to the error in
 * flight where it is; `what`: "the graph". */
void guard_keep(struct Ctx *cx, const char *what, const char *text);

#endif
