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

enum { ERROR_TEXT = sizeof((Cuda *)0)->error, LOOKS = 10000, PAUSE_US = 100 };

/* A GPU of this process, which is a rank. */
typedef struct Member {
    Gpu *gpu;
    ncclComm_t comm;     /* NULL: not yet, or it failed: then that of all */
    cudaStream_t stream; /* of messages */
    cudaEvent_t ready;
} Member;

typedef struct Mark { /* the end of a request in a member's stream */
    cudaEvent_t done;
    int takes_part;
    int on_its_way;
} Mark;

typedef struct Request {
    struct Request *next; /* of those that are free */
    Mark mark[];          /* of each member */
} Request;

typedef struct Nccl {
    Cuda *cuda;
    ApiNccl api;
    Request *spare;
    char error[ERROR_TEXT];
    int32_t first, count; /* ranks of this process */
    Member member[];
} Nccl;

/* ---- failures ---- */

/* Keeps the text of a call that failed. */
static int good(Nccl *n, int is) {
    if (!is) snprintf(n->error, sizeof n->error, "%s", n->cuda->error);
    return is;
}

static int goes_on(ncclResult_t code) {
    return code == ncclSuccess || code == ncclInProgress;
}

/* A call for each communicator, in one group: alone, the first would wait for the others. What
 * fails for one keeps it from none of them. */
static ncclResult_t for_all(Nccl *n, ncclResult_t (*call)(ncclComm_t)) {
    ncclResult_t code = n->api.ncclGroupStart();
    for (int32_t i = 0; i < n->count; i++) {
        ncclResult_t one = n->member[i].comm ? call(n->member[i].comm) : ncclSuccess;
        if (goes_on(code)) code = one;
    }
    ncclResult_t end = n->api.ncclGroupEnd();
    return goes_on(code) ? end : code;
}

/* After a failure nothing goes through any more; what waits on a GPU for messages goes on. */
static void give_up(Nccl *n, const char *what, ncclResult_t code) {
    const char *more = n->api.ncclGetLastError(NULL);
    snprintf(n->error, sizeof n->error, "%s: %s%s%s", what, n->api.ncclGetErrorString(code),
             more && *more ? ": " : "", more ? more : "");
    for_all(n, n->api.ncclCommAbort);
    for (int32_t i = 0; i < n->count; i++) n->member[i].comm = NULL;
}

/* The first failure, or whether any communicator is still at what was called. */
static ncclResult_t ask(const Nccl *n) {
    ncclResult_t all = ncclSuccess;
    for (int32_t i = 0; i < n->count; i++) {
        ncclResult_t code;
        ncclResult_t asked = n->api.ncclCommGetAsyncError(n->member[i].comm, &code);
        if (asked != ncclSuccess) code = asked;
        if (!goes_on(code)) return code;
        if (code == ncclInProgress) all = code;
    }
    return all;
}

/* Calls return before they are done: the communicators say when they are. 0: it failed. */
static int finish(Nccl *n, const char *what, ncclResult_t code) {
    for (int looks = 0; code == ncclInProgress; looks++) {
        if (looks < LOOKS)
            sched_yield();
        else
            usleep(PAUSE_US);
        code = ask(n);
    }
    if (code != ncclSuccess) give_up(n, what, code);
    return code == ncclSuccess;
}

/* ---- requests ---- */

static void drop(Nccl *n, Request *r) {
    for (int32_t i = 0; i < n->count; i++)
        if (r->mark[i].done) n->cuda->rt.cudaEventDestroy(r->mark[i].done);
    free(r);
}

/* An event is for the streams of the GPU that was current when it was made. */
static int new_event(Nccl *n, const Member *m, cudaEvent_t *event) {
    Cuda *c = n->cuda;
    return good(n, gpu_use(m->gpu) &&
                       gpu_ok(c, c->rt.cudaEventCreateWithFlags(event, cudaEventDisableTiming),
                              "cudaEventCreateWithFlags"));
}

static Request *take(Nccl *n) {
    Request *r = n->spare;
    int made = 1;
    if (r) {
        n->spare = r->next;
        return r;
    }
    r = calloc(1, sizeof *r + sizeof *r->mark * (size_t)n->count);
    if (!r) {
        snprintf(n->error, sizeof n->error, "out of memory for messages");
        return NULL;
    }
    for (int32_t i = 0; i < n->count && made; i++)
        made = new_event(n, &n->member[i], &r->mark[i].done);
    if (made) return r;
    drop(n, r);
    return NULL;
}

