/* json.h - JSON, read strictly: by jansson, which refuses keys that stand twice, text that is not
 * UTF-8 and integers beyond 64 bits. */
#ifndef MESHLUA_RUN_DISK_JSON_H
#define MESHLUA_RUN_DISK_JSON_H

#include "base/err.h"

#include <jansson.h>

enum { JSON_WHY = 256 };
/* The value, to be given to json_decref; or NULL with the reason in `why`. `end`, if not NULL, gets
 * where the text behind the value begins, and only then may there be any. */
json_t *json_strict(const char *text, size_t n, size_t *end, char why[JSON_WHY]);

#endif
