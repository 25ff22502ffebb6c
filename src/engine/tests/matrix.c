// SPDX-License-Identifier: Apache-2.0
// The axes, and the training of one combination of their choices next to its reference.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/private.h"
#include "engine/tests/cover.h"
#include "engine/tests/matrix.h"
#include "engine/tests/owned.h"
#include "support/processes.h"
#include "support/scratch.h"
#include "support/test.h"

enum { B = 2, MAX_ELEMS = 1 << 16, TEXT = 9 /* tokens */ };

/* ---- the axes ---- */

// clang-format off
enum axis {
    FAMILY, PRECISION, MICRO_BATCHES, SIZES, DROPOUT, CLIPPING, TABLE, PACKING, FROZEN, OPTIMIZER,
    /* the axes above are the math; the rest is how it is run */
    /* the axes that do not change the math */
    STAGE, RANKS, RECOMPUTE, SCHEDULE, OVERLAP, THREADS, TRANSPORT,
    STATES, UPDATES, PARAMS, PIECES, ACTIVATIONS, TILES, DEVICE, CAPTURE, CHECKPOINT, GENERATION,
    N_AXES,
    N_MATH = STAGE
};
/* The first choice of each way to run is the reference's. */
/* COVERED families are combined with all else; the others have a few rows. */
enum { COVERED = 11, EXPERTS = 22, MAX_CHOICES = 25 };
static const struct {
    const char *name;
    int n;
    const char *choices[MAX_CHOICES];
} axes[N_AXES] = {
    [FAMILY]        = {"family", COVERED, {"gpt2", "llama", "mistral", "qwen2", "qwen3", "gemma2",
                                      "gpt_neox", "opt", "phi", "bloom", "gptj",
                                      "gemma", "gemma3_text", "phi3", "smollm3", "olmo2",
                                      "granite", "stablelm", "starcoder2", "cohere", "glm4",
                                      "falcon",
                                      "mixtral", "gpt_oss", "deepseek_v3"}},
    [PRECISION]     = {"precision", 3, {"fp32", "bf16", "fp16"}},
    [MICRO_BATCHES] = {"micro-batches", 3, {"8", "6", "1"}},
    [SIZES]         = {"sizes", 2, {"odd", "round"}},
    [DROPOUT]       = {"dropout", 2, {"0.1", "0"}},
    [CLIPPING]      = {"clipping", 2, {"0.5", "0"}},
    [TABLE]         = {"table", 2, {"tied", "untied"}},
    [PACKING]       = {"packing", 2, {"false", "true"}}, /* documents of 3 tokens, and padding */
    [FROZEN]        = {"frozen", 3, {"none", "some", "all but adapters"}},
    [OPTIMIZER]     = {"optimizer", 10, {"AdamW", "Lamb", "Adagrad", "Lion", "SparseAdam",
                                          "AdamW in bf16 by groups", "RMSprop", "AdamW8bit",
                                          "Adafactor", "Muon"}},
    [STAGE]         = {"stage", 4, {"0", "1", "2", "3"}},
    [RANKS]         = {"ranks", 6, {"1", "2", "3", "4", "6", "8"}},
    [RECOMPUTE]     = {"recompute", 4, {"nothing", "what is cheap", "blocks", "the first block"}},
    [SCHEDULE]      = {"schedule", 2, {"horizontal", "vertical"}},
    [OVERLAP]       = {"overlap", 2, {"false", "true"}},
    [THREADS]       = {"threads", 2, {"1", "2"}},
    [TRANSPORT]     = {"transport", 4, {"threads", "TCP", "library", "library, started by TCP"}},
    /* applies if the stage allows it, see below */
    [STATES]        = {"states on", 3, {"none", "cpu", "nvme"}},
    [UPDATES]       = {"updated on", 3, {"device", "host", "auto"}}, /* for states on the "cpu" */
    [PARAMS]        = {"parameters on", 3, {"none", "cpu", "nvme"}},
    [PIECES]        = {"update by", 2, {"1000000000", "450"}},
    [ACTIVATIONS]   = {"activations in the host", 2, {"false", "true"}},
    /* if states and parameters are offloaded */
    [TILES]         = {"tiles of", 2, {"null", "700"}},
    [DEVICE]        = {"device", 6,
                       {"cpu", "mock", "mock:early", "emu", "emu:early", "emu:direct"}},
    [CAPTURE]       = {"capture", 2, {"false", "true"}}, /* on the emulation */
    [CHECKPOINT]    = {"checkpoint", 2, {"none", "halfway"}}, /* a new engine resumes from it */
    [GENERATION]    = {"generation", 2, {"text", "none"}}, /* after the last step */
};
// clang-format on

/* Choices of OPTIMIZER. */
enum { HALF_MOMENTS = 5 /* and groups of parameters */, ADAFACTOR = 8, MUON };

/* Range of an axis's choices that are covered: the first one, and their number. */
struct choices {
    int first, n;
};

static struct choices choices_of(enum matrix_devices devices, int a)
{
    const bool cpu = devices == MATRIX_CPU;
    if (a == DEVICE) {
        static const struct choices of[] = {[MATRIX_CPU] = {0, 1},
                                            [MATRIX_MOCK] = {1, 2},
                                            [MATRIX_CPU_AND_MOCK] = {0, 3},
                                            [MATRIX_EMU] = {3, 3}};
        return of[devices];
    }
    if (devices == MATRIX_EMU && a == OPTIMIZER) { /* Muon runs on the CPU only */
        return (struct choices){0, MUON};
    }
    if (devices != MATRIX_EMU && a == TRANSPORT) { /* GPUs have a library */
        return (struct choices){0, 2};
    }
    if (devices != MATRIX_EMU && a == CAPTURE) { /* and graphs */
        return (struct choices){0, 1};
    }
    if (cpu && a == UPDATES) { /* the CPU has one memory */
        return (struct choices){0, 1};
    }
    if (cpu && a == CHECKPOINT) { /* other tests cover the CPU */
        return (struct choices){0, 1};
    }
    if (cpu && a == GENERATION) {
        return (struct choices){1, 1};
    }
    return (struct choices){0, axes[a].n};
}

