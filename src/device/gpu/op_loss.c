// SPDX-License-Identifier: Apache-2.0
// CROSS_ENTROPY of given logits, and LINEAR_CE, of h w^T without the logits. The product [rows, V]
// is made in chunks of attrs.linear_ce.chunk vocabulary rows and ROWS_AT_ONCE rows of h. Of a chunk
// only its contribution to each row's sum of exponentials stays. Backward, chunk by chunk: the
// logits are made again and turned into d = (p - onehot) dsum in h's dtype. Then dh += d w_chunk,
// one fp32 addition per element, dw_chunk = d^T h, and the sums of d for the bias. A tile has whole
// chunks and makes the same products: its d and its logits have the stride of a chunk of the whole
// table.
#include "device/gpu/blas.h"

enum { ROWS_AT_ONCE = 4096, THREADS = 256 };

/* Allots consecutive parts of the workspace. */
static size_t add_part(size_t *total, int64_t elems, size_t elem_bytes)
{
    const size_t at = *total;
    *total += sw_round_up((size_t)elems * elem_bytes, 64);
    return at;
}

static struct gpu_grid blocks(int64_t n)
{
    return (struct gpu_grid){.x = n};
}

/* Turns the rows' states into the loss. smoothed: the further arguments of a loss with
 * smoothing. */
static sw_status finish_loss(const struct gpu_call *call, const float *state, float *loss,
                             const int32_t *labels, int64_t rows, int64_t beyond,
                             const struct gpu_loss_rows_args *smoothed)
{
    struct gpu_loss_rows_args of_rows = {0};
    if (smoothed) {
        of_rows = *smoothed;
    }
    of_rows.state = state;
    of_rows.lse = call->out[2];
    of_rows.loss = loss;
    of_rows.rows = rows;
    GPU_LAUNCH(call, loss_rows, SW_GPU_PLAIN, sw_gpu_grid_for(rows, THREADS), &of_rows);
    struct gpu_loss_sum_args sum = {.loss = loss,
                                    .labels = labels,
                                    .sum = call->out[0],
                                    .count = call->out[1],
                                    .rows = rows,
                                    .beyond = beyond};
    GPU_LAUNCH(call, loss_sum, SW_GPU_PLAIN, blocks(1), &sum);
    return SW_OK;
}

/* The same for LINEAR_CE, whose losses may be wanted one by one. */
static sw_status finish_linear_ce(const struct gpu_call *call, const float *state, float *loss,
                                  int64_t rows)
{
    const int32_t *labels = call->in[2];
    if (!call->desc->op->attrs.linear_ce.by_row) {
        return finish_loss(call, state, loss, labels, rows, 0, NULL);
    }
    struct gpu_loss_rows_args of_rows = {
        .state = state, .lse = call->out[2], .loss = loss, .rows = rows};
    GPU_LAUNCH(call, loss_rows, SW_GPU_PLAIN, sw_gpu_grid_for(rows, THREADS), &of_rows);
    struct gpu_loss_each_args each = {
        .loss = loss, .labels = labels, .out = call->out[0], .count = call->out[1], .rows = rows};
    GPU_LAUNCH(call, loss_each, SW_GPU_PLAIN, sw_gpu_grid_for(rows, THREADS), &each);
    return SW_OK;
}

/* ---- given logits ---- */

static void query_logits(const struct gpu_device *dev, const struct sw_op_desc *desc,
                         struct sw_kernel_info *out)
{
    (void)dev;
    size_t bytes = 0;
    add_part(&bytes, 5 * sw_shape_rows(&desc->in[0].shape), sizeof(float));
    const int64_t columns = sw_shape_last(&desc->in[0].shape);
    out->supported = gpu_is_float(desc->in[0].dtype) &&
                     sw_cross_entropy_classes(&desc->op->attrs.cross_entropy, columns) > 0;
    out->workspace_bytes = bytes;
}

/* Further arguments of a loss with smoothing. */
static struct gpu_loss_rows_args smoothed_of(const struct sw_cross_entropy_attrs *attrs,
                                             int64_t classes, const float *totals)
{
    return (struct gpu_loss_rows_args){.totals = totals,
                                       .smoothing = (float)attrs->smoothing,
                                       .each = (float)attrs->smoothing / (float)classes};
}

