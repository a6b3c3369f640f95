/* kcheck.h - runs a case on every level of this processor and holds it to the naive kernel. With
 * KC_CUDA: on a GPU instead (kcuda.h of tests/cuda).
 *
 * Checked: the result code and fault; every element against the naive kernel; that each is written,
 * for outputs begin with other bytes in each run; that inputs, guards and gaps are unharmed; that
 * random cuts of the units in random order give the same bits as one call; and that the levels
 * agree bit for bit (NaNs of any bits are equal).
 */
#ifndef MESHLUA_KCHECK_H
#define MESHLUA_KCHECK_H

#include "krun.h"
#ifdef KC_CUDA
#    include "kcuda.h"
#endif

static inline void kc_fill(const Tensor *x, int byte) {
    size_t size = (size_t)kt_size(x->t.dtype);
    for (Walk w = walk_of(x); w.left; walk_on(&w)) memset(w.at, byte, size);
}

/* Whether all bytes that are not elements are GUARD_BYTE. Spoils the elements. */
static inline int kc_unharmed(Tensor *x) {
    kc_fill(x, GUARD_BYTE);
    return x->bytes == 0 || ((uint8_t)x->block[0] == GUARD_BYTE &&
                             memcmp(x->block, x->block + 1, x->bytes - 1) == 0);
}

/* Whether the two lie alike, and all their bytes are equal: those between the elements, too. */
static inline int kc_equal(const Tensor *x, const Tensor *y) {
    return x->bytes == y->bytes && x->offset == y->offset &&
           memcmp(x->strides, y->strides, sizeof x->strides[0] * (size_t)x->t.rank) == 0 &&
           memcmp(x->block, y->block, x->bytes) == 0;
}

static inline int kc_same_bits(const Tensor *x, const Tensor *y) {
    size_t size = (size_t)kt_size(x->t.dtype);
    if (kc_equal(x, y)) return 1;
    for (Walk v = walk_of(x), w = walk_of(y); v.left; walk_on(&v), walk_on(&w)) {
        int nan = kt_is_float(x->t.dtype) && isnan(kt_float(x->t.dtype, v.at)) &&
                  isnan(kt_float(x->t.dtype, w.at));
        if (!nan && memcmp(v.at, w.at, size) != 0) return 0;
    }
    return 1;
}

static inline int kc_close(const Case *c, DType t, const void *p, const void *q) {
    if (!kt_is_float(t)) return memcmp(p, q, (size_t)kt_size(t)) == 0;
    double x = kt_float(t, p), y = kt_float(t, q);
    if (isnan(y) || isnan(x)) /* beyond its largest number */
        return (isnan(x) && isnan(y)) || (t == DT_E4M3 && fabs(isnan(x) ? y : x) == 448);
    double unit = t == DT_BF16   ? 0x1p-7
                  : t == DT_F16  ? 0x1p-10
                  : t == DT_E4M3 ? 0x1p-3
                  : t == DT_E5M2 ? 0x1p-2
                                 : 0,
           tiny = t == DT_F16    ? 0x1p-24
                  : t == DT_E4M3 ? 0x1p-9
                  : t == DT_E5M2 ? 0x1p-16
                                 : 0;
    if (isinf(x) != isinf(y))
        return (t == DT_F16 && fabs(isinf(x) ? y : x) > 65000) ||
               (t == DT_E5M2 && fabs(isinf(x) ? y : x) == 57344);
    return x == y || fabs(x - y) <= c->atol + tiny + (c->rtol + unit) * fabs(y);
}

static inline void kc_compare(const Case *c, const char *level, const Tensor *x, const Tensor *y,
                              int k) {
    Walk v = walk_of(x), w = walk_of(y);
    if (kc_equal(x, y)) v.left = 0;
    for (int64_t i = 0; v.left; i++, walk_on(&v), walk_on(&w)) {
        if (kc_close(c, x->t.dtype, v.at, w.at)) continue;
        DType t = x->t.dtype;
        int f = kt_is_float(t);
        CHECKF(0, "%s %s: out %d element %lld is %.9g, not %.9g", level, c->name, k, (long long)i,
               f ? kt_float(t, v.at) : (double)kt_int(t, v.at),
               f ? kt_float(t, w.at) : (double)kt_int(t, w.at));
        kc_print(c);
        return;
    }
    CHECK(1);
}

static inline void kc_inputs_kept(const Case *c, const char *level, const Tensor *in) {
    for (int k = 0; k < c->nin; k++) {
        int aliased = 0;
        for (int o = 0; o < c->nout; o++) aliased |= c->alias[o] == k + 1;
        CHECKF(aliased || memcmp(in[k].block, c->in[k].block, in[k].bytes) == 0,
               "%s %s: input %d was written", level, c->name, k);
    }
}

/* Gives a tensor that shares an input's block its own. */
static inline void kc_keep(Tensor *x) {
    char *block = malloc(x->bytes);
    memcpy(block, x->block, x->bytes);
    x->block = block;
    kt_fix(x);
}

#ifdef KC_CUDA
/* A GPU's arithmetic is close to the processor's, not equal to it. */
static inline void kc_widen(Case *c) {
    DType t = c->nout ? c->out[0].t.dtype : DT_F32;
    double least = t == DT_F64 ? 1e-12 : 1e-5, ratio = c->rtol > 0 ? least / c->rtol : 1;
    if (!kt_is_float(t) || ratio <= 1) return;
    c->rtol = least;
    c->atol *= ratio < 5 ? ratio : 5;
}

