#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Small random BART and T5 models write texts for prompts of several lengths, greedily and under the rules of
generation_config.json; transformers must write the same: same_texts.py SPILLWAY. Wants torch, transformers and tokenizers;
without them it says so and ends with 77."""
import json, os, pathlib, subprocess, sys, tempfile

try:
    import torch, transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

program = os.path.abspath(sys.argv[1])
words = ["<s>", "<pad>", "</s>", "<unk>"] + [f"w{i}" for i in range(56)]
prompts = ["w1 w2", "w5 w9 w9 w30 w21 w7 w8", "w3", "w4 w4 w40 w41 w42 w43 w17 w18 w19 w20 w50 w55 w0 w11 w12"]
rules = [{}, {"no_repeat_ngram_size": 2}, {"forced_bos_token_id": 7, "forced_eos_token_id": 2, "max_length": 9},
         {"min_length": 14, "max_length": 20}, {"min_new_tokens": 12, "max_new_tokens": 16}, {"repetition_penalty": 1.7},
         {"suppress_tokens": list(range(20, 40)), "begin_suppress_tokens": list(range(5, 20))},
         {"forced_bos_token_id": 5, "begin_suppress_tokens": list(range(5, 50))}, {"eos_token_id": [2, 9, 11, 30, 31, 44]},
         {"decoder_start_token_id": 12}]
sizes = {"vocab_size": len(words), "d_model": 24, "pad_token_id": 1, "eos_token_id": 2, "bos_token_id": 0, "decoder_start_token_id": 2}
configs = {
    "bart": transformers.BartConfig(encoder_layers=2, decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
                                    encoder_ffn_dim=32, decoder_ffn_dim=40, max_position_embeddings=48, init_std=0.4,
                                    forced_eos_token_id=None, **sizes),
    "t5": transformers.T5Config(num_layers=2, num_heads=4, d_kv=8, d_ff=32, relative_attention_num_buckets=8,
                                relative_attention_max_distance=16, initializer_factor=2.0, **sizes),
    "t5 1.1": transformers.T5Config(num_layers=2, num_heads=4, d_kv=8, d_ff=32, feed_forward_proj="gated-gelu",
                                    tie_word_embeddings=False, initializer_factor=2.0, **sizes)}


def write_tokenizer(folder):
    tokenizer = Tokenizer(models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(words[:4])
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 2)])
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", pad_token="<pad>", unk_token="<unk>")
    fast.save_pretrained(folder)
    return fast


failed = n = 0
for name, config in configs.items():
    torch.manual_seed(len(name))
    model = transformers.AutoModelForSeq2SeqLM.from_config(config).eval()
    for more in rules:
        with tempfile.TemporaryDirectory() as folder:
            tokenizer = write_tokenizer(folder)
            model.generation_config = transformers.GenerationConfig(
                **({"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2, "max_new_tokens": 30} | more
                   if "max_length" not in more else
                   {"pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2} | more))
            model.save_pretrained(folder)
            want = []
            for prompt in prompts:
                batch = tokenizer(prompt, return_tensors="pt", return_token_type_ids=False)
                with torch.no_grad():
                    want.append(tokenizer.decode(model.generate(**batch, do_sample=False)[0][1:], skip_special_tokens=True))
            run = subprocess.run([program, "generate", "--model", folder], input="\n".join(prompts) + "\n", capture_output=True, text=True)
            same = run.returncode == 0 and run.stdout.splitlines() == want
            n, failed = n + 1, failed + (not same)
            print(f"{name} {json.dumps(more)}: {'same' if same else 'OTHER'}; {sum(len(w.split()) for w in want)} words")
            if not same:
                print("\n".join(want), run.stdout, run.stderr, sep="\n--\n")
print(f"{n} runs, {failed} failed")
sys.exit(failed > 0)
