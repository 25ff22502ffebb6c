// SPDX-License-Identifier: Apache-2.0
// TIMEOUT 300
// Adapters. They start as a no-op, and only they are trained, saved and exported. A frozen tensor
// costs its working copy and is read twice. An exported folder gives the same bits when reopened,
// and the same logits when merged. A checkpoint resumes at other ranks and stages to the same bits,
// but only on its own base. Adapters of another base and unsupported keys are named.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/private.h"
#include "engine/tests/owned.h"
#include "support/scratch.h"
#include "support/test.h"

enum { B = 2, T = 7, V = 37, K = 4, MAX_ELEMS = 1 << 16 };

static void put_file(const char *path, const char *text)
{
    assert_int_equal(sw_file_write_atomic(path, text, strlen(text)), SW_OK);
}

static const char base_config[] =
    "{\"train_micro_batch_size_per_gpu\": 2, \"gradient_clipping\": 1.0, \"zero_optimization\": "
    "{\"stage3_param_persistence_threshold\": 0}, \"optimizer\": {\"type\": \"AdamW\", \"params\": "
    "{\"lr\": 0.01}}, \"spillway\": {\"threads\": 1, \"micro_batches\": 4}}";
static const char lora_set[] =
    "spillway.lora={\"r\": 3, \"lora_alpha\": 6, \"target_modules\": [\"c_attn\", \"mlp.c_proj\"]}";

/* ---- engines ---- */

struct how {
    const char *base, *adapter; /* names in the folder */
    const char *sets[6];        /* terminated by NULL */
    uint64_t seed;
    bool logits, plan_only;
};

static sw_status open_engine(const struct how *how, sw_comm *comm, sw_engine **out)
{
    int n_sets = 0;
    while (n_sets < 6 && how->sets[n_sets]) {
        n_sets++;
    }
    const struct sw_engine_options options = {
        .config = {.text = base_config, .sets = how->sets, .n_sets = n_sets},
        .model = {.path = test_at(how->base ? how->base : "base"),
                  .adapter = how->adapter ? test_at(how->adapter) : NULL},
        .inputs.seq_len = T,
        .run.comm = comm,
        .seed = how->seed,
        .train.wanted = !how->logits,
        .evaluate.logits = how->logits,
        .plan.only = how->plan_only,
    };
    return sw_initialize(&options, out);
}

static void fill(int32_t *ids, int64_t micro)
{
    for (int i = 0; i < B * T; i++) {
        ids[i] = (int32_t)(sw_philox_u64(9, 1, (uint64_t)(micro * B * T + i)) % V);
    }
}

static sw_status train(sw_engine *e, int n_steps)
{
    static const struct sw_shape shape = {2, {B, T}};
    int32_t ids[K][B * T];
    struct sw_tensor tensors[K][2];
    struct sw_batch batches[K];
    for (int s = 0; s < n_steps; s++) {
        int n = 0;
        for (int k = e->data.rank; k < K; k += e->data.size, n++) {
            fill(ids[n], e->progress.step * K + k);
            const struct sw_view view = {.data = ids[n], .dtype = SW_I32, .shape = shape};
            tensors[n][0] = (struct sw_tensor){"input_ids", view};
            tensors[n][1] = (struct sw_tensor){"labels", view};
            batches[n] = (struct sw_batch){tensors[n], 2};
        }
        SW_TRY(sw_train_batch(e, batches, n, NULL));
    }
    return SW_OK;
}

/* Computes the logits of the first batch. */
static void logits_of(const struct how *how, float *out)
{
    struct how asked = *how;
    sw_engine *e = NULL;
    int32_t ids[B * T];
    asked.logits = true;
    fill(ids, 0);
    const struct sw_tensor tensor = {"input_ids",
                                     {.data = ids, .dtype = SW_I32, .shape = {2, {B, T}}}};
    const struct sw_batch batch = {&tensor, 1};
    const sw_status st = open_engine(&asked, NULL, &e);
    if (st < 0) {
        fail_msg("%s", sw_error_message());
    }
    assert_int_equal(sw_logits(e, &batch, out), SW_OK);
    sw_close(e);
}

static sw_engine *must(const struct how *how)
{
    sw_engine *e = NULL;
    if (open_engine(how, NULL, &e) < 0) {
        fail_msg("%s", sw_error_message());
    }
    return e;
}

