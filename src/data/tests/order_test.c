// SPDX-License-Identifier: Apache-2.0
// The order of training samples beyond a shuffle: shares of several files, and rows of similar
// lengths. Both depend on the seed and the number of a sample alone.
#include "data/order.h"

#include "data/data.h"
#include "support/files.h"
#include "support/scratch.h"
#include "support/test.h"

enum { T = 16, LONGEST = 12 };

static sw_dataset *open_rows(const struct sw_dataset_options *options)
{
    sw_dataset *dataset = NULL;
    if (sw_dataset_open(options, &dataset) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return dataset;
}

/* n prompts "a" whose completions are 1 to LONGEST times one letter. */
static const char *rows_of(int slot, const char *name, char letter, int n)
{
    struct sw_str text = {0};
    for (int i = 0; i < n; i++) {
        sw_str_puts(&text, "{\"prompt\":\"a\",\"completion\":\"");
        for (int k = 0; k <= i * 7 % LONGEST; k++) {
            sw_str_putc(&text, letter);
        }
        sw_str_puts(&text, "\"}\n");
    }
    const char *path = sw_test_write_text(slot, name, sw_str_text(&text));
    sw_str_fini(&text);
    return path;
}

struct row {
    int32_t ids[T], labels[T], mask[T];
};

static struct row row_at(const sw_dataset *dataset, int64_t sample)
{
    struct row row;
    assert_int_equal(
        sw_dataset_fetch(dataset, SW_SPLIT_TRAIN, sample, 1, row.ids, row.labels, row.mask), SW_OK);
    return row;
}

static int length_of(const struct row *row)
{
    int n = 0;
    while (n < T && row->mask[n]) {
        n++;
    }
    return n;
}

static void shares_are_exact_and_sources_are_counted(void **state)
{
    struct sw_mix mix = {0};
    const double weights[] = {3, 0.5, 1.5};
    int64_t next[3] = {0};
    static bool seen[3][SW_MIX_SLOTS];
    (void)state;
    assert_int_equal(sw_mix_init(&mix, weights, 3), SW_OK);
    for (int64_t run = 0; run < 2; run++) {
        memset(seen, 0, sizeof seen);
        for (int64_t s = run * SW_MIX_SLOTS; s < (run + 1) * SW_MIX_SLOTS; s++) {
            const struct sw_mixed at = sw_mix_at(&mix, 7, s);
            const int64_t number = at.number - next[at.source];
            assert_true(number >= 0 && number < SW_MIX_SLOTS && !seen[at.source][number]);
            seen[at.source][number] = true;
        }
        for (int i = 0; i < 3; i++) { /* each source's samples are the next ones, without a gap */
            const int64_t n = (int64_t)(SW_MIX_SLOTS * weights[i] / 5 + 0.5);
            int64_t counted = 0;
            while (counted < SW_MIX_SLOTS && seen[i][counted]) {
                counted++;
            }
            assert_true(llabs(counted - n) <= 1);
            next[i] += counted;
        }
        assert_int_equal(next[0] + next[1] + next[2], (run + 1) * SW_MIX_SLOTS);
    }
    sw_mix_fini(&mix);
    assert_int_equal(sw_mix_init(&mix, (const double[]){1, 0}, 2), SW_E_CONFIG);
    assert_int_equal(sw_mix_init(&mix, (const double[]){1, 1e-7}, 2), SW_E_CONFIG);
}

static void files_have_their_weights(void **state)
{
    (void)state;
    sw_tokenizer *letters = NULL;
    const char *files[] = {rows_of(0, "b.jsonl", 'b', 30), rows_of(1, "c.jsonl", 'c', 90)};
    assert_int_equal(sw_tokenizer_open_chars("letters", "abc", 3, &letters), SW_OK);
    const struct sw_dataset_options options = {.files = files,
                                               .n_files = 2,
                                               .tokenizer = letters,
                                               .seq_len = T,
                                               .seed = 5,
                                               .val_fraction = SW_VAL_FRACTION,
                                               .weights = (const double[]){0.8, 0.2}};
    sw_dataset *dataset = open_rows(&options), *again = open_rows(&options);
    enum { N = 2000 };
    int n_b = 0;
    assert_int_equal(sw_dataset_n_samples(dataset, SW_SPLIT_TRAIN), 27 + 81);
    assert_int_equal(sw_dataset_n_samples(dataset, SW_SPLIT_VAL), 3 + 9);
    for (int64_t s = 0; s < N; s++) {
        const struct row row = row_at(dataset, s);
        const struct row other = row_at(again, s);
        assert_memory_equal(&row, &other, sizeof row);
        n_b += row.labels[0] == sw_tokenizer_find(letters, "b");
    }
    assert_true(n_b > N * 0.76 && n_b < N * 0.84); /* 4 deviations of a draw without a plan */
    sw_dataset_close(dataset);
    sw_dataset_close(again);
    sw_tokenizer_close(letters);
}

/* The spread of lengths in batches, summed; each sample comes once an epoch. */
static void batches_have_similar_lengths(void **state)
{
    (void)state;
    enum { N = 96, BATCH = 6 };
    sw_tokenizer *letters = NULL;
    const char *file = rows_of(0, "b.jsonl", 'b', N);
    int spread[2] = {0}, total[2] = {0};
    assert_int_equal(sw_tokenizer_open_chars("letters", "ab", 2, &letters), SW_OK);
    for (int grouped = 0; grouped < 2; grouped++) {
        const struct sw_dataset_options options = {.files = &file,
                                                   .n_files = 1,
                                                   .tokenizer = letters,
                                                   .seq_len = T,
                                                   .seed = 5,
                                                   .group_by_length = grouped ? BATCH : 0};
        sw_dataset *dataset = open_rows(&options);
        for (int64_t first = 0; first < 2 * N; first += BATCH) {
            int least = T, most = 0;
            for (int64_t s = first; s < first + BATCH; s++) {
                const struct row row = row_at(dataset, s);
                const int n = length_of(&row);
                least = n < least ? n : least;
                most = n > most ? n : most;
                total[grouped] += n;
            }
            spread[grouped] += most - least;
        }
        sw_dataset_close(dataset);
    }
    assert_int_equal(total[0], total[1]);
    assert_true(3 * spread[1] < spread[0]);
    sw_tokenizer_close(letters);
}

static void what_cannot_be_mixed_or_grouped_is_refused(void **state)
{
    (void)state;
    sw_tokenizer *letters = NULL;
    sw_dataset *dataset = NULL;
    const char *file = sw_test_write_text(0, "text.txt", "abababababababababababababababab");
    assert_int_equal(sw_tokenizer_open_chars("letters", "ab", 2, &letters), SW_OK);
    struct sw_dataset_options options = {
        .files = &file, .n_files = 1, .tokenizer = letters, .seq_len = 4, .group_by_length = 2};
    assert_int_equal(sw_dataset_open(&options, &dataset), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "running text have one length"));
    options.group_by_length = 0;
    options.weights = (const double[]){-1};
    assert_int_equal(sw_dataset_open(&options, &dataset), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "weight -1"));
    sw_tokenizer_close(letters);
}

