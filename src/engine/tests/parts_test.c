// SPDX-License-Identifier: Apache-2.0
// The graphs of ranks that compute one micro-batch together (sw_graph_part), against the whole
// graph. All ranks run in lockstep with the reference kernels; exchanges are plain arithmetic here.
// Outputs, loss and all gradients equal those of the whole, and the number of exchanges is that of
// the formulas in docs.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "json/json.h"
#include "layout/layout.h"
#include "model/model.h"
#include "nn/nn.h"
#include "support/test.h"

enum { MOST_RANKS = 6, TEXT = 1024 };

/* ---- running graphs in lockstep ---- */

/* The graphs of all ranks, and the bytes of their values. */
struct machine {
    struct sw_device *dev;
    struct sw_stream_queue *on;
    int n;
    struct sw_graph *g[MOST_RANKS];
    sw_value loss[MOST_RANKS];
    void **at[MOST_RANKS];             /* [g->n_values] storage of roots */
    int n_gathers, n_scatters, n_sums; /* exchanges of activations */
    int n_turns;                       /* from parts along one dimension to another */
    int n_rows;                        /* gathers of the tokens of whole rows */
    int tensor; /* ranks with parts of parameters; others have tokens of all rows */
};

static void *data_of(const struct machine *m, int rank, sw_value v)
{
    const struct sw_value_info *info = &m->g[rank]->values[v];
    return (char *)m->at[rank][sw_graph_root(m->g[rank], v)] +
           (size_t)info->base_offset * sw_dtype_bytes(info->dtype);
}

static int64_t offset_of(const struct sw_value_info *info, int64_t e)
{
    int64_t offset = 0;
    for (int d = info->shape.rank - 1; d >= 0; d--) {
        offset += e % info->shape.dims[d] * info->strides[d];
        e /= info->shape.dims[d];
    }
    return offset;
}

/* Another member of the group that a rank exchanges with: the tensor axis runs faster. */
static int member(const struct machine *m, int rank, const struct sw_exchange_attrs *a, int i)
{
    const bool is_context = a->axis == 3;
    const int me = is_context ? rank / m->tensor : rank % m->tensor % a->ranks;
    assert_int_equal(a->me, me);
    return rank + (i - me) * (is_context ? m->tensor : 1);
}

static double number(const struct machine *m, int rank, sw_value v, int64_t e)
{
    const struct sw_value_info *info = &m->g[rank]->values[v];
    const int64_t at = offset_of(info, e);
    return info->dtype == SW_I32 ? ((int32_t *)data_of(m, rank, v))[at]
                                 : sw_load_f64(info->dtype, data_of(m, rank, v), at);
}

static void put(const struct machine *m, int rank, sw_value v, int64_t e, double x)
{
    const struct sw_value_info *info = &m->g[rank]->values[v];
    char *to =
        (char *)data_of(m, rank, v) + (size_t)offset_of(info, e) * sw_dtype_bytes(info->dtype);
    const float single = (float)x;
    const int32_t integer = (int32_t)x;
    if (info->dtype == SW_F64) {
        memcpy(to, &x, sizeof x);
    } else if (info->dtype == SW_F32) {
        memcpy(to, &single, sizeof single);
    } else {
        memcpy(to, &integer, sizeof integer);
    }
}

static void run_kernel(struct machine *m, int rank, const struct sw_op *op)
{
    struct sw_op_desc desc;
    struct sw_kernel_info info;
    struct sw_kernel *kernel;
    void *in[SW_MAX_INPUTS] = {NULL}, *out[SW_MAX_OUTPUTS] = {NULL};
    double scalars[SW_SCALAR_COUNT] = {0};
    scalars[SW_SCALAR_SEED_LO] = 77;
    scalars[SW_SCALAR_MICRO] = 3;
    scalars[SW_SCALAR_LOSS_SCALE] = 1;
    sw_graph_describe(m->g[rank], op, &desc);
    sw_device_query(m->dev, &desc, &info);
    if (!info.supported || sw_device_prepare(m->dev, &desc, &kernel) < 0) {
        fail_msg("%s: no kernel", sw_op_name(op));
    }
    for (int k = 0; k < op->n_in; k++) {
        in[k] = data_of(m, rank, op->in[k]);
    }
    for (int k = 0; k < op->n_out; k++) {
        out[k] = op->out[k] < 0 ? NULL : data_of(m, rank, op->out[k]);
    }
    void *workspace = aligned_alloc(64, sw_round_up(info.workspace_bytes + 1, 64));
    assert_int_equal(sw_device_launch(m->dev, m->on, kernel, in, out, workspace, scalars), SW_OK);
    assert_int_equal(m->dev->ops->stream_wait(m->dev, m->on), SW_OK);
    m->dev->ops->release(m->dev, kernel);
    free(workspace);
}

/* Elements of a value as [before, dim, after]. */
struct box {
    int64_t before, dim, after;
};

static struct box box_of(const struct sw_shape *shape, int dim)
{
    struct box b = {1, shape->rank > 0 ? shape->dims[dim] : 1, 1};
    for (int d = 0; d < shape->rank; d++) {
        b.before *= d < dim ? shape->dims[d] : 1;
        b.after *= d > dim ? shape->dims[d] : 1;
    }
    return b;
}

/* Element e of the output comes from the rank that has its index along the dimension that was
 * cut. */
