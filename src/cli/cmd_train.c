// SPDX-License-Identifier: Apache-2.0
// spillway train - flags to a training job; SIGINT once asks for a checkpoint and a stop.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "spillway/train.h"

static volatile sig_atomic_t stop_asked; /* a signal handler can reach nothing else */

static void on_signal(int signal_number)
{
    if (stop_asked) { /* the second one ends the program at once */
        signal(signal_number, SIG_DFL);
        raise(signal_number);
    }
    stop_asked = signal_number;
}

enum { PATH_CAP = 4096 };

/* As a JSON string: what looks like a number is a name, too. */
static void quote(const char *path, char *out)
{
    *out++ = '"';
    for (; *path; path++) {
        if (*path == '"' || *path == '\\') {
            *out++ = '\\';
        }
        *out++ = *path;
    }
    *out++ = '"';
    *out = '\0';
}

/* "2:4", or "3" for one step. */
static bool steps_of(const char *text, long long *first, long long *last)
{
    int end = 0;
    if (sscanf(text, "%18lld%n", first, &end) != 1) {
        return false;
    }
    *last = *first;
    if (text[end] == ':') {
        const char *more = text + end + 1;
        if (sscanf(more, "%18lld%n", last, &end) != 1) {
            return false;
        }
        text = more;
    }
    return text[end] == '\0' && *first >= 1 && *last >= *first;
}

static const char *const dtype_names[] = {"f32", "bf16", "f16"};
/* enum sw_dtype of each name */
static const int dtypes[] = {0, 2, 3};

