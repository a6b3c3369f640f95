/* rows.h - kernels that only tests know, in place of the table of kernels/cuda, and the library
 * opened for a test. */
#ifndef MESHLUA_TEST_CUDA_ROWS_H
#define MESHLUA_TEST_CUDA_ROWS_H

#include "run/gpu/device.h"
#include "test.h"

/* All take in x, out y, float32[n]:
 * twice_plus: y = 2 x, and by a second launch y += 1
 * mixed: y[i] = 1000 block.y + 100 block.z + 10 grid.y + grid.z + parameters of every kind, over 6
 *   blocks of n / 6
 * filled: y = 0xff by a fill, then kept where x > 0
 * called: y = x by a call of a library
 * look_up: y[i] = x[i], and a fault for every x[i] outside 0 <= x[i] < 100
 * listed: y = 3 x, of the addresses in a list
 * built_for: y[i] = 10 times the compute capability that it is compiled for
 * strays: as twice_plus, but the second launch writes behind y
 * broken, no_entry, no_file, no_grid, refused: are wrong, each in its way */

/* Opens the first GPU with a folder for what is compiled, or NULL; `check` as in run/gpu/device.h.
 */
static inline Device rows_open(const char *cache, int check) {
    DeviceOpen device_open;
    char error[512] = "";
    Device d = {.version = 0};
    if (!device_open(&d, &(DeviceOptions){.cache = cache, .check = check}, error, sizeof error)) {
        fprintf(stderr, "%s\n", error);
        exit(1);
    }
    return d;
}

/* x and y of n elements, as arguments. */
typedef struct Pair {
    int64_t dims, stride;
    KTensor x, y;
    KArgs args;
} Pair;

static inline void rows_pair(Pair *p, int64_t n, char *x, char *y) {
    p->dims = n;
    p->stride = sizeof(float);
    p->x = (KTensor){x, &p->dims, &p->stride, 1, DT_F32};
    p->y = (KTensor){y, &p->dims, &p->stride, 1, DT_F32};
    p->args = (KArgs){.in = &p->x, .out = &p->y, .nin = 1, .nout = 1};
}

#endif
