/* npz.h - members of an npz file, which is a zip file of npy files; and one that is written. */
#ifndef MESHLUA_RUN_DISK_NPZ_H
#define MESHLUA_RUN_DISK_NPZ_H

#include "run/disk/catalog.h"

typedef struct NpzMember {
    int64_t begin, stored; /* its bytes in the file */
    int64_t size;          /* when they are unpacked */
    int64_t header;        /* of these, what is ahead of the tensor's */
    uint32_t header_crc;   /* the checksum of that, and of all */
    uint32_t crc;
} NpzMember;

/* See catalog_read; of a deflated member. */
Err npz_read(const Catalog *c, const CatalogEntry *e, int64_t from, void *to, size_t n) MUST_CHECK;
/* Do the bytes of the whole entry have its checksum? E_IO without a text. */
Err npz_check(const CatalogEntry *e, const void *bytes) MUST_CHECK;
void npz_close(Catalog *c);

#endif
