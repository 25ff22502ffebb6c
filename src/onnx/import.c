// SPDX-License-Identifier: Apache-2.0
// A model from an ONNX file: sizes, the task and parameters are learned from a plan of the graph at
// a small size. Invariant: a parameter has the same name and shape at every size.
#include <stdio.h>
#include <string.h>

#include "onnx/import.h"
#include "onnx/reading.h"

enum { SMALL_BATCH = 3, SMALL_TOKENS = 7 };

static struct sw_onnx_import *import_of(const struct sw_model *model)
{
    return SW_CONTAINER(model, struct sw_onnx_import, super);
}

/* ---- the file ---- */

bool sw_onnx_is_file(const char *path)
{
    const size_t len = strlen(path);
    return len > 5 && strcmp(path + len - 5, ".onnx") == 0;
}

const char *sw_onnx_source(const struct sw_json *config)
{
    const struct sw_json *path = sw_json_get(config, SW_ONNX_KEY);
    return path && path->type == SW_JSON_STRING ? path->string : NULL;
}

static int32_t output_named(const struct sw_onnx_graph *g, const char *name)
{
    for (int32_t i = 0; i < g->n_outputs; i++) {
        if (strcmp(g->output_names[i], name) == 0) {
            return i;
        }
    }
    return -1;
}

static sw_status check_inputs(const struct sw_onnx_graph *g)
{
    static const char *const known[] = {"input_ids", "attention_mask", "token_type_ids",
                                        "position_ids", "pixel_values"};
    for (int32_t i = 0; i < g->n_inputs; i++) {
        const struct sw_onnx_graph_value *input = &g->values[g->inputs[i]];
        const bool image = strcmp(input->name, "pixel_values") == 0;
        bool found = false;
        for (size_t k = 0; k < SW_LEN(known); k++) {
            found = found || strcmp(input->name, known[k]) == 0;
        }
        if (!found || input->rank != (image ? 4 : 2)) {
            char shape[128];
            return SW_FAIL(SW_E_UNSUP,
                           "%s: input \"%s\" %s; wanted input_ids, attention_mask, "
                           "token_type_ids, position_ids [batch, sequence], or pixel_values "
                           "[batch, channels, height, width]",
                           g->path, input->name, sw_onnx_value_words(input, shape, sizeof shape));
        }
    }
    return SW_OK;
}

static int64_t dim_of(const struct sw_onnx_graph *g, const char *input, int d, int64_t or_else)
{
    const int32_t v = sw_onnx_graph_find(g, input);
    return v >= 0 && g->values[v].dims[d] > 0 ? g->values[v].dims[d] : or_else;
}

static bool has_input(const struct sw_onnx_graph *g, const char *name)
{
    const int32_t v = sw_onnx_graph_find(g, name);
    return v >= 0 && g->values[v].kind == ONNX_VALUE_INPUT;
}

/* Reads what a graph does not say: special tokens, sizes of images and of texts. */
static sw_status read_config(struct sw_json_doc *doc, struct sw_model *model,
                             const struct sw_onnx_graph *g)
{
    const struct sw_json *config = sw_json_root(doc);
    int64_t size = 0, channels = 3;
    model->pad_id = sw_model_token_id(config, "pad_token_id");
    model->eos_id = sw_model_token_id(config, "eos_token_id");
    SW_TRY(sw_json_get_i64(doc, config, "max_position_embeddings", 0, &model->max_tokens));
    if (!has_input(g, "pixel_values")) {
        return SW_OK;
    }
    SW_TRY(sw_json_get_i64(doc, config, "image_size", 0, &size));
    SW_TRY(sw_json_get_i64(doc, config, "num_channels", channels, &channels));
    model->channels = dim_of(g, "pixel_values", 1, channels);
    model->image_height = dim_of(g, "pixel_values", 2, size);
    model->image_width = dim_of(g, "pixel_values", 3, size);
    return model->image_height > 0 && model->image_width > 0 && model->channels > 0
               ? SW_OK
               : SW_FAIL(SW_E_CONFIG,
                         "%s: the size of pixel_values is free, and no config.json beside it has "
                         "image_size",
                         g->path);
}

/* ---- outputs and the task ---- */

