// SPDX-License-Identifier: Apache-2.0
// heads - what heads of all families share: the terms of a task's loss and the outputs that they
// are made of, by the task's table. Part of model.h.
#pragma once

#include "model/model.h"

/* One head, while its graph is built. */
struct sw_head {
    const struct sw_model *model;
    sw_graph *g;
    const struct sw_forward_spec *spec;
    sw_value loss; /* the terms so far; SW_NO_VALUE at first */
};

/* logits are what loss i of the task compares with its labels: the output, and the term. */
void sw_head_term(struct sw_head *head, int i, sw_value logits);
/* The same of logits = h weight^T + bias, which the term never holds; read: the h whose logits are
 * wanted. */
void sw_head_linear_term(struct sw_head *head, int i, sw_value h, sw_value read, sw_value weight,
                         sw_value bias, double cap);
