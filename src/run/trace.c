// SPDX-License-Identifier: Apache-2.0
// Events of some steps, stored as numbers in arrays that are allocated in advance, sized from the
// plan. Names are looked up in the plan when the trace is written. An event takes the next place of
// its list by an atomic addition, so any thread may add events. Lists are read while no queue has
// work.
#include "run/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json/json.h"

enum {
    WAITS = SW_QUEUE_COUNT, /* list of the computing thread's waits */
    STEPS,
    N_LISTS,
    MOST_EVENTS = 1 << 20, /* per list */
    LANES = 8,             /* per queue: lanes for work that overlaps */
    /* The steps come after the first queues. Their number stays, so that readers understand older
     * files, too. */
    STEPS_PLACE = SW_QUEUE_HOST + 1,
    STEPS_TRACK = STEPS_PLACE * LANES
};

struct event {
    int64_t begin_ns, end_ns, bytes;
    int32_t instr;            /* STEPS: number of the step */
    int32_t last, n_launches; /* see struct sw_span */
    int16_t program, queue;
};

struct list {
    struct event *events; /* [most] */
    int64_t most;
    atomic_llong n; /* includes events that found no place */
};

struct sw_trace {
    const struct sw_plan *plan;
    struct list lists[N_LISTS];
};

sw_status sw_trace_open(const struct sw_plan *plan, int64_t steps, int64_t rounds,
                        struct sw_trace **out)
{
    struct sw_trace *trace = sw_alloc_zero("trace", 1, sizeof *trace);
    SW_TRY_ALLOC(trace, "a trace");
    trace->plan = plan;
    const struct sw_program *program = &plan->programs[0];
    int64_t most[N_LISTS] = {[STEPS] = 1};
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_instr *instr = &program->instrs[i];
        const bool once = instr->segment >= SW_SEGMENT_UPDATE || instr->last_only ||
                          instr->turn.first_only || instr->turn.once;
        const int64_t times = (once ? 1 : rounds) * sw_instr_pieces(program, instr);
        most[instr->queue] += times;
        /* waits for earlier instructions, for its own issue, and for inline work */
        most[WAITS] += 3 * times;
    }
    most[WAITS] += SW_SEGMENT_COUNT * rounds; /* waits at the end of a segment */
    for (int i = 0; i < N_LISTS; i++) {
        struct list *list = &trace->lists[i];
        const int64_t step = sw_max_i64(most[i], 1);
        list->most = steps < MOST_EVENTS / step ? steps * step : MOST_EVENTS;
        list->events = sw_alloc_zero("trace", (size_t)list->most, sizeof *list->events);
        if (!list->events) {
            sw_trace_close(trace);
            return SW_FAIL(SW_E_NOMEM, "out of host memory for a trace of %lld steps",
                           (long long)steps);
        }
    }
    *out = trace;
    return SW_OK;
}

void sw_trace_close(struct sw_trace *trace)
{
    for (int i = 0; trace && i < N_LISTS; i++) {
        sw_free(trace->lists[i].events);
    }
    sw_free(trace);
}

/* ---- recording ---- */

static void add(struct list *list, const struct event *event)
{
    const int64_t i = atomic_fetch_add_explicit(&list->n, 1, memory_order_relaxed);
    if (i < list->most) {
        list->events[i] = *event;
    }
}

static struct event event_of(const struct sw_span *span)
{
    return (struct event){.begin_ns = span->begin_ns,
                          .end_ns = span->end_ns,
                          .bytes = span->bytes_in > 0 ? span->bytes_in : span->bytes_out,
                          .instr = span->instr,
                          .last = span->last,
                          .n_launches = span->n_launches,
                          .program = (int16_t)span->program,
                          .queue = (int16_t)span->queue};
}

void sw_trace_ran(struct sw_trace *trace, const struct sw_span *span)
{
    if (trace) {
        const struct event event = event_of(span);
        add(&trace->lists[span->queue], &event);
    }
}

