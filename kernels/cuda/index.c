/* index.c - gather, scatter and scatter_add (kernel.h). Any strides.
 *
 * The table is [examples, rows, columns] in any order of dims, rows those of all axes together; the
 * updates are [examples, ids, columns]. */
#include "walk.h"

typedef struct Axes { /* ids.cuh has the same */
    int64_t size[K_MAX_RANK], first[K_MAX_RANK], rows[K_MAX_RANK], step[K_MAX_RANK], between;
    int32_t n, outside;
} Axes;

typedef struct Index {
    const KTensor *table, *ids, *rows, *x; /* rows: y of gather, else updates; x: NULL for zeros */
    const KIndex *t;
    int first;                  /* the operand number of x, or of ids where there is none */
    int64_t n, examples, lines; /* ids of an example; examples; rows of an example */
} Index;

static Axes axes_of(const KArgs *a, const KTensor *table, const KTensor *ids) {
    const KIndex *t = a->attr;
    Axes x = {.n = t->naxes, .outside = t->outside};
    if (t->naxes > 1) x.between = ids->strides[ids->rank - 1];
    for (int k = 0; k < t->naxes; k++) {
        x.size[k] = t->size[k];
        x.first[k] = a->offsets[k];
        x.rows[k] = table->dims[t->axes[k]];
        x.step[k] = table->strides[t->axes[k]];
    }
    return x;
}

static int64_t stride_at(const KTensor *t, int dim) {
    return dim < 0 ? 0 : t->strides[dim];
}

/* All strides of a view, or-ed. */
static int64_t strides_of(const CudaView *v) {
    int64_t all = 0;
    for (int d = 0; d < v->rank; d++) all |= v->strides[d];
    return all;
}

/* ---- gather --------------------------------------------------------------------------------- */
static int gather(const KArgs *a, Launches *p) {
    const KIndex *t = a->attr;
    const KTensor *x = &a->in[0], *ids = &a->in[1], *y = &a->out[0];
    Axes axes = axes_of(a, x, ids);
    CudaWalk w = {.rank = 0};
    int64_t steps = 0;
    for (int d = 0; d < y->rank; d++)
        walk_add(&w, y->dims[d], 3,
                 (int64_t[]){y->strides[d], stride_at(x, t->table[d]), stride_at(ids, t->ids[d])});
    for (int k = 0; k < axes.n; k++) steps |= axes.step[k];
    int64_t size = cuda_size(y->dtype), n = walk_finish(&w, 3), unit = size;
    if (w.rank && w.strides[2][w.rank - 1] == 0) /* neighbours share an id */
        unit = walk_widen(&w, 3, 3, size, steps);
    walk_launch(p, "index.cu", "gather", n * size / unit, size, unit);
    cuda_operand(p, 0);
    cuda_operand(p, 1);
    cuda_operand(p, 2);
    cuda_bytes(p, &w, sizeof w);
    cuda_i64(p, n * size / unit);
    cuda_bytes(p, &axes, sizeof axes);
    cuda_fault(p);
    return 1;
}

/* ---- scatter -------------------------------------------------------------------------------- */
static Index index_of(const KArgs *a, const KTensor *x) {
    int first = x ? 1 : 0;
    Index s = {.table = &a->out[0],
               .ids = &a->in[first],
               .rows = &a->in[first + 1],
               .x = x,
               .t = a->attr,
               .n = 1,
               .examples = 1,
               .lines = 1};
    for (int d = 0; d < s.rows->rank; d++) {
        if (s.t->ids[d] < 0) continue;
        *(s.t->table[d] < 0 ? &s.n : &s.examples) *= s.rows->dims[d];
    }
    for (int k = 0; k < s.t->naxes; k++) s.lines *= s.table->dims[s.t->axes[k]];
    return s;
}

/* Whether a dim of the rows is of examples, of ids alone, or of columns. */
typedef enum Role { EXAMPLE, ID, COLUMN } Role;
static Role role_of(const Index *s, int d) {
    return s->t->ids[d] < 0 ? COLUMN : s->t->table[d] < 0 ? ID : EXAMPLE;
}

