// SPDX-License-Identifier: Apache-2.0
// Training on ranks of the tensor axis: losses follow those of one rank. Ranks along data and the
// stages of ZeRO change no bit, as the tensor axis alone cuts sums. Checkpoints are of the whole
// tensors, and load on any number of ranks.
#include <pthread.h>
#include <string.h>

#include "engine/tests/sliced.h"
#include "support/scratch.h"
#include "support/test.h"

/* sizes: of the tensor axis, ended by 0 */
static void follow_one_rank(struct sliced one, const int *sizes)
{
    one.data = one.tensor = 1;
    sliced_run(&one);
    assert_int_equal(one.n_cut, 0);
    for (; *sizes > 0; sizes++) {
        struct sliced job = one;
        job.tensor = *sizes;
        sliced_run(&job);
        sliced_assert_near(&job, &one, 1e-4);
        assert_true(job.n_cut > 0);
        sliced_clear(&job);
    }
    sliced_clear(&one);
}

static void losses_follow_those_of_one_rank(void **state)
{
    static const int sizes[] = {2, 4, 0}, two[] = {2, 0}, four[] = {4, 0};
    (void)state;
    follow_one_rank((struct sliced){.model = "gpt2-tiny"}, sizes);
    follow_one_rank((struct sliced){.model = "llama-tiny"}, two);
    follow_one_rank((struct sliced){.model = sliced_models.odd}, sizes);
    follow_one_rank(
        (struct sliced){.model = sliced_models.odd, .more = ", \"sequence_parallel\": false"}, two);
    follow_one_rank((struct sliced){.model = sliced_models.shared}, sizes);
    follow_one_rank((struct sliced){.model = sliced_models.packed}, four);
    follow_one_rank((struct sliced){.model = sliced_models.groups}, four);
    follow_one_rank((struct sliced){.model = sliced_models.single}, two);
    follow_one_rank(
        (struct sliced){.model = sliced_models.odd, .more = ", \"label_smoothing\": 0.1"}, two);
}

/* Its trust ratios are of whole parameters. */
static void lamb_follows_one_rank(void **state)
{
    (void)state;
    const struct {
        const char *model;
        int tensor;
    } rows[] = {{sliced_models.odd, 2}, {sliced_models.packed, 4}};
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        follow_one_rank((struct sliced){.model = rows[i].model, .optimizer = "Lamb"},
                        (const int[]){4, 0});
        struct sliced first = {rows[i].model, 1, rows[i].tensor, .stage = 0, .optimizer = "Lamb"};
        struct sliced sliced = {rows[i].model, 2, rows[i].tensor, .stage = 3, .optimizer = "Lamb"};
        sliced_run(&first);
        sliced_run(&sliced);
        sliced_assert_same(&sliced, &first);
        sliced_clear(&sliced);
        sliced_clear(&first);
    }
}

struct other {
    int data, stage;
};

static void change_no_bit(const char *model, int tensor, const struct other *others, size_t n)
{
    struct sliced first = {model, 1, tensor, .stage = 0};
    sliced_run(&first);
    for (size_t i = 0; i < n; i++) {
        struct sliced job = {model, others[i].data, tensor, .stage = others[i].stage};
        sliced_run(&job);
        sliced_assert_same(&job, &first);
        sliced_clear(&job);
    }
    sliced_clear(&first);
}

static void data_and_stages_change_no_bit(void **state)
{
    static const struct other all[] = {{1, 1}, {1, 3}, {2, 0}, {2, 1}, {2, 2}, {2, 3}, {3, 2}};
    static const struct other some[] = {{2, 1}, {2, 3}};
    (void)state;
    change_no_bit(sliced_models.odd, 2, all, SW_LEN(all));
    change_no_bit(sliced_models.shared, 4, some, SW_LEN(some));
    change_no_bit(sliced_models.packed, 4, some, SW_LEN(some));
    change_no_bit(sliced_models.groups, 4, some + 1, 1);
}

/* Ranks add the gradients of shared key heads in the stage that has them. */
static void stages_of_a_pipeline_change_no_bit(void **state)
{
    const char *const models[] = {sliced_models.shared, sliced_models.packed};
    (void)state;
    for (size_t i = 0; i < SW_LEN(models); i++) {
        struct sliced one = {.model = models[i], .data = 1, .tensor = 4}, two = one;
        two.pipe = 2;
        sliced_run(&one);
        sliced_run(&two);
        sliced_assert_same(&two, &one);
        sliced_clear(&two);
        sliced_clear(&one);
    }
}

/* ---- checkpoints ---- */

static void assert_weights(struct sliced job, const struct sliced *want)
{
    sliced_run(&job);
    assert_memory_equal(job.weights, want->weights, SLICED_ELEMS * sizeof *job.weights);
    sliced_clear(&job);
}

