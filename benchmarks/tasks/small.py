"""Small tables: what fine-tuning adds to what can be had without it.

    python -m benchmarks.tasks.small OUT [--rows 100,500,2000] [--seeds 1,2,3]
    python -m benchmarks.tasks.small OUT --ways setfit --teacher TEACHER
    python -m benchmarks.tasks.small OUT --record

Eight tables, each cut to a number of rows to train on and, for every seed, other rows.
The rows to test on are the same for all of them. Needs LITEBERT_TEST_DATA (glue, nli,
squad). OUT/results.jsonl gets a line for each result; rerun the command to resume. With
`--record` the table goes to RESULTS.md. SetFit, which litebert does not depend on, needs
`pip install setfit`, and a sentence-transformers folder as its teacher.
"""

import csv
import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from itertools import chain, product
from pathlib import Path
from statistics import fmean, mode
from typing import Annotated, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import machine, record_section, table
from benchmarks.texts import DATA, csv_text, labeled, rows, squad
from litebert.cli.command import command_of
from litebert.files import append_line, write_text
from litebert.rng import random_bits

MOST_TESTED = 800
NUM_TOPICS = 12
SEPARATOR = "|"  # between the labels of a row that has several
TICKETS = Path("examples/tickets.csv")
RESULTS = Path(__file__).parent / "RESULTS.md"

Vectors: TypeAlias = NDArray[np.floating]


# ---- the tables ----------------------------------------------------------------------


@dataclass(frozen=True)
class Pool:
    """Where the rows of a table come from, and how answers to it are measured."""

    name: str
    measure: str  # a name in litebert's results
    has_pairs: bool = False
    problem: str = "classification"
    num_tested: int = MOST_TESTED


POOLS = (
    Pool("sst2", "accuracy"),
    Pool("mrpc", "accuracy", has_pairs=True),
    Pool("cola", "matthews"),
    Pool("rte", "accuracy", has_pairs=True, num_tested=490),
    Pool("stsb", "spearman", has_pairs=True, problem="regression"),
    Pool("sick", "accuracy", has_pairs=True),
    Pool("tickets", "accuracy", num_tested=34),
    Pool("topics", "micro_f1", problem="multi-label"),
)


ALL_TABLES = ",".join(pool.name for pool in POOLS)


@dataclass(frozen=True)
class Table:
    """The rows of one run: {"a": text, "b": second text, "label": label}."""

    pool: Pool
    train: list[dict[str, str]]
    test: list[dict[str, str]]
    seed: int

    @property
    def name(self) -> str:
        return f"{self.pool.name}-{len(self.train)}-{self.seed}"

    def texts(self, side: str = "a") -> list[str]:
        """Return the texts of all rows, those to train on first."""
        return [row[side] for row in (*self.train, *self.test)]

    @cached_property
    def targets(self) -> NDArray[Any]:
        """The labels, scores or marks of all rows: (rows,) or (rows, labels)."""
        labels = [row["label"] for row in (*self.train, *self.test)]
        if self.pool.problem == "regression":
            return np.array(labels, dtype=np.float64)
        if self.pool.problem == "classification":
            return np.array(labels)
        marks = [names_in(label) for label in labels]
        names = sorted(set(chain(*marks)))
        return np.array([np.isin(names, marked) for marked in marks])

    def measured(self, answers: NDArray[Any]) -> float:
        """Compare answers to the rows to test on with their labels."""
        from scipy.stats import spearmanr
        from sklearn import metrics

        expected = self.targets[len(self.train) :]
        if self.pool.measure == "spearman":
            return float(spearmanr(expected, answers).statistic)
        if self.pool.measure == "matthews":
            return float(metrics.matthews_corrcoef(expected, answers))
        if self.pool.measure == "micro_f1":
            score = metrics.f1_score(
                expected, answers, average="micro", zero_division=0
            )
            return float(score)
        return float(metrics.accuracy_score(expected, answers))


def names_in(label: str) -> list[str]:
    return label.split(SEPARATOR)


@cache
def rows_of(name: str) -> list[dict[str, str]]:
    """Return the rows that a table is drawn from."""
    if name == "tickets":
        with TICKETS.open(encoding="utf-8", newline="") as file:
            tickets = list(csv.DictReader(file))
        return [{"a": row["text"], "label": row["label"]} for row in tickets]
    if name == "topics":
        return topics()
    return labeled(name)


