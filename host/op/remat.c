/* remat.c - what a policy of remat keeps. */
#include "op/op.h"

static bool listed(const RematPolicy *p, const char *name) {
    for (int i = 0; i < p->nname; i++)
        if (p->name[i] == name) return true;
    return false;
}

/* Does a checkpoint_name of the span give the node's result a name of the list (or one that is not
 * on it)? The named value and its operand are one and the same. */
static bool named(const Graph *g, const Span *span, const Node *n, const RematPolicy *p, bool on) {
    for (int32_t id = span->first; id < span->end; id++) {
        const Node *m = graph_node(g, id);
        if (m->op != OP_CHECKPOINT_NAME) continue;
        bool its = m->out == n->out || (m->in[0] >= n->out && m->in[0] < n->out + n->nout);
        if (its && listed(p, ((const NameAttr *)m->attr)->name) == on) return true;
    }
    return false;
}

/* A dim of two operands and the results: products are made for each of its elements. */
static bool has_batch_dim(const Graph *g, const Node *n) {
    enum { MAX = 16 };
    const OpDef *def = graph_opdef(g, n);
    const Type *types[MAX];
    FactorMap maps[MAX] = {0};
    if (n->nin + n->nout > MAX) return true;
    graph_in_types(g, n, types);
    graph_out_types(g, n, types + n->nin);
    OpArgs a = {g->cx, def, n->nin, types, n->attr};
    FactorRule r = {.ntensor = n->nin + n->nout, .tensor = maps};
    def->factors(&a, types + n->nin, &r);
    for (int f = 0; f < r.nfactor; f++) {
        int operands = 0;
        for (int i = 0; i < n->nin; i++) operands += factor_in(&maps[i], types[i]->dims.rank, f);
        if (operands > 1 && factor_in(&maps[n->nin], types[n->nin]->dims.rank, f)) return true;
    }
    return false;
}

bool remat_keeps(const Graph *g, const Span *span, const Node *n) {
    bool dot = graph_opdef(g, n)->flags & OPF_SAVE;
    for (const RematPolicy *p = span->policy; p; p = p->also) {
        switch (p->save) {
        case SAVE_NOTHING: break;
        case SAVE_EVERYTHING: return true;
        case SAVE_DOTS:
            if (dot) return true;
            break;
        case SAVE_DOTS_NO_BATCH:
            if (dot && !has_batch_dim(g, n)) return true;
            break;
        case SAVE_NAMES:
            if (named(g, span, n, p, true)) return true;
            break;
        case SAVE_NAMES_EXCEPT:
            if (named(g, span, n, p, false)) return true;
            break;
        case SAVE_ANYTHING_EXCEPT:
            if (!named(g, span, n, p, true)) return true;
            break;
        }
    }
    return false;
}
