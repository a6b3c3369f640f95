/* processes.c - bare MPI inside of meshlua's own processes, as a Lua module, for processes.lua:
 * mpicc -O2 -shared -fPIC `pkg-config --cflags lua5.4` -o build/bare_mpi.so bench/processes.c */
#include <lauxlib.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

/* allreduce(bytes, times): seconds of one MPI_Allreduce of float32, from one buffer to another. */
static int allreduce(lua_State *L) {
    size_t bytes = (size_t)luaL_checkinteger(L, 1);
    int times = (int)luaL_checkinteger(L, 2), count = (int)(bytes / sizeof(float));
    static float *from, *to;
    static size_t have;
    if (bytes > have) {
        from = realloc(from, bytes);
        to = realloc(to, bytes);
        if (!from || !to) return luaL_error(L, "out of memory");
        memset(from, 0, bytes);
        memset(to, 0, bytes);
        have = bytes;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int i = 0; i < times; i++)
        MPI_Allreduce(from, to, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    lua_pushnumber(L, (MPI_Wtime() - start) / times);
    return 1;
}

static int barrier(lua_State *L) {
    (void)L;
    MPI_Barrier(MPI_COMM_WORLD);
    return 0;
}

int luaopen_bare_mpi(lua_State *L) {
    static const luaL_Reg functions[] = {
        {"allreduce", allreduce}, {"barrier", barrier}, {NULL, NULL}};
    luaL_newlib(L, functions);
    return 1;
}
