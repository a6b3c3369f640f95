/* index.c - gather, scatter and scatter_add (kernel.h). Any strides.
 *
 * gather: a unit is a block of places of y up to the last dim that ids have, each of which copies
 * the elements behind it. scatter: the table is [examples, rows, columns] in any order of dims,
 * rows those of all axes together, and the updates are [examples, ids, columns]. A unit is a block
 * of each; it goes through the example's ids in order and leaves out what is another unit's. Where
 * the table's own memory cannot hold what is combined, a part of it is kept in the workspace. */
#include "convert.h"
#include "rows.h"

enum { COLUMNS = 1024, CHUNK = 1024, ROW_BLOCKS = 64, HELD = 1 << 17 };
enum { SCAN = 256 }; /* elements of work for each id from which on a block of rows pays */
enum { WIDE = 16 };  /* columns from which on held rows are looked at one by one */

static const uint64_t zero = 0; /* an element of any dtype */

/* ---- dims that go together ------------------------------------------------------------------ */
typedef struct Group {
    int rank;
    int64_t size, dims[K_MAX_RANK], strides[4][K_MAX_RANK];
} Group;

static void group_add(Group *g, int64_t n, int count, const int64_t *strides) {
    if (g->rank == 0) g->size = 1;
    g->size *= n;
    g->dims[g->rank] = n;
    for (int k = 0; k < count; k++) g->strides[k][g->rank] = strides[k];
    g->rank++;
}

static void group_end(Group *g, int count) {
    if (g->rank == 0) g->size = 1;
    g->rank = k_collapse(g->rank, g->dims, count, g->strides);
}

static int64_t group_at(const Group *g, int operand, int64_t i) {
    return k_offset(g->rank, g->dims, g->strides[operand], i);
}
static int64_t group_run(const Group *g) {
    return g->rank ? g->dims[g->rank - 1] : 1;
}
static int64_t group_stride(const Group *g, int operand) {
    return g->rank ? g->strides[operand][g->rank - 1] : 0;
}

static int64_t stride_at(const KTensor *t, int dim) {
    return dim < 0 ? 0 : t->strides[dim];
}

/* ---- ids ------------------------------------------------------------------------------------ */
typedef struct Axes {
    int n, outside;
    int64_t between; /* bytes from an id to that of the next axis */
    /* Rows of axis k are ids first .. first + rows - 1 of size; `step` bytes lead to the next, and
     * `line` to the next of `all`. */
    int64_t size[K_MAX_RANK], first[K_MAX_RANK], rows[K_MAX_RANK], step[K_MAX_RANK],
        line[K_MAX_RANK], all;
} Axes;

static Axes axes_of(const KArgs *a, const KTensor *table, const KTensor *ids) {
    const KIndex *t = a->attr;
    Axes x = {.n = t->naxes, .outside = t->outside};
    int64_t line = 1;
    if (t->naxes > 1) x.between = ids->strides[ids->rank - 1];
    for (int k = t->naxes - 1; k >= 0; k--) {
        x.size[k] = t->size[k];
        x.first[k] = a->offsets ? a->offsets[k] : 0;
        x.rows[k] = table->dims[t->axes[k]];
        x.step[k] = table->strides[t->axes[k]];
        x.line[k] = line;
        line *= x.rows[k];
    }
    x.all = line;
    return x;
}

/* The row of an id that is none as it stands: 1; 0 nowhere, -1 a fault. */
static int row_of(const KArgs *a, const Axes *x, int k, int64_t id, int64_t *row) {
    int64_t size = x->size[k], r = id < 0 && x->outside != K_STRICT ? id + size : id;
    if (size > 0 && x->outside == K_CLIP) r = r < 0 ? 0 : k_min(r, size - 1);
    if (size > 0 && x->outside == K_WRAP) r = (id % size + size) % size;
    *row = r;
    if (r >= 0 && r < size) return 1;
    if (x->outside == K_DROP) return 0;
    *a->fault = (KFault){K_FAULT_INDEX, id, size};
    return -1;
}

