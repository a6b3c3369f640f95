#include "run/bind/wire.h"

Err wire_take(Exec *e, Exchange *x, const int64_t *dims, int32_t rank, DType dtype,
              ItemOperand *out) {
    int64_t *strides = ARENA_ARRAY(&e->arena, int64_t, rank + 1), step = dtype_size(dtype);
    if (!strides) return exec_no_memory(e);
    for (int d = rank - 1; d >= 0; d--) {
        strides[d] = step;
        step *= dims[d];
    }
    *out = (ItemOperand){.tensor = {.dims = dims, .strides = strides, .rank = rank, .dtype = dtype},
                         .ref = {.base = e->wire_base + x->k, .offset = (int64_t)x->wire_at}};
    x->wire_at += ((size_t)step + ALLOC_ALIGN - 1) / ALLOC_ALIGN * ALLOC_ALIGN;
    if (x->wire_at > x->wire_end) x->wire_end = x->wire_at;
    return E_OK;
}

static ExchangePart part_with(const Exec *e, int32_t peer, const ItemOperand *v) {
    int32_t own = exec_domain(e, e->base_domain[v->ref.base]);
    return (ExchangePart){own, peer, v->ref, (size_t)item_bytes(&v->tensor)};
}

Err wire_send(Exec *e, Phase *p, int32_t peer, const ItemOperand *v) {
    ExchangePart part = part_with(e, peer, v);
    return !part.bytes || VEC_PUSH(&e->arena, &p->send, part) ? E_OK : exec_no_memory(e);
}

Err wire_recv(Exec *e, Phase *p, int32_t peer, const ItemOperand *v) {
    ExchangePart part = part_with(e, peer, v);
    return !part.bytes || VEC_PUSH(&e->arena, &p->recv, part) ? E_OK : exec_no_memory(e);
}

Err wire_phase(Exec *e, Exchange *x, int phase) {
    while (x->phase_of.n < e->item.n - e->step[x->step].first)
        if (!VEC_PUSH(&e->arena, &x->phase_of, (uint8_t)phase)) return exec_no_memory(e);
    return E_OK;
}
