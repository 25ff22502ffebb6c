// SPDX-License-Identifier: Apache-2.0
// Parses the output as other programs would: event files with both checksums of every record, CSV
// by rows, and the text for Prometheus. A resumed run loses and repeats no point, whatever the
// earlier run left.
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "monitor/monitor.h"
#include "support/events.h"
#include "support/scratch.h"
#include "support/test.h"

static void expect_text(const char *name, const char *wanted)
{
    char path[128], *text = NULL;
    size_t len = 0;
    snprintf(path, sizeof path, "%s/%s", test_folder(), name);
    assert_int_equal(sw_file_read(path, &text, &len), SW_OK);
    assert_string_equal(text, wanted);
    sw_free(text);
}

/* ---- event files ---- */

static void write_events_of(const char *run, const char *where, bool goes_on, int64_t last,
                            int64_t until)
{
    struct sw_events *events = NULL;
    const struct sw_monitor_place place = {where, run, goes_on, last};
    assert_int_equal(sw_events_open(&place, &events), SW_OK);
    for (int64_t x = last + 8; x <= until; x += 8) {
        const struct sw_point points[] = {{"Train/Samples/train_loss", 0.5 + (double)x},
                                          {"Train/Samples/lr", 1.0 / (double)x}};
        assert_int_equal(sw_events_add(events, x, points, 2), SW_OK);
    }
    sw_events_close(events);
}

static void write_events(const char *where, bool goes_on, int64_t last, int64_t until)
{
    write_events_of("mine", where, goes_on, last, until);
}

static void expect_points(const struct read_points *read, int64_t until)
{
    assert_int_equal(read->n, until / 4);
    for (int i = 0; i < read->n; i++) {
        const int64_t x = 8 * (i / 2 + 1);
        assert_int_equal(read->x[i], x);
        assert_string_equal(read->tag[i], i % 2 ? "Train/Samples/lr" : "Train/Samples/train_loss");
        const double wanted = i % 2 ? (double)(float)(1.0 / (double)x) : 0.5 + (double)x;
        assert_true(read->value[i] == wanted);
    }
}

/* A test vector of another writer: CRC-32C and its mask. */
static void the_checksum_is_that_of_other_writers(void **state)
{
    (void)state;
    assert_int_equal(sw_crc32c(0, "123456789", 9), 0xe3069283u);
    assert_int_equal(mask(0xe3069283u), 0xc78ab0e5u);
}

static void event_files_are_read_back(void **state)
{
    (void)state;
    char where[96];
    struct read_points read;
    snprintf(where, sizeof where, "%s/events/job", test_folder());
    write_events(where, false, 0, 40);
    assert_int_equal(read_folder(where, &read), 1);
    assert_string_equal(read.version, "brain.Event:2");
    assert_int_equal(read.n_starts, 1);
    assert_int_equal(read.start_x[0], 1);
    expect_points(&read, 40);
}

/* The first run is killed after its last checkpoint, in the middle of a record. The second one is
 * killed before it writes anything. */
static void a_run_that_goes_on_neither_repeats_nor_loses_a_point(void **state)
{
    (void)state;
    char where[96], name[512];
    struct read_points read;
    snprintf(where, sizeof where, "%s/resumed", test_folder());
    write_events(where, false, 0, 64);
    find_events(where, name, sizeof name);
    FILE *file = fopen(name, "a");
    assert_non_null(file);
    fwrite("\x20\0\0\0\0", 1, 5, file);
    fclose(file);
    write_events(where, true, 40, 56);
    write_events(where, true, 48, 48);
    write_events(where, true, 48, 80);
    read_folder(where, &read);
    expect_points(&read, 80);
    assert_int_equal(read.start_x[read.n_starts - 1], 49);
    write_events(where, true, 0, 16); /* there was no checkpoint */
    read_folder(where, &read);
    expect_points(&read, 16);
}

