#include "run/disk/piece.h"

/* ---- checks ---- */

/* Do the factors of the dim multiply to its size? */
static bool dim_fits(const PieceMap *p, int d) {
    int64_t n = 1;
    for (int32_t i = 0; i < p->nfactor; i++) {
        if (p->factor[i].dim != d) continue;
        int64_t size = p->factor[i].size;
        if (size < 0 || __builtin_mul_overflow(n, size, &n)) return false;
    }
    return n == p->size.at[d];
}

/* The lowest and the highest element that it reaches; false where they do not fit in 64 bits. */
static bool reach(const PieceMap *p, int64_t *low, int64_t *high) {
    *low = *high = p->offset;
    for (int32_t i = 0; i < p->nfactor; i++) {
        const PieceFactor *f = &p->factor[i];
        int64_t last, *end = f->stride < 0 ? low : high;
        if (__builtin_mul_overflow(f->size - 1, f->stride, &last)) return false;
        if (__builtin_add_overflow(*end, last, end)) return false;
    }
    return true;
}

Err piece_check(Ctx *cx, const PieceMap *p, const Dims *tensor, int64_t count) {
    int64_t low, high;
    if (p->at.rank != tensor->rank || p->size.rank != tensor->rank)
        return err_set(cx, E_VALUE, "a piece has %d dims, its tensor %d", (int)p->size.rank,
                       (int)tensor->rank);
    for (int d = 0; d < tensor->rank; d++) {
        if (p->at.at[d] < 0 || p->size.at[d] < 0 || p->at.at[d] > tensor->at[d] ||
            p->size.at[d] > tensor->at[d] - p->at.at[d])
            return err_set(cx, E_VALUE, "dim %d: a piece from %lld on has %lld of %lld", d + 1,
                           (long long)p->at.at[d], (long long)p->size.at[d],
                           (long long)tensor->at[d]);
        if (!dim_fits(p, d))
            return err_set(cx, E_VALUE, "dim %d: a piece's factors do not multiply to its %lld",
                           d + 1, (long long)p->size.at[d]);
    }
    for (int32_t i = 0; i < p->nfactor; i++)
        if (p->factor[i].dim < 0 || p->factor[i].dim >= tensor->rank)
            return err_set(cx, E_VALUE, "a piece's factor of dim %d", (int)p->factor[i].dim + 1);
    if (dims_count(&p->size) == 0) return E_OK;
    if (!reach(p, &low, &high) || low < 0 || high >= count)
        return err_set(cx, E_VALUE, "a piece reaches beyond the %lld elements of its entry",
                       (long long)count);
    return E_OK;
}

static bool overlap(const PieceMap *a, const PieceMap *b) {
    for (int d = 0; d < a->at.rank; d++)
        if (a->at.at[d] >= b->at.at[d] + b->size.at[d] ||
            b->at.at[d] >= a->at.at[d] + a->size.at[d])
            return false;
    return dims_count(&a->size) > 0 && dims_count(&b->size) > 0;
}

Err piece_check_cover(Ctx *cx, const PieceMap *p, int32_t n, const Dims *tensor) {
    int64_t have = 0;
    for (int32_t i = 0; i < n; i++) {
        have += dims_count(&p[i].size);
        for (int32_t k = 0; k < i; k++)
            if (overlap(&p[i], &p[k]))
                return err_set(cx, E_VALUE, "pieces %d and %d have elements in common", (int)k + 1,
                               (int)i + 1);
    }
    if (have != dims_count(tensor))
        return err_set(cx, E_VALUE, "the pieces have %lld of %lld elements", (long long)have,
                       (long long)dims_count(tensor));
    return E_OK;
}

/* ---- cutting ---- */

typedef struct PieceCut {
    const PieceMap *p;
    const int64_t *at; /* of the box that is wanted */
    const Dims *size;
    const int64_t *near;
    PieceBox box;
    PieceFn *fn;
    void *ud;
} PieceCut;

static Err cut_dim(PieceCut *c, int d);

/* The k-th factor of a dim, or NULL. */
static const PieceFactor *factor_at(const PieceMap *p, int d, int k) {
    for (int32_t i = 0; i < p->nfactor; i++)
        if (p->factor[i].dim == d && k-- == 0) return &p->factor[i];
    return NULL;
}

/* How many elements of the dim one step of its k-th factor is. */
static int64_t inner_size(const PieceMap *p, int d, int k) {
    int64_t n = 1;
    for (const PieceFactor *f; (f = factor_at(p, d, ++k));) n *= f->size;
    return n;
}

