/* fuzz.h - a reader of files of tensors, fed with bytes: it must refuse them, or give what can be
 * read to the last byte. An entry of libFuzzer; main.c is a driver that needs none. */
#ifndef MESHLUA_TESTS_FUZZ_DISK_FUZZ_H
#define MESHLUA_TESTS_FUZZ_DISK_FUZZ_H

#include "run/disk/catalog.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A reader must not hold more than so many times the file's bytes, and this much besides. */
enum { FUZZ_TIMES = 64, FUZZ_BESIDES = 1 << 20, FUZZ_STEP = 4096 };

static void fuzz_must(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

/* Every byte of every tensor, in two steps of different sizes and once from its middle. */
static inline uint32_t fuzz_read_entry(const Catalog *c, int32_t i) {
    static uint8_t to[FUZZ_STEP], again[FUZZ_STEP];
    static float decoded[FUZZ_STEP * 2];
    const CatalogEntry *e = &c->entry[i];
    uint32_t sum = 0;
    int64_t middle = e->bytes / 2;
    size_t few = e->bytes - middle < 64 ? (size_t)(e->bytes - middle) : 64;
    bool begun = catalog_read(c, i, middle, again, few) == E_OK;
    for (int64_t at = 0; at < e->bytes; at += FUZZ_STEP) {
        size_t n = e->bytes - at < FUZZ_STEP ? (size_t)(e->bytes - at) : FUZZ_STEP;
        if (catalog_read(c, i, at, to, n)) return sum;
        if (begun && middle >= at && middle + (int64_t)few <= at + (int64_t)n)
            fuzz_must(memcmp(to + (middle - at), again, few) == 0, "two reads differ");
        if (e->block > 1) catalog_decode(e->encoding, to, (int64_t)n / e->block_bytes, decoded);
        for (size_t k = 0; k < n; k++) sum += to[k];
    }
    return sum;
}

static inline uint32_t fuzz_read(Ctx *cx, const Catalog *c) {
    uint32_t sum = 0;
    int64_t read = 0;
    fuzz_must(c->count >= 0 && c->nmeta >= 0, "a count below 0");
    for (int32_t i = 0; i < c->nmeta; i++) {
        int64_t at = c->meta[i].at;
        sum += (uint32_t)strlen(c->meta[i].key);
        for (int64_t k = 0; k < c->meta[i].count; k++) {
            CatalogValue v = catalog_value(c, c->meta[i].type, &at);
            for (size_t b = 0; b < v.length; b++) sum += (uint8_t)v.text[b];
        }
        fuzz_must(at <= (int64_t)c->head.n, "a value beyond the header");
    }
    for (int32_t i = 0; i < c->count; i++) {
        const CatalogEntry *e = &c->entry[i];
        fuzz_must(e->dims.rank >= 0 && e->dims.rank <= MAX_RANK, "a rank that there is not");
        fuzz_must(dims_count(&e->dims) / e->block * e->block_bytes == e->bytes, "wrong bytes");
        fuzz_must(e->packed || (e->begin >= 0 && e->begin + e->bytes <= c->size),
                  "out of the file");
        fuzz_must((catalog_can_read(cx, c, i) == E_OK) == (e->dtype >= 0), "a wrong refusal");
        err_clear(cx);
        if (read < 1 << 20) sum += fuzz_read_entry(c, i);
        read += e->bytes;
    }
    return sum;
}

static inline int fuzz_file(const char *format, const uint8_t *data, size_t size) {
    static int fd = -1;
    static Ctx cx;
    static char path[32];
    static volatile uint32_t sum;
    if (fd < 0) {
        ctx_init(&cx);
        fd = memfd_create("fuzz", MFD_CLOEXEC);
        fuzz_must(fd >= 0, "no memory as a file");
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    fuzz_must(ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == (ssize_t)size, "no file");
    Catalog *c = NULL;
    size_t live = cx.alloc.live;
    cx.alloc.peak = live;
    Err e = catalog_open(&cx, path, &c);
    fuzz_must(cx.alloc.peak - live <= FUZZ_TIMES * size + FUZZ_BESIDES,
              "more memory than the file");
    if (e) {
        fuzz_must(strlen(cx.err.text) > 0 && !c, "no message");
    } else if (strcmp(c->format, format) == 0) {
        sum += fuzz_read(&cx, c);
    }
    catalog_close(c);
    err_clear(&cx);
    fuzz_must(cx.alloc.live == live, "memory is left");
    return 0;
}

#endif
