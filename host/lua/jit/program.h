/* program.h - what is appended to the graph of a traced step, to look into it (see program.c). */
#ifndef MESHLUA_LUA_JIT_PROGRAM_H
#define MESHLUA_LUA_JIT_PROGRAM_H

#include "ir/graph.h"

/* Of a value of the program inside shard_map: what each device has, one behind the other along a
 * dim in front. */
Err program_add_blocks(Graph *g, Val v, Val *out) MUST_CHECK;
/* Of a float value of the program: -1 where all of it is finite, 0 where it has an infinity, 1
 * where it has a NaN, as float32[blocks, n]. `stacked`: n are the steps of its first dim, else one.
 * Inside shard_map blocks are the devices along which it varies, else one. */
Err program_add_flag(Graph *g, Val v, bool stacked, Val *out) MUST_CHECK;
/* The sum of a value's bits, element by element and by place, as uint32[blocks]: with another bit
 * somewhere it is another. */
Err program_add_sum(Graph *g, Val v, Val *out) MUST_CHECK;
/* What node `id` of the program does inside, as if it were written behind the program: iteration k
 * (from 0, by place in its stacks) of a scan, or branch k of a cond. E_UNSUPPORTED of others. */
Err program_add_body(Graph *g, int32_t id, int64_t k) MUST_CHECK;

#endif
