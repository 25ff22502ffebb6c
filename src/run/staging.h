// SPDX-License-Identifier: Apache-2.0
// staging - host memory from the device, for transfers between device memory and peers that cannot
// reach it: the host, the disk, other ranks (enum sw_device_cap). Each queue has a fixed part, so
// that queues do not wait for each other. Longer transfers are split into pieces. If device memory
// can be reached directly, nothing is copied. Private to this folder.
#pragma once

#include "run/meter.h"
#include "run/swap.h"

/* How the members of a group exchange. */
struct sw_route {
    sw_comm *comm;
    struct sw_ccl *ccl; /* of the devices' library; NULL = comm carries the bytes */
};

/* Staging memory of one queue; used by one thread at a time. */
struct sw_stage {
    struct sw_device *dev;
    struct sw_stream_queue *on; /* stream for its copies; NULL = the plan does not use the queue */
    struct sw_meter *meter;     /* counts its waits */
    enum sw_queue queue;        /* the queue that these waits count for */
    char *memory;               /* NULL = device memory can be reached directly */
    size_t bytes;
    /* Exchanges are queued on the stream, and nobody waits for them: sw_stage_wait does nothing. */
    bool in_order;
    bool library_sums;     /* in_order: the library adds what ranks send */
    struct sw_ccl_op *ops; /* in_order: scratch */
};

/* SW_E_ARG: the plan reserves no staging memory, or too little for so many ranks. host: arena of
 * the host tier */
sw_status sw_stages_open(const struct sw_plan *plan, struct sw_device *dev, char *host, int ranks,
                         struct sw_meter *meter, struct sw_stage out[SW_QUEUE_COUNT]);

/* Waits until the queued work is done. */
sw_status sw_stage_wait(const struct sw_stage *s);

/* Copies between any host memory and device memory; complete on return. */
sw_status sw_stage_in(const struct sw_stage *s, void *device, const void *data, size_t bytes);
sw_status sw_stage_out(const struct sw_stage *s, void *data, const void *device, size_t bytes);
/* Copies n words, `stride` words apart, out of device memory; complete on return, even if the
 * stage is in_order: the caller waits for all that is queued on its stream. */
sw_status sw_stage_words_out(const struct sw_stage *s, int32_t *words, const int32_t *device,
                             size_t stride, int n);

/* Transfers between disk and device; complete on return. */
bool sw_stage_is_for_disk(const struct sw_stage *s);
sw_status sw_stage_read(const struct sw_stage *s, struct sw_swap *swap, size_t at, void *device,
                        size_t bytes);
sw_status sw_stage_write(const struct sw_stage *s, struct sw_swap *swap, size_t at,
                         const void *device, size_t bytes);
/* See sw_swap_read_rows. */
sw_status sw_stage_read_rows(const struct sw_stage *s, struct sw_swap *swap, size_t at,
                             size_t row_bytes, const int32_t *ids, int n, void *device);

/* Exchanges items in device memory: runs sw_comm_run, or queues the library's calls if the stage is
 * in_order. With library_sums, a queued REDUCE_SCATTER is a sum of its dtype, and dst has one
 * slice. All ranks split items in the same way, so their staging memory has the same size.
 * scratch: [n] */
sw_status sw_stage_exchange(const struct sw_stage *s, const struct sw_route *route,
                            const struct sw_comm_item *items, int n, struct sw_comm_item *scratch);
/* See sw_comm_all_to_all_counted. */
struct sw_counted_slices {
    const void *src; /* [size, slice_bytes] in device memory, as dst */
    void *dst;
    size_t slice_bytes;
    const size_t *sent, *received; /* [size] bytes of each slice, the first ones */
    size_t *scratch;               /* [2 size] */
    const char *what;
};
/* Exchanges the counted bytes of slices; complete on return, unless the stage is in_order: then it
 * is queued. */
sw_status sw_stage_exchange_counted(const struct sw_stage *s, const struct sw_route *route,
                                    const struct sw_counted_slices *x);
/* Passes data in device memory on. op: SW_COMM_SEND, to `peer`; _RECEIVE, from `peer`; _BROADCAST,
 * from `peer` to all. Complete on return, unless the stage is in_order: then it is queued. */
sw_status sw_stage_pass(const struct sw_stage *s, const struct sw_route *route, enum sw_comm_op op,
                        int peer, void *data, size_t bytes, const char *what);
/* Ops of the library for an item with `size` members, at most. */
static inline int sw_stage_most_ops(int size)
{
    return 2 * size;
}
