/* contract.c - matmul: sums of products over paired dims, with batch dims (a general dot product).
 * Result dims: batch, then what is free in x, then what is free in w. All lists of dims ascend, so
 * that dims of one role correspond in order in every tensor. */
#include "op/op.h"

static const AttrField fields[] = {
    ATTR_FIELD(MatmulAttr, ATTR_DIMS, x_contract), ATTR_FIELD(MatmulAttr, ATTR_DIMS, w_contract),
    ATTR_FIELD(MatmulAttr, ATTR_DIMS, x_batch),    ATTR_FIELD(MatmulAttr, ATTR_DIMS, w_batch),
    ATTR_FIELD(MatmulAttr, ATTR_FLAG, wide),       {0}};

static bool is_free(const Dims *contract, const Dims *batch, int d) {
    return !dims_has(contract, d) && !dims_has(batch, d);
}

static bool ascending(const Dims *d) {
    for (int i = 1; i < d->rank; i++)
        if (d->at[i] <= d->at[i - 1]) return false;
    return true;
}

static Err check_pairs(const OpArgs *a, const Dims *p, const Dims *q, const char *what) {
    const Dims *x = &a->in[0]->dims, *w = &a->in[1]->dims;
    if (p->rank != q->rank) return op_error(a, E_SHAPE, "%s dims are not pairs", what);
    if (!ascending(p) || !ascending(q))
        return op_error(a, E_SHAPE, "%s dims must ascend; transpose an operand", what);
    for (int i = 0; i < p->rank; i++) {
        if (p->at[i] < 0 || p->at[i] >= x->rank || q->at[i] < 0 || q->at[i] >= w->rank)
            return op_error(a, E_SHAPE, "%s dim outside the tensor", what);
        if (x->at[p->at[i]] != w->at[q->at[i]])
            return op_error(a, E_SHAPE, "%s dims %lld and %lld differ", what,
                            (long long)x->at[p->at[i]], (long long)w->at[q->at[i]]);
    }
    return E_OK;
}

static Err shape(const OpArgs *a, OutType *out, int *nout) {
    const MatmulAttr *m = a->attr;
    const Dims *x = &a->in[0]->dims, *w = &a->in[1]->dims;
    TRY(check_pairs(a, &m->x_contract, &m->w_contract, "inner"));
    TRY(check_pairs(a, &m->x_batch, &m->w_batch, "batch"));
    for (int i = 0; i < m->x_batch.rank; i++)
        if (dims_has(&m->x_contract, (int)m->x_batch.at[i]) ||
            dims_has(&m->w_contract, (int)m->w_batch.at[i]))
            return op_error(a, E_SHAPE, "a dim is both an inner and a batch dim");
    if (a->in[0]->dtype != a->in[1]->dtype) return op_error(a, E_DTYPE, "dtypes differ");
    if (a->in[0]->dtype == DT_BOOL) return op_error(a, E_DTYPE, "takes numbers, not bool");
    int rank = x->rank + w->rank - 2 * m->x_contract.rank - m->x_batch.rank;
    if (rank > MAX_RANK) return op_error(a, E_SHAPE, "the result would have rank %d", rank);
    DType dtype = a->in[0]->dtype;
    out[0] = (OutType){.dtype = m->wide ? dtype_accumulator(dtype) : dtype};
    for (int i = 0; i < m->x_batch.rank; i++) dims_push(&out[0].dims, x->at[m->x_batch.at[i]]);
    for (int d = 0; d < x->rank; d++)
        if (is_free(&m->x_contract, &m->x_batch, d)) dims_push(&out[0].dims, x->at[d]);
    for (int d = 0; d < w->rank; d++)
        if (is_free(&m->w_contract, &m->w_batch, d)) dims_push(&out[0].dims, w->at[d]);
    return E_OK;
}

/* One side of a product: its dims by role, in the order in which the result has them. */
typedef struct Side {
    const Dims *contract, *batch;
    int rank;
    Dims free;
} Side;

static Side side_of(const Dims *contract, const Dims *batch, int rank) {
    Side s = {contract, batch, rank, {0}};
    for (int d = 0; d < rank; d++)
        if (is_free(contract, batch, d)) dims_push(&s.free, d);
    return s;
}

