/* nccl.c - a stand-in for libnccl.so.2: the functions that host/cuda/nccl.c uses, between GPUs of
 * one process and of several on one host, over sockets. Groups run in their stream's turn, or in a
 * graph's; like NCCL's they hang where a peer is gone, until the communicator is aborted, and calls
 * return before they are done, those of a group too. The first group with a peer is not done before
 * the peer has begun one, so what is not in one group where it must be hangs. A thread lets streams
 * go on while the host waits for other processes elsewhere.
 *
 * STANDIN_NCCL_LOG=FILE: FILE.RANK gets a line for each call: "group", "send PEER BYTES",
 * "recv PEER BYTES". STANDIN_NCCL_STALL=RANK:N: that rank's N-th group (from 0) never
 * ends. */
#include "standin.h"

#include <cuda_runtime_api.h>
#include <errno.h>
#include <nccl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { HOST_TEXT = 64, BUS_TEXT = 16, LATER = 2, PAUSE_US = 100, ERROR_TEXT = 256 };

typedef struct Hello { /* what each says of itself to each */
    int32_t rank;
    char host[HOST_TEXT], bus[BUS_TEXT];
} Hello;

typedef struct Part {
    int peer;
    char *data;
    size_t bytes, at; /* at: so much of the length and the data has gone */
    uint64_t length;  /* goes first, to find sizes that differ */
} Part;

typedef struct Group {
    struct Group *next; /* of the communicator's */
    struct Group *also; /* of those that the caller has open */
    struct ncclComm *comm;
    cudaStream_t stream;
    Part *send, *recv;
    int nsend, nrecv;
    int number;
} Group;

struct ncclComm {
    struct ncclComm *next; /* in this process */
    int rank, world;
    char id[sizeof(ncclUniqueId)];
    Hello hello;
    int *peer;           /* sockets by rank */
    unsigned char *said; /* to that rank, that a group with it has begun */
    unsigned char *met;  /* it has said the same */
    pthread_t joiner;
    Group *all;     /* those that have begun; a graph may run them again */
    Group *pending; /* ended by the caller, and in no stream yet */
    int looks;      /* until what was called is done */
    int groups;
    FILE *log;
    _Atomic int state; /* ncclResult_t */
    _Atomic int aborted, closed;
    int gpu;
    pthread_t worker;
};

static int depth;
static int later;          /* something that was called since the group's start is done later */
static Group *open_groups; /* one of each communicator at most */
static ncclComm_t comms;   /* of this process, those that are not destroyed */
static char last_error[ERROR_TEXT];

/* ---- failures ---- */

static void fail(ncclComm_t c, ncclResult_t code, const char *text) {
    snprintf(last_error, sizeof last_error, "%s", text);
    c->state = code;
}

/* A line on stderr: what NCCL may not have noticed. */
static ncclResult_t wrong(const char *text) {
    fprintf(stderr, "standin: NCCL: %s\n", text);
    snprintf(last_error, sizeof last_error, "%s", text);
    return ncclInvalidUsage;
}

/* ---- sockets ---- */

static struct sockaddr_un address(const ncclComm_t c, int rank, socklen_t *size) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    int n = snprintf(a.sun_path + 1, sizeof a.sun_path - 1, "standin-nccl-%.64s-%d", c->id, rank);
    *size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
    return a;
}

/* All of it, both ways; 0: the other is gone. */
static int greet(ncclComm_t c, int fd, Hello *theirs) {
    return send(fd, &c->hello, sizeof c->hello, MSG_NOSIGNAL) == sizeof c->hello &&
           recv(fd, theirs, sizeof *theirs, MSG_WAITALL) == sizeof *theirs;
}

static int connect_to(ncclComm_t c, int rank) {
    socklen_t size;
    struct sockaddr_un a = address(c, rank, &size);
    while (!c->aborted) {
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (connect(fd, (struct sockaddr *)&a, size) == 0) return fd;
        close(fd);
        usleep(1000);
    }
    return -1;
}

static int same_gpu(const Hello *a, const Hello *b) {
    return strcmp(a->host, b->host) == 0 && strcmp(a->bus, b->bus) == 0;
}