static sw_status add_totals(const struct gpu_call *call, int64_t n, float *totals)
{
    const struct sw_view *logits = &call->desc->in[0];
    struct gpu_loss_total_args total = {
        .logits = call->in[0], .totals = totals, .n = n, .ld = sw_shape_last(&logits->shape)};
    GPU_LAUNCH(call, loss_total, sw_gpu_type_of(logits->dtype),
               blocks(sw_shape_rows(&logits->shape)), &total);
    return SW_OK;
}

static sw_status cross_entropy(const struct gpu_call *call)
{
    const struct sw_view *logits = &call->desc->in[0];
    const int64_t rows = sw_shape_rows(&logits->shape), columns = sw_shape_last(&logits->shape);
    const struct sw_cross_entropy_attrs *attrs = &call->desc->op->attrs.cross_entropy;
    const int64_t n = sw_cross_entropy_classes(attrs, columns);
    float *state = attrs->partial ? call->out[0] : call->workspace;
    float *loss = state + 3 * rows, *totals = attrs->partial ? loss : loss + rows;
    struct gpu_loss_stats_args args = {.logits = call->in[0],
                                       .labels = call->in[1],
                                       .state = state,
                                       .rows = rows,
                                       .first = attrs->first,
                                       .n = n,
                                       .ld = columns};
    GPU_LAUNCH(call, loss_stats, sw_gpu_type_of(logits->dtype), blocks(rows), &args);
    if (attrs->partial || attrs->smoothing > 0) {
        SW_TRY(add_totals(call, n, totals));
    }
    const int64_t all = sw_cross_entropy_all(attrs, columns);
    const struct gpu_loss_rows_args smoothed = smoothed_of(attrs, all, totals);
    return attrs->partial
               ? SW_OK
               : finish_loss(call, state, loss, call->in[1], rows, attrs->ignores_beyond ? all : 0,
                             attrs->smoothing > 0 ? &smoothed : NULL);
}
const struct gpu_op sw_gpu_cross_entropy = {.query = query_logits, .run = cross_entropy};

static void query_logits_grad(const struct gpu_device *dev, const struct sw_op_desc *desc,
                              struct sw_kernel_info *out)
{
    (void)dev;
    out->supported = desc->in[0].dtype == SW_F32 && gpu_is_float(desc->in[1].dtype) &&
                     desc->in[3].dtype == SW_F32 && gpu_is_float(desc->out[0].dtype);
}

static sw_status cross_entropy_grad(const struct gpu_call *call)
{
    const struct sw_view *logits = &call->desc->in[1];
    const int64_t rows = sw_shape_rows(&logits->shape), columns = sw_shape_last(&logits->shape);
    const struct sw_cross_entropy_attrs *attrs = &call->desc->op->attrs.cross_entropy;
    const int64_t n = sw_cross_entropy_classes(attrs, columns);
    const int64_t all = sw_cross_entropy_all(attrs, columns);
    const float smoothing = (float)attrs->smoothing;
    struct gpu_loss_slope_args args = {.logits = call->in[1],
                                       .labels = call->in[2],
                                       .dsum = call->in[0],
                                       .lse = call->in[3],
                                       .d = call->out[0],
                                       .first = attrs->first,
                                       .n = n,
                                       .ld = columns,
                                       .ld_d = columns,
                                       .padding = columns - n,
                                       .beyond = attrs->ignores_beyond ? all : 0,
                                       .smoothing = smoothing,
                                       .smooth = smoothing / (float)all,
                                       .logits_type = (int)sw_gpu_type_of(logits->dtype)};
    GPU_LAUNCH(call, loss_slope, sw_gpu_type_of(call->desc->out[0].dtype), blocks(rows), &args);
    return SW_OK;
}
const struct gpu_op sw_gpu_cross_entropy_grad = {.query = query_logits_grad,
                                                 .run = cross_entropy_grad};

/* ---- elementwise losses ---- */

static void query_elements(const struct gpu_device *dev, const struct sw_op_desc *desc,
                           struct sw_kernel_info *out)
{
    (void)dev;
    const int i_x = desc->op->kind == SW_OP_ELEMENT_LOSS ? 0 : 1;
    out->supported = gpu_is_float(desc->in[i_x].dtype) && desc->in[i_x + 1].dtype == SW_F32 &&
                     gpu_is_float(desc->out[0].dtype);
}

