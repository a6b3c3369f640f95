#include "run/exec/replicas.h"
#include "base/env.h"
#include "base/log.h"

#include <stdlib.h>
#include <string.h>

/* ---- which ---- */

/* Has every device a slot of its own? */
static bool is_apart(const Mesh *m, uint32_t vary) {
    return mesh_product(m, vary) == m->ndevices;
}

/* The sum for params that vary along these axes. The last takes all for which there is none left:
 * who holds the same slots of the union holds the same of each. */
static int8_t sum_for(Replicas *r, uint8_t vary) {
    int8_t k = 0;
    while (k < r->n && r->vary[k] != vary) k++;
    if (k == REPLICA_SUMS) r->vary[--k] |= vary;
    if (k == r->n) r->vary[r->n++] = vary;
    return k;
}

/* The first step that reads each param. */
static void find_uses(const Plan *p, Replicas *r) {
    for (int32_t i = 0; i < p->params.n; i++) r->use[i] = -1;
    for (int32_t k = 0; k < p->steps.n; k++) {
        const PlanStep *s = plan_step(p, k);
        for (int32_t i = 0; i < s->in.n; i++) {
            int32_t value = PLAN_LIST(p, int32_t, s->in)[i];
            const PlanBuffer *b = plan_buffer(p, plan_value(p, value)->buffer);
            if (b->kind == BUFFER_PARAM && r->use[b->index] < 0) r->use[b->index] = k;
        }
    }
}

Err replicas_bind(Exec *e) {
    const Plan *p = e->plan;
    int32_t n = p->params.n;
    if (n == 0) return E_OK;
    Replicas *r = ARENA_ARRAY(&e->arena, Replicas, 1);
    if (!r) return exec_no_memory(e);
    r->sum_of = ARENA_ARRAY(&e->arena, int8_t, n);
    r->use = ARENA_ARRAY(&e->arena, int32_t, n);
    r->hash = ARENA_ARRAY(&e->arena, uint64_t, n);
    if (!r->sum_of || !r->use || !r->hash) return exec_no_memory(e);
    find_uses(p, r);
    for (int32_t i = 0; i < n; i++) {
        int32_t value = PLAN_LIST(p, PlanParam, p->params)[i].value;
        uint8_t vary = (uint8_t)plan_buffer(p, plan_value(p, value)->buffer)->vary;
        bool counts = r->use[i] >= 0 && !is_apart(e->mesh, vary);
        r->sum_of[i] = counts ? sum_for(r, vary) : -1;
    }
    if (r->n) e->replicas = r;
    return E_OK;
}

/* ---- sums ---- */

/* A core looks at 5 GB in a second and computes at 100 GFLOPS: what takes 1 %. */
enum { BLOCK = 1 << 14, WHOLE = 4 * BLOCK, FLOPS_PER_BYTE = 2000 };
enum { LEAST_BYTES = 1 << 20, MOST_FROM_GPU = 1 << 28 };

/* Of `bytes` bytes, the dims of `local` from d on, without padding, which is never read and may be
 * anything. */
static uint64_t hash_part(uint64_t h, const char *at, const Dims *part, const Dims *local, int d,
                          size_t bytes) {
    size_t rest = sizeof *part->at * (size_t)(part->rank - d);
    if (memcmp(part->at + d, local->at + d, rest) == 0) return hash_bytes(h, at, bytes);
    size_t each = bytes / (size_t)local->at[d];
    for (int64_t i = 0; i < part->at[d]; i++)
        h = hash_part(h, at + (size_t)i * each, part, local, d + 1, each);
    return h;
}

