#include "lua/program/terminal.h"

#include "base/env.h"
#include "lua/state/state.h"

#include <errno.h>
#include <histedit.h>
#include <locale.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#define EDITOR "meshlua.editor"

typedef struct Editor {
    EditLine *el; /* NULL: lines are read as they come */
    History *history;
    const char *prompt; /* of the line being read; on the Lua stack */
} Editor;

static volatile sig_atomic_t abandoned; /* Ctrl-C at the prompt */

static void on_interrupt(int sig) {
    (void)sig;
    abandoned = 1;
}

/* A terminal that can move its cursor? What mpirun gives its processes is none, although it looks
 * like one. */
static bool is_capable(lua_State *L, FILE *f) {
    if (state_of(L)->rt.ranks.world > 1) return false;
    const char *term = env_get(ENV_TERM);
    return isatty(fileno(f)) && term && strcmp(term, "dumb") != 0;
}

static FILE *stream_at(lua_State *L, int index) {
    static const char *const names[] = {"stdin", "stdout", "stderr", NULL};
    switch (luaL_checkoption(L, index, NULL, names)) {
    case 0: return stdin;
    case 1: return stdout;
    default: return stderr;
    }
}

/* is_terminal(stream): "stdin", "stdout" or "stderr". */
static int is_terminal(lua_State *L) {
    lua_pushboolean(L, isatty(fileno(stream_at(L, 1))));
    return 1;
}

/* has_colour(stream) */
static int has_colour(lua_State *L) {
    lua_pushboolean(L, is_capable(L, stream_at(L, 1)) && !env_get(ENV_NO_COLOR));
    return 1;
}

/* columns(stream): the width of a capable terminal; nil for anything else. */
static int columns(lua_State *L) {
    FILE *f = stream_at(L, 1);
    struct winsize size;
    if (!is_capable(L, f) || ioctl(fileno(f), TIOCGWINSZ, &size) != 0) return 0;
    lua_pushinteger(L, size.ws_col ? size.ws_col : 80); /* 0: it does not know */
    return 1;
}

/* ---- the editor ---- */

static char *prompt_of(EditLine *el) {
    Editor *e;
    el_get(el, EL_CLIENTDATA, &e);
    return (char *)(uintptr_t)e->prompt;
}

/* One character for libedit. Ctrl-C ends the line: the caller sees `abandoned`. */
static int read_char(EditLine *el, wchar_t *out) {
    mbstate_t state = {0};
    for (;;) {
        char byte;
        ssize_t n = read(STDIN_FILENO, &byte, 1);
        if (abandoned) {
            fputs("^C", stdout);
            *out = L'\n';
            return 1;
        }
        if (n < 0 && errno == EINTR) { /* back from the shell: the line is gone from the screen */
            el_set(el, EL_REFRESH);
            continue;
        }
        if (n <= 0) return (int)n;
        size_t used = mbrtowc(out, &byte, 1, &state);
        if (used == (size_t)-1) { /* not a character of this locale: as it is */
            *out = (unsigned char)byte;
            return 1;
        }
        if (used != (size_t)-2) return 1;
    }
}

static const char *history_file(lua_State *L) {
    const char *home = env_get(ENV_HOME);
    return home ? lua_pushfstring(L, "%s/.meshlua_history", home) : NULL;
}

static int editor_gc(lua_State *L) {
    Editor *e = luaL_checkudata(L, 1, EDITOR);
    if (e->el) el_end(e->el);
    if (e->history) history_end(e->history);
    e->el = NULL;
    e->history = NULL;
    return 0;
}

