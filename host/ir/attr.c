#include "ir/full.h"

#include <string.h>

Scalar attr_scalar_int(int64_t i) {
    return (Scalar){i, (double)i};
}
Scalar attr_scalar_float(double f) {
    bool fits = f >= -9.2233720368547758e18 && f < 9.2233720368547758e18;
    return (Scalar){fits ? (int64_t)f : 0, f};
}

static bool list_equal(const void *a, const void *b) {
    const IntList *x = a, *y = b;
    return x->n == y->n && memcmp(x->at, y->at, sizeof *x->at * (size_t)x->n) == 0;
}

const IntList *attr_list_of(Ctx *cx, const int32_t *at, int32_t n) {
    size_t size = sizeof(IntList) + sizeof *at * (size_t)n;
    IntList *list = alloc_new(&cx->alloc, size);
    if (!list) return NULL;
    list->n = n;
    memcpy(list->at, at, sizeof *at * (size_t)n);
    uint64_t h = hash_bytes(0, at, sizeof *at * (size_t)n);
    const IntList *out = intern_item(cx, &cx->interns->lists, list, size, h, list_equal);
    alloc_free(&cx->alloc, list, size);
    return out;
}

static size_t size_of(AttrKind kind) {
    switch (kind) {
    case ATTR_INT: return sizeof(int64_t);
    case ATTR_FLOAT:
    case ATTR_NUMBER: return sizeof(double);
    case ATTR_SCALAR: return sizeof(Scalar);
    case ATTR_LAYOUT: return sizeof(Layout *);
    case ATTR_NAME: return sizeof(char *);
    case ATTR_INTS: return sizeof(IntList *);
    default: return sizeof(int32_t);
    }
}

static bool field_equal(const AttrField *f, const char *x, const char *y) {
    switch (f->kind) {
    case ATTR_DIMS:
    case ATTR_SHAPE:
    case ATTR_LIST:
    case ATTR_SOME: return dims_equal((const Dims *)x, (const Dims *)y);
    case ATTR_AXES: return axes_equal((const AxisList *)x, (const AxisList *)y);
    default: return memcmp(x, y, size_of(f->kind)) == 0;
    }
}

bool attr_equal(const AttrField *fields, const void *a, const void *b) {
    for (const AttrField *f = fields; f && f->name; f++)
        if (!field_equal(f, (const char *)a + f->offset, (const char *)b + f->offset)) return false;
    return true;
}

static uint64_t hash_axes(uint64_t h, const AxisList *l) {
    for (int i = 0; i < l->n; i++)
        h = hash_u64(h,
                     (uint64_t)l->at[i].axis << 32 | (uint64_t)l->at[i].pre << 16 | l->at[i].size);
    return hash_u64(h, l->n);
}

uint64_t attr_hash(const AttrField *fields, const void *a, uint64_t h) {
    for (const AttrField *f = fields; f && f->name; f++) {
        const char *x = (const char *)a + f->offset;
        switch (f->kind) {
        case ATTR_DIMS:
        case ATTR_SHAPE:
        case ATTR_LIST:
        case ATTR_SOME: {
            const Dims *d = (const Dims *)x;
            h = hash_bytes(h, d->at, sizeof d->at[0] * (size_t)d->rank);
            break;
        }
        case ATTR_AXES: h = hash_axes(h, (const AxisList *)x); break;
        default: h = hash_bytes(h, x, size_of(f->kind)); break;
        }
    }
    return h;
}

static void print_list(const Dims *d, int add, Str *s) {
    str_put(s, "[");
    for (int i = 0; i < d->rank; i++) str_fmt(s, "%s%lld", i ? "," : "", (long long)d->at[i] + add);
    str_put(s, "]");
}

static void print_ints(const IntList *list, Str *s) {
    if (!list) {
        str_put(s, "nil");
        return;
    }
    str_put(s, "[");
    for (int32_t i = 0; i < list->n; i++) str_fmt(s, "%s%d", i ? "," : "", list->at[i]);
    str_put(s, "]");
}

static void print_scalar(const Scalar *x, DType dtype, Str *s) {
    if (dtype == DT_BOOL)
        str_put(s, x->i ? "true" : "false");
    else if (dtype_is_float(dtype))
        str_double(s, x->f);
    else
        str_fmt(s, "%lld", (long long)x->i);
}

