"""Convert a checkpoint of Google's code to a model folder, and a model folder to a checkpoint."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from litebert.config import ATTENTION_KINDS, HEADS, PRESETS, AlbertConfig, HeadConfig, HeadKind, numbered_labels
from litebert.config.schema import Activation
from litebert.errors import DamagedError, LitebertError, NoVocabularyError
from litebert.files import Json, read_json, require_new, staged_folder, write_bytes, write_json, write_text
from litebert.folder.config import build_config, doubts, write_config
from litebert.folder.model import head_of, load_model
from litebert.folder.names import TensorNames, canonical, groups_on_disk, tensor_names, to_disk
from litebert.folder.weights import WEIGHTS_FILE, read_tensors, read_weights, widened, write_weights
from litebert.interop.google.bundle import Bundle, read_bundle, write_bundle
from litebert.interop.google.locate import checkpoint_at, find_config, find_vocabulary
from litebert.interop.reports import GoogleExport, GoogleImport
from litebert.nn import AlbertForPretraining, AlbertForTask
from litebert.nn.model import without_numbers
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.tokenizer import read_vocabulary

OPTIMIZER_FILE, STATE_FILE = "optimizer.safetensors", "state.json"  # as in the checkpoints of a run
STEP = "global_step"
SLOTS = ("adam_m", "adam_v")  # both optimizers keep these beside each variable (optimization.py L140)

# --- the variables of google-research/albert, modeling.py ------------------------------------------------------------

WORDS = "bert/embeddings/word_embeddings"
BLOCK = re.compile(r"bert/encoder/transformer/group_(\d{1,6})/inner_group_(\d{1,6})/")
GOOGLE = TensorNames(
    family="Albert",
    encoder="bert/",
    words=WORDS,
    predictions="cls/predictions",
    modules={
        "albert.embedding.word": WORDS,
        "albert.embedding.position": "bert/embeddings/position_embeddings",
        "albert.embedding.segment": "bert/embeddings/token_type_embeddings",
        "albert.embedding.norm": "bert/embeddings/LayerNorm",
        "albert.embedding.projection": "bert/encoder/embedding_hidden_mapping_in",
        "albert.pooler": "bert/pooler/dense",
    },
    layer="bert/encoder/transformer/group_{group}/inner_group_{inner}",
    block={
        "attention.query": "attention_1/self/query",
        "attention.key": "attention_1/self/key",
        "attention.value": "attention_1/self/value",
        "attention.output": "attention_1/output/dense",
        "attention.norm": "LayerNorm",
        "feed_forward.intermediate": "ffn_1/intermediate/dense",
        "feed_forward.output": "ffn_1/intermediate/output/dense",
        "feed_forward.norm": "LayerNorm_1",
    },
)
"""A layout beside those of Hugging Face's files, so that groups, inner groups and partial sharing are the same."""
_POOLER = {"albert.pooler.weight": "bert/pooler/dense/kernel", "albert.pooler.bias": "bert/pooler/dense/bias"}
_LINEAR_HEADS = {"classifier": "", "qa_outputs": "cls/squad"}  # by their names in Hugging Face's files


def variables_of(parameter: str, config: AlbertConfig, head: HeadConfig | None = None) -> list[str]:
    """Return the variables that hold one of our parameters; with partial sharing, several.

    A variable that ends in /kernel is stored as [in, out], the transpose of our weight.

    >>> config = AlbertConfig()
    >>> variables_of("masked_lm.dense.weight", config), variables_of("masked_lm.bias", config)
    (['cls/predictions/transform/dense/kernel'], ['cls/predictions/output_bias'])
    >>> variables_of("albert.feed_forward.0.norm.bias", config)
    ['bert/encoder/transformer/group_0/inner_group_0/LayerNorm_1/beta']
    """
    variables = []
    for name in tensor_names(parameter, config, head, GOOGLE):
        module, _, kind = name.replace(".", "/").rpartition("/")
        module = _LINEAR_HEADS.get(module, module)
        if module.endswith("_embeddings"):
            variables.append(module)
            continue
        if module in ("", "cls/squad", "cls/seq_relationship", "cls/predictions"):
            kind = {"weight": "output_weights", "bias": "output_bias"}[kind]
        elif module.rpartition("/")[2].startswith("LayerNorm"):
            kind = {"weight": "gamma", "bias": "beta"}[kind]
        else:
            kind = {"weight": "kernel", "bias": "bias"}[kind]
        variables.append(f"{module}/{kind}".lstrip("/"))
    return variables


