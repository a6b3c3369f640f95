/* compile.h - device code becomes a cubin, by NVRTC. */
#ifndef MESHLUA_CUDA_COMPILE_H
#define MESHLUA_CUDA_COMPILE_H

#include <stddef.h>
#include <stdint.h>

enum { COMPILE_OPTIONS = 8, COMPILE_OPTION = 40 };

typedef struct CompileOptions {
    const char *list[COMPILE_OPTIONS];
    int count;
    char arch[COMPILE_OPTION];
} CompileOptions;

/* What NVRTC is told besides the source, for a GPU of that compute capability. */
void compile_options(CompileOptions *o, int32_t major, int32_t minor);
/* Compiles, by the NVRTC of that version (see api_open); the files of kernels/cuda may be included
 * by name. *cubin is to be freed. 1, or 0 with the compiler's words in `error`. Any number of
 * threads may call it. */
int compile_source(const char *source, int version, int32_t major, int32_t minor, char **cubin,
                   size_t *cubin_size, char *error, size_t size);
/* Whether the cubin has that function. */
int compile_has_entry(const char *cubin, size_t size, const char *entry);

#endif
