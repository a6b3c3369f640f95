/* bpe.h - byte pair encoding: the symbols of a piece are merged, the pair of the lowest rank first
 * and of equal ones the leftmost, until no pair of neighbours has a rank. Symbols begin as bytes
 * (GPT-2) or as characters (sentencepiece); which pairs there are is said one by one, or follows
 * from the texts of the vocabulary. */
#ifndef MESHLUA_TEXT_BPE_H
#define MESHLUA_TEXT_BPE_H

#include "base/arena.h"
#include "base/ctx.h"

typedef struct BpePiece {
    const uint8_t *at;
    uint32_t n;
    bool hidden; /* text never becomes it by merging: special tokens, bytes that stand in */
} BpePiece;

/* What two neighbours become. */
typedef struct BpePair {
    uint64_t key; /* both ids */
    uint32_t rank;
    int32_t into; /* -1: no pair is here */
} BpePair;

typedef struct Bpe {
    Arena arena;
    int32_t size;  /* ids */
    int32_t count; /* and behind them characters that only parts of pieces have */
    int32_t room;
    BpePiece *piece;
    int32_t *slot; /* of pieces that are not hidden, by their bytes; -1: empty */
    uint32_t slots;
    BpePair *pair;
    uint32_t pairs, npair;
    int32_t
        byte[256]; /* characters: what stands for a byte of one without a piece; -1: nothing does */
    int32_t unknown; /* what stands for a symbol without a piece; -1: it is left out */
    bool characters, fuse_unknown, whole; /* whole: a piece of the vocabulary is never merged */
    bool bytes;                           /* characters without a piece become bytes */
} Bpe;

/* A vocabulary of so many ids, of which bpe_add says the texts; bpe_index makes them findable,
 * E_VALUE where two that are not hidden are alike. Then the pairs. */
Err bpe_new(Ctx *cx, int32_t size, bool characters, Bpe **out) MUST_CHECK;
void bpe_free(Ctx *cx, Bpe *b);                                            /* NULL is fine */
bool bpe_add(Bpe *b, int32_t id, const void *text, size_t n, bool hidden); /* false: memory */
Err bpe_index(Ctx *cx, Bpe *b) MUST_CHECK;
/* The first rank that is said of a pair holds. False: memory. */
bool bpe_merge(Bpe *b, int32_t left, int32_t right, int32_t into, uint32_t rank);
/* All pairs whose texts joined are a piece, by the rank of that piece. */
Err bpe_merge_all(Ctx *cx, Bpe *b, const uint32_t *rank) MUST_CHECK;

int32_t bpe_find(const Bpe *b, const void *text, size_t n); /* an id that is not hidden, or -1 */
const BpePair *bpe_pair(const Bpe *b, int32_t left, int32_t right); /* NULL: none */

/* ---- encoding ---- */
enum {
    BPE_LONG = 4096, /* more symbols need memory of their own */
    BPE_ROOM = 8
};
typedef struct BpeEntry BpeEntry;

/* What one thread needs to encode. */
typedef struct BpeCoder {
    const Bpe *b;
    Alloc *alloc;    /* NULL: a long piece is not encoded */
    BpeEntry *cache; /* pieces that were met */
    struct BpeNode *node;
    struct BpeTop *top; /* a heap of pairs */
    int32_t *ids;       /* what is found goes here: room for an id per byte and BPE_ROOM more */
    uint32_t *begins;   /* NULL, or the bytes of each */
    uint32_t *ends;
    size_t n;
    bool failed; /* memory: of a worker a piece too long */
} BpeCoder;

Err bpe_coder_new(Ctx *cx, const Bpe *b, BpeCoder *c) MUST_CHECK;
void bpe_coder_free(Ctx *cx, BpeCoder *c);
/* The piece text[begin, end); false: see failed. */
bool bpe_encode(BpeCoder *c, const uint8_t *text, size_t begin, size_t end);

#endif
