// SPDX-License-Identifier: Apache-2.0
// COST 12
// User errors, through the program. Each gives one line on standard error that names the problem,
// and status 2 if it was refused before the start (1 while running). Nothing else is touched. Also
// checks that the commands that follow a training find its files.
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/base.h"
#include "support/fixtures.h"
#include "support/scratch.h"
#include "support/test.h"

static const char *program;

static void put(const char *name, const void *data, size_t len)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", test_folder(), name);
    assert_int_equal(sw_file_write_atomic(path, data, len), SW_OK);
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
    snprintf(command, sizeof command, "cd %s && %s %s >out.txt 2>err.txt </dev/null", test_folder(),
             program, arguments);
    const int status = system(command);
    snprintf(path, sizeof path, "%s/err.txt", test_folder());
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
    {"trian", 2, "unknown command \"trian\"; the nearest is train;"},
    {"zebra", 2, "unknown command \"zebra\"; \"spillway --help\""},
    {"train", 2, "--model"},
    {"train --model gpt2-tiny --steps 2 --output o", 2, "--data"},
    {TRAIN "text.txt --frobnicate", 2, "unknown option --frobnicate; see --help"},
    {TRAIN "text.txt --hlep", 2, "unknown option --hlep; the nearest is --help;"},
    {"train -q", 2, "unknown option -q; see --help"},
    {"launch -n 2 true", 2, "unknown option -n; see --help"},
    {TRAIN "text.txt --device-memry=1G", 2, "--device-memry; the nearest is --device-memory;"},
    {TRAIN "text.txt --resume=yes", 2, "--resume takes no value, got \"yes\""},
    {TRAIN "text.txt --seed", 2, "--seed needs a value"},
    {TRAIN "text.txt --seed nine", 2, "whole number"},
    {TRAIN "text.txt --seq-len 16 --sample-every 9 --sample-prompt ~", 2, "--sample-prompt"},
    {TRAIN "text.txt --seq-len 4 --sample-every 9 --sample-prompt word", 2, "fewer than 4"},
    {TRAIN "text.txt --val-data text.txt", 2, "--eval-every"},
    {TRAIN "text.txt --seq-len 16 --set 'spillway.frozen=[\"transformer.*\", \"transfromer.*\"]'",
     2, "spillway.frozen[1]: no parameter matches \"transfromer.*\""},
    {TRAIN "text.txt --device-memory -5", 2, "--set spillway.device_memory=-5: "},
    {"train --model '' --steps 2 --output o --data text.txt", 2, "--model"},
    {TRAIN "text.txt --ranks 65", 2, "65 ranks; wanted 1 to 64"},
    {TRAIN "text.txt --ranks 2 --deadline 1e300", 2, "--deadline is 1e+300"},
    {TRAIN "text.txt --trace x.json --trace-steps 4:3", 2, "--trace-steps: wanted A:B"},
    {TRAIN "text.txt --trace x.json --trace-steps 0:3", 2, "--trace-steps: wanted A:B"},
    {TRAIN "text.txt --trace x.json --trace-steps 1:2x", 2, "--trace-steps: wanted A:B"},
    {TRAIN "text.txt --trace-steps 1:2", 2, "--trace-steps needs --trace"},
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
    {"launch --num-ranks 4 --num_gpus=2 true", 2,
     "--num-gpus is given twice, first as --num-ranks"},
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
    {"plan --diff bad.json", 2, "--diff takes two files"},
    {"plan --diff bad.json bad.json --seed 3", 2, "no other option"},
    {"plan --diff=bad.json bad.json --seed=3", 2, "no other option"},
    {"plan --diff bad.json bad.json", 2, "bad.json: fingerprint: is missing"},
    {"plan --diff missing.json bad.json", 2, "missing.json"},
    {"plan --diff text.txt bad.json", 2, "text.txt:1:1: "},
    {"train --model gpt2-tiny --steps 2 --output o --data empty.bin", 2,
     "empty.bin: the file is empty"},
    {"train --model cross.json --steps 2 --output o --data text.txt", 2, "add_cross_attention"},
    {"train --model small.json --steps 2 --output o --data text.txt --seq-len 64", 2, "16"},
    {TRAIN "text.txt --deepspeed missing.json", 2, "missing.json"},
    {TRAIN "text.txt --deepspeed typo.json", 2, "gradient_clipping"},
    {TRAIN "text.txt --deepspeed twice.json", 2, "train_batch_size"},
    {TRAIN "text.txt --deepspeed negative.json", 2, "lr"},
    {TRAIN "text.txt --deepspeed nobatch.json", 2, "train_micro_batch_size_per_gpu"},
    {TRAIN "text.txt --deepspeed offload.json", 2, "offload_optimizer"},
    {TRAIN "text.txt --deepspeed nadam.json", 2, "NAdam"},
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
    {TRAIN "text.txt --device-memory 100K", 2, "the budget is 102400 ("},
    {TRAIN "text.txt --device-memory lots", 2, "\"300M\""},
    {TRAIN "text.txt --host-memory 5X", 2, "\"5X\" is not a number of bytes"},
    {TRAIN "text.txt --nvme-space 1.5", 2, "spillway.nvme_space"},
    {"plan --model gpt2-tiny --device-memory 1m", 2, "the budget is 1048576 ("},
    {"plan --model gpt2-tiny --device-memory 1MM", 2, "\"1MM\" is not a number of bytes"},
    {"io bench --path . --size 5X", 2, "--size: \"5X\" is not a number of bytes"},
    {"io verify --path . --block-size 0", 2, "--block-size: \"0\" is too small"},
    {TRAIN "text.txt --set spillway.recompute=sometimes", 2, "recompute"},
    {"train --model gpt2-tiny --steps 2 --data text.txt --output /proc/nowhere", 2,
     "/proc/nowhere"},
    {TRAIN "ids.bin", 2, "ids.bin"},
    {TRAIN "text.txt --tokenizer nowhere", 2, "nowhere"},
    {TRAIN "bad.jsonl", 2, "bad.jsonl"},
    {"train --model gpt2-tiny --output o --data text.txt", 2, "missing: --steps or --epochs; see"},
    {"train --steps 3 --model gpt2-tiny", 2, "missing: --data --output; see"},
    {TRAIN "array.json", 2, "array.json: by its name it is JSON, given as text: make JSON lines"},
    {TRAIN "table.csv", 2, "table.csv: by its name it is a table, given as text: make JSON lines"},
    {TRAIN "table.csv", 2, "--as-text takes it as it is"},
    {TRAIN "text.txt TABLE.TSV", 2, "TABLE.TSV: by its name it is a table"},
    {TRAIN "text.gz", 2, "text.gz: by its name it is packed, given as text: unpack it;"},
    {TRAIN "array.txt", 2, "array.txt: it looks like JSON, given as text: make JSON lines"},
    {TRAIN "lines.txt", 2, "lines.txt: it looks like JSON"},
    {TRAIN "text.txt --eval-every 1 --val-data table.csv", 2, "table.csv: by its name"},
    {"plan --model gpt2-tiny --data table.csv", 2, "table.csv: by its name"},
    {TRAIN "text.txt --export newest", 2, "--export: wanted best or last, got \"newest\""},
    {TRAIN "text.txt --export best", 2, "--export best needs --eval-every"},
    {TRAIN "text.txt --export best --eval-every 1 --no-export", 2, "exclude each other"},
    {"plan --model gpt2-tiny --batch 0", 2, "--batch"},
    {"plan --model gpt2-tiny --deepspeed two.json --batch 3", 2,
     "train_micro_batch_size_per_gpu is 2"},
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
    {"embed", 2, "--model and --batch >= 1 are required"},
    {"embed --model small.json --tokenizer many --pool last", 2,
     "--pool: wanted mean or cls, got \"last\""},
    {"embed --model small.json --tokenizer many --data text.txt", 2, "text.txt:1: text: character"},
    {"embed --model small.json --tokenizer many --data nowhere", 2, "cannot open nowhere"},
    {"embed --model small.json --tokenizer many --data .", 2, "cannot read .: Is a directory"},
    {"embed --model small.json --tokenizer many --data /dev/null", 2,
     "task \"embed\": gpt2 has no head for it"},
    {"plan --model gpt3", 2, "gpt3: no such file, no preset of that name"},
    {"generate --model --prompt x", 2, "unexpected word \"x\""},
    {"generate --model gpt3 --prompt x", 2, "\"hf download gpt3\" brings one there"},
    {"plan --model truncated/model.safetensors", 2, "wanted their folder, with config.json"},
    {"doctor --threads 9223372036854775807", 2, "threads"},
    {"plan --published nothing", 2, "no published run \"nothing\""},
    {"plan --published mi100 --model gpt2", 2,
     "no other options but --accounting, --picture and --json"},
    {"plan --published=mi100 --model=gpt2", 2,
     "no other options but --accounting, --picture and --json"},
    {"plan --published mi100 --accounting mine", 2, "no accounting \"mine\""},
    {"plan --model gpt2 --accounting ours", 2, "--accounting needs --published"},
    {"plan --model gpt2 --nodes 2", 2, "--nodes needs --on"},
    {"plan --model gpt2 --tokens 3e9", 2, "--tokens needs --on"},
    {"plan --model gpt2 --on dgx2-v100 --price 3", 2, "--price needs --tokens"},
    {"plan --model gpt2 --on dgx2-v100 --nodes 2x", 2, "wanted N or A:B with 1 <= A <= B, got"},
    {"plan --model gpt2 --on dgx2-v100 --nodes 3:2", 2, "wanted N or A:B with 1 <= A <= B, got"},
    {"plan --model gpt2 --on dgx2-v100 --nodes 1:2 --ranks 4", 2, "leave out --ranks"},
    {"plan --model gpt2 --search", 2, "--search needs --on"},
    {"plan --model gpt2 --on dgx2-v100 --nodes 1:2 --search", 2, "--search takes one number of"},
    {"plan --model gpt2 --on dgx2-v100 --largest --search", 2, "--largest takes one number of"},
    {"plan --model cifar-net --on dgx2-v100 --largest", 2, "has no number of layers"},
    {"plan --model gpt2 --on dgx2-v100 --nodes 64:65", 2, "node.nodes: wanted 65 nodes"},
    {"doctor --disk .", 2, "need --cluster"},
    {"doctor --ranks 2 --threads 1", 2, "print a mesh and go with no other option"},
    {"doctor --ranks 3 --set spillway.mesh.pipe=2", 2, "do not make up 3 ranks"},
    {"doctor --cluster x.json --threads 2", 2, "--threads does not go with --cluster"},
    {"doctor --cluster x.json --device mock", 2, "\"cpu\", \"cuda\" or \"hip\", not \"mock\""},
    {"plan --model gpt2-tiny --ranks 2 --stage 4", 2, "--stage"},
    {"plan --model gpt2-tiny --ranks 8 --set spillway.mesh.pipe=8", 2,
     "--set spillway.mesh.pipe=8: spillway.mesh.pipe: 8 with 1 chunk per stage: the model"},
    {"plan --model gpt2-tiny --on dgx2-v100 --search --set spillway.mesh.tensor=3", 2,
     "--set spillway.mesh.tensor=3: spillway.mesh.tensor: pipe x expert x tensor x context is 3"},
    {"plan --model gpt2-tiny --rates fp32=1", 2, "the nearest is \"f32\""},
    {"plan --model gpt2-tiny --rates copy", 2, "NAME=NUMBER"},
    {"plan --model gpt2-tiny --rates copy=0", 2, "copy=0: wanted a number above 0"},
    {"plan --model gpt2-tiny --rates copy=1x", 2, "copy=1x: wanted a number above 0"},
    {"plan --model gpt2-tiny --ranks 2 --no-update", 2, "training"},
    {"plan --model gpt2-tiny --set spillway.kernels=reference --set spillway.device=mock", 2,
     "spillway.kernels: \"reference\" needs the CPU, but spillway.device is \"mock\""},
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

