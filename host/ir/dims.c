#include "ir/dims.h"

#include <string.h>

bool dims_equal(const Dims *a, const Dims *b) {
    return a->rank == b->rank && memcmp(a->at, b->at, sizeof a->at[0] * (size_t)a->rank) == 0;
}

int64_t dims_count(const Dims *d) {
    int64_t n = 1;
    bool zero = false;
    for (int i = 0; i < d->rank; i++) {
        if (d->at[i] == 0)
            zero = true;
        else if (n > DIMS_MOST / d->at[i])
            return -1;
        else
            n *= d->at[i];
    }
    return zero ? 0 : n;
}

void dims_push(Dims *d, int64_t x) {
    ASSERT(d->rank < MAX_RANK, "more than %d dims", MAX_RANK);
    d->at[d->rank++] = x;
}

void dims_insert(Dims *d, int at, int64_t x) {
    ASSERT(d->rank < MAX_RANK, "more than %d dims", MAX_RANK);
    memmove(&d->at[at + 1], &d->at[at], sizeof d->at[0] * (size_t)(d->rank - at));
    d->at[at] = x;
    d->rank++;
}

bool dims_has(const Dims *d, int64_t x) {
    for (int i = 0; i < d->rank; i++)
        if (d->at[i] == x) return true;
    return false;
}

void dims_strides(const Dims *d, int64_t unit, int64_t strides[MAX_RANK]) {
    for (int i = d->rank - 1; i >= 0; i--) {
        strides[i] = unit;
        unit *= d->at[i];
    }
}

bool dims_broadcast(const Dims *a, const Dims *b, Dims *out) {
    *out = (Dims){.rank = a->rank > b->rank ? a->rank : b->rank};
    for (int i = 0; i < out->rank; i++) {
        int ia = i - (out->rank - a->rank), ib = i - (out->rank - b->rank);
        int64_t x = ia < 0 ? 1 : a->at[ia], y = ib < 0 ? 1 : b->at[ib];
        if (x != y && x != 1 && y != 1) return false;
        out->at[i] = x == 1 ? y : x;
    }
    return true;
}