void sw_trace_waited(struct sw_trace *trace, const struct sw_span *span)
{
    if (trace) {
        struct event event = event_of(span);
        event.bytes = 0;
        add(&trace->lists[WAITS], &event);
    }
}

void sw_trace_step(struct sw_trace *trace, int64_t step, int64_t begin_ns, int64_t end_ns)
{
    const struct event event = {
        .begin_ns = begin_ns, .end_ns = end_ns, .instr = (int32_t)sw_min_i64(step, INT32_MAX)};
    add(&trace->lists[STEPS], &event);
}

static int64_t length(const struct list *list)
{
    return sw_min_i64(atomic_load(&list->n), list->most);
}

int64_t sw_trace_events(const struct sw_trace *trace)
{
    int64_t n = 0;
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        n += length(&trace->lists[q]);
    }
    return n;
}

int64_t sw_trace_dropped(const struct sw_trace *trace)
{
    int64_t n = 0;
    for (int i = 0; i < N_LISTS; i++) {
        n += atomic_load(&trace->lists[i].n) - length(&trace->lists[i]);
    }
    return n;
}

/* ---- writing ---- */

struct writer {
    const struct sw_trace *trace;
    struct sw_str *out;
    int rank;
    int64_t base_ns;
    size_t persistent[SW_TIER_COUNT];
    size_t **live; /* [n_programs] by instruction and tier: live transients */
};

/* Opens the JSON object of an event with its first members. The caller adds others and the brace
 * that closes it. */
static void begin(const struct writer *w, char phase, int track)
{
    sw_str_printf(w->out, "%s{\"ph\":\"%c\",\"pid\":%d,\"tid\":%d", w->out->len > 0 ? ",\n" : "",
                  phase, w->rank, track);
}

static void put_text(const struct writer *w, const char *key, const char *text)
{
    sw_str_printf(w->out, ",\"%s\":", key);
    sw_json_write_string(text, strlen(text), w->out);
}

static void put_us(const struct writer *w, const char *key, int64_t ns)
{
    sw_str_printf(w->out, ",\"%s\":%s%lld.%03d", key, ns < 0 ? "-" : "", llabs(ns / 1000),
                  (int)llabs(ns % 1000));
}

static void put_metadata(const struct writer *w, int track, const char *name, const char *text)
{
    begin(w, 'M', track);
    put_text(w, "name", name);
    sw_str_puts(w->out, ",\"args\":{\"name\":");
    sw_json_write_string(text, strlen(text), w->out);
    sw_str_puts(w->out, "}}");
}

/* Sorts tracks in this order, not by their first event. */
static void put_track(const struct writer *w, int track, const char *name, int place)
{
    put_metadata(w, track, "thread_name", name);
    begin(w, 'M', track);
    sw_str_printf(w->out, ",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":%d}}", place);
}

static void put_counter(const struct writer *w, const char *name, int64_t at_ns, int64_t bytes)
{
    begin(w, 'C', 0);
    put_text(w, "name", name);
    put_us(w, "ts", at_ns - w->base_ns);
    sw_str_printf(w->out, ",\"args\":{\"bytes\":%lld}}", (long long)bytes);
}

/* Writes an instruction or, with `waits`, the time that computation waited before it. */
static void put_event(const struct writer *w, const struct event *event, int track, bool waits)
{
    const struct sw_program *program = &w->trace->plan->programs[event->program];
    const struct sw_instr *instr = &program->instrs[event->instr];
    char name[64];
    if (waits) {
        snprintf(name, sizeof name, "wait for %s", sw_queue_name((enum sw_queue)event->queue));
    } else if (event->n_launches > 0) {
        snprintf(name, sizeof name, "%d launches as one", event->n_launches);
    } else {
        snprintf(name, sizeof name, "%s", instr->about->name);
    }
    begin(w, 'X', track);
    put_us(w, "ts", event->begin_ns - w->base_ns);
    put_us(w, "dur", event->end_ns - event->begin_ns);
    put_text(w, "name", name);
    put_text(w, "cat", waits ? "wait" : sw_segment_name(instr->segment));
    sw_str_printf(w->out, ",\"args\":{\"program\":%d,\"instruction\":%d", event->program,
                  event->instr);
    if (event->n_launches > 0) {
        sw_str_printf(w->out, ",\"last\":%d", event->last);
    }
    put_text(w, "scope", instr->about->where);
    if (instr->about->tensor) {
        put_text(w, "tensor", instr->about->tensor);
    }
    if (instr->exchange.batch > 1) {
        sw_str_printf(w->out, ",\"batch\":%d", instr->exchange.batch);
    }
    if (event->bytes > 0) {
        sw_str_printf(w->out, ",\"bytes\":%lld", (long long)event->bytes);
    }
    sw_str_puts(w->out, "}}");
}

