/* reduce.c - rows of reduce.cu.
 *
 * The dims fall into two groups, each sorted by x's strides and merged where possible. If x runs
 * along a kept dim, neighbouring outputs are made together (columns), else a row of x gives one. */
#include "reduce.h"

enum {
    BLOCK = 256,
    WAVE = 396,    /* blocks that run at a time: three for each of an H200's processors, whose
                      registers have no room for a fourth one where x is of 16 bits */
    PART = 8192,   /* bytes of x that a block has at least, before there are parts */
    FLIGHT = 64,   /* bytes on their way to a thread */
    LONG = 32 * 16 /* vectors of an output from which on a block makes it */
};

typedef enum Op { SUM, SQUARES, MAX, MIN, ALL, ANY } Op;

/* What one launch, or two, reduce. */
typedef struct Reduction {
    Op op;
    DType in, out;
    DType type;          /* what is computed in is that of this type */
    int kept_rank, rank; /* of the reduced dims */
    int64_t kept[K_MAX_RANK], dims[K_MAX_RANK];
    int64_t kept_strides[2][K_MAX_RANK], strides[1][K_MAX_RANK]; /* x, y; x */
    int64_t outputs, positions;
} Reduction;

static Reduction describe(const KArgs *a, Op op) {
    const KTensor *x = &a->in[0], *y = &a->out[0];
    const KReduce *attr = a->attr;
    Reduction r = {
        .op = op, .in = x->dtype, .out = y->dtype, .type = x->dtype, .outputs = 1, .positions = 1};
    for (int d = 0; d < x->rank; d++) {
        if (attr->reduced[d]) {
            r.strides[0][r.rank] = x->strides[d];
            r.dims[r.rank++] = x->dims[d];
            r.positions *= x->dims[d];
        } else {
            r.kept_strides[0][r.kept_rank] = x->strides[d];
            r.kept_strides[1][r.kept_rank] = y->strides[d];
            r.kept[r.kept_rank++] = x->dims[d];
            r.outputs *= x->dims[d];
        }
    }
    cuda_sort_dims(r.kept_rank, r.kept, 2, r.kept_strides);
    cuda_sort_dims(r.rank, r.dims, 1, r.strides);
    r.kept_rank = cuda_collapse(r.kept_rank, r.kept, 2, r.kept_strides);
    r.rank = cuda_collapse(r.rank, r.dims, 1, r.strides);
    return r;
}

static int runs_by_columns(const Reduction *r) {
    if (r->kept_rank == 0) return 0;
    int64_t run = r->rank ? r->dims[r->rank - 1] : 1,
            along = r->rank ? r->strides[0][r->rank - 1] : 0;
    int64_t kept = r->kept_strides[0][r->kept_rank - 1];
    return run == 1 || cuda_magnitude(kept) < cuda_magnitude(along);
}

/* ---- what is computed in -------------------------------------------------------------------- */
static const char *accumulator(const Reduction *r) {
    switch (r->type) {
    case DT_E4M3:
    case DT_E5M2:
    case DT_BF16:
    case DT_F16:
    case DT_F32: return "float";
    case DT_F64: return "double";
    case DT_I64: return r->op == SUM ? "u64" : "i64"; /* sums wrap */
    case DT_U64: return "u64";
    case DT_U32: return "u32";
    default: return r->op == SUM ? "u32" : "i32";
    }
}
static int64_t accumulator_size(DType t) {
    return cuda_size(t) == 8 ? 8 : 4;
}

/* What reducing nothing gives. */
static const char *none(Op op, DType t) {
    static const char *const lowest[DT_COUNT] = {[DT_I8] = "-128",
                                                 [DT_I16] = "-32768",
                                                 [DT_I32] = "(-2147483647 - 1)",
                                                 [DT_I64] = "(-9223372036854775807 - 1)"};
    static const char *const highest[DT_COUNT] = {
        [DT_BOOL] = "1",          [DT_U8] = "255",         [DT_U16] = "65535",
        [DT_U32] = "4294967295u", [DT_U64] = "~0ull",      [DT_I8] = "127",
        [DT_I16] = "32767",       [DT_I32] = "2147483647", [DT_I64] = "9223372036854775807"};
    int floats = k_dtype_is_float(t);
    switch (op) {
    case MAX: return floats ? "-math::infinity<ACC>()" : lowest[t] ? lowest[t] : "0";
    case MIN: return floats ? "math::infinity<ACC>()" : highest[t];
    case ALL: return t == DT_BOOL ? "1" : "(ACC)-1";
    default: return "0";
    }
}

/* `second`: of the parts of the first. */
static void define(Launches *p, const Reduction *r, int first, int second, int vector, int per) {
    static const char *const op[] = {"Add", "Add", "Higher", "Lower", "Both", "Either"};
    const char *acc = accumulator(r);
    cuda_define(p, "ACC", "%s", acc);
    if (second)
        cuda_define(p, "IN", "%s", acc);
    else
        cuda_define_type(p, "IN", r->in);
    if (first)
        cuda_define(p, "OUT", "%s", acc);
    else
        cuda_define_type(p, "OUT", r->out);
    cuda_define(p, "OP", "%s", op[r->op]);
    cuda_define(p, "NONE", "%s", none(r->op, r->type));
    cuda_define(p, "SQUARES", "%d", r->op == SQUARES && !second);
    cuda_define(p, "VEC", "%d", vector);
    cuda_define(p, "PER", "%d", per);
}

