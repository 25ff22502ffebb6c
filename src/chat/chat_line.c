// SPDX-License-Identifier: Apache-2.0
// Converts conversations of four file formats into the form that templates expect: messages with a
// role and a content. The keys of a line identify its format. Members and roles of `messages` are
// not checked here: that is up to the template.
#include "chat/private.h"

#include <string.h>

static const char *const form_keys[] = {
    [SW_CHAT_NONE] = "none of them",
    [SW_CHAT_MESSAGES] = "\"messages\"",
    [SW_CHAT_CONVERSATIONS] = "\"conversations\"",
    [SW_CHAT_INSTRUCTION] = "\"instruction\" and \"output\"",
    [SW_CHAT_PAIR] = "\"prompt\" and \"completion\"",
};

const char *sw_chat_form_keys(enum sw_chat_form form)
{
    return form_keys[form];
}

static bool has(const struct sw_json *line, const char *key)
{
    const struct sw_json *value = sw_json_get(line, key);
    return value && value->type != SW_JSON_NULL;
}

enum sw_chat_form sw_chat_form_of(const struct sw_json *line)
{
    if (has(line, "messages")) {
        return SW_CHAT_MESSAGES;
    }
    if (has(line, "conversations")) {
        return SW_CHAT_CONVERSATIONS;
    }
    if (has(line, "instruction") && has(line, "output")) {
        return SW_CHAT_INSTRUCTION;
    }
    return has(line, "prompt") && has(line, "completion") ? SW_CHAT_PAIR : SW_CHAT_NONE;
}

/* The document being read (named in messages), and the output. */
struct reading {
    const struct sw_json_doc *from;
    struct sw_json_doc *to;
    struct sw_json *messages;
};

static sw_status fail_memory(const struct reading *in)
{
    return SW_FAIL(SW_E_NOMEM, "%s: out of host memory for a conversation", sw_json_name(in->from));
}

static sw_status fail_type(const struct reading *in, const char *key, const struct sw_json *found,
                           const char *wanted)
{
    return SW_FAIL(SW_E_FORMAT, "%s: \"%s\" is %s, wanted %s", sw_json_name(in->from), key,
                   found ? sw_json_type_name(found->type) : "absent", wanted);
}

static sw_status get_text(const struct reading *in, const struct sw_json *object, const char *key,
                          const struct sw_json **out)
{
    *out = sw_json_get(object, key);
    return *out && (*out)->type == SW_JSON_STRING ? SW_OK : fail_type(in, key, *out, "a string");
}

/* content must be a string. */
static sw_status add_message(const struct reading *in, const char *role,
                             const struct sw_json *content)
{
    struct sw_json *message = sw_json_put(in->to, in->messages, NULL, SW_JSON_OBJECT);
    if (!message || !sw_json_put_str(in->to, message, "role", role) ||
        !sw_json_put_copy(in->to, message, "content", content)) {
        return fail_memory(in);
    }
    return SW_OK;
}

static sw_status read_messages(const struct reading *in, const struct sw_json *list)
{
    int64_t i = 0;
    if (list->type != SW_JSON_ARRAY) {
        return fail_type(in, "messages", list, "an array");
    }
    for (const struct sw_json *m = list->first; m; m = m->next, ++i) {
        if (m->type != SW_JSON_OBJECT) {
            return SW_FAIL(SW_E_FORMAT, "%s: message %lld is %s, wanted an object",
                           sw_json_name(in->from), (long long)i, sw_json_type_name(m->type));
        }
        if (!sw_json_put_copy(in->to, in->messages, NULL, m)) {
            return fail_memory(in);
        }
    }
    return SW_OK;
}

/* Maps ShareGPT's role names. */
static const char *role_of(const char *from)
{
    static const char *const roles[][2] = {
        {"human", "user"},    {"user", "user"}, {"gpt", "assistant"},   {"assistant", "assistant"},
        {"system", "system"}, {"tool", "tool"}, {"observation", "tool"}};
    for (size_t i = 0; i < SW_LEN(roles); ++i) {
        if (strcmp(from, roles[i][0]) == 0) {
            return roles[i][1];
        }
    }
    return NULL;
}

static sw_status read_turn(const struct reading *in, const struct sw_json *turn, int64_t i)
{
    const struct sw_json *from, *value;
    if (turn->type != SW_JSON_OBJECT) {
        return SW_FAIL(SW_E_FORMAT, "%s: turn %lld is %s, wanted an object", sw_json_name(in->from),
                       (long long)i, sw_json_type_name(turn->type));
    }
    SW_TRY(get_text(in, turn, "from", &from));
    SW_TRY(get_text(in, turn, "value", &value));
    const char *role = role_of(from->string);
    if (!role) {
        return SW_FAIL(SW_E_FORMAT,
                       "%s: turn %lld is from \"%.60s\"; wanted human, user, gpt, assistant, "
                       "system, tool or observation",
                       sw_json_name(in->from), (long long)i, from->string);
    }
    const struct sw_json *weight = sw_json_get(turn, "weight");
    SW_TRY(add_message(in, role, value));
    if (weight && !sw_json_put_copy(in->to, in->messages->last, "weight", weight)) {
        return fail_memory(in);
    }
    return SW_OK;
}

