// SPDX-License-Identifier: Apache-2.0
// Memory-centric tiling (ZeRO-Infinity, Rajbhandari et al. 2021, section 5.1.3). A parameter that
// is too large to be on the device as a whole is used in tiles, which are runs of its rows. An op
// on it becomes one op per tile. A tile is a value inside the parameter that is loaded before its
// op and freed afterwards. Gradients leave tile by tile, with a stream for each, and updates run
// tile by tile. Products of large parameters are computed in pieces with or without tiles
// (attrs.matmul.piece), the loss in chunks of the vocabulary. A tile consists of whole pieces and
// chunks, so no bit changes.
//
// Only offloaded parameters are tiled. All programs of a plan have the same tiles. A matrix of an
// expert is one tile.
#include <stdio.h>
#include <string.h>

#include "plan/private.h"
#include "plan/technique.h"

struct tiles {
    int64_t rows, width; /* rows and row length of the parameter */
    int64_t tile_rows, n;
};

struct pass {
    struct sw_ir *ir;
    struct sw_op_order order;
    const struct tiles **tiles_of; /* [n_values] tiles of a parameter; NULL = not tiled */
    sw_value *first_tile; /* [n_values] first tile of a parameter; the other tiles follow it */
    int32_t *stream_of;   /* [n_ops] the stream of a tiled parameter that the op makes; -1 = none */
    int32_t *first_stream; /* [n_streams] first of the tiles' streams */
    struct sw_ir_stream *streams;
    /* [n_values] first value that lay in a value, and the next one; SW_NO_VALUE = none */
    sw_value *first_view, *next_view;
    int32_t n_values;
};

/* ---- choosing tiles ---- */

/* How an op works by rows of operand k (inputs, then outputs). Returns the rows of a unit; 0 = it
 * does not, as an exchange among ranks. */
static int64_t cut_of(const struct sw_ir *ir, const struct sw_ir_op *op, int k, struct sw_cut *cut)
{
    struct sw_op math;
    struct sw_op_desc desc;
    if (op->move != SW_MOVE_NONE) {
        return 0;
    }
    if (sw_op_info(op->kind)->attrs == SW_ATTRS_EXPERTS) { /* matrices are used whole */
        memset(cut, 0, sizeof *cut);
        return ir->values[k < op->n_in ? op->in[k] : op->out[k - op->n_in]].form->shape.dims[0];
    }
    sw_ir_describe(ir, op, &math, &desc);
    return sw_op_cut(&desc, k, 0, cut) && cut->turns != SW_TURNS_NONE ? cut->unit : 0;
}

/* Rows that tiles of a gradient must be multiples of, for the op that makes it; 0 = that op cannot
 * be split. */
static int64_t rows_of_gradient(const struct sw_ir *ir, sw_value grad)
{
    const struct sw_ir_value *info = &ir->values[grad];
    if (info->producer < 0 || info->base >= 0) {
        return 0;
    }
    if (info->sparse_index >= 0) {
        return 1; /* each tile selects its rows */
    }
    const struct sw_ir_op *op = &ir->ops[info->producer];
    struct sw_cut cut;
    int k = 0;
    while (op->out[k] != grad) {
        k++;
    }
    return cut_of(ir, op, op->n_in + k, &cut);
}

/* True if the update needs the whole tensor at once. */
static bool is_whole(const struct sw_ir_value *info, const struct sw_update_rule *rule)
{
    if (!rule) {
        return false;
    }
    const struct sw_update_rule its = sw_update_rule_of(rule, info->name, info->form->shape.rank);
    return sw_update_facts(its.attrs.kind)->reach >= SW_REACH_MATRIX;
}

static bool is_large(const struct sw_ir_value *info, const struct sw_plan_options *options)
{
    return !is_whole(info, options->rule) && info->form->shape.rank == 2 &&
           sw_ir_bytes(info) > options->policy.tile_bytes &&
           info->form->elems > options->limits.persistence_elems;
}

/* Rows that are a multiple of the runs of the norm, and of the runs of 8-bit moments. */
static int64_t rows_of_runs(const struct sw_ir_value *info, const struct sw_plan_options *options)
{
    const int64_t width = info->form->shape.dims[1];
    return sw_common_multiple(width, sw_update_run(options->rule)) / width;
}

