"""Convert a checkpoint of Google's code to a model folder, and a model folder to a checkpoint."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from pydantic import ValidationError
from torch import Tensor

from litebert.config import ATTENTION_KINDS, HEADS, PRESETS, AlbertConfig, HeadConfig, HeadKind, numbered_labels
from litebert.config.allowed import expected
from litebert.config.schema import Activation
from litebert.errors import DamagedError, LitebertError, NoVocabularyError
from litebert.files import Json, read_json, require_absent, staged_folder, write_bytes, write_json, write_text
from litebert.folder import head_of, load_model, read_weights, widened, write_config
from litebert.folder.names import canonical, groups_on_disk, to_disk
from litebert.folder.weights import WEIGHTS_FILE, read_tensors, write_weights
from litebert.interop.google.bundle import Bundle, read_bundle, write_bundle
from litebert.interop.google.locate import checkpoint_at, find_config, find_vocabulary
from litebert.interop.google.names import BLOCK, SLOTS, STEP, WORDS, is_slot, variables_of
from litebert.nn import AlbertForPretraining, AlbertForTask, Network
from litebert.nn.model import without_numbers
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.tokenizer import read_vocabulary

OPTIMIZER_FILE, STATE_FILE = "optimizer.safetensors", "state.json"
"""As in the checkpoints of a run; of state.json only `step` is written and read."""
_POOLER = {"albert.pooler.weight": "bert/pooler/dense/kernel", "albert.pooler.bias": "bert/pooler/dense/bias"}


@dataclass(frozen=True)
class GoogleImport:
    """What was read and written: `missing` parameters and `unused` variables by name."""

    checkpoint: str
    folder: str
    num_variables: int
    num_parameters: int
    dtypes: tuple[str, ...]
    heads: tuple[str, ...]
    tokenizer: str | None
    optimizer_step: int | None
    missing: tuple[str, ...]
    unused: tuple[str, ...]
    notes: tuple[str, ...]


def import_checkpoint(
    path: Path,
    output: Path,
    *,
    config: Path | None = None,
    tokenizer: Path | None = None,
    head: HeadKind | None = None,
    labels: Sequence[str] = (),
    attention_heads: int | None = None,
    has_optimizer: bool = False,
) -> GoogleImport:
    """Write the model folder `output` from an archive, a folder, a prefix or a TF-Hub module.

    With `has_optimizer` the folder also gets the moments, under the names of `litebert.optim.state_tensors`, and the
    number of steps. The pretraining heads and their pooler may be missing, as in TF-Hub modules; the encoder and a task
    head may not.
    """
    require_absent(
        "LB-728",
        f"{output} already exists",
        output,
        expected="a new folder: nothing is overwritten",
        next="choose another folder with --output, or remove this one",
        or_empty=True,
    )
    with checkpoint_at(path, workplace=output.absolute().parent) as (prefix, notes):
        bundle = _albert_in(read_bundle(prefix))
        task = find_head(bundle, kind=head, labels=tuple(labels))
        settings, doubts = read_official_config(config or find_config(prefix), attention_heads=attention_heads)
        _require_groups(bundle, settings)
        with without_numbers():
            network = AlbertForTask(settings, task) if task else AlbertForPretraining(settings)
        wanted = {name: variables_of(name, settings, task)[0] for name in network.state_dict()}
        # Google's graph has a pooler under every head, used or not: it is kept for the way back.
        is_idle = task is not None and not task.is_pooled
        idle = {name: each for name, each in _POOLER.items() if is_idle and each in bundle.entries}
        for name, parameter in network.state_dict().items():
            _require_shape(bundle, wanted[name], parameter)
        missing = [name for name, variable in wanted.items() if variable not in bundle.entries]
        needed = [n for n in missing if task or (n.startswith("albert.") and "pooler" not in n)]
        if needed:
            raise DamagedError(
                "LB-723",
                f"{prefix} lacks variables that its network needs",
                received=f"no {', '.join(wanted[name] for name in needed)}",
                expected="every variable of the encoder, and of the task head",
                next="check the configuration, or fetch the checkpoint again",
            )
        has_slots = any(map(is_slot, bundle.entries))
        if has_optimizer and not has_slots:
            raise LitebertError(
                "LB-724",
                f"{prefix} has no optimizer",
                received=f"no variable that ends in /{SLOTS[0]}",
                expected="a checkpoint that training wrote; the released ones have none",
                next="omit --optimizer",
            )
        vocabulary = tokenizer or find_vocabulary(prefix)
        step = None
        with staged_folder(output) as staged:
            found = {name: _tensor(bundle, each) for name, each in wanted.items() if name not in missing}
            write_config(settings, staged, head=task, parameters=found)
            tensors = to_disk(found, settings, task) | {name: _tensor(bundle, each) for name, each in idle.items()}
            write_weights(staged / WEIGHTS_FILE, tensors, dtype=torch.float32)
            if has_optimizer:
                step = _write_optimizer(staged, bundle, wanted, network)
            about_words = _write_tokenizer(staged, vocabulary, settings)
        used = [*(wanted[name] for name in found), *idle.values()]
        unused = sorted(n for n in bundle.entries.keys() - set(used) - {STEP} if not is_slot(n))
        lacking = sorted({name.rpartition(".")[0] for name in missing})
        modules = {name.split(".")[0] for name in found} - {name.split(".")[0] for name in missing}
        heads = {"masked_lm": "masked LM", "sentence_order": "sentence order"}
        notes += doubts
        notes += [f"not in the checkpoint: {', '.join(lacking)}"] if lacking else []
        notes += [f"left out: {', '.join(unused)}"] if unused else []
        notes += ["the optimizer was omitted: --optimizer keeps it"] if has_slots and not has_optimizer else []
        return GoogleImport(
            checkpoint=prefix.name,
            folder=str(output),
            num_variables=len(used),
            num_parameters=sum(tensor.numel() for tensor in found.values()),
            dtypes=tuple(sorted({str(bundle.dtype(name)).removeprefix("torch.") for name in used})),
            heads=(task.kind,) if task else tuple(name for module, name in heads.items() if module in modules),
            tokenizer=vocabulary.name if vocabulary else None,
            optimizer_step=step,
            missing=tuple(missing),
            unused=tuple(unused),
            notes=(*notes, *about_words),
        )


def _albert_in(bundle: Bundle) -> Bundle:
    """Return the variables under their official names; those of a TF-Hub module have a prefix."""
    entries = {name.removeprefix("module/"): entry for name, entry in bundle.entries.items()}
    if WORDS in entries and any(map(BLOCK.match, entries)):
        return replace(bundle, entries=entries)
    weights = [name for name in bundle.entries if not is_slot(name)]
    raise LitebertError(
        "LB-719",
        f"{bundle.prefix} is not a checkpoint of an ALBERT",
        received=f"{len(weights)} variables, {', '.join(weights)}"[:1_000],
        expected=f"{WORDS}, bert/encoder/transformer/group_0/..., as Google's code names them",
        next="give a checkpoint of google-research/albert",
    )


def _require_groups(bundle: Bundle, config: AlbertConfig) -> None:
    """Refuse a configuration whose layers are not the checkpoint's."""
    blocks = {(int(match[1]), int(match[2])) for name in bundle.entries if (match := BLOCK.match(name))}
    groups, inner = config.num_hidden_groups, config.inner_group_num
    last_group, last_inner = max(blocks)
    if (groups, inner) != (last_group + 1, last_inner + 1) or len(blocks) != groups * inner:
        received = f"{len(blocks)} blocks, up to group {last_group}, inner {last_inner}"
        expected = f"num_hidden_groups {groups} times inner_group_num {inner}, counted from 0"
        raise _other_configuration("LB-720", bundle, received, expected)


