/* plan_give.c - donated parameters that no step has taken over give their memory to results.
 *
 * A parameter, in order, gives it to the first result of its size that nobody has given any and
 * that begins late enough. Buffers are numbered in the order of their first step, so of a size this
 * is the next free one behind a place that is found by bisection. */
#include "pass/plan/plan_build.h"

#include <stdlib.h>

/* A result's buffer that may be given memory. */
typedef struct Taker {
    int64_t bytes;
    uint32_t vary;
    int32_t first, buffer;
} Taker;

static int compare(const Taker *x, const Taker *y) {
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    if (x->vary != y->vary) return x->vary < y->vary ? -1 : 1;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return (x->buffer > y->buffer) - (x->buffer < y->buffer);
}

static int compare_takers(const void *a, const void *b) {
    return compare(a, b);
}

/* The takers in order; NULL when out of memory. */
static Taker *sorted_takers(const PlanBuild *p, int32_t *count) {
    Taker *all = ARENA_ARRAY(p->arena, Taker, p->buffer.n + 1);
    int32_t n = 0;
    for (int32_t b = 0; all && b < p->buffer.n; b++) {
        const BuildBuffer *r = &p->buffer.at[b];
        if (r->kind == BUFFER_RESULT) all[n++] = (Taker){r->bytes, r->vary, r->first, b};
    }
    if (all) qsort(all, (size_t)n, sizeof *all, compare_takers);
    *count = n;
    return all;
}

/* The first taker that does not come before `like`. */
static int32_t lower_bound(const Taker *all, int32_t n, const Taker *like) {
    int32_t low = 0, high = n;
    while (low < high) {
        int32_t mid = low + (high - low) / 2;
        if (compare(&all[mid], like) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* The first free taker from i on; next[i] is i where it is free. */
static int32_t next_free(int32_t *next, int32_t i) {
    while (next[i] != i) i = next[i] = next[next[i]];
    return i;
}

void plan_give_donated(PlanBuild *p) {
    int32_t n, *next = ARENA_ARRAY(p->arena, int32_t, p->buffer.n + 1);
    const Taker *all = sorted_takers(p, &n);
    if (!all || !next) {
        plan_build_no_memory(p);
        return;
    }
    for (int32_t i = 0; i <= n; i++) next[i] = i;
    for (int32_t i = 0; i < p->nparam; i++) {
        BuildBuffer *mine = &p->buffer.at[p->value[p->param[i]].buffer];
        if (mine->last == INT32_MAX || !plan_may_write(p, i, true)) continue;
        bool asked = plan_may_write(p, i, false);
        int32_t after = asked || mine->last > p->fault_step ? mine->last : p->fault_step;
        int32_t k = lower_bound(all, n, &(Taker){mine->bytes, mine->vary, after + 1, 0});
        k = next_free(next, k);
        if (k == n || all[k].bytes != mine->bytes || all[k].vary != mine->vary) continue;
        p->buffer.at[all[k].buffer].take = i;
        mine->given = true;
        next[k] = k + 1;
    }
}
