// SPDX-License-Identifier: Apache-2.0
// Lists of words in an arena, and words between shells: quoting so that a shell gives back the same
// bytes, splitting as a shell would. Nothing is expanded.
#include "launch/private.h"

#include <string.h>

sw_status sw_launch_add(struct sw_arena *arena, struct words *words, const char *word)
{
    if (words->n + 1 >= words->cap) {
        const int cap = words->cap > 0 ? 2 * words->cap : 16;
        char **items = sw_arena_array(arena, (size_t)cap, sizeof *items);
        SW_TRY_ALLOC(items, "a command");
        if (words->n > 0) {
            memcpy(items, words->items, (size_t)words->n * sizeof *items);
        }
        words->items = items;
        words->cap = cap;
    }
    char *copy = sw_arena_strdup(arena, word);
    SW_TRY_ALLOC(copy, "a command");
    words->items[words->n++] = copy;
    words->items[words->n] = NULL;
    return SW_OK;
}

static int find(const struct words *words, const char *name)
{
    const size_t len = strlen(name);
    for (int i = 0; i < words->n; i++) {
        if (strncmp(words->items[i], name, len) == 0 && words->items[i][len] == '=') {
            return i;
        }
    }
    return -1;
}

const char *sw_launch_get(const struct words *words, const char *name)
{
    const int i = find(words, name);
    return i < 0 ? NULL : words->items[i] + strlen(name) + 1;
}

sw_status sw_launch_set(struct sw_arena *arena, struct words *words, const char *name,
                        const char *value)
{
    char *text = sw_arena_printf(arena, "%s=%s", name, value);
    SW_TRY_ALLOC(text, "the environment");
    const int i = find(words, name);
    if (i >= 0) {
        words->items[i] = text;
        return SW_OK;
    }
    return sw_launch_add(arena, words, text);
}

void sw_launch_unset(struct words *words, const char *name)
{
    const int i = find(words, name);
    if (i >= 0) {
        words->n--;
        memmove(words->items + i, words->items + i + 1,
                (size_t)(words->n - i + 1) * sizeof *words->items); /* and the NULL */
    }
}

void sw_launch_quote(struct sw_str *out, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_@%+=:,./-";
    if (*word && word[strspn(word, plain)] == '\0') {
        sw_str_puts(out, word);
        return;
    }
    sw_str_putc(out, '\'');
    for (const char *at = word; *at; at++) {
        if (*at == '\'') {
            sw_str_puts(out, "'\\''"); /* ends the quotes, one quote, begins them again */
        } else {
            sw_str_putc(out, *at);
        }
    }
    sw_str_putc(out, '\'');
}

/* Splits off one word at *at, and moves *at past it. */
static sw_status split_word(const char *what, const char *text, const char **at,
                            struct sw_str *word)
{
    char quote = '\0';
    for (; **at && (quote || !strchr(" \t\r\n", **at)); (*at)++) {
        const char c = **at;
        if (quote ? c == quote : c == '\'' || c == '"') {
            quote = quote ? '\0' : c;
        } else if (c == '\\' && quote != '\'' && (*at)[1] &&
                   (!quote || strchr("\"\\$`", (*at)[1]))) {
            sw_str_putc(word, *++*at);
        } else {
            sw_str_putc(word, c);
        }
    }
    if (quote) {
        return SW_FAIL(SW_E_CONFIG, "%s: wanted a closing %c, got the end of \"%s\"", what, quote,
                       text);
    }
    if (word->failed) {
        return SW_FAIL(SW_E_NOMEM, "out of host memory for %s", what);
    }
    return SW_OK;
}

sw_status sw_launch_split(struct sw_arena *arena, const char *what, const char *text,
                          struct words *out)
{
    struct sw_str word = {0};
    sw_status st = SW_OK;
    for (const char *at = text; st >= 0;) {
        at += strspn(at, " \t\r\n");
        if (!*at) {
            break;
        }
        sw_str_clear(&word);
        SW_TRY_OR(free_word, split_word(what, text, &at, &word));
        SW_TRY_OR(free_word, sw_launch_add(arena, out, sw_str_text(&word)));
    }
free_word:
    sw_str_fini(&word);
    return st;
}

sw_status sw_launch_read_file(struct sw_arena *arena, const char *path, char **out)
{
    char *text;
    size_t len;
    SW_TRY(sw_file_read(path, &text, &len));
    const bool is_text = strlen(text) == len;
    char *copy = is_text ? sw_arena_strdup(arena, text) : NULL;
    sw_free(text);
    if (!is_text) {
        return SW_FAIL(SW_E_FORMAT, "%s: wanted text, got a byte 0", path);
    }
    SW_TRY_ALLOC(copy, path);
    *out = copy;
    return SW_OK;
}
