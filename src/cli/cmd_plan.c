// SPDX-License-Identifier: Apache-2.0
// spillway plan - what a training would run and how many bytes it takes, without taking them.
#include <stdio.h>

#include "cli/cli.h"
#include "spillway/engine.h"

int sw_cmd_plan(int argc, char **argv)
{
    struct sw_engine_options o = {.plan_only = true};
    struct words sets = {0};
    bool brief = false, json = false, no_optimizer = false;
    int64_t batch = 8, ranks = 1;
    const struct flag flags[] = {
        {"--model", FLAG_TEXT, &o.model, "DIR|FILE|PRESET", "as for train", 0},
        {"--deepspeed", FLAG_TEXT, &o.config_path, "FILE", "ds_config.json", 0},
        {"--set", FLAG_LIST, &sets, "KEY=VALUE", "edit of the configuration", 0},
        {"--seq-len", FLAG_INT, &o.seq_len, "T", "tokens of a sample (the model's context)", 0},
        {"--vocab", FLAG_INT, &o.vocab_size, "V", "vocabulary of a preset", 0},
        {"--batch", FLAG_INT, &batch, "B", "micro-batch, without --deepspeed (8)", 0},
        {"--eval", FLAG_BOOL, &o.want_eval, NULL, "plan validation too", 0},
        {"--generate", FLAG_INT, &o.generate_tokens, "N", "plan generation of N tokens too", 0},
        {"--no-update", FLAG_BOOL, &no_optimizer, NULL, "forward only", 0},
        {"--ranks", FLAG_INT, &ranks, "R", "bytes on one of R ranks, for every ZeRO stage", 0},
        {"--summary", FLAG_BOOL, &brief, NULL, "leave out the instructions", 0},
        {"--json", FLAG_BOOL, &json, NULL, "one JSON object", 0},
    };
    const struct command command = {
        "plan", "--model M [..]",
        "Prints the instructions, bytes per tier, FLOPs and the peak of a training step.", flags,
        (int)(sizeof flags / sizeof flags[0])};
    char text[256];
    int status = cli_parse(&command, argc, argv, NULL);
    if (status < 0 && (!o.model || batch < 1 || ranks < 1 || ranks > 1 << 20)) {
        status = cli_fail(&command, CLI_REFUSED,
                          "--model, --batch >= 1 and --ranks >= 1 are wanted; see --help");
    }
    if (status < 0) {
        sw_engine *engine = NULL;
        char *out = NULL;
        snprintf(text, sizeof text,
                 "{\"train_micro_batch_size_per_gpu\": %lld, \"optimizer\": {\"type\": \"AdamW\", "
                 "\"params\": {\"lr\": 0.001}}}",
                 (long long)batch);
        o.config_text = o.config_path ? NULL : text;
        o.sets = sets.items;
        o.n_sets = sets.n;
        o.no_train = no_optimizer;
        o.want_eval |= no_optimizer;
        sw_status st;
        if (ranks > 1) {
            st = sw_plan_stages_text(&o, (int)ranks, &out);
        } else {
            st = sw_initialize(&o, &engine);
            st = st < 0 ? st : sw_plan_text(engine, !brief, json, &out);
        }
        if (st >= 0) {
            printf("%s%s", out, json ? "\n" : "");
        }
        status = st >= 0 ? CLI_DONE : cli_error(&command, CLI_REFUSED);
        sw_text_free(out);
        sw_close(engine);
    }
    cli_free_words(&sets);
    return status;
}
