// SPDX-License-Identifier: Apache-2.0
// MATMUL: products by the library, and a kernel of ours for what the library does not do. The
// product adds a bias of the result's dtype. Of the activations the library applies only tanh GELU,
// if it has it and results are 16-bit: it computes the same function, but the accuracy of its tanh
// is undocumented, which matters for fp32 results. Its ReLU is not used: how it treats NaN is
// undocumented, and it stores the input for backward as bits. All other activations take the
// product in the result's dtype, or the fp32 sum. A large parameter may be cut into pieces
// (attrs.matmul.piece). Each piece is a product of its own, with the strides of the whole: a tile
// has some of the pieces and computes what the whole op would. Sums over pieces are added in order,
// one fp32 addition per element.
#include "device/gpu/blas.h"

enum form { IN_ONE, BY_COLUMNS, BY_DEPTH, BY_ROWS };

struct matmul {
    enum form form;
    bool sums; /* over pieces, or on top of the sum of the tiles before */
    const struct gpu_prepared *product[2]; /* for the last piece; for the others */
    int64_t n_pieces, piece;               /* rows of the parameter */
    int64_t first;                         /* first row of the parameter that a tile has */
    int64_t m, n, width;                   /* of the result; width: its row stride */
    bool bias_inside;                      /* the product adds the bias */
    bool gelu_inside; /* GELU was asked for; the product's shape says whether it was granted */
    bool finishes;    /* a kernel finishes products without GELU */
    /* Destination of the products. */
    enum { TO_RESULT, TO_PART } to;
    int64_t ld_part;
    enum sw_dtype product_dtype;
    size_t part_bytes, sum_bytes, product_bytes;
};

static bool takes(const struct sw_op_desc *desc)
{
    const struct sw_view *a = &desc->in[0], *b = &desc->in[1];
    return !desc->is_predicated && gpu_is_float(a->dtype) && b->dtype == a->dtype &&
           gpu_has_output(desc, 0) && gpu_is_float(desc->out[0].dtype) &&
           (!gpu_has_output(desc, 1) || desc->out[1].dtype == desc->out[0].dtype) &&
           (!desc->op->attrs.matmul.has_bias || gpu_is_float(desc->in[2].dtype));
}

/* Gets the product of one piece with that many rows of the parameter. */
static sw_status get_piece(const struct gpu_device *dev, const struct sw_op_desc *desc,
                           const struct matmul *mm, int64_t rows, const struct gpu_prepared **out)
{
    const struct sw_matmul_attrs *attrs = &desc->op->attrs.matmul;
    const struct sw_view *a = &desc->in[0], *b = &desc->in[1];
    const int64_t a_rows = sw_shape_rows(&a->shape), a_cols = sw_shape_last(&a->shape);
    const int64_t b_rows = sw_shape_rows(&b->shape), b_cols = sw_shape_last(&b->shape);
    const int64_t in_bytes = (int64_t)sw_dtype_bytes(a->dtype);
    const int64_t out_bytes = (int64_t)sw_dtype_bytes(mm->product_dtype);
    struct gpu_product shape = {
        .m = attrs->ta ? a_cols : a_rows,
        .n = attrs->tb ? b_rows : b_cols,
        .k = attrs->ta ? a_rows : a_cols,
        .lda = a_cols,
        .ldb = b_cols,
        .ldd = mm->to == TO_PART ? mm->ld_part : mm->width,
        .ta = attrs->ta,
        .tb = attrs->tb,
        .has_bias = mm->bias_inside,
        .in = (int32_t)a->dtype,
        .out = (int32_t)mm->product_dtype,
    };
    int64_t piece_a = 0, piece_b = 0, piece_d = 0; /* bytes between pieces */
    if (mm->form == BY_ROWS) {
        shape.m = rows;
        piece_a = mm->piece * in_bytes;
        piece_d = mm->piece * mm->width * out_bytes;
    } else if (mm->form == BY_COLUMNS) {
        shape.n = rows;
        piece_b = mm->piece * b_cols * in_bytes;
        piece_d = mm->piece * out_bytes;
    } else if (mm->form == BY_DEPTH) {
        shape.k = rows;
        piece_a = mm->piece * in_bytes;
        piece_b = mm->piece * b_cols * in_bytes;
    }
    /* partial sums are in the result, too */
    const bool to_result = mm->to == TO_RESULT || mm->sums;
    shape.align_a = sw_gpu_align_in(desc->in_shift[0], piece_a);
    shape.align_b = sw_gpu_align_in(desc->in_shift[1], piece_b);
    shape.align_d =
        sw_gpu_align_in(to_result ? desc->out_shift[0] | desc->out_shift[1] : 0, piece_d);
    if (mm->gelu_inside) {
        shape.gelu = true;
        shape.keeps_pre = gpu_has_output(desc, 1);
    }
    SW_TRY(sw_gpu_product_get(dev, &shape, out));
    if (shape.gelu && !(*out)->blas) { /* the library has only the plain product */
        shape.gelu = shape.keeps_pre = false;
        SW_TRY(sw_gpu_product_get(dev, &shape, out));
    }
    return SW_OK;
}

