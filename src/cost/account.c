// SPDX-License-Identifier: Apache-2.0
// A step in the accounting of another system. Instructions belong to the update, to the passes'
// transfers of parameters, to exchanges of the data axis, or to none of these, which the clock
// walks. Bytes of the others are scaled to those that the system moves, and each has a queue of its
// own. It takes its time beside the walk if the system overlaps it with computation, else after it.
#include <math.h>

#include "cost/private.h"

enum kind { KIND_NONE, KIND_UPDATE, KIND_MOVED, KIND_EXCHANGE, KIND_COUNT };

struct account {
    const struct sw_plan *plan;
    const struct sw_program *program;
    const struct sw_cost_mesh *mesh;
    const struct sw_clock_report *clock;
    double bytes[KIND_COUNT][2]; /* of a step, into the device and out of it */
};

static bool is_transfer(const struct sw_instr *instr)
{
    return instr->verb > SW_VERB_KERNEL && instr->verb < SW_VERB_REDUCE;
}

static bool is_out(const struct sw_instr *instr)
{
    return instr->verb == SW_VERB_COPY_OUT || instr->verb == SW_VERB_WRITE;
}

/* Optimizer states are the update's, wherever it runs. Kept activations are nobody's. */
static enum kind kind_of(const struct account *a, const struct sw_instr *instr)
{
    if (instr->queue == SW_QUEUE_COMM) {
        return KIND_EXCHANGE;
    }
    if (instr->queue == SW_QUEUE_HOST) {
        return KIND_UPDATE;
    }
    if (!is_transfer(instr)) {
        return KIND_NONE;
    }
    const struct sw_persistent *tensor =
        instr->about->tensor ? sw_plan_find(a->plan, instr->about->tensor) : NULL;
    const bool is_state = tensor && tensor->role == SW_ROLE_STATE;
    if (instr->segment >= SW_SEGMENT_UPDATE || (is_state && sw_state_is_optimizer(tensor->state))) {
        return KIND_UPDATE;
    }
    return tensor ? KIND_MOVED : KIND_NONE;
}

/* Bytes that the system moves over those of the plan; 0 = as planned. */
static double scale_of(const struct account *a, enum kind kind, bool out)
{
    const struct sw_cost_mesh *mesh = a->mesh;
    const double elems = mesh->parameters / (double)mesh->ranks;
    const double *bytes = a->bytes[kind];
    if (kind == KIND_UPDATE && mesh->states_on_disk && bytes[out] > 0) {
        return (out ? mesh->accounting->update_written : mesh->accounting->update_read) * elems /
               bytes[out];
    }
    if (kind == KIND_MOVED && mesh->parameters_on_disk && bytes[0] + bytes[1] > 0) {
        return mesh->accounting->moved * elems / (bytes[0] + bytes[1]);
    }
    return 0;
}

static void sum_bytes(struct account *a)
{
    for (int32_t i = 0; i < a->program->n_instrs; i++) {
        const struct sw_instr *instr = &a->program->instrs[i];
        if (is_transfer(instr)) {
            a->bytes[kind_of(a, instr)][is_out(instr)] +=
                (double)instr->bytes * (double)a->clock->instrs[i].runs;
        }
    }
}

/* The update loads, computes and stores piece by piece: its longest part is its time. */
static void add_update(const struct account *a, const double disk[2], double host,
                       struct sw_cost_added *out)
{
    const struct sw_accounting *by = a->mesh->accounting;
    const double moves = by->reads_overlap ? fmax(disk[0], disk[1]) : disk[0] + disk[1];
    const enum sw_queue tier = a->mesh->states_on_disk ? SW_QUEUE_READ : SW_QUEUE_H2D;
    const enum sw_queue queue = moves >= host ? tier : SW_QUEUE_HOST;
    (by->updates_overlap ? out->beside : out->alone)[queue] += fmax(moves, host);
}

void sw_cost_account(const struct sw_plan *plan, const struct sw_cost_mesh *mesh,
                     const struct sw_clock_report *clock, struct sw_cost (*costs)[2], double *moved,
                     struct sw_cost_added *out)
{
    struct account a = {.plan = plan, .program = &plan->programs[0], .mesh = mesh, .clock = clock};
    const struct sw_accounting *by = mesh->accounting;
    double update[2] = {0, 0}, host = 0;
    sum_bytes(&a);
    for (int32_t i = 0; i < a.program->n_instrs; i++) {
        const struct sw_instr *instr = &a.program->instrs[i];
        const enum kind kind = kind_of(&a, instr);
        const double scale = is_transfer(instr) ? scale_of(&a, kind, is_out(instr)) : 0;
        const struct sw_cost cost =
            scale > 0 ? sw_cost_disk(mesh, !is_out(instr), scale * (double)instr->bytes, NULL)
                      : costs[i][1];
        const double latency = kind == KIND_EXCHANGE ? cost.latency : 0; /* of each by itself */
        if (kind == KIND_NONE) {
            continue;
        }
        moved[i] = (cost.seconds + latency) * (double)clock->instrs[i].runs;
        costs[i][0] = costs[i][1] = (struct sw_cost){0};
        if (kind == KIND_EXCHANGE) {
            (by->exchanges_overlap ? out->beside : out->alone)[SW_QUEUE_COMM] += moved[i];
        } else if (kind == KIND_MOVED) {
            (by->parameters_overlap ? out->beside : out->alone)[instr->queue] += moved[i];
        } else if (instr->queue == SW_QUEUE_HOST) {
            host += moved[i];
        } else {
            update[is_out(instr)] += moved[i];
        }
    }
    add_update(&a, update, host, out);
}
