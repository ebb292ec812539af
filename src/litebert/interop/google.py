"""Checkpoints of Google's code (google-research/albert): find them, convert them to a
model folder and back.
"""

import gzip
import json
import re
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import product
from mmap import ACCESS_READ, mmap
from pathlib import Path
from tempfile import TemporaryDirectory, TemporaryFile
from typing import Any, cast

import torch
from torch import Tensor

from litebert.config import (
    PRESETS,
    AlbertConfig,
    HeadConfig,
    numbered_labels,
)
from litebert.errors import DamagedError, LitebertError, NoVocabularyError, disk_errors
from litebert.files import (
    Json,
    read_json,
    require_new,
    staged_folder,
    write_bytes,
    write_json,
)
from litebert.folder import read_folder, write_folder
from litebert.folder.config import build_config, doubts, refusal_of
from litebert.folder.model import build_network
from litebert.folder.names import GOOGLE, canonicalise, groups_on_disk, tensor_names
from litebert.folder.weights import read_weights, widen, write_weights
from litebert.interop import GoogleExport, ModelImport
from litebert.interop.bundle import Bundle, read_bundle, write_bundle
from litebert.interop.huggingface import notes_on_tokenizer, report_of
from litebert.nn import USUAL_HEADS
from litebert.plugins import TASK_HEADS
from litebert.tokenizer import Tokenizer
from litebert.tokenizer.tokenizer import read_vocabulary

# as in the checkpoints of a run
OPTIMIZER_FILE = "optimizer.safetensors"
STATE_FILE = "state.json"
CONFIG_FILE = "albert_config.json"
_VOCABULARIES = (
    "30k-clean.model",
    "spiece.model",
    "*.model",
    "vocab.txt",
    "vocab*.txt",
)
_STEP = "global_step"
_CLASSIFIER = "output_weights"
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
        bundle = read_bundle(prefix)
        # TF-Hub's names
        entries = {
            name.removeprefix("module/"): entry
            for name, entry in bundle.entries.items()
        }
        bundle = replace(bundle, entries=entries)
        blocks = {
            (int(match[1]), int(match[2]))
            for name in entries
            if (match := _BLOCK.match(name))
        }
        if _WORDS not in entries or not blocks:
            what = f"{prefix} is not a checkpoint of an ALBERT"
            names = f"{len(entries)}: {', '.join(entries)}"
            raise LitebertError(
                "LB-719",
                what,
                received=names,
                expected=f"{_WORDS}, {GOOGLE.encoder}encoder/...",
            )
        task = find_head(bundle, kind=head, labels=tuple(labels))
        beside = config or _find_beside(
            prefix, (CONFIG_FILE, "albert_config*.json", "bert_config*.json")
        )
        if beside is None:
            what = f"there is no {CONFIG_FILE} next to the checkpoint {prefix}"
            raise LitebertError(
                "LB-715", what, next="give the one that belongs to it with --config"
            )
        settings, notes = read_official_config(beside)
        groups = settings.num_hidden_groups
        inner = settings.inner_group_num
        # before a network of that many is built
        if blocks != set(product(range(groups), range(inner))):
            what = (
                f"{prefix} has {len(blocks)} blocks, the last {max(blocks)}, its"
                f" configuration {groups} x {inner}"
            )
            raise DamagedError(
                "LB-721",
                what,
                next="give the configuration that belongs to it with --config",
            )
        has_slots = any(name.endswith(_SLOTS) for name in entries)
        if has_optimizer and not has_slots:
            what = (
                f"{prefix} has no optimizer: no variable ends in {_SLOTS[0]}, as in the"
                " released ones"
            )
            raise LitebertError("LB-724", what, next="omit --optimizer")
        if has_slots and not has_optimizer:
            notes.append("the optimizer was omitted: --optimizer keeps it")

        def tensor(variable: str) -> Tensor:
            """Read a variable, or a moment of it, in our layout: kernels as [out,
            in].
            """
            return (
                bundle.read(variable).T.contiguous()
                if "/kernel" in variable
                else bundle.read(variable)
            )

        # Our network. Slots of any optimizer are named below their variable; unknown
        # variables may be unreadable.
        stored = [
            name for name in entries if not name.endswith(_SLOTS) and name != _STEP
        ]
        weights = [name for name in stored if name.rpartition("/")[0] not in entries]
        readable = [
            name
            for name in weights
            if bundle.dtype(name) or name.startswith(GOOGLE.encoder)
        ]
        tensors = {name: tensor(name) for name in readable}
        loaded = build_network(tensors, settings, task, source=prefix, layout=GOOGLE)
        parameters = loaded.network.state_dict()
        wanted = {
            name: tensor_names(name, settings, task, GOOGLE)[0] for name in parameters
        }
        # Google's graph has a pooler under every head, used or not: it is kept for an
        # export back to Google's format.
        is_idle = loaded.network.albert.pooler is None
        idle = {
            name: widen(tensors[each], each)
            for name, each in _POOLER.items()
            if is_idle and each in tensors
        }

        vocabulary = tokenizer or _find_beside(prefix, _VOCABULARIES)
        imported = loaded
        if vocabulary is None:
            notes.append(
                "no tokenizer was found with the checkpoint: add one with"
                " --tokenizer FILE"
            )
        else:
            imported = replace(loaded, tokenizer=Tokenizer.load(vocabulary))
            notes += notes_on_tokenizer(imported)
        step = None
        with staged_folder(output, force=None) as staged:
            write_folder(imported, staged, also=idle)
            # a variable that never had a gradient has no moments: zeros
            if has_optimizer:
                moments = {
                    name + slot: (
                        widen(tensor(each + slot), f"{prefix}: {each}{slot}")
                        if each + slot in entries
                        else torch.zeros(parameters[name].shape)
                    )
                    for name, each in wanted.items()
                    for slot in _SLOTS
                }
                write_weights(staged / OPTIMIZER_FILE, moments)
                step = int(bundle.read(_STEP)) if _STEP in entries else 0
                write_json(staged / STATE_FILE, {"step": step})
    used = {wanted[name] for name in parameters.keys() - loaded.missing} | {
        _POOLER[name] for name in idle
    }
    return replace(
        report_of(path, output, loaded, notes),
        optimizer_step=step,
        unused=tuple(sorted({*stored} - used)),
    )


