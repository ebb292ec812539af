"""Measure masked LM and sentence order of a pretrained model, on texts or held-out data."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from litebert.config import ObjectiveConfig, Precision, PretrainConfig, TrainConfig
from litebert.corpus import Corpus, build_corpus
from litebert.errors import LitebertError
from litebert.fast import refuse_non_finite
from litebert.fast.steps import DTYPES
from litebert.folder import load_model, read_head, read_weights
from litebert.hub import locate
from litebert.inference.finetuned import recorded_config, run_of, trained_in
from litebert.nn import AlbertForPretraining
from litebert.objectives import PretrainingBatch, evaluation_batches
from litebert.runs import read_run
from litebert.tasks import Pretraining
from litebert.tokenizer import Tokenizer
from litebert.train.sources import Sources, vocabulary_of

NUM_SEQUENCES, BATCH_SIZE, SEED = 1_024, 32, 12_345
"""What is drawn from texts: the same sequences and masks for every model with one vocabulary."""


def is_pretrained(path: str | Path) -> bool:
    """Tell whether a run or a model folder has pretraining heads only."""
    run = run_of(path)
    if run is not None:
        return _config(run) is not None
    folder = locate(path)
    tensors = {name: tuple(tensor.shape) for name, tensor in read_weights(folder).items()}
    return read_head(folder, tensors=tensors) is None


def measure_pretraining(
    path: str | Path, texts: Sequence[str | Path], *, column: str = "text", precision: Precision | None = None
) -> tuple[dict[str, float], str]:
    """Return the measures and the precision that they were computed in.

    A model without a sentence-order head is measured on masked words alone.

    Raises:
        LitebertError: LB-926, there are no texts and no run; LB-927, there is no masked-LM head.
    """
    run = run_of(path)
    config = None if run is None else _config(run)
    folder = Path(path) / "model" if run == Path(path) else locate(path)
    if config is None and not texts:
        raise LitebertError(
            "LB-926",
            "a pretrained model is measured on texts",
            received=f"{path}, without its run and without --data",
            expected="a text that the model was not trained on",
            next=f"litebert evaluate {path} --data my-text.txt",
        )
    used = precision or trained_in(config)
    loaded = load_model(folder, dtype=DTYPES[used])
    of_order = {name for name in loaded.missing if name.startswith("sentence_order.")}
    if not isinstance(loaded.network, AlbertForPretraining) or loaded.missing - of_order:
        raise LitebertError(
            "LB-927",
            f"{folder} lacks the masked-LM head",
            received=", ".join(sorted(loaded.missing)[:5]) or "another head",
            expected="a masked-LM head, and a sentence-order head where order is to be measured",
            next="choose a model that litebert pretrained",
        )
    if of_order:
        loaded.network.sentence_order.to_empty(device="cpu").requires_grad_(False)
        for parameter in loaded.network.sentence_order.parameters():
            parameter.zero_()  # its logits are computed, but nothing measures them
    refuse_non_finite(loaded.network)
    if texts:
        longest = loaded.network.config.max_position_embeddings
        objective = _objective(config, longest, has_order=not of_order)
        held_out = _batches(texts, folder, objective, column=column)
    else:
        assert config is not None
        held_out = Sources.open(config).evaluation(config)
    size = None if config is None else config.train.micro_batch_size
    task = Pretraining(loaded.network, held_out=held_out, train=TrainConfig(micro_batch_size=size))
    return task.evaluate(), used


def _objective(config: PretrainConfig | None, longest: int, *, has_order: bool) -> ObjectiveConfig:
    """Return what is measured on texts: as in the run's own evaluation, where there is a run."""
    found = ObjectiveConfig(max_seq_length=min(longest, 512)) if config is None else config.objective
    return found if has_order else found.model_copy(update={"sentence": "none"})


def _batches(
    texts: Sequence[str | Path], folder: Path, objective: ObjectiveConfig, *, column: str
) -> list[PretrainingBatch]:
    """Tokenise texts into a temporary corpus, and draw sequences from it."""
    with tempfile.TemporaryDirectory() as scratch:
        build_corpus(
            texts, tokenizer=folder, output=Path(scratch) / "corpus", documents="blank-line", column=column, workers=1
        )
        return list(
            evaluation_batches(
                Corpus.open(Path(scratch) / "corpus").shards,
                vocabulary=vocabulary_of(Tokenizer.load(folder)),
                config=objective,
                batch_size=BATCH_SIZE,
                seed=SEED,
                num_sequences=NUM_SEQUENCES,
            )
        )


def _config(run: Path) -> PretrainConfig | None:
    """Return the settings of a pretraining run; None for a fine-tuning run."""
    recorded = read_run(run)
    if recorded is None or recorded.kind == "fine-tuning":
        return None
    return recorded_config(PretrainConfig, recorded.settings)
