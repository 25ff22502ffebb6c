// SPDX-License-Identifier: Apache-2.0
// Sums over a plan that both its text and its JSON have.
#include "show/private.h"

/* A gradient that waits in another tier counts on the device, where it was made. */
struct sw_role_bytes sw_role_bytes(const struct sw_plan *plan)
{
    struct sw_role_bytes sum = {0};
    for (int32_t i = 0; i < plan->n_persistent; i++) {
        size_t *to = plan->persistent[i].role == SW_ROLE_PARAM ? &sum.params : &sum.states;
        *to += plan->persistent[i].bytes;
    }
    const struct sw_program *program = &plan->programs[0];
    for (int32_t i = 0; i < program->n_buffers; i++) {
        const struct sw_buffer *buffer = &program->buffers[i];
        if (buffer->value < 0 || buffer->persistent || buffer->tier != SW_TIER_DEVICE) {
            continue;
        }
        const struct sw_value_facts value = sw_program_value(program, buffer->value);
        if (value.role == SW_ROLE_GRAD && value.micro == 0) {
            sum.gradients += buffer->bytes;
        }
    }
    return sum;
}

struct sw_tiles sw_tiles(const struct sw_plan *plan)
{
    struct sw_tiles sum = {0};
    for (int32_t i = 0; i < plan->n_tiled; i++) {
        sum.n += plan->tiled[i].n_tiles;
        sum.largest = plan->tiled[i].bytes > sum.largest ? plan->tiled[i].bytes : sum.largest;
    }
    return sum;
}

struct sw_moved sw_moved(const struct sw_plan *plan)
{
    struct sw_moved moved = {.bytes = sw_plan_transfers(plan, plan->step.rounds)};
    const double written = (double)moved.bytes.out[SW_TIER_DISK];
    double n = 0;
    for (int32_t i = 0; i < plan->n_persistent; i++) {
        const struct sw_persistent *item = &plan->persistent[i];
        n += item->role == SW_ROLE_PARAM ? (double)sw_shape_elems(&item->shape) : 0;
    }
    moved.written_each = n > 0 ? written / n : 0;
    moved.tb_in_1000_steps = written * 1000 / 1e12;
    return moved;
}
