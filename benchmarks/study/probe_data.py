"""Cut the data of the probes in the ablation tables, so that a row costs little to read and score.

    python -m benchmarks.study.probe_data DATA OUTPUT

DATA holds glue/SST-2, nli/snli_dev.jsonl.gz, squad and race as they are published. The first lines,
articles and passages are taken: the same for every row.
"""

from __future__ import annotations

import argparse
import gzip
import json
from itertools import islice
from pathlib import Path

from litebert.files import write_text

LINES = {
    "glue/SST-2/train.tsv": 4_001,
    "glue/SST-2/dev.tsv": 873,
    "glue/STS-B/train.tsv": 4_001,
    "glue/STS-B/dev.tsv": 1_501,
    "nli/snli_dev.jsonl": 5_000,
    "race/train-middle.jsonl": 400,
    "race/dev-middle.jsonl": 60,
}
"""Lines, the heading of a table among them; SNLI has one file, of which a tenth is held out."""
ARTICLES = {"squad/train-v1.1.json": 20, "squad/dev-v1.1.json": 2}


def main(data: Path, output: Path) -> None:
    """Write the cut files."""
    for name, count in LINES.items():
        with gzip.open(data / f"{name}.gz", "rt", encoding="utf-8") as lines:
            write_text(output / name, "".join(islice(lines, count)))
    for name, count in ARTICLES.items():
        with gzip.open(data / f"{name}.gz", "rt", encoding="utf-8") as text:
            squad = json.load(text)
        write_text(output / name, json.dumps(squad | {"data": squad["data"][:count]}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("output", type=Path)
    main(**vars(parser.parse_args()))
