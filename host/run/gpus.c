#include "run/gpus.h"
#include "base/log.h"
#include "run/hosts.h"
#include "run/staged.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HOST_NAME = 64, WHY = 256 };

/* Plain bytes, of which every process gets those of all. */
typedef struct Place {
    uint64_t host;
    char name[HOST_NAME]; /* of the host */
    char bus[DEVICE_BUS];
    int32_t there; /* is there a GPU? */
    int32_t chosen;
} Place;

typedef struct Way {
    int32_t there;      /* is NCCL? */
    char why[WHY];      /* not */
    char id[DEVICE_ID]; /* rank 0's */
} Way;

/* ---- who shares one ---- */

static void fill_place(const Runtime *rt, Place *p) {
    const Gpu *g = &rt->gpu;
    *p = (Place){.host = hosts_key(), .there = gpu_is_there(g), .chosen = g->chosen};
    gethostname(p->name, sizeof p->name - 1);
    if (p->there) memcpy(p->bus, g->device.gpu[0].bus, sizeof p->bus);
}

/* An earlier process on the same GPU, or -1. */
static int32_t sharer(const Place *all, int32_t i) {
    for (int32_t k = 0; k < i; k++)
        if (all[k].host == all[i].host && memcmp(all[k].bus, all[i].bus, DEVICE_BUS) == 0) return k;
    return -1;
}

/* *shared: two processes are on one GPU, as they were told. */
static Err check_places(Runtime *rt, const Place *all, bool *shared) {
    int32_t world = rt->ranks.world;
    bool chosen = true;
    for (int32_t i = 0; i < world; i++) {
        chosen = chosen && all[i].chosen;
        if (all[i].there != all[0].there)
            return err_set(rt->cx, E_RANKS,
                           "rank %d has a GPU, and rank %d has none; --devices "
                           "must be the same for all",
                           all[0].there ? 0 : (int)i, all[0].there ? (int)i : 0);
    }
    for (int32_t i = 1; all[0].there && i < world; i++) {
        int32_t k = sharer(all, i);
        if (k < 0) continue;
        *shared = true;
        if (chosen) continue;
        return err_set(rt->cx, E_RANKS,
                       "ranks %d and %d would use the same GPU, %.*s of %s; start one process for "
                       "each GPU, or share one on purpose with --devices=cuda:0 in all",
                       (int)k, (int)i, DEVICE_BUS, all[i].bus, all[i].name);
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

static void fill_way(Runtime *rt, Way *w) {
    Device *d = &rt->gpu.device;
    memset(w, 0, sizeof *w);
    w->there = d->meet(d->self, rt->ranks.rank == 0 ? w->id : NULL);
    if (!w->there) snprintf(w->why, sizeof w->why, "%s", d->error(d->self));
}

static Err join(Runtime *rt, const char id[DEVICE_ID]) {
    static const Crossing start = {.op = "the start of NCCL", .where = "", .axes = ""};
    Device *d = &rt->gpu.device;
    Comm *c = &rt->link.device;
    ring_enter(channel_ring(rt->link.channel), &start);
    int joined = d->join(d->self, id, rt->ranks.rank, rt->ranks.world, c);
    ring_leave(channel_ring(rt->link.channel));
    if (joined) return E_OK;
    c->version = 0;
    return err_set(rt->cx, E_RANKS, "%s", d->error(d->self));
}

/* All have it, or none uses it. */
static Err open_way(Runtime *rt, Way *all) {
    Way mine;
    fill_way(rt, &mine);
    TRY(link_gather(rt->cx, &rt->link, "asking for NCCL", &mine, all, sizeof mine));
    rt->gpu.missing[0] = '\0';
    for (int32_t i = 0; i < rt->ranks.world; i++)
        if (!all[i].there) {
            snprintf(rt->gpu.missing, sizeof rt->gpu.missing, "rank %d: %.*s", (int)i, WHY,
                     all[i].why);
            return E_OK;
        }
    return join(rt, all[0].id);
}

Err gpus_join(Runtime *rt) {
    if (rt->ranks.world == 1) return E_OK;
    Arena arena;
    Place mine;
    bool shared = false;
    arena_init(&arena, &rt->cx->alloc);
    Place *place = ARENA_ARRAY(&arena, Place, rt->ranks.world);
    Way *way = ARENA_ARRAY(&arena, Way, rt->ranks.world);
    Err err = place && way ? E_OK : err_nomem(rt->cx, "meeting other processes");
    fill_place(rt, &mine);
    if (!err) err = link_gather(rt->cx, &rt->link, "asking for GPUs", &mine, place, sizeof mine);
    if (!err) err = check_places(rt, place, &shared);
    if (!err && shared) let_share(rt);
    if (!err && mine.there) err = open_way(rt, way);
    arena_free(&arena);
    return err;
}

void gpus_leave(Runtime *rt) {
    Comm *c = &rt->link.device;
    if (c->version) c->close(c->self);
    *c = (Comm){.version = 0};
}

Err gpus_need(Runtime *rt) {
    if (rt->link.device.version) return E_OK;
    return err_set(rt->cx, E_RANKS,
                   "%d processes with GPUs, and nothing to carry data between them: %s; or start "
                   "one process; or ml.distributed{backend = \"mpi\"} sends it through the host's "
                   "memory, which is slow",
                   (int)rt->ranks.world, rt->gpu.missing);
}

Err gpus_use_host(Runtime *rt) {
    if (rt->ranks.world == 1 || !gpu_is_there(&rt->gpu)) return E_OK;
    TRY(link_settle(rt->cx, &rt->link));
    gpus_leave(rt);
    if (!staged_open(&rt->link.comm, &rt->gpu.device, &rt->link.device))
        return err_nomem(rt->cx, "messages");
    log_note(rt->cx, "data goes from GPU to GPU through the host's memory and MPI, which is slow");
    return E_OK;
}

const char *gpus_backend(const Runtime *rt) {
    return rt->link.device.over ? "nccl" : "mpi";
}
