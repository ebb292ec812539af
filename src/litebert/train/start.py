"""What a new head reads of its texts, which decides what it knows before any training.

The paper's classifier reads [CLS]. A model of text vectors was trained to hold a text in
the mean of its tokens, so there the head reads the mean. The two texts of a pair may be
read together, in one sequence, or apart; and if they have a score, their vectors may be
trained instead of a head. What starts better on the training rows is trained; but many
labeled pairs are read together, from which training learns more.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar

from litebert.config import FinetuneConfig, HeadConfig
from litebert.errors import LitebertError
from litebert.folder import ModelFolder
from litebert.runs import RunFolder
from litebert.tasks.kinds.family import Dataset, Family
from litebert.tasks.kinds.similarity import Similarity
from litebert.tasks.kinds.text import Regression, TextClassification, TextExample
from litebert.tasks.named import open_dataset
from litebert.tasks.probing import Trial

Reading: TypeAlias = Literal["cls", "mean", "apart"]
AnyFamily = TypeVar("AnyFamily", bound=Family[Any, Any])
# The heads that read vectors; that on [CLS] is the first of a kind of task.
HEADS = {"mean": "vector-classification", "apart": "pair-classification"}
# With so many labeled pairs, how both ways start no longer says how they end: read
# together, 2,000 pairs ended higher on four of five tables, by 2 points in the mean
# (benchmarks/tasks/RESULTS.md).
MANY_PAIRS = 2_000
# By this much a start must be better than reading a pair together, which other programs
# can do, too: of Spearman, or of the loss of a label in nats.
MARGIN = 0.01


def choose_reading(
    config: FinetuneConfig,
    dataset: Dataset[Any, Any],
    examples: Sequence[Any],
    start: ModelFolder,
    folder: Path,
) -> tuple[Dataset[Any, Any], Reading]:
    """Return the data set with its head, and what the head reads; `examples` are those
    to train on. A run that was begun keeps its choice.
    """
    family = dataset.family
    # The choice is made in this order: what the task allows, what is set, what the start
    # can do, what the run chose before, what its head was trained for; then it is
    # measured.
    if not isinstance(family, TextClassification) or family.starts_trained:
        # a model of vectors has no layer, and heads on tokens read them all
        return dataset, "cls"
    pooling = config.model.pooling
    if pooling != "auto":
        return with_head(dataset, pooling), pooling
    if not gives_means(start):
        return dataset, "cls"
    # A run that was begun keeps its choice: measured again, with other threads, it might
    # differ in the last digit and with it the network.
    run = RunFolder(folder)
    if run.file.data.get("problem") == "similarity":
        return as_similarity(config), "cls"
    recorded = run.settings.get("model.pooling")
    if recorded in HEADS:
        reading: Reading = "apart" if recorded == "apart" else "mean"
        return with_head(dataset, reading), reading
    if not are_pairs(examples):
        return with_head(dataset, "mean"), "mean"
    if start.head is not None and start.head.answers_as(family.head):
        # a head that was trained for these labels
        reading = "apart" if start.head.record.reads == "pairs" else "mean"
        return with_head(dataset, reading), reading
    if len(examples) < 2:  # there is nothing to measure on
        return with_head(dataset, "mean"), "mean"
    has_scores = isinstance(family, Regression)
    if not has_scores and len(examples) >= MANY_PAIRS:
        note = (
            f"{MANY_PAIRS:,} labeled pairs or more are read together, whatever starts"
            " better; otherwise: model.pooling=apart"
        )
        chosen = replace(dataset, notes=(*dataset.notes, note))
        return with_head(chosen, "mean"), "mean"
    return choose_for_pairs(config, dataset, family, examples, start)


def choose_for_pairs(
    config: FinetuneConfig,
    dataset: Dataset[Any, Any],
    family: TextClassification,
    examples: Sequence[TextExample],
    start: ModelFolder,
) -> tuple[Dataset[Any, Any], Reading]:
    """Measure the starts that are possible, and choose the best."""
    longest = min(config.task.max_length, start.config.max_position_embeddings)
    trial = Trial(start, examples, longest)
    # For each way to read: Spearman, or the mean log-likelihood of the labels in nats, by
    # a regression on the vectors of the start or, at the end, by their cosine.
    scores = {
        "read together": trial.head(reading_by(family, "mean")),
        "read apart": trial.head(reading_by(family, "apart")),
    }
    if may_be_similarity(config, dataset):
        similarity = Similarity(HeadConfig(kind=Similarity.heads[0]))
        scores["compared by cosine"] = trial.cosine(similarity)
    best = max(scores, key=scores.__getitem__)
    # Differences below the margin change with the rows that were drawn.
    if scores[best] < scores["read together"] + MARGIN:
        best = "read together"
    reading: Reading
    if best == "compared by cosine":
        reading = "cls"  # vectors have no head
        chosen = as_similarity(config)
    else:
        reading = "apart" if best == "read apart" else "mean"
        chosen = with_head(dataset, reading)
    note = note_on_starts(family, scores, best)
    return replace(chosen, notes=(*chosen.notes, note)), reading


def note_on_starts(
    family: TextClassification, scores: Mapping[str, float], best: str
) -> str:
    """Say what was measured, what is trained, and how to choose otherwise."""
    measure = "Spearman"
    sign = 1
    if not isinstance(family, Regression):
        measure = "loss"  # the negative log-likelihood
        sign = -1
    values = [f"{name} {sign * score:.3f}" for name, score in scores.items()]
    note = f"{measure} before training: the two texts {', '.join(values)}"
    if best == "compared by cosine":
        return (
            f"{note}. So their vectors are trained, and answers are cosines; for scores"
            " on the scale of the file: --problem regression"
        )
    if best == "read apart":
        return f"{note}. So they are read apart; otherwise: model.pooling=mean"
    if "compared by cosine" in scores:
        note += "; to train their vectors: --problem similarity"
    return note


def may_be_similarity(config: FinetuneConfig, dataset: Dataset[Any, Any]) -> bool:
    """Return whether vectors may be trained: on users' own pairs with a score, unless
    they name a kind of task.
    """
    is_own = dataset.train is not None and config.data.problem is None
    # Random weights have no vectors to start from, and a teacher gives the outputs of a
    # head.
    is_plain = not config.model.random and config.teacher.run is None
    return is_own and is_plain and type(dataset.family) is Regression


def as_similarity(config: FinetuneConfig) -> Dataset[Any, Any]:
    """Return the user's own data set as a task of vectors."""
    data = config.data.model_copy(update={"problem": "similarity"})
    return open_dataset(config.task, data)


