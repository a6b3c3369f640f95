#include "ir/layout.h"

#include <string.h>

void layout_init(Layout *l, const Mesh *m, int rank) {
    memset(l, 0, sizeof *l);
    l->mesh = m;
    l->rank = rank;
}

Layout layout_stack(const Layout *l) {
    Layout out = *l;
    out.rank++;
    out.dim[0] = (LayoutDim){.open = false};
    for (int d = 0; d < l->rank; d++) out.dim[d + 1] = l->dim[d];
    return out;
}

bool layout_equal(const Layout *a, const Layout *b) {
    if (a->mesh != b->mesh || a->rank != b->rank || a->unreduced_kind != b->unreduced_kind ||
        a->replicated != b->replicated || a->unreduced != b->unreduced ||
        a->reduced != b->reduced || a->manual != b->manual || a->vary != b->vary ||
        a->flipped != b->flipped)
        return false;
    for (int d = 0; d < a->rank; d++)
        if (a->dim[d].open != b->dim[d].open || a->dim[d].priority != b->dim[d].priority ||
            a->dim[d].refused != b->dim[d].refused || !axes_equal(&a->dim[d].axes, &b->dim[d].axes))
            return false;
    return true;
}

static AxisList without_size_1(const AxisList *list) {
    AxisList out = {0};
    for (int i = 0; i < list->n; i++)
        if (list->at[i].size != 1) out.at[out.n++] = list->at[i];
    return out;
}

void layout_drop_ones(Layout *l) {
    for (int d = 0; d < l->rank; d++) l->dim[d].axes = without_size_1(&l->dim[d].axes);
}

bool layout_drop_parts(Layout *l) {
    bool any = false;
    for (int d = 0; d < l->rank; d++)
        for (int i = 0; i < l->dim[d].axes.n; i++) {
            AxisRef r = l->dim[d].axes.at[i];
            if (r.pre == 1 && r.size == l->mesh->size[r.axis]) continue;
            l->dim[d].axes.n = (uint8_t)i;
            any = true;
        }
    return any;
}

bool layout_same_shards(const Layout *a, const Layout *b) {
    if (a == b) return true;
    if (!a || !b) {
        const Layout *l = a ? a : b;
        return l->mesh->ndevices == 1 && l->unreduced == 0;
    }
    if (a->mesh != b->mesh || a->rank != b->rank || a->unreduced != b->unreduced ||
        a->reduced != b->reduced || a->manual != b->manual)
        return false;
    if (a->unreduced && a->unreduced_kind != b->unreduced_kind) return false;
    for (int d = 0; d < a->rank; d++) {
        AxisList x = without_size_1(&a->dim[d].axes), y = without_size_1(&b->dim[d].axes);
        if (!axes_equal(&x, &y)) return false;
    }
    return true;
}

static bool interned_equal(const void *a, const void *b) {
    return layout_equal(a, b);
}

const Layout *layout_of(Ctx *cx, const Layout *l) {
    uint64_t h = hash_u64(0, (uint64_t)l->mesh->id);
    h = hash_u64(h, (uint64_t)l->rank << 32 | (uint64_t)l->unreduced_kind << 24 |
                        (uint64_t)l->replicated << 16 | (uint64_t)l->unreduced << 8 | l->vary);
    h = hash_u64(h, (uint64_t)l->flipped << 16 | (uint64_t)l->reduced << 8 | l->manual);
    for (int d = 0; d < l->rank; d++) {
        h = hash_u64(h, (uint64_t)l->dim[d].refused << 16 | (uint64_t)l->dim[d].open << 8 |
                            l->dim[d].priority);
        for (int i = 0; i < l->dim[d].axes.n; i++) {
            AxisRef r = l->dim[d].axes.at[i];
            h = hash_u64(h, (uint64_t)d << 48 | (uint64_t)r.axis << 40 | (uint64_t)r.pre << 20 |
                                r.size);
        }
    }
    return intern_item(cx, &cx->interns->layouts, l, sizeof *l, h, interned_equal);
}

uint32_t layout_used(const Layout *l) {
    uint32_t mask = l->unreduced;
    for (int d = 0; d < l->rank; d++) mask |= axes_mask(&l->dim[d].axes);
    return mask;
}

