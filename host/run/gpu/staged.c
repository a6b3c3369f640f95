#include "run/gpu/staged.h"

#include <stdlib.h>

typedef struct Staged {
    const Comm *host;
    Device *device;
    const char *error;
} Staged;

typedef struct StagedRequest {
    const CommPart *to; /* the caller's: where on the GPU it goes */
    int32_t n;
    void *request; /* of the host's memory */
    char *bytes;
    CommPart part[]; /* of these bytes: what comes, then what goes */
} StagedRequest;

static void drop(StagedRequest *r) {
    if (r) free(r->bytes);
    free(r);
}

static size_t sum(const CommPart *part, int32_t n) {
    size_t bytes = 0;
    for (int32_t i = 0; i < n; i++) bytes += part[i].bytes;
    return bytes;
}

/* Gives each part its place in the bytes; where the next begins. */
static char *place(const CommPart *part, int32_t n, CommPart *out, char *at) {
    for (int32_t i = 0; i < n; at += part[i++].bytes)
        out[i] = (CommPart){part[i].peer, at, part[i].bytes, 0};
    return at;
}

static StagedRequest *request_new(const CommPart *send, int32_t nsend, const CommPart *recv,
                                  int32_t nrecv) {
    StagedRequest *r = calloc(1, sizeof *r + sizeof *r->part * (size_t)(nsend + nrecv));
    if (!r) return NULL;
    r->bytes = malloc(sum(send, nsend) + sum(recv, nrecv) + 1);
    if (!r->bytes) {
        drop(r);
        return NULL;
    }
    r->to = recv;
    r->n = nrecv;
    place(send, nsend, r->part + nrecv, place(recv, nrecv, r->part, r->bytes));
    return r;
}

static int device_failed(Staged *s) {
    s->error = s->device->error(s->device->self);
    return 0;
}

static int begin(Staged *s, StagedRequest *r, const CommPart *send, int32_t nsend) {
    const Device *d = s->device;
    const CommPart *out = r->part + r->n;
    for (int32_t i = 0; i < nsend; i++)
        if (!d->download(d->self, 0, out[i].data, send[i].data, send[i].bytes))
            return device_failed(s);
    r->request = s->host->start(s->host->self, out, nsend, r->part, r->n);
    if (!r->request) s->error = s->host->error(s->host->self);
    return r->request != NULL;
}

static void *start(void *self, const CommPart *send, int32_t nsend, const CommPart *recv,
                   int32_t nrecv) {
    Staged *s = self;
    StagedRequest *r = request_new(send, nsend, recv, nrecv);
    if (!r) s->error = "out of memory for messages";
    if (!r || begin(s, r, send, nsend)) return r;
    drop(r);
    return NULL;
}

static void help(void *self, void *request) {
    const Comm *host = ((Staged *)self)->host;
    host->help(host->self, ((StagedRequest *)request)->request);
}

static int wait_for(void *self, void *request) {
    Staged *s = self;
    StagedRequest *r = request;
    const Device *d = s->device;
    int done = s->host->wait(s->host->self, r->request);
    if (!done) s->error = s->host->error(s->host->self);
    for (int32_t i = 0; done && i < r->n; i++)
        if (!d->upload(d->self, 0, r->to[i].data, r->part[i].data, r->to[i].bytes))
            done = device_failed(s);
    drop(r);
    return done;
}

static const char *error_text(void *self) {
    return ((Staged *)self)->error;
}

int staged_open(const Comm *host, Device *device, Comm *out) {
    Staged *s = malloc(sizeof *s);
    if (!s) return 0;
    *s = (Staged){.host = host, .device = device};
    *out = (Comm){.version = COMM_VERSION,
                  .rank = host->rank,
                  .world = host->world,
                  .self = s,
                  .start = start,
                  .help = help,
                  .wait = wait_for,
                  .error = error_text,
                  .close = free};
    return 1;
}
