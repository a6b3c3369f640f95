/* spec.c - P. */
#include "lua/lib/lib.h"
#include "lua/state/usage.h"
#include "lua/value/value.h"

#include <string.h>

static const char none_key, unconstrained_key;
static const char *const uneven_words[] = {"error", "pad", "replicate"};

static bool is_sentinel(lua_State *L, int index, const char *which) {
    return lua_islightuserdata(L, index) && lua_touserdata(L, index) == (const void *)which;
}

static const char *axis_name(lua_State *L, Host *h, int index) {
    const char *name = intern_name(&h->cx, lua_tostring(L, index));
    if (!name) state_check(L, h, err_nomem(&h->cx, "a P"));
    return name;
}

/* {"data", open = true, priority = 1, uneven = "pad"} */
static void read_entry_options(lua_State *L, int index, int number, SpecEntry *e) {
    enum { MOST = 255 };
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
        if (lua_type(L, -2) != LUA_TSTRING) continue;
        const char *key = lua_tostring(L, -2);
        if (strcmp(key, "open") == 0) {
            if (!lua_isboolean(L, -1))
                state_error(L, E_SPEC, "P: entry %d: open is true or false, not %s", number,
                            arg_type_name(L, -1));
            e->open = lua_toboolean(L, -1);
        } else if (strcmp(key, "priority") == 0) {
            int whole;
            lua_Integer i = lua_tointegerx(L, -1, &whole);
            if (lua_type(L, -1) != LUA_TNUMBER || !whole || i < 0 || i > MOST)
                state_error(L, E_SPEC, "P: entry %d: priority is a whole number from 0 to %d",
                            number, MOST);
            e->priority = (uint8_t)i;
        } else if (strcmp(key, "uneven") == 0) {
            const char *word = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
            while (e->uneven < 3 && strcmp(uneven_words[e->uneven], word) != 0) e->uneven++;
            if (e->uneven == 3)
                state_error(L, E_SPEC, "P: entry %d: uneven is \"error\", \"pad\" or \"replicate\"",
                            number);
        } else {
            state_error(L, E_SPEC,
                        "P: entry %d: unknown option '%s'; there are open, priority and uneven",
                        number, key);
        }
    }
    if (e->n == 0 && (e->open || e->priority || e->uneven))
        state_error(L, E_SPEC,
                    "P: entry %d names no axis; P.unconstrained leaves the dim to propagation",
                    number);
}

static void read_entry(lua_State *L, Host *h, int index, int number, SpecEntry *e) {
    index = lua_absindex(L, index);
    if (lua_isnil(L, index) || is_sentinel(L, index, &none_key) ||
        (lua_isboolean(L, index) && !lua_toboolean(L, index))) {
        e->kind = SPEC_NONE;
    } else if (is_sentinel(L, index, &unconstrained_key)) {
        e->kind = SPEC_UNCONSTRAINED;
    } else if (lua_type(L, index) == LUA_TSTRING) {
        e->kind = SPEC_AXES;
        e->axis[e->n++] = axis_name(L, h, index);
    } else if (lua_istable(L, index)) {
        lua_Unsigned n = lua_rawlen(L, index);
        if (n > MAX_AXES) state_error(L, E_SPEC, "P: entry %d names %d axes", number, (int)n);
        e->kind = n ? SPEC_AXES : SPEC_NONE;
        for (lua_Unsigned i = 1; i <= n; i++) {
            if (lua_rawgeti(L, index, (lua_Integer)i) != LUA_TSTRING)
                state_error(L, E_SPEC, "P: entry %d: expected names of mesh axes, got %s", number,
                            arg_type_name(L, -1));
            e->axis[e->n++] = axis_name(L, h, -1);
            lua_pop(L, 1);
        }
        read_entry_options(L, index, number, e);
    } else {
        state_error(L, E_SPEC,
                    "P: entry %d: expected nil, the name of a mesh axis or a list of names, got %s",
                    number, arg_type_name(L, index));
    }
}

static bool in_set(const SpecEntry *e, const char *axis) {
    for (int k = 0; k < e->n; k++)
        if (e->axis[k] == axis) return true;
    return false;
}

/* The set of axes on top of the stack, sorted; none of them may be in `other` or split a dim. */
static void read_set(lua_State *L, Host *h, const char *name, const Spec *s, const SpecEntry *other,
                     SpecEntry *e) {
    if (lua_isnil(L, -1)) return;
    if (!lua_istable(L, -1))
        state_error(L, E_SPEC, "P: %s: expected a list of mesh axes, as {\"x\"}, got %s", name,
                    arg_type_name(L, -1));
    lua_Unsigned n = lua_rawlen(L, -1);
    if (n > MAX_AXES) state_error(L, E_SPEC, "P: %s names %d axes", name, (int)n);
    for (lua_Unsigned i = 1; i <= n; i++) {
        if (lua_rawgeti(L, -1, (lua_Integer)i) != LUA_TSTRING)
            state_error(L, E_SPEC, "P: %s: expected names of mesh axes, got %s", name,
                        arg_type_name(L, -1));
        const char *axis = axis_name(L, h, -1);
        lua_pop(L, 1);
        bool splits = false;
        for (int d = 0; d < s->n; d++) splits = splits || in_set(&s->entry[d], axis);
        if (in_set(e, axis) || in_set(other, axis) || splits)
            state_error(L, E_SPEC,
                        "P: axis '%s' of %s %s; an axis splits a dim, or is unreduced, or reduced",
                        axis, name, splits ? "splits a dim, too" : "is named twice");
        int at = e->n++;
        for (; at > 0 && strcmp(e->axis[at - 1], axis) > 0; at--) e->axis[at] = e->axis[at - 1];
        e->axis[at] = axis;
    }
    e->kind = e->n ? SPEC_AXES : SPEC_NONE;
}