/* With slices on many ranks the folder is made of a checkpoint, and is the same to the byte: the
 * names of the hub stay. */
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
             "cd %s && cmp hub1/model/model.safetensors hub2/model/model.safetensors",
             test_folder());
    assert_int_equal(system(command), 0);
}

/* Checks lines for trailing blanks, because other programs read the output and documents quote
 * it. */
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
        snprintf(path, sizeof path, "%s/out.txt", test_folder());
        assert_int_equal(sw_file_read(path, &text, &len), SW_OK);
        assert_true(len > 0);
        if (strstr(text, " \n")) {
            fail_msg("spillway %s: a line ends in a blank", commands[i]);
        }
        sw_free(text);
    }
}

/* The output of the last `spillway <arguments>`. */
static char *printed(void)
{
    char path[128], *text = NULL;
    size_t len = 0;
    snprintf(path, sizeof path, "%s/out.txt", test_folder());
    assert_int_equal(sw_file_read(path, &text, &len), SW_OK);
    return text;
}

/* Runs it, which must succeed, and looks for each of the words (ended by NULL) in what it
 * prints. */
static void expect_words(const char *arguments, const char *const *words)
{
    char err[4096];
    if (run(arguments, err, sizeof err) != 0) {
        fail_msg("spillway %s: %s", arguments, err);
    }
    char *text = printed();
    for (; *words; words++) {
        if (!strstr(text, *words)) {
            fail_msg("spillway %s: no \"%s\" in \"%s\"", arguments, *words, text);
        }
    }
    sw_free(text);
}

