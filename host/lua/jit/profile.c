#include "lua/jit/profile.h"
#include "lua/jit/plan_info.h"

#include <stdio.h>

void jit_profile_note(lua_State *L, int index, ProfileKind kind, int64_t start) {
    Host *h = state_of(L);
    if (!h->rt.profile) return;
    char label[LUA_IDSIZE + 16];
    lua_Debug ar;
    lua_getiuservalue(L, index, 1);
    lua_getinfo(L, ">S", &ar);
    snprintf(label, sizeof label, "%s:%d", ar.short_src, ar.linedefined);
    record_note(h->rt.profile, kind, intern_name(&h->cx, label), start);
}

/* nil, message, code: where the fault is the file's. Others are raised. */
static int failed(lua_State *L, Host *h, Err e) {
    if (e != E_IO) state_raise(L, h);
    return state_failed(L, h, e);
}

/* profile_start(file): true; or nil, message, code. */
static int start(lua_State *L) {
    Host *h = state_of(L);
    const char *path = arg_string(L, 1, NULL, "profile.start: the file");
    if (h->trace)
        state_error(L, E_TRACED,
                    "profile.start in a traced function would happen once, when it is traced; "
                    "call it where the jitted function is called");
    Err e = profile_start(&h->rt, path);
    if (e) return failed(L, h, e);
    lua_pushboolean(L, 1);
    return 1;
}

static Profile *running(lua_State *L, Host *h, const char *who) {
    if (!h->rt.profile)
        state_error(L, E_STATE,
                    "%s: nothing is being recorded; ml.profile.start(FILE) or the flag "
                    "--profile=FILE begins that",
                    who);
    return h->rt.profile;
}

/* "op" and "ops": the op, and those of a fused step; of two steps in one launch both ops, and those
 * of the second. */
static void push_ops(lua_State *L, const Exec *e, const Item *item) {
    int32_t step[2], n = profile_steps(item, step);
    lua_pushstring(L, plan_str(e->plan, plan_step(e->plan, step[0])->op));
    if (n > 1) {
        lua_pushfstring(L, " %s", plan_str(e->plan, plan_step(e->plan, step[1])->op));
        lua_concat(L, 2);
    }
    lua_setfield(L, -2, "op");
    plan_info_push_strings(L, e->plan, plan_step(e->plan, step[n - 1])->ops);
    lua_setfield(L, -2, "ops");
}

/* What a step has taken so far: {op, ops, where (a list), calls, seconds (of all threads), limit
 * (seconds, as the target's figures give them)}; nothing where it has not run. */
static bool push_step(lua_State *L, const Profile *p, const ProfilePlan *plan, int32_t step) {
    const Exec *e = plan->e;
    const PlanStep *s = plan_step(e->plan, step);
    const BoundStep *b = &e->step[step];
    double share = 0, limit = 0;
    int64_t time = 0;
    for (int32_t i = b->first; i < b->first + b->n; i++) {
        ProfileTotal total = profile_total(p, plan, i);
        ProfileWork work = profile_work(plan, i);
        time += total.time;
        share += total.share;
        limit += total.share * target_seconds(e->rt->target, work.flops, work.bytes);
    }
    if (share == 0) return false;
    lua_createtable(L, 0, 6);
    push_ops(L, e, &e->item.at[b->first]);
    plan_info_push_strings(L, e->plan, s->locs);
    lua_setfield(L, -2, "where");
    value_set_number(L, "calls", share / b->n);
    value_set_number(L, "seconds", (double)time / 1e9);
    value_set_number(L, "limit", limit);
    return true;
}

/* profile_busy(): seconds recorded; a list of the seconds in which each thread, or GPU, was busy;
 * the same for devices, where what several share counts for each with its part. nil: nothing is
 * recorded. */
static int busy(lua_State *L) {
    Host *h = state_of(L);
    const Profile *p = h->rt.profile;
    if (!p) return 0;
    int32_t n = h->rt.ndevices;
    double *device = lua_newuserdatauv(L, sizeof *device * (size_t)n, 0);
    for (int32_t i = 0; i < n; i++) device[i] = 0;
    state_check(L, h, profile_add_devices(p, device));
    lua_pushnumber(L, (double)(profile_clock() - p->start) / 1e9);
    lua_createtable(L, p->threads, 0);
    for (int32_t t = 0; t < p->threads; t++) {
        lua_pushnumber(L, (double)p->ring[t].busy / 1e9);
        lua_rawseti(L, -2, t + 1);
    }
    lua_createtable(L, n, 0);
    for (int32_t i = 0; i < n; i++) {
        lua_pushnumber(L, device[i] / 1e9);
        lua_rawseti(L, -2, i + 1);
    }
    return 3;
}

/* profile_stop(): writes the file. A list of what each step of each plan took, the file's name; or
 * nil, message, code. */
static int stop(lua_State *L) {
    Host *h = state_of(L);
    const Profile *p = running(L, h, "profile.stop");
    lua_settop(L, 0);
    lua_newtable(L);
    for (int32_t i = 0, n = 0; i < p->plan.n; i++)
        for (int32_t k = 0; k < p->plan.at[i]->e->plan->steps.n; k++)
            if (push_step(L, p, p->plan.at[i], k)) lua_rawseti(L, 1, ++n);
    lua_pushstring(L, p->path);
    Err e = profile_stop(&h->rt);
    return e ? failed(L, h, e) : 2;
}

void jit_open_profile(lua_State *L) {
    static const luaL_Reg fns[] = {
        {"profile_start", start}, {"profile_busy", busy}, {"profile_stop", stop}, {NULL, NULL}};
    luaL_setfuncs(L, fns, 0);
}
