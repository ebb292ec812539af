"""Checkpoints of Google's code (google-research/albert): convert them to a model folder
and back.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

import torch
from torch import Tensor

from litebert.config import (
    PRESETS,
    AlbertConfig,
    HeadConfig,
    numbered_labels,
)
from litebert.errors import DamagedError, LitebertError, NoVocabularyError
from litebert.files import (
    Json,
    read_json,
    require_new,
    staged_folder,
    write_bytes,
    write_json,
)
from litebert.folder import ModelFolder, read_folder, write_folder
from litebert.folder.config import build_config, doubts, refusal_of
from litebert.folder.model import build_network
from litebert.folder.names import GOOGLE, canonicalize, groups_on_disk, tensor_names
from litebert.folder.weights import read_weights, widen, write_weights
from litebert.interop import GoogleExport, ModelImport
from litebert.interop.archive import open_checkpoint
from litebert.interop.bundle import Bundle, read_bundle, write_bundle
from litebert.interop.huggingface import notes_on_tokenizer, report_of
from litebert.nn import USUAL_HEADS
from litebert.plugins import TASK_HEADS
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.on_disk import read_vocabulary

# as in the checkpoints of a run
OPTIMIZER_FILE = "optimizer.safetensors"
STATE_FILE = "state.json"
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
_POOLER = {
    name: tensor_names(name, AlbertConfig(), layout=GOOGLE)[0]
    for name in ("albert.pooler.weight", "albert.pooler.bias")
}

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
# In every published file; run_pretraining.py L189 reads net_structure_type.
_UNUSED: dict[str, Json] = {
    "down_scale_factor": 1,
    "gap_size": 0,
    "net_structure_type": 0,
    "num_memory_blocks": 0,
}
# Google's "gelu" is the tanh form in every version (modeling.py L299); no activation
# means linear.
_ACTIVATIONS = {"gelu": "gelu_new", "": "linear", "none": "linear"}


# --- to a model folder ----------------------------------------------------------------


def import_checkpoint(
    path: Path,
    output: Path,
    *,
    config: Path | None = None,
    tokenizer: Path | None = None,
    head: str | None = None,
    labels: Sequence[str] = (),
    has_optimizer: bool = False,
) -> ModelImport:
    """Write the model folder `output` from an archive, a folder, a prefix or a TF-Hub
    module.

    With `has_optimizer`, the folder also gets the moments, under the names of
    `litebert.optim.state_tensors`, and the number of steps. The pretraining heads and
    their pooler may be missing, as in TF-Hub modules; the encoder and a task head may
    not.
    """
    require_new(output, force=None)
    with open_checkpoint(path, workplace=output.absolute().parent) as prefix:
        bundle = _without_module(read_bundle(prefix))
        blocks = _blocks_of(bundle)
        task = find_head(bundle, kind=head, labels=tuple(labels))
        settings, notes = read_official_config(config or _find_config(prefix))
        _require_blocks(blocks, settings, prefix)
        has_slots = any(name.endswith(_SLOTS) for name in bundle.entries)
        if has_optimizer and not has_slots:
            raise _no_optimizer(prefix)
        if has_slots and not has_optimizer:
            notes.append("the optimizer was omitted: --optimizer keeps it")

        variables = _variables_of(bundle)
        tensors = _read_tensors(bundle, variables)
        model = build_network(tensors, settings, task, source=prefix, layout=GOOGLE)
        parameters = model.network.state_dict()
        places = dict[str, str]()  # the variable of each parameter
        for name in parameters:
            places[name] = tensor_names(name, settings, task, GOOGLE)[0]
        idle = {}
        if model.network.albert.pooler is None:
            idle = _idle_pooler(tensors)

        vocabulary = tokenizer or _find_beside(prefix, _VOCABULARIES)
        if vocabulary is None:
            notes.append(
                "no tokenizer was found with the checkpoint: add one with"
                " --tokenizer FILE"
            )
        else:
            model = replace(model, tokenizer=Tokenizer.load(vocabulary))
            notes += notes_on_tokenizer(model)
        step = None
        with staged_folder(output, force=None) as staged:
            write_folder(model, staged, also=idle)
            if has_optimizer:
                step = _write_optimizer(staged, bundle, places, parameters)

    used = {places[name] for name in parameters.keys() - model.missing}
    used |= {_POOLER[name] for name in idle}
    return replace(
        report_of(path, output, model, notes),
        optimizer_step=step,
        unused=tuple(sorted(set(variables) - used)),
    )


def _without_module(bundle: Bundle) -> Bundle:
    """Return a bundle without the prefix that TF-Hub adds to names."""
    entries = {
        name.removeprefix("module/"): entry for name, entry in bundle.entries.items()
    }
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


def _no_optimizer(prefix: Path) -> LitebertError:
    return LitebertError(
        "LB-724",
        f"{prefix} has no optimizer: no variable ends in {_SLOTS[0]}, as in the"
        " released ones",
        next="omit --optimizer",
    )


def _variables_of(bundle: Bundle) -> list[str]:
    """Return the names of all variables but the number of steps and the slots."""
    return [
        name for name in bundle.entries if not name.endswith(_SLOTS) and name != _STEP
    ]


def _read_tensors(bundle: Bundle, variables: Sequence[str]) -> dict[str, Tensor]:
    """Read the weights. Of variables that are none of ours, slots of any optimizer
    (named below their variable) are left out, and so is what cannot be read.
    """
    tensors = dict[str, Tensor]()
    for name in variables:
        is_slot = name.rpartition("/")[0] in bundle.entries
        is_readable = bundle.dtype(name) or name.startswith(GOOGLE.encoder)
        if is_readable and not is_slot:
            tensors[name] = _read_as_ours(bundle, name)
    return tensors


def _read_as_ours(bundle: Bundle, variable: str) -> Tensor:
    """Read a variable, or a moment of it, in our layout: kernels as [out, in]."""
    stored = bundle.read(variable)
    return stored.T.contiguous() if "/kernel" in variable else stored


def _idle_pooler(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the pooler of a head that reads none: Google's graph has one under every
    head, and it is kept for an export back to Google's format.
    """
    return {
        name: widen(tensors[variable], variable)
        for name, variable in _POOLER.items()
        if variable in tensors
    }


