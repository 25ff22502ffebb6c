// SPDX-License-Identifier: Apache-2.0
// COST 20
// SLOW SPILLWAY_LATE=all
// Updates within the next forward (spillway.clipped_update) have the bits of updates at the end of
// the step, whatever comes between two steps: evaluation, reading and writing weights, a checkpoint
// that another engine resumes, a generated text. They move as many bytes between tiers as a step
// without clipping. What cannot have them is refused. SPILLWAY_LATE=all tries all ways to run, else
// every second one.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/private.h"
#include "engine/tests/owned.h"
#include "support/scratch.h"
#include "support/test.h"

enum { B = 2, T = 6, V = 67, STEPS = 6, MOST_RANKS = 2, MOST_ELEMS = 1 << 20 };

struct way {
    const char *precision, *optimizer, *more; /* more: keys of the "spillway" block */
    int ranks, micro_batches;
    bool parts;   /* calls sw_forward, sw_backward and sw_step */
    double share; /* spillway.next_forward_share; 0 = by default */
};
// clang-format off
static const char fp16[] =
    "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 18, \"loss_scale_window\": 2, "
    "\"hysteresis\": 1}, ";
static const char bf16[] = "\"bf16\": {\"enabled\": true}, ";
static const struct way ways[] = {
    {bf16, "AdamW", ", \"transfer_bytes\": 100000", 1, 1, false, 0},
    {"", "Lion", ", \"schedule\": \"vertical\"", 1, 3, false, 0},
    {fp16, "AdamW", ", \"tile_bytes\": 700", 1, 2, true, 0},
    {bf16, "AdamW8bit", ", \"device_memory\": \"64MiB\", \"host_memory\": 1", 1, 1, true, 0},
    {bf16, "AdamW", ", \"schedule\": \"vertical\", \"tile_bytes\": 700", 2, 4, false, 0},
    {fp16, "SparseAdam", "", 2, 3, true, 0},
    {fp16, "AdamW", ", \"tile_bytes\": 700", 2, 2, false, 0.5},
};
// clang-format on

struct run {
    const struct way *way;
    const char *update, *clip;
    bool between; /* does something between steps */
    const char *const *sets;
    int n_sets;
    float weights[MOST_ELEMS];
    double losses[STEPS], norms[STEPS];
    int64_t disk_in, disk_out; /* of the last step */
    int n_skipped;
};

static sw_status open_engine(const struct run *run, sw_comm *comm, sw_engine **out)
{
    const struct way *way = run->way;
    const bool late = strcmp(run->update, "end") != 0;
    char config[2048];
    snprintf(config, sizeof config,
             "{\"train_micro_batch_size_per_gpu\": %d, \"gradient_clipping\": %s, %s"
             "\"zero_optimization\": {\"stage\": 3, \"stage3_param_persistence_threshold\": 40, "
             "\"sub_group_size\": 900, "
             "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"%s\"}, "
             "\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"%s\"}}, "
             "\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_num_steps\": 5}}, "
             "\"optimizer\": {\"type\": \"%s\", \"params\": {\"lr\": 0.01}}, "
             "\"spillway\": {\"micro_batches\": %d, \"threads\": 1, \"kernels\": \"reference\", "
             "\"clipped_update\": \"%s\"%s, \"next_forward_share\": %g}}",
             B, run->clip, way->precision, test_folder(), test_folder(), way->optimizer,
             way->micro_batches, run->update, way->more, late && way->share > 0 ? way->share : 1);
    const struct sw_engine_options options = {
        .config = {.text = config, .sets = run->sets, .n_sets = run->n_sets},
        .model = {.path = "gpt2-tiny", .vocab_size = V},
        .inputs.seq_len = T,
        .run = {.comm = comm, .verify = true},
        .seed = 5,
        .train.wanted = true,
        .evaluate.loss = true,
        .generate = {.wanted = true, .tokens = T},
    };
    return sw_initialize(&options, out);
}

