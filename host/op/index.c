/* index.c - rows by number, and lines in order. */
#include "op/op.h"

#define CT (a->ct)

static const AttrField take_fields[] = {ATTR_FIELD(TakeAttr, ATTR_DIM, axis),
                                        ATTR_FIELD(TakeAttr, ATTR_INT, size),
                                        ATTR_FIELD(TakeAttr, ATTR_FLAG, batched),
                                        {0}};

static Err check_ids(const OpArgs *a, int operand) {
    if (a->in[operand]->dtype != DT_I32)
        return op_error(a, E_DTYPE, "the ids must be int32, not %s; ids:astype \"int32\"",
                        dtype_name(a->in[operand]->dtype));
    return E_OK;
}

/* Table (or updates) and ids of a batched op share their first dim. */
static Err check_batched(const OpArgs *a, int table, int ids) {
    const TakeAttr *t = a->attr;
    const Dims *x = &a->in[table]->dims, *i = &a->in[ids]->dims;
    if (t->batched && (x->rank < 1 || i->rank < 1 || x->at[0] != i->at[0] || t->axis < 1))
        return op_error(a, E_SHAPE, "the examples of table and ids differ");
    return E_OK;
}

/* The dims of take's result, of updates: `table` with those of ids at the axis. */
static Dims row_dims(const TakeAttr *t, const Dims *table, const Dims *ids) {
    Dims rows = {0};
    for (int d = 0; d < t->axis; d++) dims_push(&rows, table->at[d]);
    for (int d = t->batched; d < ids->rank; d++) dims_push(&rows, ids->at[d]);
    for (int d = t->axis + 1; d < table->rank; d++) dims_push(&rows, table->at[d]);
    return rows;
}

/* ---- take ---- */
static Err shape_take(const OpArgs *a, OutType *out, int *nout) {
    const TakeAttr *t = a->attr;
    const Dims *table = &a->in[0]->dims, *ids = &a->in[1]->dims;
    TRY(check_ids(a, 1));
    TRY(op_check_axis(a, t->axis, table->rank));
    TRY(check_batched(a, 0, 1));
    int rank = table->rank - 1 + ids->rank - t->batched;
    if (rank > MAX_RANK) return op_error(a, E_SHAPE, "the result would have rank %d", rank);
    out[0] = (OutType){.dtype = a->in[0]->dtype, .dims = row_dims(t, table, ids)};
    return E_OK;
}

static void vjp_take(Build *b, const VjpArgs *a) {
    TakeAttr t = *(const TakeAttr *)a->node->attr;
    t.rows = t.size;
    a->din[0] = build_op(b, OP_SCATTER_ADD, (Val[]){a->in[1], CT[0]}, 2, &t);
}

/* Between `rows` (take's result, scatter_add's updates), `ids` and `table`, given as tensor
 * numbers. A table split along its axis holds other rows on each device: those it has not count as
 * zeros. */
static void map_take(FactorRule *r, const TakeAttr *t, int table, const Dims *table_dims, int ids,
                     const Dims *ids_dims, int rows, FactorKind along_table, FactorKind along_ids) {
    for (int d = 0; d < table_dims->rank; d++) {
        int f = factor_add(r, d == t->axis ? along_table : FACTOR_PASS, table_dims->at[d]);
        factor_map(r, table, d, f);
        int behind = d - 1 + ids_dims->rank - t->batched;
        if (d != t->axis) factor_map(r, rows, d < t->axis ? d : behind, f);
        if (d < t->batched) factor_map(r, ids, d, f);
    }
    for (int d = t->batched; d < ids_dims->rank; d++) {
        int f = factor_add(r, along_ids, ids_dims->at[d]);
        factor_map(r, ids, d, f);
        factor_map(r, rows, t->axis + d - t->batched, f);
    }
}

static void factors_take(const OpArgs *a, const Type *const *out, FactorRule *r) {
    map_take(r, a->attr, 0, &a->in[0]->dims, 1, &a->in[1]->dims, 2, FACTOR_SUM, FACTOR_PASS);
}

