// SPDX-License-Identifier: Apache-2.0
// Rows of tasks: what files of each become, that a row does not depend on the calls, and what is
// refused.
#include <math.h>
#include <string.h>
#include <sys/stat.h>

#include "data/data.h"
#include "data/labels.h"
#include "data/record.h"
#include "json/json.h"
#include "support/files.h"
#include "support/scratch.h"
#include "support/test.h"
#include "token/token.h"

enum { T = 12, U = 8, PAD = 0, UNK, CLS, SEP, MASK, FIRST = 5 };

static struct sw_tokenizer *bert;
static const char vocab[] =
    "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\ne\nf\ng\nh\n##b\n##c\n.\n";

static int open_bert(void **state)
{
    (void)state;
    if (sw_tokenizer_open(sw_test_write_text(7, "vocab.txt", vocab), NULL, &bert) < 0) {
        print_message("skipped: %s\n", sw_error_message());
    }
    return 0;
}

static int close_bert(void **state)
{
    (void)state;
    sw_tokenizer_close(bert);
    return 0;
}

static struct sw_dataset_options options_of(const struct sw_task_data *task,
                                            const char *const *file)
{
    return (struct sw_dataset_options){
        .files = file, .n_files = 1, .tokenizer = bert, .seq_len = T, .seed = 5, .task = task};
}

static struct sw_dataset *open_text(const struct sw_task_data *task, const char *name,
                                    const char *text)
{
    struct sw_dataset *dataset = NULL;
    const char *path = sw_test_write_text(0, name, text);
    const struct sw_dataset_options options = options_of(task, &path);
    if (sw_dataset_open(&options, &dataset) != SW_OK) {
        fail_msg("%s", sw_error_message());
    }
    return dataset;
}

static void refuses(const struct sw_task_data *task, const char *name, const char *text,
                    const char *why)
{
    struct sw_dataset *dataset = NULL;
    const char *path = sw_test_write_text(0, name, text);
    const struct sw_dataset_options options = options_of(task, &path);
    assert_true(sw_dataset_open(&options, &dataset) < 0);
    if (!strstr(sw_error_message(), why)) {
        fail_msg("\"%s\" without \"%s\"", sw_error_message(), why);
    }
}

/* The inputs of rows, as many as a test looks at. */
struct rows {
    int32_t ids[4 * T], mask[4 * T], types[4 * T], labels[4 * T], one[4], two[4];
    float numbers[16];
};

static void fetch(const struct sw_dataset *dataset, int64_t first, int64_t n,
                  const struct sw_row_input *inputs, int n_inputs)
{
    if (sw_dataset_fetch_inputs(dataset, SW_SPLIT_VAL, first, n, inputs, n_inputs) != SW_OK) {
        fail_msg("%s", sw_error_message());
    }
}

/* All rows are validation rows: they keep the order of the file. */
static struct sw_dataset *in_order(const struct sw_task_data *task, const char *name,
                                   const char *text)
{
    struct sw_dataset *dataset = NULL;
    const char *path = sw_test_write_text(0, name, text);
    struct sw_dataset_options options = options_of(task, &path);
    options.val_files = &path;
    options.n_val_files = 1;
    if (sw_dataset_open(&options, &dataset) != SW_OK) {
        fail_msg("%s", sw_error_message());
    }
    return dataset;
}

static void same(const int32_t *found, const int32_t *wanted, int n)
{
    for (int i = 0; i < n; i++) {
        if (found[i] != wanted[i]) {
            fail_msg("element %d is %d, wanted %d", i, found[i], wanted[i]);
        }
    }
}

/* The vocabulary with BERT's template as a tokenizer.json, which goes with any class. */
static void put_words(const char *name)
{
    static const char rest[] =
        "}, \"unk_token\": \"[UNK]\"}, \"pre_tokenizer\": {\"type\": \"WhitespaceSplit\"}, "
        "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": "
        "{\"id\": \"[CLS]\"}}, {\"Sequence\": {\"id\": \"A\"}}, {\"SpecialToken\": {\"id\": "
        "\"[SEP]\"}}], \"pair\": [{\"SpecialToken\": {\"id\": \"[CLS]\"}}, {\"Sequence\": {\"id\": "
        "\"A\"}}, {\"SpecialToken\": {\"id\": \"[SEP]\"}}, {\"Sequence\": {\"id\": \"B\", "
        "\"type_id\": 1}}, {\"SpecialToken\": {\"id\": \"[SEP]\", \"type_id\": 1}}], "
        "\"special_tokens\": {\"[CLS]\": {\"ids\": [2]}, \"[SEP]\": {\"ids\": [3]}}}}";
    struct sw_str json = {0};
    int id = 0;
    sw_str_puts(&json, "{\"version\": \"1.0\", \"model\": {\"type\": \"WordPiece\", \"vocab\": {");
    for (const char *at = vocab; *at; at += strcspn(at, "\n") + 1, id++) {
        sw_str_printf(&json, "%s\"%.*s\": %d", id > 0 ? ", " : "", (int)strcspn(at, "\n"), at, id);
    }
    sw_str_puts(&json, rest);
    sw_test_write(1, name, json.ptr, json.len);
    sw_str_fini(&json);
}

static struct sw_tokenizer *open_words(const char *settings, const char *model)
{
    struct sw_tokenizer *tokenizer = NULL;
    struct sw_str folder = {0};
    sw_str_printf(&folder, "%s/types", test_folder());
    mkdir(folder.ptr, 0700); /* it may be there */
    put_words("types/tokenizer.json");
    sw_test_write_text(2, "types/tokenizer_config.json", settings);
    sw_test_write_text(3, "types/config.json", model);
    const sw_status st = sw_tokenizer_open(folder.ptr, NULL, &tokenizer);
    sw_str_fini(&folder);
    return st < 0 ? NULL : tokenizer;
}

/* The types that transformers 5.23 gave for these files; without any, models take zeros. */
static void the_tokenizers_inputs_say_whether_there_are_types(void **state)
{
    (void)state;
    static const struct {
        const char *settings, *model;
        bool types;
    } cases[] = {
        {"{}", "{}", true},
        {"{}", "{\"model_type\": \"bert\"}", true},
        {"{}", "{\"model_type\": \"deberta-v2\"}", true},
        {"{}", "{\"model_type\": \"albert\"}", false},
        {"{\"tokenizer_class\": \"BertTokenizerFast\"}", "{\"model_type\": \"albert\"}", true},
        {"{\"tokenizer_class\": \"ElectraTokenizer\"}", "{}", true},
        {"{\"tokenizer_class\": \"DistilBertTokenizer\"}", "{\"model_type\": \"bert\"}", false},
        {"{\"tokenizer_class\": \"PreTrainedTokenizerFast\"}", "{\"model_type\": \"bert\"}", false},
        {"{}", "{\"tokenizer_class\": \"RobertaTokenizer\", \"model_type\": \"bert\"}", false},
        {"{\"model_input_names\": [\"input_ids\", \"attention_mask\"]}",
         "{\"model_type\": \"bert\"}", false},
        {"{\"model_input_names\": [\"input_ids\", \"token_type_ids\"], \"tokenizer_class\": "
         "\"PreTrainedTokenizerFast\"}",
         "{}", true},
        {"{\"model_input_names\": null}", "{\"model_type\": \"bert\"}", true},
    };
    const struct sw_task_data task = {.name = "classify", .n_labels = 2};
    struct sw_tokenizer *const usual = bert;
    struct rows r;
    const struct sw_row_input inputs[] = {{"input_ids", r.ids}, {"token_type_ids", r.types}};
    if (!bert) {
        skip();
    }
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        const int one = cases[i].types;
        bert = open_words(cases[i].settings, cases[i].model);
        assert_non_null(bert);
        struct sw_dataset *d = in_order(&task, "a.csv", "sentence1,sentence2,label\na b,c,1\n");
        fetch(d, 0, 1, inputs, 2);
        same(r.ids, (const int32_t[]){CLS, 5, 6, SEP, 7, SEP, 0, 0, 0, 0, 0, 0}, T);
        same(r.types, (const int32_t[]){0, 0, 0, 0, one, one, 0, 0, 0, 0, 0, 0}, T);
        sw_dataset_close(d);
        sw_tokenizer_close(bert);
    }
    bert = usual;
    assert_null(open_words("{\n\"model_input_names\": \"input_ids\"}", "{}"));
    assert_non_null(strstr(sw_error_message(), "types/tokenizer_config.json:2: model_input_names "
                                               "is a string, wanted a list of names"));
}

