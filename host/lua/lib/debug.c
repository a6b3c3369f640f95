/* debug.c - counters, memory, dumps, and switches for tests. */
#include "lua/lib/lib.h"
#include "lua/state/heap.h"
#include "lua/value/value.h"

#include "base/env.h"
#include "base/file.h"

#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

/* counters([device]): what a device has done so far: flops, matmul_flops, collectives, plans, and
 * bytes sent by kind of collective. */
static int counters(lua_State *L) {
    static const char *const kind[] = {NULL,         "all_gather", "all_reduce", "reduce_scatter",
                                       "all_to_all", "permute"};
    Host *h = state_of(L);
    int32_t first = runtime_first_device(&h->rt), last = first + h->rt.ndevices - 1;
    lua_Integer device = lua_isnoneornil(L, 1) ? first : arg_integer(L, 1, "counters: device");
    if (device < first || device > last)
        state_error(L, E_VALUE,
                    "counters: device %lld is not here; this process has devices %d..%d",
                    (long long)device, (int)first, (int)last);
    const Counters *c = exec_counters(&h->rt, (int32_t)device - first);
    lua_createtable(L, 0, 6);
    value_set_number(L, "flops", c->flops);
    value_set_number(L, "matmul_flops", c->matmul_flops);
    value_set_integer(L, "collectives", c->collectives);
    value_set_integer(L, "plans", c->plans);
    lua_createtable(L, 0, 5);
    for (int i = 1; i <= COLL_PERMUTE; i++) {
        lua_pushnumber(L, c->sent[i]);
        lua_setfield(L, -2, kind[i]);
    }
    lua_setfield(L, -2, "sent");
    return 1;
}

/* memory(): bytes live and at the peak of everything the core has allocated, tensors included, on
 * GPUs of what lies there; of the live ones `workspace` holds the temporaries of plans. `process`:
 * the most that the process has had of the host's memory. */
static int memory(lua_State *L) {
    const Runtime *rt = &state_of(L)->rt;
    const Alloc *a = &rt->cx->alloc;
    size_t workspace = 0, live = 0, peak = 0;
    for (int32_t k = 0; k < rt->cx->domains; k++) {
        const Memory *m = rt->cx->memory[k];
        workspace += rt->workspace[k].bytes;
        live += m ? m->live : a->live;
        peak += m ? m->peak : a->peak;
    }
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    lua_createtable(L, 0, 4);
    value_set_integer(L, "process", (lua_Integer)use.ru_maxrss * 1024);
    value_set_integer(L, "workspace", (lua_Integer)workspace);
    value_set_integer(L, "live", (lua_Integer)live);
    value_set_integer(L, "peak", (lua_Integer)peak);
    return 1;
}

/* clock(): seconds from some moment on, of a clock that nobody sets. */
static int clock_now(lua_State *L) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    lua_pushnumber(L, (double)t.tv_sec + 1e-9 * (double)t.tv_nsec);
    return 1;
}

/* clear_plans(): forgets every plan found by content; jitted functions keep theirs. */
static int clear_plans(lua_State *L) {
    plan_cache_clear(&state_of(L)->plans);
    return 0;
}

/* fail_alloc(n): the n-th allocation from now (from 0) fails; nil: none. Returns what was left of
 * the countdown, -1 if it has happened or was off. */
static int fail_alloc(lua_State *L) {
    Alloc *a = &state_of(L)->cx.alloc;
    lua_Integer left = a->fail_in;
    a->fail_in = lua_isnoneornil(L, 1) ? -1 : arg_integer(L, 1, "fail_alloc");
    heap_share(L, a); /* the retry that an earlier failure may still wait for is forgotten, too */
    lua_pushinteger(L, left);
    return 1;
}

/* plant(op, device): from now on the op's form for one device is wrong where it is split: what
 * verify is there to find; with a device, what that device computes has a bit wrong: what audit is
 * there to find. nil: no op's. */
static int plant(lua_State *L) {
    Host *h = state_of(L);
    const char *name = lua_isnoneornil(L, 1) ? NULL : arg_string(L, 1, NULL, "plant: op");
    bool flips = !lua_isnoneornil(L, 2);
    int op = name ? op_find(name) : OP_NONE;
    if (name && op == OP_NONE) state_error(L, E_KEY, "plant: there is no op '%s'", name);
    h->cx.planted = flips ? OP_NONE : op;
    h->cx.flipped = flips ? op_def(op)->name : NULL;
    h->cx.flipped_device = flips ? (int32_t)arg_integer(L, 2, "plant: device") : 0;
    plan_cache_clear(&h->plans); /* they were made without it */
    return 0;
}

/* NULL: the standard error, or nothing where this rank is silent. What is in the file stays until
 * there is something to write. */
static FILE *open_dump(Host *h, const char *path) {
    if (!path && !h->rt.ranks.silent) return stderr;
    Str *s = state_text(h);
    ranks_print_file(&h->rt.ranks, path ? path : "", s);
    return s->failed ? NULL : file_open_kept(str_of(s));
}

