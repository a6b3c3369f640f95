/* index.c - elements by number, and lines in order. */
#include "op/op.h"

#define CT (a->ct)

static const char *const outside_words[] = {"error", "drop", "clip", "wrap", "strict", NULL};
static const char *const set_words[] = {"set", "add", NULL};
static const char *const combine_words[] = {"set", "add", "mul", "max", "min", NULL};

#define OUTSIDE                                                                                    \
    { "outside", ATTR_ENUM, offsetof(IndexAttr, outside), outside_words }
static const AttrField gather_fields[] = {ATTR_FIELD(IndexAttr, ATTR_DIMS, axes),
                                          ATTR_FIELD(IndexAttr, ATTR_DIMS, table),
                                          ATTR_FIELD(IndexAttr, ATTR_DIMS, ids),
                                          ATTR_FIELD(IndexAttr, ATTR_SHAPE, size),
                                          OUTSIDE,
                                          {0}};
static const AttrField scatter_add_fields[] = {
    ATTR_FIELD(IndexAttr, ATTR_DIMS, axes),  ATTR_FIELD(IndexAttr, ATTR_DIMS, table),
    ATTR_FIELD(IndexAttr, ATTR_DIMS, ids),   ATTR_FIELD(IndexAttr, ATTR_SHAPE, size),
    ATTR_FIELD(IndexAttr, ATTR_SHAPE, rows), OUTSIDE,
    ATTR_FIELD(IndexAttr, ATTR_FLAG, wide),  {0}};
#define SCATTER_FIELDS(words)                                                                      \
    {                                                                                              \
        ATTR_FIELD(IndexAttr, ATTR_DIMS, axes), ATTR_FIELD(IndexAttr, ATTR_DIMS, table),           \
            ATTR_FIELD(IndexAttr, ATTR_DIMS, ids), ATTR_FIELD(IndexAttr, ATTR_SHAPE, size),        \
            OUTSIDE, {"combine", ATTR_ENUM, offsetof(IndexAttr, combine), words}, {                \
            0                                                                                      \
        }                                                                                          \
    }
static const AttrField scatter_fields[] = SCATTER_FIELDS(set_words);
static const AttrField scatter_reduce_fields[] = SCATTER_FIELDS(combine_words);

/* ---- shapes --------------------------------------------------------------------------------- */
/* The dims of ids that are not the axes' own. */
static int id_rank(const IndexAttr *t, const Dims *ids) {
    return ids->rank - (t->axes.rank > 1);
}

static bool mark(uint32_t *seen, int64_t dim, int rank) {
    bool fresh = dim >= 0 && dim < rank && !(*seen >> dim & 1);
    if (fresh) *seen |= 1u << dim;
    return fresh;
}

/* Do axes and lists name every dim of x and of the ids once? */
static bool names_all(const IndexAttr *t, int rank, int nids) {
    uint32_t x = 0, ids = 0;
    if (t->axes.rank < 1 || t->size.rank != t->axes.rank || t->table.rank != t->ids.rank)
        return false;
    for (int k = 0; k < t->axes.rank; k++)
        if (!mark(&x, t->axes.at[k], rank)) return false;
    for (int d = 0; d < t->table.rank; d++) {
        if (t->table.at[d] < 0 && t->ids.at[d] < 0) return false;
        if (t->table.at[d] >= 0 && !mark(&x, t->table.at[d], rank)) return false;
        if (t->ids.at[d] >= 0 && !mark(&ids, t->ids.at[d], nids)) return false;
    }
    return nids >= 0 && x == (1u << rank) - 1 && ids == (1u << nids) - 1;
}