static sw_status element_loss(const struct gpu_call *call)
{
    const bool forward = call->desc->op->kind == SW_OP_ELEMENT_LOSS;
    const int i_x = forward ? 0 : 1;
    const struct sw_view *x = &call->desc->in[i_x];
    struct gpu_element_loss_args args = {
        .x = call->in[i_x],
        .target = call->in[i_x + 1],
        .n = gpu_elems(x),
        .binary = call->desc->op->attrs.element_loss.binary,
        .out_type = (int)sw_gpu_type_of(call->desc->out[0].dtype),
    };
    if (forward) {
        args.sum = call->out[0];
        args.count = call->out[1];
        GPU_LAUNCH(call, element_loss, sw_gpu_type_of(x->dtype), blocks(1), &args);
    } else {
        args.dsum = call->in[0];
        args.dx = call->out[0];
        GPU_LAUNCH(call, element_loss_grad, sw_gpu_type_of(x->dtype),
                   sw_gpu_grid_for(args.n, THREADS), &args);
    }
    return SW_OK;
}
const struct gpu_op sw_gpu_element_loss = {.query = query_elements, .run = element_loss};

/* ---- logits h w^T ---- */

struct linear_ce {
    enum sw_dtype dtype, bias_dtype;
    int64_t rows, width, vocab;
    int64_t chunk, n_chunks;  /* rows of the vocabulary; the last chunk may have fewer */
    int64_t first;            /* row of the whole table that is row 0 of this tile or part */
    int64_t first_bias;       /* row of the bias that belongs to it */
    int64_t padding;          /* rows of a part after its vocabulary; their gradient is 0 */
    int64_t rows_now, n_runs; /* rows of h at a time, and number of runs; the last may be shorter */
    bool continues, partial, has_bias;
    float cap;
    /* [0]: for the last chunk, or run of rows */
    const struct gpu_prepared *logits[2][2]; /* [chunk][run] */
    const struct gpu_prepared *dh[2], *dw[2];
    bool has_dh, has_dw, has_db;
    size_t at_state, at_loss, at_d, at_sum; /* offsets in the workspace */
    size_t at_now;     /* logits, then a product added to dh, or sums for the bias */
    size_t at_product; /* workspace of the library */
    size_t bytes;
};

static int64_t chunk_rows(const struct linear_ce *l, int64_t c)
{
    return sw_min_i64(l->chunk, l->vocab - c * l->chunk);
}

static int64_t run_rows(const struct linear_ce *l, int64_t i_run)
{
    return sw_min_i64(l->rows_now, l->rows - i_run * l->rows_now);
}

static bool takes(const struct sw_op_desc *desc, int i_h)
{
    const struct sw_linear_ce_attrs *attrs = &desc->op->attrs.linear_ce;
    const enum sw_dtype dtype = desc->in[i_h].dtype;
    bool good = !desc->is_predicated && gpu_is_float(dtype) && desc->in[i_h + 1].dtype == dtype &&
                attrs->chunk > 0 && sw_linear_ce_words(attrs, desc->in[i_h + 1].shape.dims[0]) > 0;
    for (int i = 0; i < desc->op->n_out; i++) {
        good = good && (!gpu_has_output(desc, i) || gpu_is_float(desc->out[i].dtype));
    }
    return good && (!attrs->has_bias || gpu_is_float(desc->in[i_h ? 5 : 3].dtype));
}

static sw_status get(const struct gpu_device *dev, struct linear_ce *l, struct gpu_product *shape,
                     const struct gpu_prepared **out)
{
    shape->in = (int32_t)l->dtype;
    SW_TRY(sw_gpu_product_get(dev, shape, out));
    const size_t end = l->at_product + (*out)->workspace_bytes;
    l->bytes = end > l->bytes ? end : l->bytes;
    return SW_OK;
}

static sw_status get_logits(const struct gpu_device *dev, const struct sw_op_desc *desc, int i_h,
                            struct linear_ce *l)
{
    const int64_t row_bytes = l->width * (int64_t)sw_dtype_bytes(l->dtype);
    for (int c = 0; c < (l->n_chunks > 1 ? 2 : 1); c++) {
        for (int r = 0; r < (l->n_runs > 1 ? 2 : 1); r++) {
            struct gpu_product shape = {
                .m = run_rows(l, r ? 0 : l->n_runs - 1),
                .n = chunk_rows(l, c ? 0 : l->n_chunks - 1),
                .k = l->width,
                .lda = l->width,
                .ldb = l->width,
                .ldd = l->chunk,
                .tb = true,
                .out = (int32_t)SW_F32,
                .align_a = sw_gpu_align_in(desc->in_shift[i_h], ROWS_AT_ONCE * row_bytes),
                .align_b = sw_gpu_align_in(desc->in_shift[i_h + 1], l->chunk * row_bytes),
                .align_d = GPU_ALIGN,
            };
            SW_TRY(get(dev, l, &shape, &l->logits[c][r]));
        }
    }
    return SW_OK;
}