/* ids: of all examples, one after the other. */
static CudaWalk ids_walk(const Index *s) {
    CudaWalk w = {.rank = 0};
    for (Role role = EXAMPLE; role <= ID; role++)
        for (int d = 0; d < s->rows->rank; d++)
            if (role_of(s, d) == role)
                walk_add(&w, s->rows->dims[d], 1, &s->ids->strides[s->t->ids[d]]);
    walk_finish(&w, 1);
    return w;
}

/* Along dims of ids alone: of the updates, or the ids. */
static CudaView places(const Index *s, int of_ids) {
    int64_t dims[K_MAX_RANK], strides[1][K_MAX_RANK];
    int rank = 0;
    for (int d = 0; d < s->rows->rank; d++) {
        if (role_of(s, d) != ID) continue;
        dims[rank] = s->rows->dims[d];
        strides[0][rank++] = of_ids ? s->ids->strides[s->t->ids[d]] : s->rows->strides[d];
    }
    return cuda_view(cuda_collapse(rank, dims, 1, strides), dims, strides[0]);
}

/* A walk over the table in its own order: strides of table, x, ids or (of_ids: 0) updates, then
 * whatever numbers rows: `each` for a step to the next row of all, lines of them for an example. */
static CudaWalk table_walk(const Index *s, int of_ids, int64_t each) {
    CudaWalk w = {.rank = 0};
    const KTensor *y = s->table, *x = s->x ? s->x : y;
    int64_t line[K_MAX_RANK] = {0}, example[K_MAX_RANK] = {0}, step = each;
    int from[K_MAX_RANK];
    for (int d = 0; d < y->rank; d++) from[d] = -1;
    for (int k = s->t->naxes - 1; k >= 0; k--) {
        line[s->t->axes[k]] = step;
        step *= y->dims[s->t->axes[k]];
    }
    for (int d = s->rows->rank - 1; d >= 0; d--) {
        if (s->t->table[d] >= 0) from[s->t->table[d]] = d;
        if (role_of(s, d) != EXAMPLE) continue;
        example[s->t->table[d]] = step;
        step *= s->rows->dims[d];
    }
    for (int d = 0; d < y->rank; d++) {
        int64_t update = from[d] < 0 ? 0 : s->rows->strides[from[d]];
        int64_t id = from[d] < 0 ? 0 : stride_at(s->ids, s->t->ids[from[d]]);
        if (of_ids)
            walk_add(&w, y->dims[d], 5,
                     (int64_t[]){y->strides[d], x->strides[d], id, update, line[d]});
        else
            walk_add(&w, y->dims[d], 4,
                     (int64_t[]){y->strides[d], x->strides[d], update, line[d] + example[d]});
    }
    return w;
}

/* ---- few updates ---- */
enum { FEW = 64 }; /* of an example: every element of the table's may look through them */

static void define_types(Launches *p, const Index *s) {
    cuda_define_type(p, "TABLE", s->table->dtype);
    cuda_define_type(p, "UPDATE", s->rows->dtype);
    cuda_define(p, "COMBINE", "%d", (int)s->t->combine);
}

static void scatter_few(const KArgs *a, Launches *p, const Index *s) {
    enum { THREADS = 256 }; /* as in along.cu */
    CudaWalk w = table_walk(s, 1, 1);
    CudaView of_ids = places(s, 1), of_updates = places(s, 0);
    Axes axes = axes_of(a, s->table, s->ids);
    int64_t count = walk_finish(&w, 5);
    int first = s->x ? 1 : 0;
    cuda_launch(p, "along.cu", "scatter_few", cuda_ceil_div(count, THREADS), THREADS);
    define_types(p, s);
    cuda_operand(p, 0); /* x; where there is none nobody reads it */
    for (int k = first; k < first + 3; k++) cuda_operand(p, k);
    cuda_bytes(p, &w, sizeof w);
    cuda_i64(p, count);
    cuda_bytes(p, &of_ids, sizeof of_ids);
    cuda_bytes(p, &of_updates, sizeof of_updates);
    cuda_i64(p, s->n);
    cuda_i32(p, s->x == NULL);
    cuda_bytes(p, &axes, sizeof axes);
    cuda_fault(p);
}

