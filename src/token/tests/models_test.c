// SPDX-License-Identifier: Apache-2.0
// Models other than byte-level BPE, from small files made here: tokenizer.json with Unigram,
// WordPiece and BPE of characters, BERT's vocab.txt, and SentencePiece models. Each by the rule
// that it follows; what is refused, and how the message names it.
#include "token/tests/failing.h"
#include "token/token.h"

#include "support/files.h"
#include "support/test.h"
#include "token/prefix.h"
#include "token/tokenizer.h"

#include <unistd.h>

#define MARK "\xE2\x96\x81"

/* ---- checks ---- */

static struct sw_tokenizer *open_path(const char *path)
{
    struct sw_tokenizer *tokenizer = NULL;
    if (sw_tokenizer_open(path, NULL, &tokenizer) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return tokenizer;
}

/* The tokens of a text, joined by "|". */
static void check_tokens(struct sw_tokenizer *tokenizer, const char *text, const char *wanted)
{
    struct sw_ids ids = {0};
    struct sw_str found = {0};
    if (sw_tokenizer_encode(tokenizer, text, strlen(text), true, &ids) < 0) {
        fail_msg("%s", sw_error_message());
    }
    for (int64_t i = 0; i < ids.len; ++i) {
        sw_str_puts(&found, i > 0 ? "|" : "");
        sw_str_puts(&found, sw_tokenizer_token(tokenizer, ids.ptr[i], NULL));
    }
    assert_string_equal(sw_str_text(&found), wanted);
    sw_ids_fini(&ids);
    sw_str_fini(&found);
}

static void check_text(struct sw_tokenizer *tokenizer, const char *const *tokens, int n,
                       const char *wanted)
{
    int32_t ids[16];
    char *text;
    for (int i = 0; i < n; ++i) {
        ids[i] = sw_tokenizer_find(tokenizer, tokens[i]);
        assert_true(ids[i] >= 0);
    }
    assert_int_equal(sw_tokenizer_decode(tokenizer, ids, n, true, &text, NULL), SW_OK);
    assert_string_equal(text, wanted);
    sw_text_free(text);
}

static void check_refused(const char *path, sw_status wanted, const char *named)
{
    struct sw_tokenizer *tokenizer;
    const sw_status st = sw_tokenizer_open(path, NULL, &tokenizer);
    if (st != wanted || !strstr(sw_error_message(), named)) {
        fail_msg("wanted %d with '%s', found %d: %s", wanted, named, st,
                 st < 0 ? sw_error_message() : "opened");
    }
}

/* ---- tokenizer.json ---- */

static const char *write_json(const char *steps, const char *model)
{
    struct sw_str text = {0};
    sw_str_printf(&text, "{\"version\":\"1.0\",%s\"model\":%s}", steps, model);
    const char *path = sw_test_write(0, "tokenizer.json", text.ptr, text.len);
    sw_str_fini(&text);
    return path;
}

static struct sw_tokenizer *open_json(const char *steps, const char *model)
{
    return open_path(write_json(steps, model));
}

/* "abc" as a and bc costs 3 + 1, as ab and c 1 + 4: the first one. */
#define UNIGRAM(more)                                                                              \
    "{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",-3],[\"b\",-3],"           \
    "[\"c\",-4],[\"ab\",-1],[\"bc\",-1],[\"" MARK "a\",-2]" more "]"

static void unigram_takes_the_best_way(void **state)
{
    (void)state;
    struct sw_tokenizer *tokenizer = open_json("", UNIGRAM("") "}");
    assert_string_equal(sw_tokenizer_kind(tokenizer), "Unigram");
    check_tokens(tokenizer, "abc", "a|bc");
    check_tokens(tokenizer, "ab", "ab");
    check_tokens(tokenizer, "abab", "ab|ab");
    check_tokens(tokenizer, "", "");
    check_tokens(tokenizer, "axyb", "a|<unk>|b"); /* neighbours are one unknown */
    sw_tokenizer_close(tokenizer);
    tokenizer = open_json("\"pre_tokenizer\":{\"type\":\"Metaspace\",\"prepend_scheme\":\"first\"},"
                          "\"decoder\":{\"type\":\"Metaspace\"},",
                          UNIGRAM("") "}");
    check_tokens(tokenizer, "a bca", MARK "a|<unk>|bc|a");
    check_text(tokenizer, (const char *[]){MARK "a", "b", MARK "a"}, 3, "ab a");
    sw_tokenizer_close(tokenizer);
    tokenizer =
        open_json("", UNIGRAM(",[\"<0xC3>\",-9],[\"<0xA9>\",-9]") ",\"byte_fallback\":true}");
    check_tokens(tokenizer, "a\xC3\xA9", "a|<0xC3>|<0xA9>");
    check_tokens(tokenizer, "a\xC3\xA8", "a|<unk>"); /* one of its bytes has no token */
    sw_tokenizer_close(tokenizer);
}

#define WORDS                                                                                      \
    "{\"type\":\"WordPiece\",\"unk_token\":\"[UNK]\",\"continuing_subword_prefix\":\"##\","        \
    "\"max_input_chars_per_word\":6,\"vocab\":{\"[UNK]\":0,\"un\":1,\"##aff\":2,\"##able\":3,"     \
    "\"##a\":4,\"a\":5,\".\":6}}"

static void wordpiece_takes_the_longest_beginning(void **state)
{
    (void)state;
    struct sw_tokenizer *tokenizer = open_json(
        "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},\"decoder\":{\"type\":\"WordPiece\"},",
        WORDS);
    check_tokens(tokenizer, "unaff a.a", "un|##aff|a|.|a");
    check_tokens(tokenizer, "una unx", "un|##a|[UNK]");
    check_tokens(tokenizer, "unaaaa unaaaaa",
                 "un|##a|##a|##a|##a|[UNK]"); /* six characters at most */
    check_text(tokenizer, (const char *[]){"un", "##aff", ".", "a"}, 4, "unaff. a");
    sw_tokenizer_close(tokenizer);
}

#define CHARS(more)                                                                                \
    "{\"type\":\"BPE\"," more "\"unk_token\":\"<unk>\",\"vocab\":{\"<unk>\":0,\"" MARK             \
    "\":1,\"a\":2,"                                                                                \
    "\"b\":3,\"ab\":4,\"" MARK "ab\":5,\"<0xC3>\":6,\"<0xA9>\":7},\"merges\":[\"a b\",\"" MARK     \
    " ab\"]}"
#define REPLACE(what, by)                                                                          \
    "{\"type\":\"Replace\",\"pattern\":{\"String\":\"" what "\"},\"content\":\"" by "\"}"
#define LLAMA                                                                                      \
    "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\","                \
    "\"prepend\":\"" MARK "\"}," REPLACE(                                                          \
        " ", MARK) "]},"                                                                           \
                   "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[" REPLACE(                    \
                       MARK,                                                                       \
                       " ") ","                                                                    \
                            "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\"," \
                            "\"content\":\" \",\"start\":1,\"stop\":0}]},"

/* The form of LLaMA's and Mistral's folders; it needs no library. */
static void bpe_of_characters(void **state)
{
    (void)state;
    struct sw_tokenizer *tokenizer = open_json(LLAMA, CHARS("\"byte_fallback\":true,"));
    assert_string_equal(sw_tokenizer_kind(tokenizer), "BPE");
    check_tokens(tokenizer, "ab a", MARK "ab|" MARK "|a");
    check_tokens(tokenizer, "a\xC3\xA9", MARK "|a|<0xC3>|<0xA9>");
    check_tokens(tokenizer, "xy", MARK "|<unk>|<unk>");
    check_text(tokenizer, (const char *[]){MARK "ab", "<0xC3>", "<0xA9>", MARK, "a"}, 5,
               "ab\xC3\xA9 a");
    check_text(tokenizer, (const char *[]){"<0xC3>", "a"}, 2,
               "\xEF\xBF\xBD"
               "a");
    sw_tokenizer_close(tokenizer);
    tokenizer = open_json(LLAMA, CHARS("\"fuse_unk\":true,"));
    check_tokens(tokenizer, "xya", MARK "|<unk>|a");
    sw_tokenizer_close(tokenizer);
}

/* ---- recorded from the library tokenizers 0.23 ---- */

#define SUFFIXED(more) "{\"type\":\"BPE\"," more "\"end_of_word_suffix\":\"</w>\",\"vocab\":"

#define AFFIXED "\"continuing_subword_prefix\":\"##\","
#define AFFIXED_UNKNOWN SUFFIXED("\"unk_token\":\"<unk>\"," AFFIXED)

static void bpe_of_words_with_affixes(void **state)
{
    (void)state;
    static const char words[] = "\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"},"
                                "\"decoder\":{\"type\":\"BPEDecoder\"},";
    static const char model[] = AFFIXED_UNKNOWN
        "{\"<unk>\":0,\"a\":1,\"b\":2,\"##b\":3,\"b</w>\":4,\"##b</w>\":5,\"a</w>\":6,"
        "\"ab</w>\":7,\"##a\":8,\"ab\":9,\"a##b\":10},"
        "\"merges\":[\"a ##b\",\"a ##b</w>\"]}";
    static const char wrong[] =
        SUFFIXED(AFFIXED) "{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}";
    struct sw_tokenizer *tokenizer = open_json(words, model);
    check_tokens(tokenizer, "ab a b aba", "ab</w>|a</w>|b</w>|ab|<unk>");
    check_tokens(tokenizer, "abb ax xb x", "ab|##b</w>|a|<unk>|<unk>|##b</w>|<unk>");
    check_tokens(tokenizer, "bab", "b|##a|##b</w>");
    check_text(tokenizer, (const char *[]){"ab</w>", "a</w>", "b</w>", "ab", "<unk>"}, 5,
               "ab a b ab<unk>");
    check_text(tokenizer, (const char *[]){"b</w>", "a</w>"}, 2, "b a");
    sw_tokenizer_close(tokenizer);
    check_refused(write_json("", wrong), SW_E_FORMAT,
                  "merge 0: 'b' does not begin with the continuing_subword_prefix");
}

