// SPDX-License-Identifier: Apache-2.0
// COST 8
// Models for every task, of non-decoder families. Batches follow the task's table. Training at
// stage 3 on two ranks, with tiles on disk, has the bits of stage 0 on one rank. Losses are sums of
// their terms. Omitted inputs get the table's defaults, and errors are named.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/private.h"
#include "engine/tests/owned.h"
#include "support/test.h"

enum { B = 2, T = 9, V = 53, K = 4, STEPS = 2, MOST_ELEMS = 1 << 16, MOST_BATCH = 1 << 15 };

static char path[64]; /* path of config.json */

#define SIZES                                                                                      \
    "\"vocab_size\": 53, \"hidden_size\": 16, \"num_hidden_layers\": 2, "                          \
    "\"num_attention_heads\": 2, \"intermediate_size\": 24, \"max_position_embeddings\": 14"
#define DISTIL_SIZES                                                                               \
    "\"vocab_size\": 53, \"dim\": 16, \"n_layers\": 2, \"n_heads\": 2, \"hidden_dim\": 24, "       \
    "\"max_position_embeddings\": 14"

#define BART                                                                                       \
    "\"model_type\": \"bart\", \"vocab_size\": 53, \"d_model\": 16, \"encoder_layers\": 2, "       \
    "\"decoder_layers\": 1, \"encoder_attention_heads\": 2, \"decoder_attention_heads\": 4, "      \
    "\"encoder_ffn_dim\": 24, \"decoder_ffn_dim\": 20, \"max_position_embeddings\": 14"
#define T5                                                                                         \
    "\"model_type\": \"t5\", \"vocab_size\": 53, \"d_model\": 16, \"d_kv\": 6, \"d_ff\": 24, "     \
    "\"num_layers\": 2, \"num_heads\": 2, \"relative_attention_num_buckets\": 8, "                 \
    "\"relative_attention_max_distance\": 12"

#define VIT                                                                                        \
    "\"model_type\": \"vit\", \"hidden_size\": 16, \"num_hidden_layers\": 2, "                     \
    "\"num_attention_heads\": 2, \"intermediate_size\": 24, \"image_size\": 8, \"patch_size\": 4"

struct family {
    const char *what, *config; /* members of config.json, with or without dropout */
    const char *task;
    int64_t labels;
};
static const struct family families[] = {
    {"bert, pretraining", "\"model_type\": \"bert\", " SIZES, "pretrain", 0},
    {"bert, tokens", "\"model_type\": \"bert\", " SIZES, "tokens", 5},
    {"roberta, masked", "\"model_type\": \"roberta\", " SIZES, "masked", 0},
    {"roberta, any of the classes", "\"model_type\": \"roberta\", " SIZES, "multi-label", 3},
    {"distilbert, answers", "\"model_type\": \"distilbert\", " DISTIL_SIZES, "answers", 0},
    {"distilbert, numbers", "\"model_type\": \"distilbert\", " DISTIL_SIZES, "regression", 2},
    {"bart, a text for a text", BART, "seq2seq", 0},
    {"bart, classes", BART, "classify", 3},
    {"t5, spans", T5, "denoise", 0},
    {"t5 1.1", T5 ", \"feed_forward_proj\": \"gated-gelu\", \"tie_word_embeddings\": false",
     "seq2seq", 0},
    {"deberta, masked",
     "\"model_type\": \"deberta-v2\", " SIZES
     ", \"relative_attention\": true, \"pos_att_type\": \"p2c|c2p\", \"share_att_key\": true, "
     "\"position_buckets\": 6, \"norm_rel_ebd\": \"layer_norm\", \"position_biased_input\": false, "
     "\"conv_kernel_size\": 3",
     "masked", 0},
    {"roberta, a head of its own and another padding",
     "\"model_type\": \"roberta\", \"tie_word_embeddings\": false, \"pad_token_id\": 3, " SIZES,
     "masked", 0},
    {"deberta, answers",
     "\"model_type\": \"deberta-v2\", " SIZES
     ", \"relative_attention\": true, \"pos_att_type\": \"c2p\", \"position_buckets\": 6",
     "answers", 0},
    {"vit, patches that leave some of the image",
     "\"model_type\": \"vit\", \"hidden_size\": 16, \"num_hidden_layers\": 2, "
     "\"num_attention_heads\": 2, \"intermediate_size\": 24, \"image_size\": [7, 9], "
     "\"patch_size\": [3, 2]",
     "images", 5},
    {"vit", VIT, "images", 5},
    {"cifar", "\"model_type\": \"cifar_net\"", "images", 10},
    {"lstm", "\"model_type\": \"bi_lstm_classifier\", \"vocab\": 53, \"width\": 8, \"hidden\": 6",
     "classify", 3},
    {"vit, any of the classes", VIT, "images-multi-label", 5},
    {"vit, a number", VIT, "images-regression", 1},
    {"distilbert that begins with sines",
     "\"model_type\": \"distilbert\", \"sinusoidal_pos_embds\": true, " DISTIL_SIZES, "masked", 0},
    {"opt, norms without weights",
     "\"model_type\": \"opt\", \"vocab_size\": 53, \"hidden_size\": 16, "
     "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"ffn_dim\": 24, "
     "\"max_position_embeddings\": 14, \"word_embed_proj_dim\": 16, "
     "\"layer_norm_elementwise_affine\": false, \"activation_function\": \"relu2\"",
     "causal", 0},
    {"bloom, sums of what norms made",
     "\"model_type\": \"bloom\", \"vocab_size\": 53, \"hidden_size\": 16, \"n_layer\": 2, "
     "\"n_head\": 2, \"apply_residual_connection_post_layernorm\": true",
     "causal", 0},
};

