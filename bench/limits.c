/* limits.c - what this machine can do, measured beside everything else: multiply-adds in registers,
 * copies and triads, the BLAS that is installed, and the loops that an engineer would write by hand
 * for a fused operation. A shared object, called by rows/ through ctypes; OpenMP has the threads.
 *
 * The loops are plain C that the compiler turns into vectors (-O3 -march=native -ffast-math): exp
 * is a polynomial, inlined, each row of a matrix is read once and stays in the first cache. Where a
 * training step has a forward and a backward part they are two loops, as there is other work
 * between them. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __SSE2__
#    include <immintrin.h>
#endif

#if defined(__AVX512F__)
enum { WIDTH = 16 };
#elif defined(__AVX__)
enum { WIDTH = 8 };
#else
enum { WIDTH = 4 };
#endif
typedef float Vec __attribute__((vector_size(WIDTH * sizeof(float))));

/* Floats that are not all the same. Each buffer begins at another place of its page: loads wait for
 * stores to the same place of another page. */
void *limits_alloc(size_t bytes) {
    enum { PAGE = 4096, STEP = 256 };
    static size_t count;
    char *p = NULL;
    if (posix_memalign((void **)&p, PAGE, bytes + PAGE)) return NULL;
    size_t shift = STEP * (1 + count++ % 8); /* limits_free finds the begin of the page */
    float *at = (float *)(p + shift);
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < bytes / 4; i++) at[i] = 0.001f * (float)(i % 1009) - 0.4f;
    return at;
}

void limits_free(void *at) {
    free((void *)((uintptr_t)at & ~(uintptr_t)4095));
}

void limits_threads(int n) {
    omp_set_num_threads(n);
}

/* ---- arithmetic and memory
 * ------------------------------------------------------------------------ */

/* About that many multiply-adds, two FLOPs each, by every thread together; returns their exact
 * FLOPs. Enough chains that the latency of one hides behind the others. */
double limits_fma(double flops) {
    enum { CHAINS = 16 };
    int threads = omp_get_max_threads();
    int64_t rounds = (int64_t)(flops / (2.0 * WIDTH * CHAINS * threads)) + 1;
#pragma omp parallel
    {
        Vec c[CHAINS], a, b;
        for (int i = 0; i < WIDTH; i++) a[i] = 0.999f, b[i] = 1e-5f;
        for (int k = 0; k < CHAINS; k++) c[k] = a * (float)k;
        for (int64_t r = 0; r < rounds; r++) {
            /* Opaque to the compiler, which would otherwise simplify the recurrence. */
            __asm__ volatile("" : "+v"(a), "+v"(b));
#pragma GCC unroll 16
            for (int k = 0; k < CHAINS; k++) c[k] = c[k] * a + b;
        }
        float sum = 0;
        for (int k = 0; k < CHAINS; k++) sum += c[k][0];
        __asm__ volatile("" ::"x"(sum)); /* used */
    }
    return (double)rounds * 2 * WIDTH * CHAINS * threads;
}

/* The part of n elements that is this thread's. */
static void part_of(int64_t n, int64_t *lo, int64_t *hi) {
    int64_t threads = omp_get_num_threads(), i = omp_get_thread_num();
    int64_t step = ((n + threads - 1) / threads + 63) / 64 * 64;
    *lo = i * step < n ? i * step : n;
    *hi = *lo + step < n ? *lo + step : n;
}

void limits_memcpy(void *to, const void *from, int64_t bytes) {
#pragma omp parallel
    {
        int64_t lo, hi;
        part_of(bytes, &lo, &hi);
        if (hi > lo) memcpy((char *)to + lo, (const char *)from + lo, (size_t)(hi - lo));
    }
}