static bool says(const char *needle)
{
    if (!strstr(sw_error_message(), needle)) {
        printf("\"%s\" does not say \"%s\"\n", sw_error_message(), needle);
        return false;
    }
    return true;
}

/* Makes two models of one shape, with adapters of the first after two steps. */
static int set_up(void **state)
{
    static const char model[] =
        "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"vocab_size\":37,"
        "\"n_positions\":11,\"n_embd\":21,\"n_layer\":2,\"n_head\":3,\"n_inner\":29,"
        "\"embd_pdrop\":0.1,\"attn_pdrop\":0.1,\"resid_pdrop\":0.1}";
    sw_engine *e = NULL;
    (void)state;
    test_put("config.json", model);
    for (int i = 0; i < 2; i++) {
        const struct how how = {.base = "config.json", .seed = (uint64_t)i + 1, .logits = true};
        assert_int_equal(open_engine(&how, NULL, &e), SW_OK);
        assert_int_equal(sw_export(e, test_at(i == 0 ? "base" : "other"), SW_F32), SW_OK);
        sw_close(e);
    }
    const struct how how = {.sets = {lora_set}};
    e = must(&how);
    assert_int_equal(train(e, 2), SW_OK);
    assert_int_equal(sw_export(e, test_at("adapter"), SW_DTYPE_COUNT), SW_OK);
    assert_int_equal(sw_save(e, test_at("run"), NULL), SW_OK);
    sw_close(e);
    return 0;
}

/* ---- properties ---- */

static void they_begin_as_nothing(void **state)
{
    static float with[B * T * V], without[B * T * V], a[3 * 21];
    const struct how plain = {0}, lora = {.sets = {lora_set}};
    (void)state;
    logits_of(&plain, without);
    logits_of(&lora, with);
    assert_memory_equal(with, without, sizeof with);
    sw_engine *e = must(&lora);
    assert_int_equal(sw_get_weight(e, "transformer.h.0.attn.c_attn.lora_A.weight", 0, 3 * 21, a),
                     SW_OK);
    const double bound = 1 / sqrt(21);
    double most = 0, sum = 0;
    for (int i = 0; i < 3 * 21; i++) {
        most = fmax(most, fabs(a[i]));
        sum += (double)a[i] * (double)a[i];
    }
    assert_true(most <= bound && most > 0.8 * bound);
    /* variance of a uniform distribution */
    assert_true(fabs(sum / 63 - bound * bound / 3) < 0.1 * bound * bound);
    assert_int_equal(sw_weights_trained(&e->weights), 2 * (3 * (21 + 63) + 3 * (29 + 21)));
    sw_close(e);
}

static void a_checkpoint_holds_no_base(void **state)
{
    struct sw_ckpt *ckpt = NULL;
    int64_t elems = 0;
    (void)state;
    assert_int_equal(sw_ckpt_open(test_at("run"), &ckpt), SW_OK);
    for (int64_t i = 0; i < sw_ckpt_n_tensors(ckpt); i++) {
        const struct sw_ckpt_entry *entry = sw_ckpt_entry(ckpt, i);
        assert_true(sw_lora_is_adapter(entry->param));
        elems += sw_shape_elems(&entry->shape);
    }
    assert_int_equal(elems, 3 * 804); /* masters and two moments */
    sw_ckpt_close(ckpt);
    const struct how how = {.sets = {lora_set}};
    sw_engine *e = must(&how);
    assert_int_equal(sw_weights_checkpoint_bytes(&e->weights), 4 * elems);
    sw_close(e);
}

/* In bf16, on a disk, at stage 3: a frozen tensor has no master, no moment, no gradient and one
 * slot. */
