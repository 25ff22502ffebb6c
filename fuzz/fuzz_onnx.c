// SPDX-License-Identifier: Apache-2.0
// EXECUTIONS 10000
// Any bytes as an ONNX file, and as the text of one: refused with a message that names it, or a
// graph whose edges are what they say, and which is folded for small sizes or refused.
#include "onnx/read.h"

#include <string.h>

#include "onnx_text.h"
#include "scratch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_edges(const struct sw_onnx_graph *g)
{
    int32_t n = 0;
    for (int32_t i = 0; i < g->n_values; i++) {
        const struct sw_onnx_graph_value *v = &g->values[i];
        SW_ASSERT(sw_onnx_graph_find(g, v->name) == i);
        SW_ASSERT(v->first_use == n);
        n += v->n_uses;
        for (int32_t k = 0; k < v->n_uses; k++) {
            const struct sw_onnx_graph_use *use = &g->uses[v->first_use + k];
            SW_ASSERT(g->nodes[use->node].in[use->i_in] == i);
            SW_ASSERT(v->producer < use->node);
        }
        SW_ASSERT(v->producer < 0 || g->nodes[v->producer].out[v->i_out] == i);
    }
    SW_ASSERT(n == g->n_uses);
}

/* Elements can be read, and results of a folded graph have types and shapes. */
static void check_values(const struct sw_onnx_graph *g)
{
    volatile double sink = 0;
    for (int32_t i = 0; i < g->n_values; i++) {
        const struct sw_onnx_graph_value *v = &g->values[i];
        SW_ASSERT(!g->source || v->kind == ONNX_VALUE_GONE || (v->rank >= 0 && v->type != 0));
        for (int64_t k = 0; v->data && k < v->data->n && k < 64; k++) {
            sink += sw_onnx_data_number(v->data, k);
            sink += sw_onnx_data_number(v->data, v->data->n - 1 - k);
        }
    }
}

static void check_fold(const struct sw_onnx_graph *g)
{
    const struct sw_onnx_given_size sizes[] = {{"batch", 2}, {"sequence", 3}};
    const double ones[] = {1, 1, 1, 1, 1, 1};
    const struct sw_onnx_given_input mask = {
        .name = "attention_mask", .rank = 2, .dims = {2, 3}, .elems = ones};
    const struct sw_onnx_fold_options options = {
        .sizes = sizes, .n_sizes = 2, .inputs = &mask, .n_inputs = 1, .most_bytes = 1 << 14};
    struct sw_onnx_graph *folded = NULL;
    if (sw_onnx_graph_fold(g, &options, &folded) < 0) {
        SW_ASSERT(strncmp(sw_error_message(), g->path, strlen(g->path)) == 0);
        return;
    }
    check_edges(folded);
    check_values(folded);
    sw_onnx_graph_close(folded);
}

static void check_file(const void *data, size_t size)
{
    char path[256];
    struct sw_onnx_graph *g = NULL;
    scratch_path(path, "fuzz.onnx");
    scratch_write("fuzz.onnx", data, size);
    if (sw_onnx_graph_open(path, &g) < 0) {
        SW_ASSERT(strstr(sw_error_message(), path));
        return;
    }
    check_edges(g);
    check_values(g);
    check_fold(g);
    sw_onnx_graph_close(g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool has_data;
    struct sw_str text = {0}, file = {0};
    if (!has_data) { /* external data of the seeds */
        scratch_write("x.data", "\0\0\x80\x3f\0\0\x80\x3f\0\0\x80\x3f", 12);
        has_data = true;
    }
    check_file(data, size);
    sw_str_append(&text, size ? (const char *)data : "", size);
    text_file(sw_str_text(&text), &file);
    check_file(sw_str_text(&file), file.len);
    sw_str_fini(&file);
    sw_str_fini(&text);
    return 0;
}
