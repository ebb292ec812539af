"""Train the rows of an ablation with each seed, evaluate them on held-out text, probe
them, record the results.
"""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from benchmarks.study.grids import (
    Grid,
    Scale,
    Trial,
    Variant,
    Words,
    config_of,
    read_grids,
)
from litebert.api.sizes import sizes_of
from litebert.config import FinetuneConfig, PretrainConfig
from litebert.corpus import Corpus
from litebert.corpus.shards import MANIFEST
from litebert.device import DTYPES
from litebert.fast import accelerate
from litebert.files import hash_file, read_json, write_json
from litebert.flops import MASKED_SHARE, forward_flops
from litebert.folder import fill_gaps, read_config, read_folder
from litebert.nn import AlbertForPretraining, Batch
from litebert.objectives import CorpusLoader, LoaderSettings
from litebert.rng import random_bits
from litebert.runs import RunFolder, read_record
from litebert.settings import resolve, settings_from_words
from litebert.tasks.kinds.family import Family
from litebert.tasks.named import open_dataset
from litebert.tasks.pretraining import Pretraining
from litebert.tokenizer import Tokenizer
from litebert.train.finetune import finetune
from litebert.train.pretrain import pretrain
from litebert.train.run import threads, write_model

EVALUATION_SEED = 12_345
EVALUATION_SEQUENCES = 1_024
"""The held-out sequences and masks are the same for every row and seed."""
PROBE_STEPS = 200
PROBE_BATCH_SIZE = 32
PROBE_LEARNING_RATE = 3e-4
"""The budget of a probe, the same for every row."""
RATE_TOKENS = 1_024
TRIAL_FILE = "trial.json"
CPU_FILE = "cpu.json"
EVERY_ROW: Words = (
    "train.eval_at_start=false",
    "train.eval_sequences=8",
    "train.keep_checkpoints=1",
    "train.loader_workers=0",
    "train.log_every=50",
)


