/* row.h - the contract between the rows of the CUDA kernels and what launches them (host/cuda).
 *
 * A family is two files of one base name, that of the CPU's family: softmax.cu has device code,
 * softmax.c rows, which say for given operands which functions of it run, on which grid, with which
 * parameters. Device code is text to the program: it is compiled by NVRTC for the GPU that is
 * there, once for each set of `defines`, and cached. What is compiled in should be few things
 * (dtypes, tile sizes, a vector width); dims and strides are parameters, so that few variants are
 * compiled.
 *
 * Rows are plain C and include this header only. They read dtypes, dims, strides, attr and offsets,
 * never data. What they decide depends on the operands alone, never on the number of processors,
 * wherever it could change the bits of a result. */
#ifndef MESHLUA_CUDA_ROW_H
#define MESHLUA_CUDA_ROW_H

#include "kernel.h"

typedef struct Launches Launches;

typedef struct CudaGpu { /* for choices that do not change results */
    int32_t major, minor;
    int32_t processors;
    size_t shared; /* bytes of shared memory that a block may ask for */
    int32_t wgmma; /* whether attention goes through wgmma, which it has */
} CudaGpu;

typedef struct CudaRow {
    const char *name; /* as in the CPU's table */
    /* Adds to `p` what is launched. 0: the kernel does not take these operands. */
    int (*add)(const KArgs *args, Launches *p);
} CudaRow;

/* ---- what a row calls. Running out of memory is kept and found by its reader ---- */

const CudaGpu *cuda_gpu(const Launches *p);

/* Opens a launch of function `entry` of device code `file` ("softmax.cu"), with so many blocks
 * (x; any number from 0 on: with 0 nothing is launched; kernels whose blocks exceed 2^31 - 1 loop)
 * and threads in a block. What follows belongs to it. Launches run in the order in which they were
 * opened. */
void cuda_launch(Launches *p, const char *file, const char *entry, int64_t blocks, int threads);
/* The same for generated device code; the text is copied. */
void cuda_launch_text(Launches *p, const char *text, const char *entry, int64_t blocks,
                      int threads);
void cuda_grid(Launches *p, int64_t y, int64_t z); /* the other two; 1 unless said */
void cuda_shared(Launches *p, size_t bytes);       /* dynamic shared memory of a block */
/* "#define NAME value" in front of the device code. */
void cuda_define(Launches *p, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* "#define NAME float" and the like: the name in device code of the type of an element. */
void cuda_define_type(Launches *p, const char *name, DType t);

/* The function's parameters, in order. */
void cuda_operand(Launches *p, int k);                   /* T *: operand k: inputs, then outputs */
void cuda_operand_at(Launches *p, int k, int64_t bytes); /* so many bytes into it */
/* char *[room]: the n operands from k on. */
void cuda_operands(Launches *p, int k, int n, int room);
void cuda_scratch(Launches *p, size_t at); /* char *: that far in the scratch */
void cuda_fault(Launches *p);              /* Fault, by value: see device.cuh */
void cuda_i32(Launches *p, int32_t x);
void cuda_i64(Launches *p, int64_t x);
void cuda_f32(Launches *p, float x);
void cuda_f64(Launches *p, double x);
void cuda_bytes(Launches *p, const void *x, size_t size); /* a struct by value; copied */

/* Scratch that is kept apart from what the step's other launches have: where it begins. */
size_t cuda_take_scratch(Launches *p, size_t bytes);
/* So many bytes of an operand, or of scratch, become `byte` before the next launch. */
void cuda_fill(Launches *p, int k, int64_t bytes, int byte);
void cuda_fill_scratch(Launches *p, size_t at, size_t bytes, int byte);

/* A library's call instead of a launch. `call` gets the addresses of the operands (inputs, then
 * outputs), the scratch and the stream (cudaStream_t); 1, or 0 with a text in `error`. `drop` (or
 * NULL) frees the state. */
typedef int CudaCall(void *state, char *const *address, char *scratch, void *stream, char *error,
                     size_t size);
void cuda_call(Launches *p, const char *what, CudaCall *call, void *state,
               void (*drop)(void *state));

/* A matrix in an operand: element (i, j) is i * leading + j elements from the first one, of a
 * transposed one j * leading + i. */
typedef struct CudaMatrix {
    int32_t operand; /* inputs, then outputs */
    int32_t transposed;
    int64_t leading;             /* at least the length of what lies next to each other */
    int64_t batch;               /* elements from one matrix to the next; 0: all see one */
    int64_t strides[K_MAX_RANK]; /* the same for the dims around: any */
} CudaMatrix;

/* What the library makes of a product before it stores it. */
typedef enum CudaActivation {
    CUDA_NONE,
    CUDA_GELU, /* in its form with tanh; `aux` gets what it is of */
    CUDA_DGELU /* times gelu's slope at `aux` */
} CudaActivation;

/* Operands as the product counts them; 0, which is x's, stands for none. */
typedef struct CudaEpilogue {
    CudaActivation activation;
    float alpha, beta;
    int32_t c, aux; /* they lie as y does; c may be y */
    int32_t bias;   /* n elements of y's type */
    int32_t sums;   /* an output, of n elements of y's type: the sums of w's columns */
} CudaEpilogue;

/* y[m, n] = activation(alpha x[m, k] w[k, n] + beta c[m, n] + bias[n]) for each of `batch` matrices
 * at each position of the dims around. With a bias, an activation or sums there is one matrix. */
typedef struct CudaProduct {
    DType in, out; /* floats; `out` is `in`, or float32 */
    int64_t m, n, k, batch;
    int32_t rank; /* of the dims around */
    int64_t dims[K_MAX_RANK];
    CudaMatrix x, w, y;
    CudaEpilogue after;
} CudaProduct;

/* The library's product. 0: it does not take it, and nothing was added. */
int cuda_product(Launches *p, const CudaProduct *q);

/* Two kernels done as one: input `to` of the second is operand `from` of the first (inputs, then
 * outputs), which nobody else reads if it is an output. Operands are the inputs of the first, those
 * of the second, then the outputs of both. 0: there is no such way, and nothing was added. */
typedef struct CudaPair {
    const char *first, *second;
    int (*add)(const KArgs *first, const KArgs *second, int32_t from, int32_t to, Launches *p);
} CudaPair;

/* The list ends with one whose names are NULL. */
const CudaPair *k_cuda_pairs(void);

/* All rows; the table ends with one whose name is NULL. */
const CudaRow *k_cuda_table(void);

#endif
