// SPDX-License-Identifier: Apache-2.0
// Conversations as data: which rows they become, that a file is of one kind, and packed rows.
#include "data/data.h"

#include "support/chat_tokenizer.h"
#include "support/files.h"
#include "support/scratch.h"
#include "support/test.h"

static sw_tokenizer *tokenizer;

static sw_chat *open_chat(void)
{
    sw_chat *chat = NULL;
    const struct sw_chat_options options = {.folder = test_folder(), .tokenizer = tokenizer};
    if (sw_chat_open(&options, &chat) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return chat;
}

#define Q "{\"role\":\"user\",\"content\":\"q\"}"
#define A "{\"role\":\"assistant\",\"content\":\"a\"}"

static void rows_are_cut_at_the_end_or_left_out(void **state)
{
    (void)state;
    sw_dataset *dataset = NULL;
    sw_chat *chat = open_chat();
    const char *file = sw_test_write_text(
        2, "chats.jsonl",
        "{\"messages\":[" Q "," A "]}\n"
        "{\"messages\":[" Q ",{\"role\":\"assistant\",\"content\":\"a long answer\"}]}\n"
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a question that is long\"}," A "]}\n"
        "{\"messages\":[" Q "]}\n");
    const struct sw_dataset_options options = {
        .files = &file, .n_files = 1, .tokenizer = tokenizer, .seq_len = 24, .chat = chat};
    enum { T = 24 };
    int32_t ids[2 * T], labels[2 * T];
    assert_int_equal(sw_dataset_open(&options, &dataset), SW_OK);
    assert_int_equal(sw_dataset_n_samples(dataset, SW_SPLIT_TRAIN), 2);
    assert_int_equal(sw_dataset_n_cut(dataset, SW_SPLIT_TRAIN), 1);
    assert_int_equal(sw_dataset_n_dropped(dataset, SW_SPLIT_TRAIN), 2);
    assert_int_equal(sw_dataset_fetch(dataset, SW_SPLIT_TRAIN, 0, 2, ids, labels, NULL), SW_OK);
    for (int row = 0; row < 2; ++row) { /* shuffled; "<user\nq>\n<assistant\n" has 20 tokens */
        const bool is_short = ids[row * T + 23] == sw_tokenizer_pad(tokenizer);
        for (int t = 0; t < T; ++t) {
            const bool wanted = t >= 19 && t < (is_short ? 21 : T);
            assert_int_equal(labels[row * T + t] != SW_IGNORED_LABEL, wanted);
        }
    }
    sw_dataset_close(dataset);
    sw_chat_close(chat);
}

/* A label has the weight of its answer; fetching without weights is refused. */
static void rows_have_weights_of_their_answers(void **state)
{
    (void)state;
    enum { T = 48 };
    sw_dataset *dataset = NULL;
    sw_chat *chat = open_chat();
    bool found;
    const char *file =
        sw_test_write_text(2, "weighted.jsonl",
                           "{\"messages\":[" Q "," A "," Q
                           ",{\"role\":\"assistant\",\"content\":\"a\",\"weight\":0.5}]}\n");
    const char *plain = sw_test_write_text(
        3, "plain.jsonl",
        "{\"messages\":[" Q ",{\"role\":\"assistant\",\"content\":\"a\",\"weight\":0}," Q "," A
        "]}\n{\"messages\":[{\"role\":\"user\",\"content\":\"q\",\"weight\":0.5}," A "]}\n");
    const struct sw_dataset_options options = {
        .files = &file, .n_files = 1, .tokenizer = tokenizer, .seq_len = T, .chat = chat};
    int32_t ids[T], labels[T], n_whole = 0, n_half = 0;
    float weights[T];
    const struct sw_row_input rows[] = {
        {"input_ids", ids}, {"labels", labels}, {"weights", weights}};
    assert_int_equal(sw_data_has_weights(&plain, 1, &found), SW_OK);
    assert_false(found);
    assert_int_equal(sw_data_has_weights(&file, 1, &found), SW_OK);
    assert_true(found);
    assert_int_equal(sw_dataset_open(&options, &dataset), SW_OK);
    assert_int_equal(sw_dataset_fetch_inputs(dataset, SW_SPLIT_TRAIN, 0, 1, rows, 3), SW_OK);
    for (int t = 0; t < T; ++t) {
        assert_int_equal(labels[t] != SW_IGNORED_LABEL, weights[t] > 0);
        n_half += weights[t] == 0.5f;
        n_whole += weights[t] == 1;
    }
    assert_int_equal(n_whole, 2); /* a letter and the end */
    assert_int_equal(n_half, 2);
    assert_int_equal(sw_dataset_fetch(dataset, SW_SPLIT_TRAIN, 0, 1, ids, labels, NULL),
                     SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "spillway.token_weights"));
    sw_dataset_close(dataset);
    sw_chat_close(chat);
}

