#include "ir/factor.h"

int factor_add(FactorRule *r, FactorKind kind, int64_t size) {
    ASSERT(r->nfactor < MAX_FACTORS, "more than %d factors", MAX_FACTORS);
    r->size[r->nfactor] = size;
    r->kind[r->nfactor] = (uint8_t)kind;
    return r->nfactor++;
}

void factor_map(FactorRule *r, int tensor, int dim, int factor) {
    FactorMap *m = &r->tensor[tensor];
    ASSERT(m->n[dim] < MAX_DIM_FACTORS, "more than %d factors in a dim", MAX_DIM_FACTORS);
    m->at[dim][m->n[dim]++] = (uint8_t)factor;
}

int factor_dim(const FactorMap *m, int rank, int factor) {
    for (int d = 0; d < rank; d++)
        for (int k = 0; k < m->n[d]; k++)
            if (m->at[d][k] == factor) return d;
    return -1;
}

bool factor_in(const FactorMap *m, int rank, int factor) {
    return factor_dim(m, rank, factor) >= 0;
}

static char letter(int factor) {
    return (char)((factor < 18 ? 'i' : 'a' - 18) + factor);
}

void factor_print(const FactorRule *r, int nin, const int *ranks, Str *s) {
    static const char *const kind[] = {NULL, "sum", "max", "min", "replicate"};
    str_put(s, "(");
    for (int t = 0; t < r->ntensor; t++) {
        if (t == nin) str_put(s, ")->(");
        str_put(s, t && t != nin ? ",[" : "[");
        for (int d = 0; d < ranks[t]; d++) {
            if (d) str_put(s, ",");
            if (r->tensor[t].n[d] == 0) str_put(s, "1");
            for (int k = 0; k < r->tensor[t].n[d]; k++)
                str_fmt(s, "%c", letter(r->tensor[t].at[d][k]));
        }
        str_put(s, "]");
    }
    str_put(s, ") {");
    for (int f = 0; f < r->nfactor; f++)
        str_fmt(s, "%s%c=%lld", f ? ", " : "", letter(f), (long long)r->size[f]);
    for (int f = 0; f < r->nfactor; f++)
        if (kind[r->kind[f]]) str_fmt(s, ", %s=%c", kind[r->kind[f]], letter(f));
    for (int f = 0; f < r->nfactor; f++)
        if (r->before[f] || r->behind[f])
            str_fmt(s, ", halo(%c)=%d+%d", letter(f), r->before[f], r->behind[f]);
    str_put(s, "}");
}
