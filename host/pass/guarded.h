/* guarded.h - passes as work that a broken invariant of theirs gives up (see base/guard.h): the
 * graph that they were given is kept in a file, and E_INTERNAL names the pass. */
#ifndef MESHLUA_GUARDED_H
#define MESHLUA_GUARDED_H

#include "ir/graph.h"

typedef struct Guarded {
    const Graph *g;    /* what the pass under way was given, and its name: `run` keeps them */
    const char *stage; /* up to date */
    Err (*run)(struct Guarded *w);
} Guarded;

/* w->run(w), or E_INTERNAL. */
Err guarded_run(Guarded *w) MUST_CHECK;

#endif
