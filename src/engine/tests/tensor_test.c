// SPDX-License-Identifier: Apache-2.0
// Training on ranks of the tensor axis: losses follow those of one rank. Ranks along data and the
// stages of ZeRO change no bit, as the tensor axis alone cuts sums. Checkpoints are of the whole
// tensors, and load on any number of ranks.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/private.h"
#include "engine/tests/owned.h"
#include "support/scratch.h"
#include "support/test.h"

enum { B = 2, T = 8, V = 19, K = 3, STEPS = 10, MOST_RANKS = 8, MOST_ELEMS = 1 << 20 };

/* Its heads and inner width divide by 4 ranks, its vocabulary does not. */
static const char odd_json[] =
    "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"vocab_size\":19,"
    "\"n_positions\":8,\"n_embd\":12,\"n_layer\":2,\"n_head\":4,\"n_inner\":20,\"embd_pdrop\":0.1,"
    "\"attn_pdrop\":0.1,\"resid_pdrop\":0.1}";
static char odd_path[96];
/* Four ranks share two key heads. */
static const char shared_json[] =
    "{\"model_type\":\"qwen3\",\"architectures\":[\"Qwen3ForCausalLM\"],\"vocab_size\":19,"
    "\"max_position_embeddings\":8,\"hidden_size\":12,\"num_hidden_layers\":2,\"head_dim\":4,"
    "\"num_attention_heads\":4,\"num_key_value_heads\":2,\"intermediate_size\":20}";
static char shared_path[96];

struct job {
    const char *model;
    int data, tensor, stage;
    bool idle;                    /* trains no step */
    const char *optimizer, *more; /* NULL: AdamW; further keys of the configuration */
    const char *load, *save;
    /* results */
    double losses[STEPS], norms[STEPS];
    float *weights; /* [MOST_ELEMS] of all ranks together */
    int64_t n_cut;  /* elements that rank 0 lacks */
    sw_status status;
    char message[1024];
};

static sw_status one_step(sw_engine *e, struct sw_step_report *report)
{
    static const struct sw_shape shape = {2, {B, T}};
    int32_t ids[K][B * T];
    struct sw_tensor tensors[K][2];
    struct sw_batch batches[K];
    int n = 0;
    for (int k = e->data.rank; k < K; k += e->data.size, n++) {
        for (int i = 0; i < B * T; i++) {
            const uint64_t at = (uint64_t)((e->progress.step * K + k) * B * T + i);
            ids[n][i] = (int32_t)(sw_philox_u64(9, 1, at) % V);
        }
        const struct sw_view view = {.data = ids[n], .dtype = SW_I32, .shape = shape};
        tensors[n][0] = (struct sw_tensor){"input_ids", view};
        tensors[n][1] = (struct sw_tensor){"labels", view};
        batches[n] = (struct sw_batch){tensors[n], 2};
    }
    return sw_train_batch(e, batches, n, report);
}

static sw_status open_engine(const struct job *job, sw_comm *comm, sw_engine **out)
{
    char config[1024];
    snprintf(config, sizeof config,
             "{\"train_micro_batch_size_per_gpu\": %d, \"gradient_clipping\": 0.5, "
             "\"zero_optimization\": {\"stage\": %d, \"stage3_param_persistence_threshold\": 30}, "
             "\"optimizer\": {\"type\": \"%s\", \"params\": {\"lr\": 0.003}}, \"spillway\": "
             "{\"micro_batches\": %d, \"threads\": 1, \"allow_other_math\": true, "
             "\"mesh\": {\"tensor\": %d}%s}}",
             B, job->stage, job->optimizer ? job->optimizer : "AdamW", K, job->tensor,
             job->more ? job->more : "");
    const struct sw_engine_options options = {.config.text = config,
                                              .model.path = job->model,
                                              .inputs.seq_len = T,
                                              .run = {.comm = comm, .verify = true},
                                              .seed = 5,
                                              .train.wanted = true};
    return sw_initialize(&options, out);
}

