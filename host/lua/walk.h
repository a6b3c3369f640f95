/* walk.h - over the arguments of a jitted function, in the one order that everybody uses (numbers
 * ascending, then strings bytewise): which leaves there are, and a key of everything else. */
#ifndef MESHLUA_WALK_H
#define MESHLUA_WALK_H

#include "lua/value.h"

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
    size_t root; /* bytes of h->path that are the name of the argument */
    int32_t nleaf;
    bool quiet, failed; /* quiet: what is no tree makes `failed` true where it would raise */
    bool name_modules;  /* note the paths of modules, for scopes */
    bool describe;      /* one line per part into h->describe */
    bool identity;      /* describe leaves by which they are, not by their types */
} Walk;

/* Pushes the tables it needs; h->key is emptied. */
void walk_begin(Walk *w, lua_State *L, Host *h, bool slots);
/* Adds the value at `index`, called `name`. Raises for cycles, and for what is nested too deep. */
void walk_value(Walk *w, int index, const char *name);
/* Adds a plain value (nil, boolean, number, string, or anything else by identity) to the key. */
void walk_static(Walk *w, int index);

/* Raises if the key or the description did not fit in memory. To be called at the end. */
void walk_check(const Walk *w);

/* Pushes the keys of a table as a list in the one order; raises for keys that have none. */
void walk_push_keys(lua_State *L, int table);
void walk_open(lua_State *L);

#endif
