// SPDX-License-Identifier: Apache-2.0
// Prints checkpoints as text, for `spillway checkpoint`.
#include "spillway/checkpoint.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

#include "ckpt/ckpt.h"
#include "json/json.h"

static sw_status print_json(const struct sw_ckpt_summary *item, FILE *out)
{
    struct sw_str line = {0};
    sw_str_puts(&line, "{\"name\":");
    sw_json_write_string(item->name, strlen(item->name), &line);
    sw_str_printf(&line, ",\"step\":%lld,\"complete\":%s", (long long)item->step,
                  item->complete ? "true" : "false");
    if (!item->problem) {
        sw_str_printf(&line,
                      ",\"bytes\":%lld,\"writers\":%lld,\"fingerprint\":\"%016llx\",\"val_loss\":",
                      (long long)item->bytes, (long long)item->n_writers,
                      (unsigned long long)item->fingerprint);
        if (isfinite(item->val_loss)) {
            sw_json_write_f64(item->val_loss, &line);
        } else {
            sw_str_puts(&line, "null");
        }
        if (item->metric.name) {
            sw_str_puts(&line, ",\"metric\":");
            sw_json_write_string(item->metric.name, strlen(item->metric.name), &line);
            sw_str_puts(&line, ",\"metric_value\":");
            sw_json_write_f64(item->metric.value, &line);
        }
    } else {
        sw_str_puts(&line, ",\"problem\":");
        sw_json_write_string(item->problem, strlen(item->problem), &line);
    }
    const sw_status st =
        line.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a report") : SW_OK;
    if (st >= 0) {
        fprintf(out, "%s}\n", sw_str_text(&line));
    }
    sw_str_fini(&line);
    return st;
}

static void print_line(const struct sw_ckpt_summary *item, FILE *out)
{
    char bytes[32];
    if (item->problem) {
        fprintf(out, "%-24s %s: %s\n", item->name,
                item->complete ? "cannot be read" : "not complete", item->problem);
        return;
    }
    fprintf(out, "%-24s step %-8lld %-10s %lld writer%s  math %016llx", item->name,
            (long long)item->step, sw_format_bytes(bytes, sizeof bytes, (double)item->bytes),
            (long long)item->n_writers, item->n_writers == 1 ? "" : "s",
            (unsigned long long)item->fingerprint);
    if (isfinite(item->val_loss)) {
        fprintf(out, "  validation loss %.4f", item->val_loss);
    }
    if (item->metric.name) {
        fprintf(out, "  %s %.4f", item->metric.name, item->metric.value);
    }
    fputc('\n', out);
}

sw_status sw_checkpoint_list(const char *folder, bool json, FILE *out)
{
    struct sw_ckpt_list list;
    if (access(folder, R_OK) != 0) { /* unlike for a training, a missing folder is an error */
        return SW_FAIL(SW_E_IO, "cannot read %s: %s", folder, strerror(errno));
    }
    SW_TRY(sw_ckpt_list(folder, &list));
    sw_status st = SW_OK;
    for (int64_t i = 0; i < list.n_items && st >= 0; i++) {
        if (json) {
            st = print_json(&list.items[i], out);
        } else {
            print_line(&list.items[i], out);
        }
    }
    if (list.n_items == 0 && !json) {
        fprintf(out, "no checkpoints in %s\n", folder);
    }
    sw_ckpt_list_fini(&list);
    return st;
}

/* Opens a checkpoint and fails if it is missing. */
static sw_status open_one(const char *path, struct sw_ckpt **out)
{
    const sw_status st = sw_ckpt_open(path, out);
    return st == SW_PENDING ? SW_FAIL(SW_E_IO, "%s: no complete checkpoint", path) : st;
}

sw_status sw_checkpoint_verify(const char *path, FILE *out)
{
    struct sw_ckpt *ckpt = NULL;
    SW_TRY(open_one(path, &ckpt));
    const sw_status st = sw_ckpt_verify(ckpt);
    if (st >= 0) {
        fprintf(out, "%s: %lld tensors, every digest (%s) as written\n", sw_ckpt_path(ckpt),
                (long long)sw_ckpt_n_tensors(ckpt), sw_ckpt_digest_name(ckpt));
    }
    sw_ckpt_close(ckpt);
    return st;
}

static void print_difference(const struct sw_ckpt_difference *item, FILE *out)
{
    static const char *const relations[] = {"", "only in the first", "only in the second",
                                            "has another shape"};
    if (item->relation == SW_CKPT_BOTH) {
        fprintf(out, "%s %s: %lld elements differ, by at most %.3g\n", item->entry.param,
                item->entry.kind, (long long)item->n_different, item->max_abs);
    } else {
        fprintf(out, "%s %s: %s\n", item->entry.param, item->entry.kind, relations[item->relation]);
    }
}

sw_status sw_checkpoint_diff(const char *first, const char *second, FILE *out, bool *out_equal)
{
    struct sw_ckpt *a = NULL, *b = NULL;
    struct sw_ckpt_diff diff;
    sw_status st = open_one(first, &a);
    st = st < 0 ? st : open_one(second, &b);
    st = st < 0 ? st : sw_ckpt_diff(a, b, &diff);
    if (st >= 0) {
        int64_t n = 0;
        for (int64_t i = 0; i < diff.n_items; i++) {
            const struct sw_ckpt_difference *item = &diff.items[i];
            if (item->relation != SW_CKPT_BOTH || item->n_different > 0) {
                print_difference(item, out);
                n++;
            }
        }
        fprintf(out, "%lld of %lld tensors differ\n", (long long)n, (long long)diff.n_items);
        *out_equal = n == 0;
        sw_ckpt_diff_fini(&diff);
    }
    sw_ckpt_close(a);
    sw_ckpt_close(b);
    return st;
}