static void write_config(const char *members)
{
    char text[1024];
    snprintf(text, sizeof text, "{%s}", members);
    assert_int_equal(sw_file_write_atomic(path, text, strlen(text)), SW_OK);
}

/* ---- batches from the table ---- */

struct made {
    union {
        int32_t i32[MOST_BATCH / 4];
        float f32[MOST_BATCH / 4];
    } data[SW_TASK_MAX_INPUTS];
    struct sw_tensor tensors[SW_TASK_MAX_INPUTS];
    struct sw_batch batch;
};

/* Element i of an input. Every row has some padding at its end. */
static int32_t element(const struct sw_task *task, const struct sw_task_sizes *sizes,
                       const struct sw_task_input *input, uint64_t random, int64_t i)
{
    const bool real = i % T < T - i / T % 3;
    const struct sw_task_loss *loss = sw_task_loss_of(task, input->name);
    const bool told = strcmp(task->name, "tokens") == 0 || input->rank == 1;
    const int64_t classes =
        sw_task_input_of(task, "labels") == input && loss ? told ? sizes->of[SW_DIM_LABELS] : V : 2;
    if (loss && loss->kind == SW_LOSS_PLACE) {
        return (int32_t)(random % (T + 3)); /* some are out of range */
    }
    if (loss) {
        return random % 5 == 0 ? -100 : (int32_t)(random / 5 % (uint64_t)classes);
    }
    if (strcmp(input->name, "lengths") == 0) {
        return 1 + (int32_t)(random % T);
    }
    if (strcmp(input->name, "attention_mask") == 0) {
        return real;
    }
    return strcmp(input->name, "input_ids") != 0 ? (int32_t)(random % 2)
           : real                                ? 2 + (int32_t)(random % (V - 2))
                                                 : 1;
}

static void make(const struct sw_engine *e, int64_t number, struct made *out)
{
    const struct sw_engine_facts facts = sw_engine_facts(e);
    int n = 0;
    for (int i = 0; i < facts.task->n_inputs; i++) {
        const struct sw_task_input *input = &facts.task->inputs[i];
        const struct sw_shape shape = sw_task_shape(input, &facts.sizes);
        const int64_t elems = sw_shape_elems(&shape);
        const bool left_out = input->absent == SW_ABSENT_COUNTED ||
                              strcmp(input->name, "segments") == 0 ||
                              strcmp(input->name, SW_TASK_WEIGHTS) == 0;
        if (left_out) {
            continue;
        }
        assert_true((size_t)elems <= SW_LEN(out->data[n].i32));
        for (int64_t k = 0; k < elems; k++) {
            const uint64_t random = sw_philox_u64(7, (uint64_t)i, (uint64_t)(number * elems + k));
            if (input->dtype == SW_F32) {
                out->data[n].f32[k] = (float)(random % 2);
            } else {
                out->data[n].i32[k] = element(facts.task, &facts.sizes, input, random, k);
            }
        }
        out->tensors[n] = (struct sw_tensor){
            input->name, {.data = out->data[n].i32, .dtype = input->dtype, .shape = shape}};
        n++;
    }
    out->batch = (struct sw_batch){out->tensors, n};
}