/* The form of CLIP's folders. */
static void bpe_of_bytes_with_a_suffix(void **state)
{
    (void)state;
    static const char words[] =
        "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
        "{\"type\":\"WhitespaceSplit\"},"
        "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]},"
        "\"decoder\":{\"type\":\"ByteLevel\"},";
    static const char model[] =
        SUFFIXED("") "{\"a\":0,\"b\":1,\"\\u00c3\":2,\"\\u00a9</w>\":3,\"b</w>\":4,"
                     "\"ab</w>\":5,\"a</w>\":6},\"merges\":[\"a b</w>\"]}";
    struct sw_tokenizer *tokenizer = open_json(words, model);
    check_tokens(tokenizer, "ab abb a", "ab</w>|a|b|b</w>|a</w>");
    check_tokens(tokenizer,
                 "a\xC3\xA9 \xC3\xA9"
                 "a",
                 "a|\xC3\x83|\xC2\xA9</w>|\xC3\x83|a</w>");
    check_text(tokenizer, (const char *[]){"ab</w>", "a", "b</w>"}, 3, "ab</w>ab</w>");
    sw_tokenizer_close(tokenizer);
}

static void word_level_takes_whole_words(void **state)
{
    (void)state;
    struct sw_ids ids = {0};
    struct sw_tokenizer *tokenizer = open_json(
        "\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"},",
        "{\"type\":\"WordLevel\",\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"ab\":1,\"a\":2}}");
    assert_string_equal(sw_tokenizer_kind(tokenizer), "WordLevel");
    check_tokens(tokenizer, "ab a abc  \xC3\xA9", "ab|a|?|?");
    check_text(tokenizer, (const char *[]){"ab", "?", "a"}, 3, "ab ? a");
    sw_tokenizer_close(tokenizer);
    tokenizer = open_json("\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"},",
                          "{\"type\":\"WordLevel\",\"unk_token\":\"?\",\"vocab\":{\"ab\":1}}");
    check_tokens(tokenizer, "ab", "ab");
    assert_int_equal(sw_tokenizer_encode(tokenizer, "ab cd", 5, true, &ids), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "'cd'"));
    sw_tokenizer_close(tokenizer);
    sw_ids_fini(&ids);
    check_refused(write_json("", "{\"type\":\"WordLevel\",\"vocab\":{\"a\":0}}"), SW_E_FORMAT,
                  "unk_token is missing");
}