def find_head(
    bundle: Bundle, *, kind: str | None, labels: tuple[str, ...]
) -> HeadConfig | None:
    """Return the task head of a checkpoint; None if it has the pretraining heads, or
    none.

    Its variables identify it, except that GLUE's and RACE's heads share a name: `kind`
    and `labels` come from the user. A head with one output and without labels is for
    regression or multiple choice.
    """
    possible = [
        each
        for each, record in TASK_HEADS.items()
        if record.variable and record.variable in bundle.entries
    ]
    num_outputs = (
        next(iter(bundle.shape(_CLASSIFIER)), 0) if _CLASSIFIER in bundle.entries else 0
    )
    chosen = kind or (
        possible[0] if possible and (num_outputs != 1 or labels) else None
    )
    record = TASK_HEADS[chosen] if chosen else None
    names = labels
    fits = chosen in possible if possible else chosen is None
    if record and record.has_labels:
        names = labels or numbered_labels(min(num_outputs, 100_000))
        fits = fits and len(set(names)) == len(names) == num_outputs > 0
    elif labels:
        fits = False
    elif record and record.variable == _CLASSIFIER:
        fits = fits and num_outputs == record.num_outputs
    if not fits:
        has = (
            f"a head with {num_outputs} outputs"
            if num_outputs
            else f"a {possible[0]} head"
            if possible
            else ""
        )
        what = (
            f"the checkpoint has {has or 'no task head'}, which is not what the"
            " options say"
        )
        said = f"--head {kind or 'none'}, --labels {','.join(labels) or 'none'}"
        wanted = (
            "a distinct label for each output of a classifier; for a single output"
            " without a label "
        )
        wanted += (
            "--head sequence-classification (STS-B) or --head multiple-choice (RACE);"
            " nothing for all others"
        )
        raise LitebertError(
            "LB-714",
            what,
            received=said,
            expected=wanted,
            next="litebert import google --help",
        )
    if record is None:
        return None
    assert chosen is not None
    if record.has_labels and record.reads == "pooled" and num_outputs == 1:
        return HeadConfig(kind=chosen, labels=names, problem_type="regression")
    return HeadConfig(kind=chosen, labels=names)


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
    notes = [*doubts(config).values()]
    if missing := [f"{name} {fields[name]}" for name in _FIELDS if name not in table]:
        notes.append(
            f"{path.name} leaves these out, which get the official default:"
            f" {', '.join(missing)}"
        )
    return config, notes