static void add_loop(PieceBox *b, int64_t count, int64_t far, int64_t near) {
    if (count == 1) return;
    if (far < 0) {
        b->far += (count - 1) * far;
        b->near += (count - 1) * near;
        far = -far;
        near = -near;
    }
    b->loop[b->nloop++] = (PieceLoop){count, far, near};
}

/* Goes on with the next dim, and forgets what was added for this one. */
static Err go_on(PieceCut *c, int d, PieceBox before) {
    Err err = cut_dim(c, d + 1);
    c->box = before;
    return err;
}

/* Elements lo to hi of what the dim's factors from the k-th on have. */
static Err cut_factor(PieceCut *c, int d, int k, int64_t lo, int64_t hi) {
    const PieceFactor *f = factor_at(c->p, d, k);
    PieceBox before = c->box;
    if (lo >= hi) return E_OK;
    if (!f) return go_on(c, d, before); /* one element */
    int64_t each = inner_size(c->p, d, k), near = each * c->near[d];
    int64_t first = lo / each, end = hi / each;
    Err err = E_OK;
    if (lo % each || first == end) { /* the first step is cut into */
        int64_t stop = first == end ? hi - first * each : each;
        c->box.far += first * f->stride;
        c->box.near += first * near;
        err = cut_factor(c, d, k + 1, lo - first * each, stop);
        c->box = before;
        if (err || first++ == end) return err;
    }
    if (first < end) { /* whole steps */
        c->box.far += first * f->stride;
        c->box.near += first * near;
        add_loop(&c->box, end - first, f->stride, near);
        for (int i = k + 1; (f = factor_at(c->p, d, i)); i++)
            add_loop(&c->box, f->size, f->stride, inner_size(c->p, d, i) * c->near[d]);
        err = go_on(c, d, before);
    }
    if (err || hi % each == 0) return err;
    f = factor_at(c->p, d, k);
    c->box.far += end * f->stride;
    c->box.near += end * near;
    err = cut_factor(c, d, k + 1, 0, hi % each);
    c->box = before;
    return err;
}

static void sort_loops(PieceBox *b) {
    for (int32_t i = 1; i < b->nloop; i++) {
        PieceLoop l = b->loop[i];
        int32_t k = i;
        for (; k > 0 && b->loop[k - 1].far < l.far; k--) b->loop[k] = b->loop[k - 1];
        b->loop[k] = l;
    }
}

static void merge_loops(PieceBox *b) {
    int32_t n = 0;
    for (int32_t i = 0; i < b->nloop; i++) {
        PieceLoop l = b->loop[i], *outer = n > 0 ? &b->loop[n - 1] : NULL;
        if (outer && outer->far == l.far * l.count && outer->near == l.near * l.count)
            *outer = (PieceLoop){outer->count * l.count, l.far, l.near};
        else
            b->loop[n++] = l;
    }
    b->nloop = n;
}

static Err cut_dim(PieceCut *c, int d) {
    const PieceMap *p = c->p;
    if (d == p->size.rank) {
        PieceBox box = c->box;
        sort_loops(&box);
        merge_loops(&box);
        return c->fn(c->ud, &box);
    }
    int64_t lo = c->at[d] - p->at.at[d], hi = lo + c->size->at[d];
    PieceBox before = c->box;
    c->box.near -= lo * c->near[d]; /* of the piece's first, which may lie ahead of the box */
    if (lo < 0) lo = 0;
    if (hi > p->size.at[d]) hi = p->size.at[d];
    Err err = cut_factor(c, d, 0, lo, hi);
    c->box = before;
    return err;
}

Err piece_restrict(const PieceMap *p, const int64_t *at, const Dims *size, const int64_t *near,
                   PieceFn *fn, void *ud) {
    PieceCut c = {.p = p, .at = at, .size = size, .near = near, .fn = fn, .ud = ud};
    c.box.far = p->offset;
    return cut_dim(&c, 0);
}

int64_t piece_elements(const PieceBox *b, int32_t k) {
    int64_t n = 1;
    for (; k < b->nloop; k++) n *= b->loop[k].count;
    return n;
}

int64_t piece_span(const PieceBox *b, int32_t k) {
    int64_t n = 1;
    for (; k < b->nloop; k++) n += (b->loop[k].count - 1) * b->loop[k].far;
    return n;
}
