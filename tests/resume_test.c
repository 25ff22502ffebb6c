// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 300
// Refusals of `train --resume` and their messages: other data, another tokenizer, another learning
// rate, a damaged checkpoint. Also the options that resume anyway, and checkpoints of versions that
// kept no data record.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "support/processes.h"
#include "support/scratch.h"
#include "support/test.h"

static const char *program;

#define TRAIN "train --model gpt2.json --deepspeed ds.json --seq-len 12 --quiet --no-export "

/* A run of two steps in `output`, from text.txt. */
static void begin(const char *output)
{
    char arguments[512];
    snprintf(arguments, sizeof arguments,
             TRAIN "--data text.txt --tokenizer words --steps 2 --output %s", output);
    test_expect(arguments, 0, "checkpoints: ");
}

static void other_data_is_refused_by_name(void **state)
{
    (void)state;
#define DATA "--tokenizer words --steps 4 --output data --resume "
    begin("data");
    test_expect(TRAIN DATA "--data other.txt", 2, "it was trained on other data: data text.txt (");
    assert_non_null(strstr(test_said, " -> other.txt ("));
    assert_non_null(strstr(test_said, "--allow-other-data"));
    test_expect(TRAIN DATA "--data text.txt other.txt", 2, "data none -> other.txt (");
    test_expect(TRAIN DATA "--ranks 2 --data other.txt", 2, "other data: data text.txt (");
    test_expect(TRAIN DATA "--data text.txt --eval-every 2", 2, "training samples ");
    test_expect(TRAIN "--tokenizer chars --steps 4 --output data --resume --data text.txt", 2,
                "tokenizer ");
    /* The same bytes under another name are the same data. */
    test_expect(TRAIN DATA "--data copy.txt", 0, "resumed at step 2");
    test_expect(TRAIN "--tokenizer words --steps 6 --output data --resume --allow-other-data "
                      "--data other.txt",
                0, "continuing with other data, as requested: data copy.txt (");
    /* From here on it is what the checkpoints keep. */
    test_expect(TRAIN "--tokenizer words --steps 7 --output data --resume --data other.txt", 0,
                "resumed at step 6");
    assert_null(strstr(test_said, "other data"));
}

static void a_refused_resume_names_every_key_that_changed(void **state)
{
    (void)state;
#define KEYS TRAIN "--data text.txt --tokenizer words --steps 4 --output keys --resume "
    begin("keys");
    test_expect(KEYS "--set optimizer.params.lr=0.5 --set gradient_clipping=2", 2,
                "optimizer.params.lr 0.01 -> 0.5");
    assert_non_null(strstr(test_said, "gradient_clipping 1.0 -> 2"));
    test_expect(KEYS "--set optimizer.params.lr=0.5 --data other.txt", 2,
                "optimizer.params.lr 0.01");
    assert_non_null(strstr(test_said, "other data: data none -> other.txt"));
    test_expect(
        "train --model gpt2.json --deepspeed ds.json --seq-len 11 --quiet --no-export --data "
        "text.txt --tokenizer words --steps 4 --output keys --resume",
        2, "seq_len 12 -> 11");
    test_expect(KEYS "--seed 9", 2, "spillway.seed ");
#define CODED "--set optimizer.params.min_8bit_size=0 --set spillway.moments=8bit "
    test_expect(KEYS CODED, 2, "spillway.moments \"fp32\" -> \"8bit\"");
    test_expect(KEYS CODED "--set spillway.allow_other_math=true", 2, "exp_avg of transformer.");
    assert_non_null(
        strstr(test_said, "is f32, wanted u8: it was saved with another spillway.moments"));
    test_expect(KEYS, 0, "resumed at step 2");
}

static void damage_is_found_before_the_first_step(void **state)
{
    (void)state;
#define DAMAGED TRAIN "--data text.txt --tokenizer words --steps 4 --output damaged --resume "
    static const char name[] = "damaged/checkpoint-2/part-00000.safetensors";
    unsigned char byte;
    begin("damaged");
    const int fd = open(test_at(name), O_RDWR);
    const off_t end = lseek(fd, 0, SEEK_END);
    assert_int_equal(pread(fd, &byte, 1, end - 3), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, end - 3), 1);
    close(fd);
    test_expect(DAMAGED, 2, name);
    assert_non_null(strstr(test_said, "is damaged"));
    assert_non_null(strstr(test_said, "there is no intact checkpoint"));
    test_expect(DAMAGED "--ranks 2", 2, name);
    test_expect(DAMAGED "--no-verify", 0, "resumed at step 2");
}

