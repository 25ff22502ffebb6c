// SPDX-License-Identifier: Apache-2.0
// Schedules of a pipeline, a row for each: the order in which a stage runs the segments of its
// chunks for the micro-batches of a step. With segments of equal length, the idle share of a stage
// is (S - 1) / M of its work with GPipe and 1F1B, (S - 1) / (v M) with v chunks, and
// (S - 1) / (3 M) with ZB-H1, if there are at least S micro-batches.
#include "plan/pipe.h"

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Adds a phase and returns the place of the next one. */
static struct sw_pipe_phase *add(struct sw_pipe_phase *out, int chunk, enum sw_segment segment,
                                 int micro)
{
    *out = (struct sw_pipe_phase){.chunk = chunk, .micro = micro, .segment = segment};
    return out + 1;
}

/* ---- one chunk per stage ---- */

static void list_gpipe(const struct sw_pipe *pipe, int stage, struct sw_pipe_phase *out)
{
    (void)stage;
    for (int k = 0; k < pipe->micro_batches; k++) {
        out = add(out, 0, SW_SEGMENT_FORWARD, k);
    }
    for (int k = 0; k < pipe->micro_batches; k++) {
        out = add(out, 0, SW_SEGMENT_BACKWARD, k);
    }
}
const struct sw_pipe_schedule sw_pipe_gpipe = {.list = list_gpipe};

/* Lists 1F1B. The weights of a micro-batch follow `put_off` backwards later, and the rest at the
 * end; -1 = there is no such segment. Forward comes before weights, since the next stage waits for
 * it. */
static void list_alternating(const struct sw_pipe *pipe, int stage, int put_off,
                             struct sw_pipe_phase *out)
{
    const int n = pipe->micro_batches, ahead = least(pipe->stages - stage, n);
    for (int k = 0; k < ahead; k++) {
        out = add(out, 0, SW_SEGMENT_FORWARD, k);
    }
    for (int k = 0; k < n; k++) {
        out = add(out, 0, SW_SEGMENT_BACKWARD, k);
        if (k + ahead < n) {
            out = add(out, 0, SW_SEGMENT_FORWARD, k + ahead);
        }
        if (put_off >= 0 && k >= put_off) {
            out = add(out, 0, SW_SEGMENT_WEIGHTS, k - put_off);
        }
    }
    for (int k = n - least(put_off, n); put_off >= 0 && k < n; k++) {
        out = add(out, 0, SW_SEGMENT_WEIGHTS, k);
    }
}

static void list_1f1b(const struct sw_pipe *pipe, int stage, struct sw_pipe_phase *out)
{
    list_alternating(pipe, stage, -1, out);
}
const struct sw_pipe_schedule sw_pipe_1f1b = {.list = list_1f1b};

static void list_zero_bubble(const struct sw_pipe *pipe, int stage, struct sw_pipe_phase *out)
{
    list_alternating(pipe, stage, stage, out);
}
const struct sw_pipe_schedule sw_pipe_zero_bubble = {.has_weights = true, .list = list_zero_bubble};

/* ---- several chunks per stage ---- */

/* Micro-batches go through all chunks of a stage in groups. A group has at least as many as there
 * are stages, so that no stage waits for a chunk; with fewer micro-batches there is one group. */
static int n_groups(const struct sw_pipe *pipe)
{
    const int n = pipe->micro_batches / pipe->stages;
    return n > 0 ? n : 1;
}

/* The first micro-batch of a group. Groups differ by one at most, and the longer ones are first. */
static int group_first(const struct sw_pipe *pipe, int group)
{
    const int n = n_groups(pipe);
    return group * (pipe->micro_batches / n) + least(group, pipe->micro_batches % n);
}

/* A position in the order of forward. Backward has the chunks of each group in reverse. */
struct cursor {
    int group, chunk, micro;
};

static void advance(const struct sw_pipe *pipe, struct cursor *at)
{
    if (++at->micro < group_first(pipe, at->group + 1)) {
        return;
    }
    if (++at->chunk == pipe->chunks) {
        at->chunk = 0;
        at->group++;
    }
    at->micro = group_first(pipe, at->group);
}

static void list_interleaved(const struct sw_pipe *pipe, int stage, struct sw_pipe_phase *out)
{
    const int n = pipe->micro_batches * pipe->chunks;
    const int after = pipe->stages - 1 - stage; /* stages after this one */
    /* forward of the first group up to its last chunk, and what the stages after this one need */
    const int ahead = least(2 * after + (pipe->chunks - 1) * group_first(pipe, 1) + 1, n);
    struct cursor forward = {0}, backward = {0};
    for (int i = 0; i < ahead; i++) {
        out = add(out, forward.chunk, SW_SEGMENT_FORWARD, forward.micro);
        advance(pipe, &forward);
    }
    for (int i = 0; i < n; i++) {
        out = add(out, pipe->chunks - 1 - backward.chunk, SW_SEGMENT_BACKWARD, backward.micro);
        advance(pipe, &backward);
        if (i + ahead < n) {
            out = add(out, forward.chunk, SW_SEGMENT_FORWARD, forward.micro);
            advance(pipe, &forward);
        }
    }
}
/* The last stage works on a chunk of the first group one forward after the other, and the first
 * stage needs the results after the rest of its own group, with a backward between two forwards. */
static int late_interleaved(const struct sw_pipe *pipe)
{
    const int rest = group_first(pipe, 1) - pipe->stages;
    return rest > 0 && pipe->chunks > 1 ? 1 + 2 * rest : 1;
}
const struct sw_pipe_schedule sw_pipe_interleaved = {.list = list_interleaved,
                                                     .late = late_interleaved};

/* ---- questions about the phases of a stage ---- */

int64_t sw_pipe_phases(const struct sw_pipe_schedule *schedule, const struct sw_pipe *pipe)
{
    const int segments = schedule->has_weights ? 3 : 2;
    return (int64_t)segments * pipe->chunks * pipe->micro_batches;
}

static bool is_alike(const struct sw_pipe_phase *a, const struct sw_pipe_phase *b)
{
    return a->chunk == b->chunk && a->segment == b->segment;
}

int sw_pipe_slots(const struct sw_pipe_phase *phases, int64_t n, const struct sw_pipe_phase *from,
                  const struct sw_pipe_phase *until, int early, int late)
{
    int now = 0, most = 0;
    for (int64_t at = -early; at < n; at++) { /* the phase that runs */
        now += at + early < n && is_alike(&phases[at + early], from);
        most = now > most ? now : most;
        now -= at >= late && is_alike(&phases[at - late], until);
    }
    return most;
}

int sw_pipe_late(const struct sw_pipe_schedule *schedule, const struct sw_pipe *pipe)
{
    return schedule->late ? schedule->late(pipe) : 1;
}
