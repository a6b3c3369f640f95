/* superinstr.c - superinstructions: finds steps that one function can do together (fused.h); the
 * values between them then stay in the processor. */
#include "fused.h"

/* ---- trees ---------------------------------------------------------------------------------- */
/* What is still to be matched: that the value of `step` is the tree whose last token is `at`. */
typedef struct Goal {
    int at;
    int32_t step;
    const struct Goal *next;
} Goal;

typedef struct Match {
    const Fused *f;
    const KTree *tree;
    int32_t leaf[K_TREE_LEAVES]; /* by token; -1: not yet found */
} Match;

static int commutes(int op) {
    return op == KI_ADD || op == KI_MUL;
}

/* The first token of the tree that ends at `at`. */
static int begin_of(const KTree *t, int at) {
    for (int open = 1;; at--) {
        int token = t->pattern[at];
        open += token < K_TREE_OP ? -1 : token - K_TREE_OP >= KI_ADD;
        if (open == 0) return at;
    }
}

static int same_leaf(const Match *m, int32_t a, int32_t b) {
    const KInstr *x = m->f->step[a].instr, *y = m->f->step[b].instr;
    if (a == b) return 1;
    return x->op == KI_IMM && y->op == KI_IMM && x->type == y->type &&
           k_bits((float)m->f->imm[x->a].f) == k_bits((float)m->f->imm[y->a].f);
}

static int solve(Match *m, const Goal *g);

static int solve_leaf(Match *m, const Goal *g, int token) {
    const KInstr *in = m->f->step[g->step].instr;
    int32_t before = m->leaf[token];
    if (token >= K_TREE_CONSTANT && (in->op != KI_IMM || in->type != KT_F32)) return 0;
    if (before >= 0) return same_leaf(m, before, g->step) && solve(m, g->next);
    m->leaf[token] = g->step;
    if (solve(m, g->next)) return 1;
    m->leaf[token] = before;
    return 0;
}

static int solve(Match *m, const Goal *g) {
    if (!g) return 1;
    int token = m->tree->pattern[g->at];
    if (token < K_TREE_OP) return solve_leaf(m, g, token);
    const Step *s = &m->f->step[g->step];
    int op = token - K_TREE_OP;
    if (s->instr->op != op || s->instr->type != KT_F32) return 0;
    Goal right = {g->at - 1, s->src[s->nsrc - 1], g->next};
    if (s->nsrc == 1) return solve(m, &right);
    Goal left = {begin_of(m->tree, g->at - 1) - 1, s->src[0], &right};
    if (solve(m, &left)) return 1;
    if (!commutes(op)) return 0;
    left.step = s->src[1];
    right.step = s->src[0];
    return solve(m, &left);
}

static int take_tree(Fused *f, int32_t i, const KTree *t) {
    Match m = {.f = f, .tree = t};
    Step *s = &f->step[i];
    for (int k = 0; k < K_TREE_LEAVES; k++) m.leaf[k] = -1;
    if (!solve(&m, &(Goal){t->length - 1, i, NULL})) return 0;
    for (int k = 0; k < s->nsrc; k++) f->step[s->src[k]].uses--;
    s->nsrc = 0;
    for (int k = 0; k < t->values; k++) s->src[s->nsrc++] = m.leaf[k];
    for (int k = 0; k < t->constants; k++) s->src[s->nsrc++] = m.leaf[K_TREE_CONSTANT + k];
    for (int k = 0; k < s->nsrc; k++) f->step[s->src[k]].uses++;
    s->fn = t->fn;
    s->super = 1;
    return 1;
}

/* Does the program compute enough for the smallest tree? */
static int has_trees(const Fused *f) {
    int n = 0;
    for (int32_t i = 0; i < f->nsteps; i++) n += f->step[i].fn && !f->step[i].once;
    return n >= K_TREE_FEWEST;
}

/* From the last step on: what only a tree needed is gone before it is looked at. */
static void take_trees(Fused *f) {
    static const KTree none;
    const KTree *trees = has_trees(f) ? k_trees : &none;
    for (int32_t i = f->nsteps - 1; i >= 0; i--) {
        Step *s = &f->step[i];
        if (s->instr->op == KI_STORE) continue;
        if (s->uses == 0) {
            s->gone = 1;
            for (int k = 0; k < s->nsrc; k++) f->step[s->src[k]].uses--;
            continue;
        }
        if (!s->fn || s->once) continue;
        for (const KTree *t = trees; t->fn; t++)
            if (t->pattern[t->length - 1] == K_TREE_OP + s->instr->op && take_tree(f, i, t)) break;
    }
}

/* ---- pairs ---------------------------------------------------------------------------------- */
/* A step and its only reader. */
static void take_pairs(Fused *f) {
    for (int32_t i = 0; i < f->nsteps; i++) {
        Step *s = &f->step[i];
        if (!s->fn || s->once || s->super || s->gone) continue;
        for (int k = 0; k < s->nsrc; k++) {
            Step *t = &f->step[s->src[k]];
            if (t->uses != 1 || t->once || t->super || t->nsrc + s->nsrc > 5) continue;
            KInstrFn *fn = k_pair_fn(t->instr, s->instr, k);
            if (!fn) continue;
            int32_t src[4];
            int n = 0;
            for (int j = 0; j < t->nsrc; j++) src[n++] = t->src[j];
            for (int j = 0; j < s->nsrc; j++)
                if (j != k) src[n++] = s->src[j];
            memcpy(s->src, src, sizeof src[0] * (size_t)n);
            s->nsrc = (uint8_t)n;
            s->fn = fn;
            s->super = t->gone = 1;
            break;
        }
    }
}

void k_superinstr(Fused *f) {
    take_trees(f);
    take_pairs(f);
}