static void start(lua_State *L, Editor *e) {
    enum { REMEMBERED = 1000 };
    HistEvent event;
    if (!setlocale(LC_CTYPE, "") || strcmp(setlocale(LC_CTYPE, NULL), "C") == 0)
        setlocale(LC_CTYPE, "C.UTF-8");
    e->el = el_init("meshlua", stdin, stdout, stderr);
    e->history = history_init();
    if (!e->el || !e->history) luaL_error(L, "out of memory for the line editor");
    history(e->history, &event, H_SETSIZE, REMEMBERED);
    history(e->history, &event, H_SETUNIQUE, 1);
    el_set(e->el, EL_CLIENTDATA, e);
    el_set(e->el, EL_PROMPT, prompt_of);
    el_set(e->el, EL_HIST, history, e->history);
    el_set(e->el, EL_EDITOR, "emacs");
    el_set(e->el, EL_SIGNAL, 1); /* the terminal is put right before a signal takes effect */
    el_set(e->el, EL_GETCFN, read_char);
    el_set(e->el, EL_BIND, "\t", "ed-insert", NULL); /* so that indented code can be pasted */
    el_set(e->el, EL_BIND, "^R", "em-inc-search-prev", NULL);
    el_source(e->el, NULL);
    const char *file = history_file(L);
    if (file) history(e->history, &event, H_LOAD, file);
}

/* editor(): with editing and history where input and output are a capable terminal. */
static int editor_new(lua_State *L) {
    Editor *e = lua_newuserdatauv(L, sizeof *e, 0);
    *e = (Editor){.el = NULL};
    luaL_setmetatable(L, EDITOR);
    if (is_capable(L, stdin) && is_capable(L, stdout)) start(L, e);
    lua_settop(L, 1);
    return 1;
}

static bool push_plain_line(lua_State *L, const char *prompt) {
    luaL_Buffer b;
    luaL_buffinit(L, &b);
    fputs(prompt, stdout);
    fflush(stdout);
    int c;
    bool any = false;
    while (!abandoned && (c = getc(stdin)) != EOF) {
        any = true;
        if (c == '\n') break;
        luaL_addchar(&b, (char)c);
    }
    luaL_pushresult(&b);
    clearerr(stdin);
    if (abandoned) fputc('\n', stdout);
    return any;
}

static bool push_edited_line(lua_State *L, Editor *e, const char *prompt) {
    int n = 0;
    e->prompt = prompt;
    el_resize(e->el);
    const char *line = el_gets(e->el, &n);
    if (!line || n <= 0) return false;
    if (line[n - 1] == '\n') n--;
    lua_pushlstring(L, line, (size_t)n);
    return true;
}

/* editor:read(prompt): a line; false where Ctrl-C abandoned it; nil at the end of the input. */
static int editor_read(lua_State *L) {
    Editor *e = luaL_checkudata(L, 1, EDITOR);
    const char *prompt = luaL_checkstring(L, 2);
    bool person = isatty(STDIN_FILENO);
    struct sigaction before, mine = {.sa_handler = on_interrupt};
    sigemptyset(&mine.sa_mask);
    abandoned = 0;
    if (person) sigaction(SIGINT, &mine, &before);
    bool any = e->el ? push_edited_line(L, e, prompt) : push_plain_line(L, prompt);
    if (person) sigaction(SIGINT, &before, NULL);
    if (abandoned)
        lua_pushboolean(L, 0);
    else if (!any)
        lua_pushnil(L);
    return 1;
}

/* editor:remember(line): for the arrow keys, and the next session. */
static int editor_remember(lua_State *L) {
    const Editor *e = luaL_checkudata(L, 1, EDITOR);
    const char *line = luaL_checkstring(L, 2);
    HistEvent event;
    if (!e->history || line[strspn(line, " \t")] == '\0') return 0;
    history(e->history, &event, H_ENTER, line);
    const char *file = history_file(L);
    if (file) history(e->history, &event, H_SAVE, file);
    return 0;
}

void terminal_open(lua_State *L) {
    static const luaL_Reg fns[] = {{"is_terminal", is_terminal},
                                   {"has_colour", has_colour},
                                   {"columns", columns},
                                   {"editor", editor_new},
                                   {NULL, NULL}};
    static const luaL_Reg methods[] = {
        {"read", editor_read}, {"remember", editor_remember}, {"__gc", editor_gc}, {NULL, NULL}};
    luaL_newmetatable(L, EDITOR);
    luaL_setfuncs(L, methods, 0);
    lua_pushvalue(L, -1);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    luaL_setfuncs(L, fns, 0);
}