static void what_is_frozen_costs_its_working_copy(void **state)
{
    char path[160], path2[160];
    (void)state;
    snprintf(path, sizeof path,
             "zero_optimization.offload_param={\"device\": \"nvme\", "
             "\"nvme_path\": \"%s\"}",
             test_folder());
    snprintf(path2, sizeof path2,
             "zero_optimization.offload_optimizer={\"device\": \"nvme\", "
             "\"nvme_path\": \"%s\"}",
             test_folder());
    const struct how how = {
        .sets = {lora_set, "bf16={\"enabled\": true}", "zero_optimization.stage=3", path, path2},
        .plan_only = true};
    sw_engine *e = must(&how);
    int n_frozen = 0;
    for (int32_t i = 0; i < e->plan->n_persistent; i++) {
        const struct sw_persistent *item = &e->plan->persistent[i];
        const char *param = item->role == SW_ROLE_PARAM ? item->name : item->param;
        if (param && !sw_lora_is_adapter(param)) {
            assert_int_equal(item->role, SW_ROLE_PARAM); /* frozen tensors have no state */
            assert_int_equal(item->dtype, SW_BF16);
            assert_int_equal(item->tier, SW_TIER_DISK);
            assert_int_equal(item->slot_bytes, 0);
            n_frozen++;
        }
    }
    assert_true(n_frozen > 20);
    sw_close(e);
}

/* Counts disk reads and writes of this parameter in the training program. */
static void count_moves(const struct sw_engine *e, const char *name, int *reads, int *writes)
{
    const struct sw_program *program = &e->plan->programs[e->programs.train];
    const struct sw_persistent *item = sw_plan_find(e->plan, name);
    assert_non_null(item);
    assert_int_equal(item->packed_bytes, 0);
    *reads = *writes = 0;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_instr *instr = &program->instrs[i];
        const bool read = instr->verb == SW_VERB_READ, write = instr->verb == SW_VERB_WRITE;
        for (int k = 0; (read || write) && k < instr->n_in + instr->n_out; k++) {
            const struct sw_operand *operand = &program->operands[instr->operands + k];
            if (operand->tier == SW_TIER_DISK && operand->offset >= item->offset &&
                operand->offset < item->offset + item->bytes) {
                *(read ? reads : writes) += 1;
            }
        }
    }
}

static void the_base_is_read_once_each_way(void **state)
{
    static const char wide[] =
        "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"vocab_size\":37,"
        "\"n_positions\":11,\"n_embd\":128,\"n_layer\":2,\"n_head\":4}";
    char path[160];
    (void)state;
    put_file(test_at("wide.json"), wide);
    snprintf(path, sizeof path,
             "zero_optimization.offload_param={\"device\": \"nvme\", "
             "\"nvme_path\": \"%s\"}",
             test_folder());
    for (int vertical = 0; vertical < 2; vertical++) {
        const struct how how = {.base = "wide.json",
                                .sets = {lora_set, "zero_optimization.stage=3", path,
                                         vertical ? "spillway.schedule=vertical" : NULL},
                                .plan_only = true};
        sw_engine *e = must(&how);
        int reads, writes;
        count_moves(e, "transformer.h.1.mlp.c_fc.weight", &reads, &writes);
        assert_int_equal(reads, 2);
        assert_int_equal(writes, 0);
        /* one micro-batch, or all of the step */
        assert_int_equal(e->plan->programs[e->programs.train].micro_batches, vertical ? K : 1);
        sw_close(e);
    }
}

/* ---- folders ---- */

static void a_folder_gives_the_same_bits_again(void **state)
{
    static float one[B * T * V], two[B * T * V], base[B * T * V];
    const struct how adapter = {.adapter = "adapter"}, plain = {0};
    (void)state;
    logits_of(&plain, base);
    logits_of(&adapter, one);
    assert_memory_not_equal(one, base, sizeof one);
    sw_engine *e = must(&adapter); /* and exports again */
    assert_int_equal(sw_export(e, test_at("again"), SW_DTYPE_COUNT), SW_OK);
    sw_close(e);
    const struct how again = {.adapter = "again"};
    logits_of(&again, two);
    assert_memory_equal(one, two, sizeof one);
}

static void exports_leave_nothing_in_memory(void **state)
{
    struct sw_alloc_stats before, after;
    const struct how adapter = {.adapter = "adapter"};
    (void)state;
    sw_engine *e = must(&adapter);
    sw_alloc_get_stats(&before);
    for (int i = 0; i < 16; i++) {
        assert_int_equal(sw_export(e, test_at("often"), SW_DTYPE_COUNT), SW_OK);
    }
    sw_alloc_get_stats(&after);
    assert_int_equal(after.live_bytes, before.live_bytes);
    sw_close(e);
}

