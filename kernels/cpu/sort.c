/* sort.c - sort (kernel.h): in keys, then values; out the same, permuted. Any strides.
 *
 * Keys become unsigned integers of the same order: -0 is 0, every NaN the greatest key, and
 * a falling order inverts the bits of all but NaN. Lines of them are sorted with their
 * positions, short ones by insertion, long ones by their bytes from the lowest (both
 * stable). A unit is a line. */
#include "convert.h"
#include "view.h"

enum { SHORT = 48 };

typedef struct SortItem {
    uint64_t key;
    int64_t from; /* position in the line */
} SortItem;

#define FLIP64 ((uint64_t)1 << 63)

static uint64_t float_key(double x, int descending) {
    if (x != x) return ~(uint64_t)0;
    uint64_t u = k_bits64(x == 0 ? 0.0 : x);
    u = u >> 63 ? ~u : u | FLIP64;
    return descending ? ~u : u;
}
static uint64_t int_key(int64_t x, int descending) {
    uint64_t u = (uint64_t)x ^ FLIP64;
    return descending ? ~u : u;
}

static void read_keys(DType type, const char *at, int64_t stride, int64_t n, int descending,
                      SortItem *item) {
    for (int64_t i = 0; i < n; i++, at += stride) {
        union {
            float f;
            double d;
            int32_t i;
            uint32_t u;
            int64_t l;
        } x;
        k_load_fn(type)(&x, at, 0, 1);
        item[i].from = i;
        switch (k_dtype_register(type)) {
        case KT_F32: item[i].key = float_key(x.f, descending); break;
        case KT_F64: item[i].key = float_key(x.d, descending); break;
        case KT_I32: item[i].key = int_key(x.i, descending); break;
        case KT_U32: item[i].key = int_key(x.u, descending); break;
        case KT_U64: item[i].key = int_key((int64_t)((uint64_t)x.l ^ FLIP64), descending); break;
        default: item[i].key = int_key(x.l, descending); break;
        }
    }
}

static void insertion_sort(SortItem *item, int64_t n) {
    for (int64_t i = 1; i < n; i++) {
        SortItem x = item[i];
        int64_t j = i;
        for (; j > 0 && item[j - 1].key > x.key; j--) item[j] = item[j - 1];
        item[j] = x;
    }
}

/* Sorts by each byte that differs somewhere; returns where the result is, item or other. */
static SortItem *radix_sort(SortItem *item, SortItem *other, int64_t n) {
    uint64_t differ = 0;
    for (int64_t i = 1; i < n; i++) differ |= item[i].key ^ item[0].key;
    for (int shift = 0; shift < 64; shift += 8) {
        if ((differ >> shift & 255) == 0) continue;
        int64_t start[257] = {0};
        for (int64_t i = 0; i < n; i++) start[(item[i].key >> shift & 255) + 1]++;
        for (int b = 0; b < 256; b++) start[b + 1] += start[b];
        for (int64_t i = 0; i < n; i++) other[start[item[i].key >> shift & 255]++] = item[i];
        SortItem *t = item;
        item = other;
        other = t;
    }
    return item;
}

/* The dims but `axis` of one operand, and that dim's stride. */
typedef struct SortLines {
    int64_t dims[K_MAX_RANK], strides[K_MAX_RANK], stride;
    int rank;
} SortLines;

static SortLines lines_of(const KTensor *t, int axis) {
    SortLines l = {.stride = t->strides[axis]};
    for (int d = 0; d < t->rank; d++) {
        if (d == axis) continue;
        l.dims[l.rank] = t->dims[d];
        l.strides[l.rank++] = t->strides[d];
    }
    return l;
}

