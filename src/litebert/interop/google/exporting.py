"""Write a model folder as a checkpoint from which Google's code continues."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from litebert.errors import LitebertError, NoVocabularyError
from litebert.files import require_absent, write_bytes, write_text
from litebert.interop.google.bundle_writer import write_bundle
from litebert.interop.google.configuration import official_config
from litebert.interop.google.outgoing import FloatType, outgoing
from litebert.tokenizer.fromjson import read_vocabulary

_CONFIG, _STATE = "albert_config.json", "checkpoint"
_VOCABULARIES = {".model": "30k-clean.model", ".txt": "vocab.txt"}


@dataclass(frozen=True)
class GoogleExport:
    """What was written; `files` are in the folder of `prefix`."""

    prefix: str
    files: tuple[str, ...]
    num_variables: int
    num_parameters: int
    dtype: str
    optimizer_step: int | None
    notes: tuple[str, ...]


def export_checkpoint(
    model: Path, output: Path, *, num_shards: int = 1, dtype: FloatType = "float32", has_optimizer: bool = False
) -> GoogleExport:
    """Write a model folder as a checkpoint of the official code, with its configuration.

    `output` is a prefix such as `folder/model.ckpt-best`, or a folder, which gets one of that name.
    With `has_optimizer` the folder is a run's checkpoint; its moments and steps go along.

    Raises:
        LitebertError: LB-709, LB-725, LB-726, Google's code has no such network or optimizer;
            LB-727, LB-729, it cannot be written so.
    """
    leaving = outgoing(model, dtype=dtype, has_optimizer=has_optimizer)
    settings, doubts = official_config(leaving.config)
    prefix = output if "ckpt" in output.name else output / "model.ckpt-best"
    _require_shards(num_shards, len(leaving.variables))
    vocabulary, lacking = _vocabulary(model)
    _require_free(prefix, [_CONFIG, *vocabulary])
    write_text(prefix.with_name(_CONFIG), settings)
    for name, data in vocabulary.items():
        write_bytes(prefix.with_name(name), data)
    written = write_bundle(prefix, leaving.variables, num_shards=num_shards)
    write_text(prefix.with_name(_STATE), _state(prefix.name))
    files = [_CONFIG, *vocabulary, *(path.name for path in written), _STATE]
    return GoogleExport(
        prefix=str(prefix),
        files=tuple(files),
        num_variables=len(leaving.variables),
        num_parameters=leaving.num_parameters,
        dtype=dtype,
        optimizer_step=leaving.optimizer_step,
        notes=(*leaving.notes, *doubts, *lacking),
    )


def _vocabulary(model: Path) -> tuple[dict[str, bytes], list[str]]:
    """Return the file of the vocabulary, made from tokenizer.json if need be; or what is missing.

    Google's code cannot read tokenizer.json.
    """
    try:
        found = read_vocabulary(model)
    except NoVocabularyError as error:
        return {}, [f"Google's code also needs the vocabulary: {error.what}"]
    return {_VOCABULARIES[found.suffix]: found.data}, []


def _state(name: str) -> str:
    """Return the text of the file by which tf.train.latest_checkpoint finds a checkpoint."""
    quoted = '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
    return f"model_checkpoint_path: {quoted}\nall_model_checkpoint_paths: {quoted}\n"


def _require_shards(number: int, num_variables: int) -> None:
    if not 1 <= number <= num_variables:
        raise LitebertError(
            "LB-727",
            "a checkpoint cannot have this many data files",
            received=f"{number}",
            expected=f"1 to {num_variables}, the number of variables",
            next="omit --shards",
        )


def _require_free(prefix: Path, companions: list[str]) -> None:
    """Refuse to overwrite: a checkpoint is only as good as the configuration beside it."""
    require_absent(
        "LB-729",
        f"{prefix.parent} already has a checkpoint",
        *(prefix.with_name(name) for name in (f"{prefix.name}.index", *companions)),
        expected="a folder without them: nothing is overwritten",
        next="choose another folder",
    )