static void table_offset(LocalArgs *a, const Layout *table, const Type *type) {
    int axis = ((const TakeAttr *)a->attr)->axis;
    a->offset[0] = op_local_offset(table, &type->dims, axis);
    a->noffset = 1;
}

static void local_take(LocalArgs *a) {
    table_offset(a, a->in_layout[0], a->in[0]);
}

static void lower_take(const OpArgs *a, const Type *const *out, void *kernel_attr) {
    const TakeAttr *t = a->attr;
    *(KTake *)kernel_attr = (KTake){t->axis - t->batched, t->size, t->batched};
}

/* Examples of a batched op: both are one dim in front. */
static void batch_more(Build *b, const BatchArgs *a) {
    Val in[3];
    for (int i = 0; i < a->node->nin; i++) {
        Dims one = op_dims(b, a->node->in[i]);
        one.at[0] *= a->size;
        in[i] = op_reshape(b, batch_operand(b, a, i), &one);
    }
    batch_apply(b, a, in, a->node->attr);
    Dims dims = op_dims(b, a->node->out);
    dims_insert(&dims, 0, a->size);
    a->out[0] = op_reshape(b, a->out[0], &dims);
}

/* Every example its own ids: one dim that all share, in front. */
static void batch_own_ids(Build *b, const BatchArgs *a) {
    TakeAttr t = *(const TakeAttr *)a->node->attr;
    Val in[3];
    t.axis++;
    t.batched = 1;
    for (int i = 0; i < a->node->nin; i++) in[i] = batch_operand(b, a, i);
    batch_apply(b, a, in, &t);
}

/* `ids`: the number of that operand. */
static void batch_rows(Build *b, const BatchArgs *a, int ids) {
    TakeAttr t = *(const TakeAttr *)a->node->attr;
    if (t.batched) {
        batch_more(b, a);
    } else if (!a->mapped[ids]) {
        Val in[3];
        for (int i = 0; i < a->node->nin; i++) in[i] = i == ids ? a->in[i] : batch_operand(b, a, i);
        t.axis++;
        batch_apply(b, a, in, &t);
    } else {
        batch_own_ids(b, a);
    }
}

static void batch_take(Build *b, const BatchArgs *a) {
    TakeAttr t = *(const TakeAttr *)a->node->attr;
    if (t.batched || a->mapped[0]) {
        batch_rows(b, a, 1);
    } else { /* a table for all: more ids */
        batch_apply(b, a, a->in, &t);
        a->out[0] = batch_to_front(b, a->out[0], t.axis);
    }
}
static void batch_scatter_add(Build *b, const BatchArgs *a) {
    batch_rows(b, a, 0);
}
static void batch_scatter_set(Build *b, const BatchArgs *a) {
    batch_rows(b, a, 1);
}

const OpDef op_row_TAKE = {
    .name = "take",
    .operands = "table,ids",
    .doc = "rows of a table by 0-based id; an id outside the table is an error",
    .nin = 2,
    .nout = 1,
    .flags = OPF_FAULTS,
    OP_ATTR(TakeAttr, take_fields),
    .shape = shape_take,
    .vjp = vjp_take,
    .batch = batch_take,
    .factors = factors_take,
    .local = local_take,
    .flops = op_no_flops,
    .kernel = "take",
    OP_LOWER(KTake, lower_take),
    .linear = 1,
};

/* ---- scatter_add ---- */
static const AttrField scatter_add_fields[] = {
    ATTR_FIELD(TakeAttr, ATTR_DIM, axis),     ATTR_FIELD(TakeAttr, ATTR_INT, size),
    ATTR_FIELD(TakeAttr, ATTR_INT, rows),     ATTR_FIELD(TakeAttr, ATTR_FLAG, wide),
    ATTR_FIELD(TakeAttr, ATTR_FLAG, batched), {0}};

