// SPDX-License-Identifier: Apache-2.0
// Tests the passes and the finished plan on small graphs with a mock device. Nothing runs here.
#include "plan/private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/plans.h"
#include "support/test.h"

static struct sw_plan_options options(void)
{
    return (struct sw_plan_options){.device = {test_query, NULL},
                                    .policy.micro_batches = 1,
                                    .clip = 1,
                                    .rule = &test_adam,
                                    .kernel_set = "test"};
}

/* A residual tower of `layers` blocks over a tied table. */
static struct sw_graph *tower(int layers, enum sw_dtype dtype, bool backward)
{
    const struct sw_graph_options graph = {.dtype = dtype, .grad_dtype = dtype, .training = true};
    struct sw_graph *g;
    assert_int_equal(sw_graph_open(&graph, &g), SW_OK);
    const struct sw_init init = {SW_INIT_NORMAL, 0.1};
    const sw_value table = sw_param(g, "table", SW_SHAPE(19, 8), init);
    sw_value h = sw_embedding(g, table, sw_input(g, "ids", SW_I32, SW_SHAPE(3, 5)), -1);
    for (int i = 0; i < layers; i++) {
        char name[32];
        snprintf(name, sizeof name, "h.%d", i);
        sw_scope_push_block(g, name);
        snprintf(name, sizeof name, "up.%d", i);
        const sw_value up = sw_param(g, name, SW_SHAPE(8, 32), init);
        snprintf(name, sizeof name, "bias.%d", i);
        const sw_value bias = sw_param(g, name, SW_SHAPE(32), init);
        snprintf(name, sizeof name, "down.%d", i);
        const sw_value down = sw_param(g, name, SW_SHAPE(32, 8), init);
        sw_value x = sw_act(g, sw_linear(g, h, up, bias, true), SW_ACT_GELU);
        x = sw_dropout(g, sw_linear(g, x, down, SW_NO_VALUE, true), 0.1);
        h = sw_add(g, h, x);
        sw_scope_pop(g);
    }
    const sw_value loss = sw_linear_cross_entropy(g, h, table, SW_NO_VALUE,
                                                  sw_input(g, "labels", SW_I32, SW_SHAPE(3, 5)), 0);
    sw_output(g, "loss", loss);
    if (backward) {
        assert_int_equal(sw_graph_backward(g, loss), SW_OK);
    }
    return g;
}

static struct sw_plan *plan_tower(int layers, const struct sw_plan_options *o)
{
    struct sw_plan *plan = NULL;
    const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, tower(layers, SW_F32, true)};
    if (plan_once(&spec, 1, o, &plan) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return plan;
}

/* Each micro-batch loads rows of a table. */
static bool loads_rows(const struct sw_ir_op *op)
{
    return op->move == SW_MOVE_LOAD && op->n_in > 1;
}

static int count_ops(const struct sw_program *program, const char *name)
{
    int n = 0;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_ir_op *op = &program->ir->ops[program->instrs[i].op];
        n += strcmp(sw_ir_op_name(op), name) == 0 && !loads_rows(op);
    }
    return n;
}

static void tied_table_has_two_streams(void **state)
{
    (void)state;
    struct sw_graph *g = tower(1, SW_F32, true);
    int n = 0, n_sparse = 0;
    for (int32_t i = 0; i < g->n_streams; i++) {
        if (strcmp(g->values[g->streams[i].param].name, "table") == 0) {
            n++;
            n_sparse += g->values[g->streams[i].grad].sparse_index >= 0;
        }
    }
    assert_int_equal(n, 2);
    assert_int_equal(n_sparse, 1);
    sw_graph_close(g);
}

static void fusing_joins_bias_and_activation(void **state)
{
    (void)state;
    struct sw_plan_options o = options();
    o.keep_cheap = true; /* otherwise backward has activations on its own */
    struct sw_plan *plan = plan_tower(2, &o);
    assert_int_equal(count_ops(&plan->programs[0], "act"), 0);
    int joined = 0;
    for (int32_t i = 0; i < plan->programs[0].n_instrs; i++) {
        const struct sw_ir_op *op = &plan->programs[0].ir->ops[plan->programs[0].instrs[i].op];
        joined += op->kind == SW_OP_MATMUL && op->detail->attrs.matmul.has_bias &&
                  op->detail->attrs.matmul.act == SW_ACT_GELU;
    }
    assert_int_equal(joined, 2);
    sw_plan_close(plan);
}

/* Acts as a device that runs out of memory while it looks for a fused kernel. */
static void query_without_memory(void *ctx, const struct sw_op_desc *desc,
                                 struct sw_kernel_info *out)
{
    test_query(ctx, desc, out);
    if (desc->op->kind == SW_OP_ADD_RMS_NORM) {
        SW_FAIL(SW_E_NOMEM, "the limit of the address space is 3");
        *out = (struct sw_kernel_info){.no_memory = true};
    }
}

static void fusing_without_memory_fails_and_plans_nothing_else(void **state)
{
    (void)state;
    const struct sw_graph_options graph = {.dtype = SW_F32, .grad_dtype = SW_F32};
    struct sw_plan_options o = options();
    struct sw_graph *g;
    struct sw_plan *plan = NULL;
    assert_int_equal(sw_graph_open(&graph, &g), SW_OK);
    const sw_value x = sw_input(g, "x", SW_F32, SW_SHAPE(4, 8));
    const sw_value weight = sw_param(g, "w", SW_SHAPE(8), (struct sw_init){SW_INIT_ONE, 0});
    sw_output(g, "y", sw_rms_norm(g, sw_add(g, x, x), weight, 1e-5, false));
    const struct sw_program_spec spec = {SW_PROGRAM_EVAL, g};
    o.device.query = query_without_memory;
    o.rule = NULL;
    assert_int_equal(sw_plan_open(&spec, 1, &o, &plan), SW_E_NOMEM);
    assert_string_equal(sw_error_message(),
                        "a kernel of add_rms_norm: the limit of the address space is 3");
    o.device.query = test_query;
    assert_int_equal(sw_plan_open(&spec, 1, &o, &plan), SW_OK);
    assert_int_equal(count_ops(&plan->programs[0], "add_rms_norm"), 1);
    sw_plan_close(plan);
    sw_graph_close(g);
}

static void recomputing_saves_bytes_and_keeps_the_fingerprint(void **state)
{
    (void)state;
    struct sw_plan_options o = options();
    struct sw_plan *keep = plan_tower(6, &o);
    for (int every = 1; every <= 4; every++) {
        o.policy.recompute.every = every;
        struct sw_plan *again = plan_tower(6, &o);
        int clones = 0;
        for (int32_t i = 0; i < again->programs[0].n_instrs; i++) {
            clones += again->programs[0].ir->ops[again->programs[0].instrs[i].op].is_clone;
        }
        assert_true(clones > 0);
        assert_true(again->programs[0].peak.bytes[SW_TIER_DEVICE] <
                    keep->programs[0].peak.bytes[SW_TIER_DEVICE]);
        assert_true(again->programs[0].flops > keep->programs[0].flops);
        assert_true(again->fingerprint == keep->fingerprint);
        sw_plan_close(again);
    }
    sw_plan_close(keep);
}

/* The last block of which backward recomputes an op; -1 = none. */
static int last_recomputed(const struct sw_program *p)
{
    int last = -1;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const struct sw_ir_op *op = &p->ir->ops[p->instrs[i].op];
        const int block = op->is_clone ? atoi(p->ir->scopes[op->scope].name + strlen("h.")) : -1;
        last = block > last ? block : last;
    }
    return last;
}

