// SPDX-License-Identifier: Apache-2.0
// Shapes of well-known models by name, for plans, benchmarks and training from scratch. Sizes are
// from the published config.json files.
#include <stdio.h>
#include <string.h>

#include "model/model.h"

struct preset {
    const char *name, *type;
    int64_t layers, width, heads, kv_heads, head_width, inner; /* 0: the family's default */
    int64_t vocab, tokens;
    bool tied;
    const char *rest; /* further members of config.json */
};

#define LLAMA3(factor)                                                                             \
    ",\"rms_norm_eps\":1e-05,\"rope_theta\":500000.0,\"rope_scaling\":{\"rope_type\":\"llama3\","  \
    "\"factor\":" factor ",\"low_freq_factor\":1.0,\"high_freq_factor\":4.0,"                      \
    "\"original_max_position_embeddings\":8192}"
#define LLAMA2 ",\"rms_norm_eps\":1e-05"
#define QWEN ",\"rope_theta\":1000000.0"
#define GPT2(p)                                                                                    \
    ",\"n_inner\":null,\"activation_function\":\"gelu_new\",\"layer_norm_epsilon\":1e-05,"         \
    "\"initializer_range\":0.02,\"scale_attn_weights\":true,\"embd_pdrop\":" p                     \
    ",\"attn_pdrop\":" p ",\"resid_pdrop\":" p
#define ROBERTA ",\"layer_norm_eps\":1e-05,\"type_vocab_size\":1"
#define BART(layers, heads, inner)                                                                 \
    ",\"decoder_layers\":" layers ",\"decoder_attention_heads\":" heads                            \
    ",\"decoder_ffn_dim\":" inner
#define DEBERTA3                                                                                   \
    ",\"relative_attention\":true,\"position_buckets\":256,\"norm_rel_ebd\":\"layer_norm\","       \
    "\"share_att_key\":true,\"pos_att_type\":\"p2c|c2p\",\"layer_norm_eps\":1e-07,"                \
    "\"max_relative_positions\":512,\"position_biased_input\":false,\"type_vocab_size\":0"
#define NO_BERT_DROPOUT ",\"hidden_dropout_prob\":0,\"attention_probs_dropout_prob\":0"
#define GEMMA(scalar) ",\"query_pre_attn_scalar\":" scalar
#define GRANITE                                                                                    \
    ",\"rms_norm_eps\":1e-05,\"rope_theta\":10000000.0,\"embedding_multiplier\":12.0,"             \
    "\"attention_multiplier\":0.0078125,\"residual_multiplier\":0.22,\"logits_scaling\":16.0"