def topics() -> list[dict[str, str]]:
    """Return texts of one to three questions of SQuAD; the labels of a text are the
    articles, of twelve, that it asks about. Each question is in one text.
    """
    questions = list[str]()
    topics_of = list[str]()
    for topic, asked in enumerate(longest_articles(NUM_TOPICS)):
        questions += asked
        topics_of += [f"topic {topic}"] * len(asked)
    order = in_drawn_order(questions, 0)
    texts = list[dict[str, str]]()
    while order:
        count = 1 + len(texts) % 3
        drawn = order[:count]
        order = order[count:]
        text = " ".join(questions[number] for number in drawn)
        labels = sorted({topics_of[number] for number in drawn})
        texts.append({"a": text, "label": SEPARATOR.join(labels)})
    return texts


def longest_articles(number: int) -> list[list[str]]:
    """Return the questions of the articles of SQuAD that have most of them."""
    articles = list[list[str]]()
    for paragraphs in squad("train"):
        questions = list[str]()
        for paragraph in paragraphs:
            questions += [qa["question"] for qa in paragraph["qas"]]
        articles.append(questions)
    articles.sort(key=len, reverse=True)
    return articles[:number]


def in_drawn_order(texts: Sequence[str], seed: int) -> list[int]:
    """Return the numbers of texts in an order that depends on the texts and a seed."""
    keys = [int(random_bits(seed, text, 0)) for text in texts]
    return sorted(range(len(texts)), key=keys.__getitem__)


def draw(pool: Pool, num_rows: int, seed: int) -> Table | None:
    """Return the table of a seed; None if there are not enough rows."""
    candidates = drawn_rows(rows_of(pool.name), 0)
    if pool.name == "sst2":
        test = sst2_sentences()
    else:
        test = candidates[: pool.num_tested]
        candidates = candidates[pool.num_tested :]
    if len(candidates) < num_rows:
        return None
    train = drawn_rows(candidates, seed)[:num_rows]
    return Table(pool, train, test, seed)


def drawn_rows(table_rows: list[dict[str, str]], seed: int) -> list[dict[str, str]]:
    """Return rows in an order that depends on their texts and a seed."""
    texts = [row["a"] + row.get("b", "") for row in table_rows]
    return [table_rows[number] for number in in_drawn_order(texts, seed)]


def sst2_sentences() -> list[dict[str, str]]:
    """Return whole sentences; the training file has phrases of its own sentences."""
    sentences = list[dict[str, str]]()
    for row in rows(DATA / "glue/SST-2/dev.tsv.gz"):
        sentences.append({"a": row["sentence"], "label": row["label"]})
    return sentences


# ---- ways to answer ------------------------------------------------------------------


def commonest(data: Table) -> float:
    """Always give the commonest label, or for scores nothing that could rank them."""
    if data.pool.problem == "regression":
        return 0.0
    trained = data.targets[: len(data.train)]
    if data.pool.problem == "multi-label":
        combination = mode(map(tuple, trained))
        return data.measured(np.tile(combination, (len(data.test), 1)))
    return data.measured(np.repeat(mode(trained.tolist()), len(data.test)))


def words(data: Table) -> float:
    """TF-IDF of words and pairs of words, then a regression."""
    from scipy.sparse import hstack
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    if not data.pool.has_pairs:
        vectorizer.fit(data.texts()[: len(data.train)])
        return regressed(data, vectorizer.transform(data.texts()))
    firsts = data.texts("a")
    seconds = data.texts("b")
    vectorizer.fit([*firsts[: len(data.train)], *seconds[: len(data.train)]])
    a = vectorizer.transform(firsts)
    b = vectorizer.transform(seconds)
    return regressed(data, hstack([a, b, abs(a - b), a.multiply(b)]).tocsr())


def vectors(data: Table) -> float:
    """The packaged model's vectors of texts, read apart, then a regression."""
    return regressed(data, vector_features(data))


def vector_features(data: Table) -> Vectors:
    """Return u or, for pairs, [u, v, |u - v|, u * v], (rows, width)."""
    from litebert import load

    model = load()
    unit_variance = model.network.config.hidden_size**0.5
    a = unit_variance * model.embed(data.texts("a"), normalize=True)
    if not data.pool.has_pairs:
        return a
    b = unit_variance * model.embed(data.texts("b"), normalize=True)
    return np.concatenate([a, b, abs(a - b), a * b], axis=1)


def cosine(data: Table) -> float:
    """The cosine of the two vectors, without any training."""
    from litebert import load

    model = load()
    firsts = model.embed([row["a"] for row in data.test], normalize=True)
    seconds = model.embed([row["b"] for row in data.test], normalize=True)
    return data.measured((firsts * seconds).sum(1))


