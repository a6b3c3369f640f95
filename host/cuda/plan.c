#include "cuda/plan.h"
#include "cuda/source.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what grows ---- */

void plan_fail(CudaPlan *p, const char *format, ...) {
    va_list list;
    if (p->error[0]) return;
    va_start(list, format);
    vsnprintf(p->error, sizeof p->error, format, list);
    va_end(list);
}

static void no_memory(CudaPlan *p) {
    plan_fail(p, "out of memory for a plan");
}

/* Room for `more` after the n that there are. */
static int grow(CudaPlan *p, void **at, size_t n, size_t more, size_t *most, size_t size) {
    size_t want = *most ? *most : 8;
    while (want < n + more) want *= 2;
    if (want == *most) return 1;
    void *wider = realloc(*at, want * size);
    if (!wider) {
        no_memory(p);
        return 0;
    }
    *at = wider;
    *most = want;
    return 1;
}

static char *copy_text(CudaPlan *p, const char *text) {
    char *copy = strdup(text);
    if (!copy) no_memory(p);
    return copy;
}

static PlanStep *add_step(CudaPlan *p, PlanKind kind) {
    size_t most = (size_t)p->most_steps;
    ptrdiff_t open = p->launch ? p->launch - p->step : -1;
    void *list = p->step;
    int grown = grow(p, &list, (size_t)p->nstep, 1, &most, sizeof *p->step);
    p->step = list;
    p->most_steps = (int32_t)most;
    p->launch = open < 0 ? NULL : p->step + open;
    if (!grown) return NULL;
    p->step[p->nstep] = (PlanStep){.kind = kind, .operand = -1};
    return &p->step[p->nstep++];
}

/* A parameter of the open launch; its value begins at a multiple of 16, as any type needs. */
static char *add_param(CudaPlan *p, PlanParam param, size_t size) {
    size_t most = (size_t)p->most_params, bytes = (size + 15) / 16 * 16;
    if (!p->launch) {
        plan_fail(p, "a parameter without a launch");
        return NULL;
    }
    void *list = p->param, *values = p->values;
    int grown = grow(p, &list, (size_t)p->nparam, 1, &most, sizeof *p->param) &&
                grow(p, &values, p->nvalues, bytes, &p->most_values, 1);
    p->param = list;
    p->most_params = (int32_t)most;
    p->values = values;
    if (!grown) return NULL;
    param.at = p->nvalues;
    p->nvalues += bytes;
    p->param[p->nparam++] = param;
    p->launch->nparam++;
    return memset(p->values + param.at, 0, bytes);
}

static void add_value(CudaPlan *p, const void *x, size_t size) {
    char *at = add_param(p, (PlanParam){.kind = PARAM_VALUE}, size);
    if (at) memcpy(at, x, size);
}

static int check_operand(CudaPlan *p, int k) {
    if (k >= 0 && k < p->args->nin + p->args->nout) return 1;
    plan_fail(p, "operand %d of %d", k, (int)(p->args->nin + p->args->nout));
    return 0;
}

/* ---- row.h ---- */

const CudaGpu *cuda_gpu(const CudaPlan *p) {
    return &p->gpu;
}

static PlanStep *open_launch(CudaPlan *p, const char *entry, int64_t blocks, int threads) {
    PlanStep *s = add_step(p, PLAN_LAUNCH);
    p->launch = s;
    if (!s) return NULL;
    s->entry = copy_text(p, entry);
    s->defines = copy_text(p, "");
    s->blocks[0] = blocks;
    s->blocks[1] = s->blocks[2] = 1;
    s->threads = threads;
    s->param = p->nparam;
    return s;
}

void cuda_launch(CudaPlan *p, const char *file, const char *entry, int64_t blocks, int threads) {
    PlanStep *s = open_launch(p, entry, blocks, threads);
    if (!source_file(file)) plan_fail(p, "there is no device code '%s'", file);
    if (s) s->file = file;
}

void cuda_launch_text(CudaPlan *p, const char *text, const char *entry, int64_t blocks,
                      int threads) {
    PlanStep *s = open_launch(p, entry, blocks, threads);
    if (s) s->text = copy_text(p, text);
}

void cuda_grid(CudaPlan *p, int64_t y, int64_t z) {
    if (!p->launch) return;
    p->launch->blocks[1] = y;
    p->launch->blocks[2] = z;
}

void cuda_shared(CudaPlan *p, size_t bytes) {
    if (bytes > p->gpu.shared)
        plan_fail(p, "%zu bytes of shared memory; a block of this GPU has at most %zu", bytes,
                  p->gpu.shared);
    if (p->launch) p->launch->shared = bytes;
}

void cuda_define(CudaPlan *p, const char *name, const char *format, ...) {
    char value[256];
    va_list list;
    va_start(list, format);
    int n = vsnprintf(value, sizeof value, format, list);
    va_end(list);
    if (n >= (int)sizeof value) plan_fail(p, "the definition of %s is too long", name);
    if (!p->launch || !p->launch->defines) return;
    size_t had = strlen(p->launch->defines),
           size = had + strlen(name) + strlen(value) + sizeof "#define  \n";
    char *text = realloc(p->launch->defines, size);
    if (!text) {
        no_memory(p);
        return;
    }
    snprintf(text + had, size - had, "#define %s %s\n", name, value);
    p->launch->defines = text;
}

