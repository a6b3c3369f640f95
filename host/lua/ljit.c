/* ljit.c - jit: a function traced once for each kind of arguments, and from then on a plan. */
#include "lua/jit.h"
#include "lua/lprofile.h"
#include "lua/plan_info.h"

#include <string.h>

static LuaJit *jit_at(lua_State *L, int index) {
    return value_udata(L, index, VALUE_JIT);
}

static int jit_gc(lua_State *L) {
    LuaJit *j = jit_at(L, 1);
    if (!j->cx) return 0;
    for (int32_t i = 0; i < j->n; i++) jit_free_entry(j->cx, &j->entry[i]);
    alloc_free(&j->cx->alloc, j->entry, sizeof *j->entry * (size_t)j->cap);
    str_free(&j->why);
    str_free(&j->stages);
    j->cx = NULL;
    return 0;
}

/* ---- the key ---- */

/* What the function closes over directly: plain values and tensors are compared at each call. */
static void walk_upvalues(Walk *w, int fn) {
    lua_State *L = w->L;
    const char *name;
    for (int i = 1; (name = lua_getupvalue(L, fn, i)); i++) {
        int type = lua_type(L, -1);
        bool plain = type == LUA_TNUMBER || type == LUA_TSTRING || type == LUA_TBOOLEAN;
        const LuaTensor *u = luaL_testudata(L, -1, VALUE_TENSOR);
        if (plain || (u && u->t)) { /* what an earlier trace left behind is of no use to this one */
            str_clear(&w->h->path);
            if (w->describe) str_fmt(&w->h->path, "upvalue %s", name);
            walk_static(w, lua_gettop(L));
        }
        lua_pop(L, 1);
    }
}

static void walk_context(Walk *w) {
    lua_State *L = w->L;
    Host *h = w->h;
    const void *context[2] = {h->mesh, h->rt.target};
    str_put_n(&h->key, (const char *)context, sizeof context);
    str_put_n(&h->key, h->expand ? "e" : "-", 1);
    const uint32_t passes[2] = {h->passes_on, h->passes_off};
    str_put_n(&h->key, (const char *)passes, sizeof passes);
    if (w->describe) {
        str_put(&h->describe, "the mesh in context = ");
        if (h->mesh) mesh_print(h->mesh, &h->describe);
        str_fmt(&h->describe, "\nexpanded = %d\npasses switched on %x, off %x\n", h->expand,
                h->passes_on, h->passes_off);
    }
    lcontext_push_rules(L);
    walk_value(w, -1, "the rules in context");
    lua_pop(L, 1);
}

/* The name of the function's i-th parameter, from 1; the function keeps it. */
static const char *param_name(lua_State *L, int fn, int i) {
    lua_pushvalue(L, fn);
    const char *name = lua_getlocal(L, NULL, i);
    lua_pop(L, 1);
    return name ? name : "argument";
}

static void check_static(lua_State *L, const Host *h, const LuaJit *j, int i) {
    if (!jit_has(j->static_args, i - FIRST)) return;
    if (lua_istable(L, i) || value_is_tensor(L, h, i))
        state_error(L, E_VALUE,
                    "static argument %d is a %s; only numbers, strings and booleans can be static",
                    i - FIRST + 1, value_type_name(L, i));
}

/* Walks the arguments; numbers that are not static are collected in the table `numbers`. */
static int32_t walk_arguments(Walk *w, const LuaJit *j, int fn, int last, int numbers) {
    lua_State *L = w->L;
    int32_t nnumber = 0;
    for (int i = FIRST; i <= last; i++) {
        bool is_static = jit_has(j->static_args, i - FIRST);
        const char *name = w->describe ? param_name(L, fn, i - FIRST + 1) : NULL;
        check_static(L, w->h, j, i);
        if (lua_type(L, i) != LUA_TNUMBER || is_static) {
            walk_value(w, i, name);
            continue;
        }
        bool whole = lua_isinteger(L, i);
        lua_Integer n = lua_tointeger(L, i);
        if (whole && (n < INT32_MIN || n > INT32_MAX))
            state_error(L, E_VALUE,
                        "argument %s: the number %lld is out of range for int32; make it static or "
                        "a float",
                        param_name(L, fn, i - FIRST + 1), (long long)n);
        str_put_n(&w->h->key, whole ? "N" : "D", 1);
        if (w->describe)
            str_fmt(&w->h->describe, "%s = %s\n", name, whole ? "a whole number" : "a number");
        lua_pushvalue(L, i);
        lua_rawseti(L, numbers, ++nnumber);
    }
    return nnumber;
}

