/* bind.c - the bases of a plan's operands, the items of its kernels, its params and results.
 *
 * An operand is a base and an offset; a base is one slot of one buffer. A call moves few bases, and
 * what follows each is listed here (OperandUse), so that an argument that lies where it lay costs a
 * comparison, and one that has moved costs as many stores as kernels read it. */
#include "run/bind/bind.h"
#include "run/bind/combine.h"
#include "run/bind/exchange_bind.h"
#include "run/bind/fresh.h"
#include "run/bind/schedule.h"
#include "run/exec/memory_check.h"
#include "run/exec/replicas.h"

#include <string.h>

static bool is_flipped(const Exec *e, const char *kernel, const int32_t coord[MAX_AXES]) {
    const Ctx *cx = e->rt->cx;
    if (!cx->flipped || strcmp(cx->flipped, kernel) != 0 || !e->mesh) return false;
    return e->mesh->device[place_index(e->mesh, coord)] == cx->flipped_device;
}

static Err bind_kernel(Exec *e, const PlanStep *s) {
    const Plan *p = e->plan;
    int32_t slots = exec_class_slots(e, s->vary)[e->domains];
    for (int32_t slot = 0; slot < slots; slot++) {
        int32_t coord[MAX_AXES], domain = exec_slot_place(e, s->vary, slot, coord);
        Item *item = item_add(e, s, plan_str(p, s->name), s->in.n, s->out.n);
        if (!item || !item_args(p, s, coord, &e->arena, &item->args)) return exec_no_memory(e);
        GuardList guards;
        if (!item_guards(e, s, domain, s->vary, slot, &guards)) return exec_no_memory(e);
        item->guards = guards;
        item->flipped = is_flipped(e, plan_str(p, s->name), coord);
        for (int k = 0; k < s->in.n + s->out.n; k++) {
            int32_t value = k < s->in.n ? PLAN_LIST(p, int32_t, s->in)[k]
                                        : PLAN_LIST(p, int32_t, s->out)[k - s->in.n];
            ItemOperand v = item_operand(e, domain, value, coord);
            item_set(item, k, &v);
        }
        item_finish(e, item);
    }
    return E_OK;
}

/* A loop that none of the devices here runs is passed over, unless they meet others in it. */
static bool bind_loop_guards(Exec *e, int32_t step) {
    const Plan *p = e->plan;
    const PlanStep *s = plan_step(p, step);
    for (int32_t i = step + 1; i <= step + plan_steps_in(p, s); i++)
        if (plan_step(p, i)->kind == STEP_COLLECTIVE) return true;
    return item_guards(e, s, 0, 0, -1, &e->step[step].guards);
}

static Err bind_steps(Exec *e) {
    const Plan *p = e->plan;
    e->step = ARENA_ARRAY(&e->arena, BoundStep, p->steps.n + 1);
    if (!e->step) return exec_no_memory(e);
    for (int32_t i = 0; i < p->steps.n; i++) {
        const PlanStep *s = plan_step(p, i);
        BoundStep *b = &e->step[i];
        b->first = e->item.n;
        if (s->kind == STEP_LOOP || s->kind == STEP_BRANCH) {
            int32_t first[MAX_AXES], k = exec_slot_place(e, 0, 0, first);
            if (!bind_loop_guards(e, i)) return exec_no_memory(e);
            if (s->in.n) b->steer = item_ref(e, k, PLAN_LIST(p, int32_t, s->in)[0], first);
        } else if (s->kind == STEP_KERNEL) {
            TRY(bind_kernel(e, s));
        } else if (s->kind == STEP_COLLECTIVE) {
            TRY(exchange_bind(e, i));
        }
        b->n = e->item.n - b->first;
    }
    return E_OK;
}

/* The slots of every vary class in each domain, and their parts of its workspace. */
static Err bind_classes(Exec *e) {
    const Plan *p = e->plan;
    const Mesh *m = e->mesh;
    e->domains = m ? m->domains : 1;
    e->first_domain = m && !m->spread ? place_domain(m, 0) - m->domain : 0;
    e->end_domain = m && !m->spread ? e->first_domain + 1 : e->domains;
    e->class_slot = ARENA_ARRAY(&e->arena, int32_t, p->classes.n * (e->domains + 1));
    e->class_start = ARENA_ARRAY(&e->arena, int64_t, p->classes.n * e->domains);
    if (!e->class_slot || !e->class_start) return exec_no_memory(e);
    for (int32_t k = 0; k < e->domains; k++) {
        int64_t at = 0;
        for (int32_t c = 0; c < p->classes.n; c++) {
            int32_t *slot = &e->class_slot[c * (e->domains + 1) + k];
            slot[1] = place_own_first(m, (uint32_t)c, k + 1);
            e->class_start[c * e->domains + k] = at;
            at += exec_class_stride(p, (uint32_t)c) * (slot[1] - slot[0]);
        }
        if ((size_t)at > e->workspace) e->workspace = (size_t)at;
    }
    return E_OK;
}

