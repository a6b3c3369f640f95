#include "run/exec/call.h"
#include "run/exec/memory_check.h"

#include <string.h>

/* ---- room ---- */

Err call_grow(ExecCall *c) {
    Exec *e = c->e;
    Runtime *rt = e->rt;
    bool gpu = gpu_is_there(&rt->gpu);
    size_t scratch = gpu ? 0 : e->scratch;
    if (gpu) {
        TRY(gpu_fault(&rt->gpu));
        for (int32_t k = e->first_domain; k < e->end_domain; k++) {
            if (!exec_uses(e, k)) continue;
            TRY(memory_check(e, k));
            TRY(gpu_grow_scratch(&rt->gpu, k, e->scratch));
        }
    }
    if (!runtime_ready(rt, scratch, e->most_stages, e->most_queues))
        TRY(runtime_grow(rt, scratch, e->most_stages, e->most_queues));
    for (int32_t k = e->first_domain; k < e->end_domain; k++) {
        if (!exec_uses(e, k)) continue;
        TRY(runtime_grow_workspace(rt, k, e->workspace));
        TRY(runtime_grow_wire(rt, k, e->wire_bytes));
    }
    return E_OK;
}

/* ---- params ---- */

/* Is every byte of the tensor held by nobody but this tensor, and by one slot only? */
static bool is_sole_owner(const Tensor *t) {
    const Shard *shard = t->shard;
    bool apart = true; /* one buffer, the slots' places rising */
    for (int32_t i = 1; i < t->nslot; i++)
        if (shard[i].buffer != shard[0].buffer || shard[i].offset <= shard[i - 1].offset)
            apart = false;
    if (apart) return shard[0].buffer->refs == t->nslot;
    for (int32_t i = 0; i < t->nslot; i++) {
        int32_t mine = 0;
        for (int32_t k = 0; k < t->nslot; k++) {
            if (shard[k].buffer != shard[i].buffer) continue;
            mine++;
            if (k != i && shard[k].offset == shard[i].offset) return false;
        }
        if (shard[i].buffer->refs != mine) return false;
    }
    return true;
}

/* Does all of an argument lie where it lay in the latest call, and is it used there? */
static bool lies_still(const Exec *e, int32_t i, const Tensor *t) {
    const BoundParam *p = &e->param[i];
    Buffer *const *place = e->replay.param;
    if (t->nslot != p->slot[e->domains]) return false;
    for (int32_t s = 0; s < t->nslot; s++) {
        int32_t base = p->base + s, k = e->base_domain[base];
        if (tensor_data(t, s) != e->base[base]) return false;
        if (tensor_data(t, s) != e->base[p->fresh + s]) return false;
        if (t->shard[s].buffer->memory != e->rt->cx->memory[k]) return false;
        if (place && place[i * e->domains + k]) return false;
    }
    return true;
}

/* Is what the domain wants of it in its memory? */
static bool is_there(const Exec *e, const BoundParam *p, const Tensor *t, int32_t k) {
    for (int32_t s = p->slot[k]; s < p->slot[k + 1]; s++)
        if (exec_shard(e, p, t, s)->buffer->memory != e->rt->cx->memory[k]) return false;
    return true;
}

/* A domain's private copy of an argument, not filled yet. NULL when out of memory. */
static char *new_copy(Exec *e, int32_t i, int32_t k) {
    BoundParam *p = &e->param[i];
    Buffer *copy = buffer_new(e->rt->cx, k, p->each * (size_t)(p->slot[k + 1] - p->slot[k]));
    e->copy[i * e->domains + k] = copy;
    p->stays = false;
    return copy ? copy->data : NULL;
}

/* Copies what a slot of the param has of an argument. */
static Err copy_slot(const Exec *e, const Tensor *t, const Shard *from, int32_t k, char *to) {
    Memory *m = e->rt->cx->memory[k];
    if (!m) return tensor_read_shard(t, (int32_t)(from - t->shard), to);
    return m->move(m, to, from->buffer->memory, from->buffer->data + from->offset,
                   tensor_shard_bytes(t));
}

