// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 300
// COST 6
// Conversations through the program. A training detects that its data is chats. It has the same
// bits on one rank, on two, and killed and resumed on another number of ranks. The date of its
// template is kept. Errors are named. The exported model answers.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "support/chats.h"
#include "support/processes.h"
#include "support/scratch.h"
#include "support/test.h"

static const char *program;

static void expect_same_files(const char *a, const char *b)
{
    char *texts[2];
    size_t lens[2];
    assert_int_equal(sw_file_read(test_at(a), &texts[0], &lens[0]), SW_OK);
    assert_int_equal(sw_file_read(test_at(b), &texts[1], &lens[1]), SW_OK);
    assert_int_equal(lens[0], lens[1]);
    assert_memory_equal(texts[0], texts[1], lens[0]);
    sw_free(texts[0]);
    sw_free(texts[1]);
}

#define MODEL "--model gpt2.json --deepspeed ds.json --tokenizer words "
#define TRAIN "train " MODEL "--data chats.jsonl "
#define STEPS "--steps 24 --save-every 2 --keep-last 2 "

/* ---- training ---- */

static void a_training_sees_that_its_data_is_chats(void **state)
{
    (void)state;
    test_expect(TRAIN STEPS "--output one --chat-date 2026-02-03", 0,
                "data: chats, template of words/tokenizer_config.json: chat_template, told the day "
                "2026-02-03; loss on answers\n");
    assert_non_null(
        strstr(test_said, "rows: 48 tokens, the lesser of 1024 and the model's context"));
    assert_non_null(strstr(test_said, "chats: of 30 "));
    char *text = NULL;
    size_t len;
    assert_int_equal(sw_file_read(test_at("one/metrics.jsonl"), &text, &len), SW_OK);
    assert_non_null(strstr(text, ",\"rows_cut\":19,\"rows_dropped\":1}"));
    sw_free(text);
    assert_int_equal(sw_file_read(test_at("one/checkpoint-24/manifest.json"), &text, &len), SW_OK);
    assert_non_null(strstr(text, "\"loss\":\"tokens\""));
    assert_non_null(strstr(text, "\"date\":\"2026-02-03\",\"loss_on\":\"answers\""));
    sw_free(text);
}

static void two_ranks_train_to_the_same_bits(void **state)
{
    (void)state;
    test_expect(TRAIN STEPS "--output two --ranks 2 --chat-date 2026-02-03", 0, "model: two/model");
    expect_same_files("one/model/model.safetensors", "two/model/model.safetensors");
}

/* The position is a number of samples, the rows are those of the files, and the day is that of the
 * checkpoint, not of today. */
static void killed_and_resumed_on_two_ranks_it_is_the_same(void **state)
{
    (void)state;
    const pid_t child = fork();
    if (child == 0) {
        const int sink = open("/dev/null", O_WRONLY);
        dup2(sink, 1);
        dup2(sink, 2);
        if (chdir(test_folder()) == 0) {
            execl(program, program, "train", "--model", "gpt2.json", "--deepspeed", "ds.json",
                  "--tokenizer", "words", "--data", "chats.jsonl", "--steps", "100000",
                  "--save-every", "2", "--keep-last", "2", "--output", "killed", "--chat-date",
                  "2026-02-03", (char *)NULL);
        }
        _exit(127);
    }
    int status;
    while (access(test_at("killed/checkpoint-4"), F_OK) != 0 &&
           waitpid(child, &status, WNOHANG) == 0) {
        usleep(1000);
    }
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    test_expect(TRAIN STEPS "--output killed --ranks 2 --resume", 0, "told the day 2026-02-03");
    assert_non_null(strstr(test_said, "resumed at step "));
    expect_same_files("one/model/model.safetensors", "killed/model/model.safetensors");
}

static void what_makes_the_rows_must_be_the_same_on_resume(void **state)
{
    (void)state;
#define AGAIN TRAIN "--steps 25 --output one --resume --no-export "
    test_expect(AGAIN "--chat-date 2026-02-04", 2,
                "other data: --chat-date 2026-02-03 -> 2026-02-04; --allow-other-data");
    test_expect(AGAIN "--loss-on last", 2, "--loss-on answers -> last");
    test_expect(AGAIN "--chat-template other.jinja", 2, "chat template ");
    test_expect(AGAIN "--set spillway.loss=microbatch", 2, "spillway.loss ");
    test_expect(AGAIN, 0, "resumed at step 24");
}

