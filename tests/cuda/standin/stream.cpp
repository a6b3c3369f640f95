/* stream.cpp - queues, events, and graphs, which are lists of what queues would have held. */
#include "runtime.h"
#include "standin.h"
#include <algorithm>
#include <unistd.h>

static double now; /* of the events, in milliseconds: every piece of work takes one thousandth */
static std::set<Capture *> capturing;

static std::vector<CUstream_st *> all_streams() {
    std::vector<CUstream_st *> all;
    for (int i = 0; i < device_count(); i++) {
        Device &d = device(i);
        all.insert(all.end(), d.streams.begin(), d.streams.end());
        all.push_back(&d.null_stream);
    }
    return all;
}

CUstream_st *stream_of(cudaStream_t s) {
    bool own = !s || s == cudaStreamLegacy || s == cudaStreamPerThread;
    if (own) {
        current().null_stream.device = current_index();
        return &current().null_stream;
    }
    return s;
}

bool is_foreign(cudaStream_t s) {
    return stream_of(s)->device != current_index();
}

int standin_device_of(cudaStream_t s) {
    Call call("standin_device_of");
    return stream_of(s)->device;
}

bool forbidden() {
    for (Capture *c : capturing) c->broken = true;
    return !capturing.empty();
}
bool forbidden_unless_relaxed() {
    for (const Capture *c : capturing)
        if (!c->relaxed) return forbidden();
    return false;
}

void standin_take(double milliseconds) {
    now += milliseconds;
}

/* ---- running ---- */

/* Runs the first piece of work. cudaErrorNotReady: it must wait for another stream. */
static cudaError_t step(CUstream_st *s) {
    Device &d = device(s->device);
    Op &op = s->ops.front();
    cudaError_t e = d.fault;
    if (op.run) {
        open_memory(s->device);
        if (!e) e = op.run();
        if (e == cudaErrorNotReady) return e;
        now += 1e-3;
        if (e) d.fault = e;
    } else if (op.wait) {
        if (op.event->reached < op.number) return cudaErrorNotReady;
    } else {
        op.event->reached = std::max(op.event->reached, op.number);
        op.event->time = now;
    }
    s->ops.pop_front();
    return e;
}

/* One piece of work of a stream that another waits for, wherever it is. */
static bool step_other(CUstream_st *but) {
    for (CUstream_st *s : all_streams())
        if (s != but && !s->ops.empty() && step(s) != cudaErrorNotReady) return true;
    return false;
}

int standin_go_on() {
    Call call("standin_go_on");
    return step_other(nullptr);
}

static cudaError_t run_until(CUstream_st *s, const CUevent_st *event, long long number) {
    int index = s->device;
    while (!s->ops.empty() && !(event && event->reached >= number)) {
        if (step(s) != cudaErrorNotReady) continue;
        const Op &op = s->ops.front();
        if (op.wait)
            run_until(op.event->stream, op.event, op.number);
        else if (!step_other(s))
            usleep(50);
    }
    return device(index).fault;
}

cudaError_t drain(CUstream_st *s) {
    return run_until(s, nullptr, 0);
}

cudaError_t drain_device(Device &d) {
    drain(&d.null_stream);
    for (CUstream_st *s : d.streams) drain(s);
    return d.fault;
}

/* ---- putting ---- */

static cudaError_t put(CUstream_st *s, Op op) {
    if (!s->capture) {
        if (device(s->device).fault) return device(s->device).fault;
        s->ops.push_back(std::move(op));
        return cudaSuccess;
    }
    if (s->capture->broken) return cudaErrorStreamCaptureInvalidated;
    if (op.run) s->capture->ops.push_back(std::move(op));
    s->past[s]++;
    return cudaSuccess;
}

cudaError_t enqueue(cudaStream_t stream, std::function<cudaError_t()> run) {
    CUstream_st *s = stream_of(stream);
    if (!capturing.empty() && s == &device(s->device).null_stream) {
        forbidden();
        return cudaErrorStreamCaptureImplicit;
    }
    Op op;
    op.run = std::move(run);
    return put(s, std::move(op));
}

cudaError_t standin_enqueue(cudaStream_t stream, cudaError_t (*fn)(void *), const void *data,
                            size_t bytes) {
    Call call("standin_enqueue");
    if (dry()) return call(cudaSuccess);
    std::string copy((const char *)data, bytes);
    return call(enqueue(stream, [fn, copy]() mutable { return fn(&copy[0]); }));
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *data) {
    Call call("cudaLaunchHostFunc");
    if (call.breaks()) return call(cudaErrorUnknown);
    return call(enqueue(stream, [fn, data]() { return fn(data), cudaSuccess; }));
}

