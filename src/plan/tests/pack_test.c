// SPDX-License-Identifier: Apache-2.0
// Tests packs of small tensors: what is packed, that each pack is loaded once and stored once, and
// that damage is found.
#include <string.h>

#include "plan/private.h"
#include "support/plans.h"
#include "support/test.h"

enum {
    LAYERS = 3,
    C = 7,
    F = 449,
    ROWS = 64
}; /* 7, 448 and 449 elements: sizes that are not multiples of 64 bytes */

static void query(void *ctx, const struct sw_op_desc *desc, struct sw_kernel_info *out)
{
    (void)ctx;
    (void)desc;
    *out = (struct sw_kernel_info){.supported = true, .path = "imagined"};
}

static sw_value param(struct sw_graph *g, const char *name, int layer, struct sw_shape shape)
{
    char text[64];
    snprintf(text, sizeof text, "h.%d.%s", layer, name);
    return sw_param(g, text, shape, (struct sw_init){SW_INIT_NORMAL, 0.1});
}

static sw_value linear(struct sw_graph *g, sw_value x, const char *name, int layer, int64_t in,
                       int64_t out)
{
    char weight[32], bias[32];
    snprintf(weight, sizeof weight, "%s.weight", name);
    snprintf(bias, sizeof bias, "%s.bias", name);
    const sw_value w = param(g, weight, layer, SW_SHAPE(in, out));
    return sw_linear(g, x, w, param(g, bias, layer, SW_SHAPE(out)), true);
}

/* Blocks with a norm and three layers, between a table and a head. */
static struct sw_graph *model(enum sw_dtype dtype, bool backward)
{
    static const char *const frozen[] = {"h.1.ln.weight"};
    const struct sw_graph_options options = {.dtype = dtype,
                                             .grad_dtype = dtype,
                                             .training = true,
                                             .frozen = frozen,
                                             .n_frozen = SW_LEN(frozen)};
    struct sw_graph *g;
    assert_int_equal(sw_graph_open(&options, &g), SW_OK);
    const sw_value table = sw_param(g, "table", SW_SHAPE(19, C), (struct sw_init){0});
    sw_value h = sw_embedding(g, table, sw_input(g, "ids", SW_I32, SW_SHAPE(3, 5)), -1);
    for (int i = 0; i < LAYERS; i++) {
        char name[32];
        snprintf(name, sizeof name, "h.%d", i);
        sw_scope_push_block(g, name);
        const sw_value w = param(g, "ln.weight", i, SW_SHAPE(C));
        sw_value x = sw_layer_norm(g, h, w, param(g, "ln.bias", i, SW_SHAPE(C)), 1e-5);
        x = sw_act(g, linear(g, x, "up", i, C, F), SW_ACT_GELU);
        x = sw_act(g, linear(g, x, "middle", i, F, ROWS), SW_ACT_GELU);
        h = sw_add(g, h, linear(g, x, "down", i, ROWS, C));
        sw_scope_pop(g);
    }
    sw_value head = sw_param(g, "head", SW_SHAPE(19, C), (struct sw_init){0});
    const sw_value loss = sw_linear_cross_entropy(g, h, head, SW_NO_VALUE,
                                                  sw_input(g, "labels", SW_I32, SW_SHAPE(3, 5)), 0);
    sw_output(g, "loss", loss);
    if (backward) {
        assert_int_equal(sw_graph_backward(g, loss), SW_OK);
    }
    return g;
}

static struct sw_plan_options options(void)
{
    return (struct sw_plan_options){.device = {query, NULL},
                                    .policy.micro_batches = 1,
                                    .rule = &test_adam,
                                    .kernel_set = "test",
                                    .policy.stage = 3,
                                    .policy.transfer_bytes = 1 << 16,
                                    .policy.states_tier = SW_TIER_DISK,
                                    .policy.params_tier = SW_TIER_DISK,
                                    .policy.grads_tier = SW_TIER_HOST};
}

static sw_status open_plan(const struct sw_plan_options *o, enum sw_dtype dtype,
                           struct sw_plan **out)
{
    const struct sw_program_spec specs[] = {{SW_PROGRAM_TRAIN, model(dtype, true)},
                                            {SW_PROGRAM_EVAL, model(dtype, false)}};
    return plan_once(specs, SW_LEN(specs), o, out);
}

