#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# GPU checks and benchmarks. Each call takes under 9 minutes, and needs this tree only and no network:
#   gpu.sh pack FOLDER.. copy folders with recorded cases (docs/check.md) to build-gpu-cases, which git ignores, to carry
#                        them to the GPU machine
#   gpu.sh build         build the programs for the other commands, which otherwise build them; reports the time
#   gpu.sh right         compare kernels with the plain C reference, recorded cases, and losses of 200 steps of GPT-2 with
#                        the CPU's; compare bits of repeated runs, stages, places of states, and 1 and 2 ranks
#   gpu.sh speed         tokens/s of GPT-2 124M, 1.5B and LLaMA 1.1B, and of PyTorch if installed
#   gpu.sh offload       time of a step with optimizer states on the host or everything on NVMe, at 16k to 64k tokens; least
#                        tokens per step for which updating on the host adds at most a tenth
#   gpu.sh many          with several GPUs: bytes per second of each exchange, as a ratio to those of nccl-tests (rccl-tests) if
#                        they are in PATH; tokens/s at ZeRO stages 0 to 3 on all of them; launches of a step, captured and not
#   gpu.sh predict       measure this machine into OUT/cluster-<date>.json; a step of GPT-2 124M and 1.5B as plan --predict
#                        predicts it, over the measured one (0.90 to 1.10 is right): nothing offloaded, states on the host, all on
#                        NVMe
#   gpu.sh size          largest model that trains, without offloading, with the host and with a disk; PyTorch's largest
# Variables: DEVICE (cuda), BUILD (build-gpu; built with the minimal preset if it has no program), STEPS (200), OUT
# (bench/results), RANKS of "many" (one a GPU), DISK (a folder on a fast disk, /tmp), HOST_MEMORY (most of the free memory), LIMIT (530 seconds; later parts
# are skipped with a note). Each call writes OUT/gpu-<what>-<date>.json, again after each result. The exit status is not 0 if a
# check failed or was skipped. `DEVICE=emu BUILD=build-dev STEPS=3 bench/gpu.sh right` tests the script without a GPU.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
what=${1:-}
device=${DEVICE:-cuda} build=${BUILD:-build-gpu} steps=${STEPS:-200} out=${OUT:-bench/results} disk=${DISK:-/tmp}
limit=${LIMIT:-530}
cases=build-gpu-cases
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
n_bad=0
results=()
file=$out/gpu-$what-$(date -u +%Y%m%d-%H%M%S).json

# Sizes for a GPU; the emulation uses sizes that a CPU can handle.
models=(gpt2:16 tinyllama-1.1b:8 gpt2-xl:8) reference=gpt2 offloaded=tinyllama-1.1b:8 seq=1024 product=8192 counted=10 few=3
exchanged=$((256 << 20)) repeated=20 ranks=${RANKS:-$(nvidia-smi -L 2> /dev/null | wc -l)}
predicted=("gpt2 12 768 50257 8" "gpt2-xl 48 1600 50257 4") # layers, width, vocabulary, micro-batch
micro_batches=(2 4 8) short=(--steps 5 --seq-len 32) size=(--width "${WIDTH:-6144}" --vocab 50257 --seq-len 1024 --most-layers 400)
case $device in
emu*)
    models=(gpt2-tiny:2) reference=gpt2-tiny offloaded=gpt2-tiny:1 seq=16 product=64 counted=2 few=1
    exchanged=$((64 << 10)) repeated=2 ranks=${RANKS:-2}
    predicted=("gpt2-tiny 2 64 512 1")
    micro_batches=(1 2 4) short=(--steps 2 --seq-len 8) size=(--width 64 --vocab 512 --seq-len 32 --most-layers 4)
    ;;
esac

