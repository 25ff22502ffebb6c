// SPDX-License-Identifier: Apache-2.0
// The error record: message, prefix, trace, threads; every code has its own sentence.
#include "base/base.h"

#include <pthread.h>

#include "support/test.h"

static sw_status inner(void)
{
    return SW_FAIL(SW_E_IO, "disk %d is gone\n", 7);
}

static sw_status outer(void)
{
    SW_TRY(inner());
    return SW_OK;
}

static sw_status with_cleanup(int *cleaned)
{
    sw_status st = SW_OK;
    SW_TRY_OR(clean, outer());
    return st;
clean:
    ++*cleaned;
    return st;
}

static void message_is_kept_and_frames_are_added(void **state)
{
    (void)state;
    int cleaned = 0;
    assert_int_equal(with_cleanup(&cleaned), SW_E_IO);
    assert_int_equal(cleaned, 1);
    assert_string_equal(sw_error_message(), "disk 7 is gone"); /* one line */
    int frames = 1;
    for (const char *c = sw_error_trace(); *c; c++) {
        frames += *c == '\n';
    }
    assert_int_equal(frames, 3);
    assert_non_null(strstr(sw_error_trace(), "src/base/tests/status_test.c:"));
}

static void a_new_failure_starts_a_new_trace(void **state)
{
    (void)state;
    assert_int_equal(outer(), SW_E_IO);
    assert_int_equal(SW_FAIL(SW_E_ARG, "second"), SW_E_ARG);
    assert_string_equal(sw_error_message(), "second");
    assert_null(strchr(sw_error_trace(), '\n'));
}

static void prefix_goes_in_front(void **state)
{
    (void)state;
    const sw_status st = SW_FAIL(SW_E_FORMAT, "line 3: bad");
    assert_int_equal(sw_fail_prefix(st, "file %s", "a.json"), SW_E_FORMAT);
    assert_string_equal(sw_error_message(), "file a.json: line 3: bad");
    /* The old message may be an argument of the new one. */
    SW_FAIL(st, "again %s", sw_error_message());
    assert_string_equal(sw_error_message(), "again file a.json: line 3: bad");
}

static void long_text_and_deep_traces_are_cut(void **state)
{
    (void)state;
    char text[10000];
    memset(text, 'x', sizeof(text) - 1);
    text[sizeof(text) - 1] = '\0';
    SW_FAIL(SW_E_IO, "%s", text);
    assert_in_range(strlen(sw_error_message()), 1000, 9000);
    sw_fail_prefix(SW_E_IO, "%s", text);
    assert_in_range(strlen(sw_error_message()), 1000, 9000);
    for (int i = 0; i < 10000; i++) {
        sw_frame_at("some/file.c", i, SW_E_IO);
    }
    assert_in_range(strlen(sw_error_trace()), 1000, 9000);
    assert_non_null(strstr(sw_error_trace(), "some/file.c:0\n"));
}

static void *fail_elsewhere(void *arg)
{
    (void)arg;
    SW_FAIL(SW_E_PEER, "of another thread");
    return NULL;
}

static void records_belong_to_threads(void **state)
{
    (void)state;
    SW_FAIL(SW_E_IO, "of this thread");
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    pthread_join(thread, NULL);
    assert_string_equal(sw_error_message(), "of this thread");
}

static void codes_have_texts(void **state)
{
    (void)state;
#define CODE(name, value, text)                                                                    \
    assert_int_equal(name, value);                                                                 \
    assert_string_equal(sw_status_string(name), text);
    SW_STATUS_LIST(CODE)
    assert_string_equal(sw_status_string((sw_status)-99), "unknown status");
    assert_true(strlen(sw_version()) >= strlen("0.0.0"));
}

static void keep_line(void *ctx, enum sw_log_level level, const char *text)
{
    struct sw_str *lines = ctx;
    sw_str_printf(lines, "%d %s\n", (int)level, text);
}

static void log_obeys_level_and_sink(void **state)
{
    (void)state;
    struct sw_str lines = {0};
    sw_log_set_sink(keep_line, &lines);
    sw_log(SW_LOG_WARN, "w%d", 1);
    sw_log(SW_LOG_INFO, "too quiet");
    sw_log_set_level(SW_LOG_DEBUG);
    sw_log(SW_LOG_DEBUG, "d%d", 2);
    sw_log_set_level(SW_LOG_WARN);
    sw_log_set_sink(NULL, NULL);
    assert_string_equal(sw_str_text(&lines), "1 w1\n3 d2\n");
    sw_str_fini(&lines);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(message_is_kept_and_frames_are_added),
    cmocka_unit_test(a_new_failure_starts_a_new_trace),
    cmocka_unit_test(prefix_goes_in_front),
    cmocka_unit_test(long_text_and_deep_traces_are_cut),
    cmocka_unit_test(records_belong_to_threads),
    cmocka_unit_test(codes_have_texts),
    cmocka_unit_test(log_obeys_level_and_sink),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
