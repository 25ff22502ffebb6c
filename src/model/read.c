// SPDX-License-Identifier: Apache-2.0
// Code that the families' readers of config.json share: single keys, sizes, and the model's task.
#include <stdio.h>
#include <string.h>

#include "model/model.h"

/* ---- single keys ---- */

sw_status sw_model_read_amount(struct sw_json_doc *doc, const struct sw_json *config,
                               const char *key, double fallback, double *out)
{
    SW_TRY(sw_json_get_f64(doc, config, key, fallback, out));
    if (!(*out >= 0)) {
        return SW_FAIL(SW_E_FORMAT, "%s: %s is %g; wanted 0 or more", sw_json_name(doc), key, *out);
    }
    return SW_OK;
}

sw_status sw_model_read_dropout(struct sw_json_doc *doc, const struct sw_json *config,
                                const char *key, double fallback, double *out)
{
    double p = 0;
    SW_TRY(sw_json_get_f64(doc, config, key, fallback, &p));
    if (!(p >= 0 && p < 1)) {
        return SW_FAIL(SW_E_FORMAT, "%s: %s is %g; wanted 0 <= p < 1", sw_json_name(doc), key, p);
    }
    *out = p;
    return SW_OK;
}

sw_status sw_model_only(struct sw_json_doc *doc, const struct sw_json *config, const char *key,
                        bool built)
{
    bool value = built;
    SW_TRY(sw_json_get_bool(doc, config, key, built, &value));
    if (value != built) {
        return SW_FAIL(SW_E_UNSUP, "%s: %s %s is not built in this version", sw_json_name(doc), key,
                       value ? "true" : "false");
    }
    return SW_OK;
}

int64_t sw_model_token_id(const struct sw_json *config, const char *key)
{
    const struct sw_json *value = sw_json_get(config, key);
    value = value && value->type == SW_JSON_ARRAY ? value->first : value;
    return value && value->type == SW_JSON_INT ? value->integer : -1;
}

int64_t sw_model_padding_row(const struct sw_json *config, const struct sw_model *model,
                             int64_t fallback)
{
    const struct sw_json *pad = sw_json_get(config, "pad_token_id");
    if (!pad) {
        return fallback;
    }
    const int64_t row = pad->type == SW_JSON_INT ? pad->integer : -1 - model->vocab;
    return row >= 0 ? row : sw_max_i64(-1, model->vocab + row);
}

/* Activations by their names in configurations. Those with weights of their own (prelu, xielu) are
 * missing. */
static const struct {
    const char *name;
    enum sw_act act;
} acts[] = {
    {"gelu", SW_ACT_GELU},
    {"gelu_python", SW_ACT_GELU},
    {"gelu_new", SW_ACT_GELU_TANH},
    {"gelu_fast", SW_ACT_GELU_TANH},
    {"gelu_accurate", SW_ACT_GELU_TANH},
    {"gelu_python_tanh", SW_ACT_GELU_TANH},
    {"gelu_pytorch_tanh", SW_ACT_GELU_TANH},
    {"gelu_10", SW_ACT_GELU_10},
    {"quick_gelu", SW_ACT_QUICK_GELU},
    {"relu", SW_ACT_RELU},
    {"relu2", SW_ACT_RELU2},
    {"relu6", SW_ACT_RELU6},
    {"leaky_relu", SW_ACT_LEAKY_RELU},
    {"silu", SW_ACT_SILU},
    {"swish", SW_ACT_SILU},
    {"hardswish", SW_ACT_HARDSWISH},
    {"mish", SW_ACT_MISH},
    {"tanh", SW_ACT_TANH},
    {"sigmoid", SW_ACT_SIGMOID},
    {"laplace", SW_ACT_LAPLACE},
    {"linear", SW_ACT_NONE},
};

sw_status sw_model_find_act(const struct sw_json_doc *doc, const char *key, const char *name,
                            enum sw_act *out)
{
    char all[320];
    size_t used = 0;
    for (size_t i = 0; i < SW_LEN(acts); i++) {
        if (strcmp(acts[i].name, name) == 0) {
            *out = acts[i].act;
            return SW_OK;
        }
        used +=
            (size_t)snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", acts[i].name);
    }
    return SW_FAIL(SW_E_UNSUP, "%s: %s \"%s\" is not an activation this version knows (it has: %s)",
                   sw_json_name(doc), key, name, all);
}

sw_status sw_model_read_act(const struct sw_json_doc *doc, const struct sw_json *config,
                            const char *key, const char *fallback, enum sw_act *out)
{
    const char *name = NULL;
    SW_TRY(sw_json_get_str(doc, config, key, fallback, &name));
    return sw_model_find_act(doc, key, name, out);
}

