// SPDX-License-Identifier: Apache-2.0
// spillway plan - prints the program and the memory of a training without allocating the memory.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/train_flags.h"
#include "spillway/comm.h"
#include "spillway/engine.h"
#include "spillway/look.h"
#include "spillway/report.h"

enum { OWN_FLAGS = 26, MOST_RANKS = 1 << 20, NOT_GIVEN = -1 };

struct run {
    struct train_flags train;
    struct words diff;
    bool brief, json, no_optimizer, predict, want_eval;
    int64_t batch, stage, vocab, generate_tokens;
    const char *schedule;      /* a file, or "true"; NULL = not asked for */
    struct sw_plan_cluster on; /* name NULL: on this machine */
    const char *nodes;         /* "N", or "A:B" */
    const char *picture;       /* a file; NULL = not asked for */
    struct sw_plan_scale scale;
    bool has_rows; /* a row for each number of nodes is asked for, instead of a plan */
    bool search;   /* the fastest plans are asked for, instead of one */
    bool largest;  /* the most layers are asked for */
    struct sw_plan_published published;
    /* owned: the edit for --stage; device: the one of --on; batch_text: the value of --batch */
    char *owned, *device, batch_text[32];
};

static int64_t ranks_of(const struct run *run)
{
    return run->train.o.ranks > 0 ? run->train.o.ranks : 1;
}

/* Whether a flag was given that is none of these, up to NULL. */
static bool has_others(int argc, char **argv, const char *const *flags)
{
    for (int i = 1; i < argc; i++) {
        const size_t len = strcspn(argv[i], "=");
        bool is_known = strncmp(argv[i], "--", 2) != 0; /* a value */
        for (int k = 0; flags[k] && !is_known; k++) {
            is_known = strlen(flags[k]) == len && strncmp(flags[k], argv[i], len) == 0;
        }
        if (!is_known) {
            return true;
        }
    }
    return false;
}

/* Returns the exit status as diff does: 0 if they are the same, 1 if they differ, 2 for trouble. */
static int show_difference(const struct command *command, const struct run *run, int argc,
                           char **argv)
{
    static const char *const flags[] = {"--diff", "--json", NULL};
    char *out = NULL;
    bool same = false;
    if (run->diff.n != 2 || has_others(argc, argv, flags)) {
        return cli_fail(command, CLI_REFUSED,
                        "--diff takes two files written by plan --json, and no other option but "
                        "--json");
    }
    if (sw_plan_diff_text(run->diff.items[0], run->diff.items[1], run->json, &same, &out) < 0) {
        return cli_error(command, CLI_REFUSED);
    }
    printf("%s%s", out, run->json ? "\n" : "");
    sw_text_free(out);
    return fflush(stdout) != 0 ? CLI_REFUSED : same ? CLI_DONE : CLI_FAILED;
}

/* The exit status is 1 if a judged run is missed. */
static int show_published(const struct command *command, const struct run *run, int argc,
                          char **argv)
{
    static const char *const flags[] = {"--published", "--accounting", "--picture", "--json", NULL};
    struct sw_plan_published wanted = run->published;
    bool missed = false;
    char *out = NULL;
    if (has_others(argc, argv, flags)) {
        return cli_fail(command, CLI_REFUSED,
                        "--published takes no other options but --accounting, --picture and "
                        "--json");
    }
    wanted.ours = true;
    wanted.json = run->json || run->picture;
    if (sw_plan_published_text(&wanted, &missed, &out) < 0 ||
        (run->picture && sw_report_picture(out, run->picture) < 0)) {
        sw_text_free(out);
        return cli_error(command, CLI_REFUSED);
    }
    if (run->json || !run->picture) {
        printf("%s", out);
    } else {
        printf("picture: %s\n", run->picture);
    }
    sw_text_free(out);
    return fflush(stdout) != 0 ? CLI_REFUSED : missed ? CLI_FAILED : CLI_DONE;
}

