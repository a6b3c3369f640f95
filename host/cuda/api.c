#include "cuda/api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether the file's name ends with that version: "libnvrtc.so.13". */
static int is_of(const char *name, int version) {
    return version == API_ANY || atoi(strrchr(name, '.') + 1) == version;
}

int api_open(const ApiLibrary *library, int version, void *table, char *error, size_t size) {
    char why[256] = "";
    void *handle = NULL;
    const char *const *name = library->names;
    for (; *name; name++) {
        if (!is_of(*name, version)) continue;
        if ((handle = dlopen(*name, RTLD_NOW | RTLD_LOCAL))) break;
        if (!why[0]) snprintf(why, sizeof why, "%s", dlerror()); /* of the best */
    }
    if (!handle) {
        snprintf(
            error, size,
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
