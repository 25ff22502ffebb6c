// SPDX-License-Identifier: Apache-2.0
// Tests weights that stay from one micro-batch to the next: which ones, what they cost and save,
// and that a plan is refused in which something else touches them. Also weights that serve the next
// place.
#include "plan/private.h"

#include <string.h>

#include "support/plans.h"
#include "support/test.h"
#include "support/towers.h"

enum { BLOCKS = 6, WIDTH = 16, INNER = 64, VOCAB = 24, K = 3, RANKS = 2 };
enum { BLOCK = 2 * WIDTH * INNER, TABLE = VOCAB * WIDTH }; /* elements */

static struct sw_graph *tower(void)
{
    return test_tower(&(struct test_tower){
        .graph = {.dtype = SW_F32, .grad_dtype = SW_F32, .training = true},
        .blocks = BLOCKS,
        .batch = 2,
        .tokens = 4,
        .vocab = VOCAB,
        .width = WIDTH,
        .inner = INNER,
        .std = 0.1,
    });
}

static struct sw_plan_options options(int ranks, int64_t micro_batches, int64_t room)
{
    return (struct sw_plan_options){.device = {test_query, NULL},
                                    .policy = {.micro_batches = micro_batches * ranks,
                                               .stage = 3,
                                               .prefetch_elems = room,
                                               .transfer_bytes = (size_t)room * sizeof(float),
                                               .budget[SW_TIER_DEVICE] = 1 << 30},
                                    .limits = {.max_live_elems = room,
                                               .kept_elems = room,
                                               .reduce_bucket_elems = 1 << 14,
                                               .allgather_bucket_elems = 1 << 14},
                                    .overlap = true,
                                    .clip = 1,
                                    .rule = &test_adam,
                                    .kernel_set = "test",
                                    .mesh = sw_mesh_of_data(ranks)};
}

static struct sw_plan *plan_of(const struct sw_plan_options *o)
{
    struct sw_plan *plan = NULL;
    const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, tower()};
    if (plan_once(&spec, 1, o, &plan) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return plan;
}

/* Elements that are gathered, or loaded, once a step in a segment. */
static int64_t once_in(const struct sw_plan *plan, enum sw_segment segment, enum sw_move move)
{
    const struct sw_program *program = &plan->programs[0];
    int64_t sum = 0;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_instr *instr = &program->instrs[i];
        const struct sw_ir_op *op = &program->ir->ops[instr->op];
        sum += instr->turn.once && instr->segment == segment && op->move == move
                   ? program->ir->values[op->out[0]].form->elems
                   : 0;
    }
    return sum;
}

/* Forward keeps its embedding and its first block, backward the last block; forward has left it the
 * head. Kept weights are sent once, and the peak grows by no more than them. */
static void the_first_block_of_each_phase_stays(void **state)
{
    (void)state;
    const struct sw_plan_options wide = options(RANKS, K, 1 << 14);
    struct sw_plan_options narrow = wide;
    struct sw_plan *with = plan_of(&wide);
    const size_t kept = with->programs[0].peak.kept_bytes;
    assert_int_equal(once_in(with, SW_SEGMENT_FORWARD, SW_MOVE_GATHER), BLOCK + TABLE);
    assert_int_equal(once_in(with, SW_SEGMENT_BACKWARD, SW_MOVE_GATHER), BLOCK);
    assert_int_equal(kept, (2 * BLOCK + TABLE) * sizeof(float));
    /* what prefetching takes goes before */
    narrow.policy.budget[SW_TIER_DEVICE] = with->tier_bytes[SW_TIER_DEVICE] - 1;
    struct sw_plan *without = plan_of(&narrow);
    assert_int_equal(without->programs[0].peak.kept_bytes, 0);
    assert_int_equal(without->ahead.prefetch_elems, with->ahead.prefetch_elems);
    assert_in_range(with->tier_bytes[SW_TIER_DEVICE], without->tier_bytes[SW_TIER_DEVICE],
                    without->tier_bytes[SW_TIER_DEVICE] + kept);
    const int64_t saved = (K - 1) * (int64_t)kept * (RANKS - 1) / RANKS;
    assert_int_equal(sw_plan_group_bytes(without, SW_GROUP_DATA) -
                         sw_plan_group_bytes(with, SW_GROUP_DATA),
                     saved);
    assert_int_equal(with->fingerprint, without->fingerprint);
    sw_plan_close(with);
    sw_plan_close(without);
}

