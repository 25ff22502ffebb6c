// SPDX-License-Identifier: Apache-2.0
// Operands with guards around them, numbers that depend only on the case, one launch, and the
// comparison.
#include "device/tests/op_case.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { GUARD = 64, GUARD_BYTE = 0x5a };

void case_init(struct op_case *c, enum sw_op_kind kind, const char *fmt, ...)
{
    va_list args;
    memset(c, 0, sizeof *c);
    va_start(args, fmt);
    vsnprintf(c->name, sizeof c->name, fmt, args);
    va_end(args);
    c->op.kind = kind;
    c->op.path = UINT64_C(0x123456789abcdef1);
    c->slack = 1;
    const double scalars[SW_SCALAR_COUNT] = {
        [SW_SCALAR_SEED_LO] = 4000000123.0,
        [SW_SCALAR_SEED_HI] = 77,
        [SW_SCALAR_MICRO] = 5,
        [SW_SCALAR_LOSS_SCALE] = 1024,
        [SW_SCALAR_GRAD_FACTOR] = 0.3,
        [SW_SCALAR_LR] = 0.01,
        [SW_SCALAR_OVERFLOW_FACTOR] = 0.25,
        [SW_SCALAR_BETA1] = 0.9,
        [SW_SCALAR_BETA2] = 0.99,
        [SW_SCALAR_STEP] = 3,
        [SW_SCALAR_CLIP] = 0.7,
    };
    memcpy(c->scalars, scalars, sizeof scalars);
}

void case_fini(struct op_case *c)
{
    for (int i = 0; i < SW_MAX_INPUTS; i++) {
        sw_free(c->in[i].view.data);
        c->in[i].view.data = NULL;
    }
    for (int i = 0; i < SW_MAX_OUTPUTS; i++) {
        sw_free(c->out[i].view.data);
        c->out[i].view.data = NULL;
    }
}

static uint64_t seed_of(const struct op_case *c)
{
    return sw_hash_str(SW_HASH_INIT, c->name);
}

static double draw(uint64_t seed, uint64_t stream, uint64_t i, double low, double high)
{
    return low + (high - low) * ((double)(sw_philox_u64(seed, stream, i) >> 11) * 0x1p-53);
}

double case_random(const struct op_case *c, uint64_t stream, uint64_t i, double low, double high)
{
    return draw(seed_of(c), stream, i, low, high);
}

static void set_view(struct case_tensor *t, enum sw_dtype dtype, struct sw_shape shape)
{
    t->view.dtype = dtype;
    t->view.shape = shape;
    sw_shape_row_major(&shape, t->view.strides);
    t->bytes = sw_shape_bytes(&shape, dtype);
    t->alias = -1;
}

static void allocate(struct case_tensor *t)
{
    t->view.data = sw_alloc_zero("test", 1, t->bytes);
    SW_ASSERT(t->view.data);
}

static void fill_floats(struct op_case *c, struct case_tensor *t, double low, double high)
{
    const int64_t n = (int64_t)(t->bytes / sw_dtype_bytes(t->view.dtype));
    const uint64_t seed = seed_of(c);
    for (int64_t i = 0; i < n; i++) {
        sw_store_f64(t->view.dtype, t->view.data, i,
                     draw(seed, (uint64_t)c->n_made, (uint64_t)i, low, high));
    }
}

int case_in(struct op_case *c, enum sw_dtype dtype, struct sw_shape shape, double low, double high)
{
    struct case_tensor *t = &c->in[c->op.n_in];
    set_view(t, dtype, shape);
    allocate(t);
    fill_floats(c, t, low, high);
    c->n_made++;
    return c->op.n_in++;
}

int case_in_strided(struct op_case *c, enum sw_dtype dtype, struct sw_shape shape,
                    const int64_t *strides)
{
    struct case_tensor *t = &c->in[c->op.n_in];
    int64_t last = 0;
    set_view(t, dtype, shape);
    for (int d = 0; d < shape.rank; d++) {
        t->view.strides[d] = strides[d];
        last += (shape.dims[d] - 1) * strides[d];
    }
    t->bytes = (size_t)(last + 1) * sw_dtype_bytes(dtype);
    allocate(t);
    fill_floats(c, t, -1, 1);
    c->n_made++;
    return c->op.n_in++;
}

