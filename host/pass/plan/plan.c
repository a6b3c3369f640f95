/* plan.c - the last graph as steps over buffers.
 *
 * Nodes without work become views of their operand's buffer. A kernel that cannot read an operand
 * as it lies gets a copy. A result takes over the buffer of a dying operand where its row lets it.
 * What is left lives in a workspace, one per vary class: within a class a slot's memory is touched
 * by that slot only, so that a worker can run ahead through steps of the class without disturbing
 * another. */
#include "pass/plan/plan_build.h"

#include "ir/program.h"
#include "op/op.h"

#include <string.h>

static int32_t new_buffer(PlanBuild *p, BufferKind kind, uint32_t vary, int64_t bytes) {
    BuildBuffer b = {.kind = kind,
                     .vary = vary,
                     .bytes = bytes,
                     .first = p->step.n,
                     .last = p->step.n,
                     .param = -1,
                     .take = -1};
    if (!VEC_PUSH(p->arena, &p->buffer, b)) plan_build_no_memory(p);
    return p->buffer.n - 1;
}

static uint32_t vary_of(const Type *t) {
    return t->layout ? t->layout->vary : 0;
}

static BuildValue *value_at(PlanBuild *p, Val v) {
    return &p->value[v];
}

/* Places for as many iterations as are under way at once: each has the next, and behind the last
 * one the first follows. */
static void make_ring(PlanBuild *p, BuildValue *v) {
    BuildBuffer *b = &p->buffer.at[v->buffer];
    int64_t align = p->o->target->alignment;
    PlanStride *stride = ARENA_ARRAY(p->arena, PlanStride, 1);
    if (!stride) {
        plan_build_no_memory(p);
        return;
    }
    *stride = (PlanStride){(b->bytes + align - 1) / align * align, p->loop, p->now_ring};
    b->bytes = stride->bytes * p->now_ring;
    b->ring = p->within;
    v->per_slice = stride;
    v->nslice = 1;
}

/* A fresh buffer for the value. */
void plan_own_buffer(PlanBuild *p, BuildValue *v, const Type *t, BufferKind kind) {
    *v = (BuildValue){.type = t};
    dims_strides(&t->dims, dtype_size(t->dtype), v->strides);
    v->buffer = new_buffer(p, kind, vary_of(t), type_bytes(t));
    if (p->now_ring > 1 && !p->err) make_ring(p, v);
}

static bool lies_row_major(const BuildValue *v) {
    int64_t want[MAX_RANK];
    dims_strides(&v->type->dims, dtype_size(v->type->dtype), want);
    for (int d = 0; d < v->type->dims.rank; d++)
        if (v->type->dims.at[d] > 1 && v->strides[d] != want[d]) return false;
    return true;
}

static bool inner_is_dense(const BuildValue *v) {
    int last = v->type->dims.rank - 1;
    return last < 0 || v->type->dims.at[last] <= 1 ||
           v->strides[last] == dtype_size(v->type->dtype);
}

static void touch(PlanBuild *p, const BuildValue *v) {
    if (!p->err) p->buffer.at[v->buffer].last = p->step.n;
}

/* ---- steps ---- */

BuildStep *plan_add_step(PlanBuild *p, const Node *n) {
    BuildStep step = {.node = n, .times = p->times, .shift = p->now_shift, .guard = p->guarded};
    if (!VEC_PUSH(p->arena, &p->step, step)) {
        plan_build_no_memory(p);
        return NULL;
    }
    return &p->step.at[p->step.n - 1];
}

bool plan_set_operands(PlanBuild *p, BuildStep *s, const BuildValue *in, int nin,
                       const BuildValue *out, int nout) {
    s->in = arena_copy(p->arena, in, sizeof *in * (size_t)nin);
    s->out = arena_copy(p->arena, out, sizeof *out * (size_t)nout);
    s->nin = nin;
    s->nout = nout;
    if (!s->in || !s->out) plan_build_no_memory(p);
    return !p->err;
}

void plan_copy(PlanBuild *p, const Node *n, const BuildValue *from, const BuildValue *to) {
    touch(p, from);
    touch(p, to);
    BuildStep *s = plan_add_step(p, n);
    if (!s || !plan_set_operands(p, s, from, 1, to, 1)) return;
    s->kernel = "copy";
    s->bytes = 2 * (double)type_bytes(from->type);
}

