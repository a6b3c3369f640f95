#include "run/comm/transport.h"
#include "base/env.h"
#include "base/log.h"
#include "run/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "meshlua_mpi.so"

/* Seconds: that processes without a launcher of MPI wait for each other, and for rank 0 to end
 * them; that the main thread waits longer than the channel's, which is the one to say who is
 * missing. */
enum { NO_LAUNCHER = 10, NO_LAUNCHER_ANSWER = 3, JOIN_SPARE = 60, MISSING_TEXT = 1024 };

const char *transport_missing(void) {
    return library_open(LIBRARY) ? NULL : dlerror();
}

static Err not_there(Ctx *cx, const Ranks *r, const char *why) {
    return err_set(cx, E_RANKS,
                   "%d processes (%s), and nothing to carry data between them: %s; build meshlua "
                   "where OpenMPI is (Debian: libopenmpi-dev), or start one process, with "
                   "--devices=N for N devices",
                   (int)r->world, r->name, why);
}

static Err check_world(Ctx *cx, const Ranks *r, const Comm *c) {
    if (c->rank == r->rank && c->world == r->world) return E_OK;
    return err_set(cx, E_RANKS,
                   "%s says rank %d of %d, but MPI says rank %d of %d; start the processes with "
                   "one launcher: mpirun -np %d meshlua SCRIPT",
                   r->name, (int)r->rank, (int)r->world, (int)c->rank, (int)c->world,
                   (int)r->world);
}

static Err open_transport(Ctx *cx, const Ranks *r, Transport *transport) {
    char error[HOST_TEXT] = "";
    transport->library = library_open(LIBRARY);
    if (!transport->library) return not_there(cx, r, dlerror());
    CommOpen *open = (CommOpen *)(uintptr_t)dlsym(transport->library, COMM_OPEN);
    if (!open) return not_there(cx, r, LIBRARY " is another library");
    if (!open(&transport->comm, error, sizeof error)) {
        transport->comm.version = 0;
        return not_there(cx, r, error);
    }
    if (transport->comm.version != COMM_VERSION)
        return not_there(cx, r, LIBRARY " is of another version of meshlua");
    return check_world(cx, r, &transport->comm);
}

/* ---- the channel ---- */

static Err read_options(Ctx *cx, const JoinFlags *join, ChannelOptions *o) {
    const char *text = join->timeout ? join->timeout : env_get(ENV_TIMEOUT);
    char *end = "";
    long seconds = text ? strtol(text, &end, 10) : CHANNEL_TIMEOUT;
    if (*end || seconds < 1 || seconds > ENV_MOST_SECONDS)
        return err_set(cx, E_VALUE, "%s=%s: expected a number of seconds, from 1",
                       join->timeout ? "--timeout" : env_row(ENV_TIMEOUT)->name, text);
    *o = (ChannelOptions){.timeout = (int32_t)seconds,
                          .name = join->name ? join->name : "",
                          .version = MESHLUA_VERSION};
    return E_OK;
}

static bool is_tcp(const Rendezvous *m) {
    return m->hosts[0] && m->hosts[0] != '@';
}

/* What the processes know each other by. Over TCP it must come from outside: the others meet on a
 * socket that tells the user, or get one of rank 0's through MPI. */
static Err find_secret(Ctx *cx, const Ranks *r, const JoinFlags *join, ChannelOptions *o) {
    char place[RENDEZVOUS_HOSTS];
    if (join->secret && strcmp(join->secret, "require") != 0)
        return err_set(cx, E_VALUE,
                       "--secret=: expected `require`; the secret itself goes into %s, as all can "
                       "read a command line",
                       env_row(ENV_SECRET)->name);
    TRY(secret_open(cx, &o->secret));
    if (o->secret.given || !is_tcp(&o->meet)) return E_OK;
    rendezvous_text(&o->meet, place, sizeof place);
    if (join->secret)
        return err_set(cx, E_RANKS,
                       "the processes would meet at %s without a secret (--secret=require); give "
                       "all of them the same %s, such as @FILE",
                       place, env_row(ENV_SECRET)->name);
    if (r->rank == 0)
        log_line(cx, LOG_WARN,
                 "whoever reaches %s can pass for a process of this job: there is no secret (%s, "
                 "the same for all processes)",
                 place, env_row(ENV_SECRET)->name);
    return E_OK;
}