/* One text, two, and words with their labels lose their first tokens. */
static void texts_are_cut_at_the_side_that_the_tokenizer_says(void **state)
{
    (void)state;
    const struct sw_task_data classes = {.name = "classify", .n_labels = 2};
    const struct sw_task_data words = {.name = "tokens", .n_labels = 12};
    struct sw_tokenizer *const usual = bert;
    struct rows r;
    const struct sw_row_input inputs[] = {{"input_ids", r.ids}, {"labels", r.labels}};
    if (!bert) {
        skip();
    }
    bert = open_words("{\"truncation_side\": \"left\"}", "{}");
    assert_non_null(bert);
    struct sw_dataset *d = in_order(&classes, "a.csv", "text,label\na b c d e f g h a b c d,1\n");
    fetch(d, 0, 1, inputs, 1);
    same(r.ids, (const int32_t[]){CLS, 7, 8, 9, 10, 11, 12, 5, 6, 7, 8, SEP}, T);
    assert_int_equal(sw_dataset_n_cut(d, SW_SPLIT_VAL), 1);
    sw_dataset_close(d);
    d = in_order(&classes, "a.csv", "sentence1,sentence2,label\na b c d e f g,a b c d e f,1\n");
    fetch(d, 0, 1, inputs, 1);
    same(r.ids, (const int32_t[]){CLS, 7, 8, 9, 10, 11, SEP, 7, 8, 9, 10, SEP}, T);
    sw_dataset_close(d);
    d = in_order(&words, "a.jsonl",
                 "{\"tokens\": [\"a\", \"ab\", \"c\", \"d\", \"e\", \"f\", \"g\", \"h\", "
                 "\"a\", \"c\"], \"labels\": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]}\n");
    fetch(d, 0, 1, inputs, 2);
    same(r.ids, (const int32_t[]){CLS, 5, 13, 7, 8, 9, 10, 11, 12, 5, 7, SEP}, T);
    same(r.labels, (const int32_t[]){-100, 2, -100, 3, 4, 5, 6, 7, 8, 9, 10, -100}, T);
    sw_dataset_close(d);
    sw_tokenizer_close(bert);
    bert = usual;
    assert_null(open_words("{\"truncation_side\": \"middle\"}", "{}"));
    assert_non_null(
        strstr(sw_error_message(), "truncation_side is 'middle', wanted left or right"));
}

static void classes_have_one_or_two_texts(void **state)
{
    (void)state;
    static const char *const names[] = {"bad", "good"};
    const struct sw_task_data task = {.name = "classify", .n_labels = 2, .label_names = names};
    struct rows r;
    const struct sw_row_input inputs[] = {{"input_ids", r.ids},
                                          {"attention_mask", r.mask},
                                          {"token_type_ids", r.types},
                                          {"labels", r.one},
                                          {"lengths", r.two}};
    if (!bert) {
        skip();
    }
    struct sw_dataset *d = in_order(
        &task, "a.csv", "sentence1,sentence2,label\na b,c,good\n\"a, a b c d e f g\",h,bad\n");
    fetch(d, 0, 4, inputs, 5);
    same(r.ids, (const int32_t[]){CLS, 5, 6, SEP, 7, SEP, 0, 0, 0, 0, 0, 0}, T);
    same(r.mask, (const int32_t[]){1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0}, T);
    same(r.types, (const int32_t[]){0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0}, T);
    same(r.ids + T, (const int32_t[]){CLS, 5, UNK, 5, 6, 7, 8, 9, 10, SEP, 12, SEP}, T); /* cut */
    same(r.one, (const int32_t[]){1, 0, SW_IGNORED_LABEL, SW_IGNORED_LABEL}, 4);
    same(r.two, (const int32_t[]){6, 12, 1, 1}, 4);
    assert_int_equal(r.mask[2 * T], 1); /* a blank row looks at something */
    assert_int_equal(sw_dataset_n_cut(d, SW_SPLIT_VAL), 1);
    sw_dataset_close(d);
    d = in_order(&task, "a.jsonl", "{\"text\": \"ab\", \"label\": 1}\n");
    fetch(d, 0, 1, inputs, 5);
    same(r.ids, (const int32_t[]){CLS, 5, 13, SEP, 0}, 5);
    same(r.one, (const int32_t[]){1}, 1);
    sw_dataset_close(d);
    refuses(&task, "a.csv", "text,label\na,good\nb,best\n",
            "a.csv line 3: the label \"best\" is not one of the 2 classes: \"bad\", \"good\"");
    refuses(&task, "a.jsonl", "{\"text\": \"a\", \"label\": 2}\n",
            "a.jsonl line 1: the label 2 is not one of the 2 classes");
    refuses(&task, "a.csv", "text,class\na,good\n",
            "line 2: no \"label\" or \"labels\" or \"score\"; there are \"text\", \"class\": "
            "--label-column names another");
    refuses(&task, "a.csv", "body,label\na,good\n", "there are \"body\", \"label\": --text-column");
    const struct sw_task_data by_number = {
        .name = "classify", .n_labels = 2, .text_columns = {"2", "3"}, .label_column = "1"};
    d = in_order(&by_number, "a.csv", "1,a,b\n0,c,d\n");
    fetch(d, 0, 2, inputs, 5);
    same(r.ids, (const int32_t[]){CLS, 5, SEP, 6, SEP, 0}, 6);
    same(r.one, (const int32_t[]){1, 0}, 2);
    sw_dataset_close(d);
}

static void numbers_and_bits_are_rows_of_f32(void **state)
{
    (void)state;
    static const char *const names[] = {"x", "y", "z"};
    const struct sw_task_data bits = {.name = "multi-label", .n_labels = 3, .label_names = names};
    const struct sw_task_data value = {.name = "regression", .n_labels = 1};
    struct rows r;
    const struct sw_row_input inputs[] = {{"input_ids", r.ids}, {"labels", r.numbers}};
    if (!bert) {
        skip();
    }
    struct sw_dataset *d = in_order(&bits, "a.jsonl",
                                    "{\"text\": \"a\", \"labels\": [\"z\", \"x\"]}\n"
                                    "{\"text\": \"a\", \"labels\": [0, 1, 1]}\n"
                                    "{\"text\": \"a\", \"labels\": []}\n");
    static const float wanted[] = {1, 0, 1, 0, 1, 1, 0, 0, 0};
    fetch(d, 0, 4, inputs, 2);
    assert_memory_equal(r.numbers, wanted, sizeof wanted);
    assert_true(isnan(r.numbers[9]) && isnan(r.numbers[11])); /* a blank row */
    sw_dataset_close(d);
    refuses(&bits, "a.jsonl", "{\"text\": \"a\", \"labels\": [0, 1]}\n",
            "wanted a list: 3 numbers");
    refuses(&bits, "a.jsonl", "{\"text\": \"a\", \"labels\": [\"w\"]}\n",
            "not one of the 3 classes");
    refuses(&bits, "a.jsonl", "{\"text\": \"a\", \"labels\": [0, 2, 0]}\n", "label 1 is 2");
    d = in_order(&value, "a.tsv", "sentence1\tsentence2\tscore\na\tb\t2.5\nc\td\t-1\n");
    fetch(d, 0, 2, inputs, 2);
    assert_true(r.numbers[0] == 2.5F && r.numbers[1] == -1);
    sw_dataset_close(d);
    refuses(&value, "a.tsv", "text\tlabel\na\tmuch\n",
            "line 2: the label \"much\", wanted a number");
}