/* The table of options behind the entries: {unreduced = {axes}, reduced = {axes}, unreduced_kind =
 * "sum"}. */
static void read_options(lua_State *L, Host *h, int index, Spec *s) {
    static const char *const kinds[] = {"sum", "max", "min"};
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
        const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "?";
        if (strcmp(key, "unreduced") != 0 && strcmp(key, "reduced") != 0 &&
            strcmp(key, "unreduced_kind") != 0)
            state_error(L, E_SPEC,
                        "P: unknown option '%s'; there are unreduced, reduced and unreduced_kind",
                        key);
    }
    lua_getfield(L, index, "unreduced");
    read_set(L, h, "unreduced", s, &s->reduced, &s->unreduced);
    lua_getfield(L, index, "reduced");
    read_set(L, h, "reduced", s, &s->unreduced, &s->reduced);
    if (lua_getfield(L, index, "unreduced_kind") != LUA_TNIL) {
        const char *word = arg_string(L, -1, NULL, "P: unreduced_kind");
        int kind = 0;
        while (kind < 3 && strcmp(kinds[kind], word) != 0) kind++;
        if (kind == 3)
            state_error(L, E_SPEC, "P: unreduced_kind '%s'; there are sum, max and min", word);
        if (!s->unreduced.n) state_error(L, E_SPEC, "P: unreduced_kind is given without unreduced");
        s->unreduced_kind = (uint8_t)kind;
    }
    lua_pop(L, 3);
}

/* Has the table only keys that are strings? Then it is no list of axes. */
static bool is_options(lua_State *L, int index) {
    if (!lua_istable(L, index) || lua_rawlen(L, index)) return false;
    bool any = false;
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1))
        any = any || lua_type(L, -2) == LUA_TSTRING;
    return any;
}

static int push_interned(lua_State *L, Host *h, const Spec *s) {
    const Spec *interned = spec_of(&h->cx, s);
    if (!interned) state_check(L, h, err_nomem(&h->cx, "a P"));
    value_push_spec(L, interned);
    return 1;
}

/* P(entry, ... [, options]): nil holes count. */
static int spec_new(lua_State *L) {
    Host *h = state_of(L);
    Spec s = {0};
    int n = lua_gettop(L) - 1; /* argument 1 is the callable table P */
    bool options = n > 0 && is_options(L, n + 1);
    if (options) n--;
    if (n > MAX_RANK) state_error(L, E_SPEC, "P: %d entries; at most %d", n, MAX_RANK);
    for (int i = 0; i < n; i++) read_entry(L, h, i + 2, i + 1, &s.entry[i]);
    s.n = n;
    if (options) read_options(L, h, n + 2, &s);
    return push_interned(L, h, &s);
}

static bool has_sets(const Spec *s) {
    return s->unreduced.n || s->reduced.n;
}

/* P + P: the entries of both. */
static int spec_add(lua_State *L) {
    Host *h = state_of(L);
    if (!luaL_testudata(L, 1, VALUE_SPEC) || !luaL_testudata(L, 2, VALUE_SPEC))
        state_error(L, E_SPEC, "P + P: expected two P, got %s and %s", arg_type_name(L, 1),
                    arg_type_name(L, 2));
    const Spec *a = value_spec(L, 1), *b = value_spec(L, 2);
    if (a->n + b->n > MAX_RANK)
        state_error(L, E_SPEC, "P + P: %d entries; at most %d", a->n + b->n, MAX_RANK);
    if (has_sets(a) && has_sets(b))
        state_error(L, E_SPEC,
                    "P + P: both have unreduced or reduced axes; write one P, or use :update");
    Spec s = *a;
    for (int i = 0; i < b->n; i++) s.entry[s.n++] = b->entry[i];
    if (has_sets(b)) {
        s.unreduced = b->unreduced;
        s.reduced = b->reduced;
        s.unreduced_kind = b->unreduced_kind;
    }
    for (int i = 0; i < s.n; i++)
        for (int k = 0; k < s.entry[i].n; k++)
            if (in_set(&s.unreduced, s.entry[i].axis[k]) || in_set(&s.reduced, s.entry[i].axis[k]))
                state_error(L, E_SPEC,
                            "P + P: axis '%s' would split a dim and be unreduced or reduced",
                            s.entry[i].axis[k]);
    return push_interned(L, h, &s);
}

