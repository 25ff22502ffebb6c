// SPDX-License-Identifier: Apache-2.0
// The flags of a training, shared by the commands that take them.
#include "cli/train_flags.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spillway/tensor.h"

/* Quotes a path as a JSON string, so that a name that looks like a number stays a name. */
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

/* Parses "2:4", or "3" for one step. */
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

void cli_train_init(struct train_flags *flags)
{
    *flags = (struct train_flags){
        .o = {.export_dtype = -1, .steps = -1},
        .label_smoothing = -1,
        .epochs = -1,
        .seed = -1,
        .threads = -1,
        .log_every = -1,
    };
}

int cli_train_table(struct train_flags *flags, struct flag *out)
{
    struct sw_train_options *o = &flags->o;
    const struct flag table[] = {
        CLI_HEADING("Model, data and task"),
        {"--model", FLAG_TEXT, &o->model, "DIR|FILE|PRESET",
         "Hugging Face folder, config.json, ONNX file, or a preset (\"spillway models\")", 0},
        {"--data", FLAG_LIST, &flags->data, "FILE",
         "training data: text, JSONL (text or chats) or .bin token shards, or globs of them; "
         "docs/tasks.md has the files of other tasks",
         true},
        {"--data-weights", FLAG_LIST, &flags->data_weights, "W",
         "share of the samples for each of --data, of any sum (default: each sample once an "
         "epoch)",
         true},
        {"--group-by-length", FLAG_BOOL, &o->group_by_length, NULL,
         "put rows of similar lengths into a step", 0},
        {"--val-data", FLAG_LIST, &flags->val_data, "FILE",
         "validation data (default: the last tenth of --data)", true},
        CLI_TASK_FLAGS(flags->task),
        {"--metric", FLAG_TEXT, &flags->task.o.metric, "NAME",
         "metric that selects the best checkpoint (default: validation loss)", 0},
        {"--label-smoothing", FLAG_REAL, &flags->label_smoothing, "E",
         "label smoothing for cross-entropy losses (default: 0)", 0},
        {"--adapter", FLAG_TEXT, &o->adapter, "DIR",
         "LoRA: continue training the adapters of this PEFT folder; --set "
         "spillway.lora.target_modules=all-linear begins new ones",
         0},
        {"--quantize", FLAG_TEXT, &flags->quantize, "none|nf4|int8",
         "QLoRA: keep the frozen linear layers under adapters in 4 or 8 bits (default: none)", 0},
        {"--as-text", FLAG_BOOL, &o->as_text, NULL,
         "read every data file as plain text, whatever its name and content", 0},
        {"--tokenizer", FLAG_TEXT, &o->tokenizer, "DIR",
         "folder of tokenizer files (default: the adapter's, else the model's, else one token "
         "per character of the text)",
         0},
        CLI_NO_BOS_FLAG(o->no_bos),
        {"--chat-template", FLAG_TEXT, &o->chat_template, "FILE",
         "template of conversations (default: chat_template.jinja or tokenizer_config.json "
         "beside the tokenizer; if there is none, prompts and completions as they are)",
         0},
        {"--chat-date", FLAG_TEXT, &o->chat_date, "DAY",
         "date that chat templates are given, YYYY-MM-DD (default: the day the run began)", 0},
        {"--loss-on", FLAG_TEXT, &o->loss_on, "answers|last|all",
         "part of a conversation that the loss counts (default: answers)", 0},
        CLI_HEADING("Configuration and optimization"),
        {"--deepspeed", FLAG_TEXT, &o->config_path, "FILE", "configuration file, ds_config.json",
         0},
        {"--set", FLAG_LIST, &flags->sets, "KEY=VALUE", "edit the configuration; may be repeated",
         0},
        CLI_AUTO_FLAGS(flags->auto_),
        {"--steps", FLAG_INT, &o->steps, "N", "optimizer steps in total", 0},
        {"--epochs", FLAG_REAL, &flags->epochs, "N",
         "passes over the training samples, instead of --steps; rounded up to whole steps", 0},
        {"--seq-len", FLAG_INT, &o->seq_len, "T",
         "tokens per sample (default: the model's context, at most 1024)", 0},
        {"--seed", FLAG_INT, &flags->seed, "S",
         "seed of weights, data order and dropout (default: 42)", 0},
        CLI_HEADING("Output and resuming"),
        {"--output", FLAG_TEXT, &o->output, "DIR",
         "folder for checkpoints, metrics.jsonl and the model", 0},
        {"--resume", FLAG_BOOL, &o->resume, NULL, "continue from the newest checkpoint of --output",
         0},
        {"--resume-if-any", FLAG_BOOL, &o->resume_if_any, NULL,
         "continue from the newest checkpoint of --output, or begin if there is none", 0},
        {"--resume-from", FLAG_TEXT, &o->resume_from, "DIR",
         "continue from this checkpoint, of this run or of another", 0},
        {"--allow-other-data", FLAG_BOOL, &o->allow_other_data, NULL,
         "resume even if the data differs from what the checkpoint was trained on", 0},
        {"--no-verify", FLAG_BOOL, &o->no_verify, NULL,
         "resume without comparing the digests of the checkpoint's files", 0},
        CLI_HEADING("Devices, memory and ranks"),
        {"--threads", FLAG_INT, &flags->threads, "N",
         "CPU threads of a rank (default: its share of the host)", 0},
        CLI_DEVICE_FLAG(flags->device),
        {"--device-memory", FLAG_TEXT, &flags->device_memory, "BYTES",
         "budget of device memory: bytes, or 300M, 2G, 1T (powers of 1024)", 0},
        {"--host-memory", FLAG_TEXT, &flags->host_memory, "BYTES",
         "budget of host memory: bytes, or 300M, 2G, 1T", 0},
        {"--nvme-space", FLAG_TEXT, &flags->nvme_space, "BYTES",
         "budget of disk space: bytes, or 300M, 2G, 1T", 0},
        {"--rates", FLAG_LIST, &flags->rates, "NAME=N",
         "rates assumed for \"auto\" in the configuration, instead of built-in ones: f32, bf16, "
         "f16 (GFLOP/s), copy, memory, disk_read, disk_write, host (GB/s), comm, or node and net "
         "(GB/s between ranks of one host, of several), comm_latency (microseconds), node_ranks "
         "(ranks of a host)",
         true},
        {"--ranks", FLAG_INT, &o->ranks, "R",
         "ranks, as threads of this process; data-parallel unless spillway.mesh says otherwise "
         "(default: 1)",
         0},
        {"--deadline", FLAG_REAL, &o->deadline_s, "S",
         "seconds that a rank waits for the others before it reports the missing ones (default: "
         "300)",
         0},
        CLI_HEADING("Validation and samples"),
        {"--eval-every", FLAG_INT, &o->eval_every, "N",
         "steps between validations (default: never)", 0},
        {"--eval-batches", FLAG_INT, &o->eval_batches, "N",
         "maximum number of batches per validation (default: 16 for language models, else all)", 0},
        {"--early-stopping", FLAG_INT, &o->early_stopping, "N",
         "end after N validations in a row without a better --metric or loss (default: never)", 0},
        {"--sample-every", FLAG_INT, &o->sample_every, "N",
         "steps between samples of text (default: never)", 0},
        {"--sample-tokens", FLAG_INT, &o->sample_tokens, "N",
         "tokens per sample of text (default: 200)", 0},
        {"--sample-prompt", FLAG_TEXT, &o->sample_prompt, "TEXT",
         "text that every sample begins with, or that an encoder-decoder reads", 0},
        CLI_HEADING("Checkpoints and export"),
        {"--save-every", FLAG_INT, &o->save_every, "N",
         "steps between checkpoints (default: one at the end)", 0},
        {"--keep-last", FLAG_INT, &o->keep_last, "K",
         "number of checkpoints kept, besides the best (default: all)", 0},
        {"--export-dtype", FLAG_TEXT, &flags->dtype, "f32|bf16|f16",
         "dtype of OUTPUT/model (default: the model's)", 0},
        {"--export", FLAG_TEXT, &flags->export, "best|last",
         "checkpoint that becomes OUTPUT/model: the best by --metric or validation loss, or the "
         "last (default: last)",
         0},
        {"--no-export", FLAG_BOOL, &o->no_export, NULL, "do not write OUTPUT/model", 0},
        CLI_HEADING("Measuring"),
        {"--profile", FLAG_BOOL, &o->profile, NULL, "print a table of time by operation at the end",
         0},
        {"--trace", FLAG_TEXT, &flags->trace, "FILE",
         "timeline of some steps and all ranks, for ui.perfetto.dev", 0},
        {"--trace-steps", FLAG_TEXT, &flags->trace_steps, "A:B",
         "steps of the trace (default: three, from the second of the run)", 0},
        CLI_HEADING("Progress"),
        {"--metrics-file", FLAG_TEXT, &o->metrics_file, "FILE",
         "text file for Prometheus with the numbers of the last step, replaced at every step", 0},
        {"--log-every", FLAG_INT, &flags->log_every, "N",
         "steps between lines, unless there is a live line (default: steps_per_print, else 1)", 0},
        {"--bar", FLAG_BOOL, &o->bar, NULL,
         "show a live line with a bar, as on a terminal, also under mpirun", 0},
        {"--quiet", FLAG_BOOL, &o->quiet, NULL, "do not print a line per step", 0},
    };
    const int n = (int)(sizeof table / sizeof table[0]);
    _Static_assert(sizeof table / sizeof table[0] <= CLI_TRAIN_FLAGS, "CLI_TRAIN_FLAGS");
    memcpy(out, table, sizeof table);
    return n;
}

