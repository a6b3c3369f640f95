#include "cuda/nccl.h"

#include <nccl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define API_NCCL(F)                                                                                \
    F(ncclCommAbort)                                                                               \
    F(ncclCommDestroy)                                                                             \
    F(ncclCommFinalize)                                                                            \
    F(ncclCommGetAsyncError)                                                                       \
    F(ncclCommInitRankConfig)                                                                      \
    F(ncclGetErrorString)                                                                          \
    F(ncclGetLastError)                                                                            \
    F(ncclGetUniqueId)                                                                             \
    F(ncclGroupEnd)                                                                                \
    F(ncclGroupStart)                                                                              \
    F(ncclRecv)                                                                                    \
    F(ncclSend)

typedef struct ApiNccl {
    API_NCCL(API_MEMBER)
} ApiNccl;

_Static_assert(sizeof(ncclUniqueId) == DEVICE_ID, "an id is NCCL's");

enum { ERROR_TEXT = 1024, LOOKS = 10000, PAUSE_US = 100 };

typedef struct Request {
    struct Request *next; /* of those that are free */
    cudaEvent_t done;
    int captured; /* it is part of a graph, and not on its way itself */
} Request;

typedef struct Nccl {
    const ApiCudart *cuda;
    ApiNccl api;
    ncclComm_t comm;            /* NULL: not yet, or it failed */
    cudaStream_t queue, stream; /* of the GPU's work; of messages */
    cudaEvent_t ready;
    Request *spare;
    char error[ERROR_TEXT];
} Nccl;

static int load(ApiNccl *api, char *error, size_t size) {
    const ApiLibrary library = API_LIBRARY("NCCL", API_NCCL, "libnccl.so.2");
    return api_open(&library, API_ANY, api, error, size);
}

/* ---- failures ---- */

static int cuda_failed(Nccl *n, const char *what, cudaError_t code) {
    if (code == cudaSuccess) return 0;
    n->cuda->cudaGetLastError(); /* or the next call would give it again */
    snprintf(n->error, sizeof n->error, "%s: %s", what, n->cuda->cudaGetErrorString(code));
    return 1;
}

/* After a failure nothing goes through any more; what waits on the GPU for messages goes on. */
static void give_up(Nccl *n, const char *what, ncclResult_t code) {
    const char *more = n->api.ncclGetLastError(n->comm);
    snprintf(n->error, sizeof n->error, "%s: %s%s%s", what, n->api.ncclGetErrorString(code),
             more && *more ? ": " : "", more ? more : "");
    if (n->comm) n->api.ncclCommAbort(n->comm);
    n->comm = NULL;
}

/* Calls return before they are done: the communicator says when they are. 0: it failed. */
static int finish(Nccl *n, const char *what, ncclResult_t code) {
    for (int looks = 0; code == ncclInProgress; looks++) {
        if (looks < LOOKS)
            sched_yield();
        else
            usleep(PAUSE_US);
        ncclResult_t asked = n->api.ncclCommGetAsyncError(n->comm, &code);
        if (asked != ncclSuccess) code = asked;
    }
    if (code != ncclSuccess) give_up(n, what, code);
    return code == ncclSuccess;
}

/* ---- messages ---- */

static Request *take(Nccl *n) {
    Request *r = n->spare;
    if (r) {
        n->spare = r->next;
        return r;
    }
    r = calloc(1, sizeof *r);
    if (!r) snprintf(n->error, sizeof n->error, "out of memory for messages");
    if (r && !cuda_failed(n, "an event",
                          n->cuda->cudaEventCreateWithFlags(&r->done, cudaEventDisableTiming)))
        return r;
    free(r);
    return NULL;
}

static void give(Nccl *n, Request *r) {
    r->next = n->spare;
    n->spare = r;
}

/* What comes into `later` from here on waits for what is in `earlier`. */
static int follow(Nccl *n, cudaStream_t later, cudaStream_t earlier) {
    return !cuda_failed(n, "an event", n->cuda->cudaEventRecord(n->ready, earlier)) &&
           !cuda_failed(n, "an event", n->cuda->cudaStreamWaitEvent(later, n->ready, 0));
}

static int goes_on(ncclResult_t code) {
    return code == ncclSuccess || code == ncclInProgress;
}

/* All of them at a time: whoever sends first waits for nobody. */
static int exchange(Nccl *n, const CommPart *send, int32_t nsend, const CommPart *recv,
                    int32_t nrecv) {
    const ApiNccl *api = &n->api;
    ncclResult_t code = api->ncclGroupStart();
    for (int32_t i = 0; goes_on(code) && i < nrecv; i++)
        code =
            api->ncclRecv(recv[i].data, recv[i].bytes, ncclInt8, recv[i].peer, n->comm, n->stream);
    for (int32_t i = 0; goes_on(code) && i < nsend; i++)
        code =
            api->ncclSend(send[i].data, send[i].bytes, ncclInt8, send[i].peer, n->comm, n->stream);
    ncclResult_t end = api->ncclGroupEnd();
    return finish(n, "NCCL", goes_on(code) ? end : code);
}

