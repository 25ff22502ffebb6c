// SPDX-License-Identifier: Apache-2.0
// The draws: tables of families, tasks and optimizers, and their files. A draw takes as many random
// numbers as it needs, so a new entry changes all later variants.
#include "support/variants.h"

#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "support/chats.h"
#include "support/test.h"

static int64_t below(struct test_draw *d, int64_t n)
{
    return (int64_t)(sw_philox_u64(d->seed, d->variant, d->n++) % (uint64_t)n);
}

static const char *one_of(struct test_draw *d, int n, const char *const *words)
{
    return words[below(d, n)];
}
#define ONE_OF(d, ...)                                                                             \
    one_of((d), (int)SW_LEN(((const char *const[]){__VA_ARGS__})),                                 \
           (const char *const[]){__VA_ARGS__})

/* ---- data ---- */

enum { RECORDS = 60, IMAGE_BYTES = 3073 };

static void put(const char *folder, const char *name, const void *data, size_t len)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (sw_file_write_atomic(path, data, len) < 0) {
        fail_msg("%s", sw_error_message());
    }
}

/* RECORDS lines, `line` with $t, $u texts of the tokenizer's letters, $l a class, $n a number. */
static void put_records(const char *folder, const char *name, const char *head, const char *line)
{
    struct sw_str text = {0};
    struct test_draw d = {11, 0, 0};
    sw_str_puts(&text, head);
    for (int i = 0; i < RECORDS; i++) {
        for (const char *c = line; *c; c++) {
            if (*c != '$') {
                sw_str_putc(&text, *c);
                continue;
            }
            c++;
            if (*c == 'l' || *c == 'n') {
                sw_str_printf(&text, *c == 'l' ? "%d" : "0.%d", i % 3);
            } else {
                for (int64_t k = 0, n = 2 + below(&d, 4); k < n; k++) {
                    sw_str_printf(&text, "%s%c", k ? " " : "", 'a' + (int)below(&d, 8));
                }
            }
        }
        sw_str_putc(&text, '\n');
    }
    put(folder, name, text.ptr, text.len);
    sw_str_fini(&text);
}

static void put_text(const char *folder)
{
    struct sw_str text = {0};
    for (int i = 0; i < 100; i++) {
        sw_str_printf(&text, "line %d of a small text; ", i * i % 97);
    }
    put(folder, "text.txt", text.ptr, text.len);
    sw_str_fini(&text);
}

static void put_images(const char *folder)
{
    struct sw_str bytes = {0};
    for (int i = 0; i < RECORDS; i++) {
        for (int k = 0; k < IMAGE_BYTES; k++) {
            sw_str_putc(&bytes, (char)(k == 0 ? i % 3 : (i * 31 + k * 7) % 256));
        }
    }
    put(folder, "images.bin", bytes.ptr, bytes.len);
    sw_str_fini(&bytes);
}

void test_write_variant_files(const char *folder)
{
    static const char words[] = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\nb\nc\nd\ne\nf\ng\nh\n.\n";
    char path[256];
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, i == 0 ? "words" : "chars");
        assert_int_equal(sw_mkdirs(path), SW_OK);
    }
    put(folder, "words/vocab.txt", words, sizeof words - 1);
    test_write_chat_tokenizer(path, test_chatml);
    snprintf(path, sizeof path, "%s/chats.jsonl", folder);
    test_write_chats(path, RECORDS);
    put_text(folder);
    put_images(folder);
    put_records(folder, "texts.jsonl", "", "{\"text\": \"$t\"}");
    put_records(folder, "pairs.jsonl", "", "{\"sentence1\": \"$t\", \"sentence2\": \"$t\"}");
    put_records(folder, "targets.jsonl", "", "{\"source\": \"$t\", \"target\": \"$t\"}");
    put_records(folder, "classes.csv", "text,label\n", "$t,$l");
    put_records(folder, "labels.jsonl", "", "{\"text\": \"$t\", \"labels\": [0, $n, 1]}");
    put_records(folder, "numbers.csv", "text,label\n", "$t,$n");
    put_records(folder, "tags.jsonl", "", "{\"tokens\": [\"a\", \"b\"], \"ner_tags\": [$l, 0]}");
    put_records(folder, "answers.jsonl", "",
                "{\"question\": \"$t\", \"context\": \"b $t\", \"answers\": {\"text\": [\"b\"], "
                "\"answer_start\": [0]}}");
}

