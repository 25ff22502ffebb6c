// SPDX-License-Identifier: Apache-2.0
// Families as specifications: parameter counts and rotary frequencies match the published ones, and
// settings that change the mathematics are refused by key.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/decoder.h"
#include "support/test.h"

static struct sw_model *open_text(const char *text, sw_status *st)
{
    struct sw_json_doc *doc = NULL;
    struct sw_model *model = NULL;
    assert_int_equal(sw_json_parse("config.json", text, strlen(text), SW_JSON_STRICT, &doc), SW_OK);
    *st = sw_model_open(doc, NULL, &model);
    sw_json_close(doc);
    return model;
}

/* ---- inputs ---- */

static bool has_input(const char *type, const struct sw_forward_spec *spec, const char *name)
{
    const struct sw_graph_options options = {.dtype = SW_F32, .grad_dtype = SW_F32};
    char text[128];
    struct sw_graph *g = NULL;
    sw_value loss;
    sw_status st;
    snprintf(text, sizeof text, "{\"model_type\": \"%s\", \"num_hidden_layers\": 1}", type);
    struct sw_model *model = open_text(text, &st);
    assert_non_null(model);
    assert_int_equal(sw_graph_open(&options, &g), SW_OK);
    model->ops->forward(model, g, spec, &loss);
    assert_int_equal(sw_graph_status(g), SW_OK);
    const bool found = sw_graph_find(g, SW_ROLE_INPUT, name) >= 0;
    sw_graph_close(g);
    sw_model_close(model);
    return found;
}

/* OPT counts positions from the mask along the whole row. */
static void documents_that_share_a_row_begin_anew_where_masks_are_counted(void **state)
{
    struct sw_forward_spec spec = {.batch = 1, .tokens = 4, .has_labels = true, .has_mask = true};
    (void)state;
    assert_false(has_input("opt", &spec, "positions"));
    spec.is_packed = true;
    assert_true(has_input("opt", &spec, "positions"));
}

/* ---- parameters ---- */

static int64_t count_parameters(const struct sw_model *model)
{
    const struct sw_graph_options options = {.dtype = SW_F32, .grad_dtype = SW_F32};
    const struct sw_forward_spec spec = {.batch = 1, .tokens = 4, .targets = 3, .has_labels = true};
    struct sw_graph *g = NULL;
    sw_value loss = SW_NO_VALUE;
    int64_t n = 0;
    assert_int_equal(sw_graph_open(&options, &g), SW_OK);
    model->ops->forward(model, g, &spec, &loss);
    assert_int_equal(sw_graph_status(g), SW_OK);
    assert_true(loss >= 0);
    for (int32_t i = 0; i < g->n_params; i++) {
        n += sw_shape_elems(&g->values[g->params[i]].shape);
    }
    sw_graph_close(g);
    return n;
}

static void presets_have_the_published_numbers_of_parameters(void **state)
{
    static const struct {
        const char *name;
        int64_t n;
    } rows[] = {
        {"t5-small", 60506624},
        {"t5-base", 222903552},
        {"t5-large", 737668096},
        {"bart-base", 139420416 + 50265}, /* plus a bias that is not trained */

        {"bart-large", 406291456 + 50265},
        {"gpt2", 124439808},
        {"gpt2-xl", 1557611200},
        {"tinyllama-1.1b", 1100048384},
        {"llama-2-7b", 6738415616},
        {"llama-2-70b", 68976648192},
        {"llama-3.2-1b", 1235814400},
        {"llama-3.1-8b", 8030261248},
        {"mistral-7b", 7241732096},
        {"qwen2.5-0.5b", 494032768},
        {"qwen2.5-7b", 7615616512},
        {"qwen3-0.6b", 596049920},
        {"qwen3-8b", 8190735360},
        {"gemma-2b", 2506172416},
        {"gemma-7b", 8537680896},
        {"gemma-3-1b", 999885952},
        {"phi-3-mini", 3821079552},
        {"phi-4", 14659507200},
        {"smollm3-3b", 3075098624},
        {"olmo-2-7b", 7298617344},
        {"granite-3-8b", 8170848256},
        {"starcoder2-3b", 3030371328},
        {"command-r", 34980831232},
        {"glm-4-9b", 9400279040},
        {"gemma-2-2b", 2614341888},
        {"gemma-2-9b", 9241705984},
        {"pythia-160m", 162322944},
        {"gpt-neox-20b", 20554567680},
        {"opt-125m", 125239296},
        {"gpt-j-6b", 6050882784},
        {"opt-6.7b", 6658473984},
        {"phi-2", 2779683840},
        {"falcon-7b", 6921720704},
        {"falcon-40b", 41303293952},
        {"bloom-560m", 559214592},
        {"bloom-176b", 176247271424},
        {"bert-base", 109514298},
        {"bert-large", 335174458},
        {"roberta-base", 124697433},
        {"distilbert-base", 66985530},
    };
    (void)state;
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        struct sw_json_doc *doc = NULL;
        struct sw_model *model = NULL;
        assert_int_equal(sw_model_preset(rows[i].name, 0, 0, &doc), SW_OK);
        assert_int_equal(sw_model_open(doc, NULL, &model), SW_OK);
        const int64_t n = count_parameters(model);
        if (n != rows[i].n) {
            fail_msg("%s has %lld parameters, published are %lld", rows[i].name, (long long)n,
                     (long long)rows[i].n);
        }
        sw_model_close(model);
        sw_json_close(doc);
    }
}