static void checkpoints_hold_whole_tensors(void **state)
{
    (void)state;
    struct sliced first = {sliced_models.odd, 2, 2, .stage = 2, .save = test_at("saved")};
    sliced_run(&first);
    assert_weights((struct sliced){sliced_models.odd, 1, 1, .idle = true, .load = test_at("saved"),
                                   .save = test_at("back")},
                   &first);
    assert_weights(
        (struct sliced){sliced_models.odd, 1, 4, .stage = 3, .idle = true, .load = test_at("back")},
        &first);
    assert_weights((struct sliced){sliced_models.odd, 2, 2, .stage = 3, .idle = true,
                                   .load = test_at("saved")},
                   &first);
    /* the moments, too */
    struct sliced on = {sliced_models.odd, 1, 2, .stage = 0, .load = test_at("saved")};
    struct sliced round = {sliced_models.odd, 2, 2, .stage = 3, .load = test_at("back")};
    sliced_run(&on);
    sliced_run(&round);
    sliced_assert_same(&round, &on);
    struct sliced one = {sliced_models.odd, 1, 1, .stage = 0, .load = test_at("saved")};
    sliced_run(&one);
    sliced_assert_near(&one, &on, 1e-4);
    sliced_clear(&one);
    sliced_clear(&round);
    sliced_clear(&on);
    sliced_clear(&first);
}

/* ---- 8-bit moments ---- */

/* Moments of all ranks, decoded, and the scales of their runs. */
struct decoded {
    float values[SLICED_ELEMS], scales[SLICED_ELEMS];
    int64_t n, n_coded;
};
static struct decoded decoded[3];
static struct decoded *into;

static sw_status decode_one(sw_engine *e, const struct sw_persistent *codes,
                            const struct sw_persistent *scales, enum sw_codes kind, int64_t at)
{
    struct sw_run_iter iter;
    struct sw_run run;
    uint8_t code;
    sw_runs_begin(&codes->layout, &iter);
    while (sw_runs_next(&iter, &run)) {
        for (int64_t i = 0; i < run.n; i++) {
            const size_t here = (size_t)(run.here + i);
            float *scale = &into->scales[at + run.first + i];
            SW_TRY(sw_executor_save(e->executor, codes, here, &code, 1));
            SW_TRY(sw_executor_save(e->executor, scales, here / SW_CODE_RUN * sizeof *scale, scale,
                                    sizeof *scale));
            sw_decode_run(kind, &code, *scale, 1, &into->values[at + run.first + i]);
        }
    }
    return SW_OK;
}

static sw_status decode_held(sw_engine *e)
{
    int64_t at = 0;
    for (int32_t i = 0; i < e->plan->n_persistent; i++) {
        const struct sw_persistent *codes = &e->plan->persistent[i], *scales = NULL;
        enum sw_codes kind;
        const enum sw_state_kind of_scales = sw_state_scales(codes->state, &kind);
        for (int32_t k = 0; k < e->plan->n_persistent && codes->dtype == SW_U8; k++) {
            const struct sw_persistent *other = &e->plan->persistent[k];
            scales = other->state == of_scales && strcmp(other->param, codes->param) == 0 ? other
                                                                                          : scales;
        }
        SW_TRY(scales ? decode_one(e, codes, scales, kind, at) : SW_OK);
        at += scales ? sw_shape_elems(&codes->layout.whole) : 0;
    }
    into->n = at;
    return SW_OK;
}

/* Each rank decodes what it holds; several hold the same. */
static sw_status decode(struct sliced *job, sw_engine *e)
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    (void)job;
    pthread_mutex_lock(&one_at_a_time);
    const sw_status st = decode_held(e);
    pthread_mutex_unlock(&one_at_a_time);
    return st;
}

/* Each decoding is one cell of the codes off at most; the largest ones are 1.5 % of the scale. */
static void assert_near_moments(const struct decoded *a, const struct decoded *b)
{
    int64_t n_moved = 0;
    assert_true(a->n > 0);
    assert_int_equal(a->n, b->n);
    for (int64_t i = 0; i < a->n; i++) {
        const float scale = a->scales[i] > b->scales[i] ? a->scales[i] : b->scales[i];
        const float gap = a->values[i] - b->values[i];
        if (gap > 0.015F * scale || gap < -0.015F * scale) {
            fail_msg("moment %lld: %g of scale %g, other %g of %g", (long long)i,
                     (double)a->values[i], (double)a->scales[i], (double)b->values[i],
                     (double)b->scales[i]);
        }
        n_moved += a->scales[i] != b->scales[i];
    }
    assert_true(n_moved > 0); /* the runs are others */
}