def regressed(data: Table, features: Any) -> float:
    """Fit a regression with a penalty chosen by cross-validation, and measure it."""
    from sklearn.linear_model import LogisticRegression, Ridge
    from sklearn.model_selection import GridSearchCV
    from sklearn.multiclass import OneVsRestClassifier

    num_rows = len(data.train)
    strengths = np.logspace(-4, 2, 7)
    logistic = LogisticRegression(max_iter=300)
    if data.pool.problem == "regression":
        search = GridSearchCV(Ridge(), {"alpha": 1 / strengths}, cv=5)
    elif data.pool.problem == "multi-label":
        search = GridSearchCV(
            OneVsRestClassifier(logistic),
            {"estimator__C": strengths},
            cv=5,
            scoring="f1_micro",
        )
    else:
        search = GridSearchCV(logistic, {"C": strengths}, cv=5)
    search.fit(features[:num_rows], data.targets[:num_rows])
    return data.measured(search.predict(features[num_rows:]))


def finetuned(
    data: Table, folder: Path, settings: Sequence[str] = ()
) -> dict[str, float]:
    """Fine-tune the packaged model with the defaults; return the measure of the start,
    of the last step, and of the model that is kept.
    """
    from litebert.config import FinetuneConfig
    from litebert.runs import RunFolder
    from litebert.settings import resolve, settings_from_words
    from litebert.train.finetune import finetune

    words = [*settings_of(data), *settings]
    for part, part_rows in (("train", data.train), ("dev", data.test)):
        path = folder / f"{part}.csv"
        write_text(path, csv_text(part_rows))
        words.append(f"data.{part}={path}")
    run = folder / "run"
    finetune(resolve(FinetuneConfig, settings_from_words(words)), run, is_quiet=True)
    result = RunFolder(run).outcome
    shutil.rmtree(folder)
    kept = result.best if result.kept == "best" else result.last
    measure = data.pool.measure
    values = {"kept": kept.values[measure], "last": result.last.values[measure]}
    if result.first is not None:
        values["start"] = result.first.values[measure]
    return values


def settings_of(data: Table) -> list[str]:
    """Return the settings of a run on a table, without its files."""
    roles = ["text=a", "label=label"]
    if data.pool.has_pairs:
        roles.append("second=b")
    settings = [
        "task.name=table",
        f"data.columns={json.dumps(roles)}",
        f"train.seed={data.seed}",
        "model.start=litebert",
        "train.threads=1",
        "train.save_every=1000000",
        # at the start and at the end
        "train.eval_every=1000000",
    ]
    # of two texts with a score, litebert itself chooses how to train them
    if data.pool.problem != "regression":
        settings.append(f"data.problem={data.pool.problem}")
    return settings


def setfit(data: Table, teacher: str) -> float:
    """SetFit (arXiv 2209.11055) with its defaults, for single texts with one label."""
    from datasets import Dataset
    from setfit import SetFitModel, Trainer, TrainingArguments

    model = SetFitModel.from_pretrained(teacher, device="cpu")
    texts = [row["a"] for row in data.train]
    labels = [row["label"] for row in data.train]
    examples = Dataset.from_dict({"text": texts, "label": labels})
    arguments = TrainingArguments(
        batch_size=16,
        num_epochs=1,
        num_iterations=20,
        seed=data.seed,
        show_progress_bar=False,
        report_to="none",
        save_strategy="no",
    )
    Trainer(model=model, args=arguments, train_dataset=examples).train()
    answers = model.predict([row["a"] for row in data.test])
    return data.measured(np.array(answers))


WAYS: dict[str, Callable[[Table], float]] = {
    "commonest": commonest,
    "words": words,
    "vectors": vectors,
    "cosine": cosine,
}
TITLES = {
    "commonest": "commonest",
    "words": "TF-IDF + regression",
    "vectors": "our vectors + regression",
    "cosine": "cosine",
    "setfit": "SetFit",
    "start": "`finetune`, start",
    "last": "`finetune`, last step",
    "kept": "`finetune`",
}


# ---- results -------------------------------------------------------------------------


@dataclass(frozen=True)
class Measured:
    """A line of the results."""

    task: str
    num_rows: int
    seed: int
    way: str
    value: float
    seconds: float  # of CPU time, with the answers to the rows that are tested


def results_of(path: Path) -> list[Measured]:
    if not path.exists():
        return []
    return [Measured(**json.loads(line)) for line in path.read_text().splitlines()]


def fits(way: str, pool: Pool) -> bool:
    """Whether a way answers such rows."""
    if way == "cosine":
        return pool.problem == "regression"
    if way == "setfit":
        return pool.problem == "classification" and not pool.has_pairs
    return True


def measure(
    way: str, data: Table, out: Path, teacher: str, settings: Sequence[str]
) -> dict[str, float]:
    if way == "finetune":
        return finetuned(data, out / data.name, settings)
    if way == "setfit":
        return {"setfit": setfit(data, teacher)}
    return {way: WAYS[way](data)}