static sw_status choose_outputs(struct sw_onnx_import *m, const char *task)
{
    const struct sw_onnx_graph *g = m->graph;
    const int32_t start = output_named(g, "start_logits"), end = output_named(g, "end_logits");
    const int32_t logits = output_named(g, "logits");
    if (start >= 0 && end >= 0 && (!task || strcmp(task, "answers") == 0)) {
        m->outputs[0] = start;
        m->outputs[1] = end;
        m->n_outputs = 2;
        return SW_OK;
    }
    const int32_t hidden = output_named(g, "last_hidden_state");
    m->n_outputs = 1;
    m->outputs[0] = task && strcmp(task, "embed") == 0 && hidden >= 0 ? hidden
                    : logits >= 0                                     ? logits
                    : hidden >= 0                                     ? hidden
                                                                      : 0;
    return g->n_outputs > 0 ? SW_OK : SW_FAIL(SW_E_FORMAT, "%s: it has no output", g->path);
}

/* The first match of this emission; NULL: none. */
static const struct sw_onnx_match *first_of(const struct sw_onnx_plan *p,
                                            sw_value (*emit)(struct sw_onnx_build *,
                                                             const struct sw_onnx_match *))
{
    for (int32_t i = 0; i < p->n; i++) {
        if (p->matches[i].by->emit == emit) {
            return &p->matches[i];
        }
    }
    return NULL;
}

static void learn_sizes(struct sw_onnx_import *m, const struct sw_onnx_plan *p)
{
    struct sw_model *model = &m->super;
    int64_t most = 0;
    for (int32_t i = 0; i < p->n; i++) {
        const struct sw_onnx_match *match = &p->matches[i];
        if (match->by->emit != sw_onnx_emit_embedding) {
            continue;
        }
        const int64_t *table = sw_onnx_value(p, match->weight)->dims;
        const bool of_ids =
            match->n_in > 0 && strcmp(sw_onnx_value(p, match->in[0])->name, "input_ids") == 0;
        model->vocab = of_ids ? table[0] : model->vocab;
        model->width = of_ids ? table[1] : model->width;
        if (match->dim == ONNX_IDS_COUNTED || match->dim == ONNX_IDS_REAL) {
            const int64_t rows = table[0] - match->first;
            most = most == 0 ? rows : sw_min_i64(most, rows);
        }
    }
    const struct sw_onnx_match *conv = first_of(p, sw_onnx_emit_conv);
    model->width = conv ? sw_onnx_value(p, conv->weight)->dims[0] : model->width;
    model->is_endless = most == 0;
    most = most > 0 ? most : model->max_tokens > 0 ? model->max_tokens : 2048;
    model->max_tokens = dim_of(m->graph, "input_ids", 1, most);
    model->layers = p->n_blocks;
}

/* The task that a graph without a named one is for. */
static const char *default_task(const struct sw_onnx_import *m, const struct sw_onnx_plan *p,
                                const struct sw_onnx_graph_value *out)
{
    const struct sw_onnx_match *attention = first_of(p, sw_onnx_emit_attention);
    const int64_t last = out->rank > 0 ? out->dims[out->rank - 1] : 0;
    if (m->n_outputs == 2) {
        return "answers";
    }
    if (m->super.channels > 0) {
        return "images";
    }
    if (strcmp(m->graph->output_names[m->outputs[0]], "last_hidden_state") == 0) {
        return "embed";
    }
    if (out->rank == 2) {
        return last == 1 ? "regression" : "classify";
    }
    return last != m->super.vocab                     ? "tokens"
           : attention && attention->attention.causal ? "causal"
                                                      : "masked";
}

/* Ranks of the outputs of tasks; others have no head here. */
static const struct {
    const char *head;
    int rank;
} heads[] = {{"causal", 3},           {"masked", 3},
             {"tokens", 3},           {"embed", 3},
             {"classify", 2},         {"multi-label", 2},
             {"regression", 2},       {"answers", 2},
             {"images", 2},           {"images-multi-label", 2},
             {"images-regression", 2}};