static Err shape_scatter_add(const OpArgs *a, OutType *out, int *nout) {
    const TakeAttr *t = a->attr;
    const Dims *ids = &a->in[0]->dims, *rows = &a->in[1]->dims;
    TRY(check_ids(a, 0));
    TRY(check_batched(a, 1, 0));
    int nids = ids->rank - t->batched;
    if (t->axis < 0 || t->axis + nids > rows->rank)
        return op_error(a, E_SHAPE, "axis %d does not fit the updates", t->axis + 1);
    if (rows->rank - nids + 1 > MAX_RANK)
        return op_error(a, E_SHAPE, "the result would have rank %d", rows->rank - nids + 1);
    if (t->rows < 0 || t->size < 0)
        return op_error(a, E_SHAPE, "a table of %lld rows",
                        (long long)(t->rows < 0 ? t->rows : t->size));
    DType dtype = a->in[1]->dtype;
    out[0] = (OutType){.dtype = t->wide ? dtype_accumulator(dtype) : dtype};
    for (int d = 0; d < rows->rank; d++) {
        int i = d - t->axis;
        if (i == 0) dims_push(&out[0].dims, t->rows);
        if (i >= 0 && i < nids) {
            if (rows->at[d] != ids->at[i + t->batched])
                return op_error(a, E_SHAPE, "dim %d of the updates is not dim %d of the ids", d + 1,
                                i + 1);
        } else {
            dims_push(&out[0].dims, rows->at[d]);
        }
    }
    if (t->axis == rows->rank) dims_push(&out[0].dims, t->rows);
    return E_OK;
}

static void vjp_scatter_add(Build *b, const VjpArgs *a) {
    a->din[1] = build_op(b, OP_TAKE, (Val[]){CT[0], a->in[0]}, 2, a->node->attr);
    a->din[1] = op_astype(b, a->din[1], op_dtype(b, a->in[1]));
}

static void factors_scatter_add(const OpArgs *a, const Type *const *out, FactorRule *r) {
    map_take(r, a->attr, 2, &out[0]->dims, 0, &a->in[0]->dims, 1, FACTOR_PASS, FACTOR_SUM);
}

static void local_scatter_add(LocalArgs *a) {
    TakeAttr *t = a->attr;
    table_offset(a, a->out_layout[0], a->out[0]);
    t->rows = layout_local(a->out_layout[0], &a->out[0]->dims).at[t->axis];
}

const OpDef op_row_SCATTER_ADD = {
    .name = "scatter_add",
    .operands = "ids,updates",
    .doc = "a table of zeros with the updates added to the rows named by their ids",
    .nin = 2,
    .nout = 1,
    .flags = OPF_FAULTS,
    OP_ATTR(TakeAttr, scatter_add_fields),
    .shape = shape_scatter_add,
    .vjp = vjp_scatter_add,
    .batch = batch_scatter_add,
    .factors = factors_scatter_add,
    .local = local_scatter_add,
    .flops = op_no_flops,
    .kernel = "scatter_add",
    OP_LOWER(KTake, lower_take),
    .linear = 2,
    .wide = offsetof(TakeAttr, wide),
};

/* ---- scatter_set ---- */
static Err shape_scatter_set(const OpArgs *a, OutType *out, int *nout) {
    const TakeAttr *t = a->attr;
    const Dims *x = &a->in[0]->dims, *ids = &a->in[1]->dims, *rows = &a->in[2]->dims;
    TRY(check_ids(a, 1));
    TRY(check_batched(a, 0, 1));
    if (a->in[0]->dtype != a->in[2]->dtype) return op_error(a, E_DTYPE, "dtypes differ");
    TRY(op_check_axis(a, t->axis, x->rank));
    int rank = x->rank - 1 + ids->rank - t->batched;
    if (rank > MAX_RANK) return op_error(a, E_SHAPE, "the updates would have rank %d", rank);
    Dims want = row_dims(t, x, ids);
    if (!dims_equal(&want, rows))
        return op_error(a, E_SHAPE, "the updates must have x's dims with the ids' at axis %d",
                        t->axis + 1);
    out[0] = (OutType){.dtype = a->in[0]->dtype, .dims = *x};
    return E_OK;
}

