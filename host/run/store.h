/* store.h - where the program keeps between runs what took long to find out: compiled kernels, the
 * choice of an algorithm. All of it may be deleted at any time. */
#ifndef MESHLUA_STORE_H
#define MESHLUA_STORE_H

#include <stddef.h>

/* The user's folder for it, which need not exist yet: $MESHLUA_CACHE, $XDG_CACHE_HOME/meshlua or
 * ~/.cache/meshlua. NULL: MESHLUA_CACHE is "off", or there is no home. */
const char *store_folder(char *path, size_t size);

#endif