def _require_shape(bundle: Bundle, variable: str, parameter: Tensor) -> None:
    """Refuse a variable, or the optimizer's beside it, whose shape is not that of the parameter."""
    for name in (variable, *(f"{variable}/{slot}" for slot in SLOTS)):
        if name in bundle.entries:
            shape = bundle.shape(name)[:: -1 if variable.endswith("/kernel") else 1]
            if shape != tuple(parameter.shape):
                received, expected = f"{name} of shape {list(shape)}", f"{list(parameter.shape)} (kernels as [out, in])"
                raise _other_configuration("LB-721", bundle, received, expected)


def _other_configuration(code: str, bundle: Bundle, received: str, expected: str) -> DamagedError:
    return DamagedError(
        code,
        f"{bundle.prefix} and its configuration do not belong together",
        received=received,
        expected=expected,
        next="give the configuration that belongs to the checkpoint with --config",
    )


def _tensor(bundle: Bundle, variable: str, slot: str = "") -> Tensor:
    """Read a variable, or the optimizer's beside it, as our parameter: kernels transposed, and as float32."""
    name = f"{variable}/{slot}" if slot else variable
    values = widened(bundle.read(name), f"{bundle.prefix}: {name}")
    return values.T.contiguous() if variable.endswith("/kernel") else values