/* The sum, so that all of it is read; n is a multiple of 64. */
float limits_read(const float *from, int64_t n) {
    float sum = 0;
#pragma omp parallel reduction(+ : sum)
    {
        enum { SUMS = 8 };
        Vec s[SUMS] = {0};
        int64_t lo, hi, step = SUMS * WIDTH;
        part_of(n, &lo, &hi);
        for (int64_t i = lo; i + step <= hi; i += step)
            for (int k = 0; k < SUMS; k++) {
                Vec v;
                memcpy(&v, from + i + k * WIDTH, sizeof v);
                s[k] += v;
            }
        for (int k = 0; k < SUMS; k++) sum += s[k][0] + s[k][WIDTH - 1];
    }
    return sum;
}

static inline void store(float *to, Vec v, int streaming) {
#if defined(__AVX512F__)
    if (streaming) {
        _mm512_stream_ps(to, (__m512)v);
        return;
    }
#elif defined(__AVX__)
    if (streaming) {
        _mm256_stream_ps(to, (__m256)v);
        return;
    }
#endif
    memcpy(to, &v, sizeof v);
}

/* STREAM (McCalpin): a = b, and a = b + 3 c. Pointers of whole vectors; n is a multiple of 64. */
static inline void stream(float *a, const float *b, const float *c, int64_t n, int streaming) {
#pragma omp parallel
    {
        int64_t lo, hi;
        part_of(n, &lo, &hi);
        for (int64_t i = lo; i < hi; i += WIDTH) {
            Vec v, w;
            memcpy(&v, b + i, sizeof v);
            if (c) {
                memcpy(&w, c + i, sizeof w);
                v = v + 3.0f * w;
            }
            store(a + i, v, streaming);
        }
    }
}

void limits_copy(float *a, const float *b, int64_t n, int streaming) {
    if (streaming)
        stream(a, b, NULL, n, 1);
    else
        stream(a, b, NULL, n, 0);
}

void limits_triad(float *a, const float *b, const float *c, int64_t n, int streaming) {
    if (streaming)
        stream(a, b, c, n, 1);
    else
        stream(a, b, c, n, 0);
}

/* ---- BLAS
 * ----------------------------------------------------------------------------------------- */

typedef void Sgemm(int, int, int, int, int, int, float, const float *, int, const float *, int,
                   float, float *, int);
static Sgemm *sgemm;

/* The name of the kernels that OpenBLAS chose (OPENBLAS_CORETYPE forces them), or NULL without it.
 */
const char *limits_blas(int threads) {
    void *lib = dlopen("libopenblas.so.0", RTLD_NOW);
    if (!lib) return NULL;
    sgemm = (Sgemm *)dlsym(lib, "cblas_sgemm");
    void (*set)(int) = (void (*)(int))dlsym(lib, "openblas_set_num_threads");
    char *(*name)(void) = (char *(*)(void))dlsym(lib, "openblas_get_corename");
    if (!sgemm || !set || !name) return NULL;
    set(threads);
    return name();
}

/* y[m,n] = a b: a is [m,k], or [k,m] where ta; b is [k,n], or [n,k] where tb. */
void limits_gemm(float *y, const float *a, const float *b, int m, int n, int k, int ta, int tb) {
    sgemm(101, ta ? 112 : 111, tb ? 112 : 111, m, n, k, 1.0f, a, ta ? m : k, b, tb ? k : n, 0.0f, y,
          n);
}

/* ---- fused loops
 * ---------------------------------------------------------------------------------- */

/* exp to about 2 ulp (Cephes' polynomial), without a branch. */
static inline float exp_of(float x) {
    x = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    float n = rintf(x * 1.44269504f);
    float r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float y = 1.9875691500e-4f;
    y = y * r + 1.3981999507e-3f;
    y = y * r + 8.3334519073e-3f;
    y = y * r + 4.1665795894e-2f;
    y = y * r + 1.6666665459e-1f;
    y = y * r + 5.0000001201e-1f;
    y = y * r * r + r + 1.0f;
    union {
        int32_t i;
        float f;
    } scale = {((int32_t)n + 127) << 23};
    return y * scale.f;
}

