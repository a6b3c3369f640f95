/* block.cpp - one block at a time. A thread that does not wait for others runs from its begin to
 * its end on whatever stack is there, so that kernels without barriers are plain loops; one that
 * waits keeps its stack, and the next thread begins on another. */
#include "block.h"
#include "fiber.h"
#include <csignal>
#include <cstdarg>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <unistd.h>
#include <utility>
#include <vector>

static const int THREADS = 1024, WARP = 32;
static const int GUARD = 256; /* bytes behind dynamic shared memory */
static const unsigned char POISON = 0xff;

enum State { READY, AT_BARRIER, IN_WARP, ENDED };

struct Copy {
    void *to;
    const void *from;
    int bytes;
};

struct Thread {
    State state;
    int fiber;
    uint3 index;
    /* what it waits for */
    int line, value;
    StandinBarrier barrier;
    StandinWarp kind;
    unsigned lanes;
    void *slot;
    /* cp.async: groups that nobody has waited for, the last one open */
    std::vector<std::vector<Copy>> copies;
};

static struct Block {
    const StandinGrid *grid;
    StandinThread *registers; /* of the running thread */
    Thread thread[THREADS];
    int order[THREADS]; /* in which they begin */
    int threads, begun, alive, waiting;
    int running, fiber;
    /* those that may go on, a ring */
    int ready[THREADS], first, count;
    Fiber fibers[THREADS], host;
    int idle[THREADS], idles, made;
    std::string error;
} b;

