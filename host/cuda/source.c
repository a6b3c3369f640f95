#include "cuda/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A line that begins so opens a launch in the text of launches. */
#define LAUNCH "//// launch "

const char *source_file(const char *name) {
    for (const SourceFile *f = embedded_device_code; f->name; f++)
        if (strcmp(f->name, name) == 0) return f->text;
    return NULL;
}

char *source_of_step(const LaunchStep *s) {
    char *text;
    int n = s->file ? asprintf(&text, "%s#include \"%s\"\n", s->defines, s->file)
                    : asprintf(&text, "%s%s", s->defines, s->text);
    return n < 0 ? NULL : text;
}

static void print_step(FILE *to, const LaunchStep *s) {
    if (s->kind == STEP_FILL) {
        fprintf(to, "// fill %zu bytes of ", s->bytes);
        if (s->operand < 0)
            fprintf(to, "scratch + %zu", s->at);
        else
            fprintf(to, "operand %d", (int)s->operand);
        fprintf(to, " with %d\n", s->byte);
    } else if (s->kind == STEP_CALL) {
        fprintf(to, "// call %s\n", s->what);
    } else {
        char *text = source_of_step(s);
        fprintf(to, LAUNCH "%s<<<%lld x %lld x %lld, %d, %zu>>>\n%s", s->entry,
                (long long)s->blocks[0], (long long)s->blocks[1], (long long)s->blocks[2],
                s->threads, s->shared, text ? text : "");
        free(text);
    }
}

char *source_of_launches(const Launches *p) {
    char *text = NULL;
    size_t size;
    FILE *to = open_memstream(&text, &size);
    if (!to) return NULL;
    for (int32_t i = 0; i < p->nstep; i++) print_step(to, &p->step[i]);
    fclose(to);
    return text;
}

/* Where the next line that opens a launch begins. */
static char *find_launch(char *text) {
    if (strncmp(text, LAUNCH, sizeof LAUNCH - 1) == 0) return text;
    char *at = strstr(text, "\n" LAUNCH);
    return at ? at + 1 : NULL;
}

int source_each(char *text, int (*each)(void *state, const char *source, const char *entry),
                void *state) {
    char *launch = find_launch(text);
    while (launch) {
        char *entry = launch + sizeof LAUNCH - 1, *end = strstr(entry, "<<<"),
             *source = strchr(entry, '\n');
        if (!end || !source || end > source) return 0;
        *end = 0;
        char *next = find_launch(source);
        if (next) next[-1] = 0;
        if (!each(state, source + 1, entry)) return 0;
        launch = next;
    }
    return 1;
}
