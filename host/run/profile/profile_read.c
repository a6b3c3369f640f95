/* profile_read.c - the recorded pieces seen through their plans: work, totals, devices. */
#include "run/profile/profile.h"

static double tensor_bytes(const KTensor *t) {
    double bytes = (double)dtype_size(t->dtype);
    for (int d = 0; d < t->rank; d++) bytes *= (double)t->dims[d];
    return bytes;
}

static void add_step(const Exec *e, int32_t step, ProfileWork *work) {
    const PlanStep *s = plan_step(e->plan, step);
    work->flops += s->flops;
    work->bytes += s->bytes;
}

/* Does the item's launch do that step, too? */
static bool combines(const Exec *e, const Item *item, int32_t step, int32_t slot) {
    if (item->combined || !plan_step(e->plan, item->step)->combines) return false;
    if (step == e->plan->steps.n || slot >= e->step[step].n) return false;
    const Item *other = &e->item.at[e->step[step].first + slot];
    return other->combined && other->row == item->row;
}

/* Of a kernel's step, and of those that its launch does, too (combine.h). */
static ProfileWork kernel_work(const Exec *e, int32_t i) {
    const Item *item = &e->item.at[i];
    int32_t step = item->step, slot = i - e->step[step].first;
    ProfileWork work = {0};
    if (item->with >= 0) add_step(e, item->with, &work);
    do add_step(e, step++, &work);
    while (combines(e, item, step, slot));
    return work;
}

ProfileWork profile_work(const ProfilePlan *plan, int32_t i) {
    const Item *item = &plan->e->item.at[i];
    if (plan_step(plan->e->plan, item->step)->kind == STEP_KERNEL) return kernel_work(plan->e, i);
    ProfileWork work = {0};
    for (int k = 0; k < item->args.nin + item->args.nout; k++)
        work.bytes += tensor_bytes(&item->tensor[k]);
    return work;
}

ProfileTotal profile_total(const Profile *p, const ProfilePlan *plan, int32_t item) {
    ProfileTotal sum = {0};
    for (int32_t t = 0; t < p->threads; t++) {
        sum.time += plan->total[t][item].time;
        sum.share += plan->total[t][item].share;
    }
    return sum;
}

/* The slot of a device of this process. */
static int32_t slot_at(const Exec *e, uint32_t vary, int32_t index) {
    int32_t coord[MAX_AXES] = {0};
    if (e->mesh) mesh_coords(e->mesh, index, coord);
    return place_own_slot(e->mesh, vary, coord);
}

bool profile_has_device(const ProfilePlan *plan, int32_t item, int32_t index) {
    const Exec *e = plan->e;
    const ProfileItem *at = &plan->item[item];
    return exec_device(e, index) >= 0 && slot_at(e, at->vary, index) == at->slot;
}

/* Sums by slot of each vary class, so that devices and items need not be met pairwise. */
static Err add_plan(const Profile *p, const ProfilePlan *plan, double *device) {
    const Exec *e = plan->e;
    int32_t n = e->mesh ? e->mesh->ndevices : 1, classes = 1 << e->plan->naxes;
    size_t size = sizeof(double) * (size_t)n * (size_t)(classes + 1);
    double *sum = alloc_new(&p->cx->alloc, size), *sharing = sum + classes * n;
    if (!sum) return err_nomem(p->cx, "a profile");
    for (int32_t i = 0; i < e->item.n; i++) {
        const ProfileItem *at = &plan->item[i];
        for (int32_t t = 0; t < p->threads; t++)
            sum[at->vary * n + at->slot] += (double)plan->total[t][i].time;
    }
    for (int32_t vary = 0; vary < classes; vary++) {
        for (int32_t i = 0; i < n; i++) sharing[i] = 0; /* devices, by slot */
        for (int32_t i = 0; i < n; i++)
            if (exec_device(e, i) >= 0) sharing[slot_at(e, (uint32_t)vary, i)]++;
        for (int32_t i = 0; i < n; i++) {
            int32_t id = exec_device(e, i), slot = id < 0 ? 0 : slot_at(e, (uint32_t)vary, i);
            if (id >= 0) device[id] += sum[vary * n + slot] / sharing[slot];
        }
    }
    alloc_free(&p->cx->alloc, sum, size);
    return E_OK;
}

Err profile_add_devices(const Profile *p, double *device) {
    for (int32_t i = 0; i < p->plan.n; i++) TRY(add_plan(p, p->plan.at[i], device));
    return E_OK;
}