/* The loss and the norm that the first step reports. */
static void first_step(const char *output, double *loss, double *norm)
{
    char path[128], *text = NULL;
    size_t len;
    long long step;
    snprintf(path, sizeof path, "%s/metrics.jsonl", output);
    assert_int_equal(sw_file_read(test_at(path), &text, &len), SW_OK);
    assert_int_equal(
        sscanf(text, "{\"step\":%lld,\"loss\":%lf,\"grad_norm\":%lf", &step, loss, norm), 3);
    sw_free(text);
}

/* All documents in one step, each a row, or several to a row: the same sum, in another order. */
static void packed_rows_have_the_loss_of_their_documents(void **state)
{
    (void)state;
    double loss[2], norm[2];
#define PACK "train --model still.json --deepspeed ds.json --tokenizer words --data parrot.jsonl "
#define PACKED                                                                                     \
    PACK "--steps 3 --set spillway.packing=true --set spillway.micro_batches=4 "                   \
         "--set train_micro_batch_size_per_gpu=1 "
    test_expect(PACK "--steps 1 --no-export --output each --set spillway.micro_batches=4", 0,
                "batch 4");
    test_expect(PACKED "--output packed", 0, "packed: rows hold several documents; ");
    assert_non_null(strstr(test_said, "batch 4 x 1 of 110 tokens; 4 training samples"));
    first_step("each", &loss[0], &norm[0]);
    first_step("packed", &loss[1], &norm[1]);
    assert_float_equal(loss[0], loss[1], 1e-6 * loss[0]);
    assert_float_equal(norm[0], norm[1], 1e-5 * norm[0]);
    test_expect(PACKED "--output packed-2 --ranks 2", 0, "packed: ");
    expect_same_files("packed/model/model.safetensors", "packed-2/model/model.safetensors");
    test_expect(PACK "--steps 4 --output packed --resume --set spillway.micro_batches=4 "
                     "--set train_micro_batch_size_per_gpu=1",
                2, "spillway.packing true -> false");
    test_expect("eval --model packed/model --data parrot.jsonl --set spillway.packing=true", 0,
                "loss ");
}

/* ---- the day, the loss, the template that is left ---- */

static void the_template_that_was_given_goes_with_the_model(void **state)
{
    (void)state;
    test_expect(TRAIN "--steps 1 --output given --chat-template other.jinja --loss-on all "
                      "--set spillway.loss=microbatch --seq-len 20",
                0, "template of other.jinja");
    assert_null(strstr(test_said, "the lesser of"));
    expect_same_files("other.jinja", "given/model/chat_template.jinja");
    test_expect("eval --model given/model --data chats.jsonl --loss-on last", 0,
                "data: 29 chats in rows of 48 tokens, template of given/model/chat_template.jinja, "
                "loss on last");
    char *text = NULL;
    size_t len;
    assert_int_equal(sw_file_read(test_at("given/checkpoint-1/manifest.json"), &text, &len), SW_OK);
    assert_non_null(strstr(text, "\"loss\":\"microbatch\""));
    sw_free(text);
}

/* The template is that of the adapter's training, not the base model's. */
static void an_adapter_talks_by_the_template_that_it_was_trained_with(void **state)
{
    (void)state;
    test_expect(
        "train --model one/model --deepspeed ds.json --data chats.jsonl --steps 1 --output told "
        "--chat-template other.jinja --set spillway.lora.target_modules=all-linear",
        0, "adapter: told/adapter");
    test_expect("eval --model one/model --adapter told/adapter --data chats.jsonl", 0,
                "template of told/adapter/chat_template.jinja, ");
    test_expect(
        "train --model one/model --adapter told/adapter --deepspeed ds.json --data chats.jsonl "
        "--steps 1 --output further",
        0, "template of told/adapter/chat_template.jinja, ");
    expect_same_files("other.jinja", "further/adapter/chat_template.jinja");
    test_expect("export told/adapter --merge --output whole", 0, "with told/adapter added");
    expect_same_files("other.jinja", "whole/chat_template.jinja");
    test_expect(
        "eval --model one/model --adapter told/adapter --data chats.jsonl --tokenizer words", 0,
        "template of words/tokenizer_config.json: chat_template, ");
}

