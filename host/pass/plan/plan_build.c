#include "pass/plan/plan_build.h"

#include "op/op.h"
#include "pass/plan/holes.h"

#include <string.h>

void plan_build_no_memory(PlanBuild *p) {
    if (!p->err) p->err = err_nomem(p->g->cx, "a plan");
}

bool plan_build_init(PlanBuild *p, const Graph *g, const PassOptions *o, const uint8_t *donated) {
    memset(p, 0, sizeof *p);
    p->g = g;
    p->o = o;
    p->donated = donated;
    arena_init(&p->memory, &g->cx->alloc);
    p->arena = &p->memory;
    int32_t params = g->region.at[0].param.n, results = g->region.at[0].result.n;
    p->value = ARENA_ARRAY(p->arena, BuildValue, g->value.n);
    p->place = ARENA_ARRAY(p->arena, BuildValue *, g->value.n);
    p->source = ARENA_ARRAY(p->arena, const BuildValue *, g->value.n);
    p->times = 1;
    p->value_last = ARENA_ARRAY(p->arena, int32_t, g->value.n);
    p->param = ARENA_ARRAY(p->arena, Val, params + 1);
    p->result = ARENA_ARRAY(p->arena, BuildValue, results + 1);
    p->region_first = ARENA_ARRAY(p->arena, int32_t, g->region.n);
    p->region_next = ARENA_ARRAY(p->arena, int32_t, g->node.n);
    p->shift = ARENA_ARRAY(p->arena, int8_t, g->node.n);
    p->ring = ARENA_ARRAY(p->arena, int8_t, g->node.n);
    p->turn = ARENA_ARRAY(p->arena, const int32_t *, g->region.n);
    p->made = ARENA_ARRAY(p->arena, BuildRange, g->node.n);
    p->lands = ARENA_ARRAY(p->arena, bool, g->node.n);
    p->landed = ARENA_ARRAY(p->arena, int32_t, g->node.n);
    if (!p->value || !p->place || !p->source || !p->value_last || !p->param || !p->result ||
        !p->region_first || !p->region_next || !p->shift || !p->ring || !p->turn || !p->made ||
        !p->lands || !p->landed)
        return false;
    for (int32_t id = g->node.n - 1; id > 0; id--) {
        int32_t *first = &p->region_first[graph_node(g, id)->region];
        p->region_next[id] = *first;
        *first = id;
    }
    return true;
}

void plan_build_free(PlanBuild *p) {
    arena_free(&p->memory);
}

bool plan_build_room(PlanBuild *p) {
    if (p->err) return false;
    if (p->buffer.n <= p->last_use_cap) return true;
    int32_t cap = p->buffer.n * 2;
    int32_t *grown = ARENA_ARRAY(p->arena, int32_t, cap);
    p->readers = ARENA_ARRAY(p->arena, int32_t, cap);
    if (!grown || !p->readers) {
        plan_build_no_memory(p);
        return false;
    }
    if (p->last_use_cap) memcpy(grown, p->last_use, sizeof *grown * (size_t)p->last_use_cap);
    p->last_use = grown;
    p->last_use_cap = cap;
    return true;
}

