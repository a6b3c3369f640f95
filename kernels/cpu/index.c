/* index.c - take, scatter_add, scatter_set (kernel.h), take_along_axis and add_along_axis
 * (naive_index.c). Any strides.
 *
 * take: a unit is a block of the (before, id) pairs, each of which copies the elements after
 * `axis`. scatter_add: a unit is a block of table rows and of the elements after `axis`. It adds,
 * for each of its rows, the updates of that row in the order of ids, in the register type, and
 * rounds once. To find them, a call first strings the positions in ids together by row. */
#include "convert.h"
#include "rows.h"

enum { COLUMNS = 1024, ROW_BLOCKS = 64 };

static const uint64_t zero = 0; /* an element of any dtype */

/* ---- the shape ---------------------------------------------------------------------------------
 * The table is [before, rows, after], the other operand (y of take, updates of scatter_add) is
 * [before, ids, after]; each group is merged where both, or ids and the other, allow it. */
typedef struct Group {
    int rank;
    int64_t size, dims[K_MAX_RANK], strides[2][K_MAX_RANK];
} Group;

typedef struct Index {
    const KTensor *table, *ids, *other;
    Group before, id, after;               /* strides of: table, other; id: ids, other */
    int64_t rows, row_stride, first, size; /* rows are ids first .. first + rows - 1 of size */
} Index;

static Group group_of(const KTensor *a, int from_a, const KTensor *b, int from_b, int rank) {
    Group g = {.rank = rank, .size = 1};
    for (int d = 0; d < rank; d++) {
        g.dims[d] = b->dims[from_b + d];
        g.size *= g.dims[d];
        g.strides[0][d] = a->strides[from_a + d];
        g.strides[1][d] = b->strides[from_b + d];
    }
    g.rank = k_collapse(g.rank, g.dims, 2, g.strides);
    return g;
}

static Index describe(const KArgs *a, const KTensor *table, const KTensor *ids,
                      const KTensor *other) {
    const KTake *attr = a->attr;
    int axis = attr->axis;
    Index x = {.table = table,
               .ids = ids,
               .other = other,
               .before = group_of(table, 0, other, 0, axis),
               .id = group_of(ids, 0, other, axis, ids->rank),
               .after = group_of(table, axis + 1, other, axis + ids->rank, table->rank - axis - 1),
               .rows = table->dims[axis],
               .row_stride = table->strides[axis],
               .first = a->offsets ? a->offsets[0] : 0,
               .size = attr->size};
    return x;
}

static int64_t group_at(const Group *g, int operand, int64_t i) {
    return k_offset(g->rank, g->dims, g->strides[operand], i);
}

/* Reads id number i; 1 if there is no such row anywhere. */
static int read_id(const KArgs *a, const Index *x, int64_t i, int64_t *row) {
    int32_t id = *(const int32_t *)(const void *)(x->ids->data + group_at(&x->id, 0, i));
    if (id < 0 || id >= x->size) {
        *a->fault = (KFault){K_FAULT_INDEX, id, x->size};
        return 1;
    }
    *row = id - x->first;
    return 0;
}

/* ---- take ----------------------------------------------------------------------------------- */
/* One row of y: from the table, or zeros where `from` is NULL. */
static void copy_after(const Index *x, char *to, const char *from) {
    const Group *g = &x->after;
    int64_t size = k_dtype_size(x->table->dtype), run = g->rank ? g->dims[g->rank - 1] : 1;
    int64_t ts = g->rank ? g->strides[1][g->rank - 1] : size;
    int64_t fs = g->rank ? g->strides[0][g->rank - 1] : size;
    if (g->rank == 0) {
        k_copy_run(size, to, 0, from ? from : (const char *)&zero, 0, 1);
        return;
    }
    for (int64_t i = 0; i < g->size; i += run) {
        if (from)
            k_copy_run(size, to + group_at(g, 1, i), ts, from + group_at(g, 0, i), fs, run);
        else
            k_copy_run(size, to + group_at(g, 1, i), ts, (const char *)&zero, 0, run);
    }
}

