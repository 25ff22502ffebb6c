// SPDX-License-Identifier: Apache-2.0
// op_update - declarations shared by ops that move parameters: their kernels' arguments for
// gradients, rules and rates.
#pragma once

#include "device/gpu/gpu.h"

/* The grid for n elements with `each` elements per thread at a time. */
struct gpu_grid sw_gpu_update_grid(int64_t n, int64_t each);
/* Takes the streams from input `first` on; a piece starts at sw_update_first. */
struct gpu_streams sw_gpu_streams_of(const struct gpu_call *call, int first, bool in_piece);
/* The parameter, its master and the two moments, if they exist. */
struct gpu_param sw_gpu_param_of(const struct gpu_call *call);
struct gpu_rule sw_gpu_rule_of(const struct gpu_call *call);
struct gpu_rates sw_gpu_rates_of(const struct gpu_call *call);
/* Zeroes words of sums. */
sw_status sw_gpu_reset_words(const struct gpu_call *call, int64_t *words, int64_t n);
/* Takes parameters with their masters, and fp32 states (for Adam also bf16 or 8-bit). */
void sw_gpu_rule_query(const struct gpu_device *dev, const struct sw_op_desc *desc,
                       struct sw_kernel_info *out);
