// SPDX-License-Identifier: Apache-2.0
// nets - families without a shared builder: images, ModernBERT, and a recurrent network. Part of
// model.h.
#pragma once

#include "model/model.h"

/* ViT and related families. Names of tensors follow the trunk's name, or a layer's. */
struct sw_vit_family {
    struct sw_model_ops ops;
    const char *trunk;
    const char *second_token;                /* learned, after the first; NULL = there is none */
    const char *attention_norm, *mlp_norm;   /* before the branches */
    const char *attention_scale, *mlp_scale; /* vectors that multiply branches; NULL = none */
    const char *up, *down;
    bool has_mean; /* the head reads the mean of the patches, too */
    int64_t patch; /* default of patch_size */
    double eps;    /* default of layer_norm_eps */
};
extern const struct sw_vit_family sw_family_vit, sw_family_deit, sw_family_dinov2;
extern const struct sw_model_ops sw_family_modernbert, sw_family_cifar_net, sw_family_bi_lstm;

/* [B,H,W,C] as [B,C,H,W], the layout for convolutions. A view: no bytes move. */
sw_value sw_nets_channels_first(sw_graph *g, sw_value x);
/* x [..,in] -> [..,out]. "<prefix>.weight" is [out, in] or another shape with as many elements;
 * with "<prefix>.bias" and PyTorch's initial values. */
sw_value sw_nets_linear(sw_graph *g, const char *prefix, sw_value x, struct sw_shape weight);
/* Names of tensors in files. */
const char *sw_nets_alias(const struct sw_model *model, const char *name, int i, char *buf,
                          size_t cap);
