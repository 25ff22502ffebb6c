// SPDX-License-Identifier: Apache-2.0
// search - chooses the plan: it tries policies one after the other until one fits the budgets. It
// is pure: the same graphs, policy, budgets and rates give the same plan, or the same refusal, on
// every machine.
#pragma once

#include "plan/plan.h"
#include "walk/walk.h"

/* The graphs of one micro-batch size, made once for all policies that use it. */
struct sw_search_graphs {
    const struct sw_program_spec *specs;
    int n_specs;
    struct sw_plan_math math;
};

/* Result of a try, on this rank or merged over all of them. */
struct sw_verdict {
    sw_status status; /* below 0 = the search ends */
    bool fits;
    int rank;         /* a rank that it does not fit */
    double seconds;   /* predicted time of a step */
    double share;     /* upper bound of the share of the micro-batch that can fit */
    int64_t n_instrs; /* measure of the work of planning */
};

struct sw_search {
    struct sw_plan_options fixed; /* `policy` is not read; `host` is what policies may use */
    /* The request of the user. tile_bytes 0: as the budget requires. budget, two_slots, grads_tier,
     * update_elems and transfer_bytes are ignored; they follow from the members below. */
    struct sw_policy asked;
    size_t memory[SW_TIER_COUNT]; /* budgets by tier */
    int64_t slots;                /* 1 or 2; 0 = two if there is room */
    bool one_slot;                /* some rank has no room for two slots */
    size_t transfer_bytes;        /* 0 = chosen by the search */
    int64_t sub_group_elems;      /* largest piece of an update */
    /* Ignore what is asked, and take the largest micro-batch or the least recomputation that
     * fits. */
    bool any_micro_batch, any_recompute;
    bool any_update; /* update on the host or on the device, whichever makes a step faster */
    /* Filled in if the budgets refuse the plan, and then nothing is searched for advice; NULL = a
     * refusal says what would help */
    struct sw_plan_refusal *refusal;
    /* decide which recomputation costs least, and where updates run */
    struct sw_machine_rates rates;

    void *ctx;
    /* Lends the graphs of policy->micro_batch until the next call. */
    sw_status (*graphs)(void *ctx, const struct sw_policy *policy, struct sw_search_graphs *out);
    /* any_micro_batch: sets the largest micro-batch up to `most`, and how many a step has; 0 =
     * there is none */
    void (*next)(void *ctx, int64_t most, struct sw_policy *policy);
    /* any_micro_batch, any_recompute: merges the verdict of this rank with those of all ranks. NULL
     * = a single rank. */
    sw_status (*agree)(void *ctx, struct sw_verdict *verdict);
};

/*
 * sw_search_open - returns the plan of the first policy that fits.
 *
 * Two slots are tried before one, and whole parameters before tiles. Micro-batches are tried from
 * the largest on. For each, no recomputation is tried first; then as few blocks as fit, in groups
 * of one block, then of more. Among those that fit, the one with the fastest step wins. Updates on
 * the host are tried after updates on the device, with all else unchanged.
 *
 * out_policy   the choice
 * out          release with sw_plan_close
 *
 * SW_E_NOMEM   nothing fits: has the missing bytes, and the smallest change that would fit
 * SW_E_CONFIG  tiles or two slots were asked for but are impossible
 * SW_E_PEER    nothing fits on another rank, which is named
 */
sw_status sw_search_open(const struct sw_search *search, struct sw_policy *out_policy,
                         struct sw_plan **out);
/* Prints a policy in one line. */
void sw_policy_print(const struct sw_policy *policy, struct sw_str *out);

/* ---- mesh.c: sizes of a mesh that is "auto" ---- */

enum sw_mesh_result { SW_MESH_FITS, SW_MESH_MISSES, SW_MESH_REFUSED };

/* A mesh and its plan. */
struct sw_mesh_try {
    struct sw_mesh mesh;
    enum sw_mesh_result result;
    /* FITS: the predicted time of a step, or the least that it can be, and its samples */
    double seconds, samples;
    bool is_bound;
    /* MISSES: bytes that a rank of a stage lacks */
    size_t missing;
    enum sw_tier tier;
    int stage;
    char refused[200]; /* REFUSED: why */
    int64_t n_instrs;  /* measure of the work of planning */
};

