// SPDX-License-Identifier: Apache-2.0
// The memory map of one program. A transient is live from the instruction that writes it to its
// last reader. Addresses are given to the largest transients first: each gets the lowest gap that
// is free over its whole life. Nothing is allocated at run time, so there is no fragmentation.
#include <stdlib.h>
#include <string.h>

#include "plan/private.h"

/* Extends the life of v's buffer to instruction `at`. */
static void touch(struct sw_program *program, sw_value v, int32_t at)
{
    const sw_value root = sw_ir_root(program->ir, v);
    const int32_t i = program->buffer_of[root];
    if (i < 0) {
        return;
    }
    struct sw_buffer *buffer = &program->buffers[i];
    if (buffer->persistent) {
        return;
    }
    buffer->first = buffer->first < at ? buffer->first : at;
    buffer->last = buffer->last > at ? buffer->last : at;
}

/* Adds a buffer for the root of v unless it has one, and extends its life to `at` .. `until`. */
static void ensure(struct sw_program *program, sw_value v, int32_t at, int32_t until)
{
    const struct sw_ir *ir = program->ir;
    const sw_value root = sw_ir_root(ir, v);
    if (program->buffer_of[root] < 0) {
        const enum sw_tier tier = (enum sw_tier)ir->values[root].tier;
        const struct sw_ir_value *info = &ir->values[root];
        program->buffer_of[root] = program->n_buffers;
        program->buffers[program->n_buffers++] = (struct sw_buffer){
            .value = root,
            .tier = tier,
            .align = sw_tier_align(tier),
            .bytes = info->takes_turns
                         ? sw_ir_turn_bytes(info) * (size_t)program->turns
                         : sw_round_up(sw_ir_storage_bytes(info), sw_tier_align(tier)),
            .first = info->role == SW_ROLE_INPUT ? 0 : at,
            .last = at,
        };
    }
    touch(program, v, at);
    touch(program, v, until);
}

/* A device buffer that moves from or to the disk is transferred in whole blocks, without a copy.
 * Exception: a persistent one has its place already, and moves its exact bytes (moved_bytes in
 * lower.c). */
static void align_for_disk(struct sw_program *program, const struct sw_ir_op *op)
{
    const struct sw_ir *ir = program->ir;
    if (!sw_ir_is_transfer(op) || !sw_ir_is_on_disk(ir, op->in[0])) {
        return;
    }
    const sw_value here = sw_ir_moved(op);
    struct sw_buffer *buffer = &program->buffers[program->buffer_of[sw_ir_root(ir, here)]];
    if (!buffer->persistent) {
        buffer->align = SW_PLAN_DISK_ALIGN;
        buffer->bytes = sw_round_up(buffer->bytes, SW_PLAN_DISK_ALIGN);
    }
}

enum { SENT = 1, RECEIVED = 2 };

/* Notes which buffers are sent or received before the update. */
static void find_travels(const struct sw_program *program, uint8_t *travels)
{
    const struct sw_ir *ir = program->ir;
    for (int32_t i = 0; i < program->segment_first[SW_SEGMENT_UPDATE]; i++) {
        const struct sw_ir_op *op = &ir->ops[program->instrs[i].op];
        if (op->move == SW_MOVE_SEND) {
            travels[program->buffer_of[sw_ir_root(ir, op->in[0])]] |= SENT;
        } else if (op->move == SW_MOVE_RECV) {
            travels[program->buffer_of[sw_ir_root(ir, op->out[0])]] |= RECEIVED;
        }
    }
}

/* The slots that a buffer needs, 0 if it lives within a phase. An input is there from the first
 * phase on. */
static int count_slots(const struct sw_program *program, const struct sw_buffer *buffer,
                       unsigned travels)
{
    const struct sw_program_draft *draft = &program->draft;
    const bool is_input =
        buffer->value >= 0 && program->ir->values[buffer->value].role == SW_ROLE_INPUT;
    const struct sw_pipe_phase start = {.segment = SW_SEGMENT_FORWARD};
    const struct sw_pipe_phase from =
        is_input ? start : sw_pipe_phase_of(&program->instrs[buffer->first]);
    const struct sw_pipe_phase until = sw_pipe_phase_of(&program->instrs[buffer->last]);
    return from.segment == until.segment && from.chunk == until.chunk && travels == 0
               ? 0
               : sw_pipe_slots(draft->phases, draft->n_phases, &from, &until,
                               (travels & RECEIVED) != 0, travels & SENT ? draft->late : 0);
}

