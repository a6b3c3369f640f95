#include "base/vec.h"

#ifdef MESHLUA_CHECKED
enum { FIRST = 1 };
#else
enum { FIRST = 8 };
#endif

bool vec_room(Arena *a, void **at, int32_t n, int32_t *cap, int32_t more, size_t elem) {
    if (more <= *cap - n) return true;
    if (more > INT32_MAX / 2 - n) return false;
    int32_t want = *cap ? *cap * 2 : FIRST;
    if (want < n + more) want = n + more;
    void *grown = arena_grown(a, *at, (size_t)n * elem, (size_t)want * elem);
    if (!grown) return false;
    *at = grown;
    *cap = want;
    return true;
}
