/* index.c - take, scatter_add, scatter_set (kernel.h), take_along_axis and add_along_axis
 * (naive_index.c). Any strides.
 *
 * The table is [before, rows, columns], the other operand (y of take, else the updates) [before,
 * ids, columns]; with examples all have one more dim in front. Each is one walk. */
#include "walk.h"

#include <string.h>

typedef struct Index {
    const KTensor *table, *ids, *other;
    int axis, examples; /* of the table; dims of examples: 0 or 1 */
    int nid;            /* dims of ids, of one example */
    int64_t n, count;   /* ids of an example; examples */
} Index;

typedef struct Rows { /* index.cu has the same */
    int64_t first, rows, size, stride;
} Rows;

static Index index_of(const KArgs *a, const KTensor *table, const KTensor *ids,
                      const KTensor *other) {
    const KTake *t = a->attr;
    Index x = {.table = table, .ids = ids, .other = other, .n = 1, .examples = t->batched != 0};
    x.axis = t->axis + x.examples;
    x.nid = ids->rank - x.examples;
    x.count = x.examples ? table->dims[0] : 1;
    for (int d = x.examples; d < ids->rank; d++) x.n *= ids->dims[d];
    return x;
}

static Rows rows_of(const KArgs *a, const Index *x) {
    return (Rows){.first = a->offsets[0],
                  .rows = x->table->dims[x->axis],
                  .size = ((const KTake *)a->attr)->size,
                  .stride = x->table->strides[x->axis]};
}

static CudaWalk ids_walk(const Index *x) {
    CudaWalk w = {.rank = 0};
    for (int d = 0; d < x->ids->rank; d++) walk_add(&w, x->ids->dims[d], 1, &x->ids->strides[d]);
    walk_finish(&w, 1);
    return w;
}

/* The other operand's dims of ids. */
static CudaView places(const Index *x) {
    int64_t dims[K_MAX_RANK], strides[1][K_MAX_RANK];
    for (int d = 0; d < x->nid; d++) {
        dims[d] = x->other->dims[x->axis + d];
        strides[0][d] = x->other->strides[x->axis + d];
    }
    return cuda_view(cuda_collapse(x->nid, dims, 1, strides), dims, strides[0]);
}

/* All strides of a view, or-ed. */
static int64_t strides_of(const CudaView *v) {
    int64_t all = 0;
    for (int d = 0; d < v->rank; d++) all |= v->strides[d];
    return all;
}

/* ---- take ----------------------------------------------------------------------------------- */
/* w: strides of y, table (0 along ids) and ids. */
static void add_take(Launches *p, const CudaWalk *w, int64_t n, int64_t size, int64_t unit,
                     const Rows *rows) {
    walk_launch(p, "index.cu", "take", n, size, unit);
    cuda_operand(p, 0);
    cuda_operand(p, 1);
    cuda_operand(p, 2);
    cuda_bytes(p, w, sizeof *w);
    cuda_i64(p, n);
    cuda_bytes(p, rows, sizeof *rows);
    cuda_fault(p);
}

static int take(const KArgs *a, Launches *p) {
    const KTensor *y = &a->out[0];
    Index x = index_of(a, &a->in[0], &a->in[1], y);
    Rows rows = rows_of(a, &x);
    CudaWalk w = {.rank = 0};
    for (int d = 0; d < y->rank; d++) {
        int in_ids = d >= x.axis && d < x.axis + x.nid;
        int64_t table = in_ids ? 0 : x.table->strides[d < x.axis ? d : d - x.nid + 1];
        int64_t id = in_ids           ? x.ids->strides[d - x.axis + x.examples]
                     : d < x.examples ? x.ids->strides[0]
                                      : 0;
        walk_add(&w, y->dims[d], 3, (int64_t[]){y->strides[d], table, id});
    }
    int64_t size = cuda_size(y->dtype), n = walk_finish(&w, 3);
    int64_t unit = walk_widen(&w, 3, 3, size, rows.stride);
    add_take(p, &w, n * size / unit, size, unit, &rows);
    return 1;
}

