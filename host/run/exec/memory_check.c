#include "run/exec/memory_check.h"

enum { LARGEST = 5 };

#define WAY_OUT "Split what it holds over more devices, or take a smaller batch. Its largest:"

typedef struct Need { /* bytes that a call takes from a GPU */
    size_t workspace, results, scratch;
} Need;

static Need need_of(const Exec *e, int32_t domain) {
    const Runtime *rt = e->rt;
    Need n = {0};
    if (e->workspace > rt->workspace[domain].bytes) n.workspace = e->workspace;
    if (e->scratch > rt->gpu.of[domain].scratch_bytes) n.scratch = e->scratch;
    for (int32_t i = 0; i < e->nbuffer; i++) {
        const BoundBuffer *b = &e->buffer[i];
        n.results += b->each * (size_t)(b->slot[domain + 1] - b->slot[domain]);
    }
    return n;
}

/* ---- what is large ---- */

/* In a domain. */
static double bytes_of(const Exec *e, int32_t domain, int32_t buffer) {
    const PlanBuffer *b = plan_buffer(e->plan, buffer);
    const int32_t *slot = exec_class_slots(e, b->vary);
    return (double)b->bytes * (slot[domain + 1] - slot[domain]);
}

/* The step that writes the buffer first, and which of its outputs; NULL: an argument. */
static const PlanStep *writer_of(const Plan *p, int32_t buffer, int32_t *value) {
    for (int32_t i = 0; i < p->steps.n; i++) {
        const PlanStep *s = plan_step(p, i);
        for (int32_t k = 0; k < s->out.n; k++) {
            *value = PLAN_LIST(p, int32_t, s->out)[k];
            if (plan_value(p, *value)->buffer == buffer) return s;
        }
    }
    return NULL;
}

static void print_buffer(const Exec *e, int32_t domain, int32_t buffer, Str *s) {
    const Plan *p = e->plan;
    int32_t value;
    char text[BYTES_TEXT];
    const PlanStep *step = writer_of(p, buffer, &value);
    if (!step) return;
    str_fmt(s, "\n  %9s  ", str_bytes(bytes_of(e, domain, buffer), text));
    plan_print_type(p, plan_value(p, value), s);
    str_fmt(s, "  %s", plan_str(p, step->op));
    if (step->locs.n) str_fmt(s, "  %s", plan_str(p, PLAN_LIST(p, int32_t, step->locs)[0]));
}

/* The largest of what the call makes, the largest first. */
static void print_largest(const Exec *e, int32_t domain, Str *s) {
    int32_t top[LARGEST], n = 0;
    for (int32_t i = 0; i < e->plan->buffers.n; i++) {
        if (plan_buffer(e->plan, i)->kind == BUFFER_PARAM) continue;
        int32_t at = n < LARGEST ? n++ : LARGEST;
        for (; at > 0 && bytes_of(e, domain, top[at - 1]) < bytes_of(e, domain, i); at--)
            if (at < LARGEST) top[at] = top[at - 1];
        if (at < LARGEST) top[at] = i;
    }
    for (int32_t i = 0; i < n; i++) print_buffer(e, domain, top[i], s);
}

Err memory_check_plan(const Exec *e) {
    const Gpus *g = &e->rt->gpu;
    double need = e->plan->peak_bytes, there = (double)g->device.gpu[e->first_domain].memory;
    char all[BYTES_TEXT], of[BYTES_TEXT];
    if (need <= there) return E_OK;
    Str s;
    str_init(&s, &g->cx->alloc);
    print_largest(e, e->first_domain, &s);
    Err err = err_set(g->cx, E_NOMEM,
                      "out of memory: the call needs %s on the GPU, which has %s. " WAY_OUT "%s",
                      str_bytes(need, all), str_bytes(there, of), str_of(&s));
    str_free(&s);
    return err;
}

Err memory_check(const Exec *e, int32_t domain) {
    const Gpus *g = &e->rt->gpu;
    Need n = need_of(e, domain);
    if (!n.workspace && !n.scratch) return E_OK; /* asking for what is available takes long */
    size_t need = n.workspace + n.results + n.scratch;
    size_t there = g->device.available(g->device.self, domain);
    if (n.workspace) there += e->rt->workspace[domain].bytes; /* given back first */
    if (n.scratch) there += g->of[domain].scratch_bytes;
    return need <= there ? E_OK : memory_check_error(e, domain);
}

Err memory_check_error(const Exec *e, int32_t domain) {
    const Gpus *g = &e->rt->gpu;
    Need n = need_of(e, domain);
    size_t need = n.workspace + n.results + n.scratch;
    char all[BYTES_TEXT], there[BYTES_TEXT], of[BYTES_TEXT], held[BYTES_TEXT], work[BYTES_TEXT],
        results[BYTES_TEXT];
    Str s;
    str_init(&s, &g->cx->alloc);
    print_largest(e, domain, &s);
    Err err = err_set(
        g->cx, E_NOMEM,
        "out of memory: the call needs %s on the GPU (%s of temporaries, %s of "
        "results), and %s of its %s are free; tensors and other plans hold %s. " WAY_OUT "%s",
        str_bytes((double)need, all), str_bytes((double)n.workspace, work),
        str_bytes((double)n.results, results),
        str_bytes((double)g->device.available(g->device.self, domain), there),
        str_bytes((double)g->device.gpu[domain].memory, of),
        str_bytes((double)g->of[domain].memory.live, held), str_of(&s));
    str_free(&s);
    return err;
}