/* ---- sizes ---- */

sw_status sw_model_check_size(const struct sw_json_doc *doc, const char *key, int64_t value)
{
    if (value < 1 || value > INT32_MAX) {
        return SW_FAIL(SW_E_FORMAT, "%s: %s is %lld; wanted a positive 32-bit number",
                       sw_json_name(doc), key, (long long)value);
    }
    return SW_OK;
}

static bool is_given(const struct sw_json *config, const char *key)
{
    const struct sw_json *value = key ? sw_json_get(config, key) : NULL;
    return value && value->type != SW_JSON_NULL;
}

sw_status sw_model_read_size(struct sw_json_doc *doc, const struct sw_json *config,
                             const struct sw_model_key *key, int64_t fallback, int64_t *out)
{
    const bool other = is_given(config, key->alias);
    int64_t same;
    SW_TRY(sw_json_get_i64(doc, config, key->key, fallback, out));
    if (!other) {
        return sw_model_check_size(doc, key->key, *out);
    }
    SW_TRY(sw_json_get_i64(doc, config, key->alias, *out, &same));
    if (is_given(config, key->key) && same != *out) {
        return SW_FAIL(SW_E_FORMAT, "%s: %s is %lld and %s %lld; wanted one number",
                       sw_json_name(doc), key->key, (long long)*out, key->alias, (long long)same);
    }
    *out = same;
    return sw_model_check_size(doc, key->alias, same);
}

sw_status sw_model_read_sizes(struct sw_json_doc *doc, const struct sw_json *config,
                              struct sw_model *model, int64_t *out_heads, int64_t *out_inner)
{
    const struct sw_model_key *keys = model->ops->sizes;
    int64_t *const out[SW_SIZE_COUNT] = {
        [SW_SIZE_WIDTH] = &model->width, [SW_SIZE_LAYERS] = &model->layers,
        [SW_SIZE_HEADS] = out_heads,     [SW_SIZE_INNER] = out_inner,
        [SW_SIZE_VOCAB] = &model->vocab, [SW_SIZE_TOKENS] = &model->max_tokens,
    };
    for (int i = 0; i < SW_SIZE_COUNT; i++) {
        const bool by_width = i == SW_SIZE_INNER && keys[i].fallback == 0;
        if (keys[i].key) {
            SW_TRY(sw_model_read_size(doc, config, &keys[i],
                                      by_width ? 4 * model->width : keys[i].fallback, out[i]));
        } else if (i == SW_SIZE_INNER) {
            *out[i] = 4 * model->width;
        }
    }
    /* a plan grows with the layers and takes long before it is refused */
    if (model->layers > SW_MODEL_MOST_LAYERS) {
        return SW_FAIL(SW_E_FORMAT, "%s: %s is %lld; wanted at most %d", sw_json_name(doc),
                       keys[SW_SIZE_LAYERS].key, (long long)model->layers, SW_MODEL_MOST_LAYERS);
    }
    model->max_tokens -= model->ops->extra_tokens;
    if (keys[SW_SIZE_TOKENS].key && model->max_tokens < 1) {
        return SW_FAIL(SW_E_FORMAT, "%s: %s is %lld; wanted more than %lld", sw_json_name(doc),
                       keys[SW_SIZE_TOKENS].key,
                       (long long)(model->max_tokens + model->ops->extra_tokens),
                       (long long)model->ops->extra_tokens);
    }
    return SW_OK;
}

sw_status sw_model_check_parameters(const struct sw_json_doc *doc, const struct sw_model *model,
                                    double layer, int64_t inner)
{
    const struct sw_model_key *keys = model->ops->sizes;
    const double width = (double)model->width, most = 0x1p56;
    const double all =
        layer * (double)model->layers + width * ((double)model->vocab + (double)model->max_tokens);
    if (all > most) {
        return SW_FAIL(SW_E_FORMAT,
                       "%s: %s %lld, %s %lld, %s %lld, %s %lld: %.3g parameters; wanted at most "
                       "%.3g",
                       sw_json_name(doc), keys[SW_SIZE_WIDTH].key, (long long)model->width,
                       keys[SW_SIZE_INNER].key ? keys[SW_SIZE_INNER].key : "width of the MLP",
                       (long long)inner, keys[SW_SIZE_LAYERS].key, (long long)model->layers,
                       keys[SW_SIZE_VOCAB].key ? keys[SW_SIZE_VOCAB].key : "vocabulary",
                       (long long)model->vocab, all, most);
    }
    return SW_OK;
}

