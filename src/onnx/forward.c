// SPDX-License-Identifier: Apache-2.0
// Sizes of a forward graph as expressions. A graph has numbers: the same model is built for four
// combinations of short sizes, and a number that changes with one of them depends on it. A fifth
// graph has the longest rows, and tables for them.
#include "onnx/forward.h"

#include <stdio.h>
#include <string.h>

enum { SHORT = 7, ENDLESS = 4096 };

static void set_sizes(struct sw_onnx_forward *f)
{
    const struct sw_model *m = f->model;
    const int64_t most = m->is_endless ? ENDLESS : sw_max_i64(m->max_tokens, 1);
    const int64_t first[ONNX_N_FREE] = {2, sw_min_i64(most, SHORT), sw_min_i64(most, SHORT - 2)};
    for (int i = 0; i < ONNX_N_SMALL; i++) {
        memcpy(f->sizes[i], first, sizeof first);
        if (i > 0) {
            int64_t *n = &f->sizes[i][i - 1];
            *n = *n > 1 && i > 1 ? *n - 1 : *n + (i == 1);
        }
    }
    f->whole[ONNX_BATCH] = 2;
    f->whole[ONNX_TOKENS] = f->whole[ONNX_TARGETS] = most;
}

static sw_status build(const struct sw_onnx_forward *f, enum sw_dtype dtype, const int64_t *sizes,
                       struct sw_graph **out)
{
    const struct sw_graph_options options = {.dtype = dtype, .grad_dtype = dtype};
    const struct sw_forward_spec spec = {.batch = sizes[ONNX_BATCH],
                                         .tokens = sizes[ONNX_TOKENS],
                                         .targets = sizes[ONNX_TARGETS],
                                         .has_mask = true,
                                         .want_logits = true,
                                         .want_hidden = sw_model_is_seq2seq(f->model),
                                         .router_aux_loss = -1};
    sw_value loss;
    SW_TRY(sw_graph_open(&options, out));
    f->model->ops->forward(f->model, *out, &spec, &loss);
    return sw_graph_status(*out);
}

/* ---- sizes ---- */

static int64_t product(const struct sw_onnx_size *size, const int64_t *sizes)
{
    int64_t n = size->c1;
    for (int k = 0; k < ONNX_N_FREE; k++) {
        n *= size->free[k] ? sizes[k] : 1;
    }
    return size->c0 + n;
}

static void solve(const struct sw_onnx_forward *f, const int64_t *numbers, struct sw_onnx_size *out)
{
    int64_t n = 1;
    int n_free = 0, last = 0;
    *out = (struct sw_onnx_size){.c0 = numbers[0]};
    for (int k = 0; k < ONNX_N_FREE; k++) {
        out->free[k] = numbers[1 + k] != numbers[0];
        if (out->free[k]) {
            n_free++;
            n *= f->sizes[0][k];
            last = k;
        }
    }
    if (n_free == 1) {
        const int64_t step = f->sizes[1 + last][last] - f->sizes[0][last];
        out->c1 = (numbers[1 + last] - numbers[0]) / step;
        out->c0 = numbers[0] - out->c1 * n;
    } else if (n_free > 1) {
        out->c1 = numbers[0] / n;
        out->c0 = 0;
    }
}

sw_status sw_onnx_forward_size(const struct sw_onnx_forward *f, const int64_t numbers[ONNX_N_SMALL],
                               int64_t in_whole, const char *what, struct sw_onnx_size *out)
{
    solve(f, numbers, out);
    bool good = product(out, f->whole) == in_whole;
    for (int i = 0; i < ONNX_N_SMALL; i++) {
        good = good && product(out, f->sizes[i]) == numbers[i];
    }
    if (!good) {
        return SW_FAIL(SW_E_UNSUP,
                       "%s: sizes %lld, %lld, %lld, %lld and %lld are not a product of batch and "
                       "tokens, nor a multiple of one plus a number",
                       what, (long long)numbers[0], (long long)numbers[1], (long long)numbers[2],
                       (long long)numbers[3], (long long)in_whole);
    }
    return SW_OK;
}