/* Cuts a file of a checkpoint; its manifest tells how long it was. */
static void cut(const char *name)
{
    assert_int_equal(truncate(test_at(name), 100), 0);
}

/* The bytes of metrics.jsonl of an output folder. */
static char *metrics_of(const char *output)
{
    char *text = NULL, path[128];
    size_t len;
    snprintf(path, sizeof path, "%s/metrics.jsonl", output);
    assert_int_equal(sw_file_read(test_at(path), &text, &len), SW_OK);
    return text;
}

static void a_damaged_checkpoint_is_never_passed_over(void **state)
{
    (void)state;
#define BROKEN TRAIN "--data text.txt --tokenizer words --steps 4 --output broken "
    begin("broken");
    char *before = metrics_of("broken");
    cut("broken/checkpoint-2/part-00000.safetensors");
    test_expect(BROKEN "--resume", 2, "checkpoint-2 is damaged: ");
    assert_non_null(strstr(test_said, "there is no intact checkpoint"));
    test_expect(BROKEN "--resume-if-any", 2, "checkpoint-2 is damaged: ");
    test_expect(BROKEN "--resume-if-any --ranks 2", 2, "checkpoint-2 is damaged: ");
    test_expect(BROKEN, 2, "--output broken has checkpoints of a run");
    char *after = metrics_of("broken");
    assert_string_equal(before, after);
    sw_free(before);
    sw_free(after);
}

static void a_refusal_names_the_newest_intact_checkpoint(void **state)
{
    (void)state;
#define NEXT TRAIN "--data text.txt --tokenizer words --output next "
    test_expect(NEXT "--steps 3 --save-every 1", 0, "checkpoints: ");
    cut("next/checkpoint-3/part-00000.safetensors");
    test_expect(
        NEXT "--steps 4 --resume", 2,
        "the newest intact checkpoint is next/checkpoint-2; --resume-from next/checkpoint-2 ");
    /* The one before has bytes that its digests do not fit. */
    const int fd = open(test_at("next/checkpoint-2/part-00000.safetensors"), O_RDWR);
    const off_t end = lseek(fd, 0, SEEK_END);
    assert_int_equal(pwrite(fd, "\x55\xaa\x55", 3, end - 3), 3);
    close(fd);
    test_expect(NEXT "--steps 4 --resume", 2, "--resume-from next/checkpoint-1 continues from it");
    test_expect(NEXT "--steps 4 --resume-from next/checkpoint-2", 2,
                "--resume-from next/checkpoint-1 continues from it");
    test_expect(NEXT "--steps 4 --resume-from next/checkpoint-1", 0, "resumed at step 1");
    assert_non_null(strstr(test_said, "checkpoint-3.set-aside"));
    assert_int_equal(access(test_at("next/checkpoint-3.set-aside/manifest.json"), F_OK), 0);
    test_expect(NEXT "--steps 5 --resume", 0, "resumed at step 4");
}

/* Simulates --restarts of the launcher, which sets a variable at a second start. */
static void a_restart_takes_the_newest_intact_checkpoint(void **state)
{
    (void)state;
#define AGAIN_ TRAIN "--data text.txt --tokenizer words --output again "
    test_expect(AGAIN_ "--steps 3 --save-every 1", 0, "checkpoints: ");
    cut("again/checkpoint-3/part-00000.safetensors");
    setenv("SPILLWAY_RESTART", "1", 1);
    test_expect(AGAIN_ "--steps 4 --resume-if-any", 0, "resumed at step 2");
    unsetenv("SPILLWAY_RESTART");
    assert_non_null(strstr(test_said, "again/checkpoint-3 is damaged and skipped"));
    test_expect(AGAIN_ "--steps 5 --resume", 0, "resumed at step 4");
}