static void nothing_stays_without_a_budget_or_room_or_a_second_micro_batch(void **state)
{
    (void)state;
    static const int64_t rooms[] = {0, TABLE - 1, TABLE, 2 * TABLE, BLOCK + 2 * TABLE};
    for (size_t i = 0; i < SW_LEN(rooms); i++) {
        struct sw_plan_options o = options(RANKS, K, 1 << 14);
        o.limits.max_live_elems = o.limits.kept_elems = rooms[i];
        struct sw_plan *plan = plan_of(&o);
        const size_t kept = plan->programs[0].peak.kept_bytes;
        assert_true(kept <= (size_t)rooms[i] * sizeof(float));
        assert_true((kept > 0) == (rooms[i] >= TABLE));
        sw_plan_close(plan);
    }
    struct sw_plan_options o = options(RANKS, 1, 1 << 14);
    struct sw_plan *one = plan_of(&o);
    o = options(RANKS, K, 1 << 14);
    o.policy.schedule = SW_STEP_VERTICAL;
    struct sw_plan *vertical = plan_of(&o);
    o = options(RANKS, K, 1 << 14);
    o.policy.budget[SW_TIER_DEVICE] = 0;
    struct sw_plan *unknown = plan_of(&o);
    assert_int_equal(one->programs[0].peak.kept_bytes, 0);
    assert_int_equal(vertical->programs[0].peak.kept_bytes, 0);
    assert_int_equal(unknown->programs[0].peak.kept_bytes, 0);
    sw_plan_close(one);
    sw_plan_close(unknown);
    sw_plan_close(vertical);
}

/* Offloaded weights are loaded once: whole ones by one rank, slices for the gathers of several. One
 * rank loads the rows of a lookup, which differ from one micro-batch to the next. */
static void loads_stay_as_well(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= RANKS; ranks++) {
        struct sw_plan_options o = options(ranks, K, 1 << 14);
        o.policy.params_tier = SW_TIER_HOST;
        struct sw_plan *with = plan_of(&o);
        o.policy.budget[SW_TIER_DEVICE] = with->tier_bytes[SW_TIER_DEVICE] - 1;
        struct sw_plan *without = plan_of(&o);
        const int64_t elems = 2 * BLOCK + (ranks > 1 ? TABLE : 0);
        const int64_t bytes = elems * (int64_t)sizeof(float) / ranks;
        assert_int_equal(once_in(with, SW_SEGMENT_FORWARD, SW_MOVE_LOAD) +
                             once_in(with, SW_SEGMENT_BACKWARD, SW_MOVE_LOAD),
                         bytes / (int64_t)sizeof(float));
        assert_int_equal(with->programs[0].peak.kept_bytes, bytes * ranks);
        assert_int_equal(sw_plan_transfers(without, K).in[SW_TIER_HOST] -
                             sw_plan_transfers(with, K).in[SW_TIER_HOST],
                         (K - 1) * bytes);
        sw_plan_close(with);
        sw_plan_close(without);
    }
}

/* A tower whose blocks have the same two weights. */
static struct sw_graph *shared_tower(void)
{
    const struct sw_init init = {SW_INIT_NORMAL, 0.1};
    const struct sw_graph_options options = {
        .dtype = SW_F32, .grad_dtype = SW_F32, .training = true};
    struct sw_graph *g;
    assert_int_equal(sw_graph_open(&options, &g), SW_OK);
    const sw_value up = sw_param(g, "up", SW_SHAPE(WIDTH, INNER), init);
    const sw_value down = sw_param(g, "down", SW_SHAPE(INNER, WIDTH), init);
    const sw_value head = sw_param(g, "head", SW_SHAPE(VOCAB, WIDTH), init);
    sw_value h = sw_input(g, "x", SW_F32, SW_SHAPE(2, 4, WIDTH));
    for (int i = 0; i < BLOCKS; i++) {
        char name[32];
        snprintf(name, sizeof name, "h.%d", i);
        sw_scope_push_block(g, name);
        const sw_value x = sw_act(g, sw_linear(g, h, up, SW_NO_VALUE, true), SW_ACT_GELU);
        h = sw_add(g, h, sw_linear(g, x, down, SW_NO_VALUE, true));
        sw_scope_pop(g);
    }
    const sw_value labels = sw_input(g, "labels", SW_I32, SW_SHAPE(2, 4));
    const sw_value loss = sw_linear_cross_entropy(g, h, head, SW_NO_VALUE, labels, 0);
    sw_output(g, "loss", loss);
    assert_int_equal(sw_graph_backward(g, loss), SW_OK);
    return g;
}

/* Moves of one kind in forward and backward. */
static int moves_of(const struct sw_plan_options *o, enum sw_move move)
{
    struct sw_plan *plan = NULL;
    const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, shared_tower()};
    assert_int_equal(plan_once(&spec, 1, o, &plan), SW_OK);
    const struct sw_program *program = &plan->programs[0];
    int n = 0;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_ir_op *op = &program->ir->ops[program->instrs[i].op];
        n += op->move == move && op->phase < SW_PHASE_UPDATE;
    }
    sw_plan_close(plan);
    return n;
}

