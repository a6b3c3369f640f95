/* test_products.c - what the row of matmul asks of the library: that it is the product, for every
 * layout that a step of GPT-2 has and for random ones, and that it is what a library can take. The
 * functions of row.h are those of this file: they keep what they are told. */
#include <ctype.h>
#include "cuda/row.h"
#include "krun.h"

struct Launches {
    int products, launches;
    CudaProduct q;
};

int cuda_product(Launches *p, const CudaProduct *q) {
    p->products++;
    p->q = *q;
    return 1;
}
void cuda_launch(Launches *p, const char *file, const char *entry, int64_t blocks, int threads) {
    CHECK(strcmp(file, "matmul.cu") == 0 && strcmp(entry, "matmul") == 0);
    CHECK(blocks > 0 && threads > 0);
    p->launches++;
}
void cuda_define(Launches *p, const char *name, const char *format, ...) {
    CHECK(p && name && format);
}
void cuda_define_type(Launches *p, const char *name, DType t) {
    CHECK(p && name && t < DT_COUNT);
}
void cuda_operand(Launches *p, int k) {
    CHECK(p && k >= 0 && k < 3);
}
void cuda_bytes(Launches *p, const void *x, size_t size) {
    CHECK(p && x && size <= 4096); /* a kernel's parameters */
}

extern const CudaRow k_cuda_rows_matmul[];

/* ---- the product that was asked for, one element after the other ---- */

static int64_t around(const CudaProduct *q, const CudaMatrix *m, int64_t i) {
    int64_t at = 0;
    for (int d = q->rank - 1; d >= 0; d--) {
        at += i % q->dims[d] * m->strides[d];
        i /= q->dims[d];
    }
    return at;
}
static float *element(const Tensor *t, const CudaProduct *q, const CudaMatrix *m, int64_t call,
                      int64_t b, int64_t i, int64_t j) {
    int64_t at = m->transposed ? j * m->leading + i : i * m->leading + j;
    return (float *)t->t.data + around(q, m, call) + b * m->batch + at;
}

static void multiply(const CudaProduct *q, const Tensor *x, const Tensor *w, const Tensor *y) {
    int64_t calls = 1;
    for (int d = 0; d < q->rank; d++) calls *= q->dims[d];
    for (int64_t c = 0; c < calls * q->batch; c++)
        for (int64_t i = 0; i < q->m; i++)
            for (int64_t j = 0; j < q->n; j++) {
                double sum = 0;
                int64_t a = c / q->batch, b = c % q->batch;
                for (int64_t l = 0; l < q->k; l++)
                    sum += (double)*element(x, q, &q->x, a, b, i, l) *
                           (double)*element(w, q, &q->w, a, b, l, j);
                *element(y, q, &q->y, a, b, i, j) = (float)sum;
            }
}

static void check_matrix(const CudaMatrix *m, int64_t rows, int64_t columns, int operand) {
    CHECK(m->operand == operand);
    CHECK(m->leading >= (m->transposed ? rows : columns));
    CHECK(m->batch >= 0);
}

/* Holds what the row asked for to the naive kernel. */
static Launches check_product(Case *c) {
    static Tensor in[KC_MAX], out[KC_MAX], want[KC_MAX], in_copy[KC_MAX];
    KFault fault = {0};
    Launches p = {0};
    KTensor ti[2], to;
    kc_operands(c, in, out);
    kc_operands(c, in_copy, want);
    CHECK(kc_run(c, kc_row("naive", "matmul"), in_copy, want, 0, &fault) == 0);
    for (int k = 0; k < 2; k++) ti[k] = kt_fix(&in[k])->t;
    to = kt_fix(&out[0])->t;
    KArgs a = {.in = ti, .out = &to, .nin = 2, .nout = 1, .attr = c->attr};
    CHECK(k_cuda_rows_matmul[0].add(&a, &p));
    if (p.products) {
        CHECK(p.q.m > 0 && p.q.n > 0 && p.q.k > 0 && p.q.batch > 0);
        check_matrix(&p.q.x, p.q.m, p.q.k, 0);
        check_matrix(&p.q.w, p.q.k, p.q.n, 1);
        check_matrix(&p.q.y, p.q.m, p.q.n, 2);
        multiply(&p.q, &in[0], &in[1], &out[0]);
        CHECKF(memcmp(out[0].block, want[0].block, out[0].bytes) == 0, "another product");
    }
    CHECK(p.products + p.launches == (kt_count(&c->out[0]) > 0));
    kc_free_operands(c, in, out);
    kc_free_operands(c, in_copy, want);
    for (int k = 0; k < 2; k++) free(c->in[k].block);
    free(c->out[0].block);
    return p;
}