/* A job that died before its first step is where the command says; later it is where it was. */
static void a_restart_repeats_resume_from_until_it_has_saved(void **state)
{
    (void)state;
#define BACK TRAIN "--data text.txt --tokenizer words --save-every 1 --output back "
    test_expect(BACK "--steps 4", 0, "checkpoints: ");
    setenv("SPILLWAY_RESTART", "1", 1);
    test_expect(BACK "--steps 3 --resume-from back/checkpoint-2", 0, "resumed at step 2");
    test_expect(BACK "--steps 5 --resume-from back/checkpoint-2", 0, "resumed at step 3");
    unsetenv("SPILLWAY_RESTART");
    test_expect(BACK "--steps 3 --resume-from back/checkpoint-2", 0, "resumed at step 2");
}

static void resume_wants_something_to_resume(void **state)
{
    (void)state;
#define EMPTY TRAIN "--data text.txt --tokenizer words --steps 2 --output empty "
    test_expect(EMPTY "--resume", 2, "--resume: there is no checkpoint in empty; --resume-if-any ");
    test_expect(EMPTY "--resume --ranks 2", 2, "--resume: there is no checkpoint in empty");
    test_expect(EMPTY "--resume-from nowhere", 2, "--resume-from nowhere: there is no checkpoint");
    test_expect(EMPTY "--resume --resume-if-any", 2, "exclude each other");
    test_expect(EMPTY "--resume-if-any", 0, "checkpoints: ");
    test_expect(EMPTY "--resume-if-any --steps 3", 2, "--steps is given twice");
}

/* A checkpoint of another run is where this one begins; its numbers are those of going on there. */
static void a_run_goes_on_from_a_checkpoint_of_another(void **state)
{
    (void)state;
#define HOME TRAIN "--data text.txt --tokenizer words --save-every 1 "
    test_expect(HOME "--steps 4 --output whole", 0, "checkpoints: ");
    test_expect(HOME "--steps 4 --output away --resume-from whole/checkpoint-2", 0,
                "resumed at step 2");
    test_expect("checkpoint diff whole/checkpoint-4 away/checkpoint-4", 0, "0 of ");
    test_expect(HOME "--steps 4 --output away --resume-from whole/checkpoint-2", 2,
                "--output away has checkpoints of a run");
    /* Back in the same run: what came after steps aside. */
    test_expect(HOME "--steps 3 --output whole --resume-from whole/checkpoint-2", 0,
                "checkpoint-4 is newer than the checkpoint that the run continues from");
    test_expect("checkpoint diff whole/checkpoint-3 away/checkpoint-3", 0, "0 of ");
    test_expect(HOME "--steps 4 --output whole --resume", 0, "resumed at step 3");
}

/* The path that the user types need not be the one that the run lists. */
static void a_checkpoint_is_the_same_however_it_is_spelled(void **state)
{
    (void)state;
#define SPELLED TRAIN "--data text.txt --tokenizer words --save-every 1 "
    test_expect(SPELLED "--steps 4 --output spelled", 0, "checkpoints: ");
    test_expect(SPELLED "--steps 5 --output spelled/ --resume-from ./spelled//checkpoint-3/", 0,
                "checkpoint-4 is newer than the checkpoint");
    for (int step = 1; step <= 3; step++) {
        char path[64];
        snprintf(path, sizeof path, "spelled/checkpoint-%d/manifest.json", step);
        assert_int_equal(access(test_at(path), F_OK), 0);
    }
    test_expect(SPELLED "--steps 6 --output spelled --resume", 0, "resumed at step 5");
}

static void a_loss_that_is_no_number_is_named_plainly(void **state)
{
    (void)state;
#define WILD                                                                                       \
    "train --model gpt2.json --deepspeed ds.json --seq-len 12 --no-export --data text.txt "        \
    "--tokenizer words --set optimizer.params.lr=1e38 "
    test_expect(WILD "--steps 9 --output wild", 1, "no checkpoint was saved before it");
    assert_null(strstr(test_said, "-nan"));
    test_expect(WILD "--steps 9 --output valued --eval-every 1 --val-data text.txt", 1,
                "the loss is nan");
    assert_null(strstr(test_said, "-nan"));
    test_expect(WILD "--steps 9 --output huge --save-every 1", 1, "so no checkpoint is written");
    test_expect(WILD "--steps 9 --output wilder --save-every 1 --set optimizer.params.lr=1e30", 1,
                "the weights that gave it are those of the checkpoint of step 1");
    begin("tame");
    test_expect(WILD "--steps 9 --output tame --resume --set spillway.allow_other_math=true", 1,
                "the checkpoint of step 2 is intact");
}

