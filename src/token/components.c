// SPDX-License-Identifier: Apache-2.0
// Normalizers, pre-tokenizers and decoders of tokenizer.json.
#include "token/components.h"

#include "text/text.h"

#include <string.h>

/* ---- small checks ---- */

bool sw_component_is_null(const struct sw_json *node)
{
    return !node || node->type == SW_JSON_NULL;
}

sw_status sw_component_want(const struct sw_json *node, enum sw_json_type type, const char *what)
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

sw_status sw_component_member(const struct sw_json *object, const char *key, enum sw_json_type type,
                              const struct sw_json **out)
{
    *out = sw_json_get(object, key);
    return sw_component_want(*out, type, key);
}

sw_status sw_component_unbuilt(const char *component, const char *what)
{
    return SW_FAIL(SW_E_UNSUP, "%s %s is not built", component, what);
}

sw_status sw_component_type(const struct sw_json *component, const char *what, const char **out)
{
    const struct sw_json *type;
    SW_TRY(sw_component_want(component, SW_JSON_OBJECT, what));
    SW_TRY(sw_component_member(component, "type", SW_JSON_STRING, &type));
    *out = type->string;
    return SW_OK;
}

static sw_status get_bool(const struct sw_components *in, const struct sw_json *object,
                          const char *key, bool fallback, bool *out)
{
    return sw_json_get_bool(in->doc, object, key, fallback, out);
}

/* Copies a string. The length is returned if it may contain NUL. */
static sw_status copy_string(const struct sw_json *string, char **out, size_t *out_len)
{
    *out = sw_alloc("tokenizer", string->string_len + 1);
    SW_TRY_ALLOC(*out, "a tokenizer");
    memcpy(*out, string->string, string->string_len + 1);
    if (out_len) {
        *out_len = string->string_len;
    }
    return SW_OK;
}

/* Reads one component of a chain. */
typedef sw_status (*read_fn)(struct sw_components *in, const struct sw_json *component,
                             bool is_last);
static sw_status read_chain(struct sw_components *in, const struct sw_json *component,
                            const char *what, const char *list_key, read_fn read)
{
    const char *type;
    SW_TRY(sw_component_type(component, what, &type));
    if (strcmp(type, "Sequence") != 0) {
        return read(in, component, true);
    }
    const struct sw_json *list;
    SW_TRY(sw_component_member(component, list_key, SW_JSON_ARRAY, &list));
    for (const struct sw_json *step = list->first; step; step = step->next) {
        SW_TRY(read(in, step, step->next == NULL));
    }
    return SW_OK;
}

/* The value of a member `pattern`: {"String": ..} or {"Regex": ..}. */
struct pattern {
    const struct sw_json *text;
    bool literal;
};

static sw_status read_pattern(const struct sw_json *component, struct pattern *out)
{
    const struct sw_json *pattern;
    SW_TRY(sw_component_member(component, "pattern", SW_JSON_OBJECT, &pattern));
    out->literal = sw_json_get(pattern, "Regex") == NULL;
    return sw_component_member(pattern, out->literal ? "String" : "Regex", SW_JSON_STRING,
                               &out->text);
}

/* ---- normalizers ---- */

static sw_status read_replace(const struct sw_json *component, struct sw_normal_step *step)
{
    struct pattern pattern;
    const struct sw_json *content;
    SW_TRY(read_pattern(component, &pattern));
    SW_TRY(sw_component_member(component, "content", SW_JSON_STRING, &content));
    SW_TRY(copy_string(content, &step->text, &step->text_len));
    if (!pattern.literal) {
        return sw_regex_open(pattern.text->string, pattern.text->string_len, false, &step->regex);
    }
    if (pattern.text->string_len == 0) {
        return SW_FAIL(SW_E_FORMAT, "line %d: Replace looks for the empty string",
                       pattern.text->line);
    }
    return copy_string(pattern.text, &step->literal, &step->literal_len);
}

static sw_status read_bert(const struct sw_components *in, const struct sw_json *component,
                           struct sw_normal_step *step)
{
    const struct sw_json *accents = sw_json_get(component, "strip_accents");
    SW_TRY(get_bool(in, component, "clean_text", true, &step->clean));
    SW_TRY(get_bool(in, component, "handle_chinese_chars", true, &step->ideographs));
    SW_TRY(get_bool(in, component, "lowercase", true, &step->lower));
    step->accents = step->lower; /* default */
    return sw_component_is_null(accents)
               ? SW_OK
               : get_bool(in, component, "strip_accents", true, &step->accents);
}

