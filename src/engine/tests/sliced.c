// SPDX-License-Identifier: Apache-2.0
// Runs of small models on ranks of the tensor axis, as threads.
#include "engine/tests/sliced.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/tests/owned.h"
#include "support/scratch.h"
#include "support/test.h"

struct sliced_models sliced_models;

/* Its heads and inner width divide by 4 ranks, its vocabulary does not. */
static const char odd_json[] =
    "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"vocab_size\":19,"
    "\"n_positions\":8,\"n_embd\":12,\"n_layer\":2,\"n_head\":4,\"n_inner\":20,\"embd_pdrop\":0.1,"
    "\"attn_pdrop\":0.1,\"resid_pdrop\":0.1}";
/* Four ranks share two key heads. */
static const char shared_json[] =
    "{\"model_type\":\"qwen3\",\"architectures\":[\"Qwen3ForCausalLM\"],\"vocab_size\":19,"
    "\"max_position_embeddings\":8,\"hidden_size\":12,\"num_hidden_layers\":2,\"head_dim\":4,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":20}";

#define FEW_HEADS(type)                                                                            \
    "{\"model_type\":\"" type "\",\"vocab_size\":19,\"max_position_embeddings\":8,"                \
    "\"hidden_size\":16,\"num_hidden_layers\":2,\"num_attention_heads\":4,"
static const char packed_json[] =
    FEW_HEADS("phi3") "\"num_key_value_heads\":2,\"intermediate_size\":20,\"pad_token_id\":0}";
static const char groups_json[] = FEW_HEADS(
    "falcon") "\"num_kv_heads\":2,\"new_decoder_architecture\":true,\"ffn_hidden_size\":20}";
static const char single_json[] =
    FEW_HEADS("falcon") "\"alibi\":true,\"bias\":true,\"ffn_hidden_size\":20}";

static int stages_of(const struct sliced *job)
{
    return job->pipe > 0 ? job->pipe : 1;
}

static sw_status open_engine(const struct sliced *job, sw_comm *comm, sw_engine **out)
{
    char config[1024];
    snprintf(
        config, sizeof config,
        "{\"train_micro_batch_size_per_gpu\": %d, \"gradient_clipping\": 0.5, %s"
        "\"zero_optimization\": {\"stage\": %d%s, \"stage3_param_persistence_threshold\": 30}, "
        "\"optimizer\": {\"type\": \"%s\", \"params\": {\"lr\": 0.003%s}}, \"spillway\": "
        "{\"micro_batches\": %d, \"threads\": 1, \"allow_other_math\": true, "
        "\"mesh\": {\"tensor\": %d, \"pipe\": %d}%s}}",
        SLICED_BATCH, job->top ? job->top : "", job->stage, job->zero ? job->zero : "",
        job->optimizer ? job->optimizer : "AdamW", job->params ? job->params : "",
        SLICED_MICRO_BATCHES, job->tensor, stages_of(job), job->more ? job->more : "");
    struct sw_engine_options options = {.config.text = config,
                                        .model.path = job->model,
                                        .inputs.seq_len = SLICED_TOKENS,
                                        .run = {.comm = comm, .verify = true},
                                        .seed = 5,
                                        .train.wanted = true};
    if (job->ask) {
        job->ask(&options);
    }
    return sw_initialize(&options, out);
}

/* All ranks report the same. */
static sw_status keep(struct sliced *job, const struct sw_engine *e, int step,
                      const struct sw_step_report *report)
{
    SW_TRY(test_same_reports(e, report));
    if (e->world.rank == 0) {
        job->losses[step] = report->loss;
        job->norms[step] = report->grad_norm;
    }
    return SW_OK;
}

static int64_t count_cut(const struct sw_engine *e)
{
    int64_t n = 0;
    for (int32_t i = 0; i < e->weights.params.n; i++) {
        struct sw_layout layout = e->weights.params.items[i].work->layout;
        layout.is_sliced = false;
        n += sw_shape_elems(&layout.whole) - sw_layout_held(&layout);
    }
    return n;
}

