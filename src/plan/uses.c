// SPDX-License-Identifier: Apache-2.0
// Where each parameter is used: its gradient streams, and the ops that read it. One pass finds it
// for all parameters.
#include <string.h>

#include "plan/private.h"

void sw_uses_close(struct sw_uses *known)
{
    sw_free(known->first_stream);
    sw_free(known->next_stream);
    sw_free(known->last_reader);
    sw_free(known->first_reader);
    sw_free(known->first_in_place);
    sw_free(known->end_of_place);
}

/* Notes that op i reads v. begin: first of the adjacent ops in its place */
static void note_reader(const struct sw_uses *known, int32_t i, int32_t begin, sw_value v)
{
    known->last_reader[v] = i;
    if (known->first_reader[v] < 0) {
        known->first_reader[v] = i;
        known->first_in_place[v] = begin;
    }
}

/* false = out of memory; the caller closes `known` in any case */
bool sw_uses_open(const struct sw_ir *ir, struct sw_uses *known)
{
    const size_t n_values = (size_t)ir->n_values + 1, n_ops = (size_t)ir->n_ops + 1;
    *known = (struct sw_uses){
        .first_stream = sw_alloc("plan", n_values * sizeof(int32_t)),
        .next_stream = sw_alloc("plan", ((size_t)ir->n_streams + 1) * sizeof(int32_t)),
        .last_reader = sw_alloc("plan", n_values * sizeof(int32_t)),
        .first_reader = sw_alloc("plan", n_values * sizeof(int32_t)),
        .first_in_place = sw_alloc("plan", n_values * sizeof(int32_t)),
        .end_of_place = sw_alloc("plan", n_ops * sizeof(int32_t)),
    };
    if (!known->first_stream || !known->next_stream || !known->last_reader ||
        !known->first_reader || !known->first_in_place || !known->end_of_place) {
        return false;
    }
    memset(known->first_stream, 0xff, n_values * sizeof(int32_t));
    memset(known->last_reader, 0xff, n_values * sizeof(int32_t));
    memset(known->first_reader, 0xff, n_values * sizeof(int32_t));
    memset(known->first_in_place, 0xff, n_values * sizeof(int32_t));
    for (int32_t i = ir->n_streams - 1; i >= 0; i--) {
        int32_t *first = &known->first_stream[ir->streams[i].param];
        known->next_stream[i] = *first;
        *first = i;
    }
    for (int32_t i = 0, begin = 0; i < ir->n_ops; i++) {
        const bool begins = i == 0 || sw_ir_block_segment(ir, &ir->ops[i - 1]) !=
                                          sw_ir_block_segment(ir, &ir->ops[i]);
        begin = begins ? i : begin;
        for (int k = 0; k < ir->ops[i].n_in; k++) {
            note_reader(known, i, begin, ir->ops[i].in[k]);
            note_reader(known, i, begin, sw_ir_root(ir, ir->ops[i].in[k]));
        }
    }
    for (int32_t i = ir->n_ops - 1; i >= 0; i--) {
        const bool goes_on = i + 1 < ir->n_ops && sw_ir_block_segment(ir, &ir->ops[i]) ==
                                                      sw_ir_block_segment(ir, &ir->ops[i + 1]);
        known->end_of_place[i] = goes_on ? known->end_of_place[i + 1] : i;
    }
    return true;
}

/* The last op of the backward that makes a gradient of the parameter, or reads the parameter. It
 * extends to the end of its block, so that a block's updates are neighbours. Exception: the
 * gradient of a tile does not wait for that of the next tile. */
int32_t sw_uses_ready(const struct sw_ir *ir, const struct sw_uses *known, sw_value param)
{
    int32_t ready = 0;
    for (int32_t i = known->first_stream[param]; i >= 0; i = known->next_stream[i]) {
        const int32_t producer = ir->values[sw_ir_version(ir, ir->streams[i].grad)].producer;
        ready = producer > ready ? producer : ready;
    }
    ready = known->last_reader[param] > ready ? known->last_reader[param] : ready;
    return sw_ir_is_part(ir, param) ? ready : known->end_of_place[ready];
}