static sw_status choose_task(struct sw_onnx_import *m, const struct sw_onnx_plan *p,
                             const struct sw_model_options *options)
{
    const int32_t v = p->graph->outputs[m->outputs[0]];
    const struct sw_onnx_graph_value *out = sw_onnx_value(p, v);
    const char *asked = options && options->task ? options->task : default_task(m, p, out);
    const struct sw_task *task = sw_task_of(asked);
    struct sw_model *model = &m->super;
    char shape[128];
    if (!task) {
        struct sw_str all = {0};
        sw_task_list(&all);
        const sw_status st = SW_FAIL(SW_E_CONFIG, "unknown task \"%s\"; wanted one of: %s", asked,
                                     sw_str_text(&all));
        sw_str_fini(&all);
        return st;
    }
    bool fits = false;
    for (size_t i = 0; i < SW_LEN(heads); i++) {
        fits = fits || (strcmp(heads[i].head, task->head) == 0 && heads[i].rank == out->rank);
    }
    const bool two = strcmp(task->head, "answers") == 0;
    const bool is_image = strncmp(task->head, "images", 6) == 0;
    if (!fits || sw_task_rows(task) > 1 || two != (m->n_outputs == 2) ||
        is_image != (model->channels > 0)) {
        return SW_FAIL(SW_E_CONFIG,
                       "%s: task \"%s\": the graph has no head for it; output \"%s\" is %s, as "
                       "for the task \"%s\"",
                       m->graph->path, asked, m->graph->output_names[m->outputs[0]],
                       sw_onnx_value_words(out, shape, sizeof shape), default_task(m, p, out));
    }
    model->task = task;
    model->labels = out->dims[out->rank - 1];
    const bool counts = sw_model_is_labelled(model) && !two;
    if (options && options->labels > 0 && counts && options->labels != model->labels) {
        return SW_FAIL(SW_E_CONFIG, "%s: output \"%s\" has %lld classes, and %lld are wanted",
                       m->graph->path, m->graph->output_names[m->outputs[0]],
                       (long long)model->labels, (long long)options->labels);
    }
    return SW_OK;
}

/* ---- parameters ---- */

/* Names that exporters invent for weights that they have transposed. */
static bool is_invented(const char *name)
{
    return strncmp(name, "onnx::", 6) == 0 || strncmp(name, "val_", 4) == 0 ||
           strncmp(name, "_val_", 5) == 0 || strncmp(name, "t_", 2) == 0 || strcmp(name, "t") == 0;
}

static float element(const struct sw_onnx_data *data, int64_t i)
{
    float x;
    if (data->type == ONNX_F32 && !data->strided) {
        memcpy(&x, (const char *)data->elems + (size_t)i * sizeof x, sizeof x);
    } else {
        sw_onnx_data_floats(data, i, 1, &x);
    }
    return x;
}

/* The pages of a weight that was read whole leave this process. */
static void forget(const struct sw_onnx_data *data)
{
    if (data->i_file >= 0) {
        sw_onnx_forget(data->elems, (size_t)data->bytes);
    }
}

/* True if b [C,V] is the transpose of a [V,C]. */
static bool are_transposed(const struct sw_onnx_data *a, const struct sw_onnx_data *b)
{
    enum { SAMPLES = 64 };
    const int64_t rows = a->dims[0], columns = a->dims[1];
    if (a->rank != 2 || b->rank != 2 || b->dims[0] != columns || b->dims[1] != rows) {
        return false;
    }
    for (int64_t i = 0; i < SAMPLES; i++) {
        const int64_t at = a->n / SAMPLES * i + i % columns, r = at % a->n / columns;
        const int64_t c = at % a->n % columns;
        if (element(a, r * columns + c) != element(b, c * rows + r)) {
            return false;
        }
    }
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t c = 0; c < columns; c++) {
            if (element(a, r * columns + c) != element(b, c * rows + r)) {
                return false;
            }
        }
    }
    return true;
}

static bool is_taken(const struct sw_onnx_import *m, const char *name)
{
    return sw_names_find(&m->names, 0, name) >= 0 || sw_onnx_graph_find(m->graph, name) >= 0;
}

/* The table of which an invented weight is a transposed copy; -1 = none. */
static int32_t find_tie(const struct sw_onnx_import *m, int32_t weight)
{
    const struct sw_onnx_data *turned = m->graph->values[weight].data;
    for (int i = 0; i < m->n_tables; i++) {
        const struct sw_onnx_param *p = &m->params[m->tables[i]];
        const struct sw_onnx_data *data = m->graph->values[p->value].data;
        if (p->copy < 0 && are_transposed(data, turned)) {
            forget(data);
            forget(turned);
            return m->tables[i];
        }
    }
    return -1;
}

