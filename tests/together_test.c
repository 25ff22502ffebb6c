// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 120
// Ranks of a launcher that use a trained model together print what one process prints, once. The
// loss of a model with experts is that of its training.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "support/processes.h"
#include "support/scratch.h"
#include "support/test.h"

static const char lines[] = "a b c\nc\n\nh g f e d c b a b c\nb . a\n";

/* A model with a tokenizer of words, which needs utf8proc. */
static void train_encoder(void)
{
    static const char model[] =
        "{\"model_type\":\"bert\",\"vocab_size\":14,\"hidden_size\":24,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":2,\"intermediate_size\":40,\"max_position_embeddings\":16}";
    test_put("bert.json", model);
    test_put("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\ne\nf\ng\nh\n.\n");
    test_expect("train --model bert.json --task masked --tokenizer . --data lines.txt --steps 1 "
                "--output base --threads 1",
                0, "model: base/model");
}

/* Returns what a command prints about the lines; sw_free. launcher: "" = one process */
static char *printed(const char *launcher, const char *command)
{
    char line[1024];
    snprintf(line, sizeof line, "%s %s < lines.txt 2> log > out", launcher, command);
    if (test_shell(line) != 0) {
        fail_msg("%s: %s", line, test_text("log"));
    }
    return test_text("out");
}

static void ranks_embed_the_lines_of_the_first(void **state)
{
    static const char *const keys[] = {"", "--set zero_optimization.stage=3",
                                       "--set spillway.mesh.pipe=2"};
    const char *program = test_spillway();
    char launcher[512], command[1024];
    (void)state;
    train_encoder();
    snprintf(launcher, sizeof launcher, "%s launch --num-ranks 2 --", program);
    snprintf(command, sizeof command, "%s embed --model base/model --batch 2", program);
    char *one = printed("", command);
    int n = 0;
    for (const char *at = one; *at; at++) {
        n += *at == '\n';
    }
    assert_int_equal(n, 5); /* a vector for each line */
    for (size_t i = 0; i < SW_LEN(keys); i++) {
        snprintf(command, sizeof command, "%s embed --model base/model --batch 2 %s", program,
                 keys[i]);
        char *two = printed(launcher, command);
        assert_string_equal(one, two);
        sw_free(two);
    }
    sw_free(one);
    snprintf(command, sizeof command,
             "launch --num-ranks 2 -- %s embed --model base/model --data "
             "nowhere.txt",
             program);
    test_expect(command, 2, "cannot open nowhere.txt");
}

static void ranks_divide_the_windows_of_a_text(void **state)
{
    /* windows of 4 tokens; the last round of batches is not full on three ranks */
    static const char *const keys[] = {"--batch 1", "--batch 1 --batches 4",
                                       "--batch 2 --set zero_optimization.stage=3"};
    const char *program = test_spillway();
    char launcher[512], command[1024];
    (void)state;
    for (size_t i = 0; i < SW_LEN(keys); i++) {
        snprintf(command, sizeof command,
                 "%s eval --model text/model --data text.txt --seq-len 4 --json %s", program,
                 keys[i]);
        char *one = printed("", command);
        assert_true(strstr(one, "\"targets\":") != NULL);
        snprintf(launcher, sizeof launcher, "%s launch --num-ranks 3 --", program);
        char *three = printed(launcher, command);
        assert_string_equal(one, three);
        sw_free(three);
        sw_free(one);
    }
}

/* Returns the number after "key": in a text. */
static double number(const char *text, const char *key)
{
    char quoted[64];
    snprintf(quoted, sizeof quoted, "\"%s\":", key);
    const char *at = strstr(text, quoted);
    if (!at) {
        fail_msg("%s: wanted \"%s\"", text, key);
        return 0;
    }
    return strtod(at + strlen(quoted), NULL);
}

/* A loss with a term of the routers is that of the training's validation, over all targets. The
 * last batch is not full. */
static void losses_of_routers_are_those_of_a_validation(void **state)
{
    static const char *const keys[] = {"--batch 1", "--batch 4", "--batch 16"};
    const char *program = test_spillway();
    char command[1024], launcher[512];
    (void)state;
    test_put("moe.json", "{\"model_type\":\"mixtral\",\"vocab_size\":40,\"hidden_size\":16,"
                         "\"intermediate_size\":24,\"num_hidden_layers\":2,"
                         "\"num_attention_heads\":2,\"num_key_value_heads\":2,"
                         "\"num_local_experts\":4,\"num_experts_per_tok\":2,"
                         "\"max_position_embeddings\":16,\"output_router_logits\":true,"
                         "\"router_aux_loss_coef\":0.5}");
    test_expect(
        "train --model moe.json --data text.txt --val-data text.txt --eval-every 1 "
        "--steps 1 --seq-len 4 --set train_micro_batch_size_per_gpu=4 --output moe --threads 1",
        0, "model: moe/model");
    char *metrics = test_text("moe/metrics.jsonl");
    const double validated = number(metrics, "val_loss");
    sw_free(metrics);
    double targets = 0;
    for (size_t i = 0; i < SW_LEN(keys); i++) {
        snprintf(command, sizeof command,
                 "%s eval --model moe/model --data text.txt --seq-len 4 --json %s", program,
                 keys[i]);
        char *one = printed("", command);
        const double loss = number(one, "loss");
        if (i == 1 && fabs(loss - validated) > 1e-7) {
            fail_msg("%s: the validation's loss is %.17g", one, validated);
        }
        targets = i == 0 ? number(one, "targets") : targets;
        assert_true(targets > 16 && number(one, "targets") == targets);
        snprintf(launcher, sizeof launcher, "%s launch --num-ranks 2 --", program);
        char *two = printed(launcher, command);
        assert_string_equal(one, two);
        sw_free(two);
        sw_free(one);
    }
}

static int set_up(void **state)
{
    (void)state;
    test_put("lines.txt", lines);
    test_put("gpt.json", "{\"model_type\":\"gpt2\",\"vocab_size\":40,\"n_positions\":16,"
                         "\"n_embd\":24,\"n_layer\":1,\"n_head\":2}");
    test_put("text.txt", "abc dec bde ace cab deb\n");
    test_expect("train --model gpt.json --data text.txt --steps 1 --seq-len 4 --output text "
                "--threads 1",
                0, "model: text/model");
    return 0;
}

static const struct CMUnitTest tests[] = {
    TEST_IF(SW_HAVE_UTF8PROC, ranks_embed_the_lines_of_the_first),
    cmocka_unit_test(ranks_divide_the_windows_of_a_text),
    cmocka_unit_test(losses_of_routers_are_those_of_a_validation),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up};
