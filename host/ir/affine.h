/* affine.h - integers that are known before anything runs, but for the turn of a loop and the
 * device: sums of multiples of loop counters, of places on the mesh and of indices of a tensor, and
 * step functions of such sums (a comparison is one of 0 and 1, an interval one of two steps).
 *
 * How an op acts on them its row says (OpDef.affine). A branch whose index is one is decided
 * without reading anything: see op/branch.c. */
#ifndef MESHLUA_AFFINE_H
#define MESHLUA_AFFINE_H

#include "ir/graph.h"

enum { AFFINE_LOOPS = 8, AFFINE_CUTS = 64 };

typedef struct AffineLoop {
    int32_t region; /* the loop's body; below 0: a parameter that stands for itself */
    int64_t by;     /* times the slice that the loop has come to, which is not 0 */
    int64_t trips;
} AffineLoop;

typedef struct AffineSum {
    int64_t mesh[MAX_AXES]; /* by axis: times the device's place along it */
    int64_t dim[MAX_RANK];  /* by dim: times the element's index along it */
    int32_t nloop;
    AffineLoop loop[AFFINE_LOOPS]; /* by region, ascending */
} AffineSum;

typedef struct Affine {
    AffineSum sum;
    bool stepped;
    int64_t add;  /* not stepped: the value is the sum and this */
    int32_t ncut; /* stepped: value[i] where cut[i - 1] <= the sum < cut[i] */
    int64_t cut[AFFINE_CUTS], value[AFFINE_CUTS + 1];
} Affine;

/* What a rule is given: the node, what its operands are, and types. */
typedef struct AffineArgs {
    const Mesh *mesh;
    const Node *n;
    const Affine *x;
    const Type *const *in;
    const Type *out;
} AffineArgs;

/* All return false where the result is none, or too large for what is kept here. */
void affine_constant(Affine *a, int64_t x);
bool affine_add(const Affine *x, const Affine *y, int64_t by, Affine *out); /* x + by * y */
bool affine_mul(const Affine *x, const Affine *y, Affine *out);
/* f of both, of which at least one is stepped or constant. */
bool affine_zip(const Affine *x, const Affine *y, int64_t (*f)(int64_t, int64_t), Affine *out);
/* 1 or 0: what it is where x < y, x == y, x > y. */
bool affine_compare(const Affine *x, const Affine *y, bool less, bool equal, bool greater,
                    Affine *out);
/* Adds `unit` times the device's place along the list. */
bool affine_add_place(Affine *a, const Mesh *m, const AxisList *list, int64_t unit);

/* ---- values of a graph ---- */
typedef struct AffineWalk {
    const Graph *g;
    bool open;      /* parameters of regions that nobody owns yet may be anything */
    Val stuck;      /* the value that is none, if there was one */
    int32_t budget; /* nodes that may still be looked at */
    int32_t nself;
    Val self[AFFINE_LOOPS]; /* carries whose next value is being looked at */
} AffineWalk;

/* What v is, an integer or a bool. */
bool affine_of(AffineWalk *w, Val v, Affine *out);
static inline AffineWalk affine_walk(const Graph *g, bool open) {
    return (AffineWalk){.g = g, .open = open, .budget = 512};
}

#endif
