#!/bin/sh
# hosts.sh COMMAND NAME ...: two hosts on this machine, as network namespaces that see each other over one cable.
#   up NAME            makes them
#   run NAME ARG...    mpirun ARG..., on the first host, with two slots on each; data goes over TCP
#   agent NAME HOST C  runs the command C on a host: how mpirun reaches the other one
#   cut NAME           takes the cable away
#   down NAME          ends what runs on them, and removes them
# Needs root and ip (Debian: iproute2).
set -eu
command=$1 name=$2
shift 2
net=10.99.7 # of the cable; only the namespaces see it

# Each with a name of its own: OpenMPI takes processes of one name to share their memory.
on() {
  n=$1
  shift
  exec ip netns exec "$name$n" unshare --uts sh -c 'hostname "$0"; exec "$@"' "$name$n" "$@"
}

case $command in
up)
  for n in 1 2; do
    ip netns add "$name$n"
    ip -n "$name$n" link set lo up
  done
  ip link add cable netns "${name}1" type veth peer name cable netns "${name}2"
  for n in 1 2; do
    ip -n "$name$n" addr add $net.$n/24 dev cable
    ip -n "$name$n" link set cable up
  done
  ;;
run)
  agent="$0 agent $name"
  on 1 mpirun --mca plm_rsh_agent "$agent" --mca btl self,vader,tcp --mca btl_tcp_if_include $net.0/24 \
    --mca oob_tcp_if_include $net.0/24 --host "${name}1:2,$net.2:2" "$@"
  ;;
agent)
  while [ "${1#-}" != "$1" ]; do shift; done # ssh's flags
  n=${1##*.}
  shift
  on "$n" sh -c "$*"
  ;;
cut) ip -n "${name}2" link set cable down ;;
down)
  for n in 1 2; do
    ip netns pids "$name$n" | xargs -r kill -9
    ip netns del "$name$n"
  done
  ;;
esac
