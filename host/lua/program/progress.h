/* progress.h - what runs long on a terminal says so: a line below its output that goes when the
 * next output comes, or the end. */
#ifndef MESHLUA_PROGRESS_H
#define MESHLUA_PROGRESS_H

#include <lua.h>

/* From here on stdout and stderr note what is written to them. Once, on a capable terminal; adds
 * nothing anywhere else. */
void progress_open(lua_State *L);
/* A chunk begins, and ends. Without progress_open: nothing. */
void progress_begin(void);
void progress_end(void);

#endif
