// SPDX-License-Identifier: Apache-2.0
// Parses tables of flags in one loop; describe.c prints them.
#include "cli/cli.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spillway/progress.h"
#include "spillway/status.h"

enum { MOST_FLAGS = 160 };

static bool push(struct words *words, const char *word)
{
    const char **items = realloc(words->items, ((size_t)words->n + 1) * sizeof *items);
    if (!items) {
        return false;
    }
    words->items = items;
    words->items[words->n++] = word;
    return true;
}

void cli_free_words(struct words *words)
{
    free(words->items);
    *words = (struct words){0};
}

int cli_fail(const struct command *command, int status, const char *fmt, ...)
{
    char message[4096];
    va_list args;
    va_start(args, fmt);
    vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    sw_work_clear();
    cli_print_message(stderr, command->name, message);
    return status;
}

int cli_error(const struct command *command, int status)
{
    return cli_fail(command, status, "%s", sw_error_message());
}

static bool same_flag(const char *name, const char *word, size_t len, bool dashes_alike)
{
    for (size_t i = 0; i < len; i++) {
        const char c = dashes_alike && word[i] == '_' ? '-' : word[i];
        if (name[i] != c) { /* a name that ends early differs too */
            return false;
        }
    }
    return name[len] == '\0';
}

static const struct flag *find(const struct command *command, const char *name, size_t len,
                               bool takes_program)
{
    for (int i = 0; i < command->n_flags; i++) {
        if (same_flag(command->flags[i].name, name, len, takes_program)) {
            return &command->flags[i];
        }
    }
    return NULL;
}

/* Stores the value. Returns NULL, or the kind of value that was wanted. */
static const char *store(const struct flag *flag, const char *value)
{
    char *end = NULL;
    errno = 0;
    switch (flag->type) {
    case FLAG_INT: {
        const long long number = strtoll(value, &end, 10);
        if (end == value || *end || errno || number < 0) { /* no flag takes a negative integer */
            return "a whole number, not negative";
        }
        *(int64_t *)flag->to = number;
        return NULL;
    }
    case FLAG_REAL: {
        const double number = strtod(value, &end);
        if (end == value || *end || errno || !(number >= 0 && isfinite(number))) {
            return "a number, not negative";
        }
        *(double *)flag->to = number;
        return NULL;
    }
    case FLAG_SWITCH:
        *(const char **)flag->to = value ? value : "true";
        return NULL;
    case FLAG_TEXT:
        *(const char **)flag->to = value;
        return NULL;
    case FLAG_LIST:
        return push(flag->to, value) ? NULL : "less, as memory ran out";
    case FLAG_BOOL:
        *(bool *)flag->to = true;
        return NULL;
    case FLAG_HEADING: /* no word matches a heading */
        return NULL;
    }
    return NULL;
}

static int take_program(const struct command *command, int n, char **words, struct words *to)
{
    for (int i = 0; i < n; i++) {
        if (!push(to, words[i])) {
            return cli_fail(command, CLI_FAILED, "out of memory");
        }
    }
    return -1;
}

/* Refuses a word whose first len characters are no flag of the command. */
static int refuse_flag(const struct command *command, const char *word, size_t len)
{
    const char *names[MOST_FLAGS + 1] = {"--help"};
    size_t n = 1;
    char name[64];
    for (int i = 0; i < command->n_flags; i++) {
        if (command->flags[i].type != FLAG_HEADING) {
            names[n++] = command->flags[i].name;
        }
    }
    snprintf(name, sizeof name, "%.*s", (int)len, word);
    const char *nearest = len > 2 ? sw_nearest(name, names, n) : NULL; /* -a is no typo of -b */
    return cli_fail(command, CLI_REFUSED, "unknown option %.*s%s%s; see --help", (int)len, word,
                    nearest ? "; the nearest is " : "", nearest ? nearest : "");
}

/* The flag that has already set the value of another one; NULL = none. */
static const struct flag *set_before(const struct command *command, const bool *seen,
                                     const struct flag *flag)
{
    for (int i = 0; i < command->n_flags; i++) {
        if (seen[i] && command->flags[i].to == flag->to) {
            return &command->flags[i];
        }
    }
    return NULL;
}

