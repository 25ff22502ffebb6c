// SPDX-License-Identifier: Apache-2.0
// open - finding and opening the modules of devices, and devices behind them.
#pragma once

#include "device/device.h"
#include "device/gpu/module/module.h"

/*
 * sw_gpu_module_open - opens spillway_<backend>.so (see sw_module_find).
 *
 * SW_E_UNSUP    there is none, or it is of another build; the message says where it was looked for
 */
sw_status sw_gpu_module_open(const char *backend, const struct sw_gpu_module **out, void **handle);
void sw_gpu_module_close(void *handle); /* NULL is fine */

/* GPUs that the module of this backend ("cuda", "hip", "emu32", "emu64") reaches. SW_E_UNSUP: no
 * module, no driver or one that is too old, or no GPU; says what is missing, and how to get it. */
sw_status sw_gpu_count(const char *backend, int *out);

/* n_sharing: ranks of this machine that use this GPU, of whose memory each gets its share. */
sw_status sw_gpu_open(const char *backend, int index, int n_sharing, struct sw_device **out);
