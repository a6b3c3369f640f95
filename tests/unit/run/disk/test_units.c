/* test_units.c - who writes what: every element of a tensor is in one unit, of a process that holds
 * it; the bytes are spread. */
#include "ir/intern.h"
#include "run/disk/units.h"
#include "test.h"

#include <string.h>

static uint64_t state = 5;

static int64_t draw(int64_t n) { /* 0 .. n - 1 */
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((state >> 33) % (uint64_t)n);
}

enum { DEVICES = 8, MOST = 4096 };

typedef struct Seen {
    const Type *type;
    UnitsJob job;
    UnitsWriter writer;
    UnitBox box[MOST];
    int64_t count, bytes[DEVICES];
    int32_t n;
} Seen;

static bool meet(const UnitBox *a, const UnitBox *b) {
    for (int d = 0; d < a->at.rank; d++)
        if (a->at.at[d] >= b->at.at[d] + b->size.at[d] ||
            b->at.at[d] >= a->at.at[d] + a->size.at[d])
            return false;
    return true;
}

/* Has a device of the process this box? */
static bool holds(const Seen *s, const UnitBox *box) {
    const Layout *l = s->type->layout;
    if (!l) return s->writer.process < s->job.processes;
    for (int32_t i = 0; i < l->mesh->ndevices; i++) {
        int32_t coord[MAX_AXES];
        UnitBox part = {.at.rank = s->type->dims.rank};
        bool inside = l->mesh->device[i] / s->job.devices == s->writer.process;
        mesh_coords(l->mesh, i, coord);
        part.size = layout_part(l, &s->type->dims, coord, part.at.at);
        for (int d = 0; d < part.at.rank; d++)
            inside = inside && box->at.at[d] >= part.at.at[d] &&
                     box->at.at[d] + box->size.at[d] <= part.at.at[d] + part.size.at[d];
        if (inside) return true;
    }
    return false;
}

static Err see_unit(void *ud, const UnitBox *box) {
    Seen *s = ud;
    int64_t n = dims_count(&box->size), bytes = n * dtype_size(s->type->dtype);
    CHECK(n > 0 && bytes <= UNITS_BYTES);
    CHECK(holds(s, box));
    for (int32_t i = 0; i < s->n; i++) CHECK(!meet(box, &s->box[i]));
    if (s->n < MOST) s->box[s->n++] = *box;
    s->count += n;
    s->bytes[s->writer.process] += bytes;
    return E_OK;
}

static Err see_writer(void *ud, const UnitsWriter *w) {
    Seen *s = ud;
    s->writer = *w;
    return units_cut(s->type->dtype, &w->box, see_unit, s);
}

static Seen look(Ctx *cx, const Type *type, int32_t index, int32_t processes) {
    static Seen s;
    memset(&s, 0, sizeof s);
    s.type = type;
    s.job = (UnitsJob){processes, DEVICES / processes};
    CHECK(units_writers(cx, type, index, s.job, see_writer, &s) == E_OK);
    CHECK(s.count == dims_count(&type->dims));
    return s;
}

/* A layout that gives each axis to a dim, or to none. */
static const Layout *random_layout(Ctx *cx, const Mesh *m, int rank) {
    Layout l;
    layout_init(&l, m, rank);
    for (int axis = 0; axis < m->naxes; axis++) {
        int64_t d = draw(rank + 1);
        if (d < rank) axes_push(&l.dim[d].axes, axes_whole(m, axis));
    }
    return draw(6) ? layout_of(cx, &l) : NULL;
}

static void random_types(Ctx *cx, const Mesh *m) {
    for (int i = 0; i < 300; i++) {
        Dims dims = {.rank = 1 + (int32_t)draw(4)};
        for (int d = 0; d < dims.rank; d++) dims.at[d] = draw(12) ? 1 + draw(300) : 0;
        while (dims_count(&dims) > 16 << 20) dims.at[draw(dims.rank)] /= 2;
        const Layout *l = random_layout(cx, m, dims.rank);
        const Type *type = type_make(cx, draw(2) ? DT_F32 : DT_BF16, &dims, l);
        look(cx, type, (int32_t)draw(100), 1 << draw(4));
    }
}

/* What all hold is written by all alike; of what is small every holder gets its turn. */
static void spreads(Ctx *cx, const Mesh *m) {
    Layout whole;
    Dims large = {2, {1000, 1024}}, small = {1, {100}};
    layout_init(&whole, m, 2);
    Seen s = look(cx, type_make(cx, DT_F32, &large, layout_of(cx, &whole)), 3, 4);
    for (int p = 0; p < 4; p++) CHECK(s.bytes[p] == 250 * 4096);
    layout_init(&whole, m, 1);
    for (int i = 0; i < 8; i++) {
        s = look(cx, type_make(cx, DT_F32, &small, layout_of(cx, &whole)), i, 4);
        CHECK(s.bytes[i % 4] == 400);
    }
}

int main(void) {
    Ctx cx;
    const Mesh *m;
    const char *const name[] = {"a", "b", "c"};
    const int32_t size[] = {2, 2, 2}, device[DEVICES] = {0, 1, 2, 3, 4, 5, 6, 7},
                  mixed[DEVICES] = {5, 2, 7, 0, 1, 4, 3, 6};
    const uint8_t kind[3] = {0};
    ctx_init(&cx);
    if (intern_init(&cx) || mesh_of(&cx, 3, name, size, kind, device, &m)) return 1;
    random_types(&cx, m);
    spreads(&cx, m);
    if (mesh_of(&cx, 3, name, size, kind, mixed, &m)) return 1;
    random_types(&cx, m);
    intern_free(&cx);
    return test_end();
}
