// SPDX-License-Identifier: Apache-2.0
// Ranks must agree before they train together: on the configuration and the model here, on data and
// flags in job/agree.c. Each rank computes digests and all compare them, so that a difference is
// reported before the first step. Values that may differ between hosts are left out: paths, and
// budgets of memory, disk and threads.
#include <string.h>

#include "engine/agree.h"

#include "engine/private.h"

static bool is_one_of(const char *path, const char *const *list)
{
    for (; *list; list++) {
        if (strcmp(path, *list) == 0) {
            return true;
        }
    }
    return false;
}

/* Writes every value with its path, in the order of the text, except those in `left_out`. */
static void write_tree(const struct sw_json *node, const char *path, const char *const *left_out,
                       struct sw_str *out)
{
    struct sw_str below = {0};
    if (is_one_of(path, left_out)) {
        return;
    }
    if (node->type != SW_JSON_OBJECT) {
        sw_str_printf(out, "%s=", path);
        sw_json_write(node, 0, out);
        sw_str_putc(out, '\n');
        return;
    }
    for (const struct sw_json *child = node->first; child; child = child->next) {
        sw_str_clear(&below);
        sw_str_printf(&below, "%s%s%s", path, *path ? "." : "", child->key);
        write_tree(child, sw_str_text(&below), left_out, out);
        out->failed |= below.failed;
    }
    sw_str_fini(&below);
}

sw_status sw_engine_digest(struct sw_str *text, struct sw_agreed *out)
{
    const bool failed = text->failed;
    sw_blake2s(NULL, 0, sw_str_text(text), text->len, out->digest, sizeof out->digest);
    sw_str_fini(text);
    return failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a digest") : SW_OK;
}

sw_status sw_engine_compare(sw_comm *comm, const struct sw_agreed *items, int n)
{
    const int ranks = sw_comm_size(comm), rank = sw_comm_rank(comm);
    const size_t bytes = (size_t)n * sizeof items->digest;
    uint8_t *all = sw_alloc_zero("engine", (size_t)ranks + 1, bytes);
    SW_TRY_ALLOC(all, "digests");
    uint8_t *mine = all + (size_t)ranks * bytes;
    for (int i = 0; i < n; i++) {
        memcpy(mine + (size_t)i * sizeof items->digest, items[i].digest, sizeof items->digest);
    }
    sw_status st = sw_comm_all_gather(comm, mine, all, bytes, "the settings of all ranks");
    for (int r = 0; r < ranks && st >= 0; r++) {
        for (int i = 0; i < n && st >= 0; i++) {
            const size_t at = (size_t)i * sizeof items->digest;
            if (memcmp(all + (size_t)r * bytes + at, mine + at, sizeof items->digest) != 0) {
                st = SW_FAIL(SW_E_CONFIG, "rank %d has different %s from rank %d: %s", r,
                             items[i].what, rank, items[i].hint);
            }
        }
    }
    sw_free(all);
    return st;
}

static sw_status agree_on_config(const struct sw_engine *e, struct sw_agreed *out)
{
    static const char *const left_out[] = {"spillway.threads",
                                           "spillway.device",
                                           "spillway.device_memory",
                                           "spillway.host_memory",
                                           "spillway.nvme_space",
                                           "spillway.transfer_bytes",
                                           "spillway.trace",
                                           "zero_optimization.offload_param.nvme_path",
                                           "zero_optimization.offload_optimizer.nvme_path",
                                           NULL};
    struct sw_str json = {0}, text = {0};
    struct sw_json_doc *doc = NULL;
    sw_config_write_json(e->config, 0, &json);
    const sw_status st = json.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a digest")
                                     : sw_json_parse("configuration", sw_str_text(&json), json.len,
                                                     SW_JSON_STRICT, &doc);
    if (st >= 0) {
        write_tree(sw_json_root(doc), "", left_out, &text);
    }
    sw_json_close(doc);
    sw_str_fini(&json);
    /* the caller's seed, unless the file or a flag sets it */
    sw_str_printf(&text, "seed=%llu tokens=%lld", (unsigned long long)e->seed,
                  (long long)e->sizes.tokens);
    *out = (struct sw_agreed){.what = "keys in its configuration",
                              .hint = "`spillway config` prints them all (--set, --seed and "
                                      "--seq-len count; paths and budgets do not)"};
    const sw_status made = sw_engine_digest(&text, out);
    return st < 0 ? st : made;
}