int case_in_ints(struct op_case *c, struct sw_shape shape, int64_t low, int64_t high)
{
    struct case_tensor *t = &c->in[c->op.n_in];
    set_view(t, SW_I32, shape);
    allocate(t);
    const uint64_t seed = seed_of(c);
    for (int64_t i = 0; i < sw_shape_elems(&shape); i++) {
        ((int32_t *)t->view.data)[i] =
            (int32_t)floor(draw(seed, (uint64_t)c->n_made, (uint64_t)i, (double)low, (double)high));
    }
    c->n_made++;
    return c->op.n_in++;
}

int case_in_i32(struct op_case *c, int64_t n, const int32_t *values)
{
    struct case_tensor *t = &c->in[c->op.n_in];
    set_view(t, SW_I32, SW_SHAPE(n));
    allocate(t);
    memcpy(t->view.data, values, t->bytes);
    return c->op.n_in++;
}

int case_in_zero(struct op_case *c, enum sw_dtype dtype, struct sw_shape shape)
{
    struct case_tensor *t = &c->in[c->op.n_in];
    set_view(t, dtype, shape);
    allocate(t);
    return c->op.n_in++;
}

void case_out(struct op_case *c, enum sw_dtype dtype, struct sw_shape shape)
{
    set_view(&c->out[c->op.n_out++], dtype, shape);
}

void case_out_in_place(struct op_case *c, int i_in)
{
    struct case_tensor *t = &c->out[c->op.n_out++];
    set_view(t, c->in[i_in].view.dtype, c->in[i_in].view.shape);
    t->alias = i_in;
}

void case_out_absent(struct op_case *c)
{
    struct case_tensor *t = &c->out[c->op.n_out++];
    t->view.shape.rank = -1;
    t->alias = -1;
}

/* ---- running ---- */

static bool is_absent(const struct case_tensor *t)
{
    return t->view.shape.rank < 0;
}

/* Copies through the device's host memory if the test's own is refused. Complete when it
 * returns. */
static sw_status move(struct sw_device *dev, struct sw_stream_queue *on, void *to, const void *from,
                      size_t bytes, bool in)
{
    void *pinned = NULL;
    if (dev->caps & SW_DEVICE_HOST_VISIBLE) {
        SW_TRY(sw_device_copy(dev, on, to, from, bytes));
        return dev->ops->stream_wait(dev, on);
    }
    SW_TRY(sw_device_alloc(dev, SW_MEM_HOST, bytes, &pinned));
    if (in) {
        memcpy(pinned, from, bytes);
    }
    sw_status st = sw_device_copy(dev, on, in ? to : pinned, in ? pinned : from, bytes);
    st = st < 0 ? st : dev->ops->stream_wait(dev, on);
    if (!in && st >= 0) {
        memcpy(to, pinned, bytes);
    }
    sw_device_free(dev, SW_MEM_HOST, pinned, bytes);
    return st;
}

sw_status case_to_device(struct sw_device *dev, struct sw_stream_queue *on, void *to,
                         const void *from, size_t bytes)
{
    return move(dev, on, to, from, bytes, true);
}

sw_status case_to_host(struct sw_device *dev, struct sw_stream_queue *on, void *to,
                       const void *from, size_t bytes)
{
    return move(dev, on, to, from, bytes, false);
}

/* Device memory of a run: inputs, outputs, workspace, scalars, each followed by a guard. */
struct place {
    void *all, *mem; /* mem: start of the operand */
    size_t bytes;    /* size of the operand, without the guard; 0 = no operand */
};

static sw_status place_open(struct sw_device *dev, struct sw_stream_queue *on, size_t shift,
                            size_t bytes, const void *data, struct place *out)
{
    SW_TRY(sw_device_alloc(dev, SW_MEM_DEVICE, shift + bytes + GUARD, &out->all));
    out->mem = (char *)out->all + shift;
    out->bytes = bytes;
    if (data) {
        SW_TRY(case_to_device(dev, on, out->mem, data, bytes));
    } else {
        SW_TRY(sw_device_fill(dev, on, out->mem, 0xff, bytes)); /* a kernel must write every byte */
    }
    return sw_device_fill(dev, on, (char *)out->mem + bytes, GUARD_BYTE, GUARD);
}

