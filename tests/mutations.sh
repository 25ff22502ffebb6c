#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# mutations.sh BUILD [NAME..]: do the tests of exchanges and of captured launches find mistakes?
#
# Each row below makes one mistake in one file, and names the test program that must fail, and the test of it. The file
# is compiled as the build folder compiles it (Ninja's), and linked into a copy of that program before the room's library,
# so neither the tree nor the build changes. A row is "caught" if the test fails or is stopped by a deadline of 300 s, and
# passes without the mistake. The status is 0 if all are, and 77 without Ninja. Takes a few minutes.
set -uo pipefail

if [ $# -lt 1 ]; then
    sed -n '3s/^# //p' "$0"
    exit 2
fi
if [ ! -f "$1/build.ninja" ]; then
    echo "skipped: $1 is not a build folder of Ninja"
    exit 77
fi
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
shift
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
n_bad=0

# command_of TARGET: the last command that Ninja would run for it, without the files of dependencies.
command_of() {
    ninja -C "$build" -t commands "$1" 2> /dev/null | tail -n 1 | sed 's/ -MD -MT [^ ]* -MF [^ ]*//'
}

# run PROGRAM TEST: true if the program's test passes.
run() {
    (cd "$root" && SPILLWAY_BUILD_DIR=$build SPILLWAY_MODULES=$build SPILLWAY_SHARE=$root/share timeout 300 "$1" "$2") \
        > "$scratch/said" 2>&1
}

# mutate NAME FILE PROGRAM TEST SED..: the sed script makes the mistake.
mutate() {
    local name=$1 file=$2 program=$3 test=$4
    shift 4
    local room=${file#src/}
    local object="CMakeFiles/sw_${room%%/*}_objects.dir/$file.o" mutant="$scratch/mutant.c"
    sed "$@" "$root/$file" > "$mutant"
    if cmp -s "$root/$file" "$mutant"; then
        echo "$name: the script changes nothing in $file"
        n_bad=$((n_bad + 1))
        return
    fi
    local compile link
    compile=$(command_of "$object" | sed "s#-o [^ ]*#-o $scratch/mutant.o#; s#-c [^ ]*#-c $mutant#; s# -Werror##")
    link=$(command_of "tests/$program" | sed "s# -o tests/$program# $scratch/mutant.o -o $scratch/program#")
    if ! (cd "$build" && eval "$compile" && eval "$link") > "$scratch/said" 2>&1; then
        echo "$name: does not compile"
        sed -n '1,10p' "$scratch/said"
        n_bad=$((n_bad + 1))
    elif ! run "$build/tests/$program" "$test"; then
        echo "$name: $program fails $test without it"
        n_bad=$((n_bad + 1))
    elif run "$scratch/program" "$test"; then
        echo "$name: NOT caught by $program, $test"
        n_bad=$((n_bad + 1))
    else
        echo "$name: caught by $program, $test"
        grep -m 1 -i -E 'error|differ|refuse|signal' "$scratch/said" | sed -E 's/^.*(.{110})$/..\1/; s/^/    /'
    fi
}

wanted=" $* "
row() {
    if [ "$wanted" = "  " ] || [[ $wanted == *" $1 "* ]]; then
        mutate "$@"
    fi
}

# ---- exchanges ----

row no_group_end src/device/gpu/ccl.c device_ccl_test bytes_arrive_in_stream_order \
    's/code = f->GroupEnd();/code = NCCL_SUCCESS;/'
row wrong_stream src/device/gpu/ccl.c engine_library_test stages_have_the_bits_of_one_rank \
    '/^static sw_status exchange(/,/^}/s/dev->module->use(dev->index);/&\n    static __thread void *other;\n    if (!other) {\n        dev->module->stream_open(dev->index, \&other);\n    }\n    stream = other;/'
row other_order src/run/staging.c engine_library_test stages_have_the_bits_of_one_rank \
    '/^static sw_status queue_items(/,/^}/s/add_item(s, &items\[k\]/add_item(s, \&items[me % 2 ? n_items - 1 - k : k]/'
row starts_too_early src/run/queues.c engine_library_test stages_have_the_bits_of_one_rank \
    '/^static sw_status enqueue(/,/^}/s/SW_TRY(ops->stream_await(.*/;/'
row reused_too_early src/run/queues.c engine_library_test stages_have_the_bits_of_one_rank \
    '/^static sw_status order(/,/^}/s/SW_TRY(dev->ops->stream_await(.*/;/'

# ---- captured launches ----

by_value='static const double *by_value(const double *at)\n{\n    static double copy;\n    copy = *at;\n    return \&copy;\n}\n'
row rate_by_value src/device/gpu/op_update.c device_capture_test kernels_read_scalars_when_they_are_replayed \
    "s/^enum { PART.*/&\n$by_value/; s/s + SW_SCALAR_LR\b/by_value(&)/"
row seed_by_value src/device/gpu/draw.c device_capture_test kernels_read_scalars_when_they_are_replayed \
    "s/^struct gpu_draw_args sw_gpu_draw_args/$by_value&/; s/call->scalars + SW_SCALAR_SEED_LO/by_value(&)/"
row skip_by_value src/device/gpu/gpu.c device_capture_test kernels_read_scalars_when_they_are_replayed \
    "s/^sw_status sw_gpu_run_kernel/$by_value&/; s/call->scalars + SW_SCALAR_SKIP/by_value(&)/"
row one_graph_for_all_slots src/run/capture.c engine_capture_test captured_is_not_captured_bit_for_bit \
    's/return sw_min_i64(period, ex->n_rows);/return 1;/'
row scalars_of_the_first src/run/capture.c engine_capture_test captured_is_not_captured_bit_for_bit \
    's/ex->scalars + phase->round \* SW_SCALAR_COUNT,/ex->scalars,/'

exit "$((n_bad > 0))"
