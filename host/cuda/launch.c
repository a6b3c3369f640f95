#include "cuda/launch.h"
#include "cuda/module.h"
#include "cuda/products.h"
#include "cuda/source.h"

#include <stdlib.h>
#include <string.h>

/* What CUDA admits without being asked: shared memory of a block. */
enum { SHARED = 48 << 10, BLOCK_THREADS = 1024, MOST_YZ = 65535 };

struct Bound {
    Gpu *gpu;
    Launches *launches;
    Module **module;      /* of each step; NULL where it is no launch */
    cudaKernel_t *kernel; /* of each step, once it is ready */
    void **param;         /* of each parameter of the launches: where its value stands */
    char **address;       /* of each operand in the latest launch */
    int32_t nin, nout;
    int ready;
    struct Bound *part[2]; /* of a pair: what it does as one, or one after the other */
    LaunchesOther other;   /* the latter */
    int64_t tag;           /* of its latest launch */
    Bound *next, **link;   /* among those of the GPU that are not ready */
};

/* ---- binding ---- */

static int grid_fits(Cuda *c, const char *kernel, const LaunchStep *s) {
    if (s->threads >= 1 && s->threads <= BLOCK_THREADS && s->blocks[0] >= 0 &&
        s->blocks[0] <= INT32_MAX && s->blocks[1] >= 0 && s->blocks[1] <= MOST_YZ &&
        s->blocks[2] >= 0 && s->blocks[2] <= MOST_YZ)
        return 1;
    return gpu_fail(c, "%s: a grid of %lld x %lld x %lld blocks of %d threads", kernel,
                    (long long)s->blocks[0], (long long)s->blocks[1], (long long)s->blocks[2],
                    s->threads);
}

static int runs_nothing(const LaunchStep *s) {
    return s->blocks[0] == 0 || s->blocks[1] == 0 || s->blocks[2] == 0;
}

static int get_modules(Bound *b, const char *kernel) {
    Cuda *c = b->gpu->cuda;
    for (int32_t i = 0; i < b->launches->nstep; i++) {
        const LaunchStep *s = &b->launches->step[i];
        if (s->kind != STEP_LAUNCH) continue;
        if (s->file && !source_file(s->file))
            return gpu_fail(c, "%s: there is no device code '%s'", kernel, s->file);
        if (!grid_fits(c, kernel, s)) return 0;
        if (runs_nothing(s)) continue;
        char *source = source_of_step(s);
        b->module[i] = source ? module_get(c, &b->gpu->row, source) : NULL;
        free(source);
        if (!b->module[i]) return gpu_fail(c, "out of memory for %s", kernel);
    }
    return 1;
}

static int allocate(Bound *b, const KArgs *args) {
    size_t steps = (size_t)b->launches->nstep + 1, params = (size_t)b->launches->nparam + 1;
    b->module = calloc(steps, sizeof(Module *));
    b->kernel = calloc(steps, sizeof(cudaKernel_t));
    b->param = calloc(params, sizeof(void *));
    b->nin = args->nin;
    b->nout = args->nout;
    b->address = calloc((size_t)(args->nin + args->nout) + 1, sizeof(char *));
    if (!b->module || !b->kernel || !b->param || !b->address) return 0;
    for (int32_t i = 0; i < b->launches->nparam; i++)
        b->param[i] = b->launches->values + b->launches->param[i].at;
    return 1;
}

static void leave_list(Bound *b) {
    if (!b->link) return;
    *b->link = b->next;
    if (b->next) b->next->link = b->link;
    b->link = NULL;
}

static void add_unready(Bound *b) {
    b->next = b->gpu->unready;
    b->link = &b->gpu->unready;
    if (b->next) b->next->link = &b->next;
    b->gpu->unready = b;
}

const CudaRow *launch_row(const char *kernel) {
    for (const CudaRow *row = k_cuda_table(); row->name; row++)
        if (strcmp(row->name, kernel) == 0) return row;
    return NULL;
}

Bound *launch_bind(Gpu *g, const char *kernel, const KArgs *args, size_t *scratch) {
    Cuda *c = g->cuda;
    Bound *b = calloc(1, sizeof *b);
    if (!b) {
        gpu_fail(c, "out of memory for %s", kernel);
        return NULL;
    }
    b->gpu = g;
    const CudaRow *row = launch_row(kernel);
    if (!row)
        gpu_fail(c, "no kernel '%s' for CUDA", kernel);
    else if (gpu_use(g))
        b->launches = launches_new(row, args, &g->row, products_library(g->products), c->error,
                                   sizeof c->error);
    if (b->launches && !allocate(b, args))
        gpu_fail(c, "out of memory for %s", kernel);
    else if (b->launches && get_modules(b, kernel)) {
        add_unready(b);
        *scratch = b->launches->scratch;
        return b;
    }
    launch_unbind(b);
    return NULL;
}