int64_t *sw_tile_rows(const struct sw_ir *ir, const struct sw_plan_options *options)
{
    int64_t *rows = sw_alloc_zero("plan", (size_t)ir->n_values + 1, sizeof *rows);
    for (int32_t i = 0; rows && i < ir->params.n; i++) {
        const struct sw_ir_value *info = &ir->values[ir->params.at[i]];
        const bool may = info->form->shape.rank == 2 && !info->is_output;
        rows[ir->params.at[i]] = may ? rows_of_runs(info, options) : 0;
    }
    for (int32_t i = 0; rows && i < ir->n_ops; i++) {
        for (int k = 0; k < ir->ops[i].n_in; k++) {
            int64_t *of = &rows[ir->ops[i].in[k]];
            struct sw_cut cut;
            const int64_t asked = *of > 0 ? cut_of(ir, &ir->ops[i], k, &cut) : 0;
            *of = asked > 0 ? sw_common_multiple(*of, asked) : 0;
        }
    }
    for (int32_t i = 0; rows && i < ir->n_streams; i++) {
        int64_t *of = &rows[ir->streams[i].param];
        const int64_t asked = *of > 0 ? rows_of_gradient(ir, ir->streams[i].grad) : 0;
        *of = asked > 0 ? sw_common_multiple(*of, asked) : 0;
    }
    return rows;
}

/* false = the parameter stays whole */
static bool choose(const struct sw_plan *plan, const struct sw_plan_options *options,
                   const struct sw_ir_value *info, struct tiles *out)
{
    const int64_t width = info->form->shape.dims[1];
    int64_t rows = rows_of_runs(info, options);
    for (int i = 0; rows > 0 && i < plan->n_programs; i++) {
        /* also if only another stage has it in this program */
        const sw_value param =
            sw_names_find(&plan->programs[i].ir->leaves, SW_ROLE_PARAM, info->name);
        const int64_t here = param >= 0 ? plan->programs[i].draft.tile_rows[param] : rows;
        rows = here > 0 ? sw_common_multiple(rows, here) : 0;
    }
    if (rows == 0) {
        return false;
    }
    const int64_t fit =
        (int64_t)(options->policy.tile_bytes / ((size_t)width * sw_dtype_bytes(info->dtype)));
    *out = (struct tiles){.rows = info->form->shape.dims[0], .width = width};
    out->tile_rows = sw_max_i64(fit / rows * rows, rows);
    out->n = sw_ceil_div(out->rows, out->tile_rows);
    out->tile_rows = sw_min_i64(out->tile_rows, out->rows);
    return out->n > 1 || rows % out->rows == 0; /* a single tile is loaded for each op anew */
}

/* ---- ops ---- */

static int64_t first_row(const struct tiles *tiles, int64_t t)
{
    return t * tiles->tile_rows;
}

static int64_t n_rows(const struct tiles *tiles, int64_t t)
{
    return sw_min_i64(tiles->tile_rows, tiles->rows - first_row(tiles, t));
}

static sw_value copy(struct pass *p, sw_value v)
{
    const sw_value out = sw_ir_copy_value(p->ir, v);
    if (out >= 0) {
        p->ir->values[out].is_output = false;
    }
    return out;
}

/* The next version of an output that tiles write one after the other. The last version is the value
 * that other ops know. root: the first version, which owns the storage. */
static sw_value next_version(struct pass *p, sw_value final, bool last, sw_value *root)
{
    struct sw_ir *ir = p->ir;
    const sw_value v = last ? final : copy(p, final);
    if (v < 0) {
        return v;
    }
    if (*root >= 0) {
        ir->values[v].base = *root;
        return v;
    }
    *root = v;
    const sw_value first = final < p->n_values ? p->first_view[final] : SW_NO_VALUE;
    for (sw_value other = first; other >= 0; other = p->next_view[other]) {
        if (ir->values[other].base == final) {
            ir->values[other].base = v;
        }
    }
    return v;
}

