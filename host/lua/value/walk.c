#include "lua/value/walk.h"

#include "base/plain.h"

#include <stdlib.h>
#include <string.h>

/* ---- keys in order ---- */
typedef struct Key {
    const char *s; /* NULL: a number */
    size_t n;
    double x;
} Key;

static int compare_keys(const void *a, const void *b) {
    const Key *x = a, *y = b;
    if (!x->s && !y->s) return (x->x > y->x) - (x->x < y->x);
    if (!x->s || !y->s) return x->s ? 1 : -1;
    int c = memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);
    return c ? c : (x->n > y->n) - (x->n < y->n);
}

enum { FEW_KEYS = 48, MOST_AT_ONCE = 1 << 16 };

/* The keys of the table at `index`, sorted; strings stay valid as long as the table has them. `few`
 * is room for FEW_KEYS; more come in a userdata, which is pushed (else nil is). */
static Key *sorted_keys(lua_State *L, int index, Key *few, int *count) {
    Key *keys = few;
    int n = 0, cap = FEW_KEYS;
    lua_Unsigned length = lua_rawlen(L, index); /* with holes it may be any */
    index = lua_absindex(L, index);
    if (length > FEW_KEYS) {
        cap = length < MOST_AT_ONCE ? (int)length : MOST_AT_ONCE;
        keys = lua_newuserdatauv(L, sizeof *keys * (size_t)cap, 0);
    } else {
        lua_pushnil(L); /* the userdata's place */
    }
    int place = lua_gettop(L);
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
        if (n == cap) {
            Key *more = lua_newuserdatauv(L, sizeof *more * (size_t)cap * 2, 0);
            memcpy(more, keys, sizeof *more * (size_t)n);
            keys = more;
            cap *= 2;
            lua_replace(L, place);
        }
        int type = lua_type(L, -2);
        if (type == LUA_TSTRING) {
            keys[n].s = lua_tolstring(L, -2, &keys[n].n);
        } else if (type == LUA_TNUMBER) {
            keys[n] = (Key){.x = lua_tonumber(L, -2)};
        } else {
            state_error(L, E_VALUE,
                        "a table with a %s as key cannot be an argument; use strings and "
                        "numbers",
                        lua_typename(L, type));
        }
        n++;
    }
    bool sorted = true;
    for (int i = 1; i < n && sorted; i++) sorted = compare_keys(&keys[i - 1], &keys[i]) < 0;
    if (!sorted) qsort(keys, (size_t)n, sizeof *keys, compare_keys);
    *count = n;
    return keys;
}

static void push_key(lua_State *L, const Key *k) {
    if (k->s)
        lua_pushlstring(L, k->s, k->n);
    else if (k->x == (double)(lua_Integer)k->x)
        lua_pushinteger(L, (lua_Integer)k->x);
    else
        lua_pushnumber(L, k->x);
}

