// SPDX-License-Identifier: Apache-2.0
// What a user gets wrong, through the program: one line on standard error that names the thing, status 2
// when it was refused before it started (1 while running), nothing else touched. And that the commands that
// follow a training find what it left.
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "support/fixtures.h"
#include "support/test.h"

static char folder[64], program[600];

static void put(const char *name, const void *data, size_t len)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(sw_file_write_atomic(path, data, len), SW_OK);
}

static void put_text(const char *name, const char *text)
{
    put(name, text, strlen(text));
}

/* A safetensors file of `header` and `bytes` zeros. */
static void put_tensors(const char *name, const char *header, size_t bytes)
{
    struct sw_str file = {0};
    const uint64_t len = strlen(header);
    sw_str_append(&file, (const char *)&len, sizeof len);
    sw_str_puts(&file, header);
    for (size_t i = 0; i < bytes; i++) {
        sw_str_putc(&file, 0);
    }
    put(name, file.ptr, file.len);
    sw_str_fini(&file);
}

/* Runs `spillway <arguments>` in the folder; standard error into err. Returns the exit status. */
static int run(const char *arguments, char *err, size_t cap)
{
    char command[8192], path[128];
    snprintf(command, sizeof command, "cd %s && %s %s >out.txt 2>err.txt </dev/null", folder,
             program, arguments);
    const int status = system(command);
    snprintf(path, sizeof path, "%s/err.txt", folder);
    char *text = NULL;
    size_t len = 0;
    assert_int_equal(sw_file_read(path, &text, &len), SW_OK);
    snprintf(err, cap, "%s", text);
    sw_free(text);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#define TRAIN "train --model gpt2-tiny --steps 2 --output o --data "

static const struct {
    const char *arguments;
    int status;
    const char *says;
} cases[] = {
    {"", 2, NULL},
    {"trian", 2, "trian"},
    {"train", 2, "--model"},
    {"train --model gpt2-tiny --steps 2 --output o", 2, "--data"},
    {TRAIN "text.txt --frobnicate", 2, "--frobnicate"},
    {TRAIN "text.txt --seed", 2, "--seed wants"},
    {TRAIN "text.txt --seed nine", 2, "whole number"},
    {TRAIN "text.txt --seq-len 16 --sample-every 9 --sample-prompt ~", 2, "--sample-prompt"},
    {TRAIN "text.txt --seq-len 4 --sample-every 9 --sample-prompt word", 2, "fewer than 4"},
    {TRAIN "text.txt --val-data text.txt", 2, "--eval-every"},
    {TRAIN "text.txt --device-memory -5", 2, "--set spillway.device_memory=-5: "},
    {"train --model '' --steps 2 --output o --data text.txt", 2, "--model"},
    {TRAIN "text.txt --ranks 65", 2, "65 ranks; wanted 1 to 64"},
    {TRAIN "text.txt --ranks 2 --deadline 1e300", 2, "--deadline is 1e+300"},
    {TRAIN "text.txt --trace x.json --trace-steps 4:3", 2, "--trace-steps: wanted A:B"},
    {TRAIN "text.txt --trace x.json --trace-steps 0:3", 2, "--trace-steps: wanted A:B"},
    {TRAIN "text.txt --trace x.json --trace-steps 1:2x", 2, "--trace-steps: wanted A:B"},
    {TRAIN "text.txt --trace-steps 1:2", 2, "--trace-steps wants --trace"},
    {TRAIN "text.txt --trace ''", 2, "--trace: "},
    {TRAIN "text.txt --trace nowhere/x.json", 2, "nowhere/x.json"},
    {TRAIN "text.txt --trace /tmp", 2, "/tmp"},
    {TRAIN "text.txt --trace x.json --trace-steps 3:9", 2, "steps 3 to 9"},
    {TRAIN "text.txt --trace x.json --set spillway.trace=y.json", 2, "spillway.trace is"},
    {TRAIN "text.txt --set spillway.trace_first=1", 2, "spillway.trace, the file"},
    {TRAIN "text.txt --set spillway.trace=x.json --set spillway.trace_first=2 --set "
           "spillway.trace_last=1",
     2, "spillway.trace_last is 1"},
    {TRAIN "text.txt --seed -1", 2, "--seed: wanted"},
    {TRAIN "text.txt --threads -1", 2, "--threads: wanted"},
    {TRAIN "text.txt --deadline nan", 2, "--deadline: wanted"},
    {TRAIN "text.txt --seed 1 --seed=2", 2, "--seed is given twice"},
    {TRAIN "text.txt --steps 3", 2, "--steps is given twice"},
    {"train --model gpt2-tiny --steps 0 --output o --data text.txt", 2, "--steps"},
    {TRAIN "missing.txt", 2, "missing.txt"},
    {TRAIN "empty.txt", 2, "empty.txt"},
    {TRAIN "short.txt", 2, "short.txt"},
    {TRAIN "latin1.txt", 2, "latin1.txt"},
    {TRAIN "text.txt --seq-len 9999999", 2, NULL},
    {"train --model nothing --steps 2 --output o --data text.txt", 2, "nothing"},
    {"train --model unknown.json --steps 2 --output o --data text.txt", 2, "mamba"},
    {"train --model bad.json --steps 2 --output o --data text.txt", 2, "n_head"},
    {"plan --model deep.json", 2, "n_layer is 100000000"},
    {"plan --model wide.json", 2, "n_embd is 4611686018427387904"},
    {"plan --model sum.json", 2, "n_embd 536870911, n_inner 2147483644, n_layer 12"},
    {"plan --model epsilon.json", 2, "layer_norm_epsilon is -1"},
    {"train --model gpt2-tiny --steps 2 --output o --data empty.bin", 2,
     "empty.bin: the file is empty"},
    {"train --model cross.json --steps 2 --output o --data text.txt", 2, "add_cross_attention"},
    {"train --model small.json --steps 2 --output o --data text.txt --seq-len 64", 2, "16"},
    {TRAIN "text.txt --deepspeed missing.json", 2, "missing.json"},
    {TRAIN "text.txt --deepspeed typo.json", 2, "gradient_clipping"},
    {TRAIN "text.txt --deepspeed twice.json", 2, "train_batch_size"},
    {TRAIN "text.txt --deepspeed negative.json", 2, "lr"},
    {TRAIN "text.txt --deepspeed nobatch.json", 2, "train_micro_batch_size_per_gpu"},
    {TRAIN "text.txt --deepspeed nooptimizer.json", 2, "optimizer"},
    {TRAIN "text.txt --deepspeed offload.json", 2, "offload_optimizer"},
    {TRAIN "text.txt --deepspeed lion.json", 2, "Lion"},
    {TRAIN "text.txt --deepspeed seed.json --seed 4", 2, "spillway.seed"},
    {TRAIN "text.txt --set spillway.seed=3 --seed 4", 2, ": spillway.seed is 3"},
    {TRAIN "text.txt --seed 4 --set spillway.seed=3", 2, ": spillway.seed is 3"},
    {TRAIN "text.txt --set 'spillway={\"seed\": 3}' --seed 4", 2, ": spillway.seed is 3"},
    {TRAIN "text.txt --threads 1 --set spillway.threads=2", 2, "spillway.threads"},
    {TRAIN "text.txt --device-memory 1GiB --set spillway.device_memory=2GiB", 2, "device_memory"},
    {TRAIN "text.txt --host-memory 1GiB --set spillway.host_memory=2GiB", 2, "host_memory"},
    {TRAIN "text.txt --host-memory 1MiB --set zero_optimization.stage=1 --set "
           "zero_optimization.offload_optimizer.device=cpu",
     2, "host memory needs"},
    {TRAIN "text.txt --device-memory 100KiB", 2, "missing"},
    {TRAIN "text.txt --set spillway.recompute=sometimes", 2, "recompute"},
    {"train --model gpt2-tiny --steps 2 --data text.txt --output /proc/nowhere", 2,
     "/proc/nowhere"},
    {TRAIN "ids.bin", 2, "ids.bin"},
    {TRAIN "text.txt --tokenizer nowhere", 2, "nowhere"},
    {TRAIN "bad.jsonl", 2, "bad.jsonl"},
    {"train --model truncated --steps 2 --output o --data text.txt", 2,
     "truncated/model.safetensors"},
    {"train --model overlapping --steps 2 --output o --data text.txt", 2, "InvalidOffset"},
    {"train --model integers --steps 2 --output o --data text.txt", 2, "wte.weight"},
    {"train --model shapes --steps 2 --output o --data text.txt", 2, "wte.weight"},
    {"train --model incomplete --steps 2 --output o --data text.txt", 2, "missing"},
    {"generate --prompt x", 2, "--model"},
    {"generate --model small.json --prompt x --tokens 0", 2, "--tokens"},
    {"generate --model small.json --prompt x --tokens 9223372036854775807", 2, "--tokens"},
    {"generate --model classifier.json --tokenizer many --prompt a", 2, "classifier"},
    {"generate --model small.json --prompt x --top-p 1.5", 2, "--top-p"},
    {"generate --model small.json --tokenizer many --prompt a", 2, "the tokenizer has 21 tokens"},
    {"eval --model small.json --tokenizer many --data text.txt", 2, "the tokenizer has 21 tokens"},
    {"eval --model nowhere --data text.txt", 2, "nowhere"},
    {"plan --model gpt3", 2, "gpt3"},
    {"plan --model gpt2-tiny --ranks 2 --stage 4", 2, "--stage"},
    {"plan --model gpt2-tiny --rates fp32=1", 2, "the nearest is f32"},
    {"plan --model gpt2-tiny --rates copy", 2, "NAME=NUMBER"},
    {"plan --model gpt2-tiny --rates copy=0", 2, "copy=0: wanted a number above 0"},
    {"plan --model gpt2-tiny --rates copy=1x", 2, "copy=1x: wanted a number above 0"},
    {"plan --model gpt2-tiny --ranks 2 --no-update", 2, "training"},
    {"estimate", 2, "--parameters"},
    {"estimate --model gpt2-tiny --parameters 5", 2, "--parameters"},
    {"estimate --parameters 5 --largest-layer 6", 2, "largest layer"},
    {"estimate --parameters 5 --nodes 0", 2, "positive"},
    {"check nowhere", 2, "nowhere"},
    {"check nowhere --ranks 65", 2, "--ranks is 65"},
    {"check nowhere --ranks 4294967297", 2, "--ranks is 4294967297"},
    {"config missing.json", 2, "missing.json"},
    {"config seed.json --elastic 2", 2, "elasticity.enabled"},
    {"config seed.json --elastic -1", 2, "--elastic"},
    {"config seed.json --schedule -1", 2, "--schedule"},
    {"config seed.json --schedule 2 --elastic 2", 2, "--elastic"},
    {"tokenize --tokenizer nowhere", 2, "nowhere"},
    {"checkpoint verify nowhere", 1, "nowhere"},
    {"checkpoint frob", 2, "ls"},
    {"checkpoint ls nowhere", 1, "nowhere"},
    {"export nowhere --output e", 1, "nowhere"},
};

static int count_lines(const char *text)
{
    int n = 0;
    for (; *text; text++) {
        n += *text == '\n';
    }
    return n;
}

static void each_is_refused_by_name(void **state)
{
    (void)state;
    int wrong = 0;
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        char err[4096];
        const int status = run(cases[i].arguments, err, sizeof err);
        const bool named = !cases[i].says || strstr(err, cases[i].says);
        const bool one_line = count_lines(err) == 1 || i == 0;
        if (status != cases[i].status || !named || !one_line) {
            print_message(
                "spillway %s: status %d (wanted %d), \"%s\" (wanted one line with \"%s\")\n",
                cases[i].arguments, status, cases[i].status, err,
                cases[i].says ? cases[i].says : "");
            wrong++;
        }
    }
    assert_int_equal(wrong, 0);
}

