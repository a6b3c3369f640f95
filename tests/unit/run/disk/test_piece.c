/* test_piece.c - random strided maps, their parts and what is read by them, against element by
 * element. */
#include "run/disk/read.h"
#include "test.h"

#include <string.h>
#include <unistd.h>

enum { LARGE = 5 << 20 }; /* elements of the entry: more than is staged at once */

static uint64_t state = 7;

static int64_t draw(int64_t n) { /* 0 .. n - 1 */
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % (uint64_t)n);
}

/* A map of `n` factors over dims: in the entry they lie in an order of their own, some with gaps,
 * some backwards. How many elements it spans. */
static int64_t random_map(PieceMap *p, int rank, int n, int64_t most) {
    int order[PIECE_FACTORS];
    int64_t stride = 1;
    memset(p, 0, sizeof *p);
    p->at.rank = p->size.rank = rank;
    p->nfactor = n;
    for (int d = 0; d < rank; d++) p->size.at[d] = 1;
    for (int i = 0; i < n; i++) {
        p->factor[i] = (PieceFactor){(int32_t)draw(rank), 1 + draw(most), 0};
        p->size.at[p->factor[i].dim] *= p->factor[i].size;
        order[i] = i;
    }
    for (int i = n - 1; i > 0; i--) {
        int k = (int)draw(i + 1), was = order[i];
        order[i] = order[k];
        order[k] = was;
    }
    for (int i = 0; i < n; i++) {
        PieceFactor *f = &p->factor[order[i]];
        f->stride = stride;
        stride *= f->size + (draw(3) ? 0 : draw(3));
        if (draw(8)) continue;
        p->offset += (f->size - 1) * f->stride;
        f->stride = -f->stride;
    }
    for (int d = 0; d < rank; d++) p->at.at[d] = draw(3);
    return stride;
}

/* The element of the entry at an index of the tensor, or -1. */
static int64_t naive(const PieceMap *p, const int64_t *index) {
    int64_t far = p->offset;
    for (int d = 0; d < p->size.rank; d++) {
        int64_t rest = index[d] - p->at.at[d], each = p->size.at[d];
        if (rest < 0 || rest >= each) return -1;
        for (int i = 0; i < p->nfactor; i++) {
            if (p->factor[i].dim != d) continue;
            each /= p->factor[i].size;
            far += rest / each * p->factor[i].stride;
            rest %= each;
        }
    }
    return far;
}

static bool next(int64_t *index, const int64_t *at, const Dims *size) {
    int d = size->rank - 1;
    for (; d >= 0; d--) {
        if (++index[d] < at[d] + size->at[d]) return true;
        index[d] = at[d];
    }
    return false;
}

/* A box of the tensor, which is the piece's with what lies around it. */
static Dims random_box(const PieceMap *p, int64_t *at) {
    Dims size = {.rank = p->size.rank};
    for (int d = 0; d < size.rank; d++) {
        int64_t all = p->at.at[d] + p->size.at[d] + 2;
        at[d] = draw(all);
        size.at[d] = 1 + draw(all - at[d]);
    }
    return size;
}

typedef struct Found {
    int64_t *far; /* by the place in memory, -1: none */
    int64_t n;
} Found;

static void note(Found *f, const PieceBox *b, int32_t k, int64_t far, int64_t near) {
    if (k == b->nloop) {
        CHECKF(near % 4 == 0 && near / 4 < f->n && f->far[near / 4] < 0, "place %lld",
               (long long)near);
        f->far[near / 4] = far;
        return;
    }
    for (int64_t i = 0; i < b->loop[k].count; i++)
        note(f, b, k + 1, far + i * b->loop[k].far, near + i * b->loop[k].near);
}

static Err note_box(void *ud, const PieceBox *b) {
    for (int32_t k = 1; k < b->nloop; k++) CHECK(b->loop[k - 1].far >= b->loop[k].far);
    for (int32_t k = 0; k < b->nloop; k++) CHECK(b->loop[k].far >= 0 && b->loop[k].count > 1);
    note(ud, b, 0, b->far, b->near);
    return E_OK;
}

static void check_map(Ctx *cx) {
    PieceMap p;
    int64_t at[MAX_RANK] = {0}, index[MAX_RANK], near[MAX_RANK];
    int64_t span = random_map(&p, 1 + (int)draw(4), (int)draw(7), 5);
    Dims size = random_box(&p, at), whole = p.size;
    for (int d = 0; d < whole.rank; d++) whole.at[d] += p.at.at[d] + 2;
    CHECK(piece_check(cx, &p, &whole, span) == E_OK);
    Found f = {malloc(sizeof(int64_t) * (size_t)dims_count(&size)), dims_count(&size)};
    for (int64_t i = 0; i < f.n; i++) f.far[i] = -1;
    dims_strides(&size, 4, near);
    CHECK(piece_restrict(&p, at, &size, near, note_box, &f) == E_OK);
    memcpy(index, at, sizeof at);
    for (int64_t i = 0; i < f.n; i++) {
        CHECK(f.far[i] == naive(&p, index));
        next(index, at, &size);
    }
    free(f.far);
}