static struct sw_plan *plan_of(const struct sw_plan_options *o, enum sw_dtype dtype)
{
    struct sw_plan *plan = NULL;
    if (open_plan(o, dtype, &plan) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return plan;
}

static int count(const struct sw_program *program, const char *name, sw_value pack)
{
    int n = 0;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_ir_op *op = &program->ir->ops[program->instrs[i].op];
        n += strcmp(sw_ir_op_name(op), name) == 0 && sw_ir_root(program->ir, op->in[0]) == pack;
    }
    return n;
}

/* The value of the only pack whose name ends so; fails if there is none. */
static sw_value pack_named(const struct sw_ir *ir, const char *end)
{
    for (sw_value v = 0; v < ir->n_values; v++) {
        const char *name = ir->values[v].is_pack ? ir->values[v].name : "";
        if (strlen(name) > strlen(end) && strcmp(name + strlen(name) - strlen(end), end) == 0) {
            return v;
        }
    }
    fail_msg("no pack %s", end);
    return SW_NO_VALUE;
}

/* Members have a place in their packs, the same for all programs, and no place of their own. */
static int check_members(const struct sw_plan *plan, const struct sw_program *program)
{
    const struct sw_ir *ir = program->ir;
    int n = 0;
    for (sw_value v = 0; v < ir->n_values; v++) {
        if (!sw_ir_is_packed(ir, v)) {
            continue;
        }
        const struct sw_persistent *item = sw_plan_item(plan, ir, v);
        const sw_value pack = ir->values[v].base;
        const struct sw_buffer *buffer = &program->buffers[program->buffer_of[pack]];
        assert_non_null(item);
        assert_int_equal(item->tier, SW_TIER_DISK);
        assert_int_equal(item->bytes, sw_ir_storage_bytes(&ir->values[v]));
        assert_int_equal(item->offset, sw_program_address(program, v));
        assert_int_equal(item->offset % SW_PLAN_ALIGN, 0);
        assert_int_equal(buffer->offset % SW_PLAN_DISK_ALIGN, 0);
        assert_true(item->offset + sw_persistent_taken(item) <= buffer->offset + buffer->bytes);
        /* neither in memory nor with its own place on disk */
        assert_int_equal(program->buffer_of[v], -1);
        n++;
    }
    return n;
}

/* Each pack is loaded once per use of the block, and stored once. */
static void check_moves(const struct sw_program *program, bool trains)
{
    const struct sw_ir *ir = program->ir;
    for (sw_value v = 0; v < ir->n_values; v++) {
        if (ir->values[v].is_pack) {
            const bool state = ir->values[v].role == SW_ROLE_STATE;
            const int loads = count(program, "load", v);
            assert_true(loads >= 1 && loads <= (state || !trains ? 1 : 3));
            assert_int_equal(count(program, "store", v), trains);
        }
    }
}

static void a_block_has_one_load_and_one_store_of_a_kind(void **state)
{
    (void)state;
    const struct sw_plan_options o = options();
    struct sw_plan *plan = plan_of(&o, SW_BF16);
    const struct sw_program *train = &plan->programs[0], *eval = &plan->programs[1];
    const sw_value params = pack_named(train->ir, "h.0.parameters");
    const sw_value states = pack_named(train->ir, "h.0.states");
    assert_int_equal(count(train, "load", params), 2); /* for forward and backward */
    assert_int_equal(count(train, "store", params), 1);
    assert_int_equal(count(train, "load", states), 1);
    assert_int_equal(count(train, "store", states), 1);
    assert_int_equal(count(eval, "load", pack_named(eval->ir, "h.0.parameters")), 1);
    /* two of a norm, weights and biases of three layers; one of block 1 is frozen, so it has no
     * pack */
    assert_int_equal(check_members(plan, eval), LAYERS * 8 - 1);
    /* and three states of each; for the table and the head only the states */
    assert_true(check_members(plan, train) >= LAYERS * 32 - 4);
    check_moves(train, true);
    check_moves(eval, false);
    assert_int_equal(plan->n_packs, 2 * LAYERS + 2);
    sw_plan_close(plan);
}

