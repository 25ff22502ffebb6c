// SPDX-License-Identifier: Apache-2.0
// Flushing while other threads write: which writes a flush waits for, and that a side file is never
// older than the store.
#include "store/private.h"

#include <math.h>
#include <unistd.h>

#include "store/tests/helpers.h"

enum { BYTES = 1 << 20, PART = 4096 };

static _Alignas(4096) unsigned char data[BYTES];

static sw_nvme *open_with(const struct sw_nvme_fault *fault, double deadline_s)
{
    struct sw_nvme_options options;
    sw_nvme *store;
    sw_nvme_options_init(&options);
    options.checksum_bytes = PART;
    options.deadline_s = deadline_s;
    options.fault = fault;
    test_fine(test_open("flush", 1, BYTES, &options, &store));
    return store;
}

static const char *side_file(void)
{
    static char side[200];
    snprintf(side, sizeof side, "%s.sums", test_paths("flush", 1)[0]);
    return side;
}

static bool is_there(void)
{
    return access(side_file(), F_OK) == 0;
}

static sw_nvme_ticket begin_part(sw_nvme *store, int i, struct sw_nvme_segment *segment)
{
    sw_nvme_ticket ticket;
    *segment = (struct sw_nvme_segment){data + i * PART, PART};
    test_fine(sw_nvme_begin_write(store, i * PART, segment, 1, &ticket));
    return ticket;
}

static const struct sw_nvme_fault second_never_ends = {
    .action = SW_NVME_FAULT_DELAY, .at = 2, .delay_s = 1e6};

static void it_waits_for_older_writes_only(void **state)
{
    (void)state;
    struct sw_nvme_segment segments[2];
    int64_t n_writes;
    sw_nvme *store = open_with(&second_never_ends, 20);
    const sw_nvme_ticket older = begin_part(store, 0, &segments[0]);
    const int64_t before = sw_store_next_ticket(store);
    const sw_nvme_ticket newer = begin_part(store, 1, &segments[1]);
    assert_true(older < before && newer >= before);
    test_fine(sw_store_wait_for_writes(store, before, &n_writes));
    assert_int_equal(n_writes, -1);
    test_fine(sw_nvme_wait(store, older, 0));
    /* the checksums of the newer write are unknown */
    test_fine(sw_store_sums_save(store, n_writes));
    assert_false(is_there());
    test_fine(sw_nvme_cancel(store, newer));
    assert_int_equal(sw_nvme_wait(store, newer, 0), SW_E_STOP);
    test_fine(sw_nvme_flush(store));
    assert_true(is_there());
    sw_nvme_close(store);
}

static void a_write_after_the_wait_leaves_no_side_file(void **state)
{
    (void)state;
    struct sw_nvme_segment segment;
    int64_t n_writes;
    sw_nvme *store = open_with(&second_never_ends, 20);
    test_fine(sw_nvme_write(store, 0, data, PART));
    test_fine(sw_store_wait_for_writes(store, sw_store_next_ticket(store), &n_writes));
    assert_int_equal(n_writes, 1);
    test_fine(sw_store_sums_save(store, n_writes));
    assert_true(is_there());
    const sw_nvme_ticket ticket = begin_part(store, 1, &segment);
    assert_false(is_there());
    test_fine(sw_store_sums_save(store, n_writes));
    assert_false(is_there());
    test_fine(sw_nvme_cancel(store, ticket));
    assert_int_equal(sw_nvme_wait(store, ticket, 0), SW_E_STOP);
    sw_nvme_close(store);
    assert_true(is_there());
}

static void any_deadline_is_fine(void **state)
{
    (void)state;
    static const double deadlines[] = {1e10, 1e300, INFINITY};
    const struct sw_nvme_fault slow = {.action = SW_NVME_FAULT_DELAY, .at = 1, .delay_s = 0.05};
    for (size_t i = 0; i < SW_LEN(deadlines); i++) {
        struct sw_nvme_segment segment;
        sw_nvme *store = open_with(&slow, deadlines[i]);
        const sw_nvme_ticket ticket = begin_part(store, 0, &segment);
        test_fine(sw_nvme_flush(store));
        test_fine(sw_nvme_wait(store, ticket, 0));
        sw_nvme_close(store);
    }
}

/* ---- a thread that flushes, beside one that writes ---- */

enum { FLUSHES = 20 };

struct flusher {
    pthread_t thread;
    sw_nvme *store;
    int n_errors;
    _Atomic bool ended;
};

static void *flush_often(void *ctx)
{
    struct flusher *f = ctx;
    for (int i = 0; i < FLUSHES; i++) {
        f->n_errors += sw_nvme_flush(f->store) != SW_OK;
    }
    atomic_store(&f->ended, true);
    return NULL;
}

static void checksums_are_those_of_the_last_write(void **state)
{
    (void)state;
    struct sw_nvme_options options;
    sw_nvme_options_init(&options);
    options.checksum_bytes = PART;
    options.queue_depth = 1; /* so that a write lasts */
    options.block_bytes = PART;
    struct flusher f = {.n_errors = 0};
    test_fine(test_open("flush", 1, BYTES, &options, &f.store));
    assert_int_equal(pthread_create(&f.thread, NULL, flush_often, &f), 0);
    for (int i = 1; !atomic_load(&f.ended); i++) {
        memset(data, i, sizeof data);
        test_fine(sw_nvme_write(f.store, 0, data, BYTES));
    }
    pthread_join(f.thread, NULL);
    assert_int_equal(f.n_errors, 0);
    sw_nvme_close(f.store);
    options.reopen = true;
    test_fine(test_open("flush", 1, BYTES, &options, &f.store));
    test_fine(sw_nvme_verify(f.store, NULL));
    sw_nvme_close(f.store);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(it_waits_for_older_writes_only),
    cmocka_unit_test(a_write_after_the_wait_leaves_no_side_file),
    cmocka_unit_test(any_deadline_is_fine),
    cmocka_unit_test(checksums_are_those_of_the_last_write),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
