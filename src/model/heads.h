// SPDX-License-Identifier: Apache-2.0
// heads - code that heads of all families share: the terms of a task's loss and the outputs that
// they are made of, by the task's table. Part of model.h.
#pragma once

#include "model/model.h"

/* One head, while its graph is built. */
struct sw_head {
    const struct sw_model *model;
    sw_graph *g;
    const struct sw_forward_spec *spec;
    sw_value loss; /* sum of the terms so far; SW_NO_VALUE at first */
};

/* The sum of the terms, as output "loss" if there is one. */
sw_value sw_head_end(const struct sw_head *head);
/* Adds loss i of the task, which compares logits with its labels, and the output. */
void sw_head_term(struct sw_head *head, int i, sw_value logits);
/* The same for logits = h weight^T + bias, which the loss term never holds. read: the h whose
 * logits are the output. */
void sw_head_linear_term(struct sw_head *head, int i, sw_value h, sw_value read, sw_value weight,
                         sw_value bias, double cap);
