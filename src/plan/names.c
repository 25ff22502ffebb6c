// SPDX-License-Identifier: Apache-2.0
// Words for tiers, queues, rings, programs, segments and phases, as plans and messages print them.
#include "plan/plan.h"

const char *sw_tier_name(enum sw_tier tier)
{
    static const char *const names[SW_TIER_COUNT] = {"device", "host", "disk"};
    return names[tier];
}

const char *sw_schedule_name(enum sw_step_schedule schedule)
{
#define NAME(NAME, name) [SW_STEP_##NAME] = name,
    static const char *const names[] = {SW_STEP_SCHEDULES(NAME)};
#undef NAME
    return names[schedule];
}

const char *sw_ring_name(enum sw_ring_index by)
{
    static const char *const names[SW_RING_COUNT] = {"step",   "piece", "micro", "late",
                                                     "newest", "kept",  "made"};
    return names[by];
}

const char *sw_program_kind_name(enum sw_program_kind kind)
{
    static const char *const names[] = {"train", "eval", "logits", "decode"};
    return names[kind];
}

const char *sw_verb_name(enum sw_verb verb)
{
    static const char *const names[SW_VERB_COUNT] = {
        "kernel",     "copy_in",    "copy_out",  "read",       "write",
        "reduce",     "gather",     "merge",     "all_gather", "reduce_scatter",
        "all_to_all", "all_reduce", "broadcast", "send",       "recv"};
    return names[verb];
}

const char *sw_queue_name(enum sw_queue queue)
{
    static const char *const names[SW_QUEUE_COUNT] = {
        "compute", "comm",   "h2d",  "d2h",      "read",      "write",
        "host",    "tensor", "sent", "received", "sent_back", "received_back"};
    return names[queue];
}

const char *sw_segment_name(enum sw_segment segment)
{
    static const char *const names[SW_SEGMENT_COUNT] = {"forward", "backward", "weights", "update",
                                                        "commit"};
    return names[segment];
}

const char *sw_step_action_name(enum sw_step_action action)
{
    static const char *const names[] = {"run", "receive", "losses", "agree", "commit"};
    return names[action];
}
