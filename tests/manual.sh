#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# manual.sh <spillway>: every command and every option that --help shows is in its manual page and in the completion of
# each shell; the pages have no error that man or mandoc finds, the scripts none that their shells find, and that of
# bash completes. Tools that are not here are left out.
set -eu
S=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cd "$scratch"
bad=0
n=0
complain() { echo "$*"; bad=1; }
has() { command -v "$1" > /dev/null 2>&1; }

"$S" --help > help
commands=$(sed -n 's/^  \([a-z]*\) .*/\1/p' help)
[ "$(printf '%s\n' "$commands" | wc -l)" -ge 16 ] || complain "--help lists few commands: $commands"
for shell in bash zsh fish; do "$S" completion $shell > "$shell.script"; done
"$S" help --man > spillway.1

# section <command> <shell>: the options that its script has of a command
section() {
    case $2 in
    bash) sed -n "/^    $1)\$/,/^        ;;\$/s/^        flags=\"\(.*\)\"\$/\1/p" bash.script | tr ' ' '\n' ;;
    zsh) sed -n "/^    $1)\$/,/^        ;;\$/s/^ *'\**\(-[-a-zA-Z0-9]*\)\[.*/\1/p" zsh.script ;;
    fish)
        sed -n "s/.*_from $1' -l \([-a-z0-9]*\) .*/--\1/p; s/.*_from $1' -s \([a-zA-Z]\) .*/-\1/p" fish.script
        echo --help # fish adds it by itself
        ;;
    man) sed -n 's/^.fB\(\\-[^ ]*\).fR.*/\1/p' "spillway-$1.1" | sed 's/\\//g' ;;
    esac
}

for command in $commands; do
    "$S" help --man "$command" > "spillway-$command.1"
    grep -q "spillway.-$command (1)" spillway.1 || complain "spillway(1) does not name $command"
    grep -q "use_subcommand -a $command -d '" fish.script || complain "fish does not complete $command"
    grep -q "'$command:" zsh.script || complain "zsh does not complete $command"
    "$S" "$command" --help | sed -n 's/^  \(-[-a-zA-Z0-9]*\) .*/\1/p' | LC_ALL=C sort > wanted
    n=$((n + $(wc -l < wanted)))
    for form in bash zsh fish man; do
        section "$command" $form | LC_ALL=C sort > found
        cmp -s wanted found || complain "$form: $command: $(diff wanted found | grep '^[<>]' | tr '\n' ' ')"
    done
    # a text of an option stands alone
    "$S" "$command" --help | grep -E '^  -.* likewise|^  -.{26}([(]|(of|for|that|which) |(the same|neither|none)$)' &&
        complain "$command: an option without a text of its own"
    # the examples begin the text, and every option in one is an option of the command
    "$S" "$command" --help | sed -n '/^examples:$/,/^$/s/^    //p' > examples
    [ "$("$S" "$command" --help | grep -n '^examples:$' | cut -d: -f1)" -lt \
        "$("$S" "$command" --help | grep -n '^  --help ' | cut -d: -f1)" ] || complain "$command: examples are last"
    if [ "$(wc -l < wanted)" -gt 2 ]; then
        [ "$(wc -l < examples)" -ge 3 ] || complain "$command: fewer than three examples"
    fi
    while read -r line; do
        sed -n '/^.SH EXAMPLES$/,/^.SH /p' "spillway-$command.1" | sed 's/\\-/-/g' | grep -qxF -e "$line" ||
            complain "spillway-$command(1) has no example \"$line\""
        [ "${line#spillway "$command"}" != "$line" ] || complain "$command: an example of another: $line"
        for word in ${line#spillway "$command"}; do
            case $word in
            spillway | python) break ;; # what follows is another program's
            run/model | run/adapter | run/checkpoint-[1-9]*) ;;
            run/*) complain "$command: an example has $word, which no run leaves" ;;
            --*) grep -qxF -e "$word" wanted || complain "$command: an example has $word, which is no option" ;;
            esac
        done
    done < examples
done
# many options stand under their subjects
for command in train plan generate eval launch; do
    [ "$("$S" $command --help | grep -c '^[A-Z].*:$')" -ge 3 ] || complain "$command --help has few headings"
    grep -q '^.SS ' spillway-$command.1 || complain "spillway-$command(1) has no headings"
done
[ "$(grep -c '^[A-Z].*:$' help)" -ge 4 ] && [ "$(grep -c '^    spillway ' help)" -eq 3 ] ||
    complain '--help has no groups, or not three examples'
[ $n -ge 150 ] || complain "only $n options were seen"

for page in spillway*.1; do
    if has man; then man --warnings --no-hyphenation --no-justification -l "$page" 2>&1 > "$page.text" | grep . && complain "man: $page"; fi
    if has mandoc; then mandoc -T lint -W error "$page" && : || complain "mandoc: $page"; fi
done
if has man; then
    tr -s ' \n' '  ' < spillway-train.1.text | grep -q 'or a preset ("spillway models")' ||
        complain 'spillway-train(1) says something else than --help'
fi
for shell in bash zsh fish; do
    if has $shell; then $shell -n $shell.script || complain "$shell: its script"; fi
done

# completed <expected> <word>..: what bash makes of the last word
completed() {
    wanted=$1
    shift
    found=$(bash -c '. ./bash.script; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _spillway; echo "${COMPREPLY[*]}"' \
        bash "$@")
    [ "$found" = "$wanted" ] || complain "bash completes \"$*\" to \"$found\", not \"$wanted\""
}
if has bash; then
    : > 'a file'
    completed 'train' spillway tr
    completed 'train' spillway help tra
    completed '--device --device-memory' spillway train --devi
    completed 'cuda' spillway train --device cu
    completed 'a file' spillway train --data a
    completed '--hostfile' spillway launch --host
fi

# fails <word>..: refused with status 2
fails() {
    status=0
    "$S" "$@" > out 2> err || status=$?
    { [ $status -eq 2 ] && [ ! -s out ] && [ -s err ]; } || complain "$*: status $status"
}
fails completion
fails completion tcsh
fails completion bash zsh
fails help --man dance
[ $bad -eq 0 ] && echo "$n options"
exit $bad
