// SPDX-License-Identifier: Apache-2.0
// Decides which modules are adapted, and emits the two low-rank products.
#include "nn/nn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nn/pattern.h"

enum { NAME_CAP = 256 };

static const struct sw_lora *lora_of(const struct sw_graph *g)
{
    return SW_CONTAINER(g->adapted.by, struct sw_lora, super);
}

static bool ends_with(const char *text, size_t len, const char *end)
{
    const size_t n = strlen(end);
    return n <= len && memcmp(text + len - n, end, n) == 0;
}

/* ---- trained parameters ---- */

bool sw_lora_is_adapter(const char *param)
{
    const size_t len = strlen(param);
    return ends_with(param, len, ".lora_A.weight") || ends_with(param, len, ".lora_B.weight") ||
           sw_lora_is_magnitude(param);
}

bool sw_lora_is_magnitude(const char *param)
{
    return ends_with(param, strlen(param), ".lora_magnitude_vector");
}

/* True if the first n characters are a module that an entry matches, or the classifier head. In
 * DistilBERT "classifier" matches pre_classifier, too, as in PEFT. */
static bool saves_module(const struct sw_lora *lora, const char *name, size_t n)
{
    if (lora->saves_head && lora->head && ends_with(name, n, lora->head)) {
        return true;
    }
    for (int i = 0; i < lora->n_saved; i++) {
        if (ends_with(name, n, lora->saved[i])) {
            return true;
        }
    }
    return false;
}

static bool is_in(const char *module, const char *name)
{
    const size_t n = strlen(module);
    return strncmp(module, name, n) == 0 && name[n] == '.';
}

bool sw_lora_saves(const struct sw_lora *lora, const char *param)
{
    bool saves = false;
    for (const char *dot = strchr(param, '.'); dot && !saves; dot = strchr(dot + 1, '.')) {
        saves = saves_module(lora, param, (size_t)(dot - param));
    }
    return saves;
}

/* True for the bias of a layer that is known to have an adapter. */
static bool is_biased(const struct sw_lora *lora, const char *param)
{
    for (int i = 0; i < lora->n_biased; i++) {
        const size_t n = strlen(lora->biased[i]);
        if (strncmp(lora->biased[i], param, n) == 0 && strcmp(param + n, ".bias") == 0) {
            return true;
        }
    }
    return false;
}

static bool trains(const struct sw_adapter *adapter, const char *param)
{
    const struct sw_lora *lora = SW_CONTAINER(adapter, struct sw_lora, super);
    return sw_lora_is_adapter(param) || sw_lora_saves(lora, param) ||
           (lora->bias == SW_LORA_BIAS_ALL && ends_with(param, strlen(param), ".bias")) ||
           is_biased(lora, param);
}

void sw_lora_init(struct sw_lora *lora)
{
    *lora = (struct sw_lora){.super.trains = trains};
}

/* ---- which modules ---- */

static bool is_entry(const char *entry, const char *module)
{
    const size_t len = strlen(module), n = strlen(entry);
    return strcmp(entry, module) == 0 ||
           (n < len && module[len - n - 1] == '.' && ends_with(module, len, entry));
}

/* Finds the entry that matches; -1 = none. */
static sw_status find_entry(const struct sw_lora_names *names, const char *module, int *out)
{
    *out = -1;
    for (int i = 0; i < names->n && *out < 0; i++) {
        bool matches = is_entry(names->items[i], module);
        if (names->is_pattern) {
            SW_TRY(sw_nn_pattern_match(names->items[i], module, &matches));
        }
        *out = matches ? i : -1;
    }
    return SW_OK;
}

/* True if a list of blocks has that name: `pattern` matches its end, and some text precedes it. */
static sw_status is_list(const char *pattern, const char *name, size_t len, bool *out)
{
    struct sw_str whole = {0}, list = {0};
    sw_str_printf(&whole, ".*\\.(%s)", pattern);
    sw_str_append(&list, name, len);
    const sw_status st = whole.failed || list.failed
                             ? SW_FAIL(SW_E_NOMEM, "out of host memory for a pattern")
                             : sw_nn_pattern_match(sw_str_text(&whole), sw_str_text(&list), out);
    sw_str_fini(&whole);
    sw_str_fini(&list);
    return st;
}

