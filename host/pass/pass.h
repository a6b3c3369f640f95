/* pass.h - the passes, each from a graph to a new one; pipeline.c runs them in order. No pass
 * includes another (define runs some on a node alone), and none asks which op it has: they read the
 * ops' rows. */
#ifndef MESHLUA_PASS_H
#define MESHLUA_PASS_H

#include "ir/build.h"
#include "ir/plan.h"
#include "ir/target.h"

/* ---- on a graph under construction ---- */

/* Appends to `b` the cotangents of `wrt` given those of `y` (one each; 0: zero), and fills `grad`
 * with one value each: zeros where y does not depend on it. Nodes that are not differentiable are
 * errors only where a gradient would have to pass through them. */
void pass_grad(Build *b, const Val *y, const Val *ct, int ny, const Val *wrt, int nwrt, Val *grad);

typedef struct JvpCall {
    int32_t first; /* nodes from here on compute y of x */
    const Val *x, *t;
    int32_t nx, ny;
    Val *y;  /* those that stand for them from now on */
    Val *dy; /* to fill; 0: y is no float */
} JvpCall;
/* Appends to `b` the tangents of y given those of x (0: zero). */
void pass_jvp(Build *b, JvpCall *c);

typedef struct BatchCall {
    int32_t first; /* nodes from here on are of one example */
    /* Placeholders of one example, and the values of all: with a dim in front, of this size. */
    const Val *example, *all;
    int32_t nexample;
    int64_t size;
    const char *const *axis; /* mesh axes on which constraints inside put the examples */
    int32_t naxis;
    const char *name; /* by which examples ask for each other, interned, or NULL */
    Val *out;         /* results of one example, that of all where they differ by example */
    bool *is_mapped;  /* to fill, by result: do they? */
    int32_t nout;
} BatchCall;
/* Appends to `b` what the nodes compute, for all examples at once. */
void pass_batch(Build *b, BatchCall *c);

/* ---- the pipeline ---- */

/* What only changes costs, and can be switched off; some is on only where it pays. */
typedef enum PassSwitch {
    SWITCH_REUSE,        /* a value gathered for one use serves the others */
    SWITCH_HOIST,        /* a sum over devices that a loop only adds up is made behind the loop */
    SWITCH_REASSOCIATE,  /* a sum of partial sums is reduced once */
    SWITCH_BUCKET,       /* all_reduces go together */
    SWITCH_OVERLAP,      /* collectives run beside work: where links do not need the processor */
    SWITCH_SUM_PRODUCTS, /* a sum of products is one product of longer operands */
    SWITCH_BRANCHES,     /* devices skip branches that are known not to be theirs */
    SWITCH_FUSE,         /* elementwise ops run as one kernel */
    SWITCH_COUNT
} PassSwitch;
extern const char *const pipeline_switch_names[SWITCH_COUNT];

/* The stages of a program in their order, "trace" first and "plan" last, by which dumps are asked
 * for; NULL behind the last. */
const char *pipeline_stage(int i);
typedef struct PassOptions {
    const Target *target;
    bool expand;      /* every op that has one is replaced by its definition before the rest */
    bool verify;      /* graph_verify after every pass */
    bool reread;      /* and every stage's text is read back, which takes three times as long */
    uint32_t on, off; /* masks of PassSwitch; what is in neither is as the pass says */
    /* Called with each stage's name and text, if set. */
    void (*dump)(void *ud, const char *stage, const char *text);
    void *dump_ud;
    /* Asked before text is made: does anybody want this stage? */
    bool (*wants)(void *ud, const char *stage);
} PassOptions;

static inline bool pass_is_on(const PassOptions *o, PassSwitch s, bool otherwise) {
    return !(o->off >> s & 1) && (otherwise || o->on >> s & 1);
}

/* Each returns a new graph in *out and leaves `g` alone. */
Err pass_expand(const Graph *g, const PassOptions *o, Graph **out) MUST_CHECK;
/* The same for the nodes chosen only. */
Err pass_expand_chosen(const Graph *g, const bool *chosen, Graph **out) MUST_CHECK;
Err pass_simplify(const Graph *g, const PassOptions *o, Graph **out) MUST_CHECK;
/* Gives every value a layout. Parameters bring theirs; constraints give theirs. */
Err pass_propagate(const Graph *g, const PassOptions *o, Graph **out) MUST_CHECK;
/* Given `g` and what pass_propagate made of it: `g` with the definitions of those nodes that would
 * gather a dim they need whole, where these send less; NULL in *out where there is none. */
Err pass_define(const Graph *g, const Graph *laid, const PassOptions *o, Graph **out) MUST_CHECK;
/* Layouts for every value, and definitions for ops that would gather what lies split, as every
 * program has them. *out is to be freed also where it failed. */
Err pipeline_propagate(const Graph *g, const PassOptions *o, Graph **out) MUST_CHECK;
/* Local shapes, explicit collectives. */
Err pass_partition(const Graph *g, const PassOptions *o, Graph **out) MUST_CHECK;
/* Fewer and larger collectives. */
Err pass_comm(const Graph *g, const PassOptions *o, Graph **out) MUST_CHECK;
/* What a loop only adds up is summed over devices once, behind it. */
Err pass_hoist(const Graph *g, const PassOptions *o, Graph **out) MUST_CHECK;
/* Collectives start early and are waited for late; for targets whose links work by themselves. */
Err pass_overlap(const Graph *g, const PassOptions *o, Graph **out) MUST_CHECK;
/* Devices that differ in what they run: each its own, where that is known beforehand. Only for
 * graphs that have such branches. */
Err pass_branches(const Graph *g, const PassOptions *o, Graph **out) MUST_CHECK;
bool branches_are_there(const Graph *g);
/* Sums of products become one product where that moves fewer bytes. */
Err pass_sum_products(const Graph *g, const PassOptions *o, Graph **out) MUST_CHECK;
/* Steps with too few units of work for many threads become two. */
Err pass_split(const Graph *g, const PassOptions *o, Graph **out) MUST_CHECK;
/* Elementwise regions become fused nodes. */
Err pass_fuse(const Graph *g, const PassOptions *o, Graph **out) MUST_CHECK;

/* What may happen to the memory of a program's parameter: nothing; written over if nobody else
 * holds it and the program cannot fail any more; taken over, as the caller asked for. */
typedef enum Donation { DONATE_NO, DONATE_IF_SOLE, DONATE_ASKED } Donation;

/* Order, buffers, offsets: the last graph as a list of steps. `donated`: a
 * Donation per parameter. */
Err pass_plan(const Graph *g, const PassOptions *o, const uint8_t *donated, Plan **out) MUST_CHECK;

/* All of them, from a traced graph to a plan. `types` gets the global type of each result. */
Err pipeline_run(const Graph *traced, const PassOptions *o, const uint8_t *donated, Plan **out,
                 const Type **types) MUST_CHECK;

#endif