/* A shard where it lies, as a kernel sees it. */
static KTensor view_of(const Tensor *t, int32_t slot) {
    return (KTensor){tensor_data(t, slot), t->local.at, t->strides, t->local.rank, t->type->dtype};
}

static Err copy_dense(Runtime *rt, const Tensor *t, int32_t slot, Tensor *dense) {
    KTensor from = view_of(t, slot), to = view_of(dense, slot);
    KArgs args = {.in = &from, .out = &to, .nin = 1, .nout = 1};
    Memory *m = t->shard[slot].buffer->memory;
    if (!m) return tensor_read_shard(t, slot, to.data);
    if (m == dense->shard[slot].buffer->memory) return gpu_run(&rt->gpu, m->domain, "copy", &args);
    size_t bytes = tensor_shard_bytes(t);
    char *image = alloc_aligned(&rt->cx->alloc, bytes + 1);
    if (!image) return err_nomem(rt->cx, "a copy of a strided tensor");
    Err err = tensor_read_shard(t, slot, image);
    if (!err) err = tensor_write_shard(dense, slot, image);
    alloc_free(&rt->cx->alloc, image, bytes + 1);
    return err;
}

/* Replaces strided shards by row-major copies. */
static Err make_dense(const Exec *e, Tensor *t) {
    Runtime *rt = e->rt;
    Tensor *dense = tensor_alloc(rt->cx, t->type);
    if (!dense) return err_nomem(rt->cx, "a copy of a strided tensor");
    Err err = E_OK;
    for (int32_t i = 0; i < t->nslot && !err; i++) err = copy_dense(rt, t, i, dense);
    if (!err) tensor_move(t, dense);
    tensor_release(dense);
    return err;
}

/* In a domain: where it lies; or in the place that graphs have for it; or, of one that will be
 * written but that others hold, too, or that is elsewhere, in a copy, or read where it lies and
 * written to memory of its own. */
static Err place_param_in(ExecCall *c, int32_t i, int32_t k, bool held) {
    Exec *e = c->e;
    const BoundParam *p = &e->param[i];
    const Tensor *t = c->args[i];
    if (p->slot[k] == p->slot[k + 1]) return E_OK;
    char *place = replay_place_param(e, i, k), *fresh = NULL;
    bool there = is_there(e, p, t, k);
    if (!place && (held || !there)) {
        fresh = new_copy(e, i, k);
        if (!fresh) return err_nomem(e->rt->cx, "a copy of an argument");
        if (p->fresh == p->base || !there) place = fresh;
        c->late = c->late || !place;
    }
    for (int32_t s = p->slot[k]; s < p->slot[k + 1]; s++) {
        const Shard *from = exec_shard(e, p, t, s);
        size_t ahead = p->each * (size_t)(s - p->slot[k]);
        char *at = place ? place + ahead : from->buffer->data + from->offset;
        if (place) TRY(copy_slot(e, t, from, k, at));
        exec_set_base(e, p->base + s, at);
        exec_set_base(e, p->fresh + s, fresh ? fresh + ahead : at);
    }
    return E_OK;
}

static Err place_param(ExecCall *c, int32_t i) {
    Exec *e = c->e;
    BoundParam *p = &e->param[i];
    Tensor *t = c->args[i];
    if (!tensor_has_data(t))
        return err_set(e->rt->cx, E_VALUE,
                       "a ShapeDtypeStruct has no values to compute with; it is for step:lower and "
                       "step:plan");
    if (t->strided) TRY(make_dense(e, t));
    bool written = p->written != NEVER_WRITTEN;
    bool held = written && (c->fate[i] == ARG_KEPT || !is_sole_owner(t));
    if (held && p->fresh == p->base) e->copied++;
    c->whole = c->whole || (written && !held);
    p->stays = c->fate[i] == ARG_REPLACED;
    if (!held && lies_still(e, i, t)) return E_OK;
    for (int32_t k = e->first_domain; k < e->end_domain; k++) TRY(place_param_in(c, i, k, held));
    return E_OK;
}

