#include "cuda/compile.h"
#include "cuda/api.h"
#include "cuda/source.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- NVRTC, opened by the first who needs it ---- */

static const ApiLibrary library =
    API_LIBRARY("NVRTC", API_NVRTC, "libnvrtc.so.13", "libnvrtc.so.12");
static struct {
    pthread_mutex_t lock;
    ApiNvrtc api;
    int there;
} nvrtc = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const ApiNvrtc *open_nvrtc(int version, char *error, size_t size) {
    pthread_mutex_lock(&nvrtc.lock);
    if (!nvrtc.there) nvrtc.there = api_open(&library, version, &nvrtc.api, error, size);
    pthread_mutex_unlock(&nvrtc.lock);
    return nvrtc.there ? &nvrtc.api : NULL;
}

/* ---- */

void compile_options(CompileOptions *o, int32_t major, int32_t minor) {
    static const char *const fixed[] = {
        "--std=c++17",
        "--fmad=false", /* a fused multiply-add is written as fmaf: the same bits everywhere */
        "--device-as-default-execution-space",
        "--generate-line-info", /* for profilers; it costs no speed */
    };
    *o = (CompileOptions){.count = 1};
    /* wgmma and its kin are in the `a` variant only, which other GPUs of 9.x could not run: there
     * are none. */
    snprintf(o->arch, sizeof o->arch, "--gpu-architecture=sm_%d%d%s", (int)major, (int)minor,
             major == 9 ? "a" : "");
    o->list[0] = o->arch;
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) o->list[o->count++] = fixed[i];
}

/* The embedded files, as NVRTC wants headers. */
enum { MOST_FILES = 64 };
typedef struct Headers {
    const char *text[MOST_FILES], *name[MOST_FILES];
    int count;
} Headers;

static void list_headers(Headers *h) {
    h->count = 0;
    for (const SourceFile *f = embedded_device_code; f->name && h->count < MOST_FILES; f++) {
        h->text[h->count] = f->text;
        h->name[h->count++] = f->name;
    }
}

static void describe(const ApiNvrtc *api, nvrtcProgram program, nvrtcResult code, char *error,
                     size_t size) {
    size_t n = 0;
    char *log = NULL;
    if (program && api->nvrtcGetProgramLogSize(program, &n) == NVRTC_SUCCESS && n > 1 &&
        (log = calloc(n + 1, 1)) && api->nvrtcGetProgramLog(program, log) == NVRTC_SUCCESS)
        snprintf(error, size, "NVRTC: %s: %s", api->nvrtcGetErrorString(code), log);
    else
        snprintf(error, size, "NVRTC: %s", api->nvrtcGetErrorString(code));
    free(log);
}

static nvrtcResult take_cubin(const ApiNvrtc *api, nvrtcProgram program, char **cubin,
                              size_t *cubin_size) {
    nvrtcResult code = api->nvrtcGetCUBINSize(program, cubin_size);
    if (code != NVRTC_SUCCESS) return code;
    *cubin = malloc(*cubin_size);
    if (!*cubin) return NVRTC_ERROR_OUT_OF_MEMORY;
    code = api->nvrtcGetCUBIN(program, *cubin);
    if (code != NVRTC_SUCCESS) free(*cubin);
    return code;
}

int compile_source(const char *source, int version, int32_t major, int32_t minor, char **cubin,
                   size_t *cubin_size, char *error, size_t size) {
    const ApiNvrtc *api = open_nvrtc(version, error, size);
    nvrtcProgram program = NULL;
    CompileOptions options;
    Headers headers;
    if (!api) return 0;
    compile_options(&options, major, minor);
    list_headers(&headers);
    nvrtcResult code = api->nvrtcCreateProgram(&program, source, "kernel.cu", headers.count,
                                               headers.text, headers.name);
    if (code == NVRTC_SUCCESS)
        code = api->nvrtcCompileProgram(program, options.count, options.list);
    if (code == NVRTC_SUCCESS) code = take_cubin(api, program, cubin, cubin_size);
    if (code != NVRTC_SUCCESS) describe(api, program, code, error, size);
    if (program) api->nvrtcDestroyProgram(&program);
    return code == NVRTC_SUCCESS;
}

int compile_has_entry(const char *cubin, size_t size, const char *entry) {
    char name[256]; /* as it stands in the table of names: between two zeros */
    int n = snprintf(name + 1, sizeof name - 1, "%s", entry);
    name[0] = 0;
    return n < (int)sizeof name - 2 && memmem(cubin, size, name, (size_t)n + 2);
}
