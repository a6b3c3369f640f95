/* exchange_reduce.c - reductions between domains. Each reduces its subtrees first, in float32
 * where the elements have 16 bits, and sends what came of it to those that want the result. Of a
 * large all_reduce each of these finishes one chunk and sends that to the others; of a small one,
 * or where there are two, each finishes all. */
#include "run/bind/exchange_bind.h"
#include "run/bind/reduce.h"

enum {
    EXTRA_BYTES = 1 << 17, /* sending so many more costs less than waiting for a second message */
    CHUNK_UNIT = 64        /* elements that a chunk is a multiple of */
};

typedef struct GroupReduction { /* of one operand, or a part of it, over one group */
    Exec *e;
    Exchange *x;
    const DeviceGroup *g;
    int32_t coord[MAX_AXES]; /* of the group's first member */
    int32_t in, out;         /* values */
    const PlanValue *result;
    int64_t count; /* its elements */
    int32_t part, parts;
    int32_t *domain; /* by member */
    Subtree *root;
    int32_t roots;
    ItemOperand *own;  /* by root of this domain: the whole */
    ItemOperand *from; /* by root: what a domain finishes, the whole or a chunk */
    int32_t *want;     /* members whose domains write the result, each domain once */
    int32_t wants;
} GroupReduction;

static void member_at(const GroupReduction *r, int32_t member, int32_t coord[MAX_AXES]) {
    group_member(r->g, r->coord, member, coord);
}

/* What a subtree's members come to: one alone is as it was. */
static DType root_dtype(const GroupReduction *r, const Subtree *root) {
    DType t = (DType)r->result->dtype;
    return root->n > 1 && dtype_is_float(t) ? dtype_accumulator(t) : t;
}

/* Elements [lo, hi) of a dense tensor. */
static Err slice(Exec *e, const ItemOperand *v, int64_t lo, int64_t hi, ItemOperand *out) {
    int64_t size = dtype_size(v->tensor.dtype), line[] = {hi - lo, size};
    int64_t *dims = arena_copy(&e->arena, line, sizeof line);
    if (!dims) return exec_no_memory(e);
    *out = *v;
    out->tensor.rank = 1;
    out->tensor.dims = dims;
    out->tensor.strides = dims + 1;
    out->ref.offset += lo * size;
    return E_OK;
}

/* Where chunk k begins. */
static int64_t chunk_start(const GroupReduction *r, int32_t k) {
    return k == r->wants ? r->count : r->count * k / r->wants / CHUNK_UNIT * CHUNK_UNIT;
}

/* A tensor of the result's dims in the wire. */
static Err whole_in_wire(GroupReduction *r, DType dtype, ItemOperand *out) {
    const int64_t *dims = plan_dims(r->e->plan, r->result);
    return wire_take(r->e, r->x, dims, r->result->rank, dtype, out);
}

static ItemOperand result_of(const GroupReduction *r, int32_t member) {
    int32_t at[MAX_AXES];
    member_at(r, member, at);
    return item_operand(r->e, r->x->k, r->out, at);
}

/* ---- subtrees ---- */

static Err leaf_of(const GroupReduction *r, int32_t member, ItemOperand *out) {
    int32_t at[MAX_AXES];
    member_at(r, member, at);
    *out = item_operand(r->e, r->x->k, r->in, at);
    bool ok = item_narrow(r->e, out, r->g->step->coll.dim, r->part, r->parts);
    return ok ? E_OK : exec_no_memory(r->e);
}

/* Reduces the members of a root of this domain to `to`. */
static Err reduce_members(GroupReduction *r, const Subtree *root, const ItemOperand *to) {
    Exec *e = r->e;
    ItemOperand *leaf = ARENA_ARRAY(&e->arena, ItemOperand, root->n);
    Subtree *one = ARENA_ARRAY(&e->arena, Subtree, root->n);
    if (!leaf || !one) return exec_no_memory(e);
    for (int32_t k = 0; k < root->n; k++) {
        one[k] = (Subtree){.first = k, .n = 1};
        TRY(leaf_of(r, root->first + k, &leaf[k]));
    }
    return bind_reduction(e, r->g->step, one, leaf, root->n, to);
}

