/* test_index.c - take and scatter_add, their faults, rows that other devices hold, many examples.
 */
#include "kcheck.h"

/* fault: an id below 0 (1) or at size (2) */
static void indexing(int scatter, DType t, int fault) {
    int before = (int)below(3), ids = (int)below(3), after = (int)below(3);
    int64_t table[8], other[8], id_dims[8];
    for (int d = 0; d < before + after + 1; d++) table[d] = 1 + below(d == before ? 30 : 5);
    if (after && rnd() % 6 == 0) table[before + after] = 300;
    for (int d = 0; d < ids; d++) id_dims[d] = 1 + below(rnd() % 4 ? 6 : 20);
    int *any = &before;
    if (!fault && rnd() % 8 == 0) (rnd() % 2 && ids ? id_dims : table)[0] = 0;
    for (int d = 0; d < before; d++) other[d] = table[d];
    for (int d = 0; d < ids; d++) other[before + d] = id_dims[d];
    for (int d = 0; d < after; d++) other[before + ids + d] = table[before + 1 + d];
    int64_t rows = table[before], offset = rnd() % 2 ? 0 : 1 + below(9);
    KTake attr = {.axis = *any, .size = rows + offset + (rnd() % 2 ? 0 : below(9))};
    if (attr.size == 0) return;
    Case c = {.name = scatter ? "scatter_add" : "take",
              .attr = &attr,
              .offsets = &offset,
              .nin = 2,
              .nout = 1};
    c.rtol = t == DT_F64 ? 1e-14 : t >= DT_BF16 ? 1e-5 : 0;
    c.atol = scatter && kt_is_float(t) ? 1e-5 : 0;
    Tensor index = tensor(DT_I32, ids, id_dims, ANY_BROADCAST);
    fill(&index, 0, (double)(attr.size - 1));
    if (attr.size == 1) memset(index.block, 0, index.bytes);
    if (fault) {
        int64_t bad = fault == 1 ? -1 - below(5) : attr.size + below(5);
        kt_put_int(DT_I32, kt_at(&index, below(kt_count(&index))), bad);
        c.fault = (KFault){K_FAULT_INDEX, bad, attr.size};
    }
    c.in[scatter ? 0 : 1] = index;
    c.in[scatter ? 1 : 0] = tensor(t, scatter ? before + ids + after : before + 1 + after,
                                   scatter ? other : table, ANY_BROADCAST);
    fill(&c.in[scatter ? 1 : 0], kt_is_float(t) ? -5 : 0, kt_is_float(t) ? 5 : 0);
    c.out[0] = scatter ? tensor(t, before + 1 + after, table, ANY)
                       : tensor(t, before + ids + after, other, ANY);
    check_case(&c);
}

/* Every tensor with a dim of examples in front, each with ids of its own. `scatter_set` has x as
 * its first operand. */
static void batched(const char *name, DType t, int fault) {
    int64_t n = rnd() % 8 ? 1 + below(4) : 0, rows = 1 + below(9), nids = below(5),
            after = 1 + below(40);
    int64_t table[] = {n, 3, rows, after}, other[] = {n, 3, nids, after}, id_dims[] = {n, nids};
    int64_t offset = 0;
    int take = strcmp(name, "take") == 0, set = strcmp(name, "scatter_set") == 0;
    KTake attr = {.axis = 1, .size = rows, .batched = 1};
    Case c = {.name = name, .attr = &attr, .offsets = &offset, .nin = set ? 3 : 2, .nout = 1};
    c.rtol = t == DT_F64 ? 1e-14 : t >= DT_BF16 ? 1e-5 : 0;
    c.atol = kt_is_float(t) ? 1e-5 : 0;
    Tensor ids = tensor(DT_I32, 2, id_dims, ANY_BROADCAST);
    fill(&ids, 0, (double)(rows - 1));
    if (rows == 1) memset(ids.block, 0, ids.bytes);
    if (fault && kt_count(&ids)) { /* it must not be taken for a row of the next example */
        kt_put_int(DT_I32, kt_at(&ids, 0), rows);
        c.fault = (KFault){K_FAULT_INDEX, rows, rows};
    }
    Tensor x = tensor(t, 4, take || set ? table : other, ANY_BROADCAST);
    fill(&x, kt_is_float(t) ? -5 : 0, kt_is_float(t) ? 5 : 0);
    c.in[take || set ? 0 : 1] = x;
    c.in[take || set ? 1 : 0] = ids;
    if (set) {
        c.in[2] = tensor(t, 4, other, ANY_BROADCAST);
        fill(&c.in[2], kt_is_float(t) ? -5 : 0, kt_is_float(t) ? 5 : 0);
    }
    c.out[0] = tensor(t, 4, take ? other : table, ANY);
    check_case(&c);
}

/* take_along_axis and add_along_axis: every line with ids of its own. `few`: so many ids of a
 * line at most. */
