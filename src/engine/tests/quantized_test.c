// SPDX-License-Identifier: Apache-2.0
// COST 2
// A quantized base. One that bitsandbytes wrote gives the logits and losses of its decoded values,
// and so does one that is quantized while it is read. Its weights stay quantized in memory, and
// backward keeps no decoded ones. Ranks, stages, tiers, schedules and interruptions change no bit;
// ranks of the tensor axis compute with the bits of the decoded values, too.
// Damage, other methods, and what does not work with it are refused by name.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/private.h"
#include "engine/tests/owned.h"
#include "hf/hf.h"
#include "support/scratch.h"
#include "support/test.h"

enum { B = 1, T = 8, V = 40, K = 3, MOST = 192, C = 16, F = 1100 /* C F is above one chunk */ };
enum { MOST_ELEMS = 1 << 17 /* C F, and those of WIDE */, MAX_WEIGHTS = 1 << 19 };

#define MODEL                                                                                      \
    "\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\"], \"vocab_size\": 40, "   \
    "\"hidden_size\": 16, \"intermediate_size\": 1100, \"num_hidden_layers\": 3, "                 \
    "\"num_attention_heads\": 2, \"max_position_embeddings\": 16, \"tie_word_embeddings\": false"
#define WIDE                                                                                       \
    ", \"vocab_size\": 40, \"n_embd\": 128, \"intermediate_size\": 256, \"n_inner\": 128, "        \
    "\"num_hidden_layers\": 1, \"n_layer\": 1, \"num_attention_heads\": 4, \"n_head\": 4, "        \
    "\"max_position_embeddings\": 16, \"ffn_hidden_size\": 128, \"embd_pdrop\": 0, "               \
    "\"attn_pdrop\": 0, \"resid_pdrop\": 0"
#define OF_NF4                                                                                     \
    ", \"quantization_config\": {\"quant_method\": \"bitsandbytes\", \"load_in_4bit\": true, "     \
    "\"bnb_4bit_quant_type\": \"nf4\"}"
#define OF_INT8                                                                                    \
    ", \"quantization_config\": {\"quant_method\": \"bitsandbytes\", \"load_in_8bit\": true}"
#define DORA "spillway.lora={\"r\": 2, \"target_modules\": \"all-linear\", \"use_dora\": true}"
#define LORA "spillway.lora={\"r\": 2, \"target_modules\": \"all-linear\"}"

/* ---- folders ---- */

static const char *at(const char *folder, const char *file)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    return test_at(path);
}

static void put_model(const char *folder, const char *model, const char *more)
{
    char text[1024];
    snprintf(text, sizeof text, "%s%s}", model, more);
    assert_int_equal(sw_mkdirs(test_at(folder)), SW_OK);
    assert_int_equal(sw_file_write_atomic(at(folder, "config.json"), text, strlen(text)), SW_OK);
}

static void put_config(const char *folder, const char *more)
{
    put_model(folder, "{" MODEL, more);
}

/* Tensors to write: decoded values, or the parts of quantized ones. */
struct written {
    struct sw_safetensor_spec specs[MOST];
    void *data[MOST];
    size_t bytes[MOST];
    char names[MOST][128];
    int n;
};

static void add(struct written *w, const char *name, const char *what, enum sw_dtype dtype,
                struct sw_shape shape, const void *data)
{
    const int i = w->n++;
    assert_true(w->n <= MOST);
    snprintf(w->names[i], sizeof w->names[i], "%s%s", name, what);
    w->bytes[i] = (size_t)sw_shape_elems(&shape) * sw_dtype_bytes(dtype);
    w->data[i] = malloc(w->bytes[i]);
    memcpy(w->data[i], data, w->bytes[i]);
    w->specs[i] = (struct sw_safetensor_spec){w->names[i], dtype, shape};
}