/* Ranks that hold the same elements have the same values. all: those of the owners */
static sw_status check_held(sw_engine *e, const float *all)
{
    float held[256];
    int64_t at = 0;
    SW_TRY(sw_engine_gather(e, 0, "the weights"));
    for (int32_t i = 0; i < e->weights.params.n; i++) {
        const struct sw_parameter *param = &e->weights.params.items[i];
        const struct sw_persistent *item = param->work;
        struct sw_run_iter iter;
        struct sw_run run;
        sw_runs_begin(param->master ? &param->master->layout : &item->layout, &iter);
        while (sw_runs_next(&iter, &run)) {
            const int64_t n = sw_min_i64(run.n, SW_LEN(held));
            SW_TRY(sw_get_weight(e, item->name, run.first, n, held));
            if (memcmp(held, all + at + run.first, (size_t)n * sizeof *held) != 0) {
                return SW_FAIL(SW_E_ARG, "%s on rank %d differs from that of its owner", item->name,
                               e->world.rank);
            }
        }
        at += sw_shape_elems(&item->layout.whole);
    }
    return SW_OK;
}

static sw_status train(void *ctx, sw_comm *comm)
{
    struct sliced *job = ctx;
    sw_engine *e = NULL;
    struct sw_step_report report;
    sw_status st = open_engine(job, comm, &e);
    st = st >= 0 && job->load ? sw_load(e, job->load) : st;
    for (int i = 0; st >= 0 && i < SLICED_STEPS && !job->idle; i++) {
        st = test_train_step(e, SLICED_MICRO_BATCHES, SLICED_BATCH, SLICED_TOKENS, SLICED_WORDS,
                             &report);
        st = st < 0 ? st : keep(job, e, i, &report);
    }
    st = st >= 0 && job->save ? sw_save(e, job->save, NULL) : st;
    st = st < 0 ? st : test_owned_weights(e, job->weights, SLICED_ELEMS);
    st = st < 0 ? st : check_held(e, job->weights);
    st = st >= 0 && job->after ? job->after(job, e) : st;
    if (st >= 0 && e->world.rank == 0) {
        job->n_cut = count_cut(e);
        job->n_tiled = e->plan->n_tiled;
    }
    sw_close(e);
    return st;
}

sw_status sliced_try(struct sliced *job)
{
    job->weights = calloc(SLICED_ELEMS, sizeof *job->weights);
    return sw_threads_run(job->data * job->tensor * stages_of(job), 60, train, job);
}

void sliced_run(struct sliced *job)
{
    if (sliced_try(job) < 0) {
        fail_msg("%s, data %d, tensor %d at stage %d: %s", job->model, job->data, job->tensor,
                 job->stage, sw_error_message());
    }
}

void sliced_clear(struct sliced *job)
{
    free(job->weights);
}

void sliced_assert_same(const struct sliced *a, const struct sliced *b)
{
    for (int i = 0; i < SLICED_STEPS; i++) {
        if (a->losses[i] != b->losses[i] || a->norms[i] != b->norms[i]) {
            fail_msg("%s, tensor %d: data %d at stage %d has in step %d loss %.17g and norm %.17g, "
                     "data %d at stage %d %.17g and %.17g",
                     a->model, a->tensor, a->data, a->stage, i, a->losses[i], a->norms[i], b->data,
                     b->stage, b->losses[i], b->norms[i]);
        }
    }
    assert_memory_equal(a->weights, b->weights, SLICED_ELEMS * sizeof *a->weights);
}

/* Infinite norms of steps that were skipped are near each other. */
static bool is_near(double a, double b, double tolerance)
{
    return a == b || fabs(a - b) <= tolerance * fabs(b);
}

void sliced_assert_near(const struct sliced *a, const struct sliced *b, double tolerance)
{
    for (int i = 0; i < SLICED_STEPS; i++) {
        if (!is_near(a->losses[i], b->losses[i], tolerance) ||
            !is_near(a->norms[i], b->norms[i], 10 * tolerance)) {
            fail_msg("%s, tensor %d: step %d has loss %.17g and norm %.17g, tensor %d %.17g and "
                     "%.17g",
                     a->model, a->tensor, i, a->losses[i], a->norms[i], b->tensor, b->losses[i],
                     b->norms[i]);
        }
    }
}

int sliced_set_up(void **state)
{
    (void)state;
    snprintf(sliced_models.odd, sizeof sliced_models.odd, "%s/config.json", test_folder());
    test_put("config.json", odd_json);
    snprintf(sliced_models.shared, sizeof sliced_models.shared, "%s/shared.json", test_folder());
    test_put("shared.json", shared_json);
    snprintf(sliced_models.packed, sizeof sliced_models.packed, "%s/packed.json", test_folder());
    test_put("packed.json", packed_json);
    snprintf(sliced_models.groups, sizeof sliced_models.groups, "%s/groups.json", test_folder());
    test_put("groups.json", groups_json);
    snprintf(sliced_models.single, sizeof sliced_models.single, "%s/single.json", test_folder());
    test_put("single.json", single_json);
    return 0;
}
