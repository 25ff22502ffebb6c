// SPDX-License-Identifier: Apache-2.0
// A small GPT-2 with everything on disk. Its small tensors travel in packs. Each can be read and
// written by name as if it were stored alone. Training and resuming have the bits of a run without
// offloading.
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "engine/private.h"
#include "support/scratch.h"
#include "support/test.h"

/* Rows of 28, 84, 449 and 7 floats give odd ends in every pack. */
enum { B = 2, T = 7, VOCAB = 448, STEPS = 4, SAVED_AT = 2, LAYERS = 3, MOST = 1 << 17 };

static char model[96];

static int set_up(void **state)
{
    static const char text[] =
        "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"vocab_size\":448,"
        "\"n_positions\":7,\"n_embd\":28,\"n_layer\":3,\"n_head\":4,\"n_inner\":449}";
    (void)state;
    snprintf(model, sizeof model, "%s/model.json", test_folder());
    test_put("model.json", text);
    return 0;
}

struct way {
    const char *precision, *clip;
};

static sw_status open_engine(const struct way *way, bool on_disk, sw_engine **out)
{
    char offload[256] = "", config[1024];
    if (on_disk) {
        snprintf(offload, sizeof offload,
                 ", \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"%s\"}, "
                 "\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"%s\"}",
                 test_folder(), test_folder());
    }
    snprintf(
        config, sizeof config,
        "{\"train_micro_batch_size_per_gpu\": %d, %s \"gradient_clipping\": %s, "
        "\"zero_optimization\": {\"stage\": 3, \"stage3_param_persistence_threshold\": 0%s}, "
        "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.01}}, "
        "\"spillway\": {\"micro_batches\": 1, \"threads\": 1, \"frozen\": [\"*.h.1.ln_2.*\"]}}",
        B, way->precision, way->clip, offload);
    const struct sw_engine_options options = {.config.text = config,
                                              .model.path = model,
                                              .inputs.seq_len = T,
                                              .run.verify = true,
                                              .seed = 5,
                                              .train.wanted = true,
                                              .evaluate.loss = true};
    return sw_initialize(&options, out);
}

static void step(sw_engine *e, int64_t i, struct sw_step_report *report)
{
    int32_t ids[B * T], labels[B * T];
    const struct sw_shape shape = SW_SHAPE(B, T);
    for (int n = 0; n < B * T; n++) {
        ids[n] = (int32_t)(sw_philox_u64(3, 1, (uint64_t)(i * B * T + n)) % VOCAB);
        labels[n] = (int32_t)(sw_philox_u64(3, 2, (uint64_t)(i * B * T + n)) % VOCAB);
    }
    const struct sw_tensor tensors[] = {
        {"input_ids", {.data = ids, .dtype = SW_I32, .shape = shape}},
        {"labels", {.data = labels, .dtype = SW_I32, .shape = shape}}};
    const struct sw_batch batch = {tensors, 2};
    if (sw_train_batch(e, &batch, 1, report) < 0) {
        fail_msg("%s", sw_error_message());
    }
}

/* Hashes all weights, and the executor's contents of every state. States may come in any order. */
static uint64_t hash_of(sw_engine *e)
{
    static float values[MOST];
    uint64_t h = SW_HASH_INIT;
    for (int32_t i = 0; i < sw_engine_n_tensors(e); i++) {
        const char *name;
        struct sw_shape shape;
        assert_int_equal(sw_engine_tensor(e, i, &name, &shape), SW_OK);
        const int64_t n = sw_shape_elems(&shape);
        assert_int_equal(sw_get_weight(e, name, 0, n, values), SW_OK);
        h = sw_hash(h, values, (size_t)n * sizeof *values);
    }
    for (int32_t i = 0; i < e->plan->n_persistent; i++) {
        const struct sw_persistent *item = &e->plan->persistent[i];
        if (item->param && strncmp(item->name, "grad_", 5) != 0) {
            assert_true(item->bytes <= sizeof values);
            assert_int_equal(sw_executor_save(e->executor, item, 0, values, item->bytes), SW_OK);
            h += sw_hash(sw_hash_str(SW_HASH_INIT, item->name), values, item->bytes);
        }
    }
    return h;
}

