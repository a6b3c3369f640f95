/* attention.c - rows of attention and its gradient: which kernels, and how large their tiles.
 *
 * 16-bit floats of up to 128 depths go to tensor cores, all else, and keys of another dtype, to
 * plain arithmetic. What is added
 * up in which order depends on the tiles' columns, so these follow from dtype, depth and mask
 * alone; how many rows a block has may follow from the rest. Where wgmma is asked for (it has run
 * on no GPU yet), warpgroups have GROUP_ROWS rows, of depths of whole 64s; their tiles lie without
 * gaps, which leaves room to align them. */
#include "attention_args.cuh"
#include "view.h"

enum { STRIP = 16, GROUP_ROWS = 64, MOST_DEPTH = 128, PAD = 128, DELTA_THREADS = 128 };

static int64_t whole(int64_t n, int64_t unit) {
    return cuda_ceil_div(n, unit) * unit;
}
static int64_t padded_depth(int64_t depth) {
    return depth > 0 ? whole(depth, STRIP) : STRIP;
}

/* Of one of the kernels of tensor cores: warps of a block, strips of 16 rows of each, columns of a
 * tile of scores; and whether its products are those of warpgroups. */
typedef struct Tiles {
    int warps, strips, columns, wgmma;
} Tiles;

typedef enum Role { FORWARD, GRAD_KEYS, GRAD_QUERIES } Role;

/* The largest whose sums stay in the 255 registers of a thread, but for a few words of some kinds,
 * with two strips where that leaves room for them. */
static Tiles tiles_of(Role role, int64_t rows, int64_t depth, int marked, const CudaGpu *gpu) {
    int shallow = depth <= 64, wide = padded_depth(depth) % 64 == 0;
    if (gpu->wgmma && rows >= GROUP_ROWS && wide && (shallow || role != GRAD_KEYS))
        return (Tiles){8, 1, 64, 1};
    if (marked) return (Tiles){8, 1, shallow ? 64 : 32, 0};
    if (role == FORWARD) return (Tiles){4, 2, shallow ? 64 : 32, 0};
    return role == GRAD_QUERIES || shallow ? (Tiles){4, 2, 32, 0} : (Tiles){8, 1, 32, 0};
}

static int64_t block_rows(Tiles t) {
    return (int64_t)t.warps * t.strips * STRIP;
}
static size_t shared_bytes(Role role, Tiles t, int64_t depth) {
    int64_t rows = (role == FORWARD ? 1 : 2) * block_rows(t) + 4 * t.columns;
    int64_t of_rows = role == GRAD_KEYS ? 4 * t.columns * (int64_t)sizeof(float) : 0;
    return (size_t)(rows * (padded_depth(depth) + 8) * 2 + of_rows);
}

/* Halves the block while half of it has room for all rows, or until it fits into the processor. 0:
 * it does not. */
static int fit(Role role, Tiles *t, int64_t rows, int64_t depth, size_t shared) {
    while (block_rows(*t) / 2 >= rows || shared_bytes(role, *t, depth) > shared) {
        if (t->strips > 1)
            t->strips /= 2;
        else if (t->warps > 1)
            t->warps /= 2;
        else
            break;
    }
    return shared_bytes(role, *t, depth) <= shared;
}

static AttentionSteps steps_of(const KTensor *t) {
    return (AttentionSteps){t->strides[0], t->strides[1], t->strides[2], t->strides[3]};
}

/* What is not known when code is compiled for causal alone and dropout. */
static int is_general(const KArgs *a) {
    const KAttention *attr = a->attr;
    int64_t ahead = a->in[1].dims[1] - a->in[0].dims[1];
    if (attr->left >= 0 || attr->right >= 0 || attr->soft_cap != 0) return 1;
    if (attr->causal && (attr->ahead != ahead || (a->offsets && a->offsets[2]))) return 1;
    for (int o = 0; o < K_ATTENTION_OPTIONS; o++)
        if (attr->at[o] && o != K_ATTENTION_KEY) return 1;
    return 0;
}
static int drops(const KArgs *a) {
    const KAttention *attr = a->attr;
    return attr->at[K_ATTENTION_KEY] && attr->keep < 1;
}

static void dropout_of(const KArgs *a, AttentionArgs *to) {
    const KAttention *attr = a->attr;
    float edge = (float)attr->keep * 0x1p23f;
    to->keep = attr->keep;
    to->below = (unsigned)edge + ((float)(unsigned)edge < edge);
    to->key = a->in[attr->at[K_ATTENTION_KEY]].strides[0];
    for (int d = 0; d < 4; d++) {
        to->counter[d] = attr->strides[d];
        to->first += (uint64_t)a->offsets[d] * (uint64_t)attr->strides[d];
    }
}

/* The strides of an option, if it is there. */
static void strides_of(const KArgs *a, KAttentionOption o, long long *to) {
    const KAttention *attr = a->attr;
    if (!attr->at[o]) return;
    const KTensor *t = &a->in[attr->at[o]];
    for (int d = 0; d < t->rank; d++) to[d] = t->strides[d];
}

