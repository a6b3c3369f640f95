/* meet.h - where the processes of a job meet: the sockets of the channel, and how they find each
 * other. */
#ifndef MESHLUA_MEET_H
#define MESHLUA_MEET_H

#include "run/ranks.h"

enum { MEET_HOSTS = 1024 };

/* Plain bytes: it is sent as it is. */
typedef struct Meet {
    uint64_t token;         /* who knows it belongs to the job */
    int32_t port;           /* of TCP */
    char hosts[MEET_HOSTS]; /* separated by spaces, in the order to try; "@NAME": an abstract unix
                             * socket; "": not known */
} Meet;

/* Where every process knows by itself that rank 0 is: MASTER_ADDR:MASTER_PORT, or a name of the job
 * where all are on one host. False, and empty, if it does not. */
bool meet_find(const Ranks *r, Meet *out);
/* For people: "10.0.0.1:29500". */
void meet_text(const Meet *m, char *to, size_t size);

/* A socket that waits for the others, and in `m` where it is if that was left empty; -1, with a
 * text in `error`: it failed. `taken`: someone waits there already. */
int meet_listen(Meet *m, bool *taken, char *error, size_t size);
/* The next who comes, of the same user where the socket tells; -1: none. */
int meet_accept(int listener);
/* Begins to connect to host number k of the list, beginning again behind its end; -1: not now. */
int meet_connect(const Meet *m, int k);
/* 1: connected, 0: not yet, -1: it failed. */
int meet_connected(int fd);

#endif