static void fill_whole(Tensor *x) { /* sums are then exact */
    for (int64_t i = 0; i < kt_count(x); i++) *(float *)kt_at(x, i) = (float)(below(9) - 4);
}

/* ---- products as "btc,chd->bthd" ---- */

static int64_t size_of(char letter) {
    static const char letters[] = "btschdfvxy";
    static const int64_t sizes[] = {2, 66, 70, 36, 3, 12, 40, 37, 5, 7};
    return sizes[strchr(letters, letter) - letters];
}

static KRole role_of(char c, const char *x, const char *w, const char *y) {
    int in_x = memchr(x, c, strcspn(x, ",")) != NULL, in_w = memchr(w, c, strcspn(w, "-")) != NULL,
        in_y = strchr(y, c) != NULL;
    return in_x && in_w ? (in_y ? K_BATCH : K_K) : in_x ? K_M : K_N;
}

static Case parse(const char *text, KMatmul *attr, Layout layout) {
    const char *x = text, *w = strchr(text, ',') + 1, *y = strchr(text, '>') + 1;
    const char *part[3] = {x, w, y};
    uint8_t *roles[3] = {attr->x, attr->w, attr->y};
    Case c = {.name = "matmul", .attr = attr, .nin = 2, .nout = 1};
    for (int k = 0; k < 3; k++) {
        int64_t dims[K_MAX_RANK];
        int rank = 0;
        for (const char *s = part[k]; islower((unsigned char)*s); s++) {
            dims[rank] = size_of(*s);
            roles[k][rank++] = (uint8_t)role_of(*s, x, w, y);
        }
        Tensor t = tensor(DT_F32, rank, dims, k == 2 && layout == ANY_BROADCAST ? ANY : layout);
        if (k < 2)
            fill_whole(&t), c.in[k] = t;
        else
            c.out[0] = t;
    }
    return c;
}

/* The same dims in another order in memory, with a gap behind one of them. */
static Tensor shuffled(const Tensor *x) {
    int64_t dims[K_MAX_RANK], step = kt_size(x->t.dtype);
    int order[K_MAX_RANK], rank = x->t.rank, wide = (int)below(2 * rank);
    for (int d = 0; d < rank; d++) {
        int o = (int)below(d + 1);
        order[d] = order[o];
        order[o] = d;
        dims[d] = x->dims[d] + (d == wide);
    }
    Tensor y = tensor(x->t.dtype, rank, dims, DENSE);
    for (int d = 0; d < rank; d++) {
        y.strides[order[d]] = step;
        step *= dims[order[d]];
        y.dims[d] = x->dims[d];
    }
    return y;
}

/* One call of one product; `sides`: which of x, w and y are transposed. */
static void gpt(const char *text, int64_t m, int64_t n, int64_t k, const char *sides) {
    KMatmul attr;
    Case c = parse(text, &attr, DENSE);
    Launches p = check_product(&c);
    CHECKF(p.products == 1 && p.q.rank == 0 && p.q.batch == 1, "%s", text);
    CHECKF(p.q.m == m && p.q.n == n && p.q.k == k, "%s", text);
    CHECKF(p.q.x.transposed == (strchr(sides, 'x') != NULL), "%s", text);
    CHECKF(p.q.w.transposed == (strchr(sides, 'w') != NULL), "%s", text);
    CHECKF(!p.q.y.transposed, "%s", text);
}

