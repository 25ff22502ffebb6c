#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a compiler does not see: memory comes from base (the program, which knows the public headers
# only, and the modules of MPI and of GPUs, which know nothing of ours, use the C library's), the library never ends
# the program, every file names its licence and what it owns, nothing is left unfinished, test programs have one main,
# commands of the build have no empty arguments, and editors, merges and patches left no files.
# With an argument, checks that tree instead of this one (checks_test.sh uses that).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cd "${1:-$here/../..}"
bad=0

# complain <text> <lines>: reports them, if there are any
complain() {
    if [ -n "$2" ]; then
        printf '%s\n' "$2" | sed "s|\$|   <- $1|"
        bad=1
    fi
}

library=$(find src include \( -name '*.[ch]' -o -name '*.cc' \) ! -path '*/tests/*' | sort)
everything=$(find src include examples bench fuzz tests \( -name '*.[ch]' -o -name '*.cc' \) 2>/dev/null | sort)
code=$(printf '%s\n' "$library" | xargs awk -f "$here/code.awk")

word='(^|[^A-Za-z0-9_])'
complain 'memory comes from sw_alloc' "$(printf '%s\n' "$code" | grep -v -e '^src/base/' -e '^src/cli/' \
    -e '^src/comm/mpi/module/' -e '^src/device/gpu/module/' -e '^src/device/gpu/standin/' |
    grep -E ":[0-9]+:(.*[^A-Za-z0-9_])?(malloc|calloc|realloc|free|strdup|strndup|asprintf|vasprintf|getline|posix_memalign|aligned_alloc) *\(" || true)"
complain 'only the program may end itself' "$(printf '%s\n' "$code" |
    grep -v -e '^src/cli/' -e '^src/launch/processes.c:' -e '^src/base/status.c:' -e '^src/device/gpu/module/emu.cc:' |
    grep -E ":[0-9]+:(.*[^A-Za-z0-9_>.])?(exit|_exit|abort|assert) *\(" || true)"
complain 'an editor, a merge or a patch left it' "$(find . \( -name .git -o -path './build*' \) -prune -o \
    \( -name '*.orig' -o -name '*.rej' -o -name '*~' \) -print | sort)"
complain 'unfinished' "$(printf '%s\n' "$everything" | xargs grep -nE "$word(TODO|FIXME|XXX)([^A-Za-z0-9_]|\$)" || true)"
# without <number> <pattern>: those of which line <number> does not match
without() {
    printf '%s\n' "$everything" | xargs awk -v line="$1" -v pattern="$2" 'FNR == line && $0 ~ pattern { good[FILENAME] }
        END { for (i = 1; i < ARGC; i++) if (!(ARGV[i] in good)) print ARGV[i] }'
}
complain 'the first line is the SPDX line' "$(without 1 '^// SPDX-License-Identifier: Apache-2[.]0$')"
complain 'a banner says what the file owns' "$(without 2 '^// .')"
complain 'a header begins with #pragma once' "$(printf '%s\n' "$everything" | grep '\.h$' |
    xargs grep -L '^#pragma once$' || true)"

# The runner, its choice of tests and its exit status are those of one file.
complain 'tests/support/main.c has the main of test programs; define sw_tests' "$(printf '%s\n' "$everything" |
    grep -E '^(src/.*/tests/|tests/)' | grep -vx 'tests/support/main.c' | xargs grep -nE '^ *int +main *\(' || true)"

# An option that a $<..> of cmake's leaves out stays behind as an argument without a letter, which compilers take for a
# file. Whether what a function was given (ARGN, arg_..) holds one is not seen in it.
recipes=$(find . -maxdepth 2 \( -name CMakeLists.txt -o -name '*.cmake' \) ! -path './build*' | sort)
[ -z "$recipes" ] || complain 'a command with arguments that may be empty says COMMAND_EXPAND_LISTS' "$(printf '%s\n' "$recipes" | xargs awk '
    { sub(/(^|[ \t])#.*/, "") }
    !depth && !/^[ \t]*add_custom_(command|target)[ \t]*\(/ { next }
    !depth { text = ""; first = FNR }
    {
        text = text " " $0
        depth += gsub(/\(/, "(") - gsub(/\)/, ")")
    }
    depth { next }
    {
        gsub(/\$<TARGET_/, "", text)
        if (text ~ /\$<|\$\{(ARGN|arg_)/ && text ~ / COMMAND / && text !~ / COMMAND_EXPAND_LISTS/) print FILENAME ":" first
    }')"

[ $bad -eq 0 ] && echo "$(printf '%s\n' "$everything" | wc -l) files checked"
exit $bad
