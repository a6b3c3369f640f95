#include "cuda/api.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* The names of the files, "libnvrtc.so.13, libnvrtc.so.12". */
static void list_names(const ApiLibrary *library, char *text, size_t size) {
    size_t n = 0;
    *text = 0;
    for (const char *const *name = library->names; *name && n < size; name++)
        n += (size_t)snprintf(text + n, size - n, "%s%s", n > 0 ? ", " : "", *name);
}

int api_open(const ApiLibrary *library, void *table, char *error, size_t size) {
    char names[128];
    void *handle = NULL;
    const char *const *name = library->names;
    while (*name && !(handle = dlopen(*name, RTLD_NOW | RTLD_LOCAL))) name++;
    if (!handle) {
        list_names(library, names, sizeof names);
        snprintf(error, size,
                 "%s is missing (%s); it comes with the CUDA toolkit, whose libraries "
                 "the loader finds by ldconfig or LD_LIBRARY_PATH",
                 library->what, names);
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