/* The tiny preset learns letters in seconds. It has no dropout, as is usual for so few steps. */
// clang-format off
static const struct preset presets[] = {
    {"gpt2-tiny", "gpt2", 4, 128, 4, 0, 0, 0, 256, 64, true, GPT2("0")},
    {"gpt2", "gpt2", 12, 768, 12, 0, 0, 0, 50257, 1024, true, GPT2("0.1")},
    {"gpt2-medium", "gpt2", 24, 1024, 16, 0, 0, 0, 50257, 1024, true, GPT2("0.1")},
    {"gpt2-large", "gpt2", 36, 1280, 20, 0, 0, 0, 50257, 1024, true, GPT2("0.1")},
    {"gpt2-xl", "gpt2", 48, 1600, 25, 0, 0, 0, 50257, 1024, true, GPT2("0.1")},
    {"llama-tiny", "llama", 4, 128, 4, 2, 0, 344, 256, 64, true, LLAMA2},
    {"tinyllama-1.1b", "llama", 22, 2048, 32, 4, 0, 5632, 32000, 2048, false, LLAMA2},
    {"llama-2-7b", "llama", 32, 4096, 32, 32, 0, 11008, 32000, 4096, false, LLAMA2},
    {"llama-2-13b", "llama", 40, 5120, 40, 40, 0, 13824, 32000, 4096, false, LLAMA2},
    {"llama-2-70b", "llama", 80, 8192, 64, 8, 0, 28672, 32000, 4096, false, LLAMA2},
    {"llama-3.2-1b", "llama", 16, 2048, 32, 8, 64, 8192, 128256, 131072, true, LLAMA3("32.0")},
    {"llama-3.2-3b", "llama", 28, 3072, 24, 8, 128, 8192, 128256, 131072, true, LLAMA3("32.0")},
    {"llama-3.1-8b", "llama", 32, 4096, 32, 8, 0, 14336, 128256, 131072, false, LLAMA3("8.0")},
    {"llama-3.1-70b", "llama", 80, 8192, 64, 8, 0, 28672, 128256, 131072, false, LLAMA3("8.0")},
    {"llama-3.1-405b", "llama", 126, 16384, 128, 8, 0, 53248, 128256, 131072, false, LLAMA3("8.0")},
    {"mistral-7b", "mistral", 32, 4096, 32, 8, 0, 14336, 32000, 32768, false,
     LLAMA2 ",\"sliding_window\":4096"},
    {"qwen2.5-0.5b", "qwen2", 24, 896, 14, 2, 0, 4864, 151936, 32768, true, QWEN},
    {"qwen2.5-1.5b", "qwen2", 28, 1536, 12, 2, 0, 8960, 151936, 32768, true, QWEN},
    {"qwen2.5-3b", "qwen2", 36, 2048, 16, 2, 0, 11008, 151936, 32768, true, QWEN},
    {"qwen2.5-7b", "qwen2", 28, 3584, 28, 4, 0, 18944, 152064, 32768, false, QWEN},
    {"qwen2.5-14b", "qwen2", 48, 5120, 40, 8, 0, 13824, 152064, 32768, false, QWEN},
    {"qwen2.5-32b", "qwen2", 64, 5120, 40, 8, 0, 27648, 152064, 32768, false, QWEN},
    {"qwen2.5-72b", "qwen2", 80, 8192, 64, 8, 0, 29568, 152064, 32768, false, QWEN},
    {"qwen3-0.6b", "qwen3", 28, 1024, 16, 8, 128, 3072, 151936, 40960, true, QWEN},
    {"qwen3-1.7b", "qwen3", 28, 2048, 16, 8, 128, 6144, 151936, 40960, true, QWEN},
    {"qwen3-8b", "qwen3", 36, 4096, 32, 8, 128, 12288, 151936, 40960, false, QWEN},
    {"gemma-2b", "gemma", 18, 2048, 8, 1, 256, 16384, 256000, 8192, true, ""},
    {"gemma-7b", "gemma", 28, 3072, 16, 16, 256, 24576, 256000, 8192, true, ""},
    {"gemma-2-2b", "gemma2", 26, 2304, 8, 4, 256, 9216, 256000, 8192, true, GEMMA("256")},
    {"gemma-2-9b", "gemma2", 42, 3584, 16, 8, 256, 14336, 256000, 8192, true, GEMMA("256")},
    {"gemma-2-27b", "gemma2", 46, 4608, 32, 16, 128, 36864, 256000, 8192, true, GEMMA("144")},
    {"gemma-3-1b", "gemma3_text", 26, 1152, 4, 1, 256, 6912, 262144, 32768, true,
     ",\"sliding_window\":512"},
    {"phi-3-mini", "phi3", 32, 3072, 32, 32, 0, 8192, 32064, 4096, false,
     ",\"sliding_window\":2047"},
    {"phi-4", "phi3", 40, 5120, 40, 10, 0, 17920, 100352, 16384, false,
     ",\"rope_theta\":250000.0"},
    {"smollm3-3b", "smollm3", 36, 2048, 16, 4, 0, 11008, 128256, 65536, true,
     ",\"rope_theta\":5000000.0"},
    {"olmo-2-7b", "olmo2", 32, 4096, 32, 32, 0, 11008, 100352, 4096, false,
     ",\"rms_norm_eps\":1e-06,\"rope_theta\":500000.0"},
    {"granite-3-8b", "granite", 40, 4096, 32, 8, 0, 12800, 49155, 4096, true, GRANITE},
    {"stablelm-2-1.6b", "stablelm", 24, 2048, 32, 32, 0, 5632, 100352, 4096, false,
     ",\"use_qkv_bias\":true"},
    {"starcoder2-3b", "starcoder2", 30, 3072, 24, 2, 0, 12288, 49152, 16384, true,
     ",\"sliding_window\":4096,\"rope_theta\":999999.4420358813"},
    {"command-r", "cohere", 40, 8192, 64, 64, 0, 22528, 256000, 131072, true,
     ",\"rope_theta\":8000000.0"},
    {"glm-4-9b", "glm4", 40, 4096, 32, 2, 128, 13696, 151552, 32768, false,
     ",\"rms_norm_eps\":1e-05"},
    {"pythia-160m", "gpt_neox", 12, 768, 12, 0, 0, 3072, 50304, 2048, false, ""},
    {"gpt-neox-20b", "gpt_neox", 44, 6144, 64, 0, 0, 24576, 50432, 2048, false, ""},
    {"gpt-j-6b", "gptj", 28, 4096, 16, 0, 0, 0, 50400, 2048, false, ",\"rotary_dim\":64"},
    {"opt-125m", "opt", 12, 768, 12, 0, 0, 3072, 50272, 2048, true, ""},
    {"opt-6.7b", "opt", 32, 4096, 32, 0, 0, 16384, 50272, 2048, true, ""},
    {"opt-175b", "opt", 96, 12288, 96, 0, 0, 49152, 50272, 2048, true, ""},
    {"phi-2", "phi", 32, 2560, 32, 0, 0, 10240, 51200, 2048, false,
     ",\"partial_rotary_factor\":0.4,\"resid_pdrop\":0.1"},
    {"falcon-7b", "falcon", 32, 4544, 71, 0, 0, 0, 65024, 2048, true, ""},
    {"falcon-40b", "falcon", 60, 8192, 128, 0, 0, 0, 65024, 2048, true,
     ",\"new_decoder_architecture\":true,\"num_kv_heads\":8"},
    {"bloom-560m", "bloom", 24, 1024, 16, 0, 0, 0, 250880, 2048, true, ""},
    {"bloom-7b1", "bloom", 30, 4096, 32, 0, 0, 0, 250880, 2048, true, ""},
    {"bloom-176b", "bloom", 70, 14336, 112, 0, 0, 0, 250880, 2048, true, ""},
    {"bert-tiny", "bert", 2, 64, 2, 0, 0, 256, 256, 64, true, NO_BERT_DROPOUT},
    {"bert-base", "bert", 12, 768, 12, 0, 0, 3072, 30522, 512, true, ""},
    {"bert-large", "bert", 24, 1024, 16, 0, 0, 4096, 30522, 512, true, ""},
    {"roberta-base", "roberta", 12, 768, 12, 0, 0, 3072, 50265, 512, true, ROBERTA},
    {"roberta-large", "roberta", 24, 1024, 16, 0, 0, 4096, 50265, 512, true, ROBERTA},
    {"distilbert-base", "distilbert", 6, 768, 12, 0, 0, 3072, 30522, 512, true, ""},
    {"deberta-v3-base", "deberta-v2", 12, 768, 12, 0, 0, 3072, 128100, 512, true, DEBERTA3},
    {"bart-base", "bart", 6, 768, 12, 0, 0, 3072, 50265, 1024, true, BART("6", "12", "3072")},
    {"bart-large", "bart", 12, 1024, 16, 0, 0, 4096, 50265, 1024, true, BART("12", "16", "4096")},
    {"t5-tiny", "t5", 2, 64, 2, 0, 0, 256, 256, 64, true, ",\"d_kv\":32,\"dropout_rate\":0"},
    {"t5-small", "t5", 6, 512, 8, 0, 0, 2048, 32128, 512, true, ",\"d_kv\":64"},
    {"t5-base", "t5", 12, 768, 12, 0, 0, 3072, 32128, 512, true, ",\"d_kv\":64"},
    {"t5-large", "t5", 24, 1024, 16, 0, 0, 4096, 32128, 512, true, ",\"d_kv\":64"},
    {"vit-base", "vit", 12, 768, 12, 0, 0, 3072, 0, 0, false,
     ",\"image_size\":224,\"patch_size\":16,\"num_channels\":3"},
    {"cifar-net", "cifar_net", 0, 0, 0, 0, 0, 0, 0, 0, false, ",\"num_labels\":10"},
    {"turing-nlg-17b", "gpt2", 78, 4256, 28, 0, 0, 0, 50257, 1024, true, GPT2("0.1")},
};
// clang-format on