static struct sw_view *view_of(struct made *made, const char *name)
{
    for (int i = 0; i < made->batch.n_tensors; i++) {
        if (strcmp(made->tensors[i].name, name) == 0) {
            return &made->tensors[i].view;
        }
    }
    fail_msg("no input %s", name);
    return NULL;
}

/* ---- the same bits ---- */

struct job {
    const struct family *family;
    const char *config;
    double losses[STEPS], eval;
    float weights[MOST_ELEMS];
    int n_tiled, n_remade;
    uint64_t fingerprint;
};

static sw_status open_family(const struct family *family, const char *config, sw_comm *comm,
                             sw_engine **out)
{
    const bool reads_text = !family->task || sw_task_of(family->task)->rows != SW_ROWS_IMAGES;
    const struct sw_engine_options options = {
        .config.text = config,
        .model = {.path = path, .task = family->task, .labels = family->labels},
        .inputs.seq_len = reads_text ? T : 0,
        .run = {.comm = comm, .verify = true},
        .seed = 3,
        .train.wanted = true,
        .evaluate.loss = true,
    };
    return sw_initialize(&options, out);
}

static sw_status train_steps(sw_engine *e, struct job *job)
{
    static _Thread_local struct made made[K];
    for (int s = 0; s < STEPS; s++) {
        struct sw_batch batches[K];
        struct sw_step_report report;
        const int64_t n = sw_engine_local_micro_batches(e);
        for (int64_t j = 0; j < n; j++) {
            make(e, s * K + j * e->data.size + e->data.rank, &made[j]);
            batches[j] = made[j].batch;
        }
        SW_TRY(sw_train_batch(e, batches, n, &report));
        double sum, count;
        make(e, 1000, &made[0]);
        SW_TRY(sw_evaluate(e, &made[0].batch, &sum, &count));
        if (e->data.rank == 0) {
            job->losses[s] = report.loss;
            job->eval = sum;
        }
    }
    return SW_OK;
}

static sw_status train(void *ctx, sw_comm *comm)
{
    struct job *job = ctx;
    sw_engine *e = NULL;
    SW_TRY(open_family(job->family, job->config, comm, &e));
    sw_status st = train_steps(e, job);
    st = st < 0 ? st : test_owned_weights(e, job->weights, MOST_ELEMS);
    st = st < 0 ? st : sw_comm_barrier(comm, "the weights");
    if (e->data.rank == 0) {
        job->n_tiled = e->plan->n_tiled;
        job->n_remade = e->plan->programs[e->programs.train].remade.n;
        job->fingerprint = e->plan->fingerprint;
    }
    sw_close(e);
    return st;
}

static struct job *run(const struct family *family, const char *config, int ranks)
{
    struct job *job = calloc(1, sizeof *job);
    assert_non_null(job);
    job->family = family;
    job->config = config;
    write_config(family->config);
    if (sw_threads_run(ranks, 60, train, job) < 0) {
        fail_msg("%s: %s", family->what, sw_error_message());
    }
    return job;
}

static void assert_same_bits(const struct family *family, const struct job *one,
                             const struct job *two)
{
    if (memcmp(one->losses, two->losses, sizeof one->losses) != 0 || one->eval != two->eval ||
        memcmp(one->weights, two->weights, sizeof one->weights) != 0) {
        fail_msg("%s: other bits (losses %.9g %.9g, %.9g %.9g)", family->what, one->losses[0],
                 one->losses[1], two->losses[0], two->losses[1]);
    }
}

#define COMMON_32                                                                                  \
    "\"train_micro_batch_size_per_gpu\": 2, \"gradient_clipping\": 0.5, \"optimizer\": "           \
    "{\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, "
