#include "text/bpe.h"

#include "base/hash.h"
#include "text/unicode.h"

#include <string.h>

enum { FIRST_ROOM = 1 << 10 };

Err bpe_new(Ctx *cx, int32_t size, bool characters, Bpe **out) {
    *out = NULL;
    Bpe *b = alloc_new(&cx->alloc, sizeof *b);
    if (!b) return err_nomem(cx, "a vocabulary");
    *b = (Bpe){.size = size, .count = size, .room = size, .unknown = -1, .characters = characters};
    arena_init(&b->arena, &cx->alloc);
    memset(b->byte, -1, sizeof b->byte);
    b->piece = alloc_new(&cx->alloc, (size_t)size * sizeof *b->piece);
    if (!b->piece) return bpe_free(cx, b), err_nomem(cx, "a vocabulary");
    for (int32_t i = 0; i < size; i++) b->piece[i] = (BpePiece){(const uint8_t *)"", 0, true};
    *out = b;
    return E_OK;
}

void bpe_free(Ctx *cx, Bpe *b) {
    if (!b) return;
    alloc_free(&cx->alloc, b->piece, (size_t)b->room * sizeof *b->piece);
    alloc_free(&cx->alloc, b->slot, b->slots * sizeof *b->slot);
    alloc_free(&cx->alloc, b->pair, b->pairs * sizeof *b->pair);
    arena_free(&b->arena);
    alloc_free(&cx->alloc, b, sizeof *b);
}

bool bpe_add(Bpe *b, int32_t id, const void *text, size_t n, bool hidden) {
    void *copy = arena_copy(&b->arena, text, n ? n : 1);
    if (!copy || n > UINT32_MAX) return false;
    b->piece[id] = (BpePiece){copy, (uint32_t)n, hidden};
    return true;
}

/* ---- pieces by their bytes ---- */

/* The slot where the text is, or the free one where it would be. */
static uint32_t slot_of(const Bpe *b, const void *text, size_t n) {
    uint32_t i = (uint32_t)hash_bytes(0, text, n) & (b->slots - 1);
    for (; b->slot[i] >= 0; i = (i + 1) & (b->slots - 1)) {
        const BpePiece *p = &b->piece[b->slot[i]];
        if (p->n == n && memcmp(p->at, text, n) == 0) break;
    }
    return i;
}

static bool new_slots(Bpe *b, int32_t most) {
    uint32_t slots = FIRST_ROOM;
    while (slots / 2 < (uint32_t)most) slots *= 2;
    alloc_free(b->arena.alloc, b->slot, b->slots * sizeof *b->slot);
    b->slot = alloc_new(b->arena.alloc, slots * sizeof *b->slot);
    b->slots = b->slot ? slots : 0;
    if (b->slot) memset(b->slot, -1, slots * sizeof *b->slot);
    return b->slot != NULL;
}

Err bpe_index(Ctx *cx, Bpe *b) {
    if (!new_slots(b, b->size)) return err_nomem(cx, "a vocabulary");
    for (int32_t i = 0; i < b->size; i++) {
        const BpePiece *p = &b->piece[i];
        if (p->hidden) continue;
        uint32_t slot = slot_of(b, p->at, p->n);
        if (b->slot[slot] >= 0)
            return err_set(cx, E_VALUE, "ids %d and %d have the same text", b->slot[slot], i);
        b->slot[slot] = i;
    }
    for (int c = 0; c < 256 && !b->characters; c++)
        b->byte[c] = bpe_find(b, &(uint8_t){(uint8_t)c}, 1);
    return E_OK;
}

int32_t bpe_find(const Bpe *b, const void *text, size_t n) {
    int32_t id = b->slot[slot_of(b, text, n)];
    return id;
}

