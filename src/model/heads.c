// SPDX-License-Identifier: Apache-2.0
// What stands on top of a decoder's trunk: the language model, and the classifier of texts.
#include "model/decoder.h"

#include <stdio.h>

/* cap tanh(x / cap), as Gemma 2 keeps logits within bounds. */
static sw_value capped(sw_graph *g, sw_value x, double cap)
{
    return cap > 0 ? sw_scale(g, sw_act(g, sw_scale(g, x, 1 / cap), SW_ACT_TANH), cap) : x;
}

sw_value sw_head_lm(const struct sw_decoder *m, sw_graph *g, const struct sw_forward_spec *spec,
                    sw_value h, sw_value table)
{
    const struct sw_model *model = &m->super;
    char name[112];
    const sw_value head_VC =
        model->tied ? table
                    : sw_param(g, model->head_name, SW_SHAPE(model->vocab, model->width),
                               (struct sw_init){SW_INIT_NORMAL, m->spec.init_range});
    snprintf(name, sizeof name, "%s.bias", m->names.head);
    const sw_value bias = m->spec.head_bias ? sw_param(g, name, SW_SHAPE(model->vocab),
                                                       (struct sw_init){SW_INIT_ZERO, 0})
                                            : SW_NO_VALUE;
    if (spec->want_logits) {
        sw_value x = h;
        if (spec->cache_tokens > 0) {
            x = sw_select_rows(g, h, sw_input(g, "last", SW_I32, SW_SHAPE(spec->batch)));
        }
        sw_output(g, "logits",
                  capped(g, sw_linear(g, x, head_VC, bias, false), m->spec.logits_cap));
    }
    if (!spec->has_labels) {
        return SW_NO_VALUE;
    }
    const sw_value labels = sw_input(g, "labels", SW_I32, SW_SHAPE(spec->batch, spec->tokens));
    return sw_linear_cross_entropy(g, h, head_VC, bias, labels, m->spec.logits_cap);
}

sw_value sw_head_classify(const struct sw_decoder *m, sw_graph *g,
                          const struct sw_forward_spec *spec, sw_value h, sw_value ids)
{
    const struct sw_model *model = &m->super;
    const sw_value score_LC = sw_param(g, model->head_name, SW_SHAPE(model->labels, model->width),
                                       (struct sw_init){SW_INIT_NORMAL, m->spec.init_range});
    const sw_value x_BC = sw_select_rows(g, h, sw_last_index(g, ids, model->pad_id));
    const sw_value logits_BL = sw_matmul(g, x_BC, false, score_LC, true);
    if (spec->want_logits) {
        sw_output(g, "logits", logits_BL);
    }
    if (!spec->has_labels) {
        return SW_NO_VALUE;
    }
    return sw_cross_entropy(g, logits_BL, sw_input(g, "labels", SW_I32, SW_SHAPE(spec->batch)));
}
