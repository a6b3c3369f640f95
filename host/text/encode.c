#include "text/encode.h"

#include "base/str.h"
#include "base/vec.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum {
    PART = 1 << 16, /* bytes: long texts are cut where that changes nothing */
    WAVE = 4 << 20, /* bytes that are encoded before their ids are taken */
    FIRST_ROOM = 1 << 8
};
static const char SPACE_MARK[] = "\xe2\x96\x81"; /* U+2581: sentencepiece's space */

typedef struct EncodeThread {
    BpeCoder coder;
    SplitRun run;
    size_t last_id, last_begin; /* of the latest piece */
} EncodeThread;

/* What is encoded at once: an added token, or bytes of a text. */
typedef struct EncodePart {
    const uint8_t *at;
    size_t n, valid;     /* bytes, and how many of them are valid UTF-8 */
    const int64_t *from; /* of each byte its place in the text, and where that ends; or NULL: */
    int64_t origin;      /* the place of the first */
    int64_t end;         /* of an added token */
    int32_t id;          /* of an added token; -1: bytes */
    int32_t text;
    int32_t *ids; /* results: room for them all */
    uint32_t *begins, *ends;
    size_t count;
    bool late;    /* it needs memory */
    int failed;   /* PCRE2's code, */
    int rule;     /* of this rule, */
    size_t where; /* at this byte */
} EncodePart;

typedef struct EncodeRun {
    Ctx *cx;
    Encoder *e;
    Arena arena;
    EncodeSpecial special;
    bool offsets;
    VEC(EncodePart) part;
    int32_t first; /* part of the wave */
} EncodeRun;

/* ---- threads ---- */
static bool take_piece(void *ud, const uint8_t *text, size_t begin, size_t end) {
    EncodeThread *t = ud;
    t->last_id = t->coder.n;
    t->last_begin = begin;
    return bpe_encode(&t->coder, text, begin, end);
}

static Err need_threads(Ctx *cx, Encoder *e, int n) {
    if (!e->thread || e->room < n) {
        void *grown = alloc_resize(&cx->alloc, e->thread, (size_t)e->room * sizeof *e->thread,
                                   (size_t)n * sizeof *e->thread);
        if (!grown) return err_nomem(cx, "encoding");
        e->thread = grown;
        e->room = n;
    }
    for (; e->nthread < n; e->nthread++) {
        EncodeThread *t = &e->thread[e->nthread];
        *t = (EncodeThread){.run = {.split = e->split, .fn = take_piece}};
        TRY(bpe_coder_new(cx, e->bpe, &t->coder));
        t->run.match = split_match_new(cx, e->split);
        if (!t->run.match) {
            bpe_coder_free(cx, &t->coder);
            return err_nomem(cx, "encoding");
        }
    }
    return E_OK;
}

void encode_free(Ctx *cx, Encoder *e) {
    for (int i = 0; i < e->nthread; i++) {
        bpe_coder_free(cx, &e->thread[i].coder);
        split_match_free(cx, e->thread[i].run.match);
    }
    alloc_free(&cx->alloc, e->thread, (size_t)e->room * sizeof *e->thread);
    split_free(cx, e->split);
    bpe_free(cx, e->bpe);
    unicode_free(cx, e->unicode);
    *e = (Encoder){0};
}

/* ---- parts ---- */
static Err add_part(EncodeRun *r, EncodePart p) {
    if (VEC_PUSH(&r->arena, &r->part, p)) return E_OK;
    return err_nomem(r->cx, "encoding");
}

/* Valid text in pieces of a few threads' liking: cut before a space behind what is none. */
static Err add_cut(EncodeRun *r, EncodePart p) {
    size_t begin = 0;
    if (p.valid == p.n && split_is_local(r->e->split))
        for (size_t at = PART; at < p.n; at++) {
            if (p.at[at] != ' ' || p.at[at - 1] <= ' ' || p.at[at - 1] > '~') continue;
            EncodePart cut = p;
            cut.at += begin, cut.origin += (int64_t)begin, cut.n = cut.valid = at - begin;
            if (cut.from) cut.from += begin;
            TRY(add_part(r, cut));
            begin = at;
            at += PART;
        }
    p.at += begin, p.origin += (int64_t)begin, p.n -= begin, p.valid -= begin;
    if (p.from) p.from += begin;
    return add_part(r, p);
}

