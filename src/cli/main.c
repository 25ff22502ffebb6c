// SPDX-License-Identifier: Apache-2.0
// spillway - the program: its table of commands.
#include <errno.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "spillway/engine.h"
#include "spillway/progress.h"
#include "spillway/status.h"

static int print_completion(int argc, char **argv);

static const struct {
    const char *subject; /* heading of this command and those below it; NULL: the one above */
    const char *name;
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
    {"Train and use models", "train", sw_cmd_train,
     "train or fine-tune a model on text or token shards"},
    {NULL, "generate", sw_cmd_generate, "generate text from a prompt, or chat"},
    {NULL, "eval", sw_cmd_eval, "measure the loss and metrics of a model on data"},
    {NULL, "embed", sw_cmd_embed, "compute vectors of texts with an encoder"},
    {NULL, "export", sw_cmd_export, "write a checkpoint as a Hugging Face folder"},
    {NULL, "launch", sw_cmd_launch, "start a program on this machine or on hosts, once per slot"},
    {"Before a training", "plan", sw_cmd_plan,
     "show what a training would run and how many bytes it takes"},
    {NULL, "estimate", sw_cmd_estimate,
     "evaluate DeepSpeed's memory formulas for a model or a number of parameters"},
    {NULL, "config", sw_cmd_config, "read, explain and print a ds_config.json"},
    {NULL, "tokenize", sw_cmd_tokenize, "convert lines of text to lines of token ids and back"},
    {NULL, "models", sw_cmd_models, "list the supported model families and the presets"},
    {"After a training", "report", sw_cmd_report,
     "write an HTML page about one training or several"},
    {NULL, "compare", sw_cmd_compare, "show where two runs or two plans differ"},
    {NULL, "checkpoint", sw_cmd_checkpoint, "list, verify and compare checkpoints"},
    {NULL, "check", sw_cmd_check, "repeat recorded runs of PyTorch and DeepSpeed and compare"},
    {"This machine", "doctor", sw_cmd_doctor, "show what this machine and this build can do"},
    {NULL, "io", sw_cmd_io, "benchmark, tune and verify disks"},
    {NULL, "completion", print_completion, "print a completion script for bash, zsh or fish"},
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static void print_help(FILE *to)
{
    fputs("usage: spillway COMMAND [..]\n\nexamples:\n"
          "    spillway train --model gpt2-tiny --data book.txt --output run --steps 500\n"
          "    spillway plan --model llama-3.1-8b --device-memory 8G --summary\n"
          "    spillway generate --model run/model --prompt 'Once upon a time'\n",
          to);
    for (int i = 0; i < N_COMMANDS; i++) {
        if (commands[i].subject) {
            fprintf(to, "\n%s:\n", commands[i].subject);
        }
        fprintf(to, "  %-12s %s\n", commands[i].name, commands[i].summary);
    }
    fputs("\n\"spillway COMMAND --help\" lists the options of a command.\n", to);
    cli_print_docs(to);
}

static int find(const char *name)
{
    int i = 0;
    while (i < N_COMMANDS && strcmp(commands[i].name, name) != 0) {
        i++;
    }
    return i;
}

static int refuse_command(const char *name)
{
    const char *names[N_COMMANDS];
    for (int i = 0; i < N_COMMANDS; i++) {
        names[i] = commands[i].name;
    }
    const char *nearest = sw_nearest(name, names, N_COMMANDS);
    fprintf(stderr,
            "spillway: unknown command \"%s\"%s%s; \"spillway --help\" lists the commands\n", name,
            nearest ? "; the nearest is " : "", nearest ? nearest : "");
    return CLI_REFUSED;
}

/* Has a command print itself in a form of cli_describe. */
static int describe(int i, const char *form)
{
    char name[32], word[32];
    snprintf(name, sizeof name, "%s", commands[i].name);
    snprintf(word, sizeof word, "--help=%s", form);
    char *argv[] = {name, word, NULL};
    return commands[i].run(2, argv);
}

/* ---- manual pages ---- */

static void print_page_of_all(void)
{
    printf(".TH spillway 1 \"\" \"spillway %s\" \"User Commands\"\n.SH NAME\nspillway \\- train "
           "transformer models that are larger than memory\n.SH SYNOPSIS\n.B spillway\n"
           "COMMAND [..]\n.SH COMMANDS\n",
           sw_version());
    for (int i = 0; i < N_COMMANDS; i++) {
        if (commands[i].subject) {
            printf(".SS %s\n", commands[i].subject);
        }
        printf(".TP\n\\fB%s\\fR\n", commands[i].name);
        cli_print_roff(commands[i].summary);
        printf("; see\n.BR spillway\\-%s (1)\n", commands[i].name);
    }
}

/* Prints the manual page of the program if `what` is NULL, else of that command. */
static int print_page(const char *what)
{
    const int i = what ? find(what) : 0;
    if (!what) {
        print_page_of_all();
    } else if (i == N_COMMANDS) {
        return refuse_command(what);
    } else {
        printf(".TH spillway\\-%s 1 \"\" \"spillway %s\" \"User Commands\"\n.SH NAME\n"
               "spillway\\-%s \\- ",
               what, sw_version(), what);
        cli_print_roff(commands[i].summary);
        putchar('\n');
        describe(i, "man");
    }
    fputs(".SH EXIT STATUS\n0: success. 1: failure while running. 2: refused before anything was "
          "done; the line on standard error says why.\n",
          stdout);
    fputs(".SH FILES\nThe pages of docs/ that options refer to are installed in "
          "share/doc/spillway/docs.\n",
          stdout);
    if (what) {
        fputs(".SH SEE ALSO\n.BR spillway (1)\n", stdout);
    }
    return CLI_DONE;
}

/* ---- completion ---- */

static void print_names(const char *between)
{
    for (int i = 0; i < N_COMMANDS; i++) {
        printf("%s%s", i ? between : "", commands[i].name);
    }
}

static void describe_all(const char *shell)
{
    for (int i = 0; i < N_COMMANDS; i++) {
        describe(i, shell);
    }
}

static void print_bash(void)
{
    fputs("# bash completion for spillway, printed by `spillway completion bash`\n"
          "_spillway() {\n"
          "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
          "    local flags= values=\n"
          "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
          "        mapfile -t COMPREPLY < <(compgen -W \"help ",
          stdout);
    print_names(" ");
    fputs("\" -- \"$word\")\n"
          "        return\n"
          "    fi\n"
          "    case ${COMP_WORDS[1]} in\n"
          "    help) values=\"",
          stdout);
    print_names(" ");
    fputs("\" ;;\n", stdout);
    describe_all("bash");
    fputs("    *) ;;\n    esac\n"
          "    if [ -n \"$values\" ]; then\n"
          "        mapfile -t COMPREPLY < <(compgen -W \"$values\" -- \"$word\")\n"
          "    elif [[ $word == -* ]]; then\n"
          "        mapfile -t COMPREPLY < <(compgen -W \"$flags\" -- \"$word\")\n"
          "    else\n"
          "        mapfile -t COMPREPLY < <(compgen -f -- \"$word\")\n"
          "    fi\n"
          "}\n"
          "complete -o filenames -o bashdefault -F _spillway spillway\n",
          stdout);
}

static void print_zsh(void)
{
    fputs("#compdef spillway\n# zsh completion for spillway, printed by `spillway completion zsh`\n"
          "_spillway() {\n"
          "    local -a commands=(\n",
          stdout);
    for (int i = 0; i < N_COMMANDS; i++) {
        printf("        '%s:", commands[i].name);
        cli_print_quoted(commands[i].summary, ":\\", "'\\''");
        fputs("'\n", stdout);
    }
    fputs("    )\n"
          "    if ((CURRENT == 2)); then\n"
          "        _describe command commands\n"
          "        return\n"
          "    fi\n"
          "    shift words\n"
          "    ((CURRENT--))\n"
          "    case $words[1] in\n"
          "    help) _describe command commands ;;\n",
          stdout);
    describe_all("zsh");
    fputs("    esac\n"
          "}\n"
          "if [[ $funcstack[1] == _spillway ]]; then\n"
          "    _spillway \"$@\"\n"
          "else\n"
          "    compdef _spillway spillway\n"
          "fi\n",
          stdout);
}

static void print_fish(void)
{
    fputs("# fish completion for spillway, printed by `spillway completion fish`\n", stdout);
    for (int i = 0; i < N_COMMANDS; i++) {
        printf("complete -c spillway -f -n __fish_use_subcommand -a %s -d '", commands[i].name);
        cli_print_quoted(commands[i].summary, "\\", "\\'");
        fputs("'\n", stdout);
    }
    describe_all("fish");
}

static int print_completion(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*print)(void);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    const struct command command = {
        "completion",
        "bash|zsh|fish",
        "Prints a script that makes a shell complete commands, options and files, for example\n"
        "    source <(spillway completion bash)",
        NULL,
        0,
        "bash\n"
        "zsh\n"
        "fish\n"};
    struct words words = {0};
    int status = cli_parse(&command, argc, argv, &words);
    for (size_t i = 0; i < sizeof shells / sizeof shells[0] && status < 0; i++) {
        if (words.n == 1 && strcmp(words.items[0], shells[i].name) == 0) {
            shells[i].print();
            status = CLI_DONE;
        }
    }
    cli_free_words(&words);
    return status < 0 ? cli_fail(&command, CLI_REFUSED, "wanted one shell: bash, zsh or fish")
                      : status;
}

