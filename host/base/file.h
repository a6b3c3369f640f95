/* file.h - files that take the place of what was there, but not before there is something to write:
 * who is told of a wrong flag then still has what an earlier run has left. And bytes and names that
 * are to be on the disk. */
#ifndef MESHLUA_FILE_H
#define MESHLUA_FILE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Opens a file for writing, made where it is missing; what is in it stays. NULL, with errno. */
FILE *file_open_kept(const char *path);
/* Takes out what is in it; false, with errno. Devices and pipes hold nothing. */
bool file_empty(FILE *f);

/* Up to n bytes, from byte `at` of the file on; at < 0: the next of a pipe. How many came: fewer at
 * its end; -1, with errno. */
int64_t file_read_at(int fd, void *to, size_t n, int64_t at);
/* All of the bytes, from byte `at` of the file on. 0, or the errno. */
int file_write_at(int fd, const void *bytes, size_t n, int64_t at);
/* A folder's names are on the disk. 0, or the errno: some network disks cannot, EINVAL, ENOTSUP. */
int file_sync_folder(const char *path);

#endif