static void merged_it_is_the_same_model(void **state)
{
    static float one[B * T * V], two[B * T * V];
    const struct how adapter = {.adapter = "adapter"};
    struct how merged = {.base = "merged"};
    enum sw_dtype dtype = SW_DTYPE_COUNT;
    struct sw_engine_merge m = {0};
    struct sw_ckpt *ckpt = NULL;
    (void)state;
    logits_of(&adapter, one);
    assert_int_equal(sw_engine_open_merge(test_at("adapter"), NULL, &m), SW_OK);
    assert_int_equal(sw_weights_export_merged(m.merge, test_at("merged"), &dtype), SW_OK);
    assert_int_equal(dtype, SW_F32);
    sw_engine_close_merge(&m);
    logits_of(&merged, two);
    for (int i = 0; i < B * T * V; i++) {
        assert_true(fabsf(one[i] - two[i]) < 1e-5f);
    }
    /* the checkpoint exports to the same bits */
    assert_int_equal(sw_ckpt_open(test_at("run"), &ckpt), SW_OK);
    assert_int_equal(sw_engine_open_merge_of(ckpt, test_at("base"), &m), SW_OK);
    assert_int_equal(sw_weights_export_merged(m.merge, test_at("merged2"), &dtype), SW_OK);
    sw_engine_close_merge(&m);
    sw_ckpt_close(ckpt);
    merged.base = "merged2";
    logits_of(&merged, one);
    assert_memory_equal(one, two, sizeof one);
}

static bool trains_head(const struct how *how)
{
    sw_engine *e = must(how);
    const bool trains = sw_weights_keeps(&e->weights, "score.weight");
    sw_close(e);
    return trains;
}

static int n_random;

static void count_random(void *ctx, enum sw_log_level level, const char *text)
{
    (void)ctx;
    n_random += level == SW_LOG_WARN && strstr(text, "score.weight") && strstr(text, "at random");
}

/* The base has no head. A new head causes a warning; a head from the adapter does not. */
static void a_head_of_the_adapter_is_not_called_new(void **state)
{
    struct sw_engine_options options = {
        .config = {.text = base_config, .sets = (const char *const[]){lora_set}, .n_sets = 1},
        .model = {.path = test_at("base"), .task = "classify", .labels = 3},
        .inputs.seq_len = T,
        .train.wanted = true,
    };
    float one[3 * 21], two[3 * 21];
    sw_engine *e = NULL;
    (void)state;
    sw_log_set_sink(count_random, NULL);
    n_random = 0;
    assert_int_equal(sw_initialize(&options, &e), SW_OK);
    assert_int_equal(n_random, 1);
    assert_int_equal(sw_get_weight(e, "score.weight", 0, 3 * 21, one), SW_OK);
    assert_int_equal(sw_export(e, test_at("brings"), SW_DTYPE_COUNT), SW_OK);
    sw_close(e);
    options.model.adapter = test_at("brings");
    options.config.n_sets = 0;
    options.seed = 77;
    assert_int_equal(sw_initialize(&options, &e), SW_OK);
    assert_int_equal(n_random, 1);
    assert_int_equal(sw_get_weight(e, "score.weight", 0, 3 * 21, two), SW_OK);
    assert_memory_equal(one, two, sizeof one);
    sw_close(e);
    sw_log_set_sink(NULL, NULL);
}

/* The head of a classifier is trained with adapters, and adapter_config.json names it. If a folder
 * holds no head, the base's head is used, also when merging. */
