/* test_index.c - gather, scatter and scatter_add: any dims of table, ids and rows, ids outside,
 * their faults, rows that other devices hold. */
#include "kcheck.h"

typedef enum Role { COLUMN, ID, EXAMPLE } Role;

/* Random dims that belong together. */
typedef struct Shapes {
    int nrow, ntable, nids; /* ranks */
    int64_t row[8], table[8], ids[8], offset[8], least;
    KIndex attr;
} Shapes;

/* A random order of n numbers. */
static void shuffle(int *order, int n) {
    for (int i = 0; i < n; i++) order[i] = i;
    for (int i = n - 1; i > 0; i--) {
        int j = (int)below(i + 1), x = order[i];
        order[i] = order[j];
        order[j] = x;
    }
}

/* `most`: of a dim that ids have. */
static Shapes shapes(int64_t most) {
    Shapes s = {.least = INT32_MAX};
    KIndex *t = &s.attr;
    int of_table = 0, of_ids = 0, order[8];
    t->naxes = 1 + (int)below(rnd() % 2 ? 1 : 3);
    s.nrow = (int)below(6);
    for (int d = 0; d < s.nrow; d++) {
        Role role = (Role)below(3);
        if (role == EXAMPLE && of_table + t->naxes > 6) role = ID;
        s.row[d] = 1 + below(role == COLUMN ? 5 : most);
        if (rnd() % 30 == 0) s.row[d] = 0;
        t->table[d] = role == ID ? -1 : (int8_t)of_table++;
        t->ids[d] = role == COLUMN ? -1 : (int8_t)of_ids++;
    }
    int64_t all = 1;
    for (int d = 0; d < s.nrow; d++) {
        if (all * s.row[d] > 2000) s.row[d] = 1;
        all *= s.row[d] ? s.row[d] : 1; /* as many bytes lie in the block of one without elements */
    }
    if (s.nrow && t->ids[s.nrow - 1] < 0 && all < 20) s.row[s.nrow - 1] = 1300;
    s.ntable = of_table + t->naxes;
    s.nids = of_ids + (t->naxes > 1);
    shuffle(order, s.ntable);
    for (int d = 0; d < s.nrow; d++) {
        if (t->table[d] < 0) continue;
        t->table[d] = (int8_t)order[t->table[d]];
        s.table[t->table[d]] = s.row[d];
    }
    for (int k = 0; k < t->naxes; k++) {
        t->axes[k] = (int8_t)order[of_table + k];
        int64_t rows = s.table[t->axes[k]] = 1 + below(t->naxes > 1 ? 6 : 30);
        s.offset[k] = rnd() % 2 ? 0 : 1 + below(9);
        t->size[k] = rows + s.offset[k] + (rnd() % 2 ? 0 : below(9));
        if (t->size[k] < s.least) s.least = t->size[k];
    }
    shuffle(order, of_ids);
    for (int d = 0; d < s.nrow; d++) {
        if (t->ids[d] < 0) continue;
        t->ids[d] = (int8_t)order[t->ids[d]];
        s.ids[t->ids[d]] = s.row[d];
    }
    if (t->naxes > 1) s.ids[of_ids] = t->naxes;
    return s;
}

/* Ids within all axes, or (`outside`) beyond them. */
static void fill_ids(const Tensor *ids, int64_t least, int outside) {
    int64_t most = outside == K_ERROR || outside == K_STRICT ? least : 2 * least + 3;
    int64_t first = outside == K_STRICT ? 0 : -most;
    for (int64_t i = 0; i < kt_count(ids); i++)
        kt_put_int(DT_I32, kt_at(ids, i), first + below(most - first));
}

static void fill_numbers(Tensor *x, int combine) {
    double most = !kt_is_float(x->t.dtype) ? 0 : combine == K_MUL ? 1.3 : 5;
    fill(x, combine == K_MUL && most > 0 ? 0.7 : -most, most);
}

/* name: "gather", "scatter" or "scatter_add". fault: an id below the start (1) or at the end (2).
 */
