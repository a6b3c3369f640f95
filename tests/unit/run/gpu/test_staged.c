/* Messages of a GPU's memory by way of the host's: what goes is fetched first, what came is put
 * where it belongs, and whoever fails says so and leaves nothing. */
#include "run/gpu/staged.h"
#include "test.h"

#include <malloc.h>
#include <stdbool.h>
#include <string.h>

/* A GPU's memory, and the host's carrier: it brings what `sent` has got, in the order of the parts,
 * to the parts that receive. */
enum { N = 1000 }; /* bytes of a letter */

typedef struct World {
    char gpu[64 * N], sent[64 * N];
    int32_t uploads, downloads, helped, failing_upload, failing_download;
    bool no_start, no_wait;
    const CommPart *recv;
    int32_t nrecv;
} World;

static int upload(void *self, int32_t gpu, char *to, const void *from, size_t bytes) {
    World *w = self;
    CHECK(gpu == 0);
    if (++w->uploads == w->failing_upload) return 0;
    memcpy(to, from, bytes);
    return 1;
}
static int download(void *self, int32_t gpu, void *to, const char *from, size_t bytes) {
    World *w = self;
    CHECK(gpu == 0);
    if (++w->downloads == w->failing_download) return 0;
    memcpy(to, from, bytes);
    return 1;
}
static const char *device_error(void *self) {
    (void)self;
    return "the GPU";
}

static void *start(void *self, const CommPart *send, int32_t nsend, const CommPart *recv,
                   int32_t nrecv) {
    World *w = self;
    char *at = w->sent;
    for (int32_t i = 0; i < nsend; i++) {
        CHECK(send[i].peer == 5 - i && send[i].own == 0);
        memcpy(at, send[i].data, send[i].bytes);
        at += send[i].bytes;
    }
    w->recv = recv;
    w->nrecv = nrecv;
    return w->no_start ? NULL : w;
}
static void help(void *self, void *request) {
    CHECK(self == request);
    ((World *)self)->helped++;
}
static int wait_for(void *self, void *request) {
    World *w = self;
    const char *at = w->sent;
    CHECK(self == request);
    for (int32_t i = 0; i < w->nrecv; i++) {
        CHECK(w->recv[i].peer == 7 + i && w->recv[i].own == 0);
        memcpy(w->recv[i].data, at, w->recv[i].bytes);
        at += w->recv[i].bytes;
    }
    return !w->no_wait;
}
static const char *host_error(void *self) {
    (void)self;
    return "the host";
}

static const Comm host = {
    .rank = 2, .world = 9, .start = start, .help = help, .wait = wait_for, .error = host_error};

/* Is every byte of the letter's place the letter? */
static bool is_text(const char *at, const char *text) {
    for (; *text; text++, at += N)
        for (int i = 0; i < N; i++)
            if (at[i] != *text) return false;
    return true;
}

/* "abc" and "defgh" go, and come back as "abcd" and "efgh" into the last half of the memory; 1, or
 * 0 with what is said. */
static int exchange(World *w, const char **error) {
    static size_t usual;
    static int runs;
    Device device = {.self = w, .upload = upload, .download = download, .error = device_error};
    Comm carrier = host, staged;
    carrier.self = w;
    for (int i = 0; i < 9; i++) memset(w->gpu + i * N, "abc.defgh"[i], N);
    const CommPart send[] = {{5, w->gpu, 3 * N, 0}, {4, w->gpu + 4 * N, 5 * N, 0}};
    const CommPart recv[] = {{7, w->gpu + 32 * N, 4 * N, 0}, {8, w->gpu + 48 * N, 4 * N, 0}};
    CHECK(staged_open(&carrier, &device, &staged));
    CHECK(staged.rank == 2 && staged.world == 9 && staged.version == COMM_VERSION && !staged.over);
    void *request = staged.start(staged.self, send, 2, recv, 2);
    if (request) {
        CHECK(!staged.error(staged.self));
        staged.help(staged.self, request);
    }
    int done = request && staged.wait(staged.self, request);
    *error = staged.error(staged.self);
    staged.close(staged.self);
    size_t left = mallinfo2().uordblks; /* with what the first runs leave in malloc's own lists */
    CHECKF(runs++ < 10 || left == usual, "%zu more bytes", left - usual);
    usual = left;
    return done;
}

int main(void) {
    static World w;
    const char *error;
    for (int i = 0; i < 10; i++) CHECK(exchange(&w, &error) && !error);
    CHECK(is_text(w.gpu + 32 * N, "abcd") && !w.gpu[36 * N]);
    CHECK(is_text(w.gpu + 48 * N, "efgh") && !w.gpu[52 * N]);
    CHECK(w.downloads == 20 && w.uploads == 20 && w.helped == 10);

    w = (World){.no_start = true};
    CHECK(!exchange(&w, &error) && strcmp(error, "the host") == 0 && w.uploads == 0);
    w = (World){.no_wait = true};
    CHECK(!exchange(&w, &error) && strcmp(error, "the host") == 0 && w.uploads == 0);
    for (int32_t i = 1; i <= 2; i++) {
        w = (World){.failing_download = i};
        CHECK(!exchange(&w, &error) && strcmp(error, "the GPU") == 0 && w.downloads == i);
        CHECK(w.recv == NULL && w.helped == 0); /* nothing has gone */
        w = (World){.failing_upload = i};
        CHECK(!exchange(&w, &error) && strcmp(error, "the GPU") == 0 && w.uploads == i);
    }
    return test_end();
}
