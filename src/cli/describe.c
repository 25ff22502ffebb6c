// SPDX-License-Identifier: Apache-2.0
// Describes a command's table of flags: as --help text, in a manual page, and as shell completion.
// main.c prints the frame of pages and scripts; this file prints one command's part.
#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/cli.h"

/* ---- text ---- */

/* Finds docs/: beside bin/ in the wheel, beside the build folder in the source tree, or in the
 * installed share/doc. */
void cli_print_docs(FILE *to)
{
    static const char *const places[] = {"..", "../share/doc/spillway"};
    char program[PATH_MAX];
    const ssize_t len = readlink("/proc/self/exe", program, sizeof program - 1);
    char *slash = len > 0 ? memrchr(program, '/', (size_t)len) : NULL;
    if (!slash) {
        return;
    }
    *slash = '\0';
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char page[2 * PATH_MAX], *docs;
        snprintf(page, sizeof page, "%s/%s/%s", program, places[i], "docs/index.md");
        docs = realpath(page, NULL);
        if (docs) {
            fprintf(to, "\nThe pages of docs/ are in %.*s.\n",
                    (int)(strlen(docs) - strlen("/index.md")), docs);
            free(docs);
            return;
        }
    }
}

static void print_text(const struct command *command)
{
    printf("usage: spillway %s %s\n\n%s\n\nexamples:\n", command->name, command->usage,
           command->summary);
    for (const char *line = command->examples; *line;) {
        const int len = (int)strcspn(line, "\n");
        printf("    spillway %s%s%.*s\n", command->name, len ? " " : "", len, line);
        line += len + (line[len] == '\n');
    }
    fputs(command->n_flags > 0 && command->flags[0].type == FLAG_HEADING ? "\n" : "\nOptions:\n",
          stdout);
    for (int i = 0; i < command->n_flags; i++) {
        const struct flag *flag = &command->flags[i];
        if (flag->type == FLAG_HEADING) {
            printf("%s%s:\n", i ? "\n" : "", flag->name);
            continue;
        }
        char left[64];
        snprintf(left, sizeof left, "%s %s%s", flag->name, flag->arg ? flag->arg : "",
                 flag->many ? ".." : "");
        printf("  %-26s %s\n", left, flag->help);
    }
    printf("  %-26s %s\n", "--help", "print this text");
    cli_print_docs(stdout);
}

/* ---- a manual page ---- */

void cli_print_roff(const char *text)
{
    if (*text == '.' || *text == '\'') {
        fputs("\\&", stdout); /* not a roff request */
    }
    for (; *text; text++) {
        if (*text == '\\') {
            fputs("\\e", stdout);
        } else if (*text == '-') {
            fputs("\\-", stdout); /* a minus that can be copied to a shell */
        } else {
            putchar(*text);
            if (*text == '\n' && (text[1] == '.' || text[1] == '\'')) {
                fputs("\\&", stdout);
            }
        }
    }
}

static void print_option(const char *name, const char *arg, bool many, const char *help)
{
    fputs(".TP\n\\fB", stdout);
    cli_print_roff(name);
    fputs("\\fR", stdout);
    if (arg) {
        fputs(" \\fI", stdout);
        cli_print_roff(arg);
        fputs(many ? "\\fR ..\n" : "\\fR\n", stdout);
    } else {
        putchar('\n');
    }
    cli_print_roff(help);
    putchar('\n');
}

static void print_man(const struct command *command)
{
    fputs(".SH SYNOPSIS\n.B spillway ", stdout);
    cli_print_roff(command->name);
    putchar('\n');
    cli_print_roff(command->usage);
    fputs("\n.SH DESCRIPTION\n", stdout);
    cli_print_roff(command->summary);
    fputs("\n.SH EXAMPLES\n.nf\n", stdout);
    for (const char *line = command->examples; *line;) {
        char text[256];
        const int len = (int)strcspn(line, "\n");
        snprintf(text, sizeof text, "spillway %s%s%.*s\n", command->name, len ? " " : "", len,
                 line);
        cli_print_roff(text);
        line += len + (line[len] == '\n');
    }
    fputs(".fi\n.SH OPTIONS\n", stdout);
    for (int i = 0; i < command->n_flags; i++) {
        const struct flag *flag = &command->flags[i];
        if (flag->type == FLAG_HEADING) {
            printf(".SS %s\n", flag->name);
        } else {
            print_option(flag->name, flag->arg, flag->many, flag->help);
        }
    }
    print_option("--help", NULL, false, "print this as text");
}