struct row {
    int8_t at[N_AXES];           /* -1 = not chosen yet */
    int8_t pipe, tensor, expert; /* ranks along these axes; 0 = one. RANKS is the data axis */
    int8_t order;                /* of a pipeline's phases, an index of `orders` */
    bool late;                   /* what is offloaded is updated within the next forward */
};

static const char *const orders[] = {"1f1b", "gpipe", "zero-bubble"};

static const char *choice(const struct row *row, enum axis axis)
{
    return axes[axis].choices[row->at[axis]];
}

static bool is_second(const struct row *row, enum axis axis)
{
    return row->at[axis] == 1;
}

static void row_text(const struct row *row, char *text, size_t size)
{
    size_t at = 0;
    for (int a = 0; a < N_AXES && at < size; a++) {
        at += (size_t)snprintf(text + at, size - at, "%s%s %s", a > 0 ? ", " : "", axes[a].name,
                               choice(row, (enum axis)a));
    }
    if (at < size && (row->pipe > 0 || row->tensor > 0 || row->expert > 0)) {
        snprintf(text + at, size - at, ", pipe %d (%s), tensor %d, expert %d", row->pipe,
                 orders[row->order], row->tensor, row->expert);
    }
}

static int at_least_one(int n)
{
    return n > 1 ? n : 1;
}

/* ---- one training ---- */

struct result {
    double losses[MATRIX_STEPS], norms[MATRIX_STEPS];
    uint64_t weights, text;
};

struct job {
    const struct row *row;
    const char *device;
    int n_steps, port;
    float *weights; /* the whole model; each rank writes its own part */
    struct result *result;
};

static int vocab(const struct row *row)
{
    return is_second(row, SIZES) ? 64 : 37;
}

static int seq_len(const struct row *row)
{
    return is_second(row, SIZES) ? 8 : 7;
}

/* Path of the model's file; each model has its own. */
static void model_path(const struct row *row, char *path, size_t size)
{
    snprintf(path, size, "%s/%s.%s.%s.%s.json", test_folder(), choice(row, FAMILY),
             choice(row, SIZES), choice(row, DROPOUT), choice(row, TABLE));
}

/* Returns the options special to a family. Families with two kinds of layers get both. */
static const char *special_of(const struct row *row)
{
    static const char *const all[MAX_CHOICES] = {
        [1] = ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, "
              "\"original_max_position_embeddings\": 6}, \"mlp_bias\": true",
        [2] = ", \"sliding_window\": 3",
        [3] = ", \"use_sliding_window\": true, \"sliding_window\": 3, \"max_window_layers\": 1",
        [5] = ", \"sliding_window\": 3, \"attn_logit_softcapping\": 2, "
              "\"final_logit_softcapping\": 3, \"query_pre_attn_scalar\": 5",
        [6] = ", \"rotary_pct\": 0.6",
        [10] = ", \"rotary_dim\": 4",
        [8] = ", \"partial_rotary_factor\": 0.6",
        [COVERED + 1] = ", \"sliding_window\": 3, \"sliding_window_pattern\": 2, "
                        "\"query_pre_attn_scalar\": 5",
        [COVERED + 2] = ", \"sliding_window\": 4",
        [COVERED + 3] = ", \"no_rope_layers\": [1, 0], \"use_sliding_window\": true, "
                        "\"sliding_window\": 3",
        [COVERED + 5] = ", \"embedding_multiplier\": 3, \"residual_multiplier\": 0.4, "
                        "\"logits_scaling\": 2, \"attention_multiplier\": 0.5",
        [COVERED + 6] = ", \"qk_layernorm\": true, \"partial_rotary_factor\": 0.6",
        [COVERED + 8] = ", \"use_qk_norm\": true, \"logit_scale\": 0.5",
        [COVERED + 10] =
            ", \"new_decoder_architecture\": true, \"num_kv_heads\": 1, \"alibi\": true",
        [EXPERTS] = ", \"num_local_experts\": 4, \"output_router_logits\": true, "
                    "\"router_aux_loss_coef\": 0.1",
        [EXPERTS + 1] =
            ", \"num_local_experts\": 3, \"num_experts_per_tok\": 2, \"sliding_window\": 3",
        [EXPERTS + 2] =
            ", \"n_routed_experts\": 4, \"num_experts_per_tok\": 2, \"n_group\": 2, "
            "\"topk_group\": 1, \"first_k_dense_replace\": 1, \"moe_intermediate_size\": 11, "
            "\"q_lora_rank\": 9, \"kv_lora_rank\": 7, \"qk_nope_head_dim\": 6, "
            "\"qk_rope_head_dim\": 4, \"v_head_dim\": 5",
    };
    const char *special = all[row->at[FAMILY]];
    return special ? special : "";
}

/* Writes config.json; each family reads its own keys. With odd sizes, rotary heads have 7 columns
 * of which 4 rotate, or else 6 columns. */
