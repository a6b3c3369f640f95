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

void text_put(Text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The next of a list: `separator` (none in front of the first) and an item, on a new line where
 * this one is full. */
void text_item(Text *t, const char *separator, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
