// SPDX-License-Identifier: Apache-2.0
// COST 5
// "auto" through the program: the two configurations of transformers' documentation, in which
// nearly everything is "auto", train; a planned micro-batch is kept by --resume; `spillway config`
// says where each value is from; a flag that the file contradicts is refused, with both.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "support/fixtures.h"
#include "support/scratch.h"
#include "support/test.h"

enum { TEXT_CAP = 1 << 16 };

static const char *program;
static char out[TEXT_CAP];

/* Runs the program and puts its standard output and error into out. Returns the exit status. */
static int run(const char *words)
{
    char command[2048], path[TEST_PATH_CAP], *text = NULL;
    size_t len;
    snprintf(command, sizeof command, "%s %s >%s/out.txt 2>&1 </dev/null", program, words,
             test_folder());
    const int status = system(command);
    test_join(path, test_folder(), "out.txt");
    assert_int_equal(sw_file_read(path, &text, &len), SW_OK);
    snprintf(out, sizeof out, "%s", text);
    sw_free(text);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void expect(const char *words, int status, const char *const *says)
{
    const int found = run(words);
    if (found != status) {
        fail_msg("%s: status %d, wanted %d: %s", words, found, status, out);
    }
    for (; *says; says++) {
        if (!strstr(out, *says)) {
            fail_msg("%s: \"%s\" lacks \"%s\"", words, out, *says);
        }
    }
}

#define EXPECT(status, words, ...) expect(words, status, (const char *const[]){__VA_ARGS__, NULL})

/* Words with the test's folder in place of %s. */
static const char *in_folder(const char *words)
{
    static char text[4][1024];
    static int i;
    char *at = text[i++ % 4];
    at[0] = '\0';
    for (const char *part = words; *part;) {
        const char *mark = strstr(part, "%s");
        const size_t len = mark ? (size_t)(mark - part) : strlen(part);
        const size_t had = strlen(at);
        snprintf(at + had, sizeof *text - had, "%.*s%s", (int)len, part, mark ? test_folder() : "");
        part += len + (mark ? 2 : 0);
    }
    return at;
}

/* Whether the line of a key has these words in this order. */
static bool line_has(const char *key, const char *value, const char *source)
{
    char want[256];
    snprintf(want, sizeof want, "%-58s %-22s %s\n", key, value, source);
    return strstr(out, want) != NULL;
}

#define TRAIN "train --model gpt2-tiny --data %s/text.txt --seq-len 16 --no-export "

/* Checks that two checkpoints have the same weights and states. */
static void same_checkpoints(const char *one, const char *two)
{
    char words[512];
    snprintf(words, sizeof words, "checkpoint diff %s/%s %s/%s", test_folder(), one, test_folder(),
             two);
    if (run(words) != 0) {
        fail_msg("%s: %s", words, out);
    }
}

static void samples_of_transformers_train(void **state)
{
    (void)state;
    expect(
        in_folder(TRAIN "--deepspeed examples/hf_zero2.json --steps 3 --ranks 2 --output %s/two"),
        0,
        (const char *const[]){"batch 2 x 8 of 16 tokens",
                              "chosen: train_micro_batch_size_per_gpu 8\n", "step 3/3", NULL});
    expect(
        in_folder(TRAIN "--deepspeed examples/hf_zero3.json --steps 3 --ranks 2 --output %s/three"),
        0,
        (const char *const[]){"batch 2 x 8 of 16 tokens",
                              "chosen: train_micro_batch_size_per_gpu 8\n", "step 3/3", NULL});
    same_checkpoints("two/checkpoint-3", "three/checkpoint-3");
}

/* A small budget gives a small micro-batch. A resume with more memory keeps it. */
static void a_planned_micro_batch_is_kept(void **state)
{
    (void)state;
    int micro = 0, budget = 0;
    EXPECT(2,
           in_folder(TRAIN "--deepspeed examples/hf_zero2.json --steps 1 --output %s/small "
                           "--batch-size 3 --device-memory 100KiB"),
           "does not fit: device memory needs ");
    assert_int_equal(sscanf(strstr(out, "device memory needs "), "device memory needs %d", &budget),
                     1);
    char words[1024];
    snprintf(words, sizeof words,
             TRAIN "--deepspeed examples/hf_zero2.json --steps 1 --output %s/small "
                   "--device-memory %d",
             test_folder(), test_folder(), budget);
    EXPECT(0, words, "chosen: train_micro_batch_size_per_gpu ");
    assert_int_equal(
        sscanf(strstr(out, "chosen: "), "chosen: train_micro_batch_size_per_gpu %d", &micro), 1);
    assert_in_range(micro, 3, 7);
    snprintf(words, sizeof words,
             "chosen: train_micro_batch_size_per_gpu %d, kept from checkpoint-1", micro);
    EXPECT(0,
           in_folder(TRAIN "--deepspeed examples/hf_zero2.json --steps 2 --resume --output "
                           "%s/small"),
           words, "step 2/2");
    EXPECT(2,
           in_folder(TRAIN "--deepspeed examples/hf_zero2.json --steps 3 --resume --output "
                           "%s/small --lr 1e-3"),
           "optimizer.params.lr 5e-05 -> 0.001");
}

static void each_key_says_where_it_is_from(void **state)
{
    (void)state;
    EXPECT(0,
           "config examples/hf_zero3.json --model gpt2-tiny --seq-len 16 --ranks 3 --lr 1e-4 "
           "--accumulate 2 --bf16",
           "train_batch_size");
    assert_true(line_has("train_batch_size", "48", "derived"));
    assert_true(line_has("train_micro_batch_size_per_gpu", "8", "planned"));
    assert_true(line_has("gradient_accumulation_steps", "2", "--accumulate=2"));
    assert_true(line_has("optimizer.params.lr", "0.0001", "--lr=1e-4"));
    assert_true(line_has("optimizer.params.betas", "[0.9,0.999]", "Trainer's default"));
    assert_true(line_has("bf16.enabled", "true", "--bf16=true"));
    assert_true(line_has("zero_optimization.stage", "3", "examples/hf_zero3.json:31"));
    assert_true(line_has("zero_optimization.reduce_bucket_size", "16384", "Trainer's default"));
    assert_true(line_has("steps_per_print", "2000", "examples/hf_zero3.json:52"));
    EXPECT(2, "config examples/hf_zero3.json", "zero_optimization.reduce_bucket_size",
           "stage3_prefetch_bucket_size", "stage3_param_persistence_threshold", "--model");
    EXPECT(0, "config examples/hf_zero2.json --json", "\"train_micro_batch_size_per_gpu\":8",
           "\"train_batch_size\":8", "\"train_micro_batch_size_per_gpu\": \"planned, at most\"",
           "\"optimizer.params.lr\": \"Trainer's default\"");
}

static void a_contradiction_is_refused_with_both(void **state)
{
    (void)state;
    EXPECT(2,
           in_folder(TRAIN "--deepspeed examples/quickstart.json --steps 1 --output %s/none --lr 1 "
                           "--clip 7"),
           "optimizer.params.lr is ", "and --lr says 1", "gradient_clipping is ", "--clip says 7");
    EXPECT(2, "config examples/hf_zero2.json --lr fast", "--lr: wanted a number", "got \"fast\"");
    EXPECT(2, "config examples/hf_zero2.json --bf16=maybe", "--bf16: wanted true or false");
    EXPECT(2, "config examples/hf_zero2.json --fp16 --bf16", "fp16", "bf16");
    EXPECT(2, "plan --model gpt2-tiny --batch 2 --batch-size 3", "the same option");
}

/* Checks the betas of a run's effective configuration. */
static void expect_betas(const char *run_name, const char *want)
{
    char path[TEST_PATH_CAP], *text = NULL;
    size_t len;
    snprintf(path, sizeof path, "%s/checkpoint-1/manifest.json", test_at(run_name));
    assert_int_equal(sw_file_read(path, &text, &len), SW_OK);
    const char *found = strstr(text, "\"betas\":");
    assert_non_null(found);
    if (strncmp(found + strlen("\"betas\":"), want, strlen(want)) != 0) {
        fail_msg("%s: %.30s, wanted %s", run_name, found, want);
    }
    sw_free(text);
}

/* Without a file the built-in configuration gives way. */
static void flags_without_a_file_are_taken(void **state)
{
    (void)state;
    expect(in_folder(TRAIN "--steps 2 --lr 0.25 --batch-size 2 --accumulate 3 --warmup-steps 0.5 "
                           "--clip 0.5 --bf16 --output %s/plain"),
           0,
           (const char *const[]){"bf16", "batch 3 x 2 of 16 tokens",
                                 "lr 0.25, constant_with_warmup, clipped to norm 0.5", NULL});
    EXPECT(0, "plan --model gpt2-tiny --summary --batch 2 --seq-len 16", "device");
    EXPECT(2,
           in_folder(TRAIN "--steps 1 --output %s/both --set optimizer.params.lr=3e-4 --lr 1e-4"),
           "optimizer.params.lr is 0.0003 and --lr says 0.0001");
    EXPECT(2, in_folder(TRAIN "--steps 1 --output %s/both --set bf16.enabled=false --bf16"),
           "bf16.enabled is false and --bf16 says true");
    assert_int_equal(run(in_folder(TRAIN "--steps 1 --output %s/beta --adam-beta1 0.8")), 0);
    expect_betas("beta", "[0.8,0.99]");
    assert_int_equal(run(in_folder(TRAIN "--steps 1 --output %s/beta2 --adam-beta2 0.8")), 0);
    expect_betas("beta2", "[0.9,0.8]");
}

/* A file without an optimizer, as users of the Trainer have, who give the optimizer by flags. */
static void a_file_without_an_optimizer_trains(void **state)
{
    (void)state;
#define BARE TRAIN "--deepspeed %s/bare.json --steps 1 --output "
    expect(in_folder(BARE "%s/bare"), 0,
           (const char *const[]){"bare.json has no such block: AdamW with betas 0.9 and 0.999, eps "
                                 "1e-08, weight decay 0, as transformers' Trainer\n",
                                 "update: AdamW, lr 5e-05, ", "lr 5.000e-05", NULL});
    expect(in_folder(BARE "%s/bare_lr --lr 0.25 --weight-decay 0.5"), 0,
           (const char *const[]){"weight decay 0.5,", "lr 0.25, ", "lr 2.500e-01", NULL});
    assert_null(strstr(out, "changes nothing"));
    expect(in_folder(BARE "%s/bare_sgd --set optimizer.type=SGD"), 0,
           (const char *const[]){"update: SGD", NULL});
    assert_null(strstr(out, "no such block"));
    EXPECT(2, in_folder(TRAIN "--deepspeed %s/adam.json --steps 1 --output %s/other --lr 0.25"),
           "adam.json:1: optimizer.params.lr is 0.5 and --lr says 0.25");
    /* what is planned is what is trained */
    const int status = run(in_folder("checkpoint ls --json %s/bare"));
    const char *math = strstr(out, "\"fingerprint\":\"");
    char fingerprint[17] = "";
    assert_true(status == 0 && math);
    snprintf(fingerprint, sizeof fingerprint, "%s", math + strlen("\"fingerprint\":\""));
    EXPECT(0,
           in_folder("plan --model gpt2-tiny --data %s/text.txt --seq-len 16 --summary "
                     "--deepspeed %s/bare.json"),
           fingerprint);
}

static int64_t number_before(const char *words)
{
    const char *at = strstr(out, words);
    assert_non_null(at);
    while (at > out && at[-1] >= '0' && at[-1] <= '9') {
        at--;
    }
    return strtoll(at, NULL, 10);
}

/* As the Trainer counts: parts of a batch and of an epoch are rounded up. Schedules follow, and a
 * plan of the same flags has the same arithmetic. */
static void epochs_are_passes_over_the_samples(void **state)
{
    (void)state;
#define EPOCHS "--epochs 1.5 --batch-size 97 --lr-scheduler linear --eval-every 100 "
    assert_int_equal(run(in_folder(TRAIN EPOCHS "--output %s/epochs")), 0);
    const int64_t samples = number_before(" training samples");
    const int64_t of_one = (samples + 96) / 97, steps = (3 * of_one + 1) / 2;
    assert_true(samples % 97 != 0 && of_one % 2 == 1); /* both are rounded */
    assert_int_equal(number_before(" steps in "), steps);
    assert_int_equal(run(in_folder("checkpoint ls --json %s/epochs")), 0);
    char fingerprint[17] = "";
    const char *math = strstr(out, "\"fingerprint\":\"");
    assert_non_null(math);
    snprintf(fingerprint, sizeof fingerprint, "%s", math + strlen("\"fingerprint\":\""));
    EXPECT(0, in_folder("plan --model gpt2-tiny --data %s/text.txt --seq-len 16 --summary " EPOCHS),
           fingerprint);
    EXPECT(0, in_folder(TRAIN EPOCHS "--output %s/epochs --resume"), "nothing to do: step ");
    EXPECT(2, in_folder(TRAIN "--epochs 1 --steps 9 --output %s/both"), "exclude each other");
    EXPECT(2, in_folder(TRAIN "--epochs 0 --output %s/both"), "--epochs: wanted a number above 0");
    EXPECT(2, in_folder(TRAIN "--epochs 1e30 --output %s/both"), "--epochs is 1e+30, which is ",
           "wanted 1 to 2^53 steps");
    EXPECT(2, "plan --model gpt2-tiny --epochs 2", "--epochs", "wanted --data");
}

/* The rates are those of transformers: the first of a warm-up is 0, the last of a decay is not. */
static void schedules_have_the_trainers_names(void **state)
{
    (void)state;
#define PLAIN "plan --model gpt2-tiny --summary --batch 2 --seq-len 16 "
    EXPECT(0,
           in_folder("config %s/adam.json --lr-scheduler linear --warmup-steps 2 --steps 4 "
                     "--schedule 5 --json"),
           "\"step\": 0, \"lr\": 0.0", "\"step\": 1, \"lr\": 0.25", "\"step\": 2, \"lr\": 0.5",
           "\"step\": 3, \"lr\": 0.25", "\"step\": 4, \"lr\": 0.0");
    EXPECT(0, in_folder("config %s/adam.json --warmup-steps 2 --schedule 4 --json"),
           "constant_with_warmup", "\"step\": 1, \"lr\": 0.25", "\"step\": 3, \"lr\": 0.5");
    EXPECT(2, PLAIN "--lr-scheduler linaer", "--lr-scheduler: wanted linear",
           "got \"linaer\"; the nearest is linear");
    EXPECT(2, PLAIN "--lr-scheduler WarmupLR", "wanted linear, cosine, constant");
    EXPECT(2, PLAIN "--lr-scheduler constant --warmup-steps 3", "constant_with_warmup");
    EXPECT(2, PLAIN "--deepspeed examples/quickstart.json --lr-scheduler linear",
           "scheduler.type is \"WarmupCosineLR\"", "linear");
    EXPECT(0,
           in_folder("config %s/type.json --lr-scheduler linear --warmup-steps 2 --steps 4 "
                     "--schedule 5 --json"),
           "\"step\": 1, \"lr\": 0.25");
    EXPECT(0,
           in_folder("config %s/type.json --set scheduler.type=Linear --lr-scheduler linear "
                     "--steps 4 --schedule 5 --json"),
           "\"step\": 1");
    EXPECT(2, in_folder("config %s/type.json"), "scheduler.type", "needs --lr-scheduler NAME");
    EXPECT(2, in_folder("config %s/adam.json --lr-scheduler cosine --schedule 3"),
           "scheduler.params.total_num_steps", "--steps");
}

static int begin(char **argv)
{
    (void)argv;
    program = test_spillway();
    return program ? 0 : TEST_EXIT_SKIPPED;
}

static int set_up(void **state)
{
    (void)state;
    struct sw_str text = {0};
    for (int i = 0; i < 200; i++) {
        sw_str_printf(&text, "It was day %d, and the river rose over the %d stones.\n", i, i * 7);
    }
    test_put("text.txt", sw_str_text(&text));
    test_put("bare.json", "{\"train_batch_size\": 2}\n");
    test_put("type.json", "{\"train_batch_size\": 2, \"scheduler\": {\"type\": \"auto\"},"
                          " \"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 0.5}}}\n");
    test_put("adam.json", "{\"train_batch_size\": 2,"
                          " \"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 0.5}}}\n");
    sw_str_fini(&text);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(samples_of_transformers_train),
    cmocka_unit_test(a_planned_micro_batch_is_kept),
    cmocka_unit_test(each_key_says_where_it_is_from),
    cmocka_unit_test(a_contradiction_is_refused_with_both),
    cmocka_unit_test(flags_without_a_file_are_taken),
    cmocka_unit_test(a_file_without_an_optimizer_trains),
    cmocka_unit_test(epochs_are_passes_over_the_samples),
    cmocka_unit_test(schedules_have_the_trainers_names),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up, .begin = begin};