static void stop(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

struct Place { /* no string: what stops a grid is not destroyed */
    char text[96];
};
static Place place(int t) {
    Place p = {};
    uint3 i = b.thread[t].index, k = b.registers->block;
    snprintf(p.text, sizeof p.text, "thread %u,%u,%u of block %u,%u,%u", i.x, i.y, i.z, k.x, k.y,
             k.z);
    return p;
}

/* Leaves the grid: its fibers are not continued. */
static void stop(const char *format, ...) {
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    b.error = std::string(b.grid->kernel->name) + ": " + text;
    fiber_change(&b.fibers[b.fiber], &b.host);
    abort();
}

static const char *state_name(const Thread &t) {
    return t.state == AT_BARRIER ? "at a barrier" : t.state == IN_WARP ? "in its warp" : "running";
}

/* Nobody can go on: two who wait for different things are named. */
static void deadlock() {
    int one = -1, other = -1;
    for (int t = 0; t < b.threads; t++) {
        const Thread &x = b.thread[t];
        if (x.state == ENDED) continue;
        if (one < 0)
            one = t;
        else if (other < 0 && (x.line != b.thread[one].line || x.state != b.thread[one].state ||
                               x.lanes != b.thread[one].lanes))
            other = t;
    }
    const Thread &x = b.thread[one], &y = b.thread[other < 0 ? one : other];
    stop("deadlock: %s waits %s, line %d, lanes %08x; %s %s, line %d, lanes %08x; %d threads of %d "
         "have ended",
         place(one).text, state_name(x), x.line, x.lanes, place(other < 0 ? one : other).text,
         state_name(y), y.line, y.lanes, b.threads - b.alive, b.threads);
}

static void enter(int t) {
    b.running = t;
    b.registers->thread = b.thread[t].index;
}

/* Another thread continues or begins; this fiber stops here until it is its turn again. */
static void give_way() {
    int to, from = b.fiber;
    if (b.count) {
        int t = b.ready[b.first];
        b.first = (b.first + 1) % THREADS;
        b.count--;
        enter(t);
        to = b.thread[t].fiber;
    } else if (b.begun < b.threads) {
        to = b.idle[--b.idles];
    } else if (b.alive) {
        deadlock();
    } else {
        fiber_change(&b.fibers[from], &b.host);
        return;
    }
    if (to == from) return;
    b.fiber = to;
    fiber_change(&b.fibers[from], &b.fibers[to]);
}

static void resume(int t) {
    b.thread[t].state = READY;
    if (t != b.running) b.ready[(b.first + b.count++) % THREADS] = t;
}

/* ---- barriers ---- */

/* If all that live have come to the barrier. */
static void try_barrier() {
    if (!b.waiting || b.waiting < b.alive) return;
    int sum = 0, all = 1, line = -1, first = -1;
    for (int t = 0; t < b.threads; t++) {
        Thread &x = b.thread[t];
        if (x.state != AT_BARRIER) continue;
        if (first < 0) first = t, line = x.line;
        if (x.line != line)
            stop("%s is at the barrier of line %d, %s at that of line %d", place(first).text, line,
                 place(t).text, x.line);
        sum += x.value != 0;
        all &= x.value != 0;
    }
    b.waiting = 0;
    for (int t = 0; t < b.threads; t++) {
        Thread &x = b.thread[t];
        if (x.state != AT_BARRIER) continue;
        x.value = x.barrier == STANDIN_COUNT ? sum : x.barrier == STANDIN_AND ? all : sum > 0;
        resume(t);
    }
}

static int barrier(StandinBarrier kind, int value, int line) {
    Thread &x = b.thread[b.running];
    x.state = AT_BARRIER;
    x.barrier = kind;
    x.value = value;
    x.line = line;
    x.lanes = ~0u;
    b.waiting++;
    try_barrier();
    if (x.state != READY) give_way();
    return x.value;
}

/* ---- warps ---- */

static unsigned active_of(int warp) {
    unsigned lanes = 0;
    for (int l = 0; l < WARP && warp * WARP + l < b.threads; l++)
        if (b.thread[warp * WARP + l].state != ENDED) lanes |= 1u << l;
    return lanes;
}
static unsigned active() {
    return active_of(b.running / WARP);
}

/* If all lanes that thread t waits for have come to the same place. */
static void try_warp(int t) {
    const Thread &x = b.thread[t];
    int base = t / WARP * WARP;
    unsigned lanes = 0;
    void *slot[WARP];
    for (int l = 0; l < WARP && base + l < b.threads; l++) {
        const Thread &y = b.thread[base + l];
        if (!(x.lanes >> l & 1) || y.state == ENDED) continue;
        if (y.state != IN_WARP || y.kind != x.kind || y.line != x.line || y.lanes != x.lanes)
            return;
        lanes |= 1u << l;
        slot[l] = y.slot;
    }
    const char *wrong = standin_warp(x.kind, lanes, slot);
    if (wrong) stop("line %d: %s (%s)", x.line, wrong, place(t).text);
    for (int l = 0; l < WARP; l++)
        if (lanes >> l & 1) resume(base + l);
}

static void warp(StandinWarp kind, unsigned lanes, void *slot, int line) {
    Thread &x = b.thread[b.running];
    if (!(lanes >> b.running % WARP & 1))
        stop("line %d: %s is not among the lanes %08x it names", line, place(b.running).text,
             lanes);
    x.state = IN_WARP;
    x.kind = kind;
    x.lanes = lanes;
    x.slot = slot;
    x.line = line;
    try_warp(b.running);
    if (x.state != READY) give_way();
}

/* ---- copies that end when they are waited for ---- */

static void async(StandinAsync what, void *to, const void *from, int n) {
    auto &groups = b.thread[b.running].copies;
    if (groups.empty()) groups.emplace_back();
    if (what == STANDIN_ASYNC_COPY) {
        if ((uintptr_t)to % 16 || (uintptr_t)from % 16)
            stop("cp.async of addresses that are not aligned (%s)", place(b.running).text);
        groups.back().push_back(Copy{to, from, n});
    } else if (what == STANDIN_ASYNC_COMMIT) {
        groups.emplace_back();
    } else {
        while ((int)groups.size() - 1 > n) {
            for (const Copy &c : groups.front()) {
                if (c.from)
                    memcpy(c.to, c.from, (size_t)c.bytes);
                else
                    memset(c.to, 0, (size_t)c.bytes);
            }
            groups.erase(groups.begin());
        }
    }
}

static void trap(const char *what, int line) {
    stop("%s, line %d (%s)", what, line, place(b.running).text);
}

static const StandinCalls calls = {barrier, warp, active, async, trap};

/* ---- blocks ---- */

static void end_thread() {
    Thread &x = b.thread[b.running];
    int base = b.running / WARP * WARP;
    x.state = ENDED;
    x.copies.clear();
    b.alive--;
    b.running = -1;
    try_barrier();
    for (int t = base; t < base + WARP && t < b.threads; t++)
        if (b.thread[t].state == IN_WARP) try_warp(t);
}

/* What every fiber does: it begins threads, as long as none that has begun can go on. */
static void work() {
    for (;;) {
        while (b.begun < b.threads && !b.count) {
            int t = b.order[b.begun++];
            b.thread[t].fiber = b.fiber;
            enter(t);
            b.grid->kernel->run(b.grid->params);
            end_thread();
        }
        b.idle[b.idles++] = b.fiber;
        give_way();
    }
}

static unsigned long long rnd(unsigned long long *state) { /* splitmix64 */
    unsigned long long z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static void set_order() {
    const char *text = getenv("STANDIN_SEED");
    unsigned long long seed = text ? strtoull(text, nullptr, 10) : 0;
    for (int t = 0; t < b.threads; t++) b.order[t] = seed == 1 ? b.threads - 1 - t : t;
    for (int t = b.threads - 1; seed > 1 && t > 0; t--)
        std::swap(b.order[t], b.order[rnd(&seed) % (unsigned)(t + 1)]);
}

/* Not memset, which knows where AddressSanitizer's red zones are. */
__attribute__((no_sanitize("address"))) static void poison(char *from, char *to) {
#ifdef __x86_64__
    size_t n = from < to ? (size_t)(to - from) : 0;
    asm volatile("rep stosb" : "+D"(from), "+c"(n) : "a"(POISON) : "memory");
#else
    for (volatile char *p = from; p < to; p++) *p = (char)POISON;
#endif
}

static void poison_shared() {
    const StandinModule *m = b.grid->module;
    if (!m->dynamic) {
        poison(m->shared, m->shared_end);
        return;
    }
    poison(m->shared, m->dynamic + b.grid->dynamic + GUARD);
    poison(m->dynamic + STANDIN_SHARED + GUARD, m->shared_end);
}

static void check_shared() {
    const char *end = b.grid->module->dynamic;
    if (!end) return;
    end += b.grid->dynamic;
    for (int i = 0; i < GUARD; i++)
        if ((unsigned char)end[i] != POISON) {
            char text[128];
            snprintf(text, sizeof text, ": wrote %d bytes behind its %zu of shared memory", i,
                     b.grid->dynamic);
            b.error = b.grid->kernel->name + std::string(text);
            return;
        }
}

static void run_block() {
    poison_shared();
    b.begun = b.waiting = b.first = b.count = 0;
    b.alive = b.threads;
    for (int t = 0; t < b.threads; t++) b.thread[t].state = READY;
    while (b.made < b.threads) {
        fiber_make(&b.fibers[b.made], work);
        b.idle[b.idles++] = b.made++;
    }
    b.fiber = b.idle[--b.idles];
    fiber_change(&b.host, &b.fibers[b.fiber]);
    if (b.error.empty()) {
        check_shared();
        return;
    }
    b.idles = 0; /* the stacks are as the error left them */
    for (int f = 0; f < b.made; f++) {
        fiber_reset(&b.fibers[f], work);
        b.idle[b.idles++] = f;
    }
    for (int t = 0; t < b.threads; t++) b.thread[t].copies.clear();
}

/* A wild address is the kernel's, and so is one of an access that a GPU does not align (the trap of
 * nvrtc.cpp): its name, before the process ends as it would have. */
#ifdef __SANITIZE_ADDRESS__ /* which says more */
static void catch_wild() {}
static void let_wild() {}
#else
static struct sigaction before, before_traps;
static void let_wild() {
    sigaction(SIGSEGV, &before, nullptr);
    sigaction(SIGILL, &before_traps, nullptr);
}
static void wild(int which, siginfo_t *info, void *) {
    char text[256];
    const char *what = which == SIGILL ? "an access that is not aligned, at" : "an invalid address";
    int n = snprintf(text, sizeof text, "standin: kernel %s: %s %p: %s\n", b.grid->kernel->name,
                     what, info->si_addr, b.running >= 0 ? place(b.running).text : "");
    if (write(2, text, (size_t)n) < 0) abort();
    let_wild();
}

static void catch_wild() {
    static char stack[1 << 16];
    stack_t alternate = {};
    struct sigaction action = {};
    alternate.ss_sp = stack;
    alternate.ss_size = sizeof stack;
    sigaltstack(&alternate, nullptr);
    action.sa_sigaction = wild;
    action.sa_flags = SA_ONSTACK | SA_SIGINFO;
    sigaction(SIGSEGV, &action, &before);
    sigaction(SIGILL, &action, &before_traps);
}
#endif

std::string standin_run(const StandinGrid &grid) {
    StandinThread *r = b.registers = grid.module->thread;
    dim3 n = grid.threads;
    b.grid = &grid;
    b.threads = (int)(n.x * n.y * n.z);
    b.error.clear();
    fiber_here(&b.host);
    r->threads = n;
    r->blocks = grid.blocks;
    r->calls = &calls;
    for (int t = 0; t < b.threads; t++) {
        unsigned i = (unsigned)t;
        b.thread[t].index = uint3{i % n.x, i / n.x % n.y, i / n.x / n.y};
    }
    set_order();
    catch_wild();
    for (unsigned z = 0; z < grid.blocks.z; z++)
        for (unsigned y = 0; y < grid.blocks.y; y++)
            for (unsigned x = 0; x < grid.blocks.x && b.error.empty(); x++) {
                r->block = uint3{x, y, z};
                run_block();
            }
    let_wild();
    return b.error;
}