static void turn(struct machine *m, int32_t i_op, int rank)
{
    const struct sw_op *op = &m->g[rank]->ops[i_op];
    const struct sw_exchange_attrs *a = &op->attrs.exchange;
    const struct sw_shape *out = &m->g[rank]->values[op->out[0]].shape;
    const struct sw_shape *in = &m->g[rank]->values[op->in[0]].shape;
    for (int64_t e = 0; e < sw_shape_elems(out); e++) {
        int64_t at[SW_MAX_RANK], from = 0, left = e;
        for (int d = out->rank - 1; d >= 0; d--) {
            at[d] = left % out->dims[d];
            left /= out->dims[d];
        }
        const int r = member(m, rank, a, (int)(at[a->dim] / in->dims[a->dim]));
        at[a->dim] %= in->dims[a->dim];
        at[a->to_dim] += a->me * out->dims[a->to_dim];
        for (int d = 0; d < in->rank; d++) {
            from = from * in->dims[d] + at[d];
        }
        put(m, rank, op->out[0], e, number(m, r, m->g[r]->ops[i_op].in[0], from));
    }
}

static void exchange(struct machine *m, int32_t i_op, int rank)
{
    const struct sw_op *op = &m->g[rank]->ops[i_op];
    const struct sw_exchange_attrs *a = &op->attrs.exchange;
    const struct sw_shape *out = &m->g[rank]->values[op->out[0]].shape;
    const struct sw_shape *in = &m->g[rank]->values[op->in[0]].shape;
    if (a->from == SW_SPREAD_CUT && a->to == SW_SPREAD_CUT) {
        turn(m, i_op, rank);
        return;
    }
    const struct box b = box_of(out, a->dim), whole = box_of(in, a->dim);
    for (int64_t e = 0; e < sw_shape_elems(out); e++) {
        const int64_t i = e / (b.dim * b.after), j = e / b.after % b.dim, k = e % b.after;
        double x = 0;
        for (int i_rank = 0; a->from == SW_SPREAD_SUM && i_rank < a->ranks; i_rank++) {
            const int r = member(m, rank, a, i_rank);
            const int64_t row = a->to == SW_SPREAD_CUT ? a->me * b.dim + j : j;
            x += number(m, r, m->g[r]->ops[i_op].in[0], (i * whole.dim + row) * b.after + k);
        }
        if (a->from == SW_SPREAD_CUT) {
            const int r = member(m, rank, a, (int)(j / whole.dim));
            x = number(m, r, m->g[r]->ops[i_op].in[0],
                       (i * whole.dim + j % whole.dim) * b.after + k);
        }
        put(m, rank, op->out[0], e, x);
    }
}

static void count(struct machine *m, const struct sw_op *op)
{
    const struct sw_exchange_attrs *a = &op->attrs.exchange;
    const struct sw_shape *shape = &m->g[0]->values[op->in[0]].shape;
    if (a->from == SW_SPREAD_CUT && a->to == SW_SPREAD_CUT) {
        m->n_turns++;
    } else if (a->axis == 3) {
        m->n_rows += shape->rank == 3 && a->from == SW_SPREAD_CUT;
    } else if (shape->rank == 3) {
        m->n_gathers += a->from == SW_SPREAD_CUT;
        m->n_scatters += a->from == SW_SPREAD_SUM && a->to == SW_SPREAD_CUT;
        m->n_sums += a->from == SW_SPREAD_SUM && a->to != SW_SPREAD_CUT;
    }
}

static void run(struct machine *m)
{
    for (int32_t i = 0; i < m->g[0]->n_ops; i++) {
        const enum sw_op_kind kind = m->g[0]->ops[i].kind;
        for (int r = 0; r < m->n; r++) {
            const struct sw_op *op = &m->g[r]->ops[i];
            assert_int_equal(op->kind, kind);
            if (kind == SW_OP_EXCHANGE) {
                exchange(m, i, r);
            } else if (kind != SW_OP_VIEW) {
                run_kernel(m, r, op);
            }
        }
        if (kind == SW_OP_EXCHANGE) {
            count(m, &m->g[0]->ops[i]);
        }
    }
}

static void place(struct machine *m)
{
    for (int r = 0; r < m->n; r++) {
        const struct sw_graph *g = m->g[r];
        assert_int_equal(g->n_ops, m->g[0]->n_ops);
        m->at[r] = calloc((size_t)g->n_values, sizeof *m->at[r]);
        for (sw_value v = 0; v < g->n_values; v++) {
            const struct sw_value_info *info = &g->values[v];
            if (sw_graph_root(g, v) == v) {
                m->at[r][v] = aligned_alloc(64, sw_round_up(sw_value_bytes(info) + 1, 64));
                memset(m->at[r][v], 0x7f, sw_value_bytes(info)); /* NaN, or an invalid index */
                if (info->data) {
                    memcpy(m->at[r][v], info->data, sw_value_bytes(info));
                }
            }
        }
    }
}

static void open_machine(struct machine *m, int n, int tensor)
{
    const struct sw_cpu_options options = {.n_threads = 1, .reference = true};
    memset(m, 0, sizeof *m);
    m->n = n;
    m->tensor = tensor;
    assert_int_equal(sw_device_open_cpu(&options, &m->dev), SW_OK);
    assert_int_equal(m->dev->ops->stream_open(m->dev, &m->on), SW_OK);
}

static void close_machine(struct machine *m)
{
    for (int r = 0; r < m->n; r++) {
        for (sw_value v = 0; m->at[r] && v < m->g[r]->n_values; v++) {
            free(m->at[r][v]);
        }
        free(m->at[r]);
        sw_graph_close(m->g[r]);
    }
    m->dev->ops->stream_close(m->dev, m->on);
    sw_device_close(m->dev);
}

