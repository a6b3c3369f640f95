/* real.h - compiles the file named by REAL_CODE for float, then for double.
 *
 * That file writes REAL for the type and R(name) for its own functions and for those of lanes.h. No
 * include guard: each use defines REAL_CODE first. */
#define REAL    float
#define R(name) name##_f32
#include REAL_CODE
#undef REAL
#undef R
#define REAL    double
#define R(name) name##_f64
#include REAL_CODE
#undef REAL
#undef R
#undef REAL_CODE
