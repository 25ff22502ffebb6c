// SPDX-License-Identifier: Apache-2.0
// The most layers of a model, of the width that it has, with which its plan fits a cluster.
#include <stdio.h>
#include <string.h>

#include "json/json.h"
#include "look/private.h"
#include "model/model.h"
#include "spillway/look.h"

/* By the planner's measure of its work: about half a minute of a processor. */
static const int64_t MOST_INSTRS = INT64_C(48) << 18;
enum { MOST = SW_MODEL_MOST_LAYERS };

/* Lists of one item a layer. */
static const char *const per_layer[] = {"layer_types", "no_rope_layers"};

struct state {
    const struct sw_engine_options *options;
    int ranks;
    struct sw_json_doc *doc;                        /* config.json */
    struct sw_model_key key;                        /* of the layers */
    const struct sw_json *items[SW_LEN(per_layer)]; /* the model's own; NULL = there is no list */
    int64_t planned;
    bool is_cut; /* more layers may fit, and planning them takes long */
    struct fit { /* the most layers that fit; 0 = none */
        int64_t layers, parameters;
        size_t bytes[SW_TIER_COUNT], there[SW_TIER_COUNT]; /* of the rank that takes most */
    } best;
    struct lack { /* the fewest layers that do not fit, though fewer may; 0 = none */
        int64_t layers;
        size_t missing; /* 0 = they have no plan for another reason */
        enum sw_tier tier;
    } least;
    int64_t too_few;   /* layers that have no plan, as they are too few for the stages; 0 = none */
    char refused[256]; /* why the last of these have no plan */
};

/* ---- the model ---- */

static sw_status read_model(const struct sw_engine_options *o, struct sw_json_doc **out)
{
    bool is_folder;
    if (!o->model.path) {
        return SW_FAIL(SW_E_ARG, "the most layers of a model: wanted a model, got none");
    }
    return sw_weights_read_model(o, out, &is_folder);
}

/* The key of the layers, and how many there are. */
static sw_status find_key(struct state *s, int64_t *layers)
{
    const struct sw_json *type = sw_json_get(sw_json_root(s->doc), "model_type");
    const struct sw_model_ops *family =
        type && type->type == SW_JSON_STRING ? sw_model_family(type->string) : NULL;
    struct sw_model *model = NULL;
    if (!family || !family->sizes[SW_SIZE_LAYERS].key) {
        return SW_FAIL(SW_E_UNSUP,
                       "the most layers of a model: the family %.40s has no number of "
                       "layers",
                       type && type->type == SW_JSON_STRING ? type->string : "is unknown, which");
    }
    SW_TRY(sw_model_open(s->doc, NULL, &model));
    *layers = model->layers;
    sw_model_close(model);
    s->key = family->sizes[SW_SIZE_LAYERS];
    for (size_t k = 0; k < SW_LEN(per_layer); k++) {
        const struct sw_json *list = sw_json_get(sw_json_root(s->doc), per_layer[k]);
        s->items[k] = list ? list->first : NULL;
    }
    return SW_OK;
}

/* Writes as many items as layers, which are those of the model again and again. False: out of
 * memory */
static bool put_items(const struct state *s, int k, int64_t layers)
{
    const struct sw_json *item = s->items[k];
    if (!item) {
        return true;
    }
    struct sw_json *list = sw_json_put(s->doc, sw_json_root(s->doc), per_layer[k], SW_JSON_ARRAY);
    bool good = list != NULL;
    for (int64_t i = 0; i < layers && good; i++) {
        good = sw_json_put_copy(s->doc, list, NULL, item) != NULL;
        item = item->next ? item->next : s->items[k];
    }
    return good;
}

static sw_status write_model(const struct state *s, int64_t layers, struct sw_str *out)
{
    struct sw_json *root = sw_json_root(s->doc);
    struct sw_json *other = s->key.alias ? sw_json_get(root, s->key.alias) : NULL;
    if (other) { /* it would contradict */
        sw_json_remove(root, other);
    }
    bool good = sw_json_put_i64(s->doc, root, s->key.key, layers) != NULL;
    for (int k = 0; k < (int)SW_LEN(per_layer); k++) {
        good = good && put_items(s, k, layers);
    }
    if (!good) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for a model");
    }
    sw_json_write(root, 0, out);
    return out->failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a model") : SW_OK;
}

