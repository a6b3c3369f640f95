/* processes.h - `--processes=R`: the script or verb in R processes on this host, through mpirun. */
#ifndef MESHLUA_PROCESSES_H
#define MESHLUA_PROCESSES_H

#include <stdbool.h>

typedef struct ProcessesOptions {
    const char *count; /* how many, in digits */
    int argc;          /* what this program was called with */
    char **argv;
    const bool *is_ours; /* by index in argv: not passed on */
} ProcessesOptions;

/* Is the text a number of processes? */
bool processes_is_count(const char *text);
/* Starts the processes, passes signals on to them, and returns the exit code when all have ended:
 * 3, with a message, where they could not be started. */
int processes_run(const ProcessesOptions *o);

#endif