/* ---- reading ---- */

/* A file with one entry, whose elements are their places. */
static Catalog *numbers(Ctx *cx, int64_t n) {
    static char name[] = "/tmp/meshlua-piece-XXXXXX.safetensors";
    char header[128];
    Catalog *c = NULL;
    int fd = mkstemps(name, 12);
    int len = snprintf(header, sizeof header,
                       "{\"x\":{\"dtype\":\"I32\",\"shape\":[%lld],\"data_offsets\":[0,%lld]}}",
                       (long long)n, (long long)n * 4);
    uint64_t bytes = (uint64_t)len;
    FILE *f = fdopen(fd, "w");
    fwrite(&bytes, 8, 1, f);
    fwrite(header, (size_t)len, 1, f);
    for (int32_t i = 0; i < n; i++) fwrite(&i, 4, 1, f);
    fclose(f);
    CHECKF(catalog_open(cx, name, &c) == E_OK, "%s", cx->err.text);
    unlink(name);
    return c;
}

static void check_read(Ctx *cx, Catalog *c, int factors, int64_t most) {
    PieceMap p;
    int64_t at[MAX_RANK] = {0}, index[MAX_RANK], bytes = 0, here = 0;
    if (random_map(&p, 1 + (int)draw(3), factors, most) > c->entry[0].dims.at[0]) return;
    Dims size = random_box(&p, at);
    int64_t n = dims_count(&size);
    DType dtype = draw(2) ? DT_I32 : DT_I64;
    int64_t each = dtype_size(dtype);
    char *out = malloc((size_t)(n * each));
    memset(out, 0xff, (size_t)(n * each)); /* -1, as naive has it */
    p.catalog = c;
    ReadPieces pieces = {&p, 1, true, &bytes};
    CHECKF(read_box(cx, dtype, at, &size, &pieces, out) == E_OK, "%s", cx->err.text);
    memcpy(index, at, sizeof at);
    int64_t wrong = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t small;
        int64_t got, want = naive(&p, index);
        memcpy(&small, out + i * each, 4);
        memcpy(&got, out + i * each, dtype == DT_I32 ? 4 : 8);
        wrong += (dtype == DT_I32 ? small : got) != want;
        here += want >= 0;
        next(index, at, &size);
    }
    CHECKF(wrong == 0, "%lld of %lld", (long long)wrong, (long long)n);
    CHECKF(bytes >= 4 * here || here == 0, "%lld bytes for %lld", (long long)bytes,
           (long long)here);
    free(out);
}

/* Columns of a matrix, and rows: how many bytes are read. */
static void check_bytes(Ctx *cx, Catalog *c) {
    int64_t rows = 1024, columns = 1024, out_bytes = rows * columns * 4 / 8;
    char *out = malloc((size_t)out_bytes);
    for (int d = 0; d < 2; d++) {
        int64_t bytes = 0, at[MAX_RANK] = {0};
        PieceMap p = {.at.rank = 2, .size = {2, {rows, columns}}, .nfactor = 2, .catalog = c};
        p.factor[0] = (PieceFactor){0, rows, columns};
        p.factor[1] = (PieceFactor){1, columns, 1};
        Dims size = p.size;
        ReadPieces pieces = {&p, 1, false, &bytes};
        size.at[d] /= 8;
        at[d] = 3 * size.at[d];
        CHECK(read_box(cx, DT_I32, at, &size, &pieces, out) == E_OK);
        CHECKF(bytes == out_bytes, "dim %d: %lld", d, (long long)bytes);
    }
    free(out);
}

int main(void) {
    Ctx cx;
    ctx_init(&cx);
    for (int i = 0; i < 3000; i++) check_map(&cx);
    Catalog *c = numbers(&cx, LARGE);
    if (!c) return test_end();
    for (int i = 0; i < 500; i++) check_read(&cx, c, 1 + (int)draw(6), 6);
    for (int i = 0; i < 40; i++) check_read(&cx, c, 3, 200);
    check_bytes(&cx, c);
    catalog_close(c);
    alloc_trim(&cx.alloc);
    CHECKF(cx.alloc.live == 0, "%zu bytes", cx.alloc.live);
    return test_end();
}
