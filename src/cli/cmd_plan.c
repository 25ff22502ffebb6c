// SPDX-License-Identifier: Apache-2.0
// spillway plan - what a training would run and how many bytes it takes, without taking them.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "spillway/engine.h"

struct run {
    struct sw_engine_options options;
    struct words sets, rates;
    bool brief, json, no_optimizer, predict;
    int64_t batch, ranks, stage; /* stage -1: the configuration's */
};

static int check(const struct command *command, const struct run *run)
{
    if (!run->options.model || run->batch < 1 || run->ranks < 1 || run->ranks > 1 << 20) {
        return cli_fail(command, CLI_REFUSED,
                        "--model, --batch >= 1 and --ranks >= 1 are wanted; see --help");
    }
    if (run->stage < -1 || run->stage > 3) {
        return cli_fail(command, CLI_REFUSED, "--stage is 0, 1, 2 or 3");
    }
    return -1;
}

static int show(const struct command *command, struct run *run)
{
    struct sw_engine_options *o = &run->options;
    char text[256];
    char *out = NULL, *prediction = NULL;
    sw_engine *engine = NULL;
    snprintf(text, sizeof text,
             "{\"train_micro_batch_size_per_gpu\": %lld, \"optimizer\": {\"type\": \"AdamW\", "
             "\"params\": {\"lr\": 0.001}}}",
             (long long)run->batch);
    o->config_text = o->config_path ? NULL : text;
    o->sets = run->sets.items;
    o->n_sets = run->sets.n;
    o->no_train = run->no_optimizer;
    o->want_eval |= run->no_optimizer;
    sw_status st;
    if (run->ranks > 1 || run->stage >= 0) {
        st = sw_plan_stages_text(o, (int)run->ranks, run->json, &out);
    } else {
        st = sw_initialize(o, &engine);
        st = st < 0 ? st : sw_plan_text(engine, !run->brief, run->json, &out);
    }
    if (st >= 0 && (run->predict || run->rates.n > 0)) {
        const struct sw_predict_options predict = {.rates = run->rates.items,
                                                   .n_rates = run->rates.n,
                                                   .measure = run->predict,
                                                   .ranks = (int)run->ranks,
                                                   .json = run->json};
        st = sw_plan_predict_text(o, &predict, &prediction);
    }
    if (st >= 0 && run->json && prediction) { /* one object: before its closing brace */
        printf("%.*s,\"prediction\":%s}\n", (int)strlen(out) - 1, out, prediction);
    } else if (st >= 0) {
        printf("%s%s", out, run->json ? "\n" : prediction ? prediction : "");
    }
    sw_text_free(out);
    sw_text_free(prediction);
    sw_close(engine);
    return st >= 0 ? CLI_DONE : cli_error(command, CLI_REFUSED);
}

int sw_cmd_plan(int argc, char **argv)
{
    struct run run = {.options = {.plan_only = true}, .batch = 8, .ranks = 1, .stage = -1};
    struct sw_engine_options *o = &run.options;
    const char *budgets[3] = {NULL};
    const struct flag flags[] = {
        {"--model", FLAG_TEXT, &o->model, "DIR|FILE|PRESET",
         "as for train; a folder may lack its weights", 0},
        {"--deepspeed", FLAG_TEXT, &o->config_path, "FILE", "ds_config.json", 0},
        {"--set", FLAG_LIST, &run.sets, "KEY=VALUE", "edit of the configuration", 0},
        {"--seq-len", FLAG_INT, &o->seq_len, "T", "tokens of a sample (the model's context)", 0},
        {"--vocab", FLAG_INT, &o->vocab_size, "V", "vocabulary of a preset", 0},
        {"--device-memory", FLAG_TEXT, &budgets[0], "BYTES",
         "budget: bytes, or 300M, 2G, 1T (powers of 1024)", 0},
        {"--host-memory", FLAG_TEXT, &budgets[1], "BYTES", "budget, likewise", 0},
        {"--nvme-space", FLAG_TEXT, &budgets[2], "BYTES", "budget, likewise", 0},
        {"--batch", FLAG_INT, &run.batch, "B", "micro-batch, without --deepspeed (8)", 0},
        {"--eval", FLAG_BOOL, &o->want_eval, NULL, "plan validation too", 0},
        {"--generate", FLAG_INT, &o->generate_tokens, "N", "plan generation of N tokens too", 0},
        {"--no-update", FLAG_BOOL, &run.no_optimizer, NULL, "forward only", 0},
        {"--ranks", FLAG_INT, &run.ranks, "R",
         "bytes held and sent by one of R ranks, for every ZeRO stage", 0},
        {"--stage", FLAG_INT, &run.stage, "S", "ZeRO stage, instead of the configuration's", 0},
        {"--predict", FLAG_BOOL, &run.predict, NULL,
         "estimate a step's time; measures this machine and its disk for some seconds", 0},
        {"--rates", FLAG_LIST, &run.rates, "NAME=N",
         "for that, instead of measuring: f32, bf16, f16 (GFLOP/s), copy, disk_read, disk_write, comm "
         "(GB/s)",
         true},
        {"--summary", FLAG_BOOL, &run.brief, NULL, "leave out the instructions", 0},
        {"--json", FLAG_BOOL, &run.json, NULL, "one JSON object", 0},
    };
    const struct command command = {
        "plan", "--model M [--ranks R] [--stage S] [..]",
        "Prints the instructions, bytes per tier, FLOPs and the peak of a training step; with --ranks "
        "or --stage,\nwhat a rank holds and sends at ZeRO stages 0 to 3, side by side.",
        flags, (int)(sizeof flags / sizeof flags[0])};
    static const char *const keys[3] = {"spillway.device_memory?", "spillway.host_memory?",
                                        "spillway.nvme_space?"};
    char digit[] = "0", *edit = NULL, *owned[3] = {NULL};
    int status = cli_parse(&command, argc, argv, NULL);
    status = status < 0 ? check(&command, &run) : status;
    if (status < 0 && run.stage >= 0) {
        digit[0] = (char)('0' + run.stage);
        status = cli_add_set(&run.sets, &edit, "zero_optimization.stage", digit)
                     ? -1
                     : cli_fail(&command, CLI_FAILED, "out of memory");
    }
    for (int i = 0; i < 3 && status < 0; i++) {
        if (budgets[i] && !cli_add_set(&run.sets, &owned[i], keys[i], budgets[i])) {
            status = cli_fail(&command, CLI_FAILED, "out of memory");
        }
    }
    status = status < 0 ? show(&command, &run) : status;
    cli_free_words(&run.sets);
    cli_free_words(&run.rates);
    free(edit);
    for (int i = 0; i < 3; i++) {
        free(owned[i]);
    }
    return status;
}