/* Weights that are drawn this far apart overflow. */
static void json_has_null_where_a_number_is_none(void **state)
{
    (void)state;
#define OVERFLOWS "\"vocab_size\": 64, \"initializer_range\": 1e300, "
    test_put("wild.json", "{\"model_type\": \"gpt2\", " OVERFLOWS
                          "\"n_positions\": 16, \"n_embd\": 8, \"n_layer\": 1, \"n_head\": 2}");
    test_put("wild_encoder.json", "{\"model_type\": \"bert\", " OVERFLOWS
                                  "\"hidden_size\": 2, \"num_hidden_layers\": 1, "
                                  "\"num_attention_heads\": 1, \"intermediate_size\": 8, "
                                  "\"max_position_embeddings\": 16}");
    test_expect("eval --model wild.json --tokenizer words --data text.txt --batches 1 --json", 0,
                "{\"loss\":null,\"perplexity\":null,\"targets\":128}\n");
    test_expect("eval --model wild.json --tokenizer words --data text.txt --batches 1", 0,
                "loss nan, perplexity nan, 128 targets\n");
    test_expect("embed --model wild_encoder.json --tokenizer words --data text.txt --json", 0,
                "{\"embedding\":[null,null]}\n");
    test_expect("embed --model wild_encoder.json --tokenizer words --data text.txt", 0,
                "\nnan nan\n");
}

/* Removes a member of the manifest, and makes its check fit again. */
static void forget_member(const char *path, const char *begin_text, const char *end_text)
{
    char *text = NULL;
    size_t len;
    struct sw_str edited = {0};
    assert_int_equal(sw_file_read(path, &text, &len), SW_OK);
    const char *begin_at = strstr(text, begin_text);
    const char *end_at = begin_at ? strstr(begin_at, end_text) : NULL;
    const char *check = strstr(text, ",\"check\":\"");
    assert_true(end_at && check);
    sw_str_append(&edited, text, (size_t)(begin_at - text));
    sw_str_append(&edited, end_at, (size_t)(check - end_at));
    sw_str_printf(&edited, ",\"check\":\"%08x\"}\n", sw_crc32c(0, edited.ptr, edited.len));
    assert_int_equal(sw_file_write_atomic(path, edited.ptr, edited.len), SW_OK);
    sw_str_fini(&edited);
    sw_free(text);
}

static void a_checkpoint_without_data_goes_on_and_says_so(void **state)
{
    (void)state;
    begin("old");
    forget_member(test_at("old/checkpoint-2/manifest.json"), ",\"data\":{", ",\"writers\"");
    test_expect(TRAIN "--data other.txt --tokenizer words --steps 4 --output old --resume", 0,
                "does not say which data it was trained on");
    assert_non_null(strstr(test_said, "resumed at step 2"));
    /* A checkpoint that was saved since then has the member. */
    test_expect(TRAIN "--data text.txt --tokenizer words --steps 6 --output old --resume", 2,
                "other data: data other.txt (");
}

static void put_pieces(const char *lower_case)
{
    char text[64];
    snprintf(text, sizeof text, "{\"do_lower_case\": %s, \"model_max_length\": 512}", lower_case);
    test_put("pieces/vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\nline\nof\na\nsmall\ntext\nand\nthen\n"
                                 "another\n,\n;\n");
    test_put("pieces/tokenizer_config.json", text);
}

