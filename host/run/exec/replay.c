/* replay.c - graphs pay where launches cost the host more than a copy costs the GPU. So a param
 * gets a place of its own, once it has moved, instead of a capture at every call; a plan that still
 * moves that often, or whose copies would be large, is better off launch by launch for good. */
#include "run/exec/exec.h"

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

/* ---- what can be captured ---- */

/* The segments of one: its own, and those of its bodies. */
static int32_t whole(const Exec *e, int32_t segment) {
    const Segment *s = &e->segment.at[segment];
    int32_t n = 1;
    for (int32_t k = 0; k < s->nbody; k++) n += s->body[k];
    return n;
}

static bool can_capture(const Exec *e, int32_t segment) {
    for (int32_t i = segment; i < segment + whole(e, segment); i++) {
        const Segment *s = &e->segment.at[i];
        const PlanStep *step = plan_step(e->plan, s->first);
        bool decides = s->nbody && (step->kind == STEP_BRANCH || step->control.trips < 0);
        if (s->exchange || decides) return false;
    }
    return true;
}

static double launches(const Exec *e, const ReplayPart *part) {
    double n = 0;
    for (int32_t i = part->first; i < part->first + part->n; i++) {
        const Segment *s = &e->segment.at[i];
        for (int32_t k = s->first; !s->nbody && k < s->first + s->n; k++)
            for (int32_t j = 0; j < e->step[k].n; j++)
                if (!e->item.at[e->step[k].first + j].combined) n += plan_step(e->plan, k)->times;
    }
    return n;
}

static size_t result_bytes(const Exec *e) {
    size_t sum = 0;
    for (int32_t i = 0; i < e->nbuffer; i++)
        sum += e->buffer[i].each * (size_t)e->buffer[i].slot[e->domains];
    return sum;
}

/* Cuts the plan into parts; do graphs pay? */
static Err cut(Exec *e, bool *pays) {
    Replay *r = &e->replay;
    r->part = ARENA_ARRAY(&e->arena, ReplayPart, e->segment.n + 1);
    if (!r->part) return exec_no_memory(e);
    for (int32_t i = 0, n; i < e->segment.n; i += n) {
        bool graph = can_capture(e, i);
        n = whole(e, i);
        while (i + n < e->segment.n && can_capture(e, i + n) == graph) n += whole(e, i + n);
        ReplayPart *s = &r->part[r->nparts++];
        *s = (ReplayPart){.first = i, .n = n};
        double count = graph ? launches(e, s) : 0;
        if (count < FEWEST || count > MOST) continue;
        s->graph = ARENA_ARRAY(&e->arena, void *, e->domains);
        if (!s->graph) return exec_no_memory(e);
        *pays = true;
    }
    return E_OK;
}

Err replay_bind(Exec *e) {
    Replay *r = &e->replay;
    bool pays = false;
    if (!gpu_is_there(&e->rt->gpu) || result_bytes(e) > MOST_BYTES) return E_OK;
    TRY(cut(e, &pays));
    if (!pays) return E_OK;
    r->param = ARENA_ARRAY(&e->arena, Buffer *, e->plan->params.n * e->domains + 1);
    r->result = ARENA_ARRAY(&e->arena, Buffer *, e->nbuffer * e->domains + 1);
    return r->param && r->result ? E_OK : exec_no_memory(e);
}

static void forget(Exec *e) {
    for (int32_t i = 0; i < e->replay.nparts; i++) {
        ReplayPart *s = &e->replay.part[i];
        for (int32_t k = 0; s->graph && k < e->domains; k++) {
            if (s->graph[k]) device(e)->forget(device(e)->self, s->graph[k]);
            s->graph[k] = NULL;
        }
        s->captured = false;
    }
}

static void stop(Exec *e) {
    Replay *r = &e->replay;
    forget(e);
    for (int32_t i = 0; i < e->plan->params.n * e->domains; i++) buffer_release(r->param[i]);
    for (int32_t i = 0; i < e->nbuffer * e->domains; i++) buffer_release(r->result[i]);
    *r = (Replay){.on = false};
}

void replay_release(Exec *e) {
    if (e->replay.param) stop(e);
}

/* ---- a call ---- */