static void *join_others(void *ud) {
    ncclComm_t c = ud;
    socklen_t size;
    struct sockaddr_un a = address(c, c->rank, &size);
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), duplicate = 0;
    if (bind(listener, (struct sockaddr *)&a, size) != 0 || listen(listener, c->world) != 0) {
        fail(c, ncclSystemError, strerror(errno));
        return NULL;
    }
    for (int n = 1; n < c->world; n++) {
        Hello theirs = {.rank = -1};
        int fd = n <= c->rank ? connect_to(c, n - 1) : accept(listener, NULL, NULL);
        if (fd < 0 || !greet(c, fd, &theirs)) {
            fail(c, ncclRemoteError, "a rank is gone");
            return NULL;
        }
        c->peer[theirs.rank] = fd;
        duplicate = duplicate || same_gpu(&c->hello, &theirs);
    }
    close(listener);
    if (duplicate)
        fail(c, ncclInvalidUsage, "Duplicate GPU detected");
    else
        c->state = ncclSuccess;
    return NULL;
}

/* Whether that peer has begun a group with this rank, as this one has with it. */
static int has_met(ncclComm_t c, int peer) {
    char byte = 0;
    if (c->met[peer]) return 1;
    if (!c->said[peer]) c->said[peer] = send(c->peer[peer], &byte, 1, MSG_NOSIGNAL) == 1;
    ssize_t n = recv(c->peer[peer], &byte, 1, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
        fail(c, ncclRemoteError, "a peer is gone");
    c->met[peer] = n == 1;
    return n == 1;
}

static int has_met_all(const Group *g) {
    int all = 1;
    for (int i = 0; i < g->nsend; i++) all &= has_met(g->comm, g->send[i].peer);
    for (int i = 0; i < g->nrecv; i++) all &= has_met(g->comm, g->recv[i].peer);
    return all;
}

/* ---- running a group ---- */

/* The part's next bytes, of the length first; how many. */
static char *rest_of(Part *p, size_t *n) {
    if (p->at < sizeof p->length) {
        *n = sizeof p->length - p->at;
        return (char *)&p->length + p->at;
    }
    *n = sizeof p->length + p->bytes - p->at;
    return p->data + (p->at - sizeof p->length);
}

/* Goes on with the peer's first part that is not over. 1: there is one; -1: it failed. */
static int move(ncclComm_t c, Part *part, int n, int peer, int out) {
    for (int i = 0; i < n; i++) {
        Part *p = &part[i];
        size_t rest;
        if (p->peer != peer || p->at == sizeof p->length + p->bytes) continue;
        char *at = rest_of(p, &rest);
        ssize_t k = out ? send(c->peer[peer], at, rest, MSG_NOSIGNAL | MSG_DONTWAIT)
                        : recv(c->peer[peer], at, rest, MSG_DONTWAIT);
        if (k == 0 || (k < 0 && errno != EAGAIN && errno != EINTR)) return -1;
        if (k > 0) p->at += (size_t)k;
        if (!out && p->at >= sizeof p->length && p->length != p->bytes) return -1;
        return 1;
    }
    return 0;
}

static int stalls(const Group *g) {
    const char *text = getenv("STANDIN_NCCL_STALL");
    int rank, number;
    return text && sscanf(text, "%d:%d", &rank, &number) == 2 && rank == g->comm->rank &&
           number == g->number;
}

typedef struct Run { /* of a group */
    Group *group;
    int begun;
} Run;

static void begin(Group *g) {
    for (int i = 0; i < g->nsend; i++) {
        g->send[i].at = 0;
        g->send[i].length = g->send[i].bytes;
    }
    for (int i = 0; i < g->nrecv; i++) g->recv[i].at = 0;
}

/* One step with every peer. */
static cudaError_t run_group(void *ud) {
    Run *r = ud;
    Group *g = r->group;
    ncclComm_t c = g->comm;
    int left = stalls(g);
    if (!r->begun) begin(g);
    r->begun = 1;
    if (c->aborted) return cudaSuccess;
    if (c->state == ncclRemoteError) return cudaErrorNotReady;
    for (int peer = 0; peer < c->world; peer++) {
        int sent = move(c, g->send, g->nsend, peer, 1);
        int came = move(c, g->recv, g->nrecv, peer, 0);
        if (sent < 0 || came < 0) fail(c, ncclRemoteError, "a peer is gone, or sends another size");
        left = left || sent || came;
    }
    return left ? cudaErrorNotReady : cudaSuccess;
}

/* The GPU works by itself. */
static void *go_on(void *ud) {
    ncclComm_t c = ud;
    cudaSetDevice(c->gpu);
    while (!c->closed)
        if (!standin_go_on()) usleep(PAUSE_US);
    return NULL;
}

/* ---- calls ---- */

#define API __attribute__((visibility("default")))

ncclResult_t ncclGroupStart(void); /* nccl.h has them without prototypes */
ncclResult_t ncclGroupEnd(void);

API const char *ncclGetErrorString(ncclResult_t code) {
    static const char *const text[] = {"no error",
                                       "unhandled cuda error",
                                       "unhandled system error",
                                       "internal error",
                                       "invalid argument",
                                       "invalid usage",
                                       "remote process exited or there was a network error",
                                       "in progress"};
    return code < sizeof text / sizeof *text ? text[code] : "unknown";
}

API const char *ncclGetLastError(ncclComm_t c) {
    (void)c; /* nor does NCCL look at it */
    return last_error;
}

API ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    memset(id, 0, sizeof *id);
    snprintf(id->internal, sizeof id->internal, "%d-%lld", (int)getpid(),
             (long long)t.tv_sec * 1000000000 + t.tv_nsec);
    return ncclSuccess;
}

