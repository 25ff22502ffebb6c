// SPDX-License-Identifier: Apache-2.0
// Tests the search alone, on borrowed graphs and with mock ranks: which policies it tries, that it
// takes the first micro-batch that fits all ranks, and that it frees everything whichever
// allocation fails.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "search/search.h"
#include "support/test.h"

enum { TRAIN = 60, WIDTH = 32, BLOCKS = 6 };

static void query(void *ctx, const struct sw_op_desc *desc, struct sw_kernel_info *out)
{
    (void)ctx;
    (void)desc;
    *out = (struct sw_kernel_info){.supported = true, .path = "none"};
}

static const struct sw_update_rule adam = {
    .attrs = {.kind = SW_UPDATE_ADAM, .decoupled = true, .bias_correction = true, .eps = 1e-8}};

/* A tower of blocks for `batch` samples. */
static struct sw_graph *graph_of(int64_t batch)
{
    const struct sw_graph_options options = {.dtype = SW_F32, .grad_dtype = SW_F32};
    const struct sw_init init = {SW_INIT_NORMAL, 0.3};
    struct sw_graph *g = NULL;
    if (sw_graph_open(&options, &g) < 0) {
        return NULL;
    }
    const sw_value table = sw_param(g, "table", SW_SHAPE(7, WIDTH), init);
    sw_value h = sw_embedding(g, table, sw_input(g, "ids", SW_I32, SW_SHAPE(batch, 3)), -1);
    for (int i = 0; i < BLOCKS; i++) {
        char name[32];
        snprintf(name, sizeof name, "h.%d", i);
        sw_scope_push_block(g, name);
        const sw_value up = sw_param(g, name, SW_SHAPE(WIDTH, 4 * WIDTH), init);
        snprintf(name, sizeof name, "down.%d", i);
        const sw_value down = sw_param(g, name, SW_SHAPE(4 * WIDTH, WIDTH), init);
        const sw_value x = sw_act(g, sw_linear(g, h, up, SW_NO_VALUE, true), SW_ACT_GELU);
        h = sw_add(g, h, sw_linear(g, x, down, SW_NO_VALUE, true));
        sw_scope_pop(g);
    }
    const sw_value loss = sw_linear_cross_entropy(
        g, h, table, SW_NO_VALUE, sw_input(g, "labels", SW_I32, SW_SHAPE(batch, 3)), 0);
    sw_output(g, "loss", loss);
    if (sw_graph_backward(g, loss) < 0) {
        sw_graph_close(g);
        return NULL;
    }
    return g;
}

/* Lends graphs, and answers for the other ranks. */
struct world {
    struct sw_program_spec spec;
    int64_t batch;
    int64_t most;      /* a larger micro-batch does not fit on another rank; 0 = all fit */
    int64_t tried[64]; /* micro-batch of each try */
    int n_tries, n_graphs;
};

static sw_status lend(void *ctx, const struct sw_policy *policy, struct sw_search_graphs *out)
{
    struct world *w = ctx;
    if (!w->spec.graph || w->batch != policy->micro_batch) {
        sw_graph_close((struct sw_graph *)(uintptr_t)w->spec.graph);
        w->batch = policy->micro_batch;
        w->spec = (struct sw_program_spec){SW_PROGRAM_TRAIN, graph_of(w->batch)};
        w->n_graphs++;
    }
    *out = (struct sw_search_graphs){&w->spec, 1, {0, NULL}};
    return w->spec.graph ? SW_OK : SW_E_NOMEM;
}

static void next(void *ctx, int64_t most, struct sw_policy *policy)
{
    (void)ctx;
    int64_t micro = sw_min_i64(most, TRAIN);
    while (micro > 0 && TRAIN % micro != 0) {
        micro--;
    }
    policy->micro_batch = micro;
    policy->micro_batches = micro > 0 ? TRAIN / micro : 0;
}

static sw_status agree(void *ctx, struct sw_verdict *v)
{
    struct world *w = ctx;
    assert_true(w->n_tries < 64);
    w->tried[w->n_tries++] = w->batch;
    if (w->most > 0 && w->batch > w->most) {
        v->fits = false;
        v->rank = 3;
        v->share = 1; /* nothing is known */
    }
    return v->status;
}