static void expect_data(const char *text, sw_chat *chat, enum sw_data_kind kind, const char *wanted)
{
    sw_dataset *dataset = NULL;
    enum sw_data_kind found;
    const char *file = sw_test_write_text(2, "data.jsonl", text);
    const struct sw_dataset_options options = {
        .files = &file, .n_files = 1, .tokenizer = tokenizer, .seq_len = 32, .chat = chat};
    sw_status st = sw_data_kind_of(&file, 1, false, &found);
    assert_true(st < 0 || found == kind);
    st = st < 0 ? st : sw_dataset_open(&options, &dataset);
    if (wanted ? st >= 0 || !strstr(sw_error_message(), wanted) : st < 0) {
        fail_msg("%s: wanted %s, got %s", text, wanted ? wanted : "no error", sw_error_message());
    }
    sw_dataset_close(st >= 0 ? dataset : NULL);
}

static void a_file_is_of_one_kind(void **state)
{
    (void)state;
    static const char chat_line[] = "{\"messages\":[" Q "," A "]}\n";
    static const char pair[] = "{\"prompt\":\"q\",\"completion\":\"a\"}\n";
    char two[256];
    sw_chat *chat = open_chat();
    expect_data(chat_line, chat, SW_DATA_CHATS, NULL);
    expect_data(chat_line, NULL, SW_DATA_CHATS, "data.jsonl line 1: a chat (\"messages\"), and no");
    expect_data(pair, chat, SW_DATA_PAIRS, NULL);
    expect_data(pair, NULL, SW_DATA_PAIRS, NULL);
    snprintf(two, sizeof two, "%s%s", chat_line, pair);
    expect_data(two, chat, SW_DATA_CHATS,
                "line 2: it has \"prompt\" and \"completion\", and the lines before it "
                "\"messages\"");
    snprintf(two, sizeof two, "%s{\"text\":\"t\"}\n", chat_line);
    expect_data(two, chat, SW_DATA_CHATS, "line 2: running text among chats");
    snprintf(two, sizeof two, "%s{\"messages\":\n", chat_line);
    expect_data(two, chat, SW_DATA_CHATS, "data.jsonl line 2:1:");
    expect_data("{\"messages\":[" Q "]}\n", chat, SW_DATA_CHATS,
                "no chat has a token that the loss counts within 32 tokens");
    sw_chat_close(chat);
}

/* As in TRL, a conversation has precedence over "text". A key that is null is absent. */
static void a_line_that_has_text_and_a_conversation(void **state)
{
    (void)state;
#define TEXT "{\"text\":\"text with enough characters for a row of T\","
    sw_chat *chat = open_chat();
    expect_data(TEXT "\"messages\":[" Q "," A "]}\n", chat, SW_DATA_CHATS, NULL);
    expect_data(TEXT "\"messages\":[" Q "," A "]}\n", NULL, SW_DATA_CHATS,
                "data.jsonl line 1: a chat (\"messages\"), and no");
    expect_data(TEXT "\"conversations\":[{\"from\":\"human\",\"value\":\"q\"},"
                     "{\"from\":\"gpt\",\"value\":\"a\"}]}\n",
                chat, SW_DATA_CHATS, NULL);
    expect_data(TEXT "\"messages\":[]}\n", chat, SW_DATA_CHATS, "an empty conversation");
    expect_data(TEXT "\"messages\":null}\n", chat, SW_DATA_TEXT, NULL);
    expect_data("{\"text\":null,\"prompt\":null,\"messages\":[" Q "," A "]}\n", chat, SW_DATA_CHATS,
                NULL);
    expect_data("{\"text\":null,\"prompt\":\"q\",\"completion\":\"a\"}\n", NULL, SW_DATA_PAIRS,
                NULL);
    expect_data(TEXT "\"instruction\":\"q\",\"output\":\"a\"}\n", chat, SW_DATA_TEXT, NULL);
    expect_data("{\"text\":null,\"messages\":null}\n", chat, SW_DATA_TEXT,
                "or \"prompt\" and \"completion\"; found none of them");
    expect_data(TEXT "\"prompt\":\"q\",\"completion\":\"a\"}\n", chat, SW_DATA_TEXT,
                "found \"text\" \"prompt\" \"completion\"");
    sw_chat_close(chat);
}

