// SPDX-License-Identifier: Apache-2.0
// MATMUL of bf16 by dot-product instructions (dots.h). Rows and columns do not depend on each
// other, so a parameter that is cut into pieces (attrs.matmul.piece) by them is one product here.
// Pieces of terms begin with a new step of the sums. A tile has some of the pieces, and continues
// the sums of those before.
#include "device/cpu/dots.h"

enum side_of_pieces { COLUMNS, ROWS, TERMS };

/* Columns that are handed over at once with an activation: what is computed beside a step of the
 * product costs least in small pieces. */
enum { ACT_PART = 2 * DOT_EDGE };

struct matmul {
    struct cpu_dots dots;
    enum side_of_pieces pieces;
    int64_t n;     /* columns of the result */
    int64_t first; /* first row of the parameter that a tile has */
    struct cpu_epilogue epilogue;
    bool has_bias, continues;
};

static void describe(const struct sw_op_desc *desc, struct matmul *out)
{
    const struct sw_matmul_attrs *attrs = &desc->op->attrs.matmul;
    *out = (struct matmul){
        .pieces = attrs->ta   ? ROWS
                  : attrs->tb ? COLUMNS
                              : TERMS,
        .n = sw_shape_last(&desc->out[0].shape),
        .first = attrs->piece > 0 ? attrs->tile.first : 0,
        .epilogue = {.dtype = desc->out[0].dtype,
                     .bias_dtype = attrs->has_bias ? desc->in[2].dtype : SW_F32,
                     .act = attrs->act},
        .has_bias = attrs->has_bias,
        .continues = attrs->piece > 0 && attrs->tile.continues,
    };
    out->continues = out->continues && out->pieces == TERMS;
    out->epilogue.ld_out = out->n;
    out->epilogue.streams =
        sw_shape_bytes(&desc->out[0].shape, out->epilogue.dtype) > DOT_STREAMED_BYTES;
}

static bool takes(const struct sw_op_desc *desc, const struct matmul *mm)
{
    const enum sw_dtype out = mm->epilogue.dtype;
    return desc->in[0].dtype == SW_BF16 && desc->in[1].dtype == SW_BF16 &&
           cpu_has_output(desc, 0) && sw_cpu_dot_epilogue_takes(&mm->epilogue) &&
           (!cpu_has_output(desc, 1) || desc->out[1].dtype == out);
}

static void cut(const struct cpu_dot_kernel *kernel, int n_threads, const struct sw_op_desc *desc,
                struct matmul *mm)
{
    const struct sw_matmul_attrs *attrs = &desc->op->attrs.matmul;
    const struct sw_view *a = &desc->in[0], *b = &desc->in[1];
    const int64_t a_rows = sw_shape_rows(&a->shape), a_cols = sw_shape_last(&a->shape);
    const int64_t b_rows = sw_shape_rows(&b->shape), b_cols = sw_shape_last(&b->shape);
    const bool in_pieces = attrs->piece > 0;
    const struct cpu_gemm gemm = {
        .dtype = SW_BF16,
        .dtype_b = SW_BF16,
        .ta = attrs->ta,
        .tb = attrs->tb,
        .m = in_pieces && mm->pieces == ROWS ? sw_shape_rows(&desc->out[0].shape)
             : attrs->ta                     ? a_cols
                                             : a_rows,
        .n = attrs->tb ? b_rows : b_cols,
        .k = in_pieces && mm->pieces == TERMS ? b_rows
             : attrs->ta                      ? a_rows
                                              : a_cols,
        .lda = a_cols,
        .ldb = b_cols,
    };
    mm->dots = (struct cpu_dots){.kernel = kernel,
                                 .whole = gemm,
                                 .piece = mm->pieces == TERMS ? attrs->piece : 0,
                                 .part = attrs->act != SW_ACT_NONE ? ACT_PART : 0};
    sw_cpu_dots_cut(&mm->dots, n_threads);
}

static void query(const struct cpu_device *dev, const struct sw_op_desc *desc,
                  struct sw_kernel_info *out)
{
    const struct cpu_dot_kernel *kernel = sw_cpu_dot_kernel(dev);
    struct matmul mm;
    if (!kernel) {
        return;
    }
    describe(desc, &mm);
    if (takes(desc, &mm)) {
        cut(kernel, cpu_workers(dev->pool), desc, &mm);
        out->supported = true;
        out->workspace_bytes = cpu_dots_bytes(&mm.dots, cpu_workers(dev->pool));
        out->path = kernel->name;
    }
}

static sw_status prepare(const struct cpu_device *dev, const struct sw_op_desc *desc,
                         void **prepared)
{
    struct matmul *mm = sw_alloc("device", sizeof *mm);
    SW_TRY_ALLOC(mm, "a matrix product");
    describe(desc, mm);
    cut(sw_cpu_dot_kernel(dev), cpu_workers(dev->pool), desc, mm);
    *prepared = mm;
    return SW_OK;
}

/* Finishes a part of a row of the result. */
static void finish(void *ctx, const struct cpu_block *part, const float *c)
{
    const struct cpu_call *call = ctx;
    const struct matmul *mm = call->prepared;
    const int64_t column = part->j + (mm->pieces == COLUMNS ? mm->first : 0);
    const size_t first = (size_t)(part->i * mm->n + column) * sw_dtype_bytes(mm->epilogue.dtype);
    char *pre = cpu_has_output(call->desc, 1) ? call->out[1] : NULL;
    struct cpu_epilogue epilogue = mm->epilogue;
    epilogue.out = (char *)call->out[0] + first;
    epilogue.pre = pre ? pre + first : NULL;
    epilogue.bias = mm->has_bias ? (const char *)call->in[2] +
                                       (size_t)column * sw_dtype_bytes(epilogue.bias_dtype)
                                 : NULL;
    sw_cpu_dot_epilogue(&epilogue, c, part->n);
}

static void run(const struct cpu_call *call)
{
    const struct matmul *mm = call->prepared;
    const struct cpu_dots_run job = {.a = (const uint16_t *)call->in[0] +
                                          (mm->pieces == COLUMNS ? 0 : mm->first),
                                     .b = call->in[1],
                                     .before = mm->continues ? call->in[2 + mm->has_bias] : NULL,
                                     .n_rows = mm->dots.whole.m,
                                     .workspace = call->workspace,
                                     .sink = finish,
                                     .ctx = (void *)(uintptr_t)call};
    sw_cpu_dots_run(&mm->dots, call->pool, &job);
}

const struct cpu_kernel sw_cpu_matmul_dots = {
    .name = "dots", .query = query, .prepare = prepare, .release = sw_free, .run = run};
