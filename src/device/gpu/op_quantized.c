// SPDX-License-Identifier: Apache-2.0
// Quantized weights: DEQUANTIZE, and QUANTIZED_MATMUL, which decodes the part of the weight that a
// block of columns needs, then computes the block as MATMUL does (device/quantized.h).
#include "device/gpu/gpu.h"
#include "device/quantized.h"

enum { THREADS = 256, DECODED_BYTES = 8 << 20 /* at a time */ };

extern const struct gpu_op sw_gpu_matmul;

/* ---- decoding ---- */

/* in: those of DEQUANTIZE. */
static sw_status decode(const struct gpu_call *call, const struct sw_weight_attrs *attrs,
                        void *const *in, const struct sw_quantized_part *part, void *y)
{
    const bool int8 = attrs->form.kind == SW_QUANTIZED_INT8, nested = attrs->form.is_nested;
    struct gpu_dequantize_args args = {
        .codes = in[0],
        .scales = nested ? NULL : in[1],
        .scale_codes = nested ? in[1] : NULL,
        .nested = nested ? in[2] : NULL,
        .y = y,
        .n = part->run * part->n_runs,
        .block = int8 ? attrs->columns : SW_NF4_BLOCK,
        .first = part->first,
        .run = part->run,
        .stride = part->stride,
        .int8 = int8,
        .rounds = (int)sw_gpu_type_of(attrs->form.dtype),
    };
    for (int i = 0; i < SW_NF4_LEVELS; i++) {
        args.levels[i] = sw_nf4_level(i);
    }
    GPU_LAUNCH(call, dequantize, sw_gpu_type_of(attrs->to), sw_gpu_grid_for(args.n, THREADS),
               &args);
    return SW_OK;
}

static void query_dequantize(const struct gpu_device *dev, const struct sw_op_desc *desc,
                             struct sw_kernel_info *out)
{
    (void)dev;
    out->supported = gpu_is_float(desc->out[0].dtype);
}

static sw_status dequantize(const struct gpu_call *call)
{
    const struct sw_weight_attrs *attrs = &call->desc->op->attrs.weight;
    const struct sw_quantized_part all = {.run = attrs->rows * attrs->columns, .n_runs = 1};
    return decode(call, attrs, call->in, &all, call->out[0]);
}
const struct gpu_op sw_gpu_dequantize = {.query = query_dequantize, .run = dequantize};

/* ---- products ---- */

/* The product of a block. */
struct product {
    struct sw_op op;
    struct sw_op_desc desc;
    void *prepared;
};

struct quantized {
    struct sw_quantized_blocks blocks;
    struct product product[2]; /* of the last block, and of the others */
};

static void query(const struct gpu_device *dev, const struct sw_op_desc *desc,
                  struct sw_kernel_info *out)
{
    const struct sw_quantized_blocks blocks = sw_quantized_blocks_of(desc, DECODED_BYTES);
    size_t most = 0;
    for (int64_t i = blocks.n - 1; i >= sw_max_i64(0, blocks.n - 2); i--) {
        struct product product;
        struct sw_kernel_info info = {0};
        sw_quantized_product(desc, sw_quantized_columns(&blocks, i), &product.op, &product.desc);
        sw_gpu_matmul.query(dev, &product.desc, &info);
        if (!info.supported) {
            return;
        }
        most = info.workspace_bytes > most ? info.workspace_bytes : most;
        out->path = info.path;
    }
    out->supported = true;
    out->workspace_bytes = blocks.block_bytes + most;
}

static void release(struct gpu_device *dev, void *prepared)
{
    struct quantized *q = prepared;
    for (int i = 0; i < 2; i++) {
        if (q->product[i].prepared) {
            sw_gpu_matmul.release(dev, q->product[i].prepared);
        }
    }
    sw_free(q);
}

static sw_status prepare(struct gpu_device *dev, const struct sw_op_desc *desc, void **prepared)
{
    struct quantized *q = sw_alloc_zero("device", 1, sizeof *q);
    SW_TRY_ALLOC(q, "a product");
    sw_status st = SW_OK;
    q->blocks = sw_quantized_blocks_of(desc, DECODED_BYTES);
    for (int64_t i = 0; i < sw_min_i64(q->blocks.n, 2); i++) {
        struct product *product = &q->product[i];
        sw_quantized_product(desc, sw_quantized_columns(&q->blocks, q->blocks.n - 1 - i),
                             &product->op, &product->desc);
        SW_TRY_OR(release, sw_gpu_matmul.prepare(dev, &product->desc, &product->prepared));
    }
    *prepared = q;
    return SW_OK;
release:
    release(dev, q);
    return st;
}

static sw_status run(const struct gpu_call *call)
{
    const struct quantized *q = call->prepared;
    const struct sw_op_desc *desc = call->desc;
    const struct sw_weight_attrs *weight = &desc->op->attrs.weight;
    for (int64_t i = 0; i < q->blocks.n; i++) {
        const struct product *product = &q->product[i < q->blocks.n - 1];
        const int64_t column = i * q->blocks.block;
        const struct sw_quantized_part part =
            sw_quantized_part_of(desc, column, sw_quantized_columns(&q->blocks, i));
        const struct sw_quantized_operands operands =
            sw_quantized_operands_of(desc, call->in, call->out, call->workspace, column);
        SW_TRY(decode(call, weight, call->in + 1, &part, call->workspace));
        struct gpu_call block = *call;
        block.desc = &product->desc;
        block.in = operands.in;
        block.out = operands.out;
        block.workspace = (char *)call->workspace + q->blocks.block_bytes;
        block.prepared = product->prepared;
        SW_TRY(sw_gpu_matmul.run(&block));
    }
    return SW_OK;
}
const struct gpu_op sw_gpu_quantized_matmul = {
    .query = query, .prepare = prepare, .release = release, .run = run};