/* A row-major copy of the value in a buffer of its own, which nothing else reads. */
static void copy_value(PlanBuild *p, const Node *for_node, BuildValue *v) {
    BuildValue copy;
    touch(p, v);
    plan_own_buffer(p, &copy, v->type, BUFFER_TEMP);
    if (!plan_build_room(p)) return;
    p->last_use[copy.buffer] = p->now;
    plan_copy(p, for_node, v, &copy);
    *v = copy;
}

/* The kernel's attribute struct. */
static void lower_attr(PlanBuild *p, BuildStep *s, const Node *n, const OpDef *def) {
    if (n->nbody) {
        size_t size;
        s->attr = program_of(p->g, n->body[0], p->arena, &size, &s->offset, &s->noffset);
        s->attr_size = (int32_t)size;
        if (!s->attr) plan_build_no_memory(p);
        return;
    }
    s->offset = n->offset;
    s->noffset = n->noffset;
    s->attr = n->attr;
    s->attr_size = (int32_t)def->attr_size;
    if (!def->lower) return;
    const Type **types = ARENA_ARRAY(p->arena, const Type *, n->nin + n->nout + 1);
    void *attr = arena_alloc(p->arena, def->lower_size);
    if (!types || !attr) {
        plan_build_no_memory(p);
        return;
    }
    graph_in_types(p->g, n, types);
    graph_out_types(p->g, n, types + n->nin);
    OpArgs a = {p->g->cx, def, n->nin, types, n->attr};
    def->lower(&a, types + n->nin, attr);
    s->attr = attr;
    s->attr_size = (int32_t)def->lower_size;
}

/* Of an op; of a body, those of the ops in it. */
static void add_work(PlanBuild *p, const Node *n, BuildStep *s) {
    if (n->parts > s->parts) s->parts = n->parts;
    if (n->nbody) {
        const Region *r = &p->g->region.at[n->body[0]];
        for (int32_t id = r->owner - 1; graph_node(p->g, id)->region == n->body[0]; id--)
            if (!(graph_opdef(p->g, graph_node(p->g, id))->flags & OPF_PARAM))
                add_work(p, graph_node(p->g, id), s);
        return;
    }
    const Type **types = ARENA_ARRAY(p->arena, const Type *, n->nin + n->nout + 1);
    if (!types) plan_build_no_memory(p);
    double flops = types ? op_flops(p->g, n, types) : 0;
    s->flops += flops;
    s->padded += flops * (double)n->idle;
    s->anew += n->role == ROLE_ANEW ? flops : 0;
}

bool plan_may_write(const PlanBuild *p, int32_t i, bool behind_last_fault) {
    return p->donated[i] == DONATE_ASKED || (p->donated[i] == DONATE_IF_SOLE && behind_last_fault);
}

/* May result i live in operand k's buffer from this step on? */
bool plan_can_take(const PlanBuild *p, const BuildValue *in, const Type *out) {
    const BuildBuffer *b = &p->buffer.at[in->buffer];
    bool writable = b->kind == BUFFER_TEMP ||
                    (b->param >= 0 && plan_may_write(p, b->param, p->now > p->last_fault));
    return writable && p->last_use[in->buffer] <= p->now && in->offset == 0 && !in->noffset &&
           !in->nslice && lies_row_major(in) && b->bytes == type_bytes(out) &&
           in->type->dtype == out->dtype && dims_equal(&in->type->dims, &out->dims) &&
           b->vary == vary_of(out);
}

/* Where the value is wanted, if nobody needs what lies there any more. */
static bool take_place(PlanBuild *p, Val v, BuildValue *out) {
    const BuildValue *place = p->place[v];
    if (!place || p->last_use[place->buffer] >= p->now || (p->now_ring > 1 && !place->nslice) ||
        p->buffer.at[place->buffer].vary != vary_of(graph_type(p->g, v)))
        return false;
    *out = *place;
    out->type = graph_type(p->g, v);
    if (!place->nslice) p->last_use[place->buffer] = p->value_last[v];
    return true;
}

enum { TAKEN_OPERANDS = 64 }; /* a result may take the buffer of one of the first so many */

