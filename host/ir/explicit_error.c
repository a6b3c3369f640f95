/* explicit_error.c - where an op in explicit mode has more than one answer, or none: the error
 * names the tensors, dims and axes, and lists what the user may choose, each with the bytes that
 * one device sends for it and the argument to paste. */
#include "ir/explicit_error.h"

#include <stdio.h>
#include <string.h>

enum { MOST = 3 }; /* choices that are listed */

typedef struct Choice {
    Layout layout;
    double bytes;
    const char *how;
} Choice;

static const char *operand_name(const Infer *f, int t, char buf[32]) {
    const char *name = f->a->def->operands;
    for (; t > 0 && *name; t--) {
        name += strcspn(name, ",");
        name += *name == ',';
    }
    size_t n = strcspn(name, ",");
    if (n == 0 || n > 31) return strcpy(buf, "operand");
    memcpy(buf, name, n);
    buf[n] = '\0';
    return buf;
}

static void put_operand(const Infer *f, int t, Str *s) {
    char buf[32];
    str_put(s, operand_name(f, t, buf));
}

static void put_axes(const Infer *f, const AxisList *list, Str *s) {
    if (list->n == 1) str_put(s, "'");
    axes_print(list, f->b->g->mesh, s);
    if (list->n == 1) str_put(s, "'");
}

static void put_layout(const Infer *f, const Layout *l, Str *s) {
    const Spec *spec = layout_spec(f->a->cx, l, NULL);
    if (spec) spec_print(spec, s);
}

/* Bytes that a device receives where a tensor goes from one layout to another: of what both have in
 * common, all but its own part. */
static double bytes_of_move(const Type *t, const Layout *from, const Layout *to) {
    double local = (double)type_bytes(t), lost = 1;
    bool moves = false;
    for (int d = 0; d < from->rank; d++) {
        const AxisList *have = &from->dim[d].axes, *want = &to->dim[d].axes;
        if (axes_is_prefix(have, want)) {
            local /= axes_product(have);
            continue;
        }
        int common = 0;
        while (common < have->n && common < want->n &&
               axes_overlap(have->at[common], want->at[common]))
            common++;
        moves = true;
        for (int i = 0; i < have->n; i++) {
            if (i < common)
                local /= have->at[i].size;
            else
                lost *= have->at[i].size;
        }
    }
    return moves ? local * (1 - 1 / lost) : 0;
}

/* What operands t that were not split as the lists say would cost to bring there. */
static double bytes_of_operands(const Infer *f) {
    double bytes = 0;
    for (int t = 0; t < f->a->nin; t++) {
        Layout want;
        AxisList mine[MAX_FACTORS];
        int rank = f->a->in[t]->dims.rank;
        for (int k = 0; k < f->r->nfactor; k++)
            mine[k] = factor_in(&f->r->tensor[t], rank, k) ? f->list[k] : (AxisList){0};
        if (!rule_unproject(f->r, t, rank, f->b->g->mesh, mine, &want)) continue;
        bytes += bytes_of_move(f->a->in[t], &f->view[t], &want);
    }
    return bytes;
}

/* The result under the lists of `f`, as a choice; false if it is one already, or cannot be. */
static bool add_choice(const Infer *f, int result, Choice *c, int *n, const char *how) {
    Infer lenient = *f;
    Layout l;
    lenient.strict = false;
    if (*n == MOST || explicit_result(&lenient, result, &l)) return false;
    l.unreduced = 0;
    for (int i = 0; i < *n; i++)
        if (layout_same_shards(&c[i].layout, &l)) return false;
    AxisList list[MAX_FACTORS]; /* without what the result cannot have */
    memcpy(list, f->list, sizeof *list * (size_t)f->r->nfactor);
    for (int k = 0; k < f->r->nfactor; k++)
        if (factor_in(&f->r->tensor[f->a->nin + result], l.rank, k) &&
            axes_mask(&list[k]) & ~layout_used(&l))
            list[k].n = 0;
    lenient.list = list;
    c[(*n)++] = (Choice){l, bytes_of_operands(&lenient), how};
    return true;
}