/* Words as the pre-tokenizer leaves them: a vocabulary of them all, between bars. */
static void words_change_with_the_script(void **state)
{
    (void)state;
    static const char scripts[] = "\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"},";
    struct sw_tokenizer *tokenizer = open_json(
        scripts, "{\"type\":\"WordLevel\",\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"ab\":1,\", \":2,"
                 "\"cd \":3,\"\\u03b1 \\u03b2\":4,\"\\u30a2\\u6f22\\u30fc\\u3042 \":5,\"x\":6}}");
    check_tokens(tokenizer,
                 " ab, cd \xCE\xB1 \xCE\xB2\xE3\x82\xA2\xE6\xBC\xA2\xE3\x83\xBC\xE3\x81\x82 x",
                 "ab|, |cd |\xCE\xB1 \xCE\xB2|\xE3\x82\xA2\xE6\xBC\xA2\xE3\x83\xBC\xE3\x81\x82 |x");
    check_tokens(tokenizer, "  ", ""); /* a text without any script has no word */
    check_tokens(tokenizer, "\xF3\xB0\x80\x80x", "x");
    sw_tokenizer_close(tokenizer);
}

static void nmt_cleans_white_space_and_control(void **state)
{
    (void)state;
    struct sw_tokenizer *tokenizer = open_json(
        "\"normalizer\":{\"type\":\"Nmt\"},",
        "{\"type\":\"WordLevel\",\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"a b  c\":1,\"\\u00a0\":2,"
        "\"\\u0000a\":3}}");
    check_tokens(tokenizer,
                 "a\tb\xE2\x80\x8B\xEF\xBB\xBF\x01\x7F\xC2\x8F"
                 "c",
                 "a b  c");
    check_tokens(tokenizer,
                 "a\nb\xE2\x96\x81\xEF\xBF\xBD\x0B"
                 "c",
                 "a b  c");
    check_tokens(tokenizer, "\xC2\xA0", "\xC2\xA0"); /* stays, and so does a NUL */
    struct sw_ids ids = {0};
    assert_int_equal(sw_tokenizer_encode(tokenizer, "\0a", 2, true, &ids), SW_OK);
    assert_int_equal(ids.ptr[0], 3);
    sw_ids_fini(&ids);
    sw_tokenizer_close(tokenizer);
}

static void what_json_may_not_say(void **state)
{
    (void)state;
    check_refused(write_json("", "{\"type\":\"Other\",\"vocab\":{}}"), SW_E_UNSUP, "model Other");
    check_refused(write_json("\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"use_regex\":false},",
                             UNIGRAM("") "}"),
                  SW_E_UNSUP, "Unigram after the pre_tokenizer ByteLevel");
    check_refused(write_json("", "{\"type\":\"Unigram\",\"unk_id\":9,\"vocab\":[[\"a\",1]]}"),
                  SW_E_FORMAT, "unk_id 9");
    check_refused(write_json("", "{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}"), SW_E_FORMAT,
                  "[text, score]");
    check_refused(write_json("", "{\"type\":\"WordPiece\",\"vocab\":{\"a\":0}}"), SW_E_FORMAT,
                  "unk_token");
    check_refused(write_json("\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"__\"},",
                             UNIGRAM("") "}"),
                  SW_E_FORMAT, "'__' is not one character");
    check_refused(write_json("\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":"
                             "\"?\"},",
                             UNIGRAM("") "}"),
                  SW_E_FORMAT, "base64");
    check_refused(write_json("\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":"
                             "\"AAAA\"},",
                             UNIGRAM("") "}"),
                  SW_E_FORMAT, "precompiled_charsmap");
    /* no token for what is unknown: the text is refused, not cut */
    struct sw_tokenizer *tokenizer = open_json("", "{\"type\":\"Unigram\",\"vocab\":[[\"a\",-1]]}");
    struct sw_ids ids = {0};
    assert_int_equal(sw_tokenizer_encode(tokenizer, "ab", 2, true, &ids), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "'b'"));
    sw_ids_fini(&ids);
    sw_tokenizer_close(tokenizer);
}

