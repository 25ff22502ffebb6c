// SPDX-License-Identifier: Apache-2.0
// owned - weights of an engine's rank, for tests that compare whole models.
#pragma once

#include "engine/private.h"

/* The elements this rank owns, into the whole model's array [most]: its tensors one behind the
 * other. */
sw_status test_owned_weights(struct sw_engine *e, float *all, int64_t most);