struct sw_mesh_search {
    int ranks;
    int tensor, context; /* sizes that must be kept, as they cut sums; 0 = any */
    void *ctx;
    /* Plans t->mesh and fills in the rest. Below 0: the search ends. */
    sw_status (*judge)(void *ctx, struct sw_mesh_try *t);
    /* Does the same for a mesh of which `judge` told a bound, and replaces it by the time. */
    sw_status (*measure)(void *ctx, struct sw_mesh_try *t);
};

struct sw_mesh_choice {
    struct sw_mesh_try *tries; /* [n] the best first */
    int n, ranks;
    int spared, untried; /* meshes that were not tried: they cut sums; planning takes long */
    bool found, cuts;    /* the first one fits; it cuts sums */
    bool is_kept;        /* sizes were kept */
    bool other_rates;    /* the rates are not those of the machine that the plan is for */
    double boundary;     /* seconds of the first one with "reduce": "boundary"; 0 = not known */
};

/* Tries meshes of so many ranks. Those that cut no sums are preferred to all others; then the one
 * with the least time for a sample wins, and of equals the first one by name. All ranks get the
 * same, if they judge alike. Release with sw_mesh_choice_fini. */
sw_status sw_search_mesh(const struct sw_mesh_search *search, struct sw_mesh_choice *out);
void sw_mesh_choice_fini(struct sw_mesh_choice *choice);
/* Prints the best meshes, and why others lost. */
void sw_mesh_choice_print(const struct sw_mesh_choice *choice, struct sw_str *out);
/* Says in words why a mesh that does not fit is not taken. */
void sw_mesh_try_print(const struct sw_mesh_try *t, struct sw_str *out);
/* Writes the sizes above 1, such as "pipe 2 x data 4". Returns buf. */
enum { SW_MESH_WORDS = 96 };
const char *sw_mesh_words(const struct sw_mesh *mesh, char buf[SW_MESH_WORDS]);

/* ---- choices.c: families of choices, such as the mesh, the stage or the micro-batch ---- */

enum { SW_CHOICE_FAMILIES = 12 }; /* at most */

/* The number of the value that each family has. */
struct sw_choice {
    int at[SW_CHOICE_FAMILIES];
};

/* Values and the plan that has them. */
struct sw_choice_try {
    struct sw_choice choice;
    enum sw_mesh_result result;
    double seconds, flops; /* FITS: of a step, and of a device in it */
    enum sw_queue bound;
    size_t missing; /* MISSES: bytes that a rank of a stage lacks */
    enum sw_tier tier;
    char refused[200]; /* REFUSED: why */
    int64_t n_instrs;  /* measure of the work of planning and walking */
};

struct sw_choice_space {
    int n_families;
    int n_values[SW_CHOICE_FAMILIES];
    /* [n_starts] tried with each value of the first family, up to the first one that fits; the
     * first family's value is not read */
    const struct sw_choice *starts;
    int n_starts;
    int64_t most_instrs; /* no try begins after so much work, and no start after half of it */
    void *ctx;
    /* Changes values that contradict that of `family`. False: there is no such plan. */
    bool (*adapt)(void *ctx, int family, struct sw_choice *choice);
    /* Plans t->choice and fills in the rest. Below 0: the search ends. */
    sw_status (*judge)(void *ctx, struct sw_choice_try *t);
};

struct sw_choices {
    struct sw_choice_try *tries; /* [n] those that fit first, the fastest of them first */
    int n, n_fit;
    bool is_cut, has_all_starts; /* the work of planning ended the search; it did not end starts */
};

/*
 * sw_search_choices - tries combinations of values, which all do the same work in a step.
 *
 * Each value of the first family is tried with the starts. From the best of these, one family after
 * the other takes its best value while the others stay, until none changes. The plans that differ
 * from the best one in one other family are therefore among the tries. Ties go to lower numbers of
 * values, so the same answers of `judge` give the same tries. out: release `tries` with sw_free
 */
sw_status sw_search_choices(const struct sw_choice_space *space, struct sw_choices *out);
/* The try that is best among those that differ from the first one as little as a value of a family
 * requires; of the first family, the best of all that have the value. NULL = there is none. */
const struct sw_choice_try *sw_choices_with(const struct sw_choice_space *space,
                                            const struct sw_choices *choices, int family,
                                            int value);
