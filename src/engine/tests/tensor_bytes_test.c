// SPDX-License-Identifier: Apache-2.0
// Bytes that a rank sends along the tensor axis: those of the plan are those of the formulas, and
// those that the communicators count.
#include <stdio.h>
#include <string.h>

#include "engine/tests/sliced.h"
#include "support/scratch.h"
#include "support/test.h"

enum { WIDTH = 12, BLOCKS = 2, SUBLAYERS = 2 * BLOCKS, POSITIONS = 8, GROUPS = 8 };

/* Bytes that the first rank sends: in a micro-batch, by group and verb; in all steps, by group. */
struct sent {
    int64_t micro[GROUPS][SW_VERB_COUNT], planned[GROUPS], counted[GROUPS];
    int64_t activations; /* the most bytes of transients */
};
static struct sent sent;

static int64_t sum(const int64_t *of, int n)
{
    int64_t all = 0;
    for (int i = 0; i < n; i++) {
        all += of[i];
    }
    return all;
}

static sw_status count(struct sliced *job, sw_engine *e)
{
    const struct sw_program *p = &e->plan->programs[e->programs.train];
    (void)job;
    if (e->world.rank > 0) {
        return SW_OK;
    }
    sent = (struct sent){.activations = (int64_t)p->peak.live_bytes};
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const struct sw_instr *instr = &p->instrs[i];
        if (sw_instr_exchanges(instr) && instr->segment < SW_SEGMENT_UPDATE) {
            const struct sw_group *group = &e->plan->groups[instr->exchange.group];
            sent.micro[instr->exchange.group][instr->verb] +=
                sw_instr_traffic(instr, group->n, group->me).sent;
        }
    }
    for (int g = 0; g < e->plan->n_groups; g++) {
        struct sw_traffic traffic;
        sw_executor_traffic(e->executor, g, &traffic);
        sent.planned[g] = sw_plan_group_bytes(e->plan, g) * e->progress.step;
        sent.counted[g] = sum(traffic.sent, SW_COMM_OP_COUNT);
    }
    return SW_OK;
}

static void run(struct sliced job)
{
    job.data = 1;
    job.after = count;
    sliced_run(&job);
    sliced_clear(&job);
    for (int g = 0; g < GROUPS; g++) {
        if (sent.planned[g] != sent.counted[g]) {
            fail_msg("group %d: %lld bytes planned, %lld counted", g, (long long)sent.planned[g],
                     (long long)sent.counted[g]);
        }
    }
}

/* An all-reduce of n elements; slices are whole elements. */
static int64_t reduced(int64_t n, int64_t ranks, int64_t width)
{
    return 2 * (ranks - 1) * sw_ceil_div(n, ranks) * width;
}

enum { TENSOR = SW_GROUP_COUNT, SHARED };

static void assert_sent(int group, int64_t gathers, int64_t scatters, int64_t sums)
{
    assert_int_equal(sent.micro[group][SW_VERB_ALL_GATHER], gathers);
    assert_int_equal(sent.micro[group][SW_VERB_REDUCE_SCATTER], scatters);
    assert_int_equal(sent.micro[group][SW_VERB_ALL_REDUCE], sums);
    assert_int_equal(sum(sent.micro[group], SW_VERB_COUNT), gathers + scatters + sums);
}

/* t: ranks, w: bytes of an element */
static void check_formulas(int64_t t, int64_t w, const char *top)
{
    const struct sliced job = {.model = sliced_models.odd, .tensor = (int)t, .top = top};
    const int64_t rows = SLICED_BATCH * SLICED_TOKENS;
    const int64_t one = (t - 1) * rows * WIDTH * w / t;            /* (t-1)/t B T C w */
    const int64_t words = 12 * (t - 1) * rows;                     /* [3, rows] in fp32 */
    const int64_t norms = (4 * BLOCKS + 2) * reduced(WIDTH, t, w); /* weights and biases */
    const int64_t biases = 2 * BLOCKS * reduced(WIDTH, t, w);      /* after row products */
    /* the gradient of positions: a sum of what ranks have for their samples, or, if t does not
     * divide the samples, what each has for its tokens */
    const bool by_tokens = SLICED_BATCH % t != 0;
    const int64_t places = POSITIONS * WIDTH;
    const int64_t gradients = norms + biases + (by_tokens ? 0 : reduced(places, t, w));
    const int64_t more = words + (by_tokens ? (t - 1) * places * w / t : 0);
    struct sliced how = job;
    run(how);
    const int64_t kept = sent.activations;
    const int64_t each = 2 * SUBLAYERS + 1 + 1; /* of gathers: sublayers, embedding, head */
    assert_sent(TENSOR, each * one + more, each * one, gradients);

    how.more = ", \"gather_again\": true";
    run(how);
    assert_sent(TENSOR, (each + SUBLAYERS) * one + more, each * one, gradients);
    assert_true(sent.activations < kept);

    /* all of the forward of a block but the sum that ends it, which the next block has anyway */
    how.more = ", \"recompute\": \"blocks\"";
    run(how);
    assert_sent(TENSOR, (each + SUBLAYERS) * one + more, (each + SUBLAYERS - BLOCKS) * one,
                gradients);

    how.more = ", \"sequence_parallel\": false";
    run(how);
    assert_sent(TENSOR, words, 0, each * 2 * one);
}

static void bytes_are_those_of_the_formulas(void **state)
{
    (void)state;
    check_formulas(2, 4, NULL);
    check_formulas(4, 4, NULL);
    check_formulas(2, 2, "\"bf16\": {\"enabled\": true}, ");
}

/* The gradients of key and value heads are added over the ranks that share them. */
static void shared_heads_send_their_gradients(void **state)
{
    enum { HEAD = 4, WIDE = 16 };
    (void)state;
    run((struct sliced){.model = sliced_models.shared, .tensor = 4});
    assert_sent(SHARED, 0, 0, BLOCKS * 2 * reduced(HEAD * WIDTH, 2, 4));
    /* key and value are packed with queries that are not shared */
    run((struct sliced){.model = sliced_models.packed, .tensor = 4});
    assert_sent(SHARED, 0, 0, BLOCKS * reduced(2 * HEAD * WIDE, 2, 4));
    run((struct sliced){.model = sliced_models.groups, .tensor = 4});
    assert_sent(SHARED, 0, 0, BLOCKS * reduced(2 * HEAD * WIDE, 2, 4));
}

/* Inputs gathered again are the same bits. */
static void gathering_again_changes_no_bit(void **state)
{
    (void)state;
    struct sliced first = {.model = sliced_models.odd, .data = 1, .tensor = 2};
    struct sliced again = first, most = first;
    again.more = ", \"gather_again\": true";
    most.data = 2;
    most.stage = 3;
    most.more = ", \"gather_again\": true, \"schedule\": \"vertical\", \"recompute\": 2";
    sliced_run(&first);
    sliced_run(&again);
    sliced_run(&most);
    sliced_assert_same(&again, &first);
    sliced_assert_same(&most, &first);
    sliced_clear(&first);
    sliced_clear(&again);
    sliced_clear(&most);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(bytes_are_those_of_the_formulas),
    cmocka_unit_test(shared_heads_send_their_gradients),
    cmocka_unit_test(gathering_again_changes_no_bit),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = sliced_set_up};