/* A linear search would take 2^37 comparisons. Among equal names the first is the class. */
static void many_classes_are_found_by_name(void **state)
{
    (void)state;
    enum { N = 1 << 19 };
    struct sw_labels labels;
    char(*text)[8] = calloc(N, sizeof *text);
    const char **names = calloc(N, sizeof *names);
    struct sw_json_doc *doc;
    assert_int_equal(sw_json_new("a line", &doc), SW_OK);
    for (int i = 0; i < N; i++) {
        snprintf(text[i], sizeof text[i], "%x", (unsigned)i / 2 * 2);
        names[i] = text[i];
    }
    assert_int_equal(sw_labels_init(&labels, names, N), SW_OK);
    for (int32_t i = 0; i < N; i++) {
        int32_t found;
        const struct sw_json value = {
            .type = SW_JSON_STRING, .string = text[i], .string_len = strlen(text[i])};
        assert_int_equal(sw_label_of(&labels, doc, &value, &found), SW_OK);
        assert_int_equal(found, i / 2 * 2);
    }
    sw_labels_fini(&labels);
    sw_json_close(doc);
    free(names);
    free(text);
}

/* A number for each class and row would be 1.6 GB. */
static void classes_that_hold_take_no_memory_for_others(void **state)
{
    (void)state;
    enum { N = 20000 };
    int32_t ids[T];
    struct sw_alloc_stats before, after;
    struct sw_str text = {0};
    if (!bert) {
        skip();
    }
    char(*name)[16] = calloc(N, sizeof *name);
    const char **names = calloc(N, sizeof *names);
    float *numbers = calloc(N, sizeof *numbers);
    const struct sw_task_data bits = {.name = "multi-label", .n_labels = N, .label_names = names};
    for (int i = 0; i < N; i++) {
        snprintf(name[i], sizeof name[i], "%d", i);
        names[i] = name[i];
        sw_str_printf(&text, "{\"text\":\"a\",\"labels\":[\"%d\"]}\n", i);
    }
    sw_alloc_get_stats(&before);
    struct sw_dataset *d = open_text(&bits, "a.jsonl", text.ptr);
    sw_alloc_get_stats(&after);
    assert_true(after.live_bytes - before.live_bytes < 64 << 20);
    const struct sw_row_input inputs[] = {{"input_ids", ids}, {"labels", numbers}};
    assert_int_equal(sw_dataset_fetch_inputs(d, SW_SPLIT_TRAIN, 0, 1, inputs, 2), SW_OK);
    float sum = 0;
    for (int i = 0; i < N; i++) {
        sum += numbers[i];
    }
    assert_true(sum == 1);
    sw_dataset_close(d);
    sw_str_fini(&text);
    free(numbers);
    free(names);
    free(name);
}

static void first_pieces_of_words_have_labels(void **state)
{
    (void)state;
    static const char *const names[] = {"O", "B-X", "I-X"};
    const struct sw_task_data task = {.name = "tokens", .n_labels = 3, .label_names = names};
    struct rows r;
    const struct sw_row_input inputs[] = {{"input_ids", r.ids}, {"labels", r.labels}};
    enum { I = SW_IGNORED_LABEL };
    if (!bert) {
        skip();
    }
    struct sw_dataset *d = in_order(&task, "a.jsonl",
                                    "{\"tokens\": [\"a\", \"bcb\", \"\", \"c.\"], "
                                    "\"ner_tags\": [\"O\", \"B-X\", \"I-X\", 2]}\n");
    fetch(d, 0, 2, inputs, 2);
    same(r.ids, (const int32_t[]){CLS, 5, 6, 14, 13, 7, 15, SEP, 0}, 9);
    same(r.labels, (const int32_t[]){I, 0, 1, I, I, 2, I, I, I, I, I, I, I}, T + 1);
    sw_dataset_close(d);
    refuses(&task, "a.jsonl", "{\"tokens\": [\"a\"], \"tags\": [\"O\", \"O\"]}\n",
            "line 1: 1 words and 2 labels");
    refuses(&task, "a.jsonl", "{\"tokens\": \"a\", \"tags\": [\"O\"]}\n",
            "line 1: \"tokens\" is a string, wanted a list");
    refuses(&task, "a.jsonl", "{\"tokens\": [\"a\"], \"tags\": [\"B-Y\"]}\n",
            "line 1: the label \"B-Y\" is not one of the 3 classes");
}

/* As RobertaTokenizer of transformers 5.24 with add_prefix_space and is_split_into_words. A word
 * after a pattern of its own gets one space too, not each of its pieces. */
static void words_of_a_byte_level_bpe_have_a_space_in_front(void **state)
{
    (void)state;
    static const char *const configs[] = {"{\"model_type\": \"roberta\"}",
                                          "{\"model_type\": \"gpt2\"}",
                                          "{\"model_type\": \"qwen2\"}"};
    static const char *const names[] = {"O", "X"};
    const struct sw_task_data task = {.name = "tokens", .n_labels = 2, .label_names = names};
    struct rows r;
    const struct sw_row_input inputs[] = {{"input_ids", r.ids}, {"labels", r.labels}};
    enum { I = SW_IGNORED_LABEL };
    for (size_t i = 0; i < SW_LEN(configs); ++i) {
        struct sw_tokenizer *const saved = bert;
        struct sw_str folder = {0};
        sw_str_printf(&folder, "%s/words", test_folder());
        mkdir(folder.ptr, 0700); /* it may be there */
        sw_test_write_text(1, "words/vocab.json",
                           "{\"<s>\":0,\"<pad>\":1,\"</s>\":2,\"<unk>\":3,\"a\":4,\"b\":5,\"ab\":6,"
                           "\"\\u0120\":7,\"\\u0120a\":8,\".\":9,\"<mask>\":10}");
        sw_test_write_text(2, "words/merges.txt", "#version: 0.2\na b\n\xC4\xA0 a\n");
        sw_test_write_text(3, "words/config.json", configs[i]);
        bert = NULL;
        if (sw_tokenizer_open(folder.ptr, NULL, &bert) < 0) {
            print_message("skipped: %s\n", sw_error_message());
        }
        sw_str_fini(&folder);
        if (bert) {
            const int begin = i == 0; /* <s> */
            struct sw_dataset *d = in_order(&task, "a.jsonl",
                                            "{\"tokens\": [\"ab\", \" a\", \"\", \"a.b\"], "
                                            "\"ner_tags\": [\"X\", \"O\", \"X\", \"X\"]}\n");
            fetch(d, 0, 1, inputs, 2);
            same(r.ids + begin, (const int32_t[]){7, 6, 8, 8, 9, 5}, 6);
            same(r.labels + begin, (const int32_t[]){1, I, 0, 1, I, I}, 6);
            sw_dataset_close(d);
            sw_tokenizer_close(bert);
        }
        bert = saved;
    }
}

