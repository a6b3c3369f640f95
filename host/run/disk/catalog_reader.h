/* catalog_reader.h - what the readers of the formats share, and their own ways in. */
#ifndef MESHLUA_RUN_DISK_CATALOG_READER_H
#define MESHLUA_RUN_DISK_CATALOG_READER_H

#include "run/disk/catalog.h"

/* E_PARSE about the file, or about a tensor in it (`tensor` not NULL); E_VALUE of a draft. */
Err catalog_broken(Catalog *c, const char *tensor, const char *fmt, ...) PRINTF(3, 4);
/* Reads bytes of the file, E_PARSE where it ends before. */
Err catalog_bytes(Catalog *c, int64_t at, void *to, size_t n) MUST_CHECK;
/* Gives the entry the dtype and blocks of its encoding, and its bytes by its dims. */
Err catalog_size_entry(Catalog *c, CatalogEntry *e, const Encoding *encoding) MUST_CHECK;
/* Names that several entries, or keys of the metadata, share are refused. */
Err catalog_check_names(Catalog *c) MUST_CHECK;
/* Sorts the entries as they lie in the file. */
void catalog_sort(Catalog *c);

/* ---- the formats ---- */
Err safetensors_open(Catalog *c) MUST_CHECK;
Err npy_open(Catalog *c) MUST_CHECK;
Err npz_open(Catalog *c) MUST_CHECK;
Err gguf_open(Catalog *c) MUST_CHECK;
Err safetensors_lay_out(Catalog *c, Str *header) MUST_CHECK;
Err npy_lay_out(Catalog *c, Str *header) MUST_CHECK;
Err gguf_lay_out(Catalog *c, Str *header) MUST_CHECK;

#endif
