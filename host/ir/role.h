/* role.h - which part of a training step something belongs to, for what is told of memory. */
#ifndef MESHLUA_ROLE_H
#define MESHLUA_ROLE_H

/* ANEW: computed once more, on the way back, in place of being kept. */
typedef enum Role { ROLE_FORWARD, ROLE_BACKWARD, ROLE_GRADIENT, ROLE_ANEW } Role;
const char *role_name(Role role); /* "forward" */

#endif
