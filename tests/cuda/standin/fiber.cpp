/* fiber.cpp - on x86-64 a change is a few pushes and pops; elsewhere ucontext's. */
#include "fiber.h"
#include <cstdint>
#include <cstdlib>
#include <pthread.h>
#include <sys/mman.h>
#ifndef __x86_64__
#    include <ucontext.h>
#endif

#ifdef __SANITIZE_ADDRESS__
#    include <sanitizer/asan_interface.h>
#    include <sanitizer/common_interface_defs.h>
static const size_t STACK = 256 << 10; /* red zones make frames larger */
#else
static const size_t STACK = 64 << 10;
#endif
static const size_t PAGE = 4096;

#ifdef __x86_64__
extern "C" void standin_change(void **from, void *to);
asm(".text\n"
    ".hidden standin_change\n"
    "standin_change:\n"
    "    pushq %rbp\n    pushq %rbx\n    pushq %r12\n    pushq %r13\n    pushq %r14\n    pushq "
    "%r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n    popq %r14\n    popq %r13\n    popq %r12\n    popq %rbx\n    popq %rbp\n"
    "    ret\n");
#endif

static void (*body_of)();

/* The first thing that a fiber does. */
static void begin() {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
    body_of();
    abort();
}

void fiber_reset(Fiber *f, void (*body)()) {
    body_of = body; /* one for all */
#ifdef __SANITIZE_ADDRESS__
    __asan_unpoison_memory_region(f->stack, STACK);
    f->sanitizer = nullptr;
#endif
#ifdef __x86_64__
    /* Stacks of different fibers end at different lines of the caches. */
    static unsigned count;
    void **top = (void **)(f->stack + STACK - count++ % 32 * 128);
    *--top = nullptr; /* keeps the stack aligned as after a call */
    *--top = (void *)begin;
    for (int i = 0; i < 6; i++) *--top = nullptr;
    f->sp = top;
#else
    ucontext_t *context = f->sp ? (ucontext_t *)f->sp : (ucontext_t *)malloc(sizeof *context);
    getcontext(context);
    context->uc_stack.ss_sp = f->stack;
    context->uc_stack.ss_size = STACK;
    context->uc_link = nullptr;
    makecontext(context, begin, 0);
    f->sp = context;
#endif
}

void fiber_here(Fiber *f) {
    *f = Fiber{};
#ifdef __SANITIZE_ADDRESS__
    static thread_local Fiber own;
    pthread_attr_t attr;
    void *stack = nullptr;
    if (!own.stack && pthread_getattr_np(pthread_self(), &attr) == 0) {
        pthread_attr_getstack(&attr, &stack, &own.size);
        own.stack = (char *)stack;
        pthread_attr_destroy(&attr);
    }
    *f = own;
#endif
}

void fiber_make(Fiber *f, void (*body)()) {
    char *at = (char *)mmap(nullptr, PAGE + STACK, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) abort();
    mprotect(at, PAGE, PROT_NONE); /* a stack that is too small is found */
    *f = Fiber{nullptr, at + PAGE, STACK, nullptr};
    fiber_reset(f, body);
}

void fiber_change(Fiber *from, Fiber *to) {
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(&from->sanitizer, to->stack, to->size);
#endif
#ifdef __x86_64__
    standin_change(&from->sp, to->sp);
#else
    if (!from->sp) from->sp = malloc(sizeof(ucontext_t));
    swapcontext((ucontext_t *)from->sp, (ucontext_t *)to->sp);
#endif
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(from->sanitizer, nullptr, nullptr);
#endif
}