/* Must the bytes be written anew for a vocabulary of characters: invalid ones, marks for spaces? */
static bool must_change(const EncodeRun *r, const uint8_t *text, size_t n, size_t valid) {
    return r->e->bpe->characters && (valid < n || memmem(text, n, SPACE_MARK, 3));
}

/* A character of the text as it is encoded; how many bytes of it were read. */
static size_t change(const EncodeRun *r, const uint8_t *p, size_t n, uint8_t *out, size_t *size) {
    size_t width = unicode_width(*p) < n ? unicode_width(*p) : n;
    bool valid = unicode_valid(p, width) == width;
    if (!valid && r->e->bpe->characters) { /* U+FFFD for each byte, as sentencepiece has it */
        memcpy(out, "\xef\xbf\xbd", *size = 3);
        return 1;
    }
    if (!valid) width = 1;
    bool space = r->e->bpe->characters && width == 3 && memcmp(p, SPACE_MARK, 3) == 0;
    memcpy(out, space ? (const void *)" " : p, *size = space ? 1 : width);
    return width;
}

/* A copy of the bytes as they are encoded, and where each comes from. */
static Err add_changed(EncodeRun *r, EncodePart p, bool prefix) {
    size_t most = (must_change(r, p.at, p.n, p.valid) ? 3 : 1) * p.n + 1, n = 0, size;
    uint8_t *out = arena_alloc(&r->arena, most);
    int64_t *from = r->offsets && out ? ARENA_ARRAY(&r->arena, int64_t, most + 1) : NULL;
    if (!out || (r->offsets && !from)) return err_nomem(r->cx, "encoding");
    if (prefix) {
        if (from) from[0] = p.origin;
        out[n++] = ' ';
    }
    for (size_t at = 0, took; at < p.n; at += took, n += size) {
        took = change(r, p.at + at, p.n - at, out + n, &size);
        for (size_t i = 0; from && i < size; i++)
            from[n + i] = p.origin + (int64_t)(at + (i && took == size ? i : 0));
    }
    if (from) from[n] = p.origin + (int64_t)p.n;
    p.at = out, p.n = n, p.from = from;
    p.valid = unicode_valid(out, n);
    return add_cut(r, p);
}

/* May a text have characters that normalizing changes? Of NFC those below U+0300 are not. */
static bool may_change(EncodeNormal normal, const uint8_t *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (p[i] >= (normal == NORMAL_NFC ? 0xcc : 0xc2)) return true;
    return false;
}

/* The part, normalized where it is UTF-8; where its bytes come from is not known any more. */
static Err normalize(EncodeRun *r, EncodePart *p) {
    uint8_t *made;
    int how = UTF8PROC_STABLE | UTF8PROC_COMPOSE;
    if (r->e->normal == NORMAL_NFKC) how |= UTF8PROC_COMPAT;
    if (p->valid < p->n || !may_change(r->e->normal, p->at, p->n)) return E_OK;
    utf8proc_ssize_t n = utf8proc_map(p->at, (utf8proc_ssize_t)p->n, &made, (utf8proc_option_t)how);
    if (n < 0) return err_nomem(r->cx, "encoding");
    p->at = arena_copy(&r->arena, made, (size_t)n + 1);
    p->n = p->valid = (size_t)n;
    free(made);
    return p->at ? E_OK : err_nomem(r->cx, "encoding");
}

static Err add_bytes(EncodeRun *r, int32_t text, const uint8_t *at, size_t begin, size_t end) {
    const Encoder *e = r->e;
    if (begin == end) return E_OK;
    EncodePart p = {
        .at = at + begin, .n = end - begin, .origin = (int64_t)begin, .id = -1, .text = text};
    p.valid = unicode_valid(p.at, p.n);
    if (e->normal) TRY(normalize(r, &p));
    if (!p.n) return E_OK;
    bool prefix = e->prefix == PREFIX_PART || (e->prefix == PREFIX_TEXT && begin == 0);
    bool has = *p.at == ' ' || (e->bpe->characters && p.n >= 3 && memcmp(p.at, SPACE_MARK, 3) == 0);
    if (prefix && e->unless_space && has) prefix = false;
    if (prefix || must_change(r, p.at, p.n, p.valid)) return add_changed(r, p, prefix);
    return add_cut(r, p);
}

static Err refuse(EncodeRun *r, const AddedToken *t, size_t at) {
    return err_set(r->cx, E_VALUE,
                   "the text has the special token %.*s at byte %zu; special = true takes it as "
                   "that token, special = false as text",
                   (int)(t->n < 64 ? t->n : 64), (const char *)t->at, at);
}

