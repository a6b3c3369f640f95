#include "cases.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TEXT = 1 << 20 };

const char *cases_next_line(const char *at) {
    at += strcspn(at, "\n");
    return *at ? at + 1 : at;
}

Err cases_start(Ctx *cx) {
    ctx_init(cx);
    TRY(intern_init(cx));
    return op_init(cx);
}

bool cases_compare(Cases *c, const char *file, const char *title, const char *split,
                   const char *want, size_t nwant, Str *made, bool bad) {
    while (nwant && want[nwant - 1] == '\n') nwant--;
    while (made->n && str_of(made)[made->n - 1] == '\n') made->at[--made->n] = '\0';
    bool same = nwant == made->n && strncmp(want, str_of(made), nwant) == 0;
    c->cases++;
    if (bad || (!same && !c->bless)) {
        c->failed++;
        fprintf(stderr, "%s:\n%.*s-- wanted\n%.*s\n-- made\n%s\n\n", file, (int)(split - title),
                title, (int)nwant, want, str_of(made));
    }
    return !bad;
}

void cases_end(Cases *c, const char *file, Ctx *cx) {
    intern_free(cx);
    if (!cx->alloc.live) return;
    c->failed++;
    fprintf(stderr, "%s: %zu bytes are left\n", file, cx->alloc.live);
}

static void do_file(Cases *c, const char *file) {
    static char text[MOST_TEXT];
    Alloc alloc = {.fail_in = -1};
    FILE *f = fopen(file, "r");
    size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;
    if (f) fclose(f);
    if (n == 0 || n == sizeof text - 1) {
        fprintf(stderr, "%s: cannot be read, or is too long\n", file);
        c->failed++;
        return;
    }
    text[n] = '\0';
    str_init(&c->out, &alloc);
    c->text(c, file, text);
    if (c->bless && strcmp(text, str_of(&c->out)) != 0 && (f = fopen(file, "w"))) {
        fputs(str_of(&c->out), f);
        fclose(f);
        printf("%s: written\n", file);
    }
    str_free(&c->out);
}

static int is_case_file(const struct dirent *d) {
    size_t n = strlen(d->d_name);
    return n > 4 && strcmp(d->d_name + n - 4, ".txt") == 0;
}

void cases_folder(Cases *c, const char *folder) {
    struct dirent **entry = NULL;
    int n = scandir(folder, &entry, is_case_file, alphasort);
    if (n <= 0) {
        fprintf(stderr, "%s: no cases\n", folder);
        c->failed++;
    }
    for (int i = 0; i < n; i++) {
        char file[512];
        snprintf(file, sizeof file, "%s/%s", folder, entry[i]->d_name);
        do_file(c, file);
        free(entry[i]);
    }
    free(entry);
}
