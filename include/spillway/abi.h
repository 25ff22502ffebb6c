// SPDX-License-Identifier: Apache-2.0
// The binary interface: for programs that were not compiled with these headers, as bindings of
// other languages, to see that they and the library mean the same.
#pragma once

#include <stdint.h>

#include "spillway/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Of these headers, and the number in the library's name (libspillway.so.N). It changes with every
 * change that a compiled program could see: a function, a struct or a constant that is gone or is
 * another one. What is only added leaves it. */
#define SW_ABI_VERSION 2

/* Of the library. */
SW_API int sw_abi_version(void);
/* sizeof of the public struct of this name, "sw_engine_options"; -1: there is none. */
SW_API int64_t sw_abi_size(const char *name);

#ifdef __cplusplus
}
#endif