/* An update that a later one of its row has replaced has no gradient: the winner of each row is
 * found by setting positions instead of updates. */
static Val kept_updates(Build *b, Val ids, Val updates, const TakeAttr *t) {
    Dims dims = op_dims(b, ids), one = {.rank = 1 + t->batched}, at = dims;
    Dims rows = op_dims(b, updates);
    int last = t->batched;
    one.at[0] = dims.rank ? dims.at[0] : 0;
    one.at[last] = 1;
    for (int d = last; d < dims.rank; d++) one.at[last] *= dims.at[d];
    Val flat = op_reshape(b, ids, &one);
    Val place = build_op(b, OP_IOTA, NULL, 0, &(IotaAttr){DT_I32, one, last});
    TakeAttr list = {.axis = last, .size = t->size, .rows = t->size, .batched = t->batched};
    one.at[last] = t->size;
    Val table = op_full(b, DT_I32, &one, attr_scalar_int(0));
    Val winner = build_op(b, OP_SCATTER_SET, (Val[]){table, flat, place}, 3, &list);
    Val kept = op2(b, OP_EQ, build_op(b, OP_TAKE, (Val[]){winner, flat}, 2, &list), place);
    for (int d = last; d < at.rank; d++) at.at[d] = t->axis + d - last;
    if (last) at.at[0] = 0;
    return op_broadcast(b, op_reshape(b, kept, &dims), &rows, &at);
}

static void vjp_scatter_set(Build *b, const VjpArgs *a) {
    const TakeAttr *t = a->node->attr;
    Val zeros = op_const_like(b, a->in[2], 0);
    a->din[0] = build_op(b, OP_SCATTER_SET, (Val[]){CT[0], a->in[1], zeros}, 3, t);
    if (!(a->wanted >> 2 & 1)) return;
    Val rows = build_op(b, OP_TAKE, (Val[]){CT[0], a->in[1]}, 2, t);
    a->din[2] = op3(b, OP_WHERE, kept_updates(b, a->in[1], a->in[2], t), rows, zeros);
}

/* Each device sets the rows that it has; which update of a row is last only who sees all ids can
 * tell. */
static void factors_scatter_set(const OpArgs *a, const Type *const *out, FactorRule *r) {
    const TakeAttr *t = a->attr;
    map_take(r, t, 0, &a->in[0]->dims, 1, &a->in[1]->dims, 2, FACTOR_PASS, FACTOR_REPLICATE);
    for (int d = 0; d < a->in[0]->dims.rank; d++) factor_map(r, 3, d, d);
}

const OpDef op_row_SCATTER_SET = {
    .name = "scatter_set",
    .operands = "x,ids,updates",
    .doc = "x with the rows named by 0-based ids replaced; of several updates of a row the last",
    .nin = 3,
    .nout = 1,
    .flags = OPF_FAULTS | OPF_JOINT,
    OP_ATTR(TakeAttr, take_fields),
    .shape = shape_scatter_set,
    .vjp = vjp_scatter_set,
    .batch = batch_scatter_set,
    .factors = factors_scatter_set,
    .local = local_take,
    .flops = op_no_flops,
    .kernel = "scatter_set",
    OP_LOWER(KTake, lower_take),
    .linear = 5,
    .alias = {1},
};

typedef struct SortAttr {
    int32_t axis, descending;
} SortAttr;

/* ---- along an axis: each line of the table has ids of its own ---- */
static const AttrField along_fields[] = {
    ATTR_FIELD(TakeAttr, ATTR_DIM, axis), ATTR_FIELD(TakeAttr, ATTR_INT, size), {0}};