static sw_status add_param(struct sw_onnx_import *m, const struct sw_onnx_plan *p, int32_t weight,
                           const struct sw_onnx_match *match)
{
    const char *name = m->graph->values[weight].name;
    const char *scope = p->graph->nodes[match->node].scope;
    const bool turns = weight == match->weight && match->in_out && is_invented(name);
    if (m->param_of[weight] >= 0) {
        return SW_OK;
    }
    const int32_t tied = turns ? find_tie(m, weight) : -1;
    if (tied >= 0) {
        m->params[tied].copy = weight;
        m->param_of[weight] = tied;
        return SW_OK;
    }
    if (turns && *scope) {
        const char *own = sw_arena_printf(&m->arena, "%s.weight", scope);
        SW_TRY_ALLOC(own, "an ONNX graph");
        name = is_taken(m, own) ? name : own;
    }
    if (!sw_names_add(&m->names, 0, name, m->n_params)) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for an ONNX graph");
    }
    if (match->by->emit == sw_onnx_emit_embedding && m->n_tables < (int)SW_LEN(m->tables)) {
        m->tables[m->n_tables++] = m->n_params;
    }
    m->param_of[weight] = m->n_params;
    m->params[m->n_params++] = (struct sw_onnx_param){name, weight, turns, -1};
    return SW_OK;
}

static sw_status list_params(struct sw_onnx_import *m, const struct sw_onnx_plan *p)
{
    const size_t n = (size_t)m->graph->n_values + 1;
    m->params = sw_arena_array(&m->arena, n, sizeof *m->params);
    m->param_of = sw_arena_array(&m->arena, n, sizeof *m->param_of);
    SW_TRY_ALLOC(m->params && m->param_of, "an ONNX graph");
    memset(m->param_of, 0xff, n * sizeof *m->param_of);
    for (int32_t i = 0; i < p->n; i++) {
        const struct sw_onnx_match *match = &p->matches[i];
        SW_TRY(match->weight >= 0 ? add_param(m, p, match->weight, match) : SW_OK);
        SW_TRY(match->bias >= 0 ? add_param(m, p, match->bias, match) : SW_OK);
        for (int k = 0; k < match->n_in; k++) {
            if (sw_onnx_value(p, match->in[k])->kind == ONNX_VALUE_WEIGHT) {
                SW_TRY(add_param(m, p, match->in[k], match));
            }
        }
    }
    return SW_OK;
}

/* The module of the last product, if it is not a table of words: adapters leave it out. */
static sw_status name_head(struct sw_onnx_import *m, const struct sw_onnx_plan *p)
{
    const int32_t i = p->match_of[p->graph->outputs[m->outputs[0]]];
    if (i < 0 || p->matches[i].by->emit != sw_onnx_emit_linear) {
        return SW_OK;
    }
    const char *name = m->params[m->param_of[p->matches[i].weight]].name;
    const size_t len = strlen(name), end = strlen(".weight");
    const bool is_weight = len > end && strcmp(name + len - end, ".weight") == 0;
    m->super.head_module = sw_arena_strndup(&m->arena, name, is_weight ? len - end : len);
    SW_TRY_ALLOC(m->super.head_module, "an ONNX graph");
    return SW_OK;
}

/* ---- the model ---- */

static const char *alias(const struct sw_model *model, const char *name, int i, char *buf,
                         size_t cap)
{
    (void)model;
    snprintf(buf, cap, "%s", name);
    return i == 0 ? buf : NULL;
}

static bool ignores(const struct sw_model *model, const char *file_name)
{
    (void)model;
    (void)file_name;
    return false;
}

static void release(struct sw_model *model)
{
    struct sw_onnx_import *m = import_of(model);
    sw_onnx_graph_close(m->graph);
    sw_names_close(&m->names);
    sw_arena_fini(&m->arena);
}

static const struct sw_model_ops ops = {
    .model_type = "onnx",
    .classes = {{"a graph of ONNX", "causal"}},
    .bytes = sizeof(struct sw_onnx_import),
    .release = release,
    .forward = sw_onnx_forward,
    .alias = alias,
    .ignores = ignores,
};

bool sw_onnx_is_import(const struct sw_model *model)
{
    return model && model->ops == &ops;
}

