// SPDX-License-Identifier: Apache-2.0
// spillway train - turns flags into a training job. The first SIGINT asks for a checkpoint and a
// stop.
#include <signal.h>
#include <stdio.h>

#include "cli/train_flags.h"

static volatile sig_atomic_t stop_asked; /* global, because a signal handler has no other access */

static void on_signal(int signal_number)
{
    if (stop_asked) { /* the second signal ends the program at once */
        signal(signal_number, SIG_DFL);
        raise(signal_number);
    }
    stop_asked = signal_number;
}

/* Reports all missing flags at once. */
static int check_wanted(const struct command *command, const struct train_flags *f)
{
    const struct {
        const char *name;
        bool missing;
    } wanted[] = {{" --model", !f->o.model},
                  {" --data", f->o.n_data < 1},
                  {" --output", !f->o.output},
                  {" --steps or --epochs", f->o.steps < 0 && f->o.epochs == 0}};
    char text[64] = "";
    size_t len = 0;
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        len += (size_t)snprintf(text + len, sizeof text - len, "%s",
                                wanted[i].missing ? wanted[i].name : "");
    }
    return len > 0
               ? cli_fail(command, CLI_REFUSED, "required options are missing:%s; see --help", text)
               : -1;
}

static int train(const struct command *command, struct train_flags *f)
{
    struct sw_train_result result;
    bool started = false;
    f->o.stop = &stop_asked;
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    const sw_status st = sw_train(&f->o, stdout, &started, &result);
    if (st == SW_E_STOP && !started) { /* a shell reports a signal as 128 + its number */
        return cli_error(command, 128 + (int)stop_asked);
    }
    return st >= 0 ? CLI_DONE : cli_error(command, started ? CLI_FAILED : CLI_REFUSED);
}

int sw_cmd_train(int argc, char **argv)
{
    struct train_flags f;
    struct flag table[CLI_TRAIN_FLAGS];
    cli_train_init(&f);
    const struct command command = {
        "train",
        "--model M --data FILE.. --output DIR --steps N | --epochs N [..]",
        "Trains or fine-tunes a model and leaves a Hugging Face folder in DIR/model.",
        table,
        cli_train_table(&f, table),
        "--model gpt2-tiny --data book.txt --output run --steps 500 --seq-len 64\n"
        "--model org/name --data chats.jsonl --output run --steps 200 --device-memory 8G\n"
        "--model model --data reviews.csv --task classify --output run --steps 300 "
        "--eval-every 50\n"};
    int status = cli_parse(&command, argc, argv, NULL);
    status = status < 0 ? cli_train_resolve(&command, &f) : status;
    status = status < 0 ? check_wanted(&command, &f) : status;
    status = status < 0 ? train(&command, &f) : status;
    cli_train_fini(&f);
    return status;
}
