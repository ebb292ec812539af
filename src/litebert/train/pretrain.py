"""From a corpus to a pretrained ALBERT: open, check, begin or resume, train, write the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from litebert import rng
from litebert.config import ObjectiveConfig, PretrainConfig, Resolved, flattened
from litebert.corpus import Corpus
from litebert.corpus.manifest import MANIFEST
from litebert.errors import LitebertError
from litebert.files import Json, hash_file, staged_folder
from litebert.folder import save_model
from litebert.nn import AlbertForPretraining
from litebert.objectives import Loader, PretrainingBatch, Vocabulary, evaluation_batches
from litebert.optim import build_optimizer, build_schedule
from litebert.tasks import Pretraining
from litebert.tokenizer import Tokenizer
from litebert.train.checkpoint import Checkpoints, Progress, restore
from litebert.train.estimate import Estimate, estimate, faster_precision, with_steps_for
from litebert.train.interrupt import interruptible
from litebert.train.log import Listener, RunLog
from litebert.train.loop import Trainer, run_steps
from litebert.train.run import (
    begin_or_resume,
    choose_device,
    locked,
    recorded_setting,
    require_disk,
)


@dataclass(frozen=True)
class Sources:
    """The data of a run: training corpus, held-out corpus, and their tokenizer."""

    corpus: Corpus
    held_out: Corpus
    tokenizer: Tokenizer

    @classmethod
    def open(cls, config: PretrainConfig) -> Sources:
        """Open what `[data]` names; evaluation must never read the training files."""
        corpus = Corpus.open(Path(config.data.corpus))
        named = config.data.eval_corpus
        held_out = Corpus.open(Path(named)) if named else corpus.held_out()
        if held_out is None:
            raise LitebertError(
                "LB-510",
                "there is nothing held out to evaluate on",
                received=f"{corpus.path} without a held-out part",
                expected="a corpus built with --held-out, or data.eval_corpus",
                next="litebert corpus build ... --held-out 0.01",
            )
        if held_out.tokenizer_hash != corpus.tokenizer_hash:
            raise LitebertError(
                "LB-511",
                "training and evaluation corpus were made with different tokenizers",
                received=f"{corpus.path} and {held_out.path}",
                expected="one tokenizer for both",
                next=f"litebert corpus build ... --tokenizer {corpus.path}/tokenizer",
            )
        return cls(corpus, held_out, Tokenizer.load(corpus.tokenizer_path))

    def described(self) -> dict[str, Json]:
        """Name what the numbers of a run depend on, for run.json."""
        return {
            "tokenizer": self.tokenizer.hash,
            "training tokens": self.corpus.num_tokens,
            "held-out tokens": self.held_out.num_tokens,
            "training corpus": hash_file(self.corpus.path / MANIFEST),
            "held-out corpus": hash_file(self.held_out.path / MANIFEST),
        }

    def evaluation(self, config: PretrainConfig) -> list[PretrainingBatch]:
        """Return the held-out batches, the same for every run with one seed."""
        return list(
            evaluation_batches(
                self.held_out.shards,
                vocabulary=vocabulary_of(self.tokenizer),
                config=config.objective,
                batch_size=config.train.micro_batch_size or config.train.batch_size,
                seed=config.train.seed,
                num_sequences=config.train.eval_sequences,
            )
        )


@dataclass(frozen=True)
class Outcome:
    """How a run ended: at which step, interrupted by what, with its model where."""

    folder: Path
    step: int
    exit_code: int
    model: Path | None


def plan(resolved: Resolved[PretrainConfig], folder: Path) -> tuple[PretrainConfig, Estimate]:
    """Return the full configuration and what it will need, without writing anything."""
    sources = Sources.open(resolved.config)
    config = _completed(resolved.config, sources, folder)
    device = choose_device(config.train.device)
    return config, estimate(config, device, dtype_of(config))


def pretrain(
    resolved: Resolved[PretrainConfig],
    folder: Path,
    *,
    is_quiet: bool = False,
    listeners: tuple[Listener, ...] = (),
) -> Outcome:
    """Train from the configuration, or go on where the same configuration was interrupted."""
    with locked(folder):
        sources = Sources.open(resolved.config)
        config = _completed(resolved.config, sources, folder)
        origins = resolved.origins | _origins(resolved.config, config)
        begin_or_resume(folder, Resolved(config, origins), data=sources.described())
        log = RunLog(folder, config.train.steps, is_quiet=is_quiet, listeners=listeners)
        trainer, task = _built(config, sources, folder, log)
        with interruptible() as interruption:
            progress = run_steps(trainer, task, _resumed(trainer), interruption)
        if progress.step < config.train.steps:
            return Outcome(folder, progress.step, interruption.exit_code, None)
        _write_result(folder / "model", trainer.network, sources.tokenizer)
        return Outcome(folder, progress.step, 0, folder / "model")


def vocabulary_of(tokenizer: Tokenizer) -> Vocabulary:
    """Return what the objectives need to know of a tokenizer."""
    return Vocabulary(
        size=tokenizer.vocab_size,
        cls_id=tokenizer.cls_id,
        sep_id=tokenizer.sep_id,
        mask_id=tokenizer.mask_id,
        starts_word=tokenizer.starts_word,
    )


def dtype_of(config: PretrainConfig) -> torch.dtype:
    """Return the dtype of activations."""
    return {"fp32": torch.float32, "bf16": torch.bfloat16}[config.train.precision]


def loader_for(corpus: Path, *, objective: ObjectiveConfig, batch_size: int, seed: int) -> Loader:
    """Open a corpus's loader; small enough to be sent to the processes that prepare batches."""
    opened = Corpus.open(corpus)
    return Loader(
        opened.shards,
        vocabulary=vocabulary_of(Tokenizer.load(opened.tokenizer_path)),
        config=objective,
        batch_size=batch_size,
        seed=seed,
    )