def is_slot(variable: str) -> bool:
    """Tell whether a variable is the optimizer's."""
    return variable.endswith(tuple(f"/{slot}" for slot in SLOTS))


# --- to a model folder -----------------------------------------------------------------------------------------------


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
    require_new(output, force=None)
    with checkpoint_at(path, workplace=output.absolute().parent) as (prefix, notes):
        bundle = read_bundle(prefix)
        entries = {name.removeprefix("module/"): entry for name, entry in bundle.entries.items()}  # TF-Hub's names
        blocks = {(int(match[1]), int(match[2])) for name in entries if (match := BLOCK.match(name))}
        if WORDS not in entries or not blocks:
            weights = [name for name in entries if not is_slot(name)]
            raise LitebertError(
                "LB-719",
                f"{prefix} is not a checkpoint of an ALBERT",
                received=f"{len(weights)} variables, {', '.join(weights)}"[:1_000],
                expected=f"{WORDS}, bert/encoder/transformer/group_0/..., as Google's code names them",
                next="give a checkpoint of google-research/albert",
            )
        bundle = replace(bundle, entries=entries)
        task = find_head(bundle, kind=head, labels=tuple(labels))
        settings, unsaid = read_official_config(config or find_config(prefix), attention_heads=attention_heads)

        # The layers, before a network of as many as a configuration says is built; then every shape
        def require_fit(received: object, wanted: str, *, fits: bool) -> None:
            if not fits:
                next_step = "give the configuration that belongs to the checkpoint with --config"
                what = f"{prefix} and its configuration do not belong together"
                raise DamagedError("LB-721", what, received=received, expected=wanted, next=next_step)

        groups, inner, last = settings.num_hidden_groups, settings.inner_group_num, max(blocks)
        require_fit(
            f"{len(blocks)} blocks, up to group {last[0]}, inner {last[1]}",
            f"num_hidden_groups {groups} times inner_group_num {inner}, counted from 0",
            fits=(groups, inner) == (last[0] + 1, last[1] + 1) and len(blocks) == groups * inner,
        )
        with without_numbers():
            network = AlbertForTask(settings, task) if task else AlbertForPretraining(settings)
        parameters = network.state_dict()
        wanted = {name: variables_of(name, settings, task)[0] for name in parameters}
        for name, variable in wanted.items():
            for stored in (variable, *(f"{variable}/{slot}" for slot in SLOTS)):
                if stored in entries:
                    theirs = bundle.shape(stored)[:: -1 if variable.endswith("/kernel") else 1]
                    ours = tuple(parameters[name].shape)
                    shown = f"{stored} of shape {list(theirs)}", f"{list(ours)} (kernels as [out, in])"
                    require_fit(*shown, fits=theirs == ours)
        # Google's graph has a pooler under every head, used or not: it is kept for the way back.
        is_idle = task is not None and not task.is_pooled
        idle = {name: each for name, each in _POOLER.items() if is_idle and each in entries}
        missing = [name for name, variable in wanted.items() if variable not in entries]
        needed = [n for n in missing if task or (n.startswith("albert.") and "pooler" not in n)]
        if needed:
            raise DamagedError(
                "LB-723",
                f"{prefix} lacks variables that its network needs",
                received=f"no {', '.join(wanted[name] for name in needed)}",
                next="check the configuration, or fetch the checkpoint again",
            )
        has_slots = any(map(is_slot, entries))
        if has_optimizer and not has_slots:
            what = f"{prefix} has no optimizer: no variable ends in /{SLOTS[0]}, as in the released ones"
            raise LitebertError("LB-724", what, next="omit --optimizer")

        def tensor(variable: str, slot: str = "") -> Tensor:
            """Read a variable, or the optimizer's beside it, as our parameter: kernels transposed, and as float32."""
            name = f"{variable}{slot}"
            values = widened(bundle.read(name), f"{prefix}: {name}")
            return values.T.contiguous() if variable.endswith("/kernel") else values

        vocabulary = tokenizer or find_vocabulary(prefix)
        step, about_words = None, "no tokenizer was found with the checkpoint: add one with --tokenizer FILE"
        with staged_folder(output) as staged:
            found = {name: tensor(each) for name, each in wanted.items() if name not in missing}
            write_config(settings, staged, head=task, parameters=found)
            tensors = to_disk(found, settings, task) | {name: tensor(each) for name, each in idle.items()}
            write_weights(staged / WEIGHTS_FILE, tensors, dtype=torch.float32)
            if has_optimizer:  # a variable that never had a gradient has no moments: zeros
                moments = {
                    f"{name}/{slot}": tensor(variable, f"/{slot}")
                    if f"{variable}/{slot}" in entries
                    else torch.zeros(parameters[name].shape)
                    for name, variable in wanted.items()
                    for slot in SLOTS
                }
                write_weights(staged / OPTIMIZER_FILE, moments, dtype=torch.float32)
                step = int(bundle.read(STEP)) if STEP in entries else 0
                write_json(staged / STATE_FILE, {"step": step})
            if vocabulary is not None:
                words = Tokenizer.load(vocabulary)
                words.save(staged, max_length=settings.max_position_embeddings)
                sizes = f"{words.vocab_size:,} pieces, the word table {settings.vocab_size:,} rows"
                differs = words.vocab_size != settings.vocab_size
                about_words = f"{vocabulary.name} has {sizes}: make sure that they belong together" if differs else ""
        used = [*(wanted[name] for name in found), *idle.values()]
        unused = sorted(n for n in entries.keys() - set(used) - {STEP} if not is_slot(n))
        lacking = sorted({name.rpartition(".")[0] for name in missing})
        modules = {name.split(".")[0] for name in found} - {name.split(".")[0] for name in missing}
        heads = {"masked_lm": "masked LM", "sentence_order": "sentence order"}
        remarks = (
            *notes,
            *unsaid,
            f"not in the checkpoint: {', '.join(lacking)}" if lacking else "",
            f"left out: {', '.join(unused)}" if unused else "",
            "the optimizer was omitted: --optimizer keeps it" if has_slots and not has_optimizer else "",
            about_words,
        )
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
            notes=tuple(filter(None, remarks)),
        )