static void each_preset_opens_with_another_vocabulary_and_context(void **state)
{
    struct sw_str list = {0};
    char name[64];
    int n_presets = 0;
    (void)state;
    sw_model_list(&list);
    for (const char *at = strchr(sw_str_text(&list), '\n'); at && *at; at += strcspn(at, " \n")) {
        at += strspn(at, " \n");
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at, " \n"), at);
        if (!sw_model_is_preset(name)) {
            continue; /* a model_type without a preset of that name, or a class */
        }
        struct sw_json_doc *doc = NULL;
        struct sw_model *model = NULL;
        assert_int_equal(sw_model_preset(name, 777, 55, &doc), SW_OK);
        if (sw_model_open(doc, NULL, &model) < 0) {
            fail_msg("%s: %s", name, sw_error_message());
        }
        if (model->ops->sizes[SW_SIZE_VOCAB].key) { /* image models have neither */
            assert_int_equal(model->vocab, 777);
            assert_int_equal(model->max_tokens, 55);
        }
        sw_model_close(model);
        sw_json_close(doc);
        n_presets++;
    }
    sw_str_fini(&list);
    assert_true(n_presets >= 38);
}

/* ---- rotary positions ---- */

static void llama3_frequencies_are_the_published_ones(void **state)
{
    struct sw_rotary_spec spec = {.width = 128, .theta = 500000};
    float plain[64], scaled[64];
    (void)state;
    sw_rotary_frequencies(&spec, 8, plain);
    spec.kind = SW_ROTARY_LLAMA3;
    spec.factor = 8;
    spec.low = 1;
    spec.high = 4;
    spec.original_tokens = 8192;
    sw_rotary_frequencies(&spec, 8, scaled);
    for (int i = 0; i < 29; i++) {
        assert_true(plain[i] == scaled[i]);
    }
    assert_true(fabs((double)plain[29] - 0.0026160993) < 1e-9);
    assert_true(fabs((double)scaled[29] - 0.0021665708) < 1e-9);
    assert_true(fabs((double)plain[34] - 0.0009384739) < 1e-9);
    assert_true(fabs((double)scaled[34] - 0.0001785078) < 1e-9);
    for (int i = 35; i < 64; i++) {
        assert_true(plain[i] / 8 == scaled[i]);
    }
}

static void linear_scaling_divides_and_yarn_lies_between(void **state)
{
    struct sw_rotary_spec spec = {.width = 64, .theta = 10000, .factor = 4};
    float plain[32], linear[32], yarn[32];
    (void)state;
    sw_rotary_frequencies(&spec, 8, plain);
    spec.kind = SW_ROTARY_LINEAR;
    sw_rotary_frequencies(&spec, 8, linear);
    spec.kind = SW_ROTARY_YARN;
    spec.original_tokens = 2048;
    spec.beta_fast = 32;
    spec.beta_slow = 1;
    sw_rotary_frequencies(&spec, 8, yarn);
    assert_true(yarn[0] == plain[0]); /* short wave: kept */
    assert_true(fabsf(yarn[31] / linear[31] - 1) < 1e-6F);
    for (int i = 0; i < 32; i++) {
        assert_true(linear[i] == plain[i] / 4);
        assert_true(yarn[i] <= plain[i] && yarn[i] >= linear[i] * 0.999999F);
    }
}

/* ---- refusals ---- */

