// SPDX-License-Identifier: Apache-2.0
// Low-rank adapters that are trained: their configuration, parameters and initial values, and
// their description for checkpoints and PEFT. The base model is frozen. A checkpoint holds a digest
// of each base tensor, so that a different base is detected.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "weights/private.h"

enum { PIECE = 1 << 15 }; /* elements */

/* ---- opening ---- */

sw_status sw_weights_open_adapter(struct sw_weights *w, struct sw_str *edit)
{
    w->lora = sw_alloc_zero("engine", 1, sizeof *w->lora);
    SW_TRY_ALLOC(w->lora, "adapters");
    sw_arena_init(&w->lora->arena, "engine");
    SW_TRY(sw_adapter_open(w->options->model.adapter, &w->lora->from));
    w->lora->continues = true;
    sw_adapter_edit(w->lora->from.config, edit);
    return edit->failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for adapters") : SW_OK;
}

static sw_status read_exceptions(struct sw_weights *w, const char *key, double least,
                                 const struct sw_lora_exception **out, int *out_n)
{
    const struct sw_json *object = sw_config_value(w->config, key);
    const int64_t n = object ? object->n_children : 0;
    struct sw_lora_exception *items = sw_arena_array(&w->lora->arena, (size_t)n + 1, sizeof *items);
    SW_TRY_ALLOC(items, "adapters");
    if (object && object->type != SW_JSON_OBJECT && object->type != SW_JSON_NULL) {
        return SW_FAIL(SW_E_CONFIG, "%s is %s, wanted an object of numbers by pattern", key,
                       sw_json_type_name(object->type));
    }
    *out_n = 0;
    for (const struct sw_json *m = object ? object->first : NULL; m; m = m->next) {
        const bool number = m->type == SW_JSON_INT || m->type == SW_JSON_FLOAT;
        const double value = number ? m->number : 0;
        if (!(value >= least) || (least == 1 && (value != floor(value) || value > 65536))) {
            return SW_FAIL(SW_E_CONFIG, "%s: \"%s\" wants %s", key, m->key,
                           least == 1 ? "a whole number of 1 or more" : "a number above 0");
        }
        items[(*out_n)++] = (struct sw_lora_exception){m->key, value};
    }
    *out = items;
    return SW_OK;
}

static struct sw_lora_names names_of(const struct sw_config *config, const char *key,
                                     const struct sw_config_strings *strings)
{
    const struct sw_json *value = sw_config_value(config, key);
    return (struct sw_lora_names){strings->items, strings->n,
                                  value && value->type == SW_JSON_STRING};
}

static sw_status read_lora(struct sw_weights *w)
{
    const struct sw_lora_config *c = &w->config->spillway.lora;
    struct sw_lora *spec = &w->lora->spec;
    sw_lora_init(spec);
    spec->r = (double)c->r;
    spec->alpha = c->alpha;
    spec->dropout = c->dropout;
    spec->rslora = c->rslora;
    spec->dora = c->dora;
    spec->bias = (enum sw_lora_bias)c->bias;
    spec->target = names_of(w->config, "spillway.lora.target_modules", &c->target_modules);
    spec->exclude = names_of(w->config, "spillway.lora.exclude_modules", &c->exclude_modules);
    spec->all_linear = spec->target.is_pattern && strcmp(spec->target.items[0], "all-linear") == 0;
    spec->layers = c->layers_to_transform.items;
    spec->n_layers = c->layers_to_transform.n;
    spec->lists = (struct sw_lora_names){c->layers_pattern.items, c->layers_pattern.n, true};
    spec->saved = c->modules_to_save.items;
    spec->n_saved = c->modules_to_save.n;
    if (spec->target.n == 0) {
        return SW_FAIL(
            SW_E_CONFIG,
            "spillway.lora.target_modules is empty; wanted names of layers, a pattern or "
            "\"all-linear\"");
    }
    SW_TRY(read_exceptions(w, "spillway.lora.rank_pattern", 1, &spec->ranks, &spec->n_ranks));
    return read_exceptions(w, "spillway.lora.alpha_pattern", 0x1p-149, &spec->alphas,
                           &spec->n_alphas);
}

