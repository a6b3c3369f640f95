/* kcuda.h - runs a case on a GPU, through the library that a program opens (host/run/gpu/device.h),
 * and holds it to the naive kernel: the elements, inputs, guards and gaps, the fault; and that a
 * second launch at other addresses, out of a graph, gives the same bits.
 *
 * Which library of CUDA's that is, the real one or a stand-in, is the caller's LD_LIBRARY_PATH.
 * KC_CASES=N: so many of each kind of case, 0 for all; unless said, one each of some types.
 * KC_PART=I/N: of the cases every N-th one only, from number I on, so that N processes, which share
 * the folder KC_CACHE, have them all. KC_LIBRARY=FILE: where that library is, if not where it was
 * built. KC_WGMMA: attention through wgmma. */
#ifndef MESHLUA_KCUDA_H
#define MESHLUA_KCUDA_H

#include <dlfcn.h>
#include "kcompile.h"
#include "krun.h"
#include "run/gpu/device.h"

enum { KC_TAG = 4711, KC_SMALL = 1 << 17 /* bytes of what is tested unless all are */ };

static Device kc_device;

static inline int kc_open(void) {
    char error[512] = "";
    DeviceOptions options = {.cache = getenv("KC_CACHE"), .wgmma = getenv("KC_WGMMA") != NULL};
    if (kc_device.version) return 1;
    const char *elsewhere = getenv("KC_LIBRARY");
    void *library = dlopen(elsewhere ? elsewhere : KC_LIBRARY, RTLD_NOW | RTLD_LOCAL);
    DeviceOpen *opens = library ? (DeviceOpen *)dlsym(library, DEVICE_OPEN) : NULL;
    if (opens && opens(&kc_device, &options, error, sizeof error)) return 1;
    fprintf(stderr, "no GPU: %s\n", opens ? error : dlerror());
    exit(1);
}

static inline int64_t kc_cases(void) {
    const char *text = getenv("KC_CASES");
    return text && *text ? strtoll(text, NULL, 10) : 1;
}

/* Whether the case, of which each is asked once, is another process's. */
static inline int kc_elsewhere(void) {
    static int64_t count;
    const char *text = getenv("KC_PART");
    char *rest;
    if (!text) return 0;
    int64_t part = strtoll(text, &rest, 10), parts = *rest == '/' ? strtoll(rest + 1, NULL, 10) : 0;
    CHECKF(part >= 0 && part < parts, "KC_PART=%s", text);
    return parts > 0 && count++ % parts != part;
}

/* Whether there have been enough of this kind: of one kernel, type and fault. Each type is device
 * code of its own, which takes its time to compile. */
static inline int kc_enough(const Case *c) {
    static struct {
        const char *name;
        DType type;
        KFaultKind fault;
        int64_t count;
    } seen[512];
    size_t bytes = 0;
    int k = 0;
    if (kc_elsewhere()) return 1;
    if (kc_cases() == 0) return 0;
    for (int i = 0; i < c->nin; i++) bytes += c->in[i].bytes;
    if (bytes > KC_SMALL) return 1;
    DType type = c->nin ? c->in[0].t.dtype : c->out[0].t.dtype;
    if (!getenv("KC_CASES") &&
        (type == DT_U8 || type == DT_U32 || type == DT_I64 || type == DT_F16))
        return 1;
    while (seen[k].name && (strcmp(seen[k].name, c->name) != 0 || seen[k].type != type ||
                            seen[k].fault != c->fault.kind))
        k++;
    if (k == 511) return 1;
    seen[k].name = c->name;
    seen[k].type = type;
    seen[k].fault = c->fault.kind;
    return seen[k].count++ >= kc_cases();
}

/* The operands' blocks on the GPU. */
typedef struct Uploaded {
    char *in[KC_MAX], *out[KC_MAX];
    KTensor tin[KC_MAX], tout[KC_MAX];
    char *scratch;
    size_t scratch_bytes;
} Uploaded;

static inline char *kc_upload(Tensor *x, KTensor *t) {
    char *at = kc_device.alloc(kc_device.self, 0, x->bytes ? x->bytes : 1);
    CHECK(at && kc_device.upload(kc_device.self, 0, at, x->block, x->bytes));
    *t = kt_fix(x)->t;
    t->data = at + x->offset;
    return at;
}
static inline void kc_upload_all(const Case *c, Tensor *in, Tensor *out, Uploaded *u) {
    for (int k = 0; k < c->nin; k++) u->in[k] = kc_upload(&in[k], &u->tin[k]);
    for (int k = 0; k < c->nout; k++) {
        if (!c->alias[k]) {
            u->out[k] = kc_upload(&out[k], &u->tout[k]);
            continue;
        }
        u->out[k] = u->in[c->alias[k] - 1];
        u->tout[k] = kt_fix(&out[k])->t;
        u->tout[k].data = u->out[k] + out[k].offset;
    }
}
static inline void kc_download_all(const Case *c, Tensor *in, Tensor *out, Uploaded *u) {
    for (int k = 0; k < c->nin; k++)
        CHECK(kc_device.download(kc_device.self, 0, in[k].block, u->in[k], in[k].bytes));
    for (int k = 0; k < c->nout; k++)
        if (!c->alias[k])
            CHECK(kc_device.download(kc_device.self, 0, out[k].block, u->out[k], out[k].bytes));
}
static inline void kc_drop_all(const Case *c, Tensor *in, Tensor *out, Uploaded *u) {
    for (int k = 0; k < c->nin; k++) kc_device.free(kc_device.self, 0, u->in[k], in[k].bytes);
    for (int k = 0; k < c->nout; k++)
        if (!c->alias[k]) kc_device.free(kc_device.self, 0, u->out[k], out[k].bytes);
    kc_device.free(kc_device.self, 0, u->scratch, u->scratch_bytes);
}

