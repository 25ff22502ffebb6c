// SPDX-License-Identifier: Apache-2.0
// COST 3
// Trainings on preferences from files. A run learns to prefer one kind of response. The weights do
// not depend on ranks, stages and offloading, and the reference's log-probabilities are computed
// once. Records that lack a response, or have the same one twice, are refused.
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "json/json.h"
#include "spillway/train.h"
#include "support/chat_tokenizer.h"
#include "support/scratch.h"
#include "support/test.h"

/* Writes each message between control tokens. */
#define TEMPLATE                                                                                   \
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"     \
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"

static int make_folder(void **state)
{
    static const char config[] =
        "{\"model_type\": \"llama\", \"vocab_size\": 1024, \"hidden_size\": 16, "
        "\"intermediate_size\": 24, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "
        "\"max_position_embeddings\": 64, \"tie_word_embeddings\": false}";
    struct sw_str pairs = {0};
    sw_tokenizer *tokenizer = test_open_chat_tokenizer(TEMPLATE);
    (void)state;
    sw_tokenizer_close(tokenizer);
    test_put("config.json", config);
    for (int i = 0; i < 24; i++) { /* chosen responses have a, rejected ones b */
        const char c = (char)('a' + i % 3);
        sw_str_printf(&pairs,
                      "{\"prompt\": \"%c%c\", \"chosen\": \"a%ca\", \"rejected\": \"b%cb%c\"}\n", c,
                      (char)('a' + i % 2), c, c, c);
    }
    test_put("pairs.jsonl", sw_str_text(&pairs));
    const char *last = sw_str_text(&pairs) + pairs.len; /* the last tenth: two of 24 pairs */
    for (int n = 0; n < 3; n += *last == '\n') {
        last--;
    }
    test_put("held_out.jsonl", last + 1);
    sw_str_fini(&pairs);
    return 0;
}

struct run {
    const char *task, *data, *out;
    bool chat;
    const char *set;
    int64_t ranks, steps;
    bool resume;
};

static sw_status try_run(const struct run *r, struct sw_train_result *result)
{
    const char *data = test_at(r->data ? r->data : "pairs.jsonl");
    const char *sets[] = {"train_micro_batch_size_per_gpu=2", "spillway.micro_batches=4",
                          "optimizer={\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}",
                          "gradient_clipping=1", r->set};
    bool started;
    FILE *quiet = fopen("/dev/null", "w");
    const struct sw_train_options o = {.model = test_at("config.json"),
                                       .tokenizer = test_folder(),
                                       .data = &data,
                                       .n_data = 1,
                                       .chat_template = r->chat ? NULL : "none",
                                       .task.name = r->task,
                                       .output = test_at(r->out),
                                       .seq_len = 24,
                                       .config_text = "{}",
                                       .steps = r->steps > 0 ? r->steps : 6,
                                       .eval_every = 3,
                                       .resume = r->resume,
                                       .ranks = r->ranks,
                                       .sets = sets,
                                       .n_sets = r->set ? 5 : 4,
                                       .export_dtype = -1};
    const sw_status st = sw_train(&o, quiet, &started, result);
    fclose(quiet);
    return st;
}

static struct sw_train_result run(struct run r)
{
    struct sw_train_result result = {0};
    if (try_run(&r, &result) < 0) {
        fail_msg("%s: %s", r.out, sw_error_message());
    }
    return result;
}

static void refused(struct run r, const char *text)
{
    struct sw_train_result result;
    r.out = "refused";
    assert_true(try_run(&r, &result) < 0);
    if (!strstr(sw_error_message(), text)) {
        fail_msg("wanted \"%s\" in: %s", text, sw_error_message());
    }
}

static void same_weights(const char *a, const char *b)
{
    char path[2][256];
    snprintf(path[0], sizeof path[0], "%s/model/model.safetensors", test_at(a));
    snprintf(path[1], sizeof path[1], "%s/model/model.safetensors", test_at(b));
    test_same_file(path[0], path[1]);
}

/* The last number of a key in metrics.jsonl. */
static double metric(const char *out, const char *key)
{
    char path[256], name[64], *data;
    size_t len;
    double value = NAN;
    snprintf(path, sizeof path, "%s/metrics.jsonl", test_at(out));
    snprintf(name, sizeof name, "\"%s\":", key);
    assert_int_equal(sw_file_read(path, &data, &len), SW_OK);
    for (const char *at = data; (at = strstr(at, name)) != NULL;) {
        at += strlen(name);
        value = strtod(at, NULL);
    }
    sw_free(data);
    return value;
}