Walk jit_walk_call(lua_State *L, Host *h, const LuaJit *j, int last, bool describe,
                   int32_t *nnumber) {
    Walk w;
    lua_settop(L, last);
    luaL_checkstack(L, 2 * LUA_MINSTACK, "too many arguments");
    lua_getiuservalue(L, JIT, 1);
    walk_begin(&w, L, h, true);
    w.describe = w.name_modules = describe;
    w.quiet = !describe;
    lua_newtable(L);
    if (describe) {
        lua_newtable(L);
        w.names = lua_gettop(L);
        lua_newtable(L);
        w.held = lua_gettop(L);
    }
    walk_context(&w);
    walk_upvalues(&w, last + AFTER_FN);
    *nnumber = walk_arguments(&w, j, last + AFTER_FN, last, last + AFTER_NUMBERS);
    walk_check(&w);
    return w;
}

/* ---- running ---- */

/* A handle with a scalar tensor for the number on top of the stack. */
void jit_push_scalar(lua_State *L, Host *h) {
    bool whole = lua_isinteger(L, -1);
    Type t = {.dtype = whole ? DT_I32 : DT_F32, .weak = true};
    const Type *type = type_of(&h->cx, &t);
    lua_Integer i = lua_tointeger(L, -1);
    float f = (float)lua_tonumber(L, -1);
    int32_t i32 = (int32_t)i;
    LuaTensor *u = value_new_tensor(L);
    u->t = type ? tensor_alloc(&h->cx, type) : NULL;
    if (!u->t) state_check(L, h, err_nomem(&h->cx, "a number"));
    memcpy(tensor_data(u->t, 0), whole ? (const void *)&i32 : (const void *)&f, 4);
}

/* A tensor may come under several handles: those of them that are donated must not be taken twice,
 * and not be written while they are read. */
static void keep_shared(lua_State *L, Host *h, JitEntry *e, int32_t i, int32_t n) {
    for (int32_t k = 0; k < n; k++) {
        if (k == i || e->args[k] != e->args[i]) continue;
        if (e->donated[i] == DONATE_ASKED && e->donated[k] == DONATE_ASKED) {
            type_print(e->args[i]->type, state_text(h));
            state_error(L, E_DONATE, "one tensor (%s) is donated twice", str_of(&h->text));
        }
        e->keep[i] = true;
    }
}

