/* test_catalog.c - files of tensors, read in ranges, by several threads, and with little memory. */
#include "run/disk/npz.h"
#include "test.h"

#include <pthread.h>
#include <string.h>
#include <unistd.h>

static const char deflated[] = "tests/oracle/disk/deflated-large.npz"; /* i: 0 .. 2999, int32 */
static Ctx cx;

static int32_t find(const Catalog *c, const char *name) {
    for (int32_t i = 0; i < c->count; i++)
        if (strcmp(c->entry[i].name, name) == 0) return i;
    return -1;
}

/* Ranges of a deflated member: forwards, backwards, overlapping. */
static void *read_ranges(void *p) {
    const Catalog *c = p;
    int32_t entry = find(c, "i"), got[64];
    for (int k = 0; k < 200; k++) {
        int32_t first = k * 7919 % (3000 - 64);
        if (catalog_read(c, entry, first * 4, got, sizeof got)) return "it is not read";
        for (int i = 0; i < 64; i++)
            if (got[i] != first + i) return "other numbers";
    }
    return NULL;
}

static void check_threads(void) {
    Catalog *c;
    pthread_t thread[4];
    void *wrong = NULL;
    CHECK(catalog_open(&cx, deflated, &c) == E_OK);
    if (!c) return;
    for (int t = 0; t < 4; t++) CHECK(pthread_create(&thread[t], NULL, read_ranges, c) == 0);
    for (int t = 0; t < 4; t++) {
        pthread_join(thread[t], &wrong);
        CHECKF(!wrong, "%s", (const char *)wrong);
    }
    catalog_close(c);
}

/* Each allocation fails in turn: nothing is left, and the last try succeeds. */
static void check_memory(const char *path) {
    Catalog *c = NULL;
    Err e = E_NOMEM;
    for (int64_t k = 0; e == E_NOMEM && k < 1000; k++) {
        cx.alloc.fail_in = k;
        e = catalog_open(&cx, path, &c);
        CHECKF(e == E_OK || e == E_NOMEM, "%s: %s", path, cx.err.text);
        CHECK((c == NULL) == (e != E_OK));
        cx.alloc.fail_in = -1;
        if (e) CHECKF(cx.alloc.live == 0, "%s: %zu bytes are left", path, cx.alloc.live);
    }
    CHECKF(e == E_OK, "%s", path);
    catalog_close(c);
}

/* The same of a header that is made. */
static void check_layout(const char *format, const char *encoding) {
    Err e = E_NOMEM;
    for (int64_t k = 0; e == E_NOMEM && k < 100; k++) {
        Catalog *c = NULL;
        Str header;
        str_init(&header, &cx.alloc);
        cx.alloc.fail_in = k;
        e = catalog_draft(&cx, format, 1, 0, &c);
        if (!e) {
            c->entry[0] = (CatalogEntry){.name = "a", .encoding = encoding, .dims = {2, {2, 32}}};
            e = catalog_lay_out(c, &header);
        }
        cx.alloc.fail_in = -1;
        if (!e) CHECK(c->entry[0].begin == (int64_t)header.n && c->size >= c->entry[0].begin + 68);
        CHECKF(e == E_OK || e == E_NOMEM, "%s: %s", format, cx.err.text);
        catalog_close(c);
        str_free(&header);
        CHECK(cx.alloc.live == 0);
    }
    CHECK(e == E_OK);
}

/* More members than a directory's end counts in 16 bits: it then has a form of 64. */
static void check_many_members(void) {
    enum { MEMBERS = 65600 };
    char path[] = "/tmp/test_catalog.XXXXXX", name[16];
    NpzWriter w;
    Catalog *c = NULL;
    Dims scalar = {.rank = 0};
    int fd = mkstemp(path);
    CHECK(fd >= 0);
    close(fd);
    Err e = npz_create(&w, &cx, path);
    for (int32_t i = 0; i < MEMBERS && !e; i++) {
        snprintf(name, sizeof name, "m%d", i);
        e = npz_add(&w, name, DT_I32, &scalar, &i);
    }
    if (!e) e = npz_finish(&w);
    npz_drop(&w);
    if (!e) e = catalog_open(&cx, path, &c);
    CHECKF(e == E_OK && c->count == MEMBERS, "%s", cx.err.text);
    for (int32_t i = 0; c && i < c->count; i += 997) {
        int32_t got = -1;
        CHECK(catalog_read(c, i, 0, &got, sizeof got) == E_OK && got == i);
    }
    catalog_close(c);
    if (!getenv("KEEP")) unlink(path);
}

int main(void) {
    ctx_init(&cx);
    check_threads();
    check_memory("tests/oracle/disk/mixed.safetensors");
    check_memory("tests/oracle/disk/metadata.safetensors");
    check_memory("tests/oracle/disk/fortran.npy");
    check_memory("tests/oracle/disk/stored.npz");
    check_memory(deflated);
    check_memory("tests/oracle/disk/metadata.gguf");
    check_many_members();
    check_layout("safetensors", "F32");
    check_layout("npy", "F16");
    check_layout("gguf", "Q8_0");
    char quoted[CATALOG_QUOTED];
    CHECK(strcmp(catalog_quote("a\"\n", quoted), "\"a\"\\x0a\"") == 0);
    CHECK(cx.alloc.live == 0);
    return test_end();
}
