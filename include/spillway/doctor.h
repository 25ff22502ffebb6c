// SPDX-License-Identifier: Apache-2.0
// Capabilities of this machine and this build. No call here is collective.
#pragma once

#include "spillway/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Measures the machine for a few seconds and reports. n_threads 0 = all. Free *out with
 * sw_text_free. */
SW_API sw_status sw_doctor_text(int n_threads, char **out);

/* Model families that are built, one line each: model_type, class, presets. Free *out with
 * sw_text_free. */
SW_API sw_status sw_models_text(char **out);

#ifdef __cplusplus
}
#endif
