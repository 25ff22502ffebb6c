// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 300
// Fails, shortens, interrupts or delays every transfer once. The result must be the right bytes, or
// a status that names path, offset and length. Wrong bytes, leaks and hangs are errors.
#include "store/tests/helpers.h"

#include <pthread.h>
#include <unistd.h>

enum { BYTES = 60000, ODD = 449 * 4 };

static void fill(unsigned char *memory, size_t bytes, unsigned seed)
{
    for (size_t i = 0; i < bytes; i++) {
        memory[i] = (unsigned char)(i * 31 + seed);
    }
}

static sw_nvme *open_with(const struct test_variant *v, const struct sw_nvme_fault *fault)
{
    struct sw_nvme_options options;
    sw_nvme *store;
    test_variant_options(v, &options);
    options.fault = fault;
    test_fine(test_open("fault", v->n_paths, BYTES, &options, &store));
    return store;
}

/* ---- each transfer once ---- */

struct part {
    int64_t offset, bytes;
};
/* Neighbours that share granules, a large part, and an aligned part. */
static const struct part parts[] = {
    {3, ODD}, {3 + ODD, ODD}, {3 + 2 * ODD, 28}, {8192, 4096}, {20001, 30000}};
enum { N_PARTS = 5 };

/* Returns the number of failed requests; each must name its range. */
static int write_all(sw_nvme *store, unsigned char *data)
{
    sw_nvme_ticket tickets[N_PARTS];
    struct sw_nvme_segment segments[N_PARTS];
    int n_failed = 0;
    for (int i = 0; i < N_PARTS; i++) {
        segments[i] = (struct sw_nvme_segment){data + parts[i].offset, (size_t)parts[i].bytes};
        test_fine(sw_nvme_begin_write(store, parts[i].offset, &segments[i], 1, &tickets[i]));
    }
    for (int i = 0; i < N_PARTS; i++) {
        if (sw_nvme_wait(store, tickets[i], 0) != SW_OK) {
            test_message_has(test_folder(), "offset", "bytes", NULL);
            n_failed++;
        }
    }
    return n_failed;
}

/* Checks that all readable bytes are right. Returns the number of failed requests. */
static int read_all(sw_nvme *store, const unsigned char *data)
{
    static unsigned char back[BYTES];
    int n_failed = 0;
    for (int i = 0; i < N_PARTS; i++) {
        memset(back, 0xee, sizeof back);
        if (sw_nvme_read(store, parts[i].offset, back, (size_t)parts[i].bytes) == SW_OK) {
            assert_memory_equal(back, data + parts[i].offset, parts[i].bytes);
        } else {
            test_message_has(test_folder(), "offset", "bytes", NULL);
            n_failed++;
        }
    }
    return n_failed;
}

/* Returns false if the fault would come after the last transfer. */
static bool run_once(const struct test_variant *v, const struct sw_nvme_fault *fault)
{
    static _Alignas(4096) unsigned char data[BYTES];
    struct sw_nvme_counters counters;
    const bool fatal = fault->action == SW_NVME_FAULT_EIO || fault->action == SW_NVME_FAULT_ENOSPC;
    fill(data, sizeof data, (unsigned)fault->at);
    sw_nvme *store = open_with(v, fault);
    const int n_writes_failed = write_all(store, data);
    const int n_failed = n_writes_failed + read_all(store, data);
    sw_nvme_get_counters(store, &counters);
    const bool struck = counters.n_transfers >= fault->at;
    assert_true(fatal ? (n_failed > 0) == struck : n_failed == 0);
    if (struck && fault->action == SW_NVME_FAULT_EINTR) {
        assert_int_equal(counters.n_retried, 1);
    }
    /* A failed write can be repeated, and then all bytes are right. */
    if (n_writes_failed > 0) {
        assert_int_equal(write_all(store, data), 0);
        assert_int_equal(read_all(store, data), 0);
    }
    sw_nvme_close(store);
    return struck;
}

