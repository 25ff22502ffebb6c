#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares training steps with PyTorch's. The programs run one after the other, ROUNDS times. Prints the medians of the
# rounds' medians, and each program's peak resident memory.
#
#     bench/pytorch.sh BENCH_TRAIN_GPT2 bert-base|t5-small|vit-base|gpt2 B T [ROUNDS]
#
# PyTorch compiles BERT and runs the others eagerly. PYTHON names an interpreter with torch and transformers.
set -eu
bench=${1:?usage: pytorch.sh BENCH_TRAIN_GPT2 MODEL B T [ROUNDS]}
model=$2 batch=$3 tokens=$4 rounds=${5:-3}
here=$(dirname "$0")
ours=$model theirs=$model
if [ "$model" = bert-base ]; then
    ours=$here/bert-base/config.json
    theirs="compile $here/bert-base"
fi
field() { sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p" | tail -n 1; }
median() { sort -n | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'; }
mine=$(mktemp) other=$(mktemp)
trap 'rm -f "$mine" "$other"' EXIT
for _ in $(seq "$rounds"); do
    line=$("$bench" --model "$ours" --batch "$batch" --seq-len "$tokens" --steps 3 | grep step_s)
    echo "$(printf '%s' "$line" | field step_s) $(printf '%s' "$line" | field peak_rss_bytes)" | tee -a "$mine"
    # shellcheck disable=SC2086
    "${PYTHON:-python3}" "$here/train_gpt2_pytorch.py" f32 "$batch" "$tokens" 3 $theirs |
        sed -n 's/.*: \([0-9.]*\) s a step.*RSS \([0-9.]*\) GB/\1 \2e9/p' | tee -a "$other"
done
a=$(cut -d' ' -f1 "$mine" | median) b=$(cut -d' ' -f1 "$other" | median)
memory_a=$(cut -d' ' -f2 "$mine" | median) memory_b=$(cut -d' ' -f2 "$other" | median)
awk -v a="$a" -v b="$b" -v m="$memory_a" -v n="$memory_b" -v model="$model" 'BEGIN {
    printf "%s: %.3f s a step, PyTorch %.3f: %.2f times; resident %.2f and %.2f GB: %.2f\n", model, a, b, b / a,
        m / 1e9, n / 1e9, m / n }'