/* As the plan of models/gpt.lua has them (bt = 132, hd = c = 36, f = 40, v = 37). */
static void gpt_layouts(void) {
    gpt("btc,chd->bthd", 132, 36, 36, ""); /* query, key, value */
    gpt("bthd,hdc->btc", 132, 36, 36, ""); /* out */
    gpt("btc,cf->btf", 132, 40, 36, "");
    gpt("btf,fc->btc", 132, 36, 40, "");
    gpt("btc,vc->btv", 132, 37, 36, "w"); /* the head is the embedding */
    gpt("btv,vc->btc", 132, 36, 37, "");
    gpt("btv,btc->vc", 37, 36, 132, "x");
    gpt("btc,fc->btf", 132, 40, 36, "w");
    gpt("btf,btc->fc", 40, 36, 132, "x");
    gpt("btf,cf->btc", 132, 36, 40, "w");
    gpt("btc,btf->cf", 36, 40, 132, "x");
    gpt("btc,hdc->bthd", 132, 36, 36, "w");
    gpt("bthd,btc->hdc", 36, 36, 132, "x");
    gpt("bthd,chd->btc", 132, 36, 36, "w");
    gpt("btc,bthd->chd", 36, 36, 132, "x");
}

/* Attention that is not one op: heads between a row's elements, the batch a call for each. */
static void batches(void) {
    static const char *const text[] = {"bthd,bshd->bhts", "bhts,bshd->bthd", "bhts,bthd->bshd"};
    for (int i = 0; i < 3; i++) {
        KMatmul attr;
        Case c = parse(text[i], &attr, DENSE);
        Launches p = check_product(&c);
        CHECKF(p.products == 1 && p.q.batch == 3 && p.q.rank == 1 && p.q.dims[0] == 2, "%s",
               text[i]);
    }
    KMatmul attr;
    Case c = parse("bhts,bhsd->bhtd", &attr, DENSE);
    Launches p = check_product(&c);
    CHECK(p.products == 1 && p.q.batch == 6 && p.q.rank == 0);
}

/* What goes to the kernel of our own. */
static void ours(void) {
    KMatmul attr;
    Case c = parse("xy,yb->xb", &attr, DENSE); /* tiny */
    CHECK(check_product(&c).launches == 1);
    c = parse("btc,cf->btf", &attr, DENSE);
    for (int d = 0; d < 3; d++) c.in[0].strides[d] = 0; /* no matrix */
    CHECK(check_product(&c).launches == 1);
    c = parse("tcx,xcf->tf", &attr, DENSE); /* sums over two dims of their own strides */
    CHECK(check_product(&c).launches == 1);
}

static void random_layouts(void) {
    static const char *const text[] = {
        "btc,chd->bthd", "tcx,ycd->ytxd", "xtcy,xcdy->ytxd", "hts,hsd->htd", "ct,dc->dt",
        "cxt,cyd->xtyd", "t,c->tc",       "c,cv->v",         "xtc,vc->xtv",
    };
    int products = 0, transposed = 0;
    for (int i = 0; i < 90; i++) {
        KMatmul attr;
        Case c = parse(text[i % 9], &attr, i % 4 ? DENSE : ANY_BROADCAST);
        for (int k = 0; k < 3 && i % 4; k++) {
            Tensor *x = k < 2 ? &c.in[k] : &c.out[0], y = shuffled(x);
            free(x->block);
            *x = y;
            if (k < 2) fill_whole(kt_fix(x));
        }
        Launches p = check_product(&c);
        products += p.products;
        transposed += p.products && p.q.y.transposed;
    }
    CHECKF(products > 20 && transposed > 0, "%d products, %d transposed", products, transposed);
}

int main(void) {
    gpt_layouts();
    batches();
    ours();
    random_layouts();
    return test_end();
}
