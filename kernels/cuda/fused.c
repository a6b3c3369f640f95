/* fused.c - device code made of a register program (kernel.h, "fused").
 *
 * The text is a function of the program for one element (fused_text.c) and a kernel around it, in
 * which a thread computes some neighbours of the last dim: so many that the smallest elements are
 * accessed 16 bytes at a time. Dims that all operands lay out as one are merged first, so that most
 * programs have one dim; then operands that lie alike share their arithmetic of indices. The text
 * depends on the program, the dtypes, how many dims are left and which strides are 0 or 1; dims,
 * strides and offsets are parameters.
 *
 * Addresses are known to the kernel only: where one is not aligned for vectors, and at the end of a
 * row, a thread computes its elements one by one, with the same function, hence the same bits. */
#include <stdlib.h>
#include <string.h>
#include "fused_text.h"
#include "view.h"

enum {
    THREADS = 256,
    WORD = 16,          /* bytes */
    MOST_BYTES = 32,    /* that a thread takes of one operand */
    MOST_LOADED = 512,  /* and of all inputs: they are in registers at once */
    MOST_PARAMS = 30000 /* bytes; CUDA takes 32764 */
};

/* What lies along a dim: the same element, the next one, or one that is some way off. */
typedef enum Step { STEP_SAME, STEP_NEXT, STEP_FAR } Step;

/* Operands (or indices) with the same strides. */
typedef struct Layout {
    int64_t stride[K_MAX_RANK]; /* in elements */
    Step step[K_MAX_RANK];
    int far;  /* some stride is a parameter */
    int same; /* all are 0 */
} Layout;

typedef struct Kernel {
    const KArgs *args;
    FusedUse use;
    int rank;
    int64_t dims[K_MAX_RANK];
    int noperand; /* outputs, inputs, then indices */
    int nlayout;
    int32_t *layout_of; /* by operand */
    Layout *layout;
    int32_t *index; /* by index: its instruction */
    int nindex, width;
    int64_t threads, row; /* of all; of the last dim */
    Text text;
} Kernel;

/* Operands in the order of layouts: outputs first, for it is their order in which threads go. */
static int output(int k) {
    return k;
}
static int input(const Kernel *f, int k) {
    return f->args->nout + k;
}
static int index_operand(const Kernel *f, int k) {
    return f->args->nout + f->args->nin + k;
}
static const Layout *layout(const Kernel *f, int operand) {
    return &f->layout[f->layout_of[operand]];
}

/* ---- layouts -------------------------------------------------------------------------------- */
static void find_indices(Kernel *f) {
    const KProgram *p = f->args->attr;
    for (int32_t i = 0; i < p->ninstr; i++)
        if (f->use.live[i] && fused_is_index(&k_program_code(p)[i])) f->index[f->nindex++] = i;
}

/* An index is an operand whose "element" is its value: 1 more at each step of its dim, or imm. */
static void index_strides(const Kernel *f, const KInstr *i, int64_t *stride) {
    const KImm *imm = k_program_imm(f->args->attr);
    for (int d = 0; d < f->args->out[0].rank; d++)
        stride[d] = i->op == KI_IOTA ? d == i->a : imm[i->d + d].i;
}

/* Its value at the first element. */
static int64_t index_base(const Kernel *f, const KInstr *i) {
    const KImm *imm = k_program_imm(f->args->attr);
    const int64_t *offset = f->args->offsets;
    uint64_t base = 0;
    if (i->op == KI_IOTA) return offset[i->b];
    for (int d = 0; d < f->args->out[0].rank; d++)
        base += (uint64_t)offset[i->c + d] * (uint64_t)imm[i->d + d].i;
    return (int64_t)base;
}

static void tensor_strides(const KTensor *t, int64_t *stride) {
    for (int d = 0; d < t->rank; d++) stride[d] = t->strides[d] / cuda_size(t->dtype);
}

static void add_layout(Kernel *f, int operand, const int64_t *stride) {
    Layout *l = &f->layout[f->nlayout];
    *l = (Layout){.same = 1};
    for (int d = 0; d < f->rank; d++) {
        l->stride[d] = stride[d];
        l->step[d] = stride[d] == 0                       ? STEP_SAME
                     : stride[d] == 1 && d == f->rank - 1 ? STEP_NEXT
                                                          : STEP_FAR;
        l->far |= l->step[d] == STEP_FAR;
        l->same &= l->step[d] == STEP_SAME;
    }
    int k = 0;
    while (memcmp(f->layout[k].stride, l->stride, sizeof l->stride) != 0) k++;
    f->layout_of[operand] = k;
    if (k == f->nlayout) f->nlayout++;
}

