#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# launchers.sh <build folder>: a training of four ranks under a real Slurm (srun, and `spillway launch --launcher
# slurm`) and under a real pdsh over sshd (`--launcher pdsh`), each set up on this machine in a folder of its own and
# taken down at the end. Each leaves the model that one process leaves, byte by byte.
#
# Wants root, and Debian's slurm-wlm, munge, pdsh, openssh-server and openmpi-bin. Skipped (77) without them.
set -euo pipefail
build=$(cd "${1:?a build folder}" && pwd)
spillway=$build/spillway

for program in srun salloc slurmctld slurmd munged pdsh /usr/sbin/sshd ssh-keygen mpirun; do
    if ! command -v "$program" > /dev/null; then
        echo "skipped: no $program (apt-get install slurm-wlm munge pdsh openssh-server openmpi-bin)"
        exit 77
    fi
done
if [ "$(id -u)" != 0 ]; then
    echo "skipped: the daemons of Slurm want root"
    exit 77
fi

scratch=$(mktemp -d)
chmod 755 "$scratch"
daemons=()
# ends the daemons of this script, and no other
cleanup() {
    status=$?
    [ ${#daemons[@]} = 0 ] || kill "${daemons[@]}" 2> /dev/null || true
    wait
    if [ $status != 0 ]; then
        tail -n 20 "$scratch"/*.log
    fi
    rm -rf "$scratch"
}
trap cleanup EXIT

# start <name> <command ..>: a daemon in the foreground of its own process
start() {
    local name=$1
    shift
    "$@" > "$scratch/$name.log" 2>&1 &
    daemons+=($!)
}
# until_it_does <command ..>: waits at most 30 seconds
until_it_does() {
    local tries=300
    until "$@" > /dev/null 2>&1; do
        tries=$((tries - 1))
        if [ $tries = 0 ]; then
            echo "after 30 seconds this still fails: $*"
            exit 1
        fi
        sleep 0.1
    done
}
free_port() {
    python3 -c 'import socket; s = socket.socket(); s.bind(("", 0)); print(s.getsockname()[1])'
}

# ---- the training ----

cd "$scratch"
for i in $(seq 300); do echo "$i and $((i * i % 97)) are two numbers."; done > text.txt
cat > ds.json << 'END'
{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2},
 "optimizer": {"type": "AdamW", "params": {"lr": 0.001}}, "spillway": {"micro_batches": 8}}
END
train=("$spillway" train --model gpt2-tiny --data "$scratch/text.txt" --deepspeed "$scratch/ds.json"
    --seq-len 16 --steps 5 --deadline 60 --output)
"${train[@]}" "$scratch/alone" > alone.log

# same <name>: the run was divided among ranks, and its model is that of one process
same() {
    grep -q "plan of a rank:" "$1.log" || { cat "$1.log"; exit 1; }
    cmp "$scratch/alone/model/model.safetensors" "$scratch/$1/model/model.safetensors"
    echo "$1: the model of one process"
}

# ---- Slurm: one node with room for four ranks ----

host=$(hostname -s)
mkdir munge spool state
head -c 1024 /dev/urandom > munge/key
chmod 400 munge/key
start munged munged --foreground --force --socket "$scratch/munge/socket" --key-file "$scratch/munge/key" \
    --pid-file "$scratch/munge/pid" --log-file "$scratch/munge/log" --seed-file "$scratch/munge/seed"
export SLURM_CONF=$scratch/slurm.conf
cat > slurm.conf << END
ClusterName=spillway
SlurmctldHost=$host(127.0.0.1)
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$scratch/munge/socket
CredType=cred/munge
StateSaveLocation=$scratch/state
SlurmdSpoolDir=$scratch/spool
SlurmctldPidFile=$scratch/slurmctld.pid
SlurmdPidFile=$scratch/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
NodeName=$host NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=$host Default=YES State=UP
END
until_it_does test -S munge/socket
start slurmctld slurmctld -D
start slurmd slurmd -D
until_it_does srun -n 4 true

srun --mpi=pmix -n 4 "${train[@]}" "$scratch/srun" > srun.log 2>&1
same srun

echo "$host slots=4" > hostfile
salloc -n 4 "$spillway" launch --hostfile "$scratch/hostfile" --launcher slurm --launcher-args --mpi=pmix \
    -- "${train[@]}" "$scratch/slurm" > slurm.log 2>&1
same slurm

# ---- pdsh: two hosts, which are two addresses of this machine ----

port=$(free_port)
ssh-keygen -q -t ed25519 -N '' -f host_key
ssh-keygen -q -t ed25519 -N '' -f user_key
cp user_key.pub authorized_keys
mkdir -p /run/sshd
start sshd /usr/sbin/sshd -D -e -f /dev/null -p "$port" -o ListenAddress=127.0.0.1 -o ListenAddress=127.0.0.2 \
    -h "$scratch/host_key" -o "AuthorizedKeysFile=$scratch/authorized_keys" -o StrictModes=no \
    -o PermitRootLogin=prohibit-password -o UsePAM=no -o "PidFile=$scratch/sshd.pid"
export PDSH_SSH_ARGS="-2 -a -x -l%u %h"
key=(-i "$scratch/user_key" -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -p "$port")
export PDSH_SSH_ARGS_APPEND="${key[*]}"
until_it_does ssh -n "${key[@]}" 127.0.0.2 true
printf '127.0.0.1 slots=2\n127.0.0.2 slots=2\n' > pdsh_hosts
(umask 077 && od -An -N16 -tx1 /dev/urandom | tr -d ' \n' > secret)
SPILLWAY_JOB_SECRET_FILE=$scratch/secret "$spillway" launch --hostfile "$scratch/pdsh_hosts" --launcher pdsh \
    -- "${train[@]}" "$scratch/pdsh" > pdsh.log 2>&1
same pdsh
