/* test_catalog_encoding.c - blocks of quantized numbers, against what gguf makes of them: x, the
 * blocks q, and what these mean, d. */
#include "run/disk/catalog.h"
#include "test.h"

#include <math.h>
#include <string.h>

enum { MOST = 1 << 12 };
static Ctx cx;

static size_t read_entry(const Catalog *c, const char *name, void *to) {
    for (int32_t i = 0; i < c->count; i++) {
        const CatalogEntry *e = &c->entry[i];
        if (strcmp(e->name, name) != 0) continue;
        CHECK(e->bytes <= MOST && catalog_read(c, i, 0, to, (size_t)e->bytes) == E_OK);
        return (size_t)e->bytes;
    }
    CHECKF(false, "no tensor %s", name);
    return 0;
}

static void check(const char *encoding, const char *path) {
    static float x[MOST / 4], d[MOST / 4], decoded[MOST / 4];
    static uint8_t q[MOST], encoded[MOST];
    Catalog *c;
    CHECKF(catalog_open(&cx, path, &c) == E_OK, "%s", cx.err.text);
    if (!c) return;
    const Encoding *kind = catalog_encoding(encoding);
    size_t n = read_entry(c, "q", q), nblocks = n / (size_t)kind->block_bytes;
    size_t bytes = nblocks * 32 * sizeof(float);
    CHECK(read_entry(c, "x", x) == bytes && read_entry(c, "d", d) == bytes);
    CHECK(catalog_decode(encoding, q, (int64_t)nblocks, decoded));
    CHECKF(memcmp(decoded, d, bytes) == 0, "%s is decoded otherwise", encoding);
    if (strcmp(encoding, "Q8_0") == 0) {
        CHECK(catalog_encode(encoding, x, (int64_t)nblocks, encoded));
        CHECKF(memcmp(encoded, q, n) == 0, "%s is encoded otherwise", encoding);
    }
    catalog_close(c);
}

/* Every scale that float16 has is read, and is its own nearest. */
static void check_scales(void) {
    for (uint32_t h = 0; h < 0x7c00; h++) {
        uint8_t block[34] = {(uint8_t)h, (uint8_t)(h >> 8), 127}, again[34];
        float x[32];
        CHECK(catalog_decode("Q8_0", block, 1, x));
        CHECK(x[0] >= 0 && (h == 0 || x[0] > 0) && x[1] == 0);
        CHECK(catalog_encode("Q8_0", x, 1, again));
        CHECKF(memcmp(block, again, 2) == 0, "scale %x", h);
    }
    float odd[32] = {NAN, INFINITY, -INFINITY, 1};
    uint8_t block[34];
    CHECK(catalog_encode("Q8_0", odd, 1, block)); /* whatever it says: it ends */
}

static void check_table(void) {
    CHECK(!catalog_encoding("Q9") && !catalog_encoding_of_gguf(4) &&
          !catalog_encoding_of_npy("<f3"));
    CHECK(!catalog_decode("F32", NULL, 0, NULL) && !catalog_encode("Q4_0", NULL, 0, NULL));
    for (int d = 0; d < DT_COUNT; d++) {
        const char *name = catalog_encoding_of_dtype((DType)d);
        CHECKF(name && catalog_encoding(name)->dtype == d, "%s", dtype_name((DType)d));
        CHECK(name && catalog_encoding(name)->block_bytes == dtype_size((DType)d));
    }
}

int main(void) {
    ctx_init(&cx);
    check("Q8_0", "tests/oracle/disk/q8_0.gguf");
    check("Q4_0", "tests/oracle/disk/q4_0.gguf");
    check("Q4_1", "tests/oracle/disk/q4_1.gguf");
    check_scales();
    check_table();
    CHECK(cx.alloc.live == 0);
    return test_end();
}