/* Decides which products run, where they go and what follows. */
static void arrange(const struct gpu_device *dev, const struct sw_op_desc *desc, struct matmul *mm)
{
    const struct sw_matmul_attrs *attrs = &desc->op->attrs.matmul;
    const enum sw_dtype out = desc->out[0].dtype;
    const int64_t rows = sw_shape_rows(&desc->in[1].shape);
    *mm = (struct matmul){
        .form = attrs->piece == 0 ? IN_ONE
                : attrs->ta       ? BY_ROWS
                : attrs->tb       ? BY_COLUMNS
                                  : BY_DEPTH,
        .n_pieces = 1,
        .first = attrs->tile.first,
        .m = sw_shape_rows(&desc->out[0].shape),
        .width = sw_shape_last(&desc->out[0].shape),
        .product_dtype = out,
    };
    mm->n = attrs->tb ? rows : mm->width;
    const int64_t whole = mm->form == BY_ROWS ? mm->m : rows;
    mm->piece = mm->form == IN_ONE ? whole : attrs->piece;
    mm->n_pieces = mm->form == IN_ONE ? 1 : sw_max_i64(1, sw_ceil_div(whole, mm->piece));
    mm->sums =
        mm->form == BY_DEPTH && (mm->n_pieces > 1 || attrs->tile.continues || attrs->tile.partial);
    mm->bias_inside = !mm->sums && attrs->has_bias && desc->in[2].dtype == out &&
                      desc->in_shift[2] % GPU_ALIGN == 0 && sw_gpu_products_add_bias(dev->products);
    const bool bias_behind = attrs->has_bias && !mm->bias_inside;
    mm->gelu_inside = !mm->sums && !bias_behind && attrs->act == SW_ACT_GELU_TANH &&
                      out != SW_F32 && sw_gpu_products_have_gelu(dev->products);
    mm->finishes = mm->sums || bias_behind || attrs->act != SW_ACT_NONE || gpu_has_output(desc, 1);
    if (mm->sums) {
        mm->to = TO_PART;
        mm->ld_part = mm->width;
        mm->part_bytes = (size_t)(mm->m * mm->width) * sizeof(float);
        mm->sum_bytes = attrs->tile.partial ? 0 : mm->part_bytes;
    } else if (bias_behind && out != SW_F32) {
        mm->to = TO_PART;
        mm->ld_part = mm->form == BY_COLUMNS ? mm->piece : mm->width;
        mm->part_bytes =
            (size_t)((mm->form == BY_ROWS ? mm->piece : mm->m) * mm->ld_part) * sizeof(float);
    }
    if (mm->to == TO_PART) {
        mm->product_dtype = SW_F32;
    }
    mm->part_bytes = sw_round_up(mm->part_bytes, 64);
    mm->sum_bytes = sw_round_up(mm->sum_bytes, 64);
}

static sw_status open(const struct gpu_device *dev, const struct sw_op_desc *desc,
                      struct matmul *mm)
{
    arrange(dev, desc, mm);
    const int64_t whole = mm->form == BY_ROWS ? mm->m : sw_shape_rows(&desc->in[1].shape);
    for (int other = 0; other < (mm->n_pieces > 1 ? 2 : 1); other++) {
        const int64_t rows = other ? mm->piece : whole - (mm->n_pieces - 1) * mm->piece;
        SW_TRY(get_piece(dev, desc, mm, rows, &mm->product[other]));
        if (mm->product[other]->workspace_bytes > mm->product_bytes) {
            mm->product_bytes = mm->product[other]->workspace_bytes;
        }
    }
    return SW_OK;
}

static void query(const struct gpu_device *dev, const struct sw_op_desc *desc,
                  struct sw_kernel_info *out)
{
    struct matmul mm;
    if (takes(desc) && open(dev, desc, &mm) >= 0) {
        out->supported = true;
        out->workspace_bytes = mm.part_bytes + mm.sum_bytes + mm.product_bytes;
        out->path = sw_gpu_products_name(dev->products);
    }
}

static sw_status prepare(struct gpu_device *dev, const struct sw_op_desc *desc, void **prepared)
{
    struct matmul *mm = sw_alloc_zero("device", 1, sizeof *mm);
    SW_TRY_ALLOC(mm, "a matrix product");
    const sw_status st = open(dev, desc, mm);
    if (st < 0) {
        sw_free(mm);
        return sw_frame_at(__FILE__, __LINE__, st);
    }
    *prepared = mm;
    return SW_OK;
}

static void release(struct gpu_device *dev, void *prepared)
{
    (void)dev;
    sw_free(prepared);
}