/* Every stride-th block, and the last. */
static Err hash_blocks(uint64_t *h, Memory *m, const char *at, size_t bytes, int64_t stride) {
    char image[BLOCK];
    if (stride == 1 && !m) {
        *h = hash_bytes(*h, at, bytes);
        return E_OK;
    }
    int64_t n = (int64_t)((bytes + BLOCK - 1) / BLOCK);
    for (int64_t i = 0; i < n; i = i + stride < n || i == n - 1 ? i + stride : n - 1) {
        const char *from = at + i * BLOCK;
        size_t room = bytes - (size_t)(i * BLOCK);
        if (room > BLOCK) room = BLOCK;
        if (m) TRY(m->read(m, image, from, room));
        *h = hash_bytes(*h, m ? image : from, room);
    }
    return E_OK;
}

static Err hash_padded(uint64_t *h, const Tensor *t, int32_t slot, const Dims *part) {
    size_t bytes = tensor_shard_bytes(t);
    char *image = alloc_aligned(&t->cx->alloc, bytes + 1);
    if (!image) return err_nomem(t->cx, "comparing arguments between processes");
    Err err = tensor_read_shard(t, slot, image);
    if (!err) *h = hash_part(*h, image, part, &t->local, 0, bytes);
    alloc_free(&t->cx->alloc, image, bytes + 1);
    return err;
}

static Err hash_shard(uint64_t *h, const Tensor *t, int32_t slot, int64_t stride) {
    int64_t start[MAX_RANK];
    Dims part = tensor_part(t, slot, start);
    if (!dims_equal(&part, &t->local)) return hash_padded(h, t, slot, &part);
    size_t bytes = tensor_shard_bytes(t);
    return hash_blocks(h, t->shard[slot].buffer->memory, tensor_data(t, slot), bytes,
                       bytes <= WHOLE ? 1 : stride);
}

/* It may take a hundredth of the first call's time: where the arguments are large beside the work
 * on them, only every so many blocks are looked at. The same in all processes. */
static int64_t stride_of(const Exec *e) {
    const Plan *p = e->plan;
    double bytes = 0, most = p->flops / FLOPS_PER_BYTE;
    for (int32_t i = 0; i < p->params.n; i++) {
        int32_t value = PLAN_LIST(p, PlanParam, p->params)[i].value;
        if (e->replicas->sum_of[i] >= 0)
            bytes += (double)plan_buffer(p, plan_value(p, value)->buffer)->bytes;
    }
    if (most < LEAST_BYTES) most = LEAST_BYTES;
    if (gpu_is_there(&e->rt->gpu) && most > MOST_FROM_GPU) most = MOST_FROM_GPU;
    return bytes <= most ? 1 : (int64_t)(bytes / most) + 1;
}

/* A slot of this process, by its number among those of all. */
typedef struct Numbered {
    int32_t number, slot;
} Numbered;

static int by_number(const void *a, const void *b) {
    const Numbered *x = a, *y = b;
    if (x->number != y->number) return x->number < y->number ? -1 : 1;
    return x->slot < y->slot ? -1 : x->slot > y->slot;
}

/* Fills `out`, one of each number in their order; how many. */
static int32_t number_slots(const Exec *e, uint32_t vary, Numbered *out) {
    int32_t n = 0, all = place_own_slots(e->mesh, vary);
    for (int32_t s = 0; s < all; s++) {
        int32_t coord[MAX_AXES];
        place_own_coords(e->mesh, vary, s, coord);
        out[s] = (Numbered){place_number(e->mesh, vary, coord), s};
    }
    qsort(out, (size_t)all, sizeof *out, by_number);
    for (int32_t s = 0; s < all; s++)
        if (n == 0 || out[s].number != out[n - 1].number) out[n++] = out[s];
    return n;
}

static Err hash_param(const Exec *e, int32_t i, const Tensor *t, const Numbered *slot, int32_t n,
                      int64_t stride, uint64_t *h) {
    const BoundParam *p = &e->param[i];
    *h = (uint64_t)i;
    for (int32_t s = 0; s < n; s++) {
        const Shard *shard = exec_shard(e, p, t, slot[s].slot);
        TRY(hash_shard(h, t, (int32_t)(shard - t->shard), stride));
    }
    return E_OK;
}