/* ---- models ---- */

/* $W width, $H heads, $K heads of keys, $D width of a head, $L layers, $I inner width, $V
 * vocabulary, $P a dropout, $A an activation, $B true or false. */
#define SIZES                                                                                      \
    "\"hidden_size\": $W, \"num_hidden_layers\": $L, \"num_attention_heads\": $H, "                \
    "\"intermediate_size\": $I, \"vocab_size\": $V, \"max_position_embeddings\": 96"
#define ENCODER SIZES ", \"hidden_dropout_prob\": $P, \"attention_probs_dropout_prob\": $P"
#define DECODER SIZES ", \"tie_word_embeddings\": $B, \"num_key_value_heads\": $K"

enum takes { TEXT = 1, RECORDS_OF_TEXT = 2, IMAGES = 4, TARGETS = 8, CLASSES = 16, PAIRS = 32 };

static const struct {
    const char *config;
    unsigned takes;
} families[] = {
    {"\"model_type\": \"gpt2\", \"n_positions\": 96, \"n_embd\": $W, \"n_head\": $H, \"n_layer\": "
     "$L, \"n_inner\": $I, \"vocab_size\": $V, \"embd_pdrop\": $P, \"attn_pdrop\": $P, "
     "\"resid_pdrop\": $P, \"activation_function\": \"$A\", \"tie_word_embeddings\": $B",
     TEXT},
    {"\"model_type\": \"llama\", " DECODER, TEXT},
    {"\"model_type\": \"mistral\", \"sliding_window\": 5, " DECODER, TEXT},
    {"\"model_type\": \"qwen2\", " DECODER, TEXT},
    {"\"model_type\": \"qwen3\", \"head_dim\": $D, " DECODER, TEXT},
    {"\"model_type\": \"gemma2\", \"head_dim\": $D, \"sliding_window\": 5, " DECODER, TEXT},
    {"\"model_type\": \"gpt_neox\", \"rotary_pct\": 1.0, \"use_parallel_residual\": $B, " SIZES,
     TEXT},
    {"\"model_type\": \"opt\", \"ffn_dim\": $I, \"word_embed_proj_dim\": $W, \"dropout\": $P, "
     "\"do_layer_norm_before\": $B, " SIZES,
     TEXT},
    {"\"model_type\": \"phi\", \"partial_rotary_factor\": 1.0, " SIZES, TEXT},
    {"\"model_type\": \"bloom\", \"hidden_size\": $W, \"n_head\": $H, \"n_layer\": $L, "
     "\"vocab_size\": $V, \"hidden_dropout\": $P",
     TEXT},
    {"\"model_type\": \"gptj\", \"n_positions\": 96, \"n_embd\": $W, \"n_head\": $H, \"n_layer\": "
     "$L, \"n_inner\": $I, \"vocab_size\": $V, \"rotary_dim\": 2, \"resid_pdrop\": $P",
     TEXT},
    {"\"model_type\": \"gemma\", \"head_dim\": $D, " DECODER, TEXT},
    {"\"model_type\": \"gemma3_text\", \"head_dim\": $D, \"sliding_window\": 5, "
     "\"sliding_window_pattern\": 2, " DECODER,
     TEXT},
    {"\"model_type\": \"phi3\", \"resid_pdrop\": $P, " DECODER, TEXT},
    {"\"model_type\": \"smollm3\", \"no_rope_layer_interval\": 2, " DECODER, TEXT},
    {"\"model_type\": \"olmo2\", " DECODER, TEXT},
    {"\"model_type\": \"granite\", \"residual_multiplier\": 0.5, \"logits_scaling\": 2.0, " DECODER,
     TEXT},
    {"\"model_type\": \"stablelm\", \"qk_layernorm\": $B, \"use_parallel_residual\": $B, "
     "\"hidden_dropout\": $P, \"partial_rotary_factor\": 1.0, " DECODER,
     TEXT},
    {"\"model_type\": \"starcoder2\", \"residual_dropout\": $P, " DECODER, TEXT},
    {"\"model_type\": \"falcon\", \"new_decoder_architecture\": $B, \"alibi\": $B, "
     "\"hidden_dropout\": $P, \"num_kv_heads\": $K, \"ffn_hidden_size\": $I, " SIZES,
     TEXT},
    {"\"model_type\": \"cohere\", \"use_qk_norm\": $B, " DECODER, TEXT},
    {"\"model_type\": \"glm4\", \"head_dim\": $D, \"partial_rotary_factor\": 1.0, " DECODER, TEXT},
    {"\"model_type\": \"bert\", " ENCODER, RECORDS_OF_TEXT | PAIRS},
    {"\"model_type\": \"roberta\", \"pad_token_id\": 0, \"tie_word_embeddings\": $B, " ENCODER,
     RECORDS_OF_TEXT},
    {"\"model_type\": \"electra\", \"embedding_size\": 12, " ENCODER, RECORDS_OF_TEXT},
    {"\"model_type\": \"albert\", \"embedding_size\": 12, " ENCODER, RECORDS_OF_TEXT},
    {"\"model_type\": \"mpnet\", \"relative_attention_num_buckets\": 8, " ENCODER, RECORDS_OF_TEXT},
    {"\"model_type\": \"distilbert\", \"vocab_size\": $V, \"dim\": $W, \"n_layers\": $L, "
     "\"n_heads\": $H, \"hidden_dim\": $I, \"max_position_embeddings\": 96, \"dropout\": $P",
     RECORDS_OF_TEXT},
    {"\"model_type\": \"deberta-v2\", \"relative_attention\": true, \"pos_att_type\": "
     "\"p2c|c2p\", \"share_att_key\": $B, \"position_buckets\": 6, " ENCODER,
     RECORDS_OF_TEXT},
    {"\"model_type\": \"bart\", \"vocab_size\": $V, \"d_model\": $W, \"encoder_layers\": $L, "
     "\"decoder_layers\": 2, \"encoder_attention_heads\": $H, \"decoder_attention_heads\": $H, "
     "\"encoder_ffn_dim\": $I, \"decoder_ffn_dim\": 20, \"max_position_embeddings\": 96, "
     "\"dropout\": $P, \"pad_token_id\": 0, \"eos_token_id\": 3, \"decoder_start_token_id\": 2",
     TARGETS},
    {"\"model_type\": \"pegasus\", \"vocab_size\": $V, \"d_model\": $W, "
     "\"encoder_layers\": $L, \"decoder_layers\": 2, \"encoder_attention_heads\": $H, "
     "\"decoder_attention_heads\": $H, "
     "\"encoder_ffn_dim\": $I, \"decoder_ffn_dim\": 20, \"max_position_embeddings\": 96, "
     "\"dropout\": $P, \"pad_token_id\": 0, \"eos_token_id\": 3, \"decoder_start_token_id\": 0",
     TARGETS},
    {"\"model_type\": \"t5\", \"vocab_size\": $V, \"d_model\": $W, \"d_kv\": $D, \"d_ff\": $I, "
     "\"num_layers\": $L, \"num_heads\": $H, \"relative_attention_num_buckets\": 8, "
     "\"dropout_rate\": $P, \"tie_word_embeddings\": $B, \"pad_token_id\": 0, \"eos_token_id\": 3, "
     "\"decoder_start_token_id\": 0",
     TARGETS},
    {"\"model_type\": \"vit\", \"image_size\": 32, \"patch_size\": 16, " ENCODER, IMAGES},
    {"\"model_type\": \"deit\", \"image_size\": 32, \"patch_size\": 16, " ENCODER, IMAGES},
    {"\"model_type\": \"dinov2\", \"image_size\": 32, \"patch_size\": 16, \"mlp_ratio\": 2, "
     "\"use_swiglu_ffn\": $B, \"hidden_dropout_prob\": $P, \"hidden_size\": $W, "
     "\"num_hidden_layers\": $L, \"num_attention_heads\": $H",
     IMAGES},
    {"\"model_type\": \"cifar_net\"", IMAGES},
    {"\"model_type\": \"bi_lstm_classifier\", \"vocab\": $V, \"width\": $W, \"hidden\": $I",
     CLASSES},
};