static void describe(const struct sw_op_desc *desc, int i_h, struct linear_ce *l)
{
    const struct sw_linear_ce_attrs *attrs = &desc->op->attrs.linear_ce;
    const int64_t table = desc->in[i_h + 1].shape.dims[0];
    *l = (struct linear_ce){
        .dtype = desc->in[i_h].dtype,
        .bias_dtype = attrs->has_bias ? desc->in[i_h ? 5 : 3].dtype : SW_F32,
        .rows = sw_shape_rows(&desc->in[i_h].shape),
        .width = sw_shape_last(&desc->in[i_h].shape),
        .vocab = sw_linear_ce_words(attrs, table),
        .chunk = attrs->chunk,
        .first = attrs->tile.first,
        .first_bias = sw_linear_ce_bias_row(attrs),
        .continues = attrs->tile.continues,
        .partial = attrs->tile.partial,
        .has_bias = attrs->has_bias,
        .cap = (float)attrs->cap,
    };
    l->padding = table - l->vocab;
    l->n_chunks = sw_ceil_div(l->vocab, l->chunk);
    l->rows_now = sw_min_i64(l->rows, ROWS_AT_ONCE);
    l->n_runs = sw_ceil_div(l->rows, l->rows_now);
}

/* Makes the logits of a chunk for a run of rows. */
static sw_status make_logits(const struct gpu_call *call, const struct linear_ce *l, int i_h,
                             int64_t c, int64_t i_run)
{
    char *workspace = call->workspace;
    const struct gpu_product_call operands = {
        .a = gpu_behind(call->in[i_h], i_run * l->rows_now * l->width, l->dtype),
        .b = gpu_behind(call->in[i_h + 1], c * l->chunk * l->width, l->dtype),
        .d = workspace + l->at_now,
        .workspace = workspace + l->at_product};
    SW_TRY(
        sw_gpu_product_run(call, l->logits[c < l->n_chunks - 1][i_run < l->n_runs - 1], &operands));
    return SW_OK;
}

static const void *bias_of(const struct gpu_call *call, const struct linear_ce *l, int i_bias,
                           int64_t c)
{
    return l->has_bias ? gpu_behind(call->in[i_bias], l->first_bias + c * l->chunk, l->bias_dtype)
                       : NULL;
}

static sw_status prepared_copy(const struct linear_ce *from, void **out)
{
    struct linear_ce *l = sw_alloc("device", sizeof *l);
    SW_TRY_ALLOC(l, "the loss");
    *l = *from;
    *out = l;
    return SW_OK;
}

static void release(struct gpu_device *dev, void *prepared)
{
    (void)dev;
    sw_free(prepared);
}

/* ---- forward ---- */

static sw_status open_forward(const struct gpu_device *dev, const struct sw_op_desc *desc,
                              struct linear_ce *l)
{
    describe(desc, 0, l);
    if (!l->partial) {
        l->at_state = add_part(&l->bytes, 3 * l->rows, sizeof(float));
        l->at_loss = add_part(&l->bytes, l->rows, sizeof(float));
    }
    l->at_now = add_part(&l->bytes, l->rows_now * l->chunk, sizeof(float));
    l->at_product = l->bytes;
    SW_TRY(get_logits(dev, desc, 0, l));
    return SW_OK;
}

static void query_forward(const struct gpu_device *dev, const struct sw_op_desc *desc,
                          struct sw_kernel_info *out)
{
    struct linear_ce l;
    if (takes(desc, 0) && open_forward(dev, desc, &l) >= 0) {
        out->supported = true;
        out->workspace_bytes = l.bytes;
        out->path = sw_gpu_products_name(dev->products);
    }
}

static sw_status prepare_forward(struct gpu_device *dev, const struct sw_op_desc *desc,
                                 void **prepared)
{
    struct linear_ce l;
    SW_TRY(open_forward(dev, desc, &l));
    SW_TRY(prepared_copy(&l, prepared));
    return SW_OK;
}