static const struct preset *find_preset(const char *name)
{
    for (size_t i = 0; i < SW_LEN(presets); i++) {
        if (strcmp(presets[i].name, name) == 0) {
            return &presets[i];
        }
    }
    return NULL;
}

bool sw_model_is_preset(const char *name)
{
    return find_preset(name) != NULL;
}

/* key NULL: the family has no such size. */
static void put_size(struct sw_str *out, const char *key, int64_t value)
{
    if (key && value > 0) {
        sw_str_printf(out, ",\"%s\":%lld", key, (long long)value);
    }
}

static void write_config(const struct preset *p, int64_t vocab, int64_t max_tokens,
                         struct sw_str *out)
{
    const struct sw_model_ops *family = sw_model_family(p->type);
    const struct sw_model_key *keys = family->sizes;
    const int64_t v = vocab > 0 ? vocab : p->vocab;
    sw_str_printf(out, "{\"model_type\":\"%s\",\"architectures\":[\"%s\"]", p->type,
                  family->classes[0].name);
    put_size(out, keys[SW_SIZE_VOCAB].key, v);
    put_size(out, keys[SW_SIZE_TOKENS].key,
             (max_tokens > 0 ? max_tokens : p->tokens) + family->extra_tokens);
    put_size(out, keys[SW_SIZE_WIDTH].key, p->width);
    put_size(out, keys[SW_SIZE_LAYERS].key, p->layers);
    put_size(out, keys[SW_SIZE_HEADS].key, p->heads);
    put_size(out, keys[SW_SIZE_INNER].key, p->inner);
    put_size(out, "num_key_value_heads", p->kv_heads);
    put_size(out, "head_dim", p->head_width);
    /* GPT-2's own vocabulary has one special token, its last. It must be written: the default would
     * apply to any vocabulary. */
    const char *special = strcmp(p->type, "gpt2") == 0 && v == 50257 ? "50256" : "null";
    /* the family's own padding id */
    const bool pads = strcmp(family->classes[0].task, "causal") != 0;
    sw_str_printf(out, "%s,\"tie_word_embeddings\":%s%s,\"bos_token_id\":%s,\"eos_token_id\":%s}",
                  p->rest, p->tied ? "true" : "false", pads ? "" : ",\"pad_token_id\":null",
                  special, special);
}

sw_status sw_model_preset(const char *name, int64_t vocab, int64_t max_tokens,
                          struct sw_json_doc **out)
{
    const struct preset *preset = find_preset(name);
    struct sw_str text = {0};
    sw_status st;
    if (preset) {
        write_config(preset, vocab, max_tokens, &text);
        st = text.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a preset")
                         : sw_json_parse(name, sw_str_text(&text), text.len, SW_JSON_STRICT, out);
    } else {
        for (size_t i = 0; i < SW_LEN(presets); i++) {
            sw_str_printf(&text, "%s%s", i ? ", " : "", presets[i].name);
        }
        st = SW_FAIL(SW_E_CONFIG, "unknown preset \"%s\"; the presets are %s", name,
                     sw_str_text(&text));
    }
    sw_str_fini(&text);
    return st;
}

void sw_model_list_presets(const char *type, struct sw_str *out)
{
    for (size_t i = 0; i < SW_LEN(presets); i++) {
        if (strcmp(presets[i].type, type) == 0) {
            sw_str_printf(out, " %s", presets[i].name);
        }
    }
}