/* Where in the table the ids at `at` lead, in bytes, and which row of all it is: 1, 0 if that is
 * elsewhere or nowhere, -1 on a fault. */
K_INLINE int find(const KArgs *a, const Axes *x, const char *at, int64_t *to, int64_t *line) {
    int here = 1;
    int64_t bytes = 0, number = 0;
    for (int k = 0; k < x->n; k++) {
        int64_t row = *(const int32_t *)(const void *)(at + k * x->between);
        if ((uint64_t)row >= (uint64_t)x->size[k]) {
            int found = row_of(a, x, k, row, &row);
            if (found < 0) return -1;
            here &= found;
        }
        row -= x->first[k];
        here &= (uint64_t)row < (uint64_t)x->rows[k];
        bytes += row * x->step[k];
        number += row * x->line[k];
    }
    *to = bytes;
    *line = number;
    return here;
}

#define SKIP INT64_MIN /* where an id does not lead */

K_INLINE int places_of_axis(const Axes *x, const char *ids, int64_t stride, int64_t n, int64_t row,
                            int64_t end, int64_t start, int64_t *at) {
    int64_t size = x->size[0], first = x->first[0], step = x->step[0];
    int outside = 0;
    for (int64_t j = 0; j < n; j++) {
        int64_t id = *(const int32_t *)(const void *)(ids + j * stride), r = id - first;
        outside |= (uint64_t)id >= (uint64_t)size;
        at[j] = (uint64_t)(r - row) < (uint64_t)(end - row) ? r * step - start : SKIP;
    }
    return outside;
}

/* Where n ids lead, in bytes from `start` on; SKIP, where that is not one of rows [row, end). */
static int places(const KArgs *a, const Axes *x, const char *ids, int64_t stride, int64_t n,
                  int64_t row, int64_t end, int64_t start, int64_t *at) {
    if (x->n == 1 && !(stride == 4 ? places_of_axis(x, ids, 4, n, row, end, start, at)
                                   : places_of_axis(x, ids, stride, n, row, end, start, at)))
        return 0;
    for (int64_t j = 0; j < n; j++) {
        int64_t to, line;
        int here = find(a, x, ids + j * stride, &to, &line);
        if (here < 0) return 1;
        at[j] = here && line >= row && line < end ? to - start : SKIP;
    }
    return 0;
}

/* ---- gather --------------------------------------------------------------------------------- */
typedef struct Gather {
    Axes axes;
    Group place; /* strides of y, ids, table */
    Group after; /* of y, table */
} Gather;

static Gather gather_of(const KArgs *a) {
    const KIndex *t = a->attr;
    const KTensor *x = &a->in[0], *ids = &a->in[1], *y = &a->out[0];
    Gather g = {.axes = axes_of(a, x, ids)};
    int end = y->rank;
    while (end > 0 && t->ids[end - 1] < 0) end--;
    for (int d = 0; d < y->rank; d++) {
        int64_t of_x = stride_at(x, t->table[d]);
        if (d < end)
            group_add(&g.place, y->dims[d], 3,
                      (int64_t[]){y->strides[d], stride_at(ids, t->ids[d]), of_x});
        else
            group_add(&g.after, y->dims[d], 2, (int64_t[]){y->strides[d], of_x});
    }
    group_end(&g.place, 3);
    group_end(&g.after, 2);
    return g;
}

/* What follows one place: from the table, or zeros where `from` is NULL. */
static void copy_after(const Group *g, int64_t size, char *to, const char *from) {
    int64_t run = group_run(g), ts = group_stride(g, 0), fs = group_stride(g, 1);
    for (int64_t i = 0; i < g->size; i += run)
        k_copy_run(size, to + group_at(g, 0, i), ts,
                   from ? from + group_at(g, 1, i) : (const char *)&zero, from ? fs : 0, run);
}