/* ---- set ---- */
static void find_last(const KArgs *a, Launches *p, const Index *s, size_t last) {
    enum { THREADS = 256 }; /* as in move.cuh */
    CudaWalk ids = ids_walk(s);
    Axes axes = axes_of(a, s->table, s->ids);
    cuda_launch(p, "index.cu", "find_last", cuda_ceil_div(s->n * s->examples, THREADS), THREADS);
    cuda_define(p, "SIZE", "4");
    cuda_define(p, "UNIT", "4");
    cuda_operand(p, 1);
    cuda_scratch(p, last);
    cuda_bytes(p, &ids, sizeof ids);
    cuda_i64(p, s->n);
    cuda_i64(p, s->examples);
    cuda_i64(p, s->lines);
    cuda_bytes(p, &axes, sizeof axes);
    cuda_fault(p);
}

static int set(const KArgs *a, Launches *p, const Index *s) {
    CudaView place = places(s, 0);
    size_t bytes = (size_t)(s->lines * s->examples) * sizeof(int32_t);
    if (s->n > INT32_MAX) return 0;
    size_t last = cuda_take_scratch(p, bytes);
    cuda_fill_scratch(p, last, bytes, 0xff);
    find_last(a, p, s, last);
    CudaWalk w = table_walk(s, 0, 4);
    int64_t size = cuda_size(s->table->dtype), n = walk_finish(&w, 4), unit = size;
    if (w.rank && w.strides[3][w.rank - 1] == 0) /* neighbours share a row */
        unit = walk_widen(&w, 4, 7, size, strides_of(&place));
    n = n * size / unit;
    walk_launch(p, "index.cu", "scatter_set", n, size, unit);
    cuda_operand(p, 0);
    cuda_operand(p, 2);
    cuda_scratch(p, last);
    cuda_operand(p, 3);
    cuda_bytes(p, &w, sizeof w);
    cuda_i64(p, n);
    cuda_bytes(p, &place, sizeof place);
    return 1;
}

/* ---- many updates ---- */
enum { THREADS = 256, WARP = 32, LIGHT = 32, TILE_COLUMNS = 32 }; /* as in scatter.cu */

typedef struct Ids { /* scatter.cu has the same */
    CudaWalk walk;
    int64_t n, examples, rows;
    Axes axes;
} Ids;

typedef struct Sums { /* scatter.cu has the same */
    CudaWalk rows, before, columns;
    CudaView place;
    int64_t nbefore, ncolumns;
    int32_t vectors, zeros;
} Sums;

static void open_launch(Launches *p, const char *entry, int64_t blocks, const Index *s) {
    cuda_launch(p, "scatter.cu", entry, blocks, THREADS);
    define_types(p, s);
}

/* Elements of a vector of updates. */
static int64_t vector_of(const Index *s) {
    return 16 / cuda_size(s->rows->dtype);
}

/* Whether all columns lie in whole vectors of all operands. */
static int in_vectors(const Index *x, const Sums *s) {
    int64_t table = cuda_size(x->table->dtype);
    int64_t size[] = {table, cuda_size(x->rows->dtype), table};
    if (s->columns.rank != 1 || s->ncolumns % vector_of(x)) return 0;
    for (int k = 0; k < 3; k++) {
        int64_t bytes = size[k] * vector_of(x), also = k == 1 ? strides_of(&s->place) : 0;
        for (int d = 0; d < s->before.rank; d++) also |= s->before.strides[k][d];
        for (int d = 0; d < s->rows.rank; d++) also |= s->rows.strides[k][d];
        if (also % (bytes < 16 ? bytes : 16) || s->columns.strides[k][0] != size[k]) return 0;
    }
    return 1;
}

static Sums sums_of(const Index *x) {
    const KTensor *y = x->table, *from = x->x ? x->x : y, *u = x->rows;
    Sums s = {.place = places(x, 0), .zeros = x->x == NULL};
    int inner = u->rank;
    while (inner > 0 && role_of(x, inner - 1) == COLUMN) inner--;
    for (int d = 0; d < u->rank; d++) {
        int of_y = x->t->table[d];
        if (of_y < 0) continue;
        CudaWalk *w = role_of(x, d) == EXAMPLE ? &s.rows : d < inner ? &s.before : &s.columns;
        walk_add(w, u->dims[d], 3,
                 (int64_t[]){y->strides[of_y], u->strides[d], from->strides[of_y]});
    }
    for (int k = 0; k < x->t->naxes; k++) {
        int d = x->t->axes[k];
        walk_add(&s.rows, y->dims[d], 3, (int64_t[]){y->strides[d], 0, from->strides[d]});
    }
    walk_finish(&s.rows, 3);
    s.nbefore = walk_finish(&s.before, 3);
    s.ncolumns = walk_finish(&s.columns, 3);
    s.vectors = in_vectors(x, &s);
    return s;
}