/* A value that a later phase reads gets a slot for each micro-batch that has passed the first one
 * and not the last one. A value that is received or sent is in use longer at that end. The memory
 * of both is not shared with other values of forward and backward, since phases may come in any
 * order. Other values live within a phase. */
static sw_status make_rings(struct sw_program *program)
{
    const int32_t update = program->segment_first[SW_SEGMENT_UPDATE];
    if (program->draft.n_phases == 0) {
        return SW_OK;
    }
    uint8_t *travels = sw_alloc_zero("plan", (size_t)program->n_buffers + 1, sizeof *travels);
    SW_TRY_ALLOC(travels, "the memory map");
    find_travels(program, travels);
    for (int32_t b = 0; b < program->n_buffers; b++) {
        struct sw_buffer *buffer = &program->buffers[b];
        const bool may = !buffer->persistent && buffer->last < update;
        const int slots = may ? count_slots(program, buffer, travels[b]) : 0;
        if (slots == 0) {
            continue;
        }
        if (slots > 1) {
            buffer->micro_bytes = buffer->bytes;
            buffer->bytes *= (size_t)slots;
        }
        buffer->first = 0;
        buffer->last = update - 1;
    }
    sw_free(travels);
    return SW_OK;
}

/* Finds the results of instructions that run once. Exception: a slice that only gathers read, which
 * run once themselves. kept: [n_buffers] */
static void find_kept(const struct sw_program *program, bool *kept)
{
    const struct sw_ir *ir = program->ir;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_ir_op *op = &ir->ops[program->instrs[i].op];
        if (program->instrs[i].turn.once) {
            kept[program->buffer_of[sw_ir_root(ir, op->out[0])]] = true;
        }
    }
    for (int32_t i = 0; i < program->n_instrs; i++) {
        const struct sw_ir_op *op = &ir->ops[program->instrs[i].op];
        const bool moves_on = program->instrs[i].turn.once && op->move == SW_MOVE_GATHER;
        if (moves_on && ir->values[sw_ir_root(ir, op->in[0])].role != SW_ROLE_PARAM) {
            kept[program->buffer_of[sw_ir_root(ir, op->in[0])]] = false;
        }
    }
}

/* Gives what stays for all micro-batches memory of its own during forward and backward. */
static sw_status keep(struct sw_program *program)
{
    const int32_t update = program->segment_first[SW_SEGMENT_UPDATE];
    bool *kept = sw_alloc_zero("plan", (size_t)program->n_buffers + 1, sizeof *kept);
    SW_TRY_ALLOC(kept, "the memory map");
    find_kept(program, kept);
    for (int32_t b = 0; b < program->n_buffers; b++) {
        struct sw_buffer *buffer = &program->buffers[b];
        if (kept[b]) {
            buffer->first = 0;
            buffer->last = update - 1;
            program->peak.kept_bytes += buffer->bytes;
        }
    }
    sw_free(kept);
    return SW_OK;
}

/* The bytes that an instruction reads for the next step are in use until the end, and from the
 * start of the next one. In between other values may have them. */
static void hold_for_next(struct sw_program *program, struct sw_instr *instr, int32_t i)
{
    const sw_value root = sw_ir_root(program->ir, program->ir->ops[instr->op].out[0]);
    struct sw_buffer *buffer = &program->buffers[program->buffer_of[root]];
    buffer->first = 0;
    if (buffer->last >= i) {
        buffer->last = program->n_instrs;
        return;
    }
    instr->workspace = program->n_buffers;
    program->buffers[program->n_buffers++] = *buffer;
    program->buffers[instr->workspace].first = i;
    program->buffers[instr->workspace].last = program->n_instrs;
}

/* Makes the buffers of transients and workspaces. An instruction uses its buffers from when it is
 * issued, with its batch, until it is retired. Outputs live to the end. */
