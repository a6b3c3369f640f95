/* test_device.c - the table of run/gpu/device.h over the stand-in for CUDA: memory, launches,
 * graphs, faults, times. */
#include "rows.h"

#include <math.h>
#include <string.h>

static Device d;

static int says(const char *text) {
    return strstr(d.error(d.self), text) != NULL;
}

/* ---- memory ---- */

static void blocks_are_used_again(void) {
    char *small = d.alloc(d.self, 0, 1000), *other = d.alloc(d.self, 0, 1000),
         *large = d.alloc(d.self, 0, 5 << 20);
    CHECK(small && other && large && small != other);
    CHECK((uintptr_t)small % 256 == 0 && (uintptr_t)large % 256 == 0);
    d.free(d.self, 0, small, 1000);
    d.free(d.self, 0, large, 5 << 20);
    CHECK(d.alloc(d.self, 0, 3000) != small); /* another size */
    CHECK(d.alloc(d.self, 0, 1001) == small); /* nearly the same */
    CHECK(d.alloc(d.self, 0, 5 << 20) == large);
    CHECK(d.alloc(d.self, 0, 0) != NULL);
}

/* STANDIN_MEMORY is 256 MiB. What is kept goes back where it is needed in another size. */
static void memory_ends(void) {
    enum { BLOCK = 40 << 20, LARGE = 150 << 20 };
    char *at[16];
    int n = 0;
    size_t before = d.available(d.self, 0);
    while (n < 16 && (at[n] = d.alloc(d.self, 0, BLOCK))) n++;
    CHECKF(n >= 4 && n <= 6, "%d blocks", n);
    CHECKF(says("out of memory: 41943040 bytes wanted"), "%s", d.error(d.self));
    CHECK(d.available(d.self, 0) < before);
    for (int i = 0; i < n; i++) d.free(d.self, 0, at[i], BLOCK);
    CHECK(d.available(d.self, 0) == before);
    char *large = d.alloc(d.self, 0, LARGE);
    CHECK(large != NULL);
    CHECK(d.fill(d.self, 0, large, 0, LARGE) && d.wait(d.self, 0));
    d.free(d.self, 0, large, LARGE);
}

/* Work that is being kept for a graph may need what was given back. */
static void nothing_goes_back_during_a_capture(void) {
    enum { BLOCK = 150 << 20, LARGER = 200 << 20 };
    char *at = d.alloc(d.self, 0, BLOCK);
    CHECK(at && d.capture(d.self, 0) && d.fill(d.self, 0, at, 7, BLOCK));
    d.free(d.self, 0, at, BLOCK);
    CHECK(!d.alloc(d.self, 0, LARGER));
    CHECKF(says("out of memory: 209715200 bytes wanted"), "%s", d.error(d.self));
    void *graph = d.captured(d.self, 0);
    CHECK(graph && d.replay(d.self, 0, graph));
    d.forget(d.self, graph);
    at = d.alloc(d.self, 0, LARGER);
    CHECK(at != NULL);
    d.free(d.self, 0, at, LARGER);
}

static void bytes_go_there_and_back(void) {
    static const size_t sizes[] = {1, 63, 4096, (4 << 20) - 1, (4 << 20) + 1, (21 << 20) + 5};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        size_t n = sizes[i];
        unsigned char *from = malloc(n), *to = calloc(n, 1);
        char *a = d.alloc(d.self, 0, n), *b = d.alloc(d.self, 0, n);
        for (size_t k = 0; k < n; k++) from[k] = (unsigned char)(k * 7 + k / 251);
        CHECK(d.upload(d.self, 0, a, from, n));
        unsigned char last = from[n - 1];
        memset(from, 0, n); /* nobody needs it any more */
        CHECK(d.move(d.self, 0, b, 0, a, n) && d.fill(d.self, 0, a, 9, n));
        CHECK(d.download(d.self, 0, to, b, n));
        CHECK(to[n - 1] == last && (n < 8 || to[7] == 49));
        CHECK(d.download(d.self, 0, to, a, n) && to[0] == 9 && to[n - 1] == 9);
        d.free(d.self, 0, a, n);
        d.free(d.self, 0, b, n);
        free(from);
        free(to);
    }
}

static void small_uploads_follow_each_other(void) {
    enum { N = 3000 };
    int32_t *to = calloc(N, sizeof *to), sum = 0;
    char *at = d.alloc(d.self, 0, N * sizeof *to);
    for (int32_t i = 0; i < N; i++) CHECK(d.upload(d.self, 0, at + 4 * i, &i, sizeof i));
    CHECK(d.download(d.self, 0, to, at, N * sizeof *to));
    for (int32_t i = 0; i < N; i++) sum += to[i] == i;
    CHECK(sum == N);
    d.free(d.self, 0, at, N * sizeof *to);
    free(to);
}

