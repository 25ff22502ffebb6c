// SPDX-License-Identifier: Apache-2.0
// The lists of fields.h as tables, for reading and comparing.
#include <stddef.h>

#include "show/fields.h"

enum { NEEDED = true, MAY = false };

/* A row of a table. RECORD is the struct of its record. */
#define ROW(key, type, presence, compare, ...)                                                     \
    {#key,                                                                                         \
     SW_FIELD_##type,                                                                              \
     presence,                                                                                     \
     SW_COMPARE_##compare,                                                                         \
     offsetof(RECORD, key),                                                                        \
     INNER_##type(key)},
#define INNER_TEXT(key) NULL
#define INNER_COUNT(key) NULL
#define INNER_NUMBER(key) NULL
#define INNER_INDEX(key) NULL
#define INNER_FLAG(key) NULL
#define INNER_ANY(key) NULL
#define INNER_OBJECT(key) &sw_fields_of_##key
#define INNER_LIST(key) &sw_fields_of_##key

#define TABLE(rows) .at = (rows), .n = SW_LEN(rows), .bytes = sizeof(RECORD)

#define RECORD struct sw_dumped_waits
static const struct sw_field waits[] = {SW_WAITS_FIELDS(ROW)};
static const struct sw_fields sw_fields_of_waits = {TABLE(waits)};
#undef RECORD

#define RECORD struct sw_dumped_workspace
static const struct sw_field workspace[] = {SW_WORKSPACE_FIELDS(ROW)};
static const struct sw_fields sw_fields_of_workspace = {TABLE(workspace)};
#undef RECORD

#define RECORD struct sw_dumped_moved_in_a_step
static const struct sw_field moved_in_a_step[] = {SW_MOVED_FIELDS(ROW)};
static const struct sw_fields sw_fields_of_moved_in_a_step = {TABLE(moved_in_a_step)};
#undef RECORD

#define RECORD struct sw_dumped_operand
static const struct sw_field operands[] = {SW_OPERAND_FIELDS(ROW)};
const struct sw_fields sw_fields_of_operands = {TABLE(operands), .list = SW_DUMPED_OPERANDS,
                                                .may_be_null = true};
#undef RECORD

#define RECORD struct sw_dumped_instr
static const struct sw_field instrs[] = {SW_INSTR_FIELDS(ROW)};
const struct sw_fields sw_fields_of_instruction_list = {TABLE(instrs), .list = SW_DUMPED_INSTRS};
#undef RECORD

#define RECORD struct sw_dumped_program
static const struct sw_field programs[] = {SW_PROGRAM_FIELDS(ROW)};
const struct sw_fields sw_fields_of_programs = {TABLE(programs), .list = SW_DUMPED_PROGRAMS};
#undef RECORD

#define RECORD struct sw_dumped_tensor
static const struct sw_field tensors[] = {SW_TENSOR_FIELDS(ROW)};
const struct sw_fields sw_fields_of_persistent = {TABLE(tensors), .list = SW_DUMPED_TENSORS};
#undef RECORD

#define RECORD struct sw_dumped_plan
static const struct sw_field plan[] = {SW_PLAN_FIELDS(ROW)};
const struct sw_fields sw_fields_of_plan = {TABLE(plan)};
