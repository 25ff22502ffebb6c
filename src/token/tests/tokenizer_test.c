// SPDX-License-Identifier: Apache-2.0
// Tokenizers from small files made here: every flag and component, round trips, refusals and their
// messages, failing allocations.
#include "token/tests/failing.h"
#include "token/token.h"

#include "support/files.h"
#include "support/scratch.h"
#include "support/test.h"
#include "token/tokenizer.h"

#include <sys/stat.h>
#include <unistd.h>

/* Makes a file with the 256 letters of the byte alphabet as ids 0 .. 255, two merges ("ab", "abc")
 * and the given components. */
struct file {
    const char *normalizer, *pre_tokenizer, *post_processor, *decoder, *added, *model, *top;
};

static const struct file plain = {
    .normalizer = "null",
    .pre_tokenizer = "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}",
    .post_processor = "null",
    .decoder = "{\"type\":\"ByteLevel\"}",
    .added = "[]",
    .model = "",
    .top = "",
};

static const char *write_file(const struct file *file)
{
    struct sw_str text = {0};
    sw_str_printf(&text,
                  "{\"version\":\"1.0\",%s\"added_tokens\":%s,\"normalizer\":%s,"
                  "\"pre_tokenizer\":%s,\"post_processor\":%s,\"decoder\":%s,"
                  "\"model\":{\"type\":\"BPE\",%s\"vocab\":{",
                  file->top, file->added, file->normalizer, file->pre_tokenizer,
                  file->post_processor, file->decoder, file->model);
    int next = 256;
    for (int byte = 0; byte < 256; ++byte) {
        const bool itself =
            (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        sw_str_printf(&text, "\"\\u%04x\":%d,", itself ? byte : next++, byte);
    }
    sw_str_puts(&text, "\"ab\":256,\"abc\":257},\"merges\":[\"a b\",[\"ab\",\"c\"]]}}");
    const char *path = sw_test_write(0, "tokenizer.json", text.ptr, text.len);
    sw_str_fini(&text);
    return path;
}

static struct sw_tokenizer *open_file(const struct file *file)
{
    struct sw_tokenizer *tokenizer = NULL;
    if (sw_tokenizer_open(write_file(file), NULL, &tokenizer) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return tokenizer;
}

/* Checks the tokens of a text. Bytes appear as they are, other tokens as <id>. */
static void check_encode(struct sw_tokenizer *tokenizer, const char *text, const char *wanted)
{
    struct sw_ids ids = {0};
    struct sw_str found = {0};
    assert_int_equal(sw_tokenizer_encode(tokenizer, text, strlen(text), true, &ids), SW_OK);
    for (int64_t i = 0; i < ids.len; ++i) {
        if (ids.ptr[i] < 256) {
            sw_str_putc(&found, (char)ids.ptr[i]);
        } else {
            sw_str_printf(&found, "<%d>", ids.ptr[i]);
        }
    }
    assert_string_equal(sw_str_text(&found), wanted);
    sw_ids_fini(&ids);
    sw_str_fini(&found);
}

static void check_case(const struct file *file, const char *text, const char *wanted)
{
    struct sw_tokenizer *tokenizer = open_file(file);
    check_encode(tokenizer, text, wanted);
    sw_tokenizer_close(tokenizer);
}

static void merges_and_words(void **state)
{
    (void)state;
    check_case(&plain, "abc ab xyz", "<257> <256> xyz");
    check_case(&plain, "", "");
    struct file file = plain;
    file.pre_tokenizer = "{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":true}";
    check_case(&file, "abc", " <257>");
    check_case(&file, " abc", " <257>");
    check_case(&file, "", "");
}

/* The five ways to cut at a match, by the example that documents them. */
static void split_behaviors(void **state)
{
    (void)state;
    static const struct {
        const char *behavior, *invert, *wanted;
    } cases[] = {
        {"Removed", "false", "|the|final|countdown"},
        {"Isolated", "false", "|the|-|final|-|-|countdown"},
        {"MergedWithPrevious", "false", "|the-|final-|-|countdown"},
        {"MergedWithNext", "false", "|the|-final|-|-countdown"},
        {"Contiguous", "false", "|the|-|final|--|countdown"},
        {"Removed", "true", "|-|-|-"},
    };
    for (size_t i = 0; i < SW_LEN(cases); ++i) {
        struct sw_str component = {0};
        struct file file = plain;
        /* a prefix in front of each piece shows where the pieces begin */
        sw_str_printf(&component,
                      "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":"
                      "{\"String\":\"-\"},\"behavior\":\"%s\",\"invert\":%s},{\"type\":"
                      "\"ByteLevel\",\"add_prefix_space\":true,\"use_regex\":false}]}",
                      cases[i].behavior, cases[i].invert);
        file.pre_tokenizer = component.ptr;
        struct sw_str wanted = {0};
        for (const char *c = cases[i].wanted; *c; ++c) {
            sw_str_putc(&wanted, *c == '|' ? ' ' : *c);
        }
        check_case(&file, "the-final--countdown", wanted.ptr);
        sw_str_fini(&component);
        sw_str_fini(&wanted);
    }
}

static void digits(void **state)
{
    (void)state;
    struct file file = plain;
    file.pre_tokenizer = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\","
                         "\"individual_digits\":true},{\"type\":\"ByteLevel\","
                         "\"add_prefix_space\":true,\"use_regex\":false}]}";
    check_case(&file, "x12", " x 1 2");
    file.pre_tokenizer = "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Digits\","
                         "\"individual_digits\":false},{\"type\":\"ByteLevel\","
                         "\"add_prefix_space\":true,\"use_regex\":false}]}";
    check_case(&file, "x12", " x 12");
}

static void normalizers(void **state)
{
    (void)state;
    if (!SW_HAVE_UTF8PROC) {
        skip();
    }
    struct file file = plain;
    file.normalizer = "{\"type\":\"NFC\"}";
    check_case(&file, "e\xCC\x81", "\xC3\xA9");
    file.normalizer = "{\"type\":\"NFD\"}";
    check_case(&file, "\xC3\xA9", "e\xCC\x81");
    file.normalizer = "{\"type\":\"NFKC\"}";
    check_case(&file, "\xEF\xAC\x81", "fi");
    file.normalizer =
        "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKD\"},{\"type\":\"Lowercase\"}]}";
    check_case(&file, "\xEF\xBC\xA1\xC3\x89", "ae\xCC\x81");
    file.normalizer = "{\"type\":\"Lowercase\"}";
    check_case(&file, "\xC4\xB0\xCE\xA3", "i\xCC\x87\xCF\x83"); /* I with dot; sigma, never final */
}

#define TOKEN(id, content, flags)                                                                  \
    "{\"id\":" #id ",\"content\":\"" content "\",\"normalized\":false," flags "\"special\":false}"

static void added_tokens(void **state)
{
    (void)state;
    struct file file = plain;
    file.added = "[" TOKEN(300, "<x>", "") "," TOKEN(301, "<x><y>", "") "]";
    check_case(&file, "a<x>b<x><y><x><", "a<300>b<301><300><"); /* the longest wins */
    file.added = "[" TOKEN(300, "<x>", "\"lstrip\":true,") "]";
    check_case(&file, "a  <x> b", "a<300> b");
    file.added = "[" TOKEN(300, "<x>", "\"rstrip\":true,") "]";
    check_case(&file, "a <x> \\n b", "a <300>\\n b");
    file.added = "[" TOKEN(300, "<x>", "\"rstrip\":true,") "," TOKEN(301, "  ", "") "]";
    check_case(&file, "<x>   b", "<300><301> b"); /* the order of the reference */
    file.added = "[" TOKEN(300, " ", "\"lstrip\":true,\"rstrip\":true,") "]";
    check_case(&file, "a   b ", "a<300>b<300>"); /* nothing is left of the other two */
    file.added =
        "[" TOKEN(300, "<x>", "\"rstrip\":true,") "," TOKEN(301, " ", "\"lstrip\":true,") "]";
    check_case(&file, "<x>   b c", "<300>b<301>c"); /* <x> took what ends before its own end */
    file.added = "[" TOKEN(300, "tool", "\"single_word\":true,") "]";
    check_case(&file, "tool tools xtool tool.", "<300> tools xtool <300>.");
    check_case(&file, "tool_ \xC3\xA9tool", "tool_ \xC3\xA9tool");
}

static void added_tokens_after_the_normalizer(void **state)
{
    (void)state;
    if (!SW_HAVE_UTF8PROC) {
        skip();
    }
    struct file file = plain;
    file.normalizer = "{\"type\":\"Lowercase\"}";
    file.added = "[{\"id\":300,\"content\":\"Hey\",\"normalized\":true,\"special\":false},"
                 "{\"id\":301,\"content\":\"YOU\",\"normalized\":false,\"special\":false}]";
    check_case(&file, "HEY hey YOU you", "<300> <300> <301> you");
}

/* As in the library, a token searched in normalised form decodes to that form. A special one is
 * then no longer skipped. */
static void added_tokens_decode_to_their_form(void **state)
{
    (void)state;
    if (!SW_HAVE_UTF8PROC) {
        skip();
    }
    struct file file = plain;
    const int32_t ids[] = {300, 301, 302, 303};
    char *text;
    file.normalizer = "{\"type\":\"Lowercase\"}";
    file.added = "[{\"id\":300,\"content\":\"Hey\",\"normalized\":true,\"special\":false},"
                 "{\"id\":301,\"content\":\"YOU\",\"normalized\":false,\"special\":false},"
                 "{\"id\":302,\"content\":\"[M]\",\"normalized\":true,\"special\":true},"
                 "{\"id\":303,\"content\":\"[R]\",\"normalized\":false,\"special\":true}]";
    struct sw_tokenizer *tokenizer = open_file(&file);
    assert_int_equal(sw_tokenizer_decode(tokenizer, ids, 4, false, &text, NULL), SW_OK);
    assert_string_equal(text, "heyYOU[m][R]");
    sw_text_free(text);
    assert_int_equal(sw_tokenizer_decode(tokenizer, ids, 4, true, &text, NULL), SW_OK);
    assert_string_equal(text, "heyYOU[m]");
    sw_text_free(text);
    sw_tokenizer_close(tokenizer);
}

static void decoding_skips_special_tokens(void **state)
{
    (void)state;
    struct file file = plain;
    file.added = "[{\"id\":300,\"content\":\"<s>\",\"special\":true}," TOKEN(301, "<t>", "") "]";
    struct sw_tokenizer *tokenizer = open_file(&file);
    const int32_t ids[] = {300, 257, 301, 0xC3, 299, 258};
    char *text;
    assert_int_equal(sw_tokenizer_vocab_size(tokenizer), 302);
    assert_int_equal(sw_tokenizer_decode(tokenizer, ids, 6, false, &text, NULL), SW_OK);
    assert_string_equal(text, "<s>abc<t>\xEF\xBF\xBD");
    sw_text_free(text);
    assert_int_equal(sw_tokenizer_decode(tokenizer, ids, 3, true, &text, NULL), SW_OK);
    assert_string_equal(text, "abc<t>");
    sw_text_free(text);
    assert_int_equal(sw_tokenizer_decode(tokenizer, ids, 0, true, &text, NULL), SW_OK);
    assert_string_equal(text, "");
    sw_text_free(text);
    sw_tokenizer_close(tokenizer);
}

/* As in transformers, padding rows of an embedding are dropped before bytes are joined. */
static void ids_without_a_token_have_no_text(void **state)
{
    (void)state;
    struct sw_tokenizer *tokenizer = open_file(&plain);
    const int32_t ids[] = {258, 0xC3, 5000, 0xA9, INT32_MAX, 257, -1};
    char *text;
    size_t len;
    assert_int_equal(sw_tokenizer_decode(tokenizer, ids, 7, true, &text, NULL), SW_OK);
    assert_string_equal(text, "\xC3\xA9"
                              "abc");
    sw_text_free(text);
    assert_int_equal(sw_tokenizer_decode(tokenizer, ids, 1, false, &text, &len), SW_OK);
    assert_int_equal(len, 0);
    sw_text_free(text);
    sw_tokenizer_close(tokenizer);
}

#define SPECIALS                                                                                   \
    "[{\"id\":300,\"content\":\"<s>\",\"special\":true},"                                          \
    "{\"id\":301,\"content\":\"</s>\",\"special\":true}]"

static void check_pair(struct sw_tokenizer *tokenizer, const int32_t *ids, const int32_t *types,
                       int64_t n)
{
    struct sw_ids found = {0}, found_types = {0};
    assert_int_equal(
        sw_tokenizer_encode_pair(tokenizer, "x", 1, "y", 1, true, &found, &found_types), SW_OK);
    assert_int_equal(found.len, n);
    assert_memory_equal(found.ptr, ids, (size_t)n * sizeof(*ids));
    assert_memory_equal(found_types.ptr, types, (size_t)n * sizeof(*types));
    sw_ids_fini(&found);
    sw_ids_fini(&found_types);
    sw_tokenizer_close(tokenizer);
}

static void templates(void **state)
{
    (void)state;
    struct file file = plain;
    file.added = SPECIALS;
    check_pair(open_file(&file), (int32_t[]){'x', 'y'}, (int32_t[]){0, 1}, 2);
    file.post_processor = "{\"type\":\"RobertaProcessing\",\"sep\":[\"</s>\",301],"
                          "\"cls\":[\"<s>\",300]}";
    check_case(&file, "q", "<300>q<301>");
    check_pair(open_file(&file), (int32_t[]){300, 'x', 301, 301, 'y', 301},
               (int32_t[]){0, 0, 0, 0, 0, 0}, 6);
    file.post_processor =
        "{\"type\":\"BertProcessing\",\"sep\":[\"</s>\",301],\"cls\":[\"<s>\",300]}";
    check_pair(open_file(&file), (int32_t[]){300, 'x', 301, 'y', 301}, (int32_t[]){0, 0, 0, 1, 1},
               5);
    file.post_processor =
        "{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},"
        "{\"SpecialToken\":{\"id\":\"E\",\"type_id\":0}}],\"pair\":[{\"Sequence\":{\"id\":\"B\","
        "\"type_id\":1}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"special_tokens\":{\"E\":"
        "{\"id\":\"E\",\"ids\":[301,300],\"tokens\":[\"</s>\",\"<s>\"]}}}";
    check_case(&file, "q", "q<301><300>");
    check_pair(open_file(&file), (int32_t[]){'y', 'x'}, (int32_t[]){1, 0}, 2);
}

static void roles_of_tokens(void **state)
{
    (void)state;
    struct file file = plain;
    file.added = SPECIALS;
    struct sw_tokenizer *tokenizer = open_file(&file);
    assert_int_equal(sw_tokenizer_eos(tokenizer), 301);
    assert_int_equal(sw_tokenizer_bos(tokenizer), 300);
    assert_int_equal(sw_tokenizer_pad(tokenizer), -1);
    sw_tokenizer_close(tokenizer);
    sw_test_write_text(
        1, "tokenizer_config.json",
        "{\"eos_token\":{\"content\":\"<s>\"},\"bos_token\":null,\"pad_token\":\"</s>\"}");
    tokenizer = open_file(&file);
    assert_int_equal(sw_tokenizer_eos(tokenizer), 300);
    assert_int_equal(sw_tokenizer_pad(tokenizer), 301);
    sw_tokenizer_close(tokenizer);
    unlink(sw_test_write_text(1, "tokenizer_config.json", "{}"));
}

/* As in transformers: special_tokens_map.json has precedence, unless tokenizer_config.json has a
 * list of added tokens. The map is then not read. */
static void the_map_of_special_tokens(void **state)
{
    (void)state;
    static const struct {
        const char *settings, *map;
        int32_t eos, pad;
    } cases[] = {
        {"{\"eos_token\":\"<s>\"}", "{\"eos_token\":\"</s>\"}", 301, -1},
        {"{\"eos_token\":\"<s>\",\"pad_token\":\"<s>\"}", "{\"pad_token\":null}", 300, -1},
        {"{\"eos_token\":\"<s>\",\"added_tokens_decoder\":{}}",
         "{\"eos_token\":\"no such token\",\"pad_token\":\"<s>\"}", 300, -1},
    };
    struct file file = plain;
    file.added = SPECIALS;
    for (size_t i = 0; i < SW_LEN(cases); ++i) {
        sw_test_write_text(1, "tokenizer_config.json", cases[i].settings);
        const char *map = sw_test_write_text(2, "special_tokens_map.json", cases[i].map);
        struct sw_tokenizer *tokenizer = open_file(&file);
        assert_int_equal(sw_tokenizer_eos(tokenizer), cases[i].eos);
        assert_int_equal(sw_tokenizer_pad(tokenizer), cases[i].pad);
        sw_tokenizer_close(tokenizer);
        unlink(map);
    }
    unlink(sw_test_write_text(1, "tokenizer_config.json", "{}"));
}

/* ---- refusals ---- */

static void check_refused(const struct file *file, sw_status wanted, const char *named)
{
    struct sw_tokenizer *tokenizer;
    const sw_status st = sw_tokenizer_open(write_file(file), NULL, &tokenizer);
    if (st != wanted || !strstr(sw_error_message(), named) ||
        !strstr(sw_error_message(), "tokenizer.json")) {
        fail_msg("wanted %d with '%s', found %d: %s", wanted, named, st, sw_error_message());
    }
}

static void what_is_not_built_is_named(void **state)
{
    (void)state;
    static const struct {
        size_t field;
        const char *text, *named;
    } cases[] = {
        {offsetof(struct file, normalizer), "{\"type\":\"Other\"}", "normalizer Other"},
        {offsetof(struct file, pre_tokenizer), "{\"type\":\"Delimiter\"}", "Delimiter"},
        {offsetof(struct file, pre_tokenizer),
         "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"ByteLevel\"},"
         "{\"type\":\"Digits\"}]}",
         "ByteLevel before another one"},
        {offsetof(struct file, post_processor), "{\"type\":\"Other\"}", "Other"},
        {offsetof(struct file, decoder), "{\"type\":\"WordPiece\"}", "decoder WordPiece"},
        {offsetof(struct file, decoder), "{\"type\":\"CTC\"}", "decoder CTC"},
        {offsetof(struct file, model), "\"byte_fallback\":true,", "byte_fallback"},
        {offsetof(struct file, model), "\"dropout\":0.1,", "dropout"},
    };
    for (size_t i = 0; i < SW_LEN(cases); ++i) {
        struct file file = plain;
        *(const char **)((char *)&file + cases[i].field) = cases[i].text;
        check_refused(&file, SW_E_UNSUP, cases[i].named);
    }
}

static void damaged_files_are_named(void **state)
{
    (void)state;
    struct file file = plain;
    file.added = "[" TOKEN(5, "<x>", "") "]"; /* the id of a letter */
    check_refused(&file, SW_E_FORMAT, "<x>");
    file.added = "[" TOKEN(300, "", "") "]";
    check_refused(&file, SW_E_FORMAT, "empty");
    file.added = "[" TOKEN(99999999, "<x>", "") "]";
    check_refused(&file, SW_E_FORMAT, "99999999");
    file = plain;
    file.model = "\"unk_token\":\"none\",";
    check_refused(&file, SW_E_FORMAT, "none");
    file = plain;
    file.post_processor = "{\"type\":\"BertProcessing\",\"sep\":[\"x\",999],\"cls\":[\"y\",998]}";
    check_refused(&file, SW_E_FORMAT, "998");
}

static void folders_without_a_tokenizer(void **state)
{
    (void)state;
    struct sw_tokenizer *tokenizer;
    struct sw_str folder = {0}, file = {0};
    sw_str_printf(&folder, "%s/none", test_folder());
    assert_int_equal(sw_tokenizer_open(folder.ptr, NULL, &tokenizer), SW_E_IO);
    assert_non_null(strstr(sw_error_message(), folder.ptr));
    assert_int_equal(sw_mkdirs(folder.ptr), SW_OK);
    assert_int_equal(sw_tokenizer_open(folder.ptr, NULL, &tokenizer), SW_E_IO);
    assert_non_null(strstr(sw_error_message(), "vocab.json"));
    sw_str_printf(&file, "%s/source.spm", folder.ptr);
    assert_int_equal(sw_file_write_atomic(file.ptr, "x", 1), SW_OK);
    assert_int_equal(sw_tokenizer_open(folder.ptr, NULL, &tokenizer), SW_E_IO);
    assert_non_null(strstr(sw_error_message(), "target.spm"));
    sw_str_clear(&file);
    sw_str_printf(&file, "%s/spiece.model", folder.ptr);
    assert_int_equal(sw_file_write_atomic(file.ptr, "x", 1), SW_OK);
    assert_int_equal(sw_tokenizer_open(folder.ptr, NULL, &tokenizer), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "spiece.model"));
    sw_str_fini(&folder);
    sw_str_fini(&file);
}

