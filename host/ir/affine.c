#include "ir/affine.h"

#include <string.h>

/* ---- sums ---- */

/* Far from where anything overflows. */
static bool is_small(int64_t x) {
    return x > -((int64_t)1 << 48) && x < (int64_t)1 << 48;
}

static bool add_times(int64_t *x, int64_t y, int64_t by) {
    int64_t product;
    if (__builtin_mul_overflow(y, by, &product) || !is_small(product)) return false;
    *x += product;
    return is_small(*x);
}

static bool add_loop(AffineSum *s, const AffineLoop *l, int64_t by) {
    int32_t i = 0;
    while (i < s->nloop && s->loop[i].region < l->region) i++;
    if (i == s->nloop || s->loop[i].region != l->region) {
        if (s->nloop == AFFINE_LOOPS) return false;
        memmove(&s->loop[i + 1], &s->loop[i], sizeof *l * (size_t)(s->nloop++ - i));
        s->loop[i] = (AffineLoop){l->region, 0, l->trips};
    }
    if (!add_times(&s->loop[i].by, l->by, by)) return false;
    if (s->loop[i].by == 0)
        memmove(&s->loop[i], &s->loop[i + 1], sizeof *l * (size_t)(--s->nloop - i));
    return true;
}

static bool add_sum(AffineSum *s, const AffineSum *y, int64_t by) {
    bool ok = true;
    for (int i = 0; i < MAX_AXES; i++) ok = ok && add_times(&s->mesh[i], y->mesh[i], by);
    for (int i = 0; i < MAX_RANK; i++) ok = ok && add_times(&s->dim[i], y->dim[i], by);
    for (int32_t i = 0; i < y->nloop; i++) ok = ok && add_loop(s, &y->loop[i], by);
    return ok;
}

static bool is_zero(const AffineSum *s) {
    for (int i = 0; i < MAX_AXES; i++)
        if (s->mesh[i]) return false;
    for (int i = 0; i < MAX_RANK; i++)
        if (s->dim[i]) return false;
    return s->nloop == 0;
}

/* ---- step functions ---- */

/* A number is a function without steps, of any sum. */
static bool as_steps(const Affine *x, Affine *out) {
    *out = *x;
    if (x->stepped) return true;
    if (!is_zero(&x->sum)) return false;
    out->stepped = true;
    out->value[0] = x->add;
    return true;
}

static int64_t common(int64_t x, int64_t y) {
    if (y < 0) y = -y;
    while (y) {
        int64_t rest = x % y;
        x = y;
        y = rest;
    }
    return x;
}

static int64_t divide_up(int64_t x, int64_t by) {
    return x > 0 ? (x - 1) / by + 1 : -(-x / by);
}

/* The same function of the sum without what all its numbers are multiples of. */
static void shorten(Affine *x) {
    AffineSum *s = &x->sum;
    int64_t by = 0;
    for (int i = 0; i < MAX_AXES; i++) by = common(by, s->mesh[i]);
    for (int i = 0; i < MAX_RANK; i++) by = common(by, s->dim[i]);
    for (int32_t i = 0; i < s->nloop; i++) by = common(by, s->loop[i].by);
    if (by < 2) return;
    for (int i = 0; i < MAX_AXES; i++) s->mesh[i] /= by;
    for (int i = 0; i < MAX_RANK; i++) s->dim[i] /= by;
    for (int32_t i = 0; i < s->nloop; i++) s->loop[i].by /= by;
    for (int32_t i = 0; i < x->ncut; i++) x->cut[i] = divide_up(x->cut[i], by);
}

/* The same function of minus its sum. */
static void turn(Affine *x) {
    Affine was = *x;
    memset(&x->sum, 0, sizeof x->sum);
    add_sum(&x->sum, &was.sum, -1);
    for (int32_t i = 0; i < x->ncut; i++) x->cut[i] = 1 - was.cut[x->ncut - 1 - i];
    for (int32_t i = 0; i <= x->ncut; i++) x->value[i] = was.value[x->ncut - i];
}

