#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpu_registers.sh CMAKE BUILD "HIP ARCHS": the modules for GPUs are up to date, and compile without warnings
# where those are errors; what the compilers said of each kernel (registers, bytes on the stack,
# spilled) becomes BUILD/gpu/registers.txt. Attention, norms and updates must not spill: they would
# wait for memory where they are meant to compute.
cmake=$1
build=$2
list=$build/gpu/registers.txt
must_not='attention|norm|update|stats|lamb|adafactor|accumulate'

"$cmake" --build "$build" --target gpu_modules || exit 1
if ! ls "$build"/gpu/*/kernels_*.log >/dev/null 2>&1; then
    echo "skipped: no module for GPUs was built"
    exit 77
fi
for backend in cuda hip; do
    ls "$build/gpu/$backend"/kernels_*.log >/dev/null 2>&1 ||
        echo "$backend: skipped, its compiler was not found or is switched off"
done

# "kernel type": of a mangled name, _Z5scaleI4bf16Ev.. or _Z11reset_words..
names='function plain(mangled,    n, rest, name, type) {
    sub(/^_Z/, "", mangled)
    n = mangled + 0
    rest = mangled
    sub(/^[0-9]+/, "", rest)
    name = substr(rest, 1, n)
    rest = substr(rest, n + 1)
    type = rest ~ /^If/ ? "f32" : rest ~ /^I4bf16/ ? "bf16" : rest ~ /^I3f16/ ? "f16" : "-"
    return name " " type
}'
{
    echo "# file arch kernel type registers stack_bytes spilled"
    for log in "$build"/gpu/cuda/kernels_*.log; do
        [ -f "$log" ] || continue
        awk -v file="$(basename "$log" .log)" "$names"'
            /Compiling entry function/ { split($0, part, "\047"); name = plain(part[2]); arch = part[4] }
            /bytes stack frame/ { stack = $1; spilled = $5 + $9 }
            / Used [0-9]+ registers/ {
                for (i = 1; i < NF; i++) if ($i == "Used") print file, arch, name, $(i + 1), stack, spilled
            }' "$log"
    done
    for log in "$build"/gpu/hip/kernels_*.log; do
        [ -f "$log" ] || continue
        awk -v file="$(basename "$log" .log)" -v archs="$3" "$names"'
            BEGIN { split(archs, arch, " ") }
            !/remark:/ { next }
            { sub(/ \[-Rpass.*/, "") }
            /Function Name:/ { name = plain($NF); turn[name]++ }
            / VGPRs:/ { registers = $NF }
            /ScratchSize/ { stack = $NF }
            /VGPRs Spill:/ { print file, arch[turn[name]], name, registers, stack, $NF }' "$log"
    done
} >"$list"

n=$(grep -vc '^#' "$list")
echo "$n kernels in $list"
[ "$n" -gt 0 ] || { echo "the compilers said nothing of registers"; exit 1; }
if awk -v must_not="$must_not" '!/^#/ && $7 > 0 && ($1 ~ must_not || $3 ~ must_not) { print; bad = 1 }
        END { exit !bad }' "$list"; then
    echo "these kernels spill registers (file arch kernel type registers stack_bytes spilled)"
    exit 1
fi
