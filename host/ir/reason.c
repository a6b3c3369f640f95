#include "ir/reason.h"

static bool origin_equal(const Origin *a, const Origin *b) {
    return a->kind == b->kind && a->axis == b->axis && a->index == b->index && a->name == b->name &&
           a->loc == b->loc;
}

static bool reason_equal(const void *a, const void *b) {
    const Reason *x = a, *y = b;
    bool same = x->text == y->text && x->tensor == y->tensor && x->loc == y->loc &&
                x->norigin == y->norigin;
    for (int i = 0; same && i < x->norigin; i++) same = origin_equal(&x->origin[i], &y->origin[i]);
    return same;
}

const Reason *reason_of(Ctx *cx, const Reason *r) {
    uint64_t h = hash_u64(0, (uint64_t)(uintptr_t)r->text);
    h = hash_u64(h, (uint64_t)(uintptr_t)r->tensor);
    h = hash_u64(h, (uint64_t)(uintptr_t)r->loc);
    for (int i = 0; i < r->norigin; i++)
        h = hash_u64(h, (uint64_t)(uintptr_t)r->origin[i].name ^ (uint64_t)r->origin[i].axis);
    return intern_item(cx, &cx->interns->reasons, r, sizeof *r, h, reason_equal);
}

void reason_add(Reason *r, const Origin *o) {
    for (int i = 0; i < r->norigin; i++)
        if (origin_equal(&r->origin[i], o)) return;
    if (r->norigin < MAX_ORIGINS) r->origin[r->norigin++] = *o;
}

void reason_print_origin(const Origin *o, Str *s) {
    switch (o->kind) {
    case ORIGIN_ARGUMENT:
        if (o->name[0])
            str_fmt(s, "argument %s", o->name);
        else
            str_fmt(s, "input %d", (int)o->index);
        return;
    case ORIGIN_PARAM: str_fmt(s, "Param %s", o->name); return;
    case ORIGIN_OP: str_fmt(s, "%s at ", o->name); break;
    default: break;
    }
    intern_print_loc(o->loc, s);
}
