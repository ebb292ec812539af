"""Convert albert_config.json to our configuration, and back (modeling.py L42-125)."""

from __future__ import annotations

import json
from pathlib import Path

from pydantic import ValidationError

from litebert.config import PRESETS, AlbertConfig
from litebert.config.allowed import expected
from litebert.config.schema import Activation
from litebert.errors import DamagedError, LitebertError
from litebert.files import Json, read_json
from litebert.folder.names import groups_on_disk

_LIMIT = 1 << 20
# Google's "gelu" is the tanh form in every version (modeling.py L299).
_ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu_new",
    "gelu_new": "gelu_new",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
    "": "linear",
}
_WRITTEN_AS = {"gelu_pytorch_tanh": "gelu", "gelu_new": "gelu"}
_FIELDS = (
    "attention_probs_dropout_prob",
    "embedding_size",
    "hidden_act",
    "hidden_dropout_prob",
    "hidden_size",
    "initializer_range",
    "inner_group_num",
    "intermediate_size",
    "max_position_embeddings",
    "num_attention_heads",
    "num_hidden_groups",
    "num_hidden_layers",
    "type_vocab_size",
    "vocab_size",
)
# run_pretraining.py L189 reads net_structure_type; the others are in every published file.
_UNUSED: dict[str, Json] = {"down_scale_factor": 1, "gap_size": 0, "net_structure_type": 0, "num_memory_blocks": 0}
_XLARGE, _XLARGE_HEADS = 2_048, (16, 32)


def read_official_config(path: Path, *, attention_heads: int | None = None) -> tuple[AlbertConfig, list[str]]:
    """Read albert_config.json; return the configuration, and notes on what the file does not say.

    Settings that are not in the file have the official default, which is xxlarge's. Unknown names
    are ignored, as in the official code.

    Raises:
        DamagedError: LB-708, no network can have these settings.
    """
    table = read_json(path, command=f"ls -l {path.parent}", limit=_LIMIT)
    defaults = PRESETS["xxlarge-v2"].model_dump(mode="json")
    missing = [name for name in _FIELDS if name not in table]
    fields = {name: table.get(name, defaults[name]) for name in _FIELDS}
    fields["hidden_act"] = _activation(fields["hidden_act"], path)
    if attention_heads is not None:
        fields["num_attention_heads"] = attention_heads
    try:
        config = AlbertConfig.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        setting = ".".join(map(str, first["loc"]))
        raise DamagedError(
            "LB-708",
            f"{path} describes no network that can be built",
            received=f"{setting} = {first['input']!r}" if setting else "settings that do not fit",
            expected=expected(error, AlbertConfig),
            next=f"correct {path}, or give the right one with --config",
        ) from error
    notes = []
    if missing:
        taken = ", ".join(f"{name} {fields[name]}" for name in missing)
        notes.append(f"{path.name} leaves out what has the official default then: {taken}")
    if attention_heads is None and config.hidden_size == _XLARGE:
        notes += _doubt_heads(config.num_attention_heads)
    return config, notes


def official_config(config: AlbertConfig) -> tuple[str, list[str]]:
    """Return the text of albert_config.json, and notes on what it cannot express.

    Raises:
        LitebertError: LB-471, LB-709, the official code cannot compute this network.
    """
    if config.embedding_size == config.hidden_size and config.projects_embeddings:
        raise LitebertError(
            "LB-709",
            "Google's code cannot compute this network",
            received="a projection of the embeddings although E = H",
            expected="no projection where embedding_size equals hidden_size (modeling.py L1083)",
            next="litebert export onnx --help",
        )
    if config.attention != "full":
        raise LitebertError(
            "LB-471",
            "Google's code has full attention only",
            received=f"attention {config.attention}",
            expected="attention full",
            next="use the model in Python or with the litebert commands",
        )
    fields = config.model_dump(mode="json")
    table = _UNUSED | {name: fields[name] for name in _FIELDS}
    table["hidden_act"] = _WRITTEN_AS.get(config.hidden_act, config.hidden_act)
    table["num_hidden_groups"] = groups_on_disk(config)
    notes = []
    if config.hidden_act == "gelu":
        notes.append("hidden_act gelu, the erf form, becomes Google's gelu, the tanh form")
    if config.layer_norm_eps != 1e-12:
        notes.append(f"layer_norm_eps {config.layer_norm_eps:g} becomes Google's fixed 1e-12")
    if config.sharing != "all":
        notes.append(f"sharing {config.sharing} is written as the unshared layers it equals")
    return json.dumps(table, indent=2, sort_keys=True) + "\n", notes


def _activation(name: Json, path: Path) -> Activation:
    known = "linear" if name is None else str(name).lower()
    if known in _ACTIVATIONS:
        return _ACTIVATIONS[known]
    raise LitebertError(
        "LB-710",
        f"{path} names an activation that Google's code does not have",
        received=f"hidden_act {name!r}",
        expected=", ".join(filter(None, _ACTIVATIONS)),
        next=f"correct hidden_act in {path}",
    )


def _doubt_heads(number: int) -> list[str]:
    """Return a warning about the heads of xlarge, on which the published files disagree."""
    if number not in _XLARGE_HEADS:
        return []
    other = next(each for each in _XLARGE_HEADS if each != number)
    return [
        f"{number} attention heads, by the configuration; other published files of xlarge say "
        f"{other}, and shapes cannot tell: compare both on a task (--heads {other})"
    ]
