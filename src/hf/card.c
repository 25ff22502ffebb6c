// SPDX-License-Identifier: Apache-2.0
// hf/card - the model card of a folder that is exported: README.md, with the front matter that the
// hub reads. Only the license is taken from the card of the base: the rest describes the base.
#include "hf/private.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char card_name[] = "README.md";

/* ---- the base ---- */

void sw_hf_base_name(const char *folder, char *buf, size_t cap)
{
    char path[PATH_MAX], model[PATH_MAX];
    buf[0] = '\0';
    if (!realpath(folder, path)) {
        return;
    }
    if (!sw_hf_hub_folder(path, model)) {
        snprintf(buf, cap, "%s", strrchr(path, '/') + 1);
        return;
    }
    const char *name = strrchr(model, '/') + sizeof SW_HF_HUB_PREFIX;
    const char *dashes = strstr(name, "--");
    snprintf(buf, cap, dashes ? "%.*s/%s" : "%.*s%s", (int)(dashes ? dashes - name : 0), name,
             dashes ? dashes + 2 : name);
}

/* The scalar of "KEY: VALUE" in the lines [text, end); "" where it is none. */
static void read_scalar(const char *text, const char *end, const char *key, char *buf, size_t cap)
{
    const size_t key_len = strlen(key);
    buf[0] = '\0';
    for (const char *line = text; line && line < end; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, key_len) != 0 || line[key_len] != ':') {
            continue;
        }
        const char *value = line + key_len + 1;
        size_t len = strcspn(value, "\n");
        const char *comment = memmem(value, len, " #", 2);
        len = comment ? (size_t)(comment - value) : len;
        for (; len > 0 && strchr(" \t\r", value[len - 1]); len--) {
        }
        for (; len > 0 && (*value == ' ' || *value == '\t'); value++, len--) {
        }
        const bool quoted =
            len > 1 && (*value == '"' || *value == '\'') && value[len - 1] == *value;
        value += quoted;
        len -= quoted ? 2 : 0;
        if (len > 0 && len < cap && (quoted || !strchr("[{|>&*!#", *value))) {
            snprintf(buf, cap, "%.*s", (int)len, value);
        }
        return;
    }
}

void sw_hf_read_license(const char *folder, struct sw_hf_license *out)
{
    char path[PATH_MAX], *text = NULL;
    size_t len = 0;
    *out = (struct sw_hf_license){.id = ""};
    const int n = snprintf(path, sizeof path, "%s/%s", folder, card_name);
    if (n < 0 || (size_t)n >= sizeof path || access(path, R_OK) != 0 ||
        sw_file_read(path, &text, &len) < 0) {
        return;
    }
    const bool begins = strncmp(text, "---\n", 4) == 0 || strncmp(text, "---\r\n", 5) == 0;
    const char *end = begins ? strstr(text + 3, "\n---") : NULL;
    if (end) {
        read_scalar(text + 3, end, "license", out->id, sizeof out->id);
        read_scalar(text + 3, end, "license_name", out->name, sizeof out->name);
        read_scalar(text + 3, end, "license_link", out->link, sizeof out->link);
    }
    sw_free(text);
}

/* ---- the card ---- */

static void put_scalar(struct sw_str *out, const char *key, const char *value)
{
    if (value && *value) {
        sw_str_printf(out, "%s: ", key);
        sw_json_write_string(value, strlen(value), out); /* one of YAML, too */
        sw_str_putc(out, '\n');
    }
}

static void put_list(struct sw_str *out, const char *key, const char *const *items, int n)
{
    if (n > 0) {
        sw_str_printf(out, "%s:\n", key);
    }
    for (int i = 0; i < n; i++) {
        sw_str_puts(out, "- ");
        sw_json_write_string(items[i], strlen(items[i]), out);
        sw_str_putc(out, '\n');
    }
}

sw_status sw_hf_write_card(const char *folder, const struct sw_hf_card *card)
{
    char path[PATH_MAX];
    struct sw_str text = {0};
    snprintf(path, sizeof path, "%s/%s", folder, card_name);
    sw_str_puts(&text, "---\n");
    put_scalar(&text, "base_model", card->base);
    put_scalar(&text, "library_name", card->is_adapter ? "peft" : "transformers");
    put_scalar(&text, "license", card->license.id);
    if (*card->license.id) {
        put_scalar(&text, "license_name", card->license.name);
        put_scalar(&text, "license_link", card->license.link);
    }
    put_list(&text, "tags", card->tags, card->n_tags);
    put_list(&text, "datasets", card->datasets, card->n_datasets);
    sw_str_puts(&text, "---\n");
    sw_str_puts(&text, card->body);
    const sw_status st = sw_file_write_str(path, &text);
    sw_str_fini(&text);
    return st;
}

sw_status sw_hf_remove_card(const char *folder)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", folder, card_name);
    return (!sw_fault_fails("unlink", NULL) && unlink(path) == 0) || errno == ENOENT
               ? SW_OK
               : SW_FAIL(SW_E_IO, "cannot remove %s: %s", path, strerror(errno));
}