/* ---- files, lines ---- */

static void saving_and_opening_again(void **state)
{
    (void)state;
    struct sw_str folder = {0};
    struct file file = plain;
    struct sw_tokenizer *tokenizer, *again;
    file.added = SPECIALS;
    tokenizer = open_file(&file);
    sw_str_printf(&folder, "%s/saved", test_folder());
    assert_int_equal(sw_mkdirs(folder.ptr), SW_OK);
    assert_int_equal(sw_tokenizer_save(tokenizer, folder.ptr), SW_OK);
    assert_int_equal(sw_tokenizer_open(folder.ptr, NULL, &again), SW_OK);
    check_encode(again, "abc</s>", "<257><301>");
    assert_int_equal(sw_tokenizer_vocab_size(again), 302);
    sw_tokenizer_close(tokenizer);
    sw_tokenizer_close(again);
    sw_str_fini(&folder);
}

static void vocab_and_merges(void **state)
{
    (void)state;
    struct sw_tokenizer *tokenizer;
    sw_test_write_text(1, "encoder.json",
                       "{\"a\":0,\"b\":1,\"ab\":2,\"\\u0120\":3,\"<|endoftext|>\":4}");
    const char *path = sw_test_write_text(2, "vocab.bpe", "#version: 0.2\na b\n");
    assert_int_equal(sw_tokenizer_open(path, NULL, &tokenizer), SW_OK);
    struct sw_ids ids = {0};
    assert_int_equal(sw_tokenizer_encode(tokenizer, "ab<|endoftext|> a", 17, true, &ids), SW_OK);
    assert_int_equal(ids.len, 4);
    assert_memory_equal(ids.ptr, ((int32_t[]){2, 4, 3, 0}), 4 * sizeof(int32_t));
    assert_int_equal(sw_tokenizer_eos(tokenizer), 4);
    sw_ids_fini(&ids);
    sw_tokenizer_close(tokenizer);
    sw_test_write_text(2, "vocab.bpe", "a b\na z\n");
    assert_int_equal(sw_tokenizer_open(path, NULL, &tokenizer), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "vocab.bpe:2"));
    sw_test_write_text(2, "vocab.bpe", "ab\n");
    assert_int_equal(sw_tokenizer_open(path, NULL, &tokenizer), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "vocab.bpe:1"));
}