/* ---- models of the hub ---- */

/* The flag with a model as its value that a word is or begins with; NULL if there is none. */
static const char *model_flag(const char *word)
{
    static const char *const flags[] = {"--model", "--adapter", "--tokenizer"};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        const size_t len = strlen(flags[i]);
        if (strncmp(word, flags[i], len) == 0 && (word[len] == '\0' || word[len] == '=')) {
            return flags[i];
        }
    }
    return NULL;
}

/* Writes "FLAG=PATH" to *owned: a flag and its value become one word. */
static sw_status put_found(const char *flag, const char *value, char **owned)
{
    char *path = NULL;
    const sw_status st = sw_model_find(value, &path);
    if (st < 0) {
        return st;
    }
    const size_t size = strlen(flag) + strlen(path) + 2;
    *owned = malloc(size);
    if (*owned) {
        snprintf(*owned, size, "%s=%s", flag, path);
    }
    sw_text_free(path);
    return *owned ? SW_OK : SW_E_NOMEM;
}

/*
 * find_models - replaces models of the hub, in the words of a command, by their paths in the local
 * cache.
 *
 * argv, owned  [argc + 1]; owned: the new words, which the caller frees
 */
static sw_status find_models(int *argc, char **argv, char **owned)
{
    int n = 1;
    for (int i = 1; i < *argc; i++) {
        const char *flag = model_flag(argv[i]), *value = NULL;
        if (flag && argv[i][strlen(flag)] == '=') {
            value = argv[i] + strlen(flag) + 1;
        } else if (flag && i + 1 < *argc) {
            value = argv[++i];
        }
        if (value) {
            const sw_status st = put_found(flag, value, &owned[n]);
            if (st < 0) {
                return st;
            }
        }
        argv[n] = value ? owned[n] : argv[i];
        n++;
    }
    argv[n] = NULL;
    *argc = n;
    return SW_OK;
}

