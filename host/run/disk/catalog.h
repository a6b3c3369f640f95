/* catalog.h - what a file of tensors holds: safetensors, npy, npz, GGUF. The readers are strict: of
 * a file that breaks a rule of its format nothing is given, and the message names file, tensor and
 * rule. They hold no more memory than the file has bytes to justify. */
#ifndef MESHLUA_RUN_DISK_CATALOG_H
#define MESHLUA_RUN_DISK_CATALOG_H

#include "base/arena.h"
#include "base/ctx.h"
#include "ir/dims.h"
#include "ir/dtype.h"

typedef struct CatalogEntry {
    const char *name;
    const char *encoding; /* "F32", "BF16", "Q8_0": see Encoding; or what an npy file says */
    int32_t dtype;        /* the DType that reading gives; -1: none, see catalog_can_read */
    int32_t block;        /* elements that are encoded together */
    int32_t block_bytes;  /* and their bytes */
    Dims dims;            /* the outermost first, of GGUF, too */
    bool column_major;    /* npy's fortran_order: the first dim has stride 1 */
    bool packed;          /* deflated: only catalog_read can read it */
    int64_t begin, bytes; /* in the file (packed: where its member's data begins); unpacked */
    const struct NpzMember *member; /* of npz */
} CatalogEntry;

/* What a value of the metadata may be: GGUF's numbers for its types. */
typedef enum MetaType {
    META_U8,
    META_I8,
    META_U16,
    META_I16,
    META_U32,
    META_I32,
    META_F32,
    META_BOOL,
    META_STRING,
    META_LIST,
    META_U64,
    META_I64,
    META_F64
} MetaType;

typedef struct CatalogMeta {
    const char *key;
    MetaType type; /* of a list: that of its elements */
    bool list;
    int64_t count; /* 1, or the elements */
    int64_t at;    /* in Catalog.head, as GGUF has it: a string behind its length of 8 bytes */
} CatalogMeta;

typedef struct CatalogValue {
    MetaType type; /* META_STRING, META_BOOL, META_F64 or META_I64: the widest of its kind */
    const char *text;
    size_t length;
    int64_t integer; /* of a bool, too */
    double real;     /* of an integer beyond int64, too, which is then META_F64 */
} CatalogValue;

typedef struct Catalog {
    Ctx *cx;
    Arena arena;
    const char *path;
    const char *format; /* "safetensors", "npy", "npz", "gguf" */
    int fd;
    int64_t size; /* of the file */
    CatalogEntry *entry;
    int32_t count, nmeta; /* entries as they lie in the file */
    CatalogMeta *meta;
    Str head;                 /* bytes that the metadata lies in */
    struct NpzUnpack *unpack; /* where reading of a packed entry stands, or NULL */
} Catalog;

/* Opens by what the file holds, and by its name where that does not tell. E_IO: it cannot be read;
 * E_PARSE: a rule is broken; E_UNSUPPORTED: a variant that is not read. */
Err catalog_open(Ctx *cx, const char *path, Catalog **out) MUST_CHECK;
/* One for a file that is to be written, of so many entries and values, which the caller fills in:
 * name, encoding and dims; keys and types, with the values at the end of the head. */
Err catalog_draft(Ctx *cx, const char *format, int32_t count, int32_t nmeta,
                  Catalog **out) MUST_CHECK;
/* A string as GGUF has it, at the end of the head. */
void catalog_put_string(Catalog *c, const char *text, size_t n);
/* Gives its entries their places, in their order, and appends to `header` what the file begins
 * with; the size is that of the whole file. E_DTYPE: the format has no such encoding. */
Err catalog_lay_out(Catalog *c, Str *header) MUST_CHECK;
void catalog_close(Catalog *c); /* NULL is fine */

/* Bytes `from` to `from` + n of an entry. Any thread: E_IO comes without a text, with errno, which
 * is 0 where the file is shorter than it was or does not unpack. */
Err catalog_read(const Catalog *c, int32_t entry, int64_t from, void *to, size_t n) MUST_CHECK;
/* The text of such an E_IO. */
Err catalog_read_failed(Ctx *cx, const Catalog *c, int32_t entry, int error);
/* E_UNSUPPORTED where no dtype holds the entry. */
Err catalog_can_read(Ctx *cx, const Catalog *c, int32_t entry) MUST_CHECK;
/* The value at *at of the head, which then is behind it. */
CatalogValue catalog_value(const Catalog *c, MetaType type, int64_t *at);
/* A name for messages: in quotes, cut where it is long, with \\xNN for what is not printed. */
enum { CATALOG_QUOTED = 96 };
const char *catalog_quote(const char *name, char out[CATALOG_QUOTED]);

/* ---- encodings ---- */
typedef struct Encoding {
    const char *name;
    int32_t dtype; /* a DType, or -1 */
    int32_t block, block_bytes;
    int32_t gguf;     /* GGUF's number, or -1 */
    bool safetensors; /* is it one of safetensors'? */
    const char *npy;  /* numpy's, or NULL */
} Encoding;

const Encoding *catalog_encoding(const char *name); /* NULL: there is none */
const Encoding *catalog_encoding_of_gguf(uint32_t number);
const Encoding *catalog_encoding_of_npy(const char *descr);
/* "F32": what a dtype is where it is not quantized. */
const char *catalog_encoding_of_dtype(DType d);
/* Blocks of Q8_0, Q4_0 or Q4_1 as float32; false for another encoding. */
bool catalog_decode(const char *encoding, const void *blocks, int64_t nblocks, float *to);
/* And the reverse, as llama.cpp rounds; Q8_0 alone. */
bool catalog_encode(const char *encoding, const float *from, int64_t nblocks, void *blocks);

#endif