/* ---- placing: each class is a heap of its own, walked in the order of the steps ---- */
Err plan_build_place(PlanBuild *p) {
    int64_t align = p->o->target->alignment;
    Holes *heap = ARENA_ARRAY(p->arena, Holes, 1 << MAX_AXES);
    /* Buffers by the step that begins and the one that ends them: lists through `next`. */
    int32_t *begins = ARENA_ARRAY(p->arena, int32_t, p->step.n + 1);
    int32_t *ends = ARENA_ARRAY(p->arena, int32_t, p->step.n + 1);
    int32_t *next = ARENA_ARRAY(p->arena, int32_t, p->buffer.n + 1);
    if (!heap || !begins || !ends || !next) return err_nomem(p->g->cx, "a plan");
    for (int32_t i = 0; i <= p->step.n; i++) begins[i] = ends[i] = -1;
    for (int32_t b = p->buffer.n - 1; b >= 0; b--) {
        if (p->buffer.at[b].kind != BUFFER_TEMP || p->buffer.at[b].first >= p->step.n) continue;
        next[b] = begins[p->buffer.at[b].first];
        begins[p->buffer.at[b].first] = b;
    }
    for (int32_t step = 0; step < p->step.n; step++) {
        for (int32_t b = begins[step], after; b >= 0; b = after) {
            BuildBuffer *buf = &p->buffer.at[b];
            after = next[b];
            int64_t size = (buf->bytes + align - 1) / align * align;
            buf->offset = holes_take(&heap[buf->vary], size);
            int32_t end = buf->last < step ? step : buf->last;
            next[b] = ends[end];
            ends[end] = b;
        }
        for (int32_t done = ends[step]; done >= 0; done = next[done]) {
            const BuildBuffer *buf = &p->buffer.at[done];
            int64_t size = (buf->bytes + align - 1) / align * align;
            if (!holes_give(p->arena, &heap[buf->vary], buf->offset, size))
                return err_nomem(p->g->cx, "a plan");
        }
    }
    for (int i = 0; i < 1 << MAX_AXES; i++) p->class_bytes[i] = heap[i].top;
    return E_OK;
}

/* ---- packing ---- */
typedef struct Pack {
    PlanBuild *p;
    char *at; /* the block; zeroed where nothing was written */
    size_t n, cap;
    Map strings;
} Pack;

static int32_t reserve(Pack *k, size_t size) {
    size_t start = (k->n + 7) / 8 * 8;
    if (start + size > k->cap) {
        size_t cap = k->cap ? k->cap * 2 : 1 << 14;
        while (cap < start + size) cap *= 2;
        char *grown = arena_alloc(k->p->arena, cap);
        if (!grown) {
            plan_build_no_memory(k->p);
            return 0;
        }
        if (k->n) memcpy(grown, k->at, k->n);
        k->at = grown;
        k->cap = cap;
    }
    k->n = start + size;
    return (int32_t)start;
}

static PlanSpan put(Pack *k, const void *items, int32_t n, size_t elem) {
    if (n == 0 || k->p->err) return (PlanSpan){0, 0};
    int32_t at = reserve(k, (size_t)n * elem);
    if (k->p->err) return (PlanSpan){0, 0};
    memcpy(k->at + at, items, (size_t)n * elem);
    return (PlanSpan){at, n};
}

static bool same_string(const void *ud, const void *probe, int32_t at) {
    return strcmp(((const Pack *)ud)->at + at, probe) == 0;
}

static int32_t put_string(Pack *k, const char *s) {
    if (!s || k->p->err) return 0;
    uint64_t h = hash_str(0, s);
    int32_t at = map_find(&k->strings, h, same_string, k, s);
    if (at >= 0) return at;
    at = put(k, s, (int32_t)strlen(s) + 1, 1).at;
    if (!map_add(k->p->arena, &k->strings, h, at)) plan_build_no_memory(k->p);
    return at;
}

/* Without what stands behind its end: equal lists have equal bytes. */
static AxisList exactly(const AxisList *list) {
    AxisList out = {.n = list->n};
    for (int i = 0; i < list->n; i++) out.at[i] = list->at[i];
    return out;
}

static PlanSpan put_offsets(Pack *k, const Offset *o, int32_t n) {
    PlanOffset few[2 * MAX_RANK], *all = few;
    if (n > 2 * MAX_RANK) all = ARENA_ARRAY(k->p->arena, PlanOffset, n);
    if (!all) {
        plan_build_no_memory(k->p);
        return (PlanSpan){0, 0};
    }
    memset(all, 0, sizeof *all * (size_t)n);
    for (int i = 0; i < n; i++) {
        all[i].unit = o[i].unit;
        all[i].axes = exactly(&o[i].axes);
    }
    return put(k, all, n, sizeof *all);
}

typedef VEC(PlanValue) Values;

