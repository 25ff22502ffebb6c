// SPDX-License-Identifier: Apache-2.0
// Traces a window of steps; rank 0 writes one file with the records of all ranks. A path that
// cannot be written is refused at the start. A new file is created at the start, without events; an
// existing one is replaced at the end. A write that fails at the end is only a warning, because it
// should not stop a training run.
#include <errno.h>
#include <limits.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/private.h"

enum { DEFAULT_STEPS = 3 };

static sw_status write_parts(struct sw_engine *e, const char *const *parts, int n)
{
    struct sw_str text = {0};
    sw_trace_document(parts, n, &text);
    const sw_status st = text.failed
                             ? SW_FAIL(SW_E_NOMEM, "out of host memory for the text of a trace")
                             : sw_output_put(&e->trace.output, text.ptr, text.len, true);
    sw_str_fini(&text);
    return st < 0 ? sw_fail_prefix(st, "spillway.trace") : st;
}

/* Checks the path on rank 0. An existing file is kept until there is something to replace it
 * with. */
static sw_status check_path(struct sw_engine *e)
{
    const char *path = e->config->spillway.trace;
    char folder[PATH_MAX];
    if (e->world.rank > 0) {
        return SW_OK;
    }
    const sw_status st = sw_output_open(path, true, &e->trace.output);
    SW_TRY(st < 0 ? sw_fail_prefix(st, "spillway.trace") : SW_OK);
    if (e->trace.output.kind != SW_OUTPUT_REPLACES) {
        return e->trace.output.kind == SW_OUTPUT_NEW ? write_parts(e, NULL, 0) : SW_OK;
    }
    errno = ENAMETOOLONG;
    const bool good = sw_folder_of(path, folder, sizeof folder) && access(path, W_OK) == 0 &&
                      access(folder, W_OK) == 0;
    return good ? SW_OK
                : SW_FAIL(SW_E_IO, "spillway.trace: cannot write %s: %s", path, strerror(errno));
}

sw_status sw_engine_open_trace(struct sw_engine *e)
{
    const struct sw_spillway_config *c = &e->config->spillway;
    struct engine_trace *t = &e->trace;
    if (!c->trace || !*c->trace) {
        return c->trace_first > 0 || c->trace_last > 0
                   ? SW_FAIL(SW_E_CONFIG,
                             "spillway.trace_first and spillway.trace_last need spillway.trace, "
                             "the file (--trace)")
                   : SW_OK;
    }
    if (e->programs.train < 0) {
        return SW_OK;
    }
    t->last = c->trace_last;
    t->first = c->trace_first > 0  ? c->trace_first
               : c->trace_last > 0 ? sw_max_i64(1, c->trace_last - DEFAULT_STEPS + 1)
                                   : 0;
    if (t->first > 0 && t->last == 0) {
        t->last = t->first + DEFAULT_STEPS - 1;
    }
    if (t->last < t->first) {
        return SW_FAIL(SW_E_CONFIG,
                       "spillway.trace_last is %lld, before spillway.trace_first, %lld",
                       (long long)t->last, (long long)t->first);
    }
    SW_TRY(check_path(e));
    const int64_t steps = t->first > 0 ? t->last - t->first + 1 : DEFAULT_STEPS;
    return sw_trace_open(e->plan, steps, e->sizes.rounds, &t->trace);
}

sw_status sw_engine_limit_trace(struct sw_engine *e, int64_t last_step)
{
    struct engine_trace *t = &e->trace;
    if (!t->trace || last_step <= e->progress.step) {
        return SW_OK;
    }
    if (t->first == 0) { /* the second step is the first one typical of the rest */
        t->first = sw_min_i64(e->progress.step + 2, last_step);
        t->last = t->first + DEFAULT_STEPS - 1;
    }
    if (t->first > last_step || t->last <= e->progress.step) {
        if (e->world.rank == 0 && t->output.kind == SW_OUTPUT_NEW) {
            unlink(e->config->spillway.trace);
        }
        return SW_FAIL(
            SW_E_CONFIG,
            "the trace of steps %lld to %lld (spillway.trace_first, --trace-steps) would "
            "stay empty: this run has steps %lld to %lld",
            (long long)t->first, (long long)t->last, (long long)e->progress.step + 1,
            (long long)last_step);
    }
    t->last = sw_min_i64(t->last, last_step);
    return SW_OK;
}

void sw_engine_begin_trace(struct sw_engine *e)
{
    struct engine_trace *t = &e->trace;
    if (!t->trace || t->done) {
        return;
    }
    t->began = true;
    if (t->first == 0) {
        t->first = e->progress.step + 2;
        t->last = t->first + DEFAULT_STEPS - 1;
    }
    if (e->progress.step + 1 >= t->first && e->progress.step + 1 <= t->last) {
        t->begin_ns = sw_now_ns();
        t->base_ns = t->base_ns ? t->base_ns : t->begin_ns;
        sw_executor_trace(e->executor, t->trace);
        t->recording = true;
    }
}