static void a_head_is_its_adapters_or_its_bases(void **state)
{
    static const char model[] =
        "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2ForSequenceClassification\"],"
        "\"vocab_size\":37,\"n_positions\":11,\"n_embd\":21,\"n_layer\":2,\"n_head\":3,"
        "\"n_inner\":29,\"num_labels\":3,\"pad_token_id\":0}";
    const struct how plain = {.base = "classes.json", .seed = 3};
    const struct how fresh = {.base = "classes", .sets = {lora_set}};
    const struct how headless = {.base = "classes", .adapter = "adapter"};
    const struct how headed = {.base = "classes", .adapter = "headed"};
    struct sw_engine_merge m = {0};
    char *text = NULL;
    size_t len = 0;
    (void)state;
    put_file(test_at("classes.json"), model);
    sw_engine *e = must(&plain);
    assert_int_equal(sw_export(e, test_at("classes"), SW_F32), SW_OK);
    sw_close(e);
    assert_true(trains_head(&fresh));
    assert_false(trains_head(&headless));
    e = must(&fresh);
    assert_int_equal(sw_export(e, test_at("headed"), SW_DTYPE_COUNT), SW_OK);
    sw_close(e);
    assert_int_equal(sw_file_read(test_at("headed/adapter_config.json"), &text, &len), SW_OK);
    const char *saved = strstr(text, "\"modules_to_save\"");
    assert_true(saved && strstr(saved, "\"score\""));
    sw_free(text);
    assert_true(trains_head(&headed));
    assert_int_equal(sw_engine_open_merge(test_at("adapter"), test_at("classes"), &m), SW_OK);
    for (int64_t i = 0; i < sw_merge_n(m.merge); i++) {
        const bool head = strcmp(sw_merge_spec(m.merge, i).name, "score.weight") == 0;
        assert_false(head && sw_merge_changes(m.merge, i));
    }
    sw_engine_close_merge(&m);
}

/* If one of a tied pair is saved, the embedding becomes its own parameter; the head stays the
 * base's. */
static void a_saved_one_of_a_pair_is_untied(void **state)
{
    static float table[V * 21], head[V * 21], base[V * 21], one[B * T * V], two[B * T * V];
    const struct how how = {.sets = {lora_set, "spillway.lora.modules_to_save=[\"wte\"]"}};
    const struct how plain = {0}, adapter = {.adapter = "untied"}, merged = {.base = "merged3"};
    enum sw_dtype dtype = SW_DTYPE_COUNT;
    struct sw_engine_merge m = {0};
    (void)state;
    sw_engine *e = must(&plain);
    assert_int_equal(sw_get_weight(e, "transformer.wte.weight", 0, V * 21, base), SW_OK);
    sw_close(e);
    e = must(&how);
    assert_int_equal(train(e, 2), SW_OK);
    assert_int_equal(sw_get_weight(e, "transformer.wte.weight", 0, V * 21, table), SW_OK);
    assert_int_equal(sw_get_weight(e, "lm_head.weight", 0, V * 21, head), SW_OK);
    assert_int_equal(sw_export(e, test_at("untied"), SW_DTYPE_COUNT), SW_OK);
    sw_close(e);
    assert_memory_equal(head, base, sizeof head);
    assert_memory_not_equal(table, base, sizeof head);
    logits_of(&adapter, one);
    assert_int_equal(sw_engine_open_merge(test_at("untied"), test_at("base"), &m), SW_OK);
    assert_int_equal(sw_weights_export_merged(m.merge, test_at("merged3"), &dtype), SW_OK);
    sw_engine_close_merge(&m);
    logits_of(&merged, two);
    for (int i = 0; i < B * T * V; i++) {
        assert_true(fabsf(one[i] - two[i]) < 1e-5f);
    }
}

/* ---- resuming ---- */

struct job {
    const struct how *how;
    const char *load, *save;
    int n_steps;
    float *weights;
};

static sw_status train_rank(void *ctx, sw_comm *comm)
{
    const struct job *job = ctx;
    sw_engine *e = NULL;
    sw_status st = open_engine(job->how, comm, &e);
    st = st < 0 || !job->load ? st : sw_load(e, job->load);
    st = st < 0 ? st : train(e, job->n_steps);
    st = st < 0 || !job->save ? st : sw_save(e, job->save, NULL);
    st = st < 0 ? st : test_owned_weights(e, job->weights, MAX_ELEMS);
    sw_close(e);
    return st;
}

static void run(const struct how *how, int ranks, const char *load, int n_steps, const char *save,
                float *weights)
{
    struct job job = {how, load, save, n_steps, weights};
    memset(weights, 0, MAX_ELEMS * sizeof *weights);
    if (sw_threads_run(ranks, 300, train_rank, &job) < 0) {
        fail_msg("%s", sw_error_message());
    }
}

