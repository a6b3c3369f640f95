#include "ir/mesh.h"

#include <string.h>

static bool mesh_equal(const void *a, const void *b) {
    const Mesh *x = a, *y = b;
    if (x->naxes != y->naxes || x->ndevices != y->ndevices || x->abstract != y->abstract)
        return false;
    for (int i = 0; i < x->naxes; i++)
        if (x->name[i] != y->name[i] || x->size[i] != y->size[i] || x->type[i] != y->type[i])
            return false;
    return x->abstract ||
           memcmp(x->device, y->device, sizeof *x->device * (size_t)x->ndevices) == 0;
}

/* Checks what the user gave, and sees whose devices they are. */
static Err check(Ctx *cx, Mesh *m) {
    int64_t product = 1;
    for (int i = 0; i < m->naxes; i++) {
        if (m->name[i][0] == '\0') return err_set(cx, E_MESH, "mesh: axis %d has no name", i + 1);
        for (int j = 0; j < i; j++)
            if (m->name[i] == m->name[j])
                return err_set(cx, E_MESH, "mesh: two axes are called '%s'", m->name[i]);
        if (m->size[i] < 1)
            return err_set(cx, E_MESH, "mesh: axis '%s' has size %d; sizes start at 1", m->name[i],
                           (int)m->size[i]);
        product *= m->size[i];
        if (product > MAX_DEVICES)
            return err_set(cx, E_MESH, "mesh: more than %d devices", MAX_DEVICES);
    }
    m->domain = cx->domain;
    m->domains = cx->domains;
    m->each = m->abstract ? 0 : cx->domain_devices;
    for (int32_t i = 1; i < m->ndevices && m->each; i++)
        m->spread = m->spread || m->device[i] / m->each != m->device[0] / m->each;
    bool ascending = true; /* the usual list, where no pair has to be compared */
    for (int i = 1; i < m->ndevices && !m->abstract; i++) {
        ascending = ascending && m->device[i] > m->device[i - 1];
        for (int j = 0; j < i && !ascending; j++)
            if (m->device[i] == m->device[j])
                return err_set(cx, E_MESH, "mesh: device %d is listed twice", (int)m->device[i]);
    }
    return E_OK;
}

/* The list that an interned mesh keeps; NULL when out of memory. */
static const int32_t *devices_of(Ctx *cx, const Mesh *m) {
    Arena *a = &cx->interns->arena;
    if (!m->abstract) return arena_copy(a, m->device, sizeof *m->device * (size_t)m->ndevices);
    int32_t *ids = ARENA_ARRAY(a, int32_t, m->ndevices);
    for (int32_t i = 0; ids && i < m->ndevices; i++) ids[i] = i;
    return ids;
}

/* The places of the devices, by id; NULL when out of memory. */
static const int32_t *places_of(Ctx *cx, Mesh *m) {
    for (int32_t i = 0; i < m->ndevices; i++)
        if (m->device[i] >= m->nids) m->nids = m->device[i] + 1;
    int32_t *index = ARENA_ARRAY(&cx->interns->arena, int32_t, m->nids);
    for (int32_t i = 0; index && i < m->nids; i++) index[i] = -1;
    for (int32_t i = 0; index && i < m->ndevices; i++) index[m->device[i]] = i;
    return index;
}

Err mesh_of(Ctx *cx, int naxes, const char *const *names, const int32_t *sizes,
            const uint8_t *types, const int32_t *devices, const Mesh **out) {
    if (naxes > MAX_AXES)
        return err_set(cx, E_MESH, "mesh: %d axes; at most %d are allowed", naxes, MAX_AXES);
    Mesh m = {.naxes = naxes, .ndevices = 1, .abstract = !devices, .device = devices};
    for (int i = 0; i < naxes; i++) {
        m.name[i] = intern_name(cx, names[i]);
        if (!m.name[i]) return err_nomem(cx, "a mesh");
        m.size[i] = sizes[i];
        m.type[i] = types ? types[i] : AXIS_AUTO;
        m.ndevices *= sizes[i] > 0 ? sizes[i] : 1;
        if (m.ndevices > MAX_DEVICES) break;
    }
    TRY(check(cx, &m));
    uint64_t h = hash_bytes(0, m.size, sizeof m.size);
    h = hash_bytes(h, m.type, sizeof m.type);
    for (int i = 0; i < naxes; i++) h = hash_str(h, m.name[i]);
    if (devices) h = hash_bytes(h, devices, sizeof *devices * (size_t)m.ndevices);
    InternTable *t = &cx->interns->meshes;
    const Mesh *mesh = intern_find(t, &m, h, mesh_equal);
    if (!mesh) {
        m.id = t->items.n + 1;
        m.device = devices_of(cx, &m);
        if (m.device && m.spread) m.index = places_of(cx, &m);
        if (m.device && (m.index || !m.spread))
            mesh = intern_item(cx, t, &m, sizeof m, h, mesh_equal);
    }
    if (!mesh) return err_nomem(cx, "a mesh");
    *out = mesh;
    return E_OK;
}

int mesh_axis(const Mesh *m, const char *name) {
    for (int i = 0; i < m->naxes; i++)
        if (strcmp(m->name[i], name) == 0) return i;
    return -1;
}

void mesh_coords(const Mesh *m, int32_t index, int32_t coord[MAX_AXES]) {
    for (int i = m->naxes - 1; i >= 0; i--) {
        coord[i] = index % m->size[i];
        index /= m->size[i];
    }
}

uint32_t mesh_axes_of(const Mesh *m, AxisType type) {
    uint32_t mask = 0;
    for (int i = 0; m && i < m->naxes; i++)
        if (m->type[i] == type) mask |= 1u << i;
    return mask;
}

int32_t mesh_product(const Mesh *m, uint32_t mask) {
    int32_t n = 1;
    for (int i = 0; m && i < m->naxes; i++)
        if (mask >> i & 1) n *= m->size[i];
    return n;
}

void mesh_print(const Mesh *m, Str *s) {
    if (m->naxes == 0 && !m->abstract) {
        str_fmt(s, "device %d", (int)m->device[0]);
        return;
    }
    str_put(s, m->abstract ? "AbstractMesh(" : "Mesh(");
    for (int i = 0; i < m->naxes; i++)
        str_fmt(s, "%s%s=%d%s", i ? ", " : "", m->name[i], (int)m->size[i],
                m->type[i] == AXIS_EXPLICIT ? " explicit" : "");
    str_put(s, ")");
}

void mesh_print_devices(const Mesh *m, Str *s) {
    enum { SHOWN = 16 };
    bool run = true;
    for (int32_t i = 1; i < m->ndevices; i++) run = run && m->device[i] == m->device[i - 1] + 1;
    str_fmt(s, m->ndevices == 1 ? "device %d" : "devices %d", (int)m->device[0]);
    if (run && m->ndevices > 2) {
        str_fmt(s, "..%d", (int)m->device[m->ndevices - 1]);
        return;
    }
    for (int32_t i = 1; i < m->ndevices && i < SHOWN; i++) str_fmt(s, ",%d", (int)m->device[i]);
    if (m->ndevices > SHOWN) str_put(s, ",...");
}

void mesh_print_axes(const Mesh *m, uint32_t mask, Str *s) {
    bool first = true;
    for (int i = 0; m && i < m->naxes; i++)
        if (mask >> i & 1) {
            str_fmt(s, "%s%s", first ? "" : ",", m->name[i]);
            first = false;
        }
}