/* ---- parameters and inputs ---- */

/* The index in the whole parameter of element e of a rank's part; -1 = padding. */
static int64_t index_in_whole(const struct machine *m, int rank, sw_value v, int64_t e)
{
    const struct sw_param_part *part = sw_graph_param_part(m->g[rank], v);
    if (m->tensor == 1 || !part) {
        return e;
    }
    const struct sw_layout layout = {
        .whole = part->whole, .split = part->split, .tensor = {rank % m->tensor, m->tensor}};
    struct sw_run_iter iter;
    struct sw_run run;
    sw_runs_begin(&layout, &iter);
    while (sw_runs_next(&iter, &run)) {
        if (e >= run.here && e < run.here + run.n) {
            return run.first + e - run.here;
        }
    }
    return -1;
}

static double param_number(const char *name, int64_t i)
{
    const double x = sw_philox_normal(5, sw_hash_str(SW_HASH_INIT, name), (uint64_t)i);
    return (strstr(name, "norm") && strstr(name, "weight") ? 1 : 0) + 0.3 * x;
}

static double input_number(const struct sw_value_info *info, int64_t vocab, int64_t i)
{
    const uint64_t r = sw_philox_u64(9, sw_hash_str(SW_HASH_INIT, info->name), (uint64_t)i);
    const int64_t last = sw_shape_last(&info->shape), t = i % last;
    if (strcmp(info->name, "attention_mask") == 0) {
        return i < last || t < last - 1;
    }
    if (strcmp(info->name, "positions") == 0) {
        return (double)t;
    }
    if (strcmp(info->name, "segments") == 0) { /* documents that parts of a row cut */
        return (double)(t / 5);
    }
    if (strcmp(info->name, "token_type_ids") == 0) {
        return (double)(r % 2);
    }
    if (strstr(info->name, "labels") && i % 5 == 1 && info->shape.rank > 1) {
        return -100;
    }
    return info->dtype == SW_I32 ? (double)(r % (uint64_t)vocab) : 0.1 * (double)(r % 20);
}

static void fill(struct machine *m, int64_t vocab)
{
    for (int r = 0; r < m->n; r++) {
        for (sw_value v = 0; v < m->g[r]->n_values; v++) {
            const struct sw_value_info *info = &m->g[r]->values[v];
            const bool is_leaf = info->producer < 0 && info->base < 0;
            for (int64_t e = 0; is_leaf && e < sw_shape_elems(&info->shape); e++) {
                if (info->role == SW_ROLE_PARAM) {
                    const int64_t i = index_in_whole(m, r, v, e);
                    put(m, r, v, e, i < 0 ? 0 : param_number(info->name, i));
                } else if (info->role == SW_ROLE_INPUT) {
                    put(m, r, v, e, input_number(info, vocab, e));
                }
            }
        }
    }
}

/* ---- comparing ---- */

/* The sum of all streams of a parameter, dense. */
static double *gradient(const struct machine *m, int rank, sw_value param)
{
    const struct sw_graph *g = m->g[rank];
    const struct sw_shape *shape = &g->values[param].shape;
    double *sum = calloc((size_t)sw_shape_elems(shape) + 1, sizeof *sum);
    for (int32_t i = 0; i < g->n_streams; i++) {
        const struct sw_stream *s = &g->streams[i];
        const sw_value index = s->param == param ? g->values[s->grad].sparse_index : SW_NO_VALUE;
        const int64_t width = sw_shape_last(shape);
        for (int64_t e = 0; s->param == param && e < sw_shape_elems(&g->values[s->grad].shape);
             e++) {
            const int64_t row = index >= 0 ? (int64_t)number(m, rank, index, e / width) : 0;
            if (row >= 0) {
                sum[index >= 0 ? row * width + e % width : e] += number(m, rank, s->grad, e);
            }
        }
    }
    return sum;
}

struct error {
    double worst, size;
};

static void compare(struct error *error, double have, double want)
{
    const double apart = fabs(have - want);
    error->worst = isnan(apart) || isnan(error->worst) ? NAN : fmax(error->worst, apart);
    error->size = fmax(error->size, fabs(want));
}

static void check_error(const struct error *error, double tolerance, const char *what,
                        const char *name, int rank)
{
    if (!(error->worst <= tolerance * fmax(error->size, 1e-3))) {
        fail_msg("%s: %s on rank %d differs by %g of %g", what, name, rank, error->worst,
                 error->size);
    }
}

/* The gradient of a rank's part of a parameter: ranks with other tokens have summands of it. */
static double *sum_of_gradients(const struct machine *parts, int rank, sw_value param)
{
    double *sum = gradient(parts, rank, param);
    for (int r = rank + parts->tensor; r < parts->n; r += parts->tensor) {
        double *more = gradient(parts, r, param);
        for (int64_t e = 0; e < sw_shape_elems(&parts->g[r]->values[param].shape); e++) {
            sum[e] += more[e];
        }
        free(more);
    }
    return sum;
}

