/* Broken invariants and who hears of them: the innermost guard, the one around it for what breaks
 * while that one speaks, and nobody: then the process says so and aborts. */
#include "base/ctx.h"
#include "base/guard.h"
#include "test.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static Ctx cx;
static int heard;

static Err breaks(void *ud) {
    ASSERT(!ud, "%s is broken", (const char *)ud);
    return E_OK;
}

static Err fails(void *ud) {
    return err_set(&cx, E_VALUE, "%s", (const char *)ud);
}

static void hears(void *ud) {
    heard++;
    guard_keep(&cx, (const char *)ud, "what was kept\n");
}

static void breaks_again(void *ud) {
    heard++;
    breaks(ud);
}

static Err runs_inner(void *ud) {
    return guard_run(&cx, breaks, breaks_again, ud);
}

static void test_guards(void) {
    CHECK(guard_run(&cx, breaks, hears, NULL) == E_OK && heard == 0);
    CHECK(guard_run(&cx, fails, hears, "no") == E_VALUE && strcmp(cx.err.text, "no") == 0);
    CHECK(guard_run(&cx, breaks, NULL, "it") == E_INTERNAL && heard == 0);
    CHECKF(strstr(cx.err.text, "broken invariant at ") && strstr(cx.err.text, ": it is broken"),
           "%s", cx.err.text);
    CHECK(guard_run(&cx, runs_inner, hears, "it") == E_INTERNAL && heard == 2);
    CHECK(cx.alloc.guard == NULL);
}

/* The error in flight says where the text is, or that it could not be written. */
static void test_kept(void) {
    char path[512], text[64] = "";
    setenv("TMPDIR", "/tmp", 1);
    CHECK(guard_run(&cx, breaks, hears, "a text") == E_INTERNAL);
    const char *at = strstr(cx.err.text, "; a text is in ");
    CHECKF(at && sscanf(at, "; a text is in %500s", path) == 1, "%s", cx.err.text);
    FILE *f = at ? fopen(path, "r") : NULL;
    CHECK(f && fgets(text, sizeof text, f) && strcmp(text, "what was kept\n") == 0);
    if (f) fclose(f);
    unlink(path);
    setenv("TMPDIR", "/proc/nowhere", 1);
    CHECK(guard_run(&cx, breaks, hears, "a text") == E_INTERNAL);
    CHECKF(strstr(cx.err.text, "; a text could not be written to /proc/nowhere/"), "%s",
           cx.err.text);
}

static void on_abort(int signal) {
    exit(signal == SIGABRT ? 6 : 1);
}

/* A process in which something breaks that nobody guards; its words and its exit status. */
static int run_unguarded(void (*work)(void), char *said, size_t size) {
    int pipes[2], status;
    CHECK(pipe(pipes) == 0);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGABRT, on_abort);
        dup2(pipes[1], STDERR_FILENO);
        work();
        _exit(0);
    }
    close(pipes[1]);
    FILE *f = fdopen(pipes[0], "r");
    said[fread(said, 1, size - 1, f)] = '\0';
    fclose(f);
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void break_alone(void) {
    breaks("it");
}
static void break_again(void) {
    CHECK(guard_run(&cx, breaks, breaks_again, "it") == E_OK); /* does not come back */
}
static void break_open(void) { /* a guard that nothing comes back to */
    Guard g;
    guard_enter(&g, &cx, NULL, NULL);
    breaks("it");
}

static void test_unguarded(void) {
    static void (*const work[])(void) = {break_alone, break_again, break_open};
    char said[1024];
    for (size_t i = 0; i < sizeof work / sizeof *work; i++) {
        CHECK(run_unguarded(work[i], said, sizeof said) == 6);
        CHECKF(strncmp(said, "meshlua: broken invariant at ", 29) == 0 &&
                   strstr(said, ": it is broken\n"),
               "%d: %s", (int)i, said);
    }
}

int main(void) {
    ctx_init(&cx);
    test_guards();
    test_kept();
    test_unguarded();
    return test_end();
}