/* ---- the task ---- */

sw_status sw_model_read_labels(const struct sw_model_ops *ops, const struct sw_json_doc *doc,
                               const struct sw_json *config, int64_t *out)
{
    const struct sw_json *map = sw_json_get(config, "id2label");
    const bool has_map = map && map->type == SW_JSON_OBJECT && map->n_children > 0;
    const int64_t named = has_map ? map->n_children : ops->labels > 0 ? ops->labels : 2;
    int64_t labels;
    SW_TRY(sw_json_get_i64(doc, config, "num_labels", named, &labels));
    if (labels < 1) {
        return SW_FAIL(SW_E_FORMAT, "%s: num_labels is %lld", sw_json_name(doc), (long long)labels);
    }
    *out = labels;
    return SW_OK;
}

/* Problems of heads that classify texts and images, by problem_type. The first is the default of
 * model classes. */
enum { ONE_OF_SEVERAL, SOME_OF_THEM, NUMBERS, N_PROBLEMS };
static const char *const problems[N_PROBLEMS] = {"single_label_classification",
                                                 "multi_label_classification", "regression"};
static const char *const problem_tasks[][N_PROBLEMS] = {
    {"classify", "multi-label", "regression"},
    {"images", "images-multi-label", "images-regression"}};

/* The table row that contains a task, and its column; NULL: not in any. */
static const char *const *tasks_beside(const char *task, int *out_problem)
{
    for (size_t i = 0; i < SW_LEN(problem_tasks); i++) {
        for (int k = 0; k < N_PROBLEMS; k++) {
            if (strcmp(problem_tasks[i][k], task) == 0) {
                *out_problem = k;
                return problem_tasks[i];
            }
        }
    }
    return NULL;
}

/* Families whose image heads only classify write no problem_type. */
static const char *problem_of(const struct sw_model_ops *ops, const char *task)
{
    int problem = 0;
    return tasks_beside(task, &problem) && !ops->is_of_classes ? problems[problem] : NULL;
}

/* Chooses among `tasks` by problem_type and the number of labels. */
static sw_status read_problem(const struct sw_json_doc *doc, const struct sw_json *config,
                              int64_t labels, const char *const *tasks, const char **out)
{
    const char *problem = NULL;
    SW_TRY(sw_json_get_str(doc, config, "problem_type", NULL, &problem));
    *out = tasks[labels == 1 ? NUMBERS : ONE_OF_SEVERAL];
    for (int i = 0; problem && i < N_PROBLEMS; i++) {
        if (strcmp(problems[i], problem) == 0) {
            *out = tasks[i];
            return SW_OK;
        }
    }
    return !problem ? SW_OK
                    : SW_FAIL(SW_E_UNSUP,
                              "%s: problem_type \"%s\" is not built in this version (it has: "
                              "single_label_classification, multi_label_classification, "
                              "regression)",
                              sw_json_name(doc), problem);
}

/* The task under which classes list the head of `task`. */
static const char *class_task(const struct sw_task *task)
{
    int problem = 0;
    const char *const *tasks = tasks_beside(task->head, &problem);
    return tasks ? tasks[0] : task->head;
}

static const struct sw_model_class *class_with(const struct sw_model_ops *ops, const char *task)
{
    for (int i = 0; i < SW_MODEL_MAX_CLASSES && ops->classes[i].name; i++) {
        if (strcmp(ops->classes[i].task, task) == 0) {
            return &ops->classes[i];
        }
    }
    return NULL;
}

static bool has_head(const struct sw_model_ops *ops, const struct sw_task *task)
{
    const bool told = !ops->is_of_classes || strcmp(task->head, class_task(task)) == 0;
    return told && class_with(ops, class_task(task));
}

static sw_status fail_task(const struct sw_json_doc *doc, const struct sw_model_ops *ops,
                           const char *asked)
{
    struct sw_str has = {0};
    if (!sw_task_of(asked)) {
        sw_task_list(&has);
        const sw_status st = SW_FAIL(SW_E_CONFIG, "unknown task \"%s\"; wanted one of: %s", asked,
                                     sw_str_text(&has));
        sw_str_fini(&has);
        return st;
    }
    for (int i = 0; sw_task_at(i); i++) {
        if (has_head(ops, sw_task_at(i))) {
            sw_str_printf(&has, "%s%s", has.len ? ", " : "", sw_task_at(i)->name);
        }
    }
    const sw_status st = SW_FAIL(SW_E_CONFIG, "%s: task \"%s\": %s has no head for it (it has: %s)",
                                 sw_json_name(doc), asked, ops->model_type, sw_str_text(&has));
    sw_str_fini(&has);
    return st;
}