static void finish(struct written *w, const char *folder)
{
    struct sw_hf_folder_writer *writer = NULL;
    assert_int_equal(sw_hf_folder_create(test_at(folder), w->specs, w->n, 0, &writer), SW_OK);
    for (int i = 0; i < w->n; i++) {
        assert_int_equal(sw_hf_folder_write(writer, i, 0, w->data[i], w->bytes[i]), SW_OK);
        free(w->data[i]);
    }
    assert_int_equal(sw_hf_folder_commit(writer), SW_OK);
    sw_hf_folder_writer_close(writer);
    w->n = 0;
}

enum way { NF4, NF4_NESTED, INT8 };

static void add_nf4(struct written *w, const struct sw_safetensor *t, bool nested, float *back)
{
    static uint8_t packed[MOST_ELEMS / 2], codes[MOST_ELEMS / SW_NF4_BLOCK];
    static float scales[MOST_ELEMS / SW_NF4_BLOCK];
    const int64_t n = sw_shape_elems(&t->shape), n_blocks = sw_ceil_div(n, SW_NF4_BLOCK);
    const int64_t n_nested = sw_ceil_div(n_blocks, SW_NF4_NESTED);
    float above[MOST_ELEMS / SW_NF4_BLOCK / SW_NF4_NESTED], map[256], levels[16];
    char state[320], more[160] = "";
    double sum = 0;
    struct sw_quantized q = {.form = {SW_QUANTIZED_NF4, nested, SW_F32},
                             .codes = packed,
                             .scales = nested ? (void *)codes : scales,
                             .map = map,
                             .nested = above};
    assert_true(n <= MOST_ELEMS);
    sw_nf4_scales(t->data, n, scales);
    sw_nf4_encode(t->data, n, scales, packed);
    sw_nf4_map(map);
    for (int64_t i = 0; i < n_blocks; i++) {
        sum += (double)scales[i];
    }
    q.offset = (float)(sum / (double)n_blocks);
    sw_nf4_encode_scales(scales, n_blocks, map, q.offset, codes, above);
    sw_quantized_decode(&q, 0, n, SW_F32, back);
    for (int i = 0; i < 16; i++) {
        levels[i] = sw_nf4_level(i);
    }
    if (nested) {
        snprintf(more, sizeof more,
                 ", \"nested_blocksize\": 256, \"nested_dtype\": \"float32\", \"nested_offset\": "
                 "%.17g",
                 (double)q.offset);
        add(w, t->name, ".nested_absmax", SW_F32, SW_SHAPE(n_nested), above);
        add(w, t->name, ".nested_quant_map", SW_F32, SW_SHAPE(256), map);
    }
    snprintf(state, sizeof state,
             "{\"quant_type\": \"nf4\", \"blocksize\": 64, \"dtype\": \"float32\", \"shape\": "
             "[%lld, %lld]%s}",
             (long long)t->shape.dims[0], (long long)t->shape.dims[1], more);
    add(w, t->name, "", SW_U8, SW_SHAPE((n + 1) / 2, 1), packed);
    add(w, t->name, ".absmax", nested ? SW_U8 : SW_F32, SW_SHAPE(n_blocks), q.scales);
    add(w, t->name, ".quant_map", SW_F32, SW_SHAPE(16), levels);
    add(w, t->name, ".quant_state.bitsandbytes__nf4", SW_U8, SW_SHAPE((int64_t)strlen(state)),
        state);
}

static void add_int8(struct written *w, const struct sw_safetensor *t, float *back)
{
    static int8_t codes[MOST_ELEMS];
    const int64_t rows = t->shape.dims[0], columns = t->shape.dims[1];
    float peaks[F];
    char name[128];
    const float *x = t->data;
    for (int64_t r = 0; r < rows; r++) {
        peaks[r] = sw_quantized_peak(x + r * columns, columns);
        sw_int8_encode(x + r * columns, columns, peaks[r], codes + r * columns);
    }
    for (int64_t i = 0; i < rows * columns; i++) {
        back[i] = (float)codes[i] * peaks[i / columns] * 7.874015718698502e-3f;
    }
    snprintf(name, sizeof name, "%.*s", (int)(strlen(t->name) - strlen("weight")), t->name);
    add(w, t->name, "", SW_I8, t->shape, codes);
    add(w, name, "SCB", SW_F32, SW_SHAPE(rows), peaks);
}