/* d(one side) = ct times the other side, contracted over the other's free dims, then put into the
 * side's own order of dims. ct goes left or right so that there is nothing to transpose where the
 * side's free dims stand together before, or behind, its contracted ones. */
static Val side_gradient(Build *b, Val ct, Val other, const Side *me, const Side *you,
                         bool x_side) {
    int nb = me->batch->rank, nm = me->free.rank, ny = you->free.rank;
    Dims ct_batch = {.rank = nb}, ct_free_you = {.rank = ny};
    for (int i = 0; i < nb; i++) ct_batch.at[i] = i;
    for (int i = 0; i < ny; i++) ct_free_you.at[i] = nb + (x_side ? nm : 0) + i;
    bool ct_left = nm == 0 || me->contract->rank == 0 || me->free.at[0] < me->contract->at[0];
    MatmulAttr m = ct_left ? (MatmulAttr){ct_free_you, you->free, ct_batch, *you->batch, 0}
                           : (MatmulAttr){you->free, ct_free_you, *you->batch, ct_batch, 0};
    Val pair[2] = {ct_left ? ct : other, ct_left ? other : ct};
    Val product = build_op(b, OP_MATMUL, pair, 2, &m);
    /* The product's dims: batch, then (free, contracted) or (contracted, free). */
    Dims place = {.rank = me->rank}; /* dim of `me` -> dim of the product */
    for (int i = 0; i < nb; i++) place.at[me->batch->at[i]] = i;
    for (int i = 0; i < nm; i++)
        place.at[me->free.at[i]] = nb + (ct_left ? 0 : me->contract->rank) + i;
    for (int i = 0; i < me->contract->rank; i++)
        place.at[me->contract->at[i]] = nb + (ct_left ? nm : 0) + i;
    return product ? op_transpose(b, product, &place) : 0;
}

static void vjp(Build *b, const VjpArgs *a) {
    const MatmulAttr *m = a->node->attr;
    Side x = side_of(&m->x_contract, &m->x_batch, op_dims(b, a->in[0]).rank);
    Side w = side_of(&m->w_contract, &m->w_batch, op_dims(b, a->in[1]).rank);
    Val ct = op_astype(b, a->ct[0], op_dtype(b, a->in[0]));
    if (a->wanted & 1) a->din[0] = side_gradient(b, ct, a->in[1], &x, &w, true);
    if (a->wanted >> 1 & 1) a->din[1] = side_gradient(b, ct, a->in[0], &w, &x, false);
}

static void factors(const OpArgs *a, const Type *const *out, FactorRule *r) {
    const MatmulAttr *m = a->attr;
    const Dims *x = &a->in[0]->dims, *w = &a->in[1]->dims;
    int at = 0;
    for (int i = 0; i < m->x_batch.rank; i++) {
        int f = factor_add(r, FACTOR_PASS, out[0]->dims.at[at]);
        factor_map(r, 0, (int)m->x_batch.at[i], f);
        factor_map(r, 1, (int)m->w_batch.at[i], f);
        factor_map(r, 2, at++, f);
    }
    for (int t = 0; t < 2; t++) {
        const Dims *dims = t ? w : x;
        for (int d = 0; d < dims->rank; d++) {
            bool free = t ? is_free(&m->w_contract, &m->w_batch, d)
                          : is_free(&m->x_contract, &m->x_batch, d);
            if (!free) continue;
            int f = factor_add(r, FACTOR_PASS, dims->at[d]);
            factor_map(r, t, d, f);
            factor_map(r, 2, at++, f);
        }
    }
    for (int i = 0; i < m->x_contract.rank; i++) {
        int f = factor_add(r, FACTOR_SUM, x->at[m->x_contract.at[i]]);
        factor_map(r, 0, (int)m->x_contract.at[i], f);
        factor_map(r, 1, (int)m->w_contract.at[i], f);
    }
}

