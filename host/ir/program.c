#include "ir/program.h"
#include "ir/graph.h"

#include <string.h>

KType program_ktype(DType d) {
    return k_dtype_register(d);
}

uint16_t program_reg(Emit *e) {
    return (uint16_t)e->nreg++;
}

void program_instr(Emit *e, KOp op, KType type, int dst, int a, int b, int c, int d) {
    KInstr i = {(uint8_t)op, (uint8_t)type, (uint16_t)dst, (uint16_t)a,
                (uint16_t)b, (uint16_t)c,   (uint16_t)d};
    if (!VEC_PUSH(e->arena, &e->code, i)) e->failed = true;
}

uint16_t program_op(Emit *e, KOp op, KType type, int a, int b) {
    uint16_t dst = program_reg(e);
    program_instr(e, op, type, dst, a, b, 0, 0);
    return dst;
}

int program_imm_int(Emit *e, int64_t x) {
    if (!VEC_PUSH(e->arena, &e->imm, (KImm){.i = x})) e->failed = true;
    return e->imm.n - 1;
}

uint16_t program_imm(Emit *e, DType dtype, const Scalar *x) {
    KImm imm = {.i = x->i};
    if (dtype_is_float(dtype)) imm.f = x->f;
    if (!VEC_PUSH(e->arena, &e->imm, imm)) e->failed = true;
    return program_op(e, KI_IMM, program_ktype(dtype), e->imm.n - 1, 0);
}

int program_offset(Emit *e, const Offset *o) {
    if (!VEC_PUSH(e->arena, &e->offset, *o)) e->failed = true;
    return e->offset.n - 1;
}

uint16_t program_reg_of(const Emit *e, Val v) {
    return (uint16_t)e->reg[v - e->base];
}
void program_set(Emit *e, Val v, uint16_t reg) {
    e->reg[v - e->base] = reg;
}

static uint16_t *source(KInstr *i, int k) {
    return k == 0 ? &i->a : k == 1 ? &i->b : k == 2 ? &i->c : &i->d;
}

/* Renumbers registers so that one is used again after its last reader. A destination never shares
 * with the sources of its own instruction. */
static int32_t reuse_registers(Emit *e) {
    int32_t *last = ARENA_ARRAY(e->arena, int32_t, e->nreg + 1);
    int32_t *home = ARENA_ARRAY(e->arena, int32_t, e->nreg + 1);
    int32_t *free_list = ARENA_ARRAY(e->arena, int32_t, e->nreg + 1);
    int32_t nfree = 0, nreg = 0;
    if (!last || !home || !free_list) {
        e->failed = true;
        return 0;
    }
    for (int32_t at = 0; at < e->code.n; at++)
        for (int k = 0; k < 4; k++)
            if (k < k_instr_sources(&e->code.at[at])) last[*source(&e->code.at[at], k)] = at;
    for (int32_t at = 0; at < e->code.n; at++) {
        KInstr *i = &e->code.at[at];
        uint16_t dst = i->dst;
        bool writes = i->op != KI_STORE;
        if (writes) {
            home[dst] = nfree ? free_list[--nfree] : nreg++;
            i->dst = (uint16_t)home[dst];
        }
        for (int k = 0; k < 4; k++) {
            if (k >= k_instr_sources(i)) continue;
            uint16_t *r = source(i, k), old = *r;
            *r = (uint16_t)home[old];
            if (last[old] == at) {
                free_list[nfree++] = home[old];
                last[old] = -1; /* the same register read twice is freed once */
            }
        }
        if (writes && last[dst] == 0 && at > 0) free_list[nfree++] = home[dst]; /* never read */
    }
    return nreg;
}

