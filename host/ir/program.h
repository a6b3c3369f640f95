/* program.h - builds the program of a fused node (kernel.h: KProgram) from the ops of its body. */
#ifndef MESHLUA_PROGRAM_H
#define MESHLUA_PROGRAM_H

#include "ir/attr.h"
#include "ir/val.h"

struct Graph;

/* What an op's `emit` works with: registers are written once here; the final
 * numbering reuses them. */
typedef struct Emit {
    Arena *arena;
    VEC(KInstr) code;
    VEC(KImm) imm;
    VEC(Offset) offset;
    int32_t nreg;
    int32_t *reg; /* by value of the body, from `base` on: its register */
    Val base;
    bool failed; /* out of memory */
} Emit;

KType program_ktype(DType d);
uint16_t program_reg(Emit *e);
void program_instr(Emit *e, KOp op, KType type, int dst, int a, int b, int c, int d);
/* dst = op(a, b) in a new register. */
uint16_t program_op(Emit *e, KOp op, KType type, int a, int b);
uint16_t program_imm(Emit *e, DType dtype, const Scalar *x); /* a register holding the constant */
int program_imm_int(Emit *e, int64_t x);                     /* an immediate's index */
int program_offset(Emit *e, const Offset *o);                /* an offset's index */
uint16_t program_reg_of(const Emit *e, Val v);
void program_set(Emit *e, Val v, uint16_t reg);

/* Numbers registers anew and packs what was emitted into one block, in the emitter's arena. NULL
 * when out of memory. */
KProgram *program_pack(Emit *e, size_t *size);
/* The program that computes the results of region `body`; its parameters are the inputs, in
 * order. And the offsets it reads. NULL when out of memory. */
KProgram *program_of(const struct Graph *g, int32_t body, Arena *arena, size_t *size,
                     const Offset **offset, int32_t *noffset);

#endif
