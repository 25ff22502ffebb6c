#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the commands that the pages show: commands.sh BUILD_DIR quick|slow|bare [PAGE..]; bare: quick, and the
# folder is empty
#
# A command stands in a fenced block ```sh, or in ```console behind "$ ". What is behind the language
# says what becomes of the block (CONTRIBUTING.md has this table for writers):
#
#     (nothing)        it is run, in small (see `shrink`), and must end with status 0
#     slow             the same, in the slow run
#     exits N          it is run, and its last command ends with N
#     elsewhere NAME   NAME, a file of the tree or a test, runs it
#     2026-11-22       was run by hand on that day: it wants a download, hosts, another machine or hours
#     untried          wants what nobody had yet
#
# In a block that is run, a line with the word `..` is a sketch, and is left out. The blocks of a page share a
# folder, which has what pages take for granted (`prepare`); a ```json NAME block is that file there. The flags
# of every `spillway` command, run or not, must be flags that its --help knows.
set -uo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$(cd "$1" && pwd)
which=$2
shift 2
[ -x "$build/spillway" ] || { echo "skip: there is no program in $build"; exit 77; }
cd "$root" || exit 1
pages=("$@")
[ $# -gt 0 ] || pages=(README.md CONTRIBUTING.md docs/*.md)
work=$(mktemp -d "${TMPDIR:-/tmp}/spillway_docs_XXXXXX")
trap 'rm -rf "$work"' EXIT
export PATH="$build:$PATH" SPILLWAY="$build/spillway" STEPS=2 IMAGES=100
bad=0
ran=0

fail() { printf '%s\n' "$*"; bad=$((bad + 1)); }

# ---- blocks ----

# blocks PAGE FOLDER: a file N.KIND for each block, first line "PAGE:LINE MARK", then its commands; of `json NAME`
# the text. Complains of commands in blocks without a language.
blocks() {
    awk -v page="$1" -v folder="$2" '
        function begin(kind, mark) {
            out = sprintf("%s/%03d.%s", folder, ++n, kind)
            print page ":" NR " " mark > out
        }
        /^```/ {
            if (inside) {
                inside = 0
                if (out) { close(out) }
                out = ""
                next
            }
            inside = 1
            word = $1
            mark = $0
            sub(/^```[a-z]*[ ]*/, "", mark)
            bare = word == "```"
            console = word == "```console"
            if (word == "```sh" || console) { begin("sh", mark) }
            if (word == "```json" && mark != "") { begin("json", mark) }
            more = 0
            next
        }
        inside && bare && /^\$ |^spillway [a-z]+ -|^spillway [a-z]+ [^:]*[^:] --/ {
            print page ":" NR ": a command stands in a block that is not sh or console" > "/dev/stderr"
            wrong = 1
        }
        !inside && /^    (\.?\.?\/|build[-a-z]*\/|bench\/|cmake |ctest |ninja |python3? |sh |spillway |[A-Z_]+=)/ {
            print page ":" NR ": a command stands in an indented block; wanted one of sh or console" > "/dev/stderr"
            wrong = 1
        }
        inside && out {
            if (console) {
                if (/^\$ /) { sub(/^\$ /, "") } else if (!more) { next }
                more = /\\$/
            }
            print > out
        }
        END { exit wrong }' "$1"
}

# Sizes of pages to those of a test.
shrink() {
    sed -E -e 's#/(mnt/)?(fast|disk)\>#fast#g' | awk '
        function few(n) { return n <= 4 ? n : (n < 1000 ? 2 : int(n / 500 + 0.5)) }
        {
            line = ""
            while (match($0, /(--(steps|eval-every|sample-every|save-every)|checkpoint)[ -][0-9]+/)) {
                part = substr($0, RSTART, RLENGTH)
                match(part, /[0-9]+$/)
                head = substr(part, 1, RSTART - 1)
                number = few(substr(part, RSTART) + 0)
                match($0, /(--(steps|eval-every|sample-every|save-every)|checkpoint)[ -][0-9]+/)
                line = line substr($0, 1, RSTART - 1) head number
                $0 = substr($0, RSTART + RLENGTH)
            }
            print line $0
        }' | sed -E -e 's/--seq-len [0-9]{2,}/--seq-len 64/g' \
        -e 's/--(tokens|batches) [0-9]{2,}/--\1 4/g' -e 's/--size [0-9]+G/--size 4M/g'
}

