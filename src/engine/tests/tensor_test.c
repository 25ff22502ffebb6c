// SPDX-License-Identifier: Apache-2.0
// Training on ranks of the tensor axis: losses follow those of one rank. Ranks along data and the
// stages of ZeRO change no bit, as the tensor axis alone cuts sums. Checkpoints are of the whole
// tensors, and load on any number of ranks.
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
    static const int sizes[] = {2, 4, 0}, two[] = {2, 0};
    (void)state;
    follow_one_rank((struct sliced){.model = "gpt2-tiny"}, sizes);
    follow_one_rank((struct sliced){.model = "llama-tiny"}, two);
    follow_one_rank((struct sliced){.model = sliced_models.odd}, sizes);
    follow_one_rank(
        (struct sliced){.model = sliced_models.odd, .more = ", \"sequence_parallel\": false"}, two);
    follow_one_rank((struct sliced){.model = sliced_models.shared}, sizes);
    follow_one_rank(
        (struct sliced){.model = sliced_models.odd, .more = ", \"label_smoothing\": 0.1"}, two);
}

/* Its trust ratios are of whole parameters. */
static void lamb_follows_one_rank(void **state)
{
    (void)state;
    follow_one_rank((struct sliced){.model = sliced_models.odd, .optimizer = "Lamb"},
                    (const int[]){4, 0});
    struct sliced first = {sliced_models.odd, 1, 2, .stage = 0, .optimizer = "Lamb"};
    struct sliced sliced = {sliced_models.odd, 2, 2, .stage = 3, .optimizer = "Lamb"};
    sliced_run(&first);
    sliced_run(&sliced);
    sliced_assert_same(&sliced, &first);
    sliced_clear(&sliced);
    sliced_clear(&first);
}

static void states_of_several_elements_are_refused(void **state)
{
    (void)state;
    struct sliced job = {
        "gpt2-tiny", 1, 2, .stage = 0, .idle = true, .more = ", \"moments\": \"8bit\""};
    assert_int_equal(sliced_try(&job), SW_E_UNSUP);
    assert_non_null(strstr(sw_error_message(), "spillway.mesh.tensor 2"));
    assert_non_null(strstr(sw_error_message(), "several elements"));
    sliced_clear(&job);
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

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(losses_follow_those_of_one_rank),
    cmocka_unit_test(lamb_follows_one_rank),
    cmocka_unit_test(data_and_stages_change_no_bit),
    cmocka_unit_test(checkpoints_hold_whole_tensors),
    cmocka_unit_test(states_of_several_elements_are_refused),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = sliced_set_up};
