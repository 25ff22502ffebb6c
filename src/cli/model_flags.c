// SPDX-License-Identifier: Apache-2.0
// Opening what a command names.
#include "cli/model_flags.h"

sw_status cli_open_tokenizer(const char *tokenizer, const char *model, sw_tokenizer **out)
{
    const sw_status st = sw_model_check_path(model);
    return st < 0 ? st : sw_tokenizer_open(tokenizer ? tokenizer : model, NULL, out);
}