/* Preferences, which the program evaluates in another way than chats. */
static void an_adapter_is_evaluated_with_its_own_tokenizer(void **state)
{
    (void)state;
    static const char *const given[] = {"", "--tokenizer told/adapter", "--tokenizer words"};
    char said[SW_LEN(given)][256];
    test_put("preferences.jsonl",
             "{\"prompt\": \"q\", \"chosen\": \"a\", \"rejected\": \"some text\"}\n");
    for (size_t i = 0; i < SW_LEN(given); i++) {
        char arguments[256];
        snprintf(arguments, sizeof arguments,
                 "eval --model one/model --adapter told/adapter --task dpo --data "
                 "preferences.jsonl %s",
                 given[i]);
        test_expect(arguments, 0, "loss ");
        snprintf(said[i], sizeof said[i], "%s", strstr(test_said, "loss "));
    }
    assert_string_equal(said[0], said[1]);
    assert_string_not_equal(said[0], said[2]);
}

static void prompts_and_completions_are_chats_where_there_is_a_template(void **state)
{
    (void)state;
#define PAIRS "train " MODEL "--data pairs.jsonl --steps 1 --no-export "
    test_expect(PAIRS "--output pairs", 0, "data: chats, template of words/");
    test_expect(PAIRS "--output plain --chat-template none", 0, "checkpoints: ");
    assert_null(strstr(test_said, "data: chats"));
    test_expect("train --model gpt2.json --deepspeed ds.json --tokenizer bare --data pairs.jsonl "
                "--steps 1 --no-export --output bare-pairs",
                0, "checkpoints: ");
    assert_null(strstr(test_said, "data: chats"));
    test_expect("plan " MODEL "--data chats.jsonl --summary", 0, "");
}

/* ---- talking ---- */

static void tokenize_shows_text_ids_and_mask(void **state)
{
    (void)state;
    test_expect(
        "tokenize --chat --tokenizer words <line.jsonl", 0,
        "{\"text\":\"<|im_start|>user\\nq<|im_end|>\\n<|im_start|>assistant\\na<|im_end|>\\n\","
        "\"ids\":[96,85,83,69,82,95,81,97,95,96,65,83,83,73,83,84,65,78,84,95,65,97,95],"
        "\"mask\":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,1,1,0]}\n");
    test_expect("tokenize --chat --tokenizer words <bad.jsonl", 1, "standard input line 2: ");
    test_expect("tokenize --chat --json --tokenizer words <line.jsonl", 2, "--chat excludes");
    test_expect("tokenize --loss-on all --tokenizer words <line.jsonl", 2, "need --chat");
}

/* A model that says one thing whatever it is asked: trained on that, until it does. */
static void generate_answers_and_stops_at_the_ids_of_the_generation_config(void **state)
{
    (void)state;
    test_expect(
        "train --model gpt2-64.json --deepspeed ds.json --tokenizer words --data parrot.jsonl "
        "--steps 100 --output parrot",
        0, "model: parrot/model");
    test_expect("generate --chat --model parrot/model --prompt 'q?'", 0, "ok");
    assert_string_equal(test_said, "ok\n");
    test_expect("generate --chat --model parrot/model <questions.txt", 0, "ok");
    assert_string_equal(test_said, "ok\nok\n");
    test_expect("generate --chat --model parrot/model <nul.txt", 1,
                "standard input line 3: byte 2 is NUL, wanted text");
    test_expect("generate --chat --model parrot/model <.", 1,
                "cannot read standard input: Is a directory");
    test_put("parrot/model/generation_config.json", "{\"eos_token_id\": [98, 79]}"); /* "o" */
    test_expect("generate --chat --model parrot/model --prompt 'q?'", 0, "o");
    assert_string_equal(test_said, "o\n");
    test_put("parrot/model/generation_config.json", "{\"no_repeat_ngram_size\": {}}");
    test_expect("generate --chat --model parrot/model --prompt 'q?'", 2, "no_repeat_ngram_size");
    test_put("parrot/model/generation_config.json", "{\"suppress_tokens\": [79]}"); /* not "o" */
    test_expect("generate --chat --model parrot/model --prompt 'q?'", 0, "");
    assert_null(strchr(test_said, 'o'));
    test_put("parrot/model/generation_config.json", "{\"eos_token_id\": {}}");
    test_expect("generate --chat --model parrot/model --prompt 'q?'", 2,
                "generation_config.json: eos_token_id: wanted");
    test_expect("generate --model parrot/model --chat-date 2026-01-01", 2, "need --chat");
}

