// SPDX-License-Identifier: Apache-2.0
// QUANTIZED_MATMUL: workers decode the part of the weight that a block of columns needs, then the
// product's own kernel computes the block (device/quantized.h). A decoded part stays in the caches.
#include <string.h>

#include "device/cpu/fast.h"
#include "device/quantized.h"

enum {
    DECODED_BYTES = 4 << 20, /* at a time */
    ITEM_ELEMS = 8192,       /* that a worker decodes at a time, or a run */
    SCALED_ELEMS = 16        /* a multiple of these is scaled in vectors */
};

/* The product of a block. */
struct product {
    const struct cpu_kernel *kernel;
    struct sw_op op;
    struct sw_op_desc desc;
    void *prepared;
};

struct quantized {
    const struct cpu_vector *vector;
    struct sw_quantized_blocks blocks;
    struct product product[2]; /* of the last block, and of the others */
};

static void query(const struct cpu_device *dev, const struct sw_op_desc *desc,
                  struct sw_kernel_info *out)
{
    const struct sw_quantized_blocks blocks = sw_quantized_blocks_of(desc, DECODED_BYTES);
    size_t most = 0;
    for (int64_t i = blocks.n - 1; i >= sw_max_i64(0, blocks.n - 2); i--) {
        struct sw_op op;
        struct sw_op_desc product;
        struct sw_kernel_info info;
        sw_quantized_product(desc, sw_quantized_columns(&blocks, i), &op, &product);
        if (!sw_cpu_choose(dev, &product, &info)) {
            out->no_memory = info.no_memory;
            return;
        }
        most = info.workspace_bytes > most ? info.workspace_bytes : most;
        out->path = info.path;
    }
    out->supported = true;
    out->workspace_bytes = blocks.block_bytes + most;
}

static void release(void *prepared)
{
    struct quantized *q = prepared;
    for (int i = 0; q && i < 2; i++) {
        struct product *product = &q->product[i];
        if (product->kernel && product->kernel->release) {
            product->kernel->release(product->prepared);
        }
    }
    sw_free(q);
}

static sw_status prepare_product(const struct cpu_device *dev, const struct sw_op_desc *desc,
                                 int64_t columns, struct product *out)
{
    struct sw_kernel_info info;
    sw_quantized_product(desc, columns, &out->op, &out->desc);
    const struct cpu_kernel *kernel = sw_cpu_choose(dev, &out->desc, &info);
    if (!kernel) {
        return SW_FAIL(info.no_memory ? SW_E_NOMEM : SW_E_UNSUP, "no kernel for a product");
    }
    if (kernel->prepare) {
        SW_TRY(kernel->prepare(dev, &out->desc, &out->prepared));
    }
    out->kernel = kernel;
    return SW_OK;
}

static sw_status prepare(const struct cpu_device *dev, const struct sw_op_desc *desc,
                         void **prepared)
{
    struct quantized *q = sw_alloc_zero("device", 1, sizeof *q);
    SW_TRY_ALLOC(q, "a product");
    sw_status st = SW_OK;
    q->vector = sw_cpu_vector_for(dev->isa);
    q->blocks = sw_quantized_blocks_of(desc, DECODED_BYTES);
    for (int64_t i = 0; i < sw_min_i64(q->blocks.n, 2); i++) {
        const int64_t columns = sw_quantized_columns(&q->blocks, q->blocks.n - 1 - i);
        SW_TRY_OR(release, prepare_product(dev, desc, columns, &q->product[i]));
    }
    *prepared = q;
    return SW_OK;
release:
    release(q);
    return st;
}

struct decoding {
    const struct cpu_vector *vector;
    struct sw_quantized weight;
    struct sw_quantized_part part;
    enum sw_dtype to;
    int64_t pieces; /* of a run */
    int64_t runs;   /* of an item, if a run is one piece */
    char *out;
};

/* Decodes a whole block of NF4 whose values have two bytes. */
static void look_up(const struct decoding *d, int64_t first, void *out)
{
    const struct sw_quantized *q = &d->weight;
    uint16_t values[SW_NF4_LEVELS];
    sw_nf4_values(q, first / SW_NF4_BLOCK, d->to, values);
    d->vector->look_up(values, (const uint8_t *)q->codes + first / 2, SW_NF4_BLOCK, out);
}

