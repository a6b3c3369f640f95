/* decode.c - makes a register program ready to run (fused.h). One pass after the other, each linear
 * in the number of instructions. */
#include "fused.h"

/* ---- operands ------------------------------------------------------------------------------- */
static Arrangement arrangement_of(const Fused *f, const int64_t *stride, int64_t size) {
    int64_t dense = size, period = 1;
    int d = f->rank - 1;
    for (; d >= 0 && stride[d] == dense; d--) {
        dense *= f->dims[d];
        period *= f->dims[d];
    }
    if (d < 0) return K_DENSE;
    for (; d >= 0; d--)
        if (stride[d] != 0) return K_GENERAL;
    return K_TILE % period == 0 ? K_REPEATS : K_GENERAL;
}

static void prepare_operands(Fused *f, int64_t (*strides)[K_MAX_RANK]) {
    const KArgs *a = f->args;
    int count = a->nin + a->nout;
    f->rank = (int32_t)k_min(f->shape->rank, K_MAX_RANK);
    for (int d = 0; d < f->rank; d++) f->dims[d] = f->shape->dims[d];
    for (int k = 0; k < count; k++) {
        const KTensor *t = k < a->nin ? &a->in[k] : &a->out[k - a->nin];
        for (int d = 0; d < f->rank; d++) strides[k][d] = t->strides[d];
    }
    f->rank = k_collapse(f->rank, f->dims, count, strides);
    for (int k = 0; k < count; k++) {
        const KTensor *t = k < a->nin ? &a->in[k] : &a->out[k - a->nin];
        Operand *o = &f->operand[k];
        o->data = t->data;
        o->dtype = t->dtype;
        o->size = k_dtype_size(t->dtype);
        o->load = k_load_fn(t->dtype);
        o->store = k_store_fn(t->dtype);
        memcpy(o->stride, strides[k], sizeof o->stride);
        o->arrangement = arrangement_of(f, o->stride, o->size);
    }
}

/* ---- steps ---------------------------------------------------------------------------------- */
/* Whether the value is the same in every tile. */
static int is_once(const Fused *f, const Step *s) {
    if (s->instr->op == KI_IMM) return 1;
    if (s->instr->op == KI_LOAD) return f->operand[s->instr->a].arrangement == K_REPEATS;
    if (!s->fn) return 0;
    for (int k = 0; k < s->nsrc; k++)
        if (!f->step[s->src[k]].once) return 0;
    return 1;
}

/* Finds the step that wrote each register; writer[r] is the last so far. */
static void connect(Fused *f, const KInstr *code, int32_t *writer) {
    for (int32_t i = 0; i < f->nsteps; i++) {
        Step *s = &f->step[i];
        uint16_t reg[4] = {code[i].a, code[i].b, code[i].c, code[i].d};
        memset(s, 0, sizeof *s);
        s->instr = &code[i];
        s->nsrc = (uint8_t)k_instr_sources(&code[i]);
        s->last = i;
        s->direct = code[i].op == KI_LOAD && k_dtype_native(f->operand[code[i].a].dtype);
        for (int k = 0; k < s->nsrc; k++) {
            s->src[k] = writer[reg[k]];
            f->step[s->src[k]].uses++;
        }
        if (code[i].op == KI_STORE) continue;
        s->fn = k_instr_fn(&code[i], f->imm);
        s->once = (uint8_t)is_once(f, s);
        writer[code[i].dst] = i;
    }
}

/* Which step reads each value last. */
static void find_last(Fused *f) {
    for (int32_t i = 0; i < f->nsteps; i++) {
        const Step *s = &f->step[i];
        for (int k = 0; k < s->nsrc && !s->gone; k++) f->step[s->src[k]].last = i;
    }
}

/* Lets the step that computes what step i stores write into the output, unless a later step still
 * loads an input that lies there. Returns the step that writes the output's memory. */
static int32_t aim(Fused *f, int32_t i, int aliased) {
    Operand *out = &f->operand[f->args->nin + f->step[i].instr->dst];
    int32_t w = f->step[i].src[0];
    Step *s = &f->step[w];
    if (!s->fn || s->once || s->target) return i;
    if (out->arrangement != K_DENSE || !k_dtype_native(out->dtype)) return i;
    for (int32_t j = w + 1; aliased && j < f->nsteps; j++)
        if (f->step[j].instr->op == KI_LOAD && f->operand[f->step[j].instr->a].data == out->data)
            return i;
    s->target = out;
    return w;
}

