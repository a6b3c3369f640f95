#include "lua/program/terminal.h"

#include "base/env.h"
#include "lua/program/interrupt.h"
#include "lua/program/progress.h"
#include "lua/state/state.h"

#include <errno.h>
#include <fcntl.h>
#include <histedit.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#define EDITOR "meshlua.editor"

/* A block is one text to libedit, with line ends in it. */
typedef struct Editor {
    EditLine *el; /* NULL: lines are read as they come */
    History *history;
    FILE *out;          /* the terminal; stdout notes what goes to it */
    lua_State *L;       /* of the block being read: its handler is at index HANDLER */
    const char *prompt; /* on the Lua stack */
    const char *kept;   /* where blocks stay for later sessions: a file in $HOME */
} Editor;

enum { HANDLER = 3 };

static volatile sig_atomic_t abandoned; /* Ctrl-C at the prompt */

static void on_interrupt(int sig) {
    (void)sig;
    abandoned = 1;
}

/* A terminal that can move its cursor? What mpirun gives its processes is none, although it looks
 * like one. */
static bool is_capable(lua_State *L, int fd) {
    if (state_of(L)->rt.ranks.world > 1) return false;
    const char *term = env_get(ENV_TERM);
    return isatty(fd) && term && strcmp(term, "dumb") != 0;
}

/* The number of a stream by its name: stdout may note what is written and have none. */
static int stream_at(lua_State *L, int index) {
    static const char *const names[] = {"stdin", "stdout", "stderr", NULL};
    static const int numbers[] = {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO};
    return numbers[luaL_checkoption(L, index, NULL, names)];
}

/* is_terminal(stream): "stdin", "stdout" or "stderr". */
static int is_terminal(lua_State *L) {
    lua_pushboolean(L, isatty(stream_at(L, 1)));
    return 1;
}

/* has_colour(stream) */
static int has_colour(lua_State *L) {
    lua_pushboolean(L, is_capable(L, stream_at(L, 1)) && !env_get(ENV_NO_COLOR));
    return 1;
}

/* columns(stream): the width of a capable terminal; nil for anything else. */
static int columns(lua_State *L) {
    int fd = stream_at(L, 1);
    struct winsize size;
    if (!is_capable(L, fd) || ioctl(fd, TIOCGWINSZ, &size) != 0) return 0;
    lua_pushinteger(L, size.ws_col ? size.ws_col : 80); /* 0: it does not know */
    return 1;
}

/* editor_command(): what opens a file for the user. */
static int editor_command(lua_State *L) {
    const char *visual = env_get(ENV_VISUAL), *editor = env_get(ENV_EDITOR);
    lua_pushstring(L, visual ? visual : editor ? editor : "vi");
    return 1;
}

/* ---- keys ---- */

/* What a key does is said by the handler of lualib/meshlua/repl/. Keys that no keyboard has: */
#define ACCEPT  "\033[9001~" /* the block is taken */
#define PREPARE "\033[9002~" /* the text that stands there from the beginning */
#define DELETE  "\033[9003~" /* the character under the cursor */

static bool is_more_waiting(void) {
    int n = 0;
    return ioctl(STDIN_FILENO, FIONREAD, &n) == 0 && n > 0;
}

static char *prompt_of(EditLine *el) {
    Editor *e;
    el_get(el, EL_CLIENTDATA, &e);
    return (char *)(uintptr_t)e->prompt;
}

static lua_Integer integer_field(lua_State *L, const char *name) {
    lua_getfield(L, -1, name);
    lua_Integer n = lua_tointeger(L, -1);
    lua_pop(L, 1);
    return n;
}

/* Does what the table on top says, in this order: {move = characters, delete = characters before
 * the cursor, insert = text, show = lines below, push = keys, accept = the block is taken}. */
