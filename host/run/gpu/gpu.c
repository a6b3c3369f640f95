#include "base/env.h"
#include "base/log.h"
#include "run/gpu/gpu.h"
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
enum { REASON = 1024 };

Err gpu_fault(Gpus *g) {
    DeviceFault f;
    for (int32_t i = 0; i < g->device.gpus; i++)
        if (g->device.fault(g->device.self, i, &f))
            return bound_fault(g->cx, g->plans, f.tag, &f.fault);
    return E_OK;
}

Err gpu_wait(Gpus *g) {
    TRY(transport_settle(g->cx, g->transport));
    for (int32_t i = 0; i < g->device.gpus; i++)
        if (!g->device.wait(g->device.self, i)) return gpu_error(g, "waiting for a GPU");
    return gpu_fault(g);
}

/* ---- their memory ---- */

static Gpus *gpu_of(const Memory *m) {
    return ((const GpuMemory *)(const void *)m)->gpu;
}

static char *take(Memory *m, size_t bytes) {
    Gpus *g = gpu_of(m);
    char *at = g->device.alloc(g->device.self, m->domain, bytes);
    if (at) m->live += bytes;
    if (m->live > m->peak) m->peak = m->live;
    return at;
}

static void give(Memory *m, char *at, size_t bytes) {
    Gpus *g = gpu_of(m);
    g->device.free(g->device.self, m->domain, at, bytes);
    m->live -= bytes;
}

static Err write(Memory *m, char *to, const void *from, size_t bytes) {
    Gpus *g = gpu_of(m);
    if (g->written + bytes > WRITE_AHEAD) {
        TRY(transport_settle(g->cx, g->transport));
        g->written = 0;
    }
    g->written += bytes;
    bool ok = g->device.upload(g->device.self, m->domain, to, from, bytes);
    return ok ? E_OK : gpu_error(g, "writing");
}

static Err read(Memory *m, void *to, const char *from, size_t bytes) {
    Gpus *g = gpu_of(m);
    TRY(transport_settle(g->cx, g->transport));
    if (!g->device.download(g->device.self, m->domain, to, from, bytes))
        return gpu_error(g, "reading");
    return gpu_fault(g);
}

static Err ask(Memory *m, const char *from, size_t bytes, int64_t *number) {
    Gpus *g = gpu_of(m);
    TRY(transport_settle(g->cx, g->transport));
    *number = g->device.ask(g->device.self, m->domain, from, bytes);
    return *number < 0 ? gpu_error(g, "reading") : E_OK;
}

static Err answer(Memory *m, int64_t number, void *to, size_t bytes, bool *known) {
    Gpus *g = gpu_of(m);
    int is = g->device.answer(g->device.self, m->domain, number, to, bytes);
    *known = is > 0;
    if (is < 0) return E_OK;
    return is ? gpu_fault(g) : gpu_error(g, "reading");
}

static Err move(Memory *m, char *to, const Memory *source, const char *from, size_t bytes) {
    Gpus *g = gpu_of(m);
    bool ok = g->device.move(g->device.self, m->domain, to, source->domain, from, bytes);
    return ok ? E_OK : gpu_error(g, "copying");
}

Err gpu_grow_scratch(Gpus *g, int32_t domain, size_t bytes) {
    GpuMemory *m = &g->of[domain];
    if (bytes <= m->scratch_bytes) return E_OK;
    char text[BYTES_TEXT];
    if (m->scratch) give(&m->memory, m->scratch, m->scratch_bytes);
    m->scratch_bytes = 0;
    g->moves++;
    m->scratch = take(&m->memory, bytes);
    if (!m->scratch)
        return err_set(g->cx, E_NOMEM, "out of memory: kernels need %s on the GPU beside tensors",
                       str_bytes((double)bytes, text));
    m->scratch_bytes = bytes;
    return E_OK;
}

Err gpu_run(Gpus *g, int32_t domain, const char *kernel, const KArgs *args) {
    Device *d = &g->device;
    size_t scratch = 0;
    void *bound = d->bind(d->self, domain, kernel, args, &scratch);
    if (!bound) return gpu_error(g, kernel);
    Err err = gpu_grow_scratch(g, domain, scratch);
    if (!err && !d->launch(d->self, bound, args, g->of[domain].scratch, 0))
        err = gpu_error(g, kernel);
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

typedef struct GpuChoice {    /* of --devices=cuda... */
    int32_t gpu[MAX_DOMAINS]; /* by index, in order */
    int32_t n;                /* 0: none is named */
    int32_t times;            /* virtual devices on each */
} GpuChoice;

/* Digits, up to what is none. */
static bool read_number(const char **at, int32_t *out) {
    const char *s = *at;
    *out = 0;
    for (; *s >= '0' && *s <= '9' && *out <= MAX_DEVICES; s++) *out = *out * 10 + (*s - '0');
    bool ok = s != *at && *out <= MAX_DEVICES;
    *at = s;
    return ok;
}

/* One more, that is not among them yet. */
static bool read_gpu(const char **at, GpuChoice *c) {
    int32_t gpu;
    if (c->n == MAX_DOMAINS || !read_number(at, &gpu)) return false;
    for (int32_t i = 0; i < c->n; i++)
        if (c->gpu[i] == gpu) return false;
    c->gpu[c->n++] = gpu;
    return true;
}

/* "", ":2", ":0,1" or ":0,1*4". */
static bool read_choice(const char *s, GpuChoice *c) {
    *c = (GpuChoice){.times = 1};
    if (!*s) return true;
    do {
        if (*s++ != (c->n ? ',' : ':') || !read_gpu(&s, c)) return false;
    } while (*s == ',');
    if (*s == '*' && (s++, !read_number(&s, &c->times))) return false;
    return !*s && c->times > 0 && c->times * c->n <= MAX_DEVICES;
}

/* What the passes know of them: the built-in row of the first one's kind, with the memory that each
 * has. Only the whole name says the kind: variants of a GPU differ in speed. */
static void fill_target(Gpus *g, const Ranks *ranks) {
    static const char *const kinds[][2] = {{"NVIDIA H200", "h200"},
                                           {"NVIDIA H100 80GB HBM3", "h100"}};
    const DeviceGpu *gpu = &g->device.gpu[0];
    const Target *known = NULL;
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(gpu->name, kinds[i][0]) == 0) known = target_of(kinds[i][1]);
    g->target = known ? *known : *target_of("h100");
    g->target.name = gpu->name;
    if (env_has(ENV_ALGORITHMS, "tf32")) g->target.flops32 = 0;
    g->target.memory = (double)gpu->memory;
    for (int32_t k = 1; k < g->device.gpus; k++)
        if ((double)gpu[k].memory < g->target.memory) g->target.memory = (double)gpu[k].memory;
    /* Virtual devices of one GPU have nothing to wait for. */
    g->target.shared_memory = g->device.gpus * ranks->world == 1;
    if (known) return;
    g->target.flops16 = 0; /* not known */
    log_note(g->cx, "the speeds of %s are not known: plans are made for those of an H100",
             gpu->name);
}