/* Rows of 24 tokens; the three documents have 19, 4 and 5 places. */
static void packed_rows_hold_documents_that_begin_anew(void **state)
{
    (void)state;
    enum { T = 24 };
    sw_dataset *dataset = NULL;
    const char *file =
        sw_test_write_text(2, "texts.jsonl",
                           "{\"text\":\"abcd\"}\n{\"text\":\"abcdefghijklmnopqrs\"}\n"
                           "{\"text\":\"vwxyz\"}\n{\"text\":\"\"}\n");
    struct sw_dataset_options options = {
        .files = &file, .n_files = 1, .tokenizer = tokenizer, .seq_len = T, .packing = true};
    int32_t ids[2 * T], labels[2 * T], positions[2 * T], segments[2 * T];
    assert_int_equal(sw_dataset_open(&options, &dataset), SW_OK);
    assert_int_equal(sw_dataset_n_samples(dataset, SW_SPLIT_TRAIN), 2);
    assert_int_equal(sw_dataset_n_dropped(dataset, SW_SPLIT_TRAIN), 1);
    assert_float_equal(sw_dataset_padding(dataset, SW_SPLIT_TRAIN), 20.0 / 48, 1e-12);
    assert_int_equal(
        sw_dataset_fetch_packed(dataset, SW_SPLIT_TRAIN, 0, 2, ids, labels, positions, segments),
        SW_OK);
    int n_documents = 0;
    for (int i = 0; i < 2 * T; ++i) {
        const bool begins = segments[i] > 0 && positions[i] == 0;
        const bool goes_on = i % T > 0 && segments[i] == segments[i - 1];
        n_documents += begins;
        if (segments[i] == 0) {
            assert_true(labels[i] == SW_IGNORED_LABEL && positions[i] == 0);
        } else if (goes_on) { /* each token is the label of the one before it */
            assert_int_equal(positions[i], positions[i - 1] + 1);
            assert_int_equal(ids[i], labels[i - 1]);
        } else {
            assert_true(begins);
            assert_true(i % T == 0 || labels[i - 1] == sw_tokenizer_eos(tokenizer));
        }
    }
    assert_int_equal(n_documents, 3);
    sw_dataset_close(dataset);
    options.val_fraction = 0.5; /* documents are held back, not rows */
    assert_int_equal(sw_dataset_open(&options, &dataset), SW_OK);
    assert_int_equal(sw_dataset_n_samples(dataset, SW_SPLIT_VAL), 1);
    assert_int_equal(
        sw_dataset_fetch_packed(dataset, SW_SPLIT_VAL, 0, 1, ids, labels, positions, segments),
        SW_OK);
    assert_true(ids[0] == 'v' - ' ' && labels[4] == sw_tokenizer_eos(tokenizer));
    assert_int_equal(segments[5], 0);
    sw_dataset_close(dataset);
    file = sw_test_write(2, "tokens.bin", "\1\0\2\0\3\0", 6);
    assert_int_equal(sw_dataset_open(&options, &dataset), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "tokens.bin: a shard does not mark documents"));
}

static int set_up(void **state)
{
    (void)state;
    tokenizer = test_open_chat_tokenizer(test_chatml);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    sw_tokenizer_close(tokenizer);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rows_are_cut_at_the_end_or_left_out),
    cmocka_unit_test(rows_have_weights_of_their_answers),
    cmocka_unit_test(a_file_is_of_one_kind),
    cmocka_unit_test(a_line_that_has_text_and_a_conversation),
    cmocka_unit_test(packed_rows_hold_documents_that_begin_anew),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up, .teardown = tear_down};
