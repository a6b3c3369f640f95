#include "cuda/graph.h"
#include "cuda/launch.h"

/* Relaxed: memory may be asked for meanwhile, which is no work of the queue. */
int graph_capture(Gpu *g) {
    Cuda *c = g->cuda;
    if (!launch_ready_all(g) ||
        !gpu_ok(c, c->rt.cudaStreamBeginCapture(g->stream, cudaStreamCaptureModeRelaxed),
                "cudaStreamBeginCapture"))
        return 0;
    g->capturing = 1;
    return 1;
}

cudaGraphExec_t graph_captured(Gpu *g) {
    Cuda *c = g->cuda;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    g->capturing = 0;
    int used = gpu_use(g); /* the capture ends also where it is not */
    if (!gpu_ok(c, c->rt.cudaStreamEndCapture(g->stream, &graph), "cudaStreamEndCapture"))
        return NULL;
    int made =
        used && gpu_ok(c, c->rt.cudaGraphInstantiate(&exec, graph, 0), "cudaGraphInstantiate");
    c->rt.cudaGraphDestroy(graph);
    if (!made) return NULL;
    /* So that the first replay does not have it to do. */
    if (gpu_ok(c, c->rt.cudaGraphUpload(exec, g->stream), "cudaGraphUpload")) return exec;
    graph_forget(c, exec);
    return NULL;
}

int graph_replay(Gpu *g, cudaGraphExec_t graph) {
    Cuda *c = g->cuda;
    return gpu_use(g) && gpu_ok(c, c->rt.cudaGraphLaunch(graph, g->stream), "cudaGraphLaunch");
}

/* One that still runs ends first: CUDA sees to it. */
void graph_forget(Cuda *c, cudaGraphExec_t graph) {
    c->rt.cudaGraphExecDestroy(graph);
}
