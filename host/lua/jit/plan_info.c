#include "lua/jit/plan_info.h"

#include "ir/plan_distinct.h"
#include "lua/jit/plan_cost.h"

#include <string.h>

#define VALUE_PLAN "meshlua.Plan"

static Exec *plan_at(lua_State *L) {
    return *(Exec **)value_udata(L, 1, VALUE_PLAN);
}

Exec **plan_info_new(lua_State *L) {
    Exec **u = lua_newuserdatauv(L, sizeof *u, 0);
    *u = NULL;
    luaL_setmetatable(L, VALUE_PLAN);
    return u;
}

void plan_info_push(lua_State *L, Exec *e) {
    *plan_info_new(L) = exec_retain(e);
}

static int plan_gc(lua_State *L) {
    Exec **u = value_udata(L, 1, VALUE_PLAN);
    exec_release(*u);
    *u = NULL;
    return 0;
}

void plan_info_push_strings(lua_State *L, const Plan *p, PlanSpan ids) {
    lua_createtable(L, ids.n, 0);
    for (int i = 0; i < ids.n; i++) {
        lua_pushstring(L, plan_str(p, PLAN_LIST(p, int32_t, ids)[i]));
        lua_rawseti(L, -2, i + 1);
    }
}

/* `slices`: the loops of which each turn sees another slice; `parts`: the axes along which
 * devices see different parts of the buffer. */
static void push_places(lua_State *L, const Exec *e, const PlanValue *v) {
    uint32_t parts = 0;
    for (int i = 0; i < v->per_device.n; i++)
        parts |= axes_mask(&PLAN_LIST(e->plan, PlanOffset, v->per_device)[i].axes);
    if (parts) {
        value_push_axes(L, e->mesh, parts);
        lua_setfield(L, -2, "parts");
    }
    if (!v->per_slice.n) return;
    lua_createtable(L, v->per_slice.n, 0);
    for (int i = 0; i < v->per_slice.n; i++) {
        lua_pushinteger(L, (lua_Integer)PLAN_LIST(e->plan, PlanStride, v->per_slice)[i].loop);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "slices");
}

/* A list of {dtype, shape (local), bytes, buffer (its place in plan:buffers())}. */
static void push_operands(lua_State *L, const Exec *e, PlanSpan ids) {
    const Plan *p = e->plan;
    lua_createtable(L, ids.n, 0);
    for (int i = 0; i < ids.n; i++) {
        const PlanValue *v = plan_value(p, PLAN_LIST(p, int32_t, ids)[i]);
        double bytes = dtype_size((DType)v->dtype);
        lua_createtable(L, 0, 4);
        value_set_integer(L, "buffer", v->buffer + 1);
        value_set_string(L, "dtype", dtype_name((DType)v->dtype));
        lua_createtable(L, v->rank, 0);
        for (int d = 0; d < v->rank; d++) {
            lua_pushinteger(L, plan_dims(p, v)[d]);
            lua_rawseti(L, -2, d + 1);
            bytes *= (double)plan_dims(p, v)[d];
        }
        lua_setfield(L, -2, "shape");
        value_set_number(L, "bytes", bytes);
        push_places(L, e, v);
        lua_rawseti(L, -2, i + 1);
    }
}

static void push_origin(lua_State *L, const Exec *e, const PlanOrigin *o) {
    static const char *const kind[] = {"argument", "param", "constraint", "op"};
    lua_createtable(L, 0, 5);
    value_set_string(L, "kind", kind[o->kind]);
    value_set_string(L, "name", plan_str(e->plan, o->name));
    if (o->axis != ORIGIN_ANY_AXIS) value_set_string(L, "axis", e->mesh->name[o->axis]);
    if (o->loc) value_set_string(L, "where", plan_str(e->plan, o->loc));
    if (o->index) value_set_integer(L, "index", o->index);
}