/* The n places at the walk's: single elements of `size` bytes, or (0) what follows. */
K_INLINE int pick_run(const KArgs *a, const Gather *g, const KWalk *w, int64_t n, size_t size) {
    int64_t ys = k_walk_stride(w, 0), is = k_walk_stride(w, 1), xs = k_walk_stride(w, 2), at[CHUNK];
    char *to = w->at[0];
    if (places(a, &g->axes, w->at[1], is, n, 0, g->axes.all, 0, at)) return 1;
    for (int64_t i = 0; i < n; i++, to += ys) {
        const char *from = at[i] == SKIP ? NULL : w->at[2] + i * xs + at[i];
        if (size)
            memcpy(to, from ? from : (const char *)&zero, size);
        else
            copy_after(&g->after, k_dtype_size(a->out[0].dtype), to, from);
    }
    return 0;
}

static int64_t unit_places(const Gather *g) {
    return k_max(1, K_UNIT_ELEMENTS / k_max(1, g->after.size));
}

static int gather(const KArgs *a) {
    Gather g = gather_of(a);
    KWalk w = {
        .rank = g.place.rank, .count = 3, .at = {a->out[0].data, a->in[1].data, a->in[0].data}};
    memcpy(w.dims, g.place.dims, sizeof w.dims);
    memcpy(w.strides, g.place.strides, sizeof g.place.strides[0] * 3);
    int64_t each = unit_places(&g), i = a->lo * each, end = k_min(a->hi * each, g.place.size), n;
    int64_t size = g.after.size == 1 ? k_dtype_size(a->out[0].dtype) : 0;
    int failed = 0;
    if (i >= end) return 0;
    k_walk_start(&w, i);
    for (; i < end && !failed; i += n, k_walk_advance(&w, n)) {
        n = k_min(k_min(CHUNK, end - i), k_walk_run(&w));
        switch (size) {
        case 0: failed = pick_run(a, &g, &w, n, 0); break;
        case 1: failed = pick_run(a, &g, &w, n, 1); break;
        case 2: failed = pick_run(a, &g, &w, n, 2); break;
        case 4: failed = pick_run(a, &g, &w, n, 4); break;
        default: failed = pick_run(a, &g, &w, n, 8);
        }
    }
    return failed;
}

static int64_t gather_units(const KArgs *a) {
    Gather g = gather_of(a);
    return g.after.size ? k_ceil_div(g.place.size, unit_places(&g)) : 0;
}

/* ---- what is combined, in register types ---------------------------------------------------- */
typedef void RunFn(void *to, const void *from, int64_t n);
typedef void AtFn(char *base, const int64_t *at, const void *from, int64_t n);

#define COMBINE(name, T, result)                                                                   \
    static void name##_run(void *to_, const void *from_, int64_t n) {                              \
        T *restrict to = to_;                                                                      \
        const T *restrict from = from_;                                                            \
        for (int64_t i = 0; i < n; i++) {                                                          \
            T x = to[i], u = from[i];                                                              \
            to[i] = result;                                                                        \
        }                                                                                          \
    }                                                                                              \
    static void name##_at(char *base, const int64_t *at, const void *from_, int64_t n) {           \
        const T *from = from_;                                                                     \
        for (int64_t i = 0; i < n; i++) {                                                          \
            if (at[i] == SKIP) continue;                                                           \
            T *to = (T *)(void *)(base + at[i]), x = *to, u = from[i];                             \
            *to = result;                                                                          \
        }                                                                                          \
    }
COMBINE(add_f32, float, x + u)
COMBINE(add_f64, double, x + u)
COMBINE(add_u32, uint32_t, x + u)
COMBINE(add_u64, uint64_t, x + u)
COMBINE(mul_f32, float, x *u)
COMBINE(mul_f64, double, x *u)
COMBINE(mul_u32, uint32_t, x *u)
COMBINE(mul_u64, uint64_t, x *u)
COMBINE(max_f32, float, x > u || x != x ? x : u)
COMBINE(max_f64, double, x > u || x != x ? x : u)
COMBINE(max_i32, int32_t, x > u ? x : u)
COMBINE(max_u32, uint32_t, x > u ? x : u)
COMBINE(max_i64, int64_t, x > u ? x : u)
COMBINE(max_u64, uint64_t, x > u ? x : u)
COMBINE(min_f32, float, x < u || x != x ? x : u)
COMBINE(min_f64, double, x < u || x != x ? x : u)
COMBINE(min_i32, int32_t, x < u ? x : u)
COMBINE(min_u32, uint32_t, x < u ? x : u)
COMBINE(min_i64, int64_t, x < u ? x : u)
COMBINE(min_u64, uint64_t, x < u ? x : u)

