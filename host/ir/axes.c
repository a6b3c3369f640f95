#include "ir/axes.h"

bool axes_equal(const AxisList *a, const AxisList *b) {
    if (a->n != b->n) return false;
    for (int i = 0; i < a->n; i++)
        if (a->at[i].axis != b->at[i].axis || a->at[i].pre != b->at[i].pre ||
            a->at[i].size != b->at[i].size)
            return false;
    return true;
}

bool axes_is_prefix(const AxisList *a, const AxisList *b) {
    if (a->n > b->n) return false;
    for (int i = 0; i < a->n; i++) {
        AxisRef x = a->at[i], y = b->at[i];
        if (x.axis != y.axis || x.pre != y.pre) return false;
        if (x.size == y.size) continue;
        return i == a->n - 1 && y.size % x.size == 0;
    }
    return true;
}

int32_t axes_product(const AxisList *a) {
    int32_t n = 1;
    for (int i = 0; i < a->n; i++) n *= a->at[i].size;
    return n;
}

uint32_t axes_mask(const AxisList *a) {
    uint32_t mask = 0;
    for (int i = 0; i < a->n; i++) mask |= 1u << a->at[i].axis;
    return mask;
}

bool axes_overlap(AxisRef a, AxisRef b) {
    return a.axis == b.axis && a.pre < b.pre * b.size && b.pre < a.pre * a.size;
}

void axes_push(AxisList *list, AxisRef r) {
    if (list->n) {
        AxisRef *last = &list->at[list->n - 1];
        if (last->axis == r.axis && last->pre * last->size == r.pre) {
            last->size = (uint16_t)(last->size * r.size);
            return;
        }
    }
    ASSERT(list->n < MAX_AXES, "a dim split by more than %d axes", MAX_AXES);
    list->at[list->n++] = r;
}

AxisRef axes_whole(const Mesh *m, int axis) {
    return (AxisRef){(uint8_t)axis, 1, (uint16_t)m->size[axis]};
}

int32_t axes_index(const AxisList *list, const Mesh *m, const int32_t coord[MAX_AXES]) {
    int32_t index = 0;
    for (int i = 0; i < list->n; i++) {
        AxisRef r = list->at[i];
        int32_t rest = m->size[r.axis] / (r.pre * r.size);
        index = index * r.size + coord[r.axis] / rest % r.size;
    }
    return index;
}

void axes_print(const AxisList *list, const Mesh *m, Str *s) {
    if (list->n != 1) str_put(s, "(");
    for (int i = 0; i < list->n; i++) {
        AxisRef r = list->at[i];
        str_fmt(s, "%s%s", i ? "," : "", m->name[r.axis]);
        if (r.pre != 1 || r.size != m->size[r.axis]) str_fmt(s, ":(%d)%d", r.pre, r.size);
    }
    if (list->n != 1) str_put(s, ")");
}
