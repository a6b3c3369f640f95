#include "text/learn.h"

#include "base/hash.h"
#include "base/map.h"
#include "base/vec.h"

#include <string.h>

typedef struct LearnWord {
    const uint8_t *at;
    uint32_t n;
    int64_t count;
    int32_t *symbol; /* nsymbol of them, while merges are made */
    int32_t nsymbol;
} LearnWord;

/* A word in which a pair may be. */
typedef struct LearnPlace {
    int32_t word;
    struct LearnPlace *next;
} LearnPlace;

typedef struct LearnPair {
    int32_t left, right;
    int64_t count;
    LearnPlace *places; /* the latest first */
    int32_t version;    /* of its entry in the heap; others are old */
    bool changed;
} LearnPair;

/* A pair as it was counted when it was put into the heap. */
typedef struct LearnTop {
    int64_t count;
    int32_t pair, version;
} LearnTop;

struct Learn {
    Ctx *cx;
    Arena arena;
    const Unicode *unicode;
    Splitter *split;
    SplitRun run;
    VEC(LearnWord) word;
    Map words; /* by bytes */
};

/* What merging works with. */
typedef struct LearnRun {
    Learn *l;
    Arena arena;
    VEC(LearnPair) pair;
    Map pairs;
    VEC(LearnTop) top;
    VEC(int32_t) changed; /* pairs that have become more frequent */
    VEC(LearnWord) piece; /* the text of each id: at, n */
    Map pieces;
} LearnRun;

/* ---- words ---- */
typedef struct LearnText {
    const uint8_t *at;
    size_t n;
} LearnText;

static bool same_text(const LearnWord *w, const LearnText *t) {
    return w->n == t->n && memcmp(w->at, t->at, t->n) == 0;
}

static bool same_word(const void *ud, const void *probe, int32_t value) {
    return same_text(&((const Learn *)ud)->word.at[value], probe);
}

static bool count_piece(void *ud, const uint8_t *text, size_t begin, size_t end) {
    Learn *l = ud;
    LearnText t = {text + begin, end - begin};
    uint64_t hash = hash_bytes(0, t.at, t.n);
    int32_t i = map_find(&l->words, hash, same_word, l, &t);
    if (i < 0) {
        const uint8_t *copy = arena_copy(&l->arena, t.at, t.n);
        i = l->word.n;
        if (!copy || !VEC_PUSH(&l->arena, &l->word, (LearnWord){.at = copy, .n = (uint32_t)t.n}) ||
            !map_add(&l->arena, &l->words, hash, i))
            return false;
    }
    l->word.at[i].count++;
    return true;
}

Err learn_new(Ctx *cx, const Unicode *u, const SplitRule *rule, int rules, Learn **out) {
    *out = NULL;
    Learn *l = alloc_new(&cx->alloc, sizeof *l);
    if (!l) return err_nomem(cx, "learning");
    *l = (Learn){.cx = cx, .unicode = u};
    arena_init(&l->arena, &cx->alloc);
    Err e = split_new(cx, u, rule, rules, &l->split);
    if (!e) {
        l->run = (SplitRun){.split = l->split, .ud = l, .fn = count_piece};
        l->run.match = split_match_new(cx, l->split);
        if (!l->run.match) e = err_nomem(cx, "learning");
    }
    if (e) return learn_free(cx, l), e;
    *out = l;
    return E_OK;
}

void learn_free(Ctx *cx, Learn *l) {
    if (!l) return;
    split_match_free(cx, l->run.match);
    split_free(cx, l->split);
    arena_free(&l->arena);
    alloc_free(&cx->alloc, l, sizeof *l);
}

Err learn_add(Ctx *cx, Learn *l, const uint8_t *text, size_t n) {
    for (size_t at = 0; at < n;) {
        size_t valid = unicode_valid(text + at, n - at);
        bool ok =
            valid ? split_run(&l->run, text, at, at + valid) : count_piece(l, text, at, at + 1);
        if (!ok && valid && l->run.failed) return split_failed(cx, &l->run);
        if (!ok) return err_nomem(cx, "learning");
        at += valid ? valid : 1;
    }
    return E_OK;
}

