/* plan_info.h - a plan as scripts see it: its steps, collectives, memory and text. */
#ifndef MESHLUA_LUA_JIT_PLAN_INFO_H
#define MESHLUA_LUA_JIT_PLAN_INFO_H

#include "lua/value/value.h"

Exec **plan_info_new(lua_State *L);         /* pushes a userdata that owns what is put in here */
void plan_info_push(lua_State *L, Exec *e); /* one with a reference of its own */
void plan_info_push_strings(lua_State *L, const Plan *p, PlanSpan ids); /* a list */
void plan_info_open(lua_State *L);

#endif
