/* tokenizer.c - texts into ids and back, by a vocabulary that lualib/meshlua/tokenizer/ has read.
 * Ids count from 0. */
#include "lua/lib/lib.h"
#include "lua/value/value.h"
#include "text/encode.h"
#include "text/learn.h"

#include <stdlib.h>
#include <string.h>

#define VALUE_TOKENIZER "meshlua.tokenizer"
#define VALUE_IDS       "meshlua.ids"

typedef struct LuaTokenizer {
    Encoder e;
    uint8_t *special; /* by id */
    bool strip;       /* the first space of what is decoded is left out */
} LuaTokenizer;

static LuaTokenizer *tokenizer_at(lua_State *L, int index) {
    return value_udata(L, index, VALUE_TOKENIZER);
}

static int tokenizer_gc(lua_State *L) {
    LuaTokenizer *t = luaL_checkudata(L, 1, VALUE_TOKENIZER);
    Ctx *cx = &state_of(L)->cx;
    if (t->e.bpe) alloc_free(&cx->alloc, t->special, (size_t)t->e.bpe->size);
    t->special = NULL;
    encode_free(cx, &t->e);
    return 0;
}

/* ---- making one, of the table of fields at 1; the tokenizer is at 2 ---- */
enum { FIELDS = 1, MADE = 2, LIST = 3 };

static bool flag(lua_State *L, int table, const char *name) {
    lua_getfield(L, table, name);
    bool is = lua_toboolean(L, -1);
    lua_pop(L, 1);
    return is;
}

/* Puts the list of the field at LIST, alone there; its length, -1: there is none. */
static int32_t list(lua_State *L, const char *name) {
    lua_settop(L, MADE);
    if (lua_getfield(L, FIELDS, name) == LUA_TNIL) return -1;
    arg_check_type(L, LIST, LUA_TTABLE, name);
    return (int32_t)lua_rawlen(L, LIST);
}

/* A number of the list at `index`: an id of the vocabulary, or -1 where that may be. */
static int32_t id_in(lua_State *L, const Bpe *b, int index, lua_Integer i, bool may_be_none) {
    lua_rawgeti(L, index, i);
    int32_t id = arg_int32(L, -1, "tokenizer: an id");
    lua_pop(L, 1);
    if (id < (may_be_none ? -1 : 0) || id >= b->size)
        state_error(L, E_INDEX, "id %d of a vocabulary of %d", id, b->size);
    return id;
}

/* pieces: texts, false where there is none; hidden: by id. */
static Err read_pieces(lua_State *L, Host *h, Encoder *e) {
    bool characters = flag(L, FIELDS, "characters");
    int32_t n = list(L, "pieces");
    TRY(bpe_new(&h->cx, n > 0 ? n : 0, characters, &e->bpe));
    lua_getfield(L, FIELDS, "hidden");
    arg_check_type(L, LIST + 1, LUA_TTABLE, "tokenizer: hidden");
    for (int32_t i = 0; i < n; i++) {
        size_t size = 0;
        lua_rawgeti(L, LIST, i + 1);
        lua_rawgeti(L, LIST + 1, i);
        bool is = lua_type(L, -2) == LUA_TSTRING, hidden = lua_toboolean(L, -1);
        const char *text = is ? lua_tolstring(L, -2, &size) : "";
        if (!bpe_add(e->bpe, i, text, size, hidden || !size))
            return err_nomem(&h->cx, "a vocabulary");
        lua_pop(L, 2);
    }
    return bpe_index(&h->cx, e->bpe);
}

/* merges: left, right, into, ... the lowest rank first; or ranks: of each id, by whose texts they
 * follow. */
