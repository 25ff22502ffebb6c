// SPDX-License-Identifier: Apache-2.0
// Agreement between ranks before they train together: the engine's part. Private to the room.
#pragma once

#include "engine/private.h"

/* Compares the configuration and the model; call it while the model's folder is open. SW_E_CONFIG
 * names the rank that differs. */
sw_status sw_engine_agree_on_setup(const struct sw_engine *e);

/* ---- algorithms.c ---- */
/* Compares the algorithms of prepared kernels. SW_E_CONFIG names the product, the ranks and their
 * choices. */
sw_status sw_engine_agree_on_algorithms(const struct sw_engine *e);

struct sw_other_algorithm {
    char product[256], was[128], is[128];
};
/* Finds the next product in `*was` that `is` has too, with a different algorithm, and moves *was
 * past it. Both are texts of sw_device_algorithms. False: there is none. */
bool sw_engine_next_other_algorithm(const char **was, const char *is,
                                    struct sw_other_algorithm *out);
