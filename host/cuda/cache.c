#include "cuda/cache.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static CacheKey hash_of(const void *data, size_t size) {
    XXH128_hash_t h = XXH3_128bits(data, size);
    return (CacheKey){h.low64, h.high64};
}

void cache_mix(CacheKey *key, const void *data, size_t size) {
    CacheKey both[] = {*key, hash_of(data, size)};
    *key = hash_of(both, sizeof both);
}

void cache_mix_text(CacheKey *key, const char *text) {
    cache_mix(key, text, strlen(text));
}

typedef struct Header {
    char magic[8];
    CacheKey key, content;
    uint64_t size;
} Header;

static Header header_of(CacheKey key, const void *data, size_t size) {
    return (Header){.magic = "meshlua", .key = key, .content = hash_of(data, size), .size = size};
}

static int path_of(char *path, const char *folder, const char *kind, CacheKey key) {
    int n = snprintf(path, PATH_MAX, "%s/%016llx%016llx.%s", folder, (unsigned long long)key.high,
                     (unsigned long long)key.low, kind);
    return n > 0 && n < PATH_MAX;
}

/* The content behind the header, where it is that of the key and whole. */
static char *read_content(FILE *file, CacheKey key, size_t *size) {
    Header had;
    struct stat about;
    if (fread(&had, sizeof had, 1, file) != 1 || fstat(fileno(file), &about) != 0) return NULL;
    if ((uint64_t)about.st_size - sizeof had != had.size) return NULL;
    char *data = malloc(had.size ? had.size : 1);
    if (!data) return NULL;
    if (fread(data, 1, had.size, file) == had.size) {
        Header want = header_of(key, data, had.size);
        *size = had.size;
        if (memcmp(&had, &want, sizeof had) == 0) return data;
    }
    free(data);
    return NULL;
}

char *cache_read(const char *folder, const char *kind, CacheKey key, size_t *size) {
    char path[PATH_MAX];
    FILE *file = folder && path_of(path, folder, kind, key) ? fopen(path, "rbe") : NULL;
    if (!file) return NULL;
    char *data = read_content(file, key, size);
    fclose(file);
    return data;
}

/* Makes the folder, and those that it is in. */
static void make_folder(const char *folder) {
    char path[PATH_MAX];
    if (mkdir(folder, 0700) == 0 || errno != ENOENT) return;
    if (snprintf(path, sizeof path, "%s", folder) >= (int)sizeof path) return;
    for (char *at = path + 1; (at = strchr(at, '/')); *at++ = '/') {
        *at = 0;
        mkdir(path, 0700);
    }
    mkdir(path, 0700);
}

static int write_content(int handle, CacheKey key, const void *data, size_t size) {
    Header header = header_of(key, data, size);
    FILE *file = fdopen(handle, "wb");
    if (!file) {
        close(handle);
        return 0;
    }
    int whole = fwrite(&header, sizeof header, 1, file) == 1 && fwrite(data, 1, size, file) == size;
    return fclose(file) == 0 && whole;
}

/* Nobody sees a file that is not whole: it gets its name last. */
void cache_write(const char *folder, const char *kind, CacheKey key, const void *data,
                 size_t size) {
    char path[PATH_MAX], part[PATH_MAX];
    if (!folder || !path_of(path, folder, kind, key)) return;
    if (snprintf(part, sizeof part, "%s/part-XXXXXX", folder) >= (int)sizeof part) return;
    make_folder(folder);
    int handle = mkstemp(part);
    if (handle < 0) return;
    if (!write_content(handle, key, data, size) || rename(part, path) != 0) unlink(part);
}