static Err read_merges(lua_State *L, Host *h, Bpe *b) {
    int32_t n = list(L, "merges");
    for (int32_t i = 0; i + 2 < n; i += 3) {
        int32_t left = id_in(L, b, LIST, i + 1, false), right = id_in(L, b, LIST, i + 2, false);
        if (!bpe_merge(b, left, right, id_in(L, b, LIST, i + 3, false), (uint32_t)(i / 3)))
            return err_nomem(&h->cx, "a vocabulary");
    }
    if (n >= 0) return E_OK;
    if (list(L, "ranks") != b->size)
        return err_set(&h->cx, E_VALUE, "a rank for each id is needed");
    uint32_t *rank = lua_newuserdatauv(L, (size_t)b->size * sizeof *rank + 1, 0);
    for (int32_t i = 0; i < b->size; i++) {
        lua_rawgeti(L, LIST, i + 1);
        rank[i] = (uint32_t)arg_int32(L, -1, "tokenizer: a rank");
        lua_pop(L, 1);
    }
    return bpe_merge_all(&h->cx, b, rank);
}

static void read_settings(lua_State *L, LuaTokenizer *t) {
    Bpe *b = t->e.bpe;
    b->whole = flag(L, FIELDS, "whole");
    b->fuse_unknown = flag(L, FIELDS, "fuse_unknown");
    t->e.unless_space = flag(L, FIELDS, "unless_space");
    t->strip = flag(L, FIELDS, "strip");
    lua_settop(L, MADE);
    lua_getfield(L, FIELDS, "prefix");
    const char *prefix = lua_tostring(L, LIST);
    if (prefix) t->e.prefix = strcmp(prefix, "text") == 0 ? PREFIX_TEXT : PREFIX_PART;
    lua_settop(L, MADE);
    lua_getfield(L, FIELDS, "normal");
    const char *normal = lua_tostring(L, LIST);
    if (normal) t->e.normal = strcmp(normal, "NFC") == 0 ? NORMAL_NFC : NORMAL_NFKC;
    if (list(L, "unknown_ids") == 1) b->unknown = id_in(L, b, LIST, 1, false);
    b->bytes = list(L, "bytes") == 256;
    for (int i = 0; b->bytes && i < 256; i++) b->byte[i] = id_in(L, b, LIST, i + 1, true);
}

/* A word of the table at `index`, as its number among these. */
static int word(lua_State *L, int index, const char *field, const char *const *words) {
    lua_getfield(L, index, field);
    const char *text = lua_isnil(L, -1) ? words[0] : arg_string(L, -1, NULL, field);
    int i = 0;
    while (words[i] && strcmp(words[i], text) != 0) i++;
    if (!words[i]) state_error(L, E_VALUE, "tokenizer: a %s '%.40s'", field, text);
    lua_pop(L, 1);
    return i;
}

/* split: {kind, behavior, pattern, literal, invert, regex}... How many; -1: too many. */
static int read_split(lua_State *L, Host *h, SplitRule rule[SPLIT_RULES]) {
    static const char *const kinds[] = {"regex", "digits", "spaces", NULL};
    static const char *const behaviors[] = {"isolated", "removed",    "previous",
                                            "next",     "contiguous", NULL};
    int32_t n = list(L, "split");
    if (n > SPLIT_RULES)
        err_set(&h->cx, E_UNSUPPORTED, "%d rules of splitting; %d can be", n, SPLIT_RULES);
    if (n > SPLIT_RULES) return -1;
    for (int32_t i = 0; i < n; i++) {
        SplitRule *r = &rule[i];
        lua_rawgeti(L, LIST, i + 1);
        arg_check_type(L, LIST + 1, LUA_TTABLE, "tokenizer: a rule");
        *r = (SplitRule){.kind = (SplitKind)word(L, LIST + 1, "kind", kinds),
                         .behavior = (SplitBehavior)word(L, LIST + 1, "behavior", behaviors),
                         .literal = flag(L, LIST + 1, "literal"),
                         .invert = flag(L, LIST + 1, "invert"),
                         .regex = flag(L, LIST + 1, "regex")};
        lua_getfield(L, LIST + 1, "pattern"); /* the table keeps it */
        if (r->kind == SPLIT_REGEX) r->pattern = arg_string(L, -1, &r->n, "tokenizer: a pattern");
        lua_settop(L, LIST);
    }
    return n < 0 ? 0 : n;
}