/* ---- streams ---- */

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int) {
    Call call("cudaStreamCreate", "%u", flags);
    if (call.breaks()) return call(cudaErrorUnknown);
    if (current().fault) return call(current().fault);
    given_out++;
    *stream = new CUstream_st();
    (*stream)->device = current_index();
    current().streams.insert(*stream);
    return call(cudaSuccess);
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    return cudaStreamCreateWithPriority(stream, flags, 0);
}
cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    return cudaStreamCreateWithPriority(stream, 0, 0);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    Call call("cudaStreamDestroy");
    if (!stream || stream->capture) return call(cudaErrorInvalidResourceHandle);
    drain(stream);
    device(stream->device).streams.erase(stream);
    delete stream;
    given_out--;
    return call(cudaSuccess);
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    Call call("cudaStreamSynchronize");
    if (call.breaks()) return call(cudaErrorUnknown);
    if (forbidden()) return call(cudaErrorStreamCaptureUnsupported);
    return call(drain(stream_of(stream)));
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    Call call("cudaStreamQuery");
    CUstream_st *s = stream_of(stream);
    if (forbidden()) return call(cudaErrorStreamCaptureUnsupported);
    if (s->ops.empty()) return call(device(s->device).fault);
    if (step(s) == cudaErrorNotReady) step_other(s);
    return cudaErrorNotReady;
}
cudaError_t cudaDeviceSynchronize() {
    Call call("cudaDeviceSynchronize");
    if (call.breaks()) return call(cudaErrorUnknown);
    if (forbidden()) return call(cudaErrorStreamCaptureUnsupported);
    return call(drain_device(current()));
}

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags) {
    Call call("cudaEventCreate", "%u", flags);
    if (call.breaks()) return call(cudaErrorUnknown);
    given_out++;
    *event = new CUevent_st();
    (*event)->timed = !(flags & cudaEventDisableTiming);
    (*event)->device = current_index();
    return call(cudaSuccess);
}
cudaError_t cudaEventCreate(cudaEvent_t *event) {
    return cudaEventCreateWithFlags(event, 0);
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
    Call call("cudaEventDestroy");
    if (!event) return call(cudaErrorInvalidResourceHandle);
    for (CUstream_st *s : all_streams()) { /* what still speaks of it runs first */
        auto speaks = [event](const Op &op) { return op.event == event; };
        if (std::any_of(s->ops.begin(), s->ops.end(), speaks)) drain(s);
    }
    delete event;
    given_out--;
    return call(cudaSuccess);
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t stream) {
    Call call("cudaEventRecord");
    if (call.breaks()) return call(cudaErrorUnknown);
    CUstream_st *s = stream_of(stream);
    if (!e || e->device != s->device) return call(cudaErrorInvalidResourceHandle);
    e->capture = s->capture;
    if (s->capture) {
        e->past = s->past;
        return call(cudaSuccess);
    }
    e->stream = s;
    Op op;
    op.event = e;
    op.number = ++e->recorded;
    return call(put(s, op));
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
    return cudaEventRecord(event, stream);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t e, unsigned) {
    Call call("cudaStreamWaitEvent");
    if (call.breaks()) return call(cudaErrorUnknown);
    CUstream_st *s = stream_of(stream);
    if (!e) return call(cudaErrorInvalidResourceHandle);
    if (e->capture) {
        if (s->capture && s->capture != e->capture) return call(cudaErrorStreamCaptureMerge);
        s->capture = e->capture;
        s->capture->streams.insert(s);
        for (const auto &p : e->past) s->past[p.first] = std::max(s->past[p.first], p.second);
        return call(cudaSuccess);
    }
    if (s->capture) { /* an event of before the capture */
        s->capture->broken = true;
        return call(cudaErrorStreamCaptureIsolation);
    }
    if (!e->recorded) return call(cudaSuccess);
    Op op;
    op.event = e;
    op.wait = true;
    op.number = e->recorded;
    return call(put(s, op));
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    Call call("cudaEventSynchronize");
    if (call.breaks()) return call(cudaErrorUnknown);
    if (!e) return call(cudaErrorInvalidResourceHandle);
    if (e->capture) return call(cudaErrorCapturedEvent);
    if (!e->recorded) return call(cudaSuccess);
    return call(run_until(e->stream, e, e->recorded));
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
    Call call("cudaEventQuery");
    if (call.breaks()) return call(cudaErrorUnknown);
    if (!e) return call(cudaErrorInvalidResourceHandle);
    if (e->capture) return call(cudaErrorCapturedEvent);
    if (e->reached >= e->recorded) return call(device(e->device).fault);
    if (step(e->stream) == cudaErrorNotReady) step_other(e->stream);
    return cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) {
    Call call("cudaEventElapsedTime");
    if (call.breaks()) return call(cudaErrorUnknown);
    if (!a || !b || !a->timed || !b->timed || !a->recorded || !b->recorded ||
        a->device != b->device)
        return call(cudaErrorInvalidResourceHandle);
    if (a->reached < a->recorded || b->reached < b->recorded) return call(cudaErrorNotReady);
    *ms = (float)(b->time - a->time);
    return call(cudaSuccess);
}