static void words_are_aligned_as_recorded(void **state)
{
    (void)state;
    enum { MOST = 128 };
    struct sw_json_doc *doc = NULL;
    struct sw_tokenizer *tokenizer = NULL;
    struct sw_str path = {0};
    const char *root = sw_test_fixtures(), *names[16];
    int n_names = 0;
    if (root) {
        sw_str_printf(&path, "%s/bert/ner_align.json", root);
        if (sw_json_read(path.ptr, SW_JSON_STRICT, &doc) < 0 ||
            sw_tokenizer_open(sw_test_data(&path, "tokenizers/bert-base-uncased"), NULL,
                              &tokenizer) < 0) {
            print_message("skipped: %s\n", sw_error_message());
        }
    }
    sw_str_fini(&path);
    if (!tokenizer) {
        sw_json_close(doc);
        skip();
    }
    const struct sw_json *all = sw_json_root(doc);
    for (const struct sw_json *name = sw_json_get(all, "labels")->first; name; name = name->next) {
        names[n_names++] = name->string;
    }
    for (const struct sw_json *c = sw_json_get(all, "cases")->first; c; c = c->next) {
        int32_t ids[MOST], labels[MOST];
        struct sw_str line = {0};
        const struct sw_row_input inputs[] = {{"input_ids", ids}, {"labels", labels}};
        const struct sw_task_data task = {
            .name = "tokens", .n_labels = n_names, .label_names = names};
        struct sw_dataset *d;
        sw_json_write(c, 0, &line); /* its "words" and "tags" are a record */
        const char *file = sw_test_write(0, "ner.jsonl", line.ptr, line.len);
        const struct sw_dataset_options options = {.files = &file,
                                                   .n_files = 1,
                                                   .val_files = &file,
                                                   .n_val_files = 1,
                                                   .tokenizer = tokenizer,
                                                   .seq_len = sw_json_get(c, "max_length")->integer,
                                                   .task = &task};
        if (sw_dataset_open(&options, &d) != SW_OK) {
            fail_msg("%s", sw_error_message());
        }
        fetch(d, 0, 1, inputs, 2);
        const struct sw_json *id = sw_json_get(c, "ids")->first;
        const struct sw_json *label = sw_json_get(c, "labels")->first;
        int t = 0;
        for (; id; id = id->next, label = label->next, t++) {
            assert_int_equal(ids[t], id->integer);
            assert_int_equal(labels[t], label->integer);
        }
        assert_true(t == options.seq_len || (ids[t] == 0 && labels[t] == SW_IGNORED_LABEL));
        sw_dataset_close(d);
        sw_str_fini(&line);
    }
    sw_tokenizer_close(tokenizer);
    sw_json_close(doc);
}

/* As DPOTrainer of TRL 1.16: prompt and response are one text, and both responses begin after the
 * tokens that they share with the prompt alone. */
static void responses_continue_the_text_of_their_prompt(void **state)
{
    (void)state;
    enum { I = SW_IGNORED_LABEL };
    static const char words[] =
        "{\"version\": \"1.0\", \"pre_tokenizer\": {\"type\": \"Metaspace\", \"prepend_scheme\": "
        "\"first\"}, \"model\": {\"type\": \"BPE\", \"vocab\": {\"</s>\": 0, \"\u2581\": 1, "
        "\"a\": 2, \"b\": 3, \"c\": 4, \"bc\": 5}, \"merges\": [\"b c\"]}}";
    const struct sw_task_data task = {.name = "dpo"};
    struct sw_tokenizer *const saved = bert;
    int32_t ids[2 * T], labels[2 * T];
    const struct sw_row_input inputs[] = {{"input_ids", ids}, {"labels", labels}};
    assert_int_equal(sw_tokenizer_open(sw_test_write_text(1, "joined.json", words), NULL, &bert),
                     SW_OK);
    struct sw_dataset *d = in_order(
        &task, "a.jsonl", "{\"prompt\": \"ab\", \"chosen\": \"ca\", \"rejected\": \"aa\"}\n");
    fetch(d, 0, 1, inputs, 2);
    same(ids, (const int32_t[]){1, 2, 5, 2}, 4);
    same(labels, (const int32_t[]){I, 5, 2, 0, I}, 5);
    same(ids + T, (const int32_t[]){1, 2, 3, 2, 2}, 5);
    same(labels + T, (const int32_t[]){I, 3, 2, 2, 0, I}, 6);
    sw_dataset_close(d);
    sw_tokenizer_close(bert);
    bert = saved;
}

/* One text or two of a fixture, cut to the length of a row. */
static sw_status check_batch(void *ctx, const struct sw_json_doc *doc, const struct sw_json *batch)
{
    enum { MOST = 64 };
    struct sw_tokenizer *const *tokenizers = ctx; /* that cut at the right, and at the left */
    const struct sw_task_data task = {.name = "classify", .n_labels = 2};
    const struct sw_json *options = sw_json_get(batch, "options");
    const struct sw_json *how = sw_json_get(options, "truncation");
    const struct sw_json *pairs = sw_json_get(batch, "pairs"), *texts = sw_json_get(batch, "texts");
    const struct sw_json *length = sw_json_get(options, "max_length");
    const bool left = sw_json_get(options, "truncation_side") != NULL;
    (void)doc;
    if (!how || (pairs ? strcmp(how->string, "longest_first") != 0
                       : sw_json_get(options, "return_overflowing_tokens") != NULL)) {
        return SW_OK;
    }
    const struct sw_json *ids = sw_json_get(batch, "input_ids")->first;
    for (const struct sw_json *one = (pairs ? pairs : texts)->first; one;
         one = one->next, ids = ids->next) {
        int32_t found[MOST];
        struct sw_str line = {0};
        struct sw_dataset *d;
        const struct sw_row_input inputs[] = {{"input_ids", found}};
        sw_str_printf(&line, "{\"label\": 0, \"%s\": ", pairs ? "sentence1" : "text");
        sw_json_write(pairs ? one->first : one, 0, &line);
        if (pairs) {
            sw_str_puts(&line, ", \"sentence2\": ");
            sw_json_write(one->last, 0, &line);
        }
        sw_str_puts(&line, "}\n");
        const char *file = sw_test_write(0, "cut.jsonl", line.ptr, line.len);
        const struct sw_dataset_options o = {.files = &file,
                                             .n_files = 1,
                                             .val_files = &file,
                                             .n_val_files = 1,
                                             .tokenizer = tokenizers[left],
                                             .seq_len = length->integer,
                                             .task = &task};
        if (sw_dataset_open(&o, &d) != SW_OK) {
            fail_msg("%s", sw_error_message());
        }
        fetch(d, 0, 1, inputs, 1);
        int t = 0;
        for (const struct sw_json *id = ids->first; id; id = id->next, t++) {
            if (found[t] != id->integer) {
                fail_msg("%s: token %d is %d, wanted %d", line.ptr, t, found[t], (int)id->integer);
            }
        }
        sw_dataset_close(d);
        sw_str_fini(&line);
    }
    return SW_OK;
}

static void texts_are_cut_as_recorded(void **state)
{
    (void)state;
    const char *root = sw_test_fixtures();
    struct sw_str path = {0};
    struct sw_tokenizer *tokenizers[2] = {NULL};
    char *json = NULL;
    size_t len;
    if (!root) {
        skip();
    }
    sw_str_printf(&path, "%s/tokenizers/bert/tokenizer.json", root);
    assert_int_equal(sw_file_read(path.ptr, &json, &len), SW_OK);
    if (sw_tokenizer_open(path.ptr, NULL, &tokenizers[0]) < 0) {
        print_message("skipped: %s\n", sw_error_message());
        sw_free(json);
        sw_str_fini(&path);
        skip();
    }
    sw_test_write(1, "tokenizer.json", json, len);
    sw_test_write_text(2, "tokenizer_config.json", "{\"truncation_side\": \"left\"}");
    assert_int_equal(sw_tokenizer_open(test_folder(), NULL, &tokenizers[1]), SW_OK);
    sw_str_clear(&path);
    sw_str_printf(&path, "%s/tokenizers/bert/batches.jsonl", root);
    if (sw_records_read(path.ptr, false, check_batch, tokenizers) < 0) {
        fail_msg("%s", sw_error_message());
    }
    sw_tokenizer_close(tokenizers[0]);
    sw_tokenizer_close(tokenizers[1]);
    sw_free(json);
    sw_str_fini(&path);
}

