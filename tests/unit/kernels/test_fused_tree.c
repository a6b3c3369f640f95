/* test_fused_tree.c - trees of instructions that have one function (kernels/cpu/instr_tree.c): each
 * is found in a program whatever the order of its operands, and gives the bits of its instructions
 * one after the other, on every level. */
#define K_LEVEL default
#include "cpu/fused.h"
#include "kcheck.h"
#include "kprogram.h"

static int operands(int op) {
    return op >= KI_ADD ? 2 : 1;
}

/* A program of one instruction. */
static Tensor apply(const char *level, int op, const Tensor *x, int64_t dim) {
    KFault fault;
    Tensor in[2], out = tensor(DT_F32, 1, &dim, DENSE);
    Case c = {.name = "fused", .nin = operands(op), .nout = 1};
    for (int k = 0; k < c.nin; k++) {
        in[k] = x[k];
        emit(KI_LOAD, KT_F32, k, k, 0, 0, 0);
    }
    emit((KOp)op, KT_F32, 2, 0, 1, 0, 0);
    emit(KI_STORE, KT_F32, 0, 2, 0, 0, 0);
    c.attr = finish();
    CHECK(kc_run(&c, kc_row(level, "fused"), in, &out, 0, &fault) == 0);
    return out;
}

static Tensor one_by_one(const char *level, const KTree *t, const Tensor *leaf, int64_t dim) {
    Tensor stack[16];
    int n = 0, owned[16];
    for (int at = 0; at < t->length; at++) {
        int token = t->pattern[at];
        if (token < K_TREE_OP) {
            owned[n] = 0;
            stack[n++] = leaf[token];
            continue;
        }
        int nin = operands(token - K_TREE_OP);
        Tensor y = apply(level, token - K_TREE_OP, stack + n - nin, dim);
        for (int k = 0; k < nin; k++)
            if (owned[--n]) free(stack[n].block);
        owned[n] = 1;
        stack[n++] = y;
    }
    return stack[0];
}

/* All of the tree; every use of a constant is an immediate of its own. `turned`: the operands of
 * about half of the sums and products change places. */
static void *program_of(const KTree *t, const double *constant, int turned) {
    int stack[16], n = 0, reg = t->values;
    for (int k = 0; k < t->values; k++) emit(KI_LOAD, KT_F32, k, k, 0, 0, 0);
    for (int at = 0; at < t->length; at++) {
        int token = t->pattern[at], op = token - K_TREE_OP;
        if (token < K_TREE_CONSTANT) {
            stack[n++] = token;
            continue;
        }
        if (token < K_TREE_OP) {
            emit(KI_IMM, KT_F32, reg, imm(KT_F32, constant[token - K_TREE_CONSTANT], 0), 0, 0, 0);
        } else {
            n -= operands(op);
            int a = stack[n], b = operands(op) == 2 ? stack[n + 1] : 0;
            int turn = turned && (op == KI_ADD || op == KI_MUL) && rnd() % 2;
            emit((KOp)op, KT_F32, reg, turn ? b : a, turn ? a : b, 0, 0);
        }
        stack[n++] = reg++;
    }
    emit(KI_STORE, KT_F32, 0, stack[0], 0, 0, 0);
    return finish();
}

/* Is the whole program one function? */
static int is_found(const KTree *t, const void *attr, int64_t dim) {
    Fused f;
    int64_t stride = 4;
    KTensor in[K_TREE_CONSTANT], out = {NULL, &dim, &stride, 1, DT_F32};
    for (int k = 0; k < t->values; k++) in[k] = out;
    KArgs a = {.in = in, .out = &out, .nin = t->values, .nout = 1, .attr = attr};
    a.workspace = malloc(k_decode_bytes(&a));
    k_decode(&f, &a);
    int functions = 0, found = 0;
    for (int32_t k = 0; k < f.nrun; k++) {
        functions += f.step[f.run[k]].fn != NULL;
        found += f.step[f.run[k]].fn == t->fn;
    }
    free(a.workspace);
    return found == 1 && functions == 1;
}

static void tree(const char *level, const KTree *t, int special) {
    static const double constants[] = {0.75, -1.5, 0.3, 2.25};
    int64_t dim = 16 * (1 + below(40)) + below(2);
    Case c = {.name = "fused", .nin = t->values, .nout = 1};
    Tensor leaf[K_TREE_LEAVES];
    KFault fault;
    for (int k = 0; k < K_TREE_LEAVES; k++) {
        int constant = k >= K_TREE_CONSTANT;
        leaf[k] = tensor(DT_F32, 1, &dim, DENSE);
        double x = constant ? constants[k - K_TREE_CONSTANT] : 4;
        fill(&leaf[k], constant ? x : -x, x);
        if (special && !constant) sprinkle(&leaf[k]);
    }
    Tensor want = one_by_one(level, t, leaf, dim), got = tensor(DT_F32, 1, &dim, DENSE);
    c.attr = program_of(t, constants, special);
    CHECKF(is_found(t, c.attr, dim), "tree %d is not found", (int)(t - k_trees));
    CHECK(kc_run(&c, kc_row(level, "fused"), leaf, &got, 0, &fault) == 0);
    CHECKF(kc_same_bits(&got, &want), "%s: tree %d", level, (int)(t - k_trees));
    for (int k = 0; k < K_TREE_LEAVES; k++) free(leaf[k].block);
    free(got.block);
    free(want.block);
}

/* A value that is read elsewhere, too, is still there; what a tree needs no more is not computed.
 */
static void shared_value(void) {
    int64_t dim = 300;
    Case c = {.name = "fused", .nin = 2, .nout = 2};
    for (int k = 0; k < 2; k++) {
        c.in[k] = tensor(DT_F32, 1, &dim, DENSE);
        fill(&c.in[k], -3, 3);
        c.out[k] = tensor(DT_F32, 1, &dim, DENSE);
        emit(KI_LOAD, KT_F32, k, k, 0, 0, 0);
    }
    emit(KI_IMM, KT_F32, 2, imm(KT_F32, 1, 0), 0, 0, 0);
    emit(KI_IMM, KT_F32, 3, imm(KT_F32, 0.5, 0), 0, 0, 0);
    emit(KI_ADD, KT_F32, 4, 1, 2, 0, 0);
    emit(KI_MUL, KT_F32, 4, 4, 3, 0, 0);
    emit(KI_MUL, KT_F32, 5, 4, 0, 0, 0);
    emit(KI_STORE, KT_F32, 0, 5, 0, 0, 0);
    emit(KI_STORE, KT_F32, 1, 4, 0, 0, 0);
    c.attr = finish();
    check_case(&c);
}

int main(void) {
    for (const KTree *t = k_trees; t->fn; t++)
        for (int l = 0; l < 3; l++)
            for (int k = 0; k < 10 && kc_row(kc_levels[l], "fused"); k++)
                tree(kc_levels[l], t, k % 2);
    shared_value();
    return test_end();
}