def _write_optimizer(folder: Path, bundle: Bundle, wanted: dict[str, str], network: Network) -> int:
    """Write the moments, zeros for a variable that never had a gradient; return the number of steps."""
    moments = {
        f"{name}/{slot}": _tensor(bundle, wanted[name], slot)
        if f"{wanted[name]}/{slot}" in bundle.entries
        else torch.zeros(parameter.shape)
        for name, parameter in network.state_dict().items()
        for slot in SLOTS
    }
    write_weights(folder / OPTIMIZER_FILE, moments, dtype=torch.float32)
    step = int(bundle.read(STEP)) if STEP in bundle.entries else 0
    write_json(folder / STATE_FILE, {"step": step})
    return step


def _write_tokenizer(folder: Path, vocabulary: Path | None, config: AlbertConfig) -> list[str]:
    if vocabulary is None:
        return ["no tokenizer was found with the checkpoint: add one with --tokenizer FILE"]
    tokenizer = Tokenizer.load(vocabulary)
    tokenizer.save(folder, max_length=config.max_position_embeddings)
    if tokenizer.vocab_size == config.vocab_size:
        return []
    return [
        f"{vocabulary.name} has {tokenizer.vocab_size:,} pieces, the word table {config.vocab_size:,} rows: make sure "
        "that they belong together"
    ]


# --- the task head ---------------------------------------------------------------------------------------------------

_CLASSIFIER = "output_weights"
"""The variable that GLUE's and RACE's heads have in common."""
_MAX_LABELS = 100_000


def find_head(bundle: Bundle, *, kind: HeadKind | None, labels: tuple[str, ...]) -> HeadConfig | None:
    """Return the task head of a checkpoint; None if it has the pretraining heads, or none.

    Its variables show it, except that a classifier's can be for several kinds: `kind` and `labels` come from the user.
    """
    kinds = {record.variable: kind for kind, record in HEADS.items() if record.variable}
    found = [name for name in kinds if name in bundle.entries]
    if _CLASSIFIER in found:
        return _classifier(bundle.shape(_CLASSIFIER), kind, labels)
    head = HeadConfig.model_validate({"kind": kinds[found[0]]}) if found else None
    if labels or kind not in (None, head and head.kind):
        raise LitebertError(
            "LB-712",
            "the checkpoint does not have the requested head",
            received=f"--head {kind}" if kind else f"--labels {','.join(labels)}",
            expected=f"nothing: it has a {head.kind} head" if head else "nothing: it has no task head",
            next="omit --head and --labels",
        )
    return head


def _classifier(shape: tuple[int, ...], kind: HeadKind | None, labels: tuple[str, ...]) -> HeadConfig:
    """Return the head of GLUE or of RACE; one output may be a score or a choice."""
    num_outputs = shape[0] if shape else 0
    if kind is None and num_outputs == 1 and not labels:
        raise LitebertError(
            "LB-713",
            "a head with one output can be a regression or a multiple choice",
            received="output_weights with one row, and no --head",
            expected="--head sequence-classification (STS-B) or --head multiple-choice (RACE)",
            next="name it with --head",
        )
    kind = kind or "sequence-classification"
    record = HEADS.get(kind)
    is_choice = record is not None and record.has_choices
    names = () if is_choice else labels or numbered_labels(min(num_outputs, _MAX_LABELS))
    fits = num_outputs == 1 and not labels if is_choice else len(names) == num_outputs > 0
    if record is None or record.variable != _CLASSIFIER or not fits or len(set(names)) < len(names):
        raise LitebertError(
            "LB-714",
            "the checkpoint's head does not fit the requested one",
            received=f"{num_outputs} outputs, --head {kind}, --labels {','.join(labels) or 'none'}",
            expected="one distinct label for each output; one output and no label for a choice",
            next="litebert import google --help",
        )
    fields: dict[str, object] = {"kind": kind, "labels": names}
    if record.has_problem_type and num_outputs == 1:
        fields["problem_type"] = "regression"
    return HeadConfig.model_validate(fields)


# --- albert_config.json (modeling.py L42-125) ------------------------------------------------------------------------

_ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu_new",  # Google's "gelu" is the tanh form in every version (modeling.py L299)
    "gelu_new": "gelu_new",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
    "": "linear",
}
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
_UNUSED: dict[str, Json] = {"down_scale_factor": 1, "gap_size": 0, "net_structure_type": 0, "num_memory_blocks": 0}
"""In every published file; run_pretraining.py L189 reads net_structure_type."""
_XLARGE_SIZE, _XLARGE_HEADS = 2_048, {16: 32, 32: 16}


