// SPDX-License-Identifier: Apache-2.0
// Products and losses by tiles have the bits of the whole: for odd and tiny shapes, each dtype and
// instruction set, with tiles at any memory offset. The stride of an operand, by which a library
// may choose, is the same for a tile as for the whole. Emulated GPUs are covered, too: their
// libraries choose by strides.
// SLOW SPILLWAY_EMU_ALL=1
#include <stdlib.h>

#include "device/gpu/open.h"
#include "device/tests/op_case.h"
#include "support/test.h"

enum { MOST_TILES = 8 };

static const enum sw_dtype dtypes[] = {SW_F32, SW_BF16, SW_F16};
/* A limit above this processor's set changes nothing and is left out. */
static const char *const limits[] = {NULL, "portable", "avx2", "avx512", "avx512_bf16"};
/* sharing of work between threads does not depend on the instruction set */
#ifdef __SANITIZE_THREAD__
enum { N_LIMITS = 2 };
#else
enum { N_LIMITS = 5 };
#endif

/* The processor's devices, then emulated GPUs: with warps of 32; in slow mode also of 64. */
static int n_devices;

static bool is_new(struct sw_device *const *all, struct sw_device *dev)
{
    for (int i = 0; i < n_devices; i++) {
        if (strcmp(sw_device_kernel_set(all[i]), sw_device_kernel_set(dev)) == 0) {
            return false;
        }
    }
    return true;
}

static int open_devices(void **state)
{
    static struct sw_device *all[N_LIMITS + 2];
    for (int i = 0; i < N_LIMITS; i++) {
        const struct sw_cpu_options options = {.n_threads = 2, .max_isa = limits[i]};
        if (sw_device_open_cpu(&options, &all[n_devices]) < 0) {
            fail_msg("%s", sw_error_message());
        }
        if (is_new(all, all[n_devices])) {
            n_devices++;
        } else {
            sw_device_close(all[n_devices]);
        }
    }
    for (int i = 0; i < (getenv("SPILLWAY_EMU_ALL") ? 2 : 1); i++) {
        if (sw_gpu_open(i ? "emu64" : "emu32", 0, &all[n_devices]) >= 0) {
            n_devices++;
        } else {
            print_message("skipped: %s\n", sw_error_message());
        }
    }
    *state = all;
    return 0;
}

static int close_devices(void **state)
{
    for (int i = 0; i < n_devices; i++) {
        sw_device_close(((struct sw_device **)*state)[i]);
    }
    return 0;
}

static bool is_gpu(const struct sw_device *dev)
{
    return strcmp(dev->ops->name, "gpu") == 0;
}

static void run(struct sw_device *dev, const struct op_case *c, struct op_case *result)
{
    enum { GPU_ALIGN_ELEMS = 8 }; /* a GPU's operands are aligned to 16 bytes */
    struct op_case placed = *c;
    placed.shift *= is_gpu(dev) ? GPU_ALIGN_ELEMS : 1;
    if (case_run(dev, &placed, result) < 0) {
        fail_msg("%s on %s: %s", c->name, sw_device_kernel_set(dev), sw_error_message());
    }
}

/* Adds an input with the bytes of another tensor, from its row `first` on. */
static void copy_in(struct op_case *c, const struct case_tensor *from, int64_t first,
                    struct sw_shape shape)
{
    const int i = case_in_zero(c, from->view.dtype, shape);
    const size_t row = (size_t)sw_shape_last(&shape) * sw_dtype_bytes(from->view.dtype);
    memcpy(c->in[i].view.data, (char *)from->view.data + (size_t)first * row, c->in[i].bytes);
}

static void assert_same(const struct op_case *tile, const char *set, const struct case_tensor *have,
                        const struct case_tensor *whole, int64_t first)
{
    const size_t row =
        (size_t)sw_shape_last(&whole->view.shape) * sw_dtype_bytes(whole->view.dtype);
    if (memcmp(have->view.data, (char *)whole->view.data + (size_t)first * row, have->bytes) != 0) {
        fail_msg("%s on %s: other bits than the whole", tile->name, set);
    }
}

/* Rows of a parameter [rows, width], its tiles, and the number of rows of activations. */
struct shape {
    int64_t rows, width, tile, n_tokens;
    /* rows of a piece of a product, or of a chunk of the loss; a tile has whole ones */
    int64_t unit;
};

static int64_t n_tiles(const struct shape *s)
{
    return sw_ceil_div(s->rows, s->tile);
}