static void give(Nccl *n, Request *r) {
    r->next = n->spare;
    n->spare = r;
}

/* ---- messages ---- */

static int record(Nccl *n, cudaEvent_t event, cudaStream_t stream) {
    Cuda *c = n->cuda;
    return good(n, gpu_ok(c, c->rt.cudaEventRecord(event, stream), "cudaEventRecord"));
}

static int wait_for(Nccl *n, cudaStream_t stream, cudaEvent_t event) {
    Cuda *c = n->cuda;
    return good(n, gpu_ok(c, c->rt.cudaStreamWaitEvent(stream, event, 0), "cudaStreamWaitEvent"));
}

static Member *owner(Nccl *n, const CommPart *part) {
    return &n->member[part->own - n->first];
}

/* Without parts all take part: it is over when what is in the queues is. */
static void find_members(const Nccl *n, Request *r, const CommPart *send, int32_t nsend,
                         const CommPart *recv, int32_t nrecv) {
    for (int32_t i = 0; i < n->count; i++) r->mark[i].takes_part = nsend + nrecv == 0;
    for (int32_t i = 0; i < nsend; i++) r->mark[send[i].own - n->first].takes_part = 1;
    for (int32_t i = 0; i < nrecv; i++) r->mark[recv[i].own - n->first].takes_part = 1;
}

/* Messages come after what is in the queue. */
static int enter(Nccl *n, const Member *m, Mark *mark) {
    mark->on_its_way = mark->takes_part;
    return !mark->takes_part || (good(n, gpu_use(m->gpu)) && record(n, m->ready, m->gpu->stream) &&
                                 wait_for(n, m->stream, m->ready));
}

static int leave(Nccl *n, const Member *m, const Mark *mark) {
    return !mark->takes_part || (good(n, gpu_use(m->gpu)) && record(n, mark->done, m->stream));
}

/* All parts of all members at a time: whoever sends first waits for nobody. */
static int exchange(Nccl *n, const CommPart *send, int32_t nsend, const CommPart *recv,
                    int32_t nrecv) {
    const ApiNccl *api = &n->api;
    ncclResult_t code = api->ncclGroupStart();
    for (int32_t i = 0; goes_on(code) && i < nrecv; i++) {
        const Member *m = owner(n, &recv[i]);
        code =
            api->ncclRecv(recv[i].data, recv[i].bytes, ncclInt8, recv[i].peer, m->comm, m->stream);
    }
    for (int32_t i = 0; goes_on(code) && i < nsend; i++) {
        const Member *m = owner(n, &send[i]);
        code =
            api->ncclSend(send[i].data, send[i].bytes, ncclInt8, send[i].peer, m->comm, m->stream);
    }
    ncclResult_t end = api->ncclGroupEnd();
    return finish(n, "NCCL", goes_on(code) ? end : code);
}