/* second: NULL if there is none. prompt: the text will be continued. */
static const char prompt[] = "";

static void check_ids(const char *folder, const char *text, const char *second, const char *wanted)
{
    struct sw_tokenizer *tokenizer;
    struct sw_ids ids = {0};
    struct sw_str found = {0};
    assert_int_equal(sw_tokenizer_open(folder, NULL, &tokenizer), SW_OK);
    const size_t n = strlen(text), n_second = second ? strlen(second) : 0;
    sw_status st = SW_OK;
    if (second == prompt) {
        st = sw_tokenizer_encode_prompt(tokenizer, text, n, &ids);
    } else if (second) {
        st = sw_tokenizer_encode_pair(tokenizer, text, n, second, n_second, true, &ids, NULL);
    } else {
        st = sw_tokenizer_encode(tokenizer, text, n, true, &ids);
    }
    assert_int_equal(st, SW_OK);
    for (int64_t i = 0; i < ids.len; i++) {
        sw_str_printf(&found, "%s%d", i ? " " : "", ids.ptr[i]);
    }
    assert_string_equal(sw_str_text(&found), wanted);
    sw_str_fini(&found);
    sw_ids_fini(&ids);
    sw_tokenizer_close(tokenizer);
}

static void count_lines(void *ctx, enum sw_log_level level, const char *text)
{
    (void)level;
    (void)text;
    ++*(int *)ctx;
}