static Err check_index(const OpArgs *a, int ids, int rank) {
    const IndexAttr *t = a->attr;
    const Type *type = a->in[ids];
    if (type->dtype != DT_I32)
        return op_error(a, E_DTYPE, "the ids must be int32, not %s; ids:astype \"int32\"",
                        dtype_name(type->dtype));
    if (!names_all(t, rank, id_rank(t, &type->dims)))
        return op_error(a, E_SHAPE, "axes, table and ids must name every dim of x and ids once");
    if (t->axes.rank > 1 && type->dims.at[type->dims.rank - 1] != t->axes.rank)
        return op_error(a, E_SHAPE, "the last dim of the ids must have one for each of %d axes",
                        t->axes.rank);
    for (int k = 0; k < t->size.rank; k++)
        if (t->size.at[k] < 0)
            return op_error(a, E_SHAPE, "an axis of %lld", (long long)t->size.at[k]);
    return E_OK;
}

/* The dims of gather's result, of updates. */
static Err row_dims(const OpArgs *a, const Dims *x, const Dims *ids, Dims *rows) {
    const IndexAttr *t = a->attr;
    for (int d = 0; d < t->table.rank; d++) {
        int of_x = (int)t->table.at[d], of_ids = (int)t->ids.at[d];
        if (of_x >= 0 && of_ids >= 0 && x->at[of_x] != ids->at[of_ids])
            return op_error(a, E_SHAPE, "dim %d of the ids is not dim %d of x", of_ids + 1,
                            of_x + 1);
        dims_push(rows, of_x >= 0 ? x->at[of_x] : ids->at[of_ids]);
    }
    return E_OK;
}

static Err shape_gather(const OpArgs *a, OutType *out, int *nout) {
    TRY(check_index(a, 1, a->in[0]->dims.rank));
    out[0] = (OutType){.dtype = a->in[0]->dtype};
    return row_dims(a, &a->in[0]->dims, &a->in[1]->dims, &out[0].dims);
}

static Err shape_scatter_add(const OpArgs *a, OutType *out, int *nout) {
    const IndexAttr *t = a->attr;
    const Dims *ids = &a->in[0]->dims, *updates = &a->in[1]->dims;
    DType dtype = a->in[1]->dtype;
    int rank = t->axes.rank;
    for (int d = 0; d < t->table.rank; d++) rank += t->table.at[d] >= 0;
    if (rank > MAX_RANK) return op_error(a, E_SHAPE, "the result would have rank %d", rank);
    TRY(check_index(a, 0, rank));
    if (updates->rank != t->table.rank || t->rows.rank != t->axes.rank)
        return op_error(a, E_SHAPE, "the updates must have rank %d", t->table.rank);
    out[0] = (OutType){.dtype = t->wide ? dtype_accumulator(dtype) : dtype, .dims = {.rank = rank}};
    for (int d = 0; d < updates->rank; d++) {
        int of_ids = (int)t->ids.at[d];
        if (of_ids >= 0 && updates->at[d] != ids->at[of_ids])
            return op_error(a, E_SHAPE, "dim %d of the updates is not dim %d of the ids", d + 1,
                            of_ids + 1);
        if (t->table.at[d] >= 0) out[0].dims.at[t->table.at[d]] = updates->at[d];
    }
    for (int k = 0; k < t->axes.rank; k++) {
        if (t->rows.at[k] < 0)
            return op_error(a, E_SHAPE, "a table of %lld rows", (long long)t->rows.at[k]);
        out[0].dims.at[t->axes.at[k]] = t->rows.at[k];
    }
    return E_OK;
}

static Err shape_scatter(const OpArgs *a, OutType *out, int *nout) {
    const IndexAttr *t = a->attr;
    Dims want = {0};
    TRY(check_index(a, 1, a->in[0]->dims.rank));
    if (a->in[0]->dtype != a->in[2]->dtype) return op_error(a, E_DTYPE, "dtypes differ");
    if (!a->def->linear && t->combine <= K_ADD)
        return op_error(a, E_VALUE, "set and add are scatter's");
    TRY(row_dims(a, &a->in[0]->dims, &a->in[1]->dims, &want));
    if (!dims_equal(&want, &a->in[2]->dims))
        return op_error(a, E_SHAPE, "the updates must have x's dims with the ids' for the axes");
    out[0] = (OutType){.dtype = a->in[0]->dtype, .dims = a->in[0]->dims};
    return E_OK;
}