/* Sets `why`, the first reason's text, and `reasons`: a list of {text, tensor, where, origins}. */
static void push_reasons(lua_State *L, const Exec *e, const PlanStep *s) {
    const PlanReason *r = PLAN_LIST(e->plan, PlanReason, s->why);
    value_set_string(L, "why", plan_str(e->plan, r->text));
    lua_createtable(L, s->why.n, 0);
    for (int i = 0; i < s->why.n; i++, r++) {
        const PlanOrigin *o = PLAN_LIST(e->plan, PlanOrigin, r->origins);
        lua_createtable(L, 0, 4);
        value_set_string(L, "text", plan_str(e->plan, r->text));
        value_set_string(L, "tensor", plan_str(e->plan, r->tensor));
        if (r->loc) value_set_string(L, "where", plan_str(e->plan, r->loc));
        lua_createtable(L, r->origins.n, 0);
        for (int k = 0; k < r->origins.n; k++) {
            push_origin(L, e, &o[k]);
            lua_rawseti(L, -2, k + 1);
        }
        lua_setfield(L, -2, "origins");
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "reasons");
}

/* A loop's number, and how often it turns where that is known; how many steps its bodies, or those
 * of a branch, have. */
static void push_control(lua_State *L, const Plan *p, const PlanStep *s) {
    if (s->kind == STEP_LOOP) {
        value_set_integer(L, "loop", s->control.loop);
        if (s->control.trips >= 0) value_set_integer(L, "trips", (lua_Integer)s->control.trips);
    }
    if (s->kind == STEP_LOOP || s->kind == STEP_BRANCH)
        value_set_integer(L, "inside", plan_steps_in(p, s));
}

static void push_step(lua_State *L, const Exec *e, const PlanStep *s, double distinct,
                      KnownGroups *known) {
    static const char *const kind[] = {"kernel", "collective", "loop", "branch", "done"};
    const Plan *p = e->plan;
    StepCost cost = plan_cost(e, s, known);
    lua_createtable(L, 0, 20);
    value_set_string(L, "kind", kind[s->kind]);
    push_control(L, p, s);
    if (s->shift) value_set_integer(L, "shift", s->shift);
    value_set_number(L, "times", s->times);
    value_set_number(L, "distinct", distinct);
    value_set_number(L, "padded", s->padded);
    value_set_number(L, "recomputed", s->anew);
    lua_pushboolean(L, s->product);
    lua_setfield(L, -2, "product");
    value_set_string(L, "role", role_name(s->role));
    value_set_string(L, "op", plan_str(p, s->op));
    value_set_string(L, "kernel", plan_str(p, s->name));
    value_set_number(L, "flops", s->flops);
    value_set_number(L, "traffic", s->bytes);
    value_set_number(L, "seconds", cost.seconds);
    value_push_axes(L, e->mesh, s->vary);
    lua_setfield(L, -2, "vary");
    plan_info_push_strings(L, p, s->locs);
    lua_setfield(L, -2, "where");
    plan_info_push_strings(L, p, s->ops);
    lua_setfield(L, -2, "ops");
    push_operands(L, e, s->in);
    lua_setfield(L, -2, "inputs");
    push_operands(L, e, s->out);
    lua_setfield(L, -2, "outputs");
    if (s->why.n) push_reasons(L, e, s);
    if (s->kind != STEP_COLLECTIVE) return;
    value_push_axes(L, e->mesh, s->coll.axes);
    lua_setfield(L, -2, "axes");
    value_set_number(L, "bytes", plan_operand_bytes(p, s));
    value_set_number(L, "sent", cost.sent);
    value_set_number(L, "between", cost.between);
    lua_pushboolean(L, s->coll.kind == COLL_ALL_REDUCE || s->coll.kind == COLL_REDUCE_SCATTER);
    lua_setfield(L, -2, "reduces");
    lua_pushboolean(L, s->coll.kind == COLL_ALL_TO_ALL || s->coll.kind == COLL_PERMUTE);
    lua_setfield(L, -2, "moves");
}

