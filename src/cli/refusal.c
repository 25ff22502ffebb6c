// SPDX-License-Identifier: Apache-2.0
// Lays out messages. A message is one line. On a terminal that is too narrow, its parts, separated
// by semicolons, are printed below each other within the width. The parts are the sentence, a table
// of the largest items, and a list of remedies. Elsewhere the message stays one line.
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli/cli.h"

enum { LEAST_COLUMNS = 20, INDENT = 4 };

/* A piece of a message. */
struct piece {
    const char *text;
    size_t len;
};

static bool begins(const struct piece *piece, const char *word)
{
    return piece->len >= strlen(word) && strncmp(piece->text, word, strlen(word)) == 0;
}

/* Takes the first piece of `rest`, up to a separator outside of quotes and brackets, and advances
 * `rest` past it. A list continues after "or". */
static struct piece take(struct piece *rest, const char *separator)
{
    const size_t len = strlen(separator);
    int depth = 0;
    bool quoted = false;
    for (size_t i = 0; i + len <= rest->len; i++) {
        const char c = rest->text[i];
        const struct piece after = {rest->text + i + len, rest->len - i - len};
        quoted = c == '"' ? !quoted : quoted;
        depth += c == '(' || c == '[' ? 1 : c == ')' || c == ']' ? -1 : 0;
        if (!quoted && depth <= 0 && strncmp(rest->text + i, separator, len) == 0 &&
            !begins(&after, "or ")) {
            const struct piece first = {rest->text, i};
            *rest = after;
            return first;
        }
    }
    const struct piece all = *rest;
    rest->len = 0;
    return all;
}

/* Wraps words into lines. `at` columns of the first line are taken already. The terminal breaks a
 * word that is longer than a line. */
static void put_words(FILE *to, const struct piece *piece, int at, int indent, int columns)
{
    bool first = true;
    for (size_t i = 0; i < piece->len;) {
        size_t n = 0;
        while (i + n < piece->len && piece->text[i + n] != ' ') {
            n++;
        }
        if (!first && at + 1 + (int)n > columns) {
            fprintf(to, "\n%*s", indent, "");
            at = indent;
            first = true;
        }
        at += fprintf(to, "%s%.*s", first ? "" : " ", (int)n, piece->text + i);
        first = false;
        i += n + (i + n < piece->len);
    }
    fputc('\n', to);
}

/* Prints "147.2 MiB name" with size and unit in a column. */
static void put_row(FILE *to, const struct piece *item, int columns)
{
    const char *unit = memchr(item->text, ' ', item->len);
    const char *name =
        unit ? memchr(unit + 1, ' ', item->len - (size_t)(unit + 1 - item->text)) : NULL;
    if (!name) {
        fprintf(to, "%*s", INDENT, "");
        put_words(to, item, INDENT, INDENT, columns);
        return;
    }
    const struct piece size = {item->text, (size_t)(name - item->text)};
    const struct piece rest = {name + 1, item->len - size.len - 1};
    const int at = INDENT + 10 + 2;
    fprintf(to, "%*s%10.*s  ", INDENT, "", (int)size.len, size.text);
    put_words(to, &rest, at, at, columns);
}

static void put_list(FILE *to, struct piece rest, bool table, int columns)
{
    while (rest.len > 0) {
        const struct piece item = take(&rest, ", ");
        if (table) {
            put_row(to, &item, columns);
        } else {
            fprintf(to, "%*s- ", INDENT, "");
            put_words(to, &item, INDENT + 2, INDENT + 2, columns);
        }
    }
}

/* Prints a part: a list if one follows a colon, else words. */
static void put_part(FILE *to, struct piece part, int columns)
{
    static const char *const heads[] = {"largest: ", "what would help: "};
    for (int i = 0; i < 2; i++) {
        if (begins(&part, heads[i])) {
            const size_t len = strlen(heads[i]);
            fprintf(to, "  %.*s\n", (int)len - 1, heads[i]);
            put_list(to, (struct piece){part.text + len, part.len - len}, i == 0, columns);
            return;
        }
    }
    fputs("  ", to);
    put_words(to, &part, 2, 2, columns);
}

static int columns_of(FILE *to)
{
    struct winsize size;
    const bool known = isatty(fileno(to)) && ioctl(fileno(to), TIOCGWINSZ, &size) == 0;
    return known && size.ws_col >= LEAST_COLUMNS ? size.ws_col : 0;
}

void cli_print_message(FILE *to, const char *name, const char *message)
{
    const int columns = columns_of(to);
    const size_t len = strlen(name) + strlen("spillway : ") + strlen(message);
    struct piece rest = {message, strlen(message)};
    const int at = fprintf(to, "spillway %s: ", name);
    if (columns == 0 || len <= (size_t)columns) {
        fprintf(to, "%s\n", message);
        return;
    }
    const struct piece first = take(&rest, "; ");
    put_words(to, &first, at, 2, columns);
    while (rest.len > 0) {
        put_part(to, take(&rest, "; "), columns);
    }
}
