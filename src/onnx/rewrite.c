// SPDX-License-Identifier: Apache-2.0
// A file with new weights. Each weight has as many bytes as before, in the same place, so all that
// is around them is copied as it is.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "onnx/file.h"
#include "onnx/fold.h"
#include "onnx/reading.h"

enum { BLOCK_ELEMS = 1 << 16, BLOCK_BYTES = 1 << 20 };

struct rewriting {
    const struct sw_onnx_graph *g;
    const struct sw_onnx_new_values *values;
    const struct sw_onnx_graph_value **weights; /* [n_weights] new ones, by file and offset */
    int32_t n_weights, cap_weights;
    float *numbers;       /* [BLOCK_ELEMS] */
    unsigned char *block; /* [8 * BLOCK_ELEMS] */
};

static int by_place(const void *a, const void *b)
{
    const struct sw_onnx_data *x = (*(const struct sw_onnx_graph_value *const *)a)->data;
    const struct sw_onnx_data *y = (*(const struct sw_onnx_graph_value *const *)b)->data;
    if (x->i_file != y->i_file) {
        return x->i_file < y->i_file ? -1 : 1;
    }
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

static sw_status find_weights(struct rewriting *r)
{
    char words[200];
    for (int32_t i = 0; r->values && r->values->has && i < r->g->n_values; i++) {
        const struct sw_onnx_graph_value *v = &r->g->values[i];
        if (!v->data || !v->is_initializer || !r->values->has(r->values->ctx, v->name)) {
            continue;
        }
        if (!sw_onnx_is_float(v->type) || v->data->i_file < 0) {
            return SW_FAIL(SW_E_UNSUP,
                           "initializer %s cannot get new elements: it is of %s, stored as %s; "
                           "wanted floats as bytes (raw_data, external data or packed float_data)",
                           sw_plain_words(v->name, words, sizeof words), sw_onnx_type_name(v->type),
                           v->data->i_file < 0 ? "numbers of variable length" : "bytes");
        }
        SW_TRY(sw_onnx_grow(&r->weights, r->n_weights, &r->cap_weights, sizeof *r->weights));
        r->weights[r->n_weights++] = v;
    }
    if (r->n_weights > 1) {
        qsort(r->weights, (size_t)r->n_weights, sizeof *r->weights, by_place);
    }
    return SW_OK;
}

static sw_status copy_bytes(struct sw_output *out, const struct sw_onnx_graph_file *file,
                            uint64_t from, uint64_t to)
{
    for (uint64_t at = from; at < to; at += BLOCK_BYTES) {
        const size_t n = to - at < BLOCK_BYTES ? (size_t)(to - at) : BLOCK_BYTES;
        SW_TRY(sw_output_add(out, file->bytes + at, n));
        sw_onnx_forget(file->bytes + at, n);
    }
    return SW_OK;
}

static sw_status write_weight(struct rewriting *r, struct sw_output *out,
                              const struct sw_onnx_graph_value *v)
{
    const struct sw_onnx_data *data = v->data;
    const size_t bytes = sw_onnx_type_bytes(data->type);
    for (int64_t first = 0; first < data->n; first += BLOCK_ELEMS) {
        const int64_t n = sw_min_i64(BLOCK_ELEMS, data->n - first);
        SW_TRY(r->values->fetch(r->values->ctx, v->name, first, n, r->numbers));
        for (int64_t i = 0; i < n; i++) {
            sw_onnx_store_number(data->type, r->block, i, (double)r->numbers[i]);
        }
        SW_TRY(sw_output_add(out, r->block, (size_t)n * bytes));
    }
    return SW_OK;
}

static sw_status write_parts(struct rewriting *r, struct sw_output *out, int i_file)
{
    const struct sw_onnx_graph_file *file = &r->g->files[i_file];
    uint64_t at = 0;
    for (int32_t i = 0; i < r->n_weights; i++) {
        const struct sw_onnx_data *data = r->weights[i]->data;
        if (data->i_file == i_file) {
            SW_TRY(copy_bytes(out, file, at, data->offset));
            SW_TRY(write_weight(r, out, r->weights[i]));
            at = data->offset + data->bytes;
        }
    }
    return copy_bytes(out, file, at, file->len);
}

static sw_status write_file(struct rewriting *r, const char *folder, int i_file)
{
    struct sw_str path = {0};
    char parent[4096];
    struct sw_output out = {.fd = -1};
    sw_status st = SW_OK;
    sw_str_printf(&path, "%s/%s", folder, r->g->files[i_file].name);
    if (path.failed) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for the path of an ONNX file");
        goto done;
    }
    if (!sw_folder_of(path.ptr, parent, sizeof parent)) {
        st = SW_FAIL(SW_E_ARG, "the path of the ONNX file is too long");
        goto done;
    }
    SW_TRY_OR(done, sw_mkdirs(parent));
    SW_TRY_OR(done, sw_output_open(path.ptr, false, &out));
    SW_TRY_OR(close, sw_output_begin(&out));
    SW_TRY_OR(close, write_parts(r, &out, i_file));
    SW_TRY_OR(close, sw_output_commit(&out, true));
close:
    sw_output_close(&out);
done:
    sw_str_fini(&path);
    return st;
}

static sw_status rewrite(struct rewriting *r, const char *folder)
{
    r->numbers = sw_alloc("onnx", BLOCK_ELEMS * sizeof *r->numbers);
    r->block = sw_alloc("onnx", BLOCK_ELEMS * sizeof(double));
    SW_TRY_ALLOC(r->numbers, "the weights of an ONNX file");
    SW_TRY_ALLOC(r->block, "the weights of an ONNX file");
    SW_TRY(find_weights(r));
    for (int i = r->g->n_files - 1; i >= 0; i--) { /* the .onnx file last */
        SW_TRY(write_file(r, folder, i));
    }
    return SW_OK;
}

sw_status sw_onnx_rewrite(const struct sw_onnx_graph *graph, const char *folder,
                          const struct sw_onnx_new_values *values)
{
    struct rewriting r = {.g = graph->source ? graph->source : graph, .values = values};
    const sw_status st = rewrite(&r, folder);
    sw_free(r.weights);
    sw_free(r.numbers);
    sw_free(r.block);
    return st;
}
