#include "cuda/api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int api_open(const ApiLibrary *library, void *table, char *error, size_t size) {
    char why[256] = "";
    void *handle = NULL;
    const char *const *name = library->names;
    while (*name && !(handle = dlopen(*name, RTLD_NOW | RTLD_LOCAL))) {
        if (!why[0]) snprintf(why, sizeof why, "%s", dlerror()); /* of the best */
        name++;
    }
    if (!handle) {
        snprintf(error, size,
                 "%s is missing: %s; it comes with the CUDA toolkit or in a package of its own, and "
                 "the loader finds it by ldconfig or LD_LIBRARY_PATH",
                 library->what, why);
        return 0;
    }
    for (size_t i = 0; i < library->count; i++) {
        void *function = dlsym(handle, library->symbols[i]);
        if (!function) {
            snprintf(error, size, "%s (%s) is too old: it has no %s", library->what, *name,
                     library->symbols[i]);
            return 0;
        }
        memcpy((char *)table + i * sizeof function, &function, sizeof function);
    }
    return 1;
}