static int check(const struct command *command, const struct run *run)
{
    if (run->published.accounting) {
        return cli_fail(command, CLI_REFUSED, "--accounting needs --published");
    }
    if (run->picture && !run->on.name) {
        return cli_fail(command, CLI_REFUSED, "--picture needs --on or --published");
    }
    if (!run->train.o.model || run->batch == 0 || ranks_of(run) > MOST_RANKS) {
        return cli_fail(command, CLI_REFUSED,
                        "--model, --batch >= 1 and --ranks <= %d are required; see --help",
                        MOST_RANKS);
    }
    if (run->batch > 0 && run->train.auto_.text[AUTO_BATCH_SIZE]) {
        return cli_fail(command, CLI_REFUSED,
                        "--batch and --batch-size are the same option; give one");
    }
    if (run->stage > 3) {
        return cli_fail(command, CLI_REFUSED, "--stage: wanted 0, 1, 2 or 3, got %lld",
                        (long long)run->stage);
    }
    return -1;
}

/* Adds the edits: --stage overrides the configuration's stage, and --batch is another name of
 * --batch-size. */
static bool add_edits(struct run *run)
{
    char text[32];
    struct words *sets = &run->train.sets;
    struct auto_flags *autos = &run->train.auto_;
    bool good = true;
    if (run->stage >= 0) {
        snprintf(text, sizeof text, "%lld", (long long)run->stage);
        good = cli_add_set(sets, &run->owned, "zero_optimization.stage", text);
    }
    if (run->batch > 0) {
        snprintf(run->batch_text, sizeof run->batch_text, "%lld", (long long)run->batch);
        autos->text[AUTO_BATCH_SIZE] = run->batch_text;
    }
    return good;
}

/* The engine options of `train`, with this command's own flags added. */
static void engine_options(const struct run *run, const sw_train_setup *setup,
                           struct sw_engine_options *out)
{
    *out = *sw_train_setup_engine(setup);
    out->plan.only = true;
    out->run.profile = false;
    out->run.device = run->device ? run->device : out->run.device;
    out->train.wanted = !run->no_optimizer;
    out->evaluate.loss |= run->want_eval || run->no_optimizer;
    out->model.vocab_size = run->vocab > 0 ? run->vocab : out->model.vocab_size;
    if (run->generate_tokens > 0) {
        out->generate = (struct sw_engine_generate){true, run->generate_tokens};
    }
}

/* --nodes N asks for a plan, unless --tokens asks for days. --nodes A:B asks for rows. */
static int take_nodes(const struct command *command, struct run *run)
{
    const bool asks_for_days = run->scale.tokens != 0;
    char *end = NULL;
    if (!run->on.name && (run->nodes || asks_for_days || run->search || run->largest)) {
        return cli_fail(command, CLI_REFUSED, "%s needs --on, the cluster that has the nodes",
                        run->nodes     ? "--nodes"
                        : run->search  ? "--search"
                        : run->largest ? "--largest"
                                       : "--tokens");
    }
    if (run->scale.price != 0 && !asks_for_days) {
        return cli_fail(command, CLI_REFUSED, "--price needs --tokens");
    }
    const long long first = run->nodes ? strtoll(run->nodes, &end, 10) : 1;
    const bool is_range = end && *end == ':';
    run->has_rows = is_range || (asks_for_days && !run->search && !run->largest);
    const long long last = is_range ? strtoll(end + 1, &end, 10) : first;
    if (first < 1 || last < first || (end && *end)) {
        return cli_fail(command, CLI_REFUSED,
                        "--nodes: wanted N or A:B with 1 <= A <= B, got \"%s\"", run->nodes);
    }
    if (run->has_rows && (run->train.o.ranks > 0 || run->schedule)) {
        return cli_fail(command, CLI_REFUSED,
                        "--nodes A:B and --tokens take all devices of the nodes; leave out --ranks "
                        "and --schedule");
    }
    if ((run->search || run->largest) && (is_range || run->schedule || run->picture ||
                                          (run->largest && (run->search || asks_for_days)))) {
        return cli_fail(command, CLI_REFUSED,
                        "%s takes one number of nodes; leave out --schedule and --picture%s",
                        run->largest ? "--largest" : "--search",
                        run->largest ? ", and --tokens and --search" : "");
    }
    run->on.nodes = run->nodes ? last : 0;
    run->scale.first = first;
    run->scale.last = last;
    return -1;
}

