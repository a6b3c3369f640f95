/* hosts.h - which processes share a host, and which axes of a mesh go from one host to another:
 * what stays inside a host is cheap to send. */
#ifndef MESHLUA_RUN_RUNTIME_HOSTS_H
#define MESHLUA_RUN_RUNTIME_HOSTS_H

#include "run/runtime/runtime.h"

/* Asks all processes where they are: rt->host. Where all share a host it stays NULL. */
Err hosts_find(Runtime *rt) MUST_CHECK;
void hosts_forget(Runtime *rt);
/* The same in all processes of a host, and in no other. */
uint64_t hosts_key(void);
/* Numbers hosts in the order of their first processes: out[i] is that of process i, of which `key`
 * tells whether it is on the same as another. How many there are. */
int32_t hosts_number(const uint64_t *key, int32_t n, int32_t *out);

/* Are there several? Which one a device stands in. */
bool hosts_several(const Runtime *rt);
int32_t hosts_of(const Runtime *rt, int32_t device);

/* The axes of the mesh along which neighbours are on different hosts, as a mask. */
uint32_t hosts_crossed(const Runtime *rt, const Mesh *m);
/* The same of a mesh with the axis behind the others and the devices in their order. */
uint32_t hosts_crossed_with_last(const Runtime *rt, const Mesh *m, int axis);

#endif