say() { printf '\n#### %s (%d s)\n' "$*" "$SECONDS"; }
# note <name> <JSON value>: writes the file at once, in case the script is killed
note() {
    results+=("\"$1\": $2")
    echo "$1: $2"
    (IFS=,; printf '{%s}\n' "${results[*]}") > "$file"
}
text() { printf '"%s"' "$(printf '%s' "$1" | tr -d '"\\' | tr '\n\t' '; ' | cut -c1-1500)"; }
# limited <command>..: runs it within the time left. 124: the time was not enough
limited() {
    local left=$((limit - SECONDS))
    [ $left -ge 5 ] || return 124
    timeout -k 5 "$left" "$@"
}
# verdict <name> <status>: notes a result of "right"; the command's output is in the log
verdict() {
    case $2 in
    0) note "$1" true ;;
    124) note "$1" '"no time"' ;;
    *)
        tail -n 15 "$work/log"
        note "$1" false
        ;;
    esac
    [ "$2" -eq 0 ] || n_bad=$((n_bad + 1))
    return "$2"
}
# expect <name> <command>..
expect() {
    local name=$1
    shift
    "$@" > "$work/log" 2>&1
    verdict "$name" $?
}

# make_target <target>..
make_target() {
    cmake --build "$build" --parallel "$(nproc)" --target "$@" > "$work/log" 2>&1 || { tail -n 40 "$work/log"; exit 1; }
}

make_build() {
    local backend=${device%%:*} module=gpu_modules arch options=()
    case $device in
    emu:64*) module=spillway_emu64_module ;;
    emu*) module=spillway_emu32_module ;;
    esac
    mkdir -p "$out" || exit
    if [ ! -f "$build/Makefile" ] && [ ! -f "$build/build.ninja" ]; then
        say "configuring"
        arch=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2> /dev/null | head -n 1 | tr -d '. ')
        [ -z "$arch" ] || options+=("-DSPILLWAY_CUDA_ARCHS=sm_$arch") # for this GPU alone: half the time
        cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DSPILLWAY_MINIMAL=ON "-DSPILLWAY_${backend^^}=ON" "${options[@]}" \
            > "$work/log" 2>&1 ||
            { tail "$work/log"; exit 1; }
    fi
    say "building"
    SPILLWAY_MODULES=$(cd "$build" && pwd) # of programs that lie in folders of the build
    export SPILLWAY_MODULES
    make_target spillway_program "$module" bench_train_gpt2 bench_capacity bench_exchange bench_predict \
        device_gpu_test
    note built_s "$SECONDS"
    note date "$(text "$(date -u +%Y-%m-%dT%H:%MZ)")"
    note commit "$(text "$(git rev-parse --short HEAD 2> /dev/null)")"
    note cpu "$(text "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) processors")"
    note gpu "$(text "$(nvidia-smi --query-gpu=name,driver_version,clocks.max.sm --format=csv,noheader 2> /dev/null || echo none)")"
    "$build/spillway" doctor | tee "$work/doctor"
    note doctor "$(text "$(grep -A 6 "^[^ ]* $backend " "$work/doctor")")"
}

finish() {
    say "$file: $n_bad not right"
    exit $((n_bad > 0))
}

# train <folder> <further flags>..: trains on this tree's text, by characters; GPT-2 reads two bytes per token
train() {
    local folder=$1 data=$work/text.txt
    shift
    case " $* " in *" --model gpt2 "*) data=$work/text.bin ;; esac
    limited "$build/spillway" train --data "$data" --output "$folder" --no-export --quiet "$@"
}
losses() { sed -n 's/.*"loss":\([-0-9.e+]*\).*/\1/p' "$1/metrics.jsonl"; }

# near <a> <b> <tolerance>: compares every loss of the two runs
near() {
    [ "$(losses "$1" | wc -l)" -gt 0 ] && paste <(losses "$1") <(losses "$2") | awk -v most="$3" '
        NF < 2 { bad = 1 }
        { d = $1 - $2; d = d < 0 ? -d : d; worst = d > worst ? d : worst }
        END { print "largest difference " worst; exit bad || worst > most }'
}