/* The ranks of --on, and its device: both are the cluster's. */
static int take_cluster(const struct command *command, struct run *run)
{
    const size_t cap = run->on.name ? strlen(run->on.name) + sizeof "sim:" : 0;
    const int status = take_nodes(command, run);
    if (status >= 0 || !run->on.name) {
        return status;
    }
    if (run->train.device || run->predict || run->train.rates.n > 0) {
        return cli_fail(command, CLI_REFUSED,
                        "--on has a device and rates of its own; leave out --device, --predict and "
                        "--rates");
    }
    run->on.ranks = run->train.o.ranks;
    run->on.json = run->json;
    if (sw_plan_cluster_size(&run->on) < 0) {
        return cli_error(command, CLI_REFUSED);
    }
    if (run->on.ranks > MOST_RANKS) {
        return cli_fail(command, CLI_REFUSED, "--nodes: wanted at most %d ranks, got %lld",
                        MOST_RANKS, (long long)run->on.ranks);
    }
    run->train.o.ranks = run->on.ranks;
    run->device = malloc(cap);
    if (!run->device) {
        return cli_fail(command, CLI_FAILED, "out of memory");
    }
    snprintf(run->device, cap, "sim:%s", run->on.name);
    return -1;
}

static bool asks_for_stages(const struct run *run)
{
    return ranks_of(run) > 1 || run->stage >= 0;
}

/* Makes the plan of rank 0 at the configured stage, as a training would. out NULL: only checks that
 * it fits. */
static sw_status plan_of_a_rank(const struct run *run, const struct sw_engine_options *options,
                                char **out)
{
    struct sw_engine_options o = *options;
    sw_engine *engine = NULL;
    sw_status st = sw_comm_open(&(struct sw_transport){.size = (int)ranks_of(run)}, &o.run.comm);
    if (st < 0) {
        return st;
    }
    st = sw_initialize(&o, &engine);
    st = st < 0 || !out ? st : sw_plan_text(engine, true, true, out);
    sw_close(engine);
    sw_comm_close(o.run.comm, st < 0);
    return st;
}

static sw_status predict(const struct run *run, const struct sw_engine_options *o, char **out)
{
    const struct sw_predict_options wanted = {.rates = run->train.rates.items,
                                              .n_rates = run->train.rates.n,
                                              .measure = run->predict,
                                              .ranks = (int)ranks_of(run),
                                              .json = run->json};
    return sw_plan_predict_text(o, &wanted, out);
}

/* The output is a report and more parts after it. In JSON they are members of its object. */
struct parts {
    char *report;
    struct part {
        const char *name;
        char *text; /* NULL = null, in JSON only */
    } more[4];
    int n;
};

/* The text of the next part, to be filled in. */
static char **add_part(struct parts *p, const char *name)
{
    p->more[p->n] = (struct part){name, NULL};
    return &p->more[p->n++].text;
}

static sw_status draw(const struct run *run, const struct sw_engine_options *o, char **out)
{
    const struct sw_predict_options wanted = {.rates = run->train.rates.items,
                                              .n_rates = run->train.rates.n,
                                              .ranks = (int)ranks_of(run),
                                              .json = run->json};
    const bool text = strcmp(run->schedule, "true") == 0;
    return sw_plan_schedule_text(o, &wanted, text ? NULL : run->schedule, out);
}

static void print_parts(const struct parts *p, const char *choice, bool json)
{
    if (json) { /* insert before the object's closing brace */
        fwrite(p->report, 1, strlen(p->report) - 1, stdout);
        printf("%s%s", choice ? ",\"mesh_choice\":" : "", choice ? choice : "");
    } else {
        printf("%s%s", choice ? choice : "", p->report);
    }
    for (int i = 0; i < p->n; i++) {
        const char *text = p->more[i].text ? p->more[i].text : json ? "null" : "";
        if (json) {
            printf(",\"%s\":", p->more[i].name);
        }
        printf("%s", text);
    }
    printf("%s", json ? "}\n" : "");
}

static void free_parts(struct parts *p)
{
    sw_text_free(p->report);
    for (int i = 0; i < p->n; i++) {
        sw_text_free(p->more[i].text);
    }
}