/* Defaults that a user may not expect: a model with random weights, characters as tokens, clipping.
 */
static void the_first_lines_say_where_things_come_from(void **state)
{
    static const struct {
        const char *arguments, *words[5];
    } lines[] = {
        {"train --model gpt2-tiny --steps 2 --seq-len 8 --output first1 --data text.txt",
         {"preset gpt2-tiny: weights drawn with seed 42, there is no folder ./gpt2-tiny\n",
          "tokens: characters of the text (no tokenizer)\n",
          "update: AdamW, lr 0.001, clipped to norm 1 (default; gradient_clipping)\n"}},
        {"train --model gpt2-tiny --steps 3 --seq-len 8 --output first1 --data text.txt --resume",
         {"update: AdamW, lr 0.001, clipped to norm 1 (default", "resumed at step 2"}},
        {"train --model small.json --tokenizer letters --steps 1 --output first2 --data ab.txt "
         "--seq-len 4 --seed 7 --set gradient_clipping=1",
         {"small.json: weights drawn with seed 7, it is a configuration alone\n",
          "tokens: characters of letters\n", "clipped to norm 1\n"}},
        {"train --model small.json --steps 1 --output first3 --data few.bin --seq-len 4 --set "
         "gradient_clipping=0",
         {"tokens: those of the shards (no tokenizer)\n", "not clipped\n"}},
        {"train --model first2/model --steps 1 --output first4 --data ab.txt --seq-len 4",
         {"tokens: characters of first2/model\n", "lr 5e-05, "}},
    };
    (void)state;
    for (size_t i = 0; i < SW_LEN(lines); i++) {
        expect_words(lines[i].arguments, lines[i].words);
        char *text = printed();
        assert_true((strstr(text, "weights drawn") != NULL) == (i == 0 || i == 2 || i == 3));
        sw_free(text);
    }
}

/* The text after `words` in a line of the last output, up to the next ; or the end of the line. */
static void said_after(const char *words, char *buf, size_t cap)
{
    char *text = printed();
    const char *at = strstr(text, words);
    if (!at) {
        fail_msg("no \"%s\" in \"%s\"", words, text);
    }
    at += strlen(words);
    snprintf(buf, cap, "%.*s", (int)strcspn(at, ";)\n"), at);
    sw_free(text);
}

