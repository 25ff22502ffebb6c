// SPDX-License-Identifier: Apache-2.0
// tokenizer.json -> byte-level BPE. Every component is null, or an object whose `type` this file
// knows, or the file is refused with the name of what is not built: ids that are nearly right are
// worse than none.
#include "data/byte_bpe.h"

#include <string.h>

struct source {
    struct sw_json_doc *doc;
    struct sw_byte_bpe *self;
    const struct sw_tokenizer_options *options;
};

/* ---- small checks ---- */

static bool is_null(const struct sw_json *node)
{
    return !node || node->type == SW_JSON_NULL;
}

static sw_status want(const struct sw_json *node, enum sw_json_type type, const char *what)
{
    if (!node) {
        return SW_FAIL(SW_E_FORMAT, "%s is missing", what);
    }
    if (node->type != type) {
        return SW_FAIL(SW_E_FORMAT, "line %d: %s is %s, wanted %s", node->line, what,
                       sw_json_type_name(node->type), sw_json_type_name(type));
    }
    return SW_OK;
}

static sw_status member(const struct sw_json *object, const char *key, enum sw_json_type type,
                        const struct sw_json **out)
{
    *out = sw_json_get(object, key);
    return want(*out, type, key);
}

static sw_status unbuilt(const char *component, const char *what)
{
    return SW_FAIL(SW_E_UNSUP, "%s %s is not built; byte-level BPE is", component, what);
}

/* The `type` of a component that is an object. */
static sw_status type_of(const struct sw_json *component, const char *what, const char **out)
{
    const struct sw_json *type;
    SW_TRY(want(component, SW_JSON_OBJECT, what));
    SW_TRY(member(component, "type", SW_JSON_STRING, &type));
    *out = type->string;
    return SW_OK;
}

static sw_status get_bool(const struct source *in, const struct sw_json *object, const char *key,
                          bool fallback, bool *out)
{
    return sw_json_get_bool(in->doc, object, key, fallback, out);
}

/* ---- model ---- */

static sw_status read_vocab(struct source *in, const struct sw_json *model)
{
    const struct sw_json *vocab;
    SW_TRY(member(model, "vocab", SW_JSON_OBJECT, &vocab));
    for (const struct sw_json *token = vocab->first; token; token = token->next) {
        SW_TRY(want(token, SW_JSON_INT, "an id of vocab"));
        SW_TRY(sw_vocab_add(&in->self->vocab, token->key, token->key_len, token->integer));
    }
    return SW_OK;
}

/* "a b" or ["a", "b"]. */
static sw_status read_merge(struct source *in, const struct sw_json *merge, int64_t rank)
{
    if (merge->type == SW_JSON_STRING) {
        const char *space = memchr(merge->string, ' ', merge->string_len);
        if (!space) {
            return SW_FAIL(SW_E_FORMAT, "line %d: merge '%.40s' has no space", merge->line,
                           merge->string);
        }
        const size_t n_left = (size_t)(space - merge->string);
        return sw_bpe_add_merge(&in->self->bpe, merge->string, n_left, space + 1,
                                merge->string_len - n_left - 1, rank);
    }
    SW_TRY(want(merge, SW_JSON_ARRAY, "a merge"));
    if (merge->n_children != 2) {
        return SW_FAIL(SW_E_FORMAT, "line %d: a merge has %lld parts, wanted 2", merge->line,
                       (long long)merge->n_children);
    }
    const struct sw_json *left = merge->first, *right = merge->last;
    SW_TRY(want(left, SW_JSON_STRING, "a part of a merge"));
    SW_TRY(want(right, SW_JSON_STRING, "a part of a merge"));
    return sw_bpe_add_merge(&in->self->bpe, left->string, left->string_len, right->string,
                            right->string_len, rank);
}