/* Without parts it is over when what is in the queue is. */
static int begin(Nccl *n, Request *r, const CommPart *send, int32_t nsend, const CommPart *recv,
                 int32_t nrecv) {
    enum cudaStreamCaptureStatus status;
    cudaStream_t last = n->queue;
    if (!n->comm) return 0; /* `error` has said why */
    if (cuda_failed(n, "the queue", n->cuda->cudaStreamIsCapturing(n->queue, &status))) return 0;
    r->captured = status == cudaStreamCaptureStatusActive;
    if (nsend + nrecv > 0) {
        if (!follow(n, n->stream, n->queue) || !exchange(n, send, nsend, recv, nrecv)) return 0;
        last = n->stream;
    }
    return !cuda_failed(n, "an event", n->cuda->cudaEventRecord(r->done, last));
}

static void *start(void *self, const CommPart *send, int32_t nsend, const CommPart *recv,
                   int32_t nrecv) {
    Nccl *n = self;
    Request *r = take(n);
    if (!r || begin(n, r, send, nsend, recv, nrecv)) return r;
    give(n, r);
    return NULL;
}

static void help(void *self, void *request) {
    (void)self, (void)request; /* NCCL has threads of its own for what the GPU does not do */
}

static int wait_for(void *self, void *request) {
    Nccl *n = self;
    Request *r = request;
    return !cuda_failed(n, "an event", n->cuda->cudaStreamWaitEvent(n->queue, r->done, 0));
}

/* -1, 0 or 1: see Comm.over. */
static int look(Nccl *n, const Request *r) {
    ncclResult_t code, asked;
    cudaError_t state = r->captured ? cudaSuccess : n->cuda->cudaEventQuery(r->done);
    if (!n->comm) return -1; /* what came may not be whole */
    if (state == cudaSuccess) return 1;
    if (state != cudaErrorNotReady) return cuda_failed(n, "messages", state) ? -1 : 0;
    n->cuda->cudaGetLastError(); /* no failure, and not to be taken for one */
    asked = n->api.ncclCommGetAsyncError(n->comm, &code);
    if (asked != ncclSuccess) code = asked;
    if (goes_on(code)) return 0;
    give_up(n, "NCCL", code);
    return -1;
}

static int over(void *self, void *request) {
    int state = look(self, request);
    if (state) give(self, request);
    return state;
}

static const char *error_text(void *self) {
    return ((Nccl *)self)->error;
}

/* ---- joining ---- */

static void close_comm(void *self) {
    Nccl *n = self;
    if (n->comm) n->cuda->cudaStreamSynchronize(n->stream);
    if (n->comm && finish(n, "the end of NCCL", n->api.ncclCommFinalize(n->comm)))
        n->api.ncclCommDestroy(n->comm);
    while (n->spare) {
        Request *r = n->spare;
        n->spare = r->next;
        n->cuda->cudaEventDestroy(r->done);
        free(r);
    }
    if (n->ready) n->cuda->cudaEventDestroy(n->ready);
    if (n->stream) n->cuda->cudaStreamDestroy(n->stream);
    free(n);
}

int nccl_meet(char *id, char *error, size_t size) {
    ApiNccl api;
    if (!load(&api, error, size)) return 0;
    if (!id) return 1;
    ncclResult_t code = api.ncclGetUniqueId((ncclUniqueId *)(void *)id);
    if (code != ncclSuccess) snprintf(error, size, "NCCL: %s", api.ncclGetErrorString(code));
    return code == ncclSuccess;
}

/* Its work goes first where there is a choice: others wait for it. */
static int open_stream(Nccl *n) {
    int least = 0, greatest = 0;
    return !cuda_failed(n, "a stream",
                        n->cuda->cudaDeviceGetStreamPriorityRange(&least, &greatest)) &&
           !cuda_failed(
               n, "a stream",
               n->cuda->cudaStreamCreateWithPriority(&n->stream, cudaStreamNonBlocking, greatest));
}

static int join(Nccl *n, int gpu, const char id[DEVICE_ID], int32_t rank, int32_t world) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId where;
    memcpy(&where, id, sizeof where);
    config.blocking = 0;
    if (cuda_failed(n, "the GPU", n->cuda->cudaSetDevice(gpu)) || !open_stream(n) ||
        cuda_failed(n, "an event",
                    n->cuda->cudaEventCreateWithFlags(&n->ready, cudaEventDisableTiming)))
        return 0;
    return finish(n, "the start of NCCL",
                  n->api.ncclCommInitRankConfig(&n->comm, world, where, rank, &config));
}

int nccl_join(const ApiCudart *cuda, int gpu, cudaStream_t queue, const char id[DEVICE_ID],
              int32_t rank, int32_t world, Comm *out, char *error, size_t size) {
    Nccl *n = calloc(1, sizeof *n);
    if (!n) {
        snprintf(error, size, "out of memory for messages");
        return 0;
    }
    n->cuda = cuda;
    n->queue = queue;
    if (!load(&n->api, n->error, sizeof n->error) || !join(n, gpu, id, rank, world)) {
        snprintf(error, size, "%s", n->error);
        close_comm(n);
        return 0;
    }
    *out = (Comm){.version = COMM_VERSION,
                  .rank = rank,
                  .world = world,
                  .self = n,
                  .start = start,
                  .help = help,
                  .wait = wait_for,
                  .over = over,
                  .error = error_text,
                  .close = close_comm};
    return 1;
}
