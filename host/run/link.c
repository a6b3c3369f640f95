#include "run/link.h"
#include "base/str.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "meshlua_mpi.so"

/* Tries the library in a folder, given by a file in it. */
static void *open_beside(const char *file, const char *below) {
    char path[PATH_MAX];
    const char *slash = strrchr(file, '/');
    if (!slash) return NULL;
    int n = snprintf(path, sizeof path, "%.*s/%s" LIBRARY, (int)(slash - file), file, below);
    return n < (int)sizeof path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
}

/* Beside the program or the Lua module; where `install` puts it; where the loader looks. */
static void *open_library(void) {
    char program[PATH_MAX] = "";
    Dl_info here;
    ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    void *library = n > 0 ? open_beside(program, "") : NULL;
    if (!library && n > 0) library = open_beside(program, "../lib/meshlua/");
    if (!library && dladdr(LIBRARY, &here) && here.dli_fname)
        library = open_beside(here.dli_fname, "");
    return library ? library : dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
}

const char *link_missing(void) {
    return open_library() ? NULL : dlerror();
}

static Err not_there(Ctx *cx, const Ranks *r, const char *why) {
    return err_set(cx, E_RANKS,
                   "%d processes (%s), and nothing to carry data between them: %s; build meshlua "
                   "where OpenMPI is (Debian: libopenmpi-dev), or start one process, with "
                   "--devices=N for N devices",
                   (int)r->world, r->name, why);
}

static Err check_world(Ctx *cx, const Ranks *r, Link *link) {
    const Comm *c = &link->comm;
    if (c->rank == r->rank && c->world == r->world) return E_OK;
    Err err =
        err_set(cx, E_RANKS,
                "%s says rank %d of %d, but MPI says rank %d of %d; start the processes with "
                "one launcher: mpirun -np %d meshlua SCRIPT",
                r->name, (int)r->rank, (int)r->world, (int)c->rank, (int)c->world, (int)r->world);
    link_close(link, 0);
    return err;
}

Err link_open(Ctx *cx, const Ranks *r, Link *link) {
    char error[HOST_TEXT] = "";
    *link = (Link){.library = NULL};
    if (r->world == 1) return E_OK;
    if (!r->mpi)
        return err_set(cx, E_RANKS,
                       "%d processes (%s), but no launcher of MPI started them, so they cannot "
                       "exchange data; start them with mpirun -np %d meshlua SCRIPT, or srun",
                       (int)r->world, r->name, (int)r->world);
    link->library = open_library();
    if (!link->library) return not_there(cx, r, dlerror());
    CommOpen *open = (CommOpen *)(uintptr_t)dlsym(link->library, COMM_OPEN);
    if (!open) return not_there(cx, r, LIBRARY " is another library");
    if (!open(&link->comm, error, sizeof error)) {
        link->comm.version = 0;
        return not_there(cx, r, error);
    }
    if (link->comm.version != COMM_VERSION)
        return not_there(cx, r, LIBRARY " is of another version of meshlua");
    return check_world(cx, r, link);
}

static Err failed(Ctx *cx, const Link *link, const Transfer *t) {
    const Comm *c = &link->comm;
    return err_set(cx, E_RANKS, "%s with other processes: %s", t->what->op, c->error(c->self));
}

Err link_begin(Ctx *cx, Link *link, const Crossing *what, const CommPart *send, int32_t nsend,
               const CommPart *recv, int32_t nrecv, Transfer *out) {
    const Comm *c = &link->comm;
    *out = (Transfer){.what = what, .request = c->start(c->self, send, nsend, recv, nrecv)};
    return out->request ? E_OK : failed(cx, link, out);
}

Err link_end(Ctx *cx, Link *link, Transfer *t) {
    const Comm *c = &link->comm;
    void *request = t->request;
    if (!request) return E_OK;
    t->request = NULL;
    return c->wait(c->self, request) ? E_OK : failed(cx, link, t);
}

void link_close(Link *link, int code) {
    Comm *c = &link->comm;
    if (c->version) {
        if (code) c->abort(c->self, code);
        c->close(c->self);
    }
    *link = (Link){.library = NULL}; /* the library stays: it may have threads */
}
