// SPDX-License-Identifier: Apache-2.0
// Sums of time and bytes. Each is an atomic of its own, so that queues never wait for each other to
// count.
#include "run/meter.h"

#include "run/trace.h"

static void add(atomic_llong *sum, int64_t n)
{
    atomic_fetch_add_explicit(sum, n, memory_order_relaxed);
}

static int64_t get(const atomic_llong *sum)
{
    return atomic_load_explicit(sum, memory_order_relaxed);
}

void sw_meter_ran(struct sw_meter *meter, const struct sw_span *span)
{
    const int64_t ns = span->end_ns - span->begin_ns;
    if (span->queue != SW_QUEUE_COMPUTE) { /* computation is what remains of its segments */
        add(&meter->queues[span->queue].busy_ns, ns);
    }
    add(&meter->queues[span->queue].bytes_in, span->bytes_in);
    add(&meter->queues[span->queue].bytes_out, span->bytes_out);
    sw_trace_ran(meter->trace, span);
}

void sw_meter_waited(struct sw_meter *meter, const struct sw_span *span)
{
    add(&meter->queues[span->queue].waited_ns, span->end_ns - span->begin_ns);
    sw_trace_waited(meter->trace, span);
}

void sw_meter_host_waits(struct sw_meter *meter, enum sw_queue queue)
{
    add(&meter->queues[queue].n_host_waits, 1);
}

static int64_t waited(const struct sw_meter *meter)
{
    int64_t sum = 0;
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        sum += get(&meter->queues[q].waited_ns);
    }
    return sum;
}

int64_t sw_meter_waited_for(const struct sw_meter *meter, enum sw_queue queue)
{
    return get(&meter->queues[queue].waited_ns);
}

/* The clock of computation, which stands still while computation waits. */
int64_t sw_meter_begin(const struct sw_meter *meter)
{
    return sw_now_ns() - waited(meter);
}

void sw_meter_end(struct sw_meter *meter, int64_t begun)
{
    add(&meter->queues[SW_QUEUE_COMPUTE].busy_ns, sw_meter_begin(meter) - begun);
}

void sw_meter_read(const struct sw_meter *meter, struct sw_queue_times out[SW_QUEUE_COUNT])
{
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        out[q] = (struct sw_queue_times){
            .busy_ns = get(&meter->queues[q].busy_ns),
            .waited_ns = get(&meter->queues[q].waited_ns),
            .bytes_in = get(&meter->queues[q].bytes_in),
            .bytes_out = get(&meter->queues[q].bytes_out),
            .n_host_waits = get(&meter->queues[q].n_host_waits),
        };
    }
}
