"""One row of an ablation with one seed: what it will cost, its training, its measures, and its downstream probes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import BaseModel

from litebert.config import FinetuneConfig, PretrainConfig, resolve, settings_from_words
from litebert.corpus import Corpus
from litebert.errors import LitebertError
from litebert.fast import accelerate
from litebert.fast.steps import DTYPES
from litebert.files import read_json, write_json
from litebert.folder import load_model, read_config
from litebert.nn import AlbertForPretraining, Batch
from litebert.objectives import evaluation_batches
from litebert.rng import hashed
from litebert.runs import Run, read_result
from litebert.study.ablation.grids import Scale, Variant, Words, config_of, training_flops
from litebert.study.sizes import MASKED_SHARE, forward_flops, sizes_of
from litebert.tasks.pretraining import Pretraining
from litebert.tokenizer import Tokenizer
from litebert.train.finetune import finetune
from litebert.train.pretrain import pretrain
from litebert.train.run import threads, write_model
from litebert.train.sources import vocabulary_of

_PROBE_TOKENS = 1_024


@dataclass(frozen=True)
class Cost:
    """The compute of one training, and the CPU time that it will take on this machine."""

    flops: float
    cpu_seconds: float


def measured_rate(scale: Scale) -> float:
    """Return the FLOPs per CPU second of training steps of the scale's base network."""
    config = config_of((*scale.training, *scale.network(scale.base)))
    precision = DTYPES["bf16" if config.train.precision == "bf16" else "fp32"]
    length = config.objective.max_seq_length
    network = AlbertForPretraining(config.model, dtype=precision)
    accelerate(network)
    network.train()
    batch = Batch.from_lists([[5] * length] * max(1, _PROBE_TOKENS // length))
    masked = torch.arange(0, len(batch.ids), round(1 / MASKED_SHARE))
    seconds = []
    with threads(config.train.threads):  # waiting threads would count as CPU time, too
        for _ in range(3):
            begun = time.process_time()
            output = network(batch, masked)
            loss = output.masked_lm.float().logsumexp(-1).sum() + output.sentence_order.sum()
            loss.backward()
            seconds.append(time.process_time() - begun)
    flops = 3.0 * forward_flops(config.model, seq_length=length) * len(batch.ids)
    return flops / min(seconds)


def predicted(words: Words, rate: float) -> Cost:
    """Return the cost of a row at a rate in FLOPs per CPU second."""
    flops = training_flops(words)
    return Cost(flops, flops / rate)


PROBE_STEPS, PROBE_BATCH_SIZE, PROBE_RATE = 200, 32, 3e-4
"""What a probe may spend on a row; it is the same for every row."""


@dataclass(frozen=True)
class Probe:
    """A named task with its folder, or a user's file (SNLI for instance)."""

    task: str
    data: Path

    @classmethod
    def parse(cls, text: str) -> Probe:
        """Read `TASK=PATH`.

        >>> Probe.parse("sst2=data/glue").task
        'sst2'

        Raises:
            LitebertError: LB-762, it is not of this form.
        """
        task, equals, path = text.partition("=")
        if not (task and equals and path):
            raise LitebertError(
                "LB-762",
                "a probe is a task and its data",
                received=text,
                expected="TASK=PATH: a named task and its folder, or a name and a file of your own",
                next="litebert study ablation --help",
            )
        return cls(task, Path(path))

    def measure(self, model: Path, folder: Path, *, seed: int, longest: int) -> float:
        """Fine-tune a model, unless this was done before, and return the task's key measure."""
        run = folder / f"probe-{self.task}"
        if (result := read_result(run)) is None:
            is_file = self.data.is_file()
            words = [
                "task.name=table" if is_file else f"task.name={self.task}",
                f"data.train={self.data}" if is_file else f"data.folder={self.data}",
                f"model.start={model}",
                f"task.max_length={longest}",
                f"task.max_query_length={longest // 4}",
                f"task.doc_stride={longest // 4}",
                f"task.max_qa_length={longest // 2}",
                f"optim.learning_rate={PROBE_RATE}",
                f"train.steps={PROBE_STEPS}",
                f"train.eval_every={PROBE_STEPS}",
                f"train.save_every={PROBE_STEPS}",
                f"train.batch_size={PROBE_BATCH_SIZE}",
                f"train.seed={seed}",
                "train.loader_workers=0",
            ]
            outcome = finetune(resolve(FinetuneConfig, settings_from_words(words)), run, is_quiet=True)
            result = read_result(run)
            if result is None:
                raise LitebertError(
                    "LB-830",
                    f"the probe {self.task} was interrupted",
                    received=f"step {outcome.step}",
                    expected=f"{PROBE_STEPS} steps",
                    next="rerun the command to resume",
                )
        return result.last.measures[result.key_measure]


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