static sw_status forward(const struct gpu_call *call)
{
    const struct linear_ce *l = call->prepared;
    char *workspace = call->workspace;
    float *state = l->partial ? call->out[0] : (void *)(workspace + l->at_state);
    const float *before = l->continues ? call->in[3 + l->has_bias] : NULL;
    for (int64_t c = 0; c < l->n_chunks; c++) {
        for (int64_t r = 0; r < l->n_runs; r++) {
            SW_TRY(make_logits(call, l, 0, c, r));
            struct gpu_loss_stats_args args = {
                .logits = workspace + l->at_now,
                .bias = bias_of(call, l, 3, c),
                .labels = call->in[2],
                .before = c > 0 ? state : before,
                .state = state,
                .rows = l->rows,
                .row = r * l->rows_now,
                .first = l->first + c * l->chunk,
                .n = chunk_rows(l, c),
                .ld = l->chunk,
                .cap = l->cap,
                .bias_type = (int)sw_gpu_type_of(l->bias_dtype),
            };
            GPU_LAUNCH(call, loss_stats, SW_GPU_F32, blocks(run_rows(l, r)), &args);
        }
    }
    if (!l->partial) {
        SW_TRY(finish_linear_ce(call, state, (float *)(void *)(workspace + l->at_loss), l->rows));
    }
    return SW_OK;
}
const struct gpu_op sw_gpu_linear_ce = {
    .query = query_forward, .prepare = prepare_forward, .release = release, .run = forward};

/* ---- the parts of a vocabulary that ranks made ---- */

static void query_merge(const struct gpu_device *dev, const struct sw_op_desc *desc,
                        struct sw_kernel_info *out)
{
    (void)dev;
    size_t bytes = 0;
    add_part(&bytes, 5 * sw_shape_rows(&desc->in[0].shape), sizeof(float));
    out->supported = desc->in[desc->op->n_in - 1].dtype == SW_F32;
    out->workspace_bytes = bytes;
}

/* Joins the parts, of `per` numbers a row, which are the last input. */
static sw_status join_parts(const struct gpu_call *call, int64_t per, int64_t rows, float *totals)
{
    const int i_parts = call->desc->op->n_in - 1;
    struct gpu_loss_merge_args args = {.parts = call->in[i_parts],
                                       .state = call->workspace,
                                       .totals = totals,
                                       .rows = rows,
                                       .n = call->desc->in[i_parts].shape.dims[0] / per,
                                       .per = per};
    GPU_LAUNCH(call, loss_merge, SW_GPU_PLAIN, sw_gpu_grid_for(rows, THREADS), &args);
    return SW_OK;
}

static sw_status merge_classes(const struct gpu_call *call)
{
    const struct sw_cross_entropy_attrs *attrs = &call->desc->op->attrs.cross_entropy;
    const int64_t rows = sw_shape_rows(&call->desc->in[0].shape);
    float *state = call->workspace, *loss = state + 3 * rows, *totals = loss + rows;
    const struct gpu_loss_rows_args smoothed = smoothed_of(attrs, attrs->whole, totals);
    SW_TRY(join_parts(call, 4, rows, totals));
    return finish_loss(call, state, loss, call->in[1], rows,
                       attrs->ignores_beyond ? attrs->whole : 0,
                       attrs->smoothing > 0 ? &smoothed : NULL);
}
const struct gpu_op sw_gpu_cross_entropy_merge = {.query = query_merge, .run = merge_classes};

static sw_status merge_words(const struct gpu_call *call)
{
    const int64_t rows = sw_shape_rows(&call->desc->in[0].shape);
    float *state = call->workspace;
    SW_TRY(join_parts(call, 3, rows, NULL));
    return finish_linear_ce(call, state, state + 3 * rows, rows);
}
const struct gpu_op sw_gpu_linear_ce_merge = {.query = query_merge, .run = merge_words};

/* ---- backward ---- */

