// SPDX-License-Identifier: Apache-2.0
// What ranks compare before they train together: the engine's part of it. Private to the room.
#pragma once

#include "engine/private.h"

/* The configuration and the model, while its folder is open. SW_E_CONFIG names who has other
 * ones. */
sw_status sw_engine_agree_on_setup(const struct sw_engine *e);

/* ---- algorithms.c ---- */
/* Of prepared kernels. SW_E_CONFIG names the product, the ranks, and what each chose. */
sw_status sw_engine_agree_on_algorithms(const struct sw_engine *e);

struct sw_other_algorithm {
    char product[256], was[128], is[128];
};
/* Of two texts of sw_device_algorithms the next product, from *was on, that both have, with another
 * algorithm each; *was then is behind it. False: there is none. */
bool sw_engine_next_other_algorithm(const char **was, const char *is,
                                    struct sw_other_algorithm *out);