static void check_gradients(const struct machine *parts, const struct machine *whole,
                            const char *what, double tolerance)
{
    const struct sw_graph *g = whole->g[0];
    for (int32_t i = 0; i < g->n_params; i++) {
        const char *name = g->values[g->params[i]].name;
        double *want = gradient(whole, 0, g->params[i]);
        for (int r = 0; r < parts->tensor; r++) {
            const sw_value param = sw_graph_find(parts->g[r], SW_ROLE_PARAM, name);
            struct error error = {0};
            assert_true(param >= 0);
            double *have = sum_of_gradients(parts, r, param);
            const int64_t n = sw_shape_elems(&parts->g[r]->values[param].shape);
            for (int64_t e = 0; e < n; e++) {
                const int64_t at = index_in_whole(parts, r, param, e);
                compare(&error, have[e], at < 0 ? 0 : want[at]);
            }
            /* a small gradient beside larger ones is compared with the largest of its parameter */
            check_error(&error, tolerance, what, name, r);
            free(have);
        }
        free(want);
    }
}

static void check_outputs(const struct machine *parts, const struct machine *whole,
                          const char *what, double tolerance)
{
    for (int32_t i = 0; i < whole->g[0]->n_outputs; i++) {
        const struct sw_named *want = &whole->g[0]->outputs[i];
        for (int r = 0; r < parts->n; r++) {
            const sw_value have = sw_graph_find_output(parts->g[r], want->name);
            const struct sw_shape *shape = &whole->g[0]->values[want->value].shape;
            struct error error = {0};
            assert_true(sw_shape_equal(shape, &parts->g[r]->values[have].shape));
            for (int64_t e = 0; e < sw_shape_elems(shape); e++) {
                compare(&error, number(parts, r, have, e), number(whole, 0, want->value, e));
            }
            check_error(&error, tolerance, what, want->name, r);
        }
    }
}

/* ---- models ---- */

struct model_case {
    const char *name, *config;
    struct sw_forward_spec spec;
    enum sw_dtype dtype;
    bool trains; /* with dropout */
    bool lora;
    int ranks[MOST_RANKS]; /* 0 ends them */
    /* sublayers, and values that further products read (the output of an encoder); 0 = the number
     * of exchanges is not checked */
    int sublayers, more;
};

static struct sw_graph *forward_of(const struct model_case *c, const struct sw_lora *lora,
                                   sw_value *loss, int64_t *vocab)
{
    const struct sw_graph_options options = {.dtype = c->dtype,
                                             .grad_dtype = c->dtype,
                                             .training = c->trains,
                                             .loss_chunk = 4,
                                             .adapter = lora ? &lora->super : NULL};
    struct sw_json_doc *doc = NULL;
    struct sw_model *model = NULL;
    struct sw_graph *g = NULL;
    assert_int_equal(sw_json_parse(c->name, c->config, strlen(c->config), SW_JSON_STRICT, &doc),
                     SW_OK);
    if (sw_model_open(doc, NULL, &model) < 0) {
        fail_msg("%s: %s", c->name, sw_error_message());
    }
    assert_int_equal(sw_graph_open(&options, &g), SW_OK);
    model->ops->forward(model, g, &c->spec, loss);
    if (sw_graph_status(g) < 0) {
        fail_msg("%s: %s", c->name, sw_error_message());
    }
    *vocab = model->vocab;
    sw_model_close(model);
    sw_json_close(doc);
    return g;
}

static void differentiate(struct machine *m, int rank, const char *what)
{
    if (sw_graph_backward(m->g[rank], m->loss[rank]) < 0) {
        fail_msg("%s: %s", what, sw_error_message());
    }
}

/* All ranks have one fingerprint, which is not that of the whole. */
static void check_fingerprints(const struct machine *parts, const struct machine *whole,
                               const char *what)
{
    const uint64_t of_first = sw_graph_fingerprint(parts->g[0], SW_HASH_INIT);
    for (int r = 1; r < parts->n; r++) {
        if (sw_graph_fingerprint(parts->g[r], SW_HASH_INIT) != of_first) {
            fail_msg("%s: rank %d has another fingerprint", what, r);
        }
    }
    assert_true(of_first != sw_graph_fingerprint(whole->g[0], SW_HASH_INIT));
}

static void open_lora(struct sw_lora *lora)
{
    sw_lora_init(lora);
    lora->r = 3;
    lora->alpha = 6;
    lora->dropout = 0.2;
    lora->all_linear = true;
}

/* Ranks of the mesh, whose tensor axis runs faster. ways: of the tensor axis */
struct ways {
    int context, tensor;
    bool rows, words;
};

/* Cuts the graph along the tensor axis, then along the context axis. */
static void take_parts(struct machine *m, int rank, const struct sw_graph *g, sw_value loss,
                       const struct ways *w, const char *what)
{
    const struct sw_ranks tensor = {.axis = 4,
                                    .n = w->tensor,
                                    .me = rank % w->tensor,
                                    .rows = w->rows,
                                    .words = w->words,
                                    .next = w->context};
    const struct sw_ranks context = {
        .axis = 3, .n = w->context, .me = rank / w->tensor, .tokens = true};
    struct sw_graph *part = NULL;
    if ((w->tensor > 1 && sw_graph_part(g, &tensor, loss, &part, &loss) < 0) ||
        (w->context > 1 &&
         sw_graph_part(part ? part : g, &context, loss, &m->g[rank], &m->loss[rank]) < 0)) {
        fail_msg("%s: %s", what, sw_error_message());
    }
    if (w->context > 1) {
        sw_graph_close(part);
    } else {
        m->g[rank] = part;
        m->loss[rank] = loss;
    }
}