/* What --dump takes: the stages, and what is no stage of a program. The i-th, or NULL. */
static const char *dumped(int i) {
    static const char *const more[] = {"factors", "source", "all", NULL};
    int n = 0;
    while (pipeline_stage(n)) n++;
    return i < n ? pipeline_stage(i) : more[i - n];
}

static Err unknown_stage(Host *h, const char *text) {
    Str *s = state_text(h);
    for (int i = 0; dumped(i); i++)
        str_fmt(s, "%s%s", i == 0 ? "" : dumped(i + 1) ? ", " : " and ", dumped(i));
    return err_set(&h->cx, E_KEY, "--dump=%s: the stages are %s", text, str_of(s));
}

Err lib_debug_set_dump(Host *h, const char *text) {
    size_t n = strcspn(text, ":");
    bool known = false;
    for (int i = 0; dumped(i); i++)
        known = known || (strlen(dumped(i)) == n && memcmp(dumped(i), text, n) == 0);
    if (text[n] && !text[n + 1])
        return err_set(&h->cx, E_VALUE, "--dump=%s: expected a file behind the colon", text);
    if (!known) return unknown_stage(h, text);
    char *stage = alloc_new(&h->cx.alloc, n + 1);
    if (!stage) return err_nomem(&h->cx, "a dump");
    memcpy(stage, text, n);
    FILE *file = open_dump(h, text[n] ? text + n + 1 : NULL);
    if (!file) {
        alloc_free(&h->cx.alloc, stage, n + 1);
        return err_set(&h->cx, E_IO, "--dump: cannot write %s: %s", text + n + 1, strerror(errno));
    }
    if (h->dump && h->dump != stderr) fclose(h->dump);
    if (h->dump_stage) alloc_free(&h->cx.alloc, h->dump_stage, strlen(h->dump_stage) + 1);
    h->dump_stage = stage;
    h->dump = file;
    h->dumped = false;
    return E_OK;
}

/* dump("STAGE[:FILE]"); nil: no more. */
static int dump(lua_State *L) {
    Host *h = state_of(L);
    if (!lua_isnoneornil(L, 1)) {
        state_check(L, h, lib_debug_set_dump(h, arg_string(L, 1, NULL, "dump")));
        return 0;
    }
    if (h->dump && h->dump != stderr) fclose(h->dump);
    h->dump = NULL;
    return 0;
}

/* compile_device(text, major, minor): compiles what --dump=source printed of a step for GPUs of
 * that compute capability. true, or nil and the compiler's words; the same without a library for
 * GPUs. */
static int compile_device(lua_State *L) {
    enum { WORDS = 4096 };
    Host *h = state_of(L);
    char words[WORDS];
    const char *text = arg_string(L, 1, NULL, "compile_device: the text");
    int32_t major = (int32_t)arg_integer(L, 2, "compile_device: major");
    int32_t minor = (int32_t)arg_integer(L, 3, "compile_device: minor");
    DeviceCompile *compile = gpu_compile(&h->cx);
    if (!compile) {
        lua_pushnil(L);
        lua_pushstring(L, h->cx.err.text);
        err_clear(&h->cx);
        return 2;
    }
    lua_pushboolean(L, 1);
    if (compile(text, major, minor, words, sizeof words)) return 1;
    lua_pushnil(L);
    lua_pushstring(L, words);
    return 2;
}

/* expand(on): run every op by its definition; returns what it was. */
static int set_expand(lua_State *L) {
    Host *h = state_of(L);
    lua_pushboolean(L, h->expand);
    h->expand = lua_toboolean(L, 1);
    return 1;
}

/* check(on): verify what every pass makes, and read every stage's text back;
 * returns what it was. */
static int set_check(lua_State *L) {
    Host *h = state_of(L);
    lua_pushboolean(L, h->reread);
    h->reread = lua_toboolean(L, 1);
#ifndef MESHLUA_CHECKED /* which verifies always */
    h->verify = h->reread;
#endif
    return 1;
}

/* switch_pass(name, on): true or false, or nil: as the pass itself sees fit. */
static int switch_pass(lua_State *L) {
    Host *h = state_of(L);
    const char *name = arg_string(L, 1, NULL, "switch_pass");
    for (int i = 0; i < SWITCH_COUNT; i++) {
        if (strcmp(name, pipeline_switch_names[i]) != 0) continue;
        bool said = !lua_isnoneornil(L, 2), on = lua_toboolean(L, 2);
        h->passes_on = (h->passes_on & ~(1u << i)) | (uint32_t)(said && on) << i;
        h->passes_off = (h->passes_off & ~(1u << i)) | (uint32_t)(said && !on) << i;
        return 0;
    }
    state_error(L, E_KEY, "there is no pass '%s' to switch", name);
}