sw_status sw_weights_open_lora(struct sw_weights *w)
{
    if (w->config->spillway.lora.r == 0) {
        return SW_OK;
    }
    if (!w->options->model.path) {
        return SW_FAIL(SW_E_CONFIG, "spillway.lora: a forward of your own has no layers by name");
    }
    if (!w->lora) {
        w->lora = sw_alloc_zero("engine", 1, sizeof *w->lora);
        SW_TRY_ALLOC(w->lora, "adapters");
        sw_arena_init(&w->lora->arena, "engine");
    }
    return read_lora(w);
}

void sw_weights_close_lora(struct sw_weights *w)
{
    if (w->lora) {
        sw_adapter_close(&w->lora->from);
        sw_arena_fini(&w->lora->arena);
        sw_free(w->lora);
        w->lora = NULL;
    }
}

/* A PEFT adapter may leave the head of its base unchanged. */
static bool brings_head(const struct sw_weights *w)
{
    const struct sw_safetensors *file = w->lora->from.file;
    char full[600];
    const char *head = sw_adapter_name(w->model->head_module, false, full, sizeof full);
    const size_t n = strlen(head);
    bool found = false;
    for (int64_t i = 0; i < sw_safetensors_count(file) && !found; i++) {
        const char *name = sw_safetensors_at(file, i)->name;
        found = strncmp(name, head, n) == 0 && name[n] == '.' && !sw_lora_is_adapter(name);
    }
    return found;
}

sw_status sw_weights_fit_lora(struct sw_weights *w)
{
    if (!w->lora) {
        return SW_OK;
    }
    struct sw_lora *spec = &w->lora->spec;
    if (w->model->tied && w->model->lm_head_name && !w->model->head_module &&
        (sw_lora_saves(spec, w->model->embedding_name) ||
         sw_lora_saves(spec, w->model->lm_head_name))) {
        SW_TRY(sw_weights_tie(w, false));
        w->lora->untied = true;
    }
    spec->head = w->model->head_module;
    spec->tells_classes = sw_model_is_labelled(w->model);
    spec->saves_head = spec->tells_classes && (!w->lora->continues || brings_head(w));
    return SW_OK;
}

const struct sw_adapter *sw_weights_adapter(const struct sw_weights *w)
{
    return w->lora ? &w->lora->spec.super : NULL;
}

const struct sw_safetensors *sw_weights_adapter_file(const struct sw_weights *w)
{
    return w->lora ? w->lora->from.file : NULL;
}

static sw_status list_biased(struct sw_adapters *lora)
{
    const char **modules =
        sw_arena_array(&lora->arena, (size_t)lora->n_layers + 1, sizeof *modules);
    SW_TRY_ALLOC(modules, "adapters");
    for (int32_t i = 0; i < lora->n_layers; i++) {
        modules[i] = lora->layers[i].module;
    }
    lora->spec.biased = modules;
    lora->spec.n_biased = lora->n_layers;
    return SW_OK;
}

sw_status sw_weights_learn_adapted(struct sw_weights *w, const struct sw_graph *g)
{
    struct sw_adapters *lora = w->lora;
    if (!lora || lora->layers) {
        return SW_OK;
    }
    const sw_status st = sw_lora_check(&lora->spec, g);
    if (st < 0) {
        return w->options->model.adapter ? sw_fail_prefix(st, "%s", w->options->model.adapter) : st;
    }
    struct sw_adapted_layer *layers =
        sw_arena_array(&lora->arena, (size_t)g->adapted.n + 1, sizeof *layers);
    SW_TRY_ALLOC(layers, "adapters");
    for (int32_t i = 0; i < g->adapted.n; i++) {
        const struct sw_adapted *a = &g->adapted.items[i];
        layers[i] = (struct sw_adapted_layer){sw_arena_strdup(&lora->arena, a->module), a->scaling,
                                              a->in_out};
        SW_TRY_ALLOC(layers[i].module, "adapters");
    }
    lora->layers = layers;
    lora->n_layers = g->adapted.n;
    return lora->spec.bias == SW_LORA_BIAS_ADAPTED ? list_biased(lora) : SW_OK;
}