same_bits() { # <a> <b>: compares the losses of two runs digit by digit
    [ "$(losses "$1" | wc -l)" -gt 0 ] && [ "$(losses "$1")" = "$(losses "$2")" ]
}

# like_the_first <name> <flags>..: expects a run to have the losses of the first
like_the_first() {
    local name=$1
    shift
    rm -rf "$work/b"
    expect "$name" train "$work/b" "${base[@]}" "$@" && expect "$name: same bits" same_bits "$work/a" "$work/b"
}

sanitized() {
    if ! command -v compute-sanitizer > /dev/null; then
        note "compute-sanitizer" '"not here"'
        return
    fi
    say "compute-sanitizer"
    rm -rf "$work/b"
    limited timeout 240 compute-sanitizer --error-exitcode 9 "$build/spillway" train --data "$work/text.txt" --output "$work/b" \
        --no-export --quiet "${base[@]}" --steps 1 > "$work/log" 2>&1
    local status=$?
    if grep -qi "device not supported" "$work/log"; then
        note "compute-sanitizer" "$(text "$(grep -i "device not supported" "$work/log" | head -n 1)")"
    else
        verdict "compute-sanitizer" $status
    fi
}

# Runs the recorded cases of a folder in one process, because a GPU's libraries take seconds to start. A case that no GPU has a kernel
# for is refused by name, which is not a failure.
expect_cases() {
    local of=() one status
    for one in "$1"/*/reference.json; do
        of+=("$(dirname "$one")")
    done
    limited "$build/spillway" check "${of[@]}" --device "$device" > "$work/log" 2>&1
    status=$?
    if [ $status -eq 2 ] && grep -q ', 0 rows failed' "$work/log" && ! grep '^spillway check: ' "$work/log" | grep -qv 'no kernel on this device'; then
        status=0
    fi
    grep -i 'fail' "$work/log" | head -n 20
    [ $status -ne 0 ] || note "cases of $1" "$(text "$(grep -E '^[0-9]+ cases?,' "$work/log"; grep '^spillway check: ' "$work/log")")"
    [ $status -eq 0 ] || verdict "cases of $1" $status
}

make_text() {
    local sources=(docs/*.md src/*/*.c)
    cat "${sources[@]}" | tr -cd '\12\40-\176' | head -c 1000000 > "$work/text.txt"
    cp "$work/text.txt" "$work/text.bin"
}

right() {
    make_build
    make_text

    say "kernels"
    expect kernels limited env SPILLWAY_TEST_DEVICE="$device" "$build/tests/device_gpu_test"

    say "the same bits"
    local base=(--model gpt2-tiny "${short[@]}" --set bf16.enabled=true --set gradient_accumulation_steps=4 --device "$device")
    expect "one run" train "$work/a" "${base[@]}"
    like_the_first "again"
    local stage place
    for stage in 1 2 3; do
        for place in none cpu nvme; do
            [ $place != nvme ] || [ $stage -eq 3 ] || continue
            local where=(--set "zero_optimization.stage=$stage")
            [ $place = none ] || where+=(--set "zero_optimization.offload_optimizer.device=$place"
                --set "zero_optimization.offload_optimizer.nvme_path=$disk")
            [ $place = none ] || [ $stage -lt 3 ] || where+=(--set "zero_optimization.offload_param.device=$place"
                --set "zero_optimization.offload_param.nvme_path=$disk")
            like_the_first "stage $stage, $place" "${where[@]}"
        done
    done
    # on one GPU, which ranks share only if they exchange through host memory
    like_the_first "2 ranks" --set gradient_accumulation_steps=2 --ranks 2 --set zero_optimization.stage=3 \
        --set spillway.comm=host

    say "$steps steps of $reference beside the CPU's"
    local first=("${base[@]}")
    base=(--model "$reference" --steps "$steps" --seq-len 64 --seed 1 --set train_micro_batch_size_per_gpu=4)
    expect "$device" train "$work/d" "${base[@]}" --device "$device" && expect "cpu" train "$work/c" "${base[@]}" --device cpu &&
        expect "losses within 0.01 of the CPU's" near "$work/c" "$work/d" 0.01 && cat "$work/log"

    say "recorded cases"
    mkdir -p "$cases"
    local folder
    while read -r folder <&3; do
        expect_cases "$folder"
    done 3< <(find tests/cases "$cases" -name reference.json | sed 's,/[^/]*/[^/]*$,,' | sort -u)
    base=("${first[@]}")
    sanitized
    finish
}

