// SPDX-License-Identifier: Apache-2.0
// tokenizer.json: the model, the added tokens, the template of special tokens; components.c reads
// the rest.
#include "token/components.h"

#include <string.h>

/* ---- model ---- */

static sw_status read_vocab(struct sw_components *in, const struct sw_json *model)
{
    const struct sw_json *vocab;
    SW_TRY(sw_component_member(model, "vocab", SW_JSON_OBJECT, &vocab));
    for (const struct sw_json *token = vocab->first; token; token = token->next) {
        SW_TRY(sw_component_want(token, SW_JSON_INT, "an id of vocab"));
        SW_TRY(sw_vocab_add(&in->self->vocab, token->key, token->key_len, token->integer));
    }
    return SW_OK;
}

/* "a b" or ["a", "b"]. */
static sw_status read_merge(struct sw_components *in, const struct sw_json *merge, int64_t rank)
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
    SW_TRY(sw_component_want(merge, SW_JSON_ARRAY, "a merge"));
    if (merge->n_children != 2) {
        return SW_FAIL(SW_E_FORMAT, "line %d: a merge has %lld parts, wanted 2", merge->line,
                       (long long)merge->n_children);
    }
    const struct sw_json *left = merge->first, *right = merge->last;
    SW_TRY(sw_component_want(left, SW_JSON_STRING, "a part of a merge"));
    SW_TRY(sw_component_want(right, SW_JSON_STRING, "a part of a merge"));
    return sw_bpe_add_merge(&in->self->bpe, left->string, left->string_len, right->string,
                            right->string_len, rank);
}

static sw_status read_merges(struct sw_components *in, const struct sw_json *model)
{
    const struct sw_json *merges;
    int64_t rank = 0;
    SW_TRY(sw_component_member(model, "merges", SW_JSON_ARRAY, &merges));
    for (const struct sw_json *merge = merges->first; merge; merge = merge->next) {
        SW_TRY(read_merge(in, merge, rank++));
    }
    return SW_OK;
}

static sw_status refuse_dropout(const struct sw_components *in, const struct sw_json *model)
{
    double dropout;
    SW_TRY(sw_json_get_f64(in->doc, model, "dropout", 0.0, &dropout));
    return dropout != 0.0 ? sw_component_unbuilt("model BPE with", "dropout") : SW_OK;
}

static sw_status read_affixes(struct sw_components *in, const struct sw_json *model)
{
    const char *prefix, *suffix;
    SW_TRY(sw_json_get_str(in->doc, model, "continuing_subword_prefix", "", &prefix));
    SW_TRY(sw_json_get_str(in->doc, model, "end_of_word_suffix", "", &suffix));
    return sw_bpe_set_affixes(&in->self->bpe, prefix, suffix);
}

/* Finds the token of unknown words; -1: the model names none. */
static sw_status find_unknown(const struct sw_components *in, const struct sw_json *model,
                              int32_t *out)
{
    const char *unknown;
    *out = -1;
    SW_TRY(sw_json_get_str(in->doc, model, "unk_token", NULL, &unknown));
    if (unknown) {
        *out = sw_vocab_find(&in->self->vocab, unknown, strlen(unknown));
        if (*out < 0) {
            return SW_FAIL(SW_E_FORMAT, "unk_token '%.40s' is not in the vocabulary", unknown);
        }
    }
    return SW_OK;
}

/* Reads BPE: by bytes if the pre-tokenizer is byte-level, else by characters. */
static sw_status read_bpe(struct sw_components *in, const struct sw_json *model)
{
    struct sw_pipeline *self = in->self;
    bool byte_fallback;
    SW_TRY(refuse_dropout(in, model));
    SW_TRY(read_vocab(in, model));
    SW_TRY(sw_bpe_init(&self->bpe, &self->vocab));
    SW_TRY(sw_json_get_bool(in->doc, model, "byte_fallback", false, &byte_fallback));
    if (!in->byte_level) {
        sw_bpe_use_chars(&self->bpe, byte_fallback);
        sw_pipeline_set_kind(self, SW_MODEL_CHAR_BPE);
    } else if (byte_fallback) {
        return sw_component_unbuilt("model BPE after ByteLevel with", "byte_fallback");
    }
    SW_TRY(read_affixes(in, model));
    SW_TRY(read_merges(in, model));
    SW_TRY(sw_json_get_bool(in->doc, model, "ignore_merges", false, &self->bpe.whole_word_first));
    SW_TRY(sw_json_get_bool(in->doc, model, "fuse_unk", false, &self->bpe.fuse_unknown));
    return find_unknown(in, model, &self->bpe.unknown);
}

