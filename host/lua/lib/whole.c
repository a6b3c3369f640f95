/* whole.c - whole entries of files, for the program's verbs: compared, and written anew. What is
 * wrong with a file is a result: nil, message, code. */
#include "lua/lib/lib.h"
#include "lua/value/value.h"

#include "run/disk/whole.h"

#include <string.h>

/* catalog_compare(catalog, entry, other, entry): {count = elements that differ, first = place of
 * the first (from 0), largest, relative}; or nil, message, code. */
static int catalog_compare(lua_State *L) {
    Host *h = state_of(L);
    int32_t i, j;
    WholeDifference d;
    Catalog *a = lib_catalog_entry(L, 1, 2, &i), *b = lib_catalog_entry(L, 3, 4, &j);
    if (!dims_equal(&a->entry[i].dims, &b->entry[j].dims))
        state_error(L, E_SHAPE, "catalog_compare: the shapes differ");
    Err err = whole_compare(&h->cx, a, i, b, j, &h->rt.interrupted, &d);
    if (err) return state_failed(L, h, err);
    lua_createtable(L, 0, 4);
    value_set_integer(L, "count", d.count);
    value_set_integer(L, "first", d.first);
    value_set_number(L, "largest", d.largest);
    value_set_number(L, "relative", d.relative);
    return 1;
}

/* The table on top, which keeps what this points to: {catalog, entry, begin, encoding}. */
static WholeEntry read_entry(lua_State *L) {
    WholeEntry e;
    int top = lua_gettop(L);
    arg_check_type(L, top, LUA_TTABLE, "catalog_write: an entry");
    for (int k = 1; k <= 4; k++) lua_rawgeti(L, top, k);
    e.catalog = lib_catalog_entry(L, top + 1, top + 2, &e.entry);
    e.begin = arg_integer(L, top + 3, "catalog_write: where an entry begins");
    e.encoding = arg_string(L, top + 4, NULL, "catalog_write: an encoding");
    if (e.begin < 0) state_error(L, E_VALUE, "catalog_write: an entry below 0");
    lua_settop(L, top - 1);
    return e;
}

/* catalog_write(path, header, size, entries {{catalog, entry, begin, encoding}...}): makes the
 * file; true, or nil, message, code. */
static int catalog_write(lua_State *L) {
    Host *h = state_of(L);
    size_t n;
    WholeFile file = {.path = arg_string(L, 1, &n, "catalog_write: the file")};
    if (strlen(file.path) != n) state_error(L, E_VALUE, "catalog_write: a NUL in the file's name");
    file.header = arg_string(L, 2, &file.nheader, "catalog_write: the header");
    file.size = arg_integer(L, 3, "catalog_write: the size");
    arg_check_type(L, 4, LUA_TTABLE, "catalog_write: the entries");
    file.count = (int32_t)lua_rawlen(L, 4);
    WholeEntry *list = lua_newuserdatauv(L, sizeof *list * (size_t)(file.count + 1), 0);
    for (int32_t i = 0; i < file.count; i++) {
        lua_rawgeti(L, 4, i + 1);
        list[i] = read_entry(L);
    }
    file.entry = list;
    file.stop = &h->rt.interrupted;
    Err err = whole_write(&h->cx, &file);
    if (err) return state_failed(L, h, err);
    lua_pushboolean(L, 1);
    return 1;
}

void lib_open_whole(lua_State *L) {
    static const luaL_Reg fns[] = {
        {"catalog_compare", catalog_compare}, {"catalog_write", catalog_write}, {NULL, NULL}};
    luaL_setfuncs(L, fns, 0);
}