/* The vocabulary stays the same. */
static void other_rules_of_a_tokenizer_are_refused(void **state)
{
    (void)state;
#define PIECES TRAIN "--data text.txt --tokenizer pieces --output pieces_run "
    assert_int_equal(sw_mkdirs(test_at("pieces")), SW_OK);
    put_pieces("true");
    test_expect(PIECES "--steps 1", 0, "checkpoints: ");
    test_put("pieces/tokenizer_config.json",
             "{ \"padding_side\": \"left\", \"do_lower_case\": true}");
    test_expect(PIECES "--steps 2 --resume", 0, "resumed at step 1");
    put_pieces("false");
    test_expect(PIECES "--steps 3 --resume", 2,
                "it was trained on other data: rules of the tokenizer (merges, ");
    /* A checkpoint of a version that did not record them goes on. */
    forget_member(test_at("pieces_run/checkpoint-2/manifest.json"), ",\"rules\":\"", "}");
    test_expect(PIECES "--steps 3 --resume", 0, "resumed at step 2");
    put_pieces("true");
    test_expect(PIECES "--steps 4 --resume", 2, "rules of the tokenizer");
}

static void the_room_for_checkpoints_is_said_at_the_start(void **state)
{
    (void)state;
    test_expect(TRAIN "--data text.txt --tokenizer words --steps 2 --save-every 1 --output room", 0,
                "checkpoints: ");
    assert_non_null(strstr(test_said, " free in room"));
    assert_null(strstr(test_said, "more than is free"));
    /* More of them than any disk has room for. */
    test_expect(
        "train --model gpt2.json --deepspeed ds.json --seq-len 12 --quiet --no-export --data "
        "text.txt --tokenizer words --steps 4611686018427387904 --save-every 1 --output room "
        "--resume --set optimizer.params.lr=1e38 --set spillway.allow_other_math=true",
        1, "than is free in room");
}

/* "auto": what the first run chose within its budget is said, is what a plan says, and stays when
 * there is more memory. */
static void what_was_chosen_is_kept(void **state)
{
    (void)state;
#define AUTO "--model gpt2.json --deepspeed auto.json --seq-len 12 --tokenizer words "
    static const char chosen[] = "chosen: spillway.micro_batch 2, spillway.recompute \"none\"";
    char arguments[512];
    long long need = 0;
    test_expect("plan --model gpt2.json --deepspeed ds.json --seq-len 12 --tokenizer words "
                "--device-memory 1000",
                2, "device memory needs ");
    assert_int_equal(sscanf(strstr(test_said, "memory needs "), "memory needs %lld bytes", &need),
                     1);
    snprintf(arguments, sizeof arguments, "plan " AUTO "--summary --device-memory %lld", need);
    test_expect(arguments, 0, chosen);
    snprintf(arguments, sizeof arguments,
             "train " AUTO "--quiet --no-export --data text.txt --steps 1 --output auto "
             "--device-memory %lld",
             need);
    test_expect(arguments, 0, chosen);
    assert_non_null(strstr(test_said, "batch 4 x 2 of 12 tokens"));
#define AGAIN "train " AUTO "--quiet --no-export --data text.txt --output auto --resume "
    test_expect(
        AGAIN "--steps 2 --rates f32=9", 0,
        "chosen: spillway.micro_batch 2, spillway.recompute \"none\", kept from checkpoint-1\n");
    test_expect(AGAIN "--steps 3 --ranks 2", 0, "\"none\", kept from checkpoint-2\n");
    test_expect("plan " AUTO "--summary --output auto --resume", 0, "kept from checkpoint-3\n");
    test_expect("plan " AUTO "--summary", 0, "chosen: spillway.micro_batch 8, ");
    char *manifest = NULL; /* has the effective configuration */
    size_t len;
    assert_int_equal(sw_file_read(test_at("auto/checkpoint-3/manifest.json"), &manifest, &len),
                     SW_OK);
    assert_non_null(strstr(manifest, "\"train_micro_batch_size_per_gpu\":2,"));
    assert_null(strstr(manifest, "\"recompute\":\"auto\""));
    sw_free(manifest);
    test_expect(AGAIN "--steps 4 --ranks 3", 2, "kept from checkpoint-3: ");
    test_expect(AGAIN "--steps 4 --device-memory 20000", 2,
                "kept from checkpoint-3: does not fit: ");
    test_expect(AGAIN "--steps 4 --set spillway.micro_batch=3", 2,
                "--set spillway.micro_batch=3: ");
    test_expect(AGAIN "--steps 4 --rates f33=3", 2, "--rates f33=3: ");
    test_expect("plan " AUTO "--set train_batch_size=null", 2, "\"auto\" needs train_batch_size");
}

