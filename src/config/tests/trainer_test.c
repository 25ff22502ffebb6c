// SPDX-License-Identifier: Apache-2.0
// "auto" as transformers' Trainer fills it in: what it recorded of its own arguments, row by row,
// and what is ours - flags, files without flags, sources, and the micro-batch that is planned.
#include "config/private.h"

#include <math.h>
#include <stdlib.h>

#include "support/fixtures.h"
#include "support/test.h"

enum { MOST_SETS = 16, SET_CAP = 96 };

/* Edits of one reading. */
struct edits {
    char text[MOST_SETS][SET_CAP];
    const char *list[MOST_SETS];
    int n;
};

static void add(struct edits *e, const char *key, const char *value)
{
    assert_true(e->n < MOST_SETS);
    snprintf(e->text[e->n], SET_CAP, "%s=%s", key, value);
    e->list[e->n] = e->text[e->n];
    e->n++;
}

static void add_node(struct edits *e, const char *key, const struct sw_json *value)
{
    struct sw_str text = {0};
    sw_json_write(value, 0, &text);
    add(e, key, sw_str_text(&text));
    sw_str_fini(&text);
}

/* ---- recorded rows ---- */

/* The Trainer's arguments, by our flags; and the keys that they stand for there. */
static const struct {
    const char *argument, *flag;
} arguments[] = {
    {"learning_rate", "--lr"},
    {"per_device_train_batch_size", "--batch-size"},
    {"gradient_accumulation_steps", "--accumulate"},
    {"warmup_steps", "--warmup-steps"},
    {"weight_decay", "--weight-decay"},
    {"adam_beta1", "--adam-beta1"},
    {"adam_beta2", "--adam-beta2"},
    {"adam_epsilon", "--adam-eps"},
    {"max_grad_norm", "--clip"},
    {"fp16", "--fp16"},
    {"bf16", "--bf16"},
};

/* With `defaults` as if somebody had given those that a row does not name, too: a flag that is not
 * given contradicts nothing here, and there its default does. */
static void edits_of_row(const struct sw_json *row, const struct sw_json *defaults, struct edits *e)
{
    const struct sw_json *given = sw_json_get(row, "arguments");
    const struct sw_json *hidden = sw_json_get(row, "hidden_size");
    char text[32];
    *e = (struct edits){.n = 0};
    for (size_t i = 0; i < SW_LEN(arguments); i++) {
        const struct sw_json *value = sw_json_get(given, arguments[i].argument);
        value = value || !defaults ? value : sw_json_get(defaults, arguments[i].argument);
        if (value) {
            add_node(e, arguments[i].flag, value);
        }
    }
    const struct sw_json *each = sw_json_get(given, "save_on_each_node");
    if (each && each->boolean) {
        add(e, "checkpoint.use_node_local_storage", "true");
    }
    add_node(e, "--steps", sw_json_get(row, "num_training_steps"));
    int64_t width = hidden->type == SW_JSON_INT ? hidden->integer : 0;
    for (const struct sw_json *of = hidden->first; of; of = of->next) {
        width = sw_max_i64(width, of->integer);
    }
    if (width > 0) {
        snprintf(text, sizeof text, "%lld", (long long)width);
        add(e, "--hidden-size", text);
    }
}

static int compare_tree(const struct sw_config *c, const char *path, const struct sw_json *want)
{
    char below[256];
    int n_wrong = 0;
    for (const struct sw_json *key = want->first; want->type == SW_JSON_OBJECT && key;
         key = key->next) {
        snprintf(below, sizeof below, "%s%s%s", path, *path ? "." : "", key->key);
        n_wrong += compare_tree(c, below, key);
    }
    if (want->type == SW_JSON_OBJECT) {
        return n_wrong;
    }
    const struct config_entry *entry = sw_config_find_entry(c, path);
    const char *leaf = sw_config_leaf(path);
    char block[128], ours[256];
    snprintf(block, sizeof block, "%.*s", (int)sw_max_i64(leaf - path - 1, 0), path);
    const struct config_field *field = entry ? NULL : sw_config_find_field(block, leaf, NULL);
    snprintf(ours, sizeof ours, "%s.%s", block, field ? field->key : "");
    entry = field ? sw_config_find_entry(c, ours) : entry;
    /* "auto" that the Trainer leaves is for DeepSpeed, to which it means the default */
    const bool left = want->type == SW_JSON_STRING && strcmp(want->string, "auto") == 0;
    bool same = entry && (left || sw_config_json_equal(want, entry->value));
    if (entry && want->type == SW_JSON_STRING && entry->value->type == SW_JSON_STRING) {
        same = same || strcasecmp(want->string, entry->value->string) == 0;
    }
    if (!same) {
        print_error("  %s: %s\n", path, entry ? "another value" : "no such key");
    }
    return !same;
}