/* ---- kernels ---- */

enum { N = 300 };
static float x[N], y[N];
static char *gx, *gy, *scratch;
static Pair pair;

static void set_x(void) {
    for (int i = 0; i < N; i++) x[i] = (float)(i % 7 - 3);
    CHECK(d.upload(d.self, 0, gx, x, sizeof x));
}
static void get_y(void) {
    CHECK(d.download(d.self, 0, y, gy, sizeof y));
}
static void *bind(const char *kernel) {
    size_t bytes = 0;
    rows_pair(&pair, N, gx, gy);
    void *bound = d.bind(d.self, 0, kernel, &pair.args, &bytes);
    CHECKF(bound, "%s", d.error(d.self));
    CHECKF(bytes <= 4096, "%zu bytes of scratch", bytes);
    return bound;
}
static void launch(void *bound, int64_t tag) {
    CHECKF(d.launch(d.self, bound, &pair.args, scratch, tag), "%s", d.error(d.self));
}
static void run(const char *kernel) {
    void *bound = bind(kernel);
    launch(bound, 0);
    d.unbind(d.self, bound);
    get_y();
}

static void launches_come_in_order(void) {
    run("twice_plus");
    for (int i = 0; i < N; i++) CHECK(y[i] == 2 * x[i] + 1);
}

static void addresses_may_change(void) {
    char *elsewhere = d.alloc(d.self, 0, sizeof y);
    void *bound = bind("twice_plus");
    pair.y.data = elsewhere;
    launch(bound, 0);
    pair.x.data = elsewhere;
    pair.y.data = gy;
    launch(bound, 0);
    d.unbind(d.self, bound);
    get_y();
    for (int i = 0; i < N; i++) CHECK(y[i] == 2 * (2 * x[i] + 1) + 1);
    d.free(d.self, 0, elsewhere, sizeof y);
}

static void parameters_are_of_every_kind(void) {
    run("mixed");
    for (int i = 0; i < N; i++) {
        int block = i / (N / 6);
        float grid = 1000 * (float)(block % 2) + 100 * (float)(block / 2) + 10 * 2 + 3,
              want = grid + x[1] + 7 + 0.75f + 4;
        CHECKF(y[i] == want, "%d: %g, not %g", i, (double)y[i], (double)want);
    }
}

static void addresses_come_in_a_list(void) {
    char *elsewhere = d.alloc(d.self, 0, sizeof y);
    void *bound = bind("listed");
    pair.y.data = elsewhere;
    launch(bound, 0);
    pair.x.data = elsewhere;
    pair.y.data = gy;
    launch(bound, 0);
    d.unbind(d.self, bound);
    get_y();
    for (int i = 0; i < N; i++) CHECK(y[i] == 9 * x[i]);
    d.free(d.self, 0, elsewhere, sizeof y);
}

static void fills_and_calls_stand_between(void) {
    run("filled");
    for (int i = 0; i < N; i++) CHECK(x[i] > 0 ? isnan(y[i]) : y[i] == 0);
    run("called");
    CHECK(memcmp(x, y, sizeof x) == 0);
}

static void nothing_is_launched_for_nothing(void) {
    size_t bytes;
    rows_pair(&pair, 0, gx, gy);
    void *bound = d.bind(d.self, 0, "twice_plus", &pair.args, &bytes);
    CHECK(bound != NULL);
    launch(bound, 0);
    d.unbind(d.self, bound);
    CHECK(d.wait(d.self, 0));
}

static void wrong_kernels_say_so(void) {
    static const struct {
        const char *kernel, *text;
        int binds; /* it is found at the first launch */
    } wrong[] = {
        {"absent", "no kernel 'absent' for CUDA", 0},
        {"refused", "refused: the kernel does not take these operands", 0},
        {"no_file", "no_file: there is no device code 'nowhere.cu'", 0},
        {"no_grid", "no_grid: a grid of 1 x 1 x 1 blocks of 2048 threads", 0},
        {"no_entry", "thrice: named symbol not found", 1},
        {"broken", "no_such_thing", 1},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        size_t bytes;
        rows_pair(&pair, N, gx, gy);
        void *bound = d.bind(d.self, 0, wrong[i].kernel, &pair.args, &bytes);
        CHECK(wrong[i].binds == (bound != NULL));
        if (bound) CHECK(!d.launch(d.self, bound, &pair.args, scratch, 0));
        CHECKF(says(wrong[i].text), "%s: %s", wrong[i].kernel, d.error(d.self));
        if (bound) d.unbind(d.self, bound);
    }
}