def _write_optimizer(
    folder: Path,
    bundle: Bundle,
    places: Mapping[str, str],
    parameters: Mapping[str, Tensor],
) -> int:
    """Write the moments and the number of steps, as a checkpoint of ours has them;
    return that number.
    """
    moments = dict[str, Tensor]()
    for name, variable in places.items():
        for slot in _SLOTS:
            moment = torch.zeros(parameters[name].shape)
            # a variable that never had a gradient has no moments: zeros
            if variable + slot in bundle.entries:
                place = f"{bundle.prefix}: {variable}{slot}"
                moment = widen(_read_as_ours(bundle, variable + slot), place)
            moments[name + slot] = moment
    write_weights(folder / OPTIMIZER_FILE, moments)
    step = int(bundle.read(_STEP)) if _STEP in bundle.entries else 0
    write_json(folder / STATE_FILE, {"step": step})
    return step


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
    possible = [
        name for name, record in TASK_HEADS.items() if record.variable in bundle.entries
    ]
    num_outputs = _num_outputs(bundle)
    is_open = num_outputs == 1 and not labels  # only the user knows what it is for
    chosen = kind
    if kind is None and possible and not is_open:
        chosen = possible[0]
    misfit = _misfit(possible, num_outputs, kind, labels)
    if chosen is None:
        if possible or labels:
            raise misfit
        return None
    if chosen not in possible:
        raise misfit

    record = TASK_HEADS[chosen]
    names = labels
    fits = not labels
    if record.has_labels:
        names = labels or numbered_labels(min(num_outputs, _MOST_LABELS))
        fits = 0 < num_outputs == len(names) == len(set(names))
    elif record.variable == _CLASSIFIER:
        fits = not labels and num_outputs == record.num_outputs
    if not fits:
        raise misfit
    if record.has_labels and record.reads == "pooled" and num_outputs == 1:
        return HeadConfig(kind=chosen, labels=names, problem_type="regression")
    return HeadConfig(kind=chosen, labels=names)


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
    table = read_json(path, command=f"ls -l {path.parent}", limit=1 << 20)
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


