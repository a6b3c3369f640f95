/* ranks.c - devices and processes: how many there are, and which are here. */
#include "lua/lib/lib.h"
#include "lua/value/value.h"
#include "run/runtime/gpu_transport.h"

#include <string.h>

static int push_ids(lua_State *L, int32_t first, int32_t n) {
    lua_createtable(L, n, 0);
    for (int32_t i = 0; i < n; i++) {
        lua_pushinteger(L, first + i);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

static int devices(lua_State *L) {
    return push_ids(L, 0, runtime_device_count(&state_of(L)->rt));
}

static int local_devices(lua_State *L) {
    const Runtime *rt = &state_of(L)->rt;
    return push_ids(L, runtime_first_device(rt), rt->ndevices);
}

static int device_count(lua_State *L) {
    lua_pushinteger(L, runtime_device_count(&state_of(L)->rt));
    return 1;
}

static int local_device_count(lua_State *L) {
    lua_pushinteger(L, state_of(L)->rt.ndevices);
    return 1;
}

/* thread_count(): threads that do the processor's work, of this process. */
static int thread_count(lua_State *L) {
    lua_pushinteger(L, runtime_threads(&state_of(L)->rt));
    return 1;
}

/* idle(): the seconds that threads have waited for work, and for other processes, so far: the one
 * that calls, all others; how many these are. */
static int idle(lua_State *L) {
    const Runtime *rt = &state_of(L)->rt;
    const Pool *pool = rt->pool;
    int n = pool ? pool_threads(pool) : 1;
    int64_t others = 0;
    for (int t = 1; t < n; t++) others += pool_idle(pool, t);
    lua_pushnumber(L, 1e-9 * (double)(rt->waited + (pool ? pool_idle(pool, 0) : 0)));
    lua_pushnumber(L, 1e-9 * (double)others);
    lua_pushinteger(L, n - 1);
    return 3;
}

/* device_kind(): the kind's name; are the devices fake. */
static int device_kind(lua_State *L) {
    Host *h = state_of(L);
    lua_pushstring(L, h->rt.target->name);
    lua_pushboolean(L, h->rt.fake);
    return 2;
}

/* host_devices(): how many of fake devices stand in a host; 0 of others. */
static int host_devices(lua_State *L) {
    lua_pushinteger(L, state_of(L)->rt.fake ? state_of(L)->rt.host_devices : 0);
    return 1;
}

/* wait(): until all that runs on GPUs is done; raises what went wrong there. */
static int wait_for_devices(lua_State *L) {
    Host *h = state_of(L);
    if (gpu_is_there(&h->rt.gpu)) state_check(L, h, gpu_wait(&h->rt.gpu));
    return 0;
}

/* stamp(): a number for this place in the GPU's queue; nil without a GPU. */
static int stamp(lua_State *L) {
    Host *h = state_of(L);
    const Gpus *g = &h->rt.gpu;
    int64_t at = gpu_is_there(g) ? g->device.stamp(g->device.self, 0) : 0;
    if (at < 0) state_check(L, h, gpu_error(g, "stamp"));
    if (gpu_is_there(g))
        lua_pushinteger(L, (lua_Integer)at);
    else
        lua_pushnil(L);
    return 1;
}

/* seconds_between(stamp, stamp): of the GPU; waits until it has come to the later one. nil: so much
 * came after them that they are no longer known. */
static int seconds_between(lua_State *L) {
    const Gpus *g = &state_of(L)->rt.gpu;
    lua_Integer from = arg_integer(L, 1, "seconds_between"),
                to = arg_integer(L, 2, "seconds_between");
    double seconds = gpu_is_there(g) ? g->device.between(g->device.self, 0, from, to) : -1;
    if (seconds >= 0)
        lua_pushnumber(L, seconds);
    else
        lua_pushnil(L);
    return 1;
}

/* product_rate(dtype): operations per second of products on one device, as explain counts them. */
static int product_rate(lua_State *L) {
    lua_pushnumber(L, target_products(state_of(L)->rt.target, value_dtype(L, 1)));
    return 1;
}

/* device_peak(dtype): operations per second of products on one GPU, by its datasheet; nil where it
 * is not known, and on processors. */
static int device_peak(lua_State *L) {
    const Target *t = state_of(L)->rt.target;
    DType d = value_dtype(L, 1);
    double peak = d == DT_BF16 || d == DT_F16 ? t->flops16 : 0;
    if (peak)
        lua_pushnumber(L, peak);
    else
        lua_pushnil(L);
    return 1;
}

/* device_memory(): bytes of one device; nil on processors, which share the host's. */
static int device_memory(lua_State *L) {
    double bytes = state_of(L)->rt.target->memory;
    if (bytes)
        lua_pushinteger(L, (lua_Integer)bytes);
    else
        lua_pushnil(L);
    return 1;
}

/* gpu_count(): GPUs of all processes; 0 on processors. */
static int gpu_count(lua_State *L) {
    const Runtime *rt = &state_of(L)->rt;
    bool there = gpu_is_there(&rt->gpu);
    lua_pushinteger(L, there ? rt->gpu.device.gpus * rt->ranks.world : 0);
    return 1;
}

/* set_devices("8"): before the first tensor or mesh. */
static int set_devices(lua_State *L) {
    Host *h = state_of(L);
    const char *text = arg_string(L, 1, NULL, "devices");
    if (h->used)
        state_error(
            L, E_STATE,
            "the devices cannot change after the first tensor or mesh; call ml.config first, "
            "or start with --devices=%s",
            text);
    state_check(L, h, runtime_set_devices(&h->rt, text));
    return 0;
}

/* backend(): what carries data between the processes, "mpi" or "nccl". backend("mpi") from here on;
 * backend("nccl"), or it is an error that there is none. All processes call it. */
static int backend(lua_State *L) {
    Host *h = state_of(L);
    const char *wanted = lua_isnoneornil(L, 1) ? "" : arg_string(L, 1, NULL, "backend");
    if (strcmp(wanted, "mpi") == 0) state_check(L, h, gpu_transport_use_host(&h->rt));
    if (strcmp(wanted, "nccl") == 0) state_check(L, h, gpu_transport_need(&h->rt));
    lua_pushstring(L, gpu_transport_backend(&h->rt));
    return 1;
}

static int process_index(lua_State *L) {
    lua_pushinteger(L, state_of(L)->rt.ranks.rank);
    return 1;
}

static int process_count(lua_State *L) {
    lua_pushinteger(L, state_of(L)->rt.ranks.world);
    return 1;
}

/* hosts(): of each process the number of its host, from 0. */
static int hosts(lua_State *L) {
    const Runtime *rt = &state_of(L)->rt;
    value_push_ints(L, rt->host, rt->ranks.world);
    return 1;
}

/* ranks(): what of them is no function: local_rank, master_addr and
 * master_port (nil: not known). */
static int ranks(lua_State *L) {
    const Ranks *r = &state_of(L)->rt.ranks;
    lua_createtable(L, 0, 3);
    value_set_integer(L, "local_rank", r->local);
    value_set_string(L, "master_addr", r->master[0] ? r->master : NULL);
    if (r->port) value_set_integer(L, "master_port", r->port);
    return 1;
}

void lib_open_ranks(lua_State *L) {
    static const luaL_Reg fns[] = {{"devices", devices},
                                   {"local_devices", local_devices},
                                   {"device_count", device_count},
                                   {"local_device_count", local_device_count},
                                   {"thread_count", thread_count},
                                   {"idle", idle},
                                   {"device_kind", device_kind},
                                   {"device_peak", device_peak},
                                   {"device_memory", device_memory},
                                   {"host_devices", host_devices},
                                   {"product_rate", product_rate},
                                   {"gpu_count", gpu_count},
                                   {"wait", wait_for_devices},
                                   {"stamp", stamp},
                                   {"seconds_between", seconds_between},
                                   {"set_devices", set_devices},
                                   {"backend", backend},
                                   {"process_index", process_index},
                                   {"process_count", process_count},
                                   {"hosts", hosts},
                                   {"ranks", ranks},
                                   {NULL, NULL}};
    luaL_setfuncs(L, fns, 0);
}
