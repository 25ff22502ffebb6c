// SPDX-License-Identifier: Apache-2.0
// Comparison with recorded runs of other programs. A case is a folder with a model and a recording.
// docs/check.md describes the format and the script that records a case for your own model.
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "spillway/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sw_check_options {
    const char *const *sets; /* [n_sets] edits applied to every configuration of the case */
    int n_sets;
    /* number of ranks, for model cases and for cases of several ranks; 0 = as recorded */
    int ranks;
};

/*
 * sw_check_case - run a case and print one row per quantity: largest error, tolerance, verdict.
 *
 * options      NULL: as recorded
 * out_failed   number of failed rows; an unknown recorded quantity counts as a failed row
 *
 * SW_E_IO, SW_E_FORMAT  the folder does not hold a readable case
 * SW_E_UNSUP            the case needs a feature that is not built; the message names it
 */
SW_API sw_status sw_check_case(const char *path, const struct sw_check_options *options, FILE *out,
                               int *out_failed);

#ifdef __cplusplus
}
#endif