# ours <name> <flags of bench_train_gpt2>..; $measured: the line with its times
ours() {
    local name=$1
    shift
    say "$name"
    measured=
    if limited "$build/bench/bench_train_gpt2" --device "$device" --threads "$(nproc)" --product "$product" "$@" > "$work/log" 2>&1; then
        cat "$work/log"
        measured=$(grep '"step_s"' "$work/log")
        note "$name" "$measured"
    else
        local status=$?
        tail -n 5 "$work/log"
        [ $status -eq 124 ] && echo "no time" >> "$work/log"
        note "$name" "$(text "$(tail -n 1 "$work/log")")"
        n_bad=$((n_bad + 1))
    fi
}
theirs() {
    local name=$1
    shift
    if python3 -c 'import torch, transformers; assert torch.cuda.is_available()' 2> /dev/null; then
        say "$name"
        limited timeout 240 python3 bench/train_gpu_pytorch.py "$@" > "$work/log" 2>&1 || echo "no time, or failed" >> "$work/log"
        tail -n 2 "$work/log"
        note "$name" "$(grep '^{' "$work/log" | tail -n 1 | grep . || text "$(tail -n 2 "$work/log")")"
    else
        note "$name" '"no PyTorch with a GPU, or no transformers"'
    fi
}

speed() {
    make_build
    local pair
    for pair in "${models[@]}"; do
        ours "${pair%:*}" --model "${pair%:*}" --dtype bf16 --batch "${pair#*:}" --seq-len "$seq" --steps "$counted"
        note "products of ${pair%:*}" "$(text "$(grep '"kernels"' "$work/log")")"
    done
    for pair in "${models[@]}"; do
        theirs "${pair%:*}, PyTorch" --model "${pair%:*}" --batch "${pair#*:}" --tokens "$seq" --steps "$counted"
    done
    finish
}

number() { printf '%s' "$measured" | sed -n "s/.*\"$1\":\([0-9.]*\).*/\1/p"; }

# Reads lines "tokens, seconds without, seconds with" in ascending order. Prints the tokens per step from which the second time is at
# most 1.1 times the first, by linear interpolation and extrapolation.
break_even() {
    awk '{ n++; tokens[n] = $1; over[n] = $3 - 1.1 * $2; ratio[n] = sprintf("\"%d\": %.3f", $1, $3 / $2) }
        END {
            if (n < 2) { print "\"too little was measured\""; exit }
            for (last = n; last > 0 && over[last] <= 0; last--) {} # the last one that costs over a tenth
            k = last < 1 ? 2 : last < n ? last + 1 : n # the line through k - 1 and k
            slope = (over[k] - over[k - 1]) / (tokens[k] - tokens[k - 1])
            even = last == 0 ? "\"at most " tokens[1] "\"" : slope < 0 ? sprintf("%.0f", tokens[k] - over[k] / slope) : "\"never\""
            for (i = 1; i <= n; i++) all = all (i > 1 ? ", " : "") ratio[i]
            printf "{\"ratio\": {%s}, \"tokens\": %s, \"measured_to\": %d}\n", all, even, tokens[n]
        }'
}

