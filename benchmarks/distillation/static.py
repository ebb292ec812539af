"""Measure the teacher's static vectors: `python -m benchmarks.distillation.static TEACHER sts=FILE retrieval=FILE`.

model2vec's method, by its own package (pip install "model2vec[distill]"): each token of the
teacher's vocabulary is embedded alone, the vectors are cut by PCA and weighted by rank. An encoder
must beat them to earn its cost.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from litebert.study.zero_shot import retrieval, sts

DIMENSIONS = (128, 256)


class StaticVectors:
    """The mean of the vectors of a text's tokens."""

    def __init__(self, teacher: str, dimensions: int) -> None:
        from model2vec.distill import distill

        self.model = distill(teacher, pca_dims=dimensions, device="cpu")

    def embed(self, texts: list[str]) -> NDArray[np.float32]:
        """Return one vector a text; one without a known token has zeros."""
        vectors = np.asarray(self.model.encode(texts), dtype=np.float32)
        return np.nan_to_num(vectors)


def main(teacher: str, words: list[str]) -> None:
    """Print each measure of each size; a word is `sts=FILE` or `retrieval=FILE`."""
    for dimensions in DIMENSIONS:
        vectors = StaticVectors(teacher, dimensions)
        print(dimensions, f"{vectors.model.embedding.nbytes:,} bytes")
        for word in words:
            measure, path = word.split("=")
            print(word, {"sts": sts, "retrieval": retrieval}[measure](vectors, Path(path)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("teacher")
    parser.add_argument("words", nargs="+")
    main(**vars(parser.parse_args()))
