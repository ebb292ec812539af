"""The ten data sets of GLUE as one table: their files, columns, labels and splits.

Columns are found by their names in the header. In the authors' files they are where the official
readers count them (classifier_utils.py L87-553); in any other file, a missing name is an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

HUB_FILES = ("-*.parquet", ".jsonl")


@dataclass(frozen=True)
class GlueTask:
    """What is specific to the files and labels of one task.

    `labels` are in the order of the official code; without any, the answer is a score. `written`
    are the labels as spelt in the files, if that differs; fields that begin with `hub` are what
    differs on the Hub. `header` names the columns of labelled files without a header line.
    """

    name: str
    folder: str
    texts: tuple[str, ...]
    label: str = "label"
    labels: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    header: tuple[str, ...] = ()
    skips_short_lines: bool = False
    splits: tuple[str, ...] = ("train", "dev", "test")
    files: tuple[str, ...] = ()
    hub_texts: tuple[str, ...] = ()
    hub_labels: tuple[str, ...] = ()

    @property
    def spellings(self) -> tuple[str, ...]:
        """The labels as the authors' files and the leaderboard spell them."""
        return self.written or self.labels

    def patterns(self, split: str) -> tuple[str, ...]:
        """Return where the files of a split may be, the authors' before the Hub's.

        >>> GlueTask("rte", "RTE", ("sentence1", "sentence2")).patterns("dev")[:3]
        ('RTE/dev.tsv', 'dev.tsv', 'rte/validation-*.parquet')
        """
        if self.files:
            return self.files
        hub = split.replace("dev", "validation")
        inside = (f"{self.folder}/{split}.tsv", *(f"{self.name}/{hub}{end}" for end in HUB_FILES))
        own = (f"{split}.tsv", *(f"{hub}{end}" for end in HUB_FILES))
        return tuple(chain.from_iterable(zip(inside, own, strict=True)))


PAIR = ("sentence1", "sentence2")
PREMISE = ("premise", "hypothesis")
DIGITS = ("0", "1")
ENTAILMENT = ("entailment", "not_entailment")
MNLI = ("contradiction", "entailment", "neutral")
MNLI_ON_HUB = ("entailment", "neutral", "contradiction")

GLUE_TASKS = (
    GlueTask(
        "cola",
        "CoLA",
        ("sentence",),
        labels=("unacceptable", "acceptable"),
        written=DIGITS,
        header=("source", "label", "original", "sentence"),
    ),
    GlueTask("sst2", "SST-2", ("sentence",), labels=("negative", "positive"), written=DIGITS),
    GlueTask(
        "mrpc",
        "MRPC",
        ("#1 String", "#2 String"),
        label="Quality",
        labels=("not_equivalent", "equivalent"),
        written=DIGITS,
        hub_texts=PAIR,
    ),
    GlueTask("stsb", "STS-B", PAIR, label="score"),
    GlueTask(
        "qqp",
        "QQP",
        ("question1", "question2"),
        label="is_duplicate",
        labels=("not_duplicate", "duplicate"),
        written=DIGITS,
        skips_short_lines=True,
    ),
    GlueTask(
        "mnli",
        "MNLI",
        PAIR,
        label="gold_label",
        labels=MNLI,
        hub_texts=PREMISE,
        hub_labels=MNLI_ON_HUB,
        splits=("train", "dev_matched", "dev_mismatched", "test_matched", "test_mismatched"),
    ),
    GlueTask("qnli", "QNLI", ("question", "sentence"), labels=ENTAILMENT),
    GlueTask("rte", "RTE", PAIR, labels=ENTAILMENT),
    GlueTask("wnli", "WNLI", PAIR, labels=("not_entailment", "entailment"), written=DIGITS),
    GlueTask(
        "ax",
        "AX",
        PAIR,
        labels=MNLI,
        hub_texts=PREMISE,
        splits=("test",),
        files=("AX/AX.tsv", "diagnostic/diagnostic.tsv", "diagnostic.tsv", "AX.tsv"),
    ),
)
