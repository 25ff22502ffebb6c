#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Compares training steps on the CPU with PyTorch's: seven models, in fp32 and bf16. The programs run in turns, ROUNDS
# times. Prints a table of the medians of the rounds' medians, with the CPU's name and the date. With PAGE, replaces
# there what stands between the lines "<!-- bench/cpu.sh -->" and "<!-- end -->".
#
#     bench/cpu.sh BENCH_TRAIN_GPT2 [PAGE]
#
# PYTHON  interpreter with torch and transformers (default: python3)
# MODELS  rows, of gpt2 gpt2-long llama-153m bert-base t5-small vit-base mixtral (default: all but the last)
# DTYPES  bf16 f32 (default: both)
# ROUNDS  (default: 3), STEPS  timed steps of a round (default: 3)
# CLIP    norm to which both programs clip gradients; 0 = they do not (default: 1)
# WRAP    command that each measured program is started with (default: none)
#
# PyTorch runs T5 and ViT eagerly and compiles the others; a run that is not measured fills its compiler's cache.
set -eu
bench=${1:?usage: cpu.sh BENCH_TRAIN_GPT2 [PAGE]}
page=${2:-}
here=$(dirname "$0")
models=${MODELS:-gpt2 gpt2-long llama-153m bert-base t5-small vit-base}
dtypes=${DTYPES:-bf16 f32}
rounds=${ROUNDS:-3} steps=${STEPS:-3}
wrap=${WRAP:-} clip=${CLIP:-1}
results=$(mktemp) table=$(mktemp)
[ "$clip" = 1 ] || [ -z "$page" ] || { echo "cpu.sh: CLIP=$clip with PAGE, whose table is clipped to 1" >&2 && exit 2; }
trap 'rm -f "$results" "$table" "$table.page"' EXIT

field() { sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p" | tail -n 1; }
median() { sort -n | awk '{ x[NR] = $1 } END { if (NR) print x[int((NR + 1) / 2)]; else print 0 }'; }

# Sets name, ours, theirs, batch and tokens of a row.
row() {
    batch=4 tokens=64 ours=gpt2 theirs=compile
    case $1 in
    gpt2) name="GPT-2 124M" ;;
    gpt2-long) name="GPT-2 124M" tokens=1024 ;;
    mixtral) name="Mixtral 214M" tokens=256 ours=$here/mixtral/config.json theirs="compile $here/mixtral" ;;
    llama-153m) name="LLaMA 153M" tokens=512 ours=$here/llama-153m/config.json theirs="compile $here/llama-153m" ;;
    bert-base) name="BERT-base" batch=8 tokens=128 ours=$here/bert-base/config.json theirs="compile $here/bert-base" ;;
    t5-small) name="T5-small, eager" batch=8 tokens=128 ours=t5-small theirs=t5-small ;;
    vit-base) name="ViT-base, eager" tokens=197 ours=vit-base theirs=vit-base ;;
    *) echo "cpu.sh: unknown row $1" >&2 && exit 2 ;;
    esac
}

# shellcheck disable=SC2086
our_step() {
    line=$($wrap "$bench" --model "$ours" --batch "$batch" --seq-len "$tokens" --steps "$steps" --dtype "$dtype" \
        --set "gradient_clipping=$clip" | grep step_s) || return 0
    echo "$(printf '%s' "$line" | field step_s) $(printf '%s' "$line" | field peak_rss_bytes)"
}

# shellcheck disable=SC2086
their_step() {
    $1 "${PYTHON:-python3}" "$here/train_gpt2_pytorch.py" "$dtype" "$batch" "$tokens" "$2" "clip=$clip" $theirs |
        sed -n 's/.*: \([0-9.]*\) s a step.*RSS \([0-9.]*\) GB/\1 \2e9/p'
}

for dtype in $dtypes; do
    for model in $models; do
        row "$model"
        [ "${theirs#compile}" = "$theirs" ] || their_step "" 1 > "$results.warm" 2> /dev/null || true
        rm -f "$results.warm"
        for _ in $(seq "$rounds"); do
            our_step | sed "s/^/$model $dtype ours /" | tee -a "$results" >&2
            their_step "$wrap" "$steps" 2> /dev/null | sed "s/^/$model $dtype torch /" | tee -a "$results" >&2
        done
    done
done

cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
{
    echo
    echo "$(date +%F), $cpu, two threads; medians of $rounds rounds of $steps steps."
    echo
    echo "| model | B x T | dtype | Spillway, s per step | PyTorch, s per step | ratio | resident, Spillway over PyTorch |"
    echo "|---|---|---|---|---|---|---|"
    for model in $models; do
        row "$model"
        for dtype in $dtypes; do
            of() { awk -v m="$model" -v d="$dtype" -v who="$1" -v f="$2" '$1 == m && $2 == d && $3 == who { print $f }' \
                "$results" | median; }
            printf '%s|%s x %s|%s|%s|%s|%s|%s\n' "$name" "$batch" "$tokens" "$dtype" "$(of ours 4)" "$(of torch 4)" \
                "$(of ours 5)" "$(of torch 5)"
        done
    done | awk -F '|' '{
        ratio = $4 > 0 && $5 > 0 ? sprintf("%.2f", $5 / $4) : "not measured"
        memory = $6 > 0 && $7 > 0 ? sprintf("%.2f", $6 / $7) : ""
        printf "| %s | %s | %s | %.2f | %.2f | %s | %s |\n", $1, $2, $3 == "f32" ? "fp32" : $3, $4, $5, ratio, memory
    }'
    echo
} > "$table"
cat "$table"
[ -n "$page" ] || exit 0
awk -v table="$table" '
    /^<!-- bench\/cpu.sh -->$/ { print; while ((getline line < table) > 0) print line; skips = found = 1; next }
    /^<!-- end -->$/ { skips = 0 }
    !skips
    END { if (!found || skips) exit 1 }' "$page" > "$table.page" ||
    { echo "cpu.sh: $page lacks the lines <!-- bench/cpu.sh --> and <!-- end -->" >&2 && exit 1; }
cp "$table.page" "$page"