/* ---- faults ---- */

static void the_first_fault_is_kept(void) {
    DeviceFault fault;
    void *bound = bind("look_up");
    CHECK(!d.fault(d.self, 0, &fault));
    x[100] = 150;
    CHECK(d.upload(d.self, 0, gx, x, sizeof x)); /* x has -3 .. 3, too */
    launch(bound, 5);
    launch(bound, 6);
    CHECK(d.wait(d.self, 0) && d.fault(d.self, 0, &fault));
    CHECK(fault.tag == 5 && fault.fault.kind == K_FAULT_INDEX && fault.fault.limit == 100);
    CHECK(fault.fault.value < 0 || fault.fault.value == 150);
    CHECK(!d.fault(d.self, 0, &fault));
    launch(bound, 7);
    CHECK(d.wait(d.self, 0) && d.fault(d.self, 0, &fault) && fault.tag == 7);
    d.unbind(d.self, bound);
    set_x();
}

/* ---- graphs ---- */

static void a_graph_runs_when_it_is_replayed(void) {
    void *twice = bind("twice_plus"), *copy = bind("called");
    void *broken = bind("broken"); /* which no graph needs */
    char *middle = d.alloc(d.self, 0, sizeof y);
    CHECK(d.fill(d.self, 0, gy, 0, sizeof y));
    CHECKF(d.capture(d.self, 0), "%s", d.error(d.self));
    pair.y.data = middle;
    launch(twice, 0);
    pair.x.data = middle;
    pair.y.data = gy;
    launch(copy, 0);
    CHECK(!d.upload(d.self, 0, gx, x, sizeof x) && says("an upload while work is kept"));
    CHECK(!d.download(d.self, 0, y, gx, sizeof y) && says("a download while work is kept"));
    CHECK(d.ask(d.self, 0, gx, 4) < 0 && says("a download while work is kept"));
    CHECK(d.stamp(d.self, 0) < 0 && says("a time cannot be taken while work is kept"));
    void *graph = d.captured(d.self, 0);
    CHECKF(graph, "%s", d.error(d.self));
    get_y();
    for (int i = 0; i < N; i++) CHECK(y[i] == 0); /* nothing has run */
    for (int turn = 0; turn < 3; turn++) {
        x[turn] = 50;
        CHECK(d.upload(d.self, 0, gx, x, sizeof x) && d.replay(d.self, 0, graph));
        get_y();
        for (int i = 0; i < N; i++) CHECK(y[i] == 2 * x[i] + 1);
    }
    d.unbind(d.self, twice); /* the graph has what it needs */
    d.unbind(d.self, copy);
    d.unbind(d.self, broken);
    CHECK(d.replay(d.self, 0, graph));
    d.forget(d.self, graph);
    CHECK(d.wait(d.self, 0));
    d.free(d.self, 0, middle, sizeof y);
    set_x();
}

/* ---- answers ---- */

static void answers_are_of_when_they_were_asked_for(void) {
    float first, second;
    set_x();
    int64_t a = d.ask(d.self, 0, gx, sizeof first);
    CHECK(d.fill(d.self, 0, gx, 0, sizeof x));
    int64_t b = d.ask(d.self, 0, gx, sizeof second);
    CHECKF(a >= 0 && b == a + 1, "%s", d.error(d.self));
    CHECK(d.answer(d.self, 0, b, &second, sizeof second) == 1 && second == 0);
    CHECK(d.answer(d.self, 0, a, &first, sizeof first) == 1 && first == x[0]);
    CHECK(d.answer(d.self, 0, b + 1, &first, sizeof first) < 0); /* nobody has asked */
    for (int i = 0; i < 63; i++) CHECK(d.ask(d.self, 0, gx, sizeof first) >= 0);
    CHECK(d.answer(d.self, 0, a, &first, sizeof first) < 0); /* long ago */
    CHECK(d.answer(d.self, 0, b, &second, sizeof second) == 1 && second == 0);
    set_x();
}

/* ---- times ---- */