/* Writes the folder "base" as bitsandbytes does, and its decoded values. */
static void write_folders(const char *quantized, enum way way)
{
    static struct written packed, plain;
    static float back[MOST_ELEMS];
    struct sw_hf_folder *folder = NULL;
    assert_int_equal(sw_hf_folder_open(test_at("base"), &folder), SW_OK);
    for (int64_t i = 0; i < sw_hf_folder_count(folder); i++) {
        const struct sw_safetensor *t = sw_hf_folder_at(folder, i);
        const bool is_linear = t->shape.rank == 2 && strstr(t->name, "layers.");
        assert_int_equal(t->dtype, SW_F32);
        if (!is_linear) {
            add(&packed, t->name, "", SW_F32, t->shape, t->data);
        } else if (way == INT8) {
            add_int8(&packed, t, back);
        } else {
            add_nf4(&packed, t, way == NF4_NESTED, back);
        }
        add(&plain, t->name, "", SW_F32, t->shape, is_linear ? (const void *)back : t->data);
    }
    sw_hf_folder_close(folder);
    put_config(quantized, way == INT8 ? OF_INT8 : OF_NF4);
    put_config("plain", "");
    finish(&packed, quantized);
    finish(&plain, "plain");
}

/* ---- engines ---- */

struct how {
    const char *model;
    const char *sets[8]; /* terminated by NULL */
    bool logits;
};

static sw_status open_engine(const struct how *how, sw_comm *comm, sw_engine **out)
{
    int n_sets = 0;
    while (n_sets < 8 && how->sets[n_sets]) {
        n_sets++;
    }
    const struct sw_engine_options options = {
        .config = {.text = "{\"train_micro_batch_size_per_gpu\": 1, \"gradient_clipping\": 1.0, "
                           "\"zero_optimization\": {\"stage3_param_persistence_threshold\": 0}, "
                           "\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 0.01}}, "
                           "\"spillway\": {\"threads\": 1, \"micro_batches\": 3}}",
                   .sets = how->sets,
                   .n_sets = n_sets},
        .model.path = test_at(how->model),
        .inputs.seq_len = T,
        .run.comm = comm,
        .train.wanted = !how->logits,
        .evaluate.logits = how->logits};
    return sw_initialize(&options, out);
}

static sw_engine *must(const struct how *how)
{
    sw_engine *e = NULL;
    if (open_engine(how, NULL, &e) < 0) {
        fail_msg("%s: %s", how->model, sw_error_message());
    }
    return e;
}

static void logits_of(const struct how *how, float *out)
{
    int32_t ids[T];
    struct how asked = *how;
    asked.logits = true;
    for (int t = 0; t < T; t++) {
        ids[t] = (7 * t + 3) % V;
    }
    const struct sw_tensor tensor = {"input_ids",
                                     {.dtype = SW_I32, .shape = SW_SHAPE(B, T), .data = ids}};
    sw_engine *e = must(&asked);
    assert_int_equal(sw_logits(e, &(struct sw_batch){&tensor, 1}, out), SW_OK);
    sw_close(e);
}

struct job {
    const struct how *how;
    const char *load, *save;
    int n_steps;
    float *weights;
    double loss;   /* of the last step */
    size_t matrix; /* bytes of the matrices that rank 0 has as integers */
};

static size_t matrix_bytes(const sw_engine *e)
{
    size_t bytes = 0;
    for (int32_t i = 0; i < e->weights.params.n; i++) {
        const struct sw_persistent *p = e->weights.params.items[i].work;
        const char *dot = strrchr(p->name, '.');
        const bool is_matrix = !sw_dtype_is_float(p->dtype) && strcmp(dot, ".weight") == 0;
        bytes += is_matrix ? p->bytes : 0;
    }
    return bytes;
}