/* A graph that the plan takes may still not fit our layers. */
static sw_status try_forward(const struct sw_onnx_import *m, int64_t batch, int64_t tokens)
{
    const struct sw_forward_spec spec = {.batch = batch,
                                         .tokens = tokens,
                                         .has_labels = m->super.task->n_losses > 0,
                                         .want_logits = true};
    struct sw_graph *g = NULL;
    sw_value loss;
    SW_TRY(sw_graph_open(&(struct sw_graph_options){.dtype = SW_F32, .grad_dtype = SW_F32}, &g));
    sw_onnx_forward(&m->super, g, &spec, &loss);
    const sw_status st = sw_graph_status(g);
    sw_graph_close(g);
    return st;
}

static sw_status open_model(struct sw_onnx_import *m, struct sw_json_doc *doc,
                            const struct sw_model_options *options)
{
    struct sw_onnx_plan *plan = NULL;
    SW_TRY(sw_onnx_graph_open(sw_onnx_source(sw_json_root(doc)), &m->graph));
    SW_TRY(check_inputs(m->graph));
    SW_TRY(read_config(doc, &m->super, m->graph));
    SW_TRY(choose_outputs(m, options ? options->task : NULL));
    const bool image = m->super.channels > 0;
    const struct sw_onnx_plan_spec small = {
        .batch = dim_of(m->graph, image ? "pixel_values" : "input_ids", 0, SMALL_BATCH),
        .tokens = image ? 1 : dim_of(m->graph, "input_ids", 1, SMALL_TOKENS),
        .has_mask = true};
    SW_TRY(sw_onnx_plan_open(m, &small, &plan));
    learn_sizes(m, plan);
    sw_status st = choose_task(m, plan, options);
    st = st < 0 ? st : list_params(m, plan);
    st = st < 0 ? st : name_head(m, plan);
    sw_onnx_plan_close(plan);
    SW_TRY(st);
    return try_forward(m, small.batch, small.tokens);
}

sw_status sw_onnx_model_open(struct sw_json_doc *doc, const struct sw_model_options *options,
                             struct sw_model **out)
{
    struct sw_onnx_import *m = sw_alloc_zero("model", 1, sizeof *m);
    SW_TRY_ALLOC(m, "the model");
    sw_arena_init(&m->arena, "model");
    m->super.ops = &ops;
    snprintf(m->class_name, sizeof m->class_name, "a graph of ONNX");
    m->super.class_name = m->class_name;
    const sw_status st = open_model(m, doc, options);
    if (st < 0) {
        sw_model_close(&m->super);
        return st;
    }
    *out = &m->super;
    return SW_OK;
}

/* ---- values ---- */

static const struct sw_onnx_param *param_named(const struct sw_onnx_import *m, const char *name)
{
    const int32_t i = sw_names_find(&m->names, 0, name);
    return i >= 0 ? &m->params[i] : NULL;
}

/* The shape of a parameter, which the file may have transposed. */
static struct sw_shape param_shape(const struct sw_onnx_import *m, const struct sw_onnx_param *p)
{
    const struct sw_onnx_graph_value *v = &m->graph->values[p->value];
    struct sw_shape shape = {.rank = v->rank};
    for (int d = 0; d < v->rank && d < SW_MAX_RANK; d++) {
        shape.dims[d] = v->dims[p->transposed ? 1 - d : d];
    }
    return shape;
}

sw_status sw_onnx_model_fetch(const struct sw_model *model, const char *name,
                              const struct sw_shape *shape, int64_t first, int64_t n, float *out)
{
    const struct sw_onnx_import *m = import_of(model);
    const struct sw_onnx_param *p = param_named(m, name);
    const struct sw_shape own = p ? param_shape(m, p) : (struct sw_shape){0};
    char a[96], b[96];
    if (!p || !sw_shape_equal(&own, shape)) {
        return SW_FAIL(SW_E_FORMAT, "%s: tensor %s is %s, the model wants %s", m->graph->path, name,
                       p ? sw_shape_format(&own, a, sizeof a) : "missing",
                       sw_shape_format(shape, b, sizeof b));
    }
    const struct sw_onnx_data *data = m->graph->values[p->value].data;
    if (!p->transposed) {
        sw_onnx_data_floats(data, first, n, out);
        return SW_OK;
    }
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = (first + i) / own.dims[1], column = (first + i) % own.dims[1];
        out[i] = element(data, column * own.dims[0] + row);
    }
    if (first + n == sw_shape_elems(&own)) {
        forget(data);
    }
    return SW_OK;
}