static void options_of(const KArgs *a, AttentionArgs *to) {
    static const int kinds[DT_COUNT] = {[DT_F32] = 0, [DT_F64] = 1, [DT_BF16] = 2, [DT_F16] = 3};
    enum { FAR = 1 << 30 };
    const KAttention *attr = a->attr;
    int bias = attr->at[K_ATTENTION_BIAS];
    to->left = attr->left < 0 ? FAR : (int)attr->left;
    to->right = attr->causal ? 0 : attr->right < 0 ? FAR : (int)attr->right;
    to->row = a->offsets ? a->offsets[2] : 0;
    to->ahead = attr->ahead;
    to->soft_cap = attr->soft_cap;
    to->bias_type = bias ? kinds[a->in[bias].dtype] : 0;
    strides_of(a, K_ATTENTION_MASK, to->mask);
    strides_of(a, K_ATTENTION_BIAS, to->bias);
    strides_of(a, K_ATTENTION_LENGTHS, &to->lengths);
    strides_of(a, K_ATTENTION_QUERY_LENGTHS, &to->query_lengths);
    strides_of(a, K_ATTENTION_OFFSET, &to->offset);
    strides_of(a, K_ATTENTION_QUERY_SEGMENTS, to->query_ids);
    strides_of(a, K_ATTENTION_SEGMENTS, to->key_ids);
}

static AttentionArgs args_of(const KArgs *a, const KTensor *lse) {
    const KAttention *attr = a->attr;
    const int64_t *q = a->in[0].dims, *k = a->in[1].dims;
    AttentionArgs to = {.batches = (int)q[0],
                        .queries = (int)q[1],
                        .heads = (int)q[2],
                        .depth = (int)q[3],
                        .keys = (int)k[1],
                        .groups = (int)k[2],
                        .padded = (int)whole(q[1], PAD),
                        .causal = attr->causal,
                        .scale = attr->scale,
                        .q = steps_of(&a->in[0]),
                        .k = steps_of(&a->in[1]),
                        .v = steps_of(&a->in[2])};
    for (int d = 0; d < 3; d++) to.lse[d] = lse->strides[d];
    if (drops(a)) dropout_of(a, &to);
    options_of(a, &to);
    return to;
}

/* Whether numbers of rows and blocks are 32-bit numbers. */
static int fits(const KArgs *a) {
    const int64_t *q = a->in[0].dims, *k = a->in[1].dims, most = INT32_MAX / 2;
    for (int d = 0; d < 4; d++)
        if (q[d] > most || k[d] > most) return 0;
    double heads = (double)q[0] * (double)q[2], chunks = (double)cuda_ceil_div(q[3], 16) + 1;
    return heads * (double)(cuda_ceil_div(q[1], STRIP) + cuda_ceil_div(k[1], STRIP)) * chunks <
           (double)most;
}

static void open(Launches *p, const KArgs *a, const char *file, const char *entry, int64_t blocks,
                 int threads) {
    cuda_launch(p, file, entry, blocks, threads);
    cuda_define_type(p, "ELEMENT", a->in[0].dtype);
    cuda_define_type(p, "KEY_ELEMENT", a->in[1].dtype);
    cuda_define(p, "GENERAL", "%d", is_general(a));
    cuda_define(p, "DROPS", "%d", drops(a));
}

static void open_mma(Launches *p, const KArgs *a, const char *file, const char *entry, Role role,
                     Tiles t, int64_t blocks) {
    open(p, a, file, entry, blocks, t.warps * 32);
    cuda_define(p, "DEPTH", "%d", (int)padded_depth(a->in[0].dims[3]));
    cuda_define(p, "WARPS", "%d", t.warps);
    cuda_define(p, "STRIPS", "%d", t.strips);
    cuda_define(p, "WGMMA", "%d", t.wgmma);
    cuda_define(p, role == GRAD_KEYS ? "QUERIES" : "KEYS", "%d", t.columns);
    cuda_shared(p, shared_bytes(role, t, a->in[0].dims[3]));
}

static void option_operands(Launches *p, const KArgs *a) {
    const KAttention *attr = a->attr;
    for (int o = 0; o < K_ATTENTION_OPTIONS; o++) {
        if (attr->at[o])
            cuda_operand(p, attr->at[o]);
        else
            cuda_i64(p, 0);
    }
}

static int uses_mma(const KArgs *a) {
    DType t = a->in[0].dtype;
    return (t == DT_BF16 || t == DT_F16) && a->in[1].dtype == t && a->in[0].dims[3] <= MOST_DEPTH &&
           ((const KAttention *)a->attr)->scale > 0;
}

/* Rows of a block of the plain kernels, and the blocks for so many rows of so many heads. */
static int64_t plain_blocks(const KArgs *a, int64_t heads, int64_t rows) {
    int64_t tile = a->in[0].dtype == DT_F64 ? 32 : 64, chunks = cuda_ceil_div(a->in[0].dims[3], 64);
    return heads * cuda_ceil_div(rows, tile) * (chunks > 0 ? chunks : 1);
}