/* These keys do not set the length of rows, so there is no warning. */
static void blocks_for_batches_are_no_reason_to_warn(void **state)
{
    (void)state;
    int n_lines = 0;
    struct file file = plain;
    struct sw_tokenizer *tokenizer;
    sw_log_set_sink(count_lines, &n_lines);
    file.top = "\"truncation\":{\"direction\":\"Right\",\"max_length\":2,\"strategy\":"
               "\"LongestFirst\",\"stride\":0},\"padding\":{\"strategy\":{\"Fixed\":9},"
               "\"direction\":\"Left\",\"pad_to_multiple_of\":null,\"pad_id\":0,\"pad_type_id\":0,"
               "\"pad_token\":\"a\"},";
    tokenizer = open_file(&file);
    check_encode(tokenizer, "xyzx", "xyzx");
    assert_false(tokenizer->cut_left);
    sw_tokenizer_close(tokenizer);
    file.top = "\"truncation\":{\"direction\":\"Left\",\"max_length\":2},\"padding\":null,";
    tokenizer = open_file(&file);
    assert_true(tokenizer->cut_left);
    sw_tokenizer_close(tokenizer);
    file.top = "\"truncation\":{\"direction\":\"Up\"},";
    assert_int_equal(sw_tokenizer_open(write_file(&file), NULL, &tokenizer), SW_E_FORMAT);
    assert_non_null(
        strstr(sw_error_message(), "truncation.direction is 'Up', wanted left or right"));
    sw_log_set_sink(NULL, NULL);
    assert_int_equal(n_lines, 0);
}

