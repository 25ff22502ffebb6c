// SPDX-License-Identifier: Apache-2.0
// A class is a row: which pieces come first and last, the normalizer, the pre-tokenizer, special
// tokens and template. Ids are those of transformers 5. Exceptions, as in the files that were
// published with the models: Pegasus' <mask_1> is before <mask_2>, and mBART uses the charsmap.
#include "token/piece_class.h"

#include "token/components.h"

#include <stdio.h>
#include <string.h>

#define MARK "\xE2\x96\x81"
#define METASPACE                                                                                  \
    "{\"type\": \"Metaspace\", \"replacement\": \"" MARK                                           \
    "\", \"prepend_scheme\": \"always\", \"split\": true}"
#define SEQUENCE(list) "{\"type\": \"Sequence\", \"pretokenizers\": [" list "]}"
#define NORMALIZERS(list) "{\"type\": \"Sequence\", \"normalizers\": [" list "]}"
#define REPLACE(kind, pattern, text)                                                               \
    "{\"type\": \"Replace\", \"pattern\": {\"" kind "\": \"" pattern "\"}, \"content\": \"" text   \
    "\"}"

static const char marks[] = METASPACE;
static const char words[] = SEQUENCE("{\"type\": \"WhitespaceSplit\"}, " METASPACE);
static const char marks_and_points[] =
    SEQUENCE("{\"type\": \"Punctuation\", \"behavior\": \"Isolated\"}, " METASPACE);
static const char quotes[] =
    NORMALIZERS(REPLACE("String", "``", "\\\"") ", " REPLACE("String", "''", "\\\""));
static const char no_accents[] = NORMALIZERS("{\"type\": \"NFKD\"}, {\"type\": \"StripAccents\"}");
static const char lower[] = "{\"type\": \"Lowercase\"}";
static const char few_spaces[] = REPLACE("Regex", " {2,}", " ");
static const char lines_and_few_spaces[] =
    NORMALIZERS(REPLACE("Regex", "\\\\n", " ") ", " REPLACE("Regex", " {2,}", " "));
static const char deberta[] =
    NORMALIZERS(REPLACE("Regex", "\\\\s{2,}|[\\\\n\\\\r\\\\t]",
                        " ") ", {\"type\": \"NFC\"}, "
                             "{\"type\": \"Strip\", \"strip_left\": false, \"strip_right\": true}");

enum normalizing { NORMAL_CHARSMAP, NORMAL_ALBERT, NORMAL_MBART50, NORMAL_PEGASUS, NORMAL_DEBERTA };
/* LANGUAGES: the template of sw_tokenizer_read_languages. */
enum template_kind {
    TEMPLATE_BERT,
    TEMPLATE_ROBERTA,
    TEMPLATE_ENDS,
    TEMPLATE_END,
    TEMPLATE_LANGUAGES
};

static const char *const languages[] = {
    "ar_AR", "cs_CZ", "de_DE", "en_XX", "es_XX", "et_EE", "fi_FI", "fr_XX", "gu_IN",
    "hi_IN", "it_IT", "ja_XX", "kk_KZ", "ko_KR", "lt_LT", "lv_LV", "my_MM", "ne_NP",
    "nl_XX", "ro_RO", "ru_RU", "si_LK", "tr_TR", "vi_VN", "zh_CN", /* mBART-50 has more */
    "af_ZA", "az_AZ", "bn_IN", "fa_IR", "he_IL", "hr_HR", "id_ID", "ka_GE", "km_KH",
    "mk_MK", "ml_IN", "mn_MN", "mr_IN", "pl_PL", "ps_AF", "pt_XX", "sv_SE", "sw_KE",
    "ta_IN", "te_IN", "th_TH", "tl_XX", "uk_UA", "ur_PK", "xh_ZA", "gl_ES", "sl_SI"};
enum { MBART_LANGUAGES = 25, MBART50_LANGUAGES = SW_LEN(languages) };

enum { HEAD_MOST = 5 };
struct sw_piece_class {
    const char *name;      /* without "Tokenizer" */
    const char *models[3]; /* values of model_type that imply it if no class is named */
    bool is_plain;         /* ids are those of the model; the other members are unused */
    int n_replaced;        /* the first pieces of the model, which `head` replaces */
    const char *head[HEAD_MOST];
    int n_languages; /* after the model's pieces */
    bool has_mask;   /* <mask> is the last token */
    enum normalizing normalizing;
    const char *words; /* pre-tokenizer */
    enum template_kind template;
    struct sw_class_roles roles;
};

