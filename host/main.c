/* main.c - the program: flags, then a script, a verb or the REPL, then an exit code. As stock lua
 * where stock lua has the flag; verbs, and the texts for people, are in lualib/meshlua/program/. */
#include "base/env.h"
#include "base/log.h"
#include "lua/core.h"
#include "lua/lib/lib.h"
#include "lua/state/heap.h"
#include "lua/program/chunk.h"
#include "lua/program/exit.h"
#include "lua/program/interrupt.h"
#include "lua/program/output.h"
#include "lua/program/probe.h"
#include "lua/program/processes.h"
#include "lua/program/terminal.h"
#include "meshlua.h"
#include "run/profile/profile.h"

#include <lualib.h>
#include <malloc.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    EXIT_OK,
    EXIT_SCRIPT,
    EXIT_USAGE,
    EXIT_ENVIRONMENT,
    EXIT_STOPPED = 75,
    EXIT_INTERRUPTED = 130
};

typedef enum Starts { STARTS_RUN, STARTS_DEVICES, STARTS_NONE } Starts;

typedef struct Program {
    int argc;
    char **argv;
    int script;          /* index in argv of its name, or of the verb; argc: none */
    bool verb;           /* it is a verb */
    Starts starts;       /* what is needed: devices and ranks, devices, or neither */
    const char *command; /* a function of cli.lua to run instead, or NULL */
    const char *devices, *dump, *profile;
    RankFlags ranks;
    const char *timeout, *secret;
    const char *processes;                  /* how many, or NULL */
    bool *is_ours;                          /* by index in argv: not for those processes */
    const char *wrong, *wrong_flag;         /* what is wrong with the flags, or NULL */
    bool no_env, interactive, version, ran; /* -E -i -v; ran: -e or -l stand for a script */
    int exit_code;
    bool interrupted;
} Program;

/* ---- flags ---- */

static bool bad_flag(Program *p, int i, const char *wrong) {
    p->wrong = wrong;
    p->wrong_flag = p->argv[i];
    return false;
}

/* The text after "--name=" in the i-th argument; NULL if it is another flag. */
static const char *value_of(const Program *p, int i, const char *name) {
    size_t n = strlen(name);
    const char *s = p->argv[i] + 2;
    return strncmp(s, name, n) == 0 && s[n] == '=' ? s + n + 1 : NULL;
}

typedef enum Taken { TAKEN_NO, TAKEN_YES, TAKEN_WRONG } Taken;

/* Takes the i-th argument, "--...", where it is a flag with a value. A verb has a --profile of its
 * own. */
static Taken valued_flag(Program *p, int i) {
    const struct {
        const char *name, **value;
    } valued[] = {{"devices", &p->devices},
                  {"processes", &p->processes},
                  {"dump", &p->dump},
                  {"profile", &p->profile},
                  {"timeout", &p->timeout},
                  {"secret", &p->secret},
                  {"log-ranks", &p->ranks.log_ranks},
                  {"world-size", &p->ranks.value[RANK_WORLD_SIZE]},
                  {"rank", &p->ranks.value[RANK_RANK]},
                  {"local-rank", &p->ranks.value[RANK_LOCAL_RANK]},
                  {"master-addr", &p->ranks.value[RANK_MASTER_ADDR]},
                  {"master-port", &p->ranks.value[RANK_MASTER_PORT]}};
    for (unsigned k = 0; k < sizeof valued / sizeof *valued; k++) {
        const char *name = valued[k].name, *text = value_of(p, i, name);
        if (p->verb && valued[k].value == &p->profile) continue;
        if (!text && strcmp(p->argv[i] + 2, name) != 0) continue;
        bool counts = valued[k].value == &p->processes;
        const char *wrong = counts ? "needs a number of processes: --processes=4" : "needs a value";
        if (!text || !*text || (counts && !processes_is_count(text))) {
            bad_flag(p, i, wrong);
            return TAKEN_WRONG;
        }
        *valued[k].value = text;
        p->is_ours[i] = counts;
        return TAKEN_YES;
    }
    return TAKEN_NO;
}