int sw_cmd_train(int argc, char **argv)
{
    struct sw_train_options o = {.export_dtype = -1};
    struct words data = {0}, val_data = {0}, sets = {0};
    const char *dtype = NULL, *device_memory = NULL, *host_memory = NULL, *nvme_space = NULL;
    const char *trace = NULL, *trace_steps = NULL;
    int64_t seed = -1, threads = -1;
    const struct flag flags[] = {
        {"--model", FLAG_TEXT, &o.model, "DIR|FILE|PRESET",
         "Hugging Face folder, config.json, or gpt2-tiny, gpt2, gpt2-medium, gpt2-large, gpt2-xl",
         0},
        {"--data", FLAG_LIST, &data, "FILE", "text, JSONL or .bin token shards; globs are fine",
         true},
        {"--val-data", FLAG_LIST, &val_data, "FILE",
         "for validation; else the last tenth of the data", true},
        {"--tokenizer", FLAG_TEXT, &o.tokenizer, "DIR",
         "tokenizer files; default: the model folder's, else the characters of the text", 0},
        {"--deepspeed", FLAG_TEXT, &o.config_path, "FILE", "ds_config.json", 0},
        {"--set", FLAG_LIST, &sets, "KEY=VALUE", "edit of the configuration", 0},
        {"--steps", FLAG_INT, &o.steps, "N", "optimizer steps in all", 0},
        {"--seq-len", FLAG_INT, &o.seq_len, "T", "tokens of a sample (the model's context)", 0},
        {"--output", FLAG_TEXT, &o.output, "DIR", "checkpoints, metrics.jsonl, model", 0},
        {"--resume", FLAG_BOOL, &o.resume, NULL, "go on from the newest checkpoint of --output", 0},
        {"--seed", FLAG_INT, &seed, "S", "of weights, data order and dropout (42)", 0},
        {"--threads", FLAG_INT, &threads, "N", "threads of the CPU (all)", 0},
        {"--device-memory", FLAG_TEXT, &device_memory, "BYTES", "budget, for example 512MiB", 0},
        {"--host-memory", FLAG_TEXT, &host_memory, "BYTES", "budget", 0},
        {"--nvme-space", FLAG_TEXT, &nvme_space, "BYTES", "budget", 0},
        {"--eval-every", FLAG_INT, &o.eval_every, "N", "steps between validations (never)", 0},
        {"--eval-batches", FLAG_INT, &o.eval_batches, "N", "batches of one validation (16)", 0},
        {"--sample-every", FLAG_INT, &o.sample_every, "N", "steps between samples of text (never)",
         0},
        {"--sample-tokens", FLAG_INT, &o.sample_tokens, "N", "length of a sample (200)", 0},
        {"--sample-prompt", FLAG_TEXT, &o.sample_prompt, "TEXT", "begins every sample", 0},
        {"--save-every", FLAG_INT, &o.save_every, "N", "steps between checkpoints (at the end)", 0},
        {"--keep-last", FLAG_INT, &o.keep_last, "K", "checkpoints kept, besides the best (all)", 0},
        {"--export-dtype", FLAG_TEXT, &dtype, "f32|bf16|f16", "of OUTPUT/model (as it came)", 0},
        {"--no-export", FLAG_BOOL, &o.no_export, NULL, "leave out OUTPUT/model", 0},
        {"--profile", FLAG_BOOL, &o.profile, NULL, "a table of time by operation at the end", 0},
        {"--trace", FLAG_TEXT, &trace, "FILE",
         "what ran when, of some steps and all ranks, for ui.perfetto.dev", 0},
        {"--trace-steps", FLAG_TEXT, &trace_steps, "A:B",
         "steps of the trace (from the second of the run, three)", 0},
        {"--ranks", FLAG_INT, &o.ranks, "R", "data-parallel ranks, as threads of this process (1)",
         0},
        {"--deadline", FLAG_REAL, &o.deadline_s, "S",
         "seconds a rank waits for the others before it names them (300)", 0},
        {"--quiet", FLAG_BOOL, &o.quiet, NULL, "no line a step", 0},
    };
    const struct command command = {
        "train", "--model M --data FILE.. --output DIR --steps N [..]",
        "Trains or fine-tunes a model and leaves a Hugging Face folder in DIR/model.", flags,
        (int)(sizeof flags / sizeof flags[0])};
    char *owned[8] = {0};
    char text[32], quoted[2 * PATH_CAP + 3];
    long long first = 0, last = 0;
    int status = cli_parse(&command, argc, argv, NULL);
    if (status < 0 && dtype) {
        for (int i = 0; i < 3; i++) {
            o.export_dtype = strcmp(dtype, dtype_names[i]) == 0 ? dtypes[i] : o.export_dtype;
        }
        if (o.export_dtype < 0) {
            status = cli_fail(&command, CLI_REFUSED,
                              "--export-dtype: wanted f32, bf16 or f16, got %s", dtype);
        }
    }
    if (status < 0 && trace_steps && !steps_of(trace_steps, &first, &last)) {
        status = cli_fail(&command, CLI_REFUSED,
                          "--trace-steps: wanted A:B with 1 <= A <= B, or one step, got \"%s\"",
                          trace_steps);
    }
    if (status < 0 && trace_steps && !trace) {
        status = cli_fail(&command, CLI_REFUSED, "--trace-steps wants --trace, the file");
    }
    if (status < 0 && trace && (!*trace || strlen(trace) > PATH_CAP)) {
        status = cli_fail(&command, CLI_REFUSED, "--trace: that is no name of a file");
    }
    /* Flags that stand for keys of the configuration travel as edits, and must not contradict it. */
    bool good = true;
    if (seed >= 0) {
        snprintf(text, sizeof text, "%lld", (long long)seed);
        good = cli_add_set(&sets, &owned[0], "spillway.seed?", text);
    }
    if (threads >= 0) {
        snprintf(text, sizeof text, "%lld", (long long)threads);
        good = good && cli_add_set(&sets, &owned[1], "spillway.threads?", text);
    }
    good = good && (!device_memory ||
                    cli_add_set(&sets, &owned[2], "spillway.device_memory?", device_memory));
    good = good &&
           (!host_memory || cli_add_set(&sets, &owned[3], "spillway.host_memory?", host_memory));
    good =
        good && (!nvme_space || cli_add_set(&sets, &owned[7], "spillway.nvme_space?", nvme_space));
    if (trace && status < 0) {
        quote(trace, quoted);
        good = good && cli_add_set(&sets, &owned[4], "spillway.trace?", quoted);
    }
    if (first > 0) {
        snprintf(text, sizeof text, "%lld", first);
        good = good && cli_add_set(&sets, &owned[5], "spillway.trace_first?", text);
        snprintf(text, sizeof text, "%lld", last);
        good = good && cli_add_set(&sets, &owned[6], "spillway.trace_last?", text);
    }
    if (status < 0 && !good) {
        status = cli_fail(&command, CLI_FAILED, "out of memory");
    }
    if (status < 0) {
        struct sw_train_result result;
        bool started = false;
        o.data = data.items;
        o.n_data = data.n;
        o.val_data = val_data.items;
        o.n_val_data = val_data.n;
        o.sets = sets.items;
        o.n_sets = sets.n;
        o.stop = &stop_asked;
        signal(SIGINT, on_signal);
        signal(SIGTERM, on_signal);
        const sw_status st = sw_train(&o, stdout, &started, &result);
        if (st == SW_E_STOP && !started) { /* as a shell has it of a program that a signal ends */
            status = cli_error(&command, 128 + (int)stop_asked);
        } else {
            status = st >= 0 ? CLI_DONE : cli_error(&command, started ? CLI_FAILED : CLI_REFUSED);
        }
    }
    cli_free_words(&data);
    cli_free_words(&val_data);
    cli_free_words(&sets);
    for (size_t i = 0; i < sizeof owned / sizeof owned[0]; i++) {
        free(owned[i]);
    }
    return status;
}
