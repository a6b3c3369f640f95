/* fused.c - runs a register program over tiles of the output (kernel.h, "fused").
 *
 * Every element of a tile goes through one instruction before the next, so an instruction is one
 * call for K_TILE elements and the values stay in the first level cache. The dims that all operands
 * lay out as one are merged first. Then (decode.c)
 *   - the value of a contiguous LOAD is the operand's own memory;
 *   - what is stored to a contiguous output is computed there;
 *   - what is the same in every tile (immediates, broadcast scalars, rows that repeat inside a
 *     tile, and what is computed from those alone) is computed once;
 *   - pairs and some larger trees of float32 instructions are one loop.
 * Operands: any strides. An output may alias an input if no LOAD of that input follows the
 * STORE. */
#include "fused.h"
#include "threefry.h"

enum {
    UNIT = 128 * K_TILE, /* elements */
    STREAM = 1 << 17,    /* elements from which on a tile is worth fetching ahead */
};

/* ---- loads and stores ----------------------------------------------------------------------- */
/* Walks the n positions from i on in runs along the last merged dim. */
typedef struct Runs {
    int64_t index[K_MAX_RANK];
    char *at;
    int64_t left, length, stride; /* of all; of this run */
} Runs;

static void next_run(const Fused *f, Runs *r) {
    int d = f->rank - 1;
    r->length = d < 0 ? 1 : k_min(r->left, f->dims[d] - r->index[d]);
}

/* From the tile's first position on. */
static void first_run(const Fused *f, const Operand *o, int64_t n, Runs *r) {
    r->at = o->data;
    r->left = n;
    r->stride = f->rank ? o->stride[f->rank - 1] : 0;
    for (int d = 0; d < f->rank; d++) {
        r->index[d] = f->index[d];
        r->at += r->index[d] * o->stride[d];
    }
    next_run(f, r);
}

/* Sets the index of the tile that begins at position i. */
static void find_index(Fused *f, int64_t i) {
    for (int d = f->rank - 1; d >= 0; d--) {
        f->index[d] = i % f->dims[d];
        i /= f->dims[d];
    }
}

/* The index of the next tile, at position i: one without carry is most often enough. */
static void step_index(Fused *f, int64_t i) {
    int last = f->rank - 1;
    if (last >= 0 && f->index[last] + K_TILE < f->dims[last])
        f->index[last] += K_TILE;
    else
        find_index(f, i);
}

static int step_run(const Fused *f, const Operand *o, Runs *r) {
    r->left -= r->length;
    if (r->left == 0) return 0;
    int d = f->rank - 1;
    r->index[d] += r->length;
    r->at += r->length * o->stride[d];
    for (; d > 0 && r->index[d] == f->dims[d]; d--) {
        r->index[d] = 0;
        r->index[d - 1]++;
        r->at += o->stride[d - 1] - f->dims[d] * o->stride[d];
    }
    next_run(f, r);
    return 1;
}

/* Zeros up to the next multiple of K_STEP: instructions compute whole steps. */
static void pad_tile(char *reg, int64_t n, int64_t size) {
    int64_t end = (n + K_STEP - 1) / K_STEP * K_STEP;
    memset(reg + n * size, 0, (size_t)((end - n) * size));
}

/* Asks for a share of the tiles that are read or written two tiles from now (the distance is
 * measured): a tile is too short for the processor to notice the stream by itself, and to ask for
 * all of them at once would wait for memory now. */
static void fetch_ahead(const Fused *f, int64_t i, int64_t share) {
    int64_t from = share * f->share, n = k_min(f->share, K_TILE - from);
    for (int32_t k = 0; k < f->args->nin + f->args->nout; k++) {
        const Operand *o = &f->operand[k];
        if (o->arrangement != K_DENSE) continue;
        const char *at = o->data + (i + 2 * K_TILE + from) * o->size;
        if (k < f->args->nin)
            for (int64_t c = 0; c < n * o->size; c += 64) __builtin_prefetch(at + c);
        else
            for (int64_t c = 0; c < n * o->size; c += 64) __builtin_prefetch(at + c, 1);
    }
}