def with_head(dataset: Dataset[Any, Any], reading: Reading) -> Dataset[Any, Any]:
    """Return the data set with the head that reads like this."""
    if reading == "cls":
        return dataset
    return replace(dataset, family=reading_by(dataset.family, reading))


def reading_by(family: AnyFamily, reading: Reading) -> AnyFamily:
    """Return the family with a head that reads vectors like this."""
    head = family.head.model_copy(update={"kind": HEADS[reading]})
    return replace(family, head=head)


def gives_means(start: ModelFolder) -> bool:
    """Return whether a model reads the mean of the tokens: by its head, or else by how
    it makes vectors.
    """
    if start.head is not None:
        return start.head.record.reads in ("texts", "pairs")
    return start.vectors is not None and start.vectors.pooling == "mean"


def are_pairs(examples: Sequence[Any]) -> bool:
    """Return whether every example has two texts."""
    seconds = [getattr(example, "second", None) for example in examples]
    return bool(seconds) and None not in seconds


def require_pairs(dataset: Dataset[Any, Any], examples: Sequence[Any]) -> None:
    """Refuse to read single texts apart."""
    if not examples or are_pairs(examples):
        return
    raise LitebertError(
        "LB-518",
        f"{dataset.name} cannot be trained with model.pooling=apart",
        received="single texts",
        expected="two texts in every row",
        next="omit model.pooling=apart",
    )