static void what_is_large_or_offloaded_is_not_packed(void **state)
{
    (void)state;
    struct sw_plan_options o = options();
    o.policy.update_elems = 448; /* longer ones are split into pieces */
    struct sw_plan *plan = plan_of(&o, SW_F32);
    assert_int_equal(sw_plan_find(plan, "h.0.up.bias")->packed_bytes, 0);
    assert_true(sw_plan_find(plan, "h.0.down.weight")->packed_bytes > 0);
    assert_int_equal(sw_plan_find(plan, "h.1.ln.weight")->packed_bytes, 0); /* never written */
    assert_int_equal(sw_plan_find(plan, "table")->packed_bytes, 0);         /* read by rows */
    sw_plan_close(plan);
    o.policy.params_tier = SW_TIER_HOST;
    plan = plan_of(&o, SW_F32);
    assert_int_equal(sw_plan_find(plan, "h.0.down.weight")->packed_bytes, 0);
    assert_true(sw_plan_find_state(plan, "h.0.down.weight", SW_STATE_EXP_AVG, 0)->packed_bytes > 0);
    sw_plan_close(plan);
    o = options();
    o.policy.budget[SW_TIER_HOST] = 1 << 24; /* everything fits there */
    o.limits.host_param_elems = 1 << 24;
    plan = plan_of(&o, SW_F32);
    assert_int_equal(plan->n_packs, 0);
    sw_plan_close(plan);
}

static void every_way_to_train_has_a_plan(void **state)
{
    (void)state;
    static const enum sw_dtype dtypes[] = {SW_F32, SW_BF16, SW_F16};
    for (int way = 0; way < 3 * 64; way++) {
        struct sw_plan_options o = options();
        const enum sw_dtype dtype = dtypes[way / 64];
        o.fp16 = dtype == SW_F16;
        o.clip = way & 1;
        o.mesh = sw_mesh_of_data(1 + (way & 2));
        o.policy.micro_batches = way & 4 ? 4 * sw_data_ranks(&o) : sw_data_ranks(&o);
        o.policy.schedule = (way & 8) ? SW_STEP_VERTICAL : SW_STEP_HORIZONTAL;
        o.policy.recompute.every = way & 16 ? 1 : 0;
        o.policy.update_elems = way & 32 ? 448 : 0;
        o.limits.persistence_elems = way & 2 ? 6 : 0;
        o.limits.persistence_total = 1 << 20;
        o.overlap = way & 1;
        o.policy.prefetch_elems = o.limits.max_live_elems = 10000;
        o.limits.reduce_bucket_elems = o.limits.allgather_bucket_elems = 1000;
        struct sw_plan *plan = plan_of(&o, dtype);
        assert_true(plan->n_packs >= 2 * LAYERS);
        for (int p = 0; p < 2; p++) {
            assert_true(check_members(plan, &plan->programs[p]) > 2 * LAYERS);
            check_moves(&plan->programs[p], p == 0);
        }
        sw_plan_close(plan);
    }
}

/* ---- damage ---- */

static void assert_found(const struct sw_plan *plan, const char *message)
{
    assert_int_equal(sw_plan_check_packs(plan, &plan->programs[0]), SW_E_ARG);
    if (!strstr(sw_error_message(), message)) {
        fail_msg("\"%s\" is not in: %s", message, sw_error_message());
    }
}

static int32_t instr_of(const struct sw_program *program, const char *name, sw_value pack)
{
    int32_t i = 0;
    for (;; i++) {
        const struct sw_ir_op *op = &program->ir->ops[program->instrs[i].op];
        if (strcmp(sw_ir_op_name(op), name) == 0 && sw_ir_root(program->ir, op->in[0]) == pack) {
            return i;
        }
    }
}

static void damage_to_places_is_found(void **state)
{
    (void)state;
    const struct sw_plan_options o = options();
    struct sw_plan *plan = plan_of(&o, SW_BF16);
    struct sw_program *program = &plan->programs[0];
    struct sw_ir *ir = program->ir;
    const sw_value member = sw_ir_param_state(ir, sw_ir_find(ir, SW_ROLE_PARAM, "h.0.down.bias"),
                                              SW_STATE_EXP_AVG, 0, SW_F32, SW_SHAPE(1));
    struct sw_persistent *item = sw_plan_item(plan, ir, member);
    const struct sw_persistent before = *item;
    assert_int_equal(sw_plan_check_packs(plan, program), SW_OK);
    item->offset += SW_PLAN_ALIGN;
    assert_found(plan, "is not where");
    /* both: it overlaps another one */
    ir->values[member].base_offset += SW_PLAN_ALIGN / (int)sizeof(float);
    assert_found(plan, "share bytes of");
    ir->values[member].base_offset -= SW_PLAN_ALIGN / (int)sizeof(float);
    *item = before;
    item->slot_bytes = SW_PLAN_DISK_ALIGN;
    assert_found(plan, "is not where");
    *item = before;
    struct sw_buffer *buffer = &program->buffers[program->buffer_of[ir->values[member].base]];
    buffer->offset -= SW_PLAN_DISK_ALIGN;
    assert_found(plan, "share bytes of the disk");
    buffer->offset += SW_PLAN_DISK_ALIGN;
    buffer->slot_bytes = plan->tier_bytes[SW_TIER_DISK];
    assert_found(plan, "has no place");
    buffer->slot_bytes = 0;
    assert_int_equal(sw_plan_check_packs(plan, program), SW_OK);
    sw_plan_close(plan);
}