static int per_thread(int vector, int64_t size) {
    return (int)cuda_most(1, cuda_least(FLIGHT / (vector * size), 8));
}

/* Where a launch reads and writes: an operand, or scratch. */
typedef struct Place {
    int operand; /* -1: scratch */
    size_t scratch;
} Place;

static void pass(Launches *p, Place at) {
    if (at.operand >= 0)
        cuda_operand(p, at.operand);
    else
        cuda_scratch(p, at.scratch);
}

/* ---- by rows -------------------------------------------------------------------------------- */
typedef struct ReduceRows { /* reduce.cu's */
    CudaView kept, reduced, out;
    int64_t results, parts, positions;
} ReduceRows;

static void launch_rows(Launches *p, const Reduction *r, const ReduceRows *rows, int first,
                        int second, Place from, Place to) {
    int64_t size = second ? accumulator_size(r->type) : cuda_size(r->in);
    int last = rows->reduced.rank - 1, vector = 1;
    if (last >= 0 && rows->reduced.strides[last] == size) {
        vector = cuda_vector(rows->reduced.dims[last], size, last, rows->reduced.strides);
        int other = cuda_vector(0, size, rows->kept.rank, rows->kept.strides);
        if (other < vector) vector = other;
    }
    int64_t vectors = cuda_ceil_div(rows->positions, vector * rows->parts);
    int per = per_thread(vector, size);
    int lanes = vectors > LONG
                    ? 0
                    : cuda_power_of_2(cuda_least(32, cuda_most(1, cuda_ceil_div(vectors, per))));
    int64_t teams = lanes ? BLOCK / lanes : 1;
    cuda_launch(p, "reduce.cu", "rows", cuda_ceil_div(rows->results, teams), BLOCK);
    define(p, r, first, second, vector, per);
    cuda_define(p, "LANES", "%d", lanes);
    cuda_define(p, "BLOCK", "%d", BLOCK);
    cuda_define(p, "FLAT", "%d", rows->reduced.rank <= 1);
    pass(p, from);
    pass(p, to);
    cuda_bytes(p, rows, sizeof *rows);
}

/* How many parts make `blocks` blocks, that read so many bytes each, enough for all processors. */
static int64_t parts_of(int64_t blocks, int64_t bytes) {
    if (blocks == 0 || blocks >= WAVE / 2) return 1;
    return cuda_most(1, cuda_least(WAVE / blocks, bytes / PART));
}

static void by_rows(Launches *p, const Reduction *r) {
    int64_t size = accumulator_size(r->type);
    ReduceRows rows = {.kept = cuda_view(r->kept_rank, r->kept, r->kept_strides[0]),
                       .reduced = cuda_view(r->rank, r->dims, r->strides[0]),
                       .out = cuda_view(r->kept_rank, r->kept, r->kept_strides[1]),
                       .results = r->outputs,
                       .parts = parts_of(r->outputs, r->positions * cuda_size(r->in)),
                       .positions = r->positions};
    Place x = {.operand = 0}, y = {.operand = 1};
    if (rows.parts == 1) {
        launch_rows(p, r, &rows, 0, 0, x, y);
        return;
    }
    int64_t row = rows.parts * size;
    ReduceRows again = {.kept = cuda_view(1, &r->outputs, &row),
                        .reduced = cuda_view(1, &rows.parts, &size),
                        .out = rows.out,
                        .results = r->outputs,
                        .parts = 1,
                        .positions = rows.parts};
    Place parts = {-1, cuda_take_scratch(p, (size_t)(r->outputs * row))};
    rows.results = r->outputs * rows.parts;
    rows.out = cuda_view(1, &rows.results, &size);
    launch_rows(p, r, &rows, 1, 0, x, parts);
    launch_rows(p, r, &again, 0, 1, parts, y);
}

/* ---- by columns ----------------------------------------------------------------------------- */
typedef struct Columns { /* reduce.cu's */
    CudaView lines, reduced, out;
    int64_t columns, tiles, parts, positions;
    int64_t step, out_step;
} Columns;

/* How wide a block is, for columns in vectors: few where there are few columns, or few blocks. */
static int block_width(int64_t vectors, int64_t lines, int second) {
    int across = cuda_power_of_2(cuda_least(vectors, 32));
    while (second && across > 4 && lines * cuda_ceil_div(vectors, across) < WAVE / 4) across /= 2;
    return across;
}

static int column_vector(const Columns *c, int64_t size) {
    if (c->step != 1 && c->columns > 1) return 1;
    int vector = cuda_vector(c->columns, size, c->lines.rank, c->lines.strides);
    int other = cuda_vector(0, size, c->reduced.rank, c->reduced.strides);
    return other < vector ? other : vector;
}