/* An exported checkpoint, of a run or the run's newest, is a model that runs on its own. */
static void an_export_has_its_tokenizer(void **state)
{
    static const char *const commands[] = {
        "train --model gpt2-tiny --steps 1 --seq-len 8 --output run --data text.txt",
        "export run --output newest",
        "export run/checkpoint-1 --output one --dtype bf16",
        "generate --model newest --prompt word --tokens 2",
        "generate --model newest --prompt word",
        "generate --model one --prompt word --tokens 2",
        "generate --model one --prompt word --tokens 2 --top-k 3 --top-p 0.5",
    };
    (void)state;
    for (size_t i = 0; i < SW_LEN(commands); i++) {
        char err[4096];
        if (run(commands[i], err, sizeof err) != 0) {
            fail_msg("spillway %s: %s", commands[i], err);
        }
    }
    char err[4096];
    assert_int_equal(run(commands[0], err, sizeof err), 2); /* nothing of that run is lost */
    assert_non_null(strstr(err, "--output run has checkpoints of a run"));
}

/* With slices on many ranks the folder is made of a checkpoint, and is the same to the byte: the names of the
 * hub stay. */
static void an_export_does_not_tell_the_ranks(void **state)
{
    char gpt2[TEST_PATH_CAP], whole[4096], err[4096], command[sizeof whole + 256];
    (void)state;
    if (!test_fixture_folder("gpt2", gpt2)) {
        skip();
    }
    assert_non_null(realpath(gpt2, whole)); /* the program runs in another folder */
    for (int ranks = 1; ranks <= 2; ranks++) {
        snprintf(command, sizeof command,
                 "train --model %s/hub_names --steps 1 --seq-len 8 --data text.txt --deepspeed "
                 "two.json --output hub%d --ranks %d",
                 whole, ranks, ranks);
        if (run(command, err, sizeof err) != 0) {
            fail_msg("%s", err);
        }
    }
    snprintf(command, sizeof command,
             "cd %s && cmp hub1/model/model.safetensors hub2/model/model.safetensors", folder);
    assert_int_equal(system(command), 0);
}

