#include "fused_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- types ---------------------------------------------------------------------------------- */
static const char *const type_name[KT_COUNT] = {"float", "double", "i32", "u32", "i64", "u64"};

const char *fused_type(DType t) {
    static const char *const name[DT_COUNT] = {
        [DT_BOOL] = "bool", [DT_U8] = "u8",     [DT_U16] = "u16",   [DT_U32] = "u32",
        [DT_U64] = "u64",   [DT_I8] = "i8",     [DT_I16] = "i16",   [DT_I32] = "i32",
        [DT_I64] = "i64",   [DT_E4M3] = "e4m3", [DT_E5M2] = "e5m2", [DT_BF16] = "bf16",
        [DT_F16] = "f16",   [DT_F32] = "float", [DT_F64] = "double"};
    return name[t];
}

const char *fused_compute_type(DType t) {
    return type_name[k_dtype_register(t)];
}

/* ---- instructions --------------------------------------------------------------------------- */
/* How each is written in float32, float64 and the integers: $a to $d are its operands, $i its
 * index, $t the type it converts to, $k an exponent. */
typedef struct Form {
    const char *name, *f32, *f64, *integer;
} Form;
#define SAME(name, text)                                                                           \
    { name, text, text, text }
static const Form form[KI_COUNT] = {
    [KI_THREEFRY] = SAME("threefry", "(i64)threefry2x32($a, $b, $c, $d)"),
    [KI_NEG] = {"neg", "-$a", "-$a", "negate($a)"},
    [KI_ABS] = {"abs", "fabsf($a)", "fabs($a)", "absolute($a)"},
    [KI_SIGN] = SAME("sign", "sign($a)"),
    [KI_EXP] = {"exp", "expf($a)", "exp($a)", NULL},
    [KI_LOG] = {"log", "ln($a)", "ln($a)", NULL},
    [KI_LOG1P] = {"log1p", "ln_1p($a)", "ln_1p($a)", NULL},
    [KI_EXPM1] = {"expm1", "expm1f($a)", "expm1($a)", NULL},
    [KI_TANH] = {"tanh", "tanhf($a)", "tanh($a)", NULL},
    [KI_LOGISTIC] = {"logistic", "logistic($a)", "logistic($a)", NULL},
    [KI_ERF] = {"erf", "erff($a)", "erf($a)", NULL},
    [KI_ERF_INV] = {"erf_inv", "erf_inv($a)", "erf_inv($a)", NULL},
    [KI_ERFC] = {"erfc", "erfcf($a)", "erfc($a)", NULL},
    [KI_LGAMMA] = {"lgamma", "(float)lgamma((double)$a)", "lgamma($a)", NULL},
    [KI_SIN] = {"sin", "sinf($a)", "sin($a)", NULL},
    [KI_COS] = {"cos", "cosf($a)", "cos($a)", NULL},
    [KI_SQRT] = {"sqrt", "sqrtf($a)", "sqrt($a)", NULL},
    [KI_RSQRT] = {"rsqrt", "rsqrtf($a)", "1.0 / sqrt($a)", NULL},
    [KI_FLOOR] = {"floor", "floorf($a)", "floor($a)", NULL},
    [KI_CEIL] = {"ceil", "ceilf($a)", "ceil($a)", NULL},
    [KI_ROUND] = {"round", "rintf($a)", "rint($a)", NULL},
    [KI_SQUARE] = {"square", "$a * $a", "$a * $a", "multiply($a, $a)"},
    [KI_NOT] = {"not", NULL, NULL, "~$a"},
    [KI_IS_FINITE] = {"is_finite", "is_finite($a)", "is_finite($a)", NULL},
    [KI_ROUND_BF16] = {NULL, "round_bf16($a)", NULL, NULL},
    [KI_ROUND_F16] = {NULL, "round_f16($a)", NULL, NULL},
    [KI_ROUND_E4M3] = {NULL, "round_e4m3($a)", NULL, NULL},
    [KI_ROUND_E5M2] = {NULL, "round_e5m2($a)", NULL, NULL},
    [KI_ADD] = {"add", "$a + $b", "$a + $b", "add($a, $b)"},
    [KI_SUB] = {"sub", "$a - $b", "$a - $b", "subtract($a, $b)"},
    [KI_MUL] = {"mul", "$a * $b", "$a * $b", "multiply($a, $b)"},
    [KI_DIV] = {"div", "$a / $b", "$a / $b", "quotient($a, $b)"},
    [KI_REM] = {"rem", "fmodf($a, $b)", "fmod($a, $b)", "remainder_of($a, $b)"},
    [KI_POW] = {"pow", "powf($a, $b)", "pow($a, $b)", "power($a, $b)"},
    [KI_MAX] = {"max", "higher($a, $b)", "higher($a, $b)", "$a > $b ? $a : $b"},
    [KI_MIN] = {"min", "lower($a, $b)", "lower($a, $b)", "$a < $b ? $a : $b"},
    [KI_ATAN2] = {"atan2", "atan2f($a, $b)", "atan2($a, $b)", NULL},
    [KI_POLYGAMMA] = {"polygamma", "(float)polygamma((double)$a, (double)$b)", "polygamma($a, $b)",
                      NULL},
    [KI_AND] = {"and", NULL, NULL, "$a & $b"},
    [KI_OR] = {"or", NULL, NULL, "$a | $b"},
    [KI_XOR] = {"xor", NULL, NULL, "$a ^ $b"},
    [KI_SHL] = {"shl", NULL, NULL, "shift_left($a, $b)"},
    [KI_SHR] = {"shr", NULL, NULL, "shift_right($a, $b)"},
    [KI_EQ] = SAME("eq", "$a == $b"),
    [KI_NE] = SAME("ne", "$a != $b"),
    [KI_LT] = SAME("lt", "$a < $b"),
    [KI_LE] = SAME("le", "$a <= $b"),
    [KI_GT] = SAME("gt", "$a > $b"),
    [KI_GE] = SAME("ge", "$a >= $b"),
    [KI_SELECT] = SAME("select", "$a ? $b : $c"),
    [KI_FMA] = {"fma", "fmaf($a, $b, $c)", "fma($a, $b, $c)", NULL},
    /* see form_of */
    [KI_IOTA] = SAME("iota", NULL),
    [KI_RANDOM_BITS] = SAME("random", NULL),
    [KI_CONVERT] = SAME("convert", NULL),
    [KI_BITCAST] = SAME("bitcast", NULL),
    [KI_INT_POW] = SAME("pow", NULL),
};

