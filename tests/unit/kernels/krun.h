/* krun.h - a case for a kernel, and how to run it on one level. */
#ifndef MESHLUA_KRUN_H
#define MESHLUA_KRUN_H

#include "kvalue.h"

enum { KC_MAX = 40 };

typedef struct Case {
    const char *name;
    const void *attr;
    const int64_t *offsets;
    const KBlas *blas;
    int nin, nout;
    Tensor in[KC_MAX], out[KC_MAX];
    double rtol, atol; /* |x - y| <= atol + rtol |y|, and a little more for 16-bit results */
    int products;      /* "default" may differ from the other levels in its bits */
    int alias[KC_MAX]; /* output k aliases input alias[k] - 1 */
    KFault fault;      /* the one expected */
} Case;

static const char *const kc_levels[] = {"default", "v3", "v4"};

static inline const KernelRow *kc_row(const char *level, const char *name) {
    const KernelRow *row = k_cpu_table(level);
    while (row && row->name && strcmp(row->name, name) != 0) row++;
    if (row && !row->name) fprintf(stderr, "no kernel %s in %s\n", name, level);
    return row && row->name ? row : NULL;
}

static inline void kc_print(const Case *c) {
    for (int k = 0; k < c->nin + c->nout; k++) {
        const Tensor *x = k < c->nin ? &c->in[k] : &c->out[k - c->nin];
        fprintf(stderr, "  %s %d: dtype %d", k < c->nin ? "in" : "out", k < c->nin ? k : k - c->nin,
                (int)x->t.dtype);
        for (int d = 0; d < x->t.rank; d++)
            fprintf(stderr, " %lld/%lld", (long long)x->dims[d], (long long)x->strides[d]);
        fputc('\n', stderr);
    }
}

static inline int kc_part(const KernelRow *row, KArgs *a, int64_t lo, int64_t hi) {
    size_t bytes = row->workspace ? row->workspace(a) : 0;
    a->workspace = malloc(bytes ? bytes : 1); /* its end is where it was asked for */
    memset(a->workspace, 0xff, bytes);
    a->lo = lo;
    a->hi = hi;
    int r = row->fn(a);
    free(a->workspace);
    return r;
}

/* Runs all units: in one call, or (pieces) cut at random and in random order. */
static inline int kc_run(const Case *c, const KernelRow *row, Tensor *in, Tensor *out, int pieces,
                         KFault *fault) {
    KTensor ti[KC_MAX], to[KC_MAX];
    for (int k = 0; k < c->nin; k++) ti[k] = kt_fix(&in[k])->t;
    for (int k = 0; k < c->nout; k++) to[k] = kt_fix(&out[k])->t;
    KArgs a = {.in = ti,
               .out = to,
               .nin = c->nin,
               .nout = c->nout,
               .attr = c->attr,
               .offsets = c->offsets,
               .fault = fault,
               .blas = c->blas};
    int64_t units = row->units ? row->units(&a) : 1, cut[9] = {0}, n = 1;
    if (!pieces) return kc_part(row, &a, 0, units);
    while (n < 8 && cut[n - 1] < units) {
        cut[n] = cut[n - 1] + 1 + below(units - cut[n - 1]);
        n++;
    }
    cut[n] = units;
    int order[8], r = 0;
    for (int k = 0; k < n; k++) {
        int o = (int)below(k + 1);
        order[k] = order[o];
        order[o] = k;
    }
    for (int k = 0; k < n; k++) r |= kc_part(row, &a, cut[order[k]], cut[order[k] + 1]);
    return r;
}

/* Makes output o share input i's memory, which must have its dims and dtype; not if i is broadcast.
 */
static inline void alias_output(Case *c, int o, int i) {
    for (int d = 0; d < c->in[i].t.rank; d++)
        if (c->in[i].strides[d] == 0) return;
    free(c->out[o].block);
    c->out[o] = c->in[i];
    c->alias[o] = i + 1;
}

/* Fresh operands: copies of the inputs, poisoned outputs, aliases joined. */
static inline void kc_operands(const Case *c, Tensor *in, Tensor *out) {
    for (int k = 0; k < c->nin; k++) {
        in[k] = c->in[k];
        in[k].block = malloc(c->in[k].bytes ? c->in[k].bytes : 1);
        memcpy(in[k].block, c->in[k].block, c->in[k].bytes);
        kt_fix(&in[k]);
    }
    for (int k = 0; k < c->nout; k++)
        out[k] = c->alias[k] ? in[c->alias[k] - 1] : kt_like(&c->out[k]);
}
static inline void kc_free_operands(const Case *c, Tensor *in, Tensor *out) {
    for (int k = 0; k < c->nin; k++) free(in[k].block);
    for (int k = 0; k < c->nout; k++)
        if (!c->alias[k]) free(out[k].block);
}

#endif