static int by_begin(const void *a, const void *b)
{
    const struct event *x = a, *y = b;
    return x->begin_ns != y->begin_ns ? (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns)
                                      : (x->end_ns > y->end_ns) - (x->end_ns < y->end_ns);
}

static int track_of(enum sw_queue queue, int lane)
{
    return ((int)queue + ((int)queue >= STEPS_PLACE)) * LANES + lane;
}

/* Events of one track may not overlap, so a queue with concurrent work has several tracks. */
static void put_queue(const struct writer *w, enum sw_queue queue)
{
    const struct list *list = &w->trace->lists[queue];
    int64_t until[LANES] = {0};
    int lanes = queue == SW_QUEUE_COMPUTE;
    for (int64_t i = 0; i < length(list); i++) {
        struct event event = list->events[i];
        int lane = 0;
        while (lane < LANES - 1 && until[lane] > event.begin_ns) {
            lane++;
        }
        event.begin_ns = sw_max_i64(event.begin_ns, until[lane]);
        event.end_ns = sw_max_i64(event.end_ns, event.begin_ns);
        until[lane] = event.end_ns;
        lanes = lane < lanes ? lanes : lane + 1;
        put_event(w, &event, track_of(queue, lane), false);
    }
    for (int lane = 0; lane < lanes; lane++) {
        char name[64];
        snprintf(name, sizeof name, lane > 0 ? "%s %d" : "%s", sw_queue_name(queue), lane + 1);
        put_track(w, track_of(queue, lane), name, 1 + track_of(queue, lane));
    }
}

static void put_waits(const struct writer *w)
{
    const struct list *list = &w->trace->lists[WAITS];
    for (int64_t i = 0; i < length(list); i++) {
        put_event(w, &list->events[i], 0, true);
    }
}

static void put_steps(const struct writer *w)
{
    const struct list *list = &w->trace->lists[STEPS];
    put_track(w, STEPS_TRACK, "steps", 0);
    for (int64_t i = 0; i < length(list); i++) {
        const struct event *event = &list->events[i];
        begin(w, 'X', STEPS_TRACK);
        put_us(w, "ts", event->begin_ns - w->base_ns);
        put_us(w, "dur", event->end_ns - event->begin_ns);
        sw_str_printf(w->out, ",\"name\":\"step %d\",\"cat\":\"step\"}", event->instr);
    }
}

/* Writes the planned memory use while computation is at an instruction. */
static void put_memory(const struct writer *w)
{
    const struct list *list = &w->trace->lists[SW_QUEUE_COMPUTE];
    const struct sw_plan *plan = w->trace->plan;
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        char name[64];
        int64_t last = -1;
        snprintf(name, sizeof name, "%s bytes", sw_tier_name((enum sw_tier)t));
        for (int64_t i = 0; i < length(list) && plan->tier_bytes[t] > 0; i++) {
            const struct event *event = &list->events[i];
            const int64_t now =
                (int64_t)(w->persistent[t] +
                          w->live[event->program][event->instr * SW_TIER_COUNT + t]);
            if (now != last) {
                put_counter(w, name, event->begin_ns, now);
                last = now;
            }
        }
    }
}