/* Are both functions of one sum? Turns y where its sum is minus that of x. */
static bool meet(Affine *x, Affine *y) {
    for (int way = 0; way < 2; way++) {
        AffineSum difference = x->sum;
        if (!add_sum(&difference, &y->sum, -1)) return false;
        if (is_zero(&difference)) return true;
        turn(y);
    }
    return false;
}

bool affine_zip(const Affine *a, const Affine *b, int64_t (*f)(int64_t, int64_t), Affine *out) {
    Affine x, y;
    if (!as_steps(a, &x) || !as_steps(b, &y)) return false;
    bool numbers = !a->stepped && !b->stepped;
    if (a->stepped && b->stepped && !meet(&x, &y)) return false;
    memset(out, 0, sizeof *out);
    out->sum = a->stepped ? x.sum : y.sum;
    out->stepped = !numbers;
    out->add = out->value[0] = f(x.value[0], y.value[0]);
    for (int32_t i = 0, k = 0; i < x.ncut || k < y.ncut;) {
        int64_t at = k == y.ncut || (i < x.ncut && x.cut[i] < y.cut[k]) ? x.cut[i] : y.cut[k];
        while (i < x.ncut && x.cut[i] == at) i++;
        while (k < y.ncut && y.cut[k] == at) k++;
        int64_t value = f(x.value[i], y.value[k]);
        if (value == out->value[out->ncut]) continue;
        if (out->ncut == AFFINE_CUTS) return false;
        out->cut[out->ncut++] = at;
        out->value[out->ncut] = value;
    }
    return true;
}

static int64_t sum_of(int64_t x, int64_t y) {
    return x + y;
}
static int64_t difference_of(int64_t x, int64_t y) {
    return x - y;
}
static int64_t product_of(int64_t x, int64_t y) {
    int64_t z;
    return __builtin_mul_overflow(x, y, &z) ? INT64_MAX : z; /* which no dtype of a value holds */
}
static int64_t order_of(int64_t x, int64_t y) {
    return x < y ? 0 : x == y ? 1 : 2;
}

void affine_constant(Affine *a, int64_t x) {
    memset(a, 0, sizeof *a);
    a->add = x;
}

bool affine_add(const Affine *x, const Affine *y, int64_t by, Affine *out) {
    if (x->stepped || y->stepped)
        return (by == 1 || by == -1) && affine_zip(x, y, by == 1 ? sum_of : difference_of, out);
    *out = *x;
    return add_sum(&out->sum, &y->sum, by) && add_times(&out->add, y->add, by);
}

bool affine_mul(const Affine *x, const Affine *y, Affine *out) {
    Affine nought;
    if (x->stepped || y->stepped) return affine_zip(x, y, product_of, out);
    if (!is_zero(&y->sum)) {
        const Affine *t = x;
        x = y;
        y = t;
    }
    affine_constant(&nought, 0);
    return is_zero(&y->sum) && affine_add(&nought, x, y->add, out);
}

bool affine_compare(const Affine *x, const Affine *y, bool less, bool equal, bool greater,
                    Affine *out) {
    const int64_t value[3] = {less, equal, greater};
    Affine d;
    if (x->stepped || y->stepped) {
        if (!affine_zip(x, y, order_of, &d)) return false;
        Affine nought;
        for (int32_t i = 0; i <= d.ncut; i++) d.value[i] = value[d.value[i]];
        affine_constant(&nought, 0);
        return affine_zip(&d, &nought, sum_of, out); /* without steps of nothing */
    }
    if (!affine_add(x, y, -1, &d)) return false;
    affine_constant(out, value[order_of(d.add, 0)]);
    if (is_zero(&d.sum)) return true;
    out->stepped = true;
    out->sum = d.sum;
    out->value[0] = value[0];
    for (int i = 0; i < 2; i++) {
        if (value[i + 1] == out->value[out->ncut]) continue;
        out->cut[out->ncut++] = i - d.add;
        out->value[out->ncut] = value[i + 1];
    }
    shorten(out);
    return true;
}

