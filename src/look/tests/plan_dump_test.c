// SPDX-License-Identifier: Apache-2.0
// The plan as JSON has every instruction and tensor of the plan. Sums over the dump give the
// reported figures, and no tensor is outside of its tier.
#include <string.h>
#include <unistd.h>

#include "engine/engine.h"
#include "spillway/comm.h"
#include "spillway/look.h"
#include "support/scratch.h"
#include "support/test.h"

enum { MOST_SETS = 4 };

static char nvme_set[2][128];

/* Each setting with a feature that the others lack. */
static const struct setting {
    const char *name, *sets[MOST_SETS];
    int ranks;
    bool nvme;
    enum sw_verb has;
} settings[] = {
    {"one rank", {NULL}, 1, false, SW_VERB_KERNEL},
    {"recomputed", {"spillway.recompute=blocks", "bf16.enabled=true"}, 1, false, SW_VERB_KERNEL},
    {"in the host's memory",
     {"zero_optimization.stage=3", "zero_optimization.offload_optimizer.device=cpu",
      "zero_optimization.offload_param.device=cpu"},
     1,
     false,
     SW_VERB_COPY_OUT},
    {"on disk, in tiles",
     {"zero_optimization.stage=3", "zero_optimization.offload_optimizer.device=nvme",
      "zero_optimization.offload_param.device=nvme", "spillway.tile_bytes=100000"},
     1,
     true,
     SW_VERB_WRITE},
    {"block by block, of two ranks",
     {"zero_optimization.stage=3", "spillway.schedule=vertical", "bf16.enabled=true"},
     2,
     false,
     SW_VERB_GATHER},
    {"stage 2 of three ranks", {"zero_optimization.stage=2"}, 3, false, SW_VERB_REDUCE},
};

static void open_plan(const struct setting *s, sw_comm **comm, sw_engine **out)
{
    const char *sets[MOST_SETS + 2];
    struct sw_engine_options o = {
        .config = {.text = "{\"train_batch_size\": 12, \"train_micro_batch_size_per_gpu\": 2, "
                           "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 0.001}}}",
                   .sets = sets},
        .model.path = "gpt2-tiny",
        .inputs.seq_len = 8,
        .train.wanted = true,
        .evaluate.loss = true,
        .generate = {.wanted = true, .tokens = 8},
        .plan.only = true,
    };
    while (o.config.n_sets < MOST_SETS && s->sets[o.config.n_sets]) {
        sets[o.config.n_sets] = s->sets[o.config.n_sets];
        o.config.n_sets++;
    }
    for (int i = 0; i < 2 && s->nvme; i++) {
        sets[o.config.n_sets++] = nvme_set[i];
    }
    *comm = NULL;
    if (s->ranks > 1) {
        assert_int_equal(sw_comm_open(&(struct sw_transport){.size = s->ranks}, comm), SW_OK);
    }
    o.run.comm = *comm;
    if (sw_initialize(&o, out) < 0) {
        fail_msg("%s: %s", s->name, sw_error_message());
    }
}

static int64_t number(const struct sw_json *object, const char *key)
{
    const struct sw_json *value = sw_json_get(object, key);
    return value ? value->integer : 0;
}

static void assert_text(const struct sw_json *object, const char *key, const char *wanted)
{
    const struct sw_json *value = sw_json_get(object, key);
    assert_string_equal(value ? value->string : "", wanted ? wanted : "");
}