static sw_status size_values(struct sw_onnx_forward *f)
{
    const struct sw_graph *g = f->graph;
    f->dims = sw_alloc_zero("onnx", (size_t)g->n_values + 1, sizeof *f->dims);
    SW_TRY_ALLOC(f->dims, "an ONNX graph");
    for (sw_value v = 0; v < g->n_values; v++) {
        const struct sw_value_info *info = &g->values[v];
        const char *what = info->name            ? info->name
                           : info->producer >= 0 ? sw_op_name(&g->ops[info->producer])
                                                 : "a value";
        f->dims[v].rank = info->shape.rank;
        for (int d = 0; d < info->shape.rank; d++) {
            int64_t numbers[ONNX_N_SMALL];
            for (int i = 0; i < ONNX_N_SMALL; i++) {
                numbers[i] = f->small[i]->values[v].shape.dims[d];
            }
            SW_TRY(sw_onnx_forward_size(f, numbers, info->shape.dims[d], what, &f->dims[v].of[d]));
        }
    }
    return SW_OK;
}

static bool same_ops(const struct sw_graph *a, const struct sw_graph *b)
{
    if (a->n_ops != b->n_ops || a->n_values != b->n_values) {
        return false;
    }
    for (int32_t i = 0; i < a->n_ops; i++) {
        const struct sw_op *x = &a->ops[i], *y = &b->ops[i];
        if (x->kind != y->kind || x->n_in != y->n_in || x->n_out != y->n_out ||
            memcmp(x->in, y->in, (size_t)x->n_in * sizeof x->in[0]) != 0) {
            return false;
        }
    }
    return true;
}

/* ---- the encoder's output ---- */

static sw_value find_encoded(const struct sw_graph *g)
{
    sw_value found = SW_NO_VALUE;
    char name[48];
    for (int i = 0; i == 0 || found >= 0; i++) {
        snprintf(name, sizeof name, "encoder_hidden.%d", i);
        const sw_value next = sw_graph_find_output(g, name);
        if (next < 0) {
            break;
        }
        found = next;
    }
    return found;
}

sw_status sw_onnx_forward_open(const struct sw_model *model, enum sw_dtype dtype,
                               struct sw_onnx_forward *out)
{
    struct sw_onnx_forward f = {.model = model, .dtype = dtype, .encoded = SW_NO_VALUE};
    set_sizes(&f);
    sw_status st = build(&f, dtype, f.whole, &f.graph);
    for (int i = 0; i < ONNX_N_SMALL && st >= 0; i++) {
        st = build(&f, dtype, f.sizes[i], &f.small[i]);
        if (st >= 0 && !same_ops(f.graph, f.small[i])) {
            st = SW_FAIL(SW_E_UNSUP, "%s: the ops of its forward depend on the sizes of a batch",
                         model->ops->model_type);
        }
    }
    st = st < 0 ? st : size_values(&f);
    if (st < 0) {
        sw_onnx_forward_close(&f);
        return st;
    }
    f.encoded = sw_model_is_seq2seq(model) ? find_encoded(f.graph) : SW_NO_VALUE;
    *out = f;
    return SW_OK;
}

void sw_onnx_forward_close(struct sw_onnx_forward *f)
{
    sw_graph_close(f->graph);
    for (int i = 0; i < ONNX_N_SMALL; i++) {
        sw_graph_close(f->small[i]);
    }
    sw_free(f->dims);
    *f = (struct sw_onnx_forward){0};
}

/* ---- constants ---- */

static bool all_rows_equal(const char *data, int64_t rows, size_t row)
{
    for (int64_t i = 1; i < rows; i++) {
        if (memcmp(data, data + (size_t)i * row, row) != 0) {
            return false;
        }
    }
    return true;
}

