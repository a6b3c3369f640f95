#include "run/profile/profile.h"
#include "base/file.h"

#include <errno.h>
#include <string.h>

static void free_profile(Profile *p) {
    Ctx *cx = p->cx;
    for (int32_t i = 0; i < p->plan.n; i++) exec_release(p->plan.at[i]->e);
    if (p->file) fclose(p->file);
    arena_free(&p->arena);
    alloc_free(&cx->alloc, p, sizeof *p);
}

static char *own_path(Profile *p, const Ranks *r, const char *path) {
    Str s;
    str_init(&s, &p->cx->alloc);
    ranks_print_file(r, path, &s);
    char *own = s.failed ? NULL : arena_strdup(&p->arena, str_of(&s));
    str_free(&s);
    return own;
}

Err profile_start(Runtime *rt, const char *path) {
    Ctx *cx = rt->cx;
    if (rt->profile)
        return err_set(cx, E_STATE,
                       "profile: %s is being recorded already; ml.profile.stop() ends that",
                       rt->profile->path);
    Profile *p = alloc_new(&cx->alloc, sizeof *p);
    if (!p) return err_nomem(cx, "a profile");
    p->cx = cx;
    arena_init(&p->arena, &cx->alloc);
    p->path = own_path(p, &rt->ranks, path);
    Err err = p->path && record_init_ring(p, &p->host) ? E_OK : err_nomem(cx, "a profile");
    if (!err && !(p->file = file_open_kept(p->path)))
        err = err_set(cx, E_IO, "profile: cannot write %s: %s", path, strerror(errno));
    if (err) {
        free_profile(p);
        return err;
    }
    p->start = profile_clock();
    rt->profile = p;
    return E_OK;
}

void profile_drop(Runtime *rt) {
    if (rt->profile) free_profile(rt->profile);
    rt->profile = NULL;
}

Err profile_stop(Runtime *rt) {
    Err err = rt->profile ? profile_write(rt->profile) : E_OK;
    profile_drop(rt);
    return err;
}
