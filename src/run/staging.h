// SPDX-License-Identifier: Apache-2.0
// staging - host memory that the device gave, through which bytes pass between its memory and what
// does not reach that: the host itself, the disk, other ranks (enum sw_device_cap). A fixed part of
// it for each queue, so that nobody waits for another one's; what is longer passes in pieces. Where
// a device is reached, nothing is copied. Private to the room.
#pragma once

#include "run/meter.h"
#include "run/swap.h"

/* Of one queue: used by one thread at a time. */
struct sw_stage {
    struct sw_device *dev;
    struct sw_stream_queue *on; /* of its copies; NULL = the plan has no use for the queue */
    struct sw_meter *meter;     /* counts its waits .. */
    enum sw_queue queue;        /* .. as this one's */
    char *memory;               /* NULL = everything reaches the device */
    size_t bytes;
};

/* SW_E_ARG: the plan has set no staging memory aside, or too little for so many ranks. host: the
 * arena of that tier. */
sw_status sw_stages_open(const struct sw_plan *plan, struct sw_device *dev, char *host, int ranks,
                         struct sw_meter *meter, struct sw_stage out[SW_QUEUE_COUNT]);

/* Until what was queued is done. */
sw_status sw_stage_wait(const struct sw_stage *s);

/* Between memory from anywhere and the device's; complete when they return. */
sw_status sw_stage_in(const struct sw_stage *s, void *device, const void *data, size_t bytes);
sw_status sw_stage_out(const struct sw_stage *s, void *data, const void *device, size_t bytes);

/* Between the disk and the device; complete when they return. */
bool sw_stage_is_for_disk(const struct sw_stage *s);
sw_status sw_stage_read(const struct sw_stage *s, struct sw_swap *swap, size_t at, void *device,
                        size_t bytes);
sw_status sw_stage_write(const struct sw_stage *s, struct sw_swap *swap, size_t at,
                         const void *device, size_t bytes);
/* See sw_swap_read_rows. */
sw_status sw_stage_read_rows(const struct sw_stage *s, struct sw_swap *swap, size_t at,
                             size_t row_bytes, const int32_t *ids, int n, void *device);

/* sw_comm_run of items in device memory. Every rank cuts them alike, so all ranks' staging memory
 * is of one size. scratch: [n]. */
sw_status sw_stage_exchange(const struct sw_stage *s, sw_comm *comm,
                            const struct sw_comm_item *items, int n, struct sw_comm_item *scratch);
