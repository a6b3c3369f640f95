/* profile.h - the recording of what ran when (record.h): its start and end, what it says. */
#ifndef MESHLUA_RUN_PROFILE_PROFILE_H
#define MESHLUA_RUN_PROFILE_PROFILE_H

#include "run/exec/record.h"

/* From now on everything is recorded; the file is opened at once, and keeps what is in it until it
 * is written at the end. */
Err profile_start(Runtime *rt, const char *path) MUST_CHECK;
/* Writes the file and ends the recording; nothing to do where there is none. */
Err profile_stop(Runtime *rt) MUST_CHECK;
/* The same without the file. */
void profile_drop(Runtime *rt);
/* Is a recording under way, and has a plan run? */
static inline bool profile_has_run(const Runtime *rt) {
    return rt->profile && rt->profile->plan.n > 0;
}

/* ---- what was recorded (profile_read.c) ---- */

/* The work of one run of the item: of one device in a kernel; what it moves in a collective. */
typedef struct ProfileWork {
    double flops, bytes;
} ProfileWork;
ProfileWork profile_work(const ProfilePlan *plan, int32_t item);
/* The steps that an item does, in their order: its own, and those that run as one with it. How
 * many. */
static inline int profile_steps(const Item *item, int32_t step[2]) {
    bool later = item->with > item->step;
    step[0] = item->with < 0 || later ? item->step : item->with;
    step[1] = later ? item->with : item->step;
    return item->with < 0 ? 1 : 2;
}
/* All threads' pieces of the item. */
ProfileTotal profile_total(const Profile *p, const ProfilePlan *plan, int32_t item);
/* Does the device at `index` of the plan's mesh hold what the item writes? */
bool profile_has_device(const ProfilePlan *plan, int32_t item, int32_t index);
/* Adds nanoseconds to each device (by id, of the process): a piece that several share counts for
 * each with its part. */
Err profile_add_devices(const Profile *p, double *device) MUST_CHECK;

/* The file's text (profile_json.c). */
Err profile_write(Profile *p) MUST_CHECK;

#endif
