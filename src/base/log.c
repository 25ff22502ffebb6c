// SPDX-License-Identifier: Apache-2.0
// The log: a level and a sink for the whole process, set once by the program that owns it. A mutex
// keeps lines of several threads apart and makes the pair (sink, ctx) change together.
#include "base/base.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

enum { LINE_CAP = 4096 };

static _Atomic int max_level = SW_LOG_WARN;
static struct {
    pthread_mutex_t lock;
    sw_log_sink_fn sink;
    void *ctx;
} output = {.lock = PTHREAD_MUTEX_INITIALIZER};

void sw_log_set_level(enum sw_log_level level)
{
    atomic_store_explicit(&max_level, (int)level, memory_order_relaxed);
}

void sw_log_set_sink(sw_log_sink_fn sink, void *ctx)
{
    pthread_mutex_lock(&output.lock);
    output.sink = sink;
    output.ctx = ctx;
    pthread_mutex_unlock(&output.lock);
}

void sw_log(enum sw_log_level level, const char *fmt, ...)
{
    static const char *const names[] = {"error", "warning", "info", "debug", "trace"};
    if ((int)level > atomic_load_explicit(&max_level, memory_order_relaxed)) {
        return;
    }
    char line[LINE_CAP];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);

    sw_work_end(); /* a bar would stand in front of the line */
    pthread_mutex_lock(&output.lock);
    if (output.sink) {
        output.sink(output.ctx, level, line);
    } else {
        fprintf(stderr, "spillway: %s: %s\n", names[level], line);
    }
    pthread_mutex_unlock(&output.lock);
}