static const AttrField add_along_fields[] = {ATTR_FIELD(TakeAttr, ATTR_DIM, axis),
                                             ATTR_FIELD(TakeAttr, ATTR_INT, size),
                                             ATTR_FIELD(TakeAttr, ATTR_INT, rows),
                                             ATTR_FIELD(TakeAttr, ATTR_FLAG, wide),
                                             {0}};

static Err shape_take_along(const OpArgs *a, OutType *out, int *nout) {
    int axis = ((const TakeAttr *)a->attr)->axis;
    const Dims *x = &a->in[0]->dims, *ids = &a->in[1]->dims;
    TRY(check_ids(a, 1));
    TRY(op_check_axis(a, axis, x->rank));
    if (x->rank != ids->rank)
        return op_error(a, E_SHAPE,
                        "the ids must have x's rank, a dim of size 1 where all share them");
    for (int d = 0; d < x->rank; d++)
        if (d != axis && x->at[d] != ids->at[d])
            return op_error(a, E_SHAPE, "dim %d of the ids is not dim %d of x", d + 1, d + 1);
    out[0] = (OutType){.dtype = a->in[0]->dtype, .dims = *ids};
    return E_OK;
}

static void vjp_take_along(Build *b, const VjpArgs *a) {
    TakeAttr t = *(const TakeAttr *)a->node->attr;
    t.rows = t.size;
    a->din[0] = build_op(b, OP_ADD_ALONG_AXIS, (Val[]){a->in[1], CT[0]}, 2, &t);
}

/* As map_take: of tensors that differ in size along the axis alone. */
static void map_along(FactorRule *r, int axis, int table, const Dims *table_dims, int ids, int rows,
                      const Dims *row_dims, FactorKind along_table, FactorKind along_ids) {
    for (int d = 0; d < row_dims->rank; d++) {
        int f = factor_add(r, d == axis ? along_table : FACTOR_PASS, table_dims->at[d]);
        factor_map(r, table, d, f);
        if (d == axis) f = factor_add(r, along_ids, row_dims->at[d]);
        factor_map(r, ids, d, f);
        factor_map(r, rows, d, f);
    }
}

static void factors_take_along(const OpArgs *a, const Type *const *out, FactorRule *r) {
    map_along(r, ((const TakeAttr *)a->attr)->axis, 0, &a->in[0]->dims, 1, 2, &out[0]->dims,
              FACTOR_SUM, FACTOR_PASS);
}

const OpDef op_row_TAKE_ALONG_AXIS = {
    .name = "take_along_axis",
    .operands = "x,ids",
    .doc = "of each line along an axis the elements at 0-based ids; one outside is an error",
    .nin = 2,
    .nout = 1,
    .flags = OPF_FAULTS,
    OP_ATTR(TakeAttr, along_fields),
    .shape = shape_take_along,
    .vjp = vjp_take_along,
    .batch = batch_leading,
    .factors = factors_take_along,
    .local = local_take,
    .flops = op_no_flops,
    .kernel = "take_along_axis",
    OP_LOWER(KTake, lower_take),
    .linear = 1,
};

static Err shape_add_along(const OpArgs *a, OutType *out, int *nout) {
    const TakeAttr *t = a->attr;
    const Dims *ids = &a->in[0]->dims, *updates = &a->in[1]->dims;
    DType dtype = a->in[1]->dtype;
    TRY(check_ids(a, 0));
    TRY(op_check_axis(a, t->axis, ids->rank));
    if (!dims_equal(ids, updates)) return op_error(a, E_SHAPE, "shapes differ");
    if (t->rows < 0 || t->size < 0)
        return op_error(a, E_SHAPE, "a line of %lld elements",
                        (long long)(t->rows < 0 ? t->rows : t->size));
    out[0] = (OutType){.dtype = t->wide ? dtype_accumulator(dtype) : dtype, .dims = *ids};
    out[0].dims.at[t->axis] = t->rows;
    return E_OK;
}

