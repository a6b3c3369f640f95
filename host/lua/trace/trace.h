/* trace.h - a trace under way: between trace_begin and trace_end the ops of the script become
 * nodes.
 *
 * What the trace puts into the user's boxes and tables is noted in an undo table (in the registry),
 * so that the end can put everything back, also after an error. */
#ifndef MESHLUA_LUA_TRACE_TRACE_H
#define MESHLUA_LUA_TRACE_TRACE_H

#include "lua/value/value.h"

/* Begins a trace; there must be none. `mesh`: of the whole trace, or NULL: that of the first tensor
 * met that is on one. open: see Trace. */
void trace_begin(lua_State *L, Host *h, const Mesh *mesh, bool open);
/* The one under way; E_STATE, in the name of `who`, where there is none. */
Trace *trace_of(lua_State *L, const Host *h, const char *who);
/* Frees the trace; boxes and slots get back what they held. Never raises. */
void trace_end(lua_State *L, Host *h);
/* Runs `body` with the arguments on the stack, under a pcall: where it raises, a
 * trace that it began is ended before the error goes on. Returns body's results. A
 * trace may begin only within. */
int trace_protected(lua_State *L, lua_CFunction body);

/* A parameter of the program, named for messages; `state`: it comes from a box. Raises when out of
 * memory. */
Val trace_param(lua_State *L, Host *h, const Type *type, const char *name, bool state);
/* The type that the trace's next input has, of one whose tensor has type t: see instead_of and
 * laid_as. Raises when out of memory. */
const Type *trace_input_type(lua_State *L, Host *h, const Type *t, const char *what);
/* The traced value on top of the stack (popped) takes the place of the box's tensor. */
void trace_enter_box(lua_State *L, int box);
/* The same for the slot of a table: pops value and key. */
void trace_enter_slot(lua_State *L, int table);
/* The box at `index` is about to be written: E_STATE unless it was entered,
 * or the trace is open. */
void trace_note_write(lua_State *L, Host *h, int index);
/* The same before a transform puts something into the box for a while: that is always allowed. */
void trace_note_swap(lua_State *L, int box);

/* The box at `index` is read: noted, where somebody wants to know (Trace.reads). */
void trace_note_read(lua_State *L, int index);

/* Marks value v as a result; in layout `l`, if not NULL, which the Param `name` keeps. */
void trace_result(lua_State *L, Host *h, Val v, const Layout *l, const char *name);
/* Pushes the list of what is to be called after the program ran: tables {run = a function, args =
 * its argument}, whose tensors are results of the program; see effects in trace.c. */
void trace_push_effects(lua_State *L);
/* Calls the list on top of the stack, in order; pops it. */
void trace_run_effects(lua_State *L);

/* Raises where v was made for one example of a vmap that has ended, or in a custom_vjp's bwd. */
void trace_check(lua_State *L, Host *h, Val v);
/* Raises where v, a variable of a derivative, has come into this region from outside: what was
 * computed of it there is not known here. */
void trace_check_variable(lua_State *L, const Trace *t, Val v);
/* The tensor at `index` as a value of the trace: a concrete one becomes an input of it. */
Val trace_value(lua_State *L, Host *h, int index);

/* A list of names of manual mesh axes, major to minor; raises where they are not manual. */
AxisList trace_manual_axes(lua_State *L, Host *h, int index);
/* Raises where a spec names an axis that is manual here: the value is split along it already. */
void trace_manual_check_spec(lua_State *L, Host *h, const Mesh *m, const Spec *s);
void trace_push_rules(lua_State *L); /* those in context, or nil */

/* Each adds its functions to the table on top, and makes its metatables. */
void trace_open(lua_State *L);
void trace_open_box(lua_State *L);
void trace_open_context(lua_State *L);
void trace_open_control(lua_State *L);
void trace_open_explicit(lua_State *L);
void trace_open_manual(lua_State *L);
void trace_open_region(lua_State *L);
void trace_open_transform(lua_State *L);

#endif