static void put_choices(const Infer *f, const Choice *c, int n, Str *s) {
    char buf[BYTES_TEXT];
    for (int i = 0; i < n; i++) {
        str_put(s, i ? ", or " : "; choose ");
        str_put(s, "out_sharding=");
        put_layout(f, &c[i].layout, s);
        if (c[i].bytes > 0)
            str_fmt(s, " (%s%s%s per device)", c[i].how, *c[i].how ? ", " : "",
                    str_bytes(c[i].bytes, buf));
        else
            str_fmt(s, " (%s%snothing is sent)", c[i].how, *c[i].how ? ", " : "");
    }
    str_put(s, n ? ", or reshard an operand first" : "; reshard an operand first");
}

/* "op: text (x float32[8@X], w ...)" */
static Err finish(const Infer *f, ErrCode code, Str *s) {
    char buf[32];
    for (int t = 0; t < f->a->nin && t < 6; t++) {
        str_fmt(s, "%s%s ", t ? ", " : " (", operand_name(f, t, buf));
        type_print(f->a->in[t], s);
    }
    if (f->a->nin) str_put(s, f->a->nin > 6 ? ", ...)" : ")");
    Err e = s->failed ? err_nomem(f->a->cx, "a message")
                      : err_set(f->a->cx, code, "%s: %s", f->a->def->name, str_of(s));
    str_free(s);
    return e;
}

static Str begin(const Infer *f) {
    Str s;
    str_init(&s, &f->a->cx->alloc);
    return s;
}

Err explicit_error_conflict(const Infer *f, int factor, int t, int u) {
    Str s = begin(f);
    char name[2][32], how[2][64];
    int which[2] = {t, u};
    Choice c[MOST];
    int n = 0;
    for (int k = 0; k < 2; k++) {
        int d = factor_dim(&f->r->tensor[which[k]], f->view[which[k]].rank, factor);
        str_fmt(&s, "%sdim %d of %s %son ", k ? ", " : "", d + 1,
                operand_name(f, which[k], name[k]), k ? "" : "is sharded ");
        put_axes(f, &f->proj[which[k]].factor[factor], &s);
    }
    /* Lists of the operands behind u are not merged yet: they count as they are. */
    for (int k = 0; k < 2; k++) {
        Infer try = *f;
        AxisList list[MAX_FACTORS];
        memcpy(list, f->list, sizeof *list * (size_t)f->r->nfactor);
        for (int j = 0; j < f->r->nfactor; j++)
            if (axes_is_prefix(&list[j], &f->proj[u].factor[j]) && f->r->kind[j] == FACTOR_PASS) {
                list[j] = f->proj[u].factor[j];
                if (list[j].n && f->source[j] < 0) f->source[j] = u;
            }
        list[factor] = f->proj[which[k]].factor[factor];
        try.list = list;
        try.keep = factor;
        snprintf(how[k], sizeof how[k], "%s moves", name[!k]);
        for (int i = 0; i < f->nout; i++)
            if (factor_in(&f->r->tensor[f->a->nin + i], f->out[i]->dims.rank, factor) &&
                add_choice(&try, i, c, &n, how[k]))
                break;
    }
    put_choices(f, c, n, &s);
    return finish(f, E_SPEC, &s);
}

Err explicit_error_contracted(const Infer *f, int factor) {
    Str s = begin(f);
    Choice c[MOST];
    int n = 0;
    int holders = 0;
    AxisList axes = f->list[factor];
    for (int t = 0; t < f->a->nin; t++) holders += f->proj[t].factor[factor].n > 0;
    str_put(&s, holders > 1 ? "contracting dims " : "contracting dim ");
    for (int t = 0, left = holders; t < f->a->nin; t++) {
        if (!f->proj[t].factor[factor].n) continue;
        str_fmt(&s, "%s%d of ", left-- < holders ? " and " : "",
                factor_dim(&f->r->tensor[t], f->view[t].rank, factor) + 1);
        put_operand(f, t, &s);
    }
    str_put(&s, holders > 1 ? " are both sharded on " : " is sharded on ");
    put_axes(f, &axes, &s);
    if (add_choice(f, 0, c, &n, f->r->kind[factor] == FACTOR_SUM ? "all_reduce" : "reduced")) {
        Layout *l = &c[0].layout;
        Dims local = layout_local(l, &f->out[0]->dims);
        double size = (double)dims_count(&local) * dtype_size(f->out[0]->dtype);
        double parts = axes_product(&axes), share = size * (parts - 1) / parts;
        bool free = !(layout_used(l) & axes_mask(&axes));
        c[0].bytes += 2 * share;
        for (int d = 0; free && n < MOST - 1 && d < l->rank; d++) {
            if (local.at[d] % (int64_t)parts) continue;
            c[n] = (Choice){*l, share, "reduce_scatter"};
            for (int i = 0; i < axes.n; i++) axes_push(&c[n].layout.dim[d].axes, axes.at[i]);
            n++;
        }
        if (free && f->r->kind[factor] == FACTOR_SUM) {
            c[n] = (Choice){*l, 0, "the sum stays to be made"};
            c[n++].layout.unreduced = (uint8_t)axes_mask(&axes);
        }
    }
    put_choices(f, c, n, &s);
    return finish(f, E_SPEC, &s);
}

