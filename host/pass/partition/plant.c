#include "pass/partition/plant.h"

#include "op/op.h"

void plant_offsets(const Ctx *cx, const Node *n, Offset *offset, int noffset) {
    for (int i = 0; n->op == cx->planted && i < noffset; i++) offset[i].unit /= 2;
}

Val plant_result(Build *b, const Node *n, Val v, uint32_t axes) {
    int32_t parts = mesh_product(b->g->mesh, axes);
    if (b->err || !v || n->op != b->g->cx->planted || parts == 1) return v;
    if (op_dtype(b, v) == DT_BOOL) return op1(b, OP_BITNOT, v);
    return op2(b, OP_MUL, v, op_const_like(b, v, parts));
}