static bool long_flag(Program *p, int i) {
    static const char *const commands[] = {"help", "ops", "types", "env"};
    const char *name = p->argv[i] + 2;
    for (unsigned k = 0; k < sizeof commands / sizeof *commands; k++)
        if (strcmp(name, commands[k]) == 0) {
            p->command = commands[k];
            return true;
        }
    Taken taken = valued_flag(p, i);
    return taken == TAKEN_YES || (taken == TAKEN_NO && bad_flag(p, i, "unknown"));
}

/* The argument of `-x text` or `-xtext` at *i, which moves to it; NULL where it is missing. */
static const char *argument_of(const Program *p, int *i) {
    if (p->argv[*i][2] != '\0') return p->argv[*i] + 2;
    if (*i + 1 == p->argc || p->argv[*i + 1][0] == '-') return NULL;
    return p->argv[++*i];
}

/* Can several processes do what there is to do? */
static bool check_processes(Program *p) {
    const char *script = p->script < p->argc ? p->argv[p->script] : NULL;
    if (!p->processes || p->command) return true;
    int flag = 1;
    while (!p->is_ours[flag]) flag++;
    if (p->starts != STARTS_RUN) return bad_flag(p, flag, "this verb runs in one process");
    if (p->interactive || (script ? strcmp(script, "-") == 0 : !p->ran))
        return bad_flag(p, flag, "the processes need a script that all can read, or a verb");
    return true;
}

/* Sorts the arguments; -e, -l and -W are run later, in their order. */
static bool read_flags(Program *p) {
    p->script = p->argc;
    for (int i = 1; i < p->argc; i++) {
        const char *s = p->argv[i];
        if (s[0] != '-' || s[1] == '\0') {
            p->script = i;
            break;
        }
        if (s[1] == '-' && s[2] == '\0') {
            p->script = i + 1;
            break;
        }
        if (s[1] == '-') {
            if (!long_flag(p, i)) return false;
            continue;
        }
        if (s[1] == 'e' || s[1] == 'l') {
            int flag = i;
            p->ran = p->ran || s[1] == 'e';
            if (!argument_of(p, &i)) return bad_flag(p, flag, "needs an argument");
            continue;
        }
        if (s[2] != '\0') return bad_flag(p, i, "unknown");
        switch (s[1]) {
        case 'E': p->no_env = true; break;
        case 'W': break;
        case 'i': p->interactive = true; break;
        case 'v': p->version = true; break;
        default: return bad_flag(p, i, "unknown");
        }
    }
    return true;
}

/* ---- verbs ---- */

/* May it be a verb? What has a dot, a slash or a dash in it, or stands behind "--", is a script. */
static bool is_word(const Program *p) {
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
    const char *s = p->script < p->argc ? p->argv[p->script] : "";
    return *s && !s[strspn(s, letters)] && strcmp(p->argv[p->script - 1], "--") != 0;
}

/* Asks the rows of verbs.lua what a word in a script's place starts. One that is neither verb nor
 * file is left to cli.lua, which says so. */
static void take_word(lua_State *L, Program *p) {
    const char *word = p->argv[p->script], *starts;
    core_preload(L);
    lua_getglobal(L, "require");
    lua_pushliteral(L, "meshlua.program.verbs");
    lua_call(L, 1, 1);
    lua_getfield(L, -1, "starts");
    lua_pushstring(L, word);
    lua_pushstring(L, p->script + 1 < p->argc ? p->argv[p->script + 1] : NULL);
    lua_call(L, 2, 1);
    starts = lua_tostring(L, -1);
    p->verb = starts || access(word, F_OK) != 0;
    if (!p->verb) return;
    p->starts = !starts || strcmp(starts, "none") == 0 ? STARTS_NONE
                : strcmp(starts, "devices") == 0       ? STARTS_DEVICES
                                                       : STARTS_RUN;
    lua_pop(L, 2);
}