#define COMMON COMMON_32 "\"bf16\": {\"enabled\": true}, "
static const char plain[] = "{" COMMON "\"spillway\": {\"micro_batches\": 4, \"loss_chunk\": 8}}";
static const char far[] =
    "{" COMMON "\"zero_optimization\": {\"stage\": 3, \"stage3_param_persistence_threshold\": 20, "
    "\"sub_group_size\": 100, "
    "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"/tmp\"}, "
    "\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"/tmp\"}}, "
    "\"spillway\": {\"micro_batches\": 4, \"loss_chunk\": 8, \"tile_bytes\": 512, "
    "\"recompute\": \"blocks\"}}";

static void every_family_has_the_same_bits_far_away(void **state)
{
    (void)state;
    for (size_t f = 0; f < SW_LEN(families); f++) {
        struct job *one = run(&families[f], plain, 1), *two = run(&families[f], far, 2);
        assert_true(isfinite(one->losses[0]) && one->losses[0] != one->losses[1]);
        /* matrices this small have no tiles, and image models have no tables */
        assert_true(two->n_tiled > 0 || strncmp(families[f].task, "images", 6) == 0);
        assert_same_bits(&families[f], one, two);
        free(one);
        free(two);
    }
}

/* In fp32 the recomputed values include activations. */
static void what_is_made_again_has_the_same_bits(void **state)
{
    (void)state;
    static const char *const kept[] = {"{" COMMON "\"spillway\": {\"recompute_cheap\": false}}",
                                       "{" COMMON_32 "\"spillway\": {\"recompute_cheap\": false}}"};
    static const char *const made[] = {"{" COMMON "\"spillway\": {}}",
                                       "{" COMMON_32 "\"spillway\": {}}"};
    size_t n_with_some = 0;
    for (size_t f = 0; f < SW_LEN(families); f++) {
        for (size_t i = 0; i < SW_LEN(kept); i++) {
            struct job *all = run(&families[f], kept[i], 1), *less = run(&families[f], made[i], 1);
            assert_int_equal(all->n_remade, 0);
            n_with_some += less->n_remade > 0;
            assert_same_bits(&families[f], all, less);
            free(all);
            free(less);
        }
    }
    /* at least half of the runs recompute something */
    assert_true(n_with_some >= SW_LEN(families));
}

/* ---- label smoothing ---- */

/* Computes the smoothed loss of a term by the formula, from the model's outputs: sum and count. */
static void smoothed(const struct sw_task_loss *loss, const float *x, int64_t classes,
                     const int32_t *labels, int64_t n_labels, double e, double out[2])
{
    out[0] = out[1] = 0;
    for (int64_t r = 0; r < n_labels; r++, x += classes) {
        const bool beyond = loss->kind == SW_LOSS_PLACE && labels[r] >= classes;
        double total = 0, mean = 0;
        if (labels[r] == -100 || beyond) {
            continue;
        }
        for (int64_t c = 0; c < classes; c++) {
            total += exp(x[c]);
            mean += x[c] / (double)classes;
        }
        out[0] += (1 - e) * (log(total) - x[labels[r]]) + e * (log(total) - mean);
        out[1]++;
    }
}

static sw_status open_smoothed(const struct family *family, double e, sw_engine **out)
{
    char config[128];
    snprintf(config, sizeof config,
             "{\"train_micro_batch_size_per_gpu\": 2, \"spillway\": {\"label_smoothing\": %g}}", e);
    const struct sw_engine_options options = {
        .config.text = config,
        .model = {.path = path, .task = family->task, .labels = family->labels},
        .inputs.seq_len = T,
        .seed = 3,
        .evaluate = {.loss = true, .logits = true},
    };
    write_config(family->config);
    return sw_initialize(&options, out);
}

