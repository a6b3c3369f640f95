/* standin.h - for other stand-ins, which link the one for libcudart: work of theirs in a stream. */
#ifndef STANDIN_H
#define STANDIN_H

#include <driver_types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Runs fn(a copy of data) in the stream's turn, or each time that the graph under capture runs. A
 * result of cudaErrorNotReady: it is called again later, and other streams go on meanwhile; any
 * other error sticks to the device. */
__attribute__((visibility("default"))) cudaError_t
standin_enqueue(cudaStream_t stream, cudaError_t (*fn)(void *data), const void *data, size_t bytes);
/* In such a function: it takes so much longer by the events, which nobody has to wait for. */
__attribute__((visibility("default"))) void standin_take(double milliseconds);
/* Runs a piece of work of some stream, as a GPU does by itself. 0: none can run now. */
__attribute__((visibility("default"))) int standin_go_on(void);
/* The device that a stream is of. */
__attribute__((visibility("default"))) int standin_device_of(cudaStream_t stream);
/* The n-th call from now on fails, if it is one that can, and does nothing; 0: none does. */
__attribute__((visibility("default"))) void standin_fail_in(int calls);
/* How many calls are left until then. */
__attribute__((visibility("default"))) int standin_fails_in(void);
/* How much is given out: streams, events, graphs, libraries, pieces of memory. */
__attribute__((visibility("default"))) long standin_held(void);

#ifdef __cplusplus
}
#endif

#endif