static sw_status train_rank(void *ctx, sw_comm *comm)
{
    struct job *job = ctx;
    struct sw_step_report report = {0};
    sw_engine *e = NULL;
    sw_status st = open_engine(job->how, comm, &e);
    st = st < 0 || !job->load ? st : sw_load(e, job->load);
    for (int s = 0; s < job->n_steps && st >= 0; s++) {
        st = test_train_step(e, K, B, T, V, &report);
    }
    st = st < 0 || !job->save ? st : sw_save(e, job->save, NULL);
    st = st < 0 || !job->weights ? st : test_owned_weights(e, job->weights, MAX_WEIGHTS);
    if (sw_comm_rank(comm) == 0) {
        job->loss = report.loss;
        job->matrix = st < 0 ? 0 : matrix_bytes(e);
    }
    sw_close(e);
    return st;
}

static void run(struct job *job, int ranks)
{
    if (job->weights) {
        memset(job->weights, 0, MAX_WEIGHTS * sizeof *job->weights);
    }
    if (sw_threads_run(ranks, 300, train_rank, job) < 0) {
        fail_msg("%s", sw_error_message());
    }
}

/* Draws the weights of the model of "drawn", and writes the folder. */
static void draw(const char *folder)
{
    sw_engine *e = NULL;
    const struct sw_engine_options options = {.config.text =
                                                  "{\"train_micro_batch_size_per_gpu\": 1}",
                                              .model.path = at("drawn", "config.json"),
                                              .inputs.seq_len = T,
                                              .evaluate.logits = true};
    assert_int_equal(sw_initialize(&options, &e), SW_OK);
    assert_int_equal(sw_export(e, test_at(folder), SW_F32), SW_OK);
    sw_close(e);
}

static int make_base(void **state)
{
    (void)state;
    put_config("drawn", "");
    draw("base");
    return 0;
}

/* Writes a model with random weights; the same one with quantized linear layers, as bitsandbytes
 * does; and with what these decode to. */
static void write_wide(const char *model, enum way way)
{
    static struct written packed, plain;
    static float back[MOST_ELEMS];
    struct sw_hf_folder *folder = NULL;
    put_model("drawn", model, "");
    put_model("packed", model, way == INT8 ? OF_INT8 : OF_NF4);
    put_model("decoded", model, "");
    draw("wide");
    assert_int_equal(sw_hf_folder_open(test_at("wide"), &folder), SW_OK);
    for (int64_t i = 0; i < sw_hf_folder_count(folder); i++) {
        const struct sw_safetensor *t = sw_hf_folder_at(folder, i);
        const bool is_linear =
            t->shape.rank == 2 && (strstr(t->name, "layers.") || strstr(t->name, "h."));
        if (!is_linear) {
            add(&packed, t->name, "", SW_F32, t->shape, t->data);
        } else if (way == INT8) {
            add_int8(&packed, t, back);
        } else {
            add_nf4(&packed, t, true, back);
        }
        add(&plain, t->name, "", SW_F32, t->shape, is_linear ? (const void *)back : t->data);
    }
    sw_hf_folder_close(folder);
    finish(&packed, "packed");
    finish(&plain, "decoded");
}

/* ---- what it computes ---- */

