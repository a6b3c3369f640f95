#include "ir/type.h"

#include <string.h>

static bool type_equal(const void *a, const void *b) {
    const Type *x = a, *y = b;
    return x->dtype == y->dtype && x->weak == y->weak && x->local == y->local &&
           x->layout == y->layout && dims_equal(&x->dims, &y->dims);
}

const Type *type_of(Ctx *cx, const Type *t) {
    uint64_t h = hash_u64(0, (uint64_t)t->dtype << 8 | (uint64_t)t->weak << 1 | t->local);
    h = hash_bytes(h, t->dims.at, sizeof t->dims.at[0] * (size_t)t->dims.rank);
    h = hash_u64(h, (uint64_t)(uintptr_t)t->layout);
    Type copy = *t;
    copy.id = cx->interns->types.items.n + 1;
    return intern_item(cx, &cx->interns->types, &copy, sizeof copy, h, type_equal);
}

const Type *type_make(Ctx *cx, DType dtype, const Dims *dims, const Layout *layout) {
    return type_of(cx, &(Type){.dtype = dtype, .dims = *dims, .layout = layout});
}

const Type *type_with_layout(Ctx *cx, const Type *t, const Layout *layout) {
    Type copy = *t;
    copy.layout = layout;
    return type_of(cx, &copy);
}

const Type *type_undecided(Ctx *cx, const Type *t) {
    if (!t->layout) return t;
    Layout l = *t->layout;
    bool any = l.manual || l.vary || l.unreduced || l.reduced || l.flipped;
    uint32_t axes = mesh_axes_of(l.mesh, AXIS_EXPLICIT) ^ l.flipped;
    for (int d = 0; d < l.rank; d++) {
        AxisList kept = {0};
        for (int i = 0; i < l.dim[d].axes.n; i++)
            if (axes >> l.dim[d].axes.at[i].axis & 1) kept.at[kept.n++] = l.dim[d].axes.at[i];
        any = any || kept.n;
        l.dim[d] = (LayoutDim){.axes = kept};
    }
    const Layout *layout = any ? layout_of(cx, &l) : NULL;
    return any && !layout ? NULL : type_with_layout(cx, t, layout);
}

const Type *type_stack(Ctx *cx, const Type *t, int64_t n) {
    Type out = *t;
    Layout l;
    out.dims = (Dims){0};
    dims_push(&out.dims, n);
    for (int d = 0; d < t->dims.rank; d++) dims_push(&out.dims, t->dims.at[d]);
    if (!t->layout) return type_of(cx, &out);
    l = *t->layout;
    l.rank = out.dims.rank;
    l.dim[0] = (LayoutDim){0};
    for (int d = 0; d < t->dims.rank; d++) l.dim[d + 1] = t->layout->dim[d];
    out.layout = layout_of(cx, &l);
    return out.layout ? type_of(cx, &out) : NULL;
}

const Type *type_slice(Ctx *cx, const Type *t) {
    Type out = *t;
    Layout l;
    out.dims = (Dims){0};
    for (int d = 1; d < t->dims.rank; d++) dims_push(&out.dims, t->dims.at[d]);
    if (!t->layout) return type_of(cx, &out);
    l = *t->layout;
    l.rank = out.dims.rank;
    for (int d = 0; d < out.dims.rank; d++) l.dim[d] = t->layout->dim[d + 1];
    memset(&l.dim[l.rank], 0, sizeof l.dim[0]);
    out.layout = layout_of(cx, &l);
    return out.layout ? type_of(cx, &out) : NULL;
}

int64_t type_count(const Type *t) {
    return dims_count(&t->dims);
}
int64_t type_bytes(const Type *t) {
    return type_count(t) * dtype_size(t->dtype);
}

int64_t type_shard_bytes(const Type *t) {
    if (t->local) return type_bytes(t);
    Dims local = layout_local(t->layout, &t->dims);
    return dims_count(&local) * dtype_size(t->dtype);
}

/* One group of a "{...}" suffix: U:model, V:(data,model). */
static void print_mask(const Layout *l, const char *letter, uint32_t mask, bool *first, Str *s) {
    if (!mask) return;
    bool many = (mask & (mask - 1)) != 0;
    str_fmt(s, "%s%s:%s", *first ? "{" : ", ", letter, many ? "(" : "");
    mesh_print_axes(l->mesh, mask, s);
    if (many) str_put(s, ")");
    *first = false;
}

void type_print(const Type *t, Str *s) {
    static const char *const unreduced[] = {"U", "U_max", "U_min"};
    str_put(s, dtype_name(t->dtype));
    str_put(s, "[");
    for (int d = 0; d < t->dims.rank; d++) {
        if (d) str_put(s, ",");
        str_int(s, t->dims.at[d]);
        if (t->layout && t->layout->dim[d].axes.n) {
            str_put(s, "@");
            axes_print(&t->layout->dim[d].axes, t->layout->mesh, s);
        }
    }
    str_put(s, "]");
    bool first = true;
    if (t->layout) {
        print_mask(t->layout, "V", t->layout->vary, &first, s);
        print_mask(t->layout, unreduced[t->layout->unreduced_kind], t->layout->unreduced, &first,
                   s);
        print_mask(t->layout, "R", t->layout->reduced, &first, s);
    }
    if (t->weak) {
        str_put(s, first ? "{weak" : ", weak");
        first = false;
    }
    if (!first) str_put(s, "}");
}
