// SPDX-License-Identifier: Apache-2.0
// The draws of dropout and of updates: key and counter name the element (see cpu.h).
#include "device/cpu/cpu.h"

void sw_cpu_draw_init(struct cpu_draw *draw, const double *scalars, uint64_t path, double p,
                      int64_t batch, int64_t i_batch)
{
    const double threshold = p * 0x1p32;
    draw->key[0] = (uint32_t)scalars[SW_SCALAR_SEED_LO] ^ (uint32_t)path;
    draw->key[1] = (uint32_t)scalars[SW_SCALAR_SEED_HI] ^ (uint32_t)(path >> 32);
    draw->sample = (uint64_t)scalars[SW_SCALAR_MICRO] * (uint64_t)batch + (uint64_t)i_batch;
    draw->threshold = threshold >= 0x1p32 ? UINT32_MAX : (uint32_t)threshold;
}

struct cpu_draw sw_cpu_draw_of_update(const struct cpu_call *call)
{
    struct cpu_draw draw;
    sw_cpu_draw_init(&draw, call->scalars, call->desc->op->attrs.update.draw, 0, 0, 0);
    draw.sample = (uint64_t)call->scalars[SW_SCALAR_STEP];
    return draw;
}

/* Elements that lie side by side in x and in one sample of the whole: a run of a part may span
 * several samples (its first dimension is cut), or be one of many in a sample. */
static int64_t run_elems(const struct sw_op_desc *desc)
{
    const struct sw_dropout_attrs *attrs = &desc->op->attrs.dropout;
    const struct sw_shape *shape = &desc->in[0].shape;
    return attrs->part > 0   ? sw_min_i64(attrs->part, attrs->sample)
           : shape->rank > 0 ? sw_shape_elems(shape) / sw_max_i64(shape->dims[0], 1)
                             : 1;
}

int64_t sw_cpu_draw_runs(const struct sw_op_desc *desc)
{
    return sw_shape_elems(&desc->in[0].shape) / sw_max_i64(run_elems(desc), 1);
}

struct cpu_draw_run sw_cpu_draw_run(const struct sw_op_desc *desc, int64_t i)
{
    const struct sw_dropout_attrs *attrs = &desc->op->attrs.dropout;
    const int64_t elems = sw_shape_elems(&desc->in[0].shape), n = run_elems(desc), here = i * n;
    if (attrs->part == 0) {
        return (struct cpu_draw_run){.here = here, .n = n, .batch = elems / n, .sample = i};
    }
    const int64_t there = sw_dropout_element(attrs, here);
    return (struct cpu_draw_run){.here = here,
                                 .n = n,
                                 .batch = sw_dropout_batch(attrs, elems),
                                 .sample = there / attrs->sample,
                                 .first = there % attrs->sample};
}

uint32_t sw_cpu_draw_word(const struct cpu_draw *draw, uint64_t element)
{
    uint32_t words[4];
    const uint64_t block = element / 4;
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)draw->sample,
                                 (uint32_t)(draw->sample >> 32)};
    sw_philox(draw->key, counter, words);
    return words[element % 4];
}