static void files_of_others_are_left_alone(void **state)
{
    (void)state;
    char where[96];
    struct read_points read;
    snprintf(where, sizeof where, "%s/foreign", test_folder());
    write_events(where, false, 0, 16);
    test_put("foreign/events.out.tfevents.1700000000.host.1.0", "not ours");
    test_put("foreign/Other.csv", "step,x\n99,1\n");
    write_events(where, true, 8, 16);
    assert_int_equal(read_folder(where, &read), 3);
    expect_points(&read, 16);
    struct sw_csv *csv = NULL;
    const struct sw_monitor_place place = {where, "mine", true, 8};
    assert_int_equal(sw_csv_open(&place, &csv), SW_OK);
    sw_csv_close(csv);
    expect_text("foreign/events.out.tfevents.1700000000.host.1.0", "not ours");
    expect_text("foreign/Other.csv", "step,x\n99,1\n");
}

/* Arbitrary bytes in a file: the first invalid record ends the file, and nothing is read past
 * it. */
static void damaged_event_files_are_cut(void **state)
{
    (void)state;
    char where[96], name[512], *text = NULL;
    size_t len = 0;
    struct read_points read;
    snprintf(where, sizeof where, "%s/damaged", test_folder());
    write_events(where, false, 0, 16);
    find_events(where, name, sizeof name);
    assert_int_equal(sw_file_read(name, &text, &len), SW_OK);
    for (size_t i = 0; i < len; i++) {
        text[i] ^= 0x41;
        assert_int_equal(sw_file_write_atomic(name, text, len), SW_OK);
        text[i] ^= 0x41;
        struct sw_events *events = NULL;
        const struct sw_monitor_place place = {where, "mine", true, 16};
        assert_int_equal(sw_events_open(&place, &events), SW_OK);
        sw_events_close(events);
        read_folder(where, &read); /* whole records with valid checksums */
        assert_true(read.n < 4);
    }
    sw_free(text);
}

/* ---- CSV ---- */

static void write_csv_of(const char *run, const char *where, bool goes_on, int64_t last,
                         int64_t until)
{
    struct sw_csv *csv = NULL;
    const struct sw_monitor_place place = {where, run, goes_on, last};
    assert_int_equal(sw_csv_open(&place, &csv), SW_OK);
    for (int64_t x = last + 8; x <= until; x += 8) {
        const struct sw_point points[] = {{"Train/Samples/train_loss", 0.1 * (double)x},
                                          {"Train/Samples/lr", x == 16 ? NAN : 0.25}};
        assert_int_equal(sw_csv_add(csv, x, points, 2), SW_OK);
    }
    sw_csv_close(csv);
}

static void write_csv(const char *where, bool goes_on, int64_t last, int64_t until)
{
    write_csv_of("mine", where, goes_on, last, until);
}

static void rows_are_those_of_deepspeeds_monitor(void **state)
{
    (void)state;
    char where[96];
    snprintf(where, sizeof where, "%s/csv/job", test_folder());
    write_csv(where, false, 0, 24);
    expect_text("csv/job/Train_Samples_train_loss.csv",
                "step,train_loss\n8,0.8\n16,1.6\n24,2.4000000000000004\n");
    expect_text("csv/job/Train_Samples_lr.csv", "step,lr\n8,0.25\n16,nan\n24,0.25\n");
    test_put("csv/job/Train_Samples_lr.csv", "step,lr\n8,0.25\n16,nan\n24,0.");
    write_csv(where, true, 16, 32);
    expect_text("csv/job/Train_Samples_train_loss.csv",
                "step,train_loss\n8,0.8\n16,1.6\n24,2.4000000000000004\n32,3.2\n");
    expect_text("csv/job/Train_Samples_lr.csv", "step,lr\n8,0.25\n16,nan\n24,0.25\n32,0.25\n");
    write_csv(where, true, 0, 8);
    expect_text("csv/job/Train_Samples_lr.csv", "step,lr\n8,0.25\n");
}

