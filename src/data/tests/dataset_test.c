// SPDX-License-Identifier: Apache-2.0
// Datasets: the content of each sample follows from the files. Numbering does not depend on how
// rows are fetched. Every epoch has every window once. Errors are named.
#include "data/data.h"

#include <sys/stat.h>
#include <unistd.h>

#include "support/files.h"
#include "support/scratch.h"
#include "support/test.h"

enum { T = 8 };

static struct sw_dataset *dataset_of(const struct sw_dataset_options *options)
{
    struct sw_dataset *dataset = NULL;
    if (sw_dataset_open(options, &dataset) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return dataset;
}

static void check_refused(const struct sw_dataset_options *options, sw_status wanted,
                          const char *named)
{
    struct sw_dataset *dataset;
    const sw_status st = sw_dataset_open(options, &dataset);
    if (st != wanted || !strstr(sw_error_message(), named)) {
        fail_msg("wanted %d with '%s', found %d: %s", wanted, named, st, sw_error_message());
    }
}

/* A bare u16 file with the ids 0, 1, .. n-1. */
static const char *counting_shard(int slot, const char *name, int n)
{
    unsigned char bytes[4096];
    for (int i = 0; i < n; ++i) {
        bytes[2 * i] = (unsigned char)i;
        bytes[2 * i + 1] = (unsigned char)(i >> 8);
    }
    return sw_test_write(slot, name, bytes, (size_t)n * 2);
}

static void windows_and_labels(void **state)
{
    (void)state;
    const char *path = counting_shard(0, "count.bin", 3 * T + 1);
    const struct sw_dataset_options options = {
        .files = &path, .n_files = 1, .vocab_size = 1000, .seq_len = T, .seed = 3};
    struct sw_dataset *dataset = dataset_of(&options);
    int32_t ids[3 * T], labels[3 * T], mask[3 * T];
    bool seen[3] = {false};
    assert_int_equal(sw_dataset_n_samples(dataset, SW_SPLIT_TRAIN), 3);
    assert_int_equal(sw_dataset_n_samples(dataset, SW_SPLIT_VAL), 0);
    assert_int_equal(sw_dataset_n_tokens(dataset), 3 * T + 1);
    assert_int_equal(sw_dataset_fetch(dataset, SW_SPLIT_TRAIN, 0, 3, ids, labels, mask), SW_OK);
    for (int row = 0; row < 3; ++row) {
        const int first = ids[row * T];
        assert_int_equal(first % T, 0);
        assert_false(seen[first / T]);
        seen[first / T] = true;
        for (int t = 0; t < T; ++t) {
            assert_int_equal(ids[row * T + t], first + t);
            assert_int_equal(labels[row * T + t], first + t + 1);
            assert_int_equal(mask[row * T + t], 1);
        }
    }
    sw_dataset_close(dataset);
}

/* Any cut of the numbering into calls gives the same rows, in all epochs; two opens agree. */
static void numbering_is_independent_of_calls(void **state)
{
    (void)state;
    const char *path = counting_shard(0, "count.bin", 20 * T + 5);
    const struct sw_dataset_options options = {
        .files = &path, .n_files = 1, .vocab_size = 1000, .seq_len = T, .seed = 11};
    struct sw_dataset *dataset = dataset_of(&options), *other = dataset_of(&options);
    static int32_t all[100 * T], labels[100 * T], some[7 * T];
    int n_moved = 0;
    assert_int_equal(sw_dataset_fetch(dataset, SW_SPLIT_TRAIN, 0, 100, all, labels, NULL), SW_OK);
    for (int64_t first = 93; first >= 0; first -= 3) {
        assert_int_equal(sw_dataset_fetch(other, SW_SPLIT_TRAIN, first, 7, some, labels, NULL),
                         SW_OK);
        assert_memory_equal(some, all + first * T, sizeof(some));
    }
    for (int epoch = 0; epoch < 5; ++epoch) {
        int sum = 0;
        for (int i = 0; i < 20; ++i) {
            sum += all[(epoch * 20 + i) * T] / T;
            n_moved += all[(epoch * 20 + i) * T] != all[i * T];
        }
        assert_int_equal(sum, 190); /* 0 + 1 + .. + 19 */
    }
    assert_true(n_moved > 40); /* of 80 in the later epochs */
    sw_dataset_close(dataset);
    sw_dataset_close(other);
}

static void validation_is_the_end_of_the_stream(void **state)
{
    (void)state;
    const char *path = counting_shard(0, "count.bin", 20 * T + 1);
    const struct sw_dataset_options options = {.files = &path,
                                               .n_files = 1,
                                               .val_fraction = SW_VAL_FRACTION,
                                               .vocab_size = 1000,
                                               .seq_len = T};
    struct sw_dataset *dataset = dataset_of(&options);
    int32_t ids[3 * T], labels[3 * T], mask[3 * T];
    assert_int_equal(sw_dataset_n_samples(dataset, SW_SPLIT_TRAIN), 18);
    assert_int_equal(sw_dataset_n_samples(dataset, SW_SPLIT_VAL), 2);
    for (int64_t i = 0; i < 18; ++i) {
        assert_int_equal(sw_dataset_fetch(dataset, SW_SPLIT_TRAIN, i, 1, ids, labels, NULL), SW_OK);
        assert_true(ids[0] < 18 * T);
    }
    assert_int_equal(sw_dataset_fetch(dataset, SW_SPLIT_VAL, 0, 3, ids, labels, mask), SW_OK);
    assert_int_equal(ids[0], 18 * T);
    assert_int_equal(ids[T], 19 * T);
    for (int t = 0; t < T; ++t) { /* past the end: a row without a target */
        assert_int_equal(labels[2 * T + t], SW_IGNORED_LABEL);
        assert_int_equal(mask[2 * T + t], 1);
    }
    sw_dataset_close(dataset);
}

static void shards_are_one_stream(void **state)
{
    (void)state;
    unsigned char wide[1024 + 4 * 3] = {0};
    const uint32_t header[] = {20240801, 7, 3}, tokens[] = {70000, 70001, 70002};
    memcpy(wide, header, sizeof(header)); /* the machines of these tests are little-endian */
    memcpy(wide + 1024, tokens, sizeof(tokens));
    unsigned char narrow[1024 + 2 * 2] = {0};
    const uint32_t narrow_header[] = {20240520, 1, 2};
    const uint16_t narrow_tokens[] = {500, 501};
    memcpy(narrow, narrow_header, sizeof(narrow_header));
    memcpy(narrow + 1024, narrow_tokens, sizeof(narrow_tokens));
    const char *paths[] = {counting_shard(0, "a.bin", 2),
                           sw_test_write(1, "b.bin", wide, sizeof(wide)),
                           sw_test_write(2, "c.bin", narrow, sizeof(narrow))};
    struct sw_dataset_options options = {
        .files = paths, .n_files = 3, .vocab_size = 80000, .seq_len = 6};
    struct sw_dataset *dataset = dataset_of(&options);
    int32_t ids[6], labels[6];
    assert_int_equal(sw_dataset_fetch(dataset, SW_SPLIT_TRAIN, 0, 1, ids, labels, NULL), SW_OK);
    assert_memory_equal(ids, ((int32_t[]){0, 1, 70000, 70001, 70002, 500}), sizeof(ids));
    assert_memory_equal(labels, ((int32_t[]){1, 70000, 70001, 70002, 500, 501}), sizeof(labels));
    sw_dataset_close(dataset);
    options.vocab_size = 70002;
    check_refused(&options, SW_E_FORMAT, "b.bin: token 2 has the id 70002");
}

/* A mapped file would raise SIGBUS here. */
static void a_shard_that_becomes_shorter_is_an_error(void **state)
{
    (void)state;
    enum { N = 40000 };
    unsigned char *bytes = calloc(N, 2);
    assert_non_null(bytes);
    const char *path = sw_test_write(0, "shrinks.bin", bytes, (size_t)N * 2);
    free(bytes);
    const struct sw_dataset_options options = {
        .files = &path, .n_files = 1, .vocab_size = 10, .seq_len = T};
    struct sw_dataset *dataset = dataset_of(&options);
    int32_t ids[T], labels[T];
    int n_errors = 0;
    assert_int_equal(sw_dataset_fetch(dataset, SW_SPLIT_TRAIN, 0, 1, ids, labels, NULL), SW_OK);
    assert_int_equal(truncate(path, 100), 0);
    for (int64_t i = 0; i < 100; ++i) {
        const sw_status st = sw_dataset_fetch(dataset, SW_SPLIT_TRAIN, i, 1, ids, labels, NULL);
        if (st < 0) {
            n_errors++;
            assert_int_equal(st, SW_E_IO);
            assert_non_null(strstr(sw_error_message(), path));
            assert_non_null(strstr(sw_error_message(), "became shorter"));
        }
    }
    assert_true(n_errors > 90);
    sw_dataset_close(dataset);
}

/* Shards without a permanent descriptor are opened for each read, and must still be the same
 * file. */
static void more_shards_than_descriptors(void **state)
{
    (void)state;
    enum { N = 100 };
    char *paths[N];
    for (int i = 0; i < N; ++i) {
        char name[32];
        const uint16_t id = (uint16_t)i;
        snprintf(name, sizeof(name), "many%d.bin", i);
        paths[i] = sw_strdup("test", sw_test_write(0, name, &id, sizeof(id)));
        assert_non_null(paths[i]);
    }
    const struct sw_dataset_options options = {
        .files = (const char *const *)paths, .n_files = N, .vocab_size = N, .seq_len = N - 1};
    struct sw_dataset *dataset = dataset_of(&options);
    int32_t ids[N], labels[N];
    assert_int_equal(sw_dataset_fetch(dataset, SW_SPLIT_TRAIN, 0, 1, ids, labels, NULL), SW_OK);
    for (int i = 0; i < N - 1; ++i) {
        assert_int_equal(ids[i], i);
        assert_int_equal(labels[i], i + 1);
    }
    const uint16_t other = 1;
    char beside[1024];
    snprintf(beside, sizeof(beside), "%s", sw_test_write(0, "beside.bin", &other, sizeof(other)));
    assert_int_equal(rename(beside, paths[N - 1]), 0);
    assert_int_equal(sw_dataset_fetch(dataset, SW_SPLIT_TRAIN, 0, 1, ids, labels, NULL), SW_E_IO);
    assert_non_null(strstr(sw_error_message(), "many99.bin is another file"));
    sw_dataset_close(dataset);
    for (int i = 0; i < N; ++i) {
        sw_free(paths[i]);
    }
}

static void what_is_no_file_is_refused_at_once(void **state)
{
    (void)state;
    static const char *const names[] = {"fifo.bin", "fifo.txt", "fifo.jsonl"};
    struct sw_tokenizer *tokenizer;
    assert_int_equal(sw_tokenizer_open_chars("letters", "abc", 3, &tokenizer), SW_OK);
    alarm(20); /* waiting for a writer would never end */
    for (size_t i = 0; i < SW_LEN(names); ++i) {
        const char *path = sw_test_write_text(0, names[i], "");
        const struct sw_dataset_options options = {
            .files = &path, .n_files = 1, .tokenizer = tokenizer, .seq_len = T};
        assert_int_equal(unlink(path), 0);
        assert_int_equal(mkfifo(path, 0600), 0);
        check_refused(&options, SW_E_IO, names[i]);
        check_refused(&options, SW_E_IO, "not a regular file");
        struct sw_tokenizer *none;
        assert_int_equal(sw_tokenizer_open(path, NULL, &none), SW_E_IO);
    }
    alarm(0);
    sw_tokenizer_close(tokenizer);
}

/* The file is read in blocks of 64 KiB. */
static void json_lines_across_blocks(void **state)
{
    (void)state;
    enum { N = 5000 };
    struct sw_str text = {0};
    sw_str_puts(&text, "\xEF\xBB\xBF");
    for (int i = 0; i < N; ++i) {
        sw_str_printf(&text, "{\"text\":\"%.*s\"}%s", i % 97,
                      "abcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabc"
                      "abcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabcabc",
                      i + 1 < N ? "\n" : "");
    }
    const char *path = sw_test_write(0, "blocks.jsonl", text.ptr, text.len);
    struct sw_tokenizer *tokenizer;
    assert_int_equal(sw_tokenizer_open_chars("letters", "abc", 3, &tokenizer), SW_OK);
    struct sw_dataset_options options = {
        .files = &path, .n_files = 1, .tokenizer = tokenizer, .seq_len = T};
    struct sw_dataset *dataset = dataset_of(&options);
    int64_t n = 0;
    for (int i = 0; i < N; ++i) {
        n += i % 97;
    }
    assert_int_equal(sw_dataset_n_tokens(dataset), n);
    sw_dataset_close(dataset);
    sw_str_puts(&text, "\n{\"text\":7}");
    sw_test_write(0, "blocks.jsonl", text.ptr, text.len);
    check_refused(&options, SW_E_FORMAT, "blocks.jsonl line 5001");
    sw_test_write_text(0, "blocks.jsonl", "\xEF\xBB\xBF");
    check_refused(&options, SW_E_FORMAT, "blocks.jsonl: the file is empty");
    sw_tokenizer_close(tokenizer);
    sw_str_fini(&text);
}

static void damaged_shards(void **state)
{
    (void)state;
    uint32_t words[256 + 2] = {20240520, 1, 5};
    const char *path = sw_test_write(0, "bad.bin", words, sizeof(words));
    struct sw_dataset_options options = {
        .files = &path, .n_files = 1, .vocab_size = 100, .seq_len = 1};
    check_refused(&options, SW_E_FORMAT, "bad.bin: 8 bytes after the header, wanted 5 tokens of 2");
    words[1] = 9;
    sw_test_write(0, "bad.bin", words, sizeof(words));
    check_refused(&options, SW_E_FORMAT, "version 9");
    words[0] = 20240522;
    sw_test_write(0, "bad.bin", words, sizeof(words));
    check_refused(&options, SW_E_FORMAT, "multiple-choice");
    sw_test_write(0, "bad.bin", "abc", 3);
    check_refused(&options, SW_E_FORMAT, "3 bytes");
    sw_test_write(0, "bad.bin", "", 0);
    check_refused(&options, SW_E_FORMAT, "the file is empty");
}

static struct sw_tokenizer *letters(void)
{
    struct sw_tokenizer *tokenizer;
    assert_int_equal(
        sw_tokenizer_open_chars("letters", "abcdefghijklmnopqrstuvwxyz \n", 28, &tokenizer), SW_OK);
    return tokenizer;
}

/* ---- the tokenizer's template around a text ---- */

#define BOS "{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}}"
#define EOS "{\"SpecialToken\":{\"id\":\"</s>\",\"type_id\":0}}"
#define A "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}"
#define B "{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}"

/* <s> is 0, </s> 1, a to c are 2 to 4. */
static struct sw_tokenizer *templated(const char *single, const char *pair, bool no_bos)
{
    struct sw_str text = {0};
    struct sw_tokenizer *tokenizer = NULL;
    const struct sw_tokenizer_options options = {.no_bos = no_bos};
    sw_str_printf(&text,
                  "{\"version\":\"1.0\",\"added_tokens\":[],\"normalizer\":null,"
                  "\"pre_tokenizer\":null,\"decoder\":null,\"post_processor\":{\"type\":"
                  "\"TemplateProcessing\",\"single\":[%s],\"pair\":[%s],\"special_tokens\":{"
                  "\"<s>\":{\"id\":\"<s>\",\"ids\":[0],\"tokens\":[\"<s>\"]},\"</s>\":{\"id\":"
                  "\"</s>\",\"ids\":[1],\"tokens\":[\"</s>\"]}}},\"model\":{\"type\":\"BPE\","
                  "\"vocab\":{\"<s>\":0,\"</s>\":1,\"a\":2,\"b\":3,\"c\":4},\"merges\":[]}}",
                  single, pair);
    const char *path = sw_test_write(0, "template.json", text.ptr, text.len);
    if (sw_tokenizer_open(path, &options, &tokenizer) < 0) {
        fail_msg("%s", sw_error_message());
    }
    sw_str_fini(&text);
    return tokenizer;
}

/* Checks all inputs of the validation rows and the last label of each, without padding. */
static void check_rows(struct sw_tokenizer *tokenizer, const char *path, bool packing, int seq_len,
                       const char *wanted)
{
    struct sw_str found = {0};
    int32_t ids[16], labels[16], mask[16];
    const struct sw_dataset_options options = {.files = &path,
                                               .n_files = 1,
                                               .val_files = &path,
                                               .n_val_files = 1,
                                               .tokenizer = tokenizer,
                                               .packing = packing,
                                               .seq_len = seq_len};
    struct sw_dataset *dataset = dataset_of(&options);
    const int64_t n = sw_dataset_n_samples(dataset, SW_SPLIT_VAL);
    assert_true(sw_dataset_is_templated(dataset));
    for (int64_t row = 0; row < n; ++row) {
        assert_int_equal(sw_dataset_fetch(dataset, SW_SPLIT_VAL, row, 1, ids, labels, mask), SW_OK);
        for (int t = 0; t < seq_len && mask[t]; ++t) {
            sw_str_printf(&found, "%d>%d ", ids[t], labels[t]);
        }
        sw_str_puts(&found, "| ");
    }
    assert_string_equal(sw_str_text(&found), wanted);
    sw_str_fini(&found);
    sw_dataset_close(dataset);
}

/* Texts, prompts and packed documents begin, and end once, as the template says. */
static void documents_stand_in_the_template(void **state)
{
    (void)state;
    static const struct {
        const char *single, *pair;
        bool no_bos;
        int n; /* tokens of the stream, minus one */
        const char *stream, *row, *packed, *two;
    } cases[] = {
        {A, A "," B, false, 6, "2>3 3>1 1>4 4>1 1>3 3>2 | ", "2>-100 3>4 4>1 | ",
         "2>3 3>1 3>2 2>1 4>1 | ", "2 3"},
        {BOS "," A, BOS "," A "," BOS "," B, false, 9, "0>2 2>3 3>1 1>0 0>4 4>1 1>0 0>3 3>2 | ",
         "0>-100 2>-100 3>4 4>1 | ", "0>2 2>3 3>1 0>3 3>2 2>1 0>4 4>1 | ", "0 2 0 3"},
        {BOS "," A "," EOS, BOS "," A "," EOS "," BOS "," B "," EOS, false, 10,
         "0>2 2>3 3>1 1>0 0>4 4>1 1>0 0>3 3>2 2>1 | ", "0>-100 2>-100 3>4 4>1 | ",
         "0>2 2>3 3>1 0>3 3>2 2>1 0>4 4>1 | ", "0 2 1 0 3 1"},
        {BOS "," A, BOS "," A "," BOS "," B, true, 6, "2>3 3>1 1>4 4>1 1>3 3>2 | ",
         "2>-100 3>4 4>1 | ", "2>3 3>1 3>2 2>1 4>1 | ", "2 3"},
        {BOS "," A "," EOS, BOS "," A "," EOS "," BOS "," B "," EOS, true, 7,
         "2>3 3>1 1>4 4>1 1>3 3>2 2>1 | ", "2>-100 3>4 4>1 | ", "2>3 3>1 3>2 2>1 4>1 | ",
         "2 1 3 1"},
        {EOS "," A "," EOS, EOS "," A "," EOS "," B "," EOS, true, 7,
         "2>3 3>1 1>4 4>1 1>3 3>2 2>1 | ", "2>-100 3>4 4>1 | ", "2>3 3>1 3>2 2>1 4>1 | ", "2 3 1"},
    };
    const char *texts = sw_test_write_text(
        1, "template.jsonl", "{\"text\":\"ab\"}\n{\"text\":\"c\"}\n{\"text\":\"ba\"}\n");
    const char *pairs =
        sw_test_write_text(2, "pairs.jsonl", "{\"prompt\":\"ab\",\"completion\":\"c\"}\n");
    for (size_t i = 0; i < SW_LEN(cases); ++i) {
        struct sw_ids ids = {0};
        struct sw_str two = {0};
        struct sw_tokenizer *tokenizer = templated(cases[i].single, cases[i].pair, cases[i].no_bos);
        check_rows(tokenizer, texts, false, cases[i].n, cases[i].stream);
        check_rows(tokenizer, pairs, false, T, cases[i].row);
        check_rows(tokenizer, texts, true, 2 * T, cases[i].packed);
        assert_int_equal(sw_tokenizer_encode_pair(tokenizer, "a", 1, "b", 1, true, &ids, NULL),
                         SW_OK);
        for (int64_t k = 0; k < ids.len; ++k) {
            sw_str_printf(&two, "%s%d", k ? " " : "", ids.ptr[k]);
        }
        assert_string_equal(sw_str_text(&two), cases[i].two);
        sw_str_fini(&two);
        sw_ids_fini(&ids);
        sw_tokenizer_close(tokenizer);
    }
}

static void text_by_characters(void **state)
{
    (void)state;
    const char *path = sw_test_write_text(0, "text.txt",
                                          "\xEF\xBB\xBF"
                                          "abcdefgh");
    struct sw_tokenizer *tokenizer = letters();
    struct sw_dataset_options options = {
        .files = &path, .n_files = 1, .tokenizer = tokenizer, .seq_len = 7};
    struct sw_dataset *dataset = dataset_of(&options);
    int32_t ids[7], labels[7];
    assert_int_equal(sw_dataset_n_tokens(dataset), 8);
    assert_int_equal(sw_dataset_fetch(dataset, SW_SPLIT_TRAIN, 0, 1, ids, labels, NULL), SW_OK);
    assert_memory_equal(ids, ((int32_t[]){2, 3, 4, 5, 6, 7, 8}), sizeof(ids)); /* \n, space, a.. */
    assert_memory_equal(labels, ((int32_t[]){3, 4, 5, 6, 7, 8, 9}), sizeof(labels));
    sw_dataset_close(dataset);
    options.seq_len = 8;
    check_refused(&options, SW_E_CONFIG, "text.txt: 8 tokens, wanted at least 9");
    options.seq_len = 7;
    options.vocab_size = 5;
    check_refused(&options, SW_E_FORMAT, "wanted below the vocabulary's 5");
    options.vocab_size = 0;
    sw_test_write_text(0, "text.txt", "ab\xC3\xA9");
    check_refused(&options, SW_E_FORMAT, "U+00E9 at offset 2");
    sw_test_write_text(0, "text.txt", "ab\xFF");
    check_refused(&options, SW_E_FORMAT, "offset 2 is not UTF-8");
    sw_test_write_text(0, "text.txt", "");
    check_refused(&options, SW_E_FORMAT, "text.txt: the file is empty");
    options.tokenizer = NULL;
    options.vocab_size = 100;
    check_refused(&options, SW_E_CONFIG, "needs a tokenizer");
    sw_tokenizer_close(tokenizer);
}

static void json_lines(void **state)
{
    (void)state;
    const char *path =
        sw_test_write_text(0, "text.jsonl", "{\"text\":\"abc\"}\n\n{\"text\":\"def\",\"n\":1}\n");
    struct sw_tokenizer *tokenizer = letters();
    const struct sw_dataset_options options = {
        .files = &path, .n_files = 1, .tokenizer = tokenizer, .seq_len = 5};
    struct sw_dataset *dataset = dataset_of(&options);
    int32_t ids[5], labels[5];
    assert_int_equal(sw_dataset_fetch(dataset, SW_SPLIT_TRAIN, 0, 1, ids, labels, NULL), SW_OK);
    assert_memory_equal(ids, ((int32_t[]){2, 3, 4, 5, 6}), sizeof(ids));
    sw_dataset_close(dataset);
    sw_test_write_text(0, "text.jsonl", "{\"text\":\"abc\"}\n{\"label\":1}\n");
    check_refused(&options, SW_E_FORMAT, "text.jsonl line 2");
    sw_test_write_text(0, "text.jsonl", "{\"text\":\"abc\"}\n{\"text\":7}\n");
    check_refused(&options, SW_E_FORMAT, "text.jsonl line 2");
    sw_test_write_text(0, "text.jsonl", "{\"text\":\"abc\"}\n{\"text\":\n");
    check_refused(&options, SW_E_FORMAT, "text.jsonl line 2");
    sw_test_write_text(0, "text.jsonl",
                       "{\"text\":\"abc\"}\n{\"prompt\":\"a\",\"completion\":\"b\"}\n");
    check_refused(&options, SW_E_CONFIG, "text.jsonl line 2");
    sw_tokenizer_close(tokenizer);
}

static int n_warnings;
static void count_warnings(void *ctx, enum sw_log_level level, const char *text)
{
    (void)ctx;
    n_warnings +=
        level == SW_LOG_WARN && strstr(text, "of 4 examples 1 are cut at 4 tokens and 1 ");
}

static int n_merged;
static void count_merged(void *ctx, enum sw_log_level level, const char *text)
{
    (void)ctx;
    n_merged += level == SW_LOG_WARN &&
                strstr(text, "in 1 of 3 examples the prompt has other tokens alone") != NULL;
}

/* As SFTTrainer of TRL 1.16 does: prompt and completion are one text, and the completion begins
 * where its tokens differ from those of the prompt alone. */
static void a_completion_continues_the_text_of_its_prompt(void **state)
{
    (void)state;
    struct sw_tokenizer *tokenizer;
    const char *words = sw_test_write_text(
        0, "joined.json",
        "{\"version\":\"1.0\",\"pre_tokenizer\":{\"type\":\"Metaspace\","
        "\"prepend_scheme\":\"first\"},"
        "\"model\":{\"type\":\"BPE\",\"vocab\":{\"</s>\":0,\"\u2581\":1,\"a\":2,\"b\":3,\"c\":4,"
        "\"bc\":5},\"merges\":[\"b c\"]}}");
    const char *path = sw_test_write_text(1, "joined.jsonl",
                                          "{\"prompt\":\"a\",\"completion\":\"c\"}\n"
                                          "{\"prompt\":\"ab\",\"completion\":\"ca\"}\n"
                                          "{\"prompt\":\"b\",\"completion\":\" bc\"}\n");
    assert_int_equal(sw_tokenizer_open(words, NULL, &tokenizer), SW_OK);
    n_merged = 0;
    sw_log_set_sink(count_merged, NULL);
    check_rows(tokenizer, path, false, 6,
               "1>-100 2>4 4>0 | 1>-100 2>5 5>2 2>0 | 1>-100 3>1 1>5 5>0 | ");
    sw_log_set_sink(NULL, NULL);
    assert_int_equal(n_merged, 2); /* once for each set of files */
    sw_tokenizer_close(tokenizer);
}

/* As SFTTrainer of TRL does: a completion that ends with the end-of-text token gets no second one.
 * One in the prompt does not count. */
static void a_completion_with_an_end_gets_no_other(void **state)
{
    (void)state;
    struct sw_tokenizer *tokenizer;
    const char *words = sw_test_write_text(
        0, "ends.json",
        "{\"version\":\"1.0\",\"added_tokens\":[{\"id\":0,\"content\":\"</s>\",\"special\":true}],"
        "\"model\":{\"type\":\"BPE\",\"vocab\":{\"</s>\":0,\"a\":1,\"b\":2},\"merges\":[]}}");
    const char *path = sw_test_write_text(1, "ends.jsonl",
                                          "{\"prompt\":\"a\",\"completion\":\"b\"}\n"
                                          "{\"prompt\":\"a\",\"completion\":\"b</s>\"}\n"
                                          "{\"prompt\":\"b\",\"completion\":\"</s>\"}\n"
                                          "{\"prompt\":\"a</s>\",\"completion\":\"\"}\n"
                                          "{\"prompt\":\"a\",\"completion\":\"</s>b\"}\n");
    assert_int_equal(sw_tokenizer_open(words, NULL, &tokenizer), SW_OK);
    check_rows(tokenizer, path, false, 6, "1>2 2>0 | 1>2 2>0 | 2>0 | 1>-100 0>0 | 1>0 0>2 2>0 | ");
    sw_tokenizer_close(tokenizer);
}

static void prompts_and_completions(void **state)
{
    (void)state;
    const int32_t none = SW_IGNORED_LABEL;
    const char *path = sw_test_write_text(0, "pairs.jsonl",
                                          "{\"prompt\":\"ab\",\"completion\":\"cd\"}\n"
                                          "{\"prompt\":\"a\",\"completion\":\"bcdefgh\"}\n"
                                          "{\"prompt\":\"abcdefgh\",\"completion\":\"x\"}\n"
                                          "{\"prompt\":\"\",\"completion\":\"xy\"}\n");
    struct sw_tokenizer *tokenizer = letters();
    const struct sw_dataset_options options = {.files = &path,
                                               .n_files = 1,
                                               .val_files = &path,
                                               .n_val_files = 1,
                                               .tokenizer = tokenizer,
                                               .seq_len = 4};
    sw_log_set_sink(count_warnings, NULL);
    struct sw_dataset *dataset = dataset_of(&options);
    sw_log_set_sink(NULL, NULL);
    assert_int_equal(n_warnings, 2); /* once for each set of files */
    int32_t ids[12], labels[12], mask[12];
    assert_int_equal(sw_dataset_n_samples(dataset, SW_SPLIT_VAL), 3);
    assert_int_equal(sw_dataset_fetch(dataset, SW_SPLIT_VAL, 0, 3, ids, labels, mask), SW_OK);
    assert_memory_equal(ids, ((int32_t[]){2, 3, 4, 0, 2, 3, 4, 5, 25, 0, 0, 0}), sizeof(ids));
    assert_memory_equal(labels, ((int32_t[]){none, 4, 5, none, 3, 4, 5, 6, 26, none, none, none}),
                        sizeof(labels));
    assert_memory_equal(mask, ((int32_t[]){1, 1, 1, 0, 1, 1, 1, 1, 1, 0, 0, 0}), sizeof(mask));
    sw_dataset_close(dataset);
    sw_tokenizer_close(tokenizer);
}

static void globs_and_missing_files(void **state)
{
    (void)state;
    counting_shard(0, "g2.bin", 4);
    counting_shard(1, "g1.bin", 2);
    char pattern[256];
    snprintf(pattern, sizeof(pattern), "%s/g*.bin", test_folder());
    const char *path = pattern;
    const struct sw_dataset_options options = {
        .files = &path, .n_files = 1, .vocab_size = 10, .seq_len = 5};
    struct sw_dataset *dataset = dataset_of(&options);
    int32_t ids[5], labels[5];
    assert_int_equal(sw_dataset_fetch(dataset, SW_SPLIT_TRAIN, 0, 1, ids, labels, NULL), SW_OK);
    assert_memory_equal(ids, ((int32_t[]){0, 1, 0, 1, 2}), sizeof(ids)); /* sorted */
    sw_dataset_close(dataset);
    path = "no/such*.bin";
    check_refused(&options, SW_E_IO, "no/such*.bin");
    path = "no/such.bin";
    check_refused(&options, SW_E_IO, "no/such.bin");
}

static void characters_of_all_files(void **state)
{
    (void)state;
    struct sw_tokenizer *tokenizer;
    const char *files[] = {
        sw_test_write_text(1, "v.txt", "ba"),
        sw_test_write_text(2, "v.jsonl", "{\"prompt\":\"c\",\"completion\":\"d\"}")};
    assert_int_equal(sw_tokenizer_open_chars_of(files, 2, false, &tokenizer), SW_OK);
    assert_int_equal(sw_tokenizer_vocab_size(tokenizer), 4);
    sw_tokenizer_close(tokenizer);
}

/* Structured files are detected by name, or by start and end. Text that only resembles JSON is
 * text. */
static void structured_files_are_no_text(void **state)
{
    static const struct {
        const char *name, *content, *says; /* NULL: it is text */
    } cases[] = {
        {"a.json", "[\"one\", \"two\"]", "by its name it is JSON"},
        {"a.csv", "a,b\n1,2\n", "by its name it is a table"},
        {"a.PARQUET", "PAR1..", "it is Parquet, given as text: convert it: python3 -c"},
        {"a.html", "<p>text</p>", "markup"},
        {"a.docx", "PK..", "save it as plain text"},
        {"a.jsonl.gz", "\x1f\x8b..", "unpack it"},
        {"a.safetensors", "........", "no text"},
        {"a.txt", "[{\"text\": \"one\"}]", "it looks like JSON"},
        {"b.txt", "\xEF\xBB\xBF \n[ [1, 2], [3] ]\n", "it looks like JSON"},
        {"c.txt", "{\"text\": \"one\"}\n{\"text\": \"two\"}", "it looks like JSON"},
        {"d.txt", "[Illustration] and text", NULL},
        {"e.txt", "[Illustration]", NULL},
        {"f.txt", "{braces} and text}", NULL},
        {"g.txt", "[\"quoted\" words]. And more", NULL},
        {"csv", "a name without an ending", NULL},
        {"h.txt", "[]", NULL},
        {"i.txt", "[", NULL},
    };
    (void)state;
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        struct sw_tokenizer *tokenizer = NULL;
        const char *path = sw_test_write_text(0, cases[i].name, cases[i].content);
        for (int as_text = 0; as_text < 2; as_text++) {
            const char *says = as_text ? NULL : cases[i].says;
            const sw_status st = sw_tokenizer_open_chars_of(&path, 1, as_text, &tokenizer);
            const bool is_utf8 = !strstr(cases[i].content, "\x8b");
            if (says ? st != SW_E_FORMAT || !strstr(sw_error_message(), says)
                     : (st == SW_OK) != is_utf8) {
                fail_msg("%s: %d %s", cases[i].name, st, st < 0 ? sw_error_message() : "");
            }
            if (st >= 0) {
                sw_tokenizer_close(tokenizer);
            }
        }
    }
}