offload() {
    make_build
    local model=${offloaded%:*} batch=${offloaded#*:} n place
    local stage=(--set zero_optimization.stage=3)
    local states=("${stage[@]}" --set zero_optimization.offload_optimizer.device=cpu)
    local job=(--model "$model" --dtype bf16 --batch "$batch" --seq-len "$seq" --steps "$few")
    for n in "${micro_batches[@]}"; do
        local tokens=$((n * batch * seq)) alone
        ours "$model, $tokens tokens" "${job[@]}" --micro-batches "$n"
        alone=$(number step_s)
        ours "$model, $tokens tokens, states on the host, updated there" "${job[@]}" --micro-batches "$n" "${states[@]}" \
            --set spillway.update=host
        [ -n "$alone" ] && [ -n "$measured" ] && echo "$tokens $alone $(number step_s)" >> "$work/even"
    done
    touch "$work/even"
    note "update on the host over not offloaded, and from how many tokens on it is at most 1.10" "$(break_even < "$work/even")"
    ours "$model, $tokens tokens, states on the host, updated on the device" "${job[@]}" --micro-batches "$n" "${states[@]}" \
        --set spillway.update=device
    for place in optimizer param; do
        stage+=(--set "zero_optimization.offload_$place.device=nvme" --set "zero_optimization.offload_$place.nvme_path=$disk")
    done
    ours "$model, $tokens tokens, all on NVMe" "${job[@]}" --micro-batches "$n" "${stage[@]}"
    say "the disk by itself"
    limited "$build/spillway" io bench --path "$disk" > "$work/log" 2>&1 || n_bad=$((n_bad + 1))
    tail -n 3 "$work/log"
    note "disk" "$(text "$(tail -n 3 "$work/log")")"
    finish
}

# their_rate <exchange>: GB/s by the program of nccl-tests or rccl-tests
their_rate() {
    command -v "$1_perf" > /dev/null || return 1
    limited "$1_perf" -b "$exchanged" -e "$exchanged" -g "$ranks" -n "$repeated" 2> /dev/null |
        sed -n 's/.*Avg bus bandwidth *: *\([0-9.]*\).*/\1/p' | grep .
}

# step_on_all <name> <flags>..: notes tokens/s of a short training, and what of it is captured
step_on_all() {
    local name=$1 data=$work/text.txt pair=${models[0]}
    shift
    [ "${pair%:*}" != gpt2 ] || data=$work/text.bin
    say "$name"
    rm -rf "$work/many"
    if limited "$build/spillway" train --model "${pair%:*}" --data "$data" --output "$work/many" --no-export --device "$device" \
        --seq-len "$seq" --steps "$counted" --set "train_micro_batch_size_per_gpu=${pair#*:}" --set bf16.enabled=true "$@" \
        > "$work/log" 2>&1; then
        note "$name" "$(text "$(grep -E '^captured: |^[0-9]+ steps? in ' "$work/log")")"
    else
        tail -n 5 "$work/log"
        note "$name" "$(text "$(tail -n 1 "$work/log")")"
        n_bad=$((n_bad + 1))
    fi
}

many() {
    make_build
    make_text
    say "launches of a step on one GPU"
    step_on_all "captured" --set spillway.capture=true --set gradient_accumulation_steps=2
    step_on_all "not captured" --set spillway.capture=false --set gradient_accumulation_steps=2
    if [ "$ranks" -lt 2 ]; then
        note "exchanges" "\"$ranks GPU: wanted 2 or more\""
        finish
    fi
    say "exchanges of $ranks ranks"
    if limited "$build/bench/bench_exchange" --device "$device" --ranks "$ranks" --bytes "$exchanged" --times "$repeated" \
        > "$work/exchanges" 2> "$work/log"; then
        local line name ours theirs
        while read -r line <&3; do
            name=$(sed -n 's/.*"exchange":"\([a-z_]*\)".*/\1/p' <<< "$line")
            ours=$(sed -n 's/.*"gb_s":\([0-9.]*\).*/\1/p' <<< "$line")
            note "$name" "$line"
            if theirs=$(their_rate "$name"); then
                note "$name, ratio to ${name}_perf" "$(awk -v a="$ours" -v b="$theirs" 'BEGIN { printf "%.3f", b > 0 ? a / b : 0 }')"
            fi
        done 3< "$work/exchanges"
    else
        cat "$work/log"
        note "exchanges" "$(text "$(tail -n 1 "$work/log")")"
        n_bad=$((n_bad + 1))
    fi
    local stage
    for stage in 0 1 2 3; do
        step_on_all "stage $stage, $ranks ranks" --ranks "$ranks" --set spillway.comm=library --set "zero_optimization.stage=$stage"
    done
    finish
}

# Memory for one process on this machine, less a reserve for all others, in MiB.
host_memory() {
    local free most
    free=$(awk '/MemAvailable/ { printf "%d", $2 / 1024 }' /proc/meminfo)
    most=$(cat /sys/fs/cgroup/memory.max 2> /dev/null)
    case $most in '' | max) ;; *) [ $((most >> 20)) -ge "$free" ] || free=$((most >> 20)) ;; esac
    echo $((free * 85 / 100))MiB
}