static struct sw_search search_of(struct world *w, size_t budget)
{
    struct sw_search search = {
        .fixed =
            {
                .device = {query, NULL},
                .clip = 1,
                .rule = &adam,
                .kernel_set = "test",
                .keep_cheap = true, /* otherwise a plan that keeps a block computes as much */
            },
        .memory = {budget},
        .any_micro_batch = true,
        .ctx = w,
        .graphs = lend,
        .next = next,
        .agree = agree,
    };
    sw_builtin_rates(&search.rates);
    return search;
}

static sw_status look_for(const struct sw_search *s, struct sw_policy *policy, struct sw_plan **out)
{
    struct world *w = s->ctx;
    const sw_status st = sw_search_open(s, policy, out);
    sw_graph_close((struct sw_graph *)(uintptr_t)w->spec.graph);
    w->spec.graph = NULL;
    return st;
}

/* Bytes of a plan with exactly that recomputation. */
static size_t bytes_of_blocks(int64_t micro_batch, int64_t every, int64_t blocks)
{
    struct world w = {.n_tries = 0};
    struct sw_search s = search_of(&w, 0);
    struct sw_policy policy;
    struct sw_plan *plan = NULL;
    s.any_micro_batch = false;
    s.asked = (struct sw_policy){.micro_batch = micro_batch,
                                 .micro_batches = TRAIN / micro_batch,
                                 .recompute = {every, blocks}};
    assert_int_equal(look_for(&s, &policy, &plan), SW_OK);
    assert_int_equal(w.n_tries, 0); /* nothing is chosen, so the other ranks are not asked */
    const size_t bytes = plan->tier_bytes[SW_TIER_DEVICE];
    sw_plan_close(plan);
    return bytes;
}

static size_t bytes_of(int64_t micro_batch, int64_t every)
{
    return bytes_of_blocks(micro_batch, every, 0);
}

/* Micro-batches that cannot fit are skipped, and none that fits is. */
static void the_search_takes_the_largest_and_tries_few(void **state)
{
    (void)state;
    static const int64_t divisors[] = {60, 30, 20, 15, 12, 10, 6, 5, 4, 3, 2, 1};
    size_t need[SW_LEN(divisors)];
    int n_tries = 0;
    for (size_t i = 0; i < SW_LEN(divisors); i++) {
        need[i] = bytes_of(divisors[i], 0);
    }
    for (size_t i = 0; i < SW_LEN(divisors); i++) {
        size_t first = 0; /* the first that fits: the largest has no sums over micro-batches */
        while (need[first] > need[i]) {
            first++;
        }
        struct world w = {.n_tries = 0};
        const struct sw_search s = search_of(&w, need[i]);
        struct sw_policy policy;
        struct sw_plan *plan = NULL;
        assert_int_equal(look_for(&s, &policy, &plan), SW_OK);
        assert_int_equal(policy.micro_batch, divisors[first]);
        assert_int_equal(policy.micro_batches, TRAIN / divisors[first]);
        assert_true(plan->tier_bytes[SW_TIER_DEVICE] <= need[i]);
        assert_int_equal(w.n_graphs, w.n_tries); /* each is made once */
        n_tries += w.n_tries;
        sw_plan_close(plan);
    }
    assert_true(n_tries < (int)(SW_LEN(divisors) * (SW_LEN(divisors) + 1)) / 2);
}

static void what_does_not_fit_another_rank_is_not_taken(void **state)
{
    (void)state;
    struct world w = {.most = 12};
    const struct sw_search s = search_of(&w, 0);
    struct sw_policy policy;
    struct sw_plan *plan = NULL;
    assert_int_equal(look_for(&s, &policy, &plan), SW_OK);
    assert_int_equal(policy.micro_batch, 12);
    assert_int_equal(w.n_tries, 5);
    sw_plan_close(plan);
    struct world none = {.n_tries = 0};
    const struct sw_search small = search_of(&none, 100);
    assert_int_equal(look_for(&small, &policy, &plan), SW_E_NOMEM);
    assert_int_equal(none.tried[none.n_tries - 1], 1); /* the refusal is that of the smallest */
}

