/* cast.c - runs of elements to and from registers (convert.h). */
#include "convert.h"

/* Contiguous runs, broadcast ones and the rest each get their own loop: the first two become vector
 * code. */
#define LOAD(name, Element, Register, convert)                                                     \
    static void name(void *dst_, const char *src, int64_t stride, int64_t n) {                     \
        Register *dst = dst_;                                                                      \
        const Element *p = (const Element *)src;                                                   \
        if (n <= 0) return;                                                                        \
        if (stride == (int64_t)sizeof *p) {                                                        \
            for (int64_t i = 0; i < n; i++) dst[i] = convert(p[i]);                                \
        } else if (stride == 0) {                                                                  \
            Register x = convert(*p);                                                              \
            for (int64_t i = 0; i < n; i++) dst[i] = x;                                            \
        } else {                                                                                   \
            for (int64_t i = 0; i < n; i++)                                                        \
                dst[i] = convert(*(const Element *)(src + i * stride));                            \
        }                                                                                          \
    }

#define STORE(name, Element, Register, convert)                                                    \
    static void name(char *dst, int64_t stride, const void *src_, int64_t n) {                     \
        const Register *src = src_;                                                                \
        Element *p = (Element *)dst;                                                               \
        if (stride == (int64_t)sizeof *p) {                                                        \
            for (int64_t i = 0; i < n; i++) p[i] = (Element)convert(src[i]);                       \
        } else {                                                                                   \
            for (int64_t i = 0; i < n; i++)                                                        \
                *(Element *)(dst + i * stride) = (Element)convert(src[i]);                         \
        }                                                                                          \
    }

#define SAME(x)     (x)
#define NOT_ZERO(x) ((x) != 0)

LOAD(load_u8, uint8_t, int32_t, SAME)
LOAD(load_u16, uint16_t, int32_t, SAME)
LOAD(load_i8, int8_t, int32_t, SAME)
LOAD(load_i16, int16_t, int32_t, SAME)
LOAD(load_u32, uint32_t, uint32_t, SAME)
LOAD(load_i64, int64_t, int64_t, SAME)
LOAD(load_e4m3, uint8_t, float, k_from_e4m3)
LOAD(load_e5m2, uint8_t, float, k_from_e5m2)
LOAD(load_bf16, uint16_t, float, k_from_bf16)
LOAD(load_f16, uint16_t, float, k_from_f16)
LOAD(load_f32, float, float, SAME)
LOAD(load_f64, double, double, SAME)
STORE(store_bool, uint8_t, int32_t, NOT_ZERO)
STORE(store_u8, uint8_t, int32_t, SAME)
STORE(store_u16, uint16_t, int32_t, SAME)
STORE(store_u32, uint32_t, uint32_t, SAME)
STORE(store_i64, int64_t, int64_t, SAME)
STORE(store_e4m3, uint8_t, float, k_to_e4m3)
STORE(store_e5m2, uint8_t, float, k_to_e5m2)
STORE(store_bf16, uint16_t, float, k_to_bf16)
STORE(store_f16, uint16_t, float, k_to_f16)
STORE(store_f32, float, float, SAME)
STORE(store_f64, double, double, SAME)

KLoadFn *k_load_fn(DType t) {
    static KLoadFn *const fn[DT_COUNT] = {
        [DT_BOOL] = load_u8, [DT_U8] = load_u8,     [DT_U16] = load_u16,   [DT_U32] = load_u32,
        [DT_U64] = load_i64, [DT_I8] = load_i8,     [DT_I16] = load_i16,   [DT_I32] = load_u32,
        [DT_I64] = load_i64, [DT_E4M3] = load_e4m3, [DT_E5M2] = load_e5m2, [DT_BF16] = load_bf16,
        [DT_F16] = load_f16, [DT_F32] = load_f32,   [DT_F64] = load_f64};
    return fn[t];
}

KStoreFn *k_store_fn(DType t) {
    static KStoreFn *const fn[DT_COUNT] = {
        [DT_BOOL] = store_bool, [DT_U8] = store_u8,     [DT_U16] = store_u16,
        [DT_U32] = store_u32,   [DT_U64] = store_i64,   [DT_I8] = store_u8,
        [DT_I16] = store_u16,   [DT_I32] = store_u32,   [DT_I64] = store_i64,
        [DT_E4M3] = store_e4m3, [DT_E5M2] = store_e5m2, [DT_BF16] = store_bf16,
        [DT_F16] = store_f16,   [DT_F32] = store_f32,   [DT_F64] = store_f64};
    return fn[t];
}

#define COPY_RUN(name, T)                                                                          \
    static void name(char *to, int64_t ts, const char *from, int64_t fs, int64_t n) {              \
        int64_t size = sizeof(T);                                                                  \
        if (n <= 0) return;                                                                        \
        if (ts == size && fs == size) {                                                            \
            memcpy(to, from, (size_t)(n * size));                                                  \
        } else if (ts == size && fs == 0) {                                                        \
            T x = *(const T *)(const void *)from;                                                  \
            for (int64_t i = 0; i < n; i++) ((T *)(void *)to)[i] = x;                              \
        } else {                                                                                   \
            for (int64_t i = 0; i < n; i++)                                                        \
                *(T *)(void *)(to + i * ts) = *(const T *)(const void *)(from + i * fs);           \
        }                                                                                          \
    }
COPY_RUN(copy_1, uint8_t)
COPY_RUN(copy_2, uint16_t)
COPY_RUN(copy_4, uint32_t)
COPY_RUN(copy_8, uint64_t)

void k_copy_run(int64_t size, char *to, int64_t ts, const char *from, int64_t fs, int64_t n) {
    if (size == 1)
        copy_1(to, ts, from, fs, n);
    else if (size == 2)
        copy_2(to, ts, from, fs, n);
    else if (size == 4)
        copy_4(to, ts, from, fs, n);
    else
        copy_8(to, ts, from, fs, n);
}