/* Each further block adds work and saves bytes. Without a number, all blocks are recomputed. */
static void some_blocks_are_recomputed_and_the_last_ones_kept(void **state)
{
    (void)state;
    enum { BLOCKS = 6 };
    struct sw_plan_options o = options();
    o.keep_cheap = true; /* otherwise single values of the last blocks are recomputed, too */
    for (int every = 0; every <= 3; every++) {
        o.policy.recompute = (struct sw_recompute){0};
        struct sw_plan *less = plan_tower(BLOCKS, &o);
        const uint64_t fingerprint = less->fingerprint;
        const size_t bytes = less->programs[0].peak.bytes[SW_TIER_DEVICE];
        for (int blocks = 1; blocks <= BLOCKS && every > 0; blocks++) {
            o.policy.recompute = (struct sw_recompute){every, blocks};
            struct sw_plan *more = plan_tower(BLOCKS, &o);
            const struct sw_program *p = &more->programs[0];
            assert_true(p->peak.bytes[SW_TIER_DEVICE] < bytes);
            assert_true(every > 1 || p->peak.bytes[SW_TIER_DEVICE] <=
                                         less->programs[0].peak.bytes[SW_TIER_DEVICE]);
            assert_true(p->flops > less->programs[0].flops);
            assert_true(more->fingerprint == fingerprint);
            assert_int_equal(p->recomputed.blocks, blocks);
            assert_int_equal(p->recomputed.of, BLOCKS);
            assert_int_equal(last_recomputed(p), blocks - 1);
            sw_plan_close(less);
            less = more;
        }
        o.policy.recompute.blocks = 0;
        struct sw_plan *all = plan_tower(BLOCKS, &o);
        assert_int_equal(all->programs[0].peak.bytes[SW_TIER_DEVICE],
                         less->programs[0].peak.bytes[SW_TIER_DEVICE]);
        assert_int_equal(all->programs[0].n_instrs, less->programs[0].n_instrs);
        sw_plan_close(all);
        sw_plan_close(less);
    }
}

static void clones_keep_their_path(void **state)
{
    (void)state;
    struct sw_plan_options o = options();
    o.policy.recompute.every = 1;
    struct sw_plan *plan = plan_tower(3, &o);
    const struct sw_program *program = &plan->programs[0];
    int seen = 0;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_ir_op *op = &program->ir->ops[program->instrs[i].op];
        if (op->kind != SW_OP_DROPOUT) {
            continue;
        }
        bool has_forward = false;
        for (int32_t k = 0; k < program->n_instrs; k++) {
            const struct sw_ir_op *other = &program->ir->ops[program->instrs[k].op];
            has_forward |= other->kind == SW_OP_DROPOUT && other->phase == SW_PHASE_FORWARD &&
                           other->detail->path == op->detail->path;
        }
        assert_true(has_forward);
        seen += op->phase == SW_PHASE_BACKWARD;
    }
    assert_true(seen >= 3);
    sw_plan_close(plan);
}

static void fingerprint_tells_what_changes_bits(void **state)
{
    (void)state;
    struct sw_plan_options o = options();
    struct sw_plan *first = plan_tower(2, &o);
    struct sw_plan *same = plan_tower(2, &o);
    assert_true(first->fingerprint == same->fingerprint);
    o.kernel_set = "other";
    struct sw_plan *other = plan_tower(2, &o);
    assert_true(first->fingerprint != other->fingerprint);
    sw_plan_close(other);
    o.kernel_set = "test";
    o.policy.micro_batches = 2;
    other = plan_tower(2, &o);
    assert_true(first->fingerprint != other->fingerprint);
    sw_plan_close(other);
    sw_plan_close(same);
    sw_plan_close(first);
}

static void accumulators_exist_for_more_than_one_micro_batch(void **state)
{
    (void)state;
    struct sw_plan_options o = options();
    struct sw_plan *one = plan_tower(2, &o);
    assert_int_equal(count_ops(&one->programs[0], "accumulate"), 0);
    o.policy.micro_batches = 3;
    struct sw_plan *three = plan_tower(2, &o);
    assert_int_equal(count_ops(&three->programs[0], "accumulate"),
                     three->programs[0].ir->n_streams);
    assert_non_null(sw_plan_find_state(three, "table", SW_STATE_SUM, 0));
    assert_non_null(sw_plan_find_state(three, "table", SW_STATE_SUM, 1));
    sw_plan_close(one);
    sw_plan_close(three);
}

static bool is_sum_of_vector(const struct sw_program *p, int32_t i)
{
    const struct sw_ir_op *op = &p->ir->ops[p->instrs[i].op];
    return sw_ir_is(op, SW_OP_ACCUMULATE) && p->ir->values[op->in[1]].form->shape.rank == 1;
}

/* Sums of matrices follow the producer of their gradient at once. */
static void sums_of_vectors_wait_for_the_end_of_their_block(void **state)
{
    (void)state;
    struct sw_plan_options o = options();
    o.policy.micro_batches = 3;
    struct sw_plan *plan = plan_tower(3, &o);
    const struct sw_program *p = &plan->programs[0];
    int n_vectors = 0;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const struct sw_ir_op *op = &p->ir->ops[p->instrs[i].op];
        if (!sw_ir_is(op, SW_OP_ACCUMULATE)) {
            continue;
        }
        const int32_t maker = p->ir->values[sw_ir_version(p->ir, op->in[1])].producer;
        int32_t k = i;
        if (is_sum_of_vector(p, i)) {
            n_vectors++;
            for (; is_sum_of_vector(p, k); k++) {
            }
            assert_true(sw_ir_block_segment(p->ir, &p->ir->ops[p->instrs[k].op]) !=
                        sw_ir_block_segment(p->ir, &p->ir->ops[maker]));
        } else {
            for (; sw_ir_is(&p->ir->ops[p->instrs[k].op], SW_OP_ACCUMULATE); k--) {
            }
            assert_int_equal(p->instrs[k].op, maker);
        }
    }
    assert_int_equal(n_vectors, 3);
    sw_plan_close(plan);
}

static void programs_share_parameters_and_overlay_transients(void **state)
{
    (void)state;
    const struct sw_plan_options o = options();
    struct sw_plan *both = NULL, *train = plan_tower(3, &o);
    const struct sw_program_spec specs[] = {{SW_PROGRAM_TRAIN, tower(3, SW_F32, true)},
                                            {SW_PROGRAM_EVAL, tower(3, SW_F32, false)}};
    assert_int_equal(plan_once(specs, 2, &o, &both), SW_OK);
    assert_int_equal(both->n_persistent, train->n_persistent);
    assert_int_equal(both->tier_bytes[SW_TIER_DEVICE], train->tier_bytes[SW_TIER_DEVICE]);
    sw_plan_close(both);
    sw_plan_close(train);
}

static void small_budget_is_refused_with_the_missing_bytes(void **state)
{
    (void)state;
    struct sw_plan_options o = options();
    struct sw_plan *plan = plan_tower(4, &o);
    const size_t need = plan->tier_bytes[SW_TIER_DEVICE];
    sw_plan_close(plan);
    o.policy.budget[SW_TIER_DEVICE] = need;
    plan = plan_tower(4, &o);
    sw_plan_close(plan);
    o.policy.budget[SW_TIER_DEVICE] = need - 100;
    const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, tower(4, SW_F32, true)};
    assert_int_equal(plan_once(&spec, 1, &o, &plan), SW_E_NOMEM);
    assert_non_null(strstr(sw_error_message(), "100 bytes"));
    assert_non_null(strstr(sw_error_message(), "largest"));
    assert_non_null(strstr(sw_error_message(), "recompute"));
}