/* ---- cleaning a decoded text ---- */

static void check_decoded(const char *path, const char *settings, const int32_t *ids, int64_t n,
                          const char *wanted)
{
    char *text;
    const char *beside = sw_test_write_text(1, "tokenizer_config.json", settings);
    struct sw_tokenizer *tokenizer = open_path(path);
    assert_int_equal(sw_tokenizer_decode(tokenizer, ids, n, true, &text, NULL), SW_OK);
    assert_string_equal(text, wanted);
    sw_text_free(text);
    sw_tokenizer_close(tokenizer);
    unlink(beside);
}

/* As transformers: clean_up_tokenization_spaces applies to the whole text, and not to BPE. */
static void cleaned_texts(void **state)
{
    (void)state;
    static const char clean[] = "{\"clean_up_tokenization_spaces\":true}";
    static const int32_t ids[] = {5, 6, 7, 8, 9, 10}, words[] = {2, 3, 4};
    const char *path = sw_test_write_text(
        0, "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ndon\n'\nt\n,\nshe\n!\n");
    check_decoded(path, "{}", ids, SW_LEN(ids), "don ' t, she!");
    check_decoded(path, "{\"clean_up_tokenization_spaces\":null}", ids, SW_LEN(ids),
                  "don ' t, she!");
    check_decoded(path, clean, ids, SW_LEN(ids), "don't, she!");
    path = write_json("\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\"},",
                      "{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"x\",-1],"
                      "[\"" MARK "a\",-1],[\"" MARK "'s\",-1],[\"" MARK ".\",-1]]}");
    check_decoded(path, "{}", words, SW_LEN(words), "a 's .");
    check_decoded(path, clean, words, SW_LEN(words), "a's.");
    path = write_json("\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"" MARK "\"},",
                      "{\"type\":\"BPE\",\"vocab\":{\"u\":0,\"x\":1,\"" MARK "a\":2,\"" MARK
                      "'s\":3,\"" MARK ".\":4},\"merges\":[]}");
    check_decoded(path, clean, words, SW_LEN(words), "a 's .");
}

/* ---- vocab.txt ---- */

static void vocab_txt_is_bert(void **state)
{
    (void)state;
    unlink(sw_test_write_text(1, "tokenizer_config.json", "{}"));
    const char *path = sw_test_write_text(
        0, "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ne\n\xC3\xA9\nE\n##e\n!\n");
    struct sw_tokenizer *tokenizer = open_path(path);
    check_tokens(tokenizer, "E\xC3\xA9!", "[CLS]|e|##e|!|[SEP]");
    check_tokens(tokenizer, "e[MASK]", "[CLS]|e|[MASK]|[SEP]");
    sw_tokenizer_close(tokenizer);
    sw_test_write_text(1, "tokenizer_config.json", "{\"strip_accents\":false}");
    tokenizer = open_path(path);
    check_tokens(tokenizer, "\xC3\x89 e", "[CLS]|\xC3\xA9|e|[SEP]");
    sw_tokenizer_close(tokenizer);
    sw_test_write_text(1, "tokenizer_config.json", "{\"do_lower_case\":false}");
    tokenizer = open_path(path);
    check_tokens(tokenizer, "E e", "[CLS]|E|e|[SEP]");
    sw_tokenizer_close(tokenizer);
    unlink(sw_test_write_text(1, "tokenizer_config.json", "{}"));
    check_refused(sw_test_write_text(0, "vocab.txt", "a\nb\na\n"), SW_E_FORMAT, "vocab.txt:3");
    check_refused(sw_test_write_text(0, "vocab.txt", "a\nb\n"), SW_E_FORMAT, "[UNK]");
}

/* ---- SentencePiece ---- */

enum { NORMAL = 1, UNKNOWN, CONTROL, USER, UNUSED, BYTE };

static void put_varint(struct sw_str *out, uint64_t value)
{
    for (; value >= 0x80; value >>= 7) {
        sw_str_putc(out, (char)(unsigned char)(value | 0x80));
    }
    sw_str_putc(out, (char)(unsigned char)value);
}

static void put_number(struct sw_str *out, int field, int64_t value)
{
    put_varint(out, (uint64_t)field << 3);
    put_varint(out, (uint64_t)value);
}

static void put_bytes(struct sw_str *out, int field, const char *bytes, size_t len)
{
    put_varint(out, (uint64_t)field << 3 | 2);
    put_varint(out, len);
    sw_str_append(out, bytes, len);
}

static void put_piece(struct sw_str *model, const char *text, float score, int kind)
{
    struct sw_str piece = {0};
    put_bytes(&piece, 1, text, strlen(text));
    put_varint(&piece, 2 << 3 | 5);
    sw_str_append(&piece, (const char *)&score, sizeof(score));
    put_number(&piece, 3, kind);
    put_bytes(model, 1, sw_str_text(&piece), piece.len);
    sw_str_fini(&piece);
}

/* <unk>, <s>, </s> and the given pieces. */
struct piece {
    const char *text;
    float score;
    int kind;
};

