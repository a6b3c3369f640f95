/* jit.h - a jitted function and what it has traced.
 *
 * A call walks its arguments, makes a key of their structure, types and plain values, and looks for
 * an entry with that key. An entry knows the plan, which inputs are donated, which boxes get which
 * results, and the shape of what is returned.
 *
 * Most calls find their entry by an alias: the key of a quick walk (see walk.h). What has no alias
 * yet is learned: walked in the one order, found or traced, and given one. */
#ifndef MESHLUA_LUA_JIT_JIT_H
#define MESHLUA_LUA_JIT_JIT_H

#include "lua/trace/trace.h"
#include "lua/value/walk.h"

#define VALUE_JIT "meshlua.jit"

/* An input that the trace met without its being an argument; the entry's table keeps it. */
typedef struct JitCapture {
    LuaBox *box; /* NULL: a tensor */
    LuaTensor *handle;
    const Type *fits; /* a type that it had and that fits the plan */
} JitCapture;

typedef struct JitEntry {
    uint64_t hash;
    char *key, *describe;
    size_t nkey, ndescribe;
    Exec *exec;
    int32_t nleaf, nnumber, ncapture; /* inputs, in this order */
    int32_t nout, nwrite;             /* results: returned tensors, then writes to boxes */
    int32_t *write_leaf;              /* the leaf (from 0) whose box gets result nout + i */
    uint8_t *donated;                 /* by input: Donation */
    JitCapture *capture;
    bool asked;   /* some inputs are DONATE_ASKED */
    bool direct;  /* it returns its results as they are */
    bool effects; /* there is something to call after it */
    /* Room for a call: by input, and by result. Nothing that could call again comes in between. */
    Tensor **args, **results;
    uint8_t *fate;
    Tensor **number; /* the tensors that the last call had for its numbers */
} JitEntry;

typedef struct JitAlias {
    uint64_t hash;
    char *key; /* of a quick walk */
    size_t nkey;
    int32_t entry; /* which */
    int32_t nleaf;
    int32_t *order; /* leaf i of the entry is leaf order[i] of the walk, both from 0 */
} JitAlias;

/* User values: 1 the function; 2 what is called (the function, or the library's wrapper of it); 3 a
 * list with a table per entry: template (of the returned values), mixed (its tables that hold
 * tensors), n (values returned), captures, held (see walk.h), effects (the
 * template of the list) if there are any. */
typedef struct LuaJit {
    Ctx *cx;
    JitEntry *entry;
    int32_t n, cap;
    JitAlias *alias;
    int32_t naliases, alias_cap, latest; /* latest: the one that the last call had */
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

/* ---- the key (key.c) ---- */

/* Is the argument at `index`, the i-th (from 0), a number that is an input? */
bool jit_is_number(lua_State *L, const LuaJit *j, int index, int i);
void jit_check_static(lua_State *L, const Host *h, const LuaJit *j, int index, int i);
/* Walks the whole call, its arguments at FIRST..last, and describes it in h->describe. Leaves on
 * the stack behind the arguments: the function, the walk's three tables, those of the leaves' names
 * and of the objects held. */
Walk jit_walk_call(lua_State *L, Host *h, const LuaJit *j, int last);
/* The parts of a quick walk: what holds for the call as a whole (the function lies at `fn`), and
 * the arguments from the i-th (from 0) on, at first..last. */
void jit_walk_around(Walk *w, int fn);
void jit_walk_arguments(Walk *w, const LuaJit *j, int first, int last, int i);

/* ---- the call (call.c) ---- */

/* The arguments that a bound function has been given, as their walk found them. User values: 1 the
 * jitted function; 2 the list of the arguments; 3 and 4 their leaves, and the objects whose
 * addresses are in the key. */
typedef struct LuaBound {
    Ctx *cx;
    int n;     /* arguments */
    char *key; /* what they add to that of a quick walk */
    size_t nkey;
    FoundLeaf *leaf; /* type_at: in `key` */
    NumberArg *number;
    int32_t nleaf, nnumber;
} LuaBound;
/* Adds what they are now to a quick walk. */
void jit_walk_bound(Walk *w, LuaBound *b);

/* The call as it is on the stack: the function at JIT, all arguments behind it. */
int jit_run_call(lua_State *L, Host *h, LuaJit *j);
/* The same with the bound arguments in front of those at FIRST..last; j lies at `last + 1`, and
 * nothing behind it. -1: with these it has not been called before; the stack is as it was. */
int jit_run_bound(lua_State *L, Host *h, LuaJit *j, LuaBound *b, int nbound);
/* Inside another trace the function is part of it. The stack as for jit_run_call. */
int jit_inline_call(lua_State *L, const Host *h, const LuaJit *j);
/* The entry for the arguments on the stack, traced if need be. */
JitEntry *jit_entry_for(lua_State *L, Host *h, LuaJit *j, int last, Walk *w);
void jit_drop_aliases(LuaJit *j);

/* Fills j->why for the call that h->describe tells of, and says it to the log. stale: the call is
 * known but for a Param that it met. */
void jit_explain_miss(lua_State *L, Host *h, LuaJit *j, bool stale);
/* A line "name = text" of a description. */
typedef struct JitLine {
    const char *name, *text;
    int nname, ntext;
} JitLine;
const char *jit_read_line(const char *at, JitLine *l); /* where the next one begins */
/* Raises: the call that h->describe tells of is not one that a sealed function was lowered for. */
_Noreturn void jit_raise_mismatch(lua_State *L, Host *h, const LuaJit *j);
/* A call that has been traced; the trace is still open. The lists are in userdata on the stack. */
typedef struct Traced {
    JitEntry e;           /* counts only */
    int side;             /* the entry's table, on the stack */
    const char *describe; /* what the walk said of the call; a string on the stack */
    int32_t *write_leaf;  /* see JitEntry */
    uint8_t *donated;
} Traced;
/* Runs the function in a trace, with tracers for its arguments. */
Traced jit_trace_call(lua_State *L, Host *h, const LuaJit *j, const Walk *w, int last);
int jit_program_trace(lua_State *L); /* step:program(arguments...): see program.c */

/* Traces and plans for the arguments at FIRST..last, as the walk `w` (with slots and description)
 * saw them; returns the new entry. To be called under trace_protected. */
JitEntry *jit_trace(lua_State *L, Host *h, LuaJit *j, const Walk *w, int last);
void jit_drop_entries(LuaJit *j); /* and their aliases */
/* Pushes the values that the function returns: the entry's template with results in their places.
 * `side`: the entry's table; the handles of the results lie behind `base`. */
int jit_push_returned(lua_State *L, int side, int base);
/* Calls what the trace noted to be called after the program. */
void jit_run_effects(lua_State *L, int side, int base);
int jit_bind(lua_State *L); /* step:bind(arguments...): see bind.c */
void jit_open(lua_State *L);
void jit_open_program(lua_State *L);
void jit_bind_open(lua_State *L);
void jit_lower_open(lua_State *L); /* adds its functions to the table on top */

#endif