/* Takes the i-th argument where it is a flag of the program behind a verb that starts something;
 * the verb does not see it. */
static bool is_taken(Program *p, int i) {
    const char *s = p->argv[i];
    bool flag = p->starts != STARTS_NONE && s[0] == '-' && s[1] == '-';
    return flag && valued_flag(p, i) == TAKEN_YES;
}

static void read_verb_flags(Program *p) {
    for (int i = p->script + 1; i < p->argc && !p->wrong; i++) is_taken(p, i);
    if (p->starts != STARTS_RUN && (p->ran || p->interactive))
        bad_flag(p, p->script, "-e and -i are for scripts");
}

/* ---- running ---- */

/* Was it that all processes agreed to stop? "train.lua:30: stopped by SIGUSR1" is said, then. */
static bool is_stop(lua_State *L, const char *text) {
    static const char code[] = "[E_STOP] ";
    const char *at = text ? strstr(text, code) : NULL;
    if (!at || !state_of(L)->rt.stop_agreed) return false;
    const char *rest = at + strlen(code);
    log_note(&state_of(L)->cx, "%.*s%.*s", (int)(at - text), text, (int)strcspn(rest, "\n"), rest);
    return true;
}

/* Prints the error on top of the stack and pops it; where there are other processes it ends them,
 * and rank 0 prints it. */
static void report(lua_State *L, const Program *p) {
    chunk_format(L);
    if (!p->interrupted) core_abort(L, p->exit_code, lua_tostring(L, -1));
    fflush(stdout);
    fprintf(stderr, "%s\n", lua_tostring(L, -1));
    lua_pop(L, 1);
}

/* Files that cannot be read or written, processes and GPUs that are not there: no error of the
 * script's. */
static bool is_around(const char *text) {
    return strstr(text, "[E_IO]") || strstr(text, "[E_RANKS]") || strstr(text, "[E_DEVICE]");
}

/* Takes the result of a load or a call: an error is printed and becomes the exit code. */
static bool finish(lua_State *L, Program *p, int status, int exit_code) {
    if (status == LUA_OK) return true;
    const char *text = lua_tostring(L, -1);
    if (is_stop(L, text)) {
        p->exit_code = state_of(L)->rt.stop_asked == SIGINT ? EXIT_INTERRUPTED : EXIT_STOPPED;
        return false;
    }
    p->interrupted = text && strstr(text, "[E_INTERRUPT]");
    bool around = text && is_around(text);
    p->exit_code = around && exit_code == EXIT_SCRIPT ? EXIT_ENVIRONMENT : exit_code;
    report(L, p);
    return false;
}

static bool run_text(lua_State *L, Program *p, const char *text, const char *chunk) {
    int status = luaL_loadbuffer(L, text, strlen(text), chunk);
    if (status == LUA_OK) status = chunk_call(L, 0, 0);
    return finish(L, p, status, EXIT_SCRIPT);
}

static bool run_file(lua_State *L, Program *p, const char *file, int nargs) {
    int status = luaL_loadfile(L, file);
    int failed = status == LUA_ERRFILE ? EXIT_USAGE : EXIT_SCRIPT;
    if (status == LUA_OK) {
        lua_insert(L, -nargs - 1);
        status = chunk_call(L, nargs, 0);
    }
    return finish(L, p, status, failed);
}

/* arg: the script is 0, its arguments follow, what stands before it is negative. */
static void set_arg(lua_State *L, const Program *p) {
    int script = p->script < p->argc ? p->script : 0;
    lua_createtable(L, p->argc - script, script + 1);
    for (int i = 0; i < p->argc; i++) {
        lua_pushstring(L, p->argv[i]);
        lua_rawseti(L, -2, i - script);
    }
    lua_setglobal(L, "arg");
}

/* Adds folder/?.lua and folder/?/init.lua; the folder is the first n bytes of `path`. */
static void add_folder(luaL_Buffer *b, const char *path, size_t n) {
    static const char *const patterns[] = {"?.lua;", "?/init.lua;"};
    for (int i = 0; i < 2; i++) {
        luaL_addlstring(b, path, n);
        luaL_addstring(b, patterns[i]);
    }
}