bool sw_onnx_forward_constant(const struct sw_onnx_forward *f, sw_value v,
                              enum sw_onnx_constant *out)
{
    const struct sw_value_info *all = &f->graph->values[v], *few = &f->small[0]->values[v];
    const struct sw_onnx_size *size = &f->dims[v].of[0];
    const size_t bytes = sw_value_bytes(few);
    const int64_t rows = all->shape.rank > 0 ? all->shape.dims[0] : 0;
    const size_t row = rows > 0 ? sw_value_bytes(all) / (size_t)rows : 0;
    if (all->shape.rank == 0 || sw_onnx_is_fixed(size)) {
        *out = ONNX_FIXED;
        return memcmp(all->data, few->data, bytes) == 0;
    }
    if (size->free[ONNX_BATCH]) {
        *out = ONNX_REPEATED;
        return size->c0 == 0 && all_rows_equal(all->data, rows, row);
    }
    if (size->c1 == 1) {
        *out = ONNX_PREFIX;
        return memcmp(all->data, few->data, bytes) == 0;
    }
    const int64_t more = rows - few->shape.dims[0];
    *out = ONNX_CENTERED;
    return size->c1 == 2 && more >= 0 && more % 2 == 0 &&
           memcmp((const char *)all->data + (size_t)(more / 2) * row, few->data, bytes) == 0;
}

/* ---- tables that depend on the length of rows ---- */

/* The rows that both have are equal. */
static bool agree(const struct sw_graph *a, const struct sw_graph *b, sw_value v)
{
    const struct sw_value_info *x = &a->values[v], *y = &b->values[v];
    const size_t bytes_x = sw_value_bytes(x), bytes_y = sw_value_bytes(y);
    return memcmp(x->data, y->data, bytes_x < bytes_y ? bytes_x : bytes_y) == 0;
}

static sw_status build_rows(const struct sw_onnx_forward *f, int64_t tokens, struct sw_graph **out)
{
    int64_t sizes[ONNX_N_FREE];
    memcpy(sizes, f->sizes[0], sizeof sizes);
    sizes[ONNX_TOKENS] = tokens;
    return build(f, f->dtype, sizes, out);
}

/* Bisects: rows of `low` tokens have the table of short ones, rows of `high` tokens have not. */
static sw_status bisect(const struct sw_onnx_forward *f, sw_value v, int64_t low, int64_t high,
                        struct sw_onnx_tables *out)
{
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        struct sw_graph *g = NULL;
        const sw_status st = build_rows(f, middle, &g);
        const bool same = st >= 0 && agree(g, f->small[0], v);
        sw_graph_close(g);
        SW_TRY(st);
        low = same ? middle : low;
        high = same ? high : middle;
    }
    out->rows = low;
    return build_rows(f, low, &out->less);
}

sw_status sw_onnx_forward_tables(const struct sw_onnx_forward *f, sw_value v,
                                 struct sw_onnx_tables *out)
{
    const int64_t most = f->whole[ONNX_TOKENS];
    const struct sw_onnx_size *size = &f->dims[v].of[0];
    struct sw_graph *next = NULL;
    bool good = f->dims[v].rank == 2 && size->free[ONNX_TOKENS] && size->c1 == 1 && size->c0 == 0;
    *out = (struct sw_onnx_tables){0};
    if (good) {
        sw_status st = bisect(f, v, f->sizes[0][ONNX_TOKENS], most, out);
        st = st < 0 ? st : build_rows(f, out->rows + 1, &next);
        if (st < 0) {
            sw_graph_close(out->less);
            sw_graph_close(next);
            return st;
        }
        good = agree(next, f->graph, v);
        sw_graph_close(next);
    }
    if (!good) {
        sw_graph_close(out->less);
        return SW_FAIL(SW_E_UNSUP,
                       "%s: constant %s of rows of %lld tokens differs from that of shorter rows, "
                       "and has more than two forms; one graph cannot have them",
                       f->model->ops->model_type, f->graph->values[v].name, (long long)most);
    }
    return SW_OK;
}