/* All ranks report the same. */
static sw_status keep(struct job *job, const struct sw_engine *e, int step,
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
        const struct sw_persistent *item = e->weights.params.items[i].work;
        struct sw_run_iter iter;
        struct sw_run run;
        sw_runs_begin(&item->layout, &iter);
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
    struct job *job = ctx;
    sw_engine *e = NULL;
    struct sw_step_report report;
    sw_status st = open_engine(job, comm, &e);
    st = st >= 0 && job->load ? sw_load(e, job->load) : st;
    for (int i = 0; st >= 0 && i < STEPS && !job->idle; i++) {
        st = one_step(e, &report);
        st = st < 0 ? st : keep(job, e, i, &report);
    }
    st = st >= 0 && job->save ? sw_save(e, job->save, NULL) : st;
    st = st < 0 ? st : test_owned_weights(e, job->weights, MOST_ELEMS);
    st = st < 0 ? st : check_held(e, job->weights);
    if (st >= 0 && e->world.rank == 0) {
        job->n_cut = count_cut(e);
    }
    sw_close(e);
    return st;
}

static void run(struct job *job)
{
    job->weights = calloc(MOST_ELEMS, sizeof *job->weights);
    job->status = sw_threads_run(job->data * job->tensor, 60, train, job);
    snprintf(job->message, sizeof job->message, "%s", sw_error_message());
    if (job->status < 0) {
        fail_msg("%s, data %d, tensor %d at stage %d: %s", job->model, job->data, job->tensor,
                 job->stage, job->message);
    }
}

static void clear(struct job *job)
{
    free(job->weights);
}

static void assert_same(const struct job *a, const struct job *b)
{
    for (int i = 0; i < STEPS; i++) {
        if (a->losses[i] != b->losses[i] || a->norms[i] != b->norms[i]) {
            fail_msg("%s, tensor %d: data %d at stage %d has in step %d loss %.17g and norm %.17g, "
                     "data %d at stage %d %.17g and %.17g",
                     a->model, a->tensor, a->data, a->stage, i, a->losses[i], a->norms[i], b->data,
                     b->stage, b->losses[i], b->norms[i]);
        }
    }
    assert_memory_equal(a->weights, b->weights, MOST_ELEMS * sizeof *a->weights);
}

static void assert_near(const struct job *a, const struct job *b, double tolerance)
{
    for (int i = 0; i < STEPS; i++) {
        if (!(fabs(a->losses[i] - b->losses[i]) <= tolerance * fabs(b->losses[i])) ||
            !(fabs(a->norms[i] - b->norms[i]) <= 10 * tolerance * fabs(b->norms[i]))) {
            fail_msg("%s, tensor %d: step %d has loss %.17g and norm %.17g, tensor %d %.17g and "
                     "%.17g",
                     a->model, a->tensor, i, a->losses[i], a->norms[i], b->tensor, b->losses[i],
                     b->norms[i]);
        }
    }
}

/* ---- training ---- */

/* sizes: of the tensor axis, ended by 0 */
static void follow_one_rank(struct job one, const int *sizes)
{
    one.data = one.tensor = 1;
    run(&one);
    assert_int_equal(one.n_cut, 0);
    for (; *sizes > 0; sizes++) {
        struct job job = one;
        job.tensor = *sizes;
        run(&job);
        assert_near(&job, &one, 1e-4);
        assert_true(job.n_cut > 0);
        clear(&job);
    }
    clear(&one);
}

static void losses_follow_those_of_one_rank(void **state)
{
    static const int sizes[] = {2, 4, 0}, two[] = {2, 0};
    (void)state;
    follow_one_rank((struct job){.model = "gpt2-tiny"}, sizes);
    follow_one_rank((struct job){.model = "llama-tiny"}, two);
    follow_one_rank((struct job){.model = odd_path}, sizes);
    follow_one_rank((struct job){.model = odd_path, .more = ", \"sequence_parallel\": false"}, two);
    follow_one_rank((struct job){.model = shared_path}, sizes);
}

