/* batch.c - what the batch rules of several families share: an op on every example at once. */
#include "op/op.h"

#include <string.h>

Val batch_operand(Build *b, const BatchArgs *a, int i) {
    if (a->mapped[i] || !a->in[i]) return a->in[i];
    Dims dims = op_dims(b, a->in[i]), at = {.rank = dims.rank};
    for (int d = 0; d < at.rank; d++) at.at[d] = d + 1;
    dims_insert(&dims, 0, a->size);
    return op_broadcast(b, a->in[i], &dims, &at);
}

Val batch_to_front(Build *b, Val x, int dim) {
    Dims perm = {.rank = op_dims(b, x).rank};
    for (int d = 0; d < perm.rank; d++) perm.at[d] = d == 0 ? dim : d <= dim ? d - 1 : d;
    return x ? op_transpose(b, x, &perm) : 0;
}

Val batch_from_front(Build *b, Val x, int dim) {
    Dims perm = {.rank = op_dims(b, x).rank};
    for (int d = 0; d < perm.rank; d++) perm.at[d] = d == dim ? 0 : d < dim ? d + 1 : d;
    return x ? op_transpose(b, x, &perm) : 0;
}

void batch_shift(const BatchArgs *a, void *attr) {
    const OpDef *def = a->def;
    memcpy(attr, a->node->attr, def->attr_size);
    for (const AttrField *f = def->attr; f && f->name; f++) {
        char *at = (char *)attr + f->offset;
        Dims *list = (Dims *)(void *)at;
        switch (f->kind) {
        case ATTR_DIM: ++*(int32_t *)(void *)at; break;
        case ATTR_DIMS:
            for (int i = 0; i < list->rank; i++) list->at[i]++;
            break;
        case ATTR_SHAPE: dims_insert(list, 0, a->size); break;
        case ATTR_LIST: dims_insert(list, 0, 0); break;
        default: break;
        }
    }
}

void batch_apply(Build *b, const BatchArgs *a, const Val *in, const void *attr) {
    Val v = build_op(b, a->node->op, in, a->node->nin, attr);
    for (int i = 0; i < a->node->nout; i++) a->out[i] = v ? v + i : 0;
}

void batch_leading(Build *b, const BatchArgs *a) {
    enum { FEW = 16 };
    _Alignas(16) char attr[1024];
    Val few[FEW], *in = few;
    int n = a->node->nin;
    ASSERT(a->def->attr_size <= sizeof attr, "attributes of %s", a->def->name);
    for (int i = 0; i < n; i++)
        if (a->mapped[i] && a->def->shared >> (i < 31 ? i : 31) & 1) return;
    if (n > FEW && !(in = ARENA_ARRAY(&b->g->arena, Val, n))) {
        build_fail(b, err_nomem(b->g->cx, "a graph"));
        return;
    }
    for (int i = 0; i < n; i++) {
        bool shared = a->def->shared >> (i < 31 ? i : 31) & 1;
        in[i] = shared ? a->in[i] : batch_operand(b, a, i);
    }
    if (a->def->attr) batch_shift(a, attr);
    batch_apply(b, a, in, attr);
}