/* ---- a try ---- */

static void take(struct state *s, const struct sw_lineup *lineup, int64_t layers)
{
    s->best = (struct fit){layers, sw_engine_parameters(lineup->stages[0].engine), {0}, {0}};
    for (int k = 0; k < lineup->n; k++) {
        const struct sw_engine_facts f = sw_engine_facts(lineup->stages[k].engine);
        const size_t there[SW_TIER_COUNT] = {[SW_TIER_DEVICE] = f.device->memory_bytes,
                                             [SW_TIER_HOST] = f.device->host_bytes,
                                             [SW_TIER_DISK] = f.device->disk_bytes};
        s->planned += sw_plan_count_ops(f.plan);
        for (int t = 0; t < SW_TIER_COUNT; t++) {
            const size_t bytes = f.plan->tier_bytes[t];
            s->best.bytes[t] = s->best.bytes[t] > bytes ? s->best.bytes[t] : bytes;
            s->best.there[t] = there[t];
        }
    }
}

/* Notes why there is no plan. It fails if no number of layers would change that. */
static sw_status note(struct state *s, int64_t layers, const struct sw_plan_refusal *refusal,
                      sw_status st)
{
    const bool lacks = st == SW_E_NOMEM && refusal->missing > 0;
    const bool is_first = s->best.layers == 0 && s->least.layers == 0;
    s->planned += refusal->n_instrs;
    if (!lacks && (is_first || (st != SW_E_CONFIG && st != SW_E_UNSUP && st != SW_E_ARG))) {
        return st;
    }
    if (!lacks) {
        snprintf(s->refused, sizeof s->refused, "%.*s", (int)strcspn(sw_error_message(), "\n"),
                 sw_error_message());
    }
    if (lacks || s->best.layers > 0) {
        s->least = (struct lack){layers, lacks ? refusal->missing : 0, refusal->tier};
    } else {
        s->too_few = layers;
    }
    return SW_OK;
}

static sw_status try_layers(struct state *s, int64_t layers)
{
    struct sw_engine_options o = *s->options;
    struct sw_plan_refusal refusal = {.missing = 0};
    struct sw_lineup lineup;
    struct sw_str model = {0};
    sw_status st = write_model(s, layers, &model);
    o.model.path = model.ptr;
    st = st < 0 ? st : sw_lineup_try(&o, s->ranks, &refusal, &lineup);
    sw_str_fini(&model);
    if (st >= 0) {
        take(s, &lineup, layers);
        sw_lineup_close(&lineup);
        return SW_OK;
    }
    return note(s, layers, &refusal, st);
}

static bool may_go_on(struct state *s)
{
    s->is_cut = s->is_cut || s->planned > MOST_INSTRS;
    return !s->is_cut;
}

/* Doubles the layers until they do not fit, then bisects: those below are fewer than a pipeline has
 * stages, or fit. */
static sw_status find(struct state *s, int64_t from)
{
    SW_TRY(try_layers(s, from));
    while (s->best.layers == 0 && s->least.layers - s->too_few > 1) {
        SW_TRY(try_layers(s, s->too_few + (s->least.layers - s->too_few) / 2));
    }
    while (s->best.layers > 0 && s->best.layers < MOST && s->least.layers == 0 && may_go_on(s)) {
        SW_TRY(try_layers(s, sw_min_i64(2 * s->best.layers, MOST)));
    }
    while (s->best.layers > 0 && s->least.layers - s->best.layers > 1 && may_go_on(s)) {
        SW_TRY(try_layers(s, s->best.layers + (s->least.layers - s->best.layers) / 2));
    }
    return SW_OK;
}

/* ---- the report ---- */

