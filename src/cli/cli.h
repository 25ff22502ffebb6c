// SPDX-License-Identifier: Apache-2.0
// cli - shared by all commands: tables of flags (parsing and help from one place), exit statuses,
// errors. A command includes only public headers.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum cli_exit {
    CLI_DONE = 0,
    CLI_FAILED = 1, /* failed while running */
    CLI_REFUSED = 2 /* refused before the start: usage, configuration, does not fit */
};

/* SWITCH: the value is "true" or the text after =; if the flag has an `arg`, it may also be the
 * next word. HEADING: no flag; `name` is the subject of the flags below it. */
enum flag_type { FLAG_BOOL, FLAG_INT, FLAG_REAL, FLAG_TEXT, FLAG_LIST, FLAG_SWITCH, FLAG_HEADING };

/* Words given for a FLAG_LIST, or the positional words. */
struct words {
    const char **items; /* [n] borrowed from argv */
    int n;
};

struct flag {
    const char *name; /* "--steps" */
    enum flag_type type;
    void *to;        /* bool, int64_t, double, const char *, struct words, const char * */
    const char *arg; /* name of the value in the help: "N"; NULL for FLAG_BOOL, SWITCH */
    const char *help;
    bool many; /* LIST: takes all words up to the next flag */
};

struct command {
    const char *name, *usage, *summary; /* usage: the text after "spillway NAME " */
    const struct flag *flags;
    int n_flags;
    const char *examples; /* command lines; each ends with a line feed */
};
/* A table of flags and its length, for a command. */
#define CLI_FLAGS(flags) (flags), (int)(sizeof(flags) / sizeof((flags)[0]))
/* A heading in a table of flags: the subject of the flags below it. */
#define CLI_HEADING(subject)                                                                       \
    {                                                                                              \
        subject, FLAG_HEADING, NULL, NULL, NULL, false                                             \
    }

/*
 * cli_parse - parses a command line into the targets of its flags.
 *
 * positional   words that are not flags; freed with cli_free_words. NULL: such words are refused
 *
 * Returns -1 to go on, else the exit status: help was printed (0), or a word was refused (2).
 */
int cli_parse(const struct command *command, int argc, char **argv, struct words *positional);
/* Like cli_parse, for a command that starts a program. The program's words begin after "--" or at
 * the first word that is no flag. Flags may be one letter, and may use _ as in DeepSpeed's
 * launcher. */
int cli_parse_program(const struct command *command, int argc, char **argv, struct words *program);
void cli_free_words(struct words *words);

/* Prints the command in the form that `word` asks for. --help and -h print text; --help=man prints
 * the command's part of the manual page. --help=bash, --help=zsh and --help=fish print its part of
 * a completion script. Returns false for another word. */
bool cli_describe(const struct command *command, const char *word);
/* Prints a line with the folder of docs/, if the program finds it. */
void cli_print_docs(FILE *to);
/* Print text for a manual page, or in single quotes for a script. In a script, characters in
 * `escaped` get a backslash, and a quote becomes `quote`. */
void cli_print_roff(const char *text);
void cli_print_quoted(const char *text, const char *escaped, const char *quote);

/* Prints "spillway NAME: message" to stderr and returns `status`. On a terminal a message longer
 * than a line is laid out (refusal.c). */
int cli_fail(const struct command *command, int status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Like cli_fail, with the library's last message. */
int cli_error(const struct command *command, int status);
void cli_print_message(FILE *to, const char *name, const char *message);

/* The --device flag of every command that computes: an edit of spillway.device. */
enum { CLI_DEVICE_CAP = 64 };
struct cli_device {
    const char *name; /* NULL: the flag was not given */
    char *edit;       /* owned by the command: free */
};
#define CLI_DEVICE_FLAG(to)                                                                        \
    {                                                                                              \
        "--device", FLAG_TEXT, &(to), "cpu|cuda|hip|auto",                                         \
            "device that computes, or one of several GPUs as cuda:1 (default: auto, a GPU "        \
            "if there is one)",                                                                    \
            0                                                                                      \
    }
/* Writes the value of that edit to text [CLI_DEVICE_CAP]; NULL if the flag was not given. */
const char *cli_device_value(const char *device, char *text);
/* Appends the edit for the flag, if it was given. False: out of memory. */
bool cli_add_device(struct words *sets, struct cli_device *device);
/* Appends the edit "key=value" for a flag that stands for a configuration key. The caller frees
 * *owned. False: out of memory. */
bool cli_add_set(struct words *sets, char **owned, const char *key, const char *value);
/* Moves the last word before all others. */
void cli_move_first(struct words *words);

/* The entry points of the commands: argv[0] is the command's name. */
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
