#include "run/exec/record.h"

bool record_init_ring(Profile *p, ProfileRing *ring) {
    ring->at = ARENA_ARRAY(&p->arena, ProfileRecord, PROFILE_RECORDS);
    return ring->at != NULL;
}

/* ---- plans ---- */

/* The buffer that a place in Exec.base belongs to. */
static int32_t buffer_of(const Exec *e, int32_t base) {
    int32_t lo = 0, hi = e->plan->buffers.n - 1;
    while (lo < hi) {
        int32_t mid = (lo + hi + 1) / 2;
        if (e->first_base[mid] <= base)
            lo = mid;
        else
            hi = mid - 1;
    }
    return lo;
}

static void describe_items(ProfilePlan *plan) {
    const Exec *e = plan->e;
    for (int32_t i = 0; i < e->item.n; i++) {
        const Item *item = &e->item.at[i];
        if (!item->args.nout) continue;
        int32_t base = item->ref[item->args.nin].base, buffer = buffer_of(e, base);
        if (base >= e->wire_base) { /* for all devices of its domain */
            plan->item[i].slot = exec_class_slots(e, 0)[item->domain];
            continue;
        }
        plan->item[i].vary = plan_buffer(e->plan, buffer)->vary;
        plan->item[i].slot = base - e->first_base[buffer];
    }
}

static ProfilePlan *new_plan(Profile *p, Exec *e) {
    ProfilePlan *plan = ARENA_NEW(&p->arena, ProfilePlan);
    if (!plan) return NULL;
    plan->item = ARENA_ARRAY(&p->arena, ProfileItem, e->item.n + 1);
    plan->total = ARENA_ARRAY(&p->arena, ProfileTotal *, p->threads);
    if (!plan->item || !plan->total) return NULL;
    for (int32_t t = 0; t < p->threads; t++) {
        plan->total[t] = ARENA_ARRAY(&p->arena, ProfileTotal, e->item.n + 1);
        if (!plan->total[t]) return NULL;
    }
    plan->e = e;
    describe_items(plan);
    return plan;
}

static bool same_exec(const void *ud, const void *probe, int32_t i) {
    return ((const Profile *)ud)->plan.at[i]->e == probe;
}

/* Rings for all threads, or GPUs: how many there are is known once a plan runs. */
static Err make_rings(Profile *p, int32_t threads) {
    if (p->threads) return E_OK;
    p->ring = ARENA_ARRAY(&p->arena, ProfileRing, threads);
    for (int32_t t = 0; p->ring && t < threads; t++)
        if (!record_init_ring(p, &p->ring[t])) p->ring = NULL;
    if (!p->ring) return err_nomem(p->cx, "a profile");
    p->threads = threads;
    return E_OK;
}

/* From here on; the GPUs' queues are empty then, so that their times can be told. */
static Err begin_queues(Profile *p) {
    Gpus *g = &p->now->e->rt->gpu;
    if (gpu_is_there(g)) TRY(gpu_wait(g));
    for (int32_t k = 0; gpu_is_there(g) && k < g->device.gpus; k++)
        p->place[k] = g->device.stamp(g->device.self, k);
    p->now_start = profile_clock();
    for (int32_t k = 0; k < MAX_DOMAINS; k++) p->place_time[k] = p->now_start;
    return E_OK;
}

Err record_enter(Profile *p, Exec *e) {
    if (!p) return E_OK;
    int32_t threads = pool_threads(e->rt->pool), domains = e->rt->cx->domains;
    TRY(make_rings(p, domains > threads ? domains : threads));
    uint64_t hash = hash_u64(0, (uint64_t)(uintptr_t)e);
    int32_t i = map_find(&p->plans, hash, same_exec, p, e);
    if (i < 0) {
        ProfilePlan *plan = new_plan(p, e);
        i = p->plan.n;
        if (!plan || !VEC_ROOM(&p->arena, &p->plan, 1) || !map_add(&p->arena, &p->plans, hash, i))
            return err_nomem(p->cx, "a profile");
        p->plan.at[p->plan.n++] = plan;
        exec_retain(e);
    }
    p->now = p->plan.at[i];
    return begin_queues(p);
}

/* ---- recording ---- */

static void add_record(ProfileRing *ring, ProfileRecord r) {
    ring->at[ring->n++ % PROFILE_RECORDS] = r;
}

/* The work of the item: all of it, or a share. */
static void add_piece(Profile *p, int thread, const Item *item, double share, int64_t start,
                      int64_t end) {
    ProfilePlan *plan = p->now;
    ProfileRing *ring = &p->ring[thread];
    ProfileRecord r = {.start = start,
                       .end = end,
                       .of = plan,
                       .item = (int32_t)(item - plan->e->item.at),
                       .share = (float)share};
    add_record(ring, r);
    ring->busy += end - start;
    ProfileTotal *total = &plan->total[thread][r.item];
    total->time += end - start;
    total->share += share;
}

void record_piece(Profile *p, int thread, const Item *item, int64_t lo, int64_t hi, int64_t start) {
    double share = item->units ? (double)(hi - lo) / (double)item->units : 1;
    add_piece(p, thread, item, share, start, profile_clock());
}

/* Turns the launches of a GPU into pieces, each of which ends where the next begins; waits for the
 * last of them. */
static void settle_gpu(Profile *p, int32_t k) {
    Gpus *g = &p->now->e->rt->gpu;
    const Item *last = NULL;
    int64_t start = p->place_time[k], end = g->device.stamp(g->device.self, k);
    for (int32_t i = 0; i <= p->launches; i++) {
        const ProfileLaunch *l = &p->launch[i];
        if (i < p->launches && l->item->domain != k) continue;
        int64_t stamp = i < p->launches ? l->stamp : end;
        double after = g->device.between(g->device.self, k, p->place[k], stamp);
        int64_t time = p->place_time[k] + (after > 0 ? (int64_t)(1e9 * after) : 0);
        if (last) add_piece(p, k, last, 1, start, time);
        last = l->item;
        start = time;
    }
    p->place[k] = end;
    p->place_time[k] = start;
}

static void settle_launches(Profile *p) {
    for (int32_t k = 0; p->launches && k < p->now->e->rt->gpu.device.gpus; k++) settle_gpu(p, k);
    p->launches = 0;
}

void record_launch(Profile *p, const Item *item) {
    const Gpus *g = &p->now->e->rt->gpu;
    if (p->launches == PROFILE_LAUNCHES) settle_launches(p);
    p->launch[p->launches++] = (ProfileLaunch){item, g->device.stamp(g->device.self, item->domain)};
}

void record_leave(Profile *p) {
    if (!p) return;
    settle_launches(p);
    add_record(&p->host, (ProfileRecord){.start = p->now_start,
                                         .end = profile_clock(),
                                         .of = p->now,
                                         .item = PROFILE_RUN});
}

void record_note(Profile *p, ProfileKind kind, const char *label, int64_t start) {
    /* What began before the recording did is no part of it. */
    if (p && start >= p->start)
        add_record(
            &p->host,
            (ProfileRecord){.start = start, .end = profile_clock(), .of = label, .item = kind});
}
