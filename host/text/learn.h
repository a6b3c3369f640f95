/* learn.h - a vocabulary learnt from texts: their pieces are counted, and then the pair of
 * neighbours that is there most often is merged, again and again; of equally frequent ones that of
 * the smaller ids. */
#ifndef MESHLUA_TEXT_LEARN_H
#define MESHLUA_TEXT_LEARN_H

#include "base/arena.h"
#include "text/split.h"

typedef struct Learn Learn;

typedef struct LearnMerge {
    int32_t left, right, into;
} LearnMerge;

Err learn_new(Ctx *cx, const Unicode *u, const SplitRule *rule, int rules, Learn **out) MUST_CHECK;
void learn_free(Ctx *cx, Learn *l); /* NULL is fine */
/* Counts the pieces of a text; bytes that are no UTF-8 are pieces of one. */
Err learn_add(Ctx *cx, Learn *l, const uint8_t *text, size_t n) MUST_CHECK;
bool learn_is_local(const Learn *l); /* see split_is_local */
/* Merges until there are `size` ids, or no pair is left. byte: the id of each, from 0 to 255 in any
 * order; new ids count on from there. The list is in the arena. */
Err learn_run(Ctx *cx, Learn *l, const int32_t byte[256], int32_t size, Arena *a, LearnMerge **out,
              int32_t *n) MUST_CHECK;

#endif
