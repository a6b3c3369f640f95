#include "run/store.h"
#include "base/env.h"

#include <stdio.h>
#include <string.h>

const char *store_folder(char *path, size_t size) {
    const char *own = env_get(ENV_CACHE), *caches = env_get(ENV_XDG_CACHE_HOME),
               *home = env_get(ENV_HOME);
    int n = -1;
    if (own && strcmp(own, "off") == 0) return NULL;
    if (own)
        n = snprintf(path, size, "%s", own);
    else if (caches && *caches == '/')
        n = snprintf(path, size, "%s/meshlua", caches);
    else if (home)
        n = snprintf(path, size, "%s/.cache/meshlua", home);
    return n > 0 && (size_t)n < size ? path : NULL;
}
