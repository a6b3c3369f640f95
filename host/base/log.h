/* log.h - lines for people, on standard error. Data goes to standard output and
 * never through here. */
#ifndef MESHLUA_LOG_H
#define MESHLUA_LOG_H

#include "base/ctx.h"

typedef enum LogLevel { LOG_ERROR = 1, LOG_WARN, LOG_INFO, LOG_DEBUG } LogLevel;

/* A line without a word of warning in front, for all who see warnings. */
void log_note(const Ctx *cx, const char *fmt, ...) PRINTF(2, 3);
void log_line(const Ctx *cx, LogLevel level, const char *fmt, ...) PRINTF(3, 4);

#endif
