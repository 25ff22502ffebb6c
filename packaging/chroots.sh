#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# chroots.sh [deb] [wheel] [tarball] [container]: each way to install (all of them, where none is named) in a bare Debian
# 12 of its own: what is built from the commit that is checked out is installed there, trains a gpt2-tiny, is removed
# again, and leaves nothing. The steps of packaging/Containerfile are run one by one.
#
# Wants root, mmdebstrap, and what deb.sh and wheel.sh want; else it is skipped (77). Debian's packages come from
# where this machine has its own from. Half an hour, and 3 GiB in $TMPDIR.
# SPILLWAY_BUILT names a folder that keeps packages and the bare system between runs.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ways=("$@")
[ $# -gt 0 ] || ways=(deb wheel tarball container)
# shellcheck source=packaging/bare.sh
. "$here/bare.sh"

# What is there, without caches and logs of the package manager, and the copies (/etc/group-) of who adds a group.
listing() {
    (cd "$scratch/$1" && find . -xdev \( -path ./proc -o -path ./tmp -o -path ./var/cache -o -path ./var/lib/apt \
        -o -path ./var/lib/dpkg -o -path ./var/log -o -path ./root -o -path ./run \
        -o -path "./etc/*-" \) -prune -o -print | LC_ALL=C sort)
}
# unchanged <name> <what>: as `listing` was in $scratch/NAME.list
unchanged() {
    if ! diff "$scratch/$1.list" <(listing "$1"); then
        echo "chroots.sh: removing the $2 leaves this"
        exit 1
    fi
    echo "the $2 trains, and removing it leaves nothing"
}

# A training of a few steps whose loss falls, and what it says then.
cat > "$scratch/trains.sh" <<'EOF'
set -eu
cd "$(mktemp -d)"
i=0
while [ $i -lt 300 ]; do echo "$i and $((i * i % 97)) are two numbers." >> text.txt; i=$((i + 1)); done
spillway train --model gpt2-tiny --data text.txt --steps 20 --seq-len 32 --output run > log
first=$(sed -n 's/.*"step":1,"loss":\([0-9]*\).*/\1/p' run/metrics.jsonl)
last=$(sed -n 's/.*"step":20,"loss":\([0-9]*\).*/\1/p' run/metrics.jsonl)
[ "$first" -ge 3 ] && [ "$last" -lt "$first" ]
spillway generate --model run/model --prompt "12 and" --tokens 5 > said
grep -q '^12 and' said
test -s "$(spillway train --help | sed -n 's/^The pages of docs.* are in \(.*\)\.$/\1/p')/tasks.md"
tail -n 1 log
EOF
cat > "$scratch/trains.py" <<'EOF'
import pathlib, tempfile
import spillway
with tempfile.TemporaryDirectory() as folder:
    text = pathlib.Path(folder, "text.txt")
    text.write_text("".join(f"{n} and {n * n % 97} are two numbers.\n" for n in range(300)))
    config = {"train_micro_batch_size_per_gpu": 8, "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}}}
    with spillway.initialize("gpt2-tiny", config, training_data=text, seq_len=32) as engine:
        curve = [engine.train_batch() for _ in range(10)]
    assert curve[-1] < curve[0] - 0.5, curve
print("Python:", curve[0], "to", curve[-1])
EOF

way_deb() {
    [ -n "$(ls "$built"/*.deb 2> /dev/null)" ] || "$here/deb.sh" "$built" > "$built/deb.log" 2>&1 ||
        { tail -n 30 "$built/deb.log"; exit 1; }
    fresh deb
    within deb 'apt-get update -qq'
    listing deb > "$scratch/deb.list"
    mkdir "$scratch/deb/tmp/debs"
    cp "$built"/*.deb "$scratch/deb/tmp/debs"
    rm "$scratch"/deb/tmp/debs/*dbgsym*
    cp "$scratch"/trains.* "$scratch/deb/tmp"
    within deb "$install /tmp/debs/*.deb > /tmp/log 2>&1 || { tail /tmp/log; exit 1; }
        sh /tmp/trains.sh; python3 /tmp/trains.py; test -s /usr/share/man/man1/spillway-train.1.gz
        apt-get purge -y -qq spillway libspillway5 libspillway-dev spillway-openmpi python3-spillway > /tmp/log 2>&1
        apt-get autoremove -y -qq --purge >> /tmp/log 2>&1"
    unchanged deb 'Debian package'
}

way_wheel() {
    [ -n "$(ls "$built"/*.whl 2> /dev/null)" ] || "$here/wheel.sh" "$built" > "$built/wheel.log" 2>&1 ||
        { tail -n 30 "$built/wheel.log"; exit 1; }
    fresh wheel
    within wheel "apt-get update -qq; $install python3-venv python3-numpy > /tmp/log 2>&1 || { tail /tmp/log; exit 1; }
        ! command -v cc; ! command -v gcc
        python3 -m venv --system-site-packages /opt/venv"
    listing wheel > "$scratch/wheel.list"
    cp "$built"/*.whl "$scratch"/trains.* "$scratch/wheel/tmp"
    within wheel 'PATH=/opt/venv/bin:$PATH PYTHONDONTWRITEBYTECODE=1; export PATH PYTHONDONTWRITEBYTECODE
        pip install -q --no-index /tmp/*.whl
        sh /tmp/trains.sh; python /tmp/trains.py
        pip uninstall -q -y spillway_train
        find /opt/venv -name __pycache__ -newer /tmp/trains.py -prune -exec rm -r {} +'
    listing wheel > "$scratch/wheel.now"
    grep -v __pycache__ "$scratch/wheel.list" > "$scratch/wheel.was" # pip's own
    mv "$scratch/wheel.was" "$scratch/wheel.list"
    if ! diff "$scratch/wheel.list" <(grep -v __pycache__ "$scratch/wheel.now"); then
        echo "chroots.sh: removing the wheel leaves this"
        exit 1
    fi
    echo 'the wheel trains, and removing it leaves nothing'
}

way_tarball() {
    local tarball
    fresh tarball
    within tarball "apt-get update -qq; $install gcc libc6-dev cmake make > /tmp/log 2>&1 || { tail /tmp/log; exit 1; }"
    listing tarball > "$scratch/tarball.list"
    tarball=$("$here/tarball.sh" "$scratch/tarball/root")
    cp "$scratch"/trains.* "$scratch/tarball/tmp"
    within tarball "cd /root; tar -xzf $(basename "$tarball"); cd spillway-*/
        cmake -S . -B build -DBUILD_TESTING=OFF > /tmp/log; cmake --build build --parallel $(nproc) > /tmp/log 2>&1 ||
            { tail /tmp/log; exit 1; }
        cmake --install build > /tmp/log; sh /tmp/trains.sh
        cmake --build build --target uninstall > /tmp/log"
    # folders that the system has in any case
    unchanged tarball tarball
}

# The steps of the Containerfile, in systems of their own.
way_container() {
    local step rest stage=0 from to
    while read -r step rest; do
        case $step in
        FROM)
            [[ $rest == debian:bookworm-slim* ]] || { echo "chroots.sh: FROM $rest"; exit 1; }
            stage=$((stage + 1))
            fresh "stage$stage"
            ;;
        RUN)
            within "stage$stage" "$rest" > "$scratch/log" 2>&1 || { tail -n 30 "$scratch/log"; exit 1; }
            ;;
        COPY)
            read -r from to <<< "${rest#--from=build }"
            mkdir -p "$scratch/stage$stage$to"
            if [[ $rest == --from=build* ]]; then
                cp -a "$scratch/stage1$from/." "$scratch/stage$stage$to/"
            else # what .dockerignore leaves: the tree as it is checked out
                commit "$scratch/stage$stage$to"
            fi
            ;;
        WORKDIR) mkdir -p "$scratch/stage$stage$rest" ;;
        ENTRYPOINT) [ "$rest" = '["spillway"]' ] ;;
        '#' | '') ;;
        *) echo "chroots.sh: packaging/Containerfile has a step $step, which nobody runs here"; exit 1 ;;
        esac
    done < "$here/Containerfile"
    [ $stage -eq 2 ]
    cp "$scratch"/trains.* "$scratch/stage$stage/tmp"
    within "stage$stage" 'sh /tmp/trains.sh'
    echo "the steps of the Containerfile make a system that trains"
}

for way in "${ways[@]}"; do
    say "$way"
    "way_$way"
done
