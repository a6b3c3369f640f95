/* val.h - a value of a graph: its number; 0 means "none". */
#ifndef MESHLUA_VAL_H
#define MESHLUA_VAL_H

#include <stdint.h>

typedef int32_t Val;

#endif