/* Ids that transformers 5's AutoTokenizer gave for the same files. */
static void the_class_of_a_pair_is_that_of_its_settings_or_model(void **state)
{
    (void)state;
    static const char opt[] = "{\"tokenizer_class\": \"GPT2Tokenizer\", \"add_bos_token\": true, "
                              "\"bos_token\": \"</s>\", \"eos_token\": {\"content\": \"</s>\"}, "
                              "\"unk_token\": \"</s>\", \"pad_token\": \"<pad>\"}";
    static const struct {
        const char *model, *settings; /* config.json, tokenizer_config.json */
        const char *plain, *marked, *digits, *pair, *prompt;
    } cases[] = {
        {"{\"model_type\": \"bart\"}", "{}", "0 6 8 2", "0 2 6 2", "0 6 11 7 0 4 2", "0 6 2 2 4 2",
         "0 6 8"},
        {"{}", "{\"tokenizer_class\": \"RobertaTokenizerFast\"}", "0 6 8 2", "0 2 6 2",
         "0 6 11 7 0 4 2", "0 6 2 2 4 2", "0 6 8"},
        {"{\"model_type\": \"roberta\"}", "{\"cls_token\": \"<pad>\", \"sep_token\": \"<unk>\"}",
         "1 6 8 3", "1 2 6 3", "1 6 11 7 0 4 3", "1 6 3 3 4 3", "1 6 8"},
        {"{\"model_type\": \"roberta\"}", "{\"tokenizer_class\": \"GPT2Tokenizer\"}", "6 8", "6",
         "6 11 7 4", "6 4", "6 8"},
        {"{\"model_type\": \"opt\"}", opt, "2 6 8", "2 2 6", "2 6 11 7 4", "2 6 2 4", "2 6 8"},
        {"{\"model_type\": \"opt\"}", "{}", "6 8", "6", "6 11 7 4", "6 4", "6 8"},
        {"{}", "{\"add_eos_token\": true}", "6 8 19", "6 19", "6 11 7 4 19", "6 19 4 19", "6 8"},
#if SW_HAVE_UTF8PROC
        {"{\"model_type\": \"qwen3\"}", "{}", "6 8", "6", "6 9 10 7 4", "6 4", "6 8"},
#endif
    };
    struct sw_str folder = {0};
    sw_str_printf(&folder, "%s/pair", test_folder());
    assert_int_equal(mkdir(folder.ptr, 0700), 0);
    sw_test_write_text(0, "pair/vocab.json",
                       "{\"<s>\":0,\"<pad>\":1,\"</s>\":2,\"<unk>\":3,\"a\":4,\"b\":5,\"ab\":6,"
                       "\"\\u0120\":7,\"\\u0120a\":8,\"1\":9,\"2\":10,\"12\":11,\"<mask>\":12,"
                       "\"<|endoftext|>\":19}");
    sw_test_write_text(1, "pair/merges.txt", "#version: 0.2\na b\n\xC4\xA0 a\n1 2\n");
    for (size_t i = 0; i < SW_LEN(cases); ++i) {
        sw_test_write_text(2, "pair/config.json", cases[i].model);
        sw_test_write_text(3, "pair/tokenizer_config.json", cases[i].settings);
        check_ids(folder.ptr, "ab a", NULL, cases[i].plain);
        check_ids(folder.ptr, "</s>ab", NULL, cases[i].marked);
        check_ids(folder.ptr, "ab12 <s>a", NULL, cases[i].digits);
        check_ids(folder.ptr, "ab", "a", cases[i].pair);
        check_ids(folder.ptr, "ab a", prompt, cases[i].prompt);
    }
    struct sw_tokenizer *tokenizer;
    sw_test_write_text(0, "pair/vocab.json", "{\"a\":4,\"b\":5,\"ab\":6}");
    sw_test_write_text(1, "pair/merges.txt", "a b\n");
    sw_test_write_text(2, "pair/config.json", "{\"model_type\": \"bart\"}");
    sw_test_write_text(3, "pair/tokenizer_config.json", "{}");
    assert_int_equal(sw_tokenizer_open(folder.ptr, NULL, &tokenizer), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "pair/vocab.json: RoBERTa's class puts <s>"));
    sw_test_write_text(2, "pair/config.json", "{}");
    sw_test_write_text(3, "pair/tokenizer_config.json", "{\"add_bos_token\": true}");
    assert_int_equal(sw_tokenizer_open(folder.ptr, NULL, &tokenizer), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "pair/vocab.json: add_bos_token is requested"));
    sw_str_fini(&folder);
}

