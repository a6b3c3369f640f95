#include "run/agree.h"

Err agree_init(Agreement *a, Ctx *cx, Arena *arena, const int32_t *peer, int32_t n,
               const Crossing *first) {
    *a = (Agreement){.n = n, .first = first};
    a->what = (Crossing){.op = "", .where = first ? first->where : "", .axes = ""};
    a->send = ARENA_ARRAY(arena, CommPart, n + 1);
    a->recv = ARENA_ARRAY(arena, CommPart, n + 1);
    a->theirs = ARENA_ARRAY(arena, AgreeRecord, n + 1);
    if (!a->send || !a->recv || !a->theirs) return err_nomem(cx, "meeting other processes");
    for (int32_t i = 0; i < n; i++) {
        a->send[i] = (CommPart){peer[i], (char *)&a->mine, sizeof a->mine};
        a->recv[i] = (CommPart){peer[i], (char *)&a->theirs[i], sizeof *a->theirs};
    }
    a->what.bytes = sizeof *a->theirs * (size_t)n;
    return E_OK;
}

Err agree_begin(Runtime *rt, Agreement *a, AgreeKind kind, uint64_t value) {
    if (rt->torn)
        return err_set(rt->cx, E_RANKS,
                       "an error ended a plan of several processes in its middle, so this one no "
                       "longer stands where the others do; let such an error end the script");
    static const char *const op[] = {"agreeing on the devices", "launch", "the end of the script"};
    a->mine = (AgreeRecord){.kind = kind, .stop = rt->stop_asked != 0, .value = value};
    a->what.op = op[kind];
    a->what.patient = kind == AGREE_END; /* what one rank does behind the last step may take long */
    TRY(link_begin(rt->cx, &rt->link, &a->what, a->send, a->n, a->recv, a->n, &a->transfer));
    a->pending = true;
    return E_OK;
}

/* ---- what others say ---- */

static void print_act(const Agreement *a, const AgreeRecord *r, Str *s) {
    if (r->kind == AGREE_DEVICES)
        str_fmt(s, "has %d device%s", (int)r->value, r->value == 1 ? "" : "s");
    else if (r->kind == AGREE_END)
        str_put(s, "is at the end of its script");
    else
        str_put(s, "launches a plan with collectives");
    const Crossing *first = r == &a->mine ? a->first : NULL;
    if (first) str_fmt(s, " (first %s over %s, %s)", first->op, first->axes, first->where);
}

static bool agrees(const AgreeRecord *a, const AgreeRecord *b) {
    return a->kind == b->kind && a->value == b->value;
}

static Err disagreement(const Runtime *rt, const Agreement *a, const AgreeRecord *theirs) {
    const AgreeRecord *mine = &a->mine;
    int peer = a->send[theirs - a->theirs].peer;
    Str s;
    str_init(&s, &rt->cx->alloc);
    str_fmt(&s, "rank %d ", (int)rt->ranks.rank);
    print_act(a, mine, &s);
    str_fmt(&s, ", and rank %d ", peer);
    print_act(a, theirs, &s);
    if (mine->kind == AGREE_LAUNCH && theirs->kind == AGREE_LAUNCH && mine->value != theirs->value)
        str_put(&s, ", but not the same one");
    Err err = err_set(rt->cx, E_RANKS,
                      mine->kind == AGREE_DEVICES && theirs->kind == AGREE_DEVICES
                          ? "%s; all must have as many"
                          : "%s; every rank must run the same steps: what depends on "
                            "ml.process_index() must not change them",
                      str_of(&s));
    str_free(&s);
    return err;
}

Err agree_end(Runtime *rt, Agreement *a) {
    if (!a->pending) return E_OK;
    a->pending = false;
    TRY(link_end(rt->cx, &rt->link, &a->transfer));
    const AgreeRecord *other = NULL;
    bool stop = a->mine.stop != 0;
    for (int32_t i = 0; i < a->n; i++) {
        stop = stop || a->theirs[i].stop;
        if (!other && !agrees(&a->mine, &a->theirs[i])) other = &a->theirs[i];
    }
    if (stop && a->n == rt->ranks.world - 1) rt->stop_agreed = true;
    if (!other) return E_OK;
    return disagreement(rt, a, other);
}

Err agree_all(Runtime *rt, AgreeKind kind, uint64_t value) {
    if (rt->ranks.world == 1) return E_OK;
    Arena arena;
    Agreement a;
    arena_init(&arena, &rt->cx->alloc);
    int32_t n = 0, *peer = ARENA_ARRAY(&arena, int32_t, rt->ranks.world);
    for (int32_t i = 0; peer && i < rt->ranks.world; i++)
        if (i != rt->ranks.rank) peer[n++] = i;
    Err err = peer ? agree_init(&a, rt->cx, &arena, peer, n, NULL)
                   : err_nomem(rt->cx, "meeting other processes");
    if (!err) err = agree_begin(rt, &a, kind, value);
    if (!err) err = agree_end(rt, &a);
    arena_free(&arena);
    return err;
}
