// SPDX-License-Identifier: Apache-2.0
// The table of techniques. A new one is a file with its row, and a line here.
#include "plan/technique.h"

#include <stdarg.h>
#include <stdio.h>

#define ROWS(X)                                                                                    \
    X(loss)                                                                                        \
    X(recompute)                                                                                   \
    X(remake)                                                                                      \
    X(order)                                                                                       \
    X(shard)                                                                                       \
    X(early_update)                                                                                \
    X(offload_states)                                                                              \
    X(offload_grads)                                                                               \
    X(offload_params)                                                                              \
    X(offload_activations)                                                                         \
    X(pack)                                                                                        \
    X(tile)                                                                                        \
    X(pieces)                                                                                      \
    X(host_update)                                                                                 \
    X(two_slots)                                                                                   \
    X(late_update)                                                                                 \
    X(chosen)                                                                                      \
    X(overlap)                                                                                     \
    X(prefetch)                                                                                    \
    X(loops)                                                                                       \
    X(threads)                                                                                     \
    X(loss_chunk)                                                                                  \
    X(micro_batch)

#define DECLARE(name) extern const struct sw_technique sw_technique_##name;
ROWS(DECLARE)
#define ROW(name) &sw_technique_##name,
const struct sw_technique *const sw_techniques[] = {ROWS(ROW)};
const int sw_n_techniques = (int)SW_LEN(sw_techniques);
_Static_assert(SW_LEN(sw_techniques) <= SW_MOST_TECHNIQUES, "the search has a bit for each");

void sw_advise(struct sw_str *out, const char *join, const char *text)
{
    sw_str_puts(out, out->len > 0 ? join : "");
    sw_str_puts(out, text);
}

bool sw_refuse(struct sw_str *why, const char *fmt, ...)
{
    char text[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (why) {
        sw_str_puts(why, text);
    }
    return true;
}

void sw_techniques_describe(const struct sw_plan *plan, const struct sw_program *program,
                            struct sw_str *out)
{
    for (int i = 0; i < sw_n_techniques; i++) {
        if (sw_techniques[i]->describe) {
            sw_techniques[i]->describe(plan, program, out);
        }
    }
}

const struct sw_technique *sw_technique_refusal(const struct sw_facts *facts, struct sw_str *why)
{
    for (int i = 0; i < sw_n_techniques; i++) {
        if (sw_techniques[i]->refuses && sw_techniques[i]->refuses(facts, why)) {
            return sw_techniques[i];
        }
    }
    return NULL;
}

bool sw_technique_allows(const struct sw_technique *technique,
                         const struct sw_plan_options *options)
{
    const struct sw_facts facts = {.options = options, .trains = true, .blocks = -1};
    return !technique->refuses || !technique->refuses(&facts, NULL);
}

int sw_policy_stage(const struct sw_policy *policy)
{
    int least = 0;
    for (int i = 0; i < sw_n_techniques; i++) {
        const int stage = sw_techniques[i]->stage ? sw_techniques[i]->stage(policy) : 0;
        least = stage > least ? stage : least;
    }
    return least;
}