static int by_end(const void *a, const void *b)
{
    const struct event *x = a, *y = b;
    return (x->end_ns > y->end_ns) - (x->end_ns < y->end_ns);
}

/* Writes the bytes that have been read or written so far, at the end of each transfer. It sorts the
 * list by end, so whatever needs it sorted by begin is written before. */
static void put_disk(const struct writer *w, enum sw_queue queue)
{
    const struct list *list = &w->trace->lists[queue];
    int64_t sum = 0;
    qsort(list->events, (size_t)length(list), sizeof *list->events, by_end);
    for (int64_t i = 0; i < length(list); i++) {
        const struct event *event = &list->events[i];
        sum += event->bytes;
        put_counter(w, queue == SW_QUEUE_READ ? "disk read" : "disk written", event->end_ns, sum);
    }
}

/* [n_instrs, SW_TIER_COUNT]; NULL = out of memory */
static size_t *live_of(const struct sw_program *program)
{
    const size_t n = (size_t)program->n_instrs;
    size_t *live = sw_alloc_zero("trace", n * SW_TIER_COUNT + 1, sizeof *live);
    for (int32_t b = 0; live && b < program->n_buffers; b++) {
        const struct sw_buffer *buffer = &program->buffers[b];
        for (int32_t i = buffer->first;
             !buffer->persistent && i <= buffer->last && i < program->n_instrs; i++) {
            live[i * SW_TIER_COUNT + (int)buffer->tier] += buffer->bytes;
        }
    }
    return live;
}

static void count_persistent(const struct sw_plan *plan, size_t out[SW_TIER_COUNT])
{
    for (int32_t i = 0; i < plan->n_persistent; i++) {
        out[plan->persistent[i].tier] += plan->persistent[i].bytes;
    }
    out[SW_TIER_DEVICE] = plan->persistent_bytes[SW_TIER_DEVICE];
}

sw_status sw_trace_render(struct sw_trace *trace, int rank, int64_t base_ns, struct sw_str *out)
{
    struct writer w = {.trace = trace, .out = out, .rank = rank, .base_ns = base_ns};
    const int n_programs = trace->plan->n_programs;
    w.live = sw_alloc_zero("trace", (size_t)n_programs, sizeof *w.live);
    bool good = w.live != NULL;
    for (int p = 0; good && p < n_programs; p++) {
        w.live[p] = live_of(&trace->plan->programs[p]);
        good = w.live[p] != NULL;
    }
    if (good) {
        char name[64];
        count_persistent(trace->plan, w.persistent);
        for (int i = 0; i < N_LISTS; i++) {
            const struct list *list = &trace->lists[i];
            qsort(list->events, (size_t)length(list), sizeof *list->events, by_begin);
        }
        snprintf(name, sizeof name, "rank %d", rank);
        put_metadata(&w, 0, "process_name", name);
        begin(&w, 'M', 0);
        sw_str_printf(out, ",\"name\":\"dropped\",\"args\":{\"events\":%lld}}",
                      (long long)sw_trace_dropped(trace));
        put_steps(&w);
        for (int q = 0; q < SW_QUEUE_COUNT; q++) {
            put_queue(&w, (enum sw_queue)q);
        }
        put_waits(&w);
        put_memory(&w);
        put_disk(&w, SW_QUEUE_READ);
        put_disk(&w, SW_QUEUE_WRITE);
        good = !out->failed;
    }
    for (int p = 0; w.live && p < n_programs; p++) {
        sw_free(w.live[p]);
    }
    sw_free(w.live);
    return good ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory for the text of a trace");
}

void sw_trace_document(const char *const *ranks, int n, struct sw_str *out)
{
    sw_str_puts(out, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
    const char *between = "";
    for (int r = 0; r < n; r++) {
        if (ranks[r] && *ranks[r]) {
            sw_str_puts(out, between);
            sw_str_puts(out, ranks[r]);
            between = ",\n";
        }
    }
    sw_str_puts(out, "\n]}\n");
}