/* For one micro-batch, no recomputation is tried first, which ends the search if it fits. Otherwise
 * all blocks are tried, then fewer by bisection, until one block less does not fit. */
static void recomputation_is_tried_from_none_on(void **state)
{
    (void)state;
    size_t need[BLOCKS + 1]; /* by the number of blocks that are recomputed one by one */
    for (int m = 0; m <= BLOCKS; m++) {
        need[m] = bytes_of_blocks(TRAIN, m > 0, m);
        assert_true(m == 0 || need[m] <= need[m - 1]);
    }
    assert_true(need[BLOCKS] == bytes_of(TRAIN, 1));
    for (int m = 0; m < 3; m++) {
        struct world w = {.n_tries = 0};
        struct sw_search s = search_of(&w, need[m]);
        struct sw_policy policy;
        struct sw_plan *plan = NULL;
        s.any_recompute = true;
        assert_int_equal(look_for(&s, &policy, &plan), SW_OK);
        assert_int_equal(policy.micro_batch, TRAIN);
        assert_int_equal(policy.recompute.every, m > 0);
        assert_int_equal(policy.recompute.blocks, m);
        assert_int_equal(plan->programs[0].recomputed.blocks, m);
        assert_int_equal(plan->programs[0].recomputed.of, m > 0 ? BLOCKS : 0);
        /* none; 6, 3, 1 and for 2 of them also 2; pairs with one block less, which are not pairs */
        static const int n_tries[] = {1, 4, 5};
        assert_int_equal(w.n_tries, n_tries[m]);
        assert_int_equal(w.n_graphs, 1);
        sw_plan_close(plan);
    }
}

/* Asking for more blocks than there are is an error in any case. */
static void more_blocks_than_there_are_are_refused(void **state)
{
    (void)state;
    for (int any = 0; any < 2; any++) {
        struct world w = {.n_tries = 0};
        struct sw_search s = search_of(&w, 0);
        struct sw_policy policy;
        struct sw_plan *plan = NULL;
        s.any_micro_batch = any != 0;
        s.asked = (struct sw_policy){
            .micro_batch = 4, .micro_batches = TRAIN / 4, .recompute = {1, BLOCKS + 1}};
        assert_int_equal(look_for(&s, &policy, &plan), SW_E_CONFIG);
        assert_non_null(strstr(sw_error_message(), "spillway.recompute_blocks: wanted at most"));
        assert_non_null(strstr(sw_error_message(), "6, the blocks of the model, got 7"));
    }
}

/* If only some blocks are recomputed, recomputing all of them is the smaller change. */
static void the_rest_of_the_blocks_would_help(void **state)
{
    (void)state;
    struct world w = {.n_tries = 0};
    struct sw_search s = search_of(&w, bytes_of_blocks(TRAIN, 1, 2) - 1);
    struct sw_policy policy;
    struct sw_plan *plan = NULL;
    s.any_micro_batch = false;
    s.asked = (struct sw_policy){.micro_batch = TRAIN, .micro_batches = 1, .recompute = {1, 2}};
    assert_int_equal(look_for(&s, &policy, &plan), SW_E_NOMEM);
    assert_non_null(strstr(sw_error_message(), "a larger spillway.recompute_blocks"));
    assert_non_null(strstr(sw_error_message(), "; it fits with spillway.recompute_blocks null"));
}

