#include "ir/intern.h"

#include <string.h>

Err intern_init(Ctx *cx) {
    cx->interns = alloc_new(&cx->alloc, sizeof *cx->interns);
    if (!cx->interns) return err_nomem(cx, "the tables of names and types");
    arena_init(&cx->interns->arena, &cx->alloc);
    return E_OK;
}

void intern_free(Ctx *cx) {
    if (!cx->interns) return;
    arena_free(&cx->interns->arena);
    alloc_free(&cx->alloc, cx->interns, sizeof *cx->interns);
    cx->interns = NULL;
}

typedef struct Probe {
    const void *item;
    InternEqual *equal;
} Probe;

static bool probe_equal(const void *ud, const void *probe, int32_t value) {
    const InternTable *t = ud;
    const Probe *p = probe;
    return p->equal(p->item, t->items.at[value]);
}

const void *intern_find(const InternTable *t, const void *item, uint64_t hash, InternEqual *equal) {
    int32_t i = map_find(&t->map, hash, probe_equal, t, &(Probe){item, equal});
    return i < 0 ? NULL : t->items.at[i];
}

static const void *add(Ctx *cx, InternTable *t, const void *copy, uint64_t hash) {
    Arena *a = &cx->interns->arena;
    if (!copy || !VEC_ROOM(a, &t->items, 1) || !map_add(a, &t->map, hash, t->items.n)) return NULL;
    t->items.at[t->items.n++] = copy;
    return copy;
}

const void *intern_item(Ctx *cx, InternTable *t, const void *item, size_t size, uint64_t hash,
                        InternEqual *equal) {
    const void *found = intern_find(t, item, hash, equal);
    if (found) return found;
    return add(cx, t, arena_copy(&cx->interns->arena, item, size), hash);
}

typedef struct NameKey {
    const char *s;
    size_t n;
} NameKey;

static bool name_equal(const void *a, const void *b) {
    const NameKey *k = a;
    return strncmp(k->s, b, k->n) == 0 && ((const char *)b)[k->n] == '\0';
}

const char *intern_name_n(Ctx *cx, const char *s, size_t n) {
    InternTable *t = &cx->interns->names;
    uint64_t hash = hash_bytes(0, s, n);
    const void *found = intern_find(t, &(NameKey){s, n}, hash, name_equal);
    if (found) return found;
    char *copy = arena_alloc(&cx->interns->arena, n + 1);
    if (copy) memcpy(copy, s, n);
    return add(cx, t, copy, hash);
}

const char *intern_name(Ctx *cx, const char *s) {
    return intern_name_n(cx, s, strlen(s));
}

static bool loc_equal(const void *a, const void *b) {
    const Loc *x = a, *y = b;
    return x->chunk == y->chunk && x->line == y->line && x->lib_chunk == y->lib_chunk &&
           x->lib_line == y->lib_line && x->scope == y->scope;
}

const Loc *intern_loc(Ctx *cx, const Loc *loc) {
    uint64_t h = hash_u64(0, (uint64_t)(uintptr_t)loc->chunk);
    h = hash_u64(h, (uint64_t)(uintptr_t)loc->lib_chunk);
    h = hash_u64(h, (uint64_t)(uintptr_t)loc->scope);
    h = hash_u64(h, (uint64_t)(uint32_t)loc->line << 32 | (uint32_t)loc->lib_line);
    return intern_item(cx, &cx->interns->locs, loc, sizeof *loc, h, loc_equal);
}

void intern_print_loc(const Loc *loc, Str *s) {
    bool scope = loc && loc->scope;
    if (loc && loc->chunk)
        str_fmt(s, "%s:%d%s", loc->chunk, loc->line, scope ? " " : "");
    else if (!scope)
        str_put(s, "?");
    if (scope) str_fmt(s, "(%s)", loc->scope);
}
