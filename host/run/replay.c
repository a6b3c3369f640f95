#include "run/bind.h"

/* Fewer launches than this cost less than a graph of them. */
enum { FEWEST = 4, MOST = 1 << 16 };
/* A plan whose addresses change that often is run launch by launch. */
enum { MOST_CAPTURES = 8 };
/* Results, and params that move, that are larger in all are not copied: their plan takes longer
 * than its launches. */
enum { MOST_BYTES = 64 << 20 };

static Device *device(const Exec *e) {
    return &e->rt->gpu.device;
}

/* What it launches in all; < 0: that depends on data, or is for several GPUs. */
static double launches(const Exec *e) {
    double n = 0;
    if (e->end_domain - e->first_domain > 1) return -1;
    for (int32_t i = 0; i < e->plan->steps.n; i++) {
        const PlanStep *s = plan_step(e->plan, i);
        bool decides = s->kind == STEP_BRANCH || (s->kind == STEP_LOOP && s->control.trips < 0);
        if (decides || e->step[i].exchange) return -1;
        for (int32_t k = 0; k < e->step[i].n; k++)
            if (!e->item.at[e->step[i].first + k].joined) n += s->times;
    }
    return n;
}

static size_t result_bytes(const Exec *e) {
    size_t sum = 0;
    for (int32_t i = 0; i < e->nbuffer; i++)
        if (e->buffer[i].take < 0) sum += e->buffer[i].each * (size_t)e->buffer[i].slot[e->domains];
    return sum;
}

Err replay_bind(Exec *e) {
    Replay *r = &e->replay;
    double n = gpu_is_there(&e->rt->gpu) ? launches(e) : 0;
    if (n < FEWEST || n > MOST || result_bytes(e) > MOST_BYTES) return E_OK;
    r->param = ARENA_ARRAY(&e->arena, Buffer *, e->plan->params.n + 1);
    r->result = ARENA_ARRAY(&e->arena, Buffer *, e->nbuffer + 1);
    return r->param && r->result ? E_OK : exec_no_memory(e);
}

static void forget(Exec *e) {
    if (e->replay.graph) device(e)->forget(device(e)->self, e->replay.graph);
    e->replay.graph = NULL;
}

static void stop(Exec *e) {
    Replay *r = &e->replay;
    forget(e);
    for (int32_t i = 0; i < e->plan->params.n; i++) buffer_release(r->param[i]);
    for (int32_t i = 0; i < e->nbuffer; i++) buffer_release(r->result[i]);
    *r = (Replay){.on = false};
}

void replay_release(Exec *e) {
    if (e->replay.param) stop(e);
}

/* Is it elsewhere than last time, on this GPU? */
static bool has_moved(const Exec *e, const BoundParam *p, const Tensor *t) {
    bool moved = false;
    for (int32_t s = 0; s < t->nslot; s++) {
        if (t->shard[s].buffer->memory->domain != e->first_domain) return false;
        if (e->base[p->base + s] != tensor_data(t, s)) moved = true;
    }
    return moved;
}

/* A place of its own for each param that comes from elsewhere each time. */
static bool make_places(Exec *e, Tensor *const *args) {
    Replay *r = &e->replay;
    for (int32_t i = 0; i < e->plan->params.n; i++) {
        const BoundParam *p = &e->param[i];
        bool wanted = !r->param[i] && !p->written && tensor_has_data(args[i]);
        if (!wanted || !has_moved(e, p, args[i])) continue;
        size_t bytes = p->each * (size_t)p->slot[e->domains];
        r->staged += bytes;
        if (r->staged > MOST_BYTES) return false;
        r->param[i] = buffer_new(e->rt->cx, e->first_domain, bytes);
        if (!r->param[i]) return false;
    }
    return true;
}

/* The first call compiles, and chooses between algorithms. A profile times each launch. */
void replay_decide(Exec *e, Tensor *const *args) {
    Replay *r = &e->replay;
    if (!r->param) return;
    r->on = r->calls > 0 && !e->rt->profile;
    if (r->on && (r->captures == MOST_CAPTURES || !make_places(e, args))) stop(e);
}

Err replay_place_param(Exec *e, int32_t i, int32_t k, const Tensor *t) {
    Replay *r = &e->replay;
    const BoundParam *p = &e->param[i];
    Memory *m = e->rt->cx->memory[k];
    for (int32_t s = p->slot[k]; s < p->slot[k + 1]; s++) {
        char *at = tensor_data(t, s);
        if (r->on && r->param[i]) {
            char *own = r->param[i]->data + p->each * (size_t)s;
            TRY(m->move(m, own, m, at, tensor_shard_bytes(t)));
            at = own;
        }
        exec_set_base(e, p->base + s, at);
    }
    return E_OK;
}

Err replay_place_result(Exec *e, int32_t i, char **at) {
    Replay *r = &e->replay;
    const BoundBuffer *b = &e->buffer[i];
    *at = NULL;
    if (!r->on) return E_OK;
    size_t bytes = b->each * (size_t)b->slot[e->domains];
    if (!r->result[i]) r->result[i] = buffer_new(e->rt->cx, e->first_domain, bytes);
    if (!r->result[i]) return err_nomem(e->rt->cx, "a result's place in a graph");
    *at = r->result[i]->data;
    return E_OK;
}

Err replay_begin(Exec *e) {
    forget(e);
    e->replay.captures++;
    return device(e)->capture(device(e)->self, e->first_domain)
               ? E_OK
               : gpu_error(&e->rt->gpu, "capturing");
}

Err replay_end(Exec *e, bool whole) {
    e->replay.graph = device(e)->captured(device(e)->self, e->first_domain);
    if (!whole) {
        forget(e);
        return E_OK;
    }
    return e->replay.graph ? E_OK : gpu_error(&e->rt->gpu, "capturing");
}

Err replay_run(Exec *e) {
    bool ok = device(e)->replay(device(e)->self, e->first_domain, e->replay.graph);
    return ok ? E_OK : gpu_error(&e->rt->gpu, "running a graph");
}

Err replay_finish(Exec *e) {
    Replay *r = &e->replay;
    Memory *m = e->rt->cx->memory[e->first_domain];
    for (int32_t i = 0; i < e->nbuffer; i++) {
        const Buffer *own = e->own[i * e->domains + e->first_domain];
        if (own) TRY(m->move(m, own->data, m, r->result[i]->data, own->bytes));
    }
    return E_OK;
}
