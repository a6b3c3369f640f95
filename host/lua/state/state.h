/* state.h - what one Lua state knows: context, runtime, plans, the trace under way, and where we
 * are in the user's script. Kept in the registry; dies after every other userdata. */
#ifndef MESHLUA_LUA_STATE_STATE_H
#define MESHLUA_LUA_STATE_STATE_H

#include "ir/build.h"
#include "pass/pass.h"
#include "run/exec/plan_cache.h"

#include <lauxlib.h>
#include <lua.h>
#include <stdio.h>

/* Where the user's code entered the library: see where.c. */
typedef struct Entry {
    const char *scope; /* path of modules, interned, or NULL */
    lua_State *L;      /* not NULL: the caller's place is still to be read from its frame, */
    lua_Debug caller;  /* which lasts longer than the entry */
    const char *chunk; /* the user's, interned; NULL: entered from library code */
    int32_t line;
} Entry;

/* A tensor or box that a trace met although it is no argument: an input all the same. */
typedef struct Capture {
    const void *of; /* the Tensor, the LuaBox */
    Tensor *tensor; /* retained; NULL: the box at `ref` */
    int ref;        /* registry reference to the box, or LUA_NOREF */
    Val v;
} Capture;

/* A region under way, and the values that entered it from the one around it. */
typedef struct Frame {
    int32_t region;
    VEC(Val) met;   /* values of the region outside */
    VEC(Val) outer; /* these, varying over the axes of `vary`, too */
    VEC(Val) param; /* what stands for them inside */
    Map entered;    /* by what was met */
    uint32_t vary;
} Frame;

typedef struct NodeRange {
    int32_t first, end;
    bool failed; /* what made them raised an error */
} NodeRange;

typedef struct Trace {
    uint64_t serial; /* tracers of other traces are refused */
    bool open;       /* boxes that are no arguments may be written, too */
    bool reads;      /* somebody wants to know which boxes are read: see note_reads */
    Graph *graph;
    Build build;      /* of the innermost region */
    VEC(Frame) frame; /* the regions under way, the innermost last; see region.c */
    VEC(Capture) capture;
    Map captured;        /* by Capture.of */
    int32_t inside;      /* transforms under way whose values do not last: no Param is written */
    VEC(NodeRange) gone; /* nodes of such transforms that ended, or of what failed; ascending */
    Arena arena;
} Trace;

/* A leaf of the arguments of a jitted function. */
typedef struct FoundLeaf {
    struct LuaBox *box; /* NULL: a tensor */
    struct LuaTensor *handle;
    size_t type_at; /* where the key of the walk has the address of its type */
} FoundLeaf;

/* A number among them. */
typedef struct NumberArg {
    bool whole;
    union {
        int32_t i;
        float f;
    } as;
} NumberArg;

typedef struct Host {
    Ctx cx;
    Runtime rt;
    PlanCache plans;
    Trace *trace; /* NULL: eager */
    uint64_t traces;
    Entry *entry; /* a stack */
    int32_t depth, depth_cap;
    const Mesh *mesh;                /* of `mesh:with`, or NULL */
    const Mesh *mesh_from, *mesh_to; /* mesh_to stands in for mesh_from: see instead_of */
    bool laid;                       /* inputs of a trace lie otherwise: see laid_as */
    size_t bytes_at_gc;              /* tensor bytes after the last full collection */
    size_t bytes_to_gc;              /* how many more bring the next one */
    int64_t results_to_gc;           /* results of calls until the next one */
    int64_t data_bytes;              /* of data files, read by this process */
    int64_t catalog_bytes;           /* of files of tensors, the same */
    bool used;                       /* a tensor or mesh was made: devices can no longer change */
    char *dump_stage;
    FILE *dump;
    bool dumped; /* a program was written to it */
    /* The addresses of their metatables: see value_handle. */
    const void *tensor_meta, *box_meta, *attr_meta;
    bool expand, verify, reread;
    lua_State *interrupted_in; /* where Ctrl-C was last raised */
    /* The handler of ml.on_stop runs, has been called, has failed. */
    bool stopping, stop_handled, stop_failed;
    uint32_t passes_on, passes_off; /* masks of PassSwitch */
    Str text; /* scratch of the printers: kept, so that a raise in Lua leaks nothing */
    Str key, path, describe; /* of a walk over arguments */
    /* What the latest quick walk found, see walk_begin_quick; and the last mark that such a walk
     * left on a leaf. */
    FoundLeaf *leaf;
    NumberArg *number;
    int32_t leaf_cap, number_cap;
    uint64_t marks;
} Host;