# --- from a model folder --------------------------------------------------------------


def export_checkpoint(model: Path, output: Path) -> GoogleExport:
    """Write a model folder as a checkpoint that Google's code can continue from, with
    its configuration.

    `output` is a prefix such as `folder/model.ckpt-best`, or a folder, which gets a
    checkpoint of that name.
    """
    source = read_folder(model)
    network = source.network
    config = source.config
    head = source.head
    layers = config.num_hidden_layers
    groups = groups_on_disk(config)
    is_other = any(
        int(layer / layers * groups) != layer * groups // layers
        for layer in range(layers)
    )
    is_extra = (
        config.projects_embeddings and config.embedding_size == config.hidden_size
    )
    added = sorted({*getattr(network, "heads", ())} - {*USUAL_HEADS})
    obstacles = {
        "a projection of the embeddings although E = H (modeling.py L1083 has none)": (
            is_extra
        ),
        f"{groups} groups of {layers} layers, which it rounds otherwise (modeling.py L1089)": (
            is_other
        ),
        f"attention {config.attention}, not full": (not config.has_full_attention),
        f"a head that is neither on [CLS] nor on tokens, {head and head.kind}": (
            head and head.record.reads in ("texts", "pairs")
        ),
        f"{refusal_of(head)}": refusal_of(head),
        f"the pretraining heads {', '.join(added)}": bool(added),
    }
    if received := ", ".join(name for name, is_there in obstacles.items() if is_there):
        what = f"Google's code cannot compute the network of {model}"
        advice = "litebert export onnx --help"
        raise LitebertError(
            "LB-709",
            what,
            received=received,
            next=f"{advice}; or fine-tune with model.pooling=cls",
        )

    # Its configuration, and what it cannot express
    fields = config.model_dump(mode="json")
    table = (
        _UNUSED
        | {name: fields[name] for name in _FIELDS}
        | {"num_hidden_groups": groups}
    )
    table["hidden_act"] = (
        "gelu" if config.hidden_act.startswith("gelu") else config.hidden_act
    )
    lost = {
        "hidden_act gelu, the erf form, becomes Google's gelu, the tanh form": (
            config.hidden_act == "gelu"
        ),
        f"layer_norm_eps {config.layer_norm_eps:g} becomes Google's fixed 1e-12": (
            config.layer_norm_eps != 1e-12
        ),
        f"sharing {config.sharing} is written as the unshared layers it equals": (
            config.sharing != "all"
        ),
    }
    notes = [note for note, is_so in lost.items() if is_so]

    # Its weights: kernels as [in, out]; only litebert has heads after inner steps
    def as_variables(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        pairs = [
            (each, t.detach())
            for n, t in tensors.items()
            for each in tensor_names(n, config, head, GOOGLE)
        ]
        return {
            variable: tensor.T if variable.endswith("/kernel") else tensor
            for variable, tensor in pairs
        }

    parameters = {
        name: each
        for name, each in network.state_dict().items()
        if not name.startswith("exits.")
    }
    weights = as_variables(
        {name: each for name, each in parameters.items() if not each.is_meta}
    )
    if missing := sorted(
        {name.rpartition(".")[0] for name, each in parameters.items() if each.is_meta}
    ):
        notes.append(f"not in the model: {', '.join(missing)}")
    if len(parameters) < len(network.state_dict()):
        notes.append(
            "the heads after inner steps, which Google's graph does not have, are"
            " omitted"
        )
    if network.albert.pooler is None:
        stored = canonicalise(read_weights(model).tensors)[0]
        if not _POOLER.keys() <= stored.keys():
            notes.append(
                "the pooler, which Google's graph has but this head does not use, is"
                " zeros"
            )
            shapes = ((config.hidden_size, config.hidden_size), (config.hidden_size,))
            stored = {
                name: torch.zeros(shape)
                for name, shape in zip(_POOLER, shapes, strict=True)
            }
        weights |= as_variables(
            {name: widen(stored[name], f"{model}: {name}") for name in _POOLER}
        )

    prefix = output if "ckpt" in output.name else output / "model.ckpt-best"
    files = {CONFIG_FILE: (json.dumps(table, indent=2, sort_keys=True) + "\n").encode()}
    # Google's code cannot read tokenizer.json: if necessary, the vocabulary is made
    # from it
    try:
        words = read_vocabulary(model)
        files[{".model": "30k-clean.model", ".txt": "vocab.txt"}[words.suffix]] = (
            words.data
        )
        if source.tokenizer is not None and source.tokenizer.added:
            added = [token.content for token in source.tokenizer.added[:5]]
            notes.append(
                "Google's tokenizer does not split off the added tokens:"
                f" {', '.join(added)}"
            )
        if not words.settings.lowercase:
            notes.append(
                "the vocabulary is cased: run Google's code with --do_lower_case=False"
            )
        if words.settings.keep_accents:
            notes.append("the vocabulary has accents, which Google's code always drops")
    except NoVocabularyError as error:
        notes.append(f"Google's code also needs the vocabulary: {error.what}")
    # for tf.train.latest_checkpoint
    quoted = '"' + prefix.name.replace("\\", "\\\\").replace('"', '\\"') + '"'
    files["checkpoint"] = (
        f"model_checkpoint_path: {quoted}\nall_model_checkpoint_paths: {quoted}\n".encode()
    )
    require_new(prefix.with_name(f"{prefix.name}.index"), force=None)
    for name, data in files.items():
        path = prefix.with_name(name)
        # else an export that was killed wrote it
        if not (path.is_file() and path.read_bytes() == data):
            require_new(path, force=None)
    for name, data in files.items():
        write_bytes(prefix.with_name(name), data, force=None, accepts_same=True)
    written = write_bundle(prefix, weights | {_STEP: torch.tensor(0)})  # its index last
    names = (*files, *(path.name for path in written))
    num_parameters = sum(each.numel() for each in weights.values())
    return GoogleExport(
        str(prefix), names, len(weights) + 1, num_parameters, tuple(notes)
    )


# --- finding a checkpoint: in an archive, which is unpacked, in a folder, or at its prefix

MAX_BYTES = 10 << 30
MAX_ENTRIES = 1_000  # the released models have at most nine files
MAX_PARTS = 32  # of a path in an archive; theirs have at most three
MAX_RATIO = 100  # unpacked bytes per byte of an archive, beyond the first MiB
_PART = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")


@contextmanager
def open_checkpoint(path: Path, *, workplace: Path) -> Iterator[Path]:
    """Yield the prefix of the checkpoint at a path; an archive is unpacked into
    `workplace` for that time.
    """
    is_archive = False
    if path.is_file():
        with path.open("rb") as file:
            is_archive = file.read(2) == b"\x1f\x8b"  # gzip
    with ExitStack() as stack:
        folder = path
        prefix = None
        if is_archive:
            workplace.mkdir(parents=True, exist_ok=True)
            folder = Path(
                stack.enter_context(
                    TemporaryDirectory(prefix=".unpacked-", dir=workplace)
                )
            )
            unpack(path, folder)
        elif not path.is_dir():  # "." and "/" have no name
            prefix = path.with_name(_PART.sub("", path.name))
        if prefix and prefix.with_name(f"{prefix.name}.index").is_file():
            found = [prefix]
        else:  # the only checkpoint in the folder, or in a folder below it
            places = (
                each
                for pattern in ("*.index", "*/*.index", "*/*/*.index")
                for each in folder.glob(pattern)
            )
            found = sorted(each.with_suffix("") for each in places if each.is_file())
        if len(found) != 1:
            what = (
                f"there is {'more than one' if found else 'no'} TensorFlow checkpoint"
                f" at {path}"
            )
            names = (
                ", ".join(each.relative_to(folder).as_posix() for each in found[:8])
                or None
            )
            expected = (
                "a .tar.gz, a folder with *.index, or a prefix such as model.ckpt-best"
                " (TensorFlow 1.0 or later)"
            )
            raise LitebertError("LB-718", what, received=names, expected=expected)
        yield found[0]


def _find_beside(prefix: Path, patterns: tuple[str, ...]) -> Path | None:
    """Return the first file that matches the patterns, next to a checkpoint or in its
    TF-Hub module's assets.
    """
    module = (
        prefix.parent.parent if prefix.parent.name == "variables" else prefix.parent
    )
    places = (prefix.parent, module, module / "assets")
    found = (
        path
        for pattern in patterns
        for place in places
        for path in sorted(place.glob(pattern))
    )
    return next((path for path in found if path.is_file()), None)


def unpack(archive: Path, into: Path) -> None:
    """Extract the plain files of a .tar.gz into the folder `into`, within limits of
    size and number.
    """
    limit = min(MAX_BYTES, MAX_RATIO * archive.stat().st_size + (1 << 20))
    try:
        with disk_errors(into), TemporaryFile(dir=into) as plain:
            # read to its end, where gzip's checksum is
            with gzip.open(archive) as packed:
                while piece := packed.read(1 << 20):
                    plain.write(piece)
                    if plain.tell() > limit:
                        raise tarfile.FilterError(f"more than {limit:,} bytes")
            plain.flush()
            # From a file, tarfile would try to read as many bytes as a header
            # announces; a map ends with the file.
            with (
                mmap(plain.fileno(), 0, access=ACCESS_READ) as whole,
                tarfile.TarFile(fileobj=cast(Any, whole)) as tar,
            ):
                for number, member in enumerate(tar):
                    if number == MAX_ENTRIES:
                        raise tarfile.FilterError(f"more than {MAX_ENTRIES:,} entries")
                    if member.name.count("/") >= MAX_PARTS:
                        raise tarfile.FilterError(f"more than {MAX_PARTS} folders")
                    if not (member.isreg() or member.isdir()) or member.issparse():
                        raise tarfile.SpecialFileError(member)
                    tar.extract(member, into, set_attrs=False, filter="data")
    except tarfile.FilterError as error:
        what = f"{archive} contains more than a checkpoint"
        advice = "unpack it yourself and give the folder instead"
        expected = (
            f"plain files, at most {MAX_BYTES >> 30} GiB, {MAX_ENTRIES:,} files and"
            f" {MAX_RATIO} times its size"
        )
        raise LitebertError(
            "LB-701", what, received=error, expected=expected, next=advice
        ) from error
    except (
        tarfile.TarError,
        EOFError,
        zlib.error,
        ValueError,
        RecursionError,  # a header about a header about a header ...
        gzip.BadGzipFile,
    ) as error:
        what = f"{archive} is cut off or damaged"
        raise DamagedError(
            "LB-702", what, received=error, next=f"fetch {archive.name} again"
        ) from error