bool sw_weights_keeps(const struct sw_weights *w, const char *param)
{
    return !w->lora || w->lora->spec.super.trains(&w->lora->spec.super, param);
}

bool sw_weights_adapter_has(const struct sw_weights *w, const char *param)
{
    return w->lora && w->lora->continues && sw_weights_keeps(w, param);
}

int64_t sw_weights_trained(const struct sw_weights *w)
{
    int64_t sum = 0;
    for (int32_t i = 0; i < w->params.n; i++) {
        const struct sw_persistent *work = w->params.items[i].work;
        sum += sw_weights_keeps(w, work->name) ? sw_shape_elems(&work->layout.whole) : 0;
    }
    return sum;
}

/* ---- weights ---- */

static sw_status load_one(struct sw_weights *w, const struct sw_parameter *param, float *piece)
{
    const struct sw_adapter_source *from = &w->lora->from;
    const char *name = param->work->name;
    const int64_t elems = sw_shape_elems(&param->work->layout.whole);
    SW_TRY(sw_adapter_check(from, name, &param->work->layout.whole));
    for (int64_t at = 0; at < elems; at += PIECE) {
        const int64_t n = sw_min_i64(elems - at, PIECE);
        SW_TRY(sw_adapter_read(from, name, at, n, piece));
        SW_TRY(sw_weights_set(w, param, at, n, piece));
    }
    return SW_OK;
}

const struct sw_adapted_layer *sw_weights_layer_of(const struct sw_weights *w,
                                                   const char *magnitudes)
{
    int32_t i = 0;
    for (; i + 1 < w->lora->n_layers; i++) {
        const size_t n = strlen(w->lora->layers[i].module);
        if (strncmp(w->lora->layers[i].module, magnitudes, n) == 0 &&
            strcmp(magnitudes + n, ".lora_magnitude_vector") == 0) {
            break;
        }
    }
    return &w->lora->layers[i];
}

bool sw_weights_is_adapted(const struct sw_weights *w, const char *bias)
{
    char a[600];
    return sw_adapter_beside_bias(bias, a, sizeof a) && sw_weights_find(w, a);
}

/* Without this check, a tensor that matches no parameter would be dropped silently. */
static sw_status check_all_used(const struct sw_weights *w, int64_t n_used)
{
    const struct sw_adapter_source *from = &w->lora->from;
    for (int64_t i = 0;
         i < sw_safetensors_count(from->file) && n_used < sw_safetensors_count(from->file); i++) {
        const struct sw_safetensor *tensor = sw_safetensors_at(from->file, i);
        bool found = false;
        for (int32_t p = 0; p < w->params.n && !found; p++) {
            char full[600];
            const char *name = w->params.items[p].work->name;
            found = sw_weights_keeps(w, name) &&
                    strcmp(sw_adapter_name(name, sw_weights_is_adapted(w, name), full, sizeof full),
                           tensor->name) == 0;
        }
        if (!found) {
            return SW_FAIL(
                SW_E_FORMAT,
                "%s: tensor %s is not part of this model; the adapter belongs to another base",
                tensor->file, tensor->name);
        }
    }
    return SW_OK;
}

