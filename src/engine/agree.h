// SPDX-License-Identifier: Apache-2.0
// What ranks compare before they train together. Private to the room.
#pragma once

#include "data/data.h"
#include "engine/engine.h"

/* The configuration and the model, while its folder is open. SW_E_CONFIG names who has other ones. */
sw_status sw_engine_agree_on_setup(const struct sw_engine *e);
/* The samples of a dataset of rows of so many tokens; and flags, as a text. */
sw_status sw_engine_agree_on_data(sw_comm *comm, const sw_dataset *dataset, int64_t tokens,
                                  const char *flags);
