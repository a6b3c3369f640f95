#include "base/env.h"
#include "base/log.h"
#include "run/exec.h"
#include "run/library.h"
#include "run/store.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "meshlua_cuda.so"

/* Bytes that may be written while exchanges are on their way: what is kept for the GPU's queue has
 * room for more, so that writing does not wait for the queue, and so for other processes. */
enum { WRITE_AHEAD = 8 << 20 };
enum { ANY = -1, REASON = 1024 };

Err gpu_error(const Gpu *g, const char *what) {
    return err_set(g->cx, E_DEVICE, "%s: %s", what, g->device.error(g->device.self));
}

Err gpu_fault(Gpu *g) {
    DeviceFault f;
    for (int32_t i = 0; i < g->device.gpus; i++)
        if (g->device.fault(g->device.self, i, &f)) return exec_fault(g->rt, f.tag, &f.fault);
    return E_OK;
}

Err gpu_wait(Gpu *g) {
    TRY(link_settle(g->cx, &g->rt->link));
    for (int32_t i = 0; i < g->device.gpus; i++)
        if (!g->device.wait(g->device.self, i)) return gpu_error(g, "waiting for a GPU");
    return gpu_fault(g);
}

/* ---- its memory ---- */

static char *take(Memory *m, size_t bytes) {
    Gpu *g = (Gpu *)(void *)m;
    char *at = g->device.alloc(g->device.self, 0, bytes);
    if (at) m->live += bytes;
    if (m->live > m->peak) m->peak = m->live;
    return at;
}

static void give(Memory *m, char *at, size_t bytes) {
    Gpu *g = (Gpu *)(void *)m;
    g->device.free(g->device.self, 0, at, bytes);
    m->live -= bytes;
}

static Err write(Memory *m, char *to, const void *from, size_t bytes) {
    Gpu *g = (Gpu *)(void *)m;
    if (g->written + bytes > WRITE_AHEAD) {
        TRY(link_settle(g->cx, &g->rt->link));
        g->written = 0;
    }
    g->written += bytes;
    return g->device.upload(g->device.self, 0, to, from, bytes) ? E_OK : gpu_error(g, "writing");
}

static Err read(Memory *m, void *to, const char *from, size_t bytes) {
    Gpu *g = (Gpu *)(void *)m;
    TRY(link_settle(g->cx, &g->rt->link));
    if (!g->device.download(g->device.self, 0, to, from, bytes)) return gpu_error(g, "reading");
    return gpu_fault(g);
}

static Err move(Memory *m, char *to, const char *from, size_t bytes) {
    Gpu *g = (Gpu *)(void *)m;
    return g->device.move(g->device.self, 0, to, from, bytes) ? E_OK : gpu_error(g, "copying");
}

Err gpu_grow_scratch(Gpu *g, size_t bytes) {
    if (bytes <= g->scratch_bytes) return E_OK;
    char text[BYTES_TEXT];
    if (g->scratch) give(&g->memory, g->scratch, g->scratch_bytes);
    g->scratch_bytes = 0;
    g->scratch = take(&g->memory, bytes);
    if (!g->scratch)
        return err_set(g->cx, E_NOMEM, "out of memory: kernels need %s on the GPU beside tensors",
                       bytes_text((double)bytes, text));
    g->scratch_bytes = bytes;
    return E_OK;
}

Err gpu_run(Gpu *g, const char *kernel, const KArgs *args) {
    Device *d = &g->device;
    size_t scratch = 0;
    void *bound = d->bind(d->self, 0, kernel, args, &scratch);
    if (!bound) return gpu_error(g, kernel);
    Err err = gpu_grow_scratch(g, scratch);
    if (!err && !d->launch(d->self, bound, args, g->scratch, 0)) err = gpu_error(g, kernel);
    d->unbind(d->self, bound);
    return err;
}

/* ---- opening ---- */

static Err not_there(Ctx *cx, const char *why) {
    return err_set(cx, E_DEVICE, "--devices=cuda: %s", why);
}

static void *symbol(Ctx *cx, const char *name) {
    void *library = library_open(LIBRARY);
    if (!library) {
        char why[REASON];
        snprintf(why, sizeof why,
                 "%s; build meshlua where the CUDA toolkit is, or use --devices=N for CPU devices",
                 dlerror());
        not_there(cx, why);
        return NULL;
    }
    void *at = dlsym(library, name);
    if (!at) not_there(cx, LIBRARY " is of another version of meshlua");
    return at;
}

DeviceSource *gpu_source(Ctx *cx) {
    return (DeviceSource *)(uintptr_t)symbol(cx, DEVICE_SOURCE);
}

DeviceCompile *gpu_compile(Ctx *cx) {
    return (DeviceCompile *)(uintptr_t)symbol(cx, DEVICE_COMPILE);
}

typedef struct Choice { /* of --devices=cuda... */
    int32_t gpu;        /* by index; ANY: none is named */
    int32_t times;      /* virtual devices on it */
} Choice;

/* Digits, up to what is none. */
static bool read_number(const char **at, int32_t *out) {
    const char *s = *at;
    *out = 0;
    for (; *s >= '0' && *s <= '9' && *out <= MAX_DEVICES; s++) *out = *out * 10 + (*s - '0');
    bool ok = s != *at && *out <= MAX_DEVICES;
    *at = s;
    return ok;
}