sw_status sw_weights_read_adapter(struct sw_weights *w)
{
    if (!w->lora || !w->lora->continues) {
        return SW_OK;
    }
    float *piece = sw_alloc("engine", PIECE * sizeof *piece);
    SW_TRY_ALLOC(piece, "reading an adapter");
    sw_status st = SW_OK;
    int64_t n_used = 0;
    for (int32_t i = 0; i < w->params.n && st >= 0; i++) {
        if (sw_weights_keeps(w, w->params.items[i].work->name)) {
            st = load_one(w, &w->params.items[i], piece);
            n_used++;
        }
    }
    sw_free(piece);
    st = st < 0 ? st : check_all_used(w, n_used);
    sw_adapter_close(&w->lora->from);
    return st;
}

/* ---- descriptions for checkpoints and PEFT ---- */

static bool put_copy_of(const struct sw_weights *w, struct sw_json_doc *doc, struct sw_json *object,
                        const char *key)
{
    char path[64];
    snprintf(path, sizeof path, "spillway.lora.%s", key);
    const struct sw_json *value = sw_config_value(w->config, path);
    return value ? sw_json_put_copy(doc, object, key, value) != NULL
                 : sw_json_put(doc, object, key, SW_JSON_NULL) != NULL;
}

/* "all-linear" is written out as a list, as PEFT does. */
static bool put_targets(const struct sw_weights *w, struct sw_json_doc *doc, struct sw_json *object)
{
    if (!w->lora->spec.all_linear) {
        return put_copy_of(w, doc, object, "target_modules");
    }
    struct sw_json *list = sw_json_put(doc, object, "target_modules", SW_JSON_ARRAY);
    bool good = list != NULL;
    for (int32_t i = 0; good && i < w->lora->n_layers; i++) {
        good = sw_json_put_str(doc, list, NULL, w->lora->layers[i].module) != NULL;
    }
    return good;
}

/* Names the classifier head explicitly: PEFT adds some heads by itself, but not all. */
static bool put_saved(const struct sw_weights *w, struct sw_json_doc *doc, struct sw_json *object)
{
    const struct sw_lora *spec = &w->lora->spec;
    const struct sw_lora none = {.saved = spec->saved, .n_saved = spec->n_saved};
    char inside[300];
    snprintf(inside, sizeof inside, "%s.weight", spec->head ? spec->head : "");
    if (!spec->saves_head || sw_lora_saves(&none, inside)) {
        return put_copy_of(w, doc, object, "modules_to_save");
    }
    struct sw_json *list = sw_json_put(doc, object, "modules_to_save", SW_JSON_ARRAY);
    bool good = list != NULL;
    for (int i = 0; good && i < spec->n_saved; i++) {
        good = sw_json_put_str(doc, list, NULL, spec->saved[i]) != NULL;
    }
    return good && sw_json_put_str(doc, list, NULL, spec->head) != NULL;
}

static bool put_alpha(const struct sw_weights *w, struct sw_json_doc *doc, struct sw_json *object)
{
    const double alpha = w->lora->spec.alpha;
    return alpha == floor(alpha) && alpha < 0x1p53
               ? sw_json_put_i64(doc, object, "lora_alpha", (int64_t)alpha) != NULL
               : sw_json_put_f64(doc, object, "lora_alpha", alpha) != NULL;
}

/* The task in PEFT's words. */
static const char *task_type(const struct sw_task *task)
{
    static const struct {
        const char *head, *type;
    } types[] = {{"causal", "CAUSAL_LM"},          {"seq2seq", "SEQ_2_SEQ_LM"},
                 {"tokens", "TOKEN_CLS"},          {"answers", "QUESTION_ANS"},
                 {"masked", "FEATURE_EXTRACTION"}, {"pretrain", "FEATURE_EXTRACTION"}};
    for (size_t i = 0; i < SW_LEN(types); i++) {
        if (strcmp(types[i].head, task->head) == 0) {
            return types[i].type;
        }
    }
    return "SEQ_CLS";
}

