#include "run/job/status.h"

#include <string.h>

enum { FEW = 8 }; /* ranks that are written one by one */

void status_of(FlightLog *flight_log, RankStatus *out) {
    memset(out, 0, sizeof *out);
    out->n = flight_log_latest(flight_log, out->latest, STATUS_LATEST);
    out->now = flight_log_now();
    bool waits = out->n > 0 && !out->latest[0].leave;
    out->kind = waits ? STATUS_WAITING : STATUS_COMPUTING;
}

/* Since when it waits or computes; 0: not known. */
static double seconds_of(const RankStatus *s) {
    if (s->n == 0) return 0;
    const FlightLogEntry *e = &s->latest[0];
    return 1e-9 * (double)(s->now - (e->leave ? e->leave : e->enter));
}

bool status_same(const RankStatus *a, const RankStatus *b) {
    const FlightLogEntry *x = &a->latest[0], *y = &b->latest[0];
    if (a->kind != b->kind || a->n == 0 || b->n == 0) return false;
    return x->number == y->number && strcmp(x->op, y->op) == 0 && strcmp(x->axes, y->axes) == 0 &&
           strcmp(x->where, y->where) == 0;
}

/* ---- texts ---- */

void status_ranks(Str *s, const uint8_t *in, int32_t world) {
    int32_t count = 0;
    const char *gap = "";
    for (int32_t i = 0; i < world; i++) count += in[i] != 0;
    for (int32_t i = 0, end; i < world; i = end) {
        end = i + 1;
        if (!in[i]) continue;
        while (count > FEW && end < world && in[end]) end++;
        str_fmt(s, end - i > 1 ? "%s%d-%d" : "%s%d", gap, (int)i, (int)end - 1);
        gap = ", ";
    }
}

/* "rank 3", "ranks 1, 2" */
static void put_ranks(Str *s, const uint8_t *in, int32_t world) {
    int32_t count = 0;
    for (int32_t i = 0; i < world; i++) count += in[i] != 0;
    str_put(s, count == 1 ? "rank " : "ranks ");
    status_ranks(s, in, world);
}

static void put_seconds(Str *s, double seconds) {
    str_fmt(s, seconds < 1 ? "%.3f s" : "%.0f s", seconds);
}

/* "all_reduce over data, train.lua:41 (exchange 812)" */
static void put_entry(Str *s, const FlightLogEntry *e) {
    str_put(s, e->op);
    if (e->axes[0]) str_fmt(s, " over %s", e->axes);
    if (e->where[0]) str_fmt(s, ", %s", e->where);
    str_fmt(s, " (exchange %llu)", (unsigned long long)e->number);
}

/* What one or several do, as a sentence goes on. */
static void put_doing(Str *s, const RankStatus *x, bool one) {
    switch ((StatusKind)x->kind) {
    case STATUS_SILENT:
        str_fmt(s, " %s not answer (stopped, or %s lost)", one ? "does" : "do",
                one ? "its host is" : "their hosts are");
        break;
    case STATUS_ABSENT: str_put(s, one ? " has not started" : " have not started"); break;
    case STATUS_GONE:
        str_fmt(s, " %s gone without a word (killed, crashed, or %s lost)", one ? "is" : "are",
                one ? "its host is" : "their hosts are");
        break;
    case STATUS_ENDED: str_put(s, one ? " has ended" : " have ended"); break;
    case STATUS_WAITING:
        str_put(s, one ? " waits since " : " wait since ");
        put_seconds(s, seconds_of(x));
        str_put(s, " in ");
        put_entry(s, &x->latest[0]);
        break;
    case STATUS_COMPUTING:
        str_put(s, one ? " computes" : " compute");
        if (x->n == 0) break;
        str_put(s, " since ");
        put_seconds(s, seconds_of(x));
        str_put(s, ", last left ");
        put_entry(s, &x->latest[0]);
        break;
    }
}

void status_print(Str *s, const RankStatus *x, int32_t rank) {
    str_fmt(s, "rank %d", (int)rank);
    put_doing(s, x, true);
}

/* Marks those that stand where rank i does; false if one before it does, too. */
static bool mark_like(const RankStatus *all, int32_t world, int32_t i, uint8_t *in) {
    bool first = true;
    for (int32_t k = 0; k < world; k++) {
        bool bare = all[k].kind < STATUS_WAITING || all[k].n == 0;
        in[k] = k == i || (bare ? all[k].kind == all[i].kind &&
                                      (all[i].kind < STATUS_WAITING || all[i].n == 0)
                                : status_same(&all[k], &all[i]));
        if (in[k] && k < i) first = false;
    }
    return first;
}

typedef bool Wanted(const RankStatus *x, const RankStatus *asker);

static bool is_lost(const RankStatus *x, const RankStatus *asker) {
    (void)asker;
    return x->kind < STATUS_WAITING;
}

static bool is_there(const RankStatus *x, const RankStatus *asker) {
    return !is_lost(x, asker);
}

static bool is_elsewhere(const RankStatus *x, const RankStatus *asker) {
    return !status_same(x, asker);
}

/* A sentence for each place at which there are such processes; false if there are none. */
static bool put_groups(Str *s, const RankStatus *all, int32_t world, const char *first,
                       const char *next, Wanted *wanted, const RankStatus *asker) {
    uint8_t *in = alloc_new(s->alloc, (size_t)world);
    bool any = false;
    if (!in) s->failed = true;
    for (int32_t i = 0; in && i < world; i++) {
        if (!wanted(&all[i], asker) || !mark_like(all, world, i, in)) continue;
        int32_t count = 0;
        for (int32_t k = 0; k < world; k++) count += in[k];
        str_put(s, any ? next : first);
        put_ranks(s, in, world);
        put_doing(s, &all[i], count == 1);
        any = true;
    }
    alloc_free(s->alloc, in, (size_t)world);
    return any;
}

bool status_lost(Str *s, const RankStatus *all, int32_t world) {
    return put_groups(s, all, world, "", "; ", is_lost, NULL);
}

void status_cause(Str *s, const RankStatus *all, int32_t world, int32_t asker) {
    bool any = status_lost(s, all, world) ||
               put_groups(s, all, world, "", "; ", is_elsewhere, &all[asker]);
    if (any) str_put(s, "; ");
    status_print(s, &all[asker], asker);
    if (!any) str_put(s, ", and so do all others: nothing comes through");
}

void status_table(Str *s, const RankStatus *all, int32_t world) {
    put_groups(s, all, world, "\n  ", "\n  ", is_there, NULL);
}

void status_flight_log(Str *s, const RankStatus *x, int32_t rank) {
    char text[BYTES_TEXT];
    if (x->n == 0) return;
    str_fmt(s, "\n  the latest exchanges of rank %d, with what came and how long it waited:",
            (int)rank);
    for (int i = 0; i < x->n; i++) {
        const FlightLogEntry *e = &x->latest[i];
        str_put(s, "\n    ");
        put_entry(s, e);
        str_fmt(s, ", %s, ", str_bytes((double)e->bytes, text));
        put_seconds(s, 1e-9 * (double)((e->leave ? e->leave : x->now) - e->enter));
        if (!e->leave) str_put(s, " and still does");
    }
}
