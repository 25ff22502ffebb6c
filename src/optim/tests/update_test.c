// SPDX-License-Identifier: Apache-2.0
// Tests update rules: their states, the names of these, and what changes the fingerprint.
#include <stddef.h>
#include <string.h>

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

static void names_identify_the_kind(void **state)
{
    (void)state;
    struct sw_arena arena;
    sw_arena_init(&arena, "test");
    for (int a = 0; a < SW_N_STATE_KINDS; a++) {
        for (int b = 0; b < a && sw_state_infos[a].name && sw_state_infos[b].name; b++) {
            assert_string_not_equal(sw_state_infos[a].name, sw_state_infos[b].name);
        }
    }
    assert_string_equal(sw_state_name(&arena, "h.0.weight", SW_STATE_EXP_AVG, 0),
                        "exp_avg/h.0.weight");
    assert_string_equal(sw_state_name(&arena, "table", SW_STATE_SUM, 1), "grad_acc.1/table");
    sw_arena_fini(&arena);
}

static bool has(const struct sw_update_state *states, int n, enum sw_state_kind kind)
{
    bool found = false;
    for (int i = 0; i < n; i++) {
        assert_false(found && states[i].kind == kind); /* at most once */
        found |= states[i].kind == kind;
    }
    return found;
}

/* A rule keeps what its kind needs for vectors and matrices, and each state once. */
static void each_rule_has_states(void **state)
{
    (void)state;
    for (int kind = 0; kind < SW_N_UPDATE_KINDS; kind++) {
        for (int rank = 1; rank <= 2; rank++) {
            const struct sw_shape shape = {.rank = rank, .dims = {8, 8}};
            const struct sw_update_rule rule = {
                .attrs = {.kind = (enum sw_update_kind)kind, .has_betas = true, .beta1 = 0.5}};
            struct sw_update_state states[SW_UPDATE_MAX_STATES];
            const int n = sw_update_states(&rule, SW_F16, &shape, states);
            assert_true(n >= 2);
            assert_int_equal(states[0].kind, SW_STATE_MASTER);
            for (int k = 0; k < SW_N_STATE_KINDS; k++) {
                if (has(states, n, (enum sw_state_kind)k)) {
                    assert_true(sw_state_is_optimizer((enum sw_state_kind)k));
                }
            }
        }
    }
}

#define SETTING(type, member)                                                                      \
    {                                                                                              \
        SW_OPTIMIZER_##type, offsetof(struct sw_optimizer_config, member),                         \
            sizeof(((struct sw_optimizer_config *)0)->member), #type " " #member                   \
    }
static const struct {
    enum sw_optimizer_type type;
    size_t at, bytes;
    const char *name;
} settings[] = {
    SETTING(ADAM, adam_w_mode),
    SETTING(ADAM, bias_correction),
    SETTING(ADAM, eps),
    SETTING(ADAM, weight_decay),
    SETTING(SGD, momentum),
    SETTING(SGD, dampening),
    SETTING(SGD, nesterov),
    SETTING(SGD, maximize),
    SETTING(LAMB, bias_correction),
    SETTING(LAMB, eps_inside_sqrt),
    SETTING(LAMB, min_coeff),
    SETTING(LAMB, max_coeff),
    SETTING(ADAGRAD, lr_decay),
    SETTING(ADAGRAD, initial_accumulator_value),
    SETTING(LION, weight_decay),
    SETTING(SPARSE_ADAM, eps),
    SETTING(RMSPROP, momentum),
    SETTING(RMSPROP, alpha),
    SETTING(RMSPROP, maximize),
    SETTING(MUON, momentum),
    SETTING(MUON, nesterov),
    SETTING(MUON, ns_steps),
    SETTING(MUON, muon_lr),
    SETTING(MUON, adam_lr),
    SETTING(ADAFACTOR, momentum),
    SETTING(ADAFACTOR, clip_threshold),
    SETTING(ADAFACTOR, decay_rate),
    SETTING(ADAFACTOR, scale_parameter),
};

static uint64_t hash_of(const struct sw_optimizer_config *optimizer)
{
    struct sw_update_rule rule;
    assert_int_equal(sw_update_rule_init(optimizer, true, &rule), SW_OK);
    return sw_update_rule_hash(&rule, SW_HASH_INIT);
}

/* Each setting that a rule reads is part of the fingerprint. */
static void settings_change_the_hash(void **state)
{
    (void)state;
    double eps[2] = {1e-30, 1e-3};
    for (size_t i = 0; i < SW_LEN(settings); i++) {
        struct sw_optimizer_config optimizer = {
            .type = settings[i].type, .lr = 0.5, .adafactor_eps = {.items = eps, .n = 2}};
        const uint64_t before = hash_of(&optimizer);
        void *at = (char *)&optimizer + settings[i].at;
        const double real = 0.25;
        const int64_t whole = 3;
        if (settings[i].bytes == sizeof(bool)) {
            *(bool *)at = true;
        } else {
            memcpy(at, strstr(settings[i].name, "ns_steps") ? (const void *)&whole : &real, 8);
        }
        if (hash_of(&optimizer) == before) {
            fail_msg("%s changes no hash", settings[i].name);
        }
    }
}

/* A rate of 0 is 0, and not the optimizer's. */
static void muons_rates_may_be_0(void **state)
{
    (void)state;
    static const char *const rates[] = {"null", "0", "0.01"};
    for (size_t i = 0; i < SW_LEN(rates); i++) {
        char text[160];
        struct sw_config *c;
        struct sw_update_rule rule;
        snprintf(text, sizeof text,
                 "{\"optimizer\": {\"type\": \"Muon\", \"params\": {\"lr\": 0.02, "
                 "\"muon_lr\": %s, \"adam_lr\": %s}}}",
                 rates[i], rates[i]);
        assert_int_equal(sw_config_parse("ds.json", text, strlen(text), NULL, 0, &c), SW_OK);
        assert_int_equal(sw_update_rule_init(&c->optimizer, true, &rule), SW_OK);
        const double want = i == 0 ? 1 : strtod(rates[i], NULL) / 0.02;
        assert_true(rule.matrix_scale == want && rule.other_scale == want);
        sw_config_close(c);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(muons_rates_may_be_0),       cmocka_unit_test(moments_of_8_bits_have_scales),
    cmocka_unit_test(codes_are_cut_between_runs), cmocka_unit_test(names_identify_the_kind),
    cmocka_unit_test(each_rule_has_states),       cmocka_unit_test(settings_change_the_hash),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
