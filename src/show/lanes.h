// SPDX-License-Identifier: Apache-2.0
// lanes - a picture of a step as SVG: a lane for each queue or rank. The height of a column is the
// share of its time in which the lane was busy, and its class (k0 .. k3) the kind of work that took
// most. Part of the public interface of show.
#pragma once

#include "plan/plan.h"

enum sw_lane_kind {
    SW_LANE_FORWARD,
    SW_LANE_BACKWARD,
    SW_LANE_UPDATE,
    SW_LANE_WAIT,
    SW_LANE_KINDS
};

enum { SW_LANE_COLUMNS = 720, SW_LANE_HEIGHT = 40 }; /* units of the picture */

struct sw_lanes {
    double begin, end; /* of the window, in any unit of time */
    int n;
    float *busy; /* [n, SW_LANE_COLUMNS, SW_LANE_KINDS] share of a column */
};

/* Opens n empty lanes. Release with sw_lanes_close. SW_E_NOMEM */
sw_status sw_lanes_open(int n, double begin, double end, struct sw_lanes *out);
void sw_lanes_close(struct sw_lanes *lanes);
/* Adds work to a lane that takes this share of the time. The part outside of the window does not
 * count. */
void sw_lanes_add(struct sw_lanes *lanes, int lane, enum sw_lane_kind kind, double begin,
                  double end, double share);
bool sw_lane_is_used(const struct sw_lanes *lanes, int lane);
/* Share of the window in which a lane was busy; waits do not count as work. */
double sw_lane_share(const struct sw_lanes *lanes, int lane);
/* Neighbouring columns of a lane that look alike. Lanes to which these are added look the same. */
struct sw_lane_block {
    double begin, end; /* in the lanes' unit of time */
    double share;      /* of this time in which the lane was busy, to a tenth */
    enum sw_lane_kind kind;
};
enum { SW_LANE_BLOCKS = SW_LANE_COLUMNS / 3 }; /* at most; a block has three columns at least */
/* Returns the number of blocks with work, in their order. */
int sw_lane_blocks(const struct sw_lanes *lanes, int lane,
                   struct sw_lane_block out[SW_LANE_BLOCKS]);
const char *sw_lane_kind_name(enum sw_lane_kind kind);
/* Writes the shapes of a lane, upwards from y = bottom. */
void sw_lane_draw(const struct sw_lanes *lanes, int lane, int bottom, struct sw_str *out);
