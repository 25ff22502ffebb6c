// SPDX-License-Identifier: Apache-2.0
// Flags and helpers for opening a model.
#include "cli/model_flags.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spillway/status.h"

void cli_close_world(sw_comm *comm, sw_status st)
{
    if (st < 0 && comm) {
        sw_comm_abort(comm, st);
    }
    sw_comm_close(comm, st < 0);
}

bool cli_leads(const sw_comm *comm)
{
    return !comm || sw_comm_rank(comm) == 0;
}

const char *cli_tokenizer_folder(const char *tokenizer, const char *adapter, const char *model)
{
    const char *beside = adapter && sw_tokenizer_is_there(adapter) ? adapter : model;
    return tokenizer ? tokenizer : beside;
}

sw_status cli_open_tokenizer(const char *folder, const char *model, bool no_bos, sw_tokenizer **out)
{
    const struct sw_tokenizer_options options = {.no_bos = no_bos};
    const sw_status st = sw_model_check_path(model);
    return st < 0 ? st : sw_tokenizer_open(folder, &options, out);
}

void cli_print_number(double value, bool json)
{
    if (json && !isfinite(value)) {
        fputs("null", stdout);
    } else {
        printf("%.9g", isnan(value) ? fabs(value) : value);
    }
}

int cli_chat_options(const struct command *command, const struct chat_flags *flags,
                     struct sw_chat_options *out)
{
    if (sw_chat_options_read(flags->template, flags->date, flags->loss_on, out) < 0) {
        return cli_error(command, CLI_REFUSED);
    }
    return -1;
}

void cli_task_resolve(struct task_flags *flags)
{
    flags->o.labels = flags->labels.items;
    flags->o.n_labels = flags->labels.n;
    flags->o.text_columns = flags->text_columns.items;
    flags->o.n_text_columns = flags->text_columns.n;
}

void cli_task_fini(struct task_flags *flags)
{
    cli_free_words(&flags->labels);
    cli_free_words(&flags->text_columns);
}

/* ---- "auto" ---- */

static const struct {
    const char *flag, *key;
} autos[N_AUTO_FLAGS] = {
    [AUTO_LR] = {"--lr", "optimizer.params.lr"},
    [AUTO_BATCH_SIZE] = {"--batch-size", "train_micro_batch_size_per_gpu"},
    [AUTO_ACCUMULATE] = {"--accumulate", "gradient_accumulation_steps"},
    [AUTO_LR_SCHEDULER] = {"--lr-scheduler", "scheduler.type"},
    [AUTO_WARMUP_STEPS] = {"--warmup-steps", "scheduler.params.warmup_num_steps"},
    [AUTO_WEIGHT_DECAY] = {"--weight-decay", "optimizer.params.weight_decay"},
    [AUTO_CLIP] = {"--clip", "gradient_clipping"},
    [AUTO_ADAM_BETA1] = {"--adam-beta1", "optimizer.params.betas"},
    [AUTO_ADAM_BETA2] = {"--adam-beta2", "optimizer.params.betas"},
    [AUTO_ADAM_EPS] = {"--adam-eps", "optimizer.params.eps"},
    [AUTO_BF16] = {"--bf16", "bf16.enabled"},
    [AUTO_FP16] = {"--fp16", "fp16.enabled"},
};

/* The supported schedules of transformers' Trainer. decays: falls until the last step. */
static const struct {
    const char *name;
    bool decays;
} schedules[] = {{"linear", true},
                 {"cosine", true},
                 {"constant", false},
                 {"constant_with_warmup", false},
                 {"inverse_sqrt", false}};
enum { N_SCHEDULES = sizeof schedules / sizeof schedules[0] };

/* Returns N_SCHEDULES if there is no such schedule. */
static int find_schedule(const char *name)
{
    int i = 0;
    while (i < N_SCHEDULES && strcmp(name, schedules[i].name) != 0) {
        i++;
    }
    return i;
}

int cli_check_auto(const struct command *command, const struct auto_flags *flags)
{
    const char *name = flags->text[AUTO_LR_SCHEDULER], *names[N_SCHEDULES];
    if (!name) {
        return -1;
    }
    for (int i = 0; i < N_SCHEDULES; i++) {
        names[i] = schedules[i].name;
    }
    if (find_schedule(name) == N_SCHEDULES) {
        const char *nearest = sw_nearest(name, names, N_SCHEDULES);
        return cli_fail(command, CLI_REFUSED,
                        "--lr-scheduler: wanted linear, cosine, constant, constant_with_warmup or "
                        "inverse_sqrt, got \"%s\"%s%s",
                        name, nearest ? "; the nearest is " : "", nearest ? nearest : "");
    }
    if (strcmp(name, "constant") == 0 && flags->text[AUTO_WARMUP_STEPS]) {
        return cli_fail(command, CLI_REFUSED,
                        "--lr-scheduler constant has no warm-up: wanted constant_with_warmup, or "
                        "no --warmup-steps");
    }
    return -1;
}

/* Adds the edits of a schedule. A warm-up alone does not override the file's schedule. */
static bool add_schedule(struct words *sets, const struct auto_flags *flags, char ***owned)
{
    const char *name = flags->text[AUTO_LR_SCHEDULER];
    if (!name) {
        return !flags->text[AUTO_WARMUP_STEPS] ||
               cli_add_set(sets, (*owned)++, "scheduler.type:", "constant_with_warmup");
    }
    return cli_add_set(sets, (*owned)++, "scheduler.type?", name) &&
           (!schedules[find_schedule(name)].decays ||
            cli_add_set(sets, (*owned)++, "scheduler.params.total_num_steps:", "auto"));
}

/* Without a file, the flags' keys are "auto" instead of the values of the built-in configuration.
 * The user's edits come after these and replace them. One beta leaves the other one as built in. */
static bool open_built_in(struct words *sets, const struct auto_flags *flags, char ***owned)
{
    bool good = true;
    for (int i = 0; i < N_AUTO_FLAGS; i++) {
        if (flags->text[i] && i != AUTO_LR_SCHEDULER) {
            good = good && cli_add_set(sets, (*owned)++, autos[i].key, "auto");
            cli_move_first(sets);
        }
    }
    const bool has_beta1 = flags->text[AUTO_ADAM_BETA1], has_beta2 = flags->text[AUTO_ADAM_BETA2];
    if (good && has_beta1 != has_beta2) {
        good = has_beta1 ? cli_add_set(sets, (*owned)++, autos[AUTO_ADAM_BETA2].flag, "0.99")
                         : cli_add_set(sets, (*owned)++, autos[AUTO_ADAM_BETA1].flag, "0.9");
    }
    return good;
}

bool cli_add_auto(struct words *sets, struct auto_flags *flags, bool has_file, int64_t steps)
{
    char text[32];
    char **owned = flags->owned;
    bool good = add_schedule(sets, flags, &owned);
    good = good && (has_file || open_built_in(sets, flags, &owned));
    for (int i = 0; i < N_AUTO_FLAGS; i++) {
        if (!flags->text[i] || i == AUTO_LR_SCHEDULER) {
            continue;
        }
        good = good && cli_add_set(sets, owned++, autos[i].flag, flags->text[i]);
    }
    if (steps > 0) {
        snprintf(text, sizeof text, "%lld", (long long)steps);
        good = good && cli_add_set(sets, owned++, "--steps", text);
    }
    return good;
}

void cli_auto_fini(struct auto_flags *flags)
{
    for (size_t i = 0; i < sizeof flags->owned / sizeof flags->owned[0]; i++) {
        free(flags->owned[i]);
    }
}