static void what_changes_the_mathematics_is_refused_by_its_key(void **state)
{
    static const struct {
        const char *type, *member, *named;
        sw_status st;
    } rows[] = {
        {"mamba", "\"x\": 1", "model_type \"mamba\"", SW_E_UNSUP},
        {"llama", "\"hidden_act\": \"prelu\"",
         "hidden_act \"prelu\" is not an activation this version knows (it has: gelu, ",
         SW_E_UNSUP},
        {"llama", "\"rope_scaling\": {\"rope_type\": \"ntk\"}", "rope_type \"ntk\"", SW_E_UNSUP},
        {"llama",
         "\"head_dim\": 4, \"rope_scaling\": {\"rope_type\": \"longrope\", \"short_factor\": [1]}",
         "short_factor of the rotary scaling: wanted a list of 2 numbers", SW_E_FORMAT},
        {"llama",
         "\"head_dim\": 4, \"rope_scaling\": {\"rope_type\": \"longrope\", \"short_factor\": "
         "[1, 2], \"long_factor\": [1, 0]}",
         "long_factor: wanted numbers above 0", SW_E_FORMAT},
        {"llama", "\"rope_scaling\": {\"rope_type\": \"dynamic\"}", "factor", SW_E_FORMAT},
        {"llama", "\"rope_scaling\": {\"type\": \"linear\"}", "factor", SW_E_FORMAT},
        {"llama", "\"rope_scaling\": 3", "rope_scaling", SW_E_FORMAT},
        {"llama", "\"rope_theta\": 0", "rope_theta", SW_E_FORMAT},
        {"llama",
         "\"rope_parameters\": {\"rope_type\": \"llama3\", \"factor\": 8, "
         "\"low_freq_factor\": 4, \"high_freq_factor\": 1}",
         "low_freq_factor", SW_E_FORMAT},
        {"llama", "\"quantization_config\": {\"quant_method\": \"gptq\"}", "quantization_config",
         SW_E_UNSUP},
        {"llama", "\"num_key_value_heads\": 5", "num_key_value_heads 5", SW_E_FORMAT},
        {"llama", "\"hidden_size\": 100", "hidden_size 100", SW_E_FORMAT},
        {"llama", "\"head_dim\": 7", "even", SW_E_FORMAT},
        {"llama", "\"attention_dropout\": 1", "attention_dropout", SW_E_FORMAT},
        {"llama", "\"rms_norm_eps\": -1", "rms_norm_eps", SW_E_FORMAT},
        {"mistral", "\"sliding_window\": -4", "sliding_window", SW_E_FORMAT},
        {"qwen2", "\"use_sliding_window\": true, \"layer_types\": [\"full_attention\"]",
         "layer_types", SW_E_FORMAT},
        {"gemma2", "\"use_bidirectional_attention\": true", "use_bidirectional_attention",
         SW_E_UNSUP},
        {"gemma2", "\"num_hidden_layers\": 1, \"layer_types\": [\"chunked_attention\"]",
         "chunked_attention", SW_E_UNSUP},
        {"gemma", "\"hidden_act\": \"gelu\", \"hidden_activation\": \"relu\"",
         "hidden_activation \"relu\"", SW_E_FORMAT},
        {"gemma3_text", "\"rope_parameters\": {\"rope_type\": \"default\"}",
         "rope_parameters: wanted the members full_attention and sliding_attention", SW_E_FORMAT},
        {"gemma3_text", "\"use_bidirectional_attention\": true", "use_bidirectional_attention",
         SW_E_UNSUP},
        {"gemma3_text", "\"query_pre_attn_scalar\": 0", "query_pre_attn_scalar is 0", SW_E_FORMAT},
        {"phi3", "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2}", "rope_type",
         SW_E_UNSUP},
        {"smollm3", "\"no_rope_layers\": [1, 0]", "no_rope_layers", SW_E_FORMAT},
        {"granite", "\"logits_scaling\": 0", "logits_scaling is 0", SW_E_FORMAT},
        {"granite", "\"architectures\": [\"GraniteForSequenceClassification\"]",
         "GraniteForSequenceClassification", SW_E_UNSUP},
        {"stablelm", "\"num_key_value_heads\": 5", "num_key_value_heads 5", SW_E_FORMAT},
        {"opt", "\"word_embed_proj_dim\": -1", "word_embed_proj_dim is -1", SW_E_FORMAT},
        {"opt", "\"layerdrop\": 0.1", "layerdrop", SW_E_UNSUP},
        {"falcon", "\"num_ln_in_parallel_attn\": 2", "num_ln_in_parallel_attn is 2", SW_E_UNSUP},
        {"falcon", "\"new_decoder_architecture\": true, \"parallel_attn\": false",
         "parallel_attn false", SW_E_UNSUP},
        {"falcon", "\"parallel_attn\": false, \"hidden_dropout\": 0.1", "hidden_dropout 0.1",
         SW_E_UNSUP},
        {"falcon", "\"new_decoder_architecture\": true, \"num_kv_heads\": 9", "heads 71",
         SW_E_FORMAT},
        {"bloom", "\"pretraining_tp\": 2, \"slow_but_exact\": true", "slow_but_exact", SW_E_UNSUP},
        {"bloom", "\"hidden_size\": 64, \"n_embed\": 32", "n_embed 32", SW_E_FORMAT},
        {"gpt_neox", "\"rotary_emb_base\": 500, \"rope_theta\": 600", "rope_theta 600",
         SW_E_FORMAT},
        {"gpt_neox", "\"partial_rotary_factor\": 0.5",
         "rotary_pct is 0.25 and partial_rotary_factor 0.5", SW_E_FORMAT},
        {"gpt2", "\"n_embd\": 48, \"hidden_size\": 96", "n_embd is 48 and hidden_size 96",
         SW_E_FORMAT},
        {"distilbert", "\"n_heads\": 4, \"num_attention_heads\": 2",
         "n_heads is 4 and num_attention_heads 2", SW_E_FORMAT},
        {"bart", "\"encoder_layers\": 6, \"num_hidden_layers\": 12",
         "encoder_layers is 6 and num_hidden_layers 12", SW_E_FORMAT},
        {"t5", "\"d_kv\": 64, \"head_dim\": 32", "d_kv is 64 and head_dim 32", SW_E_FORMAT},
        {"gptj", "\"max_position_embeddings\": -2", "max_position_embeddings is -2", SW_E_FORMAT},
        {"llama",
         "\"partial_rotary_factor\": 0.5, \"rope_scaling\": {\"rope_type\": \"linear\", "
         "\"factor\": 2}",
         "partial_rotary_factor 0.5", SW_E_UNSUP},
        {"gemma", "\"head_dim\": null", "head_dim is null", SW_E_FORMAT},
        {"bart", "\"decoder_attention_heads\": 7", "decoder_attention_heads 7", SW_E_FORMAT},
        {"t5", "\"relative_attention_num_buckets\": 3", "relative_attention_num_buckets is 3",
         SW_E_FORMAT},
        {"t5", "\"feed_forward_proj\": \"gated-prelu\"", "feed_forward_proj \"prelu\"", SW_E_UNSUP},
        {"vit", "\"image_size\": [32, 16, 16]", "image_size", SW_E_FORMAT},
        {"vit", "\"patch_size\": 225", "patch_size 225", SW_E_FORMAT},
        {"vit", "\"problem_type\": \"ranking\"", "problem_type \"ranking\"", SW_E_UNSUP},
        {"vit", "\"num_labels\": 1, \"problem_type\": \"single_label_classification\"",
         "wanted two or more", SW_E_CONFIG},
        {"dinov2", "\"drop_path_rate\": 0.1", "drop_path_rate", SW_E_UNSUP},
        {"dinov2", "\"mlp_ratio\": 0", "mlp_ratio is 0", SW_E_FORMAT},
        {"deit", "\"architectures\": [\"DeiTForImageClassificationWithTeacher\"]",
         "DeiTForImageClassificationWithTeacher", SW_E_UNSUP},
        {"marian", "\"share_encoder_decoder_embeddings\": false",
         "share_encoder_decoder_embeddings", SW_E_UNSUP},
        {"marian", "\"decoder_vocab_size\": 7", "decoder_vocab_size 7", SW_E_UNSUP},
        {"albert", "\"num_hidden_groups\": 13", "num_hidden_groups is 13", SW_E_FORMAT},
        {"mpnet", "\"relative_attention_num_buckets\": 3", "relative_attention_num_buckets is 3",
         SW_E_FORMAT},
        {"modernbert", "\"classifier_pooling\": \"max\"", "classifier_pooling \"max\"", SW_E_UNSUP},
        {"modernbert", "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2}",
         "a scaling of rotary positions", SW_E_UNSUP},
        {"modernbert", "\"layer_types\": [\"full_attention\"]", "layer_types", SW_E_FORMAT},
        {"electra", "\"embedding_size\": 0", "embedding_size is 0", SW_E_FORMAT},
        {"cifar_net", "\"arguments\": {\"side\": 15}", "side is 15", SW_E_FORMAT},
        {"phi", "\"num_key_value_heads\": -3", "num_key_value_heads is -3", SW_E_FORMAT},
        {"gpt_neox", "\"architectures\": [\"GPTNeoXForTokenClassification\"]",
         "GPTNeoXForTokenClassification", SW_E_UNSUP},
        {"gptj", "\"rotary_dim\": 7", "rotary_dim is 7", SW_E_FORMAT},
        {"gptj", "\"rotary_dim\": 512", "rotary_dim is 512", SW_E_FORMAT},
        {"gpt2", "\"add_cross_attention\": true", "add_cross_attention", SW_E_UNSUP},
        {"bert", "\"position_embedding_type\": \"relative_key\"", "position_embedding_type",
         SW_E_UNSUP},
        {"bert", "\"is_decoder\": true", "is_decoder", SW_E_UNSUP},
        {"bert", "\"hidden_size\": 100", "hidden_size 100", SW_E_FORMAT},
        {"bert", "\"pad_token_id\": 30522", "pad_token_id is 30522", SW_E_FORMAT},
        {"bert", "\"architectures\": [\"BertForMultipleChoice\"]", "BertForMultipleChoice",
         SW_E_UNSUP},
        {"bert", "\"architectures\": [\"BertForSequenceClassification\"], \"problem_type\": \"x\"",
         "problem_type \"x\"", SW_E_UNSUP},
        {"bert",
         "\"architectures\": [\"BertForSequenceClassification\"], \"num_labels\": 1, "
         "\"problem_type\": \"single_label_classification\"",
         "wanted two or more", SW_E_CONFIG},
        {"roberta", "\"pad_token_id\": null", "pad_token_id -1", SW_E_FORMAT},
        {"roberta", "\"pad_token_id\": 5, \"max_position_embeddings\": 6",
         "max_position_embeddings 6", SW_E_FORMAT},
        {"roberta", "\"max_position_embeddings\": 2", "max_position_embeddings is 2", SW_E_FORMAT},
    };
    (void)state;
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        char text[512];
        sw_status st;
        snprintf(text, sizeof text, "{\"model_type\": \"%s\", %s}", rows[i].type, rows[i].member);
        struct sw_model *model = open_text(text, &st);
        if (model || st != rows[i].st || !strstr(sw_error_message(), rows[i].named)) {
            fail_msg("%s: %d %s; wanted one that names %s", text, (int)st, sw_error_message(),
                     rows[i].named);
        }
    }
}