static int64_t rows_of(const struct shape *s, int64_t t)
{
    return sw_min_i64(s->tile, s->rows - t * s->tile);
}

/* ---- the loss ---- */

static const struct shape losses[] = {
    {5003, 8, 4096, 10, 4096}, {5003, 8, 4096, 907, 4096},
    {601, 33, 200, 7, 100},    {4097, 3, 4096, 33, 4096},
    {7, 1, 2, 1, 2},           {9, 5, 4, 3, 4},
    {130, 16, 64, 1031, 64},   {5, 3, 2, 4100, 2},
};

/* Cases with an odd width also have a bias and a cap. */
static void put_loss_inputs(struct op_case *c, enum sw_dtype dtype, const struct shape *s)
{
    const bool has_bias = s->width % 2;
    c->op.attrs.linear_ce = (struct sw_linear_ce_attrs){
        .chunk = s->unit, .cap = has_bias ? 3 : 0, .has_bias = has_bias};
    if (c->op.kind == SW_OP_LINEAR_CE_GRAD) {
        case_in(c, SW_F32, SW_SHAPE(1), 0.1, 2);
    }
    case_in(c, dtype, SW_SHAPE(s->n_tokens, s->width), -1, 1);
    case_in(c, dtype, SW_SHAPE(s->rows, s->width), -0.5, 0.5);
    case_in_ints(c, SW_SHAPE(s->n_tokens), 0, s->rows);
    if (c->op.kind == SW_OP_LINEAR_CE_GRAD) {
        case_in(c, SW_F32, SW_SHAPE(s->n_tokens), 4.5, 6);
    }
    if (has_bias) {
        case_in(c, dtype, SW_SHAPE(s->rows), -1, 1);
    }
}

/* Makes tile t of the whole; before: the previous one, NULL = t is the first. */
static void put_loss_tile(struct op_case *c, const struct op_case *whole, const struct shape *s,
                          int64_t t, const struct op_case *before)
{
    const bool is_grad = whole->op.kind == SW_OP_LINEAR_CE_GRAD, last = t == n_tiles(s) - 1;
    const enum sw_dtype dtype = whole->in[is_grad].view.dtype;
    case_init(c, whole->op.kind, "%s, tile %d", whole->name, (int)t);
    c->shift = t;
    c->op.attrs.linear_ce = whole->op.attrs.linear_ce;
    c->op.attrs.linear_ce.tile = (struct sw_tile_attrs){t * s->tile, t > 0, !last};
    for (int i = 0; i < whole->op.n_in; i++) {
        const bool is_param = i == 1 + is_grad;
        copy_in(c, &whole->in[i], is_param ? t * s->tile : 0,
                is_param ? SW_SHAPE(rows_of(s, t), s->width) : whole->in[i].view.shape);
    }
    const struct sw_shape sums =
        is_grad ? SW_SHAPE(s->n_tokens, s->width) : SW_SHAPE(3, s->n_tokens);
    if (before) {
        copy_in(c, &before->out[0], 0, sums);
    }
    if (before && !last) {
        case_out_in_place(c, c->op.n_in - 1);
    } else if (!last) {
        case_out(c, SW_F32, sums);
    } else if (is_grad) {
        case_out(c, dtype, sums);
    } else {
        case_out(c, SW_F32, SW_SHAPE(1));
        case_out(c, SW_F32, SW_SHAPE(1));
        case_out(c, SW_F32, SW_SHAPE(s->n_tokens));
    }
    if (is_grad) {
        case_out(c, dtype, SW_SHAPE(rows_of(s, t), s->width));
    }
    /* the bias gradient: each tile writes its rows */
    if (is_grad && whole->op.n_out > 2 && before) {
        copy_in(c, &before->out[2], 0, SW_SHAPE(s->rows));
        case_out_in_place(c, c->op.n_in - 1);
    } else if (is_grad && whole->op.n_out > 2) {
        case_out(c, dtype, SW_SHAPE(s->rows));
    }
}