/* Each kind of damage to a good plan must be found. */
static void check_finds_damage(void **state)
{
    (void)state;
    const struct sw_plan_options o = options();
    struct sw_plan *plan = plan_tower(3, &o);
    struct sw_program *p = &plan->programs[0];
    assert_int_equal(sw_plan_check(plan, &o), SW_OK);

    int32_t transient = -1, workspace = -1;
    for (int32_t i = 0; i < p->n_buffers; i++) {
        if (!p->buffers[i].persistent) {
            *(p->buffers[i].value < 0 ? &workspace : &transient) = i;
        }
    }
    const size_t bytes = p->buffers[transient].bytes;
    p->buffers[transient].bytes = sw_ir_bytes(&p->ir->values[p->buffers[transient].value]) - 1;
    assert_true(sw_plan_check(plan, &o) < 0); /* understated size */
    p->buffers[transient].bytes = bytes;

    const size_t work_bytes = p->buffers[workspace].bytes;
    p->buffers[workspace].bytes = 10;
    assert_true(sw_plan_check(plan, &o) < 0);
    p->buffers[workspace].bytes = work_bytes;

    const size_t offset = p->buffers[transient].offset;
    p->buffers[transient].offset = 0; /* overlaps a parameter */
    assert_true(sw_plan_check(plan, &o) < 0);
    p->buffers[transient].offset = plan->tier_bytes[SW_TIER_DEVICE];
    assert_true(sw_plan_check(plan, &o) < 0);
    p->buffers[transient].offset = offset;

    const struct sw_instr instr = p->instrs[1];
    p->instrs[1] = p->instrs[5]; /* reads before the value is written */
    p->instrs[5] = instr;
    assert_true(sw_plan_check(plan, &o) < 0);
    p->instrs[5] = p->instrs[1];
    p->instrs[1] = instr;
    assert_int_equal(sw_plan_check(plan, &o), SW_OK);

    for (int32_t i = 0; i + 1 < p->n_instrs;
         i++) { /* an update before the norm of the same bytes */
        const enum sw_op_kind kind = p->ir->ops[p->instrs[i].op].kind;
        if (kind == SW_OP_STATS_RESET) {
            const struct sw_instr reset = p->instrs[i];
            p->instrs[i] = p->instrs[i + 1];
            p->instrs[i + 1] = reset;
            assert_true(sw_plan_check(plan, &o) < 0);
            break;
        }
    }
    sw_plan_close(plan);
}

/* A value that is loaded was stored, and lies in a tier. */
static void a_load_finds_what_was_stored(void **state)
{
    (void)state;
    struct sw_plan_options o = options();
    o.policy.activations_tier = SW_TIER_HOST;
    struct sw_plan *plan = plan_tower(3, &o);
    struct sw_program *p = &plan->programs[0];
    int n = 0;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        struct sw_ir_op *op = &p->ir->ops[p->instrs[i].op];
        if (op->move != SW_MOVE_LOAD) {
            continue;
        }
        const sw_value version = op->in[0], home = sw_ir_root(p->ir, version);
        op->in[0] = home;
        assert_true(sw_plan_check(plan, &o) < 0);
        assert_non_null(strstr(sw_error_message(), "nobody has stored"));
        op->in[0] = version;
        p->ir->values[home].tier = SW_TIER_DEVICE;
        assert_true(sw_plan_check(plan, &o) < 0);
        p->ir->values[home].tier = SW_TIER_HOST;
        n++;
    }
    assert_true(n > 3);
    assert_int_equal(sw_plan_check(plan, &o), SW_OK);
    sw_plan_close(plan);
}

/* Reductions travel only with reductions, and predicated exchanges only with predicated ones. */
static void what_travels_together_is_of_one_kind(void **state)
{
    (void)state;
    struct sw_plan_options o = options();
    o.mesh = sw_mesh_of_data(2);
    o.policy.stage = 2;
    o.policy.micro_batches = 4;
    o.overlap = true;
    o.limits.reduce_bucket_elems = o.limits.allgather_bucket_elems = 1 << 20;
    struct sw_plan *plan = plan_tower(3, &o);
    struct sw_program *p = &plan->programs[0];
    int n = 0;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        struct sw_instr *instr = &p->instrs[i];
        if (instr->queue != SW_QUEUE_COMM || instr->exchange.batch != 0) {
            continue;
        }
        const struct sw_instr before = *instr;
        instr->last_only = !instr->last_only;
        assert_true(sw_plan_check(plan, &o) < 0);
        assert_non_null(strstr(sw_error_message(), "batch"));
        *instr = before;
        p->ir->ops[instr->op].move =
            p->ir->ops[instr->op].move == SW_MOVE_REDUCE ? SW_MOVE_GATHER : SW_MOVE_REDUCE;
        assert_true(sw_plan_check(plan, &o) < 0);
        p->ir->ops[instr->op].move =
            p->ir->ops[instr->op].move == SW_MOVE_REDUCE ? SW_MOVE_GATHER : SW_MOVE_REDUCE;
        n++;
    }
    assert_true(n > 3);
    assert_int_equal(sw_plan_check(plan, &o), SW_OK);
    sw_plan_close(plan);
}

/* Counts loads of the update that are issued in an earlier segment, and those that any micro-step
 * would run. */
static int early_loads(const struct sw_program *program, enum sw_segment segment)
{
    int n = 0;
    for (int32_t i = program->segment_first[segment]; i < program->segment_first[segment + 1];
         i++) {
        const struct sw_ir_op *op = &program->ir->ops[program->instrs[i].op];
        const bool early = op->move == SW_MOVE_LOAD && op->phase == SW_PHASE_UPDATE;
        n += early;
        assert_true(!early || program->instrs[i].last_only);
        assert_true(!early || !program->instrs[i].unless_skipped);
    }
    return n;
}

/* The first instruction after i that reads v; n_instrs if there is none. *kernels: those of forward
 * in between, without updates. */
static int32_t next_reader(const struct sw_program *p, int32_t i, sw_value v, int *kernels)
{
    *kernels = 0;
    for (i++; i < p->n_instrs; i++) {
        const struct sw_ir_op *op = &p->ir->ops[p->instrs[i].op];
        for (int k = 0; k < op->n_in; k++) {
            if (sw_ir_root(p->ir, op->in[k]) == v) {
                return i;
            }
        }
        *kernels += p->instrs[i].queue == SW_QUEUE_COMPUTE && !p->instrs[i].turn.first_only;
    }
    return i;
}

/* Gathers of forward after its first block that start while kernels of forward run. *n: their
 * number */
static int gathers_ahead(const struct sw_program *p, int *n)
{
    int ahead = 0, kernels;
    *n = -1; /* the first one */
    for (int32_t i = 0; i < p->segment_first[SW_SEGMENT_FORWARD + 1]; i++) {
        const struct sw_ir_op *op = &p->ir->ops[p->instrs[i].op];
        if (op->move == SW_MOVE_GATHER) {
            assert_true(next_reader(p, i, op->out[0], &kernels) < p->n_instrs);
            ahead += kernels > 0;
            *n += 1;
        }
    }
    return ahead;
}

/* An update within forward runs ahead with the gather of what it updates, if that may. */
static void late_updates_run_ahead_with_gathers(void **state)
{
    (void)state;
    for (int way = 0; way < 8; way++) {
        struct sw_plan_options o = options();
        int n, updates[2];
        o.mesh = sw_mesh_of_data(2);
        o.policy.stage = 3;
        o.policy.micro_batches = way & 1 ? 4 : 2;
        o.policy.schedule = way & 1 ? SW_STEP_VERTICAL : SW_STEP_HORIZONTAL;
        o.policy.params_tier = o.policy.states_tier = o.policy.grads_tier = SW_TIER_DISK;
        o.policy.transfer_bytes = way & 2 ? 1 << 20 : 0;
        o.policy.update_elems = way & 4 ? 32 : 0;
        o.policy.two_slots = true;
        o.policy.clipped_update = SW_CLIPPED_NEXT_FORWARD;
        o.overlap = true;
        for (int ahead = 0; ahead < 2; ahead++) {
            /* a block's gathers, and the table: embedding and head share a copy */
            o.policy.prefetch_elems = o.limits.max_live_elems = ahead ? 700 + 160 : 0;
            struct sw_plan *plan = plan_tower(4, &o);
            const int started = gathers_ahead(&plan->programs[0], &n);
            assert_true(n > 4);
            assert_true(ahead ? started >= n - 2 : started <= n / 2);
            updates[ahead] = count_ops(&plan->programs[0], "adam");
            sw_plan_close(plan);
        }
        assert_int_equal(updates[0], updates[1]);
    }
}

/* Counts the reads that the last backward does for the next step. Each is one of forward, whose
 * bytes forward has not stored before. *bytes: their sum */
static int reads_for_next(const struct sw_program *p, size_t *bytes)
{
    int n = 0;
    *bytes = 0;
    for (int32_t i = 0; i < p->n_instrs; i++) {
        if (p->instrs[i].turn.for_next) {
            n++;
            *bytes += sw_transfer_bytes(p->ir, &p->ir->ops[p->instrs[i].op]);
            assert_true(p->instrs[i].segment == SW_SEGMENT_BACKWARD && p->instrs[i].last_only);
        }
        n -= p->instrs[i].turn.from_last;
    }
    assert_int_equal(n, 0);
    for (int32_t i = 0; i < p->n_instrs; i++) {
        n += p->instrs[i].turn.from_last;
    }
    return n;
}