bool affine_add_place(Affine *a, const Mesh *m, const AxisList *list, int64_t unit) {
    for (int i = list->n - 1; i >= 0; i--) {
        AxisRef r = list->at[i];
        bool whole = m && r.pre == 1 && r.size == m->size[r.axis];
        if (!whole || a->stepped || !add_times(&a->sum.mesh[r.axis], 1, unit)) return false;
        unit *= r.size;
    }
    return true;
}

/* ---- values of a graph ---- */

static bool walk(AffineWalk *w, Val v, Affine *out);

static bool stuck(AffineWalk *w, Val v) {
    if (!w->stuck) w->stuck = v;
    return false;
}

static bool symbol(int32_t region, int64_t trips, Affine *out) {
    affine_constant(out, 0);
    return add_loop(&out->sum, &(AffineLoop){region, 1, trips}, 1);
}

/* Of a stack, the slice that the loop has come to. */
static bool slice(Affine *a, int32_t region, int64_t trips) {
    AffineLoop l = {region, a->sum.dim[0], trips};
    memmove(a->sum.dim, a->sum.dim + 1, sizeof *a->sum.dim * (MAX_RANK - 1));
    a->sum.dim[MAX_RANK - 1] = 0;
    return l.by == 0 || add_loop(&a->sum, &l, 1);
}

/* Of what a loop has in each turn, the stack. */
static bool stack(Affine *a, int32_t region) {
    AffineSum *s = &a->sum;
    int64_t by = 0;
    for (int32_t i = 0; i < s->nloop; i++)
        if (s->loop[i].region == region) by = s->loop[i].by;
    if (s->dim[MAX_RANK - 1]) return false;
    memmove(s->dim + 1, s->dim, sizeof *s->dim * (MAX_RANK - 1));
    s->dim[0] = by;
    return by == 0 || add_loop(s, &(AffineLoop){region, -by, 0}, 1);
}

/* A carry to which each turn adds the same number. */
static bool of_carry(AffineWalk *w, Val v, Val first, Val next, const ControlInfo *c, Affine *out) {
    Affine step;
    int32_t region = graph_def(w->g, v)->region;
    if (next == v) return walk(w, first, out);
    if (w->nself == AFFINE_LOOPS) return stuck(w, v);
    w->self[w->nself++] = v;
    bool ok = walk(w, next, &step);
    w->nself--;
    if (!ok || !walk(w, first, out)) return false;
    AffineSum own = step.sum;
    ok = !step.stepped && !out->stepped && add_loop(&own, &(AffineLoop){-v, -1, 0}, 1) &&
         is_zero(&own);
    AffineLoop l = {region, c->reverse ? -step.add : step.add, c->trips};
    if (ok && c->reverse) ok = add_times(&out->add, step.add, c->trips - 1);
    if (ok && step.add) ok = add_loop(&out->sum, &l, 1);
    return ok || stuck(w, v);
}

/* A parameter of a region, by the way on which it comes in. */
static bool of_param(AffineWalk *w, const Node *n, Val v, Affine *out) {
    const Graph *g = w->g;
    const Region *r = &g->region.at[n->region];
    for (int32_t i = 0; i < w->nself; i++)
        if (w->self[i] == v) return symbol(-v, 0, out);
    if (n->region == 0) return stuck(w, v);
    if (!r->owner) return w->open ? symbol(-v, 0, out) : stuck(w, v);
    const Node *owner = graph_node(g, r->owner);
    const OpDef *def = graph_opdef(g, owner);
    ControlInfo c;
    Flow f = {.param = -1};
    int32_t k = 0;
    while (k < r->param.n && r->param.at[k] != v) k++;
    for (int i = 0; def->flow && def->flow(owner, i, &f) && f.param != k;) i++;
    if (!def->control || f.param != k || f.in < 0) return stuck(w, v);
    def->control(owner->attr, &c);
    if (c.branch || (!f.carried && !f.stacked)) return walk(w, owner->in[f.in], out);
    if (c.trips < 0) return stuck(w, v);
    if (f.carried) return of_carry(w, v, owner->in[f.in], r->result.at[f.result], &c, out);
    return walk(w, owner->in[f.in], out) && (slice(out, n->region, c.trips) || stuck(w, v));
}