bool learn_is_local(const Learn *l) {
    return split_is_local(l->split);
}

/* ---- pairs, the most frequent first ---- */
static bool before(const LearnRun *r, LearnTop a, LearnTop b) {
    const LearnPair *x = &r->pair.at[a.pair], *y = &r->pair.at[b.pair];
    if (a.count != b.count) return a.count > b.count;
    return x->left != y->left ? x->left < y->left : x->right < y->right;
}

static bool push_top(LearnRun *r, int32_t pair) {
    LearnTop x = {r->pair.at[pair].count, pair, ++r->pair.at[pair].version};
    int32_t i = r->top.n;
    if (!VEC_PUSH(&r->arena, &r->top, x)) return false;
    for (; i && before(r, x, r->top.at[(i - 1) / 2]); i = (i - 1) / 2)
        r->top.at[i] = r->top.at[(i - 1) / 2];
    r->top.at[i] = x;
    return true;
}

static LearnTop pop_top(LearnRun *r) {
    LearnTop top = r->top.at[0], x = r->top.at[--r->top.n];
    int32_t i = 0, n = r->top.n;
    for (int32_t k; (k = 2 * i + 1) < n; i = k) {
        if (k + 1 < n && before(r, r->top.at[k + 1], r->top.at[k])) k++;
        if (!before(r, r->top.at[k], x)) break;
        r->top.at[i] = r->top.at[k];
    }
    if (n) r->top.at[i] = x;
    return top;
}

static bool same_pair(const void *ud, const void *probe, int32_t value) {
    const LearnPair *p = &((const LearnRun *)ud)->pair.at[value], *q = probe;
    return p->left == q->left && p->right == q->right;
}

/* The pair, made where it is new; -1: memory. */
static int32_t pair_of(LearnRun *r, int32_t left, int32_t right) {
    LearnPair p = {.left = left, .right = right};
    uint64_t hash = hash_u64((uint64_t)left, (uint64_t)right);
    int32_t i = map_find(&r->pairs, hash, same_pair, r, &p);
    if (i >= 0) return i;
    i = r->pair.n;
    bool ok = VEC_PUSH(&r->arena, &r->pair, p) && map_add(&r->arena, &r->pairs, hash, i);
    return ok ? i : -1;
}

static bool add_pair(LearnRun *r, int32_t left, int32_t right, int32_t word, int64_t more) {
    int32_t i = pair_of(r, left, right);
    if (i < 0) return false;
    LearnPair *p = &r->pair.at[i];
    p->count += more;
    if (more < 0) return true;
    if (!p->changed && !VEC_PUSH(&r->arena, &r->changed, i)) return false;
    p->changed = true;
    if (p->places && p->places->word == word) return true;
    LearnPlace *place = ARENA_NEW(&r->arena, LearnPlace);
    if (!place) return false;
    *place = (LearnPlace){word, p->places};
    p->places = place;
    return true;
}

/* ---- merging ---- */
static bool push_changed(LearnRun *r) {
    for (int32_t i = 0; i < r->changed.n; i++) {
        r->pair.at[r->changed.at[i]].changed = false;
        if (!push_top(r, r->changed.at[i])) return false;
    }
    r->changed.n = 0;
    return true;
}

static bool begin_words(LearnRun *r, const int32_t byte[256]) {
    for (int32_t w = 0; w < r->l->word.n; w++) {
        LearnWord *word = &r->l->word.at[w];
        word->symbol = ARENA_ARRAY(&r->arena, int32_t, word->n);
        word->nsymbol = (int32_t)word->n;
        if (!word->symbol) return false;
        for (uint32_t i = 0; i < word->n; i++) word->symbol[i] = byte[word->at[i]];
        for (uint32_t i = 0; i + 1 < word->n; i++)
            if (!add_pair(r, word->symbol[i], word->symbol[i + 1], w, word->count)) return false;
    }
    return push_changed(r);
}

