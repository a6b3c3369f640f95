/* dropout.c - dropout: in x, key (uint32[2]); out y = u_i < keep ? x / keep : 0 (kernel.h).
 *
 * u_i is the uniform float32 in [0, 1) that jax.random makes of the 32 bits of element i of
 * the global array: their upper 23 over 2^23. So the mask is jax.random.bernoulli's. Any
 * strides; y may alias x. */
#include "convert.h"
#include "rows.h"
#include "threefry.h"

enum { TILE = 256 };

typedef struct DropMask {
    uint32_t key[2], below; /* kept where bits >> 9 < below */
    double keep;
} DropMask;

/* The shape with x, y and the counter as operands; the counter's strides count elements. */
typedef struct Shape {
    int rank;
    int64_t count, dims[K_MAX_RANK], strides[3][K_MAX_RANK];
    uint64_t first; /* counter of this device's element 0 */
} Shape;

static Shape shape_of(const KArgs *a) {
    const KTensor *x = &a->in[0], *y = &a->out[0];
    const KDropout *attr = a->attr;
    Shape s = {.rank = (int)k_min(x->rank, K_MAX_RANK), .count = k_count(x)};
    for (int d = 0; d < s.rank; d++) {
        s.dims[d] = x->dims[d];
        s.strides[0][d] = x->strides[d];
        s.strides[1][d] = y->strides[d];
        s.strides[2][d] = attr->strides[d];
        s.first += (uint64_t)a->offsets[d] * (uint64_t)attr->strides[d];
    }
    s.rank = k_collapse(s.rank, s.dims, 3, s.strides);
    return s;
}

/* Elements whose counters are low + i * step with the same upper half. */
static void drop_f32(const DropMask *m, const float *x, float *y, uint32_t high, uint32_t low,
                     uint32_t step, int64_t n) {
    uint32_t k0 = m->key[0], k1 = m->key[1], below = m->below;
    float keep = (float)m->keep;
    K_IVDEP for (int64_t i = 0; i < n; i++) {
        uint32_t a, b;
        k_threefry(k0, k1, high, low + (uint32_t)i * step, &a, &b);
        float kept = x[i] / keep;
        y[i] = (a ^ b) >> 9 < below ? kept : 0.0f;
    }
}
static void drop_f64(const DropMask *m, const double *x, double *y, uint32_t high, uint32_t low,
                     uint32_t step, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        uint64_t counter = (uint64_t)high << 32 | (low + (uint32_t)i * step);
        int keep = k_random_u32(m->key[0], m->key[1], counter) >> 9 < m->below;
        y[i] = keep ? x[i] / m->keep : 0;
    }
}

static void drop(DType type, const DropMask *m, const void *x, void *y, uint64_t counter,
                 uint64_t step, int64_t n) {
    int64_t size = k_type_size(k_dtype_register(type));
    /* one by one where the upper half changes */
    int64_t each = counter >> 32 == (counter + step * (uint64_t)(n - 1)) >> 32 ? n : 1;
    for (int64_t i = 0; i < n; i += each, counter += step) {
        const void *from = (const char *)x + i * size;
        void *to = (char *)y + i * size;
        uint32_t high = (uint32_t)(counter >> 32), low = (uint32_t)counter;
        if (type == DT_F64)
            drop_f64(m, from, to, high, low, (uint32_t)step, each);
        else
            drop_f32(m, from, to, high, low, (uint32_t)step, each);
    }
}

static int dropout(const KArgs *a) {
    const KTensor *x = &a->in[0], *key = &a->in[1], *y = &a->out[0];
    Shape s = shape_of(a);
    DropMask m = {.keep = ((const KDropout *)a->attr)->keep};
    for (int k = 0; k < 2; k++)
        m.key[k] = *(const uint32_t *)(const void *)(key->data + k * key->strides[0]);
    m.below = k_random_below(m.keep);
    _Alignas(64) char in[TILE * 8], out[TILE * 8];
    int64_t last = s.rank ? s.dims[s.rank - 1] : 1, end = k_min(a->hi * K_UNIT_ELEMENTS, s.count),
            n;
    int64_t xs = s.rank ? s.strides[0][s.rank - 1] : 0, ys = s.rank ? s.strides[1][s.rank - 1] : 0;
    uint64_t step = s.rank ? (uint64_t)s.strides[2][s.rank - 1] : 0;
    for (int64_t i = a->lo * K_UNIT_ELEMENTS; i < end; i += n) {
        n = k_min(k_min(TILE, end - i), last - i % last);
        const char *from = x->data + k_offset(s.rank, s.dims, s.strides[0], i);
        char *to = y->data + k_offset(s.rank, s.dims, s.strides[1], i);
        uint64_t counter = s.first + (uint64_t)k_offset(s.rank, s.dims, s.strides[2], i);
        void *run = k_run_out(y->dtype, to, ys, n, out);
        drop(x->dtype, &m, k_run_in(x->dtype, from, xs, n, in), run, counter, step, n);
        k_run_done(y->dtype, to, ys, n, run);
    }
    return 0;
}

static int64_t units(const KArgs *a) {
    return k_ceil_div(k_count(&a->in[0]), K_UNIT_ELEMENTS);
}

K_ROWS(dropout) = {
    {"dropout", dropout, units, NULL},
    {NULL, NULL, NULL, NULL},
};