static sw_status get_gradients(const struct gpu_device *dev, const struct sw_op_desc *desc,
                               struct linear_ce *l)
{
    const int64_t chunk_elems = l->chunk * l->width;
    for (int c = 0; c < (l->n_chunks > 1 ? 2 : 1); c++) {
        const int64_t n = chunk_rows(l, c ? 0 : l->n_chunks - 1);
        struct gpu_product dh = {
            .m = l->rows,
            .n = l->width,
            .k = n,
            .lda = l->chunk,
            .ldb = l->width,
            .ldd = l->width,
            .out = (int32_t)SW_F32,
            .align_a = GPU_ALIGN,
            .align_b =
                sw_gpu_align_in(desc->in_shift[2], chunk_elems * (int64_t)sw_dtype_bytes(l->dtype)),
            .align_d = sw_gpu_align_in(l->partial ? desc->out_shift[0] : 0, 0),
        };
        if (l->has_dh) {
            SW_TRY(get(dev, l, &dh, &l->dh[c]));
        }
        if (l->has_dw) {
            struct gpu_product dw = {
                .m = n,
                .n = l->width,
                .k = l->rows,
                .lda = l->chunk,
                .ldb = l->width,
                .ldd = l->width,
                .ta = true,
                .out = (int32_t)desc->out[1].dtype,
                .align_a = GPU_ALIGN,
                .align_b = sw_gpu_align_in(desc->in_shift[1], 0),
                .align_d = sw_gpu_align_in(
                    desc->out_shift[1], chunk_elems * (int64_t)sw_dtype_bytes(desc->out[1].dtype)),
            };
            SW_TRY(get(dev, l, &dw, &l->dw[c]));
        }
    }
    return SW_OK;
}

static sw_status open_backward(const struct gpu_device *dev, const struct sw_op_desc *desc,
                               struct linear_ce *l)
{
    describe(desc, 1, l);
    l->has_dh = gpu_has_output(desc, 0);
    l->has_dw = gpu_has_output(desc, 1);
    l->has_db = gpu_has_output(desc, 2);
    l->at_d = add_part(&l->bytes, l->rows * l->chunk, sw_dtype_bytes(l->dtype));
    if (l->has_dh && !l->partial) {
        l->at_sum = add_part(&l->bytes, l->rows * l->width, sizeof(float));
    }
    int64_t now = l->rows_now * l->chunk;
    now = sw_max_i64(now, l->has_dh ? l->rows * l->width : 0);
    now = sw_max_i64(now, l->has_db ? sw_ceil_div(l->rows, SW_SUM_BLOCK) * l->chunk : 0);
    l->at_now = add_part(&l->bytes, now, sizeof(float));
    l->at_product = l->bytes;
    SW_TRY(get_logits(dev, desc, 1, l));
    SW_TRY(get_gradients(dev, desc, l));
    return SW_OK;
}

static void query_backward(const struct gpu_device *dev, const struct sw_op_desc *desc,
                           struct sw_kernel_info *out)
{
    struct linear_ce l;
    if (takes(desc, 1) && open_backward(dev, desc, &l) >= 0) {
        out->supported = true;
        out->workspace_bytes = l.bytes;
        out->path = sw_gpu_products_name(dev->products);
    }
}

static sw_status prepare_backward(struct gpu_device *dev, const struct sw_op_desc *desc,
                                  void **prepared)
{
    struct linear_ce l;
    SW_TRY(open_backward(dev, desc, &l));
    SW_TRY(prepared_copy(&l, prepared));
    return SW_OK;
}

/* Makes the slope of a chunk. */
static sw_status make_d(const struct gpu_call *call, const struct linear_ce *l, int64_t c)
{
    char *workspace = call->workspace;
    const bool by_row = call->desc->op->attrs.linear_ce.by_row;
    for (int64_t r = 0; r < l->n_runs; r++) {
        const int64_t row = r * l->rows_now;
        SW_TRY(make_logits(call, l, 1, c, r));
        struct gpu_loss_slope_args args = {
            .logits = workspace + l->at_now,
            .bias = bias_of(call, l, 5, c),
            .labels = (const int32_t *)call->in[3] + row,
            .dsum = (const float *)call->in[0] + (by_row ? row : 0),
            .dsum_step = by_row,
            .lse = (const float *)call->in[4] + row,
            .d = gpu_behind(workspace + l->at_d, row * l->chunk, l->dtype),
            .first = l->first + c * l->chunk,
            .n = chunk_rows(l, c),
            .ld = l->chunk,
            .ld_d = l->chunk,
            .cap = l->cap,
            .logits_type = SW_GPU_F32,
            .bias_type = (int)sw_gpu_type_of(l->bias_dtype),
        };
        GPU_LAUNCH(call, loss_slope, sw_gpu_type_of(l->dtype), blocks(run_rows(l, r)), &args);
    }
    return SW_OK;
}