static int source_of(const KInstr *i, int k) {
    const uint16_t reg[4] = {i->a, i->b, i->c, i->d};
    return reg[k];
}

static int connect(const KArgs *a, int32_t *source) {
    const KProgram *p = a->attr;
    const KInstr *code = k_program_code(p);
    int32_t *writer = calloc((size_t)p->nreg + 1, sizeof *writer); /* of a register, so far */
    if (!writer) return 0;
    for (int32_t i = 0; i < p->ninstr; i++) {
        for (int k = 0; k < k_instr_sources(&code[i]); k++)
            source[4 * i + k] = writer[source_of(&code[i], k)];
        if (code[i].op != KI_STORE) writer[code[i].dst] = i;
    }
    free(writer);
    return 1;
}

/* ---- roundings to 16 bits -------------------------------------------------------------------
 * A program in bfloat16 rounds after each operation, as a CPU that stores each result would. Here
 * the roundings between operations are left out, as other compilers for GPUs do: they would take
 * three times as long as what they round, and the result is nearer to the exact one. What is left:
 * roundings that somebody asked for (of values that were computed in float32), and of what is
 * stored, compared or taken apart, so that equal values stay equal. */
enum { IS_BF16 = 1, IS_F16 = 2 };

static int kind_of_rounding(const KInstr *i) {
    return i->op == KI_ROUND_BF16 ? IS_BF16 : i->op == KI_ROUND_F16 ? IS_F16 : 0;
}

static int kinds_of_constant(double x) {
    float narrow = (float)x;
    uint32_t bits, exponent;
    memcpy(&bits, &narrow, sizeof bits);
    exponent = bits >> 23 & 255;
    int is_f16 = (bits & 0x1fff) == 0 && ((exponent >= 113 && exponent <= 142) || narrow == 0);
    return ((bits & 0xffff) == 0 ? IS_BF16 : 0) | (is_f16 ? IS_F16 : 0);
}