static sw_status place_close(struct sw_device *dev, struct sw_stream_queue *on, struct place *p)
{
    unsigned char guard[GUARD];
    if (!p->all) {
        return SW_OK;
    }
    SW_TRY(case_to_host(dev, on, guard, (char *)p->mem + p->bytes, GUARD));
    sw_device_free(dev, SW_MEM_DEVICE, p->all,
                   (size_t)((char *)p->mem - (char *)p->all) + p->bytes + GUARD);
    for (int i = 0; i < GUARD; i++) {
        if (guard[i] != GUARD_BYTE) {
            return SW_FAIL(SW_E_ARG, "a kernel wrote past the end of an operand");
        }
    }
    return SW_OK;
}

struct run {
    struct sw_device *dev;
    struct sw_stream_queue *on;
    struct sw_kernel *kernel;
    struct place in[SW_MAX_INPUTS], out[SW_MAX_OUTPUTS], workspace, scalars;
    void *at_in[SW_MAX_INPUTS], *at_out[SW_MAX_OUTPUTS];
};

static size_t shift_of(const struct op_case *c, const struct case_tensor *t)
{
    return (size_t)c->shift * sw_dtype_bytes(t->view.dtype);
}

static sw_status prepare(struct run *r, const struct op_case *c, struct sw_kernel_info *info)
{
    struct sw_op_desc desc = {.op = &c->op, .is_predicated = c->is_predicated};
    for (int i = 0; i < c->op.n_in; i++) {
        desc.in[i] = c->in[i].view;
        desc.in[i].data = NULL;
        desc.in_shift[i] = sw_storage_shift(c->shift, c->in[i].view.dtype);
    }
    for (int i = 0; i < c->op.n_out; i++) {
        desc.out[i] = c->out[i].view;
        desc.out[i].data = NULL;
        desc.out_shift[i] =
            is_absent(&c->out[i]) ? 0 : sw_storage_shift(c->shift, c->out[i].view.dtype);
    }
    sw_device_query(r->dev, &desc, info);
    if (!info->supported) {
        return SW_FAIL(SW_E_UNSUP, "%s: no kernel", c->name);
    }
    return sw_device_prepare(r->dev, &desc, &r->kernel);
}

static sw_status place_all(struct run *r, const struct op_case *c, struct op_case *result)
{
    struct sw_kernel_info info;
    SW_TRY(prepare(r, c, &info));
    for (int i = 0; i < c->op.n_in; i++) {
        SW_TRY(place_open(r->dev, r->on, shift_of(c, &c->in[i]), c->in[i].bytes, c->in[i].view.data,
                          &r->in[i]));
        r->at_in[i] = r->in[i].mem;
    }
    for (int i = 0; i < c->op.n_out; i++) {
        if (c->out[i].alias >= 0) {
            r->at_out[i] = r->at_in[c->out[i].alias];
        } else if (!is_absent(&c->out[i])) {
            SW_TRY(place_open(r->dev, r->on, shift_of(c, &c->out[i]), c->out[i].bytes, NULL,
                              &r->out[i]));
            r->at_out[i] = r->out[i].mem;
        }
    }
    /* no more aligned than kernels are promised */
    SW_TRY(place_open(r->dev, r->on, SW_STORAGE_ALIGN, info.workspace_bytes, NULL, &r->workspace));
    memcpy(result->scalars, c->scalars, sizeof c->scalars);
    sw_scalars_complete(result->scalars);
    return place_open(r->dev, r->on, 0, sizeof c->scalars, result->scalars, &r->scalars);
}

static sw_status fetch(struct run *r, const struct op_case *c, struct op_case *result)
{
    for (int i = 0; i < c->op.n_out; i++) {
        if (!is_absent(&c->out[i])) {
            allocate(&result->out[i]);
            SW_TRY(case_to_host(r->dev, r->on, result->out[i].view.data, r->at_out[i],
                                c->out[i].bytes));
        }
    }
    return case_to_host(r->dev, r->on, result->scalars, r->scalars.mem, sizeof c->scalars);
}

static sw_status close_run(struct run *r)
{
    sw_status st = SW_OK;
    struct place *all[SW_MAX_INPUTS + SW_MAX_OUTPUTS + 2];
    int n = 0;
    for (int i = 0; i < SW_MAX_INPUTS; i++) {
        all[n++] = &r->in[i];
    }
    for (int i = 0; i < SW_MAX_OUTPUTS; i++) {
        all[n++] = &r->out[i];
    }
    all[n++] = &r->workspace;
    all[n++] = &r->scalars;
    for (int i = 0; i < n; i++) {
        const sw_status closed = place_close(r->dev, r->on, all[i]);
        st = st < 0 ? st : closed;
    }
    if (r->kernel) {
        r->dev->ops->release(r->dev, r->kernel);
    }
    return st;
}