/* The gradient of tile t, and its stream. */
static sw_value gradient(struct pass *p, int32_t stream, const struct tiles *tiles, int64_t t,
                         int64_t rows)
{
    struct sw_ir_stream *to = &p->streams[p->first_stream[stream] + t];
    const sw_value v = copy(p, p->ir->streams[stream].grad);
    if (v >= 0) {
        sw_ir_reshape(p->ir, v, SW_SHAPE(rows, tiles->width));
        struct sw_ir_value *info = &p->ir->values[v];
        info->param = to->param;
        info->role = SW_ROLE_GRAD;
        info->sparse_index = SW_NO_VALUE;
        to->grad = v;
    }
    return v;
}

/* Makes op work on tile t. partial: how it passes a partial sum to later tiles; NULL = it does
 * not. */
static void be_tile(struct sw_ir *ir, struct sw_ir_op *op, const struct tiles *tiles, int64_t t,
                    const struct sw_cut *partial)
{
    struct sw_op math = sw_ir_math(ir, op);
    struct sw_tile_attrs *tile = sw_op_tile(&math);
    if (!tile) { /* an op of experts */
        return;
    }
    tile->first = first_row(tiles, t);
    tile->continues = t > 0;
    if (partial) {
        sw_op_make_partial(&math, partial);
    }
    sw_ir_take_math(ir, op, &math);
}

static bool add(struct pass *p, const struct sw_ir_op *op)
{
    return p->ir->failure.status >= 0 && sw_op_order_add(&p->order, op);
}

/* Adds output i to the op of a tile; each tile writes a part of it. */
static void write_part(struct pass *p, struct sw_ir_op *o, int i, bool last, sw_value *root,
                       sw_value *latest)
{
    const sw_value final = o->out[i];
    if (*latest >= 0) {
        o->in[o->n_in++] = *latest;
    }
    *latest = o->out[i] = next_version(p, final, last, root);
}

/* Tiles write parts of the outputs: columns of a product, rows of a lookup. */
static bool emit_parts(struct pass *p, const struct sw_ir_op *op, int k, const struct tiles *tiles)
{
    sw_value root[2] = {SW_NO_VALUE, SW_NO_VALUE}, latest[2] = {SW_NO_VALUE, SW_NO_VALUE};
    for (int64_t t = 0; t < tiles->n; t++) {
        struct sw_ir_op o = *op;
        be_tile(p->ir, &o, tiles, t, NULL);
        o.in[k] = p->first_tile[op->in[k]] + (sw_value)t;
        for (int i = 0; i < op->n_out; i++) {
            write_part(p, &o, i, t == tiles->n - 1, &root[i], &latest[i]);
        }
        if (!add(p, &o)) {
            return false;
        }
    }
    return true;
}

/* An output other than the sum that is there, and that a cut affects so; 0 = none. */
static int output_with(const struct sw_ir_op *op, const struct sw_cut *cut,
                       enum sw_cut_effect effect)
{
    for (int i = 1; i < op->n_out; i++) {
        if (op->out[i] >= 0 && cut->operands[op->n_in + i].effect == effect) {
            return i;
        }
    }
    return 0;
}

/* Each tile continues a sum, and the last one completes the op. If an output is a gradient of the
 * parameter, each tile makes its rows of it. Outputs made of rows are written in turn. */
static bool emit_sums(struct pass *p, const struct sw_ir_op *op, int k, const struct tiles *tiles,
                      const struct sw_cut *cut)
{
    struct sw_ir *ir = p->ir;
    const bool has_sum = op->out[0] >= 0;
    const int i_grad = output_with(op, cut, SW_CUT_ALIKE);
    const int i_part = output_with(op, cut, SW_CUT_WRITTEN);
    sw_value root = SW_NO_VALUE, sum = SW_NO_VALUE, part_root = SW_NO_VALUE, part = SW_NO_VALUE;
    for (int64_t t = 0; t < tiles->n; t++) {
        const bool last = t == tiles->n - 1;
        struct sw_ir_op o = *op;
        be_tile(ir, &o, tiles, t, last ? NULL : cut);
        o.in[k] = p->first_tile[op->in[k]] + (sw_value)t;
        if (t > 0 && has_sum) {
            o.in[o.n_in++] = sum;
        }
        if (!last && has_sum) {
            sum = sw_ir_new_value(ir, SW_ROLE_TRANSIENT, ir->dtype == SW_F64 ? SW_F64 : SW_F32,
                                  cut->partial);
            if (sum >= 0 && root >= 0) {
                ir->values[sum].base = root;
            }
            root = root < 0 ? sum : root;
            o.out[0] = sum;
        }
        if (i_grad > 0) {
            const sw_value whole = op->out[i_grad];
            o.out[i_grad] =
                gradient(p, p->stream_of[ir->values[whole].producer], tiles, t, n_rows(tiles, t));
        }
        if (i_part > 0) {
            write_part(p, &o, i_part, last, &part_root, &part);
        }
        if (!add(p, &o)) {
            return false;
        }
    }
    return true;
}