static void a_policy_is_one_line(void **state)
{
    (void)state;
    struct sw_str text = {0};
    const struct sw_policy policy = {.micro_batch = 4,
                                     .micro_batches = 6,
                                     .recompute = {2, 5},
                                     .schedule = SW_STEP_VERTICAL,
                                     .stage = 3,
                                     .states_tier = SW_TIER_DISK,
                                     .params_tier = SW_TIER_HOST,
                                     .states_share = 0.5,
                                     .budget = {7, 8, 9},
                                     .tile_bytes = 100,
                                     .two_slots = true,
                                     .transfer_bytes = 10,
                                     .prefetch_elems = 11};
    sw_policy_print(&policy, &text);
    assert_string_equal(
        sw_str_text(&text),
        "micro-batch 4 x 6, recompute 2 of the first 5 blocks, vertical, stage 3, states on disk "
        "(a share of 0.5), parameters on host, budgets 7 8 9, tiles of 100 bytes, "
        "slots 2, ahead 10 bytes and 11 elements");
    sw_str_fini(&text);
}

static void survives_lack_of_memory(void **state)
{
    (void)state;
    const size_t budget = bytes_of(20, 1);
    struct sw_alloc_stats before, after;
    int n_failed = 0;
    sw_alloc_get_stats(&before);
    for (int n = 1;; n += 1 + n / 20) { /* fail the n-th request */
        struct world w = {.n_tries = 0};
        struct sw_search s = search_of(&w, budget);
        struct sw_policy policy;
        struct sw_plan *plan = NULL;
        s.any_recompute = true;
        sw_alloc_fail_nth(n);
        const sw_status st = look_for(&s, &policy, &plan);
        sw_alloc_fail_nth(0);
        if (st == SW_OK) {
            sw_plan_close(plan);
            break;
        }
        assert_int_equal(st, SW_E_NOMEM);
        assert_null(strstr(sw_error_message(), "does not fit")); /* the cause is not a budget */
        n_failed++;
    }
    sw_alloc_get_stats(&after);
    assert_int_equal(after.live_blocks, before.live_blocks);
    assert_true(n_failed > 20);
}

/* Sets the budget of each tier that a refusal names to what it says is needed. false = it names
 * none */
static bool give_what_is_named(const char *message, size_t memory[SW_TIER_COUNT])
{
    bool any = false;
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        char key[48];
        snprintf(key, sizeof key, "%s memory needs ", sw_tier_name((enum sw_tier)t));
        const char *found = strstr(message, key);
        if (found) {
            memory[t] = (size_t)strtoull(found + strlen(key), NULL, 10);
            any = true;
        }
    }
    return any;
}

/* Budgets determine caches, tiles, slots and prefetching, so a plan with larger budgets may take
 * more. */
static void bytes_that_a_refusal_names_are_enough(void **state)
{
    enum { CASES = 100 };
    (void)state;
    int n_refused = 0;
    for (uint64_t i = 0; i < CASES; i++) {
        uint64_t draw[16];
        for (uint64_t k = 0; k < SW_LEN(draw); k++) {
            draw[k] = sw_philox_u64(5, i, k);
        }
        struct world w = {.n_tries = 0};
        struct sw_search s = search_of(&w, 0);
        struct sw_policy policy;
        struct sw_plan *plan = NULL;
        s.any_micro_batch = false;
        s.any_recompute = draw[0] % 3 == 0;
        s.fixed.fp16 = draw[1] % 4 == 0;
        s.fixed.clip = draw[2] % 2 ? 1 : 0;
        s.sub_group_elems = draw[3] % 2 ? 100 : 1 << 20;
        s.asked =
            (struct sw_policy){.micro_batch = 4,
                               .micro_batches = 1 + (int64_t)(draw[4] % 3),
                               .stage = 3,
                               .schedule = draw[5] % 3 == 0 ? SW_STEP_VERTICAL : SW_STEP_HORIZONTAL,
                               .recompute.every = (int64_t)(draw[6] % 2),
                               .states_share = draw[7] % 4 ? 1 : 0.5,
                               .states_tier = (enum sw_tier)(draw[8] % SW_TIER_COUNT),
                               .params_tier = (enum sw_tier)(draw[9] % SW_TIER_COUNT),
                               .activations_tier = draw[10] % 3 ? SW_TIER_DEVICE : SW_TIER_HOST};
        for (int t = 0; t < SW_TIER_COUNT; t++) {
            s.memory[t] = draw[11 + t] % 4 ? 1 + (size_t)(draw[11 + t] >> 8) % (1 << 20) : 0;
        }
        if (look_for(&s, &policy, &plan) < 0) {
            char message[2048];
            const size_t before[SW_TIER_COUNT] = {s.memory[0], s.memory[1], s.memory[2]};
            snprintf(message, sizeof message, "%s", sw_error_message());
            assert_true(give_what_is_named(message, s.memory));
            if (before[SW_TIER_DEVICE] == 0 && s.memory[SW_TIER_DEVICE] > 0) { /* one memory */
                s.memory[SW_TIER_HOST] = s.memory[SW_TIER_DEVICE];
                s.memory[SW_TIER_DEVICE] = 0;
            }
            if (look_for(&s, &policy, &plan) < 0) {
                fail_msg("case %d: budgets %zu, %zu, %zu: %s; then: %s", (int)i, before[0],
                         before[1], before[2], message, sw_error_message());
            }
            n_refused++;
        }
        sw_plan_close(plan);
    }
    assert_true(n_refused > CASES / 4 && n_refused < CASES);
}