/* added: {id, special, never, lstrip, rstrip, single_word}..., with the texts of the pieces; never:
 * it is not looked for. */
static Err read_added(lua_State *L, Host *h, LuaTokenizer *t) {
    Bpe *b = t->e.bpe;
    int32_t n = list(L, "added"), count = 0;
    AddedToken *token = ARENA_ARRAY(&b->arena, AddedToken, n > 0 ? n : 1);
    t->special = alloc_new(&h->cx.alloc, (size_t)b->size);
    if (!token || !t->special) return err_nomem(&h->cx, "a vocabulary");
    for (int32_t i = 0; i < n; i++) {
        lua_rawgeti(L, LIST, i + 1);
        int at = LIST + 1;
        arg_check_type(L, at, LUA_TTABLE, "tokenizer: an added token");
        int32_t id = id_in(L, b, at, 1, false);
        t->special[id] = flag(L, at, "special");
        if (b->piece[id].n && !flag(L, at, "never"))
            token[count++] = (AddedToken){.at = b->piece[id].at,
                                          .n = b->piece[id].n,
                                          .id = id,
                                          .special = t->special[id],
                                          .lstrip = flag(L, at, "lstrip"),
                                          .rstrip = flag(L, at, "rstrip"),
                                          .word = flag(L, at, "single_word")};
        lua_settop(L, LIST);
    }
    added_init(&t->e.added, token, count);
    return E_OK;
}

/* tokenizer(fields): see lualib/meshlua/tokenizer/build.lua; or nil, message, code. */
static int tokenizer_new(lua_State *L) {
    Host *h = state_of(L);
    arg_check_type(L, FIELDS, LUA_TTABLE, "tokenizer: its fields");
    lua_settop(L, FIELDS);
    LuaTokenizer *t = lua_newuserdatauv(L, sizeof *t, 0);
    *t = (LuaTokenizer){0};
    luaL_setmetatable(L, VALUE_TOKENIZER);
    SplitRule rule[SPLIT_RULES];
    t->e.unicode = unicode_new(&h->cx);
    Err e = t->e.unicode ? read_pieces(L, h, &t->e) : err_nomem(&h->cx, "a vocabulary");
    if (!e) e = read_merges(L, h, t->e.bpe);
    if (!e) read_settings(L, t);
    int rules = e ? 0 : read_split(L, h, rule);
    if (!e)
        e = rules < 0 ? h->cx.err.code : split_new(&h->cx, t->e.unicode, rule, rules, &t->e.split);
    if (!e) e = read_added(L, h, t);
    lua_settop(L, MADE);
    return e ? state_failed(L, h, e) : 1;
}

/* ---- texts into ids ---- */

/* Ids that are owned while Lua may raise. */
static EncodeIds *new_ids(lua_State *L) {
    EncodeIds *ids = lua_newuserdatauv(L, sizeof *ids, 0);
    *ids = (EncodeIds){0};
    luaL_setmetatable(L, VALUE_IDS);
    lua_toclose(L, lua_gettop(L));
    return ids;
}

static int ids_gc(lua_State *L) {
    encode_ids_free(&state_of(L)->cx, luaL_checkudata(L, 1, VALUE_IDS));
    return 0;
}

static void over_pool(void *pool, EncodeFn *fn, void *ud, int32_t pieces) {
    enum { LANES = 64 };
    int32_t first[LANES + 1], lanes = pieces < LANES ? pieces : LANES;
    for (int32_t i = 0; i <= lanes; i++) first[i] = (int32_t)((int64_t)pieces * i / lanes);
    pool_run(pool, fn, ud, &(PoolStage){first, lanes, 1, 0}, 1);
}

/* Encodes n texts by the words at `special` ("text", "token", "refuse") and `offsets`. What fails
 * is raised, or, where `error` is not NULL, there. */