/* Forward finds what the step before has read, within 5/4 of transfer_bytes. A step moves as many
 * bytes as without. Damage is found. */
static void reads_run_ahead_across_steps(void **state)
{
    (void)state;
    static const size_t rooms[] = {0, 300, 3000, 1 << 20};
    struct sw_transfers want = {0};
    int before = 0, with_two_lives = 0;
    for (size_t k = 0; k < SW_LEN(rooms); k++) {
        struct sw_plan_options o = options();
        size_t bytes;
        o.policy.stage = 3;
        o.policy.params_tier = o.policy.states_tier = o.policy.grads_tier = SW_TIER_DISK;
        o.policy.transfer_bytes = rooms[k];
        o.policy.two_slots = true;
        o.policy.clipped_update = SW_CLIPPED_NEXT_FORWARD;
        struct sw_plan *plan = plan_tower(4, &o);
        struct sw_program *p = &plan->programs[0];
        const int n = reads_for_next(p, &bytes);
        assert_true(bytes <= rooms[k] + rooms[k] / 4 && n >= before);
        assert_true(k == 0 ? n == 0 : k == 1 || n > before);
        assert_int_equal(plan->step.phases[0].finds, n > 0);
        const struct sw_transfers moved = sw_plan_transfers(plan, 3);
        want = k == 0 ? moved : want;
        assert_memory_equal(&moved, &want, sizeof want);
        before = n;
        for (int32_t i = 0; i < p->n_instrs && n > 0; i++) {
            struct sw_instr *instr = &p->instrs[i];
            const struct sw_instr was = *instr;
            if (was.turn.for_next && was.workspace >= 0) {
                p->buffers[was.workspace].offset += SW_PLAN_DISK_ALIGN;
                assert_true(sw_plan_check(plan, &o) < 0);
                p->buffers[was.workspace].offset -= SW_PLAN_DISK_ALIGN;
                with_two_lives++;
            }
            if (was.turn.for_next || was.turn.from_last) {
                instr->turn.from_last = instr->turn.for_next = false;
                assert_true(sw_plan_check(plan, &o) < 0);
                *instr = was;
            }
        }
        assert_int_equal(sw_plan_check(plan, &o), SW_OK);
        sw_plan_close(plan);
    }
    assert_true(with_two_lives > 0);
}

/* The stores of updates within forward are complete before the first read for the next step, whose
 * memory they have, wherever parameters are. */
static void reads_for_the_next_step_follow_stores(void **state)
{
    (void)state;
    for (enum sw_tier tier = SW_TIER_HOST; tier <= SW_TIER_DISK; tier++) {
        struct sw_plan_options o = options();
        o.policy.stage = 3;
        o.policy.params_tier = tier;
        o.policy.states_tier = o.policy.grads_tier = SW_TIER_DISK;
        o.policy.transfer_bytes = 1 << 20;
        o.policy.two_slots = true;
        o.policy.clipped_update = SW_CLIPPED_NEXT_FORWARD;
        struct sw_plan *plan = plan_tower(4, &o);
        const struct sw_program *p = &plan->programs[0];
        int32_t first = 0;
        int n = 0;
        while (first < p->n_instrs && !p->instrs[first].turn.for_next) {
            first++;
        }
        for (int32_t i = 0; i < first; i++) {
            const struct sw_instr *instr = &p->instrs[i];
            if (instr->verb == SW_VERB_WRITE && instr->turn.first_only) {
                assert_true(instr->retired < first);
                n++;
            }
        }
        assert_true(first < p->n_instrs && n > 0);
        sw_plan_close(plan);
    }
}

/* Products between reduction i and the first kernel that reads its sum; -1 = none reads it in
 * backward. */
static int products_beside(const struct sw_program *p, int32_t i)
{
    const int32_t end = p->segment_first[SW_SEGMENT_BACKWARD + 1];
    const sw_value sum = sw_ir_root(p->ir, p->ir->ops[p->instrs[i].op].out[0]);
    int n = 0;
    for (int32_t j = i + 1; j < end; j++) {
        const struct sw_instr *instr = &p->instrs[j];
        const struct sw_ir_op *op = &p->ir->ops[instr->op];
        for (int k = 0; k < op->n_in && instr->queue == SW_QUEUE_COMPUTE; k++) {
            if (sw_ir_root(p->ir, op->in[k]) == sum) {
                return n;
            }
        }
        n += sw_ir_is(op, SW_OP_MATMUL);
    }
    return -1;
}

/* Norms and updates in backward leave time for the reductions that they need, if that may be: the
 * backward of the next block. They stay in order. */
static void updates_in_backward_leave_time_for_reductions(void **state)
{
    (void)state;
    for (int way = 0; way < 8; way++) {
        struct sw_plan_options o = options();
        o.mesh = sw_mesh_of_data(2);
        o.clip = way & 1;
        o.policy.stage = 3;
        o.policy.micro_batches = way & 2 ? 6 : 2;
        o.policy.params_tier = o.policy.states_tier = o.policy.grads_tier =
            way & 4 ? SW_TIER_HOST : SW_TIER_DISK;
        o.limits.reduce_bucket_elems = o.limits.max_live_elems = 1 << 20;
        o.overlap = true;
        for (int ahead = 0; ahead < 2; ahead++) {
            o.policy.prefetch_elems = ahead ? 1 << 20 : 0;
            struct sw_plan *plan = plan_tower(4, &o);
            const struct sw_program *p = &plan->programs[0];
            int n = 0, beside = 0;
            int32_t before = -1;
            for (int32_t i = p->segment_first[SW_SEGMENT_BACKWARD];
                 i < p->segment_first[SW_SEGMENT_BACKWARD + 1]; i++) {
                const struct sw_ir_op *op = &p->ir->ops[p->instrs[i].op];
                if (op->move == SW_MOVE_REDUCE && products_beside(p, i) >= 0) {
                    n++;
                    beside += products_beside(p, i) > 0;
                } else if (op->in_backward && p->instrs[i].queue == SW_QUEUE_COMPUTE) {
                    assert_true(p->instrs[i].op > before);
                    before = p->instrs[i].op;
                }
            }
            assert_true(n > 10);
            assert_true((beside >= n - 4) == (ahead > 0)); /* but of the last block */
            sw_plan_close(plan);
        }
    }
}

/* Without clipping, gradients are freed in backward even if nothing is offloaded. They are not if
 * they are summed over rounds, or if ranks gather what is updated. */
static void updates_free_gradients_in_memory(void **state)
{
    (void)state;
    static const struct {
        int ranks, stage, micro_batches;
        enum sw_step_schedule schedule;
        bool frees;
    } cases[] = {
        {1, 0, 1, SW_STEP_HORIZONTAL, true},  {1, 0, 3, SW_STEP_HORIZONTAL, false},
        {1, 0, 3, SW_STEP_VERTICAL, true},    {2, 0, 2, SW_STEP_HORIZONTAL, false},
        {2, 2, 2, SW_STEP_HORIZONTAL, false}, {2, 3, 2, SW_STEP_HORIZONTAL, true},
        {2, 3, 4, SW_STEP_HORIZONTAL, false},
    };
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        size_t bytes[2];
        for (int clip = 0; clip < 2; clip++) {
            struct sw_plan_options o = options();
            o.clip = clip;
            o.mesh = sw_mesh_of_data(cases[i].ranks);
            o.policy.stage = cases[i].stage;
            o.policy.micro_batches = cases[i].micro_batches;
            o.policy.schedule = cases[i].schedule;
            struct sw_plan *plan = plan_tower(8, &o);
            bytes[clip] = plan->tier_bytes[SW_TIER_DEVICE];
            assert_int_equal(plan->update.in_backward, !clip && cases[i].frees);
            sw_plan_close(plan);
        }
        assert_true((bytes[0] < bytes[1]) == cases[i].frees);
    }
}

