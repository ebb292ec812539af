"""Train the rows of an ablation with each seed, evaluate them on held-out text, probe
them, record the results.
"""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

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
)
EVERY_ROW += ("train.loader_workers=0", "train.log_every=50")


def measure_rate(scale: Scale) -> float:
    """Return the FLOPs per CPU second of training steps of the scale's base network on
    this machine.
    """
    config = config_of((*scale.training, *Variant(label="base").words(scale)))
    length = config.objective.max_seq_length
    network = AlbertForPretraining(
        config.model,
        dtype=DTYPES["bf16" if config.train.precision == "bf16" else "fp32"],
    )
    accelerate(network.albert)
    batch = Batch.from_lists([[5] * length] * max(1, RATE_TOKENS // length))
    with threads(config.train.threads):  # waiting threads would count as CPU time, too
        seconds = min(step_seconds(network.train(), batch) for _ in range(3))
    return (
        3.0 * forward_flops(config.model, seq_length=length) * len(batch.ids) / seconds
    )


def step_seconds(network: AlbertForPretraining, batch: Batch) -> float:
    """Return the CPU seconds of a forward pass, a backward pass and a plain update,
    which touches every weight once.
    """
    masked = torch.arange(0, len(batch.ids), round(1 / MASKED_SHARE))
    begun = time.process_time()
    output = network(batch, masked)
    loss = (
        output.masked_lm.float().logsumexp(-1).mean()
        + output.sentence_order.float().mean()
    )
    loss.backward()
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
        return (
            f"data.corpus={self.corpus}",
            *([f'data.mix=["{self.more}"]'] if variant.has_more_data else []),
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
            for name, sentence in (("nsp", "next"), ("sop", "order")):
                values = measure(
                    _network(folder),
                    self.corpus,
                    config_of(trial.settings),
                    sentence=sentence,
                )
                trial.measures[f"{name}_accuracy"] = values["sentence_order_accuracy"]
                trial.measures[f"{name}_commonest"] = values["sentence_commonest"]
        for probe in probes:
            task, _, data = probe.partition("=")
            trial.probes[task] = probe_measure(folder, task, Path(data), seed=seed)
        write_json(folder / TRIAL_FILE, trial.model_dump(mode="json"))
        return trial

    def _train(self, variant: Variant, seed: int) -> Trial:
        folder = self.folder(variant, seed)
        words = self.words(variant, seed)
        if variant.start:
            before = self.variants[variant.start]
            self.trial(before, seed)
            # Copy its model with another depth; all layers share their weights.
            source = self.folder(before, seed) / "run" / "model"
            start = folder / "start"
            if not (start / "config.json").is_file():
                model = read_folder(source)
                network = model.network
                depth = variant.num_layers(self.scale)
                deeper = AlbertForPretraining(
                    network.config.model_copy(update={"num_hidden_layers": depth})
                )
                deeper.load_state_dict(network.state_dict())
                write_model(start, replace(model, network=deeper))
            # The start defines the shape.
            words = (
                *(w for w in words if not w.startswith(("model.", "start."))),
                f"start.model={start}",
            )
        # The CPU time of this process and its children, added up over interruptions.
        path = folder / CPU_FILE
        begun = sum(os.times()[:4])
        earlier = (
            float(str(read_json(path, command=f"rm {path}")["seconds"]))
            if path.is_file()
            else 0.0
        )
        try:
            code = pretrain(
                resolve(PretrainConfig, settings_from_words(words)),
                folder / "run",
                is_quiet=True,
            )
        finally:
            seconds = earlier + sum(os.times()[:4]) - begun
            write_json(path, {"seconds": seconds})
        if code:
            raise _interrupted(
                f"the run of the row {variant.label!r}", RunFolder(folder / "run").step
            )
        network = _network(folder)
        config = config_of(words)
        sizes = sizes_of(network.config)
        trial = Trial(
            label=variant.label,
            seed=seed,
            settings=[
                word for word in words if not word.startswith(("data.", "start.model"))
            ],
            steps=config.train.steps,
            tokens=RunFolder(folder / "run").tokens,
            cpu_seconds=round(seconds, 1),
            table=sizes.embeddings,
            body=sizes.total - sizes.embeddings,
            measures=measure(
                network, self.corpus, config, sentence=config.objective.sentence
            ),
        )
        # before the probes, which take long
        write_json(folder / TRIAL_FILE, trial.model_dump(mode="json"))
        return trial


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
    labels = [
        batch.sentence_labels for batch in batches if batch.sentence_labels is not None
    ]
    if labels:
        share = sum(int(batch.sum()) for batch in labels) / sum(map(len, labels))
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
    words += [
        f"model.start={model}",
        f"task.max_length={longest}",
        f"task.max_qa_length={longest // 2}",
    ]
    words += [
        f"task.max_query_length={longest // 4}",
        f"task.doc_stride={longest // 4}",
    ]
    words += [
        f"optim.learning_rate={PROBE_LEARNING_RATE}",
        f"train.batch_size={PROBE_BATCH_SIZE}",
    ]
    words += [
        f"train.{name}={PROBE_STEPS}" for name in ("steps", "eval_every", "save_every")
    ]
    words += [f"train.seed={seed}", "train.loader_workers=0"]
    finetune(resolve(FinetuneConfig, settings_from_words(words)), run, is_quiet=True)
    if (result := RunFolder(run).outcome) is None:
        raise _interrupted(f"the probe {task}", RunFolder(run).step)
    return result.last.values[result.key_measure]
