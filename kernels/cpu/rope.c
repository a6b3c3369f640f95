/* rope.c - rotary position embedding (Su et al. 2021): in x[..., T, H, D], positions[T] (int32).
 *
 * The pair (i, i + D/2) is rotated by positions[t] * base^(-2 i / D), times sign. D is even. Angles
 * are computed and reduced in double, so a far position is as exact as a near one. Any strides;
 * quick where D is contiguous float32. y may alias x. A unit is one t: its sines serve all rows. */
#include <math.h>
#include "convert.h"
#include "rows.h"
#include "vpow.h"
#include "vspecial.h"

/* cos and sin of a double of any moderate size, as float */
static void turn_f32(double angle, float *c, float *s) {
    double t = angle * 0x1.45f306dc9c883p-1 + 0x1.8p52, n = t - 0x1.8p52;
    float r = (float)((angle - n * 0x1.921fb544p+0) - n * 0x1.0b4611a626331p-34);
    uint32_t quadrant = (uint32_t)k_bits64(t);
    *c = vm_sincos_poly(r, quadrant + 1);
    *s = vm_sincos_poly(r, quadrant);
}

static void rotate_f32(const float *x, float *y, const float *c, const float *s, int64_t half) {
    K_IVDEP for (int64_t i = 0; i < half; i++) {
        float a = x[i], b = x[i + half];
        y[i] = k_fma(a, c[i], -(b * s[i]));
        y[i + half] = k_fma(b, c[i], a * s[i]);
    }
}
static void rotate_f64(const double *x, double *y, const double *c, const double *s, int64_t half) {
    for (int64_t i = 0; i < half; i++) {
        double a = x[i], b = x[i + half];
        y[i] = a * c[i] - b * s[i];
        y[i + half] = b * c[i] + a * s[i];
    }
}

/* The cosines, then the sines, of one position. */
static void table_f32(const KRope *attr, const double *frequency, int32_t position, int64_t half,
                      float *c) {
    for (int64_t i = 0; i < half; i++) {
        turn_f32(position * frequency[i], &c[i], &c[half + i]);
        c[half + i] *= (float)attr->sign;
    }
}
static void table_f64(const KRope *attr, const double *frequency, int32_t position, int64_t half,
                      double *c) {
    for (int64_t i = 0; i < half; i++) {
        c[i] = cos(position * frequency[i]);
        c[half + i] = sin(position * frequency[i]) * attr->sign;
    }
}

static void frequencies(DType type, double base, int64_t half, double *to) {
    double l = vm_log2_d(base);
    for (int64_t i = 0; i < half; i++) {
        double e = -(double)i / (double)half;
        to[i] = type == DT_F64 ? pow(base, e) : vm_exp2_d(e * l);
    }
}

/* The dims but T and D. */
static KWalk walk_rows(const KTensor *x, const KTensor *y, int64_t t) {
    const KTensor *both[2] = {x, y};
    KWalk w = {.count = 2};
    for (int d = 0; d < x->rank - 1; d++) {
        if (d == x->rank - 3) continue;
        w.dims[w.rank] = x->dims[d];
        for (int k = 0; k < 2; k++) w.strides[k][w.rank] = both[k]->strides[d];
        w.rank++;
    }
    for (int k = 0; k < 2; k++) w.at[k] = both[k]->data + t * both[k]->strides[x->rank - 3];
    return w;
}

static int rope(const KArgs *a) {
    const KTensor *x = &a->in[0], *positions = &a->in[1], *y = &a->out[0];
    const KRope *attr = a->attr;
    int64_t half = x->dims[x->rank - 1] / 2;
    char *workspace = k_align(a->workspace);
    KLine in = k_line(x, &workspace), out = k_line(y, &workspace);
    double *frequency = (double *)(void *)workspace, *table = frequency + half;
    if (a->lo >= a->hi) return 0;
    frequencies(x->dtype, attr->base, half, frequency);
    for (int64_t t = a->lo; t < a->hi; t++) {
        int32_t position;
        memcpy(&position, positions->data + t * positions->strides[0], sizeof position);
        float *narrow = (float *)(void *)table;
        if (x->dtype == DT_F64)
            table_f64(attr, frequency, position, half, table);
        else
            table_f32(attr, frequency, position, half, narrow);
        KWalk w = walk_rows(x, y, t);
        int64_t rows = k_walk_size(&w);
        if (rows == 0) continue;
        k_walk_start(&w, 0);
        for (int64_t i = 0; i < rows; i++, k_walk_advance(&w, 1)) {
            const void *from = k_line_in(&in, w.at[0]);
            void *to = k_line_out(&out, w.at[1]);
            if (x->dtype == DT_F64)
                rotate_f64(from, to, table, table + half, half);
            else
                rotate_f32(from, to, narrow, narrow + half, half);
            k_line_done(&out, w.at[1]);
        }
    }
    return 0;
}

static int64_t units(const KArgs *a) {
    return a->in[0].dims[a->in[0].rank - 3];
}
static size_t workspace_bytes(const KArgs *a) {
    int64_t d = a->in[0].dims[a->in[0].rank - 1];
    return (size_t)(2 * k_line_bytes(d) + 8 * 3 * d + 64);
}

K_ROWS(rope) = {
    {"rope", rope, units, workspace_bytes},
    {NULL, NULL, NULL, NULL},
};
