/* full.h - the words of the full text form of a graph, which says everything that passes read:
 * what graph_print.c adds to the short form that people read. graph_parse.c reads both.
 *
 * A name that is no identifier is quoted; so is every string. `m` is the mesh of the graph: a
 * layout of another one says so. */
#ifndef MESHLUA_FULL_H
#define MESHLUA_FULL_H

#include "ir/attr.h"
#include "ir/reason.h"
#include "ir/span.h"

/* What a graph's first line says of its types, so that each says only where it differs. */
typedef struct FullDefault {
    const Mesh *mesh;
    bool local; /* types are of one shard */
    bool laid;  /* types have a layout, even where nothing of it is seen */
} FullDefault;

void full_axes(const AxisList *list, const Mesh *m, Str *s);
void full_mask(const Mesh *m, uint32_t mask, Str *s); /* "data", "(data,model)" */
void full_mesh(const Mesh *m, Str *s);                /* "Mesh(x=2) devices 0..1" */
/* An attribute's value where the short form loses something of it; false: print it as there. */
bool full_value(AttrKind kind, const void *x, DType dtype, const Mesh *m, Str *s);
void full_type(const Type *t, const FullDefault *d, Str *s);
void full_loc(const Loc *loc, Str *s);
void full_reason(const Reason *r, const Mesh *m, Str *s);
void full_span(const Span *span, Str *s); /* a line of its own */

/* The words of enums, NULL-terminated; graph_parse.c reads the same. */
extern const char *const full_unreduced_words[],
    *const full_origin_words[], *const full_save_words[], *const full_axis_words[];

#endif