static int parse(const struct command *command, int argc, char **argv, struct words *positional,
                 bool takes_program)
{
    /* a second value, even by another name, is refused, else it would silently win */
    bool seen[MOST_FLAGS] = {false};
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (cli_describe(command, word)) {
            return CLI_DONE;
        }
        const bool is_flag =
            takes_program ? word[0] == '-' && word[1] : strncmp(word, "--", 2) == 0;
        if (takes_program && (!is_flag || strcmp(word, "--") == 0)) {
            return take_program(command, argc - i - is_flag, argv + i + is_flag, positional);
        }
        if (!is_flag) {
            if (!positional && word[0] == '-') {
                return refuse_flag(command, word, strlen(word));
            }
            if (!positional) {
                return cli_fail(command, CLI_REFUSED, "unexpected word \"%s\"; see --help", word);
            }
            if (!push(positional, word)) {
                return cli_fail(command, CLI_FAILED, "out of memory");
            }
            continue;
        }
        const char *equals = strchr(word, '=');
        const size_t len = equals ? (size_t)(equals - word) : strlen(word);
        const struct flag *flag = find(command, word, len, takes_program);
        if (!flag) {
            return refuse_flag(command, word, len);
        }
        if (flag->type == FLAG_BOOL && equals) {
            return cli_fail(command, CLI_REFUSED, "%s takes no value, got \"%s\"", flag->name,
                            equals + 1);
        }
        const struct flag *before = set_before(command, seen, flag);
        if (before && flag->type != FLAG_LIST && flag->type != FLAG_BOOL) {
            return cli_fail(command, CLI_REFUSED, "%s is given twice%s%s", flag->name,
                            before == flag ? "" : ", first as ",
                            before == flag ? "" : before->name);
        }
        seen[flag - command->flags] = true;
        const char *value = equals ? equals + 1 : NULL;
        const bool may_have = flag->type == FLAG_SWITCH && flag->arg;
        if (!value && may_have && i + 1 < argc && strncmp(argv[i + 1], "--", 2) != 0) {
            value = argv[++i];
        } else if (!value && flag->type != FLAG_BOOL && flag->type != FLAG_SWITCH) {
            value = i + 1 < argc ? argv[++i] : NULL;
            if (!value) {
                return cli_fail(command, CLI_REFUSED, "%s needs a value: %s", flag->name,
                                flag->arg);
            }
        }
        const char *wanted = store(flag, value);
        while (!wanted && flag->many && i + 1 < argc && strncmp(argv[i + 1], "--", 2) != 0) {
            wanted = store(flag, argv[++i]);
        }
        if (wanted) {
            return cli_fail(command, CLI_REFUSED, "%s: wanted %s, got \"%s\"", flag->name, wanted,
                            value);
        }
    }
    return -1;
}

int cli_parse(const struct command *command, int argc, char **argv, struct words *positional)
{
    return parse(command, argc, argv, positional, false);
}

int cli_parse_program(const struct command *command, int argc, char **argv, struct words *program)
{
    return parse(command, argc, argv, program, true);
}

bool cli_add_set(struct words *sets, char **owned, const char *key, const char *value)
{
    const size_t size = strlen(key) + strlen(value) + 2;
    *owned = malloc(size);
    if (!*owned) {
        return false;
    }
    snprintf(*owned, size, "%s=%s", key, value);
    return push(sets, *owned);
}

void cli_move_first(struct words *words)
{
    if (words->n > 1) {
        const char *last = words->items[words->n - 1];
        memmove(words->items + 1, words->items, (size_t)(words->n - 1) * sizeof *words->items);
        words->items[0] = last;
    }
}

const char *cli_device_value(const char *device, char *text)
{
    if (!device) {
        return NULL;
    }
    snprintf(text, CLI_DEVICE_CAP, "\"%.*s\"", (int)strcspn(device, "\"\\"), device);
    return text;
}

bool cli_add_device(struct words *sets, struct cli_device *device)
{
    char text[CLI_DEVICE_CAP];
    const char *value = cli_device_value(device->name, text);
    return !value || cli_add_set(sets, &device->edit, "spillway.device?", value);
}