static void a_preference_is_learned_with_the_same_bits_everywhere(void **state)
{
    char everywhere[512];
    (void)state;
    snprintf(everywhere, sizeof everywhere,
             "zero_optimization={\"stage\": 3, \"offload_param\": {\"device\": \"nvme\", "
             "\"nvme_path\": \"%s\"}, \"offload_optimizer\": {\"device\": \"nvme\", "
             "\"nvme_path\": \"%s\"}}",
             test_folder(), test_folder());
    const struct sw_train_result one = run((struct run){.task = "dpo", .out = "one"});
    assert_true(one.val_loss < 0.6);
    assert_true(metric("one", "rewards/accuracies") == 1 && metric("one", "rewards/margins") > 0.1);
    assert_true(metric("one", "val_rewards/accuracies") == 1);
    run((struct run){.task = "dpo", .out = "disk", .ranks = 3, .set = everywhere});
    run((struct run){.task = "dpo", .out = "pipe", .ranks = 2, .set = "spillway.mesh.pipe=2"});
    same_weights("one", "disk");
    same_weights("one", "pipe");
    run((struct run){.task = "kto", .out = "kto"});
    run((struct run){.task = "kto", .out = "kto2", .ranks = 2, .set = "zero_optimization.stage=2"});
    same_weights("kto", "kto2");
}

/* The number of a key in the result of an evaluation. */
static double evaluated(const char *task, const char *model, const char *reference, const char *key)
{
    char folder[256], of[300], name[64], line[1024] = "";
    const char *data = test_at("held_out.jsonl");
    const char *sets[] = {"spillway.seed=42", of};
    bool started;
    FILE *out = tmpfile();
    assert_non_null(out);
    snprintf(folder, sizeof folder, "%s/model", test_at(model));
    snprintf(of, sizeof of, "spillway.preference.reference=%s", test_at(reference));
    snprintf(name, sizeof name, "\"%s\":", key);
    const struct sw_chat_options chat = {.template_path = "none"};
    const struct sw_eval_options o = {.model = folder,
                                      .tokenizer = test_folder(),
                                      .data = &data,
                                      .n_data = 1,
                                      .task.name = task,
                                      .sets = sets,
                                      .n_sets = 2,
                                      .batch = 2,
                                      .seq_len = 24,
                                      .chat = &chat,
                                      .json = true};
    if (sw_eval(&o, out, &started) < 0) {
        fail_msg("%s: %s", task, sw_error_message());
    }
    rewind(out);
    assert_non_null(fgets(line, sizeof line, out));
    fclose(out);
    const char *at = strstr(line, name);
    assert_non_null(at);
    return strtod(at + strlen(name), NULL);
}

/* eval computes what the validation of the run did, on the same pairs. */
static void evaluations_are_validations(void **state)
{
    static const struct {
        const char *task, *key;
    } rows[] = {{"dpo", "rewards/margins"}, {"kto", "kl"}, {"orpo", "nll_loss"}};
    (void)state;
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        char val[64], out[32];
        snprintf(out, sizeof out, "seen-%s", rows[i].task);
        snprintf(val, sizeof val, "val_%s", rows[i].key);
        const struct sw_train_result r = run((struct run){.task = rows[i].task, .out = out});
        const double loss = evaluated(rows[i].task, out, "config.json", "loss");
        const double number = evaluated(rows[i].task, out, "config.json", rows[i].key);
        assert_true(fabs(loss - r.val_loss) < 1e-5 * fabs(loss) + 1e-9);
        assert_true(fabs(number - metric(out, val)) < 1e-4 * fabs(number) + 1e-7);
    }
}

static void other_losses_are_learned(void **state)
{
    (void)state;
    run((struct run){.task = "orpo", .out = "orpo"});
    assert_true(metric("orpo", "log_odds_chosen") > 0);
    run((struct run){.task = "reward", .out = "reward"});
    assert_true(metric("reward", "accuracy") == 1 && metric("reward", "margin") > 0.1);
    run((struct run){
        .task = "dpo", .out = "ipo", .set = "spillway.preference={\"loss_type\": \"ipo\"}"});
    assert_true(metric("ipo", "rewards/margins") > 0);
}

