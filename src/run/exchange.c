// SPDX-License-Identifier: Apache-2.0
// Exchanges: a communicator for each group of the plan, in the plan's order, and batches of
// exchanges (collectives.c) over them.
#include "run/executor.h"

sw_status sw_executor_open_groups(struct sw_executor *ex, int32_t most_items)
{
    const struct sw_plan *plan = ex->plan;
    ex->exchanges.items = sw_alloc_zero("run", 2 * (size_t)most_items, sizeof *ex->exchanges.items);
    SW_TRY_ALLOC(ex->exchanges.items, "collectives");
    ex->exchanges.groups = sw_alloc_zero("run", (size_t)plan->n_groups, sizeof(sw_comm *));
    SW_TRY_ALLOC(ex->exchanges.groups, "the groups of ranks");
    for (int g = 0; g < plan->n_groups; g++) {
        const struct sw_group *group = &plan->groups[g];
        const struct sw_group_options options = {
            .number = g + 1, .ranks = group->ranks, .n = group->n};
        SW_TRY(sw_comm_open_group(ex->options.comm, &options, &ex->exchanges.groups[g]));
        SW_TRY(sw_comm_reserve(ex->exchanges.groups[g], most_items));
    }
    return SW_OK;
}

void sw_executor_close_groups(struct sw_executor *ex)
{
    for (int g = 0; ex->exchanges.groups && g < ex->plan->n_groups; g++) {
        sw_comm_close(ex->exchanges.groups[g], false);
    }
    sw_free(ex->exchanges.groups);
    sw_free(ex->exchanges.items);
}

/* Sets the addresses of a batch to the present micro-batch. Only the thread of its queue does. */
static void go_to_slot(const struct sw_executor *ex, struct sw_collective_call *calls, int32_t n,
                       int64_t round)
{
    for (int32_t i = 0; i < n; i++) {
        for (int k = 0; k < calls[i].instr->n_in; k++) {
            calls[i].at[k] = sw_executor_slot(ex, &calls[i].operands[k], round);
        }
    }
}

sw_status sw_executor_exchange(struct sw_executor *ex, const struct sw_queue_job *what)
{
    const struct sw_program *program = what->program;
    const int32_t i = what->instr;
    struct loaded *loaded = &ex->programs[program - ex->plan->programs];
    const struct sw_comm_job job = {
        .i_program = sw_executor_index(ex, program),
        .meter = &ex->meter,
        .stage = &ex->stages[SW_QUEUE_COMM],
        .calls = &loaded->calls[i],
        .instr = i,
        .n = program->instrs[i].exchange.batch,
        .step = &ex->plan->step,
        .round = what->round,
        .ns = ex->meter.profiles ? &loaded->steps[i].profile.ns : NULL,
    };
    go_to_slot(ex, &loaded->calls[i], job.n, what->round);
    return sw_collectives_run(ex->exchanges.groups[program->instrs[i].exchange.group], &job,
                              ex->exchanges.items);
}
