// SPDX-License-Identifier: Apache-2.0
// onnx - models as ONNX files. The source is the forward graph of logits, so a new family needs
// nothing here, and a new op a row (rows.c). Files are streamed, whatever the size of the model.
#pragma once

#include "base/base.h"
#include "graph/graph.h"
#include "model/model.h"
#include "tensor/tensor.h"

enum { SW_ONNX_LEAST_OPSET = 17, SW_ONNX_MOST_OPSET = 23, SW_ONNX_OPSET = 17 };
/* Weights of more bytes are in a file of their own. */
#define SW_ONNX_INSIDE_BYTES (INT64_C(3) << 29)

/* Values of parameters, by their names in the model's graph. */
struct sw_onnx_values {
    /* Elements [first, first + n) as f32. SW_E_FORMAT: there is no such parameter of this shape. */
    sw_status (*fetch)(void *ctx, const char *name, const struct sw_shape *shape, int64_t first,
                       int64_t n, float *out);
    void *ctx;
};

struct sw_onnx_export_options {
    const struct sw_model *model;
    struct sw_onnx_values values;
    const char *folder;   /* exists */
    enum sw_dtype dtype;  /* of weights and activations: f32, f16, bf16 */
    int opset;            /* SW_ONNX_LEAST_OPSET .. SW_ONNX_MOST_OPSET */
    int64_t inside_bytes; /* 0 = SW_ONNX_INSIDE_BYTES */
};

struct sw_onnx_summary {
    int n_files;       /* that were written */
    char files[2][64]; /* names of the .onnx files */
    int opset;
    bool is_rewritten; /* a file that was read, with its own dtypes */
    int64_t nodes, weights, bytes;
    bool external; /* weights are in NAME.data */
};

/*
 * sw_onnx_export - write a model as model.onnx, or as encoder_model.onnx and decoder_model.onnx.
 *
 * Inputs and outputs have the names of Hugging Face's Optimum, nodes those of scopes, weights those
 * of the model. The sizes `batch` and `sequence` are free. Removes what an earlier export left
 * under these names and those of external data.
 *
 * SW_E_ARG    opset or dtype
 * SW_E_UNSUP  an op without a row; a table that is not the beginning of that of longer rows
 */
sw_status sw_onnx_export(const struct sw_onnx_export_options *options, struct sw_onnx_summary *out);

/* Why a kind of op has no nodes. NULL = it has some; "" = nobody has decided, a defect. */
const char *sw_onnx_reason(enum sw_op_kind kind);
/* Appends a table of ops and their nodes by opset, in Markdown. */
void sw_onnx_list(struct sw_str *out);

/* ---- a graph from a file as a model ---- */

/* Key of a config.json in memory: path of the file that its model is read from. */
#define SW_ONNX_KEY "spillway_onnx"
/* True for a path that ends in .onnx. */
bool sw_onnx_is_file(const char *path);
/* The file that a configuration names; NULL: none. */
const char *sw_onnx_source(const struct sw_json *config);

/*
 * sw_onnx_model_open - open the graph of a file as a model.
 *
 * A table of patterns maps nodes to our layers (sw_onnx_list_patterns). Weights keep their names;
 * one that an exporter transposed has the name of its node's module. The model is closed by
 * sw_model_close. The file stays mapped.
 *
 * doc       config.json beside the file, or an empty object, with SW_ONNX_KEY
 * options   task and labels; NULL: as the outputs say
 *
 * SW_E_UNSUP   a node that no pattern takes, with the nearest patterns; an unknown input
 * SW_E_CONFIG  the outputs are not those of the task
 * SW_E_FORMAT  a damaged file
 */
sw_status sw_onnx_model_open(struct sw_json_doc *doc, const struct sw_model_options *options,
                             struct sw_model **out);
bool sw_onnx_is_import(const struct sw_model *model);
/* Elements [first, first + n) of a parameter, from the file. SW_E_FORMAT: it has no such one. */
sw_status sw_onnx_model_fetch(const struct sw_model *model, const char *name,
                              const struct sw_shape *shape, int64_t first, int64_t n, float *out);
/* Appends names, shapes and both ends of the parameters, for a comparison with those of others. */
void sw_onnx_model_describe(const struct sw_model *model, struct sw_str *out);
/* Writes the file with other values of its parameters, and all else the same byte for byte.
 * values NULL: the same file. */
sw_status sw_onnx_model_write(const struct sw_model *model, const struct sw_onnx_values *values,
                              const char *folder, struct sw_onnx_summary *out);
/* Appends the table of patterns, in Markdown. */
void sw_onnx_list_patterns(struct sw_str *out);
