#include "ir/spec.h"

static bool entry_equal(const SpecEntry *p, const SpecEntry *q) {
    if (p->kind != q->kind || p->n != q->n || p->open != q->open || p->priority != q->priority ||
        p->uneven != q->uneven)
        return false;
    for (int k = 0; k < p->n; k++)
        if (p->axis[k] != q->axis[k]) return false;
    return true;
}

static bool spec_equal(const void *a, const void *b) {
    const Spec *x = a, *y = b;
    if (x->n != y->n || x->unreduced_kind != y->unreduced_kind ||
        !entry_equal(&x->unreduced, &y->unreduced) || !entry_equal(&x->reduced, &y->reduced))
        return false;
    for (int i = 0; i < x->n; i++)
        if (!entry_equal(&x->entry[i], &y->entry[i])) return false;
    return true;
}

static uint64_t entry_hash(uint64_t h, const SpecEntry *e) {
    h = hash_u64(h, (uint64_t)e->uneven << 32 | (uint64_t)e->priority << 24 |
                        (uint64_t)e->open << 16 | (uint64_t)e->kind << 8 | e->n);
    for (int k = 0; k < e->n; k++) h = hash_str(h, e->axis[k]);
    return h;
}

const Spec *spec_of(Ctx *cx, const Spec *s) {
    uint64_t h = hash_u64(s->unreduced_kind, (uint64_t)s->n);
    for (int i = 0; i < s->n; i++) h = entry_hash(h, &s->entry[i]);
    h = entry_hash(entry_hash(h, &s->unreduced), &s->reduced);
    return intern_item(cx, &cx->interns->specs, s, sizeof *s, h, spec_equal);
}

static void print_list(const SpecEntry *e, Str *out) {
    for (int k = 0; k < e->n; k++) str_fmt(out, "%s\"%s\"", k ? "," : "", e->axis[k]);
}

static void print_entry(const SpecEntry *e, Str *out) {
    if (e->kind == SPEC_NONE) str_put(out, "nil");
    if (e->kind == SPEC_UNCONSTRAINED) str_put(out, "P.unconstrained");
    if (e->kind != SPEC_AXES) return;
    bool braces = e->n != 1 || e->open || e->priority || e->uneven;
    if (braces) str_put(out, "{");
    print_list(e, out);
    if (e->open) str_put(out, ",open=true");
    if (e->priority) str_fmt(out, ",priority=%d", e->priority);
    if (e->uneven) str_fmt(out, ",uneven=\"%s\"", e->uneven == UNEVEN_PAD ? "pad" : "replicate");
    if (braces) str_put(out, "}");
}

static void print_set(const char *name, const SpecEntry *e, bool *first, Str *out) {
    if (!e->n) return;
    str_fmt(out, "%s%s={", *first ? "" : ", ", name);
    print_list(e, out);
    str_put(out, "}");
    *first = false;
}

void spec_print(const Spec *s, Str *out) {
    static const char *const kind[] = {NULL, "max", "min"};
    str_put(out, "P(");
    for (int i = 0; i < s->n; i++) {
        if (i) str_put(out, ", ");
        print_entry(&s->entry[i], out);
    }
    if (s->unreduced.n || s->reduced.n) {
        bool first = true;
        str_put(out, s->n ? ", {" : "{");
        print_set("unreduced", &s->unreduced, &first, out);
        print_set("reduced", &s->reduced, &first, out);
        if (s->unreduced_kind) str_fmt(out, ", unreduced_kind=\"%s\"", kind[s->unreduced_kind]);
        str_put(out, "}");
    }
    str_put(out, ")");
}