/* Regression: keys were read from a list where an object is wanted. */
static void damaged_settings_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *settings, *named;
    } cases[] = {
        {"{\"added_tokens_decoder\": [1]}", "added_tokens_decoder is an array"},
        {"{\"added_tokens_decoder\": 7}", "added_tokens_decoder is"},
        {"{\"added_tokens_decoder\": {\"1\": 2}}", "added token 1 is"},
        {"{\"added_tokens_decoder\": {\"x\": {}}}", "'x' is not an id"},
        {"{\"added_tokens_decoder\": {\"99999999999999999999\": {}}}", "is not an id"},
        {"{\"added_tokens_decoder\": {\"1\": {\"content\": 1}}}", "content is"},
        {"[]", "wanted an object"},
    };
    sw_test_write_text(1, "encoder.json", "{\"a\":0,\"b\":1,\"ab\":2}");
    const char *path = sw_test_write_text(2, "vocab.bpe", "a b\n");
    for (size_t i = 0; i < SW_LEN(cases); ++i) {
        struct sw_tokenizer *tokenizer;
        sw_test_write_text(3, "tokenizer_config.json", cases[i].settings);
        const sw_status st = sw_tokenizer_open(path, NULL, &tokenizer);
        if (st != SW_E_FORMAT || !strstr(sw_error_message(), "tokenizer_config.json") ||
            !strstr(sw_error_message(), cases[i].named)) {
            fail_msg("%s: %d %s", cases[i].settings, st, sw_error_message());
        }
    }
    struct sw_tokenizer *tokenizer;
    const char *settings = sw_test_write_text(
        3, "tokenizer_config.json", "{\"added_tokens_decoder\": null, \"eos_token\": \"ab\"}");
    assert_int_equal(sw_tokenizer_open(path, NULL, &tokenizer), SW_OK);
    assert_int_equal(sw_tokenizer_eos(tokenizer), 2);
    sw_tokenizer_close(tokenizer);
    assert_int_equal(unlink(settings), 0);
}

