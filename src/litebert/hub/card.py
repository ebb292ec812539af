"""A model's card: the template card.md, filled from what is on disk: the model, its
tokenizer, its run.
"""

import json
import shlex
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path, PurePath
from typing import Any

from litebert.errors import LitebertError
from litebert.files import hash_file, read_capped, write_text
from litebert.folder import ModelFolder, read_folder, weights_path
from litebert.folder.config import architecture, refusal_of
from litebert.plugins import VERBS
from litebert.runs import MeasuredStep, Run, is_run
from litebert.settings import DEFAULT, SUITED, is_typed, name_in

CARD_FILE = "README.md"
WRITTEN_BY_LITEBERT = (
    "<!-- Written by litebert. Remove this line to keep your own changes. -->"
)
_LONGEST_CARD = 4 << 20
# Settings that are paths, which are private, each with its word in a command; "" if
# another word of it stands for them.
_PATHS = {
    "data.mix": "CORPUS",
    "data.eval_corpus": "CORPUS",
    "data.dev": "DEV",
} | dict.fromkeys(
    (
        "data.corpus",
        "data.folder",
        "data.train",
        "start.model",
        "model.start",
        "distil.teacher",
        "teacher.run",
    ),
    "",
)
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
    own = folder / CARD_FILE
    written = (
        read_capped(own, _LONGEST_CARD, command=f"ls -l {own}")
        if own.is_file()
        else WRITTEN_BY_LITEBERT.encode()
    )
    if WRITTEN_BY_LITEBERT.encode() in written:
        return card, False
    if license or languages:
        what = (
            f"{own} exists and is used unchanged: --license and --language have no"
            " effect"
        )
        raise LitebertError(
            "LB-637",
            what,
            next=f"put them between the lines of --- in {own}, or move it away",
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
    import jinja2

    loaded = read_folder(folder)
    network = loaded.network
    config = loaded.config
    head = loaded.head
    place = folder if final is None else final
    parent = place.absolute().parent
    run = Run.open(parent) if is_run(parent) else None
    name = name or str(place)
    title = name.split("/")[-1]
    if run is not None and title in ("model", "best"):
        title = run.name

    # What it does, and by which calls
    if head:
        able = [VERBS[head.verb]]
        does = [head.record.purpose]
        tags = [head.kind]
        pipeline = head.record.pipeline
    else:
        able = [verb for verb in VERBS.values() if _can(loaded, verb)]
        does = [verb.purpose for verb in able] or ["gives hidden states"]
        tags = [verb.needs.replace("_", "-") for verb in able]
        pipeline = "fill-mask" if "masked-lm" in tags else ""
        able.append(VERBS["embed"])
    calls = [verb.in_python for verb in able]

    # What is on disk
    tokenizer = loaded.tokenizer
    vocabulary = f"{config.vocab_size:,} pieces; its tokenizer is not here"
    if tokenizer is not None:
        vocabulary = f"{tokenizer.vocab_size:,} pieces, blake2b `{tokenizer.hash}`"
    weights = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    single = weights_path(folder)
    is_theirs = head is None or head.record.is_in_transformers
    is_theirs = is_theirs and not refusal_of(head)
    header = {  # YAML
        "license": license,
        "language": list(languages),
        "library_name": "litebert",
        "pipeline_tag": pipeline,
        "tags": ["albert", *tags],
    }
    environment = jinja2.Environment(  # noqa: S701
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters |= {"json": json.dumps, "number": "{:,}".format}
    return environment.from_string(
        (files("litebert.hub") / "card.md").read_text("utf-8")
    ).render(
        header=header,
        title=title,
        config=config,
        head=head,
        does=does,
        size=sum(each.numel() for each in network.parameters() if not each.is_meta),
        vocabulary=vocabulary,
        weights=f"{weights:,} bytes"
        + (f", blake2b `{hash_file(single)}`" if single.is_file() else ""),
        remarks=[note for note in loaded.notes if "no hash" not in note],
        name=name,
        calls=calls,
        is_in_transformers=is_theirs,
        refusal=refusal_of(head),
        architecture=(
            architecture(head, network.state_dict().keys() - loaded.missing)
            if is_theirs
            else "AlbertModel"
        ),
        **(_training(run, place.name) if run is not None else {}),
    )


def _can(loaded: ModelFolder, verb: Any) -> bool:
    """Return whether a pretrained model has what a verb's head needs.

    Sentence order also needs the pooler; masked words do not.
    """
    if not verb.purpose or verb.needs not in getattr(loaded.network, "heads", ()):
        return False
    needs = [f"{verb.needs}."]
    if verb.needs != "masked_lm":
        needs.append("albert.")
    return not any(name.startswith(tuple(needs)) for name in loaded.missing)


def _toml(value: object) -> str:
    """Return a value as the word of a setting gives it, in TOML.

    >>> _toml({"masked_lm": 1.0, "sentence_order": 0.5})
    '{masked_lm = 1.0, sentence_order = 0.5}'
    """
    if not isinstance(value, dict):
        return json.dumps(value)  # numbers, booleans and lists of texts are the same
    pairs = [f"{name} = {_toml(item)}" for name, item in value.items()]
    return f"{{{', '.join(pairs)}}}"


def _training(run: Run, kept: str) -> dict[str, object]:
    """Return what the run recorded: metrics (in `best`, of the best step), data by
    hash, settings, command.
    """
    result = run.outcome
    settings = run.settings
    origins = run.file.origins
    evaluated = run.evaluations[-1] if run.evaluations else MeasuredStep(step=0)
    if result:
        evaluated = result.best if kept == "best" else result.of_model

    # The command: folders are private, so paths are reduced to names.
    if run.kind == "pretraining":
        words = (
            ["distil", "TEACHER"] if settings.get("distil.teacher") else ["pretrain"]
        )
        words = [*words, "--corpus", "CORPUS"]
        start = "--from" if settings.get("start.model") else ""
    else:
        task = str(settings["task.name"])
        own = PurePath(str(settings.get("data.train") or "DATA")).name
        words = (
            ["finetune", own]
            if task == "table"
            else ["finetune", task, "--data", "DATA"]
        )
        start = "" if origins.get("model.start") == DEFAULT else "--model"
    words += [start, "MODEL"] if start else []
    words += ["--teacher", "RUN"] if settings.get("teacher.run") else []
    recipes = sorted(
        {recipe for origin in origins.values() if (recipe := name_in(origin, "recipe"))}
    )
    words += ["--recipe", recipes[0]] if recipes else []
    presets = {
        preset
        for origin in origins.values()
        if is_typed(origin) and (preset := name_in(origin, "preset"))
    }
    words += [
        *(word for name in presets for word in ("--preset", name)),
        "--name",
        run.name,
    ]
    for name, origin in sorted(origins.items()):
        is_implied = origin in (DEFAULT, SUITED) or origin.partition(" ")[0] in _IMPLIED
        value = settings.get(name)
        word = _PATHS.get(name)
        if not is_implied and name != "task.name" and word != "":
            if word and value:
                value = [word] * len(value) if isinstance(value, list) else word
            words.append(f"{name}={value if isinstance(value, str) else _toml(value)}")

    given = {
        name: f"`{value}`"
        for name, value in settings.items()
        if origins.get(name) != DEFAULT
    }
    return {
        "run": run,
        "evaluated": evaluated,
        "baseline": result.baseline if result else {},
        "doubts": result.doubts if result else (),
        "data": {name: f"`{value}`" for name, value in run.file.data.items()},
        "given": {
            name: value
            for name, value in given.items()
            if name not in _PATHS and not name.startswith("model.")
        },
        "command": shlex.join(["litebert", *words]),
    }