static sw_status read_merges(struct source *in, const struct sw_json *model)
{
    const struct sw_json *merges;
    int64_t rank = 0;
    SW_TRY(member(model, "merges", SW_JSON_ARRAY, &merges));
    for (const struct sw_json *merge = merges->first; merge; merge = merge->next) {
        SW_TRY(read_merge(in, merge, rank++));
    }
    return SW_OK;
}

/* Options of BPE that change ids and have no byte-level use: only their neutral values are
 * taken. */
static sw_status refuse_model_options(const struct source *in, const struct sw_json *model)
{
    static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    bool byte_fallback;
    double dropout;
    for (size_t i = 0; i < SW_LEN(affixes); ++i) {
        const char *affix;
        SW_TRY(sw_json_get_str(in->doc, model, affixes[i], "", &affix));
        if (affix[0] != '\0') {
            return unbuilt("model BPE with", affixes[i]);
        }
    }
    SW_TRY(get_bool(in, model, "byte_fallback", false, &byte_fallback));
    if (byte_fallback) {
        return unbuilt("model BPE with", "byte_fallback");
    }
    SW_TRY(sw_json_get_f64(in->doc, model, "dropout", 0.0, &dropout));
    if (dropout != 0.0) {
        return unbuilt("model BPE with", "dropout");
    }
    return SW_OK;
}

static sw_status read_model(struct source *in, const struct sw_json *model)
{
    struct sw_byte_bpe *self = in->self;
    const char *type, *unknown;
    SW_TRY(want(model, SW_JSON_OBJECT, "model"));
    /* Files written before the key existed are told by their merges. */
    SW_TRY(
        sw_json_get_str(in->doc, model, "type", sw_json_get(model, "merges") ? "BPE" : "", &type));
    if (strcmp(type, "BPE") != 0) {
        return unbuilt("model", type[0] ? type : "without a type");
    }
    SW_TRY(refuse_model_options(in, model));
    SW_TRY(read_vocab(in, model));
    SW_TRY(sw_bpe_init(&self->bpe, &self->vocab));
    SW_TRY(read_merges(in, model));
    SW_TRY(get_bool(in, model, "ignore_merges", false, &self->bpe.whole_word_first));
    SW_TRY(get_bool(in, model, "fuse_unk", false, &self->bpe.fuse_unknown));
    SW_TRY(sw_json_get_str(in->doc, model, "unk_token", NULL, &unknown));
    if (unknown) {
        self->bpe.unknown = sw_vocab_find(&self->vocab, unknown, strlen(unknown));
        if (self->bpe.unknown < 0) {
            return SW_FAIL(SW_E_FORMAT, "unk_token '%.40s' is not in the vocabulary", unknown);
        }
    }
    return SW_OK;
}

/* ---- added tokens ---- */

sw_status sw_byte_bpe_add_entry(struct sw_byte_bpe *tokenizer, const struct sw_json_doc *doc,
                                const struct sw_json *entry, int64_t id)
{
    const struct sw_json *content;
    struct sw_added_token flags = {0};
    bool normalized;
    SW_TRY(member(entry, "content", SW_JSON_STRING, &content));
    SW_TRY(sw_json_get_bool(doc, entry, "special", false, &flags.special));
    SW_TRY(sw_json_get_bool(doc, entry, "single_word", false, &flags.single_word));
    SW_TRY(sw_json_get_bool(doc, entry, "lstrip", false, &flags.lstrip));
    SW_TRY(sw_json_get_bool(doc, entry, "rstrip", false, &flags.rstrip));
    SW_TRY(sw_json_get_bool(doc, entry, "normalized", !flags.special, &normalized));
    return sw_byte_bpe_add_token(tokenizer, content->string, content->string_len, id, flags,
                                 normalized);
}

static sw_status read_added_tokens(struct source *in, const struct sw_json *list)
{
    if (is_null(list)) {
        return SW_OK;
    }
    SW_TRY(want(list, SW_JSON_ARRAY, "added_tokens"));
    for (const struct sw_json *entry = list->first; entry; entry = entry->next) {
        const struct sw_json *id;
        SW_TRY(want(entry, SW_JSON_OBJECT, "an added token"));
        SW_TRY(member(entry, "id", SW_JSON_INT, &id));
        SW_TRY(sw_byte_bpe_add_entry(in->self, in->doc, entry, id->integer));
    }
    return SW_OK;
}