/* The lengths that tokenizers 0.23 leaves of two texts; the odd token is that of the longer. */
static void odd_rests_belong_to_the_longer_text(void **state)
{
    (void)state;
    static const struct {
        const char *texts;
        int n[2];
    } cases[] = {{"a a a a a a a a a a a a\", \"sentence2\": \"b b b b b b b b b b b b", {4, 5}},
                 {"a a a a a a a a a a\", \"sentence2\": \"b b b b b b b b b", {5, 4}},
                 {"a a a a a a\", \"sentence2\": \"b b b b b b b b b", {4, 5}},
                 {"a a a\", \"sentence2\": \"b b b b b b b b b", {3, 6}},
                 {"a a a a a a a a a a a a\", \"sentence2\": \"b b", {7, 2}}};
    const struct sw_task_data task = {.name = "classify", .n_labels = 2};
    struct rows r;
    const struct sw_row_input inputs[] = {{"input_ids", r.ids}};
    if (!bert) {
        skip();
    }
    for (size_t i = 0; i < SW_LEN(cases); ++i) {
        struct sw_str line = {0};
        int n[2] = {0};
        sw_str_printf(&line, "{\"label\": 0, \"sentence1\": \"%s\"}\n", cases[i].texts);
        struct sw_dataset *d = in_order(&task, "a.jsonl", sw_str_text(&line));
        fetch(d, 0, 1, inputs, 1);
        for (int t = 0; t < T; ++t) {
            n[0] += r.ids[t] == FIRST;
            n[1] += r.ids[t] == FIRST + 1;
        }
        assert_int_equal(n[0], cases[i].n[0]);
        assert_int_equal(n[1], cases[i].n[1]);
        sw_dataset_close(d);
        sw_str_fini(&line);
    }
}

/* mBART's decoder begins with the last label of a row: the code of the target's language. */
static void targets_have_the_template_of_a_target(void **state)
{
    (void)state;
    static const char words[] =
        "{\"version\": \"1.0\", \"pre_tokenizer\": {\"type\": \"Metaspace\"}, \"model\": "
        "{\"type\": \"Unigram\", \"unk_id\": 3, \"vocab\": [[\"<s>\", 0], [\"<pad>\", 0], "
        "[\"</s>\", 0], [\"<unk>\", 0], [\"\u2581a\", -1], [\"\u2581b\", -1.5], "
        "[\"en_XX\", 0], [\"ro_RO\", 0]]}}";
    static const char text[] = "{\"source\": \"a b\", \"target\": \"b\"}\n";
    struct sw_task_data task = {.name = "seq2seq", .target_len = 3};
    struct sw_tokenizer *const saved = bert;
    struct rows r;
    struct sw_str folder = {0};
    const struct sw_row_input inputs[] = {{"input_ids", r.ids}, {"labels", r.labels}};
    sw_str_printf(&folder, "%s/mbart", test_folder());
    assert_int_equal(mkdir(folder.ptr, 0700), 0);
    sw_test_write_text(1, "mbart/tokenizer.json", words);
    sw_test_write_text(2, "mbart/config.json", "{\"model_type\": \"mbart\"}");
    sw_test_write_text(3, "mbart/tokenizer_config.json", "{\"tgt_lang\": \"ro_RO\"}");
    assert_int_equal(sw_tokenizer_open(folder.ptr, NULL, &bert), SW_OK);
    struct sw_dataset *d = in_order(&task, "a.jsonl", text);
    fetch(d, 0, 1, inputs, 2);
    same(r.ids, (const int32_t[]){4, 5, 2, 6, 1}, 5);
    same(r.labels, (const int32_t[]){5, 2, 7}, 3);
    sw_dataset_close(d);
    sw_tokenizer_close(bert);
    sw_test_write_text(3, "mbart/tokenizer_config.json", "{}");
    assert_int_equal(sw_tokenizer_open(folder.ptr, NULL, &bert), SW_OK);
    refuses(&task, "a.jsonl", text, "\"tgt_lang\" is absent from tokenizer_config.json");
    sw_tokenizer_close(bert);
    sw_str_fini(&folder);
    bert = saved;
}

/* Marian's sources and targets have models of their own. Other tasks have no use for it. */
static void sources_and_targets_have_tokens_of_their_own(void **state)
{
    (void)state;
    static const char text[] = "{\"source\": \"the sun\", \"target\": \"the sun\"}\n";
    const char *file = sw_test_write_text(0, "pairs.jsonl", text);
    struct sw_task_data task = {.name = "seq2seq", .target_len = T};
    struct sw_dataset_options options = {.files = &file,
                                         .n_files = 1,
                                         .val_files = &file,
                                         .n_val_files = 1,
                                         .seq_len = T,
                                         .task = &task};
    struct sw_tokenizer *marian = NULL;
    struct sw_ids source = {0}, target = {0};
    struct sw_dataset *d = NULL;
    struct rows r;
    int32_t labels[T];
    const struct sw_row_input inputs[] = {{"input_ids", r.ids}, {"labels", labels}};
    assert_int_equal(sw_tokenizer_open("tests/cases/marian_tokenizer", NULL, &marian), SW_OK);
    options.tokenizer = marian;
    assert_int_equal(sw_tokenizer_encode(marian, "the sun", 7, true, &source), SW_OK);
    assert_int_equal(sw_tokenizer_encode_target(marian, "the sun", 7, true, &target), SW_OK);
    assert_true(source.len != target.len || memcmp(source.ptr, target.ptr, 4) != 0);
    assert_int_equal(sw_dataset_open(&options, &d), SW_OK);
    fetch(d, 0, 1, inputs, 2);
    same(r.ids, source.ptr, (int)source.len);
    same(labels, target.ptr, (int)target.len);
    assert_int_equal(labels[target.len], SW_IGNORED_LABEL);
    sw_dataset_close(d);
    const char *const others[] = {"causal", "masked", "denoise", "classify"};
    for (size_t i = 0; i < SW_LEN(others); ++i) {
        task.name = others[i];
        assert_int_equal(sw_dataset_open(&options, &d), SW_E_UNSUP);
        assert_non_null(strstr(sw_error_message(), "it is for pairs of texts"));
    }
    sw_ids_fini(&source);
    sw_ids_fini(&target);
    sw_tokenizer_close(marian);
}