/* What this domain has of the tree, each root in one piece. */
static Err reduce_own(GroupReduction *r) {
    Exec *e = r->e;
    for (int32_t k = 0; k < r->roots; k++) {
        const Subtree *root = &r->root[k];
        if (root->domain != exec_domain(e, r->x->k)) continue;
        if (root->n == 1) TRY(leaf_of(r, root->first, &r->own[k]));
        if (root->n == 1 && item_is_dense(&r->own[k])) continue;
        ItemOperand wire;
        TRY(whole_in_wire(r, root_dtype(r, root), &wire));
        if (root->n == 1)
            TRY(bind_copy(e, r->g->step, &r->own[k], &wire));
        else
            TRY(reduce_members(r, root, &wire));
        r->own[k] = wire;
    }
    return wire_phase(e, r->x, 0);
}

/* ---- the tree above them ---- */

/* Room for a root of another domain: for its whole, or for so many elements. */
static Err room_for(GroupReduction *r, const Subtree *root, bool whole, int64_t count,
                    ItemOperand *out) {
    if (whole) return whole_in_wire(r, root_dtype(r, root), out);
    const int64_t *dims = arena_copy(&r->e->arena, &count, sizeof count);
    return dims ? wire_take(r->e, r->x, dims, 1, root_dtype(r, root), out) : exec_no_memory(r->e);
}

/* Brings all roots, or their elements [lo, hi), to the domain that finishes them, and fills `from`
 * there. */
static Err bring(GroupReduction *r, int32_t to, bool whole, int64_t lo, int64_t hi) {
    Exec *e = r->e;
    Phase *p = &r->x->phase[0];
    int32_t me = exec_domain(e, r->x->k);
    for (int32_t k = 0; k < r->roots; k++) {
        const Subtree *root = &r->root[k];
        ItemOperand *v = &r->from[k];
        if (root->domain == me) {
            *v = r->own[k];
            if (!whole) TRY(slice(e, &r->own[k], lo, hi, v));
            if (to != me) TRY(wire_send(e, p, to, v));
        } else if (to == me) {
            TRY(room_for(r, root, whole, hi - lo, v));
            TRY(wire_recv(e, p, root->domain, v));
        }
    }
    return E_OK;
}

static Err finish(GroupReduction *r, const ItemOperand *to) {
    TRY(bind_reduction(r->e, r->g->step, r->root, r->from, r->roots, to));
    return wire_phase(r->e, r->x, 1);
}

/* Each domain that wants the result finishes all of it. */
static Err finish_alone(GroupReduction *r) {
    for (int32_t j = 0; j < r->wants; j++) {
        int32_t owner = r->domain[r->want[j]];
        TRY(bring(r, owner, true, 0, r->count));
        if (owner != exec_domain(r->e, r->x->k)) continue;
        ItemOperand to = result_of(r, r->want[j]);
        TRY(finish(r, &to));
    }
    return E_OK;
}

/* Sends a finished chunk to all others that want it. */
static Err share(GroupReduction *r, const ItemOperand *chunk) {
    for (int32_t j = 0; j < r->wants; j++) {
        int32_t peer = r->domain[r->want[j]];
        if (peer != exec_domain(r->e, r->x->k)) TRY(wire_send(r->e, &r->x->phase[1], peer, chunk));
    }
    return E_OK;
}

/* Each finishes a chunk, and has the others' from them. */
static Err finish_in_chunks(GroupReduction *r) {
    Exec *e = r->e;
    int32_t me = exec_domain(e, r->x->k), mine = 0;
    ItemOperand result, whole, chunk;
    while (mine < r->wants && r->domain[r->want[mine]] != me) mine++;
    bool here = mine < r->wants, dense = false;
    if (here) {
        result = whole = result_of(r, r->want[mine]);
        dense = item_is_dense(&result);
        if (!dense) TRY(whole_in_wire(r, result.tensor.dtype, &whole));
    }
    for (int32_t j = 0; j < r->wants; j++) {
        int32_t owner = r->domain[r->want[j]];
        int64_t lo = chunk_start(r, j), hi = chunk_start(r, j + 1);
        if (lo == hi) continue;
        TRY(bring(r, owner, false, lo, hi));
        if (!here) continue;
        TRY(slice(e, &whole, lo, hi, &chunk));
        if (owner == me) {
            TRY(finish(r, &chunk));
            TRY(share(r, &chunk));
        } else {
            TRY(wire_recv(e, &r->x->phase[1], owner, &chunk));
        }
    }
    if (!here || dense) return E_OK;
    TRY(bind_copy(e, r->g->step, &whole, &result));
    return wire_phase(e, r->x, 2);
}