/* ---- sharding ------------------------------------------------------------------------------- */
typedef struct Tensors {    /* their numbers; -1: there is none */
    int x, ids, rows, also; /* also: one that lies as x */
    FactorKind axis, id;    /* along the axes, and along dims of ids alone */
} Tensors;

/* An x that is split along an axis holds other rows on each device. */
static void map_index(FactorRule *r, const IndexAttr *t, Tensors n, const Dims *x, const Dims *ids,
                      const Dims *rows) {
    int lies[] = {n.x, n.also};
    for (int d = 0; d < rows->rank; d++) {
        int of_x = (int)t->table.at[d], of_ids = (int)t->ids.at[d];
        int f = factor_add(r, of_x >= 0 ? FACTOR_PASS : n.id, rows->at[d]);
        for (int k = 0; k < 2; k++)
            if (of_x >= 0 && lies[k] >= 0) factor_map(r, lies[k], of_x, f);
        if (of_ids >= 0) factor_map(r, n.ids, of_ids, f);
        factor_map(r, n.rows, d, f);
    }
    for (int i = 0; i < t->axes.rank; i++) {
        int f = factor_add(r, n.axis, x->at[t->axes.at[i]]);
        for (int k = 0; k < 2; k++)
            if (lies[k] >= 0) factor_map(r, lies[k], (int)t->axes.at[i], f);
    }
    if (t->axes.rank > 1)
        factor_map(r, n.ids, ids->rank - 1, factor_add(r, FACTOR_REPLICATE, t->axes.rank));
}

/* Rows that a device has not count as zeros. */
static void factors_gather(const OpArgs *a, const Type *const *out, FactorRule *r) {
    map_index(r, a->attr, (Tensors){0, 1, 2, -1, FACTOR_SUM, FACTOR_PASS}, &a->in[0]->dims,
              &a->in[1]->dims, &out[0]->dims);
}

static void factors_scatter_add(const OpArgs *a, const Type *const *out, FactorRule *r) {
    map_index(r, a->attr, (Tensors){2, 0, 1, -1, FACTOR_PASS, FACTOR_SUM}, &out[0]->dims,
              &a->in[0]->dims, &a->in[1]->dims);
}

/* Each device changes the rows that it has. x counts once, and which update of a row is last only
 * who sees all ids can tell; a maximum may have x in it on every device. */
static void factors_scatter(const OpArgs *a, const Type *const *out, FactorRule *r) {
    static const FactorKind kind[] = {[K_MAX] = FACTOR_MAX, [K_MIN] = FACTOR_MIN};
    int combine = ((const IndexAttr *)a->attr)->combine;
    FactorKind id = combine >= K_MAX ? kind[combine] : FACTOR_REPLICATE;
    map_index(r, a->attr, (Tensors){0, 1, 2, 3, FACTOR_PASS, id}, &a->in[0]->dims, &a->in[1]->dims,
              &a->in[2]->dims);
}

/* Ids outside that are left out, or led elsewhere, are no fault. */
static bool faults_index(const void *attr) {
    const IndexAttr *t = attr;
    bool leads = t->outside == K_CLIP || t->outside == K_WRAP;
    for (int k = 0; k < t->size.rank; k++) leads &= t->size.at[k] > 0;
    return t->outside != K_DROP && !leads;
}

static void first_rows(LocalArgs *a, const Layout *l, const Type *type) {
    const IndexAttr *t = a->attr;
    for (int k = 0; k < t->axes.rank; k++)
        a->offset[k] = op_local_offset(l, &type->dims, (int)t->axes.at[k]);
    a->noffset = t->axes.rank;
}