/* The lists with the operand's dims renumbered by `perm`; false where an order is lost. */
static bool renumber(const Dims *perm, Dims *contract, Dims *batch) {
    Dims free = {0};
    for (int d = 0; d < perm->rank; d++)
        if (is_free(contract, batch, d)) dims_push(&free, perm->at[d]);
    for (int i = 0; i < contract->rank; i++) contract->at[i] = perm->at[contract->at[i]];
    for (int i = 0; i < batch->rank; i++) batch->at[i] = perm->at[batch->at[i]];
    return ascending(&free) && ascending(contract) && ascending(batch);
}

/* A transposed operand is read in its own order, where that leaves every list ascending. */
static Val fold(Build *b, const Node *n, const Val *in) {
    MatmulAttr m = *(const MatmulAttr *)n->attr;
    Val v[2] = {in[0], in[1]};
    for (int t = 0; t < 2; t++) {
        const Node *src = graph_def(b->g, in[t]);
        MatmulAttr try = m;
        if (src->op != OP_TRANSPOSE ||
            !renumber(&((const PermAttr *)src->attr)->perm, t ? &try.w_contract : &try.x_contract,
                      t ? &try.w_batch : &try.x_batch))
            continue;
        m = try;
        v[t] = src->in[0];
    }
    return v[0] == in[0] && v[1] == in[1] ? 0 : build_op(b, OP_MATMUL, v, 2, &m);
}

static double flops(const OpArgs *a, const Type *const *out) {
    const MatmulAttr *m = a->attr;
    double k = 1;
    for (int i = 0; i < m->x_contract.rank; i++)
        k *= (double)a->in[0]->dims.at[m->x_contract.at[i]];
    return 2 * k * (double)type_count(out[0]);
}

static void lower(const OpArgs *a, const Type *const *out, void *kernel_attr) {
    const MatmulAttr *m = a->attr;
    KMatmul *k = kernel_attr;
    int nb = m->x_batch.rank, nm = 0;
    for (int d = 0; d < a->in[0]->dims.rank; d++) {
        k->x[d] = dims_has(&m->x_batch, d) ? K_BATCH : dims_has(&m->x_contract, d) ? K_K : K_M;
        nm += k->x[d] == K_M;
    }
    for (int d = 0; d < a->in[1]->dims.rank; d++)
        k->w[d] = dims_has(&m->w_batch, d) ? K_BATCH : dims_has(&m->w_contract, d) ? K_K : K_N;
    for (int d = 0; d < out[0]->dims.rank; d++)
        k->y[d] = d < nb ? K_BATCH : d < nb + nm ? K_M : K_N;
}

static void shift_all(Dims *d) {
    for (int i = 0; i < d->rank; i++) d->at[i]++;
}

/* Both mapped: a batch dim. x alone: the first of its free dims. w alone: the first of its free
 * dims, which stand behind x's. */
static void batch(Build *b, const BatchArgs *a) {
    MatmulAttr m = *(const MatmulAttr *)a->node->attr;
    bool x = a->mapped[0], w = a->mapped[1];
    int nb = m.x_batch.rank, nx = op_dims(b, a->in[0]).rank - nb - m.x_contract.rank - x;
    if (x) shift_all(&m.x_batch), shift_all(&m.x_contract);
    if (w) shift_all(&m.w_batch), shift_all(&m.w_contract);
    if (x && w) {
        dims_insert(&m.x_batch, 0, 0);
        dims_insert(&m.w_batch, 0, 0);
    }
    batch_apply(b, a, a->in, &m);
    if (!(x && w)) a->out[0] = batch_to_front(b, a->out[0], x ? nb : nb + nx);
}

const OpDef op_row_MATMUL = {
    .name = "matmul",
    .operands = "x,w",
    .doc = "sums of products over paired dims; 16-bit floats add up in float32",
    .nin = 2,
    .nout = 1,
    OP_ATTR(MatmulAttr, fields),
    .shape = shape,
    .vjp = vjp,
    .batch = batch,
    .factors = factors,
    .fold = fold,
    .pads = PADS_ALL,
    .flops = flops,
    .kernel = "matmul",
    OP_LOWER(KMatmul, lower),
    .linear = 3,
    .wide = offsetof(MatmulAttr, wide),
    .flags = OPF_SAVE | OPF_PRODUCT,
};