/* dh += d w_chunk; after the table's last chunk, dh is rounded. */
static sw_status add_dh(const struct gpu_call *call, const struct linear_ce *l, int64_t c)
{
    char *workspace = call->workspace;
    float *sum = l->partial ? call->out[0] : (void *)(workspace + l->at_sum);
    const bool ends = c == l->n_chunks - 1 && !l->partial, begins = c == 0 && !l->continues;
    void *part = begins && !ends ? (void *)sum : workspace + l->at_now;
    const struct gpu_product_call operands = {
        .a = workspace + l->at_d,
        .b = gpu_behind(call->in[2], c * l->chunk * l->width, l->dtype),
        .d = part,
        .workspace = workspace + l->at_product};
    SW_TRY(sw_gpu_product_run(call, l->dh[c < l->n_chunks - 1], &operands));
    if (begins && !ends) {
        return SW_OK;
    }
    struct gpu_product_finish_args args = {
        .x = begins  ? NULL
             : c > 0 ? sum
                     : call->in[5 + l->has_bias],
        .part = part,
        .out = ends ? call->out[0] : sum,
        .rows = l->rows,
        .columns = l->width,
        .ld_x = l->width,
        .ld_part = l->width,
        .ld_out = l->width,
        .part_type = SW_GPU_F32,
        .act = (int)SW_ACT_NONE,
    };
    SW_TRY(sw_gpu_product_finish(call, ends ? call->desc->out[0].dtype : SW_F32, &args));
    return SW_OK;
}

static sw_status make_db(const struct gpu_call *call, const struct linear_ce *l, int64_t c)
{
    char *workspace = call->workspace;
    const enum sw_dtype dtype = call->desc->out[2].dtype;
    const int64_t n = chunk_rows(l, c), n_blocks = sw_ceil_div(l->rows, SW_SUM_BLOCK);
    float *sums = (void *)(workspace + l->at_now);
    struct gpu_loss_bias_args args = {.d = workspace + l->at_d,
                                      .sums = sums,
                                      .rows = l->rows,
                                      .n = n,
                                      .ld_d = l->chunk,
                                      .block = SW_SUM_BLOCK};
    GPU_LAUNCH(call, loss_bias, sw_gpu_type_of(l->dtype),
               blocks(n_blocks * sw_ceil_div(n, THREADS)), &args);
    void *db = gpu_behind(call->out[2], l->first_bias + c * l->chunk, dtype);
    return sw_gpu_add_blocks(call, sums, l->rows, n, db, dtype);
}

/* Sets elements [first, first + n) of an output to 0. */
static sw_status clear_elems(const struct gpu_call *call, int i_out, int64_t first, int64_t n)
{
    const enum sw_dtype dtype = call->desc->out[i_out].dtype;
    return sw_gpu_zero(call, gpu_behind(call->out[i_out], first, dtype),
                       (size_t)n * sw_dtype_bytes(dtype));
}

static sw_status clear_padding(const struct gpu_call *call, const struct linear_ce *l)
{
    if (l->has_dw && call->out[1]) {
        SW_TRY(clear_elems(call, 1, l->vocab * l->width, l->padding * l->width));
    }
    return l->has_db && call->out[2] ? clear_elems(call, 2, l->vocab, l->padding) : SW_OK;
}

static sw_status backward(const struct gpu_call *call)
{
    const struct linear_ce *l = call->prepared;
    char *workspace = call->workspace;
    for (int64_t c = 0; c < l->n_chunks; c++) {
        SW_TRY(make_d(call, l, c));
        if (l->has_dh && call->out[0]) {
            SW_TRY(add_dh(call, l, c));
        }
        if (l->has_dw && call->out[1]) {
            const struct gpu_product_call operands = {
                .a = workspace + l->at_d,
                .b = call->in[1],
                .d = gpu_behind(call->out[1], c * l->chunk * l->width, call->desc->out[1].dtype),
                .workspace = workspace + l->at_product};
            SW_TRY(sw_gpu_product_run(call, l->dw[c < l->n_chunks - 1], &operands));
        }
        if (l->has_db && call->out[2]) {
            SW_TRY(make_db(call, l, c));
        }
    }
    return l->padding > 0 ? clear_padding(call, l) : SW_OK;
}
const struct gpu_op sw_gpu_linear_ce_grad = {
    .query = query_backward, .prepare = prepare_backward, .release = release, .run = backward};