static int64_t take_rows(const Index *x) {
    return k_max(1, K_UNIT_ELEMENTS / k_max(1, x->after.size));
}

static int take(const KArgs *a) {
    Index x = describe(a, &a->in[0], &a->in[1], &a->out[0]);
    int64_t rows = take_rows(&x), end = k_min(a->hi * rows, x.before.size * x.id.size), n;
    for (int64_t i = a->lo * rows; i < end; i += n) {
        int64_t before = i / x.id.size, first = i % x.id.size, row;
        n = k_min(end - i, x.id.size - first);
        char *to = x.other->data + group_at(&x.before, 1, before);
        const char *from = x.table->data + group_at(&x.before, 0, before);
        for (int64_t id = first; id < first + n; id++) {
            if (read_id(a, &x, id, &row)) return 1;
            int here = row >= 0 && row < x.rows;
            copy_after(&x, to + group_at(&x.id, 1, id), here ? from + row * x.row_stride : NULL);
        }
    }
    return 0;
}

static int64_t take_units(const KArgs *a) {
    Index x = describe(a, &a->in[0], &a->in[1], &a->out[0]);
    return x.after.size ? k_ceil_div(x.before.size * x.id.size, take_rows(&x)) : 0;
}

/* ---- scatter_add ---------------------------------------------------------------------------- */
#define ADD(name, T)                                                                               \
    static void name(void *to_, const void *from_, int64_t n) {                                    \
        T *restrict to = to_;                                                                      \
        const T *restrict from = from_;                                                            \
        for (int64_t i = 0; i < n; i++) to[i] += from[i];                                          \
    }
ADD(add_f32, float)
ADD(add_f64, double)
ADD(add_u32, uint32_t)
ADD(add_u64, uint64_t)

typedef void AddFn(void *to, const void *from, int64_t n);
static AddFn *const add_fn[KT_COUNT] = {add_f32, add_f64, add_u32, add_u32, add_u64, add_u64};

/* Positions in ids by row: head[r] is the first of row r of the block, next[i] the one after i; -1
 * ends. */
typedef struct Lists {
    int64_t first, rows; /* the rows that have lists */
    int32_t *head, *next;
} Lists;

typedef struct Cut {
    int64_t rows, blocks, column_blocks; /* rows of a block, blocks of rows and of columns */
} Cut;

static Cut cut(const Index *x) {
    Cut c = {.rows = k_max(1, k_ceil_div(x->rows, ROW_BLOCKS))};
    c.blocks = k_ceil_div(x->rows, c.rows);
    c.column_blocks = k_ceil_div(x->after.size, COLUMNS);
    return c;
}

/* From the last position to the first, so that a list rises. */
static int string_ids(const KArgs *a, const Index *x, Lists *l) {
    memset(l->head, 0xff, (size_t)l->rows * sizeof *l->head);
    for (int64_t i = x->id.size - 1; i >= 0; i--) {
        int64_t row;
        if (read_id(a, x, i, &row)) return 1;
        row -= l->first;
        if (row < 0 || row >= l->rows) continue;
        l->next[i] = l->head[row];
        l->head[row] = (int32_t)i;
    }
    return 0;
}

/* Are rows of the table and of the updates runs of register type? */
static int adds_in_place(const Index *x) {
    const Group *g = &x->after;
    DType type = x->other->dtype;
    int64_t size = k_dtype_size(type);
    return type == x->table->dtype && k_dtype_native(type) && g->rank == 1 &&
           g->strides[0][0] == size && g->strides[1][0] == size;
}

/* The elements [c, c + n) of one row: the sum of its updates. `base`: of the
 * updates, at `before`. */
