// SPDX-License-Identifier: Apache-2.0
// What this machine and this build can do.
#pragma once

#include "spillway/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Measures for a few seconds; n_threads 0 = all. The caller's: sw_text_free. */
SW_API sw_status sw_doctor_text(int n_threads, char **out);

/* Model families that are built, a line each: model_type, class, presets. The caller's:
 * sw_text_free. */
SW_API sw_status sw_models_text(char **out);

#ifdef __cplusplus
}
#endif