static void check_operand(const struct sw_plan *plan, const struct sw_operand *operand,
                          const struct sw_json *said)
{
    if (operand->tier == SW_TIER_COUNT) {
        assert_int_equal(said->type, SW_JSON_NULL);
        return;
    }
    assert_text(said, "tier", sw_tier_name(operand->tier));
    assert_int_equal(number(said, "offset"), operand->offset);
    assert_int_equal(number(said, "bytes"), operand->bytes);
    const struct sw_json *rings = sw_json_get(said, "rings");
    const struct sw_json *ring = rings ? rings->first : NULL;
    for (int k = 0; k < SW_OPERAND_RINGS; k++) {
        if (operand->ring[k].stride > 0) {
            assert_non_null(ring);
            assert_text(ring, "by", sw_ring_name(operand->ring[k].by));
            assert_int_equal(number(ring, "stride"), operand->ring[k].stride);
            assert_int_equal(number(ring, "modulus"), operand->ring[k].modulus);
            ring = ring->next;
        }
    }
    assert_null(ring);
    const size_t shift = operand->ring[0].stride; /* offset of the second slot */
    assert_true(operand->offset + operand->bytes + shift <= plan->tier_bytes[operand->tier]);
}

/* For some kinds of op, checks that the dump has the kernel's attributes. */
static void check_attributes(const struct sw_program *program, int32_t i,
                             const struct sw_json *said)
{
    struct sw_op op;
    struct sw_op_desc desc;
    const struct sw_json *attributes = sw_json_get(said, "attributes");
    sw_program_describe(program, i, &op, &desc);
    const struct sw_attrs *attrs = &desc.op->attrs;
    const struct sw_json *value;
    switch (sw_op_info(desc.op->kind)->attrs) {
    case SW_ATTRS_MATMUL:
        assert_int_equal(sw_json_get(attributes, "ta") != NULL, attrs->matmul.ta);
        assert_int_equal(sw_json_get(attributes, "tb") != NULL, attrs->matmul.tb);
        assert_int_equal(number(attributes, "first"), attrs->matmul.tile.first);
        assert_text(attributes, "act", attrs->matmul.act == SW_ACT_GELU_TANH ? "gelu_tanh" : NULL);
        break;
    case SW_ATTRS_UPDATE:
        assert_text(attributes, "kind", "adam");
        assert_int_equal(number(attributes, "first"), attrs->update.first);
        value = sw_json_get(attributes, "eps");
        assert_true(value && value->number == attrs->update.rule.eps);
        break;
    case SW_ATTRS_NONE:
        assert_null(attributes);
        break;
    default:
        break;
    }
}

static void check_instr(const struct sw_plan *plan, const struct sw_program *program, int32_t i,
                        const struct sw_json *said)
{
    static const char *const verbs[] = {"kernel", "copy_in", "copy_out", "read",
                                        "write",  "reduce",  "gather",   "merge"};
    const struct sw_instr *instr = &program->instrs[i];
    const struct sw_json *waits = sw_json_get(said, "waits");
    const struct sw_json *workspace = sw_json_get(said, "workspace");
    const struct sw_json *operands = sw_json_get(said, "operands");
    assert_int_equal(number(said, "number"), i);
    assert_text(said, "verb", verbs[instr->verb]);
    assert_text(said, "name", instr->about->name);
    assert_text(said, "queue", sw_queue_name(instr->queue));
    assert_text(said, "segment", sw_segment_name(instr->segment));
    assert_text(said, "scope", instr->about->scope);
    assert_text(said, "tensor", instr->about->tensor);
    assert_text(said, "kernel", instr->about->kernel.path);
    assert_int_equal(number(said, "retired"), instr->retired);
    assert_int_equal(number(said, "micro_batch"), instr->micro < 0 ? 0 : instr->micro);
    assert_int_equal(sw_json_get(said, "of_step") != NULL, instr->micro < 0);
    assert_int_equal(sw_json_get(said, "predicate") != NULL,
                     instr->verb == SW_VERB_KERNEL && instr->unless_skipped);
    assert_int_equal(sw_json_get(said, "last_only") != NULL, instr->last_only);
    for (int q = 0; q < SW_QUEUE_COUNT; q++) {
        const struct sw_json *wait = sw_json_get(waits, sw_queue_name((enum sw_queue)q));
        assert_int_equal(wait ? wait->integer : -1, instr->waits[q]);
    }
    assert_int_equal(workspace != NULL, instr->workspace >= 0);
    if (workspace) {
        const struct sw_buffer *buffer = &program->buffers[instr->workspace];
        assert_int_equal(number(workspace, "offset"), buffer->offset);
        assert_int_equal(number(workspace, "bytes"), buffer->bytes);
    }
    assert_int_equal(operands->n_children, instr->n_in + instr->n_out);
    if (instr->verb == SW_VERB_KERNEL) {
        check_attributes(program, i, said);
    }
    const struct sw_operand *operand = &program->operands[instr->operands];
    for (const struct sw_json *at = operands->first; at; at = at->next) {
        check_operand(plan, operand++, at);
    }
}

