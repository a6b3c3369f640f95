/* norm.c - rows of norm.cu and norm_grad.cu. */
#include "reduce.h"
#include "rows.h"

enum {
    HELD = 16, /* most elements of a row that a thread adds up over rows: more do not fit */
    TEAM = 256,
    MOST = 512,          /* threads of a block of several teams, and of one that is a team */
    THREADS = 132 * 512, /* at a time on an H200, with 128 registers each */
    LEAST = 4            /* rows of a team, at least */
};

/* Elements from one to the next of a vector of parameters. */
static int64_t step_of(const KTensor *t) {
    return t->strides[0] / cuda_size(t->dtype);
}

static int has_type(const KTensor *t, DType x) {
    return t->dtype == (x == DT_F64 ? DT_F64 : DT_F32);
}

/* ---- forward -------------------------------------------------------------------------------- */
typedef struct NormSteps {
    int64_t scale, bias;
} NormSteps;
typedef struct StatViews {
    CudaView mean, rstd;
} StatViews;

static int norm(const KArgs *a, Launches *p, int centered) {
    /* Without a mean or a bias what stands in for them is not looked at. */
    int scale = 1, bias = 1 + centered, y = a->nin, mean = y + 1, rstd = y + 1 + centered;
    const KTensor *x = &a->in[0], *out = &a->out[0];
    const KTensor *means = &a->out[mean - a->nin], *rstds = &a->out[rstd - a->nin];
    const KTensor *t[4] = {x, out, &a->in[scale], &a->in[bias]};
    if (!has_type(means, x->dtype) || !has_type(rstds, x->dtype)) return 0;
    CudaRows r = cuda_rows(p, t, 4, 1);
    NormSteps step = {step_of(t[2]), step_of(t[3])};
    StatViews stats = {cuda_view_of(means, means->rank), cuda_view_of(rstds, rstds->rank)};
    cuda_rows_launch(p, &r, "norm.cu", "norm_forward");
    cuda_define_type(p, "TYPE", x->dtype);
    cuda_define_type(p, "SCALE", t[2]->dtype);
    cuda_define_type(p, "BIAS", t[3]->dtype);
    cuda_define(p, "CENTERED", "%d", centered);
    const int operand[] = {0, scale, bias, y, mean, rstd};
    for (int k = 0; k < 6; k++) cuda_operand(p, operand[k]);
    cuda_lines(p, x);
    cuda_lines(p, out);
    cuda_bytes(p, &step, sizeof step);
    cuda_bytes(p, &stats, sizeof stats);
    cuda_i64(p, r.rows);
    cuda_i64(p, r.n);
    cuda_f64(p, ((const KNorm *)a->attr)->eps);
    return 1;
}

/* ---- gradient ------------------------------------------------------------------------------- */
typedef struct GradViews {
    CudaView mean, rstd;
    int64_t scale;
} GradViews;
typedef struct NormSums {
    int64_t scale_line, scale_step, bias_line, bias_step;
} NormSums;

typedef struct NormGrad {
    const KArgs *a;
    int centered;
    const KTensor *dy, *x, *scale, *mean, *rstd, *dx, *dscale, *dbias;
    int64_t parts, shares; /* parts have so many lines of sums */
    size_t scratch[2];     /* of dscale's lines, dbias's, where there are several for a part */
    NormSums sums;
} NormGrad;

static NormGrad operands(const KArgs *a, int centered) {
    NormGrad g = {.a = a,
                  .centered = centered,
                  .dy = &a->in[0],
                  .x = &a->in[1],
                  .scale = &a->in[2],
                  .mean = &a->in[3],
                  .rstd = &a->in[3 + centered],
                  .dx = &a->out[0],
                  .dscale = &a->out[1],
                  .dbias = &a->out[1 + centered]};
    g.parts = g.dscale->dims[0];
    return g;
}

/* Makes room for the lines of sums; `shares` each part has. */
static void share(NormGrad *g, Launches *p, int64_t n, int64_t shares) {
    int64_t size = cuda_size(g->dscale->dtype);
    g->shares = shares;
    g->sums = (NormSums){g->dscale->strides[0] / size, g->dscale->strides[1] / size,
                         g->dbias->strides[0] / size, g->dbias->strides[1] / size};
    if (shares == 1) return;
    g->sums = (NormSums){n, 1, n, 1};
    for (int k = 0; k <= g->centered; k++)
        g->scratch[k] = cuda_take_scratch(p, (size_t)(g->parts * shares * n * size));
}

/* dscale and dbias, or their lines. */
static void pass_sums(const NormGrad *g, Launches *p) {
    for (int k = 0; k < 2; k++) {
        if (g->shares == 1)
            cuda_operand(p, g->a->nin + 1 + (k && g->centered));
        else
            cuda_scratch(p, g->scratch[k && g->centered]);
    }
}

static void add_lines(const NormGrad *g, Launches *p) {
    int wide = g->x->dtype == DT_F64;
    if (g->shares == 1) return;
    for (int k = 0; k <= g->centered; k++)
        reduce_parts(p, g->scratch[k], g->shares, wide, g->a->nin + 1 + k,
                     k ? g->dbias : g->dscale);
}

