/* whole.h - whole entries of files, unit by unit: two held against each other, or some written into
 * a file of another format or dtype. However large they are, two units are in memory at once. */
#ifndef MESHLUA_RUN_DISK_WHOLE_H
#define MESHLUA_RUN_DISK_WHOLE_H

#include "run/disk/catalog.h"

typedef struct WholeDifference {
    int64_t count, first; /* of elements that differ; the row-major place of the first, or -1 */
    double largest;       /* |a - b|; infinite where one of them is not finite */
    double relative;      /* the largest |a - b| / max(|a|, |b|) */
} WholeDifference;

/* Two entries of the same dims, as numbers: whole ones exactly, others as doubles. Two NaN are
 * equal, 0 and -0 differ (by 0). E_INTERRUPT once *stop is not 0. */
Err whole_compare(Ctx *cx, Catalog *a, int32_t i, Catalog *b, int32_t j, const volatile int *stop,
                  WholeDifference *out) MUST_CHECK;

typedef struct WholeEntry {
    Catalog *catalog;
    int32_t entry;
    int64_t begin;        /* where it goes in the file */
    const char *encoding; /* as what */
} WholeEntry;

typedef struct WholeFile {
    const char *path;
    const void *header;
    size_t nheader;
    int64_t size;
    const WholeEntry *entry;
    int32_t count;
    const volatile int *stop; /* E_INTERRUPT once it is not 0 */
} WholeFile;

/* Makes the file, on the disk; what it held is gone. E_VALUE: a value that the encoding cannot
 * hold. Where it fails, what is there is of no use. */
Err whole_write(Ctx *cx, const WholeFile *file) MUST_CHECK;

#endif