static void sum_row(const Index *x, const Lists *l, int64_t row, int64_t c, int64_t n,
                    const char *base, char *to) {
    _Alignas(64) char acc[COLUMNS * 8], buf[COLUMNS * 8];
    const Group *g = &x->after;
    DType type = x->other->dtype, table = x->table->dtype; /* the table may be wider */
    KType reg = k_dtype_register(type);
    int64_t size = k_type_size(reg), last = g->rank ? g->dims[g->rank - 1] : 1, run;
    int64_t fs = g->rank ? g->strides[1][g->rank - 1] : 0;
    int64_t ts = g->rank ? g->strides[0][g->rank - 1] : 0;
    int64_t first = l->head[row - l->first];
    if (first >= 0 && adds_in_place(x)) {
        const char *from = base + group_at(&x->id, 1, first);
        memcpy(to + c * size, from + c * size, (size_t)(n * size));
        for (int64_t i = l->next[first]; i >= 0; i = l->next[i])
            add_fn[reg](to + c * size, base + group_at(&x->id, 1, i) + c * size, n);
        return;
    }
    if (first >= 0) memset(acc, 0, (size_t)(n * size));
    for (int64_t i = first; i >= 0; i = l->next[i])
        for (int64_t j = 0; j < n; j += run) {
            run = k_min(n - j, last - (c + j) % last);
            const char *from = base + group_at(&x->id, 1, i) + group_at(g, 1, c + j);
            add_fn[reg](acc + j * size, k_run_in(type, from, fs, run, buf), run);
        }
    for (int64_t j = 0; j < n; j += run) {
        run = k_min(n - j, last - (c + j) % last);
        char *at = to + group_at(g, 0, c + j);
        if (first >= 0)
            k_store_fn(table)(at, ts, acc + j * size, run);
        else
            k_copy_run(k_dtype_size(table), at, ts, (const char *)&zero, 0, run);
    }
}

static int scatter_add(const KArgs *a) {
    Index x = describe(a, &a->out[0], &a->in[0], &a->in[1]);
    Cut cuts = cut(&x);
    if (a->lo >= a->hi) return 0;
    int64_t per_block = x.before.size * cuts.column_blocks;
    Lists l = {.first = a->lo / per_block * cuts.rows};
    l.rows = k_min(((a->hi - 1) / per_block + 1) * cuts.rows, x.rows) - l.first;
    l.head = a->workspace;
    l.next = l.head + x.rows;
    if (string_ids(a, &x, &l)) return 1;
    for (int64_t u = a->lo; u < a->hi; u++) {
        int64_t column = u % cuts.column_blocks * COLUMNS,
                n = k_min(COLUMNS, x.after.size - column);
        int64_t before = u / cuts.column_blocks % x.before.size;
        int64_t row = u / per_block * cuts.rows, end = k_min(row + cuts.rows, x.rows);
        const char *base = x.other->data + group_at(&x.before, 1, before);
        char *to = x.table->data + group_at(&x.before, 0, before);
        for (; row < end; row++) sum_row(&x, &l, row, column, n, base, to + row * x.row_stride);
    }
    return 0;
}

static int64_t scatter_add_units(const KArgs *a) {
    Index x = describe(a, &a->out[0], &a->in[0], &a->in[1]);
    Cut cuts = cut(&x);
    return cuts.blocks * x.before.size * cuts.column_blocks;
}

static size_t scatter_add_workspace(const KArgs *a) {
    Index x = describe(a, &a->out[0], &a->in[0], &a->in[1]);
    return (size_t)(x.rows + x.id.size) * sizeof(int32_t);
}

/* ---- scatter_set ---------------------------------------------------------------------------- */
/* `after` holds the strides of `to`, then of `from`. */
static void copy_row(int64_t size, const Group *after, char *to, const char *from) {
    int64_t run = after->rank ? after->dims[after->rank - 1] : 1;
    int64_t ts = after->rank ? after->strides[0][after->rank - 1] : 0;
    int64_t fs = after->rank ? after->strides[1][after->rank - 1] : 0;
    for (int64_t i = 0; i < after->size; i += run)
        k_copy_run(size, to + group_at(after, 0, i), ts, from + group_at(after, 1, i), fs, run);
}

