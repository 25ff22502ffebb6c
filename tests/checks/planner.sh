#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The order inside src/plan. The table "Files of the planner" of docs/ARCHITECTURE.md lists its files from the bottom up.
# An arrow is one file that calls a function which another file defines; at most 10 arrows point upward. No file has over
# 700 lines, and no struct of the shared headers over 20 fields. Sizes of ranks and layouts are asked, not read.
# With an argument, checks that tree instead of this one (checks_test.sh uses that).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-$here/../..}"
bad=0
complain() {
    echo "$1"
    bad=1
}

for file in src/plan/*.c src/plan/*.h; do
    [ -f "$file" ] || continue
    [ "$(wc -l < "$file")" -le 700 ] || complain "$file: $(wc -l < "$file") lines, at most 700"
done
for header in plan.h query.h ir.h private.h; do
    [ -f "src/plan/$header" ] || continue
    large=$(awk -f "$here/code.awk" "src/plan/$header" | awk -f "$here/sizes.awk" |
        awk '$1 == "struct" && $5 > 20 { print $3 ": struct " $4 " has " $5 " fields, at most 20" }')
    [ -z "$large" ] || complain "$large"
done
asked=$(grep -snE 'options->ranks|options->rank\b|form->(first|whole|tile_first|padded_elems)' src/plan/*.c src/plan/*.h || true)
[ -z "$asked" ] || complain "$asked: ask the plan's groups and layouts"

order=$(awk '/^## Files of the planner/ { on = 1; next } /^## / { on = 0 } on' docs/ARCHITECTURE.md |
    grep -oE '`[a-z_0-9]+\.c`' | tr -d '`')
[ -n "$order" ] || complain 'docs/ARCHITECTURE.md: no files below "Files of the planner"'
for file in src/plan/*.c; do
    n=$(printf '%s\n' "$order" | grep -cx "$(basename "$file")" || true)
    [ "$n" -eq 1 ] || complain "docs/ARCHITECTURE.md lists $(basename "$file") $n times below \"Files of the planner\""
done
for file in $order; do
    [ -f "src/plan/$file" ] || complain "docs/ARCHITECTURE.md: there is no src/plan/$file"
done

awk -f "$here/code.awk" src/plan/*.c | awk -v order="$order" '
    BEGIN {
        n = split(order, files, "\n")
        for (i = 1; i <= n; i++) { floor[files[i]] = i }
    }
    {
        colon = index($0, ":")
        file = substr($0, 1, colon - 1)
        sub(/.*\//, "", file)
        code = substr($0, colon + 1)
        code = substr(code, index(code, ":") + 1)
        defines = code ~ /^[a-z]/ && code !~ /^(static|extern|typedef|#)/ && code !~ /;[ \t]*$/
        while (match(code, /sw_[a-z_0-9]+/)) {
            name = substr(code, RSTART, RLENGTH)
            code = substr(code, RSTART + RLENGTH)
            if (defines && code ~ /^\(/) { home[name] = file; defines = 0 }
            uses[file " " name] = 1
        }
    }
    END {
        for (use in uses) {
            split(use, part, " ")
            to = home[part[2]]
            if (to != "" && floor[part[1]] < floor[to]) { up[part[1] " " to] = up[part[1] " " to] " " part[2] }
        }
        for (arrow in up) { n_up++; text = text "\n    " arrow ":" up[arrow] }
        print n_up + 0 " arrows point upward in src/plan, at most 10" (n_up > 10 ? ":" text : "")
        exit n_up > 10
    }' || bad=1
exit $bad