static void vjp_add_along(Build *b, const VjpArgs *a) {
    Val rows = build_op(b, OP_TAKE_ALONG_AXIS, (Val[]){CT[0], a->in[0]}, 2, a->node->attr);
    a->din[1] = op_astype(b, rows, op_dtype(b, a->in[1]));
}

static void factors_add_along(const OpArgs *a, const Type *const *out, FactorRule *r) {
    map_along(r, ((const TakeAttr *)a->attr)->axis, 2, &out[0]->dims, 0, 1, &a->in[1]->dims,
              FACTOR_PASS, FACTOR_SUM);
}

const OpDef op_row_ADD_ALONG_AXIS = {
    .name = "add_along_axis",
    .operands = "ids,updates",
    .doc = "lines of zeros along an axis with the updates added at their ids",
    .nin = 2,
    .nout = 1,
    .flags = OPF_FAULTS | OPF_INTERNAL,
    OP_ATTR(TakeAttr, add_along_fields),
    .shape = shape_add_along,
    .vjp = vjp_add_along,
    .batch = batch_leading,
    .factors = factors_add_along,
    .local = local_scatter_add,
    .flops = op_no_flops,
    .kernel = "add_along_axis",
    OP_LOWER(KTake, lower_take),
    .linear = 2,
    .wide = offsetof(TakeAttr, wide),
};

/* ---- sort ---- */
static const AttrField sort_fields[] = {
    ATTR_FIELD(SortAttr, ATTR_DIM, axis), ATTR_FIELD(SortAttr, ATTR_BOOL, descending), {0}};

static Err shape_sort(const OpArgs *a, OutType *out, int *nout) {
    int axis = ((const SortAttr *)a->attr)->axis;
    (void)nout; /* as many as there are operands: -1 in the row */
    if (a->nin == 0) return err_set(a->cx, E_VALUE, "sort: no tensors");
    TRY(op_check_axis(a, axis, a->in[0]->dims.rank));
    for (int i = 0; i < a->nin; i++) {
        if (!dims_equal(&a->in[i]->dims, &a->in[0]->dims))
            return op_error(a, E_SHAPE, "shapes differ");
        out[i] = (OutType){a->in[i]->dtype, false, a->in[i]->dims};
    }
    return E_OK;
}

/* The cotangents go back by sorting them by where their elements came from. */
static void vjp_sort(Build *b, const VjpArgs *a) {
    const SortAttr *s = a->node->attr;
    Dims dims = op_dims(b, a->in[0]);
    Val place = build_op(b, OP_IOTA, NULL, 0, &(IotaAttr){DT_I32, dims, s->axis});
    Val sorted = build_op(b, OP_SORT, (Val[]){a->in[0], place}, 2, s);
    for (int i = 0; sorted && i < a->node->nin; i++) {
        if (!CT[i] || !dtype_is_float(op_dtype(b, a->in[i]))) continue;
        Val back = build_op(b, OP_SORT, (Val[]){sorted + 1, CT[i]}, 2, &(SortAttr){s->axis, 0});
        a->din[i] = back ? back + 1 : 0;
    }
}

static void factors_sort(const OpArgs *a, const Type *const *out, FactorRule *r) {
    int axis = ((const SortAttr *)a->attr)->axis;
    for (int d = 0; d < out[0]->dims.rank; d++) {
        int f = factor_add(r, d == axis ? FACTOR_REPLICATE : FACTOR_PASS, out[0]->dims.at[d]);
        for (int t = 0; t < r->ntensor; t++) factor_map(r, t, d, f);
    }
}

static void lower_sort(const OpArgs *a, const Type *const *out, void *kernel_attr) {
    const SortAttr *s = a->attr;
    *(KSort *)kernel_attr = (KSort){s->axis, s->descending};
}

const OpDef op_row_SORT = {
    .name = "sort",
    .operands = "keys,values",
    .doc = "lines along an axis in the order of their keys, stable; NaN last",
    .nin = -1,
    .nout = -1,
    OP_ATTR(SortAttr, sort_fields),
    .shape = shape_sort,
    .vjp = vjp_sort,
    .batch = batch_leading,
    .factors = factors_sort,
    .flops = op_no_flops,
    .kernel = "sort",
    OP_LOWER(KSort, lower_sort),
};