/* Runs the products of one piece, and what follows them if pieces are separate. */
static sw_status run_piece(const struct gpu_call *call, int64_t i_piece)
{
    const struct matmul *mm = call->prepared;
    const struct sw_op_desc *desc = call->desc;
    const struct gpu_prepared *product = mm->product[i_piece < mm->n_pieces - 1];
    const struct gpu_product *s = &product->shape;
    const enum sw_dtype in = desc->in[0].dtype, out = desc->out[0].dtype;
    const int64_t row = i_piece * mm->piece; /* row of the parameter in this tile */
    const int64_t column = mm->form == BY_COLUMNS ? mm->first + row : 0;
    /* element of the result */
    const int64_t at = column + (mm->form == BY_ROWS ? row * mm->width : 0);
    const void *a = gpu_behind(call->in[0], mm->form == BY_ROWS ? mm->first + row : 0, in);
    const void *b = gpu_behind(call->in[1], mm->form == BY_COLUMNS ? row * s->ldb : 0, in);
    const bool has_bias = desc->op->attrs.matmul.has_bias;
    const void *bias = has_bias ? gpu_behind(call->in[2], column, desc->in[2].dtype) : NULL;
    void *y = gpu_behind(call->out[0], at, out);
    void *pre = desc->op->n_out > 1 ? gpu_behind(call->out[1], at, out) : NULL;
    /* Backward reads the activation's input: the product leaves it in pre. */
    void *part = mm->to == TO_PART ? call->workspace : pre && !s->gelu ? pre : y;
    const struct gpu_product_call operands = {.a = a,
                                              .b = b,
                                              .bias = mm->bias_inside ? bias : NULL,
                                              .d = part,
                                              .pre = s->keeps_pre ? pre : NULL,
                                              .workspace = (char *)call->workspace +
                                                           mm->part_bytes + mm->sum_bytes};
    SW_TRY(sw_gpu_product_run(call, product, &operands));
    if (!mm->finishes || s->gelu) {
        return SW_OK;
    }
    struct gpu_product_finish_args args = {
        .part = part,
        .bias = mm->bias_inside ? NULL : bias,
        .out = y,
        .pre = pre == part && (mm->bias_inside || !has_bias) ? NULL : pre,
        .rows = s->m,
        .columns = s->n,
        .ld_part = s->ldd,
        .ld_out = mm->width,
        .part_type = (int)sw_gpu_type_of(mm->product_dtype),
        .bias_type = has_bias ? (int)sw_gpu_type_of(desc->in[2].dtype) : 0,
        .act = (int)desc->op->attrs.matmul.act,
    };
    SW_TRY(sw_gpu_product_finish(call, out, &args));
    return SW_OK;
}

/* The result, summed over the pieces in order. */
static sw_status run_sum(const struct gpu_call *call)
{
    const struct matmul *mm = call->prepared;
    const struct sw_op_desc *desc = call->desc;
    const struct sw_matmul_attrs *attrs = &desc->op->attrs.matmul;
    const enum sw_dtype in = desc->in[0].dtype;
    float *part = call->workspace;
    float *sum =
        attrs->tile.partial ? call->out[0] : (void *)((char *)call->workspace + mm->part_bytes);
    for (int64_t p = 0; p < mm->n_pieces; p++) {
        const bool last = p == mm->n_pieces - 1, begins = p == 0 && !attrs->tile.continues;
        const struct gpu_prepared *product = mm->product[!last];
        const int64_t row = p * mm->piece;
        const struct gpu_product_call operands = {
            .a = gpu_behind(call->in[0], mm->first + row, in),
            .b = gpu_behind(call->in[1], row * product->shape.ldb, in),
            .d = begins ? sum : part,
            .workspace = (char *)call->workspace + mm->part_bytes + mm->sum_bytes};
        SW_TRY(sw_gpu_product_run(call, product, &operands));
        if (begins) {
            continue; /* not the last piece, or the sum of the first tile */
        }
        const float *before = p > 0 ? sum : call->in[2 + attrs->has_bias];
        struct gpu_product_finish_args args = {
            .x = before,
            .part = part,
            .out = sum,
            .rows = mm->m,
            .columns = mm->width,
            .ld_x = mm->width,
            .ld_part = mm->width,
            .ld_out = mm->width,
            .part_type = SW_GPU_F32,
            .act = (int)SW_ACT_NONE,
        };
        if (last && !attrs->tile.partial) {
            args.bias = attrs->has_bias ? call->in[2] : NULL;
            args.bias_type = attrs->has_bias ? (int)sw_gpu_type_of(desc->in[2].dtype) : 0;
            args.out = call->out[0];
            args.pre = desc->op->n_out > 1 ? call->out[1] : NULL;
            args.act = (int)attrs->act;
        }
        SW_TRY(sw_gpu_product_finish(call, args.out == sum ? SW_F32 : desc->out[0].dtype, &args));
    }
    return SW_OK;
}

static sw_status run(const struct gpu_call *call)
{
    const struct matmul *mm = call->prepared;
    if (mm->sums) {
        return run_sum(call);
    }
    for (int64_t p = 0; p < mm->n_pieces; p++) {
        SW_TRY(run_piece(call, p));
    }
    return SW_OK;
}

const struct gpu_op sw_gpu_matmul = {
    .query = query, .prepare = prepare, .release = release, .run = run};
