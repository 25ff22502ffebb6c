// SPDX-License-Identifier: Apache-2.0
// Orders writes to the same bytes of the disk. A disk queue has many transfers in flight, and they
// may be complete in any order, so a write that overlaps an earlier one begins after it is done.
#include <stdlib.h>

#include "plan/private.h"

struct range {
    size_t first, end; /* on the disk, over all pieces of a loop */
    int32_t instr;
};

static struct range range_of(const struct sw_program *program, int32_t i)
{
    const struct sw_instr *instr = &program->instrs[i];
    const struct sw_operand *to = &program->operands[instr->operands];
    const int64_t last[SW_RING_COUNT] = {[SW_RING_PIECE] = sw_instr_pieces(program, instr) - 1};
    return (struct range){to->offset, to->offset + sw_operand_shift(to, last) + to->bytes, i};
}

static int by_first(const void *a, const void *b)
{
    const struct range *x = a, *y = b;
    return x->first != y->first ? (x->first < y->first ? -1 : 1) : x->instr - y->instr;
}

/* The later of two writes that overlap follows the earlier one. */
static void order_two(const struct sw_program *program, int32_t a, int32_t b)
{
    struct sw_instr *later = &program->instrs[a > b ? a : b];
    const int32_t earlier = a > b ? b : a;
    later->follows = earlier > later->follows ? earlier : later->follows;
}

sw_status sw_pass_hazards(struct sw_program *program)
{
    int32_t n = 0;
    struct range *ranges = sw_alloc("plan", ((size_t)program->n_instrs + 1) * sizeof *ranges);
    SW_TRY_ALLOC(ranges, "the plan");
    for (int32_t i = 0; i < program->n_instrs; i++) {
        program->instrs[i].follows = -1;
        if (program->instrs[i].queue == SW_QUEUE_WRITE) {
            ranges[n++] = range_of(program, i);
        }
    }
    qsort(ranges, (size_t)n, sizeof *ranges, by_first);
    for (int32_t i = 0; i < n; i++) {
        for (int32_t j = i + 1; j < n && ranges[j].first < ranges[i].end; j++) {
            order_two(program, ranges[i].instr, ranges[j].instr);
        }
    }
    sw_free(ranges);
    return SW_OK;
}