/* Prints the table of stages even if the configured stage exceeds its budgets. That stage is then
 * refused, as in a training: *refused. */
static sw_status report_stages(const struct run *run, const struct sw_engine_options *o,
                               struct parts *p, sw_status *refused)
{
    const int ranks = (int)ranks_of(run);
    const bool with_plan = run->json && !run->brief;
    sw_status st = sw_plan_stages_text(o, ranks, run->json, &p->report);
    if (st < 0) {
        return st;
    }
    *refused = plan_of_a_rank(run, o, with_plan ? add_part(p, "plan") : NULL);
    if (*refused >= 0 && ranks > 1) {
        *refused = sw_plan_mesh_text(o, ranks, run->json, add_part(p, "mesh"));
    }
    return *refused < 0 && *refused != SW_E_NOMEM ? *refused : SW_OK;
}

static sw_status report_one(const struct run *run, const struct sw_engine_options *o,
                            struct parts *p)
{
    sw_engine *engine = NULL;
    sw_status st = sw_initialize(o, &engine);
    st = st < 0 ? st : sw_plan_text(engine, !run->brief, run->json, &p->report);
    sw_close(engine);
    return st;
}

static sw_status report_time(const struct run *run, const struct sw_engine_options *o,
                             struct parts *p)
{
    if (run->on.name) {
        return sw_plan_cluster_text(o, &run->on, add_part(p, "cluster"));
    }
    return run->predict || run->train.rates.n > 0 ? predict(run, o, add_part(p, "prediction"))
                                                  : SW_OK;
}

/* choice: of the mesh; NULL = it is not "auto" */
static sw_status print_plan(const struct run *run, const struct sw_engine_options *o,
                            const char *choice)
{
    struct parts p = {0};
    sw_status refused = SW_OK;
    sw_status st =
        asks_for_stages(run) ? report_stages(run, o, &p, &refused) : report_one(run, o, &p);
    st = st < 0 || refused < 0 ? st : report_time(run, o, &p);
    if (st >= 0 && refused >= 0 && run->schedule) {
        st = draw(run, o, add_part(&p, "schedule"));
    }
    if (st >= 0) {
        print_parts(&p, choice, run->json);
    }
    free_parts(&p);
    return st < 0 ? st : refused;
}

/* Appends an edit of the configuration. *out: owns the longer list. False: out of memory */
static bool add_edit(struct sw_engine_options *o, const char *edit, const char ***out)
{
    const int n = o->config.n_sets;
    *out = malloc(((size_t)n + 1) * sizeof **out);
    for (int i = 0; *out && i < n; i++) {
        (*out)[i] = o->config.sets[i];
    }
    if (*out) {
        (*out)[n] = edit;
        o->config.sets = *out;
        o->config.n_sets = n + 1;
    }
    return *out != NULL;
}

/* --picture needs JSON, also where text is printed. */
static sw_status text_of_rows(const struct run *run, const struct sw_engine_options *o, bool json,
                              char **out)
{
    struct sw_plan_scale wanted = run->scale;
    wanted.cluster = run->on.name;
    wanted.json = json;
    return sw_plan_scale_text(o, &wanted, out);
}

static sw_status write_picture(const struct run *run, const char *json)
{
    const sw_status st = sw_report_picture(json, run->picture);
    if (st >= 0 && !run->json) {
        printf("picture: %s\n", run->picture);
    }
    return st;
}

/* A picture has the rows that were printed, if these are JSON. */
static sw_status print_rows(const struct run *run, const struct sw_engine_options *o)
{
    char *out = NULL;
    sw_status st = text_of_rows(run, o, run->json, &out);
    printf("%s", out ? out : "");
    if (st >= 0 && run->picture && !run->json) {
        sw_text_free(out);
        out = NULL;
        st = text_of_rows(run, o, true, &out);
    }
    st = st < 0 || !run->picture ? st : write_picture(run, out);
    sw_text_free(out);
    return st;
}

