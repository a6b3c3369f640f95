/* block.h - runs a grid: block after block, the threads of a block as fibers of one thread of the
 * host's, each of which runs until it waits for others. */
#ifndef STANDIN_BLOCK_H
#define STANDIN_BLOCK_H

#include <cstddef>
#include <string>
#include <vector_types.h>
#include "module.h"

struct StandinGrid {
    const StandinModule *module;
    const StandinKernel *kernel;
    dim3 blocks, threads;
    size_t dynamic; /* bytes of shared memory */
    void **params;
};

/* What went wrong, or nothing. STANDIN_SEED = n > 0: threads begin in another order, so that what
 * a missing barrier leaves to chance comes out otherwise (1: the last one first). */
std::string standin_run(const StandinGrid &grid);

/* The results of what a warp does together (warp.cpp); slots of lanes that take part. NULL, or what
 * is wrong with them. */
const char *standin_warp(StandinWarp kind, unsigned lanes, void *const slot[32]);

#endif