static const char *write_model(const struct piece *pieces, size_t n, int type, int spaces,
                               int fallback)
{
    struct sw_str model = {0}, training = {0}, normalizing = {0};
    put_piece(&model, "<unk>", 0, UNKNOWN);
    put_piece(&model, "<s>", 0, CONTROL);
    put_piece(&model, "</s>", 0, CONTROL);
    for (size_t i = 0; i < n; ++i) {
        put_piece(&model, pieces[i].text, pieces[i].score, pieces[i].kind);
    }
    for (int byte = 0; byte < 256 && fallback; ++byte) {
        char text[8];
        snprintf(text, sizeof(text), "<0x%02X>", (unsigned)byte);
        put_piece(&model, text, 0, BYTE);
    }
    put_number(&training, 3, type);
    put_number(&training, 35, fallback);
    put_number(&training, 43, -1); /* no pad: ten bytes */
    put_number(&normalizing, 4, spaces);
    put_bytes(&model, 2, training.ptr, training.len);
    put_bytes(&model, 3, normalizing.ptr, normalizing.len);
    const char *path = sw_test_write(0, "spiece.model", model.ptr, model.len);
    sw_str_fini(&model);
    sw_str_fini(&training);
    sw_str_fini(&normalizing);
    return path;
}

static const struct piece unigram[] = {
    {MARK, -2, NORMAL},     {"a", -3, NORMAL},      {"b", -3, NORMAL}, {"ab", -1, NORMAL},
    {MARK "a", -1, NORMAL}, {"aab", -0.5F, UNUSED}, {"bb", -9, USER},
};

static void sentencepiece_unigram(void **state)
{
    (void)state;
    struct sw_tokenizer *tokenizer =
        open_path(write_model(unigram, SW_LEN(unigram), 1, true, false));
    assert_int_equal(sw_tokenizer_bos(tokenizer), 1);
    assert_int_equal(sw_tokenizer_eos(tokenizer), 2);
    assert_int_equal(sw_tokenizer_pad(tokenizer), -1);
    check_tokens(tokenizer, "ab", MARK "|ab");
    check_tokens(tokenizer, "  a  ab ", MARK "a|" MARK "|ab"); /* extra spaces go */
    check_tokens(tokenizer, "baab", MARK "|b|a|ab");           /* aab is not used */
    check_tokens(tokenizer, "abb", MARK "a|bb");               /* user-defined wins */
    check_tokens(tokenizer, "axyb", MARK "a|<unk>|b");
    check_tokens(tokenizer, "a</s>", MARK "a|<unk>"); /* control pieces are no text */
    check_tokens(tokenizer, "  ", "");
    check_text(tokenizer, (const char *[]){"<s>", MARK "a", "b", MARK, "<unk>", "</s>"}, 6,
               "ab  \xE2\x81\x87 ");
    sw_tokenizer_close(tokenizer);
    tokenizer = open_path(write_model(unigram, SW_LEN(unigram), 1, false, true));
    check_tokens(tokenizer, " a\xC3\xA9 ", MARK "|" MARK "a|<0xC3>|<0xA9>|" MARK);
    check_text(tokenizer, (const char *[]){MARK, "<0xC3>", "<0xA9>", "<0xC3>", "a"}, 5,
               "\xC3\xA9\xEF\xBF\xBD"
               "a");
    sw_tokenizer_close(tokenizer);
}

/* Whose texts end with eos is said by the files beside the model, the first that does. */
static void sentencepiece_ends_by_its_class(void **state)
{
    (void)state;
    static const struct {
        const char *settings, *config, *tokens;
    } of[] = {{"{}", "{\"model_type\": \"llama\"}", MARK "|ab"},
              {"{}", "{\"model_type\": \"t5\"}", MARK "|ab|</s>"},
              {"{}", "{\"tokenizer_class\": \"T5Tokenizer\"}", MARK "|ab|</s>"},
              {"{\"tokenizer_class\": \"LlamaTokenizer\"}", "{\"model_type\": \"t5\"}",
               "<s>|" MARK "|ab"},
              {"{\"add_eos_token\": true}", "{\"model_type\": \"llama\"}", MARK "|ab|</s>"}};
    for (size_t i = 0; i < SW_LEN(of); i++) {
        const char *path = write_model(unigram, SW_LEN(unigram), 1, true, false);
        sw_test_write_text(1, "tokenizer_config.json", of[i].settings);
        sw_test_write_text(2, "config.json", of[i].config);
        struct sw_tokenizer *tokenizer = open_path(path);
        check_tokens(tokenizer, "ab", of[i].tokens);
        sw_tokenizer_close(tokenizer);
    }
    assert_int_equal(remove(sw_test_write_text(1, "tokenizer_config.json", "")), 0);
    assert_int_equal(remove(sw_test_write_text(2, "config.json", "")), 0);
}

/* ab before bc by its score, wherever it stands; an unused piece comes as its parts. */
static void sentencepiece_bpe(void **state)
{
    (void)state;
    static const struct piece pieces[] = {
        {MARK, -9, NORMAL}, {"a", -9, NORMAL},  {"b", -9, NORMAL},   {"c", -9, NORMAL},
        {"bc", -2, NORMAL}, {"ab", -1, NORMAL}, {"abab", 0, UNUSED}, {"cc", 0, USER},
    };
    struct sw_tokenizer *tokenizer = open_path(write_model(pieces, SW_LEN(pieces), 2, true, false));
    check_tokens(tokenizer, "abc bc", MARK "|ab|c|" MARK "|bc");
    check_tokens(tokenizer, "abab", MARK "|ab|ab");
    check_tokens(tokenizer, "bccc", MARK "|b|cc|c");
    check_tokens(tokenizer, "xyb", MARK "|<unk>|b");
    sw_tokenizer_close(tokenizer);
}