static Err sum_up(Exec *e, Tensor *const *args, Numbered *slot) {
    const Plan *p = e->plan;
    Replicas *r = e->replicas;
    ReplicaSum *sum = e->agreement->mine.sum;
    for (int32_t k = 0; k < r->n; k++) {
        int32_t n = number_slots(e, r->vary[k], slot);
        sum[k] = (ReplicaSum){.place = r->vary[k] + 1};
        for (int32_t s = 0; s < n; s++)
            sum[k].place = hash_u64(sum[k].place, (uint64_t)slot[s].number);
    }
    int64_t stride = stride_of(e);
    int32_t n = 0, vary = -1;
    for (int32_t i = 0; i < p->params.n; i++) {
        int32_t value = PLAN_LIST(p, PlanParam, p->params)[i].value;
        int32_t own = plan_buffer(p, plan_value(p, value)->buffer)->vary;
        if (r->sum_of[i] < 0) continue;
        if (own != vary) n = number_slots(e, (uint32_t)own, slot);
        vary = own;
        TRY(hash_param(e, i, args[i], slot, n, stride, &r->hash[i]));
        sum[r->sum_of[i]].data = hash_u64(sum[r->sum_of[i]].data, r->hash[i]);
    }
    return E_OK;
}

Err replicas_sum(Exec *e, Tensor *const *args) {
    Replicas *r = e->replicas;
    Ctx *cx = e->rt->cx;
    ReplicaSum *sum = e->agreement->mine.sum;
    memset(sum, 0, sizeof e->agreement->mine.sum);
    if (r->summed || !e->rt->check_replicas) return E_OK;
    size_t room = sizeof(Numbered) * (size_t)e->mesh->ndevices;
    Numbered *slot = alloc_new(&cx->alloc, room);
    if (!slot) return err_nomem(cx, "comparing arguments between processes");
    Err err = sum_up(e, args, slot);
    alloc_free(&cx->alloc, slot, room);
    return err;
}

/* ---- what differs ---- */

/* Two that hold the same parts of something and not the same bytes. */
typedef struct Conflict {
    int32_t sum, rank[2];
} Conflict;

/* The record of the i-th process that takes part, by rank: the peers' stand in this order. */
static const AgreeRecord *record_at(const Runtime *rt, const Agreement *a, int32_t i,
                                    int32_t *rank) {
    int32_t before = 0;
    while (before < a->n && a->send[before].peer < rt->ranks.rank) before++;
    int32_t peer = i < before ? i : i - 1;
    *rank = i == before ? rt->ranks.rank : a->send[peer].peer;
    return i == before ? &a->mine : &a->theirs[peer];
}

/* The same in all that take part: each has all records. */
static bool find_conflict(const Runtime *rt, const Agreement *a, Conflict *c) {
    for (c->sum = 0; c->sum < REPLICA_SUMS; c->sum++)
        for (int32_t i = 1; i <= a->n; i++) {
            const ReplicaSum *b = &record_at(rt, a, i, &c->rank[1])->sum[c->sum];
            for (int32_t k = 0; b->place && k < i; k++) {
                const ReplicaSum *other = &record_at(rt, a, k, &c->rank[0])->sum[c->sum];
                if (other->place != b->place) continue;
                if (other->data != b->data) return true;
                break;
            }
        }
    return false;
}

