/* exchange_move.c - gathers, exchanges of parts and permutations between domains: a part that is
 * in another domain is received where the result wants it, or into the wire if that is not one
 * piece, and copied from there. */
#include "run/bind/exchange_bind.h"
#include "run/bind/reduce.h"

typedef struct Known { /* a part of a device's operand that lies somewhere here */
    int32_t device, part;
    ItemOperand view;
} Known;
typedef VEC(Known) KnownList;

typedef struct GroupMove {
    Exec *e;
    Exchange *x;
    const DeviceGroup *g;
    const GroupDeviceList *mine;
    int32_t in, out; /* values */
    uint32_t vary;   /* of the operand's buffer, and of the result's */
    uint32_t out_vary;
} GroupMove;

static const Known *find(const KnownList *list, int32_t device, int32_t part) {
    for (int32_t i = 0; i < list->n; i++)
        if (list->at[i].device == device && list->at[i].part == part) return &list->at[i];
    return NULL;
}

/* ---- what comes ---- */

/* The part of a device of another domain; `to` is where it should be. */
static Err receive(GroupMove *m, const GroupSource *s, const ItemOperand *to, KnownList *got) {
    Exec *e = m->e;
    int32_t device = place_index(e->mesh, s->from);
    const Known *known = find(got, device, s->from_part);
    Known one = {device, s->from_part, *to};
    if (known) {
        TRY(bind_copy(e, m->g->step, &known->view, to));
        return wire_phase(e, m->x, 1);
    }
    if (!item_is_dense(to)) {
        const KTensor *t = &to->tensor;
        TRY(wire_take(e, m->x, t->dims, t->rank, t->dtype, &one.view));
        TRY(bind_copy(e, m->g->step, &one.view, to));
        TRY(wire_phase(e, m->x, 1));
    }
    if (!VEC_PUSH(&e->arena, got, one)) return exec_no_memory(e);
    return wire_recv(e, &m->x->phase[0], place_domain(e->mesh, device), &one.view);
}

/* The result of the devices in one slot. */
static Err fill(GroupMove *m, const int32_t coord[MAX_AXES], KnownList *got) {
    Exec *e = m->e;
    ItemOperand to = item_operand(e, m->x->k, m->out, coord);
    int32_t n = group_sources(m->g, coord);
    if (n == 0) TRY(bind_zeros(e, m->g->step, &to));
    for (int32_t k = 0; k < n; k++) {
        GroupSource s = group_source(m->g, coord, k);
        ItemOperand part = to;
        if (!item_narrow(e, &part, s.to_dim, s.to_part, s.to_parts)) return exec_no_memory(e);
        if (exec_slot(e, m->x->k, m->vary, s.from) < 0) {
            TRY(receive(m, &s, &part, got));
            continue;
        }
        ItemOperand from = item_operand(e, m->x->k, m->in, s.from);
        if (!item_narrow(e, &from, s.from_dim, s.from_part, s.from_parts)) return exec_no_memory(e);
        TRY(bind_copy(e, m->g->step, &from, &part));
    }
    return wire_phase(e, m->x, 1);
}

/* ---- what goes ---- */

/* Sends from where it lies, or from the wire if it is not in one piece. */
static Err send(GroupMove *m, const GroupSource *s, int32_t peer, KnownList *packed) {
    Exec *e = m->e;
    int32_t device = place_index(e->mesh, s->from);
    const Known *known = find(packed, device, s->from_part);
    if (known) return wire_send(e, &m->x->phase[0], peer, &known->view);
    ItemOperand from = item_operand(e, m->x->k, m->in, s->from);
    if (!item_narrow(e, &from, s->from_dim, s->from_part, s->from_parts)) return exec_no_memory(e);
    Known one = {device, s->from_part, from};
    if (!item_is_dense(&from)) {
        const KTensor *t = &from.tensor;
        TRY(wire_take(e, m->x, t->dims, t->rank, t->dtype, &one.view));
        TRY(bind_copy(e, m->g->step, &from, &one.view));
        TRY(wire_phase(e, m->x, 0));
    }
    if (!VEC_PUSH(&e->arena, packed, one)) return exec_no_memory(e);
    return wire_send(e, &m->x->phase[0], peer, &one.view);
}