#define ROW(op, f32, f64, i32, u32, i64, u64)                                                      \
    [op] = {[KT_F32] = f32, [KT_F64] = f64, [KT_I32] = i32,                                        \
            [KT_U32] = u32, [KT_I64] = i64, [KT_U64] = u64}
static RunFn *const run_fn[][KT_COUNT] = {
    ROW(K_ADD, add_f32_run, add_f64_run, add_u32_run, add_u32_run, add_u64_run, add_u64_run),
    ROW(K_MUL, mul_f32_run, mul_f64_run, mul_u32_run, mul_u32_run, mul_u64_run, mul_u64_run),
    ROW(K_MAX, max_f32_run, max_f64_run, max_i32_run, max_u32_run, max_i64_run, max_u64_run),
    ROW(K_MIN, min_f32_run, min_f64_run, min_i32_run, min_u32_run, min_i64_run, min_u64_run),
};
static AtFn *const at_fn[][KT_COUNT] = {
    ROW(K_ADD, add_f32_at, add_f64_at, add_u32_at, add_u32_at, add_u64_at, add_u64_at),
    ROW(K_MUL, mul_f32_at, mul_f64_at, mul_u32_at, mul_u32_at, mul_u64_at, mul_u64_at),
    ROW(K_MAX, max_f32_at, max_f64_at, max_i32_at, max_u32_at, max_i64_at, max_u64_at),
    ROW(K_MIN, min_f32_at, min_f64_at, min_i32_at, min_u32_at, min_i64_at, min_u64_at),
};

/* ---- scatter -------------------------------------------------------------------------------- */
typedef struct Scatter {
    const KTensor *x, *ids, *u, *y; /* x: NULL for zeros */
    int combine, in_place;          /* y's memory holds what is combined */
    Axes axes;
    Group examples;        /* strides of y, x, ids, u */
    Group id;              /* of ids, u */
    Group rows;            /* of y, x */
    Group columns;         /* of y, x, u */
    int64_t size, reg;     /* bytes of an element of y, and of its register type */
    int64_t each, block;   /* examples of a unit, rows of a block */
    int64_t nrow, ncolumn; /* blocks of rows, of columns */
} Scatter;

/* What a unit is of one example. */
typedef struct RowBlock {
    char *at[4]; /* y, x, ids, u */
    int64_t row, end, column, n;
} RowBlock;

static void cut(Scatter *s) {
    int64_t work = (s->rows.size + s->id.size) * s->columns.size;
    s->each = k_max(1, K_UNIT_ELEMENTS / k_max(1, work));
    s->ncolumn = k_ceil_div(s->columns.size, COLUMNS);
    int64_t others = k_max(1, s->examples.size * s->ncolumn);
    /* Every block looks at all ids, and takes its updates from here and there. */
    int64_t worth = k_min(ROW_BLOCKS, work / k_max(1, s->id.size * SCAN));
    int64_t blocks = s->each > 1 ? 1 : k_max(1, worth / others);
    s->block = k_max(1, k_ceil_div(s->rows.size, blocks));
    s->nrow = k_max(1, k_ceil_div(s->rows.size, s->block)); /* of no rows one, that looks at ids */
}

