#include "ir/parse.h"

#include <string.h>

/* ---- meshes ---- */
typedef struct MeshText {
    int n;
    const char *name[MAX_AXES];
    int32_t size[MAX_AXES];
    uint8_t type[MAX_AXES];
    int64_t devices;
} MeshText;

static void read_axes(Parse *p, MeshText *m) {
    m->devices = 1;
    while (!p->err && !parse_take(p, ")")) {
        if (m->n) parse_want(p, ",");
        if (m->n == MAX_AXES) parse_fail(p, "expected at most %d axes", MAX_AXES);
        if (p->err) return;
        m->name[m->n] = parse_name(p, "the name of a mesh axis");
        parse_want(p, "=");
        m->size[m->n] = (int32_t)parse_int(p, 1, MAX_DEVICES, "a size");
        m->devices *= m->size[m->n];
        if (m->devices > MAX_DEVICES) parse_fail(p, "expected at most %d devices", MAX_DEVICES);
        m->type[m->n] = AXIS_AUTO;
        for (int t = AXIS_EXPLICIT; t <= AXIS_MANUAL; t++)
            if (parse_take(p, full_axis_words[t])) m->type[m->n] = (uint8_t)t;
        m->n++;
    }
}

/* "devices 0..7", "devices 3,1"; none said: from 0 on. NULL after an error. */
static const int32_t *read_devices(Parse *p, int64_t n) {
    int32_t *id = ARENA_ARRAY(&p->arena, int32_t, n);
    if (!id) parse_no_memory(p);
    bool said = parse_take(p, "devices") || parse_take(p, "device");
    int64_t first = said ? parse_int(p, 0, 1 << 24, "a device") : 0;
    bool run = !said || parse_take(p, "..");
    if (said && run && parse_int(p, 0, INT32_MAX, "a device") != first + n - 1)
        parse_fail(p, "expected %lld devices before this", (long long)n);
    for (int64_t i = 0; !p->err && i < n; i++) {
        if (i && !run) parse_want(p, ",");
        id[i] = (int32_t)(run || !i ? first + (run ? i : 0) : parse_int(p, 0, 1 << 24, "a device"));
    }
    return p->err ? NULL : id;
}

/* NULL: it is no mesh that comes next, or an error. */
static const Mesh *read_mesh(Parse *p) {
    const Mesh *mesh = NULL;
    const int32_t *devices = NULL;
    MeshText m = {.devices = 1};
    parse_blanks(p);
    const char *at = p->at;
    bool abstract = parse_take(p, "AbstractMesh(");
    if (abstract || parse_take(p, "Mesh("))
        read_axes(p, &m);
    else if (strncmp(at, "device ", 7) != 0)
        return NULL;
    if (!p->err && !abstract) devices = read_devices(p, m.devices);
    if (p->err) return NULL;
    if (mesh_of(p->cx, m.n, m.name, m.size, m.type, devices, &mesh) == E_OK) return mesh;
    if (p->cx->err.code == E_NOMEM) {
        parse_no_memory(p);
        return NULL;
    }
    char why[256];
    strncpy(why, p->cx->err.text, sizeof why - 1);
    why[sizeof why - 1] = '\0';
    parse_fail_at(p, at, "expected a mesh (%s)", why);
    return NULL;
}

void parse_header(Parse *p) {
    p->def.mesh = read_mesh(p);
    p->def.local = parse_take(p, "local");
    p->def.laid = parse_take(p, "laid") || (p->def.local && p->def.mesh && !parse_take(p, "bare"));
    if (p->def.mesh || p->def.local || p->def.laid) parse_end_of_line(p);
}

/* ---- axes ---- */
static AxisRef read_axis(Parse *p, const Mesh *m) {
    parse_blanks(p);
    const char *at = p->at, *name = parse_name(p, "the name of a mesh axis");
    int axis = name && m ? mesh_axis(m, name) : -1;
    if (axis < 0) {
        parse_fail_at(p, at,
                      m ? "expected an axis of the mesh" : "expected a mesh before its axes");
        return (AxisRef){0};
    }
    AxisRef r = axes_whole(m, axis);
    if (p->at[0] != ':' || !parse_take(p, ":(")) return r;
    r.pre = (uint16_t)parse_int(p, 1, m->size[axis], "what comes before a part of an axis");
    parse_want(p, ")");
    r.size = (uint16_t)parse_int(p, 1, m->size[axis] / r.pre, "the size of a part of an axis");
    if (m->size[axis] % (r.pre * r.size)) parse_fail_at(p, at, "expected a part of an axis");
    return r;
}

AxisList parse_axes(Parse *p, const Mesh *m) {
    AxisList list = {0};
    if (!parse_take(p, "(")) {
        list.at[list.n++] = read_axis(p, m);
        return list;
    }
    while (!p->err && !parse_take(p, ")")) {
        if (list.n) parse_want(p, ",");
        if (list.n == MAX_AXES) parse_fail(p, "expected at most %d axes", MAX_AXES);
        if (!p->err) list.at[list.n++] = read_axis(p, m);
    }
    return list;
}

