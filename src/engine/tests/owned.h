// SPDX-License-Identifier: Apache-2.0
// Steps of all ranks, the weights that a rank owns and the reports of all ranks, for tests that
// compare whole models.
#pragma once

#include "engine/private.h"

/* Copies the elements that this rank owns into an array for the whole model, [most], with the
 * tensors one after the other. */
sw_status test_owned_weights(struct sw_engine *e, float *all, int64_t most);

/* SW_E_ARG unless all ranks report the same loss and norm, bit for bit; names the first other one.
 * Collective. */
sw_status test_same_reports(const struct sw_engine *e, const struct sw_step_report *mine);

enum { TEST_MOST_MICRO = 16, TEST_MOST_IDS = 1024 };
/* Trains a step of n_micro micro-batches of [rows, tokens] ids below `words`, which are also its
 * labels. They follow from the step. A rank has the micro-batches of its data coordinate. All of
 * them together have at most TEST_MOST_IDS ids. */
sw_status test_train_step(sw_engine *e, int n_micro, int rows, int tokens, int words,
                          struct sw_step_report *report);
