#include "lua/program/probe.h"

#include "kernel.h"

#include <dlfcn.h>
#include <lauxlib.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* real_path(file): without links; nil if there is no such file. */
static int real_path(lua_State *L) {
    char file[PATH_MAX];
    if (!realpath(luaL_checkstring(L, 1), file)) return 0;
    lua_pushstring(L, file);
    return 1;
}

/* library(name [, version]): the file that the loader finds under this name and, from its function
 * `version` (int f(int *)), a number; nil and the loader's words where there is none. */
static int library(lua_State *L) {
    const char *name = luaL_checkstring(L, 1), *symbol = luaL_optstring(L, 2, NULL);
    void *lib = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    if (!lib) {
        lua_pushnil(L);
        lua_pushstring(L, dlerror());
        return 2;
    }
    char file[PATH_MAX];
    struct link_map *map = NULL;
    if (dlinfo(lib, RTLD_DI_LINKMAP, &map) != 0 || !realpath(map->l_name, file))
        snprintf(file, sizeof file, "%s", name);
    int number = 0;
    int (*version)(int *) = symbol ? (int (*)(int *))dlsym(lib, symbol) : NULL;
    bool known = version && version(&number) == 0;
    dlclose(lib);
    lua_pushstring(L, file);
    if (!known) return 1;
    lua_pushinteger(L, number);
    return 2;
}

/* kernels(level): the names in the table of that level, as a set; nil where it cannot run here. */
static int kernels(lua_State *L) {
    const KernelRow *row = k_cpu_table(luaL_checkstring(L, 1));
    if (!row) return 0;
    lua_newtable(L);
    for (; row->name; row++) {
        lua_pushboolean(L, 1);
        lua_setfield(L, -2, row->name);
    }
    return 1;
}

void probe_open(lua_State *L) {
    static const luaL_Reg fns[] = {
        {"real_path", real_path}, {"library", library}, {"kernels", kernels}, {NULL, NULL}};
    luaL_setfuncs(L, fns, 0);
}