static void every_transfer_once(void **state)
{
    (void)state;
    static const enum sw_nvme_fault_action actions[] = {SW_NVME_FAULT_EIO, SW_NVME_FAULT_ENOSPC,
                                                        SW_NVME_FAULT_EINTR, SW_NVME_FAULT_SHORT,
                                                        SW_NVME_FAULT_DELAY};
    static const struct test_variant variants[] = {
        {.n_paths = 1, .block_bytes = 8192},
        {.n_paths = 2, .block_bytes = 16384, .checksum_bytes = 4096, .lanes = 2},
        {.n_paths = 1, .block_bytes = 8192, .direct = SW_NVME_DIRECT_OFF}};
    enum sw_nvme_backend backends[2];
    struct sw_alloc_stats before, after;
    const int n = test_backends(backends) * (int)SW_LEN(variants) * (int)SW_LEN(actions);
    sw_alloc_get_stats(&before);
    for (int i = 0; i < n; i++) {
        struct test_variant v = variants[i / (int)SW_LEN(actions) % (int)SW_LEN(variants)];
        struct sw_nvme_fault fault = {.action = actions[i % (int)SW_LEN(actions)],
                                      .delay_s = 0.002};
        v.backend = backends[i / ((int)SW_LEN(actions) * (int)SW_LEN(variants))];
        for (fault.at = 1; run_once(&v, &fault); fault.at++) {
        }
        assert_true(fault.at > 8);
    }
    sw_alloc_get_stats(&after);
    assert_int_equal(after.live_blocks, before.live_blocks);
}

static void errors_have_the_systems_words(void **state)
{
    (void)state;
    const struct test_variant v = {.n_paths = 1};
    const struct sw_nvme_fault fault = {.action = SW_NVME_FAULT_ENOSPC, .at = 1};
    unsigned char data[ODD] = {0};
    sw_nvme *store = open_with(&v, &fault);
    assert_int_equal(sw_nvme_write(store, 4096, data, sizeof data), SW_E_IO);
    test_message_has("fault-0", "4096", "1796", "No space left on device", NULL);
    assert_int_equal(sw_nvme_read(store, 4096, data, 1), SW_E_ARG);
    sw_nvme_close(store);
}

static void all_short_is_still_right(void **state)
{
    (void)state;
    const struct test_variant v = {.n_paths = 2, .block_bytes = 32768};
    const struct sw_nvme_fault fault = {.action = SW_NVME_FAULT_SHORT, .at = 1, .count = -1};
    static _Alignas(4096) unsigned char data[BYTES], back[BYTES];
    struct sw_nvme_counters counters;
    fill(data, sizeof data, 5);
    sw_nvme *store = open_with(&v, &fault);
    /* The memory has the same misalignment as the file: head, aligned body, tail. */
    test_fine(sw_nvme_write(store, 1, data + 1, BYTES - 2));
    test_fine(sw_nvme_read(store, 1, back + 1, BYTES - 2));
    assert_memory_equal(data + 1, back + 1, BYTES - 2);
    sw_nvme_get_counters(store, &counters);
    assert_true(counters.n_continued > 0);
    sw_nvme_close(store);
}

/* The second half of a write to a part of a granule fails while a read of its neighbour in that
 * granule waits for it. Transfers 1 and 2 are the first write. */
static void a_torn_granule_is_not_read(void **state)
{
    (void)state;
    const struct sw_nvme_fault fault = {.action = SW_NVME_FAULT_EIO, .at = 4, .delay_s = 0.1};
    for (int sums = 0; sums < 2; sums++) {
        const struct test_variant v = {.n_paths = 1, .checksum_bytes = sums ? 4096 : 0};
        unsigned char data[200], back[100];
        const struct sw_nvme_segment write = {data + 100, 100}, read = {back, sizeof back};
        sw_nvme_ticket writing, reading;
        fill(data, sizeof data, 3);
        sw_nvme *store = open_with(&v, &fault);
        test_fine(sw_nvme_write(store, 0, data, 100));
        test_fine(sw_nvme_begin_write(store, 100, &write, 1, &writing));
        /* refused at once if this thread comes late */
        const sw_status begun = sw_nvme_begin_read(store, 0, &read, 1, &reading);
        assert_int_equal(sw_nvme_wait(store, writing, 0), SW_E_IO);
        if (begun == SW_OK) {
            assert_int_equal(sw_nvme_wait(store, reading, 0), SW_E_IO);
            test_message_has("fault-0", "Input/output error", NULL);
        }
        assert_int_equal(sw_nvme_read(store, 0, back, sizeof back), SW_E_ARG);
        test_message_has("bytes 0 to 100 were never written", NULL);
        test_fine(sw_nvme_write(store, 0, data, sizeof data));
        test_fine(sw_nvme_read(store, 0, back, sizeof back));
        assert_memory_equal(back, data, sizeof back);
        sw_nvme_close(store);
    }
}

/* ---- waiting, cancelling ---- */