/* The rounding that a narrow dtype needs after arithmetic in its register type. */
static void round_result(Emit *e, const Graph *g, Val v) {
    DType d = graph_type(g, v)->dtype;
    static const uint8_t rounding[DT_COUNT] = {[DT_E4M3] = KI_ROUND_E4M3,
                                               [DT_E5M2] = KI_ROUND_E5M2,
                                               [DT_BF16] = KI_ROUND_BF16,
                                               [DT_F16] = KI_ROUND_F16};
    uint16_t r = program_reg_of(e, v);
    if (rounding[d]) program_set(e, v, program_op(e, (KOp)rounding[d], KT_F32, r, 0));
    if (dtype_kind(d) != KIND_INT || dtype_size(d) >= 4) return;
    bool is_signed = k_dtype_least(d) < 0; /* its sign goes to the upper bits, else they are 0 */
    Scalar s = attr_scalar_int(is_signed ? 32 - 8 * dtype_size(d) : k_dtype_greatest(d));
    uint16_t by = program_imm(e, DT_I32, &s);
    r = program_op(e, is_signed ? KI_SHL : KI_AND, KT_I32, r, by);
    program_set(e, v, is_signed ? program_op(e, KI_SHR, KT_I32, r, by) : r);
}

static void emit_node(Emit *e, const Graph *g, const Node *n) {
    enum { MAX = 8 };
    const OpDef *def = graph_opdef(g, n);
    const Type *in[MAX], *out[MAX];
    ASSERT(n->nin <= MAX && n->nout <= MAX, "%s in a fused region", def->name);
    graph_in_types(g, n, in);
    graph_out_types(g, n, out);
    if (def->emit) {
        def->emit(e, n, in, out);
    } else {
        ASSERT(def->instr && n->nin >= 1 && n->nin <= 2, "%s has no instruction", def->name);
        int b = n->nin > 1 ? program_reg_of(e, n->in[1]) : 0;
        program_set(e, n->out,
                    program_op(e, (KOp)def->instr, program_ktype(in[0]->dtype),
                               program_reg_of(e, n->in[0]), b));
    }
    for (int i = 0; i < n->nout; i++) round_result(e, g, n->out + i);
}

static size_t size_of(const KProgram *p) {
    return sizeof *p + sizeof(KInstr) * (size_t)p->ninstr + sizeof(KImm) * (size_t)p->nimm;
}

KProgram *program_pack(Emit *e, size_t *size) {
    int32_t nreg = reuse_registers(e);
    if (e->failed) return NULL;
    KProgram head = {e->code.n, e->imm.n, nreg, e->offset.n};
    *size = size_of(&head);
    KProgram *p = arena_alloc(e->arena, *size);
    if (!p) return NULL;
    *p = head;
    if (head.ninstr)
        memcpy((void *)(uintptr_t)k_program_code(p), e->code.at,
               sizeof(KInstr) * (size_t)head.ninstr);
    if (head.nimm)
        memcpy((void *)(uintptr_t)k_program_imm(p), e->imm.at, sizeof(KImm) * (size_t)head.nimm);
    return p;
}

KProgram *program_of(const Graph *g, int32_t body, Arena *arena, size_t *size,
                     const Offset **offset, int32_t *noffset) {
    const Region *r = &g->region.at[body];
    /* The nodes of a body stand together, right before the node that owns it. */
    int32_t first = r->owner;
    while (first > 1 && graph_node(g, first - 1)->region == body) first--;
    Val base = graph_node(g, first)->out, end = graph_node(g, r->owner)->out;
    Emit e = {.arena = arena, .reg = ARENA_ARRAY(arena, int32_t, end - base + 1), .base = base};
    if (!e.reg) return NULL;
    for (int i = 0; i < r->param.n; i++) {
        Val v = r->param.at[i];
        program_set(&e, v, program_op(&e, KI_LOAD, program_ktype(graph_type(g, v)->dtype), i, 0));
    }
    for (int32_t id = first; id < r->owner; id++)
        if (!(graph_opdef(g, graph_node(g, id))->flags & OPF_PARAM))
            emit_node(&e, g, graph_node(g, id));
    for (int i = 0; i < r->result.n; i++)
        program_instr(&e, KI_STORE, program_ktype(graph_type(g, r->result.at[i])->dtype), i,
                      program_reg_of(&e, r->result.at[i]), 0, 0, 0);
    *offset = e.offset.at;
    *noffset = e.offset.n;
    return program_pack(&e, size);
}