def measure_rate(scale: Scale) -> float:
    """Return the FLOPs per CPU second of training steps of the scale's base network on
    this machine.
    """
    config = config_of((*scale.training, *Variant(label="base").words(scale)))
    length = config.objective.max_seq_length
    precision = "bf16" if config.train.precision == "bf16" else "fp32"
    network = AlbertForPretraining(config.model, dtype=DTYPES[precision])
    accelerate(network.albert)
    batch = Batch.from_lists([[5] * length] * max(1, RATE_TOKENS // length))
    with threads(config.train.threads):  # waiting threads would count as CPU time, too
        seconds = min(step_seconds(network.train(), batch) for _ in range(3))
    # a backward pass costs as much as two forward passes
    flops = 3.0 * forward_flops(config.model, seq_length=length) * len(batch.ids)
    return flops / seconds


def step_seconds(network: AlbertForPretraining, batch: Batch) -> float:
    """Return the CPU seconds of a forward pass, a backward pass and a plain update,
    which touches every weight once.
    """
    masked = torch.arange(0, len(batch.ids), round(1 / MASKED_SHARE))
    begun = time.process_time()
    output = network(batch, masked)
    # a gradient for every weight; what the loss is makes no difference to the time
    of_masked = output.masked_lm.float().logsumexp(-1).mean()
    of_order = output.sentence_order.float().mean()
    (of_masked + of_order).backward()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.grad is not None:
                parameter.sub_(parameter.grad, alpha=1e-6)
                parameter.grad = None
    return time.process_time() - begun


@dataclass(frozen=True)
class Bench:
    """The place, corpus and scale for training the rows of a table."""

    grid: Grid
    scale_name: str
    corpus: Path
    runs: Path
    more: Path | None = None

    @property
    def scale(self) -> Scale:
        return read_grids().scales[self.scale_name]

    @cached_property
    def variants(self) -> dict[str, Variant]:
        return self.grid.variants(self.scale)

    def words(self, variant: Variant, seed: int) -> Words:
        """Return all settings of a row except the model that it starts from."""
        steps = max(1, round(self.scale.steps * variant.steps))
        data = [f"data.corpus={self.corpus}"]
        if variant.has_more_data:
            data.append(f'data.mix=["{self.more}"]')
        return (
            *data,
            *self.scale.training,
            *variant.words(self.scale),
            f"train.steps={steps}",
            f"train.eval_every={steps}",
            f"train.save_every={max(1, min(steps, 1_000))}",
            *EVERY_ROW,
            f"train.seed={seed}",
        )

    def folder(self, variant: Variant, seed: int) -> Path:
        """Return the run folder of a row; rows of any table with the same settings and
        corpora share it.
        """
        config = config_of(self.words(variant, seed))
        parts = [config.model_dump_json(exclude_defaults=True)]
        corpora = [self.corpus]
        if self.more and variant.has_more_data:
            corpora.append(self.more)
        for corpus in corpora:
            parts.append(hash_file(corpus / MANIFEST))
        if variant.start:
            parts.append(self.folder(self.variants[variant.start], seed).name)
        number = int(random_bits(0, json.dumps(parts)))
        return self.runs / f"{self.scale_name}-{number:016x}"

    def read_trial(self, variant: Variant, seed: int) -> Trial | None:
        path = self.folder(variant, seed) / TRIAL_FILE
        trial = read_record(Trial, path, "remove it: the row is trained again")
        if trial is None:
            return None
        return trial.model_copy(update={"label": variant.label})

    def trial(self, variant: Variant, seed: int, probes: Sequence[str] = ()) -> Trial:
        """Train, evaluate and probe a row; skip whatever was done before."""
        folder = self.folder(variant, seed)
        trial = self.read_trial(variant, seed) or self._train(variant, seed)
        if self.grid.crosses_objectives and "nsp_accuracy" not in trial.measures:
            trial.measures.update(self._crossed_measures(folder, trial))
        for probe in probes:
            task, _, data = probe.partition("=")
            trial.probes[task] = probe_measure(folder, task, Path(data), seed=seed)
        write_json(folder / TRIAL_FILE, trial.model_dump(mode="json"))
        return trial

    def _crossed_measures(self, folder: Path, trial: Trial) -> dict[str, float]:
        """Return how a row does on next sentence and on sentence order, and how the most
        common label does.
        """
        config = config_of(trial.settings)
        crossed = dict[str, float]()
        for name, sentence in (("nsp", "next"), ("sop", "order")):
            values = measure(_network(folder), self.corpus, config, sentence=sentence)
            crossed[f"{name}_accuracy"] = values["sentence_order_accuracy"]
            crossed[f"{name}_commonest"] = values["sentence_commonest"]
        return crossed

    def _train(self, variant: Variant, seed: int) -> Trial:
        """Train a row, or go on with its run, and evaluate it on held-out text."""
        folder = self.folder(variant, seed)
        words = self.words(variant, seed)
        if variant.start:
            start = self._deeper_start(variant, seed)
            # the start defines the shape
            others = [w for w in words if not w.startswith(("model.", "start."))]
            words = (*others, f"start.model={start}")
        seconds = _pretrain(words, folder, variant.label)

        network = _network(folder)
        config = config_of(words)
        sizes = sizes_of(network.config)
        sentence = config.objective.sentence
        trial = Trial(
            label=variant.label,
            seed=seed,
            settings=[w for w in words if not w.startswith(("data.", "start.model"))],
            steps=config.train.steps,
            tokens=RunFolder(folder / "run").tokens,
            cpu_seconds=round(seconds, 1),
            table=sizes.embeddings,
            body=sizes.total - sizes.embeddings,
            measures=measure(network, self.corpus, config, sentence=sentence),
        )
        # before the probes, which take long
        write_json(folder / TRIAL_FILE, trial.model_dump(mode="json"))
        return trial

    def _deeper_start(self, variant: Variant, seed: int) -> Path:
        """Return the model that a row starts from: that of the row before, with the depth
        of this one. All layers share their weights.
        """
        assert variant.start is not None, "the row starts from another one"
        before = self.variants[variant.start]
        self.trial(before, seed)
        start = self.folder(variant, seed) / "start"
        if (start / "config.json").is_file():
            return start
        model = read_folder(self.folder(before, seed) / "run" / "model")
        depth = {"num_hidden_layers": variant.num_layers(self.scale)}
        deeper = AlbertForPretraining(model.network.config.model_copy(update=depth))
        deeper.load_state_dict(model.network.state_dict())
        write_model(start, replace(model, network=deeper))
        return start


def _pretrain(words: Words, folder: Path, label: str) -> float:
    """Train or resume the run of a row; return its CPU seconds: of this process and its
    children, added up over interruptions.
    """
    path = folder / CPU_FILE
    earlier = 0.0
    if path.is_file():
        earlier = float(str(read_json(path, command=f"rm {path}")["seconds"]))
    begun = sum(os.times()[:4])
    run = folder / "run"
    resolved = resolve(PretrainConfig, settings_from_words(words))
    try:
        code = pretrain(resolved, run, is_quiet=True)
    finally:
        seconds = earlier + sum(os.times()[:4]) - begun
        write_json(path, {"seconds": seconds})
    if code:
        raise _interrupted(f"the run of the row {label!r}", RunFolder(run).step)
    return seconds


def _interrupted(what: str, step: int) -> SystemExit:
    return SystemExit(f"{what} was interrupted at step {step}; run it again to resume")


def _network(folder: Path) -> AlbertForPretraining:
    network = fill_gaps(read_folder(folder / "run" / "model", dtype=DTYPES["fp32"]))
    assert isinstance(network, AlbertForPretraining)
    return network


def measure(
    network: AlbertForPretraining,
    corpus: Path,
    config: PretrainConfig,
    *,
    sentence: str,
) -> dict[str, float]:
    """Evaluate on held-out text, with the same masking for every row (15 %, runs of up
    to 3 words).
    """
    held_out = Corpus.open(corpus).held_out()
    assert held_out is not None, "a study needs a corpus with a held-out part"
    tokenizer: Tokenizer = held_out.tokenizer()
    objective = config.objective.model_copy(
        update={"sentence": sentence, "ngram": 3, "mask_prob": 0.15}
    )
    settings = LoaderSettings(
        tokenizer, objective, batch_size=32, seed=EVALUATION_SEED, purpose="evaluation"
    )
    batches = list(CorpusLoader(held_out.shards, settings).once(EVALUATION_SEQUENCES))
    measures = Pretraining(
        network, held_out=batches, train=config.train, mask_id=tokenizer.mask_id
    ).evaluate()
    num_labels = 0
    num_ones = 0
    for batch in batches:
        if batch.sentence_labels is not None:
            num_labels += len(batch.sentence_labels)
            num_ones += int(batch.sentence_labels.sum())
    if num_labels:
        share = num_ones / num_labels
        measures["sentence_commonest"] = max(share, 1 - share)
    return {name: round(value, 6) for name, value in measures.items()}


def probe_measure(folder: Path, task: str, data: Path, *, seed: int) -> float:
    """Fine-tune the model of a trial, unless this was done before, and return the
    task's key measure.

    `data` is the folder of a named task, or any file of examples; a probe on other data
    than before is refused.
    """
    run = folder / f"probe-{task}"
    model = folder / "run" / "model"
    longest = read_config(model).max_position_embeddings
    words = [f"task.name={task}", f"data.folder={data}"]
    if data.is_file():
        words = ["task.name=table", f"data.train={data}"]
    words += (
        f"model.start={model}",
        f"task.max_length={longest}",
        f"optim.learning_rate={PROBE_LEARNING_RATE}",
        f"train.batch_size={PROBE_BATCH_SIZE}",
        f"train.steps={PROBE_STEPS}",
        f"train.eval_every={PROBE_STEPS}",
        f"train.save_every={PROBE_STEPS}",
        f"train.seed={seed}",
        "train.loader_workers=0",
    )
    config = resolve(FinetuneConfig, settings_from_words(words)).config
    words += _lengths_of_kind(open_dataset(config.task, config.data).family, longest)
    finetune(resolve(FinetuneConfig, settings_from_words(words)), run, is_quiet=True)
    result = RunFolder(run).outcome
    if result is None:
        raise _interrupted(f"the probe {task}", RunFolder(run).step)
    return result.last.values[result.key_measure]


def _lengths_of_kind(family: Family[Any, Any], longest: int) -> list[str]:
    """Return the settings of the lengths that a kind of task has, for sequences of at
    most `longest` pieces.
    """
    lengths = {
        "max_qa_length": longest // 2,
        "max_query_length": longest // 4,
        "doc_stride": longest // 4,
    }
    names = [field.name for field in fields(family)]
    return [f"task.{name}={lengths[name]}" for name in names if name in lengths]