/* True if config.json names a class without a head. */
static bool is_trunk(const struct sw_model_ops *ops, const char *name)
{
    return ops->trunk_class && strcmp(ops->trunk_class, name) == 0;
}

/* The class that config.json names, or the first one. */
static const char *class_name(const struct sw_json *config, const struct sw_model_ops *ops)
{
    const struct sw_json *list = sw_json_get(config, "architectures");
    const bool given =
        list && list->type == SW_JSON_ARRAY && list->first && list->first->type == SW_JSON_STRING;
    return given ? list->first->string : ops->classes[0].name;
}

static sw_status find_class(const struct sw_json_doc *doc, const struct sw_json *config,
                            const struct sw_model_ops *ops, const struct sw_model_class **out)
{
    const char *name = class_name(config, ops);
    struct sw_str has = {0};
    for (int i = 0; i < SW_MODEL_MAX_CLASSES && ops->classes[i].name; i++) {
        if (strcmp(ops->classes[i].name, name) == 0) {
            *out = &ops->classes[i];
            sw_str_fini(&has);
            return SW_OK;
        }
        sw_str_printf(&has, "%s%s", i ? ", " : "", ops->classes[i].name);
    }
    if (is_trunk(ops, name)) {
        *out = &ops->classes[0];
        sw_str_fini(&has);
        return SW_OK;
    }
    const sw_status st =
        SW_FAIL(SW_E_UNSUP, "%s: architectures \"%s\" is not built in this version (it has: %s)",
                sw_json_name(doc), name, sw_str_text(&has));
    sw_str_fini(&has);
    return st;
}

/* Default number of labels: the family's; for numbers, one. */
static sw_status find_labels(const struct sw_json_doc *doc, const struct sw_json *config,
                             const struct sw_model_options *options, struct sw_model *model)
{
    int problem = N_PROBLEMS;
    const char *const *tasks = tasks_beside(model->task->head, &problem);
    const bool said = sw_json_get(config, "num_labels") || sw_json_get(config, "id2label");
    SW_TRY(sw_model_read_labels(model->ops, doc, config, &model->labels));
    if (model->task->n_losses > 0 && model->task->losses[0].kind == SW_LOSS_REWARD) {
        model->has_other_labels = said && model->labels != 1;
        model->labels = 1;
    } else if (options && options->labels > 0) {
        model->has_other_labels = said && options->labels != model->labels;
        model->labels = options->labels;
    } else if (problem == NUMBERS && !said && model->is_other_class) {
        model->labels = 1;
    }
    if (model->labels == 1 && problem == ONE_OF_SEVERAL) {
        const bool asked = options && options->labels > 0;
        return SW_FAIL(SW_E_CONFIG,
                       "%s: one class %s; wanted two or more (one number is the task \"%s\")",
                       sw_json_name(doc), asked ? "is asked for" : "in it", tasks[NUMBERS]);
    }
    return SW_OK;
}

sw_status sw_model_read_task(const struct sw_model_ops *ops, struct sw_json_doc *doc,
                             const struct sw_json *config, const struct sw_model_options *options,
                             struct sw_model *model)
{
    const struct sw_model_class *own = NULL;
    int64_t labels = 0;
    SW_TRY(find_class(doc, config, ops, &own));
    const char *asked = own->task;
    int problem = 0;
    const char *const *tasks = tasks_beside(own->task, &problem);
    if (options && options->task) {
        asked = options->task;
    } else if (tasks && !ops->is_of_classes) {
        SW_TRY(sw_model_read_labels(ops, doc, config, &labels));
        labels = options && options->labels > 0 ? options->labels : labels;
        SW_TRY(read_problem(doc, config, labels, tasks, &asked));
    }
    model->task = sw_task_of(asked);
    if (!model->task || !has_head(ops, model->task)) {
        return fail_task(doc, ops, asked);
    }
    const struct sw_model_class *wanted = class_with(ops, class_task(model->task));
    model->is_other_class =
        strcmp(wanted->task, own->task) != 0 || is_trunk(ops, class_name(config, ops));
    model->class_name = model->is_other_class ? wanted->name : own->name;
    return find_labels(doc, config, options, model);
}

bool sw_model_is_causal(const struct sw_model *model)
{
    return strcmp(model->task->head, "causal") == 0;
}

bool sw_model_is_seq2seq(const struct sw_model *model)
{
    return strcmp(model->task->head, "seq2seq") == 0;
}