/* The characters of lower-case text, first the one that is called `first`. */
static void put_words(const char *name, const char *first)
{
    struct sw_str text = {0};
    char path[128];
    sw_str_printf(&text, "%s", first);
    sw_str_puts(&text, "abcdefghijklmnopqrstuvwxyz 0123456789;,");
    snprintf(path, sizeof path, "%s.txt", name);
    test_put(path, sw_str_text(&text));
    sw_str_fini(&text);
}

static int set_up(void **state)
{
    (void)state;
    program = test_spillway();
    if (!program) {
        return -1;
    }
    test_put("gpt2.json",
             "{\"model_type\":\"gpt2\",\"vocab_size\":48,\"n_positions\":16,\"n_embd\":24,"
             "\"n_layer\":1,\"n_head\":3}");
    test_put("ds.json",
             "{\"train_micro_batch_size_per_gpu\": 2, \"optimizer\": {\"type\": \"AdamW\", "
             "\"params\": {\"lr\": 0.01}}, \"spillway\": {\"threads\": 1, "
             "\"micro_batches\": 2}}");
    test_put("auto.json",
             "{\"train_batch_size\": 8, \"optimizer\": {\"type\": \"AdamW\", \"params\": "
             "{\"lr\": 0.01}}, \"spillway\": {\"threads\": 1, \"micro_batch\": "
             "\"auto\", \"recompute\": \"auto\"}}");
    struct sw_str text = {0}, other = {0};
    for (int i = 0; i < 60; i++) {
        sw_str_printf(&text, "line %d of a small text, and then another; ", i * i % 97);
        sw_str_printf(&other, "line %d of a small text; and then another, ", i * i % 89);
    }
    test_put("text.txt", sw_str_text(&text));
    test_put("copy.txt", sw_str_text(&text));
    test_put("other.txt", sw_str_text(&other));
    sw_str_fini(&text);
    sw_str_fini(&other);
    /* Tokenizers: the characters of a text, as a training leaves them. */
    put_words("words", "");
    put_words("chars", "#");
    const char *const names[] = {"words", "chars"};
    for (int i = 0; i < 2; i++) {
        char arguments[256];
        snprintf(arguments, sizeof arguments,
                 TRAIN "--data %s.txt text.txt --steps 1 --output make-%s", names[i], names[i]);
        test_expect(arguments, 0, "checkpoints: ");
        snprintf(arguments, sizeof arguments, "mv %s/make-%s/tokenizer %s/%s", test_folder(),
                 names[i], test_folder(), names[i]);
        assert_int_equal(system(arguments), 0);
    }
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(other_data_is_refused_by_name),
    cmocka_unit_test(a_refused_resume_names_every_key_that_changed),
    cmocka_unit_test(damage_is_found_before_the_first_step),
    cmocka_unit_test(a_damaged_checkpoint_is_never_passed_over),
    cmocka_unit_test(a_refusal_names_the_newest_intact_checkpoint),
    cmocka_unit_test(a_restart_takes_the_newest_intact_checkpoint),
    cmocka_unit_test(a_restart_repeats_resume_from_until_it_has_saved),
    cmocka_unit_test(resume_wants_something_to_resume),
    cmocka_unit_test(a_run_goes_on_from_a_checkpoint_of_another),
    cmocka_unit_test(a_checkpoint_is_the_same_however_it_is_spelled),
    cmocka_unit_test(a_loss_that_is_no_number_is_named_plainly),
    cmocka_unit_test(json_has_null_where_a_number_is_none),
    cmocka_unit_test(a_checkpoint_without_data_goes_on_and_says_so),
    TEST_IF(SW_HAVE_UTF8PROC, other_rules_of_a_tokenizer_are_refused),
    cmocka_unit_test(the_room_for_checkpoints_is_said_at_the_start),
    cmocka_unit_test(what_was_chosen_is_kept),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up};