#define FAIRSEQ_ROLES                                                                              \
    {                                                                                              \
        {"<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>"}, .mask_lstrip = true            \
    }
#define BERT_ROLES(unk, pad, lstrip)                                                               \
    {                                                                                              \
        {"[CLS]", "[SEP]", unk, "[SEP]", pad, "[CLS]", "[MASK]"}, .mask_lstrip = (lstrip)          \
    }

/* PreTrainedTokenizerFast has the ids of the model and adds no tokens, as without a class. */
static const char unnamed[] = "PreTrained";

static const struct sw_piece_class classes[] = {
    {.name = "Llama", .is_plain = true},
    {.name = "CodeLlama", .is_plain = true},
    {.name = "Gemma", .is_plain = true},
    {.name = unnamed, .is_plain = true},
    {.name = "DebertaV2",
     .models = {"deberta-v2"},
     .normalizing = NORMAL_DEBERTA,
     .words = marks,
     .template = TEMPLATE_BERT,
     .roles = BERT_ROLES("[UNK]", "[PAD]", false)},
    {.name = "Albert",
     .models = {"albert"},
     .normalizing = NORMAL_ALBERT,
     .words = words,
     .template = TEMPLATE_BERT,
     .roles = BERT_ROLES("<unk>", "<pad>", true)},
    {.name = "XLMRoberta",
     .models = {"xlm-roberta"},
     .n_replaced = 3,
     .head = {"<s>", "<pad>", "</s>", "<unk>"},
     .has_mask = true,
     .words = words,
     .template = TEMPLATE_ROBERTA,
     .roles = FAIRSEQ_ROLES},
    {.name = "Camembert",
     .models = {"camembert"},
     .n_replaced = 1,
     .head = {"<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"},
     .has_mask = true,
     .words = words,
     .template = TEMPLATE_ROBERTA,
     .roles = FAIRSEQ_ROLES},
    {.name = "MBart",
     .models = {"mbart"},
     .n_replaced = 3,
     .head = {"<s>", "<pad>", "</s>", "<unk>"},
     .n_languages = MBART_LANGUAGES,
     .has_mask = true,
     .words = words,
     .template = TEMPLATE_LANGUAGES,
     .roles = FAIRSEQ_ROLES},
    {.name = "MBart50",
     .models = {"mbart50"},
     .n_replaced = 3,
     .head = {"<s>", "<pad>", "</s>", "<unk>"},
     .n_languages = MBART50_LANGUAGES,
     .has_mask = true,
     .normalizing = NORMAL_MBART50,
     .words = marks,
     .template = TEMPLATE_LANGUAGES,
     .roles = FAIRSEQ_ROLES},
    {.name = "Pegasus", /* <mask_1>, <mask_2> and <unk_2> to <unk_102> follow the head */
     .models = {"pegasus"},
     .n_replaced = 2,
     .head = {"<pad>", "</s>"},
     .normalizing = NORMAL_PEGASUS,
     .words = marks,
     .template = TEMPLATE_END,
     .roles = {{[SW_ROLE_EOS] = "</s>",
                [SW_ROLE_UNK] = "<unk>",
                [SW_ROLE_PAD] = "<pad>",
                [SW_ROLE_MASK] = "<mask_2>"}}},
    {.name = "T5", /* <extra_id_99> to <extra_id_0> are last */
     .models = {"t5", "mt5"},
     .words = words,
     .template = TEMPLATE_ENDS,
     .roles = {{[SW_ROLE_EOS] = "</s>", [SW_ROLE_UNK] = "<unk>", [SW_ROLE_PAD] = "<pad>"}}},
    {.name = "MT5",
     .words = words,
     .template = TEMPLATE_ENDS,
     .roles = {{[SW_ROLE_EOS] = "</s>", [SW_ROLE_UNK] = "<unk>", [SW_ROLE_PAD] = "<pad>"}}},
};