static int write_model(const struct row *row)
{
    const bool round = is_second(row, SIZES);
    const char *p = choice(row, DROPOUT);
    const int width = round ? 32 : 21, heads = round ? 4 : 3, inner = round ? 64 : 29;
    char path[128], text[1536];
    model_path(row, path, sizeof path);
    snprintf(text, sizeof text,
             "{\"model_type\":\"%s\",\"vocab_size\":%d,\"n_positions\":11,"
             "\"max_position_embeddings\":11,\"seq_length\":11,\"n_embd\":%d,\"hidden_size\":%d,"
             "\"n_layer\":2,\"num_hidden_layers\":2,\"n_head\":%d,\"num_attention_heads\":%d,"
             "\"num_key_value_heads\":%d,\"head_dim\":%d,\"n_inner\":%d,\"intermediate_size\":%d,"
             "\"ffn_dim\":%d,\"embd_pdrop\":%s,\"attn_pdrop\":%s,\"resid_pdrop\":%s,"
             "\"attention_dropout\":%s,\"hidden_dropout\":%s,\"dropout\":%s,"
             "\"tie_word_embeddings\":%s%s}",
             choice(row, FAMILY), vocab(row), width, width, heads, heads, round ? 2 : 1,
             round ? 8 : 6, inner, inner, inner, p, p, p, p, p, p,
             is_second(row, TABLE) ? "false" : "true", special_of(row));
    return sw_file_write_atomic(path, text, strlen(text)) < 0;
}

/* Optimizer states can be on the host from stage 1 on, and on a disk at stage 3. Parameters can be
 * offloaded at stage 3. */
static int states_on(const struct row *row)
{
    const int stage = row->at[STAGE], states = row->at[STATES];
    return stage == 0 ? 0 : states == 2 && stage < 3 ? 1 : states;
}

/* LAMB, Adafactor and Muon are updated on the device. */
static const char *updated_on(const struct row *row)
{
    const bool may = !is_second(row, OPTIMIZER) && row->at[OPTIMIZER] < ADAFACTOR;
    return states_on(row) == 1 && may ? choice(row, UPDATES) : "auto";
}

static void write_offload(const struct row *row, char *text, size_t size)
{
    const int stage = row->at[STAGE], states = states_on(row);
    int params = row->at[PARAMS];
    params = stage < 3 ? 0 : params;
    char paths[2][96] = {"", ""};
    snprintf(paths[0], sizeof paths[0], ", \"nvme_path\": \"%s\"", test_folder());
    snprintf(text, size,
             "\"offload_optimizer\": {\"device\": \"%s\"%s}, \"offload_param\": "
             "{\"device\": \"%s\"%s}, ",
             axes[STATES].choices[states], paths[states < 2], axes[PARAMS].choices[params],
             paths[params < 2]);
    if (states == 0 && params == 0) {
        *text = 0;
    }
}

static bool may_tile(const struct row *row)
{
    return row->at[STAGE] == 3 && row->at[STATES] > 0 && row->at[PARAMS] > 0 &&
           row->at[OPTIMIZER] < ADAFACTOR;
}

/* Adapts all layers, and trains one table whole, which unties a tied pair. */
static void write_lora(const struct row *row, char *text, size_t size)
{
    static const char *const tables[MAX_CHOICES] = {
        [0] = "wte", [6] = "embed_in", [9] = "word_embeddings", [10] = "wte"};
    const char *table = tables[row->at[FAMILY]];
    snprintf(text, size,
             ", \"lora\": {\"r\": 3, \"lora_alpha\": 12, \"lora_dropout\": %s, "
             "\"target_modules\": \"all-linear\", \"rank_pattern\": {\".*[.]1[.].*\": 5}, "
             "\"modules_to_save\": [\"%s\"]}",
             choice(row, DROPOUT), table ? table : "embed_tokens");
    if (row->at[FROZEN] != 2) {
        *text = 0;
    }
}

/* Optimizer blocks, by OPTIMIZER. */
static const char *const optimizers[MAX_CHOICES] = {
    "\"type\": \"AdamW\", \"params\": {\"lr\": 0.01, \"weight_decay\": 0.1}",
    "\"type\": \"Lamb\", \"params\": {\"lr\": 0.01, \"weight_decay\": 0.1, \"min_coeff\": 0}",
    "\"type\": \"Adagrad\", \"params\": {\"lr\": 0.01, \"weight_decay\": 0.1, "
    "\"lr_decay\": 0.1, \"initial_accumulator_value\": 0.01}",
    "\"type\": \"Lion\", \"params\": {\"lr\": 0.001, \"weight_decay\": 0.1}",
    "\"type\": \"SparseAdam\", \"params\": {\"lr\": 0.01}",
    "\"type\": \"AdamW\", \"params\": {\"lr\": 0.01, \"weight_decay\": 0.1}",
    "\"type\": \"RMSprop\", \"params\": {\"lr\": 0.001, \"weight_decay\": 0.1, "
    "\"momentum\": 0.9}",
    "\"type\": \"AdamW8bit\", \"params\": {\"lr\": 0.01, \"weight_decay\": 0.1, "
    "\"min_8bit_size\": 300}",
    "\"type\": \"Adafactor\", \"params\": {\"weight_decay\": 0.1, \"beta1\": 0.9, "
    "\"eps\": [1e-10, 1e-3]}",
    "\"type\": \"Muon\", \"params\": {\"lr\": 0.01, \"weight_decay\": 0.1, "
    "\"adam_lr\": 0.003}"};
static const char half_moments[] = "\"moments\": \"bf16\", \"layer_decay\": 0.9, "
                                   "\"groups\": [{\"match\": \"*.weight\", \"lr_scale\": 0.5, "
                                   "\"betas\": [0.8, 0.95], \"weight_decay\": 0.02}], ";

