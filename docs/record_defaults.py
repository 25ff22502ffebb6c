# SPDX-License-Identifier: Apache-2.0
"""Records what transformers makes of config.json files that leave keys out, set them to null, or name them twice.

    python docs/record_defaults.py tests/cases/defaults/defaults.json

src/model/tests/defaults_test.c opens the same files and compares each value. Wants torch and transformers.
"""
import json
import re
import sys

import torch
import transformers
from transformers import CONFIG_MAPPING

DECODERS = {
    "gpt2": "GPT2LMHeadModel", "llama": "LlamaForCausalLM", "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM", "gemma": "GemmaForCausalLM",
    "gemma2": "Gemma2ForCausalLM", "gemma3_text": "Gemma3ForCausalLM", "gpt_neox": "GPTNeoXForCausalLM",
    "opt": "OPTForCausalLM", "phi": "PhiForCausalLM", "phi3": "Phi3ForCausalLM", "bloom": "BloomForCausalLM",
    "gptj": "GPTJForCausalLM", "smollm3": "SmolLM3ForCausalLM", "olmo2": "Olmo2ForCausalLM",
    "granite": "GraniteForCausalLM", "stablelm": "StableLmForCausalLM", "mixtral": "MixtralForCausalLM",
    "qwen2_moe": "Qwen2MoeForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM", "gpt_oss": "GptOssForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM", "starcoder2": "Starcoder2ForCausalLM", "cohere": "CohereForCausalLM",
    "glm4": "Glm4ForCausalLM", "falcon": "FalconForCausalLM",
}
ENCODERS = {
    "bert": "BertForMaskedLM", "roberta": "RobertaForMaskedLM", "xlm-roberta": "XLMRobertaForMaskedLM",
    "camembert": "CamembertForMaskedLM", "distilbert": "DistilBertForMaskedLM", "deberta-v2": "DebertaV2ForMaskedLM",
    "electra": "ElectraForMaskedLM", "albert": "AlbertForMaskedLM", "mpnet": "MPNetForMaskedLM",
    "modernbert": "ModernBertForMaskedLM",
}
SEQ2SEQ = {
    "bart": "BartForConditionalGeneration", "mbart": "MBartForConditionalGeneration",
    "pegasus": "PegasusForConditionalGeneration", "marian": "MarianMTModel",
    "t5": "T5ForConditionalGeneration", "mt5": "MT5ForConditionalGeneration",
}
IMAGES = {"vit": "ViTForImageClassification", "deit": "DeiTForImageClassification",
          "dinov2": "Dinov2ForImageClassification"}
CLASSES = {**DECODERS, **ENCODERS, **SEQ2SEQ, **IMAGES}
HEADS = ["ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"]
CLASSIFIERS = ["bart", "mbart", "bert", "llama", "gpt2", "distilbert"]
ROTARY = [t for t in DECODERS if t not in ("gpt2", "opt", "bloom", "gptj")]

# Names in the record, and the attributes that have the value, the first that a class has.
EVERYWHERE = {"width": ["hidden_size"], "layers": ["num_hidden_layers"], "vocab": ["vocab_size"],
              "labels": ["num_labels"], "tied": ["tie_word_embeddings"], "pad_id": ["pad_token_id"]}
VALUES = {
    "decoder": {"heads": ["num_attention_heads"], "max_tokens": ["max_position_embeddings"],
                "eps": ["rms_norm_eps", "layer_norm_eps", "norm_epsilon", "layer_norm_epsilon"],
                "act": ["hidden_act", "hidden_activation", "activation_function", "activation"],
                "init_range": ["initializer_range", "init_std"],
                "attention_dropout": ["attention_dropout", "attn_pdrop"],
                "embedding_dropout": ["embd_pdrop", "embedding_dropout"],
                "hidden_dropout": ["resid_pdrop", "residual_dropout", "hidden_dropout", "dropout"],
                "window": ["sliding_window"], "logits_cap": ["final_logit_softcapping"],
                "experts_of_token": ["num_experts_per_tok"], "alpha": ["swiglu_alpha"], "limit": ["swiglu_limit"],
                "normalises_choices": ["norm_topk_prob"], "choice_scale": ["routed_scaling_factor"],
                "choice_groups": ["n_group"], "kept_groups": ["topk_group"],
                "logit_scale": ["logit_scale"]},
    "encoder": {"heads": ["num_attention_heads"], "eps": ["layer_norm_eps"], "act": ["hidden_act", "activation"],
                "init_range": ["initializer_range"], "hidden_dropout": ["hidden_dropout_prob", "dropout"],
                "attention_dropout": ["attention_probs_dropout_prob", "attention_dropout"],
                "answers_dropout": ["qa_dropout"]},
    "seq2seq": {"heads": ["num_attention_heads"], "eps": ["layer_norm_epsilon"], "act": ["activation_function"],
                "dropout": ["dropout", "dropout_rate"], "attention_dropout": ["attention_dropout"],
                "act_dropout": ["activation_dropout"], "classifier_dropout": ["classifier_dropout"],
                "init_range": ["init_std"], "eos_id": ["eos_token_id"], "start_id": ["decoder_start_token_id"],
                "decoder_layers": ["decoder_layers", "num_decoder_layers"], "head_width": ["d_kv"],
                "decoder_heads": ["decoder_attention_heads"]},
    "image": {},
}
# What the model's code has instead of the attribute, or does not read.
ABSENT = {"gemma3_text": ["attention_dropout"], "falcon": ["attention_dropout"], "deepseek_v3": [],
          "phi3": ["embedding_dropout"], "modernbert": ["heads", "act", "init_range", "attention_dropout"],
          "t5": ["attention_dropout"], "mt5": ["attention_dropout"], "pegasus": ["classifier_dropout"],
          "marian": ["classifier_dropout"], "mbart": ["start_id"], "gpt_neox": ["embedding_dropout"], "opt": ["embedding_dropout"]}


