/* device.h - the contract between run/ and a library that has devices with memory of their own
 * (CUDA): plain C, and with kernel.h the only header of ours that such a library includes besides
 * its own.
 *
 * The library has one symbol, device_open. It is asked by one thread only. Work is put into a
 * queue, one for each GPU, and runs later in the order in which it was put there; only what says
 * that it waits does. Functions that return int give 1, or 0 with a text in `error`. */
#ifndef MESHLUA_RUN_GPU_DEVICE_H
#define MESHLUA_RUN_GPU_DEVICE_H

#include "kernel.h"
#include "run/comm/comm.h"

enum { DEVICE_VERSION = 4, DEVICE_NAME = 64, DEVICE_BUS = 32, DEVICE_ID = 128 };

typedef struct DeviceGpu {
    char name[DEVICE_NAME]; /* "NVIDIA H200" */
    char bus[DEVICE_BUS];   /* its place on the bus: the same one in two processes is one GPU */
    int32_t index;          /* among those that the process may see */
    int32_t major, minor;   /* compute capability */
    int32_t processors;     /* streaming multiprocessors */
    size_t memory;          /* bytes */
} DeviceGpu;

/* What a kernel found in its data: see KFault. `tag` is that of the launch. */
typedef struct DeviceFault {
    KFault fault;
    int64_t tag;
} DeviceFault;

typedef struct DeviceWork { /* a kernel and what `bind` has made of it */
    const char *kernel;
    const KArgs *args;
    void *bound;
} DeviceWork;

typedef struct Device {
    int32_t version;
    int32_t gpus; /* that this process uses */
    const DeviceGpu *gpu;
    int32_t driver,
        runtime; /* CUDA's versions, 13000 for 13.0: what the driver serves, what runs */
    void *self;
    const char *(*error)(void *self); /* of the latest failure, in CUDA's words */

    /* ---- memory: `gpu` is an index into the list above ---- */
    /* Aligned to 256 bytes, not zeroed; NULL: there is not so much (`error` says so). */
    char *(*alloc)(void *self, int32_t gpu, size_t bytes);
    /* What is in the queue may still use it: the next user of the memory comes after that. */
    void (*free)(void *self, int32_t gpu, char *at, size_t bytes);
    size_t (*available)(void *self, int32_t gpu); /* bytes that alloc could still give */
    /* After what is in the queue. `from` may change when it returns. */
    int (*upload)(void *self, int32_t gpu, char *to, const void *from, size_t bytes);
    /* After what is in the queue; waits. */
    int (*download)(void *self, int32_t gpu, void *to, const char *from, size_t bytes);
    /* The same of 8 bytes at most, in two parts: `ask` puts the copy into the queue, and gives its
     * number, < 0 where it failed; `answer` waits for that copy and for nothing behind it. < 0: so
     * many were asked for since that it is no longer known. */
    int64_t (*ask)(void *self, int32_t gpu, const char *from, size_t bytes);
    int (*answer)(void *self, int32_t gpu, int64_t number, void *to, size_t bytes);
    /* `source` is the GPU that `from` is of: after what is in both queues, and before what comes
     * into either. */
    int (*move)(void *self, int32_t gpu, char *to, int32_t source, const char *from, size_t bytes);
    int (*fill)(void *self, int32_t gpu, char *to, int byte, size_t bytes);
    /* Waits for all that is in the queue. Before the first use: begins with that GPU, which may
     * fail where others have it. */
    int (*wait)(void *self, int32_t gpu);
    /* The first fault since the last time, of what has been waited for: 1, or 0 for none. */
    int (*fault)(void *self, int32_t gpu, DeviceFault *out);

    /* ---- kernels ---- */
    /* Gets a kernel ready for operands of these dtypes, dims, strides, attr and offsets (data is
     * not read, nor kept; the pointers are). What is not cached may still be compiled when it
     * returns: the first launch waits for it. *scratch: bytes that a launch needs beside its
     * operands. NULL: it failed; there is no such kernel, or it does not take these operands. */
    void *(*bind)(void *self, int32_t gpu, const char *kernel, const KArgs *args, size_t *scratch);
    /* One launch for two kernels: input `to` of the second is operand `from` of the first (inputs,
     * then outputs). It is an output that nobody else reads, or an input, and then neither reads
     * what the other writes. The launch runs both, or what comes to the same except for rounding;
     * which of them is faster it finds out the first time, unless that is kept for a graph. An
     * output that the second reads may be left as it was. Operands: the inputs of the first, those
     * of the second, then the outputs of both. From then on `bound` of both is a part of it. NULL,
     * which is no failure: there is only one way. */
    void *(*pair)(void *self, int32_t gpu, const DeviceWork work[2], int32_t from, int32_t to,
                  size_t *scratch);
    void (*unbind)(void *self, void *bound);
    /* Puts it into the queue, with the addresses that args->in and args->out have now. */
    int (*launch)(void *self, void *bound, const KArgs *args, char *scratch, int64_t tag);

    /* ---- graphs: what a queue gets between `capture` and `captured` is kept, not run ---- */
    int (*capture)(void *self, int32_t gpu);
    void *(*captured)(void *self, int32_t gpu); /* NULL: it failed; nothing has run */
    int (*replay)(void *self, int32_t gpu, void *graph);
    void (*forget)(void *self, void *graph);

    /* ---- time ---- */
    /* Marks a place in the queue; the number stands for it until so many more have been made. */
    int64_t (*stamp)(void *self, int32_t gpu);
    /* Seconds between two of them; waits for the later one. < 0: one of them is no longer known. */
    double (*between)(void *self, int32_t gpu, int64_t from, int64_t to);
    /* Names the work that follows, for a profiler of the system's (NVTX); NULL ends the latest. */
    void (*range)(void *self, const char *name);

    /* ---- messages between GPUs, of this process and of others (NCCL) ---- */
    /* Rank 0's process: what all others need to join. With NULL it only sees
     * whether NCCL is there. */
    int (*meet)(void *self, char *id);
    /* Joins with all GPUs of this process, which become the ranks from `first` on, of `world`; the
     * Comm then carries bytes of their memory: `start` comes after what is in the queues of the
     * GPUs that have a part in it, and `wait` keeps what follows there until it is over, without
     * waiting itself. */
    int (*join)(void *self, const char id[DEVICE_ID], int32_t first, int32_t world, Comm *out);

    void (*close)(void *self);
} Device;