static void damage_to_moves_is_found(void **state)
{
    (void)state;
    const struct sw_plan_options o = options();
    struct sw_plan *plan = plan_of(&o, SW_BF16);
    struct sw_program *program = &plan->programs[0];
    struct sw_ir *ir = program->ir;
    const sw_value pack = pack_named(ir, "h.0.states");
    const int32_t load = instr_of(program, "load", pack);
    const int32_t store = instr_of(program, "store", pack);
    struct sw_ir_op *loads = &ir->ops[program->instrs[load].op];
    const sw_value copy = loads->out[0];

    loads->first = SW_PLAN_ALIGN;
    assert_found(plan, "does not move all of it");
    loads->first = 0;
    loads->unless_skipped = true; /* without clipping it has the predicate already */
    assert_int_equal(sw_plan_check_packs(plan, program), SW_OK);

    int32_t last = store; /* finds the last instruction that writes it */
    while (ir->ops[program->instrs[last].op].kind != SW_OP_UPDATE) {
        last--;
    }
    struct sw_ir_op *update = &ir->ops[program->instrs[last].op];
    update->unless_skipped = false;
    assert_found(plan, "may run where it is not loaded");
    update->unless_skipped = true;
    for (int k = 1; k < 4; k++) { /* its states follow one another */
        struct sw_ir_value *info = &ir->values[update->in[k]];
        assert_int_equal(info->base, copy);
        info->base_offset += 1;
        assert_found(plan, "uses what is no member of it");
        info->base_offset -= 1;
    }

    const struct sw_instr stores = program->instrs[store];
    program->instrs[store].op = program->instrs[last].op; /* not stored */
    assert_found(plan, "is never stored");
    program->instrs[store] = program->instrs[last]; /* stored too early */
    program->instrs[last] = stores;
    assert_found(plan, "is never stored");
    program->instrs[last] = program->instrs[store];
    program->instrs[store] = stores;

    const struct sw_instr update_instr = program->instrs[last];
    program->instrs[last] = program->instrs[load]; /* loaded again, overwriting what was written */
    assert_found(plan, "comes before what was written");
    program->instrs[last] = update_instr;
    assert_int_equal(sw_plan_check(plan, &o), SW_OK);
    sw_plan_close(plan);
}

static void survives_lack_of_memory(void **state)
{
    (void)state;
    const struct sw_plan_options o = options();
    struct sw_alloc_stats before, after;
    sw_alloc_get_stats(&before);
    for (int n = 1;; n++) {
        struct sw_plan *plan = NULL;
        const struct sw_program_spec specs[] = {{SW_PROGRAM_TRAIN, model(SW_F16, true)},
                                                {SW_PROGRAM_EVAL, model(SW_F16, false)}};
        sw_alloc_fail_nth(n);
        const sw_status st = plan_once(specs, SW_LEN(specs), &o, &plan);
        sw_alloc_fail_nth(0);
        if (st == SW_OK) {
            sw_plan_close(plan);
            break;
        }
        assert_int_equal(st, SW_E_NOMEM);
    }
    sw_alloc_get_stats(&after);
    assert_int_equal(after.live_blocks, before.live_blocks);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_block_has_one_load_and_one_store_of_a_kind),
    cmocka_unit_test(what_is_large_or_offloaded_is_not_packed),
    cmocka_unit_test(every_way_to_train_has_a_plan),
    cmocka_unit_test(damage_to_places_is_found),
    cmocka_unit_test(damage_to_moves_is_found),
    cmocka_unit_test(survives_lack_of_memory),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
