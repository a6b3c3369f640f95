/* holes.c - two treaps over the same holes: search trees whose shape follows from priorities, which
 * are hashes of the holes' numbers, so that they stay flat whatever comes. */
#include "pass/plan/holes.h"

#include "base/hash.h"

enum { BY_PLACE, BY_SIZE };

static bool is_before(const Hole *a, const Hole *b, int by) {
    if (by == BY_SIZE && a->size != b->size) return a->size < b->size;
    return a->at < b->at;
}

static void insert(Holes *h, int by, int32_t x) {
    Hole *all = h->hole.at;
    int32_t *link = &h->root[by];
    while (*link && all[*link].priority >= all[x].priority)
        link = &all[*link].child[by][is_before(&all[*link], &all[x], by)];
    int32_t rest = *link, *low = &all[x].child[by][0], *high = &all[x].child[by][1];
    *link = x;
    while (rest) { /* those below go to its two sides */
        bool before = is_before(&all[rest], &all[x], by);
        int32_t **side = before ? &low : &high;
        **side = rest;
        *side = &all[rest].child[by][before];
        rest = **side;
    }
    *low = *high = 0;
}

static void take_out(Holes *h, int by, int32_t x) {
    Hole *all = h->hole.at;
    int32_t *link = &h->root[by];
    while (*link != x) link = &all[*link].child[by][is_before(&all[*link], &all[x], by)];
    int32_t low = all[x].child[by][0], high = all[x].child[by][1];
    while (low && high) {
        bool first = all[low].priority >= all[high].priority;
        int32_t *top = first ? &low : &high;
        *link = *top;
        link = &all[*top].child[by][first];
        *top = *link;
    }
    *link = low ? low : high;
}

/* The first hole that is not before `key`, or 0; *last: the last that is. */
static int32_t search(const Holes *h, int by, const Hole *key, int32_t *last) {
    int32_t from = 0;
    *last = 0;
    for (int32_t i = h->root[by]; i;) {
        const Hole *hole = &h->hole.at[i];
        bool before = is_before(hole, key, by);
        *(before ? last : &from) = i;
        i = hole->child[by][before];
    }
    return from;
}

static void forget(Holes *h, int32_t x) {
    take_out(h, BY_PLACE, x);
    take_out(h, BY_SIZE, x);
    h->hole.at[x].child[BY_PLACE][0] = h->spare;
    h->spare = x;
}

int64_t holes_take(Holes *h, int64_t size) {
    int32_t last, best = search(h, BY_SIZE, &(Hole){.size = size}, &last);
    if (!best) {
        int64_t at = h->top;
        search(h, BY_PLACE, &(Hole){.at = h->top}, &last);
        if (last && h->hole.at[last].at + h->hole.at[last].size == h->top) {
            at = h->hole.at[last].at; /* the hole at the end grows */
            forget(h, last);
        }
        h->top = at + size;
        return at;
    }
    Hole *hole = &h->hole.at[best];
    int64_t at = hole->at;
    if (hole->size == size) {
        forget(h, best);
        return at;
    }
    take_out(h, BY_SIZE, best); /* its place among the others stays */
    hole->at += size;
    hole->size -= size;
    insert(h, BY_SIZE, best);
    return at;
}

bool holes_give(Arena *a, Holes *h, int64_t at, int64_t size) {
    if (size == 0) return true;
    while (!h->spare) {
        if (!VEC_PUSH(a, &h->hole, (Hole){.at = 0})) return false;
        h->spare = h->hole.n - 1;
    }
    int32_t before, behind = search(h, BY_PLACE, &(Hole){.at = at}, &before);
    if (behind && at + size == h->hole.at[behind].at) {
        size += h->hole.at[behind].size;
        forget(h, behind);
    }
    if (before && h->hole.at[before].at + h->hole.at[before].size == at) {
        at = h->hole.at[before].at;
        size += h->hole.at[before].size;
        forget(h, before);
    }
    int32_t x = h->spare;
    Hole *hole = &h->hole.at[x];
    h->spare = hole->child[BY_PLACE][0];
    *hole = (Hole){.at = at, .size = size, .priority = (uint32_t)hash_u64(0, (uint64_t)x)};
    insert(h, BY_PLACE, x);
    insert(h, BY_SIZE, x);
    return true;
}
