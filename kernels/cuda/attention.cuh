/* attention.cuh - what all kernels of attention share: a head's rows, what a query sees, dropout.
 *
 * Defined in front: ELEMENT, a type, and KEY_ELEMENT, that of keys and values; GENERAL, whether
 * there may be more options than causal and dropout; DROPS, whether there is dropout. */
#ifndef MESHLUA_CUDA_ATTENTION_CUH
#define MESHLUA_CUDA_ATTENTION_CUH

#include "attention_args.cuh"
#include "device.cuh"
#include "threefry.cuh"

typedef ELEMENT Element;
typedef KEY_ELEMENT KeyElement;
typedef Compute<Element> Real;

/* One head's [rows, depth]. */
template <class T> struct RowsOf {
    char *first;
    i64 row, element;
    bool wide; /* 16 bytes at a time */

    DEVICE RowsOf(const void *tensor, const AttentionSteps &by, int depth, int batch, int head)
        : first((char *)tensor + batch * by.batch + head * by.head), row(by.row),
          element(by.element) {
        constexpr int vector = 16 / sizeof(T);
        wide = element == sizeof(T) && depth % vector == 0 && ((u64)first | (u64)row) % 16 == 0;
    }
    DEVICE T *at(int i, int d) const { return (T *)(first + i * row + d * element); }
};
typedef RowsOf<Element> Rows;
typedef RowsOf<KeyElement> KeyRows;

/* The options' operands, in the order of KAttentionOption; nullptr: not there. */
struct Options {
    const char *mask, *key, *bias, *lengths, *query_lengths, *offset, *query_ids, *key_ids;
};
#define OPTION_PARAMS                                                                              \
    const char *mask, const char *key, const char *bias, const char *lengths,                      \
        const char *query_lengths, const char *offset, const char *query_ids, const char *key_ids
#define OPTIONS                                                                                    \
    Options {                                                                                      \
        mask, key, bias, lengths, query_lengths, offset, query_ids, key_ids                        \
    }

enum { KIND_F32, KIND_F64, KIND_BF16, KIND_F16 }; /* of a bias */

DEVICE Real bias_read(const char *p, int kind) {
    if (kind == KIND_BF16) return widen(*(const bf16 *)p);
    if (kind == KIND_F16) return widen(*(const f16 *)p);
    return kind == KIND_F64 ? (Real) * (const double *)p : (Real) * (const float *)p;
}
DEVICE void bias_write(char *p, int kind, Real x) {
    if (kind == KIND_BF16)
        *(bf16 *)p = narrow<bf16>((float)x);
    else if (kind == KIND_F16)
        *(f16 *)p = narrow<f16>((float)x);
    else if (kind == KIND_F64)
        *(double *)p = x;
    else
        *(float *)p = (float)x;
}

/* A stretch of keys, or of queries. */
struct Span {
    int first, end;
};

DEVICE float cap_tanh(float x) {
    return tanhf(x);
}
DEVICE double cap_tanh(double x) {
    return tanh(x);
}

/* What the queries of a head see, and what dropout keeps of it. By their places, queries before
 * `rows` see keys before `keys`, from place + t - left on, to place + t + right. */
struct Sight {
    const AttentionArgs &a;
    const char *mask, *bias, *query_ids, *key_ids;
    int place, left, right, keys, rows;
    u32 k0, k1, below;
    u64 first, query, key;

