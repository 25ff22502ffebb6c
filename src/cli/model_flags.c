// SPDX-License-Identifier: Apache-2.0
// Opening what a command names.
#include "cli/model_flags.h"

const char *cli_tokenizer_folder(const char *tokenizer, const char *adapter, const char *model)
{
    const char *beside = adapter && sw_tokenizer_is_there(adapter) ? adapter : model;
    return tokenizer ? tokenizer : beside;
}

sw_status cli_open_tokenizer(const char *folder, const char *model, sw_tokenizer **out)
{
    const sw_status st = sw_model_check_path(model);
    return st < 0 ? st : sw_tokenizer_open(folder, NULL, out);
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