/* What still runs has its own copy of the parameters. */
void launch_unbind(Bound *b) {
    for (int k = 0; k < 2; k++)
        if (b->part[k]) launch_unbind(b->part[k]);
    leave_list(b);
    launches_free(b->launches);
    free(b->module);
    free(b->kernel);
    free(b->param);
    free(b->address);
    free(b);
}

/* ---- the code ---- */

/* Asking for the attributes also brings the code to the GPU, which while work is kept for a graph
 * would be too late. A kernel's limit of shared memory is set to the most there is: others launch
 * it with other sizes. */
static int admit(Gpu *g, const LaunchStep *s, cudaKernel_t kernel) {
    Cuda *c = g->cuda;
    union {
        struct cudaFuncAttributes at;
        char room[1024]; /* another version's may be longer */
    } about;
    if (!gpu_ok(c, c->rt.cudaFuncGetAttributes(&about.at, (const void *)kernel), s->entry))
        return 0;
    if (s->threads > about.at.maxThreadsPerBlock)
        return gpu_fail(c, "%s: %d threads in a block, and its registers admit %d", s->entry,
                        s->threads, about.at.maxThreadsPerBlock);
    if (s->shared + about.at.sharedSizeBytes <= SHARED) return 1;
    if (s->shared + about.at.sharedSizeBytes > g->row.shared)
        return gpu_fail(c, "%s: %zu bytes of shared memory; a block of this GPU has %zu", s->entry,
                        s->shared + about.at.sharedSizeBytes, g->row.shared);
    return gpu_ok(c,
                  c->rt.cudaFuncSetAttribute((const void *)kernel,
                                             cudaFuncAttributeMaxDynamicSharedMemorySize,
                                             (int)(g->row.shared - about.at.sharedSizeBytes)),
                  s->entry);
}

static int make_ready(Bound *b) {
    for (int32_t i = 0; i < b->launches->nstep; i++) {
        const LaunchStep *s = &b->launches->step[i];
        if (b->module[i] && (!module_kernel(b->gpu->cuda, b->module[i], s->entry, &b->kernel[i]) ||
                             !admit(b->gpu, s, b->kernel[i])))
            return 0;
    }
    b->ready = 1;
    leave_list(b);
    return 1;
}

int launch_ready_all(Gpu *g) {
    if (!gpu_use(g)) return 0;
    for (Bound *b = g->unready, *next; b; b = next) {
        next = b->next;
        make_ready(b);
    }
    return 1;
}

/* ---- launching ---- */

/* Of the parameters, once those of the operands are known. */
static void set_addresses(Bound *b, char *scratch, int64_t tag) {
    struct {
        GpuFault *record;
        int64_t tag;
    } fault = {b->gpu->fault, tag};
    _Static_assert(sizeof fault == LAUNCHES_FAULT_BYTES, "struct Fault of device.cuh");
    for (int32_t i = 0; i < b->launches->nparam; i++) {
        const LaunchParam *p = &b->launches->param[i];
        char *at = p->kind == PARAM_OPERAND ? b->address[p->operand] : scratch;
        if (p->kind == PARAM_FAULT)
            memcpy(b->param[i], &fault, sizeof fault);
        else if (p->kind == PARAM_OPERANDS)
            memcpy(b->param[i], &b->address[p->operand], (size_t)p->bytes * sizeof(char *));
        else if (p->kind != PARAM_VALUE) {
            at += p->bytes;
            memcpy(b->param[i], &at, sizeof at);
        }
    }
}

static int run_step(Bound *b, int32_t i, char *scratch) {
    const LaunchStep *s = &b->launches->step[i];
    Gpu *g = b->gpu;
    Cuda *c = g->cuda;
    if (s->kind == STEP_CALL)
        return s->call(s->state, b->address, scratch, g->stream, c->error, sizeof c->error);
    if (s->kind == STEP_FILL) {
        char *at = s->operand < 0 ? scratch + s->at : b->address[s->operand];
        return s->bytes == 0 || gpu_ok(c, c->rt.cudaMemsetAsync(at, s->byte, s->bytes, g->stream),
                                       "cudaMemsetAsync");
    }
    if (runs_nothing(s)) return 1;
    dim3 blocks = {(unsigned)s->blocks[0], (unsigned)s->blocks[1], (unsigned)s->blocks[2]};
    return gpu_ok(c,
                  c->rt.cudaLaunchKernel((const void *)b->kernel[i], blocks,
                                         (dim3){(unsigned)s->threads, 1, 1}, b->param + s->param,
                                         s->shared, g->stream),
                  s->entry);
}

