// SPDX-License-Identifier: Apache-2.0
// optim - update rules as graph builders, schedules, loss scaling.
#pragma once

#include "config/config.h"
#include "graph/graph.h"

/* ---- update rules ---- */

struct sw_update_rule {
    struct sw_update_attrs attrs; /* n_states is set per dtype when emitted */
    bool decay_1d;                /* false: parameters of one dimension do not decay */
    double momentum;              /* SGD: goes into the scalar BETA1 */
};

/* SW_E_UNSUP names optimizer.type where no rule exists. */
sw_status sw_update_rule_init(const struct sw_optimizer_config *optimizer, bool decay_1d,
                              struct sw_update_rule *out);

/* What one parameter keeps between steps, in the order the UPDATE op takes it. bf16 parameters: the
 * low half of the master (architecture 5a); fp16: an fp32 master; then the moments in fp32. */
struct sw_update_state {
    const char *kind; /* "master_lo", "master", "exp_avg", "exp_avg_sq", "momentum" */
    enum sw_dtype dtype;
};
enum { SW_UPDATE_MAX_STATES = 4 };
int sw_update_states(const struct sw_update_rule *rule, enum sw_dtype param_dtype,
                     struct sw_update_state out[SW_UPDATE_MAX_STATES]);

/* Adds the states of `param` (named "<kind>/<parameter>") and its UPDATE op, fed by the gradient
 * streams [n_streams] (row-sparse ones are passed with their index). */
void sw_update_emit(struct sw_graph *g, const struct sw_update_rule *rule, sw_value param,
                    const sw_value *streams, int n_streams);
