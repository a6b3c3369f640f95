#include "ir/parse.h"

#include <string.h>

static Scalar read_scalar(Parse *p, DType dtype) {
    Scalar x;
    if (dtype_is_float(dtype)) {
        x = attr_scalar_float(parse_double(p));
        if (parse_take(p, "|")) x.i = parse_int(p, INT64_MIN, INT64_MAX, "an integer");
        return x;
    }
    if (parse_take(p, "true"))
        x = attr_scalar_int(1);
    else if (parse_take(p, "false"))
        x = attr_scalar_int(0);
    else
        x = attr_scalar_int(parse_int(p, INT64_MIN, INT64_MAX, "an integer"));
    if (parse_take(p, "|")) x.f = parse_double(p);
    return x;
}

static Dims read_list(Parse *p, int64_t from) {
    Dims d = {0};
    parse_want(p, "[");
    for (bool first = true; !p->err && !parse_take(p, "]"); first = false) {
        if (!first) parse_want(p, ",");
        if (d.rank == MAX_RANK) parse_fail(p, "expected at most %d numbers", MAX_RANK);
        if (!p->err) dims_push(&d, parse_int(p, INT64_MIN + 1, INT64_MAX, "an integer") - from);
    }
    return d;
}

static const IntList *read_ints(Parse *p) {
    VEC(int32_t) list = {0};
    if (parse_take(p, "nil")) return NULL;
    parse_want(p, "[");
    while (!p->err && !parse_take(p, "]")) {
        if (list.n) parse_want(p, ",");
        int32_t x = (int32_t)parse_int(p, INT32_MIN, INT32_MAX, "an integer");
        if (!VEC_PUSH(&p->arena, &list, x)) parse_no_memory(p);
    }
    const IntList *out = p->err ? NULL : attr_list_of(p->cx, list.n ? list.at : &list.n, list.n);
    if (!out) parse_no_memory(p);
    return out;
}

static bool read_bool(Parse *p) {
    bool yes = parse_take(p, "true");
    if (!yes && !parse_take(p, "false")) parse_fail(p, "expected true or false");
    return yes;
}

static void read_value(Parse *p, const AttrField *f, void *x, DType *dtype) {
    switch (f->kind) {
    case ATTR_INT: *(int64_t *)x = parse_int(p, INT64_MIN, INT64_MAX, "an integer"); break;
    case ATTR_BOOL:
    case ATTR_FLAG: *(int32_t *)x = read_bool(p); break;
    case ATTR_FLOAT:
    case ATTR_NUMBER: *(double *)x = parse_double(p); break;
    case ATTR_DTYPE: *(int32_t *)x = (int32_t)(*dtype = parse_dtype(p)); break;
    case ATTR_SCALAR: *(Scalar *)x = read_scalar(p, *dtype); break;
    case ATTR_DIM:
        *(int32_t *)x = (int32_t)parse_int(p, INT32_MIN + 2, INT32_MAX, "a dim") - 1;
        break;
    case ATTR_DIMS: *(Dims *)x = read_list(p, 1); break;
    case ATTR_SHAPE:
    case ATTR_LIST:
    case ATTR_SOME: *(Dims *)x = read_list(p, 0); break;
    case ATTR_AXES: *(AxisList *)x = parse_axes(p, p->def.mesh); break;
    case ATTR_MASK: *(uint32_t *)x = parse_mask(p, p->def.mesh); break;
    case ATTR_LAYOUT: *(const Layout **)x = parse_layout(p); break;
    case ATTR_NAME: *(const char **)x = parse_string(p); break;
    case ATTR_ENUM: *(int32_t *)x = parse_enum(p, f->names, "one of the attribute's words"); break;
    case ATTR_INTS: *(const IntList **)x = read_ints(p); break;
    }
}

/* Where the text says nothing: zero, of a list none, of a parameter the next. */
static void set_defaults(Parse *p, const OpDef *def, int64_t index, char *a) {
    for (const AttrField *f = def->attr; f && f->name; f++) {
        if (def->flags & OPF_PARAM && f->kind == ATTR_INT && strcmp(f->name, "index") == 0)
            memcpy(a + f->offset, &index, sizeof index);
        if (f->kind != ATTR_INTS) continue;
        const IntList *none = attr_list_of(p->cx, &(int32_t){0}, 0);
        if (!none) parse_no_memory(p);
        *(const IntList **)(void *)(a + f->offset) = none;
    }
}

const void *parse_attr(Parse *p, const OpDef *def, int64_t index) {
    if (!def->attr_size) return NULL;
    char *a = arena_alloc(&p->arena, def->attr_size);
    DType dtype = DT_F32;
    if (!a) {
        parse_no_memory(p);
        return NULL;
    }
    set_defaults(p, def, index, a);
    if (!parse_take(p, "{")) return a;
    for (bool first = true; !p->err && !parse_take(p, "}"); first = false) {
        if (!first) parse_want(p, ",");
        const char *at = p->at, *name = parse_word(p, "an attribute's name");
        const AttrField *f = def->attr;
        while (name && f && f->name && strcmp(f->name, name) != 0) f++;
        if (name && (!f || !f->name))
            parse_fail_at(p, at, "expected an attribute of %s", def->name);
        parse_want(p, "=");
        if (!p->err) read_value(p, f, a + f->offset, &dtype);
    }
    return a;
}