# ---- what pages take for granted ----

letters() { printf '%s\n' {a..z} | tr '\n' ' '; }

tiny() { spillway train --quiet --data my-text.txt --seq-len 64 --steps 1 "$@" > prepare.log 2>&1 || cat prepare.log; }

# Byte by byte, as GPT-2's, with a template of chats.
bytes_tokenizer() {
    LC_ALL=C awk 'BEGIN {
        printf "{\"<|endoftext|>\":0,\"\\u0120\":1,\"\\u010a\":2"
        for (i = 33; i < 127; i++) {
            c = sprintf("%c", i)
            printf ",\"%s%s\":%d", c == "\"" || c == "\\" ? "\\" : "", c, i - 30
        }
        print "}"
    }' > "$1/vocab.json"
    printf '#version: 0.2\n' > "$1/merges.txt"
    rm -f "$1/chars.json"
    printf '{"eos_token": "<|endoftext|>"}' > "$1/tokenizer_config.json"
    printf '%s' "{% for m in messages %}{{ m['content'] + '\n' }}{% endfor %}" \
        > "$1/chat_template.jinja"
}

# A text, models by the names of pages, with little in them, and tokenizers.
prepare() {
    mkdir -p "$1" && cd "$1" || exit 1
    local i
    for i in docs examples bench include; do ln -s "$root/$i" "$i"; done
    mkdir -p fast build runs chatml bert
    for i in {1..150}; do
        echo "And God said, Let the next morning ($i) be: 2 + 3? It is; the disk \"$i\" <turns>, A = B*C_[$i] & {so on}."
        echo "He went up the hill, and one more; nobody knew whether 0 + 0 was 0, HIJKLMNOPQRSTUVWXYZ|/!@#%^~\`'\\"
    done > my-text.txt
    cp my-text.txt build/english.txt
    cp my-text.txt t.txt
    cp my-text.txt tinyshakespeare.txt
    cp my-text.txt wikitext-2-valid.txt
    for i in {0..99}; do
        printf '{"messages": [{"role": "user", "content": "%s + %s?"}, {"role": "assistant", "content": "%s"}]}\n' \
            $((i % 10)) $((i / 10)) $((i % 10 + i / 10))
    done > sums.jsonl
    for i in {0..99}; do
        printf '{"prompt": "%s + %s?", "chosen": "It is %s.", "rejected": "It is %s."}\n' \
            $((i % 10)) $((i / 10)) $((i % 10 + i / 10)) $((i % 10 + i / 10 + 1))
    done > pairs.jsonl
    for i in {0..99}; do printf '{"anchor": "%s + %s?", "positive": "It is %s"}\n' $i $i $((i + i)); done > answers.jsonl
    for i in {0..39}; do echo "$((i % 2)),\"$(letters | cut -c $((i + 1))-)\""; done > rows.csv
    { echo label,text; cat rows.csv; } | tee train.csv > test.csv
    {
        printf '%s\n' '[PAD]' '[UNK]' '[CLS]' '[SEP]' '[MASK]' {a..z} {0..9} . , ';'
        printf '##%s\n' {a..z} {0..9}
    } > bert/vocab.txt
    printf '#!/bin/sh\n' > prog && chmod +x prog
    echo localhost slots=2 > hosts
    bytes_tokenizer chatml
    tiny --model gpt2-tiny --tokenizer chatml --output made/gpt2
    mv made/gpt2/model gpt2
    bytes_tokenizer gpt2
    tiny --model llama-tiny --output runs/base --data docs/nvme.md
    tiny --model bert-tiny --tokenizer bert --task masked --output made/bert
    mv made/bert/model bert-base-uncased
    mkdir -p pictures/cat pictures/dog
    cp "$root"/src/picture/tests/pictures/*.png pictures/cat
    cp "$root"/src/picture/tests/pictures/*.jp*g pictures/dog
    echo '{"model_type": "vit", "architectures": ["ViTForImageClassification"], "image_size": 16, "patch_size": 8, "hidden_size": 32,
        "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}' > vit.json
    spillway train --quiet --model vit.json --data pictures --steps 1 --output made/vit > prepare.log 2>&1 || cat prepare.log
    mv made/vit/model vit-base-patch16-224
    mkdir "$work/first.blocks" && blocks "$root/README.md" "$work/first.blocks"
    for i in "$work/first.blocks"/*.json; do
        sed 1d "$i" | shrink > "$(head -n 1 "$i" | cut -d' ' -f2)"
    done
    cp ds_config.json ds.json
    cp my-text.txt text
    cp sums.jsonl chats.jsonl
    cp -R chatml qwen
    cp -R "$root/tests/cases/marian_tokenizer" opus-mt-en-de
    echo '{"text": "0 + 0?"}' > lines.jsonl
    { letters; echo; } > sentences.txt
    for i in {1..8}; do printf '{"document": "%s", "summary": "a %s"}\n' "$(letters)" "$i"; done > test.jsonl
    spillway train --quiet --model t5-tiny --tokenizer bert --task seq2seq --data test.jsonl --seq-len 64 --target-len 16 --steps 1 \
        --output runs/summaries > prepare.log 2>&1 || cat prepare.log
    cp -R runs/summaries runs/de-en
    tiny --model gpt2-tiny --output runs/whole --no-export
    tiny --model gpt2-tiny --output runs/cut --no-export
    cd "$root" || exit 1
}

# ---- flags ----

# The flags of each spillway command of a block, one a line: "COMMAND --flag".
flags_of() {
    sed -e ':a' -e '/\\$/{N;s/\\\n//;ba' -e '}' "$1" | awk '
        NR > 1 {
            sub(/(^|[ \t])#.*/, "")
            gsub(/[|;&()]/, " | ")
            n = split($0, word, /[ \t]+/)
            command = ""
            for (i = 1; i <= n; i++) {
                if (word[i] ~ /(^|\/)spillway$/ && word[i + 1] ~ /^[a-z]+$/) { command = word[++i] }
                else if (word[i] == "|" || word[i] == "--") { command = "" }
                else if (command != "" && word[i] ~ /^--[a-z]/) {
                    sub(/=.*/, "", word[i])
                    print command, word[i]
                }
            }
        }' | sort -u
}

