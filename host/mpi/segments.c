#include "mpi/segments.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PLACE   "/dev/shm"
#define SETTING "OMPI_MCA_btl_vader_backing_directory"

/* "meshlua.USER.NAMESPACE.PID.START": numbers of processes mean something in their namespace alone,
 * and are used again: with the moment of its start one is the only one of its number. */
enum { USER, NAMESPACE, PID, START, PARTS, NAME = 128 };
typedef struct Owner {
    unsigned long long part[PARTS];
} Owner;

/* When a process started; 0: there is none, or it is dead and nobody has asked how it ended yet. */
static unsigned long long start_of(unsigned long long pid) {
    enum { BEHIND_NAME = 20 }; /* fields */
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%llu/stat", pid);
    FILE *f = fopen(path, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    text[n] = '\0';
    char *at = strrchr(text, ')'); /* the name may hold anything */
    if (at && strncmp(at, ") Z", 3) == 0) at = NULL;
    for (int field = 0; at && field < BEHIND_NAME; field++) at = strchr(at + 1, ' ');
    return at ? strtoull(at + 1, NULL, 10) : 0;
}

/* This process; false where /proc does not tell. */
static int find_owner(Owner *o) {
    struct stat namespace;
    if (stat("/proc/self/ns/pid", &namespace) != 0) return 0;
    unsigned long long pid = (unsigned long long)getpid();
    *o = (Owner){{geteuid(), namespace.st_ino, pid, start_of(pid)}};
    return o->part[START] != 0;
}

static void name_of(const Owner *o, char name[NAME]) {
    snprintf(name, NAME, "meshlua.%llu.%llu.%llu.%llu", o->part[USER], o->part[NAMESPACE],
             o->part[PID], o->part[START]);
}

/* Is it a name as name_of makes them? */
static int read_name(const char *name, Owner *o) {
    char again[NAME];
    if (strncmp(name, "meshlua.", 8) != 0) return 0;
    const char *at = name + 7;
    for (int i = 0; i < PARTS; i++) {
        char *end;
        if (*at != '.') return 0;
        o->part[i] = strtoull(at + 1, &end, 10);
        at = end;
    }
    name_of(o, again);
    return strcmp(name, again) == 0;
}

/* A folder, and the files in it; it is this user's. */
static void remove_folder(int place, const char *name) {
    int fd = openat(place, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat info;
    DIR *folder =
        fd >= 0 && fstat(fd, &info) == 0 && info.st_uid == geteuid() ? fdopendir(fd) : NULL;
    if (!folder) {
        if (fd >= 0) close(fd);
        return;
    }
    for (const struct dirent *e; (e = readdir(folder));) unlinkat(fd, e->d_name, 0);
    closedir(folder);
    unlinkat(place, name, AT_REMOVEDIR);
}

static void remove_dead(const Owner *mine) {
    Owner o;
    DIR *place = opendir(PLACE);
    if (!place) return;
    for (const struct dirent *e; (e = readdir(place));)
        if (read_name(e->d_name, &o) && o.part[USER] == mine->part[USER] &&
            o.part[NAMESPACE] == mine->part[NAMESPACE] && start_of(o.part[PID]) != o.part[START])
            remove_folder(dirfd(place), e->d_name);
    closedir(place);
}

int segments_begin(void) {
    Owner mine;
    char name[NAME], path[NAME + sizeof PLACE];
    if (!find_owner(&mine)) return 0;
    remove_dead(&mine);
    name_of(&mine, name);
    snprintf(path, sizeof path, PLACE "/%s", name);
    if (getenv(SETTING) || mkdir(path, 0700) != 0) return 0; /* what a user has set himself stays */
    return setenv(SETTING, path, 1) == 0;
}

void segments_begun(void) {
    unsetenv(SETTING);
}

void segments_end(void) {
    Owner mine;
    char name[NAME];
    int place = open(PLACE, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (place >= 0 && find_owner(&mine)) {
        name_of(&mine, name);
        remove_folder(place, name);
    }
    if (place >= 0) close(place);
}