static void on_disk_it_has_the_bits_of_memory(void **state)
{
    static const struct way ways[] = {
        {"", "0"},
        {"\"bf16\": {\"enabled\": true},", "0.5"},
        {"\"fp16\": {\"enabled\": true, \"initial_scale_power\": 8},", "0"},
        {"\"fp16\": {\"enabled\": true, \"initial_scale_power\": 24},", "0.5"},
        {"\"fp16\": {\"enabled\": true, \"initial_scale_power\": 24},",
         "0"}, /* some steps are skipped */
    };
    char path[128];
    (void)state;
    for (size_t w = 0; w < SW_LEN(ways); w++) {
        const struct sw_save_options save = {.val_loss = NAN};
        sw_engine *here, *there, *again;
        snprintf(path, sizeof path, "%s/saved%zu", test_folder(), w);
        assert_int_equal(open_engine(&ways[w], false, &here), SW_OK);
        assert_int_equal(open_engine(&ways[w], true, &there), SW_OK);
        assert_true(there->plan->n_packs >= 2 * LAYERS);
        assert_true(hash_of(here) == hash_of(there));
        for (int i = 0; i < STEPS; i++) {
            struct sw_step_report a, b;
            step(here, i, &a);
            step(there, i, &b);
            assert_memory_equal(&a.loss, &b.loss, sizeof a.loss);
            assert_true(a.skipped == b.skipped);
            assert_true(hash_of(here) == hash_of(there));
            if (i + 1 == SAVED_AT) {
                assert_int_equal(sw_save(there, path, &save), SW_OK);
            }
        }
        assert_int_equal(open_engine(&ways[w], true, &again), SW_OK);
        assert_int_equal(sw_load(again, path), SW_OK);
        for (int i = SAVED_AT; i < STEPS; i++) {
            struct sw_step_report report;
            step(again, i, &report);
        }
        assert_true(hash_of(again) == hash_of(here));
        sw_close(here);
        sw_close(there);
        sw_close(again);
    }
}

/* Writing a packed tensor does not write past its end. */
static void writing_one_leaves_its_neighbours(void **state)
{
    static const struct way way = {"\"bf16\": {\"enabled\": true},", "0"};
    static float before[MOST], after[MOST];
    sw_engine *e;
    int n_packed = 0;
    (void)state;
    assert_int_equal(open_engine(&way, true, &e), SW_OK);
    for (int32_t i = 0; i < e->plan->n_persistent; i++) {
        const struct sw_persistent *item = &e->plan->persistent[i], *other = item + 1;
        if (item->packed_bytes == 0 || i + 1 == e->plan->n_persistent || other->packed_bytes == 0) {
            continue;
        }
        n_packed++;
        assert_int_equal(sw_executor_save(e->executor, other, 0, before, other->bytes), SW_OK);
        memset(after, 0x11, item->bytes);
        assert_int_equal(sw_executor_load(e->executor, item, 0, after, item->bytes), SW_OK);
        assert_int_equal(sw_executor_save(e->executor, other, 0, after, other->bytes), SW_OK);
        assert_memory_equal(before, after, other->bytes);
        assert_int_equal(sw_executor_zero(e->executor, item), SW_OK);
        assert_int_equal(sw_executor_save(e->executor, other, 0, after, other->bytes), SW_OK);
        assert_memory_equal(before, after, other->bytes);
    }
    assert_true(n_packed > LAYERS * 8);
    sw_close(e);
}

static int count(const struct sw_program *program, enum sw_verb verb, const char *scope, bool packs)
{
    int n = 0;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_instr *instr = &program->instrs[i];
        const bool inside = strncmp(instr->about->scope, scope, strlen(scope)) == 0;
        n += instr->verb == verb && inside &&
             (!packs || strncmp(instr->about->tensor, "pack.", 5) == 0);
    }
    return n;
}

/* Every tensor of a block is small here, so a block moves only its packs of parameters and
 * states. */
static void a_block_moves_its_packs_alone(void **state)
{
    static const struct way way = {"\"bf16\": {\"enabled\": true},", "0"};
    sw_engine *e;
    (void)state;
    assert_int_equal(open_engine(&way, true, &e), SW_OK);
    const struct sw_program *program = &e->plan->programs[0];
    assert_int_equal(count(program, SW_VERB_READ, "transformer.h.0", true), 3);
    assert_int_equal(count(program, SW_VERB_READ, "transformer.h.0", false), 3);
    assert_int_equal(count(program, SW_VERB_WRITE, "transformer.h.0", true), 2);
    assert_int_equal(count(program, SW_VERB_WRITE, "transformer.h.0", false), 2);
    struct sw_str text = {0};
    sw_techniques_describe(e->plan, NULL, &text);
    assert_non_null(strstr(sw_str_text(&text), "small tensors are on the disk in"));
    sw_str_fini(&text);
    sw_close(e);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(on_disk_it_has_the_bits_of_memory),
    cmocka_unit_test(writing_one_leaves_its_neighbours),
    cmocka_unit_test(a_block_moves_its_packs_alone),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up};