/* Where it is asked for: waits for the step, and names it if it failed. */
static int check_step(Bound *b, int32_t i) {
    const LaunchStep *s = &b->launches->step[i];
    Gpu *g = b->gpu;
    Cuda *c = g->cuda;
    const char *what = s->kind == STEP_LAUNCH ? s->entry
                       : s->kind == STEP_CALL ? s->what
                                              : "a fill";
    return !c->check || g->capturing || gpu_ok(c, c->rt.cudaStreamSynchronize(g->stream), what);
}

static int run_launches(Bound *b, char *scratch, int64_t tag) {
    if (!b->ready && !make_ready(b)) return 0;
    b->tag = tag;
    set_addresses(b, scratch, tag);
    for (int32_t i = 0; i < b->launches->nstep; i++)
        if (!run_step(b, i, scratch) || !check_step(b, i)) return 0;
    return 1;
}

int launch_run(Bound *b, const KArgs *args, char *scratch, int64_t tag) {
    if (!gpu_use(b->gpu)) return 0;
    for (int32_t i = 0; i < b->nin; i++) b->address[i] = args->in[i].data;
    for (int32_t i = 0; i < b->nout; i++) b->address[b->nin + i] = args->out[i].data;
    return run_launches(b, scratch, tag);
}

/* ---- two as one ---- */

/* LaunchesOther.run: the parts, with their operands among those of both (CudaPair). */
static int run_parts(void *state, char *const *address, char *scratch) {
    const Bound *b = state;
    char *const *in = address, *const *out = address + b->nin;
    for (int k = 0; k < 2; k++) {
        Bound *part = b->part[k];
        memcpy(part->address, in, (size_t)part->nin * sizeof *in);
        memcpy(part->address + part->nin, out, (size_t)part->nout * sizeof *out);
        if (!run_launches(part, scratch, b->tag)) return 0;
        in += part->nin;
        out += part->nout;
    }
    return 1;
}

/* The operands of both, in lists to be freed with all.in. */
static int pair_operands(const KArgs *const args[2], KArgs *all) {
    const KArgs *a = args[0], *b = args[1];
    all->nin = a->nin + b->nin;
    all->nout = a->nout + b->nout;
    KTensor *list = calloc((size_t)(all->nin + all->nout) + 1, sizeof *list), *to = list;
    if (!list) return 0;
    for (int k = 0; k < 2; k++)
        for (int32_t i = 0; i < args[k]->nin; i++) *to++ = args[k]->in[i];
    for (int k = 0; k < 2; k++)
        for (int32_t i = 0; i < args[k]->nout; i++) *to++ = args[k]->out[i];
    all->in = list;
    all->out = list + all->nin;
    return 1;
}

static const CudaPair *find_pair(const char *const kernel[2]) {
    for (const CudaPair *m = k_cuda_pairs(); m->first; m++)
        if (strcmp(m->first, kernel[0]) == 0 && strcmp(m->second, kernel[1]) == 0) return m;
    return NULL;
}

Bound *launch_pair(Gpu *g, const DeviceWork work[2], int32_t from, int32_t to, size_t *scratch) {
    const char *const kernel[2] = {work[0].kernel, work[1].kernel};
    const KArgs *const args[2] = {work[0].args, work[1].args};
    const CudaPair *m = find_pair(kernel);
    KArgs all = {0};
    Bound *b = m ? calloc(1, sizeof *b) : NULL;
    if (!b || !gpu_use(g) || !pair_operands(args, &all)) {
        free(b);
        return NULL;
    }
    b->gpu = g;
    b->other = (LaunchesOther){run_parts, b};
    b->launches =
        launches_pair(m, args, from, to, &all, &g->row, products_library(g->products), &b->other);
    int done = b->launches && allocate(b, &all) && get_modules(b, kernel[0]);
    free((void *)all.in);
    if (!done) {
        launch_unbind(b);
        return NULL;
    }
    add_unready(b);
    *scratch = b->launches->scratch;
    for (int k = 0; k < 2; k++) {
        b->part[k] = work[k].bound;
        if (b->part[k]->launches->scratch > *scratch) *scratch = b->part[k]->launches->scratch;
    }
    return b;
}
