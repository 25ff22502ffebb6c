// SPDX-License-Identifier: Apache-2.0
// The weights that a rank owns and the reports of all ranks, for tests that compare whole models.
#pragma once

#include "engine/private.h"

/* Copies the elements that this rank owns into an array for the whole model, [most], with the
 * tensors one after the other. */
sw_status test_owned_weights(struct sw_engine *e, float *all, int64_t most);

/* SW_E_ARG unless all ranks report the same loss and norm, bit for bit; names the first other one.
 * Collective. */
sw_status test_same_reports(const struct sw_engine *e, const struct sw_step_report *mine);
