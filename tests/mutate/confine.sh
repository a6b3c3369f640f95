#!/bin/sh
# confine.sh [--keep] FOLDER COMMAND...: runs a command that may do anything, a mutant's test: without a
# network but its own loopback, with every file of the machine read-only but /tmp and FOLDER, and what it
# writes there is gone when it ends, as are all its processes (--keep: FOLDER keeps what is written).
set -eu
self=$0

if [ "${1:-}" != --inside ]; then
  keep=no
  [ "${1:-}" != --keep ] || { keep=yes && shift; }
  user=
  [ "$(id -u)" = 0 ] || user=--map-root-user
  exec unshare $user --net --mount --pid --fork --kill-child --mount-proc sh "$self" --inside "$keep" "$@"
fi
keep=$2 folder=$3
shift 3
ip link set lo up
# An address as a host has one, of a cable that ends here.
{ ip link add host0 type veth peer name host1 && ip addr add 192.0.2.1/24 dev host0 && ip link set host0 up &&
  ip link set host1 up; } 2>/dev/null || true
mounts=$(cat /proc/self/mounts)
if [ "$keep" = yes ]; then
  mount --bind "$folder" "$folder"
else
  scratch=$folder.scratch
  mkdir -p "$scratch"
  mount -t tmpfs -o size=2g tmpfs "$scratch"
  mkdir "$scratch/upper" "$scratch/work"
  mount -t overlay -o "lowerdir=$folder,upperdir=$scratch/upper,workdir=$scratch/work" overlay "$folder"
fi
echo "$mounts" | while read -r _ at type _; do
  case $type in
  proc | sysfs | dev* | tmpfs | cgroup* | mqueue | *fs_ctl | securityfs | debugfs | tracefs | bpf | pstore | autofs) ;;
  *) mount -o remount,bind,ro "$at" 2>/dev/null || [ "$at" != / ] || exit 1 ;;
  esac
done
mount -t tmpfs -o size=1g tmpfs /dev/shm
mount -t tmpfs -o size=1m tmpfs /run # the names of such namespaces as tests make themselves
case $folder in
/tmp/*) ;;
*) mount -t tmpfs -o size=2g tmpfs /tmp ;;
esac
unset TMPDIR
HOME=$folder/home
STANDIN_MEMORY=536870912 # of a GPU that the processor plays, within the limit below
export HOME STANDIN_MEMORY
unset XDG_CACHE_HOME
mkdir -p "$HOME"
cd "$folder"
ulimit -v 16777216 # KiB
ulimit -c 0
echo 1000 >/proc/self/oom_score_adj # the first to go where memory is short
exec "$@"