def read_official_config(path: Path, *, attention_heads: int | None = None) -> tuple[AlbertConfig, list[str]]:
    """Read albert_config.json; return the configuration, and notes on what the file does not say.

    Settings that are not in the file have the official default, which is xxlarge's. Unknown names are ignored, as in
    the official code.
    """
    table = read_json(path, command=f"ls -l {path.parent}", limit=1 << 20)
    defaults = PRESETS["xxlarge-v2"].model_dump(mode="json")
    fields = {name: table.get(name, defaults[name]) for name in _FIELDS}
    activation = "linear" if fields["hidden_act"] is None else str(fields["hidden_act"]).lower()
    if activation not in _ACTIVATIONS:
        raise LitebertError(
            "LB-710",
            f"{path} names an activation that Google's code does not have",
            received=f"hidden_act {fields['hidden_act']!r}",
            expected=", ".join(filter(None, _ACTIVATIONS)),
            next=f"correct hidden_act in {path}",
        )
    fields["hidden_act"] = _ACTIVATIONS[activation]
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
    if missing := [f"{name} {fields[name]}" for name in _FIELDS if name not in table]:
        notes.append(f"{path.name} leaves out what has the official default then: {', '.join(missing)}")
    other = _XLARGE_HEADS.get(config.num_attention_heads) if config.hidden_size == _XLARGE_SIZE else None
    if other and attention_heads is None:
        notes.append(
            f"{config.num_attention_heads} attention heads, by the configuration; other published files of xlarge say "
            f"{other}, and shapes cannot tell: compare both on a task (--heads {other})"
        )
    return config, notes


def official_config(config: AlbertConfig) -> tuple[str, list[str]]:
    """Return the text of albert_config.json, and notes on what it cannot express."""
    fields = config.model_dump(mode="json")
    table = _UNUSED | {name: fields[name] for name in _FIELDS}
    table["hidden_act"] = "gelu" if config.hidden_act.startswith("gelu") else config.hidden_act
    table["num_hidden_groups"] = groups_on_disk(config)
    notes = []
    if config.hidden_act == "gelu":
        notes.append("hidden_act gelu, the erf form, becomes Google's gelu, the tanh form")
    if config.layer_norm_eps != 1e-12:
        notes.append(f"layer_norm_eps {config.layer_norm_eps:g} becomes Google's fixed 1e-12")
    if config.sharing != "all":
        notes.append(f"sharing {config.sharing} is written as the unshared layers it equals")
    return json.dumps(table, indent=2, sort_keys=True) + "\n", notes


# --- from a model folder ---------------------------------------------------------------------------------------------

_CONFIG, _STATE = "albert_config.json", "checkpoint"
_VOCABULARIES = {".model": "30k-clean.model", ".txt": "vocab.txt"}


@dataclass(frozen=True)
class GoogleExport:
    """What was written; `files` are in the folder of `prefix`."""

    prefix: str
    files: tuple[str, ...]
    num_variables: int
    num_parameters: int
    optimizer_step: int | None
    notes: tuple[str, ...]