static int32_t put_value(Pack *k, Values *values, const BuildValue *v) {
    int64_t list[2 * MAX_RANK];
    int rank = v->type->dims.rank;
    for (int d = 0; d < rank; d++) {
        list[d] = v->type->dims.at[d];
        list[rank + d] = v->strides[d];
    }
    PlanValue out;
    memset(&out, 0, sizeof out);
    out.buffer = v->buffer;
    out.dtype = (uint8_t)v->type->dtype;
    out.rank = (uint8_t)rank;
    out.vary = v->type->layout ? v->type->layout->vary : 0;
    out.offset = v->offset;
    out.dims = put(k, list, 2 * rank, sizeof *list);
    out.per_device = put_offsets(k, v->per_device, v->noffset);
    out.per_slice = put(k, v->per_slice, v->nslice, sizeof *v->per_slice);
    if (!VEC_PUSH(k->p->arena, values, out)) plan_build_no_memory(k->p);
    return values->n - 1;
}

static PlanSpan put_values(Pack *k, Values *values, const BuildValue *v, int32_t n) {
    int32_t *ids = ARENA_ARRAY(k->p->arena, int32_t, n + 1);
    if (!ids) {
        plan_build_no_memory(k->p);
        return (PlanSpan){0, 0};
    }
    for (int i = 0; i < n; i++) ids[i] = put_value(k, values, &v[i]);
    return put(k, ids, n, sizeof *ids);
}

static PlanSpan put_layout(Pack *k, const Layout *l) {
    AxisList lists[MAX_RANK];
    for (int d = 0; d < l->rank; d++) lists[d] = exactly(&l->dim[d].axes);
    return put(k, lists, l->rank, sizeof *lists);
}

static void put_collective(Pack *k, const Node *n, PlanCollective *c) {
    CollectiveInfo info = graph_collective(k->p->g, n);
    c->kind = (uint8_t)info.kind;
    c->reduce = (uint8_t)info.reduce;
    c->axes = (uint8_t)info.axes;
    c->dim = info.dim;
    c->dim2 = info.dim2;
    c->list = exactly(&info.list);
    if (info.from) c->from = put_layout(k, info.from);
    if (info.to) c->to = put_layout(k, info.to);
    if (info.pairs) c->pairs = put(k, info.pairs->at, info.pairs->n, sizeof(int32_t));
}

static PlanSpan put_locations(Pack *k, const Node *n) {
    int32_t at[64];
    int count = 0;
    Str s;
    str_init(&s, &k->p->g->cx->alloc);
    for (int i = 0; i < n->nloc && count < 64; i++) {
        str_clear(&s);
        intern_print_loc(n->loc[i], &s);
        at[count++] = put_string(k, str_of(&s));
    }
    if (s.failed) plan_build_no_memory(k->p);
    str_free(&s);
    return put(k, at, count, sizeof *at);
}

static int32_t put_location(Pack *k, const Loc *loc) {
    Str s;
    if (!loc) return 0;
    str_init(&s, &k->p->g->cx->alloc);
    intern_print_loc(loc, &s);
    int32_t at = put_string(k, str_of(&s));
    if (s.failed) plan_build_no_memory(k->p);
    str_free(&s);
    return at;
}

static PlanSpan put_reasons(Pack *k, const Node *n) {
    PlanReason *all = ARENA_ARRAY(k->p->arena, PlanReason, n->nwhy + 1);
    if (!all) plan_build_no_memory(k->p);
    for (int i = 0; all && i < n->nwhy; i++) {
        const Reason *r = n->why[i];
        PlanOrigin origins[MAX_ORIGINS];
        for (int o = 0; o < r->norigin; o++)
            origins[o] = (PlanOrigin){.kind = r->origin[o].kind,
                                      .axis = r->origin[o].axis,
                                      .index = r->origin[o].index,
                                      .name = put_string(k, r->origin[o].name),
                                      .loc = put_location(k, r->origin[o].loc)};
        all[i] =
            (PlanReason){put_string(k, r->text), put_string(k, r->tensor), put_location(k, r->loc),
                         put(k, origins, r->norigin, sizeof *origins)};
    }
    return put(k, all, n->nwhy, sizeof *all);
}