static const char *dtype_of(const struct sw_config *c)
{
    return c->fp16.enabled ? "float16" : c->bf16.enabled ? "bfloat16" : "float32";
}

/* Recorded keys are in the message, each with the flag. */
static int names_all(const struct sw_json *list, const char *message)
{
    int n_wrong = 0;
    for (const struct sw_json *of = list ? list->first : NULL; of; of = of->next) {
        const struct sw_json *key = of->type == SW_JSON_OBJECT ? sw_json_get(of, "key") : of;
        n_wrong += strstr(message, key->string) == NULL;
    }
    return n_wrong;
}

/* As many keys as are recorded are complained of. */
static int count_mismatches(const char *message)
{
    int n = 0;
    for (const char *at = message; (at = strstr(at, " says ")); at++) {
        n++;
    }
    return n;
}

static sw_status read_row(const struct sw_json *row, const struct edits *e, struct sw_config **out)
{
    struct sw_str text = {0};
    sw_json_write(sw_json_get(row, "config"), 0, &text);
    sw_status st = sw_config_parse("ds.json", sw_str_text(&text), text.len, e->list, e->n, out);
    sw_str_fini(&text);
    if (st >= 0 && sw_config_wants_hidden_size(*out)) {
        st = sw_config_refuse_sizes(*out, "the model has none");
    }
    if (st >= 0) {
        st = sw_config_resolve(*out, (int)sw_json_get(row, "world_size")->integer, 0);
    }
    return st;
}

static int wrong_result(const struct sw_json *row, const struct edits *e)
{
    struct sw_config *c = NULL;
    if (read_row(row, e, &c) < 0) {
        print_error("  refused: %s\n", sw_error_message());
        sw_config_close(c);
        return 1;
    }
    int n_wrong = compare_tree(c, "", sw_json_get(row, "result"));
    n_wrong += strcmp(dtype_of(c), sw_json_get(row, "dtype")->string) != 0;
    sw_config_close(c);
    return n_wrong;
}

static int wrong_refusal(const struct sw_json *row, const struct edits *e)
{
    struct sw_config *c = NULL;
    const struct sw_json *mismatches = sw_json_get(row, "mismatches");
    if (read_row(row, e, &c) >= 0) {
        print_error("  accepted\n");
        sw_config_close(c);
        return 1;
    }
    const char *message = sw_error_message();
    int n_wrong = names_all(mismatches, message) + names_all(sw_json_get(row, "keys"), message);
    const struct sw_json *first = mismatches ? mismatches->first : NULL;
    /* of a global batch the arithmetic says so, with all numbers */
    const bool batch = first && strcmp(sw_json_get(first, "key")->string, "train_batch_size") == 0;
    if (mismatches && !batch) {
        n_wrong += count_mismatches(message) != (int)mismatches->n_children;
    }
    if (n_wrong > 0) {
        print_error("  %s\n", message);
    }
    sw_config_close(c);
    return n_wrong;
}