/* The next forward updates a share of the parameters, spread over the model. The others are updated
 * at the end of the step, and keep gradients once. */
static void the_next_forward_updates_a_share(void **state)
{
    (void)state;
    static const double shares[3] = {0.3, 0.6, 1};
    for (int k = 0; k < 3; k++) {
        struct sw_plan_options o = options();
        o.clip = 1;
        o.policy.micro_batches = 3;
        o.policy.stage = 3;
        o.policy.states_tier = o.policy.params_tier = o.policy.grads_tier = SW_TIER_DISK;
        o.policy.two_slots = true;
        o.policy.clipped_update = SW_CLIPPED_NEXT_FORWARD;
        o.policy.late_share = shares[k];
        struct sw_plan *plan = plan_tower(8, &o);
        double all = 0, late = 0;
        int n_once = 0; /* gradients */
        for (int32_t i = 0; i < plan->n_persistent; i++) {
            const struct sw_persistent *item = &plan->persistent[i];
            const struct sw_persistent *of = item->param ? sw_plan_find(plan, item->param) : item;
            const double elems = (double)sw_shape_elems(&item->shape);
            if (item->tier != SW_TIER_DISK) {
                continue;
            }
            if (item->role == SW_ROLE_PARAM) {
                all += elems;
                late += item->is_late ? elems : 0;
            }
            assert_int_equal(item->is_late, of->is_late);
            assert_true((item->slot_bytes > 0) == (item->is_late || item->state != SW_STATE_SUM));
            n_once += item->slot_bytes == 0;
        }
        assert_true(fabs(late / all - shares[k]) < 0.2);
        assert_true(plan->update.in_forward);
        assert_true((n_once > 0) == (shares[k] < 1));
        sw_plan_close(plan);
    }
}

/* States are read during forward, within the limit. Without clipping, their update is within
 * backward; with clipping it follows the norm. Predicated ops keep their predicates. */
static void states_are_read_in_segments_before(void **state)
{
    (void)state;
    for (int clip = 0; clip <= 1; clip++) {
        struct sw_plan_options o = options();
        o.clip = clip;
        o.policy.micro_batches = 3;
        o.policy.stage = 3;
        o.policy.states_tier = o.policy.params_tier = o.policy.grads_tier = SW_TIER_DISK;
        struct sw_plan *plan = plan_tower(4, &o);
        struct sw_program *p = &plan->programs[0];
        assert_int_equal(early_loads(p, SW_SEGMENT_FORWARD), 0);
        sw_plan_close(plan);

        o.policy.transfer_bytes = 1 << 20; /* more than there are */
        plan = plan_tower(4, &o);
        p = &plan->programs[0];
        assert_true(early_loads(p, SW_SEGMENT_FORWARD) > 0);
        for (int32_t i = 0; i < p->n_instrs; i++) {
            struct sw_instr *instr = &p->instrs[i];
            const struct sw_instr before = *instr;
            if (before.last_only) {
                instr->last_only = false;
                assert_true(sw_plan_check(plan, &o) < 0);
                *instr = before;
            }
            if (before.unless_skipped && p->ir->ops[before.op].move != SW_MOVE_LOAD) {
                instr->unless_skipped = false;
                assert_true(sw_plan_check(plan, &o) < 0);
                *instr = before;
            }
            if (sw_ir_is_transfer(&p->ir->ops[before.op])) {
                instr->queue = SW_QUEUE_H2D; /* all of them are on disk */
                assert_true(sw_plan_check(plan, &o) < 0);
                *instr = before;
            }
            if (before.segment == SW_SEGMENT_FORWARD) {
                instr->unless_skipped = true; /* SKIP is not known yet */
                assert_true(sw_plan_check(plan, &o) < 0 || before.last_only);
                *instr = before;
            }
        }
        assert_int_equal(sw_plan_check(plan, &o), SW_OK);
        sw_plan_close(plan);
    }
}

/* An offloaded sum is loaded for every term but the first. */
static void first_terms_load_no_sum(void **state)
{
    (void)state;
    for (int way = 0; way < 8; way++) {
        struct sw_plan_options o = options();
        o.mesh = sw_mesh_of_data(way & 1 ? 2 : 1);
        o.policy.stage = 3;
        o.policy.states_tier = o.policy.params_tier = o.policy.grads_tier = SW_TIER_HOST;
        o.policy.micro_batches = way & 2 ? 3 * sw_data_ranks(&o) : 2;
        o.policy.schedule = (way & 4) ? SW_STEP_VERTICAL : SW_STEP_HORIZONTAL;
        struct sw_plan *plan = plan_tower(2, &o);
        const struct sw_program *p = &plan->programs[0];
        int loads = 0, sums = 0;
        for (int32_t i = 0; i < p->n_instrs; i++) {
            const struct sw_ir_op *op = &p->ir->ops[p->instrs[i].op];
            const bool loaded = op->move == SW_MOVE_LOAD && op->phase == SW_PHASE_BACKWARD;
            loads += loaded && sw_state_is_sum(p->ir->values[op->in[0]].state);
            sums += sw_ir_has(op, SW_TRAIT_SUM);
        }
        const int m = o.policy.micro_batches / sw_data_ranks(&o);
        assert_int_equal(loads, m == 1 ? 0 : o.policy.schedule == SW_STEP_VERTICAL ? 0 : sums);
        sw_plan_close(plan);
    }
}

/* Bytes loaded, without those of row lookups. */
static int64_t loaded(const struct sw_plan *plan, int64_t rounds)
{
    const struct sw_program *program = &plan->programs[0];
    int64_t sum = sw_plan_transfers(plan, rounds).in[SW_TIER_HOST];
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_ir_op *op = &program->ir->ops[program->instrs[i].op];
        if (loads_rows(op)) {
            sum -= (program->micro_batches > 1 ? 1 : rounds) *
                   (int64_t)sw_transfer_bytes(program->ir, op);
        }
    }
    return sum;
}

static void vertical_moves_parameters_once(void **state)
{
    (void)state;
    static const char *const moves[] = {"gather", "load", "store", "update"};
    for (int every = 0; every <= 2; every++) {
        for (int ranks = 1; ranks <= 3; ranks++) {
            struct sw_plan_options o = options();
            o.policy.recompute.every = every;
            o.mesh = sw_mesh_of_data(ranks);
            o.policy.stage = 3;
            o.policy.states_tier = o.policy.params_tier = SW_TIER_HOST;
            o.policy.micro_batches = ranks;
            struct sw_plan *once = plan_tower(4, &o);
            o.policy.micro_batches = 4 * ranks - ranks / 2; /* the last round is not full */
            struct sw_plan *horizontal = plan_tower(4, &o);
            o.policy.schedule = SW_STEP_VERTICAL;
            struct sw_plan *vertical = plan_tower(4, &o);
            const struct sw_program *p = &vertical->programs[0];
            assert_int_equal(p->micro_batches, 4);
            assert_int_equal(horizontal->programs[0].micro_batches, 1);
            assert_true(vertical->fingerprint == horizontal->fingerprint);
            for (size_t i = 0; i < SW_LEN(moves); i++) {
                assert_int_equal(count_ops(p, moves[i]), count_ops(&once->programs[0], moves[i]));
            }
            const char *sum = ranks > 1 ? "reduce" : "accumulate";
            assert_int_equal(count_ops(p, sum), 4 * count_ops(&horizontal->programs[0], sum));
            assert_true(loaded(vertical, 4) == loaded(once, 1));
            assert_true(loaded(horizontal, 4) > loaded(vertical, 4));
            sw_plan_close(once);
            sw_plan_close(horizontal);
            sw_plan_close(vertical);
        }
    }
}

