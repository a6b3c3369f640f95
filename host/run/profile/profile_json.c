/* profile_json.c - a profile in the Chrome trace format: one track per thread, and one per device.
 * Events stand in the order of their start; on a track they nest. */
#include "run/profile/profile.h"
#include "base/file.h"
#include "base/plain.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { PID_THREADS = 1, PID_DEVICES = 2 };

typedef struct ProfileWriter {
    const Profile *p;
    FILE *f;
    bool any; /* an event has been written */
    int32_t ndevices;
    int64_t *free_at; /* by lane, by device: when the last event there ends */
    int32_t lanes;    /* that a device may need: pieces of one step run on all threads */
    int64_t *next;    /* by ring (the host's first): the record to write next */
} ProfileWriter;

/* ---- JSON ---- */

/* The length of the UTF-8 sequence here; 0: it is none. */
static int utf8_length(const unsigned char *s) {
    int n = *s < 0x80 ? 1 : *s >= 0xc2 && *s < 0xe0 ? 2 : *s >= 0xe0 && *s < 0xf0 ? 3 : 4;
    if (*s >= 0xf5 || (*s >= 0x80 && *s < 0xc2)) return 0;
    if ((*s == 0xe0 && s[1] < 0xa0) || (*s == 0xed && s[1] > 0x9f)) return 0;
    if ((*s == 0xf0 && s[1] < 0x90) || (*s == 0xf4 && s[1] > 0x8f)) return 0;
    for (int i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    return n;
}

/* The inside of a string; bytes that are not UTF-8 are taken for Latin-1. */
static void put_text(FILE *f, const char *text) {
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        int n = utf8_length(s);
        if (n == 0 || *s < 0x20) {
            fprintf(f, "\\u%04x", *s);
            s++;
            continue;
        }
        if (*s == '"' || *s == '\\') fputc('\\', f);
        fwrite(s, 1, (size_t)n, f);
        s += n;
    }
}

static void put_field(FILE *f, const char *name, const char *text) {
    fprintf(f, ",\"%s\":\"", name);
    put_text(f, text);
    fputc('"', f);
}

static void begin_event(ProfileWriter *w, char phase, int pid, int32_t tid) {
    fprintf(w->f, "%s\n{\"ph\":\"%c\",\"pid\":%d,\"tid\":%d", w->any ? "," : "", phase, pid,
            (int)tid);
    w->any = true;
}

static void put_times(const ProfileWriter *w, const ProfileRecord *r) {
    plain_print(w->f, ",\"ts\":%.3f,\"dur\":%.3f", (double)(r->start - w->p->start) / 1e3,
                (double)(r->end - r->start) / 1e3);
}

/* Names a process or thread: what = "process_name" or "thread_name". */
static void name_track(ProfileWriter *w, const char *what, int pid, int32_t tid, const char *fmt,
                       ...) PRINTF(5, 6);
static void name_track(ProfileWriter *w, const char *what, int pid, int32_t tid, const char *fmt,
                       ...) {
    va_list ap;
    begin_event(w, 'M', pid, tid);
    fprintf(w->f, ",\"name\":\"%s\",\"args\":{\"name\":\"", what);
    va_start(ap, fmt);
    plain_vprint(w->f, fmt, ap);
    va_end(ap);
    fputs("\"}}", w->f);
}

/* ---- pieces ---- */

/* "fused add mul tanh": the op, and the ops of a fused step; of two steps in one launch both:
 * "matmul fused add". */
static void put_name(FILE *f, const Exec *e, const Item *item) {
    const Plan *p = e->plan;
    int32_t step[2], n = profile_steps(item, step);
    const char *gap = ",\"name\":\"";
    for (int k = 0; k < n; k++) {
        const PlanStep *s = plan_step(p, step[k]);
        fputs(gap, f);
        put_text(f, plan_str(p, s->op));
        for (int i = 0; i < s->ops.n; i++) {
            fputc(' ', f);
            put_text(f, plan_str(p, PLAN_LIST(p, int32_t, s->ops)[i]));
        }
        gap = " ";
    }
    fputc('"', f);
}

/* "line": where it was written; a fused step has several. */
static void put_line(FILE *f, const Plan *p, const PlanStep *s) {
    fputs("\"line\":\"", f);
    for (int i = 0; i < s->locs.n; i++) {
        if (i) fputs(", ", f);
        put_text(f, plan_str(p, PLAN_LIST(p, int32_t, s->locs)[i]));
    }
    fputc('"', f);
}