/* The gradient of a product: each tile makes rows of the result. */
static bool emit_gradients(struct pass *p, const struct sw_ir_op *op, int32_t stream,
                           const struct tiles *tiles)
{
    for (int64_t t = 0; t < tiles->n; t++) {
        struct sw_ir_op o = *op;
        struct sw_op math = sw_ir_math(p->ir, op);
        if (sw_op_tile(&math)) {
            sw_op_tile(&math)->first = first_row(tiles, t);
            sw_ir_take_math(p->ir, &o, &math);
        }
        o.out[0] = gradient(p, stream, tiles, t, n_rows(tiles, t));
        if (!add(p, &o)) {
            return false;
        }
    }
    return true;
}

/* The gradient of a lookup is made once; each tile selects its own rows. */
static bool emit_selections(struct pass *p, const struct sw_ir_op *op, int32_t stream,
                            const struct tiles *tiles)
{
    struct sw_ir *ir = p->ir;
    const sw_value rows = op->out[0], index = op->out[1];
    const int64_t n = ir->values[index].form->shape.dims[0];
    if (!add(p, op)) {
        return false;
    }
    for (int64_t t = 0; t < tiles->n; t++) {
        const int64_t most = sw_min_i64(n, n_rows(tiles, t));
        struct sw_ir_op o = *op;
        struct sw_op math = sw_ir_math(ir, op);
        math.kind = SW_OP_SELECT_INDEX;
        math.attrs = (struct sw_attrs){
            .select_index = {.first = first_row(tiles, t), .n = n_rows(tiles, t)}};
        sw_ir_take_math(ir, &o, &math);
        o.in[0] = rows;
        o.in[1] = index;
        o.n_in = 2;
        o.out[0] = gradient(p, stream, tiles, t, most);
        o.out[1] = copy(p, index);
        if (o.out[0] < 0 || o.out[1] < 0) {
            return false;
        }
        sw_ir_reshape(ir, o.out[1], SW_SHAPE(most));
        ir->values[o.out[0]].sparse_index = o.out[1];
        if (!add(p, &o)) {
            return false;
        }
    }
    ir->values[rows].role = SW_ROLE_TRANSIENT;
    ir->values[rows].sparse_index = SW_NO_VALUE;
    return true;
}

/* Adds op i to the new order: as ops on tiles if it reads a tiled parameter or makes the gradient
 * of one, else unchanged. false = out of memory */
static bool rewrite(struct pass *p, int32_t i)
{
    const struct sw_ir_op op = p->ir->ops[i];
    const struct sw_ir *ir = p->ir;
    for (int k = 0; k < op.n_in; k++) {
        const struct tiles *tiles = p->tiles_of[op.in[k]];
        if (!tiles) {
            continue;
        }
        struct sw_cut cut;
        cut_of(ir, &op, k, &cut);
        return cut.turns == SW_TURNS_SUM ? emit_sums(p, &op, k, tiles, &cut)
                                         : emit_parts(p, &op, k, tiles);
    }
    const int32_t stream = p->stream_of[i];
    if (stream < 0) {
        return add(p, &op);
    }
    const struct tiles *tiles = p->tiles_of[ir->streams[stream].param];
    return ir->values[ir->streams[stream].grad].sparse_index < 0
               ? emit_gradients(p, &op, stream, tiles)
               : emit_selections(p, &op, stream, tiles);
}

/* ---- values ---- */

/* Makes the tiles of a parameter as adjacent values inside it, named by their rows. false = out of
 * memory */
