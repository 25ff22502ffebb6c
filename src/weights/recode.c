// SPDX-License-Identifier: Apache-2.0
// 8-bit moments of a checkpoint whose tensor axis had another size. A scale belongs to a run of the
// part that a rank had, and the parts of this run are others. So values are decoded by the scales
// of the file, and encoded again in the runs of this rank.
#include <string.h>

#include "weights/private.h"

/* Numbers between a decoding and an encoding at most; a multiple of SW_CODE_RUN. */
enum { SW_RECODE = 16 * 1024 };

/* The moments in the file. */
struct coded {
    struct sw_ckpt *ckpt;
    enum sw_codes codes;
    int64_t at;              /* of the codes */
    struct sw_layout layout; /* of the codes on the first of its ranks */
    struct sw_layout scaled; /* the same of their scales */
    float *scales;           /* [all of them] */
    uint8_t *bytes;          /* [SW_RECODE] scratch */
};

static sw_status find(struct sw_ckpt *ckpt, const char *param, enum sw_state_kind kind,
                      const struct sw_layout *layout, int64_t *out)
{
    const char *name = sw_state_infos[kind].name;
    char have[96], want[96];
    *out = sw_ckpt_find(ckpt, param, name);
    if (*out < 0) {
        return SW_FAIL(SW_E_FORMAT, "%s: %s of %s is missing", sw_ckpt_path(ckpt), name, param);
    }
    const struct sw_ckpt_entry *entry = sw_ckpt_entry(ckpt, *out);
    return sw_shape_equal(&entry->shape, &layout->whole)
               ? SW_OK
               : SW_FAIL(SW_E_FORMAT, "%s: %s of %s has shape %s; %d ranks along tensor have %s",
                         sw_ckpt_path(ckpt), name, param,
                         sw_shape_format(&entry->shape, have, sizeof have),
                         (int)sw_max_i64(layout->tensor.size, 1),
                         sw_shape_format(&layout->whole, want, sizeof want));
}

/* Opens the moments of a checkpoint of `ranks` ranks along tensor. */
static sw_status open_coded(struct sw_ckpt *ckpt, const struct sw_persistent *codes, int ranks,
                            struct coded *out)
{
    int64_t at;
    const enum sw_state_kind kind = sw_state_scales(codes->state, &out->codes);
    out->ckpt = ckpt;
    out->layout = (struct sw_layout){
        .whole = codes->layout.whole, .split = codes->layout.split, .tensor = {0, ranks}};
    out->scaled = sw_layout_per(&out->layout, SW_CODE_RUN);
    SW_TRY(find(ckpt, codes->param, codes->state, &out->layout, &out->at));
    SW_TRY(find(ckpt, codes->param, kind, &out->scaled, &at));
    const int64_t n = sw_shape_elems(&out->scaled.whole);
    out->scales = sw_alloc("engine", (size_t)n * sizeof *out->scales);
    out->bytes = sw_alloc("engine", SW_RECODE);
    if (!out->scales || !out->bytes) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for a checkpoint");
    }
    return sw_ckpt_read_flat(ckpt, at, 0, n, SW_F32, out->scales);
}

/* The run of the file's parts that has element `first`: its scale, and its length from there on. */
static int64_t run_at(struct coded *c, int64_t first, float *scale)
{
    struct sw_run run = {0}, of_scale = {0};
    struct sw_layout layout = c->layout, scaled = c->scaled;
    for (int r = 0; r < layout.tensor.size; r++) { /* ranks that share a part come to the same */
        layout.tensor.rank = scaled.tensor.rank = r;
        if (sw_layout_find(&layout, first, &run)) {
            break;
        }
    }
    struct sw_run_iter iter;
    sw_runs_begin(&scaled, &iter);
    const bool has = sw_runs_next(&iter, &of_scale);
    SW_ASSERT(run.n > 0 && has);
    *scale = c->scales[of_scale.first + run.here / SW_CODE_RUN];
    return sw_min_i64(run.n, SW_CODE_RUN - run.here % SW_CODE_RUN);
}

/* Elements [first, first + n) of the whole tensor. */
static sw_status decode(struct coded *c, int64_t first, int64_t n, float *out)
{
    float scale;
    SW_TRY(sw_ckpt_read_flat(c->ckpt, c->at, first, n, SW_U8, c->bytes));
    for (int64_t i = 0, some = 0; i < n; i += some) {
        some = sw_min_i64(run_at(c, first + i, &scale), n - i);
        sw_decode_run(c->codes, c->bytes + i, scale, some, out + i);
    }
    return SW_OK;
}

/* Encodes n numbers of this rank, from element `at` of its memory on. */
static sw_status encode(struct sw_weights *w, const struct sw_persistent *codes,
                        const struct sw_persistent *scales, struct coded *c, int64_t at, int64_t n,
                        const float *values)
{
    float scale[SW_RECODE / SW_CODE_RUN];
    const int64_t n_runs = sw_ceil_div(n, SW_CODE_RUN);
    for (int64_t i = 0; i < n_runs; i++) {
        const int64_t first = i * SW_CODE_RUN;
        scale[i] = sw_encode_run(c->codes, values + first, sw_min_i64(SW_CODE_RUN, n - first),
                                 c->bytes + first);
    }
    SW_TRY(sw_executor_load(w->executor, codes, (size_t)at, c->bytes, (size_t)n));
    return sw_executor_load(w->executor, scales, (size_t)(at / SW_CODE_RUN) * sizeof *scale, scale,
                            (size_t)n_runs * sizeof *scale);
}

static sw_status recode_all(struct sw_weights *w, const struct sw_persistent *codes,
                            const struct sw_persistent *scales, struct coded *c, float *values)
{
    const int64_t elems = sw_layout_elems(&codes->layout);
    struct sw_run_iter iter;
    struct sw_run run;
    sw_runs_begin(&codes->layout, &iter);
    bool more = sw_runs_next(&iter, &run);
    for (int64_t at = 0; at < elems; at += SW_RECODE) {
        const int64_t n = sw_min_i64(SW_RECODE, elems - at);
        memset(values, 0, (size_t)n * sizeof *values); /* padding */
        while (more && run.here < at + n) {
            const int64_t from = sw_max_i64(run.here, at);
            const int64_t end = sw_min_i64(run.here + run.n, at + n);
            SW_TRY(decode(c, run.first + from - run.here, end - from, values + from - at));
            if (end < run.here + run.n) {
                break;
            }
            more = sw_runs_next(&iter, &run);
        }
        SW_TRY(encode(w, codes, scales, c, at, n, values));
    }
    return SW_OK;
}

sw_status sw_weights_recode(struct sw_weights *w, struct sw_ckpt *ckpt,
                            const struct sw_persistent *codes, const struct sw_persistent *scales,
                            int ranks)
{
    struct coded c = {0};
    float *values = sw_alloc("engine", SW_RECODE * sizeof *values);
    sw_status st = values ? open_coded(ckpt, codes, ranks, &c)
                          : SW_FAIL(SW_E_NOMEM, "out of host memory for a checkpoint");
    st = st < 0 ? st : recode_all(w, codes, scales, &c, values);
    sw_free(values);
    sw_free(c.scales);
    sw_free(c.bytes);
    return st;
}
