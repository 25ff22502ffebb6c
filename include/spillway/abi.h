// SPDX-License-Identifier: Apache-2.0
// Checks of the binary interface, for programs that were not compiled with these headers, such as
// bindings for other languages.
#pragma once

#include <stdint.h>

#include "spillway/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ABI version of these headers, and the number in the library's name (libspillway.so.N). It changes
 * if a function, struct or constant is removed or changed. Additions do not change it. */
#define SW_ABI_VERSION 5

/* ABI version of the loaded library. */
SW_API int sw_abi_version(void);
/* sizeof of the public struct with this name (for example "sw_engine_options"); -1 if there is no
 * such struct. */
SW_API int64_t sw_abi_size(const char *name);

#ifdef __cplusplus
}
#endif