/* On "emu:direct" a stream does not wait for other ranks beside others. */
static bool by_library(const struct row *row)
{
    return row->at[TRANSPORT] >= 2 && strcmp(choice(row, DEVICE), "emu:direct") != 0;
}

/* Norms of one block, and a matrix of the other one. */
static void write_frozen(const struct row *row, char *text, size_t size)
{
    static const char *const norms[MAX_CHOICES] = {
        [0] = "ln_2", [10] = "ln_1", [COVERED + 10] = "ln_*"};
    static const char *const matrices[MAX_CHOICES] = {
        [0] = "fc",          [6] = "h_to_4h", [7] = "fc",           [8] = "fc",
        [9] = "h_to_4h",     [10] = "fc",     [COVERED + 7] = "fc", [COVERED + 10] = "h_to_4h",
        [EXPERTS] = "q_proj"};
    const char *norm = norms[row->at[FAMILY]], *matrix = matrices[row->at[FAMILY]];
    text[0] = '\0';
    if (is_second(row, FROZEN)) {
        snprintf(text, size, "\"*.1.%s.weight\", \"*.0.*%s*\"", norm ? norm : "*norm*",
                 matrix ? matrix : "up_proj");
    }
}

static void write_config(const struct row *row, char *text, size_t size)
{
    char offload[384], lora[384], frozen[96];
    write_frozen(row, frozen, sizeof frozen);
    write_offload(row, offload, sizeof offload);
    write_lora(row, lora, sizeof lora);
    static const char *const precisions[] = {
        "", "\"bf16\": {\"enabled\": true}, ",
        "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 19, \"loss_scale_window\": 3}, "};
    snprintf(text, size,
             "{\"train_micro_batch_size_per_gpu\": %d, %s\"gradient_clipping\": %s, "
             "\"zero_optimization\": {%s\"sub_group_size\": %s, \"stage\": %s, "
             "\"stage3_param_persistence_threshold\": 30, "
             "\"overlap_comm\": %s, \"stage3_prefetch_bucket_size\": 3000, "
             "\"reduce_bucket_size\": 1000}, "
             "\"activation_checkpointing\": {\"cpu_checkpointing\": %s}, "
             "\"optimizer\": {%s}, "
             "\"spillway\": {%s\"micro_batches\": %s, \"threads\": %s, "
             "\"decay_1d\": false, "
             "\"recompute\": \"%s\", \"recompute_blocks\": %s, \"recompute_cheap\": %s, "
             "\"schedule\": \"%s\", "
             "\"loss_chunk\": 8, \"packing\": %s, "
             "\"tile_bytes\": %s, \"update\": \"%s\", \"comm\": \"%s\", \"capture\": %s, "
             "\"clipped_update\": \"%s\", "
             "\"mesh\": {\"pipe\": %d, \"tensor\": %d, \"expert\": %d}, "
             "\"frozen\": [%s]%s}}",
             B, precisions[row->at[PRECISION]], choice(row, CLIPPING), offload, choice(row, PIECES),
             choice(row, STAGE), choice(row, OVERLAP), choice(row, ACTIVATIONS),
             optimizers[row->at[OPTIMIZER]], row->at[OPTIMIZER] == HALF_MOMENTS ? half_moments : "",
             choice(row, MICRO_BATCHES), choice(row, THREADS),
             row->at[RECOMPUTE] >= 2 ? "blocks" : "none", row->at[RECOMPUTE] == 3 ? "1" : "null",
             row->at[RECOMPUTE] == 0 ? "false" : "true",
             row->pipe > 1 ? orders[row->order] : choice(row, SCHEDULE), choice(row, PACKING),
             may_tile(row) ? choice(row, TILES) : "null", updated_on(row),
             by_library(row) ? "library" : "host", choice(row, CAPTURE),
             row->late ? "next_forward" : "end", at_least_one(row->pipe), at_least_one(row->tensor),
             at_least_one(row->expert), frozen, lora);
}

/* Runs every second step in parts, if the schedule allows it. No schedule of a pipeline does. */
static sw_status one_step(sw_engine *e, const struct row *row, int64_t step,
                          struct sw_step_report *report)
{
    enum { MOST = 8, ELEMS = B * 8 };
    int32_t ids[MOST][ELEMS], labels[MOST][ELEMS], segments[ELEMS], positions[ELEMS];
    struct sw_tensor tensors[MOST][4];
    struct sw_batch batches[MOST];
    const bool parts = !is_second(row, SCHEDULE) && row->pipe <= 1 && step % 2 == 0;
    const int n = B * seq_len(row);
    const struct sw_shape shape = {2, {B, seq_len(row)}};
    int64_t j = 0;
    for (int i = 0; i < n; i++) {
        const int t = i % seq_len(row);
        segments[i] = t == seq_len(row) - 1 ? 0 : t / 3 + 1;
        positions[i] = t % 3;
    }
    for (int64_t k = e->data.rank; k < e->sizes.micro_batches; k += e->data.size, j++) {
        for (int i = 0; i < n; i++) {
            const uint64_t at = (uint64_t)((step * e->sizes.micro_batches + k) * n + i);
            ids[j][i] = (int32_t)(sw_philox_u64(9, 1, at) % (uint64_t)vocab(row));
            labels[j][i] =
                i % 5 == k % 5 ? -100 : (int32_t)(sw_philox_u64(9, 2, at) % (uint64_t)vocab(row));
        }
        tensors[j][0] =
            (struct sw_tensor){"input_ids", {.data = ids[j], .dtype = SW_I32, .shape = shape}};
        tensors[j][1] =
            (struct sw_tensor){"labels", {.data = labels[j], .dtype = SW_I32, .shape = shape}};
        tensors[j][2] =
            (struct sw_tensor){"segments", {.data = segments, .dtype = SW_I32, .shape = shape}};
        tensors[j][3] =
            (struct sw_tensor){"positions", {.data = positions, .dtype = SW_I32, .shape = shape}};
        batches[j] = (struct sw_batch){tensors[j], is_second(row, PACKING) ? 4 : 2};
        if (parts) {
            SW_TRY(sw_forward(e, &batches[j], NULL));
            SW_TRY(sw_backward(e));
        }
    }
    return parts ? sw_step(e, report) : sw_train_batch(e, batches, j, report);
}

