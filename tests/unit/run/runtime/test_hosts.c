/* Which processes share a host, and which axes of a mesh go between hosts. */
#include "run/runtime/hosts.h"
#include "test.h"

#include <string.h>

static void check_numbers(void) {
    uint64_t key[] = {7, 9, 7, 3, 9};
    int32_t host[5];
    CHECK(hosts_number(key, 5, host) == 3);
    CHECK(memcmp(host, (int32_t[]){0, 1, 0, 2, 1}, sizeof host) == 0);
    CHECK(hosts_number(key, 1, host) == 1 && host[0] == 0);
}

/* Bits of the axes data, model of a mesh of these devices. */
static uint32_t crossed(Runtime *rt, int32_t data, int32_t model, const int32_t *device, int last) {
    const Mesh *m;
    CHECK(mesh_of(rt->cx, 2, (const char *[]){"data", "model"}, (int32_t[]){data, model}, NULL,
                  device, &m) == E_OK);
    return last < 0 ? hosts_crossed(rt, m) : hosts_crossed_with_last(rt, m, last);
}

static void check_meshes(Ctx *cx) {
    enum { DATA = 1, MODEL = 2, NONE = -1 };
    static const int32_t in_order[] = {0, 1, 2, 3, 4, 5, 6, 7}, mixed[] = {0, 4, 1, 5, 2, 6, 3, 7};
    Runtime rt = {.cx = cx, .ndevices = 2, .ranks.world = 4, .host = (int32_t[]){0, 0, 1, 1}};
    CHECK(crossed(&rt, 2, 4, in_order, NONE) == DATA);
    CHECK(crossed(&rt, 2, 4, in_order, 0) == MODEL);
    CHECK(crossed(&rt, 4, 2, mixed, NONE) == MODEL);
    CHECK(crossed(&rt, 4, 2, mixed, 1) == DATA);
    CHECK(crossed(&rt, 8, 1, mixed, NONE) == DATA);
    CHECK(crossed(&rt, 2, 2, (int32_t[]){4, 7, 5, 6}, NONE) == 0);
    CHECK(crossed(&rt, 2, 3, in_order, NONE) == (DATA | MODEL)); /* 0 1 2 | 3 stays, 4 5 do not */
    CHECK(crossed(&rt, 2, 3, in_order, 0) == MODEL);
    rt.host = NULL;
    CHECK(crossed(&rt, 2, 4, in_order, NONE) == 0 && crossed(&rt, 2, 4, in_order, 0) == 0);
}

int main(void) {
    Ctx cx;
    ctx_init(&cx);
    if (intern_init(&cx)) return 1;
    check_numbers();
    check_meshes(&cx);
    intern_free(&cx);
    CHECK(cx.alloc.live == 0);
    return test_end();
}
