/* combine.h - on a GPU: which items are one launch, before and after the library has seen them.
 *
 * Items are combined first: a kernel that many small tensors go through one by one, as AdamW's does
 * with parameters, leaves a GPU idle between launches, so its items that follow one another and do
 * not depend on each other become one, with the inputs of them all, then their outputs.
 *
 * Then what is left is bound to kernels, and pairs of those become one where the GPU may be faster
 * at both than at one and the other: a step that makes a temporary and the one behind it that alone
 * reads it, or two that read the same. Which kernels these are, and whether it is worth it, is the
 * library's business (Device.pair): here it is seen to that nobody misses the temporary, and that
 * the first step may wait until the second one's turn. Its place stays planned, since the library
 * may do one after the other. */
#ifndef MESHLUA_RUN_BIND_COMBINE_H
#define MESHLUA_RUN_BIND_COMBINE_H

#include "run/bind/depend.h"

Err combine_launches(Exec *e, const Depends *depends) MUST_CHECK;

#endif