static void aim_stores(Fused *f) {
    for (int32_t i = 0; i < f->nsteps; i++) {
        const KInstr *in = f->step[i].instr;
        if (in->op != KI_STORE) continue;
        char *data = f->args->out[in->dst].data;
        int aliased = 0;
        for (int k = 0; k < f->args->nin; k++) aliased |= f->args->in[k].data == data;
        int32_t when = aim(f, i, aliased);
        for (int32_t j = 0; aliased && j < f->nsteps; j++) {
            Step *s = &f->step[j];
            if (s->instr->op == KI_LOAD && f->operand[s->instr->a].data == data)
                s->direct &= s->last <= when;
        }
    }
}

/* What each tile runs, and what it fetches ahead meanwhile: beside each function, and each store
 * for programs that only copy. */
static void list_steps(Fused *f) {
    int shares = 0;
    for (int32_t i = 0; i < f->nsteps; i++) {
        const Step *s = &f->step[i];
        if (s->once || s->gone) continue;
        f->run[f->nrun++] = i;
        shares += s->fn || s->instr->op == KI_STORE;
    }
    f->share = k_ceil_div(K_TILE / K_STEP, k_max(shares, 1)) * K_STEP;
}

/* ---- memory of the values ------------------------------------------------------------------- */
static int64_t value_bytes(const KArgs *a, const KInstr *in) {
    return K_TILE * k_type_size(k_instr_result(a, in)) + K_PAD;
}

/* A value's place is taken again after its last reader, which may be the one to take it; but values
 * of 4 and of 8 bytes never share a place, so that an instruction may write over its sources.
 * Values that are computed once keep theirs. */
static void place_values(Fused *f, char *memory, char **unused) {
    char **list[2] = {unused, unused + f->nsteps}; /* by size */
    int32_t count[2] = {0, 0};
    for (int32_t i = 0; i < f->nsteps; i++) {
        if (!f->step[i].once) continue;
        f->step[i].storage = memory;
        memory += value_bytes(f->args, f->step[i].instr);
    }
    for (int32_t i = 0; i < f->nsteps; i++) {
        Step *s = &f->step[i];
        if (s->once || s->gone) continue;
        for (int k = 0; k < s->nsrc; k++) {
            Step *t = &f->step[s->src[k]];
            if (t->last != i || t->once || t->freed) continue;
            int wide = k_type_size(k_instr_result(f->args, t->instr)) == 8;
            t->freed = 1;
            list[wide][count[wide]++] = t->storage;
        }
        if (s->instr->op == KI_STORE) continue;
        int wide = k_type_size(k_instr_result(f->args, s->instr)) == 8;
        if (count[wide]) {
            s->storage = list[wide][--count[wide]];
        } else {
            s->storage = memory;
            memory += value_bytes(f->args, s->instr);
        }
    }
}

/* ---- all of it ------------------------------------------------------------------------------ */
static size_t table_bytes(const KArgs *a) {
    const KProgram *p = a->attr;
    return (size_t)(a->nin + a->nout) * (sizeof(Operand) + K_MAX_RANK * sizeof(int64_t)) +
           (size_t)p->ninstr * (sizeof(Step) + 3 * sizeof(char *) + sizeof(int32_t)) +
           (size_t)p->nreg * sizeof(int32_t) + 64;
}

size_t k_decode_bytes(const KArgs *a) {
    const KProgram *p = a->attr;
    size_t n = table_bytes(a) + 64;
    for (int i = 0; i < p->ninstr; i++)
        if (k_program_code(p)[i].op != KI_STORE) n += (size_t)value_bytes(a, &k_program_code(p)[i]);
    return n;
}

void k_decode(Fused *f, const KArgs *a) {
    const KProgram *p = a->attr;
    int count = a->nin + a->nout;
    *f = (Fused){.args = a, .shape = &a->out[0], .imm = k_program_imm(p), .nsteps = p->ninstr};
    f->operand = a->workspace;
    int64_t(*strides)[K_MAX_RANK] = (void *)(f->operand + count);
    f->step = (void *)(strides + count);
    f->value = (void *)(f->step + p->ninstr);
    char **unused = (void *)(f->value + p->ninstr);
    f->run = (void *)(unused + 2 * (size_t)p->ninstr);
    int32_t *writer = f->run + p->ninstr;
    prepare_operands(f, strides);
    connect(f, k_program_code(p), writer);
    k_superinstr(f);
    find_last(f);
    aim_stores(f);
    list_steps(f);
    f->memory = k_align((char *)a->workspace + table_bytes(a) - 64);
    place_values(f, f->memory, unused);
}
