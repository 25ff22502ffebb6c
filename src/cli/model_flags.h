// SPDX-License-Identifier: Apache-2.0
// What the commands that open a model have in common.
#pragma once

#include "cli/cli.h"
#include "spillway/data.h"
#include "spillway/engine.h"

/* The tokenizer given, else the one in the model's folder. */
sw_status cli_open_tokenizer(const char *tokenizer, const char *model, sw_tokenizer **out);
