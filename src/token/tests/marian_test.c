// SPDX-License-Identifier: Apache-2.0
// Marian's tokenizer: against ids and texts of transformers (tests/peers/record_marian.py), and
// what is refused.
#include "token/tests/failing.h"
#include "token/token.h"

#include "json/json.h"
#include "support/files.h"
#include "support/scratch.h"
#include "support/test.h"

#include <unistd.h>

static const char recorded[] = "tests/cases/marian_tokenizer";

static struct sw_tokenizer *open_path(const char *path)
{
    struct sw_tokenizer *tokenizer = NULL;
    if (sw_tokenizer_open(path, NULL, &tokenizer) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return tokenizer;
}

/* ---- recorded rows ---- */

static void check_ids(const struct sw_ids *ids, const struct sw_json *wanted, const char *text)
{
    const struct sw_json *id = wanted->first;
    for (int64_t i = 0; i < ids->len && id; ++i, id = id->next) {
        if (ids->ptr[i] != id->integer) {
            fail_msg("'%s': %s: id %lld is %d, wanted %lld", text, wanted->key, (long long)i,
                     ids->ptr[i], (long long)id->integer);
        }
    }
    assert_int_equal(ids->len, wanted->n_children);
}

static void check_encoded(struct sw_tokenizer *tokenizer, const struct sw_json *row)
{
    const struct sw_json *text = sw_json_get(row, "text");
    struct sw_ids source = {0}, target = {0};
    assert_int_equal(sw_tokenizer_encode(tokenizer, text->string, text->string_len, true, &source),
                     SW_OK);
    assert_int_equal(
        sw_tokenizer_encode_target(tokenizer, text->string, text->string_len, true, &target),
        SW_OK);
    check_ids(&source, sw_json_get(row, "source"), text->string);
    check_ids(&target, sw_json_get(row, "target"), text->string);
    sw_ids_fini(&source);
    sw_ids_fini(&target);
}

static void check_decoded(const struct sw_tokenizer *tokenizer, const struct sw_json *row)
{
    static const char *const keys[] = {"decoded", "decoded_plain"};
    struct sw_ids ids = {0};
    for (const struct sw_json *id = sw_json_get(row, "ids")->first; id; id = id->next) {
        assert_int_equal(sw_ids_push(&ids, (int32_t)id->integer), SW_OK);
    }
    for (int plain = 0; plain < 2; ++plain) {
        char *text = NULL;
        assert_int_equal(sw_tokenizer_decode(tokenizer, ids.ptr, ids.len, plain, &text, NULL),
                         SW_OK);
        assert_string_equal(text, sw_json_get(row, keys[plain])->string);
        sw_text_free(text);
    }
    sw_ids_fini(&ids);
}

/* Calls `check` for the rows that have `key`. */
static int each_row(const char *key, void (*check)(void *ctx, const struct sw_json *row), void *ctx)
{
    char path[128], *line = NULL;
    size_t cap = 0;
    int n = 0;
    snprintf(path, sizeof path, "%s/rows.jsonl", recorded);
    FILE *in = fopen(path, "r");
    assert_non_null(in);
    for (ssize_t len; (len = getline(&line, &cap, in)) > 0;) {
        struct sw_json_doc *doc = NULL;
        assert_int_equal(sw_json_parse(path, line, (size_t)len, SW_JSON_STRICT, &doc), SW_OK);
        if (sw_json_get(sw_json_root(doc), key)) {
            check(ctx, sw_json_root(doc));
            n++;
        }
        sw_json_close(doc);
    }
    free(line);
    fclose(in);
    return n;
}

static void encode_row(void *ctx, const struct sw_json *row)
{
    check_encoded(ctx, row);
}

static void decode_row(void *ctx, const struct sw_json *row)
{
    check_decoded(ctx, row);
}

static void recorded_rows_agree(void **state)
{
    (void)state;
    struct sw_tokenizer *tokenizer = open_path(recorded);
    assert_true(each_row("text", encode_row, tokenizer) > 50);
    assert_true(each_row("ids", decode_row, tokenizer) >= 40);
    assert_int_equal(sw_tokenizer_eos(tokenizer), 0);
    assert_int_equal(sw_tokenizer_pad(tokenizer), sw_tokenizer_find(tokenizer, "<pad>"));
    assert_string_equal(sw_tokenizer_token(tokenizer, 2, NULL), ">>fra<<");
    sw_tokenizer_close(tokenizer);
}

/* Written id by id, the text is the same, and what was written stays. */
static void write_row(void *ctx, const struct sw_json *row)
{
    struct sw_ids ids = {0};
    char *written = NULL;
    size_t len = 0;
    FILE *to = open_memstream(&written, &len);
    struct sw_text_writer writer = {.tokenizer = ctx, .to = to};
    for (const struct sw_json *id = sw_json_get(row, "ids")->first; id; id = id->next) {
        assert_int_equal(sw_ids_push(&ids, (int32_t)id->integer), SW_OK);
        assert_int_equal(sw_text_write(&writer, ids.ptr, ids.len, id->next == NULL), SW_OK);
    }
    fclose(to);
    assert_string_equal(written, sw_json_get(row, "decoded_plain")->string);
    free(written);
    sw_ids_fini(&ids);
}

static void texts_are_written_in_pieces(void **state)
{
    (void)state;
    struct sw_tokenizer *tokenizer = open_path(recorded);
    assert_true(each_row("ids", write_row, tokenizer) >= 40);
    sw_tokenizer_close(tokenizer);
}

static void pairs_end_once_and_prompts_are_refused(void **state)
{
    (void)state;
    struct sw_ids ids = {0}, types = {0}, first = {0}, second = {0};
    struct sw_tokenizer *tokenizer = open_path(recorded);
    assert_int_equal(sw_tokenizer_encode(tokenizer, "the", 3, false, &first), SW_OK);
    assert_int_equal(sw_tokenizer_encode(tokenizer, "sun", 3, true, &second), SW_OK);
    assert_int_equal(sw_tokenizer_encode_pair(tokenizer, "the", 3, "sun", 3, true, &ids, &types),
                     SW_OK);
    assert_int_equal(ids.len, first.len + second.len);
    assert_memory_equal(ids.ptr + first.len, second.ptr, (size_t)second.len * sizeof *ids.ptr);
    for (int64_t i = 0; i < types.len; ++i) {
        assert_int_equal(types.ptr[i], 0);
    }
    assert_int_equal(sw_tokenizer_encode_prompt(tokenizer, "the", 3, &ids), SW_E_UNSUP);
    assert_non_null(strstr(sw_error_message(), "Marian"));
    assert_int_equal(sw_tokenizer_encode_target(tokenizer, "\xFF", 1, true, &ids), SW_E_FORMAT);
    assert_int_equal(ids.len, first.len + second.len);
    sw_ids_fini(&ids);
    sw_ids_fini(&types);
    sw_ids_fini(&first);
    sw_ids_fini(&second);
    sw_tokenizer_close(tokenizer);
}

static void other_tokenizers_have_one_side(void **state)
{
    (void)state;
    struct sw_ids ids = {0}, targets = {0};
    struct sw_tokenizer *letters;
    assert_int_equal(sw_tokenizer_open_chars("letters", "abc", 3, &letters), SW_OK);
    assert_int_equal(sw_tokenizer_encode(letters, "cab", 3, true, &ids), SW_OK);
    assert_int_equal(sw_tokenizer_encode_target(letters, "cab", 3, true, &targets), SW_OK);
    assert_int_equal(targets.len, ids.len);
    assert_memory_equal(targets.ptr, ids.ptr, (size_t)ids.len * sizeof *ids.ptr);
    assert_true(!sw_tokenizer_has_sides(letters));
    sw_ids_fini(&ids);
    sw_ids_fini(&targets);
    sw_tokenizer_close(letters);
}

/* ---- folders made here ---- */

/* Writes a folder with the recorded models. NULL: no such file. */
static const char *write_folder(const char *name, const char *vocab, const char *settings,
                                const char *added)
{
    static char folder[512];
    const struct {
        const char *file, *text;
    } parts[] = {{"source.spm", NULL},
                 {"target.spm", NULL},
                 {"vocab.json", vocab},
                 {"tokenizer_config.json", settings},
                 {"added_tokens.json", added}};
    snprintf(folder, sizeof folder, "%s/%s", test_folder(), name);
    assert_int_equal(sw_mkdirs(folder), SW_OK);
    for (size_t i = 0; i < SW_LEN(parts); ++i) {
        char from[600], to[600], *data = NULL;
        size_t len;
        snprintf(from, sizeof from, "%s/%s", recorded, parts[i].file);
        snprintf(to, sizeof to, "%s/%s", folder, parts[i].file);
        if (i < 2) {
            assert_int_equal(sw_file_read(from, &data, &len), SW_OK);
            assert_int_equal(sw_file_write_atomic(to, data, len), SW_OK);
            sw_free(data);
        } else if (parts[i].text) {
            assert_int_equal(sw_file_write_atomic(to, parts[i].text, strlen(parts[i].text)), SW_OK);
        }
    }
    return folder;
}

#define MARK "\xE2\x96\x81"
#define VOCAB                                                                                      \
    "{\"</s>\": 0, \"<unk>\": 1, \"" MARK "the\": 2, \"a\": 3, \"<0x41>\": 4, \"<x>\": 5, "        \
    "\"<pad>\": 6}"

static void check_refused(const char *folder, sw_status wanted, const char *named)
{
    struct sw_tokenizer *tokenizer;
    const sw_status st = sw_tokenizer_open(folder, NULL, &tokenizer);
    if (st != wanted || !strstr(sw_error_message(), named)) {
        fail_msg("wanted %d with '%s', found %d: %s", wanted, named, st,
                 st < 0 ? sw_error_message() : "opened");
    }
}

static void missing_files_are_named(void **state)
{
    (void)state;
    static const char *const names[] = {"source.spm", "target.spm", "vocab.json"};
    for (size_t i = 0; i < SW_LEN(names); ++i) {
        char path[600], wanted[64];
        const char *folder = write_folder("missing", VOCAB, NULL, NULL);
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        snprintf(wanted, sizeof wanted, "%s is not there; Marian's", names[i]);
        assert_int_equal(unlink(path), 0);
        assert_true(sw_tokenizer_is_there(folder));
        check_refused(folder, SW_E_IO, wanted);
    }
}

static void bad_files_are_named(void **state)
{
    (void)state;
#define ADDED(members) "{\"added_tokens_decoder\": {\"5\": {\"content\": \"<x>\"" members "}}}"
    static const struct {
        const char *vocab, *settings, *added, *named;
        sw_status st;
    } cases[] = {
        {"[1]", NULL, NULL, "vocab.json: an array, wanted an object of tokens", SW_E_FORMAT},
        {"{\"a\": \"b\"}", NULL, NULL, "vocab.json:1: the id of 'a'", SW_E_FORMAT},
        {"{\"a\": 1, \"b\": 1}", NULL, NULL, "vocab.json: ", SW_E_FORMAT},
        {"{\"<unk>\": 0, \"</s>\": 1}", NULL, NULL, "vocab.json: there is no token '<pad>'",
         SW_E_FORMAT},
        {"{\"<unk>\": 0, \"</s>\": 1, \"<pad>\": 2, \"<s>x\": 3}", NULL, NULL,
         "source.spm: none of its 200 pieces is in ", SW_E_FORMAT},
        {VOCAB, "{\"eos_token\": \"<e>\"}", NULL, "'<e>', the eos_token", SW_E_FORMAT},
        {VOCAB, "{\"extra_special_tokens\": [\"<y>\"]}", NULL, "'<y>', the extra_special_tokens",
         SW_E_FORMAT},
        {VOCAB, "{\"extra_special_tokens\": {\"image\": \"<y>\"}}", NULL,
         "'<y>', the extra_special_tokens", SW_E_FORMAT},
        {VOCAB, "{\"separate_vocabs\": true}", NULL, "tokenizer_config.json:1: separate_vocabs",
         SW_E_UNSUP},
        {VOCAB, "{\"sp_model_kwargs\": {\"enable_sampling\": true}}", NULL, "enable_sampling",
         SW_E_UNSUP},
        {VOCAB, ADDED(", \"lstrip\": true"), NULL, "'<x>': single_word, lstrip", SW_E_UNSUP},
        {VOCAB, "{\"added_tokens_decoder\": {\"9\": {\"content\": \"<x>\"}}}", NULL,
         "tokenizer_config.json: added token '<x>' has the id 9", SW_E_FORMAT},
        {VOCAB, "{}", "{\"<y>\": 5}", "added_tokens.json: ", SW_E_FORMAT},
        {VOCAB, "[]", NULL, "tokenizer_config.json: ", SW_E_FORMAT},
    };
    for (size_t i = 0; i < SW_LEN(cases); ++i) {
        char name[16];
        snprintf(name, sizeof name, "bad%zu", i);
        check_refused(write_folder(name, cases[i].vocab, cases[i].settings, cases[i].added),
                      cases[i].st, cases[i].named);
    }
}

/* Writes the ids one by one, and compares with the text at once. */
static bool is_written_alike(const struct sw_tokenizer *tokenizer, const int32_t *ids, int64_t n,
                             FILE *to, struct sw_str *whole)
{
    char written[64] = "";
    struct sw_text_writer writer = {.tokenizer = tokenizer, .to = to};
    rewind(to);
    for (int64_t i = 1; i <= n; ++i) {
        assert_int_equal(sw_text_write(&writer, ids, i, i == n), SW_OK);
    }
    sw_str_clear(whole);
    assert_int_equal(sw_tokenizer_decode_str(tokenizer, ids, n, true, whole), SW_OK);
    rewind(to);
    const size_t len = writer.n_written > 0 ? fread(written, 1, writer.n_written, to) : 0;
    return len == whole->len && memcmp(written, sw_str_text(whole), len) == 0;
}

/* All texts of five of these tokens, which have the ids from 3. The clean-up removes a space, joins
 * two words, or changes nothing. */
static void check_all_written(const char *folder)
{
    enum { N = 7, LENGTH = 5 };
    struct sw_tokenizer *tokenizer = open_path(folder);
    static const int32_t two_words[] = {6, 3, 4, 3, 5, 3, 6, 3, 9};
    struct sw_str whole = {0};
    FILE *to = tmpfile();
    int n_wrong = 0, n = 1;
    assert_non_null(to);
    assert_true(is_written_alike(tokenizer, two_words, SW_LEN(two_words), to, &whole));
    assert_string_equal(sw_str_text(&whole), "tn't.");
    for (int i = 0; i < LENGTH; ++i) {
        n *= N;
    }
    for (int i = 0; i < n; ++i) {
        int32_t ids[LENGTH];
        for (int k = 0, rest = i; k < LENGTH; ++k, rest /= N) {
            ids[k] = 3 + rest % N;
        }
        n_wrong += !is_written_alike(tokenizer, ids, LENGTH, to, &whole);
    }
    assert_int_equal(n_wrong, 0);
    fclose(to);
    sw_str_fini(&whole);
    sw_tokenizer_close(tokenizer);
}

#define PIECES MARK, "n", "'", "t", "v", "e", "."

/* Marian's texts have no spaces at their ends; those of a tokenizer.json do. */
static void cleaned_texts_are_written_in_pieces(void **state)
{
    (void)state;
    static const char *const pieces[] = {"</s>", "<unk>", "<pad>", PIECES};
    static const char settings[] = "{\"clean_up_tokenization_spaces\": true}";
    struct sw_str vocab = {0}, unigram = {0};
    char path[600];
    for (size_t i = 0; i < SW_LEN(pieces); ++i) {
        sw_str_printf(&vocab, "%s\"%s\": %zu", i > 0 ? ", " : "{", pieces[i], i);
        sw_str_printf(&unigram, "%s[\"%s\", -1]", i > 0 ? ", " : "", pieces[i]);
    }
    sw_str_puts(&vocab, "}");
    check_all_written(write_folder("cleaned", sw_str_text(&vocab), settings, NULL));
    snprintf(path, sizeof path, "%s/unigram", test_folder());
    assert_int_equal(sw_mkdirs(path), SW_OK);
    sw_str_clear(&vocab);
    sw_str_puts(&vocab, "{\"version\": \"1.0\", \"added_tokens\": [], \"decoder\": ");
    sw_str_puts(&vocab, "{\"type\": \"Metaspace\", \"replacement\": \"" MARK "\"}, \"model\": ");
    sw_str_printf(&vocab, "{\"type\": \"Unigram\", \"unk_id\": 1, \"vocab\": [%s]}}",
                  sw_str_text(&unigram));
    test_put("unigram/tokenizer.json", sw_str_text(&vocab));
    test_put("unigram/tokenizer_config.json", settings);
    check_all_written(path);
    sw_str_fini(&vocab);
    sw_str_fini(&unigram);
}

#define LIST                                                                                       \
    "{\"added_tokens_decoder\": {\"5\": {\"content\": \"<x>\"}, \"7\": {\"content\": \"of the\"}}}"
#define FILE_OF_BOTH "{\"of the\": 7, \"<x>\": 5}"

static void check_own_ids(const char *folder)
{
    static const int32_t end[] = {5, 7, 0};
    struct sw_ids ids = {0};
    struct sw_tokenizer *tokenizer = open_path(folder);
    assert_int_equal(sw_tokenizer_vocab_size(tokenizer), 8);
    assert_int_equal(sw_tokenizer_encode(tokenizer, "the of<x>of the", 15, true, &ids), SW_OK);
    assert_int_equal(ids.ptr[0], 2);
    assert_memory_equal(ids.ptr + ids.len - 3, end, 3 * sizeof *ids.ptr);
    for (int64_t i = 1; i < ids.len - 3; ++i) {
        assert_int_equal(ids.ptr[i], 1);
    }
    sw_ids_fini(&ids);
    sw_tokenizer_close(tokenizer);
}

/* A piece without an id is unknown, and added tokens stay whole wherever they are named. */
static void ids_come_from_the_vocabulary_alone(void **state)
{
    (void)state;
    check_own_ids(write_folder("listed", VOCAB, LIST, NULL));
    check_own_ids(write_folder("filed", VOCAB, NULL, FILE_OF_BOTH));
}

/* As in transformers, also if the list is empty, and even if the files are not readable. */
static void a_list_of_added_tokens_replaces_the_older_files(void **state)
{
    (void)state;
    static const struct {
        const char *settings, *added, *roles;
        int32_t size, pad;
    } cases[] = {
        {"{}", "{\"of the\": 7}", "{\"pad_token\": \"a\"}", 8, 3},
        {ADDED(""), "{\"of the\": 7}", "{\"pad_token\": \"a\"}", 7, 6},
        {"{\"added_tokens_decoder\": {}}", "{\"of the\": 9}", "{\"eos_token\": \"<e>\"}", 7, 6},
        {ADDED(""), "[", "[", 7, 6},
    };
    for (size_t i = 0; i < SW_LEN(cases); ++i) {
        char name[16], path[600];
        snprintf(name, sizeof name, "older%zu", i);
        const char *folder = write_folder(name, VOCAB, cases[i].settings, cases[i].added);
        snprintf(path, sizeof path, "%s/special_tokens_map.json", folder);
        const char *roles = cases[i].roles;
        assert_int_equal(sw_file_write_atomic(path, roles, strlen(roles)), SW_OK);
        struct sw_tokenizer *tokenizer = open_path(folder);
        assert_int_equal(sw_tokenizer_vocab_size(tokenizer), cases[i].size);
        assert_int_equal(sw_tokenizer_pad(tokenizer), cases[i].pad);
        assert_int_equal(sw_tokenizer_eos(tokenizer), 0);
        sw_tokenizer_close(tokenizer);
    }
}

/* The space before punctuation is removed only if the folder says so. */
static void texts_are_cleaned_up_on_demand(void **state)
{
    (void)state;
    static const char *const settings[] = {
        "{\"added_tokens_decoder\": {\"7\": {\"content\": \"Yes , it 's !\"}}}",
        "{\"added_tokens_decoder\": {\"7\": {\"content\": \"Yes , it 's !\"}}, "
        "\"clean_up_tokenization_spaces\": true}"};
    static const char *const wanted[] = {"Yes , it 's !", "Yes, it's!"};
    const int32_t id = 7;
    for (size_t i = 0; i < SW_LEN(wanted); ++i) {
        char *text = NULL;
        struct sw_tokenizer *tokenizer =
            open_path(write_folder(i == 0 ? "plain" : "clean", VOCAB, settings[i], NULL));
        assert_int_equal(sw_tokenizer_decode(tokenizer, &id, 1, true, &text, NULL), SW_OK);
        assert_string_equal(text, wanted[i]);
        sw_text_free(text);
        sw_tokenizer_close(tokenizer);
    }
}

static void saving_keeps_every_file(void **state)
{
    (void)state;
    static const char *const names[] = {"source.spm", "target.spm", "vocab.json",
                                        "tokenizer_config.json", "added_tokens.json"};
    const char *from = write_folder("from", VOCAB, ADDED(""), "{\"of the\": 7}");
    char to[512], path[600];
    struct sw_tokenizer *tokenizer = open_path(from);
    snprintf(to, sizeof to, "%s/to", test_folder());
    assert_int_equal(sw_mkdirs(to), SW_OK);
    assert_int_equal(sw_tokenizer_save(tokenizer, to), SW_OK);
    for (size_t i = 0; i < SW_LEN(names); ++i) {
        char *a, *b;
        size_t n_a, n_b;
        snprintf(path, sizeof path, "%s/%s", from, names[i]);
        assert_int_equal(sw_file_read(path, &a, &n_a), SW_OK);
        snprintf(path, sizeof path, "%s/%s", to, names[i]);
        assert_int_equal(sw_file_read(path, &b, &n_b), SW_OK);
        assert_int_equal(n_a, n_b);
        assert_memory_equal(a, b, n_a);
        sw_free(a);
        sw_free(b);
    }
    sw_tokenizer_close(tokenizer);
    sw_tokenizer_close(open_path(to));
    snprintf(path, sizeof path, "%s/target.spm", to);
    tokenizer = open_path(path); /* one of the files stands for all */
    assert_true(sw_tokenizer_has_sides(tokenizer));
    sw_tokenizer_close(tokenizer);
    sw_tokenizer_remove(to);
    assert_true(!sw_tokenizer_is_there(to));
}

/* A tokenizer.json knows one of the languages. */
static void both_models_go_before_a_tokenizer_json(void **state)
{
    (void)state;
    char path[600];
    const char *folder = write_folder("both", VOCAB, NULL, NULL);
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    assert_int_equal(sw_file_write_atomic(path, "{}", 2), SW_OK);
    struct sw_tokenizer *tokenizer = open_path(folder);
    assert_true(sw_tokenizer_has_sides(tokenizer));
    sw_tokenizer_close(tokenizer);
}

static void failing_allocations(void **state)
{
    (void)state;
    static const char text[] = ">>fra<< the<x>a \xC3\xA9</s>";
    sw_test_failing_allocations(write_folder("failing", VOCAB, ADDED(""), NULL), text);
    sw_test_failing_allocations(write_folder("failing2", VOCAB, "{}", "{\"of the\": 7}"), text);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(recorded_rows_agree),
    cmocka_unit_test(texts_are_written_in_pieces),
    cmocka_unit_test(cleaned_texts_are_written_in_pieces),
    cmocka_unit_test(pairs_end_once_and_prompts_are_refused),
    cmocka_unit_test(other_tokenizers_have_one_side),
    cmocka_unit_test(missing_files_are_named),
    cmocka_unit_test(bad_files_are_named),
    cmocka_unit_test(ids_come_from_the_vocabulary_alone),
    cmocka_unit_test(a_list_of_added_tokens_replaces_the_older_files),
    cmocka_unit_test(texts_are_cleaned_up_on_demand),
    cmocka_unit_test(saving_keeps_every_file),
    cmocka_unit_test(both_models_go_before_a_tokenizer_json),
    cmocka_unit_test(failing_allocations),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