def find_head(bundle: Bundle, *, kind: HeadKind | None, labels: tuple[str, ...]) -> HeadConfig | None:
    """Return the task head of a checkpoint; None if it has the pretraining heads, or none.

    Its variables show it, except that GLUE's and RACE's have one of the same name: `kind` and `labels` come from the
    user.
    """
    kinds = {record.variable: kind for kind, record in HEADS.items() if record.variable}
    variable = next((name for name in kinds if name in bundle.entries), "")
    if variable != "output_weights":
        has = f"a {kinds[variable]} head" if variable else "no task head"
        fits = not labels and kind in (None, kinds.get(variable))
        fields: dict[str, object] = {"kind": kinds[variable]} if variable else {}
    else:
        shape = bundle.shape(variable)
        num_outputs = shape[0] if shape else 0
        if kind is None and num_outputs == 1 and not labels:
            raise LitebertError(
                "LB-713",
                "a head with one output can be a regression or a multiple choice",
                next="add --head sequence-classification (STS-B) or --head multiple-choice (RACE)",
            )
        kind = kind or "sequence-classification"
        record = HEADS[kind]
        names = () if record.has_choices else labels or numbered_labels(min(num_outputs, 100_000))
        has = f"a head with {num_outputs} outputs"
        is_whole = num_outputs == 1 and not labels if record.has_choices else len(names) == num_outputs > 0
        fits = record.variable == variable and is_whole and len(set(names)) == len(names)
        fields = {"kind": kind, "labels": names}
        if record.has_problem_type and num_outputs == 1:
            fields["problem_type"] = "regression"
    if not fits:
        raise LitebertError(
            "LB-714",
            f"the checkpoint has {has}, which is not the requested one",
            received=f"--head {kind or 'none'}, --labels {','.join(labels) or 'none'}",
            expected="one distinct label for each output of a classifier; nothing for all others",
            next="litebert import google --help",
        )
    return HeadConfig.model_validate(fields) if fields else None


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
    "attention_probs_dropout_prob", "embedding_size", "hidden_act", "hidden_dropout_prob", "hidden_size",
    "initializer_range", "inner_group_num", "intermediate_size", "max_position_embeddings", "num_attention_heads",
    "num_hidden_groups", "num_hidden_layers", "type_vocab_size", "vocab_size",
)  # fmt: skip
# In every published file; run_pretraining.py L189 reads net_structure_type.
_UNUSED: dict[str, Json] = {"down_scale_factor": 1, "gap_size": 0, "net_structure_type": 0, "num_memory_blocks": 0}


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
            next="correct hidden_act",
        )
    fields["hidden_act"] = _ACTIVATIONS[activation]
    if attention_heads is not None:
        fields["num_attention_heads"] = attention_heads
    config = build_config(fields, path)
    notes = list(doubts(config)) if attention_heads is None else []
    if missing := [f"{name} {fields[name]}" for name in _FIELDS if name not in table]:
        notes.append(f"{path.name} leaves out what has the official default then: {', '.join(missing)}")
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
    settings, notes = official_config(config)
    # The heads after inner steps are ours alone.
    parameters = {name: each for name, each in network.state_dict().items() if not name.startswith("exits.")}
    places = {name: variables_of(name, config, head) for name in parameters}
    weights = {v: _as_variable(v, each) for n, each in parameters.items() if not each.is_meta for v in places[n]}
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
        notes.append(f"Google's code also needs the vocabulary: {error.what}")
    prefix = output if "ckpt" in output.name else output / "model.ckpt-best"
    for name in (f"{prefix.name}.index", _CONFIG, *vocabulary):
        require_new(prefix.with_name(name), force=None)
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
        notes=tuple(notes),
    )


