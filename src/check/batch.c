// SPDX-License-Identifier: Apache-2.0
// Converts recorded batches for the engine. The task's table determines the tensors, their sizes
// and whether labels are shifted.
#include <stdio.h>
#include <string.h>

#include "check/private.h"

static const char *recorded_name(const struct sw_task_input *input)
{
    return input->recorded ? input->recorded : input->name;
}

/* Finds the recorded tensor of an input. Counted inputs (0, 1, ..) are used only if rows hold
 * several documents, which each start at 0; else they are equal for all rows. */
static const struct sw_safetensor *find(struct check *c, const char *group,
                                        const struct sw_task_input *input)
{
    const struct sw_safetensor *tensor = sw_check_tensor(c, "%s.%s", group, recorded_name(input));
    if (!tensor && input->rank == SW_TASK_MAX_RANK) { /* images may be recorded as bytes */
        tensor = sw_check_tensor(c, "%s.pixels", group);
    }
    return input->absent == SW_ABSENT_COUNTED && !sw_check_is_packed(c) ? NULL : tensor;
}

static sw_status fail_rank(const struct check *c, const struct sw_safetensor *tensor, int rank)
{
    char shape[96];
    return SW_FAIL(SW_E_FORMAT, "%s: %s has the shape %s; wanted %d dimensions%s", c->path,
                   tensor->name, sw_shape_format(&tensor->shape, shape, sizeof shape), rank,
                   strncmp(tensor->name, "train.", 6) == 0
                       ? " after those of the steps, or of steps and micro-batches"
                       : "");
}

/* Adds the dims of one batch to its sizes. One label per row may be recorded without its dim. */
static sw_status add_sizes(const struct check *c, const struct sw_task_input *input,
                           const struct sw_safetensor *tensor, int leading,
                           struct sw_task_sizes *sizes)
{
    const int rank = tensor->shape.rank - leading;
    const bool one = rank == input->rank - 1 && input->dims[rank] == SW_DIM_LABELS;
    if (rank != input->rank && !one) {
        return fail_rank(c, tensor, input->rank);
    }
    for (int d = 0; d < input->rank; d++) {
        int64_t *size = &sizes->of[input->dims[d]];
        *size = *size > 0 ? *size : d < rank ? tensor->shape.dims[leading + d] : 1;
    }
    return SW_OK;
}

sw_status sw_check_group_open(struct check *c, const char *group, struct check_group *out)
{
    *out = (struct check_group){.name = group, .steps = 0, .micro_batches = 1};
    for (int i = 0; i < c->task->n_inputs; i++) {
        const struct sw_task_input *input = &c->task->inputs[i];
        const struct sw_safetensor *tensor = find(c, group, input);
        if (!tensor) {
            continue;
        }
        if (out->steps == 0) { /* the first tensor shows how batches are stacked */
            const bool trains = strcmp(group, "train") == 0;
            out->leading = tensor->shape.rank - input->rank;
            if (out->leading < trains || out->leading > (trains ? 2 : 0)) {
                return fail_rank(c, tensor, input->rank);
            }
            out->steps = trains ? tensor->shape.dims[0] : 1;
            out->micro_batches = out->leading == 2 ? tensor->shape.dims[1] : 1;
        }
        SW_TRY(add_sizes(c, input, tensor, out->leading, &out->sizes));
        out->has_mask |= strcmp(input->name, "attention_mask") == 0;
    }
    return SW_OK;
}

/* Element k of the batch. shifted: the next element of its row, and -100 at the end. Bytes of
 * images, 0 .. 255, are scaled to -1 .. 1. */
static double value_of(const struct sw_safetensor *src, int64_t first, int64_t k, int64_t width,
                       bool shifted)
{
    const bool last = shifted && k % width == width - 1;
    const double value = last ? -100 : sw_check_value(src, first + k + shifted);
    return src->dtype == SW_U8 ? value / 127.5 - 1 : value;
}

static sw_status add(const struct check_group *group, int64_t i, const struct sw_safetensor *src,
                     const struct sw_task_input *input, bool shifted, struct check_batch *b)
{
    const struct sw_shape shape = sw_task_shape(input, &group->sizes);
    const int64_t n = sw_shape_elems(&shape), width = sw_shape_last(&shape);
    const int at = b->batch.n_tensors;
    if ((i + 1) * n > sw_check_elems(src)) {
        return SW_FAIL(SW_E_FORMAT, "%s: %s has %lld values, wanted %lld", src->file, src->name,
                       (long long)sw_check_elems(src), (long long)((i + 1) * n));
    }
    b->data[at] = sw_alloc("check", (size_t)n * sw_dtype_bytes(input->dtype));
    SW_TRY_ALLOC(b->data[at], "a recorded batch");
    for (int64_t k = 0; k < n; k++) {
        const double value = value_of(src, i * n, k, width, shifted);
        if (input->dtype == SW_F32) {
            ((float *)b->data[at])[k] = (float)value;
        } else if (value >= INT32_MIN && value <= INT32_MAX) {
            ((int32_t *)b->data[at])[k] = (int32_t)value;
        } else {
            return SW_FAIL(SW_E_FORMAT, "%s: %s holds %g, wanted an id or a mask", src->file,
                           src->name, value);
        }
    }
    b->tensors[at] = (struct sw_tensor){
        input->name, {.data = b->data[at], .dtype = input->dtype, .shape = shape}};
    b->batch = (struct sw_batch){b->tensors, at + 1};
    return SW_OK;
}

sw_status sw_check_batch_open(struct check *c, const struct check_group *group, int64_t i,
                              struct check_batch *out)
{
    *out = (struct check_batch){.batch = {0}};
    for (int k = 0; k < c->task->n_inputs; k++) {
        const struct sw_task_input *input = &c->task->inputs[k];
        const struct sw_task_loss *loss = sw_task_loss_of(c->task, input->name);
        const struct sw_safetensor *tensor = find(c, group->name, input);
        if (tensor) {
            SW_TRY(add(group, i, tensor, input, loss && loss->shifted, out));
        }
    }
    return SW_OK;
}

void sw_check_batch_close(struct check_batch *batch)
{
    for (int i = 0; i < SW_TASK_MAX_INPUTS; i++) {
        sw_free(batch->data[i]);
    }
}
