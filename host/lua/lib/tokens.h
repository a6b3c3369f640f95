/* tokens.h - lists of numbers that stay where they are: in a file, in memory, or one behind the
 * other in several such lists. What reads them knows no Lua, so that any thread may. */
#ifndef MESHLUA_LUA_LIB_TOKENS_H
#define MESHLUA_LUA_LIB_TOKENS_H

#include "ir/dtype.h"

#include <lua.h>

#define VALUE_TOKENS "meshlua.tokens"

/* User value 1 is its name. */
typedef struct DataFile {
    int fd;       /* -1: closed */
    int64_t size; /* -1: it can only be read from its beginning to its end, as a pipe */
} DataFile;

/* User value 1 is what holds the numbers (a string, the file, a table of lists), 2 the name of the
 * file that a string came from, or nil. */
typedef struct Tokens {
    const uint8_t *bytes; /* NULL: they are in the file, */
    const DataFile *file; /* NULL, too: in the parts */
    int64_t begin;        /* from this byte on */
    int64_t n;
    int32_t width; /* bytes per number, little-endian */
    int32_t dtype; /* a DType; -1: unsigned numbers of 1, 2 or 4 bytes, which become int32 */
    int32_t nparts;
    struct TokensPart {
        const struct Tokens *tokens;
        int64_t first; /* its first number's place in this list */
    } part[];
} Tokens;

/* What could not be read. */
typedef struct TokensFault {
    const Tokens *tokens; /* a list in a file */
    int64_t at, bytes;    /* in the file */
    int error;            /* errno; 0: the file has become shorter */
} TokensFault;

enum { TOKENS_ROOM = 1 << 16 }; /* bytes that are read from a file at once, at most */

/* The numbers from `first` on where they lie: in memory, or read into `room` (of TOKENS_ROOM
 * bytes). *count: how many are wanted, then how many are there. NULL: a fault. `read` counts the
 * bytes that came from files. */
const uint8_t *tokens_span(const Tokens *t, int64_t first, int64_t *count, uint8_t *room,
                           int64_t *read, TokensFault *fault);
/* The list in a file or in memory that has number `at`, which becomes its place there. */
const Tokens *tokens_part_at(const Tokens *t, int64_t *at);
/* One of 1, 2 or 4 bytes. */
static inline uint32_t tokens_number(const uint8_t *p, int32_t width) {
    uint32_t id = p[0];
    if (width > 1) id |= (uint32_t)p[1] << 8;
    if (width > 2) id |= (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    return id;
}

/* The list at `index`, an argument. */
const Tokens *tokens_at(lua_State *L, int index);
/* The list whose source is on top of the stack, which it takes: the caller fills it in. */
Tokens *tokens_push(lua_State *L, int32_t nparts);
/* Pushes the name of the file that has number `at` of the list at `index`, or nil; *byte: where. */
void tokens_push_name(lua_State *L, int index, int64_t at, int64_t *byte);
/* Raises for a fault in reading the list at `index`. */
_Noreturn void tokens_raise(lua_State *L, int index, const TokensFault *fault);
void tokens_open_batches(lua_State *L); /* adds functions to the table on top */

#endif
