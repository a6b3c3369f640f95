/* test_cache.c - compiled kernels between processes. The test starts itself, once for each process
 * that it needs: "test_cache FOLDER" runs a kernel and tells whether the compiler was opened. */
#include "rows.h"
#include "cuda/cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- a process ---- */

enum { FAILED = 1, CACHED = 10, COMPILED = 11 };

static int compiler_is_open(void) {
    char line[4096];
    int open = 0;
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps)) open |= strstr(line, "libnvrtc") != NULL;
    if (maps) fclose(maps);
    return open;
}

static int run_kernel(const char *folder) {
    Device d = rows_open(folder, 0);
    float x[] = {1, 2, 3}, y[3];
    char *gx = d.alloc(d.self, 0, sizeof x), *gy = d.alloc(d.self, 0, sizeof y);
    size_t scratch;
    Pair p;
    rows_pair(&p, 3, gx, gy);
    void *bound = d.bind(d.self, 0, "twice_plus", &p.args, &scratch);
    int right = bound && d.upload(d.self, 0, gx, x, sizeof x) &&
                d.launch(d.self, bound, &p.args, NULL, 0) &&
                d.download(d.self, 0, y, gy, sizeof y) && y[0] == 3 && y[1] == 5 && y[2] == 7;
    if (!right) fprintf(stderr, "%s\n", d.error(d.self));
    if (bound) d.unbind(d.self, bound);
    d.close(d.self);
    return !right ? FAILED : compiler_is_open() ? COMPILED : CACHED;
}

/* Which compute capability code is compiled for. */
static int run_built_for(const char *folder) {
    Device d = rows_open(folder, 0);
    float y[3];
    char *gx = d.alloc(d.self, 0, sizeof y), *gy = d.alloc(d.self, 0, sizeof y);
    size_t scratch;
    Pair p;
    rows_pair(&p, 3, gx, gy);
    void *bound = d.bind(d.self, 0, "built_for", &p.args, &scratch);
    int right = bound && d.launch(d.self, bound, &p.args, NULL, 0) &&
                d.download(d.self, 0, y, gy, sizeof y) && y[0] == y[2];
    if (bound) d.unbind(d.self, bound);
    d.close(d.self);
    return right ? (int)y[0] / 10 : FAILED;
}

/* ---- the test ---- */

static const char *program;

static int process_of(const char *variable, const char *folder) {
    char command[4096];
    snprintf(command, sizeof command, "%s '%s' '%s'", variable, program, folder);
    int status = system(command);
    return status >= 0 ? status >> 8 : -1;
}
static int process(const char *folder) {
    return process_of("", folder);
}

/* The file in the folder, of which there is one. */
static int only_file(const char *folder, char *path, size_t size) {
    int n = 0;
    DIR *dir = opendir(folder);
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (e->d_name[0] != '.') {
            snprintf(path, size, "%s/%s", folder, e->d_name);
            n++;
        }
    if (dir) closedir(dir);
    return n == 1;
}

/* A file that is whole, with something in it that is no code. */
static void write_nonsense(const char *folder, const char *path) {
    static const char nonsense[4096] = "nonsense"; /* a loader reads a header without asking */
    CacheKey key;
    const char *name = strrchr(path, '/') + 1;
    unsigned long long high, low;
    CHECK(sscanf(name, "%16llx%16llx.cubin", &high, &low) == 2);
    key = (CacheKey){.low = low, .high = high};
    cache_write(folder, "cubin", key, nonsense, sizeof nonsense);
}

static void between_processes(const char *folder) {
    char path[4096], deep[4096];
    snprintf(deep, sizeof deep, "%s/a/b", folder);
    CHECK(process(deep) == COMPILED);
    CHECK(only_file(deep, path, sizeof path));
    CHECK(process(deep) == CACHED);

    write_nonsense(deep, path);
    CHECK(process(deep) == COMPILED);
    CHECK(process(deep) == CACHED);
    CHECK(only_file(deep, path, sizeof path));

    CHECK(process("/proc/nowhere") == COMPILED); /* not to be written */
    unlink(path);
    rmdir(deep);
    snprintf(deep, sizeof deep, "%s/a", folder);
    rmdir(deep);
}

/* GPUs of several kinds share a folder. */
static void each_kind_has_its_own(const char *folder) {
    static const struct {
        const char *variable;
        int built_for;
    } kinds[] = {{"BUILT_FOR=1 STANDIN_CAPABILITY=86", 86},
                 {"BUILT_FOR=1 STANDIN_CAPABILITY=80", 80},
                 {"BUILT_FOR=1 STANDIN_CAPABILITY=120", 120}};
    char command[4096];
    for (int turn = 0; turn < 2; turn++)
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
            CHECKF(process_of(kinds[i].variable, folder) == kinds[i].built_for, "%s",
                   kinds[i].variable);
    snprintf(command, sizeof command, "rm '%s'/*.cubin", folder);
    CHECK(system(command) == 0);
}