static ncclResult_t in_progress(void) {
    later = 1;
    return ncclInProgress;
}

static void describe(Hello *h, int rank, int gpu) {
    const char *host = getenv("NCCL_HOSTID");
    h->rank = rank;
    snprintf(h->host, sizeof h->host, "%s", host ? host : "here");
    cudaDeviceGetPCIBusId(h->bus, sizeof h->bus, gpu);
}

API ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int world, ncclUniqueId id, int rank,
                                        ncclConfig_t *config) {
    const char *log = getenv("STANDIN_NCCL_LOG");
    char file[4096];
    ncclComm_t c = calloc(1, sizeof *c);
    if (!c || rank < 0 || rank >= world || config->blocking != 0) return ncclInvalidArgument;
    c->rank = rank;
    c->world = world;
    memcpy(c->id, id.internal, sizeof c->id);
    c->peer = calloc((size_t)world, sizeof *c->peer);
    c->said = calloc((size_t)world, 1);
    c->met = calloc((size_t)world, 1);
    if (!c->peer || !c->said || !c->met) return ncclSystemError;
    for (int i = 0; i < world; i++) c->peer[i] = -1;
    cudaGetDevice(&c->gpu);
    describe(&c->hello, rank, c->gpu);
    snprintf(file, sizeof file, "%s.%d", log ? log : "", rank);
    if (log) c->log = fopen(file, "w");
    c->state = ncclInProgress;
    if (pthread_create(&c->joiner, NULL, join_others, c) != 0 ||
        pthread_create(&c->worker, NULL, go_on, c) != 0)
        return ncclSystemError;
    c->next = comms;
    comms = c;
    *out = c;
    return in_progress();
}

/* What was called is done after some looks. */
API ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *out) {
    *out = (ncclResult_t)c->state;
    if (*out != ncclSuccess) return ncclSuccess;
    if (c->looks > 0) {
        c->looks--;
        *out = ncclInProgress;
        return ncclSuccess;
    }
    Group *g = c->pending;
    if (g && !has_met_all(g)) {
        *out = c->state == ncclSuccess ? ncclInProgress : (ncclResult_t)c->state;
        return ncclSuccess;
    }
    c->pending = NULL;
    Run run = {.group = g};
    if (g && standin_enqueue(g->stream, run_group, &run, sizeof run) != cudaSuccess)
        fail(c, ncclUnhandledCudaError, "a group");
    return ncclSuccess;
}

API ncclResult_t ncclGroupStart(void) {
    if (depth++ > 0) return ncclSuccess;
    open_groups = NULL;
    later = 0;
    return ncclSuccess;
}

