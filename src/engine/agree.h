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
