#include "run/library.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Tries it in a folder, given by a file in it. */
static void *open_beside(const char *file, const char *below, const char *name) {
    char path[PATH_MAX];
    const char *slash = strrchr(file, '/');
    if (!slash) return NULL;
    int n = snprintf(path, sizeof path, "%.*s/%s%s", (int)(slash - file), file, below, name);
    return n < (int)sizeof path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

void *library_open(const char *name) {
    static const char here = 0; /* its address is in the program or in the Lua module */
    char program[PATH_MAX] = "";
    Dl_info info;
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    void *library = n > 0 ? open_beside(program, "", name) : NULL;
    if (!library && n > 0) library = open_beside(program, "../lib/meshlua/", name);
    if (!library && dladdr(&here, &info) && info.dli_fname)
        library = open_beside(info.dli_fname, "", name);
    return library ? library : dlopen(name, RTLD_NOW | RTLD_LOCAL);
}