static void list_names(struct sw_str *out)
{
    for (size_t i = 0; i < SW_LEN(classes); ++i) {
        sw_str_printf(out, "%s%sTokenizer", i > 0 ? ", " : "", classes[i].name);
    }
}

sw_status sw_piece_class_find(const struct sw_class_files *files, const struct sw_piece_class **out,
                              const char **name)
{
    const char *class, *model;
    const struct sw_piece_class *found = NULL;
    *out = NULL;
    SW_TRY(sw_class_files_class(files, &class));
    SW_TRY(sw_class_files_model(files, &model));
    for (size_t i = 0; i < SW_LEN(classes); ++i) {
        bool is_model = false;
        for (size_t k = 0; k < SW_LEN(classes[i].models) && classes[i].models[k] && !*class; ++k) {
            is_model = is_model || strcmp(classes[i].models[k], model) == 0;
        }
        if (is_model || sw_class_is(class, classes[i].name)) {
            found = &classes[i];
        }
    }
    *out = found && !found->is_plain ? found : NULL;
    *name = found ? found->name : unnamed;
    if (!*class || found) {
        return SW_OK;
    }
    struct sw_str names = {0};
    list_names(&names);
    const sw_status st =
        SW_FAIL(SW_E_UNSUP,
                "the class %.60s of a SentencePiece model is not built; there are %s; any "
                "class works with a tokenizer.json in the folder",
                class, sw_str_text(&names));
    sw_str_fini(&names);
    return st;
}

/* ---- settings ---- */

struct building {
    const struct sw_piece_class *class;
    const struct sw_class_files *files;
    struct sw_sentencepiece_parts parts;
    struct sw_pipeline *self;
};

static sw_status get_bool(const struct building *b, const char *key, bool usual, bool *out)
{
    return sw_json_get_bool(b->files->settings, sw_json_root(b->files->settings), key, usual, out);
}

static sw_status get_count(const struct building *b, const char *key, int64_t usual, int64_t *out)
{
    enum { MOST = 10000 };
    SW_TRY(sw_json_get_i64(b->files->settings, sw_json_root(b->files->settings), key, usual, out));
    return *out >= 0 && *out <= MOST
               ? SW_OK
               : SW_FAIL(SW_E_FORMAT, "%s: %s is %lld, wanted 0 to %d",
                         sw_json_name(b->files->settings), key, (long long)*out, MOST);
}

static bool is_t5(const struct building *b)
{
    return b->class->template == TEMPLATE_ENDS;
}

/* ---- vocabulary ---- */

static sw_status add(struct building *b, const char *text, double score, bool special)
{
    const int64_t id = b->self->vocab.n_ids;
    SW_TRY(sw_pipeline_add_piece(b->self, text, strlen(text), score, (int32_t)id));
    const struct sw_added_token flags = {.special = true};
    /* the mask gets its flags with the other special tokens */
    return special ? sw_pipeline_add_token(b->self, text, strlen(text), id, flags, false) : SW_OK;
}

/* Pegasus' offset counts <pad> and </s> as well as the masks. */
static sw_status add_offset(struct building *b, int64_t offset)
{
    const struct sw_json_doc *doc = b->files->settings;
    const struct sw_json *root = sw_json_root(b->files->settings);
    const char *sentence, *mask = sw_tokenizer_role_text(root, "mask_token");
    char text[32];
    SW_TRY(sw_json_get_str(doc, root, "mask_token_sent", "<mask_1>", &sentence));
    SW_TRY(add(b, sentence, 0, true));
    SW_TRY(add(b, mask ? mask : b->class->roles.text[SW_ROLE_MASK], 0, false));
    for (int64_t i = 2; i < offset; ++i) {
        snprintf(text, sizeof text, "<unk_%lld>", (long long)i);
        SW_TRY(add(b, text, -100, true));
    }
    return SW_OK;
}

static sw_status add_head(struct building *b, int64_t offset)
{
    const struct sw_piece_class *class = b->class;
    for (int i = 0; i < HEAD_MOST && class->head[i]; ++i) {
        SW_TRY(add(b, class->head[i], i == 4 ? -100 : 0, false));
    }
    return class->normalizing == NORMAL_PEGASUS ? add_offset(b, offset) : SW_OK;
}

