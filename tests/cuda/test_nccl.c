/* Memory of GPUs between processes, over the stand-ins: what comes is what was sent, in the order
 * of the calls; graphs; what happens when a peer goes, or has the same GPU.
 *
 * test_nccl LIBRARY FOLDER [gpu]: with "gpu" on the first one of this machine, which all share. */
#include "run/device.h"
#include "test.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 4, ROUNDS = 5, ROOM = 1 << 20 };

static const char *library, *folder;
static int on_gpu;

typedef struct Shared { /* by all processes */
    char id[DEVICE_ID];
    volatile int met;
    volatile int failed[MOST];
} Shared;

typedef struct Rank {
    Shared *shared;
    int rank, world;
    Device device;
    Comm comm;
    char *memory; /* of the GPU: what goes, then what comes */
    char host[2 * ROOM];
} Rank;

typedef void Play(Rank *r);

/* ---- what goes from one to another in a round ---- */

static size_t size_of(int round, int from, int to) {
    static const size_t size[ROUNDS] = {1, 4096, 0, 77777, 300000};
    return size[round] ? size[round] + (size_t)(16 * from + to) : 0;
}

static char byte_of(int round, int from, int to, size_t i) {
    return (char)(round * 31 + from * 7 + to * 3 + (int)(i % 251));
}

/* Parts of all other ranks, one behind the other; how many. */
static int parts_of(const Rank *r, int round, int out, CommPart *part) {
    char *at = r->memory + (out ? 0 : ROOM);
    int n = 0;
    for (int peer = 0; peer < r->world; peer++) {
        size_t bytes = out ? size_of(round, r->rank, peer) : size_of(round, peer, r->rank);
        if (peer == r->rank || bytes == 0) continue;
        part[n++] = (CommPart){peer, at, bytes, 0};
        at += bytes;
    }
    return n;
}

static void fill(Rank *r, int round) {
    size_t n = 0;
    for (int peer = 0; peer < r->world; peer++)
        for (size_t i = 0; peer != r->rank && i < size_of(round, r->rank, peer); i++)
            r->host[n++] = byte_of(round, r->rank, peer, i);
    CHECK(r->device.upload(r->device.self, 0, r->memory, r->host, n));
}

static void check(Rank *r, int round) {
    size_t n = 0, wrong = 0;
    CHECK(r->device.download(r->device.self, 0, r->host, r->memory + ROOM, ROOM));
    for (int peer = 0; peer < r->world; peer++)
        for (size_t i = 0; peer != r->rank && i < size_of(round, peer, r->rank); i++)
            wrong += r->host[n++] != byte_of(round, peer, r->rank, i);
    CHECKF(wrong == 0, "rank %d, round %d: %zu of %zu bytes", r->rank, round, wrong, n);
}

static void *start(Rank *r, int round) {
    CommPart send[MOST], recv[MOST];
    int nsend = parts_of(r, round, 1, send), nrecv = parts_of(r, round, 0, recv);
    return r->comm.start(r->comm.self, send, nsend, recv, nrecv);
}

/* Until it is over, or failed. */
static int finish(Rank *r, void *request) {
    int state;
    while ((state = r->comm.over(r->comm.self, request)) == 0) usleep(100);
    return state;
}

/* ---- plays ---- */

static void exchange(Rank *r) {
    for (int round = 0; round < ROUNDS; round++) {
        fill(r, round);
        void *request = start(r, round);
        CHECKF(request, "%s", r->comm.error(r->comm.self));
        CHECK(r->comm.wait(r->comm.self, request));
        check(r, round); /* the queue waits, not the host */
        CHECK(finish(r, request) == 1);
    }
}

static void replay(Rank *r) {
    Device *d = &r->device;
    CHECK(d->capture(d->self, 0));
    void *request = start(r, 3);
    CHECKF(request && r->comm.wait(r->comm.self, request), "%s", r->comm.error(r->comm.self));
    CHECK(finish(r, request) == 1); /* nothing is on its way */
    void *graph = d->captured(d->self, 0);
    CHECKF(graph, "%s", d->error(d->self));
    for (int i = 0; i < 3; i++) {
        CHECK(d->fill(d->self, 0, r->memory + ROOM, 0, ROOM));
        fill(r, 3);
        CHECK(d->replay(d->self, 0, graph));
        check(r, 3);
    }
    void *mark = r->comm.start(r->comm.self, NULL, 0, NULL, 0);
    CHECK(mark && r->comm.wait(r->comm.self, mark) && finish(r, mark) == 1);
    d->forget(d->self, graph);
}

/* The last one goes: with those that wait for it nothing hangs. */
static void lose_one(Rank *r) {
    if (r->rank == r->world - 1) _exit(0);
    void *request = start(r, 1);
    if (request) CHECK(r->comm.wait(r->comm.self, request) && finish(r, request) == -1);
    CHECKF(strstr(r->comm.error(r->comm.self), "NCCL: remote process exited"), "%s",
           r->comm.error(r->comm.self));
    CHECK(!start(r, 1));
    CHECK(r->device.wait(r->device.self, 0));
}

/* ---- processes ---- */