static void every_recorded_row_is_filled_as_there(void **state)
{
    (void)state;
    char folder[TEST_PATH_CAP], path[TEST_PATH_CAP];
    struct sw_json_doc *doc;
    if (!test_fixture_folder("config", folder)) {
        skip();
    }
    test_join(path, folder, "hf_auto.json");
    if (!test_exists(path)) {
        print_message("%s is not there\n", path);
        skip();
    }
    assert_int_equal(sw_json_read(path, SW_JSON_STRICT, &doc), SW_OK);
    const struct sw_json *root = sw_json_root(doc), *defaults = sw_json_get(root, "defaults");
    int n = 0, n_wrong = 0;
    for (const struct sw_json *row = sw_json_get(root, "cases")->first; row; row = row->next, n++) {
        struct edits e;
        edits_of_row(row, defaults, &e);
        int wrong = sw_json_get(row, "error") ? wrong_refusal(row, &e) : wrong_result(row, &e);
        if (!sw_json_get(row,
                         "error")) { /* flags that nobody gave: the same, but what is planned */
            edits_of_row(row, NULL, &e);
            add(&e, "--planned-batch-size", "8");
            wrong += wrong_result(row, &e);
        }
        print_message("config/hf_auto %d %s\n", n, wrong == 0 ? "same" : "WRONG");
        n_wrong += wrong > 0;
    }
    print_message("%d rows, %d wrong\n", n, n_wrong);
    sw_json_close(doc);
    assert_true(n > 0);
    assert_int_equal(n_wrong, 0);
}

/* ---- ours ---- */

static const char all_auto[] =
    "{\n\"train_batch_size\": \"auto\",\n\"train_micro_batch_size_per_gpu\": \"auto\",\n"
    "\"gradient_accumulation_steps\": \"auto\",\n\"gradient_clipping\": \"auto\",\n"
    "\"bf16\": {\"enabled\": \"auto\"},\n"
    "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": \"auto\", \"betas\": \"auto\", "
    "\"eps\": \"auto\", \"weight_decay\": \"auto\"}},\n"
    "\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"warmup_min_lr\": \"auto\", "
    "\"warmup_max_lr\": \"auto\", \"warmup_num_steps\": \"auto\", \"total_num_steps\": "
    "\"auto\"}},\n"
    "\"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": \"auto\", "
    "\"stage3_prefetch_bucket_size\": \"auto\"}}";