/* ---- factors ---- */

/* transformers keeps the root of 3072 in the dtype of the weights: 55.5 in bf16. */
static void the_scale_of_gemmas_embedding_has_the_dtype_of_the_weights(void **state)
{
    static const struct {
        const char *type;
        enum sw_dtype dtype;
        double factor; /* 0: the root itself */
    } rows[] = {
        {"gemma", SW_F32, 0},
        {"gemma", SW_F64, 0},
        {"gemma", SW_BF16, 55.5},
        {"gemma2", SW_BF16, 55.5},
        {"gemma3_text", SW_BF16, 55.5},
        {"gemma", SW_F16, 55.4375},
        {"gemma3_text", SW_F16, 55.4375},
    };
    const struct sw_forward_spec spec = {.batch = 1, .tokens = 4, .want_logits = true};
    (void)state;
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        const struct sw_graph_options options = {.dtype = rows[i].dtype,
                                                 .grad_dtype = rows[i].dtype};
        struct sw_graph *g = NULL;
        sw_value loss;
        sw_status st;
        char text[128];
        snprintf(text, sizeof text,
                 "{\"model_type\": \"%s\", \"hidden_size\": 3072, \"num_hidden_layers\": 1}",
                 rows[i].type);
        struct sw_model *model = open_text(text, &st);
        assert_non_null(model);
        assert_int_equal(sw_graph_open(&options, &g), SW_OK);
        model->ops->forward(model, g, &spec, &loss);
        assert_int_equal(sw_graph_status(g), SW_OK);
        int32_t k = 0;
        while (k < g->n_ops && g->ops[k].kind != SW_OP_SCALE) {
            k++;
        }
        assert_true(k < g->n_ops);
        assert_true(g->ops[k].attrs.scale.factor ==
                    (rows[i].factor > 0 ? rows[i].factor : sqrt(3072)));
        sw_graph_close(g);
        sw_model_close(model);
    }
}