INTRODUCTION = """## Eight small tables

What fine-tuning the packaged model with its defaults adds to what can be had without
it: the commonest label; TF-IDF of words and pairs of words, then a regression; the
packaged model's vectors, then a regression (for pairs on `[u, v, |u - v|, u * v]`); the
cosine of the vectors. The penalties are chosen by cross-validation. "Start" is
`finetune` before its first step; the model that is kept is the last step or, if that is
worse than the start on the tested rows and the start beats the commonest label, the
best evaluation. Topics are questions of SQuAD, one to three a text, whose labels are
the articles (of twelve) that they ask about. In percent; a dash was not measured; mean
and deviation of several seeds, which draw other rows, or one seed. CPU seconds of one
thread on a shared machine, with the answers to the tested rows.

```sh
python -m benchmarks.tasks.small OUT --rows 100,500,2000 --seeds 1,2,3
python -m benchmarks.tasks.small OUT --record
```
"""


def section(results: Sequence[Measured]) -> str:
    """Return the part of RESULTS.md: a table for each number of rows."""
    parts = [INTRODUCTION]
    measured_ways = {result.way for result in results}
    ways = [way for way in TITLES if way in measured_ways]
    for num_rows in sorted({result.num_rows for result in results}):
        lines = list[list[str]]()
        for pool in POOLS:
            values = [values_of(results, pool.name, num_rows, way) for way in ways]
            if any(values):
                cells = [cell(of_way) for of_way in values]
                lines.append([f"{pool.name}, {pool.measure}", *cells])
        seconds = [seconds_of(results, num_rows, way) for way in ways]
        lines.append(["CPU seconds", *seconds])
        heading = ["", *(TITLES[way] for way in ways)]
        parts += [f"### {num_rows:,} rows\n", table(heading, lines), ""]
    return "\n".join([*parts, machine()])


def values_of(
    results: Sequence[Measured], task: str, num_rows: int, way: str
) -> list[float]:
    values = list[float]()
    for result in results:
        if (result.task, result.num_rows, result.way) == (task, num_rows, way):
            values.append(result.value)
    return values


def seconds_of(results: Sequence[Measured], num_rows: int, way: str) -> str:
    seconds = list[float]()
    for result in results:
        if (result.num_rows, result.way) == (num_rows, way):
            seconds.append(result.seconds)
    return f"{fmean(seconds):.1f}" if seconds else "-"


def cell(values: Sequence[float]) -> str:
    if not values:
        return "-"
    mean = f"{100 * fmean(values):.1f}"
    if len(values) == 1:
        return mean
    return f"{mean} ± {100 * float(np.std(values, ddof=1)):.1f}"


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def main(
    out: Path,
    *,
    tables: str = ALL_TABLES,
    rows: str = "100,500,2000",
    seeds: str = "1,2,3",
    ways: str = "commonest,words,vectors,cosine,finetune",
    teacher: Annotated[str, "A sentence-transformers folder, for SetFit."] = "",
    set: Annotated[tuple[str, ...], "A setting of `finetune`, as KEY=VALUE."] = (),
    record: bool = False,
) -> None:
    """Measure each way on each table that has no result yet, the smallest first."""
    path = out / "results.jsonl"
    if record:
        record_section(RESULTS, section(results_of(path)))
        return
    out.mkdir(parents=True, exist_ok=True)
    chosen = [pool for pool in POOLS if pool.name in tables.split(",")]
    for num_rows, seed in product(numbers(rows), numbers(seeds)):
        for pool, way in product(chosen, ways.split(",")):
            if not fits(way, pool) or is_measured(path, pool, num_rows, seed, way):
                continue
            data = draw(pool, least_rows(pool, num_rows), seed)
            if data is None:
                continue
            print(data.name, way, file=sys.stderr)
            start = time.process_time()
            values = measure(way, data, out, teacher, set)
            seconds = time.process_time() - start
            for name, value in values.items():
                line = Measured(pool.name, num_rows, seed, name, value, seconds)
                append_line(path, json.dumps(asdict(line)))


def is_measured(path: Path, pool: Pool, num_rows: int, seed: int, way: str) -> bool:
    first = "kept" if way == "finetune" else way
    for line in results_of(path):
        key = (line.task, line.num_rows, line.seed, line.way)
        if key == (pool.name, num_rows, seed, first):
            return True
    return False


def least_rows(pool: Pool, num_rows: int) -> int:
    """Return the rows to train on: of the 114 tickets, 80 stand for 100."""
    return 80 if (pool.name, num_rows) == ("tickets", 100) else num_rows


if __name__ == "__main__":
    command_of(main, "small")()
