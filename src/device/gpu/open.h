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

/* backend: "cuda", "hip", "emu32", "emu64". */
sw_status sw_gpu_open(const char *backend, int index, struct sw_device **out);