static void a_quantized_base_is_that_of_its_decoded_values(void **state)
{
    static const char *const names[] = {"nf4", "nested", "int8"};
    static const char *const keys[] = {NULL, "spillway.quantize=nf4", "spillway.quantize=int8"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        const struct how quantized = {.model = names[i], .sets = {LORA}};
        const struct how plain = {.model = "plain", .sets = {LORA}};
        const struct how base = {.model = "base", .sets = {LORA, keys[i]}};
        const struct how *const ways[] = {&plain, &quantized, &base};
        float logits[3][T * V];
        double losses[3];
        write_folders(names[i], (enum way)i);
        for (int k = 0; k < (keys[i] ? 3 : 2); k++) {
            struct job job = {.how = ways[k], .n_steps = 2};
            logits_of(ways[k], logits[k]);
            run(&job, 1);
            losses[k] = job.loss;
            assert_memory_equal(logits[0], logits[k], sizeof logits[0]);
            assert_true(losses[k] == losses[0]);
        }
    }
}

/* Ranks of the tensor axis decode their parts: they have the bits of the same ranks on the decoded
 * values. Among the layers are packed ones, and rows of which each rank has one block. */
static void parts_are_those_of_decoded_values(void **state)
{
    static const struct {
        const char *text;
        int ranks;
    } models[] = {
        {"{\"model_type\": \"phi3\", \"hidden_size\": 256, \"num_key_value_heads\": 2, "
         "\"pad_token_id\": 0" WIDE,
         4},
        {"{\"model_type\": \"falcon\", \"hidden_size\": 128, \"num_kv_heads\": 2, "
         "\"new_decoder_architecture\": true" WIDE,
         2},
        {"{\"model_type\": \"gpt2\", \"n_positions\": 16" WIDE, 2},
    };
    static const char *const keys[] = {"spillway.quantize=nf4", "spillway.quantize=int8"};
    (void)state;
    for (size_t i = 0; i < SW_LEN(models) * SW_LEN(keys); i++) {
        const char *key = keys[i / SW_LEN(models)], *lora = i % 2 == 0 ? LORA : DORA;
        const char *cut = models[i % SW_LEN(models)].ranks == 4 ? "spillway.mesh={\"tensor\": 4}"
                                                                : "spillway.mesh={\"tensor\": 2}";
        const int ranks = models[i % SW_LEN(models)].ranks;
        const struct how quantized = {.model = "wide", .sets = {lora, key, cut}};
        const struct how three = {.model = "wide",
                                  .sets = {lora, key, cut, "zero_optimization.stage=3"}};
        const struct how plain = {.model = "decoded", .sets = {lora, cut}};
        const struct how packed = {.model = "packed", .sets = {lora, cut}};
        const struct how one = {.model = "wide",
                                .sets = {lora, key, "spillway.allow_other_math=true"}};
        struct job all = {.how = &quantized, .n_steps = 2, .save = test_at("cut")};
        struct job sharded = {.how = &three, .n_steps = 2}, decoded = {.how = &plain, .n_steps = 2};
        struct job taken = {.how = &packed, .n_steps = 2};
        struct job alone = {.how = &one, .n_steps = 2};
        struct job on = {.how = &one, .n_steps = 1, .load = test_at("cut")};
        write_wide(models[i % SW_LEN(models)].text, i < SW_LEN(models) ? NF4_NESTED : INT8);
        run(&all, ranks);
        run(&sharded, 2 * ranks);
        run(&decoded, ranks);
        run(&taken, ranks);
        run(&alone, 1);
        run(&on, 1);
        assert_true(all.loss == decoded.loss && all.loss == sharded.loss && all.loss == taken.loss);
        assert_true(fabs(all.loss - alone.loss) < 1e-5);
        assert_true(all.matrix > 0 && all.matrix < alone.matrix);
    }
}

/* ---- what it costs ---- */