static EncodeIds *encode(lua_State *L, const EncodeText *text, int32_t n, int special, bool offsets,
                         Err *error) {
    enum { QUEUES = 64 };
    static const char *const words[] = {"text", "token", "refuse", NULL};
    Host *h = state_of(L);
    LuaTokenizer *t = tokenizer_at(L, 1);
    const char *how = arg_string(L, special, NULL, "encode: special");
    int k = 0;
    size_t bytes = 0;
    while (words[k] && strcmp(words[k], how) != 0) k++;
    if (!words[k]) state_error(L, E_VALUE, "encode: special = '%.40s'", how);
    for (int32_t i = 0; i < n; i++) bytes += text[i].n;
    EncodeThreads threads = {.threads = 1};
    if (bytes >= ENCODE_MANY) {
        state_check(L, h, runtime_grow(&h->rt, 0, 1, QUEUES));
        threads = (EncodeThreads){h->rt.pool, pool_threads(h->rt.pool), over_pool};
    }
    EncodeIds *ids = new_ids(L);
    Err e = encode_texts(&h->cx, &t->e, text, n, (EncodeSpecial)k, offsets, &threads, ids);
    if (error)
        *error = e;
    else
        state_check(L, h, e);
    return ids;
}

/* Appends the list at `index` (nil: none) to the list on top, which has n; its new length. */
static lua_Integer append(lua_State *L, int index, lua_Integer n) {
    lua_Integer more = lua_istable(L, index) ? (lua_Integer)lua_rawlen(L, index) : 0;
    for (lua_Integer i = 1; i <= more; i++) {
        lua_rawgeti(L, index, i);
        lua_rawseti(L, -2, n + i);
    }
    return n + more;
}

/* Pushes the ids of a text: what stands before (at `before`), its own, and what stands behind. */
static void push_ids(lua_State *L, const EncodeIds *ids, int32_t text, int before) {
    int64_t from = text ? ids->last[text - 1] : 0;
    lua_createtable(L, (int)(ids->last[text] - from) + 2, 0);
    lua_Integer n = append(L, before, 0);
    for (int64_t i = from; i < ids->last[text]; i++) {
        lua_pushinteger(L, ids->ids[i]);
        lua_rawseti(L, -2, ++n);
    }
    append(L, before + 1, n);
}

static void push_place(lua_State *L, lua_Integer at, int64_t begin, int64_t end) {
    lua_createtable(L, 2, 0);
    lua_pushinteger(L, begin);
    lua_rawseti(L, -2, 1);
    lua_pushinteger(L, end);
    lua_rawseti(L, -2, 2);
    lua_rawseti(L, -2, at);
}

/* t:encode(text, special, before, after [, offsets]): ids; with offsets also {begin, end} of each,
 * in bytes from 0, the end not among them. */
static int tokenizer_encode(lua_State *L) {
    EncodeText text;
    bool offsets = lua_toboolean(L, 6);
    lua_settop(L, 6);
    text.at = (const uint8_t *)arg_string(L, 2, &text.n, "encode: the text");
    EncodeIds *ids = encode(L, &text, 1, 3, offsets, NULL);
    push_ids(L, ids, 0, 4);
    if (!offsets) return 1;
    lua_Integer n = 0, before = lua_istable(L, 4) ? (lua_Integer)lua_rawlen(L, 4) : 0,
                after = lua_istable(L, 5) ? (lua_Integer)lua_rawlen(L, 5) : 0;
    lua_createtable(L, (int)(ids->n + before + after), 0);
    while (n < before) push_place(L, ++n, 0, 0);
    for (int64_t i = 0; i < ids->n; i++) push_place(L, ++n, ids->place[i].begin, ids->place[i].end);
    while (after-- > 0) push_place(L, ++n, (int64_t)text.n, (int64_t)text.n);
    return 2;
}

