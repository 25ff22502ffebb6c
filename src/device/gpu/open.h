// SPDX-License-Identifier: Apache-2.0
// open - finding and opening the modules of devices, and devices behind them.
#pragma once

#include "device/device.h"
#include "device/gpu/module/module.h"

/*
 * sw_gpu_module_open - opens spillway_<backend>.so (see sw_module_find), for good: what a run time
 * has begun, threads among it, outlives its users.
 *
 * SW_E_UNSUP    there is none, or it is of another build; the message says where it was looked for
 */
sw_status sw_gpu_module_open(const char *backend, const struct sw_gpu_module **out);
/* Where that file is; false: not in path, which is where it was looked for last. */
bool sw_gpu_module_path(const char *backend, char *path, size_t cap);

/* GPUs that the module of this backend ("cuda", "hip", "emu32", "emu64") reaches. SW_E_UNSUP: no
 * module, no driver or one that is too old, or no GPU; says what is missing, and how to get it. */
sw_status sw_gpu_count(const char *backend, int *out);

/* The same of a module that is open. */
sw_status sw_gpu_count_of(const char *backend, const struct sw_gpu_module *module, int *out);

/* Appends one back end's lines of sw_device_gpu_report. */
void sw_gpu_report(const char *backend, struct sw_str *out);

/* n_sharing: ranks of this machine that use this GPU, of whose memory each gets its share. */
sw_status sw_gpu_open(const char *backend, int index, int n_sharing, struct sw_device **out);