/* Which 16-bit types have the value, given that of its operands. */
static int kinds_of(const KArgs *a, const KInstr *i, const int32_t *source, const uint8_t *kinds) {
    const KImm *imm = k_program_imm(a->attr);
    if (i->type != KT_F32) return 0;
    switch (i->op) {
    case KI_LOAD: {
        DType t = a->in[i->a].dtype;
        return t == DT_BF16 ? IS_BF16 : t == DT_F16 ? IS_F16 : 0;
    }
    case KI_IMM: return kinds_of_constant(imm[i->a].f);
    case KI_NEG:
    case KI_ABS: return kinds[source[0]];
    case KI_MAX:
    case KI_MIN: return kinds[source[0]] & kinds[source[1]];
    case KI_SELECT: return kinds[source[1]] & kinds[source[2]];
    default: return kind_of_rounding(i);
    }
}

/* Whether a small change of its operands changes what it gives by little. */
static int is_smooth(const KInstr *i) {
    switch (i->op) {
    case KI_SIGN:
    case KI_FLOOR:
    case KI_CEIL:
    case KI_ROUND:
    case KI_IS_FINITE:
    case KI_CONVERT:
    case KI_BITCAST:
    case KI_REM: return 0;
    default: return i->op != KI_STORE && !(i->op >= KI_EQ && i->op <= KI_GE);
    }
}

static int stores_as(const KArgs *a, const KInstr *i, int kind) {
    if (i->op != KI_STORE) return 0;
    DType t = a->out[i->dst].dtype;
    return t == DT_BF16 ? kind == IS_BF16 : t == DT_F16 && kind == IS_F16;
}

/* Whether rounding i is one between operations of that type: its operand was made of such. */
static int is_between(const KInstr *code, const int32_t *source, const uint8_t *kinds, int32_t i) {
    int32_t from = source[4 * i];
    int n = k_instr_sources(&code[from]), kind = kind_of_rounding(&code[i]);
    for (int k = 0; k < n; k++) {
        int is_choice = code[from].op == KI_SELECT && k == 0;
        if (!is_choice && !(kinds[source[4 * from + k]] & kind)) return 0;
    }
    return n > 0;
}

/* Sets `coarse` for what only roundings read, `kept` for roundings that matter to a reader. */
static void find_readers(const KArgs *a, const FusedUse *u, uint8_t *kept) {
    const KProgram *p = a->attr;
    const KInstr *code = k_program_code(p);
    memset(u->coarse, 1, (size_t)p->ninstr);
    for (int32_t i = 0; i < p->ninstr; i++)
        for (int k = 0; k < k_instr_sources(&code[i]); k++) {
            int32_t from = u->source[4 * i + k];
            u->coarse[from] &= kind_of_rounding(&code[i]) != 0;
            kept[from] |=
                !is_smooth(&code[i]) && !stores_as(a, &code[i], kind_of_rounding(&code[from]));
        }
}

/* Lets those who read a rounding that is left out read what it would round. A rounding is left out
 * where it changes nothing, as its operand has that type, or where it stands between operations of
 * that type (is_between) and all who read it are smooth or round likewise. Which types values have
 * is asked of the program as it is written, so all of that is decided before any reader is led
 * elsewhere; in rising order, so that `instead` of an operand leads past a whole chain of them.
 * A store into the type rounds by itself: it reads past the rounding in any case. */
static int drop_roundings(const KArgs *a, FusedUse *u) {
    const KProgram *p = a->attr;
    const KInstr *code = k_program_code(p);
    int32_t *instead = calloc((size_t)p->ninstr + 1, sizeof *instead);
    uint8_t *kinds = calloc(2 * (size_t)p->ninstr + 2, 1), *kept = kinds + p->ninstr;
    int done = instead && kinds;
    if (done) find_readers(a, u, kept);
    for (int32_t i = 0; done && i < p->ninstr; i++)
        kinds[i] = (uint8_t)kinds_of(a, &code[i], &u->source[4 * i], kinds);
    for (int32_t i = 0; done && i < p->ninstr; i++) {
        int kind = kind_of_rounding(&code[i]), same = kind && kinds[u->source[4 * i]] & kind;
        int drops = same || (kind && !kept[i] && is_between(code, u->source, kinds, i));
        instead[i] = drops ? instead[u->source[4 * i]] : i;
    }
    for (int32_t i = 0; done && i < p->ninstr; i++)
        for (int k = 0; k < k_instr_sources(&code[i]); k++) {
            int32_t *from = &u->source[4 * i + k];
            *from = instead[*from];
            if (stores_as(a, &code[i], kind_of_rounding(&code[*from])))
                *from = u->source[4 * *from];
        }
    free(instead);
    free(kinds);
    return done;
}

