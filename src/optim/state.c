// SPDX-License-Identifier: Apache-2.0
// The table of kinds of states, and the names that files, dumps and messages give to states.
#include "optim/optim.h"

const struct sw_state_info sw_state_infos[SW_N_STATE_KINDS] = {
#define INFO(kind, name, purpose, extent)                                                          \
    [SW_STATE_##kind] = {name, SW_STATE_##purpose, SW_STATE_OF_##extent},
    SW_STATE_LIST(INFO)
#undef INFO
};

const char *sw_state_name(struct sw_arena *arena, const char *param, enum sw_state_kind kind,
                          int use)
{
    const struct sw_state_info *info = &sw_state_infos[kind];
    const bool of_use = info->purpose == SW_STATE_SUMS || info->purpose == SW_STATE_KEPT;
    return of_use ? sw_arena_printf(arena, "%s.%d/%s", info->name, use, param)
                  : sw_arena_printf(arena, "%s/%s", info->name, param);
}

enum sw_state_kind sw_state_scales(enum sw_state_kind kind, enum sw_codes *codes)
{
    *codes = kind == SW_STATE_EXP_AVG_SQ ? SW_CODES_UNSIGNED : SW_CODES_SIGNED;
    return kind == SW_STATE_EXP_AVG      ? SW_STATE_EXP_AVG_SCALE
           : kind == SW_STATE_EXP_AVG_SQ ? SW_STATE_EXP_AVG_SQ_SCALE
                                         : SW_STATE_OTHER;
}