/* Runs the model whole, then on ranks. */
static void check_model(const struct model_case *c, const struct ways *ways, struct machine *parts)
{
    const int n = ways->context * ways->tensor;
    struct machine whole;
    struct sw_lora lora;
    int64_t vocab;
    char what[TEXT];
    const double tolerance = c->dtype == SW_F64 ? 1e-9 : 1e-5;
    snprintf(what, sizeof what, "%s, context %d, tensor %d %s regions", c->name, ways->context,
             ways->tensor, ways->rows ? "with" : "without");
    open_lora(&lora);
    open_machine(&whole, 1, 1);
    open_machine(parts, n, ways->tensor);
    struct sw_graph *g = forward_of(c, c->lora ? &lora : NULL, &whole.loss[0], &vocab);
    whole.g[0] = g;
    for (int r = 0; r < n; r++) {
        take_parts(parts, r, g, whole.loss[0], ways, what);
        differentiate(parts, r, what);
    }
    differentiate(&whole, 0, what);
    check_fingerprints(parts, &whole, what);
    place(&whole);
    place(parts);
    fill(&whole, vocab);
    fill(parts, vocab);
    run(&whole);
    run(parts);
    check_outputs(parts, &whole, what, tolerance);
    check_gradients(parts, &whole, what, tolerance);
    close_machine(&whole);
}

#define SIZES(heads, kv)                                                                           \
    "\"hidden_size\": 24, \"intermediate_size\": 24, \"num_hidden_layers\": 2, "                   \
    "\"vocab_size\": 13, \"max_position_embeddings\": 16, "                                        \
    "\"num_attention_heads\": " heads ", \"num_key_value_heads\": " kv
#define GPT2                                                                                       \
    "{\"model_type\": \"gpt2\", \"n_embd\": 24, \"n_layer\": 2, \"n_head\": 12, "                  \
    "\"vocab_size\": 13, \"n_positions\": 16"
#define BERT "{\"model_type\": \"bert\", \"type_vocab_size\": 2, " SIZES("12", "12")
#define T5                                                                                         \
    "{\"model_type\": \"t5\", \"d_model\": 24, \"d_kv\": 4, \"d_ff\": 24, \"num_layers\": 2, "     \
    "\"num_heads\": 12, \"vocab_size\": 13, \"decoder_start_token_id\": 0, "                       \
    "\"pad_token_id\": 0, \"relative_attention_num_buckets\": 8"
#define BART                                                                                       \
    "{\"model_type\": \"bart\", \"d_model\": 24, \"encoder_layers\": 2, \"decoder_layers\": 2, "   \
    "\"encoder_attention_heads\": 12, \"decoder_attention_heads\": 12, \"encoder_ffn_dim\": 24, "  \
    "\"decoder_ffn_dim\": 24, \"vocab_size\": 13, \"max_position_embeddings\": 16, "               \
    "\"decoder_start_token_id\": 2, \"pad_token_id\": 1"
#define SPEC                                                                                       \
    {                                                                                              \
        .batch = 2, .tokens = 12, .targets = 12, .has_labels = true, .want_logits = true           \
    }

#define CLASSES                                                                                    \
    {                                                                                              \
        .batch = 2, .tokens = 12, .has_mask = true, .has_labels = true, .want_logits = true        \
    }

