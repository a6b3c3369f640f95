/* mesh, spec, layout, type: what a spec means on a mesh, and the errors for those that mean
 * nothing. */
#include "ir/type.h"
#include "test.h"

#include <string.h>

static Ctx cx;

static const Mesh *mesh(int n, const char *const *names, const int32_t *sizes) {
    static int32_t ids[64];
    for (int i = 0; i < 64; i++) ids[i] = i;
    const Mesh *m = NULL;
    CHECK(mesh_of(&cx, n, names, sizes, NULL, ids, &m) == E_OK);
    return m;
}
static const Mesh *mesh_4x2(void) {
    return mesh(2, (const char *[]){"data", "model"}, (int32_t[]){4, 2});
}

/* A spec from words, one per dim: "" whole, "data", "data,model", "?" unconstrained. */
static const Spec *spec(int n, const char *const *words) {
    Spec s = {.n = n};
    for (int i = 0; i < n; i++) {
        SpecEntry *e = &s.entry[i];
        if (strcmp(words[i], "?") == 0) e->kind = SPEC_UNCONSTRAINED;
        for (const char *w = words[i]; *w && *w != '?';) {
            size_t len = strcspn(w, ",");
            e->kind = SPEC_AXES;
            e->axis[e->n++] = intern_name_n(&cx, w, len);
            w += len + (w[len] == ',');
        }
    }
    return spec_of(&cx, &s);
}
#define SPEC(...)                                                                                  \
    spec(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *), (const char *[]){__VA_ARGS__})

static bool prints(void (*print)(const void *, Str *), const void *x, const char *wanted) {
    Str s;
    str_init(&s, &cx.alloc);
    print(x, &s);
    bool same = strcmp(str_of(&s), wanted) == 0;
    if (!same) fprintf(stderr, "printed %s, wanted %s\n", str_of(&s), wanted);
    str_free(&s);
    return same;
}
static void print_mesh(const void *x, Str *s) {
    mesh_print(x, s);
}
static void print_spec(const void *x, Str *s) {
    spec_print(x, s);
}
static void print_type(const void *x, Str *s) {
    type_print(x, s);
}

static void test_mesh(void) {
    const Mesh *m = mesh_4x2();
    CHECK(m == mesh_4x2() && m->ndevices == 8);
    CHECK(m != mesh(2, (const char *[]){"data", "model"}, (int32_t[]){2, 4}));
    CHECK(prints(print_mesh, m, "Mesh(data=4, model=2)"));
    CHECK(mesh_axis(m, "model") == 1 && mesh_axis(m, "batch") == -1);
    int32_t coord[MAX_AXES];
    for (int32_t i = 0; i < 8; i++) {
        mesh_coords(m, i, coord);
        CHECK(coord[0] == i / 2 && coord[1] == i % 2);
    }
    CHECK(mesh_product(m, 1) == 4 && mesh_product(m, 3) == 8 && mesh_product(m, 0) == 1);
}

static void test_mesh_errors(void) {
    const Mesh *m = NULL;
    int32_t ids[] = {0, 1, 2, 3};
    CHECK(mesh_of(&cx, 2, (const char *[]){"x", "x"}, (int32_t[]){2, 2}, NULL, ids, &m) == E_MESH);
    CHECK(mesh_of(&cx, 1, (const char *[]){""}, (int32_t[]){4}, NULL, ids, &m) == E_MESH);
    CHECK(mesh_of(&cx, 1, (const char *[]){"x"}, (int32_t[]){0}, NULL, ids, &m) == E_MESH);
    CHECK(mesh_of(&cx, 1, (const char *[]){"x"}, (int32_t[]){-4}, NULL, ids, &m) == E_MESH);
    CHECK(mesh_of(&cx, 2, (const char *[]){"x", "y"}, (int32_t[]){1 << 20, 1 << 20}, NULL, ids,
                  &m) == E_MESH);
    const char *many[MAX_AXES + 1] = {"a", "b", "c", "d", "e", "f", "g", "h", "i"};
    int32_t ones[MAX_AXES + 1] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    CHECK(mesh_of(&cx, MAX_AXES + 1, many, ones, NULL, ids, &m) == E_MESH);
    static const int32_t twice[][4] = {{0, 1, 1, 2}, {0, 1, 2, 0}, {0, 2, 1, 2}, {3, 0, 1, 3}};
    for (int i = 0; i < 4; i++)
        CHECKF(mesh_of(&cx, 1, (const char *[]){"x"}, (int32_t[]){4}, NULL, twice[i], &m) == E_MESH,
               "row %d", i);
    CHECK(mesh_of(&cx, 1, (const char *[]){"x"}, (int32_t[]){4}, NULL, (int32_t[]){3, 1, 0, 2},
                  &m) == E_OK);
}