/* gelu in its tanh form: x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3). */
static inline float gate_of(float x) {
    return 1.0f / (1.0f + exp_of(-1.5957691216f * (x + 0.044715f * x * x * x)));
}

void limits_gelu(float *restrict y, const float *restrict x, const float *restrict bias,
                 const float *restrict residual, int64_t rows, int64_t cols) {
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; r++)
#pragma omp simd
        for (int64_t c = 0; c < cols; c++) {
            int64_t i = r * cols + c;
            float v = x[i] + bias[c];
            y[i] = v * gate_of(v) + residual[i];
        }
}

/* Sums over rows are made by each thread for itself, and added in the end. */
enum { MOST_COLUMNS = 1 << 16 };
static float sums[2][64][MOST_COLUMNS];

static void add_sums(float *to, float (*from)[MOST_COLUMNS], int threads, int64_t cols) {
    for (int64_t c = 0; c < cols; c++) {
        float s = 0;
        for (int t = 0; t < threads; t++) s += from[t][c];
        to[c] = s;
    }
}

void limits_gelu_back(float *restrict dx, float *restrict dbias, const float *restrict x,
                      const float *restrict bias, const float *restrict dy, int64_t rows,
                      int64_t cols) {
    int threads = 1;
#pragma omp parallel
    {
        float *sum = sums[0][omp_get_thread_num()];
        memset(sum, 0, (size_t)cols * sizeof *sum);
#pragma omp single
        threads = omp_get_num_threads();
#pragma omp for schedule(static)
        for (int64_t r = 0; r < rows; r++)
#pragma omp simd
            for (int64_t c = 0; c < cols; c++) {
                int64_t i = r * cols + c;
                float v = x[i] + bias[c], s = gate_of(v);
                float slope = s + v * s * (1 - s) * 1.5957691216f * (1 + 0.134145f * v * v);
                float d = dy[i] * slope;
                dx[i] = d;
                sum[c] += d;
            }
    }
    add_sums(dbias, sums[0], threads, cols);
}

/* mu and nu corrected for their start at zero; decay beside the gradient. */
void limits_adamw(float *restrict p, const float *restrict g, float *restrict mu,
                  float *restrict nu, int64_t n, float lr, float b1, float b2, float eps,
                  float decay, int64_t step) {
    float c1 = 1 / (1 - powf(b1, (float)step)), c2 = 1 / (1 - powf(b2, (float)step));
#pragma omp parallel for simd schedule(static)
    for (int64_t i = 0; i < n; i++) {
        float m = b1 * mu[i] + (1 - b1) * g[i], v = b2 * nu[i] + (1 - b2) * g[i] * g[i];
        mu[i] = m;
        nu[i] = v;
        p[i] -= lr * (m * c1 / (sqrtf(v * c2) + eps) + decay * p[i]);
    }
}

/* Layer norm, or without a bias RMS norm. */
static inline void norm_stats(const float *x, int64_t cols, int rms, float *mean, float *rstd) {
    float sum = 0, squares = 0;
    if (!rms)
#pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < cols; c++) sum += x[c];
    float m = sum / (float)cols;
#pragma omp simd reduction(+ : squares)
    for (int64_t c = 0; c < cols; c++) squares += (x[c] - m) * (x[c] - m);
    *mean = m;
    *rstd = 1 / sqrtf(squares / (float)cols + 1e-5f);
}

void limits_norm(float *restrict y, const float *restrict x, const float *restrict scale,
                 const float *restrict bias, int64_t rows, int64_t cols) {
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        const float *in = x + r * cols;
        float *out = y + r * cols, mean, rstd;
        norm_stats(in, cols, !bias, &mean, &rstd);
        if (bias)
            for (int64_t c = 0; c < cols; c++) out[c] = (in[c] - mean) * rstd * scale[c] + bias[c];
        else
            for (int64_t c = 0; c < cols; c++) out[c] = in[c] * rstd * scale[c];
    }
}