static void sentencepiece_beside_its_class(void **state)
{
    (void)state;
    struct sw_ids ids = {0}, types = {0};
    const char *path = write_model(unigram, SW_LEN(unigram), 1, true, false);
    sw_test_write_text(1, "tokenizer_config.json", "{\"tokenizer_class\":\"LlamaTokenizer\"}");
    struct sw_tokenizer *tokenizer = open_path(path);
    check_tokens(tokenizer, "a", "<s>|" MARK "a");
    assert_int_equal(sw_tokenizer_encode_pair(tokenizer, "a", 1, "b", 1, true, &ids, &types),
                     SW_OK);
    assert_int_equal(types.len, 5);
    assert_int_equal(types.ptr[1], 0);
    assert_int_equal(types.ptr[2], 0); /* the class names no token_type_ids */
    sw_ids_fini(&ids);
    sw_ids_fini(&types);
    sw_tokenizer_close(tokenizer);
    sw_test_write_text(1, "tokenizer_config.json", "{\"tokenizer_class\":\"T5Tokenizer\"}");
    tokenizer = open_path(path);
    check_tokens(tokenizer, "a", MARK "a|</s>");
    sw_tokenizer_close(tokenizer);
    sw_test_write_text(1, "tokenizer_config.json",
                       "{\"added_tokens_decoder\":{\"9\":{\"content\":\"<x>\"}}}");
    check_refused(path, SW_E_UNSUP, "'<x>' is not in the model");
    unlink(sw_test_write_text(1, "tokenizer_config.json", "{}"));
}

static void damaged_models_are_named(void **state)
{
    (void)state;
    char *bytes;
    size_t len;
    const char *path = write_model(unigram, SW_LEN(unigram), 1, true, false);
    assert_int_equal(sw_file_read(path, &bytes, &len), SW_OK);
    int n_refused = 0;
    for (size_t n = 0; n < len;
         ++n) { /* cut anywhere: refused by name, or the pieces up to there */
        struct sw_tokenizer *tokenizer;
        const char *cut = sw_test_write(0, "cut.model", bytes, n);
        if (sw_tokenizer_open(cut, NULL, &tokenizer) < 0) {
            assert_non_null(strstr(sw_error_message(), "cut.model"));
            n_refused++;
        } else {
            sw_tokenizer_close(tokenizer);
        }
    }
    assert_true(n_refused > (int)len / 2);
    sw_free(bytes);
    check_refused(write_model(unigram, SW_LEN(unigram), 3, true, false), SW_E_UNSUP, "WORD");
    check_refused(write_model(&(struct piece){"a", 0, 7}, 1, 1, true, false), SW_E_FORMAT,
                  "kind 7");
    check_refused(write_model(&(struct piece){"<s>", 0, NORMAL}, 1, 1, true, false), SW_E_FORMAT,
                  "<s>");
}

/* ---- small files cannot cost much ---- */

static char *repeat(char c, size_t n)
{
    char *text = sw_alloc("test", n + 1);
    assert_non_null(text);
    memset(text, c, n);
    text[n] = '\0';
    return text;
}

/* A file with a token of 1025 bytes under the format's %s. */
static const char *write_long(const char *format)
{
    struct sw_str model = {0};
    char *token = repeat('a', SW_PREFIX_MOST_BYTES + 1);
    const char *at = strstr(format, "%s");
    sw_str_append(&model, format, (size_t)(at - format));
    sw_str_puts(&model, token);
    sw_str_puts(&model, at + 2);
    const char *path = write_json("", model.ptr);
    sw_str_fini(&model);
    sw_free(token);
    return path;
}

/* Pieces within pieces are walked at each place of a text. */
static void tokens_are_no_longer_than_a_walk(void **state)
{
    (void)state;
    static const char named[] = "has 1025 bytes, wanted at most 1024";
    char *token = repeat('a', SW_PREFIX_MOST_BYTES + 1);
    const struct piece piece = {token, -1, NORMAL};
    check_refused(write_long("{\"type\":\"Unigram\",\"vocab\":[[\"%s\",-1]]}"), SW_E_FORMAT, named);
    check_refused(write_long("{\"type\":\"WordPiece\",\"unk_token\":\"?\","
                             "\"max_input_chars_per_word\":1000000000,"
                             "\"vocab\":{\"?\":0,\"%s\":1}}"),
                  SW_E_FORMAT, named);
    check_refused(write_long("{\"type\":\"WordLevel\",\"unk_token\":\"?\",\"vocab\":{\"?\":0}},"
                             "\"added_tokens\":[{\"id\":1,\"content\":\"%s\"}]"),
                  SW_E_FORMAT, named);
    check_refused(write_model(&piece, 1, 1, true, false), SW_E_FORMAT, named);
    assert_non_null(strstr(sw_error_message(), "spiece.model"));
    /* a token that no word can hold costs nothing */
    struct sw_tokenizer *tokenizer = open_path(
        write_long("{\"type\":\"WordPiece\",\"unk_token\":\"?\",\"vocab\":{\"?\":0,\"%s\":1}}"));
    check_tokens(tokenizer, token, "?");
    sw_tokenizer_close(tokenizer);
    sw_free(token);
}

static int64_t count_tokens(struct sw_tokenizer *tokenizer, const char *text, size_t len)
{
    struct sw_ids ids = {0};
    assert_int_equal(sw_tokenizer_encode(tokenizer, text, len, true, &ids), SW_OK);
    const int64_t n = ids.len;
    sw_ids_fini(&ids);
    return n;
}