/* Every sum takes micro-batch 0, then 1, .. and each micro-batch has its own inputs and outputs. */
static void vertical_keeps_the_order_of_sums(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 2; ranks++) {
        struct sw_plan_options o = options();
        o.policy.schedule = SW_STEP_VERTICAL;
        o.mesh = sw_mesh_of_data(ranks);
        o.policy.stage = 2;
        o.policy.micro_batches = 3 * ranks;
        struct sw_plan *plan = plan_tower(2, &o);
        const struct sw_program *p = &plan->programs[0];
        const struct sw_ir *ir = p->ir;
        int *next = sw_alloc_zero("test", (size_t)ir->n_values, sizeof *next);
        int n_ids = 0, n_sums = 0;
        for (int32_t i = 0; i < p->n_instrs; i++) {
            const struct sw_ir_op *op = &ir->ops[p->instrs[i].op];
            if (sw_ir_has(op, SW_TRAIT_SUM)) {
                assert_int_equal(op->micro, next[sw_ir_root(ir, op->in[0])]++);
                assert_int_equal(ir->values[op->in[1]].micro, op->micro);
                n_sums++;
            }
        }
        assert_int_equal(n_sums, ir->n_streams);
        for (sw_value v = 0; v < ir->n_values; v++) {
            assert_true(next[v] == 0 || next[v] == 3);
            n_ids += ir->values[v].role == SW_ROLE_INPUT && strcmp(ir->values[v].name, "ids") == 0;
        }
        assert_int_equal(n_ids, 3);
        for (int micro = 0; micro < 3; micro++) {
            const sw_value loss = sw_ir_find_output(ir, "loss", micro);
            assert_true(loss >= 0 && ir->values[loss].micro == micro);
            assert_true(ir->ops[ir->values[loss].producer].micro == micro);
        }
        assert_int_equal(sw_ir_find_output(ir, "loss", 3), SW_NO_VALUE);
        sw_free(next);
        sw_plan_close(plan);
    }
}

/* Block by block, the micro-batches would write the state in another order than one after the
 * other. */
static void vertical_refuses_a_forward_that_writes_states(void **state)
{
    (void)state;
    struct sw_graph *g = tower(1, SW_F32, false);
    const sw_value sum = sw_graph_state(g, "running", SW_F32, SW_SHAPE(1), SW_NO_VALUE);
    const sw_value in[2] = {sum, sw_graph_find_output(g, "loss")};
    sw_graph_add_out_in_place(g, sw_graph_add_op(g, SW_OP_ACCUMULATE, in, 2, NULL), sum);
    struct sw_ir *ir = NULL;
    assert_int_equal(sw_ir_open(g, &ir), SW_OK);
    sw_graph_close(g);
    assert_int_equal(sw_pass_order(ir, SW_STEP_VERTICAL, 1), SW_OK);
    assert_int_equal(sw_pass_order(ir, SW_STEP_VERTICAL, 2), SW_E_UNSUP);
    assert_non_null(strstr(sw_error_message(), "running"));
    assert_non_null(strstr(sw_error_message(), "vertical"));
    sw_ir_close(ir);
}

static void refuse(void *ctx, const struct sw_op_desc *desc, struct sw_kernel_info *out)
{
    (void)ctx;
    (void)desc;
    *out = (struct sw_kernel_info){0};
}

static void unsupported_op_is_named(void **state)
{
    (void)state;
    struct sw_plan_options o = options();
    o.device.query = refuse;
    struct sw_plan *plan = NULL;
    const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, tower(1, SW_F32, true)};
    assert_int_equal(plan_once(&spec, 1, &o, &plan), SW_E_UNSUP);
    assert_non_null(strstr(sw_error_message(), "embedding"));
}

static void survives_lack_of_memory(void **state)
{
    (void)state;
    for (int vertical = 0; vertical < 2; vertical++) {
        struct sw_plan_options o = options();
        struct sw_alloc_stats before, after;
        o.policy.schedule = vertical ? SW_STEP_VERTICAL : SW_STEP_HORIZONTAL;
        o.policy.micro_batches = 1 + vertical;
        sw_alloc_get_stats(&before);
        for (int n = 1;; n++) { /* fail the n-th request */
            struct sw_plan *plan = NULL;
            struct sw_graph *g = tower(1, SW_F32, true);
            sw_alloc_fail_nth(n);
            const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, g};
            const sw_status st = plan_once(&spec, 1, &o, &plan);
            sw_alloc_fail_nth(0);
            if (st == SW_OK) {
                sw_plan_close(plan);
                assert_true(n > 5);
                break;
            }
            assert_int_equal(st, SW_E_NOMEM);
        }
        sw_alloc_get_stats(&after);
        assert_int_equal(after.live_blocks, before.live_blocks);
    }
}

/* A layer in both layouts with a vocabulary matrix, each above SW_PIECE_ABOVE, on three tokens. */
static struct sw_graph *wide_layer(bool tied)
{
    enum { WIDTH = 1003, INNER = 4200, VOCAB = 5000 };
    const struct sw_graph_options graph = {
        .dtype = SW_BF16, .grad_dtype = SW_BF16, .training = true, .loss_chunk = 500};
    struct sw_graph *g;
    assert_int_equal(sw_graph_open(&graph, &g), SW_OK);
    const struct sw_init init = {SW_INIT_NORMAL, 0.1};
    const sw_value table = sw_param(g, "table", SW_SHAPE(VOCAB, WIDTH), init);
    sw_value h = sw_embedding(g, table, sw_input(g, "ids", SW_I32, SW_SHAPE(1, 3)), -1);
    sw_scope_push_block(g, "h.0");
    const sw_value up = sw_param(g, "up", SW_SHAPE(WIDTH, INNER), init);
    const sw_value down = sw_param(g, "down", SW_SHAPE(WIDTH, INNER), init);
    sw_value x = sw_act(g, sw_linear(g, h, up, SW_NO_VALUE, true), SW_ACT_GELU);
    h = sw_add(g, h, sw_linear(g, x, down, SW_NO_VALUE, false));
    sw_scope_pop(g);
    const sw_value head = tied ? table : sw_param(g, "head", SW_SHAPE(VOCAB, WIDTH), init);
    const sw_value loss = sw_linear_cross_entropy(g, h, head, SW_NO_VALUE,
                                                  sw_input(g, "labels", SW_I32, SW_SHAPE(1, 3)), 0);
    sw_output(g, "loss", loss);
    assert_int_equal(sw_graph_backward(g, loss), SW_OK);
    return g;
}

static struct sw_plan *plan_wide_layer(const struct sw_plan_options *o, bool tied)
{
    struct sw_plan *plan = NULL;
    const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, wide_layer(tied)};
    if (plan_once(&spec, 1, o, &plan) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return plan;
}

/* The largest value on the device. */
static size_t largest_value(const struct sw_plan *plan)
{
    const struct sw_program *program = &plan->programs[0];
    size_t most = 0;
    for (int32_t i = 0; i < program->n_buffers; i++) {
        const struct sw_buffer *buffer = &program->buffers[i];
        if (buffer->tier == SW_TIER_DEVICE && buffer->bytes > most) {
            most = buffer->bytes;
        }
    }
    return most;
}

/* The shards of all ranks cover the item exactly once, and fit into the room of one. */
static void assert_held_once(const struct sw_persistent *item)
{
    struct sw_layout layout = item->layout;
    int64_t held = 0;
    if (!layout.is_sliced) {
        return;
    }
    assert_int_equal(sw_layout_elems(&layout), sw_shape_elems(&item->shape));
    for (layout.data.rank = 0; layout.data.rank < layout.data.size; layout.data.rank++) {
        struct sw_run_iter iter;
        struct sw_run run;
        sw_runs_begin(&layout, &iter);
        while (sw_runs_next(&iter, &run)) {
            held += run.n;
        }
    }
    assert_int_equal(held, sw_shape_elems(&layout.whole));
}