enum reads { READS_NOTHING, READS_WORDS, READS_CHARS };

static const struct {
    const char *task, *file; /* task NULL: causal */
    enum reads reads;
    int64_t tokens; /* of a row at least */
    unsigned takes; /* by families that take any of these */
    const char *flags;
} tasks[] = {
    {NULL, "text.txt", READS_NOTHING, 2, TEXT, ""},
    {NULL, "text.txt", READS_NOTHING, 2, TEXT, ""},
    {NULL, "chats.jsonl", READS_CHARS, 80, TEXT, ""},
    {"classify", "classes.csv", READS_WORDS, 16, TEXT | RECORDS_OF_TEXT | CLASSES, ""},
    {"masked", "texts.jsonl", READS_WORDS, 16, RECORDS_OF_TEXT, ""},
    {"pretrain", "pairs.jsonl", READS_WORDS, 16, PAIRS, ""},
    {"multi-label", "labels.jsonl", READS_WORDS, 16, RECORDS_OF_TEXT, ""},
    {"regression", "numbers.csv", READS_WORDS, 16, RECORDS_OF_TEXT, ""},
    {"tokens", "tags.jsonl", READS_WORDS, 16, RECORDS_OF_TEXT, "--labels 3"},
    {"answers", "answers.jsonl", READS_WORDS, 16, RECORDS_OF_TEXT, ""},
    {"seq2seq", "targets.jsonl", READS_WORDS, 16, TARGETS, "--target-len 10"},
    {"denoise", "texts.jsonl", READS_CHARS, 16, TARGETS, ""},
    {"images", "images.bin", READS_NOTHING, 0, IMAGES, "--labels 10"},
};

