// SPDX-License-Identifier: Apache-2.0
// spillway io bench and tune: rates of writing, reading and both, from pinned memory, with several
// requests in flight. A write ends when it is durable, so its time includes the flush.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/io.h"

enum { IN_FLIGHT = 4, MOST_REQUEST = 16 << 20, MOST_LOOPS = 1000 };

enum kind { WRITE, READ, MIXED, N_KINDS };
static const char *const kind_names[] = {"write", "read", "mixed"};

struct bench {
    sw_nvme *store;
    sw_nvme_buffer *buffer;
    char *memory; /* [IN_FLIGHT, request_bytes] */
    int64_t bytes, request_bytes;
    struct sw_nvme_segment segments[IN_FLIGHT];
    sw_nvme_ticket tickets[IN_FLIGHT];
    bool waits[IN_FLIGHT];
};

/* Fills memory with data that a controller cannot compress. */
static void fill(char *memory, int64_t bytes)
{
    uint64_t x = 88172645463325252u;
    for (int64_t i = 0; i + 8 <= bytes; i += 8) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        *(uint64_t *)(void *)(memory + i) = x;
    }
}

static sw_status open_bench(struct bench *b, struct io_run *run)
{
    struct sw_nvme_buffer_info info;
    sw_status st = io_open(run, &b->store);
    if (st < 0) {
        return st;
    }
    b->bytes = run->bytes;
    b->request_bytes =
        run->bytes / IN_FLIGHT < MOST_REQUEST ? run->bytes / IN_FLIGHT / 4096 * 4096 : MOST_REQUEST;
    st = sw_nvme_buffer_open(b->store, (size_t)b->request_bytes * IN_FLIGHT, &b->buffer);
    if (st < 0) {
        return st;
    }
    sw_nvme_buffer_get_info(b->buffer, &info);
    b->memory = info.data;
    fill(b->memory, b->request_bytes * IN_FLIGHT);
    return SW_OK;
}

/* Waits for all requests, because after a failure others may still use the memory. */
static void close_bench(struct bench *b)
{
    while (b->store && sw_nvme_wait_all(b->store, 0) < 0) {
    }
    sw_nvme_buffer_close(b->buffer);
    sw_nvme_close(b->store);
}

static sw_status begin(struct bench *b, int i, int64_t offset, bool write)
{
    const int64_t left = b->bytes - offset;
    b->segments[i] =
        (struct sw_nvme_segment){b->memory + i * b->request_bytes,
                                 (size_t)(left < b->request_bytes ? left : b->request_bytes)};
    b->waits[i] = true;
    return write ? sw_nvme_begin_write(b->store, offset, &b->segments[i], 1, &b->tickets[i])
                 : sw_nvme_begin_read(b->store, offset, &b->segments[i], 1, &b->tickets[i]);
}