static void targets_are_for_the_decoder(void **state)
{
    (void)state;
    struct sw_task_data task = {.name = "seq2seq", .target_len = U, .source_prefix = "h "};
    struct rows r;
    int32_t labels[2 * U];
    const struct sw_row_input inputs[] = {{"input_ids", r.ids}, {"labels", labels}};
    enum { I = SW_IGNORED_LABEL };
    if (!bert) {
        skip();
    }
    struct sw_dataset *d =
        in_order(&task, "a.jsonl",
                 "{\"document\": \"a b\", \"summary\": \"c\"}\n"
                 "{\"document\": \"a b c d e f g h a b\", \"summary\": \"c d e f g h\"}\n");
    fetch(d, 0, 2, inputs, 2);
    same(r.ids, (const int32_t[]){CLS, 12, 5, 6, SEP, 0}, 6);
    same(r.ids + T, (const int32_t[]){CLS, 12, 5, 6, 7, 8, 9, 10, 11, 12, 5, SEP}, T);
    same(labels, (const int32_t[]){CLS, 7, SEP, I, I, I, I, I, CLS, 7, 8, 9, 10, 11, 12, SEP}, 16);
    assert_int_equal(sw_dataset_n_cut(d, SW_SPLIT_VAL), 1);
    sw_dataset_close(d);
    task.source_prefix = NULL;
    d = in_order(&task, "a.jsonl", "{\"translation\": {\"en\": \"a\", \"ro\": \"b\"}}\n");
    fetch(d, 0, 1, inputs, 2);
    same(r.ids, (const int32_t[]){CLS, 5, SEP}, 3);
    same(labels, (const int32_t[]){CLS, 6, SEP}, 3);
    sw_dataset_close(d);
    static const char turned[] = "{\"translation\": {\"en\": \"a\", \"ro\": \"b\"}}\n"
                                 "{\"translation\": {\"ro\": \"b\", \"en\": \"a\"}}\n";
    d = in_order(&task, "a.jsonl", turned); /* the first record says from which to which */
    fetch(d, 0, 2, inputs, 2);
    same(r.ids + T, (const int32_t[]){CLS, 5, SEP}, 3);
    sw_dataset_close(d);
    refuses(&task, "a.jsonl",
            "{\"translation\": {\"en\": \"a\", \"ro\": \"b\"}}\n"
            "{\"translation\": {\"en\": \"a\", \"de\": \"b\"}}\n",
            "a.jsonl line 2: no \"ro\"");
    refuses(&task, "a.jsonl", "{\"translation\": {\"en\": \"a\", \"ro\": \"b\", \"de\": \"c\"}}\n",
            "line 1: \"translation\" has 3 languages, wanted two, or --text-column");
    task.text_columns[0] = "ro";
    task.label_column = "en";
    d = in_order(&task, "a.jsonl", "{\"translation\": {\"en\": \"a\", \"ro\": \"b\"}}\n");
    fetch(d, 0, 1, inputs, 2);
    same(r.ids, (const int32_t[]){CLS, 6, SEP}, 3);
    sw_dataset_close(d);
    task = (struct sw_task_data){.name = "seq2seq", .target_len = U};
    const int32_t eos = bert->eos;
    bert->single.n_items--; /* a template that ends no text */
    bert->eos = SEP;
    d = in_order(&task, "a.jsonl", "{\"document\": \"a\", \"summary\": \"c\"}\n");
    fetch(d, 0, 1, inputs, 2);
    same(r.ids, (const int32_t[]){CLS, 5, SEP, 0}, 4);
    same(labels, (const int32_t[]){CLS, 7, SEP, I}, 4);
    sw_dataset_close(d);
    bert->eos = eos;
    refuses(&task, "a.jsonl",
            "{\"document\": \"a\", \"summary\": \"a\"}\n"
            "{\"document\": \"a\", \"summary\": \"c d e f g h a\"}\n"
            "{\"document\": \"a\", \"summary\": \"c d e f g h a b c\"}\n",
            "a.jsonl line 2: a target is longer than the decoder's 8 tokens; so are 2 of 3, the "
            "longest has 11 (--target-len)");
}

static void answers_are_places_in_windows(void **state)
{
    (void)state;
    const struct sw_task_data task = {.name = "answers"};
    struct rows r;
    const struct sw_row_input inputs[] = {{"input_ids", r.ids},
                                          {"token_type_ids", r.types},
                                          {"start_positions", r.one},
                                          {"end_positions", r.two}};
    static const char squad[] =
        "{\"data\": [{\"paragraphs\": [{\"context\": \"a b c d e f g h a b\", \"qas\": [{\"id\": "
        "\"q\", \"question\": \" h\", \"answers\": [{\"text\": \"e f\", \"answer_start\": 8}]}, "
        "{\"id\": \"r\", \"question\": \"g\", \"answers\": []}]}]}]}";
    if (!bert) {
        skip();
    }
    struct sw_dataset *d = in_order(&task, "a.json", squad);
    assert_int_equal(sw_dataset_n_samples(d, SW_SPLIT_VAL), 4);
    fetch(d, 0, 4, inputs, 4); /* windows of 8, sharing T / 3 = 4 */
    same(r.ids, (const int32_t[]){CLS, 12, SEP, 5, 6, 7, 8, 9, 10, 11, 12, SEP}, T);
    same(r.types, (const int32_t[]){0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1}, T);
    same(r.ids + T, (const int32_t[]){CLS, 12, SEP, 9, 10, 11, 12, 5, 6, SEP, 0, 0}, T);
    same(r.one, (const int32_t[]){7, 3, 0, 0}, 4);
    same(r.two, (const int32_t[]){8, 4, 0, 0}, 4);
    sw_dataset_close(d);
    refuses(&task, "a.json",
            "{\"data\": [{\"paragraphs\": [{\"context\": \"a b\", \"qas\": [\n{\"id\": \"q\", "
            "\"question\": \"h\", \"answers\": [{\"text\": \"b\", \"answer_start\": 1}]}]}]}]}",
            "a.json line 2: question \"q\": the answer \"b\" is not in its context at 1");
    refuses(&task, "a.json",
            "{\"data\": [{\"paragraphs\": [{\"context\": \"a b\", \"qas\": [{\"id\": \"q\", "
            "\"question\": \"h h h h h\", \"answers\": []}]}]}]}",
            "beside the question's 5 tokens a row of 12 has room for 4");
    refuses(&task, "a.jsonl",
            "{\"question\": \"h\", \"context\": \"a b\", \"answers\": {\"text\": [\"b\"], "
            "\"answer_start\": [\"2\"]}}\n",
            "a.jsonl line 1: in \"answers\" a \"answer_start\" is a string, wanted an integer");
    refuses(&task, "a.jsonl",
            "{\"question\": \"h\", \"context\": \"a b\", \"answers\": {\"text\": [3], "
            "\"answer_start\": [2]}}\n",
            "a.jsonl line 1: in \"answers\" a \"text\" is an integer, wanted a string");
    refuses(&task, "a.jsonl",
            "{\"question\": \"h\", \"context\": \"a b\", \"answers\": {\"text\": [\"\"], "
            "\"answer_start\": [2]}}\n",
            "a.jsonl line 1: the text of an answer is empty; a question that has no answer has");
}

/* A row has room for each text once. A template that repeats a text would overflow it. */
static void templates_have_each_text_once(void **state)
{
    (void)state;
    const struct sw_task_data task = {.name = "classify", .n_labels = 2};
    struct sw_template *const templates[] = {bert ? &bert->single : NULL,
                                             bert ? &bert->pair : NULL};
    static const char *const why[] = {"template for a text has the first text 2 times",
                                      "template for two texts has the first text 2 times"};
    if (!bert) {
        skip();
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(sw_template_add(templates[i], SW_TEMPLATE_FIRST, -1, 0), SW_OK);
        refuses(&task, "a.jsonl", "{\"text\": \"a\", \"label\": 1}\n", why[i]);
        templates[i]->n_items--;
    }
}

