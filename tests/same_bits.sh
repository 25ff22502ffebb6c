#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# same_bits.sh OLD_BUILD NEW_BUILD [ROW..]: do two builds train to the same bits on this machine?
#
# The program `spillway` of each build folder trains the same variants for a few steps; math fingerprints and
# digests of the exported weights must be equal. The variants are a covering array: each pair of choices of two axes
# below is met. Each is trained with gpt2-tiny, and with a model of two layers of width 1152, whose larger
# matrices are multiplied in pieces; where its parameters and states are offloaded, tiles are smaller than a matrix.
# A tiled run of OLD may have lacked what tiles promise: where it differs, the weights of NEW by tiles are compared with
# those of NEW without. Prints a line a variant and "N same, N different" last; the status is 0 when none differs. With
# numbers of rows behind the builds, only those. Scratch files (1 GB) go to $TMPDIR; several minutes on two cores.
set -uo pipefail

if [ $# -lt 2 ]; then
    sed -n '3s/^# //p' "$0"
    exit 2
fi
old=$1/spillway new=$2/spillway
shift 2
for program in "$old" "$new"; do
    if [ ! -x "$program" ]; then
        echo "same_bits.sh: there is no program $program"
        exit 2
    fi
done
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# ---- the variants ----

# One row a line: number, dtype, optimizer, stage, ranks, offloaded (states-parameters), K, clipping, recompute, schedule.
# Greedy: of some valid rows drawn by chance (the same on every machine) the one that meets most new pairs.
rows() {
    awk '
    function random(n) { seed = (seed * 16807) % 2147483647; return int(seed / 7 % n) + 1 }
    # States may leave the device from stage 1 on, to a disk at stage 3; parameters at stage 3.
    function valid(stage, offload) {
        return offload == "none-none" || stage == 3 || (stage > 0 && offload == "cpu-none")
    }
    function n_new(row, mark,    i, j, n, pair) {
        for (i = 1; i <= axes; i++) {
            for (j = i + 1; j <= axes; j++) {
                pair = i ":" row[i] " " j ":" row[j]
                n += !(pair in met)
                if (mark) { met[pair] = 1 }
            }
        }
        return n
    }
    BEGIN {
        seed = 42
        axes = split("fp32,bf16,fp16|AdamW,Adam,SGD,Lamb|0,1,2,3|1,2,3|none-none,cpu-none,nvme-none,cpu-cpu,nvme-nvme|" \
                     "1,3|0,0.5|none,blocks|horizontal,vertical", axis, "|")
        for (i = 1; i <= axes; i++) { n[i] = split(axis[i], list, ","); for (j in list) { choice[i, j] = list[j] } }
        for (i = 1; i <= axes; i++) {
            for (j = i + 1; j <= axes; j++) {
                left += n[i] * n[j]
                if (i == 3 && j == 5) { # pairs of stage and offload that there are
                    for (s = 1; s <= n[i]; s++) {
                        for (o = 1; o <= n[j]; o++) { left -= !valid(choice[i, s], choice[j, o]) }
                    }
                }
            }
        }
        while (left > 0) {
            best = 0
            for (draw = 0; draw < 200 || best == 0; draw++) {
                do { for (i = 1; i <= axes; i++) { row[i] = choice[i, random(n[i])] } } while (!valid(row[3], row[5]))
                now = n_new(row, 0)
                if (now > best) { best = now; for (i in row) { chosen[i] = row[i] } }
            }
            left -= n_new(chosen, 1)
            line = ++number
            for (i = 1; i <= axes; i++) { line = line " " chosen[i] }
            print line
        }
    }'
}

# ---- one training ----

for i in $(seq 1 200); do
    echo "line $((i * i % 97)) of a small text; the quick brown fox jumps over the lazy dog"
done > "$scratch/text.txt"
cat > "$scratch/wide.json" <<'END'
{"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 601, "n_positions": 16, "n_embd": 1152,
 "n_layer": 2, "n_head": 9}
END

# config TILE_BYTES ROW..: ds_config.json of a row.
config() {
    local tiles=$1 dtype=$3 optimizer=$4 stage=$5 offload=$7 k=$8 clipping=$9 recompute=${10} schedule=${11}
    local precision='' more='"betas": [0.9, 0.98], "weight_decay": 0.1' place
    case $dtype in
    bf16) precision='"bf16": {"enabled": true},' ;;
    fp16) precision='"fp16": {"enabled": true, "initial_scale_power": 12},' ;;
    esac
    case $optimizer in
    Adam) more="$more, \"adam_w_mode\": false" ;;
    SGD) more='"momentum": 0.9' ;;
    esac
    place="\"nvme_path\": \"$scratch/disk\""
    cat <<END
{"train_micro_batch_size_per_gpu": 2, $precision "gradient_clipping": $clipping,
 "optimizer": {"type": "$optimizer", "params": {"lr": 0.01, $more}},
 "zero_optimization": {"stage": $stage, "stage3_param_persistence_threshold": 2000, "sub_group_size": 300007,
  "offload_optimizer": {"device": "${offload%-*}", $place}, "offload_param": {"device": "${offload#*-}", $place}},
 "spillway": {"micro_batches": $k, "seed": 7, "recompute": "$recompute", "schedule": "$schedule",
  "loss_chunk": 100, "tile_bytes": $tiles}}