static void change_byte(const char *path, long at) {
    FILE *f = fopen(path, "r+b");
    CHECK(f && fseek(f, at, SEEK_SET) == 0);
    int c = fgetc(f);
    fseek(f, at, SEEK_SET);
    fputc(c ^ 1, f);
    fclose(f);
}

static void what_is_damaged_is_not_there(const char *folder) {
    char path[4096], text[] = "what was written", *read;
    CacheKey key = {1, 2};
    size_t n;
    CHECK(!cache_read(folder, "text", key, &n) && !cache_read(NULL, "text", key, &n));
    cache_write(folder, "text", key, text, sizeof text);
    read = cache_read(folder, "text", key, &n);
    CHECK(read && n == sizeof text && memcmp(read, text, n) == 0);
    free(read);
    CHECK(only_file(folder, path, sizeof path));
    struct stat about;
    stat(path, &about);
    for (long at = 0; at < about.st_size; at++) {
        change_byte(path, at);
        CHECK(!cache_read(folder, "text", key, &n));
        change_byte(path, at);
    }
    CHECK((read = cache_read(folder, "text", key, &n)));
    free(read);
    for (long size = about.st_size - 1; size >= 0; size--) {
        CHECK(truncate(path, size) == 0);
        CHECK(!cache_read(folder, "text", key, &n));
    }
    unlink(path);
}

/* Of files of 100 bytes and a header, of one kind and another, those read last. */
static void what_was_not_read_goes_first(const char *folder) {
    enum { FILES = 9, LEFT = 4 };
    static const char data[100];
    char path[4096];
    struct stat about;
    size_t n;
    for (uint64_t i = 1; i <= FILES; i++) {
        struct timespec times[2] = {{.tv_sec = (time_t)(i * 7 % 11) * 1000},
                                    {.tv_nsec = UTIME_OMIT}};
        cache_write(folder, i == FILES ? "other" : "kind", (CacheKey){i, 0}, data, sizeof data);
        snprintf(path, sizeof path, "%s/%016x%016x.%s", folder, 0, (unsigned)i,
                 i == FILES ? "other" : "kind");
        CHECK(utimensat(AT_FDCWD, path, times, 0) == 0 && stat(path, &about) == 0);
    }
    cache_trim(folder, "kind", (uint64_t)about.st_size * FILES); /* there are fewer */
    for (uint64_t i = 1; i < FILES; i++) {
        snprintf(path, sizeof path, "%s/%016x%016x.kind", folder, 0, (unsigned)i);
        CHECK(access(path, F_OK) == 0);
    }
    cache_trim(folder, "kind", (uint64_t)about.st_size * LEFT + LEFT);
    int left = 0;
    for (uint64_t i = 1; i < FILES; i++) { /* i * 7 % 11: 7 3 10 6 2 9 5 1 */
        char *read = cache_read(folder, "kind", (CacheKey){i, 0}, &n);
        CHECKF(!read == (i * 7 % 11 < 6), "file %d", (int)i);
        left += read != NULL;
        free(read);
    }
    CHECK(left == LEFT);
    cache_trim(folder, "kind", 0);
    CHECK(only_file(folder, path, sizeof path)); /* of another kind */
    unlink(path);
    cache_trim("/proc/nowhere", "kind", 0);
}

/* A disk that notes the time of a reading once a day leaves one behind the last change as it is. */
static void a_reading_is_noted(const char *folder) {
    char path[4096];
    struct stat about;
    size_t n;
    time_t now = time(NULL), later = now + 3600;
    struct timespec times[2] = {{.tv_sec = later}, {.tv_nsec = UTIME_OMIT}};
    cache_write(folder, "kind", (CacheKey){1, 0}, "x", 1);
    CHECK(only_file(folder, path, sizeof path) && utimensat(AT_FDCWD, path, times, 0) == 0);
    free(cache_read(folder, "kind", (CacheKey){1, 0}, &n));
    CHECK(stat(path, &about) == 0 && about.st_atime >= now && about.st_atime < later);
    unlink(path);
}

static void keys_tell_apart(void) {
    CacheKey a = {0, 0}, b = {0, 0}, c = {0, 0};
    cache_mix_text(&a, "ab");
    cache_mix_text(&a, "c");
    cache_mix_text(&b, "a");
    cache_mix_text(&b, "bc");
    cache_mix_text(&c, "c");
    cache_mix_text(&c, "ab");
    CHECK(memcmp(&a, &b, sizeof a) && memcmp(&a, &c, sizeof a) && memcmp(&b, &c, sizeof b));
}

int main(int argc, char **argv) {
    char folder[] = "/tmp/meshlua-cache-XXXXXX";
    if (argc > 1) return getenv("BUILT_FOR") ? run_built_for(argv[1]) : run_kernel(argv[1]);
    program = argv[0];
    keys_tell_apart();
    CHECK(mkdtemp(folder));
    what_is_damaged_is_not_there(folder);
    what_was_not_read_goes_first(folder);
    a_reading_is_noted(folder);
    between_processes(folder);
    each_kind_has_its_own(folder);
    rmdir(folder);
    return test_end();
}