sw_status case_run_many(struct sw_device *dev, const struct op_case *c, int n,
                        struct op_case *result)
{
    struct run r[CASES_AT_ONCE] = {{0}};
    struct sw_stream_queue *on;
    SW_ASSERT(n <= CASES_AT_ONCE);
    SW_TRY(dev->ops->stream_open(dev, &on));
    sw_status st = SW_OK;
    for (int k = 0; k < n; k++) {
        r[k].dev = dev;
        r[k].on = on;
        result[k] = c[k];
        for (int i = 0; i < SW_MAX_INPUTS; i++) {
            result[k].in[i].view.data = NULL;
        }
    }
    for (int k = 0; k < n && st >= 0; k++) {
        st = place_all(&r[k], &c[k], &result[k]);
    }
    for (int k = 0; k < n && st >= 0; k++) { /* ops of one step share a table of scalars */
        st = sw_device_launch(dev, on, r[k].kernel, r[k].at_in, r[k].at_out, r[k].workspace.mem,
                              r[0].scalars.mem);
    }
    for (int k = 0; k < n && st >= 0; k++) {
        st = fetch(&r[k], &c[k], &result[k]);
    }
    for (int k = 0; k < n; k++) {
        const sw_status closed = close_run(&r[k]);
        st = st < 0 ? st : closed;
    }
    dev->ops->stream_close(dev, on);
    return st;
}

sw_status case_run(struct sw_device *dev, const struct op_case *c, struct op_case *result)
{
    return case_run_many(dev, c, 1, result);
}

static sw_status replay(struct run *r, const struct op_case *result)
{
    struct sw_captured *captured = NULL;
    SW_TRY(sw_device_fill(r->dev, r->on, r->scalars.mem, 0xff, sizeof result->scalars));
    SW_TRY(r->dev->ops->stream_wait(r->dev, r->on));
    SW_TRY(sw_device_capture_begin(r->dev, r->on));
    sw_status st = sw_device_launch(r->dev, r->on, r->kernel, r->at_in, r->at_out, r->workspace.mem,
                                    r->scalars.mem);
    const sw_status ended = sw_device_capture_end(r->dev, r->on, st < 0 ? NULL : &captured);
    st = st < 0 ? st : ended;
    st = st < 0 ? st
                : case_to_device(r->dev, r->on, r->scalars.mem, result->scalars,
                                 sizeof result->scalars);
    st = st < 0 ? st : sw_device_replay(r->dev, r->on, captured);
    st = st < 0 ? st : r->dev->ops->stream_wait(r->dev, r->on);
    sw_device_captured_close(r->dev, captured);
    return st;
}

sw_status case_run_captured(struct sw_device *dev, const struct op_case *c, struct op_case *result)
{
    struct run r = {.dev = dev};
    *result = *c;
    for (int i = 0; i < SW_MAX_INPUTS; i++) {
        result->in[i].view.data = NULL;
    }
    SW_TRY(dev->ops->stream_open(dev, &r.on));
    sw_status st = place_all(&r, c, result);
    st = st < 0 ? st : replay(&r, result);
    st = st < 0 ? st : fetch(&r, c, result);
    const sw_status closed = close_run(&r);
    st = st < 0 ? st : closed;
    dev->ops->stream_close(dev, r.on);
    return st;
}

/* An operand of c by its number: inputs first, then outputs. The bytes are c's or its result's. */
static struct case_tensor numbered(const struct op_case *c, const struct op_case *result,
                                   sw_value number)
{
    return number < SW_MAX_INPUTS ? c->in[number] : result->out[number - SW_MAX_INPUTS];
}