/* Blocks with the same weights bring them once in forward and once in backward. The head, with
 * which forward ends and backward begins, is brought once. */
static void the_next_place_has_what_is_there(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= RANKS; ranks++) {
        struct sw_plan_options o = options(ranks, 1, 1 << 14);
        o.policy.params_tier = SW_TIER_HOST;
        assert_int_equal(moves_of(&o, SW_MOVE_LOAD), 2 + 2 + 1);
        assert_int_equal(moves_of(&o, SW_MOVE_GATHER), ranks > 1 ? 2 + 2 + 1 : 0);
    }
}

/* The first of three places is two away from the last. In a pipeline each is alone. */
static void places_reach_one_step(void **state)
{
    (void)state;
    struct sw_plan_options o = options(1, 1, 0);
    for (int pipe = 0; pipe < 2; pipe++) {
        o.policy.schedule = pipe ? SW_STEP_1F1B : SW_STEP_HORIZONTAL;
        struct sw_places places = sw_places_of(&o);
        assert_false(sw_places_reach(&places, -1));
        for (int64_t place = 5; place < 8; place++) {
            sw_places_enter(&places, place);
            sw_places_enter(&places, place);
        }
        assert_true(sw_places_reach(&places, 7));
        assert_int_equal(sw_places_reach(&places, 6), !pipe);
        assert_false(sw_places_reach(&places, 5));
    }
}

static void assert_refused(const struct sw_plan *plan, const struct sw_plan_options *o,
                           const char *why)
{
    assert_int_equal(sw_plan_check(plan, o), SW_E_ARG);
    if (!strstr(sw_error_message(), why)) {
        fail_msg("wanted \"%s\", found: %s", why, sw_error_message());
    }
}

static void the_check_sees_what_touches_them(void **state)
{
    (void)state;
    struct sw_plan_options o = options(RANKS, K, 1 << 14);
    o.policy.params_tier = SW_TIER_HOST;
    struct sw_plan *plan = plan_of(&o);
    struct sw_program *program = &plan->programs[0];
    struct sw_instr *load = program->instrs, *gather, *kernel;
    while (!load->turn.once || program->ir->ops[load->op].move != SW_MOVE_LOAD) {
        load++;
    }
    for (gather = load; !gather->turn.once || gather->verb != SW_VERB_GATHER; gather++) {
    }
    for (kernel = gather; kernel->verb != SW_VERB_KERNEL; kernel++) {
    }
    const struct sw_ir_op *op = &program->ir->ops[gather->op];
    struct sw_buffer *whole = &program->buffers[program->buffer_of[op->out[0]]];
    assert_int_equal(sw_plan_check(plan, &o), SW_OK);

    const struct sw_buffer before = *whole; /* it dies with its last reader in the list */
    whole->last = program->segment_first[SW_SEGMENT_BACKWARD] - 1;
    assert_refused(plan, &o, "its memory is used again");
    *whole = before;

    int n_later = 0;
    for (int32_t b = 0; b < program->n_buffers && n_later < 4;
         b++) { /* a later transient lies on it */
        struct sw_buffer *other = &program->buffers[b];
        const bool is_later = !other->persistent && other != whole &&
                              other->tier == SW_TIER_DEVICE &&
                              other->first >= program->segment_first[SW_SEGMENT_BACKWARD] &&
                              other->last < program->segment_first[SW_SEGMENT_UPDATE];
        const size_t offset = other->offset;
        other->offset = is_later ? whole->offset : offset;
        if (is_later && other->bytes > 0 && other->bytes <= whole->bytes) {
            assert_refused(plan, &o, "live at once in the same bytes");
            n_later++;
        }
        other->offset = offset;
    }
    assert_true(n_later > 0);

    kernel->turn.once = true;
    assert_refused(plan, &o, "runs in the first micro-step only");
    kernel->turn.once = false;

    gather->turn.once = false; /* its slice is loaded in the first micro-step only */
    assert_int_equal(sw_plan_check(plan, &o), SW_E_ARG);
    gather->turn.once = true;

    o.policy.micro_batches = RANKS; /* a step without a second micro-batch */
    assert_refused(plan, &o, "runs in the first micro-step only");
    sw_plan_close(plan);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_first_block_of_each_phase_stays),
    cmocka_unit_test(nothing_stays_without_a_budget_or_room_or_a_second_micro_batch),
    cmocka_unit_test(loads_stay_as_well),
    cmocka_unit_test(the_next_place_has_what_is_there),
    cmocka_unit_test(places_reach_one_step),
    cmocka_unit_test(the_check_sees_what_touches_them),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
