#include "base/plain.h"
#include "ir/parse.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static bool is_letter(char c) {
    return isalnum((unsigned char)c) || c == '_';
}

static void fail(Parse *p, const char *at, const char *fmt, va_list ap) {
    char text[512], found[24];
    int line = 1, column = 1, n = 0;
    if (p->err) return;
    for (const char *c = p->text; c < at; c++) {
        column = *c == '\n' ? 1 : column + 1;
        line += *c == '\n';
    }
    plain_vformat(text, sizeof text, fmt, ap);
    for (; n < 20 && isprint((unsigned char)at[n]); n++) found[n] = at[n];
    found[n] = '\0';
    p->err = err_set(p->cx, E_PARSE, "line %d, column %d: %s, found %s%s%s", line, column, text,
                     n ? "'" : "",
                     n     ? found
                     : *at ? "the end of the line"
                           : "the end",
                     n ? "'" : "");
    p->at += strlen(p->at);
}

void parse_fail(Parse *p, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fail(p, p->at, fmt, ap);
    va_end(ap);
}

void parse_fail_at(Parse *p, const char *at, const char *fmt, ...) {
    va_list ap;
    va_start(ap, fmt);
    fail(p, at, fmt, ap);
    va_end(ap);
}

void parse_no_memory(Parse *p) {
    if (!p->err) p->err = err_nomem(p->cx, "a graph");
    p->at += strlen(p->at);
}

void parse_blanks(Parse *p) {
    while (*p->at == ' ' || *p->at == '\t' || *p->at == '\r') p->at++;
}

bool parse_take(Parse *p, const char *token) {
    size_t n = strlen(token);
    parse_blanks(p);
    if (strncmp(p->at, token, n) != 0 || (is_letter(token[n - 1]) && is_letter(p->at[n])))
        return false;
    p->at += n;
    return true;
}

void parse_want(Parse *p, const char *token) {
    if (!parse_take(p, token)) parse_fail(p, "expected '%s'", token);
}

bool parse_at_end(Parse *p) {
    parse_blanks(p);
    return *p->at == '\n' || *p->at == '\0';
}

void parse_end_of_line(Parse *p) {
    if (!parse_at_end(p)) parse_fail(p, "expected the end of the line");
    parse_empty_lines(p);
}

void parse_empty_lines(Parse *p) {
    parse_blanks(p);
    while (*p->at == '\n' || *p->at == '#') {
        if (*p->at == '#') p->at += strcspn(p->at, "\n");
        if (*p->at == '\n') p->at++;
        parse_blanks(p);
    }
}

int64_t parse_int(Parse *p, int64_t least, int64_t most, const char *what) {
    char *end;
    parse_blanks(p);
    const char *at = p->at;
    bool number = isdigit((unsigned char)at[*at == '-']);
    errno = 0;
    long long x = number ? strtoll(at, &end, 10) : 0;
    if (!number || errno || x < least || x > most) {
        parse_fail(p, "expected %s from %lld to %lld", what, (long long)least, (long long)most);
        return least;
    }
    p->at = end;
    return x;
}

static double parse_nan(Parse *p) {
    double x = (double)NAN;
    if (!parse_take(p, "(")) return x;
    char *end;
    uint64_t bits = strtoull(p->at, &end, 16);
    p->at = end;
    parse_want(p, ")");
    memcpy(&x, &bits, sizeof x);
    return isnan(x) ? x : (double)NAN;
}

double parse_double(Parse *p) {
    char *end;
    parse_blanks(p);
    if (parse_take(p, "nan")) return parse_nan(p);
    if (parse_take(p, "inf")) return (double)INFINITY;
    if (parse_take(p, "-inf")) return -(double)INFINITY;
    if (!isdigit((unsigned char)p->at[*p->at == '-'])) {
        parse_fail(p, "expected a number");
        return 0;
    }
    double x = plain_read(p->at, &end);
    p->at = end;
    return x;
}

const char *parse_word(Parse *p, const char *what) {
    size_t n = 0;
    parse_blanks(p);
    while (is_letter(p->at[n])) n++;
    if (n == 0 || isdigit((unsigned char)p->at[0])) {
        parse_fail(p, "expected %s", what);
        return NULL;
    }
    const char *word = intern_name_n(p->cx, p->at, n);
    if (!word) parse_no_memory(p);
    p->at += word ? n : 0;
    return word;
}

bool parse_next_is_string(Parse *p) {
    parse_blanks(p);
    return *p->at == '"';
}

/* One character of a string; 0 at its end. */
static char string_char(Parse *p) {
    char c = *p->at;
    if (c == '\0' || c == '\n') parse_fail(p, "expected '\"'");
    if (p->err || c == '"') return 0;
    p->at++;
    if (c != '\\') return c;
    c = *p->at;
    if (c == '"' || c == '\\') {
        p->at++;
        return c;
    }
    char hex[3] = {0}, *end = hex;
    if (c == 'x') strncpy(hex, p->at + 1, 2);
    c = (char)strtoul(hex, &end, 16);
    if (end != hex + 2 || c == 0 || !isxdigit((unsigned char)hex[0])) {
        parse_fail(p, "expected '\"', '\\' or 'x' and two hexadecimal digits behind a backslash");
        return 0;
    }
    p->at += 3;
    return c;
}

const char *parse_string(Parse *p) {
    VEC(char) text = {0};
    if (parse_take(p, "nil")) return NULL;
    parse_want(p, "\"");
    for (char c = string_char(p); c; c = string_char(p))
        if (!VEC_PUSH(&p->arena, &text, c)) parse_no_memory(p);
    if (p->err) return NULL;
    p->at++;
    const char *s = intern_name_n(p->cx, text.n ? text.at : "", (size_t)text.n);
    if (!s) parse_no_memory(p);
    return s;
}

const char *parse_name(Parse *p, const char *what) {
    return parse_next_is_string(p) ? parse_string(p) : parse_word(p, what);
}

int parse_enum(Parse *p, const char *const *words, const char *what) {
    int best = -1;
    parse_blanks(p);
    for (int i = 0; words[i]; i++) {
        size_t n = strlen(words[i]);
        if (strncmp(p->at, words[i], n) == 0 && !is_letter(p->at[n])) best = i;
    }
    if (best < 0)
        parse_fail(p, "expected %s", what);
    else
        p->at += strlen(words[best]);
    return best < 0 ? 0 : best;
}

Val parse_value(Parse *p) {
    parse_want(p, "%");
    return (Val)parse_int(p, 0, INT32_MAX / 2, "a value's number");
}

int32_t parse_node_number(Parse *p) {
    parse_want(p, "#");
    return (int32_t)parse_int(p, 0, INT32_MAX / 2, "a node's number");
}