check_flags() {
    local command flag
    flags_of "$1" | while read -r command flag; do
        [ -f "$scratch/help.$command" ] || "$build/spillway" "$command" --help > "$scratch/help.$command" 2>&1
        grep -q -- "^  $flag\( \|\$\)" "$scratch/help.$command" ||
            echo "$(head -n 1 "$1" | cut -d' ' -f1): spillway $command has no $flag"
    done
}

# ---- running ----

# run BLOCK FOLDER STATUS
run() {
    local began=$SECONDS found
    sed 1d "$1" | grep -vE '(^|[ (])\.\.([ )]|$)' | shrink > "$scratch/block.sh"
    grep -q '[^[:space:]]' "$scratch/block.sh" || return 0
    if grep -qwE 'sudo|apt|apt-get|dpkg|pip|pip3|podman|docker' "$scratch/block.sh"; then
        fail "$(head -n 1 "$1"): it would change this machine, and is not run without a mark"
        return
    fi
    (cd "$2" && timeout 60 bash $([ "$3" = 0 ] && echo -e) "$scratch/block.sh") > "$scratch/out" 2>&1 < /dev/null
    found=$?
    ran=$((ran + 1))
    if [ "$found" != "$3" ]; then
        fail "$(head -n 1 "$1"): status $found, wanted $3"
        cat "$scratch/block.sh"
        tail -n 12 "$scratch/out"
    elif [ $((SECONDS - began)) -gt 3 ] && [ "$which" = quick ]; then
        echo "$(head -n 1 "$1"): $((SECONDS - began)) s"
    fi
}