static void masked_rows_differ_by_sample_alone(void **state)
{
    (void)state;
    const struct sw_task_data task = {.name = "masked"};
    const struct sw_task_data pairs = {.name = "pretrain"};
    static int32_t ids[64 * T], labels[64 * T], follows[64], again[5 * T], some[5 * T];
    struct sw_str text = {0};
    if (!bert) {
        skip();
    }
    for (int i = 0; i < 30; i++) {
        sw_str_printf(&text, "%s", "a b c d e f g h [SEP] ");
    }
    struct sw_dataset *d = open_text(&task, "a.txt", text.ptr);
    const struct sw_row_input all[] = {{"input_ids", ids}, {"labels", labels}};
    const struct sw_row_input part[] = {{"input_ids", again}, {"labels", some}};
    assert_int_equal(sw_dataset_n_samples(d, SW_SPLIT_TRAIN), 27); /* 270 tokens in rows of 10 */
    assert_int_equal(sw_dataset_fetch_inputs(d, SW_SPLIT_TRAIN, 0, 64, all, 2), SW_OK);
    int n_asked = 0;
    for (int t = 0; t < 64 * T; t++) {
        n_asked += labels[t] != SW_IGNORED_LABEL;
        assert_true(labels[t] == SW_IGNORED_LABEL || labels[t] >= FIRST); /* no special token */
        assert_true(labels[t] == SW_IGNORED_LABEL || (t % T != 0 && t % T != T - 1));
    }
    assert_in_range(n_asked, 40, 140); /* 15 % of 64 x 9 */
    for (int64_t first = 59; first >= 0; first -= 7) {
        assert_int_equal(sw_dataset_fetch_inputs(d, SW_SPLIT_TRAIN, first, 5, part, 2), SW_OK);
        assert_memory_equal(again, ids + first * T, sizeof again);
        assert_memory_equal(some, labels + first * T, sizeof some);
    }
    sw_dataset_close(d);
    sw_str_clear(&text);
    for (int i = 0; i < 8; i++) {
        const char *c = &"abcdefgh"[i];
        sw_str_printf(&text, "{\"sentence1\": \"%c %c\", \"sentence2\": \"%c %c\"}\n", *c, *c, *c,
                      *c);
    }
    d = open_text(&pairs, "a.jsonl", text.ptr);
    const struct sw_row_input two[] = {
        {"input_ids", ids}, {"labels", labels}, {"next_sentence_label", follows}};
    assert_int_equal(sw_dataset_fetch_inputs(d, SW_SPLIT_TRAIN, 0, 64, two, 3), SW_OK);
    int n_others = 0;
    for (int i = 0; i < 64; i++) {
        const int32_t *row = ids + i * T, *label = labels + i * T;
        const int32_t a = label[1] < 0 ? row[1] : label[1], b = label[4] < 0 ? row[4] : label[4];
        assert_int_equal(follows[i], a != b);
        n_others += follows[i];
    }
    assert_in_range(n_others, 20, 44);
    sw_dataset_close(d);
    sw_str_fini(&text);
    refuses(&pairs, "a.jsonl", "{\"text\": \"a\"}\n", "one text, wanted two");
}

/* Replacing each sentinel by its span restores the text. */
static void spans_put_back_are_the_text(void **state)
{
    enum { ROWS = 4 };
    const struct sw_task_data task = {.name = "denoise", .target_len = U};
    static const char text[] = "a b c d e f g h a c e g b d f h a d g b e h c f";
    static const char *const letters = "abcdefgh";
    int32_t ids[ROWS * T], labels[ROWS * U];
    const struct sw_row_input inputs[] = {{"input_ids", ids}, {"labels", labels}};
    struct sw_dataset *d = NULL;
    char back[256] = "";
    if (!bert) {
        skip();
    }
    (void)state;
    const int32_t marks = (int32_t)sw_tokenizer_vocab_size(bert), none = bert->eos;
    bert->eos = SEP; /* T5's texts end with one */
    const char *path = sw_test_write_text(0, "a.txt", text);
    struct sw_dataset_options options = options_of(&task, &path);
    options.val_files = &path;
    options.n_val_files = 1;
    options.vocab_size = marks + 100;
    if (sw_dataset_open(&options, &d) < 0) {
        fail_msg("%s", sw_error_message());
    }
    const int64_t n = sw_dataset_n_samples(d, SW_SPLIT_VAL);
    assert_in_range(n, 2, ROWS);
    fetch(d, 0, n, inputs, 2);
    for (int64_t r = 0; r < n; r++) {
        const int32_t *row = ids + r * T, *spans = labels + r * U;
        int n_marks = 0;
        for (int t = 0; t < T && row[t] != SEP; t++) {
            if (row[t] < marks) {
                snprintf(back + strlen(back), 3, "%c ", letters[row[t] - FIRST]);
                continue;
            }
            int at = 0; /* after the same sentinel in the targets */
            while (at < U && spans[at] != row[t]) {
                at++;
            }
            assert_true(at < U - 1);
            for (at++; at < U && spans[at] >= FIRST && spans[at] < marks; at++) {
                snprintf(back + strlen(back), 3, "%c ", letters[spans[at] - FIRST]);
            }
            n_marks++;
        }
        assert_true(n_marks > 0);
    }
    back[strlen(back) - 1] = '\0';
    assert_string_equal(back, text);
    sw_dataset_close(d);
    bert->eos = none;
}

/* One file, to train on and to validate with. */
static struct sw_dataset_options images_of(const char *const *path, const struct sw_task_data *task)
{
    return (struct sw_dataset_options){.files = path,
                                       .n_files = 1,
                                       .val_files = path,
                                       .n_val_files = 1,
                                       .seq_len = 1,
                                       .task = task};
}

static void images_are_scaled_bytes(void **state)
{
    (void)state;
    enum { BYTES = 3 * 32 * 32, RECORD = BYTES + 1 };
    static unsigned char file[3 * RECORD];
    static float pixels[2 * BYTES];
    int32_t labels[2];
    struct sw_dataset *d;
    struct sw_task_data task = {
        .name = "images", .n_labels = 10, .channels = 3, .height = 32, .width = 32};
    for (int i = 0; i < 3; i++) {
        file[i * RECORD] = (unsigned char)(3 * i);
        memset(file + i * RECORD + 1, 85 * i, BYTES);
    }
    const char *path = sw_test_write(0, "data_batch_1.bin", file, sizeof file);
    const struct sw_dataset_options options = images_of(&path, &task);
    const struct sw_row_input inputs[] = {{"pixel_values", pixels}, {"labels", labels}};
    assert_int_equal(sw_dataset_open(&options, &d), SW_OK);
    fetch(d, 1, 2, inputs, 2);
    assert_int_equal(labels[0], 3);
    assert_int_equal(labels[1], 6);
    assert_true(fabsf(pixels[0] - (85 / 255.0F - 0.5F) / 0.5F) < 1e-6F);
    assert_true(fabsf(pixels[BYTES + 5] - (170 / 255.0F - 0.5F) / 0.5F) < 1e-6F);
    fetch(d, 2, 2, inputs, 2);
    assert_int_equal(labels[1], SW_IGNORED_LABEL);
    sw_dataset_close(d);
    task.n_labels = 5;
    assert_int_equal(sw_dataset_open(&options, &d), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "data_batch_1.bin: image 2 has the label 6, wanted "
                                               "one of 5 classes"));
    task.n_labels = 10;
    sw_test_write(0, "data_batch_1.bin", file, sizeof file - 7);
    assert_int_equal(sw_dataset_open(&options, &d), SW_E_FORMAT);
    assert_non_null(
        strstr(sw_error_message(), "data_batch_1.bin: 9212 bytes; wanted whole records"));
    sw_test_write(0, "data_batch_1.bin", file, 0);
    assert_int_equal(sw_dataset_open(&options, &d), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "the file is empty"));
    task.channels = 1;
    assert_int_equal(sw_dataset_open(&options, &d), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "images of 1 channels, wanted 3"));
}