/* Has it to be copied to the domain, or does it lie elsewhere there than last time? */
static bool has_moved(const Exec *e, const BoundParam *p, int32_t k, const Tensor *t) {
    for (int32_t s = p->slot[k]; s < p->slot[k + 1]; s++) {
        const Shard *at = exec_shard(e, p, t, s);
        if (at->buffer->memory != e->rt->cx->memory[k]) return true;
        if (e->base[p->base + s] != at->buffer->data + at->offset) return true;
    }
    return false;
}

/* A place of its own for each param that comes from elsewhere each time. */
static bool place_params(Exec *e, int32_t k, Tensor *const *args) {
    Replay *r = &e->replay;
    for (int32_t i = 0; i < e->plan->params.n; i++) {
        const BoundParam *p = &e->param[i];
        Buffer **own = &r->param[i * e->domains + k];
        if (p->written != NEVER_WRITTEN || *own || !tensor_has_data(args[i])) continue;
        if (!has_moved(e, p, k, args[i])) continue;
        size_t bytes = p->each * (size_t)(p->slot[k + 1] - p->slot[k]);
        r->staged += bytes;
        if (r->staged > MOST_BYTES) return false;
        *own = buffer_new(e->rt->cx, k, bytes);
        if (!*own) return false;
    }
    return true;
}

/* And for each result that is new memory each time. */
static bool place_results(Exec *e, int32_t k) {
    for (int32_t i = 0; i < e->nbuffer; i++) {
        const BoundBuffer *b = &e->buffer[i];
        Buffer **own = &e->replay.result[i * e->domains + k];
        int32_t n = b->slot[k + 1] - b->slot[k];
        if (*own || n == 0) continue;
        *own = buffer_new(e->rt->cx, k, b->each * (size_t)n);
        if (!*own) return false;
    }
    return true;
}

static bool make_places(Exec *e, Tensor *const *args) {
    for (int32_t k = e->first_domain; k < e->end_domain; k++)
        if (!place_params(e, k, args) || !place_results(e, k)) return false;
    return true;
}

/* The first call compiles, and chooses between algorithms. A profile times each launch. */
void replay_decide(Exec *e, Tensor *const *args) {
    Replay *r = &e->replay;
    if (!r->param) return;
    r->on = r->calls > 0 && !e->rt->profile;
    if (r->on && (r->captures == MOST_CAPTURES || !make_places(e, args))) stop(e);
}

char *replay_place_param(const Exec *e, int32_t i, int32_t k) {
    const Buffer *place = e->replay.on ? e->replay.param[i * e->domains + k] : NULL;
    return place ? place->data : NULL;
}

char *replay_place_result(const Exec *e, int32_t i, int32_t k) {
    return e->replay.on ? e->replay.result[i * e->domains + k]->data : NULL;
}

void replay_begin(Exec *e) {
    if (!e->moved) return;
    forget(e);
    e->replay.captures++;
    e->moved = false;
}

Err replay_capture(Exec *e) {
    for (int32_t k = e->first_domain; k < e->end_domain; k++)
        if (exec_uses(e, k) && !device(e)->capture(device(e)->self, k))
            return gpu_error(&e->rt->gpu, "capturing");
    return E_OK;
}

Err replay_captured(Exec *e, ReplayPart *s, bool whole_part) {
    bool ok = true;
    for (int32_t k = e->first_domain; k < e->end_domain; k++) {
        if (!exec_uses(e, k)) continue;
        s->graph[k] = device(e)->captured(device(e)->self, k);
        ok = ok && s->graph[k];
    }
    s->captured = ok && whole_part;
    if (!s->captured) e->moved = true; /* the next call forgets what there is of them */
    return ok || !whole_part ? E_OK : gpu_error(&e->rt->gpu, "capturing");
}

Err replay_run(Exec *e, const ReplayPart *s) {
    for (int32_t k = e->first_domain; k < e->end_domain; k++)
        if (s->graph[k] && !device(e)->replay(device(e)->self, k, s->graph[k]))
            return gpu_error(&e->rt->gpu, "running a graph");
    return E_OK;
}

Err replay_finish(Exec *e) {
    for (int32_t k = e->first_domain; k < e->end_domain; k++) {
        Memory *m = e->rt->cx->memory[k];
        for (int32_t i = 0; i < e->nbuffer; i++) {
            const Buffer *own = e->own[i * e->domains + k];
            if (!own) continue;
            TRY(m->move(m, own->data, m, e->replay.result[i * e->domains + k]->data, own->bytes));
        }
    }
    return E_OK;
}
