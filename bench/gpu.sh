#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What a GPU is to show, in calls of under 9 minutes each, from this tree alone and without a network:
#   gpu.sh pack CASE..   copies recorded cases (folders of docs/check.md) to build-gpu-cases, to be carried along
#   gpu.sh right         kernels beside the plain C reference; recorded cases; the losses of 200 steps of GPT-2 beside
#                        the CPU's; the same bits twice, at all stages, wherever states lie, on 1 and 2 ranks
#   gpu.sh speed         tokens/s of GPT-2 124M, 1.5B and LLaMA 1.1B, beside PyTorch where it is; the update offloaded
#   gpu.sh size          the largest model that makes steps, nothing, host and disk offloaded, beside PyTorch's
# Variables: DEVICE (cuda), BUILD (build-gpu; made with the minimal preset where it has no program), STEPS (200), OUT
# (bench/results), DISK (a folder on a fast disk, /tmp). Each writes OUT/gpu-<what>-<date>.json; the status is not 0 where
# something is not right. `DEVICE=emu BUILD=build-dev STEPS=3 bench/gpu.sh right` tries the script itself without a GPU.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
what=${1:-}
device=${DEVICE:-cuda} build=${BUILD:-build-gpu} steps=${STEPS:-200} out=${OUT:-bench/results} disk=${DISK:-/tmp}
cases=build-gpu-cases
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
n_bad=0
results=()

say() { printf '\n#### %s (%d s)\n' "$*" "$SECONDS"; }
# note <name> <value that is JSON>
note() { results+=("\"$1\": $2"); echo "$1: $2"; }
# expect <name> <command>..: a row of "right", true or false
expect() {
    local name=$1
    shift
    if "$@" > "$work/log" 2>&1; then
        note "$name" true
    else
        tail -n 15 "$work/log"
        note "$name" false
        n_bad=$((n_bad + 1))
    fi
}
text() { printf '"%s"' "$(printf '%s' "$1" | tr -d '"\\\n' | cut -c1-200)"; }

make_build() {
    if [ ! -x "$build/spillway" ]; then
        say "building"
        cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DSPILLWAY_MINIMAL=ON "-DSPILLWAY_${device%%:*}=ON" > "$work/log" 2>&1 ||
            { tail "$work/log"; exit 1; }
    fi
    cmake --build "$build" --parallel "$(nproc)" > "$work/log" 2>&1 || { tail -n 40 "$work/log"; exit 1; }
    cmake --build "$build" --parallel "$(nproc)" --target bench_train_gpt2 bench_capacity > "$work/log" 2>&1 ||
        { tail -n 40 "$work/log"; exit 1; }
    note date "$(text "$(date -u +%Y-%m-%dT%H:%MZ)")"
    note commit "$(text "$(git rev-parse --short HEAD 2> /dev/null)")"
    note cpu "$(text "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) processors")"
    note gpu "$(text "$(nvidia-smi --query-gpu=name,driver_version,clocks.max.sm --format=csv,noheader 2> /dev/null || echo none)")"
    "$build/spillway" doctor | tee "$work/doctor"
}

finish() {
    mkdir -p "$out"
    local file
    file=$out/gpu-$what-$(date -u +%Y%m%d-%H%M%S).json
    (IFS=,; printf '{%s}\n' "${results[*]}") > "$file"
    say "$file: $n_bad not right"
    exit $((n_bad > 0))
}

# train <folder> <further flags>..: the text of this tree, by characters; of GPT-2, two bytes a token
train() {
    local folder=$1 data=$work/text.txt
    shift
    case " $* " in *" --model gpt2 "*) data=$work/text.bin ;; esac
    "$build/spillway" train --data "$data" --output "$folder" --no-export --quiet "$@"
}
losses() { sed -n 's/.*"loss":\([-0-9.e+]*\).*/\1/p' "$1/metrics.jsonl"; }

