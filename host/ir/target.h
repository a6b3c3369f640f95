/* target.h - what the passes know of a kind of device: plain data. A device plugin fills it for
 * devices that are there; built-in rows serve the ones that are only planned for. */
#ifndef MESHLUA_TARGET_H
#define MESHLUA_TARGET_H

#include "ir/dtype.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct Target {
    const char *name;     /* "cpu", "h200" */
    double memory;        /* bytes of one device; 0: the host's, shared by all */
    double flops;         /* per second, float32 products */
    double flops16;       /* the same of 16-bit floats; 0: no faster */
    double flops32;       /* what those of float32 and float64 really run at; 0: at `flops` */
    double bandwidth;     /* bytes per second, device memory */
    double link;          /* bytes per second, one device to its neighbour */
    double latency;       /* seconds, one collective */
    double network;       /* bytes per second, one device to one on another host */
    int64_t bucket_bytes; /* an all_reduce is not made larger than this by taking others in */
    int64_t alignment;    /* of buffers */
    int64_t parts; /* an op with few results is cut into so many at most; 1: its kernels do so */
    bool shared_memory; /* all local devices read one memory: equal values are kept once */
} Target;

/* The built-in row of that name, or NULL. */
const Target *target_of(const char *name);
/* Seconds that a step of this size takes at best: the larger of its work and its traffic. */
double target_seconds(const Target *t, double flops, double bytes);
/* Operations per second of products in this dtype. */
double target_products(const Target *t, DType dtype);

#endif