static void print_layout(const Layout *l, Str *s) {
    str_put(s, "[");
    for (int d = 0; l && d < l->rank; d++) {
        if (d) str_put(s, ",");
        axes_print(&l->dim[d].axes, l->mesh, s);
        if (l->dim[d].open) str_put(s, "?");
    }
    str_put(s, "]");
}

static void print_mask(uint32_t axes, const Mesh *m, Str *s) {
    str_put(s, "(");
    mesh_print_axes(m, axes, s);
    str_put(s, ")");
}

/* A flag that is not set is never said, nor a number or a list that is not given; false and nil not
 * in the full form. */
static bool is_left_out(AttrKind kind, const char *x, bool full) {
    const char *name = NULL;
    int32_t i32 = 1;
    if (kind == ATTR_NUMBER) return memcmp(x, &(double){0}, sizeof(double)) == 0; /* not -0 */
    if (kind == ATTR_SOME) return ((const Dims *)(const void *)x)->rank == 0;
    if (kind == ATTR_FLAG || (kind == ATTR_BOOL && full)) memcpy(&i32, x, sizeof i32);
    if (kind == ATTR_NAME && full) {
        memcpy(&name, x, sizeof name);
        return !name;
    }
    return !i32;
}

bool attr_says(const AttrField *fields, const void *a, bool full) {
    for (const AttrField *f = fields; f && f->name; f++)
        if (!is_left_out(f->kind, (const char *)a + f->offset, full)) return true;
    return false;
}

/* The field at x; `dtype` is that of the scalars to come. */
static void print_value(const AttrField *f, const char *x, const Mesh *m, DType *dtype, Str *s) {
    int32_t i32;
    const char *name;
    memcpy(&i32, x, sizeof i32);
    switch (f->kind) {
    case ATTR_INT: str_fmt(s, "%lld", (long long)*(const int64_t *)x); break;
    case ATTR_BOOL:
    case ATTR_FLAG: str_put(s, i32 ? "true" : "false"); break;
    case ATTR_FLOAT:
    case ATTR_NUMBER: str_double(s, *(const double *)x); break;
    case ATTR_DTYPE: str_put(s, dtype_name(*dtype = (DType)i32)); break;
    case ATTR_SCALAR: print_scalar((const Scalar *)x, *dtype, s); break;
    case ATTR_DIM: str_fmt(s, "%d", i32 + 1); break;
    case ATTR_DIMS: print_list((const Dims *)x, 1, s); break;
    case ATTR_SHAPE:
    case ATTR_LIST:
    case ATTR_SOME: print_list((const Dims *)x, 0, s); break;
    case ATTR_AXES: axes_print((const AxisList *)x, m, s); break;
    case ATTR_MASK: print_mask((uint32_t)i32, m, s); break;
    case ATTR_LAYOUT: print_layout(*(const Layout *const *)(const void *)x, s); break;
    case ATTR_NAME:
        name = *(const char *const *)(const void *)x;
        str_fmt(s, "\"%s\"", name ? name : "");
        break;
    case ATTR_ENUM: str_put(s, f->names[i32]); break;
    case ATTR_INTS: print_ints(*(const IntList *const *)(const void *)x, s); break;
    }
}

static void print_fields(const AttrField *fields, const void *a, const Mesh *m, bool full, Str *s) {
    if (!fields) return;
    DType dtype = DT_F32;
    str_put(s, "{");
    bool first = true;
    for (const AttrField *f = fields; f->name; f++) {
        const char *x = (const char *)a + f->offset;
        if (is_left_out(f->kind, x, full)) continue;
        str_fmt(s, "%s%s=", first ? "" : ", ", f->name);
        first = false;
        if (!full || !full_value(f->kind, x, dtype, m, s)) print_value(f, x, m, &dtype, s);
    }
    str_put(s, "}");
}

void attr_print(const AttrField *fields, const void *a, const Mesh *m, Str *s) {
    print_fields(fields, a, m, false, s);
}
void attr_print_full(const AttrField *fields, const void *a, const Mesh *m, Str *s) {
    print_fields(fields, a, m, true, s);
}