static int sextet(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

/* Decodes padded Base64. False: it is malformed. */
static bool decode_base64(const char *text, size_t len, struct sw_str *out)
{
    uint32_t bits = 0;
    int n_bits = 0;
    while (len > 0 && text[len - 1] == '=') {
        len--;
    }
    for (size_t i = 0; i < len; ++i) {
        const int value = sextet(text[i]);
        if (value < 0) {
            return false;
        }
        bits = bits << 6 | (uint32_t)value;
        n_bits += 6;
        if (n_bits >= 8) {
            n_bits -= 8;
            sw_str_putc(out, (char)(unsigned char)(bits >> n_bits));
        }
    }
    return n_bits < 6;
}

static sw_status read_charsmap(const struct sw_json *component, struct sw_normal_step *step)
{
    sw_status st;
    struct sw_str bytes = {0};
    const struct sw_json *map = sw_json_get(component, "precompiled_charsmap");
    if (sw_component_is_null(map)) {
        return SW_FAIL(SW_E_FORMAT, "Precompiled: precompiled_charsmap is missing");
    }
    SW_TRY(sw_component_want(map, SW_JSON_STRING, "precompiled_charsmap"));
    st = decode_base64(map->string, map->string_len, &bytes)
             ? SW_OK
             : SW_FAIL(SW_E_FORMAT, "line %d: precompiled_charsmap is not base64", map->line);
    if (st >= 0) {
        st = bytes.failed ? SW_FAIL(SW_E_NOMEM, "out of host memory for precompiled_charsmap")
                          : sw_charsmap_init(&step->charsmap, sw_str_text(&bytes), bytes.len);
    }
    sw_str_fini(&bytes);
    return st;
}

static sw_status read_normalizer(struct sw_components *in, const struct sw_json *component,
                                 bool is_last)
{
    static const struct {
        const char *name;
        enum sw_normal_form form;
    } named[] = {{"Strip", SW_NORMAL_STRIP},
                 {"Replace", SW_NORMAL_REPLACE},
                 {"Prepend", SW_NORMAL_PREPEND},
                 {"Nmt", SW_NORMAL_NMT},
                 {"Precompiled", SW_NORMAL_PRECOMPILED},
                 {"BertNormalizer", SW_NORMAL_BERT}};
    const struct sw_json *text;
    const char *type;
    enum sw_normal_form form = SW_NORMAL_NFC;
    struct sw_normal_step *step;
    size_t i = 0;
    (void)is_last;
    SW_TRY(sw_component_type(component, "normalizer", &type));
    while (i < SW_LEN(named) && strcmp(type, named[i].name) != 0) {
        i++;
    }
    if (i < SW_LEN(named)) {
        form = named[i].form;
    } else if (!sw_normal_form_by_name(type, &form)) {
        return sw_component_unbuilt("normalizer", type);
    }
    SW_TRY(sw_normalizer_add(&in->self->normalizer, form, &step));
    switch (form) {
    case SW_NORMAL_STRIP:
        SW_TRY(get_bool(in, component, "strip_left", true, &step->left));
        return get_bool(in, component, "strip_right", true, &step->right);
    case SW_NORMAL_REPLACE:
        return read_replace(component, step);
    case SW_NORMAL_PREPEND:
        SW_TRY(sw_component_member(component, "prepend", SW_JSON_STRING, &text));
        return copy_string(text, &step->text, &step->text_len);
    case SW_NORMAL_PRECOMPILED:
        return read_charsmap(component, step);
    case SW_NORMAL_BERT:
        return read_bert(in, component, step);
    default:
        return SW_OK;
    }
}

sw_status sw_component_normalizer(struct sw_components *in, const struct sw_json *component)
{
    return sw_component_is_null(component)
               ? SW_OK
               : read_chain(in, component, "normalizer", "normalizers", read_normalizer);
}

/* ---- pre-tokenizers ---- */

static sw_status read_behavior(const struct sw_json *component, const char *fallback,
                               enum sw_split_behavior *out)
{
    static const char *const names[] = {
        [SW_SPLIT_ISOLATED] = "Isolated",
        [SW_SPLIT_REMOVED] = "Removed",
        [SW_SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
        [SW_SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
        [SW_SPLIT_CONTIGUOUS] = "Contiguous",
    };
    const struct sw_json *behavior = sw_json_get(component, "behavior");
    if (behavior || !fallback) {
        SW_TRY(sw_component_want(behavior, SW_JSON_STRING, "behavior"));
    }
    const char *name = behavior ? behavior->string : fallback;
    for (size_t i = 0; i < SW_LEN(names); ++i) {
        if (strcmp(name, names[i]) == 0) {
            *out = (enum sw_split_behavior)i;
            return SW_OK;
        }
    }
    return sw_component_unbuilt("pre_tokenizer with behavior", name);
}

static sw_status read_split(struct sw_components *in, const struct sw_json *component)
{
    struct pattern pattern;
    enum sw_split_behavior behavior;
    bool invert;
    SW_TRY(read_pattern(component, &pattern));
    SW_TRY(read_behavior(component, NULL, &behavior));
    SW_TRY(get_bool(in, component, "invert", false, &invert));
    return sw_pretokenizer_add(&in->self->pretokenizer, pattern.text->string,
                               pattern.text->string_len, pattern.literal, behavior, invert);
}

static sw_status read_digits(struct sw_components *in, const struct sw_json *component)
{
    bool individual;
    SW_TRY(get_bool(in, component, "individual_digits", false, &individual));
    return sw_pretokenizer_add(&in->self->pretokenizer, "\\p{N}", 5, false,
                               individual ? SW_SPLIT_ISOLATED : SW_SPLIT_CONTIGUOUS, false);
}

static sw_status read_byte_level(struct sw_components *in, const struct sw_json *component)
{
    struct sw_pretokenizer *pretokenizer = &in->self->pretokenizer;
    bool use_regex;
    SW_TRY(get_bool(in, component, "use_regex", true, &use_regex));
    SW_TRY(get_bool(in, component, "add_prefix_space", true, &pretokenizer->prefix_space));
    if (in->options->prefix_space != SW_PREFIX_AS_FILE) {
        pretokenizer->prefix_space = in->options->prefix_space == SW_PREFIX_ON;
    }
    pretokenizer->i_prefix_step = pretokenizer->n_steps;
    in->byte_level = true;
    return use_regex ? sw_pretokenizer_add(pretokenizer, sw_gpt2_pattern, strlen(sw_gpt2_pattern),
                                           false, SW_SPLIT_ISOLATED, false)
                     : SW_OK;
}

/* Reads the mark, one character; "\u2581" by default. */
static sw_status read_mark(const struct sw_json *component, const char **out)
{
    const struct sw_json *mark = sw_json_get(component, "replacement");
    size_t pos = 0;
    *out = "\xE2\x96\x81";
    if (sw_component_is_null(mark)) {
        return SW_OK;
    }
    SW_TRY(sw_component_want(mark, SW_JSON_STRING, "replacement"));
    if (sw_utf8_next(mark->string, mark->string_len, &pos) <= 0 || pos != mark->string_len) {
        return SW_FAIL(SW_E_FORMAT, "line %d: replacement '%.20s' is not one character", mark->line,
                       mark->string);
    }
    *out = mark->string;
    return SW_OK;
}

/* Older files have add_prefix_space instead: true is "always", false is "never". */
static sw_status read_prepend(const struct sw_components *in, const struct sw_json *component,
                              enum sw_prepend *out)
{
    static const char *const names[] = {"always", "first", "never"};
    const struct sw_json *scheme = sw_json_get(component, "prepend_scheme");
    bool prefix;
    SW_TRY(get_bool(in, component, "add_prefix_space", true, &prefix));
    *out = prefix ? SW_PREPEND_ALWAYS : SW_PREPEND_NEVER;
    if (sw_component_is_null(scheme)) {
        return SW_OK;
    }
    SW_TRY(sw_component_want(scheme, SW_JSON_STRING, "prepend_scheme"));
    for (size_t i = 0; i < SW_LEN(names); ++i) {
        if (strcmp(scheme->string, names[i]) == 0) {
            *out = (enum sw_prepend)i;
            return SW_OK;
        }
    }
    return sw_component_unbuilt("Metaspace with prepend_scheme", scheme->string);
}

static sw_status read_metaspace(struct sw_components *in, const struct sw_json *component)
{
    const char *mark;
    enum sw_prepend prepend;
    bool split;
    SW_TRY(read_mark(component, &mark));
    SW_TRY(read_prepend(in, component, &prepend));
    SW_TRY(get_bool(in, component, "split", true, &split));
    return sw_pretokenizer_add_metaspace(&in->self->pretokenizer, mark, prepend, split);
}

/* Code point categories need utf8proc. */
static sw_status read_punctuation(struct sw_components *in, const struct sw_json *component)
{
    enum sw_split_behavior behavior;
    SW_TRY(read_behavior(component, "Isolated", &behavior));
    if (!SW_HAVE_UTF8PROC) {
        return SW_FAIL(
            SW_E_UNSUP,
            "this build has no utf8proc, which punctuation needs: install libutf8proc-dev and "
            "build again");
    }
    return sw_pretokenizer_add_class(&in->self->pretokenizer, sw_char_is_punctuation, behavior);
}

static sw_status read_white_space(struct sw_components *in, const struct sw_json *component)
{
    (void)component;
    return sw_pretokenizer_add_class(&in->self->pretokenizer, sw_char_is_space, SW_SPLIT_REMOVED);
}

static sw_status read_scripts(struct sw_components *in, const struct sw_json *component)
{
    (void)component;
    return sw_pretokenizer_add_scripts(&in->self->pretokenizer);
}

static sw_status read_bert_words(struct sw_components *in, const struct sw_json *component)
{
    SW_TRY(read_white_space(in, component));
    return read_punctuation(in, component);
}

static sw_status read_words(struct sw_components *in, const struct sw_json *component)
{
    static const char words[] = "[" SW_WORD_CLASS "]+|[^\\s" SW_WORD_CLASS "]+";
    (void)component;
    return sw_pretokenizer_add(&in->self->pretokenizer, words, sizeof(words) - 1, false,
                               SW_SPLIT_REMOVED, true);
}

static sw_status read_pretokenizer(struct sw_components *in, const struct sw_json *component,
                                   bool is_last)
{
    static const struct {
        const char *name;
        sw_status (*read)(struct sw_components *in, const struct sw_json *component);
    } kinds[] = {{"Split", read_split},
                 {"Digits", read_digits},
                 {"Metaspace", read_metaspace},
                 {"Punctuation", read_punctuation},
                 {"WhitespaceSplit", read_white_space},
                 {"Whitespace", read_words},
                 {"UnicodeScripts", read_scripts},
                 {"BertPreTokenizer", read_bert_words}};
    const char *type;
    SW_TRY(sw_component_type(component, "pre_tokenizer", &type));
    if (strcmp(type, "ByteLevel") == 0) { /* after it, text is bytes */
        return is_last ? read_byte_level(in, component)
                       : sw_component_unbuilt("pre_tokenizer", "ByteLevel before another one");
    }
    for (size_t i = 0; i < SW_LEN(kinds); ++i) {
        if (strcmp(type, kinds[i].name) == 0) {
            return kinds[i].read(in, component);
        }
    }
    return sw_component_unbuilt("pre_tokenizer", type);
}

sw_status sw_component_pretokenizer(struct sw_components *in, const struct sw_json *component)
{
    return sw_component_is_null(component)
               ? SW_OK
               : read_chain(in, component, "pre_tokenizer", "pretokenizers", read_pretokenizer);
}

/* ---- decoders ---- */

static sw_status read_decoded_words(const struct sw_components *in, const struct sw_json *component,
                                    struct sw_decode_step *step)
{
    const char *prefix;
    SW_TRY(sw_json_get_str(in->doc, component, "prefix", "##", &prefix));
    SW_TRY(get_bool(in, component, "cleanup", true, &step->clean));
    step->pattern = sw_strdup("tokenizer", prefix);
    SW_TRY_ALLOC(step->pattern, "a tokenizer");
    return SW_OK;
}

static sw_status read_decoded_marks(const struct sw_components *in, const struct sw_json *component,
                                    struct sw_decode_step *step)
{
    const char *mark;
    enum sw_prepend prepend;
    SW_TRY(read_mark(component, &mark));
    SW_TRY(read_prepend(in, component, &prepend));
    step->keep_first = prepend == SW_PREPEND_NEVER;
    step->pattern = sw_strdup("tokenizer", mark);
    SW_TRY_ALLOC(step->pattern, "a tokenizer");
    return SW_OK;
}

static sw_status read_decoded_replace(const struct sw_json *component, struct sw_decode_step *step)
{
    struct pattern pattern;
    const struct sw_json *content;
    SW_TRY(read_pattern(component, &pattern));
    SW_TRY(sw_component_member(component, "content", SW_JSON_STRING, &content));
    SW_TRY(copy_string(content, &step->text, NULL));
    SW_TRY(copy_string(pattern.text, &step->pattern, NULL));
    if (step->pattern[0] == '\0') {
        return SW_FAIL(SW_E_FORMAT, "line %d: decoder Replace looks for the empty string",
                       pattern.text->line);
    }
    return pattern.literal
               ? SW_OK
               : sw_regex_open(pattern.text->string, pattern.text->string_len, false, &step->regex);
}

static sw_status read_decoded_strip(const struct sw_components *in, const struct sw_json *component,
                                    struct sw_decode_step *step)
{
    const struct sw_json *content;
    SW_TRY(sw_component_member(component, "content", SW_JSON_STRING, &content));
    if (content->string_len == 0) {
        return SW_FAIL(SW_E_FORMAT, "line %d: decoder Strip of the empty string", content->line);
    }
    SW_TRY(copy_string(content, &step->pattern, NULL));
    SW_TRY(sw_json_get_i64(in->doc, component, "start", 0, &step->left));
    return sw_json_get_i64(in->doc, component, "stop", 0, &step->right);
}

static sw_status read_decoded_suffix(const struct sw_components *in,
                                     const struct sw_json *component, struct sw_decode_step *step)
{
    const char *suffix;
    SW_TRY(sw_json_get_str(in->doc, component, "suffix", "</w>", &suffix));
    if (suffix[0] == '\0') {
        return SW_FAIL(SW_E_FORMAT, "line %d: decoder BPEDecoder has an empty suffix",
                       component->line);
    }
    step->pattern = sw_strdup("tokenizer", suffix);
    SW_TRY_ALLOC(step->pattern, "a tokenizer");
    return SW_OK;
}

static sw_status read_decoder(struct sw_components *in, const struct sw_json *component,
                              bool is_last)
{
    static const char *const names[] = {
        [SW_DECODE_WORDPIECE] = "WordPiece", [SW_DECODE_METASPACE] = "Metaspace",
        [SW_DECODE_REPLACE] = "Replace",     [SW_DECODE_BYTE_FALLBACK] = "ByteFallback",
        [SW_DECODE_FUSE] = "Fuse",           [SW_DECODE_STRIP] = "Strip",
        [SW_DECODE_SUFFIX] = "BPEDecoder"};
    const char *type;
    struct sw_decode_step *step;
    size_t kind = 0;
    SW_TRY(sw_component_type(component, "decoder", &type));
    if (strcmp(type, "ByteLevel") == 0 && is_last && in->self->kind == SW_MODEL_BYTE_BPE) {
        return SW_OK; /* no step: tokens decode to their bytes */
    }
    while (kind < SW_LEN(names) && strcmp(type, names[kind]) != 0) {
        kind++;
    }
    if (kind == SW_LEN(names) || in->self->kind == SW_MODEL_BYTE_BPE) {
        return SW_FAIL(SW_E_UNSUP, "decoder %s is not built%s", type,
                       kind < SW_LEN(names) ? " for a byte-level BPE; ByteLevel is" : "");
    }
    SW_TRY(sw_decoder_add(&in->self->decoder, (enum sw_decode_kind)kind, &step));
    switch (step->kind) {
    case SW_DECODE_WORDPIECE:
        return read_decoded_words(in, component, step);
    case SW_DECODE_METASPACE:
        return read_decoded_marks(in, component, step);
    case SW_DECODE_REPLACE:
        return read_decoded_replace(component, step);
    case SW_DECODE_STRIP:
        return read_decoded_strip(in, component, step);
    case SW_DECODE_SUFFIX:
        return read_decoded_suffix(in, component, step);
    default:
        return SW_OK;
    }
}

sw_status sw_component_decoder(struct sw_components *in, const struct sw_json *component)
{
    return sw_component_is_null(component)
               ? SW_OK
               : read_chain(in, component, "decoder", "decoders", read_decoder);
}
