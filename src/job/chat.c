// SPDX-License-Identifier: Apache-2.0
// The additions for a training on chats: the template, the date given to it, and the tokens that
// the loss covers. All ranks have the same, and a resumed run keeps its own.
#include <string.h>
#include <unistd.h>

#include "ckpt/ckpt.h"
#include "job/private.h"
#include "spillway/comm.h"

static sw_status read_flags(const struct sw_train_options *o, struct sw_chat_options *out)
{
    return sw_chat_options_read(o->chat_template, o->chat_date, o->loss_on, out);
}

sw_status sw_job_chat_check(const struct sw_train_options *o)
{
    struct sw_chat_options options;
    return read_flags(o, &options);
}

/* Reads the date from the checkpoint that a run resumes from. */
static bool day_of_checkpoint(const char *folder, int64_t *out)
{
    struct sw_ckpt *ckpt = NULL;
    if (sw_ckpt_open(folder, &ckpt) != SW_OK) {
        return false; /* there is no checkpoint, or loading it reports the error */
    }
    const struct sw_json *data = sw_ckpt_meta(ckpt)->data;
    const struct sw_json *day = data ? sw_json_path(data, "chat.date") : NULL;
    const bool good = day && day->type == SW_JSON_STRING && sw_day_of_text(day->string, out);
    sw_ckpt_close(ckpt);
    return good;
}

/* Takes the date of the flag, else the checkpoint's, else today's. */
static sw_status choose_day(const struct sw_train_options *o, const char *from, int64_t *out)
{
    struct sw_chat_options options;
    SW_TRY(read_flags(o, &options));
    *out = options.date;
    if (!o->chat_date && from[0]) {
        day_of_checkpoint(from, out);
    }
    return SW_OK;
}

/* The message between ranks. Ranks that started on two sides of midnight take rank 0's date. */
struct word {
    int64_t kind, day, has_weights;
};

static sw_status share(sw_comm *comm, struct word *word)
{
    const int n = sw_comm_size(comm);
    struct word *all = sw_alloc_zero("train", (size_t)n, sizeof *all);
    SW_TRY_ALLOC(all, "the kind of data");
    sw_status st = sw_comm_all_gather(comm, word, all, sizeof *word, "the kind of data");
    for (int r = 0; r < n && st >= 0; r++) {
        if (all[r].kind != all[0].kind) {
            static const char *const kinds[] = {"text", "prompts and completions", "chats"};
            st = SW_FAIL(SW_E_CONFIG, "data: %s on rank %d, %s on rank 0", kinds[all[r].kind], r,
                         kinds[all[0].kind]);
        }
    }
    for (int r = 0; r < n && st >= 0; r++) { /* ranks may see different files */
        word->has_weights |= all[r].has_weights;
    }
    word->day = st >= 0 ? all[0].day : 0;
    sw_free(all);
    return st;
}

sw_status sw_job_chat_choose(const struct sw_train_options *o, bool preferences, const char *from,
                             sw_comm *comm, struct sw_job_chat *out)
{
    struct word word = {SW_DATA_TEXT, 0, 0};
    out->preferences = preferences;
    if (preferences && o->loss_on) {
        return SW_FAIL(SW_E_ARG, "--loss-on: a preference is on the last answer of a chat");
    }
    if (o->n_data > 0 && preferences) {
        SW_TRY(sw_preferences_kind(o->data[0], &out->kind));
    } else if (o->n_data > 0) {
        SW_TRY(sw_data_kind_of(o->data, o->n_data, o->as_text, &out->kind));
    }
    if (out->kind != SW_DATA_TEXT && (!comm || sw_comm_rank(comm) == 0)) {
        SW_TRY(choose_day(o, from, &word.day));
    }
    if (out->kind == SW_DATA_CHATS && !preferences) {
        bool train = false, val = false;
        SW_TRY(sw_data_has_weights(o->data, o->n_data, &train));
        SW_TRY(sw_data_has_weights(o->val_data, o->n_val_data, &val));
        word.has_weights = train || val;
    }
    word.kind = out->kind;
    if (comm) {
        SW_TRY(share(comm, &word));
    }
    out->day = word.day;
    out->has_weights = word.has_weights;
    return SW_OK;
}

sw_status sw_job_chat_open(const struct sw_train_options *o, const char *folder,
                           sw_tokenizer *tokenizer, struct sw_job_chat *out)
{
    struct sw_chat_options options;
    SW_TRY(read_flags(o, &options));
    options.folder = folder;
    options.tokenizer = tokenizer;
    options.date = out->day;
    options.loss_on = out->preferences ? SW_LOSS_ON_LAST : options.loss_on;
    options.asked_for = options.asked_for && o->n_data > 0;
    return sw_chat_open_for(&options, out->kind, &out->chat);
}

void sw_job_chat_close(struct sw_job_chat *chat)
{
    sw_chat_close(chat->chat);
    *chat = (struct sw_job_chat){0};
}

void sw_job_chat_print(const struct sw_job_chat *chat, const sw_dataset *dataset, int64_t tokens,
                       FILE *out)
{
    char day[11];
    const int64_t n_dropped = sw_dataset_n_dropped(dataset, SW_SPLIT_TRAIN);
    const int64_t n_cut = sw_dataset_n_cut(dataset, SW_SPLIT_TRAIN);
    sw_day_text(chat->day, day);
    fprintf(out, "data: chats, template of %s, told the day %s; loss on %s\n",
            sw_chat_source(chat->chat), day, sw_loss_on_name(sw_chat_loss_on(chat->chat)));
    if (n_cut + n_dropped > 0) {
        fprintf(out,
                "chats: of %lld %lld cut at %lld tokens, %lld left out without a token that the "
                "loss counts\n",
                (long long)(sw_dataset_n_documents(dataset, SW_SPLIT_TRAIN) + n_dropped),
                (long long)n_cut, (long long)tokens, (long long)n_dropped);
    }
}

sw_status sw_job_chat_save(const struct sw_job_chat *chat, const char *folder)
{
    char path[4096];
    const char *source = chat->chat ? sw_chat_source(chat->chat) : "";
    const size_t len = strlen(source);
    const char ending[] = ".jinja";
    const size_t n = sizeof ending - 1;
    if (!chat->chat) {
        return SW_OK;
    }
    if (sw_chat_is_given(chat->chat) || (len > n && strcmp(source + len - n, ending) == 0)) {
        return sw_chat_save_template(chat->chat, folder);
    }
    /* tokenizer_config.json has the template: a stale chat_template.jinja would override it. */
    snprintf(path, sizeof path, "%s/chat_template.jinja", folder);
    unlink(path);
    return SW_OK;
}