def kind_of(model_type):
    kinds = {"decoder": DECODERS, "encoder": ENCODERS, "seq2seq": SEQ2SEQ, "image": IMAGES}
    return next(k for k, types in kinds.items() if model_type in types)


def attribute(config, names):
    for name in names:
        if hasattr(config, name):
            return True, getattr(config, name)
    return False, None


def number_of_parameters(config, name):
    """All tensors of the model's file, those of one memory once. The mask token is for another task."""
    with torch.device("meta"):
        model = getattr(transformers, name)(config)
    model.tie_weights()
    tensors = {id(t): t for n, t in model.state_dict(keep_vars=True).items() if not n.endswith(".mask_token")}
    return sum(t.numel() for t in tensors.values())


def rotary(config, name):
    """Frequencies of the layers without a window, and of those with one if they have their own."""
    module = sys.modules[getattr(transformers, name).__module__]
    made = next(v for k, v in vars(module).items() if k.endswith("RotaryEmbedding"))(config)
    kinds = {"": "inv_freq", "local_": "sliding_attention_inv_freq"}
    if hasattr(made, "full_attention_inv_freq"):
        kinds[""] = "full_attention_inv_freq"
    out = {}
    for prefix, buffer in kinds.items():
        if hasattr(made, buffer):
            f = getattr(made, buffer)
            out[prefix + "frequencies"] = len(f)
            out[prefix + "frequency_end"] = float(f[-1])
    if hasattr(made, "attention_scaling"):
        out["attention_factor"] = float(made.attention_scaling)
    return out


def runs(config, name):
    """Whether the model's code can run what the configuration says."""
    torch.manual_seed(0)
    try:
        getattr(transformers, name)(config).eval()(torch.tensor([[1, 2, 3, 4]]))
        return True
    except RuntimeError as error:
        assert "size" in str(error), error
        return False


def record(members, model_type, small=False, name=None):
    name = name or CLASSES[model_type]
    config_json = {"model_type": model_type, "architectures": [name], **members}
    try:
        config = CONFIG_MAPPING[model_type].from_dict(json.loads(json.dumps(config_json)))
        parameters = number_of_parameters(config, name)
    except Exception as error:  # transformers cannot use it
        print("%s: %s" % (json.dumps(config_json), str(error).split("\n")[-1].strip()))
        return None
    if small and not runs(config, name):
        return {"config": config_json, "refused": True}
    values = {}
    for key, names in {**EVERYWHERE, **VALUES[kind_of(model_type)]}.items():
        found, value = attribute(config, names)
        if found and key not in ABSENT.get(model_type, []):
            values[key] = value
    if kind_of(model_type) in ("seq2seq", "image"):
        values.pop("tied", None)
    if model_type in ROTARY:
        values.update(rotary(config, name))
        types = getattr(config, "layer_types", None)
        windowed = types.count("sliding_attention") if types else config.num_hidden_layers
        values["windowed_layers"] = windowed if getattr(config, "sliding_window", None) else 0
    values["parameters"] = parameters
    return {"config": config_json, "values": values}


SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 64,
         "intermediate_size": 32, "pad_token_id": 0}


def small(model_type):
    """A model that a CPU runs, with the class's other defaults."""
    out = dict(SMALL)
    experts = {"mixtral": "num_local_experts", "gpt_oss": "num_local_experts", "qwen2_moe": "num_experts",
               "qwen3_moe": "num_experts"}
    if model_type in experts:
        out.update({experts[model_type]: 4, "num_experts_per_tok": 2})
    if model_type in ("qwen2_moe", "qwen3_moe"):
        out.update({"moe_intermediate_size": 16, "shared_expert_intermediate_size": 32})
    if model_type == "deepseek_v3":
        out.update({"n_routed_experts": 8, "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2,
                    "moe_intermediate_size": 16, "q_lora_rank": 9, "kv_lora_rank": 7, "qk_nope_head_dim": 6,
                    "qk_rope_head_dim": 8, "v_head_dim": 5})
    if model_type == "falcon":
        out["ffn_hidden_size"] = 32
    else:
        out["num_key_value_heads"] = 2
    if model_type in ("gpt_neox", "deepseek_v3"):
        del out["num_key_value_heads"]
    return out