/* In front of package.path: the script's folder, ./lua, MESHLUA_PATH. */
static void set_path(lua_State *L, const Program *p) {
    const char *script = p->script < p->argc ? p->argv[p->script] : "-";
    const char *more = p->no_env ? NULL : env_get(ENV_PATH);
    lua_getglobal(L, "package");
    lua_getfield(L, -1, "path");
    const char *standard = lua_tostring(L, -1);
    luaL_Buffer b;
    luaL_buffinit(L, &b);
    if (strcmp(script, "-") != 0) {
        const char *slash = strrchr(script, '/');
        add_folder(&b, slash ? script : "./", slash ? (size_t)(slash - script) + 1 : 2);
    }
    add_folder(&b, "./lua/", 6);
    const char *gap = more ? strstr(more, ";;") : NULL;
    if (more) {
        luaL_addlstring(&b, more, gap ? (size_t)(gap - more) : strlen(more));
        luaL_addchar(&b, ';');
    }
    luaL_addstring(&b, standard ? standard : "");
    if (gap && gap[2]) luaL_addstring(&b, gap + 1);
    luaL_pushresult(&b);
    lua_setfield(L, -3, "path");
    lua_pop(L, 2);
}

static bool run_init(lua_State *L, Program *p) {
    if (p->no_env) return true;
    const char *name = "=LUA_INIT_5_4", *text = env_get(ENV_LUA_INIT_5_4);
    if (!text) name = "=LUA_INIT", text = env_get(ENV_LUA_INIT);
    if (!text) return true;
    if (text[0] == '@') return run_file(L, p, text + 1, 0);
    return run_text(L, p, text, name);
}

/* -l name, -l global=name */
static bool run_library(lua_State *L, Program *p, const char *text) {
    const char *equals = strchr(text, '=');
    lua_getglobal(L, "require");
    lua_pushstring(L, equals ? equals + 1 : text);
    int status = chunk_call(L, 1, 1);
    if (status == LUA_OK) {
        lua_pushlstring(L, text, equals ? (size_t)(equals - text) : strlen(text));
        lua_insert(L, -2);
        lua_setglobal(L, lua_tostring(L, -2));
        lua_pop(L, 1);
    }
    return finish(L, p, status, EXIT_SCRIPT);
}

/* -e, -l and -W, in their order. */
static bool run_flags(lua_State *L, Program *p) {
    for (int i = 1; i < p->script; i++) {
        char flag = p->argv[i][1];
        if (flag == 'W') lua_warning(L, "@on", 0);
        if (flag != 'e' && flag != 'l') continue;
        const char *text = p->argv[i] + 2;
        if (*text == '\0') text = p->argv[++i];
        if (!(flag == 'e' ? run_text(L, p, text, "=(command line)") : run_library(L, p, text)))
            return false;
    }
    return true;
}

static bool run_script(lua_State *L, Program *p) {
    const char *file = p->argv[p->script];
    if (strcmp(file, "-") == 0 && strcmp(p->argv[p->script - 1], "--") != 0) file = NULL;
    int nargs = p->argc - p->script - 1;
    luaL_checkstack(L, nargs + 3, "too many arguments to script");
    for (int i = 1; i <= nargs; i++) lua_pushstring(L, p->argv[p->script + i]);
    return run_file(L, p, file, nargs);
}

/* Does what the verb says; its exit code. */
static bool run_verb(lua_State *L, Program *p) {
    lua_getglobal(L, "require");
    lua_pushliteral(L, "meshlua.program.cli");
    int status = lua_pcall(L, 1, 1, 0), n = 0;
    if (status == LUA_OK) {
        lua_getfield(L, -1, "verb");
        lua_pushstring(L, p->argv[p->script]);
        lua_newtable(L);
        for (int i = p->script + 1; i < p->argc; i++) {
            if (is_taken(p, i)) continue;
            lua_pushstring(L, p->argv[i]);
            lua_rawseti(L, -2, ++n);
        }
        status = chunk_call(L, 2, 1);
    }
    if (status == LUA_OK) p->exit_code = (int)lua_tointeger(L, -1);
    return finish(L, p, status, EXIT_SCRIPT) && p->exit_code == EXIT_OK;
}

