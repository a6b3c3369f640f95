/* Memory of GPUs between GPUs of a process and of several, over the stand-ins: what comes is what
 * was sent, in the order of the calls, which do not depend on the processes; graphs; what happens
 * when a peer goes, or has the same GPU.
 *
 * test_nccl LIBRARY FOLDER [gpu]: with "gpu" on the first one of this machine, which all share. */
#include "run/gpu/device.h"
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

/* With so many GPUs, which are the ranks from `first` on. */
typedef struct Process {
    Shared *shared;
    int first, each, world;
    Device device;
    Comm comm;
    char *memory[MOST]; /* of each GPU: what goes, then what comes */
    char host[2 * ROOM];
} Process;

typedef void Play(Process *p);

/* ---- what goes from one to another in a round ---- */

static size_t size_of(int round, int from, int to) {
    static const size_t size[ROUNDS] = {1, 4096, 0, 77777, 300000};
    return size[round] ? size[round] + (size_t)(16 * from + to) : 0;
}

static char byte_of(int round, int from, int to, size_t i) {
    return (char)(round * 31 + from * 7 + to * 3 + (int)(i % 251));
}

/* Parts of each GPU and all other ranks, one behind the other; how many. */
static int parts_of(const Process *p, int round, int out, CommPart *part) {
    int n = 0;
    for (int own = p->first; own < p->first + p->each; own++) {
        char *at = p->memory[own - p->first] + (out ? 0 : ROOM);
        for (int peer = 0; peer < p->world; peer++) {
            size_t bytes = out ? size_of(round, own, peer) : size_of(round, peer, own);
            if (peer == own || bytes == 0) continue;
            part[n++] = (CommPart){.peer = peer, .data = at, .bytes = bytes, .own = own};
            at += bytes;
        }
    }
    return n;
}

static void fill(Process *p, int round) {
    for (int g = 0; g < p->each; g++) {
        size_t n = 0;
        int own = p->first + g;
        for (int peer = 0; peer < p->world; peer++)
            for (size_t i = 0; peer != own && i < size_of(round, own, peer); i++)
                p->host[n++] = byte_of(round, own, peer, i);
        CHECK(p->device.upload(p->device.self, g, p->memory[g], p->host, n));
    }
}

/* The GPU that is waited for first is another one each round: none goes on alone. */
static void check(Process *p, int round) {
    for (int k = 0; k < p->each; k++) {
        size_t n = 0, wrong = 0;
        int g = (k + round) % p->each, own = p->first + g;
        CHECK(p->device.download(p->device.self, g, p->host, p->memory[g] + ROOM, ROOM));
        for (int peer = 0; peer < p->world; peer++)
            for (size_t i = 0; peer != own && i < size_of(round, peer, own); i++)
                wrong += p->host[n++] != byte_of(round, peer, own, i);
        CHECKF(wrong == 0, "rank %d, round %d: %zu of %zu bytes", own, round, wrong, n);
    }
}

static void *start(Process *p, int round) {
    CommPart send[MOST * MOST], recv[MOST * MOST];
    int nsend = parts_of(p, round, 1, send), nrecv = parts_of(p, round, 0, recv);
    return p->comm.start(p->comm.self, send, nsend, recv, nrecv);
}

/* Until it is over, or failed. */
static int finish(Process *p, void *request) {
    int state;
    while ((state = p->comm.over(p->comm.self, request)) == 0) usleep(100);
    return state;
}

/* ---- plays ---- */

static void exchange(Process *p) {
    for (int round = 0; round < ROUNDS; round++) {
        fill(p, round);
        void *request = start(p, round);
        CHECKF(request, "%s", p->comm.error(p->comm.self));
        if (!request) return;
        CHECK(p->comm.wait(p->comm.self, request));
        check(p, round); /* the queues wait, not the host */
        CHECK(finish(p, request) == 1);
    }
    void *nothing = p->comm.start(p->comm.self, NULL, 0, NULL, 0);
    CHECK(nothing && p->comm.wait(p->comm.self, nothing) && finish(p, nothing) == 1);
}

