#include "run/runtime/hosts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Hosts have names, which may all be "localhost", and start up at different times; containers on
 * one host have names of their own. */
uint64_t hosts_key(void) {
    char name[HOST_TEXT] = "", boot[64] = "";
    gethostname(name, sizeof name - 1);
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");
    size_t n = f ? fread(boot, 1, sizeof boot - 1, f) : 0;
    if (f) fclose(f);
    return hash_bytes(hash_str(0, name), boot, n);
}

int32_t hosts_number(const uint64_t *key, int32_t n, int32_t *out) {
    int32_t hosts = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t first = 0;
        while (key[first] != key[i]) first++;
        out[i] = first < i ? out[first] : hosts++;
    }
    return hosts;
}

void hosts_forget(Runtime *rt) {
    alloc_free(&rt->cx->alloc, rt->host, sizeof *rt->host * (size_t)rt->ranks.world);
    rt->host = NULL;
}

Err hosts_find(Runtime *rt) {
    int32_t world = rt->ranks.world;
    if (world == 1) return E_OK;
    Alloc *a = &rt->cx->alloc;
    uint64_t mine = hosts_key(), *key = alloc_new(a, sizeof *key * (size_t)world);
    rt->host = alloc_new(a, sizeof *rt->host * (size_t)world);
    Err err = key && rt->host ? E_OK : err_nomem(rt->cx, "meeting other processes");
    if (!err)
        err = transport_gather(rt->cx, &rt->transport, "asking for hosts", &mine, key, sizeof mine);
    if (err || hosts_number(key, world, rt->host) == 1) hosts_forget(rt);
    alloc_free(a, key, sizeof *key * (size_t)world);
    return err;
}

bool hosts_several(const Runtime *rt) {
    return rt->host || (rt->host_devices && rt->host_devices < rt->ndevices * rt->ranks.world);
}

int32_t hosts_of(const Runtime *rt, int32_t device) {
    if (rt->host_devices) return device / rt->host_devices;
    return rt->host ? rt->host[device / rt->ndevices] : 0;
}

/* ---- meshes ---- */

/* Of devices in a row-major grid. */
static uint32_t crossed(const Runtime *rt, int naxes, const int32_t *size, const int32_t *device,
                        int32_t n) {
    uint32_t mask = 0;
    int32_t stride = 1; /* to the neighbour along the axis */
    for (int a = naxes - 1; a >= 0; stride *= size[a--])
        for (int32_t i = stride; i < n; i++) {
            if (i / stride % size[a] == 0) continue;
            if (hosts_of(rt, device[i]) != hosts_of(rt, device[i - stride])) mask |= 1u << a;
        }
    return mask;
}

uint32_t hosts_crossed(const Runtime *rt, const Mesh *m) {
    if (!hosts_several(rt) || m->abstract) return 0;
    return crossed(rt, m->naxes, m->size, m->device, m->ndevices);
}

static int by_number(const void *a, const void *b) {
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return x < y ? -1 : x > y;
}

uint32_t hosts_crossed_with_last(const Runtime *rt, const Mesh *m, int axis) {
    int32_t device[MAX_DEVICES], size[MAX_AXES];
    int order[MAX_AXES], n = 0;
    uint32_t mask = 0;
    if (!hosts_several(rt) || m->abstract) return 0;
    for (int i = 0; i < m->naxes; i++)
        if (i != axis) order[n++] = i;
    order[n++] = axis;
    for (int i = 0; i < n; i++) size[i] = m->size[order[i]];
    memcpy(device, m->device, sizeof *device * (size_t)m->ndevices);
    qsort(device, (size_t)m->ndevices, sizeof *device, by_number);
    uint32_t found = crossed(rt, n, size, device, m->ndevices);
    for (int i = 0; i < n; i++)
        if (found >> i & 1) mask |= 1u << order[i];
    return mask;
}
