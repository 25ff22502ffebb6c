// SPDX-License-Identifier: Apache-2.0
// spillway config - explains a ds_config.json. It prints the effective values and their origins,
// the meaning of a key, the values of a schedule, or the manual page. Exit status 0, or 2 if
// something was refused.
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/model_flags.h"
#include "spillway/comm.h"
#include "spillway/config.h"

struct run {
    const char *file, *explain;
    struct words sets;
    int64_t ranks, n_steps, elastic; /* n_steps, elastic: -1 = no schedule, no elasticity */
    bool json, docs;
    struct auto_flags auto_;
    const char *model; /* NULL: not given */
    int64_t steps, seq_len;
    char *owned[2]; /* owned edits */
};

static bool add_number(struct words *sets, char **owned, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    return cli_add_set(sets, owned, key, text);
}

/* Plans a training to find the micro-batch that it would choose. */
static sw_status plan_micro_batch(const struct run *run, int64_t *out)
{
    struct sw_engine_options o = {
        .config = {.path = run->file, .sets = run->sets.items, .n_sets = run->sets.n},
        .model.path = run->model,
        .inputs.seq_len = run->seq_len,
        .plan.only = true,
        .train.wanted = true};
    sw_engine *engine = NULL;
    sw_status st = SW_OK;
    if (run->ranks > 1) {
        st = sw_comm_open(&(struct sw_transport){.size = (int)run->ranks}, &o.run.comm);
    }
    st = st < 0 ? st : sw_initialize(&o, &engine);
    *out = st >= 0 ? sw_engine_micro_batch_size(engine) : 0;
    sw_close(engine);
    sw_comm_close(o.run.comm, st < 0);
    return st;
}

/* Adds the values that follow from the model: its width, and the micro-batch that fits. */
static int learn_of_model(const struct command *command, struct run *run)
{
    int64_t size = 0;
    bool plan = false;
    if (sw_model_hidden_size(run->model, &size) < 0) {
        return cli_error(command, CLI_REFUSED);
    }
    if (!add_number(&run->sets, &run->owned[0], "--hidden-size", size)) {
        return cli_fail(command, CLI_FAILED, "out of memory");
    }
    const struct sw_config_options options = {
        .path = run->file, .sets = run->sets.items, .n_sets = run->sets.n};
    if (sw_config_wants_plan(&options, &plan) < 0 || (plan && plan_micro_batch(run, &size) < 0)) {
        return cli_error(command, CLI_REFUSED);
    }
    if (plan && !add_number(&run->sets, &run->owned[1], "--planned-batch-size", size)) {
        return cli_fail(command, CLI_FAILED, "out of memory");
    }
    return -1;
}

static sw_status ask(const struct run *run, char **out_text, char **out_notes)
{
    const struct sw_config_options options = {
        .path = run->file,
        .sets = run->sets.items,
        .n_sets = run->sets.n,
        .ranks = (int)run->ranks,
        .json = run->json,
        .schedule = run->n_steps >= 0,
        .n_steps = (int)run->n_steps,
        .elastic_ranks = run->elastic,
    };
    if (run->explain) {
        return sw_config_explain_text(run->explain, out_text);
    }
    if (run->elastic >= 0) {
        return sw_config_elastic_text(&options, out_text);
    }
    return run->docs ? sw_config_docs_text(out_text)
                     : sw_config_report(&options, out_text, out_notes);
}

static int show(const struct command *command, const struct run *run)
{
    char *text = NULL, *notes = NULL;
    if (ask(run, &text, &notes) < 0) {
        return cli_error(command, CLI_REFUSED);
    }
    fputs(text, stdout);
    if (notes && !run->json) {
        fputs(notes, stderr);
    }
    sw_text_free(text);
    sw_text_free(notes);
    return CLI_DONE;
}

int sw_cmd_config(int argc, char **argv)
{
    struct run run = {.ranks = 1, .n_steps = -1, .elastic = -1};
    struct words files = {0};
    const struct flag flags[] = {
        CLI_HEADING("The training"),
        {"--ranks", FLAG_INT, &run.ranks, "N",
         "data-parallel ranks of the batch arithmetic (default: 1)", false},
        {"--set", FLAG_LIST, &run.sets, "K=V", "edit the file before it is read; may be repeated",
         false},
        CLI_AUTO_FLAGS(run.auto_),
        {"--steps", FLAG_INT, &run.steps, "N", "steps of the training, for \"auto\" values", false},
        {"--model", FLAG_TEXT, &run.model, "DIR|FILE|PRESET",
         "model, for \"auto\" values that follow from its width, and for the micro-batch that "
         "fits",
         false},
        {"--seq-len", FLAG_INT, &run.seq_len, "T",
         "tokens per sample, for the plan that finds the micro-batch", false},
        CLI_HEADING("Output"),
        {"--json", FLAG_BOOL, &run.json, NULL,
         "print one object: config, source, not_built, schedule", false},
        {"--schedule", FLAG_INT, &run.n_steps, "N", "print learning rate and momentum of N steps",
         false},
        {"--elastic", FLAG_INT, &run.elastic, "N",
         "print what the elasticity block allows, and the batch size of N ranks (0: ranks not "
         "known yet)",
         false},
        {"--explain", FLAG_TEXT, &run.explain, "KEY", "explain a key or a block", false},
        {"--docs", FLAG_BOOL, &run.docs, NULL, "print the manual page docs/config.md", false},
    };
    const struct command command = {
        "config",
        "FILE [--model M] [--ranks N] [--set KEY=VALUE].. [--json] [--schedule N | --elastic N] | "
        "--explain KEY",
        "Prints the effective values of a ds_config.json and where each came from.",
        CLI_FLAGS(flags),
        "ds_config.json --model org/name --ranks 8\n"
        "ds_config.json --schedule 100\n"
        "--explain zero_optimization\n"};
    int status = cli_parse(&command, argc, argv, &files);
    run.file = files.n > 0 ? files.items[0] : NULL;
    if (status < 0 && files.n != 1 && !run.explain && !run.docs) {
        status = cli_fail(&command, CLI_REFUSED, "wanted one file, got %d; see --help", files.n);
    } else if (status < 0 && (run.ranks < 1 || run.ranks > INT_MAX)) {
        status = cli_fail(&command, CLI_REFUSED, "--ranks: wanted 1 to %d, got %lld", INT_MAX,
                          (long long)run.ranks);
    } else if (status < 0 && run.n_steps > INT_MAX) {
        status = cli_fail(&command, CLI_REFUSED, "--schedule: wanted at most %d steps, got %lld",
                          INT_MAX, (long long)run.n_steps);
    } else if (status < 0 && run.n_steps >= 0 && run.elastic >= 0) {
        status = cli_fail(&command, CLI_REFUSED, "--schedule and --elastic exclude each other");
    }
    status = status < 0 ? cli_check_auto(&command, &run.auto_) : status;
    if (status < 0 && !cli_add_auto(&run.sets, &run.auto_, true, run.steps)) {
        status = cli_fail(&command, CLI_FAILED, "out of memory");
    }
    status = status < 0 && run.model && run.file ? learn_of_model(&command, &run) : status;
    status = status < 0 ? show(&command, &run) : status;
    cli_auto_fini(&run.auto_);
    free(run.owned[0]);
    free(run.owned[1]);
    cli_free_words(&files);
    cli_free_words(&run.sets);
    return status;
}