static const char *load_tile(const Fused *f, const Step *s, int64_t i, int64_t n) {
    const Operand *o = &f->operand[s->instr->a];
    int64_t size = k_type_size(k_dtype_register(o->dtype));
    int direct = s->direct && n % K_STEP == 0;
    if (o->arrangement == K_DENSE) {
        const char *at = o->data + i * o->size;
        if (direct) return at;
        o->load(s->storage, at, o->size, n);
    } else {
        Runs r;
        first_run(f, o, n, &r);
        if (direct && r.stride == o->size && r.length == n) return r.at;
        char *to = s->storage;
        do {
            o->load(to, r.at, r.stride, r.length);
            to += r.length * size;
        } while (step_run(f, o, &r));
    }
    pad_tile(s->storage, n, size);
    return s->storage;
}

static void store_tile(const Fused *f, const Step *s, int64_t i, int64_t n) {
    const Operand *o = &f->operand[f->args->nin + s->instr->dst];
    const char *from = f->value[s->src[0]];
    if (o->arrangement == K_DENSE) {
        char *at = o->data + i * o->size;
        if (from != at) o->store(at, o->size, from, n);
        return;
    }
    int64_t size = k_type_size(k_dtype_register(o->dtype));
    Runs r;
    first_run(f, o, n, &r);
    do {
        o->store(r.at, r.stride, from, r.length);
        from += r.length * size;
    } while (step_run(f, o, &r));
}

/* ---- registers that are made from nothing --------------------------------------------------- */
static void fill_imm(char *dst, KType type, KImm imm) {
    uint32_t *narrow = (void *)dst, bits = type == KT_F32 ? k_bits((float)imm.f) : (uint32_t)imm.i;
    uint64_t *wide = (void *)dst;
    if (k_type_size(type) == 4)
        for (int j = 0; j < K_TILE; j++) narrow[j] = bits;
    else
        for (int j = 0; j < K_TILE; j++) wide[j] = (uint64_t)imm.i;
}

static void put_integer(char *dst, KType type, int64_t j, int64_t v) {
    switch (type) {
    case KT_F32: ((float *)(void *)dst)[j] = (float)v; break;
    case KT_F64: ((double *)(void *)dst)[j] = (double)v; break;
    case KT_I64:
    case KT_U64: ((int64_t *)(void *)dst)[j] = v; break;
    default: ((uint32_t *)(void *)dst)[j] = (uint32_t)v; break;
    }
}

/* The index along one dim of the output's own shape, for n positions from i on. */
static void fill_iota(const Fused *f, const KInstr *in, char *dst, int64_t i, int64_t n) {
    int64_t inner = 1, size = f->shape->dims[in->a], offset = f->args->offsets[in->b];
    for (int d = f->shape->rank - 1; d > in->a; d--) inner *= f->shape->dims[d];
    int64_t index = i / inner % size, left = inner - i % inner;
    for (int64_t j = 0; j < n; j++) {
        put_integer(dst, (KType)in->type, j, offset + index);
        if (--left == 0) {
            left = inner;
            if (++index == size) index = 0;
        }
    }
}

static void fill_counters(const Fused *f, const KInstr *in, int64_t i, int64_t n, uint64_t *out) {
    const KTensor *t = f->shape;
    const int64_t *offset = f->args->offsets + in->c;
    const KImm *stride = f->imm + in->d;
    int64_t index[K_MAX_RANK];
    uint64_t at = 0, last = t->rank ? (uint64_t)stride[t->rank - 1].i : 0;
    for (int d = t->rank - 1; d >= 0; d--) {
        index[d] = i % t->dims[d];
        i /= t->dims[d];
        at += (uint64_t)(index[d] + offset[d]) * (uint64_t)stride[d].i;
    }
    for (int64_t j = 0; j < n; j++) {
        out[j] = at;
        if (t->rank == 0) continue;
        at += last;
        int d = t->rank - 1;
        index[d]++;
        for (; d > 0 && index[d] == t->dims[d]; d--) {
            index[d] = 0;
            index[d - 1]++;
            at += (uint64_t)stride[d - 1].i - (uint64_t)t->dims[d] * (uint64_t)stride[d].i;
        }
    }
}