/* Its trust ratios are of whole parameters. */
static void lamb_follows_one_rank(void **state)
{
    (void)state;
    follow_one_rank((struct job){.model = odd_path, .optimizer = "Lamb"}, (const int[]){4, 0});
    struct job first = {odd_path, 1, 2, .stage = 0, .optimizer = "Lamb"};
    struct job sliced = {odd_path, 2, 2, .stage = 3, .optimizer = "Lamb"};
    run(&first);
    run(&sliced);
    assert_same(&sliced, &first);
    clear(&sliced);
    clear(&first);
}

static void states_of_several_elements_are_refused(void **state)
{
    (void)state;
    struct job job = {
        "gpt2-tiny", 1, 2, .stage = 0, .idle = true, .more = ", \"moments\": \"8bit\""};
    job.weights = calloc(MOST_ELEMS, sizeof *job.weights);
    assert_int_equal(sw_threads_run(2, 60, train, &job), SW_E_UNSUP);
    assert_non_null(strstr(sw_error_message(), "spillway.mesh.tensor 2"));
    assert_non_null(strstr(sw_error_message(), "several elements"));
    clear(&job);
}

struct other {
    int data, stage;
};

static void change_no_bit(const char *model, int tensor, const struct other *others, size_t n)
{
    struct job first = {model, 1, tensor, .stage = 0};
    run(&first);
    for (size_t i = 0; i < n; i++) {
        struct job job = {model, others[i].data, tensor, .stage = others[i].stage};
        run(&job);
        assert_same(&job, &first);
        clear(&job);
    }
    clear(&first);
}

static void data_and_stages_change_no_bit(void **state)
{
    static const struct other all[] = {{1, 1}, {1, 3}, {2, 0}, {2, 1}, {2, 2}, {2, 3}, {3, 2}};
    static const struct other some[] = {{2, 1}, {2, 3}};
    (void)state;
    change_no_bit(odd_path, 2, all, SW_LEN(all));
    change_no_bit(shared_path, 4, some, SW_LEN(some));
}

/* ---- checkpoints ---- */

static void assert_weights(struct job job, const struct job *want)
{
    run(&job);
    assert_memory_equal(job.weights, want->weights, MOST_ELEMS * sizeof *job.weights);
    clear(&job);
}

static void checkpoints_hold_whole_tensors(void **state)
{
    (void)state;
    struct job first = {odd_path, 2, 2, .stage = 2, .save = test_at("saved")};
    run(&first);
    assert_weights((struct job){odd_path, 1, 1, .idle = true, .load = test_at("saved"),
                                .save = test_at("back")},
                   &first);
    assert_weights((struct job){odd_path, 1, 4, .stage = 3, .idle = true, .load = test_at("back")},
                   &first);
    assert_weights((struct job){odd_path, 2, 2, .stage = 3, .idle = true, .load = test_at("saved")},
                   &first);
    /* the moments, too */
    struct job on = {odd_path, 1, 2, .stage = 0, .load = test_at("saved")};
    struct job round = {odd_path, 2, 2, .stage = 3, .load = test_at("back")};
    run(&on);
    run(&round);
    assert_same(&round, &on);
    struct job one = {odd_path, 1, 1, .stage = 0, .load = test_at("saved")};
    run(&one);
    assert_near(&one, &on, 1e-4);
    clear(&one);
    clear(&round);
    clear(&on);
    clear(&first);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(odd_path, sizeof odd_path, "%s/config.json", test_folder());
    test_put("config.json", odd_json);
    snprintf(shared_path, sizeof shared_path, "%s/shared.json", test_folder());
    test_put("shared.json", shared_json);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(losses_follow_those_of_one_rank),
    cmocka_unit_test(lamb_follows_one_rank),
    cmocka_unit_test(data_and_stages_change_no_bit),
    cmocka_unit_test(checkpoints_hold_whole_tensors),
    cmocka_unit_test(states_of_several_elements_are_refused),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up};
