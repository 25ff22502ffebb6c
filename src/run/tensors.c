// SPDX-License-Identifier: Apache-2.0
// Tensors between steps: inputs and outputs of programs, parameters and states, and what a step
// that failed may have damaged.
#include <string.h>

#include "run/executor.h"

static sw_status check_bytes(const struct sw_port *port, size_t bytes)
{
    if (sw_port_bytes(port) != bytes) {
        return SW_FAIL(SW_E_ARG, "%s holds %zu bytes, %zu given", port->name, sw_port_bytes(port),
                       bytes);
    }
    return SW_OK;
}

/* Writes the input of a micro-batch. */
static sw_status write_input(struct sw_executor *ex, const struct sw_port *port, int64_t round,
                             const void *src, size_t bytes)
{
    SW_TRY(check_bytes(port, bytes));
    if (port->at.tier == SW_TIER_COUNT) {
        return SW_OK; /* the program does not read the input */
    }
    return sw_stage_in(&ex->stages[SW_QUEUE_COMPUTE], sw_executor_slot(ex, &port->at, round), src,
                       bytes);
}

sw_status sw_executor_give(struct sw_executor *ex, const struct sw_port *port, int64_t round,
                           const void *src, size_t bytes)
{
    if (port->slot.tier == SW_TIER_COUNT) {
        return write_input(ex, port, round, src, bytes);
    }
    SW_TRY(check_bytes(port, bytes));
    SW_ASSERT(round < ex->n_rows);
    char *slot = sw_executor_slot(ex, &port->slot, round);
    memcpy(slot, src, bytes);
    return sw_device_copy(ex->dev, ex->compute, sw_executor_slot(ex, &port->at, round), slot,
                          bytes);
}

sw_status sw_executor_fetch(struct sw_executor *ex, const struct sw_port *port, int64_t round,
                            int i)
{
    const size_t bytes = sw_port_bytes(port);
    SW_ASSERT(port->dtype == SW_F32 && round < ex->n_rows &&
              (size_t)i + bytes / sizeof *ex->fetched <= SW_FETCHED);
    return sw_device_copy(ex->dev, ex->compute, &ex->fetched[round * SW_FETCHED + i],
                          sw_executor_slot(ex, &port->at, round), bytes);
}

double sw_executor_fetched(const struct sw_executor *ex, int64_t round, int i)
{
    return ex->fetched[round * SW_FETCHED + i];
}

sw_status sw_executor_write(struct sw_executor *ex, const struct sw_port *port, const void *src,
                            size_t bytes)
{
    return write_input(ex, port, 0, src, bytes);
}

sw_status sw_executor_read(struct sw_executor *ex, const struct sw_port *port, void *dst,
                           size_t bytes)
{
    SW_TRY(check_bytes(port, bytes));
    if (port->at.tier > SW_TIER_HOST) {
        return SW_FAIL(SW_E_ARG, "%s is not there to be read", port->name);
    }
    return sw_stage_out(&ex->stages[SW_QUEUE_COMPUTE], dst, sw_executor_address(ex, &port->at),
                        bytes);
}

/* ---- parameters and states ---- */

static sw_status check_range(const struct sw_persistent *item, size_t at, size_t bytes)
{
    if (at > item->bytes || bytes > item->bytes - at) {
        return SW_FAIL(SW_E_ARG, "%s: bytes %zu to %zu of %zu", item->name, at, at + bytes,
                       item->bytes);
    }
    return SW_OK;
}

/* The slot with the values after the last step; of sums, the one that a step makes. */
static size_t slot_of(const struct sw_executor *ex, const struct sw_persistent *item)
{
    const int slot = !item->is_late                 ? ex->slots.step
                     : sw_state_is_sum(item->state) ? ex->slots.kept + 1
                                                    : ex->slots.late + ex->slots.is_renewed;
    return (size_t)(slot % SW_PLAN_SLOTS);
}

/* Address of the current slot, in its tier. */
static size_t place_of(const struct sw_executor *ex, const struct sw_persistent *item)
{
    return item->offset + item->slot_bytes * slot_of(ex, item);
}

/* Zeroes the bytes that round a tensor up to whole blocks: they are read with it, and a step need
 * not write them. */