/* A unit is a block of rows. last[r] is the last position in ids of row r. */
static int scatter_set(const KArgs *a) {
    const KTensor *x = &a->in[0], *y = &a->out[0];
    Index u = describe(a, y, &a->in[1], &a->in[2]);
    int64_t rows = cut(&u).rows, size = k_dtype_size(y->dtype);
    int32_t *last = a->workspace;
    memset(last, 0xff, (size_t)u.rows * sizeof *last);
    for (int64_t i = 0; i < u.id.size; i++) {
        int64_t row;
        if (read_id(a, &u, i, &row)) return 1;
        if (row >= 0 && row < u.rows) last[row] = (int32_t)i;
    }
    int axis = ((const KTake *)a->attr)->axis;
    Group before = group_of(y, 0, x, 0, axis);
    Group after = group_of(y, axis + 1, x, axis + 1, y->rank - axis - 1);
    for (int64_t unit = a->lo; unit < a->hi; unit++) {
        int64_t b = unit % u.before.size, row = unit / u.before.size * rows;
        for (int64_t end = k_min(row + rows, u.rows); row < end; row++) {
            char *to = y->data + group_at(&u.before, 0, b) + row * u.row_stride;
            if (last[row] >= 0)
                copy_row(size, &u.after, to,
                         u.other->data + group_at(&u.before, 1, b) + group_at(&u.id, 1, last[row]));
            else if (x->data != y->data)
                copy_row(size, &after, to,
                         x->data + group_at(&before, 1, b) + row * x->strides[axis]);
        }
    }
    return 0;
}

static int64_t scatter_set_units(const KArgs *a) {
    Index x = describe(a, &a->out[0], &a->in[1], &a->in[2]);
    return x.after.size ? cut(&x).blocks * x.before.size : 0;
}

static size_t scatter_set_workspace(const KArgs *a) {
    return (size_t)a->out[0].dims[((const KTake *)a->attr)->axis] * sizeof(int32_t);
}

/* ---- take_along_axis: a unit is a run of elements of y ---- */
typedef struct Line { /* along the axis of the table */
    int64_t first, rows, size, stride;
} Line;

static Line line_of(const KArgs *a, const KTensor *table) {
    const KTake *attr = a->attr;
    return (Line){a->offsets ? a->offsets[0] : 0, table->dims[attr->axis], attr->size,
                  table->strides[attr->axis]};
}

/* The row of an id; 1 if there is no such row anywhere. */
static int find_row(const KArgs *a, const Line *l, const char *at, int64_t *row) {
    int32_t id = *(const int32_t *)(const void *)at;
    if (id < 0 || id >= l->size) {
        *a->fault = (KFault){K_FAULT_INDEX, id, l->size};
        return 1;
    }
    *row = id - l->first;
    return 0;
}

/* n elements at the walk's place: of y, ids, and the table at row 0. */
K_INLINE int pick_run(const KArgs *a, const Line *l, const KWalk *w, int64_t n, size_t size) {
    int64_t ys = k_walk_stride(w, 0), is = k_walk_stride(w, 1), xs = k_walk_stride(w, 2), row;
    for (int64_t i = 0; i < n; i++) {
        if (find_row(a, l, w->at[1] + i * is, &row)) return 1;
        int here = row >= 0 && row < l->rows;
        const char *from = here ? w->at[2] + i * xs + row * l->stride : (const char *)&zero;
        memcpy(w->at[0] + i * ys, from, size);
    }
    return 0;
}

static int take_along(const KArgs *a) {
    const KTensor *x = &a->in[0], *y = &a->out[0];
    Line l = line_of(a, x);
    KWalk w;
    k_walk_over(&w, y->rank, (const KTensor *[]){y, &a->in[1], x}, 3);
    w.strides[2][((const KTake *)a->attr)->axis] = 0;
    int64_t i = a->lo * K_UNIT_ELEMENTS, end = k_min(a->hi * K_UNIT_ELEMENTS, k_walk_size(&w)), n;
    int failed = 0;
    if (i >= end) return 0;
    k_walk_start(&w, i);
    for (; i < end && !failed; i += n, k_walk_advance(&w, n)) {
        n = k_min(end - i, k_walk_run(&w));
        switch (k_dtype_size(y->dtype)) {
        case 1: failed = pick_run(a, &l, &w, n, 1); break;
        case 2: failed = pick_run(a, &l, &w, n, 2); break;
        case 4: failed = pick_run(a, &l, &w, n, 4); break;
        default: failed = pick_run(a, &l, &w, n, 8);
        }
    }
    return failed;
}

