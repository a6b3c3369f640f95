#include "cuda/gpu.h"

#include <stdlib.h>
#include <string.h>

static size_t align_up(size_t n, size_t to) {
    return (n + to - 1) / to * to;
}

/* Sizes that are nearly equal become equal, so that a block serves the next one: an eighth of its
 * power of two at most is lost, above 32 MB less than 2 MB. */
static size_t rounded(size_t bytes) {
    size_t step = MEMORY_ALIGN;
    if (bytes > (size_t)32 << 20) return align_up(bytes, MEMORY_SLAB);
    while (step * 16 < bytes) step *= 2;
    return align_up(bytes ? bytes : 1, step);
}

/* Room for one more block in a list. */
static int grow(MemoryBlock **list, size_t n, size_t *most) {
    if (n < *most) return 1;
    size_t want = *most ? 2 * *most : 64;
    MemoryBlock *wider = realloc(*list, want * sizeof *wider);
    if (!wider) return 0;
    *list = wider;
    *most = want;
    return 1;
}

/* A kept block of that very size; the latest, whose lines are the warmest. */
static char *take_kept(CudaMemory *m, size_t size) {
    for (size_t i = m->nkept; i-- > 0;)
        if (m->kept[i].size == size) {
            char *at = m->kept[i].at;
            memmove(&m->kept[i], &m->kept[i + 1], (m->nkept - i - 1) * sizeof *m->kept);
            m->nkept--;
            return at;
        }
    return NULL;
}

/* Gives CUDA back what is kept and was not cut from a slab, when the queue is done with it. Work
 * that is being kept for a graph is never done with it. */
static size_t trim(Gpu *g) {
    CudaMemory *m = &g->memory;
    size_t left = 0, freed = 0;
    if (g->capturing || g->cuda->rt.cudaStreamSynchronize(g->stream) != cudaSuccess) return 0;
    for (size_t i = 0; i < m->nkept; i++) {
        if (m->kept[i].size <= MEMORY_SMALL)
            m->kept[left++] = m->kept[i];
        else {
            g->cuda->rt.cudaFree(m->kept[i].at);
            freed += m->kept[i].size;
        }
    }
    m->nkept = left;
    return freed;
}

static int is_out_of_memory(Gpu *g, size_t bytes) {
    size_t free = 0, total = 0;
    Cuda *c = g->cuda;
    c->rt.cudaGetLastError();
    c->rt.cudaMemGetInfo(&free, &total);
    return gpu_fail(c, "out of memory: %zu bytes wanted, %zu of %zu are free on GPU %d", bytes,
                    free, total, g->device);
}

static char *fresh(Gpu *g, size_t size) {
    void *at = NULL;
    Cuda *c = g->cuda;
    cudaError_t code = c->rt.cudaMalloc(&at, size);
    if (code == cudaErrorMemoryAllocation && trim(g) > 0) {
        c->rt.cudaGetLastError();
        code = c->rt.cudaMalloc(&at, size);
    }
    if (code == cudaSuccess) return at;
    if (code == cudaErrorMemoryAllocation)
        is_out_of_memory(g, size);
    else
        gpu_ok(c, code, "cudaMalloc");
    return NULL;
}

static char *cut(Gpu *g, size_t size) {
    CudaMemory *m = &g->memory;
    if (m->nslab == 0 || m->cut + size > MEMORY_SLAB) {
        char *at = grow(&m->slab, m->nslab, &m->most_slabs) ? fresh(g, MEMORY_SLAB) : NULL;
        if (!at) return NULL;
        m->slab[m->nslab++] = (MemoryBlock){at, MEMORY_SLAB};
        m->cut = 0;
    }
    char *at = m->slab[m->nslab - 1].at + m->cut;
    m->cut += size;
    return at;
}

char *memory_alloc(Gpu *g, size_t bytes) {
    size_t size = rounded(bytes);
    if (!gpu_use(g)) return NULL;
    char *at = take_kept(&g->memory, size);
    if (at) return at;
    return size <= MEMORY_SMALL ? cut(g, size) : fresh(g, size);
}