/* Runs a forward: that of a step, or an evaluation. */
static sw_status forward(sw_engine *e, bool trains)
{
    const struct sw_shape shape = {2, {B, T}};
    int32_t ids[B * T];
    double sum, count;
    for (int i = 0; i < B * T; i++) {
        ids[i] = i % V;
    }
    const struct sw_tensor tensors[] = {
        {"input_ids", {.data = ids, .dtype = SW_I32, .shape = shape}},
        {"labels", {.data = ids, .dtype = SW_I32, .shape = shape}}};
    const struct sw_batch batch = {tensors, 2};
    return trains ? sw_forward(e, &batch, NULL) : sw_evaluate(e, &batch, &sum, &count);
}

/* Does something that needs the parameters after the step. */
static sw_status between(const struct run *run, sw_comm *comm, int64_t step, sw_engine **e)
{
    static float weights[MOST_RANKS][MOST_ELEMS];
    const int32_t prompt[2] = {3, 1};
    int32_t ids[2];
    int64_t n;
    switch (step) {
    case 1:
        return forward(*e, false);
    case 2:
        SW_TRY(sw_save(*e, test_at("checkpoint"), NULL));
        sw_close(*e);
        *e = NULL;
        SW_TRY(open_engine(run, comm, e));
        return sw_load(*e, test_at("checkpoint"));
    case 3:
        return test_owned_weights(*e, weights[sw_comm_rank(comm)], MOST_ELEMS);
    case 4:
        return sw_generate(*e, prompt, 2, 2, NULL, ids, &n, NULL);
    default:
        return SW_OK;
    }
}

/* Trains a step in parts; reading a weight between them changes nothing. */
static sw_status step_in_parts(sw_engine *e, const struct way *way, struct sw_step_report *report)
{
    const struct sw_shape shape = {2, {B, T}};
    for (int k = e->data.rank; k < way->micro_batches; k += e->data.size) {
        int32_t ids[B * T];
        for (int i = 0; i < B * T; i++) {
            const uint64_t at = (uint64_t)((e->progress.step * way->micro_batches + k) * B * T + i);
            ids[i] = (int32_t)(sw_philox_u64(9, 1, at) % V);
        }
        const struct sw_tensor tensors[] = {
            {"input_ids", {.data = ids, .dtype = SW_I32, .shape = shape}},
            {"labels", {.data = ids, .dtype = SW_I32, .shape = shape}}};
        SW_TRY(sw_forward(e, &(struct sw_batch){tensors, 2}, NULL));
        SW_TRY(sw_backward(e));
    }
    return sw_step(e, report);
}

static sw_status train(void *ctx, sw_comm *comm)
{
    struct run *run = ctx;
    const struct way *way = run->way;
    sw_engine *e = NULL;
    sw_status st = open_engine(run, comm, &e);
    const bool late = strcmp(run->update, "end") != 0;
    if (st >= 0 && e->plan->update.in_forward != late) {
        st = SW_FAIL(SW_E_ARG, "updates run at another time than wanted");
    }
    for (int i = 0; st >= 0 && i < STEPS; i++) {
        struct sw_step_report report = {0};
        struct sw_transfers before, after;
        st = run->between ? between(run, comm, i, &e) : SW_OK;
        if (st < 0) {
            break;
        }
        sw_executor_transferred(e->executor, &before);
        st = way->parts ? step_in_parts(e, way, &report)
                        : test_train_step(e, way->micro_batches, B, T, V, &report);
        sw_executor_transferred(e->executor, &after);
        if (sw_comm_rank(comm) == 0) {
            run->losses[i] = report.loss;
            run->norms[i] = report.grad_norm;
            run->n_skipped += report.skipped;
            run->disk_in = after.in[SW_TIER_DISK] - before.in[SW_TIER_DISK];
            run->disk_out = after.out[SW_TIER_DISK] - before.out[SW_TIER_DISK];
        }
    }
    st = st < 0 ? st : test_owned_weights(e, run->weights, MOST_ELEMS);
    sw_close(e);
    return st;
}

static void run_all(struct run *run)
{
    test_remove(test_at("checkpoint"));
    if (sw_threads_run(run->way->ranks, 600, train, run) < 0) {
        fail_msg("%s, %s%s, update %s: %s", run->way->precision, run->way->optimizer,
                 run->way->more, run->update, sw_error_message());
    }
}

