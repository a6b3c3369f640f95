/* why.c - why a call was traced: what differs from the closest call that was traced before. */
#include "lua/jit/jit.h"

#include "base/log.h"

#include <string.h>

const char *jit_read_line(const char *at, JitLine *l) {
    int n = (int)strcspn(at, "\n");
    const char *eq = strstr(at, " = ");
    bool has = eq && eq < at + n;
    *l = (JitLine){.name = at, .nname = has ? (int)(eq - at) : n, .text = has ? eq + 3 : at + n};
    l->ntext = (int)(at + n - l->text);
    return at + n + (at[n] == '\n');
}

static bool same_name(const JitLine *a, const JitLine *b) {
    return a->nname == b->nname && memcmp(a->name, b->name, (size_t)a->nname) == 0;
}

static bool find_line(const char *in, const JitLine *name, JitLine *out) {
    while (*in) {
        in = jit_read_line(in, out);
        if (same_name(out, name)) return true;
    }
    return false;
}

/* find_line for the lines of a like list in their order: *next is where it probably stands. */
static bool find_next(const char *in, const char **next, const JitLine *name, JitLine *out) {
    const char *behind = **next ? jit_read_line(*next, out) : *next;
    if (!**next || !same_name(out, name)) {
        if (!find_line(in, name, out)) return false;
        behind = out->text + out->ntext + (out->text[out->ntext] == '\n');
    }
    *next = behind;
    return true;
}

/* Prints the lines of `of` that `other` has otherwise or not at all; how many there are. */
static int print_own(const char *of, const char *other, Str *s) {
    enum { SHOWN = 4 };
    int n = 0;
    const char *next = other;
    JitLine a, b;
    for (const char *at = of; *at;) {
        at = jit_read_line(at, &a);
        bool same = find_next(other, &next, &a, &b) && a.ntext == b.ntext &&
                    memcmp(a.text, b.text, (size_t)a.ntext) == 0;
        if (same || n++ >= SHOWN) continue;
        if (s) str_fmt(s, "%s%.*s = %.*s", n > 1 ? " and " : "", a.nname, a.name, a.ntext, a.text);
    }
    if (s && n > SHOWN) str_fmt(s, " and %d more", n - SHOWN);
    if (s && n == 0) str_put(s, "nothing there");
    return n;
}

/* How many lines of `of` have a name that `other` lacks. */
static int count_missing(const char *of, const char *other) {
    int n = 0;
    const char *next = other;
    JitLine a, b;
    for (const char *at = of; *at;) {
        at = jit_read_line(at, &a);
        n += !find_next(other, &next, &a, &b);
    }
    return n;
}

/* The traced call that differs least, the latest of these; how much it does in *n. */
static int32_t closest(const LuaJit *j, const char *now, int *n) {
    int32_t best = -1;
    for (int32_t i = 0; i < j->n; i++) {
        const char *then = j->entry[i].describe;
        int differ = print_own(now, then, NULL) + count_missing(then, now);
        if (best >= 0 && differ > *n) continue;
        best = i;
        *n = differ;
    }
    return best;
}

/* Pushes the table of the places of functions that were traced, and the place of this one. */
static void push_places(lua_State *L, int jit) {
    static const char key;
    lua_Debug ar;
    if (lua_rawgetp(L, LUA_REGISTRYINDEX, &key) != LUA_TTABLE) {
        lua_pop(L, 1);
        lua_newtable(L);
        lua_pushvalue(L, -1);
        lua_rawsetp(L, LUA_REGISTRYINDEX, &key);
    }
    lua_getiuservalue(L, jit, 1);
    lua_getinfo(L, ">S", &ar);
    lua_pushfstring(L, "%s:%d", ar.short_src, ar.linedefined);
}

/* A first trace: is it the first of a function made at this line? */
static void explain_first(lua_State *L, LuaJit *j) {
    str_put(&j->why, "the first call is always traced");
    push_places(L, JIT);
    lua_pushvalue(L, -1);
    if (lua_rawget(L, -3) != LUA_TNIL)
        str_fmt(
            &j->why,
            "; another function made at %s has been traced before: call ml.jit once, outside of "
            "the loop",
            lua_tostring(L, -2));
    lua_pop(L, 1);
    lua_pushboolean(L, 1);
    lua_rawset(L, -3);
    lua_pop(L, 1);
}

void jit_explain_miss(lua_State *L, Host *h, LuaJit *j, bool stale) {
    const char *now = str_of(&h->describe);
    int n = 0;
    str_clear(&j->why);
    j->why.failed = false;
    if (stale) {
        str_put(&j->why, "a Param that is used without being an argument has another type now");
    } else if (j->n == 0) {
        explain_first(L, j);
        return;
    } else {
        int32_t i = closest(j, now, &n);
        const char *then = j->entry[i].describe;
        if (n == 0) {
            str_put(&j->why, "a class, function, mesh or other object in the arguments is not the "
                             "one before");
        } else {
            str_put(&j->why, "now ");
            print_own(now, then, &j->why);
            str_fmt(&j->why, "; %s trace had ", i == j->n - 1 ? "the last" : "an earlier");
            print_own(then, now, &j->why);
        }
    }
    bool upvalue = strncmp(str_of(&j->why), "now upvalue", 11) == 0;
    log_line(&h->cx, upvalue ? LOG_WARN : LOG_INFO, "a jitted function is traced again: %s",
             str_of(&j->why));
}

/* Appends what `now` has otherwise than `then`, and what it lacks; how many there are. */
static int compare(const char *now, const char *then, Str *s) {
    enum { SHOWN = 6 };
    int n = 0;
    JitLine a, b;
    for (const char *at = now; *at;) {
        at = jit_read_line(at, &a);
        bool there = find_line(then, &a, &b);
        if (there && a.ntext == b.ntext && memcmp(a.text, b.text, (size_t)a.ntext) == 0) continue;
        if (n++ >= SHOWN) continue;
        str_fmt(s, "%s%.*s is %.*s, ", n > 1 ? "; " : "", a.nname, a.name, a.ntext, a.text);
        if (there)
            str_fmt(s, "compiled for %.*s", b.ntext, b.text);
        else
            str_put(s, "which was not there");
    }
    for (const char *at = then; *at;) {
        at = jit_read_line(at, &b);
        if (find_line(now, &b, &a)) continue;
        if (n++ >= SHOWN) continue;
        str_fmt(s, "%s%.*s is missing, compiled for %.*s", n > 1 ? "; " : "", b.nname, b.name,
                b.ntext, b.text);
    }
    if (n > SHOWN) str_fmt(s, "; and %d more", n - SHOWN);
    return n;
}

_Noreturn void jit_raise_mismatch(lua_State *L, Host *h, const LuaJit *j) {
    Str *s = state_text(h);
    if (compare(str_of(&h->describe), j->entry[0].describe, s) == 0)
        str_put(s, "an object, or a Param met on the way, is not the one before");
    state_error(L, E_VALUE, "compiled: other arguments than it was compiled for: %s", str_of(s));
}