static void local_of_x(LocalArgs *a) {
    first_rows(a, a->in_layout[0], a->in[0]);
}

static void local_scatter_add(LocalArgs *a) {
    IndexAttr *t = a->attr;
    Dims local = layout_local(a->out_layout[0], &a->out[0]->dims);
    first_rows(a, a->out_layout[0], a->out[0]);
    for (int k = 0; k < t->axes.rank; k++) t->rows.at[k] = local.at[t->axes.at[k]];
}

static void lower_as(const IndexAttr *t, int combine, KIndex *k) {
    *k = (KIndex){.naxes = t->axes.rank, .outside = t->outside, .combine = combine};
    for (int i = 0; i < t->axes.rank; i++) {
        k->size[i] = t->size.at[i];
        k->axes[i] = (int8_t)t->axes.at[i];
    }
    for (int d = 0; d < t->table.rank; d++) {
        k->table[d] = (int8_t)t->table.at[d];
        k->ids[d] = (int8_t)t->ids.at[d];
    }
}

static void lower_index(const OpArgs *a, const Type *const *out, void *kernel_attr) {
    lower_as(a->attr, ((const IndexAttr *)a->attr)->combine, kernel_attr);
}
static void lower_scatter_add(const OpArgs *a, const Type *const *out, void *kernel_attr) {
    lower_as(a->attr, K_ADD, kernel_attr);
}

/* ---- examples: one more dim in front, which those that are mapped share ---------------------- */
static void shift(Dims *list) {
    for (int d = 0; d < list->rank; d++) list->at[d] += list->at[d] >= 0;
}

/* The operands by number; -1: there is none. */
static void batch_index(Build *b, const BatchArgs *a, int x, int ids, int rows) {
    IndexAttr t = *(const IndexAttr *)a->node->attr;
    Val in[3];
    bool x_mapped = rows >= 0 || a->mapped[x], ids_mapped = a->mapped[ids];
    for (int i = 0; i < a->node->nin; i++)
        in[i] =
            a->mapped[i] || i == rows || (i == x && x_mapped) ? batch_operand(b, a, i) : a->in[i];
    if (x_mapped) {
        shift(&t.axes);
        shift(&t.table);
    }
    if (ids_mapped) shift(&t.ids);
    dims_insert(&t.table, 0, x_mapped ? 0 : -1);
    dims_insert(&t.ids, 0, ids_mapped ? 0 : -1);
    batch_apply(b, a, in, &t);
}

static void batch_gather(Build *b, const BatchArgs *a) {
    batch_index(b, a, 0, 1, -1);
}
static void batch_scatter_add(Build *b, const BatchArgs *a) {
    batch_index(b, a, -1, 0, 1);
}
static void batch_scatter(Build *b, const BatchArgs *a) {
    batch_index(b, a, 0, 1, 2);
}

/* ---- gradients ------------------------------------------------------------------------------ */
static Val gather_as(Build *b, const IndexAttr *t, Val x, Val ids) {
    IndexAttr g = *t;
    g.combine = g.wide = 0;
    g.rows = (Dims){0};
    return build_op(b, OP_GATHER, (Val[]){x, ids}, 2, &g);
}

static Val scatter_as(Build *b, const IndexAttr *t, int combine, Val x, Val ids, Val updates) {
    IndexAttr s = *t;
    s.combine = combine;
    return build_op(b, combine <= K_ADD ? OP_SCATTER : OP_SCATTER_REDUCE, (Val[]){x, ids, updates},
                    3, &s);
}

static void vjp_gather(Build *b, const VjpArgs *a) {
    IndexAttr t = *(const IndexAttr *)a->node->attr;
    t.rows = t.size;
    a->din[0] = build_op(b, OP_SCATTER_ADD, (Val[]){a->in[1], CT[0]}, 2, &t);
}