static int has_line(const KInstr *i) {
    return i->op != KI_LOAD && i->op != KI_IMM && i->op != KI_STORE;
}

int fused_use(const KArgs *a, FusedUse *u) {
    const KProgram *p = a->attr;
    const KInstr *code = k_program_code(p);
    size_t n = (size_t)p->ninstr;
    *u = (FusedUse){.source = calloc(4 * n + 1, sizeof(int32_t)),
                    .number = calloc(n + 1, sizeof(int32_t)),
                    .live = calloc(n + 1, 1),
                    .coarse = calloc(n + 1, 1),
                    .input = calloc((size_t)a->nin + 1, 1)};
    if (!u->source || !u->number || !u->live || !u->coarse || !u->input) return 0;
    if (!connect(a, u->source) || !drop_roundings(a, u)) return 0;
    for (int32_t i = p->ninstr - 1; i >= 0; i--) {
        if (code[i].op == KI_STORE) u->live[i] = 1;
        for (int k = 0; u->live[i] && k < k_instr_sources(&code[i]); k++)
            u->live[u->source[4 * i + k]] = 1;
        if (u->live[i] && code[i].op == KI_LOAD) u->input[code[i].a] = 1;
    }
    int32_t lines = 0;
    for (int32_t i = 0; i < p->ninstr; i++)
        if (u->live[i] && has_line(&code[i])) u->number[i] = lines++;
    return 1;
}

void fused_use_free(FusedUse *u) {
    free(u->source);
    free(u->number);
    free(u->live);
    free(u->coarse);
    free(u->input);
}

void fused_name(const KArgs *a, const FusedUse *u, char *name, size_t size) {
    enum { MOST = 5 };
    const KProgram *p = a->attr;
    const char *known[MOST];
    int n = 0;
    size_t at = (size_t)snprintf(name, size, "fused");
    for (int32_t i = 0; i < p->ninstr && n < MOST; i++) {
        const char *op = form[k_program_code(p)[i].op].name;
        int skip = !u->live[i] || !op;
        for (int k = 0; k < n; k++) skip = skip || known[k] == op;
        if (skip) continue;
        known[n++] = op;
        at += (size_t)snprintf(name + at, size - at, "_%s", op);
    }
    int reads = 0;
    for (int k = 0; k < a->nin; k++) reads |= u->input[k];
    if (n == 0) snprintf(name + at, size - at, reads ? "_cast" : "_fill");
}

/* ---- values --------------------------------------------------------------------------------- */
static void put_float(Text *t, KType type, double x) {
    const char *cast = type == KT_F64 ? "(double)" : "";
    if (type == KT_F32) x = (float)x;
    if (isnan(x)) {
        text_put(t, "%snot_a_number()", cast);
    } else if (isinf(x)) {
        text_put(t, x < 0 ? "(-%sinfinity())" : "%sinfinity()", cast);
    } else {
        char digits[TEXT_NUMBER];
        text_number(digits, x, type == KT_F64);
        text_put(t, "%s%s%s%s%s", signbit(x) ? "(" : "", digits, strpbrk(digits, ".e") ? "" : ".0",
                 type == KT_F64 ? "" : "f", signbit(x) ? ")" : "");
    }
}

static void put_integer(Text *t, int64_t x, int64_t least, const char *suffix) {
    if (x == least) /* its digits without the sign are none of the type */
        text_put(t, "(%" PRId64 "%s - 1)", x + 1, suffix);
    else
        text_put(t, x < 0 ? "(%" PRId64 "%s)" : "%" PRId64 "%s", x, suffix);
}

static void put_constant(Text *t, KType type, KImm imm) {
    switch (type) {
    case KT_F32:
    case KT_F64: put_float(t, type, imm.f); break;
    case KT_U32: text_put(t, "%" PRIu32 "u", (uint32_t)imm.i); break;
    case KT_I32: put_integer(t, (int32_t)imm.i, INT32_MIN, ""); break;
    case KT_U64: text_put(t, "%" PRIu64 "ull", (uint64_t)imm.i); break;
    default: put_integer(t, imm.i, INT64_MIN, "ll");
    }
}