static unsigned char apply(lua_State *L, const Editor *e) {
    lua_Integer move = integer_field(L, "move"), delete = integer_field(L, "delete");
    if (move) el_cursor(e->el, (int)move);
    if (delete > 0) el_deletestr(e->el, (int)delete);
    lua_getfield(L, -1, "insert");
    const char *insert = lua_tostring(L, -1);
    if (insert && *insert) el_insertstr(e->el, insert);
    lua_getfield(L, -2, "show");
    const char *show = lua_tostring(L, -1);
    if (show) fputs(show, e->out);
    lua_getfield(L, -3, "push");
    const char *push = lua_tostring(L, -1);
    if (push) el_push(e->el, push);
    if (lua_getfield(L, -4, "accept") != LUA_TNIL) el_push(e->el, ACCEPT);
    fflush(e->out);
    return show ? CC_REDISPLAY : CC_REFRESH;
}

/* What stands between the marks of a paste, byte by byte. */
typedef struct Paste {
    int seen; /* of the mark at its end */
    bool over;
} Paste;

static const char paste_end[] = "\033[201~";
enum { PASTE_END = sizeof paste_end - 1 };

/* The next byte, of the mark, too. A Ctrl-C that nothing follows gives up a paste that does not
 * end. */
static bool read_paste(Paste *p, char *byte) {
    enum { PATIENCE = 200 };
    struct pollfd more = {.fd = STDIN_FILENO, .events = POLLIN};
    ssize_t n = 0;
    if (p->over) return false;
    do n = read(STDIN_FILENO, byte, 1);
    while (n < 0 && errno == EINTR && !abandoned);
    if (n == 1) p->seen = *byte == paste_end[p->seen] ? p->seen + 1 : *byte == paste_end[0];
    p->over = n != 1 || p->seen == PASTE_END || (*byte == '\003' && poll(&more, 1, PATIENCE) == 0);
    return n == 1;
}

/* The rest of one must not come in as keys. */
static void drop_paste(Paste *p) {
    for (char byte; p && read_paste(p, &byte);) continue;
}

static void push_paste(lua_State *L, Paste *p) {
    luaL_Buffer b;
    luaL_buffinit(L, &b);
    for (char byte; p && read_paste(p, &byte);) luaL_addchar(&b, byte);
    if (p && p->seen == PASTE_END) luaL_buffsub(&b, PASTE_END);
    luaL_pushresult(&b);
}

typedef struct Event {
    const Editor *e;
    const char *name;
    Paste *paste; /* or NULL */
    unsigned char result;
} Event;

/* (handler, event): asks the handler what it does: handler(event, text, cursor (bytes before it),
 * is more waiting, what was pasted). */
static int ask_handler(lua_State *L) {
    Event *v = lua_touserdata(L, 2);
    push_paste(L, v->paste);
    const LineInfo *line = el_line(v->e->el);
    lua_pushvalue(L, 1);
    lua_pushstring(L, v->name);
    lua_pushlstring(L, line->buffer, (size_t)(line->lastchar - line->buffer));
    lua_pushinteger(L, line->cursor - line->buffer);
    lua_pushboolean(L, is_more_waiting());
    lua_pushvalue(L, 3);
    lua_call(L, 5, 1);
    if (lua_istable(L, -1)) v->result = apply(L, v->e);
    return 0;
}

/* (error, editor) */
static int say_error(lua_State *L) {
    const Editor *e = lua_touserdata(L, 2);
    fprintf(e->out, "\n%s\n", luaL_tolstring(L, 1, NULL));
    return 0;
}

/* No error may pass through libedit, which would leave the terminal as it has it: what can raise
 * one is called in protected mode, and what stands here cannot. */