/* Transfers the whole range once. mixed: every second request reads. */
static sw_status sweep(struct bench *b, enum kind kind, double *out_s)
{
    const double start = io_now_s();
    sw_status st = SW_OK;
    int64_t n = 0;
    for (int64_t at = 0; at < b->bytes && st == SW_OK; at += b->request_bytes, n++) {
        const int i = (int)(n % IN_FLIGHT);
        if (b->waits[i]) {
            b->waits[i] = false;
            st = sw_nvme_wait(b->store, b->tickets[i], 0);
        }
        if (st == SW_OK) {
            st = begin(b, i, at, kind == WRITE || (kind == MIXED && n % 2 == 0));
        }
    }
    for (int i = 0; i < IN_FLIGHT; i++) {
        b->waits[i] = false;
    }
    if (st == SW_OK) {
        st = sw_nvme_wait_all(b->store, 0);
    }
    if (st == SW_OK && kind != READ) {
        st = sw_nvme_flush(b->store);
    }
    *out_s = io_now_s() - start;
    return st;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* ---- bench ---- */

static void print_head(const struct io_run *run, const struct bench *b)
{
    struct sw_nvme_info info;
    char size[32], block[32];
    sw_nvme_get_info(b->store, &info);
    for (int i = 0; i < run->paths.n; i++) {
        printf("%s%s", i ? ", " : "", run->paths.items[i]);
    }
    printf(": %s, blocks of %s, queue depth %lld, %lld lanes\n",
           io_size(size, sizeof size, run->bytes), io_size(block, sizeof block, info.block_bytes),
           (long long)run->options.queue_depth, (long long)run->options.intra_op_parallelism);
    printf("%s, %s\n\n", info.backend, info.direct ? "O_DIRECT" : "through the page cache");
    printf("%-8s %12s %12s %12s\n", "", "median GB/s", "best GB/s", "median s");
}

static sw_status measure(struct bench *b, const struct io_run *run, enum kind kind)
{
    double seconds[MOST_LOOPS];
    for (int64_t i = 0; i < run->loops; i++) {
        const sw_status st = sweep(b, kind, &seconds[i]);
        if (st < 0) {
            return st;
        }
    }
    qsort(seconds, (size_t)run->loops, sizeof *seconds, by_value);
    const double middle = seconds[run->loops / 2], gb = (double)run->bytes * 1e-9;
    printf("%-8s %12.3f %12.3f %12.3f\n", kind_names[kind], gb / middle, gb / seconds[0], middle);
    fflush(stdout);
    return SW_OK;
}

int io_bench(struct io_run *run)
{
    struct bench b = {0};
    double warm_up_s;
    sw_status st = open_bench(&b, run);
    if (st == SW_OK) {
        print_head(run, &b);
        st = sweep(&b, WRITE,
                   &warm_up_s); /* warm-up: the first write of a block costs the file system more */
    }
    for (int kind = WRITE; kind < N_KINDS && st == SW_OK; kind++) {
        st = measure(&b, run, (enum kind)kind);
    }
    const int status =
        st == SW_OK ? CLI_DONE : cli_error(run->command, b.memory ? CLI_FAILED : CLI_REFUSED);
    close_bench(&b);
    io_remove(run);
    return status;
}

/* ---- tune ---- */

struct setting {
    int64_t block_bytes, queue_depth, lanes;
    bool single_submit, overlap;
    double write, read; /* GB/s */
};

static double score(const struct setting *s)
{
    return sqrt(s->write * s->read);
}

static sw_status best_of(struct bench *b, const struct io_run *run, enum kind kind, double *out)
{
    double least = INFINITY, seconds;
    for (int64_t i = 0; i < run->loops; i++) {
        const sw_status st = sweep(b, kind, &seconds);
        if (st < 0) {
            return st;
        }
        least = seconds < least ? seconds : least;
    }
    *out = (double)run->bytes * 1e-9 / least;
    return SW_OK;
}

static sw_status try_setting(const struct io_run *base, struct setting *s, FILE *to)
{
    struct io_run run = *base;
    struct bench b = {0};
    char block[32];
    run.options.block_bytes = s->block_bytes;
    run.options.queue_depth = s->queue_depth;
    run.options.intra_op_parallelism = s->lanes;
    run.options.single_submit = s->single_submit;
    run.options.overlap_events = s->overlap;
    run.options.reopen = true; /* the file system has its blocks already */
    sw_status st = open_bench(&b, &run);
    st = st == SW_OK ? best_of(&b, &run, WRITE, &s->write) : st;
    st = st == SW_OK ? best_of(&b, &run, READ, &s->read) : st;
    close_bench(&b);
    if (st < 0) {
        return st;
    }
    fprintf(to, "%10s %6lld %6lld %7s %8s %9.3f %9.3f\n",
            io_size(block, sizeof block, s->block_bytes), (long long)s->queue_depth,
            (long long)s->lanes, s->single_submit ? "yes" : "no", s->overlap ? "yes" : "no",
            s->write, s->read);
    fflush(to);
    return SW_OK;
}

/* Chooses the first, hence smallest, setting whose rate is within noise of the best. */
static struct setting choose(const struct setting *all, int n)
{
    double most = 0;
    int i = 0;
    for (int k = 0; k < n; k++) {
        most = score(&all[k]) > most ? score(&all[k]) : most;
    }
    while (i < n - 1 && score(&all[i]) < 0.97 * most) {
        i++;
    }
    return all[i];
}

/* Tries all sizes, depths and lanes, then the other ways of submitting with the best of them. */
static sw_status search(const struct io_run *run, struct setting *best, FILE *to)
{
    static const int64_t blocks[] = {256 << 10, 1 << 20, 8 << 20};
    static const int64_t depths[] = {8, 32, 128};
    static const int64_t lanes[] = {1, 2, 4};
    struct setting all[27], ways[4];
    sw_status st = SW_OK;
    for (int i = 0; i < 27 && st == SW_OK; i++) {
        all[i] = (struct setting){.block_bytes = blocks[i / 9],
                                  .queue_depth = depths[i / 3 % 3],
                                  .lanes = lanes[i % 3],
                                  .overlap = true};
        st = try_setting(run, &all[i], to);
    }
    ways[0] = st == SW_OK ? choose(all, 27) : all[0];
    for (int i = 1; i < 4 && st == SW_OK; i++) {
        ways[i] = ways[0];
        ways[i].single_submit = i & 1;
        ways[i].overlap = !(i & 2);
        st = try_setting(run, &ways[i], to);
    }
    *best = st == SW_OK ? choose(ways, 4) : ways[0];
    return st;
}

/* Makes the files and writes every block once. */
static int prepare(struct io_run *run)
{
    struct bench b = {0};
    double seconds;
    int status = -1;
    if (open_bench(&b, run) < 0) {
        status = cli_error(run->command, CLI_REFUSED);
    } else if (sweep(&b, WRITE, &seconds) < 0) {
        status = cli_error(run->command, CLI_FAILED);
    }
    close_bench(&b);
    return status;
}

static void print_block(const struct setting *best)
{
    printf("{\n  \"aio\": {\n    \"block_size\": %lld,\n    \"queue_depth\": %lld,\n"
           "    \"intra_op_parallelism\": %lld,\n    \"single_submit\": %s,\n"
           "    \"overlap_events\": %s\n  }\n}\n",
           (long long)best->block_bytes, (long long)best->queue_depth, (long long)best->lanes,
           best->single_submit ? "true" : "false", best->overlap ? "true" : "false");
}

int io_tune(struct io_run *run)
{
    FILE *to = run->json ? stderr : stdout;
    struct setting best;
    int status = prepare(run);
    if (status < 0) {
        fprintf(to, "%10s %6s %6s %7s %8s %9s %9s\n", "block", "depth", "lanes", "single",
                "overlap", "write", "read");
        if (search(run, &best, to) < 0) {
            status = cli_error(run->command, CLI_FAILED);
        } else {
            status = CLI_DONE;
            fprintf(to,
                    "\nGB/s, best of %lld, writes until they are durable. For ds_config.json:\n\n",
                    (long long)run->loops);
            fflush(to);
            print_block(&best);
        }
    }
    io_remove(run);
    return status;
}