/* ---- top_k ---- */
typedef struct TopKAttr {
    int64_t k;
    int32_t axis;
} TopKAttr;

static const AttrField top_k_fields[] = {
    ATTR_FIELD(TopKAttr, ATTR_INT, k), ATTR_FIELD(TopKAttr, ATTR_DIM, axis), {0}};

static Err shape_top_k(const OpArgs *a, OutType *out, int *nout) {
    const TopKAttr *t = a->attr;
    const Dims *x = &a->in[0]->dims;
    TRY(op_check_axis(a, t->axis, x->rank));
    if (t->k < 0 || t->k > x->at[t->axis])
        return op_error(a, E_SHAPE, "the %lld largest of %lld", (long long)t->k,
                        (long long)x->at[t->axis]);
    out[0] = (OutType){.dtype = a->in[0]->dtype, .dims = *x};
    out[0].dims.at[t->axis] = t->k;
    out[1] = (OutType){.dtype = DT_I32, .dims = out[0].dims};
    return E_OK;
}

/* Each cotangent goes back to the place that its id names: a sum over k of what hits. */
static void vjp_top_k(Build *b, const VjpArgs *a) {
    int axis = ((const TopKAttr *)a->node->attr)->axis;
    Dims x = op_dims(b, a->in[0]), y = op_dims(b, a->out[0]), wide = {0}, at = {0};
    if (!CT[0] || !dtype_is_float(op_dtype(b, a->in[0]))) return;
    if (x.rank == MAX_RANK) {
        build_fail(b,
                   err_set(b->g->cx, E_SHAPE, "top_k: no gradient of a tensor of rank %d", x.rank));
        return;
    }
    for (int d = 0; d < x.rank; d++) { /* [..., k, n, ...] */
        dims_push(&at, wide.rank);
        dims_push(&wide, y.at[d]);
        if (d == axis) dims_push(&wide, x.at[d]);
    }
    Val place = build_op(b, OP_IOTA, NULL, 0, &(IotaAttr){DT_I32, wide, axis + 1});
    Val hit = op2(b, OP_EQ, place, op_broadcast(b, a->out[1], &wide, &at));
    Val spread = op_broadcast(b, CT[0], &wide, &at);
    Val sums = op_reduce(b, OP_SUM, op3(b, OP_WHERE, hit, spread, op_const_like(b, spread, 0)),
                         &(Dims){.rank = 1, .at = {axis}});
    a->din[0] = op_reshape(b, sums, &x);
}

static void factors_top_k(const OpArgs *a, const Type *const *out, FactorRule *r) {
    int axis = ((const TopKAttr *)a->attr)->axis;
    const Dims *x = &a->in[0]->dims;
    for (int d = 0; d < x->rank; d++) {
        int f = factor_add(r, d == axis ? FACTOR_REPLICATE : FACTOR_PASS, x->at[d]);
        for (int t = 0; t < (d == axis ? 1 : 3); t++) factor_map(r, t, d, f);
    }
}

static void lower_top_k(const OpArgs *a, const Type *const *out, void *kernel_attr) {
    *(KTopK *)kernel_attr = (KTopK){((const TopKAttr *)a->attr)->axis};
}

const OpDef op_row_TOP_K = {
    .name = "top_k",
    .operands = "x",
    .doc = "the k largest along an axis, falling, and their 0-based places; NaN is above all",
    .nin = 1,
    .nout = 2,
    OP_ATTR(TopKAttr, top_k_fields),
    .shape = shape_top_k,
    .vjp = vjp_top_k,
    .batch = batch_leading,
    .factors = factors_top_k,
    .flops = op_no_flops,
    .kernel = "top_k",
    OP_LOWER(KTopK, lower_top_k),
};