/* ---- tasks ---- */

static struct sw_model *open_as(const char *members, const struct sw_model_options *options,
                                struct sw_json_doc **doc)
{
    char text[512];
    struct sw_model *model = NULL;
    snprintf(text, sizeof text, "{%s}", members);
    assert_int_equal(sw_json_parse("config.json", text, strlen(text), SW_JSON_STRICT, doc), SW_OK);
    const sw_status st = sw_model_open(*doc, options, &model);
    assert_true((st < 0) == (model == NULL));
    return model;
}

static void a_class_says_the_task_and_a_task_may_be_asked_for(void **state)
{
    static const struct {
        const char *members, *asked;
        int64_t labels;
        const char *task, *class_name;
        int64_t n; /* its number of labels; 0: no relevant labels */
        bool is_other;
    } rows[] = {
        {"\"model_type\": \"bert\"", NULL, 0, "masked", "BertForMaskedLM", 0, false},
        {"\"model_type\": \"bert\", \"architectures\": [\"BertForPreTraining\"]", NULL, 0,
         "pretrain", "BertForPreTraining", 0, false},
        {"\"model_type\": \"bert\", \"architectures\": [\"BertModel\"]", NULL, 0, "embed",
         "BertModel", 0, false},
        {"\"model_type\": \"bert\", \"architectures\": [\"BertModel\"]", "answers", 0, "answers",
         "BertForQuestionAnswering", 0, true},
        {"\"model_type\": \"bert\"", "classify", 5, "classify", "BertForSequenceClassification", 5,
         true},
        {"\"model_type\": \"bert\"", "regression", 0, "regression", "BertForSequenceClassification",
         1, true},
        {"\"model_type\": \"bert\", \"num_labels\": 7", "tokens", 0, "tokens",
         "BertForTokenClassification", 7, true},
        {"\"model_type\": \"bert\", \"architectures\": [\"BertForSequenceClassification\"], "
         "\"num_labels\": 1",
         NULL, 0, "regression", "BertForSequenceClassification", 1, false},
        {"\"model_type\": \"bert\", \"architectures\": [\"BertForSequenceClassification\"], "
         "\"num_labels\": 3, \"problem_type\": \"multi_label_classification\"",
         NULL, 0, "multi-label", "BertForSequenceClassification", 3, false},
        {"\"model_type\": \"gpt2\", \"architectures\": [\"GPT2Model\"]", NULL, 0, "causal",
         "GPT2Model", 0, false},
        {"\"model_type\": \"gpt2\"", "multi-label", 4, "multi-label",
         "GPT2ForSequenceClassification", 4, true},
    };
    (void)state;
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        const struct sw_model_options options = {.task = rows[i].asked, .labels = rows[i].labels};
        struct sw_json_doc *doc = NULL;
        struct sw_model *model = open_as(rows[i].members, &options, &doc);
        if (!model) {
            fail_msg("%s: %s", rows[i].members, sw_error_message());
        }
        assert_string_equal(model->task->name, rows[i].task);
        assert_string_equal(model->class_name, rows[i].class_name);
        assert_int_equal(model->is_other_class, rows[i].is_other);
        if (rows[i].n > 0) {
            assert_int_equal(model->labels, rows[i].n);
        }
        sw_model_close(model);
        sw_json_close(doc);
    }
}

