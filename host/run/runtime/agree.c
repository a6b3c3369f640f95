#include "run/runtime/agree.h"

#include <stdio.h>
#include <string.h>

enum { PATIENCE = 5 }; /* seconds for the text of a plan to come */

Err agree_init(Agreement *a, Ctx *cx, Arena *arena, const int32_t *peer, int32_t n,
               const Plan *plan, const ExchangeInfo *first) {
    *a = (Agreement){.n = n, .plan = plan};
    a->what = (ExchangeInfo){.op = "", .where = "", .axes = ""};
    if (first) {
        a->what = *first;
        snprintf(a->mine.first, AGREE_FIRST, "%s over %s, %s", first->op, first->axes,
                 first->where);
    }
    snprintf(a->launch, sizeof a->launch, "launch of %s", first ? first->op : "a plan");
    a->send = ARENA_ARRAY(arena, CommPart, n + 1);
    a->recv = ARENA_ARRAY(arena, CommPart, n + 1);
    a->theirs = ARENA_ARRAY(arena, AgreeRecord, n + 1);
    if (!a->send || !a->recv || !a->theirs) return err_nomem(cx, "meeting other processes");
    for (int32_t i = 0; i < n; i++) {
        a->send[i] = (CommPart){peer[i], (char *)&a->mine, sizeof a->mine, 0};
        a->recv[i] = (CommPart){peer[i], (char *)&a->theirs[i], sizeof *a->theirs, 0};
    }
    a->what.bytes = sizeof *a->theirs * (size_t)n;
    return E_OK;
}

Err agree_begin(Runtime *rt, Agreement *a, AgreeKind kind, uint64_t value) {
    if (rt->diverged)
        return err_set(rt->cx, E_DIVERGED,
                       "an error ended a plan of several processes in its middle, so this one no "
                       "longer stands where the others do; let such an error end the script");
    const char *const op[] = {"agreeing on the devices", a->launch, a->launch,
                              "the end of the script"};
    a->mine.kind = kind;
    a->mine.asked = (rt->stop_asked ? ASKED_STOP : 0) | (rt->save_asked ? ASKED_SAVE : 0);
    a->mine.value = value;
    a->what.op = op[kind];
    a->what.patient = kind == AGREE_END; /* what one rank does behind the last step may take long */
    TRY(transport_begin(rt->cx, &rt->transport, &a->what, a->send, a->n, a->recv, a->n,
                        &a->transfer));
    a->pending = true;
    return E_OK;
}

/* ---- what differs ---- */

/* The steps in words, a line each, without what counts them: an extra one
 * shifts the others only. */
static void print_steps(const Plan *p, Str *s) {
    for (int32_t i = 0; i < p->steps.n; i++) {
        const PlanStep *step = plan_step(p, i);
        if (!step->ops.n) str_put(s, plan_str(p, step->op));
        for (int k = 0; k < step->ops.n; k++)
            str_fmt(s, "%s%s", k ? " " : "", plan_str(p, PLAN_LIST(p, int32_t, step->ops)[k]));
        for (int k = 0; k < step->out.n; k++) {
            str_put(s, " ");
            plan_print_type(p, plan_value(p, PLAN_LIST(p, int32_t, step->out)[k]), s);
        }
        if (step->locs.n) str_fmt(s, " at %s", plan_str(p, PLAN_LIST(p, int32_t, step->locs)[0]));
        str_put(s, "\n");
    }
}

/* A line of a text, without its end. */
typedef struct Line {
    const char *at;
    size_t n;
} Line;

static Line line_at(const char *text) {
    return (Line){text, strcspn(text, "\n")};
}

static Line line_after(Line l) {
    return line_at(l.at + l.n + (l.at[l.n] == '\n'));
}

static bool same_line(Line a, Line b) {
    return a.n == b.n && memcmp(a.at, b.at, a.n) == 0;
}

/* Does the line come in the text from `rest` on? */
static bool comes_later(Line l, Line rest) {
    while (rest.n && !same_line(l, rest)) rest = line_after(rest);
    return rest.n == l.n;
}

/* The first difference between the steps of rank 0 and of rank r. */
static void print_difference(const char *of_0, const char *of_r, int32_t r, Str *s) {
    Line a = line_at(of_0), b = line_at(of_r);
    while (a.n && same_line(a, b)) a = line_after(a), b = line_after(b);
    bool a_later = comes_later(a, b), b_later = comes_later(b, a);
    if (!a.n && !b.n)
        str_fmt(s, "rank 0 and rank %d have the same steps with other numbers in them", (int)r);
    else if (a_later && !b_later)
        str_fmt(s, "rank %d has an extra step, '%.*s'", (int)r, (int)b.n, b.at);
    else if (b_later && !a_later)
        str_fmt(s, "rank 0 has an extra step, '%.*s', which rank %d has not", (int)a.n, a.at,
                (int)r);
    else
        str_fmt(s, "where rank 0 has '%.*s', rank %d has '%.*s'", (int)a.n, a.at, (int)r, (int)b.n,
                b.at);
}

