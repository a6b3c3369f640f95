/* str, err and env: texts that people read. */
#include "base/ctx.h"
#include "base/env.h"
#include "base/plain.h"
#include "base/str.h"
#include "test.h"

#include <math.h>
#include <string.h>

static void test_put(void) {
    Alloc a = {.fail_in = -1};
    Str s;
    str_init(&s, &a);
    CHECK(strcmp(str_of(&s), "") == 0);
    for (int i = 0; i < 1000; i++) str_fmt(&s, "%d,", i);
    CHECK(s.n == 3890 && strncmp(str_of(&s), "0,1,2,", 6) == 0);
    CHECK(strcmp(str_of(&s) + s.n - 4, "999,") == 0);
    str_clear(&s);
    str_put(&s, "a");
    str_put_n(&s, "bcd", 2);
    CHECK(strcmp(str_of(&s), "abc") == 0);
    str_clear(&s);
    str_int(&s, INT64_MIN);
    str_int(&s, 0);
    str_int(&s, 1234567890123456789);
    CHECK(strcmp(str_of(&s), "-922337203685477580801234567890123456789") == 0);
    str_free(&s);
    str_free(&s);
    CHECK(a.live == 0);
    a.fail_in = 0;
    str_put(&s, "lost");
    str_put(&s, "and what follows, too");
    CHECK(s.failed && strcmp(str_of(&s), "") == 0);
    str_free(&s);
    CHECK(a.live == 0);
}

static const char *double_text(Str *s, double x) {
    str_clear(s);
    str_double(s, x);
    return str_of(s);
}

static void test_double(void) {
    static const struct {
        double x;
        const char *text;
    } rows[] = {{0, "0.0"},        {1, "1.0"},      {-2.5, "-2.5"},     {0.1, "0.1"},
                {1e300, "1e+300"}, {1e-5, "1e-05"}, {1.0 / 3, NULL},    {0.1 + 0.2, NULL},
                {INFINITY, "inf"}, {NAN, "nan"},    {-INFINITY, "-inf"}};
    Alloc a = {.fail_in = -1};
    Str s;
    str_init(&s, &a);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const char *text = double_text(&s, rows[i].x);
        if (rows[i].text) CHECKF(strcmp(text, rows[i].text) == 0, "%s", text);
        if (!isnan(rows[i].x)) CHECK(strtod(text, NULL) == rows[i].x);
    }
    str_free(&s);
}

static void test_bytes(void) {
    char buf[BYTES_TEXT];
    CHECK(strcmp(str_bytes(0, buf), "0 B") == 0);
    CHECK(strcmp(str_bytes(1023, buf), "1023 B") == 0);
    CHECK(strcmp(str_bytes(1536, buf), "1.50 KiB") == 0);
    CHECK(strcmp(str_bytes(3.0 * (1 << 30), buf), "3.00 GiB") == 0);
}

static Err fails(Ctx *cx, int n) {
    if (n < 3) return err_set(cx, E_SHAPE, "inner dims %d and %d differ", n, 3);
    return E_OK;
}
static Err passes_on(Ctx *cx, int n) {
    TRY(fails(cx, n));
    return E_OK;
}

static void test_err(void) {
    Ctx cx;
    ctx_init(&cx);
    CHECK(passes_on(&cx, 3) == E_OK);
    CHECK(passes_on(&cx, 2) == E_SHAPE);
    CHECK(strcmp(cx.err.text, "inner dims 2 and 3 differ") == 0);
    CHECK(err_add(&cx, " (%s)", "x") == E_SHAPE);
    CHECK(strcmp(cx.err.text, "inner dims 2 and 3 differ (x)") == 0);
    CHECK(err_nomem(&cx, "a test") == E_NOMEM);
    static char longer[2 * ERR_TEXT];
    memset(longer, 'x', sizeof longer - 1);
    (void)err_set(&cx, E_IO, "%s", longer);
    CHECK(strlen(cx.err.text) == ERR_TEXT - 1);
    CHECK(err_add(&cx, "more") == E_IO && strlen(cx.err.text) == ERR_TEXT - 1);
    err_clear(&cx);
    CHECK(cx.err.code == E_OK && cx.err.text[0] == '\0');
    for (int code = 0; code < E_COUNT; code++) CHECK(strncmp(err_name(code), "E_", 2) == 0);
}

static void test_env(void) {
    static const char upper[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    setenv("MESHLUA_THREADS", "12", 1);
    CHECK(env_int(ENV_THREADS, 3) == 12);
    setenv("MESHLUA_THREADS", "twelve", 1);
    CHECK(env_int(ENV_THREADS, 3) == 3);
    setenv("MESHLUA_THREADS", "", 1);
    CHECK(env_int(ENV_THREADS, 3) == 3 && !env_get(ENV_THREADS));
    for (int v = 0; v < ENV_COUNT; v++) {
        const EnvRow *r = env_row((EnvVar)v);
        CHECK(r->name && r->value && r->doc);
        CHECK(r->kind == ENV_WHOLE ? r->least <= r->most : r->least == 0 && r->most == 0);
        CHECK((r->kind == ENV_WORDS || r->kind == ENV_WORD_LIST) ==
              (strstr(r->value, " | ") && !strpbrk(r->value, upper)));
    }
    /* what its row does not allow is not taken */
    static const char *const wrong[] = {"0",  "1025", "-1",   "+1",  " 1",
                                        "1 ", "1e1",  "0x10", "1.0", "99999999999999999999"};
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        setenv("MESHLUA_THREADS", wrong[i], 1);
        CHECK(env_int(ENV_THREADS, 3) == 3);
    }
    unsetenv("MESHLUA_THREADS");
}

static void test_distance(void) {
    CHECK(str_distance("", "") == 0);
    CHECK(str_distance("model", "model") == 0);
    CHECK(str_distance("modle", "model") == 2);
    CHECK(str_distance("kitten", "sitting") == 3);
    CHECK(str_distance("", "data") == 4 && str_distance("data", "") == 4);
}

/* A thread's own locale is put aside, and is there again. */
static void test_locale(void) {
    locale_t mine = newlocale(LC_ALL_MASK, "C.UTF-8", (locale_t)0);
    if (!mine) mine = newlocale(LC_ALL_MASK, "POSIX", (locale_t)0);
    locale_t first = uselocale(mine), before = plain_enter();
    CHECK(before == mine && uselocale((locale_t)0) != mine);
    plain_leave(before);
    CHECK(uselocale((locale_t)0) == mine);
    char text[16];
    CHECK(plain_format(text, sizeof text, "%.1f", 0.5) == 3 && strcmp(text, "0.5") == 0);
    CHECK(plain_read("2.5x", NULL) == 2.5 && uselocale((locale_t)0) == mine);
    uselocale(first);
    freelocale(mine);
}

int main(void) {
    test_locale();
    test_distance();
    test_put();
    test_double();
    test_bytes();
    test_err();
    test_env();
    return test_end();
}
