#include "run/runtime/agree.h"
#include "base/env.h"
#include "run/runtime/gpu_transport.h"
#include "run/runtime/hosts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static Err bad_devices(Ctx *cx, const char *s) {
    return err_set(
        cx, E_MESH,
        "--devices=%s: expected a number of virtual CPU devices from 1 to %d, cuda, cuda:0,1, "
        "cuda:0*8, fake:N, or fake:KIND:N (cpu, a100, h100, h200, ...), where N may be "
        "HOSTSxDEVICES",
        s, MAX_DEVICES);
}

/* A count from 1 on, up to the end of the text; 0 if it is not one. */
static int32_t count_of(const char *s) {
    char *end;
    long n = strtol(s, &end, 10);
    return *s && !*end && n >= 1 && n <= MAX_DEVICES ? (int32_t)n : 0;
}

enum { HOST_DEVICES = 8 };

/* "64", or "8x8": hosts and the devices of each, these to *each. 0 if it is neither. */
static int32_t count_fakes(const char *s, int32_t *each) {
    char hosts[16] = "";
    const char *x = strchr(s, 'x');
    *each = HOST_DEVICES;
    if (!x || (size_t)(x - s) >= sizeof hosts) return x ? 0 : count_of(s);
    memcpy(hosts, s, (size_t)(x - s));
    int32_t n = count_of(hosts);
    *each = count_of(x + 1);
    return (int64_t)n * *each <= MAX_DEVICES ? n * *each : 0;
}

/* Which domains this process has, and how many devices are in each. */
static void number_domains(Runtime *rt) {
    int32_t domains = gpu_is_there(&rt->gpu) ? rt->gpu.device.gpus : 1;
    bool several = domains * rt->ranks.world > 1;
    rt->cx->domains = domains;
    rt->cx->domain = domains * rt->ranks.rank;
    rt->cx->domain_devices = several ? rt->ndevices / domains : 0;
}

/* Every process has as many devices. */
static Err share_devices(Runtime *rt) {
    if (rt->ranks.world == 1) return E_OK;
    TRY(agree_all(rt, AGREE_DEVICES, (uint64_t)rt->ndevices));
    return gpu_transport_join(rt);
}

Err runtime_set_devices(Runtime *rt, const char *devices) {
    const Target *target = target_of("cpu");
    const char *number = devices;
    bool fake = strncmp(devices, "fake:", 5) == 0;
    if (fake) {
        const char *colon = strchr(devices + 5, ':');
        number = colon ? colon + 1 : devices + 5;
        if (colon) {
            char kind[32] = "";
            size_t n = (size_t)(colon - devices - 5);
            if (n < sizeof kind) memcpy(kind, devices + 5, n);
            target = target_of(kind);
        }
    }
    int32_t each = 0, n = fake ? count_fakes(number, &each) : count_of(number);
    bool gpu = strncmp(devices, "cuda", 4) == 0;
    if (!gpu && (!target || !n)) return bad_devices(rt->cx, devices);
    gpu_transport_leave(rt);
    gpu_close(&rt->gpu);
    rt->target = target_of("cpu"); /* what is left where the GPU cannot be opened */
    number_domains(rt);
    if (gpu) {
        rt->gpu.transport = &rt->transport;
        rt->gpu.plans = &rt->plans;
        TRY(gpu_open(&rt->gpu, rt->cx, devices, &rt->ranks, &n));
        target = &rt->gpu.target;
    }
    Counters *counters = alloc_new(&rt->cx->alloc, sizeof *counters * (size_t)n);
    if (!counters) {
        gpu_close(&rt->gpu);
        return err_nomem(rt->cx, "device counters");
    }
    alloc_free(&rt->cx->alloc, rt->counters, sizeof *counters * (size_t)rt->ndevices);
    rt->counters = counters;
    rt->target = target;
    rt->ndevices = n;
    rt->fake = fake;
    rt->host_devices = each;
    number_domains(rt);
    return rt->transport.comm.version ? share_devices(rt) : E_OK;
}

Err runtime_init(Runtime *rt, Ctx *cx, const Ranks *ranks, const char *devices) {
    memset(rt, 0, sizeof *rt);
    rt->cx = cx;
    rt->ranks = *ranks;
    const char *level = env_get(ENV_KERNELS);
    rt->level = level ? level : k_cpu_best_level();
    rt->kernels = k_cpu_table(rt->level);
    if (!rt->kernels)
        return err_set(cx, E_DEVICE,
                       "MESHLUA_KERNELS=%s: this processor cannot run them; it may be %s",
                       rt->level, env_row(ENV_KERNELS)->value);
    const char *others = devices ? NULL : env_get(ENV_DEVICES);
    Err err = runtime_set_devices(rt, devices ? devices : others ? others : "1");
    return err && others ? err_add(cx, " (MESHLUA_DEVICES=%s)", others) : err;
}