/* The last process goes: with those that wait for it nothing hangs. */
static void lose_one(Process *p) {
    if (p->first + p->each == p->world) _exit(0);
    void *request = start(p, 1);
    if (request) CHECK(p->comm.wait(p->comm.self, request) && finish(p, request) == -1);
    CHECKF(strstr(p->comm.error(p->comm.self), "NCCL: remote process exited"), "%s",
           p->comm.error(p->comm.self));
    CHECK(!start(p, 1));
    CHECKF(strstr(p->comm.error(p->comm.self), "NCCL: remote process exited"), "then %s",
           p->comm.error(p->comm.self));
    for (int g = 0; g < p->each; g++) CHECK(p->device.wait(p->device.self, g));
}

/* The messages of the last two ranks never end: who has none of them goes on. */
static void hold_two(Process *p) {
    Device *d = &p->device;
    CommPart send = {.peer = 2, .data = p->memory[1], .bytes = 100, .own = 1};
    CommPart recv = {.peer = 1, .data = p->memory[2], .bytes = 100, .own = 2};
    void *request = p->comm.start(p->comm.self, &send, 1, &recv, 1);
    CHECK(request && p->comm.wait(p->comm.self, request));
    fill(p, 1);
    CHECK(d->wait(d->self, 0));
    for (int i = 0; i < 20; i++) CHECK(p->comm.over(p->comm.self, request) == 0);
    p->shared->failed[0] = test_failures + 1;
    _exit(0);
}

/* ---- processes ---- */

/* GPUs from that one on. */
static int open_gpus(Process *p, int first) {
    char error[1024] = "";
    int32_t which[MOST];
    for (int g = 0; g < p->each; g++) which[g] = first + g;
    DeviceOptions options = {.which = which, .n = p->each};
    void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    DeviceOpen *open = handle ? (DeviceOpen *)(uintptr_t)dlsym(handle, DEVICE_OPEN) : NULL;
    int opened = open && open(&p->device, &options, error, sizeof error);
    CHECKF(opened, "%s", handle ? error : dlerror());
    return opened;
}

static int join(Process *p) {
    Device *d = &p->device;
    CHECKF(d->meet(d->self, NULL), "%s", d->error(d->self));
    if (p->first == 0) {
        CHECK(d->meet(d->self, p->shared->id));
        p->shared->met = 1;
    }
    while (!p->shared->met) usleep(100);
    return d->join(d->self, p->shared->id, p->first, p->world, &p->comm);
}

/* As host/run/runtime/gpu_transport.c does. */
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

static void run(Process *p, Play *play) {
    Device *d = &p->device;
    if (on_gpu) share_gpu(p->first);
    if (!open_gpus(p, on_gpu ? 0 : p->first)) return;
    int joined = join(p);
    CHECKF(joined, "%s", d->error(d->self));
    if (!joined) return;
    CHECK(p->comm.version == COMM_VERSION && p->comm.rank == p->first && p->comm.over);
    for (int g = 0; g < p->each; g++) {
        p->memory[g] = d->alloc(d->self, g, 2 * ROOM);
        CHECK(p->memory[g] != NULL);
    }
    play(p);
    p->comm.close(p->comm.self);
    for (int g = 0; g < p->each; g++) d->free(d->self, g, p->memory[g], 2 * ROOM);
    d->close(d->self);
}

/* All on the first GPU: NCCL takes that only of ranks that seem to be on different hosts. */
static void collide(Process *p) {
    if (!open_gpus(p, 0)) return;
    CHECK(!join(p));
    CHECKF(strstr(p->device.error(p->device.self), "Duplicate GPU"), "%s",
           p->device.error(p->device.self));
    p->device.close(p->device.self);
}

static void fail_each(Process *p);