/* Adds where the programs of the processes part, which rank 0 finds out. All of them call it. */
static Err add_difference(Runtime *rt, const Plan *plan, Str *s) {
    Ctx *cx = rt->cx;
    Channel *channel = rt->transport.channel;
    int32_t world = rt->ranks.world;
    size_t room = sizeof(char *) * (size_t)world;
    char **texts = alloc_new(&cx->alloc, room);
    Str mine, found;
    str_init(&mine, &cx->alloc);
    str_init(&found, &cx->alloc);
    print_steps(plan, &mine);
    str_put(s, ": ");
    Err err = texts ? channel_gather(cx, channel, str_of(&mine), PATIENCE, texts)
                    : err_nomem(cx, "comparing plans");
    for (int32_t i = 1; !err && rt->ranks.rank == 0 && !found.n && i < world; i++)
        if (texts[i] && strcmp(texts[i], texts[0]) != 0)
            print_difference(texts[0], texts[i], i, &found);
    if (!err) err = channel_share(cx, channel, str_of(&found), PATIENCE, s);
    if (texts) channel_free_texts(cx, channel, texts);
    alloc_free(&cx->alloc, texts, room);
    str_free(&mine);
    str_free(&found);
    return err;
}

/* ---- what others say ---- */

static void print_act(const AgreeRecord *r, Str *s) {
    if (r->kind == AGREE_DEVICES)
        str_fmt(s, "has %d device%s", (int)r->value, str_s(r->value));
    else if (r->kind == AGREE_END)
        str_put(s, "is at the end of its script");
    else if (r->kind == AGREE_FAILURE)
        str_put(s, "cannot begin a plan with collectives, as an error of its own says");
    else
        str_put(s, "launches a plan with collectives");
    if (r->first[0]) str_fmt(s, " (first %.*s)", AGREE_FIRST, r->first);
}

static bool agrees(const AgreeRecord *a, const AgreeRecord *b) {
    return a->kind == b->kind && a->value == b->value;
}

/* Do all processes launch something? Then they can tell what. */
static bool all_launch(const Runtime *rt, const Agreement *a) {
    bool all = a->mine.kind == AGREE_LAUNCH && a->n == rt->ranks.world - 1;
    for (int32_t i = 0; i < a->n; i++) all = all && a->theirs[i].kind == AGREE_LAUNCH;
    return all;
}

static Err disagreement(Runtime *rt, const Agreement *a, const AgreeRecord *theirs) {
    const AgreeRecord *mine = &a->mine;
    int peer = a->send[theirs - a->theirs].peer;
    Str s;
    str_init(&s, &rt->cx->alloc);
    str_fmt(&s, "rank %d ", (int)rt->ranks.rank);
    print_act(mine, &s);
    str_fmt(&s, ", and rank %d ", peer);
    print_act(theirs, &s);
    if (mine->kind == AGREE_LAUNCH && theirs->kind == AGREE_LAUNCH)
        str_put(&s, ", but not the same one");
    Err err = all_launch(rt, a) ? add_difference(rt, a->plan, &s) : E_OK;
    if (err) str_fmt(&s, "(%s)", rt->cx->err.text);
    if (mine->kind == AGREE_DEVICES && theirs->kind == AGREE_DEVICES)
        err = err_set(rt->cx, E_RANKS, "%s; all must have as many", str_of(&s));
    else
        err = err_set(rt->cx, E_DIVERGED,
                      "%s; every rank must run the same steps: what depends on ml.process_index() "
                      "must not change them",
                      str_of(&s));
    str_free(&s);
    return err;
}

Err agree_end(Runtime *rt, Agreement *a) {
    if (!a->pending) return E_OK;
    a->pending = false;
    TRY(transport_end(rt->cx, &rt->transport, &a->transfer));
    const AgreeRecord *other = NULL;
    uint32_t asked = a->mine.asked;
    for (int32_t i = 0; i < a->n; i++) {
        asked |= a->theirs[i].asked;
        if (!other && !agrees(&a->mine, &a->theirs[i])) other = &a->theirs[i];
    }
    if (a->n == rt->ranks.world - 1) {
        if (asked & ASKED_STOP) rt->stop_agreed = true;
        if (asked & ASKED_SAVE) rt->save_agreed = true;
    }
    return other ? disagreement(rt, a, other) : E_OK;
}

Err agree_all(Runtime *rt, AgreeKind kind, uint64_t value) {
    if (rt->ranks.world == 1) return E_OK;
    Arena arena;
    Agreement a;
    arena_init(&arena, &rt->cx->alloc);
    int32_t n = 0, *peer = ARENA_ARRAY(&arena, int32_t, rt->ranks.world);
    for (int32_t i = 0; peer && i < rt->ranks.world; i++)
        if (i != rt->ranks.rank) peer[n++] = i;
    Err err = peer ? agree_init(&a, rt->cx, &arena, peer, n, NULL, NULL)
                   : err_nomem(rt->cx, "meeting other processes");
    if (!err) err = agree_begin(rt, &a, kind, value);
    if (!err) err = agree_end(rt, &a);
    arena_free(&arena);
    return err;
}
