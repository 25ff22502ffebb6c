// SPDX-License-Identifier: Apache-2.0
// Random batches and their logits in a file, to be compared with what runs an exported model. The
// engine is opened on the exported config.json, and gets the weights that were exported.
#include <stdio.h>
#include <string.h>

#include "engine/private.h"

enum { CASE_BATCHES = 8, CASE_TOKENS = 16, CASE_TARGETS = 9, CASE_INPUTS = 8 };

/* A batch: inputs in the order of the engine, and logits. */
struct one {
    struct sw_tensor inputs[CASE_INPUTS];
    int n_inputs;
    int32_t *data[CASE_INPUTS]; /* of inputs; f32 have as many bytes */
    float *logits;
};

static void close_one(struct one *b)
{
    for (int i = 0; i < b->n_inputs; i++) {
        sw_free(b->data[i]);
    }
    sw_free(b->logits);
}

/* ---- random inputs ---- */

/* Rows end after some tokens, the first one at the last. */
static int32_t length_of_row(uint64_t draw, int64_t row, int64_t tokens)
{
    return (int32_t)(row == 0 ? tokens : 1 + (int64_t)(draw % (uint64_t)tokens));
}

static void fill(const sw_engine *e, const struct sw_input_info *info, uint64_t stream,
                 int32_t *out)
{
    const int64_t columns = sw_shape_last(&info->shape), n = sw_shape_elems(&info->shape);
    const uint64_t vocab = (uint64_t)sw_max_i64(1, e->weights.model->vocab);
    for (int64_t i = 0; i < n; i++) {
        const uint64_t draw = sw_philox_u64(1, stream, (uint64_t)i);
        const int64_t row = i / columns;
        if (info->dtype == SW_F32) {
            const float x = (float)sw_philox_normal(1, stream, (uint64_t)i);
            memcpy(&out[i], &x, sizeof x);
        } else if (strcmp(info->name, "attention_mask") == 0) {
            const uint64_t of_row = sw_philox_u64(1, stream, (uint64_t)row);
            out[i] = i % columns < length_of_row(of_row, row, columns);
        } else if (strcmp(info->name, "lengths") == 0) {
            out[i] = length_of_row(draw, i, e->sizes.tokens);
        } else if (strcmp(info->name, "token_type_ids") == 0) {
            out[i] = 0;
        } else {
            out[i] = (int32_t)(draw % vocab);
        }
    }
}

static sw_status make_inputs(const sw_engine *e, int i_batch, struct one *b)
{
    for (int32_t i = 0; i < sw_engine_n_inputs(e); i++) {
        struct sw_input_info info;
        SW_TRY(sw_engine_input(e, i, &info));
        const struct sw_task_input *row = sw_task_input_of(e->weights.model->task, info.name);
        if (info.optional && row && row->absent == SW_ABSENT_COUNTED) {
            continue; /* an export counts, too */
        }
        if (b->n_inputs == CASE_INPUTS) {
            return SW_FAIL(SW_E_UNSUP, "a model with more than %d inputs", CASE_INPUTS);
        }
        int32_t *data = sw_alloc("engine", (size_t)sw_shape_elems(&info.shape) * sizeof *data + 1);
        SW_TRY_ALLOC(data, "a batch");
        fill(e, &info, (uint64_t)(i_batch * CASE_INPUTS + b->n_inputs), data);
        b->data[b->n_inputs] = data;
        b->inputs[b->n_inputs] = (struct sw_tensor){
            .name = info.name, .view = {.dtype = info.dtype, .shape = info.shape, .data = data}};
        b->n_inputs++;
    }
    return SW_OK;
}

static sw_status make_batch(sw_engine *e, int i_batch, struct one *b)
{
    SW_TRY(make_inputs(e, i_batch, b));
    const struct sw_batch batch = {b->inputs, b->n_inputs};
    b->logits = sw_alloc("engine", (size_t)sw_logits_elems(e) * sizeof *b->logits);
    SW_TRY_ALLOC(b->logits, "logits");
    return sw_logits(e, &batch, b->logits);
}

/* ---- the file ---- */

static sw_status write_case(const char *path, const struct one *batches, int64_t n_logits)
{
    struct sw_safetensor_spec specs[CASE_BATCHES * (CASE_INPUTS + 1)];
    const void *data[SW_LEN(specs)];
    char names[SW_LEN(specs)][64];
    struct sw_safetensors_writer *writer = NULL;
    int64_t n = 0;
    for (int k = 0; k < CASE_BATCHES; k++) {
        for (int i = 0; i <= batches[k].n_inputs; i++, n++) {
            const bool last = i == batches[k].n_inputs;
            const struct sw_tensor *input = &batches[k].inputs[i];
            snprintf(names[n], sizeof names[n], "%d.%s", k, last ? "logits" : input->name);
            specs[n] =
                last ? (struct sw_safetensor_spec){names[n], SW_F32, SW_SHAPE(n_logits)}
                     : (struct sw_safetensor_spec){names[n], input->view.dtype, input->view.shape};
            data[n] = last ? (const void *)batches[k].logits : batches[k].data[i];
        }
    }
    SW_TRY(sw_safetensors_create(path, specs, n, NULL, &writer));
    sw_status st = SW_OK;
    for (int64_t i = 0; i < n && st >= 0; i++) {
        st = sw_safetensors_write(writer, i, 0, data[i],
                                  sw_shape_bytes(&specs[i].shape, specs[i].dtype));
    }
    st = st < 0 ? st : sw_safetensors_commit(writer);
    sw_safetensors_writer_close(writer);
    return st;
}

/* ---- the engine ---- */

static sw_status open_engine(const struct sw_model *model, const char *config,
                             struct sw_named_values *values, sw_engine **out)
{
    const bool is_text = model->vocab > 0;
    const int64_t most = model->is_endless ? CASE_TOKENS : model->max_tokens;
    const struct sw_engine_options options = {
        .config.text = "{\"train_micro_batch_size_per_gpu\": 2}",
        .model.path = config,
        .inputs = {.seq_len = is_text ? sw_min_i64(CASE_TOKENS, most) : 0,
                   .target_len = sw_model_is_seq2seq(model) ? sw_min_i64(CASE_TARGETS, most) : 0,
                   .mask = is_text},
        .run.device = "cpu",
        .evaluate.logits = true,
    };
    return sw_engine_try(&options, NULL, values, out);
}

sw_status sw_engine_write_case(const struct sw_model *model, const char *config,
                               struct sw_named_values *values, const char *path)
{
    struct one batches[CASE_BATCHES];
    sw_engine *e = NULL;
    memset(batches, 0, sizeof batches);
    SW_TRY(open_engine(model, config, values, &e));
    sw_status st = SW_OK;
    for (int k = 0; k < CASE_BATCHES && st >= 0; k++) {
        st = make_batch(e, k, &batches[k]);
    }
    st = st < 0 ? st : write_case(path, batches, sw_logits_elems(e));
    for (int k = 0; k < CASE_BATCHES; k++) {
        close_one(&batches[k]);
    }
    sw_close(e);
    return st;
}
