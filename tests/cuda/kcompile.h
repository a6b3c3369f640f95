/* kcompile.h - KC_COMPILE=N: N of the texts of device code that a test's cases need (0: all) are
 * compiled for compute capabilities 8.0 and 9.0, instead of being run. Needs no GPU. */
#ifndef MESHLUA_KCOMPILE_H
#define MESHLUA_KCOMPILE_H

#include <dlfcn.h>
#include "krun.h"
#include "run/gpu/device.h"

static inline void *kc_symbol(const char *name) {
    const char *elsewhere = getenv("KC_LIBRARY");
    void *library = dlopen(elsewhere ? elsewhere : KC_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    void *at = library ? dlsym(library, name) : NULL;
    if (at) return at;
    fprintf(stderr, "%s\n", dlerror());
    exit(1);
}

/* Whether this text comes for the first time for that GPU and is one of the chosen: all, or some
 * from everywhere, each for one of the GPUs. */
static inline int kc_fresh(const char *text, int32_t major) {
    static uint64_t seen[8192];
    static int count;
    int64_t most = strtoll(getenv("KC_COMPILE"), NULL, 10);
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (const char *p = text; *p; p++) hash = (hash ^ (uint8_t)*p) * 1099511628211u;
    if (most > 0 && (count >= most || hash % 4 || major != 8 + (int32_t)(hash / 4 % 2))) return 0;
    hash += (uint64_t)major;
    for (int i = 0; i < count; i++)
        if (seen[i] == hash) return 0;
    CHECKF(count < 8192, "more than %d texts", count);
    if (count < 8192) seen[count++] = hash;
    return 1;
}

static inline void kc_compile_for(const Case *c, const KArgs *args, int32_t major) {
    DeviceSource *source = (DeviceSource *)kc_symbol(DEVICE_SOURCE);
    DeviceCompile *compile = (DeviceCompile *)kc_symbol(DEVICE_COMPILE);
    char error[4096] = "";
    char *text = source(c->name, args, major, 0);
    CHECKF(text, "%s: no source", c->name);
    if (text && *text && kc_fresh(text, major))
        CHECKF(compile(text, major, 0, error, sizeof error), "%s for sm_%d0: %s\n%s", c->name,
               (int)major, error, text);
    free(text);
}

static inline int kc_compile(const Case *c) {
    KTensor in[KC_MAX], out[KC_MAX];
    if (!getenv("KC_COMPILE")) return 0;
    for (int k = 0; k < c->nin; k++) in[k] = c->in[k].t;
    for (int k = 0; k < c->nout; k++) out[k] = c->out[k].t;
    for (int k = 0; k < c->nin; k++) in[k].dims = c->in[k].dims, in[k].strides = c->in[k].strides;
    for (int k = 0; k < c->nout; k++)
        out[k].dims = c->out[k].dims, out[k].strides = c->out[k].strides;
    KArgs args = {.in = in,
                  .out = out,
                  .nin = c->nin,
                  .nout = c->nout,
                  .attr = c->attr,
                  .offsets = c->offsets};
    kc_compile_for(c, &args, 8);
    kc_compile_for(c, &args, 9);
    return 1;
}

#endif