/* A result of a loop: the stack of what its turns made. */
static bool of_loop(AffineWalk *w, const Node *n, Val v, Affine *out) {
    const Graph *g = w->g;
    const OpDef *def = graph_opdef(g, n);
    Flow f = {.out = -1};
    for (int i = 0; def->flow && def->flow(n, i, &f) && n->out + f.out != v;) i++;
    if (n->out + f.out != v || !f.stacked) return stuck(w, v);
    return walk(w, g->region.at[n->body[0]].result.at[f.result], out) &&
           (stack(out, n->body[0]) || stuck(w, v));
}

static bool of_op(AffineWalk *w, const Node *n, Val v, Affine *out) {
    enum { FEW = 3 };
    const Graph *g = w->g;
    const OpDef *def = graph_opdef(g, n);
    const Type *in[FEW];
    Affine x[FEW];
    if (!def->affine || n->nin > FEW || n->nout != 1) return stuck(w, v);
    for (int i = 0; i < n->nin; i++)
        if (!walk(w, n->in[i], &x[i])) return false;
    graph_in_types(g, n, in);
    AffineArgs a = {g->mesh, n, x, in, graph_type(g, v)};
    return def->affine(&a, out) || stuck(w, v);
}

static void widen(int64_t by, int64_t count, int64_t *low, int64_t *high) {
    *(by < 0 ? low : high) += by * (count > 1 ? count - 1 : 0);
}

/* Is it, whatever the turn and the device, a number of its type? Else it wraps, and is no sum. */
static bool fits(const Graph *g, const Type *t, const Affine *a) {
    int64_t low = a->add, high = a->add;
    const AffineSum *s = &a->sum;
    if (a->stepped) low = high = a->value[0];
    for (int32_t i = 1; a->stepped && i <= a->ncut; i++) {
        if (a->value[i] < low) low = a->value[i];
        if (a->value[i] > high) high = a->value[i];
    }
    for (int i = 0; !a->stepped && i < MAX_AXES; i++)
        if (s->mesh[i]) widen(s->mesh[i], g->mesh->size[i], &low, &high);
    for (int d = 0; !a->stepped && d < t->dims.rank; d++)
        widen(s->dim[d], t->dims.at[d], &low, &high);
    for (int32_t i = 0; !a->stepped && i < s->nloop; i++)
        widen(s->loop[i].by, s->loop[i].trips, &low, &high);
    return (double)low >= dtype_lowest(t->dtype) && (double)high <= dtype_highest(t->dtype);
}

static bool walk(AffineWalk *w, Val v, Affine *out) {
    const Graph *g = w->g;
    const Node *n = graph_def(g, v);
    const OpDef *def = graph_opdef(g, n);
    const Type *t = graph_type(g, v);
    if (w->budget-- <= 0 || dtype_is_float(t->dtype)) return stuck(w, v);
    bool ok = def->flags & OPF_PARAM ? of_param(w, n, v, out)
              : n->nbody             ? of_loop(w, n, v, out)
                                     : of_op(w, n, v, out);
    if (!ok) return false;
    for (int d = 0; d < MAX_RANK; d++) /* one element has the index 0 */
        if (d >= t->dims.rank || t->dims.at[d] <= 1) out->sum.dim[d] = 0;
    return fits(g, t, out) || stuck(w, v);
}

bool affine_of(AffineWalk *w, Val v, Affine *out) {
    w->stuck = 0;
    w->nself = 0;
    return walk(w, v, out);
}
