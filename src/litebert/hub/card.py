"""A model's card: the template card.md, filled from what is on disk: the model, its
tokenizer, its run.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path, PurePath
from typing import Any

from litebert.errors import LitebertError
from litebert.files import hash_file, read_capped, write_text
from litebert.folder import ModelFolder, read_folder, weights_path
from litebert.folder.config import architecture, refusal_of
from litebert.plugins import VERBS
from litebert.runs import MeasuredStep, RunFolder, is_run
from litebert.settings import DEFAULT, SUITED, is_typed, name_in

CARD_FILE = "README.md"
WRITTEN_BY_LITEBERT = (
    "<!-- Written by litebert. Remove this line to keep your own changes. -->"
)
_LONGEST_CARD = 4 << 20
# Settings that are paths, which are private, each with its word in a command; "" if
# another word of it stands for them.
_PATHS = {
    "data.corpus": "",
    "data.dev": "DEV",
    "data.eval_corpus": "CORPUS",
    "data.folder": "",
    "data.mix": "CORPUS",
    "data.train": "",
    "distil.teacher": "",
    "model.start": "",
    "start.model": "",
    "teacher.run": "",
}
# origins of settings that other words of the command imply
_IMPLIED = {"recipe", "preset", "tokenizer", "start"}


def write_card(folder: Path, *, final: Path | None = None) -> None:
    """Write the card into a model folder; `litebert hub push` rewrites it.

    `final` is where a folder that is being written will stand.
    """
    card = model_card(folder, final=final)
    write_text(folder / CARD_FILE, f"{card}\n{WRITTEN_BY_LITEBERT}\n")


def card_of(
    folder: Path, *, name: str, license: str = "", languages: Sequence[str] = ()
) -> tuple[str, bool]:
    """Return the card that is published with a model, and whether it is the folder's
    own README.md.

    A README.md of your own is used unchanged; otherwise a card is made from the files
    on disk, which checks them, too.
    """
    card = model_card(folder, name=name, license=license, languages=languages)
    path = folder / CARD_FILE
    if not path.is_file():
        return card, False
    written = read_capped(path, _LONGEST_CARD, command=f"ls -l {path}")
    if WRITTEN_BY_LITEBERT.encode() in written:
        return card, False
    if license or languages:
        raise LitebertError(
            "LB-637",
            f"{path} exists and is used unchanged: --license and --language have no"
            " effect",
            next=f"put them between the lines of --- in {path}, or move it away",
        )
    return written.decode("utf-8", "replace"), True


def model_card(
    folder: Path,
    *,
    name: str | None = None,
    final: Path | None = None,
    license: str = "",
    languages: Sequence[str] = (),
) -> str:
    """Return the text of README.md for a model folder; `name` is what users will pass
    to `load`, by default the place of the folder, which is `final` while it is written.

    For a folder inside a run (runs/<name>/model, next to run.json), it includes
    metrics, the settings that were set, and the hashes of the data. License and
    languages are in no file.
    """
    place = folder if final is None else final
    loaded_by = name or str(place)
    model = read_folder(folder)
    values = _abilities(model)
    header = {  # YAML
        "license": license,
        "language": list(languages),
        "library_name": "litebert",
        "pipeline_tag": values.pop("pipeline"),
        "tags": ["albert", *values.pop("tags")],
    }
    values |= _sizes(model, folder)
    values |= _in_transformers(model)
    title = loaded_by.split("/")[-1]
    parent = place.absolute().parent
    if is_run(parent):
        run = RunFolder.open(parent)
        values |= _training(run, place.name)
        if title in ("model", "best"):
            title = run.name
    text: str = _template().render(
        header=header,
        title=title,
        name=loaded_by,
        config=model.config,
        head=model.head,
        remarks=[note for note in model.notes if "no hash" not in note],
        **values,
    )
    return text


def _template() -> Any:
    import jinja2

    environment = jinja2.Environment(  # noqa: S701
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters |= {"json": json.dumps, "number": "{:,}".format}
    text = (files("litebert.hub") / "card.md").read_text("utf-8")
    return environment.from_string(text)


# ---- the model -----------------------------------------------------------------------


def _abilities(model: ModelFolder) -> dict[str, Any]:
    """Return what a model does, by which calls, and how the Hub lists it."""
    head = model.head
    if head is not None:
        return {
            "does": [head.record.purpose],
            "calls": [VERBS[head.verb].in_python],
            "pipeline": head.record.pipeline,
            "tags": [head.kind],
        }
    verbs = [verb for verb in VERBS.values() if _can(model, verb)]
    tags = [verb.needs.replace("_", "-") for verb in verbs]
    return {
        "does": [verb.purpose for verb in verbs] or ["gives hidden states"],
        "calls": [verb.in_python for verb in (*verbs, VERBS["embed"])],
        "pipeline": "fill-mask" if "masked-lm" in tags else "",
        "tags": tags,
    }


def _can(model: ModelFolder, verb: Any) -> bool:
    """Return whether a pretrained model has what a verb's head needs.

    Sentence order also needs the pooler; masked words do not.
    """
    if not verb.purpose or verb.needs not in getattr(model.network, "heads", ()):
        return False
    needs = [f"{verb.needs}."]
    if verb.needs != "masked_lm":
        needs.append("albert.")
    return not any(name.startswith(tuple(needs)) for name in model.missing)


def _sizes(model: ModelFolder, folder: Path) -> dict[str, Any]:
    """Return the sizes of the network, the vocabulary and the weights, with hashes."""
    tokenizer = model.tokenizer
    vocabulary = f"{model.config.vocab_size:,} pieces; its tokenizer is not here"
    if tokenizer is not None:
        vocabulary = f"{tokenizer.vocab_size:,} pieces, blake2b `{tokenizer.hash}`"
    num_bytes = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    weights = f"{num_bytes:,} bytes"
    single = weights_path(folder)
    if single.is_file():
        weights += f", blake2b `{hash_file(single)}`"
    num_parameters = 0
    for parameter in model.network.parameters():
        if not parameter.is_meta:  # in the files
            num_parameters += parameter.numel()
    return {
        "size": num_parameters,
        "vocabulary": vocabulary,
        "weights": weights,
    }


def _in_transformers(model: ModelFolder) -> dict[str, Any]:
    """Return whether transformers has such a head, and the class that opens the
    model.
    """
    head = model.head
    refusal = refusal_of(head)
    is_there = not refusal and (head is None or head.record.is_in_transformers)
    class_name = "AlbertModel"
    if is_there:
        parameters = model.network.state_dict().keys() - model.missing
        class_name = architecture(head, parameters)
    return {
        "refusal": refusal,
        "is_in_transformers": is_there,
        "architecture": class_name,
    }


# ---- its run -------------------------------------------------------------------------


def _training(run: RunFolder, folder_name: str) -> dict[str, Any]:
    """Return what the run recorded: metrics (in `best`, of the best step), data by
    hash, settings, command.
    """
    result = run.outcome
    evaluated = run.evaluations[-1] if run.evaluations else MeasuredStep(step=0)
    baseline: Mapping[str, float] = {}
    doubts: Sequence[str] = ()
    if result:
        evaluated = result.best if folder_name == "best" else result.of_model
        baseline = result.baseline
        doubts = result.doubts
    were_set = dict[str, str]()
    for name, value in run.settings.items():
        is_of_start = name.startswith("model.")
        is_default = run.file.origins.get(name) == DEFAULT
        if name not in _PATHS and not is_of_start and not is_default:
            were_set[name] = f"`{value}`"
    return {
        "run": run,
        "evaluated": evaluated,
        "baseline": baseline,
        "doubts": doubts,
        "data": {name: f"`{value}`" for name, value in run.file.data.items()},
        "given": were_set,
        "command": shlex.join(["litebert", *_command(run)]),
    }


def _command(run: RunFolder) -> list[str]:
    """Return the words of a command that trains the model again, after `litebert`.

    A run may have been started in Python, so that the words follow from its settings.
    Folders are private: a path is reduced to a name.
    """
    origins = run.file.origins
    words_of = _pretraining_words if run.kind == "pretraining" else _finetuning_words
    words = words_of(run)
    if run.settings.get("teacher.run"):
        words += ["--teacher", "RUN"]
    recipes = set[str]()
    presets = set[str]()
    for origin in origins.values():
        recipe = name_in(origin, "recipe")
        preset = name_in(origin, "preset")
        if recipe:
            recipes.add(recipe)
        if preset and is_typed(origin):
            presets.add(preset)
    if recipes:
        words += ["--recipe", min(recipes)]
    for preset in sorted(presets):
        words += ["--preset", preset]
    words += ["--name", run.name]
    for plugin in run.file.plugins:
        words += ["--plugin", f"{plugin}.py"]
    for name, origin in sorted(origins.items()):
        by_another_word = name == "task.name" or _PATHS.get(name) == ""
        if not by_another_word and not _is_implied(origin):
            words.append(_setting_word(name, run.settings.get(name)))
    return words


def _pretraining_words(run: RunFolder) -> list[str]:
    words = ["pretrain"]
    if run.settings.get("distil.teacher"):
        words = ["distil", "TEACHER"]
    words += ["--corpus", "CORPUS"]
    if run.settings.get("start.model"):
        words += ["--from", "MODEL"]
    return words


def _finetuning_words(run: RunFolder) -> list[str]:
    task = str(run.settings["task.name"])
    if task == "table":
        words = [
            "finetune",
            PurePath(str(run.settings.get("data.train") or "DATA")).name,
        ]
    else:
        words = ["finetune", task, "--data", "DATA"]
    if run.file.origins.get("model.start") != DEFAULT:
        words += ["--model", "MODEL"]
    return words


def _is_implied(origin: str) -> bool:
    """Return whether a setting of this origin follows from other words."""
    return origin in (DEFAULT, SUITED) or origin.partition(" ")[0] in _IMPLIED


def _setting_word(name: str, value: Any) -> str:
    """Return `name=value`, with a word in the place of each path."""
    placeholder = _PATHS.get(name)
    if placeholder and value:
        value = [placeholder] * len(value) if isinstance(value, list) else placeholder
    shown = value if isinstance(value, str) else _toml(value)
    return f"{name}={shown}"


def _toml(value: object) -> str:
    """Return a value as the word of a setting gives it, in TOML.

    >>> _toml({"masked_lm": 1.0, "sentence_order": 0.5})
    '{masked_lm = 1.0, sentence_order = 0.5}'
    """
    if not isinstance(value, dict):
        return json.dumps(value)  # numbers, booleans and lists of texts are the same
    pairs = [f"{name} = {_toml(item)}" for name, item in value.items()]
    return f"{{{', '.join(pairs)}}}"