static void draw_model(struct test_draw *d, const char *template_text, int64_t vocab, char *out,
                       size_t cap)
{
    const int64_t heads = 1 + below(d, 3), head = 2 * (1 + below(d, 6));
    const char *dropout = ONE_OF(d, "0", "0", "0.1");
    struct sw_str text = {0};
    sw_str_putc(&text, '{');
    for (const char *c = template_text; *c; c++) {
        if (*c != '$') {
            sw_str_putc(&text, *c);
            continue;
        }
        c++;
        const int64_t number = *c == 'W'   ? heads * head
                               : *c == 'H' ? heads
                               : *c == 'K' ? (below(d, 2) ? heads : 1)
                               : *c == 'D' ? head
                               : *c == 'L' ? 1 + below(d, 3)
                               : *c == 'V' ? vocab
                                           : 1 + below(d, 60);
        if (strchr("WHKDLIV", *c)) {
            sw_str_printf(&text, "%lld", (long long)number);
        } else {
            sw_str_puts(&text, *c == 'P'   ? dropout
                               : *c == 'B' ? ONE_OF(d, "true", "false")
                                           : ONE_OF(d, "gelu_new", "relu", "gelu", "relu2", "mish",
                                                    "hardswish"));
        }
    }
    sw_str_putc(&text, '}');
    snprintf(out, cap, "%s", sw_str_text(&text));
    sw_str_fini(&text);
}

/* ---- what decides numbers ---- */

static void draw_math(struct test_draw *d, struct test_variant *v)
{
    static const char *const optimizers[] = {
        "\"AdamW\", \"params\": {\"lr\": 0.01, \"weight_decay\": 0.1}",
        "\"Adam\", \"params\": {\"lr\": 0.01, \"adam_w_mode\": false, \"weight_decay\": 0.1}",
        "\"SGD\", \"params\": {\"lr\": 0.1, \"momentum\": 0.9}",
        "\"SGD\", \"params\": {\"lr\": 0.1}",
        "\"Lamb\", \"params\": {\"lr\": 0.01, \"weight_decay\": 0.1}",
        "\"Lion\", \"params\": {\"lr\": 0.001}",
        "\"Adagrad\", \"params\": {\"lr\": 0.01}",
        "\"RMSprop\", \"params\": {\"lr\": 0.001}",
        "\"Adafactor\", \"params\": {\"lr\": 0.01, \"relative_step\": false}",
        "\"Muon\", \"params\": {\"lr\": 0.01}",
        "\"AdamW8bit\", \"params\": {\"lr\": 0.01, \"min_8bit_size\": 0}",
    };
    snprintf(v->math, sizeof v->math,
             "\"train_micro_batch_size_per_gpu\": %lld, \"optimizer\": {\"type\": %s}, "
             "\"gradient_clipping\": %s%s%s",
             (long long)(1 + below(d, 3)), one_of(d, SW_LEN(optimizers), optimizers),
             ONE_OF(d, "0", "0.5"),
             ONE_OF(d, "", ", \"bf16\": {\"enabled\": true}",
                    ", \"fp16\": {\"enabled\": true, \"initial_scale_power\": 18, "
                    "\"loss_scale_window\": 2}"),
             ONE_OF(d, "", "", ", \"communication_data_type\": \"bf16\"",
                    ", \"communication_data_type\": \"fp32\""));
}