/* "reshard it first: ml.reshard(x, P(...)) (all_gather, 48 B per device)" */
static void put_reshard(const Infer *f, int t, const Layout *to, const char *how, double bytes,
                        Str *s) {
    char buf[BYTES_TEXT];
    str_put(s, "reshard it first: ml.reshard(");
    put_operand(f, t, s);
    str_put(s, ", ");
    put_layout(f, to, s);
    str_fmt(s, ") (%s, %s per device)", how, str_bytes(bytes, buf));
}

Err explicit_error_whole(const Infer *f, int t, int dim) {
    Str s = begin(f);
    Layout whole = f->view[t];
    str_fmt(&s, "dim %d of ", dim + 1);
    put_operand(f, t, &s);
    str_put(&s, " is sharded on ");
    put_axes(f, &f->view[t].dim[dim].axes, &s);
    whole.dim[dim].axes.n = 0;
    str_put(&s, ", but the op needs it whole; ");
    put_reshard(f, t, &whole, "all_gather", bytes_of_move(f->a->in[t], &f->view[t], &whole), &s);
    str_put(&s, ", or say how the result lies with out_sharding");
    return finish(f, E_SPEC, &s);
}

Err explicit_error_illegal(const Infer *f, int result, int factor, int other) {
    Str s = begin(f);
    Choice c[MOST];
    int n = 0, rank = f->out[result]->dims.rank, which[2] = {factor, other};
    str_put(&s, "illegally sharded result: ");
    for (int k = 0; k < 2; k++) {
        int d = factor_dim(&f->r->tensor[f->a->nin + result], rank, which[k]);
        put_axes(f, &f->list[which[k]], &s);
        str_fmt(&s, "%s dim %d%s", k ? "" : " would split", d + 1,
                k ? ", but an axis splits one dim of a tensor" : " and ");
    }
    for (int k = 0; k < 2; k++) {
        Infer try = *f;
        AxisList list[MAX_FACTORS];
        memcpy(list, f->list, sizeof *list * (size_t)f->r->nfactor);
        list[which[!k]].n = 0;
        try.list = list;
        add_choice(&try, result, c, &n, "");
    }
    put_choices(f, c, n, &s);
    return finish(f, E_SPEC, &s);
}

Err explicit_error_unsaid(const Infer *f, int result, int dim) {
    Str s = begin(f);
    Choice c[MOST];
    int n = 0;
    str_put(&s, "this ");
    str_put(&s, f->a->def->name);
    str_fmt(&s, " is not supported on a sharded tensor: no P says how dim %d of the result",
            dim + 1);
    str_fmt(&s, ", of size %lld, would lie", (long long)f->out[result]->dims.at[dim]);
    add_choice(f, result, c, &n, "");
    put_choices(f, c, n, &s);
    return finish(f, E_SPEC, &s);
}

Err explicit_error_unreduced(const Infer *f, int t, uint32_t axes) {
    Str s = begin(f);
    Layout whole = f->view[t];
    bool joint = f->a->def->flags & OPF_JOINT && t < 32 && f->a->def->linear >> t & 1;
    Dims local = layout_local(&whole, &f->a->in[t]->dims);
    double size = (double)dims_count(&local) * dtype_size(f->a->in[t]->dtype);
    double parts = mesh_product(whole.mesh, axes);
    put_operand(f, t, &s);
    str_put(&s, " is unreduced over '");
    mesh_print_axes(whole.mesh, axes, &s);
    str_put(&s, joint ? "', and another operand is not"
                      : "', and the op is not linear in it alone: it would not act on the sum");
    whole.unreduced &= (uint8_t)~axes;
    str_put(&s, "; ");
    put_reshard(f, t, &whole, "all_reduce", 2 * size * (parts - 1) / parts, &s);
    if (joint) str_put(&s, ", or make the other one unreduced, too");
    return finish(f, E_SPEC, &s);
}
