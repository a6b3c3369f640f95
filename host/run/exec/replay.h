/* replay.h - on GPUs: the launches of a bound plan as graphs, captured at its second call and
 * replayed from then on, so that what lies between two exchanges of data costs the host one launch
 * for each GPU. Launched one by one are loops and branches that depend on data or exchange it,
 * segments of fewer than four launches or more than 65536, plans with more than 64 MB of results,
 * and calls that are profiled.
 *
 * A graph has addresses in it. Those of temporaries, and of donated arguments whose memory
 * goes from call to call, stay as they are. An argument that has moved since the latest call,
 * or that another GPU has, is copied to a place of the Exec's own from then on, results are
 * copied from one. When another address changes after all, the launches are captured again;
 * where that happens often, or there is no memory for such places, or they cannot be captured,
 * the plan does without. */
#ifndef MESHLUA_RUN_EXEC_REPLAY_H
#define MESHLUA_RUN_EXEC_REPLAY_H

#include "run/memory/tensor.h"

struct Exec;

typedef struct ReplayPart { /* of a plan: segments that are captured together, or that cannot be */
    int32_t first, n;
    void **graph;  /* by domain; NULL: they are launched one by one */
    bool captured; /* the graphs are there, and have this call's addresses in them */
} ReplayPart;

typedef struct Replay {
    bool on;                 /* this call runs the graphs */
    int32_t calls, captures; /* so far; calls that went well */
    ReplayPart *part;        /* nparts */
    int32_t nparts;
    size_t staged;   /* bytes of the params' places below */
    Buffer **param;  /* by param and domain: its place here, or NULL; NULL: graphs do not pay */
    Buffer **result; /* by Exec.buffer and domain: the same */
} Replay;

/* Finds out what of it pays as a graph. */
Err replay_bind(struct Exec *e) MUST_CHECK;
void replay_release(struct Exec *e);
/* At the beginning of a call, before anything has its place: is it this call's way to run? */
void replay_decide(struct Exec *e, Tensor *const *args);
/* The place of param i in the k-th domain, to which it is copied, or NULL where it is read where it
 * lies. */
char *replay_place_param(const struct Exec *e, int32_t i, int32_t k);
/* The place of the result buffer i in the k-th domain, or NULL where it is written directly. */
char *replay_place_result(const struct Exec *e, int32_t i, int32_t k);
/* When everything has its place: graphs with other addresses in them are forgotten. */
void replay_begin(struct Exec *e);
/* What is launched from here on is captured; then it is the part's graphs, if it is the whole. */
Err replay_capture(struct Exec *e) MUST_CHECK;
Err replay_captured(struct Exec *e, ReplayPart *s, bool whole) MUST_CHECK;
/* Runs the graphs of a part. */
Err replay_run(struct Exec *e, const ReplayPart *s) MUST_CHECK;
/* Copies the results to where the caller has them. */
Err replay_finish(struct Exec *e) MUST_CHECK;

#endif