static bool make_tiles(struct pass *p, sw_value param)
{
    struct sw_ir *ir = p->ir;
    const struct tiles *tiles = p->tiles_of[param];
    ir->values[param].param_facts.is_tiled = true;
    for (int64_t t = 0; t < tiles->n; t++) {
        const sw_value v = copy(p, param);
        if (v < 0) {
            return false;
        }
        struct sw_ir_value *info = &ir->values[v];
        p->first_tile[param] = t == 0 ? v : p->first_tile[param];
        struct sw_ir_form form = *ir->values[v].form;
        form.shape = SW_SHAPE(n_rows(tiles, t), tiles->width);
        sw_ir_set_form(ir, v, &form);
        info->base = param;
        info->base_offset = first_row(tiles, t) * tiles->width;
        info->param_facts.is_tiled = false;
        char name[512];
        snprintf(name, sizeof name, "%s[%lld:%lld]", ir->values[param].name,
                 (long long)first_row(tiles, t),
                 (long long)(first_row(tiles, t) + n_rows(tiles, t)));
        if (!sw_ir_name_value(ir, v, name)) {
            return false;
        }
    }
    return true;
}

/* Makes the lists that the update pass walks: tiles replace their parameter, with a stream for
 * each. Also fills first_stream and stream_of. `ir->params` is replaced at once, `ir->streams` by
 * install. Until an op of a tile is made, the stream of the tile still has the gradient of the
 * whole parameter. false = out of memory */
static bool list_tiles(struct pass *p)
{
    struct sw_ir *ir = p->ir;
    int64_t n_params = 0, n_streams = 0, at = 0;
    for (int32_t i = 0; i < ir->params.n; i++) {
        const struct tiles *tiles = p->tiles_of[ir->params.at[i]];
        n_params += tiles ? tiles->n : 1;
    }
    for (int32_t i = 0; i < ir->n_streams; i++) {
        const struct tiles *tiles = p->tiles_of[ir->streams[i].param];
        p->first_stream[i] = (int32_t)n_streams;
        n_streams += tiles ? tiles->n : 1;
    }
    sw_value *params = sw_alloc("graph", ((size_t)n_params + 1) * sizeof *params);
    p->streams = sw_alloc("graph", ((size_t)n_streams + 1) * sizeof *p->streams);
    if (!params || !p->streams) {
        sw_free(params);
        return false;
    }
    for (int32_t i = 0; i < ir->params.n; i++) {
        const struct tiles *tiles = p->tiles_of[ir->params.at[i]];
        for (int64_t t = 0; t < (tiles ? tiles->n : 1); t++) {
            params[at++] = tiles ? p->first_tile[ir->params.at[i]] + (sw_value)t : ir->params.at[i];
        }
    }
    for (int32_t i = 0; i < ir->n_streams; i++) {
        const struct sw_ir_stream *stream = &ir->streams[i];
        const struct tiles *tiles = p->tiles_of[stream->param];
        for (int64_t t = 0; t < (tiles ? tiles->n : 1); t++) {
            struct sw_ir_stream *to = &p->streams[p->first_stream[i] + t];
            *to = *stream;
            to->param = tiles ? p->first_tile[stream->param] + (sw_value)t : stream->param;
        }
        if (tiles && stream->from == 0) { /* else another stage makes the gradient */
            p->stream_of[ir->values[stream->grad].producer] = i;
        }
    }
    sw_free(ir->params.at);
    ir->params.at = params;
    ir->params.n = (int32_t)n_params;
    return true;
}

/* Installs the new order and the streams of tiles. The whole gradient of a tiled parameter loses
 * its producer. */
static void install(struct pass *p)
{
    struct sw_ir *ir = p->ir;
    for (int32_t i = 0; i < ir->n_streams; i++) { /* no op makes the whole gradient */
        if (p->first_stream[i] >= 0 &&
            p->streams[p->first_stream[i]].param != ir->streams[i].param &&
            ir->values[ir->streams[i].grad].role == SW_ROLE_GRAD) {
            ir->values[ir->streams[i].grad].producer = -1;
            ir->values[ir->streams[i].grad].role = SW_ROLE_TRANSIENT;
        }
    }
    int32_t n = 0;
    for (int32_t i = 0; i < ir->n_streams; i++) {
        const struct tiles *tiles = p->tiles_of[ir->streams[i].param];
        n = p->first_stream[i] + (tiles ? (int32_t)tiles->n : 1);
    }
    sw_free(ir->streams);
    ir->streams = p->streams;
    ir->n_streams = n;
    p->streams = NULL;
    sw_op_order_install(&p->order, ir);
}