/* With the same flags: a vocabulary of characters, validation and samples count, and so does the
 * default configuration. */
static void a_plan_says_the_bytes_that_train_holds(void **state)
{
    static const char *const flags[] = {
        "--model gpt2-tiny --data text.txt --seq-len 24 --threads 2 --eval-every 1 --sample-every "
        "1 --sample-tokens 3 --steps 1 --seed 3 --keep-last 1 --quiet --export last --trace t.json",
        "--model gpt2-tiny --data table.csv --as-text --seq-len 16 --steps 1 --deepspeed two.json "
        "--set bf16.enabled=true --set zero_optimization.stage=1 --set "
        "zero_optimization.offload_optimizer.device=cpu --device-memory 64MiB --no-export "
        "--profile",
        "--model small.json --data few.bin --seq-len 4 --steps 1",
    };
    (void)state;
    for (size_t i = 0; i < SW_LEN(flags); i++) {
        char command[1024], err[4096], held[64], planned[64];
        snprintf(command, sizeof command, "train %s --output held%zu", flags[i], i);
        if (run(command, err, sizeof err) != 0) {
            fail_msg("spillway %s: %s", command, err);
        }
        said_after("plan: device ", held, sizeof held);
        snprintf(command, sizeof command, "plan %s --output held%zu --summary", flags[i], i);
        if (run(command, err, sizeof err) != 0) {
            fail_msg("spillway %s: %s", command, err);
        }
        said_after("device  peak ", planned, sizeof planned);
        const char *planned_text = strchr(planned, '(');
        if (!planned_text || strncmp(planned_text + 1, held, strlen(planned_text + 1)) != 0) {
            fail_msg("%s: planned %s, held %s", flags[i], planned, held);
        }
    }
}