static const struct model_case cases[] = {
    {"gpt2", GPT2 "}", SPEC, SW_F64, .ranks = {2, 3, 4}, .sublayers = 4},
    {"gpt2 in fp32", GPT2 "}", SPEC, SW_F32, .ranks = {2}},
    {"gpt2 with smoothing",
     GPT2 "}",
     {.batch = 2, .tokens = 12, .targets = 12, .has_labels = true, .smoothing = 0.1},
     SW_F64,
     .ranks = {2, 3, 4},
     .sublayers = 4},
    {"gpt2 with dropout", GPT2 "}", SPEC, SW_F64, .trains = true, .ranks = {2, 3, 4},
     .sublayers = 4},
    {"gpt2 with adapters", GPT2 "}", SPEC, SW_F64, .trains = true, .lora = true, .ranks = {2, 3}},
    {"llama", "{\"model_type\": \"llama\", " SIZES("12", "12") "}", SPEC, SW_F64,
     .ranks = {2, 3, 4}, .sublayers = 4},
    {"llama with 4 key heads", "{\"model_type\": \"llama\", " SIZES("12", "4") "}", SPEC, SW_F64,
     .ranks = {2, 4}, .sublayers = 4},
    {"llama with 2 key heads", "{\"model_type\": \"llama\", " SIZES("12", "2") "}", SPEC, SW_F64,
     .ranks = {4}, .sublayers = 4},
    {"llama with 1 key head", "{\"model_type\": \"llama\", " SIZES("12", "1") "}", SPEC, SW_F64,
     .trains = true, .lora = true, .ranks = {2, 3, 4}},
    {"qwen3", "{\"model_type\": \"qwen3\", \"head_dim\": 4, " SIZES("12", "2") "}", SPEC, SW_F64,
     .ranks = {2, 4}, .sublayers = 4},
    {"gemma2", "{\"model_type\": \"gemma2\", \"head_dim\": 4, " SIZES("12", "4") "}", SPEC, SW_F64,
     .ranks = {4}, .sublayers = 4},
    {"phi3", "{\"model_type\": \"phi3\", " SIZES("12", "4") "}", SPEC, SW_F64, .trains = true,
     .ranks = {2, 4}, .sublayers = 4},
    {"phi3 with 2 key heads", "{\"model_type\": \"phi3\", " SIZES("12", "2") "}", SPEC, SW_F64,
     .ranks = {4}, .sublayers = 4},
    {"phi3 with 1 key head", "{\"model_type\": \"phi3\", " SIZES("12", "1") "}", SPEC, SW_F64,
     .trains = true, .lora = true, .ranks = {2}},
    {"olmo2", "{\"model_type\": \"olmo2\", " SIZES("12", "4") "}", SPEC, SW_F64, .ranks = {2}},
    {"cohere", "{\"model_type\": \"cohere\", \"use_qk_norm\": true, " SIZES("12", "4") "}", SPEC,
     SW_F64, .trains = true, .ranks = {2, 4}},
    {"stablelm",
     "{\"model_type\": \"stablelm\", \"qk_layernorm\": true, \"partial_rotary_factor\": 1, " SIZES(
         "12", "4") "}",
     SPEC, SW_F64, .ranks = {2}},
    {"gpt_neox", "{\"model_type\": \"gpt_neox\", \"rotary_pct\": 0.5, " SIZES("6", "6") "}", SPEC,
     SW_F64, .ranks = {2, 3}, .sublayers = 2, .more = 2}, /* its branches have norms of their own */
    {"gptj",
     "{\"model_type\": \"gptj\", \"n_embd\": 24, \"n_layer\": 2, \"n_head\": 6, \"rotary_dim\": 4, "
     "\"vocab_size\": 13, \"n_positions\": 16}",
     SPEC, SW_F64, .trains = true, .ranks = {2, 3}, .sublayers = 2},
    {"falcon with groups",
     "{\"model_type\": \"falcon\", \"new_decoder_architecture\": true, \"num_kv_heads\": 4, "
     "\"ffn_hidden_size\": 24, " SIZES("12", "12") "}",
     SPEC, SW_F64, .trains = true, .ranks = {2, 4}},
    {"falcon with 2 groups",
     "{\"model_type\": \"falcon\", \"new_decoder_architecture\": true, \"num_kv_heads\": 2, "
     "\"bias\": true, \"ffn_hidden_size\": 24, " SIZES("12", "12") "}",
     SPEC, SW_F64, .trains = true, .lora = true, .ranks = {6}},
    {"falcon with slopes and 1 key head",
     "{\"model_type\": \"falcon\", \"alibi\": true, \"bias\": true, "
     "\"ffn_hidden_size\": 24, " SIZES("12", "12") "}",
     SPEC, SW_F64, .trains = true, .ranks = {2}},
    {"falcon with slopes",
     "{\"model_type\": \"falcon\", \"alibi\": true, \"multi_query\": false, \"parallel_attn\": "
     "false, \"ffn_hidden_size\": 24, " SIZES("12", "12") "}",
     SPEC, SW_F64, .ranks = {2}},
    {"bloom",
     "{\"model_type\": \"bloom\", \"hidden_size\": 24, \"n_layer\": 2, \"n_head\": 12, "
     "\"vocab_size\": 13}",
     SPEC, SW_F64, .trains = true, .ranks = {2, 4}, .sublayers = 4},
    {"opt",
     "{\"model_type\": \"opt\", \"hidden_size\": 24, \"word_embed_proj_dim\": 20, \"ffn_dim\": 24, "
     "\"num_hidden_layers\": 2, \"num_attention_heads\": 12, \"vocab_size\": 13, "
     "\"max_position_embeddings\": 16, \"do_layer_norm_before\": true}",
     SPEC, SW_F64, .trains = true, .ranks = {2, 3}},
    {"bert", BERT "}", SPEC, SW_F64, .trains = true, .ranks = {2, 3, 4}},
    {"bert with adapters", BERT "}", SPEC, SW_F64, .trains = true, .lora = true, .ranks = {2}},
    {"t5", T5 "}", SPEC, SW_F64, .trains = true, .ranks = {2, 3, 4}, .sublayers = 10, .more = 1},
    {"t5 with gates", T5 ", \"feed_forward_proj\": \"gated-gelu\", \"tie_word_embeddings\": false}",
     SPEC, SW_F64, .ranks = {2}},
    {"bart", BART "}", SPEC, SW_F64, .trains = true, .ranks = {2, 3}, .sublayers = 10, .more = 1},
    {"gpt2 with packed rows",
     GPT2 "}",
     {.batch = 2, .tokens = 12, .is_packed = true, .has_labels = true, .want_logits = true},
     SW_F64,
     .trains = true,
     .ranks = {2, 3, 4}},
    {"mistral with a window",
     "{\"model_type\": \"mistral\", \"sliding_window\": 5, " SIZES("12", "4") "}", SPEC, SW_F64,
     .ranks = {2, 4}},
    {"bert for classes",
     BERT ", \"architectures\": [\"BertForSequenceClassification\"], \"num_labels\": 13}", CLASSES,
     SW_F64, .trains = true, .ranks = {2, 3, 4}},
    {"bert for answers", BERT ", \"architectures\": [\"BertForQuestionAnswering\"]}", CLASSES,
     SW_F64, .ranks = {2}},
    {"bert for tokens",
     BERT ", \"architectures\": [\"BertForTokenClassification\"], \"num_labels\": 13}", CLASSES,
     SW_F64, .trains = true, .ranks = {2}},
    {"llama for classes",
     "{\"model_type\": \"llama\", \"architectures\": "
     "[\"LlamaForSequenceClassification\"], \"num_labels\": 13, \"pad_token_id\": 0, " SIZES(
         "12", "4") "}",
     CLASSES, SW_F64, .ranks = {2, 4}},
    {"bart for classes",
     BART ", \"architectures\": [\"BartForSequenceClassification\"], \"num_labels\": 13, "
          "\"eos_token_id\": 3}",
     CLASSES, SW_F64, .ranks = {2}},
    {"deberta",
     "{\"model_type\": \"deberta-v2\", \"pos_att_type\": [\"p2c\", \"c2p\"], "
     "\"relative_attention\": true, \"position_buckets\": 4, "
     "\"share_att_key\": true, " SIZES("12", "12") "}",
     SPEC, SW_F64, .trains = true, .ranks = {2, 3}},
};