static Scatter scatter_of(const KArgs *a, const KTensor *x, const KTensor *ids, const KTensor *u) {
    const KIndex *t = a->attr;
    const KTensor *y = &a->out[0], *like = x ? x : y;
    Scatter s = {.x = x, .ids = ids, .u = u, .y = y, .combine = t->combine};
    s.axes = axes_of(a, y, ids);
    for (int d = 0; d < u->rank; d++) {
        int of_y = t->table[d], of_ids = t->ids[d];
        int64_t ys = stride_at(y, of_y), xs = stride_at(like, of_y), us = u->strides[d],
                is = stride_at(ids, of_ids);
        if (of_ids < 0)
            group_add(&s.columns, u->dims[d], 3, (int64_t[]){ys, xs, us});
        else if (of_y < 0)
            group_add(&s.id, u->dims[d], 2, (int64_t[]){is, us});
        else
            group_add(&s.examples, u->dims[d], 4, (int64_t[]){ys, xs, is, us});
    }
    for (int k = 0; k < t->naxes; k++)
        group_add(&s.rows, y->dims[t->axes[k]], 2,
                  (int64_t[]){y->strides[t->axes[k]], like->strides[t->axes[k]]});
    group_end(&s.examples, 4);
    group_end(&s.id, 2);
    group_end(&s.rows, 2);
    group_end(&s.columns, 3);
    if (s.rows.size == 0 && s.axes.outside == K_CLIP) s.axes.outside = K_DROP; /* to no row */
    s.size = k_dtype_size(y->dtype);
    s.reg = k_type_size(k_dtype_register(u->dtype));
    s.in_place =
        s.combine == K_SET ||
        (k_dtype_native(y->dtype) &&
         (s.columns.rank == 0 || (s.columns.rank == 1 && s.columns.strides[0][0] == s.size)));
    cut(&s);
    return s;
}

typedef enum Move { COPY, LOAD, STORE } Move;

/* n elements of the example's table from number `from` on, row by row: of x to y, or `held`. */
static void move(const Scatter *s, const RowBlock *k, int64_t from, int64_t n, Move how,
                 char *held) {
    KWalk w = {.count = 2, .at = {k->at[0], s->x ? k->at[1] : k->at[0]}};
    const Group *g[] = {&s->rows, &s->columns};
    for (int i = 0; i < 2; i++)
        for (int d = 0; d < g[i]->rank; d++, w.rank++) {
            w.dims[w.rank] = g[i]->dims[d];
            for (int j = 0; j < 2; j++) w.strides[j][w.rank] = g[i]->strides[j][d];
        }
    if (n == 0) return;
    k_walk_start(&w, from);
    for (int64_t i = 0, run; i < n; i += run, k_walk_advance(&w, run)) {
        run = k_min(n - i, k_walk_run(&w));
        int64_t ys = k_walk_stride(&w, 0), xs = k_walk_stride(&w, 1);
        if (how == COPY && !s->x && ys == s->size)
            memset(w.at[0], 0, (size_t)(run * s->size));
        else if (how == COPY)
            k_copy_run(s->size, w.at[0], ys, s->x ? w.at[1] : (const char *)&zero, s->x ? xs : 0,
                       run);
        else if (how == LOAD)
            k_load_fn(s->y->dtype)(held + i * s->reg, w.at[1], xs, run);
        else
            k_store_fn(s->y->dtype)(w.at[0], ys, held + i * s->reg, run);
    }
}

/* The block's columns of some rows. */
static void move_rows(const Scatter *s, const RowBlock *k, int64_t row, int64_t end, Move how,
                      char *held) {
    int64_t all = s->columns.size;
    if (k->n == all)
        move(s, k, row * all, (end - row) * all, how, held);
    else
        for (int64_t r = row; r < end; r++)
            move(s, k, r * all + k->column, k->n, how, held + (r - row) * k->n * s->reg);
}

