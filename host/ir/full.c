#include "ir/full.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

const char *const full_unreduced_words[] = {"U", "U_max", "U_min", NULL};
const char *const full_origin_words[] = {"argument", "param", "constraint", "op", NULL};
const char *const full_save_words[] = {"nothing",         "everything", "dots",
                                       "dots_no_batch",   "names",      "names_except",
                                       "anything_except", NULL};
const char *const full_axis_words[] = {"auto", "explicit", "manual", NULL};

/* "a \"b\""; nil */
static void put_string(const char *text, Str *s) {
    if (!text) {
        str_put(s, "nil");
        return;
    }
    str_put(s, "\"");
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            str_fmt(s, "\\%c", c);
        else if (c < ' ')
            str_fmt(s, "\\x%02x", c);
        else
            str_put_n(s, text, 1);
    }
    str_put(s, "\"");
}

/* As str_double, NaNs with their bits. */
static void put_double(double x, Str *s) {
    uint64_t bits, plain;
    memcpy(&bits, &x, sizeof bits);
    memcpy(&plain, &(double){(double)NAN}, sizeof plain);
    if (isnan(x) && bits != plain)
        str_fmt(s, "nan(0x%llx)", (unsigned long long)bits);
    else
        str_double(s, x);
}

static void put_name(const char *name, Str *s) {
    bool plain = isalpha((unsigned char)name[0]) || name[0] == '_';
    for (const char *c = name; *c && plain; c++) plain = isalnum((unsigned char)*c) || *c == '_';
    if (plain)
        str_put(s, name);
    else
        put_string(name, s);
}

void full_axes(const AxisList *list, const Mesh *m, Str *s) {
    if (list->n != 1) str_put(s, "(");
    for (int i = 0; i < list->n; i++) {
        AxisRef r = list->at[i];
        if (i) str_put(s, ",");
        put_name(m->name[r.axis], s);
        if (r.pre != 1 || r.size != m->size[r.axis]) str_fmt(s, ":(%d)%d", r.pre, r.size);
    }
    if (list->n != 1) str_put(s, ")");
}

void full_mask(const Mesh *m, uint32_t mask, Str *s) {
    AxisList list = {0};
    for (int i = 0; m && i < m->naxes; i++)
        if (mask >> i & 1) list.at[list.n++] = axes_whole(m, i);
    full_axes(&list, m, s);
}

static void put_devices(const Mesh *m, Str *s) {
    bool run = m->ndevices > 1;
    for (int32_t i = 1; i < m->ndevices; i++) run = run && m->device[i] == m->device[i - 1] + 1;
    str_fmt(s, " devices %d", (int)m->device[0]);
    if (run) str_fmt(s, "..%d", (int)m->device[m->ndevices - 1]);
    for (int32_t i = 1; i < m->ndevices && !run; i++) str_fmt(s, ",%d", (int)m->device[i]);
}

void full_mesh(const Mesh *m, Str *s) {
    str_put(s, m->abstract ? "AbstractMesh(" : "Mesh(");
    for (int i = 0; i < m->naxes; i++) {
        if (i) str_put(s, ", ");
        put_name(m->name[i], s);
        str_fmt(s, "=%d", (int)m->size[i]);
        if (m->type[i] != AXIS_AUTO) str_fmt(s, " %s", full_axis_words[m->type[i]]);
    }
    str_put(s, ")");
    if (!m->abstract) put_devices(m, s);
}

/* ---- layouts and types: what stands behind the dims is a list in braces ---- */
static void put_item(bool *first, const char *word, Str *s) {
    str_fmt(s, "%s%s", *first ? "{" : ", ", word);
    *first = false;
}

static void put_mask(const Mesh *m, const char *word, uint32_t mask, bool *first, Str *s) {
    if (!mask) return;
    put_item(first, word, s);
    str_put(s, ":");
    full_mask(m, mask, s);
}

static void put_dim(const LayoutDim *d, const Mesh *m, Str *s) {
    full_axes(&d->axes, m, s);
    if (d->open) str_put(s, "?");
    if (d->priority) str_fmt(s, "<%d>", d->priority);
    if (d->refused) {
        str_put(s, "!");
        full_mask(m, d->refused, s);
    }
}

static bool is_plain(const LayoutDim *d) {
    return !d->axes.n && !d->open && !d->priority && !d->refused;
}

static void put_masks(const Layout *l, bool *first, Str *s) {
    const Mesh *m = l->mesh;
    put_mask(m, "V", l->vary, first, s);
    put_mask(m, full_unreduced_words[l->unreduced_kind], l->unreduced, first, s);
    if (l->unreduced_kind && !l->unreduced) {
        put_item(first, full_unreduced_words[l->unreduced_kind], s);
        str_put(s, ":()");
    }
    put_mask(m, "R", l->reduced, first, s);
    put_mask(m, "rep", l->replicated, first, s);
    put_mask(m, "M", l->manual, first, s);
    put_mask(m, "F", l->flipped, first, s);
}

/* "[data?,()]{U:model}"; nil; "on Mesh(...) [...]" */
static void put_layout(const Layout *l, const Mesh *mesh, Str *s) {
    if (!l) {
        str_put(s, "nil");
        return;
    }
    if (l->mesh != mesh) {
        str_put(s, "on ");
        full_mesh(l->mesh, s);
        str_put(s, " ");
    }
    str_put(s, "[");
    for (int d = 0; d < l->rank; d++) {
        if (d) str_put(s, ",");
        put_dim(&l->dim[d], l->mesh, s);
    }
    str_put(s, "]");
    bool first = true;
    put_masks(l, &first, s);
    if (!first) str_put(s, "}");
}