/* A mask of the operands whose buffer another operand reads, too. */
static uint64_t shared_operands(const BuildValue *in, int nin) {
    uint64_t shared = 0;
    for (int k = 0; k < nin && k < TAKEN_OPERANDS; k++)
        for (int j = 0; j < nin; j++)
            if (j != k && in[j].buffer == in[k].buffer) shared |= 1ull << k;
    return shared;
}

static bool is_temporary(const PlanBuild *p, const BuildValue *v) {
    return p->buffer.at[v->buffer].kind == BUFFER_TEMP;
}

/* The operand whose buffer result i of the node takes, or -1. First the one that lies where the
 * result is wanted, and parameters, whose memory results of the program may take; of temporaries
 * the latest. So what is only read on the way back stays as it was: a product that takes gelu's
 * slope may not write over what it takes it at. */
static int operand_to_take(const PlanBuild *p, const Node *n, const OpDef *def,
                           const BuildValue *in, int i, uint64_t taken) {
    const Type *t = graph_type(p->g, n->out + i);
    const BuildValue *place = p->place[n->out + i];
    int best = -1;
    for (int k = 0; k < n->nin && k < TAKEN_OPERANDS && p->now_ring <= 1; k++) {
        bool allowed = def->flags & OPF_ALIAS_ANY || (i < 4 && def->alias[i] == k + 1);
        if (!allowed || taken >> k & 1 || !plan_can_take(p, &in[k], t)) continue;
        if (place && in[k].buffer == place->buffer) return k;
        if (best < 0 || (is_temporary(p, &in[best]) &&
                         (!is_temporary(p, &in[k]) || in[k].buffer > in[best].buffer)))
            best = k;
    }
    return best;
}

static void place_results(PlanBuild *p, const Node *n, const OpDef *def, BuildValue *in,
                          BuildValue *out) {
    uint64_t taken = shared_operands(in, n->nin); /* and those whose buffer went to a result */
    bool apart = p->guarded && def->flags & OPF_COLLECTIVE; /* all devices run it: see below */
    for (int i = 0; i < n->nout; i++) {
        const Type *t = graph_type(p->g, n->out + i);
        if (apart) {
            plan_own_buffer(p, &out[i], t, BUFFER_TEMP);
            continue;
        }
        if (take_place(p, n->out + i, &out[i])) continue;
        int from = operand_to_take(p, n, def, in, i, taken);
        if (from < 0) {
            plan_own_buffer(p, &out[i], t, BUFFER_TEMP);
            continue;
        }
        taken |= 1ull << from;
        out[i] = in[from];
        out[i].type = t;
        p->last_use[in[from].buffer] = p->value_last[n->out + i];
    }
}

static void kernel_step(PlanBuild *p, const Node *n, const OpDef *def) {
    BuildValue *in = ARENA_ARRAY(p->arena, BuildValue, n->nin + 1);
    BuildValue *out = ARENA_ARRAY(p->arena, BuildValue, n->nout + 1);
    if (!in || !out) {
        plan_build_no_memory(p);
        return;
    }
    bool collective = def->flags & OPF_COLLECTIVE;
    double bytes = 0;
    for (int i = 0; i < n->nin; i++) {
        int bit = i < 31 ? i : 31;
        in[i] = *value_at(p, n->in[i]);
        bool dense = (def->contiguous >> bit & 1) || collective;
        if (dense && (!lies_row_major(&in[i]) || in[i].noffset))
            copy_value(p, n, &in[i]);
        else if ((def->inner >> bit & 1) && !inner_is_dense(&in[i]))
            copy_value(p, n, &in[i]);
        bytes += (double)type_bytes(in[i].type);
    }
    for (int i = 0; i < n->nin; i++) touch(p, &in[i]);
    if (p->err) return;
    place_results(p, n, def, in, out);
    for (int i = 0; i < n->nout; i++) {
        bytes += (double)type_bytes(out[i].type);
        touch(p, &out[i]);
        *value_at(p, n->out + i) = out[i];
    }
    BuildStep *s = plan_add_step(p, n);
    if (!s || !plan_set_operands(p, s, in, n->nin, out, n->nout)) return;
    s->kernel = def->kernel;
    if (!collective) add_work(p, n, s);
    s->bytes = bytes;
    for (int i = 0; collective && i < n->nout; i++) p->source[n->out + i] = &in[i < n->nin ? i : 0];
    /* Nobody waits for a device that skips it: also where its branch is not taken, and then with
     * whatever lies there, a device sends, and writes what nobody reads. */
    if (collective) s->guard = 0;
    if (collective)
        s->kind = STEP_COLLECTIVE;
    else
        lower_attr(p, s, n, def);
}