static const struct sw_nvme_fault never_ends = {
    .action = SW_NVME_FAULT_DELAY, .at = 1, .delay_s = 1e6};

static void a_deadline_names_the_request(void **state)
{
    (void)state;
    const struct test_variant v = {.n_paths = 1};
    unsigned char data[ODD] = {0};
    const struct sw_nvme_segment segment = {data, sizeof data};
    sw_nvme_ticket ticket;
    sw_nvme *store = open_with(&v, &never_ends);
    test_fine(sw_nvme_begin_write(store, 4097, &segment, 1, &ticket));
    assert_int_equal(sw_nvme_poll(store, ticket), SW_PENDING);
    assert_int_equal(sw_nvme_wait(store, ticket, 0.01), SW_E_IO);
    test_message_has("write of", "fault-0", "1796 bytes", "offset 4097", "0.01 s", NULL);
    assert_true(sw_nvme_in_flight(store, ticket));
    test_fine(sw_nvme_cancel(store, ticket));
    assert_int_equal(sw_nvme_wait(store, ticket, 0), SW_E_STOP);
    test_message_has("cancelled", "1796 bytes", "offset 4097", NULL);
    assert_false(sw_nvme_in_flight(store, ticket));
    assert_int_equal(sw_nvme_cancel(store, ticket), SW_E_ARG);
    /* The store stays usable; the cancelled bytes were not written. */
    assert_int_equal(sw_nvme_read(store, 4097, data, 1), SW_E_ARG);
    test_fine(sw_nvme_write(store, 4097, data, sizeof data));
    test_fine(sw_nvme_read(store, 4097, data, sizeof data));
    sw_nvme_close(store);
}

static void a_blocking_call_ends_at_its_deadline(void **state)
{
    (void)state;
    unsigned char data[100] = {0};
    struct sw_nvme_options options;
    sw_nvme *store;
    sw_nvme_options_init(&options);
    options.fault = &never_ends;
    options.deadline_s = 0.01;
    test_fine(test_open("fault", 1, BYTES, &options, &store));
    assert_int_equal(sw_nvme_write(store, 0, data, sizeof data), SW_E_IO);
    test_message_has("did not finish within 0.01 s", NULL);
    sw_nvme_close(store);
}

static void closing_and_flushing_with_a_request_in_flight(void **state)
{
    (void)state;
    unsigned char data[100] = {0};
    const struct sw_nvme_segment segment = {data, sizeof data};
    struct sw_nvme_options options;
    sw_nvme_ticket ticket;
    sw_nvme *store;
    sw_nvme_options_init(&options);
    options.fault = &never_ends;
    options.deadline_s = 0.01;
    test_fine(test_open("fault", 1, BYTES, &options, &store));
    test_fine(sw_nvme_begin_write(store, 0, &segment, 1, &ticket));
    assert_int_equal(sw_nvme_flush(store), SW_E_IO);
    test_message_has("flush", "1 writes", NULL);
    assert_int_equal(sw_nvme_wait_all(store, 0.01), SW_E_IO);
    sw_nvme_close(store);
}

struct waiter {
    pthread_t thread;
    sw_nvme *store;
    sw_nvme_ticket ticket;
    sw_status st;
};

static void *wait_for_one(void *ctx)
{
    struct waiter *w = ctx;
    w->st = sw_nvme_wait(w->store, w->ticket, 0);
    return NULL;
}

/* Either thread may get the result, and the one that waits for all never fails. */
static void waiting_for_all_beside_a_thread_that_waits_for_one(void **state)
{
    (void)state;
    enum { ROUNDS = 50 };
    const struct test_variant v = {.n_paths = 1};
    const struct sw_nvme_fault fault = {
        .action = SW_NVME_FAULT_DELAY, .at = 1, .count = -1, .delay_s = 0.002};
    static _Alignas(4096) unsigned char data[4096];
    const struct sw_nvme_segment segment = {data, sizeof data};
    struct waiter w = {.store = open_with(&v, &fault)};
    for (int i = 0; i < ROUNDS; i++) {
        test_fine(sw_nvme_begin_write(w.store, 0, &segment, 1, &w.ticket));
        assert_int_equal(pthread_create(&w.thread, NULL, wait_for_one, &w), 0);
        test_fine(sw_nvme_wait_all(w.store, 0));
        pthread_join(w.thread, NULL);
        assert_true(w.st == SW_OK || w.st == SW_E_ARG);
    }
    sw_nvme_close(w.store);
}