/* By default a hundred tokens: the cache is not of the context that the model could have, which
 * would be a quarter of a gigabyte here. */
static void a_text_has_a_cache_of_its_own_length_whatever_the_context(void **state)
{
    (void)state;
    test_expect("train --model long.json --tokenizer words --data text.txt --seq-len 8 --steps 1 "
                "--output long",
                0, "model: long/model");
    test_expect("generate --model long/model --prompt 'some text' --ignore-eos "
                "--set spillway.device_memory=4MiB",
                0, "some text");
    assert_true(strlen(test_said) > strlen("some text"));
}

/* ---- what is refused ---- */

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *arguments, *wanted;
    } cases[] = {
        {"train " MODEL "--data bad.jsonl ", "bad.jsonl line 2: an empty conversation"},
        {"train " MODEL "--data raises.jsonl --chat-template strict.jinja ",
         "raises.jsonl line 1: strict.jinja:1:"},
        {"train " MODEL "--data lines.jsonl ", "lines.jsonl line 2:1:"},
        {"train " MODEL "--data mixed.jsonl ", "mixed.jsonl line 2: it has \"prompt\""},
        {"train --model gpt2.json --deepspeed ds.json --data chats.jsonl ",
         "chats need a tokenizer with a chat template; give --tokenizer, or"},
        {"train --model gpt2.json --deepspeed ds.json --tokenizer bare --data chats.jsonl ",
         "bare: no chat template"},
        {TRAIN "--chat-template none ", "--chat-template none: the data is chats"},
        {TRAIN "--chat-template missing.jinja ", "missing.jinja"},
        {TRAIN "--chat-template bad.jinja ", "bad.jinja:1:"},
        {TRAIN "--chat-template moves.jinja ", "give a --chat-template FILE"},
        {TRAIN "--chat-date tomorrow ", "--chat-date: wanted a day such as 2026-11-22"},
        {TRAIN "--loss-on questions ", "--loss-on: wanted answers, last or all"},
        {TRAIN "--seq-len 4 ", "no chat has a token that the loss counts within 4 tokens"},
        {"train " MODEL "--data text.txt --loss-on all ", "the data is text; --chat-template, "},
        {"train " MODEL "--data text.txt --chat-date 2026-01-01 ", "the data is text; "},
        {"train --model gpt2.json --deepspeed ds.json --tokenizer bare --data pairs.jsonl "
         "--loss-on last ",
         "the data is prompts and completions, without a chat template; "},
    };
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        char arguments[512];
        snprintf(arguments, sizeof arguments, "%s--steps 1 --output refused", cases[i].arguments);
        test_expect(arguments, 2, cases[i].wanted);
    }
    test_expect("eval --model one/model --data bad.jsonl", 2, "bad.jsonl line 2: an empty conv");
    test_expect("eval --model one/model --data text.txt --loss-on last", 2, "the data is text; ");
    test_expect("eval --model one/model --data chats.jsonl --loss-on some", 2, "--loss-on: wanted");
}