uint32_t layout_vary(const Layout *l) {
    uint32_t mask = l ? layout_used(l) : 0;
    for (int i = 0; l && i < l->mesh->naxes; i++)
        if (l->mesh->size[i] == 1) mask &= ~(1u << i);
    return mask;
}

int layout_places(const Layout *l, AxisRef r) {
    int n = 0;
    for (int d = 0; d < l->rank; d++)
        for (int i = 0; i < l->dim[d].axes.n; i++) n += axes_overlap(l->dim[d].axes.at[i], r);
    return n;
}

int32_t layout_parts(const Layout *l, int dim) {
    return l ? axes_product(&l->dim[dim].axes) : 1;
}

bool layout_divides(const Layout *l, const Dims *dims, int dim) {
    return dims->at[dim] % layout_parts(l, dim) == 0;
}

bool layout_is_replicated(const Layout *l) {
    if (!l) return true;
    for (int d = 0; d < l->rank; d++)
        if (axes_product(&l->dim[d].axes) != 1) return false;
    return mesh_product(l->mesh, l->unreduced) == 1;
}

Dims layout_local(const Layout *l, const Dims *global) {
    Dims local = *global;
    for (int d = 0; l && d < global->rank; d++) {
        int64_t parts = layout_parts(l, d);
        local.at[d] = (global->at[d] + parts - 1) / parts;
    }
    return local;
}

int64_t layout_start(const Layout *l, const Dims *global, int dim, const int32_t coord[MAX_AXES]) {
    if (!l) return 0;
    int64_t parts = layout_parts(l, dim);
    int64_t each = (global->at[dim] + parts - 1) / parts;
    return each * axes_index(&l->dim[dim].axes, l->mesh, coord);
}

Dims layout_part(const Layout *l, const Dims *global, const int32_t coord[MAX_AXES],
                 int64_t start[MAX_RANK]) {
    Dims part = layout_local(l, global);
    for (int d = 0; d < global->rank; d++) {
        start[d] = layout_start(l, global, d, coord);
        if (start[d] > global->at[d]) start[d] = global->at[d]; /* padding alone */
        int64_t rest = global->at[d] - start[d];
        if (part.at[d] > rest) part.at[d] = rest;
    }
    return part;
}

int32_t layout_slot(const Layout *l, const int32_t coord[MAX_AXES]) {
    int32_t slot = 0;
    uint32_t used = layout_vary(l);
    for (int i = 0; l && i < l->mesh->naxes; i++)
        if (used >> i & 1) slot = slot * l->mesh->size[i] + coord[i];
    return slot;
}

static Err axis_error(Ctx *cx, const Mesh *m, const Spec *s, const char *what, const char *axis) {
    Str mesh, spec;
    str_init(&mesh, &cx->alloc);
    str_init(&spec, &cx->alloc);
    mesh_print(m, &mesh);
    spec_print(s, &spec);
    Err e = err_set(cx, E_SPEC, "%s: axis '%s' of %s is not an axis of %s", what, axis,
                    str_of(&spec), str_of(&mesh));
    str_free(&mesh);
    str_free(&spec);
    return e;
}

static Err indivisible(Ctx *cx, const Layout *l, const Dims *dims, int d, const char *what) {
    int64_t parts = layout_parts(l, d), size = dims->at[d];
    Str axes;
    str_init(&axes, &cx->alloc);
    axes_print(&l->dim[d].axes, l->mesh, &axes);
    Err e =
        err_set(cx, E_INDIVISIBLE,
                "%s: dim %d has size %lld, which mesh axis %s of size %lld does not divide; use "
                "a size of %lld or leave the dim whole, or say what then: {axis, uneven = "
                "\"pad\"}",
                what, d + 1, (long long)size, str_of(&axes), (long long)parts,
                (long long)((size + parts - 1) / parts * parts));
    str_free(&axes);
    return e;
}