static Err reduce(GroupReduction *r) {
    if (!r->wants) return E_OK;
    if (r->roots == 1) {
        ItemOperand to = result_of(r, r->want[0]);
        TRY(reduce_members(r, &r->root[0], &to));
        return wire_phase(r->e, r->x, 0);
    }
    TRY(reduce_own(r));
    /* Alone, all of them together send (wants - 2) times the bytes more to each. */
    int64_t bytes = r->count * dtype_size((DType)r->result->dtype);
    bool alone = bytes * (r->wants - 2) <= EXTRA_BYTES;
    return alone ? finish_alone(r) : finish_in_chunks(r);
}

/* ---- all of a step ---- */

/* Does the member's domain write its slot of the result with it, rather than with another of its
 * devices that has the same slot? */
static bool wants_result(const GroupReduction *r, int32_t member) {
    const Mesh *m = r->e->mesh;
    int32_t at[MAX_AXES], first[MAX_AXES];
    uint32_t vary = plan_buffer(r->e->plan, r->result->buffer)->vary;
    member_at(r, member, at);
    int32_t domain = r->domain[member], slot = place_slot(m, vary, domain, at);
    place_coords(m, vary, domain, slot, first);
    return place_index(m, first) == place_index(m, at);
}

static Err reduce_operand(GroupReduction *r) {
    const Exec *e = r->e;
    int32_t size = r->g->size;
    for (int32_t k = 0; k < size; k++) {
        int32_t at[MAX_AXES];
        member_at(r, k, at);
        r->domain[k] = place_domain(e->mesh, place_index(e->mesh, at));
    }
    r->roots = group_cut(r->domain, size, r->root);
    r->wants = 0;
    if (r->g->step->coll.kind == COLL_ALL_REDUCE) {
        r->parts = 1;
        for (int32_t k = 0; k < size; k++)
            if (wants_result(r, k)) r->want[r->wants++] = k;
        return reduce(r);
    }
    r->parts = size;
    for (r->part = 0; r->part < size; r->part++) {
        r->want[0] = r->part;
        r->wants = wants_result(r, r->part);
        TRY(reduce(r));
    }
    return E_OK;
}

Err exchange_reduce(Exec *e, Exchange *x, const DeviceGroup *g, const GroupDeviceList *mine) {
    const Plan *p = e->plan;
    GroupReduction r = {.e = e, .x = x, .g = g};
    r.domain = ARENA_ARRAY(&e->arena, int32_t, g->size);
    r.want = ARENA_ARRAY(&e->arena, int32_t, g->size);
    r.root = ARENA_ARRAY(&e->arena, Subtree, g->size);
    r.from = ARENA_ARRAY(&e->arena, ItemOperand, g->size);
    r.own = ARENA_ARRAY(&e->arena, ItemOperand, g->size);
    if (!r.domain || !r.want || !r.root || !r.from || !r.own) return exec_no_memory(e);
    for (int i = 0; i < g->step->out.n; i++) {
        r.in = PLAN_LIST(p, int32_t, g->step->in)[i];
        r.out = PLAN_LIST(p, int32_t, g->step->out)[i];
        r.result = plan_value(p, r.out);
        r.count = 1;
        for (int d = 0; d < r.result->rank; d++) r.count *= plan_dims(p, r.result)[d];
        for (int32_t k = 0; k < mine->n; k++) {
            if (k && mine->at[k].group == mine->at[k - 1].group) continue;
            mesh_coords(e->mesh, mine->at[k].group, r.coord);
            TRY(reduce_operand(&r));
        }
    }
    return E_OK;
}