static void the_next_forward_updates_to_the_same_bits(void **state)
{
    (void)state;
    static struct run want, got;
    for (size_t i = 0; i < SW_LEN(ways); i += getenv("SPILLWAY_LATE") ? 1 : 2) {
        want = (struct run){.way = &ways[i], .update = "end", .clip = "0.1"};
        run_all(&want);
        assert_true((want.n_skipped > 0) == (ways[i].precision == fp16));
        /* the first way without anything between steps, too */
        for (int between = i > 0; between < 2; between++) {
            got = (struct run){
                .way = &ways[i], .update = "next_forward", .clip = "0.1", .between = between > 0};
            run_all(&got);
            assert_memory_equal(got.losses, want.losses, sizeof want.losses);
            assert_memory_equal(got.norms, want.norms, sizeof want.norms);
            assert_memory_equal(got.weights, want.weights, sizeof want.weights);
        }
    }
}

/* Without clipping, backward updates what it has loaded. */
static void it_moves_the_bytes_of_a_step_without_clipping(void **state)
{
    (void)state;
    static struct run want, got;
    static const struct way way = {bf16, "AdamW", "", 1, 1, false, 0};
    want = (struct run){.way = &way, .update = "end", .clip = "0"};
    got = (struct run){.way = &way, .update = "next_forward", .clip = "0.1"};
    run_all(&want);
    run_all(&got);
    assert_int_equal(got.disk_out, want.disk_out);
    assert_true(got.disk_in <= want.disk_in);
    got = (struct run){.way = &way, .update = "end", .clip = "0.1"};
    run_all(&got);
    assert_true(got.disk_in > want.disk_in);
}

static sw_status step(sw_engine *e, struct sw_step_report *out)
{
    return test_train_step(e, 1, B, T, V, out);
}

static void two_steps(sw_engine *e, struct sw_step_report out[2])
{
    assert_int_equal(step(e, &out[0]), SW_OK);
    assert_int_equal(step(e, &out[1]), SW_OK);
}

/* A checkpoint replaces what a step has read for the next one, and what a forward has updated. */
static void what_was_made_before_a_load_is_dropped(void **state)
{
    (void)state;
    static const struct way way = {bf16, "AdamW", "", 1, 1, false, 0};
    const struct run run = {.way = &way, .update = "next_forward", .clip = "0.1"};
    struct sw_step_report want[2], got[2];
    sw_engine *e = NULL;
    assert_int_equal(open_engine(&run, NULL, &e), SW_OK);
    assert_true(e->plan->step.phases[0].finds);
    assert_int_equal(step(e, NULL), SW_OK);
    assert_int_equal(sw_save(e, test_at("checkpoint"), NULL), SW_OK);
    two_steps(e, want);
    for (int in_step = 0; in_step < 2; in_step++) {
        assert_int_equal(step(e, NULL), SW_OK);
        assert_int_equal(in_step ? forward(e, true) : SW_OK, SW_OK);
        assert_int_equal(sw_load(e, test_at("checkpoint")), SW_OK);
        two_steps(e, got);
        assert_memory_equal(got, want, sizeof want);
    }
    sw_close(e);
    test_remove(test_at("checkpoint"));
}

static bool touches(const struct sw_program *program, const struct sw_instr *instr,
                    const struct sw_operand *stored)
{
    bool found = false;
    for (int k = 0; k < instr->n_in + instr->n_out; k++) {
        const struct sw_operand *operand = &program->operands[instr->operands + k];
        found |= operand->tier == SW_TIER_DEVICE && operand->offset == stored->offset;
    }
    return found;
}

/* True if other kernels run between the one that makes what instruction i stores, and i; that one
 * runs before instruction `before`. */
static bool has_waited(const struct sw_program *program, int32_t i, int32_t before)
{
    const struct sw_operand *stored = &program->operands[program->instrs[i].operands + 1];
    bool others = false;
    for (i--; i >= 0; i--) {
        const struct sw_instr *instr = &program->instrs[i];
        if (instr->verb == SW_VERB_KERNEL && touches(program, instr, stored)) {
            return others && i < before;
        }
        others |= instr->verb == SW_VERB_KERNEL;
    }
    return false;
}