/* ---- normalizer ---- */

static sw_status read_normalizer(struct source *in, const struct sw_json *component, int depth)
{
    struct sw_normalizer *normalizer = &in->self->normalizer;
    const char *type;
    if (is_null(component)) {
        return SW_OK;
    }
    SW_TRY(type_of(component, "normalizer", &type));
    if (strcmp(type, "Sequence") == 0 && depth == 0) {
        const struct sw_json *list;
        SW_TRY(member(component, "normalizers", SW_JSON_ARRAY, &list));
        for (const struct sw_json *step = list->first; step; step = step->next) {
            SW_TRY(read_normalizer(in, step, depth + 1));
        }
        return SW_OK;
    }
    if (normalizer->n_steps == SW_NORMALIZER_MAX ||
        !sw_normal_form_by_name(type, &normalizer->steps[normalizer->n_steps])) {
        return unbuilt("normalizer", type);
    }
    normalizer->n_steps++;
    return SW_OK;
}

/* ---- pre-tokenizer ---- */

static sw_status read_split(struct source *in, const struct sw_json *component)
{
    static const char *const names[] = {
        [SW_SPLIT_ISOLATED] = "Isolated",
        [SW_SPLIT_REMOVED] = "Removed",
        [SW_SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
        [SW_SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
        [SW_SPLIT_CONTIGUOUS] = "Contiguous",
    };
    const struct sw_json *pattern, *behavior;
    bool invert;
    size_t i_behavior = 0;
    SW_TRY(member(component, "pattern", SW_JSON_OBJECT, &pattern));
    SW_TRY(member(component, "behavior", SW_JSON_STRING, &behavior));
    SW_TRY(get_bool(in, component, "invert", false, &invert));
    const bool literal = sw_json_get(pattern, "Regex") == NULL;
    SW_TRY(member(pattern, literal ? "String" : "Regex", SW_JSON_STRING, &pattern));
    while (i_behavior < SW_LEN(names) && strcmp(behavior->string, names[i_behavior]) != 0) {
        i_behavior++;
    }
    if (i_behavior == SW_LEN(names)) {
        return unbuilt("pre_tokenizer Split with behavior", behavior->string);
    }
    return sw_pretokenizer_add(&in->self->pretokenizer, pattern->string, pattern->string_len,
                               literal, (enum sw_split_behavior)i_behavior, invert);
}

static sw_status read_digits(struct source *in, const struct sw_json *component)
{
    bool individual;
    SW_TRY(get_bool(in, component, "individual_digits", false, &individual));
    return sw_pretokenizer_add(&in->self->pretokenizer, "\\p{N}", 5, false,
                               individual ? SW_SPLIT_ISOLATED : SW_SPLIT_CONTIGUOUS, false);
}

static sw_status read_byte_level(struct source *in, const struct sw_json *component)
{
    struct sw_pretokenizer *pretokenizer = &in->self->pretokenizer;
    bool use_regex;
    SW_TRY(get_bool(in, component, "use_regex", true, &use_regex));
    SW_TRY(get_bool(in, component, "add_prefix_space", true, &pretokenizer->prefix_space));
    if (in->options->prefix_space != SW_PREFIX_AS_FILE) {
        pretokenizer->prefix_space = in->options->prefix_space == SW_PREFIX_ON;
    }
    pretokenizer->i_prefix_step = pretokenizer->n_steps;
    if (use_regex) {
        SW_TRY(sw_pretokenizer_add(pretokenizer, sw_gpt2_pattern, strlen(sw_gpt2_pattern), false,
                                   SW_SPLIT_ISOLATED, false));
    }
    return SW_OK;
}

/* One member of the chain; only the last may be, and has to be, ByteLevel. */
static sw_status read_pretokenizer(struct source *in, const struct sw_json *component, bool last)
{
    const char *type;
    SW_TRY(type_of(component, "pre_tokenizer", &type));
    if (last && strcmp(type, "ByteLevel") == 0) {
        return read_byte_level(in, component);
    }
    if (!last && strcmp(type, "Split") == 0) {
        return read_split(in, component);
    }
    if (!last && strcmp(type, "Digits") == 0) {
        return read_digits(in, component);
    }
    return SW_FAIL(SW_E_UNSUP, "pre_tokenizer %s is not built%s", type,
                   last ? " as the last one; ByteLevel is" : "; Split, Digits and ByteLevel are");
}

static sw_status read_pretokenizers(struct source *in, const struct sw_json *component)
{
    const char *type;
    if (is_null(component)) {
        return unbuilt("model BPE with pre_tokenizer", "null");
    }
    SW_TRY(type_of(component, "pre_tokenizer", &type));
    if (strcmp(type, "Sequence") != 0) {
        return read_pretokenizer(in, component, true);
    }
    const struct sw_json *list;
    SW_TRY(member(component, "pretokenizers", SW_JSON_ARRAY, &list));
    if (!list->first) {
        return unbuilt("model BPE with pre_tokenizer", "Sequence of none");
    }
    for (const struct sw_json *step = list->first; step; step = step->next) {
        SW_TRY(read_pretokenizer(in, step, step->next == NULL));
    }
    return SW_OK;
}

/* ---- post-processor ---- */

static sw_status add_item(struct sw_template *template, enum sw_template_part part, int64_t id,
                          int64_t type_id)
{
    if (type_id < 0 || type_id > INT32_MAX || id < -1 || id > SW_VOCAB_MAX_ID) {
        return SW_FAIL(SW_E_FORMAT, "post_processor: id %lld with type_id %lld", (long long)id,
                       (long long)type_id);
    }
    return sw_template_add(template, part, (int32_t)id, (int32_t)type_id);
}

static sw_status read_special(const struct sw_json *component, const char *name, int64_t type_id,
                              struct sw_template *template)
{
    const struct sw_json *table, *special, *ids;
    SW_TRY(member(component, "special_tokens", SW_JSON_OBJECT, &table));
    SW_TRY(member(table, name, SW_JSON_OBJECT, &special));
    SW_TRY(member(special, "ids", SW_JSON_ARRAY, &ids));
    for (const struct sw_json *id = ids->first; id; id = id->next) {
        SW_TRY(want(id, SW_JSON_INT, "an id of special_tokens"));
        SW_TRY(add_item(template, SW_TEMPLATE_SPECIAL, id->integer, type_id));
    }
    return SW_OK;
}

static sw_status read_sequence(const struct sw_json *body, int64_t type_id, bool pair,
                               struct sw_template *template)
{
    const struct sw_json *name;
    SW_TRY(member(body, "id", SW_JSON_STRING, &name));
    const bool second = strcmp(name->string, "B") == 0;
    if ((!second && strcmp(name->string, "A") != 0) || (second && !pair)) {
        return SW_FAIL(SW_E_FORMAT, "line %d: TemplateProcessing: sequence '%.20s'", name->line,
                       name->string);
    }
    return add_item(template, second ? SW_TEMPLATE_SECOND : SW_TEMPLATE_FIRST, -1, type_id);
}

/* One of the two lists of TemplateProcessing, in place of what the template held. */
static sw_status read_template(struct source *in, const struct sw_json *component, bool pair,
                               struct sw_template *template)
{
    const struct sw_json *list;
    sw_template_fini(template);
    SW_TRY(member(component, pair ? "pair" : "single", SW_JSON_ARRAY, &list));
    for (const struct sw_json *item = list->first; item; item = item->next) {
        const struct sw_json *body;
        int64_t type_id;
        SW_TRY(want(item, SW_JSON_OBJECT, "an item of TemplateProcessing"));
        const bool special = sw_json_get(item, "SpecialToken") != NULL;
        SW_TRY(member(item, special ? "SpecialToken" : "Sequence", SW_JSON_OBJECT, &body));
        SW_TRY(sw_json_get_i64(in->doc, body, "type_id", 0, &type_id));
        if (special) {
            const struct sw_json *name;
            SW_TRY(member(body, "id", SW_JSON_STRING, &name));
            SW_TRY(read_special(component, name->string, type_id, template));
        } else {
            SW_TRY(read_sequence(body, type_id, pair, template));
        }
    }
    return SW_OK;
}

/* ["</s>", 2] */
static sw_status read_named_id(const struct sw_json *component, const char *key, int64_t *out)
{
    const struct sw_json *value;
    SW_TRY(member(component, key, SW_JSON_ARRAY, &value));
    if (value->n_children != 2 || value->last->type != SW_JSON_INT) {
        return SW_FAIL(SW_E_FORMAT, "line %d: %s is not [token, id]", value->line, key);
    }
    *out = value->last->integer;
    return SW_OK;
}

/* RoBERTa: <s> A </s></s> B </s>, all of type 0. BERT: [CLS] A [SEP] B [SEP], B and its end type
 * 1. */
static sw_status read_pair_of_marks(struct source *in, const struct sw_json *component,
                                    bool roberta)
{
    struct sw_tokenizer *super = &in->self->super;
    const int32_t second_type = roberta ? 0 : 1;
    int64_t cls, sep;
    SW_TRY(read_named_id(component, "cls", &cls));
    SW_TRY(read_named_id(component, "sep", &sep));
    struct sw_template *templates[] = {&super->single, &super->pair};
    for (int i = 0; i < 2; ++i) {
        sw_template_fini(templates[i]);
        SW_TRY(add_item(templates[i], SW_TEMPLATE_SPECIAL, cls, 0));
        SW_TRY(add_item(templates[i], SW_TEMPLATE_FIRST, -1, 0));
        SW_TRY(add_item(templates[i], SW_TEMPLATE_SPECIAL, sep, 0));
    }
    if (roberta) {
        SW_TRY(add_item(&super->pair, SW_TEMPLATE_SPECIAL, sep, 0));
    }
    SW_TRY(add_item(&super->pair, SW_TEMPLATE_SECOND, -1, second_type));
    return add_item(&super->pair, SW_TEMPLATE_SPECIAL, sep, second_type);
}

/* *n_adding counts the processors that add tokens: how two of them combine is not built. */
static sw_status read_processor(struct source *in, const struct sw_json *component, int depth,
                                int *n_adding)
{
    const char *type;
    if (is_null(component)) {
        return SW_OK;
    }
    SW_TRY(type_of(component, "post_processor", &type));
    if (strcmp(type, "ByteLevel") == 0) { /* only moves offsets, which we do not give */
        return SW_OK;
    }
    if (strcmp(type, "Sequence") == 0 && depth == 0) {
        const struct sw_json *list;
        SW_TRY(member(component, "processors", SW_JSON_ARRAY, &list));
        for (const struct sw_json *step = list->first; step; step = step->next) {
            SW_TRY(read_processor(in, step, depth + 1, n_adding));
        }
        return SW_OK;
    }
    if (++*n_adding > 1) {
        return unbuilt("post_processor Sequence with a second", type);
    }
    if (strcmp(type, "TemplateProcessing") == 0) {
        SW_TRY(read_template(in, component, false, &in->self->super.single));
        return read_template(in, component, true, &in->self->super.pair);
    }
    if (strcmp(type, "RobertaProcessing") == 0 || strcmp(type, "BertProcessing") == 0) {
        return read_pair_of_marks(in, component, type[0] == 'R');
    }
    return unbuilt("post_processor", type);
}

/* ---- decoder: ByteLevel, which null is taken for (the inverse of what encoding did) ---- */

static sw_status check_decoder(const struct sw_json *component, int depth)
{
    const char *type;
    if (is_null(component)) {
        return SW_OK;
    }
    SW_TRY(type_of(component, "decoder", &type));
    if (strcmp(type, "Sequence") == 0 && depth == 0) {
        const struct sw_json *list;
        SW_TRY(member(component, "decoders", SW_JSON_ARRAY, &list));
        if (list->n_children == 1) {
            return check_decoder(list->first, depth + 1);
        }
    }
    return strcmp(type, "ByteLevel") == 0 ? SW_OK : unbuilt("decoder", type);
}

/* ---- the file ---- */

static sw_status check_version(const struct sw_json *root)
{
    const struct sw_json *version;
    SW_TRY(want(root, SW_JSON_OBJECT, "the file"));
    SW_TRY(member(root, "version", SW_JSON_STRING, &version));
    if (strcmp(version->string, "1.0") != 0) {
        return SW_FAIL(SW_E_FORMAT, "version '%.20s', wanted '1.0'", version->string);
    }
    return SW_OK;
}

static sw_status read_root(struct source *in, const struct sw_json *root)
{
    static const char *const batch_blocks[] = {"truncation", "padding"};
    int n_adding = 0;
    SW_TRY(check_version(root));
    for (size_t i = 0; i < SW_LEN(batch_blocks); ++i) {
        if (!is_null(sw_json_get(root, batch_blocks[i]))) {
            return unbuilt(batch_blocks[i], "inside tokenizer.json");
        }
    }
    SW_TRY(read_model(in, sw_json_get(root, "model")));
    SW_TRY(read_normalizer(in, sw_json_get(root, "normalizer"), 0));
    SW_TRY(read_pretokenizers(in, sw_json_get(root, "pre_tokenizer")));
    SW_TRY(read_processor(in, sw_json_get(root, "post_processor"), 0, &n_adding));
    SW_TRY(check_decoder(sw_json_get(root, "decoder"), 0));
    SW_TRY(read_added_tokens(in, sw_json_get(root, "added_tokens")));
    return sw_byte_bpe_finish(in->self);
}

/* The components; the document is many times the file's size and gone when this returns. */
static sw_status read_text(const char *name, const char *text, size_t len, struct source *in)
{
    sw_status st;
    SW_TRY(sw_json_parse(name, text, len, SW_JSON_STRICT, &in->doc));
    st = read_root(in, sw_json_root(in->doc));
    sw_json_close(in->doc);
    return st < 0 ? sw_fail_prefix(st, "%s", name) : SW_OK;
}

sw_status sw_tokenizer_parse_json(const char *name, const char *text, size_t len,
                                  const struct sw_tokenizer_options *options,
                                  struct sw_byte_bpe **out)
{
    sw_status st;
    struct source in = {.options = options};
    SW_TRY(sw_byte_bpe_open(&in.self));
    SW_TRY_OR(fail, read_text(name, text, len, &in));
    SW_TRY_OR(fail, sw_tokenizer_keep_file(&in.self->super, "tokenizer.json", text, len));
    *out = in.self;
    return SW_OK;
fail:
    sw_tokenizer_close(&in.self->super);
    return st;
}

sw_status sw_tokenizer_open_json(const char *path, const struct sw_tokenizer_options *options,
                                 struct sw_tokenizer **out)
{
    sw_status st;
    struct sw_byte_bpe *self = NULL;
    struct sw_str folder = {0};
    char *data = NULL;
    size_t len;
    SW_TRY(sw_file_read(path, &data, &len));
    SW_TRY_OR(done, sw_tokenizer_folder_of(path, &folder));
    SW_TRY_OR(done, sw_tokenizer_parse_json(path, data, len, options, &self));
    SW_TRY_OR(done, sw_byte_bpe_read_roles(self, folder.ptr));
    *out = &self->super;
    self = NULL;
done:
    sw_tokenizer_close(self ? &self->super : NULL);
    sw_str_fini(&folder);
    sw_free(data);
    return st;
}