/* The byte beside an image as bits of its classes, and as a number. */
static void images_may_have_bits_or_a_number(void **state)
{
    (void)state;
    enum { RECORD = 3 * 32 * 32 + 1 };
    static const struct {
        const char *name;
        int64_t n_labels;
        float want[6];
    } rows[] = {{"images-multi-label", 3, {0, 1, 0, 0, 0, 1}}, {"images-regression", 1, {1, 2}}};
    static unsigned char file[2 * RECORD];
    file[0] = 1;
    file[RECORD] = 2;
    const char *path = sw_test_write(0, "scores.bin", file, sizeof file);
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        float labels[6];
        struct sw_dataset *d;
        struct sw_task_data task = {.name = rows[i].name,
                                    .n_labels = rows[i].n_labels,
                                    .channels = 3,
                                    .height = 32,
                                    .width = 32};
        const struct sw_dataset_options options = images_of(&path, &task);
        const struct sw_row_input input = {"labels", labels};
        assert_int_equal(sw_dataset_open(&options, &d), SW_OK);
        fetch(d, 0, 2, &input, 1);
        assert_memory_equal(labels, rows[i].want, (size_t)(2 * rows[i].n_labels) * sizeof *labels);
        sw_dataset_close(d);
        task.n_labels = 2;
        assert_int_equal(sw_dataset_open(&options, &d), i == 0 ? SW_E_FORMAT : SW_E_CONFIG);
        assert_non_null(
            strstr(sw_error_message(), i == 0 ? "image 1 has the label 2" : "head has 2 numbers"));
    }
}

static void classes_are_found_in_the_data(void **state)
{
    (void)state;
    struct sw_label_list list;
    const struct sw_task_data classes = {.name = "classify"}, words = {.name = "tokens"};
    const char *path = sw_test_write_text(0, "a.csv", "text,label\na,10\nb,9\nc,10\n");
    struct sw_dataset_options options = {.files = &path, .n_files = 1, .task = &classes};
    assert_int_equal(sw_labels_find(&options, 0, &list), SW_OK);
    assert_int_equal(list.n, 2);
    assert_string_equal(list.names[0], "9");
    assert_string_equal(list.names[1], "10");
    sw_label_list_fini(&list);
    path = sw_test_write_text(0, "a.csv", "text,label\na,x\nb,\n");
    assert_int_equal(sw_labels_find(&options, 0, &list), SW_E_FORMAT); /* a value that is missing */
    assert_non_null(strstr(sw_error_message(), "a.csv line 3: a label is empty"));
    path = sw_test_write_text(0, "a.jsonl", "{\"text\": \"a\", \"label\": 4}\n");
    assert_int_equal(sw_labels_find(&options, 0, &list), SW_OK);
    assert_true(list.n == 5 && !list.names);
    sw_label_list_fini(&list);
    path = sw_test_write_text(0, "a.jsonl",
                              "{\"text\": \"a\", \"label\": 4}\n"
                              "{\"text\": \"b\", \"label\": 1000000}\n"
                              "{\"text\": \"c\", \"label\": 4}\n");
    assert_int_equal(sw_labels_find(&options, 0, &list), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(),
                           "a.jsonl line 2: the label 1000000 would make 1000001 classes, and of 3 "
                           "labels 2 differ"));
    assert_int_equal(sw_labels_find(&options, 1000001, &list), SW_OK); /* the model has them */
    assert_int_equal(list.n, 1000001);
    sw_label_list_fini(&list);
    const struct sw_task_data values = {.name = "regression"};
    options.task = &values; /* a number is no class */
    assert_int_equal(sw_labels_find(&options, 0, &list), SW_OK);
    assert_true(list.n == 0 && !list.names);
    sw_label_list_fini(&list);
    path = sw_test_write_text(0, "a.jsonl", "{\"text\": \"a\", \"label\": [4, 2, 0.5]}\n");
    assert_int_equal(sw_labels_find(&options, 0, &list), SW_OK);
    assert_true(list.n == 3 && !list.names);
    sw_label_list_fini(&list);
    options.task = &words;
    path =
        sw_test_write_text(0, "b.jsonl", "{\"tokens\": [], \"tags\": [\"B-X\", \"O\", \"B-A\"]}\n");
    assert_int_equal(sw_labels_find(&options, 0, &list), SW_OK);
    assert_int_equal(list.n, 3);
    assert_string_equal(list.names[0], "O");
    assert_string_equal(list.names[1], "B-A");
    sw_label_list_fini(&list);
    path = sw_test_write_text(0, "b.jsonl", "{\"tokens\": [], \"tags\": [\"B-X\", 3]}\n");
    assert_int_equal(sw_labels_find(&options, 0, &list), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "classes by name (\"B-X\") and by number (3)"));
    const struct sw_task_data bits = {.name = "multi-label"};
    options.task = &bits;
    path = sw_test_write_text(0, "b.jsonl",
                              "{\"text\": \"\", \"labels\": [\"x\"]}\n"
                              "{\"text\": \"\", \"labels\": [0, 1, 1]}\n");
    assert_int_equal(sw_labels_find(&options, 0, &list), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "by name (\"x\") and by number (lists of 3)"));
    path = sw_test_write_text(0, "b.jsonl", "{\"text\": \"\", \"label\": 9223372036854775807}\n");
    options.task = &classes;
    assert_int_equal(sw_labels_find(&options, 0, &list), SW_E_FORMAT);
    assert_non_null(strstr(sw_error_message(), "b.jsonl line 1: the label 9223372036854775807"));
}

static void lack_of_memory_is_said(void **state)
{
    (void)state;
    static const char squad[] =
        "{\"data\": [{\"paragraphs\": [{\"context\": \"a b\", \"qas\": [{\"id\": \"q\", "
        "\"question\": \"h\", \"answers\": [{\"text\": \"b\", \"answer_start\": 2}]}]}]}]}";
    const struct sw_task_data tasks[] = {{.name = "classify", .n_labels = 2}, {.name = "answers"}};
    if (!bert) {
        skip();
    }
    for (int i = 0; i < 2; i++) {
        const char *path = i == 0 ? sw_test_write_text(0, "a.csv", "text,label\na,1\nb,0\n")
                                  : sw_test_write_text(0, "a.json", squad);
        const struct sw_dataset_options options = options_of(&tasks[i], &path);
        sw_status st = SW_E_NOMEM;
        for (int64_t nth = 1; st == SW_E_NOMEM; nth++) {
            struct sw_dataset *d = NULL;
            sw_alloc_fail_nth(nth);
            st = sw_dataset_open(&options, &d);
            sw_alloc_fail_nth(0);
            if (st >= 0) {
                sw_dataset_close(d);
            }
            assert_true(nth < 1000);
        }
        assert_int_equal(st, SW_OK);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_tokenizers_inputs_say_whether_there_are_types),
    cmocka_unit_test(texts_are_cut_at_the_side_that_the_tokenizer_says),
    cmocka_unit_test(classes_have_one_or_two_texts),
    cmocka_unit_test(numbers_and_bits_are_rows_of_f32),
    cmocka_unit_test(many_classes_are_found_by_name),
    cmocka_unit_test(classes_that_hold_take_no_memory_for_others),
    cmocka_unit_test(first_pieces_of_words_have_labels),
    cmocka_unit_test(words_of_a_byte_level_bpe_have_a_space_in_front),
    cmocka_unit_test(words_are_aligned_as_recorded),
    cmocka_unit_test(targets_are_for_the_decoder),
    cmocka_unit_test(responses_continue_the_text_of_their_prompt),
    cmocka_unit_test(texts_are_cut_as_recorded),
    cmocka_unit_test(odd_rests_belong_to_the_longer_text),
    cmocka_unit_test(targets_have_the_template_of_a_target),
    cmocka_unit_test(sources_and_targets_have_tokens_of_their_own),
    cmocka_unit_test(answers_are_places_in_windows),
    cmocka_unit_test(templates_have_each_text_once),
    cmocka_unit_test(masked_rows_differ_by_sample_alone),
    cmocka_unit_test(spans_put_back_are_the_text),
    cmocka_unit_test(images_are_scaled_bytes),
    cmocka_unit_test(images_may_have_bits_or_a_number),
    cmocka_unit_test(classes_are_found_in_the_data),
    cmocka_unit_test(lack_of_memory_is_said),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = open_bert,
                                      .teardown = close_bert};
