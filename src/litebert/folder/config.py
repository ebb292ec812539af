"""config.json: it describes the network and its head; a BERT is a network that shares
nothing.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from shlex import quote
from typing import NamedTuple

from pydantic import ValidationError

from litebert.config import (
    PRESETS,
    AlbertConfig,
    HeadConfig,
    kinds_of_head,
    numbered_labels,
)
from litebert.errors import LitebertError
from litebert.files import Json, read_json, write_json
from litebert.folder.names import (
    ALBERT,
    BERT,
    TensorNames,
    damaged_model,
    groups_on_disk,
)
from litebert.nn import USUAL_HEADS
from litebert.plugins import (
    ATTENTION_KINDS,
    PRETRAINING_HEADS,
    TASK_HEADS,
    TASK_KINDS,
    plugins_used,
    require_plugins,
)
from litebert.runs import RunFolder, is_run
from litebert.settings import describe_invalid

CONFIG_FILE = "config.json"
# how a text is divided into words that get tags, which transformers leaves to its user
_SPLITTING = "word_splitting"
_PAIRS = "compares_texts"
_TASK_SETTINGS = "task_settings"
# settings of a network that transformers does not have
_LITEBERT_FIELDS = {
    "sharing",
    "embedding_projection",
    "attention",
    "attention_settings",
}
# The model_type of networks whose answers transformers would get wrong, and which it
# therefore must not open: another kind of attention, or labels of another kind.
_LITEBERT_TYPE = "albert-litebert"
# the keys of the plug-ins that a model needs, and of its heads if they are not the usual
_PLUGINS = "litebert_plugins"
_HEADS_KEY = "pretraining_heads"

# transformers' defaults for a BertConfig
_BERT_BASE = PRESETS["bert-base"].model_copy(
    update={"vocab_size": 30_522, "hidden_act": "gelu"}
)
# our settings that a BertConfig does not have
_NOT_OF_BERT = {
    "embedding_size",
    "num_hidden_groups",
    "inner_group_num",
    "classifier_dropout_prob",
    "bos_token_id",
    "eos_token_id",
}
# Nothing is computed with these ids: the tokenizer has its own.
_TOKEN_IDS = ("pad_token_id", "bos_token_id", "eos_token_id")


# ---- writing -------------------------------------------------------------------------

# A second copy of the settings that weights were saved with, as NAME=VALUE, so that an
# edit does not reach it.
SAVED_WITH = "weights_saved_with"
# Settings that change what the weights compute without changing their shapes.
_SETTINGS_OF_WEIGHTS = (
    "hidden_act",
    "layer_norm_eps",
    "num_attention_heads",
    "num_hidden_layers",
    "attention",
)


def write_config(
    config: AlbertConfig,
    folder: Path,
    *,
    head: HeadConfig | None = None,
    pretraining_heads: Sequence[str] = USUAL_HEADS,
    parameters: Collection[str] = ("masked_lm.", "sentence_order."),
    dtype: str = "float32",
) -> None:
    """Write config.json so that transformers builds the same network with these
    parameters.
    """
    # If the layers of a head have other sizes, transformers opens the encoder alone.
    opens_elsewhere = config.has_full_attention and not _refusal_of_kind(head)
    model_type = "albert" if opens_elsewhere else _LITEBERT_TYPE
    table: dict[str, Json] = {
        "architectures": [architecture(head, parameters)],
        "model_type": model_type,
        "dtype": dtype,
        "tie_word_embeddings": True,
    }
    fields = config.model_dump(mode="json")
    table |= {name: fields[name] for name in fields if name not in _LITEBERT_FIELDS}
    table["num_hidden_groups"] = groups_on_disk(config)
    table[SAVED_WITH] = list(settings_of_weights(config))
    if head is not None:
        table |= _head_fields(head)
    if config.sharing != "all":
        table["sharing"] = config.sharing
    if not config.has_full_attention:
        table |= {"attention": config.attention, **config.attention_arguments}
    if head is None and tuple(pretraining_heads) != USUAL_HEADS:
        table[_HEADS_KEY] = list(pretraining_heads)
    plugins = plugins_of(config, head, pretraining_heads)
    if plugins:
        table[_PLUGINS] = list(plugins)
    write_json(folder / CONFIG_FILE, table)


def settings_of_weights(config: AlbertConfig) -> list[str]:
    """Return the settings that weights are computed with, apart from their shapes.

    >>> settings_of_weights(AlbertConfig(hidden_act="gelu"))[0]
    'hidden_act=gelu'
    """
    fields = config.model_dump(mode="json")
    return [f"{name}={fields[name]}" for name in _SETTINGS_OF_WEIGHTS]


def _head_fields(head: HeadConfig) -> dict[str, Json]:
    """Return what config.json says of a task head."""
    fields: dict[str, Json] = {}
    if head.labels:
        fields["id2label"] = {str(id_): name for id_, name in enumerate(head.labels)}
        fields["label2id"] = {name: id_ for id_, name in enumerate(head.labels)}
        if head.has_problem_type:
            fields["problem_type"] = head.problem_type
        if head.compares_texts is not None:
            fields[_PAIRS] = head.compares_texts
        if head.splitting != "words":
            fields[_SPLITTING] = head.splitting
    if head.settings:
        fields[_TASK_SETTINGS] = dict(head.settings)
    if head.kind == "question-answering":
        fields["always_answers"] = bool(head.always_answers)
    return fields


def plugins_of(
    config: AlbertConfig,
    head: HeadConfig | None,
    pretraining_heads: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return the plug-ins that a model needs to be loaded."""
    names = [(ATTENTION_KINDS, config.attention)]
    if head is None:
        names += [(PRETRAINING_HEADS, name) for name in pretraining_heads]
        return plugins_used(names)
    names.append((TASK_HEADS, head.kind))
    for name, kind in TASK_KINDS.items():
        if kind is head.task_kind:
            names.append((TASK_KINDS, name))
    return plugins_used(names)


