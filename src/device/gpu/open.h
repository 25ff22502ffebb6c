// SPDX-License-Identifier: Apache-2.0
// open - finds and opens device modules, and devices behind them.
#pragma once

#include "device/device.h"
#include "device/gpu/module/module.h"

/*
 * sw_gpu_module_open - opens spillway_<backend>.so (see sw_module_find). It is never closed: the
 * runtime has started threads and other things that outlive its users.
 *
 * SW_E_UNSUP    no module, or one of another build; the message says where it was looked for
 */
sw_status sw_gpu_module_open(const char *backend, const struct sw_gpu_module **out);
/* Sets the environment variables of a back end's runtime ("cuda", "hip") before it reads them. One
 * that is set to what would not do is overwritten, with a warning. */
void sw_gpu_set_environment(const char *backend);
/* Finds the module's file. False: not found; path is then the last place tried. */
bool sw_gpu_module_path(const char *backend, char *path, size_t cap);

/* Number of GPUs that the module of this backend ("cuda", "hip", "emu32", "emu64") reaches.
 * SW_E_UNSUP: no module, no driver or an old one, or no GPU. The message says what is missing and
 * how to get it. */
sw_status sw_gpu_count(const char *backend, int *out);

/* The same for a module that is open. */
sw_status sw_gpu_count_of(const char *backend, const struct sw_gpu_module *module, int *out);

/* Appends one back end's lines of sw_device_gpu_report. */
void sw_gpu_report(const char *backend, struct sw_str *out);

/* Opens a device of a cluster, by its name or file, for plans. */
sw_status sw_gpu_open_sim(const char *cluster, const struct sw_device_place *place,
                          struct sw_device **out);

/* An emulation without a library for exchanges has `facts` alone, which says so. */
extern const struct sw_ccl_ops sw_gpu_no_ccl;

sw_status sw_gpu_open(const char *backend, int index, struct sw_device **out);
