// SPDX-License-Identifier: Apache-2.0
// nets - families without a shared builder: images, and a recurrent network. Part of model.h.
#pragma once

#include "model/model.h"

extern const struct sw_model_ops sw_family_vit, sw_family_cifar_net, sw_family_bi_lstm;

/* [B,H,W,C] as [B,C,H,W], the layout for convolutions. A view: no bytes move. */
sw_value sw_nets_channels_first(sw_graph *g, sw_value x);
/* x [..,in] -> [..,out]. "<prefix>.weight" is [out, in] or another shape with as many elements;
 * with "<prefix>.bias" and PyTorch's initial values. */
sw_value sw_nets_linear(sw_graph *g, const char *prefix, sw_value x, struct sw_shape weight);
/* Names of tensors in files. */
const char *sw_nets_alias(const struct sw_model *model, const char *name, int i, char *buf,
                          size_t cap);