static void cancel_of_a_large_request_with_others(void **state)
{
    (void)state;
    static unsigned char data[BYTES], back[BYTES];
    const struct test_variant v = {.n_paths = 1, .block_bytes = 4096, .queue_depth = 2};
    const struct sw_nvme_fault fault = {.action = SW_NVME_FAULT_DELAY, .at = 1, .delay_s = 1e6};
    const struct sw_nvme_segment first = {data, 30001}, second = {data + 30001, BYTES - 30001};
    sw_nvme_ticket tickets[2];
    fill(data, sizeof data, 9);
    sw_nvme *store = open_with(&v, &fault);
    test_fine(sw_nvme_begin_write(store, 0, &first, 1, &tickets[0]));
    test_fine(sw_nvme_begin_write(store, 30001, &second, 1, &tickets[1]));
    test_fine(sw_nvme_cancel(store, tickets[0]));
    assert_int_equal(sw_nvme_wait(store, tickets[0], 0), SW_E_STOP);
    test_fine(sw_nvme_wait(store, tickets[1], 0));
    test_fine(sw_nvme_read(store, 30001, back, BYTES - 30001));
    assert_memory_equal(back, data + 30001, BYTES - 30001);
    sw_nvme_close(store);
}

/* ---- opening ---- */

static void every_allocation_of_opening(void **state)
{
    (void)state;
    const struct test_variant v = {.n_paths = 2, .checksum_bytes = 4096};
    const struct sw_nvme_fault fault = {.action = SW_NVME_FAULT_EIO, .at = 1000};
    enum sw_nvme_backend backends[2];
    struct sw_alloc_stats before, after;
    struct sw_nvme_options options;
    const int n_backends = test_backends(backends);
    test_variant_options(&v, &options);
    options.fault = &fault;
    sw_alloc_get_stats(&before);
    for (int b = 0; b < n_backends; b++) {
        sw_status st = SW_E_NOMEM;
        options.backend = backends[b];
        for (int n = 1; st != SW_OK; n++) {
            sw_nvme *store;
            sw_alloc_fail_nth(n);
            st = sw_nvme_open(test_paths("nomem", 2), 2, BYTES, &options, &store);
            sw_alloc_fail_nth(0);
            if (st == SW_OK) {
                sw_nvme_close(store);
                assert_true(n > 8);
            } else {
                assert_int_equal(st, SW_E_NOMEM);
                assert_int_not_equal(access(test_paths("nomem", 2)[0], F_OK), 0);
            }
        }
        test_fine(sw_nvme_remove(test_paths("nomem", 2), 2));
    }
    sw_alloc_get_stats(&after);
    assert_int_equal(after.live_blocks, before.live_blocks);
}

static void without_io_uring_threads_do_it(void **state)
{
    (void)state;
    struct sw_nvme_options options;
    struct sw_nvme_info info;
    sw_nvme *store;
    char byte = 1;
    sw_nvme_options_init(&options);
    test_fine(sw_fault_set("io_uring:1:eio"));
    sw_log_set_level(SW_LOG_ERROR);
    test_fine(test_open("auto", 1, 4096, &options, &store));
    sw_log_set_level(SW_LOG_WARN);
    test_fine(sw_fault_set(NULL));
    sw_nvme_get_info(store, &info);
    assert_string_equal(info.backend, "threads");
    assert_true(info.note[0] != '\0');
    test_fine(sw_nvme_write(store, 100, &byte, 1));
    sw_nvme_close(store);
    options.backend = SW_NVME_BACKEND_URING;
    test_fine(sw_fault_set("io_uring:1:eio"));
    assert_int_equal(test_open("auto", 1, 4096, &options, &store), SW_E_UNSUP);
    test_fine(sw_fault_set(NULL));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_transfer_once),
    cmocka_unit_test(errors_have_the_systems_words),
    cmocka_unit_test(all_short_is_still_right),
    cmocka_unit_test(a_torn_granule_is_not_read),
    cmocka_unit_test(a_deadline_names_the_request),
    cmocka_unit_test(a_blocking_call_ends_at_its_deadline),
    cmocka_unit_test(closing_and_flushing_with_a_request_in_flight),
    cmocka_unit_test(waiting_for_all_beside_a_thread_that_waits_for_one),
    cmocka_unit_test(cancel_of_a_large_request_with_others),
    cmocka_unit_test(every_allocation_of_opening),
    cmocka_unit_test(without_io_uring_threads_do_it),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