static int spec_tostring(lua_State *L) {
    Host *h = state_of(L);
    spec_print(value_spec(L, 1), state_text(h));
    return state_push_text(L, h);
}

static int spec_eq(lua_State *L) {
    const Spec **a = luaL_testudata(L, 1, VALUE_SPEC), **b = luaL_testudata(L, 2, VALUE_SPEC);
    lua_pushboolean(L, a && b && *a == *b);
    return 1;
}

static int spec_len(lua_State *L) {
    lua_pushinteger(L, value_spec(L, 1)->n);
    return 1;
}

static void push_axes(lua_State *L, const SpecEntry *e) {
    lua_createtable(L, e->n, 0);
    for (int k = 0; k < e->n; k++) {
        lua_pushstring(L, e->axis[k]);
        lua_rawseti(L, -2, k + 1);
    }
}

/* What read_entry_options reads, into the table on top of the stack. */
static void push_entry_options(lua_State *L, const SpecEntry *e) {
    if (e->open) {
        lua_pushboolean(L, true);
        lua_setfield(L, -2, "open");
    }
    if (e->priority) {
        lua_pushinteger(L, e->priority);
        lua_setfield(L, -2, "priority");
    }
    if (e->uneven) {
        lua_pushstring(L, uneven_words[e->uneven]);
        lua_setfield(L, -2, "uneven");
    }
}

static void push_entry(lua_State *L, const SpecEntry *e) {
    if (e->kind == SPEC_UNCONSTRAINED) {
        lua_pushlightuserdata(L, (void *)(uintptr_t)&unconstrained_key);
    } else if (e->n == 0) {
        lua_pushnil(L);
    } else if (e->n == 1 && !e->open && !e->priority && !e->uneven) {
        lua_pushstring(L, e->axis[0]);
    } else {
        push_axes(L, e);
        push_entry_options(L, e);
    }
}

/* spec[i]: nil, an axis, or a list of axes with its options, such that P(spec[1], ...) is spec.
 * Fields: partitions (a list with false for nil), unreduced, reduced (lists), unreduced_kind. */
static int spec_index(lua_State *L) {
    static const char *const kinds[] = {"sum", "max", "min"};
    const Spec *s = value_spec(L, 1);
    if (lua_type(L, 2) == LUA_TSTRING) {
        const char *k = lua_tostring(L, 2);
        if (strcmp(k, "partitions") == 0) {
            lua_createtable(L, s->n, 0);
            for (int i = 0; i < s->n; i++) {
                push_entry(L, &s->entry[i]);
                if (lua_isnil(L, -1)) lua_pushboolean(L, 0);
                lua_rawseti(L, 3, i + 1);
                lua_settop(L, 3);
            }
        } else if (strcmp(k, "unreduced") == 0) {
            push_axes(L, &s->unreduced);
        } else if (strcmp(k, "reduced") == 0) {
            push_axes(L, &s->reduced);
        } else if (strcmp(k, "unreduced_kind") == 0) {
            lua_pushstring(L, s->unreduced.n ? kinds[s->unreduced_kind] : NULL);
        } else {
            lua_pushvalue(L, 2);
            if (lua_rawget(L, lua_upvalueindex(1)) == LUA_TNIL) return usage_unknown(L, "P");
        }
        return 1;
    }
    int whole;
    lua_Integer i = lua_tointegerx(L, 2, &whole);
    if (whole && has_sets(s))
        state_error(L, E_SPEC,
                    "a P with unreduced or reduced axes is more than its entries; use "
                    "spec.partitions[%d], spec.unreduced, spec.reduced",
                    (int)i);
    if (!whole || i < 1 || i > s->n)
        lua_pushnil(L);
    else
        push_entry(L, &s->entry[i - 1]);
    return 1;
}

static int is_spec(lua_State *L) {
    lua_pushboolean(L, luaL_testudata(L, 1, VALUE_SPEC) != NULL);
    return 1;
}

void lib_open_spec(lua_State *L) {
    static const luaL_Reg meta[] = {{"__tostring", spec_tostring},
                                    {"__eq", spec_eq},
                                    {"__len", spec_len},
                                    {"__add", spec_add},
                                    {NULL, NULL}};
    value_new_type(L, VALUE_SPEC, meta, NULL, spec_index);
    lua_pushcfunction(L, is_spec);
    lua_setfield(L, -2, "is_spec");
    lua_createtable(L, 0, 2); /* P, callable */
    lua_pushlightuserdata(L, (void *)(uintptr_t)&none_key);
    lua_setfield(L, -2, "none");
    lua_pushlightuserdata(L, (void *)(uintptr_t)&unconstrained_key);
    lua_setfield(L, -2, "unconstrained");
    lua_createtable(L, 0, 1);
    lua_pushcfunction(L, spec_new);
    lua_setfield(L, -2, "__call");
    lua_setmetatable(L, -2);
    lua_setfield(L, -2, "P");
}