static struct sw_config *must(const char *text, const struct edits *e)
{
    struct sw_config *c = NULL;
    if (sw_config_parse("ds.json", text, strlen(text), e->list, e->n, &c) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return c;
}

static void refused(const char *text, const struct edits *e, const char *const *words)
{
    struct sw_config *c = NULL;
    if (sw_config_parse("ds.json", text, strlen(text), e->list, e->n, &c) >= 0) {
        fail_msg("%s was accepted", text);
    }
    for (; *words; words++) {
        if (!strstr(sw_error_message(), *words)) {
            fail_msg("\"%s\" lacks \"%s\"", sw_error_message(), *words);
        }
    }
}

static void source_is(const struct sw_config *c, const char *key, const char *want)
{
    char source[256];
    assert_string_equal(sw_config_source(c, key, source, sizeof source), want);
}

/* File, flag, Trainer's default, planned, derived. */
static void every_key_says_where_it_is_from(void **state)
{
    (void)state;
    struct edits e = {.n = 0};
    add(&e, "--lr", "3e-5");
    add(&e, "--steps", "100");
    add(&e, "--hidden-size", "64");
    add(&e, "gradient_clipping", "2.5");
    struct sw_config *c = must(all_auto, &e);
    source_is(c, "optimizer.params.lr", "--lr=3e-5");
    source_is(c, "scheduler.params.warmup_max_lr", "--lr=3e-5");
    source_is(c, "scheduler.params.total_num_steps", "--steps=100");
    source_is(c, "scheduler.params.warmup_num_steps", "Trainer's default");
    source_is(c, "optimizer.params.betas", "Trainer's default");
    source_is(c, "gradient_accumulation_steps", "Trainer's default");
    source_is(c, "bf16.enabled", "Trainer's default");
    source_is(c, "gradient_clipping", "--set gradient_clipping=2.5");
    source_is(c, "zero_optimization.stage", "ds.json:9");
    source_is(c, "train_micro_batch_size_per_gpu", "ds.json:3");
    assert_string_equal(sw_config_value(c, "train_micro_batch_size_per_gpu")->string, "auto");
    assert_int_equal(c->zero.reduce_bucket_elems, 64 * 64);
    assert_int_equal(c->zero.prefetch_bucket_elems, 3686);
    assert_int_equal(sw_config_resolve(c, 3, 0), SW_OK);
    assert_int_equal(sw_config_choose(c, 5, (struct sw_recompute){SW_CONFIG_AUTO, 0}, NULL), SW_OK);
    assert_int_equal(sw_config_resolve(c, 3, 0), SW_OK);
    assert_int_equal(c->batch.train_batch_size, 15);
    source_is(c, "train_micro_batch_size_per_gpu", "planned");
    source_is(c, "train_batch_size", "derived");
    sw_config_close(c);
    add(&e, "--planned-batch-size", "6");
    c = must(all_auto, &e);
    assert_int_equal(c->batch.micro_batch_size, 6);
    source_is(c, "train_micro_batch_size_per_gpu", "planned");
    sw_config_close(c);
}

/* The planned micro-batch is at most 8 and allowed by the batch keys. K follows from it. */
static void a_planned_micro_batch_is_at_most_8(void **state)
{
    (void)state;
    static const struct {
        const char *keys;
        int ranks;
        int64_t most, micro, k; /* 0: refused */
    } rows[] = {
        {"", 1, INT64_MAX, 8, 1},
        {"", 3, INT64_MAX, 8, 3},
        {"", 3, 5, 5, 3},
        {", \"gradient_accumulation_steps\": 4", 2, 7, 7, 8},
        {", \"train_batch_size\": 64", 2, INT64_MAX, 8, 8},
        {", \"train_batch_size\": 64, \"gradient_accumulation_steps\": \"auto\"", 2, 7, 4, 16},
        {", \"train_batch_size\": 12, \"gradient_accumulation_steps\": 2", 2, 8, 3, 4},
        {", \"train_batch_size\": 7", 2, 8, 0, 0},
        {", \"gradient_accumulation_steps\": 0", 2, 8, 0, 0},
        {", \"spillway\": {\"micro_batches\": 6}", 4, INT64_MAX, 8, 6},
    };
    const struct edits none = {.n = 0};
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        char text[256];
        snprintf(text, sizeof text, "{\"train_micro_batch_size_per_gpu\": \"auto\"%s}",
                 rows[i].keys);
        struct sw_config *c = must(text, &none);
        assert_int_equal(c->spillway.micro_batch, SW_MICRO_BATCH_AUTO);
        if (rows[i].micro == 0) {
            assert_int_equal(sw_config_resolve(c, rows[i].ranks, 0), SW_E_CONFIG);
            sw_config_close(c);
            continue;
        }
        assert_int_equal(sw_config_resolve(c, rows[i].ranks, 0), SW_OK);
        const int64_t micro = sw_config_largest_micro_batch(c, rows[i].ranks, 0, rows[i].most);
        assert_int_equal(micro, rows[i].micro);
        assert_int_equal(sw_config_micro_batches_of(c, rows[i].ranks, 0, micro), rows[i].k);
        assert_int_equal(sw_config_choose(c, micro, (struct sw_recompute){SW_CONFIG_AUTO, 0}, NULL),
                         SW_OK);
        assert_int_equal(sw_config_resolve(c, rows[i].ranks, 0), SW_OK);
        assert_int_equal(c->batch.micro_batches, rows[i].k);
        assert_int_equal(c->batch.train_batch_size, rows[i].k * micro);
        struct sw_str said = {0}, first = {0}, second = {0};
        sw_config_print_chosen(c, false, &said);
        snprintf(text, sizeof text, "train_micro_batch_size_per_gpu %d", (int)micro);
        assert_string_equal(sw_str_text(&said), text);
        sw_config_write_json(c, 2, &first); /* what a checkpoint keeps reads again to the same */
        struct sw_config *again = must(sw_str_text(&first), &none);
        assert_int_equal(sw_config_resolve(again, rows[i].ranks, 0), SW_OK);
        sw_config_write_json(again, 2, &second);
        assert_string_equal(sw_str_text(&first), sw_str_text(&second));
        sw_config_close(again);
        sw_config_close(c);
        sw_str_fini(&said);
        sw_str_fini(&first);
        sw_str_fini(&second);
    }
}