/* Checks that a step's transfers between tiers match the plan, so that offloading really
 * happens. */
static sw_status check_transfers(sw_engine *e, struct sw_transfers *known, bool due)
{
    if (!due && e->plan->update.in_forward) {
        return SW_OK; /* the update of the step before was not due */
    }
    const struct sw_transfers planned = sw_plan_transfers(e->plan, e->sizes.rounds),
                              before = *known;
    sw_executor_transferred(e->executor, known);
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        const int64_t in = known->in[t] - before.in[t], out = known->out[t] - before.out[t];
        if (in != planned.in[t] || out != planned.out[t]) {
            return SW_FAIL(SW_E_ARG,
                           "%s: %lld bytes came and %lld went, planned were %lld and %lld",
                           sw_tier_name((enum sw_tier)t), (long long)in, (long long)out,
                           (long long)planned.in[t], (long long)planned.out[t]);
        }
    }
    return SW_OK;
}

static sw_status open_engine(const struct job *job, sw_comm *comm, sw_engine **out)
{
    char config[2048], model[128];
    write_config(job->row, config, sizeof config);
    model_path(job->row, model, sizeof model);
    const bool generates = !is_second(job->row, GENERATION);
    const struct sw_engine_options options = {
        .config.text = config,
        .model.path = model,
        .inputs.seq_len = seq_len(job->row),
        .run = {.comm = comm, .device = job->device, .verify = true},
        .seed = 5,
        .train.wanted = true,
        .generate = {.wanted = generates, .tokens = generates ? TEXT : 0},
    };
    return sw_initialize(&options, out);
}

/* A new engine resumes from a checkpoint of this one. */
static sw_status change_engines(const struct job *job, sw_comm *comm, sw_engine **e)
{
    char path[128];
    snprintf(path, sizeof path, "%s/checkpoint", test_folder());
    SW_TRY(sw_save(*e, path, NULL));
    sw_close(*e);
    *e = NULL;
    SW_TRY(open_engine(job, comm, e));
    return sw_load(*e, path);
}

static sw_status generate(sw_engine *e, const struct row *row, struct result *result)
{
    enum { PROMPT = 4, NEW = 3 };
    const int32_t prompt[PROMPT] = {3, 1, 4, 15};
    int32_t ids[NEW];
    float logits[NEW * 64];
    int64_t n;
    SW_TRY(sw_generate(e, prompt, PROMPT, NEW, NULL, ids, &n, logits));
    result->text = sw_hash(SW_HASH_INIT, ids, (size_t)n * sizeof *ids);
    result->text = sw_hash(result->text, logits, (size_t)n * (size_t)vocab(row) * sizeof *logits);
    return SW_OK;
}

static sw_status train(void *ctx, sw_comm *comm)
{
    struct job *job = ctx;
    struct result others = {0}; /* results of the other ranks, not used */
    struct result *result = sw_comm_rank(comm) == 0 ? job->result : &others;
    sw_engine *e = NULL;
    sw_status st = open_engine(job, comm, &e);
    for (int i = 0; st >= 0 && i < job->n_steps; i++) {
        struct sw_step_report report = {0};
        struct sw_transfers known;
        bool due = false;
        if (i == job->n_steps / 2 && is_second(job->row, CHECKPOINT)) {
            st = change_engines(job, comm, &e);
        }
        if (st >= 0) {
            due = sw_executor_is_due(e->executor);
            sw_executor_transferred(e->executor, &known);
            st = one_step(e, job->row, i, &report);
        }
        if (st >= 0) {
            st = check_transfers(e, &known, due);
        }
        result->losses[i] = report.loss;
        result->norms[i] = report.grad_norm;
    }
    if (st >= 0 && !is_second(job->row, GENERATION)) {
        st = generate(e, job->row, result);
    }
    st = st < 0 ? st : test_owned_weights(e, job->weights, MAX_ELEMS);
    sw_close(e);
    return st;
}

/* Each rank is a thread that connects to the others over TCP. */
static sw_status train_over_tcp(void *ctx, sw_comm *thread)
{
    const struct job *job = ctx;
    const struct sw_tcp_options options = {.rank = sw_comm_rank(thread),
                                           .size = sw_comm_size(thread),
                                           .host = "localhost",
                                           .port = job->port,
                                           .deadline_s = 600};
    struct sw_transport transport;
    sw_comm *comm = NULL;
    SW_TRY(sw_tcp_open(&options, &transport));
    SW_TRY(sw_comm_open(&transport, &comm));
    const sw_status st = train(ctx, comm);
    if (st < 0) {
        sw_comm_abort(comm, st);
    }
    sw_comm_close(comm, st < 0);
    return st;
}

static void remove_checkpoint(void)
{
    test_remove(test_at("checkpoint"));
}

