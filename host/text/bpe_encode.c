/* bpe_encode.c - pieces into ids. Most pieces of a text have come before: those that are short
 * stand in a cache. */
#include "text/bpe.h"
#include "text/unicode.h"

#include <string.h>

enum {
    CACHE = 1 << 15, /* entries */
    KEY = 31,        /* the longest piece in it, in bytes, */
    IDS = 7,         /* and in ids */
    FEW = 64         /* symbols among which a loop finds the next pair sooner than a heap */
};

/* A line of the processor's cache: the bytes with zeros behind them, their number, the ids. */
struct BpeEntry {
    uint64_t key[4];
    int32_t ids[IDS];
    uint32_t n; /* 0: none is here */
};

typedef struct BpeNode {
    int32_t id, prev, next; /* neighbours; -1: none. An id of -2: it has become part of another */
    uint32_t begin, end;
} BpeNode;

/* A pair that had a rank when it was put here, the lowest first and of equal ones the leftmost. */
typedef struct BpeTop {
    uint64_t key; /* rank, node */
    int32_t left, right;
} BpeTop;

Err bpe_coder_new(Ctx *cx, const Bpe *b, BpeCoder *c) {
    *c = (BpeCoder){.b = b, .alloc = &cx->alloc};
    c->cache = alloc_aligned(&cx->alloc, CACHE * sizeof *c->cache);
    c->node = alloc_new(&cx->alloc, BPE_LONG * sizeof *c->node);
    c->top = alloc_new(&cx->alloc, BPE_LONG * 2 * sizeof *c->top);
    if (c->cache) memset(c->cache, 0, CACHE * sizeof *c->cache);
    if (c->cache && c->node && c->top) return E_OK;
    bpe_coder_free(cx, c);
    return err_nomem(cx, "encoding");
}

void bpe_coder_free(Ctx *cx, BpeCoder *c) {
    alloc_free(&cx->alloc, c->cache, CACHE * sizeof *c->cache);
    alloc_free(&cx->alloc, c->node, BPE_LONG * sizeof *c->node);
    alloc_free(&cx->alloc, c->top, BPE_LONG * 2 * sizeof *c->top);
    *c = (BpeCoder){0};
}

/* ---- what is found ---- */
static void put(BpeCoder *c, int32_t id, uint32_t begin, uint32_t end) {
    if (c->begins) c->begins[c->n] = begin, c->ends[c->n] = end;
    c->ids[c->n++] = id;
}

/* A symbol that is no piece. `first`: where the ids of this piece begin. */
static void put_unknown(BpeCoder *c, const uint8_t *text, uint32_t begin, uint32_t end,
                        size_t first) {
    const Bpe *b = c->b;
    bool all = b->bytes;
    for (uint32_t i = begin; i < end; i++) all = all && b->byte[text[i]] >= 0;
    if (all) {
        for (uint32_t i = begin; i < end; i++) put(c, b->byte[text[i]], i, i + 1);
    } else if (b->unknown >= 0) {
        if (!b->fuse_unknown || c->n == first || c->ids[c->n - 1] != b->unknown)
            put(c, b->unknown, begin, end);
        else if (c->ends)
            c->ends[c->n - 1] = end;
    }
}

static void put_symbol(BpeCoder *c, const uint8_t *text, int32_t id, uint32_t begin, uint32_t end,
                       size_t first) {
    if (id >= 0 && id < c->b->size)
        put(c, id, begin, end);
    else
        put_unknown(c, text, begin, end, first);
}

/* The symbol at `at`: its id, -1 where it is no piece; *to: its end. */
static int32_t symbol(const Bpe *b, const uint8_t *text, size_t at, size_t end, size_t *to) {
    *to = at + 1;
    if (!b->characters) return b->byte[text[at]];
    *to = at + unicode_width(text[at]);
    if (*to > end) *to = end;
    return bpe_find(b, text + at, *to - at);
}

/* ---- few symbols ---- */
typedef struct BpeFew {
    int32_t id[FEW + 1], into[FEW + 1];
    uint32_t rank[FEW + 1], end[FEW + 1]; /* of the pair that begins here; UINT32_MAX: none */
} BpeFew;

static void rank_few(const Bpe *b, BpeFew *f, int i, int n) {
    const BpePair *p = i >= 0 && i + 1 < n ? bpe_pair(b, f->id[i], f->id[i + 1]) : NULL;
    if (i < 0) return;
    f->rank[i] = p ? p->rank : UINT32_MAX;
    f->into[i] = p ? p->into : -1;
}

static void merge_few(BpeCoder *c, const uint8_t *text, size_t begin, BpeFew *f, int n) {
    size_t first = c->n;
    for (int i = 0; i < n; i++) rank_few(c->b, f, i, n);
    for (;;) {
        int best = 0;
        for (int i = 1; i < n; i++)
            if (f->rank[i] < f->rank[best]) best = i;
        if (f->into[best] < 0) break;
        f->id[best] = f->into[best];
        f->end[best] = f->end[best + 1];
        size_t rest = (size_t)(--n - best - 1);
        memmove(f->id + best + 1, f->id + best + 2, rest * sizeof *f->id);
        memmove(f->into + best + 1, f->into + best + 2, rest * sizeof *f->into);
        memmove(f->end + best + 1, f->end + best + 2, rest * sizeof *f->end);
        memmove(f->rank + best + 1, f->rank + best + 2, rest * sizeof *f->rank);
        rank_few(c->b, f, best, n);
        rank_few(c->b, f, best - 1, n);
    }
    for (int i = 0; i < n; i++)
        put_symbol(c, text, f->id[i], i ? f->end[i - 1] : (uint32_t)begin, f->end[i], first);
}

