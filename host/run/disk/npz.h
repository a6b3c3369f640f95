/* npz.h - members of an npz file, which is a zip file of npy files; and one that is written. */
#ifndef MESHLUA_RUN_DISK_NPZ_H
#define MESHLUA_RUN_DISK_NPZ_H

#include "run/disk/catalog.h"

typedef struct NpzMember {
    const char *name;
    int64_t at;            /* its header in the file */
    int64_t begin, stored; /* its bytes there */
    int64_t size;          /* when they are unpacked */
    int64_t header;        /* of these, what is ahead of the tensor's */
    uint32_t header_crc;   /* the checksum of that, and of all */
    uint32_t crc;
    uint32_t flags, method;
} NpzMember;

/* See catalog_read; of a deflated member. */
Err npz_read(const Catalog *c, const CatalogEntry *e, int64_t from, void *to, size_t n) MUST_CHECK;
/* Do the bytes of the whole entry have its checksum? E_IO without a text. */
Err npz_check(const CatalogEntry *e, const void *bytes) MUST_CHECK;
void npz_close(Catalog *c);

/* ---- writing (npz_write.c): the file takes the place of what was there when it is whole ---- */
typedef struct NpzWriter {
    Ctx *cx;
    int fd;
    Str path, temporary, header, directory;
    int64_t at, count;
} NpzWriter;

Err npz_create(NpzWriter *w, Ctx *cx, const char *path) MUST_CHECK;
/* `bytes` are row-major. */
Err npz_add(NpzWriter *w, const char *name, DType dtype, const Dims *dims,
            const void *bytes) MUST_CHECK;
Err npz_finish(NpzWriter *w) MUST_CHECK;
/* Frees what it has, and removes what is not whole. Idempotent. */
void npz_drop(NpzWriter *w);

#endif