def cases():
    for model_type in CLASSES:
        yield model_type, {}, {}
    for model_type in CLASSIFIERS:
        name = {"bert": "Bert", "bart": "Bart", "mbart": "MBart", "llama": "Llama", "gpt2": "GPT2",
                "distilbert": "DistilBert"}[model_type] + "ForSequenceClassification"
        yield model_type, {"num_labels": 5}, {"name": name}
        yield model_type, {"num_labels": 5, "id2label": {"0": "a", "1": "b", "2": "c", "3": "d"}}, {"name": name}
        yield model_type, {"id2label": {"0": "a", "1": "b", "2": "c", "3": "d"}}, {"name": name}
    for model_type in CLASSES:  # the other heads that are built
        for head in HEADS if model_type in ENCODERS else [] if model_type in ("t5", "mt5") else HEADS[:1]:
            name = re.sub("ForMaskedLM|ForCausalLM|LMHeadModel|ForConditionalGeneration", head, CLASSES[model_type])
            name = name.replace("Gemma3For", "Gemma3TextFor")
            if name.endswith(head) and hasattr(transformers, name):
                yield model_type, {}, {"name": name}
    for model_type in DECODERS:
        keys = ["num_key_value_heads", "head_dim", "rope_scaling", "rope_parameters", "sliding_window"]
        fields = CONFIG_MAPPING[model_type].__dataclass_fields__
        for key in keys if model_type in ROTARY else []:
            if key in fields or key == "rope_scaling":
                yield model_type, {key: None}, {}
    for model_type in CLASSES:  # the names of transformers' attribute_map
        sizes = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4, "max_position_embeddings": 40,
                 "head_dim": 6, "num_local_experts": 9, "num_experts": 9}
        members = {k: v for k, v in sizes.items() if k in CONFIG_MAPPING[model_type].attribute_map}
        if len(members) > 1:
            members["vocab_size"] = 64
            if model_type == "bloom":
                members["n_embed"] = 48
        members.update({"rotary_dim": 4} if model_type == "gptj" else {})
        members.update({"pad_token_id": 0, "decoder_start_token_id": 0} if model_type == "marian" else {})
        members.update({"num_local_experts": 16} if model_type == "deepseek_v3" else {})
        if members:
            yield model_type, members, {}
    yield "falcon", {"n_embed": 142, "num_hidden_layers": 1}, {}
    for rope in ({"rope_type": "yarn", "factor": 16.0}, {}):
        for key in ("rope_scaling", "rope_parameters"):
            yield "gpt_oss", {key: rope}, {}
    yield "gpt_oss", {"rope_theta": 10000.0}, {}
    for model_type in ROTARY:
        if model_type == "gemma3_text":
            for rope in ({"rope_type": "default"}, {"rope_type": "linear", "factor": 2.0}):
                yield model_type, {**small(model_type), "layer_types": ["sliding_attention", "full_attention"],
                                   "rope_parameters": {"full_attention": {**rope, "partial_rotary_factor": 0.5}}}, {"small": True}
            continue
        share = {"partial_rotary_factor": 0.5}
        if model_type != "gpt_neox":  # refused: transformers ignores the key
            yield model_type, {**small(model_type), **share}, {"small": True}
        yield model_type, {**small(model_type), "rope_parameters": {"rope_type": "default", **share}}, {"small": True}
        if model_type != "phi3":
            linear = {"rope_type": "linear", "factor": 2.0}
            if model_type != "gpt_neox":
                yield model_type, {**small(model_type), "rope_scaling": linear, **share}, {"small": True}
            yield model_type, {**small(model_type), "rope_parameters": {**linear, **share}}, {"small": True}


def main(path):
    rows, base = [], {}
    for model_type, members, options in cases():
        row = record(members, model_type, **options)
        if row and "values" in row:  # the first of a type has all values, the others those that differ
            values = row["values"]
            first = base.setdefault(model_type, values)
            row["values"] = values if first is values else {k: v for k, v in values.items() if k not in first or first[k] != v}
        rows += [row] if row else []
    with open(path, "w") as f:
        f.write('{"made_by": {"transformers": "%s", "torch": "%s"},\n "cases": [\n' %
                (transformers.__version__, torch.__version__.split("+")[0]))
        f.write(",\n".join("  " + json.dumps(row) for row in rows))
        f.write("\n]}\n")
    print("%d cases" % len(rows))


if __name__ == "__main__":
    main(sys.argv[1])