static sw_status read_wordpiece(struct sw_components *in, const struct sw_json *model)
{
    struct sw_wordpiece *self = &in->self->wordpiece;
    const char *prefix;
    SW_TRY(read_vocab(in, model));
    sw_pipeline_set_kind(in->self, SW_MODEL_WORDPIECE);
    SW_TRY(sw_json_get_str(in->doc, model, "continuing_subword_prefix", "##", &prefix));
    sw_str_puts(&self->prefix, prefix);
    SW_TRY(sw_json_get_i64(in->doc, model, "max_input_chars_per_word", 100, &self->max_chars));
    SW_TRY(find_unknown(in, model, &self->unknown));
    if (self->unknown < 0) {
        return SW_FAIL(SW_E_FORMAT, "model WordPiece: unk_token is missing");
    }
    SW_TRY(self->prefix.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for a tokenizer") : SW_OK);
    return sw_wordpiece_init(self, &in->self->vocab);
}

/* A word that is not a token becomes unk_token, which need not be a token either. */
static sw_status read_word_level(struct sw_components *in, const struct sw_json *model)
{
    const struct sw_json *unknown;
    SW_TRY(read_vocab(in, model));
    sw_pipeline_set_kind(in->self, SW_MODEL_WORD_LEVEL);
    SW_TRY(sw_component_member(model, "unk_token", SW_JSON_STRING, &unknown));
    in->self->unknown_word = sw_vocab_find(&in->self->vocab, unknown->string, unknown->string_len);
    return SW_OK;
}

sw_status sw_pipeline_open_pieces(struct sw_pipeline *tokenizer, int64_t n)
{
    struct sw_unigram *unigram = &tokenizer->unigram;
    sw_pipeline_set_kind(tokenizer, SW_MODEL_UNIGRAM);
    if (n > SW_VOCAB_MAX_ID) {
        return SW_FAIL(SW_E_FORMAT, "vocab has %lld pieces", (long long)n);
    }
    unigram->n_scores = n;
    unigram->scores = sw_alloc("unigram", (size_t)(n + 1) * sizeof(*unigram->scores));
    SW_TRY_ALLOC(unigram->scores, "the scores of the vocabulary");
    unigram->unknown = -1;
    return SW_OK;
}

sw_status sw_pipeline_add_piece(struct sw_pipeline *tokenizer, const char *text, size_t len,
                                double score, int32_t id)
{
    struct sw_unigram *unigram = &tokenizer->unigram;
    SW_TRY(sw_vocab_add(&tokenizer->vocab, text, len, id));
    const struct sw_vocab_token *token = sw_vocab_token(&tokenizer->vocab, id);
    unigram->scores[id] = score;
    unigram->min_score = id == 0 || score < unigram->min_score ? score : unigram->min_score;
    return token->len > 0 ? sw_prefix_add(&unigram->pieces, token->text, token->len, id) : SW_OK;
}

void sw_pipeline_close_pieces(struct sw_pipeline *tokenizer)
{
    sw_prefix_sort(&tokenizer->unigram.pieces);
    sw_vocab_find_bytes(&tokenizer->vocab, tokenizer->byte_id);
}

/* ["piece", score] */
static sw_status read_piece(struct sw_components *in, const struct sw_json *piece, int32_t id)
{
    SW_TRY(sw_component_want(piece, SW_JSON_ARRAY, "a piece of vocab"));
    const struct sw_json *text = piece->first, *score = piece->last;
    if (piece->n_children != 2 || text->type != SW_JSON_STRING ||
        (score->type != SW_JSON_FLOAT && score->type != SW_JSON_INT)) {
        return SW_FAIL(SW_E_FORMAT, "line %d: a piece of vocab is not [text, score]", piece->line);
    }
    return sw_pipeline_add_piece(in->self, text->string, text->string_len, score->number, id);
}

static sw_status read_unigram(struct sw_components *in, const struct sw_json *model)
{
    struct sw_pipeline *self = in->self;
    const struct sw_json *vocab, *unknown = sw_json_get(model, "unk_id");
    int32_t id = 0;
    SW_TRY(sw_component_member(model, "vocab", SW_JSON_ARRAY, &vocab));
    SW_TRY(sw_pipeline_open_pieces(self, vocab->n_children));
    for (const struct sw_json *piece = vocab->first; piece; piece = piece->next) {
        SW_TRY(read_piece(in, piece, id++));
    }
    sw_pipeline_close_pieces(self);
    if (!sw_component_is_null(unknown)) {
        SW_TRY(sw_component_want(unknown, SW_JSON_INT, "unk_id"));
        if (unknown->integer < 0 || unknown->integer >= id) {
            return SW_FAIL(SW_E_FORMAT, "line %d: unk_id %lld, the vocabulary has %d pieces",
                           unknown->line, (long long)unknown->integer, id);
        }
        self->unigram.unknown = (int32_t)unknown->integer;
    }
    return sw_json_get_bool(in->doc, model, "byte_fallback", false, &self->byte_fallback);
}

/* Older files lack the key `type`. Their members identify the model. */
static const char *type_by_members(const struct sw_json *model)
{
    const struct sw_json *vocab = sw_json_get(model, "vocab");
    return sw_json_get(model, "merges")            ? "BPE"
           : vocab && vocab->type == SW_JSON_ARRAY ? "Unigram"
                                                   : "";
}

static sw_status read_model(struct sw_components *in, const struct sw_json *model)
{
    const char *type;
    SW_TRY(sw_component_want(model, SW_JSON_OBJECT, "model"));
    SW_TRY(sw_json_get_str(in->doc, model, "type", type_by_members(model), &type));
    if (in->byte_level && strcmp(type, "BPE") != 0) {
        return SW_FAIL(SW_E_UNSUP, "model %s after the pre_tokenizer ByteLevel is not built", type);
    }
    return strcmp(type, "BPE") == 0         ? read_bpe(in, model)
           : strcmp(type, "WordPiece") == 0 ? read_wordpiece(in, model)
           : strcmp(type, "WordLevel") == 0 ? read_word_level(in, model)
           : strcmp(type, "Unigram") == 0
               ? read_unigram(in, model)
               : sw_component_unbuilt("model", type[0] ? type : "without a type");
}

/* ---- added tokens ---- */

sw_status sw_pipeline_add_entry(struct sw_pipeline *tokenizer, const struct sw_json_doc *doc,
                                const struct sw_json *entry, int64_t id)
{
    struct sw_added_token token = {0};
    bool normalized;
    SW_TRY(sw_added_token_read(doc, entry, &token, &normalized));
    return sw_pipeline_add_token(tokenizer, token.text, token.len, id, token, normalized);
}

static sw_status read_added_tokens(struct sw_components *in, const struct sw_json *list)
{
    if (sw_component_is_null(list)) {
        return SW_OK;
    }
    SW_TRY(sw_component_want(list, SW_JSON_ARRAY, "added_tokens"));
    for (const struct sw_json *entry = list->first; entry; entry = entry->next) {
        const struct sw_json *id;
        SW_TRY(sw_component_want(entry, SW_JSON_OBJECT, "an added token"));
        SW_TRY(sw_component_member(entry, "id", SW_JSON_INT, &id));
        SW_TRY(sw_pipeline_add_entry(in->self, in->doc, entry, id->integer));
    }
    return SW_OK;
}

/* ---- post-processor ---- */

static sw_status check_id(int64_t id, int64_t type_id)
{
    return type_id >= 0 && type_id <= INT32_MAX && id >= -1 && id <= SW_VOCAB_MAX_ID
               ? SW_OK
               : SW_FAIL(SW_E_FORMAT, "post_processor: id %lld with type_id %lld", (long long)id,
                         (long long)type_id);
}

static sw_status add_item(struct sw_template *template, enum sw_template_part part, int64_t id,
                          int64_t type_id)
{
    SW_TRY(check_id(id, type_id));
    return sw_template_add(template, part, (int32_t)id, (int32_t)type_id);
}

static sw_status read_special(const struct sw_json *component, const char *name, int64_t type_id,
                              struct sw_template *template)
{
    const struct sw_json *table, *special, *ids;
    SW_TRY(sw_component_member(component, "special_tokens", SW_JSON_OBJECT, &table));
    SW_TRY(sw_component_member(table, name, SW_JSON_OBJECT, &special));
    SW_TRY(sw_component_member(special, "ids", SW_JSON_ARRAY, &ids));
    for (const struct sw_json *id = ids->first; id; id = id->next) {
        SW_TRY(sw_component_want(id, SW_JSON_INT, "an id of special_tokens"));
        SW_TRY(add_item(template, SW_TEMPLATE_SPECIAL, id->integer, type_id));
    }
    return SW_OK;
}

static sw_status read_sequence(const struct sw_json *body, int64_t type_id, bool pair,
                               struct sw_template *template)
{
    const struct sw_json *name;
    SW_TRY(sw_component_member(body, "id", SW_JSON_STRING, &name));
    const bool second = strcmp(name->string, "B") == 0;
    if ((!second && strcmp(name->string, "A") != 0) || (second && !pair)) {
        return SW_FAIL(SW_E_FORMAT, "line %d: TemplateProcessing: sequence '%.20s'", name->line,
                       name->string);
    }
    return add_item(template, second ? SW_TEMPLATE_SECOND : SW_TEMPLATE_FIRST, -1, type_id);
}

/* Replaces a template by one of the two lists of TemplateProcessing. */
static sw_status read_template(struct sw_components *in, const struct sw_json *component, bool pair,
                               struct sw_template *template)
{
    const struct sw_json *list;
    sw_template_fini(template);
    SW_TRY(sw_component_member(component, pair ? "pair" : "single", SW_JSON_ARRAY, &list));
    for (const struct sw_json *item = list->first; item; item = item->next) {
        const struct sw_json *body;
        int64_t type_id;
        SW_TRY(sw_component_want(item, SW_JSON_OBJECT, "an item of TemplateProcessing"));
        const bool special = sw_json_get(item, "SpecialToken") != NULL;
        SW_TRY(sw_component_member(item, special ? "SpecialToken" : "Sequence", SW_JSON_OBJECT,
                                   &body));
        SW_TRY(sw_json_get_i64(in->doc, body, "type_id", 0, &type_id));
        if (special) {
            const struct sw_json *name;
            SW_TRY(sw_component_member(body, "id", SW_JSON_STRING, &name));
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
    SW_TRY(sw_component_member(component, key, SW_JSON_ARRAY, &value));
    if (value->n_children != 2 || value->last->type != SW_JSON_INT) {
        return SW_FAIL(SW_E_FORMAT, "line %d: %s is not [token, id]", value->line, key);
    }
    *out = value->last->integer;
    return check_id(*out, 0);
}

static sw_status read_pair_of_marks(struct sw_components *in, const struct sw_json *component,
                                    bool roberta)
{
    int64_t cls, sep;
    SW_TRY(read_named_id(component, "cls", &cls));
    SW_TRY(read_named_id(component, "sep", &sep));
    return sw_tokenizer_mark(&in->self->super, (int32_t)cls, (int32_t)sep, roberta);
}

/* *n_adding counts the processors that add tokens. Combining two of them is not supported. */
static sw_status read_processor(struct sw_components *in, const struct sw_json *component,
                                int depth, int *n_adding)
{
    const char *type;
    if (sw_component_is_null(component)) {
        return SW_OK;
    }
    SW_TRY(sw_component_type(component, "post_processor", &type));
    if (strcmp(type, "ByteLevel") == 0) { /* changes only offsets, which are not reported */
        return SW_OK;
    }
    if (strcmp(type, "Sequence") == 0 && depth == 0) {
        const struct sw_json *list;
        SW_TRY(sw_component_member(component, "processors", SW_JSON_ARRAY, &list));
        for (const struct sw_json *step = list->first; step; step = step->next) {
            SW_TRY(read_processor(in, step, depth + 1, n_adding));
        }
        return SW_OK;
    }
    if (++*n_adding > 1) {
        return sw_component_unbuilt("post_processor Sequence with a second", type);
    }
    if (strcmp(type, "TemplateProcessing") == 0) {
        SW_TRY(read_template(in, component, false, &in->self->super.single));
        return read_template(in, component, true, &in->self->super.pair);
    }
    if (strcmp(type, "RobertaProcessing") == 0 || strcmp(type, "BertProcessing") == 0) {
        return read_pair_of_marks(in, component, type[0] == 'R');
    }
    return sw_component_unbuilt("post_processor", type);
}

/* ---- the file ---- */

static sw_status check_version(const struct sw_json *root)
{
    const struct sw_json *version;
    SW_TRY(sw_component_want(root, SW_JSON_OBJECT, "the file"));
    SW_TRY(sw_component_member(root, "version", SW_JSON_STRING, &version));
    if (strcmp(version->string, "1.0") != 0) {
        return SW_FAIL(SW_E_FORMAT, "version '%.20s', wanted '1.0'", version->string);
    }
    return SW_OK;
}

/* `direction` is the side at which a long text is cut. The trainer decides row length and padding,
 * so the rest of this block and `padding` are ignored. */
static sw_status read_truncation(struct sw_components *in, const struct sw_json *block)
{
    const char *direction;
    if (sw_component_is_null(block)) {
        return SW_OK;
    }
    SW_TRY(sw_component_want(block, SW_JSON_OBJECT, "truncation"));
    SW_TRY(sw_json_get_str(in->doc, block, "direction", "Right", &direction));
    return sw_tokenizer_set_cut(&in->self->super, "truncation.direction", direction);
}

static sw_status read_root(struct sw_components *in, const struct sw_json *root)
{
    int n_adding = 0;
    SW_TRY(check_version(root));
    SW_TRY(read_truncation(in, sw_json_get(root, "truncation")));
    SW_TRY(sw_component_pretokenizer(in, sw_json_get(root, "pre_tokenizer")));
    SW_TRY(read_model(in, sw_json_get(root, "model")));
    SW_TRY(sw_component_normalizer(in, sw_json_get(root, "normalizer")));
    SW_TRY(read_processor(in, sw_json_get(root, "post_processor"), 0, &n_adding));
    SW_TRY(sw_component_decoder(in, sw_json_get(root, "decoder")));
    SW_TRY(read_added_tokens(in, sw_json_get(root, "added_tokens")));
    return sw_pipeline_finish(in->self);
}

/* Reads the components. The document, many times the size of the file, is freed on return. */
static sw_status read_text(const char *name, const char *text, size_t len, struct sw_components *in)
{
    sw_status st;
    SW_TRY(sw_json_parse(name, text, len, SW_JSON_STRICT, &in->doc));
    st = read_root(in, sw_json_root(in->doc));
    sw_json_close(in->doc);
    return st < 0 ? sw_fail_prefix(st, "%s", name) : SW_OK;
}

sw_status sw_tokenizer_parse_json(const char *name, const char *text, size_t len,
                                  const struct sw_tokenizer_options *options,
                                  struct sw_pipeline **out)
{
    sw_status st;
    struct sw_components in = {.options = options};
    SW_TRY(sw_pipeline_open(&in.self));
    SW_TRY_OR(fail, read_text(name, text, len, &in));
    in.self->name = sw_arena_strdup(&in.self->texts, name);
    if (!in.self->name) {
        st = SW_FAIL(SW_E_NOMEM, "out of host memory for a tokenizer");
        goto fail;
    }
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
    struct sw_pipeline *self = NULL;
    struct sw_str folder = {0};
    char *data = NULL;
    size_t len;
    SW_TRY(sw_file_read(path, &data, &len));
    SW_TRY_OR(done, sw_tokenizer_folder_of(path, &folder));
    SW_TRY_OR(done, sw_tokenizer_parse_json(path, data, len, options, &self));
    SW_TRY_OR(done, sw_tokenizer_read_roles(&self->super, folder.ptr));
    *out = &self->super;
    self = NULL;
done:
    sw_tokenizer_close(self ? &self->super : NULL);
    sw_str_fini(&folder);
    sw_free(data);
    return st;
}