static int count_ops(const struct sw_graph *g, enum sw_op_kind kind)
{
    int n = 0;
    for (int32_t i = 0; i < g->n_ops; i++) {
        n += g->ops[i].kind == kind;
    }
    return n;
}

/* A sublayer has 2 gathers and 2 sums over parts of the rows, or 2 sums. So have the embedding of
 * each stack and the head together 1 and 1 each. Logits are gathered for an output, and for a loss
 * with smoothing that is not made from parts. */
static void check_counts(const struct model_case *c, const struct ways *ways, int stacks,
                         const struct machine *m)
{
    const bool rows = ways->rows;
    const int n = 2 * c->sublayers + stacks + 1 + c->more;
    const int logits = c->spec.want_logits || (c->spec.smoothing > 0 && !ways->words);
    assert_int_equal(m->n_gathers, rows ? n + logits : logits);
    assert_int_equal(m->n_scatters, rows ? n : 0);
    assert_int_equal(m->n_sums, rows ? 0 : n);
}

#ifdef TEST_SANITIZED /* slow; the ways of a case read and write alike */
enum { EACH = 3 };    /* the others are left out */
#else
enum { EACH = 1 };
#endif

static void ranks_compute_what_one_computes(void **state)
{
    (void)state;
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        for (int k = 0; k < MOST_RANKS && cases[i].ranks[k] > 0; k++) {
            for (int way = EACH > 1 ? (int)i % EACH : 0; way < 3; way += EACH) {
                const bool rows = way > 0, words = way != 1;
                const struct ways ways = {1, cases[i].ranks[k], rows, words};
                const int stacks = strstr(cases[i].config, "decoder_start") ? 2 : 1;
                struct machine m;
                check_model(&cases[i], &ways, &m);
                const bool has_words = !strstr(cases[i].config, "architectures");
                const bool smooths = cases[i].spec.smoothing > 0;
                assert_int_equal(count_ops(m.g[0], SW_OP_LINEAR_CE_MERGE),
                                 words && has_words && !smooths);
                assert_int_equal(count_ops(m.g[0], SW_OP_CROSS_ENTROPY_MERGE), words && smooths);
                if (cases[i].sublayers > 0) {
                    check_counts(&cases[i], &ways, stacks, &m);
                }
                close_machine(&m);
            }
        }
    }
}

/* q, k, v and o, and their gradients, go from tokens to heads or back. Packed q, k, v with as many
 * key heads travel at once. The classes of a pooled token need its columns, once each way; the
 * first token is gathered where it lies. */
static int turns_of(const struct model_case *c, const struct sw_graph *g)
{
    const bool pools = strstr(c->config, "SequenceClassification") && !strstr(c->config, "BertFor");
    int n = pools ? 2 : 0;
    for (int32_t i = 0; i < g->n_ops; i++) {
        const struct sw_attention_attrs *a = &g->ops[i].attrs.attention;
        n += g->ops[i].kind == SW_OP_ATTENTION ? a->packed ? 4 : 8 : 0;
    }
    return n;
}

/* No more than attention needs is exchanged; logits are gathered for an output. Exception: the
 * scores of DeBERTa have terms of their own. */
static void check_tokens(const struct model_case *c, const struct machine *m)
{
    if (!strstr(c->config, "deberta")) {
        assert_int_equal(m->n_turns, turns_of(c, m->g[0]));
    }
    if (!strstr(c->config, "architectures")) {
        assert_int_equal(m->n_rows, c->spec.want_logits);
    }
}

static void ranks_with_tokens_compute_what_one_computes(void **state)
{
    (void)state;
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        for (int k = 0; k < MOST_RANKS && cases[i].ranks[k] > 0; k++) {
            const struct ways ways = {.context = cases[i].ranks[k], .tensor = 1};
            struct machine m;
            check_model(&cases[i], &ways, &m);
            check_tokens(&cases[i], &m);
            close_machine(&m);
        }
    }
}

/* Both axes: ranks have tokens of a part of each parameter. With one sample, regions cut tokens
 * further. */
static void both_axes_compute_what_one_rank_computes(void **state)
{
    static const struct ways all[] = {{2, 2, true, true}, {2, 2, false, false}, {3, 2, true, true}};
    (void)state;
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        for (size_t k = 0; k < SW_LEN(all); k++) {
            struct model_case c = cases[i];
            const bool six = strstr(c.config, "heads\": 6") || strstr(c.config, "n_head\": 6");
            if ((six && all[k].context == 2) || (k == 1 && i > 3)) {
                continue; /* 4 ranks do not divide six heads */
            }
            struct machine m;
            c.spec.batch = k == 2 ? 1 : c.spec.batch;
            check_model(&c, &all[k], &m);
            check_tokens(&c, &m);
            close_machine(&m);
        }
    }
}

