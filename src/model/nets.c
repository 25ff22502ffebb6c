// SPDX-License-Identifier: Apache-2.0
// Two small networks from tutorials: CIFAR-10's, with two convolutions, and a text classifier with
// one bidirectional LSTM layer.
#include "model/nets.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "model/heads.h"

sw_value sw_nets_channels_first(sw_graph *g, sw_value x)
{
    return sw_transpose(g, sw_transpose(g, x, 1, 3), 2, 3);
}

/* Uniform within 1 / sqrt(fan_in). */
static sw_value leaf(sw_graph *g, const char *name, struct sw_shape shape, int64_t fan_in)
{
    const struct sw_init init = {SW_INIT_UNIFORM, 1 / sqrt((double)fan_in)};
    return sw_param(g, name, shape, init);
}

sw_value sw_nets_linear(sw_graph *g, const char *prefix, sw_value x, struct sw_shape weight)
{
    char name[96];
    const int64_t out = weight.dims[0], in = sw_shape_elems(&weight) / out;
    snprintf(name, sizeof name, "%s.weight", prefix);
    sw_value w = leaf(g, name, weight, in);
    w = weight.rank > 2 ? sw_reshape(g, w, SW_SHAPE(out, in)) : w;
    snprintf(name, sizeof name, "%s.bias", prefix);
    return sw_linear(g, x, w, leaf(g, name, SW_SHAPE(out), in), false);
}

const char *sw_nets_alias(const struct sw_model *model, const char *name, int i, char *buf,
                          size_t cap)
{
    (void)model;
    if (i > 0) {
        return NULL;
    }
    snprintf(buf, cap, "%s", name);
    return buf;
}

static bool ignores_nothing(const struct sw_model *model, const char *file_name)
{
    (void)model;
    (void)file_name;
    return false;
}

/* Reads an argument from "arguments", or beside model_type. */
static sw_status read_argument(struct sw_json_doc *doc, const struct sw_json *config,
                               const char *key, int64_t fallback, int64_t *out)
{
    const struct sw_json *arguments = sw_json_get(config, "arguments");
    const struct sw_model_key named = {key, NULL, fallback};
    const bool inside = arguments && sw_json_get(arguments, key);
    return sw_model_read_size(doc, inside ? arguments : config, &named, fallback, out);
}

/* Reads the number of classes if neither options nor a usual key gives it. */
static sw_status read_classes(struct sw_json_doc *doc, const struct sw_json *config,
                              const struct sw_model_options *options, const char *key,
                              int64_t fallback, struct sw_model *model)
{
    const bool said = sw_json_get(config, "num_labels") || sw_json_get(config, "id2label");
    SW_TRY(sw_model_read_task(model->ops, doc, config, options, model));
    if (!said && !(options && options->labels > 0)) {
        SW_TRY(read_argument(doc, config, key, fallback, &model->labels));
    }
    return SW_OK;
}

static void finish(struct sw_head *head, sw_value logits, sw_value *out_loss)
{
    sw_head_term(head, 0, logits);
    *out_loss = sw_head_end(head);
}

/* ---- CIFAR-10 ---- */

struct cifar {
    struct sw_model super;
    int64_t channels[2]; /* of the convolutions */
    int64_t inner[2];    /* of the layers after them */
};

static const struct cifar *cifar_of(const struct sw_model *model)
{
    return SW_CONTAINER(model, struct cifar, super);
}

enum { CIFAR_WINDOW = 5 };

/* Pixels per side after a convolution and its pooling. */
static int64_t convolved(int64_t side)
{
    return (side - CIFAR_WINDOW + 1) / 2;
}

static sw_status read_cifar(struct sw_json_doc *doc, const struct sw_json *config,
                            const struct sw_model_options *options, struct sw_model *model)
{
    enum { SIDE = 32, CHANNELS = 3, CLASSES = 10, MOST = 1 << 16 };
    struct cifar *m = SW_CONTAINER(model, struct cifar, super);
    int64_t side = 0;
    const struct {
        const char *key;
        int64_t fallback, *out;
    } keys[] = {{"c1", 6, &m->channels[0]},
                {"c2", 16, &m->channels[1]},
                {"f1", 120, &m->inner[0]},
                {"f2", 84, &m->inner[1]},
                {"side", SIDE, &side}};
    for (size_t i = 0; i < SW_LEN(keys); i++) {
        SW_TRY(read_argument(doc, config, keys[i].key, keys[i].fallback, keys[i].out));
        if (*keys[i].out > MOST) {
            return SW_FAIL(SW_E_FORMAT, "%s: %s is %lld; wanted at most %d", sw_json_name(doc),
                           keys[i].key, (long long)*keys[i].out, MOST);
        }
    }
    if (convolved(convolved(side)) < 1) {
        return SW_FAIL(SW_E_FORMAT, "%s: side is %lld; wanted more pixels than two windows of %d",
                       sw_json_name(doc), (long long)side, CIFAR_WINDOW);
    }
    model->channels = CHANNELS;
    model->image_height = model->image_width = side;
    model->width = m->inner[1];
    model->head_module = "fc3";
    model->layers = model->max_tokens = 1;
    return read_classes(doc, config, options, "labels", CLASSES, model);
}