/* A function of the library's part of the program, with two texts (or NULL). */
static bool run_module(lua_State *L, Program *p, const char *module, const char *name,
                       const char *first, const char *second) {
    lua_getglobal(L, "require");
    lua_pushstring(L, module);
    int status = lua_pcall(L, 1, 1, 0);
    if (status == LUA_OK) {
        lua_getfield(L, -1, name);
        lua_pushstring(L, first);
        lua_pushstring(L, second);
        status = lua_pcall(L, 2, 0, 0);
    }
    return finish(L, p, status, EXIT_SCRIPT);
}

/* ---- start ---- */

static int open_program(lua_State *L) {
    lua_newtable(L);
    chunk_open(L);
    terminal_open(L);
    probe_open(L);
    lua_pushliteral(L, MESHLUA_VERSION);
    lua_setfield(L, -2, "version");
    lua_pushliteral(L, LUA_RELEASE);
    lua_setfield(L, -2, "lua");
    return 1;
}

/* What all processes must have in common: the texts of -e and -l, and of the script. */
static uint64_t hash_script(const void *program) {
    const Program *p = program;
    int script = p->script + p->verb; /* of train: the recipe */
    const char *file = script < p->argc ? p->argv[script] : NULL;
    char piece[1 << 13];
    struct stat s;
    uint64_t h = 0;
    for (int i = 1; i < p->script; i++) {
        const char *text = p->argv[i];
        if (text[0] != '-' || text[1] == 'e' || text[1] == 'l') h = hash_str(h, text);
    }
    /* what can be read once only is left for who runs it */
    FILE *f = file && stat(file, &s) == 0 && S_ISREG(s.st_mode) ? fopen(file, "rb") : NULL;
    for (size_t n; f && (n = fread(piece, 1, sizeof piece, f)) > 0;) h = hash_bytes(h, piece, n);
    if (f) fclose(f);
    return h;
}

static int prepare(lua_State *L) {
    const Program *p = lua_touserdata(L, 1);
    bool runs = !p->wrong && !p->command && p->starts == STARTS_RUN;
    bool plain = p->wrong || p->starts == STARTS_NONE;
    core_prepare(L, plain ? "1" : p->devices, runs ? &p->ranks : NULL);
    if (runs) {
        exit_open(L);
        interrupt_open(L);
        output_begin(L, &state_of(L)->rt.ranks);
        JoinFlags join = {.timeout = p->timeout,
                          .secret = p->secret,
                          .hash = hash_script,
                          .program = p,
                          .name = p->script < p->argc ? p->argv[p->script] : "-e"};
        state_connect(L, &join);
    }
    if (p->version) printf("meshlua %s  %s\n", MESHLUA_VERSION, LUA_RELEASE);
    if (p->dump && !p->wrong) state_check(L, state_of(L), lib_debug_set_dump(state_of(L), p->dump));
    if (p->profile && !p->wrong)
        state_check(L, state_of(L), profile_start(&state_of(L)->rt, p->profile));
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_PRELOAD_TABLE);
    lua_pushcfunction(L, luaopen_meshlua);
    lua_setfield(L, -2, "meshlua");
    lua_pushcfunction(L, open_program);
    lua_setfield(L, -2, "meshlua.program");
    return 0;
}

static bool open_host(lua_State *L, Program *p) {
    lua_pushcfunction(L, prepare);
    lua_pushlightuserdata(L, p);
    int status = lua_pcall(L, 1, 0, 0);
    const char *text = status == LUA_OK ? "" : lua_tostring(L, -1);
    bool ours = !is_around(text) && !strstr(text, "[E_NOMEM]") && status != LUA_ERRMEM;
    return finish(L, p, status, ours ? EXIT_USAGE : EXIT_ENVIRONMENT);
}