void cuda_define_type(CudaPlan *p, const char *name, DType t) {
    static const char *const types[DT_COUNT] = {
        [DT_BOOL] = "bool", [DT_U8] = "unsigned char", [DT_U32] = "unsigned int",
        [DT_I32] = "int",   [DT_I64] = "long long",    [DT_BF16] = "bf16",
        [DT_F16] = "f16",   [DT_F32] = "float",        [DT_F64] = "double",
    };
    cuda_define(p, name, "%s", types[t]);
}

void cuda_operand_at(CudaPlan *p, int k, int64_t bytes) {
    if (check_operand(p, k))
        add_param(p, (PlanParam){.kind = PARAM_OPERAND, .operand = k, .bytes = bytes},
                  sizeof(char *));
}

void cuda_operand(CudaPlan *p, int k) {
    cuda_operand_at(p, k, 0);
}

void cuda_operands(CudaPlan *p, int k, int n, int room) {
    if (check_operand(p, k) && check_operand(p, k + n - 1))
        add_param(p, (PlanParam){.kind = PARAM_OPERANDS, .operand = k, .bytes = n},
                  (size_t)room * sizeof(char *));
}

void cuda_scratch(CudaPlan *p, size_t at) {
    add_param(p, (PlanParam){.kind = PARAM_SCRATCH, .bytes = (int64_t)at}, sizeof(char *));
}

void cuda_fault(CudaPlan *p) {
    add_param(p, (PlanParam){.kind = PARAM_FAULT}, PLAN_FAULT_BYTES);
}

void cuda_i32(CudaPlan *p, int32_t x) {
    add_value(p, &x, sizeof x);
}
void cuda_i64(CudaPlan *p, int64_t x) {
    add_value(p, &x, sizeof x);
}
void cuda_f32(CudaPlan *p, float x) {
    add_value(p, &x, sizeof x);
}
void cuda_f64(CudaPlan *p, double x) {
    add_value(p, &x, sizeof x);
}
void cuda_bytes(CudaPlan *p, const void *x, size_t size) {
    add_value(p, x, size);
}

size_t cuda_take_scratch(CudaPlan *p, size_t bytes) {
    size_t at = p->scratch;
    p->scratch += (bytes + PLAN_ALIGN - 1) / PLAN_ALIGN * PLAN_ALIGN;
    return at;
}

static void add_fill(CudaPlan *p, int32_t operand, size_t at, size_t bytes, int byte) {
    PlanStep *s = add_step(p, PLAN_FILL);
    if (!s) return;
    s->operand = operand;
    s->at = at;
    s->bytes = bytes;
    s->byte = byte;
}

void cuda_fill(CudaPlan *p, int k, int64_t bytes, int byte) {
    if (check_operand(p, k)) add_fill(p, k, 0, (size_t)bytes, byte);
}

void cuda_fill_scratch(CudaPlan *p, size_t at, size_t bytes, int byte) {
    add_fill(p, -1, at, bytes, byte);
}

void cuda_call(CudaPlan *p, const char *what, CudaCall *call, void *state,
               void (*drop)(void *state)) {
    PlanStep *s = add_step(p, PLAN_CALL);
    if (!s) {
        if (drop) drop(state);
        return;
    }
    s->what = what;
    s->call = call;
    s->state = state;
    s->drop = drop;
}

/* ---- the whole ---- */

static const CudaRow *row_of(const char *kernel) {
    for (const CudaRow *row = k_cuda_table(); row->name; row++)
        if (strcmp(row->name, kernel) == 0) return row;
    return NULL;
}

static CudaPlan *empty_plan(const KArgs *args, const CudaGpu *gpu, struct Products *products) {
    CudaPlan *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->gpu = *gpu;
    p->products = products;
    p->args = args;
    return p;
}

CudaPlan *plan_new(const char *kernel, const KArgs *args, const CudaGpu *gpu,
                   struct Products *products, char *error, size_t size) {
    const CudaRow *row = row_of(kernel);
    if (!row) {
        snprintf(error, size, "no kernel '%s' for CUDA", kernel);
        return NULL;
    }
    CudaPlan *p = empty_plan(args, gpu, products);
    if (!p) {
        snprintf(error, size, "out of memory for a plan");
        return NULL;
    }
    if (!row->plan(args, p)) plan_fail(p, "the kernel does not take these operands");
    p->args = NULL;
    if (!p->error[0]) return p;
    snprintf(error, size, "%s: %s", kernel, p->error);
    plan_free(p);
    return NULL;
}

CudaPlan *plan_merge(const char *const kernel[2], const KArgs *const args[2], int32_t from,
                     int32_t to, const KArgs *all, const CudaGpu *gpu, struct Products *products,
                     const PlanOther *other) {
    const CudaMerge *m = k_cuda_merges();
    while (m->first && (strcmp(m->first, kernel[0]) != 0 || strcmp(m->second, kernel[1]) != 0)) m++;
    CudaPlan *p = m->first ? empty_plan(all, gpu, products) : NULL;
    if (!p) return NULL;
    p->other = other;
    p->written = all->nin;
    int done = m->plan(args[0], args[1], from, to, p);
    p->args = NULL;
    if (done && !p->error[0]) return p;
    plan_free(p);
    return NULL;
}

void plan_free(CudaPlan *p) {
    if (!p) return;
    for (int32_t i = 0; i < p->nstep; i++) {
        PlanStep *s = &p->step[i];
        free(s->text);
        free(s->defines);
        free(s->entry);
        if (s->drop) s->drop(s->state);
    }
    free(p->step);
    free(p->param);
    free(p->values);
    free(p);
}