/* Offset from this host's monotonic clock to the time of day, which all hosts share. */
static int64_t to_time_of_day(void)
{
    int64_t best = INT64_MAX, offset = 0;
    for (int i = 0; i < 8; i++) { /* keep the attempt with the least delay */
        struct timespec now;
        const int64_t before = sw_now_ns();
        clock_gettime(CLOCK_REALTIME, &now);
        const int64_t after = sw_now_ns();
        if (after - before < best) {
            best = after - before;
            offset = (int64_t)now.tv_sec * INT64_C(1000000000) + now.tv_nsec - before - best / 2;
        }
    }
    return offset;
}

/* Agrees on the earliest start of all ranks, on this rank's clock. */
static sw_status agree_on_base(struct sw_engine *e, int64_t *base_ns)
{
    const int64_t offset = to_time_of_day(), mine = *base_ns + offset;
    int64_t least = mine;
    SW_TRY(sw_engine_gather(e, mine, "a trace's begin"));
    for (int r = 0; r < e->world.size; r++) {
        least = sw_min_i64(least, e->words[r]);
    }
    *base_ns = least - offset;
    return SW_OK;
}

/* On rank 0, parts[r] receives the text that rank r rendered. */
static sw_status collect(struct sw_engine *e, const struct sw_str *mine, char **parts)
{
    const int64_t length = (int64_t)mine->len;
    SW_TRY(sw_engine_gather(e, length, "a trace's length"));
    if (e->world.rank > 0) {
        return length > 0 ? sw_comm_send(e->options.run.comm, 0, mine->ptr, mine->len, "a trace")
                          : SW_OK;
    }
    for (int r = 1; r < e->world.size; r++) {
        const size_t len = (size_t)e->words[r];
        parts[r] = sw_alloc("trace", len + 1);
        SW_TRY_ALLOC(parts[r], "a trace");
        parts[r][len] = '\0';
        if (len > 0) {
            SW_TRY(sw_comm_receive(e->options.run.comm, r, parts[r], len, "a trace"));
        }
    }
    return SW_OK;
}

sw_status sw_engine_finish_trace(struct sw_engine *e)
{
    struct engine_trace *t = &e->trace;
    if (!t->trace || t->done || t->base_ns == 0) {
        return SW_OK;
    }
    t->done = true;
    struct sw_str mine = {0};
    char **parts = sw_alloc_zero("trace", (size_t)e->world.size, sizeof *parts);
    SW_TRY_ALLOC(parts, "a trace");
    sw_status st = SW_OK;
    SW_TRY_OR(done, agree_on_base(e, &t->base_ns));
    if (sw_trace_render(t->trace, e->world.rank, t->base_ns, &mine) < 0) {
        sw_log(SW_LOG_WARN, "trace of rank %d: %s", e->world.rank, sw_error_message());
        sw_str_fini(&mine);
    }
    SW_TRY_OR(done, collect(e, &mine, parts));
    if (sw_trace_dropped(t->trace) > 0) {
        sw_log(SW_LOG_WARN, "%s: %lld events of rank %d did not fit and are missing",
               e->config->spillway.trace, (long long)sw_trace_dropped(t->trace), e->world.rank);
    }
    if (e->world.rank == 0) {
        parts[0] = mine.ptr;
        mine = (struct sw_str){0};
        t->written = write_parts(e, (const char *const *)parts, e->world.size) >= 0;
        if (!t->written) {
            sw_log(SW_LOG_WARN, "%s", sw_error_message());
        }
    }
done:
    for (int r = 0; r < e->world.size; r++) {
        sw_free(parts[r]);
    }
    sw_free(parts);
    sw_str_fini(&mine);
    return st;
}

void sw_engine_pause_trace(struct sw_engine *e)
{
    if (e->trace.recording) {
        sw_executor_trace(e->executor, NULL);
        e->trace.recording = false;
    }
}

sw_status sw_engine_end_trace(struct sw_engine *e)
{
    struct engine_trace *t = &e->trace;
    if (!t->recording) {
        return SW_OK;
    }
    sw_engine_pause_trace(e);
    sw_trace_step(t->trace, e->progress.step, t->begin_ns, sw_now_ns());
    return e->progress.step >= t->last ? sw_engine_finish_trace(e) : SW_OK;
}

void sw_engine_close_trace(struct sw_engine *e)
{
    struct engine_trace *t = &e->trace;
    if (t->began && !t->done && !e->progress.failed) {
        if (e->world.size == 1 && t->base_ns) {
            sw_engine_finish_trace(e);
        } else if (e->world.rank == 0) { /* the records of other ranks are out of reach now */
            sw_log(SW_LOG_WARN,
                   "%s %s: the engine was closed at step %lld, and the trace is of "
                   "steps %lld to %lld",
                   e->config->spillway.trace,
                   t->output.kind == SW_OUTPUT_REPLACES ? "is of an earlier run" : "has no events",
                   (long long)e->progress.step, (long long)t->first, (long long)t->last);
        }
    }
    sw_trace_close(t->trace);
    sw_output_close(&t->output);
    *t = (struct engine_trace){0};
}