/* Lists the views of each value, in ascending order. */
static void list_views(struct pass *p)
{
    for (sw_value v = 0; v < p->n_values; v++) {
        p->first_view[v] = p->next_view[v] = SW_NO_VALUE;
    }
    for (sw_value v = p->n_values - 1; v >= 0; v--) {
        const sw_value base = p->ir->values[v].base;
        if (base >= 0) {
            p->next_view[v] = p->first_view[base];
            p->first_view[base] = v;
        }
    }
}

/* Replaces the tiled parameters of a list by their tiles. false = out of memory */
static bool tile_graph(struct sw_ir *ir, const struct sw_plan *plan, const struct tiles *tiles)
{
    const size_t n = (size_t)ir->n_values + 1;
    const int32_t n_ops = ir->n_ops;
    struct pass p = {.ir = ir, .n_values = ir->n_values};
    p.tiles_of = sw_alloc_zero("plan", n, sizeof *p.tiles_of);
    p.first_tile = sw_alloc_zero("plan", n, sizeof *p.first_tile);
    p.first_view = sw_alloc("plan", n * sizeof *p.first_view);
    p.next_view = sw_alloc("plan", n * sizeof *p.next_view);
    p.stream_of = sw_alloc("plan", ((size_t)n_ops + 1) * sizeof *p.stream_of);
    p.first_stream = sw_alloc_zero("plan", (size_t)ir->n_streams + 1, sizeof *p.first_stream);
    bool good = sw_op_order_open(&p.order, ir) >= 0 && p.tiles_of && p.first_tile && p.stream_of &&
                p.first_stream && p.first_view && p.next_view;
    if (good) {
        list_views(&p);
        memset(p.stream_of, 0xff, ((size_t)n_ops + 1) * sizeof *p.stream_of);
    }
    for (int32_t i = 0; good && i < plan->n_tiled; i++) {
        const sw_value param = sw_ir_find(ir, SW_ROLE_PARAM, plan->tiled[i].name);
        if (param >= 0) {
            p.tiles_of[param] = &tiles[i];
            good = make_tiles(&p, param);
        }
    }
    good = good && list_tiles(&p);
    for (int32_t i = 0; good && i < n_ops; i++) {
        good = rewrite(&p, i);
    }
    if (good) {
        install(&p);
    }
    sw_op_order_close(&p.order);
    sw_free(p.tiles_of);
    sw_free(p.first_tile);
    sw_free(p.first_view);
    sw_free(p.next_view);
    sw_free(p.stream_of);
    sw_free(p.first_stream);
    sw_free(p.streams);
    return good;
}

bool sw_may_tile(const struct sw_plan_options *options)
{
    return !options->keep_gradients && options->policy.params_tier != SW_TIER_DEVICE &&
           (sw_zero_ranks(options) == 1 || options->policy.stage == 3) &&
           (!options->rule || options->policy.states_tier != SW_TIER_DEVICE);
}

/* Elements of the smallest tile, for tiles of multiples of `rows`; 0 = the parameter stays whole.
 * See choose. */
static int64_t least_elems(int64_t rows, const struct sw_shape *shape)
{
    return rows < shape->dims[0] || rows % shape->dims[0] == 0
               ? sw_min_i64(rows, shape->dims[0]) * shape->dims[1]
               : 0;
}

int64_t *sw_least_tiles(const struct sw_ir *ir, const struct sw_plan_options *options)
{
    int64_t *least = sw_tile_rows(ir, options);
    struct sw_plan_options smallest = *options;
    smallest.policy.tile_bytes = 1;
    for (int32_t i = 0; least && i < ir->params.n; i++) {
        const struct sw_ir_value *info = &ir->values[ir->params.at[i]];
        int64_t *of = &least[ir->params.at[i]];
        const bool tiles = *of > 0 && sw_may_tile(options) && is_large(info, &smallest);
        *of = tiles ? least_elems(*of, &info->form->shape) : 0;
    }
    return least;
}

