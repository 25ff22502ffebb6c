// SPDX-License-Identifier: Apache-2.0
// What ranks compare before they train together: the engine's part of it. Private to the room.
#pragma once

#include "engine/private.h"

/* The configuration and the model, while its folder is open. SW_E_CONFIG names who has other
 * ones. */
sw_status sw_engine_agree_on_setup(const struct sw_engine *e);
