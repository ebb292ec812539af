"""Convert checkpoints of Google's code (google-research/albert) to model folders."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from torch import Tensor

from litebert.config import PRESETS, AlbertConfig, HeadConfig, numbered_labels
from litebert.errors import DamagedError, LitebertError
from litebert.files import read_json, require_new, staged_folder
from litebert.folder import write_folder
from litebert.folder.config import build_config
from litebert.folder.doubts import doubts
from litebert.folder.model import build_network
from litebert.folder.names import GOOGLE, tensor_names
from litebert.interop import ModelImport
from litebert.interop.archive import open_checkpoint
from litebert.interop.bundle import Bundle, read_bundle
from litebert.interop.huggingface import notes_on_tokenizer, report_of
from litebert.plugins import TASK_HEADS
from litebert.tokenizer import Tokenizer

CONFIG_FILE = "albert_config.json"
_CONFIGS = (CONFIG_FILE, "albert_config*.json", "bert_config*.json")
_VOCABULARIES = (
    "30k-clean.model",
    "spiece.model",
    "*.model",
    "vocab.txt",
    "vocab*.txt",
)
_STEP = "global_step"
_CLASSIFIER = "output_weights"
_MOST_LABELS = 100_000
# both optimizers keep these for each variable (optimization.py L140)
_SLOTS = ("/adam_m", "/adam_v")
_WORDS = "bert/embeddings/word_embeddings"
_BLOCK = re.compile(r"bert/encoder/transformer/group_(\d{1,6})/inner_group_(\d{1,6})/")
# albert_config.json (modeling.py L42-125)
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
# Google's "gelu" is the tanh form in every version (modeling.py L299); no activation
# means linear.
_ACTIVATIONS = {"gelu": "gelu_new", "": "linear", "none": "linear"}


def import_checkpoint(
    path: Path,
    output: Path,
    *,
    config: Path | None = None,
    tokenizer: Path | None = None,
    head: str | None = None,
    labels: Sequence[str] = (),
) -> ModelImport:
    """Write the model folder `output` from an archive, a folder, a prefix or a TF-Hub
    module.

    The pretraining heads and their pooler may be missing, as in TF-Hub modules; the
    encoder and a task head may not. The moments of an optimizer are left out.
    """
    require_new(output)
    with open_checkpoint(path, workplace=output.absolute().parent) as prefix:
        bundle = _without_module(read_bundle(prefix))
        blocks = _blocks_of(bundle)
        task = find_head(bundle, kind=head, labels=tuple(labels))
        settings, notes = read_official_config(config or _find_config(prefix))
        _require_blocks(blocks, settings, prefix)

        variables = _variables_of(bundle)
        tensors = _read_tensors(bundle, variables)
        model = build_network(tensors, settings, task, source=prefix, layout=GOOGLE)

        vocabulary = tokenizer or _find_beside(prefix, _VOCABULARIES)
        if vocabulary is None:
            notes.append(
                "no tokenizer was found with the checkpoint: add one with"
                " --tokenizer FILE"
            )
        else:
            model = replace(model, tokenizer=Tokenizer.load(vocabulary))
            notes += notes_on_tokenizer(model)
        with staged_folder(output, if_exists="refuse") as staged:
            write_folder(model, staged)

    used = set[str]()
    for name in model.network.state_dict().keys() - model.missing:
        used.update(tensor_names(name, settings, task, GOOGLE))
    unused = sorted(set(variables) - used)
    return replace(report_of(path, output, model, notes), unused=tuple(unused))


def _without_module(bundle: Bundle) -> Bundle:
    """Return a bundle without the prefix that TF-Hub adds to names."""
    entries = dict[str, Any]()
    for name, entry in bundle.entries.items():
        entries[name.removeprefix("module/")] = entry
    return replace(bundle, entries=entries)


def _blocks_of(bundle: Bundle) -> set[tuple[int, int]]:
    """Return the (group, inner group) of all blocks; raise LB-719 if it is no ALBERT."""
    blocks = set[tuple[int, int]]()
    for name in bundle.entries:
        match = _BLOCK.match(name)
        if match:
            blocks.add((int(match[1]), int(match[2])))
    if _WORDS not in bundle.entries or not blocks:
        names = ", ".join(bundle.entries)
        raise LitebertError(
            "LB-719",
            f"{bundle.prefix} is not a checkpoint of an ALBERT",
            received=f"{len(bundle.entries)}: {names}",
            expected=f"{_WORDS}, {GOOGLE.encoder}encoder/...",
        )
    return blocks


def _require_blocks(
    blocks: set[tuple[int, int]], config: AlbertConfig, prefix: Path
) -> None:
    """Raise LB-721 unless these are the blocks of a configuration, before a network of
    that many is built.
    """
    groups = config.num_hidden_groups
    inner = config.inner_group_num
    if blocks != set(product(range(groups), range(inner))):
        raise DamagedError(
            "LB-721",
            f"{prefix} has {len(blocks)} blocks, the last {max(blocks)}, its"
            f" configuration {groups} x {inner}",
            next="give the configuration that belongs to it with --config",
        )


def _variables_of(bundle: Bundle) -> list[str]:
    """Return the names of all variables but the number of steps and the slots."""
    variables = list[str]()
    for name in bundle.entries:
        if name != _STEP and not name.endswith(_SLOTS):
            variables.append(name)
    return variables


def _read_tensors(bundle: Bundle, variables: Sequence[str]) -> dict[str, Tensor]:
    """Read the weights. Left out are the slots of any optimizer (named below their
    variable), and variables outside of the encoder that cannot be read.
    """
    tensors = dict[str, Tensor]()
    for name in variables:
        is_slot = name.rpartition("/")[0] in bundle.entries
        is_readable = bundle.dtype(name) or name.startswith(GOOGLE.encoder)
        if is_readable and not is_slot:
            stored = bundle.read(name)
            is_kernel = name.endswith("/kernel")  # [in, out]; ours are [out, in]
            tensors[name] = stored.T.contiguous() if is_kernel else stored
    return tensors


# --- its head -------------------------------------------------------------------------


def find_head(
    bundle: Bundle, *, kind: str | None, labels: tuple[str, ...]
) -> HeadConfig | None:
    """Return the task head of a checkpoint; None if it has the pretraining heads, or
    none. Its variables identify it, but GLUE's and RACE's heads share a name, so that
    `kind` and `labels` come from the user:

        in the checkpoint       kind and labels           its head
        no variable of a head   neither                   None
        those of SQuAD          neither                   for spans
        output_weights, n rows  n labels, or none         sequence classification
                                and "token-..."           token classification
        output_weights, 1 row   "sequence-...", or label  regression
                                "multiple-choice"         multiple choice

    Anything else raises LB-714.
    """
    possible = list[str]()
    for name, record in TASK_HEADS.items():
        if record.variable in bundle.entries:
            possible.append(name)
    num_outputs = _num_outputs(bundle)
    is_open = num_outputs == 1 and not labels  # only the user knows what it is for
    chosen = kind
    if kind is None and possible and not is_open:
        chosen = possible[0]
    if chosen is None and not possible and not labels:
        return None
    if chosen in possible:
        names = _labels_of_head(chosen, num_outputs, labels)
        if names is not None:
            return _head_with(chosen, names)
    raise _misfit(possible, num_outputs, kind, labels)


def _labels_of_head(
    kind: str, num_outputs: int, labels: tuple[str, ...]
) -> tuple[str, ...] | None:
    """Return the labels of a head, the user's labels if there are any; None if they do
    not fit the outputs of the head.
    """
    record = TASK_HEADS[kind]
    if record.has_labels:
        names = labels or numbered_labels(min(num_outputs, _MOST_LABELS))
        fit = 0 < num_outputs == len(names) == len(set(names))
        return names if fit else None
    is_other_classifier = (
        record.variable == _CLASSIFIER and num_outputs != record.num_outputs
    )
    return None if labels or is_other_classifier else ()


def _head_with(kind: str, labels: tuple[str, ...]) -> HeadConfig:
    """Return a head with these labels; a classifier with one output is a regression."""
    if TASK_HEADS[kind].reads == "pooled" and len(labels) == 1:
        return HeadConfig(kind=kind, labels=labels, problem_type="regression")
    return HeadConfig(kind=kind, labels=labels)


def _num_outputs(bundle: Bundle) -> int:
    """Return the number of rows of a classifier; 0 if there is none."""
    if _CLASSIFIER not in bundle.entries:
        return 0
    shape = bundle.shape(_CLASSIFIER)
    return shape[0] if shape else 0


def _misfit(
    possible: list[str], num_outputs: int, kind: str | None, labels: tuple[str, ...]
) -> LitebertError:
    """Return the error for options that say something else than the checkpoint."""
    has = "no task head"
    if num_outputs:
        has = f"a head with {num_outputs} outputs"
    elif possible:
        has = f"a {possible[0]} head"
    return LitebertError(
        "LB-714",
        f"the checkpoint has {has}, which is not what the options say",
        received=f"--head {kind or 'none'}, --labels {','.join(labels) or 'none'}",
        expected="a distinct label for each output of a classifier; for a single output"
        " without a label --head sequence-classification (STS-B) or --head"
        " multiple-choice (RACE); nothing for all others",
        next="litebert import google --help",
    )


# --- its configuration, and the files beside it ---------------------------------------


def read_official_config(path: Path) -> tuple[AlbertConfig, list[str]]:
    """Read albert_config.json; return the configuration, and notes on what the file
    leaves open.

    As in the official code, a setting that is not in the file is xxlarge's, and unknown
    names are ignored.
    """
    table = read_json(path, limit=1 << 20)
    defaults = PRESETS["xxlarge-v2"].model_dump(mode="json")
    fields = {name: table.get(name, defaults[name]) for name in _FIELDS}
    activation = str(fields["hidden_act"]).lower()
    fields["hidden_act"] = _ACTIVATIONS.get(activation, activation)
    config = build_config(fields, path)
    notes = list(doubts(config).values())
    missing = [f"{name} {fields[name]}" for name in _FIELDS if name not in table]
    if missing:
        notes.append(
            f"{path.name} leaves these out, which get the official default:"
            f" {', '.join(missing)}"
        )
    return config, notes


def _find_config(prefix: Path) -> Path:
    path = _find_beside(prefix, _CONFIGS)
    if path is None:
        raise LitebertError(
            "LB-715",
            f"there is no {CONFIG_FILE} next to the checkpoint {prefix}",
            next="give the one that belongs to it with --config",
        )
    return path


def _find_beside(prefix: Path, patterns: Sequence[str]) -> Path | None:
    """Return the first file that matches the patterns, next to a checkpoint or in its
    TF-Hub module's assets.
    """
    module = prefix.parent
    if module.name == "variables":
        module = module.parent
    for pattern in patterns:
        for place in (prefix.parent, module, module / "assets"):
            for path in sorted(place.glob(pattern)):
                if path.is_file():
                    return path
    return None