# near <a> <b> <tolerance>: every loss of the two runs
near() {
    [ "$(losses "$1" | wc -l)" -gt 0 ] && paste <(losses "$1") <(losses "$2") | awk -v most="$3" '
        NF < 2 { bad = 1 }
        { d = $1 - $2; d = d < 0 ? -d : d; worst = d > worst ? d : worst }
        END { print "largest difference " worst; exit bad || worst > most }'
}

same_bits() { # <a> <b>: the losses of two runs, digit by digit
    [ "$(losses "$1" | wc -l)" -gt 0 ] && [ "$(losses "$1")" = "$(losses "$2")" ]
}

right() {
    make_build
    local sources=(docs/*.md src/*/*.c)
    cat "${sources[@]}" | tr -cd '\12\40-\176' | head -c 1000000 > "$work/text.txt"
    cp "$work/text.txt" "$work/text.bin"

    say "kernels"
    if [ -x "$build/tests/device_gpu_test" ]; then
        expect kernels env SPILLWAY_TEST_DEVICE="$device" SPILLWAY_MODULES="$build" "$build/tests/device_gpu_test"
    fi
    say "recorded cases"
    local one
    for one in "$cases"/*/ tests/cases/*/; do
        [ -f "$one/reference.json" ] && expect "case $(basename "$one")" "$build/spillway" check "$one" --device "$device"
    done

    say "the same bits"
    local base=(--model gpt2-tiny --steps 5 --seq-len 32 --set bf16.enabled=true --set gradient_accumulation_steps=4 --device "$device")
    expect "one run" train "$work/a" "${base[@]}"
    expect "again" train "$work/b" "${base[@]}"
    expect "again: same bits" same_bits "$work/a" "$work/b"
    local stage place
    for stage in 1 2 3; do
        for place in none cpu nvme; do
            [ $place != nvme ] || [ $stage -eq 3 ] || continue
            local where=(--set "zero_optimization.stage=$stage")
            [ $place = none ] || where+=(--set "zero_optimization.offload_optimizer.device=$place"
                --set "zero_optimization.offload_optimizer.nvme_path=$disk")
            [ $place = none ] || [ $stage -lt 3 ] || where+=(--set "zero_optimization.offload_param.device=$place"
                --set "zero_optimization.offload_param.nvme_path=$disk")
            rm -rf "$work/b"
            expect "stage $stage, $place" train "$work/b" "${base[@]}" "${where[@]}"
            expect "stage $stage, $place: same bits" same_bits "$work/a" "$work/b"
        done
    done
    rm -rf "$work/b"
    expect "2 ranks" train "$work/b" "${base[@]}" --set gradient_accumulation_steps=2 --ranks 2 --set zero_optimization.stage=3
    expect "2 ranks: same bits" same_bits "$work/a" "$work/b"

    if command -v compute-sanitizer > /dev/null; then
        say "compute-sanitizer"
        rm -rf "$work/b"
        expect "compute-sanitizer" compute-sanitizer --error-exitcode 9 "$build/spillway" train --data "$work/text.txt" \
            --output "$work/b" --no-export --quiet "${base[@]}" --steps 1
    else
        note "compute-sanitizer" '"not here"'
    fi

    say "$steps steps of GPT-2 beside the CPU's"
    local model=gpt2
    case $device in emu*) model=gpt2-tiny ;; esac
    base=(--model $model --steps "$steps" --seq-len 64 --seed 1 --set train_micro_batch_size_per_gpu=4)
    expect "cpu" train "$work/c" "${base[@]}" --device cpu
    expect "$device" train "$work/d" "${base[@]}" --device "$device"
    expect "losses within 0.01 of the CPU's" near "$work/c" "$work/d" 0.01
    cat "$work/log"
    finish
}