/* Decodes INT8 within a row. */
static void scale(const struct decoding *d, int64_t first, int64_t n, void *out)
{
    const struct sw_quantized *q = &d->weight;
    d->vector->scale_codes((const int8_t *)q->codes + first,
                           ((const float *)q->scales)[first / q->columns], n, q->form.dtype, d->to,
                           out);
}

/* Decodes elements first .. first + n - 1 of the weight, in vectors where that is possible. */
static void decode(const struct decoding *d, int64_t first, int64_t n, char *out)
{
    const struct sw_quantized *q = &d->weight;
    const size_t bytes = sw_dtype_bytes(d->to);
    const bool int8 = q->form.kind == SW_QUANTIZED_INT8;
    const bool in_vectors = int8 ? bytes <= 4 : bytes == 2;
    for (int64_t done = 0, some = 0; done < n; done += some) {
        const int64_t at = first + done;
        char *to = out + (size_t)done * bytes;
        some = sw_min_i64(n - done,
                          int8 ? q->columns - at % q->columns : SW_NF4_BLOCK - at % SW_NF4_BLOCK);
        if (in_vectors && int8 && some >= SCALED_ELEMS) {
            some -= some % SCALED_ELEMS;
            scale(d, at, some, to);
        } else if (in_vectors && !int8 && some == SW_NF4_BLOCK) {
            look_up(d, at, to);
        } else {
            sw_quantized_decode(q, at, some, d->to, to);
        }
    }
}

static void decode_item(void *ctx, int64_t i_item, int i_worker)
{
    const struct decoding *d = ctx;
    const struct sw_quantized_part *part = &d->part;
    const size_t bytes = sw_dtype_bytes(d->to);
    (void)i_worker;
    if (d->pieces > 1) {
        const int64_t run = i_item / d->pieces, from = i_item % d->pieces * ITEM_ELEMS;
        decode(d, part->first + run * part->stride + from, sw_min_i64(ITEM_ELEMS, part->run - from),
               d->out + (size_t)(run * part->run + from) * bytes);
        return;
    }
    const int64_t end = sw_min_i64((i_item + 1) * d->runs, part->n_runs);
    for (int64_t run = i_item * d->runs; run < end; run++) {
        decode(d, part->first + run * part->stride, part->run,
               d->out + (size_t)(run * part->run) * bytes);
    }
}

static void decode_part(const struct cpu_call *call, const struct quantized *q, int64_t column,
                        int64_t n)
{
    const struct sw_weight_attrs *attrs = &call->desc->op->attrs.weight;
    struct decoding d = {
        .vector = q->vector,
        .weight = sw_quantized_weight(attrs, call->in + 1),
        .part = sw_quantized_part_of(call->desc, column, n),
        .to = attrs->to,
        .out = call->workspace,
    };
    d.pieces = sw_ceil_div(d.part.run, ITEM_ELEMS);
    d.runs = sw_max_i64(1, ITEM_ELEMS / d.part.run);
    sw_pool_run(call->pool,
                d.pieces > 1 ? d.part.n_runs * d.pieces : sw_ceil_div(d.part.n_runs, d.runs),
                decode_item, &d);
}

static void run(const struct cpu_call *call)
{
    const struct quantized *q = call->prepared;
    for (int64_t i = 0; i < q->blocks.n; i++) {
        const struct product *product = &q->product[i < q->blocks.n - 1];
        const int64_t column = i * q->blocks.block;
        const struct sw_quantized_operands operands =
            sw_quantized_operands_of(call->desc, call->in, call->out, call->workspace, column);
        decode_part(call, q, column, sw_quantized_columns(&q->blocks, i));
        const struct cpu_call block = {
            .desc = &product->desc,
            .in = operands.in,
            .out = operands.out,
            .workspace = (char *)call->workspace + q->blocks.block_bytes,
            .scalars = call->scalars,
            .pool = call->pool,
            .prepared = product->prepared,
        };
        product->kernel->run(&block);
    }
}

const struct cpu_kernel sw_cpu_quantized_matmul = {
    .name = "blocks", .query = query, .prepare = prepare, .release = release, .run = run};