static void put_whole_loss(struct op_case *c, enum sw_op_kind kind, enum sw_dtype dtype,
                           const struct shape *s)
{
    const bool is_grad = kind == SW_OP_LINEAR_CE_GRAD;
    case_init(c, kind, "loss %d of %dx%d %s", (int)kind, (int)s->rows, (int)s->width,
              sw_dtype_name(dtype));
    put_loss_inputs(c, dtype, s);
    case_out(c, is_grad ? dtype : SW_F32, is_grad ? SW_SHAPE(s->n_tokens, s->width) : SW_SHAPE(1));
    case_out(c, is_grad ? dtype : SW_F32, is_grad ? SW_SHAPE(s->rows, s->width) : SW_SHAPE(1));
    if (!is_grad) {
        case_out(c, SW_F32, SW_SHAPE(s->n_tokens));
    } else if (c->op.attrs.linear_ce.has_bias) {
        case_out(c, dtype, SW_SHAPE(s->rows));
    }
}

/* c: the whole loss */
static void check_loss(struct sw_device *dev, const struct op_case *c, const struct shape *s)
{
    enum { FEW_TOKENS = 100 };
    if (is_gpu(dev) && s->n_tokens > FEW_TOKENS && !getenv("SPILLWAY_EMU_ALL")) {
        return; /* a block for each row: slow */
    }
    const bool is_grad = c->op.kind == SW_OP_LINEAR_CE_GRAD;
    const char *set = sw_device_kernel_set(dev);
    struct op_case whole, tile, results[MOST_TILES];
    run(dev, c, &whole);
    const int64_t n = n_tiles(s);
    assert_true(n > 1 && n <= MOST_TILES);
    for (int64_t t = 0; t < n; t++) {
        put_loss_tile(&tile, c, s, t, t > 0 ? &results[t - 1] : NULL);
        run(dev, &tile, &results[t]);
        if (is_grad) {
            assert_same(&tile, set, &results[t].out[1], &whole.out[1], t * s->tile);
        }
        for (int i = 0; t == n - 1 && i < c->op.n_out; i += is_grad ? 2 : 1) {
            assert_same(&tile, set, &results[t].out[i], &whole.out[i], 0);
        }
        case_fini(&tile);
    }
    for (int64_t t = 0; t < n; t++) {
        case_fini(&results[t]);
    }
    case_fini(&whole);
}

static void a_loss_by_tiles_has_the_bits_of_the_whole(void **state)
{
    static const enum sw_op_kind kinds[] = {SW_OP_LINEAR_CE, SW_OP_LINEAR_CE_GRAD};
    struct sw_device **devices = *state;
    for (size_t i = 0; i < SW_LEN(losses) * SW_LEN(dtypes); i++) {
        const struct shape *s = &losses[i / SW_LEN(dtypes)];
        for (size_t k = 0; k < SW_LEN(kinds); k++) {
            struct op_case c;
            put_whole_loss(&c, kinds[k], dtypes[i % SW_LEN(dtypes)], s);
            for (int l = 0; l < n_devices; l++) {
                check_loss(devices[l], &c, s);
            }
            case_fini(&c);
        }
    }
}

/* The slope is in the workspace: tokens times the stride, even if the tile has few rows. */
static void the_slope_of_a_short_tile_has_the_stride_of_the_whole(void **state)
{
    static const struct shape s = {4097, 8, 4096, 4000, 4096};
    struct sw_device **devices = *state;
    for (size_t i = 0; i < SW_LEN(dtypes); i++) {
        struct op_case c, tile;
        case_init(&c, SW_OP_LINEAR_CE_GRAD, "stride %s", sw_dtype_name(dtypes[i]));
        put_loss_inputs(&c, dtypes[i], &s);
        put_loss_tile(&tile, &c, &s, 1, NULL);
        struct sw_op_desc desc = {.op = &tile.op};
        struct sw_kernel_info info;
        for (int k = 0; k < tile.op.n_in; k++) {
            desc.in[k] = tile.in[k].view;
        }
        for (int k = 0; k < tile.op.n_out; k++) {
            desc.out[k] = tile.out[k].view;
        }
        sw_device_query(devices[0], &desc, &info);
        assert_true(info.supported);
        assert_true(info.workspace_bytes >=
                    (size_t)(s.n_tokens * s.unit) * sw_dtype_bytes(dtypes[i]));
        case_fini(&tile);
        case_fini(&c);
    }
}

/* ---- products ---- */

enum form { BY_COLUMNS, BY_DEPTH, BY_ROWS, N_FORMS }; /* the meaning of the parameter's rows */

/* The last two have such long sums that their terms are packed in several parts, if the tile has
 * enough rows for packing once for all blocks. */
static const struct shape products[] = {
    {700, 67, 256, 65, 256},     {513, 8, 256, 10, 256},      {257, 1, 256, 1, 256},
    {600, 33, 256, 1, 256},      {1025, 5, 512, 907, 512},    {2049, 17, 1024, 3, 1024},
    {150, 15000, 128, 150, 128}, {150, 150, 128, 15000, 128},
};

