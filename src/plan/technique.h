// SPDX-License-Identifier: Apache-2.0
// technique - a way to need less memory or less time, as one row. Planning, the search, refusals,
// the advice after them and summaries loop over the rows, and know no technique by name. A row is
// at the end of the file that implements it; technique.c lists the rows.
#pragma once

#include "plan/plan.h"

/* The request that a technique is asked about. */
struct sw_facts {
    const struct sw_plan_options *options;
    bool trains;
    int64_t blocks; /* number of blocks of the model; -1 = unknown */
};

/* A plan that exceeds a budget. */
struct sw_shortage {
    const struct sw_plan *plan;
    const struct sw_plan_options *options;
    enum sw_tier tier;
    const struct sw_program *program; /* the one that takes most of the tier */
    bool whatever_the_tiles;          /* see struct sw_plan_refusal */
};

struct sw_cells;
struct sw_technique {
    /* configuration keys, or blocks of them, that govern it, separated by spaces; "" = it is always
     * used */
    const char *keys;
    /* The least ZeRO stage at which the policy may be used. NULL = 0. */
    int (*stage)(const struct sw_policy *policy);
    /* True if the policy wants the technique and cannot have it. why: one sentence that begins with
     * the key, by sw_refuse; NULL = it is not wanted. refuses NULL = never */
    bool (*refuses)(const struct sw_facts *facts, struct sw_str *why);

    /* ---- planning; NULL = nothing to do ---- */

    /* Choices that all programs share, before their lists are rewritten. */
    sw_status (*prepare)(struct sw_plan *plan, const struct sw_plan_options *options);
    /* Rewrites the lists of all programs. Called in the order of the rows. */
    sw_status (*run)(struct sw_plan *plan, const struct sw_plan_options *options);
    /* Chooses when instructions of a program start. It may be called again, with other options. */
    sw_status (*arrange)(struct sw_program *program, const struct sw_cells *cells,
                         const struct sw_plan_options *options);

    /* ---- the search; NULL = the technique is not tried ---- */

    /* Changes the policy to one that needs less device memory. What leaves the device goes to the
     * tier `level`: 0 = the host, the nearest. false = there is none, or it is in use */
    bool (*cheaper)(const struct sw_facts *facts, struct sw_policy *policy, int level);
    /* The most bytes of device memory that it can free, beside transients. */
    size_t (*spares)(const struct sw_plan_refusal *refusal);
    /* Lists the settings that lead from one policy to the other, each followed by '\n'. */
    void (*settings)(const struct sw_policy *before, const struct sw_policy *after,
                     struct sw_str *out);

    /* ---- words; NULL = none ---- */

    /* Appends what would help, by sw_advise. */
    void (*advise)(const struct sw_shortage *shortage, struct sw_str *out);
    /* Appends lines of a summary: about one program, or about the plan if `program` is NULL. */
    void (*describe)(const struct sw_plan *plan, const struct sw_program *program,
                     struct sw_str *out);
};

/* All rows, in the order in which they run. The search has a bit for each. */
enum { SW_MOST_TECHNIQUES = 32 };
extern const struct sw_technique *const sw_techniques[];
extern const int sw_n_techniques;

/* Appends ", " or `join` and the text, or the text alone if it is the first. */
void sw_advise(struct sw_str *out, const char *join, const char *text);

/* Appends the lines of all techniques about a program, or about the plan if `program` is NULL. */
void sw_techniques_describe(const struct sw_plan *plan, const struct sw_program *program,
                            struct sw_str *out);

/* Writes why a technique refuses, unless `why` is NULL. Returns true. */
bool sw_refuse(struct sw_str *why, const char *fmt, ...) SW_PRINTF(2, 3);

/* The first technique that refuses, or NULL. why: its sentence */
const struct sw_technique *sw_technique_refusal(const struct sw_facts *facts, struct sw_str *why);
/* The least ZeRO stage at which the policy may be used. */
int sw_policy_stage(const struct sw_policy *policy);

/* Rows that others ask by name: the search, which chooses tiles and slots within budgets. */
extern const struct sw_technique sw_technique_tile, sw_technique_two_slots;
/* True if the technique does not refuse these options. */
bool sw_technique_allows(const struct sw_technique *technique,
                         const struct sw_plan_options *options);