def refusal_of(head: HeadConfig | None) -> str:
    """Return why other programs cannot turn the outputs of a head into answers; "" if
    they can.
    """
    if head is None:
        return ""
    return str(head.record.refusal) or _refusal_of_kind(head)


def _refusal_of_kind(head: HeadConfig | None) -> str:
    kind = None if head is None else head.task_kind
    return "" if kind is None else str(kind.refusal)


def architecture(head: HeadConfig | None, parameters: Collection[str]) -> str:
    """Return the name of the transformers class that has these parameters."""
    if head is not None:
        return f"AlbertFor{head.record.class_name}"
    if any(name.startswith("sentence_order.") for name in parameters):
        return "AlbertForPreTraining"
    if any(name.startswith("masked_lm.") for name in parameters):
        return "AlbertForMaskedLM"
    return "AlbertModel"


# ---- reading the network -------------------------------------------------------------


class NetworkLayout(NamedTuple):
    """A network, and under which names its tensors are on disk."""

    names: TensorNames
    config: AlbertConfig


def read_config(folder: Path) -> AlbertConfig:
    """Read config.json of an ALBERT or a BERT."""
    return read_layout(folder).config


def read_layout(folder: Path) -> NetworkLayout:
    """Return the configuration of the network in a folder, and the names of its
    tensors, ALBERT's or BERT's.
    """
    return parse_config(read_table(folder), folder / CONFIG_FILE)


def read_table(folder: Path) -> dict[str, Json]:
    """Return the contents of config.json; load the plug-ins that it needs."""
    path = folder / CONFIG_FILE
    if not path.exists():
        raise LitebertError(
            "LB-675",
            f"there is no config.json of a model in {folder}",
            next=f"ls {quote(str(folder))}; rerun the command that began a run to resume"
            " it",
        )
    table = read_json(path, limit=1 << 20)
    plugins = table.get(_PLUGINS)
    if isinstance(plugins, list):
        require_plugins(map(str, plugins), folder, _plugin_files(folder))
    return table


def _plugin_files(folder: Path) -> dict[str, str]:
    """Return the files of the plug-ins with which the run of a model began, by their
    names; none for a model without its run.
    """
    run = folder.resolve().parent
    if not is_run(run):
        return {}
    return RunFolder(run).file.plugins


def parse_config(table: dict[str, Json], path: Path) -> NetworkLayout:
    """Return the network that the contents of a config.json describe; errors name
    `path`.

    Names that only transformers uses are ignored.
    """
    first_class = _first_class(table) or ""
    default_type = "bert" if first_class.startswith("Bert") else "albert"
    model_type = str(table.get("model_type", default_type))
    usable = dict[str, Json]()
    for name, value in table.items():
        if name not in _TOKEN_IDS or _is_id(value):
            usable[name] = value
    if model_type in ("albert", _LITEBERT_TYPE):
        return NetworkLayout(ALBERT, build_config(_albert_fields(usable), path))
    _require_encoder(table, model_type, path)
    return NetworkLayout(BERT, build_config(_bert_fields(usable), path))


def _albert_fields(table: dict[str, Json]) -> dict[str, Json]:
    """Return the settings of an ALBERT; missing ones are transformers' defaults, which
    are xxlarge's.
    """
    fields = PRESETS["xxlarge-v2"].model_dump(mode="json")
    fields |= {name: table[name] for name in fields if name in table}
    fields["attention_settings"] = _attention_settings(table)
    if fields["sharing"] != "all":
        fields["num_hidden_groups"] = 1
    return fields