/* Control pieces are special tokens, and user-defined ones are added tokens. Pegasus' class forgets
 * both. */
static sw_status add_pieces(struct building *b)
{
    const struct sw_sentencepiece_parts *parts = &b->parts;
    for (int64_t i = b->class->n_replaced; i < parts->n; ++i) {
        const struct sw_vocab_token *piece = sw_vocab_token(parts->vocab, i);
        const enum sw_piece_kind kind = (enum sw_piece_kind)parts->kinds[i];
        const struct sw_added_token flags = {.special = kind == SW_PIECE_CONTROL};
        const int64_t id = b->self->vocab.n_ids;
        SW_TRY(
            sw_pipeline_add_piece(b->self, piece->text, piece->len, parts->scores[i], (int32_t)id));
        if (b->class->normalizing != NORMAL_PEGASUS &&
            (kind == SW_PIECE_CONTROL || kind == SW_PIECE_USER_DEFINED)) {
            SW_TRY(sw_pipeline_add_token(b->self, piece->text, piece->len, id, flags, false));
        }
    }
    return SW_OK;
}

static sw_status add_tail(struct building *b, int64_t extra_ids)
{
    char text[32];
    for (int64_t i = extra_ids - 1; i >= 0; --i) {
        snprintf(text, sizeof text, "<extra_id_%lld>", (long long)i);
        SW_TRY(add(b, text, 0, true));
    }
    for (int i = 0; i < b->class->n_languages; ++i) {
        SW_TRY(add(b, languages[i], 0, true));
    }
    return b->class->has_mask ? add(b, "<mask>", 0, false) : SW_OK;
}

static sw_status set_vocabulary(struct building *b)
{
    const struct sw_piece_class *class = b->class;
    const char *unknown = class->roles.text[SW_ROLE_UNK];
    int64_t extra_ids = 0, offset = 0;
    if (is_t5(b)) {
        SW_TRY(get_count(b, "extra_ids", 100, &extra_ids));
    }
    if (class->normalizing == NORMAL_PEGASUS) {
        SW_TRY(get_count(b, "offset", 103, &offset));
    }
    if (b->parts.n <= class->n_replaced || !b->parts.is_unigram) {
        return SW_FAIL(SW_E_FORMAT,
                       "%s of %lld pieces, wanted a Unigram model of more than %d for "
                       "the class %s",
                       b->parts.is_unigram ? "a model" : "a BPE model", (long long)b->parts.n,
                       class->n_replaced, class->name);
    }
    SW_TRY(sw_pipeline_open_pieces(b->self, b->parts.n + HEAD_MOST + offset + extra_ids +
                                                class->n_languages + 1));
    SW_TRY(add_head(b, offset));
    SW_TRY(add_pieces(b));
    SW_TRY(add_tail(b, extra_ids));
    b->self->unigram.n_scores = b->self->vocab.n_ids;
    b->self->unigram.unknown = sw_vocab_find(&b->self->vocab, unknown, strlen(unknown));
    sw_pipeline_close_pieces(b->self);
    return b->self->unigram.unknown >= 0
               ? SW_OK
               : SW_FAIL(SW_E_FORMAT, "no piece %s, wanted the unknown one of the class %s",
                         unknown, class->name);
}

/* ---- components ---- */

static sw_status read_component(struct building *b, const char *text,
                                sw_status (*read)(struct sw_components *in,
                                                  const struct sw_json *component))
{
    static const struct sw_tokenizer_options as_file = {0};
    struct sw_components in = {.self = b->self, .options = &as_file};
    SW_TRY(sw_json_parse(b->class->name, text, strlen(text), SW_JSON_STRICT, &in.doc));
    const sw_status st = read(&in, sw_json_root(in.doc));
    sw_json_close(in.doc);
    return st;
}

static sw_status normalize_by(struct building *b, const char *text)
{
    return read_component(b, text, sw_component_normalizer);
}

static sw_status add_charsmap(struct building *b)
{
    struct sw_normal_step *step;
    if (b->parts.charsmap_len == 0) {
        return SW_OK;
    }
    SW_TRY(sw_normalizer_add(&b->self->normalizer, SW_NORMAL_PRECOMPILED, &step));
    return sw_charsmap_init(&step->charsmap, b->parts.charsmap, b->parts.charsmap_len);
}

