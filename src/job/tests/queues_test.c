// SPDX-License-Identifier: Apache-2.0
// Queue statistics computed from given times: rates, hidden share, and what bound a step.
#include <string.h>

#include "job/queues.h"
#include "support/test.h"

enum { MS = 1000000 };

static void numbers_are_those_of_the_difference(void **state)
{
    (void)state;
    struct queue_record record = {0};
    struct sw_queue_times after[SW_QUEUE_COUNT] = {0};
    struct queue_use use;
    record.of[SW_QUEUE_READ] = (struct sw_queue_times){.busy_ns = 7, .waited_ns = 5, .bytes_in = 3};
    after[SW_QUEUE_COMPUTE].busy_ns = 50 * MS;
    after[SW_QUEUE_COMM].busy_ns = 40 * MS;
    after[SW_QUEUE_COMM].waited_ns = 10 * MS;
    after[SW_QUEUE_H2D].busy_ns = 20 * MS;
    after[SW_QUEUE_READ] = (struct sw_queue_times){
        .busy_ns = 7 + 40 * MS, .waited_ns = 5 + 20 * MS, .bytes_in = 3 + 80 * MS};
    after[SW_QUEUE_WRITE] = (struct sw_queue_times){.busy_ns = 20 * MS, .bytes_out = 10 * MS};
    sw_queue_record_end(&record, after);
    sw_queue_use(&record, 1, &use);
    assert_true(fabs(use.read_gb_s - 2) < 1e-12);
    assert_true(fabs(use.write_gb_s - 0.5) < 1e-12);
    assert_true(fabs(use.hidden - 0.75) < 1e-12); /* computation waited 20 of 80 ms */
    assert_int_equal(use.bound, SW_QUEUE_COMPUTE);
    assert_true(fabs(use.share[SW_QUEUE_COMPUTE] - 50.0 / 80) < 1e-12);
    assert_true(fabs(use.share[SW_QUEUE_READ] - 20.0 / 80) < 1e-12);
    assert_true(use.share[SW_QUEUE_H2D] == 0);
    char line[128];
    sw_queue_use_line(&use, line, sizeof line);
    assert_string_equal(line, " disk read 2.00 write 0.50 GB/s hidden 75% bound compute");
    struct sw_str text = {0};
    sw_queue_use_report(&use, &text);
    assert_string_equal(sw_str_text(&text),
                        "disk: read 76.3 MiB at 2.00 GB/s, written 9.5 MiB at 0.50 GB/s; 75% of "
                        "transfers hidden; bound by compute: compute 62%, waiting for comm 12%, "
                        "waiting for read 25%\n");
    sw_str_fini(&text);
}

static void the_longest_wait_binds(void **state)
{
    (void)state;
    struct queue_record record = {0};
    struct queue_use use;
    sw_queue_use(&record, 1, &use);
    assert_int_equal(use.bound, SW_QUEUE_COMPUTE);
    assert_true(isnan(use.hidden)); /* no transfers to hide */
    record.of[SW_QUEUE_COMPUTE].busy_ns = 5;
    record.of[SW_QUEUE_WRITE].busy_ns = record.of[SW_QUEUE_WRITE].waited_ns = 6;
    record.of[SW_QUEUE_COMM].busy_ns = 100; /* communication in parallel binds nothing */
    sw_queue_use(&record, 1, &use);
    assert_int_equal(use.bound, SW_QUEUE_WRITE);
    assert_true(use.hidden == 0);
    record.of[SW_QUEUE_WRITE].waited_ns = 9; /* a wait may begin before its transfer */
    sw_queue_use(&record, 1, &use);
    assert_true(use.hidden == 0);
}

/* Rank 0 only computes, so the transfers are those of the other ranks. */
static void other_ranks_count(void **state)
{
    (void)state;
    struct queue_record ranks[3] = {0};
    struct queue_use use;
    ranks[0].of[SW_QUEUE_COMPUTE].busy_ns = 10 * MS;
    for (int r = 1; r < 3; r++) {
        ranks[r].of[SW_QUEUE_COMPUTE].busy_ns = 4 * MS;
        ranks[r].of[SW_QUEUE_READ] = (struct sw_queue_times){
            .busy_ns = r * 8 * MS, .waited_ns = 10 * MS, .bytes_in = r * 16 * MS};
    }
    sw_queue_use(ranks, 3, &use);
    assert_true(use.read_bytes == 48.0 * MS);
    assert_true(fabs(use.read_gb_s - 4) < 1e-12); /* the sum over two ranks: 2 + 2 */
    assert_true(fabs(use.hidden - (1 - 20.0 / 24)) < 1e-12);
    assert_int_equal(use.bound, SW_QUEUE_READ); /* 20 ms over all ranks, against 18 */
    assert_true(fabs(use.share[SW_QUEUE_READ] - 20.0 / 38) < 1e-12);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(numbers_are_those_of_the_difference),
    cmocka_unit_test(the_longest_wait_binds),
    cmocka_unit_test(other_ranks_count),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
