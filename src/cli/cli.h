// SPDX-License-Identifier: Apache-2.0
// cli - what the commands share: flags as a table (parsing and help from one place), exit statuses,
// errors. A command sees the public headers only.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum cli_exit {
    CLI_DONE = 0,
    CLI_FAILED = 1, /* while running */
    CLI_REFUSED = 2 /* before it started: usage, configuration, does not fit */
};

/* SWITCH: "true", or what follows =. HEADING: no flag; `name` is the subject of those below it. */
enum flag_type { FLAG_BOOL, FLAG_INT, FLAG_REAL, FLAG_TEXT, FLAG_LIST, FLAG_SWITCH, FLAG_HEADING };

/* Words given for a FLAG_LIST, or the words that are no flags. */
struct words {
    const char **items; /* [n] borrowed from argv */
    int n;
};

struct flag {
    const char *name; /* "--steps" */
    enum flag_type type;
    void *to;        /* bool, int64_t, double, const char *, struct words, const char * */
    const char *arg; /* what the help calls the value: "N"; NULL for FLAG_BOOL, SWITCH */
    const char *help;
    bool many; /* LIST: takes all words up to the next flag */
};

struct command {
    const char *name, *usage, *summary; /* usage: what follows "spillway NAME " */
    const struct flag *flags;
    int n_flags;
    const char *examples; /* command lines, each ends with a line feed */
};
/* A row of a table of flags: the subject of the rows below it. */
#define CLI_HEADING(subject)                                                                       \
    {                                                                                              \
        subject, FLAG_HEADING, NULL, NULL, NULL, false                                             \
    }

/*
 * cli_parse - words of a command line into the targets of its flags.
 *
 * positional   words that are no flags; items are freed with cli_free_words. NULL: none are allowed
 *
 * Returns -1 to go on, else the exit status: help was printed (0), or a word was refused (2).
 */
int cli_parse(const struct command *command, int argc, char **argv, struct words *positional);
/* The same for a command that starts a program: its words are all from "--", or from the first one
 * that is no flag, on. Flags may be one letter, and be written with _ as in DeepSpeed's
 * launcher. */
int cli_parse_program(const struct command *command, int argc, char **argv, struct words *program);
void cli_free_words(struct words *words);

/* Prints the command as `word` asks for: --help or -h as text, --help=man, --help=bash, --help=zsh
 * or --help=fish what it puts into a manual page or a script of completion. false: another word. */
bool cli_describe(const struct command *command, const char *word);
/* A line with the folder of docs/, where the program finds it. */
void cli_print_docs(FILE *to);
/* Text in a manual page; and in single quotes of a script, where characters in `escaped` get a
 * backslash, and a quote becomes `quote`. */
void cli_print_roff(const char *text);
void cli_print_quoted(const char *text, const char *escaped, const char *quote);

/* "spillway NAME: message" on stderr; returns `status`. On a terminal a message that is longer than
 * a line is laid out (refusal.c). */
int cli_fail(const struct command *command, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The same with the library's last message. */
int cli_error(const struct command *command, int status);
void cli_print_message(FILE *to, const char *name, const char *message);

/* Appends "key=value" to a list of --set edits from a flag that stands for a configuration key. */
/* --device, of every command that computes: an edit of spillway.device. */
enum { CLI_DEVICE_CAP = 64 };
#define CLI_DEVICE_FLAG(to)                                                                        \
    {                                                                                              \
        "--device", FLAG_TEXT, &(to), "cpu|cuda|hip|auto",                                         \
            "what computes, or one of several GPUs as cuda:1 (auto: a GPU if there is one)", 0     \
    }
/* The value of that edit in text [CLI_DEVICE_CAP]; NULL where the flag was not given. */
const char *cli_device_value(const char *device, char *text);
/* The edit itself, likewise; false: out of memory. *owned is the caller's to free. */
bool cli_add_device(struct words *sets, char **owned, const char *device);
bool cli_add_set(struct words *sets, char **owned, const char *key, const char *value);

/* The commands: argv[0] is the command's name. */
int sw_cmd_train(int argc, char **argv);
int sw_cmd_generate(int argc, char **argv);
int sw_cmd_eval(int argc, char **argv);
int sw_cmd_embed(int argc, char **argv);
int sw_cmd_plan(int argc, char **argv);
int sw_cmd_estimate(int argc, char **argv);
int sw_cmd_check(int argc, char **argv);
int sw_cmd_report(int argc, char **argv);
int sw_cmd_compare(int argc, char **argv);
int sw_cmd_config(int argc, char **argv);
int sw_cmd_launch(int argc, char **argv);
int sw_cmd_tokenize(int argc, char **argv);
int sw_cmd_checkpoint(int argc, char **argv);
int sw_cmd_export(int argc, char **argv);
int sw_cmd_io(int argc, char **argv);
int sw_cmd_models(int argc, char **argv);
int sw_cmd_doctor(int argc, char **argv);
