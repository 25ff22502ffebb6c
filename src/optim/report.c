// SPDX-License-Identifier: Apache-2.0
// Public functions for configurations: reports for people and machines. They are next to the
// schedules because a report lists the rates of the first steps.
#include "spillway/config.h"

#include "json/json.h"
#include "optim/optim.h"

/* Hands over a finished text, or reports that memory ran out. */
static sw_status give(struct sw_str *text, char **out)
{
    sw_str_append(text, "", 0); /* makes sure that an empty text is allocated, too */
    if (text->failed) {
        sw_str_fini(text);
        return SW_FAIL(SW_E_NOMEM, "out of host memory for the text");
    }
    *out = text->ptr;
    *text = (struct sw_str){0};
    return SW_OK;
}

/* One value, or a list if groups differ. */
static void write_groups(const double *values, int n, struct sw_str *out)
{
    sw_str_puts(out, n > 1 ? "[" : "");
    for (int i = 0; i < n; i++) {
        sw_str_puts(out, i ? ", " : "");
        sw_json_write_f64(values[i], out);
    }
    sw_str_puts(out, n > 1 ? "]" : "");
}

static void write_step(const struct sw_schedule *schedule, int i_step, bool json,
                       struct sw_str *out)
{
    double lr[SW_SCHEDULE_GROUPS], beta1[SW_SCHEDULE_GROUPS], beta2[SW_SCHEDULE_GROUPS];
    for (int i = 0; i < schedule->n_groups; i++) {
        const struct sw_rates rates = sw_schedule_at(schedule, i, i_step);
        lr[i] = rates.lr;
        beta1[i] = rates.beta1;
        beta2[i] = rates.beta2;
    }
    sw_str_printf(out, json ? "{\"step\": %d, \"lr\": " : "%8d  ", i_step);
    write_groups(lr, schedule->n_groups, out);
    if (schedule->has_betas) {
        sw_str_puts(out, json ? ", \"beta1\": " : "  ");
        write_groups(beta1, schedule->n_groups, out);
        sw_str_puts(out, json ? ", \"beta2\": " : "  ");
        write_groups(beta2, schedule->n_groups, out);
    }
    sw_str_puts(out, json ? "}" : "\n");
}

static sw_status write_schedule(const struct sw_config *config, int n_steps, bool json,
                                struct sw_str *out)
{
    struct sw_schedule schedule;
    SW_TRY(sw_schedule_init(&schedule, config, sw_schedule_groups(&config->scheduler)));
    const char *head = schedule.has_betas ? "    step  lr  beta1  beta2\n" : "    step  lr\n";
    sw_str_puts(out, json ? ",\n\"schedule\": [" : head);
    for (int i = 0; i < n_steps; i++) {
        sw_str_puts(out, json && i > 0 ? ",\n" : "");
        write_step(&schedule, i, json, out);
    }
    sw_str_puts(out, json ? "]" : "");
    return SW_OK;
}

/* Fails if something is missing without which this is not a configuration. */
static sw_status check_known(const struct sw_config *config)
{
    return sw_config_wants_hidden_size(config)
               ? sw_config_refuse_sizes(config, "no model is given; wanted --model")
               : sw_config_check_steps(config);
}

sw_status sw_config_wants_plan(const struct sw_config_options *options, bool *out)
{
    struct sw_config *config;
    SW_TRY_OPTIONS(options);
    SW_TRY(sw_config_load(options->path, options->sets, options->n_sets, &config));
    const sw_status st = check_known(config);
    *out = config->spillway.micro_batch == SW_MICRO_BATCH_AUTO;
    sw_config_close(config);
    SW_TRY(st);
    return SW_OK;
}

static sw_status write_report(const struct sw_config *config,
                              const struct sw_config_options *options, struct sw_str *out)
{
    if (options->json) {
        sw_str_putc(out, '{');
        sw_config_print_json(config, out);
    } else if (!options->schedule) {
        sw_config_print(config, out);
    }
    if (options->schedule) {
        SW_TRY(write_schedule(config, options->n_steps, options->json, out));
    }
    sw_str_puts(out, options->json ? "}\n" : "");
    return SW_OK;
}

sw_status sw_config_report(const struct sw_config_options *options, char **out_text,
                           char **out_notes)
{
    sw_status st;
    char *given = NULL;
    struct sw_str text = {0}, notes = {0};
    struct sw_config *config;
    SW_TRY_OPTIONS(options);
    SW_TRY(sw_config_load(options->path, options->sets, options->n_sets, &config));
    SW_TRY_OR(close_config, check_known(config));
    const int ranks = options->ranks ? options->ranks : 1;
    SW_TRY_OR(close_config, sw_config_resolve(config, ranks, 0));
    SW_TRY_OR(close_config, sw_config_assume_micro_batch(config, ranks));
    SW_TRY_OR(close_config, sw_config_resolve(config, ranks, 0));
    SW_TRY_OR(close_config, write_report(config, options, &text));
    sw_config_print_warnings(config, &notes);
    sw_config_list_unbuilt(config, &notes); /* its status repeats the list */
    SW_TRY_OR(close_config, give(&text, &given));
    SW_TRY_OR(close_config, give(&notes, out_notes));
    *out_text = given;
    given = NULL;
    st = SW_OK;
close_config:
    sw_free(given);
    sw_str_fini(&text);
    sw_str_fini(&notes);
    sw_config_close(config);
    return st;
}

sw_status sw_config_explain_text(const char *key, char **out_text)
{
    struct sw_str text = {0};
    const sw_status st = sw_config_explain(key, &text);
    if (st < 0) {
        sw_str_fini(&text);
        return sw_frame_at(__FILE__, __LINE__, st);
    }
    return give(&text, out_text);
}

sw_status sw_config_docs_text(char **out_text)
{
    struct sw_str text = {0};
    sw_config_write_docs(&text);
    return give(&text, out_text);
}