/* Says what the two have of each argument: fills hash[0] and hash[1], by param. */
static Err tell(const Exec *e, const Conflict *c, CommPart *part, uint64_t *const hash[2]) {
    Runtime *rt = e->rt;
    const Agreement *a = e->agreement;
    static const ExchangeInfo what = {.op = "comparing arguments", .where = "", .axes = ""};
    size_t bytes = sizeof(uint64_t) * (size_t)a->plan->params.n;
    int32_t nsend = 0, nrecv = 0;
    CommPart *recv = part + 2 * a->n;
    Transfer t;
    for (int s = 0; s < 2; s++) {
        if (c->rank[s] == rt->ranks.rank) {
            memcpy(hash[s], e->replicas->hash, bytes);
            for (int32_t i = 0; i < a->n; i++)
                part[nsend++] = (CommPart){a->send[i].peer, (char *)hash[s], bytes, 0};
        } else {
            recv[nrecv++] = (CommPart){c->rank[s], (char *)hash[s], bytes, 0};
        }
    }
    TRY(transport_begin(rt->cx, &rt->transport, &what, part, nsend, recv, nrecv, &t));
    return transport_end(rt->cx, &rt->transport, &t);
}

static void print_param(const Plan *p, const Replicas *r, int32_t i, Str *s) {
    const PlanParam *param = &PLAN_LIST(p, PlanParam, p->params)[i];
    const PlanStep *use = plan_step(p, r->use[i]);
    if (param->name)
        str_fmt(s, "`%s`", plan_str(p, param->name));
    else
        str_fmt(s, "input %d", (int)i + 1);
    str_put(s, " (");
    plan_print_type(p, plan_value(p, param->value), s);
    if (use->locs.n) str_fmt(s, ", used at %s", plan_str(p, PLAN_LIST(p, int32_t, use->locs)[0]));
    str_put(s, ")");
}

/* On GPUs of several hosts each may have chosen its own algorithm: what all compute may differ by
 * rounding. */
static bool may_round(const Runtime *rt) {
    return gpu_is_there(&rt->gpu) && rt->host && !env_has(ENV_ALGORITHMS, "first");
}

static Err report(const Exec *e, const Conflict *c, uint64_t *const hash[2]) {
    const Runtime *rt = e->rt;
    const Replicas *r = e->replicas;
    int32_t i = 0, n = e->plan->params.n;
    Str s;
    while (i < n && (r->sum_of[i] != c->sum || hash[0][i] == hash[1][i])) i++;
    if (i == n) return E_OK;
    str_init(&s, &rt->cx->alloc);
    print_param(e->plan, r, i, &s);
    static const char text[] =
        "rank %d and rank %d have different values of %s, which both hold and which must be the "
        "same; make it from the same numbers in every process (a fixed seed, not the time or "
        "ml.process_index()), or shard it, each with its part "
        "(ml.make_array_from_process_local_data)";
    Err err = E_OK;
    if (may_round(rt))
        log_line(rt->cx, LOG_WARN, text, (int)c->rank[0], (int)c->rank[1], str_of(&s));
    else
        err = err_set(rt->cx, E_DIVERGED, text, (int)c->rank[0], (int)c->rank[1], str_of(&s));
    str_free(&s);
    return err;
}

Err replicas_compare(Exec *e) {
    const Agreement *a = e->agreement;
    Conflict c;
    Ctx *cx = e->rt->cx;
    bool said = a->mine.sum[0].place;
    for (int32_t i = 0; i < a->n && !said; i++) said = a->theirs[i].sum[0].place;
    if (!said || !e->replicas || !find_conflict(e->rt, a, &c)) return E_OK;
    size_t n = (size_t)a->plan->params.n, parts = 2 * (size_t)a->n + 2;
    size_t room = sizeof(uint64_t) * n * 2, room_of_parts = sizeof(CommPart) * parts;
    uint64_t *hash = alloc_new(&cx->alloc, room);
    CommPart *part = alloc_new(&cx->alloc, room_of_parts);
    Err err = hash && part ? tell(e, &c, part, (uint64_t *[2]){hash, hash + n})
                           : err_nomem(cx, "comparing arguments between processes");
    if (!err) err = report(e, &c, (uint64_t *[2]){hash, hash + n});
    alloc_free(&cx->alloc, part, room_of_parts);
    alloc_free(&cx->alloc, hash, room);
    return err;
}