/* ---- results ---- */

static Err place_result(Exec *e, int32_t i, int32_t k) {
    const BoundBuffer *b = &e->buffer[i];
    size_t bytes = b->each * (size_t)(b->slot[k + 1] - b->slot[k]);
    if (b->slot[k] == b->slot[k + 1]) return E_OK;
    Buffer *own = e->own[i * e->domains + k] = buffer_new(e->rt->cx, k, bytes);
    if (!own && gpu_is_there(&e->rt->gpu)) return memory_check_error(e, k);
    if (!own) {
        char text[BYTES_TEXT];
        return err_set(e->rt->cx, E_NOMEM, "out of memory: a result needs %s",
                       str_bytes((double)bytes, text));
    }
    char *at = replay_place_result(e, i, k);
    if (!at) at = own->data;
    for (int32_t s = b->slot[k]; s < b->slot[k + 1]; s++)
        exec_set_base(e, b->base + s, at + b->each * (size_t)(s - b->slot[k]));
    return E_OK;
}

/* ---- what the process has for all plans ---- */

/* Temporaries lie where they lay last time unless a workspace has moved. */
static void place_temporaries(Exec *e) {
    const Plan *p = e->plan;
    if (e->moves == e->rt->moves) return;
    for (int32_t i = 0; i < p->buffers.n; i++) {
        const PlanBuffer *b = plan_buffer(p, i);
        const int32_t *slot = exec_class_slots(e, b->vary);
        int64_t each = exec_class_stride(p, b->vary);
        for (int32_t k = e->first_domain; b->kind == BUFFER_TEMP && k < e->end_domain; k++) {
            char *at = e->rt->workspace[k].at + e->class_start[(int32_t)b->vary * e->domains + k];
            for (int32_t s = slot[k]; s < slot[k + 1]; s++)
                exec_set_base(e, e->first_base[i] + s, at + each * (s - slot[k]) + b->offset);
        }
    }
    e->moves = e->rt->moves;
}

/* A graph has the address of the kernels' scratch in it, too, which other plans may move. */
static void place_scratch(Exec *e) {
    int64_t moves = e->rt->gpu.moves;
    if (e->scratch && e->scratch_moves != moves) e->moved = true;
    e->scratch_moves = moves;
}

Err call_place(ExecCall *c) {
    Exec *e = c->e;
    ctx_let_go(e->rt->cx);
    for (int32_t i = 0; i < e->plan->params.n; i++) TRY(place_param(c, i));
    for (int32_t i = 0; i < e->nbuffer; i++)
        for (int32_t k = e->first_domain; k < e->end_domain; k++) TRY(place_result(e, i, k));
    place_temporaries(e);
    place_scratch(e);
    /* Other plans may have made the wire longer, and moved it. */
    for (int32_t k = e->first_domain; e->wire_bytes && k < e->end_domain; k++)
        exec_set_base(e, e->wire_base + k, e->rt->wire[k].at);
    return E_OK;
}

/* ---- the result tensors ---- */

static Shard shard_of(const ExecCall *c, const BoundShard *s) {
    const Exec *e = c->e;
    if (s->param < 0) {
        const BoundBuffer *b = &e->buffer[s->own];
        return (Shard){e->own[s->own * e->domains + s->domain],
                       (int64_t)b->each * (s->slot - b->slot[s->domain]) + s->place};
    }
    const BoundParam *p = &e->param[s->param];
    Buffer *copy = e->copy[s->param * e->domains + s->domain];
    if (copy) return (Shard){copy, (int64_t)p->each * (s->slot - p->slot[s->domain]) + s->place};
    const Shard *from = exec_shard(e, p, c->args[s->param], s->slot);
    return (Shard){from->buffer, from->offset + s->place};
}

