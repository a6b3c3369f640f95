#include "ir/spec.h"

static bool spec_equal(const void *a, const void *b) {
    const Spec *x = a, *y = b;
    if (x->n != y->n) return false;
    for (int i = 0; i < x->n; i++) {
        const SpecEntry *p = &x->entry[i], *q = &y->entry[i];
        if (p->kind != q->kind || p->n != q->n) return false;
        for (int k = 0; k < p->n; k++)
            if (p->axis[k] != q->axis[k]) return false;
    }
    return true;
}

const Spec *spec_of(Ctx *cx, const Spec *s) {
    uint64_t h = hash_u64(0, (uint64_t)s->n);
    for (int i = 0; i < s->n; i++) {
        h = hash_u64(h, s->entry[i].kind);
        for (int k = 0; k < s->entry[i].n; k++) h = hash_str(h, s->entry[i].axis[k]);
    }
    return intern_item(cx, &cx->interns->specs, s, sizeof *s, h, spec_equal);
}

void spec_print(const Spec *s, Str *out) {
    str_put(out, "P(");
    for (int i = 0; i < s->n; i++) {
        const SpecEntry *e = &s->entry[i];
        if (i) str_put(out, ", ");
        if (e->kind == SPEC_NONE) str_put(out, "nil");
        if (e->kind == SPEC_UNCONSTRAINED) str_put(out, "P.unconstrained");
        if (e->kind != SPEC_AXES) continue;
        if (e->n > 1) str_put(out, "{");
        for (int k = 0; k < e->n; k++) str_fmt(out, "%s\"%s\"", k ? "," : "", e->axis[k]);
        if (e->n > 1) str_put(out, "}");
    }
    str_put(out, ")");
}