/* ---- rows of techniques ---- */

/* True if `key` is one of the row's keys, or is inside a block that is one of them. */
static bool governs(const struct sw_technique *row, const char *key)
{
    for (const char *word = row->keys; *word; word += strspn(word, " ")) {
        const size_t n = strcspn(word, " ");
        if (strncmp(word, key, n) == 0 && strchr(". ", key[n])) {
            return true;
        }
        word += n;
    }
    return false;
}

static void keys_of_techniques_are_keys_of_the_configuration(void **state)
{
    (void)state;
    struct sw_str text = {0};
    assert_int_equal(sw_config_explain("spillway.tile_byte", &text), SW_E_CONFIG);
    int n = 0;
    for (int i = 0; i < sw_n_techniques; i++) {
        char keys[256], *rest = keys;
        assert_true(strlen(sw_techniques[i]->keys) < sizeof keys);
        strcpy(keys, sw_techniques[i]->keys);
        for (char *key; (key = strtok_r(rest, " ", &rest)); n++) {
            assert_int_equal(sw_config_explain(key, &text), SW_OK);
            assert_true(governs(sw_techniques[i], key));
        }
    }
    assert_true(n >= sw_n_techniques / 2);
    sw_str_fini(&text);
}

/* A setting that a refusal proposes is a key of the row that proposes it. */
static void settings_of_a_technique_are_its_keys(void **state)
{
    (void)state;
    int n = 0;
    for (int i = 0; i < sw_n_techniques; i++) {
        const struct sw_technique *row = sw_techniques[i];
        for (int level = 0; row->cheaper && row->settings && level < SW_TIER_COUNT - 1; level++) {
            struct sw_plan_options o = {.rule = &adam, .policy.micro_batches = 1};
            const struct sw_facts facts = {.options = &o, .trains = true, .blocks = BLOCKS};
            struct sw_policy after = o.policy;
            struct sw_str text = {0};
            if (row->cheaper(&facts, &after, level)) {
                row->settings(&o.policy, &after, &text);
                assert_true(text.len > 0);
            }
            for (const char *line = sw_str_text(&text); *line; line = strchr(line, '\n') + 1) {
                assert_true(governs(row, line));
                n++;
            }
            sw_str_fini(&text);
        }
    }
    assert_true(n > 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_search_takes_the_largest_and_tries_few),
    cmocka_unit_test(what_does_not_fit_another_rank_is_not_taken),
    cmocka_unit_test(recomputation_is_tried_from_none_on),
    cmocka_unit_test(more_blocks_than_there_are_are_refused),
    cmocka_unit_test(the_rest_of_the_blocks_would_help),
    cmocka_unit_test(a_policy_is_one_line),
    cmocka_unit_test(survives_lack_of_memory),
    cmocka_unit_test(bytes_that_a_refusal_names_are_enough),
    cmocka_unit_test(keys_of_techniques_are_keys_of_the_configuration),
    cmocka_unit_test(settings_of_a_technique_are_its_keys),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
