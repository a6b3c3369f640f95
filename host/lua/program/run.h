/* run.h - `meshlua run -n R script.lua`: the script in R processes on this host, through mpirun. */
#ifndef MESHLUA_RUN_H
#define MESHLUA_RUN_H

#include <stdbool.h>

typedef struct RunOptions {
    const char *processes; /* how many, in digits */
    int argc;              /* what this program was called with */
    char **argv;
    const bool *is_ours; /* by index in argv: not passed on */
} RunOptions;

/* Is the text a number of processes? */
bool run_is_count(const char *text);
/* Starts the processes, passes signals on to them, and returns the exit code when all have ended:
 * 3, with a message, where they could not be started. */
int run_processes(const RunOptions *o);

#endif