/* Opens a state's host; the registry owns it. Raises on failure. `ranks`: finds out which process
 * this is; NULL: it does not matter. */
Host *state_open(lua_State *L, const char *devices, const RankFlags *ranks);
/* Meets the other processes, once. */
void state_connect(lua_State *L, const JoinFlags *join);
extern const char state_key; /* its address is where the registry has the host */
Host *state_of(lua_State *L);

/* ---- the one place that raises ---- */
/* Raises the error in flight: "mlp.lua:12: [E_SHAPE] matmul: ...". Never returns. */
_Noreturn void state_raise(lua_State *L, Host *h);
/* What a function gives where the environment is at fault: pushes nil, message, code, and returns
 * 3. Memory that ran out and Ctrl-C are raised. */
int state_failed(lua_State *L, Host *h, Err e);
/* Raises if e is an error. */
static inline void state_check(lua_State *L, Host *h, Err e) {
    if (e) state_raise(L, h);
}
/* Sets the error and raises it. */
_Noreturn void state_error(lua_State *L, ErrCode code, const char *fmt, ...) PRINTF(3, 4);

/* The host's scratch text, emptied; and the string in it pushed (E_NOMEM if it did not fit). */
Str *state_text(Host *h);
int state_push_text(lua_State *L, Host *h);
/* So many more results are to be made; collects now if there have been many since the last full
 * collection, or if tensor bytes have grown much. */
void state_collect_if_needed(lua_State *L, Host *h, int32_t results);
/* Was it memory that ran out? Then all garbage is collected: a second try may do. */
bool state_collect_after(lua_State *L, Host *h, Err e);
/* A plan for the graph, from the cache or new; the caller releases it. `donated`: see pass_plan.
 * by_place: one of its own for every place where the program is written.
 * `stages`, if not NULL, gets the text of the program after every stage, each behind "\0NAME\0";
 * the plan is then a new one. */
Err state_compile(Host *h, const Graph *g, const uint8_t *donated, bool by_place, Str *stages,
                  Exec **out) MUST_CHECK;
/* The same for who has a key of its own: a new plan, which the cache has under that key alone. */
Err state_compile_as(Host *h, PlanCacheKey key, const Graph *g, const uint8_t *donated,
                     Exec **out) MUST_CHECK;

/* ---- where we are in the user's script ---- */
void where_find(lua_State *L, Host *h, Loc *loc);
const Loc *where_loc(lua_State *L, Host *h); /* interned, for a node; NULL when out of memory */
/* The Lua function's frame at `level` or above; behind the end of a coroutine's stack the main
 * thread's goes on. The thread that has the frame, or NULL. */
lua_State *where_frame(lua_State *L, int level, lua_Debug *ar);
/* Is the frame (read with "S") the library's? */
bool where_is_library(const lua_Debug *ar);

/* ---- calls that note who called (wrap.c) ---- */
/* Names a module (a table) for the scopes of the ops inside it. */
void wrap_set_path(lua_State *L, int module, const char *path);
/* Calls the function on top with the n arguments below it (there is nothing else) for the caller of
 * the C function that runs, whose line errors then name. Returns the number of results. */
int wrap_call(lua_State *L, Host *h, int n);
/* lua_pcall with all results; the traceback of an error is kept for who reports it. */
int wrap_pcall(lua_State *L, int nargs);
/* The name of the library function that the user called, of which what runs is a part; NULL. */
const char *wrap_called(lua_State *L);
void wrap_open(lua_State *L); /* adds its functions to the table on top */

#endif