/* Computes, from the dump alone, bytes between tiers in a step and operations. */
static void check_sums(const struct sw_json *root, const struct sw_json *said)
{
    static const char *const ways[4][2] = {{"copy_in", "from_host"},
                                           {"copy_out", "to_host"},
                                           {"read", "from_disk"},
                                           {"write", "to_disk"}};
    const bool one_round = number(said, "micro_batches") > 1;
    int64_t flops = 0, moved[4] = {0};
    const struct sw_json *list = sw_json_get(said, "instruction_list");
    assert_int_equal(list->n_children, number(said, "instructions"));
    for (const struct sw_json *at = list->first; at; at = at->next) {
        const char *segment = sw_json_get(at, "segment")->string;
        const bool once = one_round || sw_json_get(at, "last_only") ||
                          strcmp(segment, "update") == 0 || strcmp(segment, "commit") == 0;
        flops += strcmp(sw_json_get(at, "verb")->string, "kernel") == 0 ? number(at, "flops") : 0;
        for (size_t i = 0; i < SW_LEN(ways); i++) {
            if (strcmp(sw_json_get(at, "verb")->string, ways[i][0]) == 0) {
                moved[i] += number(at, "bytes") * (once ? 1 : number(root, "micro_steps"));
            }
        }
    }
    assert_int_equal(flops, number(said, "flops"));
    for (size_t i = 0; i < SW_LEN(ways) && strcmp(sw_json_get(said, "kind")->string, "train") == 0;
         i++) {
        assert_int_equal(moved[i], number(sw_json_get(root, "moved_in_a_step"), ways[i][1]));
    }
}

static void check_ports(const struct sw_port *ports, int32_t n, const struct sw_json *said)
{
    assert_int_equal(said->n_children, n);
    for (const struct sw_json *at = said->first; at; at = at->next, ports++) {
        assert_text(at, "name", ports->name);
        assert_int_equal(sw_json_get(at, "shape")->n_children, ports->shape.rank);
        assert_int_equal(sw_json_get(at, "at") != NULL, ports->at.tier != SW_TIER_COUNT);
    }
}

static void check_persistent(const struct sw_plan *plan, const struct sw_json *root)
{
    const struct sw_json *said = sw_json_get(root, "persistent");
    const struct sw_json *packs = sw_json_get(root, "pack_list");
    const struct sw_persistent *item = plan->persistent;
    int64_t taken[SW_TIER_COUNT] = {0}, n_packed = 0;
    assert_int_equal(said->n_children, plan->n_persistent);
    for (const struct sw_json *at = said->first; at; at = at->next, item++) {
        assert_text(at, "name", item->name);
        assert_text(at, "tier", sw_tier_name(item->tier));
        assert_int_equal(number(at, "offset"), item->offset);
        assert_int_equal(number(at, "bytes"), item->bytes);
        const struct sw_json *pack = sw_json_get(at, "pack");
        taken[item->tier] += pack ? 0 : number(at, "room") + number(at, "slot_bytes");
        n_packed += pack != NULL;
        for (const struct sw_json *p = packs->first; pack && p; p = p->next) {
            if (strcmp(sw_json_get(p, "name")->string, pack->string) == 0) {
                assert_true(item->offset >= (size_t)number(p, "offset") &&
                            item->offset + item->bytes <=
                                (size_t)(number(p, "offset") + number(p, "bytes")));
            }
        }
    }
    for (const struct sw_json *p = packs->first; p; p = p->next) {
        taken[SW_TIER_DISK] += number(p, "bytes") + number(p, "slot_bytes");
    }
    assert_int_equal(packs->n_children, plan->n_packs);
    assert_int_equal(n_packed, number(root, "packed_tensors"));
    assert_true(taken[SW_TIER_DEVICE] <= number(root, "device_bytes"));
    assert_true(taken[SW_TIER_HOST] <= number(root, "host_bytes"));
    assert_true(taken[SW_TIER_DISK] <= number(root, "disk_bytes"));
    assert_int_equal(sw_json_get(root, "tile_list")->n_children, plan->n_tiled);
}