/* ---- after parsing ---- */

static int resolve_export(const struct command *command, struct train_flags *f)
{
    static const struct {
        const char *name;
        int dtype;
    } dtypes[] = {{"f32", SW_F32}, {"bf16", SW_BF16}, {"f16", SW_F16}};
    for (size_t i = 0; f->dtype && i < sizeof dtypes / sizeof dtypes[0]; i++) {
        if (strcmp(f->dtype, dtypes[i].name) == 0) {
            f->o.export_dtype = dtypes[i].dtype;
        }
    }
    if (f->dtype && f->o.export_dtype < 0) {
        return cli_fail(command, CLI_REFUSED, "--export-dtype: wanted f32, bf16 or f16, got \"%s\"",
                        f->dtype);
    }
    f->o.export_best = f->export && strcmp(f->export, "best") == 0;
    if (f->export && !f->o.export_best && strcmp(f->export, "last") != 0) {
        return cli_fail(command, CLI_REFUSED, "--export: wanted best or last, got \"%s\"",
                        f->export);
    }
    return -1;
}

/* Turns flags that stand for configuration keys into edits, which must not contradict the
 * configuration. */
static bool add_edits(struct train_flags *f, long long first, long long last)
{
    char text[6][32], quoted[2 * CLI_PATH_CAP + 3], device[CLI_DEVICE_CAP];
    snprintf(text[0], sizeof text[0], "%lld", (long long)f->seed);
    snprintf(text[1], sizeof text[1], "%lld", (long long)f->threads);
    snprintf(text[2], sizeof text[2], "%lld", first);
    snprintf(text[3], sizeof text[3], "%lld", last);
    snprintf(text[4], sizeof text[4], "%.17g", f->label_smoothing);
    snprintf(text[5], sizeof text[5], "%lld", (long long)f->log_every);
    if (f->trace) {
        quote(f->trace, quoted);
    }
    const struct {
        const char *key, *value;
    } edits[] = {
        {"spillway.seed?", f->seed >= 0 ? text[0] : NULL},
        {"spillway.threads?", f->threads >= 0 ? text[1] : NULL},
        {"steps_per_print?", f->log_every >= 0 ? text[5] : NULL},
        {"spillway.device?", cli_device_value(f->device, device)},
        {"spillway.device_memory?", f->device_memory},
        {"spillway.host_memory?", f->host_memory},
        {"spillway.nvme_space?", f->nvme_space},
        {"spillway.label_smoothing?", f->label_smoothing >= 0 ? text[4] : NULL},
        {"spillway.quantize?", f->quantize},
        {"spillway.trace?", f->trace ? quoted : NULL},
        {"spillway.trace_first?", first > 0 ? text[2] : NULL},
        {"spillway.trace_last?", first > 0 ? text[3] : NULL},
    };
    bool good = true;
    for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++) {
        good = good && (!edits[i].value ||
                        cli_add_set(&f->sets, &f->owned[i], edits[i].key, edits[i].value));
    }
    return good;
}