/* No flag, no contradiction: the file is right. With "auto" nowhere --steps is not compared. */
static void a_file_without_flags_is_as_it_says(void **state)
{
    (void)state;
    static const char text[] =
        "{\"train_batch_size\": 6, \"gradient_clipping\": 0.5, \"optimizer\": {\"type\": "
        "\"AdamW\", \"params\": {\"lr\": 1e-4, \"betas\": [0.8, 0.9]}}, \"scheduler\": {\"type\": "
        "\"WarmupDecayLR\", \"params\": {\"warmup_num_steps\": 3, \"total_num_steps\": 50}}}";
    struct edits e = {.n = 0};
    add(&e, "--steps", "10");
    struct sw_config *c = must(text, &e);
    source_is(c, "optimizer.params.lr", "ds.json:1");
    assert_true(c->scheduler.total_num_steps == 50 && c->misc.gradient_clipping == 0.5);
    sw_config_close(c);
    e.n = 0;
    add(&e, "--lr", "2e-4");
    add(&e, "--clip", "0.25");
    refused(text, &e,
            (const char *const[]){"ds.json:1: optimizer.params.lr is 0.0001 and --lr says 0.0002",
                                  "gradient_clipping is 0.5 and --clip says 0.25", NULL});
    e.n = 0;
    add(&e, "--weight-decay", "0.125"); /* its block is there: the key is added */
    add(&e, "--bf16", "true");          /* and this one is not */
    c = must(text, &e);
    assert_true(c->optimizer.weight_decay == 0.125 && !c->bf16.enabled);
    source_is(c, "optimizer.params.weight_decay", "--weight-decay=0.125");
    sw_config_close(c);
}

/* By who trains; who looks at weights alone does without. */
static void steps_are_wanted(const char *text, const struct edits *e, const char *what)
{
    struct sw_config *c = must(text, e);
    assert_int_equal(sw_config_check_steps(c), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), what));
    assert_non_null(strstr(sw_error_message(), "--steps"));
    sw_config_close(c);
}

static void what_nobody_knows_is_refused_by_name(void **state)
{
    (void)state;
    struct edits e = {.n = 0};
    steps_are_wanted(all_auto, &e, "ds.json:8: scheduler.params.total_num_steps");
    add(&e, "--warmup-steps", "0.5");
    steps_are_wanted("{\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {}}}", &e,
                     "scheduler.params.warmup_num_steps");
    add(&e, "--steps", "9");
    struct sw_config *c = must(all_auto, &e);
    assert_int_equal(sw_config_check_steps(c), SW_OK);
    assert_int_equal(c->scheduler.warmup_num_steps, 5);
    assert_true(sw_config_wants_hidden_size(c));
    assert_int_equal(sw_config_refuse_sizes(c, "no model is named"), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "ds.json:9: zero_optimization.reduce_bucket_size"));
    assert_non_null(strstr(sw_error_message(), "stage3_prefetch_bucket_size"));
    sw_config_close(c);
    static const char *const wrong[][2] = {
        {"--lr", "fast"}, {"--lr", "-1"},        {"--batch-size", "0"}, {"--accumulate", "1.5"},
        {"--bf16", "1"},  {"--hidden-size", ""}, {"--beta1", "0.9"}};
    for (size_t i = 0; i < SW_LEN(wrong); i++) {
        e.n = 0;
        add(&e, wrong[i][0], wrong[i][1]);
        refused("{}", &e, (const char *const[]){wrong[i][0], NULL});
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_recorded_row_is_filled_as_there),
    cmocka_unit_test(every_key_says_where_it_is_from),
    cmocka_unit_test(a_planned_micro_batch_is_at_most_8),
    cmocka_unit_test(a_file_without_flags_is_as_it_says),
    cmocka_unit_test(what_nobody_knows_is_refused_by_name),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