END
}

# train NAME PROGRAM MODEL CONFIG RANKS: leaves "FINGERPRINT DIGEST" in NAME.result, or the reason for having none.
train() {
    local output=$scratch/$1 weights result
    rm -rf "$output"
    if ! "$2" train --model "$3" --data "$scratch/text.txt" --deepspeed "$4" --steps 3 --seq-len 16 --ranks "$5" \
        --output "$output" --export-dtype f32 --quiet > "$output.log" 2>&1 < /dev/null; then
        result="failed: $(tail -n 1 "$output.log")"
    else
        weights=$(sha256sum "$output/model/model.safetensors")
        result="$("$2" checkpoint ls "$output" --json | sed -n 's/.*"fingerprint":"\([0-9a-f]*\)".*/\1/p') ${weights:0:16}"
    fi
    rm -rf "$output"
    echo "$result" > "$output.result"
}

is_good() { [[ $1 =~ ^[0-9a-f]+\ [0-9a-f]{16}$ ]]; }

same=0 different=0
mkdir "$scratch/disk"
variants=$(rows)
for model in gpt2-tiny "$scratch/wide.json"; do
    while read -r -a row; do
        if [ $# -gt 0 ] && [[ " $* " != *" ${row[0]} "* ]]; then
            continue
        fi
        name=$(basename "$model" .json)
        tiles=null
        if [ "$name" = wide ] && [[ ${row[5]} =~ ^(cpu-cpu|nvme-nvme)$ ]]; then
            tiles=1048576
        fi
        config $tiles "${row[@]}" > "$scratch/ds.json"
        train old "$old" "$model" "$scratch/ds.json" "${row[4]}" &
        train new "$new" "$model" "$scratch/ds.json" "${row[4]}"
        wait
        one=$(< "$scratch/old.result")
        two=$(< "$scratch/new.result")
        note="$one"
        if [ "$one" != "$two" ] && [ $tiles != null ] && is_good "$two"; then
            config null "${row[@]}" > "$scratch/ds.json"
            train whole "$new" "$model" "$scratch/ds.json" "${row[4]}"
            one=$(< "$scratch/whole.result")
            note="$one as without tiles; the old build's tiles gave $(< "$scratch/old.result")"
        fi
        if [ "$one" = "$two" ] && is_good "$one"; then
            same=$((same + 1))
            echo "same $name ${row[*]}: $note"
        else
            different=$((different + 1))
            echo "DIFFERENT $name ${row[*]}: old $one, new $two"
        fi
    done <<< "$variants"
done
echo "$same same, $different different"
[ $different -eq 0 ] && [ $same -gt 0 ]