def export_checkpoint(model: Path, output: Path, *, has_optimizer: bool = False) -> GoogleExport:
    """Write a model folder as a checkpoint from which Google's code continues, with its configuration.

    `output` is a prefix such as `folder/model.ckpt-best`, or a folder, which gets one of that name. With
    `has_optimizer` the folder is a run's checkpoint; its moments and steps go along.
    """
    network = load_model(model).network
    config, head = network.config, head_of(network)
    obstacles = {
        "a projection of the embeddings although E = H (modeling.py L1083 has none)": config.projects_embeddings
        and config.embedding_size == config.hidden_size,
        f"attention {config.attention}, not full": not ATTENTION_KINDS[config.attention].is_exported,
        f"a head that is neither on [CLS] nor on tokens, {head and head.kind}": head and head.record.reads_texts,
    }
    if received := ", ".join(name for name, is_there in obstacles.items() if is_there):
        raise LitebertError(
            "LB-709",
            f"Google's code cannot compute the network of {model}",
            received=received,
            next="litebert export onnx --help; model.pooling=cls fine-tunes with a head on [CLS]",
        )
    settings, doubts = official_config(config)
    # The heads after inner steps are ours alone.
    parameters = {name: each for name, each in network.state_dict().items() if not name.startswith("exits.")}
    places = {name: variables_of(name, config, head) for name in parameters}
    weights = {v: _as_variable(v, each) for n, each in parameters.items() if not each.is_meta for v in places[n]}
    notes = []
    if missing := sorted({name.rpartition(".")[0] for name, each in parameters.items() if each.is_meta}):
        notes.append(f"not in the model: {', '.join(missing)}")
    if len(parameters) < len(network.state_dict()):
        notes.append("the heads after inner steps, which Google's graph does not have, are omitted")
    if network.albert.pooler is None:
        stored = canonical(read_weights(model), model)
        if not _POOLER.keys() <= stored.keys():
            notes.append("the pooler, which Google's graph has but this head does not use, is zeros")
            size = config.hidden_size
            stored = dict(zip(_POOLER, (torch.zeros(size, size), torch.zeros(size)), strict=True))
        weights |= {v: _as_variable(v, widened(stored[name], f"{model}: {name}")) for name, v in _POOLER.items()}
    moments, step = _read_optimizer(model, parameters, config, places) if has_optimizer else ({}, None)
    variables = weights | {name: each for name, each in moments.items() if name.rpartition("/")[0] in weights}
    variables[STEP] = torch.tensor(step or 0)
    vocabulary = {}
    try:  # Google's code cannot read tokenizer.json: the vocabulary is made from it if need be
        found = read_vocabulary(model)
        vocabulary[_VOCABULARIES[found.suffix]] = found.data
    except NoVocabularyError as error:
        doubts.append(f"Google's code also needs the vocabulary: {error.what}")
    prefix = output if "ckpt" in output.name else output / "model.ckpt-best"
    require_absent(
        "LB-729",
        f"{prefix.parent} already has a checkpoint",
        *(prefix.with_name(name) for name in (f"{prefix.name}.index", _CONFIG, *vocabulary)),
        expected="a folder without them: nothing is overwritten",
        next="choose another folder",
    )
    write_text(prefix.with_name(_CONFIG), settings)
    for name, data in vocabulary.items():
        write_bytes(prefix.with_name(name), data)
    written = write_bundle(prefix, variables)
    quoted = '"' + prefix.name.replace("\\", "\\\\").replace('"', '\\"') + '"'  # for tf.train.latest_checkpoint
    write_text(prefix.with_name(_STATE), f"model_checkpoint_path: {quoted}\nall_model_checkpoint_paths: {quoted}\n")
    return GoogleExport(
        prefix=str(prefix),
        files=(_CONFIG, *vocabulary, *(path.name for path in written), _STATE),
        num_variables=len(variables),
        num_parameters=sum(each.numel() for each in weights.values()),
        optimizer_step=step,
        notes=(*notes, *doubts),
    )


def _as_variable(variable: str, tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    return tensor.T if variable.endswith("/kernel") else tensor


def _read_optimizer(
    folder: Path, parameters: dict[str, Tensor], config: AlbertConfig, places: dict[str, list[str]]
) -> tuple[dict[str, Tensor], int]:
    """Return the moments of all parameters by variable, and the number of steps."""
    if config.sharing != "all":
        raise LitebertError(
            "LB-725",
            "this optimizer cannot be carried over: its moments belong to other variables",
            received=f"sharing {config.sharing}, whose moments are sums over layers",
            expected="a network whose variables are the same on both sides, one by one",
            next="omit --optimizer",
        )
    path = folder / OPTIMIZER_FILE
    tensors = read_tensors(path) if path.is_file() else {}
    shapes = {f"{name}/{slot}": each.shape for name, each in parameters.items() for slot in SLOTS}
    if {name: tensor.shape for name, tensor in tensors.items()} != shapes:
        raise LitebertError(
            "LB-726",
            f"{folder} has no optimizer of this network",
            received=f"{len(tensors)} tensors in {OPTIMIZER_FILE}" if tensors else f"no {path}",
            expected=f"both moments of all {len(parameters)} parameters",
            next="give a checkpoint folder of a run, runs/NAME/checkpoints/step-N",
        )
    step = read_json(folder / STATE_FILE, command=f"ls -l {folder}").get("step")
    moments = {}
    for name, tensor in tensors.items():
        parameter, _, slot = name.rpartition("/")
        (variable,) = places[parameter]
        moments[f"{variable}/{slot}"] = _as_variable(variable, tensor)
    return moments, step if isinstance(step, int) and 0 <= step < 1 << 63 else 0