static void test_bind(void) {
    const Mesh *m = mesh_4x2();
    Dims dims = {2, {32, 128}};
    Layout l;
    CHECK(SPEC("data") == SPEC("data") && SPEC("data") != SPEC("data", ""));
    CHECK(prints(print_spec, SPEC("", "data,model", "?"),
                 "P(nil, {\"data\",\"model\"}, "
                 "P.unconstrained)"));
    CHECK(layout_from_spec(&cx, m, SPEC("data", "model"), &dims, "x", &l) == E_OK);
    Dims local = layout_local(&l, &dims);
    CHECK(dims_equal(&local, &(Dims){2, {8, 64}}));
    CHECK(layout_used(&l) == 3 && !layout_is_replicated(&l));
    CHECK(layout_start(&l, &dims, 1, (int32_t[MAX_AXES]){3, 1}) == 64);
    CHECK(layout_spec(&cx, &l, &dims) == SPEC("data", "model"));
    const Type *t = type_make(&cx, DT_F32, &dims, layout_of(&cx, &l));
    CHECK(prints(print_type, t, "float32[32@data,128@model]"));
    CHECK(type_bytes(t) == 32 * 128 * 4 && type_shard_bytes(t) == 8 * 64 * 4);
    CHECK(layout_from_spec(&cx, m, SPEC("model,data"), &dims, "x", &l) == E_OK);
    CHECK(layout_parts(&l, 0) == 8);
    CHECK(layout_start(&l, &dims, 0, (int32_t[MAX_AXES]){1, 1}) == 5 * 4); /* model is major */
    int64_t start[MAX_RANK];
    Dims uneven = {2, {30, 3}}, part = layout_part(&l, &uneven, (int32_t[MAX_AXES]){3, 1}, start);
    CHECK(part.at[0] == 2 && part.at[1] == 3 && start[0] == 28 && start[1] == 0);
    uneven.at[0] = 9; /* two each, so that five devices have some */
    part = layout_part(&l, &uneven, (int32_t[MAX_AXES]){3, 1}, start);
    CHECK(part.at[0] == 0 && start[0] == 9);
    CHECK(layout_from_spec(&cx, m, SPEC("", ""), &dims, "x", &l) == E_OK &&
          layout_is_replicated(&l));
    CHECK(layout_from_spec(&cx, m, SPEC("?"), &dims, "x", &l) == E_OK && l.dim[0].open &&
          !l.dim[1].open);
}

static bool fails_with(const Spec *s, const Dims *dims, Err code, const char *text) {
    Layout l;
    Err e = layout_from_spec(&cx, mesh_4x2(), s, dims, "x", &l);
    if (e != code || !strstr(cx.err.text, text)) fprintf(stderr, "%d %s\n", e, cx.err.text);
    return e == code && strstr(cx.err.text, text);
}

static void test_bind_errors(void) {
    Dims dims = {2, {32, 12}};
    CHECK(fails_with(SPEC("batch"), &dims, E_SPEC,
                     "axis 'batch' of P(\"batch\") is not an axis of "
                     "Mesh(data=4, model=2)"));
    CHECK(fails_with(SPEC("data", "data"), &dims, E_SPEC, "duplicate entries for axis 'data'"));
    CHECK(fails_with(SPEC("data,data"), &dims, E_SPEC, "duplicate entries for axis 'data'"));
    CHECK(
        fails_with(SPEC("", "", "data"), &dims, E_SPEC, "has 3 entries but the tensor has rank 2"));
    CHECK(fails_with(SPEC(""), &(Dims){0}, E_SPEC, "a scalar takes P()"));
    CHECK(
        fails_with(SPEC("", "data,model"), &dims, E_INDIVISIBLE,
                   "dim 2 has size 12, which mesh axis (data,model) of size 8 does not divide; use "
                   "a size of 16"));
}

static void test_axes(void) {
    AxisList whole = {0}, split = {0};
    axes_push(&whole, (AxisRef){0, 1, 4});
    axes_push(&split, (AxisRef){0, 1, 2});
    CHECK(axes_is_prefix(&split, &whole) && !axes_is_prefix(&whole, &split));
    CHECK(axes_overlap(whole.at[0], split.at[0]));
    CHECK(!axes_overlap(split.at[0], (AxisRef){0, 2, 2}));
    axes_push(&split, (AxisRef){0, 2, 2}); /* the rest of it: whole again */
    CHECK(axes_equal(&whole, &split) && axes_product(&split) == 4 && axes_mask(&split) == 1);
}

static void test_same_shards(void) {
    const Mesh *m = mesh(3, (const char *[]){"a", "one", "b"}, (int32_t[]){2, 1, 2});
    Dims dims = {2, {8, 8}};
    Layout x, y;
    CHECK(layout_from_spec(&cx, m, SPEC("a"), &dims, "x", &x) == E_OK);
    CHECK(layout_from_spec(&cx, m, SPEC("a,one", ""), &dims, "x", &y) == E_OK);
    CHECK(!layout_equal(&x, &y) && layout_same_shards(&x, &y));
    CHECK(layout_from_spec(&cx, m, SPEC("a", "b"), &dims, "x", &y) == E_OK);
    CHECK(!layout_same_shards(&x, &y) && !layout_same_shards(&x, NULL));
    y = x;
    y.unreduced = 4;
    CHECK(!layout_same_shards(&x, &y));
    const Type *t = type_make(&cx, DT_BF16, &dims, layout_of(&cx, &y));
    CHECK(prints(print_type, t, "bfloat16[8@a,8]{U:b}"));
}

int main(void) {
    ctx_init(&cx);
    if (intern_init(&cx)) return 1;
    test_mesh();
    test_mesh_errors();
    test_bind();
    test_bind_errors();
    test_axes();
    test_same_shards();
    intern_free(&cx);
    CHECK(cx.alloc.live == 0);
    return test_end();
}