static void the_dump_is_the_plan(void **state)
{
    (void)state;
    for (size_t s = 0; s < SW_LEN(settings); s++) {
        sw_engine *e;
        sw_comm *comm;
        char *text[2] = {NULL, NULL};
        struct sw_json_doc *doc;
        int64_t n_has = 0;
        open_plan(&settings[s], &comm, &e);
        const struct sw_plan *plan = sw_engine_facts(e).plan;
        for (int i = 0; i < 2; i++) {
            assert_int_equal(sw_plan_text(e, true, true, &text[i]), SW_OK);
        }
        assert_string_equal(text[0], text[1]);
        assert_int_equal(
            sw_json_parse(settings[s].name, text[0], strlen(text[0]), SW_JSON_STRICT, &doc), SW_OK);
        const struct sw_json *root = sw_json_root(doc), *said = sw_json_get(root, "programs");
        assert_int_equal(said->n_children, plan->n_programs);
        said = said->first;
        for (int p = 0; p < plan->n_programs; p++, said = said->next) {
            const struct sw_program *program = &plan->programs[p];
            const struct sw_json *at = sw_json_get(said, "instruction_list")->first;
            for (int32_t i = 0; i < program->n_instrs; i++, at = at->next) {
                check_instr(plan, program, i, at);
                n_has += program->instrs[i].verb == settings[s].has;
            }
            check_ports(program->ports.inputs, program->ports.n_inputs,
                        sw_json_get(said, "inputs"));
            check_ports(program->ports.outputs, program->ports.n_outputs,
                        sw_json_get(said, "outputs"));
            check_sums(root, said);
        }
        check_persistent(plan, root);
        assert_true(n_has > 0);
        sw_json_close(doc);
        sw_text_free(text[0]);
        sw_text_free(text[1]);
        sw_close(e);
        if (comm) {
            sw_comm_close(comm, false);
        }
    }
}

/* The summary is for programs that need only the figures. */
static void the_summary_has_no_lists(void **state)
{
    (void)state;
    sw_engine *e;
    sw_comm *comm;
    char *text = NULL;
    struct sw_json_doc *doc;
    open_plan(&settings[0], &comm, &e);
    assert_int_equal(sw_plan_text(e, false, true, &text), SW_OK);
    assert_int_equal(sw_json_parse("summary", text, strlen(text), SW_JSON_STRICT, &doc), SW_OK);
    const struct sw_json *program = sw_json_get(sw_json_root(doc), "programs")->first;
    assert_true(number(program, "instructions") > 0);
    assert_null(sw_json_get(program, "instruction_list"));
    assert_null(sw_json_get(sw_json_root(doc), "persistent"));
    assert_non_null(sw_json_get(sw_json_root(doc), "moved_in_a_step"));
    sw_json_close(doc);
    sw_text_free(text);
    sw_close(e);
}

static int make_folder(void **state)
{
    (void)state;
    snprintf(nvme_set[0], sizeof nvme_set[0], "zero_optimization.offload_optimizer.nvme_path=%s",
             test_folder());
    snprintf(nvme_set[1], sizeof nvme_set[1], "zero_optimization.offload_param.nvme_path=%s",
             test_folder());
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(test_folder());
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_dump_is_the_plan),
    cmocka_unit_test(the_summary_has_no_lists),
};

const struct test_program sw_tests = {TEST_TABLE(tests), .setup = make_folder,
                                      .teardown = remove_folder};