/* ---- scatter_set ---------------------------------------------------------------------------- */
static void add_find_last(Launches *p, const Index *x, const Rows *rows, size_t last) {
    enum { THREADS = 256 }; /* as in move.cuh */
    CudaWalk ids = ids_walk(x);
    cuda_launch(p, "index.cu", "find_last", cuda_ceil_div(x->n * x->count, THREADS), THREADS);
    cuda_define(p, "SIZE", "4");
    cuda_define(p, "UNIT", "4");
    cuda_operand(p, 1);
    cuda_scratch(p, last);
    cuda_bytes(p, &ids, sizeof ids);
    cuda_i64(p, x->n);
    cuda_i64(p, x->count);
    cuda_bytes(p, rows, sizeof *rows);
    cuda_fault(p);
}

static int scatter_set(const KArgs *a, Launches *p) {
    const KTensor *from = &a->in[0], *y = &a->out[0];
    Index x = index_of(a, y, &a->in[1], &a->in[2]);
    Rows rows = rows_of(a, &x);
    CudaView place = places(&x);
    size_t bytes = (size_t)(rows.rows * x.count) * sizeof(int32_t);
    if (cuda_count(y) == 0) return 1;
    if (x.n > INT32_MAX) return 0;
    size_t last = cuda_take_scratch(p, bytes);
    cuda_fill_scratch(p, last, bytes, 0xff);
    add_find_last(p, &x, &rows, last);
    CudaWalk w = {.rank = 0};
    for (int d = 0; d < y->rank; d++) {
        int64_t update = d == x.axis ? 0 : x.other->strides[d < x.axis ? d : d - 1 + x.nid];
        int64_t of_last = d == x.axis ? 4 : d < x.examples ? rows.rows * 4 : 0;
        walk_add(&w, y->dims[d], 4, (int64_t[]){y->strides[d], from->strides[d], update, of_last});
    }
    int64_t size = cuda_size(y->dtype), n = walk_finish(&w, 4);
    int64_t unit = walk_widen(&w, 4, 7, size, strides_of(&place));
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

/* ---- scatter_add ---------------------------------------------------------------------------- */
enum { THREADS = 256, WARP = 32, LIGHT = 32, TILE_COLUMNS = 32 }; /* as in scatter.cu */

typedef struct Ids { /* scatter.cu has the same */
    CudaWalk walk;
    int64_t n, examples, first, rows, size;
} Ids;

typedef struct Sums { /* scatter.cu has the same */
    CudaWalk before, columns;
    CudaView place;
    int64_t nbefore, ncolumns, row_stride, example_stride[2];
    int32_t vectors;
} Sums;

static void open_launch(Launches *p, const char *entry, int64_t blocks, const Index *x) {
    cuda_launch(p, "scatter.cu", entry, blocks, THREADS);
    cuda_define_type(p, "TABLE", x->table->dtype);
    cuda_define_type(p, "UPDATE", x->other->dtype);
}

/* Adds dims [from, end) of the table, which the other operand has `shift` dims later. */
static void add_dims(CudaWalk *w, const Index *x, int from, int end, int shift) {
    for (int d = from; d < end; d++)
        walk_add(w, x->table->dims[d], 2,
                 (int64_t[]){x->table->strides[d], x->other->strides[d + shift]});
}

/* Elements of a vector of updates. */
static int64_t vector_of(const Index *x) {
    return 16 / cuda_size(x->other->dtype);
}

/* Whether all columns lie in whole vectors of both operands; `place`: strides of updates. */
static int in_vectors(const Index *x, const Sums *s) {
    int64_t size[2] = {cuda_size(x->table->dtype), cuda_size(x->other->dtype)};
    int64_t also[2] = {s->row_stride | s->example_stride[0],
                       strides_of(&s->place) | s->example_stride[1]};
    if (s->columns.rank != 1 || s->ncolumns % vector_of(x)) return 0;
    for (int k = 0; k < 2; k++) {
        int64_t bytes = size[k] * vector_of(x);
        for (int d = 0; d < s->before.rank; d++) also[k] |= s->before.strides[k][d];
        if (also[k] % (bytes < 16 ? bytes : 16) || s->columns.strides[k][0] != size[k]) return 0;
    }
    return 1;
}

static Sums sums_of(const Index *x) {
    const KTensor *t = x->table;
    Sums s = {.place = places(x), .row_stride = t->strides[x->axis]};
    if (x->examples) {
        s.example_stride[0] = t->strides[0];
        s.example_stride[1] = x->other->strides[0];
    }
    add_dims(&s.before, x, x->examples, x->axis, 0);
    add_dims(&s.columns, x, x->axis + 1, t->rank, x->nid - 1);
    s.nbefore = walk_finish(&s.before, 2);
    s.ncolumns = walk_finish(&s.columns, 2);
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
    if (most < blocks) blocks = (int32_t)most;
    open_launch(p, "scatter_add", blocks + light, x);
    cuda_operand(p, 1);
    cuda_operand(p, 2);
    cuda_scratch(p, scratch);
    cuda_bytes(p, ids, sizeof *ids);
    cuda_bytes(p, &s, sizeof s);
    cuda_i32(p, blocks);
}

static int add_up(Launches *p, Index x, Rows of) {
    Ids ids = {.walk = ids_walk(&x),
               .n = x.n,
               .examples = x.count,
               .first = of.first,
               .rows = of.rows,
               .size = of.size};
    int64_t n = x.n * x.count, rows = of.rows * x.count, heavy = n / LIGHT;
    if (n > INT32_MAX || rows > INT32_MAX) return 0;
    size_t scratch = cuda_take_scratch(p, (size_t)(2 * rows + 2 + heavy + 2 * n) * sizeof(int32_t));
    cuda_fill_scratch(p, scratch, (size_t)(rows + 2) * sizeof(int32_t), 0);
    open_launch(p, "count_ids", cuda_ceil_div(n, THREADS), &x);
    cuda_operand(p, 0);
    cuda_scratch(p, scratch);
    cuda_bytes(p, &ids, sizeof ids);
    cuda_fault(p);
    open_launch(p, "allot", cuda_ceil_div(rows, THREADS), &x);
    cuda_scratch(p, scratch);
    cuda_bytes(p, &ids, sizeof ids);
    open_launch(p, "place_ids", cuda_ceil_div(n, THREADS), &x);
    cuda_operand(p, 0);
    cuda_scratch(p, scratch);
    cuda_bytes(p, &ids, sizeof ids);
    cuda_fault(p);
    if (heavy) {
        int64_t blocks = 4 * cuda_gpu(p)->processors;
        open_launch(p, "order_heavy", heavy < blocks ? heavy : blocks, &x);
        cuda_scratch(p, scratch);
        cuda_bytes(p, &ids, sizeof ids);
    }
    add_sums(p, &x, &ids, scratch, heavy);
    return 1;
}

static int scatter_add(const KArgs *a, Launches *p) {
    Index x = index_of(a, &a->out[0], &a->in[0], &a->in[1]);
    return cuda_count(x.table) == 0 || add_up(p, x, rows_of(a, &x));
}

/* ---- along an axis -------------------------------------------------------------------------- */
enum { FEW = 64 }; /* updates of a line that every element of the table's may look through */

static Rows line_of(const KArgs *a, const KTensor *table) {
    const KTake *t = a->attr;
    return (Rows){a->offsets[0], table->dims[t->axis], t->size, table->strides[t->axis]};
}

static int take_along(const KArgs *a, Launches *p) {
    const KTensor *x = &a->in[0], *ids = &a->in[1], *y = &a->out[0];
    int axis = ((const KTake *)a->attr)->axis;
    Rows rows = line_of(a, x);
    CudaWalk w = {.rank = 0};
    for (int d = 0; d < y->rank; d++)
        walk_add(&w, y->dims[d], 3,
                 (int64_t[]){y->strides[d], d == axis ? 0 : x->strides[d], ids->strides[d]});
    int64_t size = cuda_size(y->dtype), n = walk_finish(&w, 3), unit = size;
    if (w.rank && w.strides[2][w.rank - 1] == 0) /* neighbours share an id */
        unit = walk_widen(&w, 3, 3, size, rows.stride);
    add_take(p, &w, n * size / unit, size, unit, &rows);
    return 1;
}

/* The lines as examples whose rows are elements: [lines, rows] and [lines, updates]. 0: they do not
 * lie evenly. */
static int lines_as_examples(const KArgs *a, Index *x, KTensor *flat, int64_t (*room)[4]) {
    const KTensor *t[] = {&a->out[0], &a->in[1]};
    int axis = ((const KTake *)a->attr)->axis, rank = t[0]->rank;
    int64_t dims[K_MAX_RANK], strides[2][K_MAX_RANK], count = 1;
    if (axis != rank - 1) return 0;
    for (int d = 0; d < axis; d++) {
        dims[d] = t[0]->dims[d];
        count *= dims[d];
        for (int k = 0; k < 2; k++) strides[k][d] = t[k]->strides[d];
    }
    int lines = cuda_collapse(axis, dims, 2, strides);
    if (lines > 1) return 0;
    for (int k = 0; k < 2; k++) {
        int64_t own[] = {count, t[k]->dims[axis], lines ? strides[k][0] : 0, t[k]->strides[axis]};
        memcpy(room[k], own, sizeof own);
        flat[k] = (KTensor){t[k]->data, room[k], room[k] + 2, 2, t[k]->dtype};
    }
    *x = (Index){.table = &flat[0],
                 .ids = &a->in[0],
                 .other = &flat[1],
                 .axis = 1,
                 .examples = 1,
                 .nid = 1,
                 .n = t[1]->dims[axis],
                 .count = count};
    return 1;
}

static int add_along(const KArgs *a, Launches *p) {
    enum { THREADS_ALONG = 256 }; /* as in along.cu */
    const KTensor *ids = &a->in[0], *u = &a->in[1], *table = &a->out[0];
    int axis = ((const KTake *)a->attr)->axis;
    Rows rows = line_of(a, table);
    KTensor flat[2];
    int64_t room[2][4], n = ids->dims[axis];
    Index x;
    if (cuda_count(table) == 0) return 1;
    if (n > FEW && lines_as_examples(a, &x, flat, room) && add_up(p, x, rows)) return 1;
    CudaWalk w = {.rank = 0};
    for (int d = 0; d < table->rank; d++) {
        int along = d == axis;
        walk_add(&w, table->dims[d], 4,
                 (int64_t[]){table->strides[d], along ? 0 : ids->strides[d],
                             along ? 0 : u->strides[d], along});
    }
    int64_t count = walk_finish(&w, 4);
    cuda_launch(p, "along.cu", "add_along", cuda_ceil_div(count, THREADS_ALONG), THREADS_ALONG);
    cuda_define_type(p, "TABLE", table->dtype);
    cuda_define_type(p, "UPDATE", u->dtype);
    cuda_operand(p, 0);
    cuda_operand(p, 1);
    cuda_operand(p, 2);
    cuda_bytes(p, &w, sizeof w);
    cuda_i64(p, count);
    cuda_i64(p, n);
    cuda_i64(p, ids->strides[axis]);
    cuda_i64(p, u->strides[axis]);
    cuda_bytes(p, &rows, sizeof rows);
    cuda_fault(p);
    return 1;
}

const CudaRow k_cuda_rows_index[] = {
    {"take", take},
    {"scatter_add", scatter_add},
    {"scatter_set", scatter_set},
    {"take_along_axis", take_along},
    {"add_along_axis", add_along},
    {NULL, NULL},
};