static void print_text(const struct state *s, const struct sw_cluster *c, struct sw_str *out)
{
    const struct lack *least = &s->least;
    char bytes[32];
    sw_str_printf(out, "on %s: %s%lld layers fit on %d ranks, %lld parameters (%.4g billion)\n",
                  c->name, s->is_cut ? "at least " : "", (long long)s->best.layers, s->ranks,
                  (long long)s->best.parameters, (double)s->best.parameters / 1e9);
    sw_look_print_tiers(s->best.bytes, s->best.there, out);
    if (least->missing > 0) {
        sw_str_printf(out, "%lld layers lack %zu bytes (%s) of %s memory\n",
                      (long long)least->layers, least->missing,
                      sw_format_bytes(bytes, sizeof bytes, (double)least->missing),
                      sw_tier_name(least->tier));
    } else if (least->layers > 0) {
        sw_str_printf(out, "%lld layers are refused: %s\n", (long long)least->layers, s->refused);
    }
    if (s->is_cut) {
        sw_str_puts(out, "others were not tried, as planning them takes long\n");
    } else if (s->best.layers == MOST) {
        sw_str_puts(out, "a model has no more layers\n");
    }
}

static void print_json(const struct state *s, const struct sw_cluster *c, struct sw_str *out)
{
    sw_look_put_text("{\"name\":", c->name, out);
    sw_str_printf(out, ",\"ranks\":%d,\"layers\":%lld,\"parameters\":%lld,\"all_tried\":%s,",
                  s->ranks, (long long)s->best.layers, (long long)s->best.parameters,
                  s->is_cut ? "false" : "true");
    sw_look_put_tiers(s->best.bytes, s->best.there, out);
    if (s->least.missing > 0) {
        sw_str_printf(out, ",\"next\":{\"layers\":%lld,\"missing_bytes\":%zu,\"tier\":\"%s\"}",
                      (long long)s->least.layers, s->least.missing, sw_tier_name(s->least.tier));
    } else if (s->least.layers > 0) {
        sw_str_printf(out, ",\"next\":{\"layers\":%lld", (long long)s->least.layers);
        sw_look_put_text(",\"refused\":", s->refused, out);
        sw_str_putc(out, '}');
    }
    sw_str_puts(out, "}\n");
}

/* ---- entry point ---- */

static sw_status refuse(const struct state *s)
{
    return SW_FAIL(SW_E_NOMEM,
                   "not even %lld layer%s fit%s on %d ranks: %zu bytes of %s memory "
                   "are missing%s%s",
                   (long long)s->least.layers, s->least.layers == 1 ? "" : "s",
                   s->least.layers == 1 ? "s" : "", s->ranks, s->least.missing,
                   sw_tier_name(s->least.tier), s->too_few > 0 ? "; fewer are refused: " : "",
                   s->too_few > 0 ? s->refused : "");
}

/* Fills in the best and the least of s. */
static sw_status search(struct state *s)
{
    int64_t layers = 0;
    SW_TRY(read_model(s->options, &s->doc));
    sw_status st = find_key(s, &layers);
    st = st < 0 ? st : find(s, layers);
    sw_json_close(s->doc);
    return st;
}

sw_status sw_look_most_layers(const struct sw_engine_options *options, int ranks,
                              struct look_most *out)
{
    struct state s = {.options = options, .ranks = ranks};
    SW_TRY(search(&s));
    *out = (struct look_most){s.best.layers, s.best.parameters, s.is_cut};
    return SW_OK;
}

static sw_status report(const struct sw_engine_options *options, const struct sw_plan_cluster *on,
                        const struct sw_cluster *c, struct sw_str *out)
{
    struct sw_engine_options o = *options;
    struct state s = {.options = &o, .ranks = (int)on->ranks};
    struct sw_str device = {0};
    sw_str_printf(&device, "sim:%s", on->name);
    SW_TRY_ALLOC(device.ptr, "a plan");
    o.run.device = device.ptr;
    sw_status st = search(&s);
    st = st < 0 ? st : s.best.layers == 0 ? refuse(&s) : SW_OK;
    if (st >= 0) {
        (on->json ? print_json : print_text)(&s, c, out);
    }
    sw_str_fini(&device);
    return st;
}

sw_status sw_plan_largest_text(const struct sw_engine_options *options,
                               const struct sw_plan_cluster *on, char **out)
{
    struct sw_cluster *c = NULL;
    struct sw_str text = {0};
    SW_TRY_OPTIONS(options);
    SW_TRY_OPTIONS(on);
    SW_TRY(sw_cluster_open(on->name ? on->name : "", &c));
    sw_status st = sw_cluster_check_size(c, on->nodes, on->ranks);
    st = st < 0 ? st : report(options, on, c, &text);
    sw_cluster_close(c);
    return sw_look_give(st, &text, out);
}