void full_type(const Type *t, const FullDefault *def, Str *s) {
    const Layout *l = t->layout;
    bool shown = false, first = true;
    str_fmt(s, "%s[", dtype_name(t->dtype));
    for (int d = 0; d < t->dims.rank; d++) {
        str_fmt(s, "%s%lld", d ? "," : "", (long long)t->dims.at[d]);
        if (!l || is_plain(&l->dim[d])) continue;
        str_put(s, "@");
        put_dim(&l->dim[d], l->mesh, s);
        shown = true;
    }
    str_put(s, "]");
    if (l) put_masks(l, &first, s);
    shown = shown || !first;
    if (t->weak) put_item(&first, "weak", s);
    if (t->local != def->local) put_item(&first, t->local ? "local" : "global", s);
    if (!l && def->laid) put_item(&first, "bare", s);
    if (l && !shown && !def->laid) put_item(&first, "laid", s);
    if (!first) str_put(s, "}");
}

/* ---- attributes ---- */
static bool same_bits(const Scalar *a, const Scalar *b) {
    return a->i == b->i && memcmp(&a->f, &b->f, sizeof a->f) == 0;
}

/* The number of the dtype, and behind a bar the other of the two where it does not follow. */
static void put_scalar(const Scalar *x, DType dtype, Str *s) {
    Scalar from_f = attr_scalar_float(x->f), from_i = attr_scalar_int(x->i);
    if (dtype_is_float(dtype)) {
        put_double(x->f, s);
        if (!same_bits(x, &from_f)) str_fmt(s, "|%lld", (long long)x->i);
        return;
    }
    if (dtype == DT_BOOL && (x->i == 0 || x->i == 1))
        str_put(s, x->i ? "true" : "false");
    else
        str_fmt(s, "%lld", (long long)x->i);
    if (same_bits(x, &from_i)) return;
    str_put(s, "|");
    put_double(x->f, s);
}

bool full_value(AttrKind kind, const void *x, DType dtype, const Mesh *m, Str *s) {
    switch (kind) {
    case ATTR_FLOAT:
    case ATTR_NUMBER: put_double(*(const double *)x, s); return true;
    case ATTR_SCALAR: put_scalar(x, dtype, s); return true;
    case ATTR_AXES: full_axes(x, m, s); return true;
    case ATTR_MASK: full_mask(m, *(const uint32_t *)x, s); return true;
    case ATTR_LAYOUT: put_layout(*(const Layout *const *)x, m, s); return true;
    case ATTR_NAME: put_string(*(const char *const *)x, s); return true;
    default: return false;
    }
}

/* ---- where and why ---- */
void full_loc(const Loc *loc, Str *s) {
    if (!loc) {
        str_put(s, "nil");
        return;
    }
    if (loc->chunk)
        put_string(loc->chunk, s);
    else
        str_put(s, "?");
    if (loc->line) str_fmt(s, ":%d", (int)loc->line);
    if (loc->lib_chunk || loc->lib_line) {
        str_put(s, " lib ");
        put_string(loc->lib_chunk, s);
        str_fmt(s, ":%d", (int)loc->lib_line);
    }
    if (loc->scope) {
        str_put(s, " in ");
        put_string(loc->scope, s);
    }
}

static void put_origin(const Origin *o, const Mesh *m, Str *s) {
    str_fmt(s, "%s ", full_origin_words[o->kind]);
    if (m && o->axis < m->naxes)
        put_name(m->name[o->axis], s);
    else
        str_fmt(s, "%d", o->axis);
    if (o->index) str_fmt(s, " %d", (int)o->index);
    if (o->name) {
        str_put(s, " ");
        put_string(o->name, s);
    }
    if (o->loc) {
        str_put(s, " at ");
        full_loc(o->loc, s);
    }
}

void full_reason(const Reason *r, const Mesh *m, Str *s) {
    str_put(s, "{");
    put_string(r->text, s);
    if (r->tensor) {
        str_put(s, " of ");
        put_string(r->tensor, s);
    }
    if (r->loc) {
        str_put(s, " at ");
        full_loc(r->loc, s);
    }
    for (int i = 0; i < r->norigin; i++) {
        str_put(s, i ? ", " : " by ");
        put_origin(&r->origin[i], m, s);
    }
    str_put(s, "}");
}

/* ---- spans ---- */
static void put_values(const char *word, const int32_t *v, int32_t n, Str *s) {
    str_fmt(s, " %s", word);
    for (int32_t i = 0; i < n; i++) str_fmt(s, " %%%d", (int)v[i]);
}

void full_span(const Span *span, Str *s) {
    str_fmt(s, "span #%d #%d", (int)span->first, (int)span->end);
    for (const RematPolicy *p = span->policy; p; p = p->also) {
        str_fmt(s, " save %s", full_save_words[p->save]);
        for (int32_t i = 0; i < p->nname; i++) {
            str_put(s, " ");
            put_string(p->name[i], s);
        }
    }
    if (span->rule) {
        const CustomVjp *r = span->rule;
        str_fmt(s, " rule #%d #%d", (int)r->bwd, (int)r->bwd_end);
        put_values("x", r->x, r->nx, s);
        put_values("dx", r->dx, r->nx, s);
        put_values("y", r->y, r->ny, s);
        put_values("ct", r->ct, r->ny, s);
        if (r->t) put_values("forward t", r->t, r->nx, s);
        if (r->t) put_values("dy", r->dy, r->ny, s);
    }
    str_put(s, "\n");
}