/* "", ":2" or ":0*8". */
static bool read_choice(const char *s, Choice *c) {
    *c = (Choice){.gpu = ANY, .times = 1};
    if (!*s) return true;
    if (*s++ != ':' || !read_number(&s, &c->gpu)) return false;
    if (*s == '*' && (s++, !read_number(&s, &c->times))) return false;
    return !*s && c->times > 0;
}

/* What the passes know of it: the built-in row of its kind, with the memory that is there. Only the
 * whole name says the kind: variants of a GPU differ in speed. */
static void fill_target(Gpu *g) {
    static const char *const kinds[][2] = {{"NVIDIA H200", "h200"},
                                           {"NVIDIA H100 80GB HBM3", "h100"}};
    const DeviceGpu *gpu = &g->device.gpu[0];
    const Target *known = NULL;
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(gpu->name, kinds[i][0]) == 0) known = target_of(kinds[i][1]);
    g->target = known ? *known : *target_of("h100");
    g->target.name = gpu->name;
    g->target.memory = (double)gpu->memory;
    g->target.shared_memory = true; /* virtual devices of one GPU */
    if (known) return;
    g->target.flops16 = 0; /* not known */
    log_note(g->cx, "the speeds of %s are not known: plans are made for those of an H100",
             gpu->name);
}

/* Opens the library, and in it that GPU, or all. */
static Err open_device(Ctx *cx, int32_t which, Device *out) {
    char why[REASON] = "", cache[PATH_MAX];
    const char *algorithms = env_get(ENV_ALGORITHMS);
    DeviceOptions options = {.which = which == ANY ? NULL : &which,
                             .n = which != ANY,
                             .visible = env_get(ENV_CUDA_VISIBLE_DEVICES),
                             .first_guess = algorithms && strcmp(algorithms, "first") == 0,
                             .tf32 = env_int(ENV_TF32, 0) != 0,
                             .wgmma = env_int(ENV_WGMMA, 0) != 0,
                             .cache = store_folder(cache, sizeof cache),
                             .check = env_get(ENV_CHECK) != NULL};
    if (algorithms && !options.first_guess && strcmp(algorithms, "timed") != 0)
        return err_set(cx, E_VALUE, "MESHLUA_ALGORITHMS=%s: expected timed or first", algorithms);
    DeviceOpen *open = (DeviceOpen *)(uintptr_t)symbol(cx, DEVICE_OPEN);
    if (!open) return cx->err.code;
    *out = (Device){.version = 0};
    if (!open(out, &options, why, sizeof why)) return not_there(cx, why);
    if (out->version == DEVICE_VERSION) return E_OK;
    out->version = 0;
    return not_there(cx, LIBRARY " is of another version of meshlua");
}

Err gpu_look(Ctx *cx, Device *out) {
    return open_device(cx, ANY, out);
}

/* Is it that there are fewer GPUs than processes? */
static Err too_few(Ctx *cx, const Ranks *ranks, Err err) {
    ErrState why = cx->err;
    Device all;
    int32_t n = 0;
    if (gpu_look(cx, &all) == E_OK) {
        n = all.gpus;
        all.close(all.self);
    }
    cx->err = why;
    if (n == 0 || n > ranks->local) return err;
    return err_set(
        cx, E_DEVICE,
        "--devices=cuda: rank %d is process %d of its host, which has %d GPU%s; start as "
        "many processes as GPUs, or let all share one, for tests: --devices=cuda:0",
        (int)ranks->rank, (int)ranks->local + 1, (int)n, n == 1 ? "" : "s");
}

Err gpu_open(Runtime *rt, const char *devices, const Ranks *ranks, int32_t *ndevices) {
    Gpu *g = &rt->gpu;
    Choice c;
    if (!read_choice(devices + strlen("cuda"), &c))
        return err_set(rt->cx, E_MESH,
                       "--devices=%s: expected cuda, cuda:2 (a GPU by its index) or cuda:0*8 "
                       "(eight virtual devices on it)",
                       devices);
    g->chosen = c.gpu != ANY;
    const char *visible = env_get(ENV_CUDA_VISIBLE_DEVICES);
    /* A launcher may show each process one of its own. */
    if (ranks->world > 1 && !g->chosen) c.gpu = visible && !strchr(visible, ',') ? 0 : ranks->local;
    Err err = open_device(rt->cx, c.gpu, &g->device);
    if (err) return ranks->world > 1 && !g->chosen ? too_few(rt->cx, ranks, err) : err;
    if (g->device.gpus > 1) {
        gpu_close(g);
        return not_there(rt->cx, "one process uses one GPU; start one for each: meshlua run -n 2 "
                                 "--devices=cuda SCRIPT, or say which: --devices=cuda:0");
    }
    if (!g->device.wait(g->device.self, 0)) {
        char why[REASON];
        snprintf(why, sizeof why, "%s", g->device.error(g->device.self));
        gpu_close(g);
        return not_there(rt->cx, why);
    }
    g->cx = rt->cx;
    g->rt = rt;
    g->memory = (Memory){0, 0, take, give, write, read, move};
    rt->cx->memory = &g->memory;
    fill_target(g);
    *ndevices = c.times;
    return E_OK;
}

void gpu_close(Gpu *g) {
    if (!gpu_is_there(g)) return;
    if (g->scratch) give(&g->memory, g->scratch, g->scratch_bytes);
    g->device.close(g->device.self);
    if (g->cx) g->cx->memory = NULL;
    *g = (Gpu){.cx = NULL};
}