static void indexing(const char *name, DType t, int combine, int outside, int fault, int64_t most) {
    Shapes s = shapes(most);
    int gather = strcmp(name, "gather") == 0, zeros = strcmp(name, "scatter_add") == 0;
    s.attr.outside = outside;
    s.attr.combine = combine;
    Case c = {.name = name,
              .attr = &s.attr,
              .offsets = s.offset,
              .nin = gather || zeros ? 2 : 3,
              .nout = 1};
    int rounds = !gather && (combine == K_ADD || combine == K_MUL) && kt_is_float(t);
    c.rtol = rounds ? (t == DT_F64 ? 1e-12 : 1e-4) : 0;
    c.atol = rounds ? (t == DT_F64 ? 1e-12 : 1e-3) : 0;
    Tensor ids = tensor(DT_I32, s.nids, s.ids, ANY_BROADCAST);
    fill_ids(&ids, s.least, outside);
    if (fault && kt_count(&ids) && s.attr.naxes == 1) {
        int64_t n = s.attr.size[0], start = outside == K_STRICT ? 0 : -n;
        int64_t bad = fault == 1 ? start - 1 - below(5) : n + below(5);
        kt_put_int(DT_I32, kt_at(&ids, below(kt_count(&ids))), bad);
        int64_t elements = 1;
        for (int d = 0; d < s.nrow; d++) elements *= s.row[d];
        if (elements > 0) c.fault = (KFault){K_FAULT_INDEX, bad, n};
    }
    Tensor rows = tensor(t, s.nrow, s.row, gather ? ANY : ANY_BROADCAST);
    Tensor table = tensor(t, s.ntable, s.table, gather ? ANY_BROADCAST : ANY);
    if (!gather) fill_numbers(&rows, combine);
    if (!zeros) fill_numbers(&table, combine);
    int at = 0;
    if (!zeros) c.in[at++] = table;
    c.in[at++] = ids;
    if (!gather) c.in[at++] = rows;
    c.out[0] = gather ? rows : table;
    if (!gather && !zeros) {
        if (rnd() % 3 == 0)
            c.alias[0] = 1;
        else
            c.out[0] = tensor(t, s.ntable, s.table, ANY);
    }
    check_case(&c);
}

static KIndex plain(int64_t size, int64_t columns) { /* rows of a table */
    return (KIndex){.size = {size},
                    .table = {-1, (int8_t)(columns ? 1 : 0)},
                    .ids = {0, -1},
                    .naxes = 1,
                    .combine = K_ADD};
}

/* Updates of one row are added in the order of ids: 1 is lost in 2^30, which then goes. */
static void order(void) {
    static const double updates[] = {1, 0x1p30, -0x1p30, 3};
    int64_t rows = 2, n = 4, offset = 0;
    KIndex attr = plain(2, 0);
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

/* Rows that have most of many updates, as a frequent word has. columns 0: there are none. */
static void frequent(DType t, DType wide, int64_t n, int64_t rows, int64_t columns) {
    int64_t offset = 0, table[] = {rows, columns}, other[] = {n, columns};
    KIndex attr = plain(rows, columns);
    Case c = {.name = "scatter_add", .attr = &attr, .offsets = &offset, .nin = 2, .nout = 1};
    c.rtol = kt_is_float(t) ? 1e-5 : 0;
    c.atol = kt_is_float(t) ? 1e-4 : 0;
    c.in[0] = tensor(DT_I32, 1, &n, DENSE);
    for (int64_t i = 0; i < n; i++)
        kt_put_int(DT_I32, kt_at(&c.in[0], i), below(rnd() % 3 ? 2 : rows));
    c.in[1] = tensor(t, columns ? 2 : 1, other, DENSE);
    fill(&c.in[1], kt_is_float(t) ? -5 : 0, kt_is_float(t) ? 5 : 0);
    c.out[0] = tensor(wide, columns ? 2 : 1, table, DENSE);
    check_case(&c);
}

int main(void) {
    order();
    frequent(DT_BF16, DT_F32, 700, 40, 264);
    frequent(DT_BF16, DT_BF16, 700, 300, 1100); /* more than is kept at a time */
    frequent(DT_F32, DT_F32, 300, 40, 17);
    frequent(DT_I32, DT_I32, 70000, 40, 1);
    frequent(DT_I64, DT_I64, 3000, 9000, 0);
    rng_state = 1;
    static const char *const names[] = {"gather", "scatter", "scatter_add"};
    for (int k = 0; k < 20; k++)
        for (int t = 0; t < DT_COUNT; t++)
            for (int n = 0; n < 3; n++) {
                int combine = n == 1 ? (int)below(5) : K_ADD;
                if (t == DT_BOOL && (combine == K_ADD || combine == K_MUL)) combine = K_SET;
                if (t == DT_BOOL && n == 2) continue;
                indexing(names[n], (DType)t, combine, (int)below(5), 0, k % 10 ? 6 : 100);
            }
    for (int k = 0; k < 60; k++)
        indexing(names[k % 3], DT_F32, K_ADD, k & 1 ? K_STRICT : K_ERROR, 1 + k / 3 % 2, 6);
    return test_end();
}