# ours <name> <flags of bench_train_gpt2>..
ours() {
    local name=$1
    shift
    say "$name"
    if "$build/bench/bench_train_gpt2" --device "$device" --threads "$(nproc)" --product 8192 "$@" > "$work/log" 2>&1; then
        cat "$work/log"
        note "$name" "$(grep '"step_s"' "$work/log")"
    else
        tail -n 5 "$work/log"
        note "$name" "$(text "$(tail -n 1 "$work/log")")"
    fi
}
theirs() {
    local name=$1
    shift
    if python3 -c 'import torch, transformers; assert torch.cuda.is_available()' 2> /dev/null; then
        say "$name"
        timeout 240 python3 bench/train_gpu_pytorch.py "$@" > "$work/log" 2>&1
        tail -n 2 "$work/log"
        note "$name" "$(grep '^{' "$work/log" | tail -n 1 | grep . || text "$(tail -n 1 "$work/log")")"
    fi
}

speed() {
    make_build
    local offload=(--set zero_optimization.stage=3 --set zero_optimization.offload_optimizer.device=cpu)
    local model batch
    for pair in gpt2:16 tinyllama-1.1b:8 gpt2-xl:8; do
        model=${pair%:*} batch=${pair#*:}
        ours "$model" --model "$model" --dtype bf16 --batch "$batch" --seq-len 1024 --steps 10
        theirs "$model, PyTorch" --model "$model" --batch "$batch" --tokens 1024 --steps 10
    done
    # 64k tokens a step: what the update costs when its states are the host's
    ours "tinyllama-1.1b, 64k tokens" --model tinyllama-1.1b --dtype bf16 --batch 8 --seq-len 1024 --micro-batches 8 --steps 3
    local place
    for place in host device; do
        ours "tinyllama-1.1b, 64k tokens, states on the host, updated on the $place" --model tinyllama-1.1b --dtype bf16 \
            --batch 8 --seq-len 1024 --micro-batches 8 --steps 3 "${offload[@]}" --set "spillway.update=$place"
    done
    ours "tinyllama-1.1b, 64k tokens, all on NVMe" --model tinyllama-1.1b --dtype bf16 --batch 8 --seq-len 1024 \
        --micro-batches 8 --steps 3 --set zero_optimization.stage=3 --set zero_optimization.offload_optimizer.device=nvme \
        --set "zero_optimization.offload_optimizer.nvme_path=$disk" --set zero_optimization.offload_param.device=nvme \
        --set "zero_optimization.offload_param.nvme_path=$disk"
    "$build/spillway" io bench "$disk" > "$work/log" 2>&1
    tail -n 3 "$work/log"
    note "disk" "$(text "$(tail -n 1 "$work/log")")"
    finish
}

size() {
    make_build
    local host space
    host=$(awk '/MemAvailable/ { printf "%d", $2 * 0.85 / 1024 }' /proc/meminfo)
    space=$(df -m --output=avail "$disk" | awk 'NR == 2 { printf "%d", $1 * 0.9 }')
    local gpu
    gpu=$(nvidia-smi --query-gpu=memory.free --format=csv,noheader,nounits 2> /dev/null | awk '{ printf "%d", $1 * 0.97 }')
    say "the largest model"
    timeout 400 "$build/bench/bench_capacity" --device "$device" --path "$disk" --device-memory "${gpu:-256}MiB" \
        --host-memory "${host}MiB" --nvme-space "${space}MiB" --width "${WIDTH:-6144}" --vocab 50257 --seq-len 1024 \
        --most-layers 400 --steps 2 2>&1 | tee "$work/capacity"
    note capacity "$(text "$(tail -n 12 "$work/capacity" | tr '\n' ';')")"
    theirs "PyTorch" --largest --width "${WIDTH:-6144}" --tokens 1024
    finish
}

case $what in
pack)
    shift
    rm -rf "$cases"
    mkdir -p "$cases"
    cp -rL "$@" "$cases"/
    du -sh "$cases"
    ;;
right | speed | size) $what ;;
*)
    sed -n '3,12s/^# *//p' "$0" >&2
    exit 2
    ;;
esac
