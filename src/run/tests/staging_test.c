// SPDX-License-Identifier: Apache-2.0
// Tests staging: data reaches the device in pieces of pinned memory, with the same bytes for any
// number of pieces. A failing disk leaves nothing in flight.
#include "run/staging.h"

#include <stdlib.h>
#include <string.h>

#include "support/test.h"

enum { RANKS = 3, CUT = 7001, WHOLE = 20011, BYTES = 100000 };

struct bench { /* a device, and the stage of one queue */
    struct sw_device *dev;
    struct sw_plan plan;
    void *host;
    struct sw_stage stages[SW_QUEUE_COUNT];
    struct sw_meter meter;
};

static void bench_open(struct bench *b, const char *device, int ranks)
{
    *b = (struct bench){0};
    assert_int_equal(sw_device_open(device, 1, &b->dev), SW_OK);
    b->plan.staging.bytes = b->dev->staging_bytes;
    sw_plan_share_staging(&b->plan);
    if (b->plan.staging.bytes > 0) {
        assert_int_equal(sw_device_alloc(b->dev, SW_MEM_HOST, b->plan.staging.bytes, &b->host),
                         SW_OK);
    }
    assert_int_equal(sw_stages_open(&b->plan, b->dev, b->host, ranks, &b->meter, b->stages), SW_OK);
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        assert_int_equal(b->dev->ops->stream_open(b->dev, &b->stages[q].on), SW_OK);
    }
}

static void bench_close(struct bench *b)
{
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        b->dev->ops->stream_close(b->dev, b->stages[q].on);
    }
    sw_device_free(b->dev, SW_MEM_HOST, b->host, b->plan.staging.bytes);
    sw_device_close(b->dev);
}

static void *device_memory(struct bench *b, size_t bytes)
{
    void *mem = NULL;
    assert_int_equal(sw_device_alloc(b->dev, SW_MEM_DEVICE, bytes, &mem), SW_OK);
    return mem;
}

/* Byte i of rank r's data of kind k. */
static unsigned char byte_of(int k, int r, size_t i)
{
    return (unsigned char)(sw_philox_u64(7, (uint64_t)(k * RANKS + r), i) & 0xff);
}

static void fill(unsigned char *out, int k, int r, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        out[i] = byte_of(k, r, i);
    }
}

/* ---- other ranks ---- */

/* A gradient that is split, a parameter whose shard is in place, one without elements, another
 * gradient. */
static sw_status exchange(void *ctx, sw_comm *comm)
{
    static const size_t slice[] = {CUT, WHOLE, 0, 3 * CUT};
    const char *device = ctx;
    const int rank = sw_comm_rank(comm);
    struct bench b;
    struct sw_comm_item items[4], scratch[4];
    void *src[4] = {0}, *dst[4] = {0};
    unsigned char *bytes = malloc((size_t)RANKS * 3 * CUT);
    bench_open(&b, device, RANKS);
    const struct sw_stage *s = &b.stages[SW_QUEUE_COMM];
    for (int k = 0; k < 4; k++) {
        const bool cut = k != 1;
        const size_t all = RANKS * slice[k] + 1;
        dst[k] = device_memory(&b, all);
        src[k] = cut ? device_memory(&b, all) : (char *)dst[k] + (size_t)rank * slice[k];
        fill(bytes, k, rank, (cut ? RANKS : 1) * slice[k]);
        assert_int_equal(sw_stage_in(s, src[k], bytes, (cut ? RANKS : 1) * slice[k]), SW_OK);
        items[k] = (struct sw_comm_item){.op = cut ? SW_COMM_REDUCE_SCATTER : SW_COMM_ALL_GATHER,
                                         .src = src[k],
                                         .dst = dst[k],
                                         .slice_bytes = slice[k],
                                         .what = "a tensor"};
    }
    sw_status st = sw_stage_exchange(s, &(struct sw_route){comm, NULL}, items, 4, scratch);
    for (int k = 0; k < 4; k++) {
        const bool cut = k != 1;
        assert_int_equal(sw_stage_out(s, bytes, dst[k], RANKS * slice[k]), SW_OK);
        for (size_t i = 0; st >= 0 && i < RANKS * slice[k]; i++) {
            const int from = (int)(i / slice[k]);
            const size_t at = i % slice[k] + (cut ? (size_t)rank * slice[k] : 0);
            if (bytes[i] != byte_of(k, from, at)) {
                st = SW_FAIL(SW_E_ARG, "item %d: byte %zu of rank %d differs", k, at, from);
            }
        }
        sw_device_free(b.dev, SW_MEM_DEVICE, dst[k], RANKS * slice[k] + 1);
        if (cut) {
            sw_device_free(b.dev, SW_MEM_DEVICE, src[k], RANKS * slice[k] + 1);
        }
    }
    free(bytes);
    bench_close(&b);
    return st;
}

