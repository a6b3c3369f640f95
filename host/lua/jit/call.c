/* call.c - a call of a jitted function: found by its alias and run, or learned first. */
#include "lua/jit/jit.h"
#include "lua/jit/profile.h"
#include "lua/state/stop.h"

#include <string.h>

/* The function lies at `jit`, the arguments at FIRST..last, behind nbound others; handles for the
 * results lie behind `base`, where nothing else does. */
typedef struct Call {
    Host *h;
    LuaJit *j;
    int jit, last, base;
    LuaBound *bound; /* or NULL */
    int nbound;
    int64_t start; /* profiled: when it began */
} Call;

/* ---- what the trace met beside the arguments ---- */

/* Is the type, in local shapes, that of the plan's input? */
static bool fits_input(const JitEntry *e, int32_t input, const Type *now) {
    const Plan *p = e->exec->plan;
    const PlanValue *v = plan_value(p, PLAN_LIST(p, PlanParam, p->params)[input].value);
    Dims local = layout_local(now->layout, &now->dims);
    return now->dtype == (DType)v->dtype && local.rank == v->rank &&
           memcmp(local.at, plan_dims(p, v), sizeof(int64_t) * v->rank) == 0 &&
           layout_vary(now->layout) == v->vary;
}

/* Is every capture there, and still of a type that fits what was traced? */
static bool captures_fit(JitEntry *e) {
    for (int32_t i = 0; i < e->ncapture; i++) {
        JitCapture *c = &e->capture[i];
        if (c->box) c->handle = c->box->held;
        if (!c->handle || !c->handle->t || tensor_is_deleted(c->handle->t)) return false;
        const Type *now = c->handle->t->type;
        if (now != c->fits && !fits_input(e, e->nleaf + e->nnumber + i, now)) return false;
        c->fits = now;
    }
    return true;
}

