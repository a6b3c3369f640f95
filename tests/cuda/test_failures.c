/* test_failures.c - the table of run/gpu/device.h over two GPUs that the stand-in plays, with every
 * call of CUDA failing once: what fails is said, what does not fail is right, and nothing is left
 * behind. */
#include "rows.h"
#include "standin/standin.h"

#include <dirent.h>
#include <malloc.h>
#include <string.h>
#include <unistd.h>

enum { N = 100, GPUS = 2, LARGE = 3 << 20 };

typedef struct Run {
    Device d;
    float x[N], y[N];
    char *gx[GPUS], *gy[GPUS], *large[GPUS];
    Pair pair[GPUS];
    void *bound[GPUS], *look_up, *graph;
    int capturing;
} Run;

static char cache[] = "/tmp/meshlua-failures-XXXXXX";
static char error[512]; /* what the part that failed said */
static int broke;       /* a call has failed */

/* The very first that is asked of a GPU. */
static int keep_nothing(Run *r) {
    Device *d = &r->d;
    for (int i = 0; i < GPUS; i++) {
        int capturing = d->capture(d->self, i);
        void *graph = capturing ? d->captured(d->self, i) : NULL;
        int ok = graph && d->replay(d->self, i, graph) && d->wait(d->self, i);
        if (graph) d->forget(d->self, graph);
        if (!ok) return 0;
    }
    return 1;
}

static int take_memory(Run *r) {
    Device *d = &r->d;
    for (int i = 0; i < GPUS; i++) {
        size_t before = d->available(d->self, i);
        r->gx[i] = d->alloc(d->self, i, sizeof r->x);
        r->gy[i] = d->alloc(d->self, i, sizeof r->y);
        r->large[i] = d->alloc(d->self, i, LARGE);
        if (!before || !r->gx[i] || !r->gy[i] || !r->large[i]) return 0;
        size_t left = d->available(d->self, i);
        if (!left) return 0;
        CHECKF(left < before, "%zu bytes of %zu", left, before);
    }
    return 1;
}

/* y = 2 x + 1 on the first GPU, and from there to the other, which makes 2 y + 1 of it. */
static int run_kernels(Run *r) {
    Device *d = &r->d;
    size_t scratch;
    for (int i = 0; i < GPUS; i++) {
        rows_pair(&r->pair[i], N, r->gx[i], r->gy[i]);
        r->bound[i] = d->bind(d->self, i, "twice_plus", &r->pair[i].args, &scratch);
        if (!r->bound[i]) return 0;
    }
    if (!d->upload(d->self, 0, r->gx[0], r->x, sizeof r->x)) return 0;
    if (!d->launch(d->self, r->bound[0], &r->pair[0].args, NULL, 1)) return 0;
    if (!d->move(d->self, 1, r->gx[1], 0, r->gy[0], sizeof r->x)) return 0;
    if (!d->launch(d->self, r->bound[1], &r->pair[1].args, NULL, 2)) return 0;
    if (!d->move(d->self, 0, r->gx[0], 0, r->gy[0], sizeof r->x)) return 0;
    if (!d->fill(d->self, 0, r->gy[0], 0, sizeof r->y)) return 0;
    if (!d->download(d->self, 1, r->y, r->gy[1], sizeof r->y)) return 0;
    for (int i = 0; i < N; i++) CHECK(r->y[i] == 4 * r->x[i] + 3);
    if (!d->download(d->self, 0, r->y, r->gx[0], sizeof r->y)) return 0;
    for (int i = 0; i < N; i++) CHECK(r->y[i] == 2 * r->x[i] + 1);
    if (!d->download(d->self, 0, r->y, r->gy[0], sizeof r->y)) return 0;
    for (int i = 0; i < N; i++) CHECK(r->y[i] == 0);
    return 1;
}

static int end_capture(Run *r) {
    r->capturing = 0;
    r->graph = r->d.captured(r->d.self, 0);
    return r->graph != NULL;
}

/* The GPU that was used last is the other one. */
static int run_graph(Run *r) {
    Device *d = &r->d;
    size_t scratch;
    r->look_up = d->bind(d->self, 0, "look_up", &r->pair[0].args, &scratch);
    if (!r->look_up || !d->available(d->self, 1) || !d->capture(d->self, 0)) return 0;
    r->capturing = 1;
    if (!d->launch(d->self, r->look_up, &r->pair[0].args, NULL, 3)) return 0;
    if (!d->available(d->self, 1) || !end_capture(r) || !d->available(d->self, 1)) return 0;
    if (!d->replay(d->self, 0, r->graph)) return 0;
    if (!d->download(d->self, 0, r->y, r->gy[0], sizeof r->y)) return 0;
    for (int i = 0; i < N; i++) CHECK(r->y[i] == 2 * r->x[i] + 1);
    return 1;
}