static int open_gpu(Rank *r, int gpu) {
    char error[1024] = "";
    int32_t which = gpu;
    DeviceOptions options = {.which = &which, .n = 1};
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    DeviceOpen *open = handle ? (DeviceOpen *)(uintptr_t)dlsym(handle, DEVICE_OPEN) : NULL;
    int opened = open && open(&r->device, &options, error, sizeof error);
    CHECKF(opened, "%s", handle ? error : dlerror());
    return opened;
}

static int join(Rank *r) {
    Device *d = &r->device;
    CHECKF(d->meet(d->self, NULL), "%s", d->error(d->self));
    if (r->rank == 0) {
        CHECK(d->meet(d->self, r->shared->id));
        r->shared->met = 1;
    }
    while (!r->shared->met) usleep(100);
    return d->join(d->self, r->shared->id, r->rank, r->world, &r->comm);
}

/* As host/run/gpus.c does. */
static void share_gpu(int rank) {
    char host[32];
    snprintf(host, sizeof host, "rank-%d", rank);
    setenv("NCCL_HOSTID", host, 1);
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
    setenv("NCCL_IB_DISABLE", "1", 1);
    setenv("NCCL_MNNVL_ENABLE", "0", 1);
    setenv("NCCL_NVLS_ENABLE", "0", 1);
    setenv("NCCL_MAX_CTAS", "1", 1);
}

static void run(Rank *r, Play *play) {
    Device *d = &r->device;
    if (on_gpu) share_gpu(r->rank);
    if (!open_gpu(r, on_gpu ? 0 : r->rank)) return;
    int joined = join(r);
    CHECKF(joined, "%s", d->error(d->self));
    if (!joined) return;
    CHECK(r->comm.version == COMM_VERSION && r->comm.rank == r->rank && r->comm.over);
    r->memory = d->alloc(d->self, 0, 2 * ROOM);
    CHECK(r->memory != NULL);
    play(r);
    r->comm.close(r->comm.self);
    d->free(d->self, 0, r->memory, 2 * ROOM);
    d->close(d->self);
}

/* All on the first GPU: NCCL takes that only of ranks that seem to be on different hosts. */
static void collide(Rank *r) {
    if (!open_gpu(r, 0)) return;
    CHECK(!join(r));
    CHECKF(strstr(r->device.error(r->device.self), "Duplicate GPU"), "%s",
           r->device.error(r->device.self));
    r->device.close(r->device.self);
}

static void start_all(int world, Play *play, Shared *shared) {
    for (int rank = 0; rank < world; rank++) {
        if (fork()) continue;
        Rank *r = calloc(1, sizeof *r);
        test_failures = 0;
        *r = (Rank){.shared = shared, .rank = rank, .world = world};
        if (play)
            run(r, play);
        else
            collide(r);
        free(r);
        shared->failed[rank] = test_failures + 1;
        _exit(0);
    }
}

static void play_all(const char *name, int world, Play *play, int gone) {
    Shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    start_all(world, play, shared);
    while (wait(NULL) > 0) {}
    for (int rank = 0; rank < world; rank++)
        if (rank != gone) CHECKF(shared->failed[rank] == 1, "%s: rank %d of %d", name, rank, world);
    munmap(shared, sizeof *shared);
}

/* ---- the record ---- */

/* What each rank called is what it was asked for, group for group: so the sends of one are the
 * receipts of the other. */
static void check_record(int rank, int world) {
    char path[4096], line[64], expect[64];
    snprintf(path, sizeof path, "%s/calls.%d", folder, rank);
    FILE *f = fopen(path, "r");
    CHECKF(f, "%s", path);
    for (int round = 0; f && round < ROUNDS; round++)
        for (int k = -1; k < 2 * world; k++) { /* the group, what comes, what goes */
            int peer = k % world, out = k >= world;
            size_t bytes = out ? size_of(round, rank, peer) : size_of(round, peer, rank);
            if (world == 1 || size_of(round, 0, 1) == 0) continue;
            if (k >= 0 && (peer == rank || bytes == 0)) continue;
            snprintf(expect, sizeof expect, k < 0 ? "group\n" : "%s %d %zu\n",
                     out ? "send" : "recv", peer, bytes);
            CHECKF(fgets(line, sizeof line, f) && strcmp(line, expect) == 0,
                   "rank %d of %d: %s instead of %s", rank, world, line, expect);
        }
    CHECKF(f && !fgets(line, sizeof line, f), "rank %d of %d: more calls", rank, world);
    if (f) fclose(f);
}

int main(int argc, char **argv) {
    char path[4096];
    if (argc < 3) return 2;
    library = argv[1];
    folder = argv[2];
    on_gpu = argc > 3;
    snprintf(path, sizeof path, "%s/calls", folder);
    setenv("STANDIN_GPUS", "4", 1);
    for (int world = 1; world <= MOST; world++) {
        setenv("STANDIN_NCCL_LOG", path, 1);
        play_all("exchange", world, exchange, -1);
        for (int rank = 0; rank < world && !on_gpu; rank++) check_record(rank, world);
        unsetenv("STANDIN_NCCL_LOG");
        play_all("replay", world, replay, -1);
    }
    if (on_gpu) return test_end();
    play_all("a rank that goes", 3, lose_one, 2);
    play_all("one GPU", 2, NULL, -1);
    return test_end();
}
