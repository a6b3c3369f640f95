/* examples.c - what one example of a vmap sees of the others. Stands in traces only: the vmap of
 * that name puts the tensor of all examples there. */
#include "op/op.h"

static const AttrField fields[] = {
    ATTR_FIELD(ExamplesAttr, ATTR_NAME, name), ATTR_FIELD(ExamplesAttr, ATTR_INT, size), {0}};

static Err shape(const OpArgs *a, OutType *out, int *nout) {
    if (a->in[0]->dims.rank == MAX_RANK)
        return op_error(a, E_SHAPE, "the tensors of all examples would have rank %d", MAX_RANK + 1);
    TRY(op_shape_same(a, out, nout));
    dims_insert(&out[0].dims, 0, ((const ExamplesAttr *)a->attr)->size);
    return E_OK;
}

static void factors(const OpArgs *a, const Type *const *out, FactorRule *r) {
    for (int d = 0; d < a->in[0]->dims.rank; d++) {
        int f = factor_add(r, FACTOR_PASS, a->in[0]->dims.at[d]);
        factor_map(r, 0, d, f);
        factor_map(r, 2, d + 1, f);
    }
}

/* What all examples ask of this one's, added up. */
static void vjp(Build *b, const VjpArgs *a) {
    Val in[] = {a->ct[0], a->in[1]};
    Val all = build_op(b, a->node->op, in, 2, a->node->attr);
    Dims sum = op_dims(b, all);
    all = op_reduce(b, OP_SUM, all, &(Dims){1, {0}});
    for (int d = 1; d < sum.rank; d++) sum.at[d - 1] = sum.at[d];
    if (sum.rank) sum.at[--sum.rank] = 0;
    all = op_reshape(b, all, &sum);
    IndexAttr own = {.axes = {1, {0}}, .size = {1, {((const ExamplesAttr *)a->node->attr)->size}}};
    for (int d = 0; d + 1 < sum.rank; d++) {
        dims_push(&own.table, d + 1);
        dims_push(&own.ids, -1);
    }
    a->din[0] = build_op(b, OP_GATHER, (Val[]){all, a->in[1]}, 2, &own);
}

static void batch(Build *b, const BatchArgs *a) {
    const ExamplesAttr *attr = a->node->attr;
    Val all = batch_operand(b, a, 0);
    if (a->name == attr->name) { /* this is it: the same for every example */
        a->out[0] = all;
        a->same[0] = true;
        return;
    }
    Val v = build_op(b, a->node->op, (Val[]){all, a->in[1]}, 2, attr);
    a->out[0] = batch_to_front(b, v, 1);
}

const OpDef op_row_GATHER_EXAMPLES = {
    .name = "gather_examples",
    .operands = "x,index",
    .doc = "the x of all examples of the vmap of that name, of which this is number index",
    .nin = 2,
    .nout = 1,
    .flags = OPF_PLACEHOLDER | OPF_INTERNAL,
    OP_ATTR(ExamplesAttr, fields),
    .shape = shape,
    .vjp = vjp,
    .batch = batch,
    .factors = factors,
    .linear = 1,
};