static int64_t take_along_units(const KArgs *a) {
    KWalk w;
    k_walk_begin(&w, &a->out[0], a->out[0].rank);
    return k_ceil_div(k_walk_size(&w), K_UNIT_ELEMENTS);
}

/* ---- add_along_axis: a unit is a block of lines, each summed in a buffer ---- */
typedef struct Lines { /* the dims but the axis: of table, ids, updates */
    KWalk walk;
    int64_t count, n; /* lines; updates of a line */
    Line table;
} Lines;

static Lines lines_of(const KArgs *a) {
    const KTensor *t[] = {&a->out[0], &a->in[0], &a->in[1]};
    int axis = ((const KTake *)a->attr)->axis;
    Lines l = {.n = t[1]->dims[axis], .table = line_of(a, t[0])};
    l.walk.count = 3;
    for (int k = 0; k < 3; k++) l.walk.at[k] = t[k]->data;
    for (int d = 0; d < t[0]->rank; d++) {
        if (d == axis) continue;
        l.walk.dims[l.walk.rank] = t[0]->dims[d];
        for (int k = 0; k < 3; k++) l.walk.strides[k][l.walk.rank] = t[k]->strides[d];
        l.walk.rank++;
    }
    l.count = k_walk_size(&l.walk);
    return l;
}

static int64_t unit_lines(const Lines *l) {
    return k_max(1, K_UNIT_ELEMENTS / k_max(1, l->table.rows + l->n));
}

/* Adds n updates, as a run of their register type, to the sums of a line. */
#define ADD_AT(name, T)                                                                            \
    static int name(const KArgs *a, const Line *l, T *sum, const char *ids, int64_t stride,        \
                    const T *from, int64_t n) {                                                    \
        int64_t row;                                                                               \
        for (int64_t i = 0; i < n; i++) {                                                          \
            if (find_row(a, l, ids + i * stride, &row)) return 1;                                  \
            if (row >= 0 && row < l->rows) sum[row] += from[i];                                    \
        }                                                                                          \
        return 0;                                                                                  \
    }
ADD_AT(add_at_f32, float)
ADD_AT(add_at_f64, double)
ADD_AT(add_at_u32, uint32_t)
ADD_AT(add_at_u64, uint64_t)

static int add_line(const KArgs *a, const Lines *l, char *sum) {
    _Alignas(64) char buf[COLUMNS * 8];
    const KTensor *ids = &a->in[0], *u = &a->in[1], *table = &a->out[0];
    int axis = ((const KTake *)a->attr)->axis, failed = 0;
    int64_t is = ids->strides[axis], us = u->strides[axis], n;
    KType reg = k_dtype_register(u->dtype);
    memset(sum, 0, (size_t)(l->table.rows * k_type_size(reg)));
    for (int64_t i = 0; i < l->n && !failed; i += n) {
        n = k_min(COLUMNS, l->n - i);
        const char *at = l->walk.at[1] + i * is;
        const void *from = k_run_in(u->dtype, l->walk.at[2] + i * us, us, n, buf);
        switch (reg) {
        case KT_F32:
            failed = add_at_f32(a, &l->table, (float *)(void *)sum, at, is, from, n);
            break;
        case KT_F64:
            failed = add_at_f64(a, &l->table, (double *)(void *)sum, at, is, from, n);
            break;
        case KT_I64:
        case KT_U64:
            failed = add_at_u64(a, &l->table, (uint64_t *)(void *)sum, at, is, from, n);
            break;
        default: failed = add_at_u32(a, &l->table, (uint32_t *)(void *)sum, at, is, from, n);
        }
    }
    k_store_fn(table->dtype)(l->walk.at[0], l->table.stride, sum, l->table.rows);
    return failed;
}