/* The names of the ops in a fused body. */
static PlanSpan put_body(Pack *k, const Node *n) {
    const Graph *g = k->p->g;
    int32_t names[64];
    int count = 0;
    if (!n->nbody) return (PlanSpan){0, 0};
    int32_t owner = g->region.at[n->body[0]].owner, first = owner;
    while (first > 1 && graph_node(g, first - 1)->region == n->body[0]) first--;
    for (int32_t id = first; id < owner && count < 64; id++) {
        const OpDef *def = graph_opdef(g, graph_node(g, id));
        if (!(def->flags & OPF_PARAM)) names[count++] = put_string(k, def->name);
    }
    return put(k, names, count, sizeof *names);
}

static PlanStep pack_step(Pack *k, Values *values, const BuildStep *s) {
    PlanStep out;
    const OpDef *def = graph_opdef(k->p->g, s->node);
    memset(&out, 0, sizeof out);
    out.kind = (uint8_t)s->kind;
    out.shift = (int8_t)s->shift;
    bool control = s->kind == STEP_LOOP || s->kind == STEP_BRANCH;
    for (int i = 0; i < s->nout; i++)
        if (s->out[i].type->layout) out.vary |= s->out[i].type->layout->vary;
    out.role = s->node->role;
    out.product = (def->flags & OPF_PRODUCT) != 0;
    out.combines = def->flags & OPF_COMBINES && s->kernel == def->kernel; /* no copy made for it */
    out.name = put_string(k, s->kernel ? s->kernel : def->name);
    out.op = put_string(k, def->name);
    out.in = put_values(k, values, s->in, s->nin);
    out.out = put_values(k, values, s->out, s->nout);
    if (control) {
        out.control.loop = s->loop;
        out.control.reverse = s->control.reverse;
        out.control.trips = s->control.trips;
        out.control.ahead = s->ahead;
        out.control.late = s->late;
        out.control.body = put(k, s->body, s->nbody, sizeof *s->body);
    }
    if (s->kind == STEP_COLLECTIVE)
        put_collective(k, s->node, &out.coll);
    else
        out.attr = put(k, s->attr, s->attr_size, 1);
    out.offsets = put_offsets(k, s->offset, s->noffset);
    out.guard = s->guard;
    out.times = out.rounds = s->times;
    out.parts = s->parts;
    out.flops = s->flops;
    out.padded = s->padded;
    out.anew = s->anew;
    out.bytes = s->bytes;
    out.locs = put_locations(k, s->node);
    out.why = put_reasons(k, s->node);
    if (!control) out.ops = put_body(k, s->node);
    return out;
}

static void pack_buffers(Pack *k, Plan *head) {
    PlanBuild *p = k->p;
    PlanBuffer *all = ARENA_ARRAY(p->arena, PlanBuffer, p->buffer.n + 1);
    if (!all) {
        plan_build_no_memory(p);
        return;
    }
    for (int32_t i = 0; i < p->buffer.n; i++) {
        const BuildBuffer *b = &p->buffer.at[i];
        all[i] = (PlanBuffer){(int32_t)b->kind, (int32_t)b->vary, b->param, b->take,
                              b->bytes,         b->offset,        b->first, b->last};
        if (b->kind != BUFFER_TEMP && b->take < 0) head->peak_bytes += (double)b->bytes;
    }
    head->buffers = put(k, all, p->buffer.n, sizeof *all);
}

static void pack_params(Pack *k, Values *values, Plan *head) {
    PlanBuild *p = k->p;
    PlanParam *all = ARENA_ARRAY(p->arena, PlanParam, p->nparam + 1);
    if (!all) {
        plan_build_no_memory(p);
        return;
    }
    for (int i = 0; i < p->nparam; i++) {
        const ParamAttr *a = graph_def(p->g, p->param[i])->attr;
        all[i] = (PlanParam){put_value(k, values, &p->value[p->param[i]]), put_string(k, a->name),
                             p->donated[i]};
    }
    head->params = put(k, all, p->nparam, sizeof *all);
}

