// SPDX-License-Identifier: Apache-2.0
// Stores once what many values of a list share: shape, strides, and which shard they are.
// Invariant: equal forms are the same object, and no form changes.
#include <string.h>

#include "plan/ir.h"

enum { LEAST = 64 };

static uint64_t mix_shape(uint64_t h, const struct sw_shape *shape)
{
    h = sw_hash_word(h, shape->rank);
    for (int d = 0; d < shape->rank; d++) {
        h = sw_hash_word(h, shape->dims[d]);
    }
    return h;
}

/* Initialisation and strides are left out, since they rarely differ if shapes are equal. */
static uint64_t hash_of(const struct sw_ir_form *form)
{
    return sw_layout_hash(mix_shape(SW_HASH_INIT, &form->shape), &form->layout);
}

static bool are_equal(const struct sw_ir_form *a, const struct sw_ir_form *b)
{
    return sw_shape_equal(&a->shape, &b->shape) && sw_layout_equal(&a->layout, &b->layout) &&
           a->contiguous == b->contiguous && a->init.kind == b->init.kind &&
           a->init.std == b->init.std && a->data == b->data &&
           memcmp(a->strides, b->strides, sizeof a->strides) == 0;
}

/* The entry of an equal form, or the free entry for it. */
static const struct sw_ir_form **place_of(const struct sw_ir_forms *forms,
                                          const struct sw_ir_form *form)
{
    const uint64_t mask = (uint64_t)forms->cap - 1;
    for (uint64_t at = hash_of(form);; at++) {
        const struct sw_ir_form **place = &forms->at[at & mask];
        if (!*place || are_equal(*place, form)) {
            return place;
        }
    }
}

/* false = out of memory */
static bool grow(struct sw_ir_forms *forms)
{
    struct sw_ir_forms larger = {.cap = forms->cap > 0 ? 2 * forms->cap : LEAST, .n = forms->n};
    larger.at = sw_alloc_zero("plan", (size_t)larger.cap, sizeof *larger.at);
    if (!larger.at) {
        return false;
    }
    for (int32_t i = 0; i < forms->cap; i++) {
        if (forms->at[i]) {
            *place_of(&larger, forms->at[i]) = forms->at[i];
        }
    }
    sw_free(forms->at);
    *forms = larger;
    return true;
}

const struct sw_ir_form *sw_ir_form(struct sw_ir *ir, const struct sw_ir_form *like)
{
    struct sw_ir_form own = *like;
    own.layout.whole = own.layout.is_sliced ? own.layout.whole : own.shape;
    own.elems = sw_shape_elems(&own.shape);
    struct sw_ir_forms *forms = &ir->forms;
    const bool room = ir->failure.status >= 0 && (forms->n < forms->cap / 2 || grow(forms));
    const struct sw_ir_form **place = room ? place_of(forms, &own) : NULL;
    if (place && *place) {
        return *place;
    }
    struct sw_ir_form *form = place ? sw_arena_alloc(&ir->names, sizeof *form) : NULL;
    if (!form) {
        sw_ir_fail(ir, SW_E_NOMEM, "out of host memory for the plan");
        return NULL;
    }
    *form = own;
    *place = form;
    forms->n++;
    return form;
}

const struct sw_ir_form *sw_ir_plain_form(struct sw_ir *ir, struct sw_shape shape)
{
    struct sw_ir_form form = {.shape = shape, .contiguous = true};
    sw_shape_row_major(&shape, form.strides);
    return sw_ir_form(ir, &form);
}

void sw_ir_set_form(struct sw_ir *ir, sw_value v, const struct sw_ir_form *like)
{
    const struct sw_ir_form *form = sw_ir_form(ir, like);
    if (form) {
        ir->values[v].form = form;
    }
}

void sw_ir_reshape(struct sw_ir *ir, sw_value v, struct sw_shape shape)
{
    struct sw_ir_form form = *ir->values[v].form;
    form.shape = shape;
    sw_ir_set_form(ir, v, &form);
}

void sw_ir_set_layout(struct sw_ir *ir, sw_value v, const struct sw_layout *layout)
{
    struct sw_ir_form form = *ir->values[v].form;
    form.layout = *layout;
    if (layout->is_sliced) {
        form.shape = SW_SHAPE(sw_layout_elems(layout));
        form.strides[0] = 1;
    }
    sw_ir_set_form(ir, v, &form);
}
