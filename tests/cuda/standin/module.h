/* module.h - what a compiled piece of device code and the stand-in for libcudart know of each
 * other. Includes nothing: it is compiled with every kernel. */
#ifndef STANDIN_MODULE_H
#define STANDIN_MODULE_H

#ifndef __VECTOR_TYPES_H__ /* CUDA's own, where the host's side includes it */
struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
};
#endif

enum StandinBarrier { STANDIN_SYNC, STANDIN_COUNT, STANDIN_AND, STANDIN_OR };

/* What the lanes of a warp do together. Each lane brings a slot; the last one to come computes the
 * results of all. */
enum StandinWarp {
    STANDIN_SYNCWARP, /* nothing */
    STANDIN_SHUFFLE,  /* StandinShuffle */
    STANDIN_VOTE,     /* StandinVote */
    STANDIN_MATCH,    /* StandinVote: the lanes that have the same value */
    STANDIN_ADD,      /* StandinVote: unsigned; the value becomes the result */
    STANDIN_MIN,      /* ... of unsigned */
    STANDIN_MAX,
    STANDIN_MIN_SIGNED,
    STANDIN_MAX_SIGNED,
    STANDIN_MMA_BF16, /* StandinMma */
    STANDIN_MMA_F16,
    STANDIN_MMA_TF32, /* m16n8k8; b[1] is k = lane % 4 + 4 */
    STANDIN_LDMATRIX, /* StandinMatrices */
    STANDIN_LDMATRIX_TRANS
};
struct StandinShuffle {
    unsigned long long value, result;
    unsigned from; /* lane; of one that does not take part the result is all ones */
};
struct StandinVote {
    unsigned long long value;
    unsigned lanes; /* STANDIN_VOTE: those whose value is not 0 */
};
struct StandinMma {
    float *d;
    const unsigned *a;
    unsigned b[2];
};
struct StandinMatrices {
    const void *row;
    unsigned *to;
    int count;
};

/* cp.async: copies wait in their thread until somebody waits for them. */
enum StandinAsync { STANDIN_ASYNC_COPY, STANDIN_ASYNC_COMMIT, STANDIN_ASYNC_WAIT };

/* What device code calls; all of it belongs to the thread that runs. */
struct StandinCalls {
    int (*barrier)(StandinBarrier kind, int value, int line);
    void (*warp)(StandinWarp kind, unsigned lanes, void *slot, int line);
    unsigned (*active)(void);
    void (*async)(StandinAsync what, void *to, const void *from,
                  int n); /* bytes, or pending groups */
    void (*trap)(const char *what, int line);
};

/* The registers of the running thread. */
struct StandinThread {
    uint3 thread, block;
    dim3 threads, blocks;
    const StandinCalls *calls;
};

struct StandinKernel {
    const char *name;
    unsigned bound; /* __launch_bounds__, or 0 */
    unsigned params;
    const unsigned *sizes;      /* bytes of each parameter */
    void (*run)(void **params); /* the current thread */
};

enum { STANDIN_SHARED = 227 * 1024 };

/* Symbol standin_module of the library. Static shared memory is all of its .bss. */
struct StandinModule {
    StandinThread *thread;
    char *shared, *shared_end;
    char *dynamic; /* of STANDIN_SHARED bytes and a guard, in that range; NULL: none */
    const StandinKernel *kernels;
    unsigned count;
};

#endif