def _bert_fields(table: dict[str, Json]) -> dict[str, Json]:
    """Return the settings of a BERT as a network without sharing, whose embeddings are
    as wide as its layers; missing settings are taken from bert-base.
    """
    fields = _BERT_BASE.model_dump(mode="json")
    known = fields.keys() - _NOT_OF_BERT - _LITEBERT_FIELDS
    fields |= {name: table[name] for name in known if name in table}
    dropout = table.get("classifier_dropout")
    if dropout is None:
        dropout = fields["hidden_dropout_prob"]
    fields["classifier_dropout_prob"] = dropout
    fields["embedding_size"] = fields["hidden_size"]
    return fields


def _is_id(value: Json) -> bool:
    """Return whether a value is the id of a piece: transformers also writes null, -1
    and lists.
    """
    return isinstance(value, int) and value >= 0


def _require_encoder(table: dict[str, Json], model_type: str, path: Path) -> None:
    """Raise unless config.json describes a BERT encoder with absolute positions."""
    positions = table.get("position_embedding_type", "absolute")
    is_decoder = bool(table.get("is_decoder") or table.get("add_cross_attention"))
    if model_type == "bert" and positions == "absolute" and not is_decoder:
        return
    received = f"model_type {model_type}, {positions} positions"
    if is_decoder:
        received += ", a decoder"
    raise LitebertError(
        "LB-600",
        f"{path} describes a network that litebert cannot compute",
        received=received,
        expected="an ALBERT or BERT encoder with absolute positions",
    )


def _attention_settings(table: dict[str, Json]) -> dict[str, Json]:
    """Return the settings of a plug-in's kind of attention, which stand beside the
    others in config.json.
    """
    name = str(table.get("attention", "full"))
    if name == "full" or name not in ATTENTION_KINDS:
        return {}
    return {key: table[key] for key in ATTENTION_KINDS[name].settings if key in table}


def build_config(fields: dict[str, Json], path: Path) -> AlbertConfig:
    """Return the configuration with these settings, from a file or from options."""
    try:
        # strict, because True would count as 1
        return AlbertConfig.model_validate(fields, strict=True)
    except ValidationError as error:
        what = f"{path} does not describe a network that can be built"
        raise damaged_model("LB-601", what, describe_invalid(error)) from error


def read_pretraining_heads(folder: Path) -> tuple[str, ...]:
    """Return the pretraining heads of a model without a task head."""
    names = read_table(folder).get(_HEADS_KEY)
    if not isinstance(names, list):
        return USUAL_HEADS
    for name in names:
        PRETRAINING_HEADS.require(str(name))
    return tuple(map(str, names))


# ---- reading the head ----------------------------------------------------------------


def read_head(folder: Path) -> HeadConfig | None:
    """Return the task head that config.json names; None if there are only pretraining
    heads, or none.
    """
    table = read_table(folder)
    first_class = _first_class(table)
    kind = None if first_class is None else _head_of_class(first_class)
    if kind is None:
        return None
    try:
        return HeadConfig.model_validate(_fields_of_head(kind, table))
    except ValidationError as error:
        path = folder / CONFIG_FILE
        raise damaged_model(
            "LB-661",
            f"{path} does not describe a {kind} head that can be built",
            describe_invalid(error),
        ) from error


def _first_class(table: dict[str, Json]) -> str | None:
    """Return the class of transformers that a config.json names."""
    classes = table.get("architectures")
    if not isinstance(classes, list) or not classes:
        return None
    return str(classes[0])


def _head_of_class(name: str) -> str | None:
    """Return the head of a class of transformers, such as BertForTokenClassification;
    None for other classes.
    """
    for kind, record in TASK_HEADS.items():
        if name in (f"AlbertFor{record.class_name}", f"BertFor{record.class_name}"):
            return kind
    return None


def _fields_of_head(kind: str, table: dict[str, Json]) -> dict[str, Json]:
    """Return the fields of a `HeadConfig` that a config.json has."""
    fields: dict[str, Json] = {"kind": kind}
    if TASK_HEADS[kind].has_labels:
        labels = _labels_in(table)
        fields["labels"] = list(labels)
        if any(task_kind.problem_type for task_kind in kinds_of_head(kind)):
            default = "single_label_classification"
            if len(labels) == 1:
                default = "regression"
            fields["problem_type"] = table.get("problem_type") or default
    if _SPLITTING in table:
        fields["splitting"] = table[_SPLITTING]
    if _PAIRS in table:
        fields["compares_texts"] = table[_PAIRS]
    if _TASK_SETTINGS in table:
        fields["settings"] = table[_TASK_SETTINGS]
    if kind == "question-answering":
        fields["always_answers"] = table.get("always_answers")
    return fields


def _labels_in(table: dict[str, Json]) -> tuple[str, ...]:
    """Return the names of the labels by number; transformers does not write its own
    two.
    """
    names = table.get("id2label")
    if not isinstance(names, dict) or not names:
        return numbered_labels(2)
    if not all(number.isdecimal() for number in names):
        return numbered_labels(2)
    return tuple(str(names[number]) for number in sorted(names, key=int))