/* A base for every slot of every buffer. */
static Err bind_buffers(Exec *e) {
    const Plan *p = e->plan;
    e->slice = ARENA_ARRAY(&e->arena, int64_t, p->nloop + 1);
    e->first_base = ARENA_ARRAY(&e->arena, int32_t, p->buffers.n + 1);
    if (!e->slice || !e->first_base) return exec_no_memory(e);
    for (int32_t i = 0; i < p->buffers.n; i++) {
        e->first_base[i] = e->nbase;
        e->nbase += exec_class_slots(e, plan_buffer(p, i)->vary)[e->domains];
    }
    e->first_base[p->buffers.n] = e->wire_base = e->nbase;
    e->fresh_base = e->nbase += e->domains;
    for (int32_t i = 0; i < p->buffers.n; i++)
        if (plan_buffer(p, i)->kind == BUFFER_PARAM)
            e->nbase += exec_class_slots(e, plan_buffer(p, i)->vary)[e->domains];
    e->base = ARENA_ARRAY(&e->arena, char *, e->nbase + 1);
    e->base_domain = ARENA_ARRAY(&e->arena, int32_t, e->nbase + 1);
    if (!e->base || !e->base_domain) return exec_no_memory(e);
    for (int32_t i = 0; i < p->buffers.n; i++) {
        const int32_t *slot = exec_class_slots(e, plan_buffer(p, i)->vary);
        for (int32_t k = 0; k < e->domains; k++)
            for (int32_t s = slot[k]; s < slot[k + 1]; s++)
                e->base_domain[e->first_base[i] + s] = k;
    }
    for (int32_t k = 0; k < e->domains; k++) e->base_domain[e->wire_base + k] = k;
    return E_OK;
}

/* For every base the operands that follow it; those of sliced items are worked out at each run. */
static Err bind_uses(Exec *e) {
    int64_t n = 0;
    e->use_start = ARENA_ARRAY(&e->arena, int32_t, e->nbase + 2);
    if (!e->use_start) return exec_no_memory(e);
    int32_t *end = e->use_start + 1; /* first where base i begins, then where it ends */
    for (int pass = 0; pass < 2; pass++) {
        for (int32_t i = 0; i < e->item.n; i++) {
            const Item *item = &e->item.at[i];
            for (int k = 0; !item->sliced && k < item->args.nin + item->args.nout; k++) {
                int32_t base = item->ref[k].base;
                if (pass == 0)
                    n++, end[base + 1]++;
                else
                    e->use[end[base]++] = (OperandUse){&item->tensor[k], item->ref[k].offset};
            }
        }
        if (pass == 1) break;
        if (n > INT32_MAX) return exec_no_memory(e);
        for (int32_t i = 0; i < e->nbase; i++) end[i + 1] += end[i];
        e->use = ARENA_ARRAY(&e->arena, OperandUse, n + 1);
        if (!e->use) return exec_no_memory(e);
    }
    return E_OK;
}

static Err bind_params(Exec *e) {
    const Plan *p = e->plan;
    int32_t *param = ARENA_ARRAY(&e->arena, int32_t, p->buffers.n + 1); /* of a buffer, + 1 */
    e->param = ARENA_ARRAY(&e->arena, BoundParam, p->params.n + 1);
    e->copy = ARENA_ARRAY(&e->arena, Buffer *, p->params.n * e->domains);
    if (!param || !e->param || !e->copy) return exec_no_memory(e);
    e->writes = NEVER_WRITTEN;
    for (int32_t i = 0; i < p->params.n; i++) {
        int32_t buffer = plan_value(p, PLAN_LIST(p, PlanParam, p->params)[i].value)->buffer;
        const PlanBuffer *b = plan_buffer(p, buffer);
        e->param[i] = (BoundParam){.base = e->first_base[buffer],
                                   .slot = exec_class_slots(e, b->vary),
                                   .each = buffer_slot_stride((size_t)b->bytes),
                                   .written = NEVER_WRITTEN};
        param[buffer] = i + 1;
    }
    for (int32_t k = 0; k < p->steps.n; k++) {
        const PlanStep *s = plan_step(p, k);
        for (int o = 0; o < s->out.n; o++) {
            int32_t buffer = plan_value(p, PLAN_LIST(p, int32_t, s->out)[o])->buffer;
            int32_t i = param[item_root(p, buffer)];
            if (i && k < e->param[i - 1].written) e->param[i - 1].written = k;
            if (i && k < e->writes) e->writes = k;
        }
    }
    return fresh_bind(e, param);
}