sw_status case_run_apart(struct sw_device *dev, const struct op_case *c,
                         const struct op_case *result)
{
    const struct sw_op_info *info = sw_op_info(c->op.kind);
    struct op_case made = *c, want = *c, got;
    struct sw_op_desc desc = {.op = &want.op};
    for (int k = 0; k < c->op.n_in; k++) {
        desc.in[k] = c->in[k].view;
        want.op.in[k] = k;
    }
    for (int k = 0; k < c->op.n_out; k++) {
        desc.out[k] = c->out[k].view;
        want.op.out[k] = is_absent(&c->out[k]) ? SW_NO_VALUE : SW_MAX_INPUTS + k;
    }
    if (!info->apart || !info->apart(&desc, &made.op)) {
        return SW_OK;
    }
    for (int k = 0; k < made.op.n_in; k++) {
        made.in[k] = numbered(c, result, made.op.in[k]);
    }
    for (int k = 0; k < made.op.n_out; k++) {
        want.out[k] = made.out[k] = numbered(c, result, made.op.out[k]);
    }
    sw_status st = case_run(dev, &made, &got);
    for (int k = 0; k < made.op.n_out && st >= 0; k++) {
        st = case_same_bits(&got, &want, k)
                 ? SW_OK
                 : SW_FAIL(SW_E_ARG, "%s: output %d of %s by itself has other bits", c->name, k,
                           sw_op_name(&made.op));
    }
    case_fini(&got);
    return st;
}

/* ---- comparing ---- */

/* False for the stored lse or sums of an ignored row of LINEAR_CE: nothing reads them. */
static bool is_read(const struct op_case *c, int i_out, int64_t i)
{
    const bool merges = c->op.kind == SW_OP_LINEAR_CE_MERGE;
    if ((c->op.kind != SW_OP_LINEAR_CE && !merges) || !c->labels) {
        return true;
    }
    const bool of_rows = i_out == 2 || c->op.attrs.linear_ce.tile.partial;
    return !of_rows || c->labels[i % sw_shape_elems(&c->in[2].view.shape)] != -100;
}

double case_error(const struct op_case *a, const struct op_case *b, int i_out)
{
    const struct sw_view *x = &a->out[i_out].view, *y = &b->out[i_out].view;
    double worst = 0, scale = 0;
    for (int64_t i = 0; x->data && i < sw_shape_elems(&x->shape); i++) {
        const double p = sw_load_f64(x->dtype, x->data, i), q = sw_load_f64(y->dtype, y->data, i);
        if (!is_read(b, i_out, i)) {
            continue;
        }
        if (isnan(p) != isnan(q) || isinf(p) != isinf(q) || (isinf(p) && p != q)) {
            return INFINITY;
        }
        if (isfinite(p)) {
            worst = fmax(worst, fabs(p - q));
            scale = fmax(scale, fabs(q));
        }
    }
    return worst == 0 ? 0 : worst / scale;
}

/* Relative to one output's largest element: rounding of the output, plus rounding inside fp32
 * sums. */
static double tolerance(enum sw_dtype dtype)
{
    switch (dtype) {
    case SW_BF16:
        return 1.0 / 128;
    case SW_F16:
        return 1.0 / 1024;
    case SW_F64:
        return 1e-13;
    default:
        return 4e-6;
    }
}

double case_tolerance(const struct op_case *c, int i_out)
{
    double wide = tolerance(c->out[i_out].view.dtype);
    if (c->op.kind == SW_OP_LINEAR_CE_GRAD || c->op.kind == SW_OP_ATTENTION ||
        c->op.kind == SW_OP_ATTENTION_GRAD) {
        for (int i = 0; i < c->op.n_in; i++) {
            if (sw_dtype_is_float(c->in[i].view.dtype)) {
                wide = fmax(wide, tolerance(c->in[i].view.dtype));
            }
        }
    }
    return wide * c->slack;
}

bool case_same_bits(const struct op_case *a, const struct op_case *b, int i_out)
{
    const struct case_tensor *x = &a->out[i_out], *y = &b->out[i_out];
    if (!x->view.data || memcmp(x->view.data, y->view.data, x->bytes) == 0) {
        return true;
    }
    const size_t width = sw_dtype_bytes(x->view.dtype);
    for (size_t at = 0; at < x->bytes; at += width) {
        const char *p = (const char *)x->view.data + at, *q = (const char *)y->view.data + at;
        const bool both_nan = sw_dtype_is_float(x->view.dtype) &&
                              isnan(sw_load_f64(x->view.dtype, p, 0)) &&
                              isnan(sw_load_f64(x->view.dtype, q, 0));
        if (!both_nan && memcmp(p, q, width) != 0) {
            return false;
        }
    }
    return true;
}
