/* walk.h - over the arguments of a jitted function, in the one order that everybody uses (numbers
 * ascending, then strings bytewise): which leaves there are, and a key of everything else.
 *
 * A quick walk takes tables in the order in which they happen to iterate. It makes no garbage,
 * never lets Lua allocate, and so is done before a finalizer can change anything. Its keys are of
 * no use for comparing with others, but two calls with the same one have the same key in the one
 * order. */
#ifndef MESHLUA_LUA_VALUE_WALK_H
#define MESHLUA_LUA_VALUE_WALK_H

#include "lua/value/value.h"

/* A table that a quick walk is in. */
typedef struct WayPoint {
    const void *table;
    const struct WayPoint *up;
} WayPoint;

typedef struct Walk {
    lua_State *L;
    Host *h;
    int leaves; /* stack index of a table: the distinct leaves (Params, tensors), in order */
    int seen;   /* stack index of a table: leaf -> its number; table on the way -> true */
    int slots;  /* 0, or a table: for each tensor that lies in a table, [3i+1] the table, [3i+2] the
                 * key, [3i+3] the leaf's number */
    int names;  /* 0, or a table: the path of each leaf, by number */
    int held;  /* 0, or a table: a list of the objects whose addresses are in the key, to be kept as
                * long as the key: another object could get the address otherwise */
    int depth; /* of tables on the way */
    size_t root;   /* bytes of h->path that are the name of the argument */
    size_t around; /* bytes of h->describe that are about what is around the arguments */
    int32_t nleaf, nnumber, nslot;
    const Type *printed; /* h->text holds it as text; or NULL */
    bool name_modules;   /* note the paths of modules, for scopes */
    bool describe;       /* one line per part into h->describe */
    bool identity;       /* tensors by which they are, not only by their types; quick: Params, too,
                          * and no leaves are found */
    bool quick;          /* the handles of leaves are in h->leaf, and there are no tables of them */
    bool failed;         /* quick: there is something that another walk would raise for */
    uint64_t before;     /* quick: h->marks; leaf i has the mark `before + i` */
    const WayPoint *way;
} Walk;

/* Pushes the tables it needs; h->key is emptied. */
void walk_begin(Walk *w, lua_State *L, Host *h, bool slots);
/* Begins a quick walk. What it finds in `h` is good until Lua allocates again. */
void walk_begin_quick(Walk *w, lua_State *L, Host *h);
/* Adds the value at `index`, called `name`. Raises for cycles, and for what is nested too deep. */
void walk_value(Walk *w, int index, const char *name);
/* Adds a plain value (nil, boolean, number, string, or anything else by identity) to the key. */
void walk_static(Walk *w, int index);
/* Adds a number that is an input. */
void walk_number(Walk *w, int index);
/* Quick: adds a leaf to those found, which the key has already and for which there is room. `from`
 * is added to its place there. */
void walk_more_leaves(const Walk *w, int32_t more);
static inline void walk_room_for_leaves(const Walk *w, int32_t n) {
    if (w->nleaf + n > w->h->leaf_cap) walk_more_leaves(w, n);
}
static inline void walk_add_leaf(Walk *w, const FoundLeaf *l, size_t from) {
    Host *h = w->h;
    h->leaf[w->nleaf++] = (FoundLeaf){l->box, l->handle, l->type_at + from};
    uint64_t mark = h->marks = w->before + (uint64_t)w->nleaf;
    *(l->box ? &l->box->mark : &l->handle->mark) = mark;
}
void walk_add_number(Walk *w, NumberArg x);

/* Raises if the key or the description did not fit in memory. To be called at the end. */
void walk_check(const Walk *w);

/* Pushes the keys of a table as a list in the one order; raises for keys that have none. */
void walk_push_keys(lua_State *L, int table);
void walk_open(lua_State *L);

#endif
