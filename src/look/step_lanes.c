// SPDX-License-Identifier: Apache-2.0
// The queues of a step at a cluster's rates, as blocks of work: what a picture of it draws.
#include "json/json.h"
#include "look/private.h"
#include "show/show.h"

struct stage {
    const struct sw_program *program;
    struct sw_lanes lanes; /* by queue */
};

/* Activations that a pass makes again count as that pass. */
static enum sw_lane_kind kind_of(const struct sw_instr *instr)
{
    return instr->segment == SW_SEGMENT_FORWARD ? SW_LANE_FORWARD
           : instr->segment < SW_SEGMENT_UPDATE ? SW_LANE_BACKWARD
                                                : SW_LANE_UPDATE;
}

static void take_span(void *ctx, const struct sw_clock_span *span)
{
    struct stage *stage = ctx;
    const struct sw_instr *instr = &stage->program->instrs[span->instr];
    sw_lanes_add(&stage->lanes, (int)instr->queue, kind_of(instr), span->begin, span->end, 1);
}

static void put_queue(const struct sw_lanes *lanes, int queue, struct sw_str *out)
{
    struct sw_lane_block blocks[SW_LANE_BLOCKS];
    const int n = sw_lane_blocks(lanes, queue, blocks);
    sw_str_printf(out, "{\"queue\":\"%s\"", sw_queue_name((enum sw_queue)queue));
    sw_look_put_number(",\"busy_share\":", sw_lane_share(lanes, queue), out);
    sw_str_puts(out, ",\"blocks\":[");
    for (int i = 0; i < n; i++) {
        sw_look_put_number(i > 0 ? ",[" : "[", blocks[i].begin, out);
        sw_look_put_number(",", blocks[i].end, out);
        sw_look_put_number(",", blocks[i].share, out);
        sw_str_printf(out, ",\"%s\"]", sw_lane_kind_name(blocks[i].kind));
    }
    sw_str_puts(out, "]}");
}

static void put_stage(const struct stage *stage, const struct sw_clock_rank *rank, int number,
                      struct sw_str *out)
{
    const char *before = "";
    sw_str_printf(out, "%s{\"rank\":%d", number > 0 ? "," : "", number);
    sw_look_put_number(",\"seconds\":", rank->seconds, out);
    sw_look_put_number(",\"idle_share\":", rank->idle, out);
    sw_str_puts(out, ",\"queues\":[");
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        if (sw_lane_is_used(&stage->lanes, q)) {
            sw_str_puts(out, before);
            put_queue(&stage->lanes, q, out);
            before = ",";
        }
    }
    sw_str_puts(out, "]}");
}

/* stages, ranks: [n] all 0 */
static sw_status walk(const struct sw_lineup *lineup, const struct sw_cost_mesh *mesh,
                      double seconds, struct stage *stages, struct sw_clock_rank *ranks)
{
    double walked;
    for (int s = 0; s < lineup->n; s++) {
        const struct sw_plan *plan = sw_engine_facts(lineup->stages[s].engine).plan;
        stages[s].program = &plan->programs[0];
        SW_TRY(sw_lanes_open(SW_QUEUE_COUNT, 0, seconds, &stages[s].lanes));
        ranks[s] = (struct sw_clock_rank){.plan = plan, .ran = take_span, .ctx = &stages[s]};
    }
    return sw_cost_stages(ranks, lineup->n, mesh, &walked);
}

sw_status sw_look_put_lanes(const struct sw_lineup *lineup, const struct sw_cost_mesh *mesh,
                            double seconds, struct sw_str *out)
{
    const size_t n = (size_t)lineup->n;
    struct stage *stages = sw_alloc_zero("look", n, sizeof *stages);
    struct sw_clock_rank *ranks = sw_alloc_zero("look", n, sizeof *ranks);
    const sw_status st = stages && ranks
                             ? walk(lineup, mesh, seconds, stages, ranks)
                             : SW_FAIL(SW_E_NOMEM, "out of host memory for a picture of a step");
    sw_str_putc(out, '[');
    for (int s = 0; s < lineup->n && stages; s++) {
        if (st >= 0) {
            put_stage(&stages[s], &ranks[s], lineup->stages[s].rank, out);
        }
        sw_lanes_close(&stages[s].lanes);
    }
    sw_str_putc(out, ']');
    sw_free(stages);
    sw_free(ranks);
    return st;
}