static int find_layouts(Kernel *f) {
    const KArgs *a = f->args;
    int64_t(*stride)[K_MAX_RANK] = calloc((size_t)f->noperand, sizeof *stride);
    if (!stride) return 0;
    f->rank = a->out[0].rank;
    for (int d = 0; d < f->rank; d++) f->dims[d] = a->out[0].dims[d];
    for (int k = 0; k < a->nout; k++) tensor_strides(&a->out[k], stride[output(k)]);
    for (int k = 0; k < a->nin; k++) /* what is not read is where the first output is */
        tensor_strides(f->use.input[k] ? &a->in[k] : &a->out[0], stride[input(f, k)]);
    for (int k = 0; k < f->nindex; k++)
        index_strides(f, &k_program_code(a->attr)[f->index[k]], stride[index_operand(f, k)]);
    f->rank = cuda_collapse(f->rank, f->dims, f->noperand, stride);
    cuda_sort_dims(f->rank, f->dims, f->noperand, stride);
    f->rank = cuda_collapse(f->rank, f->dims, f->noperand, stride);
    if (f->rank == 0) { /* one element */
        f->rank = 1;
        f->dims[0] = 1;
        for (int k = 0; k < f->noperand; k++) stride[k][0] = 0;
        for (int k = 0; k < a->nout; k++) stride[output(k)][0] = 1;
    }
    for (int k = 0; k < f->noperand; k++) add_layout(f, k, stride[k]);
    free(stride);
    return 1;
}

/* ---- how many elements a thread takes ------------------------------------------------------- */
static const KTensor *tensor(const Kernel *f, int operand) {
    const KArgs *a = f->args;
    return operand < a->nout ? &a->out[operand] : &a->in[operand - a->nout];
}
static int is_read(const Kernel *f, int operand) {
    return operand < f->args->nout || f->use.input[operand - f->args->nout];
}
static Step last_step(const Kernel *f, const Layout *l) {
    return l->step[f->rank - 1];
}
static int is_vector(const Kernel *f, int operand) {
    return is_read(f, operand) && last_step(f, layout(f, operand)) == STEP_NEXT;
}

/* Whether vectors of so many elements are aligned in every row if they are in the first. */
static int rows_fit(const Kernel *f, int width) {
    for (int k = 0; k < f->args->nout + f->args->nin; k++) {
        int64_t bytes = cuda_size(tensor(f, k)->dtype), word = bytes * width;
        if (word > WORD) word = WORD;
        for (int d = 0; is_vector(f, k) && d < f->rank - 1; d++)
            if (layout(f, k)->stride[d] * bytes % word) return 0;
    }
    return 1;
}

static void choose_width(Kernel *f) {
    int64_t least = 0, most = 0, loaded = 0;
    for (int k = 0; k < f->args->nout + f->args->nin; k++) {
        if (!is_vector(f, k)) continue;
        int64_t bytes = cuda_size(tensor(f, k)->dtype);
        if (least == 0 || bytes < least) least = bytes;
        if (bytes > most) most = bytes;
        if (k >= f->args->nout) loaded += bytes;
    }
    int64_t width = least ? WORD / least : 1, n = f->dims[f->rank - 1];
    while (width > 1 && (width * most > MOST_BYTES || width * loaded > MOST_LOADED || width > n ||
                         !rows_fit(f, (int)width)))
        width /= 2;
    f->width = (int)width;
    f->row = f->threads = cuda_ceil_div(n, width);
    for (int d = 0; d < f->rank - 1; d++) f->threads *= f->dims[d];
}

/* ---- the kernel's text ---------------------------------------------------------------------- */
static void put_parameters(Kernel *f) {
    Text *t = &f->text;
    const KArgs *a = f->args;
    text_item(t, "", "Shape<%d> shape", f->rank);
    for (int l = 0; l < f->nlayout; l++)
        if (f->layout[l].far) text_item(t, ",", "Strides<%d> s%d", f->rank, l);
    for (int k = 0; k < f->nindex; k++) text_item(t, ",", "i64 base%d", k);
    for (int k = 0; k < a->nin; k++)
        text_item(t, ",", "const %s *in%d", fused_type(a->in[k].dtype), k);
    for (int k = 0; k < a->nout; k++)
        text_item(t, ",", "%s *out%d", fused_type(a->out[k].dtype), k);
}