static int shell(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* In the folder; its exit status. */
static int shell(const char *fmt, ...)
{
    char text[1024], command[1200];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    snprintf(command, sizeof command, "cd %s && { %s; } >out.txt 2>err.txt", test_folder(), text);
    const int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void expect_run(const char *arguments)
{
    static const char *const nothing[] = {NULL};
    expect_words(arguments, nothing);
}

static void plan_as(const char *arguments, const char *name)
{
    char err[4096], from[256], to[256];
    if (run(arguments, err, sizeof err) != 0) {
        fail_msg("%s: %s", arguments, err);
    }
    snprintf(from, sizeof from, "%s/out.txt", test_folder());
    snprintf(to, sizeof to, "%s/%s", test_folder(), name);
    assert_int_equal(rename(from, to), 0);
}

/* Statuses as of diff: 0, 1, and 2 for trouble, which a full disk is. */
static void plans_are_compared_as_files_are(void **state)
{
    (void)state;
    char err[4096];
    plan_as("plan --model gpt2-tiny --seq-len 8 --json", "a.json");
    plan_as("plan --model gpt2-tiny --seq-len 8 --set spillway.recompute=blocks --json", "b.json");
    plan_as("plan --model gpt2-tiny --seq-len 8 --json --summary", "figures.json");
    plan_as("plan --model gpt2-tiny --seq-len 8 --batch 4 --ranks 2 --json", "ranks.json");
    assert_int_equal(run("plan --diff a.json a.json", err, sizeof err), 0);
    assert_int_equal(run("plan --diff a.json b.json", err, sizeof err), 1);
    assert_string_equal(err, "");
    assert_int_equal(run("plan --diff a.json b.json --json", err, sizeof err), 1);
    assert_int_equal(run("plan --diff a.json ranks.json", err, sizeof err), 1);
    assert_int_equal(run("plan --diff a.json figures.json", err, sizeof err), 2);
    assert_non_null(strstr(err, "figures.json: programs[0].instruction_list: is missing"));
    assert_int_equal(run("plan --diff a.json a.json >/dev/full 2>err.txt #", err, sizeof err), 2);
}

/* An export also has the files beside the weights, the tensor names of the hub and the dtype. The
 * program prints which checkpoint it exported. */
static void an_export_is_the_model_of_its_run(void **state)
{
    (void)state;
    expect_run(
        "train --model small.json --tokenizer letters --steps 1 --output origin --data ab.txt "
        "--seq-len 4 --export-dtype bf16");
    assert_int_equal(
        shell("echo '{\"top_k\": 4}' > origin/model/generation_config.json; echo mine > "
              "origin/model/LICENSE; echo '{}' > origin/model/special_tokens_map.json; "
              "rm origin/model/.spillway-export"),
        0);
    expect_run("train --model origin/model --steps 2 --output again --data ab.txt --seq-len 4");
    assert_int_equal(shell("rm -r origin"), 0); /* a run has all that it needs */
    static const char *const named[] = {"out1: bf16 weights of again/checkpoint-2, step 2\n", NULL};
    expect_words("export again --output out1", named);
    assert_int_equal(
        shell("diff -r again/model out1 && cat out1/generation_config.json out1/LICENSE "
              "out1/special_tokens_map.json"),
        0);
    expect_words("export again --output out1", named); /* its own folder */
    char err[4096];
    assert_int_equal(shell("mkdir kept && echo x > kept/model.safetensors"), 0);
    assert_int_equal(run("export again --output kept", err, sizeof err), 2);
    assert_non_null(strstr(err, "kept is not empty and is not an export of spillway"));
    assert_int_equal(shell("mkdir -p busy/model && echo x > busy/model/model.safetensors"), 0);
    assert_int_equal(
        run("train --model small.json --tokenizer letters --steps 1 --output busy --data "
            "ab.txt --seq-len 4",
            err, sizeof err),
        2);
    assert_non_null(strstr(err, "busy/model is not empty"));
    expect_run("train --model small.json --tokenizer letters --steps 1 --output busy --data ab.txt "
               "--seq-len 4 --no-export");
    assert_int_equal(run("train --model small.json --tokenizer letters --steps 2 --output busy "
                         "--data ab.txt --seq-len 4 --resume",
                         err, sizeof err),
                     2);
    assert_non_null(strstr(err, "busy/model is not empty"));
    assert_int_equal(shell("cmp kept/model.safetensors busy/model/model.safetensors"), 0);
    /* another tokenizer takes the place of the model's */
    expect_run("train --model again/model --tokenizer letters2 --steps 1 --output other --data "
               "ab.txt --seq-len 4");
    assert_int_equal(shell("grep c other/model/chars.json && cat other/model/LICENSE && "
                           "! cat other/model/special_tokens_map.json"),
                     0);
}

/* The best by validation loss, which every checkpoint then has, of the step it was made at. */
static void the_best_checkpoint_is_exported(void **state)
{
    static const char flags[] =
        "--model gpt2-tiny --steps 9 --seq-len 8 --data text.txt --save-every 3 "
        "--eval-every 2 --eval-batches 99 --set optimizer.params.lr=0.05 --threads 1";
    char command[512], err[4096], best[128], listed[128];
    (void)state;
    snprintf(command, sizeof command, "train %s --output best --export best", flags);
    expect_run(command);
    said_after("of the best checkpoint: ", best, sizeof best);
    assert_int_equal(
        shell("%s checkpoint ls best | awk '{print $NF, $1, $3}' | sort -g | head -1 | "
              "awk '{print \"best/\" $2 \", step \" $3 \", validation loss \" $1}' && test "
              "$(grep -c 'validation loss' out.txt) = 1",
              program),
        0);
    char *text = printed();
    snprintf(listed, sizeof listed, "%.*s", (int)strcspn(text, "\n"), text);
    sw_free(text);
    assert_string_equal(listed, best);
    const char *const named[] = {best, NULL};
    expect_words("export best/ --best --output chosen", named);
    assert_int_equal(shell("diff -r chosen best/model"), 0);
    assert_int_equal(run("export best/checkpoint-3 --best --output x1", err, sizeof err), 2);
    assert_non_null(strstr(err, "best/checkpoint-3 is one of them"));
    expect_run("train --model gpt2-tiny --steps 1 --seq-len 8 --data text.txt --output plain");
    assert_int_equal(run("export plain --best --output x2", err, sizeof err), 1);
    assert_non_null(strstr(err, "plain: no checkpoint has a validation loss"));
    assert_int_equal(shell("test ! -e x1 && test ! -e x2"), 0);
}

/* Files that are refused as text are read as text if requested. */
static void as_text_takes_files_as_they_are(void **state)
{
    static const char *const files[] = {"array.json", "table.csv", "array.txt", "lines.jsonl"};
    (void)state;
    for (size_t i = 0; i < SW_LEN(files); i++) {
        char command[256];
        snprintf(
            command, sizeof command,
            "train --model gpt2-tiny --steps 1 --seq-len 4 --no-export --output as%zu --data %s "
            "--as-text",
            i, files[i]);
        expect_run(command);
    }
    expect_run("train --model gpt2-tiny --steps 1 --seq-len 4 --output bracket --data bracket.txt");
    expect_run(
        "train --model gpt2-tiny --steps 1 --seq-len 4 --output astext --data table.csv --as-text");
    expect_run("eval --model astext/model --data table.csv --seq-len 4 --as-text");
}

/* Standard output is a terminal of no known width. Returns what the program writes to it. */
static void run_on_terminal(const char *arguments, char *buf, size_t cap)
{
    char command[2048];
    const int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
    assert_true(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    const char *name = ptsname(terminal);
    const int held = open(name, O_RDWR | O_NOCTTY); /* what is written outlives the program */
    assert_true(held >= 0);
    snprintf(command, sizeof command, "cd %s && %s %s >%s 2>err.txt", test_folder(), program,
             arguments, name);
    assert_int_equal(system(command), 0);
    size_t len = 0;
    for (ssize_t n; len < cap - 1 && (n = read(terminal, buf + len, cap - 1 - len)) > 0;) {
        len += (size_t)n;
    }
    buf[len] = '\0';
    close(held);
    close(terminal);
}

/* mpirun gives its ranks a terminal that nobody sees; and no line is longer than one is wide. */
static void under_mpirun_the_bar_is_off_and_a_line_fits(void **state)
{
    static const char flags[] =
        "train --model gpt2-tiny --steps 3 --seq-len 8 --data text.txt --no-export "
        "--eval-every 2 --save-every 2";
    char command[512], text[8192];
    (void)state;
    setenv("TERM", "xterm", 1);
    setenv("NO_COLOR", "1", 1);   /* the bar has no escapes in it */
    for (int i = 0; i < 4; i++) { /* a terminal; mpirun; mpirun with --bar; mpirun and --quiet */
        const bool bar = i == 0 || i == 2;
        (i > 0 ? setenv("OMPI_COMM_WORLD_SIZE", "1", 1) : unsetenv("OMPI_COMM_WORLD_SIZE"));
        snprintf(command, sizeof command, "%s --output bar%d%s", flags, i,
                 i == 2   ? " --bar"
                 : i == 3 ? " --quiet"
                          : "");
        run_on_terminal(command, text, sizeof text);
        if ((strstr(text, "[###") != NULL) != bar) {
            fail_msg("bar %d: %s", bar, text);
        }
        if (strstr(text, "\033[K") && !bar) {
            fail_msg("it erases lines: %s", text);
        }
        int n = 0;
        for (char *line = strtok(text, "\r\n"); line; line = strtok(NULL, "\r\n"), n++) {
            const char *shown = strncmp(line, "\033[K", 3) == 0 ? line + 3 : line;
            if (strlen(shown) > 80) {
                fail_msg("%zu columns: %s", strlen(shown), shown);
            }
        }
        assert_true(n > 5);
    }
    unsetenv("OMPI_COMM_WORLD_SIZE");
    unsetenv("NO_COLOR");
}

/* A run or a checkpoint where a model is wanted: where its model is, or how to make one. */
static void a_run_is_no_model(void **state)
{
    static const char *const before[] = {
        "train --model gpt2-tiny --steps 1 --seq-len 8 --output made --data text.txt",
        "train --model gpt2-tiny --steps 1 --seq-len 8 --output bare --data text.txt --no-export"};
    static const struct {
        const char *arguments, *says;
    } refused[] = {
        {"generate --model made --prompt x", "made is a run, its model is made/model\n"},
        {"eval --model made/ --data text.txt", "made/ is a run, its model is made/model\n"},
        {"train --model made --steps 1 --output o2 --data text.txt", "its model is made/model\n"},
        {"plan --model made", "its model is made/model\n"},
        {"generate --model made/checkpoint-1 --prompt x",
         "\"spillway export made/checkpoint-1 --output DIR\""},
        {"eval --model bare --data text.txt", "\"spillway export bare --output DIR\""},
        {"tokenize --tokenizer made", "made is a run, its tokenizer is made/tokenizer\n"},
    };
    (void)state;
    char err[4096];
    for (size_t i = 0; i < SW_LEN(before); i++) {
        assert_int_equal(run(before[i], err, sizeof err), 0);
    }
    for (size_t i = 0; i < SW_LEN(refused); i++) {
        const int status = run(refused[i].arguments, err, sizeof err);
        if (status != 2 || count_lines(err) != 1 || !strstr(err, refused[i].says)) {
            fail_msg("spillway %s: status %d, %s", refused[i].arguments, status, err);
        }
    }
    assert_int_equal(
        run("generate --model gpt2-tiny --tokenizer many --prompt a --tokens 2", err, sizeof err),
        0);
    assert_non_null(strstr(err, "gpt2-tiny: there is no folder with weights; they are drawn"));
}

/* A peak is that of some instructions; a product may use others. What GPUs lack is named. */
static void doctor_names_the_unit_of_each_peak_and_what_gpus_lack(void **state)
{
    (void)state;
    char err[512];
    setenv("SPILLWAY_MODULES", "/nowhere", 1);
    assert_int_equal(run("doctor --threads 1", err, sizeof err), 0);
    unsetenv("SPILLWAY_MODULES");
    char *text = printed();
    assert_non_null(strstr(text, "\n✗ cuda      no NVIDIA GPUs: there is no /nowhere/"));
    assert_non_null(strstr(text, "-DSPILLWAY_CUDA=ON makes it (docs/gpu.md)\n"));
    assert_non_null(strstr(text, "\n✗ hip       no AMD GPUs: there is no /nowhere/"));
    int n = 0; /* with AMX another line speaks of a register peak, without a number */
    for (const char *at = text; (at = strstr(at, "register peak ")); at++, n++) {
        char unit[32] = "";
        assert_int_equal(sscanf(at, "register peak %*f GFLOP/s a thread (%31[a-z0-9_])", unit), 1);
        assert_true(*unit);
    }
    assert_int_equal(n, 3);
    sw_free(text);
}

/* SPILLWAY_ISA stands for an older processor, in tests too. */
static void an_older_processor_is_asked_for_by_a_variable(void **state)
{
    (void)state;
    char err[512];
    setenv("SPILLWAY_ISA", "portable", 1);
    assert_int_equal(run("train --model gpt2-tiny --steps 1 --seq-len 8 --output portable --data "
                         "text.txt --no-export",
                         err, sizeof err),
                     0);
    char *text = printed();
    assert_non_null(strstr(text, "\nkernels: cpu portable "));
    sw_free(text);
    setenv("SPILLWAY_ISA", "mmx", 1);
    assert_int_equal(run("plan --model gpt2-tiny", err, sizeof err), 2);
    assert_non_null(strstr(err, "SPILLWAY_ISA: unknown instruction set \"mmx\"; wanted portable"));
    unsetenv("SPILLWAY_ISA");
}

/* The lines of doctor about libraries and modules, which do not depend on the moment. */
static void found_lines(char *out, size_t cap)
{
    char *text = printed();
    out[0] = '\0';
    for (char *at = text, *line; (line = strsep(&at, "\n"));) {
        if (strncmp(line, "✓", strlen("✓")) == 0 || strncmp(line, "✗", strlen("✗")) == 0) {
            const size_t len = strlen(out);
            snprintf(out + len, cap - len, "%s\n", line);
        }
    }
    sw_free(text);
}

/* A program that is found by PATH has no folder in its name. */
static void modules_of_the_current_folder_are_not_looked_at(void **state)
{
    (void)state;
    static const char *const modules[] = {"spillway_cuda.so", "spillway_hip.so",
                                          "spillway_openmpi.so", "spillway_mpich.so",
                                          "spillway_emu32.so"};
    char err[4096], path[1024], by_path[8192], by_name[8192], command[1400];
    snprintf(path, sizeof path, "%s/spillway", test_folder());
    assert_int_equal(mkdir(path, 0777), 0);
    for (size_t i = 0; i < SW_LEN(modules); i++) {
        snprintf(path, sizeof path, "spillway/%s", modules[i]);
        test_put(path, "no library");
    }
    assert_int_equal(run("doctor --threads 1", err, sizeof err), 0);
    found_lines(by_name, sizeof by_name);
    snprintf(command, sizeof command, "--version && PATH=%.*s:$PATH && spillway doctor --threads 1",
             (int)(strrchr(program, '/') - program), program);
    assert_int_equal(run(command, err, sizeof err), 0);
    found_lines(by_path, sizeof by_path);
    assert_non_null(strstr(by_path, "cuda"));
    assert_null(strstr(by_path, test_folder()));
    assert_string_equal(by_path, by_name);
}

/* Under an mpirun that this build has no module for: what to install, and what goes without. */
static void a_missing_module_of_mpi_names_what_helps(void **state)
{
    static const char *const packages[][2] = {{"OMPI_COMM_WORLD_SIZE", "libopenmpi-dev"},
                                              {"MPI_LOCALNRANKS", "libmpich-dev"}};
    (void)state;
    setenv("SPILLWAY_MODULES", "/nowhere", 1);
    for (size_t i = 0; i < SW_LEN(packages); i++) {
        char err[4096];
        setenv(packages[i][0], "2", 1);
        assert_int_equal(run(TRAIN "text.txt", err, sizeof err), 2);
        unsetenv(packages[i][0]);
        if (count_lines(err) != 1 || !strstr(err, packages[i][1]) ||
            !strstr(err, "spillway launch")) {
            fail_msg("%s", err);
        }
    }
    unsetenv("SPILLWAY_MODULES");
}

/* Where there is no GPU, or no code for one, a line says what is missing and how to get it. */
static void a_device_that_is_not_here_is_refused(void **state)
{
    static const char *const asked[][3] = {
        {"--device cuda", "spillway_cuda.so", "-DSPILLWAY_CUDA=ON"},
        {"--device hip:1", "spillway_hip.so", "-DSPILLWAY_HIP=ON"},
        {"--device gpu", "\"gpu\"", "cuda"},
        {"--device cuda --set spillway.kernels=reference", "spillway.kernels", "spillway.device"},
        {"--device cpu --set spillway.device=\"hip\"", "spillway.device", "hip"},
    };
    (void)state;
    setenv("SPILLWAY_MODULES", "/nowhere", 1);
    for (size_t i = 0; i < SW_LEN(asked); i++) {
        char err[4096], words[512];
        snprintf(words, sizeof words, TRAIN "text.txt %s", asked[i][0]);
        assert_int_equal(run(words, err, sizeof err), 2);
        if (count_lines(err) != 1 || !strstr(err, asked[i][1]) || !strstr(err, asked[i][2])) {
            fail_msg("%s: %s", asked[i][0], err);
        }
    }
    unsetenv("SPILLWAY_MODULES");
}

static int set_up(void **state)
{
    (void)state;
    program = test_spillway();
    if (!program) {
        return -1;
    }
    struct sw_str text = {0};
    for (int i = 0; i < 3000; i++) {
        sw_str_printf(&text, "word%d ", i % 13);
    }
    test_put("text.txt", sw_str_text(&text));
    sw_str_fini(&text);
    test_put("empty.txt", "");
    test_put("short.txt", "ab");
    test_put(
        "latin1.txt",
        "caf\xe9 and more text that is long enough for a sequence of sixty-four tokens, at least");
    test_put("bad.jsonl", "{\"text\": \"a\"}\n{\"text\": 5}\n");
    const uint16_t ids[] = {1, 2, 60000, 4};
    put("ids.bin", ids, sizeof ids);
    test_put("unknown.json", "{\"model_type\": \"mamba\"}");
    test_put("bad.json", "{\"model_type\": \"gpt2\", \"n_embd\": 10, \"n_head\": 3}");
    test_put("classifier.json",
             "{\"model_type\": \"gpt2\", \"vocab_size\": 30, \"n_embd\": 4, \"n_layer\": 1, "
             "\"n_head\": 1, "
             "\"architectures\": [\"GPT2ForSequenceClassification\"]}");
    test_put("deep.json", "{\"model_type\": \"gpt2\", \"n_layer\": 100000000}");
    test_put("wide.json", "{\"model_type\": \"gpt2\", \"n_embd\": 4611686018427387904}");
    test_put("sum.json", "{\"model_type\": \"gpt2\", \"n_embd\": 536870911, \"n_head\": 1}");
    test_put("epsilon.json", "{\"model_type\": \"gpt2\", \"layer_norm_epsilon\": -1}");
    test_put("empty.bin", "");
    test_put("cross.json", "{\"model_type\": \"gpt2\", \"add_cross_attention\": true}");
    static const char small[] =
        "{\"model_type\": \"gpt2\", \"vocab_size\": 20, \"n_positions\": 16, "
        "\"n_embd\": 4, \"n_layer\": 1, \"n_head\": 1}";
    test_put("small.json", small);
#define OPTIMIZER "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.001}}"
    test_put("typo.json", "{\"train_batch_size\": 4, \"gradient_cliping\": 1, " OPTIMIZER "}");
    test_put("twice.json", "{\"train_batch_size\": 4, \"train_batch_size\": 8, " OPTIMIZER "}");
    test_put("negative.json",
             "{\"train_batch_size\": 4, \"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": "
             "-1}}}");
    test_put("two.json",
             "{\"train_batch_size\": 4, \"train_micro_batch_size_per_gpu\": 2, " OPTIMIZER "}");
    test_put("nobatch.json", "{" OPTIMIZER "}");
    test_put(
        "offload.json",
        "{\"train_batch_size\": 4, " OPTIMIZER
        ", \"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": \"nvme\", "
        "\"nvme_path\": \"/n\"}}}");
    test_put("nadam.json",
             "{\"train_batch_size\": 4, \"optimizer\": {\"type\": \"NAdam\", \"params\": {\"lr\": "
             "0.001}}}");
    const uint16_t few[] = {1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4};
    put("few.bin", few, sizeof few);
    test_put("ab.txt", "abababababababababababab");
    test_put("seed.json", "{\"train_batch_size\": 4, " OPTIMIZER ", \"spillway\": {\"seed\": 3}}");
    char many[128];
    snprintf(many, sizeof many, "%s/many", test_folder());
    assert_int_equal(mkdir(many, 0755), 0);
    test_put("many/chars.json",
             "[\"a\", \"b\", \"c\", \"d\", \"e\", \"f\", \"g\", \"h\", \"i\", \"j\", \"k\", "
             "\"l\", \"m\", \"n\", \"o\", \"p\", \"q\", \"r\", \"s\", \"t\", \"u\"]");
    snprintf(many, sizeof many, "%s/letters", test_folder());
    assert_int_equal(mkdir(many, 0755), 0);
    test_put("letters/chars.json", "[\"a\", \"b\"]");
    snprintf(many, sizeof many, "%s/letters2", test_folder());
    assert_int_equal(mkdir(many, 0755), 0);
    test_put("letters2/chars.json", "[\"a\", \"b\", \"c\"]");
    test_put("array.json", "[{\"text\": \"one\"}, {\"text\": \"two\"}]");
    test_put("array.txt", " [\n{\"text\": \"one\"}, {\"text\": \"two\"}]\n");
    test_put("lines.txt", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
    test_put("lines.jsonl", "{\"text\": \"one\"}\n{\"text\": \"two\"}\n");
    test_put("bracket.txt", "[Illustration]\n{He said:} \"it is a text all the same\"");
    test_put("table.csv", "name,text\n1,one and two and three\n2,two and three and four\n");
    test_put("TABLE.TSV", "name\ttext\n1\tone\n2\ttwo\n");
    test_put("text.gz", "\x1f\x8b text");
    static const char *const folders[] = {"truncated", "overlapping", "integers", "shapes",
                                          "incomplete"};
    for (size_t i = 0; i < SW_LEN(folders); i++) {
        char name[128];
        snprintf(name, sizeof name, "%s/%s", test_folder(), folders[i]);
        assert_int_equal(mkdir(name, 0755), 0);
        snprintf(name, sizeof name, "%s/config.json", folders[i]);
        test_put(name, small);
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

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_is_refused_by_name),
    cmocka_unit_test(an_export_has_its_tokenizer),
    cmocka_unit_test(an_export_does_not_tell_the_ranks),
    cmocka_unit_test(the_first_lines_say_where_things_come_from),
    cmocka_unit_test(a_run_is_no_model),
    cmocka_unit_test(a_plan_says_the_bytes_that_train_holds),
    cmocka_unit_test(plans_are_compared_as_files_are),
    cmocka_unit_test(an_export_is_the_model_of_its_run),
    cmocka_unit_test(the_best_checkpoint_is_exported),
    cmocka_unit_test(as_text_takes_files_as_they_are),
    cmocka_unit_test(under_mpirun_the_bar_is_off_and_a_line_fits),
    cmocka_unit_test(doctor_names_the_unit_of_each_peak_and_what_gpus_lack),
    cmocka_unit_test(an_older_processor_is_asked_for_by_a_variable),
    cmocka_unit_test(modules_of_the_current_folder_are_not_looked_at),
    cmocka_unit_test(a_missing_module_of_mpi_names_what_helps),
    cmocka_unit_test(a_device_that_is_not_here_is_refused),
    cmocka_unit_test(lines_end_where_their_text_ends)};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up};
