/* graph.h - work that is kept, and put into the queue again by one call: CUDA graphs. */
#ifndef MESHLUA_CUDA_GRAPH_H
#define MESHLUA_CUDA_GRAPH_H

#include "cuda/gpu.h"

int graph_capture(Gpu *g);
/* NULL: it failed. */
cudaGraphExec_t graph_captured(Gpu *g);
int graph_replay(Gpu *g, cudaGraphExec_t graph);
void graph_forget(Cuda *c, cudaGraphExec_t graph);

#endif
