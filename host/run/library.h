/* library.h - our own libraries that are opened where they are needed: what carries data between
 * processes, what runs plans on GPUs. */
#ifndef MESHLUA_LIBRARY_H
#define MESHLUA_LIBRARY_H

/* Looks beside the program or the Lua module, where `install` puts it, and where the loader looks.
 * NULL: it cannot be opened, and dlerror says why. */
void *library_open(const char *name);

#endif