/* Raises for a capture that is empty or deleted. */
static void check_captures(lua_State *L, Host *h, const JitEntry *e, int side) {
    lua_getfield(L, side, "captures");
    for (int32_t i = 1; i <= e->ncapture; i++) {
        lua_rawgeti(L, -1, i);
        value_tensor(L, h, -1);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

/* ---- found in the one order, or traced ---- */

/* The entry with the key whose captures are as they were; NULL if there is none. *stale: there is
 * one but for its captures. */
static JitEntry *find_entry(lua_State *L, Host *h, LuaJit *j, const Str *key, bool *stale) {
    uint64_t hash = hash_bytes(0, key->at, key->n);
    int top = lua_gettop(L);
    JitEntry *found = NULL;
    *stale = false;
    lua_getiuservalue(L, JIT, 3);
    for (int32_t i = 0; i < j->n && !found; i++) {
        JitEntry *e = &j->entry[i];
        if (e->hash != hash || e->nkey != key->n || memcmp(e->key, key->at, key->n) != 0) continue;
        lua_rawgeti(L, top + 1, i + 1);
        check_captures(L, h, e, top + 2);
        lua_settop(L, top + 1);
        if (captures_fit(e))
            found = e;
        else
            *stale = true;
    }
    lua_settop(L, top);
    return found;
}

JitEntry *jit_entry_for(lua_State *L, Host *h, LuaJit *j, int last, Walk *w) {
    bool stale;
    *w = jit_walk_call(L, h, j, last);
    JitEntry *e = find_entry(L, h, j, &h->key, &stale);
    if (e) {
        j->hits++;
        return e;
    }
    j->misses++;
    if (j->sealed) jit_raise_mismatch(L, h, j);
    jit_explain_miss(L, h, j, stale);
    return jit_trace(L, h, j, w, last);
}

/* ---- aliases ---- */

static Walk walk_quickly(lua_State *L, const Call *c) {
    Walk w;
    int top = lua_gettop(L);
    walk_begin_quick(&w, L, c->h);
    lua_getiuservalue(L, c->jit, 1);
    jit_walk_around(&w, top + 1);
    lua_settop(L, top);
    if (c->bound) jit_walk_bound(&w, c->bound);
    jit_walk_arguments(&w, c->j, FIRST, c->last, c->nbound);
    return w;
}

static bool is_alias(LuaJit *j, int32_t i, const Str *key) {
    const JitAlias *a = &j->alias[i];
    if (a->nkey != key->n || memcmp(a->key, key->at, key->n) != 0) return false;
    return captures_fit(&j->entry[a->entry]);
}

/* The alias that the arguments are now; what the walk found is in the host. NULL: none. */
static const JitAlias *find_alias(lua_State *L, const Call *c) {
    LuaJit *j = c->j;
    const Str *key = &c->h->key;
    if (j->naliases == 0 || walk_quickly(L, c).failed) return NULL;
    if (is_alias(j, j->latest, key)) return &j->alias[j->latest];
    uint64_t hash = hash_bytes(0, key->at, key->n);
    for (int32_t i = j->naliases - 1; i >= 0; i--) {
        if (j->alias[i].hash != hash || !is_alias(j, i, key)) continue;
        j->latest = i;
        return &j->alias[i];
    }
    return NULL;
}

/* Room for one more; when there are very many, the old ones go. */
static bool room_for_alias(LuaJit *j) {
    enum { MOST = 1024 };
    if (j->naliases == MOST) jit_drop_aliases(j);
    if (j->naliases < j->alias_cap) return true;
    int32_t cap = j->alias_cap ? j->alias_cap * 2 : 4;
    JitAlias *grown = alloc_resize(&j->cx->alloc, j->alias, sizeof *grown * (size_t)j->alias_cap,
                                   sizeof *grown * (size_t)cap);
    if (!grown) return false;
    j->alias = grown;
    j->alias_cap = cap;
    return true;
}

/* Where a quick walk met the leaf on top of the stack, from 0; -1: nowhere. */
static int32_t place_of_leaf(lua_State *L, const Walk *quick) {
    const LuaBox *b = value_box(L, quick->h, -1);
    uint64_t mark = b ? b->mark : ((const LuaTensor *)lua_touserdata(L, -1))->mark;
    return mark > quick->before ? (int32_t)(mark - quick->before) - 1 : -1;
}

/* Fills the order; false where the two walks did not meet the same leaves. */
static bool order_leaves(lua_State *L, const Walk *w, const Walk *quick, int32_t *order) {
    if (quick->failed || quick->nleaf != w->nleaf) return false;
    bool same = true;
    for (int32_t i = 0; i < w->nleaf && same; i++) {
        lua_rawgeti(L, w->leaves, i + 1);
        order[i] = place_of_leaf(L, quick);
        same = order[i] >= 0;
        lua_pop(L, 1);
    }
    return same;
}

/* The call that the walk `w` met gets an alias for the entry; what a quick walk finds of it now is
 * in the host. *added: false where a finalizer has changed the arguments since: the next try finds
 * that out. */
static Err add_alias(lua_State *L, const Call *c, int32_t entry, const Walk *w, bool *added) {
    LuaJit *j = c->j;
    Alloc *alloc = &j->cx->alloc;
    Walk quick = walk_quickly(L, c);
    const Str *key = &c->h->key;
    size_t norder = sizeof(int32_t) * (size_t)w->nleaf;
    JitAlias a = {.hash = hash_bytes(0, key->at, key->n),
                  .key = alloc_new(alloc, key->n),
                  .nkey = key->n,
                  .entry = entry,
                  .nleaf = w->nleaf,
                  .order = alloc_new(alloc, norder)};
    bool ok = a.key && a.order && room_for_alias(j);
    *added = ok && order_leaves(L, w, &quick, a.order) && captures_fit(&j->entry[entry]);
    if (*added) {
        memcpy(a.key, key->at, key->n);
        j->latest = j->naliases;
        j->alias[j->naliases++] = a;
        return E_OK;
    }
    alloc_free(alloc, a.key, a.nkey);
    alloc_free(alloc, a.order, norder);
    return ok ? E_OK : err_nomem(j->cx, "a jitted function");
}

/* Gives the call on the stack an alias, and leaves there what make_ready does, and whether it did.
 * The handles come first: see make_ready. */
static int learn_body(lua_State *L) {
    int last = lua_gettop(L);
    Walk w;
    Call c = {.h = state_of(L), .j = lua_touserdata(L, JIT), .jit = JIT, .last = last};
    int32_t entry = (int32_t)(jit_entry_for(L, c.h, c.j, last, &w) - c.j->entry);
    int want = c.j->entry[entry].nout, learnt = lua_gettop(L);
    bool added;
    state_collect_if_needed(L, c.h, want);
    luaL_checkstack(L, want + LUA_MINSTACK, "too many results");
    while (lua_gettop(L) < learnt + want) value_new_tensor(L);
    state_check(L, c.h, add_alias(L, &c, entry, &w, &added));
    lua_pushboolean(L, added);
    lua_rotate(L, last + 1, want + 1);
    lua_settop(L, last + want + 1);
    return last + want + 1;
}

/* ---- running ---- */

/* The alias of the call, with a handle for each result of its entry. What makes the handles comes
 * first: it may run finalizers, and they may call, and change what the walk would have found. */
static const JitAlias *make_ready(lua_State *L, const Call *c) {
    const LuaJit *j = c->j;
    for (;;) {
        int want = j->naliases ? j->entry[j->alias[j->latest].entry].nout : 0;
        state_collect_if_needed(L, c->h, want);
        luaL_checkstack(L, want + LUA_MINSTACK, "too many results");
        while (lua_gettop(L) - c->base < want) value_new_tensor(L);
        lua_settop(L, c->base + want);
        const JitAlias *a = find_alias(L, c);
        if (!a || j->entry[a->entry].nout == want) return a;
    }
}

/* A tensor with the number; the last call's, unless a result has come to share its bytes. */
static Tensor *number_tensor(lua_State *L, Host *h, Tensor **kept, NumberArg x) {
    Tensor *t = *kept;
    if (!t || t->shard[0].buffer->refs > 1) {
        Type of = {.dtype = x.whole ? DT_I32 : DT_F32, .weak = true};
        const Type *type = type_of(&h->cx, &of);
        Tensor *fresh = type ? tensor_alloc(&h->cx, type) : NULL;
        if (!fresh) state_check(L, h, err_nomem(&h->cx, "a number"));
        tensor_release(t);
        *kept = t = fresh;
    }
    state_check(L, h, tensor_write_shard(t, 0, &x.as));
    return t;
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
        e->fate[i] = ARG_KEPT;
    }
}

/* Fills args and fate. Everything stays owned by boxes and handles. */
static void gather_inputs(lua_State *L, Host *h, JitEntry *e, const JitAlias *a) {
    int32_t n = 0;
    for (int32_t i = 0; i < e->nleaf; i++) e->args[n++] = h->leaf[a->order[i]].handle->t;
    for (int32_t i = 0; i < e->nnumber; i++)
        e->args[n++] = number_tensor(L, h, &e->number[i], h->number[i]);
    for (int32_t i = 0; i < e->ncapture; i++) e->args[n++] = e->capture[i].handle->t;
    /* A box has a handle of its own: a second reference means that somebody kept the tensor. */
    for (int32_t i = 0; i < n; i++)
        e->fate[i] = e->donated[i] != DONATE_IF_SOLE ? ARG_DONATED
                     : e->args[i]->refs > 1          ? ARG_KEPT
                                                     : ARG_REPLACED;
    for (int32_t i = 0; i < n && e->asked; i++)
        if (e->donated[i] == DONATE_ASKED && e->args[i]->refs > 1) keep_shared(L, h, e, i, n);
}

/* The boxes that were written get their results; donated tensors are gone. Cannot raise. */
static void commit(const Host *h, const JitEntry *e, const JitAlias *a) {
    static const char *const why = "it was donated to a jitted function";
    for (int32_t i = 0; i < e->nleaf && e->asked; i++)
        if (e->donated[i] == DONATE_ASKED) tensor_delete(e->args[i], why);
    for (int32_t i = 0; i < e->nwrite; i++) {
        LuaTensor *u = h->leaf[a->order[e->write_leaf[i]]].handle;
        tensor_release(u->t);
        u->t = e->results[e->nout + i];
    }
}

/* On top of the stack the entry's table, and the place of the results. */
static int effects_body(lua_State *L) {
    int base = (int)lua_tointeger(L, -1);
    lua_pop(L, 1);
    int side = lua_gettop(L);
    jit_run_effects(L, side, base);
    return jit_push_returned(L, side, base);
}

/* Pushes what the function returns, once the handles behind c->base have their tensors. */
static int push_returned(lua_State *L, const Call *c, int32_t entry) {
    const JitEntry *e = &c->j->entry[entry];
    if (e->direct) return e->nout;
    lua_getiuservalue(L, c->jit, 3);
    lua_rawgeti(L, -1, entry + 1);
    if (!e->effects) return jit_push_returned(L, lua_gettop(L), c->base);
    lua_pushinteger(L, c->base);
    return trace_protected(L, effects_body);
}

static int run(lua_State *L, const Call *c, const JitAlias *a) {
    Host *h = c->h;
    JitEntry *e = &c->j->entry[a->entry];
    gather_inputs(L, h, e, a);
    Err err = exec_run(e->exec, e->args, e->fate, e->results);
    if (state_collect_after(L, h, err)) {
        a = make_ready(L, c);
        if (!a)
            state_check(L, h, err_nomem(&h->cx, "a call")); /* finalizers changed its arguments */
        e = &c->j->entry[a->entry];
        gather_inputs(L, h, e, a);
        err = exec_run(e->exec, e->args, e->fate, e->results);
    }
    state_check(L, h, err);
    commit(h, e, a);
    for (int32_t i = 0; i < e->nout; i++) {
        LuaTensor *out = lua_touserdata(L, c->base + 1 + i);
        out->t = e->results[i];
    }
    h->used = true;
    if (c->start) jit_profile_note(L, c->jit, PROFILE_CALL, c->start);
    return push_returned(L, c, a->entry);
}

/* ---- the call ---- */

static void check_signals(lua_State *L, Host *h) {
    stop_check(L, h);
    if (h->rt.interrupted) state_error(L, E_INTERRUPT, "interrupted");
}

int jit_run_call(lua_State *L, Host *h, LuaJit *j) {
    enum { TRIES = 8 };
    int last = lua_gettop(L);
    Call c = {.h = h, .j = j, .jit = JIT, .last = last, .base = last};
    check_signals(L, h);
    c.start = record_now(h->rt.profile);
    const JitAlias *a = make_ready(L, &c);
    if (a) j->hits++;
    for (int i = 0; !a; i++) {
        if (i == TRIES)
            state_error(L, E_STATE, "the arguments of a jitted function change while it is called");
        lua_settop(L, last);
        trace_protected(L, learn_body);
        if (lua_toboolean(L, -1)) a = &j->alias[j->latest];
        lua_pop(L, 1);
    }
    return run(L, &c, a);
}

int jit_run_bound(lua_State *L, Host *h, LuaJit *j, LuaBound *b, int nbound) {
    int jit = lua_gettop(L);
    Call c = {
        .h = h, .j = j, .jit = jit, .last = jit - 1, .base = jit, .bound = b, .nbound = nbound};
    check_signals(L, h);
    c.start = record_now(h->rt.profile);
    const JitAlias *a = make_ready(L, &c);
    if (!a) {
        lua_settop(L, jit);
        return -1;
    }
    j->hits++;
    return run(L, &c, a);
}

int jit_inline_call(lua_State *L, const Host *h, const LuaJit *j) {
    if (j->sealed)
        state_error(L, E_TRACED,
                    "a compiled function cannot be part of a traced one, nor be differentiated; "
                    "call the jitted function it was lowered from");
    for (int i = FIRST; i <= lua_gettop(L); i++) jit_check_static(L, h, j, i, i - FIRST);
    if (j->donate_args)
        state_error(L, E_DONATE,
                    "a jitted function that donates is called in another traced function, where "
                    "nothing is donated; say `donate` to the outer jit");
    lua_getiuservalue(L, JIT, 2);
    lua_replace(L, JIT);
    lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
    return lua_gettop(L);
}
