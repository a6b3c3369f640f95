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

/* The place in the grid of a domain's k-th device, or -1. */
static int32_t nth(const Mesh *m, int32_t domain, int32_t k) {
    int32_t id = domain * m->each + k;
    return id < m->nids ? m->index[id] : -1;
}

static void clear(const Mesh *m, uint32_t vary, SlotSet *set) {
    set->words = mesh_product(m, vary) / 64 + 1;
    memset(set->bit, 0, sizeof *set->bit * (size_t)set->words);
}

/* Adds the slots of a domain. */
static void add(const Mesh *m, uint32_t vary, int32_t domain, SlotSet *set) {
    for (int32_t k = 0; k < m->each; k++) {
        int32_t coord[MAX_AXES], i = nth(m, domain, k);
        if (i < 0) continue;
        mesh_coords(m, i, coord);
        int32_t n = place_number(m, vary, coord);
        set->bit[n / 64] |= UINT64_C(1) << n % 64;
    }
}

static void find(const Mesh *m, uint32_t vary, int32_t domain, SlotSet *set) {
    clear(m, vary, set);
    add(m, vary, domain, set);
}

static int32_t count(const SlotSet *set) {
    int32_t n = 0;
    for (int32_t w = 0; w < set->words; w++) n += __builtin_popcountll(set->bit[w]);
    return n;
}

/* ---- of a domain ---- */

int32_t place_slots(const Mesh *m, uint32_t vary, int32_t domain) {
    if (!place_is_spread(m)) return domain == place_domain(m, 0) ? mesh_product(m, vary) : 0;
    SlotSet set;
    find(m, vary, domain, &set);
    return count(&set);
}

int32_t place_slot(const Mesh *m, uint32_t vary, int32_t domain, const int32_t coord[MAX_AXES]) {
    int32_t number = place_number(m, vary, coord), before = 0;
    if (!place_is_spread(m)) return domain == place_domain(m, 0) ? number : -1;
    SlotSet set;
    find(m, vary, domain, &set);
    uint64_t word = set.bit[number / 64], bit = UINT64_C(1) << number % 64;
    if (!(word & bit)) return -1;
    for (int32_t w = 0; w < number / 64; w++) before += __builtin_popcountll(set.bit[w]);
    return before + __builtin_popcountll(word & (bit - 1));
}

/* The number among all of a domain's slot. */
static int32_t number_of(const Mesh *m, uint32_t vary, int32_t domain, int32_t slot) {
    SlotSet set;
    find(m, vary, domain, &set);
    for (int32_t w = 0; w < set.words; w++)
        for (uint64_t rest = set.bit[w]; rest; rest &= rest - 1)
            if (slot-- == 0) return 64 * w + __builtin_ctzll(rest);
    return 0;
}

void place_coords(const Mesh *m, uint32_t vary, int32_t domain, int32_t slot,
                  int32_t coord[MAX_AXES]) {
    memset(coord, 0, sizeof *coord * MAX_AXES);
    if (!place_is_spread(m)) {
        for (int i = m->naxes - 1; i >= 0; i--) {
            if (!(vary >> i & 1)) continue;
            coord[i] = slot % m->size[i];
            slot /= m->size[i];
        }
        return;
    }
    int32_t number = number_of(m, vary, domain, slot), first = m->ndevices;
    for (int32_t k = 0; k < m->each; k++) {
        int32_t at[MAX_AXES], i = nth(m, domain, k);
        if (i < 0 || i >= first) continue;
        mesh_coords(m, i, at);
        if (place_number(m, vary, at) != number) continue;
        first = i;
        memcpy(coord, at, sizeof at);
    }
}

/* ---- of this process ---- */

bool place_has_own(const Mesh *m) {
    int32_t i = 0;
    while (m && i < m->ndevices && !place_is_own(m, i)) i++;
    return !m || i < m->ndevices;
}

int32_t place_own_first(const Mesh *m, uint32_t vary, int32_t k) {
    int32_t n = 0;
    if (!m) return k > 0;
    for (int32_t i = 0; i < k; i++) n += place_slots(m, vary, m->domain + i);
    return n;
}

int32_t place_own_slots(const Mesh *m, uint32_t vary) {
    return place_own_first(m, vary, m ? m->domains : 1);
}

int32_t place_own_domain(const Mesh *m, uint32_t vary, int32_t slot) {
    int32_t k = 0;
    while (m && k + 1 < m->domains && slot >= place_own_first(m, vary, k + 1)) k++;
    return k;
}

int32_t place_own_slot(const Mesh *m, uint32_t vary, const int32_t coord[MAX_AXES]) {
    if (!m) return 0;
    int32_t domain = place_domain(m, place_index(m, coord));
    return place_own_first(m, vary, domain - m->domain) + place_slot(m, vary, domain, coord);
}

void place_own_coords(const Mesh *m, uint32_t vary, int32_t slot, int32_t coord[MAX_AXES]) {
    int32_t k = place_own_domain(m, vary, slot);
    if (m)
        place_coords(m, vary, m->domain + k, slot - place_own_first(m, vary, k), coord);
    else
        memset(coord, 0, sizeof *coord * MAX_AXES);
}

bool place_own_all(const Mesh *m, uint32_t vary) {
    SlotSet set;
    if (!place_is_spread(m)) return place_has_own(m);
    clear(m, vary, &set);
    for (int32_t k = 0; k < m->domains; k++) add(m, vary, m->domain + k, &set);
    return count(&set) == mesh_product(m, vary);
}
