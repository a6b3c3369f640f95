/* runtime.h - what the files of the stand-in for libcudart share.
 *
 * Nothing runs when it is put into a stream. Work runs when somebody waits for it: a stream's in
 * its order, what another stream's event stands for before what waits for the event. A product that
 * forgets to wait reads poison. */
#ifndef STANDIN_RUNTIME_H
#define STANDIN_RUNTIME_H

#pragma GCC visibility push(default)
#include <cuda_runtime_api.h>
#pragma GCC visibility pop
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

/* ---- calls: every entry of the library makes one first; one thread is inside at a time ---- */

struct Call {
    std::lock_guard<std::recursive_mutex> lock;
    const char *name;
    explicit Call(const char *entry, const char *format = nullptr, ...)
        __attribute__((format(printf, 3, 4)));
    /* Is this the one that fails, with nothing done? See standin_fail_in. */
    bool breaks();
    /* What the entry returns; kept for cudaGetLastError. */
    cudaError_t operator()(cudaError_t e);
};

/* Streams, events, graphs, libraries and pieces of memory that were given out. */
extern long given_out;

/* A line on stderr: what no program of a GPU would have noticed. */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
long long setting(const char *name, long long otherwise);
/* STANDIN_DRY=1: device code is of a real GPU, and nothing runs but copies; memory is full of
 * zeros, and takes none of the host's until it is written. To see what a program compiles. */
bool dry();

/* ---- streams ---- */

struct Op {
    /* cudaErrorNotReady: it is tried again when other streams have gone on. Empty: see event. */
    std::function<cudaError_t()> run;
    struct CUevent_st *event = nullptr;
    bool wait = false;    /* for the event, else it is recorded */
    long long number = 0; /* of the event's recordings */
};

/* Which places of which capturing streams something comes after. */
typedef std::map<struct CUstream_st *, size_t> Past;

struct CUevent_st {
    bool timed = true;
    long long recorded = 0, reached = 0; /* how often; and how often that has run */
    struct CUstream_st *stream = nullptr;
    int device = 0; /* that was current when it was made: streams of others do not record it */
    double time = 0;
    struct Capture *capture = nullptr; /* that it was recorded in */
    Past past;
};

struct Capture {
    std::vector<Op> ops; /* in the order of the calls, which respects all streams and events */
    struct CUstream_st *origin;
    std::set<struct CUstream_st *> streams;
    bool broken = false, relaxed = false;
};

struct CUstream_st {
    int device = 0;
    std::deque<Op> ops;
    Capture *capture = nullptr;
    Past past; /* while capturing */
};

struct CUgraph_st {
    std::vector<Op> ops;
};
struct CUgraphExec_st {
    std::vector<Op> ops;
};

/* ---- devices ---- */

struct Allocation {
    size_t bytes;
    char *block; /* where its guards begin */
    size_t size; /* with its guards */
};

struct Device {
    size_t used = 0;
    cudaError_t fault = cudaSuccess; /* sticky */
    CUstream_st null_stream;
    std::set<CUstream_st *> streams;
    std::map<char *, Allocation> memory;
    char *range = nullptr; /* where all of it lies, if each device has a range of its own */
    std::set<int> peers;
};

int device_count();
size_t device_memory(); /* bytes that each has */
/* The calling thread's. */
int current_index();
Device &current();
Device &device(int index);

/* NULL stands for the current device's own. */
CUstream_st *stream_of(cudaStream_t s);
/* Whether it is of another device than the current one. */
bool is_foreign(cudaStream_t s);
/* Puts into the stream, or into the graph that it captures. */
cudaError_t enqueue(cudaStream_t s, std::function<cudaError_t()> run);
/* Until it is empty, or until the event has been reached so often. */
cudaError_t drain(CUstream_st *s);
cudaError_t drain_device(Device &d);
/* Whether the call is one that a capture under way forbids; the capture is broken then. */
bool forbidden();
bool forbidden_unless_relaxed();

/* Whether memory of a device can be touched by its own work only: see isolate.cpp. */
bool isolated();
/* From here on that device's memory, and no other's, can be touched. */
void open_memory(int index);
/* Memory in the device's range; NULL: there is none. */
char *range_take(Device &d, size_t bytes);
void range_give(char *block, size_t bytes);

/* Whether [at, at + bytes) lies in device memory (of any device), all of it. */
bool is_device(const void *at, size_t bytes);
bool touches_device(const void *at);
bool is_pinned(const void *at);
/* Looks at the guards around all memory of the device; `who` wrote last. */
cudaError_t check_guards(Device &d, const char *who);

#endif