static void weights_stay_quantized(void **state)
{
    const struct how plain = {.model = "base", .sets = {LORA, "bf16.enabled=true"}};
    const struct how packed = {.model = "base",
                               .sets = {LORA, "bf16.enabled=true", "spillway.quantize=nf4"}};
    (void)state;
    sw_engine *a = must(&plain), *b = must(&packed);
    const size_t saved =
        a->plan->persistent_bytes[SW_TIER_DEVICE] - b->plan->persistent_bytes[SW_TIER_DEVICE];
    const size_t linear = 3 * (size_t)(4 * C * C + 3 * C * F); /* elements */
    const size_t codes = linear / 2 + linear / SW_NF4_BLOCK;
    /* maps of codes, scales of scales, and the alignment of each */
    assert_true(saved <= 2 * linear - codes && saved + 3 * 7 * 1536 >= 2 * linear - codes);
    /* one decoded weight at a time, and none between forward and backward */
    assert_true(b->plan->tier_bytes[SW_TIER_DEVICE] <=
                a->plan->tier_bytes[SW_TIER_DEVICE] - saved + 2 * (2 * C * F));
    assert_int_equal(sw_engine_parameters(a), sw_engine_parameters(b));
    sw_close(a);
    sw_close(b);
}

/* ---- how it is run ---- */

static void where_it_runs_changes_no_bit(void **state)
{
    static float whole[MAX_WEIGHTS], parts[MAX_WEIGHTS];
    static const char off_host[] =
        "zero_optimization={\"stage\": 3, \"stage3_param_persistence_threshold\": 0, "
        "\"offload_param\": {\"device\": \"cpu\"}, \"offload_optimizer\": {\"device\": \"cpu\"}}";
    char off_disk[1024];
    (void)state;
    snprintf(off_disk, sizeof off_disk,
             "zero_optimization={\"stage\": 3, \"stage3_param_persistence_threshold\": 0, "
             "\"offload_param\": {\"device\": \"nvme\", \"nvme_path\": \"%s\"}, "
             "\"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": \"%s\"}}",
             test_folder(), test_folder());
    for (int i = 0; i < 3; i++) {
        const char *key = i < 2 ? "spillway.quantize=nf4" : "spillway.quantize=int8";
        const char *dtype = i == 0 ? "bf16.enabled=false" : "bf16.enabled=true";
        const struct how plain = {.model = "base", .sets = {LORA, key, dtype}};
        const struct {
            int ranks;
            const char *set, *more;
        } ways[] = {{2, "zero_optimization.stage=2", "spillway.recompute=blocks"},
                    {3, "zero_optimization.stage=3", "spillway.recompute_cheap=false"},
                    {1, off_host, "spillway.schedule=vertical"},
                    {2, off_disk, "spillway.recompute=blocks"}};
        struct job job = {.how = &plain, .n_steps = 2, .weights = whole};
        run(&job, 1);
        for (size_t k = 0; k < SW_LEN(ways); k++) {
            const struct how how = {.model = "base",
                                    .sets = {LORA, key, dtype, ways[k].set, ways[k].more}};
            struct job other = {.how = &how, .n_steps = 2, .weights = parts};
            run(&other, ways[k].ranks);
            assert_memory_equal(whole, parts, sizeof whole);
            assert_true(job.loss == other.loss);
        }
    }
}

static void a_checkpoint_goes_on(void **state)
{
    static float whole[MAX_WEIGHTS], parts[MAX_WEIGHTS];
    const struct how nf4 = {.model = "base", .sets = {LORA, "spillway.quantize=nf4"}};
    const struct how three = {.model = "base",
                              .sets = {LORA, "spillway.quantize=nf4", "zero_optimization.stage=3"}};
    const struct how other = {.model = "base", .sets = {LORA, "spillway.quantize=int8"}};
    struct job all = {.how = &nf4, .n_steps = 3, .weights = whole};
    struct job first = {.how = &three, .n_steps = 2, .save = test_at("saved")};
    struct job rest = {.how = &nf4, .n_steps = 1, .load = test_at("saved"), .weights = parts};
    (void)state;
    run(&all, 1);
    run(&first, 3);
    run(&rest, 2);
    assert_memory_equal(whole, parts, sizeof whole);
    sw_engine *e = must(&other);
    assert_int_equal(sw_load(e, test_at("saved")), SW_E_CONFIG);
    assert_non_null(strstr(sw_error_message(), "spillway.quantize"));
    sw_close(e);
}