void memory_free(Gpu *g, char *at, size_t bytes) {
    CudaMemory *m = &g->memory;
    size_t size = rounded(bytes);
    if (!at) return;
    if (grow(&m->kept, m->nkept, &m->most))
        m->kept[m->nkept++] = (MemoryBlock){at, size};
    else if (size > MEMORY_SMALL && gpu_use(g))
        g->cuda->rt.cudaFree(at);
}

size_t memory_available(Gpu *g) {
    size_t free = 0, total = 0;
    if (!gpu_use(g) ||
        !gpu_ok(g->cuda, g->cuda->rt.cudaMemGetInfo(&free, &total), "cudaMemGetInfo"))
        return 0;
    for (size_t i = 0; i < g->memory.nkept; i++)
        if (g->memory.kept[i].size > MEMORY_SMALL) free += g->memory.kept[i].size;
    return free;
}

/* ---- staging ---- */

/* A chunk whose last copy is over, and its memory where it has none yet. */
static int ready(Gpu *g, StagingChunk *chunk) {
    Cuda *c = g->cuda;
    void *at;
    if (chunk->at)
        return gpu_ok(c, c->rt.cudaEventSynchronize(chunk->done), "cudaEventSynchronize");
    if (!chunk->done &&
        !gpu_ok(c, c->rt.cudaEventCreateWithFlags(&chunk->done, cudaEventDisableTiming),
                "cudaEventCreateWithFlags"))
        return 0;
    if (!gpu_ok(c, c->rt.cudaHostAlloc(&at, STAGING_BYTES, cudaHostAllocDefault), "cudaHostAlloc"))
        return 0;
    chunk->at = at;
    return 1;
}

static int copy(Gpu *g, void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind) {
    Cuda *c = g->cuda;
    return gpu_ok(c, c->rt.cudaMemcpyAsync(to, from, bytes, kind, g->stream), "cudaMemcpyAsync");
}

static int mark(Gpu *g, StagingChunk *chunk) {
    Cuda *c = g->cuda;
    return gpu_ok(c, c->rt.cudaEventRecord(chunk->done, g->stream), "cudaEventRecord");
}

/* It waits for the queue where all chunks are full of what is still to be copied, no sooner. */
int memory_upload(Gpu *g, char *to, const void *from, size_t bytes) {
    Staging *s = &g->staging;
    if (!gpu_use(g)) return 0;
    if (g->capturing) return gpu_fail(g->cuda, "an upload while work is kept for a graph");
    while (bytes > 0) {
        StagingChunk *chunk = &s->up[s->chunk];
        if (s->used == 0 && !ready(g, chunk)) return 0;
        size_t n = STAGING_BYTES - s->used < bytes ? STAGING_BYTES - s->used : bytes;
        memcpy(chunk->at + s->used, from, n);
        if (!copy(g, to, chunk->at + s->used, n, cudaMemcpyHostToDevice)) return 0;
        s->used += align_up(n, 64);
        to += n;
        from = (const char *)from + n;
        bytes -= n;
        if (s->used < STAGING_BYTES) continue;
        if (!mark(g, chunk)) return 0;
        s->chunk = (s->chunk + 1) % STAGING_CHUNKS;
        s->used = 0;
    }
    return 1;
}