static sw_status find_lives(struct sw_program *program)
{
    const struct sw_ir *ir = program->ir;
    int32_t issued = 0; /* a batch is issued with its first exchange */
    for (int32_t i = 0; i < program->n_instrs; i++) {
        struct sw_instr *instr = &program->instrs[i];
        const struct sw_ir_op *op = &ir->ops[instr->op];
        const int32_t first = issued = sw_instr_is_inside(instr) ? issued : i;
        const int32_t last = instr->retired;
        if (instr->turn.for_next) {
            hold_for_next(program, instr, i);
            continue;
        }
        for (int k = 0; k < op->n_in; k++) {
            ensure(program, op->in[k], first, last);
        }
        for (int k = 0; k < op->n_out; k++) {
            if (op->out[k] >= 0) {
                ensure(program, op->out[k], first, last);
            }
        }
        align_for_disk(program, op);
        if (instr->about->kernel.workspace_bytes > 0) {
            instr->workspace = program->n_buffers;
            program->buffers[program->n_buffers++] = (struct sw_buffer){
                .value = SW_NO_VALUE,
                .align = SW_PLAN_ALIGN,
                .bytes = sw_round_up(instr->about->kernel.workspace_bytes, SW_PLAN_ALIGN),
                .first = first,
                .last = last,
            };
        }
    }
    SW_TRY(make_rings(program));
    SW_TRY(keep(program));
    for (int32_t i = 0; i < ir->outputs.n; i++) {
        touch(program, ir->outputs.at[i].value, program->n_instrs);
    }
    for (sw_value v = 0; v < ir->n_values; v++) {
        if (ir->values[v].is_output) {
            touch(program, v, program->n_instrs);
        }
    }
    return SW_OK;
}

/* Finds the instruction at which transients take most device memory, and their bytes there. */
static sw_status find_peak(struct sw_program *program)
{
    int64_t *change = sw_alloc_zero("plan", (size_t)program->n_instrs + 2, sizeof *change);
    SW_TRY_ALLOC(change, "the memory map");
    for (int32_t b = 0; b < program->n_buffers; b++) {
        const struct sw_buffer *buffer = &program->buffers[b];
        if (!buffer->persistent && buffer->tier == SW_TIER_DEVICE) {
            change[buffer->first] += (int64_t)buffer->bytes;
            change[buffer->last + 1] -= (int64_t)buffer->bytes;
        }
    }
    int64_t live = 0;
    for (int32_t i = 0; i < program->n_instrs; i++) {
        live += change[i];
        if ((size_t)live > program->peak.live_bytes) {
            program->peak.live_bytes = (size_t)live;
            program->peak.instr = i;
        }
    }
    sw_free(change);
    return SW_OK;
}

size_t sw_tier_align(enum sw_tier tier)
{
    return tier == SW_TIER_DISK ? SW_PLAN_DISK_ALIGN : SW_PLAN_ALIGN;
}

static sw_status place(struct sw_program *program, struct sw_shelf *shelves,
                       struct sw_buffer *buffer)
{
    struct sw_shelf *shelf = &shelves[buffer->tier];
    size_t *end = &program->peak.bytes[buffer->tier];
    if (shelf->n_leaves == 0) {
        SW_TRY(sw_shelf_open(shelf, program->n_instrs));
    }
    SW_TRY(sw_shelf_put(shelf, buffer->first, buffer->last, buffer->bytes, buffer->align,
                        &buffer->offset));
    *end = buffer->offset + buffer->bytes > *end ? buffer->offset + buffer->bytes : *end;
    return SW_OK;
}

/* Gives addresses to what the step before has read, one after the other: all of it is in use at the
 * start. The second lives are all in use at the end; they come in the same order, and so get the
 * same addresses. */
static sw_status place_read(struct sw_program *program, struct sw_shelf *shelves, bool *placed)
{
    for (int second = 0; second < 2; second++) {
        for (int32_t i = 0; i < program->n_instrs; i++) {
            const struct sw_instr *instr = &program->instrs[i];
            if (!instr->turn.for_next || (second && instr->workspace < 0)) {
                continue;
            }
            const sw_value root = sw_ir_root(program->ir, program->ir->ops[instr->op].out[0]);
            const int32_t first = program->buffer_of[root], b = second ? instr->workspace : first;
            SW_TRY(place(program, shelves, &program->buffers[b]));
            placed[b] = true;
            SW_ASSERT(program->buffers[b].offset == program->buffers[first].offset);
        }
    }
    return SW_OK;
}

/* The transients of one size. A large plan has millions of them but few sizes, and they are already
 * in the order in which their lives begin. Only sizes are sorted. */
struct size {
    size_t bytes;
    int32_t n, end; /* number of transients; index of the last one listed, plus 1 */
    int32_t first;  /* first instruction of that one */
    bool unsorted;
};
struct sizes {
    struct size *items; /* sorted by size, the largest first */
    int32_t n, cap;
    int32_t latest; /* index of the last lookup */
};