def _completed(config: PretrainConfig, sources: Sources, folder: Path) -> PretrainConfig:
    """Fill in what follows from the data, and what this machine decides (once for a run)."""
    tokenizer = sources.tokenizer
    ids = {
        "vocab_size": tokenizer.vocab_size,
        "pad_token_id": tokenizer.pad_id,
        "bos_token_id": tokenizer.cls_id,
        "eos_token_id": tokenizer.sep_id,
    }
    config = config.model_copy(update={"model": config.model.model_copy(update=ids)})
    device = choose_device(config.train.device)
    if config.train.precision == "auto":
        recorded = recorded_setting(folder, "train.precision")
        config = _with_train(config, "precision", recorded or faster_precision(device))
    if config.train.minutes is None:
        return config
    if recorded_setting(folder, "train.minutes") == config.train.minutes:
        return _with_train(config, "steps", recorded_setting(folder, "train.steps"))
    return with_steps_for(config, config.train.minutes, device, dtype_of(config))


def _origins(asked: PretrainConfig, completed: PretrainConfig) -> dict[str, str]:
    """Say where the values came from that nobody set."""
    before, after = flattened(asked), flattened(completed)
    changed = [name for name, value in after.items() if before[name] != value]
    return {n: "tokenizer" if n.startswith("model.") else "measured here" for n in changed}


def _with_train(config: PretrainConfig, name: str, value: Json) -> PretrainConfig:
    return config.model_copy(update={"train": config.train.model_copy(update={name: value})})


def _built(
    config: PretrainConfig, sources: Sources, folder: Path, log: RunLog
) -> tuple[Trainer, Pretraining]:
    train = config.train
    generator = torch.Generator().manual_seed(rng.torch_seed(train.seed, "init", 0))
    network = AlbertForPretraining(config.model, dtype=dtype_of(config), generator=generator)
    network.to(choose_device(train.device)).train()
    if train.gradient_checkpointing:
        network.albert.checkpoint_gradients()
    open_loader: Callable[[], Loader] = partial(
        loader_for,
        sources.corpus.path,
        objective=config.objective,
        batch_size=train.batch_size,
        seed=train.seed,
    )
    num_parameters = sum(p.numel() for p in network.parameters())
    require_disk(folder, (train.keep_checkpoints + 1) * num_parameters * 12)
    trainer = Trainer(
        network=network,
        optimizer=build_optimizer(config.optim, network.named_parameters()),
        schedule=build_schedule(config.optim, total_steps=train.steps),
        train=train,
        optim=config.optim,
        checkpoints=Checkpoints(folder / "checkpoints", keep=train.keep_checkpoints),
        log=log,
    )
    held_out = sources.evaluation(config)
    return trainer, Pretraining(network, open_loader=open_loader, held_out=held_out, train=train)


def _resumed(trainer: Trainer) -> Progress:
    """Restore the newest whole checkpoint, naming each damaged one that was passed over."""
    path, problems = trainer.checkpoints.latest()
    for problem in problems:
        trainer.log.say(f"passed over a damaged checkpoint\n{problem}")
    progress = restore(path, trainer.network, trainer.optimizer) if path else Progress()
    trainer.log.resume_at(progress.step if path else -1)
    if path:
        trainer.log.say(f"going on from {path}")
    return progress


def _write_result(folder: Path, network: AlbertForPretraining, tokenizer: Tokenizer) -> None:
    with staged_folder(folder) as staged:
        save_model(network, staged)
        tokenizer.save(staged, max_length=network.config.max_position_embeddings)