/* ---- running ---- */

static int run_command(int i, int argc, char **argv)
{
    const struct command command = {.name = commands[i].name};
    const int n = argc;
    if (commands[i].run == sw_cmd_launch) { /* its words belong to another program */
        return commands[i].run(argc, argv);
    }
    char **owned = calloc((size_t)n + 1, sizeof *owned);
    int status = owned ? CLI_DONE : cli_fail(&command, CLI_FAILED, "out of memory");
    if (status == CLI_DONE && find_models(&argc, argv, owned) < 0) {
        status = cli_error(&command, CLI_REFUSED);
    }
    if (status == CLI_DONE) {
        struct sw_work_bar *bar = sw_work_show(stderr);
        status = commands[i].run(argc, argv);
        sw_work_hide(bar);
    }
    for (int k = 0; owned && k <= n; k++) {
        free(owned[k]);
    }
    free(owned);
    return status;
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
        if (strcmp(argv[2], "--man") == 0) { /* a manual page of one command, or of the program */
            return print_page(argc > 3 ? argv[3] : NULL);
        }
        name = argv[2];
        argv[2] = "--help";
    }
    const int i = find(name);
    if (i == N_COMMANDS) {
        return refuse_command(name);
    }
    return run_command(i, argc - 1, argv + 1);
}

/* Fails the command if its output did not arrive: a full disk may only show when the last bytes are
 * flushed. A closed standard output is no error if nothing was written. */
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