/* The number of the module's block, -1 = none: the last number between dots that follows two names,
 * or a list that `pattern` names. */
static sw_status block_of(const char *module, const char *pattern, double *out)
{
    const char *dot = strchr(module, '.');
    *out = -1;
    for (dot = dot ? strchr(dot + 1, '.') : NULL; dot; dot = strchr(dot + 1, '.')) {
        const size_t n = strspn(dot + 1, "0123456789");
        bool counts = n > 0 && dot[1 + n] == '.';
        if (counts && pattern) {
            SW_TRY(is_list(pattern, module, (size_t)(dot - module), &counts));
        }
        *out = counts ? strtod(dot + 1, NULL) : *out;
    }
    return SW_OK;
}

static sw_status is_in_layers(const struct sw_lora *lora, const char *module, bool *out)
{
    double block = -1;
    *out = lora->n_layers == 0;
    if (!*out && lora->lists.n == 0) {
        SW_TRY(block_of(module, NULL, &block));
    }
    for (int i = 0; i < lora->lists.n && !*out && block < 0; i++) {
        SW_TRY(block_of(module, lora->lists.items[i], &block));
    }
    for (int i = 0; i < lora->n_layers && !*out; i++) {
        *out = lora->layers[i] == block;
    }
    return SW_OK;
}

static bool is_head(const struct sw_lora *lora, const char *module)
{
    return lora->head && (strcmp(lora->head, module) == 0 || is_in(lora->head, module));
}

static sw_status is_excluded(const struct sw_lora *lora, const char *module, bool *out)
{
    int i = -1;
    SW_TRY(find_entry(&lora->exclude, module, &i));
    *out = i >= 0;
    return SW_OK;
}

/* Complete names match in any block, as in PEFT. */
static sw_status is_target(const struct sw_lora *lora, const char *module, bool *out)
{
    int i = -1;
    bool excluded, in_layers;
    *out = false;
    SW_TRY(is_excluded(lora, module, &excluded));
    SW_TRY(is_in_layers(lora, module, &in_layers));
    if (lora->all_linear) {
        *out = !excluded && in_layers && !is_head(lora, module) && !sw_lora_saves(lora, module) &&
               !saves_module(lora, module, strlen(module));
        return SW_OK;
    }
    SW_TRY(find_entry(&lora->target, module, &i));
    const bool whole =
        i >= 0 && (lora->target.is_pattern || strcmp(lora->target.items[i], module) == 0);
    *out = !excluded && i >= 0 && (whole || in_layers);
    return SW_OK;
}

static sw_status value_of(const struct sw_lora_exception *exceptions, int n, const char *module,
                          double *value)
{
    struct sw_str pattern = {0};
    bool matches = false;
    sw_status st = SW_OK;
    for (int i = 0; i < n && !matches && st >= 0; i++) {
        sw_str_clear(&pattern);
        sw_str_printf(&pattern, "(.*\\.)?(%s)", exceptions[i].pattern);
        st = pattern.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a pattern")
                            : sw_nn_pattern_match(sw_str_text(&pattern), module, &matches);
        if (matches) {
            *value = exceptions[i].value;
        }
    }
    sw_str_fini(&pattern);
    return st;
}

/* ---- the two products ---- */

static sw_value matrix(sw_graph *g, const char *prefix, const char *name, struct sw_shape shape,
                       struct sw_init init)
{
    char full[NAME_CAP + 32];
    snprintf(full, sizeof full, "%s.%s.weight", prefix, name);
    return sw_param(g, full, shape, init);
}

/* W' = m (W + scaling B A) / |W + scaling B A|, by rows of outputs; the norm counts as constant.
 * up: output of the adapter. A dropped-out input takes a product of its own, as in PEFT, whose
 * y + (m / norm - 1) W x + .. this is. */
static sw_value to_magnitudes(sw_graph *g, const struct sw_nn_layer *layer, sw_value y, sw_value x,
                              sw_value up, const struct sw_adapted *of)
{
    char full[NAME_CAP + 32];
    snprintf(full, sizeof full, "%s.lora_magnitude_vector", layer->prefix);
    const sw_value m =
        sw_param(g, full, SW_SHAPE(layer->spec->out), (struct sw_init){SW_INIT_ONE, 0});
    sw_nn_split_linear(g, m, 0, -1, layer->spec);
    const sw_value inverse = sw_inverse_norms(g, layer->weight, of);
    const sw_value factor = sw_mul(g, m, inverse);
    if (x == layer->x) {
        return sw_mul(g, sw_add(g, y, up), factor);
    }
    const sw_value z = sw_linear(g, x, layer->weight, SW_NO_VALUE, layer->spec->in_out);
    const sw_value more = sw_add(g, sw_mul(g, sw_add(g, z, up), factor), sw_scale(g, z, -1));
    return sw_add(g, y, more);
}

