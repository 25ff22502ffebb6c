// SPDX-License-Identifier: Apache-2.0
// Shared by the files of this folder: members of JSON objects, and figures of plans.
#pragma once

#include "json/json.h"
#include "show/show.h"

/* ---- put.c: members of JSON objects, with the comma before them ---- */

/* Begins a member. Returns the length before it, for sw_put_end. */
size_t sw_put_key(struct sw_str *out, const char *key);
/* Ends a member whose value was written after its key. Without a value there is no member. */
void sw_put_end(struct sw_str *out, size_t before);
/* Begins an element of a list. */
void sw_put_element(struct sw_str *out);
/* Ends an object. One without members is removed. */
void sw_put_object_end(struct sw_str *out);
void sw_put_text(struct sw_str *out, const char *key, const char *text); /* unless it is empty */
void sw_put_count(struct sw_str *out, const char *key, int64_t value);   /* unless it is 0 */
void sw_put_number(struct sw_str *out, const char *key, int64_t value);  /* unless it is < 0 */
void sw_put_flag(struct sw_str *out, const char *key, bool value);       /* unless it is false */

/* ---- attributes.c ---- */

/* Writes an object; nothing if the op has no attributes. */
void sw_write_attributes(const struct sw_instr_op *op, struct sw_str *out);

/* ---- figures.c: sums over a plan ---- */

/* Bytes of the parameters and states, on all tiers, and of the gradients of a micro-batch. */
struct sw_role_bytes {
    size_t params, states, gradients;
};
struct sw_role_bytes sw_role_bytes(const struct sw_plan *plan);

struct sw_tiles {
    int64_t n;      /* of all parameters */
    size_t largest; /* in bytes */
};
struct sw_tiles sw_tiles(const struct sw_plan *plan);

/* Bytes that a step of a training moves. Disks wear, hence the figures of what is written. */
struct sw_moved {
    struct sw_transfers bytes;
    double written_each; /* bytes written to disk per parameter */
    double tb_in_1000_steps;
};
struct sw_moved sw_moved(const struct sw_plan *plan);