static void draw_own_math(struct test_draw *d, bool gpt2, struct test_variant *v)
{
    const bool adapts = below(d, 5) == 0,
               keeps_means = strstr(v->math, "\"Adam\"") || strstr(v->math, "\"AdamW\"");
    const char *moments =
        keeps_means ? ONE_OF(d, "", "", ", \"moments\": \"bf16\"", ", \"moments\": \"8bit\"") : "";
    const char *kernels =
        strcmp(v->device, "cpu") == 0 ? ONE_OF(d, "", "", ", \"kernels\": \"reference\"") : "";
    snprintf(
        v->own_math, sizeof v->own_math,
        "\"seed\": 7, \"device\": \"%s\"%s, \"micro_batches\": %lld, \"loss\": \"%s\", "
        "\"decay_1d\": %s, \"loss_chunk\": %s%s%s%s",
        v->device, kernels, (long long)(1 + below(d, 5)),
        ONE_OF(d, "microbatch", "microbatch", "tokens"), ONE_OF(d, "true", "false"),
        ONE_OF(d, "0", "0", "8", "100"), moments,
        adapts ? ", \"lora\": {\"r\": 2, \"target_modules\": \"all-linear\", \"lora_dropout\": "
               : "",
        adapts ? ONE_OF(d, "0}", "0.1}")
        : gpt2
            ? ONE_OF(d, "", ", \"frozen\": [\"*.h.0.*\"]", ", \"frozen\": [\"*wte*\", \"*wpe*\"]")
            : ONE_OF(d, "", "", ", \"frozen\": [\"*.bias\"]"));
}

void test_draw_variant(struct test_draw *d, const char *folder, struct test_variant *out)
{
    static const int64_t vocabs[] = {31, 37, 64, 257, 1031, 5003};
    const size_t f = (size_t)below(d, below(d, 4) == 0 ? 1 : SW_LEN(families));
    size_t t = (size_t)below(d, SW_LEN(tasks));
    while (!(tasks[t].takes & families[f].takes)) {
        t = (t + 1) % SW_LEN(tasks);
    }
    const bool writes = tasks[t].task ? strcmp(tasks[t].task, "seq2seq") == 0 : true;
    const int64_t vocab = vocabs[below(d, SW_LEN(vocabs))];
    const int64_t least = tasks[t].reads == READS_CHARS ? 199 : 14; /* with sentinels */
    out->device = ONE_OF(d, "cpu", "cpu", "cpu", "cpu", "mock", "mock:early", "emu");
    draw_model(d, families[f].config, tasks[t].reads && vocab < least ? least : vocab, out->model,
               sizeof out->model);
    draw_math(d, out);
    draw_own_math(d, f == 0, out);
    struct sw_str flags = {0};
    sw_str_printf(&flags, "--data %s/%s %s", folder, tasks[t].file, tasks[t].flags);
    if (tasks[t].task) {
        sw_str_printf(&flags, " --task %s", tasks[t].task);
    }
    if (families[f].takes != IMAGES) {
        sw_str_printf(&flags, " --seq-len %lld", (long long)(tasks[t].tokens + below(d, 11)));
    }
    if (tasks[t].reads) {
        sw_str_printf(&flags, " --tokenizer %s/%s", folder,
                      tasks[t].reads == READS_WORDS ? "words" : "chars");
    }
    sw_str_puts(&flags, ONE_OF(d, "", "", " --eval-every 2 --eval-batches 1"));
    if (writes) {
        sw_str_puts(&flags,
                    ONE_OF(d, "", "", " --sample-every 2 --sample-tokens 4 --sample-prompt a"));
    }
    snprintf(out->flags, sizeof out->flags, "%s", sw_str_text(&flags));
    sw_str_fini(&flags);
}