/* t:encode_batch(texts, special, before, after): a list of lists. */
static int tokenizer_encode_batch(lua_State *L) {
    lua_settop(L, 5);
    arg_check_type(L, 2, LUA_TTABLE, "encode_batch: the texts");
    int32_t n = (int32_t)lua_rawlen(L, 2);
    EncodeText *text = lua_newuserdatauv(L, (size_t)n * sizeof *text + 1, 0);
    for (int32_t i = 0; i < n; i++) {
        lua_rawgeti(L, 2, i + 1); /* the list keeps it */
        text[i].at = (const uint8_t *)arg_string(L, -1, &text[i].n, "encode_batch: a text");
        lua_pop(L, 1);
    }
    EncodeIds *ids = encode(L, text, n, 3, false, NULL);
    lua_createtable(L, n, 0);
    for (int32_t i = 0; i < n; i++) {
        push_ids(L, ids, i, 4);
        lua_rawseti(L, -2, i + 1);
    }
    return 1;
}

/* t:pack(text, special, before, after, width): the ids as bytes, each in so many (2 or 4),
 * little-endian; or nil, message, code. */
static int tokenizer_pack(lua_State *L) {
    EncodeText text;
    luaL_Buffer b;
    Err e;
    lua_Integer width = arg_integer(L, 6, "pack: the width"), n = 0;
    lua_settop(L, 6);
    text.at = (const uint8_t *)arg_string(L, 2, &text.n, "pack: the text");
    if (width != 4 && (width != 2 || tokenizer_at(L, 1)->e.bpe->size > 1 << 16))
        state_error(L, E_VALUE, "pack: ids of %lld bytes", (long long)width);
    EncodeIds *ids = encode(L, &text, 1, 3, false, &e);
    if (e) return state_failed(L, state_of(L), e);
    int64_t count = ids->n;
    for (int i = 4; i <= 5; i++) count += lua_istable(L, i) ? (int64_t)lua_rawlen(L, i) : 0;
    char *out = luaL_buffinitsize(L, &b, (size_t)(count * width));
    for (int64_t i = 0; i < count; i++, out += width) {
        lua_Integer before = lua_istable(L, 4) ? (lua_Integer)lua_rawlen(L, 4) : 0;
        int64_t at = i - before;
        if (at >= 0 && at < ids->n) {
            n = ids->ids[at];
        } else {
            lua_rawgeti(L, at < 0 ? 4 : 5, at < 0 ? i + 1 : at - ids->n + 1);
            n = lua_tointeger(L, -1);
            lua_pop(L, 1);
        }
        for (lua_Integer k = 0; k < width; k++) out[k] = (char)(n >> 8 * k);
    }
    luaL_pushresultsize(&b, (size_t)(count * width));
    return 1;
}

/* ---- and back ---- */

/* t:decode(ids, special [, later]): the bytes; special: of special tokens, too; later: something
 * stands before them. */
static int tokenizer_decode(lua_State *L) {
    const LuaTokenizer *t = tokenizer_at(L, 1);
    const Bpe *b = t->e.bpe;
    bool special = lua_toboolean(L, 3), first = t->strip && !lua_toboolean(L, 4);
    arg_check_type(L, 2, LUA_TTABLE, "decode: the ids");
    lua_Integer n = (lua_Integer)lua_rawlen(L, 2);
    luaL_Buffer out;
    size_t total = 0;
    for (lua_Integer i = 1; i <= n; i++) {
        lua_rawgeti(L, 2, i);
        lua_Integer id = arg_integer(L, -1, "decode: an id");
        if (id < 0 || id >= b->size)
            state_error(L, E_INDEX, "decode: id %lld at %lld of a vocabulary of %d", (long long)id,
                        (long long)i, b->size);
        total += b->piece[id].n;
        lua_pop(L, 1);
    }
    char *to = luaL_buffinitsize(L, &out, total);
    size_t at = 0;
    for (lua_Integer i = 1; i <= n; i++) {
        lua_rawgeti(L, 2, i);
        lua_Integer id = lua_tointeger(L, -1);
        lua_pop(L, 1);
        const BpePiece *p = &b->piece[id];
        if (t->special[id] && !special) continue;
        size_t skip = first && !t->special[id] && p->n && p->at[0] == ' ';
        if (!t->special[id]) first = false;
        memcpy(to + at, p->at + skip, p->n - skip);
        at += p->n - skip;
    }
    luaL_pushresultsize(&out, at);
    return 1;
}