size() {
    make_build
    local space gpu
    space=$(df -m --output=avail "$disk" | awk 'NR == 2 { printf "%d", $1 * 0.9 }')
    gpu=$(nvidia-smi --query-gpu=memory.free --format=csv,noheader,nounits 2> /dev/null | awk 'NR == 1 { printf "%d", $1 * 0.97 }')
    say "the largest model"
    limited timeout 400 "$build/bench/bench_capacity" --device "$device" --path "$disk" --device-memory "${gpu:-256}MiB" \
        --host-memory "${HOST_MEMORY:-$(host_memory)}" --nvme-space "${space}MiB" "${size[@]}" --steps 2 2>&1 | tee "$work/capacity"
    [ "${PIPESTATUS[0]}" -eq 0 ] || n_bad=$((n_bad + 1))
    note capacity "$(text "$(tail -n 12 "$work/capacity")")"
    theirs "PyTorch" --largest --width "${WIDTH:-6144}" --tokens 1024
    finish
}

predict() {
    make_build
    local cluster=${file/gpu-predict/cluster} line one name layers width vocab batch ratio
    say "the cluster's file"
    limited "$build/spillway" doctor --cluster "$cluster" --device "$device" --disk "$disk" > "$work/log" 2>&1 || n_bad=$((n_bad + 1))
    note cluster "$(text "$(tail -n 1 "$work/log")")"
    for line in "${predicted[@]}"; do
        read -r name layers width vocab batch <<< "$line"
        for one in memory states-cpu both-nvme; do
            say "$name, $one"
            limited env SPILLWAY_DEVICE="$device" "$build/bench/bench_predict" --only $one --path "$disk" --rounds 1 --repeats 0 \
                --steps "$few" --layers "$layers" --width "$width" --vocab "$vocab" --batch "$batch" --tokens "$seq" > "$work/log" 2>&1 ||
                echo "no time, or failed" >> "$work/log"
            tail -n 2 "$work/log"
            ratio=$(sed -n 's/.* median: .* ratio *//p' "$work/log")
            note "$name, $one" "$(text "$(tail -n 1 "$work/log")")"
            awk -v ratio="${ratio:-0}" 'BEGIN { exit !(ratio >= 0.9 && ratio <= 1.1) }' || n_bad=$((n_bad + 1))
        done
    done
    finish
}

pack() {
    rm -rf "$cases"
    mkdir -p "$cases"
    cp -rL "$@" "$cases" || exit
    du -sh "$cases"
}

case $what in
pack)
    shift
    pack "$@"
    ;;
build)
    make_build
    finish
    ;;
right | speed | offload | many | predict | size) $what ;;
*)
    sed -n '3,22s/^# *//p' "$0" >&2
    exit 2
    ;;
esac
