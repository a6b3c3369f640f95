/* strict_nvrtc.c - the real NVRTC, in whose place it is opened, with a warning as an error, and
 * kernels that keep more than a few registers in memory. */
#include <dlfcn.h>
#include <nvrtc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SPILLED = 32 }; /* bytes: a word or two around a loop cost nothing */

#define EXPORT __attribute__((visibility("default")))

static void *real(const char *name) {
    static void *library;
    if (!library) library = dlopen(STRICT_NVRTC, RTLD_NOW | RTLD_LOCAL);
    void *at = library ? dlsym(library, name) : NULL;
    if (!at) {
        fprintf(stderr, "%s: %s\n", name, dlerror());
        exit(1);
    }
    return at;
}
#define REAL(name) ((__typeof__(name) *)real(#name))

/* What ptxas says of a kernel: "... 0 bytes spill stores, 0 bytes spill loads". */
static int spills(const char *log) {
    for (const char *at = strstr(log, " bytes spill"); at; at = strstr(at + 1, " bytes spill")) {
        const char *digits = at;
        while (digits > log && digits[-1] >= '0' && digits[-1] <= '9') digits--;
        if (atoi(digits) > MOST_SPILLED) return 1;
    }
    return 0;
}

EXPORT nvrtcResult nvrtcCompileProgram(nvrtcProgram p, int n, const char *const *options) {
    const char *all[32];
    size_t size = 0;
    if (n > 28) return NVRTC_ERROR_INVALID_OPTION;
    memcpy(all, options, (size_t)n * sizeof *all);
    all[n++] = "--ptxas-options=-v";
    nvrtcResult r = REAL(nvrtcCompileProgram)(p, n, all);
    if (r != NVRTC_SUCCESS || REAL(nvrtcGetProgramLogSize)(p, &size) != NVRTC_SUCCESS) return r;
    char *log = calloc(size + 1, 1);
    if (!log || REAL(nvrtcGetProgramLog)(p, log) != NVRTC_SUCCESS || strstr(log, "warning") ||
        spills(log))
        r = NVRTC_ERROR_COMPILATION;
    free(log);
    return r;
}

EXPORT nvrtcResult nvrtcCreateProgram(nvrtcProgram *p, const char *source, const char *name, int n,
                                      const char *const *headers, const char *const *names) {
    return REAL(nvrtcCreateProgram)(p, source, name, n, headers, names);
}
EXPORT nvrtcResult nvrtcDestroyProgram(nvrtcProgram *p) {
    return REAL(nvrtcDestroyProgram)(p);
}
EXPORT nvrtcResult nvrtcGetCUBINSize(nvrtcProgram p, size_t *size) {
    return REAL(nvrtcGetCUBINSize)(p, size);
}
EXPORT nvrtcResult nvrtcGetCUBIN(nvrtcProgram p, char *cubin) {
    return REAL(nvrtcGetCUBIN)(p, cubin);
}
EXPORT nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram p, size_t *size) {
    return REAL(nvrtcGetProgramLogSize)(p, size);
}
EXPORT nvrtcResult nvrtcGetProgramLog(nvrtcProgram p, char *log) {
    return REAL(nvrtcGetProgramLog)(p, log);
}
EXPORT const char *nvrtcGetErrorString(nvrtcResult result) {
    return REAL(nvrtcGetErrorString)(result);
}
