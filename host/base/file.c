#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

FILE *file_open_kept(const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    FILE *f = fd < 0 ? NULL : fdopen(fd, "w");
    if (fd >= 0 && !f) close(fd);
    return f;
}

bool file_empty(FILE *f) {
    return ftruncate(fileno(f), 0) == 0 || errno == EINVAL;
}