/* Lists the tiled parameters of all programs. tiles: [n_tiled] */
static bool list_tiled(struct sw_plan *plan, const struct sw_plan_options *options,
                       struct tiles *tiles)
{
    bool good = true;
    for (int i = 0; good && i < plan->n_programs; i++) {
        const struct sw_ir *ir = plan->programs[i].ir;
        for (int32_t k = 0; k < ir->params.n; k++) {
            const struct sw_ir_value *info = &ir->values[ir->params.at[k]];
            bool known = !is_large(info, options);
            for (int j = 0; j < i && !known; j++) {
                known = sw_ir_find(plan->programs[j].ir, SW_ROLE_PARAM, info->name) >= 0;
            }
            struct tiles *to = &tiles[plan->n_tiled];
            if (!known && choose(plan, options, info, to)) {
                plan->tiled[plan->n_tiled++] = (struct sw_tiled){
                    .name = info->name,
                    .n_tiles = to->n,
                    .rows = to->tile_rows,
                    .bytes = (size_t)(to->tile_rows * to->width) * sw_dtype_bytes(info->dtype)};
                good = good &&
                       sw_names_add(&plan->names, SW_NAME_TILED, info->name, plan->n_tiled - 1);
            }
        }
    }
    return good;
}

sw_status sw_pass_tile(struct sw_plan *plan, const struct sw_plan_options *options)
{
    if (options->policy.tile_bytes == 0 || !sw_may_tile(options)) {
        return SW_OK;
    }
    int32_t most = 0;
    for (int i = 0; i < plan->n_programs; i++) {
        most += plan->programs[i].ir->params.n;
    }
    struct tiles *tiles = sw_alloc_zero("plan", (size_t)most + 1, sizeof *tiles);
    plan->tiled = sw_alloc_zero("plan", (size_t)most + 1, sizeof *plan->tiled);
    bool good = tiles && plan->tiled;
    good = good && list_tiled(plan, options, tiles);
    for (int i = 0; good && plan->n_tiled > 0 && i < plan->n_programs; i++) {
        good = tile_graph(plan->programs[i].ir, plan, tiles);
    }
    for (int i = 0; i < plan->n_programs; i++) {
        sw_free(plan->programs[i].draft.tile_rows);
        plan->programs[i].draft.tile_rows = NULL;
    }
    sw_free(tiles);
    return good ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory for the plan");
}

/* ---- the technique ---- */

static int stage(const struct sw_policy *policy)
{
    return policy->tile_bytes > 0 ? 3 : 0;
}

/* Tiles require offloaded parameters. With an update they also require offloaded states, and no
 * kept gradients, since each tile is updated on its own. */
static bool refuses(const struct sw_facts *facts, struct sw_str *why)
{
    const struct sw_plan_options *o = facts->options;
    const struct sw_policy *p = &o->policy;
    const bool may = p->params_tier != SW_TIER_DEVICE &&
                     (!o->rule || (p->states_tier != SW_TIER_DEVICE && !o->keep_gradients));
    return p->tile_bytes > 0 && !may &&
           sw_refuse(why, "spillway.tile_bytes: tiles need stage 3 with "
                          "zero_optimization.offload_param and offload_optimizer, and no "
                          "keep_gradients");
}

static void advise(const struct sw_shortage *s, struct sw_str *out)
{
    if (s->tier != SW_TIER_DEVICE) {
        return;
    }
    if (s->plan->n_tiled > 0) {
        sw_advise(out, ", ", "a smaller spillway.tile_bytes");
    } else if (!s->options->keep_gradients && !s->whatever_the_tiles) {
        sw_advise(out, ", ",
                  s->options->policy.params_tier == SW_TIER_DEVICE
                      ? "zero_optimization.offload_param with tiles (spillway.tile_bytes)"
                      : "tiles (spillway.tile_bytes)");
    }
}

static void describe(const struct sw_plan *plan, const struct sw_program *program,
                     struct sw_str *out)
{
    for (int32_t i = 0; i < plan->n_tiled && !program; i++) {
        const struct sw_tiled *tiled = &plan->tiled[i];
        char text[32];
        sw_str_printf(out, "%s is used in %lld tiles of %lld rows, %s each\n", tiled->name,
                      (long long)tiled->n_tiles, (long long)tiled->rows,
                      sw_format_bytes(text, sizeof text, (double)tiled->bytes));
    }
}

const struct sw_technique sw_technique_tile = {
    .keys = "spillway.tile_bytes",
    .stage = stage,
    .refuses = refuses,
    .prepare = sw_pass_tile,
    .advise = advise,
    .describe = describe,
};