/* An argument is one result at most: deleting one of two would delete the other. */
static bool take_argument(Exec *e, int32_t param) {
    if (param < 0 || !e->param[param].stays) return false;
    e->param[param].stays = false;
    return true;
}

/* NULL when out of memory. */
static Tensor *result_of(const ExecCall *c, const BoundResult *r) {
    if (take_argument(c->e, r->instead) && c->args[r->instead]->type == r->pattern.type)
        return tensor_retain(c->args[r->instead]);
    Tensor *t = tensor_like(&r->pattern);
    for (int32_t s = 0; t && s < t->nslot; s++) {
        t->shard[s] = shard_of(c, &r->shard[s]);
        buffer_retain(t->shard[s].buffer);
    }
    return t;
}

Err call_results(ExecCall *c, Tensor **results) {
    const Exec *e = c->e;
    for (int32_t i = 0; i < e->plan->results.n; i++) {
        results[i] = result_of(c, &e->result[i]);
        if (results[i]) continue;
        while (i-- > 0) tensor_release(results[i]);
        return err_nomem(e->rt->cx, "a result");
    }
    return E_OK;
}

/* Has nobody else the memory of a param any more that has got other memory to be written to? */
static bool is_free_now(const ExecCall *c, int32_t i) {
    const Exec *e = c->e;
    const BoundParam *p = &e->param[i];
    bool apart = false;
    for (int32_t s = 0; s < p->slot[e->domains]; s++)
        apart = apart || e->base[p->fresh + s] != e->base[p->base + s];
    for (int32_t k = e->first_domain; apart && k < e->end_domain; k++)
        apart = is_there(e, p, c->args[i], k);
    return apart && c->fate[i] != ARG_KEPT && is_sole_owner(c->args[i]);
}

void call_take_back(ExecCall *c) {
    Exec *e = c->e;
    c->late = false;
    ctx_let_go(e->rt->cx);
    for (int32_t i = 0; i < e->plan->params.n; i++) {
        BoundParam *p = &e->param[i];
        p->back = is_free_now(c, i);
        c->whole = c->whole || p->back;
        for (int32_t s = 0; p->back && s < p->slot[e->domains]; s++)
            exec_set_base(e, p->fresh + s, e->base[p->base + s]);
        for (int32_t k = 0; p->back && k < e->domains; k++) {
            buffer_release(e->copy[i * e->domains + k]);
            e->copy[i * e->domains + k] = NULL;
        }
    }
    for (int32_t r = 0; r < e->plan->results.n; r++) {
        Tensor *t = c->results[r];
        for (int32_t s = 0; s < t->nslot; s++) {
            const BoundShard *from = &e->result[r].shard[s];
            if (from->param < 0 || !e->param[from->param].back) continue;
            buffer_release(t->shard[s].buffer);
            t->shard[s] = shard_of(c, from);
            buffer_retain(t->shard[s].buffer);
        }
    }
}

/* Does the plan write where the argument lies, not in copies alone? */
static bool is_in_place(const Exec *e, int32_t i) {
    const BoundParam *p = &e->param[i];
    for (int32_t k = e->first_domain; k < e->end_domain; k++)
        if (p->slot[k] < p->slot[k + 1] && !e->copy[i * e->domains + k]) return true;
    return false;
}

void call_drop_written(const ExecCall *c) {
    static const char *const why = "a call that it was donated to failed half-way";
    const Exec *e = c->e;
    for (int32_t i = 0; i < e->plan->params.n; i++)
        if (e->param[i].written < c->reached && is_in_place(e, i)) tensor_delete(c->args[i], why);
}

static void release_all(Buffer **list, int32_t n) {
    for (int32_t i = 0; i < n; i++) {
        if (list[i]) buffer_release(list[i]);
        list[i] = NULL;
    }
}

void call_release(Exec *e) {
    release_all(e->own, e->nbuffer * e->domains);
    release_all(e->copy, e->plan->params.n * e->domains);
}
