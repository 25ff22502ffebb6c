// SPDX-License-Identifier: Apache-2.0
// What this machine and this build can do.
#pragma once

#include "spillway/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Measures for a few seconds; n_threads 0 = all. The caller's: sw_text_free. */
SW_API sw_status sw_doctor_text(int n_threads, char **out);

#ifdef __cplusplus
}
#endif