/* x [B,C,N,N] through a 5 x 5 convolution and 2 x 2 max pooling -> [B,out,n,n] */
static sw_value convolve(sw_graph *g, const char *prefix, sw_value x, int64_t out)
{
    enum { WINDOW = CIFAR_WINDOW };
    const struct sw_window five = {.kernel = {WINDOW, WINDOW}}, two = {{2, 2}, {2, 2}, {0, 0}};
    const struct sw_shape s = g->status < 0 ? SW_SHAPE(1, 1, 8, 8) : g->values[x].shape;
    const int64_t n = s.dims[2] - WINDOW + 1;
    const sw_value y =
        sw_nets_linear(g, prefix, sw_im2col(g, x, &five), SW_SHAPE(out, s.dims[1], WINDOW, WINDOW));
    const sw_value image = sw_reshape(g, sw_act(g, y, SW_ACT_RELU), SW_SHAPE(s.dims[0], n, n, out));
    return sw_pool_max(g, sw_nets_channels_first(g, image), &two);
}

static void forward_cifar(const struct sw_model *model, sw_graph *g,
                          const struct sw_forward_spec *spec, sw_value *out_loss)
{
    const struct cifar *m = cifar_of(model);
    struct sw_head head = {model, g, spec, SW_NO_VALUE};
    const sw_value pixels = sw_model_input(g, model, spec, "pixel_values");
    const int64_t n = convolved(convolved(model->image_height)), flat = m->channels[1] * n * n;
    sw_value x = sw_cast(g, pixels, sw_graph_dtype(g));
    x = convolve(g, "conv1", x, m->channels[0]);
    x = sw_reshape(g, convolve(g, "conv2", x, m->channels[1]), SW_SHAPE(spec->batch, flat));
    x = sw_act(g, sw_nets_linear(g, "fc1", x, SW_SHAPE(m->inner[0], flat)), SW_ACT_RELU);
    x = sw_act(g, sw_nets_linear(g, "fc2", x, SW_SHAPE(m->inner[1], m->inner[0])), SW_ACT_RELU);
    finish(&head, sw_nets_linear(g, "fc3", x, SW_SHAPE(model->labels, m->inner[1])), out_loss);
}

const struct sw_model_ops sw_family_cifar_net = {
    .model_type = "cifar_net",
    .classes = {{"CifarNet", "images"}},
    .is_of_classes = true,
    .bytes = sizeof(struct cifar),
    .read = read_cifar,
    .forward = forward_cifar,
    .alias = sw_nets_alias,
    .ignores = ignores_nothing,
};

/* ---- a bidirectional LSTM layer ---- */

struct bi_lstm {
    struct sw_model super;
    int64_t hidden;
};

static sw_status read_lstm(struct sw_json_doc *doc, const struct sw_json *config,
                           const struct sw_model_options *options, struct sw_model *model)
{
    struct bi_lstm *m = SW_CONTAINER(model, struct bi_lstm, super);
    model->layers = 1;
    model->embedding_name = "embedding.weight";
    model->head_module = "classifier";
    SW_TRY(read_argument(doc, config, "vocab", 256, &model->vocab));
    SW_TRY(read_argument(doc, config, "width", 64, &model->width));
    SW_TRY(read_argument(doc, config, "hidden", 64, &m->hidden));
    SW_TRY(read_argument(doc, config, "max_length", 512, &model->max_tokens));
    return read_classes(doc, config, options, "labels", 2, model);
}

static sw_value direction(sw_graph *g, const struct bi_lstm *m, sw_value x, sw_value mask,
                          bool reverse)
{
    const int64_t n = m->hidden;
    const struct sw_shape shapes[] = {SW_SHAPE(4 * n, m->super.width), SW_SHAPE(4 * n, n),
                                      SW_SHAPE(4 * n), SW_SHAPE(4 * n)};
    static const char *const names[] = {"weight_ih", "weight_hh", "bias_ih", "bias_hh"};
    sw_value params[SW_LEN(names)];
    for (size_t i = 0; i < SW_LEN(names); i++) {
        char name[64];
        snprintf(name, sizeof name, "lstm.%s_l0%s", names[i], reverse ? "_reverse" : "");
        params[i] = leaf(g, name, shapes[i], n);
    }
    const struct sw_lstm_spec spec = {params[0], params[1], params[2], params[3], mask, reverse};
    return sw_lstm(g, x, &spec);
}

static void forward_lstm(const struct sw_model *model, sw_graph *g,
                         const struct sw_forward_spec *spec, sw_value *out_loss)
{
    const struct bi_lstm *m = SW_CONTAINER(model, struct bi_lstm, super);
    struct sw_head head = {model, g, spec, SW_NO_VALUE};
    const sw_value ids = sw_trim(g, sw_model_input(g, model, spec, "input_ids"),
                                 sw_model_input(g, model, spec, "lengths"));
    const sw_value mask = sw_not_equal(g, ids, -1);
    const sw_value table = sw_param(g, model->embedding_name, SW_SHAPE(model->vocab, model->width),
                                    (struct sw_init){SW_INIT_NORMAL, 1});
    const sw_value x = sw_mask_rows(g, sw_embedding(g, table, ids, -1), mask);
    const sw_value both[2] = {direction(g, m, x, mask, false), direction(g, m, x, mask, true)};
    const sw_value mean = sw_masked_mean(g, sw_concat(g, both, 2, 2), mask);
    finish(&head, sw_nets_linear(g, "classifier", mean, SW_SHAPE(model->labels, 2 * m->hidden)),
           out_loss);
}

const struct sw_model_ops sw_family_bi_lstm = {
    .model_type = "bi_lstm_classifier",
    .classes = {{"BiLstmClassifier", "classify"}},
    .bytes = sizeof(struct bi_lstm),
    .read = read_lstm,
    .forward = forward_lstm,
    .alias = sw_nets_alias,
    .ignores = ignores_nothing,
};