void limits_norm_back(float *restrict dx, float *restrict dscale, float *restrict dbias,
                      const float *restrict x, const float *restrict scale,
                      const float *restrict dy, int64_t rows, int64_t cols) {
    int threads = 1;
#pragma omp parallel
    {
        float *ds = sums[0][omp_get_thread_num()], *db = sums[1][omp_get_thread_num()];
        memset(ds, 0, (size_t)cols * sizeof *ds);
        memset(db, 0, (size_t)cols * sizeof *db);
#pragma omp single
        threads = omp_get_num_threads();
#pragma omp for schedule(static)
        for (int64_t r = 0; r < rows; r++) {
            const float *in = x + r * cols, *d = dy + r * cols;
            float *out = dx + r * cols, mean, rstd, a = 0, b = 0;
            norm_stats(in, cols, !dbias, &mean, &rstd);
#pragma omp simd reduction(+ : a, b)
            for (int64_t c = 0; c < cols; c++) {
                float xhat = (in[c] - mean) * rstd, g = d[c] * scale[c];
                a += g;
                b += g * xhat;
                ds[c] += d[c] * xhat;
                db[c] += d[c];
            }
            a = dbias ? a / (float)cols : 0;
            b /= (float)cols;
            for (int64_t c = 0; c < cols; c++)
                out[c] = rstd * (d[c] * scale[c] - a - (in[c] - mean) * rstd * b);
        }
    }
    add_sums(dscale, sums[0], threads, cols);
    if (dbias) add_sums(dbias, sums[1], threads, cols);
}

static inline float largest_of(const float *x, int64_t cols) {
    float most = -INFINITY;
#pragma omp simd reduction(max : most)
    for (int64_t c = 0; c < cols; c++) most = x[c] > most ? x[c] : most;
    return most;
}

void limits_softmax(float *restrict y, const float *restrict x, int64_t rows, int64_t cols) {
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        const float *in = x + r * cols;
        float *out = y + r * cols, most = largest_of(in, cols), sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t c = 0; c < cols; c++) {
            out[c] = exp_of(in[c] - most);
            sum += out[c];
        }
        float scale = 1 / sum;
        for (int64_t c = 0; c < cols; c++) out[c] *= scale;
    }
}

void limits_softmax_back(float *restrict dx, const float *restrict y, const float *restrict dy,
                         int64_t rows, int64_t cols) {
#pragma omp parallel for schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        const float *p = y + r * cols, *d = dy + r * cols;
        float *out = dx + r * cols, dot = 0;
#pragma omp simd reduction(+ : dot)
        for (int64_t c = 0; c < cols; c++) dot += p[c] * d[c];
        for (int64_t c = 0; c < cols; c++) out[c] = p[c] * (d[c] - dot);
    }
}

/* The mean over rows of -log softmax(x)[label], and where dx is not NULL its gradient: one pass
 * over each row while it is in the cache. */
float limits_cross_entropy(float *restrict dx, const float *restrict x,
                           const int32_t *restrict labels, int64_t rows, int64_t cols) {
    float loss = 0;
#pragma omp parallel for schedule(static) reduction(+ : loss)
    for (int64_t r = 0; r < rows; r++) {
        const float *in = x + r * cols;
        float most = largest_of(in, cols), sum = 0;
        if (dx) {
            float *out = dx + r * cols;
#pragma omp simd reduction(+ : sum)
            for (int64_t c = 0; c < cols; c++) {
                out[c] = exp_of(in[c] - most);
                sum += out[c];
            }
            float scale = 1 / (sum * (float)rows);
            for (int64_t c = 0; c < cols; c++) out[c] *= scale;
            out[labels[r]] -= 1 / (float)rows;
        } else {
#pragma omp simd reduction(+ : sum)
            for (int64_t c = 0; c < cols; c++) sum += exp_of(in[c] - most);
        }
        loss += logf(sum) + most - in[labels[r]];
    }
    return loss / (float)rows;
}