static void a_checkpoint_goes_on_at_any_number_of_ranks(void **state)
{
    static float whole[MAX_ELEMS], parts[MAX_ELEMS];
    const struct how plain = {.sets = {lora_set}};
    const struct how three = {.sets = {lora_set, "zero_optimization.stage=3"}};
    (void)state;
    run(&plain, 1, NULL, 4, NULL, whole);
    run(&three, 3, NULL, 2, test_at("threes"), parts);
    run(&plain, 2, test_at("threes"), 1, test_at("twos"), parts);
    run(&three, 1, test_at("twos"), 1, NULL, parts);
    assert_memory_equal(whole, parts, sizeof whole);
}

/* DoRA and biases: trained with the same bits by ranks at stage 3, resumed, exported under PEFT's
 * names, continued, and merged. Untrained magnitudes change nothing but rounding. */
static void magnitudes_and_biases_are_trained(void **state)
{
    static const char *const sets[] = {
        "spillway.lora={\"r\": 3, \"use_dora\": true, \"lora_dropout\": 0.2, \"bias\": "
        "\"lora_only\", \"target_modules\": [\"c_attn\", \"mlp.c_proj\"]}",
        "spillway.lora={\"r\": 3, \"bias\": \"all\", \"target_modules\": [\"c_attn\"]}"};
    static const int n_tensors[] = {2 * 2 * (3 + 1), 2 * (2 + 6) + 1};
    static float whole[MAX_ELEMS], parts[MAX_ELEMS], one[B * T * V], two[B * T * V];
    enum sw_dtype dtype = SW_DTYPE_COUNT;
    struct sw_engine_merge m = {0};
    (void)state;
    for (int i = 0; i < 2; i++) {
        const struct how plain = {.sets = {sets[i]}}, bare = {0};
        const struct how three = {.sets = {sets[i], "zero_optimization.stage=3"}};
        const struct how adapter = {.adapter = i == 0 ? "dora" : "biases"};
        const struct how merged = {.base = i == 0 ? "of dora" : "of biases"};
        struct sw_safetensors *file = NULL;
        run(&plain, 1, NULL, 2, NULL, whole);
        run(&three, 3, NULL, 1, test_at(i == 0 ? "at dora" : "at biases"), parts);
        run(&plain, 2, test_at(i == 0 ? "at dora" : "at biases"), 1, NULL, parts);
        assert_memory_equal(whole, parts, sizeof whole);
        sw_engine *e = must(&plain);
        assert_int_equal(sw_export(e, test_at(adapter.adapter), SW_DTYPE_COUNT), SW_OK);
        logits_of(&bare, one);
        logits_of(&adapter, two);
        for (int k = 0; k < B * T * V; k++) {
            assert_true(fabsf(one[k] - two[k]) < 1e-5f);
        }
        assert_int_equal(train(e, 2), SW_OK);
        assert_int_equal(sw_export(e, test_at(adapter.adapter), SW_DTYPE_COUNT), SW_OK);
        sw_close(e);
        char path[300];
        snprintf(path, sizeof path, "%s/adapter_model.safetensors", test_at(adapter.adapter));
        assert_int_equal(sw_safetensors_open(path, &file), SW_OK);
        assert_int_equal(sw_safetensors_count(file), n_tensors[i]);
        assert_non_null(sw_safetensors_find(
            file, "base_model.model.transformer.h.0.attn.c_attn.base_layer.bias"));
        sw_safetensors_close(file);
        logits_of(&adapter, one);
        assert_memory_not_equal(one, two, sizeof one);
        assert_int_equal(sw_engine_open_merge(test_at(adapter.adapter), NULL, &m), SW_OK);
        assert_int_equal(sw_weights_export_merged(m.merge, test_at(merged.base), &dtype), SW_OK);
        sw_engine_close_merge(&m);
        logits_of(&merged, two);
        for (int k = 0; k < B * T * V; k++) {
            assert_true(fabsf(one[k] - two[k]) < 1e-5f);
        }
    }
}

static void another_base_is_refused_by_name(void **state)
{
    const struct how how = {.base = "other", .sets = {lora_set}};
    (void)state;
    sw_engine *e = must(&how);
    assert_int_equal(sw_load(e, test_at("run")), SW_E_CONFIG);
    assert_true(says("its adapters were trained on another base"));
    assert_true(says("first transformer.wte.weight (digest "));
    sw_close(e);
}

/* ---- refusals ---- */