/* Trying every end of the rest of the word would take 2^38 lookups of up to 2^19 bytes. */
static void long_words_are_cut_in_walks(void **state)
{
    (void)state;
    enum { N = 1 << 19 };
    char *word = repeat('a', N);
    struct sw_tokenizer *tokenizer =
        open_json("", "{\"type\":\"WordPiece\",\"unk_token\":\"?\",\"max_input_chars_per_word\":"
                      "1000000000,\"vocab\":{\"?\":0,\"a\":1,\"##a\":2,\"##aab\":3}}");
    assert_int_equal(count_tokens(tokenizer, word, N), N);
    word[N - 1] = 'b';
    assert_int_equal(count_tokens(tokenizer, word, N), N - 2);
    word[N - 1] = 'c';
    assert_int_equal(count_tokens(tokenizer, word, N), 1);
    sw_tokenizer_close(tokenizer);
    sw_free(word);
}

/* Naively, each token would walk over all white space. */
static void white_space_beside_tokens_is_walked_once(void **state)
{
    (void)state;
    enum { N = 1 << 18 };
    char *spaces = repeat(' ', N);
    for (int right = 0; right < 2; ++right) {
        struct sw_str model = {0};
        sw_str_printf(
            &model,
            "{\"type\":\"WordLevel\",\"unk_token\":\"?\",\"vocab\":{\"?\":0}},\"added_tokens\":"
            "[{\"id\":1,\"content\":\" \",\"normalized\":false,\"%s\":true},{\"id\":2,"
            "\"content\":\"x\",\"lstrip\":true,\"normalized\":false}]",
            right ? "rstrip" : "lstrip");
        const char *path = write_json("", model.ptr);
        sw_str_fini(&model);
        struct sw_tokenizer *tokenizer = open_path(path);
        assert_int_equal(count_tokens(tokenizer, spaces, N), N);
        sw_tokenizer_close(tokenizer);
    }
    sw_free(spaces);
}

#define TIMES_24(what, by) REPLACE(what, by by by by)
#define GROWING                                                                                    \
    "[" TIMES_24("a", "bbbbbb") "," TIMES_24("b", "aaaaaa") "," TIMES_24(                          \
        "a", "bbbbbb") "," TIMES_24("b", "aaaaaa") "]"

/* Four steps of 24 times: 1 MiB would be 340 GiB. */
static void texts_that_grow_are_refused(void **state)
{
    (void)state;
#ifdef TEST_SANITIZED /* whose memmem reads all the rest of a text each time it is called */
    enum { N = 1 << 14 };
#else
    enum { N = 1 << 20 };
#endif
    struct sw_alloc_stats stats;
    struct sw_ids ids = {0};
    char *text = repeat('a', N), *decoded;
    struct sw_tokenizer *tokenizer =
        open_json("\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":" GROWING "},"
                  "\"decoder\":{\"type\":\"Sequence\",\"decoders\":" GROWING "},",
                  "{\"type\":\"WordLevel\",\"unk_token\":\"a\",\"vocab\":{\"a\":0}}");
    assert_int_equal(sw_tokenizer_encode(tokenizer, text, N, true, &ids), SW_E_FORMAT);
    assert_non_null(
        strstr(sw_error_message(), "tokenizer.json: the normalizer Replace makes more"));
    sw_alloc_get_stats(&stats);
    assert_true(stats.peak_bytes < 256 << 20);
    for (int i = 0; i < 1000; ++i) {
        assert_int_equal(sw_ids_push(&ids, 0), SW_OK);
    }
    assert_int_equal(sw_tokenizer_decode(tokenizer, ids.ptr, ids.len, true, &decoded, NULL),
                     SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "tokenizer.json: a decoder makes more than"));
    assert_int_equal(sw_tokenizer_encode(tokenizer, "", 0, true, &ids), SW_OK);
    sw_ids_fini(&ids);
    sw_free(text);
    sw_tokenizer_close(tokenizer);
}

/* Arrays of all ids up to the highest would take 512 MiB. */
static void memory_goes_by_tokens_not_by_ids(void **state)
{
    (void)state;
    struct sw_alloc_stats before, after;
    const char *path =
        write_json("", "{\"type\":\"WordLevel\",\"unk_token\":\"a\",\"vocab\":{\"a\":"
                       "16777214}},\"added_tokens\":[{\"id\":16777215,\"content\":\"b\","
                       "\"special\":true}]");
    sw_alloc_get_stats(&before);
    struct sw_tokenizer *tokenizer = open_path(path);
    sw_alloc_get_stats(&after);
    assert_true(after.live_bytes - before.live_bytes < 1 << 20);
    assert_int_equal(sw_tokenizer_vocab_size(tokenizer), 1 << 24);
    check_tokens(tokenizer, "ab", "a|b");
    check_text(tokenizer, (const char *[]){"a", "b"}, 2, "a");
    sw_tokenizer_close(tokenizer);
}

/* Where messages of a chat begin and end, in a text of nothing but special tokens, and in one that
 * has none: there each edge costs the text before it. */