void sw_onnx_model_describe(const struct sw_model *model, struct sw_str *out)
{
    enum { END_ELEMS = 16 };
    const struct sw_onnx_import *m = import_of(model);
    for (int32_t i = 0; i < m->n_params; i++) {
        const struct sw_onnx_data *data = m->graph->values[m->params[i].value].data;
        const struct sw_shape shape = param_shape(m, &m->params[i]);
        char text[96];
        sw_str_printf(out, "%s %s ", m->params[i].name, sw_shape_format(&shape, text, sizeof text));
        for (int64_t k = 0; k < END_ELEMS && k < data->n; k++) {
            sw_str_printf(out, "%a %a ", (double)element(data, k),
                          (double)element(data, data->n - 1 - k));
        }
    }
}

/* ---- writing ---- */

struct rewrite {
    const struct sw_onnx_import *of;
    const struct sw_onnx_values *values;
    const struct sw_onnx_param *turned; /* whose values are in memory */
    float *elems;
};

static const struct sw_onnx_param *param_stored_as(const struct sw_onnx_import *m,
                                                   const char *initializer, int32_t *out_value)
{
    const int32_t v = sw_onnx_graph_find(m->graph, initializer);
    *out_value = v;
    return v >= 0 && m->param_of[v] >= 0 ? &m->params[m->param_of[v]] : NULL;
}

static bool has_new(void *ctx, const char *name)
{
    const struct rewrite *r = ctx;
    int32_t v;
    return param_stored_as(r->of, name, &v) != NULL;
}

/* Reads a parameter whole, because its transpose needs elements from all of it. */
static sw_status load_turned(struct rewrite *r, const struct sw_onnx_param *p)
{
    enum { SOME = 1 << 16 };
    const struct sw_shape shape = param_shape(r->of, p);
    const int64_t elems = sw_shape_elems(&shape);
    if (r->turned == p) {
        return SW_OK;
    }
    sw_free(r->elems);
    r->turned = NULL;
    r->elems = sw_alloc("onnx", (size_t)elems * sizeof *r->elems);
    SW_TRY_ALLOC(r->elems, p->name);
    for (int64_t at = 0; at < elems; at += SOME) {
        SW_TRY(r->values->fetch(r->values->ctx, p->name, &shape, at, sw_min_i64(SOME, elems - at),
                                r->elems + at));
    }
    r->turned = p;
    return SW_OK;
}

static sw_status fetch_new(void *ctx, const char *name, int64_t first, int64_t n, float *out)
{
    struct rewrite *r = ctx;
    int32_t v;
    const struct sw_onnx_param *p = param_stored_as(r->of, name, &v);
    const struct sw_shape shape = param_shape(r->of, p);
    if (!p->transposed && p->copy != v) {
        return r->values->fetch(r->values->ctx, p->name, &shape, first, n, out);
    }
    SW_TRY(load_turned(r, p));
    for (int64_t i = 0; i < n; i++) {
        const int64_t row = (first + i) / shape.dims[0], column = (first + i) % shape.dims[0];
        out[i] = r->elems[column * shape.dims[1] + row];
    }
    return SW_OK;
}

sw_status sw_onnx_model_write(const struct sw_model *model, const struct sw_onnx_values *values,
                              const char *folder, struct sw_onnx_summary *out)
{
    const struct sw_onnx_import *m = import_of(model);
    struct rewrite r = {.of = m, .values = values};
    const struct sw_onnx_new_values with = {.has = has_new, .fetch = fetch_new, .ctx = &r};
    const sw_status st = sw_onnx_rewrite(m->graph, folder, values ? &with : NULL);
    const char *slash = strrchr(m->graph->path, '/');
    sw_free(r.elems);
    SW_TRY(st);
    *out = (struct sw_onnx_summary){.n_files = 1,
                                    .opset = m->graph->opset,
                                    .is_rewritten = true,
                                    .nodes = m->graph->n_nodes,
                                    .weights = m->n_params,
                                    .external = m->graph->n_files > 1};
    snprintf(out->files[0], sizeof out->files[0], "%s", slash ? slash + 1 : m->graph->path);
    for (int i = 0; i < m->graph->n_files; i++) {
        out->bytes += (int64_t)m->graph->files[i].len;
    }
    return SW_OK;
}
