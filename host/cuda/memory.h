/* memory.h - memory of a GPU, and the ways to and from the host's.
 *
 * Blocks come from cudaMalloc and are kept when they are given back: the next user of one is behind
 * the last in the same queue, so nothing has to wait. What is kept goes back to CUDA when it has no
 * more to give. */
#ifndef MESHLUA_CUDA_MEMORY_H
#define MESHLUA_CUDA_MEMORY_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

struct Gpu;

enum {
    MEMORY_ALIGN = 256,
    MEMORY_SLAB = 2 << 20,   /* bytes that cudaMalloc is asked for at least */
    MEMORY_SMALL = 256 << 10 /* the largest block that is cut from a slab */
};

typedef struct MemoryBlock {
    char *at;
    size_t size;
} MemoryBlock;

typedef struct CudaMemory {
    MemoryBlock *kept; /* given back, the latest last */
    size_t nkept, most;
    MemoryBlock *slab; /* never given back to CUDA; of the latest a part is not yet cut */
    size_t nslab, most_slabs;
    size_t cut;
} CudaMemory;

/* NULL: there is not so much, or it failed. */
char *memory_alloc(struct Gpu *g, size_t bytes);
void memory_free(struct Gpu *g, char *at, size_t bytes);
/* Bytes that memory_alloc could still give. */
size_t memory_available(struct Gpu *g);
void memory_close(struct Gpu *g);

/* ---- staging: pinned memory of the host, through which the GPU reads and writes the rest ---- */
enum { STAGING_CHUNKS = 4, STAGING_BYTES = 4 << 20 };

typedef struct StagingChunk {
    char *at;
    cudaEvent_t done; /* the latest copy from or to it */
} StagingChunk;

typedef struct Staging {
    StagingChunk up[STAGING_CHUNKS], down[2];
    int chunk;   /* of `up`, the one that is being filled */
    size_t used; /* bytes of it */
} Staging;

/* Small copies to the host that are waited for later, or never. */
enum { ANSWERS = 64, ANSWER_BYTES = 8 };

typedef struct Answers {
    char *at; /* pinned: ANSWERS times ANSWER_BYTES; the n-th copy is at n % ANSWERS */
    cudaEvent_t done[ANSWERS];
    int64_t next;
} Answers;

int64_t memory_ask(struct Gpu *g, const char *from, size_t bytes);
int memory_answer(struct Gpu *g, int64_t number, void *to, size_t bytes);
int memory_upload(struct Gpu *g, char *to, const void *from, size_t bytes);
int memory_download(struct Gpu *g, void *to, const char *from, size_t bytes);

#endif
