#include "ir/place.h"

#include <string.h>

/* A bit for every slot of a mesh. */
typedef struct SlotSet {
    uint64_t bit[MAX_DEVICES / 64 + 1];
    int32_t words;
} SlotSet;

int32_t place_index(const Mesh *m, const int32_t coord[MAX_AXES]) {
    int32_t index = 0;
    for (int i = 0; i < m->naxes; i++) index = index * m->size[i] + coord[i];
    return index;
}

int32_t place_number(const Mesh *m, uint32_t vary, const int32_t coord[MAX_AXES]) {
    int32_t slot = 0;
    for (int i = 0; m && i < m->naxes; i++)
        if (vary >> i & 1) slot = slot * m->size[i] + coord[i];
    return slot;
}

/* The place in the grid of a process's k-th device, or -1. */
static int32_t nth(const Mesh *m, int32_t process, int32_t k) {
    int32_t id = process * m->each + k;
    return id < m->nids ? m->index[id] : -1;
}

/* The slots of a process. */
static void find(const Mesh *m, uint32_t vary, int32_t process, SlotSet *set) {
    set->words = mesh_product(m, vary) / 64 + 1;
    memset(set->bit, 0, sizeof *set->bit * (size_t)set->words);
    for (int32_t k = 0; k < m->each; k++) {
        int32_t coord[MAX_AXES], i = nth(m, process, k);
        if (i < 0) continue;
        mesh_coords(m, i, coord);
        int32_t n = place_number(m, vary, coord);
        set->bit[n / 64] |= UINT64_C(1) << n % 64;
    }
}

bool place_is_in(const Mesh *m, int32_t process) {
    int32_t i = 0;
    while (i < m->ndevices && place_process(m, i) != process) i++;
    return i < m->ndevices;
}

int32_t place_slots(const Mesh *m, uint32_t vary, int32_t process) {
    if (!place_is_spread(m)) return mesh_product(m, vary);
    SlotSet set;
    int32_t n = 0;
    find(m, vary, process, &set);
    for (int32_t w = 0; w < set.words; w++) n += __builtin_popcountll(set.bit[w]);
    return n;
}

int32_t place_slot(const Mesh *m, uint32_t vary, int32_t process, const int32_t coord[MAX_AXES]) {
    int32_t number = place_number(m, vary, coord), before = 0;
    if (!place_is_spread(m)) return number;
    SlotSet set;
    find(m, vary, process, &set);
    uint64_t word = set.bit[number / 64], bit = UINT64_C(1) << number % 64;
    if (!(word & bit)) return -1;
    for (int32_t w = 0; w < number / 64; w++) before += __builtin_popcountll(set.bit[w]);
    return before + __builtin_popcountll(word & (bit - 1));
}

/* The number among all of a process's slot. */
static int32_t number_of(const Mesh *m, uint32_t vary, int32_t process, int32_t slot) {
    SlotSet set;
    find(m, vary, process, &set);
    for (int32_t w = 0; w < set.words; w++)
        for (uint64_t rest = set.bit[w]; rest; rest &= rest - 1)
            if (slot-- == 0) return 64 * w + __builtin_ctzll(rest);
    return 0;
}

void place_coords(const Mesh *m, uint32_t vary, int32_t process, int32_t slot,
                  int32_t coord[MAX_AXES]) {
    memset(coord, 0, sizeof *coord * MAX_AXES);
    if (!m) return;
    if (!place_is_spread(m)) {
        for (int i = m->naxes - 1; i >= 0; i--) {
            if (!(vary >> i & 1)) continue;
            coord[i] = slot % m->size[i];
            slot /= m->size[i];
        }
        return;
    }
    int32_t number = number_of(m, vary, process, slot), first = m->ndevices;
    for (int32_t k = 0; k < m->each; k++) {
        int32_t at[MAX_AXES], i = nth(m, process, k);
        if (i < 0 || i >= first) continue;
        mesh_coords(m, i, at);
        if (place_number(m, vary, at) != number) continue;
        first = i;
        memcpy(coord, at, sizeof at);
    }
}