typedef struct Writer {
    Text *t;
    const KArgs *a;
    const FusedUse *use;
    const KInstr *code;
    const KImm *imm;
} Writer;

/* The value of instruction i: an input by its parameter, a constant as it is, others by a line. */
static void put_operand(const Writer *w, int32_t i) {
    const KInstr *in = &w->code[i];
    if (in->op == KI_LOAD)
        text_put(w->t, "x%d", (int)in->a);
    else if (in->op == KI_IMM)
        put_constant(w->t, (KType)in->type, w->imm[in->a]);
    else
        text_put(w->t, "r%d", (int)w->use->number[i]);
}

static int is_float(KType t) {
    return t == KT_F32 || t == KT_F64;
}

static const char *form_of(const KInstr *i, int coarse) {
    KType from = (KType)i->type, to = (KType)i->d;
    switch (i->op) {
    case KI_IOTA:
        return from == KT_I64   ? "$i"
               : from == KT_I32 ? "(i32)$i"
               : from == KT_U32 ? "(u32)$i"
               : from == KT_U64 ? "(u64)$i"
               : from == KT_F32 ? "(float)$i"
                                : "(double)$i";
    case KI_RANDOM_BITS:
        return from == KT_I64 ? "(i64)random_u64($a, $b, $i)" : "random_u32($a, $b, $i)";
    case KI_CONVERT: return is_float(from) && !is_float(to) ? "to_$t($a)" : "($t)$a";
    case KI_BITCAST: return "bits_as<$t>($a)";
    case KI_TANH:
        if (coarse && from == KT_F32) return "tanh_approx($a)";
        break;
    case KI_EXP:
        if (coarse && from == KT_F32) return "math::exp($a)";
        break;
    case KI_INT_POW: return "whole_power<$k>($a)";
    default: break;
    }
    const Form *f = &form[i->op];
    return from == KT_F32 ? f->f32 : from == KT_F64 ? f->f64 : f->integer;
}

static void put_value(const Writer *w, int32_t i) {
    const KInstr *in = &w->code[i];
    for (const char *c = form_of(in, w->use->coarse[i]); *c; c++) {
        if (*c != '$')
            text_put(w->t, "%c", *c);
        else if (*++c == 'i')
            text_put(w->t, "i%d", (int)w->use->number[i]);
        else if (*c == 't')
            text_put(w->t, "%s", type_name[in->d]);
        else if (*c == 'k')
            text_put(w->t, "%" PRId64, w->imm[in->b].i);
        else
            put_operand(w, w->use->source[4 * i + (*c - 'a')]);
    }
}

void fused_element(Text *t, const KArgs *a, const FusedUse *u) {
    const KProgram *p = a->attr;
    Writer w = {t, a, u, k_program_code(p), k_program_imm(p)};
    int n = 0;
    text_put(t, "DEVICE void element(");
    for (int k = 0; k < a->nin; k++)
        if (u->input[k])
            text_item(t, n++ ? "," : "", "%s x%d", fused_compute_type(a->in[k].dtype), k);
    for (int32_t i = 0; i < p->ninstr; i++)
        if (u->live[i] && fused_is_index(&w.code[i]))
            text_item(t, n++ ? "," : "", "i64 i%d", (int)u->number[i]);
    for (int k = 0; k < a->nout; k++)
        text_item(t, n++ ? "," : "", "%s &y%d", fused_compute_type(a->out[k].dtype), k);
    text_put(t, ") {\n");
    for (int32_t i = 0; i < p->ninstr; i++) {
        const KInstr *in = &w.code[i];
        if (!u->live[i] || (in->op != KI_STORE && !has_line(in))) continue;
        if (in->op == KI_STORE) {
            text_put(t, "    y%d = ", (int)in->dst);
            put_operand(&w, u->source[4 * i]);
        } else {
            text_put(t, "    %s r%d = ", type_name[k_instr_result(a, in)], (int)u->number[i]);
            put_value(&w, i);
        }
        text_put(t, ";\n");
    }
    text_put(t, "}\n");
}
