/* sort.c - sort and top_k (kernel.h). Any strides, lines of any length. */
#include "walk.h"

enum { CHUNK = 2048, THREADS = 256 }; /* as in sort.cu */

typedef struct SortLines { /* sort.cu has the same */
    CudaWalk walk;
    int64_t stride, count, n;
    int32_t descending, nan_first;
} SortLines;

typedef struct Chunks { /* sort.cu has the same */
    int64_t n, pitch;
    int32_t size, keep;
} Chunks;

typedef struct Fetch { /* sort.cu has the same */
    CudaWalk walk;
    int64_t to_stride, from_stride, count, n, pitch;
    int32_t size;
} Fetch;

/* The items of `count` lines, `pitch` of each, in one of two places in the scratch. */
typedef struct Items {
    DType type; /* of the keys */
    int64_t count, pitch;
    size_t at, other;
} Items;

static void open_launch(Launches *p, const char *entry, const Items *items, int64_t blocks,
                        int threads) {
    cuda_launch(p, "sort.cu", entry, blocks, threads);
    cuda_define_type(p, "TYPE", items->type);
}

static void swap_places(Items *items) {
    size_t t = items->at;
    items->at = items->other;
    items->other = t;
}

/* A dim of each of up to two operands is the line; the others are walked. */
static CudaWalk lines_walk(const KTensor *a, const KTensor *b, int axis, int64_t *count) {
    CudaWalk w = {.rank = 0};
    for (int d = 0; d < a->rank; d++)
        if (d != axis)
            walk_add(&w, a->dims[d], b ? 2 : 1, (int64_t[]){a->strides[d], b ? b->strides[d] : 0});
    *count = walk_finish(&w, b ? 2 : 1);
    return w;
}

static SortLines lines_of(const KTensor *x, int axis, int descending, int nan_first) {
    SortLines l = {.stride = x->strides[axis],
                   .n = x->dims[axis],
                   .descending = descending,
                   .nan_first = nan_first};
    l.walk = lines_walk(x, NULL, axis, &l.count);
    return l;
}

static int32_t chunk_of(int64_t n) {
    int32_t size = 2;
    while (size < CHUNK && size < n) size *= 2;
    return size;
}

static Items items_of(Launches *p, const KTensor *x, const SortLines *l) {
    Items items = {.type = x->dtype, .count = l->count};
    size_t bytes = (size_t)(l->count * l->n) * (cuda_size(x->dtype) == 8 ? 16 : 8);
    items.at = cuda_take_scratch(p, bytes);
    items.other = l->n > CHUNK ? cuda_take_scratch(p, bytes) : items.at;
    return items;
}

static int64_t chunk_blocks(const Items *items, const Chunks *c) {
    return cuda_ceil_div(items->count * cuda_ceil_div(c->n, c->size), CHUNK / c->size);
}

/* Operand 0 becomes items in sorted chunks, of which no more than `keep` are kept. */
static void add_elements(Launches *p, Items *items, const SortLines *l, int64_t keep) {
    Chunks c = {.n = l->n, .size = chunk_of(l->n)};
    c.keep = keep < c.size ? (int32_t)keep : c.size;
    c.pitch = c.keep == c.size ? c.n : cuda_ceil_div(c.n, c.size) * c.keep;
    items->pitch = c.pitch;
    open_launch(p, "sort_elements", items, chunk_blocks(items, &c), CHUNK / 2);
    cuda_operand(p, 0);
    cuda_scratch(p, items->at);
    cuda_bytes(p, l, sizeof *l);
    cuda_bytes(p, &c, sizeof c);
}

/* One more round: of each chunk of what is left the first `keep`. */
static void add_items(Launches *p, Items *items, int64_t keep) {
    Chunks c = {.n = items->pitch, .size = chunk_of(items->pitch), .keep = (int32_t)keep};
    c.pitch = cuda_ceil_div(c.n, c.size) * keep;
    items->pitch = c.pitch;
    open_launch(p, "sort_items", items, chunk_blocks(items, &c), CHUNK / 2);
    cuda_scratch(p, items->at);
    cuda_scratch(p, items->other);
    cuda_i64(p, items->count);
    cuda_bytes(p, &c, sizeof c);
    swap_places(items);
}

static void add_merges(Launches *p, Items *items) {
    for (int64_t run = CHUNK; run < items->pitch; run *= 2) {
        int64_t n = items->count * items->pitch;
        open_launch(p, "merge_runs", items, cuda_ceil_div(n, THREADS), THREADS);
        cuda_scratch(p, items->at);
        cuda_scratch(p, items->other);
        cuda_i64(p, items->count);
        cuda_i64(p, items->pitch);
        cuda_i64(p, run);
        swap_places(items);
    }
}

/* Operand k_to gets the elements of operand k_from that the items name, or their places
 * (from NULL). */
static void add_fetch(Launches *p, const Items *items, const KTensor *from, int k_from,
                      const KTensor *to, int k_to, int axis) {
    Fetch f = {.to_stride = to->strides[axis],
               .from_stride = from ? from->strides[axis] : 0,
               .n = to->dims[axis],
               .pitch = items->pitch,
               .size = (int32_t)cuda_size(to->dtype)};
    f.walk = lines_walk(to, from, axis, &f.count);
    open_launch(p, from ? "fetch" : "fetch_places", items, cuda_ceil_div(f.count * f.n, THREADS),
                THREADS);
    cuda_scratch(p, items->at);
    if (from) cuda_operand(p, k_from);
    cuda_operand(p, k_to);
    cuda_bytes(p, &f, sizeof f);
}

static int sort(const KArgs *a, Launches *p) {
    const KSort *attr = a->attr;
    SortLines l = lines_of(&a->in[0], attr->axis, attr->descending, 0);
    if (cuda_count(&a->in[0]) == 0) return 1;
    if (l.n >= UINT32_MAX) return 0;
    Items items = items_of(p, &a->in[0], &l);
    add_elements(p, &items, &l, CHUNK);
    add_merges(p, &items);
    for (int k = 0; k < a->nin; k++)
        add_fetch(p, &items, &a->in[k], k, &a->out[k], a->nin + k, attr->axis);
    return 1;
}

static int top_k(const KArgs *a, Launches *p) {
    int axis = ((const KTopK *)a->attr)->axis;
    const KTensor *x = &a->in[0], *y = &a->out[0];
    SortLines l = lines_of(x, axis, 1, 1);
    int64_t k = y->dims[axis];
    if (cuda_count(y) == 0) return 1;
    if (l.n > INT32_MAX) return 0;
    Items items = items_of(p, x, &l);
    if (2 * k <= CHUNK) { /* a round leaves half at most */
        add_elements(p, &items, &l, k);
        while (items.pitch > k) add_items(p, &items, k);
    } else {
        add_elements(p, &items, &l, CHUNK);
        add_merges(p, &items);
    }
    add_fetch(p, &items, x, 0, y, 1, axis);
    add_fetch(p, &items, NULL, 0, &a->out[1], 2, axis);
    return 1;
}

const CudaRow k_cuda_rows_sort[] = {
    {"top_k", top_k},
    {"sort", sort},
    {NULL, NULL},
};
