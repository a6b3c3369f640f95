/* source.h - the text of device code: the files of kernels/cuda, which are part of this library,
 * and what a launch gives to the compiler. */
#ifndef MESHLUA_CUDA_SOURCE_H
#define MESHLUA_CUDA_SOURCE_H

#include "cuda/launches.h"

typedef struct SourceFile {
    const char *name, *text;
} SourceFile;

/* Generated from host/cuda/embedded.c.in; the list ends with a name of NULL. */
extern const SourceFile embedded_device_code[];

/* The text of a file of kernels/cuda; NULL: there is none of that name. */
const char *source_file(const char *name);
/* What is compiled for a launch: its definitions, then its file (by #include) or its text. To be
 * freed; NULL: out of memory. */
char *source_of_step(const LaunchStep *s);
/* Launches, one after the other, for people and for device_compile. To be freed. */
char *source_of_launches(const Launches *p);

/* Calls `each` for every launch of what source_of_launches made, with its source and entry, until
 * one gives 0. The text is written into. */
int source_each(char *text, int (*each)(void *state, const char *source, const char *entry),
                void *state);

#endif
