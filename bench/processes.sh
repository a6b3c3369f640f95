#!/bin/sh
# processes.sh [allreduce|gpt]: what it costs to be several processes (processes.lua): an all_reduce by 4 of one device
# each, beside bare MPI_Allreduce; a GPT step of 2 processes of 4 devices each in turns with one process of 8.
set -eu
cd "$(dirname "$0")/.."
mkdir -p bench/.cache
mpicc -O2 -shared -fPIC $(pkg-config --cflags lua5.4) -o bench/.cache/bare_mpi.so bench/processes.c

start() { # processes, devices of each, words
  if [ "$1" = 1 ]; then
    build/meshlua --devices="$2" bench/processes.lua $3
  else
    build/meshlua --processes="$1" --devices="$2" bench/processes.lua $3
  fi
}

if [ "${1:-allreduce}" = allreduce ]; then
  start 4 1 "allreduce 4096 65536 1048576 4194304"
fi
if [ "${1:-gpt}" = gpt ]; then
  for layout in data:8/dp data:4,model:2/fsdp_tp; do
    for turn in 1 2 3; do
      one=$(start 1 8 "gpt ${layout%/*} ${layout#*/}")
      two=$(start 2 4 "gpt ${layout%/*} ${layout#*/}")
      echo "$layout 1x8 $one ms, 2x4 $two ms"
    done
  done
fi