    DEVICE Sight(const AttentionArgs &args, const Options &o, int batch, int head) : a(args) {
        keys = a.keys, rows = a.queries;
        if (GENERAL) {
            mask = o.mask ? o.mask + batch * a.mask[0] + head * a.mask[1] : nullptr;
            bias = o.bias ? o.bias + batch * a.bias[0] + head * a.bias[1] : nullptr;
            query_ids = o.query_ids ? o.query_ids + batch * a.query_ids[0] : nullptr;
            key_ids = o.key_ids ? o.key_ids + batch * a.key_ids[0] : nullptr;
            left = a.left, right = a.right;
            i64 at = o.offset ? *(const i32 *)(o.offset + batch * a.offset) : a.ahead;
            place = (int)max((i64) - (1 << 30), min((i64)(1 << 30) - 1, at + a.row));
            if (o.lengths) keys = max(0, min(keys, *(const i32 *)(o.lengths + batch * a.lengths)));
            if (o.query_lengths) {
                i64 n = *(const i32 *)(o.query_lengths + batch * a.query_lengths) - a.row;
                rows = (int)max((i64)0, min((i64)rows, n));
            }
        }
        if (DROPS) {
            k0 = *(const u32 *)o.key, k1 = *(const u32 *)(o.key + a.key), below = a.below;
            first = a.first + batch * (u64)a.counter[0] + head * (u64)a.counter[1];
            query = (u64)a.counter[2], key = (u64)a.counter[3];
        }
    }
    /* Query t sees the keys from the first one on, before the second one, as far as mask and
     * segments let it. */
    DEVICE int first_key(int t) const {
        return GENERAL ? (int)max((i64)0, min((i64)keys, (i64)place + t - left)) : 0;
    }
    DEVICE int before(int t) const {
        if (!GENERAL) return a.causal ? max(0, min(keys, t + 1 + keys - rows)) : keys;
        return t < rows ? (int)max((i64)0, min((i64)keys, (i64)place + t + right + 1)) : 0;
    }
    /* The keys that some of the queries [t, end) see. */
    DEVICE Span of_queries(int t, int end) const {
        int last = min(end, rows) - 1;
        return last < t ? Span{0, 0} : Span{first_key(t), before(last)};
    }
    /* The queries that see some of the keys [s, end). */
    DEVICE Span of_keys(int s, int end) const {
        if (!GENERAL) return Span{a.causal ? max(0, s + rows - keys) : 0, rows};
        int last = min(end, keys) - 1;
        if (last < s) return Span{0, 0};
        i64 from = (i64)s - right - place, to = (i64)last + left - place + 1;
        return Span{(int)max((i64)0, min((i64)rows, from)), (int)max((i64)0, min((i64)rows, to))};
    }
    /* Do some of the queries [t, end) see some of the keys [s, s + n)? */
    DEVICE bool meet(int t, int end, int s, int n) const {
        Span seen = of_queries(t, end);
        return s < seen.end && s + n > seen.first;
    }
    /* Do all of the queries [t, end) see all the keys [s, s + n)? */
    DEVICE bool all_see(int t, int end, int s, int n) const {
        if (!GENERAL) return s + n <= before(t);
        return !mask && !query_ids && end <= rows && s >= first_key(end - 1) && s + n <= before(t);
    }
    DEVICE bool sees(int t, int s) const {
        if (!GENERAL) return t < rows && s < before(t);
        int far = s - (place + t);
        if (far > right || -far > left || s >= keys || t >= rows) return false;
        if (query_ids && *(const i32 *)(query_ids + t * a.query_ids[1]) !=
                             *(const i32 *)(key_ids + s * a.key_ids[1]))
            return false;
        return !mask || mask[t * a.mask[2] + s * a.mask[3]];
    }
    /* The score of a product times the scale; what that does to a gradient goes to *slope. */
    DEVICE Real score(Real x, int t, int s, Real *slope) const {
        *slope = 1;
        if (!GENERAL) return x;
        if (a.soft_cap != 0) {
            Real cap = (Real)a.soft_cap, u = cap_tanh(x / cap);
            x = cap * u;
            *slope = 1 - u * u;
        }
        if (bias) x += bias_read(bias + t * a.bias[2] + s * a.bias[3], a.bias_type);
        return x;
    }
    DEVICE bool plain_scores() const { return !GENERAL || (a.soft_cap == 0 && !bias); }
    DEVICE bool keeps(int t, int s) const {
        return !DROPS || random_u32(k0, k1, first + t * query + s * key) >> 9 < below;
    }
};

#define LOG2_E   1.4426950408889634f
#define INFINITE __int_as_float(0x7f800000)

#endif