/* Adds a line with other characters for $ and #. */
static void put_form(struct sw_str *out, const char *form, char a, char b)
{
    for (; *form; form++) {
        sw_str_putc(out, *form == '$' ? a : *form == '#' ? b : *form);
    }
}

/* Texts with a template, lists of messages and whole conversations are the same chats. */
static void chats_are_compared_by_their_last_answers(void **state)
{
    static const char *const forms[] = {
        "{\"prompt\": \"$\", \"chosen\": \"a\", \"rejected\": \"#b\"}\n",
        "{\"prompt\": [{\"role\": \"user\", \"content\": \"$\"}], \"chosen\": [{\"role\": "
        "\"assistant\", \"content\": \"a\"}], \"rejected\": [{\"role\": \"assistant\", "
        "\"content\": \"#b\"}]}\n",
        "{\"chosen\": [{\"role\": \"user\", \"content\": \"$\"}, {\"role\": "
        "\"assistant\", \"content\": \"a\"}], \"rejected\": [{\"role\": \"user\", \"content\": "
        "\"$\"}, {\"role\": \"assistant\", \"content\": \"#b\"}]}\n"};
    static const char *const outs[] = {"chat0", "chat1", "chat2"};
    (void)state;
    for (int f = 0; f < 3; f++) {
        struct sw_str text = {0};
        for (int i = 0; i < 12; i++) {
            put_form(&text, forms[f], (char)('c' + i % 4), (char)('d' + i % 3));
        }
        test_put("chats.jsonl", sw_str_text(&text));
        sw_str_fini(&text);
        run((struct run){.task = "dpo", .data = "chats.jsonl", .out = outs[f], .chat = true});
    }
    same_weights("chat0", "chat1");
    same_weights("chat0", "chat2");
}

static void the_reference_is_computed_once(void **state)
{
    char path[256];
    struct stat before, after;
    (void)state;
    run((struct run){.task = "dpo", .out = "parts", .steps = 3});
    snprintf(path, sizeof path, "%s/reference.bin", test_at("parts"));
    assert_int_equal(stat(path, &before), 0);
    run((struct run){.task = "dpo", .out = "parts", .resume = true});
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino); /* a new file would have another */
    run((struct run){.task = "dpo", .out = "whole"});
    same_weights("parts", "whole");
    assert_int_equal(truncate(path, 100), 0); /* damaged: computed again, the same */
    run((struct run){.task = "dpo", .out = "parts", .resume = true, .steps = 7});
    run((struct run){.task = "dpo", .out = "whole", .resume = true, .steps = 7});
    same_weights("parts", "whole");
}

static void bad_records_are_named(void **state)
{
    (void)state;
    test_put("lacks.jsonl", "{\"prompt\": \"a\", \"chosen\": \"b\"}\n");
    test_put("same.jsonl", "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"b\"}\n");
    test_put("list.jsonl", "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": 3}\n");
    test_put("label.jsonl", "{\"prompt\": \"a\", \"completion\": \"b\", \"label\": \"yes\"}\n");
    refused((struct run){.task = "dpo", .data = "lacks.jsonl"},
            "line 1: no \"rejected\"; wanted \"prompt\", \"chosen\" and \"rejected\", found "
            "\"prompt\", \"chosen\"");
    refused((struct run){.task = "orpo", .data = "same.jsonl"},
            "line 1: \"chosen\" and \"rejected\" are the same");
    refused((struct run){.task = "reward", .data = "list.jsonl"}, "\"rejected\" is an integer");
    refused((struct run){.task = "kto", .data = "label.jsonl"},
            "\"label\" is a string, wanted true or false");
    test_put("chat.jsonl", "{\"prompt\": [], \"chosen\": [], \"rejected\": []}\n");
    refused((struct run){.task = "dpo", .data = "chat.jsonl", .chat = true},
            "\"chosen\" does not end with a message of the assistant");
    refused((struct run){.task = "dpo", .set = "spillway.preference.loss_type=hinge"}, "\"hinge\"");
    refused((struct run){.task = "dpo", .set = "spillway.preference.beta=0"}, "above 0");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_preference_is_learned_with_the_same_bits_everywhere),
    cmocka_unit_test(evaluations_are_validations),
    cmocka_unit_test(other_losses_are_learned),
    cmocka_unit_test(chats_are_compared_by_their_last_answers),
    cmocka_unit_test(the_reference_is_computed_once),
    cmocka_unit_test(bad_records_are_named),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = make_folder};