/* The last launch: blocks for heavy rows in front, of which there are `heavy` at most. */
static void add_sums(Launches *p, const Index *x, const Ids *ids, size_t scratch, int64_t heavy) {
    Sums s = sums_of(x);
    int64_t parts = cuda_ceil_div(s.ncolumns, WARP * vector_of(x)) * s.nbefore;
    int64_t light = cuda_ceil_div(ids->rows * ids->examples * parts, THREADS / WARP);
    int64_t most = heavy * s.nbefore * cuda_ceil_div(s.ncolumns, TILE_COLUMNS);
    int32_t blocks = 4 * cuda_gpu(p)->processors;
    int first = x->x ? 1 : 0;
    if (most < blocks) blocks = (int32_t)most;
    open_launch(p, "combine_rows", blocks + light, x);
    cuda_operand(p, 0); /* x; where there is none nobody reads it */
    cuda_operand(p, first + 1);
    cuda_operand(p, first + 2);
    cuda_scratch(p, scratch);
    cuda_bytes(p, ids, sizeof *ids);
    cuda_bytes(p, &s, sizeof s);
    cuda_i32(p, blocks);
}

static int combine(const KArgs *a, Launches *p, const Index *x) {
    Ids ids = {.walk = ids_walk(x),
               .n = x->n,
               .examples = x->examples,
               .rows = x->lines,
               .axes = axes_of(a, x->table, x->ids)};
    int64_t n = x->n * x->examples, rows = x->lines * x->examples, heavy = n / LIGHT;
    int at = x->x ? 1 : 0;
    if (n > INT32_MAX || rows > INT32_MAX) return 0;
    size_t scratch = cuda_take_scratch(p, (size_t)(2 * rows + 2 + heavy + 2 * n) * sizeof(int32_t));
    cuda_fill_scratch(p, scratch, (size_t)(rows + 2) * sizeof(int32_t), 0);
    open_launch(p, "count_ids", cuda_ceil_div(n, THREADS), x);
    cuda_operand(p, at);
    cuda_scratch(p, scratch);
    cuda_bytes(p, &ids, sizeof ids);
    cuda_fault(p);
    open_launch(p, "allot", cuda_ceil_div(rows, THREADS), x);
    cuda_scratch(p, scratch);
    cuda_bytes(p, &ids, sizeof ids);
    open_launch(p, "place_ids", cuda_ceil_div(n, THREADS), x);
    cuda_operand(p, at);
    cuda_scratch(p, scratch);
    cuda_bytes(p, &ids, sizeof ids);
    cuda_fault(p);
    if (heavy) {
        int64_t blocks = 4 * cuda_gpu(p)->processors;
        open_launch(p, "order_heavy", heavy < blocks ? heavy : blocks, x);
        cuda_scratch(p, scratch);
        cuda_bytes(p, &ids, sizeof ids);
    }
    add_sums(p, x, &ids, scratch, heavy);
    return 1;
}

/* Few updates of lines, or of a small table, need no lists. */
static int is_few(const Index *s) {
    int64_t all = cuda_count(s->table);
    return s->n <= FEW && (all == s->examples * s->lines || s->n * all <= 1 << 16);
}

static int scatter_into(const KArgs *a, Launches *p, const KTensor *x) {
    Index s = index_of(a, x);
    if (cuda_count(s.table) == 0) return 1;
    if (is_few(&s)) {
        scatter_few(a, p, &s);
        return 1;
    }
    return s.t->combine == K_SET ? set(a, p, &s) : combine(a, p, &s);
}

static int scatter(const KArgs *a, Launches *p) {
    return scatter_into(a, p, &a->in[0]);
}
static int scatter_add(const KArgs *a, Launches *p) {
    return scatter_into(a, p, NULL);
}

const CudaRow k_cuda_rows_index[] = {
    {"gather", gather},
    {"scatter", scatter},
    {"scatter_add", scatter_add},
    {NULL, NULL},
};