/* Covers spaces before a word, marks that a normalizer removes, and bytes of one character. */
static void tokens_know_their_characters(void **state)
{
    (void)state;
    static const char json[] =
        "{\"version\": \"1.0\", \"added_tokens\": [], \"normalizer\": null, \"pre_tokenizer\": "
        "{\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"use_regex\": true}, "
        "\"post_processor\": null, \"decoder\": {\"type\": \"ByteLevel\"}, \"model\": {\"type\": "
        "\"BPE\", \"vocab\": {\"\u0120\": 0, \"a\": 1, \"b\": 2, \"\u00C3\": 3, \"\u00A9\": 4, "
        "\"\u0120a\": 5}, \"merges\": [\"\u0120 a\"]}}";
    static const int32_t ids[] = {5, 2, 5, 0, 3, 4}, begins[] = {0, 1, 3, 4, 5, 5},
                         ends[] = {1, 2, 4, 5, 6, 6};
    struct sw_ids found = {0}, b = {0}, e = {0};
    struct sw_tokenizer *tokenizer;
    const char *path = sw_test_write_text(0, "tokenizer.json", json);
    assert_int_equal(sw_tokenizer_open(path, NULL, &tokenizer), SW_OK);
    assert_int_equal(
        tokenizer->ops->special->encode_offsets(tokenizer, "ab a \xC3\xA9", 7, &found, &b, &e),
        SW_OK);
    assert_int_equal(found.len, 6);
    assert_memory_equal(found.ptr, ids, sizeof ids);
    assert_memory_equal(b.ptr, begins, sizeof begins);
    assert_memory_equal(e.ptr, ends, sizeof ends);
    sw_ids_fini(&found);
    sw_ids_fini(&b);
    sw_ids_fini(&e);
    sw_tokenizer_close(tokenizer);
}

/* The rules of a small BPE, owned by the caller. */
struct small {
    const char *top, *added, *normalizer, *words, *model, *merges;
};

