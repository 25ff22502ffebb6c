// SPDX-License-Identifier: Apache-2.0
// COST 6
// Trains tasks from their files to a folder that eval reads. A classifier learns, with the same
// bits on one rank and on two. The best checkpoint is the best by its metric. Every task with a
// text model trains, is evaluated and has its metrics.
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "json/json.h"
#include "spillway/checkpoint.h"
#include "spillway/data.h"
#include "spillway/train.h"
#include "support/scratch.h"
#include "support/test.h"

static int make_folder(void **state)
{
    (void)state;
    static const char words[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\ne\nf\ng\nh\n.\n";
    sw_tokenizer *tokenizer = NULL;
    assert_int_equal(sw_mkdirs(test_at("tokenizer")), SW_OK);
    test_put("tokenizer/vocab.txt", words);
    if (sw_tokenizer_open(test_at("tokenizer"), NULL, &tokenizer) < 0) {
        print_message("skipped: %s\n", sw_error_message()); /* the tokenizer needs utf8proc */
        exit(77);
    }
    sw_tokenizer_close(tokenizer);
    return 0;
}

/* Writes texts of eight letters. One class draws from the first half of the alphabet, the other
 * from the second, except for one letter in eight. */
static void write_classes(const char *name, int n)
{
    struct sw_str text = {0};
    sw_str_puts(&text, "text,label\n");
    for (int i = 0; i < n; i++) {
        const int of = (int)(sw_philox_u64(1, 0, (uint64_t)i) & 1);
        for (int k = 0; k < 8; k++) {
            const uint64_t u = sw_philox_u64(1, 1 + (uint64_t)i, (uint64_t)k);
            const int half = of ^ (k == i % 8);
            sw_str_printf(&text, "%c ", 'a' + 4 * half + (int)(u % 4));
        }
        sw_str_printf(&text, ",%s\n", of ? "late" : "early");
    }
    test_put(name, sw_str_text(&text));
    sw_str_fini(&text);
}

enum { N_SETS = 4 };

/* Edits that make two micro-batches a step on any number of ranks. */
static const char *const *sets_of(int64_t ranks)
{
    static const char *const sets[2][N_SETS] = {
        {"train_micro_batch_size_per_gpu=8", "gradient_accumulation_steps=2",
         "optimizer={\"type\": \"AdamW\", \"params\": {\"lr\": 0.002}}", "gradient_clipping=1"},
        {"train_micro_batch_size_per_gpu=8", "gradient_accumulation_steps=1",
         "optimizer={\"type\": \"AdamW\", \"params\": {\"lr\": 0.002}}", "gradient_clipping=1"}};
    return sets[ranks == 2];
}

static struct sw_train_result train(const char *task, const char *file, const char *out,
                                    struct sw_train_options o)
{
    struct sw_train_result result = {0};
    bool started;
    const char *data = test_at(file);
    FILE *quiet = fopen("/dev/null", "w");
    o.model = "bert-tiny";
    o.data = &data;
    o.n_data = 1;
    o.task.name = task;
    o.tokenizer = test_at("tokenizer");
    o.output = test_at(out);
    o.seq_len = o.seq_len > 0 ? o.seq_len : 16;
    o.config_path = NULL;
    o.export_dtype = -1;
    o.sets = o.n_sets > 0 ? o.sets : sets_of(o.ranks);
    o.n_sets = o.n_sets > 0 ? o.n_sets : N_SETS;
    if (sw_train(&o, quiet, &started, &result) < 0) {
        fail_msg("%s: %s", task, sw_error_message());
    }
    fclose(quiet);
    return result;
}

static char *read_all(const char *name, size_t *len)
{
    char *data;
    assert_int_equal(sw_file_read(test_at(name), &data, len), SW_OK);
    return data;
}

static void same_file(const char *a, const char *b)
{
    size_t n_a, n_b;
    char *data_a = read_all(a, &n_a), *data_b = read_all(b, &n_b);
    assert_int_equal(n_a, n_b);
    assert_memory_equal(data_a, data_b, n_a);
    sw_free(data_a);
    sw_free(data_b);
}

/* The JSON that eval prints for a run's model. */
static struct sw_json_doc *eval(const char *run, const char *file, int64_t seq_len)
{
    char model[128], *text = NULL;
    size_t len = 0;
    bool started;
    struct sw_json_doc *doc;
    const char *data = test_at(file);
    FILE *out = open_memstream(&text, &len);
    snprintf(model, sizeof model, "%s/%s/model", test_folder(), run);
    const struct sw_eval_options o = {.model = model,
                                      .data = &data,
                                      .n_data = 1,
                                      .batch = 8,
                                      .seq_len = seq_len > 0 ? seq_len : 16,
                                      .json = true};
    if (sw_eval(&o, out, &started) < 0) {
        fail_msg("%s: %s", run, sw_error_message());
    }
    fclose(out);
    assert_int_equal(sw_json_parse("eval", text, len, SW_JSON_STRICT, &doc), SW_OK);
    free(text);
    return doc;
}

static double number(const struct sw_json_doc *doc, const char *key)
{
    const struct sw_json *root = sw_json_root((struct sw_json_doc *)(uintptr_t)doc);
    const struct sw_json *value = sw_json_get(root, key);
    assert_non_null(value);
    return value->type == SW_JSON_NULL ? NAN : value->number;
}

static void a_classifier_learns_with_the_same_bits_on_two_ranks(void **state)
{
    (void)state;
    write_classes("classes.csv", 200);
    const struct sw_train_options one = {.steps = 40, .eval_every = 10, .quiet = true};
    struct sw_train_options two = one;
    two.ranks = 2;
    const struct sw_train_result result = train("classify", "classes.csv", "one", one);
    assert_true(result.loss < 0.4 && result.val_loss < 0.5); /* 0.69 is chance */
    const struct sw_train_result again = train("classify", "classes.csv", "two", two);
    assert_true(result.loss == again.loss && result.val_loss == again.val_loss);
    same_file("one/model/model.safetensors", "two/model/model.safetensors");
    struct sw_json_doc *doc = eval("one", "classes.csv", 0), *config;
    assert_true(number(doc, "accuracy") > 0.9 && number(doc, "f1") > 0.9);
    assert_true(number(doc, "matthews") > 0.8);
    assert_true(number(doc, "rows") == 200);
    sw_json_close(doc);
    assert_int_equal(sw_json_read(test_at("one/model/config.json"), SW_JSON_STRICT, &config),
                     SW_OK);
    const struct sw_json *root = sw_json_root(config);
    assert_string_equal(sw_json_path(root, "id2label.0")->string, "early");
    assert_int_equal(sw_json_path(root, "label2id.late")->integer, 1);
    sw_json_close(config);
}

/* Trains at learning rate 0 and returns the losses, for a given micro-batch. */
static struct sw_train_result validate(const char *out, const char *batch, int64_t eval_batches)
{
    char micro[64];
    snprintf(micro, sizeof micro, "train_micro_batch_size_per_gpu=%s", batch);
    const char *sets[] = {micro, "optimizer={\"type\": \"SGD\", \"params\": {\"lr\": 0}}"};
    return train("classify", "classes.csv", out,
                 (struct sw_train_options){.steps = 1,
                                           .eval_every = 1,
                                           .eval_batches = eval_batches,
                                           .sets = sets,
                                           .n_sets = 2,
                                           .quiet = true,
                                           .no_export = true});
}

/* Every row counts once for any batch size: of 201 rows 20 validate, and 3 and 8 do not divide 20.
 * A partial validation reports its coverage. */
static void validation_covers_every_row_once(void **state)
{
    (void)state;
    static const char *const outs[] = {"by3", "by8", "by20"};
    static const char *const batches[] = {"3", "8", "20"};
    double losses[SW_LEN(outs)];
    char path[64];
    write_classes("classes.csv", 201);
    for (size_t i = 0; i < SW_LEN(outs); i++) {
        losses[i] = validate(outs[i], batches[i], 0).val_loss;
        assert_float_equal(losses[i], losses[0], 1e-6);
        struct sw_json_doc *run;
        snprintf(path, sizeof path, "%s/run.json", outs[i]);
        assert_int_equal(sw_json_read(test_at(path), SW_JSON_STRICT, &run), SW_OK);
        const struct sw_json *root = sw_json_root(run);
        assert_int_equal(sw_json_path(root, "validation.rows")->integer, 20);
        assert_int_equal(sw_json_path(root, "validation.of")->integer, 20);
        sw_json_close(run);
    }
    assert_true(fabs(validate("part", "3", 2).val_loss - losses[0]) > 1e-6);
    char *best = NULL;
    size_t len;
    FILE *out = tmpfile();
    const struct sw_checkpoint_export_options o = {
        .path = test_at("part"), .folder = test_at("of_part"), .best = true, .dtype = -1};
    assert_int_equal(sw_checkpoint_export(&o, out), SW_OK);
    len = (size_t)ftell(out);
    rewind(out);
    best = sw_alloc("test", len + 1);
    best[fread(best, 1, len, out)] = '\0';
    fclose(out);
    assert_non_null(strstr(best, "checkpoint-1, step 1, validation loss "));
    assert_non_null(strstr(best, " (6 of 20 rows); best by validation loss\n"));
    sw_free(best);
}

/* Compares the best checkpoint with the validations in metrics.jsonl. */
static void the_best_checkpoint_is_best_by_the_metric(void **state)
{
    (void)state;
    double best = -1;
    size_t len;
    long long wanted = 0, found = -1;
    write_classes("classes.csv", 200);
    train("classify", "classes.csv", "best",
          (struct sw_train_options){.steps = 20,
                                    .eval_every = 2,
                                    .save_every = 2,
                                    .quiet = true,
                                    .no_export = true,
                                    .task.metric = "matthews"});
    char *metrics = read_all("best/metrics.jsonl", &len), *name = read_all("best/best", &len);
    for (char *line = strtok(metrics, "\n"); line; line = strtok(NULL, "\n")) {
        const char *at = strstr(line, "\"val_matthews\":");
        if (at && strtod(at + 15, NULL) > best) { /* of equal values the newest step wins */
            best = strtod(at + 15, NULL);
            wanted = strtoll(strstr(line, "\"step\":") + 7, NULL, 10);
        } else if (at && strtod(at + 15, NULL) == best) {
            wanted = strtoll(strstr(line, "\"step\":") + 7, NULL, 10);
        }
    }
    assert_int_equal(sscanf(name, "checkpoint-%lld", &found), 1);
    assert_int_equal(found, wanted);
    sw_free(metrics);
    sw_free(name);
}

static void each_task_trains_and_is_evaluated(void **state)
{
    (void)state;
    static const char pairs[] = "{\"sentence1\": \"a b\", \"sentence2\": \"c d\"}\n"
                                "{\"sentence1\": \"e f\", \"sentence2\": \"g h\"}\n"
                                "{\"sentence1\": \"a c\", \"sentence2\": \"b d\"}\n";
    static const char squad[] =
        "{\"data\": [{\"paragraphs\": [{\"context\": \"a b c d e f g h\", \"qas\": ["
        "{\"id\": \"1\", \"question\": \"h\", \"answers\": [{\"text\": \"b c\", \"answer_start\": "
        "2}]}, {\"id\": \"2\", \"question\": \"g\", \"answers\": []}]}]}]}";
    static const struct {
        const char *task, *file, *text, *metric;
        int64_t seq_len;
    } of[] = {
        {"masked", "m.txt", "a b c d e f g h a b c d e f g h a b c d e f g h a b c", "accuracy", 0},
        {"pretrain", "p.jsonl", pairs, "accuracy", 0},
        {"multi-label", "b.jsonl",
         "{\"text\": \"a\", \"labels\": [\"x\"]}\n{\"text\": \"b\", \"labels\": [\"x\", \"y\"]}\n",
         "f1", 0},
        {"regression", "r.tsv", "text\tscore\na\t1\nb\t-1\nc d\t0.5\n", "pearson", 0},
        {"tokens", "t.jsonl",
         "{\"tokens\": [\"a\", \"b\"], \"tags\": [\"O\", \"B-X\"]}\n"
         "{\"tokens\": [\"c\"], \"tags\": [\"I-X\"]}\n",
         "entity_f1", 0},
        {"answers", "s.json", squad, "exact_match", 12},
    };
    for (size_t i = 0; i < SW_LEN(of); i++) {
        test_put(of[i].file, of[i].text);
        const struct sw_train_result result =
            train(of[i].task, of[i].file, of[i].task,
                  (struct sw_train_options){.steps = 2, .quiet = true, .seq_len = of[i].seq_len});
        assert_true(isfinite(result.loss));
        struct sw_json_doc *doc = eval(of[i].task, of[i].file, of[i].seq_len);
        assert_true(isfinite(number(doc, "loss")));
        number(doc, of[i].metric);
        sw_json_close(doc);
    }
}

/* Validation's CSV files are those of the metrics that metrics.jsonl has. */
static void monitors_have_the_metrics_of_the_task(void **state)
{
    static const struct {
        const char *task, *metrics;
    } of[] = {{"masked", " perplexity "}, {"classify", " accuracy f1 matthews "}};
    static const char *const names[] = {"perplexity", "accuracy", "f1", "matthews"};
    (void)state;
    write_classes("watched.csv", 24);
    test_put("watched.txt", "a b c d e f g h a b c d e f g h a b c d e f g h a b c");
    for (size_t i = 0; i < SW_LEN(of); i++) {
        const char *file = i == 0 ? "watched.txt" : "watched.csv", *val = test_at(file);
        char sets[3][256], key[64], path[320], run[64];
        const char *const items[] = {sets[0], sets[1], sets[2]};
        size_t len;
        snprintf(sets[0], sizeof *sets,
                 "csv_monitor={\"enabled\": true, \"output_path\": "
                 "\"%s/\", \"job_name\": \"%s.csv\"}",
                 test_folder(), of[i].task);
        snprintf(sets[1], sizeof *sets, "train_micro_batch_size_per_gpu=4");
        snprintf(sets[2], sizeof *sets, "optimizer={\"type\": \"AdamW\"}");
        snprintf(run, sizeof run, "watched-%s", of[i].task);
        train(of[i].task, file, run,
              (struct sw_train_options){.steps = 1,
                                        .quiet = true,
                                        .eval_every = 1,
                                        .val_data = &val,
                                        .n_val_data = 1,
                                        .sets = items,
                                        .n_sets = 3});
        snprintf(path, sizeof path, "%s/metrics.jsonl", run);
        char *lines = read_all(path, &len);
        for (size_t k = 0; k < SW_LEN(names); k++) {
            snprintf(key, sizeof key, " %s ", names[k]);
            const bool wanted = strstr(of[i].metrics, key) != NULL;
            snprintf(key, sizeof key, "\"val_%s\":", names[k]);
            assert_int_equal(strstr(lines, key) != NULL, wanted);
            snprintf(path, sizeof path, "%s/%s.csv/Validation_Samples_%s.csv", test_folder(),
                     of[i].task, names[k]);
            if ((access(path, F_OK) == 0) != wanted) {
                fail_msg("%s: %s", path, wanted ? "wanted" : "not wanted");
            }
        }
        sw_free(lines);
    }
}

/* Whole numbers are regression values, not class numbers. */
static void values_may_be_whole(void **state)
{
    (void)state;
    test_put("whole.jsonl", "{\"text\": \"a\", \"label\": 4}\n{\"text\": \"b\", \"label\": 1}\n"
                            "{\"text\": \"c\", \"label\": 2}\n");
    train("regression", "whole.jsonl", "whole",
          (struct sw_train_options){.steps = 1, .quiet = true});
    struct sw_json_doc *doc = eval("whole", "whole.jsonl", 0);
    assert_true(number(doc, "rows") == 3 && isfinite(number(doc, "loss")));
    sw_json_close(doc);
}

/* The steps of a preprocessor are applied; unsupported ones are refused. */
static void pixels_are_scaled_as_the_model_says(void **state)
{
    (void)state;
    static const struct {
        const char *text, *why;
    } of[] = {
        {"{\"image_mean\": [0.5, 0.5, 0.5], \"image_std\": [0.2, 0.2, 0.2], "
         "\"do_normalize\": true, \"rescale_factor\": 0.00392156862745098}",
         NULL},
        {"{\"image_mean\": [0, 0, 0], \"image_std\": [0, 1, 1]}",
         "\"image_std\": wanted a list of three numbers above 0"},
        {"{\"image_mean\": [0, 0, \"0\"], \"image_std\": [1, 1, 1]}",
         "\"image_mean\": wanted a list of three numbers"},
        {"{\"image_mean\": [0, 0, 0]}", "\"image_std\": wanted a list of three numbers"},
        {"{\"do_normalize\": false}", NULL},
        {"{\"rescale_factor\": 0.00784313725490196}", NULL},
        {"{\"size\": 224}",
         "\"size\" makes pictures of 224 x 224 pixels, and the model reads 32 x 32"},
        {"{\"do_pad\": true}", "\"do_pad\" is not built"},
    };
    static unsigned char images[4 * 3073];
    const char *data = test_at("images.bin");
    bool started;
    FILE *quiet = fopen("/dev/null", "w");
    struct sw_train_result result;
    assert_int_equal(sw_file_write_atomic(data, images, sizeof images), SW_OK);
    for (size_t i = 0; i <= SW_LEN(of); i++) { /* the first run makes the model for the others */
        char out[32];
        const char *why = i > 0 ? of[i - 1].why : NULL;
        snprintf(out, sizeof out, "pixels-%zu", i);
        if (i > 0) {
            test_put("pixels-0/model/preprocessor_config.json", of[i - 1].text);
        }
        const struct sw_train_options o = {.model = i ? test_at("pixels-0/model") : "cifar-net",
                                           .data = &data,
                                           .n_data = 1,
                                           .task.name = "images",
                                           .output = test_at(out),
                                           .steps = 1,
                                           .export_dtype = -1,
                                           .quiet = true,
                                           .sets = sets_of(1),
                                           .n_sets = N_SETS};
        const sw_status st = sw_train(&o, quiet, &started, &result);
        if (why ? st >= 0 || !strstr(sw_error_message(), why) : st < 0) {
            fail_msg("\"%s\" without \"%s\"", sw_error_message(), why ? why : "");
        }
    }
    fclose(quiet);
}

/* A resumed run needs the same class order: another order would mean other labels. */
static void a_run_goes_on_with_its_classes_alone(void **state)
{
    (void)state;
    static const char *const names[] = {"late", "early"};
    struct sw_train_result result;
    bool started;
    write_classes("classes.csv", 40);
    const struct sw_train_options first = {.steps = 1, .quiet = true, .no_export = true};
    train("classify", "classes.csv", "order", first);
    struct sw_train_options o = {.steps = 2, .quiet = true, .no_export = true, .resume = true};
    assert_int_equal(train("classify", "classes.csv", "order", o).step, 2);
    const char *file = test_at("classes.csv");
    o.model = "bert-tiny";
    o.data = &file;
    o.n_data = 1;
    o.tokenizer = test_at("tokenizer");
    o.output = test_at("order");
    o.seq_len = 16;
    o.task = (struct sw_task_options){.name = "classify", .labels = names, .n_labels = 2};
    o.sets = sets_of(1);
    o.n_sets = N_SETS;
    assert_true(sw_train(&o, stdout, &started, &result) < 0);
    assert_false(started);
    assert_non_null(strstr(sw_error_message(), "class \"late\"; class \"early\""));
}

static void what_does_not_go_together_is_named(void **state)
{
    (void)state;
    static const char *const names[] = {"early", "noon"};
    struct sw_train_result result;
    bool started;
    write_classes("classes.csv", 20);
    test_put("one.csv", "text,label\na,early\nb,early\n");
    const struct {
        struct sw_task_options task;
        int64_t sample_every;
        const char *why; /* starts with the name of the file at fault, if it is another */
    } of[] = {
        {{.name = "classify", .metric = "pearson"},
         0,
         "--metric pearson: the task \"classify\" has "
         "accuracy, f1, matthews"},
        {{.name = "sort"}, 0, "sort"},
        {{.name = "classify", .labels = names, .n_labels = 2},
         0,
         "the label \"late\" is not one of the 2 classes: \"early\", \"noon\""},
        {{.name = "classify", .source_prefix = "x"},
         0,
         "--source-prefix does not apply to the task \"classify\""},
        {{.name = "classify"}, 2, "--sample-every: a model for the task \"classify\""},
        {{.name = "classify", .label_column = "topic"},
         0,
         "classes.csv line 2: no \"topic\" (--label-column); there are \"text\", \"label\""},
        {{.name = "classify", .labels = names, .n_labels = 1},
         0,
         "--labels early: one class, wanted two or more"},
        {{.name = "classify"},
         0,
         "one.csv: all labels are the class early; wanted two or more classes"},
    };
    for (size_t i = 0; i < SW_LEN(of); i++) {
        const bool one = strncmp(of[i].why, "one.csv", 7) == 0;
        const char *file = test_at(one ? "one.csv" : "classes.csv");
        const struct sw_train_options o = {.model = "bert-tiny",
                                           .data = &file,
                                           .n_data = 1,
                                           .tokenizer = test_at("tokenizer"),
                                           .output = test_at("refused"),
                                           .steps = 2,
                                           .seq_len = 16,
                                           .eval_every = 1,
                                           .export_dtype = -1,
                                           .sample_every = of[i].sample_every,
                                           .task = of[i].task};
        assert_true(sw_train(&o, stdout, &started, &result) < 0);
        assert_false(started);
        if (!strstr(sw_error_message(), of[i].why)) {
            fail_msg("\"%s\" without \"%s\"", sw_error_message(), of[i].why);
        }
    }
}

/* The loss of a decoder's random head over short rows in rows of seq_len tokens. */
static double loss_of_decoder(const char *task, const char *file, const char *out, int64_t seq_len)
{
    static const char *const sets[] = {"train_micro_batch_size_per_gpu=2",
                                       "optimizer={\"type\": \"SGD\", \"params\": {\"lr\": 0}}"};
    struct sw_train_result result = {0};
    bool started;
    const char *data = test_at(file);
    FILE *quiet = fopen("/dev/null", "w");
    const struct sw_train_options o = {.model = test_at("decoder.json"),
                                       .data = &data,
                                       .n_data = 1,
                                       .val_data = &data,
                                       .n_val_data = 1,
                                       .task.name = task,
                                       .chat_template = "none",
                                       .tokenizer = test_at("tokenizer"),
                                       .output = test_at(out),
                                       .steps = 1,
                                       .eval_every = 1,
                                       .seq_len = seq_len,
                                       .sets = sets,
                                       .n_sets = SW_LEN(sets),
                                       .quiet = true,
                                       .export_dtype = -1};
    if (sw_train(&o, quiet, &started, &result) < 0) {
        fail_msg("%s: %s", out, sw_error_message());
    }
    fclose(quiet);
    return result.val_loss;
}

/* The padding id of an exported config.json. */
static int64_t exported_padding(const char *out)
{
    char name[96];
    struct sw_json_doc *config;
    snprintf(name, sizeof name, "%s/model/config.json", out);
    assert_int_equal(sw_json_read(test_at(name), SW_JSON_STRICT, &config), SW_OK);
    const int64_t pad = sw_json_get(sw_json_root(config), "pad_token_id")->integer;
    sw_json_close(config);
    return pad;
}

/* A decoder's head is on the last token before the padding. Rows and head agree on its id: that of
 * config.json, whatever the tokenizer's is, or else the tokenizer's, which the export then has. */
static void the_last_token_does_not_depend_on_the_length_of_rows(void **state)
{
    static const struct {
        const char *pad;
        int64_t exported;
    } pads[] = {{"", 0},
                {", \"pad_token_id\": null", 0},
                {", \"pad_token_id\": 9", 9},
                {", \"pad_token_id\": 14", 0},
                {", \"pad_token_id\": -1", 0}};
    static const char *const models[] = {
        "{\"model_type\": \"gpt2\", \"vocab_size\": 14, \"n_embd\": 16, \"n_layer\": 1, "
        "\"n_head\": 2, \"n_positions\": 64, \"embd_pdrop\": 0, \"attn_pdrop\": 0, "
        "\"resid_pdrop\": 0%s}",
        "{\"model_type\": \"llama\", \"vocab_size\": 14, \"hidden_size\": 16, "
        "\"intermediate_size\": 24, \"num_hidden_layers\": 1, \"num_attention_heads\": 2, "
        "\"max_position_embeddings\": 64%s}"};
    static const struct {
        const char *task, *file, *text;
    } tasks[] = {{"classify", "short.csv", "text,label\na b c,x\nd,y\nh a,y\n"},
                 {"regression", "short.tsv", "text\tscore\na b c\t1\nd\t-1\nh a\t0.5\n"},
                 {"multi-label", "short.jsonl",
                  "{\"text\": \"a b c\", \"labels\": [\"x\"]}\n"
                  "{\"text\": \"d\", \"labels\": [\"x\", \"y\"]}\n"},
                 {"reward", "pairs.jsonl",
                  "{\"prompt\": \"a\", \"chosen\": \"b c\", \"rejected\": \"d\"}\n"
                  "{\"prompt\": \"b\", \"chosen\": \"h\", \"rejected\": \"e f g\"}\n"}};
    char text[512], out[32];
    (void)state;
    for (size_t i = 0; i < SW_LEN(tasks); i++) {
        test_put(tasks[i].file, tasks[i].text);
    }
    const size_t n_pads = SW_LEN(models) * SW_LEN(pads);
    for (size_t i = 0; i < n_pads + SW_LEN(tasks) - 1; i++) {
        const size_t task = i < n_pads ? 0 : i - n_pads + 1;
        const size_t pad = i < n_pads ? i % SW_LEN(pads) : 0;
        const size_t model = i < n_pads ? i / SW_LEN(pads) : 0;
        snprintf(text, sizeof text, models[model], pads[pad].pad);
        test_put("decoder.json", text);
        snprintf(out, sizeof out, "short-%zu", i);
        const double loss = loss_of_decoder(tasks[task].task, tasks[task].file, out, 16);
        assert_int_equal(exported_padding(out), pads[pad].exported);
        snprintf(out, sizeof out, "long-%zu", i);
        assert_float_equal(loss_of_decoder(tasks[task].task, tasks[task].file, out, 64), loss,
                           1e-6);
    }
}

/* Checks the edits of a setup whose configuration is a file or a text: the default optimizer and
 * the steps of the epochs. */
static void a_configuration_may_be_given_as_text(void **state)
{
    static const char text[] = "{\"train_micro_batch_size_per_gpu\": 8}";
    (void)state;
    write_classes("classes.csv", 40);
    test_put("ds.json", text);
    const char *file = test_at("classes.csv");
    for (int is_text = 0; is_text < 2; is_text++) {
        sw_engine *engine = NULL;
        sw_train_setup *setup = NULL;
        const struct sw_train_options o = {.model = "bert-tiny",
                                           .task = {.name = "classify"},
                                           .data = &file,
                                           .n_data = 1,
                                           .tokenizer = test_at("tokenizer"),
                                           .config_path = is_text ? NULL : test_at("ds.json"),
                                           .config_text = is_text ? text : NULL,
                                           .seq_len = 16,
                                           .epochs = 1.5,
                                           .export_dtype = -1};
        if (sw_train_setup_open(&o, &setup) < 0) {
            fail_msg("%s", sw_error_message());
        }
        const struct sw_engine_options *found = sw_train_setup_engine(setup);
        struct sw_engine_options options = *found;
        options.plan.only = true;
        assert_int_equal(found->config.n_sets, 2);
        assert_string_equal(found->config.sets[0], sw_train_default_optimizer());
        assert_string_equal(found->config.sets[1], "--steps=8"); /* an epoch has 5 steps */
        assert_int_equal(sw_initialize(&options, &engine), SW_OK);
        assert_int_equal(sw_engine_micro_batch_size(engine), 8);
        sw_close(engine);
        sw_train_setup_close(setup);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_classifier_learns_with_the_same_bits_on_two_ranks),
    cmocka_unit_test(validation_covers_every_row_once),
    cmocka_unit_test(the_best_checkpoint_is_best_by_the_metric),
    cmocka_unit_test(each_task_trains_and_is_evaluated),
    cmocka_unit_test(monitors_have_the_metrics_of_the_task),
    cmocka_unit_test(values_may_be_whole),
    cmocka_unit_test(the_last_token_does_not_depend_on_the_length_of_rows),
    cmocka_unit_test(pixels_are_scaled_as_the_model_says),
    cmocka_unit_test(a_run_goes_on_with_its_classes_alone),
    cmocka_unit_test(what_does_not_go_together_is_named),
    cmocka_unit_test(a_configuration_may_be_given_as_text),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = make_folder};