/* One update, all columns of the block. */
static void combine_row(const Scatter *s, const RowBlock *k, char *to, const char *from) {
    _Alignas(64) char buf[COLUMNS * 8];
    const Group *g = &s->columns;
    int64_t last = group_run(g), ts = group_stride(g, 0), fs = group_stride(g, 2), run;
    KType type = k_dtype_register(s->u->dtype);
    for (int64_t j = 0; j < k->n; j += run) {
        int64_t c = k->column + j;
        run = k_min(k->n - j, last - c % last);
        const char *at = from + group_at(g, 2, c);
        if (s->combine == K_SET)
            k_copy_run(s->size, to + group_at(g, 0, c), ts, at, fs, run);
        else
            run_fn[s->combine][type](to + j * s->reg, k_run_in(s->u->dtype, at, fs, run, buf), run);
    }
}

K_INLINE void set_run(char *to, const int64_t *at, const char *from, int64_t stride, int64_t n,
                      size_t size) {
    for (int64_t i = 0; i < n; i++)
        if (at[i] != SKIP) memcpy(to + at[i], from + i * stride, size);
}

/* n updates of one column each. */
static void combine_column(const Scatter *s, char *to, const int64_t *at, const char *from,
                           int64_t stride, int64_t n) {
    _Alignas(64) char buf[CHUNK * 8];
    DType dtype = s->u->dtype;
    if (s->combine != K_SET)
        at_fn[s->combine][k_dtype_register(dtype)](to, at, k_run_in(dtype, from, stride, n, buf),
                                                   n);
    else if (s->size == 1)
        set_run(to, at, from, stride, n, 1);
    else if (s->size == 2)
        set_run(to, at, from, stride, n, 2);
    else if (s->size == 4)
        set_run(to, at, from, stride, n, 4);
    else
        set_run(to, at, from, stride, n, 8);
}

/* A row that is held begins as x's, or zeros, where its first update meets it. */
static void meet(const Scatter *s, const RowBlock *k, int64_t row, char *is_met, char *to) {
    if (*is_met) return;
    *is_met = 1;
    if (s->x)
        move_rows(s, k, row, row + 1, LOAD, to);
    else
        memset(to, 0, (size_t)(k->n * s->reg));
}

/* All updates of the example that are for rows [row, end): `to` is where the table begins, or
 * (`held`) the row. `met`: of each held row, whether an update has met it; NULL: they are there. */
static int combine_rows(const KArgs *a, const Scatter *s, const RowBlock *k, int64_t row,
                        int64_t end, char *to, int held, char *met) {
    int64_t at[CHUNK], n, bytes = k->n * s->reg, start = held ? row * bytes : 0;
    Axes axes = s->axes;
    KWalk w = {.rank = s->id.rank, .count = 2, .at = {k->at[2], k->at[3]}};
    memcpy(w.dims, s->id.dims, sizeof w.dims);
    memcpy(w.strides, s->id.strides, sizeof s->id.strides[0] * 2);
    for (int i = 0; i < axes.n && held; i++) axes.step[i] = axes.line[i] * bytes;
    if (s->id.size == 0) return 0;
    k_walk_start(&w, 0);
    for (int64_t i = 0; i < s->id.size; i += n, k_walk_advance(&w, n)) {
        n = k_min(k_min(CHUNK, s->id.size - i), k_walk_run(&w));
        int64_t us = k_walk_stride(&w, 1);
        if (places(a, &axes, w.at[0], k_walk_stride(&w, 0), n, row, end, start, at)) return 1;
        if (s->columns.size == 1) {
            combine_column(s, to, at, w.at[1], us, n);
            continue;
        }
        for (int64_t j = 0; j < n; j++) {
            if (at[j] == SKIP) continue;
            if (met) meet(s, k, row + at[j] / bytes, &met[at[j] / bytes], to + at[j]);
            combine_row(s, k, to + at[j], w.at[1] + j * us);
        }
    }
    return 0;
}

/* What is held goes to y; the rows that no update has met, as they were. */
static void finish_rows(const Scatter *s, const RowBlock *k, int64_t row, int64_t end,
                        const char *met, char *held) {
    int aliased = s->x && s->x->data == s->y->data;
    for (int64_t r = row, next; r < end; r = next) {
        for (next = r + 1; next < end && met[next - row] == met[r - row];) next++;
        if (met[r - row])
            move_rows(s, k, r, next, STORE, held + (r - row) * k->n * s->reg);
        else if (!aliased)
            move_rows(s, k, r, next, COPY, NULL);
    }
}