/* From the thread's number its indices d0, d1, ... and where it is in each layout. */
static void put_places(Kernel *f) {
    Text *t = &f->text;
    int last = f->rank - 1, wide = f->threads > INT32_MAX;
    const char *type = wide ? "i64" : "u32";
    text_put(t, "    %s thread = %s%d * blockIdx.x + threadIdx.x;\n", type, wide ? "(i64)" : "",
             THREADS);
    text_put(t, "    if (thread >= shape.threads) return;\n");
    if (last > 0) text_put(t, "    i64 d%d = (i64)(thread %% (%s)shape.row)", last, type);
    if (last == 0) text_put(t, "    i64 d0 = (i64)thread");
    text_put(t, f->width > 1 ? " * %d;\n" : ";\n", f->width);
    if (last > 0) text_put(t, "    thread /= (%s)shape.row;\n", type);
    for (int d = last - 1; d > 0; d--) {
        text_put(t, "    i64 d%d = thread %% (%s)shape.dim[%d];\n", d, type, d);
        text_put(t, "    thread /= (%s)shape.dim[%d];\n", type, d);
    }
    if (last > 0) text_put(t, "    i64 d0 = thread;\n");
    for (int l = 0; l < f->nlayout; l++) {
        int terms = 0;
        if (f->layout[l].same) continue;
        text_put(t, "    i64 at%d = ", l);
        for (int d = 0; d < f->rank; d++) {
            Step step = f->layout[l].step[d];
            if (step == STEP_SAME) continue;
            text_put(t, step == STEP_FAR ? "%sd%d * s%d.of[%d]" : "%sd%d", terms++ ? " + " : "", d,
                     l, d);
        }
        text_put(t, ";\n");
    }
}

/* "at1 + j": where the thread's first element is in the operand's layout, or (j) its element j
 * where it has several; "0" where all are one. */
static void put_place(Kernel *f, int operand, int j) {
    const Layout *l = layout(f, operand);
    Step step = j && f->width > 1 ? last_step(f, l) : STEP_SAME;
    text_put(&f->text, l->same ? "0" : "at%d", (int)f->layout_of[operand]);
    if (step == STEP_NEXT) text_put(&f->text, " + j");
    if (step == STEP_FAR)
        text_put(&f->text, " + j * s%d.of[%d]", (int)f->layout_of[operand], f->rank - 1);
}

static void put_index(Kernel *f, int k) {
    text_put(&f->text, "base%d + ", k);
    put_place(f, index_operand(f, k), 1);
}

static void put_load(Kernel *f, int k) {
    Text *t = &f->text;
    int operand = input(f, k);
    Step step = last_step(f, layout(f, operand));
    text_put(t, "        auto x%d = widen(", k);
    if (step == STEP_SAME) {
        text_put(t, "in%d[", k);
        put_place(f, operand, 0);
        text_put(t, "]);\n");
        return;
    }
    text_put(t, step == STEP_NEXT ? "load<%d>(in%d + " : "load_apart<%d>(in%d + ", f->width, k);
    put_place(f, operand, 0);
    if (step == STEP_FAR) text_put(t, ", s%d.of[%d]", (int)f->layout_of[operand], f->rank - 1);
    text_put(t, "));\n");
}

static void put_store(Kernel *f, int k) {
    Text *t = &f->text;
    const char *type = fused_type(f->args->out[k].dtype);
    int far = last_step(f, layout(f, output(k))) == STEP_FAR;
    text_put(t, far ? "        store_apart(out%d + " : "        store(out%d + ", k);
    put_place(f, output(k), 0);
    if (far) text_put(t, ", s%d.of[%d]", (int)f->layout_of[output(k)], f->rank - 1);
    text_put(t, ", narrow<%s>(y%d));\n", type, k);
}

/* The elements of a thread, all at once. */
static void put_vectors(Kernel *f) {
    Text *t = &f->text;
    const KArgs *a = f->args;
    int n = 0;
    text_put(t, "    if (d%d + %d <= shape.dim[%d]", f->rank - 1, f->width, f->rank - 1);
    for (int k = 0; k < a->nin; k++)
        if (is_vector(f, input(f, k))) text_item(t, " &&", "is_aligned<%d>(in%d)", f->width, k);
    for (int k = 0; k < a->nout; k++)
        if (is_vector(f, output(k))) text_item(t, " &&", "is_aligned<%d>(out%d)", f->width, k);
    text_put(t, ") {\n");
    for (int k = 0; k < a->nin; k++)
        if (f->use.input[k]) put_load(f, k);
    for (int k = 0; k < a->nout; k++)
        text_put(t, "        Vec<%s, %d> y%d;\n", fused_compute_type(a->out[k].dtype), f->width, k);
    text_put(t, "#pragma unroll\n        for (int j = 0; j < %d; j++) element(", f->width);
    for (int k = 0; k < a->nin; k++)
        if (f->use.input[k])
            text_item(t, n++ ? "," : "",
                      last_step(f, layout(f, input(f, k))) == STEP_SAME ? "x%d" : "x%d.at[j]", k);
    for (int k = 0; k < f->nindex; k++) {
        text_item(t, n++ ? "," : "", "%s", "");
        put_index(f, k);
    }
    for (int k = 0; k < a->nout; k++) text_item(t, n++ ? "," : "", "y%d.at[j]", k);
    text_put(t, ");\n");
    for (int k = 0; k < a->nout; k++) put_store(f, k);
    text_put(t, "        return;\n    }\n");
}