static void vjp_scatter_add(Build *b, const VjpArgs *a) {
    a->din[1] = gather_as(b, a->node->attr, CT[0], a->in[0]);
    a->din[1] = op_astype(b, a->din[1], op_dtype(b, a->in[1]));
}

/* Which updates are the last of their row, as a mask of the updates' dims: found by setting the
 * ids' numbers instead of updates. */
static Val last_of_row(Build *b, Val x, Val ids, Val updates, const IndexAttr *t) {
    Dims x_dims = op_dims(b, x), rows = op_dims(b, updates), dims = op_dims(b, ids), at = {0};
    IndexAttr w = {.size = t->size, .outside = t->outside};
    Dims table = {0}, all = {.rank = 1, .at = {1}};
    dims.rank = id_rank(t, &dims);
    w.table.rank = w.ids.rank = at.rank = dims.rank;
    for (int d = 0; d < rows.rank; d++) {
        int i = (int)t->ids.at[d];
        if (i < 0) continue;
        at.at[i] = d;
        w.ids.at[i] = i;
        w.table.at[i] = t->table.at[d] >= 0 ? table.rank : -1;
        if (t->table.at[d] >= 0) dims_push(&table, rows.at[d]);
        all.at[0] *= rows.at[d];
    }
    for (int k = 0; k < t->axes.rank; k++) {
        dims_push(&w.axes, table.rank);
        dims_push(&table, x_dims.at[t->axes.at[k]]);
    }
    Val number = build_op(b, OP_IOTA, NULL, 0, &(IotaAttr){DT_I32, all, 0});
    number = op_reshape(b, number, &dims);
    Val none = op_full(b, DT_I32, &table, attr_scalar_int(0));
    Val last = scatter_as(b, &w, K_SET, none, ids, number);
    return op_broadcast(b, op2(b, OP_EQ, gather_as(b, &w, last, ids), number), &rows, &at);
}

static void vjp_set(Build *b, const VjpArgs *a) {
    const IndexAttr *t = a->node->attr;
    Val zeros = op_const_like(b, a->in[2], 0);
    a->din[0] = scatter_as(b, t, K_SET, CT[0], a->in[1], zeros);
    if (!(a->wanted >> 2 & 1)) return;
    Val last = last_of_row(b, a->in[0], a->in[1], a->in[2], t);
    a->din[2] = op3(b, OP_WHERE, last, gather_as(b, t, CT[0], a->in[1]), zeros);
}

static void vjp_scatter(Build *b, const VjpArgs *a) {
    const IndexAttr *t = a->node->attr;
    if (t->combine == K_SET) {
        vjp_set(b, a);
        return;
    }
    a->din[0] = CT[0];
    a->din[2] = gather_as(b, t, CT[0], a->in[1]);
}

/* The derivative of a product by one factor is the product of the others: where none is 0 all of
 * them by it, where it is the only 0 that of the rest. */
static void vjp_mul(Build *b, const VjpArgs *a) {
    const IndexAttr *t = a->node->attr;
    Val ids = a->in[1], v[2] = {a->in[0], a->in[2]}, is_0[2], not_0[2], count[2];
    for (int k = 0; k < 2; k++) {
        is_0[k] = op2(b, OP_EQ, v[k], op_const_like(b, v[k], 0));
        not_0[k] = op3(b, OP_WHERE, is_0[k], op_const_like(b, v[k], 1), v[k]);
        count[k] = op_astype(b, is_0[k], op_dtype(b, v[k]));
    }
    Val zeros = scatter_as(b, t, K_ADD, count[0], ids, count[1]);
    Val rest = op2(b, OP_MUL, CT[0], scatter_as(b, t, K_MUL, not_0[0], ids, not_0[1]));
    Val nothing = op_const_like(b, rest, 0), by[2];
    for (int n = 0; n < 2; n++)
        by[n] = op3(b, OP_WHERE, op2(b, OP_EQ, zeros, op_const_like(b, zeros, n)), rest, nothing);
    for (int k = 0; k < 2; k++) {
        Val of[2];
        for (int n = 0; n < 2; n++) of[n] = k ? gather_as(b, t, by[n], ids) : by[n];
        a->din[2 * k] = op3(b, OP_WHERE, is_0[k], of[1], op2(b, OP_DIV, of[0], not_0[k]));
    }
}