/* ---- graphs ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
    Call call("cudaStreamBeginCapture");
    if (call.breaks()) return call(cudaErrorUnknown);
    CUstream_st *s = stream_of(stream);
    if (s == &current().null_stream) return call(cudaErrorStreamCaptureUnsupported);
    if (s->capture) return call(cudaErrorIllegalState);
    Capture *c = s->capture = new Capture();
    c->origin = s;
    c->relaxed = mode == cudaStreamCaptureModeRelaxed;
    c->broken = setting("STANDIN_CAPTURE", 1) == 0;
    c->streams.insert(s);
    capturing.insert(c);
    return call(cudaSuccess);
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    Call call("cudaStreamEndCapture");
    bool breaks = call.breaks(); /* and has ended all the same */
    CUstream_st *s = stream_of(stream);
    Capture *c = s->capture;
    *graph = nullptr;
    if (!c) return call(cudaErrorIllegalState);
    if (c->origin != s) return call(cudaErrorStreamCaptureUnmatched);
    cudaError_t e = breaks      ? cudaErrorUnknown
                    : c->broken ? cudaErrorStreamCaptureInvalidated
                                : cudaSuccess;
    for (CUstream_st *member : c->streams) {
        if (!e && member->past[member] > s->past[member]) e = cudaErrorStreamCaptureUnjoined;
        member->capture = nullptr;
    }
    for (CUstream_st *member : c->streams) member->past.clear();
    if (!e) {
        *graph = new CUgraph_st{std::move(c->ops)};
        given_out++;
    }
    capturing.erase(c);
    delete c;
    return call(e);
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status) {
    Call call("cudaStreamIsCapturing");
    if (call.breaks()) return call(cudaErrorUnknown);
    const Capture *c = stream_of(stream)->capture;
    *status = !c          ? cudaStreamCaptureStatusNone
              : c->broken ? cudaStreamCaptureStatusInvalidated
                          : cudaStreamCaptureStatusActive;
    return call(cudaSuccess);
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode *mode) {
    static cudaStreamCaptureMode held = cudaStreamCaptureModeGlobal;
    std::swap(*mode, held);
    return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *, size_t *count) {
    Call call("cudaGraphGetNodes");
    if (call.breaks()) return call(cudaErrorUnknown);
    *count = graph->ops.size();
    return call(cudaSuccess);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long) {
    Call call("cudaGraphInstantiate");
    if (call.breaks()) return call(cudaErrorUnknown);
    if (!graph) return call(cudaErrorInvalidValue);
    given_out++;
    *exec = new CUgraphExec_st{graph->ops};
    return call(cudaSuccess);
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *exec, cudaGraph_t graph,
                                          unsigned long long flags) {
    return cudaGraphInstantiate(exec, graph, flags);
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) {
    Call call("cudaGraphUpload");
    if (call.breaks()) return call(cudaErrorUnknown);
    return call(cudaSuccess);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    Call call("cudaGraphLaunch");
    if (call.breaks()) return call(cudaErrorUnknown);
    CUstream_st *s = stream_of(stream);
    if (!exec || s->capture) return call(cudaErrorInvalidValue);
    cudaError_t e = cudaSuccess;
    for (const Op &op : exec->ops)
        if (!e) e = put(s, op);
    return call(e);
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    Call call("cudaGraphDestroy");
    delete graph;
    given_out--;
    return call(cudaSuccess);
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    Call call("cudaGraphExecDestroy");
    delete exec;
    given_out--;
    return call(cudaSuccess);
}