/* The scaling is applied between the two products, where the data is smallest. */
static sw_value adapt(sw_graph *g, const struct sw_nn_layer *layer, sw_value product, int64_t r,
                      double scaling)
{
    const struct sw_linear_spec *spec = layer->spec;
    const struct sw_init kaiming = {SW_INIT_UNIFORM, 1 / sqrt((double)spec->in)}; /* a = sqrt 5 */
    const sw_value a = matrix(g, layer->prefix, "lora_A", SW_SHAPE(r, spec->in), kaiming);
    const sw_value b = matrix(g, layer->prefix, "lora_B", SW_SHAPE(spec->out, r),
                              (struct sw_init){SW_INIT_ZERO, 0});
    const struct sw_adapted noted = {layer->prefix, layer->param, a, b, scaling, spec->in_out};
    sw_nn_split_linear(g, a, -1, 1, spec);
    sw_nn_split_linear(g, b, 0, -1, spec);
    sw_scope_push(g, "lora");
    const sw_value x = sw_dropout(g, layer->x, lora_of(g)->dropout);
    const sw_value low = sw_scale(g, sw_linear(g, x, a, SW_NO_VALUE, false), scaling);
    const sw_value up = sw_linear(g, low, b, SW_NO_VALUE, false);
    const sw_value y =
        lora_of(g)->dora ? to_magnitudes(g, layer, product, x, up, &noted) : sw_add(g, product, up);
    sw_scope_pop(g);
    sw_graph_note_adapted(g, &noted);
    return y;
}

static sw_status plan_layer(const struct sw_lora *lora, const char *module, double *r,
                            double *scaling, bool *target)
{
    double alpha = lora->alpha;
    *r = lora->r;
    SW_TRY(is_target(lora, module, target));
    SW_TRY(value_of(lora->ranks, lora->n_ranks, module, r));
    SW_TRY(value_of(lora->alphas, lora->n_alphas, module, &alpha));
    *scaling = lora->rslora ? alpha / sqrt(*r) : alpha / *r;
    if (*target && (!isfinite((float)*scaling) || (float)*scaling == 0)) {
        return SW_FAIL(SW_E_CONFIG,
                       "lora: %s is scaled by %g (lora_alpha %g, r %g), which fp32 "
                       "cannot hold",
                       module, *scaling, alpha, *r);
    }
    return SW_OK;
}

/* y: the product, with the bias unless DoRA adds it later. */
static sw_value with_adapter(sw_graph *g, const struct sw_nn_layer *layer, sw_value y)
{
    double r = 0, scaling = 0;
    bool target = false;
    const sw_status st = plan_layer(lora_of(g), layer->prefix, &r, &scaling, &target);
    if (st < 0) {
        sw_graph_fail(g, st, "%s", sw_error_message());
    } else if (target && sw_lora_saves(lora_of(g), g->values[layer->param].name)) {
        sw_graph_fail(
            g, SW_E_CONFIG,
            "lora: %s is in target_modules and in modules_to_save; name it in one of them",
            layer->prefix);
    }
    return target && st >= 0 ? adapt(g, layer, y, (int64_t)r, scaling) : y;
}

/* Trains the bias of a layer with an adapter, if the configuration says so. */
static void train_bias(sw_graph *g, const struct sw_nn_layer *layer)
{
    bool target = false;
    if (layer->bias < 0 || lora_of(g)->bias != SW_LORA_BIAS_ADAPTED) {
        return;
    }
    const sw_status st = is_target(lora_of(g), layer->prefix, &target);
    if (st < 0) {
        sw_graph_fail(g, st, "%s", sw_error_message());
    } else if (target) {
        g->values[layer->bias].needs_grad = true;
    }
}

