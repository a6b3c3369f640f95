/* err.h - errors as values. A fallible function returns Err and must be checked; the text waits in
 * the Ctx until the one place in host/lua that raises it at the user's line. */
#ifndef MESHLUA_ERR_H
#define MESHLUA_ERR_H

#include <stdbool.h>
#include <stddef.h>

struct Ctx;

/* Each is printed as its name, in brackets, before the text: "[E_SHAPE] matmul: ...". */
typedef enum ErrCode {
    E_OK,
    E_NOMEM,       /* host or device memory */
    E_SHAPE,       /* dims that do not fit together */
    E_DTYPE,       /* element types that do not */
    E_VALUE,       /* an argument outside its range */
    E_KEY,         /* an unknown option, name or attribute */
    E_SPEC,        /* a P or rule that does not fit the tensor or the mesh */
    E_MESH,        /* devices and meshes */
    E_INDIVISIBLE, /* a dim that its mesh axes do not divide */
    E_INDEX,       /* a token, label or row id outside its range, found at run time */
    E_STATE,       /* state changed where it must not be */
    E_TRACED,      /* the value of a traced tensor was asked for, or a tracer outlived its trace */
    E_DELETED,     /* a tensor used after donation or release */
    E_DONATE,      /* a donation that cannot be used */
    E_GRAD,        /* not differentiable */
    E_UNSUPPORTED, /* no kernel or no rule for this op on this target */
    E_IO,          /* files */
    E_PARSE,       /* text that is no graph; a file that breaks a rule of its format */
    E_INTERRUPT,   /* Ctrl-C */
    E_DEVICE,      /* a GPU, its driver or a library for it: not there, or it failed */
    E_RANKS,       /* many processes: who is which, and what they need to meet */
    E_STOP,        /* a signal asked to stop; see lua/state/stop.h */
    E_DIVERGED,    /* processes that must do the same do not */
    E_BUDGET,      /* a plan that sends what ml.forbid or ml.expect do not allow */
    E_INTERNAL,    /* an invariant of our own is broken: see guard.h */
    E_COUNT
} ErrCode;

typedef int Err; /* an ErrCode */
#define MUST_CHECK        __attribute__((warn_unused_result))
#define PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

enum { ERR_TEXT = 6144 };
typedef struct ErrState {
    Err code;
    char text[ERR_TEXT]; /* longer messages are cut, never allocated */
} ErrState;

/* Sets the error in flight and returns its code. */
Err err_set(struct Ctx *cx, ErrCode code, const char *fmt, ...) PRINTF(3, 4);
/* Out of memory: a fixed text, `what` says what for. */
Err err_nomem(struct Ctx *cx, const char *what);
/* Appends to the text in flight (context added on the way up). Returns the code in flight. */
Err err_add(struct Ctx *cx, const char *fmt, ...) PRINTF(2, 3);
void err_clear(struct Ctx *cx);
const char *err_name(Err code);

#define TRY(expr)                                                                                  \
    do {                                                                                           \
        Err try_err_ = (expr);                                                                     \
        if (try_err_) return try_err_;                                                             \
    } while (0)

/* A broken invariant of our own: ends what the innermost guard (guard.h) stands around, or the
 * process. Never for what a user can cause. */
#define ASSERT(cond, ...)                                                                          \
    do {                                                                                           \
        if (!(cond)) err_abort(__FILE__, __LINE__, #cond, __VA_ARGS__);                            \
    } while (0)
_Noreturn void err_abort(const char *file, int line, const char *cond, const char *fmt, ...)
    PRINTF(4, 5);

#endif