/* Writes the adapter's configuration, with `more` before its members. */
static void write_adapter(const char *name, const char *more)
{
    char *text = NULL;
    size_t len = 0;
    struct sw_str out = {0};
    char command[400];
    snprintf(command, sizeof command, "rm -rf %s && cp -r %s %s", test_at(name), test_at("adapter"),
             test_at(name));
    assert_int_equal(system(command), 0);
    snprintf(command, sizeof command, "%s/adapter_config.json", test_at(name));
    assert_int_equal(sw_file_read(command, &text, &len), SW_OK);
    sw_str_printf(&out, "{%s, %s", more, strchr(text, '{') + 1);
    put_file(command, sw_str_text(&out));
    sw_str_fini(&out);
    sw_free(text);
}

static void what_is_not_built_is_named(void **state)
{
    static const char *const keys[][2] = {
        {"\"lora_bias\": true", "lora_bias true is not built"},
        {"\"init_lora_weights\": \"pissa\"", "init_lora_weights \"pissa\" is not built"},
        {"\"target_parameters\": [\"x\"]", "target_parameters [\"x\"] is not built"},
        {"\"trainable_token_indices\": [3]", "trainable_token_indices [3] is not built"},
        {"\"loftq_config\": {\"loftq_bits\": 4}", "loftq_config"},
        {"\"eva_config\": {\"rho\": 2.0}", "eva_config"},
        {"\"layer_replication\": [[0, 1]]", "layer_replication"},
    };
    const struct how how = {.adapter = "odd", .plan_only = true};
    sw_engine *e = NULL;
    (void)state;
    for (size_t i = 0; i < SW_LEN(keys); i++) {
        write_adapter("odd", keys[i][0]);
        assert_int_equal(open_engine(&how, NULL, &e), SW_E_UNSUP);
        assert_true(says("odd/adapter_config.json: ") && says(keys[i][1]));
    }
}

static void what_fits_no_model_is_named(void **state)
{
    static const char *const cases[][2] = {
        {"spillway.lora={\"target_modules\": [\"q_proj\"]}",
         "target_modules \"q_proj\" matches no"},
        {"spillway.lora={\"target_modules\": [\"wte\"]}",
         "matches transformer.wte, which cannot have"},
        {"spillway.lora={\"target_modules\": []}", "spillway.lora.target_modules is empty"},
        {"spillway.lora={\"r\": 0, \"target_modules\": \"all-linear\"}", "spillway.lora.r: 0 is"},
        {"spillway.lora={\"target_modules\": \"(c\"}", "is not a pattern of names: a ( without"},
        {"spillway.lora={\"target_modules\": \"all-linear\", \"rank_pattern\": {\"c_fc\": 0}}",
         "rank_pattern: \"c_fc\" wants a whole number"},
        {"spillway.lora={\"target_modules\": \"all-linear\", \"alpha_pattern\": [1]}",
         "alpha_pattern is an array"},
        {"spillway.lora={\"target_modules\": \"all-linear\", \"modules_to_save\": [\"score\"]}",
         "modules_to_save \"score\" matches no"},
        {"spillway.lora={\"target_modules\": [\"mlp.c_fc\"], \"modules_to_save\": [\"mlp\"]}",
         "in target_modules and in modules_to_save"},
    };
    sw_engine *e = NULL;
    (void)state;
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        const struct how how = {.sets = {cases[i][0]}, .plan_only = true};
        assert_int_equal(open_engine(&how, NULL, &e), SW_E_CONFIG);
        assert_true(says(cases[i][1]));
    }
    const struct how both = {.adapter = "adapter", .sets = {lora_set}, .plan_only = true};
    assert_int_equal(open_engine(&both, NULL, &e), SW_E_CONFIG);
    assert_true(says("and spillway.lora are both given"));
    const struct how none = {.adapter = "base", .plan_only = true};
    assert_int_equal(open_engine(&none, NULL, &e), SW_E_IO);
    assert_true(says("wanted adapter_config.json"));
}