static void start_all(int processes, int each, Play *play, Shared *shared) {
    for (int i = 0; i < processes; i++) {
        if (fork()) continue;
        Process *p = calloc(1, sizeof *p);
        test_failures = 0;
        *p =
            (Process){.shared = shared, .first = i * each, .each = each, .world = processes * each};
        if (play == collide || play == fail_each)
            play(p);
        else
            run(p, play);
        free(p);
        shared->failed[i] = test_failures + 1;
        _exit(0);
    }
}

static void play_all(const char *name, int processes, int each, Play *play, int gone) {
    Shared *shared =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    start_all(processes, each, play, shared);
    while (wait(NULL) > 0) {}
    for (int i = 0; i < processes; i++)
        if (i != gone)
            CHECKF(shared->failed[i] == 1, "%s: process %d of %d with %d GPUs", name, i, processes,
                   each);
    munmap(shared, sizeof *shared);
}

/* ---- calls that fail ---- */

typedef struct Failing { /* of the stand-in that the library has opened: see standin.h */
    void (*fail_in)(int calls);
    int (*fails_in)(void);
} Failing;

static Failing find_failing(void) {
    void *cuda = dlopen("libcudart.so.13", RTLD_NOW | RTLD_NOLOAD);
    CHECKF(cuda, "%s", dlerror());
    return (Failing){(void (*)(int))(uintptr_t)dlsym(cuda, "standin_fail_in"),
                     (int (*)(void))(uintptr_t)dlsym(cuda, "standin_fails_in")};
}

/* They meet and exchange once. Else `error` says why not. */
static int meet_once(Process *p, char *error, size_t size) {
    Device *d = &p->device;
    snprintf(error, size, "%s", "");
    if (!d->join(d->self, p->shared->id, 0, p->world, &p->comm)) {
        snprintf(error, size, "%s", d->error(d->self));
        return 0;
    }
    void *request = start(p, 1);
    int well = request && p->comm.wait(p->comm.self, request) && finish(p, request) == 1;
    if (!well) snprintf(error, size, "%s", p->comm.error(p->comm.self));
    p->comm.close(p->comm.self);
    return well;
}

/* Each call of CUDA fails once: it is said which. NCCL says of its own that it was one of CUDA's.
 */
static void fail_each(Process *p) {
    char error[1024];
    int said = 0, broke = 1;
    if (!open_gpus(p, 0)) return;
    for (int g = 0; g < p->each; g++) p->memory[g] = p->device.alloc(p->device.self, g, 2 * ROOM);
    Failing failing = find_failing();
    for (int call = 1; broke && call < 200; call++) {
        CHECK(p->device.meet(p->device.self, p->shared->id));
        failing.fail_in(call);
        int well = meet_once(p, error, sizeof error);
        broke = failing.fails_in() == 0;
        failing.fail_in(0);
        said += !well;
        CHECKF(well || strstr(error, "(CUDA error 999)") || strstr(error, "unhandled cuda error"),
               "call %d: '%s'", call, error);
    }
    CHECKF(!broke && said > 10, "%d calls", said);
    for (int g = 0; g < p->each; g++) p->device.free(p->device.self, g, p->memory[g], 2 * ROOM);
    p->device.close(p->device.self);
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
    for (int each = 1; each <= (on_gpu ? 1 : MOST); each++)
        for (int world = each; world <= MOST; world += each) {
            setenv("STANDIN_NCCL_LOG", path, 1);
            play_all("exchange", world / each, each, exchange, -1);
            for (int rank = 0; rank < world && !on_gpu; rank++) check_record(rank, world);
            unsetenv("STANDIN_NCCL_LOG");
        }
    if (on_gpu) return test_end();
    play_all("a rank that goes", 3, 1, lose_one, 2);
    play_all("a process that goes", 2, 2, lose_one, 1);
    play_all("one GPU", 2, 1, collide, -1);
    play_all("calls that fail", 1, 2, fail_each, -1);
    setenv("STANDIN_NCCL_STALL", "1:0", 1);
    play_all("two of three ranks", 1, 3, hold_two, -1);
    return test_end();
}