static void a_task_without_a_head_is_refused_by_name(void **state)
{
    static const struct {
        const char *asked, *says;
    } rows[] = {
        {"tokens", "task \"tokens\": gpt2 has no head for it (it has: causal, classify, "
                   "multi-label, regression, dpo, orpo, kto, reward)"},
        {"cloze", "unknown task \"cloze\"; wanted one of: causal, masked"},
    };
    (void)state;
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        const struct sw_model_options options = {.task = rows[i].asked};
        struct sw_json_doc *doc = NULL;
        assert_null(open_as("\"model_type\": \"gpt2\"", &options, &doc));
        if (!strstr(sw_error_message(), rows[i].says)) {
            fail_msg("%s", sw_error_message());
        }
        sw_json_close(doc);
    }
}

/* A model opened as another class is of that class when its config.json is read again. */
static void config_json_says_what_a_model_was_opened_as(void **state)
{
    const struct sw_model_options options = {.task = "multi-label", .labels = 3};
    struct sw_json_doc *doc = NULL;
    struct sw_model *again = NULL;
    (void)state;
    struct sw_model *model = open_as("\"model_type\": \"bert\", \"num_labels\": 9", &options, &doc);
    assert_non_null(model);
    assert_int_equal(sw_model_put_task(model, NULL, doc), SW_OK);
    assert_int_equal(sw_model_open(doc, NULL, &again), SW_OK);
    assert_ptr_equal(again->task, model->task);
    assert_int_equal(again->labels, 3);
    assert_false(again->is_other_class);
    sw_model_close(again);
    sw_model_close(model);
    sw_json_close(doc);
}

/* num_labels has precedence over id2label, so it follows, too. */
static void both_keys_of_labels_say_what_a_model_was_opened_with(void **state)
{
    const struct sw_model_options options = {.task = "classify", .labels = 3};
    struct sw_json_doc *doc = NULL;
    struct sw_model *again = NULL;
    (void)state;
    struct sw_model *model =
        open_as("\"model_type\": \"bert\", \"num_labels\": 9, \"id2label\": {\"0\": \"a\", "
                "\"1\": \"b\", \"2\": \"c\"}",
                &options, &doc);
    assert_non_null(model);
    assert_int_equal(sw_model_put_task(model, NULL, doc), SW_OK);
    assert_int_equal(sw_model_open(doc, NULL, &again), SW_OK);
    assert_int_equal(again->labels, 3);
    sw_model_close(again);
    sw_model_close(model);
    sw_json_close(doc);
}

static void a_new_head_may_begin_and_a_trunk_may_not(void **state)
{
    const struct sw_model_options classify = {.task = "classify"};
    struct sw_json_doc *doc = NULL;
    (void)state;
    struct sw_model *model = open_as("\"model_type\": \"bert\"", &classify, &doc);
    assert_true(sw_model_may_begin(model, "classifier.bias"));
    assert_true(sw_model_may_begin(model, "bert.pooler.dense.weight"));
    assert_false(sw_model_may_begin(model, "bert.embeddings.LayerNorm.weight"));
    sw_model_close(model);
    sw_json_close(doc);
    model = open_as("\"model_type\": \"bert\"", NULL, &doc);
    assert_false(sw_model_may_begin(model, "cls.predictions.bias"));
    sw_model_close(model);
    sw_json_close(doc);
}

