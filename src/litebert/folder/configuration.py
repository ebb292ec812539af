"""config.json: our AlbertConfig in Hugging Face's words, and back."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from pydantic import ValidationError

from litebert.config import AlbertConfig, HeadConfig
from litebert.config.presets import PRESETS
from litebert.errors import DamagedError, LitebertError
from litebert.files import Json, read_json, write_json
from litebert.folder.heads import Shapes, architecture, head_from_table, head_table
from litebert.folder.names import groups_on_disk

CONFIG_FILE = "config.json"
_OURS_ALONE = ("sharing", "embedding_projection")
_LIMIT = 1 << 20


def write_config(
    config: AlbertConfig,
    folder: Path,
    *,
    head: HeadConfig | None = None,
    parameters: Collection[str] = ("masked_lm.", "sentence_order."),
    dtype: str = "float32",
    is_int8: bool = False,
) -> None:
    """Write config.json so that transformers builds the network that has these parameters."""
    fields = config.model_dump(mode="json")
    table: dict[str, Json] = {
        "architectures": [architecture(head, parameters)],
        "model_type": "albert",
        "dtype": dtype,
        "tie_word_embeddings": True,
        **{name: value for name, value in fields.items() if name not in _OURS_ALONE},
        "num_hidden_groups": groups_on_disk(config),
    }
    table |= head_table(head)
    if config.sharing != "all":
        table["sharing"] = config.sharing
    if is_int8:  # it says to others what this is; transformers alone would ignore it
        table["quantization_config"] = {"quant_method": "litebert-int8"}
    write_json(folder / CONFIG_FILE, table)


def read_config(folder: Path) -> AlbertConfig:
    """Read config.json; names that only transformers knows are ignored.

    A missing value is that of xxlarge, as in the official code and in transformers.
    """
    path = folder / CONFIG_FILE
    table = read_json(path, command=f"ls {folder}", limit=_LIMIT)
    kind = table.get("model_type", "albert")
    if kind != "albert":
        raise LitebertError(
            "LB-600",
            f"{path} does not describe an ALBERT",
            received=f"model_type {kind}",
            expected='model_type "albert"',
            next="choose an ALBERT model folder",
        )
    defaults = PRESETS["xxlarge-v2"].model_dump(mode="json")
    fields = defaults | {name: table[name] for name in defaults if name in table}
    if fields["sharing"] != "all":
        fields["num_hidden_groups"] = 1
    try:
        return AlbertConfig.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise DamagedError(
            "LB-601",
            f"{path} describes no network that can be built",
            received=f"{'.'.join(map(str, first['loc'])) or 'config'} = {first['input']!r}"[:200],
            expected=first["msg"].removeprefix("Value error, "),
            next=f"correct {path}, or fetch the model again",
        ) from error


def read_head(folder: Path, *, tensors: Shapes) -> HeadConfig | None:
    """Read which task head a folder has; None for the pretraining heads.

    `tensors` gives the shapes in its weights file, for a config.json that does not say.
    """
    path = folder / CONFIG_FILE
    table = read_json(path, command=f"ls {folder}", limit=_LIMIT)
    return head_from_table(table, source=path, tensors=tensors)