/* Covers materialized logits, a head that never materializes them, positions, and two terms. */
static void a_smoothed_loss_is_what_its_formula_says(void **state)
{
    static const int of[] = {0, 4, 6, 7, 9};
    static struct made made;
    static const struct sw_task_loss classes = {.kind = SW_LOSS_CLASSES};
    static const float few[] = {0.5F, -1.25F, 2, 0, 3, 0.25F, -0.75F, 1.5F, -2, 0.125F, 0.5F, 1};
    static const int32_t few_labels[] = {2, -100, 0};
    double torch[2];
    (void)state;
    /* torch.nn.functional.cross_entropy(.., label_smoothing=0.2, reduction="sum") in float64 */
    smoothed(&classes, few, 4, few_labels, 3, 0.2, torch);
    assert_true(fabs(torch[0] - 4.019832151299) < 1e-11 && torch[1] == 2);
    for (size_t f = 0; f < SW_LEN(of); f++) {
        sw_engine *e = NULL;
        double terms[2 * SW_TASK_MAX_LOSSES], want[2];
        assert_int_equal(open_smoothed(&families[of[f]], 0.2, &e), SW_OK);
        const struct sw_task *task = sw_engine_facts(e).task;
        make(e, 0, &made);
        assert_int_equal(sw_engine_evaluate(e, &made.batch, terms), SW_OK);
        assert_int_equal(sw_logits(e, &made.batch, NULL), SW_OK);
        for (int i = 0; i < task->n_losses; i++) {
            const struct sw_view *labels = view_of(&made, task->losses[i].labels);
            const int64_t n = sw_shape_elems(&labels->shape);
            const int64_t elems = sw_engine_output_elems(e, task->losses[i].output);
            float *x = calloc((size_t)elems, sizeof *x);
            assert_non_null(x);
            assert_int_equal(sw_engine_output(e, task->losses[i].output, x), SW_OK);
            smoothed(&task->losses[i], x, elems / n, labels->data, n, 0.2, want);
            assert_true(want[1] > 0 && terms[2 * i + 1] == want[1]);
            assert_true(fabs(terms[2 * i] - want[0]) < 1e-5 * want[0]);
            free(x);
        }
        sw_close(e);
    }
}

static void smoothed_losses_have_the_same_bits_far_away(void **state)
{
    static const int of[] = {0, 9};
    char near_config[1024], far_config[1024];
    (void)state;
    snprintf(near_config, sizeof near_config, "%.*s, \"label_smoothing\": 0.1}}",
             (int)strlen(plain) - 2, plain);
    snprintf(far_config, sizeof far_config, "%.*s, \"label_smoothing\": 0.1}}",
             (int)strlen(far) - 2, far);
    for (size_t f = 0; f < SW_LEN(of); f++) {
        struct job *one = run(&families[of[f]], near_config, 1);
        struct job *two = run(&families[of[f]], far_config, 2);
        struct job *sharp = run(&families[of[f]], plain, 1);
        assert_memory_equal(one->losses, two->losses, sizeof one->losses);
        assert_memory_equal(one->weights, two->weights, sizeof one->weights);
        assert_true(one->losses[0] != sharp->losses[0] && one->eval != sharp->eval);
        assert_true(one->fingerprint != sharp->fingerprint);
        free(one);
        free(two);
        free(sharp);
    }
}

static void labels_of_other_losses_are_not_smoothed(void **state)
{
    static const int of[] = {3, 5};
    (void)state;
    for (size_t f = 0; f < SW_LEN(of); f++) {
        sw_engine *e = NULL;
        assert_int_equal(open_smoothed(&families[of[f]], 0.1, &e), SW_E_CONFIG);
        assert_non_null(strstr(sw_error_message(), "spillway.label_smoothing 0.1: the loss of"));
        assert_non_null(strstr(sw_error_message(), families[of[f]].task));
    }
}

/* ---- losses of several terms ---- */

static sw_engine *open_one(const struct family *family)
{
    sw_engine *e = NULL;
    write_config(family->config);
    if (open_family(family, plain, NULL, &e) < 0) {
        fail_msg("%s: %s", family->what, sw_error_message());
    }
    return e;
}