static void failing_allocations(void **state)
{
    (void)state;
    const char *path =
        sw_test_write_text(0, "f.jsonl", "{\"text\":\"abc\"}\n{\"text\":\"defgh\"}\n");
    struct sw_tokenizer *tokenizer = letters();
    const struct sw_dataset_options options = {
        .files = &path, .n_files = 1, .tokenizer = tokenizer, .seq_len = 3};
    struct sw_alloc_stats before, after;
    sw_status st = SW_E_NOMEM;
    sw_alloc_get_stats(&before);
    for (int64_t n = 1; st != SW_OK; ++n) {
        struct sw_dataset *dataset = NULL;
        sw_alloc_fail_nth(n);
        st = sw_dataset_open(&options, &dataset);
        sw_alloc_fail_nth(0);
        sw_dataset_close(dataset);
        sw_alloc_get_stats(&after);
        if (st != SW_OK && st != SW_E_NOMEM) {
            fail_msg("allocation %lld: %s", (long long)n, sw_error_message());
        }
        assert_int_equal(after.live_blocks, before.live_blocks);
    }
    sw_tokenizer_close(tokenizer);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(windows_and_labels),
    cmocka_unit_test(numbering_is_independent_of_calls),
    cmocka_unit_test(validation_is_the_end_of_the_stream),
    cmocka_unit_test(shards_are_one_stream),
    cmocka_unit_test(a_shard_that_becomes_shorter_is_an_error),
    cmocka_unit_test(more_shards_than_descriptors),
    cmocka_unit_test(what_is_no_file_is_refused_at_once),
    cmocka_unit_test(json_lines_across_blocks),
    cmocka_unit_test(damaged_shards),
    cmocka_unit_test(documents_stand_in_the_template),
    cmocka_unit_test(text_by_characters),
    cmocka_unit_test(json_lines),
    cmocka_unit_test(a_completion_continues_the_text_of_its_prompt),
    cmocka_unit_test(a_completion_with_an_end_gets_no_other),
    cmocka_unit_test(prompts_and_completions),
    cmocka_unit_test(globs_and_missing_files),
    cmocka_unit_test(characters_of_all_files),
    cmocka_unit_test(structured_files_are_no_text),
    cmocka_unit_test(failing_allocations),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
