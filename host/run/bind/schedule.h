/* schedule.h - a plan's steps in segments, and their items in stages of pieces for the threads. */
#ifndef MESHLUA_RUN_BIND_SCHEDULE_H
#define MESHLUA_RUN_BIND_SCHEDULE_H

#include "run/bind/depend.h"

/* Cuts the steps where data decides how it goes on, and at exchanges. */
Err schedule_cut(Exec *e) MUST_CHECK;
/* Gives the segments their stages. */
Err schedule_stages(Exec *e, const Depends *depends) MUST_CHECK;

#endif