/* Parses the numbers of --data-weights, one for each of --data. */
static int resolve_weights(const struct command *command, struct train_flags *f)
{
    const int n = f->data_weights.n;
    if (n == 0) {
        return -1;
    }
    if (n != f->data.n) {
        return cli_fail(command, CLI_REFUSED, "--data-weights: %d numbers for %d of --data", n,
                        f->data.n);
    }
    f->weights = malloc((size_t)n * sizeof *f->weights);
    if (!f->weights) {
        return cli_fail(command, CLI_FAILED, "out of memory");
    }
    for (int i = 0; i < n; i++) {
        char *end;
        f->weights[i] = strtod(f->data_weights.items[i], &end);
        if (*end || end == f->data_weights.items[i] || !(f->weights[i] > 0)) {
            return cli_fail(command, CLI_REFUSED,
                            "--data-weights: wanted numbers above 0, got \"%s\"",
                            f->data_weights.items[i]);
        }
    }
    f->o.data_weights = f->weights;
    return -1;
}

int cli_train_resolve(const struct command *command, struct train_flags *f)
{
    long long first = 0, last = 0;
    int status = resolve_export(command, f);
    status = status < 0 ? resolve_weights(command, f) : status;
    if (status >= 0) {
        return status;
    }
    if (f->trace_steps && !steps_of(f->trace_steps, &first, &last)) {
        return cli_fail(command, CLI_REFUSED,
                        "--trace-steps: wanted A:B with 1 <= A <= B, or one step, got \"%s\"",
                        f->trace_steps);
    }
    if (f->epochs == 0) {
        return cli_fail(command, CLI_REFUSED, "--epochs: wanted a number above 0, got 0");
    }
    f->o.epochs = f->epochs > 0 ? f->epochs : 0;
    if (f->trace_steps && !f->trace) {
        return cli_fail(command, CLI_REFUSED, "--trace-steps needs --trace FILE");
    }
    if (f->trace && (!*f->trace || strlen(f->trace) > CLI_PATH_CAP)) {
        return cli_fail(command, CLI_REFUSED,
                        "--trace: wanted a file name of 1 to %d characters, got %zu", CLI_PATH_CAP,
                        strlen(f->trace));
    }
    const int wrong = cli_check_auto(command, &f->auto_);
    if (wrong >= 0) {
        return wrong;
    }
    if (!add_edits(f, first, last)) {
        return cli_fail(command, CLI_FAILED, "out of memory");
    }
    if (!cli_add_auto(&f->sets, &f->auto_, f->o.config_path != NULL, f->o.steps)) {
        return cli_fail(command, CLI_FAILED, "out of memory");
    }
    cli_task_resolve(&f->task);
    f->o.task = f->task.o;
    f->o.data = f->data.items;
    f->o.n_data = f->data.n;
    f->o.val_data = f->val_data.items;
    f->o.n_val_data = f->val_data.n;
    f->o.rates = f->rates.items;
    f->o.n_rates = f->rates.n;
    f->o.sets = f->sets.items;
    f->o.n_sets = f->sets.n;
    return -1;
}

void cli_train_fini(struct train_flags *f)
{
    cli_task_fini(&f->task);
    cli_auto_fini(&f->auto_);
    cli_free_words(&f->data);
    cli_free_words(&f->val_data);
    cli_free_words(&f->data_weights);
    free(f->weights);
    cli_free_words(&f->sets);
    cli_free_words(&f->rates);
    for (size_t i = 0; i < sizeof f->owned / sizeof f->owned[0]; i++) {
        free(f->owned[i]);
    }
}
