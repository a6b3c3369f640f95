/* attention_args.cuh - what the kernels of attention are told by value. Plain C: rows fill it in,
 * device code reads it. */
#ifndef MESHLUA_CUDA_ATTENTION_ARGS_CUH
#define MESHLUA_CUDA_ATTENTION_ARGS_CUH

/* Bytes between neighbours of a tensor [batch, row, head, depth]. */
typedef struct AttentionSteps {
    long long batch, row, head, element;
} AttentionSteps;

typedef struct AttentionArgs {
    int batches, queries, heads, keys, groups, depth;
    int causal;
    int padded; /* queries in whole tiles: between heads of `base` and `delta`
                 * (attention_grad.cu) */
    double scale;
    AttentionSteps q, k, v, y, dy, dq, dk, dv;
    long long lse[3]; /* bytes, of [batch, head, query] */
    /* masked_attention: the mask [batch, head, query, key] in bytes, dropout's
     * counter in elements */
    long long mask[4], key, counter[4];
    unsigned long long first;
    double keep;
    unsigned below; /* kept where random bits >> 9 < below */
} AttentionArgs;

#endif