/* t:id(text): of a piece that merging may give; or nil. */
static int tokenizer_id(lua_State *L) {
    size_t n;
    const char *text = arg_string(L, 2, &n, "id: the piece");
    const Bpe *b = tokenizer_at(L, 1)->e.bpe;
    int32_t id = bpe_find(b, text, n);
    if (id < 0 || id >= b->size) return 0;
    lua_pushinteger(L, id);
    return 1;
}

/* ---- what it has ---- */
static int by_rank(const void *x, const void *y) {
    const BpePair *a = x, *b = y;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    return a->key < b->key ? -1 : a->key > b->key;
}

/* t:merges(): left, right, ... the lowest rank first. */
static int tokenizer_merges(lua_State *L) {
    const Bpe *b = tokenizer_at(L, 1)->e.bpe;
    BpePair *pair = lua_newuserdatauv(L, b->npair * sizeof *pair + 1, 0);
    uint32_t n = 0;
    lua_Integer at = 0;
    for (uint32_t i = 0; i < b->pairs; i++)
        if (b->pair[i].into >= 0) pair[n++] = b->pair[i];
    qsort(pair, n, sizeof *pair, by_rank);
    lua_createtable(L, (int)n * 2, 0);
    for (uint32_t i = 0; i < n; i++) {
        lua_Integer left = (lua_Integer)(pair[i].key >> 32),
                    right = (lua_Integer)(uint32_t)pair[i].key;
        if (left >= b->size || right >= b->size) continue; /* a character that is no piece */
        lua_pushinteger(L, left);
        lua_rawseti(L, -2, ++at);
        lua_pushinteger(L, right);
        lua_rawseti(L, -2, ++at);
    }
    return 1;
}

/* t:is_local(special): may a text be cut before a space behind what is none, with the same ids? */
static int tokenizer_is_local(lua_State *L) {
    const Encoder *e = &tokenizer_at(L, 1)->e;
    const char *special = arg_string(L, 2, NULL, "is_local: special");
    bool is = split_is_local(e->split) && e->prefix == PREFIX_NONE && !e->normal;
    for (int32_t i = 0; i < e->added.n; i++)
        is = is && e->added.token[i].special && strcmp(special, "text") == 0;
    lua_pushboolean(L, is);
    return 1;
}

/* ---- learning ---- */
#define VALUE_LEARNER "meshlua.learner"

typedef struct LuaLearner {
    Unicode *unicode;
    Learn *learn;
    Arena arena; /* of the merges */
} LuaLearner;

static int learner_gc(lua_State *L) {
    LuaLearner *l = luaL_checkudata(L, 1, VALUE_LEARNER);
    Ctx *cx = &state_of(L)->cx;
    learn_free(cx, l->learn);
    unicode_free(cx, l->unicode);
    arena_free(&l->arena);
    l->learn = NULL, l->unicode = NULL;
    return 0;
}

/* learner(fields): what counts pieces, by the field split; or nil, message, code. */
static int learner_new(lua_State *L) {
    Host *h = state_of(L);
    SplitRule rule[SPLIT_RULES];
    arg_check_type(L, FIELDS, LUA_TTABLE, "learner: its fields");
    lua_settop(L, FIELDS);
    LuaLearner *l = lua_newuserdatauv(L, sizeof *l, 0);
    *l = (LuaLearner){0};
    arena_init(&l->arena, &h->cx.alloc);
    luaL_setmetatable(L, VALUE_LEARNER);
    int rules = read_split(L, h, rule);
    Err e = rules < 0 ? h->cx.err.code : E_OK;
    if (!e && !(l->unicode = unicode_new(&h->cx))) e = err_nomem(&h->cx, "learning");
    if (!e) e = learn_new(&h->cx, l->unicode, rule, rules, &l->learn);
    lua_settop(L, MADE);
    return e ? state_failed(L, h, e) : 1;
}