static void along(int add, DType t, int64_t few, int fault) {
    int rank = 1 + (int)below(4), axis = rnd() % 2 ? rank - 1 : (int)below(rank);
    int64_t table[8], other[8], offset = rnd() % 2 ? 0 : 1 + below(9);
    for (int d = 0; d < rank; d++) table[d] = other[d] = 1 + below(d == axis ? 30 : 5);
    other[axis] = 1 + below(few);
    if (!fault && rnd() % 8 == 0) other[axis] = 0;
    KTake attr = {.axis = axis, .size = table[axis] + offset + (rnd() % 2 ? 0 : below(9))};
    Case c = {.name = add ? "add_along_axis" : "take_along_axis",
              .attr = &attr,
              .offsets = &offset,
              .nin = 2,
              .nout = 1};
    c.rtol = t == DT_F64 ? 1e-14 : t >= DT_BF16 ? 1e-5 : 0;
    c.atol = add && kt_is_float(t) ? (few > 64 ? 1e-4 : 1e-5) : 0;
    Tensor ids = tensor(DT_I32, rank, other, ANY_BROADCAST);
    fill(&ids, 0, (double)(attr.size - 1));
    if (attr.size == 1) memset(ids.block, 0, ids.bytes);
    if (fault) {
        int64_t bad = fault == 1 ? -1 - below(5) : attr.size + below(5);
        kt_put_int(DT_I32, kt_at(&ids, below(kt_count(&ids))), bad);
        c.fault = (KFault){K_FAULT_INDEX, bad, attr.size};
    }
    Tensor x = tensor(t, rank, add ? other : table, ANY_BROADCAST);
    fill(&x, kt_is_float(t) ? -5 : 0, kt_is_float(t) ? 5 : 0);
    c.in[add ? 0 : 1] = ids;
    c.in[add ? 1 : 0] = x;
    c.out[0] = tensor(t, rank, add ? table : other, ANY);
    check_case(&c);
}

/* Updates of one row are added in the order of ids: 1 is lost in 2^30, which then goes. */
static void order(void) {
    static const double updates[] = {1, 0x1p30, -0x1p30, 3};
    int64_t rows = 2, n = 4, offset = 0;
    KTake attr = {.size = 2};
    KFault fault;
    Case c = {.name = "scatter_add", .attr = &attr, .offsets = &offset, .nin = 2, .nout = 1};
    c.in[0] = tensor(DT_I32, 1, &n, DENSE);
    c.in[1] = tensor(DT_F32, 1, &n, DENSE);
    c.out[0] = tensor(DT_F32, 1, &rows, DENSE);
    for (int64_t i = 0; i < n; i++) {
        kt_put_int(DT_I32, kt_at(&c.in[0], i), 1);
        kt_put_float(DT_F32, kt_at(&c.in[1], i), updates[i]);
    }
    const KernelRow *row = kc_row(k_cpu_best_level(), c.name);
    CHECK(kc_run(&c, row, c.in, c.out, 0, &fault) == 0);
    CHECK(kt_float(DT_F32, kt_at(&c.out[0], 0)) == 0 && kt_float(DT_F32, kt_at(&c.out[0], 1)) == 3);
    free(c.in[0].block);
    free(c.in[1].block);
    free(c.out[0].block);
}

/* Rows that have most of many updates, as a frequent word has. */
static void frequent(DType t, DType wide, int64_t n, int64_t columns) {
    int64_t rows = 40, offset = 0, table[] = {rows, columns}, other[] = {n, columns};
    KTake attr = {.size = rows};
    Case c = {.name = "scatter_add", .attr = &attr, .offsets = &offset, .nin = 2, .nout = 1};
    c.rtol = kt_is_float(t) ? 1e-5 : 0;
    c.atol = kt_is_float(t) ? 1e-4 : 0;
    c.in[0] = tensor(DT_I32, 1, &n, DENSE);
    for (int64_t i = 0; i < n; i++)
        kt_put_int(DT_I32, kt_at(&c.in[0], i), below(rnd() % 3 ? 2 : rows));
    c.in[1] = tensor(t, 2, other, DENSE);
    fill(&c.in[1], kt_is_float(t) ? -5 : 0, kt_is_float(t) ? 5 : 0);
    c.out[0] = tensor(wide, 2, table, DENSE);
    check_case(&c);
}

int main(void) {
    order();
    frequent(DT_BF16, DT_F32, 700, 264);
    frequent(DT_F32, DT_F32, 300, 17);
    frequent(DT_I32, DT_I32, 70000, 1);
    rng_state = 1;
    for (int k = 0; k < 30; k++)
        for (int t = 0; t < DT_COUNT; t++)
            for (int scatter = 0; scatter < 2; scatter++) indexing(scatter, (DType)t, 0);
    static const char *const names[] = {"take", "scatter_add", "scatter_set"};
    for (int k = 0; k < 60; k++) batched(names[k % 3], k % 2 ? DT_F32 : DT_I32, k % 5 == 0);
    for (int k = 0; k < 20; k++) indexing(k % 2, DT_F32, 1 + k / 2 % 2);
    for (int k = 0; k < 30; k++)
        for (int t = 0; t < DT_COUNT; t++) along(k % 2, (DType)t, k % 3 ? 6 : 300, 0);
    for (int k = 0; k < 20; k++) along(k % 2, DT_F32, 6, 1 + k / 2 % 2);
    return test_end();
}
