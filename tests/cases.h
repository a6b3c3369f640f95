/* cases.h - files of cases as text: what stands in them is compared with what comes out, or with
 * --bless written anew. Shared by pass/run.c and op/run.c. */
#ifndef MESHLUA_TEST_CASES_H
#define MESHLUA_TEST_CASES_H

#include "op/op.h"

typedef struct Cases {
    bool bless;
    int cases, failed;
    Str out; /* the file as it would be blessed */
    void (*text)(struct Cases *c, const char *file, const char *text); /* reads one file's */
    const void *ud;
} Cases;

/* Behind the line's end. */
const char *cases_next_line(const char *at);
/* A context with the table of ops. */
Err cases_start(Ctx *cx) MUST_CHECK;
/* All *.txt of the folder. Nothing there counts as a failure. */
void cases_folder(Cases *c, const char *folder);
/* Compares what a case made with what its file has, both without blank lines at their ends; counts
 * it. Nothing that is `bad` is blessed. `title` ... `split`: the case as it is given. True: the
 * file has it right, or is to get what was made. */
bool cases_compare(Cases *c, const char *file, const char *title, const char *split,
                   const char *want, size_t nwant, Str *made, bool bad);
/* The case is over: nothing may be left of what it allocated. */
void cases_end(Cases *c, const char *file, Ctx *cx);

#endif