static void run(const struct row *row, const char *device, int n_steps, struct result *result)
{
    static float weights[MAX_ELEMS];
    const bool tcp = row->at[TRANSPORT] % 2 == 1;
    struct job job = {row, device, n_steps, tcp ? test_free_port() : 0, weights, result};
    if (is_second(row, CHECKPOINT)) {
        remove_checkpoint();
    }
    memset(weights, 0, sizeof weights);
    memset(result, 0, sizeof *result);
    const int ranks = atoi(choice(row, RANKS)) * at_least_one(row->pipe) *
                      at_least_one(row->tensor) * at_least_one(row->expert);
    if (sw_threads_run(ranks, 600, tcp ? train_over_tcp : train, &job) < 0) {
        char text[768];
        row_text(row, text, sizeof text);
        fail_msg("%s: %s", text, sw_error_message());
    }
    result->weights = sw_hash(SW_HASH_INIT, weights, sizeof weights);
}

/* ---- a combination next to its reference ---- */

/* Compares bit patterns, so that overflowed norms compare, too. */
static bool same(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

static void assert_bits_of_one_rank(const struct row *row, int n_steps)
{
    static struct row reference;
    static struct result one, many;
    static const char *known_device;
    static int known_steps;
    /* references by device; for the mocks it is cpu:reference */
    static const char *const references[] = {"cpu", "cpu:reference", "cpu:reference",
                                             "emu", "emu",           "emu"};
    const char *device = references[row->at[DEVICE]];
    if (known_steps != n_steps || strcmp(known_device, device) != 0 ||
        reference.tensor != row->tensor || memcmp(reference.at, row->at, N_MATH) != 0) {
        reference = (struct row){.tensor = row->tensor};
        memcpy(reference.at, row->at, N_MATH);
        run(&reference, device, n_steps, &one);
        known_device = device;
        known_steps = n_steps;
    }
    run(row, choice(row, DEVICE), n_steps, &many);
    char text[768];
    row_text(row, text, sizeof text);
    for (int i = 0; i < n_steps; i++) {
        if (!isfinite(many.losses[i])) {
            fail_msg("%s: step %d: loss %g", text, i, many.losses[i]);
        }
        if (!same(one.losses[i], many.losses[i]) || !same(one.norms[i], many.norms[i])) {
            fail_msg("%s: step %d: loss %.17g and norm %.17g, by one rank %.17g and %.17g", text, i,
                     many.losses[i], many.norms[i], one.losses[i], one.norms[i]);
        }
    }
    if (one.weights != many.weights) {
        fail_msg("%s: the weights after %d steps are not those of one rank", text, n_steps);
    }
    if (!is_second(row, GENERATION) && one.text != many.text) {
        fail_msg("%s: what is generated after %d steps is not what one rank does", text, n_steps);
    }
}

void matrix_part(int64_t i, int64_t n)
{
    int64_t n_math = 1, n_rows = 1, done = 0;
    for (int a = 0; a < N_AXES; a++) {
        n_rows *= choices_of(MATRIX_CPU, a).n;
        n_math *= a < N_MATH ? choices_of(MATRIX_CPU, a).n : 1;
    }
    const int64_t n_ways = n_rows / n_math;
    for (int64_t at = n_rows * i / n; at < n_rows * (i + 1) / n; at++) {
        /* ways to run vary fastest, so that one reference serves many of them */
        struct row row = {.pipe = 0};
        int64_t math = at / n_ways, way = at % n_ways;
        for (int a = N_AXES - 1; a >= 0; a--) {
            const struct choices choices = choices_of(MATRIX_CPU, a);
            int64_t *rest = a < N_MATH ? &math : &way;
            row.at[a] = (int8_t)(choices.first + *rest % choices.n);
            *rest /= choices.n;
        }
        assert_bits_of_one_rank(&row, MATRIX_STEPS);
        done++;
    }
    print_message("%lld of %lld combinations\n", (long long)done, (long long)n_rows);
}

void matrix_on_disk(enum matrix_devices devices, int n_steps)
{
    struct row row = {.at = {[CLIPPING] = 1,
                             [STAGE] = 3,
                             [RECOMPUTE] = 1,
                             [STATES] = 2,
                             [PARAMS] = 2,
                             [PIECES] = 1,
                             [ACTIVATIONS] = 1,
                             [GENERATION] = 1}};
    for (int way = 0; way < 2 * 2 * 3 * 8 * 2; way++) {
        int rest = way;
        for (int a = 0; a < 5; a++) {
            static const enum axis varied[] = {RANKS, SCHEDULE, MICRO_BATCHES, OPTIMIZER,
                                               PRECISION};
            const int n = varied[a] == RANKS || varied[a] == PRECISION ? 2 : axes[varied[a]].n;
            row.at[varied[a]] = (int8_t)(rest % n + (varied[a] == PRECISION));
            rest /= n;
        }
        row.at[TILES] = (int8_t)(way / 2 % 2);
        row.at[DEVICE] = (int8_t)(devices == MATRIX_CPU ? 0 : 1 + way % 2);
        if (way % 7 == 0 || (row.at[PRECISION] == 2 && way % 5 == 0)) {
            assert_bits_of_one_rank(&row, n_steps);
        }
    }
}

void matrix_of_families(enum matrix_devices devices, int n_steps)
{
    const struct choices device = choices_of(devices, DEVICE);
    int family = COVERED;
    for (; family < EXPERTS; family++) {
        const int way = family - COVERED; /* each its own dtype, places, sizes and schedule */
        struct row row = {.at = {[FAMILY] = (int8_t)family,
                                 [PRECISION] = (int8_t)(way % 3),
                                 [MICRO_BATCHES] = (int8_t)(way % 2),
                                 [SIZES] = (int8_t)(way / 2 % 2),
                                 [TABLE] = (int8_t)(way / 3 % 2),
                                 [PACKING] = (int8_t)(way % 5 == 1),
                                 [FROZEN] = (int8_t)(2 * (way % 4 == 3)),
                                 [STAGE] = 3,
                                 [RANKS] = (int8_t)(1 + way % 2),
                                 [RECOMPUTE] = (int8_t)(way % 4),
                                 [SCHEDULE] = (int8_t)(way % 2),
                                 [OVERLAP] = 1,
                                 [STATES] = (int8_t)(1 + way % 2),
                                 [PARAMS] = (int8_t)(1 + way / 2 % 2),
                                 [PIECES] = 1,
                                 [ACTIVATIONS] = (int8_t)(way % 2),
                                 [TILES] = 1,
                                 [GENERATION] = (int8_t)(devices == MATRIX_CPU)}};
        row.at[DEVICE] = (int8_t)(device.first + way % device.n);
        assert_bits_of_one_rank(&row, n_steps);
    }
    print_message("%d families\n", family - COVERED);
}

void matrix_on_mesh(enum matrix_devices devices, int n_steps)
{
    const struct choices device = choices_of(devices, DEVICE);
    struct row row = {.at = {[SIZES] = 1, [RANKS] = 1, [CHECKPOINT] = 1}, .pipe = 2, .tensor = 2};
    for (int way = 0; way < 6; way++) { /* each placement that a stage allows, and each precision */
        row.at[FAMILY] = (int8_t)(way % 2);
        row.at[PRECISION] = (int8_t)(way % 3);
        row.at[MICRO_BATCHES] = (int8_t)(way / 2 % 2);
        row.at[STAGE] = (int8_t)(3 - way % 4);
        row.at[STATES] = row.at[PARAMS] = (int8_t)(way / 2);
        row.at[RECOMPUTE] = (int8_t)(2 * (way / 3));
        row.at[DEVICE] = (int8_t)(device.first + way % device.n);
        row.at[CAPTURE] = (int8_t)(devices == MATRIX_EMU);
        assert_bits_of_one_rank(&row, n_steps);
    }
}

/* Rows with a horizontal schedule have 2 or 3 ranks along the expert axis, with 1 along data or as
 * many as make 6: all have micro-batches. GPUs exchange by the library, also in stages. */
static void divide_experts(struct row *row, enum matrix_devices devices, int i)
{
    enum { OF_SIX = 1, OF_THREE_EXPERTS = EXPERTS + 1, BY_LIBRARY = 2 };
    if (row->at[MICRO_BATCHES] == OF_SIX && !is_second(row, SCHEDULE)) {
        row->expert = row->at[FAMILY] == OF_THREE_EXPERTS ? 3 : 2;
        row->at[RANKS] = (int8_t)(i / 2 % 2 * (4 - row->expert));
        if (devices == MATRIX_EMU) {
            row->at[TRANSPORT] = BY_LIBRARY;
            row->pipe = i % 4 == 0 ? 2 : 0;
        }
    }
}

void matrix_of_experts(enum matrix_devices devices, int n_rows, int n_steps)
{
    enum { N = 3, WAYS = 6 };
    const struct choices device = choices_of(devices, DEVICE);
    const int step = n_rows < N * WAYS ? N * WAYS / n_rows : 1;
    const bool has_muon = devices != MATRIX_EMU; /* it runs on the CPU only */
    for (int way = 0; way < N * WAYS; way += step) {
        const int family = way / WAYS, i = way % WAYS + family;
        struct row row = {.at = {[FAMILY] = (int8_t)(EXPERTS + family),
                                 [PRECISION] = (int8_t)(i % 3),
                                 [MICRO_BATCHES] = (int8_t)(1 + i % 2),
                                 [SIZES] = (int8_t)(i / 2 % 2),
                                 [TABLE] = 1,
                                 [FROZEN] = (int8_t)(i % 5 == 4),
                                 [OPTIMIZER] = (int8_t)(i % 4 == 3 && has_muon ? MUON : 0),
                                 [STAGE] = (int8_t)(3 - i % 4),
                                 [RANKS] = (int8_t)(i % 3),
                                 [RECOMPUTE] = (int8_t)(i / 2 % 4),
                                 [SCHEDULE] = (int8_t)(i / 3 % 2),
                                 [OVERLAP] = (int8_t)(i % 2),
                                 [STATES] = (int8_t)(i % 3),
                                 [PARAMS] = (int8_t)(i / 2 % 3),
                                 [PIECES] = (int8_t)(i % 2),
                                 [TILES] = (int8_t)(i / 3 % 2),
                                 [DEVICE] = (int8_t)(device.first + i % device.n),
                                 [CAPTURE] = devices == MATRIX_EMU,
                                 [CHECKPOINT] = (int8_t)(i % 2),
                                 [GENERATION] = (int8_t)(i % 3 == 1)}};
        divide_experts(&row, devices, i);
        assert_bits_of_one_rank(&row, n_steps);
    }
}

void matrix_by_library(int n_ranks, int n_steps)
{
    enum { LIBRARY = 2, OVER_TCP };
    struct row row = {.at = {[SIZES] = 1, [DEVICE] = 3, [GENERATION] = 1}};
    for (int n = 1; n < n_ranks; n++) { /* RANKS: 2, 3, .. */
        for (int stage = 0; stage <= 3; stage++) {
            row.at[STAGE] = (int8_t)stage;
            row.at[RANKS] = (int8_t)n;
            row.at[OVERLAP] = (int8_t)(stage % 2);
            row.at[MICRO_BATCHES] = (int8_t)(stage / 2);
            row.at[TRANSPORT] = (int8_t)(stage == 3 ? OVER_TCP : LIBRARY);
            row.at[DEVICE] = (int8_t)(3 + (stage + n) % 2); /* emu, emu:early */
            row.at[CAPTURE] = (int8_t)(stage != 1);
            assert_bits_of_one_rank(&row, n_steps);
        }
    }
    row.pipe = 2;
    row.at[RANKS] = 0;
    assert_bits_of_one_rank(&row, n_steps);
}

/* The tiers of a row are those that its stage allows. */
void matrix_captured(int n_rows, int n_steps)
{
    static const struct {
        int8_t stage, schedule, states, params, updates, activations, tiles, recompute, device;
        int8_t micro_batches, pipe, order, generation;
        bool late;
    } rows[] = {
        {.stage = 1, .pipe = 2, .device = 1, .generation = 1}, /* with slots for micro-batches */
        {.stage = 3, .schedule = 1, .states = 1, .params = 1, .activations = 1, .device = 1},
        {.stage = 3, .states = 2, .params = 2, .tiles = 1, .recompute = 2, .micro_batches = 1},
        {.stage = 0},
        {.stage = 2, .states = 1, .updates = 1, .recompute = 1, .device = 2},
        {.stage = 3, .schedule = 1, .states = 2, .params = 2, .tiles = 1, .device = 1},
        {.stage = 3, .states = 1, .params = 1, .updates = 1, .activations = 1, .recompute = 3},
        {.stage = 0, .schedule = 1, .micro_batches = 2, .recompute = 2},
        {.stage = 2, .schedule = 1, .states = 1, .micro_batches = 1, .device = 1},
        {.stage = 3, .states = 2, .params = 2, .late = true},
        {.stage = 0, .pipe = 2, .order = 1, .recompute = 2, .generation = 1},
        {.stage = 2, .pipe = 2, .order = 2, .states = 1, .device = 1, .generation = 1},
    };
    for (int i = 0; i < n_rows && i < (int)SW_LEN(rows); i++) {
        struct row row = {.at = {[SIZES] = 1,
                                 [PRECISION] = (int8_t)(i % 3),
                                 [OVERLAP] = (int8_t)(i % 2),
                                 [CHECKPOINT] = (int8_t)(i == 1),
                                 [STAGE] = rows[i].stage,
                                 [SCHEDULE] = rows[i].schedule,
                                 [STATES] = rows[i].states,
                                 [PARAMS] = rows[i].params,
                                 [UPDATES] = rows[i].updates,
                                 [ACTIVATIONS] = rows[i].activations,
                                 [TILES] = rows[i].tiles,
                                 [RECOMPUTE] = rows[i].recompute,
                                 [MICRO_BATCHES] = rows[i].micro_batches,
                                 [GENERATION] = rows[i].generation,
                                 [DEVICE] = (int8_t)(3 + rows[i].device),
                                 [CAPTURE] = 1},
                          .pipe = rows[i].pipe,
                          .order = rows[i].order,
                          .late = rows[i].late};
        assert_bits_of_one_rank(&row, n_steps);
    }
}

/* ---- covering arrays ---- */

/* Sanitizers are slow and look only for races and stray accesses, so they skip rows, as does the
 * build with nothing but a C compiler, which has the same graphs and plans. */
#ifdef __SANITIZE_THREAD__
enum { LEFT_OUT = 88 }; /* percent */
#elif defined TEST_SANITIZED || !SW_HAVE_DNNL
enum { LEFT_OUT = 65 };
#else
enum { LEFT_OUT = 0 };
#endif

struct covered {
    enum matrix_devices devices;
    int n_steps;
};

static void try_row(void *ctx, const struct cover_row *drawn)
{
    const struct covered *covered = ctx;
    struct row row = {.pipe = 0};
    for (int a = 0; a < N_AXES; a++) {
        row.at[a] = (int8_t)(choices_of(covered->devices, a).first + drawn->at[a]);
    }
    assert_bits_of_one_rank(&row, covered->n_steps);
}

void matrix_cover(int strength, enum matrix_devices devices, int n_steps)
{
    struct covered covered = {devices, n_steps};
    int counts[N_AXES];
    for (int a = 0; a < N_AXES; a++) {
        counts[a] = choices_of(devices, a).n;
    }
    const int n = cover(strength, N_AXES, counts, LEFT_OUT, try_row, &covered);
    print_message("%d choices at a time: %d combinations\n", strength, n);
}

/* ---- files ---- */

int matrix_set_up(void **state)
{
    (void)state;
    struct row row = {0};
    int bad = 0;
    for (int i = 0; i < 8 * MAX_CHOICES && axes[FAMILY].choices[i / 8]; i++) {
        row.at[FAMILY] = (int8_t)(i / 8);
        row.at[SIZES] = (int8_t)(i & 1);
        row.at[DROPOUT] = (int8_t)(i >> 1 & 1);
        row.at[TABLE] = (int8_t)(i >> 2 & 1);
        bad |= write_model(&row);
    }
    return bad;
}

void matrix_skip_without_emulation(void)
{
    struct sw_device *dev = NULL;
    if (sw_device_open("emu", 1, &dev) < 0) {
        print_message("skipped: %s\n", sw_error_message());
        skip();
    }
    sw_device_close(dev);
}