/* What the GPU makes of the case, in two launches. */
static inline void kc_everywhere(Case *c, const Tensor *want) {
    static Tensor in[KC_MAX], in_again[KC_MAX], got[KC_MAX], again[KC_MAX];
    int fails = c->fault.kind != K_FAULT_NONE;
    kc_operands(c, in, got);
    kc_operands(c, in_again, again);
    for (int k = 0; k < c->nout; k++)
        if (!c->alias[k]) kc_fill(&got[k], OTHER_BYTE);
    fails |= !kc_open() || !kc_launch_twice(c, in, got, in_again, again);
    kc_inputs_kept(c, "cuda", in);
    for (int k = 0; k < c->nout; k++)
        if (c->alias[k]) kc_keep(&got[k]);
    kc_widen(c);
    for (int k = 0; k < c->nout && !fails; k++) {
        kc_compare(c, "cuda", &got[k], &want[k], k);
        CHECKF(memcmp(got[k].block, again[k].block, got[k].bytes) == 0,
               "cuda %s: out %d differs from launch to launch", c->name, k);
        CHECKF(c->alias[k] || kc_unharmed(&again[k]), "cuda %s: wrote outside out %d", c->name, k);
    }
    kc_free_operands(c, in_again, again);
    for (int k = 0; k < c->nin; k++) free(in[k].block);
    for (int k = 0; k < c->nout; k++) free(got[k].block);
}
#else
/* What one level made of the case, in one call and in pieces. `earlier`: outputs that must be the
 * same bits, or NULL. Returns the outputs, or NULL if this processor has no such level. */
static inline Tensor *kc_level(const Case *c, const char *level, const Tensor *want,
                               const Tensor *earlier) {
    static Tensor in[KC_MAX], in_cut[KC_MAX], cut[KC_MAX];
    const KernelRow *row = kc_row(level, c->name);
    KFault fault = {0}, other = {0};
    int fails = c->fault.kind != K_FAULT_NONE;
    if (!row) return NULL;
    Tensor *got = malloc(sizeof(Tensor) * KC_MAX);
    kc_operands(c, in, got);
    kc_operands(c, in_cut, cut);
    for (int k = 0; k < c->nout; k++)
        if (!c->alias[k]) kc_fill(&got[k], OTHER_BYTE);
    CHECKF(kc_run(c, row, in, got, 0, &fault) == fails, "%s %s", level, c->name);
    CHECKF(kc_run(c, row, in_cut, cut, 1, &other) == fails, "%s %s", level, c->name);
    CHECKF(!fails || (fault.kind == c->fault.kind && fault.value == c->fault.value &&
                      fault.limit == c->fault.limit),
           "%s %s: fault %lld of %lld", level, c->name, (long long)fault.value,
           (long long)fault.limit);
    kc_inputs_kept(c, level, in);
    for (int k = 0; k < c->nout; k++)
        if (c->alias[k]) kc_keep(&got[k]);
    for (int k = 0; k < c->nout && !fails; k++) {
        kc_compare(c, level, &got[k], &want[k], k);
        CHECKF(kc_same_bits(&got[k], &cut[k]), "%s %s: a cut changed out %d", level, c->name, k);
        CHECKF(!earlier || kc_same_bits(&got[k], &earlier[k]), "%s %s: out %d differs in bits",
               level, c->name, k);
        CHECKF(c->alias[k] || kc_unharmed(&cut[k]), "%s %s: wrote outside out %d", level, c->name,
               k);
    }
    kc_free_operands(c, in_cut, cut);
    for (int k = 0; k < c->nin; k++) free(in[k].block);
    return got;
}

static inline void kc_everywhere(Case *c, const Tensor *want) {
    Tensor *got[3], *earlier = NULL;
    for (int l = 0; l < 3; l++) {
        got[l] = kc_level(c, kc_levels[l], want, earlier);
        if (got[l] && !(c->products && l == 0)) earlier = got[l];
    }
    for (int l = 0; l < 3; l++) {
        for (int k = 0; got[l] && k < c->nout; k++) free(got[l][k].block);
        free(got[l]);
    }
}
static inline int kc_enough(const Case *c) {
    (void)c;
    return 0;
}
static inline int kc_compile(const Case *c) {
    (void)c;
    return 0;
}
#endif

/* Runs the case and frees its tensors. */
static inline void check_case(Case *c) {
    static Tensor in[KC_MAX], want[KC_MAX];
    KFault fault = {0};
    int before = test_failures;
    if (!kc_enough(c) && !kc_compile(c)) {
        kc_operands(c, in, want);
        CHECK(kc_run(c, kc_row("naive", c->name), in, want, 0, &fault) ==
              (c->fault.kind != K_FAULT_NONE));
        kc_everywhere(c, want);
        if (test_failures != before) kc_print(c);
        kc_free_operands(c, in, want);
    }
    for (int k = 0; k < c->nin; k++) free(c->in[k].block);
    for (int k = 0; k < c->nout; k++)
        if (!c->alias[k]) free(c->out[k].block);
}

#endif
