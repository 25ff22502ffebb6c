// SPDX-License-Identifier: Apache-2.0
// A computing thread either computes or waits for exactly one queue. The largest of these shares,
// over all ranks, is what bound the step.
#include "job/queues.h"

#include <math.h>
#include <stdio.h>

void sw_queue_record_end(struct queue_record *record,
                         const struct sw_queue_times now[SW_QUEUE_COUNT])
{
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        const struct sw_queue_times *began = &record->of[q];
        record->of[q] =
            (struct sw_queue_times){.busy_ns = now[q].busy_ns - began->busy_ns,
                                    .waited_ns = now[q].waited_ns - began->waited_ns,
                                    .bytes_in = now[q].bytes_in - began->bytes_in,
                                    .bytes_out = now[q].bytes_out - began->bytes_out,
                                    .n_host_waits = now[q].n_host_waits - began->n_host_waits};
    }
}

void sw_queue_record_add(struct queue_record *sum, const struct queue_record *more)
{
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        sum->of[q].busy_ns += more->of[q].busy_ns;
        sum->of[q].waited_ns += more->of[q].waited_ns;
        sum->of[q].bytes_in += more->of[q].bytes_in;
        sum->of[q].bytes_out += more->of[q].bytes_out;
        sum->of[q].n_host_waits += more->of[q].n_host_waits;
    }
}

static double rate(int64_t bytes, int64_t ns)
{
    return ns > 0 ? (double)bytes / (double)ns : 0;
}

void sw_queue_use(const struct queue_record *ranks, int n_ranks, struct queue_use *out)
{
    static const enum sw_queue transfers[] = {SW_QUEUE_H2D, SW_QUEUE_D2H, SW_QUEUE_READ,
                                              SW_QUEUE_WRITE};
    struct queue_use use = {.bound = SW_QUEUE_COMPUTE};
    struct queue_record all = {0};
    double parts[SW_QUEUE_COUNT], sum = 0, busy = 0, waited = 0;
    for (int r = 0; r < n_ranks; r++) {
        const struct sw_queue_times *read = &ranks[r].of[SW_QUEUE_READ];
        const struct sw_queue_times *write = &ranks[r].of[SW_QUEUE_WRITE];
        sw_queue_record_add(&all, &ranks[r]);
        use.read_gb_s += rate(read->bytes_in, read->busy_ns); /* bytes per nanosecond are GB/s */
        use.write_gb_s += rate(write->bytes_out, write->busy_ns);
    }
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        const struct sw_queue_times *t = &all.of[q];
        parts[q] = fmax((double)(q == SW_QUEUE_COMPUTE ? t->busy_ns : t->waited_ns), 0);
        sum += parts[q];
        use.bound = parts[q] > parts[use.bound] ? (enum sw_queue)q : use.bound;
    }
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        use.share[q] = sum > 0 ? parts[q] / sum : 0;
    }
    for (size_t i = 0; i < SW_LEN(transfers); i++) {
        busy += (double)all.of[transfers[i]].busy_ns;
        waited += (double)all.of[transfers[i]].waited_ns;
    }
    use.hidden = busy > 0 ? fmin(fmax(1 - waited / busy, 0), 1) : NAN;
    use.read_bytes = (double)all.of[SW_QUEUE_READ].bytes_in;
    use.write_bytes = (double)all.of[SW_QUEUE_WRITE].bytes_out;
    *out = use;
}

static double percent(double share)
{
    return isfinite(share) ? 100 * share : 0;
}

void sw_queue_use_line(const struct queue_use *use, char *buf, size_t cap)
{
    snprintf(buf, cap, " disk read %.2f write %.2f GB/s hidden %.0f%% bound %s", use->read_gb_s,
             use->write_gb_s, percent(use->hidden), sw_queue_name(use->bound));
}

void sw_queue_use_report(const struct queue_use *use, struct sw_str *out)
{
    char bytes[2][32];
    sw_str_printf(out,
                  "disk: read %s at %.2f GB/s, written %s at %.2f GB/s; %.0f%% of transfers "
                  "hidden; bound by %s:",
                  sw_format_bytes(bytes[0], sizeof bytes[0], use->read_bytes), use->read_gb_s,
                  sw_format_bytes(bytes[1], sizeof bytes[1], use->write_bytes), use->write_gb_s,
                  percent(use->hidden), sw_queue_name(use->bound));
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        if (q == SW_QUEUE_COMPUTE || use->share[q] > 0) {
            sw_str_printf(out, "%s%s %.0f%%", q == SW_QUEUE_COMPUTE ? " " : ", waiting for ",
                          sw_queue_name((enum sw_queue)q), percent(use->share[q]));
        }
    }
    sw_str_putc(out, '\n');
}