/* Bytes that an update has made before the last read of forward, and that are written after it, so
 * that backward has time for them. They are complete before the first read for the next step.
 * *largest: the largest of them */
static int64_t bytes_after_reads(const struct sw_program *program, int64_t *largest)
{
    int64_t bytes = 0;
    int32_t last = program->n_instrs, first = 0; /* read of forward; read for the next step */
    while (last > 0 && !(program->instrs[last - 1].turn.first_only &&
                         program->instrs[last - 1].verb == SW_VERB_READ)) {
        last--;
    }
    while (first < program->n_instrs && !program->instrs[first].turn.for_next) {
        first++;
    }
    for (int32_t i = last; i < program->n_instrs; i++) {
        const struct sw_instr *instr = &program->instrs[i];
        if (instr->turn.first_only && instr->verb == SW_VERB_WRITE) {
            assert_true(first == program->n_instrs || instr->retired < first);
            const int64_t waited = has_waited(program, i, last) ? instr->bytes : 0;
            bytes += waited;
            *largest = waited > *largest ? waited : *largest;
        }
    }
    return bytes;
}

/* Stores of optimizer states lag within what transfers may take. */
static void stores_are_written_during_backward(void **state)
{
    (void)state;
    static const char *const limits[] = {"1", "20000", "200000", "2000000"};
    int64_t before = -1;
    for (size_t i = 0; i < SW_LEN(limits); i++) {
        char more[64];
        snprintf(more, sizeof more, ", \"transfer_bytes\": %s", limits[i]);
        const struct way way = {bf16, "AdamW", more, 1, 1, false, 0};
        const struct run run = {.way = &way, .update = "next_forward", .clip = "1"};
        sw_engine *e = NULL;
        assert_int_equal(open_engine(&run, NULL, &e), SW_OK);
        int64_t largest = 0;
        const int64_t bytes = bytes_after_reads(&e->plan->programs[e->programs.train], &largest);
        assert_true(bytes > before && bytes - largest <= atoll(limits[i]));
        before = bytes;
        sw_close(e);
    }
}

static void what_cannot_wait_is_refused(void **state)
{
    (void)state;
    // clang-format off
    static const struct {
        const char *optimizer, *clip, *more, *wanted, *sets[2];
    } cases[] = {
        {"AdamW", "0", "", "without gradient_clipping", {NULL}},
        {"Lamb", "1", "", "norms of whole parameters", {NULL}},
        {"AdamW", "1", ", \"disk_slots\": 1", "spillway.disk_slots 2", {NULL}},
        {"AdamW", "1", "", "spillway.disk_slots 2", {"zero_optimization.offload_param.device=cpu"}},
        {"AdamW", "1", "", "offloaded to a disk", {"zero_optimization.offload_param.device=cpu",
         "zero_optimization.offload_optimizer.device=cpu"}},
        {"AdamW", "1", "", "zero_optimization.offload_optimizer",
         {"zero_optimization.offload_optimizer.ratio=0.5"}},
    };
    // clang-format on
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        const struct way way = {bf16, cases[i].optimizer, cases[i].more, 1, 1, false, 0};
        const struct run run = {.way = &way,
                                .update = "next_forward",
                                .clip = cases[i].clip,
                                .sets = cases[i].sets,
                                .n_sets = !!cases[i].sets[0] + !!cases[i].sets[1]};
        sw_engine *e = NULL;
        assert_int_equal(open_engine(&run, NULL, &e), SW_E_CONFIG);
        assert_non_null(strstr(sw_error_message(), "spillway.clipped_update"));
        assert_non_null(strstr(sw_error_message(), cases[i].wanted));
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_next_forward_updates_to_the_same_bits),
    cmocka_unit_test(it_moves_the_bytes_of_a_step_without_clipping),
    cmocka_unit_test(what_was_made_before_a_load_is_dropped),
    cmocka_unit_test(stores_are_written_during_backward),
    cmocka_unit_test(what_cannot_wait_is_refused),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