static void a_new_run_leaves_what_an_older_one_wrote(void **state)
{
    (void)state;
    char where[96];
    snprintf(where, sizeof where, "%s/again", test_folder());
    write_csv(where, false, 0, 8);
    write_csv(where, false, 0, 16);
    write_csv(where, false, 0, 0);
    expect_text("again/Train_Samples_lr.csv.1", "step,lr\n8,0.25\n");
    expect_text("again/Train_Samples_lr.csv.2", "step,lr\n8,0.25\n16,nan\n");
}

/* Runs of the same job name share a folder. One that goes on cuts nothing of the other. */
static void a_run_that_goes_on_leaves_what_others_wrote(void **state)
{
    (void)state;
    char where[96], name[512];
    struct read_points before, after;
    snprintf(where, sizeof where, "%s/shared", test_folder());
    write_events_of("theirs", where, false, 0, 64);
    write_csv_of("theirs", where, false, 0, 16);
    find_events(where, name, sizeof name);
    before = after = (struct read_points){0};
    read_events(name, &before);
    for (int64_t last = 0; last <= 8; last += 8) { /* without a checkpoint, and with one */
        write_events(where, true, last, 16);
        write_csv(where, true, last, 16);
    }
    read_events(name, &after);
    assert_memory_equal(&before, &after, sizeof before);
    expect_text("shared/Train_Samples_lr.csv.1", "step,lr\n8,0.25\n16,nan\n");
    expect_text("shared/Train_Samples_lr.csv", "step,lr\n8,0.25\n16,nan\n");
    write_csv_of("theirs", where, true, 8, 24);
    expect_text("shared/Train_Samples_lr.csv.2", "step,lr\n8,0.25\n16,nan\n");
    expect_text("shared/Train_Samples_lr.csv", "step,lr\n16,nan\n24,0.25\n");
}

/* ---- Prometheus ---- */

static void gauges_are_prometheus_text(void **state)
{
    (void)state;
    char path[128];
    const struct sw_gauge gauges[] = {
        {"spillway_loss", "Mean loss of the step.", NULL, false, 2.5},
        {"spillway_memory_bytes", "Planned bytes of a rank.", "tier=\"device\"", false, 1024},
        {"spillway_memory_bytes", "Planned bytes of a rank.", "tier=\"host\"", false, INFINITY},
        {"spillway_samples_total", "Samples.", NULL, true, 80}};
    struct sw_output out;
    snprintf(path, sizeof path, "%s/F.prom", test_folder());
    assert_int_equal(sw_output_open(path, true, &out), SW_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sw_gauges_write(&out, gauges, (int)SW_LEN(gauges)), SW_OK);
    }
    sw_output_close(&out);
    expect_text("F.prom", "# HELP spillway_loss Mean loss of the step.\n"
                          "# TYPE spillway_loss gauge\n"
                          "spillway_loss 2.5\n"
                          "# HELP spillway_memory_bytes Planned bytes of a rank.\n"
                          "# TYPE spillway_memory_bytes gauge\n"
                          "spillway_memory_bytes{tier=\"device\"} 1024.0\n"
                          "spillway_memory_bytes{tier=\"host\"} +Inf\n"
                          "# HELP spillway_samples_total Samples.\n"
                          "# TYPE spillway_samples_total counter\n"
                          "spillway_samples_total 80.0\n");
    assert_int_equal(sw_output_open("/nowhere/F.prom", true, &out), SW_OK);
    assert_int_equal(sw_gauges_write(&out, gauges, 1), SW_E_IO);
    sw_output_close(&out);
    assert_non_null(strstr(sw_error_message(), "/nowhere/F.prom"));
}

/* ---- obstacles ---- */

static void folders_that_cannot_be_are_named(void **state)
{
    (void)state;
    char where[96];
    struct sw_events *events = NULL;
    struct sw_csv *csv = NULL;
    test_put("file", "x");
    snprintf(where, sizeof where, "%s/file/job", test_folder());
    const struct sw_monitor_place place = {where, "mine", false, 0};
    assert_int_equal(sw_events_open(&place, &events), SW_E_IO);
    assert_non_null(strstr(sw_error_message(), "/file"));
    assert_int_equal(sw_csv_open(&place, &csv), SW_E_IO);
    assert_non_null(strstr(sw_error_message(), "/file"));
}

