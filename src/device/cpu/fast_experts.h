// SPDX-License-Identifier: Apache-2.0
// fast_experts - the fast rows of mixtures of experts. Part of fast.h.
#pragma once

#include "device/cpu/fast.h"

extern const struct cpu_kernel sw_cpu_expert_dots, sw_cpu_expert_own;
extern const struct cpu_kernel sw_cpu_from_experts, sw_cpu_from_experts_grad;
