// SPDX-License-Identifier: Apache-2.0
// Comparing with recorded runs of other programs: a case is a folder with a model and a recording
// (docs/check.md has the format, and the script that records one for a model of your own).
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "spillway/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct sw_check_options {
    const char *const *sets; /* [n_sets] edits of every configuration that the case runs with */
    int n_sets;
    int ranks; /* of cases of several ranks: run them on so many; 0 = as recorded */
};

/*
 * sw_check_case - run a case and print one row a quantity: largest error, tolerance, verdict.
 *
 * options      NULL: as recorded
 * out_failed   rows that failed; a recorded quantity that is not understood is one of them
 *
 * SW_E_IO, SW_E_FORMAT  the folder holds no readable case
 * SW_E_UNSUP            it asks for something that is not built, by name
 */
SW_API sw_status sw_check_case(const char *path, const struct sw_check_options *options, FILE *out,
                               int *out_failed);

#ifdef __cplusplus
}
#endif