/* With one rank nothing changes: the same ops, values and fingerprint. */
static void one_rank_has_the_whole(void **state)
{
    (void)state;
    for (size_t i = 0; i < SW_LEN(cases); i++) {
        const struct sw_ranks one = {.axis = 4, .n = 1, .rows = true, .words = true};
        struct sw_graph *copy;
        sw_value loss, of_copy;
        int64_t vocab;
        struct sw_graph *g = forward_of(&cases[i], NULL, &loss, &vocab);
        assert_int_equal(sw_graph_part(g, &one, loss, &copy, &of_copy), SW_OK);
        assert_int_equal(of_copy, loss);
        assert_int_equal(sw_graph_backward(g, loss), SW_OK);
        assert_int_equal(sw_graph_backward(copy, of_copy), SW_OK);
        assert_true(sw_graph_fingerprint(g, SW_HASH_INIT) ==
                    sw_graph_fingerprint(copy, SW_HASH_INIT));
        sw_graph_close(copy); /* its names are those of g */
        sw_graph_close(g);
    }
}

static void check_refusal(const char *config, int64_t tensor, const char *const want[3])
{
    const struct model_case c = {
        .name = "refused", .config = config, .spec = SPEC, .dtype = SW_F32};
    const struct sw_shares shares = {tensor, 1};
    sw_value loss;
    int64_t vocab;
    struct sw_graph *g = forward_of(&c, NULL, &loss, &vocab);
    assert_int_equal(sw_graph_check_shares(g, &shares), SW_E_CONFIG);
    for (int i = 0; i < 3; i++) {
        if (!strstr(sw_error_message(), want[i])) {
            fail_msg("\"%s\" lacks \"%s\"", sw_error_message(), want[i]);
        }
    }
    sw_graph_close(g);
}

static void heads_that_do_not_divide_are_refused_with_sizes_that_work(void **state)
{
    (void)state;
    check_refusal(
        "{\"model_type\": \"llama\", \"head_dim\": 4, " SIZES("28", "28") "}", 16,
        (const char *const[3]){"tensor 16", "28 heads of model.layers.0", "1, 2, 4, 7, 14, 28"});
    check_refusal("{\"model_type\": \"llama\", \"head_dim\": 4, " SIZES("24", "6") "}", 8,
                  (const char *const[3]){"tensor 8", "6 key heads", "1, 2, 3, 6, 12, 24"});
}

static void what_does_not_divide_is_refused_by_name(void **state)
{
    (void)state;
    const struct sw_ranks eight = {.axis = 4, .n = 8};
    struct sw_graph *part = NULL;
    sw_value loss, of_part;
    int64_t vocab;
    struct sw_graph *g = forward_of(&cases[0], NULL, &loss, &vocab);
    assert_int_equal(sw_graph_part(g, &eight, loss, &part, &of_part), SW_E_UNSUP);
    assert_non_null(strstr(sw_error_message(), "tensor 8 does not divide the 12 heads of "
                                               "transformer.h.0.attn.c_attn.weight; sizes that "
                                               "do: 1, 2, 3, 4, 6, 12"));
    assert_null(part);
    sw_graph_close(g);
    const struct model_case odd = {
        .name = "odd", .config = GPT2 ", \"n_inner\": 21}", .spec = SPEC, .dtype = SW_F32};
    const struct sw_ranks two = {.axis = 4, .n = 2};
    g = forward_of(&odd, NULL, &loss, &vocab);
    assert_int_equal(sw_graph_part(g, &two, loss, &part, &of_part), SW_E_UNSUP);
    assert_non_null(strstr(sw_error_message(), "does not divide the 21 columns of transformer.h.0."
                                               "mlp.c_fc.weight; sizes that do: 1, 3, 7, 21"));
    sw_graph_close(g);
}

static void tokens_that_do_not_divide_are_refused_by_name(void **state)
{
    static const struct {
        const char *config;
        int ranks;
        const char *wanted;
    } refused[] = {
        {GPT2 "}", 5, "attention in transformer.h.0.attn: its queries"}, /* 12 tokens */
        {"{\"model_type\": \"gpt2\", \"n_embd\": 24, \"n_layer\": 2, \"n_head\": 2, "
         "\"vocab_size\": 13, \"n_positions\": 16}",
         4, "2 heads do not divide by 4 ranks"},
    };
    (void)state;
    for (size_t i = 0; i < SW_LEN(refused); i++) {
        const struct model_case c = {"refused", refused[i].config, SPEC, SW_F64, .ranks = {0}};
        const struct sw_ranks ranks = {.axis = 3, .n = refused[i].ranks, .tokens = true};
        struct sw_graph *part = NULL;
        sw_value loss, of_part;
        int64_t vocab;
        struct sw_graph *g = forward_of(&c, NULL, &loss, &vocab);
        assert_int_equal(sw_graph_part(g, &ranks, loss, &part, &of_part), SW_E_UNSUP);
        assert_non_null(strstr(sw_error_message(), refused[i].wanted));
        assert_null(part);
        sw_graph_close(g);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_rank_has_the_whole),
    cmocka_unit_test(heads_that_do_not_divide_are_refused_with_sizes_that_work),
    cmocka_unit_test(what_does_not_divide_is_refused_by_name),
    cmocka_unit_test(tokens_that_do_not_divide_are_refused_by_name),
    cmocka_unit_test(ranks_compute_what_one_computes),
    cmocka_unit_test(ranks_with_tokens_compute_what_one_computes),
    cmocka_unit_test(both_axes_compute_what_one_rank_computes),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