static void tiles_bound_what_is_on_the_device(void **state)
{
    (void)state;
    for (int way = 0; way < 64; way++) {
        struct sw_plan_options o = options();
        o.policy.stage = 3;
        o.mesh = sw_mesh_of_data(way & 32 ? 3 : 1);
        o.me = sw_data_ranks(&o) - 1;
        o.overlap = way & 4;
        o.limits.reduce_bucket_elems = 1 << 24;
        o.policy.states_tier = o.policy.grads_tier = way & 1 ? SW_TIER_HOST : SW_TIER_DISK;
        o.policy.params_tier = way & 2 ? SW_TIER_HOST : SW_TIER_DISK;
        o.clip = way & 4 ? 1 : 0;
        o.policy.micro_batches = way & 8 ? 4 : 1;
        o.policy.schedule = ((way & 8) && (way & 1)) ? SW_STEP_VERTICAL : SW_STEP_HORIZONTAL;
        o.policy.recompute.every = way & 2 ? 1 : 0;
        o.policy.update_elems = 100000;
        const bool tied = way & 16;
        struct sw_plan *whole = plan_wide_layer(&o, tied);
        assert_int_equal(whole->n_tiled, 0);
        o.policy.tile_bytes = 3000000;
        struct sw_plan *tiled = plan_wide_layer(&o, tied);
        assert_int_equal(tiled->n_tiled, tied ? 3 : 4);
        assert_true(tiled->fingerprint == whole->fingerprint);
        assert_true(largest_value(whole) >= (size_t)1003 * 4200 * 2);
        /* an fp32 sum of a tile's gradients is the largest */
        assert_true(largest_value(tiled) <= (o.policy.micro_batches > 1 ? 2 : 1) * 3000000 + 64);
        assert_true(tiled->tier_bytes[SW_TIER_DEVICE] < whole->tier_bytes[SW_TIER_DEVICE] / 2);
        /* one or two on their way back, or to their owners, besides the one in use */
        const size_t most =
            (size_t)((way & 8 ? 13 : 9) + (sw_data_ranks(&o) > 1 && o.overlap ? 3 : 0));
        assert_true(tiled->tier_bytes[SW_TIER_DEVICE] < most * 1000000);
        for (int32_t i = 0; i < tiled->n_persistent; i++) {
            assert_held_once(&tiled->persistent[i]);
        }
        sw_plan_close(whole);
        sw_plan_close(tiled);
    }
}

/* One layer h -> 4h -> h on 16 tokens, as in bench/wide.c. */
static struct sw_graph *one_layer(int64_t h)
{
    const struct sw_graph_options graph = {
        .dtype = SW_BF16, .grad_dtype = SW_BF16, .training = true};
    struct sw_graph *g;
    assert_int_equal(sw_graph_open(&graph, &g), SW_OK);
    const struct sw_init init = {SW_INIT_NORMAL, 0.1};
    const sw_value table = sw_param(g, "table", SW_SHAPE(64, h), init);
    sw_value x = sw_embedding(g, table, sw_input(g, "ids", SW_I32, SW_SHAPE(1, 16)), -1);
    sw_scope_push_block(g, "layer");
    const sw_value up = sw_param(g, "up", SW_SHAPE(h, 4 * h), init);
    const sw_value down = sw_param(g, "down", SW_SHAPE(4 * h, h), init);
    const sw_value y = sw_act(g, sw_linear(g, x, up, SW_NO_VALUE, true), SW_ACT_GELU);
    x = sw_add(g, x, sw_linear(g, y, down, SW_NO_VALUE, true));
    sw_scope_pop(g);
    const sw_value loss = sw_linear_cross_entropy(
        g, x, table, SW_NO_VALUE, sw_input(g, "labels", SW_I32, SW_SHAPE(1, 16)), 0);
    sw_output(g, "loss", loss);
    assert_int_equal(sw_graph_backward(g, loss), SW_OK);
    return g;
}

/* Plans with a budget of `sixteenths` / 16 of the bytes of a matrix and its gradient by tiles, 16
 * h^2 / tiles. */
static sw_status plan_one_layer(int64_t h, int64_t tiles, size_t sixteenths)
{
    const size_t formula = (size_t)(16 * h * h / tiles);
    const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, one_layer(h)};
    struct sw_plan_options o = options();
    struct sw_plan *plan = NULL;
    o.policy.states_tier = o.policy.params_tier = o.policy.grads_tier = SW_TIER_HOST;
    o.policy.update_elems = sw_min_i64(h * h / 256, 1 << 21);
    o.policy.transfer_bytes = 1 << 24;
    o.policy.tile_bytes = formula / 2;
    o.policy.budget[SW_TIER_DEVICE] = formula / 16 * sixteenths;
    SW_TRY(plan_once(&spec, 1, &o, &plan));
    assert_int_equal(plan->n_tiled, tiles > 1 ? 2 : 0);
    for (int32_t i = 0; i < plan->n_tiled; i++) {
        assert_int_equal(plan->tiled[i].n_tiles, tiles);
        assert_int_equal(plan->tiled[i].bytes, formula / 2);
    }
    sw_plan_close(plan);
    return SW_OK;
}

static void a_wide_layer_takes_16_hh_bytes_by_its_tiles(void **state)
{
    (void)state;
    for (int64_t tiles = 1; tiles <= 16; tiles *= 2) {
        assert_int_equal(plan_one_layer(16384, tiles, 15), SW_E_NOMEM);
        assert_int_equal(plan_one_layer(16384, tiles, 17), SW_OK);
    }
    assert_int_equal(plan_one_layer(65536, 16, 17), SW_OK);
}

/* States on disk, with enough pieces for a loop. */
static struct sw_plan *plan_loops(struct sw_plan_options *o, enum sw_tier grads)
{
    const struct sw_program_spec spec = {SW_PROGRAM_TRAIN, one_layer(256)};
    struct sw_plan *plan = NULL;
    *o = options();
    o->policy.states_tier = o->policy.params_tier = SW_TIER_DISK;
    o->policy.grads_tier = grads;
    o->policy.update_elems = 1 << 11; /* 128 pieces of 2^18 elements */
    o->policy.transfer_bytes = 1 << 17;
    assert_int_equal(plan_once(&spec, 1, o, &plan), SW_OK);
    return plan;
}

/* A loop moves a whole tensor, piece after piece, through a ring of turns; its kernel sees one
 * piece. */
static void loops_move_each_piece_once(void **state)
{
    (void)state;
    for (int grads = 0; grads < 2; grads++) {
        struct sw_plan_options o;
        struct sw_plan *plan = plan_loops(&o, grads ? SW_TIER_DISK : SW_TIER_DEVICE);
        const struct sw_program *p = &plan->programs[0];
        assert_int_equal(p->n_loops, 2);
        assert_true(p->turns > 2);
        int64_t order = -1;
        for (int32_t i = 0; i < p->n_instrs; i++) {
            const struct sw_instr *instr = &p->instrs[i];
            const int32_t pieces = sw_instr_pieces(p, instr);
            assert_int_equal(pieces, instr->turn.loop > 0 ? 128 : 1);
            assert_true(instr->turn.order > order);
            order = instr->turn.order;
            if (instr->turn.loop == 0) {
                continue;
            }
            const struct sw_operand *operands = &p->operands[instr->operands];
            for (int k = 0; k < instr->n_in + instr->n_out; k++) {
                const bool ring = operands[k].ring[1].modulus > 0;
                assert_int_equal(ring ? operands[k].ring[1].modulus : p->turns, p->turns);
                assert_true(ring ? operands[k].ring[1].stride >= operands[k].bytes
                                 : operands[k].ring[1].stride == operands[k].bytes);
                assert_true(instr->verb == SW_VERB_KERNEL || ring == (k == 1));
            }
        }
        const struct sw_loop *last = &p->loops[1];
        const struct sw_transfers moved = sw_plan_transfers(plan, 1);
        /* for two matrices of 2^18: remainders of 2 bytes, and two moments of 4 bytes */
        assert_true(moved.out[SW_TIER_DISK] >= 2 * (2 + 4 + 4) << 18);
        assert_int_equal(last->n, (grads ? 4 : 3) + 1 + 3);
        sw_plan_close(plan);
    }
}