static unsigned char act(EditLine *el, const char *name, Paste *paste) {
    Editor *e;
    el_get(el, EL_CLIENTDATA, &e);
    lua_State *L = e->L;
    Event v = {e, name, paste, CC_ERROR};
    int top = lua_gettop(L);
    if (abandoned) { /* what stands there goes */
        const LineInfo *line = el_line(el);
        drop_paste(paste);
        el_cursor(el, (int)(line->lastchar - line->buffer));
        el_insertstr(el, "^C");
        el_push(el, ACCEPT);
        return CC_REFRESH;
    }
    lua_pushcfunction(L, ask_handler);
    lua_pushvalue(L, HANDLER);
    lua_pushlightuserdata(L, &v);
    if (lua_pcall(L, 2, 0, 0) != LUA_OK) {
        drop_paste(paste);
        lua_pushcfunction(L, say_error);
        lua_insert(L, -2);
        lua_pushlightuserdata(L, e);
        if (lua_pcall(L, 2, 0, 0) != LUA_OK) fputs("\nan error without a text\n", e->out);
        v.result = CC_REDISPLAY;
    }
    lua_settop(L, top);
    return v.result;
}

#define ON(event)                                                                                  \
    static unsigned char on_##event(EditLine *el, int key) {                                       \
        (void)key;                                                                                 \
        return act(el, #event, NULL);                                                              \
    }
ON(enter)
ON(line)
ON(tab)
ON(up)
ON(down)
ON(home)
ON(end)
ON(prepare)

/* Ctrl-D: the end of the input, unless there is text, or it came with more as a paste does. */
static unsigned char on_delete(EditLine *el, int key) {
    (void)key;
    const LineInfo *line = el_line(el);
    if (line->lastchar == line->buffer) return is_more_waiting() ? CC_NORM : CC_EOF;
    el_push(el, DELETE);
    return CC_NORM;
}

/* The terminal as others know it, and back. */
static void lend_terminal(const Editor *e, bool lend) {
    el_set(e->el, EL_PREP_TERM, lend ? 0 : 1);
    fputs(lend ? "\033[?2004l" : "\033[?2004h", e->out);
    fflush(e->out);
}

static unsigned char on_edit(EditLine *el, int key) {
    (void)key;
    Editor *e;
    el_get(el, EL_CLIENTDATA, &e);
    lend_terminal(e, true);
    unsigned char result = act(el, "edit", NULL);
    lend_terminal(e, false);
    return result == CC_REFRESH ? CC_REDISPLAY : result;
}

static unsigned char on_suspend(EditLine *el, int key) {
    (void)key;
    Editor *e;
    el_get(el, EL_CLIENTDATA, &e);
    if (is_more_waiting()) return CC_NORM;
    lend_terminal(e, true);
    kill(0, SIGTSTP);
    lend_terminal(e, false);
    return CC_REDISPLAY;
}

static unsigned char on_paste(EditLine *el, int key) {
    (void)key;
    return act(el, "paste", &(Paste){0});
}

static void bind_keys(EditLine *el) {
    static const struct {
        const char *name;
        unsigned char (*run)(EditLine *, int);
        const char *keys[4];
    } own[] = {{"meshlua-enter", on_enter, {"^M", "^J"}},
               {"meshlua-line", on_line, {"\033^M", "\033^J"}},
               {"meshlua-tab", on_tab, {"^I"}},
               {"meshlua-up", on_up, {"\033[A", "\033OA"}},
               {"meshlua-down", on_down, {"\033[B", "\033OB"}},
               {"meshlua-home", on_home, {"^A", "\033[H", "\033[1~"}},
               {"meshlua-end", on_end, {"^E", "\033[F", "\033[4~"}},
               {"meshlua-prepare", on_prepare, {PREPARE}},
               {"meshlua-delete", on_delete, {"^D"}},
               {"meshlua-edit", on_edit, {"^X^E"}},
               {"meshlua-suspend", on_suspend, {"^Z"}},
               {"meshlua-paste", on_paste, {"\033[200~"}}};
    static const char *const known[][2] = {
        {"^R", "em-inc-search-prev"},    {ACCEPT, "ed-newline"},
        {DELETE, "ed-delete-next-char"}, {"\033[3~", "ed-delete-next-char"},
        {"\033[1;5C", "em-next-word"},   {"\033[1;5D", "ed-prev-word"},
        {"^W", "ed-delete-prev-word"},   {"^U", "em-kill-line"}};
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
        el_set(el, EL_BIND, known[i][0], known[i][1], NULL);
    for (unsigned i = 0; i < sizeof own / sizeof *own; i++) {
        el_set(el, EL_ADDFN, own[i].name, "meshlua", own[i].run);
        for (const char *const *key = own[i].keys; *key; key++)
            el_set(el, EL_BIND, *key, own[i].name, NULL);
    }
}