static void put_product(struct op_case *c, enum form form, enum sw_dtype dtype,
                        const struct shape *s, const struct op_case *whole, int64_t t,
                        const struct case_tensor *before)
{
    const int64_t rows = whole ? rows_of(s, t) : s->rows, n = n_tiles(s);
    const bool last = !whole || t == n - 1;
    case_init(c, SW_OP_MATMUL, "product %d of %dx%d by %d %s, tile %d", (int)form, (int)s->rows,
              (int)s->width, (int)s->n_tokens, sw_dtype_name(dtype), whole ? (int)t : -1);
    c->shift = whole ? t + 1 : 0;
    const struct sw_tile_attrs tile = {whole ? t * s->tile : 0, whole && t > 0 && form != BY_ROWS,
                                       form == BY_DEPTH && !last};
    c->op.attrs.matmul = (struct sw_matmul_attrs){
        .ta = form == BY_ROWS, .tb = form == BY_COLUMNS, .piece = s->unit, .tile = tile};
    const struct sw_shape shapes[2] = {
        form == BY_COLUMNS ? SW_SHAPE(s->n_tokens, s->width) : SW_SHAPE(s->n_tokens, s->rows),
        form == BY_ROWS ? SW_SHAPE(s->n_tokens, s->width) : SW_SHAPE(rows, s->width)};
    for (int i = 0; i < 2; i++) {
        if (whole) {
            copy_in(c, &whole->in[i], i == 1 && form != BY_ROWS ? t * s->tile : 0, shapes[i]);
        } else {
            case_in(c, dtype, shapes[i], -1, 1);
        }
    }
    const struct sw_shape out = form == BY_COLUMNS ? SW_SHAPE(s->n_tokens, s->rows)
                                : form == BY_DEPTH ? SW_SHAPE(s->n_tokens, s->width)
                                                   : SW_SHAPE(rows, s->width);
    if (tile.continues) {
        copy_in(c, before, 0, out);
    }
    if (tile.continues && (form == BY_COLUMNS || !last)) {
        case_out_in_place(c, 2);
    } else {
        case_out(c, tile.partial ? SW_F32 : dtype, out);
    }
}

/* c: the whole product */
static void check_product(struct sw_device *dev, enum form form, const struct op_case *c,
                          const struct shape *s)
{
    enum { LONG = 2048 };
    if (is_gpu(dev) && (s->width > LONG || s->n_tokens > LONG)) {
        return; /* slow, and independent of the instruction set */
    }
    const char *set = sw_device_kernel_set(dev);
    const enum sw_dtype dtype = c->in[0].view.dtype;
    struct op_case whole, tile, results[MOST_TILES];
    run(dev, c, &whole);
    const int64_t n = n_tiles(s);
    assert_true(n > 1 && n <= MOST_TILES);
    for (int64_t t = 0; t < n; t++) {
        put_product(&tile, form, dtype, s, c, t, t > 0 ? &results[t - 1].out[0] : NULL);
        run(dev, &tile, &results[t]);
        if (form == BY_ROWS || t == n - 1) {
            assert_same(&tile, set, &results[t].out[0], &whole.out[0],
                        form == BY_ROWS ? t * s->tile : 0);
        }
        case_fini(&tile);
    }
    for (int64_t t = 0; t < n; t++) {
        case_fini(&results[t]);
    }
    case_fini(&whole);
}

static void a_product_by_tiles_has_the_bits_of_the_whole(void **state)
{
    struct sw_device **devices = *state;
    for (size_t i = 0; i < SW_LEN(products) * SW_LEN(dtypes); i++) {
        const struct shape *s = &products[i / SW_LEN(dtypes)];
        for (int form = 0; form < N_FORMS; form++) {
            struct op_case c;
            put_product(&c, (enum form)form, dtypes[i % SW_LEN(dtypes)], s, NULL, 0, NULL);
            for (int l = 0; l < n_devices; l++) {
                check_product(devices[l], (enum form)form, &c, s);
            }
            case_fini(&c);
        }
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_loss_by_tiles_has_the_bits_of_the_whole),
    cmocka_unit_test(the_slope_of_a_short_tile_has_the_stride_of_the_whole),
    cmocka_unit_test(a_product_by_tiles_has_the_bits_of_the_whole),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = open_devices,
                                      .teardown = close_devices};
