#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Hosts that are network namespaces of this machine, joined by a bridge in one more, where the launcher
# runs. Needs root, iproute2 and util-linux.
#   hosts.sh up NAME N        hosts 10.99.0.1 .. N, called NAME1 .. NAMEN; status 77 where that cannot be had
#   hosts.sh down NAME
#   hosts.sh in NAME COMMAND..        runs it where the launcher is
#   hosts.sh agent NAME HOST COMMAND..    logs in on 10.99.0.i, as ssh would
#   hosts.sh cut NAME I       pulls the cable of a host
#   hosts.sh kill NAME I      ends all that runs there
set -eu
action=$1 name=$2
shift 2

case $action in
up)
    [ "$(id -u)" -eq 0 ] && command -v ip > /dev/null && command -v unshare > /dev/null || exit 77
    ip netns add "$name" 2> /dev/null || exit 77
    inside="ip netns exec $name"
    $inside ip link add br0 type bridge 2> /dev/null || { ip netns del "$name"; exit 77; }
    $inside ip addr add 10.99.0.254/24 dev br0
    $inside ip link set br0 up
    $inside ip link set lo up
    for i in $(seq 1 "$1"); do
        ip netns add "$name$i"
        ip link add "v$i" netns "$name" type veth peer name eth0 netns "$name$i"
        $inside ip link set "v$i" master br0
        $inside ip link set "v$i" up
        ip netns exec "$name$i" ip addr add "10.99.0.$i/24" dev eth0
        ip netns exec "$name$i" ip link set eth0 up
        ip netns exec "$name$i" ip link set lo up
    done
    ;;
down)
    for ns in $(ip netns list | cut -d ' ' -f 1 | grep -E "^$name[0-9]*\$"); do
        pids=$(ip netns pids "$ns")
        [ -z "$pids" ] || kill -9 $pids 2> /dev/null || true
        ip netns del "$ns"
    done
    ;;
in) exec ip netns exec "$name" "$@" ;;
agent)
    host=$name$(echo "$1" | sed 's/.*\.//')
    shift
    exec ip netns exec "$host" unshare -u sh -c "hostname $host; $*"
    ;;
cut) ip netns exec "$name" ip link set "v$1" down ;;
kill) kill -9 $(ip netns pids "$name$1") ;;
esac
