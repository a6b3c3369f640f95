/* split.h - text into the pieces that are merged each for itself, by rules that follow each other:
 * each cuts what the one before has left. Where a rule's pattern is one that is known by its text
 * the cutting is done by a scanner of our own (split_scan.c), else by PCRE2. */
#ifndef MESHLUA_TEXT_SPLIT_H
#define MESHLUA_TEXT_SPLIT_H

#include "text/unicode.h"

typedef enum SplitKind {
    SPLIT_REGEX,  /* a pattern, or a text that stands for itself */
    SPLIT_DIGITS, /* numbers: each, or runs of them (SPLIT_CONTIGUOUS) */
    SPLIT_SPACES, /* in front of each space; runs of spaces stay whole (SPLIT_CONTIGUOUS) */
    SPLIT_GPT2,   /* from here on: what SPLIT_REGEX becomes */
    SPLIT_CL100K
} SplitKind;

/* What becomes of what the pattern matches. */
typedef enum SplitBehavior {
    SPLIT_ISOLATED,
    SPLIT_REMOVED,
    SPLIT_PREVIOUS, /* it goes to what is before it, */
    SPLIT_NEXT,     /* behind it */
    SPLIT_CONTIGUOUS
} SplitBehavior;

typedef struct SplitRule {
    SplitKind kind;
    SplitBehavior behavior;
    bool literal, invert;
    bool regex; /* PCRE2 also where there is a scanner */
    const char *pattern;
    size_t n;
} SplitRule;

typedef struct Splitter Splitter;
enum { SPLIT_RULES = 8 };
/* E_VALUE: a pattern that does not compile. */
Err split_new(Ctx *cx, const Unicode *u, const SplitRule *rule, int n, Splitter **out) MUST_CHECK;
void split_free(Ctx *cx, Splitter *s); /* NULL is fine */
/* May a text be cut before a space that follows a character which is none, with the same pieces? */
bool split_is_local(const Splitter *s);

/* What one thread needs to split. */
typedef struct SplitRun {
    const Splitter *split;
    struct SplitMatch *match;
    void *ud;
    /* A piece, from byte to byte; false: no more. */
    bool (*fn)(void *ud, const uint8_t *text, size_t begin, size_t end);
    const uint8_t *text;
    /* Where it ended early: which rule failed with PCRE2's code, at which byte. */
    int rule, failed;
    size_t at;
} SplitRun;

/* NULL: out of memory. */
struct SplitMatch *split_match_new(Ctx *cx, const Splitter *s);
void split_match_free(Ctx *cx, struct SplitMatch *m);
/* Gives fn the pieces of bytes `begin` to `end` of valid UTF-8, in order; false where fn or a rule
 * ended it. Any thread that has a SplitRun of its own. */
bool split_run(SplitRun *r, const uint8_t *text, size_t begin, size_t end);
/* The error of a run whose rule failed. */
Err split_failed(Ctx *cx, const SplitRun *r);

/* ---- scanners ---- */
typedef struct SplitScan {
    SplitKind kind;
    int digits;    /* the longest run of numbers in a piece; 0: any */
    bool any_case; /* of contractions */
    bool end;      /* spaces at the end of the text stay whole */
} SplitScan;

/* Is the pattern one that is known? */
bool split_scan_find(const char *pattern, size_t n, SplitScan *out);
/* The end of the piece that begins at `at`, before `end`. */
size_t split_scan_next(const SplitScan *s, const Unicode *u, const uint8_t *text, size_t at,
                       size_t end);

#endif
