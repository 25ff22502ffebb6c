// SPDX-License-Identifier: Apache-2.0
// The error record of a thread: one message, written by the place that decided it was an error, and
// the frames the status passed through on its way out. Fixed buffers, so that "out of memory" can
// always be reported. The record is thread-local: ranks that are threads do not see each other's.
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MESSAGE_CAP = 2048, TRACE_CAP = 2048 };

static _Thread_local struct {
    char message[MESSAGE_CAP];
    char trace[TRACE_CAP];
    size_t trace_len;
} record;

const char *sw_status_string(sw_status code)
{
    switch (code) {
#define SW_STATUS_TEXT(name, value, text)                                                          \
    case name:                                                                                     \
        return text;
        SW_STATUS_LIST(SW_STATUS_TEXT)
#undef SW_STATUS_TEXT
    }
    return "unknown status";
}

const char *sw_version(void)
{
    return SPILLWAY_VERSION;
}

const char *sw_error_message(void)
{
    return record.message;
}

const char *sw_error_trace(void)
{
    return record.trace;
}

/* Messages are one line by contract, whatever text of a file or a library went into them. */
static void set_message(char *text)
{
    size_t len = strlen(text);
    while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r')) {
        text[--len] = '\0';
    }
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '\n' || text[i] == '\r') {
            text[i] = ' ';
        }
    }
    memcpy(record.message, text, len + 1);
}

/* A frame that does not fit is left out whole: the innermost frames are the ones worth having. */
static void add_frame(const char *file, int line)
{
    const size_t room = TRACE_CAP - record.trace_len;
    const int len = snprintf(record.trace + record.trace_len, room, "%s%s:%d",
                             record.trace_len ? "\n" : "", file, line);
    if (len < 0 || (size_t)len >= room) {
        record.trace[record.trace_len] = '\0';
    } else {
        record.trace_len += (size_t)len;
    }
}

sw_status sw_fail_at(const char *file, int line, sw_status code, const char *fmt, ...)
{
    char text[MESSAGE_CAP]; /* not the record itself: an argument may be the old message */
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    set_message(text);
    record.trace_len = 0;
    record.trace[0] = '\0';
    add_frame(file, line);
    return code;
}

sw_status sw_frame_at(const char *file, int line, sw_status code)
{
    add_frame(file, line);
    return code;
}

sw_status sw_fail_prefix(sw_status code, const char *fmt, ...)
{
    char text[MESSAGE_CAP];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    strncat(text, ": ", sizeof(text) - strlen(text) - 1);
    strncat(text, record.message, sizeof(text) - strlen(text) - 1);
    set_message(text);
    return code;
}

_Noreturn void sw_assert_failed(const char *file, int line, const char *text)
{
    fprintf(stderr, "spillway: %s:%d: this must hold and does not: %s\n", file, line, text);
    abort();
}
