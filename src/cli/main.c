// SPDX-License-Identifier: Apache-2.0
// spillway - the program: a table of commands.
#include <errno.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <string.h>

#include "cli/cli.h"
#include "spillway/progress.h"
#include "spillway/status.h"

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"train", sw_cmd_train, "train or fine-tune a model on text or token shards"},
    {"generate", sw_cmd_generate, "continue a prompt"},
    {"eval", sw_cmd_eval, "loss and perplexity of a model on text"},
    {"embed", sw_cmd_embed, "vectors of texts, by an encoder"},
    {"launch", sw_cmd_launch, "start a program on this machine or on hosts, once a slot"},
    {"plan", sw_cmd_plan, "what a training would run and how many bytes it takes, without running"},
    {"estimate", sw_cmd_estimate,
     "DeepSpeed's memory formulas for a model or a number of parameters"},
    {"check", sw_cmd_check, "compare with recorded runs of PyTorch and DeepSpeed"},
    {"config", sw_cmd_config, "read, explain and print a ds_config.json"},
    {"tokenize", sw_cmd_tokenize, "lines of text to lines of ids and back"},
    {"checkpoint", sw_cmd_checkpoint, "list, verify and compare checkpoints"},
    {"export", sw_cmd_export, "write a checkpoint as a Hugging Face folder"},
    {"io", sw_cmd_io, "how fast the disk is, the best aio block, and whether it is right"},
    {"models", sw_cmd_models, "model families that are built, and shapes by name"},
    {"doctor", sw_cmd_doctor, "what this machine and this build can do"},
};

static void print_help(FILE *to)
{
    fputs("usage: spillway COMMAND [..]\n\n", to);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        fprintf(to, "  %-12s %s\n", commands[i].name, commands[i].summary);
    }
    fputs("\n\"spillway COMMAND --help\" has the options of a command.\n", to);
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return CLI_REFUSED;
    }
    const char *name = argv[1];
    if (strcmp(name, "--version") == 0 || strcmp(name, "version") == 0) {
        printf("spillway %s\n", sw_version());
        return CLI_DONE;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0) {
        if (argc < 3) {
            print_help(stdout);
            return CLI_DONE;
        }
        name = argv[2];
        argv[2] = "--help";
    }
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(commands[i].name, name) == 0) {
            /* programs that are started show their own */
            struct sw_work_bar *bar =
                commands[i].run == sw_cmd_launch ? NULL : sw_work_show(stderr);
            const int status = commands[i].run(argc - 1, argv + 1);
            sw_work_hide(bar);
            return status;
        }
    }
    fprintf(stderr, "spillway: no command \"%s\"; \"spillway --help\" lists them\n", name);
    return CLI_REFUSED;
}

/* What a command printed has arrived, or it has failed: a full disk shows when the last bytes leave
 * us. Nobody misses what was never written, where standard output is closed. */
static int finish(int status)
{
    const bool wrote = __fpending(stdout) != 0, failed = ferror(stdout) != 0;
    errno = 0;
    const bool closed = fclose(stdout) == 0;
    if (!failed && (closed || (errno == EBADF && !wrote))) {
        return status;
    }
    fprintf(stderr, "spillway: cannot write to standard output%s%s\n", errno ? ": " : "",
            errno ? strerror(errno) : "");
    return status == CLI_DONE ? CLI_FAILED : status;
}

int main(int argc, char **argv)
{
    return finish(run(argc, argv));
}