static char *rules_of(const struct small *file)
{
    struct sw_str text = {0}, rules = {0};
    struct sw_tokenizer *tokenizer;
    sw_str_printf(&text,
                  "{\"version\": \"1.0\", %s\"added_tokens\": [%s], \"normalizer\": %s, "
                  "\"pre_tokenizer\": %s, \"model\": {\"type\": \"BPE\", %s\"vocab\": {\"a\": 0, "
                  "\"b\": 1, \"ab\": 2, \"ba\": 3}, \"merges\": [%s]}}",
                  file->top, file->added, file->normalizer, file->words, file->model, file->merges);
    const char *path = sw_test_write_text(0, "tokenizer.json", text.ptr);
    if (sw_tokenizer_open(path, NULL, &tokenizer) < 0) {
        fail_msg("%s: %s", text.ptr, sw_error_message());
    }
    assert_int_equal(sw_tokenizer_put_rules(tokenizer, &rules), SW_OK);
    sw_tokenizer_close(tokenizer);
    sw_str_fini(&text);
    return rules.ptr;
}

/* A resumed run needs the same ids, so rules have all that changes them, and nothing else. */
static void other_rules_are_another_text(void **state)
{
    (void)state;
    static const char merges[] = "\"a b\", \"b a\"";
    static const struct small same[] = {
        {"", "", "null", "null", "", merges},
        {"\n", "", "null", "null", "\"dropout\": null, ", "[\"a\",\"b\"],[\"b\",\"a\"]"},
        {"\"padding\": null, \"decoder\": {\"type\": \"Fuse\"}, ", "", "null", "null", "", merges}};
    static const struct small others[] = {
        {"", "", "null", "null", "", "\"b a\", \"a b\""},
        {"", "", "null", "null", "\"ignore_merges\": true, ", merges},
        {"", "", "{\"type\": \"Lowercase\"}", "null", "", merges},
        {"", "", "null", "{\"type\": \"Digits\", \"individual_digits\": true}", "", merges},
        {"", "{\"id\": 2, \"content\": \"ab\"}", "null", "null", "", merges},
        {"", "{\"id\": 2, \"content\": \"ab\", \"lstrip\": true}", "null", "null", "", merges}};
    char *texts[SW_LEN(others) + 1];
    texts[0] = rules_of(&same[0]);
    for (size_t i = 1; i < SW_LEN(same); i++) {
        char *text = rules_of(&same[i]);
        assert_string_equal(text, texts[0]);
        sw_free(text);
    }
    for (size_t i = 1; i <= SW_LEN(others); i++) {
        texts[i] = rules_of(&others[i - 1]);
        for (size_t k = 0; k < i; k++) {
            assert_string_not_equal(texts[k], texts[i]);
        }
    }
    for (size_t i = 0; i <= SW_LEN(others); i++) {
        sw_free(texts[i]);
    }
}

static void failing_allocations(void **state)
{
    (void)state;
    struct file file = plain;
    file.added = SPECIALS;
    file.normalizer = SW_HAVE_UTF8PROC ? "{\"type\":\"NFC\"}" : "null";
    sw_test_failing_allocations(write_file(&file), "abc e\xCC\x81");
}

static void without_pcre2_the_message_says_what_to_install(void **state)
{
    (void)state;
    struct sw_tokenizer *tokenizer;
    assert_int_equal(sw_tokenizer_open(write_file(&plain), NULL, &tokenizer), SW_E_UNSUP);
    assert_non_null(strstr(sw_error_message(), "libpcre2-dev"));
}

static const struct CMUnitTest tests[] = {
    TEST_IF(SW_HAVE_PCRE2, merges_and_words),
    TEST_IF(SW_HAVE_PCRE2, split_behaviors),
    TEST_IF(SW_HAVE_PCRE2, digits),
    TEST_IF(SW_HAVE_PCRE2, normalizers),
    TEST_IF(SW_HAVE_PCRE2, added_tokens),
    TEST_IF(SW_HAVE_PCRE2, added_tokens_after_the_normalizer),
    TEST_IF(SW_HAVE_PCRE2, added_tokens_decode_to_their_form),
    TEST_IF(SW_HAVE_PCRE2, decoding_skips_special_tokens),
    TEST_IF(SW_HAVE_PCRE2, ids_without_a_token_have_no_text),
    TEST_IF(SW_HAVE_PCRE2, templates),
    TEST_IF(SW_HAVE_PCRE2, roles_of_tokens),
    TEST_IF(SW_HAVE_PCRE2, the_map_of_special_tokens),
    TEST_IF(SW_HAVE_PCRE2, what_is_not_built_is_named),
    TEST_IF(SW_HAVE_PCRE2, damaged_files_are_named),
    TEST_IF(SW_HAVE_PCRE2, saving_and_opening_again),
    TEST_IF(SW_HAVE_PCRE2, vocab_and_merges),
    TEST_IF(SW_HAVE_PCRE2, blocks_for_batches_are_no_reason_to_warn),
    TEST_IF(SW_HAVE_PCRE2, the_class_of_a_pair_is_that_of_its_settings_or_model),
    TEST_IF(SW_HAVE_PCRE2, damaged_settings_are_named),
    TEST_IF(SW_HAVE_PCRE2, tokens_know_their_characters),
    TEST_IF(SW_HAVE_PCRE2, other_rules_are_another_text),
    TEST_IF(SW_HAVE_PCRE2, failing_allocations),
    cmocka_unit_test(folders_without_a_tokenizer),
    TEST_IF(!SW_HAVE_PCRE2, without_pcre2_the_message_says_what_to_install),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
