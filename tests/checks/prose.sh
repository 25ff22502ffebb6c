#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# No comment begins with a relative clause that has no noun, or with a fragment: What, Of, Those, Which, Likewise, "..".
# Pages and sources that clang-format leaves alone keep to 100 columns, too; tables and commands are free. Folders that
# still have such comments are listed here; one that has none any more is to be taken out.
# With an argument, checks that tree instead of this one (checks_test.sh uses that).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-$here/../..}"
excepted=''
[ $# -eq 0 ] || excepted=${SPILLWAY_EXCEPTED:-}

# The first line of a comment: of several lines of // the first, of a line with code what follows the code.
comments=$(find src include examples bench fuzz tests \( -name '*.[ch]' -o -name '*.cc' -o -name '*.inc' \) 2> /dev/null | sort |
    LC_ALL=C xargs awk -v excepted="$excepted" '
    BEGIN { n = split(excepted, folders, " ") }
    FNR == 1 { inside = 0 }
    {
        begins = match($0, /(\/\*+|\/\/) *(What|Of|Those|Which|Likewise|\.\.)([^A-Za-z]|$)/)
        line = $0 ~ /^[ \t]*\/\//
        if (begins && !(line && inside)) {
            known = 0
            for (i = 1; i <= n; i++) {
                if (index(FILENAME, folders[i] "/") == 1) { met[folders[i]] = 1; known = 1 }
            }
            if (!known) { print FILENAME ":" FNR ": a comment begins with a fragment: " substr($0, RSTART, 60) }
        }
        inside = line
    }
    END {
        for (i = 1; i <= n; i++) {
            if (!(folders[i] in met)) { print "prose.sh: " folders[i] " needs no exception any more" }
        }
    }')

# In characters of UTF-8. Blocks of commands stand between ```; rows of tables begin with |.
columns=$({ find docs -name '*.md'; find src -name '*.inc' -o -name '*.cc'; } 2> /dev/null | sort |
    LC_ALL=C xargs awk '
    FNR == 1 { block = 0 }
    FILENAME ~ /\.md$/ && /^ *```/ { block = !block; next }
    FILENAME ~ /\.md$/ && (block || /^ *\|/) { next }
    {
        text = $0
        gsub(/[\200-\277]/, "", text)
        if (length(text) > 100) { print FILENAME ":" FNR ": " length(text) " columns, at most 100" }
    }')

[ -z "$comments$columns" ] || {
    printf '%s\n' "$comments" "$columns" | grep .
    exit 1
}
