// SPDX-License-Identifier: Apache-2.0
// config.json files that leave keys out, set them to null, or name them twice, against the values
// that transformers has then (docs/record_defaults.py).
#include <math.h>
#include <string.h>

#include "model/decoder.h"
#include "model/encoder.h"
#include "model/seq2seq.h"
#include "support/test.h"

static const char recorded[] = "tests/cases/defaults/defaults.json";

static const struct sw_decoder *decoder_of(const struct sw_model *m)
{
    return m->ops->read == sw_decoder_read ? SW_CONTAINER(m, struct sw_decoder, super) : NULL;
}

static const struct sw_encoder *encoder_of(const struct sw_model *m)
{
    return m->ops->read == sw_encoder_read ? SW_CONTAINER(m, struct sw_encoder, super) : NULL;
}

static const struct sw_seq2seq *seq2seq_of(const struct sw_model *m)
{
    return m->ops->read == sw_seq2seq_read ? SW_CONTAINER(m, struct sw_seq2seq, super) : NULL;
}

/* ---- values of an opened model ---- */

/* All tensors of a model's file: they depend on every size. */
static double n_parameters(const struct sw_model *m)
{
    const struct sw_graph_options options = {.dtype = SW_F32, .grad_dtype = SW_F32};
    const struct sw_forward_spec spec = {
        .batch = 1, .tokens = 4, .targets = 3, .want_logits = true};
    struct sw_graph *g = NULL;
    sw_value loss;
    int64_t n = 0;
    assert_int_equal(sw_graph_open(&options, &g), SW_OK);
    m->ops->forward(m, g, &spec, &loss);
    if (sw_graph_status(g) < 0) {
        fail_msg("%s: %s", m->ops->model_type, sw_error_message());
    }
    for (int32_t i = 0; i < g->n_params; i++) {
        n += sw_shape_elems(&g->values[g->params[i]].shape);
    }
    sw_graph_close(g);
    return (double)n;
}

static double last_frequency(const struct sw_rotary_spec *rotary)
{
    float all[512];
    assert_true(rotary->width / 2 <= (int64_t)SW_LEN(all));
    sw_rotary_frequencies(rotary, 4, all);
    return (double)all[rotary->width / 2 - 1];
}

static double n_windowed(const struct sw_decoder *d)
{
    double n = 0;
    for (int64_t i = 0; i < d->super.layers; i++) {
        n += d->spec.window > 0 && (!d->spec.is_windowed || d->spec.is_windowed[i]);
    }
    return n;
}

static bool of_model(const struct sw_model *m, const char *name, double *out)
{
    const struct {
        const char *name;
        double value;
    } rows[] = {
        {"width", (double)m->width},
        {"layers", (double)m->layers},
        {"vocab", (double)m->vocab},
        {"max_tokens", (double)(m->max_tokens + m->ops->extra_tokens)},
        {"labels", (double)m->labels},
        {"tied", m->tied},
        {"pad_id", (double)m->pad_id},
        {"eos_id", (double)m->eos_id},
        {"start_id", (double)m->start_id},
    };
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        if (strcmp(rows[i].name, name) == 0) {
            *out = rows[i].value;
            return true;
        }
    }
    if (strcmp(name, "parameters") == 0) {
        *out = n_parameters(m);
        return true;
    }
    return false;
}

static bool of_decoder(const struct sw_decoder *d, const char *name, double *out)
{
    const struct sw_decoder_spec *s = &d->spec;
    const struct sw_router_attrs *r = &s->experts.router;
    const bool rotates = s->positions == SW_POSITION_ROTARY;
    const struct {
        const char *name;
        double value;
    } rows[] = {
        {"heads", (double)s->heads},
        {"eps", s->eps},
        {"act", s->act},
        {"init_range", s->init_range},
        {"attention_dropout", s->attention_dropout},
        {"embedding_dropout", s->embedding_dropout},
        {"hidden_dropout", s->hidden_dropout},
        {"window", (double)s->window},
        {"windowed_layers", n_windowed(d)},
        {"logits_cap", s->logits_cap},
        {"logit_scale", s->logits_scale},
        {"frequencies", (double)(s->rotary.width / 2)},
        {"frequency_end", rotates ? last_frequency(&s->rotary) : 0},
        {"local_frequencies", (double)(s->local.width / 2)},
        {"local_frequency_end", s->local.width > 0 ? last_frequency(&s->local) : 0},
        {"attention_factor", s->rotary.attention_factor > 0 ? s->rotary.attention_factor : 1},
        {"experts_of_token", (double)r->k},
        {"alpha", s->experts.alpha},
        {"limit", s->experts.limit},
        {"normalises_choices", r->normalise},
        {"choice_scale", r->scale},
        {"choice_groups", (double)r->groups},
        {"kept_groups", (double)r->kept},
    };
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        if (strcmp(rows[i].name, name) == 0) {
            *out = rows[i].value;
            return true;
        }
    }
    return false;
}

static bool of_encoder(const struct sw_encoder *e, const char *name, double *out)
{
    const struct sw_encoder_spec *s = &e->spec;
    const struct {
        const char *name;
        double value;
    } rows[] = {
        {"heads", (double)s->heads},
        {"eps", s->eps},
        {"act", s->act},
        {"init_range", s->init_range},
        {"hidden_dropout", s->hidden_dropout},
        {"attention_dropout", s->attention_dropout},
        {"answers_dropout", s->answers_dropout},
    };
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        if (strcmp(rows[i].name, name) == 0) {
            *out = rows[i].value;
            return true;
        }
    }
    return false;
}