/* Reads a "system" key beside the turns, which some files have. */
static sw_status read_system(const struct reading *in, const struct sw_json *line)
{
    const struct sw_json *system = sw_json_get(line, "system");
    if (!system || system->type == SW_JSON_NULL) {
        return SW_OK;
    }
    SW_TRY(get_text(in, line, "system", &system));
    return system->string_len > 0 ? add_message(in, "system", system) : SW_OK;
}

static sw_status read_conversations(const struct reading *in, const struct sw_json *line)
{
    const struct sw_json *list = sw_json_get(line, "conversations");
    int64_t i = 0;
    if (list->type != SW_JSON_ARRAY) {
        return fail_type(in, "conversations", list, "an array");
    }
    if (list->first) {
        SW_TRY(read_system(in, line));
    }
    for (const struct sw_json *turn = list->first; turn; turn = turn->next, ++i) {
        SW_TRY(read_turn(in, turn, i));
    }
    return SW_OK;
}

static sw_status read_instruction(const struct reading *in, const struct sw_json *line)
{
    const struct sw_json *instruction, *output, *input = sw_json_get(line, "input");
    struct sw_str question = {0};
    SW_TRY(get_text(in, line, "instruction", &instruction));
    SW_TRY(get_text(in, line, "output", &output));
    if (input && input->type != SW_JSON_NULL) {
        SW_TRY(get_text(in, line, "input", &input));
    } else {
        input = NULL;
    }
    SW_TRY(read_system(in, line));
    sw_str_append(&question, instruction->string, instruction->string_len);
    if (input && input->string_len > 0) {
        sw_str_puts(&question, "\n\n");
        sw_str_append(&question, input->string, input->string_len);
    }
    const struct sw_json content = {
        .type = SW_JSON_STRING, .string = sw_str_text(&question), .string_len = question.len};
    const sw_status st = question.failed ? fail_memory(in) : add_message(in, "user", &content);
    sw_str_fini(&question);
    return st < 0 ? st : add_message(in, "assistant", output);
}

static sw_status read_pair(const struct reading *in, const struct sw_json *line)
{
    const struct sw_json *prompt, *completion;
    SW_TRY(get_text(in, line, "prompt", &prompt));
    SW_TRY(get_text(in, line, "completion", &completion));
    SW_TRY(add_message(in, "user", prompt));
    return add_message(in, "assistant", completion);
}

static sw_status read_tools(const struct reading *in, const struct sw_json *line,
                            struct sw_json *out)
{
    const struct sw_json *tools = sw_json_get(line, "tools");
    if (tools && tools->type != SW_JSON_NULL && tools->type != SW_JSON_ARRAY) {
        return fail_type(in, "tools", tools, "an array");
    }
    const struct sw_json *put = tools ? sw_json_put_copy(in->to, out, "tools", tools)
                                      : sw_json_put(in->to, out, "tools", SW_JSON_NULL);
    return put ? SW_OK : fail_memory(in);
}

sw_status sw_chat_read_line(const struct sw_json_doc *line_doc, const struct sw_json *line,
                            struct sw_json_doc *to, struct sw_json *out)
{
    const enum sw_chat_form form = sw_chat_form_of(line);
    struct reading in = {line_doc, to, sw_json_put(to, out, "messages", SW_JSON_ARRAY)};
    if (!in.messages) {
        return fail_memory(&in);
    }
    switch (form) {
    case SW_CHAT_MESSAGES:
        SW_TRY(read_messages(&in, sw_json_get(line, "messages")));
        break;
    case SW_CHAT_CONVERSATIONS:
        SW_TRY(read_conversations(&in, line));
        break;
    case SW_CHAT_INSTRUCTION:
        SW_TRY(read_instruction(&in, line));
        break;
    case SW_CHAT_PAIR:
        SW_TRY(read_pair(&in, line));
        break;
    default:
        return SW_FAIL(
            SW_E_FORMAT,
            "%s: not a chat; wanted \"messages\", \"conversations\", \"instruction\" and "
            "\"output\", or \"prompt\" and \"completion\"",
            sw_json_name(line_doc));
    }
    if (!in.messages->first) {
        return SW_FAIL(SW_E_FORMAT, "%s: an empty conversation: %s has no messages",
                       sw_json_name(line_doc), sw_chat_form_keys(form));
    }
    return read_tools(&in, line, out);
}