static bool merge_word(LearnRun *r, int32_t w, int32_t left, int32_t right, int32_t into) {
    LearnWord *word = &r->l->word.at[w];
    int32_t *s = word->symbol, n = 0, count = word->nsymbol;
    for (int32_t i = 0; i < count; i++, n++) {
        s[n] = s[i];
        if (s[i] != left || i + 1 == count || s[i + 1] != right) continue;
        bool ok = true;
        if (n) {
            ok = add_pair(r, s[n - 1], left, w, -word->count);
            ok = ok && add_pair(r, s[n - 1], into, w, word->count);
        }
        i++;
        if (i + 1 < count) {
            ok = ok && add_pair(r, right, s[i + 1], w, -word->count);
            ok = ok && add_pair(r, into, s[i + 1], w, word->count);
        }
        if (!ok) return false;
        s[n] = into;
    }
    word->nsymbol = n;
    return true;
}

static bool same_piece(const void *ud, const void *probe, int32_t value) {
    return same_text(&((const LearnRun *)ud)->piece.at[value], probe);
}

/* The id of the two texts joined, new where there was none; -1: memory. */
static int32_t join(LearnRun *r, int32_t left, int32_t right) {
    LearnWord a = r->piece.at[left], b = r->piece.at[right];
    uint8_t *text = arena_alloc(&r->arena, (size_t)a.n + b.n);
    LearnText t = {text, (size_t)a.n + b.n};
    if (!text) return -1;
    memcpy(text, a.at, a.n);
    memcpy(text + a.n, b.at, b.n);
    uint64_t hash = hash_bytes(0, t.at, t.n);
    int32_t id = map_find(&r->pieces, hash, same_piece, r, &t);
    if (id >= 0) return id;
    id = r->piece.n;
    bool ok = VEC_PUSH(&r->arena, &r->piece, (LearnWord){.at = text, .n = (uint32_t)t.n}) &&
              map_add(&r->arena, &r->pieces, hash, id);
    return ok ? id : -1;
}

static bool begin_pieces(LearnRun *r, const int32_t byte[256]) {
    if (!VEC_ROOM(&r->arena, &r->piece, 256)) return false;
    r->piece.n = 256;
    for (int c = 0; c < 256; c++) {
        uint8_t *text = arena_copy(&r->arena, &(uint8_t){(uint8_t)c}, 1);
        if (!text) return false;
        r->piece.at[byte[c]] = (LearnWord){.at = text, .n = 1};
        if (!map_add(&r->arena, &r->pieces, hash_bytes(0, text, 1), byte[c])) return false;
    }
    return true;
}

/* The pair becomes an id in all words that have it. */
static bool merge_pair(LearnRun *r, const LearnPair *p, int32_t into) {
    for (const LearnPlace *place = p->places; place; place = place->next)
        if (!merge_word(r, place->word, p->left, p->right, into)) return false;
    return push_changed(r);
}

static bool run(LearnRun *r, const int32_t byte[256], int32_t size, Arena *a, LearnMerge **out,
                int32_t *n) {
    VEC(LearnMerge) merge = {0};
    if (!begin_pieces(r, byte) || !begin_words(r, byte)) return false;
    while (r->top.n && r->piece.n < size) {
        LearnTop top = pop_top(r);
        LearnPair p = r->pair.at[top.pair]; /* the list moves */
        if (p.version != top.version) continue;
        if (p.count != top.count) {
            if (p.count > 0 && !push_top(r, top.pair)) return false;
            continue;
        }
        if (p.count < 1) break;
        int32_t into = join(r, p.left, p.right);
        if (into < 0 || !VEC_PUSH(a, &merge, (LearnMerge){p.left, p.right, into})) return false;
        if (!merge_pair(r, &p, into)) return false;
    }
    *out = merge.at;
    *n = merge.n;
    return true;
}

Err learn_run(Ctx *cx, Learn *l, const int32_t byte[256], int32_t size, Arena *a, LearnMerge **out,
              int32_t *n) {
    LearnRun r = {.l = l};
    arena_init(&r.arena, &cx->alloc);
    bool ok = run(&r, byte, size, a, out, n);
    arena_free(&r.arena);
    return ok ? E_OK : err_nomem(cx, "learning");
}
