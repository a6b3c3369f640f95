/* comm.h - the contract between run/ and what carries bytes between processes (MPI): plain C and
 * nothing else, and the only header of ours that a transport includes.
 *
 * A transport is a library with one symbol, mpi_open. It is asked by one thread only.
 * Whatever a plan's collectives are, they come down to one thing: every process sends some bytes to
 * some others and receives some, and both sides know how many, in which order. What is done with
 * them (sums, and in which order) is the same code as within a process. */
#ifndef MESHLUA_RUN_COMM_COMM_H
#define MESHLUA_RUN_COMM_COMM_H

#include <stddef.h>
#include <stdint.h>

enum { COMM_VERSION = 4 };

typedef struct CommPart {
    int32_t peer; /* a rank; never `own` */
    char *data;
    size_t bytes;
    int32_t own; /* of a transport with several ranks in this process: the rank that `data` is of */
} CommPart;

typedef struct Comm {
    int32_t version, rank, world; /* rank: this process's first */
    double cores; /* this process's share of the processors: others on this host use them, too */
    void *self;
    /* Begins to send and receive; what goes from one process to another arrives in the order in
     * which the parts stand here and there. NULL: it failed. */
    void *(*start)(void *self, const CommPart *send, int32_t nsend, const CommPart *recv,
                   int32_t nrecv);
    /* Helps all that is on its way, without waiting. */
    void (*help)(void *self, void *request);
    /* Waits until all of it is over. 0: it failed. */
    int (*wait)(void *self, void *request);
    /* Of a transport whose `wait` returns earlier, as it makes a GPU wait (NULL: of others): 1: the
     * request is over, 0: not yet, -1: it failed. Asked after `wait`, until it is not 0. */
    int (*over)(void *self, void *request);
    const char *(*error)(void *self);    /* of the latest failure */
    void (*abort)(void *self, int code); /* ends all processes; does not return. NULL: it cannot */
    void (*close)(void *self);           /* all processes call it */
} Comm;

/* Joins the other processes. 0, with a text in `error`: it failed. */
typedef int CommOpen(Comm *comm, char *error, size_t size);
#define COMM_OPEN "mpi_open"

#endif
