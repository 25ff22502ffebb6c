// SPDX-License-Identifier: Apache-2.0
// The weights that a rank owns, for tests that compare whole models.
#pragma once

#include "engine/private.h"

/* Copies the elements that this rank owns into an array for the whole model, [most], with the
 * tensors one after the other. */
sw_status test_owned_weights(struct sw_engine *e, float *all, int64_t most);
