/* output.h - the standard streams: what of several processes' output reaches the user, that of the
 * ranks that speak; and whether it has reached him. */
#ifndef MESHLUA_OUTPUT_H
#define MESHLUA_OUTPUT_H

#include "run/job/ranks.h"

#include <lua.h>
#include <stdio.h>

/* Before any file is opened: the numbers of standard streams that are closed lead to where nothing
 * can be read or written, so that no file gets one of them and what is printed into it. */
void output_hold_places(void);
/* From here on the standard output and what the script writes to the standard error have their
 * rank in front of each line, where several ranks speak, or lead nowhere, where this one does not.
 * What C writes to the standard error of a silent rank comes out: it says why the process ends. */
void output_begin(lua_State *L, const Ranks *r);
/* From here on both, of C and of Lua, are these. */
void output_lead(lua_State *L, FILE *to_out, FILE *to_err);
/* What the script of a silent rank wrote to its standard error last; "": nothing. */
const char *output_last_words(void);
/* At the end: why not all that was written to the standard output has come out; NULL: it has. */
const char *output_fault(void);

#endif