/* ---- views ---- */

static bool try_view(PlanBuild *p, const Node *n, const OpDef *def, const BuildValue *x,
                     BuildValue *out) {
    const Type *t = graph_type(p->g, n->out);
    *out = *x;
    out->type = t;
    ViewArgs v = {.attr = n->attr,
                  .in_dims = &x->type->dims,
                  .out_dims = &t->dims,
                  .in_strides = x->strides,
                  .out_strides = out->strides};
    if (!def->view(&v)) return false;
    out->offset += v.start;
    if (!n->noffset) return true;
    Offset *all = ARENA_ARRAY(p->arena, Offset, x->noffset + n->noffset);
    if (!all) {
        plan_build_no_memory(p);
        return true;
    }
    if (x->noffset) memcpy(all, x->per_device, sizeof *all * (size_t)x->noffset);
    for (int i = 0; i < n->noffset; i++) {
        all[x->noffset + i] = n->offset[i];
        all[x->noffset + i].unit *= v.per_offset[i];
    }
    out->per_device = all;
    out->noffset = x->noffset + n->noffset;
    return true;
}

static void view_node(PlanBuild *p, const Node *n, const OpDef *def) {
    BuildValue x = *value_at(p, n->in[0]), out;
    if (!try_view(p, n, def, &x, &out)) {
        copy_value(p, n, &x);
        if (p->err) return;
        bool ok = try_view(p, n, def, &x, &out);
        ASSERT(ok, "%s has no view of a row-major operand", def->name);
    }
    *value_at(p, n->out) = out;
}

/* A view that other steps may wait at: a step without work holds the operands until here; what is
 * sent may be a copy of what the graph says. */
static void wait_node(PlanBuild *p, const Node *n) {
    BuildValue *in = ARENA_ARRAY(p->arena, BuildValue, n->nin);
    if (!in) {
        plan_build_no_memory(p);
        return;
    }
    for (int i = 0; i < n->nin; i++) in[i] = *value_at(p, n->in[i]);
    if (p->source[n->in[0]]) in[1] = *p->source[n->in[0]];
    for (int i = 0; i < n->nin; i++) touch(p, &in[i]);
    BuildStep *s = plan_add_step(p, n);
    if (!s || !plan_set_operands(p, s, in, n->nin, NULL, 0)) return;
    s->kind = STEP_DONE;
    s->guard = 0;
}

/* ---- last uses ---- */

static void use(PlanBuild *p, Val v, int32_t id) {
    if (p->value_last[v] < id) p->value_last[v] = id;
}

static void find_last_uses(PlanBuild *p) {
    const Graph *g = p->g;
    for (int32_t id = 1; id < g->node.n; id++) {
        const Node *n = graph_node(g, id);
        for (int i = 0; i < n->nin; i++) use(p, n->in[i], id);
        for (int k = 0; k < n->nbody; k++)
            for (int i = 0; i < g->region.at[n->body[k]].result.n; i++)
                use(p, g->region.at[n->body[k]].result.at[i], id);
    }
    const Region *top = &g->region.at[0];
    for (int i = 0; i < top->result.n; i++) use(p, top->result.at[i], g->node.n);
    /* A use of a value is a use of what it may be a view of: later views are done first. */
    for (int32_t id = g->node.n - 1; id > 0; id--) {
        const Node *n = graph_node(g, id);
        if (graph_opdef(g, n)->view) use(p, n->in[0], p->value_last[n->out]);
    }
}

