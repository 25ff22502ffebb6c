// SPDX-License-Identifier: Apache-2.0
// Opening what a command names.
#include "cli/model_flags.h"

#include <stdio.h>
#include <stdlib.h>

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
    [AUTO_WARMUP_STEPS] = {"--warmup-steps", "scheduler.params.warmup_num_steps"},
    [AUTO_WEIGHT_DECAY] = {"--weight-decay", "optimizer.params.weight_decay"},
    [AUTO_CLIP] = {"--clip", "gradient_clipping"},
    [AUTO_ADAM_BETA1] = {"--adam-beta1", "optimizer.params.betas"},
    [AUTO_ADAM_BETA2] = {"--adam-beta2", "optimizer.params.betas"},
    [AUTO_ADAM_EPS] = {"--adam-eps", "optimizer.params.eps"},
    [AUTO_BF16] = {"--bf16", "bf16.enabled"},
    [AUTO_FP16] = {"--fp16", "fp16.enabled"},
};

bool cli_add_auto(struct words *sets, struct auto_flags *flags, bool has_file, int64_t steps)
{
    char text[32];
    char **owned = flags->owned;
    bool good = true;
    if (!has_file && flags->text[AUTO_WARMUP_STEPS]) {
        good = cli_add_set(sets, owned++, "scheduler.type:", "WarmupLR");
    }
    for (int i = 0; i < N_AUTO_FLAGS; i++) {
        if (!flags->text[i]) {
            continue;
        }
        good = good && (has_file || cli_add_set(sets, owned++, autos[i].key, "auto"));
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