/* The output of DoRA is a factor times the product, and the bias is added to that. */
sw_value sw_nn_adapted(sw_graph *g, const struct sw_nn_layer *layer)
{
    const bool in_out = layer->spec->in_out;
    if (!g->adapted.by || g->status < 0) {
        return sw_linear(g, layer->x, layer->weight, layer->bias, in_out);
    }
    train_bias(g, layer);
    if (!lora_of(g)->dora || layer->bias < 0) {
        return with_adapter(g, layer, sw_linear(g, layer->x, layer->weight, layer->bias, in_out));
    }
    const sw_value y = sw_linear(g, layer->x, layer->weight, SW_NO_VALUE, in_out);
    return sw_add(g, with_adapter(g, layer, y), layer->bias);
}

/* ---- entries without a match ---- */

static sw_status check_entry(const struct sw_lora *lora, const struct sw_graph *g,
                             const char *entry)
{
    const struct sw_lora_names one = {&entry, 1, lora->target.is_pattern};
    bool any = false, excluded;
    for (int32_t i = 0; i < g->adapted.n; i++) {
        int found = -1;
        SW_TRY(find_entry(&one, g->adapted.items[i].module, &found));
        if (found >= 0) {
            return SW_OK;
        }
    }
    for (int32_t i = 0; i < g->n_params; i++) {
        char module[NAME_CAP];
        int found = -1;
        snprintf(module, sizeof module, "%s", g->values[g->params[i]].name);
        char *dot = strrchr(module, '.');
        *(dot ? dot : module) = '\0';
        SW_TRY(find_entry(&one, module, &found));
        SW_TRY(is_excluded(lora, module, &excluded));
        if (found >= 0 && !excluded) {
            return SW_FAIL(SW_E_CONFIG,
                           "lora: target_modules \"%s\" matches %s, which cannot have an "
                           "adapter; linear layers of the blocks in layers_to_transform can "
                           "(modules_to_save trains other modules in full)",
                           entry, module);
        }
        any = any || found >= 0;
    }
    if (any) { /* matches are excluded, as in PEFT's files, which write "all-linear" out */
        return SW_OK;
    }
    return SW_FAIL(SW_E_CONFIG, "lora: target_modules \"%s\" matches no layer of this model",
                   entry);
}

/* PEFT itself adds both "score" and "classifier" for classification, and one of them matches
 * nothing. */
static sw_status check_saved(const struct sw_lora *lora, const struct sw_graph *g,
                             const char *entry)
{
    const struct sw_lora one = {.saved = &entry, .n_saved = 1};
    const bool added =
        lora->tells_classes && (strcmp(entry, "score") == 0 || strcmp(entry, "classifier") == 0);
    bool found = added;
    for (int32_t i = 0; i < g->n_params && !found; i++) {
        found = sw_lora_saves(&one, g->values[g->params[i]].name);
    }
    return found ? SW_OK
                 : SW_FAIL(SW_E_CONFIG,
                           "lora: modules_to_save \"%s\" matches no module of this model", entry);
}

static sw_status check_exception(const struct sw_graph *g, const char *key,
                                 const struct sw_lora_exception *exception)
{
    for (int32_t i = 0; i < g->adapted.n; i++) {
        double value = NAN;
        SW_TRY(value_of(exception, 1, g->adapted.items[i].module, &value));
        if (!isnan(value)) {
            return SW_OK;
        }
    }
    return SW_FAIL(SW_E_CONFIG, "lora: %s \"%s\" matches no adapted layer", key,
                   exception->pattern);
}

sw_status sw_lora_check(const struct sw_lora *lora, const struct sw_graph *g)
{
    for (int i = 0; i < lora->target.n && !lora->all_linear; i++) {
        SW_TRY(check_entry(lora, g, lora->target.items[i]));
    }
    for (int i = 0; i < lora->n_saved; i++) {
        SW_TRY(check_saved(lora, g, lora->saved[i]));
    }
    for (int i = 0; i < lora->n_ranks; i++) {
        SW_TRY(check_exception(g, "rank_pattern", &lora->ranks[i]));
    }
    for (int i = 0; i < lora->n_alphas; i++) {
        SW_TRY(check_exception(g, "alpha_pattern", &lora->alphas[i]));
    }
    return g->adapted.n > 0
               ? SW_OK
               : SW_FAIL(SW_E_CONFIG, "lora: no linear layer of this model gets an adapter");
}