static void ranks_exchange_in_pieces(void **state)
{
    (void)state;
    static const char *const devices[] = {"cpu:reference", "mock", "mock:early"};
    for (size_t d = 0; d < SW_LEN(devices); d++) {
        char name[32];
        snprintf(name, sizeof name, "%s", devices[d]);
        if (sw_threads_run(RANKS, 60, exchange, name) < 0) {
            fail_msg("%s: %s", name, sw_error_message());
        }
    }
}

/* ---- the disk ---- */

static struct sw_swap *open_swap(const struct sw_nvme_fault *fault)
{
    static const char *const folder = "/tmp";
    struct sw_swap_options options = {.folders = &folder, .n_folders = 1};
    struct sw_swap *swap = NULL;
    sw_nvme_options_init(&options.nvme);
    options.nvme.fault = fault;
    assert_int_equal(sw_swap_open(&options, 2 * BYTES, &swap), SW_OK);
    return swap;
}

static void the_disk_is_passed_through(void **state)
{
    (void)state;
    enum { AT = 1234, ROWS = 5, LONG = 9001, SHORT = 700 };
    struct bench b;
    bench_open(&b, "mock", 1);
    struct sw_swap *swap = open_swap(NULL);
    const struct sw_stage *reads = &b.stages[SW_QUEUE_READ], *writes = &b.stages[SW_QUEUE_WRITE];
    unsigned char *want = malloc(BYTES), *got = malloc(BYTES);
    void *mem = device_memory(&b, BYTES);
    fill(want, 0, 0, BYTES);
    assert_true(sw_stage_is_for_disk(reads));
    assert_int_equal(sw_stage_in(writes, mem, want, BYTES), SW_OK);
    assert_int_equal(sw_stage_write(writes, swap, AT, mem, BYTES), SW_OK);
    assert_int_equal(sw_device_fill(b.dev, writes->on, mem, 0, BYTES), SW_OK);
    assert_int_equal(b.dev->ops->stream_wait(b.dev, writes->on), SW_OK);
    assert_int_equal(sw_stage_read(reads, swap, AT, mem, BYTES), SW_OK);
    assert_int_equal(sw_stage_out(reads, got, mem, BYTES), SW_OK);
    assert_memory_equal(got, want, BYTES);
    static const int32_t ids[ROWS] = {7, 8, 0, 3, 3};
    static const size_t lengths[] = {SHORT, LONG};
    for (size_t l = 0; l < 2; l++) { /* several transfers fit into the stage, or not even one */
        const size_t row = lengths[l];
        assert_int_equal(sw_stage_read_rows(reads, swap, AT, row, ids, ROWS, mem), SW_OK);
        assert_int_equal(sw_stage_out(reads, got, mem, ROWS * row), SW_OK);
        for (int i = 0; i < ROWS; i++) {
            assert_memory_equal(got + (size_t)i * row, want + (size_t)ids[i] * row, row);
        }
    }
    sw_device_free(b.dev, SW_MEM_DEVICE, mem, BYTES);
    free(want);
    free(got);
    sw_swap_close(swap);
    bench_close(&b);
}

/* Whichever piece fails, the failure is returned, and the memory can be used for the next
 * transfer. */
static void a_disk_that_fails_leaves_nothing_under_way(void **state)
{
    (void)state;
    struct bench b;
    bench_open(&b, "mock", 1);
    const struct sw_stage *reads = &b.stages[SW_QUEUE_READ], *writes = &b.stages[SW_QUEUE_WRITE];
    void *mem = device_memory(&b, BYTES);
    unsigned char *want = malloc(BYTES), *got = malloc(BYTES);
    int n_write = 0, n_read = 0;
    fill(want, 0, 0, BYTES);
    assert_int_equal(sw_stage_in(writes, mem, want, BYTES), SW_OK);
    for (int64_t at = 1; at < 60; at++) {
        const struct sw_nvme_fault fault = {.action = SW_NVME_FAULT_EIO, .at = at};
        struct sw_swap *swap = open_swap(&fault);
        sw_status st = sw_stage_write(writes, swap, 0, mem, BYTES);
        n_write += st < 0;
        if (st < 0) {
            assert_int_equal(st, SW_E_IO);
            assert_int_equal(sw_stage_write(writes, swap, 0, mem, BYTES), SW_OK);
        }
        st = sw_stage_read(reads, swap, 0, mem, BYTES);
        n_read += st < 0;
        if (st < 0) {
            assert_int_equal(st, SW_E_IO);
            assert_int_equal(sw_stage_read(reads, swap, 0, mem, BYTES), SW_OK);
        }
        assert_int_equal(sw_stage_out(reads, got, mem, BYTES), SW_OK);
        assert_memory_equal(got, want, BYTES);
        sw_swap_close(swap);
    }
    assert_true(n_write > 10 && n_read > 10);
    sw_device_free(b.dev, SW_MEM_DEVICE, mem, BYTES);
    free(want);
    free(got);
    bench_close(&b);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ranks_exchange_in_pieces),
    cmocka_unit_test(the_disk_is_passed_through),
    cmocka_unit_test(a_disk_that_fails_leaves_nothing_under_way),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