# --- from a model folder --------------------------------------------------------------


def export_checkpoint(model: Path, output: Path) -> GoogleExport:
    """Write a model folder as a checkpoint that Google's code can continue from, with
    its configuration.

    `output` is a prefix such as `folder/model.ckpt-best`, or a folder, which gets a
    checkpoint of that name.
    """
    source = read_folder(model)
    _require_expressible(source, model)
    notes = _changes(source.config)
    weights = _google_variables(source, model, notes)
    prefix = output if "ckpt" in output.name else output / "model.ckpt-best"
    files = {CONFIG_FILE: _config_bytes(source.config)}
    files |= _vocabulary_files(source, model, notes)
    files["checkpoint"] = _state_bytes(prefix.name)

    require_new(prefix.with_name(f"{prefix.name}.index"), force=None)
    for name, data in files.items():
        path = prefix.with_name(name)
        # else an export that was killed wrote it
        if not path.is_file() or path.read_bytes() != data:
            require_new(path, force=None)
    for name, data in files.items():
        write_bytes(prefix.with_name(name), data, force=None, accepts_same=True)
    # its index last
    written = write_bundle(prefix, {**weights, _STEP: torch.tensor(0)})
    return GoogleExport(
        prefix=str(prefix),
        files=(*files, *(path.name for path in written)),
        num_variables=len(weights) + 1,
        num_parameters=sum(tensor.numel() for tensor in weights.values()),
        notes=tuple(notes),
    )


def _require_expressible(source: ModelFolder, model: Path) -> None:
    """Raise LB-709 for a network that Google's code cannot compute."""
    config = source.config
    head = source.head
    obstacles = list[str]()
    if config.projects_embeddings and config.embedding_size == config.hidden_size:
        obstacles.append(
            "a projection of the embeddings although E = H (modeling.py L1083 has none)"
        )
    layers = config.num_hidden_layers
    groups = groups_on_disk(config)
    for layer in range(layers):
        if int(layer / layers * groups) != layer * groups // layers:
            obstacles.append(
                f"{groups} groups of {layers} layers, which it rounds otherwise"
                " (modeling.py L1089)"
            )
            break
    if not config.has_full_attention:
        obstacles.append(f"attention {config.attention}, not full")
    if head is not None and head.record.reads in ("texts", "pairs"):
        obstacles.append(f"a head that is neither on [CLS] nor on tokens, {head.kind}")
    refusal = refusal_of(head)
    if refusal:
        obstacles.append(refusal)
    added_heads = sorted({*getattr(source.network, "heads", ())} - {*USUAL_HEADS})
    if added_heads:
        obstacles.append(f"the pretraining heads {', '.join(added_heads)}")
    if obstacles:
        raise LitebertError(
            "LB-709",
            f"Google's code cannot compute the network of {model}",
            received=", ".join(obstacles),
            next="litebert export onnx --help; or fine-tune with model.pooling=cls",
        )


def _config_bytes(config: AlbertConfig) -> bytes:
    """Return albert_config.json."""
    fields = config.model_dump(mode="json")
    table = _UNUSED | {name: fields[name] for name in _FIELDS}
    table["num_hidden_groups"] = groups_on_disk(config)
    if config.hidden_act.startswith("gelu"):
        table["hidden_act"] = "gelu"
    return f"{json.dumps(table, indent=2, sort_keys=True)}\n".encode()