/* passes(): the names of the passes that can be switched. */
static int switched_passes(lua_State *L) {
    lua_createtable(L, SWITCH_COUNT, 0);
    for (int i = 0; i < SWITCH_COUNT; i++) {
        lua_pushstring(L, pipeline_switch_names[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* raise(code, text): the error at the user's line. */
static int raise(lua_State *L) {
    Host *h = state_of(L);
    const char *name = arg_string(L, 1, NULL, "raise: code");
    const char *text = arg_string(L, 2, NULL, "raise: text");
    for (int code = E_OK + 1; code < E_COUNT; code++)
        if (strcmp(err_name(code), name) == 0)
            state_check(L, h, err_set(&h->cx, (ErrCode)code, "%s", text));
    state_error(L, E_KEY, "raise: there is no error code %s", name);
}

/* env(): the table of environment variables: name, value, doc. */
static int env(lua_State *L) {
    lua_createtable(L, ENV_COUNT, 0);
    for (int i = 0; i < ENV_COUNT; i++) {
        const EnvRow *r = env_row((EnvVar)i);
        lua_createtable(L, 0, 4);
        value_set_string(L, "name", r->name);
        value_set_string(L, "value", r->value);
        value_set_string(L, "doc", r->doc);
        const char *now = env_get((EnvVar)i);
        if (now) value_set_string(L, "now", i == ENV_SECRET && now[0] != '@' ? "(set)" : now);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* Which process of how many this is, or what is wrong with what says so. */
static void set_processes(lua_State *L, Host *h) {
    Ranks ranks;
    Str *s = state_text(h);
    if (ranks_find(&h->cx, &(RankFlags){.log_ranks = NULL}, &ranks))
        str_put(s, h->cx.err.text);
    else
        ranks_print(&ranks, s);
    err_clear(&h->cx);
    value_set_string(L, "processes", str_of(s));
}

/* doctor(): what runs the CPU's part: BLAS file and core, kernel level, threads; which process this
 * is. Loads the BLAS. */
static int doctor(lua_State *L) {
    Host *h = state_of(L);
    const KBlas *blas = blas_load(&h->cx, &h->rt.blas);
    lua_createtable(L, 0, 6);
    value_set_string(L, "blas", blas ? h->rt.blas.file : "none");
    value_set_string(L, "blas_core", blas ? h->rt.blas.core : "none");
    value_set_string(L, "kernels", h->rt.level);
    value_set_integer(L, "threads", runtime_threads(&h->rt));
    value_set_integer(L, "devices", h->rt.ndevices);
    set_processes(L, h);
    return 1;
}

enum { MOST_SHOWN = 64 };

static void push_gpu(lua_State *L, const Device *d, const DeviceGpu *g) {
    lua_createtable(L, 0, 7);
    value_set_string(L, "name", g->name);
    value_set_string(L, "bus", g->bus);
    value_set_integer(L, "major", g->major);
    value_set_integer(L, "minor", g->minor);
    value_set_integer(L, "memory", (lua_Integer)g->memory);
    value_set_integer(L, "driver", d->driver);
    value_set_integer(L, "runtime", d->runtime);
}

/* gpus(): what --devices=cuda would find, a list; or nil, and why it would find none. */
static int gpus(lua_State *L) {
    Host *h = state_of(L);
    Device d;
    DeviceGpu found[MOST_SHOWN];
    if (gpu_look(&h->cx, &d)) {
        lua_pushnil(L);
        lua_pushstring(L, h->cx.err.text);
        err_clear(&h->cx);
        return 2;
    }
    int32_t n = d.gpus < MOST_SHOWN ? d.gpus : MOST_SHOWN;
    memcpy(found, d.gpu, sizeof *found * (size_t)n);
    d.close(d.self); /* before what may raise */
    lua_createtable(L, n, 0);
    for (int32_t i = 0; i < n; i++) {
        push_gpu(L, &d, &found[i]);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* bytes_text(n): "1.50 MiB". */
static int bytes_to_text(lua_State *L) {
    char text[BYTES_TEXT];
    lua_pushstring(L, str_bytes(arg_number(L, 1, "bytes_text: the number"), text));
    return 1;
}

/* stages(): their names, in order. */
static int stages(lua_State *L) {
    lua_newtable(L);
    for (int i = 0; pipeline_stage(i); i++) {
        lua_pushstring(L, pipeline_stage(i));
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

void lib_open_debug(lua_State *L) {
    static const luaL_Reg fns[] = {{"counters", counters},
                                   {"memory", memory},
                                   {"clock", clock_now},
                                   {"clear_plans", clear_plans},
                                   {"fail_alloc", fail_alloc},
                                   {"plant", plant},
                                   {"dump", dump},
                                   {"compile_device", compile_device},
                                   {"expand", set_expand},
                                   {"check", set_check},
                                   {"switch_pass", switch_pass},
                                   {"passes", switched_passes},
                                   {"stages", stages},
                                   {"raise", raise},
                                   {"env", env},
                                   {"doctor", doctor},
                                   {"gpus", gpus},
                                   {"bytes_text", bytes_to_text},
                                   {NULL, NULL}};
    luaL_setfuncs(L, fns, 0);
}