static int attention(const KArgs *a, Launches *p) {
    if (!fits(a)) return 0;
    const int64_t *q = a->in[0].dims;
    AttentionArgs args = args_of(a, &a->out[1]);
    args.y = steps_of(&a->out[0]);
    Tiles t = tiles_of(FORWARD, q[1], q[3], is_general(a) || drops(a), cuda_gpu(p));
    if (uses_mma(a) && fit(FORWARD, &t, q[1], q[3], cuda_gpu(p)->shared))
        open_mma(p, a, "attention_mma.cu", "attention_mma", FORWARD, t,
                 q[0] * q[2] * cuda_ceil_div(q[1], block_rows(t)));
    else
        open(p, a, "attention.cu", "attention", plain_blocks(a, q[0] * q[2], q[1]), 256);
    for (int i = 0; i < 3; i++) cuda_operand(p, i);
    option_operands(p, a);
    for (int i = 0; i < 2; i++) cuda_operand(p, a->nin + i);
    cuda_bytes(p, &args, sizeof args);
    return 1;
}

/* What the gradient's kernels share. */
typedef struct Grad {
    AttentionArgs args;
    size_t base, delta; /* in the scratch */
} Grad;

static void delta(Launches *p, const KArgs *a, const Grad *g, int mma) {
    int64_t vectors = cuda_ceil_div(a->in[0].dims[3], 16 / cuda_size(a->in[0].dtype));
    int64_t rows = (int64_t)g->args.batches * g->args.heads * g->args.padded;
    int lanes = 1;
    while (lanes < 32 && lanes < vectors) lanes *= 2;
    open(p, a, "attention_delta.cu", "attention_delta", cuda_ceil_div(rows * lanes, DELTA_THREADS),
         DELTA_THREADS);
    cuda_define(p, "LANES", "%d", lanes);
    for (int i = 3; i < 6; i++) cuda_operand(p, i);
    cuda_scratch(p, g->base);
    cuda_scratch(p, g->delta);
    cuda_f64(p, mma ? 1.4426950408889634 : 1); /* base in the unit of exponents of 2 */
    cuda_bytes(p, &g->args, sizeof g->args);
}

static void grad_params(Launches *p, const KArgs *a, const Grad *g, int out, int nout) {
    for (int i = 0; i < 3; i++) cuda_operand(p, i);
    cuda_operand(p, 5);
    option_operands(p, a);
    cuda_scratch(p, g->base);
    cuda_scratch(p, g->delta);
    for (int i = 0; i < nout; i++) cuda_operand(p, a->nin + out + i);
    if (out == 0 && a->nout > 3) cuda_operand(p, a->nin + 3);
    if (out == 0 && a->nout <= 3) cuda_i64(p, 0);
    cuda_bytes(p, &g->args, sizeof g->args);
}

static int attention_grad(const KArgs *a, Launches *p) {
    if (!fits(a)) return 0;
    const int64_t *q = a->in[0].dims, *k = a->in[1].dims;
    static const char *const entries[] = {NULL, "attention_grad_keys", "attention_grad_queries"};
    Grad g = {.args = args_of(a, &a->in[4])};
    g.args.y = steps_of(&a->in[3]), g.args.dy = steps_of(&a->in[5]);
    g.args.dq = steps_of(&a->out[0]), g.args.dk = steps_of(&a->out[1]);
    g.args.dv = steps_of(&a->out[2]);
    for (int d = 0; d < 4 && a->nout > 3; d++) g.args.dbias[d] = a->out[3].strides[d];
    size_t bytes = (size_t)(q[0] * q[2] * g.args.padded) * (a->in[0].dtype == DT_F64 ? 8 : 4);
    g.base = cuda_take_scratch(p, bytes), g.delta = cuda_take_scratch(p, bytes);

    Tiles tiles[3];
    int mma = uses_mma(a);
    for (Role r = GRAD_KEYS; r <= GRAD_QUERIES; r++) {
        int64_t rows = r == GRAD_KEYS ? k[1] : q[1];
        tiles[r] = tiles_of(r, rows, q[3], is_general(a) || drops(a), cuda_gpu(p));
        mma = mma && fit(r, &tiles[r], rows, q[3], cuda_gpu(p)->shared);
    }
    delta(p, a, &g, mma);
    for (Role r = GRAD_KEYS; r <= GRAD_QUERIES; r++) {
        int64_t heads = q[0] * (r == GRAD_KEYS ? k[2] : q[2]), rows = r == GRAD_KEYS ? k[1] : q[1];
        if (mma)
            open_mma(p, a, "attention_grad_mma.cu", entries[r], r, tiles[r],
                     heads * cuda_ceil_div(rows, block_rows(tiles[r])));
        else
            open(p, a, "attention_grad.cu", entries[r], plain_blocks(a, heads, rows), 256);
        grad_params(p, a, &g, r == GRAD_KEYS ? 1 : 0, r == GRAD_KEYS ? 2 : 1);
    }
    return 1;
}

const CudaRow k_cuda_rows_attention[] = {
    {"attention", attention},
    {"attention_grad", attention_grad},
    {NULL, NULL},
};