void walk_push_keys(lua_State *L, int table) {
    Key few[FEW_KEYS];
    int n;
    Key *keys = sorted_keys(L, table, few, &n);
    lua_createtable(L, n, 0);
    for (int i = 0; i < n; i++) {
        push_key(L, &keys[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_remove(L, -2);
}

/* ---- the walk ---- */

static inline void put(Walk *w, char tag, const void *bytes, size_t n) {
    char *at = str_extend(&w->h->key, n + 1);
    if (!at) state_check(w->L, w->h, err_nomem(&w->h->cx, "the key of a call"));
    *at = tag;
    if (n) memcpy(at + 1, bytes, n);
}

static void put_pointer(Walk *w, char tag, const void *p) {
    put(w, tag, &p, sizeof p);
}

static void put_sharding(Walk *w, const LuaSharding *s) {
    put_pointer(w, 'h', s->mesh);
    put_pointer(w, 'p', s->spec);
    put(w, 'd', &s->device, sizeof s->device);
}

/* The object at `index`, by its address. */
static void put_object(Walk *w, char tag, int index) {
    lua_State *L = w->L;
    put_pointer(w, tag, lua_topointer(L, index));
    if (!w->held) return;
    lua_pushvalue(L, index);
    lua_rawseti(L, w->held, (lua_Integer)lua_rawlen(L, w->held) + 1);
}

/* In one line; a key also without what ends the name in it. */
static void put_in_line(Str *s, const char *text, bool is_key) {
    const char *const ends = is_key ? "\n=" : "\n";
    for (;;) {
        size_t n = strcspn(text, ends);
        str_put_n(s, text, n);
        text += n;
        if (!*text) return;
        str_put(s, *text++ == '=' ? "\\=" : "\\n");
    }
}

/* "path = text\n" for why_miss. */
static void describe(Walk *w, const char *text) {
    if (!w->describe) return;
    Str *s = &w->h->describe;
    str_put_n(s, str_of(&w->h->path), w->h->path.n);
    str_put(s, " = ");
    put_in_line(s, text, false);
    str_put(s, "\n");
}

void walk_begin(Walk *w, lua_State *L, Host *h, bool slots) {
    *w = (Walk){.L = L, .h = h};
    lua_newtable(L);
    w->leaves = lua_gettop(L);
    lua_newtable(L);
    w->seen = lua_gettop(L);
    if (slots) {
        lua_newtable(L);
        w->slots = lua_gettop(L);
    }
    str_clear(&h->key);
    str_clear(&h->path);
    str_clear(&h->describe);
    h->key.failed = h->path.failed = h->describe.failed = false;
}

void walk_begin_quick(Walk *w, lua_State *L, Host *h) {
    *w = (Walk){.L = L, .h = h, .quick = true, .before = h->marks};
    str_clear(&h->key);
    h->key.failed = false;
}

/* Numbers in so many digits that no other number has the same text; objects by type and address. */
static void describe_static(Walk *w, int index) {
    lua_State *L = w->L;
    int type = lua_type(L, index);
    lua_Number x = lua_tonumber(L, index);
    w->printed = NULL;
    if (luaL_testudata(L, index, VALUE_TENSOR))
        type_print(value_type(w->h, value_tensor(L, w->h, index)), state_text(w->h));
    else if (type == LUA_TUSERDATA)
        str_put(state_text(w->h), arg_type_name(L, index));
    if (type != LUA_TUSERDATA || luaL_testudata(L, index, VALUE_MESH) ||
        luaL_testudata(L, index, VALUE_SPEC) || luaL_testudata(L, index, VALUE_SHARDING))
        luaL_tolstring(L, index, NULL);
    else
        lua_pushfstring(L, "%s at %p", str_of(&w->h->text), lua_topointer(L, index));
    if (type == LUA_TNUMBER && !lua_isinteger(L, index)) {
        char digits[40]; /* as Lua writes it, where that is enough */
        plain_format(digits, sizeof digits, "%.14g", x);
        if (x == x && plain_read(digits, NULL) != x)
            plain_format(digits, sizeof digits, "%.17g", x);
        else if (digits[strspn(digits, "-0123456789")] == '\0')
            strcat(digits, ".0");
        describe(w, digits);
    } else {
        describe(w, lua_tostring(L, -1));
    }
    lua_pop(L, 1);
}

void walk_static(Walk *w, int index) {
    lua_State *L = w->L;
    size_t n;
    switch (lua_type(L, index)) {
    case LUA_TNIL:
    case LUA_TNONE: put(w, 'n', NULL, 0); break;
    case LUA_TBOOLEAN: put(w, lua_toboolean(L, index) ? 't' : 'f', NULL, 0); break;
    case LUA_TNUMBER:
        if (lua_isinteger(L, index)) {
            lua_Integer i = lua_tointeger(L, index);
            put(w, 'i', &i, sizeof i);
        } else {
            lua_Number x = lua_tonumber(L, index);
            put(w, 'd', &x, sizeof x);
        }
        break;
    case LUA_TSTRING: {
        const char *s = lua_tolstring(L, index, &n);
        put(w, 's', &n, sizeof n);
        str_put_n(&w->h->key, s, n);
        break;
    }
    case LUA_TUSERDATA:
        if (luaL_testudata(L, index, VALUE_MESH))
            put_pointer(w, 'm', value_mesh(L, index));
        else if (luaL_testudata(L, index, VALUE_SPEC))
            put_pointer(w, 'p', value_spec(L, index));
        else if (luaL_testudata(L, index, VALUE_SHARDING))
            put_sharding(w, lua_touserdata(L, index));
        else
            put_object(w, 'u', index);
        break;
    default: put_object(w, 'u', index); break;
    }
    if (w->describe) describe_static(w, index);
}

/* A leaf seen before is named by its number: tied weights are one leaf. */
static bool known_leaf(Walk *w, int index, int32_t *number) {
    lua_pushvalue(w->L, index);
    bool known = lua_rawget(w->L, w->seen) == LUA_TNUMBER;
    *number = known ? (int32_t)lua_tointeger(w->L, -1) : ++w->nleaf;
    lua_pop(w->L, 1);
    if (known) return true;
    lua_pushvalue(w->L, index);
    lua_pushinteger(w->L, *number);
    lua_rawset(w->L, w->seen);
    lua_pushvalue(w->L, index);
    lua_rawseti(w->L, w->leaves, *number);
    if (w->names) {
        lua_pushstring(w->L, str_of(&w->h->path));
        lua_rawseti(w->L, w->names, *number);
    }
    return false;
}

/* The list of n elements, with room for that many more. */
static void *grown(const Walk *w, void *list, int32_t *cap, int32_t n, int32_t more, size_t each) {
    int32_t now = *cap ? *cap * 2 : 64;
    while (now < n + more) now *= 2;
    list = alloc_resize(&w->h->cx.alloc, list, each * (size_t)*cap, each * (size_t)now);
    if (!list) state_check(w->L, w->h, err_nomem(&w->h->cx, "a call"));
    *cap = now;
    return list;
}

void walk_more_leaves(const Walk *w, int32_t more) {
    Host *h = w->h;
    h->leaf = grown(w, h->leaf, &h->leaf_cap, w->nleaf, more, sizeof *h->leaf);
}

void walk_add_number(Walk *w, NumberArg x) {
    Host *h = w->h;
    if (w->nnumber == h->number_cap)
        h->number = grown(w, h->number, &h->number_cap, w->nnumber, 1, sizeof x);
    h->number[w->nnumber++] = x;
}

/* By which it is: a Param, or (b is NULL) a tensor. Apart from quick_leaf, which every leaf of
 * every call comes to. */
static __attribute__((noinline)) void quick_identity(Walk *w, const LuaBox *b, const LuaTensor *u) {
    put_pointer(w, b ? 'B' : 'T', b ? (const void *)b : u->t);
    if (!b) put(w, 'v', &u->v, sizeof u->v);
}

/* A Param and what it holds, or (b is NULL) a handle. */
static inline void quick_leaf(Walk *w, LuaBox *b, LuaTensor *u) {
    if (w->identity) {
        quick_identity(w, b, u);
        return;
    }
    uint64_t mark = b ? b->mark : u->mark;
    if (mark > w->before) {
        int32_t number = (int32_t)(mark - w->before);
        put(w, 'r', &number, sizeof number);
    } else if (!u || !u->t || tensor_is_deleted(u->t)) {
        w->failed = true;
    } else {
        put_pointer(w, b ? 'B' : 'T', u->t->type);
        walk_room_for_leaves(w, 1);
        walk_add_leaf(w, &(FoundLeaf){b, u, w->h->key.n - sizeof(Type *)}, 0);
    }
}

static void leaf(Walk *w, int index, char tag) {
    int32_t number;
    if (known_leaf(w, index, &number)) {
        put(w, 'r', &number, sizeof number);
        w->printed = NULL;
        if (w->describe) str_fmt(state_text(w->h), "tied to leaf %d", (int)number);
        describe(w, str_of(&w->h->text));
        return;
    }
    LuaTensor *u = value_tensor(w->L, w->h, index);
    const Type *type = value_type(w->h, u);
    put_pointer(w, tag, type);
    if (w->identity && tag == 'T') put(w, 'v', &u->v, sizeof u->v);
    if (!w->describe) return;
    if (w->printed == type) { /* as that of the leaf before it: the text is there */
        describe(w, str_of(&w->h->text));
        return;
    }
    Str *s = state_text(w->h);
    w->printed = w->identity ? NULL : type;
    if (!w->identity) {
        type_print(type, s);
        if (type->layout) {
            str_put(s, " on ");
            mesh_print(type->layout->mesh, s);
        }
    } else if (tag == 'B')
        str_put(s, "a Param");
    else
        str_fmt(s, "tensor %%%d", u->v);
    describe(w, str_of(s));
}

/* "h.3.mlp.up": the path without the argument's name. */
static const char *path_in_argument(const Walk *w) {
    const char *path = str_of(&w->h->path) + w->root;
    return *path == '.' ? path + 1 : path;
}

static void add_slot(Walk *w, int table, int key, int value) {
    lua_State *L = w->L;
    lua_Integer n = 3 * (lua_Integer)w->nslot++;
    lua_pushvalue(L, table);
    lua_rawseti(L, w->slots, n + 1);
    lua_pushvalue(L, key);
    lua_rawseti(L, w->slots, n + 2);
    lua_pushvalue(L, value);
    lua_rawget(L, w->seen);
    lua_rawseti(L, w->slots, n + 3);
}

static void value(Walk *w, int index);

enum { DEEPEST = 100 }; /* tables in tables */

static void check_enter(Walk *w, int index) {
    lua_State *L = w->L;
    lua_pushvalue(L, index);
    bool cyclic = lua_rawget(L, w->seen) != LUA_TNIL;
    lua_pop(L, 1);
    if (!cyclic && w->depth < DEEPEST) return;
    if (cyclic) state_error(L, E_VALUE, "the table at %s contains itself", str_of(&w->h->path));
    state_error(L, E_VALUE,
                "an argument is nested deeper than %d tables; keep a chain of tables as one list",
                DEEPEST);
}

/* Can a quick walk enter the table? */
static bool can_enter(const Walk *w, const void *table) {
    if (w->depth >= DEEPEST || !lua_checkstack(w->L, 8)) return false;
    for (const WayPoint *p = w->way; p; p = p->up)
        if (p->table == table) return false;
    return true;
}

static inline void quick_key(Walk *w, int index) {
    lua_State *L = w->L;
    int type = lua_type(L, index);
    if (type == LUA_TSTRING) {
        size_t n;
        const char *s = lua_tolstring(L, index, &n);
        put(w, 'k', s, n + 1);
    } else if (type == LUA_TNUMBER) {
        double x = lua_tonumber(L, index);
        put(w, 'K', &x, sizeof x);
    } else {
        w->failed = true;
    }
}

static void quick_table(Walk *w, int index);

/* May leave something on the stack. */
static inline void quick_value(Walk *w, int index) {
    lua_State *L = w->L;
    void *u = lua_touserdata(L, index);
    const void *meta = u && lua_getmetatable(L, index) ? lua_topointer(L, -1) : NULL;
    if (meta && meta == w->h->box_meta)
        quick_leaf(w, u, ((LuaBox *)u)->held);
    else if (meta && meta == w->h->tensor_meta)
        quick_leaf(w, NULL, u);
    else if (lua_istable(L, index))
        quick_table(w, index);
    else
        walk_static(w, index);
}

static void quick_table(Walk *w, int index) {
    lua_State *L = w->L;
    WayPoint here = {lua_topointer(L, index), w->way};
    if (!can_enter(w, here.table)) {
        w->failed = true;
        return;
    }
    w->way = &here;
    w->depth++;
    bool has = lua_getmetatable(L, index);
    put_pointer(w, '{', has ? lua_topointer(L, -1) : NULL);
    if (has) lua_pop(L, 1);
    int key = lua_gettop(L) + 1;
    lua_pushnil(L);
    while (lua_next(L, index)) {
        quick_key(w, key);
        quick_value(w, key + 1);
        if (w->failed) break;
        lua_settop(L, key);
    }
    lua_settop(L, key - 1);
    put(w, '}', NULL, 0);
    w->depth--;
    w->way = here.up;
}

/* A key of a table, as Lua prints it. */
static void put_number(Str *s, double x) {
    if (x == (double)(int32_t)x)
        str_int(s, (int32_t)x);
    else
        str_fmt(s, "%.14g", x);
}

/* Notes that the walk is in the table (or no longer is). */
static void mark_entered(Walk *w, int index, bool entered) {
    lua_pushvalue(w->L, index);
    if (entered)
        lua_pushboolean(w->L, 1);
    else
        lua_pushnil(w->L);
    lua_rawset(w->L, w->seen);
    w->depth += entered ? 1 : -1;
}

static void put_metatable(Walk *w, int index) {
    if (!lua_getmetatable(w->L, index)) {
        put_pointer(w, '{', NULL);
        return;
    }
    put_object(w, '{', lua_gettop(w->L));
    lua_pop(w->L, 1);
    if (w->name_modules) wrap_set_path(w->L, index, path_in_argument(w));
}

static void put_key(Walk *w, const Key *k) {
    if (k->s)
        put(w, 'k', k->s, k->n + 1);
    else
        put(w, 'K', &k->x, sizeof k->x);
    if (!w->describe && !w->name_modules && !w->identity) return;
    if (w->h->path.n) str_put(&w->h->path, ".");
    if (k->s)
        put_in_line(&w->h->path, k->s, true);
    else
        put_number(&w->h->path, k->x);
}

static void table(Walk *w, int index) {
    lua_State *L = w->L;
    luaL_checkstack(L, 8, "arguments nested too deep");
    check_enter(w, index);
    mark_entered(w, index, true);
    put_metatable(w, index);
    w->printed = NULL;
    Key few[FEW_KEYS];
    int n;
    size_t length = w->h->path.n;
    Key *keys = sorted_keys(L, index, few, &n);
    for (int i = 0; i < n; i++) {
        push_key(L, &keys[i]);
        put_key(w, &keys[i]);
        lua_pushvalue(L, -1);
        lua_rawget(L, index);
        value(w, lua_gettop(L));
        if (w->slots && value_handle(L, w->h, -1))
            add_slot(w, index, lua_gettop(L) - 1, lua_gettop(L));
        lua_pop(L, 2);
        w->h->path.n = length;
        if (w->h->path.at) w->h->path.at[length] = '\0';
    }
    lua_pop(L, 1); /* the keys' userdata */
    put(w, '}', NULL, 0);
    mark_entered(w, index, false);
}

static void value(Walk *w, int index) {
    int type = lua_type(w->L, index);
    LuaBox *b = type == LUA_TUSERDATA ? value_box(w->L, w->h, index) : NULL;
    if (b || (type == LUA_TUSERDATA && value_handle(w->L, w->h, index)))
        leaf(w, index, b ? 'B' : 'T');
    else if (type == LUA_TTABLE)
        table(w, index);
    else
        walk_static(w, index);
}

void walk_value(Walk *w, int index, const char *name) {
    index = lua_absindex(w->L, index);
    if (w->quick) {
        int top = lua_gettop(w->L);
        quick_value(w, index);
        lua_settop(w->L, top);
        return;
    }
    /* Scopes are named from the module down, descriptions with the argument's name. */
    str_clear(&w->h->path);
    if (name && w->describe) str_put(&w->h->path, name);
    w->root = w->h->path.n;
    value(w, index);
}

void walk_number(Walk *w, int index) {
    bool whole = lua_isinteger(w->L, index);
    NumberArg x = {.whole = whole};
    if (whole)
        x.as.i = (int32_t)lua_tointeger(w->L, index);
    else
        x.as.f = (float)lua_tonumber(w->L, index);
    put(w, whole ? 'N' : 'D', NULL, 0);
    walk_add_number(w, x);
}

void walk_check(const Walk *w) {
    const Host *h = w->h;
    if (h->key.failed || h->path.failed || h->describe.failed)
        state_check(w->L, w->h, err_nomem(&w->h->cx, "the key of a call"));
}

/* tree_keys(t) */
static int tree_keys(lua_State *L) {
    arg_check_type(L, 1, LUA_TTABLE, "tree_keys");
    walk_push_keys(L, 1);
    return 1;
}

void walk_open(lua_State *L) {
    lua_pushcfunction(L, tree_keys);
    lua_setfield(L, -2, "tree_keys");
}