/* While the host empties one chunk, the GPU fills the other. */
int memory_download(Gpu *g, void *to, const char *from, size_t bytes) {
    Cuda *c = g->cuda;
    StagingChunk *chunk = g->staging.down;
    size_t asked = 0, done = 0;
    if (!gpu_use(g)) return 0;
    if (g->capturing) return gpu_fail(c, "a download while work is kept for a graph");
    for (int put = 0, get = 0; done < bytes;) {
        if (asked < bytes && put - get < 2) {
            size_t n = bytes - asked < STAGING_BYTES ? bytes - asked : STAGING_BYTES;
            StagingChunk *to_fill = &chunk[put++ % 2];
            if (!ready(g, to_fill) ||
                !copy(g, to_fill->at, from + asked, n, cudaMemcpyDeviceToHost) || !mark(g, to_fill))
                return 0;
            asked += n;
            continue;
        }
        size_t n = bytes - done < STAGING_BYTES ? bytes - done : STAGING_BYTES;
        StagingChunk *full = &chunk[get++ % 2];
        if (!gpu_ok(c, c->rt.cudaEventSynchronize(full->done), "cudaEventSynchronize")) return 0;
        memcpy((char *)to + done, full->at, n);
        done += n;
    }
    return 1;
}

/* ---- answers ---- */

/* The event of the next copy, and room for all where there is none yet. */
static cudaEvent_t *next_answer(Gpu *g) {
    Cuda *c = g->cuda;
    Answers *a = &g->answers;
    cudaEvent_t *done = &a->done[a->next % ANSWERS];
    void *at;
    if (!a->at) {
        size_t bytes = (size_t)ANSWERS * ANSWER_BYTES;
        if (!gpu_ok(c, c->rt.cudaHostAlloc(&at, bytes, cudaHostAllocDefault), "cudaHostAlloc"))
            return NULL;
        a->at = at;
    }
    if (!*done && !gpu_ok(c, c->rt.cudaEventCreateWithFlags(done, cudaEventDisableTiming),
                          "cudaEventCreateWithFlags"))
        return NULL;
    return done;
}

int64_t memory_ask(Gpu *g, const char *from, size_t bytes) {
    Cuda *c = g->cuda;
    Answers *a = &g->answers;
    if (!gpu_use(g)) return -1;
    if (g->capturing) {
        gpu_fail(c, "a download while work is kept for a graph");
        return -1;
    }
    const cudaEvent_t *done = next_answer(g);
    if (!done ||
        !copy(g, a->at + a->next % ANSWERS * ANSWER_BYTES, from, bytes, cudaMemcpyDeviceToHost))
        return -1;
    if (!gpu_ok(c, c->rt.cudaEventRecord(*done, g->stream), "cudaEventRecord")) return -1;
    return a->next++;
}

int memory_answer(Gpu *g, int64_t number, void *to, size_t bytes) {
    Cuda *c = g->cuda;
    const Answers *a = &g->answers;
    if (number < 0 || number >= a->next || a->next - number > ANSWERS) return -1;
    int64_t at = number % ANSWERS;
    if (!gpu_ok(c, c->rt.cudaEventSynchronize(a->done[at]), "cudaEventSynchronize")) return 0;
    memcpy(to, a->at + at * ANSWER_BYTES, bytes);
    return 1;
}

static void drop_answers(Gpu *g) {
    Answers *a = &g->answers;
    if (a->at) g->cuda->rt.cudaFreeHost(a->at);
    for (int i = 0; i < ANSWERS; i++)
        if (a->done[i]) g->cuda->rt.cudaEventDestroy(a->done[i]);
    *a = (Answers){.at = NULL};
}

static void drop_chunk(Gpu *g, StagingChunk *chunk) {
    if (chunk->at) g->cuda->rt.cudaFreeHost(chunk->at);
    if (chunk->done) g->cuda->rt.cudaEventDestroy(chunk->done);
}

void memory_close(Gpu *g) {
    CudaMemory *m = &g->memory;
    trim(g);
    for (size_t i = 0; i < m->nslab; i++) g->cuda->rt.cudaFree(m->slab[i].at);
    free(m->slab);
    free(m->kept);
    *m = (CudaMemory){.kept = NULL};
    for (int i = 0; i < STAGING_CHUNKS; i++) drop_chunk(g, &g->staging.up[i]);
    for (int i = 0; i < 2; i++) drop_chunk(g, &g->staging.down[i]);
    g->staging = (Staging){.chunk = 0};
    drop_answers(g);
}