/* What the peer's devices at `coord` want of the device at the source, if it is here. */
static Err serve(GroupMove *m, int32_t peer, const GroupSource *s, KnownList *sent,
                 KnownList *packed) {
    const Mesh *mesh = m->e->mesh;
    Known one = {.device = place_index(mesh, s->from), .part = s->from_part};
    if (place_domain(mesh, one.device) != exec_domain(m->e, m->x->k) ||
        place_slot(mesh, m->vary, peer, s->from) >= 0 || find(sent, one.device, one.part))
        return E_OK;
    if (!VEC_PUSH(&m->e->arena, sent, one)) return exec_no_memory(m->e);
    return send(m, s, peer, packed);
}

/* All that the peer wants from here, in the order in which it counts it out. */
static Err serve_all(GroupMove *m, int32_t peer, KnownList *packed) {
    const Mesh *mesh = m->e->mesh;
    KnownList sent = {.n = 0};
    int32_t slots = place_slots(mesh, m->out_vary, peer);
    for (int32_t slot = 0; slot < slots; slot++) {
        int32_t coord[MAX_AXES];
        place_coords(mesh, m->out_vary, peer, slot, coord);
        if (m->g->step->coll.kind == COLL_PERMUTE) {
            if (!group_sources(m->g, coord)) continue;
            GroupSource s = group_source(m->g, coord, 0);
            TRY(serve(m, peer, &s, &sent, packed));
            continue;
        }
        int32_t group = group_first(m->g, mesh, coord);
        for (int32_t i = 0; i < m->mine->n; i++) {
            if (m->mine->at[i].group != group) continue;
            GroupSource s = group_source(m->g, coord, m->mine->at[i].number);
            TRY(serve(m, peer, &s, &sent, packed));
        }
    }
    return E_OK;
}

/* Marks the domains that share a group with this one. */
static void find_peers(const GroupMove *m, bool *there) {
    const Mesh *mesh = m->e->mesh;
    for (int32_t i = 0; i < m->mine->n; i++) {
        int32_t coord[MAX_AXES], at[MAX_AXES], group = m->mine->at[i].group;
        if (i && group == m->mine->at[i - 1].group) continue;
        mesh_coords(mesh, group, coord);
        for (int32_t k = 0; k < m->g->size; k++) {
            group_member(m->g, coord, k, at);
            there[place_domain(mesh, place_index(mesh, at))] = true;
        }
    }
}

Err exchange_move(Exec *e, Exchange *x, const DeviceGroup *g, const GroupDeviceList *mine) {
    const Plan *p = e->plan;
    int32_t world = e->rt->ranks.world * e->domains;
    GroupMove m = {.e = e,
                   .x = x,
                   .g = g,
                   .mine = mine,
                   .in = PLAN_LIST(p, int32_t, g->step->in)[0],
                   .out = PLAN_LIST(p, int32_t, g->step->out)[0]};
    m.vary = plan_buffer(p, plan_value(p, m.in)->buffer)->vary;
    m.out_vary = plan_buffer(p, plan_value(p, m.out)->buffer)->vary;
    KnownList got = {.n = 0}, packed = {.n = 0};
    bool *there = ARENA_ARRAY(&e->arena, bool, world);
    if (!there) return exec_no_memory(e);
    find_peers(&m, there);
    for (int32_t peer = 0; peer < world; peer++)
        if (there[peer] && peer != exec_domain(e, x->k)) TRY(serve_all(&m, peer, &packed));
    const int32_t *slot = &exec_class_slots(e, m.out_vary)[x->k];
    for (int32_t s = slot[0]; s < slot[1]; s++) {
        int32_t coord[MAX_AXES];
        exec_slot_place(e, m.out_vary, s, coord);
        TRY(fill(&m, coord, &got));
    }
    return E_OK;
}
