/* algorithm.h - which of cublasLt's algorithms makes a product: its own guess, or the fastest of
 * its best guesses on this GPU.
 *
 * Algorithms may add up in different orders, so a choice must be the same in every run and in every
 * process: what was timed counts only once it stands in the folder, where the first to write it
 * wins, and everybody reads it there. Without a folder that can be written nothing is timed. Hosts
 * that do not share a folder may choose differently: docs/products.md. */
#ifndef MESHLUA_CUDA_ALGORITHM_H
#define MESHLUA_CUDA_ALGORITHM_H

#include "cuda/api.h"

#include <cublasLt.h>

#define API_CUBLASLT(F)                                                                            \
    F(cublasLtCreate)                                                                              \
    F(cublasLtDestroy)                                                                             \
    F(cublasLtGetStatusString)                                                                     \
    F(cublasLtGetVersion)                                                                          \
    F(cublasLtMatmul)                                                                              \
    F(cublasLtMatmulAlgoCheck)                                                                     \
    F(cublasLtMatmulAlgoGetHeuristic)                                                              \
    F(cublasLtMatmulDescCreate)                                                                    \
    F(cublasLtMatmulDescDestroy)                                                                   \
    F(cublasLtMatmulDescSetAttribute)                                                              \
    F(cublasLtMatmulPreferenceCreate)                                                              \
    F(cublasLtMatmulPreferenceDestroy)                                                             \
    F(cublasLtMatmulPreferenceSetAttribute)                                                        \
    F(cublasLtMatrixLayoutCreate)                                                                  \
    F(cublasLtMatrixLayoutDestroy)                                                                 \
    F(cublasLtMatrixLayoutSetAttribute)

typedef struct ApiCublasLt {
    API_CUBLASLT(API_MEMBER)
} ApiCublasLt;

enum { ALGORITHM_CANDIDATES = 8, ALGORITHM_KEY = 448 };

typedef struct Algorithm {
    cublasLtMatmulAlgo_t algo;
    size_t workspace; /* bytes that it needs */
    int apart;        /* it is none of the library's: the same by several kernels */
} Algorithm;

/* All that decides which algorithm is the best: the shape in text, and the descriptors. */
typedef struct AlgorithmQuery {
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, d;
    uint32_t alignment; /* bytes, of all addresses */
    int may_part;       /* `apart` is one of its candidates */
    char key[ALGORITHM_KEY];
} AlgorithmQuery;

/* Runs the product once by that algorithm; a status of cublasLt. */
typedef cublasStatus_t AlgorithmRun(void *state, const Algorithm *by);

typedef struct AlgorithmKnown { /* by key */
    struct AlgorithmKnown *next;
    Algorithm chosen;
    char key[ALGORITHM_KEY];
} AlgorithmKnown;

typedef struct Algorithms {
    const ApiCudart *rt;
    const ApiCublasLt *lt;
    cublasLtHandle_t handle;
    uint64_t workspace; /* bytes that an algorithm may ask for */
    const char *folder; /* or NULL */
    AlgorithmKnown *known;
} Algorithms;

/* What is known for the key, in memory or in the folder. */
int algorithm_find(Algorithms *all, const AlgorithmQuery *q, Algorithm *out);
/* cublasLt's best guesses, the best first. Returns how many. */
int algorithm_candidates(Algorithms *all, const AlgorithmQuery *q,
                         Algorithm out[ALGORITHM_CANDIDATES]);
/* Chooses among n > 0 candidates (those of the library, and one more), and knows it from then on.
 * Times them if `stream` is not being captured: `run` is called many times, and must not read what
 * it writes. */
Algorithm algorithm_choose(Algorithms *all, const AlgorithmQuery *q, const Algorithm *candidate,
                           int n, AlgorithmRun *run, void *state, cudaStream_t stream);
void algorithm_forget(Algorithms *all);

#endif
