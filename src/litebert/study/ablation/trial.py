"""One row of an ablation with one seed: trained, measured on held-out text, and recorded."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel

from litebert.config import PretrainConfig, resolve, settings_from_words
from litebert.corpus import Corpus
from litebert.errors import LitebertError
from litebert.fast.steps import DTYPES
from litebert.files import read_json, write_json
from litebert.folder import load_model, read_config
from litebert.nn import AlbertForPretraining
from litebert.objectives import evaluation_batches
from litebert.rng import hashed
from litebert.runs import Run
from litebert.study.ablation.grid import Scale, Variant, Words
from litebert.study.ablation.probes import Probe
from litebert.study.sizes import sizes_of
from litebert.tasks.pretraining import Pretraining
from litebert.tokenizer import Tokenizer
from litebert.train.pretrain import pretrain
from litebert.train.run import write_model
from litebert.train.sources import vocabulary_of

EVALUATION_SEED, EVALUATION_SEQUENCES = 12_345, 1_024
"""The held-out sequences and masks are the same for every row and seed."""
TRIAL_FILE, CPU_FILE = "trial.json", "cpu.json"


class Trial(BaseModel):
    """The result of one training; `table` counts the embeddings, `body` all other parameters."""

    label: str
    seed: int
    settings: list[str]
    steps: int
    tokens: int
    cpu_seconds: float
    table: int
    body: int
    measures: dict[str, float]
    probes: dict[str, float] = {}


class _CpuTime(BaseModel):
    seconds: float


@dataclass(frozen=True)
class Bench:
    """Where trials are trained, on what, and at which scale."""

    corpus: Path
    runs: Path
    scale: Scale
    more: Path | None = None

    def folder(self, variant: Variant, variants: dict[str, Variant], seed: int) -> Path:
        """Return the run folder of a row; rows of any table with the same settings share it."""
        config = resolve(PretrainConfig, settings_from_words(self.words(variant, seed))).config
        named = [config.model_dump_json(exclude_defaults=True)]
        if variant.start:
            named.append(self.folder(variants[variant.start], variants, seed).name)
        return self.runs / f"{self.scale.name}-{int(hashed(0, json.dumps(named))):016x}"

    def words(self, variant: Variant, seed: int) -> Words:
        """Return all settings of a row except the model that it starts from.

        Raises:
            LitebertError: LB-829, the row needs a second corpus.
        """
        if variant.has_more_data and self.more is None:
            raise LitebertError(
                "LB-829",
                "this table compares one corpus with two",
                received="no second corpus",
                expected="a corpus of the same vocabulary, beside that of --corpus",
                next="litebert study ablation data --corpus CORPUS --more CORPUS",
            )
        steps = max(1, round(self.scale.steps * variant.steps))
        return (
            f"data.corpus={self.corpus}",
            *([f'data.mix=["{self.more}"]'] if variant.has_more_data else []),
            *self.scale.training,
            *variant.words,
            f"train.steps={steps}",
            f"train.eval_every={steps}",
            f"train.save_every={max(1, min(steps, 1_000))}",
            "train.eval_at_start=false",
            "train.eval_sequences=8",
            "train.keep_checkpoints=1",
            "train.loader_workers=0",
            "train.log_every=50",
            f"train.seed={seed}",
        )

    def finished(self, variant: Variant, variants: dict[str, Variant], seed: int) -> Trial | None:
        """Return the record of a finished trial."""
        path = self.folder(variant, variants, seed) / TRIAL_FILE
        if not path.is_file():
            return None
        recorded = Trial.model_validate(read_json(path, command=f"rm {path}"))
        return recorded.model_copy(update={"label": variant.label})

    def train(
        self,
        variant: Variant,
        variants: dict[str, Variant],
        seed: int,
        *,
        crosses: bool = False,
        by_depth: bool = False,
        probes: Sequence[Probe] = (),
    ) -> Trial:
        """Train and probe a row, or return its recorded trial; the row it starts from comes first.

        `crosses` measures next sentence and sentence order, too, `by_depth` every depth.
        """
        folder = self.folder(variant, variants, seed)
        trial = self._trained(variant, variants, seed)
        missing_measures = self._missing(trial, folder, crosses=crosses, by_depth=by_depth)
        if missing_measures:
            trial.measures.update(missing_measures)
            write_json(folder / TRIAL_FILE, trial.model_dump(mode="json"))
        missing = [probe for probe in probes if probe.task not in trial.probes]
        if missing:
            longest = read_config(folder / "run" / "model").max_position_embeddings
            for probe in missing:
                trial.probes[probe.task] = probe.measure(folder / "run" / "model", folder, seed=seed, longest=longest)
            write_json(folder / TRIAL_FILE, trial.model_dump(mode="json"))
        return trial

    def _trained(self, variant: Variant, variants: dict[str, Variant], seed: int) -> Trial:
        folder = self.folder(variant, variants, seed)
        if recorded := self.finished(variant, variants, seed):
            return recorded
        words = self.words(variant, seed)
        if variant.start:
            before = self.train(variants[variant.start], variants, seed)
            start = self.folder(variants[before.label], variants, seed)
            deepened = _deepened(start, words, folder / "start")  # it has a shape of its own
            kept = [word for word in words if not word.startswith(("model.", "start."))]
            words = (*kept, f"start.model={deepened}")
        resolved = resolve(PretrainConfig, settings_from_words(words))
        with _counted_cpu(folder):
            outcome = pretrain(resolved, folder / "run", is_quiet=True)
        if outcome.model is None:
            raise LitebertError(
                "LB-747",
                f"the run of the row {variant.label!r} was interrupted",
                received=f"step {outcome.step}",
                expected="a finished run",
                next="rerun the command to resume",
            )
        trial = self._measured(variant, seed, words, folder)
        write_json(folder / TRIAL_FILE, trial.model_dump(mode="json"))
        return trial

    def _measured(self, variant: Variant, seed: int, words: Words, folder: Path) -> Trial:
        config = resolve(PretrainConfig, settings_from_words(words)).config
        network = _network(folder)
        measures = measure(network, self.corpus, config, sentence=config.objective.sentence)
        rows = Run.open(folder / "run").training
        sizes = sizes_of(network.config)
        return Trial(
            label=variant.label,
            seed=seed,
            settings=[word for word in words if not word.startswith(("data.", "start.model"))],
            steps=config.train.steps,
            tokens=sum(int(row.values["tokens"]) for row in rows),
            cpu_seconds=round(_cpu_seconds(folder), 1),
            table=sizes.embeddings,
            body=sizes.total - sizes.embeddings,
            measures={name: round(value, 6) for name, value in measures.items()},
        )

    def _missing(self, trial: Trial, folder: Path, *, crosses: bool, by_depth: bool) -> dict[str, float]:
        """Return the measures that a table needs and the trial does not have yet."""
        config = resolve(PretrainConfig, settings_from_words(["data.corpus=x", *trial.settings]))
        found = {}
        if crosses and "nsp_accuracy" not in trial.measures:
            network = _network(folder)
            for name, sentence in (("nsp", "next"), ("sop", "order")):
                values = measure(network, self.corpus, config.config, sentence=sentence)
                found[f"{name}_accuracy"] = values["sentence_order_accuracy"]
                found[f"{name}_commonest"] = values["sentence_commonest"]
        if by_depth and "mask_token_accuracy_at_1" not in trial.measures:
            network = _network(folder)
            for depth in range(1, network.config.num_steps + 1):
                network.albert.depth = depth
                values = measure(network, self.corpus, config.config, sentence="order")
                found[f"mask_token_accuracy_at_{depth}"] = values["mask_token_accuracy"]
        return {name: round(value, 6) for name, value in found.items()}


def _network(folder: Path) -> AlbertForPretraining:
    network = load_model(folder / "run" / "model", dtype=DTYPES["fp32"]).network
    assert isinstance(network, AlbertForPretraining)
    return network


def measure(network: AlbertForPretraining, corpus: Path, config: PretrainConfig, *, sentence: str) -> dict[str, float]:
    """Measure held-out text under one masking (15 %, runs of up to 3 words) for every row."""
    held_out = Corpus.open(corpus).held_out()
    assert held_out is not None, "a study needs a corpus with a held-out part"
    objective = config.objective.model_copy(update={"sentence": sentence, "ngram": 3, "mask_prob": 0.15})
    batches = list(
        evaluation_batches(
            held_out.shards,
            vocabulary=vocabulary_of(held_out.tokenizer()),
            config=objective,
            batch_size=32,
            seed=EVALUATION_SEED,
            num_sequences=EVALUATION_SEQUENCES,
        )
    )
    tokenizer: Tokenizer = held_out.tokenizer()
    task = Pretraining(network, held_out=batches, train=config.train, mask_id=tokenizer.mask_id)
    found = task.evaluate()
    labels = [batch.sentence_labels for batch in batches if batch.sentence_labels is not None]
    if labels:
        share = sum(int(each.sum()) for each in labels) / sum(map(len, labels))
        found["sentence_commonest"] = max(share, 1 - share)
    return found


def _deepened(start: Path, words: Words, target: Path) -> Path:
    """Copy the model of a run, with the depth that the settings name; the weights are shared."""
    if (target / "config.json").is_file():
        return target
    model = start / "run" / "model"
    network = load_model(model).network
    depth = next(int(w.split("=")[1]) for w in words if w.startswith("model.num_hidden_layers="))
    config = network.config.model_copy(update={"num_hidden_layers": depth})
    deeper = AlbertForPretraining(config)
    deeper.load_state_dict(network.state_dict())
    write_model(target, deeper, Tokenizer.load(model))
    return target


@contextmanager
def _counted_cpu(folder: Path) -> Iterator[None]:
    """Add the CPU time of the block, including its child processes, to the folder's count."""
    before, begun = _cpu_seconds(folder), _process_seconds()
    try:
        yield
    finally:
        write_json(folder / CPU_FILE, {"seconds": before + _process_seconds() - begun})


def _cpu_seconds(folder: Path) -> float:
    path = folder / CPU_FILE
    if not path.is_file():
        return 0.0
    return _CpuTime.model_validate(read_json(path, command=f"rm {path}")).seconds


def _process_seconds() -> float:
    return sum(os.times()[:4])