static bool of_seq2seq(const struct sw_seq2seq *m, const char *name, double *out)
{
    const struct sw_seq2seq_spec *s = &m->spec;
    const struct {
        const char *name;
        double value;
    } rows[] = {
        {"heads", (double)s->stack[SW_ENCODER_STACK].heads},
        {"head_width", (double)s->stack[SW_ENCODER_STACK].head_width},
        {"decoder_heads", (double)s->stack[SW_DECODER_STACK].heads},
        {"decoder_layers", (double)s->stack[SW_DECODER_STACK].layers},
        {"eps", s->eps},
        {"act", s->act},
        {"init_range", s->std.table},
        {"dropout", s->dropout},
        {"attention_dropout", s->attention_dropout},
        {"act_dropout", s->act_dropout},
        {"classifier_dropout", s->classifier_dropout},
    };
    for (size_t i = 0; i < SW_LEN(rows); i++) {
        if (strcmp(rows[i].name, name) == 0) {
            *out = rows[i].value;
            return true;
        }
    }
    return false;
}

static bool value_of(const struct sw_model *m, const char *name, double *out)
{
    return of_model(m, name, out) || (decoder_of(m) && of_decoder(decoder_of(m), name, out)) ||
           (encoder_of(m) && of_encoder(encoder_of(m), name, out)) ||
           (seq2seq_of(m) && of_seq2seq(seq2seq_of(m), name, out));
}

/* ---- recorded values ---- */

/* null: ids are -1 then, all else is 0. */
static double wanted_number(const struct sw_json_doc *doc, const struct sw_json *value)
{
    const size_t n = strlen(value->key);
    enum sw_act act;
    switch (value->type) {
    case SW_JSON_NULL:
        return n > 3 && strcmp(value->key + n - 3, "_id") == 0 ? -1 : 0;
    case SW_JSON_BOOL:
        return value->boolean;
    case SW_JSON_STRING:
        assert_int_equal(sw_model_find_act(doc, value->key, value->string, &act), SW_OK);
        return act;
    default:
        return value->number;
    }
}

static int compare(const struct sw_json_doc *doc, const struct sw_model *m, const char *config,
                   const struct sw_json *values, const struct sw_json *instead)
{
    int n_bad = 0;
    for (const struct sw_json *v = values->first; v; v = v->next) {
        double found = 0;
        if (instead && sw_json_get(instead, v->key)) {
            continue;
        }
        const double wanted = wanted_number(doc, v);
        if (!value_of(m, v->key, &found)) {
            fail_msg("%s: the test does not know %s", config, v->key);
        }
        if (fabs(found - wanted) > 2e-6 * fabs(wanted)) {
            print_error("%s: %s is %.9g, wanted %.9g\n", config, v->key, found, wanted);
            n_bad++;
        }
    }
    return n_bad;
}

/* The first case of a model_type has all values, the others only those that differ. */
static const struct sw_json *first_of(const struct sw_json *cases, const char *type)
{
    for (const struct sw_json *c = cases->first; c; c = c->next) {
        if (strcmp(sw_json_path(c, "config.model_type")->string, type) == 0) {
            return sw_json_get(c, "values");
        }
    }
    return NULL;
}

static int check(const struct sw_json_doc *doc, const struct sw_json *cases,
                 const struct sw_json *c)
{
    const struct sw_json *values = sw_json_get(c, "values");
    const struct sw_json *all = first_of(cases, sw_json_path(c, "config.model_type")->string);
    struct sw_json_doc *config = NULL;
    struct sw_model *model = NULL;
    struct sw_str text = {0};
    int n_bad = 0;
    sw_json_write(sw_json_get(c, "config"), 0, &text);
    const char *name = sw_str_text(&text);
    assert_int_equal(sw_json_parse("config.json", name, text.len, SW_JSON_STRICT, &config), SW_OK);
    const sw_status st = sw_model_open(config, NULL, &model);
    if ((st < 0) != (values == NULL)) {
        print_error("%s: %s\n", name, st < 0 ? sw_error_message() : "wanted a refusal");
        n_bad++;
    } else if (values) {
        n_bad += compare(doc, model, name, values, NULL);
        n_bad += values == all ? 0 : compare(doc, model, name, all, values);
    }
    sw_model_close(model);
    sw_json_close(config);
    sw_str_fini(&text);
    return n_bad;
}

static void absent_and_null_keys_are_what_transformers_makes_of_them(void **state)
{
    struct sw_json_doc *doc = NULL;
    int n_bad = 0, n = 0;
    (void)state;
    assert_int_equal(sw_json_read(recorded, SW_JSON_STRICT, &doc), SW_OK);
    const struct sw_json *cases = sw_json_get(sw_json_root(doc), "cases");
    for (const struct sw_json *c = cases->first; c; c = c->next, n++) {
        n_bad += check(doc, cases, c);
    }
    sw_json_close(doc);
    assert_true(n > 200);
    assert_int_equal(n_bad, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(absent_and_null_keys_are_what_transformers_makes_of_them),
};

const struct test_program sw_tests = {TEST_TABLE(tests)};