/* Fills e->buffer; *index has, by plan buffer, the place there. */
static Err bind_result_buffers(Exec *e, int32_t **index) {
    const Plan *p = e->plan;
    *index = ARENA_ARRAY(&e->arena, int32_t, p->buffers.n + 1);
    e->buffer = ARENA_ARRAY(&e->arena, BoundBuffer, p->buffers.n + 1);
    e->own = ARENA_ARRAY(&e->arena, Buffer *, p->buffers.n * e->domains + 1);
    if (!*index || !e->buffer || !e->own) return exec_no_memory(e);
    for (int32_t i = 0; i < p->buffers.n; i++) {
        const PlanBuffer *b = plan_buffer(p, i);
        if (b->kind != BUFFER_RESULT || b->take >= 0) continue;
        (*index)[i] = e->nbuffer;
        e->buffer[e->nbuffer++] = (BoundBuffer){.base = e->first_base[i],
                                                .slot = exec_class_slots(e, b->vary),
                                                .each = buffer_slot_stride((size_t)b->bytes)};
    }
    return E_OK;
}

/* The param that a result is instead of, with the same shards in the same slots; or -1. */
static int32_t instead_of(const Exec *e, const BoundResult *r) {
    int32_t param = r->pattern.nslot ? r->shard[0].param : -1;
    if (param < 0 || r->pattern.strided) return -1;
    if (r->pattern.nslot != e->param[param].slot[e->domains]) return -1;
    for (int32_t s = 0; s < r->pattern.nslot; s++)
        if (r->shard[s].param != param || r->shard[s].slot != s || r->shard[s].place) return -1;
    return param;
}

static Err bind_results(Exec *e) {
    const Plan *p = e->plan;
    int32_t *index;
    TRY(bind_result_buffers(e, &index));
    for (int32_t i = 0; i < p->results.n; i++) {
        int32_t value = PLAN_LIST(p, int32_t, p->results)[i];
        const PlanValue *v = plan_value(p, value);
        const PlanBuffer *b = plan_buffer(p, v->buffer);
        BoundResult *r = &e->result[i];
        tensor_set_strides(&r->pattern, plan_dims(p, v) + v->rank);
        r->shard = ARENA_ARRAY(&e->arena, BoundShard, r->pattern.nslot);
        if (!r->shard) return exec_no_memory(e);
        uint32_t used = layout_vary(r->pattern.type->layout);
        for (int32_t s = 0; s < r->pattern.nslot; s++) {
            int32_t coord[MAX_AXES], k = exec_slot_place(e, used, s, coord);
            r->shard[s] = (BoundShard){.own = index[v->buffer],
                                       .param = b->kind == BUFFER_PARAM ? b->index : b->take,
                                       .domain = k,
                                       .slot = exec_slot(e, k, b->vary, coord),
                                       .place = plan_place(p, v, coord)};
        }
        r->instead = instead_of(e, r);
    }
    return E_OK;
}

/* Whether the step is a product that gains from a BLAS. */
static bool wants_blas(const Exec *e, const PlanStep *s) {
    const Plan *p = e->plan;
    if (s->flops < BLAS_MIN_FLOPS || strncmp(plan_str(p, s->name), "matmul", 6) != 0) return false;
    DType t = (DType)plan_value(p, PLAN_LIST(p, int32_t, s->in)[0])->dtype;
    return k_cpu_uses_blas(e->rt->level, t);
}

/* What a run costs the device at that place. */
static void cost_of(const Exec *e, const int32_t coord[MAX_AXES], Counters *out) {
    const Plan *p = e->plan;
    for (int32_t i = 0; i < p->steps.n; i++) {
        const PlanStep *s = plan_step(p, i);
        double times = s->flops > 0 ? plan_times_on(p, s, coord) : 0;
        out->flops += s->flops * times;
        if (s->product) out->matmul_flops += s->flops * times;
        if (s->kind != STEP_COLLECTIVE) continue;
        out->sent[s->coll.kind] += plan_bytes_sent(p, s);
        out->collectives += (int64_t)s->times;
    }
}

