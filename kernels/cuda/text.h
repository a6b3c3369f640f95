/* text.h - generated text. */
#ifndef MESHLUA_CUDA_TEXT_H
#define MESHLUA_CUDA_TEXT_H

#include <stddef.h>

/* Text that grows. */
typedef struct Text {
    char *at;
    size_t n, most;
    int failed; /* out of memory */
} Text;

/* Integers and texts alone: what is printed of a float by the C library depends on the locale. */
void text_put(Text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The next of a list: `separator` (none in front of the first) and an item, on a new line where
 * this one is full. */
void text_item(Text *t, const char *separator, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A finite number in as many digits as it takes to read it back as a double, or as a float; the
 * same in every locale. */
enum { TEXT_NUMBER = 40 };
void text_number(char to[TEXT_NUMBER], double x, int is_double);

#endif
