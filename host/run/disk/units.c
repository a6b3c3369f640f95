#include "run/disk/units.h"

/* The processes that hold each slot, rising, and a device of each slot. */
typedef struct UnitsHolders {
    int32_t nslot, ndevice;
    int32_t *first;   /* nslot + 1: where in `process` its holders begin */
    int32_t *count;   /* how many there are */
    int32_t *device;  /* a place in the grid */
    int32_t *process; /* ndevice */
} UnitsHolders;

static int32_t process_of(const Mesh *m, int32_t device, UnitsJob job) {
    int32_t process = m->device[device] / job.devices;
    return process < job.processes ? process : job.processes - 1;
}

/* Puts a process among a slot's holders, once. */
static void hold(UnitsHolders *h, int32_t slot, int32_t process) {
    int32_t *list = h->process + h->first[slot], n = h->count[slot], k = n;
    while (k > 0 && list[k - 1] > process) k--;
    if (k > 0 && list[k - 1] == process) return;
    for (int32_t i = n; i > k; i--) list[i] = list[i - 1];
    list[k] = process;
    h->count[slot]++;
}

static void find_holders(UnitsHolders *h, const Layout *l, UnitsJob job) {
    const Mesh *m = l->mesh;
    int32_t coord[MAX_AXES];
    for (int pass = 0; pass < 2; pass++) { /* how many, then who */
        for (int32_t i = 0; i < m->ndevices; i++) {
            mesh_coords(m, i, coord);
            int32_t slot = layout_slot(l, coord);
            if (pass == 0)
                h->first[slot + 1]++;
            else
                hold(h, slot, process_of(m, i, job));
            if (pass == 0) h->device[slot] = i;
        }
        for (int32_t s = 0; pass == 0 && s < h->nslot; s++) h->first[s + 1] += h->first[s];
    }
}

/* Without a mesh all processes hold it. */
static void all_hold(UnitsHolders *h, UnitsJob job) {
    for (int32_t i = 0; i < job.processes; i++) h->process[i] = i;
    h->count[0] = h->first[1] = job.processes;
}

static Err cut_for_holders(const UnitsHolders *h, int32_t slot, int32_t index, DType dtype,
                           UnitBox part, UnitsFn *fn, void *ud) {
    const int32_t *process = h->process + h->first[slot];
    int64_t n = h->count[slot], bytes = dims_count(&part.size) * dtype_size(dtype);
    int d = 0;
    if (bytes == 0) return E_OK;
    while (d < part.size.rank && part.size.at[d] < n) d++;
    if (n == 1 || bytes < UNITS_SMALL || d == part.size.rank) {
        UnitsWriter w = {process[index % n], slot, part};
        return fn(ud, &w);
    }
    int64_t whole = part.size.at[d], each = (whole + n - 1) / n;
    for (int64_t r = 0; r * each < whole; r++) {
        UnitsWriter w = {process[r], slot, part};
        w.box.at.at[d] += r * each;
        w.box.size.at[d] = r * each + each > whole ? whole - r * each : each;
        TRY(fn(ud, &w));
    }
    return E_OK;
}

Err units_writers(Ctx *cx, const Type *type, int32_t index, UnitsJob job, UnitsFn *fn, void *ud) {
    const Layout *l = type->layout;
    Arena arena;
    UnitsHolders h = {.nslot = l ? mesh_product(l->mesh, layout_vary(l)) : 1,
                      .ndevice = l ? l->mesh->ndevices : job.processes};
    arena_init(&arena, &cx->alloc);
    h.first = ARENA_ARRAY(&arena, int32_t, h.nslot + 1);
    h.count = ARENA_ARRAY(&arena, int32_t, h.nslot);
    h.device = ARENA_ARRAY(&arena, int32_t, h.nslot);
    h.process = ARENA_ARRAY(&arena, int32_t, h.ndevice);
    Err err = h.first && h.count && h.device && h.process ? E_OK : err_nomem(cx, "writers");
    if (!err && l)
        find_holders(&h, l, job);
    else if (!err)
        all_hold(&h, job);
    for (int32_t slot = 0; slot < h.nslot && !err; slot++) {
        int32_t coord[MAX_AXES] = {0};
        int64_t start[MAX_RANK] = {0};
        UnitBox part = {.at.rank = type->dims.rank};
        if (l) mesh_coords(l->mesh, h.device[slot], coord);
        part.size = layout_part(l, &type->dims, coord, start);
        for (int d = 0; d < part.at.rank; d++) part.at.at[d] = start[d];
        err = cut_for_holders(&h, slot, index, type->dtype, part, fn, ud);
    }
    arena_free(&arena);
    return err;
}

/* From dim d on; those before it have one element. */
static Err cut_on(int64_t size, UnitBox box, int d, UnitsBoxFn *fn, void *ud) {
    while (d < box.size.rank && box.size.at[d] == 1) d++;
    int64_t one = size;
    for (int k = d + 1; k < box.size.rank; k++) one *= box.size.at[k];
    if (d == box.size.rank) return fn(ud, &box);
    int64_t each = one > UNITS_BYTES ? 1 : UNITS_BYTES / one;
    int64_t from = box.at.at[d], whole = box.size.at[d];
    for (int64_t i = 0; i < whole; i += each) {
        box.at.at[d] = from + i;
        box.size.at[d] = each < whole - i ? each : whole - i;
        TRY(one > UNITS_BYTES ? cut_on(size, box, d + 1, fn, ud) : fn(ud, &box));
    }
    return E_OK;
}

Err units_cut(DType dtype, const UnitBox *box, UnitsBoxFn *fn, void *ud) {
    if (dims_count(&box->size) == 0) return E_OK;
    return cut_on(dtype_size(dtype), *box, 0, fn, ud);
}
