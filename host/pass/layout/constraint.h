/* constraint.h - what several constraints say of one value, and constraints as statements:
 * `x:constrain(P "data")` whose result nobody takes says how x lies. */
#ifndef MESHLUA_PASS_LAYOUT_CONSTRAINT_H
#define MESHLUA_PASS_LAYOUT_CONSTRAINT_H

#include "ir/copy.h"

/* Do two constraints ask for the same of every dim that neither leaves open? */
bool constraint_agree(const Node *a, const Node *b);
/* E_SPEC with what both ask for and where: "WHO: WHAT as P(..) at .., and P(..) at ..". */
Err constraint_error(const Graph *g, const char *who, const char *what, const Node *a,
                     const Node *b);

typedef struct Statements {
    bool *is;      /* by node: a constraint whose result only such constraints use */
    int32_t *last; /* by value: the node that uses it last; past the end for a result */
} Statements;

/* In `arena`; `live` by node. E_SPEC where two statements say different things of one value. */
Err constraint_statements(const Graph *g, const bool *live, Arena *arena,
                          Statements *out) MUST_CHECK;
/* Copies the statement if its value is used after it, and lets those uses have its result. */
void constraint_copy(const Statements *s, Copy *c, const Node *n);

#endif
