#!/usr/bin/env bash
# One machine with several GPUs; without any, set PROCESSES to the number of cores.
# Rerun the same command to resume; Ctrl-C and SIGTERM leave a checkpoint.
set -euo pipefail

CORPUS=${CORPUS:-corpora/wiki}
NAME=${NAME:-base}
PROCESSES=${PROCESSES:-gpu} # a number, or gpu: one per GPU

exec torchrun --standalone --nproc-per-node "$PROCESSES" --max-restarts 3 \
  -m litebert pretrain --corpus "$CORPUS" --name "$NAME" --recipe paper-base "$@"
