#include "ir/target.h"

#include <string.h>

/* cpu: per core of a server processor of 2023. h200: NVIDIA's datasheet, dense, without sparsity;
 * link is one direction of NVLink 4, network an adapter of 400 Gb/s for each GPU. Passes weigh work
 * by what tensor cores do with float32 rounded to tf32. */
static const Target rows[] = {
    {"cpu", 0, 1e11, 0, 0, 1.2e10, 1.2e10, 2e-6, 3e9, 4 << 20, 64, 32, true},
    {"a100", 80e9, 156e12, 312e12, 19.5e12, 2.039e12, 300e9, 7e-6, 25e9, 32 << 20, 256, 1, false},
    {"a100-40", 40e9, 156e12, 312e12, 19.5e12, 1.555e12, 300e9, 7e-6, 25e9, 32 << 20, 256, 1,
     false},
    {"h100-96", 96e9, 494.7e12, 989.4e12, 67e12, 2.4e12, 450e9, 7e-6, 50e9, 32 << 20, 256, 1,
     false},
    {"h100", 80e9, 494.7e12, 989.4e12, 67e12, 3.35e12, 450e9, 7e-6, 50e9, 32 << 20, 256, 1, false},
    {"h200", 141e9, 494.7e12, 989.4e12, 67e12, 4.8e12, 450e9, 7e-6, 50e9, 32 << 20, 256, 1, false},
};

const Target *target_of(const char *name) {
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].name, name) == 0) return &rows[i];
    return 0;
}

double target_seconds(const Target *t, double flops, double bytes) {
    double work = flops / t->flops, traffic = bytes / t->bandwidth;
    return work > traffic ? work : traffic;
}

double target_products(const Target *t, DType dtype) {
    if (dtype_size(dtype) == 2) return t->flops16 ? t->flops16 : t->flops;
    return t->flops32 ? t->flops32 : t->flops;
}