/* ---- pairs ---- */
static uint64_t key_of(int32_t left, int32_t right) {
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static BpePair *pair_at(BpePair *pair, uint32_t pairs, uint64_t key) {
    uint64_t mixed = key * 0x9e3779b97f4a7c15u;
    uint32_t i = (uint32_t)(mixed >> 32) & (pairs - 1);
    while (pair[i].into >= 0 && pair[i].key != key) i = (i + 1) & (pairs - 1);
    return &pair[i];
}

const BpePair *bpe_pair(const Bpe *b, int32_t left, int32_t right) {
    if (!b->pairs || left < 0 || right < 0) return NULL;
    const BpePair *p = pair_at(b->pair, b->pairs, key_of(left, right));
    return p->into < 0 ? NULL : p;
}

static bool more_pairs(Bpe *b) {
    uint32_t pairs = b->pairs ? b->pairs * 2 : FIRST_ROOM;
    BpePair *pair = pairs ? alloc_new(b->arena.alloc, pairs * sizeof *pair) : NULL;
    if (!pair) return false;
    for (uint32_t i = 0; i < pairs; i++) pair[i].into = -1;
    for (uint32_t i = 0; i < b->pairs; i++)
        if (b->pair[i].into >= 0) *pair_at(pair, pairs, b->pair[i].key) = b->pair[i];
    alloc_free(b->arena.alloc, b->pair, b->pairs * sizeof *pair);
    b->pair = pair;
    b->pairs = pairs;
    return true;
}

bool bpe_merge(Bpe *b, int32_t left, int32_t right, int32_t into, uint32_t rank) {
    if (b->npair >= b->pairs / 2 && !more_pairs(b)) return false;
    BpePair *p = pair_at(b->pair, b->pairs, key_of(left, right));
    if (p->into >= 0) return true;
    *p = (BpePair){key_of(left, right), rank, into};
    b->npair++;
    return true;
}

/* A character that only parts of pieces have gets an id behind all others; false: memory. */
static bool add_character(Bpe *b, const uint8_t *text, size_t n) {
    uint32_t slot = slot_of(b, text, n);
    if (b->slot[slot] >= 0) return true;
    if (b->count == b->room) {
        int32_t room = b->room + b->room / 8 + FIRST_ROOM;
        void *grown = alloc_resize(b->arena.alloc, b->piece, (size_t)b->room * sizeof *b->piece,
                                   (size_t)room * sizeof *b->piece);
        if (!grown) return false;
        b->piece = grown;
        b->room = room;
    }
    b->piece[b->count] = (BpePiece){text, (uint32_t)n, false};
    b->slot[slot] = b->count++;
    if ((uint32_t)b->count * 2 <= b->slots) return true;
    int32_t count = b->count;
    if (!new_slots(b, count * 2)) return false;
    for (int32_t i = 0; i < count; i++)
        if (!b->piece[i].hidden) b->slot[slot_of(b, b->piece[i].at, b->piece[i].n)] = i;
    return true;
}

static bool add_characters(Bpe *b) {
    for (int32_t i = 0; i < b->size; i++) {
        BpePiece p = b->piece[i];
        if (p.hidden) continue;
        for (uint32_t at = 0, n; at < p.n; at += n) {
            n = (uint32_t)unicode_width(p.at[at]);
            if (n > p.n - at) n = p.n - at;
            if (n < p.n && !add_character(b, p.at + at, n)) return false;
        }
    }
    return true;
}

Err bpe_merge_all(Ctx *cx, Bpe *b, const uint32_t *rank) {
    if (b->characters && !add_characters(b)) return err_nomem(cx, "a vocabulary");
    for (int32_t i = 0; i < b->size; i++) {
        BpePiece p = b->piece[i];
        if (p.hidden) continue;
        for (uint32_t at = 1; at < p.n; at++) {
            if (b->characters && (p.at[at] & 0xc0) == 0x80) continue;
            int32_t left = bpe_find(b, p.at, at);
            int32_t right = left < 0 ? -1 : bpe_find(b, p.at + at, p.n - at);
            if (right >= 0 && !bpe_merge(b, left, right, i, rank[i]))
                return err_nomem(cx, "a vocabulary");
        }
    }
    return E_OK;
}
