/* test.h - a unit test is a program: CHECK what must hold, and return test_end() from main. */
#ifndef MESHLUA_TEST_H
#define MESHLUA_TEST_H

#include <stdio.h>
#include <stdlib.h>

static int test_failures, test_checks;

#define CHECK(cond)                                                                                \
    do {                                                                                           \
        test_checks++;                                                                             \
        if (!(cond)) {                                                                             \
            test_failures++;                                                                       \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #cond);                     \
        }                                                                                          \
    } while (0)

/* CHECK with a line of context, printed only on failure. */
#define CHECKF(cond, ...)                                                                          \
    do {                                                                                           \
        test_checks++;                                                                             \
        if (!(cond)) {                                                                             \
            test_failures++;                                                                       \
            fprintf(stderr, "%s:%d: failed: %s: ", __FILE__, __LINE__, #cond);                     \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
        }                                                                                          \
    } while (0)

static inline int test_end(void) {
    if (test_checks == 0) {
        fprintf(stderr, "no checks ran\n");
        return 1;
    }
    printf("%d checks, %d failed\n", test_checks, test_failures);
    return test_failures != 0;
}

#endif