static int add_along(const KArgs *a) {
    Lines l = lines_of(a);
    int64_t each = unit_lines(&l), i = a->lo * each, end = k_min(a->hi * each, l.count);
    if (i >= end) return 0;
    k_walk_start(&l.walk, i);
    for (; i < end; i++, k_walk_advance(&l.walk, 1))
        if (add_line(a, &l, a->workspace)) return 1;
    return 0;
}

static int64_t add_along_units(const KArgs *a) {
    Lines l = lines_of(a);
    return k_ceil_div(l.count, unit_lines(&l));
}

static size_t add_along_workspace(const KArgs *a) {
    return (size_t)a->out[0].dims[((const KTake *)a->attr)->axis] * 8;
}

/* ---- examples: every tensor of a batched call has one dim in front ---- */
typedef struct Example {
    KTensor tensor[4];
    KTake attr;
    KArgs args;
} Example;

static KTensor part(const KTensor *t, int64_t i) {
    return (KTensor){t->data + i * t->strides[0], t->dims + 1, t->strides + 1, t->rank - 1,
                     t->dtype};
}

static void example(const KArgs *a, int64_t i, Example *e) {
    for (int k = 0; k < a->nin; k++) e->tensor[k] = part(&a->in[k], i);
    e->tensor[3] = part(&a->out[0], i);
    e->attr = *(const KTake *)a->attr;
    e->attr.batched = 0;
    e->args = *a;
    e->args.in = e->tensor;
    e->args.out = &e->tensor[3];
    e->args.attr = &e->attr;
}

static int is_batched(const KArgs *a) {
    return ((const KTake *)a->attr)->batched;
}

static int each(const KArgs *a, KernelFn *fn, int64_t (*units)(const KArgs *)) {
    Example e;
    if (!is_batched(a)) return fn(a);
    example(a, 0, &e);
    int64_t per = units(&e.args), n;
    for (int64_t u = a->lo; u < a->hi; u += n) {
        example(a, u / per, &e);
        n = k_min(a->hi - u, per - u % per);
        e.args.lo = u % per;
        e.args.hi = u % per + n;
        if (fn(&e.args)) return 1;
    }
    return 0;
}

static int64_t units_of_all(const KArgs *a, int64_t (*units)(const KArgs *)) {
    Example e;
    if (!is_batched(a)) return units(a);
    example(a, 0, &e);
    return units(&e.args) * a->out[0].dims[0];
}

#define EACH(name)                                                                                 \
    static int name##_each(const KArgs *a) {                                                       \
        return each(a, name, name##_units);                                                        \
    }                                                                                              \
    static int64_t name##_each_units(const KArgs *a) {                                             \
        return units_of_all(a, name##_units);                                                      \
    }
EACH(take)
EACH(scatter_add)
EACH(scatter_set)

static size_t scatter_add_each_workspace(const KArgs *a) {
    Example e;
    if (!is_batched(a)) return scatter_add_workspace(a);
    example(a, 0, &e);
    return scatter_add_workspace(&e.args);
}
static size_t scatter_set_each_workspace(const KArgs *a) {
    Example e;
    if (!is_batched(a)) return scatter_set_workspace(a);
    example(a, 0, &e);
    return scatter_set_workspace(&e.args);
}

K_ROWS(index) = {
    {"take", take_each, take_each_units, NULL},
    {"scatter_add", scatter_add_each, scatter_add_each_units, scatter_add_each_workspace},
    {"scatter_set", scatter_set_each, scatter_set_each_units, scatter_set_each_workspace},
    {"take_along_axis", take_along, take_along_units, NULL},
    {"add_along_axis", add_along, add_along_units, add_along_workspace},
    {NULL, NULL, NULL, NULL},
};
