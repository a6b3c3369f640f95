#include "run/runtime/gpu_transport.h"
#include "base/log.h"
#include "run/runtime/hosts.h"
#include "run/gpu/staged.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HOST_NAME = 64, WHY = 256 };

/* Plain bytes, of which every process gets those of all. */
typedef struct GpuPlace {
    uint64_t host;
    char name[HOST_NAME]; /* of the host */
    char bus[MAX_DOMAINS][DEVICE_BUS];
    int32_t gpus;
    int32_t chosen;
} GpuPlace;

typedef struct NcclOffer {
    int32_t there;      /* is NCCL? */
    char why[WHY];      /* not */
    char id[DEVICE_ID]; /* rank 0's */
} NcclOffer;

/* ---- who shares one ---- */

static void fill_place(const Runtime *rt, GpuPlace *p) {
    const Gpus *g = &rt->gpu;
    *p = (GpuPlace){.host = hosts_key(), .chosen = g->chosen};
    gethostname(p->name, sizeof p->name - 1);
    if (gpu_is_there(g)) p->gpus = g->device.gpus;
    for (int32_t k = 0; k < p->gpus; k++) memcpy(p->bus[k], g->device.gpu[k].bus, sizeof p->bus[k]);
}

/* The bus of a GPU that both have, or NULL. */
static const char *shared_bus(const GpuPlace *a, const GpuPlace *b) {
    if (a->host != b->host) return NULL;
    for (int32_t i = 0; i < a->gpus; i++)
        for (int32_t k = 0; k < b->gpus; k++)
            if (memcmp(a->bus[i], b->bus[k], DEVICE_BUS) == 0) return a->bus[i];
    return NULL;
}

/* An earlier process with a GPU of that one, and its bus; or -1. */
static int32_t sharer(const GpuPlace *all, int32_t i, const char **bus) {
    for (int32_t k = 0; k < i; k++) {
        *bus = shared_bus(&all[i], &all[k]);
        if (*bus) return k;
    }
    return -1;
}

/* *shared: two processes are on one GPU, as they were told. */
static Err check_places(Runtime *rt, const GpuPlace *all, bool *shared) {
    int32_t world = rt->ranks.world;
    bool chosen = true;
    for (int32_t i = 0; i < world; i++) {
        chosen = chosen && all[i].chosen;
        if (all[i].gpus != all[0].gpus)
            return err_set(
                rt->cx, E_RANKS,
                "rank 0 has %d GPU%s, and rank %d has %d; --devices must be the same for "
                "all",
                (int)all[0].gpus, str_s(all[0].gpus), (int)i, (int)all[i].gpus);
    }
    for (int32_t i = 1; all[0].gpus && i < world; i++) {
        const char *bus;
        int32_t k = sharer(all, i, &bus);
        if (k < 0) continue;
        *shared = true;
        if (chosen) continue;
        return err_set(rt->cx, E_RANKS,
                       "ranks %d and %d would use the same GPU, %.*s of %s; start one process for "
                       "each GPU, or share one on purpose with --devices=cuda:0 in all",
                       (int)k, (int)i, DEVICE_BUS, bus, all[i].name);
    }
    return E_OK;
}

/* NCCL takes two ranks on one GPU only if they seem to be on two hosts (2.28), between which it
 * then uses sockets; the rest keeps it from what needs a GPU of one's own. */
static void let_share(const Runtime *rt) {
    char host[32];
    snprintf(host, sizeof host, "meshlua-%d", (int)rt->ranks.rank);
    const char *const set[][2] = {{"NCCL_HOSTID", host},     {"NCCL_SOCKET_IFNAME", "lo"},
                                  {"NCCL_IB_DISABLE", "1"},  {"NCCL_MNNVL_ENABLE", "0"},
                                  {"NCCL_NVLS_ENABLE", "0"}, {"NCCL_ALGO", "Ring"},
                                  {"NCCL_PROTO", "Simple"},  {"NCCL_MAX_CTAS", "1"}};
    for (size_t i = 0; i < sizeof set / sizeof *set; i++) setenv(set[i][0], set[i][1], 0);
    log_note(rt->cx, "processes share a GPU: NCCL is told that each has a host of its own "
                     "(NCCL_HOSTID and others); good for tests, slow otherwise");
}

/* ---- NCCL ---- */

static void fill_offer(Runtime *rt, NcclOffer *w) {
    Device *d = &rt->gpu.device;
    memset(w, 0, sizeof *w);
    w->there = d->meet(d->self, rt->ranks.rank == 0 ? w->id : NULL);
    if (!w->there) snprintf(w->why, sizeof w->why, "%s", d->error(d->self));
}

