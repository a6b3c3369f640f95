/* secret.h - what the processes of a job know and strangers do not, and the proof of knowing it:
 * crypto_auth of libsodium over what was said in this one meeting. */
#ifndef MESHLUA_RUN_JOB_SECRET_H
#define MESHLUA_RUN_JOB_SECRET_H

#include "base/ctx.h"

#include <stdint.h>

enum {
    SECRET_KEY = 32, /* bytes */
    SECRET_NONCE = 32,
    SECRET_MAC = 32,
    SECRET_SAID = 4096,              /* the most that a proof is over, without its nonce */
    SECRET_TEXT = 2 * SECRET_KEY + 1 /* of one that is made here */
};

/* Who proves it: a proof of one is none of the other. */
typedef enum SecretRole { SECRET_MEMBER = 1, SECRET_HUB } SecretRole;

/* What it calls of libsodium, which is opened where there are several processes. */
typedef struct Sodium {
    int (*auth)(unsigned char *, const unsigned char *, unsigned long long, const unsigned char *);
    int (*verify)(const unsigned char *, const unsigned char *, unsigned long long,
                  const unsigned char *);
    int (*hash)(unsigned char *, size_t, const unsigned char *, unsigned long long,
                const unsigned char *, size_t);
    void (*random)(void *, size_t);
} Sodium;

typedef struct Secret {
    Sodium sodium;
    bool given; /* by MESHLUA_SECRET, or by rank 0; else all know the key */
    uint8_t key[SECRET_KEY];
} Secret;

/* Opens libsodium and reads MESHLUA_SECRET; E_RANKS: there is no library, or the file may be read
 * by others; E_VALUE: it is too short. */
Err secret_open(Ctx *cx, Secret *out) MUST_CHECK;
/* One of its own, for rank 0 to hand on. */
void secret_draw(Secret *s);
/* The one that rank 0 handed on. */
void secret_take(Secret *s, const uint8_t key[SECRET_KEY]);
/* A fresh one for MESHLUA_SECRET; false: the system gives no random bytes. */
bool secret_make(char text[SECRET_TEXT]);
void secret_nonce(const Secret *s, uint8_t nonce[SECRET_NONCE]);
/* The proof over what the member said, n <= SECRET_SAID bytes that have its own nonce in them, in
 * answer to the nonce of rank 0. */
void secret_prove(const Secret *s, SecretRole who, const uint8_t nonce[SECRET_NONCE],
                  const void *said, size_t n, uint8_t mac[SECRET_MAC]);
/* Is it one? Takes as long for every wrong one. */
bool secret_proves(const Secret *s, SecretRole who, const uint8_t nonce[SECRET_NONCE],
                   const void *said, size_t n, const uint8_t mac[SECRET_MAC]);

#endif
