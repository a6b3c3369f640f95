#include "rows.h"
#include "cuda/row.h"

#include <cuda_runtime_api.h>
#include <string.h>

enum { THREADS = 64 };

static const char code[] =
    "#include \"device.cuh\"\n"
    "struct Sums { double a; int b; };\n"
    "DEVICE i64 place() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }\n"
    "extern \"C\" __global__ void twice(float *y, const float *x, i64 n) {\n"
    "    if (place() < n) y[place()] = 2.0f * x[place()];\n"
    "}\n"
    "extern \"C\" __global__ void plus(float *y, float by, i64 n) {\n"
    "    if (place() < n) y[place()] += by;\n"
    "}\n"
    "extern \"C\" __global__ void mixed(float *y, const float *second, i32 part, i64 wide,\n"
    "                                   double d, Sums s, char *scratch) {\n"
    "    float *mine = (float *)scratch;\n"
    "    mine[threadIdx.x] = second[0] + (float)(wide >> 32) + (float)d + (float)s.a + "
    "(float)s.b;\n"
    "    __syncthreads();\n"
    "    if (threadIdx.x < part)\n"
    "        y[(blockIdx.y + 2 * blockIdx.z) * part + threadIdx.x] =\n"
    "            1000 * blockIdx.y + 100 * blockIdx.z + 10 * gridDim.y + gridDim.z + "
    "mine[threadIdx.x];\n"
    "}\n"
    "extern \"C\" __global__ void keep(float *y, const float *x, i64 n) {\n"
    "    if (place() < n && !(x[place()] > 0)) y[place()] = 0;\n"
    "}\n"
    "extern \"C\" __global__ void look_up(float *y, const float *x, i64 n, Fault fault) {\n"
    "    if (place() >= n) return;\n"
    "    float at = x[place()];\n"
    "    if (at < 0 || at >= 100) fault.report((i64)at, 100);\n"
    "    y[place()] = at;\n"
    "}\n"
    "struct List { float *at[3]; };\n"
    "extern \"C\" __global__ void listed(List all, i64 n) {\n"
    "    if (place() < n) all.at[1][place()] = 3.0f * all.at[0][place()];\n"
    "}\n"
    "extern \"C\" __global__ void built_for(float *y) { y[threadIdx.x] = __CUDA_ARCH__; }\n"
    "extern \"C\" __global__ void stray(float *y, i64 n) { y[n + threadIdx.x] = 1; }\n";

static int64_t count(const KArgs *a) {
    return a->in[0].dims[0];
}
static void launch(Launches *p, const KArgs *a, const char *entry) {
    cuda_launch_text(p, code, entry, (count(a) + THREADS - 1) / THREADS, THREADS);
}

static int twice_plus(const KArgs *a, Launches *p) {
    launch(p, a, "twice");
    cuda_operand(p, 1);
    cuda_operand(p, 0);
    cuda_i64(p, count(a));
    launch(p, a, "plus");
    cuda_operand(p, 1);
    cuda_f32(p, 1);
    cuda_i64(p, count(a));
    return 1;
}

static int mixed(const KArgs *a, Launches *p) {
    struct {
        double a;
        int b;
    } sums = {0.25, 4};
    cuda_take_scratch(p, 100); /* what follows does not begin at 0 */
    size_t scratch = cuda_take_scratch(p, THREADS * sizeof(float));
    cuda_launch_text(p, code, "mixed", 1, THREADS);
    cuda_grid(p, 2, 3);
    cuda_operand(p, 1);
    cuda_operand_at(p, 0, sizeof(float));
    cuda_i32(p, (int32_t)(count(a) / 6));
    cuda_i64(p, (int64_t)7 << 32);
    cuda_f64(p, 0.5);
    cuda_bytes(p, &sums, sizeof sums);
    cuda_scratch(p, scratch);
    return 1;
}

static int filled(const KArgs *a, Launches *p) {
    cuda_fill(p, 1, count(a) * (int64_t)sizeof(float), 0xff);
    launch(p, a, "keep");
    cuda_operand(p, 1);
    cuda_operand(p, 0);
    cuda_i64(p, count(a));
    return 1;
}

static int look_up(const KArgs *a, Launches *p) {
    launch(p, a, "look_up");
    cuda_operand(p, 1);
    cuda_operand(p, 0);
    cuda_i64(p, count(a));
    cuda_fault(p);
    return 1;
}

static int strays(const KArgs *a, Launches *p) {
    launch(p, a, "twice");
    cuda_operand(p, 1);
    cuda_operand(p, 0);
    cuda_i64(p, count(a));
    cuda_launch_text(p, code, "stray", 1, THREADS);
    cuda_operand(p, 1);
    cuda_i64(p, count(a));
    return 1;
}

static int built_for(const KArgs *a, Launches *p) {
    cuda_launch_text(p, code, "built_for", 1, (int)count(a));
    cuda_operand(p, 1);
    return 1;
}

static int listed(const KArgs *a, Launches *p) {
    launch(p, a, "listed");
    cuda_operands(p, 0, 2, 3);
    cuda_i64(p, count(a));
    return 1;
}

static int copy(void *state, char *const *address, char *scratch, void *stream, char *error,
                size_t size) {
    (void)scratch;
    if (cudaMemcpyAsync(address[1], address[0], *(size_t *)state, cudaMemcpyDeviceToDevice,
                        stream) == cudaSuccess)
        return 1;
    snprintf(error, size, "the copy failed");
    return 0;
}

static int called(const KArgs *a, Launches *p) {
    size_t *bytes = malloc(sizeof *bytes);
    *bytes = (size_t)count(a) * sizeof(float);
    cuda_call(p, "copy", copy, bytes, free);
    return 1;
}

static int broken(const KArgs *a, Launches *p) {
    (void)a;
    cuda_launch_text(p, "extern \"C\" __global__ void k() { no_such_thing(); }\n", "k", 1, 1);
    return 1;
}
static int no_entry(const KArgs *a, Launches *p) {
    launch(p, a, "thrice");
    return 1;
}
static int no_file(const KArgs *a, Launches *p) {
    (void)a;
    cuda_launch(p, "nowhere.cu", "k", 1, 1);
    return 1;
}
static int no_grid(const KArgs *a, Launches *p) {
    (void)a;
    cuda_launch_text(p, code, "twice", 1, 2048);
    return 1;
}
static int refused(const KArgs *a, Launches *p) {
    (void)a;
    (void)p;
    return 0;
}

static const CudaRow rows[] = {
    {"twice_plus", twice_plus}, {"mixed", mixed},       {"filled", filled},
    {"look_up", look_up},       {"called", called},     {"strays", strays},
    {"broken", broken},         {"no_entry", no_entry}, {"no_file", no_file},
    {"no_grid", no_grid},       {"refused", refused},   {"built_for", built_for},
    {"listed", listed},         {NULL, NULL},
};

const CudaRow *k_cuda_table(void) {
    return rows;
}

const CudaPair *k_cuda_pairs(void) {
    static const CudaPair none = {NULL, NULL, NULL};
    return &none;
}