/* Each kind of damage to a loop is found. */
static void check_finds_damaged_loops(void **state)
{
    struct sw_plan_options o;
    (void)state;
    struct sw_plan *plan = plan_loops(&o, SW_TIER_DEVICE);
    struct sw_program *p = &plan->programs[0];
    struct sw_loop *loop = &p->loops[1];
    struct sw_instr *load = &p->instrs[loop->first], *store = load + loop->n - 1;
    assert_int_equal(sw_plan_check(plan, &o), SW_OK);
    loop->pieces--;
    assert_true(sw_plan_check(plan, &o) < 0);
    loop->pieces++;
    p->turns++; /* more turns than there is room for */
    assert_true(sw_plan_check(plan, &o) < 0);
    p->turns--;
    const int32_t again = load->turn.again;
    load->turn.again = again - 1; /* the store of another state */
    assert_true(sw_plan_check(plan, &o) < 0);
    load->turn.again = -1;
    assert_true(sw_plan_check(plan, &o) < 0);
    load->turn.again = again;
    store->turn.loop = 0; /* stored once, after all pieces */
    assert_true(sw_plan_check(plan, &o) < 0);
    store->turn.loop = 2;
    loop->n--;
    assert_true(sw_plan_check(plan, &o) < 0);
    loop->n++;
    struct sw_instr *kernel = load;
    while (kernel->verb != SW_VERB_KERNEL) {
        kernel++;
    }
    const struct sw_instr instr = *kernel; /* after the first store */
    *kernel = kernel[1];
    kernel[1] = instr;
    assert_true(sw_plan_check(plan, &o) < 0);
    kernel[1] = *kernel;
    *kernel = instr;
    assert_int_equal(sw_plan_check(plan, &o), SW_OK);
    sw_plan_close(plan);
}

static size_t largest_tile(const struct sw_plan *plan)
{
    size_t most = 0;
    for (int32_t i = 0; i < plan->n_tiled; i++) {
        most = plan->tiled[i].bytes > most ? plan->tiled[i].bytes : most;
    }
    return most;
}

/* The states of a tile are on the device twice, and never together with those of another tile. The
 * trust ratio covers the whole parameter. */
static void tiles_bound_what_lamb_has_on_the_device(void **state)
{
    static const struct sw_update_rule lamb = {
        .attrs = {.kind = SW_UPDATE_LAMB, .bias_correction = true, .eps = 1e-6, .max_coeff = 10}};
    (void)state;
    for (int way = 0; way < 4; way++) {
        struct sw_plan_options o = options();
        o.rule = &lamb;
        o.policy.stage = 3;
        o.mesh = sw_mesh_of_data(way & 1 ? 3 : 1);
        o.clip = way & 2;
        o.limits.reduce_bucket_elems = 1 << 24;
        o.policy.states_tier = o.policy.grads_tier = o.policy.params_tier = SW_TIER_HOST;
        struct sw_plan *whole = plan_wide_layer(&o, true);
        o.policy.tile_bytes = 1500000;
        struct sw_plan *tiled = plan_wide_layer(&o, true);
        const struct sw_program *program = &tiled->programs[0];
        int64_t tiles = 0;
        for (int32_t i = 0; i < tiled->n_tiled; i++) {
            tiles += tiled->tiled[i].n_tiles;
        }
        assert_int_equal(tiled->n_tiled, 3);
        assert_int_equal(count_ops(program, "lamb_moments"), tiles);
        assert_int_equal(count_ops(program, "lamb_apply"), tiles);
        assert_int_equal(count_ops(program, "lamb_add_norms"), tiles - 3);
        assert_int_equal(count_ops(program, "stats_merge"), way & 1 ? 4 : 0);
        assert_non_null(sw_plan_find_state(tiled, "table", SW_STATE_TRUST_RATIO, 0));
        /* working copy, remainder of the master, two moments, a gradient: 7 times a working copy,
         * plus transfers in flight */
        assert_true(largest_value(tiled) <= 2 * largest_tile(tiled) + 64);
        assert_true(tiled->tier_bytes[SW_TIER_DEVICE] < 10 * largest_tile(tiled));
        assert_true(tiled->tier_bytes[SW_TIER_DEVICE] < whole->tier_bytes[SW_TIER_DEVICE] / 3);
        sw_plan_close(whole);
        sw_plan_close(tiled);
    }
}

/* A budget that even the smallest tiles exceed is recognised at once. A budget that some tiles fit
 * is never mistaken for one. */
static void hopeless_budgets_are_known_without_trying_tiles(void **state)
{
    (void)state;
    int hopeless = 0, fitting = 0;
    for (size_t budget = 1 << 20; budget < (size_t)40 << 20; budget += budget / 8) {
        struct sw_plan *plan = NULL;
        struct sw_plan_refusal refusal = {.missing = 0};
        struct sw_plan_options o = options();
        o.policy.states_tier = o.policy.grads_tier = SW_TIER_HOST;
        o.policy.params_tier = SW_TIER_DISK;
        o.policy.update_elems = 100000;
        o.policy.budget[SW_TIER_DEVICE] = budget;
        o.refusal = &refusal;
        struct sw_program_spec spec = {SW_PROGRAM_TRAIN, wide_layer(true)};
        if (plan_once(&spec, 1, &o, &plan) >= 0) {
            sw_plan_close(plan);
            continue;
        }
        assert_true(refusal.missing > 0);
        bool fits = false;
        o.refusal = NULL;
        for (o.policy.tile_bytes = budget; o.policy.tile_bytes > 50000 && !fits;
             o.policy.tile_bytes /= 2) {
            spec.graph = wide_layer(true);
            fits = plan_once(&spec, 1, &o, &plan) >= 0;
        }
        assert_false(fits && refusal.whatever_the_tiles);
        hopeless += refusal.whatever_the_tiles;
        fitting += fits;
        sw_plan_close(fits ? plan : NULL);
    }
    assert_true(hopeless > 0 && fitting > 0);
}

static void what_lies_here_is_not_tiled(void **state)
{
    (void)state;
    struct sw_plan_options o = options();
    o.policy.tile_bytes = 100000;
    struct sw_plan *plan = plan_wide_layer(&o, true);
    assert_int_equal(plan->n_tiled, 0);
    sw_plan_close(plan);
    o.policy.params_tier = SW_TIER_HOST;
    plan = plan_wide_layer(&o, true);
    assert_int_equal(plan->n_tiled, 0); /* its states do fit */
    sw_plan_close(plan);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(tied_table_has_two_streams),
    cmocka_unit_test(fusing_joins_bias_and_activation),
    cmocka_unit_test(fusing_without_memory_fails_and_plans_nothing_else),
    cmocka_unit_test(recomputing_saves_bytes_and_keeps_the_fingerprint),
    cmocka_unit_test(some_blocks_are_recomputed_and_the_last_ones_kept),
    cmocka_unit_test(clones_keep_their_path),
    cmocka_unit_test(fingerprint_tells_what_changes_bits),
    cmocka_unit_test(accumulators_exist_for_more_than_one_micro_batch),
    cmocka_unit_test(sums_of_vectors_wait_for_the_end_of_their_block),
    cmocka_unit_test(programs_share_parameters_and_overlay_transients),
    cmocka_unit_test(small_budget_is_refused_with_the_missing_bytes),
    cmocka_unit_test(check_finds_damage),
    cmocka_unit_test(loops_move_each_piece_once),
    cmocka_unit_test(check_finds_damaged_loops),
    cmocka_unit_test(what_travels_together_is_of_one_kind),
    cmocka_unit_test(a_load_finds_what_was_stored),
    cmocka_unit_test(late_updates_run_ahead_with_gathers),
    cmocka_unit_test(reads_run_ahead_across_steps),
    cmocka_unit_test(reads_for_the_next_step_follow_stores),
    cmocka_unit_test(updates_in_backward_leave_time_for_reductions),
    cmocka_unit_test(updates_free_gradients_in_memory),
    cmocka_unit_test(the_next_forward_updates_a_share),
    cmocka_unit_test(states_are_read_in_segments_before),
    cmocka_unit_test(first_terms_load_no_sum),
    cmocka_unit_test(unsupported_op_is_named),
    cmocka_unit_test(vertical_moves_parameters_once),
    cmocka_unit_test(vertical_keeps_the_order_of_sums),
    cmocka_unit_test(vertical_refuses_a_forward_that_writes_states),
    cmocka_unit_test(survives_lack_of_memory),
    cmocka_unit_test(tiles_bound_what_is_on_the_device),
    cmocka_unit_test(a_wide_layer_takes_16_hh_bytes_by_its_tiles),
    cmocka_unit_test(tiles_bound_what_lamb_has_on_the_device),
    cmocka_unit_test(hopeless_budgets_are_known_without_trying_tiles),
    cmocka_unit_test(what_lies_here_is_not_tiled),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