/* Rows that are held at a time. */
static int64_t held_rows(const Scatter *s) {
    return k_min(k_max(1, HELD / k_max(1, k_min(COLUMNS, s->columns.size))), s->rows.size);
}

static int scatter_block(const KArgs *a, const Scatter *s, const RowBlock *k) {
    int64_t part = held_rows(s), end;
    char *held = (char *)a->workspace + k_line_bytes(part);
    char *met = s->columns.size >= WIDE ? a->workspace : NULL;
    if (s->in_place) {
        int64_t first = s->combine == K_SET ? 0 : k->column * s->size;
        if (!s->x || s->x->data != s->y->data) move_rows(s, k, k->row, k->end, COPY, NULL);
        return combine_rows(a, s, k, k->row, k->end, k->at[0] + first, 0, NULL);
    }
    int64_t row = k->row;
    do {
        end = k_min(row + part, k->end);
        if (met)
            memset(met, 0, (size_t)(end - row));
        else if (s->x)
            move_rows(s, k, row, end, LOAD, held);
        else
            memset(held, 0, (size_t)((end - row) * k->n * s->reg));
        if (combine_rows(a, s, k, row, end, held, 1, met)) return 1;
        if (met)
            finish_rows(s, k, row, end, met, held);
        else
            move_rows(s, k, row, end, STORE, held);
        row = end;
    } while (row < k->end);
    return 0;
}

static int run(const KArgs *a, const Scatter *s) {
    const KTensor *of[] = {s->y, s->x ? s->x : s->y, s->ids, s->u};
    int64_t n;
    for (int64_t u = a->lo; u < a->hi; u += n) {
        int64_t row = u % s->nrow, rest = u / s->nrow, e = rest / s->ncolumn * s->each;
        n = k_min(a->hi - u, s->nrow - row);
        RowBlock k = {.row = row * s->block,
                      .end = k_min((row + n) * s->block, s->rows.size),
                      .column = rest % s->ncolumn * COLUMNS};
        k.n = k_min(COLUMNS, s->columns.size - k.column);
        for (int64_t end = k_min(e + s->each, s->examples.size); e < end; e++) {
            for (int i = 0; i < 4; i++) k.at[i] = of[i]->data + group_at(&s->examples, i, e);
            if (scatter_block(a, s, &k)) return 1;
        }
    }
    return 0;
}

static int64_t units(const Scatter *s) {
    return s->columns.size ? k_ceil_div(s->examples.size, s->each) * s->nrow * s->ncolumn : 0;
}

static size_t workspace(const Scatter *s) {
    int64_t part = held_rows(s), n = k_min(COLUMNS, s->columns.size);
    return s->in_place ? 0 : (size_t)(k_line_bytes(part) + part * n * s->reg);
}

#define SCATTER(name, x, ids, u)                                                                   \
    static int name(const KArgs *a) {                                                              \
        Scatter s = scatter_of(a, x, ids, u);                                                      \
        return run(a, &s);                                                                         \
    }                                                                                              \
    static int64_t name##_units(const KArgs *a) {                                                  \
        Scatter s = scatter_of(a, x, ids, u);                                                      \
        return units(&s);                                                                          \
    }                                                                                              \
    static size_t name##_workspace(const KArgs *a) {                                               \
        Scatter s = scatter_of(a, x, ids, u);                                                      \
        return workspace(&s);                                                                      \
    }
SCATTER(scatter, &a->in[0], &a->in[1], &a->in[2])
SCATTER(scatter_add, NULL, &a->in[0], &a->in[1])

K_ROWS(index) = {
    {"gather", gather, gather_units, NULL},
    {"scatter", scatter, scatter_units, scatter_workspace},
    {"scatter_add", scatter_add, scatter_add_units, scatter_add_workspace},
    {NULL, NULL, NULL, NULL},
};