static void define_types(const NormGrad *g, Launches *p, int whole) {
    cuda_define_type(p, "TYPE", g->x->dtype);
    cuda_define_type(p, "SCALE", g->scale->dtype);
    cuda_define(p, "CENTERED", "%d", g->centered);
    cuda_define(p, "WHOLE", "%d", whole);
}

static void pass_views(const NormGrad *g, Launches *p, const CudaRows *r) {
    GradViews v = {cuda_view_of(g->mean, g->mean->rank), cuda_view_of(g->rstd, g->rstd->rank),
                   step_of(g->scale)};
    cuda_bytes(p, &v, sizeof v);
    cuda_bytes(p, &g->sums, sizeof g->sums);
    cuda_i64(p, r->rows);
    cuda_i64(p, r->n);
    cuda_i64(p, g->parts);
    cuda_i64(p, g->shares);
}

static void launch_grad(const NormGrad *g, Launches *p, const CudaRows *r, int whole) {
    const int operand[] = {0, 1, 2, 3, 3 + g->centered, g->a->nin};
    cuda_rows_launch(p, r, "norm_grad.cu", "norm_grad");
    define_types(g, p, whole);
    for (int k = 0; k < 6; k++) cuda_operand(p, operand[k]);
    pass_sums(g, p);
    cuda_lines(p, g->dy);
    cuda_lines(p, g->x);
    cuda_lines(p, g->dx);
    pass_views(g, p, r);
}

static void launch_params(const NormGrad *g, Launches *p, const CudaRows *r) {
    int64_t tiles = cuda_ceil_div(r->n, r->threads);
    CudaRows columns = *r;
    columns.blocks = g->parts * g->shares * tiles;
    columns.shared = 0;
    cuda_rows_launch(p, &columns, "norm_grad.cu", "params");
    define_types(g, p, 0);
    const int operand[] = {0, 1, 3, 3 + g->centered};
    for (int k = 0; k < 4; k++) cuda_operand(p, operand[k]);
    pass_sums(g, p);
    cuda_lines(p, g->dy);
    cuda_lines(p, g->x);
    pass_views(g, p, r);
}

static int64_t clamp(int64_t x, int64_t high) {
    return x > high ? (high > 1 ? high : 1) : x > 1 ? x : 1;
}

/* One step for a row, its sums in registers; 0: the row is too long. */
static int holds_row(CudaRows *r) {
    int64_t vectors = cuda_ceil_div(r->n, r->vector), lanes = 1, threads = 64;
    int64_t held = r->vector > 1 ? HELD : HELD / 2; /* single elements take a register each */
    r->keep = CUDA_KEEP_REGISTERS;
    if (vectors * r->vector <= 32 * held) {
        while (lanes < 32 && lanes < vectors) lanes *= 2;
        r->lanes = (int)lanes;
        r->per = (int)clamp(cuda_ceil_div(vectors, lanes), vectors);
        r->threads = TEAM;
        return 1;
    }
    r->per = (int)(held / r->vector);
    while (threads < MOST && threads * r->per < vectors) threads *= 2;
    r->threads = (int)threads;
    return threads * r->per >= vectors;
}

static int norm_grad(const KArgs *a, Launches *p, int centered) {
    NormGrad g = operands(a, centered);
    const KTensor *t[4] = {g.dy, g.x, g.dx, g.scale};
    DType x = g.x->dtype;
    if (!has_type(g.mean, x) || !has_type(g.rstd, x) || !has_type(g.dscale, x) ||
        !has_type(g.dbias, x))
        return 0;
    CudaRows r = cuda_rows_of(t, 4);
    if (holds_row(&r)) {
        int64_t teams = r.lanes ? r.threads / r.lanes : 1;
        share(&g, p, r.n, clamp(THREADS / r.threads / g.parts, r.rows / g.parts / (teams * LEAST)));
        r.blocks = g.parts * g.shares;
        if (teams > 1) r.shared = r.n * cuda_size(g.dscale->dtype);
        launch_grad(&g, p, &r, 1);
    } else {
        r = cuda_rows(p, t, 4, 2);
        share(&g, p, r.n,
              clamp(THREADS / r.n / g.parts, r.rows / g.parts / (LEAST * LEAST * LEAST)));
        launch_params(&g, p, &r);
        launch_grad(&g, p, &r, 0);
    }
    add_lines(&g, p);
    return 1;
}

static int layer_norm(const KArgs *a, Launches *p) {
    return norm(a, p, 1);
}
static int layer_norm_grad(const KArgs *a, Launches *p) {
    return norm_grad(a, p, 1);
}
static int rms_norm(const KArgs *a, Launches *p) {
    return norm(a, p, 0);
}
static int rms_norm_grad(const KArgs *a, Launches *p) {
    return norm_grad(a, p, 0);
}

const CudaRow k_cuda_rows_norm[] = {
    {"layer_norm", layer_norm},
    {"layer_norm_grad", layer_norm_grad},
    {"rms_norm", rms_norm},
    {"rms_norm_grad", rms_norm_grad},
    {NULL, NULL},
};