static void launch_columns(Launches *p, const Reduction *r, Columns *c, int64_t lines, int vector,
                           int first, int second, Place from, Place to) {
    int64_t size = second ? accumulator_size(r->type) : cuda_size(r->in);
    int64_t vectors = cuda_ceil_div(c->columns, vector);
    int across = block_width(vectors, lines, second);
    /* As many rows at a time as there are, of a warp at least. */
    int64_t down =
        cuda_least(BLOCK / across, cuda_power_of_2(cuda_ceil_div(c->positions, c->parts)));
    int threads = (int)cuda_most(32, across * down);
    c->tiles = cuda_ceil_div(vectors, across);
    cuda_launch(p, "reduce.cu", "columns", lines * c->tiles * c->parts, threads);
    define(p, r, first, second, vector, per_thread(vector, size));
    cuda_define(p, "ACROSS", "%d", across);
    cuda_define(p, "BLOCK", "%d", threads);
    cuda_define(p, "FLAT", "%d", c->reduced.rank <= 1);
    pass(p, from);
    pass(p, to);
    cuda_bytes(p, c, sizeof *c);
}

/* The second launch: of dense [lines, parts, columns]. */
static void columns_of_parts(Launches *p, const Reduction *r, int64_t lines, int64_t parts,
                             int64_t columns, Place from, Place to, CudaView out,
                             int64_t out_step) {
    int64_t size = accumulator_size(r->type), row = columns * size, line = parts * row;
    Columns c = {.lines = cuda_view(1, &lines, &line),
                 .reduced = cuda_view(1, &parts, &row),
                 .out = out,
                 .columns = columns,
                 .parts = 1,
                 .positions = parts,
                 .step = 1,
                 .out_step = out_step};
    launch_columns(p, r, &c, lines, column_vector(&c, size), 0, 1, from, to);
}

static void by_columns(Launches *p, const Reduction *r) {
    int last = r->kept_rank - 1;
    int64_t size = cuda_size(r->in), columns = r->kept[last], wide = accumulator_size(r->type);
    int64_t lines = columns ? r->outputs / columns : 0;
    Columns c = {.lines = cuda_view(last, r->kept, r->kept_strides[0]),
                 .reduced = cuda_view(r->rank, r->dims, r->strides[0]),
                 .out = cuda_view(last, r->kept, r->kept_strides[1]),
                 .columns = columns,
                 .positions = r->positions,
                 .parts = 1,
                 .step = r->kept_strides[0][last] / size,
                 .out_step = r->kept_strides[1][last] / cuda_size(r->out)};
    Place x = {.operand = 0}, y = {.operand = 1};
    int vector = column_vector(&c, size);
    int64_t vectors = cuda_ceil_div(columns, vector), across = block_width(vectors, lines, 0);
    int64_t tiles = cuda_ceil_div(vectors, across);
    int64_t bytes = r->positions * across * vector * size;
    c.parts = parts_of(lines * tiles, bytes);
    if (c.parts == 1) {
        launch_columns(p, r, &c, lines, vector, 0, 0, x, y);
        return;
    }
    CudaView out = c.out;
    int64_t out_step = c.out_step, all = lines * c.parts, row = columns * wide;
    Place parts = {-1, cuda_take_scratch(p, (size_t)(all * row))};
    c.out = cuda_view(1, &all, &row);
    c.out_step = 1;
    launch_columns(p, r, &c, lines, vector, 1, 0, x, parts);
    columns_of_parts(p, r, lines, c.parts, columns, parts, y, out, out_step);
}

void reduce_parts(Launches *p, size_t scratch, int64_t parts, int wide, int k, const KTensor *to) {
    Reduction r = {.op = SUM, .out = to->dtype, .type = wide ? DT_F64 : DT_F32};
    Place from = {-1, scratch}, out = {.operand = k};
    columns_of_parts(p, &r, to->dims[0], parts, to->dims[1], from, out,
                     cuda_view(1, to->dims, to->strides), to->strides[1] / cuda_size(to->dtype));
}

static int reduce(const KArgs *a, Launches *p, Op op) {
    Reduction r = describe(a, op);
    if (r.outputs == 0) return 1;
    if (runs_by_columns(&r))
        by_columns(p, &r);
    else
        by_rows(p, &r);
    return 1;
}

#define ROW(name, op)                                                                              \
    static int reduce_##name(const KArgs *a, Launches *p) {                                        \
        return reduce(a, p, op);                                                                   \
    }
ROW(sum, SUM)
ROW(sum_squares, SQUARES)
ROW(max, MAX)
ROW(min, MIN)
ROW(all, ALL)
ROW(any, ANY)

const CudaRow k_cuda_rows_reduce[] = {
    {"sum", reduce_sum}, {"sum_squares", reduce_sum_squares},
    {"max", reduce_max}, {"min", reduce_min},
    {"all", reduce_all}, {"any", reduce_any},
    {NULL, NULL},
};
