#include "run/bind/device_text.h"
#include "run/bind/item.h"

#include <stdlib.h>
#include <string.h>

typedef struct Capability {
    int32_t major, minor;
} Capability;

/* Of the GPUs that are there, or those of the kinds that can be planned for. */
static Capability capability_of(const Runtime *rt) {
    if (!gpu_is_there(&rt->gpu)) return (Capability){9, 0};
    const DeviceGpu *g = &rt->gpu.device.gpu[0];
    return (Capability){g->major, g->minor};
}

/* What its kernel gets on the first device, without memory. */
static bool fill_args(const Plan *p, const PlanStep *s, Arena *a, KArgs *args) {
    static const int32_t first[MAX_AXES];
    KTensor *t = ARENA_ARRAY(a, KTensor, s->in.n + s->out.n);
    if (!t) return false;
    for (int k = 0; k < s->in.n; k++) t[k] = item_tensor(p, PLAN_LIST(p, int32_t, s->in)[k]);
    for (int k = 0; k < s->out.n; k++)
        t[s->in.n + k] = item_tensor(p, PLAN_LIST(p, int32_t, s->out)[k]);
    *args = (KArgs){.in = t, .out = t + s->in.n, .nin = s->in.n, .nout = s->out.n};
    return item_args(p, s, first, a, args);
}

static void print_title(const Plan *p, const PlanStep *s, int32_t number, Str *out) {
    str_fmt(out, "// step %d: %s", (int)number, plan_str(p, s->name));
    for (int i = 0; i < s->ops.n; i++)
        str_fmt(out, " %s", plan_str(p, PLAN_LIST(p, int32_t, s->ops)[i]));
    if (s->locs.n) str_fmt(out, " at %s", plan_str(p, PLAN_LIST(p, int32_t, s->locs)[0]));
}

/* texts[i]: what step i is, if it is the first such one; copied by the arena. */
static bool print_step(const Plan *p, int32_t number, const char *text, const char **texts,
                       Arena *a, Str *out) {
    print_title(p, plan_step(p, number), number, out);
    for (int32_t i = 0; text && i < number; i++)
        if (texts[i] && strcmp(texts[i], text) == 0) {
            str_fmt(out, ": as step %d\n", (int)i);
            return true;
        }
    str_put(out, "\n");
    str_put(out, text ? text : "// no kernel for such operands\n");
    if (!text) return true;
    texts[number] = arena_copy(a, text, strlen(text) + 1);
    return texts[number] != NULL;
}

static bool print_all(const Runtime *rt, DeviceSource *source, const Plan *p, Arena *a, Str *out) {
    Capability c = capability_of(rt);
    const char **texts = ARENA_ARRAY(a, const char *, p->steps.n + 1);
    for (int32_t i = 0; texts && i < p->steps.n; i++) {
        const PlanStep *s = plan_step(p, i);
        KArgs args;
        if (s->kind != STEP_KERNEL) continue;
        if (!fill_args(p, s, a, &args)) return false;
        char *text = source(plan_str(p, s->name), &args, c.major, c.minor);
        bool done = print_step(p, i, text, texts, a, out);
        free(text);
        if (!done) return false;
    }
    return texts != NULL;
}

Err device_text_print(Runtime *rt, const Plan *p, Str *s) {
    DeviceSource *source = gpu_source(rt->cx);
    if (!source) return E_DEVICE;
    Arena a;
    arena_init(&a, &rt->cx->alloc);
    bool done = print_all(rt, source, p, &a, s) && !s->failed;
    arena_free(&a);
    return done ? E_OK : err_nomem(rt->cx, "the text of a plan's kernels");
}