static void put_devices(FILE *f, const ProfilePlan *plan, int32_t item) {
    const Mesh *m = plan->e->mesh;
    const char *gap = "";
    fputs(",\"devices\":[", f);
    for (int32_t i = 0; i < (m ? m->ndevices : 1); i++)
        if (profile_has_device(plan, item, i)) {
            fprintf(f, "%s%d", gap, m ? (int)m->device[i] : 0);
            gap = ",";
        }
    fputc(']', f);
}

static void put_axes(FILE *f, const Exec *e, uint32_t mask) {
    const char *gap = "";
    fputs(",\"axes\":\"", f);
    for (int i = 0; e->mesh && i < e->mesh->naxes; i++)
        if (mask >> i & 1) {
            fputs(gap, f);
            put_text(f, e->mesh->name[i]);
            gap = ",";
        }
    fputc('"', f);
}

static void put_work(FILE *f, const ProfileRecord *r) {
    ProfileWork work = profile_work(r->of, r->item);
    double flops = work.flops * (double)r->share, bytes = work.bytes * (double)r->share;
    double ns = r->end > r->start ? (double)(r->end - r->start) : 1;
    plain_print(f, ",\"flops\":%.0f,\"bytes\":%.0f,\"GFLOP/s\":%.3g,\"GB/s\":%.3g", flops, bytes,
                flops / ns, bytes / ns);
}

/* The piece on the track of its thread, with all that is known of it. */
static void put_piece(ProfileWriter *w, int32_t tid, const ProfileRecord *r) {
    const ProfilePlan *plan = r->of;
    const Plan *p = plan->e->plan;
    const Item *item = &plan->e->item.at[r->item];
    const PlanStep *s = plan_step(p, item->step);
    begin_event(w, 'X', PID_THREADS, tid);
    put_times(w, r);
    put_name(w->f, plan->e, item);
    fprintf(w->f, ",\"cat\":\"%s\",\"args\":{", s->kind == STEP_KERNEL ? "kernel" : "collective");
    put_line(w->f, p, s);
    put_field(w->f, "role", role_name(s->role));
    put_field(w->f, "kernel", item->row->name);
    fprintf(w->f, ",\"step\":%d", (int)item->step + 1);
    put_work(w->f, r);
    if (s->kind == STEP_COLLECTIVE) put_axes(w->f, plan->e, s->coll.axes);
    put_devices(w->f, plan, r->item);
    fputs("}}", w->f);
}

/* Two threads may work for one device at once: the second piece goes to the device's next lane. */
static int32_t lane_of(ProfileWriter *w, int32_t device, const ProfileRecord *r) {
    int32_t lane = 0;
    while (lane + 1 < w->lanes && w->free_at[lane * w->ndevices + device] > r->start) lane++;
    w->free_at[lane * w->ndevices + device] = r->end;
    return lane;
}

static int32_t device_track(const ProfileWriter *w, int32_t lane, int32_t device) {
    return w->p->threads + 1 + lane * w->ndevices + device; /* apart from the threads' numbers */
}

/* The piece on the tracks of the devices that hold what it writes. */
static void put_on_devices(ProfileWriter *w, int32_t tid, const ProfileRecord *r) {
    const ProfilePlan *plan = r->of;
    const Plan *p = plan->e->plan;
    const Mesh *m = plan->e->mesh;
    const Item *item = &plan->e->item.at[r->item];
    const PlanStep *s = plan_step(p, item->step);
    for (int32_t i = 0; i < (m ? m->ndevices : 1); i++) {
        if (!profile_has_device(plan, r->item, i)) continue;
        int32_t device = m ? m->device[i] : 0;
        begin_event(w, 'X', PID_DEVICES, device_track(w, lane_of(w, device, r), device));
        put_times(w, r);
        put_name(w->f, plan->e, item);
        fputs(",\"cat\":\"device\",\"args\":{", w->f);
        put_line(w->f, p, s);
        fprintf(w->f, ",\"thread\":%d}}", (int)tid);
    }
}

/* ---- what the main thread did around them ---- */

static void put_note(ProfileWriter *w, const ProfileRecord *r) {
    static const char *const name[] = {"call", "trace", "plan", "bind", "wait", "run"};
    begin_event(w, 'X', PID_THREADS, 0);
    put_times(w, r);
    fprintf(w->f, ",\"name\":\"%s\",\"cat\":\"host\",\"args\":{", name[r->item]);
    if (r->item == PROFILE_RUN) {
        const ProfilePlan *plan = r->of;
        fprintf(w->f, "\"plan\":\"%016llx\",\"steps\":%d", (unsigned long long)plan->e->plan->hash,
                (int)plan->e->plan->steps.n);
    } else if (r->of) {
        fputs("\"line\":\"", w->f);
        put_text(w->f, r->of);
        fputc('"', w->f);
    }
    fputs("}}", w->f);
}