static int sort(const KArgs *a) {
    const KSort *attr = a->attr;
    int axis = attr->axis;
    int64_t n = a->in[0].dims[axis];
    SortItem *item = a->workspace, *other = item + n;
    for (int64_t u = a->lo; u < a->hi; u++) {
        SortLines key = lines_of(&a->in[0], axis);
        read_keys(a->in[0].dtype, a->in[0].data + k_offset(key.rank, key.dims, key.strides, u),
                  key.stride, n, attr->descending, item);
        SortItem *sorted = item;
        if (n <= SHORT)
            insertion_sort(item, n);
        else
            sorted = radix_sort(item, other, n);
        for (int k = 0; k < a->nin; k++) {
            SortLines in = lines_of(&a->in[k], axis), out = lines_of(&a->out[k], axis);
            const char *from = a->in[k].data + k_offset(in.rank, in.dims, in.strides, u);
            char *to = a->out[k].data + k_offset(out.rank, out.dims, out.strides, u);
            int64_t size = k_dtype_size(a->in[k].dtype);
            for (int64_t i = 0; i < n; i++)
                k_copy_run(size, to + i * out.stride, 0, from + sorted[i].from * in.stride, 0, 1);
        }
    }
    return 0;
}

static int64_t sort_units(const KArgs *a) {
    int64_t n = a->in[0].dims[((const KSort *)a->attr)->axis];
    return n ? k_count(&a->in[0]) / n : 0;
}

static size_t sort_workspace(const KArgs *a) {
    return 2 * sizeof(SortItem) * (size_t)a->in[0].dims[((const KSort *)a->attr)->axis];
}

/* ---- top_k: the least keys of a falling order, by a heap whose top is the last kept ---- */
static int before(const SortItem *x, const SortItem *y) {
    return x->key < y->key || (x->key == y->key && x->from < y->from);
}

static void sift_down(SortItem *heap, int64_t n, int64_t i) {
    SortItem x = heap[i];
    for (int64_t child; (child = 2 * i + 1) < n; i = child) {
        child += child + 1 < n && before(&heap[child], &heap[child + 1]);
        if (!before(&x, &heap[child])) break;
        heap[i] = heap[child];
    }
    heap[i] = x;
}

/* Puts the k first of n items in front, in order. */
static void select_first(SortItem *item, int64_t n, int64_t k) {
    for (int64_t i = k / 2; i-- > 0;) sift_down(item, k, i);
    for (int64_t i = k; i < n && k > 0; i++) {
        if (!before(&item[i], &item[0])) continue;
        item[0] = item[i];
        sift_down(item, k, 0);
    }
    for (int64_t i = k - 1; i > 0; i--) {
        SortItem x = item[0];
        item[0] = item[i];
        item[i] = x;
        sift_down(item, i, 0);
    }
}

static int top_k(const KArgs *a) {
    const KTensor *x = &a->in[0], *values = &a->out[0], *ids = &a->out[1];
    int axis = ((const KTopK *)a->attr)->axis;
    int64_t n = x->dims[axis], k = values->dims[axis];
    SortItem *item = a->workspace;
    SortLines in = lines_of(x, axis), out = lines_of(values, axis), places = lines_of(ids, axis);
    for (int64_t u = a->lo; u < a->hi; u++) {
        const char *from = x->data + k_offset(in.rank, in.dims, in.strides, u);
        char *to = values->data + k_offset(out.rank, out.dims, out.strides, u);
        char *place = ids->data + k_offset(places.rank, places.dims, places.strides, u);
        read_keys(x->dtype, from, in.stride, n, 1, item);
        if (k_dtype_is_float(x->dtype)) /* NaN, the greatest key, becomes 0 */
            for (int64_t i = 0; i < n; i++) item[i].key += 1;
        select_first(item, n, k);
        for (int64_t i = 0; i < k; i++) {
            int32_t id = (int32_t)item[i].from;
            k_copy_run(k_dtype_size(x->dtype), to + i * out.stride, 0, from + id * in.stride, 0, 1);
            memcpy(place + i * places.stride, &id, sizeof id);
        }
    }
    return 0;
}

static int64_t top_k_units(const KArgs *a) {
    int64_t k = a->out[0].dims[((const KTopK *)a->attr)->axis];
    return k ? k_count(&a->out[0]) / k : 0;
}

static size_t top_k_workspace(const KArgs *a) {
    return sizeof(SortItem) * (size_t)a->in[0].dims[((const KTopK *)a->attr)->axis];
}

K_ROWS(sort) = {
    {"top_k", top_k, top_k_units, top_k_workspace},
    {"sort", sort, sort_units, sort_workspace},
    {NULL, NULL, NULL, NULL},
};