static sw_status set_normalizer(struct building *b)
{
    const enum normalizing kind = b->class->normalizing;
    bool lowers, accents;
    SW_TRY(get_bool(b, "do_lower_case", kind == NORMAL_ALBERT, &lowers));
    SW_TRY(get_bool(b, "keep_accents", false, &accents));
    switch (kind) {
    case NORMAL_ALBERT:
        SW_TRY(normalize_by(b, quotes));
        SW_TRY(accents ? SW_OK : normalize_by(b, no_accents));
        SW_TRY(lowers ? normalize_by(b, lower) : SW_OK);
        return add_charsmap(b);
    case NORMAL_DEBERTA:
        SW_TRY(lowers ? normalize_by(b, lower) : SW_OK);
        return normalize_by(b, deberta);
    case NORMAL_MBART50:
        SW_TRY(add_charsmap(b));
        return normalize_by(b, few_spaces);
    case NORMAL_PEGASUS:
        SW_TRY(add_charsmap(b));
        return normalize_by(b, b->parts.charsmap_len > 0 ? few_spaces : lines_and_few_spaces);
    default:
        return add_charsmap(b);
    }
}

static sw_status set_words(struct building *b)
{
    bool prefix, points = false;
    SW_TRY(get_bool(b, "add_prefix_space", true, &prefix));
    if (b->class->normalizing == NORMAL_DEBERTA) {
        SW_TRY(get_bool(b, "split_by_punct", false, &points));
    }
    if (!prefix) {
        return SW_FAIL(SW_E_UNSUP, "%s: add_prefix_space false is not built",
                       sw_json_name(b->files->settings));
    }
    SW_TRY(
        read_component(b, points ? marks_and_points : b->class->words, sw_component_pretokenizer));
    return read_component(b, marks, sw_component_decoder);
}

/* Texts, the last of which ends with eos. */
static sw_status end_last(struct sw_tokenizer *super)
{
    SW_TRY(sw_template_add(&super->single, SW_TEMPLATE_SPECIAL, super->eos, 0));
    sw_template_fini(&super->pair);
    SW_TRY(sw_template_add(&super->pair, SW_TEMPLATE_FIRST, -1, 0));
    SW_TRY(sw_template_add(&super->pair, SW_TEMPLATE_SECOND, -1, 0));
    return sw_template_add(&super->pair, SW_TEMPLATE_SPECIAL, super->eos, 0);
}

static sw_status set_template(struct building *b, const int32_t ids[SW_ROLES])
{
    struct sw_tokenizer *super = &b->self->super;
    super->bos = ids[SW_ROLE_BOS];
    super->eos = ids[SW_ROLE_EOS];
    super->pad = ids[SW_ROLE_PAD];
    switch (b->class->template) {
    case TEMPLATE_BERT:
        return sw_tokenizer_mark(super, ids[SW_ROLE_CLS], ids[SW_ROLE_SEP], false);
    case TEMPLATE_ROBERTA:
        return sw_tokenizer_mark(super, super->bos, super->eos, true);
    case TEMPLATE_ENDS:
        return sw_tokenizer_surround(super, false, true);
    case TEMPLATE_END:
        return end_last(super);
    default:
        return SW_OK;
    }
}

static sw_status build(struct building *b)
{
    int32_t ids[SW_ROLES];
    b->self->super.class_name = b->class->name;
    SW_TRY(set_vocabulary(b));
    SW_TRY(set_normalizer(b));
    SW_TRY(set_words(b));
    SW_TRY(sw_class_files_add_tokens(b->files, &b->class->roles, true, b->self, ids));
    SW_TRY(set_template(b, ids));
    return sw_pipeline_finish(b->self);
}

sw_status sw_piece_class_open(const struct sw_piece_class *class,
                              const struct sw_class_files *files, const struct sw_tokenizer *model,
                              struct sw_pipeline **out)
{
    struct building b = {.class = class, .files = files};
    sw_sentencepiece_parts(model, &b.parts);
    SW_TRY(sw_pipeline_open(&b.self));
    const sw_status st = build(&b);
    if (st < 0) {
        sw_tokenizer_close(&b.self->super);
        return st;
    }
    *out = b.self;
    return SW_OK;
}