static void pack_guards(Pack *k, Plan *head) {
    PlanBuild *p = k->p;
    PlanGuard *all = ARENA_ARRAY(p->arena, PlanGuard, p->guard.n + 1);
    if (!all) {
        plan_build_no_memory(p);
        return;
    }
    for (int32_t i = 0; i < p->guard.n; i++) {
        const BuildGuard *g = &p->guard.at[i];
        const GuardAttr *a = g->attr;
        all[i] = (PlanGuard){.parent = g->parent,
                             .region = g->region,
                             .regions = g->regions,
                             .loops = put(k, g->loop, g->nloop, sizeof *g->loop),
                             .axes = put(k, a->mesh.at, a->mesh.rank, sizeof *a->mesh.at),
                             .cut = put(k, a->cut->at, a->cut->n, sizeof *a->cut->at),
                             .run = put(k, a->run->at, a->run->n, sizeof *a->run->at)};
    }
    head->guards = put(k, all, p->guard.n, sizeof *all);
}

/* Of the devices that differ in what they run, the most and the fewest operations; and how often
 * one runs each step at most. */
static void count_guarded(Plan *plan) {
    int32_t coord[MAX_AXES];
    PlanStep *own = (PlanStep *)(void *)((char *)plan + plan->steps.at);
    for (int32_t i = 0; i < plan->steps.n; i++)
        if (own[i].guard) own[i].times = 0;
    plan->flops = 0;
    for (int32_t d = 0; plan_guard_device(plan, d, coord); d++) {
        double flops = plan_flops_on(plan, coord);
        for (int32_t i = 0; i < plan->steps.n; i++) {
            double times = own[i].guard ? plan_times_on(plan, &own[i], coord) : 0;
            if (times > own[i].times) own[i].times = times;
        }
        if (flops > plan->flops) plan->flops = flops;
        if (d == 0 || flops < plan->least_flops) plan->least_flops = flops;
    }
}

Err plan_build_pack(PlanBuild *p, Plan **out) {
    Pack k = {.p = p};
    Plan head;
    Values values = {0};
    memset(&head, 0, sizeof head);
    reserve(&k, sizeof head);
    put_string(&k, ""); /* so that offset 0 is never a string that was meant */
    const Mesh *m = p->g->mesh;
    head.ndevices = m ? m->ndevices : 1;
    head.naxes = m ? m->naxes : 0;
    for (int i = 0; i < head.naxes; i++) head.axis_size[i] = m->size[i];
    head.nloop = p->nloop;
    for (int i = 0; i < p->nparam; i++)
        if (p->donated[i] == DONATE_IF_SOLE) head.settled = p->fault_step + 1;
    head.alignment = (int32_t)p->o->target->alignment;
    pack_params(&k, &values, &head);
    PlanStep *steps = ARENA_ARRAY(p->arena, PlanStep, p->step.n + 1);
    if (!steps) plan_build_no_memory(p);
    for (int32_t i = 0; i < p->step.n && !p->err; i++) {
        steps[i] = pack_step(&k, &values, &p->step.at[i]);
        head.flops += steps[i].flops * steps[i].times;
    }
    head.least_flops = head.flops;
    pack_guards(&k, &head);
    head.results = put_values(&k, &values, p->result, p->g->region.at[0].result.n);
    pack_buffers(&k, &head);
    head.classes = put(&k, p->class_bytes, 1 << head.naxes, sizeof(int64_t));
    for (int i = 0; i < 1 << head.naxes; i++) head.peak_bytes += (double)p->class_bytes[i];
    head.steps = put(&k, steps, p->step.n, sizeof *steps);
    head.values = put(&k, values.at, values.n, sizeof *values.at);
    if (p->err) return p->err;
    head.size = (int64_t)k.n;
    Plan *plan = alloc_new(&p->g->cx->alloc, k.n);
    if (!plan) return err_nomem(p->g->cx, "a plan");
    memcpy(plan, k.at, k.n);
    *plan = head;
    if (head.guards.n) count_guarded(plan);
    size_t skip = offsetof(Plan, naxes);
    plan->hash = hash_bytes(0, (const char *)plan + skip, k.n - skip);
    *out = plan;
    return E_OK;
}