static int take_times(Run *r) {
    Device *d = &r->d;
    int64_t from = d->stamp(d->self, 0);
    if (from < 0 || !d->launch(d->self, r->look_up, &r->pair[0].args, NULL, 4)) return 0;
    int64_t to = d->stamp(d->self, 0);
    if (to < 0) return 0;
    double seconds = d->between(d->self, 0, from, to);
    if (seconds < 0) return 0;
    CHECKF(seconds > 0 && seconds < 1, "%g s", seconds);
    return 1;
}

static int ask_ahead(Run *r) {
    Device *d = &r->d;
    float value, there;
    int64_t first = d->ask(d->self, 0, r->gx[0], sizeof value);
    if (first < 0 || d->ask(d->self, 0, r->gx[0], sizeof value) < 0) return 0;
    if (d->answer(d->self, 0, first, &value, sizeof value) != 1) return 0;
    if (!d->download(d->self, 0, &there, r->gx[0], sizeof there)) return 0;
    CHECK(memcmp(&value, &there, sizeof value) == 0);
    return 1;
}

/* Chunks of the staging memory follow each other. */
static int move_much(Run *r) {
    enum { MUCH = 5 << 20 };
    Device *d = &r->d;
    int32_t *from = malloc(MUCH), *to = calloc(MUCH, 1);
    char *at = d->alloc(d->self, 1, MUCH);
    for (int i = 0; i < MUCH / 4; i++) from[i] = i;
    int ok = at && d->upload(d->self, 1, at, from, MUCH) && d->download(d->self, 1, to, at, MUCH);
    if (ok) CHECK(memcmp(from, to, MUCH) == 0);
    d->free(d->self, 1, at, MUCH);
    free(from);
    free(to);
    return ok;
}

static int no_fault(Run *r) {
    DeviceFault f;
    for (int i = 0; i < GPUS; i++) CHECK(!r->d.fault(r->d.self, i, &f));
    return 1;
}

static void give_back(Run *r) {
    Device *d = &r->d;
    if (r->capturing) end_capture(r);
    if (r->graph) d->forget(d->self, r->graph);
    for (int i = 0; i < GPUS; i++) {
        if (r->bound[i]) d->unbind(d->self, r->bound[i]);
        d->free(d->self, i, r->gx[i], sizeof r->x);
        d->free(d->self, i, r->gy[i], sizeof r->y);
        d->free(d->self, i, r->large[i], LARGE);
    }
    if (r->look_up) d->unbind(d->self, r->look_up);
    d->close(d->self);
}

/* Whether nothing failed; else `error` says why. */
static int run_all(int check) {
    static int (*const part[])(Run *) = {keep_nothing, take_memory, run_kernels, run_graph,
                                         take_times,   ask_ahead,   move_much,   no_fault};
    DeviceOpen device_open;
    Run r = {.capturing = 0};
    error[0] = '\0';
    for (int i = 0; i < N; i++) r.x[i] = (float)(i % 7);
    if (!device_open(&r.d, &(DeviceOptions){.cache = cache, .check = check}, error, sizeof error))
        return broke = 1, standin_fail_in(0), 0;
    CHECK(r.d.gpus == GPUS && r.d.gpu[1].index == 1);
    int ok = 1;
    for (size_t i = 0; i < sizeof part / sizeof *part && ok; i++) ok = part[i](&r);
    if (!ok) snprintf(error, sizeof error, "%s", r.d.error(r.d.self));
    broke = standin_fails_in() == 0;
    standin_fail_in(0);
    give_back(&r);
    return ok;
}

/* Of the host's memory, as much as before: what a run takes it gives back. */
static void runs_leave_nothing(int check) {
    enum { RUNS = 20 };
    for (int i = 0; i < 5; i++) CHECKF(run_all(check), "%s", error);
    size_t before = mallinfo2().uordblks;
    for (int i = 0; i < RUNS; i++) CHECK(run_all(check));
    size_t after = mallinfo2().uordblks; /* 0 under sanitizers */
    CHECKF(after < before + RUNS * sizeof(void *), "%zu bytes in a run", (after - before) / RUNS);
    CHECKF(standin_held() == 0, "%ld of the GPUs' left", standin_held());
}

static void every_call_fails_once(int check) {
    int said = 0;
    broke = 1;
    for (int call = 1; broke && call < 1000; call++) {
        standin_fail_in(call);
        int ok = run_all(check);
        said += !ok;
        if (!ok) CHECKF(strstr(error, "CUDA error 999"), "call %d: '%s'", call, error);
        CHECKF(standin_held() == 0, "call %d: %ld of the GPUs' left after '%s'", call,
               standin_held(), error);
    }
    CHECKF(!broke && said > 80, "%d calls", said);
}

static void remove_cache(void) {
    char path[512];
    DIR *dir = opendir(cache);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        snprintf(path, sizeof path, "%s/%s", cache, e->d_name);
        unlink(path);
    }
    if (dir) closedir(dir);
    rmdir(cache);
}

int main(void) {
    CHECK(mkdtemp(cache));
    for (int check = 0; check < 2; check++) {
        runs_leave_nothing(check);
        every_call_fails_once(check);
    }
    remove_cache();
    return test_end();
}