/* ---- what decides none ---- */

static void draw_budgets(struct test_draw *d, int64_t peak, char budget[3][40])
{
    for (int i = 0; i < 3; i++) {
        const int64_t share = 1 + below(d, 13); /* tenths of what the plain run held */
        snprintf(budget[i], 40, "null");
        if (below(d, 3) == 0) {
            snprintf(budget[i], 40, "%lld", (long long)(peak * share / 10 * (i == 2 ? 2 : 1)));
        }
    }
}

static void draw_zero(struct test_draw *d, const char *folder, int64_t stage, const char *states,
                      const char *params, struct test_way *w)
{
    snprintf(w->zero, sizeof w->zero,
             "\"zero_optimization\": {\"stage\": %lld, \"stage3_param_persistence_threshold\": %s, "
             "\"stage3_model_persistence_threshold\": %s, \"sub_group_size\": %s, "
             "\"overlap_comm\": %s, \"stage3_prefetch_bucket_size\": %s, \"reduce_bucket_size\": "
             "%s, \"offload_optimizer\": {\"device\": \"%s\", \"nvme_path\": \"%s\"%s}, "
             "\"offload_param\": {\"device\": \"%s\", \"nvme_path\": \"%s\"}}",
             (long long)stage, ONE_OF(d, "0", "30", "1000", "100000"),
             ONE_OF(d, "100000000", "100000000", "100"), ONE_OF(d, "1000000000", "450", "64"),
             ONE_OF(d, "true", "false"), ONE_OF(d, "50000000", "3000"),
             ONE_OF(d, "500000000", "1000"), states, folder,
             stage == 3 ? ONE_OF(d, "", "", ", \"ratio\": 0.5") : "", params, folder);
}

void test_draw_way(struct test_draw *d, const struct test_variant *v, const char *folder,
                   int64_t peak, struct test_way *w)
{
    static const char *const places[] = {"none", "cpu", "nvme"};
    const int64_t stage = below(d, 8) < 5 ? 3 : below(d, 3);
    const int64_t most = stage == 0 ? 1 : stage < 3 ? 2 : 3;
    const char *states = places[below(d, most)], *params = places[below(d, stage == 3 ? 3 : 1)];
    char budget[3][40];
    draw_budgets(d, peak, budget);
    draw_zero(d, folder, stage, states, params, w);
    snprintf(w->other, sizeof w->other,
             "\"activation_checkpointing\": {\"cpu_checkpointing\": %s}, \"sparse_gradients\": %s",
             ONE_OF(d, "false", "false", "true"), ONE_OF(d, "false", "false", "true"));
    const bool tiles = strcmp(states, "none") != 0 && strcmp(params, "none") != 0;
    const bool on_host = strcmp(v->device, "cpu") != 0 && strcmp(states, "cpu") == 0;
    snprintf(
        w->own, sizeof w->own,
        "\"recompute\": %s, \"schedule\": \"%s\", \"threads\": %lld, \"tile_bytes\": %s, "
        "\"disk_slots\": %s, \"transfer_bytes\": %s, \"update\": \"%s\", \"device_memory\": "
        "%s, \"host_memory\": %s, \"nvme_space\": %s",
        ONE_OF(d, "\"none\"", "\"blocks\"", "2", "\"blocks\", \"recompute_blocks\": 1", "\"auto\""),
        ONE_OF(d, "horizontal", "vertical"), (long long)(1 + below(d, 3)),
        tiles || below(d, 20) == 0 ? ONE_OF(d, "null", "1", "512", "4096") : "null",
        ONE_OF(d, "null", "null", "1", "2"), ONE_OF(d, "null", "null", "0", "5000"),
        on_host ? ONE_OF(d, "auto", "host", "device") : "auto", budget[0], budget[1], budget[2]);
    w->has_device_memory = strcmp(budget[0], "null") != 0;
    w->ranks = 1 + below(d, 4);
    w->resumed_ranks = below(d, 2) ? w->ranks : 1 + below(d, 4);
    w->kill_ms = below(d, 4) == 0 ? below(d, 300) : -1;
}