static void put_files(void)
{
    struct sw_str parrot = {0};
    test_put("gpt2.json",
             "{\"model_type\":\"gpt2\",\"vocab_size\":99,\"n_positions\":48,\"n_embd\":24,"
             "\"n_layer\":1,\"n_head\":3}");
    test_put("gpt2-64.json",
             "{\"model_type\":\"gpt2\",\"vocab_size\":99,\"n_positions\":64,\"n_embd\":24,"
             "\"n_layer\":1,\"n_head\":3}");
    test_put("still.json",
             "{\"model_type\":\"gpt2\",\"vocab_size\":99,\"n_positions\":110,\"n_embd\":24,"
             "\"n_layer\":2,\"n_head\":3,\"embd_pdrop\":0,\"attn_pdrop\":0,"
             "\"resid_pdrop\":0}");
    test_put("long.json",
             "{\"model_type\":\"llama\",\"vocab_size\":99,\"hidden_size\":32,"
             "\"num_hidden_layers\":2,\"num_attention_heads\":2,\"intermediate_size\":48,"
             "\"max_position_embeddings\":524288}");
    test_put("ds.json",
             "{\"train_micro_batch_size_per_gpu\": 2, \"optimizer\": {\"type\": \"AdamW\", "
             "\"params\": {\"lr\": 0.01}}, \"spillway\": {\"threads\": 1, "
             "\"micro_batches\": 2}}");
    test_put("text.txt",
             "some text that is long enough for one row of tokens, and no conversation");
    test_put("other.jinja",
             "{% for m in messages %}{{ m.role[0] ~ ':' ~ m.content ~ '<|im_end|>' }}"
             "{% endfor %}{% if add_generation_prompt %}a:{% endif %}");
    test_put("moves.jinja",
             "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}");
    test_put("bad.jinja", "{% for m in messages %}");
    test_put("strict.jinja", "{{ raise_exception('roles must alternate') }}");
    test_put("raises.jsonl", "{\"messages\":[{\"role\":\"tool\",\"content\":\"x\"}]}\n");
#define LINE                                                                                       \
    "{\"messages\":[{\"role\":\"user\",\"content\":\"q\"},{\"role\":\"assistant\",\"content\":"    \
    "\"a\"}]}\n"
    test_put("line.jsonl", LINE);
    test_put("bad.jsonl", LINE "{\"messages\":[]}\n");
    test_put("lines.jsonl", LINE "messages: none\n");
    test_put("mixed.jsonl", LINE "{\"prompt\":\"q\",\"completion\":\"a\"}\n");
    test_put("pairs.jsonl", "{\"prompt\":\"q\",\"completion\":\"a\"}\n");
    test_put("questions.txt", "one?\r\n\r\nand two?\n");
    static const char nul[] = "one?\n\na\0b\n";
    assert_int_equal(sw_file_write_atomic(test_at("nul.txt"), nul, sizeof nul - 1), SW_OK);
#define TURN "{\"from\":\"human\",\"value\":\"%.*s?\"},{\"from\":\"gpt\",\"value\":\"ok\"}"
    for (int i = 0; i < 8; i++) {
        sw_str_printf(&parrot, "{\"conversations\":[" TURN "," TURN "]}\n", i, "and two", 8 - i,
                      "one for two");
    }
    test_put("parrot.jsonl", sw_str_text(&parrot));
    sw_str_fini(&parrot);
}

static int set_up(void **state)
{
    (void)state;
    program = test_spillway();
    if (!program) {
        return -1;
    }
    put_files();
    assert_int_equal(mkdir(test_at("words"), 0700), 0);
    assert_int_equal(mkdir(test_at("bare"), 0700), 0);
    test_write_chat_tokenizer(test_at("words"), test_chatml);
    test_write_chat_tokenizer(test_at("bare"), NULL);
    test_write_chats(test_at("chats.jsonl"), 29);
    FILE *more = fopen(test_at("chats.jsonl"), "a");
    fputs("{\"messages\":[{\"role\":\"user\",\"content\":\"no answer\"}]}\n", more);
    return fclose(more);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_training_sees_that_its_data_is_chats),
    cmocka_unit_test(two_ranks_train_to_the_same_bits),
    cmocka_unit_test(killed_and_resumed_on_two_ranks_it_is_the_same),
    cmocka_unit_test(what_makes_the_rows_must_be_the_same_on_resume),
    cmocka_unit_test(packed_rows_have_the_loss_of_their_documents),
    cmocka_unit_test(the_template_that_was_given_goes_with_the_model),
    cmocka_unit_test(an_adapter_talks_by_the_template_that_it_was_trained_with),
    cmocka_unit_test(an_adapter_is_evaluated_with_its_own_tokenizer),
    cmocka_unit_test(prompts_and_completions_are_chats_where_there_is_a_template),
    cmocka_unit_test(tokenize_shows_text_ids_and_mask),
    cmocka_unit_test(generate_answers_and_stops_at_the_ids_of_the_generation_config),
    cmocka_unit_test(a_text_has_a_cache_of_its_own_length_whatever_the_context),
    cmocka_unit_test(what_is_wrong_is_named),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up};