/* ---- completion ---- */

/* Does the flag's `arg` list the possible words, as "cpu|cuda|hip|auto"? Capitals only name the
 * kind of value. */
static bool has_choices(const struct flag *flag)
{
    bool any = false;
    for (const char *c = flag->arg ? flag->arg : ""; *c; c++) {
        if (isupper((unsigned char)*c)) {
            return false;
        }
        any |= *c == '|';
    }
    return any;
}

static void print_choices(const struct flag *flag)
{
    for (const char *c = flag->arg; *c; c++) {
        putchar(*c == '|' ? ' ' : *c);
    }
}

void cli_print_quoted(const char *text, const char *escaped, const char *quote)
{
    for (; *text; text++) {
        if (*text == '\'') {
            fputs(quote, stdout);
        } else {
            if (strchr(escaped, *text)) {
                putchar('\\');
            }
            putchar(*text == '\n' ? ' ' : *text);
        }
    }
}

static void print_bash(const struct command *command)
{
    printf("    %s)\n        flags=\"", command->name);
    for (int i = 0; i < command->n_flags; i++) {
        if (command->flags[i].type != FLAG_HEADING) {
            printf("%s ", command->flags[i].name);
        }
    }
    fputs("--help\"\n        case $before in\n", stdout);
    for (int i = 0; i < command->n_flags; i++) {
        if (has_choices(&command->flags[i])) {
            printf("        %s) values=\"", command->flags[i].name);
            print_choices(&command->flags[i]);
            fputs("\" ;;\n", stdout);
        }
    }
    fputs("        *) ;;\n        esac\n        ;;\n", stdout);
}

static void print_zsh(const struct command *command)
{
    printf("    %s)\n        _arguments \\\n", command->name);
    for (int i = 0; i < command->n_flags; i++) {
        const struct flag *flag = &command->flags[i];
        if (flag->type == FLAG_HEADING) {
            continue;
        }
        printf("            '%s%s[", flag->type == FLAG_LIST ? "*" : "", flag->name);
        cli_print_quoted(flag->help, "[]\\", "'\\''");
        putchar(']');
        if (flag->arg) {
            fputs(flag->type == FLAG_SWITCH ? "::" : ":", stdout);
            cli_print_quoted(flag->arg, ":\\", "'\\''");
            if (has_choices(flag)) {
                fputs(":(", stdout);
                print_choices(flag);
                putchar(')');
            } else {
                fputs(":_files", stdout);
            }
        }
        fputs("' \\\n", stdout);
    }
    fputs("            '--help[print this text]' \\\n            '*:file:_files'\n        ;;\n",
          stdout);
}

static void print_fish(const struct command *command)
{
    for (int i = 0; i < command->n_flags; i++) {
        const struct flag *flag = &command->flags[i];
        if (flag->type == FLAG_HEADING) {
            continue;
        }
        const bool is_long = flag->name[1] == '-';
        printf("complete -c spillway -n '__fish_seen_subcommand_from %s' -%c %s", command->name,
               is_long ? 'l' : 's', flag->name + (is_long ? 2 : 1));
        if (has_choices(flag)) {
            fputs(" -x -a '", stdout);
            print_choices(flag);
            putchar('\'');
        } else if (flag->arg && flag->type != FLAG_SWITCH) {
            fputs(" -r", stdout);
        }
        fputs(" -d '", stdout);
        cli_print_quoted(flag->help, "\\", "\\'");
        fputs("'\n", stdout);
    }
}

/* ---- the forms ---- */

bool cli_describe(const struct command *command, const char *word)
{
    static const struct {
        const char *word;
        void (*print)(const struct command *command);
    } forms[] = {{"-h", print_text},        {"--help", print_text},
                 {"--help=man", print_man}, {"--help=bash", print_bash},
                 {"--help=zsh", print_zsh}, {"--help=fish", print_fish}};
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        if (strcmp(word, forms[i].word) == 0) {
            forms[i].print(command);
            return true;
        }
    }
    return false;
}