static int push_steps(lua_State *L, bool only_collectives) {
    const Exec *e = plan_at(L);
    size_t nsteps = (size_t)e->plan->steps.n + 1, nbuffers = (size_t)e->plan->buffers.n + 1;
    double *distinct = lua_newuserdatauv(L, sizeof *distinct * nsteps, 0);
    plan_distinct(e->plan, lua_newuserdatauv(L, sizeof(PlanDigits) * nbuffers, 0), distinct);
    KnownGroups known = {.n = 0};
    lua_newtable(L);
    for (int32_t i = 0, n = 0; i < e->plan->steps.n; i++) {
        const PlanStep *s = plan_step(e->plan, i);
        if (only_collectives && s->kind != STEP_COLLECTIVE) continue;
        push_step(L, e, s, distinct[i], &known);
        lua_rawseti(L, -2, ++n);
    }
    return 1;
}

/* plan:steps(), plan:collectives(): in the order in which they run, bodies behind their loops. Of
 * one device: flops (of these padded, recomputed) and traffic each time; seconds, sent (of it
 * between hosts) all times. distinct: so many devices do what no other does. */
static int plan_steps(lua_State *L) {
    return push_steps(L, false);
}
static int plan_collectives(lua_State *L) {
    return push_steps(L, true);
}

static int32_t result_buffer(const Plan *p, int32_t i) {
    return plan_value(p, PLAN_LIST(p, int32_t, p->results)[i])->buffer;
}

/* Of the results, what lies in the memory of arguments. */
static double aliased_bytes(const Plan *p) {
    double bytes = 0;
    for (int32_t i = 0; i < p->results.n; i++) {
        const PlanBuffer *b = plan_buffer(p, result_buffer(p, i));
        bool counted = false;
        for (int32_t k = 0; k < i; k++)
            counted = counted || result_buffer(p, k) == result_buffer(p, i);
        if (!counted && (b->kind == BUFFER_PARAM || b->take >= 0)) bytes += (double)b->bytes;
    }
    return bytes;
}

/* plan:memory(): bytes of one device {arguments, results, temporaries, aliased, peak, device (what
 * it has; 0: not known)}; results that take over an argument's memory are `aliased`, and not
 * counted again. */
static int plan_memory(lua_State *L) {
    const Plan *p = plan_at(L)->plan;
    double bytes[3] = {0}, temporaries = 0;
    for (int32_t i = 0; i < p->buffers.n; i++) {
        const PlanBuffer *b = plan_buffer(p, i);
        if (b->kind != BUFFER_TEMP && b->take < 0) bytes[b->kind] += (double)b->bytes;
    }
    for (int i = 0; i < p->classes.n; i++)
        temporaries += (double)PLAN_LIST(p, int64_t, p->classes)[i];
    lua_createtable(L, 0, 4);
    value_set_number(L, "arguments", bytes[BUFFER_PARAM]);
    value_set_number(L, "results", bytes[BUFFER_RESULT]);
    value_set_number(L, "temporaries", temporaries);
    value_set_number(L, "aliased", aliased_bytes(p));
    value_set_number(L, "peak", p->peak_bytes);
    value_set_number(L, "device", plan_at(L)->rt->target->memory);
    return 1;
}

/* plan:fits(): true, or nil, message, code where a device has too little memory for it. */
static int plan_fits(lua_State *L) {
    const Exec *e = plan_at(L);
    const Target *t = e->rt->target;
    double need = e->plan->peak_bytes;
    if (t->memory == 0 || need <= t->memory) {
        lua_pushboolean(L, 1);
        return 1;
    }
    lua_pushnil(L);
    Host *h = state_of(L);
    str_fmt(state_text(h),
            "the plan needs %.1f GB on each device, and %s has %.1f GB: split what it holds over "
            "more devices (weights, optimizer state), or take a smaller batch",
            need / 1e9, t->name, t->memory / 1e9);
    state_push_text(L, h);
    lua_pushstring(L, err_name(E_NOMEM));
    return 3;
}