/* ---- refusals ---- */

static void refused(const struct how *how, const char *text)
{
    sw_engine *e = NULL;
    assert_true(open_engine(how, NULL, &e) < 0);
    if (!strstr(sw_error_message(), text)) {
        fail_msg("wanted \"%s\" in: %s", text, sw_error_message());
    }
}

static void what_does_not_work_is_named(void **state)
{
    static const char *const methods[] = {"gptq", "awq", "fp8", "compressed-tensors"};
    const struct how packed = {.model = "nested", .sets = {LORA}};
    const struct how all = {.model = "base", .sets = {"spillway.quantize=nf4"}};
    const struct how twice = {.model = "nested", .sets = {LORA, "spillway.quantize=nf4"}};
    const struct how many = {
        .model = "wide", .sets = {LORA, "spillway.quantize=nf4", "spillway.mesh={\"tensor\": 4}"}};
    const struct how cut = {
        .model = "base", .sets = {LORA, "spillway.quantize=nf4", "spillway.mesh={\"tensor\": 2}"}};
    (void)state;
    write_folders("nested", NF4_NESTED);
    refused(&all, "spillway.quantize: only adapters are trained on quantized weights");
    refused(&twice, "leave spillway.quantize out");
    const struct how two = {
        .model = "wide", .sets = {LORA, "spillway.quantize=nf4", "spillway.mesh={\"tensor\": 2}"}};
    struct job job = {.how = &cut}, on_many = {.how = &many}, on_two = {.how = &two};
    assert_true(sw_threads_run(2, 300, train_rank, &job) < 0);
    assert_non_null(
        strstr(sw_error_message(),
               "layers.0.self_attn.q_proj.weight: its rows of 16 elements have parts of a block "
               "of NF4, which are not cut; wanted a multiple of 64"));
    write_wide("{\"model_type\": \"llama\", \"hidden_size\": 128" WIDE, INT8);
    assert_true(sw_threads_run(4, 300, train_rank, &on_many) < 0);
    assert_non_null(strstr(sw_error_message(),
                           "spillway.mesh.tensor 4: ranks would share the blocks of codes in a row "
                           "of model.layers.0.self_attn.o_proj.weight; wanted at most 2 ranks"));
    write_wide("{\"model_type\": \"llama\", \"vocab_size\": 40, \"hidden_size\": 128, "
               "\"intermediate_size\": 192, \"num_hidden_layers\": 1, \"num_attention_heads\": 4, "
               "\"max_position_embeddings\": 16",
               INT8);
    assert_true(sw_threads_run(2, 300, train_rank, &on_two) < 0);
    assert_non_null(strstr(sw_error_message(),
                           "spillway.mesh.tensor 2 does not divide the 3 blocks of codes in a row "
                           "of model.layers.0.mlp.down_proj.weight; sizes that do: 1, 3"));
    for (size_t i = 0; i < SW_LEN(methods); i++) {
        char more[128], wanted[96];
        snprintf(more, sizeof more, ", \"quantization_config\": {\"quant_method\": \"%s\"}",
                 methods[i]);
        snprintf(wanted, sizeof wanted, "quantized by \"%s\" are not built", methods[i]);
        put_config("nested", more);
        refused(&packed, wanted);
    }
    put_config("nested", ", \"quantization_config\": {\"load_in_4bit\": true}");
    refused(&packed, "\"bitsandbytes\" to fp4");
    put_config("nested", ""); /* weights tell themselves that they are quantized */
    sw_close(must(&packed));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_quantized_base_is_that_of_its_decoded_values),
    cmocka_unit_test(parts_are_those_of_decoded_values),
    cmocka_unit_test(weights_stay_quantized),
    cmocka_unit_test(where_it_runs_changes_no_bit),
    cmocka_unit_test(a_checkpoint_goes_on),
    cmocka_unit_test(what_does_not_work_is_named)};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = make_base};
