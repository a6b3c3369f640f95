#include "launches.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what grows ---- */

void launches_fail(Launches *p, const char *format, ...) {
    va_list list;
    if (p->error[0]) return;
    va_start(list, format);
    vsnprintf(p->error, sizeof p->error, format, list);
    va_end(list);
}

static void no_memory(Launches *p) {
    launches_fail(p, "out of memory for launches");
}

/* Room for `more` after the n that there are. */
static int grow(Launches *p, void **at, size_t n, size_t more, size_t *most, size_t size) {
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

static char *copy_text(Launches *p, const char *text) {
    char *copy = strdup(text);
    if (!copy) no_memory(p);
    return copy;
}

static LaunchStep *add_step(Launches *p, LaunchKind kind) {
    size_t most = (size_t)p->most_steps;
    ptrdiff_t open = p->launch ? p->launch - p->step : -1;
    void *list = p->step;
    int grown = grow(p, &list, (size_t)p->nstep, 1, &most, sizeof *p->step);
    p->step = list;
    p->most_steps = (int32_t)most;
    p->launch = open < 0 ? NULL : p->step + open;
    if (!grown) return NULL;
    p->step[p->nstep] = (LaunchStep){.kind = kind, .operand = -1};
    return &p->step[p->nstep++];
}

/* A parameter of the open launch; its value begins at a multiple of 16, as any type needs. */
static char *add_param(Launches *p, LaunchParam param, size_t size) {
    size_t most = (size_t)p->most_params, bytes = (size + 15) / 16 * 16;
    if (!p->launch) {
        launches_fail(p, "a parameter without a launch");
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

static void add_value(Launches *p, const void *x, size_t size) {
    char *at = add_param(p, (LaunchParam){.kind = PARAM_VALUE}, size);
    if (at) memcpy(at, x, size);
}

static int check_operand(Launches *p, int k) {
    if (k >= 0 && k < p->args->nin + p->args->nout) return 1;
    launches_fail(p, "operand %d of %d", k, (int)(p->args->nin + p->args->nout));
    return 0;
}

/* ---- row.h ---- */

const CudaGpu *cuda_gpu(const Launches *p) {
    return &p->gpu;
}

static LaunchStep *open_launch(Launches *p, const char *entry, int64_t blocks, int threads) {
    LaunchStep *s = add_step(p, STEP_LAUNCH);
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

void cuda_launch(Launches *p, const char *file, const char *entry, int64_t blocks, int threads) {
    LaunchStep *s = open_launch(p, entry, blocks, threads);
    if (s) s->file = file;
}

void cuda_launch_text(Launches *p, const char *text, const char *entry, int64_t blocks,
                      int threads) {
    LaunchStep *s = open_launch(p, entry, blocks, threads);
    if (s) s->text = copy_text(p, text);
}

void cuda_grid(Launches *p, int64_t y, int64_t z) {
    if (!p->launch) return;
    p->launch->blocks[1] = y;
    p->launch->blocks[2] = z;
}

void cuda_shared(Launches *p, size_t bytes) {
    if (bytes > p->gpu.shared)
        launches_fail(p, "%zu bytes of shared memory; a block of this GPU has at most %zu", bytes,
                      p->gpu.shared);
    if (p->launch) p->launch->shared = bytes;
}

void cuda_define(Launches *p, const char *name, const char *format, ...) {
    char value[256];
    va_list list;
    va_start(list, format);
    int n = vsnprintf(value, sizeof value, format, list);
    va_end(list);
    if (n >= (int)sizeof value) launches_fail(p, "the definition of %s is too long", name);
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

void cuda_define_type(Launches *p, const char *name, DType t) {
    static const char *const types[DT_COUNT] = {
        [DT_BOOL] = "bool",
        [DT_U8] = "unsigned char",
        [DT_U16] = "unsigned short",
        [DT_U32] = "unsigned int",
        [DT_U64] = "unsigned long long",
        [DT_I8] = "signed char",
        [DT_I16] = "short",
        [DT_I32] = "int",
        [DT_I64] = "long long",
        [DT_E4M3] = "e4m3",
        [DT_E5M2] = "e5m2",
        [DT_BF16] = "bf16",
        [DT_F16] = "f16",
        [DT_F32] = "float",
        [DT_F64] = "double",
    };
    cuda_define(p, name, "%s", types[t]);
}

void cuda_operand_at(Launches *p, int k, int64_t bytes) {
    if (check_operand(p, k))
        add_param(p, (LaunchParam){.kind = PARAM_OPERAND, .operand = k, .bytes = bytes},
                  sizeof(char *));
}

void cuda_operand(Launches *p, int k) {
    cuda_operand_at(p, k, 0);
}

void cuda_operands(Launches *p, int k, int n, int room) {
    if (check_operand(p, k) && check_operand(p, k + n - 1))
        add_param(p, (LaunchParam){.kind = PARAM_OPERANDS, .operand = k, .bytes = n},
                  (size_t)room * sizeof(char *));
}

void cuda_scratch(Launches *p, size_t at) {
    add_param(p, (LaunchParam){.kind = PARAM_SCRATCH, .bytes = (int64_t)at}, sizeof(char *));
}

void cuda_fault(Launches *p) {
    add_param(p, (LaunchParam){.kind = PARAM_FAULT}, LAUNCHES_FAULT_BYTES);
}

void cuda_i32(Launches *p, int32_t x) {
    add_value(p, &x, sizeof x);
}
void cuda_i64(Launches *p, int64_t x) {
    add_value(p, &x, sizeof x);
}
void cuda_f32(Launches *p, float x) {
    add_value(p, &x, sizeof x);
}
void cuda_f64(Launches *p, double x) {
    add_value(p, &x, sizeof x);
}
void cuda_bytes(Launches *p, const void *x, size_t size) {
    add_value(p, x, size);
}

size_t cuda_take_scratch(Launches *p, size_t bytes) {
    size_t at = p->scratch;
    p->scratch += (bytes + LAUNCHES_ALIGN - 1) / LAUNCHES_ALIGN * LAUNCHES_ALIGN;
    return at;
}

static void add_fill(Launches *p, int32_t operand, size_t at, size_t bytes, int byte) {
    LaunchStep *s = add_step(p, STEP_FILL);
    if (!s) return;
    s->operand = operand;
    s->at = at;
    s->bytes = bytes;
    s->byte = byte;
}

void cuda_fill(Launches *p, int k, int64_t bytes, int byte) {
    if (check_operand(p, k)) add_fill(p, k, 0, (size_t)bytes, byte);
}

void cuda_fill_scratch(Launches *p, size_t at, size_t bytes, int byte) {
    add_fill(p, -1, at, bytes, byte);
}

void cuda_call(Launches *p, const char *what, CudaCall *call, void *state,
               void (*drop)(void *state)) {
    LaunchStep *s = add_step(p, STEP_CALL);
    if (!s) {
        if (drop) drop(state);
        return;
    }
    s->what = what;
    s->call = call;
    s->state = state;
    s->drop = drop;
}

int cuda_product(Launches *p, const CudaProduct *q) {
    if (p->library) return p->library->product(p->library->self, p, q);
    cuda_call(p, "cublasLtMatmul", NULL, NULL, NULL);
    return 1;
}

/* ---- the whole ---- */

static Launches *empty(const KArgs *args, const CudaGpu *gpu, const CudaLibrary *library) {
    Launches *p = calloc(1, sizeof *p);
    if (!p) return NULL;
    p->gpu = *gpu;
    p->library = library;
    p->args = args;
    return p;
}

Launches *launches_new(const CudaRow *row, const KArgs *args, const CudaGpu *gpu,
                       const CudaLibrary *library, char *error, size_t size) {
    Launches *p = empty(args, gpu, library);
    if (!p) {
        snprintf(error, size, "out of memory for launches");
        return NULL;
    }
    if (!row->add(args, p)) launches_fail(p, "the kernel does not take these operands");
    p->args = NULL;
    if (!p->error[0]) return p;
    snprintf(error, size, "%s: %s", row->name, p->error);
    launches_free(p);
    return NULL;
}

Launches *launches_pair(const CudaPair *m, const KArgs *const args[2], int32_t from, int32_t to,
                        const KArgs *all, const CudaGpu *gpu, const CudaLibrary *library,
                        const LaunchesOther *other) {
    Launches *p = empty(all, gpu, library);
    if (!p) return NULL;
    p->other = other;
    p->written = all->nin;
    int done = m->add(args[0], args[1], from, to, p);
    p->args = NULL;
    if (done && !p->error[0]) return p;
    launches_free(p);
    return NULL;
}

void launches_free(Launches *p) {
    if (!p) return;
    for (int32_t i = 0; i < p->nstep; i++) {
        LaunchStep *s = &p->step[i];
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