/* The flags' code, the script, the REPL. */
static void run_chunks(lua_State *L, Program *p) {
    bool script = p->script < p->argc;
    set_arg(L, p);
    set_path(L, p);
    if (!run_init(L, p) || !run_flags(L, p)) return;
    if (script && !(p->verb ? run_verb(L, p) : run_script(L, p))) return;
    bool idle = !script && !p->ran && !p->version;
    if (p->interactive || (idle && isatty(STDIN_FILENO)))
        run_module(L, p, "meshlua.repl", "run", NULL, NULL);
    else if (idle)
        run_file(L, p, NULL, 0);
}

static void run(lua_State *L, Program *p) {
    if (p->processes && !p->wrong && !p->command) {
        p->exit_code =
            processes_run(&(ProcessesOptions){p->processes, p->argc, p->argv, p->is_ours});
        return;
    }
    if (!open_host(L, p)) return;
    if (p->wrong) {
        run_module(L, p, "meshlua.program.cli", "bad_flag", p->wrong_flag, p->wrong);
        p->exit_code = EXIT_USAGE;
        return;
    }
    if (p->command) {
        run_module(L, p, "meshlua.program.cli", p->command, NULL, NULL);
        return;
    }
    if (p->starts != STARTS_RUN) {
        run_verb(L, p);
        return;
    }
    run_chunks(L, p);
    /* a script that failed before anything ran leaves the file as it was */
    if (p->exit_code == EXIT_OK || profile_has_run(&state_of(L)->rt))
        if (p->profile) run_module(L, p, "meshlua.profile", "finish", NULL, NULL);
}

static int protected_main(lua_State *L) {
    Program *p = lua_touserdata(L, 1);
    p->is_ours = lua_newuserdatauv(L, (size_t)p->argc * sizeof(bool), 0);
    memset(p->is_ours, 0, (size_t)p->argc * sizeof(bool));
    read_flags(p);
    if (p->no_env) {
        lua_pushboolean(L, 1);
        lua_setfield(L, LUA_REGISTRYINDEX, "LUA_NOENV");
    }
    luaL_openlibs(L);
    if (!p->wrong && !p->command && is_word(p)) take_word(L, p);
    if (!p->wrong && p->verb) read_verb_flags(p);
    if (!p->wrong) check_processes(p);
    if (p->wrong) p->version = false;
    run(L, p);
    return 0;
}

/* Tracing and planning take and free some megabytes again and again: freed memory is kept for the
 * next time, where handing it back and faulting it in again would cost a fifth of a plan's time.
 * Large tensors go back at once. */
static void prepare_memory(void) {
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
    mallopt(M_TOP_PAD, 1 << 20);
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
}

int main(int argc, char **argv) {
    Program p = {.argc = argc, .argv = argv};
    Heap heap;
    output_hold_places();
    prepare_memory();
    blas_prepare_environment();
    lua_State *L = heap_new_state(&heap);
    if (!L) {
        fprintf(stderr, "meshlua: out of memory\n");
        return EXIT_ENVIRONMENT;
    }
    lua_pushcfunction(L, protected_main);
    lua_pushlightuserdata(L, &p);
    if (lua_pcall(L, 1, 0, 0) != LUA_OK) {
        p.exit_code = EXIT_SCRIPT;
        report(L, &p);
    }
    p.exit_code = exit_code(L, p.exit_code);
    bool failed = p.exit_code != EXIT_OK && p.exit_code != EXIT_STOPPED;
    if (failed && !p.interrupted) core_abort(L, p.exit_code, NULL);
    lua_close(L);
    if (p.interrupted) { /* so that a shell's loop stops, too; it sees 130 */
        signal(SIGINT, SIG_DFL);
        raise(SIGINT);
    }
    return p.exit_code;
}