/* The digest of weights reads only both ends of each tensor, where different weights differ. */
enum { END_BYTES = 64 };

static void write_tensor(const struct sw_safetensor *t, struct sw_str *out)
{
    char shape[96];
    const size_t n = t->bytes < END_BYTES ? t->bytes : END_BYTES;
    sw_str_printf(out, "%s %s %s %zu ", t->name, t->dtype_name,
                  sw_shape_format(&t->shape, shape, sizeof shape), t->bytes);
    if (n > 0) {
        sw_str_append(out, t->data, n);
        sw_str_append(out, (const char *)t->data + t->bytes - n, n);
    }
}

static sw_status agree_on_model(const struct sw_engine *e, struct sw_agreed *out)
{
    static const char *const left_out[] = {"_name_or_path", "transformers_version", SW_ONNX_KEY,
                                           NULL};
    struct sw_str text = {0};
    if (e->weights.source.doc) {
        write_tree(sw_json_root(e->weights.source.doc), "", left_out, &text);
    }
    for (int64_t i = 0; e->weights.source.files && i < sw_hf_folder_count(e->weights.source.files);
         i++) {
        write_tensor(sw_hf_folder_at(e->weights.source.files, i), &text);
    }
    if (sw_onnx_is_import(e->weights.model)) {
        sw_onnx_model_describe(e->weights.model, &text);
    }
    const struct sw_safetensors *adapter = sw_weights_adapter_file(&e->weights);
    for (int64_t i = 0; adapter && i < sw_safetensors_count(adapter); i++) {
        write_tensor(sw_safetensors_at(adapter, i), &text);
    }
    *out = (struct sw_agreed){.what = "settings or weights in its model",
                              .hint = "the folder must be the same on all hosts (config.json, and "
                                      "the tensors with their shapes and ends, were compared)"};
    return sw_engine_digest(&text, out);
}

/* A rank's results depend on its kernels. Under spillway.allow_other_math ranks may have different
 * kernels. */
static sw_status agree_on_kernels(const struct sw_engine *e, struct sw_agreed *out)
{
    struct sw_str text = {0};
    sw_str_puts(&text,
                e->config->spillway.allow_other_math ? "any" : sw_device_kernel_set(e->device));
    *out = (struct sw_agreed){
        .what = "kernels",
        .hint =
            "`spillway doctor` names those of a machine; spillway.allow_other_math permits ranks "
            "of several kinds, but then results depend on which rank computes what"};
    return sw_engine_digest(&text, out);
}

sw_status sw_engine_agree_on_setup(const struct sw_engine *e)
{
    struct sw_agreed items[3];
    if (e->world.size == 1) {
        return SW_OK;
    }
    SW_TRY(agree_on_config(e, &items[0]));
    SW_TRY(agree_on_model(e, &items[1]));
    SW_TRY(agree_on_kernels(e, &items[2]));
    return sw_engine_compare(e->options.run.comm, items, 3);
}

/* ---- during training ---- */

sw_status sw_engine_agree(struct sw_engine *e, sw_status st, const char *what)
{
    return e->world.size == 1 ? st : sw_comm_agree(e->options.run.comm, st, what);
}

sw_status sw_engine_gather(const struct sw_engine *e, int64_t mine, const char *what)
{
    e->words[0] = mine;
    return e->world.size == 1
               ? SW_OK
               : sw_comm_all_gather(e->options.run.comm, &mine, e->words, sizeof mine, what);
}