static Err add_costs(Exec *e) {
    const Plan *p = e->plan;
    int32_t coord[MAX_AXES] = {0};
    e->ncost = p->guards.n && e->mesh ? e->mesh->ndevices : 1;
    e->cost = ARENA_ARRAY(&e->arena, Counters, e->ncost);
    if (!e->cost) return exec_no_memory(e);
    for (int32_t i = 0; i < e->ncost; i++) {
        if (e->ncost > 1) mesh_coords(e->mesh, i, coord);
        if (e->ncost == 1 || exec_device(e, i) >= 0) cost_of(e, coord, &e->cost[i]);
    }
    for (int32_t i = 0; i < p->steps.n; i++)
        if (wants_blas(e, plan_step(p, i))) blas_load(e->rt->cx, &e->rt->blas);
    return E_OK;
}

/* With whom a launch is agreed on, if something of it comes from elsewhere. */
static Err bind_agreement(Exec *e) {
    int32_t first = 0, n = 0, world = e->rt->ranks.world;
    if (world == 1) return E_OK;
    while (first < e->plan->steps.n && !e->step[first].exchange) first++;
    if (first == e->plan->steps.n) return E_OK;
    int32_t *peer = ARENA_ARRAY(&e->arena, int32_t, world);
    bool *there = ARENA_ARRAY(&e->arena, bool, world);
    e->agreement = ARENA_ARRAY(&e->arena, Agreement, 1);
    if (!peer || !there || !e->agreement) return exec_no_memory(e);
    for (int32_t i = 0; i < e->mesh->ndevices; i++) there[place_process(e->mesh, i)] = true;
    for (int32_t i = 0; i < world; i++)
        if (there[i] && i != e->rt->ranks.rank) peer[n++] = i;
    return agree_init(e->agreement, e->rt->cx, &e->arena, peer, n, e->plan,
                      &e->step[first].exchange->what);
}

/* Steps that are LAPACK's run where it is: on the processor. */
static Err bind_lapack(Exec *e) {
    const Plan *p = e->plan;
    for (int32_t i = 0; i < p->steps.n; i++) {
        const PlanStep *s = plan_step(p, i);
        const char *op = plan_str(p, s->op);
        if (s->kind != STEP_KERNEL || strncmp(plan_str(p, s->name), "lapack_", 7) != 0) continue;
        if (gpu_is_there(&e->rt->gpu))
            return err_set(e->rt->cx, E_UNSUPPORTED,
                           "%s: does not run on GPUs; compute it in a run on the processor "
                           "(--devices=N), and read what it gives with ml.load",
                           op);
        TRY(blas_need_lapack(e->rt->cx, &e->rt->blas, op));
    }
    return E_OK;
}

static Err bind_all(Exec *e, const Type *const *result_type) {
    const Plan *p = e->plan;
    Depends depends;
    e->result_type = arena_copy(&e->arena, result_type, sizeof *result_type * (size_t)p->results.n);
    e->result = ARENA_ARRAY(&e->arena, BoundResult, p->results.n + 1);
    if (!e->result_type || !e->result) return exec_no_memory(e);
    for (int32_t i = 0; i < p->results.n; i++)
        tensor_init(&e->result[i].pattern, e->rt->cx, result_type[i]);
    /* On devices that are fake, and on those of other processes. */
    e->only_types = e->rt->fake || !place_has_own(e->mesh);
    if (e->only_types) return E_OK;
    TRY(bind_lapack(e));
    TRY(bind_classes(e));
    TRY(bind_buffers(e));
    if (gpu_is_there(&e->rt->gpu)) TRY(memory_check_plan(e));
    TRY(bind_steps(e));
    TRY(bind_agreement(e));
    TRY(depend_init(e, &depends));
    TRY(bind_params(e));
    TRY(schedule_cut(e));
    if (gpu_is_there(&e->rt->gpu)) TRY(combine_launches(e, &depends));
    TRY(schedule_stages(e, &depends));
    TRY(bind_uses(e));
    if (e->agreement) TRY(replicas_bind(e));
    TRY(bind_results(e));
    return replay_bind(e);
}

Err bind_exec(Runtime *rt, Plan *plan, const Mesh *mesh, const Type *const *result_type,
              Exec **out) {
    Exec *e = alloc_new(&rt->cx->alloc, sizeof *e);
    if (!e) {
        plan_free(rt->cx, plan);
        return err_nomem(rt->cx, "binding a plan");
    }
    *e = (Exec){.refs = 1, .rt = rt, .plan = plan, .mesh = mesh};
    bound_add(&rt->plans, &e->bound, plan);
    arena_init(&e->arena, &rt->cx->alloc);
    Guard guard;
    exec_guard(e, &guard);
    Err err = bind_all(e, result_type);
    guard_leave(&guard);
    if (!err) err = add_costs(e);
    if (err) {
        exec_release(e);
        return err;
    }
    *out = e;
    return E_OK;
}