/* ---- the editor ---- */

/* One character for libedit. Ctrl-C ends the block: the caller sees `abandoned`. */
static int read_char(EditLine *el, wchar_t *out) {
    mbstate_t state = {0};
    for (;;) {
        char byte = 0;
        ssize_t n = read(STDIN_FILENO, &byte, 1);
        if (n == 1 && byte == '\003') abandoned = 1;
        if (abandoned) {
            *out = L'\n';
            return 1;
        }
        if (n == 1 && byte == '\0') continue;
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

static const char *history_file(lua_State *L, const Editor *e) {
    const char *home = env_get(ENV_HOME);
    return home ? lua_pushfstring(L, "%s/%s", home, e->kept) : NULL;
}

/* Reads what earlier sessions kept. This session's blocks are put behind it one by one, for several
 * sessions write the file; what has become too long is cut here. */
static void load_history(lua_State *L, const Editor *e) {
    enum { REMEMBERED = 1000 };
    HistEvent event;
    history(e->history, &event, H_SETSIZE, 2 * REMEMBERED);
    history(e->history, &event, H_SETUNIQUE, 1);
    const char *file = history_file(L, e);
    int loaded = file ? history(e->history, &event, H_LOAD, file) : 0;
    history(e->history, &event, H_SETSIZE, REMEMBERED);
    if (loaded >= 2 * REMEMBERED) history(e->history, &event, H_SAVE, file);
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
    if (!setlocale(LC_CTYPE, "") || strcmp(setlocale(LC_CTYPE, NULL), "C") == 0)
        setlocale(LC_CTYPE, "C.UTF-8");
    e->out = stdout;
    e->el = el_init("meshlua", stdin, e->out, stderr);
    e->history = history_init();
    if (!e->el || !e->history) luaL_error(L, "out of memory for the line editor");
    progress_open(L);
    load_history(L, e);
    el_set(e->el, EL_CLIENTDATA, e);
    el_set(e->el, EL_PROMPT_ESC, prompt_of, '\1'); /* what has no width stands between \1 */
    el_set(e->el, EL_HIST, history, e->history);
    el_set(e->el, EL_EDITOR, "emacs");
    el_set(e->el, EL_SIGNAL, 1); /* the terminal is put right before a signal takes effect */
    /* what is pasted must not end the program: keys that send signals are read as keys */
    el_set(e->el, EL_SETTY, "-d", "-isig", NULL);
    el_set(e->el, EL_GETCFN, read_char);
    el_source(e->el, NULL);
    bind_keys(e->el);
}

/* editor(kind): with editing and history where input and output are a capable terminal. */
static int editor_new(lua_State *L) {
    static const char *const kinds[] = {"history", "chat_history", NULL};
    static const char *const kept[] = {".meshlua_history", ".meshlua_chat_history"};
    int kind = luaL_checkoption(L, 1, kinds[0], kinds);
    Editor *e = lua_newuserdatauv(L, sizeof *e, 0);
    int editor = lua_gettop(L);
    *e = (Editor){.kept = kept[kind]};
    luaL_setmetatable(L, EDITOR);
    if (isatty(STDIN_FILENO)) interrupt_stay();
    if (is_capable(L, STDIN_FILENO) && is_capable(L, STDOUT_FILENO)) start(L, e);
    lua_pushvalue(L, editor);
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

static bool push_edited_block(lua_State *L, Editor *e, const char *prompt) {
    int n = 0;
    e->prompt = prompt;
    e->L = L;
    el_resize(e->el);
    lend_terminal(e, false);
    el_push(e->el, PREPARE);
    const char *text = el_gets(e->el, &n);
    lend_terminal(e, true);
    if (!text || n <= 0) return false;
    if (text[n - 1] == '\n') n--;
    lua_pushlstring(L, text, (size_t)n);
    return true;
}

static int read_block(lua_State *L) {
    Editor *e = lua_touserdata(L, 1);
    const char *prompt = lua_tostring(L, 2);
    bool any = e->el ? push_edited_block(L, e, prompt) : push_plain_line(L, prompt);
    if (!any) lua_pushnil(L);
    return 1;
}

/* editor:read(prompt, handler): a block, or where nothing can be edited a line; false where Ctrl-C
 * abandoned it; nil at the end of the input. */
static int editor_read(lua_State *L) {
    luaL_checkudata(L, 1, EDITOR);
    luaL_checkstring(L, 2);
    lua_settop(L, HANDLER);
    bool person = isatty(STDIN_FILENO);
    struct sigaction before, mine = {.sa_handler = on_interrupt};
    sigemptyset(&mine.sa_mask);
    abandoned = 0;
    fflush(stdout);
    lua_pushcfunction(L, read_block);
    lua_insert(L, 1);
    if (person) sigaction(SIGINT, &mine, &before);
    int status = lua_pcall(L, HANDLER, 1, 0);
    if (person) sigaction(SIGINT, &before, NULL);
    if (status != LUA_OK) return lua_error(L);
    if (abandoned) lua_pushboolean(L, 0);
    return 1;
}

/* editor:edits(): are blocks edited? */
static int editor_edits(lua_State *L) {
    const Editor *e = luaL_checkudata(L, 1, EDITOR);
    lua_pushboolean(L, e->el != NULL);
    return 1;
}

/* Puts a block behind those in the file; not whole: false. (H_NSAVE_FP counts one too many.) */
static bool append(FILE *f, const char *block) {
    HistEvent event;
    History *one = history_init();
    if (!one) return false;
    bool ok = history(one, &event, H_SETSIZE, 1) >= 0 &&
              history(one, &event, H_ENTER, block) >= 0 && fseek(f, 0, SEEK_END) == 0 &&
              history(one, &event, H_SAVE_FP, f) >= 0;
    history_end(one);
    return ok;
}

/* editor:remember(block): for the arrow keys, and the next session; true, or nil and the reason. */
static int editor_remember(lua_State *L) {
    const Editor *e = luaL_checkudata(L, 1, EDITOR);
    const char *block = luaL_checkstring(L, 2);
    HistEvent event;
    lua_pushboolean(L, 1);
    if (!e->history || block[strspn(block, " \t\n")] == '\0') return 1;
    history(e->history, &event, H_ENTER, block);
    const char *file = history_file(L, e);
    if (!file) return 1;
    int fd = open(file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, S_IRUSR | S_IWUSR);
    FILE *f = fd >= 0 ? fdopen(fd, "a") : NULL;
    bool ok = f && append(f, block);
    if (!f && fd >= 0) close(fd);
    if (f && fclose(f) != 0) ok = false;
    if (ok) return 1;
    lua_pushnil(L);
    lua_pushfstring(L, "%s: %s", file, strerror(errno));
    return 2;
}

void terminal_open(lua_State *L) {
    static const luaL_Reg fns[] = {
        {"is_terminal", is_terminal}, {"has_colour", has_colour},         {"columns", columns},
        {"editor", editor_new},       {"editor_command", editor_command}, {NULL, NULL}};
    static const luaL_Reg methods[] = {{"read", editor_read},
                                       {"edits", editor_edits},
                                       {"remember", editor_remember},
                                       {"__gc", editor_gc},
                                       {NULL, NULL}};
    luaL_newmetatable(L, EDITOR);
    luaL_setfuncs(L, methods, 0);
    lua_pushvalue(L, -1);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    luaL_setfuncs(L, fns, 0);
}