static void edges_are_looked_up(void **state)
{
    (void)state;
    enum { N = 1 << 17 };
    struct sw_ids ids = {0}, passed = {0};
    char *text = repeat('b', 8 * N);
    size_t *at = sw_alloc("test", N * sizeof(*at));
    struct sw_tokenizer *tokenizer =
        open_json("", "{\"type\":\"WordLevel\",\"unk_token\":\"a\",\"vocab\":{\"a\":0}},"
                      "\"added_tokens\":[{\"id\":1,\"content\":\"b\",\"normalized\":false}]");
    for (size_t i = 0; i < N; ++i) {
        at[i] = i;
    }
    assert_int_equal(tokenizer->ops->special->encode_edges(
                         tokenizer, text, N, &(struct sw_edges){at, N}, &ids, &passed),
                     SW_OK);
    assert_int_equal(passed.len, N);
    for (int32_t i = 0; i < N; ++i) {
        assert_int_equal(passed.ptr[i], i + 1);
    }
    memset(text, 'a', 8 * N);
    assert_int_equal(tokenizer->ops->special->encode_edges(
                         tokenizer, text, (size_t)8 * N, &(struct sw_edges){at, N}, &ids, &passed),
                     SW_E_UNSUP);
    assert_non_null(strstr(sw_error_message(), "too many messages"));
    sw_ids_fini(&ids);
    sw_ids_fini(&passed);
    sw_free(at);
    sw_free(text);
    sw_tokenizer_close(tokenizer);
}

/* A template that names a token of many ids many times. */
static void templates_have_a_most(void **state)
{
    (void)state;
    struct sw_str steps = {0};
    sw_str_puts(&steps,
                "\"post_processor\":{\"type\":\"TemplateProcessing\",\"pair\":[],\"single\":[");
    for (int i = 0; i < 100; ++i) {
        sw_str_printf(&steps, "%s{\"SpecialToken\":{\"id\":\"a\"}}", i > 0 ? "," : "");
    }
    sw_str_puts(&steps, "],\"special_tokens\":{\"a\":{\"ids\":[0");
    for (int i = 0; i < 100; ++i) {
        sw_str_puts(&steps, ",0");
    }
    sw_str_puts(&steps, "]}}},");
    check_refused(
        write_json(steps.ptr, "{\"type\":\"WordLevel\",\"unk_token\":\"a\",\"vocab\":{\"a\":0}}"),
        SW_E_FORMAT, "more than 1024 items");
    sw_str_fini(&steps);
}

static void check_allocations(const char *path)
{
    sw_test_failing_allocations(path, "ab \xC3\xA9");
}

static void failing_allocations(void **state)
{
    (void)state;
    check_allocations(write_json("\"pre_tokenizer\":{\"type\":\"Metaspace\"},"
                                 "\"decoder\":{\"type\":\"Metaspace\"},",
                                 UNIGRAM("") "}"));
    check_allocations(write_json(LLAMA, CHARS("\"byte_fallback\":true,")));
    check_allocations(write_json(
        "", SUFFIXED("\"continuing_subword_prefix\":\"##\",") "{\"a\":0,\"##b\":1,\"ab\":2},"
                                                              "\"merges\":[\"a ##b\"]}"));
    check_allocations(
        write_json("\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"},",
                   "{\"type\":\"WordLevel\",\"unk_token\":\"?\",\"vocab\":{\"?\":0}}"));
    check_allocations(write_model(unigram, SW_LEN(unigram), 1, true, true));
    check_allocations(write_model(unigram, SW_LEN(unigram), 2, true, true));
    if (SW_HAVE_UTF8PROC) {
        check_allocations(write_json("\"normalizer\":{\"type\":\"BertNormalizer\"},"
                                     "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},"
                                     "\"decoder\":{\"type\":\"WordPiece\"},",
                                     WORDS));
    }
}

static void without_utf8proc_the_message_says_what_to_install(void **state)
{
    (void)state;
    check_refused(write_json("\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},", WORDS),
                  SW_E_UNSUP, "libutf8proc-dev");
    check_refused(sw_test_write_text(0, "vocab.txt", "[UNK]\n[CLS]\n[SEP]\n"), SW_E_UNSUP,
                  "libutf8proc-dev");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(unigram_takes_the_best_way),
    cmocka_unit_test(bpe_of_characters),
    cmocka_unit_test(bpe_of_words_with_affixes),
    cmocka_unit_test(bpe_of_bytes_with_a_suffix),
    cmocka_unit_test(word_level_takes_whole_words),
    cmocka_unit_test(words_change_with_the_script),
    cmocka_unit_test(nmt_cleans_white_space_and_control),
    cmocka_unit_test(what_json_may_not_say),
    cmocka_unit_test(sentencepiece_unigram),
    cmocka_unit_test(sentencepiece_ends_by_its_class),
    cmocka_unit_test(sentencepiece_bpe),
    cmocka_unit_test(sentencepiece_beside_its_class),
    cmocka_unit_test(damaged_models_are_named),
    cmocka_unit_test(tokens_are_no_longer_than_a_walk),
    cmocka_unit_test(long_words_are_cut_in_walks),
    cmocka_unit_test(white_space_beside_tokens_is_walked_once),
    cmocka_unit_test(texts_that_grow_are_refused),
    cmocka_unit_test(memory_goes_by_tokens_not_by_ids),
    cmocka_unit_test(edges_are_looked_up),
    cmocka_unit_test(templates_have_a_most),
    cmocka_unit_test(failing_allocations),
    TEST_IF(SW_HAVE_UTF8PROC, wordpiece_takes_the_longest_beginning),
    TEST_IF(SW_HAVE_UTF8PROC, vocab_txt_is_bert),
    TEST_IF(SW_HAVE_UTF8PROC, cleaned_texts),
    TEST_IF(!SW_HAVE_UTF8PROC, without_utf8proc_the_message_says_what_to_install),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