static Group *open_group(ncclComm_t c, cudaStream_t stream) {
    Group *g = open_groups;
    while (g && g->comm != c) g = g->also;
    if (g) return g;
    g = calloc(1, sizeof *g);
    if (!g) return NULL;
    *g = (Group){
        .next = c->all, .also = open_groups, .comm = c, .stream = stream, .number = c->groups++};
    c->all = open_groups = g;
    if (c->log) fprintf(c->log, "group\n");
    return g;
}

static ncclResult_t add(ncclComm_t c, void *data, size_t bytes, int peer, cudaStream_t stream,
                        int out) {
    struct cudaPointerAttributes at;
    if (depth == 0 || peer < 0 || peer >= c->world || peer == c->rank) return ncclInvalidUsage;
    if (c->pending || c->state != ncclSuccess) return ncclInvalidUsage;
    if (standin_device_of(stream) != c->gpu) return wrong("a stream of another GPU");
    if (cudaPointerGetAttributes(&at, data) != cudaSuccess) return ncclUnhandledCudaError;
    if (at.type != cudaMemoryTypeDevice || at.device != c->gpu)
        return wrong("memory of another GPU");
    Group *g = open_group(c, stream);
    if (!g) return ncclSystemError;
    if (g->stream != stream) return wrong("two streams in one group");
    Part **list = out ? &g->send : &g->recv;
    int *n = out ? &g->nsend : &g->nrecv;
    Part *grown = realloc(*list, sizeof *grown * (size_t)(*n + 1));
    if (!grown) return ncclSystemError;
    *list = grown;
    grown[(*n)++] = (Part){.peer = peer, .data = data, .bytes = bytes};
    if (c->log) fprintf(c->log, "%s %d %zu\n", out ? "send" : "recv", peer, bytes);
    return in_progress();
}

API ncclResult_t ncclSend(const void *data, size_t count, ncclDataType_t type, int peer,
                          ncclComm_t c, cudaStream_t stream) {
    if (type != ncclInt8) return ncclInvalidArgument;
    return add(c, (void *)(uintptr_t)data, count, peer, stream, 1);
}

API ncclResult_t ncclRecv(void *data, size_t count, ncclDataType_t type, int peer, ncclComm_t c,
                          cudaStream_t stream) {
    if (type != ncclInt8) return ncclInvalidArgument;
    return add(c, data, count, peer, stream, 0);
}

API ncclResult_t ncclGroupEnd(void) {
    if (depth == 0) return ncclInvalidUsage;
    if (--depth > 0) return ncclSuccess;
    for (Group *g = open_groups; g; g = g->also) {
        g->comm->pending = g;
        g->comm->looks = LATER;
        if (g->comm->log) fflush(g->comm->log);
    }
    return later ? ncclInProgress : ncclSuccess;
}

/* Ranks of one host end together: one thread that calls for one after the other may hang. */
static int is_alone(void) {
    return depth == 0 && comms && comms->next;
}

API ncclResult_t ncclCommFinalize(ncclComm_t c) {
    if (is_alone()) return wrong("communicators are finalized one by one");
    c->looks = LATER;
    return in_progress();
}

API ncclResult_t ncclCommDestroy(ncclComm_t c) {
    ncclComm_t *at = &comms;
    while (*at != c) at = &(*at)->next;
    *at = c->next;
    c->closed = 1;
    pthread_join(c->joiner, NULL);
    pthread_join(c->worker, NULL);
    for (int i = 0; i < c->world; i++)
        if (c->peer[i] >= 0) close(c->peer[i]);
    while (c->all) {
        Group *g = c->all;
        c->all = g->next;
        free(g->send);
        free(g->recv);
        free(g);
    }
    if (c->log) fclose(c->log);
    free(c->peer);
    free(c->said);
    free(c->met);
    free(c);
    return ncclSuccess;
}

/* Its groups end when a stream comes to them. */
API ncclResult_t ncclCommAbort(ncclComm_t c) {
    if (is_alone()) return wrong("communicators are aborted one by one");
    c->aborted = 1;
    return ncclSuccess;
}