/* What the program prints is read by other programs, and copied into documents. */
static void lines_end_where_their_text_ends(void **state)
{
    static const char *const commands[] = {
        "--help",
        "train --help",
        "doctor --threads 1",
        "plan --model gpt2-tiny",
        "plan --model gpt2-tiny --rates copy=1",
        "plan --model gpt2-tiny --ranks 2",
        "config seed.json",
        "config --explain fp16",
    };
    (void)state;
    for (size_t i = 0; i < SW_LEN(commands); i++) {
        char err[512], path[128], *text = NULL;
        size_t len = 0;
        assert_int_equal(run(commands[i], err, sizeof err), 0);
        snprintf(path, sizeof path, "%s/out.txt", folder);
        assert_int_equal(sw_file_read(path, &text, &len), SW_OK);
        assert_true(len > 0);
        if (strstr(text, " \n")) {
            fail_msg("spillway %s: a line ends in a blank", commands[i]);
        }
        sw_free(text);
    }
}

static int set_up(void **state)
{
    (void)state;
    const char *build = getenv("SPILLWAY_BUILD_DIR");
    char path[512];
    if (!realpath(build ? build : "build", path)) {
        return -1;
    }
    snprintf(program, sizeof program, "%s/spillway", path);
    snprintf(folder, sizeof folder, "/tmp/spillway-refusals-XXXXXX");
    if (access(program, X_OK) != 0 || !mkdtemp(folder)) {
        return -1;
    }
    struct sw_str text = {0};
    for (int i = 0; i < 3000; i++) {
        sw_str_printf(&text, "word%d ", i % 13);
    }
    put_text("text.txt", sw_str_text(&text));
    sw_str_fini(&text);
    put_text("empty.txt", "");
    put_text("short.txt", "ab");
    put_text(
        "latin1.txt",
        "caf\xe9 and more text that is long enough for a sequence of sixty-four tokens, at least");
    put_text("bad.jsonl", "{\"text\": \"a\"}\n{\"text\": 5}\n");
    const uint16_t ids[] = {1, 2, 60000, 4};
    put("ids.bin", ids, sizeof ids);
    put_text("unknown.json", "{\"model_type\": \"mamba\"}");
    put_text("bad.json", "{\"model_type\": \"gpt2\", \"n_embd\": 10, \"n_head\": 3}");
    put_text(
        "classifier.json",
        "{\"model_type\": \"gpt2\", \"vocab_size\": 30, \"n_embd\": 4, \"n_layer\": 1, \"n_head\": 1, "
        "\"architectures\": [\"GPT2ForSequenceClassification\"]}");
    put_text("deep.json", "{\"model_type\": \"gpt2\", \"n_layer\": 100000000}");
    put_text("wide.json", "{\"model_type\": \"gpt2\", \"n_embd\": 4611686018427387904}");
    put_text("sum.json", "{\"model_type\": \"gpt2\", \"n_embd\": 536870911, \"n_head\": 1}");
    put_text("epsilon.json", "{\"model_type\": \"gpt2\", \"layer_norm_epsilon\": -1}");
    put_text("empty.bin", "");
    put_text("cross.json", "{\"model_type\": \"gpt2\", \"add_cross_attention\": true}");
    static const char small[] =
        "{\"model_type\": \"gpt2\", \"vocab_size\": 20, \"n_positions\": 16, "
        "\"n_embd\": 4, \"n_layer\": 1, \"n_head\": 1}";
    put_text("small.json", small);
#define OPTIMIZER "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.001}}"
    put_text("typo.json", "{\"train_batch_size\": 4, \"gradient_cliping\": 1, " OPTIMIZER "}");
    put_text("twice.json", "{\"train_batch_size\": 4, \"train_batch_size\": 8, " OPTIMIZER "}");
    put_text(
        "negative.json",
        "{\"train_batch_size\": 4, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": -1}}}");
    put_text("two.json",
             "{\"train_batch_size\": 4, \"train_micro_batch_size_per_gpu\": 2, " OPTIMIZER "}");
    put_text("nobatch.json", "{" OPTIMIZER "}");
    put_text("nooptimizer.json", "{\"train_batch_size\": 4}");
    put_text(
        "offload.json",
        "{\"train_batch_size\": 4, " OPTIMIZER
        ", \"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": \"nvme\", "
        "\"nvme_path\": \"/n\"}}}");
    put_text(
        "lion.json",
        "{\"train_batch_size\": 4, \"optimizer\": {\"type\": \"Lion\", \"params\": {\"lr\": 0.001}}}");
    put_text("seed.json", "{\"train_batch_size\": 4, " OPTIMIZER ", \"spillway\": {\"seed\": 3}}");
    char many[128];
    snprintf(many, sizeof many, "%s/many", folder);
    assert_int_equal(mkdir(many, 0755), 0);
    put_text("many/chars.json",
             "[\"a\", \"b\", \"c\", \"d\", \"e\", \"f\", \"g\", \"h\", \"i\", \"j\", \"k\", "
             "\"l\", \"m\", \"n\", \"o\", \"p\", \"q\", \"r\", \"s\", \"t\", \"u\"]");
    static const char *const folders[] = {"truncated", "overlapping", "integers", "shapes",
                                          "incomplete"};
    for (size_t i = 0; i < SW_LEN(folders); i++) {
        char name[128];
        snprintf(name, sizeof name, "%s/%s", folder, folders[i]);
        assert_int_equal(mkdir(name, 0755), 0);
        snprintf(name, sizeof name, "%s/config.json", folders[i]);
        put_text(name, small);
    }
    put_tensors("truncated/model.safetensors",
                "{\"wte.weight\":{\"dtype\":\"F32\",\"shape\":[20,4],\"data_offsets\":[0,320]}}",
                300);
    put_tensors("overlapping/model.safetensors",
                "{\"wte.weight\":{\"dtype\":\"F32\",\"shape\":[20,4],\"data_offsets\":[0,320]},"
                "\"wpe.weight\":{\"dtype\":\"F32\",\"shape\":[16,4],\"data_offsets\":[64,320]}}",
                320);
    put_tensors("integers/model.safetensors",
                "{\"wte.weight\":{\"dtype\":\"I32\",\"shape\":[20,4],\"data_offsets\":[0,320]}}",
                320);
    put_tensors("shapes/model.safetensors",
                "{\"wte.weight\":{\"dtype\":\"F32\",\"shape\":[4,20],\"data_offsets\":[0,320]}}",
                320);
    put_tensors("incomplete/model.safetensors",
                "{\"wte.weight\":{\"dtype\":\"F32\",\"shape\":[20,4],\"data_offsets\":[0,320]}}",
                320);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_is_refused_by_name),
                                       cmocka_unit_test(an_export_has_its_tokenizer),
                                       cmocka_unit_test(an_export_does_not_tell_the_ranks),
                                       cmocka_unit_test(lines_end_where_their_text_ends)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
