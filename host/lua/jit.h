/* jit.h - a jitted function and what it has traced.
 *
 * A call walks its arguments, makes a key of their structure, types and plain values, and looks for
 * an entry with that key. An entry knows the plan, which inputs are donated, which boxes get which
 * results, and the shape of what is returned. */
#ifndef MESHLUA_JIT_H
#define MESHLUA_JIT_H

#include "lua/trace.h"
#include "lua/walk.h"

#define VALUE_JIT "meshlua.jit"

typedef struct JitEntry {
    uint64_t hash;
    char *key, *describe;
    size_t nkey, ndescribe;
    Exec *exec;
    int32_t nleaf, nnumber, ncapture; /* inputs, in this order */
    int32_t nout, nwrite;             /* results: returned tensors, then writes to boxes */
    int32_t *write_leaf;              /* the leaf (from 0) whose box gets result nout + i */
    uint8_t *donated;                 /* by input: Donation */
    /* Room for a call: by input, and by result. */
    Tensor **args, **results;
    LuaTensor **handle;
    uint8_t *keep;
} JitEntry;

/* User values: 1 the function; 2 what is called (the function, or the library's wrapper of it); 3 a
 * list with a table per entry: template (of the returned values), mixed (its tables that hold
 * tensors), n (values returned), captures, held (see walk.h), effects (the
 * template of the list) if there are any. */
typedef struct LuaJit {
    Ctx *cx;
    JitEntry *entry;
    int32_t n, cap;
    int64_t hits, misses;
    uint64_t static_args, donate_args; /* bit i: argument i + 1 */
    bool keep_boxes;                   /* boxes that are written keep their old tensor */
    const Mesh *mesh;                  /* that the program is to run on; NULL: that in context */
    Str why;                           /* why the last call was traced */
    bool sealed; /* lowered for certain arguments: others are an error, not another trace */
    Str stages;  /* sealed: the program after every stage, see state_compile */
} LuaJit;

/* Is argument i (from 0) in the set? No argument behind the 64th is. */
static inline bool jit_has(uint64_t set, int i) {
    return i < 64 && (set >> i & 1);
}

/* Pushes a new one with room for three user values. */
LuaJit *jit_push_new(lua_State *L, Host *h);

/* The stack of a call: the jitted function, its arguments. */
enum { JIT = 1, FIRST = 2 };

/* Walks the whole call, its arguments at FIRST..last; numbers that are not static are counted. With
 * `describe` also into h->describe, and with what a trace needs. Leaves on the stack behind the
 * arguments: the function, the walk's three tables, the table of numbers; and, to describe it,
 * those of the leaves' names and of the objects held. */
enum { AFTER_FN = 1, AFTER_NUMBERS = 5 };
Walk jit_walk_call(lua_State *L, Host *h, const LuaJit *j, int last, bool describe,
                   int32_t *nnumber);
/* Fills j->why for the call that h->describe tells of, and says it to the log. stale: the call is
 * known but for a Param that it met. */
void jit_explain_miss(lua_State *L, Host *h, LuaJit *j, bool stale);
/* A line "name = text" of a description. */
typedef struct JitLine {
    const char *name, *text;
    int nname, ntext;
} JitLine;
const char *jit_read_line(const char *at, JitLine *l); /* where the next one begins */
bool jit_find_line(const char *in, const JitLine *name, JitLine *out);
/* Raises: the call that h->describe tells of is not one that a sealed function was lowered for. */
_Noreturn void jit_raise_mismatch(lua_State *L, Host *h, const LuaJit *j);
/* A call that has been traced; the trace is still open. The lists are in userdata on the stack. */
typedef struct Traced {
    JitEntry e;          /* counts only */
    int side;            /* the entry's table, on the stack */
    int32_t *write_leaf; /* see JitEntry */
    uint8_t *donated;
} Traced;
/* Runs the function in a trace, with tracers for its arguments. */
Traced jit_trace_call(lua_State *L, Host *h, const LuaJit *j, const Walk *w, int last,
                      int32_t nnumber);
void jit_push_scalar(lua_State *L, Host *h);
/* step:program(arguments...): see lprogram.c. */
int lprogram_trace(lua_State *L);

/* Traces and plans for the arguments at FIRST..last, as the walk `w` (with slots and description)
 * saw them; returns the new entry. To be called under trace_protected. */
JitEntry *jit_trace(lua_State *L, Host *h, LuaJit *j, const Walk *w, int last, int32_t nnumber);
void jit_free_entry(Ctx *cx, JitEntry *e);
/* Pushes the values that the function returns: the entry's template with results in their places.
 * `side`: the entry's table; `results`: a list of handles. */
int jit_push_returned(lua_State *L, int side, int results);
/* Calls what the trace noted to be called after the program. */
void jit_run_effects(lua_State *L, int side, int results);
void jit_stages_open(lua_State *L); /* adds its functions to the table on top */

#endif