static sw_status draw_cluster(const struct run *run, const struct sw_engine_options *o)
{
    struct sw_plan_cluster on = run->on;
    char *json = NULL;
    on.json = true;
    sw_status st = sw_plan_cluster_text(o, &on, &json);
    st = st < 0 ? st : write_picture(run, json);
    sw_text_free(json);
    return st;
}

/* The fastest plans, or the most layers. */
static sw_status print_search(const struct run *run, const struct sw_engine_options *o)
{
    const struct sw_plan_search wanted = {.cluster = run->on.name,
                                          .nodes = run->on.nodes,
                                          .ranks = run->on.ranks,
                                          .tokens = run->scale.tokens,
                                          .price = run->scale.price,
                                          .json = run->json};
    char *out = NULL;
    const sw_status st = run->search ? sw_plan_search_text(o, &wanted, &out)
                                     : sw_plan_largest_text(o, &run->on, &out);
    printf("%s", out ? out : "");
    sw_text_free(out);
    return st;
}

/* Chooses the mesh first if it is "auto", so that all plans have the same. Rows have their own. */
static int show(const struct command *command, const struct run *run)
{
    sw_train_setup *setup = NULL;
    struct sw_engine_options options;
    char *edit = NULL, *choice = NULL;
    const char **sets = NULL;
    int status = CLI_DONE;
    sw_status st = sw_train_setup_open(&run->train.o, &setup);
    if (st >= 0) {
        engine_options(run, setup, &options);
    }
    const bool searches = run->search || run->largest;
    if (st >= 0 && !run->has_rows && !searches) {
        st = sw_plan_mesh_choice(&options, (int)ranks_of(run), run->json, &edit, &choice);
    }
    if (st >= 0 && edit && !add_edit(&options, edit, &sets)) {
        status = cli_fail(command, CLI_FAILED, "out of memory");
    } else {
        st = st < 0          ? st
             : searches      ? print_search(run, &options)
             : run->has_rows ? print_rows(run, &options)
                             : print_plan(run, &options, choice);
        st = st < 0 || !run->picture || run->has_rows ? st : draw_cluster(run, &options);
        status = st >= 0 ? CLI_DONE : cli_error(command, CLI_REFUSED);
    }
    sw_train_setup_close(setup);
    sw_text_free(edit);
    sw_text_free(choice);
    free(sets);
    return status;
}

/* Makes the table of flags: those of a training, some with another help text, and this command's
 * own. */
