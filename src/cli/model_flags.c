// SPDX-License-Identifier: Apache-2.0
// Opening what a command names.
#include "cli/model_flags.h"

#include <string.h>
#include <time.h>

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
    enum { DAY_SECONDS = 86400 };
    const int64_t now = (int64_t)time(NULL);
    *out = (struct sw_chat_options){.template_path = flags->template,
                                    .date = now - now % DAY_SECONDS,
                                    .asked_for =
                                        flags->date || flags->loss_on ||
                                        (flags->template && strcmp(flags->template, "none") != 0)};
    if (flags->date && !sw_day_of_text(flags->date, &out->date)) {
        return cli_fail(command, CLI_REFUSED,
                        "--chat-date: wanted a day such as 2026-11-22, got \"%s\"", flags->date);
    }
    if (flags->loss_on && !sw_loss_on_by_name(flags->loss_on, &out->loss_on)) {
        return cli_fail(command, CLI_REFUSED, "--loss-on: wanted answers, last or all, got \"%s\"",
                        flags->loss_on);
    }
    return -1;
}
