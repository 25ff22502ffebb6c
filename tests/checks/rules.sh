#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# rules.sh <C compiler>: a rule of src/optim/update.c compiles with a whole row only. The file is
# compiled as it is, and then with each defect that a row may have.
set -eu
cc=$1
root=$(cd "$(dirname "$0")/../.." && pwd)
source=$root/src/optim/update.c
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0

compiles() {
    "$cc" -std=gnu17 -D_GNU_SOURCE -fsyntax-only -I "$root/src" -I "$root/include" "$1" \
        > "$scratch/log" 2>&1
}
# refused <what> <expected message> <sed script>
refused() {
    sed "$3" "$source" > "$scratch/update.c"
    if cmp -s "$source" "$scratch/update.c"; then
        echo "$1: the file has no such line"
        failed=1
    elif compiles "$scratch/update.c"; then
        echo "$1: it compiles"
        failed=1
    elif ! grep -qE "$2" "$scratch/log"; then
        echo "$1: refused with another message than \"$2\":"
        sed 's/^/    /' "$scratch/log"
        failed=1
    fi
}

if ! compiles "$source"; then
    echo "the rules as they are do not compile:"
    cat "$scratch/log"
    exit 1
fi
adagrad='/ROW(ADAGRAD,/,/attrs.initial/'
refused 'a row without its states' 'requires 6 arguments|too few arguments' "$adagrad s/STATES(.*)),/            /"
refused 'a row without settings' 'requires 6 arguments|too few arguments' "$adagrad { s/FULL)),/FULL)))/; s/SETTINGS([^\\]*//; }"
refused 'an empty list of states' 'lists the states' "$adagrad s/STATES(.*)),/,/"
refused 'a rule without a row' 'each kind of update has one row' "$adagrad d"
refused 'two rows of one rule' 'each kind of update has one row' 's/ROW(LION,/ROW(SGD,/'
refused 'a rule without settings to read' 'read_adagrad' 's/static void read_adagrad/static void read_nothing/'
refused 'a state that checkpoints do not save' 'array' 's/STATE(SQUARE_SUM,/STATE(TRUST_RATIO,/'
refused 'a setting that the rule does not have' 'no member' 's/SETTING(attrs.lr_decay)/SETTING(attrs.lr_delay)/'
refused 'a setting of a type that is not hashed' 'compatible' 's/SETTING(attrs.lr_decay)/SETTING(groups)/'
exit $failed