/* Index of the size, or where to insert it. */
static int32_t find_size(struct sizes *sizes, size_t bytes)
{
    int32_t low = 0, high = sizes->n;
    if (sizes->latest < sizes->n && sizes->items[sizes->latest].bytes == bytes) {
        return sizes->latest;
    }
    while (low < high) {
        const int32_t middle = low + (high - low) / 2;
        if (sizes->items[middle].bytes > bytes) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return sizes->latest = low;
}

/* false = out of memory */
static bool count_size(struct sizes *sizes, size_t bytes)
{
    const int32_t at = find_size(sizes, bytes);
    if (at == sizes->n || sizes->items[at].bytes != bytes) {
        if (sizes->n == sizes->cap) {
            enum { LEAST = 64 };
            const int32_t cap = sizes->cap > 0 ? 2 * sizes->cap : LEAST;
            void *mem = sw_realloc("plan", sizes->items, (size_t)cap * sizeof *sizes->items);
            if (!mem) {
                return false;
            }
            sizes->items = mem;
            sizes->cap = cap;
        }
        memmove(&sizes->items[at + 1], &sizes->items[at],
                (size_t)(sizes->n - at) * sizeof *sizes->items);
        sizes->items[at] = (struct size){.bytes = bytes};
        sizes->n++;
    }
    sizes->items[at].n++;
    return true;
}

struct begin {
    int32_t first, buffer;
};

static int by_begin(const void *a, const void *b)
{
    const struct begin *x = a, *y = b;
    return x->first != y->first ? (x->first > y->first) - (x->first < y->first)
                                : (x->buffer > y->buffer) - (x->buffer < y->buffer);
}

/* Within a size, transients that become live first come first. */
static void list_by_size(const struct sw_program *program, struct sizes *sizes, struct begin *order)
{
    int32_t end = 0;
    for (int32_t i = 0; i < sizes->n; end += sizes->items[i].n, i++) {
        sizes->items[i].end = end;
    }
    for (int32_t i = 0; i < program->n_buffers; i++) {
        const struct sw_buffer *buffer = &program->buffers[i];
        if (!buffer->persistent) {
            struct size *size = &sizes->items[find_size(sizes, buffer->bytes)];
            size->unsorted = size->unsorted || buffer->first < size->first;
            size->first = buffer->first;
            order[size->end++] = (struct begin){buffer->first, i};
        }
    }
    for (int32_t i = 0; i < sizes->n; i++) {
        const struct size *size = &sizes->items[i];
        if (size->unsorted) {
            qsort(&order[size->end - size->n], (size_t)size->n, sizeof *order, by_begin);
        }
    }
}

/* Lists the transients in the order in which they get addresses: the largest first, and of one size
 * the earliest first. *n: their number. The caller frees the list. NULL = out of memory */
static struct begin *rank_buffers(const struct sw_program *program, int32_t *n)
{
    struct sizes sizes = {0};
    bool good = true;
    *n = 0;
    for (int32_t i = 0; i < program->n_buffers && good; i++) {
        if (!program->buffers[i].persistent) {
            good = count_size(&sizes, program->buffers[i].bytes);
            (*n)++;
        }
    }
    struct begin *order = good ? sw_alloc("plan", ((size_t)*n + 1) * sizeof *order) : NULL;
    if (order) {
        list_by_size(program, &sizes, order);
    }
    sw_free(sizes.items);
    return order;
}

sw_status sw_pass_memory(struct sw_program *program)
{
    sw_status st = SW_OK;
    int32_t n;
    struct sw_shelf shelves[SW_TIER_COUNT] = {0};
    SW_TRY(find_lives(program));
    struct begin *order = rank_buffers(program, &n);
    bool *placed = sw_alloc_zero("plan", (size_t)program->n_buffers + 1, sizeof *placed);
    st = order && placed ? place_read(program, shelves, placed)
                         : SW_FAIL(SW_E_NOMEM, "out of host memory for the memory map");
    for (int32_t i = 0; i < n && st >= 0; i++) {
        const int32_t b = order[i].buffer;
        st = placed[b] ? SW_OK : place(program, shelves, &program->buffers[b]);
    }
    st = st < 0 ? st : find_peak(program);
    for (int t = 0; t < SW_TIER_COUNT; t++) {
        sw_shelf_close(&shelves[t]);
    }
    sw_free(order);
    sw_free(placed);
    return st;
}
