/* file.h - files that take the place of what was there, but not before there is something to write:
 * who is told of a wrong flag then still has what an earlier run has left. */
#ifndef MESHLUA_FILE_H
#define MESHLUA_FILE_H

#include <stdbool.h>
#include <stdio.h>

/* Opens a file for writing, made where it is missing; what is in it stays. NULL, with errno. */
FILE *file_open_kept(const char *path);
/* Takes out what is in it; false, with errno. Devices and pipes hold nothing. */
bool file_empty(FILE *f);

#endif
