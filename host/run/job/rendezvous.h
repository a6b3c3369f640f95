/* rendezvous.h - where the processes of a job meet: the sockets of the channel, and how they find
 * each other. */
#ifndef MESHLUA_RUN_JOB_RENDEZVOUS_H
#define MESHLUA_RUN_JOB_RENDEZVOUS_H

#include "run/job/ranks.h"
#include "run/job/secret.h"

enum { RENDEZVOUS_HOSTS = 1024 };

/* Plain bytes: it is sent as it is. */
typedef struct Rendezvous {
    uint64_t token;               /* which job it is; no secret */
    uint8_t key[SECRET_KEY];      /* one that rank 0 hands on with the rest; else not used */
    int32_t port;                 /* of TCP */
    char hosts[RENDEZVOUS_HOSTS]; /* separated by spaces, in the order to try; "@NAME": an abstract
                                   * unix socket; "": not known */
} Rendezvous;

/* Where every process knows by itself that rank 0 is: MASTER_ADDR:MASTER_PORT, or a name of the job
 * where all are on one host. False, and empty, if it does not. */
bool rendezvous_find(const Ranks *r, Rendezvous *out);
/* For people: "10.0.0.1:29500". */
void rendezvous_text(const Rendezvous *m, char *to, size_t size);

/* A socket that waits for the others at the address that `m` names, and nowhere else; on every
 * interface, and in `m` where that is, if it names none. -1, with a text in `error`: it failed.
 * `taken`: someone waits there already. */
int rendezvous_listen(Rendezvous *m, bool *taken, char *error, size_t size);

enum { RENDEZVOUS_FROM = 64 };

typedef struct RendezvousGuest { /* who comes, as the system says it */
    char from[RENDEZVOUS_FROM];  /* "10.0.0.7", "uid 1001"; "": of this user, on this host */
    uint64_t network;            /* the same for all whom one machine can pretend to be */
} RendezvousGuest;

enum { RENDEZVOUS_NOBODY = -1, RENDEZVOUS_TURNED_AWAY = -2, RENDEZVOUS_NO_ROOM = -3 };
/* The socket of the next who comes; or nobody does, or it is of another user and was turned away,
 * or there is no file for it. */
int rendezvous_accept(int listener, RendezvousGuest *who);
/* Begins to connect to host number k of the list, beginning again behind its end; -1: not now. */
int rendezvous_connect(const Rendezvous *m, int k);
/* 1: connected, 0: not yet, -1: it failed. */
int rendezvous_connected(int fd);
/* Is who waits at the other end of the same user, where the socket tells? */
bool rendezvous_is_ours(int fd);

#endif