/* With a number of labels that differs from config.json the head is new. A folder that holds only
 * the trunk has no head. */
static void a_head_for_other_classes_begins(void **state)
{
    static const char image[] = "\"model_type\": \"vit\", \"num_labels\": 5";
    static const char trunk[] = "\"model_type\": \"vit\", \"architectures\": [\"ViTModel\"]";
    const struct sw_model_options three = {.labels = 3}, five = {.labels = 5};
    struct sw_json_doc *doc = NULL;
    (void)state;
    struct sw_model *model = open_as(image, &three, &doc);
    assert_true(sw_model_has_other_head(model, "classifier.weight"));
    assert_false(sw_model_has_other_head(model, "vit.layernorm.weight"));
    assert_false(sw_model_may_begin(model, "classifier.weight")); /* it must be present */
    sw_model_close(model);
    sw_json_close(doc);
    model = open_as(image, &five, &doc);
    assert_false(sw_model_has_other_head(model, "classifier.weight"));
    sw_model_close(model);
    sw_json_close(doc);
    model = open_as(trunk, &three, &doc);
    assert_true(sw_model_may_begin(model, "classifier.weight"));
    assert_false(sw_model_may_begin(model, "vit.layernorm.weight"));
    assert_string_equal(model->class_name, "ViTForImageClassification");
    sw_model_close(model);
    sw_json_close(doc);
}

/* Each value is valid by itself, but their product overflows fp32. */
static void a_rotary_table_that_is_no_number_is_refused(void **state)
{
    const struct sw_graph_options options = {.dtype = SW_F32, .grad_dtype = SW_F32};
    struct sw_rotary_spec spec = {.kind = SW_ROTARY_YARN,
                                  .width = 4,
                                  .theta = 10000,
                                  .factor = 2,
                                  .original_tokens = 64,
                                  .beta_fast = 32,
                                  .beta_slow = 1,
                                  .attention_factor = 1};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct sw_graph *g = NULL;
        assert_int_equal(sw_graph_open(&options, &g), SW_OK);
        sw_rotary_table(g, "rotary", &spec, 8);
        assert_int_equal(sw_graph_status(g), i == 0 ? SW_OK : SW_E_FORMAT);
        sw_graph_close(g);
        spec.attention_factor = 1e300;
    }
    assert_non_null(strstr(sw_error_message(), "attention_factor 1e+300"));
}

static const struct sw_decoder *decoder_of(const struct sw_model *model)
{
    return SW_CONTAINER(model, struct sw_decoder, super);
}

static struct sw_model *open_rotary(const char *members)
{
    char text[512];
    sw_status st;
    snprintf(text, sizeof text, "{\"model_type\": \"llama\", %s}", members);
    struct sw_model *model = open_text(text, &st);
    assert_int_equal(st, SW_OK);
    return model;
}

/* The numbers are from transformers 5.23. */
static void dynamic_scaling_is_the_default_within_the_context(void **state)
{
    static const int at[] = {0, 1, 15, 31};
    static const double want[] = {1.0, 0.7237839698791504, 0.007836729288101196,
                                  4.445071317604743e-05};
    float within[32], plain[32], beyond[32];
    (void)state;
    struct sw_model *model =
        open_rotary("\"head_dim\": 64, \"max_position_embeddings\": 2048, "
                    "\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}");
    struct sw_rotary_spec spec = decoder_of(model)->spec.rotary;
    assert_true(model->is_endless);
    sw_rotary_frequencies(&spec, 2048, within);
    sw_rotary_frequencies(&spec, 4096, beyond);
    spec.kind = SW_ROTARY_DEFAULT;
    sw_rotary_frequencies(&spec, 2048, plain);
    assert_memory_equal(within, plain, sizeof plain);
    for (size_t i = 0; i < SW_LEN(at); i++) {
        assert_true(fabs((double)beyond[at[i]] / want[i] - 1) < 1e-6);
    }
    sw_model_close(model);
}

static void longrope_has_factors_of_short_and_of_long_rows(void **state)
{
    static const double want[2][2] = {{1.0, 0.006666666828095913}, {0.5, 0.0014285714132711291}};
    (void)state;
    struct sw_model *model = open_rotary(
        "\"head_dim\": 4, \"max_position_embeddings\": 4096, \"rope_scaling\": {\"rope_type\": "
        "\"longrope\", \"short_factor\": [1, 1.5], \"long_factor\": [2, 7], "
        "\"original_max_position_embeddings\": 1024}");
    const struct sw_rotary_spec *spec = &decoder_of(model)->spec.rotary;
    for (int i = 0; i < 2; i++) {
        float found[2];
        sw_rotary_frequencies(spec, 1024 + i, found);
        for (int k = 0; k < 2; k++) {
            assert_true(fabs((double)found[k] / want[i][k] - 1) < 1e-6);
        }
    }
    assert_true(fabs(spec->attention_factor - 1.0954451150103321) < 1e-12);
    sw_model_close(model);
}