static Err join(Runtime *rt, const char id[DEVICE_ID]) {
    static const ExchangeInfo start = {.op = "the start of NCCL", .where = "", .axes = ""};
    Device *d = &rt->gpu.device;
    Comm *c = &rt->transport.device;
    FlightLog *flight_log =
        rt->transport.channel ? channel_flight_log(rt->transport.channel) : NULL;
    if (flight_log) flight_log_enter(flight_log, &start);
    int joined = d->join(d->self, id, rt->cx->domain, rt->cx->domains * rt->ranks.world, c);
    if (flight_log) flight_log_leave(flight_log);
    if (joined) return E_OK;
    c->version = 0;
    return err_set(rt->cx, E_RANKS, "%s", d->error(d->self));
}

/* All have it, or none uses it. */
static Err open_nccl(Runtime *rt, NcclOffer *all) {
    NcclOffer mine;
    fill_offer(rt, &mine);
    if (rt->ranks.world == 1)
        all[0] = mine;
    else
        TRY(transport_gather(rt->cx, &rt->transport, "asking for NCCL", &mine, all, sizeof mine));
    rt->gpu.missing[0] = '\0';
    for (int32_t i = 0; i < rt->ranks.world; i++) {
        if (all[i].there) continue;
        char who[32] = "";
        if (rt->ranks.world > 1) snprintf(who, sizeof who, "rank %d: ", (int)i);
        snprintf(rt->gpu.missing, sizeof rt->gpu.missing, "%s%.*s", who, WHY, all[i].why);
        return E_OK;
    }
    return join(rt, all[0].id);
}

Err gpu_transport_join(Runtime *rt) {
    if (rt->ranks.world == 1) return E_OK;
    Arena arena;
    GpuPlace mine;
    bool shared = false;
    arena_init(&arena, &rt->cx->alloc);
    GpuPlace *place = ARENA_ARRAY(&arena, GpuPlace, rt->ranks.world);
    NcclOffer *offer = ARENA_ARRAY(&arena, NcclOffer, rt->ranks.world);
    Err err = place && offer ? E_OK : err_nomem(rt->cx, "meeting other processes");
    fill_place(rt, &mine);
    if (!err)
        err =
            transport_gather(rt->cx, &rt->transport, "asking for GPUs", &mine, place, sizeof mine);
    if (!err) err = check_places(rt, place, &shared);
    if (!err && shared) let_share(rt);
    if (!err && mine.gpus) err = open_nccl(rt, offer);
    arena_free(&arena);
    return err;
}

void gpu_transport_leave(Runtime *rt) {
    Comm *c = &rt->transport.device;
    if (c->version) c->close(c->self);
    *c = (Comm){.version = 0};
}

Err gpu_transport_need(Runtime *rt) {
    NcclOffer offer;
    if (rt->transport.device.version) return E_OK;
    if (rt->ranks.world == 1) TRY(open_nccl(rt, &offer));
    if (rt->transport.device.version) return E_OK;
    if (rt->ranks.world == 1)
        return err_set(rt->cx, E_RANKS,
                       "%d GPUs, and nothing to carry data between them: %s; or use one: "
                       "--devices=cuda:0",
                       (int)rt->cx->domains, rt->gpu.missing);
    return err_set(rt->cx, E_RANKS,
                   "%d processes with GPUs, and nothing to carry data between them: %s; or start "
                   "one process; or ml.distributed{backend = \"mpi\"} sends it through the host's "
                   "memory, which is slow",
                   (int)rt->ranks.world, rt->gpu.missing);
}

Err gpu_transport_use_host(Runtime *rt) {
    if (rt->ranks.world == 1 || !gpu_is_there(&rt->gpu)) return E_OK;
    if (rt->cx->domains > 1)
        return err_set(rt->cx, E_RANKS,
                       "backend = \"mpi\" is for processes with one GPU each, and these have %d; "
                       "start one process for each",
                       (int)rt->cx->domains);
    TRY(transport_settle(rt->cx, &rt->transport));
    gpu_transport_leave(rt);
    if (!staged_open(&rt->transport.comm, &rt->gpu.device, &rt->transport.device))
        return err_nomem(rt->cx, "messages");
    log_note(rt->cx, "data goes from GPU to GPU through the host's memory and MPI, which is slow");
    return E_OK;
}

const char *gpu_transport_backend(const Runtime *rt) {
    return rt->transport.device.over ? "nccl" : "mpi";
}