static void a_loss_is_the_sum_of_its_terms_means(void **state)
{
    static const struct {
        int family;
        double weight;
    } rows[] = {{0, 1}, {4, 0.5}};
    static struct made made;
    (void)state;
    for (size_t r = 0; r < SW_LEN(rows); r++) {
        sw_engine *e = open_one(&families[rows[r].family]);
        double terms[2 * SW_TASK_MAX_LOSSES], loss, sum, count;
        make(e, 0, &made);
        assert_int_equal(sw_engine_terms(e), 2);
        assert_int_equal(sw_engine_evaluate(e, &made.batch, terms), SW_OK);
        const double want =
            rows[r].weight * terms[0] / terms[1] + rows[r].weight * terms[2] / terms[3];
        assert_true(terms[1] > 0 && terms[3] > 0 && terms[1] + terms[3] > 2);
        assert_true(fabs(sw_engine_mean_loss(e, terms) - want) < 1e-12);
        assert_int_equal(sw_evaluate(e, &made.batch, &sum, &count), SW_OK);
        assert_true(count == terms[1] && fabs(sum / count - want) < 1e-12);
        double alone[2 * SW_TASK_MAX_LOSSES];
        assert_int_equal(sw_evaluate_terms(e, &made.batch, alone), SW_OK);
        assert_memory_equal(alone, terms, 4 * sizeof *terms);
        assert_int_equal(sw_forward(e, &made.batch, &loss), SW_OK);
        assert_true(isfinite(loss)); /* with dropout */
        sw_close(e);
    }
}

static void a_sum_of_terms_has_no_mean_over_all_targets(void **state)
{
    sw_engine *e = NULL;
    (void)state;
    write_config(families[0].config);
    assert_int_equal(open_family(&families[0],
                                 "{\"train_micro_batch_size_per_gpu\": 2, \"spillway\": {\"loss\": "
                                 "\"tokens\"}}",
                                 NULL, &e),
                     SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "spillway.loss \"tokens\": this loss has 2 terms"));
}

/* ---- inputs ---- */

static void what_a_batch_leaves_out_is_what_the_table_says(void **state)
{
    static struct made made;
    double full[4], sparse[4];
    (void)state;
    sw_engine *e = open_one(&families[0]);
    make(e, 0, &made);
    int32_t *mask = view_of(&made, "attention_mask")->data;
    int32_t *types = view_of(&made, "token_type_ids")->data;
    for (int i = 0; i < B * T; i++) {
        mask[i] = 1;
        types[i] = 0;
    }
    assert_int_equal(sw_engine_evaluate(e, &made.batch, full), SW_OK);
    struct sw_tensor kept[SW_TASK_MAX_INPUTS];
    int n = 0;
    for (int i = 0; i < made.batch.n_tensors; i++) {
        const char *name = made.tensors[i].name;
        if (strcmp(name, "attention_mask") != 0 && strcmp(name, "token_type_ids") != 0) {
            kept[n++] = made.tensors[i];
        }
    }
    const struct sw_batch fewer = {kept, n};
    assert_int_equal(n, made.batch.n_tensors - 2);
    assert_int_equal(sw_engine_evaluate(e, &fewer, sparse), SW_OK);
    assert_memory_equal(full, sparse, sizeof full);
    sw_close(e);
}

static void refused(sw_engine *e, const struct made *made, const char *says)
{
    double sum, count;
    assert_int_equal(sw_evaluate(e, &made->batch, &sum, &count), SW_E_ARG);
    if (!strstr(sw_error_message(), says)) {
        fail_msg("\"%s\" lacks \"%s\"", sw_error_message(), says);
    }
}

static void labels_and_ids_out_of_range_are_named(void **state)
{
    static struct made made;
    (void)state;
    sw_engine *e = open_one(&families[0]);
    make(e, 0, &made);
    ((int32_t *)view_of(&made, "next_sentence_label")->data)[1] = 2;
    refused(e, &made, "next_sentence_label: 2 at [1]; wanted 0 .. 1, or -100 for none");
    make(e, 0, &made);
    ((int32_t *)view_of(&made, "token_type_ids")->data)[3] = 2;
    refused(e, &made, "token_type_ids: 2 at [0, 3]; wanted 0 .. 1");
    make(e, 0, &made);
    view_of(&made, "labels")->shape.dims[1]--;
    refused(e, &made, "labels: wanted i32[2, 9], got i32[2, 8]");
    sw_close(e);
    e = open_one(&families[1]);
    make(e, 0, &made);
    ((int32_t *)view_of(&made, "labels")->data)[10] = 5;
    refused(e, &made, "labels: 5 at [1, 1]; wanted 0 .. 4, or -100 for none");
    sw_close(e);
    e = open_one(&families[5]);
    make(e, 0, &made);
    view_of(&made, "labels")->dtype = SW_I32;
    refused(e, &made, "labels: wanted f32[2, 2], got i32[2, 2]");
    sw_close(e);
}