/* Writes adapter_config.json. */
static bool put_adapter(const struct sw_weights *w, struct sw_json_doc *doc, struct sw_json *object)
{
    static const char *const copied[] = {"r",
                                         "lora_dropout",
                                         "use_rslora",
                                         "use_dora",
                                         "bias",
                                         "exclude_modules",
                                         "layers_to_transform",
                                         "layers_pattern",
                                         "rank_pattern",
                                         "alpha_pattern"};
    const bool in_out = w->lora->n_layers > 0 && w->lora->layers[0].in_out;
    bool good = sw_json_put_str(doc, object, "peft_type", "LORA") &&
                sw_json_put_str(doc, object, "task_type", task_type(w->model->task)) &&
                (w->source.folder
                     ? sw_json_put_str(doc, object, "base_model_name_or_path", w->source.folder)
                     : sw_json_put(doc, object, "base_model_name_or_path", SW_JSON_NULL)) &&
                sw_json_put_bool(doc, object, "inference_mode", true) &&
                sw_json_put_bool(doc, object, "fan_in_fan_out", in_out) &&
                put_alpha(w, doc, object) && put_targets(w, doc, object) &&
                put_saved(w, doc, object);
    for (size_t i = 0; good && i < SW_LEN(copied); i++) {
        good = put_copy_of(w, doc, object, copied[i]);
    }
    return good;
}

static bool put_base(const struct sw_weights *w, struct sw_json_doc *doc, struct sw_json *object)
{
    struct sw_json *tensors = sw_json_put(doc, object, "tensors", SW_JSON_OBJECT);
    bool good = tensors && sw_json_put_str(doc, object, "digest", sw_digest_name());
    for (int32_t i = 0; good && i < w->params.n; i++) {
        const struct sw_parameter *param = &w->params.items[i];
        good = !param->digest ||
               sw_json_put_str(doc, tensors, param->work->name, param->digest) != NULL;
    }
    return good;
}

bool sw_weights_put_lora(const struct sw_weights *w, struct sw_json_doc *doc, struct sw_json *root)
{
    if (!w->lora) {
        return true;
    }
    struct sw_json *adapter = sw_json_put(doc, root, "adapter", SW_JSON_OBJECT);
    struct sw_json *base = sw_json_put(doc, root, "base", SW_JSON_OBJECT);
    return adapter && base && put_adapter(w, doc, adapter) && put_base(w, doc, base);
}

static const char *text_of(const struct sw_json *object, const char *key)
{
    const struct sw_json *value = object ? sw_json_get(object, key) : NULL;
    return value && value->type == SW_JSON_STRING ? value->string : "none";
}

void sw_weights_check_base(const struct sw_weights *w, const struct sw_ckpt *ckpt,
                           struct sw_str *refusal)
{
    const struct sw_json *run = sw_ckpt_meta(ckpt)->config;
    const struct sw_json *base = run ? sw_json_get(run, "base") : NULL;
    const struct sw_json *tensors = base ? sw_json_get(base, "tensors") : NULL;
    const struct sw_parameter *first = NULL;
    int n = 0, n_base = 0;
    if (!w->lora || !base) {
        return; /* the arithmetic differs, which is reported already */
    }
    if (strcmp(text_of(base, "digest"), sw_digest_name()) != 0) {
        sw_log(SW_LOG_WARN,
               "%s: its digests of the base are %s, but this build computes %s; the base is not "
               "compared",
               sw_ckpt_path(ckpt), text_of(base, "digest"), sw_digest_name());
        return;
    }
    for (int32_t i = 0; i < w->params.n; i++) {
        const struct sw_parameter *param = &w->params.items[i];
        n_base += param->digest != NULL;
        if (param->digest && strcmp(param->digest, text_of(tensors, param->work->name)) != 0) {
            first = first ? first : param;
            n++;
        }
    }
    if (n > 0) {
        sw_str_printf(refusal,
                      "%sits adapters were trained on another base: %d of %d tensors differ, first "
                      "%s (digest %s, here %s)",
                      refusal->len ? "; and " : "", n, n_base, first->work->name,
                      text_of(tensors, first->work->name), first->digest);
    }
}