/* A maximum's cotangent goes to all that are it, in equal parts. */
static void vjp_scatter_reduce(Build *b, const VjpArgs *a) {
    const IndexAttr *t = a->node->attr;
    Val x = a->in[0], ids = a->in[1], updates = a->in[2], y = a->out[0];
    if (t->combine == K_MUL) {
        vjp_mul(b, a);
        return;
    }
    DType dtype = op_dtype(b, x);
    Val x_is = op_astype(b, op2(b, OP_EQ, x, y), dtype);
    Val update_is = op_astype(b, op2(b, OP_EQ, updates, gather_as(b, t, y, ids)), dtype);
    Val part = op2(b, OP_DIV, CT[0], scatter_as(b, t, K_ADD, x_is, ids, update_is));
    a->din[0] = op2(b, OP_MUL, x_is, part);
    a->din[2] = op2(b, OP_MUL, update_is, gather_as(b, t, part, ids));
}

/* ---- rows ----------------------------------------------------------------------------------- */
const OpDef op_row_GATHER = {
    .name = "gather",
    .faults = faults_index,
    .operands = "x,ids",
    .doc = "elements, or rows, of a tensor by 0-based ids along one axis or several",
    .nin = 2,
    .nout = 1,
    .flags = OPF_FAULTS,
    OP_ATTR(IndexAttr, gather_fields),
    .shape = shape_gather,
    .vjp = vjp_gather,
    .batch = batch_gather,
    .factors = factors_gather,
    .local = local_of_x,
    .flops = op_no_flops,
    .kernel = "gather",
    OP_LOWER(KIndex, lower_index),
    .linear = 1,
};

const OpDef op_row_SCATTER_ADD = {
    .name = "scatter_add",
    .faults = faults_index,
    .operands = "ids,updates",
    .doc = "zeros with the updates added where their ids say",
    .nin = 2,
    .nout = 1,
    .flags = OPF_FAULTS,
    OP_ATTR(IndexAttr, scatter_add_fields),
    .shape = shape_scatter_add,
    .vjp = vjp_scatter_add,
    .batch = batch_scatter_add,
    .factors = factors_scatter_add,
    .local = local_scatter_add,
    .flops = op_no_flops,
    .kernel = "scatter_add",
    OP_LOWER(KIndex, lower_scatter_add),
    .linear = 2,
    .wide = offsetof(IndexAttr, wide),
};

#define SCATTER                                                                                    \
    .operands = "x,ids,updates", .nin = 3, .nout = 1, .shape = shape_scatter,                      \
    .batch = batch_scatter, .factors = factors_scatter, .local = local_of_x, .flops = op_no_flops, \
    .kernel = "scatter", OP_LOWER(KIndex, lower_index), .alias = {1}, .faults = faults_index

const OpDef op_row_SCATTER = {
    .name = "scatter",
    .doc = "x with updates set, of several of a place the last, or added where their ids say",
    .flags = OPF_FAULTS | OPF_JOINT,
    OP_ATTR(IndexAttr, scatter_fields),
    .vjp = vjp_scatter,
    .linear = 5,
    SCATTER,
};

const OpDef op_row_SCATTER_REDUCE = {
    .name = "scatter_reduce",
    .doc = "x times the updates where their ids say, or the largest or smallest of both",
    .flags = OPF_FAULTS,
    OP_ATTR(IndexAttr, scatter_reduce_fields),
    .vjp = vjp_scatter_reduce,
    SCATTER,
};

typedef struct SortAttr {
    int32_t axis, descending;
} SortAttr;

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