/* ---- a trunk with a new head ---- */

static void a_trunk_alone_is_not_trained(void **state)
{
    static const struct family trunk = {
        "a trunk", "\"model_type\": \"bert\", \"architectures\": [\"BertModel\"], " SIZES, NULL, 0};
    sw_engine *e = NULL;
    (void)state;
    write_config(trunk.config);
    assert_int_equal(open_family(&trunk, plain, NULL, &e), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "BertModel has no head"));
}

/* The trunk's values are kept and the classifier is new. Exported, the model has its new class. */
static void a_folder_of_another_class_gives_its_trunk(void **state)
{
    static const struct family masked = {"", "\"model_type\": \"bert\", " SIZES, "masked", 0};
    char folder[] = "/tmp/spillway-tasks-XXXXXX", again[96], command[160];
    float from[V * 16], to[V * 16];
    const char *table = "bert.embeddings.word_embeddings.weight";
    (void)state;
    assert_non_null(mkdtemp(folder));
    sw_engine *e = open_one(&masked);
    assert_int_equal(sw_get_weight(e, table, 0, V * 16, from), SW_OK);
    assert_int_equal(sw_export(e, folder, SW_F32), SW_OK);
    sw_close(e);
    const struct sw_engine_options as = {.config.text = plain,
                                         .model = {.path = folder, .task = "classify", .labels = 4},
                                         .inputs.seq_len = T,
                                         .seed = 8,
                                         .train.wanted = true};
    assert_int_equal(sw_initialize(&as, &e), SW_OK);
    assert_int_equal(sw_get_weight(e, table, 0, V * 16, to), SW_OK);
    assert_memory_equal(from, to, sizeof from);
    snprintf(again, sizeof again, "%s/classes", folder);
    assert_int_equal(sw_export(e, again, SW_F32), SW_OK);
    assert_int_equal(sw_get_weight(e, "classifier.weight", 0, 4 * 16, from), SW_OK);
    sw_close(e);
    const struct sw_engine_options own = {
        .config.text = plain, .model.path = again, .inputs.seq_len = T, .train.wanted = true};
    assert_int_equal(sw_initialize(&own, &e), SW_OK);
    assert_string_equal(sw_engine_facts(e).task->name, "classify");
    assert_int_equal(sw_engine_facts(e).sizes.of[SW_DIM_LABELS], 4);
    assert_int_equal(sw_get_weight(e, "classifier.weight", 0, 4 * 16, to), SW_OK);
    assert_memory_equal(from, to, 4 * 16 * sizeof *from);
    sw_close(e);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    assert_int_equal(system(command), 0);
}

/* ---- embeddings ---- */

static void a_text_has_the_same_vector_with_and_without_padding(void **state)
{
    enum { WIDTH = 16 };
    static const struct family trunk = {"", "\"model_type\": \"bert\", " SIZES, "embed", 0};
    static struct made made;
    float means[B * WIDTH], firsts[B * WIDTH], hidden[B * T * WIDTH];
    const struct sw_embed_options mean = {SW_POOL_MEAN, false}, cls = {SW_POOL_CLS, true};
    (void)state;
    write_config(trunk.config);
    const struct sw_engine_options options = {
        .config.text = plain, .model.path = path, .inputs.seq_len = T, .embed.wanted = true};
    sw_engine *e = NULL;
    assert_int_equal(sw_initialize(&options, &e), SW_OK);
    assert_int_equal(sw_engine_width(e), WIDTH);
    make(e, 0, &made);
    int32_t *ids = view_of(&made, "input_ids")->data,
            *mask = view_of(&made, "attention_mask")->data;
    memset(view_of(&made, "token_type_ids")->data, 0, sizeof(int32_t[B * T]));
    for (int t = 0; t < T; t++) { /* the second row equals the first, plus masked tokens */
        mask[t] = mask[T + t] = t < T - 3;
        ids[T + t] = t < T - 3 ? ids[t] : 5;
    }
    assert_int_equal(sw_embed(e, &made.batch, &mean, means), SW_OK);
    assert_memory_equal(means, means + WIDTH, WIDTH * sizeof *means);
    assert_int_equal(sw_logits(e, &made.batch, hidden), SW_OK);
    assert_int_equal(sw_embed(e, &made.batch, &cls, firsts), SW_OK);
    double squares = 0, sum = 0;
    for (int c = 0; c < WIDTH; c++) {
        squares += (double)firsts[c] * (double)firsts[c];
    }
    for (int t = 0; t < T - 3; t++) {
        sum += (double)hidden[t * WIDTH];
    }
    assert_true(fabs(squares - 1) < 1e-6 && fabs(sum / (T - 3) - (double)means[0]) < 1e-6);
    assert_true(
        fabs((double)firsts[0] / (double)firsts[1] - (double)hidden[0] / (double)hidden[1]) < 1e-4);
    sw_close(e);
    e = open_one(&families[0]);
    assert_int_equal(sw_embed(e, &made.batch, &mean, means), SW_E_ARG);
    sw_close(e);
}

