"""Convert between config.json and AlbertConfig; a BERT is a network that shares nothing."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from pathlib import Path

from pydantic import ValidationError

from litebert.config import ATTENTION_KINDS, AlbertConfig, HeadConfig
from litebert.config.allowed import expected
from litebert.config.presets import PRESETS
from litebert.errors import DamagedError, LitebertError
from litebert.files import Json, read_json, write_json
from litebert.folder.config import Shapes, architecture, head_from_table, head_table
from litebert.folder.names import ALBERT, BERT, TensorNames, groups_on_disk

CONFIG_FILE = "config.json"
_OURS_ALONE = {"sharing", "embedding_projection", "attention"}
_OTHER_ATTENTION = "albert-litebert"
"""The model_type of networks with an attention of ours, so that transformers refuses to open them."""
_LIMIT = 1 << 20
_OF_OTHER_FAMILIES = {"classifier_dropout", "layer_norm_epsilon", "pad_token"}
"""Names in files on the Hub that resemble our settings; transformers ignores them, too."""
_FOR_TRAINING = ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout_prob", "initializer_range")
"""Settings that do not change the outputs of a trained network."""
# transformers' defaults for a BertConfig.
_BERT_BASE = PRESETS["bert-base"].model_copy(update={"vocab_size": 30_522, "hidden_act": "gelu"})
_BERT_SETTINGS = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "max_position_embeddings",
    "type_vocab_size",
    "initializer_range",
    "layer_norm_eps",
    "pad_token_id",
)


def write_config(
    config: AlbertConfig,
    folder: Path,
    *,
    head: HeadConfig | None = None,
    parameters: Collection[str] = ("masked_lm.", "sentence_order."),
    dtype: str = "float32",
    is_int8: bool = False,
) -> None:
    """Write config.json so that transformers builds the same network with these parameters."""
    fields = config.model_dump(mode="json")
    of_kinds = {name for kind in ATTENTION_KINDS.values() for name in kind.settings}
    table: dict[str, Json] = {
        "architectures": [architecture(head, parameters)],
        "model_type": "albert",
        "dtype": dtype,
        "tie_word_embeddings": True,
        **{name: value for name, value in fields.items() if name not in _OURS_ALONE | of_kinds},
        "num_hidden_groups": groups_on_disk(config),
    }
    table |= head_table(head)
    if config.sharing != "all":
        table["sharing"] = config.sharing
    kind = ATTENTION_KINDS[config.attention]
    if not kind.is_exported:
        table["model_type"] = _OTHER_ATTENTION
        table |= {name: fields[name] for name in ("attention", *kind.settings)}
    if is_int8:  # for other programs; transformers ignores it
        table["quantization_config"] = {"quant_method": "litebert-int8"}
    write_json(folder / CONFIG_FILE, table)


def read_config(folder: Path) -> AlbertConfig:
    """Read config.json of an ALBERT or a BERT; names that only transformers knows are ignored.

    Missing values are transformers' defaults: xxlarge's for an ALBERT, bert-base's for a BERT. A
    BERT becomes a network without sharing whose embeddings are as wide as its layers.

    Raises:
        LitebertError: LB-600, LB-671, it is another kind of network; LB-670, a setting is misspelt;
            LB-675, there is no config.json.
        DamagedError: LB-601, no network can have these settings.
    """
    path = folder / CONFIG_FILE
    if not path.exists():
        raise LitebertError(
            "LB-675",
            f"there is no model in {folder}",
            received=f"a folder without {CONFIG_FILE}, or a run that is not done",
            expected="a folder with config.json and model.safetensors, or a run with a model",
            next=f"ls {folder}; rerun the command that began a run to resume it",
        )
    return parse_config(read_json(path, command=f"ls {folder}", limit=_LIMIT), path)[1]


def parse_config(table: dict[str, Json], path: Path) -> tuple[TensorNames, AlbertConfig]:
    """Return the tensor names and the configuration that the contents of a config.json describe.

    Errors name `path`; they are those of `read_config`.
    """
    layout = _layout(table, path)
    fields = (_bert if layout is BERT else _albert)(table, path)
    for name, value in fields.items():
        if isinstance(value, bool) and name != "embedding_projection":
            raise _impossible(path, f"{name} = {value!r}", "a number or a name")
    try:
        return layout, AlbertConfig.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise _impossible(
            path,
            f"{'.'.join(map(str, first['loc'])) or 'config'} = {first['input']!r}"[:200],
            expected(error, AlbertConfig),
        ) from error


def read_layout(folder: Path) -> TensorNames:
    """Return the tensor names of a folder: ALBERT's or BERT's.

    Raises:
        LitebertError: LB-600, the folder contains another kind of model.
    """
    path = folder / CONFIG_FILE
    return _layout(read_json(path, command=f"ls {folder}", limit=_LIMIT), path)


def spelling_notes(folder: Path) -> tuple[str, ...]:
    """Return a note for each unknown name in config.json that resembles a missing setting."""
    path = folder / CONFIG_FILE
    table = read_json(path, command=f"ls {folder}", limit=_LIMIT)
    settings = _BERT_SETTINGS if _layout(table, path) is BERT else AlbertConfig.model_fields
    return tuple(
        f"{CONFIG_FILE} has {name}, which is not read, and no {near}: training takes the default"
        for name, near in _misspelt(table, settings)
    )


def read_head(folder: Path, *, tensors: Shapes) -> HeadConfig | None:
    """Return the task head of a folder; None for the pretraining heads.

    `tensors` are the shapes in its weights file, for a config.json that does not name the head.
    """
    path = folder / CONFIG_FILE
    table = read_json(path, command=f"ls {folder}", limit=_LIMIT)
    return head_from_table(table, source=path, tensors=tensors)


def _layout(table: dict[str, Json], path: Path) -> TensorNames:
    classes = table.get("architectures")
    is_bert = isinstance(classes, list) and classes and str(classes[0]).startswith("Bert")
    kind = table.get("model_type", "bert" if is_bert else "albert")
    layouts = {"albert": ALBERT, _OTHER_ATTENTION: ALBERT, "bert": BERT}
    if not isinstance(kind, str) or kind not in layouts:
        raise LitebertError(
            "LB-600",
            f"{path} does not describe an ALBERT or a BERT",
            received=f"model_type {kind}",
            expected='model_type "albert" or "bert"',
            next="choose an ALBERT or BERT model folder",
        )
    return layouts[kind]


def _albert(table: dict[str, Json], path: Path) -> dict[str, Json]:
    defaults = PRESETS["xxlarge-v2"].model_dump(mode="json")
    _require_spelt(table, defaults, path)
    fields = defaults | {name: table[name] for name in defaults if name in table}
    if fields["sharing"] != "all":
        fields["num_hidden_groups"] = 1
    return fields


def _bert(table: dict[str, Json], path: Path) -> dict[str, Json]:
    kind = table.get("position_embedding_type", "absolute")
    if kind != "absolute" or table.get("is_decoder") or table.get("add_cross_attention"):
        raise LitebertError(
            "LB-671",
            f"{path} describes a BERT that litebert cannot compute",
            received="a decoder" if kind == "absolute" else f"position_embedding_type {kind}",
            expected="an encoder with absolute positions",
            next="choose another model",
        )
    defaults = _BERT_BASE.model_dump(mode="json")
    _require_spelt(table, _BERT_SETTINGS, path)
    fields = defaults | {name: table[name] for name in _BERT_SETTINGS if name in table}
    dropout = table.get("classifier_dropout")
    fields["classifier_dropout_prob"] = fields["hidden_dropout_prob"] if dropout is None else dropout
    fields["embedding_size"] = fields["hidden_size"]
    return fields


def _require_spelt(table: dict[str, Json], settings: Collection[str], path: Path) -> None:
    """Raise LB-670 for a name that looks like a missing setting: another network would be built."""
    for name, near in _misspelt(table, settings):
        if near not in _FOR_TRAINING:
            raise LitebertError(
                "LB-670",
                f"{path} has a setting that no network has",
                received=name,
                expected=f"did you mean {near}?",
                next=f"correct the name in {path}",
            )


def _misspelt(table: dict[str, Json], settings: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield each unknown name with the missing setting that it resembles."""
    absent = [name for name in settings if name not in table]
    for name in sorted(table.keys() - _OF_OTHER_FAMILIES - set(settings)):
        for near in difflib.get_close_matches(name, absent, n=1, cutoff=0.85):
            yield name, near


def _impossible(path: Path, received: str, expected: str) -> DamagedError:
    return DamagedError(
        "LB-601",
        f"{path} describes no network that can be built",
        received=received,
        expected=expected,
        next=f"correct {path}, or fetch the model again",
    )
