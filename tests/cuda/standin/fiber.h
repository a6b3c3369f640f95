/* fiber.h - stacks that a thread changes between. */
#ifndef STANDIN_FIBER_H
#define STANDIN_FIBER_H

#include <cstddef>

struct Fiber {
    void *sp; /* where it stopped; or a ucontext_t */
    char *stack;
    size_t size;
    void *sanitizer; /* what AddressSanitizer keeps of it */
};

/* The one that runs now, on the thread's own stack. */
void fiber_here(Fiber *f);

/* Makes one that will run `body` when it is changed to; `body` never returns. */
void fiber_make(Fiber *f, void (*body)());
/* It begins anew at the next change, whatever it was doing. */
void fiber_reset(Fiber *f, void (*body)());
void fiber_change(Fiber *from, Fiber *to);

#endif
