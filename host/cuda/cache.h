/* cache.h - a folder of what took long to make, each in a file under the hash of all that decides
 * it. Files are written whole and checked when they are read, so that processes may share it, and
 * what is damaged counts as not there. That the folder cannot be written is no failure. */
#ifndef MESHLUA_CUDA_CACHE_H
#define MESHLUA_CUDA_CACHE_H

#include <stddef.h>
#include <stdint.h>

typedef struct CacheKey { /* begins as {0, 0} */
    uint64_t low, high;
} CacheKey;

/* Adds to what the key stands for; the order counts. */
void cache_mix(CacheKey *key, const void *data, size_t size);
void cache_mix_text(CacheKey *key, const char *text);

/* What is there under the key, to be freed; NULL: nothing. `kind` is the file's ending. Without a
 * folder (NULL) there is never anything. */
char *cache_read(const char *folder, const char *kind, CacheKey key, size_t *size);
void cache_write(const char *folder, const char *kind, CacheKey key, const void *data, size_t size);
/* Removes the files of a kind whose last reading is the longest ago until they have at most so many
 * bytes. One write in many does it, so that the folder stays below a GiB or so. */
void cache_trim(const char *folder, const char *kind, uint64_t most);

/* Makes the folder where it is not; whether files can be made in it. */
int cache_can_write(const char *folder);
/* Puts a file of that name and content there: in place of another, or as the first only. Gives
 * whether it did. */
typedef enum CachePut { CACHE_REPLACE, CACHE_FIRST } CachePut;
int cache_put(const char *folder, const char *name, CachePut how, const void *data, size_t size);

#endif
