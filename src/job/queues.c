// SPDX-License-Identifier: Apache-2.0
// Of the thread that computes, time is computation or waiting for one of the queues, never two of
// them: the largest part is what bound the step.
#include "job/queues.h"

#include <math.h>
#include <stdio.h>

static struct sw_queue_times minus(const struct sw_queue_times *a, const struct sw_queue_times *b)
{
    return (struct sw_queue_times){.busy_ns = a->busy_ns - b->busy_ns,
                                   .waited_ns = a->waited_ns - b->waited_ns,
                                   .bytes_in = a->bytes_in - b->bytes_in,
                                   .bytes_out = a->bytes_out - b->bytes_out};
}

static double rate(int64_t bytes, int64_t ns)
{
    return ns > 0 ? (double)bytes / (double)ns : 0;
}

void sw_queue_use(const struct sw_queue_times before[SW_QUEUE_COUNT],
                  const struct sw_queue_times after[SW_QUEUE_COUNT], struct queue_use *out)
{
    static const enum sw_queue transfers[] = {SW_QUEUE_H2D, SW_QUEUE_D2H, SW_QUEUE_READ,
                                              SW_QUEUE_WRITE};
    struct sw_queue_times t[SW_QUEUE_COUNT];
    struct queue_use use = {.bound = SW_QUEUE_COMPUTE};
    double parts[SW_QUEUE_COUNT], sum = 0, busy = 0, waited = 0;
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        t[q] = minus(&after[q], &before[q]);
        parts[q] = (double)(q == SW_QUEUE_COMPUTE ? t[q].busy_ns : t[q].waited_ns);
        parts[q] = parts[q] > 0 ? parts[q] : 0;
        sum += parts[q];
        use.bound = parts[q] > parts[use.bound] ? (enum sw_queue)q : use.bound;
    }
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        use.share[q] = sum > 0 ? parts[q] / sum : 0;
    }
    for (size_t i = 0; i < SW_LEN(transfers); i++) {
        busy += (double)t[transfers[i]].busy_ns;
        waited += (double)t[transfers[i]].waited_ns;
    }
    use.hidden = busy > 0 ? fmin(fmax(1 - waited / busy, 0), 1) : NAN;
    const struct sw_queue_times *read = &t[SW_QUEUE_READ], *write = &t[SW_QUEUE_WRITE];
    use.read_gb_s = rate(read->bytes_in, read->busy_ns); /* bytes a nanosecond */
    use.write_gb_s = rate(write->bytes_out, write->busy_ns);
    use.read_bytes = (double)read->bytes_in;
    use.write_bytes = (double)write->bytes_out;
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