static inline KArgs kc_args(const Case *c, const Uploaded *u) {
    return (KArgs){.in = u->tin,
                   .out = u->tout,
                   .nin = c->nin,
                   .nout = c->nout,
                   .attr = c->attr,
                   .offsets = c->offsets};
}

/* Poisoned, with a guard behind it. */
static inline void kc_scratch(Uploaded *u, size_t bytes) {
    u->scratch_bytes = bytes + 256;
    u->scratch = kc_device.alloc(kc_device.self, 0, u->scratch_bytes);
    CHECK(u->scratch && kc_device.fill(kc_device.self, 0, u->scratch, 0xff, bytes) &&
          kc_device.fill(kc_device.self, 0, u->scratch + bytes, GUARD_BYTE, 256));
}
static inline void kc_scratch_kept(const Case *c, const Uploaded *u) {
    uint8_t guard[256];
    int kept = kc_device.download(kc_device.self, 0, guard,
                                  u->scratch + u->scratch_bytes - sizeof guard, sizeof guard);
    for (size_t i = 0; i < sizeof guard; i++) kept &= guard[i] == GUARD_BYTE;
    CHECKF(kept, "%s: wrote behind its scratch", c->name);
}

/* At once, or out of a graph. A GPU that fails stays so: no later case would say more. */
static inline void kc_put(const Case *c, void *bound, const Uploaded *u, int graph) {
    void *self = kc_device.self, *kept = NULL;
    KArgs args = kc_args(c, u);
    int done = !graph || kc_device.capture(self, 0);
    done = done && kc_device.launch(self, bound, &args, u->scratch, KC_TAG);
    if (graph) {
        done = done && (kept = kc_device.captured(self, 0)) != NULL;
        done = done && kc_device.replay(self, 0, kept);
    }
    done = done && kc_device.wait(self, 0);
    if (kept) kc_device.forget(self, kept);
    if (done) return;
    fprintf(stderr, "cuda %s%s: %s\n", c->name, graph ? " (graph)" : "", kc_device.error(self));
    kc_print(c);
    exit(1);
}

static inline void kc_fault(const Case *c) {
    DeviceFault f = {.fault = {.kind = K_FAULT_NONE}};
    int there = kc_device.fault(kc_device.self, 0, &f);
    CHECKF(there == (c->fault.kind != K_FAULT_NONE), "%s: a fault, or none: %d", c->name, there);
    CHECKF(!there || (f.fault.kind == c->fault.kind && f.fault.value == c->fault.value &&
                      f.fault.limit == c->fault.limit && f.tag == KC_TAG),
           "%s: fault %lld of %lld", c->name, (long long)f.fault.value, (long long)f.fault.limit);
}

/* Both sets of operands are fresh; what the GPU makes of them stands there afterwards. 0: there is
 * no such kernel yet. */
static inline int kc_launch_twice(const Case *c, Tensor *in, Tensor *out, Tensor *in_again,
                                  Tensor *out_again) {
    static Uploaded u, v;
    size_t scratch = 0;
    kc_upload_all(c, in, out, &u);
    kc_upload_all(c, in_again, out_again, &v);
    KArgs args = kc_args(c, &u);
    void *bound = kc_device.bind(kc_device.self, 0, c->name, &args, &scratch);
    CHECKF(bound, "%s: %s", c->name, kc_device.error(kc_device.self));
    if (!bound) return 0;
    kc_scratch(&u, scratch);
    kc_scratch(&v, scratch);
    kc_put(c, bound, &u, 0);
    kc_fault(c);
    setenv("STANDIN_SEED", "1", 1); /* another order of threads, where there is a choice */
    kc_put(c, bound, &v, 1);
    unsetenv("STANDIN_SEED");
    kc_fault(c);
    kc_download_all(c, in, out, &u);
    kc_download_all(c, in_again, out_again, &v);
    kc_scratch_kept(c, &u);
    kc_scratch_kept(c, &v);
    kc_device.unbind(kc_device.self, bound);
    kc_drop_all(c, in, out, &u);
    kc_drop_all(c, in_again, out_again, &v);
    return 1;
}

#endif
