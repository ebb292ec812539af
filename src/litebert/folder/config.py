"""The settings next to the weights: reading and writing config.json, and how texts
become vectors.

config.json describes the network and its head; a BERT is a network that shares nothing.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import cast, get_args

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from litebert.config import (
    ATTENTION_KINDS,
    HEADS,
    PRESETS,
    AlbertConfig,
    HeadConfig,
    Pooling,
    kind_of_class,
)
from litebert.errors import LitebertError
from litebert.files import Json, read_capped, read_json, write_json
from litebert.folder.names import (
    ALBERT,
    BERT,
    TensorNames,
    damaged_model,
    groups_on_disk,
)
from litebert.settings import describe_invalid

CONFIG_FILE = "config.json"
_OURS_ALONE = {"sharing", "embedding_projection", "attention"}
# the model_type of our own kinds of attention, which transformers refuses to open
_OTHER_ATTENTION = "albert-litebert"

# transformers' defaults for a BertConfig, and our settings that it does not have.
_BERT_BASE = PRESETS["bert-base"].model_copy(
    update={"vocab_size": 30_522, "hidden_act": "gelu"}
)
_NOT_OF_BERT = {
    "embedding_size",
    "num_hidden_groups",
    "inner_group_num",
    "classifier_dropout_prob",
}
_NOT_OF_BERT |= {"bos_token_id", "eos_token_id"}

PUBLISHED_SHAPES = {
    (p.hidden_size, p.num_hidden_layers)
    for name, p in PRESETS.items()
    if name.endswith("-v1")
}
_ERF_OR_TANH = (
    "hidden_act gelu is computed in the erf form, as transformers does. Google trained"
    " its v1 models with the tanh form under that name, 1e-3 apart: for those set"
    " gelu_new in config.json, or import with --activation gelu_new."
)
_HEADS = (
    "hidden_size 2048 with {0} attention heads: the shapes fit {1} as well, and sources"
    " disagree on xlarge (its configuration says 16, the paper's H/64 gives 32). If"
    " answers look random, set it to {1} in config.json."
)


def write_config(
    config: AlbertConfig,
    folder: Path,
    *,
    head: HeadConfig | None = None,
    parameters: Collection[str] = ("masked_lm.", "sentence_order."),
    dtype: str = "float32",
) -> None:
    """Write config.json so that transformers builds the same network with these
    parameters.
    """
    fields = config.model_dump(mode="json")
    kind = ATTENTION_KINDS[config.attention]
    ours = _OURS_ALONE | {
        name for each in ATTENTION_KINDS.values() for name in each.settings
    }
    table: dict[str, Json] = {
        "architectures": [architecture(head, parameters)],
        "model_type": "albert" if kind.is_full else _OTHER_ATTENTION,
        "dtype": dtype,
        "tie_word_embeddings": True,
        **{name: value for name, value in fields.items() if name not in ours},
        "num_hidden_groups": groups_on_disk(config),
    }
    if head is not None and head.labels:
        table["id2label"] = {str(index): name for index, name in enumerate(head.labels)}
        table["label2id"] = {name: index for index, name in enumerate(head.labels)}
        table |= (
            {"problem_type": head.problem_type} if head.record.has_problem_type else {}
        )
    if config.sharing != "all":
        table["sharing"] = config.sharing
    if not kind.is_full:
        table |= {name: fields[name] for name in ("attention", *kind.settings)}
    write_json(folder / CONFIG_FILE, table)


def architecture(head: HeadConfig | None, parameters: Collection[str]) -> str:
    """Return the name of the transformers class that has these parameters."""
    if head is not None:
        return f"AlbertFor{head.record.class_name}"
    if any(name.startswith("sentence_order.") for name in parameters):
        return "AlbertForPreTraining"
    return (
        "AlbertForMaskedLM"
        if any(name.startswith("masked_lm.") for name in parameters)
        else "AlbertModel"
    )


def read_config(folder: Path) -> AlbertConfig:
    """Read config.json of an ALBERT or a BERT."""
    return read_layout(folder)[1]


def read_layout(folder: Path) -> tuple[TensorNames, AlbertConfig]:
    """Return the tensor names of a folder, ALBERT's or BERT's, and its
    configuration.
    """
    return parse_config(_read(folder), folder / CONFIG_FILE)


def _read(folder: Path) -> dict[str, Json]:
    if (path := folder / CONFIG_FILE).exists():
        return read_json(path, command=f"ls {quote(str(folder))}", limit=1 << 20)
    next_step = (
        f"ls {quote(str(folder))}; rerun the command that began a run to resume it"
    )
    raise LitebertError(
        "LB-675", f"there is no config.json of a model in {folder}", next=next_step
    )


def parse_config(
    table: dict[str, Json], path: Path
) -> tuple[TensorNames, AlbertConfig]:
    """Return the tensor names and the configuration that the contents of a config.json
    describe; errors name `path`.

    Missing values are transformers' defaults: xxlarge's for an ALBERT, bert-base's for
    a BERT. A BERT becomes a network without sharing whose embeddings are as wide as its
    layers. Names that only transformers uses are ignored.
    """
    classes = table.get("architectures")
    is_bert = (
        isinstance(classes, list) and classes and str(classes[0]).startswith("Bert")
    )
    model_type = str(table.get("model_type", "bert" if is_bert else "albert"))
    if model_type in ("albert", _OTHER_ATTENTION):
        fields = PRESETS["xxlarge-v2"].model_dump(mode="json")
        fields |= {name: table[name] for name in fields if name in table}
        if fields["sharing"] != "all":
            fields["num_hidden_groups"] = 1
        return ALBERT, build_config(fields, path)
    positions = table.get("position_embedding_type", "absolute")
    is_decoder = bool(table.get("is_decoder") or table.get("add_cross_attention"))
    if model_type != "bert" or positions != "absolute" or is_decoder:
        what = f"{path} describes a network that litebert cannot compute"
        wanted = "an ALBERT or BERT encoder"
        received = (
            f"model_type {model_type}, {positions}"
            f" positions{', a decoder' if is_decoder else ''}"
        )
        raise LitebertError(
            "LB-600",
            what,
            received=received,
            expected=f"{wanted} with absolute positions",
        )
    fields = _BERT_BASE.model_dump(mode="json")
    fields |= {
        name: table[name]
        for name in fields.keys() - _NOT_OF_BERT - _OURS_ALONE
        if name in table
    }
    dropout = table.get("classifier_dropout")
    fields["classifier_dropout_prob"] = (
        fields["hidden_dropout_prob"] if dropout is None else dropout
    )
    fields["embedding_size"] = fields["hidden_size"]
    return BERT, build_config(fields, path)


def build_config(fields: dict[str, Json], path: Path) -> AlbertConfig:
    """Return the configuration with these settings, from a file or from options."""
    try:
        # or True would count as 1
        return AlbertConfig.model_validate(fields, strict=True)
    except ValidationError as error:
        what = f"{path} does not describe a network that can be built"
        raise damaged_model("LB-601", what, describe_invalid(error)) from error


def read_head(folder: Path) -> HeadConfig | None:
    """Return the task head that config.json names; None if there are only pretraining
    heads, or none.
    """
    table = _read(folder)
    source = folder / CONFIG_FILE
    named = table.get("architectures")
    names = table.get("id2label")
    kind = kind_of_class(str(named[0])) if isinstance(named, list) and named else None
    if kind is None:
        return None
    fields: dict[str, object] = {"kind": kind}
    if HEADS[kind].has_labels:
        # transformers does not write these
        labels: tuple[str, ...] = ("LABEL_0", "LABEL_1")
        if isinstance(names, dict) and names and all(key.isdecimal() for key in names):
            labels = tuple(str(names[key]) for key in sorted(names, key=int))
        fields["labels"] = labels
        if HEADS[kind].has_problem_type:
            by_default = (
                "regression" if len(labels) == 1 else "single_label_classification"
            )
            fields["problem_type"] = table.get("problem_type") or by_default
    try:
        return HeadConfig.model_validate(fields)
    except ValidationError as error:
        what = f"{source} does not describe a {kind} head that can be built"
        raise damaged_model("LB-661", what, describe_invalid(error)) from error


def doubts(config: AlbertConfig) -> dict[str, str]:
    """Return a note for each setting on which published sources disagree, by its name.

    Official modeling.py L299-349 against the v1 configurations of the Hub; paper 3.1
    against xlarge's configuration.

    >>> list(doubts(AlbertConfig(hidden_act="gelu")))
    ['hidden_act']
    """
    notes = (
        {"hidden_act": _ERF_OR_TANH}
        if config.hidden_act == "gelu" and config.sharing == "all"
        else {}
    )
    heads = config.num_attention_heads
    others = {16: 32, 32: 16}
    if config.hidden_size == 2_048 and heads in others:
        notes["num_attention_heads"] = _HEADS.format(heads, others[heads])
    return notes


# How texts become vectors: the files that sentence-transformers writes next to a model.

MODULES_FILE = "modules.json"
_SETTINGS_FILE = "sentence_bert_config.json"
_PROMPTS_FILE = "config_sentence_transformers.json"
_LIMIT = 1 << 20
# Before version 6, sentence-transformers wrote one switch per pooling.
_SWITCHES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


@dataclass(frozen=True)
class SentenceVectors:
    """How hidden states become one vector per text; the defaults are those of a plain
    model.
    """

    pooling: Pooling = "mean"
    normalize: bool = False
    # in pieces; unset, only the network's positions limit texts
    max_length: int | None = None
    prompt: str = ""  # put before every text


class _Module(BaseModel):
    type: str
    # a folder inside the model folder, or that folder itself
    path: str = Field(pattern=r"^[\w-]*$")


_MODULES = TypeAdapter(list[_Module])


def read_sentence_vectors(folder: Path) -> SentenceVectors | None:
    """Read what sentence-transformers wrote next to a model; None if there is
    nothing.
    """
    path = folder / MODULES_FILE
    look = f"ls {quote(str(folder))}"
    if not path.is_file():
        return None

    def table(name: str) -> dict[str, Json]:
        return (
            read_json(folder / name, command=look, limit=_LIMIT)
            if (folder / name).is_file()
            else {}
        )

    settings, prompts, tokenizer = map(
        table, (_SETTINGS_FILE, _PROMPTS_FILE, "tokenizer_config.json")
    )
    try:
        modules = _MODULES.validate_json(read_capped(path, _LIMIT, command=look))
        kinds = [module.type.rpartition(".")[2] for module in modules]
        if (
            kinds
            not in (
                ["Transformer", "Pooling"],
                ["Transformer", "Pooling", "Normalize"],
            )
            or modules[0].path
        ):
            raise ValueError(
                ", ".join(
                    f"{module.type} in {module.path or 'this folder'}"
                    for module in modules
                )
            )
        if settings.get("do_lower_case") and tokenizer.get("do_lower_case") is False:
            raise ValueError("do_lower_case before a tokenizer that keeps capitals")
        pooling = read_json(
            folder / modules[1].path / CONFIG_FILE, command=look, limit=_LIMIT
        )
        switched = [mode for name, mode in _SWITCHES.items() if pooling.get(name)]
        written = pooling.get("pooling_mode") or switched or "mean"
        mode = (
            written[0] if isinstance(written, list) and len(written) == 1 else written
        )
        if mode not in get_args(Pooling):
            raise ValueError(f"pooling {mode}")
        known = prompts.get("prompts")
        default = str(prompts.get("default_prompt_name") or "")
        prompt = str(known.get(default) or "") if isinstance(known, dict) else ""
        if prompt and pooling.get("include_prompt") is False:
            raise ValueError("include_prompt false, with a default prompt")
    except ValueError as error:
        what = (
            f"{path} describes vectors that litebert cannot compute: only mean, cls or"
            " max, perhaps normalised"
        )
        said = describe_invalid(error) if isinstance(error, ValidationError) else error
        raise LitebertError(
            "LB-672",
            what,
            received=said,
            next=f"to use only the encoder, delete {path}",
        ) from error
    longest = settings.get("max_seq_length") or tokenizer.get("model_max_length")
    return SentenceVectors(
        pooling=cast(Pooling, mode),
        normalize="Normalize" in kinds,
        max_length=(
            longest if isinstance(longest, int) and 3 <= longest <= _LIMIT else None
        ),
        prompt=prompt,
    )


def write_sentence_transformers(folder: Path, vectors: SentenceVectors) -> None:
    """Write the files that let `SentenceTransformer(folder)`, since 2.0, open a model
    folder with the same vectors.
    """
    config = read_json(folder / CONFIG_FILE, command=f"ls {quote(str(folder))}")
    paths = {"Transformer": "", "Pooling": "1_Pooling"} | (
        {"Normalize": "2_Normalize"} if vectors.normalize else {}
    )
    max_length = vectors.max_length or config["max_position_embeddings"]
    switches: dict[str, Json] = {
        name: mode == vectors.pooling for name, mode in _SWITCHES.items()
    }
    written: dict[str, Json] = {
        f"{paths['Pooling']}/{CONFIG_FILE}": {
            "word_embedding_dimension": config["hidden_size"],
            **switches,
        },
        _SETTINGS_FILE: {"max_seq_length": max_length, "do_lower_case": False},
        _PROMPTS_FILE: {
            "prompts": {"default": vectors.prompt} if vectors.prompt else {},
            "default_prompt_name": "default" if vectors.prompt else None,
            "similarity_fn_name": "cosine",
        },
        MODULES_FILE: [  # last: without it, the others are not read
            {
                "idx": number,
                "name": str(number),
                "path": path,
                "type": f"sentence_transformers.models.{kind}",
            }
            for number, (kind, path) in enumerate(paths.items())
        ],
    }
    for name, value in written.items():
        write_json(folder / name, value)
