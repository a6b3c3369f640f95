/* explicit.h - explicit mode: along the mesh's explicit axes, how a value lies is part of its type
 * in the traced graph.
 *
 * An op's results get their layouts from its operands' through the op's sharding rule, so no op is
 * known here. A strict build (what a user writes) refuses where two answers are possible, and lists
 * them with what each costs; any other build (what rules and passes write) takes one: sums stay
 * unreduced, and of two layouts that of the larger tensor is kept. The layouts of a type in
 * explicit mode have whole axes only, and no open dims. */
#ifndef MESHLUA_EXPLICIT_H
#define MESHLUA_EXPLICIT_H

#include "ir/build.h"

/* The axes that are part of the types of what is built. */
uint32_t explicit_axes(const Build *b);
/* Those that are part of the type of a value of this layout. */
uint32_t explicit_axes_of(const Mesh *m, const Layout *l);
/* What a type says along `axes`, and nothing else: replicated where it has no layout. */
void explicit_view(const Type *t, const Mesh *m, uint32_t axes, Layout *view);
/* The layouts of an op's results. `in`: its operands in the graph; `out`: types without layout;
 * `mode`: that of the results. */
Err explicit_infer(const Build *b, const OpArgs *a, const Val *in, const Type *const *out, int nout,
                   Mode mode, Layout *layouts) MUST_CHECK;
/* The axes over which unreduced sums of the operands go through the op: it is linear in them. `in`
 * has the operands' layouts. */
uint32_t explicit_through(const OpArgs *a, const Layout *in, const Type *const *out);

#endif