# take BLOCK FOLDER: what its mark says.
take() {
    local mark
    mark=$(head -n 1 "$1" | cut -s -d' ' -f2-)
    case $mark in
    "") [ "$which" = slow ] && [ "$has_slow" = no ] || run "$1" "$2" 0 ;;
    slow) [ "$which" = quick ] || run "$1" "$2" 0 ;;
    "exits "[0-9]*) run "$1" "$2" "${mark#exits }" ;;
    "elsewhere "*)
        [ -e "${mark#elsewhere }" ] || grep -qF "[${mark#elsewhere }]" "$build/CTestTestfile.cmake" ||
            fail "$(head -n 1 "$1"): there is no such file or test"
        ;;
    20[0-9][0-9]-[0-9][0-9]-[0-9][0-9]* | untried*) ;;
    *) fail "$(head -n 1 "$1"): a mark that means nothing; see CONTRIBUTING.md" ;;
    esac
}

page() {
    local name=${1//\//_} block has_slow=no scratch
    scratch=$work/$name.scratch
    mkdir -p "$work/$name.blocks" "$scratch"
    blocks "$1" "$work/$name.blocks" || bad=$((bad + 1))
    ls "$work/$name.blocks"/*.sh > /dev/null 2>&1 || return 0
    grep -qE '^[^ ]+ slow$' "$work/$name.blocks"/*.sh && has_slow=yes
    cp -R "$work/prepared" "$work/$name"
    for block in "$work/$name.blocks"/*.json; do
        [ ! -f "$block" ] || sed 1d "$block" | shrink > "$work/$name/$(head -n 1 "$block" | cut -d' ' -f2)"
    done
    for block in "$work/$name.blocks"/*.sh; do
        check_flags "$block" > "$scratch/flags"
        while read -r line; do fail "$line"; done < "$scratch/flags"
        take "$block" "$work/$name"
    done
    rm -rf "${work:?}/$name"
}

# ---- links ----

# The names that a page's headings are linked by.
anchors() {
    grep -E '^#+ ' "$1" | sed -E -e 's/^#+ //' -e 's/\]\([^)]*\)//g' | tr 'A-Z' 'a-z' |
        sed -E -e 's/[^a-z0-9 _-]//g' -e 's/ /-/g'
}

# Links to files and headings that are there; and every page has its place in the index.
check_links() {
    local p link file
    for p in "$@"; do
        sed 's/`[^`]*`//g' "$p" | grep -oE '\]\([^) ]+\)' | sed -E 's/^\]\((.*)\)$/\1/' | grep -vE '^(https?|mailto):' | sort -u |
            while read -r link; do
                file=$(dirname "$p")/${link%%#*}
                [ "${link%%#*}" ] || file=$p
                if [ ! -e "$file" ]; then
                    echo "$p: $link: there is no such file"
                elif [[ $link == *.md#* || $link == \#* ]] && ! anchors "$file" | grep -qxF -- "${link#*#}"; then
                    echo "$p: $link: there is no such heading"
                fi
            done
    done
    for p in docs/*.md; do
        [ "$p" = docs/index.md ] || grep -qF "($(basename "$p")" docs/index.md || echo "docs/index.md: $p is missing"
    done
}

# Every example is run: those in C by tests of their own, and else by a page.
check_examples() {
    local file name
    for file in examples/*; do
        name=$(basename "$file")
        case $name in *.c) continue ;; esac
        grep -qs "examples/$name" "$work"/*.blocks/*.sh examples/*.sh tests/*.c || grep -qs "/$name" examples/*.sh ||
            fail "$file: no page and no test runs it"
    done
}

if [ "$which" = bare ]; then
    which=quick
    mkdir "$work/prepared"
else
    prepare "$work/prepared"
fi
# Two pages at a time: much of a command is waiting for the disk.
n=0
for p in "${pages[@]}"; do
    n=$((n + 1))
    (page "$p"; echo "$ran $bad" > "$work/counts.$n") > "$work/said.$n" 2>&1 &
    [ $n -lt 2 ] || wait -n
done
wait
for ((i = 1; i <= n; i++)); do
    cat "$work/said.$i"
    read -r more complaints < "$work/counts.$i"
    ran=$((ran + more))
    bad=$((bad + complaints))
done
if [ $# -eq 0 ] && [ "$which" = quick ]; then
    check_examples
    check_links "${pages[@]}" > "$work/links"
    while read -r line; do fail "$line"; done < "$work/links"
fi
echo "$ran blocks were run, $bad complaints"
[ "$bad" -eq 0 ]