static void times_lie_between_stamps(void) {
    int64_t from = d.stamp(d.self, 0);
    run("twice_plus");
    int64_t to = d.stamp(d.self, 0);
    double seconds = d.between(d.self, 0, from, to);
    CHECKF(seconds >= 0 && seconds < 10, "%g s", seconds);
    CHECK(d.between(d.self, 0, from, to + 1) < 0); /* not made yet */
    for (int i = 0; i < 5000; i++) CHECK(d.stamp(d.self, 0) >= 0);
    CHECK(d.between(d.self, 0, from, to) < 0); /* long ago */
    d.range(d.self, "no profiler is there");
    d.range(d.self, NULL);
}

/* ---- text ---- */

static void kernels_are_text(void) {
    DeviceSource device_source;
    DeviceCompile device_compile;
    char error[512];
    rows_pair(&pair, N, gx, gy);
    char *text = device_source("twice_plus", &pair.args, 9, 0);
    const char *first = text ? strstr(text, "twice") : NULL;
    CHECKF(first && strstr(first, "plus"), "%s", text);
    CHECKF(text && device_compile(text, 9, 0, error, sizeof error), "%s", error);
    memcpy(strstr(text, "<<<"), "(((", 3);
    CHECK(!device_compile(text, 9, 0, error, sizeof error));
    CHECKF(strstr(error, "not the text of launches"), "%s", error);
    free(text);
    CHECK(!device_source("absent", &pair.args, 9, 0));
    CHECK(!device_source("refused", &pair.args, 9, 0));
    static const char *const wrong[][2] = {{"no_entry", "the device code has no function thrice"},
                                           {"broken", "no_such_thing"}};
    for (int i = 0; i < 2; i++) {
        text = device_source(wrong[i][0], &pair.args, 9, 0);
        CHECK(text && !device_compile(text, 9, 0, error, sizeof error));
        CHECKF(strstr(error, wrong[i][1]), "%s: %s", wrong[i][0], error);
        free(text);
    }
}

/* ---- opening ---- */

static void opening_says_why_not(void) {
    DeviceOpen device_open;
    char error[256];
    Device none;
    int32_t which = 3;
    CHECK(!device_open(&none, &(DeviceOptions){.which = &which, .n = 1, .visible = "5"}, error,
                       sizeof error));
    CHECKF(strcmp(error, "there is no GPU 3: CUDA shows 1, from 0 (CUDA_VISIBLE_DEVICES=5)") == 0,
           "%s", error);
    CHECK(d.gpus == 1 && d.gpu[0].major == 9 && d.gpu[0].memory == (size_t)256 << 20);
    CHECK(strcmp(d.gpu[0].name, "NVIDIA H200") == 0 && d.gpu[0].bus[0]);
    CHECK(d.runtime >= 12000 && d.driver >= d.runtime);
}

/* The last of all: the GPU bears nothing after it. */
__attribute__((unused)) static void a_stray_kernel_is_named(void) {
    size_t bytes;
    d = rows_open(NULL, 1);
    gx = d.alloc(d.self, 0, 5 << 20);
    gy = d.alloc(d.self, 0, 5 << 20); /* of its own, so that what is behind it is nobody's */
    rows_pair(&pair, (5 << 20) / sizeof(float), gx, gy);
    void *bound = d.bind(d.self, 0, "strays", &pair.args, &bytes);
    CHECK(bound && !d.launch(d.self, bound, &pair.args, NULL, 0));
    CHECKF(says("stray: an illegal memory access was encountered"), "%s", d.error(d.self));
    CHECK(!d.wait(d.self, 0));
    d.unbind(d.self, bound);
    d.close(d.self);
}

int main(void) {
    d = rows_open(NULL, 0);
    opening_says_why_not();
    blocks_are_used_again();
    memory_ends();
    nothing_goes_back_during_a_capture();
    bytes_go_there_and_back();
    small_uploads_follow_each_other();
    gx = d.alloc(d.self, 0, sizeof x);
    gy = d.alloc(d.self, 0, sizeof y);
    scratch = d.alloc(d.self, 0, 4096);
    set_x();
    launches_come_in_order();
    addresses_may_change();
    parameters_are_of_every_kind();
    addresses_come_in_a_list();
    fills_and_calls_stand_between();
    nothing_is_launched_for_nothing();
    wrong_kernels_say_so();
    the_first_fault_is_kept();
    a_graph_runs_when_it_is_replayed();
    answers_are_of_when_they_were_asked_for();
    times_lie_between_stamps();
    kernels_are_text();
    d.close(d.self);
#ifndef __SANITIZE_ADDRESS__ /* which would end the process where it happens */
    a_stray_kernel_is_named();
#endif
    return test_end();
}
