/* kprogram.h - builds programs for the fused kernel. */
#ifndef MESHLUA_KPROGRAM_H
#define MESHLUA_KPROGRAM_H

#include <string.h>
#include "kernel.h"

/* A program under construction; code and immediates are put together by finish(). */
static struct {
    KInstr code[128];
    KImm imm[64];
    int ninstr, nimm, nreg, noffset;
} prog;
static _Alignas(16) char program[sizeof(KProgram) + sizeof prog.code + sizeof prog.imm];

static inline void emit(KOp op, KType type, int dst, int a, int b, int c, int d) {
    prog.code[prog.ninstr++] = (KInstr){(uint8_t)op, (uint8_t)type, (uint16_t)dst, (uint16_t)a,
                                        (uint16_t)b, (uint16_t)c,   (uint16_t)d};
    if (op != KI_STORE && dst >= prog.nreg) prog.nreg = dst + 1;
}
static inline int imm(KType t, double f, int64_t i) {
    if (t == KT_F32 || t == KT_F64)
        prog.imm[prog.nimm].f = f;
    else
        prog.imm[prog.nimm].i = i;
    return prog.nimm++;
}
static inline void *finish(void) {
    KProgram head = {prog.ninstr, prog.nimm, prog.nreg, prog.noffset};
    memcpy(program, &head, sizeof head);
    memcpy(program + sizeof head, prog.imm, (size_t)prog.nimm * sizeof *prog.imm);
    memcpy(program + sizeof head + (size_t)prog.nimm * sizeof *prog.imm, prog.code,
           (size_t)prog.ninstr * sizeof *prog.code);
    memset(&prog, 0, sizeof prog);
    return program;
}

#endif
