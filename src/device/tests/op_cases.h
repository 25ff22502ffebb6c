// SPDX-License-Identifier: Apache-2.0
// The cases of every op: odd shapes, each attribute, optional operands absent.
#pragma once

#include "device/tests/op_case.h"

/* Variant `variant` of an op's case in a dtype; false past the last one. */
typedef bool (*case_build_fn)(struct op_case *c, enum sw_dtype dtype, int variant);

bool case_attention(struct op_case *c, enum sw_dtype dtype, int variant);
bool case_attention_grad(struct op_case *c, enum sw_dtype dtype, int variant);

/* One builder a kind; NULL only for VIEW, which has no kernel. */
extern const case_build_fn op_cases[SW_N_OP_KINDS];