/* Links and FIFOs with such names are not moved, cut, or written through. */
static void what_is_no_file_stays(void **state)
{
    (void)state;
    char where[96], path[192];
    const struct sw_point point = {"Train/Samples/lr", 1};
    struct sw_csv *csv = NULL;
    struct stat info;
    test_put("aim", "step,lr\n8,1\n16,1\n");
    snprintf(where, sizeof where, "%s/links", test_folder());
    assert_int_equal(sw_mkdirs(where), SW_OK);
    snprintf(path, sizeof path, "%s/Train_Samples_lr.csv", where);
    assert_int_equal(symlink("../aim", path), 0);
    for (int i = 0; i < 2; i++) {
        const struct sw_monitor_place place = {where, "mine", i == 1, 8};
        assert_int_equal(sw_csv_open(&place, &csv), SW_OK);
        assert_int_equal(sw_csv_add(csv, 16, &point, 1), SW_E_IO);
        assert_non_null(strstr(sw_error_message(), path));
        assert_non_null(strstr(sw_error_message(), "symbolic link"));
        sw_csv_close(csv);
        assert_true(lstat(path, &info) == 0 && S_ISLNK(info.st_mode));
    }
    expect_text("aim", "step,lr\n8,1\n16,1\n");
    snprintf(path, sizeof path, "%s/events.out.tfevents.1.h.1.0.%016llx.spillway", where,
             (unsigned long long)sw_hash_str(SW_HASH_INIT, "mine"));
    assert_int_equal(symlink("../aim", path), 0);
    write_events(where, true, 8, 16);
    assert_true(lstat(path, &info) == 0 && S_ISLNK(info.st_mode));
    expect_text("aim", "step,lr\n8,1\n16,1\n");
}

static void lack_of_memory_is_an_error(void **state)
{
    (void)state;
    char where[96];
    struct sw_alloc_stats before, after;
    snprintf(where, sizeof where, "%s/memory", test_folder());
    sw_alloc_get_stats(&before);
    for (int64_t n = 1; n < 40; n++) {
        const struct sw_monitor_place place = {where, "mine", n % 2 == 0, 0};
        const struct sw_point point = {"Train/Samples/lr", 1};
        struct sw_events *events = NULL;
        struct sw_csv *csv = NULL;
        sw_alloc_fail_nth(n);
        sw_status st = sw_events_open(&place, &events);
        st = st < 0 ? st : sw_events_add(events, 1, &point, 1);
        st = st < 0 ? st : sw_csv_open(&place, &csv);
        st = st < 0 ? st : sw_csv_add(csv, 1, &point, 1);
        sw_alloc_fail_nth(0);
        assert_true(st == SW_OK || st == SW_E_NOMEM);
        assert_true(n > 1 || st == SW_E_NOMEM);
        sw_events_close(events);
        sw_csv_close(csv);
    }
    sw_alloc_get_stats(&after);
    assert_int_equal(before.live_blocks, after.live_blocks);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_checksum_is_that_of_other_writers),
    cmocka_unit_test(event_files_are_read_back),
    cmocka_unit_test(a_run_that_goes_on_neither_repeats_nor_loses_a_point),
    cmocka_unit_test(files_of_others_are_left_alone),
    cmocka_unit_test(damaged_event_files_are_cut),
    cmocka_unit_test(rows_are_those_of_deepspeeds_monitor),
    cmocka_unit_test(a_new_run_leaves_what_an_older_one_wrote),
    cmocka_unit_test(a_run_that_goes_on_leaves_what_others_wrote),
    cmocka_unit_test(gauges_are_prometheus_text),
    cmocka_unit_test(folders_that_cannot_be_are_named),
    cmocka_unit_test(what_is_no_file_stays),
    cmocka_unit_test(lack_of_memory_is_an_error),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