/* Absent key: the family's default; null: none; negative: counts from the end. The last row of
 * LLaMA's 32000 is the example. */
static void a_row_of_padding_is_what_pad_token_id_says(void **state)
{
    static const struct {
        const char *members;
        int64_t row;
    } rows[] = {
        {"\"model_type\": \"opt\"", 1},
        {"\"model_type\": \"opt\", \"pad_token_id\": null", -1},
        {"\"model_type\": \"gemma2\"", 0},
        {"\"model_type\": \"gemma2\", \"pad_token_id\": null", -1},
        {"\"model_type\": \"llama\"", -1},
        {"\"model_type\": \"llama\", \"pad_token_id\": 7", 7},
        {"\"model_type\": \"llama\", \"pad_token_id\": -1", 31999},
    };
    (void)state;
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        char text[128];
        sw_status st;
        snprintf(text, sizeof text, "{%s}", rows[i].members);
        struct sw_model *model = open_text(text, &st);
        assert_int_equal(st, SW_OK);
        if (decoder_of(model)->spec.padding_id != rows[i].row) {
            fail_msg("%s: row %lld, wanted %lld", text,
                     (long long)decoder_of(model)->spec.padding_id, (long long)rows[i].row);
        }
        sw_model_close(model);
    }
}

/* As in transformers 5: rope_scaling takes precedence over rope_parameters, and keys beside them
 * over keys in them. */
static void rotary_settings_that_are_said_twice_have_an_order(void **state)
{
    sw_status st;
    (void)state;
    struct sw_model *model = open_text(
        "{\"model_type\": \"llama\", \"original_max_position_embeddings\": 24, \"rope_scaling\": "
        "{\"rope_type\": \"llama3\", \"factor\": 8, \"original_max_position_embeddings\": 16}, "
        "\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 2}}",
        &st);
    assert_int_equal(st, SW_OK);
    assert_int_equal(decoder_of(model)->spec.rotary.kind, SW_ROTARY_LLAMA3);
    assert_true(decoder_of(model)->spec.rotary.original_tokens == 24);
    sw_model_close(model);
}

static void an_unknown_family_is_refused_with_its_relative(void **state)
{
    static const struct {
        const char *type, *relative;
    } rows[] = {{"gemma3", "\"gemma3_text\""},
                {"xlm-roberta-xl", "\"roberta\""},
                {"gpt-2", "\"gpt2\""},
                {"qwen3_next", "\"qwen3\""},
                {"vit_mae", "\"vit\""},
                {"optimus", NULL},
                {"zzzzzzzz", NULL}};
    (void)state;
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        char text[64];
        sw_status st;
        snprintf(text, sizeof text, "{\"model_type\": \"%s\"}", rows[i].type);
        assert_null(open_text(text, &st));
        assert_int_equal(st, SW_E_UNSUP);
        assert_non_null(strstr(sw_error_message(), "docs/models.md"));
        const char *told = strstr(sw_error_message(), "nearest relative is ");
        assert_int_equal(told != NULL, rows[i].relative != NULL);
        assert_true(!told || strstr(told, rows[i].relative));
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(presets_have_the_published_numbers_of_parameters),
    cmocka_unit_test(each_preset_opens_with_another_vocabulary_and_context),
    cmocka_unit_test(llama3_frequencies_are_the_published_ones),
    cmocka_unit_test(linear_scaling_divides_and_yarn_lies_between),
    cmocka_unit_test(what_changes_the_mathematics_is_refused_by_its_key),
    cmocka_unit_test(a_rotary_table_that_is_no_number_is_refused),
    cmocka_unit_test(documents_that_share_a_row_begin_anew_where_masks_are_counted),
    cmocka_unit_test(dynamic_scaling_is_the_default_within_the_context),
    cmocka_unit_test(longrope_has_factors_of_short_and_of_long_rows),
    cmocka_unit_test(a_row_of_padding_is_what_pad_token_id_says),
    cmocka_unit_test(rotary_settings_that_are_said_twice_have_an_order),
    cmocka_unit_test(the_scale_of_gemmas_embedding_has_the_dtype_of_the_weights),
    cmocka_unit_test(a_class_says_the_task_and_a_task_may_be_asked_for),
    cmocka_unit_test(a_task_without_a_head_is_refused_by_name),
    cmocka_unit_test(config_json_says_what_a_model_was_opened_as),
    cmocka_unit_test(both_keys_of_labels_say_what_a_model_was_opened_with),
    cmocka_unit_test(an_unknown_family_is_refused_with_its_relative),
    cmocka_unit_test(a_new_head_may_begin_and_a_trunk_may_not),
    cmocka_unit_test(a_head_for_other_classes_begins),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