/* Opens the library, and in it those GPUs, or all. */
static Err open_device(Ctx *cx, const GpuChoice *c, Device *out) {
    char why[REASON] = "", cache[PATH_MAX];
    DeviceOptions options = {.which = c->n ? c->gpu : NULL,
                             .n = c->n,
                             .visible = env_get(ENV_CUDA_VISIBLE_DEVICES),
                             .first_guess = env_has(ENV_ALGORITHMS, "first"),
                             .tf32 = env_has(ENV_ALGORITHMS, "tf32"),
                             .wgmma = env_has(ENV_ALGORITHMS, "wgmma"),
                             .cache = store_folder(cache, sizeof cache),
                             .check = env_int(ENV_CHECK, 0) != 0};
    DeviceOpen *open = (DeviceOpen *)(uintptr_t)symbol(cx, DEVICE_OPEN);
    if (!open) return cx->err.code;
    *out = (Device){.version = 0};
    if (!open(out, &options, why, sizeof why)) return not_there(cx, why);
    if (out->version == DEVICE_VERSION) return E_OK;
    out->version = 0;
    return not_there(cx, LIBRARY " is of another version of meshlua");
}

Err gpu_look(Ctx *cx, Device *out) {
    return open_device(cx, &(GpuChoice){.n = 0}, out);
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
        (int)ranks->rank, (int)ranks->local + 1, (int)n, str_s(n));
}

/* Whether they are at work; what they are for tensors. */
static Err begin(Gpus *g, Ctx *cx, const Ranks *ranks) {
    if (g->device.gpus > MAX_DOMAINS)
        return err_set(cx, E_DEVICE,
                       "--devices=cuda: %d GPUs, and one process uses %d at most; say which: "
                       "--devices=cuda:0,1",
                       (int)g->device.gpus, MAX_DOMAINS);
    for (int32_t k = 0; k < g->device.gpus; k++)
        if (!g->device.wait(g->device.self, k))
            return not_there(cx, g->device.error(g->device.self));
    g->cx = cx;
    for (int32_t k = 0; k < g->device.gpus; k++) {
        g->of[k] =
            (GpuMemory){.memory = {k, 0, 0, take, give, write, read, ask, answer, move}, .gpu = g};
        cx->memory[k] = &g->of[k].memory;
    }
    fill_target(g, ranks);
    return E_OK;
}

Err gpu_open(Gpus *g, Ctx *cx, const char *devices, const Ranks *ranks, int32_t *ndevices) {
    GpuChoice c;
    if (!read_choice(devices + strlen("cuda"), &c))
        return err_set(cx, E_MESH,
                       "--devices=%s: expected cuda, cuda:2 (a GPU by its index), cuda:0,1 "
                       "(several) or cuda:0*8 (eight virtual devices on it)",
                       devices);
    g->chosen = c.n > 0;
    const char *visible = env_get(ENV_CUDA_VISIBLE_DEVICES);
    if (ranks->world > 1 && !g->chosen) {
        /* A launcher may show each process one of its own. */
        c.gpu[0] = visible && !strchr(visible, ',') ? 0 : ranks->local;
        c.n = 1;
    }
    Err err = open_device(cx, &c, &g->device);
    if (err) return ranks->world > 1 && !g->chosen ? too_few(cx, ranks, err) : err;
    err = begin(g, cx, ranks);
    if (err) gpu_close(g);
    *ndevices = c.times * g->device.gpus;
    return err;
}

void gpu_close(Gpus *g) {
    if (!gpu_is_there(g)) return;
    for (int32_t k = 0; g->cx && k < g->device.gpus; k++) {
        GpuMemory *m = &g->of[k];
        if (m->scratch) give(&m->memory, m->scratch, m->scratch_bytes);
        g->cx->memory[k] = NULL;
    }
    g->device.close(g->device.self);
    *g = (Gpus){.cx = NULL};
}