static sw_status zero_tails(struct sw_executor *ex, const struct sw_persistent *item)
{
    const size_t tail = sw_persistent_taken(item) - item->bytes;
    const size_t end = item->offset + item->bytes;
    SW_TRY(sw_swap_zero(ex->swap, end, tail));
    return item->slot_bytes > 0 ? sw_swap_zero(ex->swap, end + item->slot_bytes, tail) : SW_OK;
}

static sw_status roll_back(struct sw_executor *ex, const struct sw_persistent *item)
{
    const size_t tail = sw_persistent_taken(item) - item->bytes;
    const size_t other = item->offset + item->slot_bytes * (1 - slot_of(ex, item));
    if (sw_state_is_sum(item->state)) {
        return sw_executor_zero(ex, item);
    }
    return item->slot_bytes > 0 ? sw_swap_zero(ex->swap, other + item->bytes, tail) : SW_OK;
}

sw_status sw_executor_roll_back(struct sw_executor *ex)
{
    sw_status st = sw_executor_drain(ex);
    ex->slots.is_renewed = false;
    sw_executor_forget_read(ex);
    if (ex->slots.is_due) {
        memcpy(ex->host_scalars, ex->slots.scalars, sizeof ex->slots.scalars);
        ex->has_new_scalars = true;
    }
    for (int32_t i = 0; i < ex->plan->n_persistent && st >= 0; i++) {
        const struct sw_persistent *item = &ex->plan->persistent[i];
        st = item->tier == SW_TIER_DISK ? roll_back(ex, item) : SW_OK;
    }
    return st < 0 && ex->plan->step.holds_faults ? sw_executor_hold(ex, st) : st;
}

sw_status sw_executor_load(struct sw_executor *ex, const struct sw_persistent *item, size_t at,
                           const void *src, size_t bytes)
{
    SW_TRY(check_range(item, at, bytes));
    SW_TRY(sw_executor_drain(ex));
    sw_executor_forget_read(ex);
    if (item->tier == SW_TIER_DISK) {
        SW_TRY(sw_swap_write(ex->swap, place_of(ex, item) + at, src, bytes));
        return at + bytes == item->bytes ? zero_tails(ex, item) : SW_OK;
    }
    return sw_stage_in(&ex->stages[SW_QUEUE_COMPUTE],
                       ex->arenas[item->tier] + place_of(ex, item) + at, src, bytes);
}

sw_status sw_executor_save(struct sw_executor *ex, const struct sw_persistent *item, size_t at,
                           void *dst, size_t bytes)
{
    SW_TRY(check_range(item, at, bytes));
    SW_TRY(sw_executor_drain(ex)); /* an update within backward may be in flight */
    if (item->tier == SW_TIER_DISK) {
        return sw_swap_read(ex->swap, place_of(ex, item) + at, dst, bytes);
    }
    return sw_stage_out(&ex->stages[SW_QUEUE_COMPUTE], dst,
                        ex->arenas[item->tier] + place_of(ex, item) + at, bytes);
}

static sw_status zero_at(struct sw_executor *ex, const struct sw_persistent *item, size_t at)
{
    return item->tier == SW_TIER_DISK
               ? sw_swap_zero(ex->swap, at, item->bytes)
               : sw_device_fill(ex->dev, ex->compute, ex->arenas[item->tier] + at, 0, item->bytes);
}

sw_status sw_executor_zero(struct sw_executor *ex, const struct sw_persistent *item)
{
    if (item->data) {
        return sw_executor_load(ex, item, 0, item->data, item->bytes);
    }
    SW_TRY(sw_executor_drain(ex));
    sw_executor_forget_read(ex);
    SW_TRY(zero_at(ex, item, place_of(ex, item)));
    if (item->slot_bytes > 0 && sw_state_is_sum(item->state) && !ex->slots.is_due) {
        SW_TRY(zero_at(ex, item, item->offset + item->slot_bytes * (1 - slot_of(ex, item))));
    }
    if (item->tier == SW_TIER_DISK) {
        return zero_tails(ex, item);
    }
    return sw_stage_wait(&ex->stages[SW_QUEUE_COMPUTE]);
}