/* Moments with the same scale and value. */
static int64_t count_equal(const struct decoded *a, const struct decoded *b)
{
    int64_t n = 0;
    for (int64_t i = 0; i < a->n; i++) {
        n += a->scales[i] == b->scales[i] && a->values[i] == b->values[i] && a->values[i] != 0;
    }
    return n;
}

/* A run of 256 elements is one of the part of a rank, however data, stages and placements cut it.
 * No part of this model is a multiple of 256 elements long. */
static void runs_of_8_bit_moments_are_of_parts(void **state)
{
    static const struct {
        int data, stage;
        const char *zero, *more;
    } ways[] = {{2, 1, NULL, ""},
                {3, 3, NULL, ""},
                {2, 3,
                 ", \"offload_optimizer\": {\"device\": \"cpu\"}, \"offload_param\": {\"device\": "
                 "\"cpu\"}, \"sub_group_size\": 700",
                 ", \"tile_bytes\": 900"}};
    const struct sliced how = {sliced_models.odd, 1, 2, .optimizer = "AdamW8bit",
                               .params = ", \"min_8bit_size\": 200"};
    struct sliced first = how, one = how;
    (void)state;
    one.tensor = 1;
    sliced_run(&first);
    sliced_run(&one);
    sliced_assert_near(&first, &one, 1e-3);
    for (size_t i = 0; i < SW_LEN(ways); i++) {
        struct sliced job = how;
        job.data = ways[i].data;
        job.stage = ways[i].stage;
        job.zero = ways[i].zero;
        job.more = ways[i].more;
        sliced_run(&job);
        sliced_assert_same(&job, &first);
        sliced_clear(&job);
    }
    sliced_clear(&one);
    sliced_clear(&first);
}

/* Such a run would have queries of one rank, and a key of several. */
static void runs_with_shared_heads_are_refused(void **state)
{
    struct sliced job = {sliced_models.packed, 1, 4, .optimizer = "AdamW8bit",
                         .params = ", \"min_8bit_size\": 90"};
    (void)state;
    assert_int_equal(sliced_try(&job), SW_E_UNSUP);
    assert_non_null(strstr(sw_error_message(), "spillway.mesh.tensor 4: "));
    assert_non_null(strstr(sw_error_message(),
                           "layers.0.self_attn.qkv_proj.weight has 8-bit moments, and key heads "
                           "that ranks share; wanted a multiple of 256 elements before them, got "
                           "64"));
    sliced_clear(&job);
}

static void load_moments(struct sliced how, const char *from, struct decoded *out)
{
    how.load = from;
    how.save = NULL;
    how.idle = true;
    how.after = decode;
    into = out;
    sliced_run(&how);
    sliced_clear(&how);
}

/* On as many ranks along tensor, bit for bit; on another number, moments are encoded again. */
static void checkpoints_of_8_bit_moments_load_on_other_meshes(void **state)
{
    const struct sliced how = {sliced_models.shared,
                               2,
                               2,
                               .stage = 2,
                               .optimizer = "AdamW8bit",
                               .params = ", \"min_8bit_size\": 90"};
    struct sliced first = how, same = how, other = how, one = how;
    (void)state;
    first.save = test_at("coded");
    sliced_run(&first);
    load_moments(how, test_at("coded"), &decoded[0]);
    same.data = 1;
    same.stage = 3;
    load_moments(same, test_at("coded"), &decoded[1]);
    assert_memory_equal(decoded[0].values, decoded[1].values, sizeof decoded[0].values);
    other.tensor = 4;
    other.stage = 3;
    load_moments(other, test_at("coded"), &decoded[1]);
    assert_near_moments(&decoded[0], &decoded[1]);
    assert_true(count_equal(&decoded[0], &decoded[1]) > 0); /* key heads, in two parts as before */
    one.data = one.tensor = 1;
    load_moments(one, test_at("coded"), &decoded[1]);
    assert_near_moments(&decoded[0], &decoded[1]);
    one.load = test_at("coded");
    one.idle = true;
    one.save = test_at("recoded");
    sliced_run(&one);
    load_moments(how, test_at("recoded"), &decoded[2]);
    assert_near_moments(&decoded[1], &decoded[2]);
    sliced_clear(&one);
    sliced_clear(&first);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(losses_follow_those_of_one_rank),
    cmocka_unit_test(lamb_follows_one_rank),
    cmocka_unit_test(data_and_stages_change_no_bit),
    cmocka_unit_test(stages_of_a_pipeline_change_no_bit),
    cmocka_unit_test(checkpoints_hold_whole_tensors),
    cmocka_unit_test(runs_of_8_bit_moments_are_of_parts),
    cmocka_unit_test(runs_with_shared_heads_are_refused),
    cmocka_unit_test(checkpoints_of_8_bit_moments_load_on_other_meshes),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = sliced_set_up};