/* Where rank 0 waits, for those who could not know it, and the secret. */
static Err tell_meet(Ctx *cx, const Transport *transport, Rendezvous *meet) {
    const Comm *c = &transport->comm;
    size_t size = sizeof(CommPart) * (size_t)c->world;
    CommPart *to = alloc_new(&cx->alloc, size), from = {0, (char *)meet, sizeof *meet, 0};
    if (!to) return err_nomem(cx, "meeting other processes");
    for (int32_t i = 1; i < c->world; i++) to[i - 1] = (CommPart){i, (char *)meet, sizeof *meet, 0};
    void *request = c->rank == 0 ? c->start(c->self, to, c->world - 1, NULL, 0)
                                 : c->start(c->self, NULL, 0, &from, 1);
    bool done = request && c->wait(c->self, request);
    alloc_free(&cx->alloc, to, size);
    return done ? E_OK : err_set(cx, E_RANKS, "meeting other processes: %s", c->error(c->self));
}

/* Where no launcher of MPI started them: rank 0 says so, and who did not even start. */
static Err cannot_exchange(Ctx *cx, const Ranks *r, const ChannelOptions *o, Channel **channel) {
    char missing[MISSING_TEXT] = "";
    if (o->meet.hosts[0]) {
        int32_t most = o->timeout < NO_LAUNCHER ? o->timeout : NO_LAUNCHER;
        TRY(channel_open(cx, r, o, channel));
        Err err = channel_join(cx, *channel, r->rank == 0 ? most : most + NO_LAUNCHER_ANSWER);
        if (err) snprintf(missing, sizeof missing, "; %.*s", MISSING_TEXT - 3, cx->err.text);
        Str none;
        str_init(&none, &cx->alloc);
        if (!err && r->rank > 0) err = channel_share(cx, *channel, "", NO_LAUNCHER_ANSWER, &none);
        str_free(&none);
    }
    return err_set(
        cx, E_RANKS,
        "%d processes (%s), but no launcher of MPI started them, so they cannot "
        "exchange data; start them with mpirun -np %d meshlua SCRIPT, or srun --mpi=pmix%s",
        (int)r->world, r->name, (int)r->world, missing);
}

Err transport_open(Ctx *cx, const Ranks *r, const JoinFlags *join, Transport *transport) {
    static const ExchangeInfo start = {.op = "the start of MPI", .where = "", .axes = ""};
    ChannelOptions o;
    *transport = (Transport){.library = NULL};
    TRY(read_options(cx, join, &o));
    if (r->world == 1) return E_OK;
    rendezvous_find(r, &o.meet);
    TRY(find_secret(cx, r, join, &o));
    o.script = join->hash ? join->hash(join->program) : 0;
    if (!r->mpi) return cannot_exchange(cx, r, &o, &transport->channel);
    if (o.meet.hosts[0]) {
        TRY(channel_open(cx, r, &o, &transport->channel));
        /* Before MPI: a process that ends while MPI starts may leave mpirun waiting for ever. */
        TRY(channel_join(cx, transport->channel, o.timeout + JOIN_SPARE));
        flight_log_enter(channel_flight_log(transport->channel), &start);
        Err err = open_transport(cx, r, transport);
        flight_log_leave(channel_flight_log(transport->channel));
        return err;
    }
    TRY(open_transport(cx, r, transport));
    if (r->rank == 0) {
        if (!o.secret.given) secret_draw(&o.secret);
        TRY(channel_open(cx, r, &o, &transport->channel));
        o.meet = *channel_meet(transport->channel);
        memcpy(o.meet.key, o.secret.key, sizeof o.meet.key);
    }
    TRY(tell_meet(cx, transport, &o.meet));
    if (r->rank > 0) secret_take(&o.secret, o.meet.key);
    if (r->rank > 0) TRY(channel_open(cx, r, &o, &transport->channel));
    return channel_join(cx, transport->channel, o.timeout + JOIN_SPARE);
}

void transport_close(Ctx *cx, Transport *transport) {
    static const ExchangeInfo end = {
        .op = "the end of MPI", .where = "", .axes = "", .patient = true};
    Comm *c = &transport->comm;
    if (transport->channel) flight_log_enter(channel_flight_log(transport->channel), &end);
    if (transport->device.version) transport->device.close(transport->device.self);
    if (c->version) c->close(c->self);
    if (transport->channel) flight_log_leave(channel_flight_log(transport->channel));
    channel_close(cx, transport->channel);
    *transport = (Transport){.library = NULL}; /* the library stays: it may have threads */
}

void transport_fail(Transport *transport, int code, const char *text) {
    Comm *c = &transport->comm;
    if (transport->channel || c->version) fflush(NULL);
    if (transport->channel) channel_fail(transport->channel, code, text);
    if (!c->version) return;
    if (text) fprintf(stderr, "%s\n", text);
    c->abort(c->self, code);
}
