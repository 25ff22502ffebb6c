// SPDX-License-Identifier: Apache-2.0
// Tests the states of Adam for each format of the moments.
#include "optim/optim.h"
#include "support/test.h"

static struct sw_update_rule adam(enum sw_moments moments)
{
    const struct sw_optimizer_config optimizer = {
        .type = SW_OPTIMIZER_ADAM, .lr = 1e-3, .adam_w_mode = true, .min_8bit_size = 1000};
    struct sw_update_rule rule;
    assert_int_equal(sw_update_rule_init(&optimizer, true, &rule), SW_OK);
    rule.moments = moments;
    return rule;
}

static void states_are(enum sw_moments moments, enum sw_dtype dtype, struct sw_shape shape,
                       const struct sw_update_state *want, int n)
{
    const struct sw_update_rule rule = adam(moments);
    struct sw_update_state got[SW_UPDATE_MAX_STATES];
    assert_int_equal(sw_update_states(&rule, dtype, &shape, got), n);
    for (int i = 0; i < n; i++) {
        assert_int_equal(got[i].kind, want[i].kind);
        assert_int_equal(got[i].dtype, want[i].dtype);
    }
}

static void moments_of_8_bits_have_scales(void **state)
{
    (void)state;
    static const struct sw_update_state fp32[] = {{SW_STATE_EXP_AVG, SW_F32},
                                                  {SW_STATE_EXP_AVG_SQ, SW_F32}},
                                        wide[] = {{SW_STATE_EXP_AVG, SW_F64},
                                                  {SW_STATE_EXP_AVG_SQ, SW_F64}},
                                        coded[] = {{SW_STATE_MASTER_LO, SW_I16},
                                                   {SW_STATE_EXP_AVG, SW_U8},
                                                   {SW_STATE_EXP_AVG_SQ, SW_U8},
                                                   {SW_STATE_EXP_AVG_SCALE, SW_F32},
                                                   {SW_STATE_EXP_AVG_SQ_SCALE, SW_F32}};
    states_are(SW_MOMENTS_FP32, SW_F32, SW_SHAPE(4000), fp32, 2);
    states_are(SW_MOMENTS_8BIT, SW_F32, SW_SHAPE(27, 37), fp32, 2); /* 999 elements */
    states_are(SW_MOMENTS_8BIT, SW_F32, SW_SHAPE(25, 40), &coded[1], 4);
    states_are(SW_MOMENTS_8BIT, SW_BF16, SW_SHAPE(1000), coded, 5);
    states_are(SW_MOMENTS_8BIT, SW_F64, SW_SHAPE(1000), wide, 2);
}

/* A run of codes is a multiple of the run of squares, so that norms sum the same terms. */
static void codes_are_cut_between_runs(void **state)
{
    (void)state;
    const struct sw_update_rule fp32 = adam(SW_MOMENTS_FP32), coded = adam(SW_MOMENTS_8BIT);
    assert_int_equal(sw_update_run(NULL), SW_SQUARES_RUN);
    assert_int_equal(sw_update_run(&fp32), SW_SQUARES_RUN);
    assert_int_equal(sw_update_run(&coded), SW_CODE_RUN);
    assert_int_equal(SW_CODE_RUN % SW_SQUARES_RUN, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(moments_of_8_bits_have_scales),
    cmocka_unit_test(codes_are_cut_between_runs),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