/* The padding id is the model's own. Only next-token labels are shifted. Only labels of an
 * encoder-decoder are decoder input. */
static void what_a_batch_of_transformers_has_for_each_input(void **state)
{
    (void)state;
    for (size_t f = 0; f < SW_LEN(families); f++) {
        write_config(families[f].config);
        sw_engine *e = open_one(&families[f]);
        for (int32_t i = 0; i < sw_engine_n_inputs(e); i++) {
            struct sw_input_info info;
            struct sw_hf_input hf;
            assert_int_equal(sw_engine_input(e, i, &info), SW_OK);
            assert_int_equal(sw_engine_hf_input(e, i, &hf), SW_OK);
            const bool is_label =
                strstr(info.name, "label") || strstr(info.name, "_positions") != NULL;
            const double pad = strcmp(info.name, "input_ids") == 0
                                   ? (double)e->weights.model->pad_id
                               : is_label ? -100
                                          : 0;
            assert_string_equal(hf.name,
                                strcmp(info.name, "positions") == 0 ? "position_ids" : info.name);
            assert_true(info.dtype == SW_F32 && is_label ? isnan(hf.pad) : hf.pad == pad);
            assert_true(hf.shifted ==
                        (is_label && strcmp(e->weights.model->task->name, "causal") == 0));
            assert_int_equal(hf.start, is_label && sw_model_is_seq2seq(e->weights.model)
                                           ? e->weights.model->start_id
                                           : -1);
        }
        sw_close(e);
    }
    static const struct family padded = {
        "", "\"model_type\": \"roberta\", \"pad_token_id\": 3, " SIZES, "masked", 0};
    write_config(padded.config);
    sw_engine *e = open_one(&padded);
    struct sw_hf_input hf;
    assert_int_equal(sw_engine_hf_input(e, 0, &hf), SW_OK);
    assert_true(hf.pad == 3);
    assert_int_equal(sw_engine_hf_input(e, 99, &hf), SW_E_ARG);
    sw_close(e);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/spillway-tasks-%ld.json", (long)getpid());
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return unlink(path);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_family_has_the_same_bits_far_away),
    cmocka_unit_test(what_is_made_again_has_the_same_bits),
    cmocka_unit_test(a_smoothed_loss_is_what_its_formula_says),
    cmocka_unit_test(smoothed_losses_have_the_same_bits_far_away),
    cmocka_unit_test(labels_of_other_losses_are_not_smoothed),
    cmocka_unit_test(a_loss_is_the_sum_of_its_terms_means),
    cmocka_unit_test(a_sum_of_terms_has_no_mean_over_all_targets),
    cmocka_unit_test(what_a_batch_leaves_out_is_what_the_table_says),
    cmocka_unit_test(what_a_batch_of_transformers_has_for_each_input),
    cmocka_unit_test(labels_and_ids_out_of_range_are_named),
    cmocka_unit_test(a_trunk_alone_is_not_trained),
    cmocka_unit_test(a_folder_of_another_class_gives_its_trunk),
    cmocka_unit_test(a_text_has_the_same_vector_with_and_without_padding),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up, .teardown = tear_down};
