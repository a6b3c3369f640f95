/* cuda.c - the library meshlua_cuda.so: GPUs behind the table of run/device.h. */
#include "cuda/compile.h"
#include "cuda/plan.h"
#include "cuda/source.h"
#include "run/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what needs no GPU ---- */

/* A GPU of that kind, as rows see it. */
static CudaGpu gpu_like(int32_t major, int32_t minor) {
    size_t shared = major == 9 || major == 10 ? 227 : major == 8 && minor == 0 ? 163 : 99;
    return (CudaGpu){.major = major, .minor = minor, .processors = 132, .shared = shared << 10};
}

__attribute__((visibility("default"))) DeviceSource device_source;
char *device_source(const char *kernel, const KArgs *args, int32_t major, int32_t minor) {
    char error[256];
    CudaGpu gpu = gpu_like(major, minor);
    CudaPlan *p = plan_new(kernel, args, &gpu, NULL, error, sizeof error);
    if (!p) return NULL;
    char *text = source_of_plan(p);
    plan_free(p);
    return text;
}

typedef struct Target {
    int32_t major, minor;
    char *error;
    size_t size;
} Target;

static int compile_launch(void *state, const char *source, const char *entry) {
    const Target *t = state;
    char *cubin;
    size_t n;
    if (!compile_source(source, t->major, t->minor, &cubin, &n, t->error, t->size)) return 0;
    int there = compile_has_entry(cubin, n, entry);
    if (!there) snprintf(t->error, t->size, "the device code has no function %s", entry);
    free(cubin);
    return there;
}

__attribute__((visibility("default"))) DeviceCompile device_compile;
int device_compile(const char *source, int32_t major, int32_t minor, char *error, size_t size) {
    Target target = {major, minor, error, size};
    char *text = strdup(source);
    snprintf(error, size, text ? "not the text of a plan" : "out of memory");
    int done = text && source_each(text, compile_launch, &target);
    free(text);
    return done;
}