def _changes(config: AlbertConfig) -> list[str]:
    """Return notes on settings that albert_config.json cannot express."""
    notes = list[str]()
    if config.hidden_act == "gelu":
        notes.append(
            "hidden_act gelu, the erf form, becomes Google's gelu, the tanh form"
        )
    if config.layer_norm_eps != 1e-12:
        notes.append(
            f"layer_norm_eps {config.layer_norm_eps:g} becomes Google's fixed 1e-12"
        )
    if config.sharing != "all":
        notes.append(
            f"sharing {config.sharing} is written as the unshared layers it equals"
        )
    return notes


def _google_variables(
    source: ModelFolder, model: Path, notes: list[str]
) -> dict[str, Tensor]:
    """Return the weights under Google's names, kernels as [in, out]; add notes on what
    its graph lacks or has besides.
    """
    network = source.network
    parameters = dict[str, Tensor]()
    missing = set[str]()
    has_exits = False
    for name, tensor in network.state_dict().items():
        if name.startswith("exits."):  # only litebert has heads after inner steps
            has_exits = True
        elif tensor.is_meta:
            missing.add(name.rpartition(".")[0])
        else:
            parameters[name] = tensor
    if missing:
        notes.append(f"not in the model: {', '.join(sorted(missing))}")
    if has_exits:
        notes.append(
            "the heads after inner steps, which Google's graph does not have, are"
            " omitted"
        )
    if network.albert.pooler is None:
        parameters |= _stored_pooler(source.config, model, notes)

    variables = dict[str, Tensor]()
    for name, tensor in parameters.items():
        for variable in tensor_names(name, source.config, source.head, GOOGLE):
            is_kernel = variable.endswith("/kernel")
            variables[variable] = tensor.detach().T if is_kernel else tensor.detach()
    return variables


def _stored_pooler(
    config: AlbertConfig, model: Path, notes: list[str]
) -> dict[str, Tensor]:
    """Return the pooler of a head that reads none, as an import kept it, or zeros."""
    stored = canonicalize(read_weights(model).tensors)[0]
    if _POOLER.keys() <= stored.keys():
        return {name: widen(stored[name], f"{model}: {name}") for name in _POOLER}
    notes.append(
        "the pooler, which Google's graph has but this head does not use, is zeros"
    )
    size = config.hidden_size
    weight, bias = _POOLER
    return {weight: torch.zeros(size, size), bias: torch.zeros(size)}


def _vocabulary_files(
    source: ModelFolder, model: Path, notes: list[str]
) -> dict[str, bytes]:
    """Return the vocabulary under the name that Google's code expects, made from
    tokenizer.json if there is no other; add notes on what that code reads otherwise.
    """
    try:
        vocabulary = read_vocabulary(model)
    except NoVocabularyError as error:
        notes.append(f"Google's code also needs the vocabulary: {error.what}")
        return {}
    if source.tokenizer is not None and source.tokenizer.added:
        added = [token.content for token in source.tokenizer.added[:5]]
        notes.append(
            f"Google's tokenizer does not split off the added tokens: {', '.join(added)}"
        )
    if not vocabulary.settings.lowercase:
        notes.append(
            "the vocabulary is cased: run Google's code with --do_lower_case=False"
        )
    if vocabulary.settings.keep_accents:
        notes.append("the vocabulary has accents, which Google's code always drops")
    name = "30k-clean.model" if vocabulary.suffix == ".model" else "vocab.txt"
    return {name: vocabulary.data}


def _state_bytes(name: str) -> bytes:
    """Return the file `checkpoint`, for tf.train.latest_checkpoint."""
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    lines = [
        f'model_checkpoint_path: "{escaped}"',
        f'all_model_checkpoint_paths: "{escaped}"',
    ]
    return "".join(f"{line}\n" for line in lines).encode()
