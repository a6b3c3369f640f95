/* npy.h - an npy file: a magic number, a length, a dict as Python writes it, a tensor's bytes. */
#ifndef MESHLUA_RUN_DISK_NPY_H
#define MESHLUA_RUN_DISK_NPY_H

#include "run/disk/catalog.h"

enum { NPY_PREFIX = 12 }; /* by these the length of the header is known */

/* The bytes ahead of the tensor's, by the first of the file, of which there are n. */
Err npy_header_size(Catalog *c, const char *name, const char *head, size_t n,
                    size_t *size) MUST_CHECK;
/* Reads so many bytes: gives the entry, which has a name, its encoding, dims and bytes. */
Err npy_header(Catalog *c, CatalogEntry *e, const char *head, size_t size) MUST_CHECK;
/* Appends the header that numpy writes. E_DTYPE: numpy has no such encoding. */
Err npy_put_header(Ctx *cx, Str *to, const Encoding *encoding, const Dims *dims) MUST_CHECK;

#endif
