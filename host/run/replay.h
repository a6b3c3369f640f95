/* replay.h - on a GPU: the launches of a bound plan as one graph, captured at its second call and
 * replayed from then on, so that a step costs the host one launch. Launched one by one are plans
 * whose loops or branches depend on data, that are for several GPUs or exchange data with other
 * processes, of fewer than four launches or more than 65536, with more than 64 MB of results, and
 * calls that are profiled.
 *
 * A graph has addresses in it. Those of temporaries, and of donated arguments whose memory goes
 * from call to call, stay as they are. An argument that has moved since the latest call is copied
 * to a place of the Exec's own from then on, results are copied from one. When another address
 * changes after all, the launches are captured again; where that happens often, the plan does
 * without. */
#ifndef MESHLUA_REPLAY_H
#define MESHLUA_REPLAY_H

#include "run/tensor.h"

struct Exec;

typedef struct Replay {
    bool on;                 /* this call runs the graph */
    void *graph;             /* NULL: none is valid */
    int32_t calls, captures; /* so far; calls that went well */
    size_t staged;           /* bytes of the params' places below */
    Buffer **param;          /* by param: its place here, or NULL; NULL: a graph does not pay */
    Buffer **result;         /* by Exec.buffer: the same */
} Replay;

/* Finds out whether a graph of its launches pays. */
Err replay_bind(struct Exec *e) MUST_CHECK;
void replay_release(struct Exec *e);
/* At the beginning of a call, before anything has its place: is it this call's way to run? */
void replay_decide(struct Exec *e, Tensor *const *args);
/* Sets the bases of param i in the k-th domain, where that tensor is, too. */
Err replay_place_param(struct Exec *e, int32_t i, int32_t k, const Tensor *t) MUST_CHECK;
/* The place of the result buffer i, or NULL where it is written directly. */
Err replay_place_result(struct Exec *e, int32_t i, char **at) MUST_CHECK;
/* What is launched from here on is captured; then it is a graph, if it is the whole. */
Err replay_begin(struct Exec *e) MUST_CHECK;
Err replay_end(struct Exec *e, bool whole) MUST_CHECK;
/* Runs the graph. */
Err replay_run(struct Exec *e) MUST_CHECK;
/* Copies the results to where the caller has them. */
Err replay_finish(struct Exec *e) MUST_CHECK;

#endif