static void fill_random(const Fused *f, const Step *s, char *dst, int64_t i, int64_t n) {
    uint64_t counter[K_TILE];
    const uint32_t *k0 = (const void *)f->value[s->src[0]], *k1 = (const void *)f->value[s->src[1]];
    uint32_t *narrow = (void *)dst;
    uint64_t *wide = (void *)dst;
    memset(counter, 0, sizeof counter);
    fill_counters(f, s->instr, i, n, counter);
    for (int64_t t = 0; t < n; t += K_STEP) {
        uint32_t a[K_STEP], b[K_STEP];
        for (int j = 0; j < K_STEP; j++)
            k_threefry(k0[t + j], k1[t + j], (uint32_t)(counter[t + j] >> 32),
                       (uint32_t)counter[t + j], &a[j], &b[j]);
        if (s->instr->type == KT_I64)
            for (int j = 0; j < K_STEP; j++) wide[t + j] = (uint64_t)a[j] << 32 | b[j];
        else
            for (int j = 0; j < K_STEP; j++) narrow[t + j] = a[j] ^ b[j];
    }
}

/* ---- the loop ------------------------------------------------------------------------------- */
/* The steps that have no function. */
static __attribute__((noinline)) const char *run_other(const Fused *f, const Step *s, int64_t i,
                                                       int64_t n) {
    const KInstr *in = s->instr;
    switch (in->op) {
    case KI_LOAD: return load_tile(f, s, i, n);
    case KI_STORE: store_tile(f, s, i, n); return NULL;
    case KI_IMM: fill_imm(s->storage, (KType)in->type, f->imm[in->a]); break;
    case KI_IOTA:
        fill_iota(f, in, s->storage, i, n);
        pad_tile(s->storage, n, k_type_size((KType)in->type));
        break;
    default: fill_random(f, s, s->storage, i, n); break;
    }
    return s->storage;
}

/* n is K_TILE but in the last tile. */
static void run_step(const Fused *f, int32_t k, int64_t i, int64_t n) {
    const Step *s = &f->step[k];
    if (!s->fn) {
        f->value[k] = run_other(f, s, i, n);
        return;
    }
    int64_t whole = (n + K_STEP - 1) & ~(int64_t)(K_STEP - 1);
    const char *src[K_TREE_LEAVES];
    int reads = s->nsrc > 4 ? K_TREE_LEAVES : 4;
    for (int j = 0; j < reads; j++) src[j] = f->value[s->src[j]];
    if (s->instr->op == KI_INT_POW) src[1] = (const char *)&f->imm[s->instr->b];
    char *dst = s->storage;
    if (s->target && n == whole) dst = s->target->data + i * s->target->size;
    s->fn(dst, src, whole);
    f->value[k] = dst;
}

static void run_tile(const Fused *f, int64_t i, int64_t n) {
    int64_t share = 0;
    for (int32_t k = 0; k < f->nrun; k++) {
        const Step *s = &f->step[f->run[k]];
        run_step(f, f->run[k], i, n);
        if (f->share && (s->fn || s->instr->op == KI_STORE)) fetch_ahead(f, i, share++);
    }
}

/* The row-major positions [from, to) of the outputs. */
static void run(const KArgs *a, int64_t from, int64_t to) {
    int64_t count = k_count(&a->out[0]);
    if (from >= to) return;
    Fused f;
    k_decode(&f, a);
    if (count < STREAM) f.share = 0;
    for (int32_t k = 0; k < f.nsteps; k++) f.value[k] = f.memory; /* of unread sources */
    find_index(&f, 0);
    for (int32_t k = 0; k < f.nsteps; k++)
        if (f.step[k].once && !f.step[k].gone) run_step(&f, k, 0, k_min(K_TILE, count));
    find_index(&f, from);
    for (int64_t i = from; i < to; i += K_TILE, step_index(&f, i))
        run_tile(&f, i, k_min(K_TILE, to - i));
}

static int fused(const KArgs *a) {
    run(a, a->lo * UNIT, k_min(a->hi * UNIT, k_count(&a->out[0])));
    return 0;
}

static int64_t fused_units(const KArgs *a) {
    return k_ceil_div(k_count(&a->out[0]), UNIT);
}

K_ROWS(fused) = {
    {"fused", fused, fused_units, k_decode_bytes},
    {NULL, NULL, NULL, NULL},
};
