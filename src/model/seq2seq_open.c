// SPDX-License-Identifier: Apache-2.0
// Reads the config.json of an encoder-decoder family into its specification; names in files.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/seq2seq.h"

static const struct sw_seq2seq *seq2seq_of(const struct sw_model *model)
{
    return SW_CONTAINER(model, struct sw_seq2seq, super);
}

static sw_status check(const struct sw_json_doc *doc, const struct sw_seq2seq *m)
{
    const struct sw_model *model = &m->super;
    const double width = (double)model->width;
    double most = 0;
    if (model->pad_id >= model->vocab || model->start_id < 0 || model->start_id >= model->vocab) {
        return SW_FAIL(SW_E_FORMAT,
                       "%s: pad_token_id is %lld, decoder_start_token_id %lld; wanted ids below "
                       "vocab_size %lld",
                       sw_json_name(doc), (long long)model->pad_id, (long long)model->start_id,
                       (long long)model->vocab);
    }
    for (int i = 0; i < SW_N_STACKS; i++) {
        const double heads = (double)m->spec.stack[i].heads * (double)m->spec.stack[i].head_width;
        const double layer = 8 * heads * width + 3 * width * (double)m->spec.stack[i].inner;
        most = fmax(most, layer * (double)m->spec.stack[i].layers);
    }
    return sw_model_check_parameters(doc, model, 2 * most / (double)model->layers,
                                     m->spec.stack[0].inner);
}

static void name_heads(struct sw_seq2seq *m)
{
    struct sw_model *model = &m->super;
    const struct sw_seq2seq_names *n = &m->family->names;
    const bool is_text = sw_model_is_seq2seq(model);
    snprintf(m->embedding, sizeof m->embedding, "%s.weight", n->table);
    snprintf(m->head, sizeof m->head, "%s.weight", n->head);
    model->trunk = n->trunk;
    model->embedding_name = m->embedding;
    model->lm_head_name = m->head;
    model->head_name = is_text && !model->tied ? m->head : NULL;
    model->head_module = !is_text ? n->classifier : model->tied ? NULL : n->head;
}

sw_status sw_seq2seq_read(struct sw_json_doc *doc, const struct sw_json *config,
                          const struct sw_model_options *options, struct sw_model *model)
{
    struct sw_seq2seq *m = SW_CONTAINER(model, struct sw_seq2seq, super);
    m->family = SW_CONTAINER(model->ops, struct sw_seq2seq_family, ops);
    SW_TRY(
        sw_model_read_sizes(doc, config, model, &m->spec.stack[0].heads, &m->spec.stack[0].inner));
    SW_TRY(sw_json_get_bool(doc, config, "tie_word_embeddings", true, &model->tied));
    model->pad_id = sw_model_token_id(config, "pad_token_id");
    model->eos_id = sw_model_token_id(config, "eos_token_id");
    model->start_id = sw_model_token_id(config, "decoder_start_token_id");
    m->spec.stack[0].layers = model->layers;
    m->spec.embedding_scale = m->spec.head_scale = 1;
    SW_TRY(m->family->read(doc, config, m));
    SW_TRY(check(doc, m));
    SW_TRY(sw_model_read_task(model->ops, doc, config, options, model));
    name_heads(m);
    return SW_OK;
}

/* ---- names in files ---- */

/* Alternatives: the name itself; without the trunk's name, as in files that hold only the trunk;
 * and for the table its names in the two stacks. */
const char *sw_seq2seq_alias(const struct sw_model *model, const char *name, int i, char *buf,
                             size_t cap)
{
    const struct sw_seq2seq *m = seq2seq_of(model);
    const struct sw_seq2seq_names *n = &m->family->names;
    const size_t trunk = n->trunk ? strlen(n->trunk) : 0;
    const bool in = trunk > 0 && strncmp(name, n->trunk, trunk) == 0 && name[trunk] == '.';
    if (i == 0) {
        snprintf(buf, cap, "%s", name);
        return buf;
    }
    if (in && i == 1) {
        snprintf(buf, cap, "%s", name + trunk + 1);
        return buf;
    }
    const int stack = i - 1 - in;
    if (stack < SW_N_STACKS && strcmp(name, m->embedding) == 0) {
        snprintf(buf, cap, "%s.embed_tokens.weight", n->stack[stack]);
        return buf;
    }
    return NULL;
}

bool sw_seq2seq_ignores(const struct sw_model *model, const char *file_name)
{
    return sw_model_ignores(model, seq2seq_of(model)->family->ignored, file_name);
}