/* The other bases have another width, fewer layers, or more layers. */
static void an_adapter_of_another_base_is_named(void **state)
{
    static const struct {
        const char *width, *layers, *needle;
    } bases[] = {
        {"24", "2", "c_attn.lora_A.weight has shape [3, 21], this model wants [3, 24]"},
        {"21", "1", "base_model.model.transformer.h.1."},
        {"21", "3", "tensor base_model.model.transformer.h.2.attn.c_attn.lora_A"},
    };
    sw_engine *e = NULL;
    (void)state;
    for (size_t i = 0; i < SW_LEN(bases); i++) {
        char model[300];
        snprintf(
            model, sizeof model,
            "{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"],\"vocab_size\":37,"
            "\"n_positions\":11,\"n_embd\":%s,\"n_layer\":%s,\"n_head\":3,\"n_inner\":29}",
            bases[i].width, bases[i].layers);
        put_file(test_at("odd.json"), model);
        const struct how how = {.base = "odd.json", .adapter = "adapter"};
        assert_int_equal(open_engine(&how, NULL, &e), SW_E_FORMAT);
        assert_true(says(bases[i].needle) && says("the adapter belongs to another base"));
    }
    struct sw_engine_merge m = {0};
    assert_int_equal(sw_engine_open_merge(test_at("adapter"), test_at("odd.json"), &m), SW_E_IO);
    assert_true(says("no base weights"));
}

/* For example, a quantized base. */
static void a_base_of_another_dtype_is_named(void **state)
{
    static const char header[] = "{\"transformer.wte.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":"
                                 "[37,21],\"data_offsets\":[0,777]}}";
    char file[8 + sizeof header - 1 + 777] = {0};
    struct sw_engine_merge m = {0};
    char *config;
    size_t len;
    (void)state;
    assert_int_equal(sw_mkdirs(test_at("fp8")), SW_OK);
    assert_int_equal(sw_file_read(test_at("base/config.json"), &config, &len), SW_OK);
    put_file(test_at("fp8/config.json"), config);
    sw_free(config);
    file[0] = (char)(sizeof header - 1);
    memcpy(file + 8, header, sizeof header - 1);
    assert_int_equal(sw_file_write_atomic(test_at("fp8/model.safetensors"), file, sizeof file),
                     SW_OK);
    assert_int_equal(sw_engine_open_merge(test_at("adapter"), test_at("fp8"), &m), SW_E_FORMAT);
    assert_true(says("tensor transformer.wte.weight has dtype F8_E4M3, wanted F32"));
}

/* Allocations fail at various points: each call returns a status, and nothing leaks. */
static void memory_may_run_out(void **state)
{
    struct sw_alloc_stats before, after;
    bool done = false;
    (void)state;
    sw_alloc_get_stats(&before);
    for (int64_t n = 1; !done; n += n < 60 ? 1 : n / 4) {
        struct sw_engine_merge m = {0};
        sw_alloc_fail_nth(n);
        const sw_status st = sw_engine_open_merge(test_at("adapter"), NULL, &m);
        sw_alloc_fail_nth(0);
        done = st == SW_OK;
        assert_true(done || st == SW_E_NOMEM || st == SW_E_CONFIG || st == SW_E_FORMAT);
        sw_engine_close_merge(&m);
    }
    sw_alloc_get_stats(&after);
    assert_int_equal(after.live_blocks, before.live_blocks);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(they_begin_as_nothing),
    cmocka_unit_test(a_checkpoint_holds_no_base),
    cmocka_unit_test(what_is_frozen_costs_its_working_copy),
    cmocka_unit_test(the_base_is_read_once_each_way),
    cmocka_unit_test(a_folder_gives_the_same_bits_again),
    cmocka_unit_test(exports_leave_nothing_in_memory),
    cmocka_unit_test(merged_it_is_the_same_model),
    cmocka_unit_test(a_head_is_its_adapters_or_its_bases),
    cmocka_unit_test(a_head_of_the_adapter_is_not_called_new),
    cmocka_unit_test(a_saved_one_of_a_pair_is_untied),
    cmocka_unit_test(a_checkpoint_goes_on_at_any_number_of_ranks),
    cmocka_unit_test(magnitudes_and_biases_are_trained),
    cmocka_unit_test(another_base_is_refused_by_name),
    cmocka_unit_test(what_is_not_built_is_named),
    cmocka_unit_test(what_fits_no_model_is_named),
    cmocka_unit_test(an_adapter_of_another_base_is_named),
    cmocka_unit_test(a_base_of_another_dtype_is_named),
    cmocka_unit_test(memory_may_run_out),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = set_up};
