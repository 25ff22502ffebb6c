// SPDX-License-Identifier: Apache-2.0
// op_update - what ops that move parameters have in common: what their kernels are told of
// gradients, rules and rates.
#pragma once

#include "device/gpu/gpu.h"

/* Threads with `each` elements at a time go over n of them. */
struct gpu_grid sw_gpu_update_grid(int64_t n, int64_t each);
/* Streams from input `first` on; elements of a piece begin where sw_update_first says. */
struct gpu_streams sw_gpu_streams_of(const struct gpu_call *call, int first, bool in_piece);
/* Parameter, master and the two moments, where there are any. */
struct gpu_param sw_gpu_param_of(const struct gpu_call *call);
struct gpu_rule sw_gpu_rule_of(const struct gpu_call *call);
struct gpu_rates sw_gpu_rates_of(const struct gpu_call *call);
/* Words of sums become 0. */
sw_status sw_gpu_reset_words(const struct gpu_call *call, int64_t *words, int64_t n);
/* Takes parameters with their masters, and states of fp32 (Adam's of bf16 or codes, too). */
void sw_gpu_rule_query(const struct gpu_device *dev, const struct sw_op_desc *desc,
                       struct sw_kernel_info *out);