void plan_node(PlanBuild *p, int32_t id) {
    const Node *n = graph_node(p->g, id);
    const OpDef *def = graph_opdef(p->g, n);
    p->now = id;
    p->now_shift = p->shift[id];
    p->now_ring = p->ring[id];
    p->made[id].at = p->step.n;
    int32_t first_new = p->buffer.n;
    if (def->flags & OPF_PARAM) {
        BuildValue *v = value_at(p, n->out);
        plan_own_buffer(p, v, graph_type(p->g, n->out), BUFFER_PARAM);
        if (p->err) return;
        p->buffer.at[v->buffer].param = p->nparam;
        p->param[p->nparam++] = n->out;
    } else if (def->view) {
        view_node(p, n, def);
        if (def->flags & OPF_WAIT) wait_node(p, n);
    } else if (def->control) {
        plan_control(p, id, def);
    } else {
        kernel_step(p, n, def);
    }
    p->made[id].end = p->step.n;
    p->now_shift = p->now_ring = 0;
    if (id == p->last_fault) p->fault_step = p->step.n - 1;
    if (!plan_build_room(p)) return;
    for (int32_t b = first_new; b < p->buffer.n; b++) p->last_use[b] = id;
    for (int i = 0; i < n->nout && !p->err; i++) {
        int32_t b = value_at(p, n->out + i)->buffer;
        if (p->value_last[n->out + i] > p->last_use[b]) p->last_use[b] = p->value_last[n->out + i];
    }
}

/* ---- results ---- */

/* A result keeps its whole buffer alive, so a small view of a large one is copied. */
static void result(PlanBuild *p, int i, Val v) {
    BuildValue r = *value_at(p, v);
    BuildBuffer *b = &p->buffer.at[r.buffer];
    bool param = b->kind == BUFFER_PARAM;
    bool view_varies = (vary_of(r.type) & ~b->vary) != 0;
    if (!param && (type_bytes(r.type) < b->bytes || view_varies))
        copy_value(p, graph_def(p->g, v), &r);
    if (p->err) return;
    b = &p->buffer.at[r.buffer];
    if (b->kind == BUFFER_TEMP) b->kind = BUFFER_RESULT;
    b->last = INT32_MAX;
    p->result[i] = r;
}

static Err check_donations(PlanBuild *p) {
    for (int i = 0; i < p->nparam; i++) {
        if (p->donated[i] != DONATE_ASKED) continue;
        const BuildBuffer *b = &p->buffer.at[p->value[p->param[i]].buffer];
        if (b->given || b->last == INT32_MAX) continue; /* a result takes it, or lies in it */
        const ParamAttr *a = graph_def(p->g, p->param[i])->attr;
        Str s;
        str_init(&s, &p->g->cx->alloc);
        type_print(graph_type(p->g, p->param[i]), &s);
        Err e =
            err_set(p->g->cx, E_DONATE,
                    "donated argument %s (%s on each device) cannot be reused: no result of its "
                    "size comes after its last use; leave it out of `donate`",
                    a->name ? a->name : "?", str_of(&s));
        str_free(&s);
        return e;
    }
    return E_OK;
}

/* The node in the program's region that the node is or stands in. */
static int32_t outermost(const Graph *g, int32_t id) {
    while (graph_node(g, id)->region) id = g->region.at[graph_node(g, id)->region].owner;
    return id;
}

static void find_last_fault(PlanBuild *p) {
    p->last_fault = p->fault_step = -1;
    for (int32_t id = 1; id < p->g->node.n; id++) {
        const Node *n = graph_node(p->g, id);
        const OpDef *def = graph_opdef(p->g, n);
        if (def->flags & OPF_FAULTS && (!def->faults || def->faults(n->attr)))
            p->last_fault = outermost(p->g, id);
    }
}

Err pass_plan(const Graph *g, const PassOptions *o, const uint8_t *donated, Plan **out) {
    PlanBuild p;
    if (!plan_build_init(&p, g, o, donated)) {
        plan_build_free(&p);
        return err_nomem(g->cx, "a plan");
    }
    find_last_uses(&p);
    find_last_fault(&p);
    plan_shift(&p);
    for (int32_t id = p.region_first[0]; id && !p.err; id = p.region_next[id]) plan_node(&p, id);
    if (!p.err) plan_control_stretch(&p);
    for (int i = 0; i < g->region.at[0].result.n && !p.err; i++)
        result(&p, i, g->region.at[0].result.at[i]);
    if (!p.err) plan_give_donated(&p);
    if (!p.err) p.err = check_donations(&p);
    if (!p.err) p.err = plan_build_place(&p);
    if (!p.err) p.err = plan_build_pack(&p, out);
    plan_build_free(&p);
    return p.err;
}