static Err add_text(EncodeRun *r, int32_t number, const EncodeText *text) {
    size_t at = 0, from, to;
    const AddedToken *t;
    if (text->n > INT32_MAX)
        return err_set(r->cx, E_VALUE, "a text of %zu bytes; encode takes 2 GiB at once", text->n);
    while ((t = added_next(&r->e->added, r->e->unicode, r->special != SPECIAL_TEXT, text->at, at,
                           text->n, &from, &to))) {
        if (t->special && r->special == SPECIAL_REFUSE) return refuse(r, t, from);
        TRY(add_bytes(r, number, text->at, at, from));
        TRY(add_part(
            r, (EncodePart){
                   .id = t->id, .origin = (int64_t)from, .end = (int64_t)to, .text = number}));
        at = to;
    }
    return add_bytes(r, number, text->at, at, text->n);
}

/* ---- encoding ---- */
static bool all_space(const Bpe *b, int32_t id) {
    const BpePiece *p = &b->piece[id];
    for (uint32_t i = 0; i < p->n; i++)
        if (p->at[i] != ' ' && p->at[i] != '\n' && p->at[i] != '\t') return false;
    return true;
}

/* Where UTF-8 ends, all from the last piece before that on is one piece, as of a text that was cut
 * off; where spaces end it, from the first of them on. So tiktoken has it. */
static bool encode_broken(EncodeThread *t, const EncodePart *p) {
    const Bpe *b = t->coder.b;
    t->last_id = t->last_begin = 0;
    if (!split_run(&t->run, p->at, 0, p->valid)) return false;
    size_t id = t->last_id, from = p->valid;
    if (t->coder.n > id) {
        from = t->last_begin;
        if (all_space(b, t->coder.ids[id]))
            while (id && all_space(b, t->coder.ids[id - 1])) from -= b->piece[t->coder.ids[--id]].n;
        t->coder.n = id;
    }
    return bpe_encode(&t->coder, p->at, from, p->n);
}

static void encode_part(EncodePart *p, EncodeThread *t) {
    t->coder.ids = p->ids;
    t->coder.begins = p->begins;
    t->coder.ends = p->ends;
    t->coder.n = 0;
    t->coder.failed = false;
    t->run.ud = t;
    bool ok = p->valid == p->n ? split_run(&t->run, p->at, 0, p->n) : encode_broken(t, p);
    p->count = t->coder.n;
    p->late = !ok && t->coder.failed;
    p->failed = ok ? 0 : t->run.failed;
    p->rule = t->run.rule;
    p->where = t->run.at;
}

static void run_part(void *ud, int32_t piece, int thread) {
    EncodeRun *r = ud;
    EncodePart *p = &r->part.at[r->first + piece];
    if (p->id < 0) encode_part(p, &r->e->thread[thread]);
}

static Err check_part(EncodeRun *r, EncodePart *p) {
    if (p->late) encode_part(p, &r->e->thread[0]);
    if (p->late) return err_nomem(r->cx, "encoding");
    if (!p->failed) return E_OK;
    SplitRun failed = r->e->thread[0].run;
    failed.failed = p->failed, failed.rule = p->rule;
    failed.at = (size_t)(p->from ? p->from[p->where] : p->origin + (int64_t)p->where);
    return split_failed(r->cx, &failed);
}

/* ---- results ---- */
static bool grow(Alloc *a, void **list, int64_t *room, int64_t least, size_t size) {
    int64_t more = *room ? *room : FIRST_ROOM;
    while (more < least) more *= 2;
    if (least <= *room) return true;
    void *grown = alloc_resize(a, *list, (size_t)*room * size, (size_t)more * size);
    if (!grown) return false;
    *list = grown;
    *room = more;
    return true;
}

static Err need_ids(EncodeRun *r, EncodeIds *out, int64_t more) {
    Alloc *a = &r->cx->alloc;
    bool ok = grow(a, (void **)&out->ids, &out->room, out->n + more, sizeof *out->ids);
    if (ok && r->offsets)
        ok = grow(a, (void **)&out->place, &out->places, out->n + more, sizeof *out->place);
    return ok ? E_OK : err_nomem(r->cx, "ids");
}

static int64_t place(const EncodePart *p, uint32_t at) {
    return p->from ? p->from[at] : p->origin + at;
}