static Err read_entry(Ctx *cx, const Spec *s, int d, const char *what, uint32_t *used,
                      Layout *out) {
    const SpecEntry *e = &s->entry[d];
    out->dim[d].open = e->kind == SPEC_UNCONSTRAINED || e->open;
    out->dim[d].priority = e->priority;
    for (int k = 0; k < e->n; k++) {
        int axis = mesh_axis(out->mesh, e->axis[k]);
        if (axis < 0) return axis_error(cx, out->mesh, s, what, e->axis[k]);
        if (*used >> axis & 1)
            return err_set(cx, E_SPEC,
                           "%s: duplicate entries for axis '%s'; an axis splits one dim "
                           "of a tensor",
                           what, e->axis[k]);
        *used |= 1u << axis;
        axes_push(&out->dim[d].axes, axes_whole(out->mesh, axis));
    }
    return E_OK;
}

/* The axes of `unreduced` or `reduced`, as a mask. */
static Err read_set(Ctx *cx, const Mesh *m, const Spec *s, const SpecEntry *set, const char *what,
                    uint32_t used, uint8_t *out) {
    *out = 0;
    for (int k = 0; k < set->n; k++) {
        int axis = mesh_axis(m, set->axis[k]);
        if (axis < 0) return axis_error(cx, m, s, what, set->axis[k]);
        if (used >> axis & 1)
            return err_set(cx, E_SPEC,
                           "%s: axis '%s' both splits a dim and is unreduced or reduced", what,
                           set->axis[k]);
        *out |= (uint8_t)(1u << axis);
    }
    return E_OK;
}

Err layout_from_spec(Ctx *cx, const Mesh *m, const Spec *s, const Dims *dims, const char *what,
                     Layout *out) {
    layout_init(out, m, dims->rank);
    if (s->n > dims->rank) {
        Str spec;
        str_init(&spec, &cx->alloc);
        spec_print(s, &spec);
        Err e = err_set(cx, E_SPEC, "%s: %s has %d entr%s but the tensor has rank %d%s", what,
                        str_of(&spec), s->n, s->n == 1 ? "y" : "ies", dims->rank,
                        dims->rank == 0 ? "; a scalar takes P()" : "");
        str_free(&spec);
        return e;
    }
    uint32_t used = 0;
    for (int d = 0; d < s->n; d++) TRY(read_entry(cx, s, d, what, &used, out));
    TRY(read_set(cx, m, s, &s->unreduced, what, used, &out->unreduced));
    TRY(read_set(cx, m, s, &s->reduced, what, used, &out->reduced));
    out->unreduced_kind = s->unreduced_kind;
    for (int d = 0; d < dims->rank; d++) {
        if (layout_divides(out, dims, d) || s->entry[d].uneven == UNEVEN_PAD) continue;
        if (s->entry[d].uneven == UNEVEN_ERROR) return indivisible(cx, out, dims, d, what);
        out->dim[d].refused = (uint8_t)axes_mask(&out->dim[d].axes);
        out->dim[d].axes = (AxisList){0};
    }
    return E_OK;
}

static SpecEntry set_of(const Mesh *m, uint32_t mask) {
    SpecEntry e = {0};
    for (int i = 0; i < m->naxes; i++) {
        if (!(mask >> i & 1)) continue;
        int at = e.n++;
        for (; at > 0 && strcmp(e.axis[at - 1], m->name[i]) > 0; at--) e.axis[at] = e.axis[at - 1];
        e.axis[at] = m->name[i];
    }
    e.kind = e.n ? SPEC_AXES : SPEC_NONE;
    return e;
}

const Spec *layout_spec(Ctx *cx, const Layout *l, const Dims *dims) {
    Spec s = {.n = l->rank,
              .unreduced = set_of(l->mesh, l->unreduced),
              .reduced = set_of(l->mesh, l->reduced),
              .unreduced_kind = l->unreduced ? l->unreduced_kind : 0};
    for (int d = 0; d < l->rank; d++) {
        SpecEntry *e = &s.entry[d];
        if (l->dim[d].refused) {
            *e = set_of(l->mesh, l->dim[d].refused);
            e->uneven = UNEVEN_REPLICATE;
            continue;
        }
        e->priority = l->dim[d].axes.n ? l->dim[d].priority : 0;
        if (dims && !layout_divides(l, dims, d)) e->uneven = UNEVEN_PAD;
        for (int i = 0; i < l->dim[d].axes.n; i++) {
            e->kind = SPEC_AXES;
            e->axis[e->n++] = l->mesh->name[l->dim[d].axes.at[i].axis];
        }
    }
    return spec_of(cx, &s);
}
