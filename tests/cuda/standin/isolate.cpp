/* isolate.cpp - where there are several devices, the memory of each lies in a range of addresses of
 * its own, and only work of its device can touch it: what runs with an address of another one's
 * dies, as it may on a GPU. STANDIN_ISOLATE=0: all of it lies on the heap. */
#include "runtime.h"
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>
#include <unistd.h>

/* Large pages: protecting 20 MB of small ones takes 0.8 ms, which is done with every change. */
static const size_t ALIGN = 512, PAGE = 2 << 20;
static int opened = -1; /* the device whose memory can be touched */
static struct sigaction before;

bool isolated() {
    static const bool is = device_count() > 1 && setting("STANDIN_ISOLATE", 1);
    return is;
}

static size_t range_size() { /* guards and gaps need more than is given out */
    return 2 * device_memory();
}

static void protect(int index, int how) {
    char *range = device(index).range;
    if (range && mprotect(range, range_size(), how) == 0) return;
    if (range) complain("memory of GPU %d cannot be protected", index);
}

void open_memory(int index) {
    if (!isolated() || index == opened) return;
    if (opened >= 0) protect(opened, PROT_NONE);
    protect(index, PROT_READ | PROT_WRITE);
    opened = index;
}

/* Says whose memory it was, before the process ends as it would have. */
static void strange(int, siginfo_t *info, void *) {
    char text[128], *at = (char *)info->si_addr;
    for (int i = 0; i < device_count(); i++) {
        if (!device(i).range || at < device(i).range || at >= device(i).range + range_size())
            continue;
        int n = snprintf(text, sizeof text, "standin: work of GPU %d touches memory of GPU %d\n",
                         opened, i);
        if (write(2, text, (size_t)n) < 0) abort();
    }
    sigaction(SIGSEGV, &before, nullptr);
}

static char *page_of(char *at) {
    return at - (size_t)at % PAGE;
}

static bool make_range(Device &d) {
    int index = d.null_stream.device;
    void *at =
        mmap(nullptr, range_size() + PAGE, index == opened ? PROT_READ | PROT_WRITE : PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return false;
    d.range = page_of((char *)at + PAGE - 1);
    madvise(d.range, range_size(), MADV_HUGEPAGE);
    static const int caught = [] {
        struct sigaction action = {};
        action.sa_sigaction = strange;
        action.sa_flags = SA_SIGINFO;
        return sigaction(SIGSEGV, &action, &before);
    }();
    return caught == 0;
}

static size_t rounded(size_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

/* The first gap that is large enough. */
char *range_take(Device &d, size_t bytes) {
    if (!d.range && !make_range(d)) return nullptr;
    char *at = d.range;
    for (const auto &m : d.memory) {
        if ((size_t)(m.second.block - at) >= rounded(bytes)) break;
        at = m.second.block + rounded(m.second.size);
    }
    return at + rounded(bytes) <= d.range + range_size() ? at : nullptr;
}

/* Whole pages go back to the system. */
void range_give(char *block, size_t bytes) {
    char *begin = page_of(block + PAGE - 1), *end = page_of(block + rounded(bytes));
    if (begin < end) madvise(begin, (size_t)(end - begin), MADV_DONTNEED);
}