/* One after the other, as many as the row has left. */
static void put_elements(Kernel *f) {
    Text *t = &f->text;
    const KArgs *a = f->args;
    const char *in = f->width > 1 ? "        " : "    ";
    int n = 0;
    if (f->width > 1)
        text_put(
            t, "#pragma unroll 1\n    for (int j = 0; j < %d && d%d + j < shape.dim[%d]; j++) {\n",
            f->width, f->rank - 1, f->rank - 1);
    for (int k = 0; k < a->nout; k++)
        text_put(t, "%s%s y%d;\n", in, fused_compute_type(a->out[k].dtype), k);
    text_put(t, "%selement(", in);
    for (int k = 0; k < a->nin; k++) {
        if (!f->use.input[k]) continue;
        text_item(t, n++ ? "," : "", "widen(in%d[", k);
        put_place(f, input(f, k), 1);
        text_put(t, "])");
    }
    for (int k = 0; k < f->nindex; k++) {
        text_item(t, n++ ? "," : "", "%s", "");
        put_index(f, k);
    }
    for (int k = 0; k < a->nout; k++) text_item(t, n++ ? "," : "", "y%d", k);
    text_put(t, ");\n");
    for (int k = 0; k < a->nout; k++) {
        text_put(t, "%sout%d[", in, k);
        put_place(f, output(k), 1);
        text_put(t, "] = narrow<%s>(y%d);\n", fused_type(a->out[k].dtype), k);
    }
    if (f->width > 1) text_put(t, "    }\n");
}

static void put_kernel(Kernel *f, const char *name) {
    Text *t = &f->text;
    text_put(t, "#include \"fused.cuh\"\n\n");
    fused_element(t, f->args, &f->use);
    text_put(t, "\nextern \"C\" __global__ void __launch_bounds__(%d)\n%s(", THREADS, name);
    put_parameters(f);
    text_put(t, ") {\n");
    put_places(f);
    if (f->width > 1) put_vectors(f);
    put_elements(f);
    text_put(t, "}\n");
}

/* ---- the launch ----------------------------------------------------------------------------- */
static void launch(const Kernel *f, Launches *p, const char *name) {
    int64_t shape[2 + K_MAX_RANK] = {f->threads, f->row};
    size_t dims = sizeof(int64_t) * (size_t)f->rank;
    cuda_launch_text(p, f->text.at, name, cuda_ceil_div(f->threads, THREADS), THREADS);
    memcpy(shape + 2, f->dims, dims);
    cuda_bytes(p, shape, 2 * sizeof(int64_t) + dims);
    for (int l = 0; l < f->nlayout; l++)
        if (f->layout[l].far) cuda_bytes(p, f->layout[l].stride, dims);
    for (int k = 0; k < f->nindex; k++)
        cuda_i64(p, index_base(f, &k_program_code(f->args->attr)[f->index[k]]));
    for (int k = 0; k < f->args->nin + f->args->nout; k++) cuda_operand(p, k);
}

static int params_fit(const Kernel *f) {
    size_t strides = sizeof(int64_t) * (size_t)f->rank * (size_t)(f->nlayout + 1);
    return strides + sizeof(char *) * (size_t)f->noperand <= MOST_PARAMS;
}

static int prepare(Kernel *f) {
    const KProgram *p = f->args->attr;
    size_t most = (size_t)(f->args->nout + f->args->nin + p->ninstr);
    f->index = calloc((size_t)p->ninstr + 1, sizeof *f->index);
    f->layout_of = calloc(most, sizeof *f->layout_of);
    f->layout = calloc(most, sizeof *f->layout);
    if (!fused_use(f->args, &f->use) || !f->index || !f->layout_of || !f->layout) return 0;
    find_indices(f);
    f->noperand = index_operand(f, f->nindex);
    if (!find_layouts(f)) return 0;
    choose_width(f);
    return 1;
}

static int add(const KArgs *args, Launches *p) {
    Kernel f = {.args = args};
    char name[128];
    int ok = prepare(&f) && params_fit(&f);
    if (ok) {
        fused_name(args, &f.use, name, sizeof name);
        put_kernel(&f, name);
        ok = !f.text.failed;
    }
    if (ok) launch(&f, p, name);
    fused_use_free(&f.use);
    free(f.index);
    free(f.layout_of);
    free(f.layout);
    free(f.text.at);
    return ok;
}

const CudaRow k_cuda_rows_fused[] = {
    {"fused", add},
    {NULL, NULL},
};