static int make_table(struct run *run, struct flag *out)
{
    const struct flag own[OWN_FLAGS] = {
        CLI_HEADING("The plan"),
        {"--vocab", FLAG_INT, &run->vocab, "V", "vocabulary size of a preset", 0},
        {"--batch", FLAG_INT, &run->batch, "B",
         "same as --batch-size (default: 8 without --deepspeed)", 0},
        {"--eval", FLAG_BOOL, &run->want_eval, NULL, "plan validation too", 0},
        {"--generate", FLAG_INT, &run->generate_tokens, "N", "plan generation of N tokens too", 0},
        {"--no-update", FLAG_BOOL, &run->no_optimizer, NULL, "plan the forward pass only", 0},
        {"--stage", FLAG_INT, &run->stage, "S", "ZeRO stage, instead of the configuration's", 0},
        {"--on", FLAG_TEXT, &run->on.name, "CLUSTER",
         "plan for a cluster that need not be there, by name or file: see docs/clusters.md", 0},
        {"--nodes", FLAG_TEXT, &run->nodes, "N|A:B",
         "nodes of --on (default: as many as --ranks needs, or 1); A:B: a row for each number", 0},
        {"--tokens", FLAG_REAL, &run->scale.tokens, "T",
         "tokens to train on: print the days that --nodes take", 0},
        {"--price", FLAG_REAL, &run->scale.price, "P",
         "price of a device for an hour: print what --tokens cost", 0},
        {"--search", FLAG_BOOL, &run->search, NULL,
         "find the fastest plans on --on, and say why others lose: varies the mesh, the stage, "
         "offloading, recomputation, the micro-batch, the schedule and tiles",
         0},
        {"--largest", FLAG_BOOL, &run->largest, NULL,
         "find the most layers of the model's width that fit on --on", 0},
        {"--published", FLAG_TEXT, &run->published.id, "ID",
         "compare predictions with runs that others published: a run, a group, a capacity, "
         "capacities, or all; exit status 1 if a judged one is missed",
         0},
        {"--accounting", FLAG_TEXT, &run->published.accounting, "NAME",
         "bytes and overlap that --published counts: ours, or another system's (default: that of "
         "the group)",
         0},
        {"--picture", FLAG_TEXT, &run->picture, "FILE.html",
         "draw what --on or --published predicts into a page", 0},
        {"--predict", FLAG_BOOL, &run->predict, NULL,
         "estimate a step's time; measures this machine and its disk for some seconds", 0},
        {"--schedule", FLAG_SWITCH, &run->schedule, "[FILE.svg]",
         "draw the stages of a step at --rates, or built-in ones: as text, or into a picture", 0},
        {"--summary", FLAG_BOOL, &run->brief, NULL, "leave out the instructions", 0},
        {"--diff", FLAG_LIST, &run->diff, "A B",
         "compare two files of --json instead; status 0: the same, 1: different, 2: trouble", true},
        {"--json", FLAG_BOOL, &run->json, NULL,
         "print one JSON object with the whole plan; with --summary, the figures alone", 0},
    };
    int n = cli_train_table(&run->train, out);
    for (int i = 0; i < n; i++) {
        if (strcmp(out[i].name, "--ranks") == 0) {
            out[i].help =
                "number of ranks; prints the bytes that one holds and sends, for every ZeRO stage, "
                "and those of each stage of a pipeline by axis of the mesh";
        } else if (strcmp(out[i].name, "--rates") == 0) {
            out[i].help =
                "rates assumed for --predict, instead of measured ones, and for \"auto\" in the "
                "configuration: f32, bf16, f16 (GFLOP/s), copy, memory, disk_read, disk_write, "
                "host (GB/s), comm, or node and net (GB/s between ranks of one host, of several), "
                "comm_latency (microseconds), node_ranks (ranks of a host)";
        }
    }
    for (int i = 0; i < OWN_FLAGS && own[i].name; i++) {
        out[n++] = own[i];
    }
    return n;
}

int sw_cmd_plan(int argc, char **argv)
{
    struct run run = {.batch = NOT_GIVEN, .stage = NOT_GIVEN};
    struct flag table[CLI_TRAIN_FLAGS + OWN_FLAGS];
    cli_train_init(&run.train);
    const struct command command = {
        "plan",
        "--model M [--ranks R] [--stage S] [..] | --diff A B [--json] | --published ID",
        "Prints the instructions, bytes per tier, FLOPs and the peak of a training step; with "
        "--ranks "
        "or --stage,\nwhat a rank holds and sends at ZeRO stages 0 to 3, side by side. Takes all "
        "flags of "
        "train, which\nthen holds these bytes; flags that do not affect memory change nothing.",
        table,
        make_table(&run, table),
        "--model llama-3.1-8b --ranks 8 --summary\n"
        "--model gpt2 --on dgx2-v100 --nodes 2\n"
        "--model gpt2-xl --on h100-node --nodes 1:4 --tokens 30e9 --price 2.5\n"
        "--model gpt2-xl --on h100-node --nodes 2 --search\n"
        "--model org/name --device-memory 8G --summary --predict\n"
        "--diff a.json b.json\n"
        "--published v100-512-zero-infinity-20T --picture page.html\n"};
    int status = cli_parse(&command, argc, argv, NULL);
    if (status < 0 && run.diff.n > 0) {
        status = show_difference(&command, &run, argc, argv);
    }
    if (status < 0 && run.published.id) {
        status = show_published(&command, &run, argc, argv);
    }
    status = status < 0 ? check(&command, &run) : status;
    if (status < 0 && !add_edits(&run)) {
        status = cli_fail(&command, CLI_FAILED, "out of memory");
    }
    status = status < 0 ? take_cluster(&command, &run) : status;
    status = status < 0 ? cli_train_resolve(&command, &run.train) : status;
    status = status < 0 ? show(&command, &run) : status;
    cli_train_fini(&run.train);
    cli_free_words(&run.diff);
    free(run.owned);
    free(run.device);
    return status;
}