/* l:add(text): counts its pieces; true, or nil, message, code. */
static int learner_add(lua_State *L) {
    Host *h = state_of(L);
    size_t n;
    LuaLearner *l = value_udata(L, 1, VALUE_LEARNER);
    const char *text = arg_string(L, 2, &n, "learner: a text");
    Err e = learn_add(&h->cx, l->learn, (const uint8_t *)text, n);
    if (e) return state_failed(L, h, e);
    lua_pushboolean(L, 1);
    return 1;
}

/* l:is_local(): may a text be cut before a space behind what is none, with the same pieces? */
static int learner_is_local(lua_State *L) {
    lua_pushboolean(L, learn_is_local(((LuaLearner *)value_udata(L, 1, VALUE_LEARNER))->learn));
    return 1;
}

/* l:merges(bytes, size): left, right, into, ... in order; bytes: the id of each byte. */
static int learner_merges(lua_State *L) {
    Host *h = state_of(L);
    LuaLearner *l = value_udata(L, 1, VALUE_LEARNER);
    LearnMerge *merge;
    int32_t byte[256], n, size = arg_int32(L, 3, "learner: the size");
    bool seen[256] = {false};
    arg_check_type(L, 2, LUA_TTABLE, "learner: the bytes");
    for (int i = 0; i < 256; i++) {
        lua_rawgeti(L, 2, i + 1);
        byte[i] = arg_int32(L, -1, "learner: a byte's id");
        if (byte[i] < 0 || byte[i] > 255 || seen[byte[i]])
            state_error(L, E_VALUE, "learner: %d is no id of a byte", byte[i]);
        seen[byte[i]] = true;
        lua_pop(L, 1);
    }
    state_check(L, h, learn_run(&h->cx, l->learn, byte, size, &l->arena, &merge, &n));
    lua_createtable(L, n * 3, 0);
    for (int32_t i = 0; i < n; i++) {
        const int32_t three[] = {merge[i].left, merge[i].right, merge[i].into};
        for (int k = 0; k < 3; k++) {
            lua_pushinteger(L, three[k]);
            lua_rawseti(L, -2, (lua_Integer)i * 3 + k + 1);
        }
    }
    return 1;
}

void lib_open_tokenizer(lua_State *L) {
    static const luaL_Reg fns[] = {
        {"tokenizer", tokenizer_new}, {"learner", learner_new}, {NULL, NULL}};
    static const luaL_Reg meta[] = {{"__gc", tokenizer_gc}, {NULL, NULL}};
    static const luaL_Reg methods[] = {{"encode", tokenizer_encode},
                                       {"encode_batch", tokenizer_encode_batch},
                                       {"pack", tokenizer_pack},
                                       {"decode", tokenizer_decode},
                                       {"id", tokenizer_id},
                                       {"merges", tokenizer_merges},
                                       {"is_local", tokenizer_is_local},
                                       {NULL, NULL}};
    static const luaL_Reg ids_meta[] = {{"__gc", ids_gc}, {"__close", ids_gc}, {NULL, NULL}};
    static const luaL_Reg learner_meta[] = {{"__gc", learner_gc}, {NULL, NULL}};
    static const luaL_Reg learner_methods[] = {{"add", learner_add},
                                               {"is_local", learner_is_local},
                                               {"merges", learner_merges},
                                               {NULL, NULL}};
    value_new_type(L, VALUE_LEARNER, learner_meta, learner_methods, NULL);
    value_new_type(L, VALUE_TOKENIZER, meta, methods, NULL);
    value_new_type(L, VALUE_IDS, ids_meta, NULL, NULL);
    luaL_setfuncs(L, fns, 0);
}
