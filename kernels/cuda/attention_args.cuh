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
    /* dropout: between the words of the key in bytes, its counter in elements */
    long long key, counter[4];
    unsigned long long first;
    double keep;
    unsigned below; /* kept where random bits >> 9 < below */
    /* options: bytes between neighbours of [batch, head, query, key], of [batch, row], of
     * [batch] */
    long long mask[4], bias[4], dbias[4], query_ids[2], key_ids[2], lengths, query_lengths, offset;
    int bias_type;   /* as KIND_... of attention.cuh */
    int left, right; /* at most 2^30 */
    long long row,
        ahead; /* the first query's number, and its place among the keys without offset */
    double soft_cap;
} AttentionArgs;

#endif