/* plan:buffers(): a list of {kind ("argument", "result", "temporary"), bytes of one device, vary
 * (mesh axes along which it differs), first, last (steps between which it is in use, from 1)}; and
 * of an argument `index`, of a result that takes over an argument's memory `takes`, of a temporary
 * `offset` (in the workspace of those with the same `vary`). results: those that lie in it. */
static int plan_buffers(lua_State *L) {
    static const char *const kind[] = {"argument", "result", "temporary"};
    const Exec *e = plan_at(L);
    const Plan *p = e->plan;
    lua_createtable(L, p->buffers.n, 0);
    for (int i = 0; i < p->buffers.n; i++) {
        const PlanBuffer *b = plan_buffer(p, i);
        lua_createtable(L, 0, 6);
        value_set_string(L, "kind", kind[b->kind]);
        value_set_number(L, "bytes", (double)b->bytes);
        if (b->kind == BUFFER_TEMP) value_set_integer(L, "offset", b->offset);
        value_push_axes(L, e->mesh, b->vary);
        lua_setfield(L, -2, "vary");
        value_set_integer(L, "first", (lua_Integer)b->first + 1);
        value_set_integer(L, "last", (lua_Integer)b->last + 1);
        if (b->index >= 0) value_set_integer(L, "index", (lua_Integer)b->index + 1);
        if (b->take >= 0) value_set_integer(L, "takes", (lua_Integer)b->take + 1);
        lua_newtable(L);
        lua_setfield(L, -2, "results");
        lua_rawseti(L, -2, i + 1);
    }
    for (int32_t i = 0; i < p->results.n; i++) {
        lua_rawgeti(L, -1, result_buffer(p, i) + 1);
        lua_getfield(L, -1, "results");
        lua_pushinteger(L, i + 1);
        lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
        lua_pop(L, 2);
    }
    return 1;
}

/* plan:flops(): of one device, and of the one that has the fewest: where each knows beforehand what
 * it runs they may differ, and the first is the most. */
static int plan_flops(lua_State *L) {
    lua_pushnumber(L, plan_at(L)->plan->flops);
    lua_pushnumber(L, plan_at(L)->plan->least_flops);
    return 2;
}

/* plan:device_flops(): a list of the operations of each device, in the order of the mesh. */
static int plan_device_flops(lua_State *L) {
    const Exec *e = plan_at(L);
    int32_t n = e->mesh ? e->mesh->ndevices : 1, coord[MAX_AXES] = {0};
    lua_createtable(L, n, 0);
    for (int32_t i = 0; i < n; i++) {
        if (e->mesh) mesh_coords(e->mesh, i, coord);
        lua_pushnumber(L, e->plan->guards.n ? plan_flops_on(e->plan, coord) : e->plan->flops);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static int plan_tostring(lua_State *L) {
    Host *h = state_of(L);
    const Exec *e = plan_at(L);
    plan_print(e->plan, e->mesh, state_text(h));
    return state_push_text(L, h);
}

/* plan:copies(): donations so far that needed a copy because somebody else held the bytes. */
static int plan_copies(lua_State *L) {
    lua_pushinteger(L, plan_at(L)->copied);
    return 1;
}

/* plan:mesh(): of its layouts, or nil. */
static int plan_mesh(lua_State *L) {
    const Exec *e = plan_at(L);
    if (e->mesh)
        value_push_mesh(L, e->mesh);
    else
        lua_pushnil(L);
    return 1;
}

void plan_info_open(lua_State *L) {
    static const luaL_Reg meta[] = {{"__gc", plan_gc}, {"__tostring", plan_tostring}, {NULL, NULL}};
    static const luaL_Reg methods[] = {{"steps", plan_steps},
                                       {"collectives", plan_collectives},
                                       {"memory", plan_memory},
                                       {"flops", plan_flops},
                                       {"device_flops", plan_device_flops},
                                       {"copies", plan_copies},
                                       {"buffers", plan_buffers},
                                       {"mesh", plan_mesh},
                                       {"fits", plan_fits},
                                       {NULL, NULL}};
    value_new_type(L, VALUE_PLAN, meta, methods, NULL);
}
