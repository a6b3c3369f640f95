/* matmul.cu - y[b, i, j] = sum over l of x[b, i, l] * w[b, l, j], for every dtype and any strides:
 * what the library does not take. Each role's position is row-major over the dims of that role.
 *
 * A block makes tiles of y of TILE x TILE, 4 x 4 elements a thread, from strips of DEPTH of both
 * operands in shared memory. An element that was read takes part in 64 products, so that shared
 * memory is the limit: 8 reads for 16 products. Sums run over l from 0 on, one after the other: the
 * bits depend on nothing else.
 *
 * IN, OUT: types of elements. SUM: in which to add up; integers without sign, so that they wrap. */
#include "device.cuh"

struct Operand {
    View batch, row, column;
};
struct Product {
    Operand x, w, y;
    i64 batch, m, n, k;
};

enum { TILE = 64, DEPTH = 16, THREADS = 256, PART = TILE * DEPTH / THREADS, EACH = 4 };

/* A thread's part of a strip of TILE lines (rows of x, columns of w) of DEPTH elements: PART of
 * them, so that a warp's lie next to each other if those along `depth`, or else along `line`, do.
 * What is outside is 0. */
struct Strip {
    int line, line_step, depth, depth_step;

    DEVICE Strip(const View &lines, const View &depths) {
        i64 apart = lines.rank > 0 ? lines.strides[lines.rank - 1] : 0,
            deep = depths.rank > 0 ? depths.strides[depths.rank - 1] : 0;
        bool along =
            apart == 0 || (deep != 0 && (deep < 0 ? -deep : deep) < (apart < 0 ? -apart : apart));
        int t = (int)threadIdx.x;
        line = along ? t / DEPTH : t % TILE;
        depth = along ? t % DEPTH : t / TILE;
        line_step = along ? THREADS / DEPTH : 0;
        depth_step = along ? 0 : THREADS / TILE;
    }
    DEVICE void read(const IN *from, const View &lines, i64 first, i64 n, const View &depths,
                     i64 at, i64 k, SUM to[DEPTH][TILE + 1]) const {
#pragma unroll
        for (int i = 0; i < PART; i++) {
            int r = line + i * line_step, c = depth + i * depth_step;
            SUM value = 0;
            if (first + r < n && at + c < k)
                value = (SUM)widen(*depths.at(lines.at(from, first + r), at + c));
            to[c][r] = value;
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS)
    matmul(const IN *x, const IN *w, OUT *y, Product p) {
    __shared__ SUM xs[DEPTH][TILE + 1], ws[DEPTH][TILE + 1];
    int row = (int)threadIdx.x / (TILE / EACH), column = (int)threadIdx.x % (TILE / EACH);
    Strip of_x(p.x.row, p.x.column), of_w(p.w.column, p.w.row);
    i64 down = (p.m + TILE - 1) / TILE, across = (p.n + TILE - 1) / TILE;
    for (i64 tile = blockIdx.x; tile < down * across * p.batch; tile += gridDim.x) {
        i64 b = tile / (down * across), first = tile / across % down * TILE,
            left = tile % across * TILE;
        const IN *xb = p.x.batch.at(x, b), *wb = p.w.batch.at(w, b);
        SUM sum[EACH][EACH] = {};
        for (i64 at = 0; at < p.k; at += DEPTH) {
            of_x.read(xb, p.x.row, first, p.m, p.x.column, at, p.k, xs);
            of_w.read(wb, p.w.column, left, p.n, p.w.row, at, p.k, ws);
            __syncthreads();
#pragma unroll
            for (int l = 0; l < DEPTH; l++)
#pragma unroll
                for (int i = 0; i < EACH; i++)
#pragma unroll
                    for (int j = 0; j < EACH; j++)
                        sum[i][j] = math::fma(xs[l][row + i * (TILE / EACH)],
                                              ws[l][column + j * (TILE / EACH)], sum[i][j]);
            __syncthreads();
        }
        OUT *yb = p.y.batch.at(y, b);
#pragma unroll
        for (int i = 0; i < EACH; i++)
#pragma unroll
            for (int j = 0; j < EACH; j++) {
                i64 r = first + row + i * (TILE / EACH), c = left + column + j * (TILE / EACH);
                if (r < p.m && c < p.n)
                    *p.y.column.at(p.y.row.at(yb, r), c) = narrow<OUT>((Compute<OUT>)sum[i][j]);
            }
    }
}
