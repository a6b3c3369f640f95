/* parse.h - the state of a parse, shared by the files that read a graph's text: graph_parse.c
 * (nodes and regions), parse_word.c (words and numbers), parse_type.c (meshes, layouts, types),
 * parse_attr.c (attributes) and parse_note.c (what stands behind a semicolon, sources and spans).
 *
 * Errors stick: after the first, the text reads as if it ended there, so that every loop ends and
 * only graph_parse looks at `err`. */
#ifndef MESHLUA_PARSE_H
#define MESHLUA_PARSE_H

#include "ir/full.h"
#include "ir/graph.h"

typedef struct ParseNode {
    int32_t id;     /* its first result, or what stands for it */
    int32_t number; /* in the graph, where it has no result */
    int32_t op, nin, nout;
    const Val *in;           /* ids of the text, as all values until the end */
    const Type *const *type; /* NULL: not said */
    const void *attr;
    int32_t region;
    VEC(int32_t) body; /* regions */
    VEC(Offset) offset;
    VEC(const Loc *) loc;
    VEC(const Reason *) why;
    int32_t clone, role;
    const char *at; /* in the text */
} ParseNode;

typedef struct ParseValue {
    int32_t id, node, k;
    Val made; /* in the graph */
} ParseValue;

typedef struct ParseRegion {
    int32_t number; /* as the text says, or 0 */
    bool params_given;
    VEC(Val) param;
    VEC(Val) result;
    Val last; /* the highest id in it, regions inside included */
} ParseRegion;

typedef struct Parse {
    Ctx *cx;
    Arena arena;
    const char *text, *at; /* ends with a NUL */
    Err err;
    FullDefault def;
    Map values; /* by id */
    VEC(ParseValue) value;
    VEC(ParseNode) node;
    VEC(ParseRegion) region;
    AxisSource *source;
    int32_t nsource; /* -1: none given */
    VEC(Span) span;
    int depth;
} Parse;

/* ---- words ---- */
/* "line 3, column 8: expected ..., found '...'" */
void parse_fail(Parse *p, const char *fmt, ...) PRINTF(2, 3);
void parse_fail_at(Parse *p, const char *at, const char *fmt, ...) PRINTF(3, 4);
void parse_no_memory(Parse *p);
void parse_blanks(Parse *p);
/* Takes the word or sign if it is next. */
bool parse_take(Parse *p, const char *token);
void parse_want(Parse *p, const char *token);
/* At the end of a line (or of the text)? */
bool parse_at_end(Parse *p);
void parse_end_of_line(Parse *p); /* wants it, and goes to the next line that says something */
void parse_empty_lines(Parse *p); /* goes there, if it is not at one already */
int64_t parse_int(Parse *p, int64_t least, int64_t most, const char *what);
double parse_double(Parse *p);
const char *parse_word(Parse *p, const char *what); /* an identifier, interned */
bool parse_next_is_string(Parse *p);
const char *parse_string(Parse *p);                 /* quoted, interned; NULL for nil */
const char *parse_name(Parse *p, const char *what); /* an identifier or a string */
int parse_enum(Parse *p, const char *const *words, const char *what);
Val parse_value(Parse *p);           /* %7 */
int32_t parse_node_number(Parse *p); /* #7 */

/* ---- types ---- */
void parse_header(Parse *p);
AxisList parse_axes(Parse *p, const Mesh *m);
uint32_t parse_mask(Parse *p, const Mesh *m);
const Layout *parse_layout(Parse *p);
const Type *parse_type(Parse *p);
DType parse_dtype(Parse *p);

/* ---- the rest ---- */
/* `index`: which parameter of its region a param is that does not say so. */
const void *parse_attr(Parse *p, const OpDef *def, int64_t index);
void parse_comment(Parse *p, ParseNode *n);
bool parse_source(Parse *p); /* lines behind the program; false: it is no such line */
bool parse_span(Parse *p);

#endif