static int begin(Nccl *n, Request *r, const CommPart *send, int32_t nsend, const CommPart *recv,
                 int32_t nrecv) {
    if (!n->member[0].comm) return 0; /* `error` has said why */
    find_members(n, r, send, nsend, recv, nrecv);
    for (int32_t i = 0; i < n->count; i++)
        if (!enter(n, &n->member[i], &r->mark[i])) return 0;
    if (nsend + nrecv > 0 && !exchange(n, send, nsend, recv, nrecv)) return 0;
    for (int32_t i = 0; i < n->count; i++)
        if (!leave(n, &n->member[i], &r->mark[i])) return 0;
    return 1;
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

static int keep_queues(void *self, void *request) {
    Nccl *n = self;
    const Request *r = request;
    for (int32_t i = 0; i < n->count; i++)
        if (r->mark[i].takes_part && !wait_for(n, n->member[i].gpu->stream, r->mark[i].done))
            return 0;
    return 1;
}

/* -1, 0 or 1: see Comm.over. */
static int look(Nccl *n, Request *r) {
    Cuda *c = n->cuda;
    int left = 0;
    if (!n->member[0].comm) return -1; /* what came may not be whole */
    for (int32_t i = 0; i < n->count; i++) {
        Mark *mark = &r->mark[i];
        if (!mark->on_its_way) continue;
        cudaError_t state = c->rt.cudaEventQuery(mark->done);
        if (state == cudaErrorNotReady)
            c->rt.cudaGetLastError(); /* no failure, and not to be taken for one */
        else if (!good(n, gpu_ok(c, state, "messages")))
            return -1;
        mark->on_its_way = state == cudaErrorNotReady;
        left += mark->on_its_way;
    }
    if (!left) return 1;
    ncclResult_t code = ask(n);
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
    const ApiCudart *rt = &n->cuda->rt;
    for (int32_t i = 0; i < n->count; i++)
        if (n->member[i].comm) rt->cudaStreamSynchronize(n->member[i].stream);
    if (n->member[0].comm && finish(n, "the end of NCCL", for_all(n, n->api.ncclCommFinalize)))
        for_all(n, n->api.ncclCommDestroy);
    while (n->spare) {
        Request *r = n->spare;
        n->spare = r->next;
        drop(n, r);
    }
    for (int32_t i = 0; i < n->count; i++) {
        if (n->member[i].ready) rt->cudaEventDestroy(n->member[i].ready);
        if (n->member[i].stream) rt->cudaStreamDestroy(n->member[i].stream);
    }
    free(n);
}

static int load(Cuda *c, ApiNccl *api) {
    const ApiLibrary library = API_LIBRARY("NCCL", API_NCCL, "libnccl.so.2");
    return api_open(&library, API_ANY, api, c->error, sizeof c->error);
}

int nccl_meet(Cuda *c, char *id) {
    ApiNccl api;
    if (!load(c, &api)) return 0;
    if (!id) return 1;
    ncclResult_t code = api.ncclGetUniqueId((ncclUniqueId *)(void *)id);
    return code == ncclSuccess || gpu_fail(c, "NCCL: %s", api.ncclGetErrorString(code));
}

/* Its work goes first where there is a choice: others wait for it. */
static int open_member(Nccl *n, Member *m) {
    Cuda *c = n->cuda;
    int least = 0, greatest = 0;
    return new_event(n, m, &m->ready) &&
           good(n, gpu_ok(c, c->rt.cudaDeviceGetStreamPriorityRange(&least, &greatest),
                          "cudaDeviceGetStreamPriorityRange") &&
                       gpu_ok(c,
                              c->rt.cudaStreamCreateWithPriority(&m->stream, cudaStreamNonBlocking,
                                                                 greatest),
                              "cudaStreamCreateWithPriority"));
}

static int join(Nccl *n, const char id[DEVICE_ID], int32_t world) {
    ncclUniqueId where;
    memcpy(&where, id, sizeof where);
    for (int32_t i = 0; i < n->count; i++)
        if (!open_member(n, &n->member[i])) return 0;
    ncclResult_t code = n->api.ncclGroupStart();
    for (int32_t i = 0; i < n->count && goes_on(code); i++) {
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 0;
        code = !good(n, gpu_use(n->member[i].gpu))
                   ? ncclUnhandledCudaError
                   : n->api.ncclCommInitRankConfig(&n->member[i].comm, world, where, n->first + i,
                                                   &config);
    }
    ncclResult_t end = n->api.ncclGroupEnd();
    return finish(n, "the start of NCCL", goes_on(code) ? end : code);
}

int nccl_join(Cuda *c, const char id[DEVICE_ID], int32_t first, int32_t world, Comm *out) {
    Nccl *n = calloc(1, sizeof *n + sizeof *n->member * (size_t)c->ngpu);
    if (!n) return gpu_fail(c, "out of memory for messages");
    n->cuda = c;
    n->first = first;
    n->count = c->ngpu;
    for (int32_t i = 0; i < c->ngpu; i++) n->member[i].gpu = &c->gpu[i];
    if (!good(n, load(c, &n->api)) || !join(n, id, world)) {
        gpu_fail(c, "%s", n->error);
        close_comm(n);
        return 0;
    }
    *out = (Comm){.version = COMM_VERSION,
                  .rank = first,
                  .world = world,
                  .self = n,
                  .start = start,
                  .help = help,
                  .wait = keep_queues,
                  .over = over,
                  .error = error_text,
                  .close = close_comm};
    return 1;
}
