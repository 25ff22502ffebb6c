// SPDX-License-Identifier: Apache-2.0
// Stores of an update within forward (late_update.c) that lag behind it. Forward reads what such an
// update needs and stores what it makes, while backward leaves the disk idle. Loads and stores
// share the disk, so a load passes each store that waits. What still waits when forward has no
// more loads is written from then on, and during backward. Stores of what the step moves again
// do not lag.
#include <string.h>

#include "plan/private.h"

static const struct sw_ir_op *op_of(const struct sw_program *program, int32_t i)
{
    return &program->ir->ops[program->instrs[i].op];
}

/* Finds stores of an update within forward to the disk, whose bytes no later instruction moves.
 * moved: [n_cells] all false */
static void find_last(const struct sw_program *program, const struct sw_cells *cells, bool *moved,
                      bool *out)
{
    for (int32_t i = program->n_instrs - 1; i >= 0; i--) {
        const struct sw_ir_op *op = op_of(program, i);
        const struct sw_cell_range range =
            sw_ir_is_transfer(op) ? cells->of[program->instrs[i].op] : (struct sw_cell_range){0};
        out[i] = op->move == SW_MOVE_STORE && op->chunk.in_forward && op->loop == 0 &&
                 sw_ir_is_on_disk(program->ir, op->in[0]);
        for (int32_t c = range.first; c < range.end; c++) {
            out[i] = out[i] && !moved[c];
            moved[c] = true;
        }
    }
}

sw_status sw_lag_open(struct sw_lag *lag, const struct sw_program *program,
                      const struct sw_cells *cells, bool is_stage)
{
    const size_t n = (size_t)program->n_instrs + 1;
    bool *moved = sw_alloc_zero("plan", (size_t)cells->n + 1, sizeof *moved);
    *lag = (struct sw_lag){.program = program};
    lag->may = sw_alloc_zero("plan", n, sizeof *lag->may);
    lag->held = sw_alloc("plan", n * sizeof *lag->held);
    lag->reads = sw_alloc_zero("plan", (size_t)program->ir->n_values + 1, sizeof *lag->reads);
    const bool good = moved && lag->may && lag->held && lag->reads;
    if (good && !is_stage) { /* a phase of a stage ends when all is stored */
        find_last(program, cells, moved, lag->may);
    }
    sw_free(moved);
    return good ? SW_OK : SW_FAIL(SW_E_NOMEM, "out of host memory for the plan");
}

void sw_lag_close(struct sw_lag *lag)
{
    sw_free(lag->may);
    sw_free(lag->held);
    sw_free(lag->reads);
    *lag = (struct sw_lag){0};
}

bool sw_lag_hold(struct sw_lag *lag, int32_t i)
{
    const struct sw_ir_op *op = op_of(lag->program, i);
    if (!lag->may[i]) {
        return false;
    }
    lag->held[lag->n++] = i;
    lag->bytes += sw_transfer_bytes(lag->program->ir, op);
    for (int k = 1; k < op->n_in; k++) {
        lag->reads[sw_ir_root(lag->program->ir, op->in[k])] = lag->n;
    }
    return true;
}

int32_t sw_lag_next(struct sw_lag *lag)
{
    const int32_t i = lag->held[lag->first++];
    lag->bytes -= sw_transfer_bytes(lag->program->ir, op_of(lag->program, i));
    return i;
}

/* True if instruction i writes what a store reads that waits. */
static bool overwrites(const struct sw_lag *lag, int32_t i)
{
    const struct sw_ir_op *op = op_of(lag->program, i);
    bool found = false;
    for (int k = 0; k < op->n_out && !found; k++) {
        found =
            op->out[k] >= 0 && lag->reads[sw_ir_root(lag->program->ir, op->out[k])] > lag->first;
    }
    return found;
}

bool sw_lag_ends(const struct sw_lag *lag, int32_t i)
{
    const struct sw_instr *instr = &lag->program->instrs[i];
    bool ends = instr->segment != SW_SEGMENT_FORWARD || op_of(lag->program, i)->loop > 0;
    for (int32_t k = 0; k == 0 || k < instr->exchange.batch; k++) {
        ends = ends || overwrites(lag, i + k);
    }
    return lag->first < lag->n && ends;
}