bool sw_model_is_labelled(const struct sw_model *model)
{
    return strcmp(class_task(model->task), model->ops->classes[0].task) != 0 &&
           strcmp(model->task->head, "pretrain") != 0;
}

static bool is_in(const char *module, const char *param)
{
    const size_t n = module ? strlen(module) : 0;
    return module && strncmp(param, module, n) == 0 && param[n] == '.';
}

bool sw_model_may_begin(const struct sw_model *model, const char *param)
{
    const char *first = model->ops->classes[0].task;
    const bool of_head = !is_in(model->trunk, param) || is_in(model->pooler, param);
    return of_head && (model->is_other_class || strcmp(class_task(model->task), first) != 0);
}

bool sw_model_has_other_head(const struct sw_model *model, const char *param)
{
    return model->has_other_labels && is_in(model->head_module, param);
}

static bool put_labels(const struct sw_model *model, const char *const *label_names,
                       struct sw_json_doc *doc, struct sw_json *root)
{
    struct sw_json *names = sw_json_put(doc, root, "id2label", SW_JSON_OBJECT);
    struct sw_json *ids = names ? sw_json_put(doc, root, "label2id", SW_JSON_OBJECT) : NULL;
    bool good = ids != NULL;
    for (int64_t i = 0; good && i < model->labels; i++) {
        char id[32], number[40];
        snprintf(id, sizeof id, "%lld", (long long)i);
        snprintf(number, sizeof number, "LABEL_%lld", (long long)i);
        const char *name = label_names ? label_names[i] : number;
        good = sw_json_put_str(doc, names, id, name) && sw_json_put_i64(doc, ids, name, i);
    }
    return good && (!sw_json_get(root, "num_labels") ||
                    sw_json_put_i64(doc, root, "num_labels", model->labels));
}

sw_status sw_model_put_task(const struct sw_model *model, const char *const *label_names,
                            struct sw_json_doc *doc)
{
    struct sw_json *root = (struct sw_json *)(uintptr_t)sw_json_root(doc);
    const char *problem = problem_of(model->ops, model->task->head);
    const bool labelled = problem || strcmp(model->task->head, "tokens") == 0;
    const struct sw_json *said = sw_json_get(root, "id2label");
    const struct sw_json *number = sw_json_get(root, "num_labels");
    const bool agrees =
        said && said->n_children == model->labels && (!number || number->integer == model->labels);
    struct sw_json *list = sw_json_put(doc, root, "architectures", SW_JSON_ARRAY);
    bool good = list && sw_json_put_str(doc, list, NULL, model->class_name);
    if (good && problem) {
        good = sw_json_put_str(doc, root, "problem_type", problem) != NULL;
    }
    if (good && labelled && (label_names || !agrees)) {
        good = put_labels(model, label_names, doc, root);
    }
    return good ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory for config.json");
}

/* ---- inputs ---- */

/* Numbers of a row of labels: the classes, or the elements of a vector. */
static int64_t n_labels(const struct sw_model *model)
{
    const bool vectors =
        model->task->n_losses > 0 && model->task->losses[0].kind == SW_LOSS_CONTRAST;
    return vectors ? model->width : model->labels;
}

struct sw_task_sizes sw_model_sizes(const struct sw_model *model,
                                    const struct sw_forward_spec *spec)
{
    return (struct sw_task_sizes){{[SW_DIM_BATCH] = spec->batch,
                                   [SW_DIM_TOKENS] = spec->tokens,
                                   [SW_DIM_TARGETS] = spec->targets,
                                   [SW_DIM_LABELS] = n_labels(model),
                                   [SW_DIM_CHANNELS] = model->channels,
                                   [SW_DIM_HEIGHT] = model->image_height,
                                   [SW_DIM_WIDTH] = model->image_width}};
}

sw_value sw_model_input(sw_graph *g, const struct sw_model *model,
                        const struct sw_forward_spec *spec, const char *name)
{
    const struct sw_task_input *input = sw_task_input_of(model->task, name);
    const struct sw_task_sizes sizes = sw_model_sizes(model, spec);
    if (!input) {
        sw_graph_fail(g, SW_E_UNSUP, "%s reads %s, which the task \"%s\" does not have",
                      model->ops->model_type, name, model->task->name);
        return SW_NO_VALUE;
    }
    struct sw_shape shape = sw_task_shape(input, &sizes);
    if (input->absent == SW_ABSENT_COUNTED && !spec->is_packed) {
        shape = SW_SHAPE(sw_shape_last(&shape));
    }
    return sw_input(g, input->name, input->dtype, shape);
}