uint32_t parse_mask(Parse *p, const Mesh *m) {
    AxisList list = parse_axes(p, m);
    return p->err ? 0 : axes_mask(&list);
}

/* ---- layouts ---- */
static void read_dim(Parse *p, const Mesh *m, LayoutDim *d) {
    d->axes = parse_axes(p, m);
    d->open = parse_take(p, "?");
    if (parse_take(p, "<")) {
        d->priority = (uint8_t)parse_int(p, 0, UINT8_MAX, "a priority");
        parse_want(p, ">");
    }
    if (parse_take(p, "!")) d->refused = (uint8_t)parse_mask(p, m);
}

/* One group of axes, if it is next: "V:data". */
static bool read_mask(Parse *p, Layout *l) {
    struct {
        const char *word;
        uint8_t *mask;
    } const masks[] = {{"V", &l->vary},
                       {"R", &l->reduced},
                       {"rep", &l->replicated},
                       {"M", &l->manual},
                       {"F", &l->flipped},
                       {full_unreduced_words[0], &l->unreduced},
                       {full_unreduced_words[1], &l->unreduced},
                       {full_unreduced_words[2], &l->unreduced}};
    for (unsigned i = 0; i < sizeof masks / sizeof masks[0]; i++) {
        if (!parse_take(p, masks[i].word)) continue;
        parse_want(p, ":");
        *masks[i].mask = (uint8_t)parse_mask(p, l->mesh);
        if (masks[i].mask == &l->unreduced) l->unreduced_kind = (uint8_t)(i - 5);
        return true;
    }
    return false;
}

const Layout *parse_layout(Parse *p) {
    Layout l;
    if (parse_take(p, "nil")) return NULL;
    layout_init(&l, parse_take(p, "on") ? read_mesh(p) : p->def.mesh, 0);
    if (!p->err && !l.mesh) parse_fail(p, "expected a mesh before a layout");
    for (parse_want(p, "["); !p->err && !parse_take(p, "]"); l.rank++) {
        if (l.rank) parse_want(p, ",");
        if (l.rank == MAX_RANK) parse_fail(p, "expected at most %d dims", MAX_RANK);
        if (!p->err) read_dim(p, l.mesh, &l.dim[l.rank]);
    }
    for (bool more = *p->at == '{' && parse_take(p, "{");
         /* a region has a blank before it */ !p->err && more;) {
        if (!read_mask(p, &l)) parse_fail(p, "expected V, U, U_max, U_min, R, rep, M or F");
        more = parse_take(p, ",");
        if (!more) parse_want(p, "}");
    }
    const Layout *out = p->err ? NULL : layout_of(p->cx, &l);
    if (!out) parse_no_memory(p);
    return out;
}

/* ---- types ---- */
DType parse_dtype(Parse *p) {
    parse_blanks(p);
    const char *at = p->at, *name = parse_word(p, "a dtype");
    int d = name ? dtype_of(name) : -1;
    if (d < 0) parse_fail_at(p, at, "expected a dtype");
    return d < 0 ? DT_F32 : (DType)d;
}

static void read_type_words(Parse *p, Type *t, Layout *l, bool *shown, bool *laid) {
    bool more = *p->at == '{' && parse_take(p, "{"); /* a region has a blank before it */
    while (!p->err && more) {
        if (parse_take(p, "weak"))
            t->weak = true;
        else if (parse_take(p, "local"))
            t->local = true;
        else if (parse_take(p, "global"))
            t->local = false;
        else if (parse_take(p, "bare"))
            *laid = false;
        else if (parse_take(p, "laid"))
            *laid = true;
        else if (l->mesh && read_mask(p, l))
            *shown = true;
        else
            parse_fail(p, "expected V, U, U_max, U_min, R, rep, M, F, weak, local, global, bare or "
                          "laid");
        more = parse_take(p, ",");
        if (!more) parse_want(p, "}");
    }
}

const Type *parse_type(Parse *p) {
    Type t = {.dtype = parse_dtype(p), .local = p->def.local};
    Layout l;
    bool shown = false, laid = p->def.laid;
    layout_init(&l, p->def.mesh, 0);
    parse_want(p, "[");
    while (!p->err && !parse_take(p, "]")) {
        if (l.rank) parse_want(p, ",");
        if (l.rank == MAX_RANK) parse_fail(p, "expected at most %d dims", MAX_RANK);
        if (p->err) break;
        dims_push(&t.dims, parse_int(p, 0, DIMS_MOST, "a size"));
        if (parse_take(p, "@")) {
            read_dim(p, p->def.mesh, &l.dim[l.rank]);
            shown = true;
        }
        l.rank++;
    }
    if (!p->err && dims_count(&t.dims) < 0) parse_fail(p, "expected at most 2^56 elements");
    read_type_words(p, &t, &l, &shown, &laid);
    if (!p->err && (shown || laid)) {
        if (!l.mesh)
            parse_fail(p, "expected a mesh before a layout");
        else if (!(t.layout = layout_of(p->cx, &l)))
            parse_no_memory(p);
    }
    const Type *out = p->err ? NULL : type_of(p->cx, &t);
    if (!out) parse_no_memory(p);
    return out;
}
