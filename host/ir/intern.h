/* intern.h - what is kept once per Ctx and compared by address: names, locations, meshes, specs,
 * layouts and types. They live as long as the Ctx; their number is bounded by the program's text
 * and the shapes it uses. */
#ifndef MESHLUA_INTERN_H
#define MESHLUA_INTERN_H

#include "base/ctx.h"
#include "base/str.h"
#include "base/map.h"
#include "base/vec.h"

struct Build;
struct Mode;
struct OpDef;

/* Where a node was written: the user's line, the library's line that ran for it, and the path of
 * modules around it. NULL and 0 where unknown. */
typedef struct Loc {
    const char *chunk, *lib_chunk, *scope; /* interned names */
    int32_t line, lib_line;
} Loc;

typedef struct InternTable {
    Map map;
    VEC(const void *) items;
} InternTable;

typedef struct Interns {
    Arena arena;
    InternTable names, locs, meshes, specs, layouts, types, reasons, lists;
    const struct OpDef *ops; /* the op table, set once by op_init (op/op.c); indexed by op id */
    int32_t nops;            /* of its rows; the first is none */
    /* A value in another mode (ir/mode.h), as ops; set by op_init, too. */
    int32_t (*cast)(struct Build *b, int32_t v, struct Mode m);
} Interns;

Err intern_init(Ctx *cx) MUST_CHECK; /* sets cx->interns */
void intern_free(Ctx *cx);

/* The one address of these bytes; NULL when out of memory. */
const char *intern_name_n(Ctx *cx, const char *s, size_t n);
const char *intern_name(Ctx *cx, const char *s);
const Loc *intern_loc(Ctx *cx, const Loc *loc);
/* "mlp.lua:12 (h.3.mlp.up)"; "?" if NULL; "(h.3.mlp.up)" where only the path is known. */
void intern_print_loc(const Loc *loc, Str *s);

typedef bool InternEqual(const void *a, const void *b);
/* The item equal to *item, or NULL. */
const void *intern_find(const InternTable *table, const void *item, uint64_t hash,
                        InternEqual *equal);
/* The one copy of *item (size bytes) in `table`. NULL when out of memory. */
const void *intern_item(Ctx *cx, InternTable *table, const void *item, size_t size, uint64_t hash,
                        InternEqual *equal);

#endif