static Err take_part(EncodeRun *r, const EncodePart *p, EncodeIds *out) {
    int64_t n = p->id < 0 ? (int64_t)p->count : 1;
    TRY(need_ids(r, out, n));
    if (p->id >= 0) {
        if (r->offsets) out->place[out->n] = (EncodePlace){p->origin, p->end};
        out->ids[out->n++] = p->id;
    } else {
        if (n) memcpy(out->ids + out->n, p->ids, (size_t)n * sizeof *p->ids);
        for (int64_t i = 0; r->offsets && i < n; i++)
            out->place[out->n + i] = (EncodePlace){place(p, p->begins[i]), place(p, p->ends[i])};
        out->n += n;
    }
    out->last[p->text] = out->n;
    return E_OK;
}

static size_t room_of(const EncodePart *p) {
    return p->id < 0 ? p->n + BPE_ROOM : 0;
}

/* Parts `first` to `end`: encoded in memory that is theirs for so long. */
static Err run_wave(EncodeRun *r, int32_t first, int32_t end, size_t room,
                    const EncodeThreads *threads, EncodeIds *out) {
    size_t each = r->offsets ? 3 : 1, at = 0, size = room * each * sizeof(int32_t) + 1;
    int32_t *memory = alloc_aligned(&r->cx->alloc, size);
    if (!memory) return err_nomem(r->cx, "encoding");
    for (int32_t i = first; i < end; i++) {
        EncodePart *p = &r->part.at[i];
        p->ids = memory + at;
        if (r->offsets) p->begins = (uint32_t *)memory + room + at;
        if (r->offsets) p->ends = (uint32_t *)memory + 2 * room + at;
        at += room_of(p);
    }
    bool many = threads && threads->threads > 1 && end - first > 1 && room > ENCODE_MANY;
    Err e = need_threads(r->cx, r->e, many ? threads->threads : 1);
    if (!e) {
        r->first = first;
        for (int i = 0; i < r->e->nthread; i++)
            r->e->thread[i].coder.alloc = many ? NULL : &r->cx->alloc;
        if (many)
            threads->run(threads->pool, run_part, r, end - first);
        else
            for (int32_t i = 0; i < end - first; i++) run_part(r, i, 0);
        r->e->thread[0].coder.alloc = &r->cx->alloc;
    }
    for (int32_t i = first; i < end && !e; i++) {
        e = check_part(r, &r->part.at[i]);
        if (!e) e = take_part(r, &r->part.at[i], out);
    }
    alloc_free(&r->cx->alloc, memory, size);
    return e;
}

static Err run_all(EncodeRun *r, const EncodeThreads *threads, EncodeIds *out) {
    for (int32_t first = 0, end; first < r->part.n; first = end) {
        size_t room = 0;
        for (end = first; end < r->part.n && (end == first || room < WAVE); end++)
            room += room_of(&r->part.at[end]);
        TRY(run_wave(r, first, end, room, threads, out));
    }
    return E_OK;
}

Err encode_texts(Ctx *cx, Encoder *e, const EncodeText *text, int32_t n, EncodeSpecial special,
                 bool offsets, const EncodeThreads *threads, EncodeIds *out) {
    EncodeRun r = {.cx = cx, .e = e, .special = special, .offsets = offsets};
    Err error = E_OK;
    *out = (EncodeIds){.ntext = n};
    arena_init(&r.arena, &cx->alloc);
    out->last = alloc_new(&cx->alloc, (size_t)(n + 1) * sizeof *out->last);
    if (!out->last) error = err_nomem(cx, "ids");
    for (int32_t i = 0; i < n && !error; i++) error = add_text(&r, i, &text[i]);
    if (!error) error = run_all(&r, threads, out);
    for (int32_t i = 1; i < n && !error; i++) /* texts without ids */
        if (out->last[i] < out->last[i - 1]) out->last[i] = out->last[i - 1];
    arena_free(&r.arena);
    if (error) encode_ids_free(cx, out);
    return error;
}

void encode_ids_free(Ctx *cx, EncodeIds *ids) {
    Alloc *a = &cx->alloc;
    alloc_free(a, ids->ids, (size_t)ids->room * sizeof *ids->ids);
    alloc_free(a, ids->place, (size_t)ids->places * sizeof *ids->place);
    alloc_free(a, ids->last, (size_t)(ids->ntext + 1) * sizeof *ids->last);
    *ids = (EncodeIds){0};
}