def _as_variable(variable: str, tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    return tensor.T if variable.endswith("/kernel") else tensor


def _read_optimizer(
    folder: Path, parameters: dict[str, Tensor], config: AlbertConfig, places: dict[str, list[str]]
) -> tuple[dict[str, Tensor], int]:
    """Return the moments of all parameters by variable, and the number of steps."""
    path = folder / OPTIMIZER_FILE
    tensors = read_tensors(path) if path.is_file() else {}
    shapes = {f"{name}/{slot}": each.shape for name, each in parameters.items() for slot in SLOTS}
    is_shared = config.sharing != "all"
    if is_shared or {name: tensor.shape for name, tensor in tensors.items()} != shapes:
        there = f"{len(tensors)} tensors in {OPTIMIZER_FILE}" if tensors else f"no {path}"
        raise LitebertError(
            "LB-726",
            f"{folder} has no optimizer that Google's code can continue with",
            received=f"sharing {config.sharing}, whose moments are sums over layers" if is_shared else there,
            expected=f"both moments of all {len(parameters)} parameters",
            next="omit --optimizer, or give a checkpoint folder of a run, runs/NAME/checkpoints/step-N",
        )
    step = read_json(folder / STATE_FILE, command=f"ls -l {folder}").get("step")
    moments = {}
    for name, tensor in tensors.items():
        parameter, _, slot = name.rpartition("/")
        (variable,) = places[parameter]
        moments[f"{variable}/{slot}"] = _as_variable(variable, tensor)
    return moments, step if isinstance(step, int) and 0 <= step < 1 << 63 else 0