static void failing_allocations(void **state)
{
    (void)state;
    sw_tokenizer *letters = NULL;
    const char *files[] = {rows_of(0, "b.jsonl", 'b', 4), rows_of(1, "c.jsonl", 'c', 4)};
    struct sw_alloc_stats before, after;
    sw_status st = SW_E_NOMEM;
    assert_int_equal(sw_tokenizer_open_chars("letters", "abc", 3, &letters), SW_OK);
    const struct sw_dataset_options options = {.files = files,
                                               .n_files = 2,
                                               .tokenizer = letters,
                                               .seq_len = T,
                                               .group_by_length = 2,
                                               .weights = (const double[]){1, 1}};
    sw_alloc_get_stats(&before);
    for (int64_t n = 1; st != SW_OK; n++) {
        struct row row;
        sw_dataset *dataset = NULL;
        sw_alloc_fail_nth(n);
        st = sw_dataset_open(&options, &dataset);
        st = st < 0 ? st
                    : sw_dataset_fetch(dataset, SW_SPLIT_TRAIN, 3, 1, row.ids, row.labels, NULL);
        sw_alloc_fail_nth(0);
        sw_dataset_close(dataset);
        sw_alloc_get_stats(&after);
        assert_true(st == SW_OK || st == SW_E_NOMEM);
        assert_int_equal(after.live_blocks, before.live_blocks);
    }
    sw_tokenizer_close(letters);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(shares_are_exact_and_sources_are_counted),
    cmocka_unit_test(files_have_their_weights),
    cmocka_unit_test(batches_have_similar_lengths),
    cmocka_unit_test(what_cannot_be_mixed_or_grouped_is_refused),
    cmocka_unit_test(failing_allocations),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