typedef struct DeviceOptions {
    const int32_t *which; /* GPUs by index, in order, of those that CUDA shows; NULL: all */
    int32_t n;
    const char *visible; /* CUDA_VISIBLE_DEVICES, which is why others are not shown; NULL: unset */
    int32_t first_guess; /* of a library's algorithms: none is timed */
    int32_t tf32;        /* products of float32 may round their operands to it */
    int32_t wgmma;       /* attention goes through wgmma where a GPU has it */
    const char *cache; /* a folder, which need not exist, for what is kept between runs; or NULL */
    int32_t check; /* wait for every launch, so that what fails on the GPU is known by its kernel */
} DeviceOptions;

/* 0, with a text in `error`: there is nothing that could be used, and why. */
typedef int DeviceOpen(Device *device, const DeviceOptions *options, char *error, size_t size);
#define DEVICE_OPEN "device_open"

/* What the library makes of a kernel for those operands, as text: the device code of a generated
 * one, for others the files and functions that it uses, one launch after the other. For people and
 * tests: needs no GPU. To be freed by the caller; NULL: there is no such kernel. */
typedef char *DeviceSource(const char *kernel, const KArgs *args, int32_t major, int32_t minor);
#define DEVICE_SOURCE "device_source"
/* Compiles such a text for a GPU of that compute capability. 1, or 0 with the compiler's words. */
typedef int DeviceCompile(const char *source, int32_t major, int32_t minor, char *error,
                          size_t size);
#define DEVICE_COMPILE "device_compile"

#endif