/* The end of the script: that of all processes, or it is an error. */
static void leave(Runtime *rt) {
    bool alone = !rt->transport.comm.version;
    if (!alone && (transport_settle(rt->cx, &rt->transport) || agree_all(rt, AGREE_END, 0))) {
        char text[ERR_TEXT + 64];
        const ErrState *err = &rt->cx->err;
        snprintf(text, sizeof text, "meshlua: [%s] %s", err_name(err->code), err->text);
        transport_fail(&rt->transport, 1, text);
    }
    transport_close(rt->cx, &rt->transport);
}

static void give_back(Runtime *rt, int32_t domain, Workspace *w) {
    Memory *m = rt->cx->memory[domain];
    if (m && w->at) m->give(m, w->at, w->bytes);
    if (!m) alloc_free(&rt->cx->alloc, w->at, w->bytes);
    *w = (Workspace){.at = NULL};
}

void runtime_free(Runtime *rt) {
    if (!rt->cx) return;
    leave(rt);
    Alloc *a = &rt->cx->alloc;
    int threads = rt->pool ? pool_threads(rt->pool) : 0;
    pool_free(rt->cx, rt->pool);
    hosts_forget(rt);
    for (int32_t k = 0; k < rt->cx->domains; k++) {
        give_back(rt, k, &rt->workspace[k]);
        give_back(rt, k, &rt->wire[k]);
    }
    gpu_close(&rt->gpu);
    alloc_free(a, rt->scratch, rt->scratch_each * (size_t)threads);
    alloc_free(a, rt->counters, sizeof *rt->counters * (size_t)rt->ndevices);
    alloc_trim(a);
    memset(rt, 0, sizeof *rt);
}

Err runtime_connect(Runtime *rt, const JoinFlags *join) {
    const char *check = env_get(ENV_CHECK_REPLICATED);
    rt->check_replicas = !check || strcmp(check, "off") != 0;
    TRY(transport_open(rt->cx, &rt->ranks, join, &rt->transport));
    TRY(share_devices(rt));
    return hosts_find(rt);
}

static Err no_workspace(Runtime *rt, size_t bytes) {
    char text[BYTES_TEXT];
    return err_set(rt->cx, E_NOMEM, "out of memory: a plan needs a workspace of %s",
                   str_bytes((double)bytes, text));
}

/* Where tensors lie: what plans read and write. */
static Err grow(Runtime *rt, int32_t domain, Workspace *w, size_t want) {
    if (want <= w->bytes) return E_OK;
    Memory *m = rt->cx->memory[domain];
    give_back(rt, domain, w); /* first: there may be room for one only */
    rt->moves++;
    w->at = m ? m->take(m, want) : alloc_aligned(&rt->cx->alloc, want);
    if (!w->at) return no_workspace(rt, want);
    w->bytes = want;
    return E_OK;
}

/* For each thread, in the host's memory. */
static Err grow_scratch(Runtime *rt, size_t want) {
    if (want <= rt->scratch_each) return E_OK;
    Alloc *a = &rt->cx->alloc;
    size_t threads = (size_t)pool_threads(rt->pool);
    char *fresh = alloc_aligned(a, want * threads);
    if (!fresh) return no_workspace(rt, want * threads);
    alloc_free(a, rt->scratch, rt->scratch_each * threads);
    rt->scratch = fresh;
    rt->scratch_each = want;
    return E_OK;
}

int runtime_threads(const Runtime *rt) {
    int share = rt->transport.comm.version ? (int)rt->transport.comm.cores : env_cores();
    if (share > ENV_MOST_THREADS) share = ENV_MOST_THREADS;
    return gpu_is_there(&rt->gpu) ? 1 : (int)env_int(ENV_THREADS, share < 1 ? 1 : share);
}

Err runtime_grow_workspace(Runtime *rt, int32_t domain, size_t bytes) {
    return grow(rt, domain, &rt->workspace[domain], bytes);
}

Err runtime_grow_wire(Runtime *rt, int32_t domain, size_t bytes) {
    return grow(rt, domain, &rt->wire[domain], bytes);
}

Err runtime_grow(Runtime *rt, size_t scratch_each, int32_t stages, int32_t queues) {
    if (!rt->pool) {
        rt->pool = pool_new(rt->cx, runtime_threads(rt));
        if (!rt->pool) return err_nomem(rt->cx, "threads");
    }
    if (!pool_reserve(rt->cx, rt->pool, stages, queues)) return err_nomem(rt->cx, "threads' work");
    if (stages > rt->stages) rt->stages = stages;
    if (queues > rt->queues) rt->queues = queues;
    scratch_each = (scratch_each + ALLOC_ALIGN - 1) / ALLOC_ALIGN * ALLOC_ALIGN;
    return grow_scratch(rt, scratch_each);
}

const KernelRow *runtime_kernel(const Runtime *rt, const char *name) {
    for (const KernelRow *k = rt->kernels; k->name; k++)
        if (strcmp(k->name, name) == 0) return k;
    return NULL;
}
