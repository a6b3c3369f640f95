/* test_store.c - the folder of what is kept between runs. */
#include "run/store.h"
#include "test.h"

#include <string.h>

static void put(const char *name, const char *value) {
    if (value)
        setenv(name, value, 1);
    else
        unsetenv(name);
}

/* NULL: not set. */
static void check(const char *own, const char *caches, const char *home, const char *want) {
    char path[64] = "";
    put("MESHLUA_CACHE", own);
    put("XDG_CACHE_HOME", caches);
    put("HOME", home);
    const char *got = store_folder(path, sizeof path);
    CHECKF(want ? got && strcmp(got, want) == 0 : !got, "%s, not %s", got ? got : "none",
           want ? want : "none");
}

int main(void) {
    check("here", "/caches", "/me", "here");
    check("off", "/caches", "/me", NULL);
    check(NULL, "/caches", "/me", "/caches/meshlua");
    check("", "", "/me", "/me/.cache/meshlua");
    check(NULL, "caches", "/me", "/me/.cache/meshlua"); /* XDG: what is relative is not valid */
    check(NULL, NULL, NULL, NULL);
    check("/a/folder/whose/name/is/longer/than/the/place/that/there/is/for/it", NULL, "/me", NULL);
    return test_end();
}
