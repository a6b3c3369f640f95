/* encode.h - texts into ids: what is added is cut out, the rest is split and merged, in parts that
 * threads may do each for itself. Which thread does which part changes nothing. */
#ifndef MESHLUA_TEXT_ENCODE_H
#define MESHLUA_TEXT_ENCODE_H

#include "text/added.h"
#include "text/bpe.h"
#include "text/split.h"

/* Where a space is put in front. */
typedef enum EncodePrefix { PREFIX_NONE, PREFIX_TEXT, PREFIX_PART } EncodePrefix;

/* What is done with characters before all else. */
typedef enum EncodeNormal { NORMAL_NONE, NORMAL_NFC, NORMAL_NFKC } EncodeNormal;

typedef struct Encoder {
    Unicode *unicode;
    Bpe *bpe;
    Splitter *split;
    Added added;
    EncodeNormal normal;
    EncodePrefix prefix;         /* of the text, or of each part between added tokens */
    bool unless_space;           /* only where none is there */
    struct EncodeThread *thread; /* what each thread works with */
    int nthread, room;
} Encoder;

/* Special tokens in a text: they are text, they are tokens, the text is refused. */
typedef enum EncodeSpecial { SPECIAL_TEXT, SPECIAL_TOKEN, SPECIAL_REFUSE } EncodeSpecial;

typedef struct EncodeText {
    const uint8_t *at;
    size_t n;
} EncodeText;

/* Bytes of a text. */
typedef struct EncodePlace {
    int64_t begin, end;
} EncodePlace;

/* In the memory of the context. */
typedef struct EncodeIds {
    int32_t *ids;
    EncodePlace *place; /* of each id; NULL: not asked for */
    int64_t n, room, places;
    int64_t *last; /* of each text: where its ids end */
    int32_t ntext;
} EncodeIds;

enum { ENCODE_MANY = 1 << 15 }; /* fewer bytes are not worth waking threads */
/* fn(ud, piece, thread) for every piece, over threads. */
typedef void EncodeFn(void *ud, int32_t piece, int thread);
typedef struct EncodeThreads {
    void *pool;
    int threads;
    void (*run)(void *pool, EncodeFn *fn, void *ud, int32_t pieces);
} EncodeThreads;

void encode_free(Ctx *cx, Encoder *e); /* all of it */
/* The ids of the texts, one text's after the other's. E_VALUE: a special token where it is refused,
 * a pattern that finds no end; then *out is empty. */
Err encode_texts(Ctx *cx, Encoder *e, const EncodeText *text, int32_t n, EncodeSpecial special,
                 bool offsets, const EncodeThreads *threads, EncodeIds *out) MUST_CHECK;
void encode_ids_free(Ctx *cx, EncodeIds *ids);

#endif
