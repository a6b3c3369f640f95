#include "cuda/cache.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <dirent.h>
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

static void name_of(char name[NAME_MAX + 1], const char *kind, CacheKey key) {
    snprintf(name, NAME_MAX + 1, "%016llx%016llx.%s", (unsigned long long)key.high,
             (unsigned long long)key.low, kind);
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

/* For cache_trim: disks note the time of a reading once a day, or never. It may be another user's
 * file, and stays as it is then. */
static void note_reading(FILE *file) {
    const struct timespec times[2] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
    (void)!futimens(fileno(file), times);
}

char *cache_read(const char *folder, const char *kind, CacheKey key, size_t *size) {
    char path[PATH_MAX], name[NAME_MAX + 1];
    if (!folder) return NULL;
    name_of(name, kind, key);
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path) return NULL;
    FILE *file = fopen(path, "rbe");
    if (!file) return NULL;
    char *data = read_content(file, key, size);
    note_reading(file);
    fclose(file);
    return data;
}

/* Makes the folder where it is not, and those that it is in. */
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

int cache_can_write(const char *folder) {
    if (!folder) return 0;
    make_folder(folder);
    return access(folder, W_OK | X_OK) == 0;
}

static int write_whole(int handle, const void *data, size_t size) {
    FILE *file = fdopen(handle, "wb");
    if (!file) {
        close(handle);
        return 0;
    }
    int whole = fwrite(data, 1, size, file) == size;
    return fclose(file) == 0 && whole;
}

/* Nobody sees a file that is not whole: it gets its name last. */
int cache_put(const char *folder, const char *name, CachePut how, const void *data, size_t size) {
    char path[PATH_MAX], part[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path ||
        snprintf(part, sizeof part, "%s/part-XXXXXX", folder) >= (int)sizeof part)
        return 0;
    make_folder(folder);
    int handle = mkstemp(part);
    if (handle < 0) return 0;
    int whole = write_whole(handle, data, size);
    if (whole && how == CACHE_REPLACE && rename(part, path) == 0) return 1;
    int first = whole && how == CACHE_FIRST && link(part, path) == 0;
    unlink(part);
    return first;
}

typedef struct Kept {
    struct timespec read;
    uint64_t size;
    char name[64];
} Kept;

/* The longest unread first. */
static int by_age(const void *a, const void *b) {
    const struct timespec *x = &((const Kept *)a)->read, *y = &((const Kept *)b)->read;
    if (x->tv_sec != y->tv_sec) return x->tv_sec < y->tv_sec ? -1 : 1;
    return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

/* The folder's files of a kind, to be freed. */
static Kept *list_kept(DIR *dir, const char *kind, size_t *n) {
    Kept *all = NULL;
    for (struct dirent *e; (e = readdir(dir));) {
        const char *ending = strrchr(e->d_name, '.');
        struct stat about;
        if (!ending || strcmp(ending + 1, kind) != 0 || strlen(e->d_name) >= sizeof all->name ||
            fstatat(dirfd(dir), e->d_name, &about, 0) != 0)
            continue;
        if ((*n & (*n - 1)) == 0) { /* full: as many again */
            Kept *more = realloc(all, (*n ? 2 * *n : 1) * sizeof *all);
            if (!more) break;
            all = more;
        }
        all[*n] = (Kept){.read = about.st_atim, .size = (uint64_t)about.st_size};
        strcpy(all[(*n)++].name, e->d_name);
    }
    return all;
}

/* Others may do so, too, and read meanwhile what is removed: who has a file open keeps it. */
void cache_trim(const char *folder, const char *kind, uint64_t most) {
    DIR *dir = opendir(folder);
    if (!dir) return;
    size_t n = 0;
    uint64_t sum = 0;
    Kept *all = list_kept(dir, kind, &n);
    for (size_t i = 0; i < n; i++) sum += all[i].size;
    if (sum > most) qsort(all, n, sizeof *all, by_age);
    for (size_t i = 0; i < n && sum > most; i++) {
        unlinkat(dirfd(dir), all[i].name, 0);
        sum -= all[i].size;
    }
    free(all);
    closedir(dir);
}

enum { WRITES = 64, MOST = 1 << 30 /* bytes of a kind, as one write in WRITES leaves them */ };

void cache_write(const char *folder, const char *kind, CacheKey key, const void *data,
                 size_t size) {
    char name[NAME_MAX + 1];
    Header header = header_of(key, data, size);
    char *whole = folder ? malloc(sizeof header + size) : NULL;
    if (!whole) return;
    memcpy(whole, &header, sizeof header);
    memcpy(whole + sizeof header, data, size);
    name_of(name, kind, key);
    cache_put(folder, name, CACHE_REPLACE, whole, sizeof header + size);
    free(whole);
    if (key.low % WRITES == 0) cache_trim(folder, kind, MOST);
}