/* ---- many: a heap ---- */
static bool before(const BpeTop *a, const BpeTop *b) {
    return a->key < b->key;
}

static void sift_up(BpeTop *top, size_t i) {
    BpeTop x = top[i];
    for (; i && before(&x, &top[(i - 1) / 2]); i = (i - 1) / 2) top[i] = top[(i - 1) / 2];
    top[i] = x;
}

static void sift_down(BpeTop *top, size_t n) {
    BpeTop x = top[0];
    size_t i = 0;
    for (size_t k; (k = 2 * i + 1) < n; i = k) {
        if (k + 1 < n && before(&top[k + 1], &top[k])) k++;
        if (!before(&top[k], &x)) break;
        top[i] = top[k];
    }
    top[i] = x;
}

static void push_pair(const Bpe *b, const BpeNode *node, int32_t at, BpeTop *top, size_t *n) {
    if (at < 0 || node[at].next < 0) return;
    int32_t left = node[at].id, right = node[node[at].next].id;
    const BpePair *p = bpe_pair(b, left, right);
    if (!p) return;
    top[*n] = (BpeTop){(uint64_t)p->rank << 32 | (uint32_t)at, left, right};
    sift_up(top, (*n)++);
}

static void merge_nodes(const Bpe *b, BpeNode *node, int32_t count, BpeTop *top) {
    size_t n = 0;
    for (int32_t i = 0; i < count; i++) push_pair(b, node, i, top, &n);
    while (n) {
        BpeTop t = top[0];
        top[0] = top[--n];
        if (n) sift_down(top, n);
        int32_t at = (int32_t)(uint32_t)t.key, next = node[at].next;
        if (node[at].id != t.left || next < 0 || node[next].id != t.right) continue;
        node[at].id = bpe_pair(b, t.left, t.right)->into;
        node[at].end = node[next].end;
        node[at].next = node[next].next;
        node[next].id = -2;
        if (node[at].next >= 0) node[node[at].next].prev = at;
        push_pair(b, node, node[at].prev, top, &n);
        push_pair(b, node, at, top, &n);
    }
}

static void merge_many(BpeCoder *c, const uint8_t *text, size_t begin, size_t end, BpeNode *node,
                       BpeTop *top) {
    int32_t count = 0;
    size_t first = c->n;
    for (size_t at = begin, to; at < end; at = to, count++) {
        int32_t id = symbol(c->b, text, at, end, &to);
        node[count] =
            (BpeNode){id, count - 1, to < end ? count + 1 : -1, (uint32_t)at, (uint32_t)to};
    }
    merge_nodes(c->b, node, count, top);
    for (int32_t i = 0; i >= 0; i = node[i].next)
        put_symbol(c, text, node[i].id, node[i].begin, node[i].end, first);
}

static bool merge_long(BpeCoder *c, const uint8_t *text, size_t begin, size_t end) {
    size_t n = end - begin;
    BpeNode *node = c->alloc ? alloc_aligned(c->alloc, n * sizeof *node) : NULL;
    BpeTop *top = node ? alloc_aligned(c->alloc, 2 * n * sizeof *top) : NULL;
    if (top) merge_many(c, text, begin, end, node, top);
    c->failed = !top;
    if (node) alloc_free(c->alloc, node, n * sizeof *node);
    if (top) alloc_free(c->alloc, top, 2 * n * sizeof *top);
    return !c->failed;
}

static bool merge(BpeCoder *c, const uint8_t *text, size_t begin, size_t end) {
    const Bpe *b = c->b;
    BpeFew few;
    int n = 0;
    if (b->whole) {
        int32_t id = bpe_find(b, text + begin, end - begin);
        if (id >= 0 && id < b->size) return put(c, id, (uint32_t)begin, (uint32_t)end), true;
    }
    if (end - begin > BPE_LONG) return merge_long(c, text, begin, end);
    if (end - begin > FEW) return merge_many(c, text, begin, end, c->node, c->top), true;
    for (size_t at = begin, to; at < end; at = to) {
        few.id[n] = symbol(b, text, at, end, &to);
        few.end[n++] = (uint32_t)to;
    }
    merge_few(c, text, begin, &few, n);
    return true;
}

/* ---- the cache ---- */

/* The bytes, zeros behind them, their number in the last one. */
static void make_key(uint64_t key[4], const uint8_t *p, size_t n) {
    key[0] = key[1] = key[2] = key[3] = 0;
    memcpy(key, p, n);
    key[3] |= (uint64_t)n << 56;
}

static uint32_t place_of(const uint64_t key[4]) {
    uint64_t h = (key[0] ^ key[3]) * 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 29 ^ key[1]) * 0xbf58476d1ce4e5b9u;
    h = (h ^ h >> 32 ^ key[2]) * 0x94d049bb133111ebu;
    return (uint32_t)(h >> 40) & (CACHE - 1);
}

bool bpe_encode(BpeCoder *c, const uint8_t *text, size_t begin, size_t end) {
    uint64_t key[4];
    if (end - begin > KEY || c->begins) return merge(c, text, begin, end);
    make_key(key, text + begin, end - begin);
    BpeEntry *e = &c->cache[place_of(key)];
    if (e->n && memcmp(e->key, key, sizeof key) == 0) {
        memcpy(c->ids + c->n, e->ids, sizeof e->ids);
        c->n += e->n;
        return true;
    }
    size_t first = c->n;
    if (!merge(c, text, begin, end)) return false;
    if (c->n - first <= IDS && c->n > first) {
        memcpy(e->key, key, sizeof key);
        e->n = (uint32_t)(c->n - first);
        memcpy(e->ids, c->ids + first, e->n * sizeof *e->ids);
    }
    return true;
}