/* ---- all of it, in the order of time ---- */

static const ProfileRing *ring_at(const Profile *p, int32_t i) {
    return i == 0 ? &p->host : &p->ring[i - 1];
}

static int64_t first_kept(const ProfileRing *ring) {
    return ring->n > PROFILE_RECORDS ? ring->n - PROFILE_RECORDS : 0;
}

/* By start; what began together, the outer one first. */
static int compare_notes(const void *a, const void *b) {
    const ProfileRecord *x = a, *y = b;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    return x->end > y->end ? -1 : x->end < y->end;
}

/* Notes are made when what they tell of is over: an inner one before the one around it. */
static void sort_notes(ProfileRing *host) {
    int64_t n = host->n < PROFILE_RECORDS ? host->n : PROFILE_RECORDS;
    qsort(host->at, (size_t)n, sizeof *host->at, compare_notes);
    host->n = n;
}

/* The ring whose next record began first; -1: all are written. */
static int32_t next_ring(const ProfileWriter *w) {
    int32_t best = -1;
    int64_t start = INT64_MAX;
    for (int32_t i = 0; i <= w->p->threads; i++) {
        const ProfileRing *ring = ring_at(w->p, i);
        if (w->next[i] == ring->n) continue;
        const ProfileRecord *r = &ring->at[w->next[i] % PROFILE_RECORDS];
        if (r->start >= start) continue;
        start = r->start;
        best = i;
    }
    return best;
}

static void put_names(ProfileWriter *w) {
    name_track(w, "process_name", PID_THREADS, 0, "threads");
    name_track(w, "process_name", PID_DEVICES, device_track(w, 0, 0), "devices");
    for (int32_t t = 0; t < w->p->threads; t++)
        name_track(w, "thread_name", PID_THREADS, t, t ? "thread %d" : "thread %d (main)", (int)t);
    for (int32_t lane = 0; lane < w->lanes; lane++)
        for (int32_t d = 0; d < w->ndevices; d++)
            if (w->free_at[lane * w->ndevices + d])
                name_track(w, "thread_name", PID_DEVICES, device_track(w, lane, d),
                           lane ? "device %d (%d)" : "device %d", (int)d, (int)lane + 1);
}

static void put_all(ProfileWriter *w) {
    const Profile *p = w->p;
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[", w->f);
    for (int32_t i = 0; i <= p->threads; i++) w->next[i] = first_kept(ring_at(p, i));
    for (int32_t i; (i = next_ring(w)) >= 0; w->next[i]++) {
        const ProfileRecord *r = &ring_at(p, i)->at[w->next[i] % PROFILE_RECORDS];
        if (i == 0) {
            put_note(w, r);
            continue;
        }
        put_piece(w, i - 1, r);
        put_on_devices(w, i - 1, r);
    }
    put_names(w);
    fputs("\n]}\n", w->f);
}

Err profile_write(Profile *p) {
    ProfileWriter w = {.p = p, .f = p->file, .lanes = p->threads};
    for (int32_t i = 0; i < p->plan.n; i++) {
        const Mesh *m = p->plan.at[i]->e->mesh;
        for (int32_t d = 0; d < (m ? m->ndevices : 1); d++)
            if (w.ndevices <= (m ? m->device[d] : 0)) w.ndevices = (m ? m->device[d] : 0) + 1;
    }
    w.free_at = ARENA_ARRAY(&p->arena, int64_t, w.lanes * w.ndevices + 1);
    w.next = ARENA_ARRAY(&p->arena, int64_t, p->threads + 1);
    if (!w.free_at || !w.next) return err_nomem(p->cx, "a profile");
    sort_notes(&p->host);
    errno = 0;
    bool failed = !file_empty(p->file);
    if (!failed) put_all(&w);
    failed = fflush(p->file) != 0 || ferror(p->file) != 0 || failed;
    int reason = errno;
    failed = fclose(p->file) != 0 || failed;
    p->file = NULL;
    if (failed)
        return err_set(p->cx, E_IO, "profile: cannot write %s: %s", p->path,
                       strerror(reason ? reason : errno));
    return E_OK;
}
