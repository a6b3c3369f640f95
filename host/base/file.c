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

int64_t file_read_at(int fd, void *to, size_t n, int64_t at) {
    size_t done = 0;
    while (done < n) {
        char *next = (char *)to + done;
        ssize_t got =
            at < 0 ? read(fd, next, n - done) : pread(fd, next, n - done, at + (int64_t)done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        if (got == 0) break;
        done += (size_t)got;
    }
    return (int64_t)done;
}

int file_write_at(int fd, const void *bytes, size_t n, int64_t at) {
    for (const char *from = bytes; n;) {
        ssize_t done = pwrite(fd, from, n, (off_t)at);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return done ? errno : EIO;
        from += done, at += done, n -= (size_t)done;
    }
    return 0;
}

int file_sync_folder(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return errno;
    int fault = fsync(fd) ? errno : 0;
    close(fd);
    return fault;
}