/* Fills handle, args and keep. Everything stays owned by boxes and tables on the stack. */
static void gather_inputs(lua_State *L, Host *h, JitEntry *e, const Walk *w, int numbers,
                          int side) {
    int32_t n = e->nleaf;
    int top = lua_gettop(L);
    /* First what allocates: it may run finalizers, and they may write boxes. */
    for (int32_t i = 1; i <= e->nnumber; i++) {
        if (lua_rawgeti(L, numbers, i) == LUA_TNUMBER) {
            jit_push_scalar(L, h);
            lua_pushvalue(L, -1);
            lua_rawseti(L, numbers, i);
        }
        e->handle[n++] = lua_touserdata(L, -1);
        lua_settop(L, top);
    }
    for (int32_t i = 0; i < e->nleaf; i++) {
        lua_rawgeti(L, w->leaves, i + 1);
        e->handle[i] = value_tensor(L, h, -1);
        lua_pop(L, 1);
    }
    lua_getfield(L, side, "captures");
    for (int32_t i = 1; i <= e->ncapture; i++) {
        lua_rawgeti(L, -1, i);
        e->handle[n++] = value_tensor(L, h, -1);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    for (int32_t i = 0; i < n; i++) {
        e->args[i] = e->handle[i]->t;
        /* A box has a handle of its own: a second reference means that somebody kept the tensor. */
        e->keep[i] = e->donated[i] == DONATE_IF_SOLE && e->args[i]->refs > 1;
    }
    for (int32_t i = 0; i < n; i++)
        if (e->donated[i] == DONATE_ASKED && e->args[i]->refs > 1) keep_shared(L, h, e, i, n);
}

/* Is every captured box still of the type that was traced? */
static bool captures_fit(lua_State *L, Host *h, const JitEntry *e, int side) {
    const Plan *p = e->exec->plan;
    bool fit = true;
    lua_getfield(L, side, "captures");
    for (int32_t i = 0; i < e->ncapture && fit; i++) {
        lua_rawgeti(L, -1, i + 1);
        const PlanValue *v =
            plan_value(p, PLAN_LIST(p, PlanParam, p->params)[e->nleaf + e->nnumber + i].value);
        const Type *now = value_type(h, value_tensor(L, h, -1));
        Dims local = layout_local(now->layout, &now->dims);
        fit = now->dtype == (DType)v->dtype && local.rank == v->rank &&
              memcmp(local.at, plan_dims(p, v), sizeof(int64_t) * v->rank) == 0 &&
              layout_vary(now->layout) == v->vary;
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return fit;
}

/* The boxes that were written get their results; donated tensors are gone. Cannot raise. */
static void commit(JitEntry *e) {
    static const char *const why = "it was donated to a jitted function";
    for (int32_t i = 0; i < e->nleaf; i++)
        if (e->donated[i] == DONATE_ASKED) tensor_delete(e->args[i], why);
    for (int32_t i = 0; i < e->nwrite; i++) {
        LuaTensor *u = e->handle[e->write_leaf[i]];
        tensor_release(u->t);
        u->t = e->results[e->nout + i];
    }
}

static int run_entry(lua_State *L, Host *h, const LuaJit *j, int32_t index, const Walk *w,
                     int numbers, int side) {
    JitEntry *e = &j->entry[index];
    lua_createtable(L, e->nout, 0);
    int results = lua_gettop(L);
    LuaTensor **out = lua_newuserdatauv(L, sizeof *out * (size_t)(e->nout + 1), 0);
    for (int32_t i = 0; i < e->nout; i++) {
        out[i] = value_new_tensor(L);
        lua_rawseti(L, results, i + 1);
    }
    state_collect_if_needed(L, h);
    e = &j->entry[index]; /* finalizers may have called this function, too */
    gather_inputs(L, h, e, w, numbers, side);
    Err err = exec_run(e->exec, e->args, e->keep, e->results);
    if (state_collect_after(L, h, err)) {
        e = &j->entry[index];
        gather_inputs(L, h, e, w, numbers, side);
        err = exec_run(e->exec, e->args, e->keep, e->results);
    }
    state_check(L, h, err);
    commit(e);
    for (int32_t i = 0; i < e->nout; i++) out[i]->t = e->results[i];
    h->used = true;
    jit_run_effects(L, side, results);
    return jit_push_returned(L, side, results);
}

/* ---- the call ---- */

/* The entry with this key whose captures are as they were, with its table pushed; NULL with nothing
 * pushed. *stale: there is one but for its captures. */
static JitEntry *push_entry(lua_State *L, Host *h, LuaJit *j, const Str *key, bool *stale) {
    uint64_t hash = hash_bytes(0, key->at, key->n);
    *stale = false;
    lua_getiuservalue(L, JIT, 3);
    for (int32_t i = 0; i < j->n; i++) {
        JitEntry *e = &j->entry[i];
        if (e->hash != hash || e->nkey != key->n || memcmp(e->key, key->at, key->n) != 0) continue;
        lua_rawgeti(L, -1, i + 1);
        if (captures_fit(L, h, e, lua_gettop(L))) return e;
        lua_pop(L, 1);
        *stale = true;
    }
    lua_pop(L, 1);
    return NULL;
}

/* The entry for the arguments on the stack, traced if need be; its table is pushed. */
static JitEntry *entry_for_call(lua_State *L, Host *h, LuaJit *j, int last, Walk *w) {
    int32_t nnumber;
    bool stale = false;
    *w = jit_walk_call(L, h, j, last, false, &nnumber);
    JitEntry *e = w->failed ? NULL : push_entry(L, h, j, &h->key, &stale);
    if (e) {
        j->hits++;
        return e;
    }
    j->misses++;
    *w = jit_walk_call(L, h, j, last, true, &nnumber);
    if (j->sealed) jit_raise_mismatch(L, h, j);
    jit_explain_miss(L, h, j, stale);
    e = jit_trace(L, h, j, w, last, nnumber);
    lua_getiuservalue(L, JIT, 3);
    lua_rawgeti(L, -1, j->n);
    return e;
}

static int call_body(lua_State *L) {
    Host *h = state_of(L);
    LuaJit *j = jit_at(L, JIT);
    int last = lua_gettop(L);
    Walk w;
    int64_t start = profile_now(h->rt.profile);
    JitEntry *e = entry_for_call(L, h, j, last, &w);
    int n = run_entry(L, h, j, (int32_t)(e - j->entry), &w, last + AFTER_NUMBERS, lua_gettop(L));
    if (start) lprofile_note(L, JIT, PROFILE_CALL, start);
    return n;
}

/* Inside another trace the function is part of it. */
static int call_inline(lua_State *L, const Host *h) {
    const LuaJit *j = jit_at(L, JIT);
    if (j->sealed)
        state_error(L, E_TRACED,
                    "a compiled function cannot be part of a traced one, nor be differentiated; "
                    "call the jitted function it was lowered from");
    for (int i = FIRST; i <= lua_gettop(L); i++) check_static(L, h, j, i);
    if (j->donate_args)
        state_error(L, E_DONATE,
                    "a jitted function that donates is called in another traced function, where "
                    "nothing is donated; say `donate` to the outer jit");
    lua_getiuservalue(L, JIT, 2);
    lua_replace(L, JIT);
    lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
    return lua_gettop(L);
}

static int jit_call(lua_State *L) {
    Host *h = state_of(L);
    if (h->trace) return call_inline(L, h);
    if (h->rt.interrupted) {
        h->rt.interrupted = 0;
        state_error(L, E_INTERRUPT, "interrupted");
    }
    return trace_protected(L, call_body);
}

static int plan_body(lua_State *L) {
    Walk w;
    JitEntry *e = entry_for_call(L, state_of(L), jit_at(L, JIT), lua_gettop(L), &w);
    plan_info_push(L, e->exec);
    return 1;
}

/* step:plan(arguments...): the plan for a call with these arguments, without running it. */
static int jit_plan(lua_State *L) {
    jit_at(L, JIT);
    return trace_protected(L, plan_body);
}

/* step:why_miss(): why the latest trace was made. */
static int jit_why_miss(lua_State *L) {
    const LuaJit *j = jit_at(L, 1);
    lua_pushstring(L, j->why.n ? str_of(&j->why) : "it has not been called");
    return 1;
}

/* step:stats(): calls that found a plan, calls that were traced. */
static int jit_stats(lua_State *L) {
    const LuaJit *j = jit_at(L, 1);
    lua_pushinteger(L, j->hits);
    lua_pushinteger(L, j->misses);
    return 2;
}

static uint64_t mask_field(lua_State *L, int index, const char *name) {
    lua_getfield(L, index, name);
    uint64_t mask = (uint64_t)lua_tointeger(L, -1);
    lua_pop(L, 1);
    return mask;
}

LuaJit *jit_push_new(lua_State *L, Host *h) {
    LuaJit *j = lua_newuserdatauv(L, sizeof *j, 3);
    *j = (LuaJit){.cx = &h->cx};
    str_init(&j->why, &h->cx.alloc);
    str_init(&j->stages, &h->cx.alloc);
    luaL_setmetatable(L, VALUE_JIT);
    lua_newtable(L);
    lua_setiuservalue(L, -2, 3);
    return j;
}

/* jit_new{fn =, call =, static = mask, donate = mask, keep_boxes =, mesh =} */
static int jit_new(lua_State *L) {
    Host *h = state_of(L);
    value_check_type(L, 1, LUA_TTABLE, "jit_new");
    lua_settop(L, 1);
    LuaJit *j = jit_push_new(L, h);
    lua_getfield(L, 1, "fn");
    value_check_type(L, -1, LUA_TFUNCTION, "jit_new: fn");
    lua_setiuservalue(L, 2, 1);
    lua_getfield(L, 1, "call");
    value_check_type(L, -1, LUA_TFUNCTION, "jit_new: call");
    lua_setiuservalue(L, 2, 2);
    j->static_args = mask_field(L, 1, "static");
    j->donate_args = mask_field(L, 1, "donate");
    lua_getfield(L, 1, "keep_boxes");
    j->keep_boxes = lua_toboolean(L, -1);
    if (lua_getfield(L, 1, "mesh") != LUA_TNIL) j->mesh = value_mesh(L, -1);
    lua_settop(L, 2);
    return 1;
}

/* "jit(models/gpt.lua:12), 2 plans" */
static int jit_tostring(lua_State *L) {
    const LuaJit *j = value_udata(L, 1, VALUE_JIT);
    lua_Debug ar;
    lua_getiuservalue(L, 1, 1);
    lua_getinfo(L, ">S", &ar);
    lua_pushfstring(L, "jit(%s:%d), %d plan%s", ar.short_src, ar.linedefined, (int)j->n,
                    j->n == 1 ? "" : "s");
    return 1;
}

void ljit_open(lua_State *L) {
    static const luaL_Reg meta[] = {
        {"__call", jit_call}, {"__gc", jit_gc}, {"__tostring", jit_tostring}, {NULL, NULL}};
    static const luaL_Reg methods[] = {{"plan", jit_plan},
                                       {"program", lprogram_trace},
                                       {"why_miss", jit_why_miss},
                                       {"stats", jit_stats},
                                       {NULL, NULL}};
    value_new_type(L, VALUE_JIT, meta, methods, NULL);
    lua_pushcfunction(L, jit_new);
    lua_setfield(L, -2, "jit_new");
    jit_stages_open(L);
}
